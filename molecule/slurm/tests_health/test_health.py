# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with a bad GPU is drained, and only that; it comes back when somebody says so.

Tests run in the order of this file; each goes on from where the one before has left the cluster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

HEAD, BAD, GOOD = "head", "gpu1", "gpu2"
testinfra_hosts = [f"ansible://{HEAD}"]
UNITS = ["slurmctld.service", "slurmd.service"]

ROLE = Path(__file__).parents[1] / "role.yml"
RESUME = (ROLE, "-e", "entry=resume", "-e", f"target={BAD}")
SECONDS = 300
DRAIN = (ROLE, "-e", "entry=drain", "-e", f"target={BAD}", "-e", f"slurm_drain_timeout={SECONDS}")

Play = Callable[..., Any]


@pytest.fixture
def bad(host: Host) -> Host:
    """The node whose GPU is lost."""
    return host.get_host(f"ansible://{BAD}", ansible_inventory=host.backend.ansible_inventory)


def show(host: Host, kind: str, name: str) -> str:
    return host.check_output(f"scontrol --oneliner show {kind} {name}")


def said(done: Any) -> str:
    """What a play said, on one line."""
    return " ".join((done.stdout + done.stderr).split())


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def state(host: Host, node: str) -> str:
    """State and reason of a node."""
    shown = show(host, "node", node)
    return " ".join(found(pattern, shown) for pattern in (r"State=(\S+)", r"Reason=(.*?) \["))


def wait(what: Callable[[], Any]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(1)


def job_state(host: Host, job: str) -> str:
    return found(r"JobState=(\S+)", show(host, "job", job))


def submit(host: Host, *options: str, command: str = "sleep 7200") -> str:
    """Submit a job and return its number."""
    return host.check_output(f"cd /tmp && sbatch --parsable {' '.join(options)} --output=/dev/null --wrap '{command}'")


def running(host: Host, *options: str) -> str:
    """Submit a job, wait until it runs, and return its number."""
    job = submit(host, *options)
    wait(lambda: job_state(host, job) == "RUNNING")
    return job


@pytest.fixture(scope="module")
def jobs() -> dict[str, str]:
    """The jobs that run all the time, by node."""
    return {}


def test_all_are_well(host: Host, jobs: dict[str, str]) -> None:
    for node in (BAD, GOOD):
        assert "DRAIN" not in state(host, node)
        jobs[node] = running(host, "-w", node, "--gres=gpu:1")


def test_a_lost_gpu_drains_its_node_with_the_reason_and_harms_no_job(
    host: Host, bad: Host, jobs: dict[str, str]
) -> None:
    bad.check_output("gpu-simulator fault add --gpu 3 --kind lost")
    wait(lambda: "DRAIN" in state(host, BAD))
    assert re.search(
        r"gpu-health: GPU 3 \([0-9A-F:.]+, GPU-[-0-9a-f]+\) has fallen off the bus: look for Xid 79", state(host, BAD)
    )
    assert "DRAIN" not in state(host, GOOD)
    assert {job_state(host, job) for job in jobs.values()} == {"RUNNING"}


def test_the_others_go_on_working(host: Host) -> None:
    assert host.check_output("srun --gres=gpu:1 hostname -s").strip() == GOOD


def test_the_fault_stays_after_it_has_gone_by_itself(host: Host, bad: Host) -> None:
    bad.check_output("gpu-simulator fault clear")
    bad.check_output("systemctl restart slurmd")
    wait(lambda: "NOT_RESPONDING" not in state(host, BAD))
    time.sleep(12)
    assert "DRAIN" in state(host, BAD)


def test_resume_leaves_a_fault_alone_unless_it_is_told(host: Host, play: Play) -> None:
    play(*RESUME)
    assert "DRAIN" in state(host, BAD)


def test_a_node_with_a_bad_gpu_is_not_resumed(host: Host, bad: Host, play: Play) -> None:
    bad.check_output("gpu-simulator fault add --gpu 3 --kind ecc --count 2")
    done = play(*RESUME, "-e", "slurm_resume=true")
    bad.check_output("gpu-simulator fault clear")
    assert done.returncode != 0
    assert f"{BAD} is not resumed: GPU 3" in said(done)
    assert "had 2 uncorrectable memory errors" in said(done)
    assert "DRAIN" in state(host, BAD)


def test_it_is_resumed_when_somebody_says_so(host: Host, play: Play, jobs: dict[str, str]) -> None:
    done = play(*RESUME, "-e", "slurm_resume=true")
    assert done.returncode == 0, done.stdout
    assert "DRAIN" not in state(host, BAD)
    assert {job_state(host, job) for job in jobs.values()} == {"RUNNING"}


def test_a_job_that_meets_a_bad_gpu_goes_back_into_the_queue(
    host: Host, bad: Host, jobs: dict[str, str], gone: Callable[[Host, str], None]
) -> None:
    bad.check_output("gpu-simulator fault add --gpu 2 --kind lost")
    job = submit(host, "-w", BAD, "--gres=gpu:1")
    wait(lambda: "DRAIN" in state(host, BAD))
    assert "gpu-health: GPU 2" in state(host, BAD)
    wait(lambda: job_state(host, job) == "PENDING")
    assert "gpu-health: GPU 2" in state(host, BAD)
    assert {job_state(host, job) for job in jobs.values()} == {"RUNNING"}
    host.check_output(f"scancel {job}")
    bad.check_output("gpu-simulator fault clear")
    # A check that saw the fault would drain the node again.
    gone(bad, "gpu-health")
    host.check_output(f"scontrol update NodeName={BAD} State=RESUME")


def test_planned_work_waits_for_the_jobs_and_is_resumed(host: Host, play: Play, jobs: dict[str, str]) -> None:
    late = play(*DRAIN, "-e", "slurm_drain_timeout=3")
    assert late.returncode != 0
    assert jobs[BAD] in said(late)
    assert state(host, BAD).endswith("cudahub: planned work")
    assert job_state(host, jobs[BAD]) == "RUNNING"
    host.check_output(f"scancel {jobs[BAD]}")
    assert play(*DRAIN).returncode == 0
    assert play(*RESUME).returncode == 0
    assert "DRAIN" not in state(host, BAD)


def test_resume_leaves_alone_what_a_person_drained(host: Host, play: Play) -> None:
    host.check_output(f"scontrol update NodeName={BAD} State=DRAIN Reason='new fan, Eve'")
    assert play(*DRAIN).returncode == 0
    assert play(*RESUME, "-e", "slurm_resume=true").returncode == 0
    assert state(host, BAD) == "IDLE+DRAIN new fan, Eve"
    host.check_output(f"scontrol update NodeName={BAD} State=RESUME")


def test_jobs_end(host: Host, jobs: dict[str, str]) -> None:
    host.check_output(f"scancel {' '.join(jobs.values())}")
