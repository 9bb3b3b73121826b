# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Further runs: nothing for nothing, no restart under containers unasked, and an engine that always comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://box"]
UNITS = ["docker"]

Role = Callable[..., str]
SPEC = "/var/run/cdi/nvidia.yaml"
SENTENCES = {
    "engine": "nvidia_container_toolkit_engines names dockr, which role nvidia_container_toolkit does not know: it",
    "missing": "box has no crio, which nvidia_container_toolkit_engines names: install it, or leave it out.",
    "user": "box has no user nobody-here: create it",
    "sources": "box has entries for NVIDIA's repository of the toolkit in /etc/apt/sources.list.d/other.list, and",
    "driver": "The NVIDIA driver of box is in state 'not_loaded', so that no container can have a GPU: run role",
}


def test_second_run_changes_nothing_and_leaves_a_container_alone(host: Host, box: Any, role: Role) -> None:
    box.start("work")
    before = box.pids("work")
    said = role()
    assert "changed=0" in said
    assert box.pids("work") == before


def test_a_restart_waits_for_containers_unless_it_is_forced(host: Host, box: Any, role: Role) -> None:
    before = box.pids("work")
    said = role(docker_config={"log-level": "warn"})
    assert "[WARNING]: docker on box: restart needed, 1 containers run (work): stop them" in said
    assert box.pids("work") == before
    assert "docker on box waits for a restart, 1 containers run (work)" in role("verify", fails=True)
    said = role(docker_config={"log-level": "warn"}, restart="force")
    assert "restart needed" not in said
    assert box.pids("work")[0] != before[0]
    assert host.check_output("docker inspect --format '{{.State.Running}}' work") == "false"
    assert box.daemon()["log-level"] == "warn"
    host.check_output("docker rm work")


@pytest.mark.long
def test_never_leaves_a_reload_to_the_operator_too(host: Host, box: Any, role: Role) -> None:
    says = "docker info --format '{{json .Labels}}'"
    for _attempt in "12":
        said = role(docker_config={"labels": ["site=a"]}, restart="never")
        assert "[WARNING]: docker on box: reload needed, 0 containers run: run systemctl reload docker.service" in said
        assert "site=a" not in host.check_output(says)
    assert "changed=0" in said
    assert "docker on box waits for a reload, 0 containers run: run systemctl reload" in role("verify", fails=True)
    assert "reload needed" not in role(docker_config={"labels": ["site=a"]})
    assert "site=a" in host.check_output(says)


@pytest.mark.long
def test_with_live_restore_a_restart_leaves_containers_alone(host: Host, box: Any, role: Role) -> None:
    """Also where it is this run that sets it."""
    box.start("live")
    before = box.pids("live")
    config = {"live-restore": True, "log-level": "info", "labels": ["site=a"]}
    assert "restart needed" not in role(docker_config=config)
    after = box.pids("live")
    assert (after[0] != before[0], after[1]) == (True, before[1])
    assert host.check_output("docker inspect --format '{{.State.Running}}' live") == "true"
    # An engine that comes back without it would stop them.
    host.check_output('sed -i \'s/"live-restore": true/"live-restore": false/\' /etc/docker/daemon.json')
    assert "restart needed, 1 containers run (live)" in role(docker_config={"log-level": "warn"})
    assert box.pids("live") == after
    host.check_output("docker rm --force live")
    assert "restart needed" not in role(docker_config={"log-level": "warn"})
    # It is the user's now, and would stay.
    forget = "import json; path = '/etc/docker/daemon.json'; config = json.load(open(path)); del config['live-restore']"
    host.check_output("python3 -c %s", forget + "; json.dump(config, open(path, 'w'), indent=4)")


@pytest.mark.long
def test_an_engine_that_answers_and_then_dies_gets_its_old_configuration(host: Host, box: Any, role: Role) -> None:
    """Many restarts by hand before are no reason either that it does not come back."""
    host.check_output(
        "printf '#!/bin/sh\\ngrep -q debug-me /etc/docker/daemon.json && "
        "(until timeout 1 docker info >/dev/null 2>&1; do sleep 0.2; done; sleep 2; kill -9 $$) &\\n"
        'exec dockerd "$@"\\n\' > /usr/local/sbin/dying && chmod +x /usr/local/sbin/dying'
    )
    folder = "/etc/systemd/system/docker.service.d"
    start = "/usr/local/sbin/dying -H fd:// --containerd=/run/containerd/containerd.sock"
    host.check_output(
        f"mkdir -p {folder} && printf '[Service]\\nExecStart=\\nExecStart={start}\\n' > {folder}/dying.conf"
    )
    try:
        host.check_output("systemctl daemon-reload && systemctl reset-failed docker && systemctl restart docker")
        host.check_output("systemctl restart docker && systemctl restart docker")
        before = host.file("/etc/docker/daemon.json").content_string
        said = role(fails=True, docker_config={"log-opts": {"tag": "debug-me"}})
        assert "runs again with the old one" in said
        assert host.file("/etc/docker/daemon.json").content_string == before
        host.check_output("timeout 60 docker info")
    finally:
        host.check_output(f"rm -r {folder} && systemctl daemon-reload && systemctl reset-failed docker")
        host.check_output("systemctl restart docker")


def test_an_engine_that_does_not_come_back_gets_its_old_configuration(host: Host, box: Any, role: Role) -> None:
    file = "/etc/docker/daemon.json"
    before, mode = host.file(file).content_string, host.file(file).mode
    said = role(fails=True, docker_config={"log-level": "warn", "storage-driver": "nosuch"})
    assert (
        "docker was not configured: it did not come back with its new configuration, and runs again with the old one"
        in said
    )
    assert "nosuch" in said
    assert (host.file(file).content_string, host.file(file).mode) == (before, mode)
    uuid = box.uuids[1]
    assert box.sees("docker", uuid)[0] == [uuid]


def test_one_broken_engine_does_not_keep_the_other_from_its_gpus(host: Host, box: Any, role: Role) -> None:
    """Nor is what can't be read touched."""
    before = host.file("/etc/docker/daemon.json").content_string
    broken = before.replace(",", ",,", 1)
    pid = host.check_output("systemctl show docker.service --property=MainPID --value")
    host.check_output("printf %%s %s > /etc/docker/daemon.json", broken)
    host.check_output(f"rm {SPEC}")
    try:
        assert "nvidia.yaml on box is not there, or older than a change" in role("verify", fails=True)
        said = role(fails=True)
        assert "docker was not configured: /etc/docker/daemon.json is no JSON: line 2, column" in said
        assert host.file("/etc/docker/daemon.json").content_string == broken
        uuid = box.uuids[2]
        assert box.sees("podman", uuid)[0] == [uuid]
        assert host.check_output("systemctl show docker.service --property=MainPID --value") == pid
    finally:
        host.check_output("printf %%s %s > /etc/docker/daemon.json", before)


def test_for_old_engines_nothing_starts_the_unit_of_the_toolkit(
    host: Host, box: Any, role: Role, play: Callable[..., CompletedProcess[str]], here: list[str]
) -> None:
    """The toolkit's rule of udev does, from 1.19 on, with a description that they do not understand."""
    needs = {"_nvidia_container_toolkit_spec_needs": {"docker": "99", "podman": "5.1"}}
    done = play(Path(__file__).parents[1] / "role.yml", *here, "--extra-vars", json.dumps(needs))
    assert done.returncode == 0, done.stdout
    assert host.run("systemctl start nvidia-cdi-refresh.service").rc != 0
    assert (host.file("/etc/cdi/nvidia.yaml").exists, host.file(SPEC).exists) == (True, False)
    role()
    host.check_output("systemctl start nvidia-cdi-refresh.service && systemctl is-enabled nvidia-cdi-refresh.service")
    assert (host.file("/etc/cdi/nvidia.yaml").exists, host.file(SPEC).exists) == (False, True)


@pytest.mark.long
def test_an_older_toolkit_without_units_describes_the_gpus_all_the_same(host: Host, box: Any, role: Role) -> None:
    role(version="1.17.8-1")
    rows = host.check_output("dpkg-query -W -f '${Version} ${db:Status-Want}\\n' '*nvidia-container*'").splitlines()
    assert set(rows) == {"1.17.8-1 hold"}
    assert host.file("/etc/cdi/nvidia.yaml").exists
    assert not host.file(SPEC).exists
    uuid = box.uuids[3]
    assert box.sees("docker", uuid)[0] == box.sees("podman", uuid)[0] == [uuid]


@pytest.mark.long
def test_only_the_entries_of_the_toolkit_are_put_aside(host: Host, role: Role) -> None:
    """And none of them, and nothing else, if the key or the version is another one."""
    ours, other = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64", "https://site.example/apt"
    folder = "/etc/apt/sources.list.d"
    before = {
        "own.list": f"deb {other} /\n# deb {ours} /\ndeb {ours} /\n",
        "own.sources": f"Types: deb\nURIs: {other}\nSuites: /\n\n# NVIDIA\nTypes: deb\nURIs: {ours}\nSuites: /\n",
    }
    for name, text in before.items():
        host.check_output(f"printf %%s %s > {folder}/{name}", text)
    state = f"cd /etc/apt && find . -type f | sort | xargs sha256sum; ls {folder}"
    at_first = host.check_output(state)
    try:
        said = role(fails=True, other_sources="remove", repository_key_fingerprint="A" * 40)
        assert f"it is not the key {'A' * 40}, but " in said
        assert host.check_output(state) == at_first
        said = role(fails=True, other_sources="remove", version="9.9.9-1")
        assert "version 9.9.9-1 of nvidia-container-toolkit is not there, but " in said
        assert "1.18.1-1, 1.17.8-1" in said
        assert host.check_output(state) == at_first
        role(other_sources="remove")
        found = {name: host.file(f"{folder}/{name}").content_string for name in before}
        assert found == {
            "own.list": f"deb {other} /\n# deb {ours} /\n# deb {ours} /\n",
            "own.sources": f"Types: deb\nURIs: {other}\nSuites: /\n\n"
            f"# # NVIDIA\n# Types: deb\n# URIs: {ours}\n# Suites: /\n",
        }
        assert {name: host.file(f"{folder}/{name}.disabled").content_string for name in before} == before
        assert "changed=0" in role()
    finally:
        host.check_output(f"rm -f {folder}/own.*")


def test_a_mirror_without_the_toolkit_leaves_the_repository_that_was_there(host: Host, role: Role) -> None:
    state = "cd /etc/apt && find . -type f | sort | xargs sha256sum"
    at_first = host.check_output(state)
    assert "sources.list.d/cudahub-nvidia-container-toolkit.sources" in at_first
    said = role(fails=True, repository_url="http://127.0.0.1:8099/nowhere", version="9.9.9-1")
    assert "The container toolkit was not installed on box from http://127.0.0.1:8099/nowhere: E: " in said
    assert host.check_output(state) == at_first


@pytest.mark.long
def test_who_is_no_longer_named_leaves_the_group(host: Host, role: Role) -> None:
    """Carl was in it before."""
    host.check_output("useradd ben && useradd --groups docker carl")
    role(docker_users=["ben", "carl"])
    assert set(host.check_output("getent group docker").rpartition(":")[2].split(",")) == {"ben", "carl"}
    role(docker_users=["anna"])
    assert set(host.check_output("getent group docker").rpartition(":")[2].split(",")) == {"anna", "carl"}


def test_a_tool_that_no_package_has(host: Host, role: Role) -> None:
    assert (
        "Tools were not installed on box, correct nvidia_container_toolkit_tools: No package matching 'nosuchtool' is"
        in role(fails=True, tools=["nosuchtool"]).replace("''", "'")
    )


@pytest.mark.long
def test_nvitop_runs(host: Host, role: Role) -> None:
    failed = role("main", "-vvv", fails=True, nvitop=True, pip_index_url="https://me:made-up@127.0.0.1:9/simple")
    assert "was not installed on box: " in failed
    assert "Without network, set nvidia_container_toolkit_pip_index_url to a mirror" in failed
    assert "made-up" not in failed
    role(nvitop=True)
    assert host.check_output("nvitop --version").startswith("nvitop ")
    assert "changed=0" in role(nvitop=True)


@pytest.fixture(scope="module")
def refused(request: pytest.FixtureRequest) -> dict[str, str]:
    """What was said already, so that the playbook runs once."""
    return {}


@pytest.mark.parametrize("name", SENTENCES)
def test_refusals(
    host: Host, play: Callable[..., CompletedProcess[str]], here: list[str], refused: dict[str, str], name: str
) -> None:
    if not refused:
        done = play(Path(__file__).parents[1] / "refusals.yml", *here)
        refused["all"] = " ".join((done.stdout + done.stderr).split()).replace("''", "'")
        assert done.returncode == 0, refused["all"]
    assert f"refused {name}: {SENTENCES[name]}" in refused["all"]
