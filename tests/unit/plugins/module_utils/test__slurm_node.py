# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Node descriptions are read and checked."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_node
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_parameters import SlurmError
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_nodes import HARDWARE, gpu, node

NUMBERS = {
    "CPUs": 2,
    "Boards": 1,
    "SocketsPerBoard": 1,
    "CoresPerSocket": 2,
    "ThreadsPerCore": 1,
    "RealMemory": 24105,
}
LINE = "NodeName=gpu01 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105"


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        f"{LINE}\nUpTime=0-00:46:48\n",
        f"{LINE} Gres=gpu:nvidia_h200:2\nFound gpu:nvidia_h200:2 with Autodetect=nvidia\nUpTime=0-00:46:48\n",
        "slurmd: a complaint\nNodeName=gpu01 CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105",
    ],
)
def test_hardware(text: str) -> None:
    assert _slurm_node.parse_hardware(text) == NUMBERS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no CPUs, SocketsPerBoard, CoresPerSocket, ThreadsPerCore, RealMemory"),
        ("slurmd: command not found", "slurmd: command not found"),
        (LINE.replace("RealMemory=24105", "RealMemory=much"), "has no RealMemory"),
        (None, "is a NoneType, not the text"),
    ],
)
def test_no_hardware(text: t.Any, message: str) -> None:
    with pytest.raises(SlurmError, match=message):
        _slurm_node.parse_hardware(text)


def test_nodes_are_in_natural_order() -> None:
    names = [item.name for item in _slurm_node.read_nodes([node("gpu10"), node("gpu9"), node("cpu1")])]
    assert names == ["cpu1", "gpu9", "gpu10"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("gpu01", "the input is a str, not a list"),
        (["gpu01"], "'gpu01' is not a dictionary"),
        ([node("gpu01"), node("gpu01")], "two hosts have the node name gpu01"),
        ([node("gpu.lan")], r"'gpu.lan' is not one that SLURM accepts"),
        ([node("default")], "'default' is not one that SLURM accepts"),
        ([node("gpu[1-2]")], "is not one that SLURM accepts"),
        ([node(version="19.05")], "SLURM 19.05 is older"),
        ([node(hardware={})], "node gpu01: {} is not what slurmd -C says"),
        ([node(hardware={**HARDWARE, "CPUs": 0})], "is not what slurmd -C says"),
        ([node(autodetect="rsmi")], "slurm_gres_autodetect is 'rsmi', not one of auto, nvidia, nvml, off"),
        ([node(features=["a,b"])], "'a,b' is no name of a feature"),
        ([node(weight="heavy")], "slurm_node_weight is 'heavy', not a whole number"),
        ([node(shards=-1)], "slurm_gpu_shards is -1"),
        ([node(mps=True)], "slurm_gpu_mps is True"),
        ([node(gpus=["Tesla T4"])], "node gpu01: its GPUs are not those of ansible_facts"),
    ],
)
def test_refuses(nodes: t.Any, message: str) -> None:
    with pytest.raises(SlurmError, match=message):
        _slurm_node.read_nodes(nodes)


def test_gpus_are_in_order_of_the_bus() -> None:
    gpus = [gpu(3), gpu(0), gpu(1)]
    assert [item.minor for item in _slurm_node.read_node(node(gpus=gpus)).gpus] == [0, 1, 3]
