# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: openpgp_fingerprints
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: The fingerprints of the keys in an OpenPGP file
description:
  - Returns the fingerprints of the primary keys in a file with ASCII armor, without a program that a host may lack.
options:
  _input:
    description: Content of the file, for example of the key that signs a package repository.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show whose key a file is
  ansible.builtin.debug:
    msg: "{{ 'this is no key' | cudahub.gpu.openpgp_fingerprints }}"
  # => []
"""

RETURN = r"""
_value:
  description: Fingerprints, 40 hexadecimal digits in upper case each; none for what is no key or broken.
  type: list
  elements: str
"""

from ansible_collections.cudahub.gpu.plugins.module_utils import _openpgp


def openpgp_fingerprints(content: str) -> list[str]:
    """Return the fingerprints of the keys."""
    try:
        return list(_openpgp.fingerprints(str(content).encode()))
    except ValueError:
        return []


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name the filter."""
        return {"openpgp_fingerprints": openpgp_fingerprints}
