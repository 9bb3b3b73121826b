# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .answers import model_of_recording
from .base import VERSION, Changes, Paths, SimulatorError, read_json
from .devices import unmount
from .faults import DEFAULT_SECONDS, FAULT_KINDS, checked
from .host import apply, check, read_config, read_faults, remove, start, write_faults
from .record import record
from .simulation import load_profile


def plan(request: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration for a request (the role's variables), checked."""
    config = {key: value for key, value in request.items() if key != "gpus"}
    profile = load_profile(str(request.get("profile") or "none"))
    if request.get("gpus"):
        config["profile"] = "custom"
    config["gpus"] = request.get("gpus") or profile["gpus"]
    config["models"] = profile.get("models", {})
    if "driver_branch" in profile:
        config["driver_branch"] = profile["driver_branch"]
    if not isinstance(config["gpus"], list):
        raise SimulatorError(f"'gpus' must be a list, not {config['gpus']!r}.")
    for key in ("mounts", "device_nodes"):
        config[key] = str(config.get(key, "auto")).lower()
        if config[key] not in ("auto", "true", "false"):
            raise SimulatorError(f"{key!r} must be auto, true or false, not {config[key]!r}.")
    simulation = checked(config)
    models = {gpu.model_name: gpu.model for gpu in simulation.gpus}
    entries = [entry for entry in config["gpus"] if entry.get("count", 1) > 0]
    return {**simulation.config, "gpus": entries, "models": models, "simulator_version": VERSION}


def show(paths: Paths) -> dict[str, Any]:
    """Return what is simulated now."""
    simulation = checked(read_config(paths))
    return {
        "profile": simulation.config.get("profile", ""),
        "driver": simulation.driver,
        "driver_version": simulation.driver_version if simulation.driver else None,
        "gpus": [
            {
                "index": gpu.index, "model": gpu.model_name, "name": gpu.name, "uuid": gpu.uuid,
                "pci_bus_id": gpu.sysfs_address, "provenance": gpu.model.get("provenance"),
                "mig": [{"profile": mig.profile, "uuid": mig.uuid} for mig in gpu.migs],
            }
            for gpu in simulation.gpus
        ],
        "faults": read_faults(paths),
    }  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    text = "Simulated NVIDIA GPUs: show them, make them fail."
    parser = argparse.ArgumentParser(prog="gpu-simulator", description=text)
    parser.add_argument("--prefix", default="/", help="work below this directory instead of /")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="print the simulated GPUs and the faults that are on")
    commands.add_parser("check", help="ask the library and compare with the configuration")
    fault = commands.add_parser("fault", help="switch faults, also for programs that are running")
    actions = fault.add_subparsers(dest="action", required=True)
    add = actions.add_parser("add", help="switch a fault on, beside those that are on")
    add.add_argument("--kind", required=True, choices=list(FAULT_KINDS))
    add.add_argument("--gpu", default="all", help="index or UUID (default: all)")
    add.add_argument("--function", default="*", help="an NVML function (default: every function that takes a GPU)")
    add.add_argument("--seconds", type=float, help=f"how long a slow call takes (default {DEFAULT_SECONDS:g})")
    add.add_argument("--count", type=int, help="how many ECC errors (default 1)")
    add.add_argument("--code", type=int, help="the NVML code of kind error (default 999)")
    actions.add_parser("clear", help="switch all faults off")
    actions.add_parser("list", help="print the faults that are on")
    for name, text in (("apply", "make the host match the configuration"), ("remove", "take the simulation away")):
        commands.add_parser(name, help=text).add_argument("--check", action="store_true", help="change nothing")
    commands.add_parser("start", help="make device nodes and mounts (at boot)")
    commands.add_parser("stop", help="take the mounts away")
    commands.add_parser("plan", help="check a configuration: JSON on standard input")
    commands.add_parser("record", help="print a recording of this machine's NVML answers (needs nvidia-ml-py)")
    model = commands.add_parser("model", help="make a GPU model of a recording of NVML answers")
    model.add_argument("recording", type=Path)
    model.add_argument("--device", type=int, default=0, help="index of the GPU in the recording (default 0)")
    model.add_argument("--name", required=True, help="the model's name")
    return parser


def _plan_command() -> dict[str, Any]:
    """For the role: a mistake is an answer too, so that it can be shown as one sentence."""
    try:
        return {"config": plan(json.load(sys.stdin))}
    except SimulatorError as error:
        return {"error": str(error)}


def _fault_command(options: argparse.Namespace, paths: Paths) -> Any:
    faults = read_faults(paths)
    if options.action == "list":
        return faults
    simulation = checked(read_config(paths))
    if options.action == "clear":
        faults = []
    else:
        given = {key: value for key in ("seconds", "count", "code") if (value := getattr(options, key)) is not None}
        faults = [*faults, {"gpu": options.gpu, "function": options.function, "kind": options.kind, **given}]
    write_faults(Changes(), paths, simulation, faults)
    return faults


def run(options: argparse.Namespace) -> Any:
    """Do what the command line says and return what to print."""
    paths = Paths(Path(options.prefix))
    if options.command == "fault":
        return _fault_command(options, paths)
    if options.command in ("apply", "remove"):
        changes = (apply if options.command == "apply" else remove)(paths, options.check)
        return {"changed": bool(changes.paths), "paths": changes.paths, "notes": changes.notes}
    if options.command in ("start", "stop"):
        changes = Changes()
        (start if options.command == "start" else unmount)(paths, changes)
        return {"changed": bool(changes.paths), "paths": changes.paths, "notes": changes.notes}
    if options.command == "model":
        recording = read_json(options.recording, "The recording")
        return model_of_recording(recording, options.device, options.name)
    if options.command == "plan":
        return _plan_command()
    if options.command == "record":
        return record()
    return {"show": show, "check": check}[options.command](paths)


def main() -> int:
    """Run the command line."""
    try:
        print(json.dumps(run(_parser().parse_args()), indent=1))
    except SimulatorError as error:
        print(f"gpu-simulator: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"gpu-simulator: {error.filename}: {error.strerror}; run this as root.", file=sys.stderr)
        return 1
    except OSError as error:
        path = error.filename2 or error.filename
        where = f"{path}: " if path else ""
        print(f"gpu-simulator: {where}{error.strerror}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
