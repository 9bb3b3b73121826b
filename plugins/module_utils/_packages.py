# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a package manager knows and does, the same for apt and dnf."""

from __future__ import annotations

import re
import typing as t
from dataclasses import asdict, dataclass

from ._address import masked

State = t.Literal["installed", "half-configured", "unpacked", "half-installed", "config-files", "triggers"]

ErrorKind = t.Literal[
    "network",
    "signature",
    "not_found",
    "checksum",
    "unresolvable",
    "lock",
    "download",
    "disk",
    "interrupted",
    "package_manager",
]

BROKEN: frozenset[State] = frozenset({"half-configured", "unpacked", "half-installed", "triggers"})
"""States that an interrupted transaction leaves behind."""


@dataclass(frozen=True)
class Package:
    """A package in a version, written as the package manager writes it."""

    name: str
    version: str


@dataclass(frozen=True)
class Change:
    """A package that gets another version, newer or older."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class Installed:
    """A package that the system has, or has left-overs of."""

    name: str
    version: str
    state: State
    held: bool

    @property
    def present(self) -> bool:
        """Whether its files are there: nothing but its configuration files does not count."""
        return self.state != "config-files"

    @property
    def broken(self) -> bool:
        """Whether an interrupted transaction must be finished first."""
        return self.state in BROKEN


@dataclass(frozen=True)
class Transaction:
    """What the package manager would do, dependencies included. Sizes in bytes; None where it doesn't tell.

    ``module_stream`` is the stream that dnf enables for it, as ``nvidia-driver:580-open``; None if none.
    """

    install: tuple[Package, ...] = ()
    change: tuple[Change, ...] = ()
    remove: tuple[Package, ...] = ()
    download_bytes: int | None = None
    disk_bytes: int | None = None
    module_stream: str | None = None

    @property
    def empty(self) -> bool:
        return not (self.install or self.change or self.remove)

    @property
    def replaced(self) -> set[str]:
        """The names of the packages that are there and go, or get another version."""
        return {one.name for one in self.change} | {one.name for one in self.remove}

    def after(self, versions: t.Mapping[str, str]) -> dict[str, str]:
        """The versions of packages by name once it is done, from those before."""
        new = {one.name: one.version for one in self.install}
        changed = {one.name: one.new for one in self.change}
        gone = {one.name for one in self.remove}
        return {name: version for name, version in {**versions, **new, **changed}.items() if name not in gone}

    def as_dict(self) -> dict[str, list[dict[str, str]]]:
        """The packages, as modules return them."""
        return {
            "install": [asdict(one) for one in self.install],
            "change": [{"name": one.name, "from": one.old, "to": one.new} for one in self.change],
            "remove": [asdict(one) for one in self.remove],
        }


class PackageError(Exception):
    """A package manager or a repository that can't do its part: of which kind, a sentence, and what it said itself.

    What either of them says of an address is kept without the user name and the password.
    """

    def __init__(self, kind: ErrorKind, message: str, details: str = "") -> None:
        self.kind: ErrorKind = kind
        self.message = masked(message)
        self.details = masked(details)
        super().__init__(self.message)


class RepositoryError(PackageError):
    """A repository, or its key, that can't be read or trusted."""

    def __init__(self, kind: ErrorKind, url: str, reason: str, details: str = "") -> None:
        super().__init__(kind, f"{url} can't be used: {reason}", details)
        self.url = masked(url)
        self.reason = masked(reason)


class Result(t.NamedTuple):
    """How a command ended."""

    rc: int
    stdout: str
    stderr: str


Run = t.Callable[[t.Sequence[str], t.Mapping[str, str]], Result]
"""Runs a command with some variables added to its environment; never raises for what the command does."""


class Module(t.Protocol):
    """The part of an Ansible module that runs commands."""

    def get_bin_path(self, arg: str) -> str | None:
        """The path of a program; None where there is none."""

    def run_command(self, args: list[str], *, environ_update: dict[str, str]) -> tuple[int, str, str]:
        """Exit status and output of a command."""


def runner(module: Module) -> Run:
    """What runs commands as a module does. A program that is missing is the exit status 127, as in a shell."""

    def run(command: t.Sequence[str], env: t.Mapping[str, str]) -> Result:
        path = module.get_bin_path(command[0])
        if path is None:
            return Result(127, "", f"{command[0]} is not installed")
        return Result(*module.run_command([path, *command[1:]], environ_update=dict(env)))

    return run


class Log(t.Protocol):
    """Where commands that change something run and what they print is kept. Both raise OSError if that fails."""

    def run(self, command: t.Sequence[str], env: t.Mapping[str, str]) -> Result:
        """Run a command with its output in the log; its output is the result's stdout."""

    def say(self, line: str) -> None:
        """Write a line of our own."""


class Reader(t.Protocol):
    """What can be read of packages without changing any, and without the lock under which they are changed."""

    def installed(self) -> dict[str, Installed]:
        """Every package of the system, by name."""

    def available(self, pattern: re.Pattern[str]) -> dict[str, tuple[str, ...]]:
        """The versions, newest first, of the packages whose whole name matches."""

    def origin(self, package: Package) -> str | None:
        """An address that offers the package in this version; None where no source does."""

    def simulate(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> Transaction:
        """What installing and removing these would do. Raises PackageError("unresolvable").

        With a pin, an upstream version such as ``580.159.04``, versions that are it come before all others, in
        dependencies, too.
        """


class Writer(t.Protocol):
    """What changes packages. Every method raises PackageError."""

    def refresh(self) -> None:
        """Read anew what the system's repositories offer."""

    def apply(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> None:
        """Install and remove these in one transaction, with the same meaning as Reader.simulate."""

    def repair(self) -> None:
        """Finish a transaction that was interrupted."""

    def purge(self, names: t.Sequence[str]) -> None:
        """Remove exactly these with their configuration files; what another package needs is an error."""

    def remove(self, names: t.Sequence[str]) -> None:
        """Remove exactly these, but not their configuration files; what another package needs is an error."""

    def needed_by_others(self, names: t.Collection[str]) -> dict[str, str]:
        """Which of these a package not among them depends on, and the name of one that does. Changes nothing."""

    def hold(self, names: t.Sequence[str]) -> None:
        """Keep these in the version they have."""

    def unhold(self, names: t.Sequence[str]) -> None:
        """Let these be changed again."""

    def automatic(self) -> set[str]:
        """The packages that were installed only because others depend on them. Changes nothing."""

    def mark_automatic(self, names: t.Sequence[str]) -> None:
        """Have these count as installed only because others depend on them."""
