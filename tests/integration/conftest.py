# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real playbooks against this machine and its real GPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
HAS_GPU = Path("/proc/driver/nvidia/version").exists() and shutil.which("nvidia-smi") is not None
MEASURED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MEASURED] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Pytest gives all that it runs, tests of other folders too.
    for item in (one for one in items if one.path.is_relative_to(Path(__file__).parent)):
        item.add_marker(pytest.mark.gpu)
        if not HAS_GPU:
            item.add_marker(pytest.mark.skip(reason=f"not run: {item.name} needs a real GPU"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("measured")
    for line in config.stash[MEASURED]:
        terminalreporter.line(line)


@dataclass(frozen=True)
class Run:
    """A run of ansible-playbook: what it printed, and the facts that it left."""

    returncode: int
    output: str
    seconds: float
    facts: dict[str, Any]

    @property
    def changed(self) -> int:
        found = re.search(r"^localhost .*\bchanged=(\d+)", self.output, re.MULTILINE)
        assert found, self.output
        return int(found.group(1))


@dataclass(frozen=True)
class Host:
    """This machine, as an inventory of one host."""

    directory: Path
    python: str
    measured: list[str]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(self.directory / "collections"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_NOCOLOR": "true",
        }

    def playbook(self, name: str, **variables: object) -> Run:
        """Run a playbook, and keep the facts that it leaves."""
        facts, wrapper = self.directory / "facts.json", self.directory / "wrapper.yml"
        facts.unlink(missing_ok=True)
        keep = {
            "ansible.builtin.copy": {"content": "{{ ansible_facts | to_json }}", "dest": str(facts), "mode": "0644"},
            "changed_when": False,
        }
        plays = [{"import_playbook": name}, {"hosts": "all", "gather_facts": False, "tasks": [keep]}]
        wrapper.write_text(json.dumps(plays))
        command = [sys.executable, "-m", "ansible", "playbook", str(wrapper)]
        inventory = ["-i", str(self.directory / "inventory.yml")]
        started = time.monotonic()
        done = subprocess.run(
            [*command, *inventory, "-e", json.dumps({"gpu_verify_python": self.python, **variables})],
            env=self.environment(),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=540,
        )
        seconds = time.monotonic() - started
        print(done.stdout)
        return Run(done.returncode, done.stdout, seconds, json.loads(facts.read_text()) if facts.exists() else {})

    def task(self, module: str, **arguments: object) -> dict[str, Any]:
        """The result of one task, failed or not."""
        result = self.directory / "result.json"
        playbook = self.directory / "task.yml"
        block = {
            "block": [{module: arguments, "register": "found"}],
            "rescue": [{"ansible.builtin.debug": {"var": "found.msg"}}],
            "always": [
                {"ansible.builtin.copy": {"content": "{{ found | to_json }}", "dest": str(result), "mode": "0644"}}
            ],
        }
        playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [block]}]))
        run = self.playbook(str(playbook))
        assert run.returncode == 0, run.output
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    def smi(self) -> ET.Element:
        return ET.fromstring(subprocess.check_output(["nvidia-smi", "-q", "-x"], text=True))  # noqa: S314


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Host:
    python = shutil.which(os.environ.get("GPU_VERIFY_PYTHON", "python3"))
    assert python, "GPU_VERIFY_PYTHON names no interpreter"
    directory = tmp_path_factory.mktemp("host")
    package = directory / "collections" / "ansible_collections" / "cudahub"
    package.mkdir(parents=True)
    (package / "gpu").symlink_to(REPOSITORY)
    variables = {"ansible_connection": "local", "ansible_python_interpreter": python}
    inventory = {"gpu_nodes": {"hosts": {"localhost": variables}}}
    (directory / "inventory.yml").write_text(json.dumps(inventory))
    return Host(directory, python, pytestconfig.stash[MEASURED])


def compute_processes() -> set[str]:
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    return set(subprocess.check_output(query, text=True).split())


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No test may leave a process on a GPU."""
    before = compute_processes()
    yield
    assert compute_processes() <= before
