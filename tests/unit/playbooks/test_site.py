# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""site.yml goes by inventory group: a host in none of them is not touched, and one in none at all is said."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import run_playbook
from ansible_collections.cudahub.gpu.tests.unit.playbooks.reduced_site import Site, hosts

NOBODY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}


def site(tmp_path: Path, inventory: dict[str, object], *arguments: str) -> CompletedProcess[str]:
    """Run site.yml on hosts that nobody can reach."""
    return run_playbook(tmp_path, inventory, "cudahub.gpu.site", *arguments)


@pytest.mark.parametrize(
    "groups",
    [
        {"web": {"hosts": {"a": NOBODY}}},
        {"web": {"hosts": {"a": NOBODY}}, "gpu_nodes": {"hosts": {}}},
    ],
)
def test_no_host_in_any_group_is_said_and_no_host_is_touched(tmp_path: Path, groups: dict[str, object]) -> None:
    done = site(tmp_path, groups)
    assert done.returncode == 2, done.stdout
    assert "Put your hosts with GPUs into the group gpu_nodes" in done.stdout
    assert "unreachable=0" in done.stdout
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize("limit", [[], ["--limit", "b"]])
def test_only_hosts_of_the_group_are_worked_on(tmp_path: Path, limit: list[str]) -> None:
    groups: dict[str, object] = {"web": {"hosts": {"a": NOBODY}}, "gpu_nodes": {"hosts": {"b": NOBODY}}}
    done = site(tmp_path, groups, *limit)
    assert done.returncode == 4, done.stdout
    recap = done.stdout.partition("PLAY RECAP")[2]
    assert "unreachable=1" in next(line for line in recap.splitlines() if line.startswith("b "))
    assert not [line for line in recap.splitlines() if line.startswith("a ") and "unreachable=0" not in line]
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize("tag", ["facts", "driver", "verify"])
def test_tags(tmp_path: Path, tag: str) -> None:
    done = site(tmp_path, {"gpu_nodes": {"hosts": {"b": NOBODY}}}, "--list-tags")
    assert done.returncode == 0, done.stdout
    assert tag in done.stdout.partition("TASK TAGS: [")[2]


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"), "cudahub.gpu.site")


def test_containers_come_after_the_driver(reduced: Site) -> None:
    ran = reduced.run({"gpu_nodes": hosts("a", "b"), "docker_gpu": hosts("a", "c")})
    assert ran.code == 0, ran.output
    assert (ran.of("a"), ran.of("b")) == (["facts", "driver", "proof", "containers"], ["facts", "driver", "proof"])
    assert ran.of("c") == ["containers"]


def test_a_host_that_waits_for_a_reboot_gets_no_containers(reduced: Site) -> None:
    groups = {"gpu_nodes": {"a": {"waits": True}, "b": {}}, "docker_gpu": hosts("a", "b")}
    ran = reduced.run(groups)
    assert ran.code == 0, ran.output
    assert (ran.of("a"), ran.of("b")) == (["facts", "driver"], ["facts", "driver", "proof", "containers"])
    assert "Containers on a see no GPUs yet: its NVIDIA driver waits for a reboot" in ran.output


def test_containers_alone(reduced: Site) -> None:
    ran = reduced.run({"gpu_nodes": hosts("a"), "docker_gpu": hosts("a")}, "--tags", "containers")
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["containers"]
