# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SLURM's hostlists: ``gpu[01-03,07],login1`` for many names."""

from __future__ import annotations

import re
import typing as t

_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]{1,15})")
_NATURAL = re.compile(r"([0-9]+)")
_BRACKETS = re.compile(r"([^\[\],]*)\[([0-9,-]+)\]([^\[\],]*)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
LARGEST_RANGE = 100_000


def natural_key(name: str) -> tuple[t.Any, ...]:
    """A sort key by which ``gpu2`` comes before ``gpu10``."""
    parts = _NATURAL.split(name)
    return (*((part, int(number)) for part, number in zip(parts[::2], [*parts[1::2], "-1"])), name)


def compress(names: t.Iterable[str]) -> str:
    """The names as a hostlist, in their order: names whose numbers follow each other become a range."""
    groups: list[tuple[str, list[list[str]]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            groups.append((name, []))
            continue
        prefix, digits = match.groups()
        if not groups or groups[-1][0] != prefix or not groups[-1][1]:
            groups.append((prefix, [[digits, digits]]))
            continue
        ranges = groups[-1][1]
        first, last = ranges[-1]
        if str(int(last) + 1).zfill(len(first)) == digits:
            ranges[-1][1] = digits
        else:
            ranges.append([digits, digits])
    return ",".join(prefix + _brackets(ranges) for prefix, ranges in groups)


def _brackets(ranges: t.Sequence[t.Sequence[str]]) -> str:
    if not ranges:
        return ""
    text = ",".join(first if first == last else f"{first}-{last}" for first, last in ranges)
    return text if text.isdigit() else f"[{text}]"


def expand(text: str) -> list[str]:
    """The names of a hostlist. Raises ValueError when it is none."""
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text.strip()):
        match = _BRACKETS.fullmatch(part.strip())
        if match:
            prefix, inner, suffix = match.groups()
            names += [f"{prefix}{number}{suffix}" for item in inner.split(",") for number in _numbers(item, text)]
        elif re.search(r"[\[\]\s]", part.strip()) or not part.strip():
            raise ValueError(f"{text!r} is not a list of host names such as gpu[01-03],login1")
        else:
            names.append(part.strip())
    return names


def _numbers(item: str, text: str) -> t.Iterator[str]:
    match = _RANGE.fullmatch(item)
    first, last = match.groups() if match else ("1", "0")
    last = last or first
    if int(last) < int(first) or int(last) - int(first) >= LARGEST_RANGE:
        raise ValueError(f"{text!r} is not a list of host names: the range {item!r} is not valid")
    return (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
