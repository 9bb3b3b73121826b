# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The RAPIDS release and CUDA line that every GPU and driver of some hosts supports.

What the releases support is from https://docs.nvidia.com/datascience/platform-support/ (26.10) and
https://docs.rapids.ai/platform-support (the others), the end of Pascal from https://docs.rapids.ai/notices/rsn0034/.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.cudahub.gpu.plugins.module_utils._branches import (
    FIRST_BRANCH,
    GENERATIONS,
    LAST_BRANCH,
    generation,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._gpu import PASSTHROUGH_DRIVERS
from ansible_collections.cudahub.gpu.plugins.module_utils._version import (
    OLDEST_FOR_CUDA_13,
    branch,
    cupy_line,
    parse_version,
)
from ansible_collections.cudahub.gpu.plugins.plugin_utils._table import is_gpu_facts

Facts = t.Mapping[str, t.Any]

DEFAULT_PYTHON = "3.13"
GATHER = "gather them with cudahub.gpu.gpu_facts"
OLDEST = "Volta"
CAPABILITIES: dict[str, tuple[int, ...]] = {"Volta": (7, 0), "Turing": OLDEST_FOR_CUDA_13}
"""The lowest compute capability of an architecture with which the support of a CUDA line begins."""


class RapidsError(ValueError):
    """No release can be chosen; says in a sentence what is in the way and what to do."""


@dataclass(frozen=True)
class Line:
    """A CUDA line of a release, and the oldest driver and architecture that it supports."""

    first: str
    last: str
    driver: str
    architecture: str

    @property
    def major(self) -> str:
        """The line's name, as in ``cuda-13``."""
        return self.first.partition(".")[0]

    def narrowed(self, cuda: str) -> Line | None:
        """What of the line is meant by ``13`` or ``13.0``; all of it by an empty text."""
        if cuda in ("", self.major):
            return self
        try:
            inside = parse_version(self.first) <= parse_version(cuda) <= parse_version(self.last)
        except ValueError:
            return None
        return replace(self, first=cuda, last=cuda) if inside and cuda.count(".") == 1 else None


@dataclass(frozen=True)
class Release:
    """A release of RAPIDS: its Pythons from old to new, its CUDA lines from new to old."""

    version: str
    pythons: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def python(self) -> str:
        """The Python that is taken when none is asked for."""
        return DEFAULT_PYTHON if DEFAULT_PYTHON in self.pythons else self.pythons[-1]


RELEASES = (
    Release(
        "26.10",
        ("3.11", "3.12", "3.13", "3.14"),
        (Line("13.0", "13.3", "580", "Turing"), Line("12.2", "12.9", "535", "Volta")),
    ),
    Release(
        "26.02",
        ("3.10", "3.11", "3.12", "3.13"),
        (Line("13.0", "13.1", "580", "Turing"), Line("12.2", "12.9", "535", "Volta")),
    ),
    Release(
        "25.12",
        ("3.10", "3.11", "3.12", "3.13"),
        (Line("13.0", "13.0", "580", "Turing"), Line("12.2", "12.9", "535", "Volta")),
    ),
    Release(
        "25.10",
        ("3.10", "3.11", "3.12", "3.13"),
        (Line("13.0", "13.0", "580", "Turing"), Line("12.0", "12.9", "525.60.13", "Volta")),
    ),
)
"""From new to old."""


@dataclass(frozen=True)
class Choice:
    """What to install on the hosts."""

    release: str
    cuda_line: str
    cuda_version: str
    cuda_override: str
    python: str
    pip_suffix: str
    cupy: str


@dataclass(frozen=True)
class _Host:
    name: str
    driver: str
    cuda: str
    gpus: tuple[Facts, ...]


class _Candidate(t.NamedTuple):
    release: Release
    line: Line

    def __str__(self) -> str:
        cuda = self.line.first if self.line.first == self.line.last else self.line.major
        return f"RAPIDS {self.release.version} with CUDA {cuda}"


def choose(hosts: t.Mapping[str, Facts], release: str = "", cuda: str = "", python: str = "") -> Choice:
    """The newest release, and its newest CUDA line, for all hosts. Raises RapidsError when there is none.

    ``hosts`` has ``ansible_facts['gpu']`` of each host by its name. A release, CUDA line or version, or Python that is
    given is kept.
    """
    candidates = _candidates(release, cuda, python)
    known = _hosts(hosts)
    chosen = _fitting(known, candidates)
    if chosen is None:
        raise RapidsError(_refusal(known, candidates, python))
    line = chosen.line
    lowest = min((host.cuda for host in known), key=parse_version)
    return Choice(
        release=chosen.release.version,
        cuda_line=line.major,
        cuda_version=f">={line.first},<={min(line.last, lowest, key=parse_version)}",
        cuda_override=lowest,
        python=python or chosen.release.python,
        pip_suffix=f"cu{line.major}",
        cupy=cupy_line(parse_version(line.first), [CAPABILITIES[line.architecture]]),
    )


def _candidates(release: str, cuda: str, python: str) -> list[_Candidate]:
    for name, value in (("release", release), ("cuda", cuda), ("python", python)):
        if not isinstance(value, str):
            raise RapidsError(f"{name} is {value!r}, which is no text: write it in quotes")
    left = [one for one in RELEASES if release in ("", one.version)]
    if not left:
        raise RapidsError(f"RAPIDS {release} is not known: give one of {_versions(RELEASES)}")
    having = [one for one in left if python in ("", *one.pythons)]
    if not having:
        pythons = sorted({each for one in left for each in one.pythons}, key=parse_version)
        raise RapidsError(f"there is no Python {python} for RAPIDS {_versions(left)}: give one of {', '.join(pythons)}")
    found = [_Candidate(one, line) for one in having for each in one.lines if (line := each.narrowed(cuda))]
    if not found:
        lines = ", ".join(f"{line.major} ({line.first} to {line.last})" for line in having[0].lines)
        raise RapidsError(
            f"there is no CUDA {cuda} for RAPIDS {_versions(having)}: give one of {lines} for RAPIDS "
            f"{having[0].version}"
        )
    return found


def _versions(releases: t.Iterable[Release]) -> str:
    return ", ".join(one.version for one in releases)


def _hosts(hosts: t.Mapping[str, Facts]) -> list[_Host]:
    if not isinstance(hosts, t.Mapping):
        raise RapidsError(f"the input is {hosts!r}, which is no dictionary of hosts with the facts of each: {GATHER}")
    if not hosts:
        raise RapidsError("there is no host, so nothing can be chosen: give the facts of one host at least")
    return [_host(name, facts) for name, facts in hosts.items()]


def _host(name: str, facts: Facts) -> _Host:
    if not is_gpu_facts(facts) or not all(isinstance(gpu, t.Mapping) for gpu in facts["gpus"]):
        raise RapidsError(f"host {name} has no facts of its GPUs and driver: {GATHER}")
    gpus = tuple(gpu for gpu in facts["gpus"] if gpu.get("kernel_driver") not in PASSTHROUGH_DRIVERS)
    if not gpus:
        raise RapidsError(f"host {name} has no NVIDIA GPU that it can use, and RAPIDS needs one: leave the host out")
    driver = facts["driver"]
    if driver.get("state") != "ok":
        raise RapidsError(
            f"the driver of host {name} can't be used ({driver.get('state')}): {driver.get('reason') or GATHER}"
        )
    version, cuda = driver.get("version"), driver.get("cuda_version")
    _version(version, f"the driver of host {name}")
    _version(cuda, f"the CUDA version of the driver of host {name}")
    return _Host(name, str(version), str(cuda), gpus)


def _version(text: object, what: str) -> tuple[int, ...]:
    try:
        return parse_version(str(text))
    except ValueError as error:
        raise RapidsError(f"{what} is {text!r}, which is no version such as 13.0: {GATHER}") from error


def _fitting(hosts: t.Sequence[_Host], candidates: t.Iterable[_Candidate]) -> _Candidate | None:
    return next((one for one in candidates if not any(_obstacles(hosts, one))), None)


def _refusal(hosts: t.Sequence[_Host], candidates: t.Sequence[_Candidate], python: str) -> str:
    """What the oldest line of the newest release asks for, and another combination if one fits."""
    newest = candidates[0].release
    asked = [one for one in candidates if one.release == newest][-1]
    others = sorted(_candidates("", "", python), key=lambda one: one.release != newest)
    other = _fitting(hosts, others)
    return next(_obstacles(hosts, asked)) + (f", or ask for {other}" if other else "")


def _obstacles(hosts: t.Iterable[_Host], candidate: _Candidate) -> t.Iterator[str]:
    for host in hosts:
        for gpu in host.gpus:
            yield from _gpu_obstacles(host, gpu, candidate.line)
        yield from _driver_obstacles(host, candidate)


def _gpu_obstacles(host: _Host, gpu: Facts, line: Line) -> t.Iterator[str]:
    label = _label(host, gpu)
    installed = int(branch(host.driver) or 0)
    first, last = FIRST_BRANCH.get(gpu.get("architecture", "")), LAST_BRANCH.get(gpu.get("architecture", ""))
    if _older(host, gpu, OLDEST):
        yield (
            f"{label} is too old, as RAPIDS ended the support of GPUs older than {OLDEST} with 24.02: "
            "leave the host out, or take the GPU out"
        )
    elif _older(host, gpu, line.architecture):
        yield (
            f"{label} is older than {line.architecture}, with which the support of CUDA {line.major} begins: "
            "leave the host out, or take the GPU out"
        )
    if first is not None and installed < first:
        yield f"{label} needs driver branch {first} or later, and the driver is {host.driver}: update the driver"
    if last is not None and installed > last:
        yield f"{label} needs driver branch {last} or older, and the driver is {host.driver}: install branch {last}"


def _older(host: _Host, gpu: Facts, architecture: str) -> bool:
    """What is not known of a GPU stands in nobody's way."""
    capability = gpu.get("compute_capability")
    if capability is not None:
        return _version(capability, f"the compute capability of {_label(host, gpu)}") < CAPABILITIES[architecture]
    known = gpu.get("architecture")
    return known in GENERATIONS and generation(known) < generation(architecture)


def _driver_obstacles(host: _Host, candidate: _Candidate) -> t.Iterator[str]:
    line = candidate.line
    if parse_version(host.driver) < parse_version(line.driver):
        needed = f"driver {line.driver}"
    elif parse_version(host.cuda) < parse_version(line.first):
        needed = f"a driver for CUDA {line.first}"
    else:
        return
    yield (
        f"driver {host.driver} of host {host.name} supports CUDA up to {host.cuda}, and {candidate} needs {needed} or "
        "later: update the driver"
    )


def _label(host: _Host, gpu: Facts) -> str:
    index = gpu.get("index")
    place = gpu.get("pci_bus_id") or ("" if index is None else index)
    words = [str(word) for word in (gpu.get("name"), place) if word not in (None, "")]
    return " ".join(("GPU", *words, f"({gpu.get('architecture') or 'architecture unknown'}) of host {host.name}"))
