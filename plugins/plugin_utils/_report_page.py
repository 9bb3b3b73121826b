# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's report as one HTML file that needs no network: the parts in folder ``report``, with the data embedded.

Tables of the data name their columns, and each text is there once; its script builds the tables as they come into view.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from ._report import TROUBLE, Check, Gpu, Host, Report, Samples, Topology, plural
from ._report_history import Run, rate_checks

PARTS = Path(__file__).with_name("report")
PROBLEMS = 50
# Moments under load in one page, and the fewest of each GPU; beyond, curves are made of fewer moments.
MOMENTS, FEWEST_MOMENTS, MOST_MOMENTS = 240_000, 30, 240
# Figures of earlier runs in one page; beyond, it shows fewer runs.
TREND_FIGURES = 600_000
HOST_COLUMNS = ("name", "state", "message", "driver", "level", "seconds", "warnings", "checks", "topology")
GPU_COLUMNS = (
    *("host", "label", "uuid", "pci", "name", "profile", "verdict", "state", "kind", "message", "seconds"),
    *("memory", "numa", "warnings", "checks", "samples"),
)
CHECK_COLUMNS = ("what", "passed", "figure", "seconds", "share", "message", "gpus")


@dataclass
class _Pool:
    """Values that are embedded once and named by their number."""

    numbers: dict[Any, int] = field(default_factory=dict)

    def __call__(self, value: Any) -> int | None:
        return None if value is None else self.numbers.setdefault(value, len(self.numbers))


@dataclass
class _Data:
    strings: _Pool = field(default_factory=_Pool)
    checks: _Pool = field(default_factory=_Pool)
    topologies: _Pool = field(default_factory=_Pool)
    moments: int = MOST_MOMENTS

    def of(self, report: Report, runs: Sequence[Run]) -> dict[str, Any]:
        sampled = sum(gpu.samples is not None for host in report.hosts for gpu in host.gpus)
        self.moments = max(FEWEST_MOMENTS, min(MOST_MOMENTS, MOMENTS // max(1, sampled)))
        hosts = [self._host(host) for host in report.hosts]
        gpus = [self._gpu(number, gpu) for number, host in enumerate(report.hosts) for gpu in host.gpus]
        trend = self._trend(report, runs)
        kinds = [
            [self.strings(name), self.strings(unit), self.strings(expected), _rounded(peak), self.strings(mode)]
            for name, unit, expected, peak, mode in self.checks.numbers
        ]
        return {
            "states": TROUBLE,
            "hosts": {"columns": HOST_COLUMNS, "rows": hosts},
            "gpus": {"columns": GPU_COLUMNS, "rows": gpus},
            "check": CHECK_COLUMNS,
            "kinds": {"columns": ("name", "unit", "expected", "peak", "mode"), "rows": kinds},
            "rates": [self.strings(name) for name in rate_checks(report)],
            "topologies": [_topology(one) for one in self.topologies.numbers],
            "trend": trend,
            "strings": list(self.strings.numbers),
        }

    def _host(self, host: Host) -> list[Any]:
        return [
            self.strings(host.name),
            TROUBLE.index(host.state),
            self.strings(host.message),
            self.strings(host.driver),
            self.strings(host.level),
            _rounded(host.seconds),
            [self.strings(warning) for warning in host.warnings],
            [self._check(check) for check in host.checks],
            self.topologies(host.topology),
        ]

    def _gpu(self, host: int, gpu: Gpu) -> list[Any]:
        return [
            host,
            self.strings(gpu.label),
            gpu.uuid,
            self.strings(gpu.pci_bus_id),
            self.strings(gpu.name),
            self.strings(gpu.mig_profile),
            TROUBLE.index(gpu.verdict),
            TROUBLE.index(gpu.state),
            self.strings(gpu.kind),
            self.strings(gpu.message),
            _rounded(gpu.seconds),
            gpu.memory_bytes,
            gpu.numa_node,
            [self.strings(warning) for warning in gpu.warnings],
            [self._check(check) for check in gpu.checks],
            None if gpu.samples is None else self._samples(gpu.samples),
        ]

    def _check(self, check: Check) -> list[Any]:
        what = self.checks((check.name, check.unit, check.expected, check.peak, check.mode))
        figure = _rounded(check.number)
        row: list[Any] = [
            what,
            None if check.passed is None else int(check.passed),
            [self.strings(str(check.figure))] if figure is None and check.figure is not None else figure,
            _rounded(check.seconds, 3),
            _rounded(check.share, 4),
            self.strings(check.message),
            [self.strings(name) for name in check.gpus] or None,
        ]
        while row[-1] is None:
            row.pop()
        return row

    def _samples(self, samples: Samples) -> dict[str, Any]:
        step = -(-len(samples.seconds) // self.moments)
        return {
            "seconds": [_rounded(round(one, 1)) for one in samples.seconds[::step]],
            "series": {name: _series(values[::step]) for name, values in samples.series.items()},
            "throttled": [
                [self.strings(name), round(first, 1), round(last, 1)] for name, first, last in samples.throttled
            ],
        }

    def _trend(self, report: Report, runs: Sequence[Run]) -> dict[str, Any]:
        names = list(dict.fromkeys(name for run in runs for name in run.checks))
        uuids = [gpu.uuid for host in report.hosts for gpu in host.gpus]
        shown = runs[-max(2, TREND_FIGURES // max(1, len(uuids) * (len(names) + 1))) :]
        return {
            "total": len(runs),
            "times": [run.time for run in shown],
            "checks": [self.strings(name) for name in names],
            "runs": [_run(run, names, uuids) for run in shown],
        }


def _series(values: Sequence[float | None]) -> list[int | None]:
    """Whole numbers; one alone stands for as many as there are moments."""
    found = [None if one is None else round(one) for one in values]
    return found[:1] if len(set(found)) == 1 else found


def _run(run: Run, names: Sequence[str], uuids: Sequence[str | None]) -> list[Any]:
    places = [run.checks.index(name) if name in run.checks else None for name in names]
    rows: list[Any] = []
    for uuid in uuids:
        state, figures = run.gpus.get(uuid or "", (None, ()))
        if state is None:
            rows.append(0)
        else:
            known = TROUBLE.index(state) if state in TROUBLE else TROUBLE.index("unknown")
            rows.append([known, *(None if place is None else figures[place] for place in places)])
    return rows


def _topology(topology: Topology) -> dict[str, Any]:
    words = list(dict.fromkeys(word for row in topology.links for word in row))
    return {
        "labels": topology.labels,
        "numa": topology.numa_nodes,
        "switched": topology.switched,
        "words": words,
        "links": [[words.index(word) for word in row] for row in topology.links],
    }


def _rounded(value: float | None, digits: int = 5) -> float | int | None:
    if value is None:
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def embedded(value: Any) -> str:
    """A value as JSON that stands inside of HTML: nothing in it ends a script or starts a tag."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _problems(report: Report) -> str:
    found = report.problems()
    if not found:
        return "<p>Nothing is wrong.</p>" if report.hosts else "<p>There is no host in this report.</p>"
    items = "".join(
        f'<li class="{escape(state)}"><span class="word">{escape(state)}</span> <bdi>{escape(text)}</bdi></li>'
        for state, text in found[:PROBLEMS]
    )
    rest = len(found) - PROBLEMS
    more = (
        f"<p>And {plural(rest, 'more problem')}: see the table, and report.json beside this file.</p>"
        if rest > 0
        else ""
    )
    # What is scrolled is reached by the keyboard, too.
    return f'<ul tabindex="0" aria-labelledby="problems-title">{items}</ul>{more}'


def page(report: Report, runs: Sequence[Run]) -> str:
    """The HTML file of a report, with the trend of ``runs``, the oldest first and this one the last."""
    style = _part("uPlot.min.css") + "\n" + _part("page.css")
    script = "/*!\n" + _part("uPlot.LICENSE") + "\n*/\n" + _part("uPlot.iife.min.js") + "\n" + _part("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    when = report.time.replace("T", " ").replace("Z", " UTC")
    levels = sorted({host.level for host in report.hosts if host.level})
    values: Mapping[str, Callable[[], str]] = {
        "policy": lambda: policy,
        "title": lambda: escape(report.title),
        "style": lambda: style,
        "time": lambda: escape(report.time),
        "when": lambda: escape(when + (f", level {', '.join(levels)}" if levels else "")),
        "verdict": lambda: "failed" if report.failed else "passed",
        "summary": lambda: escape(report.summary),
        "problems": lambda: _problems(report),
        "data": lambda: embedded(_Data().of(report, runs)),
        "script": lambda: script,
    }
    # In one pass: what is put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]](), _part("page.html"))
