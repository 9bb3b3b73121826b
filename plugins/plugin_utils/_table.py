# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's GPU table: what a run told about each host, laid out for a terminal.

Nothing here knows Ansible: :class:`Fleet` is fed with facts and verifications as plain
dictionaries, and :func:`render` returns lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

Level = Literal["plain", "good", "warning", "error"]
Measure = Callable[[str], int]

HEADERS = ("HOST", "GPU", "NAME", "MEMORY", "DRIVER", "MIG", "HEALTH", "VERIFIED")
UNKNOWN = "-"
LONGEST_LIST = 10_000
MOST_BYTES = 2**63
GAP = 2
# The narrowest each column may become before rows are stacked instead.
MINIMUM_WIDTHS = (8, 3, 12, 8, 10, 3, 8, 9)
# Columns that may be narrowed (their cells are wrapped): host, name, driver, MIG, health, verified.
NARROWED = (0, 2, 4, 5, 6, 7)
SEVERITIES: Mapping[Level, int] = {"plain": 0, "good": 1, "warning": 2, "error": 3}
# The fact that role nvidia_driver sets.
REBOOT_FACT = "nvidia_driver_reboot_needed"
DRIVER_WORDS = {"absent": "none", "not_loaded": "not loaded", "mismatch": "mismatch", "unusable": "unusable"}


@dataclass(frozen=True)
class Line:
    """One line of output and how it is to be coloured."""

    text: str
    level: Level = "plain"


@dataclass(frozen=True)
class Row:
    """One row of the table: a GPU, a MIG instance, or a host of which no GPU is known."""

    cells: tuple[str, ...]
    level: Level = "plain"


@dataclass(frozen=True)
class Verdict:
    """What a verification said about one GPU or MIG instance."""

    verdict: str
    kind: str | None = None
    message: str | None = None

    @property
    def word(self) -> str:
        """The cell in column VERIFIED."""
        if self.verdict == "passed":
            return "yes"
        if self.verdict == "failed":
            return f"no: {self.kind}" if self.kind else "no"
        return self.verdict


@dataclass
class Host:
    """Everything that a run told about one host."""

    name: str
    facts: Mapping[str, Any] | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    verified: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failure: Verdict | None = None
    unreachable: str | None = None
    failed: str | None = None
    reboot_needed: bool = False

    @property
    def simulated(self) -> bool:
        """Whether the host's GPUs are simulated ones."""
        return bool(self.facts and self.facts.get("simulated"))

    @property
    def state(self) -> tuple[str, Level]:
        """How the run ended for the host, for a host of which no GPU can be shown."""
        if self.unreachable is not None:
            return "unreachable", "error"
        return ("failed", "error") if self.failed is not None else (UNKNOWN, "plain")

    @property
    def gpus(self) -> list[Mapping[str, Any]]:
        """The GPUs in the host's facts, or those that were verified where nobody asked for facts."""
        return list(self.verified.values()) if self.facts is None else mappings(self.facts.get("gpus"))

    def verdict(self, unit: Mapping[str, Any]) -> Verdict | None:
        """The verdict about a GPU or MIG instance; never a pass for a simulated one."""
        if self.simulated:
            return Verdict("simulated")
        instances = _instances(unit)
        if instances:
            return worst(map(self.verdict, instances))
        return self.verdicts.get(str(unit.get("uuid") or unit.get("pci_bus_id"))) or self.failure


class Fleet:
    """Collects what a run tells about its hosts."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}

    def __iter__(self) -> Iterator[Host]:
        return iter(sorted(self._hosts.values(), key=lambda host: natural(host.name)))

    def host(self, name: str) -> Host:
        """The record of a host, made when it is first named."""
        return self._hosts.setdefault(name, Host(name))

    @property
    def known(self) -> bool:
        """Whether the run told anything about GPUs."""
        return any(host.facts is not None or host.verdicts or host.failure for host in self)

    def add_result(self, name: str, result: Mapping[str, Any]) -> None:
        """Take a task's result: the facts of ``gpu_facts`` and the verification of ``cuda_verify``, if in it."""
        facts = result.get("ansible_facts")
        gpu = facts.get("gpu") if isinstance(facts, Mapping) else None
        if is_gpu_facts(gpu):
            self.host(name).facts = gpu
        if isinstance(facts, Mapping) and REBOOT_FACT in facts:
            self.host(name).reboot_needed = facts[REBOOT_FACT] is True
        verification = result.get("verification")
        if is_verification(verification):
            self._add_verification(self.host(name), verification)

    @staticmethod
    def _add_verification(host: Host, verification: Mapping[str, Any]) -> None:
        # Where GPUs are listed, the failure of the whole is that of one of them.
        failure = verification.get("failure") if not verification["gpus"] else None
        host.failure = _failed(failure) if failure else None
        for gpu in mappings(verification["gpus"]):
            verdict = str(gpu.get("verdict"))
            known = _failed(gpu.get("failure")) if verdict == "failed" else Verdict(verdict, message=gpu.get("reason"))
            key = str(gpu.get("uuid") or gpu.get("pci_bus_id"))
            host.verdicts[key] = known
            name = " ".join(str(gpu[part]) for part in ("name", "mig_profile") if gpu.get(part))
            host.verified[key] = {"name": name, **{part: gpu.get(part) for part in ("index", "uuid", "pci_bus_id")}}


def natural(name: str) -> list[tuple[str, int]]:
    """A sort key that puts gpu2 before gpu10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]


def is_gpu_facts(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value has the shape of ``ansible_facts['gpu']``."""
    return (
        isinstance(value, Mapping) and isinstance(value.get("driver"), Mapping) and isinstance(value.get("gpus"), list)
    )


def is_verification(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value has the shape of the verification returned by ``cuda_verify``."""
    return isinstance(value, Mapping) and "verified" in value and isinstance(value.get("gpus"), list)


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The dictionaries in what should be a list of them."""
    if not isinstance(value, (list, tuple)):
        return []
    return [one for one in value[:LONGEST_LIST] if isinstance(one, Mapping)]


def _mig(gpu: Mapping[str, Any]) -> Mapping[str, Any]:
    mig = gpu.get("mig")
    return mig if isinstance(mig, Mapping) else {}


def _instances(gpu: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return mappings(_mig(gpu).get("instances"))


def _failed(failure: object) -> Verdict:
    failure = failure if isinstance(failure, Mapping) else {}
    return Verdict("failed", kind=failure.get("kind"), message=failure.get("message"))


def worst(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The verdict that counts for a GPU made of several units: one that failed, else one that did not pass."""
    found = list(verdicts)
    failed = [verdict for verdict in found if verdict and verdict.verdict == "failed"]
    others = [verdict for verdict in found if not (verdict and verdict.verdict == "passed")]
    return (failed or others or found)[0]


def clean(text: object) -> str:
    """A text on one line, without control characters: remote hosts don't get to drive the terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())


def memory(size: object) -> str:
    """Bytes as GiB with one decimal."""
    if not isinstance(size, (int, float)) or not 0 <= size < MOST_BYTES:
        return UNKNOWN
    return f"{size / 2**30:.1f} GiB"


def mig_mode(mig: Mapping[str, Any] | None) -> str:
    """The MIG mode of a GPU, and the one it waits for if that is another."""
    enabled, pending = (mig or {}).get("enabled"), (mig or {}).get("pending")
    if not isinstance(enabled, bool):
        return UNKNOWN
    words = {True: "on", False: "off"}
    return words[enabled] if pending in (None, enabled) else f"{words[enabled]}, {words[not enabled]} pending"


def driver_word(driver: Mapping[str, Any], *, reboot_needed: bool = False) -> str:
    """The driver's version, or why it can't be used, and whether it waits for a reboot."""
    state = str(driver.get("state") or UNKNOWN)
    word = str(driver.get("version") or UNKNOWN) if state == "ok" else DRIVER_WORDS.get(state, state)
    return f"{word}, reboot needed" if reboot_needed else word


def _severity(problems: Sequence[Mapping[str, Any]]) -> Level:
    if not problems:
        return "plain"
    return "error" if any(problem.get("severity") == "error" for problem in problems) else "warning"


def _health(gpu: Mapping[str, Any], driver: Mapping[str, Any]) -> str:
    codes = dict.fromkeys(str(problem.get("code")) for problem in mappings(gpu.get("problems")))
    if codes:
        return ", ".join(codes)
    if not driver:
        return UNKNOWN
    if driver.get("state") != "ok" or gpu.get("healthy") is None:
        return "unknown"
    return "ok" if gpu.get("healthy") else "unhealthy"


def _highest(*levels: Level) -> Level:
    return max(levels, key=SEVERITIES.__getitem__)


def _verdict_level(verdict: Verdict | None) -> Level:
    levels: dict[str, Level] = {"passed": "good", "failed": "error"}
    return levels.get(verdict.verdict if verdict else "", "plain")


def _gpu_rows(host: Host) -> Iterator[Row]:
    driver: Mapping[str, Any] = (host.facts or {}).get("driver") or {}
    unusable = host.facts is not None and driver.get("state") != "ok"
    driver_level: Level = "error" if unusable else "warning" if host.reboot_needed else "plain"
    for gpu in host.gpus:
        verdict = host.verdict(gpu)
        index = gpu.get("index")
        yield Row(
            (
                clean(host.name),
                UNKNOWN if index is None else clean(index),
                clean(gpu.get("name") or gpu.get("pci_device_id") or UNKNOWN),
                memory(gpu.get("memory_bytes")),
                clean(driver_word(driver, reboot_needed=host.reboot_needed)),
                mig_mode(_mig(gpu)),
                clean(_health(gpu, driver)),
                clean(verdict.word if verdict else UNKNOWN),
            ),
            _highest(driver_level, _severity(mappings(gpu.get("problems"))), _verdict_level(verdict)),
        )
        for position, instance in enumerate(_instances(gpu)):
            verdict = host.verdict(instance)
            number = instance.get("index")
            yield Row(
                (
                    clean(host.name),
                    clean(f"{UNKNOWN if index is None else index}.{position if number is None else number}"),
                    clean(f"MIG {instance.get('profile') or UNKNOWN}"),
                    memory(instance.get("memory_bytes")),
                    "",
                    "",
                    "",
                    clean(verdict.word if verdict else UNKNOWN),
                ),
                _verdict_level(verdict),
            )


def _host_rows(host: Host) -> Iterator[Row]:
    if host.gpus and host.unreachable is None:
        yield from _gpu_rows(host)
        return
    state, level = host.state
    name, driver = UNKNOWN, UNKNOWN
    if host.facts is not None:
        name = f"{len(host.gpus)} GPUs before it was lost" if host.gpus else "no GPU"
        driver = driver_word(host.facts["driver"], reboot_needed=host.reboot_needed)
    verified = host.failure.word if host.failure else UNKNOWN
    yield Row((clean(host.name), UNKNOWN, name, UNKNOWN, clean(driver), UNKNOWN, state, clean(verified)), level)


def rows(fleet: Iterable[Host]) -> list[Row]:
    """The table's rows, hosts in the order given."""
    return [row for host in fleet for row in _host_rows(host)]


def sentences(fleet: Iterable[Host]) -> list[Line]:
    """One sentence for each problem, each said once: what made a host fail isn't repeated."""
    found: dict[str, Level] = {}
    for host in fleet:
        name, ended = clean(host.name), clean(host.failed or "")
        for text, level in _host_sentences(host):
            if clean(text) not in ended:
                found.setdefault(f"{name}: {clean(text)}", level)
        if host.unreachable is not None:
            found[f"{name} is unreachable: {clean(host.unreachable)}"] = "error"
        elif ended:
            found[f"{name} failed: {ended}"] = "error"
    return [Line(text, level) for text, level in found.items()]


def _host_sentences(host: Host) -> Iterator[tuple[str, Level]]:
    facts = host.facts or {}
    driver = facts.get("driver") or {}
    if host.gpus and driver.get("state") != "ok" and driver.get("reason"):
        yield str(driver["reason"]), "error"
    for holder in (facts, *host.gpus):
        for problem in mappings(holder.get("problems")):
            yield str(problem.get("message")), _severity([problem])
    if host.simulated:
        return
    for verdict in (*host.verdicts.values(), host.failure):
        if verdict and verdict.verdict != "passed" and verdict.message:
            yield verdict.message, "error" if verdict.verdict == "failed" else "warning"


def summary(fleet: Iterable[Host]) -> str:
    """One sentence that counts hosts and GPUs."""
    hosts = list(fleet)
    counts: dict[str, int] = {}
    for host in hosts:
        for gpu in host.gpus:
            verdict = host.verdict(gpu)
            word = {"passed": "verified", "simulated": "simulated", "failed": "failed verification"}.get(
                verdict.verdict if verdict else "", "not verified"
            )
            counts[word] = counts.get(word, 0) + 1
    states = [
        f"{number} {word}"
        for word, number in (
            ("unreachable", sum(host.unreachable is not None for host in hosts)),
            ("failed", sum(host.failed is not None and host.unreachable is None for host in hosts)),
            ("to reboot", sum(host.reboot_needed for host in hosts)),
        )
        if number
    ]
    text = _plural(len(hosts), "host") + (f" ({', '.join(states)})" if states else "")
    total = sum(counts.values())
    text += f", {_plural(total, 'GPU')}"
    if total:
        text += ": " + ", ".join(f"{number} {word}" for word, number in counts.items())
    return f"{text}."


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def fit(wanted: Sequence[int], available: int) -> list[int] | None:
    """Column widths that fit, the widest of the narrowable columns giving way first; None where nothing fits."""
    widths = list(wanted)
    gaps = GAP * (len(widths) - 1)
    while sum(widths) + gaps > available:
        candidates = [column for column in NARROWED if widths[column] > MINIMUM_WIDTHS[column]]
        if not candidates:
            return None
        widths[max(candidates, key=widths.__getitem__)] -= 1
    return widths


def _wrap(text: str, width: int, measure: Measure, first: str = "", later: str = "") -> list[str]:
    """Lines that begin with ``first`` and ``later`` and are ``width`` columns wide at most; long words are cut."""
    lines, line, begun = [], first, False
    for word in text.split():
        if begun and measure(f"{line} {word}") <= width:
            line = f"{line} {word}"
            continue
        if begun:
            lines.append(line)
            line = later
        rest = word
        while measure(line + rest) > width and (count := _fitting(rest, width - measure(line), measure)) < len(rest):
            lines.append(line + rest[:count])
            line, rest = later, rest[count:]
        line, begun = line + rest, True
    return [*lines, line]


def _fitting(word: str, width: int, measure: Measure) -> int:
    """How many characters of a word fit; one does always."""
    return next((count - 1 for count in range(2, len(word) + 1) if measure(word[:count]) > width), len(word))


def _grid(table: Sequence[Row], widths: Sequence[int], measure: Measure) -> list[Line]:
    lines = []
    previous = None
    for row in [Row(HEADERS), *table]:
        cells = list(row.cells)
        if cells[0] == previous:
            cells[0] = ""
        previous = row.cells[0]
        wrapped = [_wrap(cell, width, measure) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, wrapped))):
            parts = [cell[number] if number < len(cell) else "" for cell in wrapped]
            padded = (part + " " * max(0, width - measure(part)) for part, width in zip(parts, widths, strict=True))
            lines.append(Line((" " * GAP).join(padded).rstrip(), row.level))
    return lines


def _verified_word(match: re.Match[str]) -> str:
    return "not verified" if match.group(1) else "verified"


def _stack(table: Sequence[Row], width: int, measure: Measure) -> list[Line]:
    lines = []
    previous = None
    for row in table:
        host, *cells = row.cells
        if host != previous:
            lines += [Line(part) for part in _wrap(host, width, measure)]
            previous = host
        gpu, name, *details, verified = cells
        words = [
            f"{header if header == 'MIG' else header.lower()} {cell}"
            for header, cell in zip(HEADERS[3:-1], details, strict=True)
            if cell not in ("", UNKNOWN)
        ]
        subject = [] if (gpu, name) == (UNKNOWN, UNKNOWN) else [name if gpu == UNKNOWN else f"GPU {gpu}: {name}"]
        verdict = [] if verified == UNKNOWN else [re.sub("^yes$|^(no)", _verified_word, verified)]
        text = ", ".join([*subject, *words, *verdict])
        lines += [Line(part, row.level) for part in _wrap(text, width, measure, "  ", "    ")]
    return lines


def layout(table: Sequence[Row], width: int, measure: Measure = len) -> list[Line]:
    """The rows as lines of at most ``width`` columns: a grid where it fits, else the rows stacked."""
    for shorten in (False, True):
        if shorten:
            table = [Row((*row.cells[:2], _short(row.cells[2]), *row.cells[3:]), row.level) for row in table]
        wanted = [max(measure(row.cells[column]) for row in [Row(HEADERS), *table]) for column in range(len(HEADERS))]
        if sum(wanted) + GAP * (len(HEADERS) - 1) <= width:
            return _grid(table, wanted, measure)
    widths = fit(wanted, width)
    return _stack(table, width, measure) if widths is None else _grid(table, widths, measure)


def _short(name: str) -> str:
    return name.removeprefix("NVIDIA ")


def render(fleet: Iterable[Host], width: int, measure: Measure = len) -> list[Line]:
    """The whole output: the table, a sentence for each problem, and the count."""
    hosts = list(fleet)
    lines = layout(rows(hosts), width, measure)
    problems = sentences(hosts)
    if problems:
        lines.append(Line(""))
        for problem in problems:
            lines += [Line(text, problem.level) for text in _wrap(problem.text, width, measure, "* ", "  ")]
    lines.append(Line(""))
    lines += [Line(text) for text in _wrap(summary(hosts), width, measure)]
    return lines
