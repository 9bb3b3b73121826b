# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can't be right in the options of role slurm, in sentences, before anything is asked of a host."""

from __future__ import annotations

import datetime as dt
import re
import typing as t
from dataclasses import dataclass

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.cudahub.gpu.plugins.module_utils import _sacctmgr, _slurm_conf, _slurm_limits
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import SlurmError as ValueRefused
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import unknown
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_parameters import (
    CGROUP,
    NODE,
    PARTITION,
    SETTINGS,
    SLURMDBD,
    SlurmError,
    Table,
    near,
)

Options = t.Mapping[str, t.Any]
Entry = t.Mapping[str, t.Any]

Row = t.TypeVar("Row", "Association", "Job")

LARGEST_PORT = 65535
FIRST_UID = 1000
BUILT_IN_QOS = "normal"

PORT = (1, LARGEST_PORT)
RANGES: dict[str, tuple[float, float | None]] = {
    "slurm_clock_tolerance": (0, None),
    "slurm_db_buffer_pool_mb": (0, None),
    "slurm_db_daemon_port": PORT,
    "slurm_db_port": PORT,
    "slurm_drain_timeout": (0, None),
    "slurm_gpu_mps": (0, None),
    "slurm_gpu_shards": (0, None),
    "slurm_health_interval": (1, LARGEST_PORT),
    "slurm_memory_reserve_mb": (0, None),
    "slurm_memory_reserve_percent": (0, 99.9),
    "slurm_node_weight": (0, None),
    "slurm_state_min_free_mb": (0, None),
    "slurm_verify_timeout": (1, None),
}
"""Smallest and largest value, or None for no largest one. SLURM keeps HealthCheckInterval in 16 bits."""

PORTS = {"slurmctldport", "slurmdport", "accountingstorageport", "dbdport", "storageport"}
OWN_DATABASE_SETTINGS = (
    "AuthType", "DbdHost", "DbdPort", "SlurmUser", "PidFile", "LogFile", "StorageType", "StorageHost", "StoragePort",
    "StorageLoc", "StorageUser", "StoragePass",
)  # fmt: skip
"""Settings of slurmdbd.conf that the role writes from its own options."""

SYSTEM_USERS = ("root", "slurm", "munge", "mysql", "nobody")
"""Names that no entry of slurm_users may have; role slurm looks on each host for others with a UID below FIRST_UID."""

OWN_DIRECTORIES = ("/etc/slurm", "/var/lib/slurm/slurmd", "/var/lib/cudahub/slurm", "/var/log/slurm")
"""Directories that the role uses for something else than the state of slurmctld."""

DEFAULT_PORTS = {"SlurmctldPort": "6817", "SlurmdPort": "6818"}
LARGEST_UID = 2**32 - 2

SYSTEM_OPTIONS = ("uid", "gid", "groups", "comment", "shell", "quota")
"""What an entry of slurm_users holds for the operating system."""

_CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_DIRECTORY = re.compile(r"(/(?![.]{1,2}(/|\Z))[^/\s]+){2,}")
_PORT_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")
_TRES = re.compile(r"cpu|mem|energy|node|billing|vmem|pages|(?:gres|fs|license|bb|ic)/\S+", re.IGNORECASE)
_OF_PASSWD = re.compile(r"[^:\x00-\x1f\x7f]*")


class Association(t.NamedTuple):
    """A user in an account, or (without user) an account below its parent."""

    account: str
    user: str
    parent: str


class Job(t.NamedTuple):
    """A job that waits or runs."""

    number: str
    user: str
    account: str
    qos: str


@dataclass(frozen=True)
class Known:
    """What the cluster has beside the options; None where it can't be asked."""

    associations: t.Sequence[Association] | None = None
    qos: t.Collection[str] | None = None
    jobs: t.Sequence[Job] = ()

    @property
    def accounts(self) -> set[str] | None:
        return None if self.associations is None else {one.account for one in self.associations}


@dataclass(frozen=True)
class Kind:
    """A list of entities: its option, what an entry may hold, and which of that SLURM counts as settings."""

    option: str
    arguments: t.Mapping[str, t.Mapping[str, t.Any]]
    settings: t.Sequence[_slurm_limits.Setting]
    more: t.Sequence[str] = ()


KINDS = (
    Kind("slurm_qos", _sacctmgr.QOS_ARGUMENTS, _slurm_limits.QOS),
    Kind(
        "slurm_accounts",
        _sacctmgr.ACCOUNT_ARGUMENTS,
        (*_slurm_limits.ASSOCIATION, _sacctmgr.DESCRIPTION, _sacctmgr.ORGANIZATION),
    ),
    Kind("slurm_users", _sacctmgr.USER_ARGUMENTS, _slurm_limits.ASSOCIATION, SYSTEM_OPTIONS),
)


def mistakes(options: Options, *, accounting: bool, known: Known) -> list[str]:
    """The sentences, those first that others may follow from."""
    return [
        *_names(options),
        *_numbers(options),
        *_settings(options),
        *_needs_database(options, accounting=accounting),
        *(sentence for kind in KINDS for sentence in _entries(kind, _list(options, kind.option))),
        *_users(options),
        *_references(options, known),
        *_leaving(options, known),
    ]


def read_rows(kind: type[Row], lines: t.Iterable[str]) -> list[Row]:
    """Rows of associations or jobs from lines with | between the fields, as sacctmgr and squeue print them."""
    rows = [[field.strip().lower() for field in line.split("|")] for line in lines]
    return [kind(*row) for row in rows if len(row) == len(kind._fields)]


def _list(options: Options, name: str) -> list[Entry]:
    return [entry for entry in options.get(name) or () if isinstance(entry, t.Mapping)]


def _present(options: Options, name: str) -> list[Entry]:
    return [entry for entry in _list(options, name) if entry.get("state") != "absent"]


def _absent(options: Options, name: str) -> list[Entry]:
    return [entry for entry in _list(options, name) if entry.get("state") == "absent"]


def _names(options: Options) -> t.Iterator[str]:
    name = options.get("slurm_cluster_name", "cluster")
    if not _CLUSTER_NAME.fullmatch(str(name)):
        yield (
            f"slurm_cluster_name is {str(name)!r}, which SLURM does not accept: use at most 40 lower-case letters, "
            "digits, - and _, and begin with a letter or digit."
        )
    directory = options.get("slurm_state_directory", "/var/lib/slurm/slurmctld")
    if not _DIRECTORY.fullmatch(str(directory)):
        yield (
            f"slurm_state_directory is {str(directory)!r}: give an absolute path without '..' that belongs to "
            "slurmctld alone."
        )
    elif any(f"{own}/".startswith(f"{directory}/") or f"{directory}/".startswith(f"{own}/") for own in OWN_DIRECTORIES):
        yield (
            f"slurm_state_directory is {str(directory)!r}, which SLURM has for something else too: give a directory "
            "that belongs to slurmctld alone."
        )


def _numbers(options: Options) -> t.Iterator[str]:
    for name, (least, most) in RANGES.items():
        value = options.get(name)
        if value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            yield f"{name} is {value!r}: give a number."
            continue
        if not number >= least or (most is not None and number > most):
            yield f"{name} is {value}: give {f'at least {least}' if most is None else f'{least} to {most}'}."


def _settings(options: Options) -> t.Iterator[str]:
    tables: tuple[tuple[str, Table, t.Mapping[str, str]], ...] = (
        ("slurm_config", SETTINGS, _slurm_conf.NOT_IN_CONFIG),
        ("slurm_cgroup_config", CGROUP, {}),
        ("slurm_node_config", NODE, {}),
        ("slurm_db_config", SLURMDBD, dict.fromkeys(OWN_DATABASE_SETTINGS, "an option of the role")),
    )
    for option, table, own in tables:
        values = options.get(option) or {}
        yield from _refused(table.check, values, option)
        for name in values if isinstance(values, t.Mapping) else ():
            instead = {key.lower(): text for key, text in own.items()}.get(str(name).lower())
            if instead is not None:
                yield f"{option} can't set {name}: it comes from {instead}."
            elif str(name).lower() in PORTS and values[name] is not None and not _is_port(str(values[name])):
                yield f"{option}: {name} is {values[name]!r}: give a port from 1 to {LARGEST_PORT}."
    yield from _same_ports(options)
    if "slurm_partitions" in options:
        yield from _refused(_slurm_conf.check_partitions, options["slurm_partitions"], None)
    for partition in _list(options, "slurm_partitions"):
        yield from _refused(PARTITION.check, partition.get("config") or {}, f"partition {partition.get('name')}")


def _is_port(text: str) -> bool:
    return bool(_ports(text))


def _ports(text: str) -> range:
    """The ports of a number or range; none of what is no port."""
    found = _PORT_NUMBERS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    return range(first, last + 1) if 0 < first <= last <= LARGEST_PORT else range(0)


def _same_ports(options: Options) -> t.Iterator[str]:
    """Daemons of one host that would want the same port."""
    config = options.get("slurm_config")
    given = {str(name).lower(): value for name, value in config.items()} if isinstance(config, t.Mapping) else {}
    wanted = {name: str(given.get(name.lower()) or default) for name, default in DEFAULT_PORTS.items()}
    wanted["slurm_db_daemon_port"] = str(options.get("slurm_db_daemon_port", 6819))
    taken: dict[int, str] = {}
    for name, text in wanted.items():
        for port in _ports(text):
            other = taken.setdefault(port, name)
            if other != name:
                yield f"{name} and {other} are both {port}: give each daemon of SLURM a port of its own."
                return


def _refused(check: t.Callable[..., None], values: t.Any, where: str | None) -> t.Iterator[str]:
    try:
        check(values, *([where] if where else []))
    except SlurmError as error:
        yield f"{error}" if str(error).endswith("?") else f"{error}."


def _needs_database(options: Options, *, accounting: bool) -> t.Iterator[str]:
    asked = [name for name in ("slurm_accounts", "slurm_qos") if options.get(name)]
    if any("accounts" in user for user in _list(options, "slurm_users")):
        asked.append("accounts in slurm_users")
    if asked and not accounting:
        yield f"{asked[0]} is set, but no host is in group slurm_db: put one there, or take that away."
    enforce = options.get("slurm_accounting_enforce")
    members = [user for user in _present(options, "slurm_users") if user.get("accounts")]
    expiring = [one for one in [*members, *_present(options, "slurm_accounts")] if one.get("expires")]
    if accounting and expiring and enforce is not None and not {"limits", "safe"}.intersection(enforce):
        yield (
            f"{expiring[0].get('name')} has expires, but slurm_accounting_enforce is {', '.join(enforce) or 'empty'}, "
            "with which SLURM holds nobody to that: add limits."
        )


def _entries(kind: Kind, entries: t.Sequence[Entry]) -> t.Iterator[str]:
    names = [str(entry.get("name")).lower() for entry in entries]
    options = [*kind.more, *(name for name in kind.arguments if name != "cluster")]
    for entry, name in zip(entries, names, strict=True):
        where = f"{kind.option}: {name}"
        stranger = next((key for key in entry if key not in options), None)
        if not entry.get("name"):
            yield f"{kind.option} has an entry without name: give it one."
        elif names.count(name) > 1:
            yield f"{kind.option} has {name} twice: keep one of both."
        elif stranger is not None:
            hint = near(str(stranger), options) or f": there are {', '.join(options)}"
            yield f"{where} has no option '{stranger}'{hint}{'' if hint.endswith('?') else '.'}"
        else:
            yield from _entry(kind, entry, where)


def _entry(kind: Kind, entry: Entry, where: str) -> t.Iterator[str]:
    given = {key: value for key, value in entry.items() if key in kind.arguments}
    for key, value in given.items():
        if kind.arguments[key].get("type") == "list" and value is not None and not isinstance(value, (list, tuple)):
            yield f"{where} has {key} {value!r}: give a list."
            return
    result = ArgumentSpecValidator(t.cast("dict[str, t.Any]", kind.arguments)).validate(given)
    if result.error_messages:
        yield f"{where}: {result.error_messages[0].rstrip('.')}."
        return
    try:
        if kind.option != "slurm_users":
            _sacctmgr.name_of("a QOS" if kind.option == "slurm_qos" else "an account", str(entry["name"]))
        wanted = _slurm_limits.settings(result.validated_parameters, kind.settings)
    except ValueRefused as error:
        yield f"{where}: {error}."
        return
    for setting, value in wanted.items():
        for name in value if setting.kind == "tres" and isinstance(value, dict) else ():
            if not _TRES.fullmatch(name):
                yield f"{where}: {setting.option} has {name!r}, which is no TRES: write gres/gpu, cpu, mem or the like."
    if kind.option == "slurm_qos" and str(entry["name"]).lower() in _lower(_strings(entry.get("preempt"))):
        yield f"{where} preempts itself: take it out of preempt."
    yield from _day(entry, where)


def _day(entry: Entry, where: str) -> t.Iterator[str]:
    expires = entry.get("expires")
    if expires in (None, ""):
        return
    try:
        valid = bool(re.fullmatch(r"\d{4}-\d\d-\d\d", str(expires)) and dt.date.fromisoformat(str(expires)))
    except ValueError:
        valid = False
    if not valid:
        yield f"{where} has expires {str(expires)!r}: give a day as YYYY-MM-DD."


def _users(options: Options) -> t.Iterator[str]:
    for user in _list(options, "slurm_users"):
        if user.get("name") and not _USER_NAME.fullmatch(str(user["name"])):
            yield (
                f"slurm_users has the name {str(user['name'])!r}: use at most 32 lower-case letters, digits, - and _, "
                "and begin with a letter."
            )
        elif user.get("name") in SYSTEM_USERS:
            yield f"slurm_users has {user['name']}, which the system itself needs: take that entry away."
    if options.get("slurm_users_source", "local") != "local":
        return
    owners: dict[str, dict[int, str]] = {"UID": {}, "GID": {}}
    for user in _present(options, "slurm_users"):
        yield from _of_system(user)
        name, uid = user.get("name"), _whole(user.get("uid"))
        for what, number in (("UID", uid), ("GID", _whole(user.get("gid", uid)))):
            other = name if number is None else owners[what].setdefault(number, str(name))
            if other != name:
                yield f"slurm_users has {what} {number} twice ({other}, {name}): give each user their own."
                break


def _of_system(user: Entry) -> t.Iterator[str]:
    """What the operating system can't have of a user."""
    name, uid = user.get("name"), _whole(user.get("uid"))
    gid = _whole(user.get("gid", uid))
    if uid is None or not FIRST_UID <= uid <= LARGEST_UID:
        yield (
            f"slurm_users has {name} with {'UID ' + str(user['uid']) if 'uid' in user else 'no UID'}: give a uid "
            f"of {FIRST_UID} or more, which is the same on every host."
        )
    elif gid is None or not 1 <= gid <= LARGEST_UID:
        yield f"slurm_users has {name} with GID {user.get('gid')}: give the number of the user's own group."
    for key in ("comment", "shell"):
        if not _OF_PASSWD.fullmatch(str(user.get(key, ""))):
            yield f"slurm_users: {name} has {key} {user[key]!r}: give it without a colon and line breaks."
    if isinstance(user.get("groups"), str):
        yield f"slurm_users: {name} has groups {user['groups']!r}: give a list."


def _whole(value: t.Any) -> int | None:
    return int(value) if re.fullmatch(r"\d+", str(value)) and not isinstance(value, bool) else None


def _references(options: Options, known: Known) -> t.Iterator[str]:
    gone = _named(_absent(options, "slurm_accounts"))
    yield from _parents(options, known, gone)
    if known.accounts is not None:
        there = {*_named(_present(options, "slurm_accounts")), *_lower(known.accounts), _sacctmgr.ROOT} - gone
        for user in _present(options, "slurm_users"):
            accounts, default = _strings(user.get("accounts")), _strings(user.get("default_account"))
            if accounts and default and not user.get("append") and default[0].lower() not in _lower(accounts):
                yield f"slurm_users: {user.get('name')} has default_account {default[0]}, which accounts lacks: add it."
            wanted = [*accounts, *default]
            yield from _unknown("account", "slurm_users", user, wanted, there, "slurm_accounts")
        yield from _partition_references(options, "account", there, "slurm_accounts", ("allowaccounts", "denyaccounts"))
    if known.qos is not None:
        there = {*_named(_present(options, "slurm_qos")), *_lower(known.qos), BUILT_IN_QOS}
        there -= _named(_absent(options, "slurm_qos"))
        for option in ("slurm_qos", "slurm_accounts", "slurm_users"):
            for entry in _present(options, option):
                wanted = [name for key in ("qos", "default_qos", "preempt") for name in _strings(entry.get(key))]
                yield from _unknown("QOS", option, entry, wanted, there, "slurm_qos")
        yield from _partition_references(options, "QOS", there, "slurm_qos", ("allowqos", "denyqos", "qos"))


def _parents(options: Options, known: Known, gone: t.Collection[str]) -> t.Iterator[str]:
    """Parents that are not there, or come after those below them."""
    seen = {_sacctmgr.ROOT, *_lower(known.accounts or ())}
    later = _named(_present(options, "slurm_accounts"))
    above = {one.account: one.parent for one in known.associations or () if not one.user}
    above.update({name: parent for name, parent in _given_parents(options).items() if parent})
    for entry in _present(options, "slurm_accounts"):
        parent = str(entry.get("parent") or _sacctmgr.ROOT).lower()
        name = str(entry.get("name")).lower()
        if name == _sacctmgr.ROOT and entry.get("parent"):
            yield "slurm_accounts: root is above all other accounts: take its parent away."
        elif parent == name or name in _line(above, parent):
            yield f"slurm_accounts: {name} is below itself by its parent {parent}: name another account above it."
        elif parent in gone:
            yield f"slurm_accounts: the parent {parent} of {name} has state absent: move {name} to another account."
        elif parent not in seen and parent in later:
            yield f"slurm_accounts: the parent {parent} of {name} comes after it: put it before."
        elif parent not in seen and known.accounts is not None:
            yield from _unknown("account", "slurm_accounts", entry, [parent], seen, "slurm_accounts")
        seen.add(name)


def _partition_references(
    options: Options, what: str, there: t.Collection[str], where: str, keys: t.Collection[str]
) -> t.Iterator[str]:
    for partition in _list(options, "slurm_partitions"):
        config = partition.get("config") or {}
        for key, value in config.items() if isinstance(config, t.Mapping) else ():
            if str(key).lower() in keys:
                wanted = [name for name in _strings(value) if name.upper() not in ("ALL", "N/A")]
                named = {"name": f"partition {partition.get('name')}"}
                yield from _unknown(what, "slurm_partitions", named, wanted, there, where)


def _leaving(options: Options, known: Known) -> t.Iterator[str]:
    """What is to go, and is still used."""
    for option, what, field in (
        ("slurm_users", "user", "user"),
        ("slurm_accounts", "account", "account"),
        ("slurm_qos", "QOS", "qos"),
    ):
        for name in sorted(_named(_absent(options, option))):
            jobs = [one.number for one in known.jobs if getattr(one, field) == name]
            if jobs:
                yield (
                    f"{option} has state absent for {name}, but the {what} still has jobs ({', '.join(jobs[:10])}): "
                    "wait until they have ended, or end them with scancel."
                )
    leaving, users = _named(_absent(options, "slurm_users")), _list(options, "slurm_users")
    members = {str(user.get("name")).lower(): user for user in users}
    parents = _given_parents(options)
    gone = _named(_absent(options, "slurm_accounts"))
    for name in sorted(gone):
        held = [
            f"user {one.user}" if one.user else f"account {one.account}"
            for one in known.associations or ()
            if (
                one.account == name and one.user and one.user not in leaving and not _moves(members.get(one.user), name)
            )
            or (not one.user and one.parent == name and one.account not in gone and not parents.get(one.account))
        ]
        if held:
            yield (
                f"slurm_accounts has state absent for {name}, but {', '.join(held[:10])} "
                f"{'is' if len(held) == 1 else 'are'} still in it: move or remove them first."
            )


def _given_parents(options: Options) -> dict[str, str]:
    """The parents that the options give; an empty text for none."""
    return {
        str(one.get("name")).lower(): str(one.get("parent") or "").lower() for one in _list(options, "slurm_accounts")
    }


def _line(above: t.Mapping[str, str], name: str) -> list[str]:
    """The accounts above one, nearest first."""
    found: list[str] = []
    while (name := above.get(name, "")) and name not in found:
        found.append(name)
    return found


def _moves(user: Entry | None, account: str) -> bool:
    """Whether an entry takes its user out of an account."""
    return bool(user and user.get("accounts") and not user.get("append") and account not in _lower(user["accounts"]))


def _unknown(
    what: str, option: str, entry: Entry, wanted: t.Iterable[str], there: t.Collection[str], where: str
) -> t.Iterator[str]:
    for name in wanted:
        if name.lower() not in there:
            yield f"{option}: {entry.get('name')}: {unknown(what, name, there)}, neither in {where} nor on the cluster."


def _lower(names: t.Iterable[t.Any]) -> list[str]:
    return [str(name).lower() for name in names]


def _named(entries: t.Iterable[Entry]) -> set[str]:
    return set(_lower(entry.get("name") for entry in entries))


def _strings(value: t.Any) -> list[str]:
    if value is None:
        return []
    return [str(item).strip() for item in value] if isinstance(value, (list, tuple)) else str(value).split(",")
