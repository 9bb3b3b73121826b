# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say, from the log of `make test`, which sessions failed and why: failures.py LOG."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

HEADER = re.compile(r"=+ (\S) (\S+): .* =+")
COLOR = re.compile(r"\x1b\[[0-9;]*m")
WHY = re.compile(
    r"FAILED (?!- RETRYING)|ERROR[: ]|\[ERROR\]|FATAL: |fatal: |E  |error: |\S+:\d+: error|\S+:\d+:\d+: "
    r"|[A-Z]{1,4}\d{3,4} "
)
LINES, LAST, WIDTH = 8, 2, 200


def failures(log: Iterable[str]) -> Iterator[str]:
    """Yield the name of each session that failed, and its first lines that say why, or else its last ones."""
    sessions: list[tuple[str, list[str]]] = []
    failed = False
    for line in log:
        plain = COLOR.sub("", line).rstrip()
        header = HEADER.fullmatch(plain)
        if header:
            failed = header[1] == "✗"
            if failed:
                sessions.append((header[2], []))
        elif failed:
            sessions[-1][1].append(plain[:WIDTH])
    for name, said in sessions:
        yield f"{name} failed:"
        yield from (f"  {line}" for line in [line for line in said if WHY.match(line)][:LINES] or said[-LAST:])


if __name__ == "__main__":
    with Path(sys.argv[1]).open(encoding="utf-8", errors="replace") as text:
        sys.stdout.writelines(f"{line}\n" for line in failures(text))
