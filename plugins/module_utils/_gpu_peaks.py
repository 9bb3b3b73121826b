# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUs can reach at best: matrix products by name, copies by their clocks and widths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PCIE_GIGABYTES = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of a lane in one direction, after line coding (PCI-SIG), by generation."""

SOURCES = {
    "klockwood-h100": "https://glennklockwood.com/garden/processors/h100",
    "klockwood-b200": "https://glennklockwood.com/garden/processors/B200",
    "forum": "https://forums.developer.nvidia.com/t/theoretical-tflops-for-fp16-bf16-and-tf32-for-tensor-and-non-tensor/218102",
    "l40s": "https://hmc-tech.com/gpu/nvidia-l40s-vs-nvidia-t40",
    "l40": "https://hmc-tech.com/gpu/nvidia-l40-vs-nvidia-a40",
    "l4": "https://hmc-tech.com/gpu/nvidia-l4-vs-nvidia-a40",
    "h100-pcie": "https://hmc-tech.com/gpu/nvidia-h100-vs-nvidia-h200-sxm-vs-nvidia-gb200",
    "catalog": "https://huggingface.co/RajBhope/gpu-runtime-predictor/blob/main/gpu_catalog.json",
}


@dataclass(frozen=True)
class Peak:
    """TFLOP/s of matrix products without sparsity, null where no source tells; FP64 by tensor cores where it has them.

    ``name`` is a pattern of the driver's name of the GPU, ``source`` a key of ``SOURCES``.
    """

    name: str
    fp64: float | None
    fp32: float | None
    tf32: float | None
    fp16: float | None
    source: str
    fp8: float | None = None


PEAKS = (
    Peak(r"B200", 40.0, 80.0, 1100.0, 2250.0, "klockwood-b200"),
    Peak(r"H200(?! NVL)|GH200|H100 80GB HBM3", 66.9, 66.9, 494.7, 989.4, "klockwood-h100", 1978.9),
    Peak(r"H100 PCIe", None, 51.2, None, None, "h100-pcie"),
    Peak(r"A100", 19.5, 19.5, 156.0, 312.0, "forum"),
    Peak(r"L40S", 1.43, 91.6, 183.2, 366.4, "l40s"),
    Peak(r"L40\b", 1.41, 90.5, 181.0, 362.1, "l40"),
    Peak(r"A40\b", 0.59, 37.4, 74.8, 149.7, "l40"),
    Peak(r"L4\b", 0.49, 31.3, 62.7, 125.3, "l4"),
    Peak(r"V100-SXM2", None, 15.7, None, 125.0, "catalog"),
    Peak(r"T4\b", None, 8.1, None, 65.0, "catalog"),
)
"""The first row whose pattern is in the name counts."""


def compute_peaks(name: str | None) -> dict[str, float]:
    """Peaks by check, in TFLOP/s; none for a card that isn't in the table."""
    for row in PEAKS:
        if name and re.search(rf"\b(?:{row.name})", name):
            found = {
                "gemm_fp64": row.fp64,
                "gemm_fp32": row.fp32,
                "gemm_tf32": row.tf32,
                "gemm_fp16": row.fp16,
                "gemm_fp8": row.fp8,
            }
            known = {check: value for check, value in found.items() if value is not None}
            return {**known, **({"sustained_load": known["gemm_fp16"]} if "gemm_fp16" in known else {})}
    return {}


def memory_peak(clock_mhz: int | None, bus_width_bits: int | None) -> float | None:
    """GB/s of a GPU's memory: two transfers per clock."""
    if not clock_mhz or not bus_width_bits:
        return None
    return round(2 * clock_mhz * bus_width_bits / 8 / 1000, 1)


def pcie_peak(generation: int | None, lanes: int | None) -> float | None:
    """GB/s of a PCIe link in one direction."""
    lane = PCIE_GIGABYTES.get(generation or 0)
    return round(lane * lanes, 1) if lane and lanes else None


def peaks(name: str | None, reading: Mapping[str, Any] | None) -> dict[str, float]:
    """Peaks of a whole GPU by check, from its name and what NVML says of it."""
    found: dict[str, float | None] = dict(compute_peaks(name))
    if reading:
        found["copy_device"] = memory_peak(reading["memory_clock_mhz"], reading["bus_width_bits"])
        pcie = pcie_peak(reading["pcie_generation"], reading["pcie_width"])
        found["copy_host_to_device"] = found["copy_device_to_host"] = pcie
    return {check: value for check, value in found.items() if value}
