# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Molecule's tests that are marked `long` are left to `make test-all`, and counted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONG = "import pytest\n@pytest.mark.long\ndef test_long() -> None: ...\n"
SHORT = "def test_short() -> None: ...\n"


@pytest.mark.parametrize(
    ("tests", "everything", "status", "words"),
    [
        (LONG + SHORT, "", 0, "1 passed, 1 deselected"),
        (LONG, "", 0, "1 deselected"),
        (LONG + SHORT, "1", 0, "2 passed"),
        ("", "", 5, "no tests ran"),
    ],
    ids=["some", "all of them", "make test-all", "a folder without tests"],
)
def test_what_runs(tmp_path: Path, tests: str, everything: str, status: int, words: str) -> None:
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    shutil.copy2(ROOT / "molecule/conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "."]
    variables = {"PATH": os.environ["PATH"], "TEST_ALL": everything}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert words in done.stdout.splitlines()[-1]
