# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What role tljh says about what has failed."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

VARIABLES = yaml.safe_load(
    (Path(__file__).parents[3] / "roles" / "tljh" / "vars" / "main.yml").read_text(encoding="utf-8")
)


def evaluate(name: str, **known: t.Any) -> t.Any:
    own = {key: trust_as_template(VARIABLES[key]) for key in VARIABLES if isinstance(VARIABLES[key], str)}
    return Templar(loader=DataLoader(), variables={**own, **known}).template(trust_as_template(f"{{{{ {name} }}}}"))


COMMAND = "The command exited with a non-zero return code."


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            {"msg": COMMAND, "stderr_lines": ["unpacking", "tar: No space left on device.", " ", ""]},
            "tar: No space left on device",
        ),
        ({"msg": COMMAND, "stderr_lines": []}, COMMAND[:-1]),
        ({"msg": "Request failed: HTTP Error 404"}, "Request failed: HTTP Error 404"),
        ({"msg": ""}, "it says nothing"),
        ({}, "it says nothing"),
    ],
)
def test_miniforge_is_quoted(result: dict[str, t.Any], sentence: str) -> None:
    """Not only that there was an error."""
    assert evaluate("_tljh_miniforge_error", ansible_failed_result=result) == sentence
