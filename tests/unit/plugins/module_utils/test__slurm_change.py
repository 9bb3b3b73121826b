# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a changed configuration asks of the daemons."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_change, _slurm_conf, _slurm_node
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_nodes import HARDWARE, cluster, gpu, node

OLD, NEW, NEWEST = (22, 5), (23, 11), (24, 11)
NODES = [node("gpu1", [gpu(0)]), node("gpu2", [gpu(0)]), node("cpu1")]
ALL = ["cpu1", "gpu1", "gpu2"]


def files(nodes: t.Sequence[dict[str, t.Any]] | None = None, **values: t.Any) -> dict[str, str]:
    return _slurm_conf.files(
        _slurm_node.read_nodes(NODES if nodes is None else nodes), _slurm_conf.read_cluster(cluster(**values))
    )


def with_setting(**config: t.Any) -> dict[str, str]:
    return files(config=config)


ADDED = files([*NODES, node("gpu3", [gpu(0)])])
FEWER = files(NODES[:2])
MORE_GPUS = files([node("gpu1", [gpu(0), gpu(1)]), *NODES[1:]])
CORES = files([node("gpu1", [gpu(0, cpu_affinity="0-7,16-23")]), *NODES[1:]])
LESS_MEMORY = files([node("gpu1", [gpu(0)], hardware={**HARDWARE, "RealMemory": 9000}), *NODES[1:]])
WEIGHT = files([node("gpu1", [gpu(0)], weight=7), *NODES[1:]])
PARTITION = files(partitions=[{"name": "main", "config": {"MaxTime": 5}}])


@pytest.mark.parametrize(
    ("new", "version", "action", "controllers", "nodes"),
    [
        (files(), OLD, "none", False, []),
        (PARTITION, OLD, "reconfigure", False, []),
        (PARTITION, NEWEST, "reconfigure", False, []),
        (WEIGHT, OLD, "reconfigure", False, []),
        (LESS_MEMORY, OLD, "restart", True, ["gpu1"]),
        (LESS_MEMORY, NEW, "reconfigure", False, []),
        (ADDED, OLD, "restart", True, [*ALL, "gpu3"]),
        (ADDED, NEW, "restart", True, [*ALL, "gpu3"]),
        (ADDED, NEWEST, "reconfigure", False, []),
        (FEWER, OLD, "restart", True, ["gpu1", "gpu2"]),
        (FEWER, NEWEST, "reconfigure", False, []),
        (MORE_GPUS, OLD, "restart", True, ["gpu1"]),
        (MORE_GPUS, NEW, "reconfigure", False, []),
        (CORES, NEWEST, "restart", True, []),
        (with_setting(KillWait=60), OLD, "reconfigure", False, []),
        (with_setting(SelectTypeParameters="CR_Core"), OLD, "restart", True, []),
        (with_setting(SelectTypeParameters="CR_Core"), NEW, "reconfigure", False, []),
        (with_setting(TaskPlugin="task/cgroup"), OLD, "restart", False, ALL),
        (with_setting(GresTypes="gpu,nic"), OLD, "restart", True, ALL),
        (with_setting(GresTypes="gpu,nic"), NEW, "reconfigure", False, []),
        (with_setting(SlurmdPort=7000), NEWEST, "restart", True, ALL),
        (with_setting(AuthType="auth/slurm"), NEWEST, "restart", True, ALL),
        (files(controllers=[{"name": "head"}, {"name": "second"}]), NEWEST, "restart", True, ALL),
        (with_setting(Prolog=["/a", "/b"]), OLD, "reconfigure", False, []),
        (files(cgroup_config={"ConstrainSwapSpace": True}), OLD, "reconfigure", False, []),
    ],
)
def test_change(
    new: dict[str, str], version: tuple[int, int], action: str, controllers: bool, nodes: list[str]
) -> None:
    change = _slurm_change.compare(files(), new, version)
    assert (change.action, change.controllers, change.nodes) == (action, controllers, nodes)
    assert change.changed is (action != "none")
    assert bool(change.reasons) is change.changed


def test_what_comes_and_goes() -> None:
    change = _slurm_change.compare(files(), ADDED, NEWEST)
    assert (change.added_nodes, change.removed_nodes, change.reasons) == (["gpu3"], [], ["gpu3 is new"])
    change = _slurm_change.compare(ADDED, FEWER, NEWEST)
    assert (change.added_nodes, change.removed_nodes) == ([], ["cpu1", "gpu3"])
    assert change.reasons == ["cpu1,gpu3 are removed"]
    other = files(partitions=[{"name": "other"}])
    change = _slurm_change.compare(files(), other, NEWEST)
    assert change.removed_partitions == ["main"]
    assert change.reasons == ["partition main is removed", "partition other is new"]


def test_nodes_whose_gres_change() -> None:
    change = _slurm_change.compare(files(), MORE_GPUS, NEWEST)
    assert change.gres_nodes == ["gpu1"]
    assert change.reasons == ["Gres of gpu1 changed", "gres.conf of gpu1 changed"]


def test_a_comment_needs_nothing() -> None:
    new = {name: text.replace("Ansible", "somebody") for name, text in files().items()}
    change = _slurm_change.compare(files(), new, OLD)
    assert (change.changed, change.action, change.reasons) == (True, "none", [])


@pytest.mark.parametrize("old", [{}, {"slurm.conf": ""}])
def test_the_first_time(old: dict[str, str]) -> None:
    change = _slurm_change.compare(old, files(), NEWEST)
    assert (change.action, change.controllers, change.nodes) == ("restart", True, ALL)
    assert change.reasons == ["there was no slurm.conf"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"slurm.conf": "ClusterName"}, "slurm.conf has the line 'ClusterName', which is no setting"),
        ({"slurm.conf": "A=b", "gres.conf": "Name=gpu"}, "which names no nodes"),
        ({"slurm.conf": "NodeName=gpu[1- CPUs=1"}, "is not a list of host names"),
    ],
)
def test_refuses(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _slurm_change.compare(files(), texts, NEWEST)
