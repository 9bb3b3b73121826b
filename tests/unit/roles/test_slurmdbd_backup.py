# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The accounting database is dumped before another slurmdbd converts it, and slurmdbd waits for that."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.tests.unit.program import load

PASSWORD = "a b#c\\d'e"  # noqa: S105 (of no database)
CONFIGURATION = """\
# Written by role slurm.
StorageHost=db.example.org   # elsewhere
StoragePort=3307
StorageLoc=jobs
StorageUser=slurm
StoragePass="a b\\#c\\\\d'e"
"""
CLIENT = """\
#!/bin/sh
cat >"{folder}/options"
echo "$@" >"{folder}/arguments"
printf '%s' '{tables}'
"""
DUMP = """\
#!/bin/sh
cat >"{folder}/options"
echo "$@" >"{folder}/arguments"
echo "{output}"
[ {status} -eq 0 ] || echo "Got error: 1045: Access denied." >&2
exit {status}
"""
COMPLETE = "CREATE TABLE t;\n-- Dump completed on 2026-11-28"


backup = load("slurm/files/slurmdbd-backup")


class Host:
    """A host whose slurmdbd and database are scripts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.record = folder / "records/slurmdbd-version"
        self.backups = folder / "backups"
        (folder / "slurmdbd.conf").write_text(CONFIGURATION, encoding="utf-8")
        monkeypatch.setattr(backup, "CONFIGURATION", folder / "slurmdbd.conf")
        monkeypatch.setattr(backup, "RECORD", self.record)
        monkeypatch.setattr(backup, "BACKUPS", self.backups)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        self.program("slurmdbd", "#!/bin/sh\necho slurm-wlm 24.11.5\n")
        self.program("mariadb", CLIENT.format(folder=folder, tables="cluster_table"))
        self.program("mariadb-dump", DUMP.format(folder=folder, output=COMPLETE, status=0))

    def program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / name).chmod(0o755)

    def dumps(self) -> list[Path]:
        return sorted(self.backups.iterdir()) if self.backups.exists() else []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("StoragePass=plain", "plain"),
        ('StoragePass="with space"', "with space"),
        ("StoragePass=ha\\#sh", "ha#sh"),
        ("StoragePass=back\\\\slash", "back\\slash"),
        ("StoragePass=a\\\\\\#b # and more", "a\\#b"),
        ('StoragePass=qu"ote', 'qu"ote'),
        ("  storagepass = x=y", "x=y"),
    ],
)
def test_settings_are_read_as_slurm_reads_them(line: str, value: str) -> None:
    assert backup.settings(line) == {"storagepass": value}


def test_a_comment_is_no_setting() -> None:
    assert backup.settings("# StoragePass=old\n\nAuthType=auth/munge") == {"authtype": "auth/munge"}


def test_another_version_dumps_first(host: Host) -> None:
    host.record.parent.mkdir()
    host.record.write_text("22.05.8\n", encoding="utf-8")
    assert backup.main() == 0
    (dump,) = host.dumps()
    assert dump.name.startswith("jobs-of-22.05.8-before-24.11.5-")
    assert dump.stat().st_mode & 0o777 == 0o600
    assert host.backups.stat().st_mode & 0o777 == 0o700
    assert gzip.decompress(dump.read_bytes()).decode().strip() == COMPLETE
    assert host.record.read_text(encoding="utf-8") == "24.11.5\n"


def test_the_password_is_on_no_command_line(host: Host) -> None:
    assert backup.main() == 0
    options = (host.folder / "options").read_text(encoding="utf-8")
    assert 'password="a b#c\\\\d\'e"' in options
    assert 'host="db.example.org"\nport="3307"\nuser="slurm"' in options
    assert PASSWORD not in (host.folder / "arguments").read_text(encoding="utf-8")


def test_the_same_version_dumps_nothing(host: Host) -> None:
    host.record.parent.mkdir()
    host.record.write_text("24.11.5\n", encoding="utf-8")
    host.program("mariadb", "#!/bin/sh\nexit 1\n")
    assert backup.main() == 0
    assert host.dumps() == []


def test_an_empty_database_dumps_nothing(host: Host) -> None:
    host.program("mariadb", CLIENT.format(folder=host.folder, tables=""))
    assert backup.main() == 0
    assert host.dumps() == []
    assert host.record.read_text(encoding="utf-8") == "24.11.5\n"


@pytest.mark.parametrize(
    ("output", "status", "sentence"),
    [
        ("CREATE TABLE t;", 2, "mariadb-dump failed: Got error: 1045: Access denied."),
        ("CREATE TABLE t;", 0, "The dump of jobs is not complete."),
    ],
)
def test_a_dump_that_fails_keeps_slurmdbd_from_starting(
    host: Host, output: str, status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host.program("mariadb-dump", DUMP.format(folder=host.folder, output=output, status=status))
    assert backup.main() == 1
    assert capsys.readouterr().err == (f"slurmdbd is not started, since its database has no backup yet: {sentence}\n")
    assert host.dumps() == []
    assert not host.record.exists()


def test_no_room_for_the_dump(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.backups.write_text("in the way", encoding="utf-8")
    assert backup.main() == 1
    assert "has no backup yet" in capsys.readouterr().err
    assert not host.record.exists()
