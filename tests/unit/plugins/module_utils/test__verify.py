# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to be proven, and what the workers' answers mean."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _verify, _verify_workers
from ansible_collections.cudahub.gpu.tests.unit.plugins.verify_cases import (
    ADDRESS,
    MARKER,
    RUNTIME,
    FakeNodes,
    facts,
    gpu,
    mig_gpu,
    outcome,
    problem,
    report,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTHON = "/opt/python"
REQUEST = _verify.Request(python=PYTHON, timeout=30)
UNIT = _verify.Unit("GPU-0", 0, ADDRESS, "NVIDIA H200", None, ("/dev/nvidia0",))
CUPY = "cupy-cuda13x[ctk]==14.2.0"
OLD_DRIVER = "CUDARuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient"


def verify(
    host: dict[str, Any], *outcomes: _verify_workers.Outcome, request: _verify.Request = REQUEST
) -> tuple[dict[str, Any], list[_verify_workers.Command]]:
    """The verification, and the commands that were run."""
    ran: list[_verify_workers.Command] = []

    def runner(
        commands: Sequence[_verify_workers.Command], marker: str, timeout: float, parallel: int
    ) -> list[_verify_workers.Outcome]:
        assert (marker, timeout) == (MARKER, request.timeout)
        assert parallel >= 8
        ran.extend(commands)
        return list(outcomes)

    environ = {"PATH": "/usr/bin", "CUDA_VISIBLE_DEVICES": "7"}
    return _verify.verify(host, request, "# payload", MARKER, environ, runner, FakeNodes()), ran


@pytest.mark.parametrize(
    ("gpus", "wanted", "units", "settled"),
    [
        pytest.param([gpu(0), gpu(1)], None, ["GPU-0", "GPU-1"], [], id="all"),
        pytest.param([gpu(0), gpu(1)], ["GPU-1"], ["GPU-1"], [], id="one"),
        pytest.param([gpu(0), gpu(1)], ["GPU-1", "GPU-1"], ["GPU-1"], [], id="one, twice"),
        pytest.param([gpu(0)], [ADDRESS], ["GPU-0"], [], id="by its address"),
        pytest.param([gpu(0)], ["GPU-7"], [], [("GPU-7", "failed")], id="vanished"),
        pytest.param([mig_gpu(0, "MIG-a", "MIG-b")], None, ["MIG-a", "MIG-b"], [], id="MIG instances"),
        pytest.param([mig_gpu(0, "MIG-a", "MIG-b")], ["GPU-0"], ["MIG-a", "MIG-b"], [], id="GPU stands for instances"),
        pytest.param([mig_gpu(0, "MIG-a", "MIG-b")], ["MIG-b"], ["MIG-b"], [], id="one instance"),
        pytest.param([mig_gpu(0)], None, [], [("GPU-0", "skipped")], id="MIG without instances"),
        pytest.param([mig_gpu(0), gpu(1)], ["GPU-0"], [], [("GPU-0", "skipped")], id="MIG without instances, wanted"),
        pytest.param([mig_gpu(0, "MIG-a")], ["MIG-z"], [], [("MIG-z", "failed")], id="instance vanished"),
        pytest.param([gpu(0, problems=[problem("lost")])], None, [], [("GPU-0", "failed")], id="lost"),
        pytest.param([gpu(0, problems=[problem("ecc")])], None, ["GPU-0"], [], id="a problem, but usable"),
        pytest.param(
            [gpu(0, problems=[problem("passthrough")])], None, [], [("GPU-0", "skipped")], id="passed through"
        ),
        pytest.param(
            [gpu(0, uuid=None, index=None, problems=[problem("not_visible")])],
            None,
            [],
            [(None, "failed")],
            id="not in NVML",
        ),
        pytest.param([gpu(0, uuid=None, index=None)], [ADDRESS], [], [(None, "failed")], id="nameless, by its address"),
        pytest.param([gpu(0, uuid=None), gpu(1)], ["GPU-1"], ["GPU-1"], [], id="nameless, not wanted"),
    ],
)
def test_plan(gpus: list[dict[str, Any]], wanted: list[str] | None, units: list[str], settled: list[Any]) -> None:
    planned = _verify.plan(gpus, wanted)
    assert [unit.uuid for unit in planned.units] == units
    assert [(one["uuid"], one["verdict"]) for one in planned.settled] == settled
    for one in planned.settled:
        assert one["reason"] or one["failure"]["kind"] == "gpu_lost"


@pytest.mark.parametrize(
    ("more", "code", "message", "kind", "said"),
    [
        pytest.param(
            {},
            "no_permission",
            "GPU 0 GPU-0 may not be used; do",
            "permission",
            "GPU 0 GPU-0 may not be used; do.",
            id="permission",
        ),
        pytest.param(
            {}, "lost", "GPU 0 GPU-0 is lost; look", "gpu_lost", "GPU 0 GPU-0 is lost; look.", id="named once"
        ),
        pytest.param({}, "lost", "lost; look", "gpu_lost", f"{UNIT} can't be used: lost; look.", id="nameless"),
        pytest.param(
            {"uuid": None},
            "not_visible",
            f"GPU {ADDRESS} is hidden",
            "gpu_lost",
            f"GPU {ADDRESS} is hidden.",
            id="no UUID",
        ),
    ],
)
def test_a_gpu_without_access(more: dict[str, Any], code: str, message: str, kind: str, said: str) -> None:
    told = {"code": code, "severity": "error", "message": message}
    (settled,) = _verify.plan([gpu(0, problems=[told], **more)], None).settled
    assert settled["failure"] == {"kind": kind, "message": said}


def test_a_mig_instance_knows_its_gpu() -> None:
    (unit,) = _verify.plan([mig_gpu(0, "MIG-a")], None).units
    assert str(unit) == f"MIG instance MIG-a (1g.5gb of the GPU at {ADDRESS})"
    assert unit.device_nodes == ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1")


ERRORS = {
    OLD_DRIVER: "driver_too_old",
    "CUDARuntimeError: cudaErrorUnsupportedPtxVersion: unsupported": "driver_too_old",
    "CUDADriverError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: unsupported": "driver_too_old",
    "CUDARuntimeError: cudaErrorSystemDriverMismatch: versions": "driver_unusable",
    "CUDARuntimeError: cudaErrorSystemNotReady: not yet": "driver_unusable",
    "CUDARuntimeError: cudaErrorCompatNotSupportedOnDevice: compat": "driver_unusable",
    "RuntimeError: libcuda.so.1: cannot open shared object file: No such file": "driver_unusable",
    "CUDARuntimeError: cudaErrorNoDevice: no device": "gpu_lost",
    "CUDARuntimeError: cudaErrorInvalidDevice: invalid": "gpu_lost",
    "RuntimeError: radix_sort: failed on 1st step: cudaErrorInvalidDeviceFunction: invalid": "library_missing",
    "CUDARuntimeError: cudaErrorUnknown: unknown": "gpu_lost",
    "CUDARuntimeError: cudaErrorECCUncorrectable: ecc": "gpu_lost",
    "CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access": "gpu_lost",
    "CUDARuntimeError: cudaErrorLaunchFailure: unspecified": "gpu_lost",
    "OutOfMemoryError: Out of memory allocating 512 bytes": "out_of_memory",
    "CUDARuntimeError: cudaErrorMemoryAllocation: out of memory": "out_of_memory",
    "CUDADriverError: CUDA_ERROR_OUT_OF_MEMORY: out of memory": "out_of_memory",
    "CUBLASError: CUBLAS_STATUS_ALLOC_FAILED": "out_of_memory",
    "CUBLASError: CUBLAS_STATUS_NOT_INITIALIZED": "out_of_memory",
    "CUDARuntimeError: cudaErrorDevicesUnavailable: busy": "permission",
    "CUDARuntimeError: cudaErrorNotPermitted: no": "permission",
    "CUDARuntimeError: cudaErrorNoKernelImageForDevice: none": "library_missing",
    'DynamicLibNotFoundError: Failure finding "libnvrtc.so.13"': "library_missing",
    "ImportError: libcublas.so.13: cannot open shared object file": "library_missing",
    'CompileException: cannot open source file "cuda_fp16.h"': "library_missing",
    "RuntimeError: Failed to find CUDA headers": "library_missing",
    "ZeroDivisionError: division by zero": "crashed",
}


@pytest.mark.parametrize(("error", "kind"), ERRORS.items())
def test_kind_of_an_error(error: str, kind: str) -> None:
    failure = _verify.explain(_verify.Attempt(UNIT, REQUEST, outcome(report(error)), CUPY, FakeNodes()))
    assert failure is not None
    assert failure.kind == kind
    assert ("GPU-0" in failure.message and ADDRESS in failure.message) or PYTHON in failure.message
    assert error.partition(": ")[2] in failure.message or kind == "driver_too_old"


def test_no_error_is_no_failure() -> None:
    assert _verify.explain(_verify.Attempt(UNIT, REQUEST, outcome(report()), CUPY, FakeNodes())) is None


@pytest.mark.parametrize(
    ("nodes", "request_", "kind", "words"),
    [
        (FakeNodes(missing=["/dev/nvidia0"]), REQUEST, "no_device_node", "/dev/nvidia0 isn't there"),
        (FakeNodes(missing=["/dev/nvidia-uvm"]), REQUEST, "no_device_node", "/dev/nvidia-uvm isn't there"),
        (FakeNodes(forbidden=["/dev/nvidiactl"]), REQUEST, "permission", "this user may not use /dev/nvidiactl"),
        (FakeNodes(missing=["/dev/nvidia1"]), REQUEST, "gpu_lost", "kernel log"),
        (FakeNodes(), _verify.Request(PYTHON, command_prefix=("docker", "exec")), "no_device_node", "docker starts"),
    ],
)
def test_why_a_gpu_is_not_there(nodes: FakeNodes, request_: _verify.Request, kind: str, words: str) -> None:
    answer = outcome(report("CUDARuntimeError: cudaErrorNoDevice: no device"))
    failure = _verify.explain(_verify.Attempt(UNIT, request_, answer, CUPY, nodes))
    assert failure is not None
    assert failure.kind == kind
    assert words in failure.message


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (outcome(returncode=None, start_error="No such file or directory"), "interpreter_broken", "can't be started"),
        (outcome(returncode=0), "interpreter_broken", "ended with status 0"),
        (outcome(returncode=1, tail="a\nSyntaxError: x\n"), "interpreter_broken", "It last said: SyntaxError: x"),
        (outcome(marked='{"cut', returncode=1), "interpreter_broken", "ended with status 1"),
        (outcome(returncode=-11), "crashed", "SIGSEGV"),
        (outcome(report(done=False, step="matmul"), returncode=-9), "crashed", "SIGKILL in step 'matmul'"),
        (outcome(report(done=False, step="matmul"), returncode=3), "crashed", "ended with status 3 in step 'matmul'"),
        (outcome(report(done=False, step="compile"), timed_out=True), "timeout", "within 30 s, in step 'compile'"),
        (outcome(timed_out=True), "timeout", "didn't even start"),
        (outcome(timed_out=True, unkillable=4711, returncode=None), "timeout", "Process 4711 hangs in the kernel"),
    ],
)
def test_worker_without_an_answer(answer: _verify_workers.Outcome, kind: str, words: str) -> None:
    failure = _verify.explain(_verify.Attempt(UNIT, REQUEST, answer, CUPY, FakeNodes()))
    assert failure is not None
    assert failure.kind == kind
    assert words in failure.message


@pytest.mark.parametrize("library", ["numpy", "cupy"])
@pytest.mark.parametrize(
    ("prefix", "remedy"),
    [
        (
            (),
            (
                "run role cudahub.gpu.gpu_verify, which brings an environment, or give python or conda_prefix an"
                f" environment that has {CUPY}"
            ),
        ),
        (("docker", "exec"), f"give python the path of an interpreter that has {CUPY} where docker starts it"),
    ],
)
def test_a_missing_library_comes_with_the_way_to_it(library: str, prefix: tuple[str, ...], remedy: str) -> None:
    error = {
        "step": f"import {library}",
        "type": "ModuleNotFoundError",
        "status": None,
        "kind": None,
        "message": "none",
    }
    answer = outcome(json.dumps({**json.loads(report()), "error": error}))
    request = _verify.Request(PYTHON, command_prefix=prefix)
    failure = _verify.explain(_verify.Attempt(UNIT, request, answer, CUPY, FakeNodes()))
    assert failure == _verify.Failure("library_missing", f"{PYTHON} has no {library}: {remedy}.")


def explain_in(step: str, error: str, **more: Any) -> _verify.Failure | None:
    """The failure behind an error of a step."""
    document = json.loads(report(error))
    document["error"]["step"] = step
    attempt = _verify.Attempt(UNIT, _verify.Request(PYTHON, **more), outcome(json.dumps(document)), CUPY, FakeNodes())
    return _verify.explain(attempt)


HAS_CUDF = "install cudf in that environment, or give python or conda_prefix one that has it"


@pytest.mark.parametrize(
    ("step", "error", "more", "kind", "message"),
    [
        ("import cudf", "ModuleNotFoundError: none", {}, "library_missing", f"{PYTHON} has no cudf: {HAS_CUDF}."),
        (
            "import cudf",
            "ModuleNotFoundError: none",
            {"command_prefix": ("docker", "exec")},
            "library_missing",
            (
                f"{PYTHON} has no cudf: install cudf where docker starts it, or give python the path of an interpreter"
                " that has it there."
            ),
        ),
        (
            "import cudf",
            "ImportError: libcudf.so: undefined symbol",
            {},
            "library_missing",
            f"{PYTHON} can't load cudf (libcudf.so: undefined symbol): {HAS_CUDF}.",
        ),
        (
            "tips_groupby",
            "OSError: libnvJitLink.so.13: cannot open shared object file",
            {},
            "library_missing",
            (
                f"{PYTHON} lacks a library or header of CUDA (libnvJitLink.so.13: cannot open shared object file):"
                f" {HAS_CUDF}."
            ),
        ),
        (
            "tips_groupby",
            "RuntimeError: parallel_for failed: cudaErrorNoKernelImageForDevice: none",
            {},
            "library_missing",
            (
                f"{UNIT} can't be used, this CUDA library holds no code for the GPU's architecture: take a cuDF for a"
                " CUDA that supports it (parallel_for failed: cudaErrorNoKernelImageForDevice: none)."
            ),
        ),
        (
            "import cudf",
            OLD_DRIVER,
            {},
            "driver_too_old",
            (
                f"{UNIT} has a driver for CUDA 13.0, too old for its cuDF: install a newer driver, or take a cuDF for"
                f" this one: {HAS_CUDF}."
            ),
        ),
    ],
)
def test_what_cudf_lacks_is_not_cupys(step: str, error: str, more: dict[str, Any], kind: str, message: str) -> None:
    assert explain_in(step, error, **more) == _verify.Failure(kind, message)


def test_what_cuda_says_while_a_library_is_imported_is_about_the_gpu() -> None:
    failure = explain_in("import cudf", "CudaSupportError: Call to cuInit results in CUDA_ERROR_NO_DEVICE")
    assert failure is not None
    assert failure.kind == "gpu_lost"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07words", "words"),
        ("a\x00b\x07c\x9bd\u202ee\ud800f", "a b c d e f"),
        ("\x1b", "no message"),
    ],
)
def test_no_control_character_reaches_a_person(text: str, expected: str) -> None:
    marked = outcome(report(f"Error: {text}", checks=[{"name": "context", "message": text}]))
    result, _commands = verify(facts(gpu()), marked)
    tail = outcome(returncode=1, tail=f"{text}\n").tail
    silent, _commands = verify(facts(gpu()), outcome(returncode=1, tail=tail))
    for one in (result, silent):
        assert all(letter.isprintable() for letter in _verify.summary(one))
        assert expected in _verify.summary(one) or expected == "no message"
    assert result["gpus"][0]["checks"][0]["message"].strip() in (expected, "")


def test_an_error_of_many_lines_is_told_on_one() -> None:
    result, _commands = verify(facts(gpu()), outcome(report("Error: one\r\n\ttwo\n\nthree")))
    assert "Error: one two three" in _verify.summary(result)


def test_no_driver_library_is_told_from_an_old_driver() -> None:
    runtime = {**RUNTIME, "cuda_driver": None}
    answer = outcome(report(OLD_DRIVER, runtime=runtime))
    failure = _verify.explain(_verify.Attempt(UNIT, REQUEST, answer, CUPY, FakeNodes()))
    assert failure is not None
    assert failure.kind == "driver_unusable"
    assert "libcuda.so.1" in failure.message


@pytest.mark.parametrize(
    ("cuda", "capabilities", "package"),
    [
        ("13.0", ["9.0"], "cupy-cuda13x"),
        ("13.2", ["7.5", "12.0"], "cupy-cuda13x"),
        ("12.8", ["9.0"], "cupy-cuda12x"),
        ("13.0", ["9.0", "7.0"], "cupy-cuda12x"),
        (None, [None], "cupy-cuda13x"),
        ("13.0", [], "cupy-cuda13x"),
    ],
)
def test_cupy_requirement(cuda: str | None, capabilities: list[str | None], package: str) -> None:
    gpus = [gpu(compute_capability=capability) for capability in capabilities]
    assert _verify.cupy_requirement(cuda, gpus) == f"{package}[ctk]==14.2.0"


def test_each_worker_is_pinned_to_its_unit() -> None:
    result, commands = verify(facts(gpu(0), gpu(1)), outcome(report()), outcome(report()))
    assert result["verified"] is True
    assert [command.environment["CUDA_VISIBLE_DEVICES"] for command in commands] == ["GPU-0", "GPU-1"]
    for number, command in enumerate(commands):
        assert command.argv == [PYTHON, "-"]
        assert command.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        text = command.stdin.decode()
        assert text.startswith("# payload\n")
        assert f"'CUDA_VISIBLE_DEVICES': 'GPU-{number}'" in text  # for prefixes that don't pass the environment on
        assert MARKER in text


def test_conda_environment_and_prefix() -> None:
    request = _verify.Request("/c/bin/python", conda_prefix="/c", command_prefix=("srun", "-N1"))
    _result, (command,) = verify(facts(gpu()), outcome(report()), request=request)
    assert command.argv == ["srun", "-N1", "/c/bin/python", "-"]
    assert command.environment["CONDA_PREFIX"] == "/c"
    assert command.environment["PATH"] == "/c/bin:/usr/bin"


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        (facts(), "no_gpu"),
        (facts(simulated=True), "no_gpu"),
        (facts(gpu(), state="mismatch"), "driver_unusable"),
        (facts(gpu(), state="not_loaded", simulated=True), "driver_unusable"),
        (facts(mig_gpu(0)), "no_gpu"),
    ],
)
def test_hosts_where_nothing_can_run(host: dict[str, Any], kind: str) -> None:
    result, commands = verify(host)
    assert commands == []
    assert result["verified"] is False
    assert result["failure"]["kind"] == kind
    assert result["failure"]["message"] in _verify.summary(result)


def test_the_only_gpu_vanished() -> None:
    result, _commands = verify(facts(state="absent"), request=_verify.Request(PYTHON, gpus=("GPU-0",)))
    assert result["failure"]["kind"] == "gpu_lost"
    assert "GPU-0" in result["failure"]["message"]


def test_gpus_with_the_same_trouble_share_a_sentence() -> None:
    same = [outcome(report("CUDARuntimeError: cudaErrorNoDevice: no device")) for _number in range(3)]
    other = outcome(report("CUDARuntimeError: cudaErrorECCUncorrectable: bits"))
    gpus = [gpu(number, pci_bus_id=f"00000000:00:0{number}.0") for number in range(4)]
    result, _commands = verify(facts(*gpus), *same, other)
    said = _verify.summary(result)
    assert said.count("isn't there for CUDA") == 1
    assert said.count("uncorrectable") == 1
    assert "The same with GPU-1 (00000000:00:01.0), GPU-2 (00000000:00:02.0)." in said


@pytest.mark.parametrize(
    "answer",
    [
        outcome(returncode=1),
        outcome(returncode=1, tail="last words"),
        outcome(report("CUDARuntimeError: cudaErrorECCUncorrectable: bits")),
        outcome(report("DynamicLibNotFoundError: libnvrtc")),
    ],
)
def test_instances_with_the_same_trouble_share_a_sentence(answer: _verify_workers.Outcome) -> None:
    other = "00000000:00:07.0"
    split, more, whole = mig_gpu(0, "MIG-a", "MIG-b"), mig_gpu(1, "MIG-c"), gpu(2, pci_bus_id=other)
    split["mig"]["instances"][1]["profile"] = "2g.10gb"
    result, _commands = verify(facts(split, more, whole), answer, answer, answer, answer)
    said = _verify.summary(result)
    assert said.count(f"[{result['failure']['kind']}]") == 1
    assert said.endswith(f". The same with MIG-b ({ADDRESS}), MIG-c ({ADDRESS}), GPU-2 ({other}).")


def test_lost_gpus_share_a_sentence() -> None:
    gpus = []
    for number in range(2):
        told = {"code": "lost", "severity": "error", "message": f"GPU {number} {ADDRESS} GPU-{number} is off: look"}
        gpus.append(gpu(number, problems=[told]))
    hidden = gpu(2, uuid=None, index=None, problems=[{**told, "message": f"GPU {ADDRESS} is off: look"}])
    result, _commands = verify(facts(*gpus, hidden), request=_verify.Request(PYTHON))
    said = _verify.summary(result)
    assert f" [gpu_lost] GPU 0 {ADDRESS} GPU-0 is off: look. The same with GPU-1 ({ADDRESS})." in said


def test_vanished_gpus_share_a_sentence() -> None:
    result, _commands = verify(facts(state="absent"), request=_verify.Request(PYTHON, gpus=("GPU-0", "GPU-1")))
    assert _verify.summary(result).endswith(" The same with GPU-1.")


def test_simulated_gpus_are_reported_and_never_verified() -> None:
    result, commands = verify(facts(gpu(0), mig_gpu(1, "MIG-a"), mig_gpu(2), simulated=True))
    assert commands == []
    assert [one["verdict"] for one in result["gpus"]] == ["simulated", "simulated", "skipped"]
    assert (result["simulated"], result["verified"], result["failure"]) == (True, False, None)
    assert re.search("1 skipped, 2 simulated", _verify.summary(result))


def test_a_lost_gpu_fails_though_it_is_simulated() -> None:
    result, _commands = verify(facts(gpu(0), gpu(1, problems=[problem("lost")]), simulated=True))
    assert [one["verdict"] for one in result["gpus"]] == ["simulated", "failed"]
    assert result["failure"]["kind"] == "gpu_lost"


def test_simulated_gpus_can_be_run() -> None:
    request = _verify.Request(PYTHON, run_simulated=True)
    result, commands = verify(facts(gpu(), simulated=True), outcome(report()), request=request)
    assert len(commands) == 1
    assert (result["simulated"], result["verified"]) == (True, False)
    assert result["gpus"][0]["verdict"] == "simulated"


def test_one_failure_does_not_hide_the_others() -> None:
    result, _commands = verify(
        facts(gpu(0), gpu(1), gpu(2)),
        outcome(report()),
        outcome(report(done=False, step="compile", runtime={**RUNTIME, "cupy": None}), returncode=-11),
        outcome(report()),
    )
    assert [one["verdict"] for one in result["gpus"]] == ["passed", "failed", "passed"]
    assert result["failure"] == result["gpus"][1]["failure"]
    assert result["runtime"] == RUNTIME
    assert _verify.summary(result).startswith("GPUs: 2 passed, 1 failed, in 0.0 s. [crashed] The test of GPU GPU-1 ")
