# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML's functions: which the library has, and what an answer of each must look like."""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import dataclass
from typing import Any

from .base import PAYLOAD, SimulatorError

#: Struct answers of a recording, as the numbers that the library wants, in order.
STRUCT_FIELDS = {
    "nvmlDeviceGetMemoryInfo": ("total", "free", "used"),
    "nvmlDeviceGetMemoryInfo_v2": ("total", "reserved", "free", "used"),
    "nvmlDeviceGetBAR1MemoryInfo": ("bar1Total", "bar1Free", "bar1Used"),
    "nvmlDeviceGetUtilizationRates": ("gpu", "memory"),
    "nvmlDeviceGetRowRemapperHistogram": ("max", "high", "partial", "low", "none"),
    "nvmlDeviceGetGpuFabricInfoV": ("clusterUuid", "status", "cliqueId", "state", "healthMask"),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId"),
    "nvmlSystemGetConfComputeState": ("environment", "ccFeature", "devToolsMode"),
}
PROCESS_FIELDS = ("pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId")
#: What one record of the library's state file can hold.
MAX_NUMBERS, LOWEST, HIGHEST, MAX_ERROR = 256, -(2**63), 2**64 - 1, 999


@dataclass(frozen=True)
class Shape:
    """What an answer looks like: on how many arguments it depends, and C(form) or how many numbers it has."""

    arguments: int
    form: str
    count: int = 0

    def sentence(self, name: str) -> str:
        """Say what the value must be."""
        if self.form == "struct":
            return f"a dictionary of the numbers {', '.join(STRUCT_FIELDS[name])}"
        if self.form == "numbers" and self.count:
            return f"a list of {self.count} numbers"
        return {
            "text": "a text of one line", "number": "a number", "numbers": "a list of numbers",
            "processes": f"a list of processes with a 'pid' and, if wanted, {', '.join(PROCESS_FIELDS[1:])}",
        }[self.form]  # fmt: skip

    def fits(self, name: str, value: Any) -> bool:
        """Return whether the value has this shape."""
        if self.form == "text":
            return isinstance(value, str) and value.isprintable()
        if self.form == "number":
            return _is_number(value)
        if self.form == "struct":
            return isinstance(value, dict) and all(
                _is_number(value.get(key)) or _are_numbers(value.get(key)) for key in STRUCT_FIELDS[name]
            )
        if self.form == "processes":
            return isinstance(value, list) and len(value) <= MAX_NUMBERS // 4 and all(map(_is_process, value))
        return _are_numbers(value) and self.count in (0, len(value))


#: The arguments and the form of answers that nvml.c makes with these macros.
MACROS = {
    "TEXT": Shape(0, "text"), "NUMBER": Shape(0, "number"), "TWO_NUMBERS": Shape(0, "numbers", 2),
    "NUMBER_OF": Shape(1, "number"), "NUMBER_OF_LINK": Shape(1, "number"), "NUMBER_OF_TWO": Shape(2, "number"),
}  # fmt: skip
#: Those of the functions that nvml.c writes out.
WRITTEN_OUT = {
    "nvmlDeviceGetBridgeChipInfo": Shape(0, "number"),
    "nvmlDeviceGetComputeRunningProcesses": Shape(0, "processes"),
    "nvmlDeviceGetConfComputeMemSizeInfo": Shape(0, "numbers", 2),
    "nvmlDeviceGetCpuAffinity": Shape(0, "numbers"),
    "nvmlDeviceGetCurrentClocksEventReasons": Shape(0, "number"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": Shape(0, "number"),
    "nvmlDeviceGetDefaultEccMode": Shape(0, "numbers", 1),
    "nvmlDeviceGetGraphicsRunningProcesses": Shape(0, "processes"),
    "nvmlDeviceGetGspFirmwareVersion": Shape(0, "text"),
    "nvmlDeviceGetInforomVersion": Shape(1, "text"),
    "nvmlDeviceGetMPSComputeRunningProcesses": Shape(0, "processes"),
    "nvmlDeviceGetMemoryAffinity": Shape(0, "numbers"),
    "nvmlDeviceGetNvLinkCapability": Shape(2, "number"),
    "nvmlDeviceGetRemappedRows": Shape(0, "numbers", 4),
    "nvmlDeviceGetRetiredPages": Shape(1, "numbers"),
    "nvmlDeviceGetRetiredPagesPendingStatus": Shape(0, "number"),
    "nvmlDeviceGetSupportedGraphicsClocks": Shape(1, "numbers"),
    "nvmlDeviceGetSupportedMemoryClocks": Shape(0, "numbers"),
    "nvmlDeviceGetSupportedPerformanceStates": Shape(0, "numbers"),
    "nvmlDeviceGetTemperature": Shape(0, "number"),
    "nvmlDeviceGetTotalEccErrors": Shape(2, "number"),
    "nvmlDeviceGetViolationStatus": Shape(1, "numbers", 2),
    **{name: Shape(int("NvLink" in name), "struct") for name in STRUCT_FIELDS if name.startswith("nvmlDevice")},
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and LOWEST <= value <= HIGHEST


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_NUMBERS and all(map(_is_number, value))


def _is_process(value: Any) -> bool:
    return (
        isinstance(value, dict) and "pid" in value and set(value) <= set(PROCESS_FIELDS)
        and all(map(_is_number, value.values()))
    )  # fmt: skip


@functools.cache
def _source() -> tuple[frozenset[str], dict[str, Shape]]:
    """Return the library's functions and the shapes of the answers that it looks up, as its source has them."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((PAYLOAD / "src").glob("*.c")))
    made = re.findall(r'^([A-Z_]+)\((nvml\w+)(?:, "(nvml\w+)")?', text, re.MULTILINE)
    defined = re.findall(r"^API \w.*?\b(nvml\w+)\(", text, re.MULTILINE)
    shapes = {key or symbol: MACROS[macro] for macro, symbol, key in made if macro in MACROS}
    return frozenset([*defined, *(symbol for _macro, symbol, _key in made)]), {**shapes, **WRITTEN_OUT}


def functions() -> frozenset[str]:
    """Return the functions that the library exports."""
    return _source()[0]


def check_function(name: str, what: str) -> None:
    """Raise SimulatorError where the library has no function of that name; C(what) says who names it."""
    if name not in functions():
        near = difflib.get_close_matches(name, sorted(functions()), 1)
        hint = f"the nearest is {near[0]}" if near else "one is nvmlDeviceGetMemoryInfo"
        raise SimulatorError(f"{what} names {name!r}, which is none of NVML's functions; {hint}.")


def check_answer(model: str, key: str, answer: Any) -> None:
    """Raise SimulatorError where a function can't answer that, or the library would not ask for it."""
    says = f"The GPU model {model!r} says {answer!r} for {key!r};"
    name, *arguments = key.split(":")
    good = isinstance(answer, dict) and len(answer) == 1 and ("value" in answer or _is_number(answer.get("error")))
    if not good or not re.fullmatch(r"nvml[A-Z]\w*(:\d+)*", key):
        raise SimulatorError(f"{says} it must be {{'value': ...}} or {{'error': code}}.")
    check_function(name, f"The GPU model {model!r}")
    shape = _source()[1].get(name)
    if shape is None:
        raise SimulatorError(f"{says} the simulator does not support that function or makes its answer itself.")
    if len(arguments) != shape.arguments:
        raise SimulatorError(f"{says} write that function as {':'.join([name, *['0'] * shape.arguments])}.")
    if "error" in answer and not 1 <= answer["error"] <= MAX_ERROR:
        raise SimulatorError(f"{says} an NVML code is a number between 1 and {MAX_ERROR}.")
    if "value" in answer and not shape.fits(name, answer["value"]):
        raise SimulatorError(f"{says} the value must be {shape.sentence(name)}.")
