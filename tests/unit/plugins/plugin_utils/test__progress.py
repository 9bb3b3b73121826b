# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One line says what a long job does."""

from __future__ import annotations

import pytest

from ansible_collections.cudahub.gpu.plugins.plugin_utils._progress import LONGEST, duration, last_words, progress


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (130, "2 min 10 s"), (3599, "59 min 59 s"), (3960, "1 h 6 min")],
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        (" \n\r\n", ""),
        ("one\ntwo\n\n", "two"),
        ("Reading… 10%\rReading… 20%\r", "Reading… 20%"),
        ("\x1b[1mBuilding\x1b[0m\tthe module\x07\n", "Building the module"),
        (
            "Waiting for cache lock: Could not get lock. It is held by process 1234 (unattended-upgr)\n",
            "waiting for the lock held by process 1234 (unattended-upgr)",
        ),
        ("E: Could not get lock. It is held by process 7\n", "waiting for the lock held by process 7"),
        ("held by process 7 (apt-get)\nUnpacking linux-headers\n", "Unpacking linux-headers"),
        ("[MIRROR] https://me:secret@mirror.example/a.rpm", "[MIRROR] https://***@mirror.example/a.rpm"),
        ("x" * 500, "x" * (LONGEST - 1) + "…"),
    ],
)
def test_last_words(log: str, words: str) -> None:
    assert last_words(log) == words


def test_progress() -> None:
    assert progress("four", "driver", 130, "a\nBuilding initial module\n") == (
        "[four] driver: 2 min 10 s: Building initial module"
    )
    assert progress("four", "driver", 31, "") == "[four] driver: 31 s"
