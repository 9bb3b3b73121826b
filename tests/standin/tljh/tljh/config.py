# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where things are, what config.yaml says, and the command tljh-config."""

from __future__ import annotations

import argparse
import copy
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import requests
from ruamel.yaml import YAML

INSTALL_PREFIX = os.environ.get("TLJH_INSTALL_PREFIX", "/opt/tljh")
HUB_ENV_PREFIX = os.path.join(INSTALL_PREFIX, "hub")
USER_ENV_PREFIX = os.path.join(INSTALL_PREFIX, "user")
STATE_DIR = os.path.join(INSTALL_PREFIX, "state")
CONFIG_DIR = os.path.join(INSTALL_PREFIX, "config")
CONFIG_FILE = os.path.join(CONFIG_DIR, "config.yaml")

DEFAULTS: dict[str, Any] = {
    "auth": {
        "type": "firstuseauthenticator.FirstUseAuthenticator",
        "FirstUseAuthenticator": {"create_users": False},
    },
    "users": {"allowed": [], "banned": [], "admin": [], "extra_user_groups": {}},
    "limits": {"memory": None, "cpu": None},
    "http": {"address": "", "port": 80},
    "https": {
        "enabled": False,
        "address": "",
        "port": 443,
        "tls": {"cert": "", "key": ""},
        "letsencrypt": {"email": "", "domains": [], "staging": False},
    },
    "traefik_api": {"ip": "127.0.0.1", "port": 8099, "username": "api_admin", "password": ""},
    "user_environment": {"default_app": "jupyterlab"},
    "services": {
        "cull": {
            "enabled": True,
            "timeout": 600,
            "every": 60,
            "concurrency": 5,
            "users": False,
            "max_age": 0,
            "remove_named_servers": False,
        }
    },
}

yaml = YAML(typ="rt")


def read() -> Any:
    """What the file says."""
    try:
        return yaml.load(Path(CONFIG_FILE)) or {}
    except FileNotFoundError:
        return {}


def write(config: Any) -> None:
    """Write the file."""
    with open(CONFIG_FILE, "w", encoding="utf-8") as file:
        yaml.dump(config, file)


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One mapping over another."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def settings() -> dict[str, Any]:
    """What is in force, with the secret of the proxy."""
    found = over(copy.deepcopy(DEFAULTS), read())
    secret = Path(STATE_DIR, "traefik-api.secret")
    if secret.exists():
        found["traefik_api"]["password"] = secret.read_text(encoding="utf-8")
    return found


def value_of(text: str) -> Any:
    """A value from the command line."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"\d+", text) else text


def change(action: str, path: str, text: str | None) -> None:
    """Change one setting of the file."""
    config = read()
    *parents, last = path.split(".")
    section = config
    for name in parents:
        section = section.setdefault(name, {})
    if action == "unset":
        del section[last]
    elif action == "set":
        section[last] = value_of(str(text))
    elif action == "add-item":
        section.setdefault(last, []).append(value_of(str(text)))
    else:
        section[last].remove(value_of(str(text)))
    write(config)


def answers() -> bool:
    """Whether the hub is up."""
    http = settings()["http"]
    try:
        url = f"http://{http['address'] or '127.0.0.1'}:{http['port']}/hub/api"
        return requests.get(url, verify=False, timeout=10).status_code == 200  # noqa: S501 (as the real one does)
    except requests.RequestException:
        return False


def reload(component: str) -> None:
    """Restart the hub, and wait for it, or the proxy with what it reads written anew."""
    if component == "hub":
        subprocess.run(["systemctl", "restart", "jupyterhub"], check=True)
        while not answers():
            time.sleep(1)
    else:
        from tljh import traefik

        traefik.ensure_traefik_config(STATE_DIR)
        subprocess.run(["systemctl", "restart", "traefik"], check=True)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="tljh-config")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("show")
    for action in ("set", "unset", "add-item", "remove-item"):
        one = actions.add_parser(action)
        one.add_argument("path")
        if action != "unset":
            one.add_argument("value")
    actions.add_parser("reload").add_argument("component", choices=("hub", "proxy"), default="hub", nargs="?")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("tljh-config needs root")
    if options.action == "show":
        yaml.dump(read(), sys.stdout)
    elif options.action == "reload":
        reload(options.component)
    else:
        change(options.action, options.path, getattr(options, "value", None))


if __name__ == "__main__":
    main()
