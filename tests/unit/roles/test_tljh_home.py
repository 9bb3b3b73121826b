# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What role tljh puts into homes: everything once, and nothing of the user's is lost."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import COLLECTION

PROGRAM = COLLECTION / "roles/tljh/files/home.py"


class Home:
    """A home, and what everybody gets."""

    def __init__(self, folder: Path) -> None:
        self.source, self.home, self.shared = folder / "given", folder / "home", folder / "data sets"
        self.home.mkdir()
        self.give("intro.ipynb", "first")
        self.give("day 1/übung.ipynb", "second")

    def give(self, name: str, text: str) -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def start(self, *shared: Path, largest: int | None = None) -> str:
        """A server starts; what the program says."""

        def limit() -> None:
            if largest is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

        done = subprocess.run(
            [sys.executable, "-I", str(PROGRAM), str(self.source), *map(str, shared)],
            env={"HOME": str(self.home), "LANG": "C.UTF-8"}, check=True, capture_output=True, text=True,
            preexec_fn=limit,
        )  # fmt: skip
        return done.stderr

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.home)): path.read_text(encoding="utf-8")
            for path in self.home.rglob("*")
            if path.is_file() and ".local" not in path.parts
        }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_all_files_come(home: Home) -> None:
    assert home.start() == ""
    assert home.files() == {"intro.ipynb": "first", "day 1/übung.ipynb": "second"}


def test_what_a_user_changed_or_deleted_stays_so(home: Home) -> None:
    home.start()
    (home.home / "intro.ipynb").write_text("mine", encoding="utf-8")
    (home.home / "day 1/übung.ipynb").unlink()
    home.give("intro.ipynb", "newer")
    home.give("day 2.ipynb", "third")
    assert home.start() == ""
    assert home.files() == {"intro.ipynb": "mine", "day 2.ipynb": "third"}


def test_what_a_user_had_before_stays(home: Home) -> None:
    (home.home / "intro.ipynb").symlink_to("/nonexistent")
    home.start()
    assert (home.home / "intro.ipynb").is_symlink()
    assert home.files() == {"day 1/übung.ipynb": "second"}


def test_a_file_in_the_way_keeps_nothing_else_from_coming(home: Home) -> None:
    (home.home / "day 1").write_text("a file of the user's", encoding="utf-8")
    assert "day 1/übung.ipynb could not be brought: " in home.start()
    assert home.files() == {"intro.ipynb": "first", "day 1": "a file of the user's"}
    (home.home / "day 1").unlink()
    assert home.start() == ""
    assert home.files() == {"intro.ipynb": "first", "day 1/übung.ipynb": "second"}


def test_half_a_file_is_none(home: Home) -> None:
    home.give("large.csv", "0" * 100_000)
    assert "large.csv could not be brought: " in home.start(largest=50_000)
    assert home.files() == {"intro.ipynb": "first", "day 1/übung.ipynb": "second"}
    home.start()
    assert home.files()["large.csv"] == "0" * 100_000


def test_a_link_leads_to_shared_data(home: Home) -> None:
    home.start(home.shared)
    assert (home.home / "data sets").readlink() == home.shared


def test_what_has_the_name_of_shared_data_stays(home: Home) -> None:
    (home.home / "data sets").write_text("mine", encoding="utf-8")
    home.start(home.shared)
    assert home.files()["data sets"] == "mine"
