# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods of CRI-O and containerd, as Kubernetes runs them, see the GPU that they ask for, and no other."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://node"]
UNITS = ["crio", "containerd"]
ENGINES = pytest.mark.parametrize("engine", ["crio", "containerd"])
pytestmark = pytest.mark.usefixtures("cri")


@ENGINES
def test_a_pod_sees_its_gpu_and_no_other(host: Host, box: Any, engine: str) -> None:
    uuid = box.uuids[1]
    seen, nodes, errors = box.sees_in_pod(engine, uuid)
    assert (seen, nodes) == ([uuid], ["nvidia1"])
    # No driver is behind the node that it may open.
    numbers = {path: str(minor) for path, minor in box.nodes.items()}
    assert errors == {minor: errno.ENXIO if path == "/dev/nvidia1" else errno.EPERM for path, minor in numbers.items()}


@ENGINES
def test_a_pod_sees_its_mig_device_and_no_other(host: Host, box: Any, engine: str) -> None:
    second = box.instances[1]
    seen, nodes, errors = box.sees_in_pod(engine, second)
    assert (seen, nodes) == ([second], ["nvidia0"])
    may = {path for path, minor in box.nodes.items() if errors[str(minor)] == errno.ENXIO}
    assert may == {"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap48", "/dev/nvidia-caps/nvidia-cap49"}


@ENGINES
def test_a_pod_that_asks_for_none_has_none(host: Host, box: Any, engine: str) -> None:
    program = "import os; print([name for name in os.listdir('/dev') if 'nvidia' in name])"
    assert box.says_in_pod(engine, program) == "[]"


@ENGINES
def test_no_pod_is_left_of_the_proof(host: Host, box: Any, engine: str) -> None:
    assert box.crictl(engine, "pods", "--quiet") == ""
    assert host.run("ls -d /root/.ansible/tmp/*/cudahub-gpus-*").stdout == ""


def test_cri_o_runs_with_the_runtime_and_finds_its_monitor(host: Host, box: Any) -> None:
    assert host.file("/etc/crio/crio.conf.d/99-nvidia.toml").contains('monitor_path = "/usr/libexec/crio/conmon"')
    said = box.crictl("crio", "info", "--output go-template --template '{{.config.crio.Runtimes.nvidia.RuntimePath}}'")
    assert said.strip() == "/usr/bin/nvidia-container-runtime"
