# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run at a time: what one run brings must not be what another one's rollback takes away."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import typing as t
from pathlib import Path

from ._packages import PackageError

POLL = 0.5
"""Seconds between two looks at a lock that another process holds."""

ATTEMPTS = 100
"""How often a file is made whose directory another run removes."""

_OTHER = "another run that changes the driver's packages"


@contextlib.contextmanager
def exclusive(
    record: str, timeout: int, say: t.Callable[[str], None], other: str = _OTHER, *, tidy: bool = True
) -> t.Iterator[t.IO[str]]:
    """Keep other runs with the same record out.

    The end of this process, of whatever kind, ends the lock, unless a program that it started has the file that is
    yielded. ``tidy`` removes a directory that is left empty.

    Raises PackageError("lock") when another run has not ended within ``timeout`` seconds, OSError when the record's
    directory can't be written.
    """
    path = Path(f"{record}.lock")
    with _locked(path, time.monotonic() + timeout, timeout, say, other) as file:
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield file
        finally:
            path.unlink(missing_ok=True)
            if tidy:
                _remove_empty(path.parent)


def _locked(path: Path, deadline: float, timeout: int, say: t.Callable[[str], None], other: str) -> t.IO[str]:
    told = False
    while True:
        file = _opened(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip()
            file.close()
        else:
            if _is_at(file, path):
                file.truncate(0)
                return file
            file.close()
            continue
        who = f"{other}, process {holder}" if holder else other
        beginning = f"{who[0].upper()}{who[1:]}"
        if time.monotonic() >= deadline:
            raise PackageError(
                "lock",
                f"{beginning}, was not done within {timeout} s: wait until it is, or end it, and run this again",
            )
        if not told and holder:
            say(f"Waiting for {who}")
            told = True
        time.sleep(POLL)


def _opened(path: Path) -> t.IO[str]:
    for _attempt in range(ATTEMPTS):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # a run that ends may have removed the empty directory in between
        with contextlib.suppress(FileNotFoundError):
            return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="utf-8")
    raise FileNotFoundError(errno.ENOENT, "no file can be made here", str(path.parent))


def _is_at(file: t.IO[str], path: Path) -> bool:
    """Whether an open file is still the one of this name: the run before deletes it when it ends."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove_empty(directory: Path) -> None:
    """Remove a directory that holds nothing; one that can't be removed is not empty, or not ours."""
    with contextlib.suppress(OSError):
        directory.rmdir()
