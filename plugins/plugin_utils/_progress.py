# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What to say of a job that takes minutes: since when it runs, and what its log said last."""

from __future__ import annotations

import re

from ansible_collections.cudahub.gpu.plugins.module_utils._address import masked

LONGEST = 160

_LOCK = re.compile(r"held by process (\d+)(?: \(([^)]+)\))?")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def duration(seconds: float) -> str:
    """Seconds as people say them: ``40 s``, ``2 min 10 s``, ``1 h 5 min``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def last_words(log: str) -> str:
    """The last line of a log that says anything, without control characters and passwords; empty if there is none."""
    for line in reversed(re.split(r"[\r\n]+", _ESCAPES.sub("", log))):
        words = masked(" ".join("".join(char if char.isprintable() else " " for char in line).split()))
        lock = _LOCK.search(words)
        if lock:
            holder = f"process {lock[1]}" + (f" ({lock[2]})" if lock[2] else "")
            return f"waiting for the lock held by {holder}"
        if words:
            return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
    return ""


def progress(host: str, title: str, seconds: float, log: str) -> str:
    """One line about a job that still runs."""
    words = last_words(log)
    return f"[{host}] {title}: {duration(seconds)}" + (f": {words}" if words else "")
