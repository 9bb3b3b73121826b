# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for pynvml where an H200 and its history are wanted. The real one is used if its path is given instead.

Environment variable NVML_STANDIN is a JSON object: index of a GPU (or ``*``) to changed values. A list stands for one
value before and one after the work; the file NVML_STANDIN_STATE tells which it is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

VALUES: dict[str, Any] = {
    "memory_clock": 3201,
    "bus_width": 6016,
    "pcie_generation": 5,
    "pcie_width": 16,
    "ecc": [0, 0],
    "rows": [0, 0, 0, 0],
    "processes": [],
    "reasons": 0,
    "power": 512300,
    "link_errors": 0,
    "links": 18,
    "pages_pending": 0,
    "pcie_replays": 0,
    "ends": 0,
    "hangs": 0,
}
CHANGES = json.loads(os.environ.get("NVML_STANDIN", "{}"))
STATE = Path(os.environ.get("NVML_STANDIN_STATE", "/nonexistent/state"))
AFTER = STATE.exists()
started = time.monotonic()


def value(index: int, name: str) -> Any:
    changes = {**CHANGES.get("*", {}), **CHANGES.get(str(index), {})}
    both = changes.get(name)
    return VALUES[name] if both is None else both["after" if AFTER else "before"] if isinstance(both, dict) else both


def nvmlInit() -> None:  # noqa: N802 - names of NVML
    if STATE.parent.exists():
        STATE.touch()


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    if value(index, "hangs"):
        if folder := os.environ.get("STANDIN_HUNG"):
            Path(folder, str(os.getpid())).touch()
        time.sleep(600)
    return index


def nvmlDeviceGetMaxClockInfo(index: int, _kind: int) -> int:  # noqa: N802
    return int(value(index, "memory_clock"))


def nvmlDeviceGetMemoryBusWidth(index: int) -> int:  # noqa: N802
    return int(value(index, "bus_width"))


def nvmlDeviceGetMaxPcieLinkGeneration(index: int) -> int:  # noqa: N802
    return int(value(index, "pcie_generation"))


def nvmlDeviceGetMaxPcieLinkWidth(index: int) -> int:  # noqa: N802
    return int(value(index, "pcie_width"))


def nvmlDeviceGetTotalEccErrors(index: int, kind: int, _since: int) -> int:  # noqa: N802
    return int(value(index, "ecc")[kind])


def nvmlDeviceGetRemappedRows(index: int) -> list[int]:  # noqa: N802
    return list(value(index, "rows"))


def nvmlDeviceGetPcieReplayCounter(index: int) -> int:  # noqa: N802
    return int(value(index, "pcie_replays"))


def nvmlDeviceGetComputeRunningProcesses(index: int) -> list[SimpleNamespace]:  # noqa: N802
    return [SimpleNamespace(pid=pid, gpuInstanceId=0xFFFFFFFF) for pid in value(index, "processes")]


def nvmlDeviceGetRetiredPagesPendingStatus(index: int) -> int:  # noqa: N802
    return int(value(index, "pages_pending"))


def nvmlDeviceGetNvLinkState(index: int, link: int) -> int:  # noqa: N802
    if link >= VALUES["links"]:
        raise ValueError("no such link")
    return int(link < value(index, "links"))


def nvmlDeviceGetNvLinkErrorCounter(index: int, link: int, counter: int) -> int:  # noqa: N802
    return int(value(index, "link_errors")) if link == counter == 0 else 0


def nvmlDeviceGetClockInfo(index: int, kind: int) -> int:  # noqa: N802
    if value(index, "ends") and time.monotonic() - started > value(index, "ends"):
        sys.exit("the sampler was ended")
    return 1980 if kind == 1 else 3201


def nvmlDeviceGetPowerUsage(index: int) -> int:  # noqa: N802
    return int(value(index, "power"))


def nvmlDeviceGetTemperature(_index: int, _sensor: int) -> int:  # noqa: N802
    return 61


def nvmlDeviceGetCurrentClocksEventReasons(index: int) -> int:  # noqa: N802
    return int(value(index, "reasons"))
