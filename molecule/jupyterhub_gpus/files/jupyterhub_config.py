# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A hub that knows nothing of GPUs."""

from __future__ import annotations

from pathlib import Path

c = get_config()  # noqa: F821 (JupyterHub's)

c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{{ hub_token }}"  # noqa: S105 (of a host that lives for a test)
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"root"}
c.JupyterHub.spawner_class = "systemdspawner.SystemdSpawner"
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.concurrent_spawn_limit = 0
c.ConfigurableHTTPProxy.command = ["/opt/hub/proxy/node_modules/.bin/configurable-http-proxy"]
c.ConfigurableHTTPProxy.pid_file = "/run/jupyterhub-proxy.pid"
c.SystemdSpawner.cmd = ["/opt/hub/bin/server"]
c.Spawner.start_timeout = 120
c.Spawner.poll_interval = 2

c.JupyterHub.services = [{"name": "tests", "api_token": "{{ hub_token }}"}]
c.JupyterHub.load_roles = [
    {
        "name": "tests",
        "services": ["tests"],
        "scopes": ["admin:users", "admin:servers", "tokens", "access:servers", "access:services", "read:hub"],
    }
]

for path in sorted(Path("/etc/jupyterhub/jupyterhub_config.d").glob("*.py")):
    load_subconfig(str(path))  # noqa: F821
