# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All roles are shaped alike, and their argument specs are the truth about their options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from collection_layout import ROLES, ROOT, SCENARIOS, defaults, files, load, specs, tasks

from ansible_collections.cudahub.gpu.tests.tools import role_readme

each_role = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)

ENTRY_POINTS = ["main", "verify", "absent"]
# Keys whose value is an expression without braces.
CONDITIONS = {"when", "that", "until", "changed_when", "failed_when"}
# What Ansible and Jinja bring along.
KNOWN = {
    "ansible_check_mode", "ansible_connection", "ansible_diff_mode", "ansible_facts", "ansible_host", "ansible_managed",
    "ansible_play_batch", "ansible_play_hosts", "ansible_play_hosts_all", "ansible_python_interpreter",
    "ansible_run_tags", "ansible_verbosity", "group_names", "groups", "hostvars", "inventory_hostname", "item",
    "omit", "playbook_dir", "role_name", "role_path", "ansible_playbook_python", "ansible_failed_result",
    "ansible_failed_task", "ansible_version", "ansible_search_path",
}  # fmt: skip
TEMPLATES = jinja2.Environment(autoescape=False)  # noqa: S701 (only parsed)


def same(left: object, right: object) -> bool:
    """Return whether two values are equal, types included."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def is_jinja(value: object) -> bool:
    """Return whether a default is worked out on the host."""
    return isinstance(value, str) and "{{" in value


@each_role
def test_what_nobody_waits_for_any_more_goes_on(role: Path) -> None:
    """Module async_progress says so, and Ansible kills a job whose C(async) is over."""
    for path in role.glob("tasks/*.yml"):
        of_file = list(tasks(load(path) or []))
        waits = any("cudahub.gpu.async_progress" in task for task in of_file)
        for started in [task for task in of_file if waits and task.get("poll") == 0]:
            ends_itself = "exec timeout " in str(started.get("ansible.builtin.shell", ""))
            assert ends_itself or str(started["async"]).endswith(" + 86400 }}"), (path, started["name"])


@each_role
def test_entry_points_are_there_and_documented(role: Path) -> None:
    documented = specs(role)
    assert [name for name in ENTRY_POINTS if name not in documented] == []
    for name, spec in documented.items():
        assert (role / "tasks" / f"{name}.yml").is_file(), f"{name} is documented, but has no tasks"
        assert spec.get("short_description"), f"{name} has no short_description"
        assert spec.get("description"), f"{name} has no description"
        assert spec.get("version_added"), f"{name} has no version_added"


@each_role
def test_main_is_a_table_of_contents(role: Path) -> None:
    assert len((role / "tasks/main.yml").read_text(encoding="utf-8").splitlines()) <= 40


@each_role
def test_defaults_are_what_the_spec_says(role: Path) -> None:
    options = specs(role)["main"].get("options", {})
    actual = defaults(role)
    assert set(actual) - set(options) == set(), "defaults that are not documented"
    wrong = []
    for name, option in options.items():
        if "default" in option:
            if name not in actual or not same(actual[name], option["default"]):
                wrong.append(f"{name}: documented {option['default']!r}, real {actual.get(name)!r}")
        elif name in actual and actual[name] is not None and not is_jinja(actual[name]):
            wrong.append(f"{name}: its default {actual[name]!r} is not documented")
        if option.get("required") and name in actual:
            wrong.append(f"{name}: is required and has a default")
    assert wrong == []


@each_role
def test_entry_points_describe_an_option_alike(role: Path) -> None:
    documented = specs(role)
    main = documented["main"].get("options", {})
    for name, spec in documented.items():
        for option, description in spec.get("options", {}).items():
            assert main.get(option) == description, f"{option} of {name} is described otherwise or not at all in main"


@each_role
def test_variables_carry_the_name_of_their_role(role: Path) -> None:
    public, internal = f"{role.name}_", f"_{role.name}_"
    assert [name for name in defaults(role) if not name.startswith(public)] == []
    for path in role.glob("vars/*.yml"):
        assert [name for name in load(path) or {} if not name.startswith(internal)] == [], path.name


def expressions(value: Any, key: str = "") -> Iterator[str]:
    """Yield the Jinja templates in YAML, conditions included."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from expressions(inner, name)
            yield from expressions(name)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner, key)
    elif isinstance(value, str):
        yield f"{{{{ {value} }}}}" if key in CONDITIONS and "{{" not in value else value


def names_set(value: Any) -> Iterator[str]:
    """Yield the variables that tasks set."""
    if isinstance(value, list):
        for inner in value:
            yield from names_set(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in ("register", "loop_var", "index_var") and isinstance(inner, str):
                yield inner
            elif key in ("vars", "ansible.builtin.set_fact") and isinstance(inner, dict):
                yield from inner
            yield from names_set(inner)


def names_read(template: str) -> set[str]:
    """Return the variables that a template reads and doesn't set itself."""
    names = list(TEMPLATES.parse(template).find_all(jinja2.nodes.Name))
    own = {name.name for name in names if name.ctx in ("store", "param")}
    return {name.name for name in names if name.ctx == "load"} - own


def sources(role: Path) -> dict[Path, list[str]]:
    """Return the templates of a role by file: tasks, handlers, variables and template files."""
    found: dict[Path, list[str]] = {}
    for path in files(f"roles/{role.name}"):
        part = path.relative_to(role).parts[0]
        if part in ("tasks", "handlers", "vars", "defaults"):
            found[path] = list(expressions(load(path)))
        elif part == "templates":
            found[path] = [path.read_text(encoding="utf-8")]
    return found


@each_role
def test_every_option_is_read(role: Path) -> None:
    read = {name for templates in sources(role).values() for template in templates for name in names_read(template)}
    assert sorted(set(specs(role)["main"].get("options", {})) - read) == []


@each_role
def test_every_variable_is_known(role: Path) -> None:
    known = KNOWN | {option for other in ROLES for option in specs(other)["main"].get("options", {})}
    for path in files(f"roles/{role.name}"):
        part = path.relative_to(role).parts[0]
        if part == "vars":
            known |= set(load(path) or {})
        elif part in ("tasks", "handlers"):
            known |= set(names_set(load(path)))
    globals_of_jinja = set(TEMPLATES.globals) | {"lookup", "query", "q", "now", "undef", "true", "false", "none"}
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, templates in sources(role).items()
        for template in templates
        for name in names_read(template) - known - globals_of_jinja
    }
    assert sorted(unknown) == []


@each_role
def test_readme_shows_the_spec(role: Path) -> None:
    text = (role / "README.md").read_text(encoding="utf-8")
    assert role_readme.BETWEEN.search(text), "README.md has no place for the table of options"
    assert text == role_readme.with_table(text, role), "README.md is out of date: run `make docs`"


@each_role
def test_metadata(role: Path) -> None:
    meta = load(role / "meta/main.yml")
    info = meta["galaxy_info"]
    assert info["license"] == "GPL-3.0-or-later"
    assert info["min_ansible_version"] == "2.19"
    assert info["description"]
    assert meta.get("dependencies", []) == []


@each_role
def test_role_has_a_scenario(role: Path) -> None:
    assert (ROOT / "molecule" / role.name / "molecule.yml").is_file()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_has_tests(scenario: Path) -> None:
    """Molecule passes over a scenario's verification without any."""
    tests = scenario.glob("tests*/test_*.py")
    assert any(re.search(r"^def test_", path.read_text(encoding="utf-8"), re.MULTILINE) for path in tests)


def test_what_is_fetched_lands_in_a_folder_of_its_host() -> None:
    """The docker connection puts a file beside its target first, under the name that the file has on all hosts."""
    places = [
        match[1]
        for path in files("molecule", "roles", "playbooks")
        if path.suffix == ".yml"
        for match in re.finditer(r"\.fetch:\n(?:.*\n)*?\s+dest: (.*)", path.read_text(encoding="utf-8"))
    ]
    assert places
    assert [place for place in places if "{{ inventory_hostname }}/" not in place] == []


def test_the_tools_of_these_tests() -> None:
    """The rules above find what they look for."""
    assert not same(1, True)
    assert not same([1], [1.0])
    assert same({"a": [None, "x"]}, {"a": [None, "x"]})
    task = [{"name": "x {{ a }}", "when": "b and not c", "register": "d", "vars": {"e": "{{ f | default(g) }}"}}]
    assert set().union(*map(names_read, expressions(task))) == {"a", "b", "c", "f", "g"}
    assert set(names_set(task)) == {"d", "e"}
    assert names_read("{% for x in y %}{{ x }}{{ z.w }}{% endfor %}") == {"y", "z"}


def decided_by(template: str) -> Iterator[str]:
    """Yield the variables that decide something in a template by themselves, and not by what a filter makes of them."""
    tree = TEMPLATES.parse(template)
    judged = [node.test for node in tree.find_all((jinja2.nodes.If, jinja2.nodes.CondExpr))]
    for node in tree.find_all((jinja2.nodes.And, jinja2.nodes.Or)):
        judged += [node.left, node.right]
    judged += [node.node for node in tree.find_all(jinja2.nodes.Not)]
    yield from (node.name for node in judged if isinstance(node, jinja2.nodes.Name))


@each_role
def test_a_bool_may_come_from_the_command_line(role: Path) -> None:
    """``-e slurm_gpu_shrink=false`` is a text, which a condition takes for true."""
    options = {name: option for spec in specs(role).values() for name, option in spec.get("options", {}).items()}
    bools = {name for name, option in options.items() if option["type"] == "bool"}
    found = set()
    for path in files(*(f"roles/{role.name}/{folder}" for folder in ("tasks", "handlers", "vars"))):
        bare = re.findall(r"(?m)^ *(?:when:|that:|-) (\w+)$", path.read_text(encoding="utf-8"))
        for names in (bare, *map(decided_by, expressions(load(path)))):
            found |= {f"{path.name}: {name}" for name in bools.intersection(names)}
    assert found == set()


@each_role
def test_a_newline_is_one(role: Path) -> None:
    """In YAML without double quotes, Ansible takes the backslash of an escape in Jinja for a backslash."""
    found = [
        f"{path.name}: {template}"
        for path in files(*(f"roles/{role.name}/{folder}" for folder in ("tasks", "handlers", "vars")))
        for template in expressions(load(path))
        if re.search(r"\b(?:split|join|trim)\('[^']*\\n[^']*'\)|~ '\\n'", template)
    ]
    assert found == []
