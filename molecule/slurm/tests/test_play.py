# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What further plays do to a cluster that works: jobs go on, and what can't work is refused before any change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from testinfra.host import Host

testinfra_hosts = ["ansible://head"]
UNITS = ["slurmctld", "slurmdbd", "munge"]

PLAY = Path(__file__).parents[1] / "role.yml"
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
SHARED = Path(__file__).parents[2] / "shared"
PROCESS = 'pgrep -u root -fx "sleep 600"'
PARTITIONS = [{"name": "main", "nodes": "ALL"}, {"name": "hopper", "nodes": ["gpu1"], "config": {"MaxTime": "120"}}]
Play = Callable[..., CompletedProcess[str]]
# What a refusal leaves alone: the configuration, what is known of the nodes, and the daemon.
LOOK = (
    "cksum /etc/slurm/*.conf /var/lib/cudahub/slurm/nodes.json /var/lib/cudahub/slurm/slurmctld.json; "
    "systemctl show slurmctld --property=MainPID"
)


def run(play: Play, *arguments: str, **variables: Any) -> tuple[int, str]:
    """Run the role; return how it ended and what it said, on one line."""
    done = play(PLAY, "--extra-vars", json.dumps(variables), *arguments)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def on(host: Host, name: str) -> Host:
    """Return another host of the cluster."""
    return Host.get_host(f"ansible://{name}", ansible_inventory=host.backend.ansible_runner.inventory_file)


@pytest.fixture
def job(host: Host) -> Iterator[str]:
    """A job that has a GPU of gpu1 for minutes, and whose process runs: SLURM says RUNNING before."""
    number = host.check_output(
        "sbatch --parsable --chdir=/ --mem=64 --nodelist=gpu1 --gres=gpu:1 --output=/dev/null --wrap 'sleep 600'"
    )
    host.run_expect([0], f"timeout 120 sh -c 'until squeue -hj {number} -o %T | grep -q RUNNING; do sleep 0.5; done'")
    on(host, "gpu1").run_expect([0], f"timeout 120 sh -c 'until {PROCESS}; do sleep 0.5; done'")
    yield number
    host.run_expect([0], f"scancel {number}")
    host.run_expect([0], f"timeout 120 sh -c 'while squeue -hj {number} | grep -q .; do sleep 0.5; done'")


def seen(host: Host, number: str) -> tuple[str, str]:
    """State and process of a job's sleep, which another one would not have."""
    return host.check_output(f"squeue -hj {number} -o '%T %r'"), on(host, "gpu1").check_output(PROCESS)


def test_a_job_survives_a_changed_partition_and_a_restart(host: Host, play: Play, job: str) -> None:
    before = seen(host, job)
    code, said = run(play, "--limit", "gpu2", slurm_partitions=PARTITIONS)
    assert code == 0, said
    assert "MaxTime=02:00:00" in host.check_output("scontrol show partition hopper")
    assert seen(host, job) == before
    host.run_expect([0], "systemctl restart slurmctld")
    host.run_expect([0], "timeout 120 sh -c 'until scontrol ping | grep -q UP; do sleep 0.5; done'")
    assert seen(host, job) == before


def test_a_partition_with_jobs_does_not_go(host: Host, play: Play, job: str) -> None:
    only = [{"name": "other", "nodes": "ALL"}]
    code, said = run(play, "--limit", "gpu2", slurm_partitions=only)
    assert code == 2, said
    assert re.search(rf"main, hopper would be taken away or change under jobs: job {job} of root", said), said
    assert host.file("/etc/slurm/slurm.conf").contains("PartitionName=main")


REFUSED = [
    ("head", {"slurm_cluster_name": "other"}, "holds the jobs of the cluster classroom, and slurmctld would not start"),
    ("head", {"slurm_state_directory": "/usr/share"}, "(/usr/share) on head is that of root, with files in it"),
    ("gpu1", {"slurm_users": [{"name": "daemon", "state": "absent"}]}, "is a user of the system (UID 1) on gpu1"),
    ("head", {"slurm_partitions": [{"name": "main", "config": {"MaxTim": "60"}}]}, "MaxTim"),
]
ALSO_REFUSED = [
    (
        "head",
        {"slurm_config": {"SchedulerType": "sched/foo"}},
        "slurmctld refuses the new configuration, and the running one",
    ),
    ("head", {"slurm_cluster_name": "Class Room"}, "slurm_cluster_name is 'Class Room', which SLURM does not accept"),
    ("gpu1", {"slurm_state_min_free_mb": 99999999}, "MB left, and slurmctld loses jobs when it is full"),
    ("gpu1", {"slurm_config": {"Prolog": "/opt/site/prolog"}}, "names /opt/site/prolog, which gpu1 does not have"),
    ("head", {"slurm_accounts": [{"name": "class", "qos": ["fast"]}]}, "class: There is no QOS 'fast'"),
    ("gpu1", {"slurm_node_config": {"CPUs": 400}}, "slurm_node_config sets CPUs to 400, but slurmd finds "),
    ("gpu1", {"slurm_node_name": "nowhere"}, "does not know the name nowhere of gpu1"),
    ("head", {"_slurm_os": "Gentoo-2"}, "which role slurm does not support: it supports Debian-12"),
]


@pytest.mark.parametrize(
    ("host_name", "variables", "sentence"),
    [*REFUSED, *(pytest.param(*refused, marks=pytest.mark.long) for refused in ALSO_REFUSED)],
)
def test_what_cannot_work_is_refused_before_any_change(
    host: Host, play: Play, host_name: str, variables: dict[str, Any], sentence: str
) -> None:
    before = host.check_output(LOOK)
    code, said = run(play, "--limit", host_name, **variables)
    assert code == 2, said
    assert sentence in said
    assert host.check_output(LOOK) == before


def test_a_controller_that_does_not_start_goes_back(host: Host, play: Play) -> None:
    before = host.check_output("cksum /etc/slurm/*.conf /var/lib/cudahub/slurm/slurmctld.json")
    code, said = run(play, "--limit", "head", slurm_config={"SlurmctldPort": 3306, "SlurmdTimeout": 30})
    assert code == 2, said
    assert "slurmctld on head does not run with this configuration: " in said
    assert ". It runs again with the one before." in said
    assert host.check_output("cksum /etc/slurm/*.conf /var/lib/cudahub/slurm/slurmctld.json") == before
    host.run_expect([0], "timeout 60 sh -c 'until scontrol ping | grep -q UP; do sleep 0.5; done'")


@pytest.mark.long
def test_a_slurmdbd_that_does_not_start_goes_back(host: Host, play: Play) -> None:
    before = host.check_output("cksum /etc/slurm/slurmdbd.conf")
    code, said = run(play, "--limit", "head", slurm_db_config={"PurgeJobAfter": "12parsecs"})
    assert code == 2, said
    assert "slurmdbd does not run on head: " in said
    assert ". It runs again with the settings before." in said
    assert host.check_output("cksum /etc/slurm/slurmdbd.conf") == before
    assert host.service("slurmdbd").is_running


def test_a_user_with_a_job_keeps_the_login(host: Host, play: Play) -> None:
    number = host.check_output("runuser -u anna -- sbatch --parsable --hold --chdir=/ --wrap 'sleep 600'")
    try:
        code, said = run(play, "--limit", "head", slurm_users=[{"name": "anna", "state": "absent"}])
    finally:
        host.run_expect([0], f"scancel {number}")
    assert code == 2, said
    assert f"slurm_users has state absent for anna, but the user still has jobs ({number}): wait until" in said
    assert host.user("anna").shell == "/bin/bash"


def test_without_the_controller_nothing_is_done_on_the_others(host: Host, play: Play) -> None:
    host.run_expect([0], "useradd --uid 2010 local-only")
    before = host.check_output(LOOK)
    try:
        code, said = run(play, slurm_users=[{"name": "zoe", "uid": 2010}])
    finally:
        host.run_expect([0], "userdel local-only")
    assert code == 2, said
    assert "UID 2010 of zoe is that of local-only on head: give zoe another UID in slurm_users." in said
    assert "Nothing more is done on gpu1: head failed above, which the whole cluster needs." in said
    assert host.check_output(LOOK) == before
    assert not on(host, "gpu1").user("zoe").exists


@pytest.mark.long
def test_a_clock_that_is_wrong_is_refused(host: Host, play: Play) -> None:
    gpu2 = on(host, "gpu2")
    gpu2.run_expect([0], r"printf '#!/bin/sh\necho 1000\n' > /usr/local/bin/date; chmod 755 /usr/local/bin/date")
    try:
        code, said = run(play, "--limit", "gpu2")
    finally:
        gpu2.run_expect([0], "rm /usr/local/bin/date")
    assert code == 2, said
    assert "The clock of gpu2 is " in said


@pytest.mark.long
def test_another_munge_key_is_replaced_and_never_shown(host: Host, play: Play) -> None:
    gpu2 = on(host, "gpu2")
    right = gpu2.file("/etc/munge/munge.key").sha256sum
    gpu2.run_expect([0], "head --bytes 128 /dev/urandom > /etc/munge/munge.key; systemctl restart munge")
    wrong = gpu2.check_output("base64 --wrap=0 /etc/munge/munge.key")
    code, said = run(play, "--limit", "gpu2", "--diff", "-vvv")
    assert code == 0, said[-3000:]
    assert gpu2.file("/etc/munge/munge.key").sha256sum == right
    assert gpu2.check_output("base64 --wrap=0 /etc/munge/munge.key.replaced") == wrong
    assert wrong not in said
    assert host.check_output("base64 --wrap=0 /etc/munge/munge.key") not in said


def kill_in_task(task: str, *arguments: str) -> None:
    """Run the role, and kill ansible-playbook when a task has ended on its first host."""
    command = [Path(sys.executable).with_name("ansible-playbook"), "--inventory", INVENTORY, PLAY, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        reached = False
        for line in running.stdout:
            if reached and line.startswith(("changed:", "ok:")):
                break
            reached = reached or task in line
        running.kill()
        assert reached, "the run ended before it could be killed"


@pytest.mark.long
def test_a_play_that_was_killed_is_finished_by_the_next(host: Host, play: Play) -> None:
    changed = json.dumps({"slurm_config": {"SlurmdTimeout": 30, "SlurmctldTimeout": 15, "KillWait": 45}})
    kill_in_task("Put the files in place on the controllers", "--limit", "head", "--extra-vars", changed)
    assert host.file("/etc/slurm/slurm.conf").contains("KillWait=45")
    code, said = run(play, "--limit", "head", "--extra-vars", changed)
    assert code == 0, said
    assert re.search(r"(?m)^KillWait\s+= 45 sec", host.check_output("scontrol show config"))


def test_a_gpu_that_is_gone_is_refused_and_the_node_stays_as_it_is(host: Host, play: Play) -> None:
    def simulate(count: int) -> None:
        gpus = json.dumps({"gpu_simulator_gpus": [{"model": "h100-80gb-hbm3", "count": count}]})
        done = play(SHARED / "prepare.yml", "--limit", "gpu1", "--extra-vars", gpus)
        assert done.returncode == 0, done.stdout

    before = host.check_output("cksum /etc/slurm/*.conf")
    simulate(3)
    try:
        code, said = run(play, "--limit", "gpu1")
        # Before the node has its GPUs again, or its health check might drain it later.
        host.run_expect([0], "timeout 120 sh -c 'until scontrol show node gpu1 | grep -q DRAIN; do sleep 0.5; done'")
    finally:
        simulate(4)
        host.run_expect([0], "scontrol update NodeName=gpu1 State=RESUME")
    assert code == 2, said
    assert "node gpu1 has fewer GPUs than before: 3 instead of 4 of type nvidia_h100_80gb_hbm3, missing: " in said
    assert host.check_output("cksum /etc/slurm/*.conf") == before


@pytest.mark.long
def test_a_node_goes_and_comes_back_and_the_others_do_not_notice(
    host: Host, play: Play, job: str, tmp_path: Path
) -> None:
    smaller = yaml.safe_load((INVENTORY / "hosts").read_text(encoding="utf-8"))
    del smaller["all"]["children"]["slurm_compute"]["hosts"]["gpu2"]
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(smaller), encoding="utf-8")
    connection = yaml.safe_load((INVENTORY / "connection.yml").read_text(encoding="utf-8"))
    del connection["all"]["hosts"]["gpu2"]
    (tmp_path / "connection.yml").write_text(yaml.safe_dump(connection), encoding="utf-8")
    before = seen(host, job)
    done = play(PLAY, hosts=tmp_path)
    assert done.returncode == 0, done.stdout
    assert host.check_output("sinfo --noheader --Node --partition=main --format=%N") == "gpu1"
    assert re.search(r"(?m)^KillWait\s+= 30 sec", host.check_output("scontrol show config"))
    code, said = run(play, "--limit", "gpu2")
    assert code == 0, said
    assert host.check_output("sinfo --noheader --Node --partition=main --format=%N").split() == ["gpu1", "gpu2"]
    assert seen(host, job) == before


def test_verify_changes_nothing(host: Host, play: Play) -> None:
    code, said = run(play, "--limit", "gpu1", entry="verify")
    assert code == 0, said
    assert "changed=0" in said
    assert "Node gpu1 ran 3 jobs, each with the GPUs that it asked for and no other." in said
    assert "scheduling and isolation are proven, and no computation" in said
