# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action in real runs of ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.cudahub.gpu.plugins.modules import fleet_report
from ansible_collections.cudahub.gpu.tests.report import made_fleet
from ansible_collections.cudahub.gpu.tests.unit.playbook_run import run_playbook

Play = Callable[..., subprocess.CompletedProcess[str]]
PATH = "{{ playbook_dir }}/report"


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a function that has four hosts know the results of a fleet and writes reports of them."""

    def run(tasks: list[dict[str, Any]], *arguments: str) -> subprocess.CompletedProcess[str]:
        fleet = list(made_fleet.fleet(4, 2, "quick").values())
        facts = {"gpu": "{{ known.facts }}", "gpu_verification": "{{ known.verification }}", "cacheable": True}
        hosts = {f"h{number}": {"known": one} for number, one in enumerate(fleet)}
        before = {"name": "Know", "ansible.builtin.set_fact": facts, "when": "known.facts is defined"}
        play = {"name": "Test", "hosts": "all", "gather_facts": False, "tasks": [before, *tasks]}
        return run_playbook(tmp_path, {"all": {"hosts": hosts}}, [play], *arguments)

    return run


def write(**options: Any) -> dict[str, Any]:
    return {
        "name": "Write",
        "cudahub.gpu.fleet_report": {"path": PATH, **options},
        "run_once": True,
        "register": "written",
    }


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))


def test_report_of_the_plays_hosts(play: Play, tmp_path: Path) -> None:
    keep = {
        "ansible.builtin.copy": {"content": "{{ written | to_json }}", "dest": f"{tmp_path}/written"},
        "run_once": True,
    }
    delegated = {**keep, "delegate_to": "localhost", "vars": {"ansible_connection": "local"}}
    done = play([write(title="{{ 'Lab' }}"), delegated], "--diff")
    assert done.returncode == 0, done.stdout
    assert "+4 hosts (1 unreachable, 1 failed), 6 GPUs: 5 verified, 1 failed." in done.stdout
    found = report(tmp_path)
    assert found["title"] == "Lab"
    assert {host["name"]: host["state"] for host in found["hosts"]} == {
        "h0": "passed", "h1": "failed", "h2": "unreachable", "h3": "passed",
    }  # fmt: skip
    written = json.loads((tmp_path / "written").read_text(encoding="utf-8"))
    described = yaml.safe_load(fleet_report.RETURN)
    assert set(written) == {*described, "changed", "failed", "diff"}
    for name in ("summary", "files"):
        assert set(written[name]) == set(described[name]["contains"])
    assert set(written["failed_hosts"]) == {"h1", "h2"}


def test_reasons_that_a_play_gives(play: Play, tmp_path: Path) -> None:
    reason = {"fleet_report_failed": "{{ 'The driver is absent.' if inventory_hostname == 'h3' else omit }}"}
    done = play(
        [
            {"name": "Fail", "ansible.builtin.set_fact": reason, "when": "inventory_hostname == 'h3'"},
            write(hosts=["h3"]),
        ]
    )
    assert done.returncode == 0, done.stdout
    (host,) = report(tmp_path)["hosts"]
    assert (host["state"], host["message"]) == ("failed", "The driver is absent.")


def test_results_that_are_given(play: Play, tmp_path: Path) -> None:
    done = play([write(results={"elsewhere": {"unreachable": "It is being repaired."}})])
    assert done.returncode == 0, done.stdout
    assert [host["name"] for host in report(tmp_path)["hosts"]] == ["elsewhere"]


def test_check_mode(play: Play, tmp_path: Path) -> None:
    done = play([write()], "--check", "--diff")
    assert done.returncode == 0, done.stdout
    assert "+4 hosts" in done.stdout
    assert not (tmp_path / "report").exists()


def test_history_that_nobody_ever_writes_is_a_warning(play: Play, tmp_path: Path) -> None:
    history = tmp_path / "report" / "history"
    history.mkdir(parents=True)
    os.mkfifo(history / "2026-01-01T000000Z.json")
    (history / "2026-01-02T000000Z.json").mkdir()
    done = play([write()])
    assert done.returncode == 0, done.stdout
    assert " ".join(done.stdout.split()).count("is left out of the history, it is no file") == 2


def test_history_that_is_none_is_a_warning(play: Play, tmp_path: Path) -> None:
    bad = tmp_path / "report" / "history" / "2026-01-01T000000Z.json"
    bad.parent.mkdir(parents=True)
    bad.write_text("{")
    done = play([write()])
    assert done.returncode == 0, done.stdout
    assert "is left out of the history, it is no report's" in " ".join(done.stdout.split())
    assert bad.exists()


def test_bad_input_is_refused(play: Play, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cases: dict[str, dict[str, Any]] = {
        "keep is 0: it must be at least 1": {"keep": 0},
        "spread is 1: give a share of the median between 0 and 1": {"spread": 1},
        "wait is -1: it must be 0 seconds or more": {"wait": -1},
        "hosts names nobody, which is not in the inventory": {"hosts": ["nobody"]},
        "results of a are no dictionary of facts, failed, unreachable, verification": {"results": {"a": 3}},
        "results of b are no dictionary": {"results": {"b": {"gpus": []}}},
        "path is empty: give a folder of the controller.": {"path": ""},
        '/file: Not a directory. Give path a directory that this user may write to."': {
            "path": "{{ playbook_dir }}/file/report"
        },
        "Unsupported parameters": {"pace": 3},
    }
    tasks: list[dict[str, Any]] = [
        {"block": [write(**bad)], "rescue": [{"name": "Go on", "ansible.builtin.debug": {}}]} for bad in cases.values()
    ]
    done = play(tasks)
    assert f"rescued={len(cases)}" in done.stdout, done.stdout
    for refusal, sentence in zip(done.stdout.split("TASK [Write]")[1:], cases, strict=True):
        assert sentence in " ".join(refusal.split())
