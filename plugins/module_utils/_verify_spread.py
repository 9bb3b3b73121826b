# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPU that is slower than its likes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

RATES = ("TFLOP/s", "GB/s")
MEASURES = (
    "gemm_fp64",
    "gemm_fp32",
    "gemm_tf32",
    "gemm_fp16",
    "gemm_fp8",
    "copy_device",
    "copy_host_to_device",
    "copy_device_to_host",
    "sustained_load",
)


@dataclass(frozen=True)
class OddOne:
    """A figure that is below the median of ``count`` GPUs that are alike, on ``hosts``; ``share`` is of the median."""

    host: str | None
    uuid: str
    check: str
    figure: float
    unit: str
    median: float
    share: float
    count: int
    hosts: int

    def sentence(self) -> str:
        return (
            f"{self.check} reaches {self.figure:g} {self.unit}, {1 - self.share:.0%} below the median of"
            f" {self.median:g} {self.unit} of {self.count} GPUs that are alike"
        )


def odd_ones(results: Iterable[Mapping[str, Any]], spread: float) -> list[OddOne]:
    """Find figures that are more than ``spread`` below the median.

    ``results`` are entries of module cuda_verify's ``verification.gpus``, of one host or of several; then with a key
    ``host`` more. GPUs are alike if they have the same name and MIG profile.
    """
    groups: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for result in results:
        for check in result["checks"]:
            # A check that broke off has no figure, and what was found wrong is counted in another unit.
            rated = check["name"] in MEASURES and check["unit"] in RATES
            if rated and isinstance(check["figure"], (int, float)):
                key = (result["name"], result["mig_profile"], check["name"], check["unit"])
                groups.setdefault(key, []).append((result, check))
    found = []
    for (_name, _profile, name, unit), members in groups.items():
        median = statistics.median(check["figure"] for _result, check in members)
        hosts = len({result.get("host") for result, _check in members})
        for result, check in members:
            # What is no rate, as nought or less, is no measure of others.
            if len(members) > 1 and 0 < median and check["figure"] < (1 - spread) * median:
                share = check["figure"] / median
                host, uuid = result.get("host"), str(result["uuid"])
                found.append(OddOne(host, uuid, name, check["figure"], unit, median, share, len(members), hosts))
    return found
