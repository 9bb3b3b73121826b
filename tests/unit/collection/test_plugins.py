# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules are documented and reachable, and the playbooks parse."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection_layout import MODULES, PLAYBOOKS, ROLES, ROOT, load, run, tasks

each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)


def documentation(module: Path, part: str) -> Any:
    """Return DOCUMENTATION, EXAMPLES or RETURN of a module."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", None) for target in node.targets] == [part]:
            return yaml.safe_load(ast.literal_eval(node.value))
    raise AssertionError(f"{module.name} has no {part}")


@pytest.fixture(scope="session")
def options() -> dict[str, set[str]]:
    """Return the documented options of each module, with those of its fragments."""
    answer = run("ansible-doc", "--json", "--type", "module", *(f"cudahub.gpu.{module.stem}" for module in MODULES))
    return {name: set(described["doc"].get("options", {})) for name, described in json.loads(answer.stdout).items()}


@each_module
def test_documentation(module: Path) -> None:
    described = documentation(module, "DOCUMENTATION")
    assert described["module"] == module.stem
    assert described["version_added"] == "0.1.0"
    assert described["short_description"]


@each_module
def test_return_values_are_described(module: Path) -> None:
    returned = documentation(module, "RETURN")
    assert returned
    for name, value in fields(returned):
        assert value.get("description"), f"{name} is not described"
        assert value.get("type"), f"{name} has no type"


def fields(values: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the described values, those inside of others included."""
    for name, value in values.items():
        yield f"{parent}{name}", value
        yield from fields(value.get("contains", {}), f"{parent}{name}.")


@each_module
def test_examples_use_the_module_as_documented(module: Path, options: dict[str, set[str]]) -> None:
    action = f"cudahub.gpu.{module.stem}"
    used = [task[action] or {} for task in tasks(documentation(module, "EXAMPLES")) if action in task]
    assert used != [], "no example uses the module"
    for arguments in used:
        assert set(arguments) <= options[action]


def test_what_older_cores_leave_out_asks_nothing_of_ansible_core() -> None:
    named = re.search(r"^WITHOUT_CORE = (\[.*\])$", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert named is not None
    folders = ast.literal_eval(named[1])
    tests = [path for folder in folders for path in (ROOT / "tests/unit" / folder).rglob("*.py")]
    assert {path.relative_to(ROOT / "tests/unit").as_posix().rpartition("/")[0] for path in tests} == set(folders)
    needed = re.compile(r"^\s*(from|import) (ansible\b|ansible_collections\S*playbook_run)", re.MULTILINE)
    assert [path.name for path in tests if needed.search(path.read_text(encoding="utf-8"))] == []


def test_action_group_names_every_module() -> None:
    groups = load(ROOT / "meta/runtime.yml")["action_groups"]
    assert sorted(groups["gpu"]) == [module.stem for module in MODULES]


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda playbook: playbook.stem)
def test_playbook_parses(playbook: Path) -> None:
    run("ansible-playbook", "--syntax-check", "-i", "localhost,", playbook)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_entry_point_parses(role: Path, tmp_path: Path) -> None:
    """On this ansible-core, too: imported, so that all tasks are read."""
    play = {
        "name": "All entry points",
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.import_role": {"name": f"cudahub.gpu.{role.name}", "tasks_from": path.name}}
            for path in sorted((role / "tasks").glob("*.yml"))
        ],
    }
    playbook = tmp_path / "all.yml"
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    run("ansible-playbook", "--syntax-check", "-i", "localhost,", playbook)
