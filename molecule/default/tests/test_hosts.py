# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""site.yml leaves hosts alone that are in none of its groups, and installs no CUDA where GPUs are simulated."""

from __future__ import annotations

from testinfra.host import Host


def test_no_cuda_is_installed_for_simulated_gpus(host: Host) -> None:
    assert not host.file("/opt/cudahub/verify").exists


def test_host_in_no_group_is_left_alone(host: Host) -> None:
    grouped = "gpu_nodes" in host.ansible.get_variables()["group_names"]
    assert host.file("/etc/gpu-simulator/marker.json").exists == grouped
    assert host.file("/opt/cudahub").exists <= grouped
