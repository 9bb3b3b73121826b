# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits and other settings of SLURM's accounting: as options, as sacctmgr prints them, and as it takes them."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ._slurm_command import SlurmError, unknown

Value = t.Union[int, float, str, "tuple[str, ...]", "dict[str, int]", None]
"""A setting in a form that can be compared; None is a setting that is not set."""

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_AMOUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)")
_UNSET: dict[str, Value] = {"share": 1, "number": 0, "seconds": 0, "factor": 1.0, "text": ""}
_TEXT = re.compile(r"[^|\"'`\x00-\x1f\x7f]*")


@dataclass(frozen=True)
class Setting:
    """One setting: the option's name, the name that sacctmgr has for it, and what kind of value it takes."""

    option: str
    field: str
    kind: t.Literal[
        "tres", "count", "minutes", "seconds", "number", "factor", "share", "names", "flags", "name", "text"
    ]


COMMON = (
    Setting("grp_jobs", "GrpJobs", "count"),
    Setting("grp_submit_jobs", "GrpSubmitJobs", "count"),
    Setting("grp_tres", "GrpTRES", "tres"),
    Setting("grp_tres_mins", "GrpTRESMins", "tres"),
    Setting("grp_tres_run_mins", "GrpTRESRunMins", "tres"),
    Setting("grp_wall", "GrpWall", "minutes"),
    Setting("max_tres_per_job", "MaxTRES", "tres"),
    Setting("max_tres_per_node", "MaxTRESPerNode", "tres"),
    Setting("max_tres_mins_per_job", "MaxTRESMins", "tres"),
    Setting("max_wall", "MaxWall", "minutes"),
)
"""Limits that associations and QOS both have."""

ASSOCIATION = (
    Setting("fairshare", "Fairshare", "share"),
    Setting("qos", "QOS", "names"),
    Setting("default_qos", "DefaultQOS", "name"),
    *COMMON,
    Setting("max_jobs", "MaxJobs", "count"),
    Setting("max_submit_jobs", "MaxSubmitJobs", "count"),
    Setting("priority", "Priority", "count"),
)

QOS = (
    Setting("description", "Description", "text"),
    Setting("priority", "Priority", "number"),
    Setting("preempt", "Preempt", "names"),
    Setting("preempt_mode", "PreemptMode", "name"),
    Setting("flags", "Flags", "flags"),
    Setting("grace_time", "GraceTime", "seconds"),
    Setting("usage_factor", "UsageFactor", "factor"),
    *COMMON,
    Setting("max_jobs_per_user", "MaxJobsPU", "count"),
    Setting("max_submit_jobs_per_user", "MaxSubmitJobsPU", "count"),
    Setting("max_tres_per_user", "MaxTRESPU", "tres"),
    Setting("max_tres_per_account", "MaxTRESPA", "tres"),
    Setting("min_tres_per_job", "MinTRES", "tres"),
)


def argument_spec(table: t.Iterable[Setting]) -> dict[str, dict[str, t.Any]]:
    """The options of a module for these settings."""
    types = {"tres": "dict", "count": "int", "seconds": "int", "number": "int", "factor": "float"}
    return {
        one.option: {"type": "list", "elements": "str"}
        if one.kind in ("names", "flags")
        else {"type": types.get(one.kind, "str")}
        for one in table
    }


class Change(t.NamedTuple):
    """A setting that is to be another one."""

    setting: Setting
    before: Value
    after: Value


def settings(params: t.Mapping[str, t.Any], table: t.Iterable[Setting]) -> dict[Setting, Value]:
    """The settings that are given as options, in a form that can be compared."""
    return {
        setting: _wanted(setting, params[setting.option]) for setting in table if params.get(setting.option) is not None
    }


def _wanted(setting: Setting, given: t.Any) -> Value:
    option, kind = setting.option, setting.kind
    if kind == "tres":
        return {str(name).lower(): _amount(option, str(name), value) for name, value in given.items()}
    if kind == "minutes":
        return _clear(minutes(option, given))
    if kind == "share":
        if str(given).lower() == "parent":
            return "parent"
        if not re.fullmatch(r"-?\d+", str(given)):
            raise SlurmError(f"{option} is {given!r}: it has to be a whole number, or parent")
        return _one_by_default(int(given))
    if kind in ("names", "flags"):
        return tuple(sorted({str(name).lower() if kind == "names" else str(name) for name in given}, key=str.lower))
    if kind == "name":
        return str(given).lower() or None
    if kind == "text":
        return text(option, given)
    if kind == "factor":
        if given < 0:
            raise SlurmError(f"{option} is {given}: it can't be less than 0")
        return float(given)
    if given < (-1 if kind == "count" else 0):
        raise SlurmError(f"{option} is {given}: it can't be less than 0" + (", except -1" if kind == "count" else ""))
    return _clear(int(given))


def _amount(option: str, name: str, value: t.Any) -> int:
    if value is None:
        return -1
    if isinstance(value, bool) or not re.fullmatch(r"-1|\d+", str(value)):
        raise SlurmError(
            f"{option} has {value!r} for {name}: it has to be a whole number (memory in MiB), or -1 for no limit"
        )
    return int(value)


def _clear(number: int) -> int | None:
    return None if number == -1 else number


def _one_by_default(number: int) -> int:
    if number < -1:
        raise SlurmError(f"fairshare is {number}: it can't be less than 0, except -1")
    return 1 if number == -1 else number


def text(option: str, given: str) -> str:
    """A text as the database keeps it: in lower case. Raises SlurmError where it can't be kept."""
    if not given.strip() or not _TEXT.fullmatch(given):
        raise SlurmError(f"{option} is {given!r}: SLURM keeps no empty text, and none with quotes, | or line breaks")
    return given.strip().lower()


def minutes(option: str, given: t.Any) -> int:
    """Minutes of a time as SLURM writes it (``90``, ``1:30:00``, ``2-12:00:00``), rounded up; -1 is no limit."""
    value = str(given).strip()
    if value == "-1":
        return -1
    match = _TIME.fullmatch(value)
    if match is None:
        raise SlurmError(
            f"{option} is {given!r}: it has to be minutes, HOURS:MINUTES:SECONDS, DAYS-HOURS or "
            "DAYS-HOURS:MINUTES:SECONDS, or -1 for no limit"
        )
    return -(-_seconds(match) // 60)


def _seconds(match: re.Match[str]) -> int:
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"] is not None:
        hours, mins, secs = [*parts, 0, 0][:3]
        return ((int(match["days"]) * 24 + hours) * 60 + mins) * 60 + secs
    if len(parts) == 3:
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    return parts[0] * 60 + (parts[1] if len(parts) == 2 else 0)


def parse(setting: Setting, printed: str) -> Value:
    """What sacctmgr printed for a setting."""
    kind = setting.kind
    if kind == "tres":
        return _tres(printed)
    if kind in ("names", "flags"):
        return tuple(sorted(filter(None, printed.split(",")), key=str.lower))
    if printed == "":
        return _UNSET.get(kind)
    if kind in ("minutes", "seconds"):
        match = _TIME.fullmatch(printed)
        if match is None:
            return None
        return _seconds(match) if kind == "seconds" else _seconds(match) // 60
    if kind == "factor":
        return float(printed)
    if kind in ("count", "number") or (kind == "share" and printed != "parent"):
        return int(printed)
    return printed.lower()


def _tres(printed: str) -> dict[str, int]:
    found = {}
    for entry in filter(None, printed.split(",")):
        name, value = entry.rsplit("=", 1)
        match = _AMOUNT.fullmatch(value)
        if match is not None:
            number = float(match["number"]) * _UNITS[match["unit"]]
            found[name] = round(number / _UNITS["M"]) if match["unit"] and name in ("mem", "vmem") else round(number)
    return found


def changes(current: t.Mapping[Setting, Value], wanted: t.Mapping[Setting, Value]) -> list[Change]:
    """The settings that are not as they should be. Of TRES only those that are named count."""
    found = []
    for setting, value in wanted.items():
        now = current.get(setting, parse(setting, ""))
        if setting.kind == "tres":
            before = t.cast("dict[str, int]", now)
            merged = {**before, **t.cast("dict[str, int]", value)}
            after: Value = {name: amount for name, amount in merged.items() if amount != -1}
        else:
            before, after = now, value  # type: ignore[assignment]
        same = before == after
        if setting.kind == "flags":
            same = [one.lower() for one in t.cast("tuple[str, ...]", before)] == [
                one.lower() for one in t.cast("tuple[str, ...]", after)
            ]
        if not same:
            found.append(Change(setting, before, after))
    return found


def rendered(change: Change) -> str:
    """A change as sacctmgr takes it."""
    return f"{change.setting.field}={_rendered(change)}"


def _rendered(change: Change) -> str:
    kind, before, after = change.setting.kind, change.before, change.after
    if isinstance(after, dict):
        was = before if isinstance(before, dict) else {}
        named = {name: amount for name, amount in after.items() if was.get(name) != amount}
        named.update({name: -1 for name in was if name not in after})
        return ",".join(f"{name}={amount}" for name, amount in sorted(named.items()))
    if isinstance(after, tuple):
        return ",".join(after) if after or kind == "names" else "-1"
    return "-1" if after is None else str(after)


def shown(value: Value) -> t.Any:
    """A value as diffs show it."""
    return list(value) if isinstance(value, tuple) else value


def check_tres(wanted: t.Mapping[Setting, Value], known: t.Collection[str]) -> None:
    """Raise SlurmError where a TRES is named that the cluster doesn't account."""
    for setting, value in wanted.items():
        for name in value if isinstance(value, dict) else ():
            if name not in known:
                raise SlurmError(
                    f"{setting.option}: {unknown('TRES', name, known)}, and what is to be limited has to be in "
                    "AccountingStorageTRES of slurm.conf"
                )
