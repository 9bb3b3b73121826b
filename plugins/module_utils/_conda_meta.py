# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a conda environment has, read from its records in ``conda-meta``, which all tools write alike."""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ._conda_spec import Package, Spec

META = "conda-meta"
HISTORY = "conda-meta/history"
FROZEN = "conda-meta/frozen"
"""CEP 22: who has this file asks that nobody changes the environment."""

CHUNK = 1 << 20

State = t.Literal["absent", "empty", "file", "link", "foreign", "partial", "environment"]


@dataclass(frozen=True)
class Entry:
    """A path that a package brought: its kind as conda names it, and the SHA-256 that it has, where that is known."""

    path: str
    kind: str = "hardlink"
    sha256: str | None = None


@dataclass(frozen=True)
class Installed:
    """A package in an environment, what was asked for when it came, and what it brought."""

    package: Package
    requested: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Environment:
    """An environment as it is.

    ``state`` is "absent" (nothing there), "empty" (an empty directory), "file", "link" (a symbolic link), "foreign" (a
    directory with something else in it), "partial" (begun, and without packages), or "environment". ``damaged`` are the
    records that can't be read, with the reason.
    """

    prefix: str
    state: State
    packages: tuple[Installed, ...] = ()
    damaged: tuple[tuple[str, str], ...] = ()
    frozen: bool = False

    def named(self, name: str) -> Installed | None:
        """The package of a name; None if the environment does not have it."""
        return next((one for one in self.packages if one.package.name == name.lower()), None)

    def lacks(self, specs: t.Iterable[Spec]) -> tuple[Spec, ...]:
        """The specs that no package of the environment is."""
        by_name = {one.package.name: one.package for one in self.packages}
        return tuple(spec for spec in specs if spec.name not in by_name or not spec.matches(by_name[spec.name]))


class RecordError(ValueError):
    """A record that is not one."""


def read(prefix: str) -> Environment:
    """The environment at a prefix. Raises PermissionError where it may not be read."""
    path = Path(prefix)
    state = _state(path)
    if state not in ("environment", "partial"):
        return Environment(prefix, state)
    packages, damaged = [], []
    for record in sorted((path / META).glob("*.json")):
        found = _readable(record)
        if isinstance(found, Installed):
            packages.append(found)
        else:
            damaged.append((record.name, found))
    names = [one.package.name for one in packages]
    twice = sorted({name for name in names if names.count(name) > 1})
    damaged += [(f"{name}-*.json", "the package is there in several versions") for name in twice]
    ordered = tuple(sorted(packages, key=lambda one: one.package.name))
    return Environment(prefix, state, ordered, tuple(damaged), (path / FROZEN).exists())


def _readable(record: Path) -> Installed | str:
    """A record, or why it is none."""
    try:
        return parse(record.read_bytes())
    except PermissionError:
        raise
    except (RecordError, OSError) as error:
        return str(error)


def _state(path: Path) -> State:
    if path.is_symlink():
        return "link"
    if not path.exists():
        return "absent"
    if not path.is_dir():
        return "file"
    records = next((path / META).glob("*.json"), None) is not None
    if records:
        return "environment"
    if (path / META).is_dir():
        return "partial"
    return "empty" if next(path.iterdir(), None) is None else "foreign"


def parse(content: bytes) -> Installed:
    """A record of a package. Raises RecordError."""
    if not content.strip(b"\0 \t\r\n"):
        raise RecordError("the file is empty")
    try:
        value = json.loads(content)
        return _installed(value)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RecordError(f"it is no JSON: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f"it has no {error.args[0]}" if isinstance(error, KeyError) else "a value in it is of another type"
        raise RecordError(f"it is no record of a package: {missing}") from error


def _installed(value: t.Mapping[str, t.Any]) -> Installed:
    package = Package(
        name=str(value["name"]).lower(),
        version=str(value["version"]),
        build=str(value.get("build") or value["build_string"]),
        build_number=int(value.get("build_number") or 0),
        channel=str(value.get("channel") or ""),
        subdir=str(value.get("subdir") or ""),
        md5=str(value.get("md5") or ""),
        sha256=str(value.get("sha256") or ""),
        url=str(value.get("url") or ""),
    )
    requested = value.get("requested_specs") or value.get("requested_spec") or []
    asked = [requested] if isinstance(requested, str) else requested
    return Installed(package, tuple(str(one) for one in asked if one not in (None, "None", "")), _entries(value))


def _entries(value: t.Mapping[str, t.Any]) -> tuple[Entry, ...]:
    paths = (value.get("paths_data") or {}).get("paths")
    if not paths:
        return tuple(Entry(str(path)) for path in value.get("files") or ())
    return tuple(
        Entry(
            str(one["_path"]),
            str(one.get("path_type") or "hardlink"),
            one.get("sha256_in_prefix") or (None if one.get("prefix_placeholder") else one.get("sha256")),
        )
        for one in paths
    )


@dataclass(frozen=True)
class Fault:
    """A path of a package that is not as the package brought it."""

    package: str
    path: str
    kind: t.Literal["missing", "changed", "unreadable"]


def faults(environment: Environment, packages: t.Collection[str] | None = None) -> t.Iterator[Fault]:
    """Paths that are gone or changed, of some packages or all. Compiled Python files and directories do not count."""
    root = Path(environment.prefix)
    for one in environment.packages:
        if packages is not None and one.package.name not in packages:
            continue
        for entry in one.entries:
            kind = _fault(root / entry.path, entry)
            if kind is not None:
                yield Fault(one.package.name, entry.path, kind)


def _fault(path: Path, entry: Entry) -> t.Literal["missing", "changed", "unreadable"] | None:
    if entry.kind == "directory" or entry.path.endswith(".pyc"):
        return None
    if not (path.exists() or path.is_symlink()):
        return "missing"
    if entry.kind != "hardlink" or entry.sha256 is None:
        return None
    try:
        return None if digest(path) == entry.sha256 else "changed"
    except OSError:
        return "unreadable"


def digest(path: Path) -> str:
    """SHA-256 of a file. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


class Difference(t.NamedTuple):
    """What differs between two environments, by names of packages: added, removed, and changed as (before, after)."""

    added: dict[str, str]
    removed: dict[str, str]
    changed: dict[str, tuple[str, str]]

    @property
    def empty(self) -> bool:
        return not (self.added or self.removed or self.changed)


def difference(before: t.Iterable[Package], after: t.Iterable[Package]) -> Difference:
    """Versions with builds; a package that comes from another channel has changed as well."""
    old = {one.name: one for one in before}
    new = {one.name: one for one in after}
    return Difference(
        {name: _told(new[name]) for name in sorted(new.keys() - old.keys())},
        {name: _told(old[name]) for name in sorted(old.keys() - new.keys())},
        {
            name: (_told(old[name]), _told(new[name]))
            for name in sorted(new.keys() & old.keys())
            if (old[name].version, old[name].build) != (new[name].version, new[name].build)
            or (old[name].url and new[name].url and old[name].url != new[name].url)
        },
    )


def _told(package: Package) -> str:
    return f"{package.version} {package.build}"
