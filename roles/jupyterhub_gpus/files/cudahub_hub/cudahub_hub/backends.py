# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which servers really run, and the GPUs that they can open: asked of systemd, Docker, or the kernel."""

from __future__ import annotations

import errno
import json
import logging
import os
import pwd
import re
import subprocess
import time
import typing as t
from functools import partial
from pathlib import Path

from .allocator import Observation, Server
from .settings import ConfigurationError

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import docker

    from .allocator import Lease
    from .inventory import Inventory

SERVER_LABEL = "cudahub.server"
GPUS_LABEL = "cudahub.gpus"
SERVER_FIELD = "CUDAHUB_SERVER"
LEASE_VARIABLE = "CUDAHUB_LEASE"
TIMEOUT_S = 30

_CLOCK_SLACK_S = 2
_EXEC_S = 1.0

_log = logging.getLogger(__name__)

# No escaped text has "--" in it or "-" at an end, so parts that are joined by "--" can't be taken for one another.
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9._-]|^-|-$|(?<=-)-|_(?=x)")
_ESCAPED = re.compile(r"_x([0-9a-f]+)_")


def escaped(text: str) -> str:
    """A text in letters that names of units and labels may have; different texts stay different."""
    return _TO_ESCAPE.sub(lambda match: f"_x{ord(match[0]):x}_", text)


def mark_of(server: Server) -> str:
    """How a unit or a container says whose it is."""
    return f"{escaped(server.user)}/{escaped(server.name)}"


def server_of(mark: str) -> Server:
    """Whose a unit or a container with this mark is."""
    user, _unused, name = (_ESCAPED.sub(lambda match: chr(int(match[1], 16)), part) for part in mark.partition("/"))
    return Server(user, name)


class Backend(t.Protocol):
    """What knows the servers that run."""

    def observe(self, leases: Iterable[Lease], inventory: Inventory) -> Observation:
        """The servers that run now; incomplete if that can't be told."""


def backend_of(kind: str, state: Callable[[], Path], docker_client: str) -> Backend:
    """The backend for servers of a kind; `DockerBackend` says what the other arguments are."""
    kinds: dict[str, Callable[[], Backend]] = {
        "systemd": SystemdBackend,
        "docker": partial(DockerBackend, state, docker_client),
        "process": ProcessBackend,
    }
    if kind not in kinds:
        raise ConfigurationError(f"There is no backend {kind!r}; choose one of {', '.join(kinds)}")
    return kinds[kind]()


class SystemdBackend:
    """Units that carry the mark of `SystemdGPUMixin`."""

    _PROPERTIES = "Id,ActiveState,ControlGroup,DevicePolicy,DeviceAllow,LogExtraFields"

    def observe(self, leases: Iterable[Lease], inventory: Inventory) -> Observation:  # noqa: ARG002
        """The servers whose units run or have processes left, by `systemctl show`."""
        command = ["systemctl", "show", "--no-pager", f"--property={self._PROPERTIES}", "*.service"]
        try:
            shown = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                env={**os.environ, "LC_ALL": "C"},
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("systemd does not say which servers run: %s", error)
            return _nothing_known()
        units = [_properties(block) for block in shown.split("\n\n") if block.strip()]
        alive: dict[Server, tuple[str, ...] | None] = {}
        for unit in units:
            mark = re.search(rf"\b{SERVER_FIELD}=(\S+)", " ".join(unit.get("LogExtraFields", ())))
            if mark and _unit_runs(unit):
                _add(alive, server_of(mark[1]), _openable(unit, inventory))
        # A host that runs a hub has services; none at all is no answer.
        return Observation(alive=alive, unknown=frozenset(), complete=bool(units))


def _properties(block: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in block.splitlines():
        name, _unused, value = line.partition("=")
        if value:
            found.setdefault(name, []).append(value)
    return found


def _unit_runs(unit: Mapping[str, list[str]]) -> bool:
    """A unit that is stopped still has its control group while a process in it can't be killed."""
    return unit.get("ActiveState") not in (["inactive"], ["failed"]) or "ControlGroup" in unit


def _openable(unit: Mapping[str, list[str]], inventory: Inventory) -> tuple[str, ...] | None:
    """The units of the inventory all of whose nodes a systemd unit may open; None: systemd does not restrict it."""
    allowed = {line.split()[0] for line in unit.get("DeviceAllow", ())}
    if unit.get("DevicePolicy") not in (["closed"], ["strict"]) and not allowed:
        return None
    return tuple(one.uuid for one in inventory.units if one.nodes and allowed.issuperset(one.nodes))


def _nothing_known() -> Observation:
    return Observation(alive={}, unknown=frozenset(), complete=False)


def _add(alive: dict[Server, tuple[str, ...] | None], server: Server, gpus: tuple[str, ...] | None) -> None:
    """Enters a server; of a server that is there twice, everything that either can open."""
    before = alive.get(server, ())
    alive[server] = None if gpus is None or before is None else tuple(dict.fromkeys(before + gpus))


def docker_client_of(tls_config: Mapping[str, t.Any], client_kwargs: Mapping[str, t.Any]) -> str:
    """How DockerSpawner makes its client, as text that the hub's service can be given."""
    try:
        return json.dumps({"tls_config": tls_config, "client_kwargs": client_kwargs})
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            "The service gpus has to ask the same Docker as DockerSpawner, but can't be told what is in "
            f"c.DockerSpawner.client_kwargs or tls_config ({error}). "
            "Write text, numbers and lists there, and certificates as paths in c.DockerSpawner.tls_config"
        ) from error


class DockerBackend:
    """Containers that carry the labels of `DockerGPUMixin`.

    Hub and service are to ask the same Docker engine. The hub notes which one starts its servers, and what another
    engine says is not believed.
    """

    _RUNNING = ("running", "paused", "restarting")

    def __init__(self, state: Callable[[], Path], docker_client: str) -> None:
        """Asks by a client as `docker_client_of` describes it; hub and service share the directory `state`.

        Where that is, may be known later: settings that are wrong keep no hub from starting.
        """
        self._state = state
        self._arguments = json.loads(docker_client)
        self._warned_of: tuple[str, str] | None = None

    def starts_by(self, engine: str) -> None:
        """Notes the ID of the engine that starts the hub's servers from now on."""
        before = self._noted()
        if engine == before:
            return
        if before:
            _log.warning(
                "Servers are started by the Docker engine %s now, earlier by %s. Stop the containers that may still "
                "run there: their GPUs are given to others.",
                engine,
                before,
            )
        self._note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._note.write_text(engine)

    @property
    def _note(self) -> Path:
        return self._state() / "docker-engine"

    def _noted(self) -> str:
        try:
            return self._note.read_text()
        except FileNotFoundError:
            return ""

    def _client(self) -> docker.APIClient:
        """A client as DockerSpawner makes its own."""
        from docker import APIClient
        from docker.tls import TLSConfig
        from docker.utils import kwargs_from_env

        tls = self._arguments["tls_config"]
        options = {
            "version": "auto",
            **({"tls": TLSConfig(**tls)} if tls else {}),
            **kwargs_from_env(),
            **self._arguments["client_kwargs"],
            "timeout": TIMEOUT_S,
        }
        return APIClient(**options)

    def observe(self, leases: Iterable[Lease], inventory: Inventory) -> Observation:  # noqa: ARG002
        """The servers whose containers run."""
        from docker.errors import DockerException

        try:
            client = self._client()
            try:
                asked = client.info()["ID"]
                containers = client.containers(all=True, filters={"label": [SERVER_LABEL]})
            finally:
                client.close()
            noted = self._noted()
        except (OSError, DockerException) as error:
            _log.warning("Docker does not say which servers run: %s", error)
            return _nothing_known()
        if noted and noted != asked:
            if self._warned_of != (noted, asked):
                _log.warning(
                    "The Docker engine %s starts the hub's servers, but %s answers when it is asked which of them run, "
                    "which is not believed and frees no GPU. Set c.DockerSpawner.client_kwargs or the hub's "
                    "DOCKER_HOST above the call of cudahub_hub.hub.configure, and nowhere else.",
                    noted,
                    asked,
                )
            self._warned_of = (noted, asked)
            return _nothing_known()
        alive: dict[Server, tuple[str, ...] | None] = {}
        for container in containers:
            if container["State"] in self._RUNNING:
                labels = container["Labels"]
                gpus = tuple(filter(None, labels.get(GPUS_LABEL, "").split(",")))
                _add(alive, server_of(labels[SERVER_LABEL]), gpus)
        # As long as the hub has started no server, nobody knows whether this is its engine.
        return Observation(alive=alive, unknown=frozenset(), complete=bool(noted))


class ProcessBackend:
    """Processes that have `CUDAHUB_LEASE` in their environment, so a server's kernels too.

    Everybody can give a process of their own any environment, so it counts only where the process is its server's
    user's, or the hub's.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Looks for processes in this directory."""
        self._proc = proc

    def observe(self, leases: Iterable[Lease], inventory: Inventory) -> Observation:
        """The servers with a process that lives."""
        holders = {lease.token: lease for lease in leases}
        known = {unit.uuid for unit in inventory.units}
        alive: dict[Server, tuple[str, ...] | None] = {}
        unknown: set[Server] = set()
        deadline = time.monotonic() + _EXEC_S
        try:
            for process in self._proc.iterdir():
                if not process.name.isdecimal():
                    continue
                try:
                    environment = _environment(process, deadline)
                except (FileNotFoundError, ProcessLookupError):
                    continue
                except (PermissionError, TimeoutError) as error:
                    unknown |= self._perhaps(process, error, holders.values())
                    continue
                token = environment.get(LEASE_VARIABLE)
                if not token:
                    continue
                try:
                    uid = _real_uid(process)
                except (FileNotFoundError, ProcessLookupError):
                    continue
                user = environment.get("JUPYTERHUB_USER", "")
                if token in holders:
                    if uid in (os.geteuid(), _account(holders[token].server.user)):
                        _add(alive, holders[token].server, holders[token].units)
                elif user and uid == _uid_of_servers(user):
                    gpus = tuple(
                        uuid for uuid in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid in known
                    )
                    if gpus:  # else it may be of another hub
                        _add(alive, Server(user, environment.get("JUPYTERHUB_SERVER_NAME", "")), gpus)
        except OSError as error:
            _log.warning("The kernel does not say which servers run: %s", error)
            return _nothing_known()
        return Observation(alive=alive, unknown=frozenset(unknown - alive.keys()), complete=True)

    def _perhaps(self, process: Path, error: OSError, leases: Iterable[Lease]) -> set[Server]:
        """The servers that a process of which nothing can be read may belong to: not those leased after it began."""
        if os.geteuid() != 0 and isinstance(error, PermissionError):
            return set()  # it belongs to another user, and a hub that is not root starts no servers of others
        try:
            uid = _real_uid(process)
            ticks = int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        except (FileNotFoundError, ProcessLookupError):
            return set()
        boot = next(
            int(line.split()[1]) for line in (self._proc / "stat").read_text().splitlines() if line.startswith("btime ")
        )
        began = boot + ticks / os.sysconf("SC_CLK_TCK")
        return {
            lease.server
            for lease in leases
            if began > lease.since - _CLOCK_SLACK_S and uid in (0, os.geteuid(), _account(lease.server.user))
        }


def _environment(process: Path, deadline: float) -> dict[str, str]:
    """The environment of a process, of which the kernel shows nothing or a part while it becomes another program."""
    text = (process / "environ").read_bytes()
    while not text.endswith(b"\0"):
        place = _place_of_environment(process)
        text = (process / "environ").read_bytes()
        if place is None or (int(place) and place == _place_of_environment(process)):
            break
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.001)
    entries = text.decode(errors="replace").split("\0")
    return {name: value for name, _unused, value in (entry.partition("=") for entry in entries)}


def _place_of_environment(process: Path) -> str | None:
    """Where in its memory a process's environment ends, 0 until all is there; None: it runs no program (any more)."""
    try:
        (process / "exe").readlink()
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # While the kernel measures the environment, it ends where it starts; where the code starts is noted afterwards.
    return fields[48] if int(fields[23]) else "0"


def _real_uid(process: Path) -> int:
    """Who started a process; the owner of its directory may be root instead."""
    return int(re.findall(r"^Uid:\s+(\d+)", (process / "status").read_text(errors="replace"), re.MULTILINE)[0])


def _account(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None


def _uid_of_servers(user: str) -> int:
    """As whom a user's servers run: only a hub that is root can start them as somebody else."""
    hub = os.geteuid()
    account = None if hub else _account(user)
    return hub if account is None else account
