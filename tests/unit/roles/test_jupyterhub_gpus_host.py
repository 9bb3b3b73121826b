# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What role jupyterhub_gpus reads on a host: whose the GPUs are, and whether the hub has the package."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

VARIABLES = yaml.safe_load(
    (Path(__file__).parents[3] / "roles" / "jupyterhub_gpus" / "vars" / "main.yml").read_text(encoding="utf-8")
)
OWN = "/etc/hub/gpus.py"
OTHER = "/etc/other/gpus.py"


def evaluate(name: str, **known: t.Any) -> t.Any:
    own = {key: trust_as_template(VARIABLES[key]) for key in VARIABLES if isinstance(VARIABLES[key], str)}
    return Templar(loader=DataLoader(), variables={**own, **known}).template(trust_as_template(f"{{{{ {name} }}}}"))


def owner(path: Path) -> str:
    """The piece of configuration that a settings file names."""
    sed = ["sed", "-nE", VARIABLES["_jupyterhub_gpus_find_owner"], str(path)]
    lines = subprocess.run(sed, check=True, capture_output=True, text=True, errors="replace").stdout.splitlines()
    known = {"_jupyterhub_gpus_owner_found": {"stdout_lines": lines}, "jupyterhub_gpus_config_file": OWN}
    return str(evaluate("_jupyterhub_gpus_owner", **known))


@pytest.mark.parametrize("place", [OTHER, OWN, "/etc/hüb/gpus.py", '/etc/"o\\ther"/gpus.py'])
def test_the_hub_of_the_settings(tmp_path: Path, place: str) -> None:
    path = tmp_path / "settings.json"
    for ascii_only in (True, False):
        text = json.dumps({"format": 1, "hub": place, "idle": {}}, indent=4, sort_keys=True, ensure_ascii=ascii_only)
        path.write_text(text, encoding="utf-8")
        assert owner(path) == place
        path.write_text(text[:-12], encoding="utf-8")
        assert owner(path) == place


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{\n    "format": 1\n}\n',
        b'{\n    "hub": null\n}\n',
        b'{\n    "hub": "/etc/other',
        b'{\n    "hub": "/etc/\\q/gpus.py"\n}\n',
        b'{\n    "hub": "/etc/\\u12"\n}\n',
        b'{\n    "limits": {\n        "users": {\n            "hub": 2\n',
    ],
)
def test_settings_that_name_no_hub_are_taken_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    assert owner(path) == OWN


@pytest.mark.parametrize(
    ("named", "exists", "is_others"), [(OTHER, True, True), (OTHER, False, False), (OWN, True, False)]
)
def test_a_second_hub(named: str, exists: bool, is_others: bool) -> None:
    known = {
        "_jupyterhub_gpus_owner": named,
        "_jupyterhub_gpus_owner_there": {"stat": {"exists": exists}},
        "jupyterhub_gpus_config_file": OWN,
    }
    assert evaluate("_jupyterhub_gpus_is_others", **known) is is_others


@pytest.mark.parametrize("made", [None, "cudahub_hub", "cudahub_hub/__init__.py"])
def test_whether_the_hub_has_the_package(tmp_path: Path, made: str | None) -> None:
    """A directory without files is none."""
    if made:
        (tmp_path / "cudahub_hub").mkdir()
        (tmp_path / "cudahub_hub" / "__init__.py").touch() if made.endswith(".py") else None
    asked = [sys.executable, "-c", VARIABLES["_jupyterhub_gpus_probe"], "none"]
    environment = {"PYTHONPATH": str(tmp_path)}
    answer = subprocess.run(asked, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path).stdout
    hub = json.loads(answer)
    assert hub["package"] is (made == "cudahub_hub/__init__.py")
    for matched in (0, 1):
        known = {"_jupyterhub_gpus_own_config": {"matched": matched}, "_jupyterhub_gpus_hub": hub}
        assert evaluate("_jupyterhub_gpus_lost", **known) is (matched == 1 and not hub["package"])
    assert evaluate("_jupyterhub_gpus_lost", **{**known, "_jupyterhub_gpus_own_config": {"skipped": True}}) is False
