# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where an environment is, and that what was there before comes back unless a change is wholly done.

A change is either made in place, with the old files kept beside as hard links until it is done, or as a new environment
beside, to which the prefix, a symbolic link, then leads. Whatever kills a run, `recover` ends what it began.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import typing as t
from pathlib import Path

OTHERS = ("pkgs", "envs")
"""What lies in the prefix of an installation of conda and is not part of its environment."""

_COPIED = "conda-meta"
"""What tools change in place, so that a hard link would change as well."""


class PlaceError(Exception):
    """A place that can't have the environment, in a sentence."""


class InPlace:
    """An environment that is changed where it is."""

    def __init__(self, prefix: str) -> None:
        self.prefix = Path(prefix)
        name = f".{self.prefix.name}.cudahub"
        # Hard links are for one file system.
        self._aside = (self.prefix / name) if os.path.ismount(self.prefix) else self.prefix.with_name(name)
        self._before, self._new = self._aside / "before", self._aside / "new"
        self._names = self._aside / "names"

    @property
    def current(self) -> Path:
        """Where the environment is that users have."""
        return self.prefix

    def recover(self) -> bool:
        """Bring back what was there before a run that did not end. Raises OSError."""
        begun = self._before.exists() or self._new.exists()
        self.roll_back()
        return begun

    def begin(self) -> Path:
        """Keep what is there, and return where to change it. Raises OSError, PlaceError."""
        self._aside.mkdir(mode=0o700)
        part = self._aside / "part"
        if not self.prefix.exists() or not [one for one in self.prefix.iterdir() if one != self._aside]:
            part.write_text("directory" if self.prefix.exists() else "nothing", encoding="utf-8")
            part.rename(self._new)
            return self.prefix
        part.mkdir()
        names = [one.name for one in self.prefix.iterdir() if one.name not in OTHERS and one != self._aside]
        self._names.write_text("\n".join(names), encoding="utf-8")
        try:
            for name in names:
                _linked(self.prefix / name, part / name)
        except OSError as error:
            _removed(self._aside)
            if error.errno in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise PlaceError(
                    f"the files of {self.prefix} can't be kept aside as hard links ({error.strerror}): run the "
                    "task as their owner, on a file system with hard links"
                ) from error
            raise
        part.rename(self._before)
        return self.prefix

    def commit(self) -> None:
        """Let go of what was there before. Raises OSError."""
        if self._before.exists():
            self._before.rename(self._aside / "done")
        self._new.unlink(missing_ok=True)
        _removed(self._aside)

    def roll_back(self) -> None:
        """Have again what was there before; a second run goes on where this one was killed. Raises OSError."""
        if not self._aside.exists():
            return
        if self._before.exists():
            self._restore()
        elif self._new.exists():
            was_there = self._new.read_text(encoding="utf-8") == "directory"
            if was_there and self.prefix.is_dir():
                for entry in self.prefix.iterdir():
                    if entry != self._aside:
                        _removed(entry)
            elif not was_there:
                _removed(self.prefix)
        self.commit()

    def _restore(self) -> None:
        names = set(self._names.read_text(encoding="utf-8").split("\n"))
        broken = self._aside / "broken"
        broken.mkdir(exist_ok=True)
        self.prefix.mkdir(exist_ok=True)
        waiting = {entry.name for entry in self._before.iterdir()}
        for entry in list(self.prefix.iterdir()):
            if entry != self._aside and (entry.name in waiting or entry.name not in names.union(OTHERS)):
                target = broken / entry.name
                _removed(target)
                entry.rename(target)
        for name in waiting:
            (self._before / name).rename(self.prefix / name)

    def remove(self) -> None:
        """Take the environment away: at once for those who look, then piece by piece. Raises OSError."""
        try:
            if not os.path.ismount(self.prefix):
                self._aside.mkdir(mode=0o700)
                self.prefix.rename(self._aside / "removed")
                _removed(self._aside)
                return
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        for entry in sorted(self.prefix.iterdir(), key=lambda entry: entry.name == _COPIED):
            _removed(entry)
        if not os.path.ismount(self.prefix):
            self.prefix.rmdir()


class Beside:
    """An environment that is built anew beside for each change: the prefix is a link to ``NAME.d/NUMBER``."""

    def __init__(self, prefix: str) -> None:
        self.prefix = Path(prefix)
        self._folder = self.prefix.with_name(f"{self.prefix.name}.d")
        self._mark = self._folder / ".cudahub"
        self._link = self.prefix.with_name(f".{self.prefix.name}.cudahub-link")
        self._built: Path | None = None

    @property
    def current(self) -> Path:
        """Where the environment is that users have."""
        number = self._number()
        return self.prefix if number is None else self._folder / str(number)

    def _number(self) -> int | None:
        if not self.prefix.is_symlink():
            return None
        match = re.fullmatch(rf"{re.escape(self._folder.name)}/(\d+)", os.readlink(self.prefix))
        return int(match[1]) if match else None

    def _numbers(self) -> list[int]:
        if not self._mark.exists():
            return []
        return sorted(int(entry.name) for entry in self._folder.iterdir() if re.fullmatch(r"[1-9]\d*", entry.name))

    @property
    def is_ours(self) -> bool:
        """Whether the prefix is such a link, or will be one when what a run has begun is done."""
        return self._number() is not None or (self._mark.exists() and not os.path.lexists(self.prefix))

    def recover(self) -> bool:
        """Remove what a run that did not end has begun. Raises OSError."""
        self._link.unlink(missing_ok=True)
        current = self._number() or 0
        begun = [number for number in self._numbers() if number > current]
        for number in begun:
            _removed(self._folder / str(number))
        self._tidy()
        return bool(begun)

    def begin(self) -> Path:
        """Return where to build the new environment. Raises OSError, PlaceError."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not self._mark.exists() and next(self._folder.iterdir(), None) is not None:
            raise PlaceError(f"{self._folder} is there and not this module's: move it away, or give another prefix")
        self._mark.touch()
        self._built = self._folder / str(max([*self._numbers(), self._number() or 0]) + 1)
        return self._built

    def commit(self) -> None:
        """Lead the prefix to the new environment, and keep only the one before, which may still run. Raises OSError."""
        if self._built is None:
            raise ValueError("nothing was begun")
        before = self._number()
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(f"{self._folder.name}/{self._built.name}")
        self._link.replace(self.prefix)
        for number in self._numbers():
            if number not in (before, int(self._built.name)):
                _removed(self._folder / str(number))

    def roll_back(self) -> None:
        """Remove the new environment; users have had the old one all the time. Raises OSError."""
        if self._built is not None:
            _removed(self._built)
        self._tidy()

    def _tidy(self) -> None:
        """Remove the directory if nothing but our mark is in it."""
        if self._mark.exists() and not self._numbers() and not self.prefix.is_symlink():
            self._mark.unlink()
            with contextlib.suppress(OSError):  # somebody has put something else there
                self._folder.rmdir()

    def remove(self) -> None:
        """Take the link and all that it may have led to away. Raises OSError."""
        self.prefix.unlink(missing_ok=True)
        for number in self._numbers():
            _removed(self._folder / str(number))
        self._tidy()


Place = t.Union[InPlace, Beside]


def _linked(source: Path, target: Path) -> None:
    """Have a tree a second time: directories anew, all else as hard links, but for what is changed in place."""
    if source.name == _COPIED and source.is_dir():
        shutil.copytree(source, target, symlinks=True)
        _owned(source, target)
        for copied in target.rglob("*"):
            _owned(source / copied.relative_to(target), copied)
    elif source.is_dir() and not source.is_symlink():
        target.mkdir()
        for entry in os.scandir(source):
            _linked(Path(entry.path), target / entry.name)
        shutil.copystat(source, target)
        _owned(source, target)
    else:
        os.link(source, target, follow_symlinks=False)


def _owned(source: Path, target: Path) -> None:
    status = source.lstat()
    if (status.st_uid, status.st_gid) != (target.lstat().st_uid, target.lstat().st_gid):
        os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
