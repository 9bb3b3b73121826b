# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Accounts, users and QOS become what was asked for, once; and what can't be is refused before anything is changed."""

from __future__ import annotations

import datetime as dt
import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _sacctmgr
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import Result, SlurmError
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_cases import REFUSED, Slurm

TODAY = dt.date(2026, 11, 28)


@pytest.fixture
def slurm() -> Slurm:
    """A cluster with some accounts and users."""
    made = Slurm()
    qos(made, "class")
    account(made, "teaching", fairshare="50")
    account(made, "cs101", parent="teaching", qos=["normal", "class"], grp_tres={"gres/gpu": 4})
    account(made, "cs205", parent="teaching")
    user(made, "alice", accounts=["cs101", "cs205"])
    made.changed.clear()
    return made


def qos(slurm: Slurm, name: str, *, check: bool = False, **params: t.Any) -> _sacctmgr.Outcome:
    return _sacctmgr.qos_present(_sacctmgr.Database(slurm, check=check), name, params)


def account(slurm: Slurm, name: str, *, check: bool = False, **params: t.Any) -> _sacctmgr.Outcome:
    return _sacctmgr.account_present(_sacctmgr.Database(slurm, check=check), name, params, TODAY)


def user(slurm: Slurm, name: str, *, check: bool = False, **params: t.Any) -> _sacctmgr.Outcome:
    return _sacctmgr.user_present(_sacctmgr.Database(slurm, check=check), name, params, TODAY)


def no_qos(slurm: Slurm, name: str) -> _sacctmgr.Outcome:
    return _sacctmgr.qos_absent(_sacctmgr.Database(slurm), name)


def no_account(slurm: Slurm, name: str) -> _sacctmgr.Outcome:
    return _sacctmgr.account_absent(_sacctmgr.Database(slurm), name, {})


def no_user(slurm: Slurm, name: str) -> _sacctmgr.Outcome:
    return _sacctmgr.user_absent(_sacctmgr.Database(slurm), name, {})


Make = t.Callable[..., _sacctmgr.Outcome]


@pytest.mark.parametrize(
    ("make", "name", "params", "told"),
    [
        (qos, "Gold", {"priority": 5, "preempt": ["class"]}, ["add qos name=gold Priority=5 Preempt=class"]),
        (qos, "class", {"max_wall": "8:00:00"}, ["modify qos where name=class set MaxWall=480"]),
        (
            account,
            "CS300",
            {"parent": "teaching", "description": "New", "max_jobs": 2},
            ["add account name=cs300 cluster=cluster parent=teaching Description=new MaxJobs=2"],
        ),
        (
            account,
            "cs101",
            {"parent": "root", "fairshare": "parent", "organization": "Physics"},
            [
                "modify account where name=cs101 set Organization=physics",
                "modify account where name=cs101 cluster=cluster set Parent=root",
                "modify account where name=cs101 cluster=cluster set Fairshare=parent",
            ],
        ),
        (
            user,
            "bob",
            {"accounts": ["cs101", "cs205"], "default_account": "cs205", "admin_level": "operator", "max_jobs": 1},
            [
                "add user name=bob account=cs205 cluster=cluster DefaultAccount=cs205 MaxJobs=1",
                "add user name=bob account=cs101 cluster=cluster MaxJobs=1",
                "modify user where name=bob set AdminLevel=Operator",
            ],
        ),
        (
            user,
            "alice",
            {"accounts": ["cs205", "teaching"]},
            [
                "add user name=alice account=teaching cluster=cluster",
                "modify user where name=alice cluster=cluster set DefaultAccount=cs205",
                "delete user where name=alice account=cs101 cluster=cluster",
            ],
        ),
        (
            user,
            "alice",
            {"accounts": ["teaching"], "append": True, "default_account": "teaching"},
            [
                "add user name=alice account=teaching cluster=cluster",
                "modify user where name=alice cluster=cluster set DefaultAccount=teaching",
            ],
        ),
        (
            user,
            "alice",
            {"max_jobs": 3},
            [
                'modify user where name=alice account=cs101 cluster=cluster partition="" set MaxJobs=3',
                'modify user where name=alice account=cs205 cluster=cluster partition="" set MaxJobs=3',
            ],
        ),
    ],
)
def test_it_becomes_so_once(slurm: Slurm, make: Make, name: str, params: dict[str, t.Any], told: list[str]) -> None:
    told = [f"sacctmgr -i {command}" for command in told]
    planned = make(slurm, name, check=True, **params)
    assert ([" ".join(one) for one in planned.commands], slurm.changed) == (told, [])
    done = make(slurm, name, **params)
    assert (done, slurm.changed) == (planned, told)
    assert done.before != done.after
    again = make(slurm, name, **params)
    assert (again.changed, again.before, again.after, slurm.changed) == (False, {}, {}, told)


@pytest.mark.parametrize(
    ("make", "name", "params", "said"),
    [
        (qos, "a,b", {}, "'a,b' can't be the name of a QOS"),
        (qos, "gold", {"preempt": ["nope"]}, "There is no QOS 'nope' (there is: class, normal)"),
        (qos, "gold", {"max_tres_per_user": {"gres/gpu:typo": 1}}, "There is no TRES 'gres/gpu:typo'"),
        (account, "x", {"parent": "teachign"}, "no account 'teachign' (is teaching meant?), and the parent of x has"),
        (account, "teaching", {"parent": "cs101"}, "cs101 can't be the parent of teaching, it is below it"),
        (account, "cs101", {"parent": "cs101"}, "cs101 can't be the parent of cs101"),
        (account, "root", {"parent": "cs101"}, "The account root is the top of the tree"),
        (account, "x", {"cluster": "clutser"}, "There is no cluster 'clutser' (is cluster meant?)"),
        (account, "x", {"qos": ["clas"]}, "There is no QOS 'clas' (is class meant?)"),
        (
            account,
            "cs205",
            {"default_qos": "class"},
            "class can't be the default QOS of account cs205, which may use normal",
        ),
        (account, "x", {"expires": "tomorrow"}, "expires is 'tomorrow': it has to be a date"),
        (user, "bob", {}, "The user bob is in no account of cluster: name at least one in accounts"),
        (user, "alice", {"accounts": []}, "accounts of alice is empty"),
        (user, "bob", {"accounts": ["cs10"]}, "There is no account 'cs10' (is cs101 or cs205 meant?)"),
        (
            user,
            "alice",
            {"accounts": ["cs101"], "default_account": "cs205"},
            "cs205 can't be the default account of alice",
        ),
        (user, "alice", {"default_qos": "class"}, "class can't be the default QOS of user alice in account cs205"),
    ],
)
def test_what_can_not_be_is_refused(slurm: Slurm, make: Make, name: str, params: dict[str, t.Any], said: str) -> None:
    with pytest.raises(SlurmError) as caught:
        make(slurm, name, **params)
    assert said in str(caught.value)
    assert (slurm.changed, caught.value.changed) == ([], False)


@pytest.mark.parametrize("account_qos", [["class"], ["normal", "class"]])
def test_default_qos_may_come_from_the_account_above(slurm: Slurm, account_qos: list[str]) -> None:
    account(slurm, "teaching", qos=account_qos)
    assert account(slurm, "cs205", default_qos="class").changed
    assert user(slurm, "bob", accounts=["cs205"], default_qos="class").changed


@pytest.mark.parametrize(
    ("remove", "name", "said"),
    [
        (no_account, "cs101", "it still has users, who have to be removed first: alice"),
        (no_account, "teaching", "there are accounts below it: cs101, cs205"),
        (no_account, "root", "The account root can't be deleted"),
        (no_user, "root", "The user root can't be deleted"),
        (no_user, "alice", "The user alice can't be deleted while jobs wait or run: 7 (alice)"),
        (no_qos, "class", "The QOS class can't be deleted: account cs101 uses it"),
        (no_qos, "normal", "The QOS normal can't be deleted: account root, account cs101 use it"),
    ],
)
def test_what_is_used_is_not_deleted(
    slurm: Slurm, remove: t.Callable[[Slurm, str], _sacctmgr.Outcome], name: str, said: str
) -> None:
    slurm.jobs = ["7|alice|cs101", "8|carol|cs300"]
    with pytest.raises(SlurmError) as caught:
        remove(slurm, name)
    assert said in str(caught.value)
    assert slurm.changed == []


def test_account_is_not_deleted_while_jobs_of_former_users_run(slurm: Slurm) -> None:
    no_user(slurm, "alice")
    slurm.jobs = ["7|alice|cs101"]
    with pytest.raises(SlurmError, match=r"The account cs101 can't be deleted, jobs still use it: 7 \(alice\)"):
        no_account(slurm, "cs101")
    assert no_account(slurm, "cs205").changed


def test_user_is_not_taken_out_of_an_account_with_jobs(slurm: Slurm) -> None:
    slurm.jobs = ["7|alice|cs101"]
    with pytest.raises(SlurmError, match="alice can't be taken out of account cs101, jobs use it"):
        user(slurm, "alice", accounts=["cs205"])
    assert slurm.changed == []
    assert user(slurm, "alice", accounts=["cs101"]).changed


def test_default_account_is_left_last(slurm: Slurm) -> None:
    """SLURM 22.05 refuses to delete it while there are others."""
    no_user(slurm, "alice")
    assert slurm.changed == [
        "sacctmgr -i delete user where name=alice account=cs205 cluster=cluster",
        "sacctmgr -i delete user where name=alice cluster=cluster",
    ]
    assert not no_user(slurm, "alice").changed


@pytest.mark.parametrize(
    ("day", "now", "told"),
    [
        ("2026-11-29", {}, None),
        ("2026-11-28", {}, "MaxJobs=0 MaxSubmitJobs=0"),
        ("2026-01-01", {"MaxJobs": "4"}, "MaxJobs=0 MaxSubmitJobs=0"),
        ("2026-01-01", {"MaxJobs": "0", "MaxSubmitJobs": "0"}, None),
        ("2026-11-29", {"MaxJobs": "0", "MaxSubmitJobs": "0"}, "MaxJobs=-1 MaxSubmitJobs=-1"),
        ("2026-11-29", {"MaxJobs": "4"}, None),
    ],
)
def test_expiry_stops_jobs_and_a_later_day_lets_them(
    slurm: Slurm, day: str, now: dict[str, str], told: str | None
) -> None:
    slurm.associations["cs101", "alice", ""].update(now)
    user(slurm, "alice", accounts=["cs101"], append=True, expires=day)
    where = 'name=alice account=cs101 cluster=cluster partition=""'
    assert slurm.changed == ([f"sacctmgr -i modify user where {where} set {told}"] if told else [])
    slurm.changed.clear()
    assert not user(slurm, "alice", accounts=["cs101"], append=True, expires=day).changed


def test_limit_of_its_own_comes_back_after_an_expiry(slurm: Slurm) -> None:
    user(slurm, "alice", expires="2026-01-01", max_jobs=4)
    assert slurm.associations["cs101", "alice", ""] == {"MaxJobs": "0", "MaxSubmitJobs": "0"}
    user(slurm, "alice", expires="2027-01-01", max_jobs=4)
    assert slurm.associations["cs101", "alice", ""] == {"MaxJobs": "4"}


def test_expired_account_stops_all_below_it(slurm: Slurm) -> None:
    account(slurm, "teaching", expires="2026-01-01")
    assert slurm.changed == [
        "sacctmgr -i modify account where name=teaching cluster=cluster set GrpJobs=0 GrpSubmitJobs=0"
    ]


def test_association_with_a_partition_is_left_alone(slurm: Slurm) -> None:
    slurm.associations["cs101", "alice", "main"] = {"MaxJobs": "9"}
    user(slurm, "alice", max_jobs=3)
    assert slurm.associations["cs101", "alice", "main"] == {"MaxJobs": "9"}
    assert slurm.associations["cs101", "alice", ""]["MaxJobs"] == "3"


@pytest.mark.parametrize(
    ("clusters", "said"), [([], "there is none"), (["a", "b"], "there are a, b: name one in cluster")]
)
def test_cluster_has_to_be_clear(slurm: Slurm, clusters: list[str], said: str) -> None:
    slurm.clusters = clusters
    with pytest.raises(SlurmError) as caught:
        account(slurm, "x")
    assert said in str(caught.value)


def test_what_sacctmgr_does_not_do_is_a_failure(slurm: Slurm) -> None:
    slurm.deaf = {"account"}
    with pytest.raises(SlurmError, match="grp_jobs did not become what was asked for") as caught:
        account(slurm, "cs101", grp_jobs=3)
    assert caught.value.changed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "There is no sacctmgr on this host: install SLURM's client programs"),
        (Result(1, "", REFUSED), "slurmdbd on db:6819 does not answer"),
        (Result(1, " Error with request: Access/permission denied", ""), "sacctmgr is not permitted to do that"),
        (Result(1, "", "sacctmgr: fatal: Unable to process configuration file"), "finds no slurm.conf on this host"),
        (Result(0, "unexpected", ""), "sacctmgr show tres prints something else than Type, Name"),
    ],
)
def test_host_without_database_is_said(slurm: Slurm, answer: Result | None, said: str) -> None:
    slurm.answers["sacctmgr"] = answer
    with pytest.raises(SlurmError) as caught:
        qos(slurm, "gold", max_tres_per_user={"cpu": 1})
    assert said in str(caught.value)
