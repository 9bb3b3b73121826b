# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generic resources of a node, and what slurmd -G says of them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_gres, _slurm_node
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_parameters import SlurmError
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_nodes import HARDWARE, gpu, mig_gpu, node

A100 = "nvidia_a100-sxm4-40gb"
LINKED = [
    gpu(0, A100, nvlink={"peers": [{"type": "gpu", "pci_bus_id": "00000000:02:00.0", "links": 4}]}),
    gpu(1, A100, nvlink={"peers": [{"type": "gpu", "pci_bus_id": "00000000:01:00.0", "links": 4}]}),
]
SWITCHED = [gpu(i, A100, nvlink={"peers": [{"type": "switch", "pci_bus_id": None, "links": 12}]}) for i in range(2)]


def of(controller: tuple[int, int] = (24, 11), /, *, incomplete: bool = False, **values: t.Any) -> _slurm_gres.Gres:
    return _slurm_gres.of_node(_slurm_node.read_node(node(**values)), controller, incomplete=incomplete)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ""),
        ({"gpus": [gpu(0), gpu(1)]}, "gpu:tesla_t4:2"),
        ({"gpus": [gpu(0, "nvidia_a100"), gpu(1, A100), gpu(2, A100)]}, f"gpu:nvidia_a100:1,gpu:{A100}:2"),
        ({"gpus": [mig_gpu(0, A100, 2), gpu(1, A100)]}, f"gpu:{A100}:1,gpu:{A100}_1g.5gb:2"),
        ({"gpus": [mig_gpu(0, A100, 0)]}, ""),
        ({"gpus": [mig_gpu(0, A100, 0), gpu(1)]}, "gpu:tesla_t4:1"),
        ({"gpus": [gpu(0, None, minor=None, kernel_driver="vfio-pci"), gpu(1)]}, "gpu:tesla_t4:1"),
        ({"gpus": [gpu(0), gpu(1)], "shards": 4}, "gpu:tesla_t4:2,shard:8"),
        ({"gpus": [gpu(0), gpu(1)], "mps": 100}, "gpu:tesla_t4:2,mps:200"),
        ({"gpus": [mig_gpu(0, A100, 2)], "shards": 3}, f"gpu:{A100}_1g.5gb:2,shard:6"),
        ({"shards": 4}, ""),
    ],
)
def test_value_for_slurm_conf(values: dict[str, t.Any], expected: str) -> None:
    assert of(**values).value == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"gpus": [gpu(0), gpu(1)]}, ["AutoDetect=off Name=gpu Type=tesla_t4 File=/dev/nvidia[0-1]"]),
        (
            {"gpus": [gpu(0, "nvidia_a100"), gpu(1, A100), gpu(3, "nvidia_a100")]},
            [
                "AutoDetect=off Name=gpu Type=nvidia_a100 File=/dev/nvidia[0,3]",
                f"AutoDetect=off Name=gpu Type={A100} File=/dev/nvidia1",
            ],
        ),
        (
            {"gpus": [gpu(5, "a", pci_bus_id="00000000:01:00.0"), gpu(2, "a", pci_bus_id="00000000:02:00.0")]},
            ["AutoDetect=off Name=gpu Type=a File=/dev/nvidia[2,5]"],
        ),
        (
            {"gpus": [mig_gpu(0, A100, 2), gpu(1)]},
            [
                f"AutoDetect=off Name=gpu Type={A100}_1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap0",
                f"AutoDetect=off Name=gpu Type={A100}_1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap1",
                "AutoDetect=off Name=gpu Type=tesla_t4 File=/dev/nvidia1",
            ],
        ),
        (
            {"gpus": [gpu(0, cpu_affinity="0-7,16-23"), gpu(1, cpu_affinity="8-15,24-31")]},
            [
                "AutoDetect=off Name=gpu Type=tesla_t4 File=/dev/nvidia0 Cores=0-7",
                "AutoDetect=off Name=gpu Type=tesla_t4 File=/dev/nvidia1 Cores=8-15",
            ],
        ),
        (
            {"gpus": LINKED},
            [
                f"AutoDetect=off Name=gpu Type={A100} File=/dev/nvidia0 Links=-1,4",
                f"AutoDetect=off Name=gpu Type={A100} File=/dev/nvidia1 Links=4,-1",
            ],
        ),
        ({"gpus": SWITCHED}, [f"AutoDetect=off Name=gpu Type={A100} File=/dev/nvidia[0-1]"]),
    ],
)
def test_explicit_lines(values: dict[str, t.Any], expected: list[str]) -> None:
    assert of(**values).lines == tuple(f"{line} Flags=nvidia_gpu_env" for line in expected)


@pytest.mark.parametrize(
    ("affinity", "hardware", "expected"),
    [
        ("0-7,16-23", {}, "0-7"),
        ("8-15,24-31", {}, "8-15"),
        ("0-31", {}, None),
        ("0-255", {}, None),
        (None, {}, None),
        ("", {}, None),
        ("40-47", {}, None),
        ("0-3", {}, _slurm_gres.MISALIGNED),
        ("0-11,16-27", {}, _slurm_gres.MISALIGNED),
        ("0-3", {"SocketsPerBoard": 1, "CoresPerSocket": 16}, _slurm_gres.MISALIGNED),
        ("0-31", {"SocketsPerBoard": 1, "CoresPerSocket": 16}, None),
        ("8-15", {"SocketsPerBoard": 4, "CoresPerSocket": 4}, None),
        ("0-3", {"SocketsPerBoard": 3}, _slurm_gres.MISALIGNED),
    ],
)
def test_cores_are_whole_sockets(affinity: str | None, hardware: dict[str, int], expected: str | None) -> None:
    item = _slurm_node.read_node(node(gpus=[gpu(0, cpu_affinity=affinity)], hardware={**HARDWARE, **hardware}))
    found = _slurm_gres.devices(item, strict=True)
    assert _slurm_gres._cores(item, found) == {"GPU-0": expected}


def test_cores_of_four_sockets_are_known_when_all_are() -> None:
    gpus = [gpu(i, cpu_affinity=f"{8 * i}-{8 * i + 7}") for i in (0, 2, 1, 3)]
    item = _slurm_node.read_node(node(gpus=gpus, hardware={**HARDWARE, "SocketsPerBoard": 4, "CoresPerSocket": 4}))
    found = _slurm_gres.devices(item, strict=True)
    assert _slurm_gres._cores(item, found) == {"GPU-0": "0-3", "GPU-1": "4-7", "GPU-2": "8-11", "GPU-3": "12-15"}


BOTH = ["nvml", "nvidia"]


@pytest.mark.parametrize(
    ("values", "version", "expected"),
    [
        ({"plugins": BOTH}, (24, 11), "nvidia"),
        ({"plugins": BOTH}, (25, 11), "nvidia"),
        ({"plugins": BOTH}, (24, 5), "nvml"),
        ({"plugins": BOTH, "version": "23.11.4"}, (24, 11), "nvml"),
        ({"plugins": BOTH, "simulated": True}, (24, 11), "nvml"),
        ({"plugins": BOTH, "gpus": [gpu(0), mig_gpu(1, A100, 1)]}, (24, 11), "nvml"),
        ({"plugins": BOTH, "gpus": [gpu(0), mig_gpu(1, A100, 0)]}, (24, 11), "nvml"),
        ({"plugins": BOTH, "gpus": LINKED}, (24, 11), "nvml"),
        ({"plugins": ["nvidia"], "gpus": LINKED}, (24, 11), "nvidia"),
        ({"plugins": BOTH, "gpus": SWITCHED}, (24, 11), "nvidia"),
        ({"plugins": ["nvidia"], "gpus": [mig_gpu(1, A100, 1)]}, (24, 11), "file"),
        ({"plugins": ["nvml"]}, (24, 11), "nvml"),
        ({"plugins": []}, (24, 11), "file"),
        ({"plugins": BOTH, "gpus": [gpu(0, cpu_affinity="0-3")]}, (24, 11), "file"),
        ({"plugins": BOTH, "gpus": [gpu(0, cpu_affinity="0-3")], "simulated": True}, (24, 11), "nvml"),
        ({"plugins": BOTH, "autodetect": "off"}, (24, 11), "file"),
        ({"plugins": BOTH, "autodetect": "nvml"}, (24, 11), "nvml"),
        ({"plugins": BOTH, "autodetect": "nvidia"}, (24, 11), "nvidia"),
    ],
)
def test_method(values: dict[str, t.Any], version: tuple[int, int], expected: str) -> None:
    gres = of(version, **{"gpus": [gpu(0)], **values})
    assert {item.method for item in gres.resources} == {expected}
    assert gres.lines[0].startswith("AutoDetect=off " if expected == "file" else f"AutoDetect={expected}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"autodetect": "nvidia", "plugins": BOTH, "version": "23.11.4"},
            "SLURM has it from 24.11 on, and 23.11 is there",
        ),
        ({"autodetect": "nvidia", "plugins": []}, "gpu_nvidia.so is not installed"),
        ({"autodetect": "nvidia", "plugins": BOTH, "simulated": True}, "simulated GPUs are not in /proc"),
        ({"autodetect": "nvidia", "plugins": BOTH, "gpus": [mig_gpu(0, A100, 1)]}, "it does not find MIG instances"),
        ({"autodetect": "nvml", "plugins": ["nvidia"]}, "gpu_nvml.so is not installed"),
        (
            {"gpus": [gpu(0, None)], "driver_state": "not_loaded"},
            "GPU 00000000:01:00.0 Card has no known type .*not_load",
        ),
        ({"gpus": [gpu(0, minor=None)]}, "has no known device node"),
        ({"gpus": [gpu(0, "a,b")]}, "has no known type that SLURM accepts"),
        (
            {"gpus": [gpu(0, mig={"enabled": True, "instances": [{"index": 0}]})]},
            "a MIG instance of GPU .* no known type",
        ),
        ({"gpus": [gpu(0)], "shards": 1, "mps": 1}, "slurm_gpu_shards and slurm_gpu_mps can't be used on one node"),
        ({"gpus": [mig_gpu(0, A100, 1)], "mps": 100}, "slurm_gpu_mps can't be used with MIG"),
        ({"gpus": [gpu(0)], "shards": 1, "version": "21.08.5"}, "slurm_gpu_shards needs SLURM 22.05 or later"),
    ],
)
def test_refuses(values: dict[str, t.Any], message: str) -> None:
    with pytest.raises(SlurmError, match=f"^node gpu01: .*{message}"):
        of(**values)


def test_a_broken_gpu_may_be_left_out() -> None:
    assert of(gpus=[gpu(0, None, minor=None), gpu(1)], incomplete=True).value == "gpu:tesla_t4:1"


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ([gpu(0), gpu(1)], [gpu(0)], r"1 instead of 2 of type tesla_t4, missing: 00000000:02:00.0 \(GPU-1\)"),
        ([gpu(0), gpu(1)], [gpu(0), gpu(1, None, minor=None)], r"missing: 00000000:02:00.0 \(GPU-1\)"),
        ([gpu(0)], [], "0 instead of 1 of type tesla_t4"),
        ([gpu(0, A100)], [mig_gpu(0, A100, 2)], f"0 instead of 1 of type {A100}"),
        ([mig_gpu(0, A100, 2)], [mig_gpu(0, A100, 1)], r"1 instead of 2 .*missing: 00000000:01:00.0 \(MIG-0-1\)"),
        ([gpu(0), gpu(1)], [gpu(1, uuid="GPU-0")], r"\(GPU-1\)"),
        ([gpu(0)], [gpu(0), gpu(1)], None),
        ([gpu(0)], [gpu(0, uuid="GPU-new")], None),
        ([], [], None),
    ],
)
def test_missing(before: list[t.Any], now: list[t.Any], message: str | None) -> None:
    sentence = _slurm_gres.missing(_slurm_node.read_node(node(gpus=before)), _slurm_node.read_node(node(gpus=now)))
    if message is None:
        assert sentence is None
    else:
        with pytest.raises(SlurmError, match=f"node gpu01 has fewer GPUs than before: .*{message}"):
            raise SlurmError(sentence)


OLD_STYLE = """\
slurmd: Gres Name=gpu Type=nvidia_a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
slurmd: Gres Name=gpu Type=nvidia_a100-sxm4-40gb Count=2 Index=0 ID=7696487 File=/dev/nvidia[1-2] (null)
slurmd: Gres Name=gpu Type=nvidia_a100-sxm4-40gb_1g.5gb Count=1 Index=2 ID=7696487 \
File=/dev/nvidia3,/dev/nvidia-caps/nvidia-cap0 (null)
"""
NEW_STYLE = """\
slurmd: warning: Running with local config file despite slurmctld having been setup for configless operation
slurmd: Gres Name=mps Type=nvidia_a100 Count=0 Index=0 ID=7565421 File=/dev/nvidia0 Links=(null) Flags=HAS_FILE,SHARED
slurmd: Gres Name=gpu Type=nvidia_a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Cores=0-7 Links=-1 Flags=HAS_FILE
slurmd: Gres Name=shard Type=nvidia_a100 Count=4 Index=0 ID=1918986455 File=/dev/nvidia0 Links=(null) Flags=SHARED
"""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (OLD_STYLE, {"gpus": [gpu(0, "nvidia_a100"), gpu(1, A100), gpu(2, A100), mig_gpu(3, A100, 1)]}),
        (NEW_STYLE, {"gpus": [gpu(0, "nvidia_a100")], "shards": 4}),
        ("", {}),
    ],
)
def test_no_difference(text: str, values: dict[str, t.Any]) -> None:
    assert _slurm_gres.difference(text, expected(**values)) == []


@pytest.mark.parametrize(
    ("text", "values", "sentences"),
    [
        (
            NEW_STYLE,
            {"gpus": [gpu(0, "nvidia_a100"), gpu(1, "nvidia_a100")], "shards": 4},
            [
                "slurmd finds 1 of gpu:nvidia_a100, expected are 2",
                "slurmd does not find gpu:nvidia_a100 at /dev/nvidia1",
                "slurmd finds 4 of shard, expected are 8",
            ],
        ),
        (
            "slurmd: Gres Name=gpu Type=nvidia_a100 Count=1 Index=0 ID=7 File=/dev/nvidia1 (null)",
            {"gpus": [gpu(0, "nvidia_a100")]},
            [
                "slurmd does not find gpu:nvidia_a100 at /dev/nvidia0",
                "slurmd finds gpu:nvidia_a100 at /dev/nvidia1, which is not expected",
            ],
        ),
        (
            "slurmd: fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory",
            {"gpus": [gpu(0)]},
            [
                "slurmd finds 0 of gpu:tesla_t4, expected are 1",
                "slurmd does not find gpu:tesla_t4 at /dev/nvidia0",
                "slurmd says: can't stat gres.conf file /dev/nvidia0: No such file or directory",
            ],
        ),
        (
            "slurmd: We were configured with nvml functionality, but that lib wasn't found.",
            {"gpus": [gpu(0)], "plugins": ["nvml"]},
            [
                "slurmd finds 0 of gpu:tesla_t4, expected are 1",
                "slurmd does not find gpu:tesla_t4 at /dev/nvidia0",
                "slurmd says: slurmd: We were configured with nvml functionality, but that lib wasn't found.",
            ],
        ),
        (
            "slurmd: Gres Name=gpu Type=tesla_t4 Count=1 Index=0 ID=7 File=/dev/nvidia0 (null)",
            {},
            [
                "slurmd finds 1 of gpu:tesla_t4, expected are 0",
                "slurmd finds gpu:tesla_t4 at /dev/nvidia0, which is not expected",
            ],
        ),
    ],
)
def test_difference(text: str, values: dict[str, t.Any], sentences: list[str]) -> None:
    assert _slurm_gres.difference(text, expected(**values)) == sentences


def expected(**values: t.Any) -> list[dict[str, t.Any]]:
    return [
        {"name": item.name, "type": item.type, "count": item.count, "files": list(item.files)}
        for item in of(**values).resources
    ]
