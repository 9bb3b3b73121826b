# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hours of GPUs are those that sreport prints, and what it can't tell is said."""

from __future__ import annotations

import datetime as dt
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_usage as usage
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import Result, SlurmError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
PRINTED = (
    "cluster|root|||gres/gpu|16200\n"
    "cluster|teaching|||gres/gpu|16200\n"
    "cluster|cs101|||gres/gpu|16200\n"
    "cluster|cs101|bob|Bob|gres/gpu|7200\n"
    "cluster|cs101|alice|Alice|gres/gpu|9000\n"
)
NOW = dt.datetime(2026, 11, 28, 6, 30, 1, 5)  # noqa: DTZ001


class Host:
    def __init__(self, printed: str = PRINTED) -> None:
        self.printed = printed
        self.ran: list[str] = []

    def run(self, command: t.Sequence[str]) -> Result:
        if command[0] == "sacctmgr":
            return Result(0, "cpu|\ngres|gpu\n", "")
        self.ran.append(" ".join(command))
        return Result(0, self.printed, "")


def test_hours_of_users_and_accounts() -> None:
    host = Host()
    found = usage.report(host, "2026-11-01", "2026-12-01", "gres/gpu", None, NOW)
    assert usage.rows(found, users=True) == [
        {"cluster": "cluster", "account": "cs101", "user": "alice", "tres": "gres/gpu", "seconds": 9000, "hours": 2.5},
        {"cluster": "cluster", "account": "cs101", "user": "bob", "tres": "gres/gpu", "seconds": 7200, "hours": 2.0},
    ]
    assert [(one["account"], one["hours"]) for one in usage.rows(found, users=False)] == [
        ("cs101", 4.5),
        ("root", 4.5),
        ("teaching", 4.5),
    ]
    assert host.ran == [
        (
            "sreport -n -P -t Seconds -T gres/gpu cluster AccountUtilizationByUser start=2026-11-01T00:00:00 "
            "end=2026-12-01T00:00:00 format=Cluster,Account,Login,Proper,TresName,Used"
        )
    ]


def test_end_is_now_and_a_cluster_can_be_named() -> None:
    host = Host("")
    assert usage.report(host, "2026-11-01T08:00:00", None, "cpu", "other", NOW) == []
    assert "-T cpu -M other cluster" in host.ran[0]
    assert "start=2026-11-01T08:00:00 end=2026-11-28T06:30:01" in host.ran[0]


@pytest.mark.parametrize(
    ("start", "end", "tres", "said"),
    [
        ("yesterday", None, "gres/gpu", "start is 'yesterday': it has to be a date"),
        ("2026-11-01", "2026-11-31", "gres/gpu", "end is '2026-11-31'"),
        ("2026-11-01T00:00:00+01:00", None, "gres/gpu", "times are those of the host"),
        ("2026-11-02", "2026-11-02", "gres/gpu", "end (2026-11-02T00:00:00) is not after start"),
        (
            "2026-11-01",
            None,
            "gres/shard",
            "gres/shard is not accounted on this cluster: add it to AccountingStorageTRES",
        ),
    ],
)
def test_what_can_not_be_told(start: str, end: str | None, tres: str, said: str) -> None:
    host = Host()
    with pytest.raises(SlurmError) as caught:
        usage.report(host, start, end, tres, None, NOW)
    assert said in str(caught.value)
    assert host.ran == []


def test_what_sreport_does_not_print_is_said() -> None:
    with pytest.raises(SlurmError, match="sreport prints something else"):
        usage.report(Host("cluster|root\n"), "2026-11-01", None, "gres/gpu", None, NOW)


@pytest.mark.parametrize(("version", "carol", "total"), [("22.05", 184, 738), ("24.11", 186, 740)])
def test_real_report_is_read(version: str, carol: int, total: int) -> None:
    """One job of 34 and one of 400 s on a GPU, one of 60 s on two, and one that ran into the next hour."""
    found = usage.parse((FIXTURES / f"sreport-{version}-usage.txt").read_text(encoding="utf-8"))
    assert {(one["account"], one["user"]): one["seconds"] for one in usage.rows(found, users=True)} == {
        ("cs101", "alice"): 434,
        ("cs101", "carol"): carol,
        ("cs206", "carol"): 120,
    }
    accounts = {one["account"]: one["seconds"] for one in usage.rows(found, users=False)}
    assert accounts == {"root": total, "teaching": total, "cs101": 434 + carol, "cs206": 120}
