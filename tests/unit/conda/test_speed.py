# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run costs that has nothing to do, in calls of functions, as a busy machine stretches all seconds.

That it asks no conda is part of `Module.unchanged`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from module_of_conda import MODULE, Module

COUNTED = f"""
import os, sys
calls = 0

def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")

try:
    sys.setprofile(count)
    exec({MODULE!r})
finally:
    sys.setprofile(None)
    print(calls, file=sys.stderr)
"""


def environment(prefix: Path, packages: int) -> None:
    """Make an environment whose packages depend on each other and have 100 files each."""
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "conda-meta/history").touch()
    for number in range(packages):
        needs = [f"p{(number + step) % packages} >=1.{number % 10},<{3 + number % 5}.0a0" for step in range(1, 11)]
        paths = [f"lib/p{number}/{path}" for path in range(100)]
        record = {
            "name": f"p{number}",
            "version": "2.1",
            "build": "0",
            "depends": needs,
            "files": paths,
            "paths_data": {"paths": [{"_path": path, "path_type": "hardlink", "sha256": "0" * 64} for path in paths]},
        }
        (prefix / f"conda-meta/p{number}-2.1-0.json").write_text(json.dumps(record))


@pytest.fixture
def calls(module: Module, tmp_path: Path) -> dict[int, int]:
    """The calls of a run that has nothing to do, by the number of packages."""
    found = {}
    for packages in (2, 100, 200, 400):
        prefix = tmp_path / f"env{packages}"
        environment(prefix, packages)
        given = {
            "executable": "/nonexistent",
            "channels": [module.channel],
            "prefix": str(prefix),
            "packages": [f"p{number}>=2" for number in range(0, packages, 10)],
            "log": str(tmp_path / "log"),
        }
        command = [sys.executable, "-c", COUNTED]
        done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["changed"] is False
        found[packages] = int(done.stderr)
    return found


def test_packages_cost_what_one_costs_times_their_number(calls: dict[int, int]) -> None:
    print("calls of functions by the number of packages:", calls)
    first, second = calls[200] - calls[100], calls[400] - calls[200]
    assert 1.9 * first < second < 2.1 * first
    assert (calls[400] - calls[200]) / 200 < 3000
