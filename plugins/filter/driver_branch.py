# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: driver_branch
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: The newest driver branch that supports all GPUs of a host
description:
  - Returns the newest production or long-term branch of NVIDIA's data centre driver that supports every GPU of the
    list, and the flavour of kernel module that they need.
  - Maxwell, Pascal and Volta are supported up to branch 580, by the proprietary kernel module only. For Turing and
    later it is the open one. Blackwell and later have no proprietary one, so that they can't share a host with a GPU
    older than Turing.
options:
  _input:
    description:
      - GPUs, as RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu.gpus) has them. Of each, C(architecture) is used.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the branch for a mixed host
  ansible.builtin.debug:
    msg: "{{ [{'architecture': 'Volta'}, {'architecture': 'Turing'}] | cudahub.gpu.driver_branch }}"
  # => {"branch": "580", "end_of_life": "2028-06", "kernel_module": "proprietary", "kind": "long-term"}
"""

RETURN = r"""
_value:
  description: The branch.
  type: dict
  contains:
    branch:
      description: First number of the driver's versions, as text.
      type: str
      sample: "580"
    kind:
      description: V(long-term) or V(production).
      type: str
    end_of_life:
      description: Year and month in which NVIDIA's support ends.
      type: str
      sample: 2028-06
    kernel_module:
      description: V(open) or V(proprietary).
      type: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils._branches import (
    BRANCHES,
    FIRST_WITH_OPEN_MODULE,
    FIRST_WITHOUT_PROPRIETARY_MODULE,
    GENERATIONS,
    generation,
)


def driver_branch(gpus: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Branch and kernel module for all of the GPUs. Raises AnsibleFilterError when there is none."""
    if not isinstance(gpus, (list, tuple)) or not gpus:
        raise AnsibleFilterError("driver_branch: there is no GPU in the list, so no driver branch can be chosen")
    oldest = min(gpus, key=_generation)
    newest = max(gpus, key=_generation)
    usable = [branch for branch in BRANCHES if generation(branch.oldest) <= _generation(oldest)]
    if not usable:
        raise AnsibleFilterError(
            f"driver_branch: {_label(oldest)} is older than {BRANCHES[0].oldest}, and no supported driver branch "
            f"({', '.join(branch.branch for branch in BRANCHES)}) supports it: take the card out"
        )
    is_open = _generation(oldest) >= generation(FIRST_WITH_OPEN_MODULE)
    if not is_open and _generation(newest) >= generation(FIRST_WITHOUT_PROPRIETARY_MODULE):
        raise AnsibleFilterError(
            f"driver_branch: {_label(oldest)} needs the proprietary kernel module and {_label(newest)} the open one: "
            "no driver supports both in one host, so take one of them out"
        )
    chosen = max(usable, key=lambda branch: int(branch.branch))
    return {
        "branch": chosen.branch,
        "kind": chosen.kind,
        "end_of_life": chosen.end_of_life,
        "kernel_module": "open" if is_open else "proprietary",
    }


def _generation(gpu: t.Mapping[str, t.Any]) -> int:
    architecture = gpu.get("architecture")
    if architecture not in GENERATIONS:
        raise AnsibleFilterError(
            f"driver_branch: the architecture of {_label(gpu)} is {architecture or 'unknown'}, "
            f"which is none of {', '.join(GENERATIONS)}: name the driver branch yourself"
        )
    return generation(architecture)


def _label(gpu: t.Mapping[str, t.Any]) -> str:
    names = [str(gpu[key]) for key in ("name", "pci_bus_id", "architecture") if gpu.get(key)]
    return f"GPU {' '.join(names)}".strip()


class FilterModule:
    """The filter driver_branch."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"driver_branch": driver_branch}
