# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to be done to the driver's packages, and what was done."""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ._packages import Change, Package, Transaction

RECORD = "/var/lib/cudahub/nvidia_driver.json"
"""Where the record is, if nothing else is said."""

FORMAT = 1
"""The format of the record, which changes where an older collection could not read it."""

RESERVE = 16 * 1024 * 1024
"""Bytes that dpkg's lists and logs have for a rollback on a full disk."""


class PlanError(Exception):
    """A plan that module driver_plan has not made, or a record that can't be read."""


@dataclass(frozen=True)
class Plan:
    """What module driver_plan worked out, as far as it is to be done."""

    source: str
    branch: str
    version: str
    kernel_module: str
    kernels: tuple[str, ...]
    packages: tuple[Package, ...]
    transaction: Transaction
    unhold: tuple[str, ...] = ()
    repair: bool = False
    ways_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: t.Mapping[str, t.Any]) -> Plan:
        """The plan in the value that driver_plan returned. Raises PlanError."""
        try:
            transaction = plan["transaction"]
            return cls(
                source=str(plan["source"]),
                branch=str(plan["branch"]),
                version=str(plan["version"]),
                kernel_module=str(plan["kernel_module"]),
                kernels=tuple(map(str, plan["kernels"])),
                packages=_packages(plan["packages"]),
                transaction=Transaction(
                    _packages(transaction["install"]),
                    tuple(Change(str(one["name"]), str(one["from"]), str(one["to"])) for one in transaction["change"]),
                    _packages(transaction["remove"]),
                ),
                unhold=tuple(map(str, plan.get("unhold") or ())),
                repair=bool(plan.get("repair")),
                ways_out=tuple(map(str, plan.get("ways_out") or ())),
            )
        except (KeyError, TypeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else "it or a value in it is of another type"
            raise PlanError(
                f"plan is not what cudahub.gpu.driver_plan returns: {reason}; give the plan of its result, where "
                "refusals is empty"
            ) from error


def _packages(values: t.Iterable[t.Mapping[str, t.Any]]) -> tuple[Package, ...]:
    return tuple(Package(str(one["name"]), str(one["version"])) for one in values)


@dataclass(frozen=True)
class Was:
    """A package as it was before a transaction."""

    version: str
    state: str
    held: bool
    automatic: bool

    @property
    def there(self) -> bool:
        """Whether more of it was there than configuration files, which a removed package leaves behind."""
        return self.state != "config-files"


@dataclass(frozen=True)
class Pending:
    """A transaction that has begun: the packages that it touches, and those of them that were there."""

    names: frozenset[str]
    before: t.Mapping[str, Was]


@dataclass(frozen=True)
class Record:
    """What was done to the host, so that it can be undone."""

    source: str = ""
    branch: str = ""
    driver_version: str = ""
    kernel_module: str = ""
    installed: tuple[str, ...] = ()
    """Packages that were not there before."""
    asked: tuple[str, ...] = ()
    """Packages that were asked for by name, so that the package manager takes them for the user's own choice."""
    held: tuple[str, ...] = ()
    """Packages that were not held before."""
    before: t.Mapping[str, Was] = field(default_factory=dict)
    """Packages that were there before our first transaction that touched them, as they were then."""
    pending: Pending | None = None

    @property
    def brought(self) -> frozenset[str]:
        """The packages that were not there before, those of a transaction that has only begun included."""
        begun = self.pending or Pending(frozenset(), {})
        return (begun.names - {name for name, was in begun.before.items() if was.there}).union(self.installed)

    @property
    def first(self) -> dict[str, Was]:
        """The packages that were there before, those of a transaction that has only begun included."""
        found = {**(self.pending.before if self.pending else {}), **self.before}
        return {name: was for name, was in found.items() if name not in self.installed or not was.there}

    @property
    def leftovers(self) -> frozenset[str]:
        """The packages of which only configuration files were there before, which are to stay."""
        return frozenset(name for name, was in self.first.items() if not was.there)

    @property
    def held_by_others(self) -> frozenset[str]:
        """The packages that somebody else held when a transaction of ours began."""
        known = (*self.before.items(), *(self.pending.before.items() if self.pending else ()))
        return frozenset(name for name, was in known if was.held and name not in self.held)

    def as_json(self) -> str:
        value: dict[str, t.Any] = {"version": FORMAT, **asdict(self), "before": _written(self.before)}
        if self.pending:
            value["pending"] = {
                "names": sorted(self.pending.names),
                "before": _written(self.pending.before),
            }
        return json.dumps(value, indent=2, sort_keys=True) + "\n"

    @classmethod
    def of(cls, text: str) -> Record:
        """The record in a file's text. Raises PlanError."""
        try:
            value = json.loads(text)
            if not isinstance(value, dict):
                raise PlanError("it is not a record of driver packages")
            if value.get("version", FORMAT) != FORMAT:
                raise PlanError(
                    f"its format is {value.get('version')!r}, and this version of the collection knows {FORMAT}"
                )
            pending = value["pending"]

            def texts(key: str) -> tuple[str, ...]:
                if not isinstance(value[key], list):
                    raise PlanError(f"{key} is no list in it")
                return tuple(map(str, value[key]))

            return cls(
                source=str(value["source"]),
                branch=str(value["branch"]),
                driver_version=str(value["driver_version"]),
                kernel_module=str(value["kernel_module"]),
                installed=texts("installed"),
                asked=texts("asked"),
                held=texts("held"),
                before=_read(value.get("before", {})),
                pending=pending and Pending(frozenset(pending["names"]), _read(pending["before"])),
            )
        except KeyError as error:
            raise PlanError(f"it has no {error.args[0]}") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise PlanError(f"it is not a record of driver packages ({error})") from error


def _written(packages: t.Mapping[str, Was]) -> dict[str, t.Any]:
    return {name: asdict(was) for name, was in packages.items()}


def _read(packages: t.Mapping[str, t.Any]) -> dict[str, Was]:
    return {name: Was(**was) for name, was in packages.items()}


class Records(t.Protocol):
    """Where the record is kept."""

    def read(self) -> Record | None:
        """The record; None when there is none. Raises PlanError."""

    def write(self, record: Record) -> None:
        """Keep a record in place of the old one. Raises OSError."""

    def remove(self) -> None:
        """Forget the record. Raises OSError."""

    def reserve(self) -> None:
        """Set room on the disk aside, so that a rollback has some when the disk is full. Raises OSError."""

    def release(self) -> None:
        """Give that room back."""


class RecordFile:
    """A record in a file."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._reserve = self._path.with_name(self._path.name + ".reserve")

    def read(self) -> Record | None:
        try:
            return Record.of(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, PlanError) as error:
            raise PlanError(
                f"The record {self._path} can't be read: {error}; correct it, or move it away if this host's driver "
                "packages are not to be taken away by this collection"
            ) from error

    def write(self, record: Record) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_text(record.as_json(), encoding="utf-8")
        beside.chmod(0o644)
        beside.replace(self._path)

    def remove(self) -> None:
        self._path.unlink()

    def reserve(self) -> None:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            with self._reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE)
        except OSError as error:
            self.release()
            raise OSError(error.errno, error.strerror, str(self._path.parent)) from error

    def release(self) -> None:
        self._reserve.unlink(missing_ok=True)
