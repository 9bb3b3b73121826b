# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute node as SLURM sees it: what the host said about itself, checked."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from . import _slurm_hostlist, _slurm_parameters
from ._slurm_parameters import SlurmError

HARDWARE = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
AUTODETECT = ("auto", "nvidia", "nvml", "off")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_FEATURE = re.compile(r"[A-Za-z_][\w.=+-]*")


@dataclass(frozen=True)
class Instance:
    """A MIG instance."""

    type: str
    files: tuple[str, ...]
    identity: str


@dataclass(frozen=True)
class Gpu:
    """What matters here of a GPU of the facts."""

    bus_id: str
    name: str
    type: str
    minor: int | None
    uuid: str
    mig: bool
    instances: tuple[Instance, ...]
    cpus: str | None
    peers: tuple[tuple[str, int], ...]
    kernel_driver: str | None


@dataclass(frozen=True)
class Node:
    """A node description."""

    name: str
    address: str
    version: tuple[int, int]
    hardware: dict[str, int]
    gpus: tuple[Gpu, ...]
    driver_state: str
    simulated: bool
    plugins: frozenset[str]
    features: tuple[str, ...]
    weight: int | None
    config: t.Mapping[str, t.Any]
    shards: int
    mps: int
    autodetect: str

    @property
    def sockets(self) -> int:
        return self.hardware["Boards"] * self.hardware["SocketsPerBoard"]


def read_nodes(descriptions: t.Any) -> list[Node]:
    """The nodes in natural order of their names. Raises SlurmError for a description that can't be used."""
    if not isinstance(descriptions, (list, tuple)):
        raise SlurmError(f"the input is a {type(descriptions).__name__}, not a list of node descriptions")
    nodes = sorted(map(read_node, descriptions), key=lambda node: _slurm_hostlist.natural_key(node.name))
    for node, following in zip(nodes, nodes[1:]):
        if node.name == following.name:
            raise SlurmError(
                f"two hosts have the node name {node.name}: give them different host names, or set slurm_node_name"
            )
    return nodes


def read_node(description: t.Any) -> Node:
    """One node. Raises SlurmError for a description that can't be used."""
    if not isinstance(description, t.Mapping):
        raise SlurmError(f"the node description {description!r} is not a dictionary")
    name = description.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.upper() == "DEFAULT":
        raise SlurmError(f"the node name {name!r} is not one that SLURM accepts: give letters, digits, - and _")
    where = f"node {name}"
    autodetect = description.get("autodetect") or "auto"
    if autodetect not in AUTODETECT:
        raise SlurmError(f"{where}: slurm_gres_autodetect is {autodetect!r}, not one of {', '.join(AUTODETECT)}")
    features = tuple(str(feature) for feature in description.get("features") or ())
    for feature in features:
        if not _FEATURE.fullmatch(feature):
            raise SlurmError(f"{where}: {feature!r} is no name of a feature: letters, digits and _ . = + -")
    return Node(
        name=str(name),
        address=str(description.get("address") or ""),
        version=_slurm_parameters.parse_version(description.get("version")),
        hardware=_hardware(description.get("hardware"), where),
        gpus=_gpus(description.get("gpus"), where),
        driver_state=str(description.get("driver_state") or "ok"),
        simulated=bool(description.get("simulated")),
        plugins=frozenset(description.get("plugins") or ()),
        features=features,
        weight=_count(description.get("weight"), "slurm_node_weight", where),
        config=description.get("config") or {},
        shards=_count(description.get("shards"), "slurm_gpu_shards", where) or 0,
        mps=_count(description.get("mps"), "slurm_gpu_mps", where) or 0,
        autodetect=str(autodetect),
    )


def _gpus(values: t.Any, where: str) -> tuple[Gpu, ...]:
    """The GPUs in order of their PCI address. Each value is read once: in a template that is what takes time."""
    try:
        return tuple(sorted(map(_gpu, values or ()), key=lambda gpu: gpu.bus_id))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SlurmError(
            f"{where}: its GPUs are not those of ansible_facts['gpu']['gpus'] ({type(error).__name__}: {error})"
        ) from error


def _gpu(values: t.Mapping[str, t.Any]) -> Gpu:
    mig = values.get("mig") or {}
    enabled = bool(mig.get("enabled"))
    bus_id = str(values.get("pci_bus_id") or "")
    kind = str(values.get("slurm_type") or "")
    minor = values.get("minor")
    nvlink = values.get("nvlink")
    return Gpu(
        bus_id=bus_id,
        name=str(values.get("name") or "") if enabled or minor is None or not kind else "",
        type=kind,
        minor=minor,
        uuid=str(values.get("uuid") or bus_id),
        mig=enabled,
        instances=tuple(_instance(item, bus_id) for item in mig.get("instances") or ()) if enabled else (),
        cpus=values.get("cpu_affinity"),
        peers=_peers(nvlink) if nvlink else (),
        kernel_driver=values.get("kernel_driver"),
    )


def _instance(values: t.Mapping[str, t.Any], bus_id: str) -> Instance:
    return Instance(
        type=str(values.get("slurm_type") or ""),
        files=tuple(str(file) for file in values.get("device_nodes") or ()),
        identity=str(values.get("uuid") or f"{bus_id}/{values.get('index')}"),
    )


def _peers(nvlink: t.Mapping[str, t.Any]) -> tuple[tuple[str, int], ...]:
    """The GPUs that a GPU has direct links to, and how many."""
    return tuple(
        (str(peer["pci_bus_id"]), int(peer["links"]))
        for peer in nvlink.get("peers") or ()
        if peer.get("type") == "gpu" and peer.get("pci_bus_id")
    )


def _hardware(values: t.Any, where: str) -> dict[str, int]:
    try:
        hardware = {name: int(values[name]) for name in HARDWARE}
    except (KeyError, TypeError, ValueError):
        hardware = {}
    if not hardware or min(hardware.values()) < 1:
        raise SlurmError(f"{where}: {values!r} is not what slurmd -C says: a number of each of {', '.join(HARDWARE)}")
    return hardware


def _count(value: t.Any, option: str, where: str) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(value, (bool, float)):
        raise SlurmError(f"{where}: {option} is {value!r}, not a whole number of 0 or more")
    return number


def parse_hardware(text: t.Any) -> dict[str, int]:
    """What ``slurmd -C`` says of processors and memory. Raises SlurmError when it does not say it."""
    if not isinstance(text, str):
        raise SlurmError(f"the input is a {type(text).__name__}, not the text that slurmd -C prints")
    line = next((line for line in text.splitlines() if line.startswith("NodeName=")), "")
    values = dict(part.split("=", 1) for part in line.split() if "=" in part)
    values.setdefault("Boards", "1")
    if "Sockets" in values:
        values.setdefault("SocketsPerBoard", values["Sockets"])
    missing = [name for name in HARDWARE if not re.fullmatch(r"\d+", values.get(name, ""))]
    if missing:
        raise SlurmError(f"the output of slurmd -C has no {', '.join(missing)}: {text.strip()[:200]!r}")
    return {name: int(values[name]) for name in HARDWARE}
