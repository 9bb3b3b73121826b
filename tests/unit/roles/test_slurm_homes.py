# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What role slurm makes of its options for homes and quotas. Every case is a host; all of them are in one run."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import COLLECTION, LOCAL, run_playbook

ROLE = COLLECTION / "roles/slurm"

# As repquota of Debian 13 prints it, of an ext4 with limits for somebody without files.
REPORT = """\
User,BlockStatus,FileStatus,BlockUsed,BlockSoftLimit,BlockHardLimit,BlockGrace,FileUsed,FileSoftLimit,FileHardLimit,FileGrace
#0,ok,ok,88,0,0,,4,0,0,
#2001,ok,ok,5119,0,5120,,6,0,0,
#2002,soft,ok,8199,4096,30720,1764928413,5,0,100,
#5000,ok,ok,0,10,20,,0,0,0,
"""
ANNA, BEN, CARL = ({"name": name, "uid": uid} for name, uid in (("anna", 2001), ("ben", 2002), ("carl", 2003)))
PATH = "give an absolute path below /, without spaces, '..' and a slash at the end."
EXPORT = "slurm_home_export is '/export', which is for a file server of others"
LIMIT = "which is no host of the cluster: limit the users there."
KEYS = "soft_mb, hard_mb, soft_files, hard_files"


def quota(*users: Mapping[str, Any], of_all: Mapping[str, Any] | None = None, before: str = "[]") -> dict[str, Any]:
    return {
        "slurm_users": users,
        "slurm_home_quota": of_all or {},
        "_slurm_quota_report": {"stdout": REPORT},
        "_slurm_quota_recorded": {"content": base64.b64encode(before.encode()).decode()},
    }


# Options, and the sentence that refuses them.
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "a-host": ({"slurm_home_server": "head"}, ""),
    "a-server-of-others": ({"slurm_home_server": "nas.example.org", "slurm_home_export": "/volume1/homes"}, ""),
    "quota": (
        {"slurm_home_quota": {"soft_mb": 1, "hard_mb": 1}, "slurm_users": [{**ANNA, "quota": {"hard_files": 0}}]},
        "",
    ),
    "root": (
        {"slurm_home_directory": "/"},
        f"slurm_home_directory is '/': {PATH}",
    ),
    "upwards": (
        {"slurm_home_directory": "/home/../etc"},
        f"slurm_home_directory is '/home/../etc': {PATH}",
    ),
    "url": (
        {"slurm_home_server": "nfs://nas"},
        "slurm_home_server is 'nfs://nas': give a host of the inventory, or the name or address of a file server.",
    ),
    "own-export": (
        {"slurm_home_server": "head", "slurm_home_export": "/export"},
        f"{EXPORT}: head shares slurm_home_directory itself, so take it away.",
    ),
    "no-server": (
        {"slurm_home_export": "/export"},
        f"{EXPORT}: set slurm_home_server as well, or take it away.",
    ),
    "quota-of-others": (
        {"slurm_home_server": "nas", "slurm_home_quota": {"hard_mb": 1}, "slurm_users": [ANNA]},
        f"slurm_home_quota or quota in slurm_users is set, but the homes are on nas, {LIMIT}",
    ),
    "quota-unit": (
        {"slurm_home_quota": {"hard_mb": "5G"}},
        f'slurm_home_quota is {{"hard_mb": "5G"}}: give whole numbers for {KEYS}, with 0 for no limit.',
    ),
    "quota-key": (
        {"slurm_users": [{**ANNA, "quota": {"mb": 5}}]},
        f'quota in slurm_users of anna is {{"mb": 5}}: give whole numbers for {KEYS}, with 0 for no limit.',
    ),
    "quota-order": (
        {"slurm_home_quota": {"soft_files": 20, "hard_files": 10}},
        "slurm_home_quota has soft_files 20 above hard_files 10: nobody would reach the soft limit.",
    ),
}
# Options, and what setquota is called with.
LIMITS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "as-they-are": (
        quota({**ANNA, "quota": {"hard_mb": 5}}, {**BEN, "quota": {"soft_mb": 4, "hard_mb": 30, "hard_files": 100}}),
        [],
    ),
    "one-wins-over-all": (
        quota(ANNA, {**BEN, "quota": {"soft_mb": 0}}, CARL, of_all={"soft_mb": 4, "hard_mb": 5}),
        ["2001 4096 5120 0 0", "2002 0 5120 0 0", "2003 4096 5120 0 0"],
    ),
    "others-set-them": (quota(ANNA, BEN), []),
    "no-longer": (quota(ANNA, BEN, before="[2001]"), ["2001 0 0 0 0"]),
    "no-longer-and-nothing-left": (quota(CARL, before="[2003]"), []),
    "no-longer-a-user": (quota(BEN, before="[2001]"), []),
    "none-where-none-are": (quota({**CARL, "quota": {"hard_mb": 0}}), []),
    "none-where-some-are": (quota({**ANNA, "quota": {"hard_mb": 0}}), ["2001 0 0 0 0"]),
    "absent": (quota({**ANNA, "state": "absent", "quota": {"hard_mb": 1}}), []),
}
# Exports of an earlier play, of which gpu9 has left the inventory.
EXPORTS = "".join(f"/home {host}.lan(rw,sync) # {host}\n" for host in ("gpu1", "gpu2", "gpu9"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("homes")
    cases = {f"refusal-{name}": options for name, (options, _said) in REFUSALS.items()}
    cases |= {f"limit-{name}": options for name, (options, _said) in LIMITS.items()}
    cases["exports"] = {
        "slurm_home_server": "head",
        "_slurm_home_named": "10.1.2.3",
        "_slurm_home_exports_read": {"content": base64.b64encode(EXPORTS.encode()).decode()},
    }
    inventory = {
        "slurm_controller": {"hosts": {"head": {}}},
        "slurm_compute": {"hosts": {"gpu1": {}, "gpu2": {}, "exports": {}}},
        "cases": {"hosts": cases, "vars": LOCAL},
    }
    asked = {
        "mistakes": "{{ _slurm_home_mistakes }}",
        "limits": "{{ _slurm_quota_differences if _slurm_quota_report is defined else [] }}",
        "exports": "{{ lookup('template', 'homes.exports.j2') if _slurm_home_named is defined else '' }}",
    }
    play = {
        "hosts": "cases",
        "gather_facts": False,
        "vars_files": [str(ROLE / "vars/main.yml")],
        "tasks": [
            {"ansible.builtin.set_fact": {"answer": asked}},
            {
                "ansible.builtin.copy": {
                    "content": "{{ answer | to_json }}",
                    "dest": f"{folder}/{{{{ inventory_hostname }}}}",
                }
            },
        ],
    }
    (folder / "templates").symlink_to(ROLE / "templates")
    # As group variables, a case's options win over them.
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").symlink_to(ROLE / "defaults/main.yml")
    done = run_playbook(folder, inventory, [play])
    if done.returncode != 0:
        pytest.fail(done.stdout)
    return {host: json.loads((folder / host).read_text(encoding="utf-8")) for host in cases}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_can_not_be_is_refused_in_one_sentence(answers: dict[str, dict[str, Any]], name: str) -> None:
    assert answers[f"refusal-{name}"]["mistakes"] == list(filter(None, [REFUSALS[name][1]]))


@pytest.mark.parametrize("name", LIMITS)
def test_only_limits_that_differ_are_set(answers: dict[str, dict[str, Any]], name: str) -> None:
    assert answers[f"limit-{name}"]["limits"] == LIMITS[name][1]


def test_the_homes_are_given_to_the_hosts_of_the_cluster_and_to_no_other(answers: dict[str, dict[str, Any]]) -> None:
    exports = answers["exports"]["exports"]
    assert [line for line in exports.splitlines() if not line.startswith("#")] == [
        "/home 10.1.2.3(rw,sync,root_squash,no_subtree_check) # exports",
        "/home gpu1.lan(rw,sync,root_squash,no_subtree_check) # gpu1",
        "/home gpu2.lan(rw,sync,root_squash,no_subtree_check) # gpu2",
    ]
