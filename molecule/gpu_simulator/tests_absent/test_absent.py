# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host from which the simulation was taken away is as it was."""

from __future__ import annotations

import pytest
from testinfra.host import Host

PATHS = [
    "/etc/gpu-simulator", "/etc/ld.so.conf.d/gpu-simulator.conf", "/etc/systemd/system/gpu-simulator.service",
    "/run/gpu-simulator", "/usr/local/bin/gpu-simulator", "/usr/local/lib/gpu-simulator", "/var/lib/gpu-simulator",
    "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_left(host: Host, path: str) -> None:
    assert not host.file(path).exists


def test_nothing_is_mounted_and_nothing_known(host: Host) -> None:
    assert "gpu-simulator" not in host.check_output("cat /proc/self/mountinfo")
    assert "gpu-simulator" not in host.check_output("ldconfig -p")
    assert host.check_output("lspci -d 10de:") == ""
    assert "gpu-simulator" not in host.check_output("systemctl list-unit-files")


def test_other_files_are_left_alone(host: Host) -> None:
    for path in ("/usr/local/lib/libnvidia-ml.so.1", "/etc/ld.so.conf.d/other.conf"):
        assert host.file(path).content_string == "kept\n"


def test_the_system_runs_on(host: Host) -> None:
    assert host.check_output("systemctl is-system-running") == "running"
