# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What role tljh adds to the hub, as hub.json in the directory cudahub says."""
# ruff: noqa: F821 (JupyterHub brings c)
# pylint: disable=undefined-variable

from __future__ import annotations

import json
from pathlib import Path

from tljh.config import INSTALL_PREFIX, USER_ENV_PREFIX

folder = Path(INSTALL_PREFIX, "cudahub")
settings = json.loads((folder / "hub.json").read_text(encoding="utf-8"))

# The role's proof works as this service, which can do nothing to anybody but the user of the proof.
user = "cudahub-check"
c.JupyterHub.services.append(
    {"name": "cudahub-proof", "api_token": (folder / "token").read_text(encoding="utf-8").strip()}
)
scopes = [f"{scope}!user={user}" for scope in ("admin:users", "admin:servers", "tokens", "access:servers")]
c.JupyterHub.load_roles.append({"name": "cudahub-proof", "services": ["cudahub-proof"], "scopes": scopes})

# Notebooks and terminals find the same programs and the same CUDA.
paths = [f"{USER_ENV_PREFIX}/bin"]
cuda = Path(settings["cuda_home"])
if cuda.is_dir():
    paths.append(f"{cuda}/bin")
    c.SystemdSpawner.extra_paths.append(f"{cuda}/bin")
    c.Spawner.environment.update({"CUDA_HOME": str(cuda), "LD_LIBRARY_PATH": f"{cuda}/lib64"})
c.Spawner.environment.update({"CUDAHUB_PATH": ":".join(paths)})

# Where many come at once, or others compute, a server takes its time.
c.Spawner.setdefault("start_timeout", 180)
c.Spawner.setdefault("http_timeout", 120)

if settings["shared_data"]:
    # A server starts without a disk that is away.
    c.SystemdSpawner.readonly_paths = [f"-{settings['shared_data']}"]
if settings["home"]:
    # With the rights of the user; a server starts without it, too.
    command = f"-/usr/bin/python3 -I {folder}/home.py {folder}/notebooks {settings['shared_data']}"
    c.SystemdSpawner.unit_extra_properties.update({"ExecStartPre": command.strip()})
