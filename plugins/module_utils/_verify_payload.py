# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prove that one GPU computes. Self-contained: any Python 3.9+ with CuPy gets this text on standard input.

A call ``run({...})`` is appended to the text before it is sent. The report is one JSON document on a line
that begins with the marker of the call. It is printed anew after each step, so the last one tells how far
the worker came. All other output is noise.
"""

from __future__ import annotations

import base64
import csv
import ctypes
import faulthandler
import importlib
import io
import json
import math
import os
import platform
import signal
import sys
import time
import zlib
from typing import Any, Callable, TextIO

# FP32 lanes per multiprocessor by compute capability; a minor version that isn't listed takes its major's.
FP32_LANES = {"5": 128, "6": 128, "6.0": 64, "7": 64, "8": 128, "8.0": 64, "9": 128, "10": 128, "11": 128, "12": 128}
KERNEL = r"""
extern "C" __global__ void square_plus(const float* x, float* y, float c, unsigned int n) {
    unsigned int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + c;
}
"""
KERNEL_ELEMENTS = 1 << 18
MATMUL_SIDE = 512
MATMUL_TOLERANCE = 1e-5  # largest error as a share of sum(|a| * |b|); rounding in FP32 stays below 1e-6
RATE_SIDE = 2048
RATE_RUNS = 5
RATE_SHARE = 0.05  # of the peak; a healthy GPU reaches far more, one stuck at its lowest clocks doesn't
CLOCK_RATE = 13  # cudaDevAttrClockRate, kHz
PR_SET_PDEATHSIG = 1
TIPS_PERCENTAGES = {1: 21.729202, 2: 16.571919, 3: 15.215685, 4: 14.594901, 5: 14.149549, 6: 15.622920}
TIPS_TOLERANCE = 1e-6  # relative; of this, rounding to the six digits here takes 4e-8
TIPS = (
    "eNpVVk2uNDcI3L+zjCzza/s0USJl8aQnJVK+VU4fCnDPZDU93QYKKAr/+uvX7z+//fH98/P69f3365/vf//8Ih/nvGhMevEXzSEaf9xf8sX5UobhWY"
    "bveBacYh124o/TS7/YBp+XjoU/e6z14jFxyMeGBXG8JxsTfo8jSBzGF5aKyCu+LDiW8OWvOFsmyvHBFk7toRIm+UHHzmdGlDgAX4cbvQD9CsSRFwNk"
    "OM4/Z91U5nBDKvhDC6Y65oazCRMey+DMKpdEKQdgFmIFgDM2IzPYhIMd0FG2+BJeb/7Ew8+tReQXQTLfU9Hx+gyzgKtWGQYgDoRVLe8zQAs3mh9WV2"
    "5VF/KUV37oTFhUrlmfrMIuc0EVhGBp91R0JNLTqoI6giuQRDUV9p4Qo+00BOWVOTSsHUB2FTcRZo0snyWAvjzbxBvZBSQrGFP7PFWcYd19wEMoUVQy"
    "GBDGBxCitXgfBItf7QpHIxDYki67CJrhfCjBBF4JaUXNYa4bSftYglOzcDNVoptutwh8CoLu6kVRx6vmlhC1uDOT1FYlROuGohtZ73Dyogwi8EtFo5"
    "lBTqVeUVYxBy3KbmBY0EvSSph3FxSzAl9Nb0OKbGV9QMIi7hpJYmTIgN2VXs1nKuLp0wLPCR9aXhN5zBShf/6EtqzGmNLNQZNpFc2n3MJtgNViQqqA"
    "jW3FeXpIvGv8mi7VwXg2jBpdSMI9I5wjKJWozgza/VvvaJTQquNXqvp9kPlhQk9V5iO7z2gGKjlgjHbUohXgLQcwgCPX+qKQudmUDAZpVjcroMWW7J"
    "fQBYifireQS7EDpF15IlX1JDwrp4v6Q3ROqIvEB/NsaYVuud3kGKIYnWsxQLNOqi09Q58sTx31XZDY3/XI4LdmMDeugKgxvzz03GCrbYvPd1xkX3Fj"
    "yCFDDgUsm/s2JaWdQZy0oPUGniguf/z2en8SPMWcbyXpgQp56UcBxa5eLwxilUzQ3hj5yEAj7klGG9gTaoRnz+GFe8mw8tR0o92Exgswb2B2SSVcSA"
    "zTGO00ekOb61Y08DyQV+W4Uja0tbAUrHekZqUBKMbeIFS0Gh2nSCOxWiopQFTZ67nWgCy1MRgD3Sg85a149ClxiVrupFqTPkUN3AWLGTsiWWhFNsPV"
    "wPtq4Dc5m3AL5UAMw59qRRHdsltwte3Zkw6W6N0SUACi3p/nXUu9rDrYM3VaEVhqSPAHPh2LOMZHMBmeOmG50e9thaD5SCL0w+x/y7TJMMfp41hsxU"
    "cDAejTzR1Ig2Vz5CBhBa9S2jS3mddIVQJcGdvVqoXvlCf7jlVZalahLzzySew3wfaHLCSf7mb5OO/jbtRIy6R3AV6vumjlislLm+ZNYIPIvTm1xjR1"
    "nri5ILXwpzeTgpEbpSPsxKBqFP5c2HwHgPete2JFwahfVwsMM2W3kAvZdFUiFuV6OkXnHGx+9Kv1eaOkBJWj3k9yeV6XxabagwgcfW5hE/taHtTo1O"
    "JSMIKC7aukdGc1u94hcg5qFuF2QRly9ccpk7t8epty65z3epOUwdTAvOZu9CjvqaEBEyTGNodC0Yeu+nrP7kZ+qzVq3UX2H7NtI1I="
)
"""What 244 parties paid in a restaurant: bill, tip and number of guests, a CSV file compressed by zlib, in base64.

The table "tips" of Bryant, P. G. and Smith, M. (1995), Practical Data Analysis: Case Studies in Business Statistics,
as seaborn and plotly ship it, without its other columns.
"""

Library = Any  # what is imported at run time has no types here


class UnfitError(Exception):
    """A check's figure isn't the expected one. ``unit`` is that of the figure, if it isn't the check's."""

    def __init__(self, kind: str, message: str, figure: object, expected: object, unit: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.figure = figure
        self.expected = expected
        self.unit = unit


class Worker:
    """The checks of one GPU, and the report about them."""

    def __init__(self, spec: dict[str, Any], stream: TextIO) -> None:
        self.spec = spec
        self.stream = stream
        self.started = time.monotonic()
        self.checks: list[dict[str, Any]] = []
        self.runtime: dict[str, str | None] = {
            "python": platform.python_version(),
            "cupy": None,
            "cuda_runtime": None,
            "cuda_driver": None,
        }
        self.report: dict[str, Any] = {
            "done": False,
            "step": "start",
            "runtime": self.runtime,
            "checks": self.checks,
            "error": None,
            "seconds": 0.0,
        }

    def publish(self, step: str | None) -> None:
        self.report["step"] = step
        self.report["seconds"] = self.seconds(self.started)
        # The leading line feed parts the report from noise that hasn't ended its line.
        # A status may be of a type of its library's own.
        self.stream.write("\n" + self.spec["marker"] + json.dumps(self.report, default=str) + "\n")
        self.stream.flush()

    @staticmethod
    def seconds(since: float) -> float:
        return round(time.monotonic() - since, 3)

    def note(self, error: BaseException) -> None:
        """Keep the first error: later ones follow from it."""
        if self.report["error"] is None:
            self.report["error"] = {
                "step": self.report["step"],
                "type": type(error).__name__,
                "status": getattr(error, "status", None),
                "kind": getattr(error, "kind", None),
                "message": str(error).strip()[-1000:],
            }

    def check(self, name: str, unit: str | None, action: Callable[[], tuple[Any, Any, str | None]]) -> None:
        """Run one check, which gives its figure, the expected value and a message.

        A wrong figure is noted and the next check goes on; any other error ends the work.
        """
        check: dict[str, Any] = {"name": name, "passed": False, "figure": None, "unit": unit, "expected": None}
        self.publish(name)
        start = time.monotonic()
        try:
            check["figure"], check["expected"], check["message"] = action()
            check["passed"] = True
        except UnfitError as error:
            check["figure"], check["expected"], check["message"] = error.figure, error.expected, str(error)
            check["unit"] = error.unit or unit
            self.note(error)
        except Exception as error:
            check["message"] = str(error).strip()[-1000:] or type(error).__name__
            raise
        finally:
            check["seconds"] = self.seconds(start)
            self.checks.append(check)

    def run(self) -> None:
        try:
            self.work()
            self.report["step"] = None
        except BaseException as error:  # noqa: BLE001 - an exit or an interrupt is an answer, too
            self.note(error)
        self.report["done"] = True
        self.publish(self.report["step"])

    def work(self) -> None:
        cupy, numpy = self.libraries()
        self.quick(cupy, numpy)

    def libraries(self) -> tuple[Library, Library]:
        """Import CuPy and NumPy, and ask CUDA for its versions."""
        self.publish("import numpy")
        numpy = importlib.import_module("numpy")

        self.publish("import cupy")
        cupy = importlib.import_module("cupy")

        self.publish("initialise CUDA")
        self.runtime["cupy"] = cupy.__version__
        runtime = cupy.cuda.runtime
        self.runtime["cuda_runtime"] = cuda_version(runtime.runtimeGetVersion())
        self.runtime["cuda_driver"] = cuda_version(runtime.driverGetVersion())
        return cupy, numpy

    def quick(self, cupy: Library, numpy: Library) -> None:
        self.check("context", "MiB free", lambda: self.context(cupy))
        self.check("arange_sum", None, lambda: self.arange_sum(cupy))
        self.check("compile", "wrong elements", lambda: self.compile(cupy, numpy))
        self.check("matmul", "relative error", lambda: self.matmul(cupy, numpy))
        self.check("matmul_rate", "TFLOP/s", lambda: self.matmul_rate(cupy))

        if self.spec["cudf"]:
            self.publish("import cudf")
            cudf = importlib.import_module("cudf")
            self.check("tips_groupby", "%", lambda: self.tips_groupby(cudf))

    def context(self, cupy: Library) -> tuple[Any, Any, str | None]:
        runtime = cupy.cuda.runtime
        count = runtime.getDeviceCount()
        cupy.cuda.Device(0).use()
        properties = runtime.getDeviceProperties(0)
        bus_id = "{:08X}:{:02X}:{:02X}.0".format(
            properties["pciDomainID"], properties["pciBusID"], properties["pciDeviceID"]
        )
        wanted = self.spec["pci_bus_id"]
        if count != 1 or (wanted and bus_id != wanted):
            raise UnfitError(
                "wrong_result",
                f"CUDA shows {count} GPUs, the first at {bus_id}, where only the one at {wanted} was asked for",
                bus_id,
                wanted,
            )
        runtime.free(0)
        free, total = runtime.memGetInfo()
        return free >> 20, None, f"{properties['name'].decode()}, {total >> 20} MiB"

    def arange_sum(self, cupy: Library) -> tuple[Any, Any, str | None]:
        found = cupy.arange(6).reshape(2, 3).astype("f").sum(axis=1).tolist()
        if found != [3, 12]:
            raise UnfitError("wrong_result", f"the sums of arange(6) in two rows are {found}", found, [3, 12])
        return found, [3, 12], None

    def compile(self, cupy: Library, numpy: Library) -> tuple[Any, Any, str | None]:
        kernel = cupy.RawKernel(KERNEL, "square_plus")
        host = numpy.arange(KERNEL_ELEMENTS, dtype=numpy.float32) % 1024
        source = cupy.asarray(host)
        target = cupy.zeros_like(source)
        threads = 256
        blocks = (KERNEL_ELEMENTS + threads - 1) // threads
        kernel((blocks,), (threads,), (source, target, numpy.float32(3), numpy.uint32(KERNEL_ELEMENTS)))
        # Squares of integers below 1024 are exact in FP32: any difference is an error.
        wrong = int((cupy.asnumpy(target) != host * host + 3).sum())
        if wrong:
            message = f"a kernel compiled at run time gave {wrong} wrong elements of {KERNEL_ELEMENTS}"
            raise UnfitError("wrong_result", message, wrong, 0)
        return wrong, 0, None

    def matmul(self, cupy: Library, numpy: Library) -> tuple[Any, Any, str | None]:
        random = numpy.random.RandomState(6)
        left = random.uniform(-1, 1, (MATMUL_SIDE, MATMUL_SIDE)).astype(numpy.float32)
        right = random.uniform(-1, 1, (MATMUL_SIDE, MATMUL_SIDE)).astype(numpy.float32)
        found = cupy.asnumpy(cupy.asarray(left) @ cupy.asarray(right)).astype(numpy.float64)
        left, right = left.astype(numpy.float64), right.astype(numpy.float64)
        error = float((abs(found - left @ right) / (abs(left) @ abs(right))).max())
        expected = f"<= {MATMUL_TOLERANCE:g}"
        if math.isnan(error) or error > MATMUL_TOLERANCE:
            figure = error if math.isfinite(error) else str(error)
            raise UnfitError(
                "wrong_result", f"a matrix product differs from the CPU's by {error:.2g} (relative)", figure, expected
            )
        return error, expected, None

    def matmul_rate(self, cupy: Library) -> tuple[Any, Any, str | None]:
        runtime = cupy.cuda.runtime
        properties = runtime.getDeviceProperties(0)
        peak = fp32_peak(
            properties["major"],
            properties["minor"],
            properties["multiProcessorCount"],
            runtime.deviceGetAttribute(CLOCK_RATE, 0) * 1000,
        )
        left = cupy.ones((RATE_SIDE, RATE_SIDE), dtype="f")
        right = cupy.ones((RATE_SIDE, RATE_SIDE), dtype="f")
        left @ right
        best = math.inf
        for _run in range(RATE_RUNS):
            runtime.deviceSynchronize()
            start = time.perf_counter()
            left @ right
            runtime.deviceSynchronize()
            best = min(best, time.perf_counter() - start)
        rate = round(2 * RATE_SIDE**3 / best / 1e12, 3)
        if peak is None:
            return rate, None, None
        floor = round(RATE_SHARE * peak / 1e12, 3)
        if rate < floor:
            message = (
                f"FP32 matrix products reach {rate} TFLOP/s, less than {RATE_SHARE:.0%} of the peak of"
                f" {peak / 1e12:.1f} TFLOP/s"
            )
            raise UnfitError("slow", message, rate, f">= {floor}")
        return rate, f">= {floor}", f"{rate * 1e12 / peak:.0%} of the peak of {peak / 1e12:.1f} TFLOP/s"

    def tips_groupby(self, cudf: Library) -> tuple[Any, Any, str | None]:
        """Average the tips, as a percentage of the bill, by size of party."""
        frame = cudf.DataFrame(tips())
        frame["percentage"] = frame["tip"] / frame["total_bill"] * 100
        means = frame.groupby("size")["percentage"].mean().sort_index()
        sizes, found = means.index.to_arrow().to_pylist(), means.to_arrow().to_pylist()
        figure = [str(one) if one is None or not math.isfinite(one) else round(one, 6) for one in found]
        expected = list(TIPS_PERCENTAGES.values())
        if sizes != list(TIPS_PERCENTAGES) or not all(
            isinstance(one, float) and math.isclose(one, wanted, rel_tol=TIPS_TOLERANCE)
            for one, wanted in zip(found, expected)
        ):
            message = f"cuDF's mean percentages of tips by size of party are {figure} for {sizes}"
            raise UnfitError("wrong_result", message, figure, expected)
        return figure, expected, f"cuDF {cudf.__version__}"


WORKERS: dict[str, type[Worker]] = {"quick": Worker}
"""Kinds of work by name. The texts of deeper levels are appended to this one, and add their own."""


def tips() -> dict[str, list[float]]:
    """The columns of the table of tips."""
    rows = csv.DictReader(io.StringIO(zlib.decompress(base64.b64decode(TIPS)).decode()))
    bills, given, sizes = zip(*((float(row["total_bill"]), float(row["tip"]), int(row["size"])) for row in rows))
    return {"total_bill": list(bills), "tip": list(given), "size": list(sizes)}


def cuda_version(number: int) -> str | None:
    """13020 is CUDA 13.2; 0 is no CUDA."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def fp32_peak(major: int, minor: int, multiprocessors: int, hertz: float) -> float | None:
    """FLOP/s of FP32 outside of tensor cores, or None for an unknown architecture."""
    lanes = FP32_LANES.get(f"{major}.{minor}", FP32_LANES.get(str(major)))
    return 2.0 * lanes * multiprocessors * hertz if lanes and hertz else None


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(spec: dict[str, Any]) -> None:
    die_with_parent()
    # Also where nobody can end this process from outside, as in a container, it ends.
    signal.alarm(math.ceil(spec["timeout"]) + 5)
    faulthandler.enable()
    if os.getpid() == 1:  # of a container, which a signal that nobody handles doesn't end
        faulthandler.dump_traceback_later(math.ceil(spec["timeout"]) + 5, exit=True)
    os.environ.update(spec["environment"])
    WORKERS[spec["work"]](spec, sys.stdout).run()
    # Not sys.exit(): a driver in trouble may hang in the libraries' exit handlers, after all was said.
    os._exit(0)
