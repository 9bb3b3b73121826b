# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver and CUDA versions, compared as versions: ``10`` is newer than ``8``."""

from __future__ import annotations

import re
import typing as t

_VERSION = re.compile(r"\d+(?:\.\d+)*")

CUDA_13 = (13, 0)
OLDEST_FOR_CUDA_13 = (7, 5)
"""CUDA 13 ended the support of GPUs before this compute capability."""


def parse_version(text: str) -> tuple[int, ...]:
    """``580.159.04`` as ``(580, 159, 4)``. Raises ValueError when the text is not a dotted number."""
    if not _VERSION.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a version: expected numbers separated by dots, for example 580.159.04")
    return tuple(int(part) for part in text.strip().split("."))


def branch(version: str | None) -> str | None:
    """The driver branch of a version: ``580.159.04`` belongs to ``580``. None stays None."""
    return None if version is None else str(parse_version(version)[0])


def same_version(one: str | None, other: str | None) -> bool | None:
    """Whether two versions are equal as numbers; None when one of them is unknown."""
    if one is None or other is None:
        return None
    return parse_version(one) == parse_version(other)


def cuda_version(number: int) -> str:
    """NVML's number of a CUDA version as users write it: 13000 is ``13.0``, 12020 is ``12.2``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def newest(versions: t.Iterable[str]) -> str | None:
    """The newest of some versions; None when there are none."""
    return max(versions, key=parse_version, default=None)


def cupy_line(cuda: tuple[int, ...], capabilities: t.Sequence[tuple[int, ...]]) -> str:
    """The CuPy distribution for a driver's CUDA version and the compute capabilities of its GPUs."""
    return f"cupy-cuda{13 if cuda >= CUDA_13 and min(capabilities) >= OLDEST_FOR_CUDA_13 else 12}x"
