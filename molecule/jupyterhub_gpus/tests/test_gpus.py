# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users of a hub have after the role: a GPU of their own, and no other's."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://hub"]
UNITS = ["jupyterhub", "cudahub-gpu-collector"]

USERS = [f"user{number}" for number in range(1, 16)]
# Simulated device nodes have no driver behind them: that is what a process hears that may open one.
OPENED, DENIED = "ENXIO", "EPERM"


def opened(seen: dict[str, Any]) -> list[str]:
    """The device nodes of GPUs that a process may open."""
    assert set(seen["nodes"].values()) <= {OPENED, DENIED}
    return [node for node, said in seen["nodes"].items() if said == OPENED]


def test_fifteen_users_share_four_gpus(hub: Any) -> None:
    assert hub.start(*USERS, gpus=None) == {}
    seen = hub.look(USERS)
    units = {unit["uuid"]: unit for unit in hub.inventory()}
    assert len(units) == 4
    given = {user: look["environment"]["CUDA_VISIBLE_DEVICES"] for user, look in seen.items()}
    assert sorted(Counter(given.values()).values()) == [3, 4, 4, 4]
    for user, look in seen.items():
        assert opened(look) == units[given[user]]["nodes"], user
        assert len(look["nodes"]) == 4
        assert look["common"] == {
            "/dev/nvidia-modeset": DENIED,
            "/dev/nvidia-uvm": OPENED,
            "/dev/nvidia-uvm-tools": OPENED,
            "/dev/nvidiactl": OPENED,
        }
        assert look["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert look["nvml"] == [given[user]]
    assert {user: lease[1:] for user, lease in hub.leases().items()} == {user: [uuid] for user, uuid in given.items()}


def test_a_server_without_gpu(hub: Any) -> None:
    assert hub.start("user1", "guest", gpus=0) == {}
    for look in hub.look(["user1", "guest"]).values():
        assert opened(look) == []
        assert set(look["common"].values()) == {DENIED}
        assert look["environment"]["CUDA_VISIBLE_DEVICES"] == ""
        assert look["nvml"] == []
    assert hub.leases() == {}


@pytest.mark.parametrize(
    ("user", "gpus", "status", "sentence"),
    [("guest", 1, 403, "Your account may not use GPUs here."), ("user1", 2, 403, "may hold 1 at a time")],
)
def test_what_a_user_may_not_have(hub: Any, user: str, gpus: int, status: int, sentence: str) -> None:
    refused = hub.start(user, gpus=gpus)
    assert refused[user][0] == status
    assert sentence in refused[user][1]["message"]
    assert hub.leases() == {}


def test_a_notebook_in_jupyterlab(hub: Any, host: Host) -> None:
    assert hub.start("anna") == {}
    ((_unused, token),) = hub.ask(("POST", "/hub/api/users/anna/tokens", {"expires_in": 600}))
    cell = "import subprocess; print(subprocess.check_output(['/opt/hub/bin/server', '--look'], text=True))"
    said = host.check_output("/opt/hub/bin/run_cell http://127.0.0.1:8000/user/anna/ %s %s", token["token"], cell)
    look = json.loads(said)
    assert len(opened(look)) == 1
    assert look["environment"]["CUDA_VISIBLE_DEVICES"] == hub.leases()["anna"][1]
    ((status, page),) = hub.ask(("GET", "/user/anna/lab", None))
    assert status == 200
    assert "cudahub-gpus" in page


def test_the_collector_sees_all_gpus_and_little_else(hub: Any, host: Host) -> None:
    usage = json.loads(host.check_output("runuser -u guest cat /run/cudahub/gpus.json"))
    assert {uuid: unit["state"] for uuid, unit in usage["units"].items()} == {
        unit["uuid"]: "ok" for unit in hub.inventory()
    }
    allowed = host.check_output("systemctl show --property=DeviceAllow,DevicePolicy cudahub-gpu-collector")
    assert "DevicePolicy=closed" in allowed
    assert {line.split("=")[1].split()[0] for line in allowed.splitlines() if line.startswith("DeviceAllow=")} == {
        *(f"/dev/nvidia{minor}" for minor in range(4)),
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    }


def test_leases_are_the_hubs_alone(host: Host) -> None:
    directory = host.file("/var/lib/cudahub/hub")
    assert (directory.user, directory.mode) == ("root", 0o700)
    assert host.file("/var/lib/cudahub/hub/leases.sqlite").mode == 0o600


def test_the_page_is_for_users_of_the_hub(hub: Any, host: Host) -> None:
    ((status, page),) = hub.ask(("GET", "/services/gpus/api/gpus", None))
    assert status == 200, page
    strangers = host.run("/opt/hub/bin/ask nobody %s", json.dumps([["GET", "/services/gpus/api/gpus", None]]))
    assert json.loads(strangers.stdout)[0][0] == 403
