#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_verify_export
short_description: Leave a verification of GPUs as metrics and as a custom fact
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Writes what module M(cudahub.gpu.cuda_verify) found into files of the host, for Prometheus and for other plays.
  - Each file is replaced at once, so that no reader sees a part of it. All of them can be read by everybody.
  - Figures and times are others in each run. They are written, but the task counts as changed only where a file was
    missing, or a verdict, a check's success, the level or the set of GPUs is another than before.
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Says whether something would change, and writes nothing.
    support: full
  diff_mode:
    description: Shows verdicts and checks of before and after, without figures and times.
    support: full
options:
  verification:
    description: RV(cudahub.gpu.cuda_verify#module:verification).
    type: dict
    required: true
  metrics:
    description:
      - Path of a file in Prometheus' text format, C(*.prom) in a directory that node_exporter's textfile collector
        reads. The directory must be there.
      - Its metrics begin with C(cudahub_gpu_verify_), and have the labels C(gpu) (NVML's index), C(uuid) and
        C(pci_bus_id), see the README of role P(cudahub.gpu.gpu_verify#role).
    type: path
  fact:
    description:
      - Path of a custom fact, C(*.fact) in C(/etc/ansible/facts.d). The directory must be there.
      - With C(/etc/ansible/facts.d/cudahub_gpu.fact), M(ansible.builtin.setup) gives the result as
        C(ansible_facts['ansible_local']['cudahub_gpu']), with C(time), C(level), C(verified), C(simulated), C(seconds),
        C(failure), C(counts) by verdict, and for each of C(gpus) its names, C(verdict), C(reason), C(failure),
        C(warnings) and C(checks).
    type: path
seealso:
  - module: cudahub.gpu.cuda_verify
  - module: cudahub.gpu.fleet_report
"""

EXAMPLES = r"""
- name: Verify the GPUs, also where one of them fails
  cudahub.gpu.cuda_verify:
  register: verified
  failed_when: verified.verification is not defined

- name: Leave the result for Prometheus and for other plays
  cudahub.gpu.cuda_verify_export:
    verification: "{{ verified.verification }}"
    metrics: /var/lib/prometheus/node-exporter/cudahub_gpu.prom
    fact: /etc/ansible/facts.d/cudahub_gpu.fact

- name: Work only where all GPUs were proven
  hosts: gpu_nodes
  tasks:
    - name: Start the work
      ansible.builtin.debug:
        msg: "{{ inventory_hostname }} computes."
      when: (ansible_facts['ansible_local']['cudahub_gpu'] | default({})).verified | default(false)
"""

RETURN = r"""
files:
  description: The files that were written, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/etc/ansible/facts.d/cudahub_gpu.fact]
"""

import errno
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _verify_export

ENDINGS = {"metrics": ".prom", "fact": ".fact"}
WRITERS = {"metrics": _verify_export.metrics, "fact": _verify_export.fact_text}
ADVICE = {
    errno.EACCES: "Set become to true, or give another",
    errno.EPERM: "Set become to true, or give another",
    errno.ENOSPC: "Make room there",
}
LASTING = {"metrics": _verify_export.lasting_metrics, "fact": _verify_export.lasting_fact}


def unwritable(path: Path, error: OSError) -> str:
    """Why a file can't be written, and what to do."""
    return f"{path} could not be written: {error.strerror}. {ADVICE.get(error.errno or 0, 'Give another')}."


def target(module: AnsibleModule, option: str) -> Path:
    """The file that an option names; one that can't be written is refused."""
    path = Path(module.params[option])
    if path.suffix != ENDINGS[option] or path.name == path.suffix:
        module.fail_json(
            msg=f"{option} is {path}, which nobody would read: give a file whose name ends in {ENDINGS[option]}."
        )
    try:
        place_is_there, is_directory = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        module.fail_json(msg=unwritable(path, error))
    if not place_is_there:
        module.fail_json(msg=f"{option} is {path}, and there is no directory {path.parent}: make it, or give another.")
    if is_directory:
        module.fail_json(msg=f"{option} is {path}, which is a directory: give the path of a file.")
    return path


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "verification": {"type": "dict", "required": True},
            "metrics": {"type": "path"},
            "fact": {"type": "path"},
        },
        required_one_of=[("metrics", "fact")],
        supports_check_mode=True,
    )
    verification, now = module.params["verification"], time.time()
    diffs: list[dict[str, t.Any]] = []
    paths = {option: target(module, option) for option in WRITERS if module.params[option]}
    try:
        texts = {option: WRITERS[option](verification, now) for option in paths}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        module.fail_json(
            msg=f"verification is no result of cuda_verify ({type(error).__name__}: {error}): give what it returned as"
            " verification."
        )
    changed = False
    for option, path in paths.items():
        try:
            there = _verify_export.read(path)
            if not module.check_mode:
                _verify_export.write(path, texts[option])
        except OSError as error:
            module.fail_json(msg=unwritable(path, error))
        before, after = LASTING[option](there or ""), LASTING[option](texts[option])
        changed = changed or there is None or before != after
        diffs.append({"before_header": str(path), "after_header": str(path), "before": before, "after": after})
    module.exit_json(changed=changed, files=[str(path) for path in paths.values()], diff=diffs)


if __name__ == "__main__":
    main()
