# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether figures are what a GPU should reach, and what its counters and clocks tell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from ._gpu import SLOW_DOWNS

# A count, or the numbers of a log's records; null where it can't be known.
Counter = Optional[Union[int, list[int]]]

WARN = {
    "gemm_fp64": 0.6,
    "gemm_fp32": 0.6,
    "gemm_tf32": 0.5,
    "gemm_fp16": 0.5,
    "gemm_fp8": 0.5,
    "copy_device": 0.75,
    "copy_host_to_device": 0.5,
    "copy_device_to_host": 0.5,
    "sustained_load": 0.4,
}
FAIL = {
    "gemm_fp64": 0.3,
    "gemm_fp32": 0.3,
    "gemm_tf32": 0.25,
    "gemm_fp16": 0.25,
    "gemm_fp8": 0.25,
    "copy_device": 0.5,
    "copy_host_to_device": 0.05,
    "copy_device_to_host": 0.05,
    "sustained_load": 0.2,
}
FAILING_COUNTERS = {
    "ecc_uncorrected": "uncorrectable ECC errors",
    "rows_remapped_uncorrected": "rows of memory remapped after uncorrectable errors",
    "rows_failed": "failed remapping of rows of memory",
}
WARNING_COUNTERS = {
    "ecc_corrected": "corrected ECC errors",
    "rows_remapped_corrected": "rows of memory remapped after corrected errors",
    "rows_pending": "rows of memory that wait for a reset to be remapped",
    "pages_pending": "pages of memory that wait for a reset to be retired",
    "pcie_replays": "packets repeated on PCIe",
    "nvlink_errors": "errors of NVLink",
    "nvlinks_down": "links of NVLink that went down",
    "xids": "errors of the driver (Xid) in the kernel log",
}
WARNING_REASONS = ("hw_thermal_slowdown", "hw_power_brake", "hw_slowdown", "sw_thermal_slowdown")
CURVES = ("sm_clock_mhz", "memory_clock_mhz", "power_watts", "temperature_celsius")


class OptionError(Exception):
    """An option that makes no sense, as a sentence."""


@dataclass(frozen=True)
class Thresholds:
    """Shares of the peak below which a figure warns and fails, by check."""

    warn: Mapping[str, float] = field(default_factory=lambda: WARN)
    fail: Mapping[str, float] = field(default_factory=lambda: FAIL)


def thresholds(given: Mapping[str, Mapping[str, Any] | None] | None) -> Thresholds:
    """The defaults, with what a user gives instead. Raises OptionError."""
    merged: dict[str, dict[str, float]] = {"warn": dict(WARN), "fail": dict(FAIL)}
    for kind, values in (given or {}).items():
        if kind not in merged or not isinstance(values or {}, Mapping):
            raise OptionError(f"thresholds has '{kind}: {values}': give warn and fail, with shares by check.")
        for check, value in (values or {}).items():
            if check not in WARN:
                raise OptionError(
                    f"thresholds.{kind} has '{check}', which has no peak: give some of {', '.join(WARN)}."
                )
            try:
                share = float(value)
            except (TypeError, ValueError, OverflowError):
                share = math.nan
            if not 0 <= share <= 1:
                raise OptionError(f"thresholds.{kind}.{check} is {value}: give a share of the peak between 0 and 1.")
            merged[kind][check] = share
    for check, share in merged["warn"].items():
        if share < merged["fail"][check]:
            raise OptionError(
                f"thresholds.warn.{check} is {share:g}, below thresholds.fail.{check}, which is"
                f" {merged['fail'][check]:g}: what fails must be less than what warns."
            )
    return Thresholds(merged["warn"], merged["fail"])


@dataclass(frozen=True)
class Judgement:
    """A check with its share of the peak, and a sentence where that is too small."""

    check: dict[str, Any]
    warning: str | None = None
    failure: str | None = None


def against_peak(check: Mapping[str, Any], peaks: Mapping[str, float], limits: Thresholds) -> Judgement:
    """Compare a figure with the GPU's peak. An unknown peak is nobody's fault."""
    name, figure = check["name"], check["figure"]
    if name not in limits.warn or not check["passed"] or not isinstance(figure, (int, float)):
        return Judgement(dict(check))
    if name not in peaks:
        said = f"{check['message']}; no peak is known" if check["message"] else "no peak is known"
        return Judgement({**check, "message": said})
    peak, unit = peaks[name], check["unit"]
    share = round(figure / peak, 4)
    floor = round(limits.fail[name] * peak, 3)
    judged = {**check, "share": share, "peak": peak, "expected": f">= {floor:g}"}
    told = f"{name} reaches {figure:g} {unit}, {share:.0%} of the peak of {peak:g} {unit}, less than"
    if share < limits.fail[name]:
        failure = f"{told} {limits.fail[name]:.0%}"
        return Judgement({**judged, "passed": False, "message": failure}, failure=failure)
    if share < limits.warn[name]:
        return Judgement(judged, warning=f"{told} {limits.warn[name]:.0%}")
    return Judgement(judged)


def counter_changes(
    before: Mapping[str, Counter] | None, after: Mapping[str, Counter] | None
) -> tuple[list[str], list[str]]:
    """What fails and what warns, in words, of counters that rose during the work."""

    def risen(names: Mapping[str, str]) -> list[str]:
        found = []
        for name, words in names.items():
            first, last = (before or {}).get(name), (after or {}).get(name)
            if first is not None and last is not None and (more := _more(first, last)) > 0:
                found.append(f"{more} {words}")
        return found

    return risen(FAILING_COUNTERS), risen(WARNING_COUNTERS)


def _more(first: int | list[int], last: int | list[int]) -> int:
    """By how much a counter rose. A log that is full loses an old record for each new one."""
    if isinstance(first, list) or isinstance(last, list):
        return len(set(last) - set(first)) if isinstance(first, list) and isinstance(last, list) else 0
    return last - first


def reasons_of(bits: int | None) -> list[str]:
    """Names of the reasons for reduced clocks."""
    return [reason.code for reason in SLOW_DOWNS if (bits or 0) & reason.bit]


def curve(points: Sequence[Mapping[str, Any]], start: float, end: float) -> dict[str, Any] | None:
    """The sampled curves, their times counted from the begin of the load, with what they were during it."""
    if not points:
        return None
    during = [point for point in points if start <= point["time"] <= end] or list(points)
    summary: dict[str, Any] = {}
    for name in CURVES:
        values = [point[name] for point in during if point[name] is not None]
        summary[name] = (
            {"min": min(values), "median": statistics.median(values), "max": max(values)} if values else None
        )
    seen = [reasons_of(point["clock_reasons"]) for point in during]
    names = sorted({name for reasons in seen for name in reasons})
    return {
        "summary": summary,
        "reasons": {name: round(sum(name in reasons for reasons in seen) / len(during), 3) for name in names},
        "samples": [
            {
                "seconds": round(point["time"] - start, 1),
                **{name: point[name] for name in CURVES},
                "reasons": reasons_of(point["clock_reasons"]),
            }
            for point in points
        ],
    }


def curve_warnings(found: Mapping[str, Any]) -> list[str]:
    sentences = {reason.code: reason.sentence for reason in SLOW_DOWNS}
    return [
        f"under load it was, in {share:.0%} of the samples, {sentences[name]}"
        for name, share in found["reasons"].items()
        if name in WARNING_REASONS
    ]
