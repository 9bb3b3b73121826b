#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Write the report of a fleet's GPUs as HTML, JSON and JUnit XML
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Writes what M(cudahub.gpu.gpu_facts) and M(cudahub.gpu.cuda_verify) found on many hosts into a folder of the
    controller. Run it once, not on each host.
  - C(index.html) is one file that needs no network. It shows what is wrong, all hosts and GPUs with those in trouble
    first, each GPU's figures beside those of its model, its curves under load and its trend, and how the GPUs of a host
    are connected.
  - C(report.json) has all of it for programs, C(junit.xml) for CI systems. There, a host is a suite, and each of its
    GPUs and checks a case.
  - C(history) has a small file for each report, from which trends are drawn. One that can't be read is named in a
    warning, left out and left where it is.
  - Each file is replaced when it is whole, and of two tasks with the same O(path), the second waits for the first.
  - Hosts of which nothing is known are reported as unreachable.
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
    description:
      - Says what would be reported, writes nothing, and fails where nothing could be written.
      - With V([]) as O(hosts), it says before the hosts are asked whether their report can be written.
    support: full
  diff_mode:
    description: Shows the summary and the problems of the last report beside those of this one.
    support: full
options:
  path:
    description: Folder on the controller. It is made if it is missing.
    type: path
    required: true
  title:
    description: Title of the report.
    type: str
    default: GPUs of the fleet
  hosts:
    description:
      - Hosts of the inventory to report, from their facts C(gpu) and C(gpu_verification). Where a
        variable C(fleet_report_failed) or C(fleet_report_unreachable) of a host is set, it is the reason.
      - Without it, they are the hosts of the play, or none but those of O(results) if that is given.
    type: list
    elements: str
  results:
    description:
      - Results by host, for those whose facts are not to be used. Each is a dictionary with C(facts), as
        RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu), C(verification), as
        RV(cudahub.gpu.cuda_verify#module:verification), and C(failed) or C(unreachable), a reason; each of them can be
        missing.
    type: dict
    default: {}
  keep:
    description: How many reports the history keeps, this one included; at least 1.
    type: int
    default: 90
  wait:
    description: Seconds to wait for another task that writes to the same O(path).
    type: int
    default: 60
  spread:
    description:
      - Share by which a figure may be below the median of all GPUs of the same name and MIG profile, above 0 and below
        1. Where they are on several hosts, a GPU whose figure is lower gets a warning in the report. Within a host,
        M(cudahub.gpu.cuda_verify) does the same.
    type: float
    default: 0.1
notes:
  - Results of hosts are not trusted. The report shows them as text.
seealso:
  - module: cudahub.gpu.cuda_verify
  - plugin: cudahub.gpu.gpu_table
    plugin_type: callback
"""

EXAMPLES = r"""
- name: Prove the GPUs
  hosts: gpu_nodes
  become: true
  tasks:
    - name: Look at the GPUs
      cudahub.gpu.gpu_facts:

    - name: Prove each GPU
      ansible.builtin.include_role:
        name: cudahub.gpu.gpu_verify
        tasks_from: verify

    - name: Write the report
      cudahub.gpu.fleet_report:
        path: ./gpu-report
        title: GPUs of the lab
      run_once: true

- name: Report what another program has collected
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Write the report
      cudahub.gpu.fleet_report:
        path: /srv/www/gpus
        results:
          gpu1:
            verification: "{{ lookup('ansible.builtin.file', 'gpu1.json') | from_json }}"
          gpu2:
            unreachable: It is being repaired.
"""

RETURN = r"""
msg:
  description: The summary in a sentence, and where the report is.
  returned: success
  type: str
summary:
  description: What the report comes to.
  returned: success
  type: dict
  contains:
    text:
      description: The summary in a sentence.
      returned: always
      type: str
      sample: "2 hosts (1 failed), 16 GPUs: 15 verified, 1 failed."
    failed:
      description: Whether a host failed or could not be asked.
      returned: always
      type: bool
    hosts:
      description:
        - Number of hosts by their state, V(passed), V(failed), V(unreachable), V(warning), V(skipped), V(simulated),
          V(unknown) or V(none), which has no GPU.
      returned: always
      type: dict
      sample: {failed: 1, passed: 1}
    gpus:
      description:
        - Number of GPUs and MIG instances by their state, V(passed), V(failed), V(warning), V(skipped), V(simulated) or
          V(unknown).
      returned: always
      type: dict
      sample: {failed: 1, passed: 15}
failed_hosts:
  description: Why a host failed or could not be asked, by its name.
  returned: success
  type: dict
  sample: {gpu2.example.org: It failed or became unreachable earlier in the run.}
files:
  description: Paths of the files.
  returned: success
  type: dict
  contains:
    html:
      description: The page.
      returned: always
      type: str
      sample: /home/admin/gpu-report/index.html
    json:
      description: The same for programs.
      returned: always
      type: str
      sample: /home/admin/gpu-report/report.json
    junit:
      description: The same for CI systems.
      returned: always
      type: str
      sample: /home/admin/gpu-report/junit.xml
    history:
      description: The figures of this report, for later ones.
      returned: always
      type: str
      sample: /home/admin/gpu-report/history/2026-11-29T023000Z.json
"""
