# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The accounting database keeps its secret, and is dumped before another version of slurmdbd converts it."""

from __future__ import annotations

import re

from testinfra.host import Host

testinfra_hosts = ["ansible://head"]
UNITS = ["slurmdbd", "mariadb"]
BACKUPS = "/var/backups/slurm"
RECORD = "/var/lib/cudahub/slurm/slurmdbd-version"


def test_only_slurm_reads_the_password(host: Host) -> None:
    settings = host.file("/etc/slurm/slurmdbd.conf")
    assert (settings.user, settings.group, settings.mode) == ("slurm", "slurm", 0o600)
    assert re.search(r"(?m)^StoragePass=[A-Za-z0-9]{32}$", settings.content_string)


def test_the_database_has_what_slurmdbd_wants(host: Host) -> None:
    asked = "SELECT @@innodb_lock_wait_timeout >= 900, @@max_allowed_packet >= 16777216"
    assert host.check_output(f"mariadb --batch --skip-column-names --execute='{asked}'").split() == ["1", "1"]


def test_another_version_dumps_the_database_first(host: Host) -> None:
    version = host.file(RECORD).content_string.strip()
    host.check_output(f"echo 20.11.9 > {RECORD} && systemctl restart slurmdbd")
    (dump,) = host.check_output(f"ls {BACKUPS}/slurm_acct_db-of-20.11.9-before-{version}-*.sql.gz").split()
    assert host.file(dump).mode == 0o600
    assert "-- Dump completed" in host.check_output(f"zcat {dump} | tail -n 1")
    assert host.file(RECORD).content_string.strip() == version
    host.check_output(f"rm {dump}")


def test_without_a_dump_slurmdbd_does_not_start(host: Host) -> None:
    version = host.file(RECORD).content_string.strip()
    host.check_output(
        f"mkdir -p {BACKUPS} && mv {BACKUPS} {BACKUPS}-aside && touch {BACKUPS} && echo 20.11.9 > {RECORD}"
    )
    try:
        assert host.run("systemctl restart slurmdbd").rc != 0
        said = host.check_output("journalctl --unit=slurmdbd --no-pager --output=cat --lines=20")
        assert "slurmdbd is not started, since its database has no backup yet" in said
    finally:
        host.check_output(f"rm {BACKUPS} && mv {BACKUPS}-aside {BACKUPS} && echo {version} > {RECORD}")
        host.check_output("systemctl reset-failed slurmdbd && systemctl start slurmdbd")
    assert host.service("slurmdbd").is_running
