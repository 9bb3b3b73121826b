# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who logs in to a compute node over SSH, and what they get there."""

from __future__ import annotations

import re
import time

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

testinfra_hosts = ["ansible://gpu2"]
UNITS = ["ssh.service", "slurmd.service"]

KEY = "/root/.ssh/to-this-host"


def prepare(host: Host) -> None:
    """Give people a key: anna is of SLURM, guest is not, and boss is in an admin group."""
    host.check_output(f"test -e {KEY} || ssh-keygen -q -t ed25519 -N '' -f {KEY}")
    for user, groups in (("guest", ""), ("boss", "--groups sudo")):
        host.check_output(f"id {user} || useradd --create-home --shell /bin/bash {groups} {user}")
    for user in ("anna", "guest", "boss", "root"):
        home = host.user(user).home
        host.check_output(f"usermod --password '*' {user}")
        host.check_output(f"install -d -o {user} -m 0700 {home}/.ssh")
        host.check_output(f"install -o {user} -m 0600 {KEY}.pub {home}/.ssh/authorized_keys")


def login(host: Host, user: str, command: str) -> CommandResult:
    options = "-o BatchMode=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR"
    return host.run(f"timeout 60 ssh -i {KEY} {options} {user}@localhost '{command}'")


def test_root_and_admins_need_no_job(host: Host) -> None:
    prepare(host)
    for user in ("root", "boss"):
        assert login(host, user, "id -un").stdout.strip() == user


@pytest.mark.parametrize("user", ["anna", "guest"])
def test_others_without_a_job_are_refused(host: Host, user: str) -> None:
    assert login(host, user, "true").rc == 255


def test_a_login_becomes_part_of_the_job_with_its_gpu(host: Host) -> None:
    submit = "sbatch --parsable -w gpu2 --gres=gpu:tesla_t4:1 -o /dev/null -D / --wrap 'sleep 3600'"
    job = host.check_output(f"runuser -u anna -- {submit}")
    try:
        # SLURM calls a job running before its node has begun it.
        deadline = time.monotonic() + 300
        while not (groups := login(host, "anna", "cat /proc/self/cgroup").stdout):
            assert time.monotonic() < deadline, host.check_output(f"scontrol show job {job}")
            time.sleep(1)
        assert re.search(rf"/job_{job}/step_extern", groups)
        opened = login(host, "anna", "for node in /dev/nvidia[0-9]; do (exec 3<$node) 2>&1; done").stdout
        denied = set(re.findall(r"(/dev/nvidia\d): Operation not permitted", opened))
        there = set(host.check_output("ls /dev/nvidia[0-9]").split())
        assert len(there - denied) == 1
    finally:
        host.check_output(f"scancel {job}")


def test_only_sshd_does_without_pam_systemd(host: Host) -> None:
    sshd = host.file("/etc/pam.d/sshd").content_string
    assert re.findall(r"(?m)^@include common-session.*$", sshd) == ["@include common-session-noninteractive"]
    assert re.search(r"(?m)^@include common-session$", host.file("/etc/pam.d/login").content_string)


def test_hosts_without_the_option_are_left_alone(host: Host) -> None:
    other = host.get_host("ansible://gpu1", ansible_inventory=host.backend.ansible_inventory)
    file = other.file("/etc/pam.d/sshd")
    assert not file.exists or "slurm" not in file.content_string
