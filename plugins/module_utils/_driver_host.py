# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host for which the installation of the driver is planned, as it really is."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import typing as t
from dataclasses import dataclass
from pathlib import Path

from . import _apt_sources, _dkms, _dnf, _preflight
from ._apt import AptReader
from ._driver_packages import Notice, RefusedError
from ._driver_record import RECORD, PlanError, Record, RecordFile
from ._gpu import read_marker
from ._openpgp import is_key
from ._pci import HostFiles

if t.TYPE_CHECKING:
    from ._driver_packages import Available, Source, System
    from ._packages import Installed, PackageError, Reader, Run
    from ._pci import Files


@dataclass(frozen=True)
class RepositoryWish:
    """Where the driver comes from. ``url`` is None where the host's own sources say it."""

    source: Source
    url: str | None = None
    key: _apt_sources.Key | None = None


class _RealHost:
    """What is the same for every package manager."""

    def __init__(self, run: Run, wish: RepositoryWish) -> None:
        self._run, self._wish = run, wish
        self.files: Files = HostFiles()
        marker = read_marker(self.files)
        self.machine_files: Files = self.files if marker is None else HostFiles(marker.root)
        self.uid = os.geteuid()

    def system(self) -> System:
        return _preflight.read_system(self.files, platform.release(), platform.machine())

    def _check_key(self, key: _apt_sources.Key) -> None:
        """Raise RefusedError when nobody has said what the key's fingerprint is."""
        if not key.fingerprint:
            raise RefusedError([_preflight.key_fingerprint_missing(self.system(), key.url)])

    def builds(self) -> tuple[_dkms.Build, ...]:
        return _dkms.status(self._run)

    def record(self) -> Record:
        try:
            return RecordFile(self.files.path(RECORD)).read() or Record()
        except PlanError as error:
            raise RefusedError([Notice("record", str(error))]) from error

    @property
    def key_url(self) -> str | None:
        return self._wish.key.url if self._wish.key else None

    def with_key(self, repository: dict[str, t.Any]) -> dict[str, t.Any]:
        """A repository as the role takes it, with whether the host has its key."""
        path, fingerprint = repository["key_path"], repository["key_fingerprint"]
        try:
            there = path is None or is_key(Path(self.files.path(path)).read_bytes(), fingerprint)
        except OSError:
            there = False
        return {**repository, "key_there": there}

    def writable(self, path: str) -> bool:
        return os.access(path, os.W_OK | os.X_OK)

    def space(self, path: str) -> _preflight.Space:
        there = next(one for one in (Path(path), *Path(path).parents) if one.exists())
        status = os.statvfs(there)
        return _preflight.Space(there.stat().st_dev, status.f_bavail * status.f_frsize)

    def size(self, path: str) -> int:
        return Path(path).stat().st_size


@dataclass(frozen=True)
class _AptCatalogue:
    reader: AptReader
    unread: t.Sequence[PackageError]
    sources: tuple[str, ...]

    def offered(self, pattern: re.Pattern[str]) -> Available:
        return self.reader.available(pattern, self.sources)


class AptHost(_RealHost):
    """A host with apt."""

    def __init__(self, run: Run, wish: RepositoryWish, fetch: _apt_sources.Fetch, timeout: float) -> None:
        super().__init__(run, wish)
        self._fetch, self._timeout = fetch, timeout
        self._entries = _apt_sources.host_entries(self.files)

    def installed(self) -> dict[str, Installed]:
        return AptReader(self._run).installed()

    def owner(self, path: str) -> str | None:
        for name in (path, path[4:] if path.startswith("/usr/") else f"/usr{path}"):
            result = self._run(["dpkg-query", "-S", name], {"LC_ALL": "C"})
            if result.rc == 0:
                return result.stdout.split(":", 1)[0]
        return None

    def repository(self) -> dict[str, t.Any] | None:
        needed = self._needed()
        return None if needed is None else self.with_key(needed.as_dict())

    @contextlib.contextmanager
    def catalogue(self) -> t.Iterator[_AptCatalogue]:
        needed = self._needed()
        sources = self._sources(needed)
        must = sources if self._wish.url is None else (self._wish.url,)
        with _apt_sources.private_apt(self._run, needed, must, self._fetch, self._timeout) as (options, unread):
            yield _AptCatalogue(AptReader(self._run, options), unread, sources)

    def _needed(self) -> _apt_sources.Repository | None:
        url, key = self._wish.url, self._wish.key
        if self._wish.source == "nvidia":
            if url is None or key is None or _apt_sources.offering(self._entries, url):
                return None
            self._check_key(key)
            return _apt_sources.nvidia_repository(url, key)
        distribution = self.system().distribution
        return _apt_sources.distribution_repository(self._entries, distribution, self._codename(), url)

    def _sources(self, needed: _apt_sources.Repository | None) -> tuple[str, ...]:
        """The addresses from which a driver may come. A mirror takes the place of the host's archive."""
        if self._wish.source == "nvidia":
            return (self._wish.url or "",)
        url = self._wish.url
        entries = _apt_sources.archive(self._entries, self._codename())
        uris = [uri for entry in entries if url is None or _apt_sources.is_security(entry) for uri in entry.uris]
        uris += [uri for entry in (needed.entries if needed else ()) for uri in entry.uris]
        return tuple(uris if url is None else [url, *uris])

    def _codename(self) -> str:
        return _preflight.os_release(self.files).get("VERSION_CODENAME", "")


@dataclass(frozen=True)
class _DnfCatalogue:
    reader: Reader
    unread: t.Sequence[PackageError] = ()

    def offered(self, pattern: re.Pattern[str]) -> Available:
        return self.reader.available(pattern)


class DnfHost(_RealHost):
    """A host with dnf, whose lock is waited for as many seconds as ``lock_timeout`` says."""

    def __init__(
        self, run: Run, wish: RepositoryWish, fetch: _apt_sources.Fetch, timeout: float, lock_timeout: int
    ) -> None:
        super().__init__(run, wish)
        self._fetch = fetch
        self._reader = _dnf.DnfReader(run, wish.url, round(timeout), lock_timeout)

    def installed(self) -> dict[str, Installed]:
        return self._reader.installed()

    def owner(self, path: str) -> str | None:
        result = self._run(["rpm", "-qf", "--qf", "%{NAME}\\n", path], {"LC_ALL": "C"})
        return result.stdout.split("\n", 1)[0] if result.rc == 0 else None

    def repository(self) -> dict[str, t.Any] | None:
        url, key = self._wish.url, self._wish.key
        if url is None or key is None or _dnf.is_configured(self.files, url):
            return None
        self._check_key(key)
        return self.with_key(_dnf.needed_repository(url, key.url, key.fingerprint, key.checksum))

    @contextlib.contextmanager
    def catalogue(self) -> t.Iterator[_DnfCatalogue]:
        key = self._wish.key
        if key is not None and self.repository() is not None:
            _dnf.check_key(key, self._fetch(key.url))
        yield _DnfCatalogue(self._reader)
