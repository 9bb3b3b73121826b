#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: conda_env
short_description: Make a conda environment what it should be
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Creates, changes, repairs and removes an environment of conda packages, with conda, mamba or micromamba.
  - What an environment has is read from its own records in C(conda-meta). Where they already are what is asked for, no
    tool is started at all.
  - A change that fails leaves the environment as it was, and what a killed run left is made good by the next one. Runs
    on the same environment or the same cache of packages wait for each other.
  - Files named here are read on the controller.
options:
  state:
    description:
      - V(present) has packages that match O(packages). Others stay, unless O(exact) is set.
      - V(latest) has what a new environment would get today for O(packages).
      - V(locked) has the files of packages that O(lock) or O(lock_file) lists, and no others.
      - V(absent) removes the environment, but neither an installation of conda nor a directory of something else.
    type: str
    choices: [present, latest, locked, absent]
    default: present
  prefix:
    description: Absolute path of the environment.
    type: path
  name:
    description:
      - Name of the environment in the tool's own directory of environments.
      - The tool has to be asked for that directory, in about half a second.
    type: str
  packages:
    description:
      - Specs of packages, in any form of conda's, as V(numpy), V(numpy=1.26), V('numpy>=1.26,<2'),
        V(numpy=1.26.*=py312*), V('conda-forge::numpy') or V('numpy[version=1.26]').
      - C(==) with C(*) is refused, since conda and mamba read it differently.
    type: list
    elements: str
    default: []
  channels:
    description:
      - Channels to take packages from, the first one first. No others are used, whatever the tool's configuration says.
      - The default is V([conda-forge]), or what O(environment_file) says.
      - Passwords and tokens in addresses are neither shown nor given on a command line.
    type: list
    elements: str
  pip:
    description:
      - Lines of a requirements file, to be installed by the environment's pip. Without network, pip has to have them.
    type: list
    elements: str
    default: []
  pip_arguments:
    description: More arguments for C(pip install), as V([--index-url, https://mirror.example.org/simple]).
    type: list
    elements: str
    default: []
  environment_file:
    description:
      - Path on the controller of an C(environment.yml), whose dependencies, with the section C(pip), and channels are
        used. C(name), C(prefix) and C(variables) in it are not used.
      - What O(packages), O(pip) and O(channels) say is added, or is used instead for channels.
    type: path
  lock:
    description: Lines of a lock file, as RV(lock) of another host. C(@EXPLICIT) and comments may be among them.
    type: list
    elements: str
  lock_file:
    description: Path on the controller of a lock file, as C(conda list --explicit --md5) writes it.
    type: path
  exact:
    description:
      - Whether to remove packages that O(packages) neither names nor needs, with O(state=present) or O(state=latest).
      - pip, setuptools and wheel belong to Python, and stay.
    type: bool
    default: false
  verify:
    description:
      - Whether to read all files and compare them with their hashes. Files that are gone or changed are brought anew,
        and changed ones kept in C(conda-meta/cudahub-changed-NUMBER).
      - It takes about a second for each gigabyte. Records that can't be read are repaired without it, too.
    type: bool
    default: false
  atomic:
    description:
      - Whether to make each change as a whole new environment beside the old one, in C(PREFIX.d). O(prefix) is a
        symbolic link that leads to it when it is complete. The one before stays until the next change, for programs
        that run.
      - It needs the disk space of two. Packages that others have asked for in the environment, and files that no
        package has brought, come along; where pip has installed any, that is refused. With O(exact), neither does.
      - An environment that was made without it can't be changed with it, nor the other way round.
    type: bool
    default: false
  frozen:
    description:
      - Whether the environment is protected by C(conda-meta/frozen) (CEP 22), so that tools that honour it refuse to
        change it. With V(true), this module still does.
      - Without it, an environment that is protected is not changed.
    type: bool
  owner:
    description: User to whom all files belong, by name or number.
    type: str
  group:
    description: Group to which all files belong, by name or number.
    type: str
  umask:
    description: Permissions that new files don't have, as an octal number in quotes.
    type: str
    default: "0022"
  cuda:
    description:
      - CUDA version that packages are chosen for, C(CONDA_OVERRIDE_CUDA), as V("12.9"), or V(none).
      - V(driver) is what the driver supports, by NVML. Where that can't be read, the tool looks for itself.
    type: str
    default: driver
  condarc:
    description:
      - Settings of conda for this task, which go before its configuration files, for example C(channel_alias) or
        C(custom_channels) for a mirror, C(ssl_verify), C(proxy_servers), C(channel_priority) or C(pkgs_dirs).
    type: dict
    default: {}
  offline:
    description: Whether to use only what the cache has, without network.
    type: bool
    default: false
  executable:
    description:
      - Path or name of conda (24 or later), mamba (1.5 or later) or micromamba.
      - Without it, it is looked for in C(/opt/tljh/user/bin), C(PREFIX/bin), C(/opt/cudahub/conda/bin) and C(PATH).
    type: str
  lock_timeout:
    description: Seconds to wait for other runs on the same environment or cache.
    type: int
    default: 3600
  log:
    description:
      - File to which a line is added for each step, with megabytes and packages while they come. Show it with
        M(cudahub.gpu.async_progress).
      - The default is C(/var/log/cudahub/conda_env.log) for root, and C(~/.local/state/cudahub/conda_env.log) for
        others.
    type: path
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  action:
    description: Has an action plugin, which reads files on the controller.
    support: full
  async:
    description: Supports being used with the C(async) keyword.
    support: full
  check_mode:
    description: Says what would change. The tool solves, and changes nothing.
    support: full
  diff_mode:
    description: Shows packages that come, go, or change their version.
    support: full
requirements:
  - Python 3.9 or later on the host
  - conda 24, mamba 1.5 or micromamba 1.5, or later, where something has to be changed
notes:
  - The tool solves twice where something is to be changed, once for the plan, and once for the change.
  - Tested with conda 24.7.1; mamba 2.8 and conda 26.7 by recordings of what they answer, mamba 1.5 by its
    documentation.
seealso:
  - module: cudahub.gpu.cuda_verify
  - module: cudahub.gpu.async_progress
"""

EXAMPLES = r"""
- name: An environment with RAPIDS, for what the driver supports
  cudahub.gpu.conda_env:
    prefix: /opt/envs/rapids
    channels: [rapidsai, conda-forge]
    packages:
      - cudf=26.10
      - python=3.13
      - cuda-version>=13.0,<=13.0

- name: What an environment.yml says, and nothing else
  cudahub.gpu.conda_env:
    prefix: /opt/envs/course
    environment_file: files/course/environment.yml
    exact: true

- name: The packages of the first host on all others
  cudahub.gpu.conda_env:
    state: locked
    prefix: /opt/envs/rapids
    lock: "{{ hostvars[ansible_play_hosts[0]].rapids_environment.lock }}"

- name: Changes of which users notice nothing until they are complete
  cudahub.gpu.conda_env:
    prefix: /opt/envs/shared
    packages: [jupyterlab, numpy>=2]
    atomic: true
    frozen: true

- name: Repair what is broken
  cudahub.gpu.conda_env:
    prefix: /opt/envs/rapids
    packages: [cudf=26.10]
    channels: [rapidsai, conda-forge]
    verify: true

- name: Remove it
  cudahub.gpu.conda_env:
    prefix: /opt/envs/rapids
    state: absent
"""

RETURN = r"""
prefix:
  description: Path of the environment as users have it.
  returned: always
  type: str
  sample: /opt/envs/rapids
packages:
  description: Packages that the environment has, or would have in check mode, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the package.
      type: str
      returned: always
      sample: cudf
    version:
      description: Its version.
      type: str
      returned: always
      sample: 26.10.0
    build:
      description: Its build.
      type: str
      returned: always
      sample: cuda13_py313_0
    channel:
      description: Its channel, as the tool notes it, without passwords and tokens.
      type: str
      returned: always
      sample: https://conda.anaconda.org/rapidsai/linux-64
lock:
  description:
    - Lines of a lock file that brings the same packages elsewhere, without passwords and tokens.
    - Empty in check mode where something would change.
  returned: success
  type: list
  elements: str
  sample: [https://conda.anaconda.org/rapidsai/linux-64/cudf-26.10.0-cuda13_0.conda#205a7a362ff4ab7d81db11db64a57049]
pip_packages:
  description: What pip has installed, or would have.
  returned: success
  type: list
  elements: str
  sample: [nvtx==0.2.13]
added:
  description: Packages that came, with version and build.
  returned: success
  type: dict
  sample: {cudf: 26.10.0 cuda13_0}
removed:
  description: Packages that went, with version and build.
  returned: success
  type: dict
updated:
  description: Packages that have another version or build, with those before and after.
  returned: success
  type: dict
  sample: {numpy: [2.0.1 py312_0, 2.3.1 py312_0]}
repaired:
  description: Files that were gone or changed, and records that could not be read.
  returned: success
  type: list
  elements: str
  sample: [lib/libcudf.so is missing]
recovered:
  description: Whether a run before this one had not ended, and what it had begun was taken back.
  returned: success
  type: bool
tool:
  description: The tool that was used. Empty if none was needed.
  returned: success
  type: str
  sample: conda 24.7.1
log:
  description: File that has the steps.
  returned: always
  type: str
  sample: /var/log/cudahub/conda_env.log
failure:
  description: Why the environment could not be made what was asked for. It is as it was before.
  returned: failure
  type: dict
  contains:
    kind:
      description:
        - V(unsolvable) (packages don't go together), V(cuda) (the driver is missing or too old for them), V(package),
          V(channel), V(network), V(disk), V(permission), V(frozen), V(terms) (terms of service), V(corrupt),
          V(checksum), V(no_environment), V(spec), V(pip), V(lock) (another run), V(place) (the prefix can't be used),
          or V(broken) (the tool itself).
      type: str
      returned: always
      sample: unsolvable
    reason:
      description: The tool's own words, shortened.
      type: str
      returned: always
"""

import contextlib
import errno
import grp
import os
import pwd
import re
import typing as t
from dataclasses import replace
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import (
    _conda_env,
    _conda_host,
    _conda_meta,
    _conda_spec,
    _conda_tool,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_answer import ToolError, condensed, without_secrets
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_place import PlaceError
from ansible_collections.cudahub.gpu.plugins.module_utils._nvml import Child, load_binding
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import PackageError
from ansible_collections.cudahub.gpu.plugins.module_utils._transaction_log import TransactionLog
from ansible_collections.cudahub.gpu.plugins.module_utils._version import cuda_version

NVML_VENVS = ("/opt/cudahub/nvml", "/opt/cudahub/verify")
NVML_TIMEOUT = 10.0
ROOT_LOG = "/var/log/cudahub/conda_env.log"
USER_LOG = ".local/state/cudahub/conda_env.log"

Parameters = t.Mapping[str, t.Any]


def wish_of(options: Parameters, prefix: str) -> _conda_env.Wish:
    """What the parameters ask for. Raises RefusedError."""
    return _conda_env.Wish(
        state=options["state"],
        prefix=prefix,
        specs=specs_of("packages", options["packages"]),
        lock=specs_of("lock", _lines(options["lock"])),
        pip=pip_of(options["pip"]),
        exact=options["exact"],
        verify=options["verify"],
        frozen=options["frozen"],
        atomic=options["atomic"],
        owner=_id("owner", options["owner"], lambda name: pwd.getpwnam(name).pw_uid),
        group=_id("group", options["group"], lambda name: grp.getgrnam(name).gr_gid),
    )


def _lines(lock: t.Sequence[str] | None) -> list[str]:
    """The packages of a lock."""
    return [line for line in (text.strip() for text in lock or ()) if line and line[0] not in "#@"]


def specs_of(option: str, texts: t.Sequence[str]) -> tuple[_conda_spec.Spec, ...]:
    """Specs, each package once. Raises RefusedError."""
    specs: list[_conda_spec.Spec] = []
    for text in texts:
        try:
            spec = _conda_spec.parse_spec(text)
        except _conda_spec.SpecError as error:
            raise _conda_env.RefusedError(f"{option}: {without_secrets(str(error))}", "spec") from error
        if option == "lock" and not (spec.url and _has_hash(spec)):
            raise _conda_env.RefusedError(
                f"lock: {without_secrets(text)!r} is no address of a package with its hash: write the lock with "
                "conda list --explicit --md5, or take what this module returns as lock",
                "spec",
            )
        if option == "packages" and _conda_tool.secrets(text):
            raise _conda_env.RefusedError(
                f"packages: {without_secrets(text)!r} has a password or a token in it, which others could read: put "
                "the channel into channels, and only its name before the package",
                "spec",
            )
        if option == "packages" and spec.name.startswith("__"):
            raise _conda_env.RefusedError(
                f"packages: {text!r} is what the machine has, and no package: leave it out, or set cuda", "spec"
            )
        if option == "packages" and spec.url is not None:
            raise _conda_env.RefusedError(
                f"packages: {without_secrets(text)!r} is an address: put it into lock, with state locked", "spec"
            )
        same = next((one for one in specs if one.name == spec.name), None)
        if same is not None and same.text != spec.text:
            raise _conda_env.RefusedError(f"{option} names {spec.name} twice: {same.text!r} and {spec.text!r}", "spec")
        if same is None:
            specs.append(spec)
    return tuple(specs)


def _has_hash(spec: _conda_spec.Spec) -> bool:
    lengths = ((spec.md5, 32), (spec.sha256, 64))
    given = [(value, length) for value, length in lengths if value is not None]
    return bool(given) and all(re.fullmatch(rf"[0-9a-f]{{{length}}}", value) for value, length in given)


def pip_of(lines: t.Sequence[str]) -> tuple[str, ...]:
    """Lines of a requirements file. Raises RefusedError."""
    for line in lines:
        if re.match(r"\s*(-r|-c|-e|--requirement|--constraint|--editable)\b(?!\s*=?\s*(/|https?://|git\+))", line):
            raise _conda_env.RefusedError(
                f"pip: {line!r} names a file beside the list of requirements, which is not on the host: put its lines "
                "here instead"
            )
        if "\n" in line:
            raise _conda_env.RefusedError(f"pip: {line!r} has several lines: make each an entry of its own")
    return tuple(line.strip() for line in lines if line.strip())


def _id(option: str, value: str | None, look: t.Callable[[str], int]) -> int | None:
    if value is None or value.isdigit():
        return None if value is None else int(value)
    try:
        return look(value)
    except KeyError as error:
        raise _conda_env.RefusedError(
            f"{option} {value} is not known on this host: create it, or give a number"
        ) from error


def settings_of(options: Parameters) -> _conda_tool.Settings:
    """How the tool is to work."""
    cuda = options["cuda"]
    return _conda_tool.Settings(
        channels=tuple(options["channels"] or _channels_of(options["lock"] or ()) or ["conda-forge"]),
        condarc=options["condarc"],
        offline=options["offline"],
        cuda=driver_cuda() if cuda == "driver" else "" if cuda == "none" else cuda,
        # The files of the cache, to which an environment has hard links, are the tool's own.
        copy=(options["owner"], options["group"]) != (None, None),
    )


def _channels_of(lock: t.Sequence[str]) -> list[str]:
    """The channels of a lock, from which its packages come again."""
    return list(dict.fromkeys(line.rsplit("/", 2)[0] for line in lock if "://" in line))


def driver_cuda() -> str | None:
    """The CUDA version of the driver; None where NVML does not answer."""
    report = Child(lambda: load_binding(NVML_VENVS)).report(NVML_TIMEOUT)
    return None if report.cuda_version is None else cuda_version(report.cuda_version)


def refuse_options(options: Parameters) -> None:
    """Refuse what can't be right, whatever is on the host. Raises RefusedError."""
    state, prefix, name = options["state"], options["prefix"], options["name"]
    if prefix is not None and (not os.path.isabs(prefix) or os.path.normpath(prefix) == "/" or "\n" in prefix):
        raise _conda_env.RefusedError(f"prefix is {prefix!r}: give the absolute path of one environment")
    if name is not None and not re.fullmatch(r"[^\s/:#]+", name):
        raise _conda_env.RefusedError(f"name is {name!r}: give a name without spaces and slashes, or prefix for a path")
    if state == "locked" and options["packages"]:
        raise _conda_env.RefusedError(
            "packages can't be chosen with state locked, where lock says all: leave packages out"
        )
    if state == "locked" and not _lines(options["lock"]):
        raise _conda_env.RefusedError("state is locked, and there is no package in the lock: give lock or lock_file")
    if state not in ("locked", "absent") and options["lock"]:
        raise _conda_env.RefusedError(
            f"lock is for state locked, and state is {state}: set state to locked, or leave lock out"
        )
    if not re.fullmatch(r"0?[0-7]{1,3}", options["umask"]):
        raise _conda_env.RefusedError(f'umask is {options["umask"]!r}: give an octal number in quotes, as "0022"')
    for channel in options["channels"] or ():
        if not channel.strip() or re.search(r"\s", channel) or channel.startswith("-"):
            raise _conda_env.RefusedError(
                f"channels: {without_secrets(channel)!r} is no channel: give a name or an address"
            )
    if not re.fullmatch(r"driver|none|\d+(\.\d+)+", options["cuda"]):
        raise _conda_env.RefusedError(
            f'cuda is {options["cuda"]!r}: give a version such as "12.9" in quotes, driver, or none'
        )
    if options["lock_timeout"] < 0:
        raise _conda_env.RefusedError(f"lock_timeout is {options['lock_timeout']}: give a number of seconds, 0 or more")


def result_of(outcome: _conda_env.Outcome, prefix: str, *, check: bool) -> dict[str, t.Any]:
    """What the module returns."""
    before = [one.package for one in outcome.before.packages]
    difference = _conda_meta.difference(before, outcome.after)
    gone = sorted(set(outcome.pip_before) - set(outcome.pip_after))
    come = sorted(set(outcome.pip_after) - set(outcome.pip_before))
    old = {**difference.removed, **{name: pair[0] for name, pair in difference.changed.items()}}
    new = {**difference.added, **{name: pair[1] for name, pair in difference.changed.items()}}
    repaired = [f"{one.path} is {one.kind}" for one in outcome.repaired]
    repaired += [f"{_conda_meta.META}/{name}: {why}" for name, why in outcome.damaged]
    return {
        "changed": outcome.changed,
        "prefix": prefix,
        "packages": [
            {
                "name": one.name,
                "version": one.version,
                "build": one.build,
                "channel": _conda_env.without_credentials_in(one.channel),
            }
            for one in sorted(outcome.after, key=lambda one: one.name)
        ],
        "lock": [] if check and outcome.changed else _conda_env.lock_lines(outcome.after),
        "pip_packages": list(outcome.pip_after),
        "added": difference.added,
        "removed": difference.removed,
        "updated": {name: list(pair) for name, pair in difference.changed.items()},
        "repaired": repaired,
        "recovered": outcome.recovered,
        "diff": {
            "before_header": prefix,
            "after_header": prefix,
            "before": _shown(old, gone, repaired),
            "after": _shown(new, come, []),
        },
    }


def _shown(packages: t.Mapping[str, str], pip: t.Sequence[str], repaired: t.Sequence[str]) -> str:
    lines = [f"{name} {packages[name]}" for name in sorted(packages)] + [f"pip {text}" for text in pip]
    return "".join(f"{line}\n" for line in [*lines, *repaired])


def act(module: AnsibleModule, log: TransactionLog) -> dict[str, t.Any]:
    """Do what is asked for. Raises RefusedError, ToolError, PlaceError, PackageError, OSError."""
    options = module.params
    if module.check_mode and options["state"] == "locked" and options["lock"] == [] and options["prefix"]:
        module.warn("The lock is empty, as that of a host where check mode has made none: nothing can be said of it.")
        current = _conda_meta.read(os.path.realpath(options["prefix"]))
        unchanged = _conda_env.Outcome(False, current, tuple(one.package for one in current.packages))
        return {**result_of(unchanged, options["prefix"], check=True), "tool": ""}
    refuse_options(options)
    wish = wish_of(options, options["prefix"] or "")
    os.umask(0o022)  # for directories above the environment

    def say(line: str) -> None:
        if not module.check_mode:
            with contextlib.suppress(OSError):  # a log that can't be written is no reason not to repair
                log.say(without_secrets(line))

    with _conda_host.Machine(
        lambda: settings_of(options), options["executable"], wish.prefix, options["pip_arguments"], say,
        lock_timeout=options["lock_timeout"], check=module.check_mode,
    ) as host:  # fmt: skip
        prefix = wish.prefix.rstrip("/") or os.path.join(host.directories().environments[0], options["name"])
        only_look = module.check_mode
        if not only_look:
            try:
                host.hold(prefix)
            except OSError as error:
                if error.errno == errno.ENOSPC and options["state"] != "absent":
                    raise
                only_look = error.errno != errno.ENOSPC
        os.umask(int(options["umask"], 8))
        if options["state"] == "absent":
            outcome = _conda_env.absent(prefix, host, frozen=options["frozen"], check=only_look)
        else:
            outcome = _conda_env.converge(replace(wish, prefix=prefix), host, check=only_look)
        if only_look and not module.check_mode and outcome.changed:
            raise ToolError("permission", f"{os.path.dirname(prefix)} can't be written by user {os.geteuid()}")
        tool = str(host.tool) if host.tool else ""
        return {**result_of(outcome, prefix, check=module.check_mode), "tool": tool}


def main() -> None:
    """Read the parameters, change, and return."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "latest", "locked", "absent"], "default": "present"},
            "prefix": {"type": "path"},
            "name": {"type": "str"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "channels": {"type": "list", "elements": "str"},
            "pip": {"type": "list", "elements": "str", "default": []},
            "pip_arguments": {"type": "list", "elements": "str", "default": []},
            "environment_file": {"type": "path"},
            "lock": {"type": "list", "elements": "str"},
            "lock_file": {"type": "path"},
            "exact": {"type": "bool", "default": False},
            "verify": {"type": "bool", "default": False},
            "atomic": {"type": "bool", "default": False},
            "frozen": {"type": "bool"},
            "owner": {"type": "str"},
            "group": {"type": "str"},
            "umask": {"type": "str", "default": "0022"},
            "cuda": {"type": "str", "default": "driver"},
            "condarc": {"type": "dict", "default": {}},
            "offline": {"type": "bool", "default": False},
            "executable": {"type": "str"},
            "lock_timeout": {"type": "int", "default": 3600},
            "log": {"type": "path"},
        },
        required_one_of=[("prefix", "name")],
        mutually_exclusive=[("prefix", "name")],
        supports_check_mode=True,
    )
    options = module.params
    for text in [*(options["channels"] or ()), *options["pip"], *options["pip_arguments"], *(options["lock"] or ())]:
        module.no_log_values.update(_conda_tool.secrets(text))
    module.no_log_values.update(_conda_tool.secrets(str(options["condarc"])))
    log = options["log"] or (ROOT_LOG if os.geteuid() == 0 else str(Path.home() / USER_LOG))
    kind, message, reason = "place", "", ""
    try:
        module.exit_json(**act(module, TransactionLog(log)), log=log)
    except _conda_env.RefusedError as error:
        kind, message, reason = error.kind or "place", str(error), str(error)
    except ToolError as error:
        kind, message, reason = error.kind, str(error), error.reason
    except PackageError as error:
        kind, message, reason = error.kind, error.message, error.message
    except PlaceError as error:
        message = reason = str(error)
    except OSError as error:
        kind = "permission" if isinstance(error, PermissionError) else "disk"
        message = reason = condensed(f"{error.filename or options['prefix']}: {error.strerror}")
    where = options["prefix"] or options["name"] or ""
    module.fail_json(
        msg=f"{where}: {message}" if where not in message else message,
        prefix=where,
        log=log,
        failure={"kind": kind, "reason": reason},
    )


if __name__ == "__main__":
    main()
