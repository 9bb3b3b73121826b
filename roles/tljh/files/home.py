# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Puts what everybody gets into the home of the user that it runs as: ``home.py NOTEBOOKS [SHARED]``.

Each file comes once. What the user has, has changed or has deleted since, stays as it is. A link leads to the shared
data.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

RECORD = Path(".local/share/cudahub/notebooks")


def copy_new(source: Path, home: Path) -> None:
    """Copy the files that this home has never got."""
    record = home / RECORD
    known = set(record.read_text(encoding="utf-8").splitlines()) if record.exists() else set()
    new = [str(path.relative_to(source)) for path in sorted(source.rglob("*")) if path.is_file()]
    new = [name for name in new if name not in known]
    for name in new:
        try:
            bring(source / name, home / name)
        except OSError as error:
            # It is tried again when the next server starts; the other files come now.
            print(f"{name} could not be brought: {error}", file=sys.stderr)
            continue
        record.parent.mkdir(parents=True, exist_ok=True)
        with record.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")


def bring(source: Path, target: Path) -> None:
    """Copy a file to where there is none; a copy that fails leaves nothing."""
    if os.path.lexists(target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.cudahub-part")
    try:
        shutil.copyfile(source, part)
        os.rename(part, target)
    finally:
        part.unlink(missing_ok=True)


def link(shared: Path, home: Path) -> None:
    """Show the shared data beside the notebooks."""
    place = home / shared.name
    if not os.path.lexists(place):
        place.symlink_to(shared)


def main(arguments: list[str]) -> None:
    """Do both."""
    home = Path.home()
    copy_new(Path(arguments[0]), home)
    if len(arguments) > 1:
        link(Path(arguments[1]), home)


if __name__ == "__main__":
    main(sys.argv[1:])
