# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPU hours are returned as the documentation says."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import Result
from ansible_collections.cudahub.gpu.plugins.modules import slurm_usage
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_cases import OWN, Module


class Host:
    """A database in which one user has used something."""

    def run(self, command: t.Sequence[str]) -> Result:
        if command[0] == "sacctmgr":
            return Result(0, "gres|gpu\n", "")
        return Result(0, "cluster|cs101|||gres/gpu|9000\ncluster|cs101|alice|Alice|gres/gpu|9000\n", "")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Module:
    return Module(slurm_usage, Host(), monkeypatch, capsys)


@pytest.mark.parametrize("check", [False, True])
def test_hours_are_returned(module: Module, check: bool) -> None:
    code, value, _warnings = module(start="2026-11-01", end="2026-12-01", _ansible_check_mode=check)
    assert (code, value["changed"]) == (0, False)
    account = {"cluster": "cluster", "account": "cs101", "tres": "gres/gpu", "seconds": 9000, "hours": 2.5}
    assert value["accounts"] == [account]
    assert value["users"] == [{**account, "user": "alice"}]
    assert set(value) - OWN == module.returned()


def test_bad_date_is_a_failure(module: Module) -> None:
    code, value, _warnings = module(start="yesterday")
    assert (code, value["msg"][:21]) == (1, "start is 'yesterday':")
