#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: warn
short_description: Say something as a warning
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Gives a sentence as a warning, which Ansible shows on standard error, in the colour of warnings, whatever the
    callback for standard output leaves out.
options:
  msg:
    description: The sentence.
    type: str
    required: true
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Can run in check mode, and says the same as otherwise.
    support: full
  diff_mode:
    description: Changes nothing, so that there is nothing to show.
    support: none
seealso:
  - module: ansible.builtin.debug
  - module: ansible.builtin.fail
"""

EXAMPLES = r"""
- name: Say that work is left
  cudahub.gpu.warn:
    msg: "Docker on {{ inventory_hostname }}: restart needed."
  when: nvidia_container_toolkit_restart_needed | length > 0
"""

RETURN = r"""
msg:
  description: The sentence.
  returned: always
  type: str
  sample: "Docker on node1: restart needed."
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Read the parameter, and say it."""
    module = AnsibleModule(argument_spec={"msg": {"type": "str", "required": True}}, supports_check_mode=True)
    module.warn(module.params["msg"])
    module.exit_json(changed=False, msg=module.params["msg"])


if __name__ == "__main__":
    main()
