# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of the hub: config.yaml, and then what is in jupyterhub_config.d."""
# ruff: noqa: F821 (JupyterHub brings c and load_subconfig)
# pylint: disable=undefined-variable

from __future__ import annotations

import glob
import os
import sys

from tljh.config import CONFIG_DIR, DEFAULTS, STATE_DIR, USER_ENV_PREFIX, settings
from tljh.user_creating_spawner import UserCreatingSpawner

found = settings()
c = get_config()  # type: ignore[name-defined]

c.JupyterHub.spawner_class = UserCreatingSpawner
c.JupyterHub.cleanup_servers = False
c.JupyterHub.hub_port = 15001
c.JupyterHub.proxy_class = "traefik_file"
c.TraefikProxy.should_start = False
c.TraefikProxy.traefik_api_username = found["traefik_api"]["username"]
c.TraefikProxy.traefik_api_password = found["traefik_api"]["password"]
c.TraefikProxy.traefik_entrypoint = "https" if found["https"]["enabled"] else "http"
c.TraefikFileProviderProxy.dynamic_config_file = os.path.join(STATE_DIR, "rules/rules.toml")

c.SystemdSpawner.extra_paths = [os.path.join(USER_ENV_PREFIX, "bin")]
c.SystemdSpawner.default_shell = "/bin/bash"
c.SystemdSpawner.unit_name_template = "jupyter-{USERNAME}"
c.SystemdSpawner.username_template = "jupyter-{USERNAME}"
c.Spawner.mem_limit = found["limits"]["memory"]
c.Spawner.cpu_limit = found["limits"]["cpu"]
c.Spawner.default_url = {"jupyterlab": "/lab", "classic": "/tree"}.get(found["user_environment"]["default_app"], "")

for name, section in found["auth"].items():
    if name == "type":
        c.JupyterHub.authenticator_class = section
    else:
        for key, value in section.items():
            if value is not None:
                setattr(c[name], key, value)
users = found["users"]
if not users["allowed"] and found["auth"]["type"] == DEFAULTS["auth"]["type"]:
    c.FirstUseAuthenticator.allow_all = True
c.Authenticator.allowed_users = set(users["allowed"])
c.Authenticator.blocked_users = set(users["banned"])
c.Authenticator.admin_users = set(users["admin"])
c.UserCreatingSpawner.user_groups = users["extra_user_groups"]

c.JupyterHub.services = []
cull = found["services"]["cull"]
if cull["enabled"]:
    arguments = [f"--timeout={cull['timeout']}", f"--cull-every={cull['every']}", f"--max-age={cull['max_age']}"]
    command = [sys.executable, "-m", "jupyterhub_idle_culler", *arguments]
    c.JupyterHub.services.append({"name": "cull-idle", "admin": True, "command": command})

for path in sorted(glob.glob(os.path.join(CONFIG_DIR, "jupyterhub_config.d", "*.py"))):
    load_subconfig(path)  # type: ignore[name-defined]
