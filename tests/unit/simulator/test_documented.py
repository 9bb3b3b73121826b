# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role's README and options against what the command knows."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from simulated_host import FILES, plan

ROLE = FILES.parent
README = (ROLE / "README.md").read_text(encoding="utf-8")
OPTIONS: dict[str, Any] = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text(encoding="utf-8"))[
    "argument_specs"
]["main"]["options"]


def shipped(kind: str) -> set[str]:
    return {path.stem for path in (FILES / kind).glob("*.json")}


def kinds() -> set[str]:
    """Return the kinds of faults, from the sentence that refuses others."""
    error = plan(profile="t4", faults=[{"kind": "?"}])["error"]
    return set(re.findall(r"\w+", error.partition("the kinds are ")[2]))


def test_the_example_of_a_prepare_playbook_works() -> None:
    example = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert example is not None
    task = yaml.safe_load(example[1])[0]["tasks"][0]
    assert task["ansible.builtin.include_role"]["name"] == "cudahub.gpu.gpu_simulator"
    answer = plan(gpus=task["vars"]["gpu_simulator_gpus"])
    assert [gpu["model"] for gpu in answer["config"]["gpus"]] == ["a100-sxm4-40gb", "a100-sxm4-40gb", "t4"]


def test_all_profiles_are_documented() -> None:
    section = README.partition("## Profiles")[2]
    assert set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) >= shipped("profiles")
    text = " ".join(OPTIONS["gpu_simulator_profile"]["description"])
    assert set(re.findall(r"V\(([\w-]+)\)", text)) == shipped("profiles")


def test_all_models_are_documented() -> None:
    text = " ".join(OPTIONS["gpu_simulator_gpus"]["options"]["model"]["description"])
    assert set(re.findall(r"V\(([\w-]+)\)", text)) == shipped("models")


def test_all_faults_are_documented() -> None:
    section = README.partition("## At run time")[2].partition("## Profiles")[0]
    cells = "".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", cells)) == kinds()
    assert set(OPTIONS["gpu_simulator_faults"]["options"]["kind"]["choices"]) == kinds()


def test_every_os_has_its_variables() -> None:
    supported = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["_gpu_simulator_supported"]
    assert {path.stem for path in (ROLE / "vars").glob("*-*.yml")} == set(supported)


@pytest.mark.parametrize("name", ["configure", "absent", "verify"])
def test_a_command_that_fails_is_quoted_by_the_next_task(name: str) -> None:
    """Its sentence is on stderr, and there is no JSON on stdout that an expression could read."""
    tasks = yaml.safe_load((ROLE / "tasks" / f"{name}.yml").read_text(encoding="utf-8"))
    numbers = [number for number, task in enumerate(tasks) if "ansible.builtin.command" in task]
    assert len(numbers) == 1
    asked, quoted = tasks[numbers[0]], tasks[numbers[0] + 1]
    result = asked["register"]
    assert asked["changed_when"] is False or asked["changed_when"].startswith(f"{result}.rc == 0 and ")
    assert asked["failed_when"] == f"{result}.rc not in [0, 1]"
    assert quoted["ansible.builtin.assert"]["that"] == f"{result}.rc == 0"
    assert f"{result}.stderr" in quoted["ansible.builtin.assert"]["fail_msg"]


def test_verify_looks_for_the_command_before_it_runs_it() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/verify.yml").read_text(encoding="utf-8"))
    assert tasks[0]["ansible.builtin.stat"]["path"] == tasks[2]["ansible.builtin.command"]["cmd"].split()[0]
    assert tasks[1]["ansible.builtin.assert"]["that"] == f"{tasks[0]['register']}.stat.exists"
    assert "run the role" in tasks[1]["ansible.builtin.assert"]["fail_msg"]
