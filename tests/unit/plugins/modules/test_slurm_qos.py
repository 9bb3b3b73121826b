# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A QOS is made, changed and deleted, each once."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.modules import slurm_qos
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_cases import (
    Module,
    Slurm,
    assert_failures_are_said,
    assert_made_changed_and_deleted_once,
)

PARAMS: dict[str, t.Any] = {"name": "Class", "description": "All courses", "max_tres_per_user": {"gres/gpu": 2}}
COMMANDS = ["sacctmgr -i add qos name=class 'Description=all courses' MaxTRESPU=gres/gpu=2"]


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


@pytest.fixture
def module(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Module:
    return Module(slurm_qos, slurm, monkeypatch, capsys)


def test_it_is_made_changed_and_deleted_once(slurm: Slurm, module: Module) -> None:
    changed = {"before": {"max_wall": None}, "after": {"max_wall": 60}}
    assert_made_changed_and_deleted_once(slurm, module, PARAMS, COMMANDS, changed)


def test_what_can_not_be_is_a_failure_in_a_sentence(slurm: Slurm, module: Module) -> None:
    code, value, _warnings = module(name="class", grp_tres={"gres/gpu:typo": 1})
    assert (code, value["changed"], slurm.changed) == (1, False, [])
    assert value["msg"].startswith("grp_tres: There is no TRES 'gres/gpu:typo'")


def test_failures_of_sacctmgr_are_said(slurm: Slurm, module: Module) -> None:
    assert_failures_are_said(slurm, module, "qos", PARAMS)
