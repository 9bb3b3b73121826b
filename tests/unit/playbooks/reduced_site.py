# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks of the collection on hosts that are this machine, with roles that are reduced to what says that they ran.

What is done around a reboot is real up to the modules, in check mode.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    "tljh/tasks/main.yml": [said("Hub")],
    "nvidia_container_toolkit/tasks/main.yml": [said("Containers")],
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
    "Hub": "hub",
    "Containers": "containers",
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
    """A copy of the collection, with stand-ins, and the playbook that is run if no other is named."""

    def __init__(self, folder: Path, playbook: str) -> None:
        self.folder, self.playbook = folder, playbook
        collection = folder / "collections/ansible_collections/cudahub/gpu"
        for part in ("plugins", "meta", "playbooks", "roles/nvidia_driver", "roles/slurm"):
            shutil.copytree(COLLECTION / part, collection / part, ignore=shutil.ignore_patterns("__pycache__"))
        for path, content in STAND_INS.items():
            write(collection / "roles" / path, json.dumps(content))
            # Options are looked at with every tag.
            specs = collection / "roles" / path.partition("/")[0] / "meta/argument_specs.yml"
            if not specs.exists():
                write(specs, json.dumps({"argument_specs": {"main": {"options": {}}}}))
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
        playbook: str = "",
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
            playbook or self.playbook,
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


def hosts(*names: str, **variables: Any) -> dict[str, Any]:
    return dict.fromkeys(names, variables)
