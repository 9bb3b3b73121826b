# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask NVML about GPUs, once or again and again. Self-contained: the module's Python gets this text on standard input.

A call ``run({...})`` is appended to the text before it is sent. Each answer is a JSON document on a line that begins
with the marker of the call; the last one holds all.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable

PR_SET_PDEATHSIG = 1
MEMORY_CLOCK, SM_CLOCK, TEMPERATURE = 2, 1, 0
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
LINK_ERRORS = 3  # replay, recovery and CRC of flits; those of data lanes rise on idle links that are well
MAX_LINKS = 36
MOST_POINTS = 600
WHOLE_GPU = 0xFFFFFFFF
KERNEL_LOG = "/dev/kmsg"
LONGEST_RECORD = 8192
LONGEST_READING = 1.0
# 4,1201,5100,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=..., https://docs.nvidia.com/deploy/xid-errors/
# Before its text, a record has its facility and level (below 8 if it is of the kernel itself) and its number.
XID = re.compile(
    rb"^[0-7],(\d+),[^;\n]*;[^\n]*?NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})[^)\n]*\): \d",
    re.IGNORECASE | re.MULTILINE,
)

Binding = Any  # the module pynvml has no types


def tried(action: Callable[[], Any]) -> Any:
    """What NVML answers, or None where it has no answer."""
    try:
        return action()
    except Exception:  # noqa: BLE001 - one value that isn't there doesn't hide the others
        return None


def snapshot(nvml: Binding, handle: Any) -> dict[str, Any]:
    """What can be said of a GPU before and after the work."""
    return {
        "memory_clock_mhz": tried(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, MEMORY_CLOCK))),
        "bus_width_bits": tried(lambda: int(nvml.nvmlDeviceGetMemoryBusWidth(handle))),
        "pcie_generation": tried(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))),
        "pcie_width": tried(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))),
        "counters": counters(nvml, handle),
        "processes": tried(lambda: [process(one) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]),
    }


def process(one: Any) -> dict[str, Any]:
    instance = getattr(one, "gpuInstanceId", None)
    return {"pid": int(one.pid), "gpu_instance_id": None if instance in (None, WHOLE_GPU) else int(instance)}


def counters(nvml: Binding, handle: Any) -> dict[str, int | list[int] | None]:
    """Counters that only rise when something is wrong, since the driver was loaded; of a log, its records' numbers."""
    rows = tried(lambda: list(nvml.nvmlDeviceGetRemappedRows(handle))) or [None] * 4
    return {
        "ecc_corrected": tried(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, CORRECTED, VOLATILE))),
        "ecc_uncorrected": tried(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, UNCORRECTED, VOLATILE))),
        "rows_remapped_corrected": rows[0],
        "rows_remapped_uncorrected": rows[1],
        "rows_pending": rows[2],
        "rows_failed": rows[3],
        "pages_pending": tried(lambda: int(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))),
        "pcie_replays": tried(lambda: int(nvml.nvmlDeviceGetPcieReplayCounter(handle))),
        "nvlink_errors": link_errors(nvml, handle),
        "nvlinks_down": links_down(nvml, handle),
        "xids": tried(lambda: xids(nvml.nvmlDeviceGetPciInfo(handle).busId)),
    }


def kernel_log() -> Iterator[bytes]:
    """The records that the kernel has of its log, which only root and few others may read. Raises OSError."""
    # In some containers, it is a link to a terminal, which is not to become this process's own.
    log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    until = time.monotonic() + LONGEST_READING  # records may come as fast as they are read
    try:
        while time.monotonic() < until:
            try:
                record = os.read(log, LONGEST_RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:  # newer records took the place of this one
                continue
            if not record:
                break
            yield record
    finally:
        os.close(log)


def place(bus_id: str | bytes) -> str:
    """Domain, bus and device of a GPU, written in one way."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, bus, device = text.lower().split(".")[0].split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}"


def xids(bus_id: str | bytes) -> list[int]:
    """The numbers of the records of a GPU's errors (Xid) in the kernel's log. Raises OSError."""
    found = (one.groups() for record in kernel_log() for one in XID.finditer(record))
    return [int(number) for number, address in found if place(address) == place(bus_id)]


def link_states(nvml: Binding, handle: Any) -> list[Any]:
    """Whether each link of NVLink is up, None for one that the GPU doesn't have."""
    return [
        tried(lambda link=link: nvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        for link in range(MAX_LINKS)
    ]


def links_down(nvml: Binding, handle: Any) -> int | None:
    states = [state for state in link_states(nvml, handle) if state is not None]
    return states.count(0) if states else None


def link_errors(nvml: Binding, handle: Any) -> int | None:
    found = None
    for link, state in enumerate(link_states(nvml, handle)):
        if not state:
            continue
        for counter in range(LINK_ERRORS):
            errors = tried(
                lambda at=(link, counter): int(nvml.nvmlDeviceGetNvLinkErrorCounter(handle, *at))  # type: ignore[misc]
            )
            if errors is not None:
                found = (found or 0) + errors
    return found


def sample(nvml: Binding, handle: Any) -> dict[str, Any]:
    """One point of the curves."""
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )
    return {
        "time": time.time(),
        "sm_clock_mhz": tried(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, SM_CLOCK))),
        "memory_clock_mhz": tried(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, MEMORY_CLOCK))),
        "power_watts": tried(lambda: round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000, 1)),
        "temperature_celsius": tried(lambda: int(nvml.nvmlDeviceGetTemperature(handle, TEMPERATURE))),
        "clock_reasons": tried(lambda: int(reasons(handle))) if reasons else None,
    }


def thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every other point; the reasons of both are kept."""
    pairs = zip(points[::2], [*points[1::2], *([points[-1]] if len(points) % 2 else [])])
    return [{**one, "clock_reasons": merged(one["clock_reasons"], other["clock_reasons"])} for one, other in pairs]


def merged(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one | other


def watch(nvml: Binding, handle: Any, interval: float, seconds: float, send: Callable[[Any], None]) -> None:
    """Send the curves, with one point more each time, until somebody ends this process or the time is over."""
    points: list[dict[str, Any]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        points.append(sample(nvml, handle))
        if len(points) > MOST_POINTS:
            points, interval = thinned(points), 2 * interval
        send({"points": points, "interval": interval})
        time.sleep(interval)


def binding(path: str) -> Binding:
    spec = importlib.util.spec_from_file_location("pynvml", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml"] = module  # it looks itself up
    spec.loader.exec_module(module)
    return module


def run(spec: dict[str, Any]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.alarm(math.ceil(spec["timeout"]) + 5)

    def send(document: Any) -> None:
        sys.stdout.write(spec["marker"] + json.dumps(document) + "\n")
        sys.stdout.flush()

    nvml = binding(spec["binding"])
    nvml.nvmlInit()
    if spec["work"] == "watch":
        handle = nvml.nvmlDeviceGetHandleByIndex(spec["index"])
        watch(nvml, handle, spec["interval"], spec["timeout"], send)
        os._exit(0)
    found: dict[str, Any] = {}
    for index in spec["indices"]:
        handle = tried(lambda index=index: nvml.nvmlDeviceGetHandleByIndex(index))  # type: ignore[misc]
        found[str(index)] = None if handle is None else snapshot(nvml, handle)
        send(found)
    # Not sys.exit(): a driver in trouble may hang in the library's exit handlers, after all was said.
    os._exit(0)
