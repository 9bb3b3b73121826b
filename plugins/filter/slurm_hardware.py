# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_hardware
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: Processors and memory from C(slurmd -C)
description:
  - Returns what C(slurmd -C) prints about processors and memory, as RV(cudahub.gpu.slurm_files#filter:_value) needs it
    in a node description. Other lines and values are ignored.
options:
  _input:
    description: The output of C(slurmd -C).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the hardware
  ansible.builtin.debug:
    msg: >-
      {{ 'NodeName=gpu01 CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000'
         | cudahub.gpu.slurm_hardware }}
  # => {CPUs: 16, Boards: 1, SocketsPerBoard: 1, CoresPerSocket: 8, ThreadsPerCore: 2, RealMemory: 64000}
"""

RETURN = r"""
_value:
  description:
    - The numbers V(CPUs), V(Boards), V(SocketsPerBoard), V(CoresPerSocket), V(ThreadsPerCore), and V(RealMemory) in
      MB.
  type: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_node
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_parameters import SlurmError


def slurm_hardware(text: str) -> dict[str, int]:
    """The hardware of a node. Raises AnsibleFilterError when the text does not tell it."""
    try:
        return _slurm_node.parse_hardware(text)
    except SlurmError as error:
        raise AnsibleFilterError(f"slurm_hardware: {error}") from error


class FilterModule:
    """The filter slurm_hardware."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_hardware": slurm_hardware}
