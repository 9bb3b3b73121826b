# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A table of what accounts and users have used."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_usage_table as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_usage_table import slurm_usage_table


def row(account: str, hours: float, tres: str = "gres/gpu", **more: str) -> dict[str, t.Any]:
    return {
        "cluster": "cluster",
        "account": account,
        "tres": tres,
        "seconds": round(hours * 3600),
        "hours": hours,
        **more,
    }


USAGE = {
    "accounts": [row("cs101", 1234.5), row("root", 1234.5), row("teaching", 1234.5), row("idle", 0.0)],
    "users": [
        row("cs101", 34.5, user="bob"),
        row("cs101", 1200.0, user="alice-the-third"),
        row("root", 0.0, user="root"),
    ],
    "changed": False,
}


def test_each_account_is_followed_by_its_users() -> None:
    assert slurm_usage_table(USAGE) == [
        "ACCOUNT   USER             GPU HOURS  SHARE",
        "root                         1234.50   100%",
        "cs101                        1234.50   100%",
        "          alice-the-third    1200.00    97%",
        "          bob                  34.50     3%",
        "teaching                     1234.50   100%",
    ]


def test_what_is_counted_is_in_the_header() -> None:
    assert slurm_usage_table({"accounts": [row("root", 1.0, "cpu")], "users": []}) == [
        "ACCOUNT  USER  CPU HOURS  SHARE",
        "root                1.00   100%",
    ]


@pytest.mark.parametrize("accounts", [[], [row("root", 0.0)]])
def test_nothing_used_is_no_table(accounts: list[dict[str, t.Any]]) -> None:
    assert slurm_usage_table({"accounts": accounts, "users": []}) == []


@pytest.mark.parametrize("usage", [None, [], {}, {"accounts": [{}], "users": []}, {"accounts": 1, "users": []}])
def test_refuses(usage: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="the input is not what module slurm_usage returns"):
        slurm_usage_table(usage)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_usage_table": slurm_usage_table}
