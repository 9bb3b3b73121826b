# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Levels standard and thorough, with real processes that have stand-ins for CuPy and NVML; each check can fail."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import (
    _verify,
    _verify_deep,
    _verify_payload,
    _verify_payload_device,
    _verify_payload_fp8,
    _verify_payload_nvml,
    _verify_payload_peers,
)
from ansible_collections.cudahub.gpu.tests.unit.plugins.verify_cases import STANDIN, gpu, mig_gpu, run_deep

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ["context", "arange_sum", "compile", "matmul", "matmul_rate"]
DEVICE = ["memory_pattern", "gemm_fp64", "gemm_fp32", "gemm_tf32", "gemm_fp16", "gemm_fp8", "copy_device"]
HOST = ["copy_host_to_device", "copy_device_to_host"]
FIGURES = {
    "memory_pattern": 0,
    "gemm_fp64": 60.0,
    "gemm_fp32": 51.0,
    "gemm_tf32": 400.0,
    "gemm_fp16": 750.0,
    "gemm_fp8": None,
    "copy_device": 4300.0,
    "copy_host_to_device": 55.0,
    "copy_device_to_host": 55.0,
    "error_counters": 0,
}
PEAKS = {"gemm_fp64": 66.9, "gemm_fp16": 989.4, "copy_device": 4814.3, "copy_host_to_device": 63.0}


def at(number: int, **more: Any) -> dict[str, Any]:
    """GPU of a number, in a slot of its own."""
    return gpu(number, pci_bus_id=f"00000000:00:{6 + number:02X}.0", **more)


def linked(number: int, *others: int) -> dict[str, Any]:
    peers = [{"type": "gpu", "pci_bus_id": f"00000000:00:{6 + other:02X}.0", "links": 6} for other in others]
    return at(number, nvlink={"version": "4.0", "links": 6, "active_links": 6, "peers": peers})


def checks_of(result: dict[str, Any], number: int = 0) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in result["gpus"][number]["checks"]}


def between(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in result["checks"]}


def test_a_good_gpu_passes_all_checks_of_standard() -> None:
    result = run_deep({}, at(0))
    assert result["verified"] is True, _verify.summary(result)
    (found,) = result["gpus"]
    assert [check["name"] for check in found["checks"]] == [*QUICK, *DEVICE, *HOST, "error_counters"]
    checks = checks_of(result)
    assert {name: checks[name]["figure"] for name in FIGURES} == FIGURES
    assert {name: checks[name]["peak"] for name in PEAKS} == PEAKS
    assert checks["copy_device"]["share"] == pytest.approx(4300 / 4814.3, abs=1e-4)
    assert checks["copy_device"]["expected"] == ">= 2407.15"
    assert {name for name, check in checks.items() if check["mode"] == "sequential"} == set(HOST)
    assert (found["warnings"], found["load"], result["checks"]) == ([], None, [])


def test_several_gpus_are_measured_between_them() -> None:
    result = run_deep({}, linked(0, 1), linked(1, 0), at(2))
    assert result["verified"] is True, _verify.summary(result)
    pairs = [check for check in result["checks"] if check["name"] == "peer_to_peer"]
    uuids = ["GPU-0", "GPU-1", "GPU-2"]
    assert [check["gpus"] for check in pairs] == [[one, other] for one in uuids for other in uuids if one != other]
    assert {check["figure"] for check in pairs} == {390.0}
    assert ["by NVLink" in check["message"] for check in pairs] == [True, False, True, False, False, False]
    sums = between(result)["nccl_all_reduce"]
    assert (sums["figure"], sums["unit"], sums["gpus"]) == (520.0, "GB/s", uuids)  # 390 * 2 * (3 - 1) / 3
    assert "NCCL 22707" in sums["message"]
    assert between(result)["spread"]["passed"] is True


@pytest.mark.parametrize(
    ("trouble", "kind", "check", "words"),
    [
        (
            "flipped_word",
            "wrong_result",
            "memory_pattern",
            "1 wrong words of 1441792 after pattern 0xAAAAAAAA: word 0x5 at",
        ),
        ("wrong_gemm_fp64", "wrong_result", "gemm_fp64", "the product of gemm_fp64 differs by "),
        ("wrong_gemm_fp32", "wrong_result", "gemm_fp32", "the product of gemm_fp32 differs by "),
        ("wrong_gemm_tf32", "wrong_result", "gemm_tf32", "the product of gemm_tf32 differs by "),
        ("wrong_gemm_fp16", "wrong_result", "gemm_fp16", "the product of gemm_fp16 differs by "),
        ("wrong_copy", "wrong_result", "copy_device", "a copy within its memory has 1 wrong words: word 0x11 at"),
        ("wrong_copy_in", "wrong_result", "copy_host_to_device", "a copy from the host's memory has 1 wrong words"),
        ("wrong_copy_out", "wrong_result", "copy_device_to_host", "a copy to the host's memory has 1 wrong words"),
        (
            "slow_gemm",
            "slow",
            "gemm_fp64",
            "gemm_fp64 reaches 6 TFLOP/s, 9% of the peak of 66.9 TFLOP/s, less than 30%",
        ),
        ("slow_copy", "slow", "copy_device", "copy_device reaches 43 GB/s, 1% of the peak of 4814.3 GB/s"),
        (
            "slow_host_copy",
            "slow",
            "copy_host_to_device",
            "copy_host_to_device reaches 0.55 GB/s, 1% of the peak of 63",
        ),
        ("wrong_sum", "wrong_result", "arange_sum", "[4.0, 13.0]"),
    ],
)
def test_what_is_wrong_with_a_gpu_is_named(trouble: str, kind: str, check: str, words: str) -> None:
    result = run_deep({"GPU-1": trouble}, at(0), at(1))
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed"]
    failure = result["gpus"][1]["failure"]
    assert failure["kind"] == kind
    assert "GPU GPU-1 (00000000:00:07.0)" in failure["message"]
    assert words in failure["message"]
    assert checks_of(result, 1)[check]["passed"] is False
    assert (checks_of(result, 1)[check]["unit"] in ("TFLOP/s", "GB/s")) is (kind == "slow")
    assert [one["warnings"] for one in result["gpus"] if kind == "wrong_result"] in ([], [[], []])
    assert checks_of(result, 0)[check]["passed"] is True
    assert result["verified"] is False


@pytest.mark.parametrize(
    ("trouble", "names"),
    [
        ("slow_gemm", ["gemm_fp64", "gemm_fp32", "gemm_tf32", "gemm_fp16"]),
        ("slow_copy", ["copy_device"]),
        ("slow_host_copy", ["copy_host_to_device", "copy_device_to_host"]),
        ("slow_load", ["sustained_load"]),
    ],
)
def test_each_rate_fails_below_its_share_of_the_peak(trouble: str, names: list[str]) -> None:
    result = run_deep({"*": trouble}, at(0), thorough=trouble == "slow_load", duration=0.5)
    assert result["failure"]["kind"] == "slow"
    checks = checks_of(result)
    assert [name for name, check in checks.items() if not check["passed"]] == names
    for name in names:
        assert re.match(f"{name} reaches .*% of the peak of .*, less than [0-9]+%$", checks[name]["message"])


def test_a_wrong_product_under_load() -> None:
    result = run_deep({"GPU-1": "wrong_load"}, at(0), at(1), thorough=True, duration=0.5)
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed"]
    assert result["failure"]["kind"] == "wrong_result"
    assert "the product of gemm_fp16 differs by " in result["failure"]["message"]
    assert [name for name, check in checks_of(result, 1).items() if not check["passed"]] == ["sustained_load"]


def test_a_wrong_word_is_told_with_what_it_should_be() -> None:
    message = run_deep({"*": "flipped_word"}, at(0))["failure"]["message"]
    assert "should be 0xaaaaaaaaaaaaaaaa and is 0xaaaaaaaaaaaaaaa2" in message


@pytest.mark.parametrize(
    ("trouble", "kind", "check", "words"),
    [
        ("wrong_peer", "wrong_result", "peer_to_peer", "a copy from GPU-0 to GPU-1 has 1 wrong words"),
        ("wrong_nccl", "wrong_result", "nccl_all_reduce", "NCCL's sum on GPU-0 has 1 wrong words"),
        ("swapped", "wrong_result", None, "CUDA shows the GPUs at 00000000:00:07.0, 00000000:00:06.0, where those at"),
        ("no_peer", "no_peer_access", "peer_to_peer", "GPU-0 to GPU-1 have no peer-to-peer access, though NVLink"),
        (
            "crash_between",
            "crashed",
            None,
            "The test of GPU group GPU-0, GPU-1 was ended by SIGSEGV in step 'peer_to_peer'",
        ),
    ],
)
def test_what_is_wrong_between_gpus_is_named(trouble: str, kind: str, check: str | None, words: str) -> None:
    result = run_deep({"GPU-0": trouble}, linked(0, 1), linked(1, 0))
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "passed"]
    assert (result["verified"], result["failure"]["kind"]) == (False, kind)
    assert words in result["failure"]["message"]
    assert words in _verify.summary(result)
    if check:
        assert not all(one["passed"] for one in result["checks"] if one["name"] == check)


def test_a_pair_without_peer_access_and_nvlink_is_a_figure() -> None:
    result = run_deep({"*": "no_peer"}, at(0), at(1))
    assert result["verified"] is True
    assert "through the host, without peer access" in between(result)["peer_to_peer"]["message"]


def test_gpus_behind_switches_are_linked() -> None:
    switch = {"version": "4.0", "links": 18, "active_links": 18}
    peers = [{"type": "switch", "pci_bus_id": None, "links": 18}]
    result = run_deep({"*": "no_peer"}, *(at(number, nvlink={**switch, "peers": peers}) for number in range(2)))
    assert result["failure"]["kind"] == "no_peer_access"


def test_a_gpu_with_fewer_links_than_its_likes_is_named() -> None:
    fewer = linked(1, 0)
    fewer["nvlink"]["active_links"] = 4
    result = run_deep({}, linked(0, 1), fewer)
    assert result["gpus"][1]["warnings"] == [
        "GPU GPU-1 (00000000:00:07.0): 4 of its links of NVLink are up, and 6 of another NVIDIA H200."
    ]
    links = [check for check in result["checks"] if check["name"] == "nvlink"]
    assert [(check["gpus"], check["figure"], check["passed"]) for check in links] == [
        (["GPU-0"], 6, True),
        (["GPU-1"], 4, False),
    ]


@pytest.mark.parametrize(("nccl", "kind"), [("auto", None), ("required", "library_missing"), ("false", None)])
def test_missing_nccl(nccl: str, kind: str | None) -> None:
    result = run_deep({"*": "no_nccl"}, at(0), at(1), nccl=nccl)
    assert (result["failure"] or {}).get("kind") == kind
    if nccl == "false":
        assert "nccl_all_reduce" not in between(result)
    else:
        assert "NCCL isn't there" in between(result)["nccl_all_reduce"]["message"]


def test_gpus_that_one_process_does_not_see_together_are_proven_one_by_one() -> None:
    result = run_deep({"*": "one_shown"}, at(0), at(1))
    assert result["verified"] is True, _verify.summary(result)
    assert "CUDA shows 1 of 2 GPUs here" in between(result)["visible_gpus"]["message"]


def test_a_worker_that_hangs_between_gpus_is_killed(tmp_path: Path) -> None:
    result = run_deep({"GPU-0": "hang_between"}, at(0), at(1), hung=tmp_path, timeout=5)
    assert result["failure"]["kind"] == "timeout"
    assert "GPU group GPU-0, GPU-1 gave no answer within 5 s, in step 'peer_to_peer'" in _verify.summary(result)


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        ("hang_gemm", "timeout", "GPU GPU-1 (00000000:00:07.0) gave no answer within 6 s, in step 'gemm_fp64'"),
        ("killed_gemm", "crashed", "was ended by SIGKILL in step 'gemm_fp64'"),
    ],
)
def test_a_worker_that_hangs_or_is_killed_does_not_stop_the_others(
    tmp_path: Path, trouble: str, kind: str, words: str
) -> None:
    result = run_deep({"GPU-1": trouble}, at(0), at(1), hung=tmp_path, timeout=6)
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed"]
    assert result["failure"]["kind"] == kind
    assert words in result["failure"]["message"]
    assert [check["name"] for check in result["gpus"][1]["checks"]] == [*QUICK, "memory_pattern", "error_counters"]


def test_a_gpu_that_failed_is_left_out_of_what_follows() -> None:
    result = run_deep({"GPU-1": "segfault"}, at(0), at(1), at(2))
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed", "passed"]
    assert result["gpus"][1]["failure"]["kind"] == "crashed"
    assert between(result)["nccl_all_reduce"]["gpus"] == ["GPU-0", "GPU-2"]


def test_the_odd_one_out_is_named_though_it_is_above_the_threshold() -> None:
    result = run_deep({"GPU-2": "slower_copy"}, at(0), at(1), at(2))
    assert result["verified"] is True
    assert [len(one["warnings"]) for one in result["gpus"]] == [0, 0, 1]
    sentence = (
        "GPU GPU-2 (00000000:00:08.0): copy_device reaches 3655 GB/s, 15% below the median of 4300 GB/s of 3 GPUs that"
        " are alike."
    )
    assert result["gpus"][2]["warnings"] == [sentence]
    assert f"Warning: {sentence}" in _verify.summary(result)
    spread = between(result)["spread"]
    assert (spread["passed"], spread["figure"], spread["gpus"]) == (False, 0.85, ["GPU-2"])


def test_only_the_first_warnings_are_told() -> None:
    result = run_deep({"*": "lazy_gemm"}, at(0), at(1), at(2))
    said = _verify.summary(result)
    assert said.count("Warning: ") == 8
    assert said.endswith(" 4 more warnings are in the result.")


def test_a_warning_fails_if_it_is_asked_for() -> None:
    result = run_deep({"GPU-1": "slower_copy"}, at(0), at(1), at(2), fail_on="warning")
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed", "passed"]
    assert result["failure"]["kind"] == "warning"
    assert "copy_device" in result["failure"]["message"]


def test_below_the_threshold_that_warns() -> None:
    result = run_deep({"*": "lazy_gemm"}, at(0))
    assert result["verified"] is True
    warned = [sentence.split(": ")[1].split()[0] for sentence in result["gpus"][0]["warnings"]]
    assert warned == ["gemm_fp64", "gemm_fp32", "gemm_tf32", "gemm_fp16"]
    assert "45% of the peak of 66.9 TFLOP/s, less than 60%" in result["gpus"][0]["warnings"][0]


def test_an_unknown_card_gets_figures_without_verdict() -> None:
    result = run_deep({"*": "slow_gemm"}, at(0, name="NVIDIA Tomorrow"))
    assert result["verified"] is True
    check = checks_of(result)["gemm_fp32"]
    assert (check["figure"], check["share"], check["peak"]) == (5.1, None, None)
    assert check["message"].endswith("; no peak is known")


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (
            {"ecc": {"before": [4, 0], "after": [4, 2]}},
            "memory_errors",
            "had 2 uncorrectable ECC errors during the work",
        ),
        ({"rows": {"before": [0, 0, 0, 0], "after": [0, 1, 1, 0]}}, "memory_errors", "had 1 rows of memory remapped"),
        ({"ecc": {"before": [4, 0], "after": [9, 0]}}, None, "it had 5 corrected ECC errors during the work"),
        ({"pcie_replays": {"before": 7, "after": 9}}, None, "it had 2 packets repeated on PCIe during the work"),
        ({"link_errors": {"before": 0, "after": 3}}, None, "it had 3 errors of NVLink during the work"),
        ({"links": {"before": 18, "after": 16}}, None, "it had 2 links of NVLink that went down during the work"),
        (
            {"rows": {"before": [0, 0, 0, 0], "after": [0, 0, 0, 1]}},
            "memory_errors",
            "had 1 failed remapping of rows of memory during the work",
        ),
        ({"rows": {"before": [0, 0, 0, 0], "after": [1, 0, 0, 0]}}, None, "it had 1 rows of memory remapped after"),
        ({"rows": {"before": [0, 0, 0, 0], "after": [0, 0, 1, 0]}}, None, "it had 1 rows of memory that wait for"),
        ({"pages_pending": {"before": 0, "after": 1}}, None, "it had 1 pages of memory that wait for a reset"),
    ],
)
def test_counters_that_rise_are_told(tmp_path: Path, changes: dict[str, Any], kind: str | None, words: str) -> None:
    result = run_deep({}, at(0), at(1), nvml={"1": changes}, state=tmp_path / "state")
    assert result["gpus"][0]["warnings"] == []
    found = result["gpus"][1]
    assert (found["failure"] or {}).get("kind") == kind
    assert words in (found["failure"] or {"message": found["warnings"][0]})["message"]
    assert checks_of(result, 1)["error_counters"]["figure"] > 0


def test_what_was_wrong_before_the_work_is_not_taken_for_its_doing() -> None:
    changes = {"links": 16, "ecc": [4, 2], "link_errors": 7, "pcie_replays": 9, "rows": [1, 0, 0, 0]}
    result = run_deep({}, at(0), nvml={"0": changes})
    assert (result["verified"], result["gpus"][0]["warnings"]) == (True, [])
    assert checks_of(result)["error_counters"]["figure"] == 0


def test_a_gpu_in_use_is_skipped_and_its_owner_named() -> None:
    result = run_deep({}, at(0), at(1), nvml={"1": {"processes": [4711]}})
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "skipped"]
    reason = "GPU GPU-1 (00000000:00:07.0) is in use by process 4711 of alice (python train.py): it was not verified."
    assert result["gpus"][1]["reason"] == reason
    assert result["verified"] is True


def test_all_gpus_in_use() -> None:
    result = run_deep({}, at(0), nvml={"*": {"processes": [1, 2]}})
    assert result["failure"]["kind"] == "no_gpu"
    assert "process 2 of alice" in result["failure"]["message"]


def test_gpus_in_use_may_be_run() -> None:
    assert run_deep({}, at(0), nvml={"*": {"processes": [4711]}}, in_use="run")["verified"] is True


def test_waiting_for_a_gpu(tmp_path: Path) -> None:
    waited: list[float] = []
    result = run_deep(
        {}, at(0), nvml={"*": {"processes": {"before": [4711], "after": []}}}, state=tmp_path / "state",
        in_use="wait", wait=60, sleep=waited.append,
    )  # fmt: skip
    assert (result["verified"], waited) == (True, [5.0])


def test_waiting_in_vain() -> None:
    result = run_deep({}, at(0), nvml={"*": {"processes": [4711]}}, in_use="wait", wait=0.2)
    assert result["gpus"][0]["verdict"] == "skipped"


def test_a_mig_instance_has_no_peak_and_no_peers() -> None:
    split = {**mig_gpu(0, "MIG-a", "MIG-b"), "pci_bus_id": "00000000:00:06.0"}
    addresses = '{"MIG-a": "00000000:00:06.0", "MIG-b": "00000000:00:06.0"}'
    result = run_deep({}, split, environ={"CUPY_STANDIN_BUS_IDS": addresses})
    assert result["verified"] is True, _verify.summary(result)
    assert [one["uuid"] for one in result["gpus"]] == ["MIG-a", "MIG-b"]
    assert checks_of(result)["gemm_fp32"]["share"] is None
    assert [check["name"] for check in result["checks"]] == ["spread"]


def test_processes_of_another_mig_instance_are_no_owners() -> None:
    split = mig_gpu(0, "MIG-a", "MIG-b")
    for number, instance in enumerate(split["mig"]["instances"]):
        instance["gpu_instance_id"] = number + 7
    prover = _verify_deep.DeepProver(_verify_deep.Options(), _verify_deep.Nvml("", "", None), [split])
    units = _verify.plan([split], None).units
    reading = {0: {"processes": [{"pid": 1, "gpu_instance_id": 8}]}}
    assert [unit.uuid for unit, _reason in prover.taken(units, reading)] == ["MIG-b"]


def test_the_environments_own_choice_of_gpus_does_not_count() -> None:
    assert run_deep({}, at(0), environ={"CUDA_VISIBLE_DEVICES": "7"})["verified"] is True


def test_a_command_prefix() -> None:
    result = run_deep({}, at(0), at(1), request={"command_prefix": ("env", "-u", "CUDA_VISIBLE_DEVICES")})
    assert result["verified"] is True, _verify.summary(result)


def test_nvml_that_hangs_is_left_and_the_gpus_are_proven(tmp_path: Path) -> None:
    result = run_deep({}, at(0), nvml={"*": {"hangs": 1}}, hung=tmp_path)
    assert result["verified"] is True, _verify.summary(result)
    assert checks_of(result)["copy_device"]["share"] is None
    assert "error_counters" not in checks_of(result)


@pytest.mark.parametrize(("limit", "tested"), [(None, 10), (4, 4)])
def test_no_more_memory_is_used_than_allowed(limit: int | None, tested: int) -> None:
    result = run_deep({}, at(0), memory_limit=limit, memory_margin=2)
    assert checks_of(result)["memory_pattern"]["message"] == f"{tested} MiB were written and read back in 5 patterns"


def test_no_memory_beside_the_margin() -> None:
    result = run_deep({}, at(0), memory_margin=12)
    assert result["failure"]["kind"] == "out_of_memory"
    assert "besides a margin of 12 MiB, no memory is free on it: see who holds it" in result["failure"]["message"]


def test_thorough_samples_clocks_and_power_under_load() -> None:
    result = run_deep({}, at(0), at(1), thorough=True, duration=2.5)
    assert result["verified"] is True, _verify.summary(result)
    for found in result["gpus"]:
        load = found["load"]
        assert load["summary"]["power_watts"] == {"min": 512.3, "median": 512.3, "max": 512.3}
        assert load["summary"]["sm_clock_mhz"]["median"] == 1980
        assert 2 <= sum(0 <= point["seconds"] <= 3 for point in load["samples"]) <= 4
        assert (load["reasons"], found["warnings"]) == ({}, [])
    check = checks_of(result)["sustained_load"]
    assert (check["figure"], check["mode"]) == (750.0, "parallel")
    assert result["seconds"] < 120


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reasons": 0x40 | 0x08}, "under load it was, in 100% of the samples, too hot: the hardware cut its clocks"),
        ({"reasons": 0x80}, "in 100% of the samples, held by the power brake of the board"),
        ({"ends": 0.5}, "NVML gave no samples until the end of the load (the sampler was ended)"),
    ],
)
def test_trouble_under_load_is_a_warning(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str) -> None:
    monkeypatch.setattr(_verify_deep, "LATE_SECONDS", -1.5)
    result = run_deep({}, at(0), nvml={"0": changes}, thorough=True, duration=3)
    assert result["verified"] is True
    assert words in " ".join(result["gpus"][0]["warnings"])


@pytest.fixture(scope="module")
def cublaslt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Have the stand-in for cuBLASLt, under its name, and return what makes the one for CuPy load it."""
    return built(tmp_path_factory.mktemp("cublaslt"))


def built(folder: Path, *options: str) -> dict[str, str]:
    library = folder / "libcublasLt.so.13"
    flags = ["-Wall", "-Wextra", "-Werror", "-O3", "-shared", "-fPIC", *options]
    subprocess.run(["gcc", *flags, "-o", library, STANDIN / "cublaslt.c"], check=True)
    return {"CUPY_STANDIN_CUBLASLT": str(library)}


def test_products_in_fp8_where_the_card_and_cublaslt_have_them(cublaslt: dict[str, str]) -> None:
    check = checks_of(run_deep({}, at(0), environ=cublaslt))["gemm_fp8"]
    assert (check["passed"], check["unit"], check["peak"]) == (True, "TFLOP/s", 1978.9)
    assert check["figure"] == pytest.approx(1300, rel=0.01)
    assert check["message"].startswith("512³, error 0.0e+00 of 16 rows against FP64")


@pytest.mark.parametrize(
    ("trouble", "without", "words"),
    [
        ("ampere", "", "GPUs have it from compute capability 8.9, this one has 8.0"),
        ("old_gemm_fp8", "", "no FP8 for this GPU (cublasLtMatrixLayoutCreate ended with status 7)"),
        ("no_algorithm_gemm_fp8", "", "no FP8 for this GPU (cublasLtMatmulAlgoGetHeuristic ended with status 15)"),
        (None, "cublasLtMatmulAlgoGetHeuristic", "this cuBLASLt is too old, it has no cublasLtMatmulAlgoGetHeuristic"),
        (None, "everything", "cuBLASLt isn't there"),
    ],
)
def test_a_gpu_whose_libraries_have_no_fp8_is_not_to_blame(
    tmp_path: Path, cublaslt: dict[str, str], trouble: str | None, without: str, words: str
) -> None:
    """As cuBLASLt of CUDA 12.1 on an RTX 4090, https://github.com/microsoft/superbenchmark/issues/526."""
    environ = {} if without == "everything" else cublaslt if not without else built(tmp_path, f"-D{without}=renamed")
    result = run_deep({"GPU-0": trouble} if trouble else {}, at(0), environ=environ)
    assert (result["verified"], result["failure"]) == (True, None)
    check = checks_of(result)["gemm_fp8"]
    assert (check["passed"], check["figure"], check["share"]) == (True, None, None)
    assert check["message"].startswith("not measured: ")
    assert words in check["message"]
    assert checks_of(result)["copy_device"]["figure"] > 0


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        ("wrong_gemm_fp8", "wrong_result", "the product of gemm_fp8 differs by "),
        ("hang_gemm_fp8", "timeout", "gave no answer within 9 s, in step 'gemm_fp8'"),
    ],
)
def test_what_is_wrong_with_fp8_is_named(cublaslt: dict[str, str], trouble: str, kind: str, words: str) -> None:
    result = run_deep({"GPU-0": trouble}, at(0), environ=cublaslt, timeout=9)
    assert result["failure"]["kind"] == kind
    assert words in result["failure"]["message"]
    assert checks_of(result).get("gemm_fp8", {"passed": False})["passed"] is False
    assert checks_of(result)["gemm_fp16"]["passed"] is True


def test_a_power_cap_under_load_is_no_warning() -> None:
    result = run_deep({}, at(0), nvml={"0": {"reasons": 4}}, thorough=True, duration=1)
    assert result["gpus"][0]["warnings"] == []
    assert result["gpus"][0]["load"]["reasons"] == {"sw_power_cap": 1.0}


def test_the_payload_is_one_text_for_python_3_9() -> None:
    modules = (_verify_payload, _verify_payload_device, _verify_payload_fp8, _verify_payload_peers)
    text = _verify_deep.payload_text(*map(inspect.getsource, modules))
    for source in (text, inspect.getsource(_verify_payload_nvml)):
        tree = ast.parse(source, feature_version=(3, 9))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names)
        compile(text, "payload", "exec")
