# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's report on the controller's disk: one writer at a time, each file whole or not there."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.cudahub.gpu.plugins.module_utils._packages import PackageError
from ansible_collections.cudahub.gpu.plugins.module_utils._run_lock import exclusive

from . import _report_history
from ._report import Report, lines
from ._report_junit import junit
from ._report_page import page

MODE = 0o644


class ReportError(Exception):
    """The report can't be written; the text is a sentence for the user."""


@dataclass(frozen=True)
class Written:
    """What there is after a report was written, or would be in check mode."""

    before: str
    after: str
    files: dict[str, str]
    warnings: tuple[str, ...]


def write(
    report: Report, folder: Path, *, keep: int, wait: int, say: Callable[[str], None], dry: bool = False
) -> Written:
    """Write a report into a folder, keep ``keep`` earlier ones in its history; with ``dry``, only look."""
    try:
        _refuse(folder)
        if dry:
            return _write(report, folder, keep=keep, dry=True)
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(
            str(folder / ".report"), wait, say, f"another run that writes a report into {folder}", tidy=False
        ):
            return _write(report, folder, keep=keep, dry=False)
    except PackageError as error:
        raise ReportError(f"{error}.") from error
    except OSError as error:
        place = "" if error.filename in (None, str(folder)) else f" {error.filename}:"
        raise ReportError(
            f"The report can't be written into {folder}:{place} {error.strerror}."
            " Give path a directory that this user may write to."
        ) from error


def _refuse(folder: Path) -> None:
    """Raise OSError or ReportError where nothing can be written."""
    for place in (folder, folder / "history"):
        # A link to nowhere is there, too: no directory can be made in its place.
        there = next(path for path in (place, *place.parents) if os.path.lexists(path))
        if code := _trouble(there):
            raise OSError(code, os.strerror(code), str(there))
    for name in ("index.html", "report.json", "junit.xml"):
        if (folder / name).is_dir():
            raise ReportError(f"{folder / name} is a directory, and the report's file belongs there: move it away.")


def _trouble(there: Path) -> int:
    """Why nothing can be written in a directory, as an error number, or 0."""
    if not there.is_dir():
        return errno.ENOTDIR
    system = os.statvfs(there)
    if system.f_flag & os.ST_RDONLY:
        return errno.EROFS
    if not os.access(there, os.W_OK | os.X_OK):
        return errno.EACCES
    # Where a file system says of no blocks at all, as /proc, nobody knows.
    full = system.f_blocks and not (system.f_bavail if os.geteuid() else system.f_bfree)
    return errno.ENOSPC if full else 0


def _write(report: Report, folder: Path, *, keep: int, dry: bool) -> Written:
    earlier = _report_history.read(folder / "history")
    now = _report_history.run_of(report)
    place = _free(folder / "history" / _report_history.file_name(report.time))
    files = {
        "html": folder / "index.html",
        "json": folder / "report.json",
        "junit": folder / "junit.xml",
        "history": place,
    }
    before, warnings = _earlier_lines(files["json"])
    if not dry:
        place.parent.mkdir(exist_ok=True)
        replace(place, now.as_text())
        replace(files["json"], json.dumps(report.as_dict(), separators=(",", ":")) + "\n")
        replace(files["junit"], junit(report))
        replace(files["html"], page(report, [*earlier.runs, now]))
        for path in _report_history.superfluous([*earlier.paths, place], keep):
            path.unlink(missing_ok=True)
    after = "".join(f"{line}\n" for line in lines(report))
    return Written(before, after, {kind: str(path) for kind, path in files.items()}, (*earlier.unreadable, *warnings))


def _free(path: Path) -> Path:
    """A path that nothing has: two reports of one second are two."""
    count = 1
    free = path
    while free.exists():
        count += 1
        free = path.with_name(f"{path.stem}-{count}{path.suffix}")
    return free


def _earlier_lines(path: Path) -> tuple[str, tuple[str, ...]]:
    """What the last report said in short."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        said = [found["summary"]["text"], *(one["text"] for one in found["problems"][:200])]
        return "".join(f"{line}\n" for line in said), ()
    except FileNotFoundError:
        return "", ()
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", (f"{path} was no report and is replaced.",)


def replace(path: Path, content: str) -> None:
    """Write a file beside its place and put it there when it is whole."""
    draft = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
