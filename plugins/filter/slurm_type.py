# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_type
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: SLURM's GRES type of a GPU
description:
  - Returns the type that SLURM's automatic detection gives a GPU, its product name in lower case with V(_) for each
    space.
options:
  _input:
    description: Product name, as the driver gives it.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show SLURM's type of a GPU
  ansible.builtin.debug:
    msg: "{{ 'NVIDIA RTX 6000 Ada Generation' | cudahub.gpu.slurm_type }}"
  # => nvidia_rtx_6000_ada_generation
"""

RETURN = r"""
_value:
  description: The type.
  type: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu


def slurm_type(name: str) -> str:
    """SLURM's type of a product name. Raises AnsibleFilterError when it is no name."""
    if not isinstance(name, str) or not name.strip():
        raise AnsibleFilterError(
            f"slurm_type: {name!r} is not the name of a GPU; without a driver the name that SLURM uses is not known"
        )
    return _gpu.slurm_type(name)


class FilterModule:
    """The filter slurm_type."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_type": slurm_type}
