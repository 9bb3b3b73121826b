# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a JupyterHub hands out, and which of it a pool has."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.filter.gpu_select import gpu_select
from ansible_collections.cudahub.gpu.plugins.plugin_utils._hub_gpus import HubGpusError, inventory, pools

Gpu = dict[str, t.Any]


def gpu(index: int, **more: t.Any) -> Gpu:
    return {
        "index": index,
        "minor": index + 4,
        "uuid": f"GPU-{index}",
        "pci_bus_id": f"00000000:0{index}:00.0",
        "name": "NVIDIA A100",
        "memory_bytes": 40 << 30,
        "mig": {"enabled": False, "pending": False, "instances": []},
        "device_nodes": [f"/dev/nvidia{index + 4}"],
        "healthy": True,
        "problems": [],
        **more,
    }


def instance(index: int, profile: str, **more: t.Any) -> Gpu:
    return {
        "index": index,
        "uuid": f"MIG-{index}",
        "profile": profile,
        "memory_bytes": 5 << 30,
        "device_nodes": ["/dev/nvidia4", f"/dev/nvidia-caps/nvidia-cap{index}"],
        **more,
    }


def facts(*gpus: Gpu, simulated: bool = False) -> dict[str, t.Any]:
    return {"driver": {"state": "ok"}, "gpus": list(gpus), "count": len(gpus), "simulated": simulated}


def in_mig_mode(*instances: Gpu, **more: t.Any) -> Gpu:
    return gpu(0, mig={"enabled": True, "pending": True, "instances": list(instances)}, **more)


SLICED = in_mig_mode(instance(0, "3g.20gb"), instance(1, "1g.5gb"), instance(2, "1g.5gb"))


def units(*gpus: Gpu) -> list[dict[str, t.Any]]:
    return list(inventory(facts(*gpus))["units"])


def test_a_gpu() -> None:
    assert inventory(facts(gpu(0), simulated=True)) == {
        "format": 1,
        "simulated": True,
        "common_nodes": ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"],
        "units": [
            {
                "uuid": "GPU-0",
                "kind": "gpu",
                "gpu": "GPU-0",
                "index": "0",
                "name": "NVIDIA A100",
                "profile": None,
                "memory_bytes": 40 << 30,
                "pci_bus_id": "00000000:00:00.0",
                "nodes": ["/dev/nvidia4"],
                "healthy": True,
                "problems": [],
            }
        ],
    }


def test_a_gpu_in_mig_mode_is_its_slices() -> None:
    found = units(SLICED, gpu(1))
    assert [(unit["index"], unit["uuid"], unit["gpu"], unit["kind"]) for unit in found] == [
        ("0.0", "MIG-0", "GPU-0", "mig"),
        ("0.1", "MIG-1", "GPU-0", "mig"),
        ("0.2", "MIG-2", "GPU-0", "mig"),
        ("1", "GPU-1", "GPU-1", "gpu"),
    ]
    assert found[1]["nodes"] == ["/dev/nvidia4", "/dev/nvidia-caps/nvidia-cap1"]
    assert found[1]["memory_bytes"] == 5 << 30
    assert found[1]["profile"] == "1g.5gb"


def test_what_has_no_uuid_is_left_out() -> None:
    assert units(gpu(0, uuid=None), in_mig_mode(instance(0, "1g.5gb", uuid=None)), in_mig_mode()) == []


def test_a_gpu_that_the_driver_lost_keeps_its_place() -> None:
    problems = [
        {"code": "lost", "severity": "error", "message": "GPU 4 is lost."},
        {"code": "sw_power_cap", "severity": "warning", "message": "It is at its power limit."},
    ]
    lost = {**gpu(0, healthy=False, problems=problems, memory_bytes=None, name=None), "index": None}
    (unit,) = units(lost)
    assert (unit["index"], unit["healthy"], unit["problems"]) == ("4", False, ["GPU 4 is lost."])
    assert unit["name"] == "NVIDIA GPU"


def test_what_nobody_could_ask_is_not_healthy() -> None:
    assert units(gpu(0, healthy=None))[0]["healthy"] is False


def test_other_input() -> None:
    with pytest.raises(HubGpusError, match="gather it with"):
        inventory([])  # type: ignore[arg-type]


def given(*wanted: dict[str, t.Any], gpus: t.Sequence[Gpu] = (gpu(0), gpu(1))) -> dict[str, t.Any]:
    return {pool["name"]: pool for pool in pools(wanted, facts(*gpus), gpu_select)}


def test_one_pool_has_all() -> None:
    assert given({"name": "default"}) == {
        "default": {
            "name": "default",
            "policy": "exclusive",
            "servers_per_gpu": 1,
            "gpus": None,
            "groups": None,
            "images": None,
        }
    }


def test_pools_by_expression_and_profile() -> None:
    found = given(
        {"name": "whole", "select": "[?!mig.enabled]", "groups": ["staff"], "images": None},
        {"name": "large", "mig_profiles": ["3g.20gb"], "policy": "exclusive"},
        {"name": "small", "mig_profiles": ["1g.5gb"], "policy": "share", "servers_per_gpu": 2},
        gpus=[SLICED, gpu(1)],
    )
    assert {name: pool["gpus"] for name, pool in found.items()} == {
        "whole": ["GPU-1"],
        "large": ["MIG-0"],
        "small": ["MIG-1", "MIG-2"],
    }
    assert (found["whole"]["groups"], found["whole"]["images"]) == (["staff"], None)
    assert found["small"]["servers_per_gpu"] == 2


def test_sharing_has_a_number() -> None:
    assert given({"name": "default", "policy": "share", "servers_per_gpu": None})["default"]["servers_per_gpu"] == 4


def test_a_host_without_gpus_has_a_pool() -> None:
    found = given({"name": "a", "select": "[?index == `0`]"}, {"name": "b", "select": "[?index == `1`]"}, gpus=[])
    assert {name: pool["gpus"] for name, pool in found.items()} == {"a": None}


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ([], "there is no pool: name at least one"),
        (7, "the pools are 7: give a list of them"),
        (None, "the pools are None: give a list of them"),
        ("a", "the pools are 'a': give a list of them"),
        ({"name": "a"}, "the pools are {'name': 'a'}: give a list of them"),
        ([1], "a pool is 1: give a dictionary"),
        ([{}], "a pool has the name None"),
        ([{"name": " "}], "a pool has the name ' '"),
        ([{"name": 1}], "a pool has the name 1"),
        ([{"name": "a", "gpus": [1]}], "pool 'a' has gpus: a pool has only name, policy,"),
        ([{"name": "a", "policy": [1]}], "pool 'a' has policy [1]: choose exclusive or share"),
        ([{"name": "a", "servers_per_gpu": "four"}], "pool 'a' has servers_per_gpu 'four': give a whole number"),
        ([{"name": "a", "servers_per_gpu": [4]}], "pool 'a' has servers_per_gpu [4]: give a whole number"),
        ([{"name": "a", "servers_per_gpu": True}], "pool 'a' has servers_per_gpu True: give a whole number"),
        ([{"name": "a", "select": [1]}], "pool 'a' has select [1]: give a JMESPath expression"),
        ([{"name": "a", "groups": []}], "pool 'a' has groups []: give a list of names, or leave it out for all"),
        ([{"name": "a", "groups": "staff"}], "pool 'a' has groups 'staff': give a list of names"),
        ([{"name": "a", "images": {"a": 1}}], "pool 'a' has images {'a': 1}: give a list of names"),
        ([{"name": "a", "mig_profiles": [1]}], "pool 'a' has mig_profiles [1]: give a list of names"),
        ([{"name": "a"}, {"name": "a"}], "2 pools have the name 'a'"),
        ([{"name": "a", "policy": "first"}], "pool 'a' has policy 'first': choose exclusive or share"),
        ([{"name": "a", "policy": "share", "servers_per_gpu": 0}], "pool 'a' has servers_per_gpu 0: at least 1"),
        ([{"name": "a", "servers_per_gpu": 2}], "pool 'a' has servers_per_gpu 2 and policy exclusive"),
        ([{"name": "a"}, {"name": "b", "select": "[?index == `1`]"}], "the pools 'a' and 'b' both have GPU 1 GPU-1"),
        (
            [{"name": "a", "select": "[?index == `7`]"}],
            "pool 'a' has no GPU, as none fits its select '[?index == `7`]'",
        ),
        ([{"name": "a", "mig_profiles": ["1g.5gb"]}], "none fits its mig_profiles ['1g.5gb']"),
    ],
)
def test_refusals(wanted: t.Any, sentence: str) -> None:
    with pytest.raises(HubGpusError) as error:
        pools(wanted, facts(gpu(0), gpu(1)), gpu_select)
    assert sentence in str(error.value)
