# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many people share one machine through the queue: fairly, within their limits, and without losing a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://solo"]
UNITS = ["slurmctld", "slurmd", "slurmdbd"]

STAFF = [f"staff{number}" for number in range(1, 6)]
GUESTS = [f"guest{number}" for number in range(1, 6)]
SBATCH = "sbatch --parsable --mem=64 --chdir=/ --output=/dev/null"
SECONDS = 300


class Job(NamedTuple):
    """A job as the accounting has it."""

    user: str
    account: str
    state: str
    start: str


def wait(what: Callable[[], bool], says: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, says
        time.sleep(0.5)


def submit(host: Host, user: str, *options: str, command: str = "sleep 600") -> str:
    """Submit a job of a user and return its number."""
    return host.check_output(f"runuser -u {user} -- {SBATCH} {' '.join(options)} --wrap '{command}'")


def queued(host: Host, form: str, *options: str) -> list[str]:
    return host.check_output(f"squeue --noheader --format='{form}' {' '.join(options)}").splitlines()


def accounted(host: Host, *jobs: str) -> list[Job]:
    said = host.check_output(
        f"sacct --noheader --parsable2 --allocations --jobs={','.join(jobs)} --format=User,Account,State,Start"
    )
    return [Job(*line.split("|")) for line in said.splitlines()]


@pytest.fixture
def empty(host: Host) -> Iterator[None]:
    """Begin and end without jobs."""
    yield
    host.run_expect([0], "squeue --noheader --format=%i | xargs --no-run-if-empty scancel")
    wait(lambda: not queued(host, "%i"), "jobs are left")


@pytest.fixture(scope="module", autouse=True)
def sessions(host: Host) -> Iterator[None]:
    """Processes of no job, of root and of a user with jobs, that are there all the time."""
    for user in ("root", "staff1"):
        host.run_expect([0], f"systemd-run --unit=session-{user} --uid={user} sleep 3600")
    yield
    assert host.check_output("systemctl is-active session-root session-staff1").split() == ["active", "active"]
    host.run_expect([0], "systemctl stop session-root session-staff1")


@pytest.mark.usefixtures("empty")
def test_twenty_jobs_of_ten_users_start_in_the_order_of_their_shares(host: Host) -> None:
    """Both accounts have used the same, and staff has nine times the shares of the guests."""
    for account in (STAFF, GUESTS):
        assert host.run(f"runuser -u {account[0]} -- {SBATCH} --wait --wrap 'sleep 2'").rc == 0
    blocker = submit(host, "root", "--gres=gpu:6")
    wait(lambda: queued(host, "%T", f"--jobs={blocker}") == ["RUNNING"], "the GPUs are not taken")
    # Guests come first, so that the order of submission is not that of the shares.
    jobs = host.check_output(
        f"for user in {' '.join((GUESTS + STAFF) * 2)}; do "
        f"runuser -u $user -- {SBATCH} --gres=gpu:6 --wrap 'sleep 0.2' || exit; done"
    ).split()
    assert len(jobs) == 20
    # It reckons the shares anew at its start, and forgets no job.
    host.run_expect([0], "systemctl restart slurmctld slurmd")
    host.run_expect([0], "timeout 60 sh -c 'until scontrol ping | grep UP; do sleep 0.2; done'")
    assert sorted(queued(host, "%T")) == ["PENDING"] * 20 + ["RUNNING"]

    def priorities(account: str) -> list[float]:
        return [float(line) for line in queued(host, "%p", f"--account={account}")]

    wait(lambda: min(priorities("staff")) > max(priorities("guests")), "the shares make no difference")
    host.run_expect([0], f"scancel {blocker}")
    wait(lambda: not queued(host, "%i"), "jobs are left")
    wait(lambda: {job.state for job in accounted(host, *jobs)} == {"COMPLETED"}, "not all jobs ended well")
    done = accounted(host, *jobs)
    assert sorted(job.user for job in done) == sorted((STAFF + GUESTS) * 2)
    starts = {account: [job.start for job in done if job.account == account] for account in ("staff", "guests")}
    assert max(starts["staff"]) <= min(starts["guests"])
    # Of two with the same shares, the one who has used something comes after those who have not.
    first = [job.start for job in done if job.user == STAFF[0]]
    assert min(first) >= max(job.start for job in done if job.user in STAFF[1:])


@pytest.mark.usefixtures("empty")
def test_jobs_survive_new_configuration_and_restarts(host: Host) -> None:
    job = submit(host, "staff2", "--gres=gpu:tesla_t4:1")
    wait(lambda: queued(host, "%T", f"--jobs={job}") == ["RUNNING"], "it does not run")
    process = host.check_output("timeout 60 sh -c 'until pgrep --uid staff2 sleep; do sleep 0.2; done'")
    host.run_expect([0], "scontrol reconfigure && systemctl restart slurmd slurmctld")
    host.run_expect([0], "timeout 60 sh -c 'until scontrol ping | grep UP; do sleep 0.2; done'")
    assert queued(host, "%T", f"--jobs={job}") == ["RUNNING"]
    assert host.check_output("pgrep --uid staff2 sleep") == process


@pytest.mark.usefixtures("empty")
def test_who_is_over_the_limit_of_a_qos_waits_and_is_told_why(host: Host) -> None:
    limited = [submit(host, "guest5", "--qos=one-gpu", "--gres=gpu:1") for _number in range(2)]
    other = submit(host, "guest4", "--gres=gpu:1")
    wait(
        lambda: (
            queued(host, "%i %T", f"--jobs={limited[0]},{other}", "--sort=i")
            == [f"{limited[0]} RUNNING", f"{other} RUNNING"]
        ),
        "they do not run",
    )
    wait(
        lambda: queued(host, "%T %r", f"--jobs={limited[1]}") == ["PENDING QOSMaxGRESPerUser"],
        "the limit is not said to be the reason",
    )


def test_a_qos_that_is_not_theirs_is_refused(host: Host) -> None:
    refused = host.run(f"runuser -u guest4 -- {SBATCH} --qos=one-gpu --wrap true")
    assert refused.rc != 0
    assert "Invalid qos" in refused.stderr


def test_a_job_that_takes_more_memory_than_it_asked_for_is_ended(host: Host) -> None:
    job = submit(host, "staff3", command='python3 -c "len(bytearray(512 << 20))"')
    wait(lambda: [entry.state for entry in accounted(host, job)] == ["OUT_OF_MEMORY"], "it is not ended")
