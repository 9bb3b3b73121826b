# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deeper checks of one GPU. This text is appended to that of _verify_payload, whose names it uses."""

from __future__ import annotations

import ctypes
import math
import statistics
import struct
import time
from typing import Any, Callable

from ._verify_payload import WORKERS, Library, UnfitError, Worker

KERNELS = r"""
typedef unsigned long long word;

__device__ int eighths(word x) { return (int)(x & 15) - 8; }

__device__ float element(word seed, word index, int bytes) {
    word x = index + seed * 0x9E3779B97F4A7C15ull;
    x ^= x >> 31; x *= 0xBF58476D1CE4E5B9ull; x ^= x >> 29; x *= 0x94D049BB133111EBull; x ^= x >> 32;
    return bytes == 1 ? eighths(x) / 8.0f : ((int)(x & 2047) - 1024) / 1024.0f;
}

__device__ unsigned char e4m3(float value) {
    const unsigned char codes[] = {0x00, 0x20, 0x28, 0x2c, 0x30, 0x32, 0x34, 0x36, 0x38};
    int n = (int)(value * 8);
    return n < 0 ? codes[-n] | 0x80 : codes[n];
}

extern "C" __global__ void fill_words(word* memory, word count, word pattern, word step) {
    word stride = (word)gridDim.x * blockDim.x;
    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) memory[i] = pattern + step * i;
}

extern "C" __global__ void count_wrong(const word* memory, word count, word pattern, word step, word* found) {
    word stride = (word)gridDim.x * blockDim.x;
    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        word value = memory[i], expected = pattern + step * i;
        if (value == expected) continue;
        word place = atomicAdd(found, 1ull);
        if (place < 8) { found[1 + 3 * place] = i; found[2 + 3 * place] = expected; found[3 + 3 * place] = value; }
    }
}

extern "C" __global__ void fill_matrix(void* matrix, word count, word seed, int bytes) {
    word stride = (word)gridDim.x * blockDim.x;
    for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        float value = element(seed, i, bytes);
        if (bytes == 8) ((double*)matrix)[i] = value;
        else if (bytes == 4) ((float*)matrix)[i] = value;
        else if (bytes == 1) ((unsigned char*)matrix)[i] = e4m3(value);
        else {
            unsigned short half;
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
            ((unsigned short*)matrix)[i] = half;
        }
    }
}

extern "C" __global__ void worst_error(const void* product, word side, word rows, int bytes, unsigned int* worst) {
    word thread = (word)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= rows * side) return;
    word sample = thread / side, column = thread % side, row = sample * (side / rows) + sample % (side / rows);
    double sum = 0, size = 0;
    for (word k = 0; k < side; k++) {
        word left = bytes == 1 ? k + row * side : row + k * side;
        double term = (double)element(1, left, bytes) * element(2, k + column * side, bytes);
        sum += term; size += term < 0 ? -term : term;
    }
    double found;
    word i = row + column * side;
    if (bytes == 8) found = ((const double*)product)[i];
    else if (bytes != 2) found = ((const float*)product)[i];
    else {
        float value;
        unsigned short half = ((const unsigned short*)product)[i];
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
        found = value;
    }
    double error = (found - sum) / size;
    atomicMax(worst, __float_as_uint((float)(error < 0 ? -error : error)) & 0x7fffffffu);
}
"""
BLOCKS, THREADS = 4096, 256
WORD = 8
PATTERNS = (
    ("0x00000000", 0, 0),
    ("0xFFFFFFFF", 0xFFFFFFFFFFFFFFFF, 0),
    ("0xAAAAAAAA", 0xAAAAAAAAAAAAAAAA, 0),
    ("0x55555555", 0x5555555555555555, 0),
    ("address in word", 0, 1),
)
WRONG_WORDS = 8
LEAST_MEMORY = 1 << 20
ALIGNMENT = 1 << 16
SAMPLED_ROWS = 16
LEAST_SIDE = 256
COPY_BYTES = 1 << 30
HOST_COPY_BYTES = 1 << 28
TIMED_SECONDS = 0.25
FEWEST_RUNS, MOST_RUNS = 3, 50
# name: CUDA's data type, cuBLAS's compute type, bytes of an element, largest side, tolerance at that side as a share of
# sum(|a * b|).
# The elements are multiples of 1/1024, in FP8 of 1/8, exact in each type; what remains is the rounding of sums and of
# the result.
GEMMS = {
    "gemm_fp64": (1, 70, 8, 4096, 1e-13),
    "gemm_fp32": (0, 68, 4, 8192, 1e-5),
    "gemm_tf32": (0, 77, 4, 8192, 5e-5),
    "gemm_fp16": (2, 68, 2, 8192, 5e-5),
    "gemm_fp8": (28, 68, 1, 8192, 1e-4),
}
CAPABILITIES = {"gemm_tf32": (8, 0), "gemm_fp8": (8, 9)}
FLOAT = 4


class UnsupportedError(Exception):
    """Something that this GPU's libraries can't do, which is no fault of it."""


class DeviceWorker(Worker):
    """What a GPU does by itself, so that all GPUs can do it at the same time."""

    cupy: Library
    numpy: Library

    def work(self) -> None:
        self.cupy, self.numpy = self.libraries()
        self.quick(self.cupy, self.numpy)
        self.prepare()
        self.check("memory_pattern", "wrong words", self.memory_pattern)
        for name in GEMMS:
            self.check(name, "TFLOP/s", lambda name=name: self.gemm(name))  # type: ignore[misc]
        self.check("copy_device", "GB/s", self.copy_device)

    def prepare(self) -> None:
        """Compile the kernels, and give back what earlier checks hold."""
        self.publish("compile kernels")
        module = self.cupy.RawModule(code=KERNELS)
        names = ("fill_words", "count_wrong", "fill_matrix", "worst_error")
        self.kernels = {name: module.get_function(name) for name in names}
        properties = self.cupy.cuda.runtime.getDeviceProperties(0)
        self.capability = (properties["major"], properties["minor"])
        self.cupy.get_default_memory_pool().free_all_blocks()

    def launch(self, name: str, *arguments: Any, blocks: int = BLOCKS) -> None:
        self.kernels[name]((blocks,), (THREADS,), arguments)

    def word(self, value: int) -> Any:
        return self.numpy.uint64(value)

    def room(self) -> int:
        """Bytes that the checks may take now."""
        free = self.cupy.cuda.runtime.memGetInfo()[0] - (self.spec["memory_margin"] << 20)
        limit = self.spec["memory_limit"]
        room = int(free if limit is None else min(free, limit << 20))
        if room < LEAST_MEMORY:
            raise UnfitError(
                "out_of_memory",
                f"besides a margin of {self.spec['memory_margin']} MiB, no memory is free on it",
                max(room, 0) >> 20,
                f">= {LEAST_MEMORY >> 20}",
                "MiB",
            )
        return room

    def zeros(self, words: int) -> int:
        runtime = self.cupy.cuda.runtime
        pointer: int = runtime.malloc(words * WORD)
        runtime.memset(pointer, 0, words * WORD)
        return pointer

    def words_at(self, pointer: int, count: int) -> list[int]:
        """Words of the GPU's memory."""
        host = self.numpy.zeros(count, dtype=self.numpy.uint64)
        runtime = self.cupy.cuda.runtime
        runtime.memcpy(host.ctypes.data, pointer, count * WORD, runtime.memcpyDeviceToHost)
        return [int(one) for one in host]

    def fill(self, pointer: int, size: int, pattern: int, step: int) -> None:
        self.launch("fill_words", self.word(pointer), self.word(size // WORD), self.word(pattern), self.word(step))

    def wrong_words(self, pointer: int, size: int, pattern: int, step: int) -> tuple[int, list[str]]:
        """How many words aren't as they were written, and a sentence about each of the first."""
        found = self.zeros(1 + 3 * WRONG_WORDS)
        try:
            count = self.word(size // WORD)
            self.launch("count_wrong", self.word(pointer), count, self.word(pattern), self.word(step), self.word(found))
            wrong, *places = self.words_at(found, 1 + 3 * WRONG_WORDS)
        finally:
            self.cupy.cuda.runtime.free(found)
        told = [
            f"word {places[i]:#x} at address {pointer + places[i] * WORD:#x} should be {places[i + 1]:#018x} and is"
            f" {places[i + 2]:#018x}"
            for i in range(0, 3 * min(wrong, WRONG_WORDS), 3)
        ]
        return wrong, told

    def most_memory(self, size: int) -> tuple[int, int]:
        """Allocate as much of a size as there is in one piece."""
        runtime = self.cupy.cuda.runtime
        for _try in range(20):
            size = size // ALIGNMENT * ALIGNMENT
            try:
                return runtime.malloc(size), size
            except Exception as error:
                if "cudaErrorMemoryAllocation" not in str(error) or size < LEAST_MEMORY:
                    raise
            size = size * 19 // 20
        raise MemoryError("OutOfMemoryError: no large piece of memory is free")

    def memory_pattern(self) -> tuple[Any, Any, str | None]:
        runtime = self.cupy.cuda.runtime
        pointer, size = self.most_memory(self.room())
        try:
            for name, pattern, step in PATTERNS:
                self.fill(pointer, size, pattern, step)
                wrong, told = self.wrong_words(pointer, size, pattern, step)
                if wrong:
                    message = f"its memory holds {wrong} wrong words of {size // WORD} after pattern {name}"
                    raise UnfitError("wrong_result", f"{message}: {'; '.join(told)}", wrong, 0)
        finally:
            runtime.free(pointer)
        return 0, 0, f"{size >> 20} MiB were written and read back in {len(PATTERNS)} patterns"

    def elapsed(self, action: Callable[[], None]) -> float:
        """Seconds of one action on the GPU, by its own clock."""
        start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        start.record()
        action()
        stop.record()
        stop.synchronize()
        return max(float(self.cupy.cuda.get_elapsed_time(start, stop)) / 1000, 1e-9)

    def timed(self, action: Callable[[], None]) -> float:
        """The median of some runs, in seconds, after one that isn't counted."""
        self.elapsed(action)
        first = self.elapsed(action)
        runs = max(FEWEST_RUNS, min(MOST_RUNS, int(TIMED_SECONDS / first)))
        return statistics.median([first, *(self.elapsed(action) for _run in range(runs))])

    def gemm(self, name: str) -> tuple[Any, Any, str | None]:
        needed = CAPABILITIES.get(name, (0, 0))
        if self.capability < needed:
            since, own = (".".join(map(str, one)) for one in (needed, self.capability))
            return None, None, f"not measured: GPUs have it from compute capability {since}, this one has {own}"
        try:
            product = product_of(name)(self, name)
        except UnsupportedError as error:
            return None, None, f"not measured: {error}"
        try:
            seconds = self.timed(product.compute)
            product.verify()
        finally:
            product.free()
        return round(product.operations / seconds / 1e12, 3), None, f"{product.side}³, {product.said}"

    def copy_device(self) -> tuple[Any, Any, str | None]:
        runtime = self.cupy.cuda.runtime
        size = min(COPY_BYTES, self.room() // 4) // ALIGNMENT * ALIGNMENT
        source = runtime.malloc(size)
        target = self.zeros(size // WORD)
        try:
            self.fill(source, size, 1, 3)
            seconds = self.timed(lambda: runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, 0))
            self.same_words("a copy within its memory", target, size, 1, 3)
        finally:
            runtime.free(source)
            runtime.free(target)
        return round(2 * size / seconds / 1e9, 2), None, f"{size >> 20} MiB, read and written"

    def same_words(self, what: str, pointer: int, size: int, pattern: int, step: int) -> None:
        wrong, told = self.wrong_words(pointer, size, pattern, step)
        if wrong:
            raise UnfitError(
                "wrong_result", f"{what} has {wrong} wrong words: {'; '.join(told)}", wrong, 0, "wrong words"
            )


class Product:
    """A matrix product by cuBLAS, of matrices whose elements any kernel can tell."""

    def __init__(self, worker: DeviceWorker, name: str) -> None:
        self.worker = worker
        self.name = name
        self.data_type, self.compute_type, self.bytes, largest, tolerance = GEMMS[name]
        self.side = largest
        self.sizes = (self.bytes, self.bytes, FLOAT if self.bytes == 1 else self.bytes)
        room = worker.room() // 2
        while self.side > LEAST_SIDE and self.side**2 * sum(self.sizes) > room:
            self.side //= 2
        # Rounding errors add up to less, of sums that have more terms of both signs.
        self.tolerance = tolerance * math.sqrt(largest / self.side)
        self.operations = 2 * self.side**3
        self.said = ""
        self.pointers = [worker.zeros(self.side**2 * size // WORD) for size in self.sizes]
        for seed, pointer in ((1, self.pointers[0]), (2, self.pointers[1])):
            arguments = (worker.word(pointer), worker.word(self.side**2), worker.word(seed))
            worker.launch("fill_matrix", *arguments, worker.numpy.int32(self.bytes))
        kind = worker.numpy.float64 if self.bytes == WORD else worker.numpy.float32
        self.one, self.nought = worker.numpy.array(1, dtype=kind), worker.numpy.array(0, dtype=kind)
        try:
            self.begin()
        except BaseException:
            self.free()
            raise

    def begin(self) -> None:
        """Have what computes. Raises UnsupportedError where the libraries don't have it."""
        cupy = self.worker.cupy
        self.multiply = cupy.cuda.cublas.gemmEx
        self.handle = cupy.cuda.device.get_cublas_handle()

    def compute(self) -> None:
        left, right, product = self.pointers
        side, kind = self.side, self.data_type
        one, nought = self.one.ctypes.data, self.nought.ctypes.data
        self.multiply(
            self.handle, 0, 0, side, side, side, one, left, kind, side, right, kind, side, nought, product, kind, side,
            self.compute_type, -1,
        )  # fmt: skip

    def repeat(self, times: int) -> None:
        for _run in range(times):
            self.compute()

    def verify(self) -> None:
        """Compare some rows with sums in FP64 that no library computes."""
        worker = self.worker
        worst = worker.zeros(1)
        try:
            arguments = (worker.word(self.pointers[2]), worker.word(self.side), worker.word(SAMPLED_ROWS))
            blocks = (SAMPLED_ROWS * self.side + THREADS - 1) // THREADS
            worker.launch("worst_error", *arguments, worker.numpy.int32(self.bytes), worker.word(worst), blocks=blocks)
            bits = worker.words_at(worst, 1)[0]
        finally:
            worker.cupy.cuda.runtime.free(worst)
        (error,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))
        self.said = f"error {error:.1e} of {SAMPLED_ROWS} rows against FP64, allowed {self.tolerance:.1e}"
        if math.isnan(error) or error > self.tolerance:
            raise UnfitError(
                "wrong_result",
                f"the product of {self.name} differs by {error:.2g} (relative), more than {self.tolerance:.1e}",
                error if math.isfinite(error) else str(error),
                f"<= {self.tolerance:.1e}",
                "relative error",
            )

    def free(self) -> None:
        for pointer in self.pointers:
            self.worker.cupy.cuda.runtime.free(pointer)


PRODUCTS: dict[str, type[Product]] = {}


def product_of(name: str) -> type[Product]:
    """What computes the products of a check."""
    return PRODUCTS.get(name, Product)


class HostCopyWorker(DeviceWorker):
    """Copies between a GPU and the memory of its host, which GPUs share: one GPU after another."""

    def work(self) -> None:
        self.cupy, self.numpy = self.libraries()
        self.publish("context")
        self.context(self.cupy)
        self.prepare()
        self.publish("pinned memory")
        runtime = self.cupy.cuda.runtime
        self.size = min(HOST_COPY_BYTES, self.room() // 2) // ALIGNMENT * ALIGNMENT
        self.device = self.zeros(self.size // WORD)
        self.pinned = runtime.hostAlloc(self.size, 0)
        try:
            self.check("copy_host_to_device", "GB/s", self.host_to_device)
            self.check("copy_device_to_host", "GB/s", self.device_to_host)
        finally:
            runtime.freeHost(self.pinned)
            runtime.free(self.device)

    def host_words(self) -> Any:
        memory = (ctypes.c_uint64 * (self.size // WORD)).from_address(self.pinned)
        return self.numpy.frombuffer(memory, dtype=self.numpy.uint64)

    def host_to_device(self) -> tuple[Any, Any, str | None]:
        runtime = self.cupy.cuda.runtime
        words = self.host_words()
        words[:] = self.numpy.arange(len(words), dtype=self.numpy.uint64) * self.word(5)
        words += self.word(7)
        seconds = self.timed(
            lambda: runtime.memcpyAsync(self.device, self.pinned, self.size, runtime.memcpyHostToDevice, 0)
        )
        self.same_words("a copy from the host's memory", self.device, self.size, 7, 5)
        return round(self.size / seconds / 1e9, 2), None, f"{self.size >> 20} MiB of pinned memory"

    def device_to_host(self) -> tuple[Any, Any, str | None]:
        runtime = self.cupy.cuda.runtime
        self.fill(self.device, self.size, 11, 9)
        seconds = self.timed(
            lambda: runtime.memcpyAsync(self.pinned, self.device, self.size, runtime.memcpyDeviceToHost, 0)
        )
        words = self.host_words()
        wanted = self.numpy.arange(len(words), dtype=self.numpy.uint64) * self.word(9)
        wanted += self.word(11)
        wrong = int((words != wanted).sum())
        if wrong:
            raise UnfitError(
                "wrong_result", f"a copy to the host's memory has {wrong} wrong words", wrong, 0, "wrong words"
            )
        return round(self.size / seconds / 1e9, 2), None, f"{self.size >> 20} MiB of pinned memory"


class LoadWorker(DeviceWorker):
    """Matrix products without a pause."""

    def work(self) -> None:
        self.cupy, self.numpy = self.libraries()
        self.publish("context")
        self.context(self.cupy)
        self.prepare()
        self.check("sustained_load", "TFLOP/s", self.load)

    def load(self) -> tuple[Any, Any, str | None]:
        product = Product(self, "gemm_fp16")
        try:
            batch = max(1, int(0.5 / self.timed(product.compute)))
            self.report["load"] = {"start": time.time(), "end": None}
            start, busy, done = time.monotonic(), 0.0, 0
            while time.monotonic() - start < self.spec["duration"]:
                busy += self.elapsed(lambda: product.repeat(batch))
                done += batch
                product.verify()
            self.report["load"]["end"] = time.time()
        finally:
            product.free()
        return round(product.operations * done / busy / 1e12, 3), None, f"{done} products, {product.side}³"


WORKERS.update(device=DeviceWorker, host_copy=HostCopyWorker, load=LoadWorker)
