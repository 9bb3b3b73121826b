# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with two simulated A100, one of them in MIG mode; its binding comes from a wheel of the controller."""

from __future__ import annotations

from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://a100"]
UNITS = ["gpu-simulator.service"]


def facts(host: Host) -> dict[str, Any]:
    gpu: dict[str, Any] = host.ansible("cudahub.gpu.gpu_facts", check=False)["ansible_facts"]["gpu"]
    return gpu


def test_mig_instances(host: Host) -> None:
    first, second = facts(host)["gpus"]
    assert (first["mig"]["enabled"], first["mig"]["pending"]) == (True, True)
    assert (second["mig"]["enabled"], second["mig"]["instances"]) == (False, [])
    instances = first["mig"]["instances"]
    assert [instance["profile"] for instance in instances] == ["3g.20gb", "2g.10gb", "1g.5gb"]
    assert [instance["slurm_type"] for instance in instances] == [
        f"nvidia_a100_{profile}" for profile in ("3g.20gb", "2g.10gb", "1g.5gb")
    ]
    assert len({instance["uuid"] for instance in instances}) == 3
    assert all(instance["uuid"].startswith("MIG-") for instance in instances)
    assert all(instance["memory_bytes"] > 4 << 30 for instance in instances)
    assert {instance["device_nodes"][0] for instance in instances} == {"/dev/nvidia0"}
    assert (first["healthy"], first["problems"]) == (True, [])


def test_wheel_needs_neither_pip_nor_network(host: Host) -> None:
    assert facts(host)["pynvml"] == "/opt/cudahub/nvml/lib/python3.11/site-packages/pynvml.py"
    assert not host.file("/opt/cudahub/nvml/bin/pip").exists
    assert host.file("/opt/cudahub/nvml/lib/python3.11/site-packages/__pycache__").is_directory
