# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generic resources (GRES) of a node, from its GPUs: what gres.conf says and what slurmd has to find."""

from __future__ import annotations

import functools
import re
import typing as t
from collections import Counter
from dataclasses import dataclass

from . import _slurm_hostlist, _slurm_parameters
from ._slurm_node import Gpu, Instance, Node
from ._slurm_parameters import SlurmError

NVIDIA_SINCE = (24, 11)
"""AutoDetect=nvidia: gres.conf(5) of that version."""

SHARD_SINCE = (22, 5)
"""gres/shard: src/plugins/gres/shard is there from this version on."""

SHARED_MIG_SINCE = (23, 2)
"""Before, slurmd takes each device file of a MIG instance for a GPU once GresTypes has shard or mps (gres_c_s.c)."""

PASSTHROUGH_DRIVERS = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
_TYPE = re.compile(r"[^\s,:=#\"()\[\]]+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
MISALIGNED = "misaligned"


@dataclass(frozen=True)
class Device:
    """A GPU or MIG instance that jobs can ask for."""

    type: str
    files: tuple[str, ...]
    identity: str
    bus_id: str
    cpus: str | None
    peers: tuple[tuple[str, int], ...]
    mig: bool


@dataclass(frozen=True)
class Resource:
    """The devices of one kind of GRES and of one type."""

    name: str
    type: str | None
    count: int
    files: tuple[str, ...]
    method: str
    cores: str | None


@dataclass(frozen=True)
class Gres:
    """What a node has, and its lines of gres.conf without NodeName."""

    resources: tuple[Resource, ...]
    lines: tuple[str, ...]

    @property
    def value(self) -> str:
        """The value of ``Gres=`` in slurm.conf."""
        return ",".join(":".join(filter(None, (item.name, item.type, str(item.count)))) for item in self.resources)


def of_node(node: Node, version: tuple[int, int], *, incomplete: bool = False) -> Gres:
    """The GRES of a node in a cluster of this version.

    Raises SlurmError for a GPU whose type or device node is not known, unless such GPUs may be left out.
    """
    found = devices(node, strict=not incomplete)
    version = min(version, node.version)
    method = choose_method(node, found, version)
    if not found:
        return Gres((), ())
    counts = Counter(device.type for device in found)
    cores = _cores(node, found)
    resources = []
    for kind in sorted(counts):
        own = [device for device in found if device.type == kind]
        places = {cores[device.identity] for device in own}
        place = places.pop() if len(places) == 1 else None
        files = tuple(",".join(device.files) for device in own)
        resources.append(
            Resource(
                "gpu", kind, counts[kind], files, method, place if method == "file" and place != MISALIGNED else None
            )
        )
    shared = [(name, number * len(found)) for name, number in _shared(node, found, version)]
    lines = [f"AutoDetect={method}"] if method != "file" else _explicit(found, cores)
    lines += [f"Name={name} Count={number}" for name, number in shared]
    resources += [Resource(name, None, number, (), method, None) for name, number in shared]
    return Gres(tuple(resources), tuple(lines))


def devices(node: Node, *, strict: bool) -> list[Device]:
    """What jobs can ask for, in order of the PCI address: whole GPUs, and instances of those in MIG mode.

    Raises SlurmError for a GPU whose type or device node is not known, if strict.
    """
    found = []
    for gpu in node.gpus:
        if gpu.kernel_driver in PASSTHROUGH_DRIVERS:
            continue
        files = () if gpu.minor is None else (f"/dev/nvidia{gpu.minor}",)
        for item in gpu.instances if gpu.mig else (Instance(gpu.type, files, gpu.uuid),):
            if _TYPE.fullmatch(item.type) and len(item.files) > gpu.mig:
                found.append(Device(item.type, item.files, item.identity, gpu.bus_id, gpu.cpus, gpu.peers, gpu.mig))
            elif strict:
                raise SlurmError(_unknown(node, gpu, item))
    return found


def _unknown(node: Node, gpu: Gpu, item: Instance) -> str:
    name = " ".join(filter(None, (gpu.bus_id, gpu.name))) or "without an address"
    if not item.type:
        lacks = "type"
    else:
        lacks = "device node" if _TYPE.fullmatch(item.type) else f"type that SLURM accepts ({item.type!r})"
    if gpu.mig:
        return (
            f"node {node.name}: a MIG instance of GPU {name} has no known {lacks}: check it with nvidia-smi -L and "
            "cudahub.gpu.gpu_facts"
        )
    return (
        f"node {node.name}: GPU {name} has no known {lacks} (the driver is {node.driver_state}): repair the driver or "
        "the GPU, or set slurm_gpu_shrink: true to leave it out"
    )


def choose_method(node: Node, found: t.Sequence[Device], version: tuple[int, int]) -> str:
    """``nvidia``, ``nvml`` or ``file``. Raises SlurmError when the wanted one can't be had on this node."""
    mig = any(gpu.mig for gpu in node.gpus)
    hindrances = {
        "off": "",
        "auto": "",
        "nvml": _nvml_hindrance(node),
        "nvidia": _nvidia_hindrance(node, version, mig=mig),
    }
    if hindrances.get(node.autodetect):
        raise SlurmError(
            f"node {node.name}: slurm_gres_autodetect is {node.autodetect}, but {hindrances[node.autodetect]}: use auto"
        )
    if node.autodetect == "off":
        return "file"
    if node.autodetect != "auto":
        return node.autodetect
    if any(place == MISALIGNED for place in _cores(node, found).values()):
        return "file"
    linked = any(device.peers for device in found)
    if not hindrances["nvidia"] and (hindrances["nvml"] or not linked):
        return "nvidia"
    return "file" if hindrances["nvml"] else "nvml"


def _nvml_hindrance(node: Node) -> str:
    return "" if "nvml" in node.plugins else "SLURM's plugin gpu_nvml.so is not installed"


def _nvidia_hindrance(node: Node, version: tuple[int, int], *, mig: bool) -> str:
    if version < NVIDIA_SINCE:
        needed, there = map(_slurm_parameters.version_text, (NVIDIA_SINCE, version))
        return f"SLURM has it from {needed} on, and {there} is there"
    if "nvidia" not in node.plugins:
        return "SLURM's plugin gpu_nvidia.so is not installed"
    if node.simulated:
        return "simulated GPUs are not in /proc/driver/nvidia/gpus"
    return "it does not find MIG instances" if mig else ""


def _shared(node: Node, found: t.Sequence[Device], version: tuple[int, int]) -> list[tuple[str, int]]:
    """The sharing kinds of GRES of a node, and how many of them each device is."""
    if node.shards and node.mps:
        raise SlurmError(
            f"node {node.name}: slurm_gpu_shards and slurm_gpu_mps can't be used on one node: set one to 0"
        )
    if node.shards and version < SHARD_SINCE:
        raise SlurmError(
            f"node {node.name}: slurm_gpu_shards needs SLURM {_slurm_parameters.version_text(SHARD_SINCE)} or later"
        )
    if node.mps and any(device.mig for device in found):
        raise SlurmError(f"node {node.name}: slurm_gpu_mps can't be used with MIG instances: set it to 0 on this node")
    return [(name, number) for name, number in (("mps", node.mps), ("shard", node.shards)) if number]


def _cores(node: Node, found: t.Sequence[Device]) -> dict[str, str | None]:
    """The cores near each device, as SLURM numbers them: those of a whole socket, or None when no matter.

    MISALIGNED where the near processors are not whole sockets, which SLURM does not accept.
    """
    total, sockets = node.hardware["CPUs"], node.sockets
    near = {device.identity: _processors(device.cpus or "", total) for device in found}
    if sockets == 1 or total % sockets:
        return {
            identity: MISALIGNED if cpus and len(cpus) < total and not node.simulated else None
            for identity, cpus in near.items()
        }
    size = total // sockets
    known = sorted({cpus for cpus in near.values() if len(cpus) == size}, key=min)
    places: dict[str, str | None] = {}
    for identity, cpus in near.items():
        places[identity] = None
        if len(cpus) % size:
            places[identity] = None if node.simulated else MISALIGNED
        elif len(cpus) == size:
            socket = known.index(cpus) if len(known) == sockets else None
            if socket is None and sockets == 2:
                socket = 0 if 0 in cpus else 1
            if socket is not None:
                first = socket * node.hardware["CoresPerSocket"]
                places[identity] = f"{first}-{first + node.hardware['CoresPerSocket'] - 1}"
    return places


@functools.lru_cache(maxsize=4096)
def _processors(text: str, total: int) -> frozenset[int]:
    """The processors of a list of ranges that the node has."""
    found: set[int] = set()
    for first, last in _RANGE.findall(text):
        found.update(range(int(first), min(int(last or first), total - 1) + 1))
    return frozenset(cpu for cpu in found if cpu < total)


def _explicit(found: t.Sequence[Device], cores: t.Mapping[str, str | None]) -> list[str]:
    """The lines that name each device: GPUs that are alike share one, unless their links to each other differ."""
    order = [device.bus_id for device in found]
    linked = not any(device.mig for device in found) and any(
        bus_id in order for device in found for bus_id, _count in device.peers
    )
    groups: dict[tuple[str, str | None, str], list[Device]] = {}
    for index, device in enumerate(found):
        place = cores[device.identity]
        alone = f"{index}" if device.mig or linked else ""
        groups.setdefault((device.type, None if place == MISALIGNED else place, alone), []).append(device)
    lines = []
    for (kind, place, _alone), own in groups.items():
        parts = ["AutoDetect=off", "Name=gpu", f"Type={kind}"]
        if own[0].mig:
            parts.append(f"MultipleFiles={','.join(own[0].files)}")
        else:
            files = sorted((file for device in own for file in device.files), key=_slurm_hostlist.natural_key)
            parts.append(f"File={_slurm_hostlist.compress(files)}")
        if place:
            parts.append(f"Cores={place}")
        if linked:
            links = dict(own[0].peers)
            parts.append(
                "Links=" + ",".join("-1" if bus_id == own[0].bus_id else str(links.get(bus_id, 0)) for bus_id in order)
            )
        lines.append(" ".join([*parts, "Flags=nvidia_gpu_env"]))
    return lines


def missing(previous: Node, now: Node) -> str | None:
    """A sentence about devices of the previous description that are no longer there, or None."""
    before, after = devices(previous, strict=False), devices(now, strict=False)
    counts, left = Counter(device.type for device in before), Counter(device.type for device in after)
    there = {device.identity for device in after}
    sentences = []
    for kind in sorted(counts):
        if left[kind] < counts[kind]:
            gone = [device for device in before if device.type == kind and device.identity not in there]
            names = ", ".join(f"{device.bus_id} ({device.identity})" for device in gone) or "which ones is not known"
            sentences.append(f"{left[kind]} instead of {counts[kind]} of type {kind}, missing: {names}")
    if not sentences:
        return None
    return (
        f"node {now.name} has fewer GPUs than before: {'; '.join(sentences)}. Repair them, or set "
        "slurm_gpu_shrink: true if they were taken out on purpose"
    )


def refuse_shared_mig(nodes: t.Iterable[tuple[Node, Gres]]) -> None:
    """Raises SlurmError where shards or MPS of any node make slurmd of another count MIG instances wrongly."""
    pairs = list(nodes)
    sharing = next((node.name for node, gres in pairs if any(item.type is None for item in gres.resources)), None)
    if sharing is None:
        return
    for node, gres in pairs:
        if node.version < SHARED_MIG_SINCE and any("," in file for item in gres.resources for file in item.files):
            needed, there = map(_slurm_parameters.version_text, (SHARED_MIG_SINCE, node.version))
            raise SlurmError(
                f"node {node.name} has MIG instances and node {sharing} shares GPUs by shard or mps: SLURM {there} "
                f"then counts the instances wrongly, {needed} does not; set slurm_gpu_shards and slurm_gpu_mps to 0"
            )


def has_unnamed_mig(gres: Gres) -> bool:
    """Whether SLURM gives out MIG instances by their number, for it was told their files only: CUDA wants the UUID."""
    return any(item.method == "file" and any("," in file for file in item.files) for item in gres.resources)


_FOUND = re.compile(r"Gres Name=(\S+) Type=(\S+) Count=(\d+)(?:.*?\bFile=(\S+))?")
_COMPLAINT = re.compile(r"(?:error|fatal): (?P<text>.*)|(?P<other>.*lib wasn't found.*)")


def difference(text: str, expected: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """What ``slurmd -G`` prints against what is expected, in sentences; an empty list when they are the same."""
    found: dict[tuple[str, str | None], list[str]] = {}
    counts: Counter[tuple[str, str | None]] = Counter()
    for name, kind, count, file in _FOUND.findall(text):
        if not int(count):
            continue
        key = (name, kind if name == "gpu" and kind != "(null)" else None)
        counts[key] += int(count)
        if name == "gpu" and file and file != "(null)":
            found.setdefault(key, []).extend(_slurm_hostlist.expand(file) if int(count) > 1 else [file])
    wanted = {(item["name"], item.get("type")): item for item in expected}
    sentences = []
    for key in sorted({*wanted, *counts}, key=str):
        what = ":".join(filter(None, key))
        count = int(wanted[key]["count"]) if key in wanted else 0
        if counts[key] != count:
            sentences.append(f"slurmd finds {counts[key]} of {what}, expected are {count}")
        files = {_file(file): file for file in found.get(key, ())}
        needed = {_file(file): file for file in (wanted[key].get("files") or () if key in wanted else ())}
        lacking = [needed[file] for file in needed if file not in files]
        surplus = [files[file] for file in files if file not in needed]
        if lacking:
            sentences.append(f"slurmd does not find {what} at {', '.join(lacking)}")
        if surplus:
            sentences.append(f"slurmd finds {what} at {', '.join(surplus)}, which is not expected")
    complaints = (
        [match.group("text") or match.group("other") for match in _COMPLAINT.finditer(text)] if sentences else []
    )
    return [*sentences, *(f"slurmd says: {complaint.strip()}" for complaint in dict.fromkeys(complaints))]


def _file(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(",")))
