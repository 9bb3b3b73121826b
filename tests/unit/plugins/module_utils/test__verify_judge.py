# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Peaks, thresholds, curves and the odd one out, as tables."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import (
    _gpu_peaks,
    _verify_deep,
    _verify_judge,
    _verify_payload_nvml,
    _verify_spread,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._verify_judge import OptionError


@pytest.mark.parametrize(
    ("clock", "width", "peak"),
    [(3201, 6016, 4814.3), (2619, 5120, 3352.3), (1593, 5120, 2039.0), (None, 5120, None), (2619, 0, None)],
)
def test_memory_peak(clock: int | None, width: int | None, peak: float | None) -> None:
    assert _gpu_peaks.memory_peak(clock, width) == peak


@pytest.mark.parametrize(("generation", "lanes", "peak"), [(5, 16, 63.0), (4, 8, 15.8), (9, 16, None), (None, 1, None)])
def test_pcie_peak(generation: int | None, lanes: int | None, peak: float | None) -> None:
    assert _gpu_peaks.pcie_peak(generation, lanes) == peak


@pytest.mark.parametrize(
    ("name", "fp32"),
    [
        ("NVIDIA H200", 66.9),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM3", 66.9),
        ("NVIDIA H100 PCIe", 51.2),
        ("NVIDIA GH200 480GB", 66.9),
        ("NVIDIA A100-SXM4-40GB", 19.5),
        ("NVIDIA A100 80GB PCIe", 19.5),
        ("NVIDIA L4", 31.3),
        ("NVIDIA L40", 90.5),
        ("NVIDIA L40S", 91.6),
        ("NVIDIA A40", 37.4),
        ("Tesla V100-SXM2-32GB", 15.7),
        ("Tesla V100-PCIE-16GB", None),
        ("Tesla T4", 8.1),
        ("NVIDIA RTX A4000", None),
        ("NVIDIA T400", None),
        ("NVIDIA GB200", None),
        (None, None),
    ],
)
def test_cards_are_told_apart(name: str | None, fp32: float | None) -> None:
    assert _gpu_peaks.compute_peaks(name).get("gemm_fp32") == fp32


def test_each_row_has_a_source() -> None:
    assert {row.source for row in _gpu_peaks.PEAKS} == set(_gpu_peaks.SOURCES)


def test_defaults_are_consistent() -> None:
    assert set(_verify_judge.WARN) == set(_verify_judge.FAIL)
    found = _verify_judge.thresholds(None)
    assert (found.warn, found.fail) == (_verify_judge.WARN, _verify_judge.FAIL)


def test_thresholds_are_merged() -> None:
    found = _verify_judge.thresholds({"warn": {"copy_device": "0.9"}, "fail": None})
    assert found.warn["copy_device"] == 0.9
    assert found.warn["gemm_fp32"] == _verify_judge.WARN["gemm_fp32"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"warn": {"copy_device": 1.5}},
            "thresholds.warn.copy_device is 1.5: give a share of the peak between 0",
        ),
        ({"fail": {"copy_device": -0.1}}, "thresholds.fail.copy_device is -0.1: give a share"),
        ({"fail": {"copy_device": "fast"}}, "thresholds.fail.copy_device is fast: give a share"),
        ({"fail": {"copy_device": None}}, "thresholds.fail.copy_device is None: give a share"),
        ({"fail": {"copy_device": "nan"}}, "thresholds.fail.copy_device is nan: give a share"),
        (
            {"warn": {"memory_pattern": 0.5}},
            "thresholds.warn has 'memory_pattern', which has no peak: give",
        ),
        (
            {"warn": {"copy_device": 0.4}},
            "thresholds.warn.copy_device is 0.4, below thresholds.fail.copy_device, which",
        ),
        ({"fail": {"copy_device": 0.8}}, "thresholds.warn.copy_device is 0.75, below thresholds.fail.copy_device"),
    ],
)
def test_thresholds_that_make_no_sense(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as raised:
        _verify_judge.thresholds(given)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("spread", 1.1),
        ("spread", -0.1),
        ("spread", float("nan")),
        ("duration", 0),
        ("duration", 86401),
        ("duration", float("inf")),
        ("duration", float("nan")),
        ("wait", -1),
        ("memory_margin", -1),
        ("memory_limit", 0),
    ],
)
def test_options_that_make_no_sense(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{option} is "):
        _verify_deep.Options(**{option: value})


def test_a_margin_larger_than_the_memory() -> None:
    gpus = [{"uuid": "GPU-0", "memory_bytes": 80 << 30}, {"uuid": "GPU-1", "memory_bytes": None}]
    _verify_deep.Options().refuse(gpus)
    with pytest.raises(OptionError, match="memory_margin is 81920 MiB, and GPU GPU-0 has 81920 MiB in all: give less"):
        _verify_deep.Options(memory_margin=80 << 10).refuse(gpus)


def check(name: str, figure: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "figure": figure, "unit": "GB/s", "passed": True, "message": None, "expected": None, **more}


@pytest.mark.parametrize(
    ("figure", "share", "passed", "warned", "failed"),
    [
        (90, 0.9, True, False, False),
        (75, 0.75, True, False, False),
        (74, 0.74, True, True, False),
        (49, 0.49, False, False, True),
    ],
)
def test_a_figure_against_its_peak(figure: float, share: float, passed: bool, warned: bool, failed: bool) -> None:
    found = _verify_judge.against_peak(check("copy_device", figure), {"copy_device": 100.0}, _verify_judge.Thresholds())
    assert (found.check["share"], found.check["passed"]) == (share, passed)
    assert (bool(found.warning), bool(found.failure)) == (warned, failed)


def test_what_was_wrong_is_not_called_slow() -> None:
    broken = check("copy_device", 1, passed=False, message="wrong")
    found = _verify_judge.against_peak(broken, {"copy_device": 100.0}, _verify_judge.Thresholds())
    assert (found.check, found.failure) == (broken, None)


def result(uuid: str, figure: Any, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "name": "NVIDIA H200", "mig_profile": None, "checks": [check("copy_device", figure)], **more}


def odd(*results: dict[str, Any]) -> list[tuple[str | None, str, float]]:
    return [(one.host, one.uuid, one.median) for one in _verify_spread.odd_ones(results, 0.1)]


def test_the_odd_one_out_of_several_hosts() -> None:
    fleet = [result(f"GPU-{n}", 100 + n, host=f"node{n // 2}") for n in range(6)]
    assert odd(*fleet) == []
    assert odd(*fleet, result("GPU-6", 80, host="node3")) == [("node3", "GPU-6", 102)]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([result("GPU-1", 80, name="NVIDIA L4")], id="another name"),
        pytest.param([result("GPU-1", 80, mig_profile="1g.10gb")], id="a MIG instance"),
        pytest.param([result("GPU-1", None)], id="no figure"),
        pytest.param([result("GPU-1", 91)], id="near"),
        pytest.param([], id="alone"),
    ],
)
def test_gpus_that_are_not_alike_are_not_compared(others: list[dict[str, Any]]) -> None:
    assert odd(result("GPU-0", 100), *others) == []


@pytest.mark.parametrize("figures", [(0, 0, -1), (-5, -1, -1), (0, 0, 0)])
def test_figures_that_are_no_rates_are_no_measure(figures: tuple[float, ...]) -> None:
    assert odd(*(result(f"GPU-{number}", figure) for number, figure in enumerate(figures))) == []


def point(time: float, **more: Any) -> dict[str, Any]:
    values = {"sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "power_watts": 500.0, "temperature_celsius": 60}
    return {"time": time, **values, "clock_reasons": 0, **more}


def test_a_curve_is_summed_up_over_the_load_alone() -> None:
    points = [point(9, power_watts=90.0), point(11), point(12, power_watts=700.0, clock_reasons=0x44), point(14)]
    found = _verify_judge.curve(points, 10, 13)
    assert found is not None
    assert found["summary"]["power_watts"] == {"min": 500.0, "median": 600.0, "max": 700.0}
    assert found["reasons"] == {"hw_thermal_slowdown": 0.5, "sw_power_cap": 0.5}
    assert [sample["seconds"] for sample in found["samples"]] == [-1, 1, 2, 4]
    assert [sentence[:44] for sentence in _verify_judge.curve_warnings(found)] == [
        "under load it was, in 50% of the samples, to"
    ]


def test_what_a_gpu_does_not_tell_is_null() -> None:
    found = _verify_judge.curve([point(1, power_watts=None)], 0, 2)
    assert found is not None
    assert found["summary"]["power_watts"] is None
    assert _verify_judge.curve([], 0, 2) is None


def test_a_long_curve_is_thinned_and_keeps_all_reasons() -> None:
    points = [point(n, clock_reasons=1 << n if n < 9 else None) for n in range(601)]
    thin = _verify_payload_nvml.thinned(points)
    assert len(thin) == 301
    assert [one["time"] for one in thin[:3]] == [0, 2, 4]
    assert [one["clock_reasons"] for one in thin[:6]] == [3, 12, 48, 192, 256, None]
    assert thin[-1]["time"] == 600


def test_an_owner_is_described_as_far_as_it_is_known() -> None:
    own = _verify_deep.HostOwners().describe(os.getpid())
    assert own.startswith(f"process {os.getpid()} of {pwd.getpwuid(os.geteuid()).pw_name} (")
    assert "python" in own
    assert _verify_deep.HostOwners().describe(2**22 + 1) == "process 4194305"


def test_an_xid_during_the_work_is_a_warning() -> None:
    failing, warning = _verify_judge.counter_changes({"xids": [1201]}, {"xids": [1201, 1300, 1302]})
    assert (failing, warning) == ([], ["2 errors of the driver (Xid) in the kernel log"])
    one = ([], ["1 errors of the driver (Xid) in the kernel log"])
    assert _verify_judge.counter_changes({"xids": [1, 2]}, {"xids": [2, 3]}) == one, "a log that is full"
    assert _verify_judge.counter_changes({"xids": [1, 2, 3]}, {"xids": [3]}) == ([], [])
    assert _verify_judge.counter_changes({"xids": None}, {"xids": [3]}) == ([], [])
