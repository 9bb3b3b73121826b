# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm.conf, gres.conf and cgroup.conf of a cluster, from the descriptions of its nodes."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from . import _slurm_gres, _slurm_hostlist, _slurm_node, _slurm_parameters
from ._slurm_node import Node
from ._slurm_parameters import CGROUP, NODE, PARTITION, SETTINGS, SlurmError

Lines = dict[str, t.Optional[list[str]]]
"""Texts to write by the name of the setting, one a line; None is a setting that is left to SLURM."""

HEADER = "# Written by Ansible, cudahub.gpu.slurm: changes are lost with the next play.\n"
CGROUP_V2_SINCE = (22, 5)
NOT_IN_CONFIG = {
    "ClusterName": "slurm_cluster_name",
    "SlurmctldHost": "the group slurm_controller",
    "NodeName": "the group slurm_compute",
    "PartitionName": "slurm_partitions",
    "StateSaveLocation": "slurm_state_directory",
}
DEFAULT_MEMORY = ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")
CLUSTER_NAME_LENGTH = 40
"""slurm.conf(5), ClusterName: the limit of table names in MariaDB."""

MEMORY_STEP = 100
"""Nodes that are alike report some MB more or less memory; rounded down to this they share a line."""

_CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_PARTITION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Cluster:
    """What is the same on all hosts."""

    name: str
    version: str
    controllers: t.Sequence[t.Mapping[str, str]]
    partitions: t.Sequence[t.Mapping[str, t.Any]] = ({"name": "main", "nodes": "ALL", "default": True},)
    config: t.Mapping[str, t.Any] | None = None
    cgroup_config: t.Mapping[str, t.Any] | None = None
    accounting: t.Mapping[str, t.Any] | None = None
    memory_reserve_mb: int | None = None
    memory_reserve_percent: float | None = None
    slurm_user: str = "slurm"
    state_directory: str = "/var/lib/slurm/slurmctld"
    log_directory: str = "/var/log/slurm"
    spool_directory: str = "/var/lib/slurm/slurmd"
    plugins_dir: str | None = None
    health: t.Mapping[str, t.Any] | None = None
    mig_task_prolog: str | None = None
    cgroup_version: int | None = None
    single_host: bool = False
    gpu_shrink_allowed: bool = False

    @property
    def release(self) -> tuple[int, int]:
        return _slurm_parameters.parse_version(self.version)


@dataclass(frozen=True)
class NodeLine:
    """The line of a node without its name: nodes with the same one share it."""

    has_address: bool
    parameters: str
    real_memory: int
    cpus: int


def read_cluster(values: t.Any) -> Cluster:
    """The cluster. Raises SlurmError for a key that is not known or a value that SLURM refuses."""
    known = list(Cluster.__dataclass_fields__)
    if not isinstance(values, t.Mapping):
        raise SlurmError(f"cluster is {values!r}, not a dictionary")
    for key in values:
        if key not in known:
            raise SlurmError(f"cluster has no key {key!r}{_slurm_parameters.near(str(key), known)}")
    for key in ("name", "version", "controllers"):
        if not values.get(key):
            raise SlurmError(f"cluster needs the key {key}")
    cluster = Cluster(**{str(key): value for key, value in values.items() if value is not None})
    if not isinstance(cluster.name, str) or not _CLUSTER_NAME.fullmatch(cluster.name):
        raise SlurmError(
            f"slurm_cluster_name is {cluster.name!r}: give it lower-case letters, digits, - and _, the first a letter "
            "or digit (SLURM makes upper case lower, and its database tables carry the name)"
        )
    if len(cluster.name) > CLUSTER_NAME_LENGTH:
        raise SlurmError(
            f"slurm_cluster_name {cluster.name!r} has {len(cluster.name)} characters: SLURM takes {CLUSTER_NAME_LENGTH}"
        )
    if cluster.cgroup_version == 2 and cluster.release < CGROUP_V2_SINCE:
        raise SlurmError(
            f"SLURM {cluster.version} can't use cgroup v2: boot the compute nodes with "
            "systemd.unified_cgroup_hierarchy=0, or use SLURM 22.05 or later"
        )
    return cluster


def files(nodes: t.Sequence[Node], cluster: Cluster, previous: t.Sequence[Node] = ()) -> dict[str, str]:
    """The three files. Raises SlurmError for what SLURM would refuse."""
    if not nodes:
        raise SlurmError("there is no compute node: put hosts into the group slurm_compute")
    if not cluster.gpu_shrink_allowed:
        refuse_shrinking(nodes, previous)
    release = cluster.release
    gres = {node.name: _slurm_gres.of_node(node, release, incomplete=cluster.gpu_shrink_allowed) for node in nodes}
    _slurm_gres.refuse_shared_mig((node, gres[node.name]) for node in nodes)
    node_lines = {node.name: _node_line(node, gres[node.name], cluster) for node in nodes}
    kinds = sorted({(item.name, item.type or "") for entry in gres.values() for item in entry.resources})
    config = _user_config(cluster)
    sections = {
        "Cluster": _cluster_settings(cluster),
        "Scheduling": _scheduling_settings(cluster, kinds, node_lines.values(), config),
        "Tasks": _task_settings(cluster, gres.values()),
        "Accounting": _accounting_settings(cluster, kinds),
        "Health": _health_settings(cluster),
    }
    own = {name for settings in sections.values() for name in settings}
    text = HEADER
    for title, settings in sections.items():
        text += _section(title, {name: config.get(name, value) for name, value in settings.items()})
    text += _section("From slurm_config", {name: config[name] for name in sorted(config) if name not in own})
    text += "\n# Nodes\n" + _nodes(nodes, node_lines)
    text += "\n# Partitions\n" + _partitions(cluster, [node.name for node in nodes])
    return {
        "slurm.conf": text,
        "gres.conf": HEADER + _gres(nodes, gres),
        "cgroup.conf": HEADER + _cgroup(cluster),
    }


def refuse_shrinking(nodes: t.Sequence[Node], previous: t.Sequence[Node]) -> None:
    """Raises SlurmError that names each node with fewer GPUs of a type than it had."""
    before = {node.name: node for node in previous}
    sentences = [
        sentence
        for node in nodes
        if node.name in before and (sentence := _slurm_gres.missing(before[node.name], node)) is not None
    ]
    if sentences:
        raise SlurmError("; ".join(sentences))


def _user_config(cluster: Cluster) -> Lines:
    config: Lines = SETTINGS.read(cluster.config or {}, cluster.release, "slurm_config")
    for name, instead in NOT_IN_CONFIG.items():
        if name in config:
            raise SlurmError(f"slurm_config can't set {name}: it comes from {instead}")
    return config


def _cluster_settings(cluster: Cluster) -> Lines:
    hosts = [
        f"{host['name']}({host['address']})" if host.get("address") else str(host["name"])
        for host in cluster.controllers
    ]
    return {
        "ClusterName": [cluster.name],
        "SlurmctldHost": hosts,
        "SlurmUser": [cluster.slurm_user],
        "AuthType": ["auth/munge"],
        "SlurmctldParameters": None if cluster.single_host else ["enable_configless"],
        "PluginDir": [cluster.plugins_dir] if cluster.plugins_dir else None,
        "StateSaveLocation": [cluster.state_directory],
        "SlurmdSpoolDir": [cluster.spool_directory],
        "SlurmctldLogFile": [f"{cluster.log_directory}/slurmctld.log"],
        "SlurmdLogFile": [f"{cluster.log_directory}/slurmd.log"],
        "ReturnToService": ["2"],
    }


def _scheduling_settings(
    cluster: Cluster, kinds: t.Sequence[tuple[str, str]], lines: t.Iterable[NodeLine], config: Lines
) -> Lines:
    names = sorted({"gpu"} | {name for name, _type in kinds})
    memory = min(line.real_memory // line.cpus for line in lines)
    settings: Lines = {
        "ProctrackType": ["proctrack/cgroup"],
        "TaskPlugin": ["task/cgroup,task/affinity"],
        "PrologFlags": ["Contain"],
        "SelectType": ["select/cons_tres"],
        "SelectTypeParameters": ["CR_Core_Memory"],
        "SchedulerType": ["sched/backfill"],
        "SchedulerParameters": ["nohold_on_prolog_fail"] if cluster.health else None,
        "GresTypes": [",".join(names)],
        "DefMemPerCPU": [str(memory)] if memory and not any(name in config for name in DEFAULT_MEMORY) else None,
        "UnkillableStepTimeout": ["180"],
        "PriorityType": ["priority/basic"],
    }
    if cluster.accounting:
        settings.update(
            {
                "PriorityType": ["priority/multifactor"],
                "PriorityDecayHalfLife": ["7-0"],
                "PriorityMaxAge": ["7-0"],
                "PriorityWeightFairshare": ["100000"],
                "PriorityWeightQOS": ["10000"],
                "PriorityWeightAge": ["1000"],
            }
        )
    return settings


def _task_settings(cluster: Cluster, gres: t.Iterable[_slurm_gres.Gres]) -> Lines:
    unnamed = any(_slurm_gres.has_unnamed_mig(entry) for entry in gres)
    return {"TaskProlog": [cluster.mig_task_prolog] if cluster.mig_task_prolog and unnamed else None}


def _accounting_settings(cluster: Cluster, kinds: t.Sequence[tuple[str, str]]) -> Lines:
    settings: Lines = {"JobAcctGatherType": ["jobacct_gather/cgroup"], "JobAcctGatherFrequency": ["30"]}
    if not cluster.accounting:
        return settings
    values = dict(cluster.accounting)
    host, backup, port = values.pop("host", None), values.pop("backup_host", None), values.pop("port", None)
    enforce = values.pop("enforce", None) or ()
    if values or not host:
        raise SlurmError(f"cluster.accounting needs host and takes backup_host, port and enforce, not {sorted(values)}")
    tres = sorted({f"gres/{name}" for name, _type in kinds} | {"gres/gpu"})
    tres += [f"gres/{name}:{kind}" for name, kind in kinds if kind]
    settings.update(
        {
            "AccountingStorageType": ["accounting_storage/slurmdbd"],
            "AccountingStorageHost": [str(host)],
            "AccountingStorageBackupHost": [str(backup)] if backup else None,
            "AccountingStoragePort": [str(port)] if port else None,
            "AccountingStorageEnforce": [",".join(enforce)] if enforce else None,
            "AccountingStorageTRES": [",".join(sorted(tres))],
        }
    )
    return settings


def _health_settings(cluster: Cluster) -> Lines:
    if not cluster.health:
        return {}
    values = dict(cluster.health)
    prolog, epilog = values.pop("prolog", None), values.pop("epilog", None)
    program, interval = values.pop("program", None), values.pop("interval", None)
    if values:
        raise SlurmError(f"cluster.health takes prolog, epilog, program and interval, not {sorted(values)}")
    return {
        "Prolog": [str(prolog)] if prolog else None,
        "Epilog": [str(epilog)] if epilog else None,
        "PrologEpilogTimeout": ["60"] if prolog or epilog else None,
        "HealthCheckProgram": [str(program)] if program and interval else None,
        "HealthCheckInterval": [str(interval)] if program and interval else None,
        "HealthCheckNodeState": ["ANY"] if program and interval else None,
    }


def _section(title: str, settings: Lines) -> str:
    lines = [f"{name}={text}\n" for name, texts in settings.items() for text in texts or ()]
    return f"\n# {title}\n{''.join(lines)}" if lines else ""


def _node_line(node: Node, gres: _slurm_gres.Gres, cluster: Cluster) -> NodeLine:
    values: dict[str, str | None] = {name: str(number) for name, number in node.hardware.items()}
    values["RealMemory"] = str(_memory(node, cluster))
    values["Feature"] = ",".join(node.features) or None
    values["Weight"] = None if node.weight is None else str(node.weight)
    values["Gres"] = gres.value or None
    values["State"] = "UNKNOWN"
    where = f"node {node.name}: slurm_node_config"
    own = NODE.read(node.config, cluster.release, where)
    for name in ("NodeName", "NodeAddr", "Gres", "Features"):
        if name in own:
            raise SlurmError(f"{where} can't set {name}: it comes from the host, its GPUs or its own option")
    for name, found in (("CPUs", node.hardware["CPUs"]), ("RealMemory", node.hardware["RealMemory"])):
        texts = own.get(name)
        wanted = _whole(texts[0] if texts else None, 0)
        if wanted > found and not _overrides_hardware(cluster):
            raise SlurmError(
                f"{where} sets {name} to {wanted}, but slurmd finds {found}, and SLURM does not use a node that has "
                "less than its line says: take it away, or give a smaller number"
            )
    if "Sockets" in own:
        values["Boards"] = values["SocketsPerBoard"] = None
    if "Procs" in own:
        values["CPUs"] = None
    values.update({name: texts[0] if texts else None for name, texts in own.items()})
    return NodeLine(
        has_address=node.address not in ("", node.name),
        parameters=" ".join(f"{name}={value}" for name, value in values.items() if value is not None),
        real_memory=_whole(values["RealMemory"], 1),
        cpus=_whole(values.get("CPUs") or values.get("Procs"), node.hardware["CPUs"]),
    )


def _overrides_hardware(cluster: Cluster) -> bool:
    return any("config_overrides" in str(value) for value in (cluster.config or {}).values())


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() and int(text) else default


def _memory(node: Node, cluster: Cluster) -> int:
    """What jobs may use: never more than slurmd reports, which would set the node to invalid."""
    reported = node.hardware["RealMemory"]
    try:
        share = float(cluster.memory_reserve_percent if cluster.memory_reserve_percent is not None else 0)
        fixed = int(cluster.memory_reserve_mb if cluster.memory_reserve_mb is not None else 0)
    except (TypeError, ValueError):
        share = fixed = -1
    if not 0 <= share < 100 or fixed < 0:
        raise SlurmError(
            f"slurm_memory_reserve_mb is {cluster.memory_reserve_mb!r} and slurm_memory_reserve_percent "
            f"{cluster.memory_reserve_percent!r}: give a number of MB, and a percentage from 0 to below 100"
        )
    left = int(reported - max(fixed, reported * share / 100))
    left -= left % MEMORY_STEP if left >= MEMORY_STEP else 0
    if left < 1:
        raise SlurmError(
            f"node {node.name} has {reported} MB of memory, and the reserve leaves none to jobs: lower "
            "slurm_memory_reserve_mb or slurm_memory_reserve_percent"
        )
    return left


def _nodes(nodes: t.Sequence[Node], lines: t.Mapping[str, NodeLine]) -> str:
    groups: dict[NodeLine, list[Node]] = {}
    for node in nodes:
        groups.setdefault(lines[node.name], []).append(node)
    text = ""
    for line, alike in groups.items():
        text += f"NodeName={_slurm_hostlist.compress(node.name for node in alike)} "
        if line.has_address:
            text += f"NodeAddr={_slurm_hostlist.compress(node.address for node in alike)} "
        text += f"{line.parameters}\n"
    return text


def _gres(nodes: t.Sequence[Node], gres: t.Mapping[str, _slurm_gres.Gres]) -> str:
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        if gres[node.name].lines:
            groups.setdefault(gres[node.name].lines, []).append(node.name)
    return "".join(
        f"NodeName={_slurm_hostlist.compress(names)} {line}\n" for lines, names in groups.items() for line in lines
    )


def check_partitions(partitions: t.Any) -> None:
    """Raises SlurmError for partitions that no cluster can have, whatever its nodes and its version."""
    if not isinstance(partitions, (list, tuple)) or not partitions:
        raise SlurmError("slurm_partitions is not a list of partitions with name and nodes")
    seen, defaults = set(), []
    for partition in partitions:
        name = partition.get("name") if isinstance(partition, t.Mapping) else None
        if not isinstance(name, str) or not _PARTITION_NAME.fullmatch(name) or name.upper() == "DEFAULT":
            raise SlurmError(
                f"slurm_partitions: {partition!r} has no name of letters, digits and _ . -; DEFAULT is SLURM's own"
            )
        if name in seen:
            raise SlurmError(f"slurm_partitions: the partition {name} is there twice")
        seen.add(name)
        for key in partition:
            if key not in ("name", "nodes", "default", "config"):
                raise SlurmError(
                    f"partition {name} has the key {key!r}: it takes name, nodes, default and config; a parameter of "
                    "SLURM goes into config"
                )
        if partition.get("default"):
            defaults.append(name)
    if len(defaults) > 1:
        raise SlurmError(f"slurm_partitions has {len(defaults)} default partitions: {', '.join(defaults)}; keep one")


def _partitions(cluster: Cluster, names: t.Sequence[str]) -> str:
    check_partitions(cluster.partitions)
    default = next((one for one in cluster.partitions if one.get("default")), cluster.partitions[0])
    known = frozenset(names)
    return "".join(
        _partition(partition, known, cluster.release, is_default=partition is default)
        for partition in cluster.partitions
    )


def _partition(
    partition: t.Mapping[str, t.Any], known: frozenset[str], version: tuple[int, int], *, is_default: bool
) -> str:
    name = partition["name"]
    where = f"partition {name}"
    config = PARTITION.read(partition.get("config") or {}, version, where)
    for key in ("Nodes", "Default"):
        if key in config:
            raise SlurmError(f"{where}: config can't set {key}: use the partition's key {key.lower()}")
    values: dict[str, str | None] = {
        "Nodes": _partition_nodes(partition.get("nodes", "ALL"), where, known),
        "Default": "YES" if is_default else None,
        "State": "UP",
    }
    values.update({key: texts[0] if texts else None for key, texts in config.items()})
    return " ".join([f"PartitionName={name}", *(f"{key}={value}" for key, value in values.items() if value)]) + "\n"


def _partition_nodes(wanted: t.Any, where: str, known: frozenset[str]) -> str:
    items = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(items, (list, tuple)) or not items or not all(isinstance(item, str) for item in items):
        raise SlurmError(f"{where}: nodes is {wanted!r}, not ALL, a host name or a list of them")
    if any(item.upper() == "ALL" for item in items):
        return "ALL"
    try:
        names = {name for item in items for name in _slurm_hostlist.expand(item)}
    except ValueError as error:
        raise SlurmError(f"{where}: {error}") from error
    unknown = sorted(names - known, key=_slurm_hostlist.natural_key)
    if unknown:
        raise SlurmError(
            f"{where} names {_slurm_hostlist.compress(unknown)}, which is no node of the cluster"
            f"{_slurm_parameters.near(unknown[0], known)}"
        )
    return _slurm_hostlist.compress(sorted(names, key=_slurm_hostlist.natural_key))


def _cgroup(cluster: Cluster) -> str:
    settings: Lines = {
        "CgroupPlugin": ["autodetect"] if cluster.release >= CGROUP_V2_SINCE else None,
        "ConstrainCores": ["yes"],
        "ConstrainDevices": ["yes"],
        "ConstrainRAMSpace": ["yes"],
    }
    settings.update(CGROUP.read(cluster.cgroup_config or {}, cluster.release, "slurm_cgroup_config"))
    return "".join(f"{name}={text}\n" for name, texts in settings.items() for text in texts or ())


def read_previous(descriptions: t.Any) -> list[Node]:
    """Stored descriptions, without those that this version can't read."""
    return [node for node in map(_readable, descriptions or ()) if node is not None]


def _readable(description: t.Any) -> Node | None:
    try:
        return _slurm_node.read_node(description)
    except SlurmError:
        return None
