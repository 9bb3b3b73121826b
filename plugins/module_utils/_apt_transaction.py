# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changing packages with apt and dpkg: one transaction, all of its output in a log, and one sentence when it fails."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import tempfile
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ._apt import first_line, last_line, pinned, plain, transaction_arguments, unresolvable_reason
from ._packages import PackageError, Result

if t.TYPE_CHECKING:
    from ._packages import ErrorKind, Log, Package, Run

DPKG_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/cache/apt/archives/lock")
ALMOST_FULL = 2_000_000
"""Bytes below which a file system counts as full, where a command has failed without a reason."""

LISTS_LOCK = "/var/lib/apt/lists/lock"
JOURNAL = "/var/lib/dpkg/updates"

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
    "LC_ALL": "C",
    "LANGUAGE": "C",
}
KEEP_CONFIGURATION = ("--force-confdef", "--force-confold")

_HELD_BY = re.compile(r"(?P<path>/\S+?)\.? It is held by process (?P<pid>\d+)(?: \((?P<name>[^)]*)\))?")
_DPKG_HELD = re.compile(r"lock (?:was locked|is locked) by another process(?: with pid (?P<pid>\d+))?")
_DPKG_ERROR = re.compile(r"^dpkg: error processing (?:package|archive) (?P<package>\S+) \(--[\w-]+\):$")
_PATH = re.compile(r"['`\s](/[^\s':`]+)")


class Holder(t.NamedTuple):
    """The process that holds a lock; the process id is None where it can't be seen from here."""

    path: str
    pid: int | None
    name: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that can't be seen from here"
        return f"process {self.pid}" + (f" ({self.name})" if self.name else "")


class Locks(t.Protocol):
    """The locks of the package manager, looked at but never taken."""

    def holder(self, path: str) -> Holder | None:
        """The process that holds a lock; None when it is free."""


class Disks(t.Protocol):
    """How full file systems are."""

    def free(self, path: str) -> tuple[str, int]:
        """The mount point of a path, and the bytes that root can still write there."""


class HostLocks:
    """The locks of this host, as the kernel knows them."""

    def holder(self, path: str) -> Holder | None:
        layout = "hhqqi4x"
        wanted = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        try:
            with Path(path).open("rb+") as file:
                kind, _whence, _start, _length, pid = struct.unpack(
                    layout, fcntl.fcntl(file.fileno(), fcntl.F_GETLK, wanted)
                )
        except OSError:
            return None
        if kind == fcntl.F_UNLCK:
            return None
        return Holder(path, pid if pid > 0 else None, self._name(pid))

    def _name(self, pid: int) -> str | None:
        try:
            return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip() or None
        except OSError:
            return None


class HostDisks:
    """The file systems of this host."""

    def free(self, path: str) -> tuple[str, int]:
        place = Path(path)
        while not place.exists():
            place = place.parent
        place = place.resolve()
        status = os.statvfs(place)
        while not place.is_mount():
            place = place.parent
        return str(place), status.f_bavail * status.f_frsize


@dataclass(frozen=True)
class _Dependent:
    name: str
    provides: frozenset[str]
    needs: tuple[frozenset[str], ...]


class AptWriter:
    """Changes packages with apt-get, dpkg and apt-mark. ``lock_timeout`` is in seconds, for each command."""

    def __init__(
        self,
        log: Log,
        run: Run,
        lock_timeout: int,
        *,
        locks: Locks | None = None,
        disks: Disks | None = None,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._run = run
        self._lock_timeout = lock_timeout
        self._locks = locks or HostLocks()
        self._disks = disks or HostDisks()
        self._sleep = sleep
        self._clock = clock

    def refresh(self) -> None:
        self._change(["apt-get", "-q", "update"], (LISTS_LOCK,))

    def apply(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> None:
        self._settle()
        self._discard({package.name for package in install})
        with pinned(pin) as preferences:
            self._change(
                [
                    *("apt-get", "-q"),
                    *preferences,
                    *("-o", f"DPkg::Lock::Timeout={self._lock_timeout}", "-o", "Dpkg::Use-Pty=0"),
                    *(word for option in KEEP_CONFIGURATION for word in ("-o", f"Dpkg::Options::={option}")),
                    *transaction_arguments(install, remove),
                ],
                DPKG_LOCKS,
            )

    def repair(self) -> None:
        self._change(["dpkg", *KEEP_CONFIGURATION, "--configure", "-a"], DPKG_LOCKS)

    def purge(self, names: t.Sequence[str]) -> None:
        if names:
            self._change(["dpkg", "--force-remove-reinstreq", "--purge", *names], DPKG_LOCKS)

    def remove(self, names: t.Sequence[str]) -> None:
        if names:
            self._change(["dpkg", "--force-remove-reinstreq", "--remove", *names], DPKG_LOCKS)

    def hold(self, names: t.Sequence[str]) -> None:
        if names:
            self._change(["apt-mark", "hold", *names], DPKG_LOCKS)

    def unhold(self, names: t.Sequence[str]) -> None:
        if names:
            self._change(["apt-mark", "unhold", *names], DPKG_LOCKS)

    def automatic(self) -> set[str]:
        return set(self._read(["apt-mark", "showauto"]).split())

    def mark_automatic(self, names: t.Sequence[str]) -> None:
        if names:
            self._change(["apt-mark", "auto", *names], DPKG_LOCKS)

    def needed_by_others(self, names: t.Collection[str]) -> dict[str, str]:
        form = "${Package}\t${db:Status-Status}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
        return needed_by_others(self._read(["dpkg-query", "-W", "-f", form]), names)

    def _read(self, command: t.Sequence[str]) -> str:
        result = self._run(command, ENVIRONMENT)
        if result.rc:
            raise PackageError("package_manager", f"{' '.join(command[:2])} failed: {last_line(result)}", result.stderr)
        return result.stdout

    def _settle(self) -> None:
        """Have dpkg take in the journal that a killed dpkg left, without configuring anything: else apt refuses."""
        try:
            pending = any(entry.name.isdigit() for entry in Path(JOURNAL).iterdir())
        except OSError:
            pending = False
        if pending:
            self._change(["dpkg", "--set-selections"], DPKG_LOCKS)

    def _discard(self, names: t.Collection[str]) -> None:
        """Remove what was half installed of these, which neither dpkg configures nor apt brings in time."""
        form = "${Package}\t${db:Status-Eflag}\t${db:Status-Status}\n"
        listing = self._read(["dpkg-query", "-W", "-f", form])
        fields = (line.split("\t") for line in listing.splitlines())
        half = [name for name, flag, state in fields if name in names and (flag != "ok" or state == "half-installed")]
        if half:
            force = ["--force-depends", "--force-remove-reinstreq"]
            self._change(["dpkg", *force, "--remove", *half], DPKG_LOCKS)

    def _change(self, command: t.Sequence[str], locks: t.Sequence[str]) -> None:
        self._wait(locks)
        try:
            result = self._log.run(command, ENVIRONMENT)
        except OSError as error:
            raise self._log_error(error) from error
        if result.rc:
            raise PackageError(*self._reason(command[0], result.rc, result.stdout), result.stdout)

    def _wait(self, paths: t.Sequence[str]) -> None:
        deadline = self._clock() + self._lock_timeout
        told: Holder | None = None
        while True:
            holder = next(filter(None, map(self._locks.holder, paths)), None)
            if holder is None:
                return
            if self._clock() >= deadline:
                raise PackageError("lock", _lock_message(holder.path, str(holder), self._lock_timeout))
            if holder != told:
                self._say(f"Waiting for the lock {holder.path} held by {holder}")
                told = holder
            self._sleep(1)

    def _say(self, line: str) -> None:
        try:
            self._log.say(line)
        except OSError as error:
            raise self._log_error(error) from error

    def _log_error(self, error: OSError) -> PackageError:
        if error.errno == errno.ENOSPC:
            return PackageError("disk", self._disk_message(str(error.filename or "/var/log"), str(error)))
        return PackageError("package_manager", f"The log can't be written: {error}")

    def _reason(self, program: str, code: int, output: str) -> tuple[ErrorKind, str]:
        """Why a command failed, from what it printed."""
        if code < 0:
            return "interrupted", f"{program} was ended by signal {-code} in the middle of its work"
        held = _HELD_BY.search(output)
        if held:
            holder = Holder(held["path"], int(held["pid"]), held["name"])
            return "lock", _lock_message(holder.path, str(holder), self._lock_timeout)
        held = _DPKG_HELD.search(output)
        if held or "is another process using it?" in output:
            who = f"process {held['pid']}" if held and held["pid"] else "another process"
            return "lock", _lock_message(DPKG_LOCKS[0], who, self._lock_timeout)
        full = first_line(output, r"No space left on device|enough free space in")
        if full:
            path = _PATH.search(full)
            return "disk", self._disk_message(path[1] if path else "/var/cache/apt/archives", full)
        if re.search(_UNRESOLVABLE, output, re.MULTILINE):
            reason = unresolvable_reason(Result(code, output, output))
            return "unresolvable", f"The packages can't be installed together any more: {reason}"
        for pattern, kind, text in _REASONS:
            line = first_line(output, pattern)
            if line:
                return kind, text.format(line=plain(line), program=program)
        message = _dpkg_message(program, code, output)
        if self._fullest()[1] < ALMOST_FULL:
            return "disk", self._disk_message("/var", message)
        return "package_manager", message

    def _fullest(self, *more: str) -> tuple[str, int]:
        """The file system with the least room of those that packages are written to, and the bytes that are left."""
        paths = (*more, "/var/lib/dpkg", "/var/cache/apt/archives", "/var/log", "/usr", "/boot", tempfile.gettempdir())
        return min(map(self._disks.free, paths), key=lambda place: place[1])

    def _disk_message(self, path: str, line: str) -> str:
        mount, free = self._fullest(path)
        return (
            f"The disk is full: {mount} has {free / 1e6:.0f} MB left ({plain(line)}); make room there "
            "and run this again"
        )


_UNRESOLVABLE = (
    r"unmet dependencies|held broken packages|Unable to satisfy dependencies"
    r"|^E: (?:Unable to locate package|Version '.*' for '.*' was not found|Package '.*' has no installation candidate)"
)
_REASONS: tuple[tuple[str, ErrorKind, str], ...] = (
    (
        r"Hash Sum mismatch|File has unexpected size",
        "checksum",
        "A download is not what its repository announced: {line}",
    ),
    (r"GPG error|is not signed|NO_PUBKEY|EXPKEYSIG", "signature", "A repository's signature can't be verified: {line}"),
    (r"^(?:E|Err\S*|W): ?.*(?:Failed to fetch|Unable to fetch)", "download", "A download failed: {line}"),
    (
        r"dpkg was interrupted|dpkg (?:exited unexpectedly|received|was killed)",
        "interrupted",
        "dpkg was ended in the middle of its work: {line}",
    ),
)


def needed_by_others(listing: str, names: t.Collection[str]) -> dict[str, str]:
    """Which of these packages an installed one depends on that is not among them, from dpkg-query's listing.

    A line of the listing is name, state, what it provides and what it depends on, separated by tabs. Versions in
    dependencies are not looked at: of two alternatives that are both there, one that stays is enough.
    """
    wanted = set(names)
    staying = [package for package in map(_dependent, listing.splitlines()) if package and package.name not in wanted]
    offered = {package.name for package in staying}.union(*(package.provides for package in staying))
    leaving: dict[str, set[str]] = {}
    for package in map(_dependent, listing.splitlines()):
        if package and package.name in wanted:
            for name in (package.name, *package.provides):
                leaving.setdefault(name, set()).add(package.name)
    needed: dict[str, str] = {}
    for package in staying:
        for alternatives in package.needs:
            if alternatives & offered:
                continue
            for alternative in alternatives & leaving.keys():
                for name in leaving[alternative]:
                    needed.setdefault(name, package.name)
    return needed


def _dependent(line: str) -> _Dependent | None:
    fields = line.split("\t")
    if len(fields) != 4 or fields[1] in {"not-installed", "config-files"}:
        return None
    return _Dependent(
        fields[0],
        frozenset(map(_bare, filter(None, map(str.strip, fields[2].split(","))))),
        tuple(frozenset(map(_bare, clause.split("|"))) for clause in map(str.strip, fields[3].split(",")) if clause),
    )


def _bare(dependency: str) -> str:
    return re.split(r"[\s:(]", dependency.strip(), maxsplit=1)[0]


def _lock_message(path: str, holder: str, seconds: int) -> str:
    return (
        f"The package manager is busy: {holder} holds its lock {path}, and has not given it back within {seconds} s; "
        "wait until it is done, or end it, and run this again"
    )


def _dpkg_message(program: str, code: int, output: str) -> str:
    lines = output.splitlines()
    for index, line in enumerate(lines):
        match = _DPKG_ERROR.match(line.strip())
        if match:
            reason = lines[index + 1].strip() if index + 1 < len(lines) else "no reason given"
            return f"dpkg could not finish {match['package']}: {plain(reason)}"
    line = first_line(output, r"^(?:E|dpkg|apt-mark|Error):? ") or last_line(Result(code, output, ""))
    return f"{program} ended with exit status {code}: {plain(line)}"
