# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host whose GPU only the PCI bus shows, in another PCI domain: there is no driver."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://bus"]
UNITS = ["gpu-simulator.service"]


def test_what_the_bus_tells(host: Host) -> None:
    gpu = host.ansible("cudahub.gpu.gpu_facts", check=False)["ansible_facts"]["gpu"]
    assert (gpu["driver"]["state"], gpu["count"], gpu["visible_count"]) == ("absent", 1, 0)
    assert gpu["simulated"] is True
    assert [problem["code"] for problem in gpu["problems"]] == ["driver_absent"]
    card = gpu["gpus"][0]
    assert card["pci_bus_id"].startswith("00000009:")
    assert (card["pci_device_id"], card["name"], card["architecture"]) == ("10de:2342", "GH200 120GB / 480GB", "Hopper")
    assert (card["index"], card["uuid"], card["memory_bytes"], card["slurm_type"]) == (None, None, None, None)
    assert (card["healthy"], card["problems"], card["device_nodes"]) == (None, [], [])


def test_nothing_was_installed(host: Host) -> None:
    assert not host.file("/opt/cudahub").exists
