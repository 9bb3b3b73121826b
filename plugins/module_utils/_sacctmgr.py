# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QOS, accounts and users of SLURM's accounting, over sacctmgr."""

from __future__ import annotations

import datetime as dt
import re
import typing as t
from dataclasses import dataclass, field

from . import _slurm_limits
from ._slurm_command import Host, SlurmError, output, unknown
from ._slurm_limits import ASSOCIATION, Change, Setting, Value

ROOT = "root"
ADMIN_LEVELS = {"none": "None", "operator": "Operator", "admin": "Administrator"}

PARENT = Setting("parent", "Parent", "name")
DESCRIPTION = Setting("description", "Description", "text")
ORGANIZATION = Setting("organization", "Organization", "text")
DEFAULT_ACCOUNT = Setting("default_account", "DefaultAccount", "name")
ADMIN_LEVEL = Setting("admin_level", "AdminLevel", "name")
ACCOUNTS = Setting("accounts", "Account", "names")

STATE: dict[str, t.Any] = {"type": "str", "choices": ["present", "absent"], "default": "present"}
QOS_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "state": STATE,
    **_slurm_limits.argument_spec(_slurm_limits.QOS),
    "preempt_mode": {"type": "str", "choices": ["cluster", "cancel", "requeue", "suspend"]},
}
ACCOUNT_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "state": STATE,
    "cluster": {"type": "str"},
    "parent": {"type": "str"},
    "description": {"type": "str"},
    "organization": {"type": "str"},
    "expires": {"type": "str"},
    **_slurm_limits.argument_spec(ASSOCIATION),
}
USER_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "state": STATE,
    "cluster": {"type": "str"},
    "accounts": {"type": "list", "elements": "str"},
    "append": {"type": "bool", "default": False},
    "default_account": {"type": "str"},
    "admin_level": {"type": "str", "choices": ["none", "operator", "admin"]},
    "expires": {"type": "str"},
    **_slurm_limits.argument_spec(ASSOCIATION),
}

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")


@dataclass(frozen=True)
class Association:
    """A user in an account, or (without user) an account below its parent."""

    account: str
    user: str
    partition: str
    parent: str
    settings: dict[Setting, Value]


@dataclass
class Outcome:
    """What was changed, or would be: the state of the named settings before and after, and the commands."""

    commands: list[list[str]] = field(default_factory=list)
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.commands)

    def note(self, changes: t.Iterable[Change], where: str | None = None) -> None:
        """Remember changes for the diff, those of an association under its account."""
        for change in changes:
            for side, value in ((self.before, change.before), (self.after, change.after)):
                target = side if where is None else side.setdefault(where, {})
                target[change.setting.option] = _slurm_limits.shown(value)


def name_of(what: str, given: str) -> str:
    """A name as the database keeps it. Raises SlurmError where SLURM can't have it."""
    if not _NAME.fullmatch(given):
        raise SlurmError(f"{given!r} can't be the name of {what}: letters, digits and _ . @ + - can be in it")
    return given.lower()


class Database:
    """The accounting database, as sacctmgr shows it."""

    def __init__(self, host: Host, *, check: bool = False) -> None:
        self._host = host
        self._check = check

    def apply(self, outcome: Outcome) -> bool:
        """Run the commands of an outcome, unless only a check is wanted; whether they were run."""
        if self._check:
            return False
        for number, command in enumerate(outcome.commands):
            output(self._host, command, changed=number > 0)
        return bool(outcome.commands)

    def show(self, entity: str, fields: t.Sequence[str], *conditions: str) -> list[list[str]]:
        """Rows of an entity. The last field may have the separator in it."""
        printed = output(
            self._host, ["sacctmgr", "-n", "-P", "show", entity, *conditions, f"format={','.join(fields)}"]
        )
        rows = [line.split("|", len(fields) - 1) for line in printed.splitlines() if line.strip()]
        if any(len(row) != len(fields) for row in rows):
            raise SlurmError(
                f"sacctmgr show {entity} prints something else than {', '.join(fields)}: {printed[:200]!r}"
            )
        return rows

    def cluster(self, wanted: str | None) -> str:
        """The name of the cluster: the one that is wanted, or the only one that there is."""
        names = [row[0] for row in self.show("cluster", ["Cluster"])]
        if wanted is not None:
            if wanted.lower() not in names:
                raise SlurmError(f"{unknown('cluster', wanted, names)}: slurmctld registers it when it starts")
            return wanted.lower()
        if len(names) != 1:
            there = f"are {', '.join(sorted(names))}: name one in cluster" if names else "is none"
            raise SlurmError(f"One cluster has to be in the database, and there {there}")
        return names[0]

    def tres(self) -> list[str]:
        """The names of everything that can be limited."""
        return ["/".join(filter(None, (kind, name))).lower() for kind, name in self.show("tres", ["Type", "Name"])]

    def qos(self, settings: t.Sequence[Setting] = ()) -> dict[str, dict[Setting, Value]]:
        """The settings of each QOS."""
        ordered = sorted(settings, key=lambda one: one.kind == "text")
        rows = self.show("qos", ["Name", *(one.field for one in ordered)])
        return {row[0]: {one: _slurm_limits.parse(one, text) for one, text in zip(ordered, row[1:])} for row in rows}

    def associations(self, cluster: str, settings: t.Iterable[Setting] = ()) -> list[Association]:
        """All of a cluster, with the settings that are their own (not those of parents)."""
        columns = list(dict.fromkeys((*settings, *(one for one in ASSOCIATION if one.option == "qos"))))
        rows = self.show(
            "assoc",
            ["Account", "User", "Partition", "ParentName", *(one.field for one in columns)],
            "where",
            f"cluster={cluster}",
            "WOPLimits",
        )
        return [
            Association(
                account,
                user,
                partition,
                parent,
                {one: _slurm_limits.parse(one, text) for one, text in zip(columns, values)},
            )
            for account, user, partition, parent, *values in rows
        ]

    def accounts(self) -> dict[str, dict[Setting, Value]]:
        """Description and organization of every account, of whatever cluster."""
        rows = self.show("account", ["Account", "Organization", "Description"])
        return {name: {ORGANIZATION: org.lower(), DESCRIPTION: text.lower()} for name, org, text in rows}

    def users(self) -> dict[str, str]:
        """The administrator level of every user."""
        return {row[0]: row[1].lower() for row in self.show("user", ["User", "AdminLevel"])}

    def default_account(self, user: str, cluster: str) -> str | None:
        rows = self.show("assoc", ["Account", "User"], "where", f"cluster={cluster}", f"user={user}", "OnlyDefaults")
        return rows[0][0] if rows else None

    def jobs(self, cluster: str, account: str | None = None, user: str | None = None) -> list[str]:
        """The jobs that wait or run, as ``12 (alice)``."""
        printed = output(self._host, ["squeue", "-h", "-M", cluster, "-o", "%i|%u|%a"])
        rows = [line.split("|") for line in printed.splitlines() if line.count("|") == 2]
        return [
            f"{job} ({owner})"
            for job, owner, charged in rows
            if account in (None, charged.lower()) and user in (None, owner.lower())
        ]


def expiry(params: t.Mapping[str, t.Any], today: dt.date, running: Setting, waiting: Setting) -> dict[Setting, Value]:
    """The settings that let nobody submit or start a job from the day of O(expires) on, and lift that before it."""
    if params.get("expires") is None:
        return {}
    given = str(params["expires"])
    try:
        day = dt.date.fromisoformat(given)
    except ValueError as error:
        raise SlurmError(f"expires is {given!r}: it has to be a date like 2027-06-30") from error
    if today >= day:
        return {running: 0, waiting: 0}
    return {one: None for one in (running, waiting) if params.get(one.option) is None}


def _lift(
    wanted: dict[Setting, Value], lifted: t.Iterable[Setting], now: t.Mapping[Setting, Value]
) -> dict[Setting, Value]:
    """Of the limits to be lifted only those stay that an expiry has set."""
    return {one: value for one, value in wanted.items() if one not in lifted or now.get(one) == 0}


def _check_qos(wanted: t.Mapping[Setting, Value], known: t.Collection[str]) -> None:
    for setting, value in wanted.items():
        if setting.option in ("qos", "default_qos", "preempt") and value is not None:
            for name in t.cast("tuple[str, ...]", value if isinstance(value, tuple) else (value,)):
                if name not in known:
                    raise SlurmError(unknown("QOS", name, known))


def _own_qos(associations: t.Iterable[Association], account: str, user: str = "") -> tuple[str, ...]:
    """The QOS that an association may use, its own or those of the nearest account above."""
    tree = {one.account: one for one in associations if not one.user}
    own = [one for one in associations if (one.account, one.user, one.partition) == (account, user, "")]
    at: Association | None = own[0] if own else tree.get(account)
    seen: set[str] = set()
    while at is not None:
        found = next((value for one, value in at.settings.items() if one.option == "qos"), ())
        if found:
            return t.cast("tuple[str, ...]", found)
        above = at.account if at.user else at.parent
        if not at.user:
            seen.add(at.account)
        at = None if above in seen else tree.get(above)
    return ()


def _check_default_qos(wanted: t.Mapping[Setting, Value], allowed: tuple[str, ...], where: str) -> None:
    """Raise SlurmError where the default is none of those that may be used; SLURM 22.05 would take it."""
    given = {one.option: value for one, value in wanted.items()}
    default = given.get("default_qos")
    usable = t.cast("tuple[str, ...]", given.get("qos") or allowed)
    if default is not None and default not in usable:
        raise SlurmError(
            f"{default} can't be the default QOS of {where}, which may use {', '.join(usable) or 'none'}: add it to qos"
        )


def _set(changes: t.Iterable[Change]) -> list[str]:
    return [_slurm_limits.rendered(change) for change in changes]


def _sure(left: t.Sequence[t.Any], what: str) -> None:
    """Raise SlurmError where something is not as it was set."""
    if left:
        names = ", ".join(sorted({change.setting.option for change in left if isinstance(change, Change)})) or "it"
        raise SlurmError(
            f"sacctmgr took the change of {what}, but {names} did not become what was asked for", changed=True
        )


# QOS


def qos_present(database: Database, name: str, params: t.Mapping[str, t.Any]) -> Outcome:
    """Have a QOS with these settings."""
    name = name_of("a QOS", name)
    wanted = _slurm_limits.settings(params, _slurm_limits.QOS)
    _known_tres(database, wanted)

    def plan() -> tuple[Outcome, list[Change]]:
        there = database.qos(list(wanted))
        _check_qos(wanted, there)
        outcome = Outcome()
        changes = _slurm_limits.changes(there.get(name, {}), wanted)
        if name not in there:
            outcome.after = {"state": "present"}
            outcome.before = {"state": "absent"}
            outcome.commands.append(["sacctmgr", "-i", "add", "qos", f"name={name}", *_set(changes)])
        elif changes:
            outcome.commands.append(["sacctmgr", "-i", "modify", "qos", "where", f"name={name}", "set", *_set(changes)])
        outcome.note(changes)
        return outcome, changes

    return _settle(database, plan, f"the QOS {name}")


def qos_absent(database: Database, name: str) -> Outcome:
    """Have no such QOS. Raises SlurmError where it is used."""
    name = name_of("a QOS", name)
    preempt = next(one for one in _slurm_limits.QOS if one.option == "preempt")
    there = database.qos([preempt])
    outcome = Outcome()
    if name not in there:
        return outcome
    users = [f"the QOS {other}" for other, has in there.items() if name in t.cast("tuple[str, ...]", has[preempt])]
    own = [one for one in ASSOCIATION if one.option in ("qos", "default_qos")]
    for (cluster,) in database.show("cluster", ["Cluster"]):
        users += [
            f"user {one.user} in {one.account}" if one.user else f"account {one.account}"
            for one in database.associations(cluster, own)
            if any(name == value or (isinstance(value, tuple) and name in value) for value in one.settings.values())
        ]
    if users:
        raise SlurmError(f"The QOS {name} can't be deleted: {_some(users)} {'use' if len(users) > 1 else 'uses'} it")
    outcome.commands.append(["sacctmgr", "-i", "delete", "qos", "where", f"name={name}"])
    outcome.before, outcome.after = {"state": "present"}, {"state": "absent"}
    database.apply(outcome)
    return outcome


# Accounts


def account_present(database: Database, name: str, params: t.Mapping[str, t.Any], today: dt.date) -> Outcome:
    """Have an account on the cluster with these settings."""
    name = name_of("an account", name)
    cluster = database.cluster(params.get("cluster"))
    by_option = {one.option: one for one in ASSOCIATION}
    wanted = _slurm_limits.settings(params, ASSOCIATION)
    expired = expiry(params, today, by_option["grp_jobs"], by_option["grp_submit_jobs"])
    wanted.update(expired)
    lifted = [one for one, value in expired.items() if value is None]
    texts = _slurm_limits.settings(params, (DESCRIPTION, ORGANIZATION))
    parent = None if params.get("parent") is None else name_of("an account", params["parent"])
    _known_tres(database, wanted)
    _check_qos(wanted, database.qos())

    def plan() -> tuple[Outcome, list[Change]]:
        associations = database.associations(cluster, wanted)
        tree = {one.account: one for one in associations if not one.user}
        _check_parent(tree, name, parent)
        outcome = Outcome()
        now = tree.get(name)
        settings = now.settings if now else {}
        changes = _slurm_limits.changes(settings, _lift(wanted, lifted, settings))
        above = parent or (now.parent if now else ROOT)
        _check_default_qos(wanted, _own_qos(associations, name if now else above), f"account {name}")
        described = _slurm_limits.changes(database.accounts().get(name, {}), texts)
        if now is None:
            outcome.before, outcome.after = {"state": "absent"}, {"state": "present"}
            if name in database.accounts() and described:
                outcome.commands.append(_modify_account(name, described))
                news: list[str] = []
            else:
                news = _set(described)
            outcome.commands.append(
                [
                    "sacctmgr",
                    "-i",
                    "add",
                    "account",
                    f"name={name}",
                    f"cluster={cluster}",
                    f"parent={above}",
                    *news,
                    *_set(changes),
                ]
            )
        else:
            if described:
                outcome.commands.append(_modify_account(name, described))
            moved = [Change(PARENT, now.parent, above)] if above != now.parent else []
            changes = [*moved, *changes]
            outcome.commands += [
                ["sacctmgr", "-i", "modify", "account", "where", f"name={name}", f"cluster={cluster}", "set", *part]
                for part in ([_set(moved), _set(changes[len(moved) :])])
                if part
            ]
        outcome.note([*described, *changes])
        return outcome, [*described, *changes]

    return _settle(database, plan, f"the account {name}")


def _modify_account(name: str, changes: t.Sequence[Change]) -> list[str]:
    return ["sacctmgr", "-i", "modify", "account", "where", f"name={name}", "set", *_set(changes)]


def _check_parent(tree: t.Mapping[str, Association], name: str, parent: str | None) -> None:
    if parent is None:
        return
    if parent not in tree:
        raise SlurmError(f"{unknown('account', parent, tree)}, and the parent of {name} has to be there first")
    if name == ROOT:
        raise SlurmError("The account root is the top of the tree, and has no parent")
    if name == parent or name in _above(tree, parent):
        raise SlurmError(f"{parent} can't be the parent of {name}, it is below it")


def _above(tree: t.Mapping[str, Association], name: str) -> list[str]:
    """The accounts above another, nearest first."""
    found: list[str] = []
    while name in tree and tree[name].parent and tree[name].parent not in found:
        name = tree[name].parent
        found.append(name)
    return found


def account_absent(database: Database, name: str, params: t.Mapping[str, t.Any]) -> Outcome:
    """Have no such account on the cluster. Raises SlurmError while it has users, accounts below it, or jobs."""
    name = name_of("an account", name)
    cluster = database.cluster(params.get("cluster"))
    if name == ROOT:
        raise SlurmError("The account root can't be deleted, all others are below it")
    associations = database.associations(cluster)
    outcome = Outcome()
    if name not in {one.account for one in associations}:
        return outcome
    users = sorted({one.user for one in associations if one.account == name and one.user})
    if users:
        raise SlurmError(
            f"The account {name} can't be deleted, it still has users, who have to be removed first: {_some(users)}"
        )
    below = sorted(one.account for one in associations if not one.user and one.parent == name)
    if below:
        raise SlurmError(f"The account {name} can't be deleted, there are accounts below it: {_some(below)}")
    jobs = database.jobs(cluster, account=name)
    if jobs:
        raise SlurmError(f"The account {name} can't be deleted, jobs still use it: {_some(jobs)}")
    outcome.commands.append(["sacctmgr", "-i", "delete", "account", "where", f"name={name}", f"cluster={cluster}"])
    outcome.before, outcome.after = {"state": "present"}, {"state": "absent"}
    database.apply(outcome)
    return outcome


# Users


@dataclass(frozen=True)
class _Wish:
    """What is asked for a user; None is not asked for."""

    name: str
    cluster: str
    accounts: list[str] | None
    append: bool
    default: str | None
    level: str | None
    wanted: dict[Setting, Value]
    lifted: list[Setting]


@dataclass(frozen=True)
class _Place:
    """The accounts that a user is in, will be in, and is taken out of, and the default one now and then."""

    now: set[str]
    names: list[str]
    gone: list[str]
    default: str | None
    new_default: str


def user_present(database: Database, name: str, params: t.Mapping[str, t.Any], today: dt.date) -> Outcome:
    """Have a user in these accounts of the cluster, with these settings in each of them."""
    name = name_of("a user", name)
    cluster = database.cluster(params.get("cluster"))
    by_option = {one.option: one for one in ASSOCIATION}
    expired = expiry(params, today, by_option["max_jobs"], by_option["max_submit_jobs"])
    accounts, default, level = (params.get(option) for option in ("accounts", "default_account", "admin_level"))
    wish = _Wish(
        name,
        cluster,
        None if accounts is None else list(dict.fromkeys(name_of("an account", one) for one in accounts)),
        bool(params.get("append")),
        None if default is None else name_of("an account", default),
        None if level is None else ADMIN_LEVELS[level],
        {**_slurm_limits.settings(params, ASSOCIATION), **expired},
        [one for one, value in expired.items() if value is None],
    )
    if wish.accounts == []:
        raise SlurmError(f"accounts of {name} is empty: a user is in an account, or deleted (state=absent)")
    _known_tres(database, wish.wanted)
    _check_qos(wish.wanted, database.qos())

    def plan() -> tuple[Outcome, list[Change]]:
        outcome = Outcome()
        associations = database.associations(cluster, wish.wanted)
        place = _place(database, wish, associations)
        if not place.now:
            outcome.before["state"], outcome.after["state"] = "absent", "present"
        changes = [
            *_memberships(wish, place, associations, outcome),
            *_user_itself(database, wish, place, outcome),
        ]
        _leave(database, wish, place, outcome)
        return outcome, changes

    return _settle(database, plan, f"the user {name}")


def _place(database: Database, wish: _Wish, associations: t.Sequence[Association]) -> _Place:
    """Which accounts a user is put into, and taken out of. Raises SlurmError where that can't be."""
    name, default = wish.name, wish.default
    now = {one.account for one in associations if one.user == name}
    names = wish.accounts
    if names is None:
        names = sorted({one.account for one in associations if one.user == name and not one.partition})
    if not now and not names:
        raise SlurmError(f"The user {name} is in no account of {wish.cluster}: name at least one in accounts")
    tree = {one.account for one in associations if not one.user}
    for account in [*names, *([default] if default else [])]:
        if account not in tree:
            raise SlurmError(
                f"{unknown('account', account, tree)}, and it has to be there before {name} is put into it"
            )
    gone = [] if wish.accounts is None or wish.append else sorted(now - set(names))
    if default is not None and default not in (set(names) | now) - set(gone):
        raise SlurmError(f"{default} can't be the default account of {name}, who is not in it: add it to accounts")
    had = database.default_account(name, wish.cluster) if now else None
    kept = had if had is not None and had not in gone else [*names, *sorted(now)][0]
    return _Place(now, names, gone, had, default or kept)


def _memberships(wish: _Wish, place: _Place, associations: t.Sequence[Association], outcome: Outcome) -> list[Change]:
    """Put the user into accounts, the default one first, and set what is to be set in each."""
    own = {one.account: one for one in associations if one.user == wish.name and not one.partition}
    found: list[Change] = []
    for account in sorted(place.names, key=lambda one: one != place.new_default):
        now = own.get(account)
        settings = now.settings if now else {}
        changes = _slurm_limits.changes(settings, _lift(wish.wanted, wish.lifted, settings))
        allowed = _own_qos(associations, account, wish.name if now else "")
        _check_default_qos(wish.wanted, allowed, f"user {wish.name} in account {account}")
        where = [f"name={wish.name}", f"account={account}", f"cluster={wish.cluster}"]
        if now is None:
            first = [f"DefaultAccount={account}"] if not place.now and account == place.new_default else []
            outcome.commands.append(["sacctmgr", "-i", "add", "user", *where, *first, *_set(changes)])
        elif changes:
            where.append('partition=""')
            outcome.commands.append(["sacctmgr", "-i", "modify", "user", "where", *where, "set", *_set(changes)])
        outcome.note(changes, f"account {account}")
        found += changes
    return found


def _user_itself(database: Database, wish: _Wish, place: _Place, outcome: Outcome) -> list[Change]:
    """Set the default account and the administrator level."""
    modify = ["sacctmgr", "-i", "modify", "user", "where", f"name={wish.name}"]
    found: list[Change] = []
    after = (place.now | set(place.names)) - set(place.gone)
    if after != place.now:
        found.append(Change(ACCOUNTS, tuple(sorted(place.now)), tuple(sorted(after))))
    if place.default != place.new_default:
        found.append(Change(DEFAULT_ACCOUNT, place.default, place.new_default))
        if place.now:
            words = [f"cluster={wish.cluster}", "set", f"DefaultAccount={place.new_default}"]
            outcome.commands.append([*modify, *words])
    level = database.users().get(wish.name, "none")
    if wish.level is not None and level != wish.level.lower():
        found.append(Change(ADMIN_LEVEL, level, wish.level.lower()))
        outcome.commands.append([*modify, "set", f"AdminLevel={wish.level}"])
    outcome.note(found)
    return found


def _leave(database: Database, wish: _Wish, place: _Place, outcome: Outcome) -> None:
    """Take the user out of accounts, at last. Raises SlurmError where jobs use them."""
    for account in place.gone:
        jobs = database.jobs(wish.cluster, account=account, user=wish.name)
        if jobs:
            raise SlurmError(
                f"The user {wish.name} can't be taken out of account {account}, jobs use it: {_some(jobs)}"
            )
        where = [f"name={wish.name}", f"account={account}", f"cluster={wish.cluster}"]
        outcome.commands.append(["sacctmgr", "-i", "delete", "user", "where", *where])


def user_absent(database: Database, name: str, params: t.Mapping[str, t.Any]) -> Outcome:
    """Have no such user on the cluster. Raises SlurmError while the user has jobs."""
    name = name_of("a user", name)
    cluster = database.cluster(params.get("cluster"))
    if name == ROOT:
        raise SlurmError("The user root can't be deleted, SLURM itself needs it")
    outcome = Outcome()
    accounts = {one.account for one in database.associations(cluster) if one.user == name}
    if not accounts:
        return outcome
    jobs = database.jobs(cluster, user=name)
    if jobs:
        raise SlurmError(f"The user {name} can't be deleted while jobs wait or run: {_some(jobs)}")
    delete = ["sacctmgr", "-i", "delete", "user", "where", f"name={name}"]
    others = accounts - {database.default_account(name, cluster) or min(accounts)}  # 22.05 wants the default one last
    outcome.commands += [[*delete, f"account={account}", f"cluster={cluster}"] for account in sorted(others)]
    outcome.commands.append([*delete, f"cluster={cluster}"])
    outcome.before, outcome.after = {"state": "present"}, {"state": "absent"}
    database.apply(outcome)
    return outcome


# What all have in common


def _known_tres(database: Database, wanted: t.Mapping[Setting, Value]) -> None:
    if any(isinstance(value, dict) and value for value in wanted.values()):
        _slurm_limits.check_tres(wanted, database.tres())


def _settle(database: Database, plan: t.Callable[[], tuple[Outcome, list[Change]]], what: str) -> Outcome:
    """Do what a plan says, and make sure that nothing is left to do."""
    outcome, _changes = plan()
    if database.apply(outcome):
        left, changes = plan()
        _sure(changes or left.commands, what)
    return outcome


def _some(names: t.Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
