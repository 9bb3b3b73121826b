# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages as dnf 4 and rpm have them: read without changing the host, changed in one transaction."""

from __future__ import annotations

import configparser
import fnmatch
import functools
import json
import os
import re
import shutil
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

from . import _scratch
from ._address import masked
from ._apt_sources import checked_key
from ._dnf_program import PROGRAM
from ._driver_packages import is_family
from ._openpgp import fingerprints
from ._packages import Change, Installed, Package, PackageError, RepositoryError, Result, Transaction
from ._pci import HostFiles

if t.TYPE_CHECKING:
    from ._apt_sources import Key
    from ._packages import ErrorKind, Log, Run
    from ._pci import Files

REPOSITORY = "cudahub-nvidia-driver"
"""The id of the repository where the host has none with its address."""

REPOSITORY_DIRECTORY = "/etc/yum.repos.d"
KEY_DIRECTORY = "/etc/pki/rpm-gpg"

PLUGIN_CONF = "/etc/dnf/plugins"
VERSIONLOCK_CONF = f"{PLUGIN_CONF}/versionlock.conf"
VERSIONLOCK_LIST = f"{PLUGIN_CONF}/versionlock.list"
VERSIONLOCK_PACKAGE = "python3-dnf-plugin-versionlock"

ENVIRONMENT = {"LC_ALL": "C.UTF-8", "LANGUAGE": "C", "PYTHONWARNINGS": "ignore"}
POLL = 3.0
"""Seconds between two looks at a lock that another process holds."""

LOCKED = 200
"""dnf's exit status when another process holds its lock."""

QUERY = "%{NAME}\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\t%{ARCH}\n"

_HELD_BY = re.compile(r"locked by (?P<pid>\d+)(?:\s+The application with PID \d+ is: (?P<name>\S+))?")
_RPM_LOCKED = re.compile(r"can't create transaction lock on (?P<path>\S+)")
_SEPARATORS = re.compile(r"[^0-9A-Za-z~^]*")
_NEEDED = re.compile(r"^\s*(?P<capability>\S.*?) is needed by \(installed\) (?P<package>\S+)$", re.MULTILINE)
_INSTALLONLY = re.compile(r"kernel(-rt|-64k)?(-debug)?(-core|-modules|-devel|-devel-matched)?")


def compare_part(one: str, other: str) -> int:
    """Compare two versions or two releases as rpm does: less than 0, 0, or more than 0."""
    while one or other:
        one, other = _SEPARATORS.sub("", one, count=1), _SEPARATORS.sub("", other, count=1)
        if one[:1] in ("~", "^") or other[:1] in ("~", "^"):
            if one[:1] != other[:1]:
                return _rank(one) - _rank(other)
            one, other = one[1:], other[1:]
            continue
        if not one or not other:
            break
        digits = one[0].isdigit()
        left, right = _segment(one, digits), _segment(other, digits)
        if not right:
            return 1 if digits else -1
        key: t.Callable[[str], t.Any] = int if digits else str
        if key(left) != key(right):
            return 1 if key(left) > key(right) else -1
        one, other = one[len(left) :], other[len(right) :]
    return bool(one) - bool(other)


def _rank(text: str) -> int:
    """A tilde is older than the end, which is older than a caret, which is older than anything else."""
    return {"~": 0, "": 1, "^": 2}.get(text[:1], 3)


def _segment(text: str, digits: bool) -> str:
    match = re.match(r"[0-9]*" if digits else r"[A-Za-z]*", text)
    return match.group() if match else ""


def compare(left: str, right: str) -> int:
    """Compare two versions written ``[epoch:]version[-release]``; a missing release equals any."""
    one, other = _split(left), _split(right)
    order = int(one[0]) - int(other[0]) or compare_part(one[1], other[1])
    return order or (compare_part(one[2], other[2]) if one[2] and other[2] else 0)


def _split(text: str) -> tuple[str, str, str]:
    epoch, colon, rest = text.partition(":")
    if not colon or not epoch.isdigit():
        epoch, rest = "0", text
    version, _dash, release = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return epoch, version, release


def _older(one: str, other: str) -> int:
    return compare(other, one)


newest_first = functools.cmp_to_key(_older)
"""Key that sorts versions, the newest before the others."""


def same_address(one: str, other: str) -> bool:
    """Whether two addresses of repositories are the same."""
    return normal_address(one) == normal_address(other)


def normal_address(address: str) -> str:
    """An address as dnf takes it, without a slash at its end."""
    return re.sub(r"^file:/+", "file:///", address).rstrip("/")


def is_configured(files: Files, address: str) -> bool:
    """Whether a repository of the host, that of this role left aside, has this address and is enabled."""
    for name in files.names(REPOSITORY_DIRECTORY):
        if not name.endswith(".repo") or name == f"{REPOSITORY}.repo":
            continue
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(files.read(f"{REPOSITORY_DIRECTORY}/{name}") or "")
        except configparser.Error:
            continue
        for section in parser.sections():
            enabled = parser.get(section, "enabled", fallback="1").strip().lower() in ("1", "true", "yes", "on")
            urls = parser.get(section, "baseurl", fallback="").replace(",", " ").split()
            if enabled and any(same_address(url, address) for url in urls):
                return True
    return False


def needed_repository(address: str, key_url: str, fingerprint: str, checksum: str | None) -> dict[str, str | None]:
    """The repository that the host is to get."""
    return {
        "name": REPOSITORY,
        "path": f"{REPOSITORY_DIRECTORY}/{REPOSITORY}.repo",
        "baseurl": f"{normal_address(address)}/",
        "key_url": key_url,
        "key_path": f"{KEY_DIRECTORY}/{REPOSITORY}-{fingerprint}.asc",
        "key_fingerprint": fingerprint,
        "key_checksum": checksum,
    }


def check_key(key: Key, content: bytes) -> None:
    """Raise RepositoryError unless a file is one key in ASCII armor, with the fingerprint and SHA-256 asked for."""
    checked_key(key, content)
    try:
        found = fingerprints(content)
    except ValueError as error:
        raise RepositoryError("signature", key.url, str(error)) from error
    if found != (key.fingerprint,):
        raise RepositoryError(
            "signature", key.url, f"the fingerprint is {' and '.join(found)}, and not {key.fingerprint} as asked for"
        )


class Row(t.NamedTuple):
    """One installed package; several of them may have the same name."""

    name: str
    version: str
    arch: str

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.version}.{self.arch}"


def parse_rows(text: str) -> tuple[Row, ...]:
    """What rpm printed with QUERY. Keys of signatures are no packages."""
    rows = []
    for line in text.splitlines():
        name, _tab, rest = line.partition("\t")
        version, _tab, arch = rest.partition("\t")
        if version and name != "gpg-pubkey":
            rows.append(Row(name, version.removeprefix("0:"), arch))
    return tuple(rows)


def rows_by_name(rows: t.Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by name, those of the newest version first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    for same in found.values():
        same.sort(key=lambda row: newest_first(row.version))
    return found


def is_installonly(name: str) -> bool:
    """Whether versions of a package are installed beside each other instead of replacing each other."""
    return _INSTALLONLY.fullmatch(name) is not None


def installed(rows: t.Sequence[Row], locks: t.Sequence[str]) -> dict[str, Installed]:
    """Packages by name. Kernel packages have one more entry per version, with the kernel's release in its key.

    A package of the driver that is there in two versions is what an interrupted transaction leaves.
    """
    found = {}
    for name, same in rows_by_name(rows).items():
        newest = same[0]
        versions = {row.version for row in same}
        torn = len(versions) > 1 and is_family(name)
        held = is_locked(newest, locks)
        found[name] = Installed(name, newest.version, "half-installed" if torn else "installed", held)
        if is_installonly(name):
            for row in same:
                found[row.nevra] = Installed(row.nevra, row.version, "installed", is_locked(row, locks))
    return found


def parse_locks(text: str) -> tuple[str, ...]:
    """The entries of versionlock's list."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_locked(row: Row, locks: t.Iterable[str]) -> bool:
    """Whether an entry of versionlock's list keeps this package in this version."""
    return any(fnmatch.fnmatchcase(form, lock) for lock in locks for form in _forms(row))


def lock_names(lock: str) -> set[str]:
    """The names of packages that an entry of versionlock's list may be about."""
    entry = re.sub(r"^!?(\d+:)?", "", lock)
    versioned = re.fullmatch(r"(.+?)-(?:\d+:)?[\d*][^-]*(?:-[^-]+)?", entry)
    return {entry, re.sub(r"\.[^.-]+$", "", entry)} | ({versioned.group(1)} if versioned else set())


def _forms(row: Row) -> tuple[str, ...]:
    """The ways in which versionlock lets a package be written."""
    epoch, version, release = _split(row.version)
    name = row.name
    return (
        name,
        f"{name}.{row.arch}",
        f"{name}-{version}",
        f"{name}-{version}-{release}",
        f"{name}-{version}-{release}.{row.arch}",
        f"{name}-{epoch}:{version}",
        f"{name}-{epoch}:{version}-{release}",
        f"{name}-{epoch}:{version}-{release}.{row.arch}",
        f"{epoch}:{name}-{version}-{release}.{row.arch}",
    )


@dataclass(frozen=True)
class Answer:
    """What a transaction does, as the program tells it."""

    new: tuple[tuple[Row, int], ...]
    gone: tuple[tuple[Row, int], ...]
    kept: tuple[Row, ...]
    """What stays of packages that are gone in another version, as an interrupted transaction leaves them."""
    download_bytes: int
    streams: t.Mapping[str, tuple[str, str]]
    """Streams before and after, by module, of the modules that the packages are of."""

    @classmethod
    def parse(cls, answer: t.Mapping[str, t.Any]) -> Answer:
        def rows(key: str) -> tuple[tuple[Row, int], ...]:
            return tuple((Row(name, version, arch), int(size)) for name, arch, version, size in answer[key])

        streams = {module: (str(old), str(new)) for module, (old, new) in answer["streams"].items()}
        kept = tuple(Row(name, version, arch) for name, arch, version in answer["kept"] if not is_installonly(name))
        return cls(rows("new"), rows("gone"), kept, int(answer["download"]), streams)

    def transaction(self) -> Transaction:
        """The same by name. What is installed beside other versions of itself counts as installed."""
        gone = {(row.name, row.arch): row for row, _size in self.gone}
        install, change = set(), set()
        for row in (*(new for new, _size in self.new), *self.kept):
            old = gone.pop((row.name, row.arch), None)
            if old is None and row not in self.kept:
                install.add(Package(row.name, row.version))
            elif old is not None and old.version != row.version:
                change.add(Change(row.name, old.version, row.version))
        return Transaction(
            install=tuple(sorted(install, key=lambda package: package.name)),
            change=tuple(sorted(change, key=lambda package: package.name)),
            remove=tuple(sorted({Package(row.name, row.version) for row in gone.values()}, key=lambda gone: gone.name)),
            download_bytes=self.download_bytes,
            disk_bytes=sum(size for _row, size in self.new) - sum(size for _row, size in self.gone),
            module_stream=next((f"{name}:{new}" for name, (_old, new) in sorted(self.streams.items()) if new), None),
        )


class Holder(t.NamedTuple):
    """The process that holds a lock, as far as it is known."""

    pid: int | None
    name: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"process {self.pid}" + (f" ({self.name})" if self.name else "")


def lock_holder(result: Result) -> Holder | None:
    """Who kept dnf or rpm from its lock; None when nobody did."""
    text = f"{result.stdout}\n{result.stderr}"
    match = _HELD_BY.search(text)
    if result.rc == LOCKED:
        return Holder(int(match.group("pid")), match.group("name")) if match else Holder(None, None)
    return Holder(None, None) if result.rc and _RPM_LOCKED.search(text) else None


def failure(result: Result) -> PackageError:
    """What dnf printed as one sentence, without a full stop, and the kind of it."""
    text = f"{result.stdout}\n{result.stderr}"
    if result.rc < 0:
        return PackageError("interrupted", f"dnf was ended by signal {-result.rc} before it was done", text.strip())
    for kind, pattern, sentence in _FAILURES:
        match = pattern.search(text)
        if match:
            words = {name: (value or "").strip().rstrip(".") for name, value in match.groupdict().items()}
            return PackageError(kind, sentence.format(**words), text.strip())
    return PackageError("package_manager", f"dnf failed: {_last_error(text, result.rc)}", text.strip())


def _last_error(text: str, code: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("Error: ")]
    line = errors[0][len("Error: ") :] if errors else lines[-1] if lines else f"exit status {code}"
    return line.rstrip(".")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.MULTILINE)


_FAILURES: tuple[tuple[ErrorKind, re.Pattern[str], str], ...] = (
    (
        "disk",
        _pattern(r"needs (?P<size>\S+) more space on the (?P<path>\S+) filesystem"),
        "{path} needs {size} more free space",
    ),
    ("disk", _pattern(r"(?P<what>.*No space left on device)"), "{what}"),
    (
        "signature",
        _pattern(r"^Public key for (?P<file>\S+) is not installed"),
        "the key of the signature of {file} is not trusted",
    ),
    ("signature", _pattern(r"^Package (?P<file>\S+) is not signed"), "{file} is not signed"),
    (
        "signature",
        _pattern(r"(?P<what>.*(?:GPG signature verification error|GPG check FAILED|Bad GPG signature).*)"),
        "{what}",
    ),
    (
        "checksum",
        _pattern(r"Downloading successful, but checksum doesn't match\.[\s\S]*?for repo '(?P<repository>[^']+)'"),
        "what repository {repository} sends does not have the checksum that its index says",
    ),
    (
        "checksum",
        _pattern(r"^\[MIRROR\] (?P<file>\S+): (?:.*Inconsistent server data|.*checksum doesn't match)"),
        "{file} is not the file that the repository's index describes",
    ),
    (
        "download",
        _pattern(r"^\[(?:MIRROR|FAILED)\] (?P<file>\S+): (?P<reason>Status code: \d+ for \S+|Curl error .*)"),
        "{file} can't be downloaded: {reason}",
    ),
    (
        "not_found",
        _pattern(r"Status code: (?P<code>404|410) for (?P<url>\S+)"),
        "{url} does not exist (status {code})",
    ),
    ("network", _pattern(r"Status code: (?P<code>\d+) for (?P<url>\S+)"), "{url} answers with status {code}"),
    (
        "network",
        _pattern(r"Curl error \(\d+\): .*? for (?P<url>\S+)(?: \[(?P<reason>[^\]]+)\])"),
        "{url} can't be read: {reason}",
    ),
    ("network", _pattern(r"Curl error \((?P<code>\d+)\): (?P<reason>.*)"), "{reason} (curl error {code})"),
    (
        "not_found",
        _pattern(r"Failed to download metadata for repo '(?P<repository>[^']+)': (?P<reason>.*)"),
        "repository {repository} can't be read: {reason}",
    ),
    (
        "download",
        _pattern(r"Error downloading packages:\s+(?P<package>\S+): (?P<reason>.*)"),
        "{package} can't be downloaded: {reason}",
    ),
    ("unresolvable", _pattern(r"- (?P<reason>nothing provides .*)"), "{reason}"),
    (
        "unresolvable",
        _pattern(r"All matches were filtered out by (?P<filter>\w+) filtering for argument: (?P<package>\S+)"),
        "{package} is there, but hidden by {filter} filtering",
    ),
    ("unresolvable", _pattern(r"No match for argument: (?P<package>\S+)"), "no repository has {package}"),
    (
        "unresolvable",
        _pattern(
            r"Problem(?: \d+)?: (?:(?:conflicting requests|problem with installed package \S+)\s+- )*(?P<reason>.*)"
        ),
        "{reason}",
    ),
    ("unresolvable", _pattern(r"^\s+(?P<reason>file \S+ .*conflicts with file from package .*)"), "{reason}"),
    (
        "unresolvable",
        _pattern(r"(?P<reason>The operation would result in removing the following protected packages: .*)"),
        "{reason}",
    ),
)


def interpreter(program: str | None = None) -> list[str]:
    """The command of dnf's own Python, from the first line of its program. Raises PackageError without dnf 4."""
    path = program or shutil.which("dnf")
    if path is None:
        raise PackageError("package_manager", "this host has neither apt-get nor dnf")
    try:
        with Path(os.path.realpath(path)).open("rb") as file:
            first = file.readline(256)
    except OSError as error:
        raise PackageError("package_manager", f"{path} can't be read: {error.strerror}") from error
    if not first.startswith(b"#!") or b"python" not in first:
        raise PackageError("package_manager", f"{path} is not dnf 4, the only one that this role knows")
    return first[2:].decode().split()


class Dnf:
    """Runs dnf with requests of ours. ``lock_timeout`` is how many seconds a command waits for a lock."""

    def __init__(
        self,
        run: Run,
        lock_timeout: int,
        *,
        files: Files | None = None,
        python: t.Sequence[str] | None = None,
        say: t.Callable[[str], None] | None = None,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._lock_timeout = lock_timeout
        self._files = files or HostFiles()
        self._python = python
        self._say = say
        self._sleep = sleep
        self._clock = clock

    def ask(
        self, command: str, request: t.Mapping[str, t.Any], options: t.Sequence[str] = (), *, dry: bool = False
    ) -> t.Any:
        """The answer to a request. Raises PackageError; dry, an answer is all that counts."""
        answer, result = self.attempt(command, request, options)
        if answer is None or (result.rc and not dry):
            raise failure(result)
        return answer

    def attempt(
        self, command: str, request: t.Mapping[str, t.Any], options: t.Sequence[str] = ()
    ) -> tuple[t.Any, Result]:
        """The answer, None if there is none, and how dnf ended. Raises PackageError("lock")."""
        with _scratch.folder() as folder:
            program, question, answer = folder / "cudahub_dnf.py", folder / "request.json", folder / "answer.json"
            program.write_text(PROGRAM, encoding="utf-8")
            question.write_text(json.dumps({**request, "answer": str(answer)}), encoding="utf-8")
            result = self.wait(
                self._run,
                [
                    *(self._python or interpreter()),
                    str(program),
                    *self._without_family_locks(folder),
                    "--setopt=exit_on_lock=1",
                    "--setopt=install_weak_deps=0",
                    "--setopt=clean_requirements_on_remove=0",
                    *options,
                    command,
                    str(question),
                ],
            )
            if not answer.exists():
                return None, result
            return json.loads(answer.read_text(encoding="utf-8")), result

    def wait(self, run: Run, command: t.Sequence[str]) -> Result:
        """Run a command, again and again while another process holds its lock. Raises PackageError("lock")."""
        deadline = self._clock() + self._lock_timeout
        said = None
        while True:
            result = run(command, ENVIRONMENT)
            holder = lock_holder(result)
            if holder is None:
                return result
            if self._clock() >= deadline:
                raise PackageError(
                    "lock",
                    f"{holder} holds the package manager's lock, and did not give it up within "
                    f"{self._lock_timeout} seconds",
                    f"{result.stdout}\n{result.stderr}".strip(),
                )
            if self._say and holder != said:
                self._say(f"Waiting for the package manager's lock held by {holder}")
                said = holder
            self._sleep(POLL)

    def query(self, *arguments: str) -> tuple[Row, ...]:
        """Installed packages, with rpm."""
        result = self._run(["rpm", "-q", "--qf", QUERY, *arguments], ENVIRONMENT)
        if result.rc and "-a" in arguments:
            raise PackageError(
                "package_manager", f"rpm can't list the packages: {_last_error(result.stderr, result.rc)}"
            )
        return parse_rows(result.stdout)

    def locks(self) -> tuple[str, ...]:
        """The entries of versionlock's list; none without the plugin."""
        return parse_locks(self._files.read(self._lock_list()) or "")

    def _lock_list(self) -> str:
        configuration = self._files.read(VERSIONLOCK_CONF) or ""
        match = re.search(r"^\s*locklist\s*=\s*(\S+)", configuration, re.MULTILINE)
        return match.group(1) if match else VERSIONLOCK_LIST

    def _without_family_locks(self, folder: Path) -> list[str]:
        """Options that have dnf heed all of versionlock's list but what is about packages of the driver."""
        locks = self.locks()
        others = [lock for lock in locks if not any(is_family(name) for name in lock_names(lock))]
        if len(others) == len(locks):
            return []
        (folder / "versionlock.list").write_text("".join(f"{lock}\n" for lock in others), encoding="utf-8")
        configuration = f"[main]\nenabled = 1\nlocklist = {folder}/versionlock.list\n"
        (folder / "versionlock.conf").write_text(configuration, encoding="utf-8")
        return [f"--setopt=pluginconfpath={PLUGIN_CONF},{folder}"]


class DnfReader:
    """Reads packages with rpm and dnf.

    ``address`` is that of NVIDIA's repository or its mirror: the driver's packages count only if they come from
    there. It is read even if the host has not got it yet, and then without a trace in its configuration. ``timeout``
    bounds each network operation, ``lock_timeout`` the wait for a lock of dnf, in seconds.
    """

    def __init__(
        self, run: Run, address: str | None = None, timeout: int = 60, lock_timeout: int = 300, **parts: t.Any
    ) -> None:
        self._dnf = Dnf(run, lock_timeout, **parts)
        self._address = None if address is None else normal_address(address)
        self._options = (f"--setopt=timeout={timeout}", "--setopt=retries=2")
        self._offered: dict[str, dict[str, str]] | None = None
        self._addresses: dict[str, str] = {}

    def installed(self) -> dict[str, Installed]:
        return installed(self._dnf.query("-a"), self._dnf.locks())

    def available(self, pattern: re.Pattern[str]) -> dict[str, tuple[str, ...]]:
        found = {}
        for name, offered in self._offers().items():
            versions = [version for version, repository in offered.items() if self._counts(name, repository)]
            if versions and pattern.fullmatch(name):
                found[name] = tuple(sorted(versions, key=newest_first))
        return found

    def origin(self, package: Package) -> str | None:
        repository = self._offers().get(package.name, {}).get(package.version)
        return None if repository is None else masked(self._addresses.get(repository, repository))

    def simulate(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> Transaction:
        request = {**self._repository(), **transaction_request(install, remove, pin)}
        options = ["-y", "--assumeno", *self._options]
        return Answer.parse(self._dnf.ask("cudahub-transaction", request, options, dry=True)).transaction()

    def _repository(self) -> dict[str, str]:
        return {"address": self._address, "repository": REPOSITORY} if self._address else {}

    def _counts(self, name: str, repository: str) -> bool:
        if self._address is None or not is_family(name):
            return True
        return same_address(self._addresses.get(repository, ""), self._address)

    def _offers(self) -> dict[str, dict[str, str]]:
        """Repository by version by name. Kernel packages have one more entry per version, as in installed()."""
        if self._offered is None:
            answer = self._dnf.ask("cudahub-available", self._repository(), self._options)
            self._addresses = answer["repositories"]
            offered: dict[str, dict[str, str]] = {}
            for name, version, arch, repository in answer["packages"]:
                offered.setdefault(name, {})[version] = repository
                if is_installonly(name):
                    offered[Row(name, version, arch).nevra] = {version: repository}
            self._offered = offered
        return self._offered


def transaction_request(
    install: t.Sequence[Package],
    remove: t.Sequence[str],
    pin: str | None = None,
    *,
    exact: bool = False,
    streams: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """A request for a transaction. Exact, nothing but what is named may be removed. Streams are set by module."""
    return {
        "install": [[package.name, package.version] for package in install],
        "remove": list(remove),
        "pin": pin,
        "exact": exact,
        "streams": dict(streams or {}),
    }


class DnfWriter:
    """Changes packages with dnf and rpm. ``lock_timeout`` is in seconds, for each command."""

    def __init__(self, log: Log, run: Run, lock_timeout: int, **parts: t.Any) -> None:
        self._log = log
        self._dnf = Dnf(log.run, lock_timeout, say=log.say, **parts)
        self._reader = Dnf(run, lock_timeout, say=log.say, **parts)
        self._read = run
        self._streams: dict[str, str] = {}
        """The streams before the first of our transactions that changed them."""

    def refresh(self) -> None:
        self._command("dnf", "--setopt=exit_on_lock=1", "--refresh", "makecache")

    def apply(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> None:
        self._transaction(transaction_request(install, remove, pin))

    def repair(self) -> None:
        """End what an interrupted transaction left: of a package in two versions, the older one goes."""
        for name, same in sorted(rows_by_name(self._reader.query("-a")).items()):
            stale = [row.nevra for row in same if row.version != same[0].version]
            if stale and is_family(name):
                self._command("rpm", "-e", "--nodeps", *stale)

    def purge(self, names: t.Sequence[str]) -> None:
        if names:
            self._transaction(transaction_request((), names, exact=True, streams=self._streams_without(names)))

    def remove(self, names: t.Sequence[str]) -> None:
        self.purge(names)

    def needed_by_others(self, names: t.Collection[str]) -> dict[str, str]:
        rows = self._reader.query("-a")
        going = [row for row in rows if row.name in names or row.nevra in names]
        if not going:
            return {}
        result = self._read(["rpm", "-e", "--test", *(row.nevra for row in going)], ENVIRONMENT)
        needed: dict[str, str] = {}
        for match in _NEEDED.finditer(f"{result.stdout}\n{result.stderr}"):
            others = [row.name for row in rows if row.nevra == match.group("package")]
            for name in self._providers(match.group("capability")) & {row.name for row in going}:
                needed.setdefault(name, others[0] if others else match.group("package"))
        return needed

    def hold(self, names: t.Sequence[str]) -> None:
        rows = rows_by_name(self._reader.query("-a"))
        loose = [name for name in names if name in rows and not is_locked(rows[name][0], self._reader.locks())]
        self.unhold(loose)
        if loose:
            self._versionlock("add", loose)

    def unhold(self, names: t.Sequence[str]) -> None:
        locked = {name for lock in self._reader.locks() for name in lock_names(lock)}
        held = [name for name in names if name in locked]
        if held:
            self._versionlock("delete", held)

    def automatic(self) -> set[str]:
        command = ["dnf", "-q", "--disablerepo=*", "repoquery", "--userinstalled", "--qf", "%{name}"]
        result = self._reader.wait(self._read, command)
        if result.rc:
            raise failure(result)
        return {row.name for row in self._reader.query("-a")} - set(result.stdout.split())

    def mark_automatic(self, names: t.Sequence[str]) -> None:
        if names:
            self._command("dnf", "--disablerepo=*", "-y", "mark", "remove", *names)

    def _transaction(self, request: t.Mapping[str, t.Any]) -> None:
        reply, result = self._dnf.attempt("cudahub-transaction", request, ["-y"])
        answer = None if reply is None else Answer.parse(reply)
        before = {module: old for module, (old, new) in answer.streams.items() if old != new} if answer else {}
        if result.rc or answer is None:
            error = failure(result)
            if before:  # dnf has written them down before it failed
                self._dnf.attempt("cudahub-transaction", transaction_request((), (), streams=before), ["-y"])
            raise error
        self._streams = {**before, **self._streams}
        left = {row.name for row, _size in answer.new}
        self.unhold(sorted({row.name for row, _size in answer.gone if is_family(row.name)} - left))

    def _streams_without(self, names: t.Collection[str]) -> dict[str, str]:
        """The streams to set when packages go: those of before, or none once nothing of the driver is left."""
        if self._streams:
            return self._streams
        left = {row.name for row in self._reader.query("-a") if is_family(row.name)} - set(names)
        return {} if left else {"nvidia-driver": ""}

    def _providers(self, capability: str) -> set[str]:
        return {row.name for row in self._reader.query("--whatprovides", capability.partition(" ")[0])}

    def _versionlock(self, action: str, names: t.Sequence[str]) -> None:
        result = self._dnf.wait(self._log.run, ["dnf", "-q", "--disablerepo=*", "versionlock", action, *names])
        if result.rc and "No such command" in f"{result.stdout}{result.stderr}":
            raise PackageError(
                "package_manager",
                f"dnf can't hold packages without its plugin: install {VERSIONLOCK_PACKAGE}",
                result.stdout,
            )
        if result.rc:
            raise failure(result)

    def _command(self, *command: str) -> None:
        result = self._dnf.wait(self._log.run, command)
        if result.rc:
            raise failure(result)
