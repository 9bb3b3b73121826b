# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is drained, waited for, and resumed only by those who may."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_control as control
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import Result, SlurmError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
VERSIONS = ("22.05", "24.11")


class Cluster:
    """One node and its jobs, as scontrol and squeue show them, and the time that passes."""

    def __init__(self, state: str = "IDLE", reason: str = "", jobs: int = 0) -> None:
        self.state = state
        self.reason = reason
        self.jobs = jobs
        self.told: list[str] = []
        self.time = 0.0
        self.ends = 10**9
        self.comes_back_as = "IDLE"

    def run(self, command: t.Sequence[str]) -> Result:
        if command[0] == "squeue":
            return Result(0, "".join(f"{number} (alice)\n" for number in range(1, self.jobs + 1)), "")
        if command[1] == "update":
            self.told.append(" ".join(command[3:]))
            words = dict(word.split("=", 1) for word in command[3:])
            self.reason = words.get("Reason", self.reason)
            self.state = {"DRAIN": "IDLE+DRAIN", "DOWN": "DOWN+DRAIN", "RESUME": self.comes_back_as}[words["State"]]
            return Result(0, "", "")
        if command[3:4] not in (["gpu01"], ["--oneliner"]):
            return Result(1, f"Node {command[3]} not found\n", "")
        reason = f" Reason={self.reason} [root@2026-11-28T06:50:42]" if self.reason else ""
        return Result(0, f"NodeName=gpu01 CPUTot=2 State={self.state} ThreadsPerCore=1{reason}\nNodeName=gpu12\n", "")

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.time >= self.ends:
            self.jobs, self.state = 0, self.state.removesuffix("+NOT_RESPONDING")


def drain(cluster: Cluster, reason: str = "cudahub: reboot", **more: t.Any) -> control.Outcome:
    return control.drain(control.Controller(cluster), "gpu01", reason, 60, cluster, **more)


def resume(cluster: Cluster, only: str | None = "cudahub: ", **more: t.Any) -> control.Outcome:
    return control.resume(control.Controller(cluster), "gpu01", only, 60, cluster, **more)


@pytest.mark.parametrize("version", VERSIONS)
def test_real_nodes_are_read(version: str) -> None:
    lines = (FIXTURES / f"scontrol-{version}-nodes.txt").read_text(encoding="utf-8").splitlines()
    nodes = [control.parse(line) for line in lines]
    assert nodes == [
        control.Node("gpu01", ("MIXED",)),
        control.Node("gpu01", ("MIXED", "DRAIN"), "cudahub: planned work", "root"),
        control.Node("gpu04", ("DOWN", "NOT_RESPONDING"), "Not responding", "slurm"),
        control.Node("gpu04", ("DOWN", "NOT_RESPONDING"), "fan broken (bay 3)", "root"),
    ]


@pytest.mark.parametrize(
    ("state", "words"),
    [("DOWN*", ("DOWN", "NOT_RESPONDING")), ("IDLE*+DRAIN", ("IDLE", "NOT_RESPONDING", "DRAIN")), ("IDLE", ("IDLE",))],
)
def test_signs_of_a_state_are_read(state: str, words: tuple[str, ...]) -> None:
    node = control.parse(f"NodeName=n State={state} ThreadsPerCore=1")
    assert node is not None
    assert node.state == words


def test_drained_once_and_waited_for() -> None:
    cluster = Cluster("MIXED", jobs=2)
    cluster.ends = 20
    outcome = drain(cluster)
    assert (outcome.changed, outcome.after.reason, outcome.jobs) == (True, "cudahub: reboot", ())
    assert (cluster.told, cluster.time) == (["State=DRAIN Reason=cudahub: reboot"], 20)
    assert not drain(cluster).changed
    assert len(cluster.told) == 1


def test_jobs_that_do_not_end_are_named() -> None:
    cluster = Cluster("MIXED", jobs=2)
    with pytest.raises(SlurmError, match=r"gpu01 still runs 2 jobs after 60 s: 1 \(alice\), 2 \(alice\)\.") as caught:
        drain(cluster)
    assert (caught.value.changed, cluster.state, cluster.time) == (True, "IDLE+DRAIN", 60)


@pytest.mark.parametrize("down", [False, True])
def test_reason_of_somebody_else_is_kept(down: bool) -> None:
    cluster = Cluster("IDLE+DRAIN", "fan broken")
    outcome = drain(cluster, down=down)
    assert (outcome.changed, cluster.reason) == (down, "fan broken")
    assert outcome.kept == "gpu01 keeps the reason that it has been drained for before: fan broken (by root)"


def test_reason_that_is_over_is_not_kept() -> None:
    """SLURM shows it after a node was resumed."""
    cluster = Cluster("IDLE", "fan broken")
    assert drain(cluster, check=True).after.reason == "cudahub: reboot"
    outcome = drain(cluster)
    assert (outcome.kept, cluster.reason) == (None, "cudahub: reboot")


def test_down_only_after_the_jobs() -> None:
    cluster = Cluster("MIXED", jobs=1)
    cluster.ends = 10
    assert drain(cluster, down=True).changed
    assert cluster.told == ["State=DRAIN Reason=cudahub: reboot", "State=DOWN Reason=cudahub: reboot"]
    assert not drain(cluster, down=True).changed


@pytest.mark.parametrize(
    ("reason", "only", "more", "resumed"),
    [
        ("cudahub: reboot", "cudahub: ", {}, True),
        ("fan broken", "cudahub: ", {}, False),
        ("fan broken", None, {}, False),
        ("fan broken", None, {"any_reason": True}, True),
        ("fan broken", "", {}, True),
        ("Not responding", "cudahub: ", {}, True),
        ("Node unexpectedly rebooted", None, {}, True),
        ("gres/gpu count reported lower than configured (3 < 4)", None, {}, False),
    ],
)
def test_resumed_by_those_who_may(reason: str, only: str | None, more: dict[str, bool], resumed: bool) -> None:
    cluster = Cluster("DOWN+DRAIN", reason)
    outcome = resume(cluster, only, **more)
    assert (outcome.changed, outcome.kept is None, cluster.told) == (resumed, resumed, ["State=RESUME"] * resumed)
    assert not resume(cluster, only, **more).changed


def test_resumed_is_one_that_answers() -> None:
    cluster = Cluster("IDLE+DRAIN", "cudahub: reboot")
    cluster.comes_back_as, cluster.ends = "IDLE+NOT_RESPONDING", 15
    assert resume(cluster).after.text == "IDLE"
    assert cluster.time == 15


def test_one_that_does_not_answer_is_a_failure() -> None:
    cluster = Cluster("IDLE+DRAIN", "cudahub: reboot")
    cluster.comes_back_as = "IDLE+NOT_RESPONDING"
    with pytest.raises(SlurmError, match=r"gpu01 was resumed and is IDLE\+NOT_RESPONDING after 60 s"):
        resume(cluster)


@pytest.mark.parametrize("state", ["IDLE", "IDLE+DRAIN", "MIXED"])
def test_check_mode_changes_nothing(state: str) -> None:
    cluster = Cluster(state, "cudahub: reboot", jobs=1)
    drained = state == "IDLE+DRAIN"
    assert drain(cluster, check=True).changed == (not drained)
    assert resume(cluster, check=True).changed == drained
    assert (cluster.told, cluster.time) == ([], 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [("gpu1", "There is no node 'gpu1' (is gpu12 or gpu01 meant?)"), ("gpu[01-02]", "is not the name of one node")],
)
def test_unknown_node_is_refused(name: str, said: str) -> None:
    with pytest.raises(SlurmError) as caught:
        control.Controller(Cluster()).node(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("reason", ["", " ", "two\nlines", 'a "b"', "[x]"])
def test_reason_has_to_be_a_line(reason: str) -> None:
    cluster = Cluster()
    with pytest.raises(SlurmError, match="it has to be one line of text"):
        drain(cluster, reason)
    assert cluster.told == []
