# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a configuration (profile, models, variables) to the GPUs that it describes."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .base import PAYLOAD, SimulatorError, read_json
from .functions import check_answer

MAX_GPUS = 64

#: The CUDA version that a driver branch brings (its NVML says the same).
CUDA_OF_BRANCH = {
    525: "12.0", 530: "12.1", 535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7",
    570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 595: "13.2", 610: "13.3",
}  # fmt: skip


def _shipped(kind: str) -> list[str]:
    return sorted(path.stem for path in (PAYLOAD / kind).glob("*.json"))


def load_model(name: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return the model called C(name): one of the profile's own models, or a shipped one."""
    if name in own:
        model = own[name]
    elif name in _shipped("models"):
        model = read_json(PAYLOAD / "models" / f"{name}.json", "The model")
    else:
        known = ", ".join([*_shipped("models"), *sorted(own)])
        raise SimulatorError(f"There is no GPU model {name!r}; the models are {known}.")
    check_model(name, model)
    return dict(model)


def check_model(name: str, model: Any) -> None:
    """Raise SimulatorError where a model is not one."""
    for key in ("pci", "nvml"):
        if not isinstance(model, dict) or not isinstance(model.get(key), dict):
            raise SimulatorError(f"The GPU model {name!r} has no section {key!r}.")
    for key in ("device", "subsystem"):
        if not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", str(model["pci"].get(key))):
            raise SimulatorError(f"The GPU model {name!r} has no PCI {key!r} such as 10de:2330.")
    if not re.fullmatch(r"0x03[0-9a-f]{4}", str(model["pci"].get("class"))):
        raise SimulatorError(f"The GPU model {name!r} has no PCI 'class' of a GPU such as 0x030200.")
    for key in ("nvmlDeviceGetName", "nvmlDeviceGetArchitecture", "nvmlDeviceGetMemoryInfo"):
        if "value" not in (model["nvml"].get(key) or {}):
            raise SimulatorError(f"The GPU model {name!r} has no value of {key}.")
    check_answers(name, {**model["nvml"], **model.get("assumed", {})})


def check_answers(name: str, answers: Any) -> None:
    """Raise SimulatorError for the first answer that the library can't give."""
    if not isinstance(answers, dict):
        raise SimulatorError(f"The answers of the GPU model {name!r} must be a dictionary, not {answers!r}.")
    for key, answer in answers.items():
        check_answer(name, str(key), answer)


def load_profile(name: str) -> dict[str, Any]:
    """Return the profile C(name): a shipped one, or the JSON file at that path."""
    if name in _shipped("profiles"):
        profile = read_json(PAYLOAD / "profiles" / f"{name}.json", "The profile")
    elif "/" in name or name.endswith(".json"):
        profile = read_json(Path(name), "The profile")
    else:
        raise SimulatorError(
            f"There is no profile {name!r}; the profiles are {', '.join(_shipped('profiles'))}, or give the path of a "
            "JSON file."
        )
    if not isinstance(profile, dict) or not isinstance(profile.get("gpus"), list):
        raise SimulatorError(f"The profile {name!r} has no list 'gpus'.")
    return profile


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
    mig_enabled: bool | None = None
    migs: list[Mig] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The GPU's name as NVML gives it."""
        return str(self.model["nvml"]["nvmlDeviceGetName"]["value"])

    @property
    def sysfs_address(self) -> str:
        """The PCI address as sysfs writes it: 0000:00:06.0."""
        return "{:04x}:{:02x}:{:02x}.0".format(*self.address)

    def capabilities(self, mig: Mig) -> tuple[int, int]:
        """The capabilities that one of its MIG instances needs: its GPU instance's, its compute instance's."""
        first = 3 + self.index * 135 + mig.gpu_instance * 9
        return first, first + 1


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


def _place(profiles: list[dict[str, Any]]) -> list[int] | None:
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
        if (
            "count" in profile
            and sum(json.dumps(other, sort_keys=True) == text for other in profiles) > profile["count"]
        ):
            return None
    return starts


def _gpu_instance(size: int, start: int) -> int:
    """Return the id of the GPU instance of that size (in memory slices) at that place, as the driver numbers them."""
    first = {8: 0, 4: 1, 2: 3, 1: 7}[size]
    return first + start // size


def _migs(wanted: Any, model_name: str, model: dict[str, Any], gpu_uuid: str) -> list[Mig]:
    known: dict[str, dict[str, Any]] = model.get("mig_profiles", {})
    if not known:
        raise SimulatorError(f"The GPU model {model_name!r} has no MIG profiles; leave 'mig' out.")
    if not isinstance(wanted, list):
        raise SimulatorError(f"'mig' of {model_name!r} must be a list of MIG profiles, not {wanted!r}.")
    for name in wanted:
        if name not in known:
            raise SimulatorError(
                f"The GPU model {model_name!r} has no MIG profile {name!r}; it has {', '.join(known)}."
            )
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
        branch = int(version.split(".", maxsplit=1)[0])
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
    return Simulation(config, gpus)


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
    for key in ("uuid", "serial"):
        if entry.get(key) is not None and not re.fullmatch(r"[\w-]{1,80}", str(entry[key])):
            raise SimulatorError(f"{key!r} of {name!r} must be letters, digits and dashes, not {entry[key]!r}.")
    check_answers(name, entry.get("nvml") or {})
    for number in range(count):
        index = len(gpus)
        made = entry.get("uuid") or "GPU-" + _made_uuid(seed, "gpu", index)
        if entry.get("pci_bus_id"):
            domain, bus, device = _address(str(entry["pci_bus_id"]))
            address = domain, bus, device + number
        else:
            domain = int(model["pci"].get("domain", 0))
            address = domain, 1 + max([gpu.address[1] for gpu in gpus if gpu.address[0] == domain], default=0), 0
        gpu = Gpu(
            index=index,
            model_name=name,
            model=model,
            uuid=made,
            serial=entry.get("serial")
            or str(1650000000000 + int.from_bytes(_digest(seed, "serial", index)[:4], "big")),
            address=address,
            numa_node=int(entry.get("numa_node", model["pci"].get("numa_node", -1))),
            overrides=entry.get("nvml") or {},
        )
        if "mig" in entry and entry["mig"] is not None:
            gpu.migs = _migs(entry["mig"], name, model, made)
            gpu.mig_enabled = True
        gpus.append(gpu)
