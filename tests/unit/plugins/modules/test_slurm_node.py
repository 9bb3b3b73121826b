# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node is changed once, and what was left as it was is a warning."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import Result
from ansible_collections.cudahub.gpu.plugins.modules import slurm_node
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_cases import OWN, Module


class Node:
    """A node as scontrol shows it."""

    def __init__(self) -> None:
        self.state = "IDLE"
        self.reason = ""
        self.jobs = ""

    def run(self, command: t.Sequence[str]) -> Result:
        if command[0] == "squeue":
            return Result(0, self.jobs, "")
        if command[1] == "update":
            words = dict(word.split("=", 1) for word in command[2:])
            self.state = {"DRAIN": "IDLE+DRAIN", "DOWN": "DOWN", "RESUME": "IDLE"}[words["State"]]
            self.reason = f" Reason={words['Reason']} [root@2026-11-28T06:50:42]" if "Reason" in words else ""
        return Result(0, f"NodeName=gpu01 State={self.state} Weight=1{self.reason}\n", "")


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def module(node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Module:
    return Module(slurm_node, node, monkeypatch, capsys)


def test_drained_and_resumed_once(node: Node, module: Module) -> None:
    params = {"name": "gpu01", "state": "drained", "reason": "cudahub: reboot"}
    assert module(_ansible_check_mode=True, **params).value["changed"]
    assert node.state == "IDLE"
    code, value, warnings = module(**params)
    assert (code, value["changed"], value["node_state"], warnings) == (0, True, "IDLE+DRAIN", [])
    assert (value["reason"], value["reason_by"], value["jobs"]) == ("cudahub: reboot", "root", [])
    assert set(value) - OWN == module.returned()
    assert value["diff"] == {
        "before": {"state": "IDLE", "reason": None},
        "after": {"state": "IDLE+DRAIN", "reason": "cudahub: reboot"},
    }
    assert not module(**params).value["changed"]
    resumed = module(name="gpu01", state="resumed", only_reason="cudahub: ")
    assert (resumed.value["changed"], resumed.value["node_state"], resumed.value["reason"]) == (True, "IDLE", None)
    assert not module(name="gpu01", state="resumed", only_reason="cudahub: ").value["changed"]


def test_node_of_somebody_else_stays_and_is_a_warning(node: Node, module: Module) -> None:
    module(name="gpu01", state="drained", reason="fan broken")
    code, value, warnings = module(name="gpu01", state="resumed", only_reason="cudahub: ")
    assert (code, value["changed"], node.state) == (0, False, "IDLE+DRAIN")
    assert warnings == ["gpu01 stays drained, for another reason than asked: fan broken (by root)"]
    assert value["kept"] == warnings[0]
    assert module(name="gpu01", state="resumed", any_reason=True).value["changed"]


def test_jobs_that_do_not_end_are_a_failure_that_changed(node: Node, module: Module) -> None:
    node.jobs = "12 (alice)\n"
    code, value, _warnings = module(name="gpu01", state="down", reason="new fan", timeout=0)
    assert (code, value["changed"], node.state) == (1, True, "IDLE+DRAIN")
    assert value["msg"].startswith("gpu01 still runs 1 job after 0 s: 12 (alice)")


@pytest.mark.parametrize("state", ["drained", "down"])
def test_reason_is_needed(module: Module, state: str) -> None:
    assert "reason" in module(name="gpu01", state=state).value["msg"]
