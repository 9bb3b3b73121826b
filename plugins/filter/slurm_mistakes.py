# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_mistakes
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: What can't be right in the options of role slurm
description:
  - Returns a sentence for each mistake in the options of role P(cudahub.gpu.slurm#role), before any host is asked.
  - It finds values out of range, settings that no version of SLURM has, partitions, accounts, QOS and users that can't
    be as they are written, and names of accounts and QOS that are nowhere.
options:
  _input:
    description: Options of the role by their names. One that is missing is not checked.
    type: dict
    required: true
  accounting:
    description: Whether the cluster has an accounting database.
    type: bool
    default: true
  associations:
    description:
      - Lines of C(sacctmgr --noheader --parsable2 show assoc format=account,user,parentname) for the cluster.
      - Null if it can't be asked; accounts that the options name and do not have are not looked for then.
    type: list
    elements: str
  qos:
    description: Names of the QOS that the database has, or null as with O(associations).
    type: list
    elements: str
  jobs:
    description: Lines of C(squeue --noheader --format=%i|%u|%a|%q), to find who is to go and still has jobs.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ options | cudahub.gpu.slurm_mistakes(associations=[], qos=[]) }}"
  vars:
    options:
      slurm_users: [{name: alice, uid: 2001}, {name: bob, uid: 2001}]
  # => ["slurm_users has UID 2001 twice (alice, bob): give each user their own."]
"""

RETURN = r"""
_value:
  description: The sentences. Those come first that others may follow from.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.plugin_utils._slurm_options import (
    Association,
    Job,
    Known,
    mistakes,
    read_rows,
)


def slurm_mistakes(
    options: t.Mapping[str, t.Any],
    accounting: bool = True,
    associations: t.Sequence[str] | None = None,
    qos: t.Sequence[str] | None = None,
    jobs: t.Sequence[str] = (),
) -> list[str]:
    """The sentences. Raises AnsibleFilterError if the input is no dictionary."""
    if not isinstance(options, t.Mapping):
        raise AnsibleFilterError(f"slurm_mistakes: the input is {options!r}, not a dictionary of options")
    known = Known(None if associations is None else read_rows(Association, associations), qos, read_rows(Job, jobs))
    return mistakes(options, accounting=accounting, known=known)


class FilterModule:
    """The filter slurm_mistakes."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_mistakes": slurm_mistakes}
