# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_usage_table
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: Lay out what accounts and users of SLURM have used as a table
description:
  - Returns the lines of a table of what M(cudahub.gpu.slurm_usage) returns. Each account is followed by its users,
    those with the most first. The account C(root), which is all of the cluster, comes first.
  - Who has used nothing is left out, and where nobody has used anything, there are no lines.
options:
  _input:
    description: What M(cudahub.gpu.slurm_usage) returned.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show who used how much
  ansible.builtin.debug:
    msg: "{{ usage | cudahub.gpu.slurm_usage_table }}"
  vars:
    usage:
      accounts:
        - {cluster: cluster, account: root, tres: gres/gpu, seconds: 27000, hours: 7.5}
      users:
        - {cluster: cluster, account: root, user: alice, tres: gres/gpu, seconds: 27000, hours: 7.5}
  # => ["ACCOUNT  USER   GPU HOURS  SHARE", "root                 7.50   100%", "         alice       7.50   100%"]
"""

RETURN = r"""
_value:
  description: The lines of the table.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError

Row = t.Mapping[str, t.Any]


def slurm_usage_table(usage: Row) -> list[str]:
    """The lines of the table. Raises AnsibleFilterError for anything but the result of the module."""
    try:
        return _lines(usage["accounts"], usage["users"])
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(
            f"slurm_usage_table: the input is not what module slurm_usage returns ({type(error).__name__}: {error})"
        ) from error


def _lines(accounts: t.Sequence[Row], users: t.Sequence[Row]) -> list[str]:
    total = max((one["seconds"] for one in accounts), default=0)
    if not total:
        return []
    unit = accounts[0]["tres"].removeprefix("gres/").upper()
    accounts, users = ([row for row in rows if row["seconds"]] for rows in (accounts, users))
    table = [("ACCOUNT", "USER", f"{unit} HOURS", "SHARE")]
    for account in sorted(accounts, key=lambda one: (one["account"] != "root", -one["seconds"], one["account"])):
        table.append(_cells(account, account["account"], "", total))
        own = [one for one in users if one["account"] == account["account"]]
        own.sort(key=lambda one: (-one["seconds"], one["user"]))
        table += [_cells(user, "", user["user"], total) for user in own]
    names, logins, hours, shares = (max(map(len, column)) for column in zip(*table, strict=True))
    return [
        f"{name:<{names}}  {login:<{logins}}  {used:>{hours}}  {share:>{shares}}" for name, login, used, share in table
    ]


def _cells(row: Row, account: str, user: str, total: int) -> tuple[str, str, str, str]:
    return account, user, f"{row['hours']:.2f}", f"{row['seconds'] / total:.0%}"


class FilterModule:
    """The filter slurm_usage_table."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_usage_table": slurm_usage_table}
