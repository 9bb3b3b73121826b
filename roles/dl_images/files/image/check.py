# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""check.py: says in one line if this container sees no GPU; ends with 1 then if CUDAHUB_REQUIRE_GPU is 1.

check.py --compute      imports the framework, and computes on the CPU.
check.py --health PORT  asks JupyterLab for an answer, if that is what the container runs.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

HOW = "run it with --gpus all, or --device nvidia.com/gpu=all, on a host with a driver"
MODULES = {"pytorch": "torch", "jax": "jax", "tensorflow": "tensorflow", "rapids": "cudf"}
FRAMEWORK = os.environ.get("CUDAHUB_FRAMEWORK", "none")


def seen_by_nvml() -> int:
    """Return how many GPUs NVML sees; none where there is no driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return 0
    return count.value


def seen_by_cupy() -> int:
    """Return how many GPUs CuPy can use."""
    cupy = importlib.import_module("cupy")
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def seen_by_framework() -> int:
    """Return how many GPUs the framework can use."""
    if FRAMEWORK == "rapids":
        return seen_by_cupy()
    module = importlib.import_module(MODULES[FRAMEWORK])
    if FRAMEWORK == "pytorch":
        return int(module.cuda.device_count())
    if FRAMEWORK == "tensorflow":
        return len(module.config.list_physical_devices("GPU"))
    return sum(device.platform == "gpu" for device in module.devices())


def seen_by(check: str) -> int | str:
    """Return how many GPUs are seen, or what is in the way."""
    look = {"nvml": seen_by_nvml, "cupy": seen_by_cupy, "framework": seen_by_framework}[check]
    try:
        return look()
    except Exception as error:  # noqa: BLE001 (whatever an import of the framework may end with)
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def problem() -> str:
    """Return a line about GPUs that are not visible, or nothing."""
    names = {"nvml": "NVML", "cupy": "CuPy", "framework": FRAMEWORK}
    found: dict[str, int] = {}
    for check in os.environ.get("CUDAHUB_CHECKS", "").split():
        count = seen_by(check)
        if isinstance(count, str):
            return f"{names[check]} can't be used in this container: {count}"
        found[check] = count
    if found and not any(found.values()):
        return f"No GPU is visible in this container: {HOW}."
    blind = [names[check] for check, count in found.items() if count == 0]
    if blind:
        return (
            f"{' and '.join(blind)} can use no GPU in this container, though one is visible: update the host's driver."
        )
    return ""


def compute() -> str:
    """Compute 1 + 2 with the framework on the CPU, and return what did it."""
    if FRAMEWORK == "none":
        return f"Python {sys.version.split()[0]}"
    module = importlib.import_module(MODULES[FRAMEWORK])
    if FRAMEWORK == "pytorch":
        total = float(module.tensor([1.0, 2.0]).sum())
    elif FRAMEWORK == "jax":
        total = float(module.numpy.asarray([1.0, 2.0], device=module.devices("cpu")[0]).sum())
    elif FRAMEWORK == "tensorflow":
        with module.device("/CPU:0"):
            total = float(module.reduce_sum(module.constant([1.0, 2.0])))
    else:
        total = 3.0  # cuDF has no CPU to compute on: it is imported.
    if total != 3.0:
        raise SystemExit(f"{FRAMEWORK} says that 1 + 2 is {total}.")
    return f"{FRAMEWORK} {module.__version__}"


def healthy(port: str) -> bool:
    """Return whether JupyterLab answers; anything else that the container runs has no way to ask."""
    if "jupyter" not in Path("/proc/1/cmdline").read_text(errors="replace"):
        return True
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main(arguments: list[str]) -> int:
    """Do what the arguments say."""
    if arguments[:1] == ["--health"]:
        return 0 if len(arguments) < 2 or healthy(arguments[1]) else 1
    if arguments == ["--compute"]:
        print(compute())
        return 0
    line = problem()
    if not line:
        return 0
    print(line, file=sys.stderr)
    return 1 if os.environ.get("CUDAHUB_REQUIRE_GPU") == "1" else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
