#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_qos
short_description: Manage a QOS of SLURM
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Creates, changes and deletes a quality of service (QOS) in SLURM's accounting database, over C(sacctmgr).
  - A QOS belongs to all clusters of the database.
options:
  name:
    description: Name of the QOS.
    type: str
    required: true
  state:
    description: Whether the QOS is there. One that is used by an account, user or other QOS is not deleted.
    type: str
    choices: [present, absent]
    default: present
  description:
    description: What the QOS is for. SLURM keeps it in lower case.
    type: str
  priority:
    description: What is added to the priority of jobs.
    type: int
  preempt:
    description: All QOS whose jobs can be preempted by jobs of this one.
    type: list
    elements: str
  preempt_mode:
    description: How jobs of this QOS are preempted. V(cluster) is as C(PreemptMode) in C(slurm.conf) has it.
    type: str
    choices: [cluster, cancel, requeue, suspend]
  flags:
    description: All flags, as C(DenyOnLimit) or C(NoDecay).
    type: list
    elements: str
  grace_time:
    description: Seconds that a job of this QOS has to end when it is preempted.
    type: int
  usage_factor:
    description: By what the usage of jobs is multiplied.
    type: float
  max_jobs_per_user:
    description: Number of jobs that each user can run at a time. V(-1) is no limit.
    type: int
  max_submit_jobs_per_user:
    description: Number of jobs that each user can have waiting and running. V(-1) is no limit.
    type: int
  max_tres_per_user:
    description: What all running jobs of a user can have together.
    type: dict
  max_tres_per_account:
    description: What all running jobs of an account can have together.
    type: dict
  min_tres_per_job:
    description: What a job has to ask for at least.
    type: dict
extends_documentation_fragment:
  - cudahub.gpu.slurm_accounting
  - cudahub.gpu.attributes
requirements:
  - Python 3.9 or later on the target
  - sacctmgr, and permission to change the database
seealso:
  - module: cudahub.gpu.slurm_account
  - module: cudahub.gpu.slurm_user
"""

EXAMPLES = r"""
- name: A QOS in which each user has two GPUs at most
  cudahub.gpu.slurm_qos:
    name: class
    description: courses
    priority: 100
    flags: [DenyOnLimit]
    max_wall: "08:00:00"
    max_tres_per_user:
      gres/gpu: 2

- name: One whose jobs can be preempted by those of the other
  cudahub.gpu.slurm_qos:
    name: scavenger
    preempt_mode: requeue
    usage_factor: 0.5

- name: No limit of GPUs any more
  cudahub.gpu.slurm_qos:
    name: class
    max_tres_per_user:
      gres/gpu: -1
"""

RETURN = r"""
commands:
  description: The commands that were run, or that would be in check mode, in their order.
  returned: success
  type: list
  elements: str
  sample: ["sacctmgr -i modify qos where name=class set MaxTRESPU=gres/gpu=2"]
"""

import shlex

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _sacctmgr
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import ModuleHost, SlurmError


def main() -> None:
    """Read the parameters, change what has to be, and return."""
    module = AnsibleModule(
        argument_spec=_sacctmgr.QOS_ARGUMENTS,
        supports_check_mode=True,
    )
    database = _sacctmgr.Database(ModuleHost(module), check=module.check_mode)
    name = module.params["name"]
    try:
        if module.params["state"] == "present":
            outcome = _sacctmgr.qos_present(database, name, module.params)
        else:
            outcome = _sacctmgr.qos_absent(database, name)
    except SlurmError as error:
        module.fail_json(msg=str(error), changed=error.changed)
    module.exit_json(
        changed=outcome.changed,
        commands=[shlex.join(command) for command in outcome.commands],
        diff={"before": outcome.before, "after": outcome.after},
    )


if __name__ == "__main__":
    main()
