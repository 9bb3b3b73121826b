# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user is put into accounts, changed and deleted, each once."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.modules import slurm_user
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_cases import (
    Module,
    Slurm,
    assert_failures_are_said,
    assert_made_changed_and_deleted_once,
)

PARAMS: dict[str, t.Any] = {"name": "alice", "accounts": ["root"], "admin_level": "admin", "expires": "2000-01-01"}
COMMANDS = [
    "sacctmgr -i add user name=alice account=root cluster=cluster DefaultAccount=root MaxJobs=0 MaxSubmitJobs=0",
    "sacctmgr -i modify user where name=alice set AdminLevel=Administrator",
]


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


@pytest.fixture
def module(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Module:
    return Module(slurm_user, slurm, monkeypatch, capsys)


def test_it_is_made_changed_and_deleted_once(slurm: Slurm, module: Module) -> None:
    changed = {
        "before": {"account root": {"max_wall": None}},
        "after": {"account root": {"max_wall": 60}},
    }
    assert_made_changed_and_deleted_once(slurm, module, PARAMS, COMMANDS, changed)


def test_what_can_not_be_is_a_failure_in_a_sentence(slurm: Slurm, module: Module) -> None:
    code, value, _warnings = module(name="alice")
    assert (code, value["changed"], slurm.changed) == (1, False, [])
    assert value["msg"].startswith("The user alice is in no account of cluster")


def test_failures_of_sacctmgr_are_said(slurm: Slurm, module: Module) -> None:
    assert_failures_are_said(slurm, module, "user", PARAMS)
