# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real runs of ansible-playbook, for tests of what Ansible makes of plugins, roles and playbooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.cudahub.gpu.plugins.plugin_utils import _table

# The collection that is tested, and the directory where Ansible finds it.
COLLECTION = Path(_table.__file__).parents[2]
COLLECTIONS = COLLECTION.parents[2]
# Variables of a host that is this machine.
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}

# A connection that is not called local, as the reboot of a local host is refused, and that says which host it is.
CONNECTION = """\
from ansible.plugins.connection.local import Connection as Local
DOCUMENTATION = '''
name: near
short_description: The local connection by another name
description: [The local connection by another name.]
options: {}
'''
class Connection(Local):
    transport = "near"
    def exec_command(self, cmd, in_data=None, sudoable=True):
        return super().exec_command(f"export HOST={self._play_context.remote_addr}; {cmd}", in_data, sudoable)
"""


def written(path: Path, variable: str) -> dict[str, Any]:
    """Return a task that writes a variable of all hosts into one file; a copy by each host would take much longer."""
    each = f"{{% set _ = found.update({{host: hostvars[host]['{variable}'] | default(none)}}) %}}"
    content = f"{{% set found = {{}} %}}{{% for host in groups.all %}}{each}{{% endfor %}}{{{{ found | to_json }}}}"
    copy = {"content": content, "dest": str(path)}
    return {"ansible.builtin.copy": copy, "delegate_to": "localhost", "run_once": True, "check_mode": False}


def run_playbook(
    folder: Path,
    inventory: Mapping[str, Any],
    playbook: str | Sequence[Mapping[str, Any]],
    *arguments: str,
    before: Sequence[str] = (),
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a playbook, given by its name or as plays, with a folder for all files; stdout has the errors, too.

    ``before`` is a command that runs the one that follows it.
    """
    (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    if not isinstance(playbook, str):
        (folder / "play.json").write_text(json.dumps(playbook), encoding="utf-8")
        playbook = "play.json"
    return subprocess.run(
        [*before, Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts.json", playbook, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_FORCE_COLOR": "false",
            "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_STDOUT_CALLBACK": "default",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
