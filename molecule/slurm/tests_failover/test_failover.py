# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second controller is added under running jobs, and takes over when the first fails.

Tests run in the order of this file; each goes on from where the one before has left the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://gpu2"]
UNITS = ["slurmctld.service"]
pytestmark = pytest.mark.long
PLAY = Path(__file__).parents[1] / "role.yml"


@pytest.fixture(scope="module")
def head(host: Host) -> Host:
    """The first controller."""
    return Host.get_host("ansible://head", ansible_inventory=host.backend.ansible_runner.inventory_file)


@pytest.fixture(scope="module")
def job(head: Host) -> Iterator[str]:
    """A job that runs all the time."""
    number = head.check_output(
        "sbatch --parsable --chdir=/ --mem=64 --nodelist=gpu1 --gres=gpu:1 --output=/dev/null --wrap 'sleep 7200'"
    )
    yield number
    head.run_expect([0], f"scancel {number}")


def ping(host: Host) -> dict[str, str]:
    """Which controllers answer, by their part."""
    lines = host.run("scontrol ping").stdout.splitlines()
    return {line.split("(")[1].split(")")[0]: line.split()[-1] for line in lines if "(" in line}


def wait(host: Host, what: Callable[[], bool], seconds: int = 150) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, host.run("scontrol ping; tail /var/log/slurm/slurmctld.log").stdout
        time.sleep(1)


def job_state(host: Host, job: str) -> str:
    return host.run(f"squeue --noheader --jobs={job} --format=%T").stdout.strip()


def test_a_second_controller_is_added_under_a_running_job(
    host: Host, head: Host, job: str, play: Callable[..., Any], tmp_path: Path
) -> None:
    second = tmp_path / "second.yml"
    second.write_text("slurm_controller: {hosts: {gpu2: }}", encoding="utf-8")
    wait(host, lambda: job_state(head, job) == "RUNNING")
    done = play(PLAY, "--inventory", second)
    assert done.returncode == 0, done.stdout
    wait(host, lambda: ping(host) == {"primary": "UP", "backup": "UP"})
    assert job_state(host, job) == "RUNNING"


def test_it_takes_over_when_the_first_is_killed(host: Host, head: Host, job: str) -> None:
    head.run_expect([0], "systemctl kill --signal=KILL slurmctld && systemctl stop slurmctld")
    wait(host, lambda: ping(host).get("primary") == "DOWN" and job_state(host, job) == "RUNNING")
    assert host.check_output("srun --immediate=60 --mem=64 --chdir=/ --gres=gpu:1 hostname -s") in {"gpu1", "gpu2"}


def test_the_first_takes_its_place_again(host: Host, head: Host, job: str) -> None:
    head.run_expect([0], "systemctl reset-failed slurmctld; systemctl start slurmctld")
    wait(host, lambda: ping(host) == {"primary": "UP", "backup": "UP"} and job_state(host, job) == "RUNNING")
    assert head.check_output("srun --immediate=60 --mem=64 --chdir=/ --gres=gpu:1 hostname -s") in {"gpu1", "gpu2"}
