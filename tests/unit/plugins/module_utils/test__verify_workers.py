# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real processes: what they say is kept, and none of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _verify_workers
from ansible_collections.cudahub.gpu.plugins.module_utils._verify_workers import Command, Outcome

MARKER = "@mark@"


def shell(script: str) -> Command:
    return Command(["/bin/sh", "-s"], script.encode(), {"PATH": os.environ["PATH"], "COLOUR": "red"})


def run(*scripts: str, timeout: float = 120, parallel: int = 8) -> list[Outcome]:
    return _verify_workers.run([shell(script) for script in scripts], MARKER, timeout, parallel)


def state(pid: int) -> str | None:
    """The state of a process as ps shows it, None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def wait_until_gone(*pids: int, may_be: str = "") -> list[str | None]:
    """The states of processes, after some time to go, or to come into a state."""
    end = time.monotonic() + 60
    while any(state(pid) not in (None, may_be) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    return [state(pid) for pid in pids]


def test_the_last_marked_line_counts_and_the_rest_is_noise() -> None:
    (outcome,) = run(f"echo hello; echo '{MARKER}one'; echo 'oops' >&2; echo '{MARKER}two'; printf '{MARKER}cut off'")
    assert outcome.marked == "two"
    assert outcome.tail == "hello\noops"
    assert (outcome.returncode, outcome.timed_out, outcome.start_error, outcome.unkillable) == (0, False, None, None)


def test_the_environment_is_the_given_one() -> None:
    (outcome,) = run(f"echo '{MARKER}'$COLOUR$HOME; pwd")
    assert (outcome.marked, outcome.tail) == ("red", "/")


def companion(script: str) -> Command:
    return replace(shell(script), companion=True)


def test_a_companion_is_ended_with_the_last_of_the_others(tmp_path: Path) -> None:
    endless = companion(f"while :; do echo '{MARKER}beat'; touch {tmp_path}/beat; sleep 0.05; done")
    last = shell(f"until [ -e {tmp_path}/beat ]; do sleep 0.05; done; sleep 0.6; echo done")
    outcomes = _verify_workers.run([endless, shell("sleep 0.3"), last], MARKER, 120, 8)
    assert (outcomes[0].marked, outcomes[0].returncode, outcomes[0].timed_out) == ("beat", -signal.SIGKILL, False)
    assert outcomes[2].tail == "done"
    assert 0.6 <= outcomes[0].seconds < 60


def test_a_companion_that_ends_early_is_no_reason_to_end_the_others() -> None:
    outcomes = _verify_workers.run([companion("exit 3"), shell("sleep 0.4; echo done")], MARKER, 120, 8)
    assert (outcomes[0].returncode, outcomes[1].tail) == (3, "done")


def test_endless_noise_is_cut_and_does_not_stop_the_clock() -> None:
    (outcome,) = run("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", timeout=1)
    assert outcome.timed_out
    assert 1 <= outcome.seconds < 60
    assert 0 < len(outcome.tail) <= _verify_workers.TAIL_BYTES


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    (outcome,) = run(f"head -c 3000000 /dev/zero | tr '\\0' x; echo; echo '{MARKER}end'")
    assert outcome.marked == "end"
    assert len(outcome.tail) <= _verify_workers.TAIL_BYTES


def test_status_and_signal() -> None:
    assert [outcome.returncode for outcome in run("exit 3", "kill -SEGV $$")] == [3, -signal.SIGSEGV]


@pytest.mark.parametrize(("path", "words"), [("/no/such/python", "No such file"), ("/etc/passwd", "Permission denied")])
def test_what_can_not_be_started_is_said(path: str, words: str) -> None:
    outcomes = _verify_workers.run([Command([path, "-"], b"", {}), shell("exit 0")], MARKER, 20, 8)
    assert outcomes[0].start_error is not None
    assert words in outcomes[0].start_error
    assert outcomes[1].returncode == 0


def test_outcomes_keep_the_order_and_run_at_the_same_time(tmp_path: Path) -> None:
    here = f"touch {tmp_path}/%s; until [ -e {tmp_path}/1 -a -e {tmp_path}/2 -a -e {tmp_path}/3 ]; do sleep 0.05; done"
    outcomes = run(*(f"{here % name}; sleep {rest}; echo '{MARKER}'{name}" for name, rest in ((1, 1), (2, 0), (3, 1))))
    assert [outcome.marked for outcome in outcomes] == ["1", "2", "3"]


def test_no_more_than_the_limit_at_the_same_time() -> None:
    start = time.monotonic()
    run("sleep 0.4", "sleep 0.4", "sleep 0.4", parallel=1)
    assert time.monotonic() - start > 1.2


def test_the_time_limit_is_each_ones_own() -> None:
    outcomes = run("sleep 600", f"echo '{MARKER}fine'", timeout=1)
    assert [outcome.timed_out for outcome in outcomes] == [True, False]
    assert outcomes[0].returncode == -signal.SIGKILL
    assert outcomes[1].marked == "fine"


def test_children_of_a_hanging_worker_go_with_it_and_no_zombie_stays() -> None:
    sleep = f"sleep 600.{os.getpid()}"  # no other test on this host has it
    (outcome,) = run(f"{sleep} & ({sleep} & {sleep}) & echo '{MARKER}'$$ $!; trap '' TERM; wait", timeout=1)
    assert outcome.timed_out
    assert outcome.marked is not None
    assert wait_until_gone(*map(int, outcome.marked.split())) == [None, None]
    assert subprocess.run(["pgrep", "-f", f"^{sleep}$"], check=False, stdout=subprocess.PIPE).stdout == b""


def test_a_child_that_a_worker_leaves_behind_goes_too() -> None:
    (outcome,) = run(f"sleep 600 & echo '{MARKER}'$!; exit 0")
    assert (outcome.returncode, outcome.timed_out) == (0, False)
    assert outcome.marked is not None
    assert wait_until_gone(int(outcome.marked)) == [None]


ESCAPE = """
import os, sys, time
if not os.fork():
    os.setsid()
    if os.fork():
        time.sleep(600)
    os.setsid()
    pids = (os.getppid(), os.getpid())
    print("\\n@mark@", *pids, flush=True)
    if len(sys.argv) > 1:
        with open(sys.argv[1] + "new", "w") as file:
            print(*pids, file=file)
        os.rename(sys.argv[1] + "new", sys.argv[1])
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("rest", "timeout", "timed_out"), [("time.sleep(1)", 120, False), ("time.sleep(600)", 3, True)]
)
def test_who_leaves_the_group_and_the_session_goes_too(rest: str, timeout: float, timed_out: bool) -> None:
    command = Command([sys.executable, "-"], f"{ESCAPE}\n{rest}".encode(), {})
    outcomes = _verify_workers.run([command, shell(f"sleep {0.5 if timed_out else 2}")], MARKER, timeout, 8)
    assert [outcome.timed_out for outcome in outcomes] == [timed_out, False]
    assert outcomes[0].marked is not None
    assert [state(int(pid)) for pid in outcomes[0].marked.split()] == [None, None]


def test_children_that_were_there_before_stay() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        run("exit 0")
        assert process.poll() is None
        process.kill()


STARTER = """
import sys
from ansible_collections.cudahub.gpu.plugins.module_utils import _verify_workers as workers
script = "sleep 600 & echo $$ $! > " + sys.argv[1] + "; wait"
commands = [workers.Command(["/bin/sh", "-s"], script.encode(), {"PATH": "/usr/bin:/bin"})]
if len(sys.argv) > 2:
    commands = [workers.Command([sys.executable, "-", sys.argv[1]], sys.argv[2].encode(), {})]
try:
    workers.run(commands, "@mark@", 60, 8)
except workers.StoppedError as error:
    print(error)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_nothing_outlives_the_starter(number: signal.Signals, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTER, str(pids)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while not pids.exists() or not pids.read_text(encoding="ascii").strip():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        output, _none = process.communicate(timeout=120)
    worker, child = map(int, pids.read_text(encoding="ascii").split())
    if number == signal.SIGKILL:
        # Nobody was left to end the group: the kernel ends the worker, and we its child.
        os.kill(child, signal.SIGKILL)
        assert wait_until_gone(worker, may_be="Z") in ([None], ["Z"])  # who inherits it may not reap
    else:
        assert output == f"ended by {number.name}\n"
        assert [state(worker), state(child)] == [None, None]


def test_who_escaped_does_not_outlive_a_starter_that_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTER, str(pids), f"{ESCAPE}\ntime.sleep(600)"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while not pids.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        output, _none = process.communicate(timeout=120)
    assert output == "ended by SIGTERM\n"
    assert [state(int(pid)) for pid in pids.read_text(encoding="ascii").split()] == [None, None]


def test_an_unkillable_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verify_workers, "KILL_SECONDS", 0.2)
    killed: list[int] = []
    monkeypatch.setattr(_verify_workers._Running, "kill", lambda one: killed.append(one.process.pid))
    (outcome,) = run("sleep 600", timeout=0.5)
    assert outcome.timed_out
    assert outcome.returncode is None
    assert [outcome.unkillable] == killed
    os.killpg(killed[0], signal.SIGKILL)
    os.waitpid(killed[0], 0)
