# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The examples in the filters' documentation give what they say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

PACKAGE = "ansible_collections.cudahub.gpu.plugins.filter"
DIRECTORY = Path(str(importlib.import_module(f"{PACKAGE}.gpu_select").__file__)).parent


@pytest.mark.parametrize("name", sorted(path.stem for path in DIRECTORY.glob("[a-z]*.py")))
def test_examples(name: str) -> None:
    plugin = importlib.import_module(f"{PACKAGE}.{name}")
    environment = NativeEnvironment()
    environment.filters.update({f"cudahub.gpu.{key}": value for key, value in plugin.FilterModule().filters().items()})
    tasks = yaml.safe_load(plugin.EXAMPLES)
    expected = [yaml.safe_load(text) for text in re.findall(r"# => (.*)", plugin.EXAMPLES)]
    assert len(tasks) == len(expected) > 0
    for task, value in zip(tasks, expected, strict=True):
        result = environment.from_string(task["ansible.builtin.debug"]["msg"]).render(task.get("vars", {}))
        assert (list(result) if isinstance(value, list) else result) == value


@pytest.mark.parametrize("name", sorted(path.stem for path in DIRECTORY.glob("[a-z]*.py")))
def test_documentation_is_complete(name: str) -> None:
    plugin = importlib.import_module(f"{PACKAGE}.{name}")
    documentation = yaml.safe_load(plugin.DOCUMENTATION)
    assert documentation["name"] == name
    assert "_input" in documentation["options"]
    assert "_value" in yaml.safe_load(plugin.RETURN)
