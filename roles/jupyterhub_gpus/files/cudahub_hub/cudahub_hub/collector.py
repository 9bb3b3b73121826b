# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the GPUs through NVML every few seconds and writes the usage file.

It runs outside of the hub's sandbox, which hides the GPUs, and needs of the hub's environment nothing but pynvml.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from .inventory import Inventory, Unit, read_inventory
from .settings import ConfigurationError, Settings, read_settings
from .usage import FORMAT, Process, UnitUsage, read_usage, stale_after

NOT_FOUND = 6
GPU_IS_LOST = 15
RESET_REQUIRED = 16
MISMATCH = 18
SLICED = -1  # no code of NVML's
GONE = {
    SLICED: "it is in MIG mode now",
    NOT_FOUND: "the driver does not find it",
    GPU_IS_LOST: "the driver lost it",
    RESET_REQUIRED: "it needs a reset",
}
UNSUPPORTED = frozenset({2, 3, 6, 13, 25, 26})
"""Codes that say "this GPU, slice or driver has no such value"."""

Handle = Any


class NvmlError(Exception):
    """An NVML call failed with this code; 0 where there is none."""

    def __init__(self, code: int, text: str) -> None:
        """Takes NVML's code and a text for people."""
        super().__init__(text)
        self.code = code


class Nvml(Protocol):
    """The functions of NVML that are read, with plain answers. All raise NvmlError."""

    def open(self) -> None:
        """Start the library, again after an error."""

    def close(self) -> None:
        """Stop the library; raises nothing."""

    def handle(self, unit: Unit) -> Handle:
        """Find a GPU or a slice."""

    def utilization(self, handle: Handle) -> int | None:
        """How busy it was, in percent."""

    def memory(self, handle: Handle) -> tuple[int | None, int | None]:
        """Bytes used and bytes in all."""

    def processes(self, handle: Handle) -> tuple[Process, ...]:
        """The processes that compute on it."""


class Pynvml:
    """NVML through the module pynvml of the distribution nvidia-ml-py."""

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> None:
        """Loads the module when it is needed first, and tries again where it is not there."""
        self._load = load
        self._module: Any = None

    def open(self) -> None:
        """Start the library, unless it is."""
        if self._module is not None:
            return
        try:
            module = self._load()
        except ImportError as error:
            raise NvmlError(0, f"Python has no module pynvml (install nvidia-ml-py): {error}") from error
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            raise NvmlError(error.value, f"The NVIDIA driver does not answer: {error}") from error
        self._module = module

    def close(self) -> None:
        """Stop the library."""
        module, self._module = self._module, None
        if module is not None:
            with contextlib.suppress(module.NVMLError):
                module.nvmlShutdown()

    def _call(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._module, function)(*arguments)
        except self._module.NVMLError as error:
            raise NvmlError(error.value, str(error)) from error

    def _supported(self, function: str, *arguments: Any) -> Any:
        """The answer of a function, None where this GPU has none."""
        try:
            return self._call(function, *arguments)
        except NvmlError as error:
            if error.code in UNSUPPORTED:
                return None
            raise

    def handle(self, unit: Unit) -> Handle:
        """Find a unit, and be sure that it is the one of the inventory."""
        # By bus address: a search by UUID looks at every GPU and fails where another one is lost.
        if unit.pci_bus_id:
            gpu = self._call("nvmlDeviceGetHandleByPciBusId", unit.pci_bus_id.encode())
        else:
            gpu = self._call("nvmlDeviceGetHandleByUUID", unit.gpu.encode())
        if self._call("nvmlDeviceGetUUID", gpu) != unit.gpu:
            raise NvmlError(NOT_FOUND, "another GPU is in its place")
        if unit.kind == "gpu":
            if (self._supported("nvmlDeviceGetMigMode", gpu) or [0])[0]:
                raise NvmlError(SLICED, "run the playbook again, and its slices are given")
            return gpu
        for index in range(self._supported("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
            slice_ = self._supported("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
            if slice_ is not None and self._call("nvmlDeviceGetUUID", slice_) == unit.uuid:
                return slice_
        raise NvmlError(NOT_FOUND, "its MIG slice is not there")

    def utilization(self, handle: Handle) -> int | None:
        """Percent of the time in which a kernel ran."""
        rates = self._supported("nvmlDeviceGetUtilizationRates", handle)
        return None if rates is None else int(rates.gpu)

    def memory(self, handle: Handle) -> tuple[int | None, int | None]:
        """Bytes used and bytes in all."""
        # The second version does not count what the driver keeps for itself as used.
        version = getattr(self._module, "nvmlMemory_v2", None)
        info = self._supported("nvmlDeviceGetMemoryInfo", handle, version) if version else None
        info = info or self._supported("nvmlDeviceGetMemoryInfo", handle)
        return (None, None) if info is None else (int(info.used), int(info.total))

    def processes(self, handle: Handle) -> tuple[Process, ...]:
        """The processes with a context for computing."""
        found = self._supported("nvmlDeviceGetComputeRunningProcesses", handle) or ()
        return tuple(Process(int(p.pid), None if p.usedGpuMemory is None else int(p.usedGpuMemory)) for p in found)


def cpu_seconds(pid: int) -> float:
    """How long a process has computed on CPUs, 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass(frozen=True)
class _Seen:
    """What was last seen of a unit that answers."""

    usage: UnitUsage
    time: float
    cpu_seconds: float


def _works(before: _Seen, usage: UnitUsage, *, cpu: float, seconds: float, percent: float) -> bool:
    """Whether a unit worked in the seconds since it was seen before.

    A MIG slice answers no utilization: it works where its memory or its processes change, or where its processes
    computed on a CPU meanwhile, as all do that send work to a GPU.
    """
    if usage.utilization_percent is not None:
        return usage.utilization_percent > percent
    then = before.usage
    if (usage.memory_used_bytes, usage.processes) != (then.memory_used_bytes, then.processes):
        return True
    return (cpu - before.cpu_seconds) * 100 > percent * seconds


class Collector:
    """Takes samples of all units, and knows from one to the next since when each is idle."""

    def __init__(
        self,
        nvml: Nvml,
        *,
        interval: float,
        clock: Callable[[], float] = time.time,
        cpu: Callable[[int], float] = cpu_seconds,
    ) -> None:
        """Reads through NVML, and expects to be asked once in an interval."""
        self._nvml = nvml
        self._interval = interval
        self._clock = clock
        self._cpu = cpu
        self._last: dict[str, UnitUsage] = {}
        self._seen: dict[str, _Seen] = {}
        self.replaced = False
        """Whether the driver was replaced: only a new process can load its library."""

    def recall(self, path: Path) -> None:
        """Go on from the usage file of a process before this one, if it is fresh."""
        now = self._clock()
        before = read_usage(path, now)
        for uuid, usage in before.units.items():
            self._last[uuid] = usage
            if usage.state == "ok":
                cpu = sum(self._cpu(process.pid) for process in usage.processes)
                self._seen[uuid] = _Seen(usage, before.time or now, cpu)

    def sample(self, units: Iterable[Unit], busy_percent: float) -> dict[str, UnitUsage]:
        """The usage of all units now; never raises for what the driver does."""
        now = self._clock()
        try:
            self._nvml.open()
        except NvmlError as error:
            self.replaced = error.code == MISMATCH
            found = {unit.uuid: UnitUsage(reason=str(error)) for unit in units}
        else:
            found = {unit.uuid: self._read(unit, busy_percent, now) for unit in units}
        if any(usage.state != "ok" for usage in found.values()):
            self._nvml.close()
        found = {uuid: self._dated(uuid, usage, now) for uuid, usage in found.items()}
        self._last = found
        return found

    def _read(self, unit: Unit, busy_percent: float, now: float) -> UnitUsage:
        try:
            handle = self._nvml.handle(unit)
            utilization = self._nvml.utilization(handle)
            used, total = self._nvml.memory(handle)
            processes = self._nvml.processes(handle)
        except NvmlError as error:
            name = f"GPU {unit.index}"
            if error.code in GONE:
                return UnitUsage("lost", f"{name} does not answer any more: {GONE[error.code]} ({error})")
            return UnitUsage(reason=f"{name} can't be read: {error}")
        usage = UnitUsage(
            "ok",
            utilization_percent=utilization,
            memory_used_bytes=used,
            memory_total_bytes=total,
            processes=processes,
        )
        cpu = sum(self._cpu(process.pid) for process in processes)
        before = self._seen.get(unit.uuid)
        watched = before is not None and 0 <= now - before.time <= stale_after(self._interval)
        if (
            before is None
            or not watched
            or _works(before, usage, cpu=cpu, seconds=now - before.time, percent=busy_percent)
        ):
            usage = replace(usage, busy_at=now)
        else:
            usage = replace(usage, busy_at=before.usage.busy_at)
        self._seen[unit.uuid] = _Seen(usage, now, cpu)
        return usage

    def _dated(self, uuid: str, usage: UnitUsage, now: float) -> UnitUsage:
        last = self._last.get(uuid)
        since = last.since if last and last.state == usage.state else now
        busy_at = usage.busy_at if usage.state == "ok" or last is None else last.busy_at
        return replace(usage, since=since, busy_at=busy_at)


def write_usage(path: Path, units: Mapping[str, UnitUsage], *, now: float, interval: float) -> None:
    """Replace the usage file in one step, readable for everybody."""
    document = {
        "format": FORMAT,
        "time": now,
        "interval": interval,
        "units": {uuid: asdict(usage) for uuid, usage in units.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class Configuration:
    """Settings and inventory, read again at each sample; the last good ones while the files are broken."""

    def __init__(self, path: Path) -> None:
        """Reads the settings file and the inventory that it names.

        Raises:
            ConfigurationError: One of them is wrong.
        """
        self._path = path
        self._said: str | None = None
        self.settings, self.inventory = self._read()

    def _read(self) -> tuple[Settings, Inventory]:
        settings = read_settings(self._path)
        return settings, read_inventory(settings.inventory)

    def refresh(self) -> None:
        """Take over what changed, and say once what is wrong."""
        try:
            self.settings, self.inventory = self._read()
            self._said = None
        except ConfigurationError as error:
            if str(error) != self._said:
                self._said = str(error)
                log(f"Going on with the settings from before: {error}")


def log(text: str) -> None:
    """Say something to the journal."""
    print(text, file=sys.stderr, flush=True)


def run(
    configuration: Configuration, collector: Collector, *, interval: float, once: bool, stop: threading.Event
) -> int:
    """Collect until asked to stop; the exit status."""
    collector.recall(Path(configuration.settings.usage))
    said: dict[str, str | None] = {}
    unwritten: str | None = None
    while True:
        settings = configuration.settings
        units = collector.sample(configuration.inventory.units, settings.idle.utilization_percent)
        try:
            write_usage(Path(settings.usage), units, now=time.time(), interval=interval)
            unwritten = None
        except OSError as error:
            if error.strerror != unwritten:
                log(f"{settings.usage} can't be written: {error.strerror}")
            unwritten = error.strerror
            if once:
                return 1
        for reason in dict.fromkeys(u.reason for uuid, u in units.items() if u.reason and said.get(uuid) != u.reason):
            log(str(reason))
        said = {uuid: usage.reason for uuid, usage in units.items()}
        if once:
            return 0
        if collector.replaced:
            log("The driver was replaced; the collector must be started again to load its library.")
            return 1
        if stop.wait(interval):
            return 0
        configuration.refresh()


def main(arguments: list[str] | None = None) -> int:
    """Run the collector."""
    parser = argparse.ArgumentParser(prog="cudahub_hub.collector", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", type=Path, required=True, help="the settings file of the hub's GPUs")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--once", action="store_true", help="take one sample and end")
    given = parser.parse_args(arguments)
    if not 0.1 <= given.interval <= 3600:
        parser.error(f"--interval must be between 0.1 and 3600 seconds, not {given.interval:g}")
    try:
        configuration = Configuration(given.settings)
    except ConfigurationError as error:
        log(str(error))
        return 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    collector = Collector(Pynvml(), interval=given.interval)
    return run(configuration, collector, interval=given.interval, once=given.once, stop=stop)


if __name__ == "__main__":
    sys.exit(main())
