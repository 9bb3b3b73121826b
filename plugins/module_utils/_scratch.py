# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders for as long as they are needed, and an end to those that a killed process left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
import typing as t
from pathlib import Path

PREFIX = "cudahub-packages-"
LEFT_AFTER = 3600
"""Seconds for which a folder of nobody is left alone: a program that outlived its module may still read it."""


@contextlib.contextmanager
def folder() -> t.Iterator[Path]:
    """A new folder, for this user only, that is in use until the end of the block or of this process.

    What other processes of this user have left of such folders is removed. Raises OSError.
    """
    sweep()
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with _locked(path):
            yield path
    finally:
        _remove(path)


def sweep() -> None:
    """Remove the old folders of this user that no process uses."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another process removes it now, or uses it
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            if time.time() - status.st_mtime > LEFT_AFTER:
                with _locked(path):
                    _remove(path)


@contextlib.contextmanager
def _locked(path: Path) -> t.Iterator[None]:
    """Have a folder in use. Raises OSError when another process has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a folder; what can't be removed now is left for a later sweep."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path)
