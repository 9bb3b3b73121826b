# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes that run at the same time, each under its own time limit, none of which outlives its starter."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TAIL_BYTES = 4096
LINE_BYTES = 1 << 18
KILL_SECONDS = 3.0
STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Command:
    """What to start: ``stdin`` is given whole, the environment is ``environment`` and nothing else.

    A companion is ended as soon as only companions are left.
    """

    argv: Sequence[str]
    stdin: bytes
    environment: Mapping[str, str]
    companion: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a command.

    ``returncode`` is as in subprocess (negative: a signal), null if it never started or can't be killed.
    ``marked`` is the last line that began with the marker, without it.
    """

    returncode: int | None
    seconds: float
    marked: str | None
    tail: str
    start_error: str | None = None
    timed_out: bool = False
    unkillable: int | None = None


class StoppedError(Exception):
    """A signal asked this process to end."""


class _Lines:
    """Takes a stream in pieces, keeps the last marked line and the end of all others."""

    def __init__(self, marker: bytes) -> None:
        self.marker = marker
        self.marked: bytes | None = None
        self.rest = b""
        self.noise: deque[bytes] = deque()
        self.noise_bytes = 0

    def feed(self, piece: bytes) -> None:
        *lines, self.rest = (self.rest + piece).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self.rest) > LINE_BYTES:
            self._take(self.rest)
            self.rest = b""

    def end(self) -> None:
        if not self.rest.startswith(self.marker):  # else it was cut off, and the one before is whole
            self._take(self.rest)
        self.rest = b""

    def _take(self, line: bytes) -> None:
        if line.startswith(self.marker):
            self.marked = line[len(self.marker) :]
        elif line.strip():
            self.noise.append(line[-TAIL_BYTES:])
            self.noise_bytes += len(self.noise[-1])
            while self.noise_bytes > TAIL_BYTES and len(self.noise) > 1:
                self.noise_bytes -= len(self.noise.popleft())


class _Running:
    """A started command."""

    def __init__(self, command: Command, marker: bytes, libc: ctypes.CDLL) -> None:
        self.started = time.monotonic()
        self.timed_out = False
        self.lines = _Lines(marker)
        self.errors = _Lines(marker)
        # A file, not a pipe: a command that never reads can't block the one who writes. AnsibleModule.run_command isn't
        # used, since it runs one command at a time.
        with tempfile.TemporaryFile() as stdin:
            stdin.write(command.stdin)
            stdin.seek(0)
            self.process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                list(command.argv),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(command.environment),
                cwd="/",
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid(), libc),  # noqa: PLW1509 - modules have one thread
            )
        pipes = (self.process.stdout, self.process.stderr)
        self.streams: list[tuple[IO[bytes], _Lines]] = [
            (pipe, lines) for pipe, lines in zip(pipes, (self.lines, self.errors)) if pipe
        ]
        for stream, _lines in self.streams:
            os.set_blocking(stream.fileno(), False)

    def watch(self, selector: selectors.BaseSelector) -> None:
        for stream, lines in self.streams:
            selector.register(stream, selectors.EVENT_READ, (stream, lines))

    def unwatch(self, selector: selectors.BaseSelector) -> None:
        for stream, _lines in self.streams:
            if stream in selector.get_map():
                selector.unregister(stream)

    def is_over(self, timeout: float) -> bool:
        """Whether it has ended or must end."""
        # Without reaping: as long as the process isn't reaped, its group's number isn't given to others.
        ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        self.timed_out = not ended and time.monotonic() - self.started > timeout
        return ended or self.timed_out

    def kill(self) -> None:
        with suppress(PermissionError):  # a prefix such as sudo may have made it another user's
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        for stream, _lines in self.streams:
            stream.close()

    def reap(self, until: float) -> bool:
        """Wait for the group's end; say whether the command itself has ended."""
        while True:
            ended = self.process.poll() is not None
            if ended and not _reap_group(self.process.pid):
                return True
            if time.monotonic() > until:
                return ended
            time.sleep(0.01)

    def outcome(self) -> Outcome:
        seconds = round(time.monotonic() - self.started, 3)
        until = time.monotonic() + KILL_SECONDS
        descendants = _descendants(self.process.pid)
        self.kill()
        ended = self.reap(until)
        _end_children(lambda pid: pid in descendants, until)
        for stream, lines in self.streams:
            _drain(stream, lines)
            lines.end()
        self.close()
        noise = b"\n".join([*self.lines.noise, *self.errors.noise])[-TAIL_BYTES:]
        marked = self.lines.marked
        return Outcome(
            returncode=self.process.returncode,
            seconds=seconds,
            marked=None if marked is None else marked.decode("utf-8", "replace"),
            tail=noise.decode("utf-8", "replace"),
            timed_out=self.timed_out,
            unkillable=None if ended else self.process.pid,
        )


def _dies_with(parent: int, libc: ctypes.CDLL) -> Callable[[], None]:
    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _reap_group(group: int) -> bool:
    """Reap the group's orphans that became our children; say whether any is left."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _parents() -> dict[int, int]:
    """All processes that can be seen, with their parents."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has just ended
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return parents


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    todo = [pid]
    while todo:
        new = set(children.get(todo.pop(), ())) - found
        found |= new
        todo += new
    return found


def _children() -> set[int]:
    return {pid for pid, parent in _parents().items() if parent == os.getpid()}


def _end_children(chosen: Callable[[int], bool], until: float) -> None:
    """Kill and reap the chosen children of this process until none is left, or the time is over.

    What has left its group or session becomes this process's child when its parent ends. As long as a child isn't
    reaped, its number isn't given to others.
    """
    while left := [pid for pid in _children() if chosen(pid)]:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until:
            return


def _drain(stream: IO[bytes], lines: _Lines) -> bool:
    """Take what is there now, but not endlessly; say whether more may come."""
    for _piece in range(64):
        try:
            piece = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        if not piece:
            return False
        lines.feed(piece)
    return True


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Collect the signals that would end this process, so that it can clean up first."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in STOPPING_SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(commands: Sequence[Command], marker: str, timeout: float, parallel: int) -> list[Outcome]:
    """Run all commands, at most ``parallel`` at a time, each for at most ``timeout`` seconds.

    Outcomes come in the order of the commands. At return, by whatever way, none of their processes is left,
    but for one that the kernel can't end; that one is named in ``unkillable``. Raises ``StoppedError`` if this
    process was asked to end.
    """
    libc = ctypes.CDLL(None)
    spared = _children()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    outcomes: dict[int, Outcome] = {}
    running: dict[int, _Running] = {}
    waiting = deque(enumerate(commands))
    with selectors.DefaultSelector() as selector, _signals_noted() as signals:
        try:
            while waiting or running:
                if signals:
                    raise StoppedError(f"ended by {signal.Signals(signals[0]).name}")
                while waiting and len(running) < parallel:
                    number, command = waiting.popleft()
                    try:
                        running[number] = _Running(command, marker.encode(), libc)
                    except OSError as error:
                        outcomes[number] = Outcome(None, 0.0, None, "", start_error=error.strerror or str(error))
                    else:
                        running[number].watch(selector)
                for key, _events in selector.select(0.02):
                    if not _drain(*key.data):
                        selector.unregister(key.fileobj)
                alone = not waiting and all(commands[number].companion for number in running)
                for number in [number for number, one in running.items() if one.is_over(timeout) or alone]:
                    running[number].unwatch(selector)
                    outcomes[number] = running.pop(number).outcome()
        finally:
            until = time.monotonic() + KILL_SECONDS
            for one in running.values():
                one.kill()
            for one in running.values():
                if not one.reap(until):
                    spared.add(one.process.pid)
                one.close()
            spared.update(outcome.unkillable for outcome in outcomes.values() if outcome.unkillable)
            _end_children(lambda pid: pid not in spared, time.monotonic() + KILL_SECONDS)
            libc.prctl(PR_SET_CHILD_SUBREAPER, 0)
    return [outcomes[number] for number in range(len(commands))]
