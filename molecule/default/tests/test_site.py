# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""site.yml on a fleet: what its users read, with all hosts, with some, with one that is away, and in check mode."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://h100"]

SITE = Path(__file__).parents[3] / "playbooks" / "site.yml"
Play = Callable[..., CompletedProcess[str]]


@pytest.fixture
def site(play: Play) -> Play:
    """Return a function that runs site.yml with further arguments, with the table of the GPUs."""

    def run(*arguments: str) -> CompletedProcess[str]:
        return play(SITE, *arguments, ANSIBLE_CALLBACKS_ENABLED="cudahub.gpu.gpu_table", COLUMNS="120")

    return run


def table(done: CompletedProcess[str]) -> list[str]:
    """The rows of the table, columns apart by a bar."""
    rows = done.stdout.partition("GPUS ***")[2].splitlines()[1:]
    return [re.sub(r" {2,}", "|", row) for row in rows if row]


def recap(done: CompletedProcess[str]) -> dict[str, str]:
    """The counts of each host."""
    return dict(re.findall(r"^(\w+) +: (ok=.*?) *$", done.stdout, re.MULTILINE))


def test_fleet_is_shown_and_no_simulated_gpu_is_verified(site: Play) -> None:
    done = site()
    assert done.returncode == 0, done.stdout
    assert table(done)[:9] == [
        "HOST|GPU|NAME|MEMORY|DRIVER|MIG|HEALTH|VERIFIED",
        "h100|0|NVIDIA H100 80GB HBM3|79.6 GiB|580.159.04|off|ok|simulated",
        *(f"|{index}|NVIDIA H100 80GB HBM3|79.6 GiB|580.159.04|off|ok|simulated" for index in (1, 2, 3)),
        "mixed|0|NVIDIA A100-SXM4-40GB|40.0 GiB|580.159.04|on|ok|simulated",
        "|0.0|MIG 3g.20gb|19.5 GiB|simulated",
        "|0.1|MIG 1g.5gb|4.8 GiB|simulated",
        "|1|Tesla T4|15.0 GiB|580.159.04|-|ok|simulated",
    ]
    assert table(done)[-1] == "2 hosts, 6 GPUs: 6 simulated."
    assert all("changed=0" in counts for counts in recap(done).values())


def test_one_host_in_check_mode(site: Play) -> None:
    done = site("--limit", "mixed", "--check")
    assert done.returncode == 0, done.stdout
    assert list(recap(done)) == ["mixed"]
    assert table(done)[-1] == "1 host, 2 GPUs: 2 simulated."


@pytest.mark.parametrize(("tag", "role"), [("driver", "nvidia_driver"), ("verify", "gpu_verify")])
def test_tag_brings_its_role_and_the_facts(site: Play, tag: str, role: str) -> None:
    done = site("--limit", "h100", "--tags", tag)
    assert done.returncode == 0, done.stdout
    # Ansible validates the options of all roles, whatever the tags.
    ran = re.findall(r"^TASK \[cudahub\.gpu\.(\w+) : (?!Validating arguments)", done.stdout, re.MULTILINE)
    assert list(dict.fromkeys(ran)) == ["gpu_facts", role]
    assert table(done)[-1] == "1 host, 4 GPUs: 4 simulated."


def test_one_of_ten_hosts_is_away_and_the_others_go_on(site: Play, host: Host, tmp_path: Path) -> None:
    there = host.ansible.get_variables()
    alias = {name: there[name] for name in ("ansible_host", "ansible_connection", "ansible_python_interpreter")}
    hosts: dict[str, dict[str, object]] = {f"alias{number}": alias for number in range(7)}
    hosts["ghost"] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    inventory = tmp_path / "more.json"
    inventory.write_text(json.dumps({"gpu_nodes": {"hosts": hosts}}), encoding="utf-8")
    done = site("--inventory", str(inventory))
    assert done.returncode == 4, done.stdout
    assert "ghost|-|-|-|-|-|unreachable|-" in table(done)
    assert any(row.startswith("* ghost is unreachable: ") for row in table(done))
    assert table(done)[-1] == "10 hosts (1 unreachable), 34 GPUs: 34 simulated."
    assert sum("failed=0" in counts and "unreachable=0" in counts for counts in recap(done).values()) == 9


def test_broken_gpu_stops_its_host_only(site: Play, host: Host) -> None:
    host.run_expect([0], "gpu-simulator fault add --kind lost --gpu 2")
    try:
        done = site()
    finally:
        host.run_expect([0], "gpu-simulator fault clear")
    assert done.returncode == 2, done.stdout
    assert "|2|NVIDIA H100 80GB HBM3|-|580.159.04|-|lost|simulated" in table(done)
    assert "mixed|0|NVIDIA A100-SXM4-40GB|40.0 GiB|580.159.04|on|ok|simulated" in table(done)
    assert table(done)[-1] == "2 hosts (1 failed), 6 GPUs: 6 simulated."
