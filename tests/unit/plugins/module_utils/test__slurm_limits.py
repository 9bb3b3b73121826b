# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options, what sacctmgr prints, and what it takes mean the same."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_limits as limits
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import SlurmError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
SETTINGS = {setting.option: setting for setting in (*limits.ASSOCIATION, *limits.QOS)}


def plan(option: str, printed: str, given: t.Any, table: t.Sequence[limits.Setting]) -> str | None:
    """What sacctmgr is told, where it printed something and something is wanted."""
    wanted = limits.settings({option: given}, table)
    (setting,) = wanted
    changes = limits.changes({setting: limits.parse(setting, printed)}, wanted)
    return limits.rendered(changes[0]) if changes else None


@pytest.mark.parametrize(
    ("option", "printed", "given", "told"),
    [
        ("grp_tres", "", {"gres/gpu": 4}, "GrpTRES=gres/gpu=4"),
        ("grp_tres", "gres/gpu=4,mem=62.50G", {"GRES/GPU": 4, "mem": 64000}, None),
        ("grp_tres", "gres/gpu=4,mem=64001M", {"mem": 64001}, None),
        ("grp_tres", "mem=1T", {"mem": 1048576}, None),
        ("grp_tres", "cpu=1048576,gres/gpu=4", {"cpu": 1048576}, None),
        ("grp_tres", "cpu=2,gres/gpu=4", {"gres/gpu": -1}, "GrpTRES=gres/gpu=-1"),
        ("grp_tres", "cpu=2,gres/gpu=4", {"gres/gpu": None, "cpu": "3"}, "GrpTRES=cpu=3,gres/gpu=-1"),
        ("grp_tres", "cpu=2", {"gres/gpu": -1}, None),
        ("grp_tres", "", {"gres/gpu": 0}, "GrpTRES=gres/gpu=0"),
        ("max_wall", "01:30:00", "90", None),
        ("max_wall", "01:30:00", "1:30:00", None),
        ("max_wall", "2-12:00:00", "2-12", None),
        ("max_wall", "", "00:00:30", "MaxWall=1"),
        ("max_wall", "01:30:00", "-1", "MaxWall=-1"),
        ("max_wall", "", "-1", None),
        ("fairshare", "parent", "parent", None),
        ("fairshare", "1", "parent", "Fairshare=parent"),
        ("fairshare", "parent", "20", "Fairshare=20"),
        ("fairshare", "1", "-1", None),
        ("fairshare", "20", "-1", "Fairshare=1"),
        ("max_jobs", "", 0, "MaxJobs=0"),
        ("max_jobs", "0", 0, None),
        ("max_jobs", "3", -1, "MaxJobs=-1"),
        ("max_jobs", "", -1, None),
        ("qos", "class,normal", ["normal", "Class"], None),
        ("qos", "class,normal", ["normal"], "QOS=normal"),
        ("qos", "class,normal", [], "QOS="),
        ("default_qos", "class", "Class", None),
        ("default_qos", "class", "", "DefaultQOS=-1"),
        ("default_qos", "", "", None),
    ],
)
def test_association(option: str, printed: str, given: t.Any, told: str | None) -> None:
    assert plan(option, printed, given, limits.ASSOCIATION) == told


@pytest.mark.parametrize(
    ("option", "printed", "given", "told"),
    [
        ("flags", "DenyOnLimit,NoReserve", ["noreserve", "denyonlimit"], None),
        ("flags", "DenyOnLimit", ["DenyOnLimit", "NoReserve"], "Flags=DenyOnLimit,NoReserve"),
        ("flags", "DenyOnLimit", [], "Flags=-1"),
        ("preempt", "normal", [], "Preempt="),
        ("preempt_mode", "cluster", "cluster", None),
        ("preempt_mode", "requeue", "cluster", "PreemptMode=cluster"),
        ("priority", "0", 0, None),
        ("grace_time", "00:01:30", 90, None),
        ("grace_time", "00:00:00", 90, "GraceTime=90"),
        ("usage_factor", "1.000000", 1, None),
        ("usage_factor", "1.000000", 0.5, "UsageFactor=0.5"),
        ("description", "Normal QOS default", "normal qos default", None),
        ("description", "courses", "All Courses", "Description=all courses"),
        ("max_jobs_per_user", "", 3, "MaxJobsPU=3"),
        ("max_tres_per_user", "gres/gpu=2", {"gres/gpu": 2}, None),
    ],
)
def test_qos(option: str, printed: str, given: t.Any, told: str | None) -> None:
    assert plan(option, printed, given, limits.QOS) == told


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("grp_tres", {"gres/gpu": "four"}, "grp_tres has 'four' for gres/gpu"),
        ("grp_tres", {"gres/gpu": -2}, "grp_tres has -2 for gres/gpu"),
        ("grp_tres", {"gres/gpu": True}, "grp_tres has True for gres/gpu"),
        ("max_wall", "8h", "max_wall is '8h': it has to be minutes"),
        ("max_wall", "-2", "max_wall is '-2'"),
        ("fairshare", "half", "fairshare is 'half': it has to be a whole number, or parent"),
        ("fairshare", "-2", "fairshare is -2"),
        ("max_jobs", -2, "max_jobs is -2: it can't be less than 0, except -1"),
        ("usage_factor", -0.5, "usage_factor is -0.5"),
        ("grace_time", -1, "grace_time is -1: it can't be less than 0"),
        ("description", 'a "b"', "SLURM keeps no empty text, and none with quotes"),
        ("description", "a|b", "description is 'a|b'"),
        ("description", " ", "description is ' '"),
    ],
)
def test_what_can_not_be_set_is_said(option: str, given: t.Any, said: str) -> None:
    with pytest.raises(SlurmError) as caught:
        limits.settings({option: given}, [SETTINGS[option]])
    assert said in str(caught.value)


def test_only_what_is_given_is_managed() -> None:
    assert limits.settings({"max_jobs": None, "grp_tres": None}, limits.ASSOCIATION) == {}


def test_tres_that_are_not_accounted_are_refused() -> None:
    wanted = limits.settings({"grp_tres": {"gres/gpu:typo": 2}}, limits.ASSOCIATION)
    with pytest.raises(SlurmError) as caught:
        limits.check_tres(wanted, ["cpu", "gres/gpu"])
    assert "grp_tres: There is no TRES 'gres/gpu:typo' (is gres/gpu meant?)" in str(caught.value)
    assert "AccountingStorageTRES" in str(caught.value)


@pytest.mark.parametrize("version", ["22.05", "24.11"])
@pytest.mark.parametrize(
    ("entity", "name", "given"),
    [
        ("assoc", "cs101|", {"qos": ["class", "normal"], "default_qos": "class", "grp_tres": {"mem": 64000}}),
        ("assoc", "cs101|", {"fairshare": "10", "grp_tres_mins": {"gres/gpu": 60000}, "max_wall": "2-00:00:00"}),
        ("assoc", "cs101|bob", {"fairshare": "parent", "max_jobs": 0, "max_submit_jobs": 0}),
        ("assoc", "cs101|alice", {"grp_tres": {"gres/gpu": 1}, "max_tres_per_job": {"cpu": 4}, "max_jobs": -1}),
        ("qos", "class", {"description": "All courses", "priority": 100, "preempt": ["normal"], "usage_factor": 0.5}),
        ("qos", "class", {"max_tres_per_user": {"gres/gpu": 2, "mem": 64001}, "max_wall": "480"}),
        (
            "qos",
            "class",
            {"max_jobs_per_user": 3, "grp_tres_mins": {"gres/gpu": 60000}, "flags": ["NoReserve", "DenyOnLimit"]},
        ),
    ],
)
def test_what_real_sacctmgr_prints_is_what_was_set(
    version: str, entity: str, name: str, given: dict[str, t.Any]
) -> None:
    lines = (FIXTURES / f"sacctmgr-{version}-{entity}.txt").read_text(encoding="utf-8").splitlines()
    (line,) = (one for one in lines if one.startswith(f"{name}|"))
    if entity == "assoc":
        table, values = limits.ASSOCIATION, line.split("|")[4:]
    else:
        table, values = (*limits.QOS[1:], limits.QOS[0]), line.split("|")[1:]
    printed = {setting: limits.parse(setting, value) for setting, value in zip(table, values, strict=True)}
    assert limits.changes(printed, limits.settings(given, table)) == []
