# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What accounts and users have used, over sreport."""

from __future__ import annotations

import datetime as dt
import typing as t
from dataclasses import dataclass

from ._slurm_command import Host, SlurmError, output

_FIELDS = ("Cluster", "Account", "Login", "Proper", "TresName", "Used")


@dataclass(frozen=True)
class Usage:
    """What a user has used in an account; without user, what the account has with all below it."""

    cluster: str
    account: str
    user: str
    tres: str
    seconds: int

    @property
    def hours(self) -> float:
        return round(self.seconds / 3600, 2)


def moment(option: str, given: str) -> dt.datetime:
    """A date, or a date and time, in the time zone of the host."""
    try:
        found = dt.datetime.fromisoformat(given)
    except ValueError as error:
        raise SlurmError(
            f"{option} is {given!r}: it has to be a date like 2026-11-01 or 2026-11-01T08:00:00"
        ) from error
    if found.tzinfo is not None:
        raise SlurmError(f"{option} is {given!r}: times are those of the host, and have no zone")
    return found


def parse(printed: str) -> list[Usage]:
    """Rows of sreport, in its order: an account, and then its users."""
    found = []
    for line in printed.splitlines():
        row = line.split("|")
        if len(row) != len(_FIELDS):
            if line.strip():
                raise SlurmError(f"sreport prints something else than {', '.join(_FIELDS)}: {line[:200]!r}")
            continue
        cluster, account, user, _proper, tres, used = row
        found.append(Usage(cluster, account, user, tres, int(used)))
    return found


def report(host: Host, start: str, end: str | None, tres: str, cluster: str | None, now: dt.datetime) -> list[Usage]:
    """What was used from one moment to another one. Raises SlurmError where that can't be told."""
    first = moment("start", start)
    last = moment("end", end) if end is not None else now.replace(microsecond=0)
    if last <= first:
        raise SlurmError(f"end ({last.isoformat()}) is not after start ({first.isoformat()})")
    known = output(host, ["sacctmgr", "-n", "-P", "show", "tres", "format=Type,Name"]).splitlines()
    names = ["/".join(filter(None, line.split("|"))) for line in known]
    if tres.lower() not in names:
        raise SlurmError(
            f"{tres} is not accounted on this cluster: add it to AccountingStorageTRES in slurm.conf and restart "
            f"slurmctld (accounted is {', '.join(names)})"
        )
    command = ["sreport", "-n", "-P", "-t", "Seconds", "-T", tres.lower()]
    command += ["-M", cluster] if cluster is not None else []
    command += ["cluster", "AccountUtilizationByUser", f"start={first.isoformat()}", f"end={last.isoformat()}"]
    return parse(output(host, [*command, f"format={','.join(_FIELDS)}"]))


def rows(usage: t.Iterable[Usage], *, users: bool) -> list[dict[str, t.Any]]:
    """The usage of users, or that of accounts, those with the most first."""
    return [
        {
            "cluster": one.cluster,
            "account": one.account,
            **({"user": one.user} if users else {}),
            "tres": one.tres,
            "seconds": one.seconds,
            "hours": one.hours,
        }
        for one in sorted(usage, key=lambda one: (-one.seconds, one.account, one.user))
        if bool(one.user) == users
    ]
