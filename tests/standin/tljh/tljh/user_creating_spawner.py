# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server of a user of the system, who is made when it starts."""

from __future__ import annotations

import grp
import pwd
import subprocess
from typing import Any

from systemdspawner import SystemdSpawner
from traitlets import Dict, List, Unicode

from tljh.normalize import generate_system_username


def ensure_user(name: str) -> None:
    """Make a user with a home that others can't read."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--create-home", name], check=True)
        subprocess.run(["chmod", "o-rwx", pwd.getpwnam(name).pw_dir], check=True)


def set_member(name: str, group: str, wanted: bool) -> None:
    """Put a user into a group, or take them out."""
    if (name in grp.getgrnam(group).gr_mem) != wanted:
        subprocess.run(["gpasswd", "--add" if wanted else "--delete", name, group], check=True)


class UserCreatingSpawner(SystemdSpawner):
    """Makes the user first."""

    user_groups = Dict(key_trait=Unicode(), value_trait=List(Unicode()), config=True)

    def start(self) -> Any:
        name = generate_system_username(f"jupyter-{self.user.name}")
        self.username_template = name
        ensure_user(name)
        set_member(name, "jupyterhub-users", True)
        set_member(name, "jupyterhub-admins", self.user.admin)
        self.disable_user_sudo = not self.user.admin
        for group, users in self.user_groups.items():
            if self.user.name in users:
                set_member(name, group, True)
        return super().start()
