# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to be proven on a host, and what the workers' answers mean."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ._verify_container import ENGINE_STATUS, Container
from ._verify_workers import Command, Outcome
from ._version import CUDA_13, OLDEST_FOR_CUDA_13, cupy_line, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DEFAULT_PYTHON = "/opt/cudahub/verify/bin/python"
CUPY_VERSION = "14.2.0"
LOST_CODES = ("lost", "not_visible", "other_driver", "unusable")
CUDF_STEPS = ("import cudf", "tips_groupby")
PERMISSION_CODE = "no_permission"
SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
PARALLEL_MINIMUM = 8
TOLD_WARNINGS = 8


class Runner(Protocol):
    def __call__(self, commands: Sequence[Command], marker: str, timeout: float, parallel: int) -> list[Outcome]: ...


class Nodes(Protocol):
    """The device nodes of this host."""

    def missing(self, paths: Sequence[str]) -> list[str]: ...

    def forbidden(self, paths: Sequence[str]) -> list[str]: ...


class HostNodes:
    def missing(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if not Path(path).exists()]

    def forbidden(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if Path(path).exists() and not os.access(path, os.R_OK | os.W_OK)]


@dataclass(frozen=True)
class Request:
    """What the caller asked for. ``gpus`` null means all of them."""

    python: str
    conda_prefix: str | None = None
    command_prefix: tuple[str, ...] = ()
    gpus: tuple[str, ...] | None = None
    level: str = "quick"
    timeout: float = 60.0
    run_simulated: bool = False
    cudf: bool = False
    container: Container | None = None

    def argv(self, gpu: str) -> list[str]:
        """The command that runs a program from standard input for a GPU."""
        if self.container:
            return self.container.argv(gpu, self.python)
        return [*self.command_prefix, self.python, "-"]

    @property
    def place(self) -> str | None:
        """What starts the interpreter, in words; null where this host itself does."""
        if self.container:
            return f"a container of {self.container.image}"
        return f"what {self.command_prefix[0]} starts" if self.command_prefix else None


@dataclass(frozen=True)
class Failure:
    kind: str
    message: str

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "message": self.message}


@dataclass(frozen=True)
class Unit:
    """Something that CUDA can be pinned to: a GPU, or an instance of a GPU in MIG mode."""

    uuid: str | None
    index: int | None
    pci_bus_id: str | None
    name: str | None
    mig_profile: str | None = None
    device_nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = self.pci_bus_id or "PCI address unknown"
        if self.mig_profile:
            return f"MIG instance {self.uuid} ({self.mig_profile} of the GPU at {place})"
        return f"GPU {self.uuid} ({place})" if self.uuid else f"The GPU at {place}"

    def result(self, verdict: str, **more: object) -> dict[str, Any]:
        return {
            "uuid": self.uuid,
            "index": self.index,
            "pci_bus_id": self.pci_bus_id,
            "name": self.name,
            "mig_profile": self.mig_profile,
            "verdict": verdict,
            "reason": None,
            "failure": None,
            "seconds": 0.0,
            "checks": [],
            "warnings": [],
            "load": None,
            **more,
        }

    def failed(self, failure: Failure, **more: object) -> dict[str, Any]:
        return self.result("failed", failure=failure.as_dict(), **more)


@dataclass(frozen=True)
class Plan:
    """``units`` will be run; ``settled`` are results that need no run."""

    units: list[Unit]
    settled: list[dict[str, Any]]


def plan(gpus: Sequence[Mapping[str, Any]], wanted: Sequence[str] | None) -> Plan:
    """Choose the units.

    ``wanted`` holds UUIDs of GPUs (each stands for all its MIG instances) and of MIG instances, and PCI addresses.
    """
    units: list[Unit] = []
    settled: list[dict[str, Any]] = []
    missing = list(dict.fromkeys(wanted or ()))
    for gpu in gpus:
        whole = Unit(gpu["uuid"], gpu["index"], gpu["pci_bus_id"], gpu["name"], None, tuple(gpu["device_nodes"] or ()))
        mig = gpu["mig"] or {}
        all_of_it = wanted is None or bool({whole.uuid, whole.pci_bus_id} & set(missing))
        instances = [one for one in mig.get("instances") or () if all_of_it or one["uuid"] in missing]
        if not all_of_it and not instances:
            continue
        here = {whole.uuid, whole.pci_bus_id, *(one["uuid"] for one in instances)}
        missing = [name for name in missing if name not in here]
        problems = {one["code"]: one["message"] for one in gpu["problems"]}
        if "passthrough" in problems:
            settled.append(whole.result("skipped", reason=f"{problems['passthrough']}."))
        elif failure := _unreachable(whole, problems):
            settled.append(whole.failed(failure))
        elif not mig.get("enabled"):
            units.append(whole)
        elif instances:
            units.extend(_instance(whole, one) for one in instances)
        else:
            reason = f"{whole} is in MIG mode and has no instances, so that CUDA can't use it."
            settled.append(whole.result("skipped", reason=reason))
    for uuid in missing:
        failure = Failure(
            "gpu_lost",
            f"GPU {uuid} was expected, and isn't there now: look for its Xid messages in the kernel log, reset it or"
            " reboot the host.",
        )
        settled.append(Unit(uuid, None, None, None).failed(failure))
    return Plan(units, settled)


def _unreachable(gpu: Unit, problems: Mapping[str, str]) -> Failure | None:
    """Why the driver gives no access to a GPU; ``problems`` are the messages of module gpu_facts by their codes."""
    known = [code for code in (PERMISSION_CODE, *LOST_CODES) if code in problems]
    if not known and gpu.uuid is not None:
        return None
    why = next((problems[code] for code in (*known, *problems)), "look for its messages in the kernel log")
    kind = "permission" if PERMISSION_CODE in known else "gpu_lost"
    named = any(name and name in why for name in (gpu.uuid, gpu.pci_bus_id))
    return Failure(kind, f"{why}." if named else f"{gpu} can't be used: {why}.")


def _instance(gpu: Unit, instance: Mapping[str, Any]) -> Unit:
    nodes = (*gpu.device_nodes, *(instance.get("device_nodes") or ()))
    return Unit(instance["uuid"], gpu.index, gpu.pci_bus_id, gpu.name, instance["profile"], tuple(dict.fromkeys(nodes)))


def cupy_requirement(driver_cuda: str | None, gpus: Sequence[Mapping[str, Any]]) -> str:
    """The CuPy distribution for a driver; what isn't known stands in nobody's way."""
    cuda = parse_version(driver_cuda) if driver_cuda else CUDA_13
    known = [parse_version(gpu["compute_capability"]) for gpu in gpus if gpu.get("compute_capability")]
    return f"{cupy_line(cuda, known or [OLDEST_FOR_CUDA_13])}[ctk]=={CUPY_VERSION}"


def environment_for(unit: Unit) -> dict[str, str]:
    """Pin a worker to its unit; let it leave nothing behind and take no CPU cores from its siblings."""
    return {
        "CUDA_VISIBLE_DEVICES": unit.uuid or "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_CACHE_DISABLE": "1",
        "CUPY_CACHE_IN_MEMORY": "1",
        "CUPY_TF32": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def command_for(
    unit: Unit, request: Request, payload: str, marker: str, environ: Mapping[str, str], **more: object
) -> Command:
    pins = environment_for(unit)
    environment = {**environ, **pins}
    if request.conda_prefix:
        environment["CONDA_PREFIX"] = request.conda_prefix
        environment["PATH"] = f"{request.conda_prefix}/bin:{environ.get('PATH', os.defpath)}"
    # The worker sets the pins itself, too: a prefix may start it in another environment.
    spec = {
        "marker": marker,
        "timeout": request.timeout,
        "environment": pins,
        "pci_bus_id": unit.pci_bus_id,
        "cudf": request.cudf,
        "work": "quick",
        **more,
    }
    program = f"{payload}\n\nrun({spec!r})\n"
    return Command(request.argv(unit.uuid or ""), program.encode(), environment)


# Messages of CUDA, CuPy, NVRTC and cuDF → kind and what to say. The first that is found counts.
_NO_DEVICE = re.compile(
    r"cudaErrorNoDevice|cudaErrorInvalidDevice\b|CUDA_ERROR_NO_DEVICE|cudaErrorOperatingSystem|"
    r"cudaErrorInitializationError|cudaErrorUnknown\b|CUDA_ERROR_UNKNOWN"
)
_ERRORS: tuple[tuple[str, str, str], ...] = (
    (
        r"cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY",
        "driver_unusable",
        "the system isn't ready: on hosts with NVSwitch, the fabric manager of exactly the driver's version must run",
    ),
    (
        r"cudaErrorSystemDriverMismatch|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "driver_unusable",
        "the kernel driver and libcuda.so.1 have different versions: reboot, or reload the kernel modules",
    ),
    (
        r"cudaErrorCompatNotSupportedOnDevice",
        "driver_unusable",
        "a CUDA forward compatibility library is in use that this GPU doesn't support: remove it from the library path",
    ),
    (
        r"cudaErrorUnsupportedPtxVersion|CUDA_ERROR_UNSUPPORTED_PTX_VERSION|cudaErrorCallRequiresNewerDriver",
        "driver_too_old",
        "the driver can't load what this CUDA compiler makes: take a CuPy for the driver's CUDA, or a newer driver",
    ),
    (
        (
            r"cudaErrorNoKernelImageForDevice|cudaErrorInvalidDeviceFunction|CUDA_ERROR_NO_BINARY_FOR_GPU|"
            r"nvrtc.*invalid value for --gpu-architecture"
        ),
        "library_missing",
        "this CUDA library holds no code for the GPU's architecture: take a CuPy for a CUDA that supports it",
    ),
    (
        r"OutOfMemoryError|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED",
        "out_of_memory",
        "its memory is taken by other work: see who holds it with nvidia-smi, and try again when it is free",
    ),
    (
        r"cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE",
        "permission",
        "it is reserved: it is in an exclusive or prohibited compute mode, see nvidia-smi -q -d COMPUTE",
    ),
    (
        r"cudaErrorNotPermitted|CUDA_ERROR_NOT_PERMITTED|PermissionError|cudaErrorInsufficientPermission",
        "permission",
        "this user may not use it",
    ),
    (
        r"cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
        "gpu_lost",
        "its memory has an uncorrectable error: reset it, and replace it if this comes back",
    ),
    (
        (
            r"cudaErrorLaunchFailure|cudaErrorIllegalAddress|cudaErrorIllegalInstruction|cudaErrorMisalignedAddress|"
            r"cudaErrorInvalidPc|cudaErrorHardwareStackError|cudaErrorNvlinkUncorrectable|cudaErrorContained|"
            r"cudaErrorLaunchTimeout|CUDA_ERROR_(LAUNCH|ILLEGAL|MISALIGNED|INVALID_PC|HARDWARE|NVLINK)"
        ),
        "gpu_lost",
        "it stopped in the middle of a simple kernel: look for Xid messages in the kernel log, and reset it",
    ),
)
_LIBRARY = re.compile(
    r"Failure finding \"lib|cannot open shared object file|(cannot|could not) open source file|CUDA (path|headers)|"
    r"Failed to find|failed to load lib|libnvrtc|libcudart|DynamicLibNotFoundError",
    re.IGNORECASE,
)
_CUDA_ERROR = re.compile(r"cudaError[A-Z]|CUDA_ERROR_")


@dataclass(frozen=True)
class Attempt:
    """A worker's outcome, with what is needed to judge it. ``cupy`` is the requirement that fits this host."""

    unit: Unit
    request: Request
    outcome: Outcome
    cupy: str
    nodes: Nodes

    def remedy(self, library: str) -> str:
        """How to have what fits. The interpreter may be the system's, which isn't for pip to change."""
        container, prefix = self.request.container, self.request.command_prefix
        where = f"where {prefix[0]} starts it" if prefix else None
        if container:
            what = "cudf" if library == "cuDF" else self.cupy
            return f"build {container.image} with {what}, or give python the path of an interpreter that has it there"
        if library == "cuDF" and where:
            return f"install cudf {where}, or give python the path of an interpreter that has it there"
        if library == "cuDF":
            return "install cudf in that environment, or give python or conda_prefix one that has it"
        if where:
            return f"give python the path of an interpreter that has {self.cupy} {where}"
        return (
            "run role cudahub.gpu.gpu_verify, which brings an environment, or give python or conda_prefix an"
            f" environment that has {self.cupy}"
        )

    @property
    def last_words(self) -> str:
        *_earlier, last = ["", *_lines(self.outcome.tail)]
        return f" It last said: {last}" if last else ""


@dataclass(frozen=True)
class Trouble:
    """An error that a worker reported."""

    step: str
    type: str
    kind: str | None
    message: str
    runtime: Mapping[str, str | None]

    @property
    def library(self) -> str:
        return "cuDF" if self.step in CUDF_STEPS else "CuPy"

    @property
    def said(self) -> str:
        return f"{self.type}: {self.message}"

    @property
    def quote(self) -> str:
        return f"({_first_line(self.message)})"


def explain(attempt: Attempt) -> Failure | None:
    """Name the failure behind an attempt, or None where there is none."""
    outcome, request = attempt.outcome, attempt.request
    report = parse(outcome.marked)
    if outcome.start_error is not None:
        argv = request.argv(attempt.unit.uuid or "")
        if request.container:
            failure = f"{argv[0]} can't be started: {outcome.start_error}; install it, or choose another engine."
            return Failure("container", failure)
        failure = f"{argv[0]} can't be started: {outcome.start_error}; give a Python 3.9 or later that has CuPy."
        return Failure("interpreter_broken", failure)
    if outcome.timed_out:
        return _timeout(attempt, report)
    if report is None and request.container and outcome.returncode in ENGINE_STATUS:
        return Failure("container", request.container.refusal(str(attempt.unit), outcome.tail))
    if report is None:
        kind = "crashed" if (outcome.returncode or 0) < 0 else "interpreter_broken"
        place = " ".join([*request.command_prefix, request.python])
        if request.container:
            place += f" in {request.place}"
        failure = f"{place} {_ending(outcome.returncode)} before it could test {attempt.unit}.{attempt.last_words}"
        return Failure(kind, failure)
    if not report["done"]:
        failure = f"The test of {attempt.unit} {_ending(outcome.returncode)} in step '{report['step']}'."
        return Failure("crashed", failure + attempt.last_words)
    error = report["error"]
    if error is None:
        return None
    trouble = Trouble(error["step"], error["type"], error["kind"], error["message"], report["runtime"])
    reasons = (rule(attempt, trouble) for rule in _RULES)
    return next(reason for reason in reasons if reason)


def _timeout(attempt: Attempt, report: Mapping[str, Any] | None) -> Failure:
    step = f"in step '{report['step']}'" if report else "and its interpreter didn't even start the test"
    message = (
        f"{attempt.unit} gave no answer within {attempt.request.timeout:g} s, {step}: look for Xid messages in the"
        " kernel log, or raise the timeout if the host is busy."
    )
    if attempt.outcome.unkillable:
        message += f" Process {attempt.outcome.unkillable} hangs in the kernel and can't be killed: reboot the host."
    return Failure("timeout", message + attempt.last_words)


def _wrong_figure(attempt: Attempt, trouble: Trouble) -> Failure | None:
    if not trouble.kind:
        return None
    advice = {
        "slow": "see its clocks and their reasons with nvidia-smi -q -d PERFORMANCE,CLOCK, and who else uses it",
        "out_of_memory": "see who holds it with nvidia-smi, and try again when it is free, or lower memory_margin",
        "library_missing": "install it in the same environment, as nvidia-nccl-cu13 with pip, or set nccl to auto",
        "no_peer_access": "look for the fabric manager, and for the IOMMU's and the PCI bridges' settings of the host",
        "wrong_result": "don't let it compute until the cause is found; look for Xid and ECC errors in the kernel log",
    }[trouble.kind]
    return Failure(trouble.kind, f"{attempt.unit} isn't fit, {trouble.message}: {advice}.")


def _without_libcuda(attempt: Attempt, trouble: Trouble) -> Failure | None:
    without = "cudaErrorInsufficientDriver" in trouble.said and not trouble.runtime["cuda_driver"]
    if not without and "libcuda.so" not in trouble.said:
        return None
    message = (
        f"{attempt.unit} can't be used where {attempt.request.python} runs, the driver's libcuda.so.1 isn't there or"
        f" can't be loaded {trouble.quote}: install the compute libraries of the driver, in the driver's version."
    )
    return Failure("driver_unusable", message)


def _old_driver(attempt: Attempt, trouble: Trouble) -> Failure | None:
    if "cudaErrorInsufficientDriver" not in trouble.said:
        return None
    runtime, library = trouble.runtime, trouble.library
    # The CUDA that cuDF brings may be another than CuPy's.
    user = f"CuPy {runtime['cupy']} with CUDA {runtime['cuda_runtime']}" if library == "CuPy" else "its cuDF"
    message = (
        f"{attempt.unit} has a driver for CUDA {runtime['cuda_driver']}, too old for {user}: install a newer driver, or"
        f" take a {library} for this one: {attempt.remedy(library)}."
    )
    return Failure("driver_too_old", message)


def _not_importable(attempt: Attempt, trouble: Trouble) -> Failure | None:
    verb, _space, library = trouble.step.partition(" ")
    # What CUDA says while a library is imported is about the GPU.
    if verb != "import" or _CUDA_ERROR.search(trouble.said):
        return None
    what = f"has no {library}" if trouble.type == "ModuleNotFoundError" else f"can't load {library} {trouble.quote}"
    return Failure("library_missing", f"{attempt.request.python} {what}: {attempt.remedy(trouble.library)}.")


def _no_device(attempt: Attempt, trouble: Trouble) -> Failure | None:
    if not _NO_DEVICE.search(trouble.said):
        return None
    unit, place, quote = attempt.unit, attempt.request.place, trouble.quote
    paths = [*SHARED_NODES, *unit.device_nodes]
    missing, forbidden = attempt.nodes.missing(paths), attempt.nodes.forbidden(paths)
    if missing:
        kind = "no_device_node"
        what = f"can't be opened, {', '.join(missing)} isn't there {quote}: run nvidia-modprobe -u -c=0 as root"
    elif forbidden:
        kind = "permission"
        what = f"can't be opened, this user may not use {', '.join(forbidden)} {quote}: run the task with become: true"
    elif place:
        kind = "no_device_node"
        what = f"isn't there for {place} {quote}: give that place the GPU's device nodes"
    else:
        kind = "gpu_lost"
        what = f"isn't there for CUDA {quote}: look for its Xid messages in the kernel log, reset it or reboot the host"
    return Failure(kind, f"{unit} {what}.")


def _known(attempt: Attempt, trouble: Trouble) -> Failure | None:
    for pattern, kind, advice in _ERRORS:
        if re.search(pattern, trouble.said):
            fitting = advice.replace("CuPy", trouble.library)
            return Failure(kind, f"{attempt.unit} can't be used, {fitting} {trouble.quote}.")
    return None


def _library(attempt: Attempt, trouble: Trouble) -> Failure | None:
    if not _LIBRARY.search(trouble.said):
        return None
    remedy = attempt.remedy(trouble.library)
    message = f"{attempt.request.python} lacks a library or header of CUDA {trouble.quote}: {remedy}."
    return Failure("library_missing", message)


def _unknown(attempt: Attempt, trouble: Trouble) -> Failure:
    said = " ".join(_lines(trouble.said))
    return Failure("crashed", f"The test of {attempt.unit} broke off in step '{trouble.step}': {said}")


_RULES: tuple[Callable[[Attempt, Trouble], Failure | None], ...] = (
    _wrong_figure,
    _without_libcuda,
    _old_driver,
    _not_importable,
    _no_device,
    _known,
    _library,
    _unknown,
)
"""The first one that has an answer counts."""


def parse(marked: str | None) -> dict[str, Any] | None:
    """The worker's report, or None where there is none, or it was cut off while it was written."""
    try:
        report = json.loads(marked or "null")
    except ValueError:
        return None
    return _printable(report) if isinstance(report, dict) else None


_TERMINAL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


def _printable(value: Any) -> Any:
    """The value with all texts in it free of control characters, but for line feeds."""
    if isinstance(value, str):
        text = _TERMINAL_SEQUENCE.sub("", value.replace("\r\n", "\n"))
        return "".join(one if one.isprintable() or one == "\n" else " " for one in text)
    if isinstance(value, list):
        return [_printable(one) for one in value]
    if isinstance(value, dict):
        return {_printable(key): _printable(one) for key, one in value.items()}
    return value


def _ending(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended with status {returncode}"


def _first_line(text: str) -> str:
    return next(_lines(text), "no message")


def _lines(text: str) -> Iterator[str]:
    lines = (_printable(line).strip() for line in text.splitlines())
    return (line[:300] for line in lines if line)


@dataclass(frozen=True)
class Ran:
    """What became of one worker."""

    unit: Unit
    report: Mapping[str, Any]
    failure: Failure | None
    seconds: float

    def checks(self, mode: str = "parallel") -> list[dict[str, Any]]:
        return [{**check, "share": None, "peak": None, "mode": mode} for check in self.report["checks"]]


@dataclass(frozen=True)
class Bench:
    """All that a worker needs besides its GPU."""

    request: Request
    payload: str
    marker: str
    environ: Mapping[str, str]
    runner: Runner
    nodes: Nodes
    cupy: str

    def run(self, units: Sequence[Unit], **more: Any) -> list[Ran]:
        """Run a worker for each unit, all at the same time."""
        parallel = max(PARALLEL_MINIMUM, os.cpu_count() or 1)
        return self.run_beside(units, (), parallel, self.request.timeout, **more)[0]

    def run_beside(
        self, units: Sequence[Unit], companions: Sequence[Command], parallel: int, timeout: float, **more: Any
    ) -> tuple[list[Ran], list[Outcome]]:
        """Run a worker for each unit, and beside them commands that end when the workers do."""
        request = replace(self.request, timeout=timeout)
        commands = [command_for(unit, request, self.payload, self.marker, self.environ, **more) for unit in units]
        outcomes = self.runner([*companions, *commands], self.marker, timeout, parallel)
        beside, own = outcomes[: len(companions)], outcomes[len(companions) :]
        ran = []
        for unit, outcome in zip(units, own):
            report = parse(outcome.marked) or {"checks": [], "runtime": None}
            failure = explain(Attempt(unit, request, outcome, self.cupy, self.nodes))
            ran.append(Ran(unit, report, failure, outcome.seconds))
        return ran, beside


@dataclass(frozen=True)
class Proof:
    """Results of units, and what was found between them."""

    results: list[dict[str, Any]]
    runtime: Mapping[str, Any] | None
    checks: list[dict[str, Any]] = field(default_factory=list)
    failure: Failure | None = None


class Prover(Protocol):
    """Proves units on a bench."""

    def __call__(self, units: Sequence[Unit], bench: Bench) -> Proof: ...


def prove_quickly(units: Sequence[Unit], bench: Bench) -> Proof:
    ran = bench.run(units)
    results = []
    for one in ran:
        more = {"checks": one.checks(), "seconds": one.seconds}
        results.append(one.unit.failed(one.failure, **more) if one.failure else one.unit.result("passed", **more))
    return Proof(results, best_runtime(ran))


def best_runtime(ran: Sequence[Ran]) -> Mapping[str, Any] | None:
    """The versions of a worker that came to know them all, or else of one that knew some."""
    known = [one.report["runtime"] for one in ran if one.report["runtime"]]
    return next((one for one in reversed(known) if one["cupy"]), known[0] if known else None)


def verify(
    facts: Mapping[str, Any],
    request: Request,
    payload: str,
    marker: str,
    environ: Mapping[str, str],
    runner: Runner,
    nodes: Nodes,
    prove: Prover = prove_quickly,
) -> dict[str, Any]:
    """Prove the GPUs that ``facts`` (as of module gpu_facts) describe. The result is the module's ``verification``."""
    started = time.monotonic()
    simulated = bool(facts["simulated"])
    result: dict[str, Any] = {
        "level": request.level,
        "verified": False,
        "simulated": simulated,
        "seconds": 0.0,
        "runtime": None,
        "failure": None,
        "checks": [],
        "gpus": [],
    }
    if failure := unfit_host(facts, request):
        result["failure"] = failure.as_dict()
        return result
    planned = plan(facts["gpus"], request.gpus)
    results = list(planned.settled)
    between: Failure | None = None
    if simulated and not request.run_simulated:
        reason = "This GPU is simulated: nothing ran on it."
        results += [unit.result("simulated", reason=reason) for unit in planned.units]
    elif planned.units:
        cupy = cupy_requirement(facts["driver"]["cuda_version"], facts["gpus"])
        proof = prove(planned.units, Bench(request, payload, marker, environ, runner, nodes, cupy))
        for one in proof.results:
            passed = one["verdict"] == "passed"
            results.append({**one, "verdict": "simulated"} if simulated and passed else one)
        result["runtime"], result["checks"], between = proof.runtime, proof.checks, proof.failure
    results.sort(key=lambda one: (one["index"] is None, one["index"] or 0))
    result["gpus"] = results
    result["failure"] = first_failure(results) or (between and between.as_dict())
    result["verified"] = result["failure"] is None and any(one["verdict"] == "passed" for one in results)
    result["seconds"] = round(time.monotonic() - started, 3)
    return result


def unfit_host(facts: Mapping[str, Any], request: Request) -> Failure | None:
    """Why nothing on this host can be proven, if so."""
    driver = facts["driver"]
    if not facts["gpus"]:
        # GPUs that were asked for are missed one by one.
        return None if request.gpus else Failure("no_gpu", "This host has no NVIDIA GPU on its PCI bus.")
    if driver["state"] != "ok":
        reason = (driver["reason"] or "no reason is known").rstrip(".")
        return Failure("driver_unusable", f"The NVIDIA driver of this host is in state '{driver['state']}'. {reason}.")
    return None


def first_failure(results: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    for one in results:
        if one["failure"]:
            return dict(one["failure"])
    if not any(one["verdict"] in ("passed", "simulated") for one in results):
        reasons = " ".join(str(one["reason"]) for one in results)
        return Failure("no_gpu", f"There is no GPU that could be verified. {reasons}".strip()).as_dict()
    return None


def summary(verification: Mapping[str, Any]) -> str:
    """One sentence for a person."""
    results = verification["gpus"]
    failed = [one for one in results if one["verdict"] == "failed"]
    if not failed and verification["failure"] and not any(one["verdict"] == "passed" for one in results):
        return str(verification["failure"]["message"])
    counts = [
        f"{sum(one['verdict'] == verdict for one in results)} {verdict}"
        for verdict in ("passed", "failed", "skipped", "simulated")
        if any(one["verdict"] == verdict for one in results)
    ]
    text = f"GPUs: {', '.join(counts)}, in {verification['seconds']:.1f} s."
    between = verification["failure"]
    told = [one["failure"] for one in failed]
    more = [f"[{between['kind']}] {between['message']}"] if between and between not in told else []
    warnings = [f"Warning: {sentence}" for one in results for sentence in one["warnings"]]
    if len(warnings) > TOLD_WARNINGS:
        warnings[TOLD_WARNINGS:] = [f"{len(warnings) - TOLD_WARNINGS} more warnings are in the result."]
    return " ".join([text, *_sentences(failed), *more, *warnings])


def _sentences(failed: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong, each thing once: GPUs to which the same happened are named after the sentence."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for one in failed:
        alike.setdefault(f"[{one['failure']['kind']}] {_nameless(one)}", []).append(one)
    sentences = []
    for first, *others in alike.values():
        sentence = f"[{first['failure']['kind']}] {first['failure']['message']}"
        names = ", ".join(_short_name(one["uuid"], one["pci_bus_id"]) for one in others)
        sentences.append(f"{sentence.rstrip('.')}. The same with {names}." if names else sentence)
    return sentences


def _nameless(result: Mapping[str, Any]) -> str:
    """The message of a failure without what tells its unit from others."""
    unit = Unit(*(result[name] for name in ("uuid", "index", "pci_bus_id", "name", "mig_profile")))
    message = str(result["failure"]["message"])
    for own in (str(unit), unit.uuid, unit.pci_bus_id):
        message = message.replace(own or "\0", "\0")
    return message.replace(f"GPU {unit.index} \0", "GPU \0")


def _short_name(uuid: str | None, pci_bus_id: str | None) -> str:
    return f"{uuid} ({pci_bus_id})" if uuid and pci_bus_id else str(uuid or pci_bus_id)
