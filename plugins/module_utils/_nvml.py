# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the NVIDIA management library (NVML) says, read in a process of its own.

The driver can hang in the kernel, and a broken library can crash. So the library is loaded only in a forked
child, which sends one JSON document per line: the system first, then each GPU. What has arrived is kept,
whatever becomes of the child.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import time
import typing as t
from dataclasses import dataclass, field, replace
from pathlib import Path

if t.TYPE_CHECKING:
    from types import ModuleType

Handle = t.Any
"""A GPU or MIG instance in the terms of the binding."""

Answer = t.Any
"""What a function of the binding returns."""

Value = t.Any
"""Data that JSON can carry."""

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
MISMATCH = 18

ERRORS = {
    1: "not initialized",
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    6: "not found",
    8: "power cables not properly attached",
    9: "driver not loaded",
    10: "timeout",
    11: "interrupt problem",
    12: "library not found",
    13: "function not found",
    14: "corrupted inforom",
    15: "GPU is lost",
    16: "GPU needs a reset",
    17: "GPU control blocked by the operating system",
    18: "driver and library versions differ",
    19: "in use",
    20: "out of memory",
    21: "no data",
    25: "argument version mismatch",
    26: "deprecated",
    27: "not ready",
    28: "GPU not found",
    29: "invalid state",
    999: "unknown error",
}

UNSUPPORTED = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, 25, 26})
"""Errors that say "this GPU, driver or binding has no such value"; all others are failures."""

MODULE = "pynvml"
NEEDED_FUNCTION = "nvmlDeviceGetMigDeviceHandleByIndex"
SIMULATOR_SYMBOL = "gpuSimulatorVersion"
RECOVERY_ACTION_FIELD = 230
MAX_LINKS = 36
CPU_WORDS = 16
KILL_GRACE_SECONDS = 2.0


class NvmlError(Exception):
    """An NVML call failed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(describe(code))
        self.code = code


class Nvml(t.Protocol):
    """The library, as far as the facts need it."""

    @property
    def origin(self) -> str | None:
        """The file of the binding."""

    def call(self, function: str, *args: Handle) -> Answer:
        """Call a function of the binding. Raises NvmlError."""

    def has_symbol(self, name: str) -> bool:
        """Whether the loaded library exports a symbol."""


class Pynvml:
    """NVML through the Python binding C(pynvml) of the distribution C(nvidia-ml-py)."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    @property
    def origin(self) -> str | None:
        return self._module.__file__

    def call(self, function: str, *args: Handle) -> Answer:
        implementation = getattr(self._module, function, None)
        if implementation is None:
            raise NvmlError(FUNCTION_NOT_FOUND)
        try:
            return implementation(*args)
        except self._module.NVMLError as error:
            raise NvmlError(int(error.value)) from error

    def has_symbol(self, name: str) -> bool:
        library = getattr(self._module, "nvmlLib", None) or getattr(
            getattr(self._module, "nvml", None), "nvmlLib", None
        )
        return library is not None and hasattr(library, name)


class DeviceReading(t.TypedDict):
    """What NVML said of one GPU: values by name, and the code of each call that failed for a reason."""

    index: int
    error: int | None
    values: dict[str, t.Any]
    errors: dict[str, int]
    instances: list[InstanceReading]


class InstanceReading(t.TypedDict):
    """What NVML said of one MIG instance."""

    index: int
    values: dict[str, t.Any]
    errors: dict[str, int]


@dataclass(frozen=True)
class Report:
    """What came back from NVML.

    :ivar binding: the file of the Python binding
    :ivar missing_binding: a sentence, when the Python binding could not be loaded
    :ivar failure: a sentence, when the child hung, crashed or failed
    :ivar init_error: NVML's code, when the library could not be started
    :ivar finished: whether every GPU was read
    """

    binding: str | None = None
    missing_binding: str | None = None
    failure: str | None = None
    init_error: int | None = None
    finished: bool = False
    simulator: bool = False
    library_version: str | None = None
    driver_version: str | None = None
    cuda_version: int | None = None
    device_count: int | None = None
    devices: tuple[DeviceReading, ...] = field(default=())

    @property
    def answered(self) -> bool:
        """Whether the library started and counted its GPUs."""
        return self.device_count is not None


def describe(code: int) -> str:
    """NVML's error in words: ``15 (GPU is lost)``."""
    return f"{code} ({ERRORS.get(code, 'unknown to this collection')})"


def load_binding(venvs: t.Sequence[str]) -> Nvml:
    """The Python binding of this interpreter, else that of the first virtual environment that has one.

    Raises ImportError with a sentence that says what was tried and what to do.
    """
    too_old = []
    for origin, load in [
        ("the module's Python interpreter", _import_installed),
        *((venv, _from_venv(venv)) for venv in venvs),
    ]:
        module = load()
        if module is not None and hasattr(module, NEEDED_FUNCTION):
            return Pynvml(module)
        if module is not None:
            too_old.append(origin)
    searched = ", ".join(["the module's Python interpreter", *venvs])
    problem = f"is too old in {', '.join(too_old)}" if too_old else f"was not found in {searched}"
    raise ImportError(
        f"The Python binding of NVML (module pynvml, distribution nvidia-ml-py) {problem}: "
        "run the role cudahub.gpu.gpu_facts, which installs it, or install nvidia-ml-py in a virtual environment "
        "and name that in nvml_venvs"
    )


def _import_installed() -> ModuleType | None:
    try:
        return importlib.import_module(MODULE)
    except ImportError:
        return None


def _from_venv(venv: str) -> t.Callable[[], ModuleType | None]:
    def load() -> ModuleType | None:
        for path in sorted(Path(venv).glob(f"lib*/python3*/site-packages/{MODULE}.py")):
            spec = importlib.util.spec_from_file_location(MODULE, path)
            if spec is None or spec.loader is None:
                continue
            module = importlib.util.module_from_spec(spec)
            sys.modules[MODULE] = module  # pynvml looks itself up
            spec.loader.exec_module(module)
            return module
        return None

    return load


class Child:
    """A forked process that reads NVML; the parent works on meanwhile and asks for the report in the end.

    Nothing is raised for what NVML does.
    """

    def __init__(self, load: t.Callable[[], Nvml]) -> None:
        self._started = time.monotonic()
        self._pipe, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._pipe)
            _child(load, write_end)
        os.close(write_end)

    def report(self, timeout: float) -> Report:
        """What the child said until so many seconds after its start; then it is killed."""
        data, in_time = self._receive(self._started + timeout)
        os.close(self._pipe)
        status = self._reap(kill=not in_time)
        report = parse([line for line in data.split(b"\n") if line])
        if not in_time:
            return replace(report, failure=_timeout_sentence(report, timeout), finished=False)
        if (
            report.failure is None
            and not report.finished
            and report.missing_binding is None
            and report.init_error is None
        ):
            return replace(report, failure=_crash_sentence(status))
        return report

    def _receive(self, deadline: float) -> tuple[bytes, bool]:
        received = bytearray()
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN | select.POLLHUP)
        while True:
            # What is there already counts, however late it is asked for.
            left = max(0.0, deadline - time.monotonic())
            if not poll.poll(left * 1000):
                return bytes(received), False
            chunk = os.read(self._pipe, 1 << 16)
            if not chunk:
                return bytes(received), True
            received += chunk

    def _reap(self, *, kill: bool) -> int | None:
        """Wait for the child. One that hangs in the kernel can't be waited for: init takes it over."""
        if kill:
            os.kill(self._pid, signal.SIGKILL)
        deadline = time.monotonic() + KILL_GRACE_SECONDS
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return status
            if time.monotonic() > deadline:
                return None
            time.sleep(0.0005)


def _child(load: t.Callable[[], Nvml], write_end: int) -> t.NoReturn:
    # A child that can't be killed must not hold the streams on which Ansible waits.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)

    def send(document: t.Mapping[str, t.Any]) -> None:
        line = json.dumps(document).encode() + b"\n"
        while line:
            line = line[os.write(write_end, line) :]

    status = 0
    try:
        nvml = load()
        send({"binding": nvml.origin})
        read(nvml, send)
    except ImportError as error:
        send({"missing_binding": str(error)})
    except Exception as error:  # noqa: BLE001 - the parent tells it
        send({"failure": f"Reading NVML failed: {type(error).__name__}: {error}"})
        status = 1
    os._exit(status)


def parse(lines: t.Sequence[bytes]) -> Report:
    """The report that the child's lines make up. An incomplete last line is left out."""
    values: dict[str, t.Any] = {}
    devices: list[DeviceReading] = []
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if "device" in document:
            devices.append(document["device"])
        else:
            values.update(document)
    return Report(devices=tuple(devices), **values)


def _timeout_sentence(report: Report, timeout: float) -> str:
    if report.device_count is None:
        where = "while it started" if report.library_version else "while the library was loaded"
    else:
        where = f"while GPU {len(report.devices)} of {report.device_count} was read (counted from 0)"
    return (
        f"NVML did not answer within {timeout:g} s, {where}: the driver or a GPU hangs; "
        "look for Xid messages in the kernel log, then reset the GPU or reboot"
    )


def _crash_sentence(status: int | None) -> str:
    if status is None:
        return "NVML's process closed its output and could not be ended"
    if os.WIFSIGNALED(status):
        return f"NVML ended its process with signal {os.WTERMSIG(status)}: the library is broken; reinstall the driver"
    return f"NVML's process ended early, with exit status {os.WEXITSTATUS(status)}"


def read(nvml: Nvml, send: t.Callable[[t.Mapping[str, t.Any]], None]) -> None:
    """Read everything, sending each part as soon as it is known. The library is left initialized."""
    try:
        nvml.call("nvmlInit")
    except NvmlError as error:
        send({"init_error": error.code, **_library(nvml)})
        return
    send(_library(nvml))
    values, _errors = _read_values(nvml, SYSTEM, ())
    send(values)
    for index in range(values.get("device_count", 0)):
        send({"device": read_device(nvml, index)})
    send({"finished": True})


def _library(nvml: Nvml) -> dict[str, t.Any]:
    values, _errors = _read_values(nvml, LIBRARY, ())
    return {**values, "simulator": nvml.has_symbol(SIMULATOR_SYMBOL)}


def read_device(nvml: Nvml, index: int) -> DeviceReading:
    """One GPU, by NVML's index."""
    try:
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
    except NvmlError as error:
        return {"index": index, "error": error.code, "values": {}, "errors": {}, "instances": []}
    values, errors = _read_values(nvml, DEVICE, (handle,))
    links = _read_links(nvml, handle, errors)
    if links:
        values["links"] = links
    instances = []
    if (values.get("mig_mode") or [0])[0] == 1:
        instances = _read_instances(nvml, handle, errors)
    return {"index": index, "error": None, "values": values, "errors": errors, "instances": instances}


def _read_links(nvml: Nvml, handle: Handle, errors: dict[str, int]) -> list[dict[str, t.Any]]:
    links: list[dict[str, t.Any]] = []
    for link in range(MAX_LINKS):
        state = _call(nvml, Read("state", "nvmlDeviceGetNvLinkState", (link,)), (handle,), errors)
        if state is None:
            break
        entry: dict[str, t.Any] = {"active": bool(state)}
        if state:
            for remote in (
                Read("version", "nvmlDeviceGetNvLinkVersion", (link,)),
                Read("type", "nvmlDeviceGetNvLinkRemoteDeviceType", (link,)),
                Read("bus_id", "nvmlDeviceGetNvLinkRemotePciInfo", (link,), _bus_id),
            ):
                if remote.name == "bus_id" and entry.get("type") == SWITCH_LINK:
                    continue
                if remote.name == "version" and link > 0:
                    continue
                entry[remote.name] = _call(nvml, remote, (handle,), errors)
        links.append(entry)
    return links


def _read_instances(nvml: Nvml, handle: Handle, errors: dict[str, int]) -> list[InstanceReading]:
    count = _call(nvml, Read("count", "nvmlDeviceGetMaxMigDeviceCount"), (handle,), errors) or 0
    instances: list[InstanceReading] = []
    for index in range(count):
        instance = _call(nvml, Read("handle", "nvmlDeviceGetMigDeviceHandleByIndex", (index,)), (handle,), errors)
        if instance is None:
            continue
        values, instance_errors = _read_values(nvml, INSTANCE, (instance,))
        instances.append({"index": index, "values": values, "errors": instance_errors})
    return instances


def _read_values(
    nvml: Nvml, reads: t.Sequence[Read], handles: tuple[t.Any, ...]
) -> tuple[dict[str, t.Any], dict[str, int]]:
    errors: dict[str, int] = {}
    values = {read.name: _call(nvml, read, handles, errors) for read in reads}
    return {name: value for name, value in values.items() if value is not None}, errors


def _call(nvml: Nvml, read: Read, handles: tuple[t.Any, ...], errors: dict[str, int]) -> Value:
    """The value of one call, None when it failed; the failure is noted unless it means "not supported"."""
    code = NOT_SUPPORTED
    for function in (read.function, *read.older):
        try:
            return read.convert(nvml.call(function, *handles, *read.args))
        except NvmlError as error:
            code = error.code
        if code != FUNCTION_NOT_FOUND:
            break
    if code not in UNSUPPORTED:
        errors[read.function] = code
    return None


def _plain(value: Answer) -> Value:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _list(value: Answer) -> list[t.Any]:
    return list(value)


def _pids(processes: Answer) -> list[int]:
    return [int(process.pid) for process in processes]


def _bus_id(pci: Answer) -> str:
    return str(_plain(pci.busId)).upper()


def _pci(pci: Answer) -> dict[str, t.Any]:
    return {"bus_id": _bus_id(pci), "device_id": int(pci.pciDeviceId)}


def _total(memory: Answer) -> int:
    return int(memory.total)


def _attributes(attributes: Answer) -> dict[str, int]:
    return {"memory_mib": int(attributes.memorySizeMB), "gpu_slices": int(attributes.gpuInstanceSliceCount)}


def _field_value(values: Answer) -> int:
    if values[0].nvmlReturn != 0:
        raise NvmlError(NOT_SUPPORTED)
    return int(values[0].value.uiVal)


def _without_cuda(version: Answer) -> str:
    return str(_plain(version)).split(".", 1)[1]


@dataclass(frozen=True)
class Read:
    """One value: its name here, the binding's function, older names of it, and how to make plain data of it."""

    name: str
    function: str
    args: tuple[t.Any, ...] = ()
    convert: t.Callable[[t.Any], t.Any] = _plain
    older: tuple[str, ...] = ()


SWITCH_LINK = 2
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1

LIBRARY = (Read("library_version", "nvmlSystemGetNVMLVersion", convert=_without_cuda),)

SYSTEM = (
    Read("driver_version", "nvmlSystemGetDriverVersion"),
    Read("cuda_version", "nvmlSystemGetCudaDriverVersion_v2", older=("nvmlSystemGetCudaDriverVersion",)),
    Read("device_count", "nvmlDeviceGetCount"),
)

DEVICE = (
    Read("uuid", "nvmlDeviceGetUUID"),
    Read("pci", "nvmlDeviceGetPciInfo", convert=_pci),
    Read("minor", "nvmlDeviceGetMinorNumber"),
    Read("name", "nvmlDeviceGetName"),
    Read("architecture", "nvmlDeviceGetArchitecture"),
    Read("compute_capability", "nvmlDeviceGetCudaComputeCapability", convert=_list),
    Read("memory_bytes", "nvmlDeviceGetMemoryInfo", convert=_total),
    Read("mig_mode", "nvmlDeviceGetMigMode", convert=_list),
    Read("ecc_mode", "nvmlDeviceGetEccMode", convert=_list),
    Read("corrected_volatile", "nvmlDeviceGetTotalEccErrors", (CORRECTED, VOLATILE)),
    Read("uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", (UNCORRECTED, VOLATILE)),
    Read("corrected_aggregate", "nvmlDeviceGetTotalEccErrors", (CORRECTED, AGGREGATE)),
    Read("uncorrected_aggregate", "nvmlDeviceGetTotalEccErrors", (UNCORRECTED, AGGREGATE)),
    Read("remapped_rows", "nvmlDeviceGetRemappedRows", convert=_list),
    Read("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus"),
    Read("power_limit_milliwatts", "nvmlDeviceGetEnforcedPowerLimit"),
    Read(
        "clock_reasons",
        "nvmlDeviceGetCurrentClocksEventReasons",
        older=("nvmlDeviceGetCurrentClocksThrottleReasons",),
    ),
    Read("recovery_action", "nvmlDeviceGetFieldValues", ([RECOVERY_ACTION_FIELD],), _field_value),
    Read("cpu_mask", "nvmlDeviceGetCpuAffinity", (CPU_WORDS,), _list),
    Read("compute_processes", "nvmlDeviceGetComputeRunningProcesses", convert=_pids),
    Read("graphics_processes", "nvmlDeviceGetGraphicsRunningProcesses", convert=_pids),
)

INSTANCE = (
    Read("uuid", "nvmlDeviceGetUUID"),
    Read("name", "nvmlDeviceGetName"),
    Read("gpu_instance_id", "nvmlDeviceGetGpuInstanceId"),
    Read("compute_instance_id", "nvmlDeviceGetComputeInstanceId"),
    Read("attributes", "nvmlDeviceGetAttributes", convert=_attributes),
)
