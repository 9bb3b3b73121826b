#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_user
short_description: Manage a user of SLURM
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Puts a user into accounts of SLURM's accounting database, changes and deletes the user there, over C(sacctmgr). The
    user of the operating system is left alone.
  - Limits, O(fairshare), O(qos), O(default_qos), O(priority) and O(expires) are set in each of O(accounts); without
    that option in each account that the user is in. For different limits in different accounts, use one task for each
    account, with O(append).
  - Associations with a partition are left alone, except where the user is taken out of their account.
options:
  name:
    description: Login name of the user.
    type: str
    required: true
  state:
    description: Whether the user is there. One that has jobs is not deleted.
    type: str
    choices: [present, absent]
    default: present
  accounts:
    description:
      - Accounts that the user is in, which have to be there. Needed for a new user.
      - The user is taken out of all others, unless O(append) is true, or refused where jobs still use them.
    type: list
    elements: str
  append:
    description: Whether the user stays in accounts that O(accounts) doesn't name.
    type: bool
    default: false
  default_account:
    description:
      - Account of jobs that ask for none. By default it stays as it is; that of a new user is the first of O(accounts).
    type: str
  admin_level:
    description: What the user can change in the accounting of all clusters.
    type: str
    choices: [none, operator, admin]
  fairshare:
    description:
      - Share of this user beside those of the same parent, a whole number. V(-1) is the default of 1.
      - V(parent) gives the user the share of the account, as all others of whom that is said.
    type: str
  expires:
    description:
      - Day as C(YYYY-MM-DD), in the time zone of the host. From that day on
        the user can't submit or start jobs.
        Jobs that run go on, and nothing is deleted.
      - SLURM has no such date itself. Where the module runs on that day or later, it sets
        O(max_jobs) and O(max_submit_jobs) to 0, so run it daily.
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
  - module: cudahub.gpu.slurm_account
  - module: cudahub.gpu.slurm_qos
"""

EXAMPLES = r"""
- name: A student in two courses, with a GPU at a time
  cudahub.gpu.slurm_user:
    name: alice
    accounts: [cs101, cs205]
    default_account: cs101
    grp_tres:
      gres/gpu: 1
    expires: "2027-06-30"

- name: Another limit in one of the accounts
  cudahub.gpu.slurm_user:
    name: alice
    accounts: [cs205]
    append: true
    max_jobs: 2

- name: A user who left
  cudahub.gpu.slurm_user:
    name: bob
    state: absent
"""

RETURN = r"""
commands:
  description: The commands that were run, or that would be in check mode, in their order.
  returned: success
  type: list
  elements: str
  sample: ["sacctmgr -i add user name=alice account=cs101 cluster=cluster DefaultAccount=cs101"]
"""

import datetime as dt
import shlex

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _sacctmgr
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import ModuleHost, SlurmError


def main() -> None:
    """Read the parameters, change what has to be, and return."""
    module = AnsibleModule(
        argument_spec=_sacctmgr.USER_ARGUMENTS,
        supports_check_mode=True,
    )
    database = _sacctmgr.Database(ModuleHost(module), check=module.check_mode)
    name = module.params["name"]
    try:
        if module.params["state"] == "present":
            outcome = _sacctmgr.user_present(database, name, module.params, dt.datetime.now().astimezone().date())
        else:
            outcome = _sacctmgr.user_absent(database, name, module.params)
    except SlurmError as error:
        module.fail_json(msg=str(error), changed=error.changed)
    module.exit_json(
        changed=outcome.changed,
        commands=[shlex.join(command) for command in outcome.commands],
        diff={"before": outcome.before, "after": outcome.after},
    )


if __name__ == "__main__":
    main()
