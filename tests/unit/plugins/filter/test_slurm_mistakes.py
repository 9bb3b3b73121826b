# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mistakes in the options of role slurm, found before any host is asked."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter.slurm_mistakes import slurm_mistakes
from ansible_collections.cudahub.gpu.plugins.plugin_utils import _slurm_options

ROLE = Path(__file__).parents[4] / "roles/slurm"
ALICE = {"name": "alice", "uid": 2001}
BOB = {"name": "bob", "uid": 2002}
RIGHT: dict[str, t.Any] = {
    "slurm_cluster_name": "class-room_1",
    "slurm_state_directory": "/srv/slurm/state",
    "slurm_partitions": [
        {"name": "main", "nodes": "ALL", "config": {"AllowQos": "normal,class", "MaxTime": "8:00:00"}}
    ],
    "slurm_config": {"SlurmctldPort": "6900-6903", "SlurmdTimeout": 60, "KillWait": None, "PowerPlugin": "power/none"},
    "slurm_cgroup_config": {"AllowedRAMSpace": 95.5},
    "slurm_node_config": {"MemSpecLimit": 4096},
    "slurm_node_weight": None,
    "slurm_memory_reserve_percent": 0.5,
    "slurm_clock_tolerance": "60",
    "slurm_accounting_enforce": ["associations", "limits", "qos"],
    "slurm_qos": [{"name": "class", "priority": 10, "preempt": ["scavenge"]}, {"name": "Scavenge", "max_wall": "1-0"}],
    "slurm_accounts": [
        {"name": "teaching", "fairshare": "parent"},
        {"name": "cs101", "parent": "Teaching", "qos": ["normal", "class"], "expires": "2027-06-30"},
        {"name": "old", "state": "absent"},
    ],
    "slurm_users": [
        {**ALICE, "accounts": ["cs101"], "default_account": "cs101", "grp_tres": {"gres/gpu": 1}, "groups": ["video"]},
        {**BOB, "gid": 3000, "quota": {"hard_mb": 5}},
        {"name": "zoe", "state": "absent"},
    ],
    "slurm_users_source": "local",
    "slurm_db_config": {"PrivateData": ["jobs", "usage"], "PurgeJobAfter": "24months", "debuglevel": "debug"},
    "slurm_db_port": 3306,
}


def test_right_options_have_no_mistakes() -> None:
    there = ["root||", "old||root", "teaching||root"]
    assert slurm_mistakes(RIGHT, associations=there, qos=["normal"], jobs=["7|alice|cs101|class"]) == []
    assert slurm_mistakes(RIGHT) == []
    assert slurm_mistakes({}) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"slurm_cluster_name": "Class Room"}, "slurm_cluster_name is 'Class Room', which SLURM does not accept"),
        ({"slurm_cluster_name": "a" * 41}, "use at most 40 lower-case letters"),
        ({"slurm_cluster_name": "a\n"}, "which SLURM does not accept"),
        ({"slurm_state_directory": "/var"}, "slurm_state_directory is '/var': give an absolute path"),
        ({"slurm_state_directory": "/srv/../etc"}, "without '..'"),
        (
            {"slurm_state_directory": "/var/lib"},
            "is '/var/lib', which SLURM has for something else too: give a directory",
        ),
        ({"slurm_state_directory": "/etc/slurm/state"}, "which SLURM has for something else too"),
        ({"slurm_memory_reserve_percent": "nan"}, "slurm_memory_reserve_percent is nan: give 0 to 99.9."),
        ({"slurm_config": {"SlurmctldPort": 6818}}, "SlurmdPort and SlurmctldPort are both 6818: give each daemon"),
        ({"slurm_config": {"SlurmdPort": 6819}}, "slurm_db_daemon_port and SlurmdPort are both 6819"),
        ({"slurm_config": {"SlurmctldPort": "6910-6900"}}, "SlurmctldPort is '6910-6900': give a port"),
        ({"slurm_clock_tolerance": -1}, "slurm_clock_tolerance is -1: give at least 0."),
        ({"slurm_clock_tolerance": "soon"}, "slurm_clock_tolerance is 'soon': give a number."),
        ({"slurm_memory_reserve_percent": 100}, "slurm_memory_reserve_percent is 100: give 0 to 99.9."),
        ({"slurm_db_daemon_port": 0}, "slurm_db_daemon_port is 0: give 1 to 65535."),
        ({"slurm_db_port": 99999}, "slurm_db_port is 99999: give 1 to 65535."),
        ({"slurm_verify_timeout": 0}, "slurm_verify_timeout is 0: give at least 1."),
        ({"slurm_config": {"KillWhait": 1}}, "slurm_config: SLURM has no setting 'KillWhait'; did you mean KillWait?"),
        ({"slurm_config": {"KillWait": "long"}}, "slurm_config: KillWait is 'long', not a number."),
        (
            {"slurm_config": {"SlurmctldPort": 70000}},
            "slurm_config: SlurmctldPort is 70000: give a port from 1 to 65535.",
        ),
        (
            {"slurm_config": {"clustername": "x"}},
            "slurm_config can't set clustername: it comes from slurm_cluster_name.",
        ),
        ({"slurm_cgroup_config": {"ConstrainCores": 7}}, "ConstrainCores is '7', not yes or no."),
        (
            {"slurm_node_config": {"Wieght": 7}},
            "slurm_node_config: SLURM has no node parameter 'Wieght'; did you mean Weight?",
        ),
        (
            {"slurm_db_config": {"PurgeJobsAfter": 1}},
            "no setting of slurmdbd.conf 'PurgeJobsAfter'; did you mean PurgeJobAfter",
        ),
        (
            {"slurm_db_config": {"storagepass": "x"}},
            "slurm_db_config can't set storagepass: it comes from an option of the role.",
        ),
        ({"slurm_db_config": {"TrackWCKey": "maybe"}}, "TrackWCKey is 'maybe', not yes or no."),
        ({"slurm_partitions": []}, "slurm_partitions is not a list of partitions"),
        ({"slurm_partitions": [{"name": "a"}, {"name": "a"}]}, "the partition a is there twice."),
        (
            {"slurm_partitions": [{"name": "a", "config": {"MaxTim": 5}}]},
            "partition a: SLURM has no partition parameter 'MaxTim'",
        ),
        ({"slurm_qos": [{"priority": 1}]}, "slurm_qos has an entry without name: give it one."),
        ({"slurm_accounts": [{"name": "a"}, {"name": "A"}]}, "slurm_accounts has a twice: keep one of both."),
        (
            {"slurm_users": [{**ALICE, "acounts": ["x"]}]},
            "slurm_users: alice has no option 'acounts'; did you mean accounts?",
        ),
        ({"slurm_qos": [{"name": "q", "xyzzy": 1}]}, "slurm_qos: q has no option 'xyzzy': there are name, state,"),
        ({"slurm_users": [{**ALICE, "accounts": "staff"}]}, "slurm_users: alice has accounts 'staff': give a list."),
        ({"slurm_users": [{**ALICE, "groups": "video"}]}, "slurm_users: alice has groups 'video': give a list."),
        ({"slurm_users": [{**ALICE, "max_jobs": "many"}]}, "slurm_users: alice: argument 'max_jobs' is of type"),
        ({"slurm_users": [{**ALICE, "state": "gone"}]}, "value of state must be one of: present, absent, got: gone."),
        ({"slurm_users": [{**ALICE, "admin_level": "boss"}]}, "value of admin_level must be one of"),
        ({"slurm_accounts": [{"name": "a", "fairshare": "much"}]}, "slurm_accounts: a: fairshare is 'much'"),
        ({"slurm_qos": [{"name": "q", "max_wall": "tomorrow"}]}, "slurm_qos: q: max_wall is 'tomorrow'"),
        (
            {"slurm_users": [{**ALICE, "expires": "2027-02-30"}]},
            "slurm_users: alice has expires '2027-02-30': give a day as",
        ),
        ({"slurm_accounts": [{"name": "a", "expires": "soon"}]}, "slurm_accounts: a has expires 'soon': give a day as"),
        ({"slurm_users": [{"name": "Alice Liddell", "uid": 2001}]}, "slurm_users has the name 'Alice Liddell'"),
        ({"slurm_users": [{"name": "alice"}]}, "slurm_users has alice with no UID: give a uid of 1000 or more"),
        ({"slurm_users": [{"name": "alice", "uid": 10}]}, "slurm_users has alice with UID 10: give a uid of 1000"),
        ({"slurm_users": [{"name": "alice", "uid": True}]}, "slurm_users has alice with UID True: give a uid"),
        ({"slurm_users": [{"name": "root", "state": "absent"}]}, "slurm_users has root, which the system itself needs"),
        ({"slurm_users": [{"name": "slurm", "uid": 2001}]}, "slurm_users has slurm, which the system itself needs"),
        ({"slurm_users": [{**ALICE, "uid": 2**32}]}, "slurm_users has alice with UID 4294967296: give a uid"),
        ({"slurm_users": [{**ALICE, "shell": "bash:x"}]}, "slurm_users: alice has shell 'bash:x': give it without"),
        ({"slurm_users": [{**ALICE, "comment": "a\nb"}]}, "slurm_users: alice has comment 'a\\nb': give it without"),
        ({"slurm_users": [{**ALICE, "gid": "staff"}]}, "slurm_users has alice with GID staff: give the number"),
        ({"slurm_users": [ALICE, {**BOB, "uid": 2001}]}, "slurm_users has UID 2001 twice (alice, bob)"),
        ({"slurm_users": [ALICE, {**BOB, "gid": 2001}]}, "slurm_users has GID 2001 twice (alice, bob)"),
        (
            {
                "slurm_users": [{**ALICE, "accounts": ["a"], "expires": "2027-06-30"}],
                "slurm_accounting_enforce": ["qos"],
            },
            "alice has expires, but slurm_accounting_enforce is qos, with which SLURM holds nobody to that: add",
        ),
        ({"slurm_accounts": [{"name": "a", "parent": "a"}]}, "slurm_accounts: a is below itself by its parent a"),
        (
            {"slurm_accounts": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
            "slurm_accounts: a is below itself by its parent b: name another account above it.",
        ),
        (
            {"slurm_accounts": [{"name": "root", "parent": "a"}]},
            "root is above all other accounts: take its parent away.",
        ),
        ({"slurm_accounts": [{"name": "phys,chem"}]}, "'phys,chem' can't be the name of an account"),
        ({"slurm_qos": [{"name": "a b"}]}, "'a b' can't be the name of a QOS"),
        ({"slurm_accounts": [{"name": "a", "description": "the 'best'"}]}, "slurm_accounts: a: description is"),
        ({"slurm_qos": [{"name": "q", "grp_tres": {"gpu": 1}}]}, "slurm_qos: q: grp_tres has 'gpu', which is no TRES"),
        ({"slurm_qos": [{"name": "q", "preempt": ["Q"]}]}, "slurm_qos: q preempts itself"),
        (
            {"slurm_accounts": [{"name": "a", "parent": "b"}, {"name": "b"}]},
            "the parent b of a comes after it: put it before.",
        ),
        (
            {"slurm_accounts": [{"name": "a", "parent": "b"}, {"name": "b", "state": "absent"}]},
            "the parent b of a has state absent: move a to another account.",
        ),
    ],
)
def test_mistake(options: dict[str, t.Any], sentence: str) -> None:
    first = slurm_mistakes(options)[0]
    assert sentence in first
    assert "\n" not in first
    assert first.endswith((".", "?"))
    assert not first.endswith("?.")


def test_without_a_database_nobody_has_accounts() -> None:
    for options in ({"slurm_qos": [{"name": "q"}]}, {"slurm_users": [{**ALICE, "accounts": ["a"]}]}):
        assert "but no host is in group slurm_db: put one there" in slurm_mistakes(options, accounting=False)[0]
    assert slurm_mistakes({"slurm_users": [ALICE]}, accounting=False) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"slurm_users": [{**ALICE, "accounts": ["cs102"]}]},
            "slurm_users: alice: There is no account 'cs102' (is cs101 meant?), neither in slurm_accounts nor",
        ),
        (
            {"slurm_users": [{**ALICE, "accounts": ["cs101"], "default_account": "root"}]},
            "slurm_users: alice has default_account root, which accounts lacks: add it.",
        ),
        (
            {"slurm_accounts": [{"name": "a", "parent": "teachin"}]},
            "slurm_accounts: a: There is no account 'teachin' (is teaching meant?), neither in slurm_accounts nor on",
        ),
        (
            {"slurm_accounts": [{"name": "a", "qos": ["clas"]}]},
            "slurm_accounts: a: There is no QOS 'clas' (is class meant?)",
        ),
        ({"slurm_users": [{**ALICE, "default_qos": "fast"}]}, "slurm_users: alice: There is no QOS 'fast'"),
        ({"slurm_qos": [{"name": "q", "preempt": ["fast"]}]}, "slurm_qos: q: There is no QOS 'fast'"),
        (
            {"slurm_partitions": [{"name": "main", "config": {"AllowQos": "normal,fast"}}]},
            "slurm_partitions: partition main: There is no QOS 'fast'",
        ),
        (
            {
                "slurm_accounts": [{"name": "cs101", "state": "absent"}],
                "slurm_users": [{**ALICE, "accounts": ["cs101"]}],
            },
            "There is no account 'cs101'",
        ),
        (
            {"slurm_users": [{"name": "carol", "state": "absent"}]},
            "slurm_users has state absent for carol, but the user still has jobs (12): wait until they have ended,",
        ),
        ({"slurm_accounts": [{"name": "cs101", "state": "absent"}]}, "but the account still has jobs (12, 13)"),
        ({"slurm_qos": [{"name": "class", "state": "absent"}]}, "but the QOS still has jobs (13)"),
        (
            {"slurm_accounts": [{"name": "idle", "state": "absent"}]},
            "slurm_accounts has state absent for idle, but user carol is still in it: move or remove them first.",
        ),
        (
            {"slurm_accounts": [{"name": "empty", "state": "absent"}]},
            "slurm_accounts has state absent for empty, but account below is still in it",
        ),
    ],
)
def test_what_the_cluster_has_counts(options: dict[str, t.Any], sentence: str) -> None:
    associations = [
        "root||", "root|root|", "teaching||root", "cs101||teaching", "cs101|carol|", "idle||root", "idle|carol|",
        "empty||root", "below||empty",
    ]  # fmt: skip
    jobs = ["12|carol|cs101|normal", "13|dave|cs101|class", "no line of a job"]
    there = {"associations": associations, "qos": ["normal", "class"], "jobs": jobs}
    assert sentence in slurm_mistakes(options, **there)[0]


def test_who_leaves_an_account_in_the_same_play_does_not_hold_it() -> None:
    options = {
        "slurm_accounts": [
            {"name": "a", "state": "absent"},
            {"name": "below", "parent": "other"},
            {"name": "c", "state": "absent"},
        ],
        "slurm_users": [
            {"name": "zoe", "state": "absent"},
            {"name": "carol", "uid": 2003, "accounts": ["below"]},
        ],
    }
    associations = ["other||root", "a||root", "a|zoe|", "a|carol|", "below||a", "c||a"]
    assert slurm_mistakes(options, associations=associations, qos=[]) == []
    options["slurm_users"][1]["append"] = True  # type: ignore[index]
    assert "but user carol is still in it" in slurm_mistakes(options, associations=associations, qos=[])[0]


def test_no_dictionary_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="not a dictionary of options"):
        slurm_mistakes([])  # type: ignore[arg-type]


def test_the_role_has_every_number_checked() -> None:
    spec = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    numbers = {
        name for name, option in spec["argument_specs"]["main"]["options"].items() if option["type"] in ("int", "float")
    }
    passed = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["_slurm_options"]
    assert numbers == set(_slurm_options.RANGES)
    assert numbers <= set(passed)
