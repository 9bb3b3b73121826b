# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Matrix products in FP8, which CuPy doesn't have. This text is appended to that of _verify_payload_device.

They are computed by cuBLASLt (https://docs.nvidia.com/cuda/cublas/), which is loaded with cuBLAS.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ._verify_payload_device import PRODUCTS, DeviceWorker, Product, UnsupportedError

LT_LIBRARY = "libcublasLt.so."
LT_WORKSPACE = 32 << 20
LT_WORKSPACE_SHARE = 16
LT_TRANSPOSE_LEFT, LT_MOST_WORKSPACE = 3, 1
LT_TRANSPOSED = 1
LT_FLOAT32 = 0
# A result of the heuristic is an algorithm of 64 bytes, the size of its workspace, its status, and more.
LT_HEURISTIC_BYTES, LT_STATUS_AT = 96, 72
# What a cuBLASLt says that knows nothing of FP8, or doesn't have it for this GPU.
LT_INVALID_VALUE, LT_NOT_SUPPORTED = 7, 15


def loaded_library(name: str) -> str | None:
    """Path of a library that this process has loaded, whose file's name begins so."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if f"/{name}" in line}
    return min(paths, default=None)


class Fp8Product(Product):
    """The product of two matrices in E4M3, in FP32. The left one is transposed, as GPUs before Blackwell need it."""

    workspace = 0
    begun = False

    def __init__(self, worker: DeviceWorker, name: str) -> None:
        self.made: list[tuple[str, Any]] = []
        super().__init__(worker, name)

    def begin(self) -> None:
        path = loaded_library(LT_LIBRARY)
        if path is None:
            raise UnsupportedError("cuBLASLt isn't there")
        self.library = ctypes.CDLL(path)
        self.room = min(LT_WORKSPACE, self.worker.room() // LT_WORKSPACE_SHARE)
        self.workspace = self.worker.cupy.cuda.runtime.malloc(self.room)
        self.lt = self.make("cublasLtCreate", "cublasLtDestroy")
        types = ctypes.c_int(self.compute_type), ctypes.c_int(LT_FLOAT32)
        self.description = self.make("cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy", *types)
        self.set("cublasLtMatmulDescSetAttribute", self.description, LT_TRANSPOSE_LEFT, ctypes.c_int32(LT_TRANSPOSED))
        side, stride = ctypes.c_uint64(self.side), ctypes.c_int64(self.side)
        names = ("cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy")
        kinds = map(ctypes.c_int, (self.data_type, LT_FLOAT32))
        self.layouts = [self.make(*names, kind, side, side, stride) for kind in kinds]
        preference = self.make("cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy")
        self.set("cublasLtMatmulPreferenceSetAttribute", preference, LT_MOST_WORKSPACE, ctypes.c_size_t(self.room))
        self.algorithm = ctypes.create_string_buffer(LT_HEURISTIC_BYTES)
        found = ctypes.c_int(0)
        matrix, result = self.layouts
        self.call(
            "cublasLtMatmulAlgoGetHeuristic", self.lt, self.description, matrix, matrix, result, result, preference,
            ctypes.c_int(1), self.algorithm, ctypes.byref(found),
        )  # fmt: skip
        status = ctypes.c_int.from_buffer(self.algorithm, LT_STATUS_AT).value
        if not found.value or status:
            raise UnsupportedError(f"cuBLASLt has no algorithm for a product of {self.side}³ in FP8 (status {status})")
        self.begun = True

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(self.library, name, None)
        if function is None:
            raise UnsupportedError(f"this cuBLASLt is too old, it has no {name}")
        status = function(*arguments)
        if status in (LT_INVALID_VALUE, LT_NOT_SUPPORTED) and not self.begun:
            raise UnsupportedError(f"this cuBLASLt has no FP8 for this GPU ({name} ended with status {status})")
        if status:
            raise RuntimeError(f"{name} of cuBLASLt ended with status {status}")

    def make(self, name: str, end: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        self.made.append((end, made))
        return made

    def set(self, name: str, owner: Any, attribute: int, value: Any) -> None:
        self.call(name, owner, ctypes.c_int(attribute), ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def compute(self) -> None:
        left, right, product = map(ctypes.c_void_p, self.pointers)
        matrix, result = self.layouts
        one, nought = (ctypes.c_void_p(value.ctypes.data) for value in (self.one, self.nought))
        self.call(
            "cublasLtMatmul", self.lt, self.description, one, left, matrix, right, matrix, nought, product, result,
            product, result, self.algorithm, ctypes.c_void_p(self.workspace), ctypes.c_size_t(self.room), None,
        )  # fmt: skip

    def free(self) -> None:
        while self.made:
            self.call(*self.made.pop())
        self.worker.cupy.cuda.runtime.free(self.workspace)
        super().free()


PRODUCTS["gemm_fp8"] = Fp8Product
