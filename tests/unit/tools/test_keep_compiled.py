# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Python compiles of zip files is kept, and nothing else than its own source's code is ever taken."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "images"
PROGRAM = """
import sys
tool, sys.prefix, archive = sys.argv[1:]
sys.path.insert(0, tool)
import keep_compiled
compiles = 0
def compile_source(path, source, real=keep_compiled.compile_source):
    global compiles
    compiles += 1
    return real(path, source)
keep_compiled.compile_source = compile_source
sys.path.insert(0, archive)
import library
print(library.VALUE, compiles)
"""


@pytest.fixture
def answer(tmp_path: Path) -> Callable[[int], str]:
    """A new process that imports a library with a value from a zip: what it found there and how often it compiled."""

    def run(value: int) -> str:
        with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
            archive.writestr("library.py", f"VALUE = {value}\n")
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, TOOL, tmp_path, tmp_path / "some.zip"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    return run


def test_each_source_is_compiled_once(answer: Callable[[int], str]) -> None:
    assert [answer(1), answer(1), answer(2), answer(1), answer(2)] == ["1 1", "1 0", "2 1", "1 0", "2 0"]


def test_code_knows_its_own_place(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        for name in ("library", "other"):
            archive.writestr(f"{name}.py", "VALUE = (lambda: None).__code__.co_filename\n")
    program = f"{PROGRAM}import other\nprint(other.VALUE)\n"
    command = [sys.executable, "-I", "-S", "-c", program, TOOL, tmp_path, tmp_path / "some.zip"]
    for compiles in (1, 0):
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        assert said == [f"{tmp_path}/some.zip/library.py {compiles}", f"{tmp_path}/some.zip/other.py"]


@pytest.mark.parametrize("content", [b"", b"no code", b"\xe3"])
def test_a_damaged_file_is_made_again(answer: Callable[[int], str], tmp_path: Path, content: bytes) -> None:
    answer(1)
    (kept,) = (tmp_path / "var/cache/keep_compiled").iterdir()
    kept.write_bytes(content)
    assert [answer(1), answer(1)] == ["1 1", "1 0"]


def test_without_a_place_for_it_the_library_is_compiled(answer: Callable[[int], str], tmp_path: Path) -> None:
    (tmp_path / "var").write_text("no folder", encoding="utf-8")
    assert [answer(1), answer(1)] == ["1 1", "1 1"]
