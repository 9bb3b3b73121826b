# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failing test shows what its host's journal says: of the units in the test file's ``UNITS``, else all warnings.

``play`` runs a playbook on the scenario's hosts, for tests of what a user is told.
``gone`` waits for the end of processes.
Tests that are marked ``long`` are left to `make test-all`, which sets ``TEST_ALL``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testinfra.host import Host

LINES = 40
# Until what was killed is reaped, and less than what hangs would take.
SECONDS = 60
# Whether tests were left to `make test-all`.
LEFT = pytest.StashKey[bool]()


@pytest.fixture
def play() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a playbook, with further arguments, on the hosts of the scenario or of ``hosts``."""
    inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
    command = Path(sys.executable).with_name("ansible-playbook")

    def run(
        playbook: Path, *arguments: str, hosts: Path = inventory, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, "--inventory", hosts, playbook, *arguments],
            env={**os.environ, "ANSIBLE_FORCE_COLOR": "false", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def gone() -> Callable[[Host, str], None]:
    """Return a function that waits until no line of state and arguments of a host's processes fits a pattern."""

    def wait(host: Host, pattern: str) -> None:
        end = time.monotonic() + SECONDS
        look = "ps -eo stat=,args="
        while left := [line for line in host.check_output(look).splitlines() if re.search(pattern, line)]:
            assert time.monotonic() < end, left
            time.sleep(0.3)

    return wait


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is ``long``, which pytest's last line counts."""
    if os.environ.get("TEST_ALL"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
        config.stash[LEFT] = True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let a folder pass whose tests are all ``long``; one without tests does not."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(LEFT, False):
        session.exitstatus = pytest.ExitCode.OK


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
