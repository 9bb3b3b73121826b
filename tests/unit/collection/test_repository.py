# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""House rules that no linter knows."""

from __future__ import annotations

import ast
import re

import pytest
from collection_layout import DEPENDENCIES, ROOT, files, walked

AUTOMATION = [*files("roles", "playbooks", "plugins", "demo", "molecule"), ROOT / "Makefile", ROOT / "noxfile.py"]
AUTOMATION += [ROOT / ".ci/run"]

FORBIDDEN = {
    "a failure is ignored": r"^\s*(?:- )?ignore_(?:errors|unreachable):|failed_when:\s*false|\|\| true|--exit-zero",
    "a check can't fail": r"^\s*(?:- )?(?:that|assert)\s*:\s*(?:true|yes)\s*$|\bassert True\b",
    "a version is left open": r"\bstate:\s*latest\b|:latest\b",
    "unfinished": r"\b(TODO|FIXME|XXX)\b|NotImplementedError",
    "a download is run unseen": r"(curl|wget)[^|\n]*\|\s*(sudo\s+)?(ba)?sh\b",
}
# It fails for hosts that it lost when they are reported, as tests/unit/playbooks/test_report.py shows.
ALLOWED = {("playbooks/report.yml", "ignore_unreachable:")}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_forbidden(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what], re.MULTILINE)
    found = []
    for path in AUTOMATION:
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, m.start()) + 1}: {m[0]}"
            for m in pattern.finditer(text)
            if (str(path.relative_to(ROOT)), m[0].strip()) not in ALLOWED
        ]
    assert found == []


def test_facts_are_not_read_as_variables() -> None:
    """Ansible can be told not to make variables of them."""
    pattern = re.compile(r"\bansible_(distribution|os_family|architecture|kernel|hostname|processor_\w+)\b")
    for path in files("roles", "playbooks"):
        if path.suffix in (".yml", ".j2"):
            assert pattern.search(path.read_text(encoding="utf-8")) is None, path


def test_only_plugins_of_known_collections_are_used() -> None:
    """And those of collections that galaxy.yml names, each of which is used."""
    pattern = re.compile(r"^\s*(?:- )?([a-z_]+\.[a-z_]+)\.[a-z_]+:", re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in files("roles", "playbooks") if path.suffix == ".yml"]
    found = {name for text in texts for name in pattern.findall(text)}
    assert found - {"ansible.builtin", "cudahub.gpu"} == DEPENDENCIES


def test_python_files_carry_the_licence() -> None:
    head = (
        "# Copyright (c) 2026, cudahub.gpu contributors\n"
        "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)\n"
        "# SPDX-License-Identifier: GPL-3.0-or-later\n"
    )
    python = [path for path in files("demo", "molecule", "plugins", "roles", "tests") if path.suffix == ".py"]
    modules = "#!/usr/bin/python\n"  # what ansible-test wants at the top of a module
    texts = {str(path): path.read_text(encoding="utf-8").removeprefix(modules) for path in python}
    assert [path for path, text in texts.items() if not text.startswith(head)] == []
    annotated = "from __future__ import annotations"
    code = [path for path in texts if len(ast.parse(texts[path]).body) > 1]  # more than a docstring
    assert [path for path in code if annotated not in texts[path]] == []


def test_there_are_no_links_and_no_empty_folders() -> None:
    """Galaxy and ansible-test stumble over links; an empty folder is a scaffold's leftover."""
    folders = ("changelogs", "demo", "meta", "molecule", "playbooks", "plugins", "roles", "tests")
    for path in (inner for folder in folders for inner in walked(folder)):
        assert not path.is_symlink(), path


def test_sanity_has_no_exceptions() -> None:
    assert list((ROOT / "tests/sanity").glob("ignore*.txt")) == []


def test_changes_are_told() -> None:
    """A fragment that says what is new, until a release turns the fragments into the changelog."""
    released = ROOT / "changelogs/changelog.yaml"
    assert list((ROOT / "changelogs/fragments").glob("*.yml")) or released.is_file()
