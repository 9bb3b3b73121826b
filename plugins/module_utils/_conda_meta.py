# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a conda environment has, read from its records in ``conda-meta``, which all tools write alike."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from ._conda_spec import Package, Spec, SpecError, parse_spec

META = "conda-meta"
HISTORY = "conda-meta/history"
FROZEN = "conda-meta/frozen"
"""CEP 22: who has this file asks that nobody changes the environment."""

CHUNK = 1 << 20

WITH_PYTHON = ("pip", "setuptools", "wheel")
"""What tools bring along with Python though it does not say that it needs them."""

State = t.Literal["absent", "empty", "file", "link", "foreign", "partial", "environment"]


@dataclass(frozen=True)
class Entry:
    """A path that a package brought: its kind as conda names it, and the SHA-256 that it has, where that is known."""

    path: str
    kind: str = "hardlink"
    sha256: str | None = None


@dataclass(frozen=True)
class Installed:
    """A package in an environment, what was asked for when it came, what it brought, and what it needs."""

    package: Package
    requested: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    record: t.Mapping[str, t.Any] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def entries(self) -> tuple[Entry, ...]:
        """What it brought. It is worked out only where it is asked for, as there are many."""
        return _entries(self.record)


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

    def lacks_for_itself(self) -> tuple[str, ...]:
        """What packages of the environment need and none of it is, as ``cudf needs cuda-version >=13``."""
        by_name = {one.package.name: one.package for one in self.packages}
        return tuple(
            f"{one.package.name} needs {text}"
            for one in self.packages
            for text in one.depends
            if not text.startswith("__") and not _is_met(text, by_name)
        )

    def beyond(self, names: t.Iterable[str]) -> tuple[str, ...]:
        """The packages that neither are of these names nor are needed by them, directly or not."""
        needs = {one.package.name: {_name(text) for text in one.depends} for one in self.packages}
        wanted = {name.lower() for name in names}
        kept: set[str] = set()
        while wanted:
            name = wanted.pop()
            kept.add(name)
            wanted |= (needs.get(name, set()) | (set(WITH_PYTHON) if name == "python" else set())) - kept
        return tuple(one.package.name for one in self.packages if one.package.name not in kept)


class RecordError(ValueError):
    """A record that is not one."""


@functools.cache
def _needed(text: str) -> Spec | None:
    """What a package needs; None where that can't be read."""
    try:
        return parse_spec(text)
    except SpecError:
        return None


def _is_met(text: str, packages: t.Mapping[str, Package]) -> bool:
    spec = _needed(text)
    return spec is None or (spec.name in packages and spec.matches(packages[spec.name]))


def _name(text: str) -> str:
    return text.split(" ", 1)[0].lower()


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
    if records and not (path / META).is_symlink():
        return "environment"
    if (path / META).is_dir() and not (path / META).is_symlink():
        return "partial"
    return "empty" if next(path.iterdir(), None) is None else "foreign"


def parse(content: bytes) -> Installed:
    """A record of a package. Raises RecordError."""
    if not content.strip(b"\0 \t\r\n"):
        raise RecordError("the file is empty")
    try:
        value = json.loads(content)
        return _installed(value)
    except RecordError:
        raise
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
    if "/" in package.name + package.version + package.build:
        raise RecordError("its name, version or build has a slash")
    _paths(value)
    requested = value.get("requested_specs") or value.get("requested_spec") or []
    asked = [requested] if isinstance(requested, str) else requested
    requested_specs = tuple(str(one) for one in asked if one not in (None, "None", ""))
    return Installed(package, requested_specs, tuple(map(str, value.get("depends") or ())), value)


def _paths(value: t.Mapping[str, t.Any]) -> list[str]:
    """The paths of a record. Raises RecordError where one leads out of the environment."""
    paths = [str(one["_path"]) for one in (value.get("paths_data") or {}).get("paths") or ()]
    for path in (*paths, *map(str, value.get("files") or ())):
        if path.startswith("/") or ".." in path.split("/"):
            raise RecordError(f"its path {path} leads out of the environment")
    return paths


def _entries(value: t.Mapping[str, t.Any]) -> tuple[Entry, ...]:
    files = [str(path) for path in value.get("files") or ()]
    paths = (value.get("paths_data") or {}).get("paths")
    if not paths:
        return tuple(Entry(path) for path in files)
    python = next((path.split("site-packages/", 1)[0] for path in files if "/site-packages/" in path), "")
    return tuple(
        Entry(
            _path_in_prefix(str(one["_path"]), python),
            str(one.get("path_type") or "hardlink"),
            one.get("sha256_in_prefix") or (None if one.get("prefix_placeholder") else one.get("sha256")),
        )
        for one in paths
    )


def _path_in_prefix(path: str, python: str) -> str:
    """Where a file is. conda keeps the paths that pure Python packages have before they are linked."""
    if path.startswith("site-packages/"):
        return python + path
    if path.startswith("python-scripts/"):
        return "bin/" + path.removeprefix("python-scripts/")
    return path


@dataclass(frozen=True)
class Fault:
    """A path of a package that is not as the package brought it."""

    package: str
    path: str
    kind: t.Literal["missing", "changed", "unreadable"]


def faults(environment: Environment, packages: t.Collection[str] | None = None) -> t.Iterator[Fault]:
    """Paths that are gone or changed, of some packages or all. Compiled Python files and directories do not count.

    A path that several packages bring is right as any of them has it.
    """
    root = Path(environment.prefix)
    hashes: dict[str, set[str]] = {}
    for one in environment.packages:
        for entry in one.entries:
            if entry.sha256:
                hashes.setdefault(entry.path, set()).add(entry.sha256)
    for one in environment.packages:
        if packages is not None and one.package.name not in packages:
            continue
        for entry in one.entries:
            kind = _fault(root / entry.path, entry, hashes.get(entry.path, set()))
            if kind is not None:
                yield Fault(one.package.name, entry.path, kind)


def _fault(path: Path, entry: Entry, right: t.Collection[str]) -> t.Literal["missing", "changed", "unreadable"] | None:
    if entry.kind == "directory" or entry.path.endswith(".pyc"):
        return None
    if not os.path.lexists(path):
        return "missing"
    if entry.kind != "hardlink" or entry.sha256 is None:
        return None
    if not stat.S_ISREG(path.lstat().st_mode):
        return "changed"
    try:
        return None if digest(path) in right else "changed"
    except OSError:
        return "unreadable"


def digest(path: Path, kind: str = "sha256") -> str:
    """Hash of a file. Raises OSError."""
    found = hashlib.new(kind, usedforsecurity=False)
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
