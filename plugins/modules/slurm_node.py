#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain, take down and resume a node of SLURM
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Changes the state of a node with C(scontrol). No job is ever ended by it, it waits for them.
  - A node that was drained or taken down for another reason keeps that reason, and is only resumed if that
    is asked for.
options:
  name:
    description: Name of the node, as in C(slurm.conf).
    type: str
    required: true
  state:
    description:
      - V(drained) is a node that gets no new jobs and runs none. One that is down already is left as it is.
      - V(down) is drained first, and taken down when it runs no job any more.
      - V(resumed) is a node that is neither drained nor down, and answers.
    type: str
    choices: [drained, down, resumed]
    required: true
  reason:
    description: Why the node is drained or taken down, in one line. Needed for V(drained) and V(down).
    type: str
  only_reason:
    description:
      - With O(state=resumed), resumes the node only if the reason that it has begins so. Otherwise it stays as it is,
        with a warning.
      - A node that has no reason, that did not answer, or that was rebooted unexpectedly as far as SLURM knows, is
        resumed, too.
    type: str
  any_reason:
    description: With O(state=resumed), whether the node is resumed whoever drained it, and for whatever reason.
    type: bool
    default: false
  timeout:
    description:
      - Seconds to wait until the node runs no job any more, or answers. If it does not by then, that is a failure that
        names the jobs. A node that was drained stays drained then.
    type: int
    default: 600
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Says what it would change, and changes nothing.
    support: full
  diff_mode:
    description: Shows the state and reason of the node before and after.
    support: full
requirements:
  - Python 3.9 or later on the target
  - scontrol and squeue, and permission to change nodes
seealso:
  - module: cudahub.gpu.gpu_facts
"""

EXAMPLES = r"""
- name: No new jobs before the reboot, and wait for those that run
  cudahub.gpu.slurm_node:
    name: gpu01
    state: drained
    reason: "cudahub: reboot for a new driver"
    timeout: 7200

- name: Back to work, unless somebody else drained it, too
  cudahub.gpu.slurm_node:
    name: gpu01
    state: resumed
    only_reason: "cudahub: "
"""

RETURN = r"""
node_state:
  description: State of the node afterwards, as SLURM writes it.
  returned: success
  type: str
  sample: IDLE+DRAIN
reason:
  description: Why the node is drained or down; null if it is neither.
  returned: success
  type: str
  sample: "cudahub: reboot for a new driver"
reason_by:
  description: Who set the reason; null if there is none, or SLURM doesn't say it.
  returned: success
  type: str
  sample: root
kept:
  description: Why a node was left with the reason that it had; null if it was not.
  returned: success
  type: str
  sample: "gpu01 stays drained, for another reason than asked: fan replaced (by carol)"
jobs:
  description: Jobs that run on the node, and their users.
  returned: success
  type: list
  elements: str
  sample: ["12 (alice)"]
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_control
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import ModuleHost, SlurmError


class _Clock:
    """The time that passes on the host."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def _text(node: _slurm_control.Node) -> dict[str, str | None]:
    out = node.drained or node.down
    return {"state": node.text, "reason": (node.reason or None) if out else None}


def main() -> None:
    """Read the parameters, change the state, and return."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "down", "resumed"], "required": True},
            "reason": {"type": "str"},
            "only_reason": {"type": "str"},
            "any_reason": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 600},
        },
        required_if=[("state", "drained", ["reason"]), ("state", "down", ["reason"])],
        supports_check_mode=True,
    )
    params = module.params
    controller = _slurm_control.Controller(ModuleHost(module))
    try:
        if params["state"] == "resumed":
            outcome = _slurm_control.resume(
                controller,
                params["name"],
                params["only_reason"],
                params["timeout"],
                _Clock(),
                any_reason=params["any_reason"],
                check=module.check_mode,
            )
        else:
            outcome = _slurm_control.drain(
                controller,
                params["name"],
                params["reason"],
                params["timeout"],
                _Clock(),
                down=params["state"] == "down",
                check=module.check_mode,
            )
    except SlurmError as error:
        module.fail_json(msg=str(error), changed=error.changed)
    if outcome.kept is not None:
        module.warn(outcome.kept)
    after = _text(outcome.after)
    module.exit_json(
        changed=outcome.changed,
        node_state=after["state"],
        reason=after["reason"],
        reason_by=(outcome.after.set_by or None) if after["reason"] else None,
        kept=outcome.kept,
        jobs=list(outcome.jobs),
        diff={"before": _text(outcome.before), "after": after},
    )


if __name__ == "__main__":
    main()
