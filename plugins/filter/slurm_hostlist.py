# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_hostlist
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: Write host names as SLURM's hostlist
description:
  - Returns the names as one hostlist, in natural order, V(gpu2) before V(gpu10). Names whose numbers follow each other
    become a range, leading zeros are kept.
  - Names without a number at their end are listed as they are.
options:
  _input:
    description: Host names.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show the nodes
  ansible.builtin.debug:
    msg: "{{ ['gpu02', 'gpu01', 'gpu07', 'login1', 'gpu03'] | cudahub.gpu.slurm_hostlist }}"
  # => gpu[01-03,07],login1
"""

RETURN = r"""
_value:
  description: The hostlist.
  type: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_hostlist


def slurm_hostlist(names: t.Iterable[str]) -> str:
    """The names as a hostlist. Raises AnsibleFilterError when they are none."""
    if isinstance(names, (str, t.Mapping)) or not isinstance(names, t.Iterable):
        raise AnsibleFilterError(f"slurm_hostlist: the input is a {type(names).__name__}, not a list of host names")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str) or not name or set(name) & set("[], \t\n"):
            raise AnsibleFilterError(f"slurm_hostlist: {name!r} is not a host name")
    return _slurm_hostlist.compress(sorted(set(listed), key=_slurm_hostlist.natural_key))


class FilterModule:
    """The filter slurm_hostlist."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_hostlist": slurm_hostlist}
