# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failing test shows what its host's journal says: of the units in the test file's ``UNITS``, else all warnings."""

from __future__ import annotations

from collections.abc import Generator

import pytest

LINES = 40


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the journal to the report of a failed test that has a host."""
    report = yield
    host = getattr(item, "funcargs", {}).get("host")
    if report.failed and call.when == "call" and host is not None:
        units = getattr(getattr(item, "module", None), "UNITS", [])
        choice = " ".join(f"-u {unit}" for unit in units) or "-p warning"
        journal = host.run(f"systemctl --failed --no-legend; journalctl --no-pager -n {LINES} {choice}")
        report.sections.append((f"journal {choice}", journal.stdout or journal.stderr))
    return report
