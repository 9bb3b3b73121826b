# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a changed configuration asks of SLURM's daemons: a reconfiguration, or a restart of which.

The sources are the manual pages slurm.conf(5), gres.conf(5) and scontrol(1) of the versions, and for nodes that come
and go the FAQ (doc/html/faq.shtml, "How should I add nodes to Slurm?"). Jobs survive each of these.
"""

from __future__ import annotations

import shlex
import typing as t
from dataclasses import dataclass, field

from . import _slurm_hostlist, _slurm_parameters
from ._slurm_parameters import SlurmError

FILES = ("slurm.conf", "gres.conf", "cgroup.conf")

NEW_PROCESSES_SINCE = (23, 11)
"""From here on a reconfiguration starts new processes of all daemons: scontrol(1)."""

NODES_BY_RECONFIGURE_SINCE = (24, 11)

ALWAYS_RESTART = frozenset({"authtype", "slurmctldhost", "slurmctldport", "slurmdport", "clustername"})
"""Listening ports and authentication; a new cluster name is a new cluster. Where a second controller is new, a
reconfiguration times out (24.11.5)."""

RESTART_CONTROLLER = frozenset(
    {
        "accountingstorageenforce",
        "accountingstoragetype",
        "accountingstoragetres",
        "credtype",
        "jobcontainertype",
        "maxjobcount",
        "maxnodecount",
        "plugindir",
        "powerplugin",
        "prioritytype",
        "proctracktype",
        "schedulertype",
        "selecttype",
        "selecttypeparameters",
        "slurmctldparameters",
        "statesavelocation",
        "switchtype",
        "grestypes",
    }
)
RESTART_NODES = frozenset(
    {
        "corespecplugin",
        "grestypes",
        "jobacctgathertype",
        "plugindir",
        "proctracktype",
        "selecttype",
        "slurmdspooldir",
        "switchtype",
        "taskplugin",
    }
)
"""Before NEW_PROCESSES_SINCE, as slurm.conf(5) of 22.05 and 23.02 has it, with the plugins that a daemon loads once."""

FREE_NODE_PARAMETERS = frozenset({"feature", "features", "weight", "state", "reason"})


@dataclass
class Change:
    """What is to be done."""

    changed: bool
    action: str = "none"
    controllers: bool = False
    nodes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    added_nodes: list[str] = field(default_factory=list)
    removed_nodes: list[str] = field(default_factory=list)
    removed_partitions: list[str] = field(default_factory=list)
    gres_nodes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Parsed:
    """The files without comments and order of the lines."""

    settings: dict[str, list[str]]
    nodes: dict[str, dict[str, str]]
    partitions: dict[str, str]
    gres: dict[str, list[str]]
    cgroup: dict[str, list[str]]


def compare(old: t.Mapping[str, str], new: t.Mapping[str, str], version: tuple[int, int]) -> Change:
    """What the daemons need after the old files have become the new ones. Raises SlurmError for texts that are none."""
    change = Change(changed=any(old.get(name) != new.get(name) for name in FILES))
    after = parse(new)
    if not (old.get("slurm.conf") or "").strip():
        change.action, change.controllers, change.nodes = "restart", True, list(after.nodes)
        change.reasons.append("there was no slurm.conf")
        change.added_nodes = list(after.nodes)
        return change
    before = parse(old)
    restart_nodes: set[str] = set()
    _compare_nodes(before, after, version, change, restart_nodes)
    _compare_settings(before, after, version, change, restart_nodes)
    _compare_gres(before, after, version, change, restart_nodes)
    change.removed_partitions = [name for name in before.partitions if name not in after.partitions]
    change.reasons += [f"partition {name} is removed" for name in change.removed_partitions]
    change.reasons += [
        f"partition {name} is {'changed' if name in before.partitions else 'new'}"
        for name, text in after.partitions.items()
        if before.partitions.get(name) != text
    ]
    change.reasons += [
        f"{name} of cgroup.conf is changed"
        for name in {**before.cgroup, **after.cgroup}
        if before.cgroup.get(name) != after.cgroup.get(name)
    ]
    change.nodes = [name for name in after.nodes if name in restart_nodes]
    if change.controllers or change.nodes:
        change.action = "restart"
    elif change.reasons:
        change.action = "reconfigure"
    return change


def _compare_nodes(
    before: Parsed, after: Parsed, version: tuple[int, int], change: Change, restart_nodes: set[str]
) -> None:
    change.added_nodes = [name for name in after.nodes if name not in before.nodes]
    change.removed_nodes = [name for name in before.nodes if name not in after.nodes]
    for names, what in ((change.added_nodes, "new"), (change.removed_nodes, "removed")):
        if names:
            change.reasons.append(f"{_slurm_hostlist.compress(names)} {'is' if len(names) == 1 else 'are'} {what}")
    if (change.added_nodes or change.removed_nodes) and version < NODES_BY_RECONFIGURE_SINCE:
        change.controllers = True
        restart_nodes.update(after.nodes)
    changed: dict[str, list[str]] = {}
    for name, values in after.nodes.items():
        old = before.nodes.get(name, values)
        if old is values or old == values:
            continue
        keys = [key for key in {**old, **values} if old.get(key) != values.get(key)]
        changed.setdefault(", ".join(keys), []).append(name)
        if version < NEW_PROCESSES_SINCE and not FREE_NODE_PARAMETERS.issuperset(key.lower() for key in keys):
            change.controllers = True
            restart_nodes.add(name)
        if any(key.lower() == "gres" for key in keys):
            change.gres_nodes.append(name)
    change.reasons += [f"{keys} of {_slurm_hostlist.compress(names)} changed" for keys, names in changed.items()]


def _compare_settings(
    before: Parsed, after: Parsed, version: tuple[int, int], change: Change, restart_nodes: set[str]
) -> None:
    for name in {**before.settings, **after.settings}:
        if before.settings.get(name) == after.settings.get(name):
            continue
        parameter = _slurm_parameters.SETTINGS.parameters.get(name)
        change.reasons.append(f"{parameter.name if parameter else name} changed")
        old = version < NEW_PROCESSES_SINCE
        if name in ALWAYS_RESTART or (old and name in RESTART_CONTROLLER):
            change.controllers = True
        if name in ALWAYS_RESTART or (old and name in RESTART_NODES):
            restart_nodes.update(after.nodes)


def _compare_gres(
    before: Parsed, after: Parsed, version: tuple[int, int], change: Change, restart_nodes: set[str]
) -> None:
    changed = [name for name in after.nodes if before.gres.get(name) != after.gres.get(name) and name in before.nodes]
    if not changed:
        return
    change.reasons.append(f"gres.conf of {_slurm_hostlist.compress(changed)} changed")
    known = set(change.gres_nodes)
    change.gres_nodes += [name for name in changed if name not in known]
    if version < NEW_PROCESSES_SINCE:
        change.controllers = True
        restart_nodes.update(changed)
    elif any(_cores(before.gres.get(name)) != _cores(after.gres.get(name)) for name in changed):
        change.controllers = True


def _cores(lines: t.Sequence[str] | None) -> list[str]:
    return [part for line in lines or () for part in line.split() if part.lower().startswith("cores=")]


def parse(texts: t.Mapping[str, str]) -> Parsed:
    """The files. Raises SlurmError for a line that is none of theirs."""
    settings: dict[str, list[str]] = {}
    nodes: dict[str, dict[str, str]] = {}
    partitions: dict[str, str] = {}
    for line in _lines(texts, "slurm.conf"):
        name, value = _pair(line, "slurm.conf")
        if name == "nodename":
            _add_node(line, nodes)
        elif name == "partitionname":
            first, _space, rest = line.partition(" ")
            partitions[first.split("=", 1)[1]] = rest
        else:
            settings.setdefault(name, []).append(value)
    gres: dict[str, list[str]] = {}
    for line in _lines(texts, "gres.conf"):
        first, _space, rest = line.partition(" ")
        name, value = _pair(first, "gres.conf")
        if name != "nodename":
            raise SlurmError(f"gres.conf has the line {line!r}, which names no nodes")
        for node in _slurm_hostlist.expand(value):
            gres.setdefault(node, []).append(rest)
    cgroup: dict[str, list[str]] = {}
    for line in _lines(texts, "cgroup.conf"):
        name, value = _pair(line, "cgroup.conf")
        cgroup.setdefault(name, []).append(value)
    return Parsed(settings, nodes, partitions, gres, cgroup)


def _add_node(line: str, nodes: dict[str, dict[str, str]]) -> None:
    values = dict(part.split("=", 1) for part in shlex.split(line) if "=" in part)
    names = _slurm_hostlist.expand(values.pop(next(iter(values))))
    addresses = values.pop("NodeAddr", "")
    if not addresses:
        nodes.update(dict.fromkeys(names, values))
        return
    for name, address in zip(names, _slurm_hostlist.expand(addresses)):
        nodes[name] = {**values, "NodeAddr": address}


def _lines(texts: t.Mapping[str, str], name: str) -> t.Iterator[str]:
    for line in (texts.get(name) or "").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            yield text


def _pair(line: str, file: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise SlurmError(f"{file} has the line {line!r}, which is no setting")
    return name.strip().lower(), value.strip()
