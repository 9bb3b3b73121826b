# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Process 1 of an image of role dl_images passes signals on, and ends as the command has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

INIT = Path(__file__).parents[3] / "roles/dl_images/files/image/init.py"


def start(*words: str) -> subprocess.Popen[str]:
    """Start a command below the init."""
    return subprocess.Popen(
        [sys.executable, "-I", str(INIT), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["true"], 0),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["/none/such"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "(sleep 0.1 &) ; sleep 0.3; exit 3"], 3),
    ],
)
def test_the_exit_status_is_the_command_s(words: list[str], status: int) -> None:
    process = start(*words)
    _out, error = process.communicate(timeout=120)
    assert process.returncode == status
    assert error == {127: "/none/such: No such file or directory\n", 126: "/etc/passwd: Permission denied\n"}.get(
        status, ""
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(number: signal.Signals) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = start(sys.executable, "-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == 42


def test_a_command_without_a_handler_ends_at_once() -> None:
    process = start("sh", "-c", "echo ready; exec sleep 600")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_broken_pipe_ends_the_command_as_in_a_shell() -> None:
    process = start("sh", "-c", "yes | head -1")
    out, error = process.communicate(timeout=120)
    assert (process.returncode, out, error) == (0, "y\n", "")
