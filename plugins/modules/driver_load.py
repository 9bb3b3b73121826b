#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_load
short_description: Load the installed NVIDIA driver, or say that only a reboot does
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Compares the loaded kernel module C(nvidia) with the one that is installed for the running kernel, and changes
    nothing where they are the same.
  - Where none is loaded, the installed one is loaded.
  - Where another version or flavour is loaded and nothing uses it, it is unloaded and the installed one is loaded,
    with C(nvidia_uvm), C(nvidia_modeset), C(nvidia_drm), C(nvidia_peermem) and C(nvidia_fs) as far as they were loaded
    before. A module or daemon of those that can't be brought back is a warning.
    The daemons that come with the driver (C(nvidia-persistenced), C(nvidia-fabricmanager), C(nvidia-powerd)) are
    stopped for that and started again. Nothing else is ever stopped.
  - Where the driver is in use, or a GPU is bound to C(nouveau), nothing is changed and a reboot is needed.
    Processes that use it are named, and never ended. It is never rebooted by this module.
options:
  kernel_module:
    description: Flavour that the loaded module has to have. By default, either will do.
    type: str
    choices: [open, proprietary]
  reboot:
    description:
      - Whether the caller reboots the host if that is needed. If not, a needed reboot is a warning.
    type: bool
    default: false
  controller_boot_id:
    description:
      - Content of C(/proc/sys/kernel/random/boot_id) on the controller. A host that has the same one is the
        controller, or a container on it, and RV(reboot) is false for it.
    type: str
    default: ""
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Says whether it would load the driver, and changes nothing.
    support: full
  diff_mode:
    description: Shows the version that is loaded.
    support: full
requirements:
  - Python 3.9 or later on the target
  - root
seealso:
  - module: cudahub.gpu.gpu_facts
"""

EXAMPLES = r"""
- name: Load the driver that was just installed
  cudahub.gpu.driver_load:
    kernel_module: open
    reboot: true
    controller_boot_id: "{{ lookup('ansible.builtin.file', '/proc/sys/kernel/random/boot_id', errors='ignore') or '' }}"
  register: driver

- name: Reboot if nothing else helps
  ansible.builtin.reboot:
  when: driver.reboot
"""

RETURN = r"""
loaded:
  description: Version of the loaded kernel module; null if none is loaded.
  returned: success
  type: str
  sample: 580.159.04
installed:
  description: Version of the kernel module that is installed for the running kernel.
  returned: success
  type: str
  sample: 595.71.05
reboot_needed:
  description: Whether the installed module can only be loaded by a reboot.
  returned: success
  type: bool
  sample: true
reboot:
  description: Whether a reboot is needed, the caller does it (O(reboot)), and the host is not the controller.
  returned: success
  type: bool
  sample: false
reason:
  description: Why a reboot is needed; null if none is.
  returned: success
  type: str
  sample: >-
    the kernel module 595.71.05 of the NVIDIA driver is installed, 580.159.04 is loaded: it is in use by python3
    (process 4242, /dev/nvidia0)
missing:
  description: Kernel modules and daemons that ran before and could not be brought back, one sentence each.
  returned: success
  type: list
  elements: str
  sample: []
"""

import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver, _driver_load, _pci, _preflight

BOOT_ID = "/proc/sys/kernel/random/boot_id"
PROC_MODULES = "/proc/modules"


class _Target:
    """The host that the module runs on."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        self._files = _pci.HostFiles()

    def state(self) -> _driver_load.State:
        loaded, flavour = _driver.loaded(self._files)
        release = platform.release()
        return _driver_load.State(
            kernel=release,
            loaded=loaded,
            loaded_flavour=flavour,
            installed=_driver.module_version(self._files, release, platform.machine(), self._output),
            modules=self._files.read(PROC_MODULES) or "",
            bound_to_nouveau=tuple(
                f"GPU {gpu.bus_id}" for gpu in _pci.scan(self._files) if gpu.kernel_driver == "nouveau"
            ),
        )

    def run(self, command: t.Sequence[str]) -> _driver_load.Result:
        rc, out, err = self._module.run_command([self._module.get_bin_path(command[0], required=True), *command[1:]])
        return _driver_load.Result(rc, " ".join((err.strip() or out.strip()).split()))

    def active(self, unit: str) -> bool:
        path = self._module.get_bin_path("systemctl")
        return bool(path) and self._module.run_command([path, "is-active", "--quiet", unit])[0] == 0

    def processes(self) -> t.Sequence[_preflight.Process]:
        return _preflight.gpu_processes(self._files, monitors=True)

    def boot_id(self) -> str:
        """What identifies this run of the kernel."""
        return self._files.read(BOOT_ID) or ""

    def _output(self, command: t.Sequence[str]) -> str:
        path = self._module.get_bin_path(command[0])
        return str(self._module.run_command([path, *command[1:]])[1]) if path else ""


def main() -> None:
    """Read the parameters, load, and return."""
    module = AnsibleModule(
        argument_spec={
            "kernel_module": {"type": "str", "choices": ["open", "proprietary"]},
            "reboot": {"type": "bool", "default": False},
            "controller_boot_id": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    target = _Target(module)
    before, _flavour = _driver.loaded(_pci.HostFiles())
    try:
        outcome = _driver_load.load(target, module.params["kernel_module"], check=module.check_mode)
    except _driver_load.LoadError as error:
        module.fail_json(msg=str(error), changed=error.changed)
    for sentence in outcome.missing:
        module.warn(f"{sentence[0].upper()}{sentence[1:]}: look at the kernel log and at systemctl status")
    elsewhere = target.boot_id() != module.params["controller_boot_id"]
    reboot = outcome.reason is not None and module.params["reboot"] and elsewhere
    if outcome.reason is not None and not reboot:
        why = " (this is the controller, which is never rebooted)" if module.params["reboot"] else ""
        module.warn(f"Reboot needed{why}: {outcome.reason}")
    after = outcome.installed if outcome.changed and outcome.reason is None else outcome.loaded
    module.exit_json(
        changed=outcome.changed,
        loaded=outcome.loaded,
        installed=outcome.installed,
        reboot_needed=outcome.reason is not None,
        reboot=reboot,
        reason=outcome.reason,
        missing=list(outcome.missing),
        diff={"before": f"loaded: {before or 'none'}\n", "after": f"loaded: {after or 'none'}\n"},
    )


if __name__ == "__main__":
    main()
