# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repositories of apt: those that a host has, those that it should get, and a private apt that reads both.

The private apt has its own lists, caches and sources in a directory of its own. It verifies and reads a repository
that the host doesn't have yet, without the host's locks and without changing anything of the host.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from . import _scratch
from ._address import address, password_in_url, secrets
from ._apt import ENVIRONMENT, first_error
from ._driver_packages import RESTRICTED, Notice, RefusedError
from ._packages import PackageError, RepositoryError

if t.TYPE_CHECKING:
    from ._packages import ErrorKind, Run
    from ._pci import Files

SOURCES = "/etc/apt/sources.list"
SOURCES_PARTS = "/etc/apt/sources.list.d"
LISTS = "/var/lib/apt/lists"
OWN_FILE = f"{SOURCES_PARTS}/cudahub-nvidia-driver.sources"
OWN_KEY = "/etc/apt/keyrings/cudahub-nvidia-driver"

Fetch = t.Callable[[str], bytes]
"""What is at a URL. Raises RepositoryError when it can't be had."""

_ONE_LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>[^#]*)")
_OPTION_NAMES = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
_ALIASES = ("stable", "oldstable")
_SIGNATURE = re.compile(
    r"Missing key|signature|signer|sqv|gpgv|NO_PUBKEY|GOODSIG|public key|not signed|NODATA|expired|valid yet",
    re.IGNORECASE,
)
_NOT_FOUND = re.compile(r"\b404\b|not found|does not have a Release file|No such file")
_CHECKSUM = re.compile(r"Hash Sum mismatch|unexpected size")


@dataclass(frozen=True)
class Entry:
    """Binary packages from some suites at some addresses, as a stanza of a sources file says it."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...] = ()
    options: t.Mapping[str, str] = field(default_factory=dict)
    """All other fields, Signed-By among them, named as in deb822."""
    file: str = ""

    @property
    def signed_by(self) -> str | None:
        return self.options.get("Signed-By")

    def text(self) -> str:
        """The stanza in deb822."""
        fields = {"Types": "deb", "URIs": " ".join(self.uris), "Suites": " ".join(self.suites)}
        if self.components:
            fields["Components"] = " ".join(self.components)
        return "".join(f"{name}: {value}\n" for name, value in {**fields, **self.options}.items())


@dataclass(frozen=True)
class Key:
    """The key that signs a repository: where to get it, what it must be, and where the host keeps it."""

    url: str
    fingerprint: str
    checksum: str | None = None

    @property
    def path(self) -> str:
        return f"{OWN_KEY}-{self.fingerprint}{'.gpg' if self.url.endswith('.gpg') else '.asc'}"


@dataclass(frozen=True)
class Repository:
    """What the host's own sources must be completed with."""

    entries: tuple[Entry, ...]
    key: Key | None = None

    @property
    def text(self) -> str:
        """The content of the sources file."""
        return "# Ansible managed\n" + "\n".join(entry.text() for entry in self.entries)

    def as_dict(self) -> dict[str, t.Any]:
        return {
            "path": OWN_FILE,
            "content": self.text,
            "uris": _unique(uri for entry in self.entries for uri in entry.uris),
            "suites": _unique(suite for entry in self.entries for suite in entry.suites),
            "components": _unique(component for entry in self.entries for component in entry.components),
            "signed_by": self.entries[0].signed_by,
            "key_url": self.key.url if self.key else None,
            "key_path": self.key.path if self.key else None,
            "key_fingerprint": self.key.fingerprint if self.key else None,
            "key_checksum": self.key.checksum if self.key else None,
        }


def host_entries(files: Files) -> tuple[Entry, ...]:
    """The enabled sources of binary packages that a host has, without those in the file that Ansible manages."""
    found = list(parse_one_line(files.read(SOURCES) or "", SOURCES))
    for name in files.names(SOURCES_PARTS):
        path = f"{SOURCES_PARTS}/{name}"
        if path != OWN_FILE and name.endswith(".list"):
            found += parse_one_line(files.read(path) or "", path)
        elif path != OWN_FILE and name.endswith(".sources"):
            found += parse_deb822(files.read(path) or "", path)
    return tuple(found)


def parse_one_line(text: str, file: str) -> t.Iterator[Entry]:
    """The sources in a file of one-line style."""
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match is None:
            continue
        options = {}
        for option in (match["options"] or "").split():
            name, _equals, value = option.partition("=")
            options[_OPTION_NAMES.get(name, name.title())] = value.replace(",", " ")
        yield Entry((match["uri"],), (match["suite"],), tuple(match["components"].split()), options, file)


def parse_deb822(text: str, file: str) -> t.Iterator[Entry]:
    """The sources in a file of deb822 style."""
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t":
                fields[name] = f"{fields.get(name, '')}\n{line}"
            else:
                name, _colon, value = line.partition(":")
                name = {"uris": "URIs"}.get(name.lower(), name.title())
                fields[name] = value.strip()
        types, uris, suites = (fields.pop(name, "").split() for name in ("Types", "URIs", "Suites"))
        components = fields.pop("Components", "").split()
        enabled = fields.pop("Enabled", "yes").lower() not in {"no", "false", "0", "off", "disable", "without"}
        if enabled and "deb" in types and uris:
            kept = {name: value for name, value in fields.items() if not name.startswith("X-")}
            yield Entry(tuple(uris), tuple(suites), tuple(components), kept, file)


def nvidia_repository(url: str, key: Key) -> Repository:
    """NVIDIA's repository, or a mirror of it, which is flat: all is in one directory."""
    return Repository((Entry((url,), ("/",), (), {"Signed-By": f"{key.path} {key.fingerprint}"}),), key)


def offering(entries: t.Iterable[Entry], url: str) -> str | None:
    """The file that has the flat repository of this address; None when none has it."""
    return next((one.file for one in entries if address(url) in map(address, one.uris) and "/" in one.suites), None)


def archive(entries: t.Iterable[Entry], codename: str) -> list[Entry]:
    """The entries of the distribution's archive: those that have component main of this release and its updates."""
    return [one for one in entries if "main" in one.components and any(_belongs(name, codename) for name in one.suites)]


def distribution_repository(
    entries: t.Sequence[Entry], distribution: str, codename: str, url: str | None
) -> Repository | None:
    """What the host's sources lack of the components that hold the driver; None when they lack nothing.

    It is taken from where the host takes component main from, signed by the same key, and from C(url), a mirror of the
    archive, if that is given. Raises PackageError when the host has no source of component main and none is given, and
    RefusedError when the address to be written has a password, as it has in the host's own file.
    """
    own = archive(entries, codename)
    if not own and url is None:
        raise PackageError(
            "not_found",
            f"Neither {SOURCES} nor {SOURCES_PARTS} has component main of {codename}: add the distribution's archive "
            "there, or set nvidia_driver_distro_url to a mirror of it",
        )
    wanted = RESTRICTED[distribution]
    found: list[Entry] = []
    if url is not None:
        found += _mirror(entries, own, distribution, codename, url)
        own = [one for one in own if distribution == "debian" and is_security(one)]
    for one in own:
        for suite in filter(lambda name: _belongs(name, codename), one.suites):
            missing = tuple(name for name in wanted if not all(_has(entries, uri, suite, name) for uri in one.uris))
            if missing and any(map(secrets, one.uris)):
                raise RefusedError([Notice("password_in_url", password_in_url(f"The address in {one.file}"))])
            if missing:
                found.append(Entry(one.uris, (suite,), missing, one.options))
    return Repository(tuple(_joined(found))) if found else None


def _mirror(
    entries: t.Sequence[Entry], own: t.Sequence[Entry], distribution: str, codename: str, url: str
) -> t.Iterator[Entry]:
    """What the host lacks of a mirror: all components, since it may have no other archive."""
    missing = tuple(name for name in ("main", *RESTRICTED[distribution]) if not _has(entries, url, codename, name))
    if missing:
        suites = (codename, f"{codename}-updates", *([f"{codename}-security"] if distribution == "ubuntu" else []))
        same = (one.options for one in own if address(url) in map(address, one.uris))
        keyring = {"Signed-By": f"/usr/share/keyrings/{distribution}-archive-keyring.gpg"}
        yield Entry((url,), suites, missing, next(same, keyring))


def _joined(entries: t.Iterable[Entry]) -> t.Iterator[Entry]:
    """The same, with entries that differ only in their suites made one."""
    suites: dict[tuple[t.Any, ...], list[str]] = {}
    for one in entries:
        suites.setdefault((one.uris, one.components, tuple(one.options.items())), []).extend(one.suites)
    for (uris, components, options), names in suites.items():
        yield Entry(uris, tuple(_unique(names)), components, dict(options))


def is_security(entry: Entry) -> bool:
    """Whether it has the security updates."""
    return any(suite.endswith("-security") for suite in entry.suites)


def _belongs(suite: str, codename: str) -> bool:
    names = (codename, *_ALIASES)
    return suite in {f"{name}{part}" for name in names for part in ("", "-updates", "-security")}


def _has(entries: t.Iterable[Entry], uri: str, suite: str, component: str) -> bool:
    return any(
        address(uri) in map(address, one.uris) and suite in one.suites and component in one.components
        for one in entries
    )


@contextlib.contextmanager
def private_apt(
    run: Run, repository: Repository | None, needed: t.Collection[str], fetch: Fetch, timeout: float
) -> t.Iterator[tuple[list[str], list[RepositoryError]]]:
    """Options that make apt read the host's sources and a repository, both fresh, and what could not be read of them.

    Raises RepositoryError when one of the needed addresses can't be read, PackageError when apt has another trouble.
    """
    with contextlib.ExitStack() as stack:
        place = "a temporary folder"
        try:
            directory = stack.enter_context(_scratch.folder())
            place = str(directory)
            options = _prepare(directory, repository, fetch, timeout)
        except OSError as error:
            raise PackageError("disk", f"The package lists can't be copied to {place}: {error.strerror}") from error
        result = run(["apt-get", "-q", *options, "update"], ENVIRONMENT)
        failures = parse_failures(result.stdout + "\n" + result.stderr, repository.key if repository else None)
        if result.rc and not failures:
            copied = str(directory / "sources.list.d")
            output = (result.stdout + result.stderr).replace(copied, SOURCES_PARTS)
            reason = first_error(result).replace(copied, SOURCES_PARTS)
            raise PackageError(
                "package_manager", f"apt can't read its sources: {reason}; correct it, or move it away", output
            )
        for failure in failures:
            if address(failure.url) in map(address, needed):
                raise failure
        yield options, failures


def _prepare(directory: Path, repository: Repository | None, fetch: Fetch, timeout: float) -> list[str]:
    directory.chmod(0o755)
    parts, lists = directory / "sources.list.d", directory / "lists"
    for path in (parts, lists / "partial", directory / "archives" / "partial"):
        path.mkdir(parents=True)
    for path in Path(LISTS).glob("*"):
        if path.is_file() and path.name != "lock":
            shutil.copy2(path, lists / path.name)
    for path in Path(SOURCES_PARTS).glob("*"):
        if str(path) != OWN_FILE:
            (parts / path.name).symlink_to(path)
    if repository is not None:
        text = repository.text
        if repository.key is not None:
            key = directory / Path(repository.key.path).name
            key.write_bytes(checked_key(repository.key, fetch(repository.key.url)))
            key.chmod(0o644)
            text = text.replace(repository.key.path, str(key))
        (parts / Path(OWN_FILE).name).write_text(text, encoding="utf-8")
    configuration = directory / "apt.conf"
    seconds = max(1, round(timeout))
    configuration.write_text(
        f"""
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::SourceList "{SOURCES if Path(SOURCES).exists() else "/dev/null"}";
Dir::Etc::SourceParts "{parts}";
Dir::State::Lists "{lists}";
Dir::Cache "{directory}";
Dir::Cache::Archives "{directory / "archives"}";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "{seconds}";
Acquire::https::Timeout "{seconds}";
""",
        encoding="utf-8",
    )
    return ["-c", str(configuration)]


def checked_key(key: Key, content: bytes) -> bytes:
    """The content of a key file. Raises RepositoryError when its SHA-256 or its format is another."""
    digest = hashlib.sha256(content).hexdigest()
    expected = (key.checksum or "").rpartition(":")[2].lower()
    if expected and digest != expected:
        raise RepositoryError("checksum", key.url, f"the key's SHA-256 is {digest}, and not {expected} as asked for")
    armored = b"-----BEGIN PGP PUBLIC KEY BLOCK-----" in content
    if key.path.endswith(".asc") and not armored:
        raise RepositoryError(
            "signature", key.url, "this is no OpenPGP key in ASCII armor; the address of a binary key must end in .gpg"
        )
    if key.path.endswith(".gpg") and (armored or content[:1] < b"\x80"):
        raise RepositoryError("signature", key.url, "this is no binary OpenPGP key, though the address ends in .gpg")
    return content


def parse_failures(text: str, key: Key | None) -> list[RepositoryError]:
    """What apt-get update could not read."""
    found: dict[str, tuple[str, str]] = {}
    for match in re.finditer(r"^Err:\d+ (\S+) .*\n((?:  .*\n?)+)", text, re.MULTILINE):
        found.setdefault(match[1], (match[2].splitlines()[0].strip(), match[2]))
    for match in re.finditer(r"^E: The repository '(\S+) .*' ((?:is not|does not) .*)$", text, re.MULTILINE):
        found.setdefault(match[1], (match[2].rstrip("."), match[0]))
    for match in re.finditer(r"^E: Release file for (\S+) (is .*?)\.? Updates", text, re.MULTILINE):
        found.setdefault(re.sub(r"/(dists/.*/)?(In)?Release$", "", match[1]), (match[2], match[0]))
    return [_failure(url, reason, details, key) for url, (reason, details) in found.items()]


def _failure(url: str, reason: str, details: str, key: Key | None) -> RepositoryError:
    kind: ErrorKind = "network"
    reason = re.sub(r"\[IP: [^]]*\]|^Sub-process .* error message is: ", "", reason)
    reason = " ".join(reason.split()).rstrip(".")
    if _NOT_FOUND.search(reason):
        kind = "not_found"
    elif _CHECKSUM.search(reason):
        kind = "checksum"
    elif _SIGNATURE.search(reason):
        kind = "signature"
        if key is not None:
            reason = f"expected is {key.fingerprint}, in the key {key.url}; apt says: {reason}"
    return RepositoryError(kind, url, reason, details)


def _unique(values: t.Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
