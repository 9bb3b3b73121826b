# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entry point absent takes the daemons away, and leaves what users own."""

from __future__ import annotations

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://head", "ansible://front", "ansible://gpu1", "ansible://gpu2"]


@pytest.mark.parametrize(
    "path",
    ["/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/etc/slurm/slurm.conf", "/etc/systemd/system/slurm-expiry.timer"],
)
def test_slurm_is_gone(host: Host, path: str) -> None:
    assert not host.file(path).exists
    assert not host.file("/var/lib/cudahub/slurm").exists


def test_nothing_of_it_is_left_behind(host: Host) -> None:
    assert host.check_output("find /etc/slurm -name '*~'") == ""
    assert host.check_output("find /etc/systemd/system -name 'slurm*.service.d'") == ""


def test_munge_and_users_stay(host: Host) -> None:
    assert host.file("/etc/munge/munge.key").exists
    assert host.user("anna").exists


def test_the_jobs_of_the_controller_and_the_database_stay(host: Host) -> None:
    if host.check_output("uname -n") == "head":
        assert host.file("/shared/slurmctld/clustername").exists
        assert "slurm_acct_db" in host.check_output("mariadb --execute 'SHOW DATABASES'")
