# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The payload in a process of its own, as cuda_verify runs it, with a stand-in for CuPy."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import venv
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _verify, _verify_payload
from ansible_collections.cudahub.gpu.tests.unit.plugins.verify_cases import MARKER, STANDIN, gpu, run_standin

if TYPE_CHECKING:
    from pathlib import Path

CHECKS = ["context", "arange_sum", "compile", "matmul", "matmul_rate"]


def test_a_gpu_that_computes_passes() -> None:
    result = run_standin({}, gpu())
    assert result["verified"] is True, _verify.summary(result)
    (found,) = result["gpus"]
    assert found["verdict"] == "passed"
    assert [check["name"] for check in found["checks"]] == CHECKS
    assert all(check["passed"] for check in found["checks"])
    figures = {check["name"]: check["figure"] for check in found["checks"]}
    assert figures["context"] == 80 << 10
    assert figures["arange_sum"] == [3, 12]
    assert figures["compile"] == 0
    assert 0 < figures["matmul"] < 1e-6
    assert 5 < figures["matmul_rate"] < 20
    assert result["runtime"]["cupy"] == "14.2.0"
    assert (result["runtime"]["cuda_runtime"], result["runtime"]["cuda_driver"]) == ("13.0", "13.0")


@pytest.mark.parametrize(
    ("trouble", "kind", "wrong", "words"),
    [
        ("wrong_sum", "wrong_result", ["arange_sum"], "[4.0, 13.0]"),
        ("wrong_kernel", "wrong_result", ["compile"], "1 wrong elements of 262144"),
        ("wrong_matmul", "wrong_result", ["matmul"], "nan"),
        ("other_gpu", "wrong_result", ["context"], "the first at 00000000:00:07.0"),
        ("slow", "slow", ["matmul_rate"], "less than 5% of the peak of 66.9 TFLOP/s"),
        ("out_of_memory", "out_of_memory", ["arange_sum"], "nvidia-smi"),
        ("no_headers", "library_missing", ["compile"], "cuda_fp16.h"),
        ("old_driver", "driver_too_old", ["context"], "a driver for CUDA 12.2"),
        ("fabric", "driver_unusable", ["context"], "fabric manager"),
        ("busy", "permission", ["context"], "compute mode"),
        ("lost", "gpu_lost", ["context"], "kernel log"),
        ("ecc", "gpu_lost", ["compile"], "uncorrectable"),
        ("segfault", "crashed", [], "SIGSEGV in step 'compile'"),
        ("exit", "crashed", [], "status 3 in step 'compile'. It last said: the library gave up"),
    ],
)
def test_trouble_is_named(trouble: str, kind: str, wrong: list[str], words: str) -> None:
    result = run_standin({"GPU-1": trouble}, gpu(0), gpu(1))
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed"]
    found = result["gpus"][1]
    assert found["failure"]["kind"] == kind
    assert words in found["failure"]["message"]
    assert "GPU-1" in found["failure"]["message"] or sys.executable in found["failure"]["message"]
    assert [check["name"] for check in found["checks"] if not check["passed"]] == wrong
    assert result["verified"] is False


@pytest.mark.parametrize("trouble", ["hang", "hang_with_child"])
def test_a_worker_that_hangs_is_killed_and_the_others_pass(trouble: str) -> None:
    result = run_standin({"GPU-1": trouble}, gpu(0), gpu(1), timeout=6)
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed"]
    assert result["failure"]["kind"] == "timeout"
    assert "in step 'compile'" in result["failure"]["message"]
    assert [check["name"] for check in result["gpus"][1]["checks"]] == CHECKS[:2]
    assert 6 <= result["seconds"] < 20


TIPS = [21.729202, 16.571919, 15.215685, 14.594901, 14.149549, 15.62292]


def test_cudf_groups_the_tips_if_it_is_asked_for() -> None:
    result = run_standin({}, gpu(), cudf=True)
    assert result["verified"] is True, _verify.summary(result)
    *_others, check = checks = result["gpus"][0]["checks"]
    assert [check["name"] for check in checks] == [*CHECKS, "tips_groupby"]
    assert check.pop("seconds") >= 0
    assert check == {
        "name": "tips_groupby",
        "passed": True,
        "figure": TIPS,
        "unit": "%",
        "expected": TIPS,
        "message": "cuDF 26.10.00",
        "share": None,
        "peak": None,
        "mode": "parallel",
    }


def test_the_table_of_tips_is_whole() -> None:
    table = _verify_payload.tips()
    assert list(table) == ["total_bill", "tip", "size"]
    assert [round(sum(column), 2) for column in table.values()] == [4827.77, 731.58, 627]
    assert {len(column) for column in table.values()} == {244}
    assert [column[0] for column in table.values()] == [16.99, 1.01, 2]
    assert [column[-1] for column in table.values()] == [18.78, 3.0, 2]


@pytest.mark.parametrize(
    ("trouble", "figure"),
    [
        ("wrong_groupby", [*TIPS[:3], 14.59493, *TIPS[4:]]),
        ("null_groupby", [*TIPS[:4], "None", "nan"]),
        ("lost_group", TIPS[:5]),
    ],
)
def test_cudf_that_groups_wrongly(trouble: str, figure: list[float | str]) -> None:
    result = run_standin({"GPU-1": trouble}, gpu(0), gpu(1), cudf=True)
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed"]
    found = result["gpus"][1]
    assert found["failure"]["kind"] == "wrong_result"
    assert f"by size of party are {figure}" in found["failure"]["message"]
    (check,) = [check for check in found["checks"] if not check["passed"]]
    assert (check["name"], check["figure"], check["expected"]) == ("tips_groupby", figure, TIPS)


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        ("cudf_lost", "gpu_lost", "cudaErrorNoDevice"),
        ("cudf_import_lost", "gpu_lost", "cudaErrorNoDevice"),
        ("cudf_out_of_memory", "out_of_memory", "nvidia-smi"),
        ("cudf_broken", "library_missing", "can't load cudf (libcudf.so: cannot open shared object file"),
    ],
)
def test_trouble_of_cudf_is_named(trouble: str, kind: str, words: str) -> None:
    result = run_standin({"*": trouble}, gpu(), cudf=True)
    assert result["failure"]["kind"] == kind
    assert words in result["failure"]["message"]
    passed = [check["name"] for check in result["gpus"][0]["checks"] if check["passed"]]
    assert passed == CHECKS


def test_missing_cudf(tmp_path: Path) -> None:
    (tmp_path / "cupy").symlink_to(STANDIN / "cupy")
    assert run_standin({}, gpu(), libraries=tmp_path)["verified"] is True
    result = run_standin({}, gpu(), libraries=tmp_path, cudf=True)
    assert result["failure"] == {
        "kind": "library_missing",
        "message": (
            f"{sys.executable} has no cudf: install cudf in that environment, or give python or conda_prefix one that"
            " has it."
        ),
    }
    assert [check["name"] for check in result["gpus"][0]["checks"]] == CHECKS


def test_a_status_that_json_does_not_know_does_not_hide_the_report() -> None:
    error: Any = RuntimeError("cudaErrorNoDevice: none")
    error.status = object()
    stream = StringIO()
    worker = _verify_payload.Worker({"marker": MARKER}, stream)
    worker.note(error)
    worker.publish("context")
    report = json.loads(stream.getvalue().partition(MARKER)[2])
    assert report["error"]["message"] == "cudaErrorNoDevice: none"


def test_noise_on_both_streams_does_not_hide_the_report() -> None:
    assert run_standin({"*": "noise"}, gpu())["verified"] is True


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter without any package."""
    venv.create(tmp_path / "venv", with_pip=False)
    return str(tmp_path / "venv" / "bin" / "python")


def test_missing_libraries(bare_python: str) -> None:
    result = run_standin({}, gpu(), python=bare_python)
    assert result["failure"] == {
        "kind": "library_missing",
        "message": (
            f"{bare_python} has no numpy: run role cudahub.gpu.gpu_verify, which brings an environment, or give python"
            " or conda_prefix an environment that has cupy-cuda13x[ctk]==14.2.0."
        ),
    }


def test_a_broken_interpreter(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'Fatal Python error: no encodings' >&2\nexit 1\n", encoding="ascii")
    broken.chmod(0o755)
    result = run_standin({}, gpu(), python=str(broken))
    assert result["failure"]["kind"] == "interpreter_broken"
    assert "It last said: Fatal Python error: no encodings" in result["failure"]["message"]


def test_an_interpreter_that_crashes(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nkill -SEGV $$\n", encoding="ascii")
    broken.chmod(0o755)
    result = run_standin({}, gpu(), python=str(broken))
    assert result["failure"]["kind"] == "crashed"
    assert "SIGSEGV before it could test GPU GPU-0" in result["failure"]["message"]


def test_the_payload_imports_nothing_but_the_standard_library() -> None:
    tree = ast.parse(inspect.getsource(_verify_payload), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("major", "minor", "multiprocessors", "megahertz", "teraflops"),
    [
        (9, 0, 132, 1980, 66.9),  # H100 SXM
        (8, 0, 108, 1410, 19.5),  # A100
        (7, 0, 80, 1530, 15.7),  # V100
        (7, 5, 40, 1590, 8.1),  # T4
        (8, 9, 128, 2520, 82.6),  # RTX 4090
        (12, 0, 170, 2407, 104.8),  # RTX 5090
    ],
)
def test_peak_is_the_datasheets(major: int, minor: int, multiprocessors: int, megahertz: int, teraflops: float) -> None:
    peak = _verify_payload.fp32_peak(major, minor, multiprocessors, megahertz * 1e6)
    assert peak is not None
    assert round(peak / 1e12, 1) == teraflops


def test_an_unknown_architecture_has_no_peak() -> None:
    assert _verify_payload.fp32_peak(42, 0, 100, 1e9) is None


@pytest.mark.parametrize(("number", "text"), [(13020, "13.2"), (12080, "12.8"), (0, None)])
def test_cuda_version(number: int, text: str | None) -> None:
    assert _verify_payload.cuda_version(number) == text
