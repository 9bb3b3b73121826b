# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of two runs that change the driver's packages, one waits for the other, says for whom, and gives up in time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _run_lock
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import PackageError

HOLDER = """
import sys
from ansible_collections.cudahub.gpu.plugins.module_utils._run_lock import exclusive
with exclusive(sys.argv[1], 0, print):
    print("held", flush=True)
    sys.stdin.read()
"""


class Holder:
    """Another process that has the lock until it is told to end."""

    def __init__(self, record: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(record)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def end(self) -> None:
        self.process.communicate(timeout=120)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "cudahub" / "record.json"


@pytest.fixture
def holder(record: Path) -> t.Iterator[Holder]:
    other = Holder(record)
    try:
        yield other
    finally:
        other.process.kill()
        other.process.communicate()


def test_the_other_process_is_named_in_one_sentence(record: Path, holder: Holder) -> None:
    said: list[str] = []
    start = time.monotonic()
    with pytest.raises(PackageError) as caught, _run_lock.exclusive(str(record), 2, said.append):
        raise AssertionError("both had it")
    assert 1.5 < time.monotonic() - start < 60
    assert caught.value.kind == "lock"
    assert caught.value.message == (
        f"Another run that changes the driver's packages, process {holder.process.pid}, was not done within 2 s: wait "
        "until it is, or end it, and run this again"
    )
    assert said == [f"Waiting for another run that changes the driver's packages, process {holder.process.pid}"]


def test_it_goes_on_when_the_other_is_done(record: Path, holder: Holder) -> None:
    def say(_line: str) -> None:
        holder.end()

    with _run_lock.exclusive(str(record), 120, say):
        assert holder.process.poll() == 0
        with pytest.raises(PackageError), _run_lock.exclusive(str(record), 0, print):
            raise AssertionError("both had it")


def test_a_killed_process_holds_nothing(record: Path, holder: Holder) -> None:
    holder.process.kill()
    holder.process.wait()
    with _run_lock.exclusive(str(record), 0, print):
        assert record.with_name("record.json.lock").is_file()


def test_nothing_is_left_behind(record: Path, tmp_path: Path) -> None:
    with _run_lock.exclusive(str(record), 0, print):
        pass
    assert list(tmp_path.iterdir()) == []
    with _run_lock.exclusive(str(record), 0, print):
        record.write_text("{}", encoding="utf-8")
    assert list(record.parent.iterdir()) == [record]


def test_an_empty_directory_stays_unless_it_is_to_be_tidied(record: Path) -> None:
    with _run_lock.exclusive(str(record), 0, print, tidy=False):
        pass
    assert list(record.parent.iterdir()) == []


def test_what_the_other_run_does_is_said(record: Path, holder: Holder) -> None:
    def say(line: str) -> None:
        assert line == f"Waiting for a run of x, process {holder.process.pid}"
        holder.end()

    with pytest.raises(PackageError) as caught, _run_lock.exclusive(str(record), 0, print, "a run of x"):
        raise AssertionError("both had it")
    assert caught.value.message.startswith(f"A run of x, process {holder.process.pid}, was not done within 0 s")
    with _run_lock.exclusive(str(record), 120, say, "a run of x"):
        assert holder.process.poll() == 0


def test_a_program_that_has_the_file_has_the_lock(record: Path) -> None:
    with _run_lock.exclusive(str(record), 0, print) as file:
        assert record.with_name("record.json.lock").read_text(encoding="utf-8") == f"{os.getpid()}\n"
        number = file.fileno()
        child = subprocess.Popen(["sleep", "600"], pass_fds=[number])
        # as if this process had been killed: its file is closed, and the name stays
        os.link(record.with_name("record.json.lock"), record)
    record.rename(record.with_name("record.json.lock"))
    try:
        with pytest.raises(PackageError), _run_lock.exclusive(str(record), 0, print):
            raise AssertionError("both had it")
    finally:
        child.kill()
        child.wait()
    with _run_lock.exclusive(str(record), 0, print):
        pass


def test_a_lock_that_was_deleted_is_not_taken_for_the_lock(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = record.with_name("record.json.lock")
    flock = fcntl.flock
    deleted: list[Path] = []

    def lock(file: t.IO[str], operation: int) -> None:
        if not deleted:
            path.unlink()
            deleted.append(path)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock)
    with _run_lock.exclusive(str(record), 0, print):
        assert deleted
        assert path.is_file()
