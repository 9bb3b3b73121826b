# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs as the PCI bus shows them, whether a driver is there or not."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from pathlib import Path

from ._pci_ids import GPUS

PCI_DEVICES = "/sys/bus/pci/devices"
NVIDIA = 0x10DE
GPU_CLASSES = frozenset({0x0300, 0x0302, 0x0380})
NVSWITCH_CLASS = 0x0680
PCI_IDS_FILES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")

ARCHITECTURES = {
    "GF": "Fermi",
    "GK": "Kepler",
    "GM": "Maxwell",
    "GP": "Pascal",
    "GV": "Volta",
    "TU": "Turing",
    "GA": "Ampere",
    "AD": "Ada Lovelace",
    "GH": "Hopper",
    "GB": "Blackwell",
    "GR": "Rubin",
}
"""Architecture by the first two letters of a chip's codename, named as nvidia-smi names them."""


class Files(t.Protocol):
    """The part of a host's file system that the facts are read from. Paths are absolute."""

    def read(self, path: str) -> str | None:
        """The text of a file, without white space around it; None when it can't be read."""

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; none when it can't be read."""

    def target(self, path: str) -> str | None:
        """What a symbolic link says; None when it is not a link."""

    def exists(self, path: str) -> bool:
        """Whether something is at the path."""

    def path(self, path: str) -> str:
        """The path as the operating system has it."""


class HostFiles:
    """The files under a root directory: C(/), or the made-up tree of the simulator."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def read(self, path: str) -> str | None:
        try:
            return Path(self.path(path)).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in Path(self.path(path)).iterdir())
        except OSError:
            return []

    def target(self, path: str) -> str | None:
        try:
            return str(Path(self.path(path)).readlink())
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return Path(self.path(path)).exists() or Path(self.path(path)).is_symlink()

    def path(self, path: str) -> str:
        return self._root + path


@dataclass(frozen=True)
class PciGpu:
    """One NVIDIA GPU on the PCI bus."""

    bus_id: str
    device_id: int
    numa_node: int | None
    cpus: str | None
    kernel_driver: str | None

    @property
    def pci_device_id(self) -> str:
        return f"{NVIDIA:04x}:{self.device_id:04x}"


@dataclass(frozen=True)
class Model:
    """What the PCI ID database says of a device id."""

    chip: str
    name: str
    architecture: str | None


def nvml_bus_id(address: str) -> str:
    """A PCI address as NVML writes it: ``0000:0a:00.0`` becomes ``00000000:0A:00.0``."""
    domain, rest = address.strip().upper().split(":", 1)
    return f"{domain.zfill(8)}:{rest}"


def scan(files: Files) -> tuple[PciGpu, ...]:
    """The NVIDIA GPUs on the bus, by address. Virtual functions of a GPU are no GPUs of this host."""
    found = []
    for address, class_code in _nvidia_devices(files):
        path = f"{PCI_DEVICES}/{address}"
        device_id = _hex(files.read(f"{path}/device"))
        if device_id is None or class_code not in GPU_CLASSES:
            continue
        if files.exists(f"{path}/physfn"):
            continue
        driver = files.target(f"{path}/driver")
        found.append(
            PciGpu(
                bus_id=nvml_bus_id(address),
                device_id=device_id,
                numa_node=_numa_node(files.read(f"{path}/numa_node")),
                cpus=files.read(f"{path}/local_cpulist") or None,
                kernel_driver=Path(driver).name if driver else None,
            )
        )
    return tuple(sorted(found, key=lambda gpu: gpu.bus_id))


def nvswitches(files: Files) -> int:
    """The number of NVSwitches on the bus. The GPUs behind them need the fabric manager."""
    return sum(class_code == NVSWITCH_CLASS for _address, class_code in _nvidia_devices(files))


def _nvidia_devices(files: Files) -> t.Iterator[tuple[str, int]]:
    """Address and class (without the programming interface) of NVIDIA's devices."""
    for address in files.names(PCI_DEVICES):
        if _hex(files.read(f"{PCI_DEVICES}/{address}/vendor")) == NVIDIA:
            class_code = _hex(files.read(f"{PCI_DEVICES}/{address}/class"))
            if class_code is not None:
                yield address, class_code >> 8


def model(device_id: int, files: Files) -> Model | None:
    """Chip, name and architecture of a device id: from the shipped table, else from the host's own pci.ids."""
    entry = _table_entry(GPUS, device_id) or _host_entry(files, device_id)
    if entry is None:
        return None
    chip, _space, name = entry.partition(" ")
    return Model(chip=chip, name=name or chip, architecture=ARCHITECTURES.get(chip[:2]))


def parse_pci_ids_name(name: str) -> str | None:
    """``GH100 [H100 SXM5 80GB]`` of a pci.ids file as ``GH100 H100 SXM5 80GB``; None when that is no known GPU chip."""
    chip = name.split(" ", 1)[0].rstrip("/,")
    if chip[:2] not in ARCHITECTURES or not chip[2:3].isdigit():
        return None
    start, end = name.find("["), name.rfind("]")
    marketing = name[start + 1 : end].strip() if 0 <= start < end else ""
    return f"{chip} {marketing}".strip()


def _table_entry(table: str, device_id: int) -> str | None:
    start = table.find(f"\n{device_id:04x} ")
    return None if start < 0 else table[start + 6 : table.index("\n", start + 1)]


def _host_entry(files: Files, device_id: int) -> str | None:
    for path in PCI_IDS_FILES:
        text = files.read(path)
        if text is None:
            continue
        in_vendor = False
        for line in text.splitlines():
            if line.startswith(f"{NVIDIA:04x} "):
                in_vendor = True
            elif in_vendor and line[:1] not in ("\t", "#", ""):
                break
            elif in_vendor and line.startswith(f"\t{device_id:04x} "):
                return parse_pci_ids_name(line[5:].strip())
    return None


def _hex(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 16)
    except ValueError:
        return None


def _numa_node(text: str | None) -> int | None:
    try:
        node = -1 if text is None else int(text)
    except ValueError:
        return None
    return node if node >= 0 else None
