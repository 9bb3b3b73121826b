# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs and MIG slices of this host, as Ansible found them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .settings import ConfigurationError, Pool, Reader, Settings, shown

if t.TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ConfigurationError", "Inventory", "Unit", "pool_units", "read_inventory"]


@dataclass(frozen=True)
class Unit:
    """What one server can be given: a GPU, or a slice of a GPU in MIG mode."""

    uuid: str
    kind: t.Literal["gpu", "mig"]
    gpu: str
    index: str
    name: str = "GPU"
    profile: str | None = None
    memory_bytes: int | None = None
    pci_bus_id: str = ""
    nodes: tuple[str, ...] = ()
    healthy: bool = True
    problems: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """Its model, with the profile of a slice."""
        return f"{self.name}, {self.profile}" if self.profile else self.name

    def collides(self, uuid: str, gpu: str) -> bool:
        """Whether this unit and another are a whole GPU and a slice of it."""
        return uuid != self.uuid and gpu == self.gpu and (self.uuid == self.gpu or uuid == gpu)


@dataclass(frozen=True)
class Inventory:
    """All units of this host."""

    units: tuple[Unit, ...] = ()
    common_nodes: tuple[str, ...] = ()
    simulated: bool = False

    def unit(self, uuid: str) -> Unit | None:
        """The unit with a UUID."""
        return next((unit for unit in self.units if unit.uuid == uuid), None)

    def title(self, uuid: str) -> str:
        """What a user knows a unit as."""
        unit = self.unit(uuid)
        return f"GPU {unit.index} ({unit.model})" if unit else f"GPU {uuid}"


def read_inventory(path: Path) -> Inventory:
    """The inventory in a file.

    Raises:
        ConfigurationError: The file can't be read or something in it is wrong.
    """
    reader = Reader(path, "Run the playbook again, it writes this file")
    top = reader.load()
    units: dict[str, Unit] = {}
    for place, item in enumerate(reader.items(top.get("units"), "units")):
        unit = _unit(reader, item, f"units[{place}]")
        if unit.uuid in units:
            raise reader.wrong(f"{unit.uuid} is there twice")
        units[unit.uuid] = unit
    sliced = {unit.gpu for unit in units.values() if unit.kind == "mig"}
    for uuid in units:
        if uuid in sliced:
            raise reader.wrong(f"{uuid} is there as a whole, and so are MIG slices of it")
    return Inventory(
        units=tuple(units.values()),
        common_nodes=reader.texts(top.get("common_nodes", []), "common_nodes"),
        simulated=reader.flag(top.get("simulated", False), "simulated"),
    )


def _unit(reader: Reader, value: t.Any, where: str) -> Unit:
    data = reader.mapping(value, where)
    for key in ("uuid", "kind", "gpu", "index"):
        if key not in data:
            raise reader.wrong(f"{where} has no {key}")
    uuid = reader.text(data["uuid"], f"{where}.uuid")
    gpu = reader.text(data["gpu"], f"{where}.gpu")
    kind = reader.choice(data["kind"], f"{where}.kind", ("gpu", "mig"))
    if (kind == "gpu") != (uuid == gpu):
        raise reader.wrong(
            f"{where} is of kind {kind}, so uuid and gpu must {'be the same' if kind == 'gpu' else 'differ'}"
        )
    memory = data.get("memory_bytes")
    profile = data.get("profile")
    return Unit(
        uuid=uuid,
        kind="gpu" if kind == "gpu" else "mig",
        gpu=gpu,
        index=reader.text(data["index"], f"{where}.index"),
        name=reader.text(data.get("name", Unit.name), f"{where}.name"),
        profile=None if profile is None else reader.text(profile, f"{where}.profile"),
        memory_bytes=None if memory is None else reader.number(memory, f"{where}.memory_bytes"),
        pci_bus_id=reader.text(data["pci_bus_id"], f"{where}.pci_bus_id") if data.get("pci_bus_id") else "",
        nodes=reader.texts(data.get("nodes", []), f"{where}.nodes"),
        healthy=reader.flag(data.get("healthy", True), f"{where}.healthy"),
        problems=reader.texts(data.get("problems", []), f"{where}.problems"),
    )


def pool_units(settings: Settings, inventory: Inventory, path: Path) -> dict[str, tuple[Unit, ...]]:
    """The units of each pool; a physical GPU's UUID stands for it, or for all its MIG slices.

    Raises:
        ConfigurationError: A unit is in two pools.
    """
    owner: dict[str, str] = {}
    found: dict[str, tuple[Unit, ...]] = {}
    for pool in settings.pools:
        found[pool.name] = tuple(unit for unit in inventory.units if _in_pool(unit, pool))
        for unit in found[pool.name]:
            if unit.uuid in owner:
                raise ConfigurationError(
                    f"{path}: {unit.uuid} (of {unit.gpu}) is in the pools {shown(owner[unit.uuid])} and "
                    f"{shown(pool.name)}, and may be in one only. Run the playbook again, or correct the file"
                )
            owner[unit.uuid] = pool.name
    return found


def _in_pool(unit: Unit, pool: Pool) -> bool:
    return pool.gpus is None or unit.uuid in pool.gpus or unit.gpu in pool.gpus
