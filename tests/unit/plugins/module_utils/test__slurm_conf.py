# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration files of a cluster."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_conf, _slurm_node
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_parameters import SlurmError
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_nodes import HARDWARE, cluster, gpu, mig_gpu, node


def files(nodes: t.Sequence[dict[str, t.Any]], previous: t.Any = None, **values: t.Any) -> dict[str, str]:
    return _slurm_conf.files(
        _slurm_node.read_nodes(nodes),
        _slurm_conf.read_cluster(cluster(**values)),
        _slurm_conf.read_previous(previous),
    )


def lines(nodes: t.Sequence[dict[str, t.Any]], start: str, file: str = "slurm.conf", **values: t.Any) -> list[str]:
    return [line for line in files(nodes, **values)[file].splitlines() if line.startswith(start)]


def settings(nodes: t.Sequence[dict[str, t.Any]] | None = None, **values: t.Any) -> dict[str, str]:
    text = files(nodes or [node()], **values)["slurm.conf"].split("# Nodes")[0]
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


HEAD = "CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=2"


def test_the_whole() -> None:
    nodes = [node("gpu02", [gpu(0)]), node("gpu01", [gpu(0)]), node("cpu1", weight=5, features=["big"])]
    assert files(nodes, health={"prolog": "/p", "epilog": "/e", "program": "/h", "interval": 300}) == {
        "slurm.conf": f"""\
# Written by Ansible, cudahub.gpu.slurm: changes are lost with the next play.

# Cluster
ClusterName=cluster
SlurmctldHost=head(10.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
SlurmctldParameters=enable_configless
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ReturnToService=2

# Scheduling
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
PrologFlags=Contain
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=nohold_on_prolog_fail
GresTypes=gpu
DefMemPerCPU=2000
UnkillableStepTimeout=180
PriorityType=priority/basic

# Accounting
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=30

# Health
Prolog=/p
Epilog=/e
PrologEpilogTimeout=60
HealthCheckProgram=/h
HealthCheckInterval=300
HealthCheckNodeState=ANY

# Nodes
NodeName=cpu1 {HEAD} RealMemory=64000 Feature=big Weight=5 State=UNKNOWN
NodeName=gpu[01-02] {HEAD} RealMemory=64000 Gres=gpu:tesla_t4:1 State=UNKNOWN

# Partitions
PartitionName=main Nodes=ALL Default=YES State=UP
""",
        "gres.conf": """\
# Written by Ansible, cudahub.gpu.slurm: changes are lost with the next play.
NodeName=gpu[01-02] AutoDetect=off Name=gpu Type=tesla_t4 File=/dev/nvidia0 Flags=nvidia_gpu_env
""",
        "cgroup.conf": """\
# Written by Ansible, cudahub.gpu.slurm: changes are lost with the next play.
CgroupPlugin=autodetect
ConstrainCores=yes
ConstrainDevices=yes
ConstrainRAMSpace=yes
""",
    }


def test_the_order_of_the_nodes_does_not_matter() -> None:
    nodes = [node(f"gpu{number}", [gpu(0), gpu(1)][: number % 3]) for number in range(12)]
    assert files(nodes) == files(nodes[::-1])


def test_alike_nodes_share_a_line() -> None:
    nodes = [node(f"gpu{number:02d}", [gpu(0)], address=f"10.0.0.{number}") for number in (1, 2, 3, 7)]
    nodes.append(node("gpu04", [gpu(0), gpu(1)]))
    assert lines(nodes, "NodeName=") == [
        f"NodeName=gpu[01-03,07] NodeAddr=10.0.0.[1-3,7] {HEAD} RealMemory=64000 Gres=gpu:tesla_t4:1 State=UNKNOWN",
        f"NodeName=gpu04 {HEAD} RealMemory=64000 Gres=gpu:tesla_t4:2 State=UNKNOWN",
    ]


def test_addresses_stay_with_their_names() -> None:
    nodes = [node("gpu1", address="10.0.0.9"), node("gpu2", address="10.0.0.8"), node("gpu3", address="gpu3")]
    assert [line.split(" CPUs")[0] for line in lines(nodes, "NodeName=")] == [
        "NodeName=gpu[1-2] NodeAddr=10.0.0.[9,8]",
        "NodeName=gpu3",
    ]


@pytest.mark.parametrize(
    ("memory", "values", "expected"),
    [
        (64000, {}, 64000),
        (64099, {}, 64000),
        (64000, {"memory_reserve_mb": 1024}, 62900),
        (64000, {"memory_reserve_percent": 5}, 60800),
        (64000, {"memory_reserve_percent": 5, "memory_reserve_mb": 8000}, 56000),
        (64000, {"memory_reserve_percent": 2.5}, 62400),
        (50, {}, 50),
    ],
)
def test_memory(memory: int, values: dict[str, t.Any], expected: int) -> None:
    nodes = [node(hardware={**HARDWARE, "RealMemory": memory})]
    assert f"RealMemory={expected} " in lines(nodes, "NodeName=", **values)[0]


def test_default_memory_is_that_of_the_smallest_node() -> None:
    nodes = [node(), node("small", hardware={**HARDWARE, "RealMemory": 33000})]
    assert settings(nodes)["DefMemPerCPU"] == "1031"


@pytest.mark.parametrize("own", ["DefMemPerGPU", "DefMemPerNode", "DefMemPerCPU"])
def test_default_memory_is_the_users(own: str) -> None:
    assert {name: value for name, value in settings(config={own: 77}).items() if name.startswith("DefMem")} == {
        own: "77"
    }


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"config": {"killwait": 60}}, "KillWait", "60"),
        ({"config": {"returntoservice": 1}}, "ReturnToService", "1"),
        ({"config": {"ReturnToService": None}}, "ReturnToService", None),
        ({"single_host": True}, "SlurmctldParameters", None),
        ({"single_host": True, "config": {"SlurmctldParameters": "a"}}, "SlurmctldParameters", "a"),
        ({"plugins_dir": "/usr/lib/slurm"}, "PluginDir", "/usr/lib/slurm"),
        ({"slurm_user": "slurmd"}, "SlurmUser", "slurmd"),
        ({"accounting": None}, "AccountingStorageType", None),
        ({"accounting": {"host": "db"}}, "AccountingStorageType", "accounting_storage/slurmdbd"),
        ({"accounting": {"host": "db", "enforce": ["limits", "qos"]}}, "AccountingStorageEnforce", "limits,qos"),
        ({"accounting": {"host": "db", "port": 7000}}, "AccountingStoragePort", "7000"),
        ({"accounting": {"host": "db", "backup_host": "db2"}}, "AccountingStorageBackupHost", "db2"),
        ({"accounting": {"host": "db"}}, "AccountingStorageTRES", "gres/gpu"),
        ({"accounting": {"host": "db"}}, "PriorityType", "priority/multifactor"),
        ({"health": {"prolog": "/p"}}, "HealthCheckNodeState", None),
    ],
)
def test_settings(values: dict[str, t.Any], name: str, expected: str | None) -> None:
    assert settings(**values).get(name) == expected


def test_tres_of_every_type() -> None:
    nodes = [node("a", [mig_gpu(0, "x", 1), gpu(1, "x")]), node("b", [gpu(0, "y")], shards=2)]
    found = settings(nodes, accounting={"host": "db"})
    assert found["AccountingStorageTRES"] == "gres/gpu,gres/gpu:x,gres/gpu:x_1g.5gb,gres/gpu:y,gres/shard"
    assert found["GresTypes"] == "gpu,shard"


def test_settings_with_several_lines() -> None:
    assert lines([node()], "Prolog=", config={"Prolog": ["/a", "/b"]}) == ["Prolog=/a", "Prolog=/b"]
    two = [{"name": "head1", "address": ""}, {"name": "head2", "address": "10.0.0.2"}]
    assert lines([node()], "SlurmctldHost=", controllers=two) == [
        "SlurmctldHost=head1",
        "SlurmctldHost=head2(10.0.0.2)",
    ]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"CPUs": 30}, "CPUs=30 Boards=1 SocketsPerBoard=2"),
        ({"Sockets": 4}, "CPUs=32 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000 State=UNKNOWN Sockets=4"),
        (
            {"Procs": 4},
            "Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000 State=UNKNOWN Procs=4",
        ),
        ({"state": "DRAIN", "Reason": "new node"}, f'{HEAD} RealMemory=64000 State=DRAIN Reason="new node"'),
        ({"State": None}, f"{HEAD} RealMemory=64000"),
    ],
)
def test_node_config(config: dict[str, t.Any], expected: str) -> None:
    assert lines([node(config=config)], "NodeName=")[0].startswith(f"NodeName=gpu01 {expected}")


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (None, ["main Nodes=ALL Default=YES State=UP"]),
        ([{"name": "a"}, {"name": "b"}], ["a Nodes=ALL Default=YES State=UP", "b Nodes=ALL State=UP"]),
        (
            [{"name": "a", "nodes": "gpu1"}, {"name": "b", "nodes": ["gpu2", "gpu1"], "default": True}],
            ["a Nodes=gpu1 State=UP", "b Nodes=gpu[1-2] Default=YES State=UP"],
        ),
        ([{"name": "a", "nodes": "gpu[1-2],gpu3"}], ["a Nodes=gpu[1-3] Default=YES State=UP"]),
        (
            [{"name": "a", "nodes": "all", "config": {"maxtime": "1-0", "state": "DOWN", "AllowGroups": ["x", "y"]}}],
            ["a Nodes=ALL Default=YES State=DOWN MaxTime=1-0 AllowGroups=x,y"],
        ),
    ],
)
def test_partitions(partitions: t.Any, expected: list[str]) -> None:
    nodes = [node(f"gpu{number}") for number in (1, 2, 3)]
    assert lines(nodes, "PartitionName=", partitions=partitions) == [f"PartitionName={line}" for line in expected]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"partitions": [{"name": "a", "config": {"MaxTimes": 5}}]}, "partition a: .*'MaxTimes'; did you mean MaxTime"),
        ({"partitions": [{"name": "a", "max_time": 5}]}, "partition a has the key 'max_time'"),
        ({"partitions": [{"name": "a", "nodes": ["gpu91"]}]}, "names gpu91, which is no node .*; did you mean gpu01?"),
        ({"partitions": [{"name": "a", "nodes": []}]}, r"nodes is \[\], not ALL"),
        ({"partitions": [{"name": "a", "nodes": "gpu[1-"}]}, "partition a: 'gpu.1-' is not a list of host names"),
        ({"partitions": [{"name": "a"}, {"name": "a"}]}, "the partition a is there twice"),
        ({"partitions": [{"name": "DEFAULT"}]}, "DEFAULT is SLURM's own"),
        ({"partitions": [{"nodes": "ALL"}]}, "has no name"),
        ({"partitions": [{"name": "a b"}]}, "has no name of letters"),
        ({"partitions": []}, "is not a list of partitions"),
        ({"partitions": ["a"]}, "has no name"),
        (
            {"partitions": [{"name": "a", "default": True}, {"name": "b", "default": True}]},
            "has 2 default partitions: a, b; keep one",
        ),
        ({"partitions": [{"name": "a", "config": {"Default": True}}]}, "config can't set Default"),
        ({"partitions": [{"name": "a", "config": {"Nodes": "x"}}]}, "config can't set Nodes"),
        ({"name": "Regis"}, "slurm_cluster_name is 'Regis'"),
        ({"name": "my cluster"}, "slurm_cluster_name is 'my cluster'"),
        ({"name": "cluster.lan"}, "slurm_cluster_name is 'cluster.lan'"),
        ({"name": "_a"}, "slurm_cluster_name is '_a'"),
        ({"name": "a" * 41}, "has 41 characters: SLURM takes 40"),
        ({"name": ""}, "cluster needs the key name"),
        ({"controllers": []}, "cluster needs the key controllers"),
        ({"partition": []}, "cluster has no key 'partition'; did you mean partitions?"),
        ({"version": "20.11"}, "SLURM 20.11 is older"),
        ({"version": "21.08.5", "cgroup_version": 2}, "can't use cgroup v2"),
        ({"config": {"TLSType": "x"}, "version": "22.05.8"}, "slurm_config: SLURM 22.05 has no setting TLSType"),
        ({"config": {"ClusterName": "x"}}, "slurm_config can't set ClusterName: it comes from slurm_cluster_name"),
        ({"config": {"nodename": "x"}}, "slurm_config can't set NodeName"),
        ({"config": {"StateSaveLocation": "/x"}}, "slurm_config can't set StateSaveLocation"),
        ({"cgroup_config": {"CgroupAutomount": True}}, "slurm_cgroup_config: SLURM 24.11 has no .* CgroupAutomount"),
        ({"memory_reserve_percent": 100}, "slurm_memory_reserve_percent 100"),
        ({"memory_reserve_mb": "much"}, "slurm_memory_reserve_mb is 'much'"),
        ({"memory_reserve_mb": 64000}, "node gpu01 has 64000 MB of memory, and the reserve leaves none"),
        ({"accounting": {"port": 1}}, "cluster.accounting needs host"),
        ({"accounting": {"host": "a", "password": "x"}}, r"not \['password'\]"),
        ({"health": {"prologue": "x"}}, r"not \['prologue'\]"),
    ],
)
def test_refuses(values: dict[str, t.Any], message: str) -> None:
    with pytest.raises(SlurmError, match=message):
        files([node()], **values)


@pytest.mark.parametrize(
    ("nodes", "values", "message"),
    [
        ([], {}, "there is no compute node"),
        ([node(config={"Gres": "gpu:4"})], {}, "node gpu01: slurm_node_config can't set Gres"),
        (
            [node(config={"CPUs": 400})],
            {},
            "node gpu01: slurm_node_config sets CPUs to 400, but slurmd finds 32, and SLURM does not use a node",
        ),
        ([node(config={"RealMemory": 99999999})], {}, "sets RealMemory to 99999999, but slurmd finds"),
        ([node(config={"RestrictedCoresPerGPU": 1})], {"version": "22.05"}, "it came with 24.05"),
        (
            [node("a", [mig_gpu(0, "x", 2)], version="22.05.8"), node("b", [gpu(0)], shards=2, version="22.05.8")],
            {"version": "22.05.8"},
            "node a has MIG instances and node b shares GPUs",
        ),
    ],
)
def test_refuses_nodes(nodes: t.Any, values: dict[str, t.Any], message: str) -> None:
    with pytest.raises(SlurmError, match=message):
        files(nodes, **values)


def test_more_than_the_hardware_is_written_where_the_site_overrides_it() -> None:
    text = files([node(config={"CPUs": 400})], config={"SlurmdParameters": "config_overrides"})["slurm.conf"]
    assert "CPUs=400" in text


def test_a_gpu_that_is_gone() -> None:
    before = [node("gpu01", [gpu(0), gpu(1)]), node("gone", [gpu(0)]), {"name": "older"}]
    now = [node("gpu01", [gpu(0)]), node("gpu02")]
    with pytest.raises(SlurmError, match="node gpu01 has fewer GPUs than before: 1 instead of 2 of type tesla_t4"):
        files(now, before)
    assert "Gres=gpu:tesla_t4:1 " in files(now, before, gpu_shrink_allowed=True)["slurm.conf"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"version": "21.08.5"}, ["ConstrainCores=yes", "ConstrainDevices=yes", "ConstrainRAMSpace=yes"]),
        (
            {"cgroup_config": {"constraincores": False, "CgroupPlugin": None, "MaxRAMPercent": 98.5}},
            ["ConstrainCores=no", "ConstrainDevices=yes", "ConstrainRAMSpace=yes", "MaxRAMPercent=98.5"],
        ),
    ],
)
def test_cgroup(values: dict[str, t.Any], expected: list[str]) -> None:
    assert files([node()], **values)["cgroup.conf"].splitlines()[1:] == expected


@pytest.mark.parametrize(
    "version", ["21.08.5", "22.05.8", "23.02.0", "23.11.4", "24.05.1", "24.11.5", "25.05.2", "25.11.1"]
)
def test_every_version_has_the_settings_that_are_written(version: str) -> None:
    values = {
        "accounting": {"host": "db", "enforce": ["limits"]},
        "health": {"prolog": "/p", "program": "/h", "interval": 9},
    }
    text = files([node(version=version)], version=version, **values)
    release = _slurm_conf.read_cluster(cluster(version=version)).release
    for line in [*text["slurm.conf"].split("# Nodes")[0].splitlines()]:
        if "=" in line:
            _slurm_conf.SETTINGS.find(line.split("=")[0], release, "")
    for line in text["cgroup.conf"].splitlines()[1:]:
        _slurm_conf.CGROUP.find(line.split("=")[0], release, "")


@pytest.mark.parametrize(
    ("described", "written"),
    [
        (node("a", [mig_gpu(0, "x", 2)]), True),
        (node("a", [mig_gpu(0, "x", 2)], plugins=["nvml"]), False),
        (node("a", [gpu(0)]), False),
    ],
)
def test_tasks_are_told_their_mig_instances_where_slurm_can_only_number_them(
    described: dict[str, t.Any], written: bool
) -> None:
    assert settings([described], mig_task_prolog="/tell").get("TaskProlog") == ("/tell" if written else None)
