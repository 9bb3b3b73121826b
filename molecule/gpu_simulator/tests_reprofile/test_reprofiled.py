# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other GPUs on the same hosts: only what differs has changed, and running clients have not noticed."""

from __future__ import annotations

import json
import re

from testinfra.host import Host

UNITS = ["gpu-simulator.service"]


def test_other_gpus_are_shown(host: Host) -> None:
    shown = json.loads(host.check_output("gpu-simulator show"))
    name = host.backend.get_hostname()
    if name == "h200":
        assert [gpu["name"] for gpu in shown["gpus"]] == ["Tesla V100-SXM2-32GB"] * 4
        assert len(host.check_output("lspci -d 10de:").splitlines()) == 4
        assert "Open" not in host.file("/proc/driver/nvidia/version").content_string
    elif name == "a100":
        assert shown["driver"] is False
        assert len(host.check_output("lspci -d 10de:").splitlines()) == 2
        assert "libnvidia-ml" not in host.check_output("ldconfig -p")
        assert host.run("ls -d /dev/nvidia*").rc != 0
        assert not host.file("/proc/driver/nvidia").exists
    else:
        assert shown["driver_version"] == "570.211.01"
        assert json.loads(host.check_output("gpu-simulator check"))["fault"] == "mismatch"
        assert "570.211.01" not in host.file("/proc/driver/nvidia/version").content_string


def test_slurm_finds_direct_nvlinks(host: Host) -> None:
    if host.backend.get_hostname() != "h200":
        return
    host.check_output("sed -i 's/nvidia_h200/tesla_v100-sxm2-32gb/' /etc/slurm/slurm.conf")
    shown = host.run("slurmd -G -N h200")
    output = shown.stdout + shown.stderr
    assert re.findall(r"Type=(\S+) .*?File=(\S+) .*?Links=(\S+)", output) == [
        ("tesla_v100-sxm2-32gb", "/dev/nvidia0", "-1,2,2,2"),
        ("tesla_v100-sxm2-32gb", "/dev/nvidia1", "2,-1,2,2"),
        ("tesla_v100-sxm2-32gb", "/dev/nvidia2", "2,2,-1,2"),
        ("tesla_v100-sxm2-32gb", "/dev/nvidia3", "2,2,2,-1"),
    ], output


def test_running_clients_were_not_disturbed(host: Host) -> None:
    client = host.service("client.service")
    assert client.is_running
    lines = host.file("/root/client.log").content_string.splitlines()
    assert len(set(lines)) <= 2
    expected = {"h200": "NVIDIA H200", "a100": "NVIDIA A100-SXM4-40GB", "mixed": "Tesla T4"}
    assert lines[-1] == f"0 {expected[str(host.backend.get_hostname())]}"
