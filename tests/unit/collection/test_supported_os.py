# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every role chooses its variables for the systems that it supports, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from collection_layout import ROLES, load, run

# What ansible.builtin.setup says on them: distribution, distribution_version, os_family; and the variables that fit.
SYSTEMS = {
    ("Debian", "12.12", "Debian"): "Debian-12",
    ("Debian", "13.2", "Debian"): "Debian-13",
    ("Ubuntu", "22.04", "Debian"): "Ubuntu-22.04",
    ("Ubuntu", "24.04", "Debian"): "Ubuntu-24.04",
    ("Ubuntu", "26.04", "Debian"): "Ubuntu-26.04",
    ("RedHat", "8.10", "RedHat"): "RedHat-8",
    ("AlmaLinux", "9.6", "RedHat"): "RedHat-9",
    ("Rocky", "10.0", "RedHat"): "RedHat-10",
    ("CentOS", "10", "RedHat"): "RedHat-10",  # Stream
}
# The Littlest JupyterHub 2.0.0 runs on these only.
FEWER = {"tljh": ["Debian-12", "Debian-13", "Ubuntu-22.04", "Ubuntu-24.04"]}
OTHERS = [
    ("Debian", "11.11", "Debian"),
    ("Ubuntu", "20.04", "Debian"),
    ("Ubuntu", "24.10", "Debian"),
    ("Linux Mint", "22", "Debian"),
    ("OracleLinux", "9.6", "RedHat"),
    ("Fedora", "43", "RedHat"),
    ("Amazon", "2023", "RedHat"),
    ("RedHat", "7.9", "RedHat"),
    ("openSUSE Leap", "15.6", "Suse"),
]


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each role makes of each system: its name for it, and whether it supports that."""
    directory = tmp_path_factory.mktemp("systems")
    hosts = {
        name_of(system): {
            "system": {
                "distribution": system[0],
                "distribution_version": system[1],
                "distribution_major_version": system[1].split(".")[0],
                "os_family": system[2],
            }
        }
        for system in (*SYSTEMS, *OTHERS)
    }
    (directory / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    answer = {
        role.name: {
            "os": f"{{{{ _{role.name}_os }}}}",
            "supported": f"{{{{ _{role.name}_os in _{role.name}_supported }}}}",
        }
        for role in ROLES
    }
    facts = {name: f"{{{{ system.{name} }}}}" for name in ("distribution", "distribution_version", "os_family")}
    facts["distribution_major_version"] = "{{ system.distribution_major_version }}"
    tasks: list[dict[str, Any]] = [{"ansible.builtin.set_fact": {**facts, "cacheable": True}}]
    tasks += [{"ansible.builtin.include_vars": {"file": str(role / "vars/main.yml")}} for role in ROLES]
    tasks += [
        {"ansible.builtin.set_fact": {"answer": answer}},
        {
            "ansible.builtin.copy": {
                "content": "{% set found = {} %}{% for host in groups.all %}"
                "{% set _ = found.update({host: hostvars[host].answer}) %}{% endfor %}{{ found | to_json }}",
                "dest": f"{directory}/chosen.json",
                "mode": "0600",
            },
            "delegate_to": "localhost",
            "run_once": True,
        },
    ]
    play = {"hosts": "all", "gather_facts": False, "connection": "local", "tasks": tasks}
    (directory / "play.yml").write_text(json.dumps([play]))
    run("ansible-playbook", "-i", str(directory / "inventory.json"), str(directory / "play.yml"))
    return json.loads((directory / "chosen.json").read_text())


def systems_of(role: Path) -> list[str]:
    """The variables that a role has to have."""
    return FEWER.get(role.name, list(SYSTEMS.values()))


def name_of(system: tuple[str, str, str]) -> str:
    """The name of a system's host in the inventory."""
    return "-".join(system).replace(" ", "_")


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
@pytest.mark.parametrize(("system", "expected"), SYSTEMS.items(), ids=[name_of(system) for system in SYSTEMS])
def test_supported(role: Path, system: tuple[str, str, str], expected: str, chosen: dict[str, dict[str, Any]]) -> None:
    supported = expected in systems_of(role)
    assert chosen[name_of(system)][role.name] == {"os": expected, "supported": supported}
    assert (role / "vars" / f"{expected}.yml").is_file() is supported


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
@pytest.mark.parametrize("system", OTHERS, ids=name_of)
def test_refused(role: Path, system: tuple[str, str, str], chosen: dict[str, dict[str, Any]]) -> None:
    assert chosen[name_of(system)][role.name]["supported"] is False


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_same_is_known_of_each_system(role: Path) -> None:
    found = {path.name: set(load(path) or {}) for path in sorted((role / "vars").glob("*-*.yml"))}
    assert set(found) == {f"{expected}.yml" for expected in systems_of(role)}
    assert len({frozenset(names) for names in found.values()}) == 1, found
