# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for cuDF on a host without a GPU: columns are lists. The stand-in for CuPy is told the troubles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cupy import TROUBLE, CUDARuntimeError

__version__ = "26.10.00"

if TROUBLE == "cudf_import_lost":
    raise CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
if TROUBLE == "cudf_broken":
    raise OSError("libcudf.so: cannot open shared object file: No such file or directory")


class Arrow(list[Any]):
    """As PyArrow's array."""

    def to_pylist(self) -> list[Any]:
        return list(self)


class Index:
    """A column of labels."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = list(values)

    def to_arrow(self) -> Arrow:
        return Arrow(self._values)


class Series(Index):
    """A column of numbers."""

    def __init__(self, values: Iterable[Any], index: Iterable[Any] | None = None) -> None:
        super().__init__(values)
        self._labels = list(range(len(self._values)) if index is None else index)

    @property
    def index(self) -> Index:
        return Index(self._labels)

    def __truediv__(self, other: Any) -> Series:  # noqa: D105
        return self._with(other, lambda left, right: left / right)

    def __mul__(self, other: Any) -> Series:  # noqa: D105
        return self._with(other, lambda left, right: left * right)

    def _with(self, other: Any, compute: Callable[[Any, Any], Any]) -> Series:
        others = other.to_arrow() if isinstance(other, Series) else [other] * len(self._values)
        return Series(map(compute, self._values, others), self._labels)

    def sort_index(self) -> Series:
        labels = sorted(self._labels)
        return Series([self._values[self._labels.index(label)] for label in labels], labels)


class DataFrame:
    """A table."""

    def __init__(self, data: Mapping[str, Iterable[Any]]) -> None:
        if TROUBLE == "cudf_lost":
            raise RuntimeError(
                "CUDA error encountered at: /build/column.cu:71: 100 cudaErrorNoDevice no CUDA-capable device is"
                " detected"
            )
        if TROUBLE == "cudf_out_of_memory":
            raise MemoryError(
                "std::bad_alloc: out_of_memory: CUDA error (failed to allocate 1952 bytes) at:"
                " /build/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory"
            )
        self._columns = {name: Series(values) for name, values in data.items()}

    def __getitem__(self, name: str) -> Series:  # noqa: D105
        return self._columns[name]

    def __setitem__(self, name: str, column: Series) -> None:  # noqa: D105
        self._columns[name] = column

    def groupby(self, by: str) -> GroupBy:
        return GroupBy(self, by)


class GroupBy:
    """A table in groups, which come in no order."""

    def __init__(self, frame: DataFrame, by: str, name: str = "") -> None:
        self._frame, self._by, self._name = frame, by, name

    def __getitem__(self, name: str) -> GroupBy:  # noqa: D105
        return GroupBy(self._frame, self._by, name)

    def mean(self) -> Series:
        groups: dict[Any, list[float]] = {}
        for key, value in zip(self._frame[self._by].to_arrow(), self._frame[self._name].to_arrow(), strict=True):
            groups.setdefault(key, []).append(value)
        found = {key: sum(values) / len(values) for key, values in groups.items()}
        if TROUBLE == "wrong_groupby":
            found[4] *= 1 + 2e-6
        if TROUBLE == "null_groupby":
            found[5], found[6] = None, float("nan")  # type: ignore[assignment]
        if TROUBLE == "lost_group":
            del found[6]
        return Series(found.values(), found)
