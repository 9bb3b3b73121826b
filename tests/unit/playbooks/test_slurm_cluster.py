# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm_cluster.yml brings the driver of its compute nodes, and takes work from a node before it reboots it.

The hosts are this machine. Roles are reduced to what says that they ran, except for what is done around a reboot,
which is real up to the modules, in check mode.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import COLLECTION, CONNECTION, LOCAL, run_playbook

SYSTEMCTL = """\
#!/bin/sh
case " $LIVE " in *" $HOST "*) echo active ;; *) echo inactive; exit 3 ;; esac
"""
SCONTROL = """\
#!/bin/sh
reason=$(cat "$REASONS/$HOST" 2>/dev/null)
echo "NodeName=$HOST State=IDLE+DRAIN Reason=${reason:-cudahub: planned work} [root@2026-11-28T10:00:00]"
"""
FACTS = """\
#!/usr/bin/python
import os
from ansible.module_utils.basic import AnsibleModule
options = {name: {"type": "raw"} for name in ("gather_timeout", "gather_subset")}
module = AnsibleModule(argument_spec=options, supports_check_mode=True)
module.exit_json(ansible_facts={"ansible_hostname": os.environ["HOST"]})
"""
MODULE = """\
#!/usr/bin/python
import os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec={name: {"type": "raw"} for name in %(options)r}, supports_check_mode=True)
if os.environ["HOST"] in os.environ.get("BUSY", "").split():
    module.fail_json(msg="still runs 1 job")
module.exit_json(changed=True, reboot_needed=False, reason="", told=module.params.get("only_reason"))
"""


def said(name: str) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.debug": {}}


STAND_INS: Mapping[str, Any] = {
    "gpu_facts/tasks/main.yml": [
        {"name": "Facts", "ansible.builtin.set_fact": {"gpu": {"count": "{{ count | default(1) }}"}, "cacheable": True}}
    ],
    "gpu_verify/tasks/main.yml": [said("Proof")],
    "gpu_verify/tasks/environment.yml": [said("Environment")],
    "gpu_verify/vars/main.yml": {"_gpu_verify_installs": True, "_gpu_verify_waits_for_binding": False},
    "slurm/tasks/main.yml": [
        {"name": "Once", "ansible.builtin.debug": {}, "run_once": True},
        said("Work"),
    ],
    "nvidia_driver/tasks/main.yml": [
        said("Driver"),
        {
            "name": "Reboot",
            "ansible.builtin.include_tasks": "reboot.yml",
            "when": "nvidia_driver_reboot",
            "vars": {"_nvidia_driver_plan": {"kernel_module": "open"}},
        },
        {"name": "Tell", "ansible.builtin.set_fact": {"nvidia_driver_reboot_needed": "{{ waits | default(false) }}"}},
    ],
}
DRAIN = "Drain the node and wait until its jobs have ended"
REBOOT = "Reboot into the driver that is installed"
RESUME = "Resume the node if it was drained for this"
NAMES = {
    "Facts": "facts",
    "Driver": "driver",
    DRAIN: "drain",
    REBOOT: "reboot",
    RESUME: "resume",
    "Own": "own",
    "Proof": "proof",
    "Environment": "environment",
    "Once": "once",
    "Work": "work",
}


@dataclass(frozen=True)
class Ran:
    """How a play ended, and what it did in which order, as ``drain a``."""

    code: int
    output: str
    steps: list[str]

    def of(self, host: str) -> list[str]:
        return [step.split()[0] for step in self.steps if step.endswith(f" {host}")]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class Site:
    """A copy of the collection, with stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        collection = folder / "collections/ansible_collections/cudahub/gpu"
        for part in ("plugins", "meta", "playbooks", "roles/nvidia_driver", "roles/slurm"):
            shutil.copytree(COLLECTION / part, collection / part, ignore=shutil.ignore_patterns("__pycache__"))
        for path, content in STAND_INS.items():
            write(collection / "roles" / path, json.dumps(content))
        write(collection / "plugins/modules/driver_load.py", MODULE % {"options": ["kernel_module", "reboot"]})
        options = ["name", "state", "reason", "timeout", "only_reason"]
        write(collection / "plugins/modules/slurm_node.py", MODULE % {"options": options})
        write(folder / "connection/near.py", CONNECTION)
        write(folder / "bin/systemctl", SYSTEMCTL)
        write(folder / "bin/scontrol", SCONTROL)
        write(folder / "library/few_facts.py", FACTS)
        write(folder / "own.yml", json.dumps([said("Own")]))
        write(folder / "mine.yml", json.dumps([{"import_playbook": "cudahub.gpu.site"}]))

    def run(
        self,
        groups: Mapping[str, Mapping[str, Any]],
        *arguments: str,
        playbook: str = "cudahub.gpu.slurm_cluster",
        live: str = "",
        busy: str = "",
        **variables: Any,
    ) -> Ran:
        path = f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        near = {**LOCAL, "ansible_connection": "near", "ansible_become": False, **variables}
        done = run_playbook(
            self.folder,
            {
                "all": {
                    "vars": near,
                    "children": {group: {"hosts": dict(hosts)} for group, hosts in groups.items()},
                }
            },
            playbook,
            "--check",
            *arguments,
            ANSIBLE_COLLECTIONS_PATH=str(self.folder / "collections"),
            ANSIBLE_CONNECTION_PLUGINS=str(self.folder / "connection"),
            ANSIBLE_FACTS_MODULES="few_facts",
            ANSIBLE_LIBRARY=str(self.folder / "library"),
            ANSIBLE_PIPELINING="true",
            PATH=path,
            LIVE=live,
            BUSY=busy,
            REASONS=str(self.folder / "reasons"),
        )
        steps = []
        name = ""
        for line in done.stdout.splitlines():
            if task := re.match(r"TASK \[(?:\S+ : )?(.+)\] \*", line):
                name = NAMES.get(task[1], "")
            elif name and (host := re.match(r"(?:ok|changed): \[(\S+)\]", line)):
                steps.append(f"{name} {host[1]}")
        return Ran(done.returncode, done.stdout, steps)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


def hosts(*names: str, **variables: Any) -> dict[str, Any]:
    return dict.fromkeys(names, variables)


CLUSTER = {"slurm_controller": hosts("head"), "slurm_compute": hosts("a", "b")}


def test_a_new_cluster_is_built_at_once_and_proven_before_slurm(site: Site) -> None:
    ran = site.run(CLUSTER)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ran.of("b") == ["facts", "driver", "proof", "work"]
    assert ran.of("head") == ["once", "work"]
    assert sorted(step for step in ran.steps if step.startswith("driver")) == ["driver a", "driver b"]
    assert "WARNING" not in ran.output


def test_nodes_that_take_jobs_are_drained_rebooted_and_resumed_one_after_the_other(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    each = ["facts", "driver", "drain", "reboot", "resume", "environment"]
    assert ran.steps[:12] == [f"{step} {host}" for host in "ab" for step in each]
    assert ran.of("a")[-1] == ran.of("b")[-1] == "work"


def test_the_drain_comes_with_the_tag_too(site: Site) -> None:
    ran = site.run(CLUSTER, "--tags", "driver", live="a b", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "drain", "reboot", "resume"]
    assert ran.of("head") == []


def test_as_many_at_once_as_the_inventory_says(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b", nvidia_driver_reboot=True, slurm_cluster_serial="100%")
    assert ran.code == 0, ran.output
    steps = [step for step in ran.steps if step.split()[0] in ("drain", "reboot")]
    assert (set(steps[:2]), set(steps[2:])) == ({"drain a", "drain b"}, {"reboot a", "reboot b"})


def test_without_a_reboot_nodes_that_take_jobs_are_done_at_once(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b")
    assert ran.code == 0, ran.output
    assert (set(ran.steps[:2]), set(ran.steps[2:4])) == ({"facts a", "facts b"}, {"driver a", "driver b"})
    assert ran.of("a") == ["facts", "driver", "environment", "work"]


def test_nodes_are_drained_before_their_driver_if_that_is_wanted(site: Site) -> None:
    groups = {**CLUSTER, "slurm_compute": {"a": {}, "b": {"waits": True}, "new": {}}}
    ran = site.run(groups, live="a b", slurm_cluster_drain=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["drain", "facts", "driver", "environment", "resume", "work"]
    assert ran.of("b") == ["drain", "facts", "driver"]
    assert ran.of("new") == ["facts", "driver", "proof", "work"]
    assert ran.steps.index("resume a") < ran.steps.index("drain b")


def test_a_node_that_can_not_be_drained_is_not_rebooted_and_ends_the_play(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b", busy="a", nvidia_driver_reboot=True)
    assert ran.code == 2, ran.output
    assert "still runs 1 job" in ran.output
    assert ran.steps == ["facts a", "driver a"]


def test_tasks_of_the_inventory_come_instead(site: Site) -> None:
    own = str(site.folder / "own.yml")
    groups = {
        "slurm_controller": hosts("head"),
        "slurm_compute": {
            "a": {"nvidia_driver_before_reboot": own},
            "b": {"nvidia_driver_before_reboot": "", "nvidia_driver_after_reboot": own},
        },
    }
    ran = site.run(groups, live="a b", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "own", "reboot", "resume", "environment", "work"]
    assert ran.of("b") == ["facts", "driver", "reboot", "own", "environment", "work"]


def test_a_node_that_waits_for_its_reboot_is_not_put_to_work_and_a_host_without_gpu_is(site: Site) -> None:
    groups = {"slurm_controller": hosts("a"), "slurm_compute": {"a": {"waits": True}, "b": {"count": 0}, "c": {}}}
    ran = site.run(groups, live="a")
    assert ran.code == 0, ran.output
    assert "a is not put to work: its NVIDIA driver waits for a reboot" in ran.output
    assert ran.of("a") == ["facts", "driver"]
    assert ran.of("b") == ["facts", "once", "work"]
    assert ran.of("c") == ["facts", "driver", "proof", "work"]


def test_a_cluster_without_compute_nodes_is_built(site: Site) -> None:
    ran = site.run({"slurm_controller": hosts("head"), "slurm_compute": {}})
    assert ran.code == 0, ran.output
    assert ran.steps == ["once head", "work head"]
    assert "WARNING" not in ran.output


SITE = {**CLUSTER, "gpu_nodes": hosts("a", "other")}


def test_the_site_does_no_host_twice_and_drains_compute_nodes(site: Site) -> None:
    """From a playbook of one's own, whose directory has no such tasks."""
    ran = site.run(SITE, playbook="mine.yml", live="a", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "drain", "reboot", "resume", "environment", "work"]
    assert ran.of("b") == ["facts", "driver", "reboot", "proof", "work"]
    assert ran.of("other") == ["facts", "driver", "reboot", "proof"]


@pytest.mark.parametrize(
    ("tag", "compute", "other"),
    [("facts", ["facts"], ["facts"]), ("verify", ["facts", "proof"], ["facts", "proof"]), ("slurm", ["work"], [])],
)
def test_tags(site: Site, tag: str, compute: list[str], other: list[str]) -> None:
    ran = site.run(SITE, "--tags", tag, playbook="cudahub.gpu.site")
    assert ran.code == 0, ran.output
    assert (ran.of("a"), ran.of("b"), ran.of("other")) == (compute, compute, other)


def test_the_listed_tasks_of_a_tag(site: Site) -> None:
    listed = site.run(SITE, "--list-tasks", "--tags", "slurm", playbook="cudahub.gpu.site")
    assert listed.code == 0, listed.output
    assert "slurm : Work" in listed.output
    assert not re.search("(Facts|Driver|Proof)\t", listed.output)


def test_a_reason_is_told_by_its_beginning(site: Site) -> None:
    """Of what a node was drained for, and what slurm_resume says, follows which reasons are lifted."""
    cases = {
        "a": ("cudahub: planned work", False, "cudahub: "),
        "b": ("gpu-health: GPU 3 is lost", True, "gpu-health: "),
        "c": ("gpu-health: GPU 3 is lost", False, "cudahub: "),
        "d": ("carol swaps the fan, see gpu-health: 12", True, "cudahub: "),
    }
    for name, (reason, _resume, _told) in cases.items():
        write(site.folder / "reasons" / name, reason)
    compute = {name: {"slurm_resume": resume} for name, (_reason, resume, _told) in cases.items()}
    groups = {"slurm_controller": hosts("head"), "slurm_compute": compute}
    ran = site.run(groups, "-v", "--tags", "driver", live="a b c d", nvidia_driver_reboot=True)
    shutil.rmtree(site.folder / "reasons")
    assert ran.code == 0, ran.output
    resumed = ran.output.split(f"{RESUME}] *")[1:]
    assert [re.findall(r'"told": "(.*?)"', part)[0] for part in resumed] == [told for *_more, told in cases.values()]
