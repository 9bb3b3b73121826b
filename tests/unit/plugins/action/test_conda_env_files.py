# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action in real runs of ansible-playbook: what it reads here is what the module gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import LOCAL, run_playbook

URL = "https://conda.example.org/forge/noarch"
MD5 = "0123456789abcdef0123456789abcdef"
# It says what conda would say, and notes its arguments.
CONDA = """\
#!/bin/sh
[ "$1" = --version ] && { echo conda 24.7.1; exit; }
echo "$@" >> "$(dirname "$0")/calls"
echo '{"success": true, "actions": {}, "pkgs_dirs": []}'
"""
ENVIRONMENT = """\
name: course
channels: [rapidsai, conda-forge]
dependencies:
  - cudf=26.10
  - pip
  - pip: [nvtx, "cupy>=13"]
"""


class Play:
    """A directory with a playbook, its files, and an environment that has cudf and pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix = folder / "x"
        meta = self.prefix / "conda-meta"
        meta.mkdir(parents=True)
        for name, version in (("cudf", "26.10.0"), ("pip", "26")):
            record = {
                "name": name,
                "version": version,
                "build": "0",
                "md5": MD5,
                "url": f"{URL}/{name}-{version}-0.conda",
            }
            (meta / f"{name}-{version}-0.json").write_text(json.dumps(record), encoding="utf-8")
        self.write("files/course/environment.yml", ENVIRONMENT)
        self.write("conda", CONDA)
        (folder / "conda").chmod(0o755)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, tasks: list[dict[str, Any]], *arguments: str) -> list[dict[str, Any]]:
        """Return what each task returned, failed or not."""
        blocks = []
        for number, options in enumerate(tasks):
            task = {
                "name": "Call",
                "cudahub.gpu.conda_env": {
                    "prefix": str(self.prefix),
                    "executable": "/nonexistent",
                    "cuda": "none",
                    "log": str(self.folder / "log"),
                    **options["args"],
                },
                "register": f"result{number}",
                **{key: value for key, value in options.items() if key != "args"},
            }
            blocks.append({"block": [task], "rescue": [{"name": "Go on", "ansible.builtin.meta": "noop"}]})
        results = ", ".join(f"result{number}" for number in range(len(tasks)))
        copy = {"content": f"{{{{ [{results}] | to_json }}}}", "dest": str(self.folder / "results")}
        blocks.append({"name": "Show", "ansible.builtin.copy": copy, "check_mode": False})
        playbook = [{"name": "Test", "hosts": "four", "gather_facts": False, "tasks": blocks}]
        inventory, jobs = {"all": {"hosts": {"four": LOCAL}}}, str(self.folder / "jobs")
        run = run_playbook(self.folder, inventory, playbook, *arguments, ANSIBLE_ASYNC_DIR=jobs)
        assert run.returncode == 0, run.stdout
        found: list[dict[str, Any]] = json.loads((self.folder / "results").read_text(encoding="utf-8"))
        return found

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def test_files_of_the_controller_are_what_is_asked_for(play: Play) -> None:
    file = {"environment_file": "course/environment.yml"}
    conda = {"executable": str(play.folder / "conda"), "packages": ["absent"]}
    lock = f"# platform: linux-64\n@EXPLICIT\n{URL}/cudf-26.10.0-0.conda#{MD5}\n\n{URL}/pip-26-0.conda#{MD5}\n"
    play.write("files/lock.txt", lock)
    play.write("plain.yml", "dependencies: [cudf, pip]\n")
    (of_file, added, of_channels, other_channels, default, locked, differs) = play.run(
        [
            {"args": file},
            {"args": {**file, "pip": "numpy"}},
            {"args": {**file, **conda}},
            {"args": {**file, **conda, "channels": ["mine"]}},
            {"args": {"environment_file": str(play.folder / "plain.yml"), **conda}},
            {"args": {"state": "locked", "lock_file": "lock.txt"}, "async": 600, "poll": 1},
            {"args": {"state": "locked", "lock": [f"{URL}/cudf-26.10.0-0.conda#{MD5}"]}},
        ],
        "--check",
    )
    # no tool is asked, as the packages of the file are there, and pip's are not
    assert (of_file["changed"], of_file["tool"]) == (True, "")
    assert of_file["pip_packages"] == ["cupy>=13", "nvtx"]
    assert added["pip_packages"] == ["cupy>=13", "numpy", "nvtx"]
    assert [one["changed"] for one in (of_channels, other_channels, default)] == [True] * 3
    (first, second, third) = play.calls
    assert first.endswith("--override-channels -c rapidsai -c conda-forge cudf=26.10 pip absent")
    assert second.endswith("--override-channels -c mine cudf=26.10 pip absent")
    assert third.endswith("--override-channels -c conda-forge cudf pip absent")
    assert (locked["changed"], locked["tool"]) == (False, "")
    assert [one["name"] for one in locked["packages"]] == ["cudf", "pip"]
    assert (differs["changed"], differs["removed"]) == (True, {"pip": "26 0"})


def test_files_that_can_not_be_used(play: Play) -> None:
    play.write("files/bad.yml", "name: x\ndependencies:\n  - a\n - b\n")
    play.write("files/list.yml", "[a, b]\n")
    play.write("files/lock.txt", "@EXPLICIT\n")
    (play.folder / "files/binary").write_bytes(b"\xff\xfe\x00")
    line = f"{URL}/cudf-26.10.0-0.conda#{MD5}"
    expected = [
        ({"environment_file": "bad.yml"}, "environment_file bad.yml is no YAML: line 4: "),
        ({"environment_file": "list.yml"}, "environment_file list.yml: it is a list, and a mapping with dependencies"),
        ({"environment_file": "nothing.yml"}, "environment_file nothing.yml can't be read on the controller: "),
        ({"environment_file": "binary"}, "environment_file binary is no text: "),
        ({"lock_file": "nothing.txt", "state": "locked"}, "lock_file nothing.txt can't be read on the controller: "),
        (
            {"lock_file": "lock.txt", "lock": [line], "state": "locked"},
            "lock and lock_file can't be given together: leave one out",
        ),
        ({"lock_file": "lock.txt"}, "lock is for state locked, and state is present"),
        ({"packages": ["absent"]}, f"{play.prefix}: executable /nonexistent is not there, or is no program"),
    ]
    found = play.run([{"args": options} for options, _message in expected])
    for result, (_options, message) in zip(found, expected, strict=True):
        assert result["failed"]
        assert message in result["msg"]
    assert found[-1]["failure"]["kind"] == "broken"
