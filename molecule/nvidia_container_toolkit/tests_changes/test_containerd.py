# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd: restarted for a reason only, containers go on, and a configuration that breaks it is taken back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://node"]
UNITS = ["containerd", "nvidia-cdi-refresh"]

Role = Callable[..., str]
# Without a proof in containers of Podman.
ONLY = {"engines": ["containerd"]}
MAIN = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
CRI = '[plugins."io.containerd.grpc.v1.cri"]'
USERS = f"# The site.\nversion = 2\n\n{CRI}\n  max_container_log_line_size = 4098\n  restrict_oom_score_adj = true\n"
PID = "systemctl show containerd.service --property=MainPID --value"
WORK = "ctr tasks list | awk '$1 == \"work\" { print $2, $3 }'"


@pytest.fixture(autouse=True, scope="module")
def _work(host: Host) -> Iterator[None]:
    """A container that stays."""
    sleep = "import time; time.sleep(100000)"
    host.check_output("ctr run --detach localhost/test:1 work python3 -c %s", sleep)
    yield
    ended = "until ctr containers delete work; do sleep 0.2; done"
    host.check_output(f"ctr tasks kill --signal 9 work; timeout 60 sh -c '{ended}'")


def state(host: Host) -> list[str]:
    """The configuration, its mode and owner, the process of the engine, and the container."""
    files = f"stat -c '%n %a %U:%G' {MAIN} {DROP_IN}; cat {MAIN} {DROP_IN}"
    return [host.check_output(files), host.check_output(PID), host.check_output(WORK)]


def change(host: Host, old: str, new: str) -> None:
    """Have the user change the file, whose mode and owner stay."""
    text = host.file(MAIN).content_string
    assert old in text
    host.check_output(f"printf %%s %s > {MAIN}", text.replace(old, new, 1))


def test_a_second_run_restarts_nothing(host: Host, role: Role) -> None:
    before = state(host)
    assert before[2].endswith("RUNNING")
    assert "changed=0" in role(**ONLY)
    assert state(host) == before


def test_a_change_of_the_user_is_taken_over_and_containers_go_on(host: Host, role: Role) -> None:
    before = state(host)
    change(host, "4096", "8192")
    role(**ONLY)
    after = state(host)
    assert after[1] != before[1]
    assert after[2] == before[2]
    assert after[0] == before[0].replace("4096", "8192")
    assert "max_container_log_line_size = 8192" in host.check_output("containerd config dump")


def test_a_plugin_that_breaks_has_the_old_configuration_back(host: Host, role: Role) -> None:
    """The engine itself has no complaint."""
    before = state(host)
    change(host, f"{CRI}\n", f'[{CRI[1:-1]}.containerd]\n  default_runtime_name = "nosuch"\n{CRI}\n')
    broken = host.file(MAIN).content_string
    said = role(fails=True, **ONLY)
    assert "node: containerd was not configured: io.containerd.grpc.v1.cri does not run with its new" in said
    after = state(host)
    assert (after[0], after[2]) == (before[0], before[2])
    assert "ok" in host.check_output("ctr plugins list | grep -w cri")
    assert host.file(f"{MAIN}.rejected").content_string == broken
    host.check_output(f"rm {MAIN}.rejected")


@pytest.mark.long
def test_a_file_that_cannot_be_read_is_left_as_it_is(host: Host, role: Role) -> None:
    before = state(host)
    change(host, "version = 2", "version = = 2")
    broken = state(host)
    try:
        assert "node: containerd was not configured: " in role(fails=True, **ONLY)
        assert state(host) == broken
    finally:
        change(host, "version = = 2", "version = 2")
    assert state(host) == before


@pytest.mark.long
def test_never_leaves_the_restart_to_the_operator(host: Host, role: Role) -> None:
    before = state(host)
    change(host, "8192", "4098")
    for _attempt in "12":
        said = role(restart="never", **ONLY)
        assert "[WARNING]: containerd on node: restart needed, 1 containers run (work): run systemctl restart" in said
    assert "changed=0" in said
    assert state(host)[1] == before[1]
    assert "containerd on node waits for a restart: run systemctl restart containerd.service" in role(
        "verify", fails=True, **ONLY
    )
    assert "restart needed" not in role(**ONLY)
    after = state(host)
    assert (after[1] != before[1], after[2]) == (True, before[2])
    role("verify", **ONLY)


@pytest.mark.long
def test_a_unit_that_would_stop_containers_is_restarted_by_force_only(host: Host, role: Role) -> None:
    folder = "/etc/systemd/system/containerd.service.d"
    host.check_output(f"mkdir -p {folder} && printf '[Service]\nKillMode=mixed\n' > {folder}/kill.conf")
    host.check_output("systemctl daemon-reload")
    before = state(host)
    change(host, "4098", "4099")
    try:
        said = role(**ONLY)
        assert "restart needed, 1 containers run (work): its unit would stop them (KillMode): stop them" in said
        assert state(host)[1:] == before[1:]
    finally:
        host.check_output(f"rm -r {folder} && systemctl daemon-reload")
    change(host, "4099", "4098")
    assert "restart needed" not in role(**ONLY)
    assert state(host) == before


@pytest.mark.long
def test_a_unit_that_describes_nothing_is_not_believed(host: Host, box: Any, role: Role) -> None:
    """As the toolkit's own where it does not find the module of the kernel, which ends well all the same."""
    folder = "/etc/systemd/system/nvidia-cdi-refresh.service.d"
    host.check_output(f"mkdir -p {folder} && printf '[Service]\nExecCondition=/bin/false\n' > {folder}/no.conf")
    host.check_output("systemctl daemon-reload")
    # Of a layout before.
    host.check_output("sed -i s/nvidia-cap48/nvidia-cap12/ /var/run/cdi/nvidia.yaml")
    host.check_output("echo other > /var/lib/cudahub/container-toolkit/cdi")
    try:
        assert "is not there, or older than a change of driver" in role("verify", fails=True)
        role()
        second = box.instances[1]
        assert box.sees("podman", second)[0] == [second]
        role("verify")
    finally:
        host.check_output(f"rm -r {folder} && systemctl daemon-reload")


@pytest.mark.long
def test_another_mig_layout_is_described_anew(host: Host, box: Any, role: Role) -> None:
    config = "/etc/gpu-simulator/config.json"
    before, was = host.file(config).content_string, box.instances
    other = json.loads(before)
    other["gpus"][0]["mig"] = ["1g.5gb", "1g.5gb"]
    host.check_output(f"printf %%s %s > {config} && gpu-simulator apply", json.dumps(other))
    try:
        now = box.instances
        assert len(now) == 2
        assert "is not there, or older than a change of driver, toolkit, GPUs or MIG layout" in role(
            "verify", fails=True
        )
        role()
        assert [box.sees("podman", uuid)[0] for uuid in now] == [[uuid] for uuid in now]
        gone = host.run(
            f"podman run --rm --network none --device nvidia.com/gpu={was[2]} localhost/test:1 python3 -c 1"
        )
        assert (gone.rc, was[2] in gone.stderr) == (126, True)
    finally:
        host.check_output(f"printf %%s %s > {config} && gpu-simulator apply", before)
    role()


@pytest.mark.long
def test_what_was_there_before_is_there_after_absent(host: Host, role: Role) -> None:
    before = state(host)
    role("absent", **ONLY)
    assert host.file(MAIN).content_string == USERS
    assert host.file(MAIN).mode == 0o640
    assert not host.file(DROP_IN).exists
    after = [host.check_output(PID), host.check_output(WORK)]
    assert (after[0] != before[1], after[1]) == (True, before[2])
    assert "nvidia" not in host.check_output("containerd config dump")
    role(**ONLY)
    assert state(host)[0] == before[0]


@pytest.mark.long
def test_an_older_toolkit_writes_the_file_itself(host: Host, box: Any, role: Role) -> None:
    """There are no drop-ins before 1.18; what the user has is known all the same."""
    role(version="1.17.8-1")
    assert not host.file(DROP_IN).exists
    heeds = host.check_output("containerd config dump")
    for said in ("max_container_log_line_size = 4098", "runtimes.nvidia]", "runtimes.runc]", "enable_cdi = true"):
        assert said in heeds
    assert "ok" in host.check_output("ctr plugins list | grep -w cri")
    assert host.file(MAIN).mode == 0o640
    second = box.instances[1]
    assert box.sees("podman", second)[0] == [second]
    before = host.check_output(PID)
    assert "changed=0" in role(version="1.17.8-1")
    assert host.check_output(PID) == before
