# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node of SLURM, over scontrol."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ._slurm_command import Host, SlurmError, complaint, output, unknown

OWN_REASONS = ("Not responding", "Node unexpectedly rebooted")
"""Reasons of SLURM itself that say nothing about a fault that would still be there."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_STATE = re.compile(r"\bState=(\S+)")
_REASON = re.compile(r"\bReason=(.*?) \[([^\s@\]]+)@([^\s\]]+)\]")
_NODE_NAME = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_POLL = 5.0
_FLAGS = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "$": "MAINTENANCE", "@": "REBOOT_ISSUED"}


@dataclass(frozen=True)
class Node:
    """A node as the controller has it. A reason counts only while the node is drained or down."""

    name: str
    state: tuple[str, ...]
    reason: str = ""
    set_by: str = ""

    @property
    def drained(self) -> bool:
        """Whether it gets no new jobs."""
        return "DRAIN" in self.state or "FAIL" in self.state

    @property
    def down(self) -> bool:
        return "DOWN" in self.state

    @property
    def answers(self) -> bool:
        return "NOT_RESPONDING" not in self.state and "UNKNOWN" not in self.state

    @property
    def text(self) -> str:
        return "+".join(self.state)


@dataclass(frozen=True)
class Outcome:
    """How a node is after the task. ``kept`` is the sentence that says why it was left as it was."""

    changed: bool
    before: Node
    after: Node
    jobs: tuple[str, ...] = ()
    kept: str | None = None


class Clock(t.Protocol):
    """What waiting needs."""

    def now(self) -> float:
        """Seconds from some point on."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


def parse(printed: str) -> Node | None:
    """A node from the line that ``scontrol show node --oneliner`` prints."""
    name, state = _NODE_NAME.search(printed), _STATE.search(printed)
    if name is None or state is None:
        return None
    words = []
    for word in state[1].split("+"):
        plain = word.rstrip("*~#$@!%^-")
        words += [plain, *(_FLAGS[sign] for sign in word[len(plain) :] if sign in _FLAGS)]
    reason = _REASON.search(printed)
    return Node(name[1], tuple(words), reason[1] if reason else "", reason[2] if reason else "")


class Controller:
    """The controller of a cluster, as scontrol and squeue show it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def node(self, name: str) -> Node:
        """A node. Raises SlurmError where there is none of that name, with those that come near."""
        if not _NAME.fullmatch(name):
            raise SlurmError(f"{name!r} is not the name of one node")
        result = self._host.run(["scontrol", "show", "node", name, "--oneliner"])
        if result is not None and "not found" in result.out + result.err:
            listed = output(self._host, ["scontrol", "show", "node", "--oneliner"])
            raise SlurmError(unknown("node", name, _NODE_NAME.findall(listed)))
        if result is not None and result.rc != 0:
            raise SlurmError(complaint("scontrol", result))
        printed = result.out if result is not None else output(self._host, ["scontrol", "show", "node", name])
        found = parse(printed)
        if found is None:
            raise SlurmError(f"scontrol show node {name} prints no node: {printed[:200]!r}")
        return found

    def jobs(self, name: str) -> tuple[str, ...]:
        """The jobs that a node runs, as ``12 (alice)``."""
        printed = output(self._host, ["squeue", "-h", "-w", name, "-t", "R,S,CG,CF,SO,SI", "-o", "%i (%u)"])
        return tuple(line.strip() for line in printed.splitlines() if line.strip())

    def update(self, name: str, state: str, reason: str | None = None) -> None:
        words = ["scontrol", "update", f"NodeName={name}", f"State={state}"]
        output(self._host, words + ([f"Reason={reason}"] if reason else []))


def checked_reason(reason: str) -> str:
    """A reason that SLURM can keep in one line."""
    if not reason.strip() or not reason.isprintable() or "[" in reason or '"' in reason:
        raise SlurmError(f"reason is {reason!r}: it has to be one line of text without [ and quotes")
    return reason.strip()


def drain(
    controller: Controller,
    name: str,
    reason: str,
    timeout: float,
    clock: Clock,
    *,
    down: bool = False,
    check: bool = False,
) -> Outcome:
    """Give a node no new jobs, wait for those that it runs, and take it down if that is wanted.

    A node that is drained or down already keeps the reason that it has.
    """
    reason = checked_reason(reason)
    before = controller.node(name)
    jobs = controller.jobs(name)
    done = before.down if down else before.drained or before.down
    changed = not done
    if check:
        word = "DOWN" if down else "DRAIN"
        kept = before.reason if before.drained or before.down else ""
        after = Node(before.name, (word,), kept or reason) if changed else before
        return Outcome(changed, before, after, jobs, _other(before, reason))
    if not before.drained and not before.down:
        controller.update(name, "DRAIN", reason)
    if not before.down:
        _wait(controller, name, timeout, clock, changed=changed)
    if down and not before.down:
        controller.update(name, "DOWN", before.reason if before.drained and before.reason else reason)
    after = controller.node(name)
    if not (after.down if down else after.drained or after.down):
        raise SlurmError(
            f"{name} is {after.text} and not {'down' if down else 'drained'}, as was asked for", changed=changed
        )
    return Outcome(changed, before, after, controller.jobs(name), _other(before, reason))


def _other(before: Node, reason: str) -> str | None:
    if (before.drained or before.down) and before.reason and before.reason != reason:
        return f"{before.name} keeps the reason that it has been {_word(before)} for before: {_quoted(before)}"
    return None


def _word(node: Node) -> str:
    return "down" if node.down else "drained"


def _quoted(node: Node) -> str:
    return f"{node.reason} (by {node.set_by})" if node.set_by else node.reason


def _wait(controller: Controller, name: str, timeout: float, clock: Clock, *, changed: bool) -> None:
    end = clock.now() + timeout
    while True:
        jobs = controller.jobs(name)
        if not jobs:
            return
        left = end - clock.now()
        if left <= 0:
            raise SlurmError(
                f"{name} still runs {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} after {timeout:g} s: "
                f"{', '.join(jobs[:10])}. It stays drained and gets no new ones: wait longer (timeout), or resume it",
                changed=changed,
            )
        clock.sleep(min(_POLL, left))


def resume(
    controller: Controller,
    name: str,
    only_reason: str | None,
    timeout: float,
    clock: Clock,
    *,
    any_reason: bool = False,
    check: bool = False,
) -> Outcome:
    """Put a node back to work, if it is out for a reason that may be lifted, and wait until it answers."""
    before = controller.node(name)
    if not before.drained and not before.down:
        return Outcome(False, before, before, controller.jobs(name))
    ours = only_reason is not None and before.reason.startswith(only_reason)
    if not (any_reason or ours or not before.reason or before.reason.startswith(OWN_REASONS)):
        kept = f"{name} stays {_word(before)}, for another reason than asked: {_quoted(before)}"
        return Outcome(False, before, before, controller.jobs(name), kept)
    if check:
        return Outcome(True, before, Node(before.name, ("IDLE",)), controller.jobs(name))
    controller.update(name, "RESUME")
    end = clock.now() + timeout
    while True:
        after = controller.node(name)
        if not after.drained and not after.down and after.answers:
            return Outcome(True, before, after, controller.jobs(name))
        if after.drained and after.reason != before.reason:
            raise SlurmError(f"{name} was resumed, and drained again: {_quoted(after)}", changed=True)
        left = end - clock.now()
        if left <= 0:
            raise SlurmError(
                f"{name} was resumed and is {after.text} after {timeout:g} s: look at systemctl status slurmd and its "
                "log there",
                changed=True,
            )
        clock.sleep(min(_POLL, left))
