# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPUs do now, as the collector wrote it into the usage file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FORMAT = 1

State = Literal["ok", "lost", "unknown"]


@dataclass(frozen=True)
class Process:
    """A process with a context on a GPU."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class UnitUsage:
    """One GPU or slice.

    `since` is the time at which it came into this state, `busy_at` the last time at which it was seen at work.
    """

    state: State = "unknown"
    reason: str | None = None
    since: float | None = None
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    processes: tuple[Process, ...] = ()
    busy_at: float | None = None


@dataclass(frozen=True)
class Usage:
    """All GPUs at one time; `reason` says why nothing is known."""

    time: float | None = None
    units: Mapping[str, UnitUsage] = field(default_factory=dict)
    reason: str | None = None

    def of(self, uuid: str) -> UnitUsage:
        """The usage of a unit, unknown where the collector says nothing of it."""
        return self.units.get(uuid) or UnitUsage(reason=self.reason)


def stale_after(interval: float) -> float:
    """For how many seconds what the collector wrote can be believed."""
    return 3 * interval + 10


def read_usage(path: Path | str, now: float) -> Usage:
    """What the collector wrote, everything unknown with a reason where that is missing, broken or too old."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            return Usage(reason=f"{path} has format {document['format']}, this version reads format {FORMAT}")
        written, interval = float(document["time"]), float(document["interval"])
        units = {str(uuid): _unit(unit) for uuid, unit in document["units"].items()}
    except FileNotFoundError:
        return Usage(reason=f"{path} is not there: does the collector run?")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Usage(reason=f"{path} can't be read: {type(error).__name__}: {error}")
    age = now - written
    if abs(age) > stale_after(interval):
        old = f"{age:.0f} seconds old" if age > 0 else "from the future"
        return Usage(time=written, reason=f"{path} is {old}: does the collector run?")
    return Usage(time=written, units=units)


def _unit(data: Mapping[str, Any]) -> UnitUsage:
    state = data["state"]
    if state not in ("ok", "lost", "unknown"):
        raise ValueError(f"state {state!r} of a unit")
    return UnitUsage(
        state=state,
        reason=data.get("reason"),
        since=data.get("since"),
        utilization_percent=data.get("utilization_percent"),
        memory_used_bytes=data.get("memory_used_bytes"),
        memory_total_bytes=data.get("memory_total_bytes"),
        processes=tuple(Process(p["pid"], p.get("memory_bytes")) for p in data.get("processes", ())),
        busy_at=data.get("busy_at"),
    )
