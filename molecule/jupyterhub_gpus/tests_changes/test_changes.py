# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of leases and servers when rules, GPUs, the hub or servers change or die."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://hub"]
UNITS = ["jupyterhub", "cudahub-gpu-collector"]

HERE = Path(__file__).parents[1]
FOUR = [f"user{number}" for number in range(1, 5)]
EXCLUSIVE = [{"name": "default", "policy": "exclusive"}]
SENTENCES = {
    "idle": "jupyterhub_gpus_idle warns 10 minutes before a server is stopped that is idle for 5",
    "idle_text": "give whole numbers, minutes from 0 and a utilization from 0 to 100 percent.",
    "nameless": "a pool has the name '': give each one that users understand",
    "nobody": "pool 'a' has groups []: give a list of names, or leave it out for all",
    "url": "give the URL at which the hub answers on its host, such as http://127.0.0.1:8000",
    "elsewhere": "jupyterhub.service on hub runs, and no hub answers at http://127.0.0.1:9/hub/api:",
    "no_hub_there": "jupyterhub.service on hub runs, and no hub answers at http://127.0.0.1:8000/hub/hub/api:",
    "others_config": "/etc/jupyterhub/jupyterhub_config.py on hub is not this role's",
    "second": "The GPUs of hub are those of the hub that loads /etc/jupyterhub/jupyterhub_config.d/gpus.py,",
    "others_state": "/var/lib on hub is no directory of leases, or has more in it",
    "not_python": "jupyterhub_gpus_python is /bin/echo, which does not run as Python on hub",
    "no_python": "hub has no /opt/none/bin/python: install JupyterHub first",
    "no_hub": "/usr/bin/python3 on hub has no JupyterHub, and this role is for 5.2 and later 5.x, and for 6",
    "old_hub": "/srv/old/python on hub has JupyterHub 5.1.0, and this role is for 5.2 and later 5.x, and for 6",
    "backend": "has no dockerspawner: install that, or choose the backend of the hub's spawner",
    "service": "systemd on hub does not know hub.service (it is not-found)",
    "place": "hub has no directory /etc/hub: set jupyterhub_gpus_config_file to",
    "overlap": "the pools 'a' and 'b' both have GPU 1 GPU-",
    "no_match": "pool 'a' has no GPU, as none fits its select '[?index == `9`]'",
    "driver": "The NVIDIA driver of hub is in state 'not_loaded', so that no GPU can be given.",
}

Play = Callable[..., CompletedProcess[str]]


def said(done: CompletedProcess[str]) -> str:
    """Return everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def apply(play: Play) -> Callable[..., str]:
    """Return a function that runs the role with variables, and gives what was said."""

    def run(*arguments: str, fails: bool = False, playbook: str = "role.yml", **variables: object) -> str:
        done = play(HERE / playbook, "-e", json.dumps(variables), *arguments)
        assert done.returncode == (2 if fails else 0), said(done)
        return said(done)

    return run


@pytest.mark.long
def test_refusals_come_before_any_change(apply: Callable[..., str]) -> None:
    text = apply(playbook="refusals.yml")
    for name, sentence in SENTENCES.items():
        assert re.search(rf"refused {name}: [^\n]*{re.escape(sentence)}", text), f"{name}\n{text}"
    # The one change is the stand-in for an older hub.
    assert "changed=1 " in text


def test_somebody_who_is_not_root(apply: Callable[..., str]) -> None:
    for entry in ("main", "verify", "absent"):
        text = apply("--become", "--become-user", "nobody", entry=entry, fails=True)
        assert "Role jupyterhub_gpus needs root on hub: set become to true." in text
        assert "changed=0 " in text


@pytest.mark.long
def test_a_second_hub(hub: Any, host: Host, apply: Callable[..., str]) -> None:
    """It gets none of the first one's GPUs, and takes nothing away from it, until the first one is gone."""
    second = {
        "jupyterhub_gpus_config_file": "/etc/jupyterhub/second.py",
        "jupyterhub_gpus_state_dir": "/var/lib/cudahub/second",
    }
    first = "/etc/jupyterhub/jupyterhub_config.d/gpus.py"
    rules, before = host.file("/etc/cudahub/jupyterhub_gpus.json"), hub.pid()
    kept = rules.content_string
    text = apply(**second, fails=True)
    assert (
        f"The GPUs of hub are those of the hub that loads {first}, and two hubs would give the same GPU twice" in text
    )
    assert "changed=0 " in text
    text = apply(**second, entry="absent", fails=True)
    assert f"those of the hub that loads {first}, and nothing was taken away: give the options of that hub." in text
    assert "changed=0 " in text
    assert (rules.content_string, hub.pid()) == (kept, before)
    # One that is broken, or of a hub that is gone, is written anew.
    for other in (kept[:-20], kept.replace(first, "/etc/jupyterhub/gone.py")):
        host.run_expect([0], f"cat > {rules.path} <<'end'\n{other}\nend")
        apply()
        assert rules.content_string == kept


@pytest.mark.long
def test_a_hub_that_lost_its_package(hub: Any, host: Host, apply: Callable[..., str]) -> None:
    host.run_expect([0], "rm -r /opt/cudahub/jupyterhub_gpus")
    host.run_expect([0], "systemctl restart jupyterhub")
    looks = "journalctl --unit=jupyterhub --lines=20 --output=cat | grep \"No module named 'cudahub_hub'\""
    hub.wait(lambda: host.run(looks).rc == 0, "the hub does not start")
    assert "hub does not find cudahub_hub" in apply(entry="verify", fails=True)
    apply()
    assert hub.start("user1") == {}
    assert hub.leases()["user1"][0] == "running"


def test_a_run_that_was_killed_before_the_restart(hub: Any, host: Host, apply: Callable[..., str]) -> None:
    """The next one restarts the hub with what was written."""
    before = hub.pid()
    host.run_expect([0], "systemctl daemon-reload; touch /etc/jupyterhub/jupyterhub_config.d/gpus.py")
    # Hubs with DockerSpawner have this one beside the leases.
    host.run_expect([0], "touch /var/lib/cudahub/hub/docker-engine")
    assert "changed=1 " in apply()
    assert hub.pid() != before


@pytest.mark.long
def test_an_older_version_of_the_package(hub: Any, host: Host, apply: Callable[..., str]) -> None:
    """Hub and collector go on with the newer one, and servers as they are."""
    assert hub.start("user1") == {}
    collector = "systemctl show cudahub-gpu-collector --property=MainPID"
    path = host.check_output("find / -xdev -name cudahub_hub.pth")
    host.run_expect([0], f"cp -r $(cat {path}) /opt/cudahub/jupyterhub_gpus/000000000000")
    host.run_expect([0], f"echo /opt/cudahub/jupyterhub_gpus/000000000000 > {path}")
    host.run_expect([0], "systemctl restart jupyterhub cudahub-gpu-collector")
    hub.wait(lambda: hub.ready() == ["user1"], "the hub is back")
    before, leases = (hub.pid(), host.check_output(collector)), hub.leases()
    apply()
    assert hub.pid() != before[0]
    assert host.check_output(collector) != before[1]
    assert hub.leases() == leases
    assert "changed=0 " in apply()


def test_other_rules_need_no_restart(hub: Any, apply: Callable[..., str]) -> None:
    """And `exclusive` refuses the fifth."""
    assert hub.start(*FOUR) == {}
    before = hub.pid(), hub.look(FOUR)
    apply(jupyterhub_gpus_pools=EXCLUSIVE)
    assert (hub.pid(), hub.look(FOUR)) == before
    refused = hub.start("user5")
    assert refused["user5"][0] == 409
    assert re.match(r"No GPU is free now: held by 4 others.*start without a GPU\.", refused["user5"][1]["message"])
    assert hub.start("user5", gpus=0) == {}
    hub.stop("user1")
    freed = {unit["uuid"] for unit in hub.inventory()} - {lease[1] for lease in hub.leases().values()}
    assert hub.start("user6") == {}
    assert hub.leases()["user6"] == ["running", *freed]


@pytest.mark.long
def test_a_hub_that_does_not_come_up(hub: Any, host: Host, apply: Callable[..., str]) -> None:
    """It goes back to what it ran with, or to nothing of this role."""
    place = "/etc/jupyterhub/jupyterhub_config.d/gpus.py"
    assert hub.start("user1") == {}
    before, leases = host.file(place).content_string, hub.leases()
    rules = {"jupyterhub_gpus_pools": EXCLUSIVE}
    wrong = {**rules, "jupyterhub_gpus_backend": "process", "_jupyterhub_gpus_patience": 15}
    text = apply(**wrong, fails=True)
    assert f"The hub of hub does not come up with {place}, and was restarted as it was before." in text
    assert "runs its servers by systemd, not by process" in text
    assert host.file(place).content_string == before
    hub.wait(lambda: hub.ready() == ["user1"], "the hub is back")
    assert hub.leases() == leases
    host.run_expect([0], f"rm {place}")
    apply(**wrong, fails=True)
    assert not host.file(place).exists
    hub.wait(lambda: hub.ready() == ["user1"], "the hub is back without the role")
    apply(**rules)
    assert host.file(place).content_string == before
    assert hub.leases() == leases


def test_a_hub_that_is_killed(hub: Any, host: Host) -> None:
    assert hub.start(*FOUR) == {}
    seen, leases, pid = hub.look(FOUR), hub.leases(), hub.pid()
    host.run_expect([0], "systemctl kill --signal=KILL jupyterhub")
    # One server dies while there is no hub.
    host.run_expect([0], "systemctl kill --signal=KILL jupyter-user4-singleuser")
    hub.wait(lambda: hub.pid() not in (0, pid) and set(hub.ready()) == set(FOUR[:3]), "the hub knows its servers again")
    assert hub.look(FOUR[:3]) == {user: seen[user] for user in FOUR[:3]}
    hub.wait(lambda: "user4" not in hub.leases(), "the GPU of the dead server is free")
    assert hub.leases() == {user: leases[user] for user in FOUR[:3]}
    assert hub.start("user5") == {}
    assert hub.leases()["user5"] == leases["user4"]


def test_a_server_that_is_killed(hub: Any, host: Host) -> None:
    assert hub.start("user1") == {}
    host.run_expect([0], "systemctl kill --signal=KILL jupyter-user1-singleuser")
    hub.wait(lambda: hub.leases() == {}, "its GPU is free")


def test_a_gpu_that_is_lost(hub: Any, host: Host) -> None:
    assert hub.start(*FOUR[:3]) == {}
    lost = hub.leases()["user1"][1]
    try:
        host.run_expect([0], f"gpu-simulator fault add --gpu {lost} --kind lost")
        hub.wait(lambda: "lost" in hub.notices("user1"), "its user is told")
        assert hub.start("user4") == {}
        refused = hub.start("user5")
        assert refused["user5"][0] == 409
        hub.stop("user1")
        refused = hub.start("user5")
        assert "1 out of order" in refused["user5"][1]["message"]
    finally:
        host.run_expect([0], "gpu-simulator fault clear")
    hub.wait(lambda: hub.start("user5") == {}, "the GPU is back in the pool")
    assert hub.leases()["user5"] == ["running", lost]


def test_other_gpus(hub: Any, host: Host, apply: Callable[..., str]) -> None:
    """Of four GPUs two are left: servers on the others keep what they have, and nobody else gets it."""
    assert hub.start(*FOUR) == {}
    leases = hub.leases()
    gone = {unit["uuid"] for unit in hub.inventory()[2:]}
    apply(playbook="other_gpus.yml", gpu_simulator_gpus=[{"model": "h200", "count": 2}])
    assert "The GPUs of hub are not what /etc/cudahub/gpus.json says" in apply(entry="verify", fails=True)
    apply(jupyterhub_gpus_pools=EXCLUSIVE)
    assert {unit["uuid"] for unit in hub.inventory()} & gone == set()
    assert hub.leases() == leases
    assert hub.start("user5")["user5"][0] == 409
    hub.stop(*(user for user, lease in leases.items() if lease[1] in gone))
    assert hub.start("user5")["user5"][0] == 409


def test_no_gpus(hub: Any, apply: Callable[..., str]) -> None:
    apply(playbook="other_gpus.yml", gpu_simulator_profile="none")
    assert "hub has no NVIDIA GPU: leave role jupyterhub_gpus out there" in apply(fails=True)
    apply(jupyterhub_gpus_required=False)
    assert hub.inventory() == []
    status, answer = hub.start("user1")["user1"]
    assert (status, answer["message"][:26]) == (409, "There is no GPU here now. ")
    assert hub.start("user1", gpus=0) == {}
    apply(playbook="other_gpus.yml")
