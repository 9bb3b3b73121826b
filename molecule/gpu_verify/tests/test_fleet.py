# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbook verify.yml on a fleet of five hosts, of which one doesn't answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://h200"]


@pytest.fixture
def inventory(host: Host, tmp_path: Path) -> Path:
    """Five names, four of them for the same host."""
    variables = host.ansible.get_variables()
    reach = {name: variables[name] for name in ("ansible_host", "ansible_connection")}
    ghost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    hosts = {f"gpu{number}": reach for number in range(4)} | {"ghost": ghost}
    path = tmp_path / "inventory.yml"
    path.write_text(json.dumps({"all": {"children": {"workers": {"hosts": hosts}}}}))
    return path


def verify(inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the playbook by its name in the collection."""
    command = [Path(sys.executable).with_name("ansible-playbook"), "cudahub.gpu.verify", "-i", inventory, *arguments]
    environment = {**os.environ, "ANSIBLE_FORKS": "4", "ANSIBLE_FORCE_COLOR": "false"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def recap(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, int]]:
    """Return the counters of each host."""
    lines = re.findall(r"^(\w+) +: (ok=.*)$", done.stdout, re.MULTILINE)
    return {name: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)} for name, line in lines}


def test_one_unreachable_host_does_not_stop_the_others(inventory: Path) -> None:
    done = verify(inventory)
    found = recap(done)
    assert sorted(found) == ["ghost", *(f"gpu{number}" for number in range(4))]
    assert found.pop("ghost")["unreachable"] == 1
    for counters in found.values():
        assert (counters["changed"], counters["failed"], counters["unreachable"]) == (0, 0, 0)
    assert done.stdout.count("GPUs: 4 simulated, in ") == 4
    assert done.returncode == 4


@pytest.mark.parametrize("arguments", [["--limit", "gpu3"], ["--limit", "gpu3", "--check"], ["-e", "target=gpu3"]])
def test_one_host_of_many(inventory: Path, arguments: list[str]) -> None:
    done = verify(inventory, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(recap(done)) == ["gpu3"]
    assert done.stdout.count("GPUs: 4 simulated, in ") == 1


def test_the_report_is_written_before_a_host_fails(inventory: Path, tmp_path: Path, host: Host) -> None:
    report = tmp_path / "report"
    host.run_expect([0], "gpu-simulator fault add --gpu 2 --kind lost")
    try:
        done = verify(inventory, "--limit", "gpu3:ghost", "-e", f"gpu_verify_report={report}")
    finally:
        host.run_expect([0], "gpu-simulator fault clear")
    assert recap(done)["gpu3"]["failed"] == 1, done.stdout
    found = {one["name"]: one["state"] for one in json.loads((report / "report.json").read_text())["hosts"]}
    assert found == {"gpu3": "failed", "ghost": "unreachable"}
    assert (report / "index.html").exists()
