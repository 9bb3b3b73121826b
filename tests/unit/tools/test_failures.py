# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a failed run says which sessions failed, and why."""

from __future__ import annotations

from ansible_collections.cudahub.gpu.tests.tools.failures import failures

LOG = """\
========== ✓ ruff: success ==========
error: not of interest
========== ✗ molecule-default: failed, 2 minutes ==========
============================= test session starts ==============================
ok: [h100]
E   assert 10 == 9
\x1b[31mERROR   \x1b[0m Verifier tests failed
nox > Session molecule-default failed.
========== ✗ sanity: failed, 4 minutes ==========
ERROR: a.py:1:2: disallowed-name
========== ✓ docs: success, 6 seconds ==========
FAILED not of interest
========== ✗ unit-2.21: failed, a minute ==========
one
two
three
"""


def test_sessions_that_failed_and_why() -> None:
    assert list(failures(LOG.splitlines(keepends=True))) == [
        "molecule-default failed:",
        "  E   assert 10 == 9",
        "  ERROR    Verifier tests failed",
        "sanity failed:",
        "  ERROR: a.py:1:2: disallowed-name",
        "unit-2.21 failed:",
        "  two",
        "  three",
    ]


def test_many_reasons_are_cut() -> None:
    log = ["========== ✗ docs: failed ==========", *(f"ERROR: {number} {'x' * 300}" for number in range(20))]
    assert [len(line) for line in failures(log)] == [12, *[202] * 8]


def test_nothing_failed() -> None:
    assert not list(failures(LOG.splitlines()[:2]))
