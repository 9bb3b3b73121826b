# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for CuPy on a host without a GPU: NumPy computes. Without this directory on PYTHONPATH, the real one runs.

Environment variable CUPY_STANDIN is a JSON object: UUID (or ``*``) to the name of a trouble, see ``TROUBLES``.
CUPY_STANDIN_BUS_IDS is one, too: UUID to the PCI address of that GPU. Several UUIDs in CUDA_VISIBLE_DEVICES are several
GPUs, see ``deep.py``.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import deep

__version__ = "14.2.0"

TROUBLES = (
    "ampere",
    "busy",
    "crash_between",
    "cudf_broken",
    "cudf_import_lost",
    "cudf_lost",
    "cudf_out_of_memory",
    "ecc",
    "exit",
    "fabric",
    "flipped_word",
    "hang",
    "hang_between",
    "hang_gemm",
    "hang_gemm_fp8",
    "hang_with_child",
    "killed_gemm",
    "lazy_gemm",
    "lost",
    "lost_group",
    "no_headers",
    "no_nccl",
    "no_peer",
    "no_algorithm_gemm_fp8",
    "noise",
    "null_groupby",
    "old_driver",
    "old_gemm_fp8",
    "one_shown",
    "other_gpu",
    "out_of_memory",
    "segfault",
    "slow",
    "slow_copy",
    "slow_gemm",
    "slow_host_copy",
    "slow_load",
    "slower_copy",
    "swapped",
    "wrong_copy",
    "wrong_copy_in",
    "wrong_copy_out",
    "wrong_gemm_fp16",
    "wrong_gemm_fp32",
    "wrong_gemm_fp64",
    "wrong_gemm_fp8",
    "wrong_gemm_tf32",
    "wrong_groupby",
    "wrong_kernel",
    "wrong_load",
    "wrong_matmul",
    "wrong_nccl",
    "wrong_peer",
    "wrong_sum",
)
UUIDS = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
_troubles = json.loads(os.environ.get("CUPY_STANDIN", "{}"))
_own = [_troubles.get(uuid, _troubles.get("*")) for uuid in UUIDS]
TROUBLE = _own[0]
if unknown := set(_own) - {None, *TROUBLES}:
    raise ValueError(f"CUPY_STANDIN has the unknown troubles {unknown}")

float32 = np.float32
asarray = np.array
zeros_like = np.zeros_like


class CUDARuntimeError(RuntimeError):
    """As CuPy's: the message begins with the name of the error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class CompileException(Exception):  # noqa: N818 - CuPy's name
    """As CuPy's."""


class Array(np.ndarray):
    """An array whose products and sums may be wrong or slow."""

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        return super().sum(*args, **kwargs) + (1 if TROUBLE == "wrong_sum" else 0)


def arange(stop: int) -> Any:
    if TROUBLE == "out_of_memory":
        raise OutOfMemoryError("Out of memory allocating 512 bytes (allocated so far: 0 bytes).")
    return np.arange(stop).view(Array)


def asnumpy(array: Any) -> Any:
    found = np.array(array)
    if TROUBLE == "wrong_matmul" and found.ndim == 2:
        found[7, 7] = np.nan
    return found


class Ones:
    """A large array of ones whose product is only pretended, in the time of a GPU with 20 TFLOP/s or far less."""

    def __matmul__(self, _other: Ones) -> None:  # noqa: D105
        time.sleep(0.2 if TROUBLE == "slow" else 0.001)


def ones(_shape: tuple[int, int], dtype: str) -> Ones:
    assert dtype == "f"
    return Ones()


class RawKernel:
    """The one kernel of the test: square and add."""

    def __init__(self, source: str, name: str) -> None:
        assert f"void {name}(" in source
        if TROUBLE == "no_headers":
            raise CompileException('kernel.cu(2): catastrophic error: cannot open source file "cuda_fp16.h"')

    def __call__(self, blocks: tuple[int], threads: tuple[int], arguments: tuple[Any, ...]) -> None:
        source, target, constant, count = arguments
        assert blocks[0] * threads[0] >= count
        _trouble_in_kernel()
        target[:] = source * source + constant
        if TROUBLE == "wrong_kernel":
            target[5] += 1


def _trouble_in_kernel() -> None:
    if TROUBLE == "segfault":
        ctypes.string_at(0)
    if TROUBLE == "exit":
        sys.stderr.write("the library gave up\n")
        sys.stderr.flush()
        os._exit(3)
    if TROUBLE == "hang_with_child":
        subprocess.Popen(["sleep", "600"])
    if TROUBLE in ("hang", "hang_with_child"):
        time.sleep(600)
    if TROUBLE == "ecc":
        raise CUDARuntimeError(214, "cudaErrorECCUncorrectable: uncorrectable ECC error encountered")


def _get_device_count() -> int:
    if TROUBLE == "noise":
        sys.stdout.write("x" * 300000 + "\nnot a report\n@cuda_verify-@{}\nno line feed")
        sys.stderr.write("warning\n" * 1000)
    if TROUBLE == "lost":
        raise CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
    if TROUBLE == "fabric":
        raise CUDARuntimeError(802, "cudaErrorSystemNotReady: system not yet initialized")
    if TROUBLE == "busy":
        raise CUDARuntimeError(46, "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable")
    if TROUBLE == "old_driver":
        text = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
        raise CUDARuntimeError(35, text)
    return 1 if TROUBLE == "one_shown" else len(UUIDS)


def _get_device_properties(number: int) -> dict[str, Any]:
    addresses = json.loads(os.environ.get("CUPY_STANDIN_BUS_IDS", "{}"))
    number = len(UUIDS) - 1 - number if "swapped" in _own else number
    domain, bus, device = addresses.get(UUIDS[number], f"00000000:00:{6 + number:02x}.0").removesuffix(".0").split(":")
    return {
        "name": b"Stand-in",
        "major": 8 if TROUBLE == "ampere" else 9,
        "minor": 0,
        "multiProcessorCount": 132,
        "pciDomainID": int(domain, 16),
        "pciBusID": int(bus, 16),
        "pciDeviceID": int(device, 16) + (1 if TROUBLE == "other_gpu" else 0),
    }


class RawModule:
    """The kernels of the deeper checks."""

    def __init__(self, code: str) -> None:
        self._code = code

    def get_function(self, name: str) -> Any:
        assert f"void {name}(" in self._code
        return machine.kernel(name)


def get_default_memory_pool() -> SimpleNamespace:
    return SimpleNamespace(free_all_blocks=lambda: None)


def _memory() -> tuple[int, int]:
    return (machine.free_memory(), deep.MEMORY) if deep.MEMORY else (80 << 30, 81 << 30)


machine = deep.Machine(UUIDS, _own, CUDARuntimeError)
cuda = SimpleNamespace(
    Device=machine.device,
    Event=machine.event,
    get_elapsed_time=lambda start, stop: (stop.at - start.at) * 1000,
    cublas=SimpleNamespace(gemmEx=machine.gemm),
    device=SimpleNamespace(get_cublas_handle=lambda: 1),
    nccl=machine.nccl(),
    runtime=SimpleNamespace(
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 12020 if TROUBLE == "old_driver" else 13000,
        getDeviceCount=_get_device_count,
        getDeviceProperties=_get_device_properties,
        deviceGetAttribute=lambda _attribute, _device: 1980000,
        deviceSynchronize=lambda: None,
        free=machine.free,
        memGetInfo=_memory,
        malloc=machine.malloc,
        memset=machine.memset,
        memcpy=machine.memcpy,
        memcpyAsync=lambda target, source, size, kind, _stream: machine.memcpy(target, source, size, kind),
        memcpyPeerAsync=machine.memcpy_peer,
        hostAlloc=machine.host_alloc,
        freeHost=lambda _pointer: None,
        deviceCanAccessPeer=machine.can_access_peer,
        deviceEnablePeerAccess=lambda _other: None,
        memcpyHostToDevice=deep.HOST_TO_DEVICE,
        memcpyDeviceToHost=deep.DEVICE_TO_HOST,
        memcpyDeviceToDevice=deep.DEVICE_TO_DEVICE,
    ),
)
sys.modules["cupy.cuda.nccl"] = cuda.nccl  # type: ignore[assignment]
