# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a JupyterHub hands out: the GPUs and MIG slices of a host, and which of them a pool has."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.cudahub.gpu.plugins.plugin_utils._table import is_gpu_facts

Facts = Mapping[str, t.Any]
Select = Callable[[Sequence[Facts], str], Sequence[Facts]]

FORMAT = 1
COMMON_NODES = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
POLICIES = ("exclusive", "share")
POOL_OPTIONS = ("name", "policy", "servers_per_gpu", "select", "mig_profiles", "groups", "images")


class HubGpusError(ValueError):
    """Says in a sentence what is in the way and what to do."""


def inventory(facts: Facts) -> dict[str, t.Any]:
    """The inventory that a hub reads, of ``ansible_facts['gpu']``.

    A GPU in MIG mode is its slices. What has no UUID can't be given to anybody, and is left out.
    """
    if not is_gpu_facts(facts):
        raise HubGpusError("the input is not ansible_facts['gpu']: gather it with cudahub.gpu.gpu_facts")
    return {
        "format": FORMAT,
        "simulated": facts["simulated"],
        "common_nodes": COMMON_NODES,
        "units": [unit for gpu in facts["gpus"] for unit in _units(gpu)],
    }


def _units(gpu: Facts) -> list[dict[str, t.Any]]:
    if gpu["uuid"] is None:
        return []
    whole = {
        "uuid": gpu["uuid"],
        "kind": "gpu",
        "gpu": gpu["uuid"],
        "index": str(gpu["minor"] if gpu["index"] is None else gpu["index"]),
        "name": gpu["name"] or "NVIDIA GPU",
        "profile": None,
        "memory_bytes": gpu["memory_bytes"],
        "pci_bus_id": gpu["pci_bus_id"],
        "nodes": list(gpu["device_nodes"]),
        "healthy": gpu["healthy"] is True,
        # Warnings come and go with the load.
        "problems": [problem["message"] for problem in gpu["problems"] if problem["severity"] == "error"],
    }
    if not gpu["mig"]["enabled"]:
        return [whole]
    return [
        {
            **whole,
            "uuid": instance["uuid"],
            "kind": "mig",
            "index": f"{whole['index']}.{instance['index']}",
            "profile": instance["profile"],
            "memory_bytes": instance["memory_bytes"],
            "nodes": list(instance["device_nodes"]),
        }
        for instance in gpu["mig"]["instances"]
        if instance["uuid"] is not None
    ]


def pools(wanted: Sequence[Facts], facts: Facts, select: Select) -> list[dict[str, t.Any]]:
    """The pools with what each of them has. Raises HubGpusError where one has nothing, or two have the same.

    On a host without any GPU, the first pool stands for all of them.
    """
    units = inventory(facts)["units"]
    _check_types(wanted)
    _check_names(wanted)
    chosen = [_of_pool(pool, facts["gpus"], units, select) for pool in wanted]
    if units:
        _check_shares(wanted, chosen)
    described = [
        {
            "name": pool["name"],
            "policy": _policy(pool),
            "servers_per_gpu": _servers_per_gpu(pool),
            "gpus": [unit["uuid"] for unit in mine] if units and _chooses(pool) else None,
            "groups": list(pool.get("groups") or []) or None,
            "images": list(pool.get("images") or []) or None,
        }
        for pool, mine in zip(wanted, chosen, strict=True)
    ]
    return described if units else described[:1]


def _check_types(wanted: t.Any) -> None:
    example = "such as {name: default, policy: exclusive}"
    if isinstance(wanted, str) or not isinstance(wanted, Sequence):
        raise HubGpusError(f"the pools are {wanted!r}: give a list of them, {example}")
    for pool in wanted:
        if not isinstance(pool, Mapping):
            raise HubGpusError(f"a pool is {pool!r}: give a dictionary, {example}")
        name = pool.get("name")
        if not _is_text(name):
            raise HubGpusError(f"a pool has the name {name!r}: give each one that users understand")
        if unknown := sorted(map(str, set(pool) - set(POOL_OPTIONS))):
            raise HubGpusError(f"pool {name!r} has {', '.join(unknown)}: a pool has only {', '.join(POOL_OPTIONS)}")
        if pool.get("select") is not None and not isinstance(pool["select"], str):
            raise HubGpusError(
                f"pool {name!r} has select {pool['select']!r}: give a JMESPath expression, or leave it out"
            )
        for option in ("mig_profiles", "groups", "images"):
            texts = pool.get(option)
            if texts is not None and not _is_texts(texts):
                raise HubGpusError(
                    f"pool {name!r} has {option} {texts!r}: give a list of names, or leave it out for all"
                )


def _is_text(value: t.Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_texts(value: t.Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and bool(value) and all(map(_is_text, value))


def _check_names(wanted: Sequence[Facts]) -> None:
    if not wanted:
        raise HubGpusError("there is no pool: name at least one, such as {name: default, policy: exclusive}")
    for name, count in Counter(pool["name"] for pool in wanted).items():
        if count > 1:
            raise HubGpusError(f"{count} pools have the name {name!r}: give each its own")


def _policy(pool: Facts) -> str:
    policy = pool.get("policy") or POLICIES[0]
    if policy not in POLICIES:
        raise HubGpusError(f"pool {pool['name']!r} has policy {policy!r}: choose {' or '.join(POLICIES)}")
    return str(policy)


def _servers_per_gpu(pool: Facts) -> int:
    shared = _policy(pool) == "share"
    given = pool.get("servers_per_gpu")
    number = (4 if shared else 1) if given is None else given
    if not isinstance(number, int) or isinstance(number, bool):
        raise HubGpusError(f"pool {pool['name']!r} has servers_per_gpu {given!r}: give a whole number, or leave it out")
    if number < 1:
        raise HubGpusError(f"pool {pool['name']!r} has servers_per_gpu {number}: at least 1 is needed")
    if number > 1 and not shared:
        raise HubGpusError(
            f"pool {pool['name']!r} has servers_per_gpu {number} and policy exclusive, one server on each GPU: "
            "leave servers_per_gpu out, or take policy share"
        )
    return number


def _chooses(pool: Facts) -> bool:
    return bool(pool.get("select") or pool.get("mig_profiles"))


def _of_pool(pool: Facts, gpus: Sequence[Facts], units: Sequence[Facts], select: Select) -> list[Facts]:
    expression, profiles = pool.get("select"), pool.get("mig_profiles")
    selected = {gpu["uuid"] for gpu in (select(gpus, expression) if expression else gpus)}
    mine = [unit for unit in units if unit["gpu"] in selected]
    return [unit for unit in mine if unit["profile"] in profiles] if profiles else mine


def _check_shares(wanted: Sequence[Facts], chosen: Sequence[Sequence[Facts]]) -> None:
    owners: dict[str, str] = {}
    for pool, mine in zip(wanted, chosen, strict=True):
        if not mine:
            options = [f"{name} {pool[name]!r}" for name in ("select", "mig_profiles") if pool.get(name)]
            raise HubGpusError(
                f"pool {pool['name']!r} has no GPU, as none fits its {' and '.join(options)}: change that, or leave "
                "the pool out"
            )
        for unit in mine:
            owner = owners.setdefault(unit["uuid"], pool["name"])
            if owner != pool["name"]:
                raise HubGpusError(
                    f"the pools {owner!r} and {pool['name']!r} both have GPU {unit['index']} {unit['uuid']}: choose "
                    "the GPUs of each with select, so that no GPU is in two"
                )
