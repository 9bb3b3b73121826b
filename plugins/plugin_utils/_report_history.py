# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What earlier reports found: verdict and figures of each GPU, one file for each run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._report import FORMAT, Report, number

NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z(-\d+)?\.json\Z")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")
DIGITS = 5


@dataclass(frozen=True)
class Run:
    """One report: ``gpus`` maps a UUID to its verdict and its figures in the order of ``checks``."""

    time: str
    checks: tuple[str, ...]
    gpus: Mapping[str, tuple[str, tuple[float | None, ...]]]

    def as_text(self) -> str:
        """The content of its file."""
        gpus = {uuid: [verdict, *figures] for uuid, (verdict, figures) in self.gpus.items()}
        run = {"format": FORMAT, "time": self.time, "checks": self.checks, "gpus": gpus}
        return json.dumps(run, separators=(",", ":")) + "\n"


@dataclass(frozen=True)
class History:
    """Earlier runs, the oldest first, the file of each, and a sentence for each file that can't be read."""

    runs: tuple[Run, ...]
    paths: tuple[Path, ...]
    unreadable: tuple[str, ...]


def rate_checks(report: Report) -> tuple[str, ...]:
    """The checks whose figures say how fast a GPU is: those with a unit or a share of a peak."""
    names: dict[str, None] = {}
    for host in report.hosts:
        for gpu in host.gpus:
            for check in gpu.checks:
                if check.number is not None and (check.share is not None or "/s" in (check.unit or "")):
                    names.setdefault(check.name)
    return tuple(names)


def run_of(report: Report) -> Run:
    """What is kept of a report."""
    names = rate_checks(report)
    gpus = {}
    for host in report.hosts:
        for gpu in host.gpus:
            if gpu.uuid:
                found = {check.name: check.number for check in gpu.checks}
                gpus[gpu.uuid] = (gpu.state, tuple(_short(found.get(name)) for name in names))
    return Run(report.time, names, gpus)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def file_name(time: str) -> str:
    """The name of a run's file: its time, without what some file systems refuse."""
    return f"{time.replace(':', '')}.json"


def _moment(path: Path) -> tuple[str, int]:
    """What orders files by their names: the time, and the number of the report in that second."""
    time, _dash, number = path.stem.partition("Z")
    return time, int(number.removeprefix("-") or 1)


def read(folder: Path) -> History:
    """The earlier runs in a folder, which need not be there. Raises OSError where the folder can't be listed."""
    try:
        paths = sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name)), key=_moment)
    except FileNotFoundError:
        paths = []
    runs, good, unreadable = [], [], []
    for path in paths:
        if not path.is_file():
            unreadable.append(f"{path} is left out of the history, it is no file")
            continue
        try:
            runs.append(parse(json.loads(path.read_text(encoding="utf-8"))))
            good.append(path)
        except OSError as error:
            unreadable.append(f"{path} is left out of the history, it can't be read: {error.strerror}")
        except (ValueError, RecursionError):
            unreadable.append(f"{path} is left out of the history, it is no report's: remove it if you don't need it")
    return History(tuple(runs), tuple(good), tuple(unreadable))


def parse(value: Any) -> Run:
    """A run of what its file holds. Raises ValueError where that is something else."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError("no run of this format")
    time, checks, gpus = value.get("time"), value.get("checks"), value.get("gpus")
    if not isinstance(time, str) or not TIME.fullmatch(time):
        raise ValueError("no time")
    if not isinstance(checks, list) or not all(isinstance(name, str) for name in checks) or not isinstance(gpus, dict):
        raise ValueError("no checks or GPUs")
    return Run(time, tuple(checks), {uuid: _gpu(row, len(checks)) for uuid, row in gpus.items()})


def _gpu(row: Any, count: int) -> tuple[str, tuple[float | None, ...]]:
    if not isinstance(row, list) or len(row) != count + 1 or not isinstance(row[0], str):
        raise ValueError("no row of a GPU")
    return row[0], tuple(number(one) for one in row[1:])


def superfluous(paths: Iterable[Path], keep: int) -> list[Path]:
    """The oldest files, which are more than are to be kept."""
    ordered = list(paths)
    return ordered[: max(0, len(ordered) - keep)]
