# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""site.yml goes by inventory group: a host in none of them is not touched, and one in none at all is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.plugin_utils import _table

# Where the collection that is tested was found: <this>/cudahub/gpu/plugins/plugin_utils/_table.py
COLLECTIONS = Path(_table.__file__).parents[4]

NOBODY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}


def site(tmp_path: Path, inventory: dict[str, object], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run site.yml on hosts that nobody can reach."""
    (tmp_path / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    return subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts.json", "cudahub.gpu.site", *arguments],
        cwd=tmp_path,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS.parent),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
            "ANSIBLE_FORCE_COLOR": "false",
        },
        capture_output=True,
        text=True,
        check=False,
    )


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
    assert "Put your hosts with GPUs into the group gpu_nodes" in done.stdout + done.stderr
    assert "unreachable=0" in done.stdout
    assert "WARNING" not in done.stdout + done.stderr


@pytest.mark.parametrize("limit", [[], ["--limit", "b"]])
def test_only_hosts_of_the_group_are_worked_on(tmp_path: Path, limit: list[str]) -> None:
    groups: dict[str, object] = {"web": {"hosts": {"a": NOBODY}}, "gpu_nodes": {"hosts": {"b": NOBODY}}}
    done = site(tmp_path, groups, *limit)
    assert done.returncode == 4, done.stdout
    recap = done.stdout.partition("PLAY RECAP")[2]
    assert "unreachable=1" in next(line for line in recap.splitlines() if line.startswith("b "))
    assert not [line for line in recap.splitlines() if line.startswith("a ") and "unreachable=0" not in line]
    assert "WARNING" not in done.stdout + done.stderr


@pytest.mark.parametrize("tag", ["facts", "driver", "verify"])
def test_tags(tmp_path: Path, tag: str) -> None:
    done = site(tmp_path, {"gpu_nodes": {"hosts": {"b": NOBODY}}}, "--list-tags")
    assert done.returncode == 0, done.stderr
    assert tag in done.stdout.partition("TASK TAGS: [")[2]
