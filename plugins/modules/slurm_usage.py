#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_usage
short_description: Report the GPU hours of accounts and users of SLURM
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Reads from SLURM's accounting database what was used between two moments, over C(sreport). Changes nothing.
  - What is returned is what was allocated to jobs, whether they used it or not. C(slurmdbd) adds it up at the end of
    each hour, so the hour that runs is not in it, and moments are rounded to hours.
options:
  start:
    description: First moment, as C(2026-11-01) (00:00 of that day) or C(2026-11-01T08:00:00), in the host's time zone.
    type: str
    required: true
  end:
    description: Moment that is not counted any more, in the same form. Now, by default.
    type: str
  tres:
    description: What is counted, one of C(sacctmgr show tres). It has to be in C(AccountingStorageTRES).
    type: str
    default: gres/gpu
  cluster:
    description: Name of the cluster. That of the host's C(slurm.conf), by default.
    type: str
extends_documentation_fragment:
  - cudahub.gpu.attributes
  - cudahub.gpu.attributes.reads_only
requirements:
  - Python 3.9 or later on the target
  - sreport and sacctmgr
seealso:
  - module: cudahub.gpu.slurm_account
"""

EXAMPLES = r"""
- name: GPU hours of November
  cudahub.gpu.slurm_usage:
    start: "2026-11-01"
    end: "2026-12-01"
  register: usage

- name: Who used most
  ansible.builtin.debug:
    msg: "{{ usage.users | map(attribute='user') | first | default('nobody') }}"
"""

RETURN = r"""
users:
  description: What each user has used in each account, those with the most first. Who has used nothing is not in it.
  returned: success
  type: list
  elements: dict
  sample: [{cluster: cluster, account: cs101, user: alice, tres: gres/gpu, seconds: 9000, hours: 2.5}]
  contains:
    cluster:
      description: Name of the cluster.
      type: str
    account:
      description: Name of the account.
      type: str
    user:
      description: Login name of the user.
      type: str
    tres:
      description: What is counted.
      type: str
    seconds:
      description: Its number times the seconds that it was allocated.
      type: int
    hours:
      description: The same in hours, with two decimals; C(gres/gpu) are GPU hours.
      type: float
accounts:
  description: What each account has used, with all accounts below it. C(root) is the whole cluster.
  returned: success
  type: list
  elements: dict
  sample: [{cluster: cluster, account: cs101, tres: gres/gpu, seconds: 9000, hours: 2.5}]
  contains:
    cluster:
      description: Name of the cluster.
      type: str
    account:
      description: Name of the account.
      type: str
    tres:
      description: What is counted.
      type: str
    seconds:
      description: Its number times the seconds that it was allocated.
      type: int
    hours:
      description: The same in hours, with two decimals; C(gres/gpu) are GPU hours.
      type: float
"""

import datetime as dt

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_usage
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import ModuleHost, SlurmError


def main() -> None:
    """Read the parameters, ask for the report, and return it."""
    module = AnsibleModule(
        argument_spec={
            "start": {"type": "str", "required": True},
            "end": {"type": "str"},
            "tres": {"type": "str", "default": "gres/gpu"},
            "cluster": {"type": "str"},
        },
        supports_check_mode=True,
    )
    start, end, tres, cluster = (module.params[name] for name in ("start", "end", "tres", "cluster"))
    now = dt.datetime.now().astimezone().replace(tzinfo=None)
    try:
        usage = _slurm_usage.report(ModuleHost(module), start, end, tres, cluster, now)
    except SlurmError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        users=_slurm_usage.rows(usage, users=True),
        accounts=_slurm_usage.rows(usage, users=False),
    )


if __name__ == "__main__":
    main()
