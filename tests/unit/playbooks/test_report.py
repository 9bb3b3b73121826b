# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""report.yml reports every host, those included that fail or are away, and fails after the report is written."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from ansible_collections.cudahub.gpu.tests.report import made_fleet
from ansible_collections.cudahub.gpu.tests.unit.playbook_run import LOCAL, run_playbook

AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
HERE = {**LOCAL, "ansible_become": False, "gpu_verify_select": "bad["}


def run(folder: Path, hosts: dict[str, Any], *arguments: str, **environment: str) -> CompletedProcess[str]:
    inventory = {"gpu_nodes": {"hosts": hosts}}
    options = ("-e", "report_connect_timeout=1", *arguments)
    return run_playbook(folder, inventory, "cudahub.gpu.report", *options, **environment)


def states(folder: Path) -> dict[str, str]:
    found = json.loads((folder / "gpu-report" / "report.json").read_text(encoding="utf-8"))
    return {host["name"]: host["state"] for host in found["hosts"]}


def test_hosts_that_fail_or_are_away_are_reported(tmp_path: Path) -> None:
    done = run(tmp_path, {"away": AWAY, "here": HERE})
    assert done.returncode == 2, done.stdout
    assert states(tmp_path) == {"away": "unreachable", "here": "failed"}
    recap = done.stdout.partition("PLAY RECAP")[2]
    assert [line.count("failed=1") for line in recap.splitlines() if line.startswith(("away", "here"))] == [1, 1]


def test_only_hosts_that_are_away_and_no_failure_at_the_end(tmp_path: Path) -> None:
    done = run(tmp_path, {"away": AWAY}, "-e", "report_fail=false", "--limit", "away")
    assert done.returncode == 0, done.stdout
    assert states(tmp_path) == {"away": "unreachable"}
    assert "timed out waiting for ping" in (tmp_path / "gpu-report/index.html").read_text(encoding="utf-8")


def test_facts_that_are_in_the_cache_are_reported_without_asking(tmp_path: Path) -> None:
    cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "cache")}
    fleet = zip(("a", "b"), made_fleet.fleet(4, 2, "quick").values(), strict=False)
    known = {name: {**AWAY, "known": result} for name, result in fleet}
    facts = {"gpu": "{{ known.facts }}", "gpu_verification": "{{ known.verification }}", "cacheable": True}
    know = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.set_fact": facts}]}
    before = run_playbook(tmp_path, {"all": {"hosts": known}}, [know], **cache)
    assert before.returncode == 0, before.stdout
    done = run(tmp_path, {"a": AWAY, "b": AWAY}, "-e", "report_run=false", **cache)
    assert states(tmp_path) == {"a": "passed", "b": "failed"}, done.stdout
    assert done.returncode == 2
    assert "isn't fit, matmul_rate is not as expected" in done.stdout
