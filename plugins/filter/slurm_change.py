# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_change
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: What changed configuration files ask of SLURM's daemons
description:
  - Compares two sets of texts of P(cudahub.gpu.slurm_files#filter) and tells, by SLURM's documentation for this
    version, whether a reconfiguration is enough, or C(slurmctld) or C(slurmd) of some nodes has to be restarted. Jobs
    survive each of these.
  - Jobs on a removed node or in a removed partition do not survive, and those on a node whose generic resources change
    may not, drain these first.
positional: new_texts, version
options:
  _input:
    description: The texts in use by their file names; an empty dictionary if there is none yet.
    type: dict
    required: true
  new_texts:
    description: The new texts by their file names.
    type: dict
    required: true
  version:
    description: Version of SLURM.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show what a longer time limit needs
  ansible.builtin.debug:
    msg: "{{ (old | cudahub.gpu.slurm_change(new, '24.11.5')).action }}"
  vars:
    old:
      slurm.conf: |
        NodeName=gpu01 CPUs=8
        PartitionName=main Nodes=ALL MaxTime=60
    new:
      slurm.conf: |
        NodeName=gpu01 CPUs=8
        PartitionName=main Nodes=ALL MaxTime=120
  # => reconfigure
"""

RETURN = r"""
_value:
  description: What is to be done.
  type: dict
  contains:
    changed:
      description: Whether a text differs, if only in a comment.
      type: bool
    action:
      description: V(none), V(reconfigure) (C(scontrol reconfigure)) or V(restart).
      type: str
    controllers:
      description: Whether C(slurmctld) has to be restarted.
      type: bool
    nodes:
      description: Nodes whose C(slurmd) has to be restarted.
      type: list
      elements: str
    reasons:
      description: What differs.
      type: list
      elements: str
    added_nodes:
      description: Nodes that are new.
      type: list
      elements: str
    removed_nodes:
      description: Nodes that are no longer there.
      type: list
      elements: str
    removed_partitions:
      description: Partitions that are no longer there.
      type: list
      elements: str
    gres_nodes:
      description: Nodes whose generic resources change.
      type: list
      elements: str
"""

from dataclasses import asdict

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_change, _slurm_parameters


def slurm_change(old_texts: t.Mapping[str, str], new_texts: t.Mapping[str, str], version: str) -> dict[str, t.Any]:
    """What the daemons need. Raises AnsibleFilterError for texts that are none of the files."""
    for what, texts in (("the input", old_texts), ("new_texts", new_texts)):
        if not isinstance(texts, t.Mapping):
            raise AnsibleFilterError(
                f"slurm_change: {what} is a {type(texts).__name__}, not a dictionary of texts by file name"
            )
    try:
        return asdict(_slurm_change.compare(old_texts, new_texts, _slurm_parameters.parse_version(version)))
    except ValueError as error:
        raise AnsibleFilterError(f"slurm_change: {error}") from error


class FilterModule:
    """The filter slurm_change."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_change": slurm_change}
