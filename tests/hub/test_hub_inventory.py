# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory file: what is read from it, what is refused, and which pool its units are in."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from cudahub_hub.inventory import Inventory, Unit, pool_units, read_inventory
from cudahub_hub.settings import ConfigurationError, Pool, Settings
from hub_site import gpu, mig


def read(tmp_path: Path, data: t.Any) -> Inventory:
    path = tmp_path / "gpus.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return read_inventory(path)


def test_everything_is_read(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        {
            "format": 1,
            "simulated": True,
            "common_nodes": ["/dev/nvidiactl"],
            "units": [
                {
                    "uuid": "MIG-1",
                    "kind": "mig",
                    "gpu": "GPU-1",
                    "index": "0.1",
                    "name": "NVIDIA H100 80GB HBM3",
                    "profile": "3g.20gb",
                    "memory_bytes": 85520809984,
                    "pci_bus_id": "00000000:19:00.0",
                    "nodes": ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3"],
                    "healthy": False,
                    "problems": ["Its memory has errors."],
                    "later": "ignored",
                },
                {"uuid": "GPU-2", "kind": "gpu", "gpu": "GPU-2", "index": "1", "memory_bytes": None, "profile": None},
            ],
        },
    )
    assert inventory.simulated
    assert inventory.common_nodes == ("/dev/nvidiactl",)
    assert inventory.unit("MIG-1") == Unit(
        uuid="MIG-1",
        kind="mig",
        gpu="GPU-1",
        index="0.1",
        name="NVIDIA H100 80GB HBM3",
        profile="3g.20gb",
        memory_bytes=85520809984,
        pci_bus_id="00000000:19:00.0",
        nodes=("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3"),
        healthy=False,
        problems=("Its memory has errors.",),
    )
    assert inventory.units[1].healthy
    assert inventory.unit("GPU-3") is None


def test_a_host_without_gpus_has_an_inventory(tmp_path: Path) -> None:
    assert read(tmp_path, {"format": 1, "units": []}) == Inventory()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "the file is empty"),
        ("null", "the file must be an object"),
        ({"format": 3, "units": []}, "format is 3"),
        ({"format": 1}, "units must be a list, not null"),
        ({"format": 1, "units": [{"uuid": "GPU-1"}]}, "units[0] has no kind"),
        ({"format": 1, "units": [gpu(1, uuid=None)]}, "units[0].uuid must be a text"),
        ({"format": 1, "units": [gpu(1, kind="card")]}, 'units[0].kind must be "gpu" or "mig", not "card"'),
        ({"format": 1, "units": [gpu(1, gpu="GPU-2")]}, "units[0] is of kind gpu, so uuid and gpu must be the same"),
        ({"format": 1, "units": [mig(1, 0, uuid="GPU-1")]}, "units[0] is of kind mig, so uuid and gpu must differ"),
        ({"format": 1, "units": [gpu(1), gpu(1)]}, "GPU-1 is there twice"),
        ({"format": 1, "units": [gpu(1), mig(1, 0)]}, "GPU-1 is there as a whole, and so are MIG slices of it"),
        ({"format": 1, "units": [gpu(1, memory_bytes=-1)]}, "units[0].memory_bytes must be"),
        ({"format": 1, "units": [gpu(1, healthy="yes")]}, 'units[0].healthy must be true or false, not "yes"'),
        ({"format": 1, "units": [gpu(1, nodes="/dev/nvidia0")]}, "units[0].nodes must be a list"),
        ({"format": 1, "units": [gpu(1, index=1)]}, "units[0].index must be a text, not 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, data: t.Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, data)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/gpus.json: ")
    assert problem in message
    assert message.endswith("Run the playbook again, it writes this file")


def uuids(pools: dict[str, tuple[Unit, ...]]) -> dict[str, list[str]]:
    return {name: [unit.uuid for unit in units] for name, units in pools.items()}


def test_pools_name_units_or_the_gpu_of_slices(tmp_path: Path) -> None:
    inventory = read(tmp_path, {"format": 1, "units": [gpu(0), mig(1, 0), mig(1, 1), mig(2, 0), mig(2, 1)]})
    settings = Settings(pools=(Pool("a", gpus=("GPU-0", "GPU-1", "GPU-9")), Pool("b", gpus=("MIG-2.1",))))
    assert uuids(pool_units(settings, inventory, tmp_path)) == {
        "a": ["GPU-0", "MIG-1.0", "MIG-1.1"],
        "b": ["MIG-2.1"],
    }
    assert uuids(pool_units(Settings(), inventory, tmp_path))["default"] == [unit.uuid for unit in inventory.units]


def test_a_slice_in_one_pool_and_its_gpu_in_another_is_an_error(tmp_path: Path) -> None:
    inventory = read(tmp_path, {"format": 1, "units": [mig(1, 0), mig(1, 1)]})
    settings = Settings(pools=(Pool("a", gpus=("GPU-1",)), Pool("b", gpus=("MIG-1.1",))))
    with pytest.raises(
        ConfigurationError, match=r'MIG-1\.1 \(of GPU-1\) is in the pools "a" and "b", and may be in one'
    ):
        pool_units(settings, inventory, tmp_path)


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        ((0, None), (0, None), False),
        ((0, None), (1, None), False),
        ((0, None), (0, 1), True),
        ((0, 1), (0, None), True),
        ((0, 0), (0, 1), False),
        ((1, 0), (0, None), False),
    ],
)
def test_a_whole_gpu_and_its_slice_collide(tmp_path: Path, one: t.Any, other: t.Any, collide: bool) -> None:
    def unit(number: int, part: int | None) -> Unit:
        data = gpu(number) if part is None else mig(number, part)
        return read(tmp_path, {"format": 1, "units": [data]}).units[0]

    assert unit(*one).collides(unit(*other).uuid, unit(*other).gpu) is collide
