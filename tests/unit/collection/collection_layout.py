# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where things are in the collection, for the tests that hold all of it against the same rules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
MODULES = sorted((ROOT / "plugins/modules").glob("[a-z]*.py"))
SCENARIOS = sorted(path.parent for path in ROOT.glob("molecule/*/molecule.yml"))
BIN = Path(sys.executable).parent
# Collections of others whose modules the roles use.
DEPENDENCIES = {"ansible.mariadb", "community.docker"}
# Where they are: in a folder of theirs, without a copy of this collection.
DEPENDENCIES_AT = [
    folder
    for folder in map(Path, os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep))
    if all((folder / "ansible_collections" / name.replace(".", "/")).is_dir() for name in DEPENDENCIES)
]


class Loader(yaml.SafeLoader):
    """Reads Ansible's YAML; a tagged value is its text."""


Loader.add_multi_constructor("!", lambda loader, _suffix, node: loader.construct_scalar(node))


def load(path: Path) -> Any:
    """Return the content of a YAML file."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 (a SafeLoader)


def specs(role: Path) -> dict[str, Any]:
    """Return the argument specs of a role, by entry point."""
    return load(role / "meta/argument_specs.yml")["argument_specs"]


def defaults(role: Path) -> dict[str, Any]:
    """Return the defaults of a role."""
    return load(role / "defaults/main.yml") or {}


def walked(folder: str) -> Iterator[Path]:
    """Yield what is below a folder of the collection, but for what ansible-test makes and removes at the same time."""
    for place, inner, names in os.walk(ROOT / folder):
        if Path(place) == ROOT / "tests":
            inner[:] = [name for name in inner if name != "output"]
        yield from (Path(place, name) for name in (*inner, *names))


def files(*folders: str) -> Iterator[Path]:
    """Yield the files in folders of the collection, without caches."""
    for folder in folders:
        for path in sorted(walked(folder)):
            if path.is_file() and not any(
                part.startswith((".", "__pycache__")) for part in path.relative_to(ROOT).parts
            ):
                yield path


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment and fail with its output if it fails."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", **variables}
    for name in ("ANSIBLE_CONFIG", "PYTHONPATH"):  # Ansible looks for collections on Python's path, too
        environment.pop(name, None)
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def tasks(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tasks in a list of tasks, of blocks or of plays."""
    for entry in value:
        inner = [entry.get(name) for name in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always")]
        if any(inner):
            for part in filter(None, inner):
                yield from tasks(part)
        else:
            yield entry
