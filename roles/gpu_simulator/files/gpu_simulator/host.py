# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making a host match its configuration, asking it, and taking everything away again."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

from .answers import compile_state
from .base import VERSION, Changes, Paths, SimulatorError, read_json
from .devices import make_mounts, make_nodes, remove_nodes, unmount
from .faults import FAULT_KINDS, check_faults, checked, compile_faults, faulty_gpus, stops_init
from .library import install_library, remove_library
from .simulation import Simulation
from .tree import tree, write_tree


def read_config(paths: Paths) -> dict[str, Any]:
    """Return the configuration of this host."""
    config = read_json(paths.state / "config.json", "The configuration")
    if not isinstance(config, dict):
        raise SimulatorError(f"The configuration {paths.state / 'config.json'} is not a dictionary.")
    return config


def read_faults(paths: Paths) -> list[dict[str, Any]]:
    """Return the faults that are on now."""
    path = paths.state / "faults.json"
    return list(read_json(path, "The list of faults")) if path.exists() else []


def write_faults(changes: Changes, paths: Paths, simulation: Simulation, faults: list[dict[str, Any]]) -> None:
    """Switch to these faults: the library's, and what the tree shows of them."""
    check_faults(simulation, faults)
    changes.write(paths.state / "faults.json", json.dumps(faults, indent=1) + "\n")
    changes.write(paths.state / "faults", compile_faults(faults))
    write_tree(changes, paths.root, tree(simulation, faults))


def marker(simulation: Simulation, paths: Paths) -> str:
    """Return the marker by which the collection's modules know a simulated host."""
    return json.dumps(
        {
            "simulator": "cudahub.gpu", "version": VERSION, "profile": simulation.config.get("profile", ""),
            "driver": simulation.driver, "root": str(paths.root),
        },
        indent=1,
    ) + "\n"  # fmt: skip


def apply(paths: Paths, check: bool) -> Changes:
    """Make the host match its configuration."""
    changes = Changes(check)
    simulation = checked(read_config(paths))
    install_library(changes, paths, simulation)
    if simulation.driver:
        changes.write(paths.state / "state", compile_state(simulation, os.cpu_count()))
    else:
        changes.remove(paths.state / "state")
    write_faults(changes, paths, simulation, simulation.faults)
    changes.write(paths.state / "marker.json", marker(simulation, paths))
    start(paths, changes)
    return changes


def start(paths: Paths, changes: Changes) -> None:
    """Make what a boot takes away: device nodes and mounts."""
    simulation = checked(read_config(paths))
    make_nodes(paths, changes, simulation, str(simulation.config.get("device_nodes", "auto")))
    make_mounts(paths, changes, simulation, str(simulation.config.get("mounts", "auto")))


def remove(paths: Paths, check: bool) -> Changes:
    """Take away all that apply and start made. The payload itself is the role's to remove."""
    changes = Changes(check)
    unmount(paths, changes)
    remove_nodes(paths, changes)
    remove_library(changes, paths)
    for path in (paths.root.parent, paths.run, paths.state):
        changes.remove(path)
    return changes


def check(paths: Paths, library: str = "libnvidia-ml.so.1") -> dict[str, Any]:
    """Ask the library as any client would, and compare with the configuration; raise SimulatorError at a difference."""
    simulation, faults = checked(read_config(paths)), read_faults(paths)
    if not simulation.driver:
        return {"driver": False, "gpus": len(simulation.gpus)}
    try:
        nvml = ctypes.CDLL(library)
    except OSError as error:
        raise SimulatorError(f"{library} can't be loaded: {error}.") from None
    if not hasattr(nvml, "gpuSimulatorVersion"):
        raise SimulatorError(f"{library} is not the simulator's.")
    expected = next((fault["kind"] for fault in faults if stops_init(fault)), None)
    code = nvml.nvmlInit_v2()
    if expected is not None:
        if code != FAULT_KINDS[expected]:
            raise SimulatorError(f"The fault {expected!r} is on, but NVML starts with code {code}.")
        return {"driver": True, "gpus": 0, "fault": expected}
    if code != 0:
        raise SimulatorError(f"NVML does not start: code {code}.")
    count = ctypes.c_uint()
    code = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlShutdown()
    gone = {gpu.index for fault in faults if fault["kind"] == "vanish" for gpu in faulty_gpus(simulation, fault)}
    wanted = len(simulation.gpus) - len(gone)
    if code == 0 and count.value != wanted:
        raise SimulatorError(f"NVML counts {count.value} GPUs instead of {wanted}.")
    return {"driver": True, "gpus": count.value, "fault": None if code == 0 else code}
