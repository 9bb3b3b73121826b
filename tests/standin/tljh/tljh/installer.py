# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The installer: python3 -m tljh.installer."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import requests

from tljh import config, traefik

HERE = Path(__file__).parent
LOG = Path(config.INSTALL_PREFIX, "installer.log")

HUB_UNIT = """\
[Unit]
Requires=traefik.service
After=traefik.service

[Service]
User=root
Restart=always
WorkingDirectory={prefix}/state
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
Environment=TLJH_INSTALL_PREFIX={prefix}
Environment=PATH={prefix}/hub/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart={python} -m jupyterhub -f {config} --upgrade-db

[Install]
WantedBy=multi-user.target
"""
PROXY_UNIT = """\
[Unit]
After=network.target

[Service]
User=root
Restart=always
ProtectHome=yes
ProtectSystem=strict
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ReadWritePaths={prefix}/state/rules
ReadWritePaths={prefix}/state/acme.json
WorkingDirectory={prefix}/state
ExecStart={prefix}/hub/bin/traefik -c {prefix}/state/traefik.toml

[Install]
WantedBy=multi-user.target
"""


def run(*command: str) -> str:
    """Run a command; what it prints is in the log."""
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"Running {' '.join(command)}\n")
        log.flush()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=True)
        log.write(done.stdout)
    return done.stdout


def pip(prefix: str, *arguments: str) -> None:
    """Install with the pip of an environment."""
    run(os.path.join(prefix, "bin", "python"), "-m", "pip", "install", "--upgrade", *arguments)


def main() -> None:
    """Install, and start the hub."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--admin", nargs="*", action="append", default=[])
    parser.add_argument("--user-requirements-txt-url")
    parser.add_argument("--plugin", nargs="*", default=[])
    options = parser.parse_args()
    LOG.touch(mode=0o600)
    if options.plugin:
        pip(config.HUB_ENV_PREFIX, *options.plugin)
    for folder in (config.CONFIG_DIR, f"{config.CONFIG_DIR}/jupyterhub_config.d", config.STATE_DIR):
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    found = config.read()
    admins = [name for names in options.admin for name in names]
    if admins:
        found.setdefault("users", {})["admin"] = admins
    config.write(found)
    for group in ("jupyterhub-admins", "jupyterhub-users"):
        run("groupadd", "--force", group)
    Path("/etc/sudoers.d/jupyterhub-admins").write_text(
        "%jupyterhub-admins ALL = (ALL) NOPASSWD: ALL\n", encoding="utf-8"
    )

    listed = json.loads(run(f"{config.USER_ENV_PREFIX}/bin/conda", "list", "--json"))
    versions = {package["name"]: package["version"] for package in listed}
    again = [f"{name}=={versions[name]}" for name in ("conda", "mamba")]
    mamba = [f"{config.USER_ENV_PREFIX}/bin/mamba", "install", "--yes", "--force-reinstall", "-c", "conda-forge"]
    run(*mamba, "--prefix", config.USER_ENV_PREFIX, *again)
    requirements = HERE / "requirements-hub-env.txt"
    pip(config.USER_ENV_PREFIX, requirements.read_text(encoding="utf-8").splitlines()[0])
    if options.user_requirements_txt_url:
        pip(config.USER_ENV_PREFIX, "--requirement", options.user_requirements_txt_url)
    pip(config.HUB_ENV_PREFIX, "--requirement", str(requirements))

    traefik.ensure_traefik_binary(config.HUB_ENV_PREFIX)
    secret = Path(config.STATE_DIR, "traefik-api.secret")
    if not secret.exists():
        secret.write_text(secrets.token_hex(32), encoding="utf-8")
    traefik.ensure_traefik_config(config.STATE_DIR)
    places = {"prefix": config.INSTALL_PREFIX, "python": sys.executable, "config": HERE / "jupyterhub_config.py"}
    for name, unit in (("jupyterhub", HUB_UNIT), ("traefik", PROXY_UNIT)):
        Path(f"/etc/systemd/system/{name}.service").write_text(unit.format(**places), encoding="utf-8")
    run("systemctl", "daemon-reload")
    for name in ("jupyterhub", "traefik"):
        run("systemctl", "restart", name)
        run("systemctl", "enable", name)
    for _attempt in range(120):
        try:
            requests.get("http://127.0.0.1", verify=False, timeout=10)  # noqa: S501 (as the real one does)
            break
        except requests.ConnectionError:
            time.sleep(1)
    else:
        sys.exit("the hub did not start")
    command = Path("/usr/bin/tljh-config")
    if not command.is_symlink():
        command.symlink_to(f"{config.HUB_ENV_PREFIX}/bin/tljh-config")


if __name__ == "__main__":
    main()
