# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_gres_difference
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: What C(slurmd -G) finds against what is expected
description:
  - Compares the generic resources that C(slurmd -G) prints with those of P(cudahub.gpu.slurm_gres#filter), types,
    counts and device files.
  - Where they differ, what C(slurmd) complained about is added.
positional: expected
options:
  _input:
    description: The output of C(slurmd -G), standard error included.
    type: str
    required: true
  expected:
    description: The list of the node from P(cudahub.gpu.slurm_gres#filter).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ found | cudahub.gpu.slurm_gres_difference(expected) }}"
  vars:
    found: "slurmd: Gres Name=gpu Type=tesla_t4 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)"
    expected:
      - {name: gpu, type: tesla_t4, count: 2, files: [/dev/nvidia0, /dev/nvidia1], method: file, cores: null}
  # => ["slurmd finds 1 of gpu:tesla_t4, expected are 2", "slurmd does not find gpu:tesla_t4 at /dev/nvidia1"]
"""

RETURN = r"""
_value:
  description: A sentence for each difference; empty if there is none.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_gres


def slurm_gres_difference(text: str, expected: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """The differences in sentences. Raises AnsibleFilterError when the input is of another kind."""
    if not isinstance(text, str):
        raise AnsibleFilterError(
            f"slurm_gres_difference: the input is a {type(text).__name__}, not the text that slurmd -G prints"
        )
    if not isinstance(expected, (list, tuple)):
        raise AnsibleFilterError(
            f"slurm_gres_difference: expected is a {type(expected).__name__}, not a list of resources from slurm_gres"
        )
    return _slurm_gres.difference(text, expected)


class FilterModule:
    """The filter slurm_gres_difference."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_gres_difference": slurm_gres_difference}
