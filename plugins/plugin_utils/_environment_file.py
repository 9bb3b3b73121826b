# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an environment.yml asks for.

Its form is that of https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KEYS = ("name", "channels", "dependencies", "prefix", "variables", "platforms", "category")


class EnvironmentFileError(ValueError):
    """What is wrong with an environment.yml, in a sentence."""


@dataclass(frozen=True)
class EnvironmentFile:
    """Specs of conda packages, lines for pip, and channels, in their order."""

    packages: tuple[str, ...]
    pip: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


def parse(value: Any) -> EnvironmentFile:
    """The content of an environment.yml, as YAML reads it. Raises EnvironmentFileError."""
    if not isinstance(value, dict):
        raise EnvironmentFileError(f"it is {_kind(value)}, and a mapping with dependencies is expected")
    unknown = [str(key) for key in value if key not in KEYS]
    if unknown:
        raise EnvironmentFileError(f"it has {', '.join(unknown)}, which is none of {', '.join(KEYS)}")
    dependencies = value.get("dependencies")
    if not isinstance(dependencies, list) or not dependencies:
        raise EnvironmentFileError("dependencies has to be a list of packages")
    packages: list[str] = []
    pip: list[str] = []
    for number, entry in enumerate(dependencies, 1):
        if isinstance(entry, str):
            packages.append(entry)
        elif isinstance(entry, dict) and list(entry) == ["pip"]:
            pip += _texts(entry["pip"], f"entry {number} of dependencies, pip,")
        else:
            raise EnvironmentFileError(
                f"entry {number} of dependencies is {_kind(entry)}, and a package, or pip with a list, is expected"
            )
    channels = _texts(value.get("channels") or [], "channels")
    return EnvironmentFile(tuple(packages), tuple(pip), tuple(one for one in channels if one != "nodefaults"))


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise EnvironmentFileError(f"{where} has to be a list of texts")
    return value


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", type(None): "empty", bool: "a truth value"}
    return names.get(type(value), f"the number {value}")
