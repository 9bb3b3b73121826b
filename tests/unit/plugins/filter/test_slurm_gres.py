# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generic resources of nodes."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_gres as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_gres import slurm_gres
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_nodes import gpu, mig_gpu, node


def test_slurm_gres() -> None:
    nodes = [
        node("gpu2", [gpu(0), gpu(1)], shards=2),
        node("gpu1", [mig_gpu(0, "a", 2)], plugins=["nvml"]),
        node("cpu1"),
    ]
    found = slurm_gres(nodes, version="24.11.5")
    assert list(found) == ["cpu1", "gpu1", "gpu2"]
    assert found["cpu1"] == []
    instances = [f"/dev/nvidia0,/dev/nvidia-caps/nvidia-cap{index}" for index in (0, 1)]
    assert found["gpu1"] == [
        {"name": "gpu", "type": "a_1g.5gb", "count": 2, "files": instances, "method": "nvml", "cores": None}
    ]
    files = ["/dev/nvidia0", "/dev/nvidia1"]
    assert found["gpu2"] == [
        {"name": "gpu", "type": "tesla_t4", "count": 2, "files": files, "method": "file", "cores": None},
        {"name": "shard", "type": None, "count": 4, "files": [], "method": "file", "cores": None},
    ]


def test_cores_where_the_file_names_them() -> None:
    nodes = [node("gpu1", [gpu(0, cpu_affinity="8-15,24-31")])]
    assert slurm_gres(nodes, version="24.11.5")["gpu1"][0]["cores"] == "8-15"
    nodes[0]["plugins"] = ["nvml"]
    assert slurm_gres(nodes, version="24.11.5")["gpu1"][0]["cores"] is None


def test_broken_gpus_are_left_out_where_allowed() -> None:
    nodes = [node("gpu1", [gpu(0, None), gpu(1)])]
    with pytest.raises(
        AnsibleFilterError, match=r"slurm_gres: node gpu1: GPU 00000000:01:00\.0 Card has no known type"
    ):
        slurm_gres(nodes, version="24.11.5")
    assert slurm_gres(nodes, version="24.11.5", gpu_shrink_allowed=True)["gpu1"][0]["count"] == 1


@pytest.mark.parametrize(
    ("nodes", "version", "message"),
    [([], "old", "'old' is not a version"), ("text", "24.11", "not a list of node descriptions")],
)
def test_refuses(nodes: t.Any, version: str, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        slurm_gres(nodes, version)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_gres": slurm_gres}
