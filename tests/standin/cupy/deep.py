# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of the stand-in for CuPy that the deeper checks use: the host's memory, NumPy, and a clock of its own.

The memory of each GPU has CUPY_STANDIN_MEMORY MiB. What takes time on a GPU moves the clock as an H200 would. Where
CUPY_STANDIN_CUBLASLT names the stand-in for cuBLASLt, it is loaded, see ``cublaslt.c``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

MEMORY = int(os.environ.get("CUPY_STANDIN_MEMORY", "0")) << 20
TERAFLOPS = {"gemm_fp64": 60.0, "gemm_fp32": 51.0, "gemm_tf32": 400.0, "gemm_fp16": 750.0}
TYPES = {(1, 70): "gemm_fp64", (0, 68): "gemm_fp32", (0, 77): "gemm_tf32", (2, 68): "gemm_fp16"}
ELEMENTS = {8: np.float64, 4: np.float32, 2: np.float16, 1: np.uint8}
CODES = np.array([0x00, 0x20, 0x28, 0x2C, 0x30, 0x32, 0x34, 0x36, 0x38], dtype=np.uint8)
DEVICE_RATE, HOST_RATE, PEER_RATE = 4.3e12, 55e9, 390e9
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3


class Error(RuntimeError):
    """Set by the package to its own error."""


class Machine:
    """The GPUs of one process; ``troubles`` are theirs, in their order."""

    def __init__(self, uuids: list[str], troubles: list[str | None], error: type[Exception]) -> None:
        self.uuids = uuids
        self.troubles = troubles
        self.error = error
        self.clock = 0.0
        self.current = 0
        self.buffers: dict[int, tuple[int, Any]] = {}
        self.computed: set[tuple[Any, ...]] = set()
        self.first_product = ""
        path = os.environ.get("CUPY_STANDIN_CUBLASLT")
        self.lt = ctypes.CDLL(path) if path else None
        if self.lt:
            for name in ("wrong", "no_algorithm", "old", "hang"):
                ctypes.c_int.in_dll(self.lt, f"cublaslt_standin_{name}").value = f"{name}_gemm_fp8" in troubles
            if "slow_gemm" in troubles:
                ctypes.c_double.in_dll(self.lt, "cublaslt_standin_rate").value *= 0.1

    def now(self) -> float:
        """What the clock shows, in seconds."""
        return self.clock + (ctypes.c_double.in_dll(self.lt, "cublaslt_standin_seconds").value if self.lt else 0)

    @property
    def trouble(self) -> str | None:
        return self.troubles[self.current]

    def any_trouble(self, name: str) -> bool:
        return name in self.troubles

    # Memory

    def malloc(self, size: int) -> int:
        if size > self.free_memory():
            raise self.error(2, "cudaErrorMemoryAllocation: out of memory")
        buffer = ctypes.create_string_buffer(size)
        self.buffers[ctypes.addressof(buffer)] = (self.current, buffer)
        return ctypes.addressof(buffer)

    def free(self, pointer: int) -> None:
        if pointer:
            del self.buffers[pointer]

    def free_memory(self) -> int:
        return MEMORY - sum(len(buffer) for device, buffer in self.buffers.values() if device == self.current)

    def host_alloc(self, size: int, _flags: int) -> int:
        buffer = ctypes.create_string_buffer(size)
        self.pinned = buffer
        return ctypes.addressof(buffer)

    def memset(self, pointer: int, value: int, size: int) -> None:
        ctypes.memset(pointer, value, size)

    def memcpy(self, target: int, source: int, size: int, kind: int) -> None:
        ctypes.memmove(target, source, size)
        slow = self.trouble == ("slow_copy" if kind == DEVICE_TO_DEVICE else "slow_host_copy")
        rate = DEVICE_RATE / 2 if kind == DEVICE_TO_DEVICE else HOST_RATE
        if self.trouble == "slower_copy" and kind == DEVICE_TO_DEVICE:
            rate *= 0.85
        self.clock += size / rate * (100 if slow else 1)
        if size > 1 << 12 and self.trouble == {
            HOST_TO_DEVICE: "wrong_copy_in",
            DEVICE_TO_HOST: "wrong_copy_out",
            DEVICE_TO_DEVICE: "wrong_copy",
        }.get(kind):
            words(target, size // 8)[17] ^= np.uint64(1 << 40)

    def memcpy_peer(self, target: int, _other: int, source: int, _one: int, size: int, _stream: int) -> None:
        ctypes.memmove(target, source, size)
        self.clock += size / PEER_RATE
        if self.trouble == "wrong_peer":
            words(target, size // 8)[3] ^= np.uint64(2)

    def can_access_peer(self, _one: int, _other: int) -> int:
        if self.any_trouble("hang_between"):
            hang()
        if self.any_trouble("crash_between"):
            ctypes.string_at(0)
        return 0 if self.any_trouble("no_peer") else 1

    # Kernels

    def kernel(self, name: str) -> Any:
        return lambda _blocks, _threads, arguments: getattr(self, name)(*map(int, arguments))

    def fill_words(self, pointer: int, count: int, pattern: int, step: int) -> None:
        memory = words(pointer, count)
        memory[:] = sequence(count, pattern, step)
        if self.trouble == "flipped_word" and pattern == 0xAAAAAAAAAAAAAAAA:
            memory[5] ^= np.uint64(8)

    def count_wrong(self, pointer: int, count: int, pattern: int, step: int, found: int) -> None:
        wanted, memory = sequence(count, pattern, step), words(pointer, count)
        places = np.flatnonzero(memory != wanted)
        result = words(found, 25)
        result[0] = len(places)
        for number, place in enumerate(places[:8]):
            result[1 + 3 * number : 4 + 3 * number] = [place, wanted[place], memory[place]]

    def fill_matrix(self, pointer: int, count: int, seed: int, size: int) -> None:
        self.computed.clear()
        values = elements(seed, np.arange(count, dtype=np.uint64), size)
        if size == 1:
            values = CODES[np.abs(values * 8).astype(int)] | np.where(values < 0, 0x80, 0).astype(np.uint8)
        array(pointer, count, size)[:] = values

    def worst_error(self, pointer: int, side: int, rows: int, size: int, worst: int) -> None:
        sampled = np.arange(rows) * (side // rows) + np.arange(rows) % (side // rows)
        inner = np.arange(side)
        places = sampled[:, None] * side + inner[None, :] if size == 1 else sampled[:, None] + inner[None, :] * side
        left = elements(1, places.astype(np.uint64), size)
        right = elements(2, (inner[:, None] + inner[None, :] * side).astype(np.uint64), size)
        found = array(pointer, side * side, 4 if size == 1 else size).reshape(side, side).T[sampled].astype(np.float64)
        error = np.abs(found - left @ right) / (np.abs(left) @ np.abs(right))
        words(worst, 1)[0] = int(np.max(error).astype(np.float32).view(np.uint32))

    def gemm(self, *arguments: Any) -> None:
        if self.trouble == "hang_gemm":
            hang()
        if self.trouble == "killed_gemm":
            os.kill(os.getpid(), signal.SIGKILL)
        _handle, _ta, _tb, side, _n, _k, _one, left, kind, _lda, right, _kind, _ldb, _nought, product = arguments[:15]
        name = TYPES[kind, arguments[17]]
        self.first_product = self.first_product or name
        # The other workers begin with other products.
        load = self.first_product == "gemm_fp16"
        size = {"gemm_fp64": 8, "gemm_fp16": 2}.get(name, 4)
        key = (left, right, product, name)
        if key not in self.computed:
            first, second, target = (array(pointer, side * side, size) for pointer in (left, right, product))
            # Matrices in memory by columns are transposed for NumPy: (A B)^T = B^T A^T.
            target.reshape(side, side)[:] = second.reshape(side, side).astype(float) @ first.reshape(side, side).astype(
                float
            )
            if self.trouble == f"wrong_{name}" or (load and self.trouble == "wrong_load"):
                target.reshape(side, side)[:, 0] += 1
            self.computed.add(key)
        slowness = {"slow_gemm": 0.1, "lazy_gemm": 0.5, "slow_load": 0.1 if load else 1}
        rate = TERAFLOPS[name] * slowness.get(self.trouble or "", 1)
        self.clock += 2 * side**3 / (rate * 1e12)

    # Streams and devices

    def device(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(use=lambda: setattr(self, "current", number))

    def event(self) -> SimpleNamespace:
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now())
        return event

    def nccl(self) -> SimpleNamespace:
        """NCCL, with which all reduce what they send in one call."""
        calls: list[tuple[int, int, int]] = []

        def end() -> None:
            total = sum(array(send, count, 4).copy() for send, _receive, count in calls)
            for _send, receive, count in calls:
                array(receive, count, 4)[:] = total
            if self.any_trouble("wrong_nccl"):
                array(calls[0][1], calls[0][2], 4)[9] += 1
            self.clock += calls[0][2] * 4 / PEER_RATE
            calls.clear()

        def reduce(send: int, receive: int, count: int, *_rest: int) -> None:
            calls.append((send, receive, count))

        return SimpleNamespace(
            available=not self.any_trouble("no_nccl"),
            NCCL_FLOAT32=7,
            NCCL_SUM=0,
            get_version=lambda: 22707,
            groupStart=lambda: None,
            groupEnd=end,
            NcclCommunicator=SimpleNamespace(initAll=lambda gpus: [SimpleNamespace(allReduce=reduce) for _gpu in gpus]),
        )


def hang() -> None:
    """Hang, and say so by a file where somebody wants to know."""
    if folder := os.environ.get("STANDIN_HUNG"):
        Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def words(pointer: int, count: int) -> Any:
    return np.frombuffer((ctypes.c_uint64 * count).from_address(pointer), dtype=np.uint64)


def array(pointer: int, count: int, size: int) -> Any:
    return np.frombuffer((ctypes.c_char * (count * size)).from_address(pointer), dtype=ELEMENTS[size])


def sequence(count: int, pattern: int, step: int) -> Any:
    return np.full(count, pattern, dtype=np.uint64) + np.arange(count, dtype=np.uint64) * np.uint64(step)


def elements(seed: int, index: Any, size: int) -> Any:
    x = index + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((31, 0xBF58476D1CE4E5B9), (29, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(32)
    if size == 1:
        return ((x & np.uint64(15)).astype(np.float64) - 8) / 8
    return ((x & np.uint64(2047)).astype(np.float64) - 1024) / 1024
