# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O: restarted for a reason only, pods go on, and it always comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://node"]
UNITS = ["crio"]

Role = Callable[..., str]
State = Callable[[], list[str]]
ONLY = {"engines": ["crio"]}
DROP_IN = "/etc/crio/crio.conf.d/99-nvidia.toml"
USERS = "/etc/crio/crio.conf.d/10-crio.conf"
PID = "systemctl show crio.service --property=MainPID --value"
pytestmark = pytest.mark.usefixtures("cri")


@pytest.fixture(autouse=True, scope="module")
def work(cri: None, box: Any) -> Iterator[str]:
    """A container that stays."""
    sandbox, made = box.pod("crio", "work", "import time; time.sleep(100000)", box.uuids[1])
    yield made
    box.crictl("crio", "rmp", "--force", sandbox)


@pytest.fixture
def state(host: Host, box: Any, work: str) -> Callable[[], list[str]]:
    """Return a function that tells the configuration, the process of the engine, and the container and its process."""
    template = "--output go-template --template '{{.status.state}} {{.info.pid}}'"
    files = f"stat -c '%n %a %U:%G' {DROP_IN}; cat {DROP_IN}"
    return lambda: [host.check_output(files), host.check_output(PID), box.crictl("crio", "inspect", template, work)]


@pytest.fixture
def other_conmon(host: Host) -> Iterator[None]:
    """Have the user change what the drop-in has a copy of."""
    host.check_output(f"cp {USERS} /opt/ && sed -i s,crio/conmon,podman/conmon, {USERS}")
    yield
    host.check_output(f"cp /opt/10-crio.conf {USERS}")


def test_a_second_run_restarts_nothing(role: Role, state: State) -> None:
    before = state()
    assert before[2].startswith("CONTAINER_RUNNING ")
    assert "changed=0" in role(**ONLY)
    assert state() == before


@pytest.mark.usefixtures("other_conmon")
def test_an_engine_that_does_not_come_back_gets_its_old_configuration(host: Host, role: Role, state: State) -> None:
    before = state()
    folder = "/etc/systemd/system/crio.service.d"
    program = f"#!/bin/sh\ngrep -q podman/conmon {DROP_IN} && exit 1\nexec crio\n"
    host.check_output("printf %%s %s > /usr/local/sbin/dying && chmod +x /usr/local/sbin/dying", program)
    host.check_output(
        f"mkdir -p {folder} && printf '[Service]\nExecStart=\nExecStart=/usr/local/sbin/dying\n' > {folder}/d.conf"
    )
    host.check_output("systemctl daemon-reload")
    try:
        assert "node: crio was not configured: Job for crio.service failed" in role(fails=True, **ONLY)
        after = state()
        assert (after[0], after[1] != before[1], after[2]) == (before[0], True, before[2])
    finally:
        host.check_output(f"rm -r {folder} && systemctl daemon-reload && systemctl restart crio")


def test_an_engine_whose_own_configuration_is_broken_is_named(host: Host, role: Role, state: State) -> None:
    """The role can't mend what is the user's."""
    before = state()
    host.check_output(f"cp {USERS} /opt/ && sed -i s,crio/conmon,nowhere/conmon, {USERS}")
    try:
        said = role(fails=True, **ONLY)
        assert "node: crio was not configured: Job for crio.service failed" in said
        assert "It does not run with its old configuration either: look at journalctl --unit crio.service." in said
    finally:
        host.check_output(f"cp /opt/10-crio.conf {USERS} && systemctl reset-failed crio && systemctl restart crio")
    after = state()
    assert (after[0], after[2]) == (before[0], before[2])


@pytest.mark.usefixtures("other_conmon")
def test_never_leaves_the_restart_to_the_operator_and_pods_go_on(host: Host, role: Role, state: State) -> None:
    before = state()
    for _attempt in "12":
        said = role(restart="never", **ONLY)
        assert "[WARNING]: crio on node: restart needed, 0 containers run: run systemctl restart crio.service" in said
    assert "changed=0" in said
    assert state()[1] == before[1]
    assert "[WARNING]: crio on node is configured, and not proven: it does not run, waits for a restart" in said
    assert "crio on node waits for a restart: run systemctl restart crio.service" in role("verify", fails=True, **ONLY)
    assert "restart needed" not in role(**ONLY)
    after = state()
    assert (after[0], after[1] != before[1], after[2]) == (
        before[0].replace("crio/conmon", "podman/conmon"),
        True,
        before[2],
    )
    role("verify", **ONLY)


def test_what_was_there_before_is_there_after_absent(host: Host, role: Role, state: State) -> None:
    role(**ONLY)
    before = state()
    role("absent", **ONLY)
    assert host.check_output("cd /etc/crio && find . -type f | sort").split() == [
        "./crio.conf.d/10-crio.conf",
        "./policy.json",
    ]
    assert host.check_output(PID) != before[1]
    role(**ONLY)
    after = state()
    # NVIDIA's own nvidia-ctk begins with an empty line at times.
    assert (after[0].split(), after[2]) == (before[0].split(), before[2])


def test_a_proof_that_fails_is_said(host: Host, role: Role) -> None:
    """And which GPU of which engine."""
    spec = "/var/run/cdi/nvidia.yaml"
    host.check_output(f"cp {spec} /opt/spec && sed -i '/^containerEdits:/,$s,/dev/nvidiactl,/dev/nvidia0,' {spec}")
    try:
        said = role("verify", fails=True, **ONLY)
        assert "Containers of crio do not get the GPUs that they ask for: " in said
    finally:
        host.check_output(f"cp /opt/spec {spec}")
