# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""report.yml reports every host, those included that fail or are away, and fails after the report is written."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.tests.report import made_fleet
from ansible_collections.cudahub.gpu.tests.unit.playbook_run import LOCAL, run_playbook

AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
HERE = {**LOCAL, "ansible_become": False, "gpu_verify_select": "bad["}
# A connection to this machine that is lost after some commands, for good or for one command.
LOST = """\
from pathlib import Path
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local
DOCUMENTATION = '''
name: lost
short_description: The local connection, until it is lost
description: [The local connection, until it is lost.]
options:
  after: {description: Commands before it is lost., type: int, vars: [{name: lost_after}]}
  commands: {description: Commands that it is lost for., type: int, default: 1000, vars: [{name: lost_for}]}
  place: {description: Folder of the count., type: str, vars: [{name: lost_place}]}
'''
class Connection(Local):
    transport = "lost"
    def exec_command(self, cmd, in_data=None, sudoable=True):
        count = Path(self.get_option("place"), "count-" + self._play_context.remote_addr)
        number = int(count.read_text()) if count.exists() else 0
        count.write_text(str(number + 1))
        if 0 <= number - self.get_option("after") < self.get_option("commands"):
            raise AnsibleConnectionFailure("Connection reset by peer")
        return super().exec_command(cmd, in_data, sudoable)
"""


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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("report_path=/proc/version", "The report can't be written into /proc/version: Not a directory."),
        ("report_spread=nan", "spread is nan: give a share of the median"),
    ],
)
def test_a_report_that_cant_be_written_is_refused_before_a_host_is_asked(
    tmp_path: Path, given: str, words: str
) -> None:
    done = run(tmp_path, {"away": AWAY, "here": HERE}, "-e", given)
    assert done.returncode == 2
    assert words in " ".join(done.stdout.split())
    assert "Reach the host" not in done.stdout


def test_only_hosts_that_are_away_and_no_failure_at_the_end(tmp_path: Path) -> None:
    done = run(tmp_path, {"away": AWAY}, "-e", "report_fail=false", "--limit", "away")
    assert done.returncode == 0, done.stdout
    assert states(tmp_path) == {"away": "unreachable"}
    assert "timed out waiting for ping" in (tmp_path / "gpu-report/index.html").read_text(encoding="utf-8")


def lost(folder: Path, *after: int, **variables: Any) -> dict[str, Any]:
    """Hosts whose connection is lost after some commands."""
    plugins = folder / "connections"
    plugins.mkdir()
    (plugins / "lost.py").write_text(LOST, encoding="utf-8")
    hosts = {**LOCAL, "ansible_connection": "lost", "ansible_become": False, "lost_place": str(folder), **variables}
    return {f"h{number}": {**hosts, "lost_after": number} for number in after}


def messages(folder: Path) -> dict[str, str]:
    found = json.loads((folder / "gpu-report" / "report.json").read_text(encoding="utf-8"))
    return {host["name"]: host["message"] for host in found["hosts"]}


@pytest.mark.parametrize("after", [(1,), (1, 2, 3, 4)])
def test_hosts_that_are_all_lost_on_the_way_are_reported(tmp_path: Path, after: tuple[int, ...]) -> None:
    hosts = lost(tmp_path, *after)
    done = run(tmp_path, hosts, ANSIBLE_CONNECTION_PLUGINS=str(tmp_path / "connections"))
    assert done.returncode == 2, done.stdout
    assert states(tmp_path) == dict.fromkeys(hosts, "unreachable"), done.stdout
    for message in messages(tmp_path).values():
        assert message.startswith("It became unreachable during the run, timed out")
        assert "Connection reset by peer" in message


def test_host_that_is_lost_for_a_moment_has_failed(tmp_path: Path) -> None:
    hosts = lost(tmp_path, 1, lost_for=1)
    done = run(tmp_path, hosts, ANSIBLE_CONNECTION_PLUGINS=str(tmp_path / "connections"), ANSIBLE_STRATEGY="free")
    assert done.returncode == 2, done.stdout
    assert states(tmp_path) == {"h1": "failed"}


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
