# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: verify_mistakes
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: What can't be right in the options of role gpu_verify
description:
  - Returns a sentence for each number out of range in the options of role P(cudahub.gpu.gpu_verify#role), so that they
    are refused before anything is installed.
  - The ranges are those of module M(cudahub.gpu.cuda_verify).
options:
  _input:
    description:
      - V(timeout), V(thresholds), V(spread), V(duration), V(memory_margin), V(memory_limit) and V(wait), without the
        role's prefix. One that is missing is not checked.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ {'timeout': 60, 'thresholds': {'warn': {'copy_device': 75}}} | cudahub.gpu.verify_mistakes }}"
  # => ["gpu_verify_thresholds.warn.copy_device is 75: give a share of the peak between 0 and 1."]
"""

RETURN = r"""
_value:
  description: The sentences.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.validation import check_type_dict

from ansible_collections.cudahub.gpu.plugins.module_utils._verify_deep import Options, refuse_timeout
from ansible_collections.cudahub.gpu.plugins.module_utils._verify_judge import OptionError, thresholds


def _thresholds(value: t.Any) -> object:
    """As the module takes them, from the command line as text, too. Raises OptionError."""
    try:
        given = check_type_dict(value or {})
    except TypeError as error:
        raise OptionError(f"thresholds is {value!r}: give warn and fail, with shares by check.") from error
    return thresholds(given)


CHECKS: dict[str, t.Callable[[t.Any], object]] = {
    "timeout": lambda value: refuse_timeout(float(value)),
    "thresholds": _thresholds,
    "spread": lambda value: Options(spread=float(value)),
    "duration": lambda value: Options(duration=float(value)),
    "memory_margin": lambda value: Options(memory_margin=int(value)),
    # The role's 0 is no limit.
    "memory_limit": lambda value: Options(memory_limit=int(value) or None),
    "wait": lambda value: Options(wait=float(value)),
}


def verify_mistakes(options: t.Mapping[str, t.Any]) -> list[str]:
    """The sentences. Raises AnsibleFilterError if the input is no dictionary of these options."""
    if not isinstance(options, t.Mapping) or set(options) - set(CHECKS):
        raise AnsibleFilterError(f"verify_mistakes: the input is {options!r}, not a dictionary of {', '.join(CHECKS)}")
    found = []
    for name, value in options.items():
        try:
            CHECKS[name](value)
        except OptionError as error:
            found.append(f"gpu_verify_{error}")
        except (TypeError, ValueError, OverflowError):
            found.append(f"gpu_verify_{name} is {value!r}: give a number.")
    return found


class FilterModule:
    """The filter verify_mistakes."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"verify_mistakes": verify_mistakes}
