# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action in real runs of ansible-playbook: a stand-in module runs as a job on the local connection."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.cudahub.gpu.plugins.action import async_progress
from ansible_collections.cudahub.gpu.tests.unit.playbook_run import LOCAL, run_playbook

Play = Callable[..., subprocess.CompletedProcess[str]]

MODULE = """\
#!/usr/bin/python
import os, time
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(
    argument_spec={
        "log": {}, "until": {}, "seconds": {"type": "float", "default": 0}, "fail": {"type": "bool"}, "warn": {}
    },
    supports_check_mode=True,
)
if module.params["log"]:
    with open(module.params["log"], "w") as log:
        log.write("Unpacking\\nBuilding module for the kernel\\n")
while module.params["until"] and not os.path.exists(module.params["until"]):
    time.sleep(0.1)
time.sleep(module.params["seconds"])
if module.params["warn"]:
    module.warn(module.params["warn"])
if module.params["fail"]:
    module.fail_json(msg="It does not compile.", failure={"kind": "dkms"})
module.exit_json(changed=True, msg="It is built.", diff={"before": "old\\n", "after": "new\\n"})
"""


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a function that starts the stand-in, waits for it and shows what the task returned."""
    library, programs = tmp_path / "library", tmp_path / "bin"
    library.mkdir()
    programs.mkdir()
    (programs / "tail").write_text(f'#!/bin/sh\ntouch {tmp_path}/told\nexec /usr/bin/tail "$@"\n', encoding="utf-8")
    (programs / "tail").chmod(0o755)
    (library / "stand_in.py").write_text(MODULE, encoding="utf-8")

    def run(
        job: dict[str, Any], progress: dict[str, Any], *arguments: str, refused: Sequence[dict[str, Any]] = ()
    ) -> subprocess.CompletedProcess[str]:
        log = str(tmp_path / "job.log")
        options = {"job": "{{ started.ansible_job_id | default('') }}", "log": log, "title": "driver", **progress}
        tasks = [
            {
                "name": "Start",
                "stand_in": {"log": log, **job},
                "async": "{{ 0 if ansible_check_mode else 60 }}",
                "poll": 0,
                "register": "started",
            },
            *(
                {
                    "block": [{"name": "Refuse", "cudahub.gpu.async_progress": {**options, **bad}}],
                    "rescue": [{"name": "Go on", "ansible.builtin.debug": {}}],
                }
                for bad in refused
            ),
            {"name": "Wait", "cudahub.gpu.async_progress": options, "register": "ended"},
            {"name": "Show", "ansible.builtin.copy": {"content": "{{ ended | to_json }}", "dest": f"{tmp_path}/ended"}},
        ]
        playbook = [{"name": "Test", "hosts": "four", "gather_facts": False, "tasks": tasks}]
        inventory = {"all": {"hosts": {"four": {**LOCAL, "ansible_async_dir": str(tmp_path / "async")}}}}
        environment = {"ANSIBLE_LIBRARY": str(library), "COLUMNS": "200", "PATH": f"{programs}:{os.environ['PATH']}"}
        return run_playbook(tmp_path, inventory, playbook, *arguments, **environment)

    return run


def test_job_is_shown_and_its_result_returned(play: Play, tmp_path: Path) -> None:
    job = {"until": str(tmp_path / "told"), "warn": "Look at it."}
    done = play(job, {"every": 0.5}, "--diff")
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("[four] driver: ")]
    assert lines
    assert all(line.endswith(" s: Building module for the kernel") for line in lines)
    assert "Look at it." in done.stdout
    assert "-old" in done.stdout
    assert "+new" in done.stdout
    ended = json.loads((tmp_path / "ended").read_text(encoding="utf-8"))
    assert (ended["changed"], ended["failed"], ended["msg"]) == (True, False, "It is built.")
    assert "ansible_job_id" not in ended
    assert list((tmp_path / "async").iterdir()) == []


def test_failure_of_the_job_is_the_tasks(play: Play) -> None:
    done = play({"fail": True}, {})
    assert done.returncode == 2, done.stdout
    assert "It does not compile." in done.stdout
    assert '"kind": "dkms"' in done.stdout or "kind: dkms" in done.stdout


def test_job_that_takes_too_long_is_said_and_goes_on(play: Play) -> None:
    done = play({"seconds": 30}, {"timeout": 1})
    assert done.returncode == 2, done.stdout
    assert "driver is not done after 1 s and goes on in the background; its log " in done.stdout
    assert "says last: Building module for the kernel" in done.stdout


def test_check_mode_waits_for_nothing(play: Play) -> None:
    done = play({}, {}, "--check")
    assert done.returncode == 0, done.stdout
    assert "skipped=1" in done.stdout


def test_bad_input_is_refused(play: Play) -> None:
    cases = {
        "every is 0: it must be more than 0 seconds": {"every": 0},
        "timeout is -1: it must be more than 0 seconds": {"timeout": -1},
        "could not find job": {"job": "1.2"},
        "pace": {"pace": 3},
    }
    done = play({}, {}, refused=list(cases.values()))
    assert f"rescued={len(cases)}" in done.stdout, done.stdout
    refusals = done.stdout.split("TASK [Refuse]")[1:]
    for refusal, sentence in zip(refusals, cases, strict=True):
        assert sentence in refusal


def test_host_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    action = async_progress.ActionModule.__new__(async_progress.ActionModule)
    answers = [{"failed": True, "msg": "no such host"}] * async_progress.FAILURES_IN_A_ROW
    monkeypatch.setattr(action, "_status", lambda *_arguments: answers.pop())
    monkeypatch.setattr(async_progress.time, "sleep", lambda _seconds: None)
    options = {"job": "1", "log": "/log", "title": "driver", "every": 30.0, "timeout": 100.0}
    with pytest.raises(AnsibleConnectionFailure, match="no such host"):
        action._wait(options, {})
    assert answers == []


def test_the_log_is_a_file_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    action = async_progress.ActionModule.__new__(async_progress.ActionModule)
    commands: list[str] = []

    def execute(command: str, **_options: Any) -> dict[str, Any]:
        commands.append(command)
        return {"rc": 0, "stdout": "a line"}

    monkeypatch.setattr(action, "_remote_expand_user", lambda path: path.replace("~", "/home/of the host"))
    monkeypatch.setattr(action, "_low_level_execute_command", execute)
    assert action._log("~/log") == "a line"
    assert commands == [f"tail -c {async_progress.LOG_TAIL_BYTES} '/home/of the host/log'"]
    assert async_progress.ARGUMENTS["log"]["type"] == "str", "a path is expanded on the controller"
