#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account
short_description: Manage an account of SLURM
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Creates, changes, moves and deletes an account in SLURM's accounting database, over C(sacctmgr).
options:
  name:
    description: Name of the account.
    type: str
    required: true
  state:
    description: Whether the account is there. One that has users, accounts below it, or jobs is not deleted.
    type: str
    choices: [present, absent]
    default: present
  parent:
    description: Account above this one, which has to be there. A new account is below C(root) by default.
    type: str
  description:
    description: What the account is for. SLURM keeps it in lower case.
    type: str
  organization:
    description: Whom the account belongs to. SLURM keeps it in lower case.
    type: str
  fairshare:
    description:
      - Share of this account beside those of the same parent, a whole number. V(-1) is the default of 1.
      - V(parent) lets its users share directly in what the account above has.
    type: str
  expires:
    description:
      - Day as C(YYYY-MM-DD), in the time zone of the host. From that day on
        users of this account and of those below it can't submit or start jobs.
        Jobs that run go on, and nothing is deleted.
      - SLURM has no such date itself. Where the module runs on that day or later, it sets
        O(grp_jobs) and O(grp_submit_jobs) to 0, so run it daily.
      - Where it runs with a later date, both limits are lifted if they are 0, or are what their options say.
    type: str
extends_documentation_fragment:
  - cudahub.gpu.slurm_accounting
  - cudahub.gpu.slurm_accounting.association
  - cudahub.gpu.attributes
requirements:
  - Python 3.9 or later on the target
  - sacctmgr and (to delete) squeue, and permission to change the database
seealso:
  - module: cudahub.gpu.slurm_qos
  - module: cudahub.gpu.slurm_user
"""

EXAMPLES = r"""
- name: A course with four GPUs and a budget of 1000 GPU hours
  cudahub.gpu.slurm_account:
    name: cs101
    parent: teaching
    description: introduction to computing
    organization: computer science
    fairshare: 10
    qos: [normal, class]
    default_qos: class
    grp_tres:
      gres/gpu: 4
    grp_tres_mins:
      gres/gpu: 60000
    expires: "2027-06-30"

- name: Accounts, those above before those below them
  cudahub.gpu.slurm_account:
    name: "{{ item.name }}"
    parent: "{{ item.parent | default(omit) }}"
    fairshare: "{{ item.fairshare | default(omit) }}"
  loop:
    - name: teaching
    - name: cs205
      parent: teaching
      fairshare: 20
"""

RETURN = r"""
commands:
  description: The commands that were run, or that would be in check mode, in their order.
  returned: success
  type: list
  elements: str
  sample: ["sacctmgr -i modify account where name=cs101 cluster=cluster set Fairshare=10"]
"""

import datetime as dt
import shlex

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _sacctmgr
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import ModuleHost, SlurmError


def main() -> None:
    """Read the parameters, change what has to be, and return."""
    module = AnsibleModule(
        argument_spec=_sacctmgr.ACCOUNT_ARGUMENTS,
        supports_check_mode=True,
    )
    database = _sacctmgr.Database(ModuleHost(module), check=module.check_mode)
    name = module.params["name"]
    try:
        if module.params["state"] == "present":
            outcome = _sacctmgr.account_present(database, name, module.params, dt.datetime.now().astimezone().date())
        else:
            outcome = _sacctmgr.account_absent(database, name, module.params)
    except SlurmError as error:
        module.fail_json(msg=str(error), changed=error.changed)
    module.exit_json(
        changed=outcome.changed,
        commands=[shlex.join(command) for command in outcome.commands],
        diff={"before": outcome.before, "after": outcome.after},
    )


if __name__ == "__main__":
    main()
