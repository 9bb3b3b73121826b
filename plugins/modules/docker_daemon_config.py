#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_daemon_config
short_description: Merge settings into Docker's daemon.json
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Puts settings into the configuration file of a Docker engine, and says what the engine needs to heed them. It
    reloads and restarts nothing itself.
  - All else in the file stays, settings that dockerd does not know included.
  - The new text is shown to C(dockerd --validate) before it takes the place of the old one, in check mode as well.
    What dockerd refuses is not written.
options:
  config:
    description:
      - Settings, as they are in C(daemon.json). Objects are merged into those that are there, at any depth. Lists get
        the entries that they lack. Other values replace those that are there.
      - A value of another type than the one in the file is refused.
    type: dict
    default: {}
  state:
    description:
      - V(present) puts O(config) in.
      - V(absent) takes back what O(record) says that this module has put in, or O(config) where there is no record,
        and leaves what somebody else has changed since. A file that has nothing left is removed.
    type: str
    choices: [present, absent]
    default: present
  path:
    description: Path of the file. For a rootless engine, it is C(.config/docker/daemon.json) in the home of its user.
    type: path
    default: /etc/docker/daemon.json
  record:
    description:
      - Path of a file in which the module remembers what it has changed and what was there before. Without it,
        O(state=absent) can't bring values back.
    type: path
  dockerd:
    description:
      - The engine's program, which looks at the new text. Where there is none, or one older than Docker 23, the text is
        not looked at, see RV(validated).
    type: str
    default: dockerd
  backup:
    description:
      - Whether to keep a copy of the file beside it, with the time in its name, before it is changed.
      - The newest five of these copies stay.
    type: bool
    default: true
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Says what would change, and what dockerd has against it.
    support: full
  diff_mode:
    description: Shows the file before and after.
    support: full
notes:
  - A file that is no JSON is not changed. The message names line and column.
  - A file that has not to be changed keeps its form to the byte; else it keeps its order and its indentation, and loses
    a byte order mark.
"""

EXAMPLES = r"""
- name: The runtime of NVIDIA's toolkit, and devices by CDI
  cudahub.gpu.docker_daemon_config:
    config:
      runtimes:
        nvidia:
          path: nvidia-container-runtime
          args: []
      features:
        cdi: true
    record: /var/lib/cudahub/docker.json
  register: daemon

- name: Restart the engine where a reload is not enough
  ansible.builtin.systemd_service:
    name: docker.service
    state: "{{ daemon.needs }}ed"
  when: daemon.needs != 'nothing'

- name: Take it back
  cudahub.gpu.docker_daemon_config:
    record: /var/lib/cudahub/docker.json
    state: absent
"""

RETURN = r"""
config:
  description: All settings of the file, or those that it would have in check mode.
  returned: success
  type: dict
  sample: {features: {cdi: true}, log-driver: local}
needs:
  description: What the engine needs to heed the change, V(nothing), V(reload) (SIGHUP) or V(restart).
  returned: success
  type: str
  sample: restart
validated:
  description: Whether dockerd has looked at the new text.
  returned: success
  type: bool
  sample: true
backup_file:
  description: The copy of the file as it was.
  returned: when there was a file that was changed, and O(backup) is set
  type: str
  sample: /etc/docker/daemon.json.2026-03-01@12:00:00.123456.cudahub~
"""

import datetime as dt
import os
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _docker_daemon_config as daemon
from ansible_collections.cudahub.gpu.plugins.module_utils._docker_daemon_config import ConfigError


def read(path: str) -> str | None:
    """The text of a file, or none. Raises ConfigError, OSError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is no text in UTF-8: {error.reason} at byte {error.start}") from error


def written_beside(module: AnsibleModule, text: str, directory: str | None = None) -> str:
    """The path of a new file with a text."""
    handle, name = tempfile.mkstemp(dir=directory or module.tmpdir, prefix=".daemon-", suffix=".json")
    module.add_cleanup_file(name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def validated(module: AnsibleModule, text: str) -> bool:
    """Whether dockerd has looked at a text and has nothing against it. Raises ConfigError."""
    program = module.get_bin_path(module.params["dockerd"])
    if program is None:
        return False
    name = written_beside(module, text)
    rc, out, err = module.run_command([program, "--validate", "--config-file", name])
    if rc == 0:
        return True
    said = daemon.said_by_dockerd(f"{err}\n{out}").replace(name, module.params["path"])
    if "unknown flag: --validate" in said:
        return False
    raise ConfigError(f"was not changed, as dockerd would not start with it: {said}")


def write(module: AnsibleModule, target: str, text: str) -> None:
    """Replace a file by one with this text; a new one belongs to whom its directory belongs to. Raises OSError."""
    new = not os.path.exists(target)
    name = written_beside(module, text, os.path.dirname(target))
    if new:
        owner = os.stat(os.path.dirname(target))
        os.chmod(name, 0o644)
        if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(name, owner.st_uid, owner.st_gid)
        os.replace(name, target)
    else:
        module.atomic_move(name, target)


def kept(module: AnsibleModule, target: str) -> str:
    """The path of a copy of a file beside it; older ones than the newest few go. Raises OSError."""
    directory, name = os.path.split(target)
    copy = daemon.name_of_copy(name, dt.datetime.now(dt.timezone.utc))
    # Copied under another name: a disk that is full leaves no half of a copy.
    part = written_beside(module, "", directory)
    module.preserved_copy(target, part)
    os.replace(part, os.path.join(directory, copy))
    for old in daemon.superfluous_copies(name, os.listdir(directory)):
        os.unlink(os.path.join(directory, old))
    return os.path.join(directory, copy)


def planned(module: AnsibleModule, text: str, record: str | None) -> tuple[daemon.Outcome, daemon.Config]:
    """What the file is to say, and what it says. Raises ConfigError."""
    before = daemon.parse(text)
    try:
        changes = daemon.changes_of(record) if record is not None else ()
    except ConfigError as error:
        raise ConfigError(f"was not changed: {module.params['record']} {error}") from error
    if module.params["state"] == "present":
        return daemon.merge(before, module.params["config"], changes), before
    return daemon.take_back(before, changes if record is not None else daemon.given(module.params["config"])), before


def directory_of(path: str) -> None:
    """Make the directory of a file. Raises OSError."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        above = parent
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        owner = os.stat(above)
        made = parent
        os.makedirs(parent, 0o755)
        while made != above:
            if owner.st_uid != os.geteuid():
                os.chown(made, owner.st_uid, owner.st_gid)
            made = os.path.dirname(made)


def act(module: AnsibleModule) -> dict[str, t.Any]:
    """Do what is asked for. Raises ConfigError, OSError."""
    path, record_path, present = module.params["path"], module.params["record"], module.params["state"] == "present"
    if not os.path.isabs(path):
        raise ConfigError("is no absolute path: give one")
    target = os.path.realpath(path)
    old = read(target)
    record = read(record_path) if record_path else None
    outcome, before = planned(module, old or "", record)
    changed = outcome.config != before
    gone = not present and changed and not outcome.config
    text = daemon.render(outcome.config, old or "") if changed else old or ""
    checked = validated(module, text) if changed and not gone else False
    result: dict[str, t.Any] = {}
    new_record = daemon.record_of(outcome.changes) if outcome.changes else None
    # The record first: an interrupted run would leave a change that nobody takes back.
    if not module.check_mode and present and record_path and new_record is not None and new_record != record:
        directory_of(record_path)
        write(module, record_path, new_record)
    if changed and not module.check_mode:
        if old is not None and module.params["backup"]:
            result["backup_file"] = kept(module, target)
        if gone:
            os.unlink(target)
        else:
            directory_of(target)
            write(module, target, text)
    record_goes = not present and record is not None
    if record_goes and not module.check_mode:
        os.unlink(record_path)
    return {
        **result,
        "changed": changed or record_goes,
        "config": outcome.config,
        "needs": daemon.needs(before, outcome.config),
        "validated": checked,
        "diff": {"before_header": path, "after_header": path, "before": old or "", "after": "" if gone else text},
    }


def main() -> None:
    """Read the parameters, change, and return."""
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "dict", "default": {}},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
            "record": {"type": "path"},
            "dockerd": {"type": "str", "default": "dockerd"},
            "backup": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        result = act(module)
    except ConfigError as error:
        module.fail_json(msg=f"{module.params['path']} {error}")
    except OSError as error:
        path = module.params["path"]
        module.fail_json(msg=f"{path} was not changed: {error.filename or path}: {error.strerror}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
