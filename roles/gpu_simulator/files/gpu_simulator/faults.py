# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults: which there are, whether a simulation can have them, and the library's faults file."""

from __future__ import annotations

import re
from typing import Any

from .answers import answers
from .base import SimulatorError
from .functions import check_function
from .simulation import Gpu, Simulation, resolve

#: What a kind of fault does: the NVML code that calls give (None: it changes values instead).
FAULT_KINDS: dict[str, int | None] = {
    "lost": 15, "no_permission": 4, "mismatch": 18, "not_loaded": 9, "reset_required": 16, "unknown": 999,
    "timeout": 10, "slow": 0, "error": 0, "vanish": None, "ecc": None, "remap_pending": None, "remap_failed": None,
    "pages_pending": None, "power_slowdown": None, "thermal_slowdown": None,
}  # fmt: skip
DRIVER_FAULTS = ("mismatch", "not_loaded")
SLEEPING_FAULTS = ("timeout", "slow")
DEFAULT_SECONDS = 30.0
LIMITS = (("seconds", 0, 86400, (int, float)), ("count", 0, 2**31 - 1, int), ("code", 1, 999, int))


def base_name(function: str) -> str:
    """Return a function's name without its version."""
    base = re.sub(r"_v\d+$", "", function)
    return "nvmlInit" if base == "nvmlInitWithFlags" else base


def _needs_support(kind: str) -> str | None:
    return {
        "ecc": "nvmlDeviceGetTotalEccErrors:1:0",
        "remap_pending": "nvmlDeviceGetRemappedRows",
        "remap_failed": "nvmlDeviceGetRemappedRows",
        "pages_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    }.get(kind)


def faulty_gpus(simulation: Simulation, fault: dict[str, Any]) -> list[Gpu]:
    """Return the GPUs that a fault is for."""
    wanted = str(fault.get("gpu", "all"))
    if wanted == "all":
        return simulation.gpus
    return [
        gpu
        for gpu in simulation.gpus
        if wanted in (str(gpu.index), gpu.uuid) or wanted in [mig.uuid for mig in gpu.migs]
    ]


def check_faults(simulation: Simulation, faults: list[dict[str, Any]]) -> None:
    """Raise SimulatorError for the first fault that can't be simulated."""
    for fault in faults:
        _check_settings(fault)
        _check_target(simulation, fault)


def _check_settings(fault: Any) -> None:
    if not isinstance(fault, dict):
        raise SimulatorError(f"A fault must be a dictionary with a 'kind', not {fault!r}.")
    unknown = set(fault) - {"gpu", "function", "kind", "seconds", "count", "code"}
    if unknown:
        raise SimulatorError(f"A fault has no setting {', '.join(sorted(unknown))}.")
    kind = fault.get("kind")
    if kind not in FAULT_KINDS:
        raise SimulatorError(f"There is no fault kind {kind!r}; the kinds are {', '.join(FAULT_KINDS)}.")
    function = str(fault.get("function", "*"))
    if function != "*" and not re.fullmatch(r"nvml[A-Z]\w{0,80}", function):
        raise SimulatorError(f"{function!r} is not an NVML function such as nvmlDeviceGetMemoryInfo.")
    if function != "*":
        check_function(function, f"The fault {kind!r}")
    for name, lowest, highest, types in LIMITS:
        value = fault.get(name, lowest)
        if isinstance(value, bool) or not isinstance(value, types) or not lowest <= value <= highest:
            raise SimulatorError(
                f"{name!r} of the fault {kind!r} must be a number between {lowest} and {highest}, not {value!r}."
            )


def _check_target(simulation: Simulation, fault: dict[str, Any]) -> None:
    kind, gpu = str(fault["kind"]), str(fault.get("gpu", "all"))
    if gpu == "all":
        return
    hit = faulty_gpus(simulation, fault)
    if not hit:
        raise SimulatorError(f"The fault {kind!r} is for GPU {gpu}, which this simulation does not have.")
    if kind in DRIVER_FAULTS and fault.get("function", "*") == "*":
        raise SimulatorError(f"The fault {kind!r} is one of the driver: leave 'gpu' out.")
    need = _needs_support(kind)
    if need and "value" not in answers(simulation, hit[0]).get(need, {}):
        raise SimulatorError(f"The fault {kind!r} is not possible on GPU {gpu}: a {hit[0].name} does not have that.")


def checked(config: dict[str, Any]) -> Simulation:
    """Return the GPUs and faults that a configuration describes; raise SimulatorError where it can't be."""
    simulation = resolve(config)
    check_faults(simulation, simulation.faults)
    return simulation


def compile_faults(faults: list[dict[str, Any]]) -> str:
    """Return the text of the faults file."""
    lines = ["gpu-simulator-faults 1"]
    for fault in faults:
        kind, gpu = fault["kind"], str(fault.get("gpu", "all"))
        function = base_name(str(fault.get("function", "*")))
        if function == "*" and (kind in DRIVER_FAULTS or (kind == "no_permission" and gpu == "all")):
            function = "nvmlInit"
        code = fault.get("code", 999) if kind == "error" else FAULT_KINDS[kind]
        milliseconds = int(fault.get("seconds", DEFAULT_SECONDS) * 1000) if kind in SLEEPING_FAULTS else 0
        word = kind if code is None else "error"
        lines.append(f"{gpu} {function} {word} {code or 0} {milliseconds} {fault.get('count', 1)}")
    return "\n".join(lines) + "\n"


def driver_fault(faults: list[dict[str, Any]]) -> str | None:
    """Return the fault that keeps the driver as a whole from working, if there is one."""
    for fault in faults:
        if fault["kind"] in DRIVER_FAULTS and fault.get("function", "*") == "*":
            return str(fault["kind"])
    return None


def stops_init(fault: dict[str, Any]) -> bool:
    """Return whether NVML can't be initialized with this fault."""
    function = str(fault.get("function", "*"))
    every = function == "*" and str(fault.get("gpu", "all")) == "all"
    return bool(FAULT_KINDS[fault["kind"]]) and (
        base_name(function) == "nvmlInit" or (every and fault["kind"] in (*DRIVER_FAULTS, "no_permission"))
    )
