# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user expires on the day that the inventory says, without a play."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://head"]
UNITS = ["slurm-expiry", "slurmdbd"]
RECORD = "/var/lib/cudahub/slurm/expiry.json"
UNIT = "slurm-expiry.service"
EVE = "where name=eve account=class cluster=classroom"


def submit(host: Host) -> str:
    """What SLURM says to a job of eve, whose number is given back."""
    done = host.run("cd /; runuser -u eve -- sbatch --parsable --mem=64 --output=/dev/null --wrap true")
    if done.rc == 0:
        host.run_expect([0], f"scancel {done.stdout.strip()}")
    return done.stderr


def limits(host: Host) -> str:
    shown = "sacctmgr -n -P show assoc where cluster=classroom user=eve WOPLimits format=MaxJobs,MaxSubmitJobs"
    return host.check_output(shown)


def run(host: Host) -> str:
    """Run the program as its timer does, until it has ended; return what it said."""
    cursor = host.check_output("journalctl --lines=0 --show-cursor").partition("cursor: ")[2].strip()
    host.check_output(f"systemctl start {UNIT}")
    host.check_output(f"timeout 60 sh -c 'while systemctl -q is-active {UNIT}; do sleep 0.2; done'")
    # The program's own name is noted with each line; its unit and invocation may not be, once it has ended.
    read = f"journalctl --after-cursor='{cursor}' --identifier=slurm-expiry --no-pager --output=cat"
    return host.check_output(f"journalctl --sync; {read}")


@pytest.fixture
def due(host: Host) -> Iterator[str]:
    """Yesterday, as the day on which eve has expired."""
    day = host.check_output("date --date=yesterday +%F")
    host.check_output(f"cp --preserve {RECORD} {RECORD}.kept && sed -i 's/2099-12-31/{day}/' {RECORD}")
    yield day
    host.check_output(f"systemctl stop {UNIT}; mv {RECORD}.kept {RECORD}")
    host.run_expect([0, 1], f"sacctmgr -i modify user {EVE} set MaxJobs=-1 MaxSubmitJobs=-1")


def test_the_timer_waits_for_midnight(host: Host) -> None:
    timer = host.service("slurm-expiry.timer")
    assert timer.is_running
    assert timer.is_enabled
    assert " 00:0" in host.check_output("systemctl show slurm-expiry.timer --property=NextElapseUSecRealtime")
    assert host.file(RECORD).mode == 0o600


def test_before_the_day_nothing_changes(host: Host) -> None:
    assert "expired" not in run(host)
    assert limits(host) == "|"
    assert submit(host) == ""


def test_from_the_day_on_no_job_is_taken_and_it_is_said_once(host: Host, due: str) -> None:
    assert f"User eve in account class has expired on {due}: MaxJobs=0 MaxSubmitJobs=0." in run(host)
    assert limits(host) == "0|0"
    assert "AssocMaxSubmitJobLimit" in submit(host)
    assert "expired" not in run(host)


def test_without_slurmdbd_it_is_tried_again(host: Host, due: str) -> None:
    host.check_output("systemctl stop slurmdbd")
    try:
        said = run(host)
    finally:
        host.check_output("systemctl start slurmdbd")
        host.check_output("timeout 60 sh -c 'until sacctmgr -n show cluster; do sleep 0.5; done' 2>&1")
    assert "Accounts and users of SLURM can't expire now: slurmdbd can't be asked: " in said
    assert host.check_output(f"systemctl show {UNIT} --property=SubState --value") == "auto-restart"
    assert f"User eve in account class has expired on {due}" in run(host)
