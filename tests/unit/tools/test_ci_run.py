# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`.ci/run` ends when it is told to, and says what failed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# What a make that runs these tests tells the make of a test.
OF_MAKE = ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"]
ANSWERING = ["apt-cache", "apt-get", "chromium", "docker", "dockerd", "gcc", "git", "mmdebstrap"]


# Two sessions that write their number down and do not end.
SESSIONS = """
import nox
for name in ("one", "two"):
    def session(session, name=name):
        session.run("sh", "-c", f"trap '' TERM; echo $$ > {name}; sleep 600", external=True)
    nox.session(session, name=name)
nox.options.allow_parallel = True
"""


def is_there(pid: int) -> bool:
    """Whether a process runs; who has ended may wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a Makefile of its own, and commands that let `.ci/run` find everything in place."""
    for name in (".ci/run", "tests/tools/failures.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in {**dict.fromkeys(ANSWERING, "exit 0"), "id": "echo 0"}.items():
        (commands / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (commands / name).chmod(0o755)
    return tmp_path


def start(checkout: Path, *recipe: str) -> subprocess.Popen[str]:
    lines = "".join(f"\t{line}\n" for line in recipe)
    (checkout / "Makefile").write_text(f"test:\n{lines}", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    return subprocess.Popen(
        ["bash", ".ci/run"],
        cwd=checkout,
        env={**environment, "PATH": f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_signal_ends_it(checkout: Path) -> None:
    running = start(checkout, "@touch begun; sleep 600")
    while not (checkout / "begun").exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    said, _nothing = running.communicate(timeout=120)
    assert running.returncode == 143
    assert "Stopping the tests." in said
    assert "Done with status 143." in said


def test_a_signal_ends_what_nox_runs_at_the_same_time(checkout: Path) -> None:
    """Its sessions are process groups of their own, and ignore what asks them to end."""
    (checkout / "noxfile.py").write_text(SESSIONS, encoding="utf-8")
    running = start(checkout, "@nox --parallel 2 --default-venv-backend none")
    pids = [checkout / name for name in ("one", "two")]
    while not all(path.exists() and path.read_text(encoding="ascii") for path in pids):
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=120)
    assert [path.name for path in pids if is_there(int(path.read_text(encoding="ascii")))] == []


def test_make_has_no_child_but_its_own(checkout: Path) -> None:
    """After a signal it waits for all of them, and one that waits for make would never end."""
    running = start(checkout, "@for pid in $$(cat /proc/$$PPID/task/*/children); do cat /proc/$$pid/comm; done")
    said, _nothing = running.communicate(timeout=120)
    assert said.splitlines()[:-1] == ["sh"]


def test_a_failed_session_is_named_at_the_end(checkout: Path) -> None:
    log = ["== x unit: pytest ==".replace("x", "✗"), "E   assert 1 == 2"]
    running = start(checkout, *(f"@echo '{line}'" for line in log), "@exit 1")
    said, _nothing = running.communicate(timeout=120)
    assert running.returncode == 2
    assert said.splitlines()[-3:-1] == ["unit failed:", "  E   assert 1 == 2"]
