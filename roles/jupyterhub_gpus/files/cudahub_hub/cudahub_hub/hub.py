# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Switches GPU sharing on in a jupyterhub_config.py."""

from __future__ import annotations

import os
import socket
import sys
import typing as t
from importlib.metadata import entry_points

from jupyterhub.spawner import LocalProcessSpawner, Spawner
from traitlets import TraitType
from traitlets.config.loader import LazyConfigValue
from traitlets.utils.importstring import import_item

from .backends import docker_client_of
from .settings import ConfigurationError
from .spawners import KEPT_CONTAINERS, DockerGPUMixin, GPUSpawnerMixin, gpu_spawner

if t.TYPE_CHECKING:
    from os import PathLike

    from traitlets.config import Config

SERVICE = "gpus"
SERVICE_SCOPES = ("read:users:name", "read:servers", "delete:servers", "tokens")
USER_SCOPES = ("self", f"access:services!service={SERVICE}")
DOCKER_VARIABLES = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "HOME")

_held: list[socket.socket] = []


def configure(
    c: Config,
    settings_path: str | PathLike[str],
    backend: t.Literal["systemd", "docker", "process"],
    spawner_class: type[Spawner] | str | None = None,
    proxy_url: str | None = None,
) -> type[GPUSpawnerMixin]:
    """Makes the hub's spawner give GPUs, and adds the service `gpus`; returns the spawner class.

    Lists that the configuration has are added to. Call this below everything else that sets the spawner class,
    services or roles.

    Args:
        c: The configuration.
        settings_path: The settings file that Ansible writes.
        backend: What runs the servers.
        spawner_class: The spawner class; by default the one that the configuration has.
        proxy_url: Where the service reaches users' servers; by default the hub's public URL, or 127.0.0.1:8000.

    Raises:
        ConfigurationError: The spawner class, its configuration, or the backend is wrong.
    """
    configured = c.JupyterHub.spawner_class if "spawner_class" in c.JupyterHub else None
    with_gpus = gpu_spawner(_resolved(spawner_class or configured or LocalProcessSpawner))
    if with_gpus.gpu_backend != backend:
        raise ConfigurationError(
            f"{with_gpus.__name__} runs its servers by {with_gpus.gpu_backend}, not by {backend}. "
            f"Set the backend to {with_gpus.gpu_backend}, or c.JupyterHub.spawner_class to another class"
        )
    environment = {"CUDAHUB_PROXY_URL": proxy_url} if proxy_url else {}
    if issubclass(with_gpus, DockerGPUMixin):
        environment |= _docker(c, with_gpus)
    c.JupyterHub.spawner_class = with_gpus
    c.GPUSpawnerMixin.gpu_settings = str(settings_path)
    services, roles = _list(c.JupyterHub, "services"), _list(c.JupyterHub, "load_roles")
    if any(service.get("name") == SERVICE for service in services):
        raise ConfigurationError(f"c.JupyterHub.services has a service {SERVICE} already. Give it another name")
    services.append(
        {
            "name": SERVICE,
            "display": True,
            "url": f"http://127.0.0.1:{_port_of_its_own()}",
            "command": [
                sys.executable,
                "-m",
                "cudahub_hub.service",
                "--settings",
                str(settings_path),
                "--backend",
                backend,
            ],
            "environment": environment,
            "oauth_no_confirm": True,
            # It lets admins release by their browser, and is good for nothing at the hub's API.
            "oauth_client_allowed_scopes": ["admin-ui"],
        }
    )
    roles.append(
        {
            "name": SERVICE,
            "description": "Watch the servers that hold GPUs, and stop those whose GPU is idle",
            "scopes": list(SERVICE_SCOPES),
            "services": [SERVICE],
        }
    )
    _everybody(roles)
    return with_gpus


def _port_of_its_own() -> int:
    """A port of 127.0.0.1 at which other users can't listen in the service's place, as long as this process runs.

    The kernel gives a port that is bound with SO_REUSEPORT again to processes of the same user only.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    port: int = held.getsockname()[1]
    return port


def _resolved(spawner_class: type[Spawner] | str) -> type[Spawner]:
    """A class that is given as such, by its dotted name, or by the short name that a package registers."""
    if not isinstance(spawner_class, str):
        return spawner_class
    for point in entry_points(group="jupyterhub.spawners", name=spawner_class.lower()):
        spawner: type[Spawner] = point.load()
        return spawner
    try:
        return t.cast("type[Spawner]", import_item(spawner_class))
    except ImportError as error:
        raise ConfigurationError(
            f"The spawner class {spawner_class} can't be loaded ({error}). Correct c.JupyterHub.spawner_class"
        ) from error


def _docker(c: Config, spawner_class: type[DockerGPUMixin]) -> dict[str, str]:
    """The environment by which the service asks the Docker that the spawner asks."""
    if not _configured(c, spawner_class, "remove"):
        raise ConfigurationError(KEPT_CONTAINERS)
    tls_config, client_kwargs = (_configured(c, spawner_class, name) for name in ("tls_config", "client_kwargs"))
    passed = {name: os.environ[name] for name in DOCKER_VARIABLES if name in os.environ}
    return {**passed, "CUDAHUB_DOCKER_CLIENT": docker_client_of(tls_config, client_kwargs)}


def _configured(c: Config, spawner_class: type[Spawner], name: str) -> t.Any:
    """The value that an option of a spawner will have."""
    value = getattr(spawner_class, name)
    if isinstance(value, TraitType):
        value = value.default()
    for section in spawner_class.section_names():
        if section in c and name in c[section]:
            given = c[section][name]
            value = given.get_value(value) if isinstance(given, LazyConfigValue) else given
    return value


def _list(section: Config, name: str) -> list[dict[str, t.Any]]:
    """A list of the configuration to add to, also where the configuration so far only says what to add to it."""
    value = section[name]
    if isinstance(value, LazyConfigValue):
        value = value.get_value([])
    section[name] = [*value]
    return t.cast("list[dict[str, t.Any]]", section[name])


def _everybody(roles: list[dict[str, t.Any]]) -> None:
    """Lets all users open the service's page."""
    for place, role in enumerate(roles):
        if role.get("name") == "user":
            roles[place] = {**role, "scopes": list(dict.fromkeys([*role.get("scopes", ["self"]), *USER_SCOPES[1:]]))}
            return
    roles.append({"name": "user", "scopes": list(USER_SCOPES)})
