# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Levels standard and thorough: rounds of workers, what NVML says before and after, and the verdict."""

from __future__ import annotations

import pwd
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Protocol

from . import _gpu_peaks, _verify_judge, _verify_spread
from ._verify import Bench, Failure, Proof, Ran, Unit, best_runtime, parse
from ._verify_judge import OptionError, Thresholds
from ._verify_workers import Command, Outcome

LONGEST_DURATION = 86400.0
LONGEST_TIMEOUT = 86400
POLL_SECONDS = 5.0
SAMPLE_SECONDS = 1.0
LATE_SECONDS = 5.0
MIB = 1 << 20
SLOW_ADVICE = "see its clocks and their reasons with nvidia-smi -q -d PERFORMANCE,CLOCK, and who else uses it"


class Owners(Protocol):
    """Who runs a process of this host."""

    def describe(self, pid: int) -> str: ...


class HostOwners:
    def describe(self, pid: int) -> str:
        """``process 4711 of alice (python train.py)``; what isn't known is left out."""
        said = f"process {pid}"
        with suppress(OSError, KeyError):
            said += f" of {pwd.getpwuid(Path(f'/proc/{pid}').stat().st_uid).pw_name}"
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            shown = "".join(letter if letter.isprintable() else " " for letter in words)
            said += f" ({shown[:80]})" if shown else ""
        return said


@dataclass(frozen=True)
class Options:
    """How deep to go. Memory is in MiB, times are in seconds."""

    thorough: bool = False
    memory_margin: int = 512
    memory_limit: int | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    spread: float = 0.1
    fail_on: str = "failure"
    nccl: str = "auto"
    duration: float = 120.0
    in_use: str = "skip"
    wait: float = 600.0

    def __post_init__(self) -> None:
        if not 0 <= self.spread <= 1:
            raise OptionError(f"spread is {self.spread:g}: give a share between 0 and 1.")
        if not 0 < self.duration <= LONGEST_DURATION:
            raise OptionError(
                f"duration is {self.duration:g}: give a finite number of seconds above 0, at most {LONGEST_DURATION:g}."
            )
        if not 0 <= self.wait <= LONGEST_DURATION:
            raise OptionError(f"wait is {self.wait:g}: give seconds from 0 to {LONGEST_DURATION:g}.")
        if self.memory_margin < 0:
            raise OptionError(f"memory_margin is {self.memory_margin}: give MiB, 0 or more.")
        if self.memory_limit is not None and self.memory_limit < 1:
            raise OptionError(f"memory_limit is {self.memory_limit}: give MiB, 1 or more, or leave it out.")

    def refuse(self, gpus: Sequence[Mapping[str, Any]]) -> None:
        """Raise OptionError where a GPU is too small for what was asked for."""
        for gpu in gpus:
            memory = gpu.get("memory_bytes")
            if memory and self.memory_margin * MIB >= memory:
                raise OptionError(
                    f"memory_margin is {self.memory_margin} MiB, and GPU {gpu['uuid']} has {memory // MIB} MiB in all:"
                    " give less."
                )


def refuse_timeout(timeout: float) -> None:
    """Raise OptionError where a time limit is none."""
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise OptionError(
            f"timeout is {timeout:g}: give a finite number of seconds above 0, at most {LONGEST_TIMEOUT}."
        )


@dataclass(frozen=True)
class Nvml:
    """NVML, asked in processes of their own: by which Python, with which text and binding."""

    python: str
    payload: str
    binding: str | None

    def command(self, marker: str, work: str, timeout: float, environ: Mapping[str, str], **more: Any) -> Command:
        spec = {"marker": marker, "work": work, "timeout": timeout, "binding": self.binding, **more}
        environment = {**environ, "PYTHONDONTWRITEBYTECODE": "1"}
        program = f"{self.payload}\n\nrun({spec!r})\n"
        return Command([self.python, "-"], program.encode(), environment, companion=work == "watch")


@dataclass
class _Found:
    """What is known of a unit so far."""

    unit: Unit
    checks: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failure: Failure | None = None
    seconds: float = 0.0
    load: dict[str, Any] | None = None

    def fail(self, kind: str, message: str) -> None:
        if self.failure is None:
            self.failure = Failure(kind, message)

    def warn(self, sentence: str) -> None:
        self.warnings.append(f"{self.unit}: {sentence}.")

    def result(self) -> dict[str, Any]:
        more = {"checks": self.checks, "warnings": self.warnings, "seconds": round(self.seconds, 3), "load": self.load}
        return self.unit.failed(self.failure, **more) if self.failure else self.unit.result("passed", **more)


@dataclass(frozen=True)
class DeepProver:
    """Proves units in depth; ``gpus`` are those of module gpu_facts."""

    options: Options
    nvml: Nvml
    gpus: Sequence[Mapping[str, Any]]
    owners: Owners = field(default_factory=HostOwners)
    sleep: Callable[[float], None] = time.sleep

    def __call__(self, units: Sequence[Unit], bench: Bench) -> Proof:
        before, taken = self.free_units(units, bench)
        skipped = [unit.result("skipped", reason=reason) for unit, reason in taken]
        busy = {unit for unit, _reason in taken}
        found = {unit: _Found(unit) for unit in units if unit not in busy}
        ran = self.round(bench.run(list(found), work="device", **self.spec), found)
        if self.options.thorough:
            ran += self.load(self.fit(found), found, bench)
        ran += self.round(
            bench.run_beside(self.fit(found), (), 1, bench.request.timeout, work="host_copy", **self.spec)[0],
            found,
            "sequential",
        )
        checks, between = self.peers(self.fit(found), bench)
        after = self.snapshot(list(found), bench)
        for one in found.values():
            self.judge(one, before, after)
        checks += [*self.links(list(found.values())), *self.compare(list(found.values()))]
        if self.options.fail_on == "warning":
            for one in found.values():
                if one.warnings:
                    one.fail("warning", one.warnings[0])
        return Proof([*skipped, *(one.result() for one in found.values())], best_runtime(ran), checks, between)

    @property
    def spec(self) -> dict[str, Any]:
        return {"memory_margin": self.options.memory_margin, "memory_limit": self.options.memory_limit}

    @staticmethod
    def fit(found: Mapping[Unit, _Found]) -> list[Unit]:
        return [unit for unit, one in found.items() if one.failure is None]

    @staticmethod
    def round(ran: list[Ran], found: Mapping[Unit, _Found], mode: str = "parallel") -> list[Ran]:
        """Keep what a round of workers found."""
        for one in ran:
            kept = found[one.unit]
            kept.checks += one.checks(mode)
            kept.seconds += one.seconds
            kept.failure = kept.failure or one.failure
        return ran

    def snapshot(self, units: Sequence[Unit], bench: Bench) -> dict[int, Mapping[str, Any]]:
        """What NVML says now, by index; nothing where it doesn't answer."""
        indices = sorted({unit.index for unit in units if unit.index is not None})
        if self.nvml.binding is None or not indices:
            return {}
        timeout = bench.request.timeout
        command = self.nvml.command(bench.marker, "snapshot", timeout, bench.environ, indices=indices)
        (outcome,) = bench.runner([command], bench.marker, timeout, 1)
        return {int(index): reading for index, reading in (parse(outcome.marked) or {}).items() if reading}

    def free_units(
        self, units: Sequence[Unit], bench: Bench
    ) -> tuple[dict[int, Mapping[str, Any]], list[tuple[Unit, str]]]:
        """What NVML says at the begin, and the units that others use, with a sentence about who."""
        until = time.monotonic() + self.options.wait
        while True:
            before = self.snapshot(units, bench)
            taken = [] if self.options.in_use == "run" else self.taken(units, before)
            left = until - time.monotonic()
            if not taken or self.options.in_use == "skip" or left <= 0:
                return before, taken
            self.sleep(min(POLL_SECONDS, left))

    def taken(self, units: Sequence[Unit], before: Mapping[int, Mapping[str, Any]]) -> list[tuple[Unit, str]]:
        taken = []
        for unit in units:
            reading = before.get(-1 if unit.index is None else unit.index)
            instance = self.instance_of(unit)
            pids = [
                process["pid"]
                for process in (reading or {}).get("processes") or ()
                if instance is None or process["gpu_instance_id"] in (None, instance)
            ]
            if pids:
                who = ", ".join(self.owners.describe(pid) for pid in pids)
                taken.append((unit, f"{unit} is in use by {who}: it was not verified."))
        return taken

    def instance_of(self, unit: Unit) -> int | None:
        """NVML's number of the GPU instance that a MIG unit belongs to."""
        for gpu in self.gpus:
            for instance in (gpu["mig"] or {}).get("instances") or ():
                if instance["uuid"] == unit.uuid:
                    number: int | None = instance.get("gpu_instance_id")
                    return number
        return None

    def load(self, units: Sequence[Unit], found: Mapping[Unit, _Found], bench: Bench) -> list[Ran]:
        """Load all units at the same time, while NVML is asked each second."""
        if not units:
            return []
        timeout = bench.request.timeout + self.options.duration
        indices = sorted({unit.index for unit in units if unit.index is not None}) if self.nvml.binding else []
        watchers = [
            self.nvml.command(bench.marker, "watch", timeout, bench.environ, index=index, interval=SAMPLE_SECONDS)
            for index in indices
        ]
        ran, watched = bench.run_beside(
            units, watchers, 2 * len(units) + len(watchers), timeout,
            work="load", duration=self.options.duration, **self.spec,
        )  # fmt: skip
        curves = dict(zip(indices, watched))
        for one in self.round(ran, found):
            span = one.report.get("load")
            if span and span["end"]:
                self.keep_curve(found[one.unit], curves.get(-1 if one.unit.index is None else one.unit.index), span)
        return ran

    @staticmethod
    def keep_curve(one: _Found, watched: Outcome | None, span: Mapping[str, float]) -> None:
        answer = parse(watched.marked) if watched else None
        points = answer["points"] if answer else []
        one.load = _verify_judge.curve(points, span["start"], span["end"])
        if one.load is None or points[-1]["time"] < span["end"] - LATE_SECONDS - 2 * answer["interval"]:  # type: ignore[index]
            said = watched.tail.strip().splitlines()[-1:] if watched else []
            one.warn(f"NVML gave no samples until the end of the load{''.join(f' ({word})' for word in said)}")
        if one.load:
            for sentence in _verify_judge.curve_warnings(one.load):
                one.warn(sentence)

    def peers(self, units: Sequence[Unit], bench: Bench) -> tuple[list[dict[str, Any]], Failure | None]:
        """What whole GPUs do with each other."""
        whole = [unit for unit in units if unit.mig_profile is None and unit.uuid and unit.pci_bus_id]
        if len(whole) < 2:
            return [], None
        together = _Together(",".join(str(unit.uuid) for unit in whole), None, whole[0].pci_bus_id, whole[0].name)
        gpus = [{"uuid": unit.uuid, "pci_bus_id": unit.pci_bus_id} for unit in whole]
        more = {"gpus": gpus, "nvlink": self.linked(whole), "nccl": self.options.nccl, **self.spec}
        ran = bench.run([together], work="peers", **more)
        default = {"gpus": [unit.uuid for unit in whole]}
        return [{**default, **check} for check in ran[0].checks("sequential")], ran[0].failure

    def linked(self, units: Sequence[Unit]) -> list[list[int]]:
        """Ordered pairs of units between which NVLink is up, directly or by switches."""
        links = {gpu["uuid"]: (gpu.get("nvlink") or {}).get("peers") or [] for gpu in self.gpus}
        switched = {uuid for uuid, peers in links.items() if any(peer["type"] == "switch" for peer in peers)}
        return [
            [one, other]
            for one, first in enumerate(units)
            for other, second in enumerate(units)
            if one != other
            and (
                {first.uuid, second.uuid} <= switched
                or any(peer["pci_bus_id"] == second.pci_bus_id for peer in links.get(first.uuid, ()))
            )
        ]

    def judge(
        self, one: _Found, before: Mapping[int, Mapping[str, Any]], after: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Hold a unit's figures against its peaks, and its counters against those before."""
        index = -1 if one.unit.index is None else one.unit.index
        # A MIG instance is a share of a GPU that no source tells the peaks of.
        peaks = {} if one.unit.mig_profile else _gpu_peaks.peaks(one.unit.name, before.get(index))
        judged = [_verify_judge.against_peak(check, peaks, self.options.thresholds) for check in one.checks]
        one.checks = [judgement.check for judgement in judged]
        for judgement in judged:
            if judgement.failure:
                advice = (
                    "see its clocks and their reasons with nvidia-smi -q -d PERFORMANCE,CLOCK, and who else uses it"
                )
                one.fail("slow", f"{one.unit} isn't fit, {judgement.failure}: {advice}.")
            if judgement.warning:
                one.warn(judgement.warning)
        first, last = before.get(index), after.get(index)
        if not first or not last:
            return
        failing, warning = _verify_judge.counter_changes(first["counters"], last["counters"])
        if failing or warning or any(value is not None for value in last["counters"].values()):
            one.checks.append(_counters_check(failing, warning))
        if failing:
            advice = "don't let it compute until the cause is found; look for Xid and ECC errors in the kernel log"
            one.fail("memory_errors", f"{one.unit} had {', '.join(failing)} during the work: {advice}.")
        if warning:
            one.warn(f"it had {', '.join(warning)} during the work")

    def compare(self, found: Sequence[_Found]) -> list[dict[str, Any]]:
        """Name the units that are slower than their likes."""
        results = [one.result() for one in found]
        odd = _verify_spread.odd_ones(results, self.options.spread)
        for one in odd:
            next(each for each in found if each.unit.uuid == one.uuid).warn(one.sentence())
        if len(found) < 2:
            return []
        check = _check("spread", "share of the median", f">= {1 - self.options.spread:g}")
        if odd:
            check["passed"], check["figure"] = False, round(min(one.share for one in odd), 4)
            check["message"] = "; ".join(f"{one.uuid}: {one.sentence()}" for one in odd)
        return [{**check, "gpus": list(dict.fromkeys(one.uuid for one in odd)) or [one.unit.uuid for one in found]}]

    def links(self, found: Sequence[_Found]) -> list[dict[str, Any]]:
        """How many links of NVLink are up, and who has fewer than its likes."""
        nvlinks = {gpu["uuid"]: gpu["nvlink"] for gpu in self.gpus if gpu.get("nvlink")}
        known = [(one, nvlinks[one.unit.uuid]) for one in found if one.unit.uuid in nvlinks]
        checks = []
        for one, nvlink in known:
            most = max(other["active_links"] for each, other in known if each.unit.name == one.unit.name)
            active = nvlink["active_links"]
            check = _check("nvlink", "active links", most)
            check["figure"], check["passed"] = active, active == most
            check["message"] = f"{active} of {nvlink['links']} links are up"
            if active < most:
                one.warn(f"{active} of its links of NVLink are up, and {most} of another {one.unit.name}")
            checks.append({**check, "gpus": [one.unit.uuid]})
        return checks


class _Together(Unit):
    """Several GPUs that one process sees."""

    def __str__(self) -> str:
        return f"GPU group {str(self.uuid).replace(',', ', ')}"


def _check(name: str, unit: str, expected: object) -> dict[str, Any]:
    """A check that no worker did, passed."""
    return {
        "name": name,
        "passed": True,
        "figure": None,
        "unit": unit,
        "expected": expected,
        "seconds": 0.0,
        "message": None,
        "share": None,
        "peak": None,
        "mode": "parallel",
    }


def _counters_check(failing: Sequence[str], warning: Sequence[str]) -> dict[str, Any]:
    check = _check("error_counters", "counters that rose", 0)
    check["passed"], check["figure"] = not failing, len(failing) + len(warning)
    return {**check, "message": ", ".join([*failing, *warning]) or None}


def payload_text(*texts: str) -> str:
    """One text of several modules, each of which uses the names of those before it."""
    first, *others = texts
    return "\n".join([first, *("\n".join(_own_lines(text)) for text in others)])


def _own_lines(text: str) -> list[str]:
    """Without the imports that are true in the whole text already; such an import takes one line."""
    return [line for line in text.splitlines() if not line.startswith(("from __future__ ", "from ._verify_payload"))]
