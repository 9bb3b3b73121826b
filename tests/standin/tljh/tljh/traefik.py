# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proxy: its version, the archive's checksums, and the files that it reads."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import toml

from tljh.config import settings

traefik_version = "3.1.4"
plat = {"x86_64": "linux_amd64", "aarch64": "linux_arm64"}.get(platform.machine())
# Of archives that the tests don't have: they say the checksum of the one that they make.
checksums = {"linux_amd64": "0" * 64, "linux_arm64": "0" * 64}


def ensure_traefik_binary(prefix: str) -> None:
    """Refuse to go on without it."""
    binary = os.path.join(prefix, "bin", "traefik")
    said = subprocess.run([binary, "version"], capture_output=True, text=True, check=True).stdout
    if f"Version: {traefik_version}" not in " ".join(said.split()):
        raise OSError(f"{binary} is another version: {said}")


def ensure_traefik_config(state: str) -> None:
    """Write what the proxy reads."""
    config = settings()
    http, https = config["http"], config["https"]
    entry_points = {
        "http": {"address": f"{http['address']}:{http['port']}"},
        "auth_api": {"address": f"localhost:{config['traefik_api']['port']}"},
    }
    dynamic = {}
    if https["enabled"]:
        if not https["tls"]["cert"] and not https["letsencrypt"]["email"]:
            raise ValueError("https needs a certificate, or letsencrypt")
        entry_points["https"] = {"address": f"{https['address']}:{https['port']}"}
        if https["tls"]["cert"]:
            files = {"certFile": https["tls"]["cert"], "keyFile": https["tls"]["key"]}
            dynamic = {"tls": {"stores": {"default": {"defaultCertificate": files}}}}
    rules = Path(state, "rules")
    for folder in (Path(state), rules):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    contents = {
        Path(state, "traefik.toml"): toml.dumps({"entryPoints": entry_points}),
        rules / "dynamic.toml": toml.dumps(dynamic),
        rules / "rules.toml": "",
        Path(state, "acme.json"): "",
    }
    for path, content in contents.items():
        path.write_text(content, encoding="utf-8")
        path.chmod(0o600)
