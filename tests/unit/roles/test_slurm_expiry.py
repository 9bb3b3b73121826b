# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Accounts and users of SLURM expire on their day without a play, as the modules would let them."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _sacctmgr
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import Result
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_cases import REFUSED, Slurm
from ansible_collections.cudahub.gpu.tests.unit.program import load

TODAY = dt.date(2027, 6, 30)
RECORD = {
    "cluster": "cluster",
    "accounts": [{"name": "CS101", "expires": "2027-06-30"}, {"name": "cs205", "expires": "2027-07-01"}],
    "users": [
        {"name": "alice", "accounts": ["cs101", "cs205"], "expires": "2027-06-29"},
        {"name": "bob", "accounts": ["cs205"], "expires": "2027-07-01"},
        {"name": "gone", "accounts": ["cs205"], "expires": "2027-01-01"},
    ],
}
WHERE = 'cluster=cluster partition=""'
CHANGES = [
    "sacctmgr -i modify account where name=cs101 cluster=cluster set GrpJobs=0 GrpSubmitJobs=0",
    f"sacctmgr -i modify user where name=alice account=cs101 {WHERE} set MaxJobs=0 MaxSubmitJobs=0",
    f"sacctmgr -i modify user where name=alice account=cs205 {WHERE} set MaxSubmitJobs=0",
]


expiry = load("slurm/files/slurm-expiry")


class Host:
    """A controller with a database of the tests' own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slurm = Slurm()
        for account in ("cs101", "cs205"):
            self.slurm.accounts[account] = {}
            self.slurm.associations[account, "", ""] = {"Parent": "root"}
        for key in (("cs101", "alice", ""), ("cs101", "alice", "debug"), ("cs205", "bob", "")):
            self.slurm.associations[key] = {}
        self.slurm.associations["cs205", "alice", ""] = {"MaxJobs": "0", "MaxSubmitJobs": "4"}
        self.record = folder / "expiry.json"
        self.write(RECORD)
        monkeypatch.setattr(expiry, "RECORD", self.record)
        monkeypatch.setattr(expiry, "now", lambda: TODAY)
        monkeypatch.setattr(expiry.subprocess, "run", self.run)

    def write(self, record: Any) -> None:
        self.record.write_text(json.dumps(record), encoding="utf-8")

    def run(self, command: list[str], **_more: Any) -> subprocess.CompletedProcess[str]:
        result = self.slurm.run(command)
        if result is None:
            raise FileNotFoundError(2, "No such file or directory", command[0])
        return subprocess.CompletedProcess(command, result.rc, result.out, result.err)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_those_expire_whose_day_has_come_and_only_once(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert expiry.main() == 0
    assert host.slurm.changed == CHANGES
    assert capsys.readouterr().out.splitlines() == [
        "Account cs101 has expired on 2027-06-30: GrpJobs=0 GrpSubmitJobs=0.",
        "User alice in account cs101 has expired on 2027-06-29: MaxJobs=0 MaxSubmitJobs=0.",
        "User alice in account cs205 has expired on 2027-06-29: MaxSubmitJobs=0.",
    ]
    assert host.slurm.associations["cs101", "alice", "debug"] == {}
    assert host.slurm.associations["cs205", "bob", ""] == {}
    assert expiry.main() == 0
    assert host.slurm.changed == CHANGES
    assert capsys.readouterr().out == ""


def test_the_modules_would_have_done_the_same_and_lift_it(host: Host) -> None:
    assert expiry.main() == 0
    database = _sacctmgr.Database(host.slurm)
    account = {"expires": "2027-06-30"}
    user = {"accounts": ["cs101", "cs205"], "expires": "2027-06-29"}
    assert not _sacctmgr.account_present(database, "cs101", account, TODAY).changed
    host.slurm.defaults["alice"], host.slurm.users["alice"] = "cs101", "None"
    assert not _sacctmgr.user_present(database, "alice", user, TODAY).changed
    _sacctmgr.user_present(database, "alice", {**user, "expires": "2028-01-01"}, TODAY)
    assert host.slurm.associations["cs101", "alice", ""] == host.slurm.associations["cs205", "alice", ""] == {}


def test_before_the_day_the_database_is_not_asked(host: Host) -> None:
    host.write({**RECORD, "accounts": [], "users": [RECORD["users"][1]]})
    host.slurm.answers["sacctmgr"] = None
    assert expiry.main() == 0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Result(1, "", REFUSED), f"slurmdbd can't be asked: {REFUSED}"),
        (Result(0, "", REFUSED), "sacctmgr shows no accounts of the cluster cluster"),
        (None, "slurmdbd can't be asked: sacctmgr can't be run: [Errno 2] No such file or directory: 'sacctmgr'"),
    ],
)
def test_a_database_that_does_not_answer_is_said(
    host: Host, answer: Result | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host.slurm.answers["sacctmgr"] = answer
    assert expiry.main() == 1
    said = capsys.readouterr()
    assert said.err == f"Accounts and users of SLURM can't expire now: {reason}.\n"
    assert said.out == ""


def test_one_that_fails_does_not_keep_the_others(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_words: list[str]) -> None:
        raise OSError("broken")

    monkeypatch.setattr(host.slurm, "_modify_account", refuse)
    assert expiry.main() == 1
    said = capsys.readouterr()
    assert said.err == "Account cs101 does not expire: sacctmgr can't be run: broken.\n"
    assert host.slurm.changed[1:] == CHANGES[1:]


def test_a_change_that_is_not_made_is_said(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.slurm.deaf = {"account"}
    assert expiry.main() == 1
    sentence = "Account cs101 does not expire: sacctmgr took the change, but did not make it.\n"
    assert capsys.readouterr().err == sentence


@pytest.mark.parametrize(
    "record",
    [
        [],
        {},
        {"cluster": "cluster", "accounts": [], "users": [{"name": "alice", "expires": "2027-06-29"}]},
        {"cluster": "cluster", "accounts": [{"name": "cs101", "expires": "soon"}], "users": []},
    ],
)
def test_a_record_of_another_shape_is_said(host: Host, record: Any, capsys: pytest.CaptureFixture[str]) -> None:
    host.write(record)
    assert expiry.main() == 1
    assert "is not as role slurm writes it" in capsys.readouterr().err
