#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: async_progress
short_description: Wait for an asynchronous task and show what it does
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Waits for a task that was started with C(async) and C(poll=0), prints every O(every) seconds since when it runs and
    the last line of its log, and then returns what the task returned, its failure and warnings included.
  - Where a package manager waits for its lock, the line names the process that holds it.
  - While it waits, the host may be out of reach for some seconds.
options:
  job:
    description: The job, C(ansible_job_id) of the task's result.
    type: str
    required: true
  log:
    description:
      - File on the host to which the job writes what it does. It need not be there yet.
      - The file has to be readable for the user that runs this task.
    type: path
    required: true
  title:
    description: What runs, in a word or two.
    type: str
    required: true
  every:
    description: Seconds between two lines, more than 0.
    type: float
    default: 30
  timeout:
    description:
      - Seconds, more than 0, after which the task fails. The job itself is not ended then.
    type: float
    default: 14400
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  action:
    description: Has an action plugin on the controller, which does all of it.
    support: full
  async:
    description: Supports being used with the C(async) keyword.
    support: none
  check_mode:
    description: Is skipped, since no task is asynchronous in check mode.
    support: full
  diff_mode:
    description: Returns the diff of the job, if it has one.
    support: full
seealso:
  - module: ansible.builtin.async_status
"""

EXAMPLES = r"""
- name: Start what takes minutes
  ansible.builtin.shell: make -C /srv/model all >/var/log/model.log 2>&1
  async: 7200
  poll: 0
  register: build
  changed_when: true

- name: Wait for it
  cudahub.gpu.async_progress:
    job: "{{ build.ansible_job_id }}"
    log: /var/log/model.log
    title: the model
    timeout: 7200
# prints: [four] the model: 2 min 10 s: Compiling layer 12 of 40
"""

RETURN = r"""
msg:
  description: What the job says about itself. All else that it returned is returned, too.
  returned: when the job returned it
  type: str
  sample: The driver 580.159.04 is installed.
"""
