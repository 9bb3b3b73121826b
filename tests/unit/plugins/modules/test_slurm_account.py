# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An account is made, changed and deleted, each once."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.modules import slurm_account
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_cases import (
    Module,
    Slurm,
    assert_failures_are_said,
    assert_made_changed_and_deleted_once,
)

PARAMS: dict[str, t.Any] = {"name": "CS101", "parent": "root", "fairshare": 10, "grp_tres": {"gres/gpu": 4}}
COMMANDS = ["sacctmgr -i add account name=cs101 cluster=cluster parent=root Fairshare=10 GrpTRES=gres/gpu=4"]


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


@pytest.fixture
def module(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Module:
    return Module(slurm_account, slurm, monkeypatch, capsys)


def test_it_is_made_changed_and_deleted_once(slurm: Slurm, module: Module) -> None:
    changed = {"before": {"max_wall": None}, "after": {"max_wall": 60}}
    assert_made_changed_and_deleted_once(slurm, module, PARAMS, COMMANDS, changed)


def test_what_can_not_be_is_a_failure_in_a_sentence(slurm: Slurm, module: Module) -> None:
    code, value, _warnings = module(name="cs101", parent="teaching")
    assert (code, value["changed"], slurm.changed) == (1, False, [])
    assert value["msg"].startswith("There is no account 'teaching' (there is: root), and the parent")


def test_failures_of_sacctmgr_are_said(slurm: Slurm, module: Module) -> None:
    assert_failures_are_said(slurm, module, "account", PARAMS)
