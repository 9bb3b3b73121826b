# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that the role has passed has a driver that answers for all its GPUs, and nothing that the role installed."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://usable"]


def test_driver_answers_for_every_gpu(host: Host) -> None:
    gpu = host.ansible("cudahub.gpu.gpu_facts", check=False)["ansible_facts"]["gpu"]
    assert gpu["driver"]["state"] == "ok"
    assert gpu["visible_count"] == gpu["count"] > 0
    assert gpu["simulated"]


def test_no_package_of_a_driver_is_installed(host: Host) -> None:
    assert "ii " not in host.run("dpkg --list 'nvidia-driver*' 'nvidia-*dkms*'").stdout
