#!/usr/bin/env python3
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU simulator's command: turns a profile into what the simulated driver shows, and switches faults.

Runs with the standard library of Python 3.9 and later. The simulation is described by
``/etc/gpu-simulator/config.json``; ``apply`` makes the host match it.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

VERSION = "0.1.0"
PAYLOAD = Path(__file__).resolve().parent
LIBRARY_NAME = "libnvidia-ml.so"
MAX_GPUS = 64

#: The CUDA version that a driver branch brings (its NVML says the same).
CUDA_OF_BRANCH = {
    525: "12.0", 530: "12.1", 535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7",
    570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 595: "13.2", 610: "13.3",
}  # fmt: skip

#: What a kind of fault does: the NVML code that calls give (None: it changes values instead).
FAULT_KINDS: dict[str, Optional[int]] = {
    "lost": 15, "no_permission": 4, "mismatch": 18, "not_loaded": 9, "reset_required": 16, "unknown": 999,
    "timeout": 10, "slow": 0, "error": 0, "vanish": None, "ecc": None, "remap_pending": None, "remap_failed": None,
    "pages_pending": None, "power_slowdown": None, "thermal_slowdown": None,
}  # fmt: skip
DRIVER_FAULTS = ("mismatch", "not_loaded")
SLEEPING_FAULTS = ("timeout", "slow")
DEFAULT_SECONDS = 30.0

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
#: Recorded names whose key in the state file is another one.
STATE_KEYS = {"nvmlDeviceGetNvLinkRemotePciInfo_v2": "nvmlDeviceGetNvLinkRemotePciInfo"}
#: Answered by the library itself or placed per GPU, never taken from a model.
NOT_FROM_MODEL = (
    "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetBoardId", "nvmlDeviceIsMigDeviceHandle", "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetAttributesV2", "nvmlDeviceGetDetailedEccErrors",
)  # fmt: skip
NOT_SUPPORTED = 3
NVSWITCH = {"domain": 0xFFFFFFFF, "bus": 0xFF, "device": 0xFF, "pciDeviceId": 0xFFFFFFFF, "pciSubSystemId": 0}
NVML_MAJOR, CONTROL_MINOR, MODESET_MINOR, UVM_MINOR, UVM_TOOLS_MINOR, CAPS_MINOR = 195, 255, 254, 253, 252, 1024


class SimulatorError(Exception):
    """Something the user can put right; the message is one sentence."""


# ---- paths ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paths:
    """Where things are, below a prefix (``/`` on a real host, a directory in tests)."""

    prefix: Path = Path("/")

    @property
    def state(self) -> Path:
        """Directory of the configuration, the state and the faults."""
        override = os.environ.get("GPU_SIMULATOR_STATE")
        return Path(override) if override and self.prefix == Path("/") else self.prefix / "etc/gpu-simulator"

    @property
    def root(self) -> Path:
        """The made-up tree."""
        return self.prefix / "var/lib/gpu-simulator/root"

    @property
    def library(self) -> Path:
        """Directory of the library."""
        return self.prefix / "usr/local/lib/gpu-simulator"

    @property
    def ld_conf(self) -> Path:
        """The file that makes the library known."""
        return self.prefix / "etc/ld.so.conf.d/gpu-simulator.conf"

    @property
    def dev(self) -> Path:
        """Device nodes."""
        return self.prefix / "dev"

    @property
    def run(self) -> Path:
        """What is made anew at each boot."""
        return self.prefix / "run/gpu-simulator"


# ---- models and profiles ----------------------------------------------------------------------------------------


def _read_json(path: Path, what: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SimulatorError(f"{what} {path} does not exist.") from None
    except (OSError, ValueError) as error:
        raise SimulatorError(f"{what} {path} can't be read as JSON: {error}.") from None


def _shipped(kind: str) -> list[str]:
    return sorted(path.stem for path in (PAYLOAD / kind).glob("*.json"))


def load_model(name: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return the model called C(name): one of the profile's own models, or a shipped one."""
    if name in own:
        model = own[name]
    elif name in _shipped("models"):
        model = _read_json(PAYLOAD / "models" / f"{name}.json", "The model")
    else:
        known = ", ".join([*_shipped("models"), *sorted(own)])
        raise SimulatorError(f"There is no GPU model {name!r}; the models are {known}.")
    for key in ("pci", "nvml"):
        if not isinstance(model, dict) or not isinstance(model.get(key), dict):
            raise SimulatorError(f"The GPU model {name!r} has no {key!r} section.")
    return model


def load_profile(name: str) -> dict[str, Any]:
    """Return the profile C(name): a shipped one, or the JSON file at that path."""
    if name in _shipped("profiles"):
        profile = _read_json(PAYLOAD / "profiles" / f"{name}.json", "The profile")
    elif "/" in name or name.endswith(".json"):
        profile = _read_json(Path(name), "The profile")
    else:
        raise SimulatorError(
            f"There is no profile {name!r}; the profiles are {', '.join(_shipped('profiles'))}, or give the path of a "
            "JSON file."
        )
    if not isinstance(profile, dict) or not isinstance(profile.get("gpus"), list):
        raise SimulatorError(f"The profile {name!r} has no list 'gpus'.")
    return profile


# ---- from a configuration to GPUs -------------------------------------------------------------------------------


@dataclass
class Mig:
    """One MIG instance: a GPU instance with one compute instance that fills it."""

    profile: str
    uuid: str
    gpu_instance: int
    slices: dict[str, Any]
    compute_instance: int = 0


@dataclass
class Gpu:
    """One simulated GPU."""

    index: int
    model_name: str
    model: dict[str, Any]
    uuid: str
    serial: str
    address: tuple[int, int, int]
    numa_node: int
    overrides: dict[str, Any] = field(default_factory=dict)
    mig_enabled: Optional[bool] = None
    migs: list[Mig] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The GPU's name as NVML gives it."""
        return str(self.model["nvml"]["nvmlDeviceGetName"]["value"])

    @property
    def sysfs_address(self) -> str:
        """The PCI address as sysfs writes it: 0000:00:06.0."""
        return "{:04x}:{:02x}:{:02x}.0".format(*self.address)


@dataclass
class Simulation:
    """Everything that a configuration describes."""

    config: dict[str, Any]
    gpus: list[Gpu]

    @property
    def driver(self) -> bool:
        """Whether a driver is simulated, or PCI devices only."""
        return bool(self.config.get("driver", True))

    @property
    def driver_version(self) -> str:
        """The version of the simulated driver."""
        return str(self.config["driver_version"])

    @property
    def cuda_version(self) -> str:
        """The CUDA version of the simulated driver."""
        return str(self.config["cuda_version"])

    @property
    def faults(self) -> list[dict[str, Any]]:
        """The faults that the configuration asks for."""
        return list(self.config.get("faults", []))


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).digest()


def _made_uuid(*parts: object) -> str:
    return str(uuid.UUID(bytes=_digest(*parts)[:16], version=4))


def _address(text: str) -> tuple[int, int, int]:
    match = re.fullmatch(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([01][0-9a-fA-F])(?:\.0)?", text)
    if not match:
        raise SimulatorError(f"{text!r} is not the PCI address of a GPU such as 0000:3b:00.0.")
    return int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16)


def _place(profiles: list[dict[str, Any]]) -> Optional[list[int]]:
    """Return where each MIG profile starts (in memory slices), or None where they don't fit together."""
    if not profiles:
        return []
    taken: list[tuple[int, int]] = []
    order = sorted(range(len(profiles)), key=lambda i: -int(profiles[i]["size"]))
    starts = [0] * len(profiles)

    def place(position: int) -> bool:
        if position == len(order):
            return True
        profile = profiles[order[position]]
        size = int(profile["size"])
        for start in profile["starts"]:
            if all(start + size <= other or start >= other + other_size for other, other_size in taken):
                taken.append((start, size))
                starts[order[position]] = start
                if place(position + 1):
                    return True
                taken.pop()
        return False

    if not place(0):
        return None
    limited = {json.dumps(profile, sort_keys=True): profile for profile in profiles}
    for text, profile in limited.items():
        if "count" in profile and sum(json.dumps(other, sort_keys=True) == text for other in profiles) > profile["count"]:
            return None
    return starts


def _gpu_instance(size: int, start: int) -> int:
    """Return the id of the GPU instance of that size (in memory slices) at that place, as the driver numbers them."""
    first = {8: 0, 4: 1, 2: 3, 1: 7}[size]
    return first + start // size


def _migs(wanted: Any, model_name: str, model: dict[str, Any], gpu_uuid: str) -> list[Mig]:
    known: dict[str, dict[str, Any]] = model.get("mig_profiles", {})
    if not known:
        raise SimulatorError(f"The GPU model {model_name!r} has no MIG; leave 'mig' out.")
    if not isinstance(wanted, list):
        raise SimulatorError(f"'mig' of {model_name!r} must be a list of MIG profiles, not {wanted!r}.")
    for name in wanted:
        if name not in known:
            raise SimulatorError(f"The GPU model {model_name!r} has no MIG profile {name!r}; it has {', '.join(known)}.")
    starts = _place([known[name] for name in wanted])
    if starts is None:
        raise SimulatorError(f"The MIG profiles {', '.join(wanted)} don't fit together on one {model_name!r}.")
    made = [
        Mig(name, "MIG-" + _made_uuid(gpu_uuid, instance, 0), instance, known[name])
        for name, instance in (
            (name, _gpu_instance(int(known[name]["size"]), start)) for name, start in zip(wanted, starts)
        )
    ]
    return sorted(made, key=lambda mig: mig.gpu_instance)


def resolve(config: dict[str, Any]) -> Simulation:
    """Return the GPUs that a configuration describes; raise SimulatorError where it can't be."""
    version = str(config.get("driver_version", ""))
    if not re.fullmatch(r"\d{3}(\.\d+){1,2}", version):
        raise SimulatorError(f"{version!r} is not the version of a driver such as 580.159.04.")
    if not config.get("cuda_version"):
        branch = int(version.split(".")[0])
        if branch not in CUDA_OF_BRANCH:
            raise SimulatorError(f"The CUDA version of driver branch {branch} isn't known; give 'cuda_version'.")
        config = {**config, "cuda_version": CUDA_OF_BRANCH[branch]}
    if not re.fullmatch(r"\d+\.\d+", str(config["cuda_version"])):
        raise SimulatorError(f"{config['cuda_version']!r} is not a CUDA version such as 13.0.")
    own = config.get("models") or {}
    seed = str(config.get("seed", ""))
    gpus: list[Gpu] = []
    for entry in config.get("gpus") or []:
        _add_gpus(gpus, entry, own, seed)
    addresses = [gpu.address for gpu in gpus]
    for gpu in gpus:
        if addresses.count(gpu.address) > 1:
            raise SimulatorError(f"Two GPUs have the PCI address {gpu.sysfs_address}.")
    simulation = Simulation(config, gpus)
    check_faults(simulation, simulation.faults)
    return simulation


def _add_gpus(gpus: list[Gpu], entry: Any, own: dict[str, Any], seed: str) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("model"), str):
        raise SimulatorError(f"Each of 'gpus' must be a dictionary with a 'model', not {entry!r}.")
    unknown = set(entry) - {"model", "count", "mig", "pci_bus_id", "numa_node", "uuid", "serial", "nvml"}
    if unknown:
        raise SimulatorError(f"A GPU has no setting {', '.join(sorted(unknown))}.")
    name = entry["model"]
    model = load_model(name, own)
    count = entry.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise SimulatorError(f"'count' of {name!r} must be a number that is not negative, not {count!r}.")
    if len(gpus) + count > MAX_GPUS:
        raise SimulatorError(f"A host can have at most {MAX_GPUS} simulated GPUs.")
    if count != 1 and (entry.get("uuid") or entry.get("serial")):
        raise SimulatorError(f"'uuid' and 'serial' of {name!r} need 'count' to be 1.")
    for number in range(count):
        index = len(gpus)
        made = entry.get("uuid") or "GPU-" + _made_uuid(seed, "gpu", index)
        if entry.get("pci_bus_id"):
            domain, bus, device = _address(str(entry["pci_bus_id"]))
            address = domain, bus, device + number
        else:
            address = int(model["pci"].get("domain", 0)), 1 + index, 0
        gpu = Gpu(
            index=index,
            model_name=name,
            model=model,
            uuid=made,
            serial=entry.get("serial") or str(1650000000000 + int.from_bytes(_digest(seed, "serial", index)[:4], "big")),
            address=address,
            numa_node=int(entry.get("numa_node", model["pci"].get("numa_node", -1))),
            overrides=entry.get("nvml") or {},
        )
        if "mig" in entry and entry["mig"] is not None:
            gpu.migs = _migs(entry["mig"], name, model, made)
            gpu.mig_enabled = True
        gpus.append(gpu)


# ---- faults -----------------------------------------------------------------------------------------------------


def _base_name(function: str) -> str:
    base = re.sub(r"_v\d+$", "", function)
    return "nvmlInit" if base == "nvmlInitWithFlags" else base


def _needs_support(kind: str) -> Optional[str]:
    return {
        "ecc": "nvmlDeviceGetTotalEccErrors:1:0",
        "remap_pending": "nvmlDeviceGetRemappedRows",
        "remap_failed": "nvmlDeviceGetRemappedRows",
        "pages_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    }.get(kind)


def _faulty_gpus(simulation: Simulation, fault: dict[str, Any]) -> list[Gpu]:
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
        if not isinstance(fault, dict):
            raise SimulatorError(f"A fault must be a dictionary with a 'kind', not {fault!r}.")
        unknown = set(fault) - {"gpu", "function", "kind", "seconds", "count", "code"}
        if unknown:
            raise SimulatorError(f"A fault has no setting {', '.join(sorted(unknown))}.")
        kind = fault.get("kind")
        if kind not in FAULT_KINDS:
            raise SimulatorError(f"There is no fault kind {kind!r}; the kinds are {', '.join(FAULT_KINDS)}.")
        gpu, function = str(fault.get("gpu", "all")), str(fault.get("function", "*"))
        if gpu != "all" and not _faulty_gpus(simulation, fault):
            raise SimulatorError(f"The fault {kind!r} is for GPU {gpu}, which this simulation does not have.")
        if kind in DRIVER_FAULTS and gpu != "all" and function == "*":
            raise SimulatorError(f"The fault {kind!r} is one of the driver: leave 'gpu' out.")
        if function != "*" and not re.fullmatch(r"nvml[A-Z]\w{0,80}", function):
            raise SimulatorError(f"{function!r} is not an NVML function such as nvmlDeviceGetMemoryInfo.")
        seconds = fault.get("seconds", DEFAULT_SECONDS)
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 86400:
            raise SimulatorError(f"'seconds' of the fault {kind!r} must be between 0 and 86400, not {seconds!r}.")
        count = fault.get("count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
            raise SimulatorError(f"'count' of the fault {kind!r} must be a number that is not negative, not {count!r}.")
        code = fault.get("code", 999)
        if isinstance(code, bool) or not isinstance(code, int) or not 0 < code < 1000:
            raise SimulatorError(f"'code' of the fault {kind!r} must be an NVML code between 1 and 999, not {code!r}.")
        need = _needs_support(str(kind))
        if need and gpu != "all":
            for hit in _faulty_gpus(simulation, fault):
                if "value" not in answers(simulation, hit).get(need, {}):
                    raise SimulatorError(f"The fault {kind!r} is not possible on GPU {gpu}, a {hit.name}.")


def compile_faults(faults: list[dict[str, Any]]) -> str:
    """Return the text of the faults file."""
    lines = ["gpu-simulator-faults 1"]
    for fault in faults:
        kind, gpu = fault["kind"], str(fault.get("gpu", "all"))
        function = _base_name(str(fault.get("function", "*")))
        if function == "*" and (kind in DRIVER_FAULTS or (kind == "no_permission" and gpu == "all")):
            function = "nvmlInit"
        code = fault.get("code", 999) if kind == "error" else FAULT_KINDS[kind]
        milliseconds = int(fault.get("seconds", DEFAULT_SECONDS) * 1000) if kind in SLEEPING_FAULTS else 0
        word = kind if code is None else "error"
        lines.append(f"{gpu} {function} {word} {code or 0} {milliseconds} {fault.get('count', 1)}")
    return "\n".join(lines) + "\n"


def _driver_fault(faults: list[dict[str, Any]]) -> Optional[str]:
    for fault in faults:
        if fault["kind"] in DRIVER_FAULTS and fault.get("function", "*") == "*":
            return str(fault["kind"])
    return None


# ---- what NVML answers ------------------------------------------------------------------------------------------


def _numbers(name: str, value: Any) -> list[int]:
    if isinstance(value, dict):
        flat: list[int] = []
        for key in STRUCT_FIELDS[name]:
            part = value[key]
            flat += part if isinstance(part, list) else [part]
        return flat
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            return [int(process.get(key, 0xFFFFFFFF)) for process in value for key in PROCESS_FIELDS]
        return [int(part) for part in value]
    return [int(value)]


def answers(simulation: Simulation, gpu: Gpu) -> dict[str, dict[str, Any]]:
    """Return what each function answers for a GPU: C({"value": ...}) or C({"error": code}), by recorded name."""
    made: dict[str, dict[str, Any]] = {
        key: answer
        for key, answer in {**gpu.model.get("assumed", {}), **gpu.model["nvml"]}.items()
        if key.split(":")[0] not in NOT_FROM_MODEL
    }
    made["nvmlDeviceGetUUID"] = {"value": gpu.uuid}
    if "error" not in gpu.model["nvml"].get("nvmlDeviceGetSerial", {}):
        made["nvmlDeviceGetSerial"] = {"value": gpu.serial}
    else:
        made["nvmlDeviceGetSerial"] = gpu.model["nvml"]["nvmlDeviceGetSerial"]
    made["nvmlDeviceGetMinorNumber"] = {"value": gpu.index}
    made["nvmlDeviceGetBoardId"] = {"value": (gpu.address[1] << 8) + gpu.address[2]}
    if "value" in made.get("nvmlDeviceGetGspFirmwareVersion", {}):
        made["nvmlDeviceGetGspFirmwareVersion"] = {"value": simulation.driver_version}
    _add_links(made, simulation, gpu)
    if gpu.mig_enabled:
        made["nvmlDeviceGetMigMode"] = {"value": [1, 1]}
        made["nvmlDeviceGetMaxMigDeviceCount"] = {"value": 7}
        for name in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"):
            made[name] = {"error": NOT_SUPPORTED}
    made.update(gpu.overrides)
    return made


def _peers(simulation: Simulation, gpu: Gpu) -> list[Gpu]:
    return [other for other in simulation.gpus if other is not gpu and other.model_name == gpu.model_name]


def _add_links(made: dict[str, dict[str, Any]], simulation: Simulation, gpu: Gpu) -> None:
    """Add the NVLinks: to switches, or directly to the other GPUs of the same model; none for a GPU alone."""
    nvlink = gpu.model.get("nvlink")
    peers = _peers(simulation, gpu)
    if not nvlink or (not peers and not nvlink.get("alone")):
        made.setdefault("nvmlDeviceGetNvLinkState:0", {"error": NOT_SUPPORTED})
        return
    per_peer = int(nvlink.get("links_per_peer", 0))
    count = per_peer * len(peers) if per_peer else int(nvlink["links"])
    count = min(count, int(nvlink["links"]))
    for link in range(count):
        if per_peer:
            peer = peers[link // per_peer]
            remote = dict(zip(("domain", "bus", "device"), peer.address))
            remote.update(pciDeviceId=_pci_word(peer, "device"), pciSubSystemId=_pci_word(peer, "subsystem"))
        else:
            remote = dict(NVSWITCH)
        made[f"nvmlDeviceGetNvLinkState:{link}"] = {"value": 1}
        made[f"nvmlDeviceGetNvLinkVersion:{link}"] = {"value": nvlink["version"]}
        made[f"nvmlDeviceGetNvLinkRemoteDeviceType:{link}"] = {"value": 0 if per_peer else 2}
        made[f"nvmlDeviceGetNvLinkRemotePciInfo_v2:{link}"] = {"value": remote}
    if "nvmlDeviceGetGpuFabricInfoV" in made and not per_peer:
        made["nvmlDeviceGetGpuFabricInfoV"] = {"value": {**made["nvmlDeviceGetGpuFabricInfoV"]["value"], "state": 3}}


def _pci_word(gpu: Gpu, kind: str) -> int:
    vendor, device = (int(part, 16) for part in gpu.model["pci"][kind].split(":"))
    return device << 16 | vendor


def _record(scope: str, name: str, answer: dict[str, Any]) -> str:
    base, _colon, argument = name.partition(":")
    key = STATE_KEYS.get(base, base) + (":" + argument if argument else "")
    if "error" in answer:
        return f"{scope} {key} e {answer['error']}"
    value = answer["value"]
    if isinstance(value, str):
        return f"{scope} {key} s {value}"
    return " ".join([f"{scope} {key} u", *map(str, _numbers(base, value))])


def _host_mask(words: list[int], cpus: Optional[int]) -> list[int]:
    """Return an affinity limited to the CPUs that the host has; all of them where none is left."""
    if cpus is None:
        return words
    mask = (1 << cpus) - 1
    kept = [word & (mask >> (64 * i)) & (2**64 - 1) for i, word in enumerate(words)]
    if any(kept):
        return kept
    return [(mask >> (64 * i)) & (2**64 - 1) for i in range(max(1, (cpus + 63) // 64))]


def compile_state(simulation: Simulation, cpus: Optional[int] = None) -> str:
    """Return the text of the state file. With C(cpus), affinities are limited to that many CPUs."""
    lines = []
    cuda = simulation.cuda_version.split(".")
    branch = simulation.driver_version.split(".")[0]
    system: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": simulation.driver_version,
        "nvmlSystemGetNVMLVersion": f"{cuda[0]}.{simulation.driver_version}",
        "nvmlSystemGetCudaDriverVersion": int(cuda[0]) * 1000 + int(cuda[1]) * 10,
        "nvmlSystemGetDriverBranch": simulation.config.get("driver_branch") or f"r{branch}_00",
        "nvmlSystemGetConfComputeState": {"environment": 0, "ccFeature": 0, "devToolsMode": 0},
    }
    lines += [_record("sys", name, {"value": value}) for name, value in system.items()]
    for gpu in simulation.gpus:
        lines += _gpu_records(simulation, gpu, cpus)
        for number, mig in enumerate(gpu.migs):
            lines += _mig_records(gpu, number, mig, cpus)
    return "\n".join(["gpu-simulator-state 1", *lines, f"end {len(lines)}"]) + "\n"


def _gpu_records(simulation: Simulation, gpu: Gpu, cpus: Optional[int]) -> list[str]:
    scope = f"gpu {gpu.index}"
    made = answers(simulation, gpu)
    affinity = made.get("nvmlDeviceGetCpuAffinity")
    if affinity and "value" in affinity:
        made["nvmlDeviceGetCpuAffinity"] = {"value": _host_mask(affinity["value"], cpus)}
    lines = [_record(scope, name, answer) for name, answer in sorted(made.items())]
    device, subsystem = _pci_word(gpu, "device"), _pci_word(gpu, "subsystem")
    pci_class = int(gpu.model["pci"]["class"], 16)
    lines.append("{} nvmlDeviceGetPciInfo u {} {} {} {} {}".format(scope, *gpu.address, device, subsystem))
    lines.append(f"{scope} nvmlDeviceGetPciInfoExt u {pci_class >> 16} {pci_class >> 8 & 0xFF}")
    peers = _peers(simulation, gpu)
    linked = made.get("nvmlDeviceGetNvLinkState:0") == {"value": 1}
    for other in simulation.gpus:
        if other is gpu:
            lines.append(f"{scope} nvmlDeviceGetTopologyCommonAncestor:{other.index} u 0")
            continue
        near = gpu.model.get("topology", 30)
        lines.append(f"{scope} nvmlDeviceGetTopologyCommonAncestor:{other.index} u {near}")
        for capability in range(6):
            status = 0 if other in peers and gpu.model.get("p2p", True) else 2
            if capability == 4 or (capability == 2 and not linked):
                status = 5
            lines.append(f"{scope} nvmlDeviceGetP2PStatus:{other.index}:{capability} u {status}")
    links = sum(1 for name, answer in made.items() if "NvLinkState:" in name and answer == {"value": 1})
    if links:
        switched = made.get("nvmlDeviceGetNvLinkRemoteDeviceType:0") == {"value": 2}
        lines.append(f"{scope} field:91 u {links}")
        lines += [f"{scope} field:{counter} u 0" for counter in range(138, 142)]
        lines.append(f"{scope} field:147 u {links if switched else 0}")
    return lines


def _mig_records(gpu: Gpu, number: int, mig: Mig, cpus: Optional[int]) -> list[str]:
    slices = mig.slices
    total = int(slices["memory_mb"]) * 2**20
    used = min(total, 12 * 2**20)
    known: dict[str, Any] = gpu.model["nvml"]
    affinity = known.get("nvmlDeviceGetCpuAffinity", {}).get("value")
    attributes = [
        slices["multiprocessors"], slices.get("copy_engines", 1), slices.get("decoders", 0), 0, slices.get("jpegs", 0),
        slices.get("ofas", 0), slices["slices"], slices["slices"], slices["memory_mb"],
    ]  # fmt: skip
    made: dict[str, Any] = {
        "nvmlDeviceGetName": f"{gpu.name} MIG {mig.profile}",
        "nvmlDeviceGetUUID": mig.uuid,
        "nvmlDeviceGetGpuInstanceId": mig.gpu_instance,
        "nvmlDeviceGetComputeInstanceId": mig.compute_instance,
        "nvmlDeviceGetAttributes": attributes,
        "nvmlDeviceGetMemoryInfo": {"total": total, "free": total - used, "used": used},
        "nvmlDeviceGetMemoryInfo_v2": {"total": total, "reserved": used, "free": total - used, "used": 0},
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
    }
    for name in ("nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetArchitecture", "nvmlDeviceGetBrand"):
        if "value" in known.get(name, {}):
            made[name] = known[name]["value"]
    if affinity:
        made["nvmlDeviceGetCpuAffinity"] = _host_mask(affinity, cpus)
    scope = f"mig {gpu.index} {number}"
    return [_record(scope, name, {"value": value}) for name, value in made.items()]


# ---- the made-up tree -------------------------------------------------------------------------------------------


def _needs_proprietary(simulation: Simulation) -> bool:
    """Volta and older work with the proprietary kernel modules only."""
    return any(gpu.model["nvml"]["nvmlDeviceGetArchitecture"]["value"] < 6 for gpu in simulation.gpus)


def loaded_version(simulation: Simulation, faults: list[dict[str, Any]]) -> Optional[str]:
    """Return the version of the loaded kernel module: none if not loaded, an older one in a mismatch."""
    fault = _driver_fault(faults)
    if not simulation.driver or fault == "not_loaded":
        return None
    if fault == "mismatch":
        branch = simulation.driver_version.split(".")[0]
        return f"{branch}.01" if simulation.driver_version != f"{branch}.01" else f"{branch}.02"
    return simulation.driver_version


def capability_minors(simulation: Simulation) -> dict[str, int]:
    """Return the minor number of each MIG capability, by the path that the driver gives it."""
    minors = {"config": 1, "monitor": 2}
    for gpu in simulation.gpus:
        for mig in gpu.migs:
            base = 3 + gpu.index * 135 + mig.gpu_instance * 9
            minors[f"gpu{gpu.index}/gi{mig.gpu_instance}/access"] = base
            minors[f"gpu{gpu.index}/gi{mig.gpu_instance}/ci{mig.compute_instance}/access"] = base + 1
    return minors


def _pci_config(gpu: Gpu) -> bytes:
    config = bytearray(256)
    device, subsystem = _pci_word(gpu, "device"), _pci_word(gpu, "subsystem")
    pci_class = int(gpu.model["pci"]["class"], 16)
    config[0:4] = device.to_bytes(4, "little")
    config[4:6] = (0x0406).to_bytes(2, "little")
    config[8] = int(gpu.model["pci"].get("revision", "0xa1"), 16)
    config[9:12] = pci_class.to_bytes(3, "little")
    config[0x2C:0x30] = subsystem.to_bytes(4, "little")
    return bytes(config)


def tree(simulation: Simulation, faults: list[dict[str, Any]]) -> dict[str, Union[str, bytes]]:
    """Return the made-up tree: file contents by path below the root; a path ending in @ is a link."""
    files: dict[str, Union[str, bytes]] = {}
    version = loaded_version(simulation, faults)
    for gpu in simulation.gpus:
        base = f"sys/bus/pci/devices/{gpu.sysfs_address}"
        pci = gpu.model["pci"]
        vendor, device = pci["device"].split(":")
        sub_vendor, sub_device = pci["subsystem"].split(":")
        files.update({
            f"{base}/vendor": f"0x{vendor}\n",
            f"{base}/device": f"0x{device}\n",
            f"{base}/subsystem_vendor": f"0x{sub_vendor}\n",
            f"{base}/subsystem_device": f"0x{sub_device}\n",
            f"{base}/class": f"{pci['class']}\n",
            f"{base}/revision": f"{pci.get('revision', '0xa1')}\n",
            f"{base}/numa_node": f"{gpu.numa_node}\n",
            f"{base}/irq": "41\n",
            f"{base}/enable": "1\n",
            f"{base}/resource": "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13,
            f"{base}/config": _pci_config(gpu),
            f"{base}/uevent": ("DRIVER=nvidia\n" if version else "")
            + f"PCI_CLASS={int(pci['class'], 16):X}\nPCI_ID={vendor.upper()}:{device.upper()}\n"
            f"PCI_SUBSYS_ID={sub_vendor.upper()}:{sub_device.upper()}\nPCI_SLOT_NAME={gpu.sysfs_address}\n",
        })  # fmt: skip
        if version:
            files[f"{base}/driver@"] = "../../drivers/nvidia"
    if version:
        _add_driver_files(files, simulation, version)
    return files


def _add_driver_files(files: dict[str, Union[str, bytes]], simulation: Simulation, version: str) -> None:
    machine = platform.machine()
    flavour = f"NVIDIA UNIX {machine} Kernel Module" if _needs_proprietary(simulation) else (
        f"NVIDIA UNIX Open Kernel Module for {machine}"
    )  # fmt: skip
    files["sys/bus/pci/drivers/nvidia/module@"] = "../../../../module/nvidia"
    files["sys/module/nvidia/version"] = f"{version}\n"
    files["sys/module/nvidia/initstate"] = "live\n"
    files["proc/driver/nvidia/version"] = (
        f"NVRM version: {flavour}  {version}  Release Build  (gpu-simulator)\nGCC version:  gpu-simulator\n"
    )
    for gpu in simulation.gpus:
        nvml = answers(simulation, gpu)
        vbios = str(nvml.get("nvmlDeviceGetVbiosVersion", {}).get("value", "??.??.??.??.??"))
        files[f"proc/driver/nvidia/gpus/{gpu.sysfs_address}/information"] = (
            f"Model: \t\t {gpu.name}\nIRQ:   \t\t 41\nGPU UUID: \t {gpu.uuid}\nVideo BIOS: \t {vbios.lower()}\n"
            f"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
            f"Bus Location: \t {gpu.sysfs_address}\nDevice Minor: \t {gpu.index}\nGPU Firmware: \t {version}\n"
            "GPU Excluded:\t No\n"
        )
    minors = capability_minors(simulation)
    if any(gpu.model.get("mig_profiles") for gpu in simulation.gpus):
        files["proc/driver/nvidia-caps/mig-minors"] = "".join(f"{name} {minor}\n" for name, minor in minors.items())
        for name, minor in minors.items():
            if name.startswith("gpu"):
                gpu_name, _slash, rest = name.partition("/")
                path = f"proc/driver/nvidia/capabilities/{gpu_name}/mig/{rest}"
            else:
                path = f"proc/driver/nvidia/capabilities/mig/{name}"
            files[path] = f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"


def device_nodes(simulation: Simulation) -> dict[str, int]:
    """Return the minor number of each device node (all of major 195), by its path below /dev."""
    if not simulation.driver or not simulation.gpus:
        return {}
    nodes = {f"nvidia{gpu.index}": gpu.index for gpu in simulation.gpus}
    nodes.update({
        "nvidiactl": CONTROL_MINOR, "nvidia-modeset": MODESET_MINOR, "nvidia-uvm": UVM_MINOR,
        "nvidia-uvm-tools": UVM_TOOLS_MINOR,
    })  # fmt: skip
    if any(gpu.mig_enabled for gpu in simulation.gpus):
        for minor in capability_minors(simulation).values():
            nodes[f"nvidia-caps/nvidia-cap{minor}"] = CAPS_MINOR + minor
    return nodes


# ---- writing ----------------------------------------------------------------------------------------------------


@dataclass
class Changes:
    """What was changed, or would be in check mode."""

    check: bool = False
    paths: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, content: Union[str, bytes], mode: int = 0o644) -> bool:
        """Make the file have that content, in one step; return whether it had another."""
        data = content.encode() if isinstance(content, str) else content
        try:
            if not path.is_symlink() and path.read_bytes() == data and stat.S_IMODE(path.stat().st_mode) == mode:
                return False
        except OSError:
            pass
        self.paths.append(str(path))
        if not self.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)
            os.replace(name, path)
        return True

    def link(self, path: Path, target: str) -> bool:
        """Make a symbolic link, in one step; return whether it was another."""
        if path.is_symlink() and os.readlink(path) == target:
            return False
        self.paths.append(str(path))
        if not self.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".new-{path.name}")
            new.unlink(missing_ok=True)
            new.symlink_to(target)
            os.replace(new, path)
        return True

    def remove(self, path: Path) -> bool:
        """Remove a file, a link or a whole directory; return whether there was one."""
        if not path.is_symlink() and not path.exists():
            return False
        self.paths.append(str(path))
        if not self.check:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return True


def write_tree(changes: Changes, root: Path, files: dict[str, Union[str, bytes]]) -> None:
    """Make the tree below the root be exactly those files; keep the directories that are mount sources."""
    wanted = {root / name.rstrip("@") for name in files}
    kept = {root / "sys/bus/pci/devices", root / "proc/driver", root / "sys/module"}
    parents = {parent for path in wanted for parent in path.parents} | kept
    if not changes.check:
        for directory in kept:
            directory.mkdir(parents=True, exist_ok=True)
    if root.is_dir():
        for path in sorted(root.rglob("*"), reverse=True):
            if path in wanted or (path in parents and path.is_dir() and not path.is_symlink()):
                continue
            if any(parent in wanted for parent in path.parents) or path.is_symlink() or path.exists():
                changes.remove(path)
    for name, content in sorted(files.items()):
        if name.endswith("@"):
            changes.link(root / name[:-1], str(content))
        else:
            changes.write(root / name, content)


def _source_digest() -> str:
    digest = hashlib.sha256(VERSION.encode())
    for path in sorted((PAYLOAD / "src").glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build(output: Path, compiler: Optional[str] = None) -> None:
    """Compile the library to a file, replacing it in one step."""
    compiler = compiler or os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise SimulatorError("There is no C compiler; install gcc with the C library's headers.")
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(f".new-{output.name}")
    command = [
        compiler, "-std=c11", "-O2", "-g0", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden",
        f'-DGPU_SIMULATOR_VERSION="{VERSION}"', "-Wl,-soname,libnvidia-ml.so.1", "-o", str(new),
        *map(str, sorted((PAYLOAD / "src").glob("*.c"))), "-pthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        new.unlink(missing_ok=True)
        raise SimulatorError(f"{compiler} can't build the library: {done.stderr.strip() or done.stdout.strip()}")
    os.chmod(new, 0o755)
    os.replace(new, output)


def install_library(changes: Changes, paths: Paths, simulation: Simulation) -> None:
    """Build the library if its source is another than last time, and make it known to the linker; or remove it."""
    stamp = paths.library / "built"
    wanted = paths.library / f"{LIBRARY_NAME}.{simulation.driver_version}"
    digest = _source_digest()
    known = False
    for old in sorted(paths.library.glob(f"{LIBRARY_NAME}.*")):
        if old.is_symlink() or (simulation.driver and old == wanted):
            continue
        built = stamp.is_file() and stamp.read_text() == digest
        if simulation.driver and built and not wanted.exists() and not changes.check:
            os.replace(old, wanted)
            changes.paths.append(str(wanted))
        else:
            changes.remove(old)
        known = True
    if simulation.driver:
        if not wanted.exists() or not stamp.is_file() or stamp.read_text() != digest:
            changes.paths.append(str(wanted))
            if not changes.check:
                build(wanted)
            changes.write(stamp, digest)
            known = True
        known |= changes.link(paths.library / f"{LIBRARY_NAME}.1", wanted.name)
        known |= changes.write(paths.ld_conf, f"{paths.library}\n")
    else:
        for path in (stamp, paths.library / f"{LIBRARY_NAME}.1", paths.ld_conf):
            known |= changes.remove(path)
    if known and not changes.check:
        _ldconfig(paths)


def _ldconfig(paths: Paths) -> None:
    if paths.prefix == Path("/"):
        program = shutil.which("ldconfig") or "/sbin/ldconfig"
        subprocess.run([program], check=True, capture_output=True)


def read_config(paths: Paths) -> dict[str, Any]:
    """Return the configuration of this host."""
    config = _read_json(paths.state / "config.json", "The configuration")
    if not isinstance(config, dict):
        raise SimulatorError(f"The configuration {paths.state / 'config.json'} is not a dictionary.")
    return config


def read_faults(paths: Paths) -> list[dict[str, Any]]:
    """Return the faults that are on now."""
    path = paths.state / "faults.json"
    return list(_read_json(path, "The list of faults")) if path.exists() else []


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
    simulation = resolve(read_config(paths))
    install_library(changes, paths, simulation)
    if simulation.driver:
        changes.write(paths.state / "state", compile_state(simulation, os.cpu_count()))
    else:
        changes.remove(paths.state / "state")
    write_faults(changes, paths, simulation, simulation.faults)
    changes.write(paths.state / "marker.json", marker(simulation, paths))
    start(paths, changes)
    return changes


# ---- device nodes and mounts ------------------------------------------------------------------------------------


def _in_container() -> bool:
    if Path("/run/.containerenv").exists() or Path("/.dockerenv").exists():
        return True
    try:
        environment = Path("/proc/1/environ").read_bytes().split(b"\0")
    except OSError:
        environment = []
    return any(entry.startswith(b"container=") for entry in environment)


def _module_loaded() -> bool:
    try:
        return any(line.startswith("nvidia ") for line in Path("/proc/modules").read_text().splitlines())
    except OSError:
        return False


def _make_nodes(paths: Paths, changes: Changes, simulation: Simulation, allowed: str) -> None:
    wanted = {} if allowed == "false" else device_nodes(simulation)
    made_file = paths.state / "nodes"
    made = made_file.read_text().split() if made_file.is_file() else []
    for name in made:
        if name not in wanted:
            changes.remove(paths.dev / name)
    if wanted and _module_loaded():
        changes.notes.append("No device nodes: the kernel has the real driver, whose GPUs they would open.")
        wanted = {}
    kept: list[str] = []
    for name, minor in wanted.items():
        path, number = paths.dev / name, os.makedev(NVML_MAJOR, minor)
        if path.exists() and stat.S_ISCHR(path.stat().st_mode) and path.stat().st_rdev == number:
            kept.append(name)
            continue
        changes.paths.append(str(path))
        kept.append(name)
        if changes.check:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            os.mknod(path, 0o666 | stat.S_IFCHR, number)
            os.chmod(path, 0o666)
        except OSError as error:
            changes.paths.pop()
            kept.pop()
            if allowed == "true":
                raise SimulatorError(f"The device node {path} can't be made: {error.strerror}.") from None
            changes.notes.append(f"No device nodes: making {path} is not allowed here ({error.strerror}).")
            break
    caps = paths.dev / "nvidia-caps"
    if not changes.check and caps.is_dir() and not any(caps.iterdir()):
        caps.rmdir()
    if kept or made_file.is_file():
        changes.write(made_file, "".join(f"{name}\n" for name in kept))


def _mounted(target: Path) -> bool:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return any(line.split()[4] == str(target) for line in file)


def _mount_sources(paths: Paths) -> dict[Path, Path]:
    return {Path("/sys/bus/pci/devices"): paths.run / "pci-devices", Path("/proc/driver"): paths.root / "proc/driver"}


def _fill_pci_devices(paths: Paths, simulation: Simulation) -> None:
    """Link the simulated devices beside the real ones."""
    directory = paths.run / "pci-devices"
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {gpu.sysfs_address: str(paths.root / "sys/bus/pci/devices" / gpu.sysfs_address) for gpu in simulation.gpus}
    if not _mounted(Path("/sys/bus/pci/devices")):
        for device in Path("/sys/bus/pci/devices").iterdir():
            wanted.setdefault(device.name, os.readlink(device))
    else:
        for device in directory.iterdir():
            if not os.readlink(device).startswith(str(paths.root)):
                wanted.setdefault(device.name, os.readlink(device))
    for device in directory.iterdir():
        if wanted.get(device.name) != os.readlink(device):
            device.unlink()
    for name, target in wanted.items():
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(target)


def _make_mounts(paths: Paths, changes: Changes, simulation: Simulation, allowed: str) -> None:
    if paths.prefix != Path("/"):
        return
    if allowed == "false" or not simulation.gpus:
        _unmount(paths, changes)
        return
    if not changes.check:
        try:
            _fill_pci_devices(paths, simulation)
        except OSError as error:
            changes.notes.append(f"Nothing is mounted over /sys/bus/pci/devices: {error.strerror}.")
    for target, source in _mount_sources(paths).items():
        if _mounted(target) or not target.is_dir():
            continue
        changes.paths.append(str(target))
        if changes.check:
            continue
        done = subprocess.run(["mount", "--bind", str(source), str(target)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            changes.paths.pop()
            if allowed == "true":
                raise SimulatorError(f"{source} can't be mounted over {target}: {done.stderr.strip()}")
            changes.notes.append(f"Nothing is mounted over {target}: not allowed here; clients find it in {paths.root}.")


def _unmount(paths: Paths, changes: Changes) -> None:
    if paths.prefix != Path("/"):
        return
    for target in _mount_sources(paths):
        if _mounted(target):
            changes.paths.append(str(target))
            if not changes.check:
                done = subprocess.run(["umount", str(target)], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise SimulatorError(f"{target} can't be unmounted: {done.stderr.strip()}")


def start(paths: Paths, changes: Changes) -> None:
    """Make what a boot takes away: device nodes and mounts."""
    simulation = resolve(read_config(paths))
    _make_nodes(paths, changes, simulation, str(simulation.config.get("device_nodes", "auto")))
    _make_mounts(paths, changes, simulation, str(simulation.config.get("mounts", "auto")))


def remove(paths: Paths, check: bool) -> Changes:
    """Take away all that apply and start made. The payload itself is the role's to remove."""
    changes = Changes(check)
    _unmount(paths, changes)
    made_file = paths.state / "nodes"
    for name in made_file.read_text().split() if made_file.is_file() else []:
        changes.remove(paths.dev / name)
    caps = paths.dev / "nvidia-caps"
    if not check and caps.is_dir() and not any(caps.iterdir()):
        caps.rmdir()
    known = False
    for path in [*sorted(paths.library.glob(f"{LIBRARY_NAME}*")), paths.library / "built", paths.ld_conf]:
        known |= changes.remove(path)
    if known and not check:
        _ldconfig(paths)
    for path in (paths.root.parent, paths.run, paths.state):
        changes.remove(path)
    return changes


# ---- is there a real driver? ------------------------------------------------------------------------------------

DRIVER_PACKAGE = re.compile(
    r"(libnvidia-ml1|libnvidia-compute(-.+)?|nvidia-driver(-.+)?|nvidia-(open-)?kernel-(dkms|support)|nvidia-open(-\d.*)?"
    r"|nvidia-dkms-.+|nvidia-headless-.+|nvidia-utils-.+|nvidia-smi|cuda-drivers(-.+)?|kmod-nvidia(-.+)?"
    r"|akmod-nvidia(-.+)?|xorg-x11-drv-nvidia(-.+)?|nvidia-compute-utils-.+)"
)


def _driver_packages() -> list[str]:
    status = Path("/var/lib/dpkg/status")
    if status.is_file():
        installed = re.findall(
            r"^Package: (\S+)\nStatus: \S+ \S+ (?!not-installed|config-files)\S+$", status.read_text(errors="replace"), re.M
        )
    elif shutil.which("rpm"):
        done = subprocess.run(["rpm", "-qa", "--qf", "%{NAME}\\n"], capture_output=True, text=True, check=False)
        installed = done.stdout.split()
    else:
        installed = []
    return sorted(name for name in installed if DRIVER_PACKAGE.fullmatch(name))


def real_driver(paths: Paths) -> Optional[str]:
    """Return a sentence about the real driver of this host, or None if there is none."""
    ours = paths.state / "nodes"
    control = Path("/dev/nvidiactl")
    if _module_loaded() and (not _in_container() or (control.exists() and not ours.exists())):
        return "This host has a real NVIDIA driver: the kernel module nvidia is loaded."
    packages = _driver_packages()
    if packages:
        return f"This host has a real NVIDIA driver: the package {packages[0]} is installed."
    program = shutil.which("ldconfig") or "/sbin/ldconfig"
    cache = subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"libnvidia-ml\.so\.1 .*=> (\S+)", cache):
        if not path.startswith(str(paths.library)):
            return f"This host has a real NVIDIA driver: {path} is installed."
    return None


# ---- check ------------------------------------------------------------------------------------------------------


def check(paths: Paths, library: str = "libnvidia-ml.so.1") -> dict[str, Any]:
    """Ask the library as any client would, and compare with the configuration; raise SimulatorError at a difference."""
    simulation, faults = resolve(read_config(paths)), read_faults(paths)
    if not simulation.driver:
        return {"driver": False, "gpus": len(simulation.gpus)}
    try:
        nvml = ctypes.CDLL(library)
    except OSError as error:
        raise SimulatorError(f"{library} can't be loaded: {error}.") from None
    if not hasattr(nvml, "gpuSimulatorVersion"):
        raise SimulatorError(f"{library} is not the simulator's.")
    expected = next((fault["kind"] for fault in faults if _stops_init(fault)), None)
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
    gone = {gpu.index for fault in faults if fault["kind"] == "vanish" for gpu in _faulty_gpus(simulation, fault)}
    wanted = len(simulation.gpus) - len(gone)
    if code == 0 and count.value != wanted:
        raise SimulatorError(f"NVML counts {count.value} GPUs instead of {wanted}.")
    return {"driver": True, "gpus": count.value, "fault": None if code == 0 else code}


def _stops_init(fault: dict[str, Any]) -> bool:
    function = str(fault.get("function", "*"))
    every = function == "*" and str(fault.get("gpu", "all")) == "all"
    return bool(FAULT_KINDS[fault["kind"]]) and (
        _base_name(function) == "nvmlInit" or (every and fault["kind"] in (*DRIVER_FAULTS, "no_permission"))
    )


# ---- recordings -------------------------------------------------------------------------------------------------


def model_of_recording(recording: dict[str, Any], index: int, name: str) -> dict[str, Any]:
    """Return a GPU model made of one device of a recording (the JSON of C(gpu-simulator record))."""
    device = recording["devices"][index]
    pci = device["nvmlDeviceGetPciInfo_v3"]["value"]
    words = {key: int(pci[source]) for key, source in (("device", "pciDeviceId"), ("subsystem", "pciSubSystemId"))}
    nvml = {
        key: answer
        for key, answer in sorted(device.items())
        if key.split(":")[0] not in NOT_FROM_MODEL and not isinstance(answer.get("error"), str)
    }
    model: dict[str, Any] = {
        "model": name,
        "provenance": "recorded",
        "pci": {
            **{key: f"{word & 0xFFFF:04x}:{word >> 16:04x}" for key, word in words.items()},
            "class": "0x030200", "domain": pci["domain"],
        },
        "nvml": nvml,
    }  # fmt: skip
    serial = device.get("nvmlDeviceGetSerial", {})
    if "error" in serial:
        nvml["nvmlDeviceGetSerial"] = serial
    links = [key for key in nvml if key.startswith("nvmlDeviceGetNvLinkState:") and nvml[key].get("value") == 1]
    if links and nvml["nvmlDeviceGetNvLinkRemoteDeviceType:0"].get("value") == 2:
        model["nvlink"] = {"links": len(links), "version": nvml["nvmlDeviceGetNvLinkVersion:0"]["value"]}
        for key in [key for key in nvml if "NvLink" in key]:
            del nvml[key]
    return model


# ---- command line -----------------------------------------------------------------------------------------------


def plan(request: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration for a request (the role's variables), checked."""
    config = {key: value for key, value in request.items() if key != "gpus"}
    profile = load_profile(str(request.get("profile") or "none"))
    config["gpus"] = request.get("gpus") or profile["gpus"]
    config["models"] = profile.get("models", {})
    for key in ("driver_branch",):
        if key in profile:
            config[key] = profile[key]
    if not isinstance(config["gpus"], list):
        raise SimulatorError(f"'gpus' must be a list, not {config['gpus']!r}.")
    for key in ("mounts", "device_nodes"):
        config[key] = str(config.get(key, "auto")).lower()
        if config[key] not in ("auto", "true", "false"):
            raise SimulatorError(f"{key!r} must be auto, true or false, not {config[key]!r}.")
    simulation = resolve(config)
    return {**simulation.config, "simulator_version": VERSION}


def show(paths: Paths) -> dict[str, Any]:
    """Return what is simulated now."""
    simulation = resolve(read_config(paths))
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
    parser = argparse.ArgumentParser(prog="gpu-simulator", description="Simulated NVIDIA GPUs: show them, make them fail.")
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
    commands.add_parser("preflight", help="say whether a real driver is in the way")
    commands.add_parser("plan", help="check a configuration: JSON on standard input")
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
    simulation = resolve(read_config(paths))
    if options.action == "clear":
        faults = []
    else:
        given = {key: getattr(options, key) for key in ("seconds", "count", "code") if getattr(options, key) is not None}
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
        (start if options.command == "start" else lambda where, what: _unmount(where, what))(paths, changes)
        return {"changed": bool(changes.paths), "paths": changes.paths, "notes": changes.notes}
    if options.command == "model":
        recording = _read_json(options.recording, "The recording")
        return model_of_recording(recording, options.device, options.name)
    if options.command == "preflight":
        return {"real_driver": real_driver(paths)}
    return {"show": show, "check": check}[options.command](paths) if options.command != "plan" else _plan_command()


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
