#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_packages
short_description: Install, change or take away the NVIDIA driver's packages as a whole
version_added: 0.1.0
description:
  - Does what M(cudahub.gpu.driver_plan) has planned, in one transaction of the package manager, checks that DKMS has
    built the kernel module for every kernel of the plan, and holds exactly the driver's packages that are then
    installed.
  - If the transaction or a build fails, the packages are as before when the module ends, with the same versions,
    states and holds. Its message says in one sentence why it failed, for a failed build with the compiler's own first
    error. Where the log is, what the ways out are, and how the packages are left follow in sentences of their own.
  - A run that was killed in the middle is finished by the next one. It still knows what was there before.
  - Runs with the same O(record) wait for each other, except in check mode.
  - What the host had before the first run is kept in O(record), so that O(state=absent) takes away what this module
    brought and nothing else.
  - No repository is set up and nothing is loaded or rebooted, see role P(cudahub.gpu.nvidia_driver#role) for that.
author:
  - cudahub.gpu contributors (@cudahub)
requirements:
  - Python 3.9 or later and root on the host.
  - apt and dpkg, or dnf.
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Returns what the plan foresees, and changes nothing. The package manager is not asked again.
    support: full
  diff_mode:
    description: Shows one line for each package that is touched, with its version and whether it is held.
    support: full
options:
  state:
    description:
      - With V(present), the packages are as in O(plan).
      - With V(absent), the packages that this module installed are purged, its holds are gone and O(record) is removed.
        What another package depends on stays, as do packages that somebody has asked for since and the running kernel;
        they are in RV(kept). Packages that were there before stay, in the version that they have now and with the
        holds that they had; those of the driver whose version is another than before are in RV(kept), too.
    type: str
    choices: [present, absent]
    default: present
  plan:
    description:
      - What M(cudahub.gpu.driver_plan) returned as C(plan). Required if O(state=present).
    type: dict
  hold:
    description:
      - Whether the driver's packages are held, with C(apt-mark hold) or C(dnf versionlock).
      - With V(false), holds that this module has set earlier are taken back; those of others stay.
    type: bool
    default: true
  ignore_processes:
    description:
      - With O(state=absent), whether to take the driver away though processes use the GPUs. They are never ended; what
        they have loaded stays until a reboot.
      - With V(false), that is refused before anything is changed, and the processes are named. With O(state=present),
        M(cudahub.gpu.driver_plan) has seen to them.
    type: bool
    default: false
  lock_timeout:
    description:
      - How many seconds to wait for another run of this module, and then for the lock of the package manager, while
        another process holds it.
    type: int
    default: 300
  log:
    description:
      - A file to which everything that the package manager and DKMS print is appended while they run.
      - The log of a failed build is copied beside it, with the module, its version and the kernel in its name.
    type: path
    default: /var/log/cudahub/nvidia_driver.log
  record:
    description:
      - The file that keeps what was there before. Beside it, files with C(.lock) and C(.reserve) after its name are
        there while the module runs. Its directory is removed when nothing is left in it.
      - M(cudahub.gpu.driver_plan) reads the default one only.
    type: path
    default: /var/lib/cudahub/nvidia_driver.json
seealso:
  - module: cudahub.gpu.driver_plan
"""

EXAMPLES = r"""
- name: Work out what to install
  cudahub.gpu.driver_plan:
    source: distro
    gpus: "{{ ansible_facts['gpu'].gpus }}"
  register: driver
  failed_when: driver.refusals | length > 0

- name: Install it
  cudahub.gpu.driver_packages:
    plan: "{{ driver.plan }}"

- name: Take it away
  cudahub.gpu.driver_packages:
    state: absent
"""

RETURN = r"""
log:
  description: The file that has what the package manager and DKMS printed.
  type: str
  returned: always
  sample: /var/log/cudahub/nvidia_driver.log
transaction:
  description:
    - What the package manager did, dependencies included, or would do in check mode. All empty if nothing.
    - With RV(failure), what was tried.
  type: dict
  returned: always
  contains:
    install:
      description: New packages, each with C(name) and C(version).
      type: list
      elements: dict
    change:
      description: Packages that get another version, each with C(name), C(from) and C(to).
      type: list
      elements: dict
    remove:
      description: Packages that go, each with C(name) and C(version).
      type: list
      elements: dict
  sample:
    install: [{name: nvidia-kernel-dkms, version: 535.309.01-1~deb12u1}]
    change: []
    remove: []
dkms:
  description: The driver's modules that DKMS knows, after the module has run.
  type: list
  elements: dict
  returned: always
  contains:
    module:
      description: Name of the module in DKMS.
      type: str
    version:
      description: Version of the module.
      type: str
    kernel:
      description: Release of the kernel it is built for; null if it is built for none.
      type: str
    state:
      description: C(added), C(built), C(installed), or C(broken).
      type: str
  sample: [{module: nvidia-current, version: 535.309.01, kernel: 6.1.0-56-amd64, state: installed}]
kept:
  description:
    - With O(state=absent), the packages of this module that stay, and those of the driver that were there before the
      first run in another version.
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the package.
      type: str
    reason:
      description: Why it stays.
      type: str
  sample:
    - {name: dkms, reason: zfs-dkms needs it}
    - name: libcuda1
      reason: it was there before, and has version 595.71.05-1 now instead of 580.126.09-1
failure:
  description: Why the packages are not as asked for; null if they are.
  type: dict
  returned: always
  contains:
    kind:
      description:
        - C(lock), C(download), C(unresolvable), C(disk), C(dkms), C(interrupted), C(in_use), or
          C(package_manager).
      type: str
    message:
      description: What is wrong, what to do, and whether the packages are as they were before.
      type: str
    details:
      description: The end of what the package manager or the compiler printed.
      type: str
  sample: null
"""

import contextlib
import os
import typing as t
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import (
    _driver_record,
    _driver_transaction,
    _preflight,
    _run_lock,
    _scratch,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._apt import AptReader
from ansible_collections.cudahub.gpu.plugins.module_utils._apt_transaction import AptWriter
from ansible_collections.cudahub.gpu.plugins.module_utils._dkms import HostDkms
from ansible_collections.cudahub.gpu.plugins.module_utils._dnf import DnfReader, DnfWriter
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import PackageError, Reader, Writer, runner
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles
from ansible_collections.cudahub.gpu.plugins.module_utils._transaction_log import TransactionLog

MOST_DETAILS = 4000
"""Characters of output in the result; all of it is in the log."""


def host_of(module: AnsibleModule) -> _driver_transaction.Host:
    """The host that the module runs on."""
    options = module.params
    log = TransactionLog(options["log"])
    run = runner(module)
    reader: Reader
    writer: Writer
    if module.get_bin_path("apt-get"):
        reader, writer = AptReader(run), AptWriter(log, run, options["lock_timeout"])
    elif module.get_bin_path("dnf"):
        reader, writer = (
            DnfReader(run, lock_timeout=options["lock_timeout"]),
            DnfWriter(log, run, options["lock_timeout"]),
        )
    else:
        module.fail_json(
            msg="This host has no package manager that is supported here: neither apt-get nor dnf is there."
        )
    system = os.uname()
    kept = f"{os.path.splitext(options['log'])[0]}-dkms-"
    return _driver_transaction.Host(
        reader=reader,
        writer=writer,
        dkms=HostDkms(run, log, HostFiles(), system.machine, kept),
        records=_driver_record.RecordFile(options["record"]),
        say=log.say,
        running=system.release,
    )


def absent(host: _driver_transaction.Host, *, ignore_processes: bool, check: bool) -> _driver_transaction.Outcome:
    """Take the driver away, unless it is in use. Raises PlanError, PackageError, OSError."""
    users = () if ignore_processes or host.records.read() is None else _preflight.gpu_processes(HostFiles())
    if not users:
        return _driver_transaction.absent(host, check=check)
    sentence = (
        f"The driver is in use by {_preflight.users(users)}, and nothing was taken away: end them, or set "
        "nvidia_driver_ignore_processes to true to take its files away beneath them and reboot later."
    )
    return _driver_transaction.Outcome(changed=False, trouble=_driver_transaction.Trouble("in_use", sentence))


def result_of(outcome: _driver_transaction.Outcome, log: str) -> dict[str, t.Any]:
    """What the module returns."""
    trouble = outcome.trouble
    return {
        "changed": outcome.changed,
        "log": log,
        "transaction": outcome.transaction.as_dict(),
        "dkms": [
            {"module": one.module, "version": one.version, "kernel": one.kernel, "state": one.state}
            for one in outcome.builds
        ],
        "kept": [{"name": name, "reason": reason} for name, reason in sorted(outcome.kept.items())],
        "diff": {"before": outcome.before, "after": outcome.after},
        "failure": trouble and {**asdict(trouble), "details": trouble.details[-MOST_DETAILS:]},
    }


def main() -> None:
    """Read the parameters, change, and return."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "plan": {"type": "dict"},
            "hold": {"type": "bool", "default": True},
            "ignore_processes": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 300},
            "log": {"type": "path", "default": "/var/log/cudahub/nvidia_driver.log"},
            "record": {"type": "path", "default": _driver_record.RECORD},
        },
        required_if=[("state", "present", ["plan"])],
        supports_check_mode=True,
    )
    options = module.params
    if options["lock_timeout"] < 0:
        module.fail_json(msg=f"lock_timeout is {options['lock_timeout']}: give a number of seconds, 0 or more.")
    if os.geteuid() != 0 and not module.check_mode:
        module.fail_json(msg="Packages can only be changed by root: run the task with become: true.")
    host = host_of(module)
    alone: t.ContextManager[object] = contextlib.nullcontext()
    try:
        if not module.check_mode:
            _scratch.sweep()
            alone = _run_lock.exclusive(options["record"], options["lock_timeout"], host.say)
        if options["state"] == "present":
            plan = _driver_record.Plan.of(options["plan"])
            with alone:
                outcome = _driver_transaction.present(host, plan, hold=options["hold"], check=module.check_mode)
        else:
            with alone:
                outcome = absent(host, ignore_processes=options["ignore_processes"], check=module.check_mode)
    except (_driver_record.PlanError, PackageError, OSError) as error:
        outcome = _driver_transaction.failed(error)
    result = result_of(outcome, options["log"])
    if outcome.trouble:
        module.fail_json(msg=outcome.trouble.message, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
