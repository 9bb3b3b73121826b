# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  grp_jobs:
    description: Number of jobs of O(name) that can run at a time. V(-1) is no limit.
    type: int
  grp_submit_jobs:
    description: Number of jobs of O(name) that can wait and run at a time. V(-1) is no limit.
    type: int
  grp_tres:
    description: What all running jobs of O(name) can have together.
    type: dict
  grp_tres_mins:
    description: Budget of O(name), in minutes of each TRES; C(gres/gpu) are GPU minutes.
    type: dict
  grp_tres_run_mins:
    description: What all running jobs of O(name) can still need until their time limits, in minutes.
    type: dict
  grp_wall:
    description:
      - Time that all jobs of O(name) can run together.
      - As minutes, C(HOURS:MINUTES:SECONDS), C(DAYS-HOURS) or C(DAYS-HOURS:MINUTES:SECONDS), in quotes.
        It is rounded up to minutes. V(-1) is no limit.
    type: str
  max_tres_per_job:
    description: What a job can have.
    type: dict
  max_tres_per_node:
    description: What a job can have on each node.
    type: dict
  max_tres_mins_per_job:
    description: What a job can use, in minutes of each TRES.
    type: dict
  max_wall:
    description:
      - Time limit that a job can have.
      - As minutes, C(HOURS:MINUTES:SECONDS), C(DAYS-HOURS) or C(DAYS-HOURS:MINUTES:SECONDS), in quotes.
        It is rounded up to minutes. V(-1) is no limit.
    type: str
attributes:
  check_mode:
    description: Says what it would change, and changes nothing.
    support: partial
    details:
      - Refuses an account or QOS that an earlier task of the same run would have made, for it isn't there.
  diff_mode:
    description: Shows O(name) before and after.
    support: full
notes:
  - In options that limit TRES, names are those of C(sacctmgr show tres), as C(gres/gpu), C(cpu) or C(mem) (MiB).
    V(-1) or nothing is no limit. Those that are not named stay as they are.
  - Only what is given as an option is managed, all else stays as it is. Names are kept in lower case by SLURM.
  - Does nothing where nothing is to be changed, and makes sure afterwards that SLURM has taken what was changed.
  - An account, QOS or TRES that isn't there is refused before anything is changed.
"""

    ASSOCIATION = r"""
options:
  cluster:
    description:
      - Name of the cluster, as in C(slurm.conf). It has to be registered.
      - By default, the only cluster that is registered.
    type: str
  qos:
    description: All QOS that jobs of O(name) can use. An empty list is what the account above can use.
    type: list
    elements: str
  default_qos:
    description: QOS of jobs that ask for none; it has to be one that can be used. An empty string is none.
    type: str
  max_jobs:
    description: Number of jobs that a user can run at a time. V(-1) is no limit.
    type: int
  max_submit_jobs:
    description: Number of jobs that a user can have waiting and running. V(-1) is no limit.
    type: int
  priority:
    description: What is added to the priority of jobs. V(-1) is nothing.
    type: int
"""
