# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's report: what facts and verifications of many hosts come to, whatever is missing or odd in them.

Hosts are not trusted: texts are cleaned and cut here, and what has another type than expected is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.cudahub.gpu.plugins.module_utils._verify_spread import odd_ones

from ._table import LONGEST_LIST, clean, driver_word, is_gpu_facts, is_verification, mappings, natural

FORMAT = 1
LONGEST_TEXT = 2000
# Hosts and GPUs, the worst first.
TROUBLE = ("unreachable", "failed", "warning", "unknown", "skipped", "simulated", "none", "passed")
WORDS = {
    "passed": "verified",
    "failed": "failed",
    "warning": "with a warning",
    "unknown": "not verified",
    "skipped": "skipped",
    "simulated": "simulated",
}
SPREAD = 0.1
SERIES = ("sm_clock_mhz", "memory_clock_mhz", "power_watts", "temperature_celsius")
UNKNOWN_GPU = "unknown GPU"
NOTHING_KNOWN = "Nothing is known about its GPUs."


@dataclass(frozen=True)
class Check:
    """One check of a GPU, or of several GPUs of a host together."""

    name: str
    passed: bool | None
    figure: Any = None
    unit: str | None = None
    expected: str | None = None
    seconds: float | None = None
    share: float | None = None
    peak: float | None = None
    mode: str | None = None
    message: str | None = None
    gpus: tuple[str, ...] = ()

    @property
    def number(self) -> float | None:
        """The figure where it is a measured number."""
        return number(self.figure)


@dataclass(frozen=True)
class Samples:
    """What NVML told while a GPU worked."""

    seconds: tuple[float, ...]
    series: Mapping[str, tuple[float | None, ...]]
    throttled: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Gpu:
    """One GPU or MIG instance."""

    label: str
    uuid: str | None
    pci_bus_id: str | None
    name: str
    mig_profile: str | None
    verdict: str
    kind: str | None
    message: str | None
    seconds: float | None
    memory_bytes: int | None
    numa_node: int | None
    warnings: tuple[str, ...]
    checks: tuple[Check, ...]
    samples: Samples | None

    @property
    def state(self) -> str:
        """The verdict, with a pass that has something to be looked at apart."""
        return "warning" if self.verdict == "passed" and self.warnings else self.verdict


@dataclass(frozen=True)
class Topology:
    """How the GPUs of a host reach each other: ``links[i][j]`` says it in a word."""

    labels: tuple[str, ...]
    numa_nodes: tuple[int | None, ...]
    links: tuple[tuple[str, ...], ...]
    switched: bool


@dataclass(frozen=True)
class Host:
    """One host."""

    name: str
    state: str
    message: str | None
    driver: str | None
    level: str | None
    seconds: float | None
    gpus: tuple[Gpu, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]
    topology: Topology | None


@dataclass(frozen=True)
class Report:
    """A fleet at one moment. ``time`` is in UTC, as ``2026-11-29T17:00:00Z``."""

    title: str
    time: str
    hosts: tuple[Host, ...]
    gpus: Counter[str] = field(init=False)
    states: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpus", Counter(gpu.state for host in self.hosts for gpu in host.gpus))
        object.__setattr__(self, "states", Counter(host.state for host in self.hosts))

    @property
    def failed(self) -> bool:
        """Whether a host failed or could not be asked."""
        return bool(self.states["failed"] or self.states["unreachable"])

    @property
    def summary(self) -> str:
        """One sentence."""
        total = sum(self.gpus.values())
        text = plural(len(self.hosts), "host")
        words = {"unreachable": "unreachable", "failed": "failed", "none": "without GPU"}
        states = [f"{self.states[state]} {word}" for state, word in words.items() if self.states[state]]
        text += f" ({', '.join(states)})" if states else ""
        text += f", {plural(total, 'GPU')}"
        order = ("passed", "failed", "warning", "unknown", "skipped", "simulated")
        counts = [f"{self.gpus[state]} {WORDS[state]}" for state in order if self.gpus[state]]
        return f"{text}: {', '.join(counts)}." if counts else f"{text}."

    def problems(self) -> list[tuple[str, str]]:
        """State and sentence of everything that is wrong, the worst first."""
        found = [
            (state, f"{host.name}: {text}")
            for host in self.hosts
            for state, text in _problems(host)
            if TROUBLE.index(state) <= TROUBLE.index("warning")
        ]
        return sorted(found, key=lambda one: TROUBLE.index(one[0]))

    def as_summary(self) -> dict[str, Any]:
        """The summary for programs."""
        return {
            "text": self.summary,
            "failed": self.failed,
            "hosts": dict(sorted(self.states.items())),
            "gpus": dict(sorted(self.gpus.items())),
        }

    def as_dict(self) -> dict[str, Any]:
        """What is written as JSON."""
        return {
            "format": FORMAT,
            "title": self.title,
            "time": self.time,
            "summary": self.as_summary(),
            "problems": [{"state": state, "text": text} for state, text in self.problems()],
            "hosts": [asdict(host) for host in self.hosts],
        }


def _problems(host: Host) -> Iterator[tuple[str, str]]:
    said = host.message or ""
    if host.message and host.state in ("unreachable", "failed"):
        yield host.state, host.message
    for gpu in host.gpus:
        if gpu.verdict == "failed" and gpu.message and gpu.message not in said:
            yield "failed", gpu.message
        for warning in gpu.warnings:
            yield "warning", warning
    for check in host.checks:
        if check.passed is False and not (check.message and check.message in said):
            yield "failed", f"{check.name}: {check.message or 'failed'}"
    for warning in host.warnings:
        yield "warning", warning


def plural(count: int, noun: str) -> str:
    """A count of something."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def text(value: object) -> str | None:
    """A text of a host on one line, without control characters, cut where it gets long; None where there is none."""
    if value is None or isinstance(value, (Mapping, list, tuple)):
        return None
    cleaned = clean(value)
    return (cleaned if len(cleaned) <= LONGEST_TEXT else f"{cleaned[: LONGEST_TEXT - 1]}…") or None


def number(value: object) -> float | None:
    """A finite number, no truth value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        plain = float(value)
    except OverflowError:
        return None
    return plain if math.isfinite(plain) else None


def integer(value: object) -> int | None:
    """A whole number, no truth value."""
    found = number(value)
    return None if found is None or found != int(found) else int(found)


def texts(value: object) -> tuple[str, ...]:
    """The texts in what should be a list of them, each once."""
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(dict.fromkeys(filter(None, map(text, value[:LONGEST_LIST]))))


def figure(value: object) -> Any:
    """A figure: a number or a truth value as it is, all else as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        found = number(value)
        return text(value) if found is None else int(value) if isinstance(value, int) else found
    if isinstance(value, (list, tuple)):
        return text(", ".join(str(one) for one in value[:100]))
    return text(value)


def check_of(one: Mapping[str, Any]) -> Check:
    """A check as ``cuda_verify`` gives it."""
    passed = one.get("passed")
    return Check(
        name=text(one.get("name")) or "unnamed",
        passed=passed if isinstance(passed, bool) else None,
        figure=figure(one.get("figure")),
        unit=text(one.get("unit")),
        expected=None if one.get("expected") is None else text(figure(one.get("expected"))),
        seconds=number(one.get("seconds")),
        share=number(one.get("share")),
        peak=number(one.get("peak")),
        mode=text(one.get("mode")),
        message=text(one.get("message")),
        gpus=texts(one.get("gpus")),
    )


def samples_of(load: object) -> Samples | None:
    """The curves under load, None where there are none."""
    if not isinstance(load, Mapping):
        return None
    points = [
        (seconds, point)
        for point in mappings(load.get("samples"))
        if (seconds := number(point.get("seconds"))) is not None
    ]
    if not points:
        return None
    series = {}
    for name in SERIES:
        numbers = tuple(number(point.get(name)) for _seconds, point in points)
        if any(one is not None for one in numbers):
            series[name] = numbers
    spans: dict[str, tuple[float, float]] = {}
    for seconds, point in points:
        for reason in texts(point.get("reasons")):
            spans[reason] = (spans.get(reason, (seconds,))[0], seconds)
    throttled = tuple((reason, first, last) for reason, (first, last) in spans.items())
    return Samples(tuple(seconds for seconds, _point in points), series, throttled)


def _failure(value: object) -> tuple[str | None, str | None]:
    if not isinstance(value, Mapping):
        return None, None
    return text(value.get("kind")), text(value.get("message"))


def _gpu(found: Mapping[str, Any], facts: Mapping[str, Any]) -> Gpu:
    kind, message = _failure(found.get("failure"))
    verdict = str(found.get("verdict") or "unknown")
    index = integer(found.get("index"))
    problems = mappings(facts.get("problems"))
    profile = text(found.get("mig_profile"))
    name = text(found.get("name") or facts.get("name") or facts.get("pci_device_id"))
    memory = None if profile else integer(facts.get("memory_bytes"))
    return Gpu(
        label="?" if index is None else str(index),
        uuid=text(found.get("uuid")),
        pci_bus_id=text(found.get("pci_bus_id")),
        name=name or UNKNOWN_GPU,
        mig_profile=profile,
        verdict=verdict if verdict in WORDS else "unknown",
        kind=kind,
        message=message or text(found.get("reason")),
        seconds=number(found.get("seconds")),
        memory_bytes=memory,
        numa_node=integer(facts.get("numa_node")),
        warnings=texts([*texts(found.get("warnings")), *(one.get("message") for one in problems)]),
        checks=tuple(map(check_of, mappings(found.get("checks")))),
        samples=samples_of(found.get("load")),
    )


def _gpus(facts: Mapping[str, Any] | None, verification: Mapping[str, Any] | None) -> Iterator[Gpu]:
    known = mappings((facts or {}).get("gpus"))
    by_place = {str(one.get("pci_bus_id")): one for one in known}
    by_uuid = {str(one.get("uuid")): one for one in known}
    seen = set()
    for found in mappings((verification or {}).get("gpus")):
        own = by_place.get(str(found.get("pci_bus_id"))) or by_uuid.get(str(found.get("uuid"))) or {}
        seen.add(str(own.get("pci_bus_id")))
        yield _gpu(found, own)
    simulated = bool((facts or {}).get("simulated"))
    for one in known:
        if str(one.get("pci_bus_id")) not in seen:
            names = {name: one.get(name) for name in ("uuid", "index", "pci_bus_id", "name")}
            yield _gpu({**names, "verdict": "simulated" if simulated else "unknown"}, one)


def topology_of(facts: Mapping[str, Any] | None) -> Topology | None:
    """How the GPUs in the facts of a host are connected; None for fewer than two."""
    gpus = mappings((facts or {}).get("gpus"))[:64]
    if len(gpus) < 2:
        return None
    peers = [_peers(gpu) for gpu in gpus]
    places = [str(gpu.get("pci_bus_id")) for gpu in gpus]
    nodes = [integer(gpu.get("numa_node")) for gpu in gpus]

    def word(one: int, other: int) -> str:
        if one == other:
            return ""
        direct = max(peers[one].get(places[other], 0), peers[other].get(places[one], 0))
        switched = min(peers[one].get("switch", 0), peers[other].get("switch", 0))
        if direct or switched:
            return f"NV{direct or switched}"
        if nodes[one] is None or nodes[other] is None:
            return "PCIe"
        return "PCIe, same NUMA node" if nodes[one] == nodes[other] else "PCIe, other NUMA node"

    return Topology(
        labels=tuple(str(gpu.get("index") if gpu.get("index") is not None else "?")[:8] for gpu in gpus),
        numa_nodes=tuple(nodes),
        links=tuple(tuple(word(one, other) for other in range(len(gpus))) for one in range(len(gpus))),
        switched=any("switch" in one for one in peers),
    )


def _peers(gpu: Mapping[str, Any]) -> dict[str, int]:
    nvlink = gpu.get("nvlink")
    found: dict[str, int] = {}
    for peer in mappings(nvlink.get("peers")) if isinstance(nvlink, Mapping) else []:
        key = "switch" if peer.get("type") == "switch" else str(peer.get("pci_bus_id"))
        found[key] = found.get(key, 0) + (integer(peer.get("links")) or 0)
    return found


def host_of(name: str, result: Mapping[str, Any]) -> Host:
    """A host of what is known: ``facts``, ``verification``, and why it ``failed`` or is ``unreachable``."""
    failed, unreachable = text(result.get("failed")), text(result.get("unreachable"))
    facts = result["facts"] if is_gpu_facts(result.get("facts")) else None
    verification = result["verification"] if is_verification(result.get("verification")) else None
    if unreachable:
        verification = None  # of an earlier run
    kind, message = _failure((verification or {}).get("failure"))
    gpus = tuple(_gpus(facts, verification))
    checks = tuple(map(check_of, mappings((verification or {}).get("checks"))))
    warnings = texts(
        [
            *texts((verification or {}).get("warnings")),
            *(one.get("message") for one in mappings((facts or {}).get("problems"))),
        ]
    )
    if unreachable:
        state, message = "unreachable", unreachable
    elif failed or (message and kind != "no_gpu") or any(check.passed is False for check in checks):
        state, message = "failed", message or failed
    elif gpus:
        state = min((gpu.state for gpu in gpus), key=TROUBLE.index)
        state = "warning" if state != "failed" and warnings else state
    elif facts is None and verification is None:
        state, message = "unreachable", NOTHING_KNOWN
    else:
        state = "none"
    driver = (facts or {}).get("driver") or {}
    return Host(
        name=text(name) or "?",
        state=state,
        message=message,
        driver=text(driver_word(driver)) if driver else None,
        level=text((verification or {}).get("level")),
        seconds=number((verification or {}).get("seconds")),
        gpus=gpus,
        checks=checks,
        warnings=warnings,
        topology=topology_of(facts),
    )


def compared(hosts: Sequence[Host], spread: float) -> list[Host]:
    """The hosts, with a warning for each figure that is far below the median of that model's GPUs on several hosts."""
    entries = [
        {
            "host": str(place),
            "uuid": str(slot),
            "name": gpu.name,
            "mig_profile": gpu.mig_profile,
            "checks": [{"name": one.name, "unit": one.unit, "figure": one.number} for one in gpu.checks],
        }
        for place, host in enumerate(hosts)
        for slot, gpu in enumerate(host.gpus)
        if gpu.name != UNKNOWN_GPU
    ]
    found: dict[tuple[int, int], list[str]] = {}
    for odd in odd_ones(entries, spread):
        place, slot = int(odd.host or 0), int(odd.uuid)
        gpu = hosts[place].gpus[slot]
        # Its own host may have said the same.
        if odd.hosts > 1 and not any(
            f"{odd.check} reaches" in one and "below the median" in one for one in gpu.warnings
        ):
            sentence = f"{odd.sentence()} on {odd.hosts} hosts"
            found.setdefault((place, slot), []).append(f"GPU {gpu.uuid} ({gpu.pci_bus_id}): {sentence}")
    told = list(hosts)
    for (place, slot), warnings in found.items():
        gpus = list(told[place].gpus)
        gpus[slot] = replace(gpus[slot], warnings=(*gpus[slot].warnings, *warnings))
        state = min(told[place].state, gpus[slot].state, key=TROUBLE.index)
        told[place] = replace(told[place], gpus=tuple(gpus), state=state)
    return told


def report_of(title: str, time: str, results: Mapping[str, Mapping[str, Any]], spread: float = SPREAD) -> Report:
    """The report of results by host, hosts in trouble first."""
    hosts = compared([host_of(str(name), result) for name, result in results.items()], spread)
    ordered = sorted(hosts, key=lambda host: (TROUBLE.index(host.state), natural(host.name)))
    return Report(text(title) or "GPUs", time, tuple(ordered))


def lines(report: Report, limit: int = 200) -> Iterable[str]:
    """The report as lines of text: the summary, and what is wrong."""
    yield report.summary
    problems = report.problems()
    yield from (sentence for dummy, sentence in problems[:limit])
    if len(problems) > limit:
        yield f"… and {len(problems) - limit} more"
