# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of role jupyterhub_gpus of a wrong type: one sentence, of ansible-core or of the role itself."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).parents[3] / "roles" / "jupyterhub_gpus"
SPEC = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
VALUES = [[1], ["x"], {"a": 1}, 7, "", "text", None]
DICTIONARIES = {name: SPEC[name]["options"] for name in ("jupyterhub_gpus_limits", "jupyterhub_gpus_idle")}


def variables(path: Path) -> dict[str, t.Any]:
    return {name: trusted(value) for name, value in yaml.safe_load(path.read_text()).items()}


def trusted(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {name: trusted(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(trusted, value))
    return trust_as_template(value) if isinstance(value, str) else value


def of_core(options: dict[str, t.Any]) -> list[str]:
    """What ansible-core says before the role runs."""
    return list(ArgumentSpecValidator(SPEC).validate(options).error_messages)


def of_role(options: dict[str, t.Any]) -> str:
    """What the role says first."""
    known = {**variables(ROLE / "defaults" / "main.yml"), **variables(ROLE / "vars" / "main.yml"), **options}
    said = Templar(loader=DataLoader(), variables=known).template(trust_as_template("{{ _jupyterhub_gpus_mistakes }}"))
    return " ".join(str(said or "").split())


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", SPEC)
def test_ansible_core_says_one_thing_about_a_wrong_type(name: str, value: t.Any) -> None:
    errors = of_core({name: value})
    assert len(errors) <= 1
    assert all(name in error for error in errors)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", DICTIONARIES)
def test_a_dictionary_of_a_wrong_type(name: str, value: t.Any) -> None:
    assert of_core({name: value}) == []
    assert of_role({name: value}).startswith(f"{name} is ")
    assert "give a dictionary of" in of_role({name: value})


@pytest.mark.parametrize("value", [value for value in VALUES if value != 7], ids=repr)
@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in DICTIONARIES.items() for key in keys])
def test_a_part_of_a_wrong_type(name: str, key: str, value: t.Any) -> None:
    said = of_role({name: {key: value}})
    if (key, value) in (("default", None), ("users", {"a": 1}), ("groups", {"a": 1})):
        assert said == ""
    else:
        assert said.startswith(f"{name} ")
        assert ": give " in said


@pytest.mark.parametrize("value", [-1, [1], "", "many", True, 1.5], ids=repr)
def test_a_number_that_is_none(value: t.Any) -> None:
    said = of_role({"jupyterhub_gpus_limits": {"users": {"anna": value}}})
    assert said.startswith("jupyterhub_gpus_limits has a number that is none: give each")


def test_what_is_right() -> None:
    options = {
        "jupyterhub_gpus_limits": {"default": None, "users": {"anna": None, "ben": 0}, "groups": {"staff": 2}},
        "jupyterhub_gpus_idle": {"minutes": 30},
    }
    assert (of_core(options), of_role(options), of_role({})) == ([], "", "")


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("http://127.0.0.1", True),
        ("https://hub.example.org:8443/base/of-it", True),
        ("http://[::1]:8000", True),
        ("http://127.0.0.1:8000/", False),
        ("http://127.0.0.1:port", False),
        ("http://127.0.0.1:0", False),
        ("http://127.0.0.1:700000", False),
        ("http://:8000", False),
        ("http://a:b:8000", False),
        ("http://user@host", False),
        ("127.0.0.1:8000", False),
    ],
)
def test_urls(url: str, is_one: bool) -> None:
    assert (of_role({"jupyterhub_gpus_url": url}) == "") == is_one
