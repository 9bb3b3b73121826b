# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Spawners whose servers get GPUs on lease, and can open no others."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from html import escape
from pathlib import Path

from jupyterhub import spawner as hub_spawner
from jupyterhub.spawner import LocalProcessSpawner, Spawner
from jupyterhub.utils import maybe_future, url_escape_path, url_path_join
from tornado import web
from traitlets import CaselessStrEnum, Unicode
from traitlets.config import LoggingConfigurable

from . import form, refusal
from .allocator import Allocator, Request, Server
from .backends import (
    GPUS_LABEL,
    LEASE_VARIABLE,
    SERVER_FIELD,
    SERVER_LABEL,
    backend_of,
    docker_client_of,
    escaped,
    mark_of,
)
from .refusal import Refused
from .settings import ConfigurationError

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .allocator import Grant
    from .backends import Backend, DockerBackend

__all__ = ["DockerGPUMixin", "GPUSpawnerMixin", "ProcessGPUMixin", "SystemdGPUMixin", "gpu_spawner"]

T = t.TypeVar("T")

KEPT_CONTAINERS = (
    "Servers with GPUs need c.DockerSpawner.remove = True, as a container that is kept would come back with its former "
    "GPUs. Files outside of volumes are gone with their container, so look first where your users' files are"
)

AGAIN_S = 30.0

_log = logging.getLogger(__name__)

_SpawnException: type[web.HTTPError] | None = getattr(hub_spawner, "SpawnException", None)  # JupyterHub 6 has it


class Refusal(_SpawnException or web.HTTPError):  # type: ignore[misc]
    """A refusal as JupyterHub shows it: the sentence, and on pages without the form a link back to it."""

    def __init__(self, message: str, status: int, reason: str, form_url: str) -> None:
        if _SpawnException:
            super().__init__(message, reason=reason, status_code=status)
        else:
            super().__init__(status, message)
        self.jupyterhub_message = message
        self.jupyterhub_html_message = f'{escape(message)} <a href="{escape(form_url)}">Back to the server options</a>'

    def __str__(self) -> str:
        return self.jupyterhub_message


class Sharing:
    """What all servers of a hub share: the leases, what really runs, and threads to ask both in."""

    _MAY_BE_STALE = ("none_free", "limit", "stopping")

    def __init__(self, settings_path: str, backend: str, docker_client: str) -> None:
        self.allocator = Allocator(Path(settings_path))
        self.backend: Backend = backend_of(backend, self.allocator.state_directory, docker_client)
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="gpus")
        self._lock = threading.Lock()
        self._reconciled = float("-inf")
        self._compared = False
        self._owed: set[asyncio.Task[None]] = set()

    async def call(self, function: Callable[..., T], *args: t.Any) -> T:
        """Calls a function that may wait for a file or a program, without keeping the hub waiting."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args))

    async def note(self, function: Callable[..., t.Any], *args: t.Any) -> None:
        """Calls a function that notes what has happened; where that can't be written now, again until it is.

        Nobody else frees what a server held that this hub has begun to start.
        """
        try:
            await self.call(function, *args)
        except ConfigurationError as error:
            _log.error("%s. This is tried again until it works.", error)
            task = asyncio.create_task(self._insist(function, *args))
            self._owed.add(task)
            task.add_done_callback(self._owed.discard)

    async def _insist(self, function: Callable[..., t.Any], *args: t.Any) -> None:
        while True:
            await asyncio.sleep(AGAIN_S)
            with contextlib.suppress(ConfigurationError):
                await self.call(function, *args)
                return

    def take(self, request: Request) -> Grant:
        """Leases GPUs to a server that is about to start.

        Leases of servers that died unseen don't stand in the way. Before the first of a hub, which may have lost its
        database, servers that hold GPUs without a lease get one.
        """
        if request.count and not self._compared:
            self._compare()
        for lease in self.allocator.leases():
            if lease.server == request.server:
                self.release(lease.server, lease.token)
        try:
            return self.allocator.acquire(request)
        except Refused as refused:
            if refused.reason not in self._MAY_BE_STALE:
                raise
            self._reconcile_after(time.monotonic())
            return self.allocator.acquire(request)

    def _reconcile_after(self, moment: float) -> None:
        """Reconciles, unless another thread began to after the moment."""
        with self._lock:
            if self._reconciled < moment:
                self._reconciled = time.monotonic()
                self._reconcile()

    def _compare(self) -> None:
        """Reconciles, unless another thread has."""
        with self._lock:
            if not self._compared:
                self._reconcile()
                self._compared = True

    def _reconcile(self) -> None:
        self.allocator.reconcile(lambda leases: self.backend.observe(leases, self.allocator.inventory))

    def release(self, server: Server, token: str | None = None) -> None:
        """Frees a server's lease if the server is known to be gone, else leaves that to the reconciler."""
        for lease in self.allocator.leases():
            if lease.server != server or token not in (None, lease.token):
                continue
            seen = self.backend.observe((lease,), self.allocator.inventory)
            if seen.complete and server not in seen.alive and server not in seen.unknown:
                self.allocator.gone(server, lease.token)
            else:
                self.allocator.leaving(server, lease.token)


sharing = cache(Sharing)


if t.TYPE_CHECKING:

    class _Base(Spawner):  # type: ignore[misc]
        """What the mixins set of the spawners that they are mixed into."""

        consecutive_failure_limit: int
        unit_name: str
        unit_extra_properties: dict[str, t.Any]
        isolate_devices: bool
        extra_host_config: t.Any
        extra_create_kwargs: t.Any

else:
    _Base = LoggingConfigurable  # Spawner wants its subclasses to define start, stop and poll


class GPUSpawnerMixin(_Base):
    """Leases GPUs to a server before it starts, and gives them back when it is gone."""

    gpu_settings = Unicode(
        "/etc/cudahub/jupyterhub_gpus.json", help="The settings by which GPUs are given, as Ansible writes them."
    ).tag(config=True)

    gpu_backend: t.ClassVar[str]

    gpu_grant: Grant | None = None
    """What this server was given; for hooks that charge for it."""

    @property
    def gpu_docker_client(self) -> str:
        """How to ask Docker, where that runs the servers."""
        return ""

    @property
    def gpu_sharing(self) -> Sharing:
        """What all servers of this hub share."""
        return sharing(self.gpu_settings, self.gpu_backend, self.gpu_docker_client)

    @property
    def gpu_server(self) -> Server:
        """This server as the leases know it."""
        return Server(self.user.name, self.name)

    @property
    def gpu_groups(self) -> frozenset[str]:
        """The groups of this server's user."""
        return frozenset(group.name for group in self.user.groups)

    async def run_pre_spawn_hook(self) -> None:
        """Runs the operator's hook, then leases the GPUs."""
        self.gpu_grant = None
        await maybe_future(super().run_pre_spawn_hook())
        try:
            await self.gpu_before_lease()
            request = await self._gpu_request()
            self.gpu_grant = await self.gpu_sharing.call(self.gpu_sharing.take, request)
        except Refused as refused:
            self._gpu_refuse(refused.message, refused.status, refused.reason)
        except ConfigurationError as error:
            self.log.error("%s", error)  # noqa: TRY400
            if self.user_options.get("gpus") != 0:
                self._gpu_refuse(refusal.out_of_order(error), 503, "settings")

    async def gpu_before_lease(self) -> None:
        """What a kind of spawner has to do first."""

    async def start(self) -> t.Any:
        """Starts the server and notes that it runs."""
        address = await maybe_future(super().start())
        if self.gpu_grant and self.gpu_grant.units:
            await self.gpu_sharing.note(self.gpu_sharing.allocator.started, self.gpu_server, self.gpu_grant.token)
        return address

    async def run_post_stop_hook(self) -> None:
        """Runs the operator's hook, then gives the GPUs back; the hub calls this after a failed start or stop too."""
        grant, self.gpu_grant = self.gpu_grant, None
        try:
            await maybe_future(super().run_post_stop_hook())
        finally:
            await self._gpu_give_back(grant)

    async def _gpu_give_back(self, grant: Grant | None) -> None:
        sharing = self.gpu_sharing
        if grant:
            await sharing.note(sharing.release, self.gpu_server, grant.token)
            return
        try:
            await sharing.call(sharing.release, self.gpu_server)
        except ConfigurationError as error:  # later, it could be the lease of the server's next start
            self.log.error("%s", error)  # noqa: TRY400

    def get_env(self) -> dict[str, str]:
        """The environment, in which nobody's variables win over the GPUs on lease."""
        environment: dict[str, str] = super().get_env()
        return environment | self.gpu_environment()

    def gpu_environment(self) -> dict[str, str]:
        """The variables that name the GPUs on lease."""
        grant = self.gpu_grant
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpu_uuids),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            LEASE_VARIABLE: grant.token if grant else "",
        }

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs on lease."""
        return tuple(unit.uuid for unit in self.gpu_grant.units) if self.gpu_grant else ()

    async def get_options_form(self) -> str:
        """The operator's form, and ours below it."""
        theirs = await super().get_options_form()
        try:
            offer, default = await self._gpu_offer(self.gpu_images())
            ours = form.render(offer, default, self._gpu_told())
        except ConfigurationError as error:
            self.log.error("%s", error)  # noqa: TRY400
            ours = form.without(refusal.out_of_order(error))
        return f"{theirs or ''}\n{ours}"

    def _gpu_told(self) -> str | None:
        """The refusal that the page shows above the form: the hub makes a new spawner when it is opened anew."""
        future = self._spawn_future
        refusal = future.exception() if future and future.done() and not future.cancelled() else None
        return refusal.jupyterhub_message if isinstance(refusal, Refusal) else None

    async def run_options_from_form(self, form_data: dict[str, t.Any]) -> dict[str, t.Any]:
        """What the operator's fields mean, and ours."""
        rest, ours = form.split(form_data)
        return {**(await maybe_future(super().run_options_from_form(rest)) or {}), **ours}

    async def options_from_query(self, query_data: dict[str, t.Any]) -> dict[str, t.Any]:
        """What a link like /hub/spawn?gpus=1 means."""
        rest, ours = form.split(query_data, "gpus", "pool")
        return {**(await maybe_future(super().options_from_query(rest)) or {}), **ours}

    async def _run_apply_user_options(self, user_options: dict[str, t.Any]) -> None:
        """Applies the operator's options; ours are applied by the lease, and JupyterHub would warn of them."""
        if not callable(self.apply_user_options):
            user_options = {name: value for name, value in user_options.items() if name not in ("gpus", "pool")}
        await super()._run_apply_user_options(user_options)

    def gpu_images(self) -> list[str | None]:
        """The images that the user may choose from."""
        return [None]

    async def gpu_image(self) -> str | None:
        """The image that the server will run."""
        return None

    async def _gpu_request(self) -> Request:
        count, pool = form.asked(self.user_options)
        image = await self.gpu_image()
        if count is None:
            count = form.default_count(*await self._gpu_offer([image]))
        return Request(self.gpu_server, count, self.gpu_groups, image, pool)

    async def _gpu_offer(self, images: Iterable[str | None]) -> tuple[t.Any, form.Default]:
        allocator = self.gpu_sharing.allocator
        user, groups, name = self.user.name, self.gpu_groups, self.name
        offers = [await self.gpu_sharing.call(allocator.free_for, user, groups, image, name) for image in images]
        return form.merged(offers), allocator.settings.form_default

    def _gpu_refuse(self, message: str, status: int, reason: str) -> t.NoReturn:
        if not _SpawnException:
            self._gpu_uncounted()
        user, name = url_escape_path(self.user.name), url_escape_path(self.name)
        raise Refusal(message, status, reason, url_path_join(self.hub.base_url, "spawn", user, name))

    def _gpu_uncounted(self) -> None:
        """Keeps JupyterHub 5 from counting this spawn as one of the failures after which the hub gives up.

        The count is taken when the spawn's future is done, by a callback that was added before this one.
        """
        future, handler = self._spawn_future, self.handler
        if not future or not handler:
            return
        limit, self.consecutive_failure_limit = self.consecutive_failure_limit, 0
        settings = handler.settings

        def undo(_unused: object) -> None:
            self.consecutive_failure_limit = limit
            settings["failure_count"] = max(0, settings.get("failure_count", 0) - 1)

        future.add_done_callback(undo)


class _Lines(list[str]):
    """Values of a unit's property that is given several times; systemdspawner calls `format` on each property."""

    def format(self, **fields: t.Any) -> _Lines:
        return _Lines(line.format(**fields) for line in self)


def unit_properties(theirs: Mapping[str, t.Any], grant: Grant | None, mark: str) -> dict[str, t.Any]:
    """The operator's properties of a unit, and those that let it open the GPUs on lease and no others."""
    units = grant.units if grant else ()
    nodes: dict[str, None] = {}
    if grant and units:
        nodes = dict.fromkeys((*grant.common_nodes, *(node for unit in units for node in unit.nodes)))
    properties = {name: _Lines(value) if isinstance(value, list) else value for name, value in theirs.items()}
    properties["DevicePolicy"] = "strict" if theirs.get("DevicePolicy") == "strict" else "closed"
    properties["DeviceAllow"] = _Lines(
        ["char-pts rw"]
        + [line for line in _lines(theirs.get("DeviceAllow")) if not _opens_gpus(line)]
        + [f"{node} rw" for node in nodes]
    )
    properties["LogExtraFields"] = _Lines([*_lines(theirs.get("LogExtraFields")), f"{SERVER_FIELD}={mark}"])
    if units:
        properties.pop("PrivateDevices", None)
    return properties


def _lines(value: t.Any) -> list[str]:
    return list(value) if isinstance(value, (list, tuple)) else [value] if value else []


def _opens_gpus(line: str) -> bool:
    return "nvidia" in line or line.split()[:1] == ["char-*"]


class SystemdGPUMixin(GPUSpawnerMixin):
    """For systemdspawner, The Littlest JupyterHub's too."""

    gpu_backend = "systemd"

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        """Names the unit so that no two servers have the same."""
        super().__init__(*args, **kwargs)
        name = self.unit_name_template.format(USERNAME=escaped(self.user.name), USERID=self.user.id)
        self.unit_name = f"{name}--{escaped(self.name)}" if self.name else name

    async def start(self) -> t.Any:
        """Starts the unit with the nodes of its GPUs."""
        theirs, isolate = self.unit_extra_properties, self.isolate_devices
        self.unit_extra_properties = unit_properties(theirs, self.gpu_grant, mark_of(self.gpu_server))
        # PrivateDevices would hide the nodes that DeviceAllow opens.
        self.isolate_devices = isolate and not self.gpu_uuids
        try:
            return await super().start()
        finally:
            self.unit_extra_properties, self.isolate_devices = theirs, isolate


class DockerGPUMixin(GPUSpawnerMixin):
    """For dockerspawner."""

    gpu_backend = "docker"

    gpu_device_driver = CaselessStrEnum(
        ["nvidia", "cdi"],
        "nvidia",
        help="How Docker gets GPUs into a container: by NVIDIA's container toolkit, or by CDI.",
    ).tag(config=True)

    @property
    def gpu_docker_client(self) -> str:
        """How the spawner makes its client."""
        return docker_client_of(self.tls_config, self.client_kwargs)

    async def gpu_before_lease(self) -> None:
        """Notes which engine will run the server."""
        engine = (await self.docker("info"))["ID"]
        await self.gpu_sharing.call(t.cast("DockerBackend", self.gpu_sharing.backend).starts_by, engine)

    async def start(self) -> t.Any:
        """Starts a new container, never one that was kept."""
        if not self.remove:
            raise web.HTTPError(500, f"{KEPT_CONTAINERS}.")
        return await super().start()

    def gpu_images(self) -> list[str | None]:
        """The images that the user may choose from."""
        images = self._get_allowed_images()
        return list(images.values()) if isinstance(images, dict) and images else [self.image]

    async def gpu_image(self) -> str | None:
        """The image that the server will run."""
        option = self.user_options.get("image")
        image: str = await self.check_allowed(option) if option else self.image
        return image

    def gpu_environment(self) -> dict[str, str]:
        """The variables that name the GPUs on lease; "void" where NVIDIA's hook is to add none."""
        by_hook = self.gpu_device_driver == "nvidia" and self.gpu_uuids
        return {
            **super().gpu_environment(),
            "NVIDIA_VISIBLE_DEVICES": ",".join(self.gpu_uuids) if by_hook else "void",
        }

    async def create_object(self) -> t.Any:
        """Creates the container with its GPUs, on top of the operator's options."""
        theirs = self.extra_host_config, self.extra_create_kwargs
        host = dict(await self._gpu_evaluated(self.extra_host_config))
        create = dict(await self._gpu_evaluated(self.extra_create_kwargs))
        self._gpu_check_host_config(self._render_templates(host))
        self._gpu_check_host_config(self._render_templates(create.get("host_config", {})))
        self._gpu_check_host_config({"volumes": self.volume_binds, "mounts": self.mount_binds})
        host["device_requests"] = [*_other_requests(host.get("device_requests")), *self._gpu_device_requests()]
        environment = create.pop("environment", {})
        if isinstance(environment, list):
            environment = dict(entry.partition("=")[::2] for entry in environment)
        create["environment"] = {**environment, **self.gpu_environment()}
        labels = create.get("labels", {})
        create["labels"] = {
            **(labels if isinstance(labels, dict) else dict.fromkeys(labels, "")),
            SERVER_LABEL: mark_of(self.gpu_server),
            GPUS_LABEL: ",".join(self.gpu_uuids),
        }
        self.extra_host_config, self.extra_create_kwargs = host, create
        try:
            return await super().create_object()
        finally:
            self.extra_host_config, self.extra_create_kwargs = theirs

    def _gpu_check_host_config(self, host: Mapping[str, t.Any]) -> None:
        if opening := opens_gpus(host):
            raise web.HTTPError(500, f"DockerSpawner's option {opening} opens all GPUs to this server. Take it away.")
        if restarting := restarts(host):
            raise web.HTTPError(
                500,
                f"DockerSpawner's option {restarting} can't go with GPUs, as Docker would start this server again with "
                "its former ones. Take it away.",
            )

    async def _gpu_evaluated(self, option: t.Any) -> Mapping[str, t.Any]:
        value = option(self) if callable(option) else option
        return (await value if inspect.isawaitable(value) else value) or {}

    def _gpu_device_requests(self) -> list[dict[str, t.Any]]:
        if not self.gpu_uuids:
            return []
        if self.gpu_device_driver == "cdi":
            return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={uuid}" for uuid in self.gpu_uuids]}]
        return [{"Driver": "nvidia", "DeviceIDs": list(self.gpu_uuids), "Capabilities": [["gpu"]]}]


def opens_gpus(host: Mapping[str, t.Any]) -> str | None:
    """The option of a container, if there is one, that would let it open GPUs that it has no lease of."""
    tests: dict[str, Callable[[t.Any], bool]] = {
        "privileged": bool,
        "devices": lambda devices: "nvidia" in str(devices) or _paths_lead_to_gpus(devices),
        "devicecgrouprules": lambda rules: any(map(_rule_opens_gpus, rules)),
        "binds": _paths_lead_to_gpus,
        "mounts": _paths_lead_to_gpus,
        "volumes": _paths_lead_to_gpus,
    }
    return next((name for name, value in host.items() if value and tests.get(_plain(name), _never)(value)), None)


def restarts(host: Mapping[str, t.Any]) -> str | None:
    """The option of a container, if there is one, that would let Docker start it again."""

    def test(policy: Mapping[str, t.Any]) -> bool:
        return any(_plain(name) == "name" and value not in ("", "no") for name, value in policy.items())

    return next(
        (name for name, value in host.items() if _plain(name) == "restartpolicy" and value and test(value)), None
    )


def _plain(name: str) -> str:
    """An option's name, which is in another style in docker-py than in Docker, where capitals don't matter."""
    return name.replace("_", "").lower()


def _never(_unused: t.Any) -> bool:
    return False


def _paths_lead_to_gpus(value: t.Any) -> bool:
    return any(_leads_to_gpus(path) for path in _paths_on_host(value) if path.startswith("/"))


def _paths_on_host(value: t.Any) -> Iterator[str]:
    """The host's side of devices, binds or mounts; of volumes the name."""
    if isinstance(value, dict):
        yield from value
        return
    for entry in [value] if isinstance(value, str) else value:
        if isinstance(entry, dict):
            yield from (str(path) for key, path in entry.items() if _plain(key) in ("pathonhost", "source"))
        else:
            yield str(entry).partition(":")[0]


def _leads_to_gpus(path: str) -> bool:
    path = f"/{path.lstrip('/')}"
    paths = (os.path.normpath(path), os.path.realpath(path))
    return any(one in ("/", "/dev") or one.startswith("/dev/nvidia") for one in paths)


def _rule_opens_gpus(rule: t.Any) -> bool:
    kind, _unused, numbers = str(rule).strip().partition(" ")
    major = numbers.strip().partition(":")[0]
    return kind == "a" or (kind == "c" and (not major.isdecimal() or int(major) in _majors_of_gpus()))


def _majors_of_gpus() -> set[int]:
    """The numbers of the driver's character devices; the first is always the same."""
    lines = Path("/proc/devices").read_text().splitlines()
    return {195, *(int(line.split()[0]) for line in lines if "nvidia" in line)}


def _other_requests(requests: Iterable[t.Any] | None) -> list[t.Any]:
    """The operator's requests for devices that aren't GPUs."""
    return [request for request in requests or () if "nvidia" not in str(request) and "gpu" not in str(request)]


class ProcessGPUMixin(GPUSpawnerMixin):
    """For servers that are plain processes: told which GPUs are theirs, but not kept from the others."""

    gpu_backend = "process"


def gpu_spawner(base: type[Spawner]) -> type[GPUSpawnerMixin]:
    """The class of servers with GPUs for a class of spawners."""
    if issubclass(base, GPUSpawnerMixin):
        return base
    mixin = _mixin_for(base)
    return type(f"GPU{base.__name__}", (mixin, base), {"__module__": __name__, "__doc__": base.__doc__})


def _mixin_for(base: type[Spawner]) -> type[GPUSpawnerMixin]:
    with contextlib.suppress(ImportError):
        from systemdspawner import SystemdSpawner

        if issubclass(base, SystemdSpawner):
            return SystemdGPUMixin
    with contextlib.suppress(ImportError):
        from dockerspawner import DockerSpawner, SwarmSpawner

        if issubclass(base, DockerSpawner) and not issubclass(base, SwarmSpawner):
            return DockerGPUMixin
    if issubclass(base, LocalProcessSpawner):
        return ProcessGPUMixin
    raise ConfigurationError(
        f"Servers of {base.__module__}.{base.__name__} can't be given GPUs. "
        "Set c.JupyterHub.spawner_class to SystemdSpawner, DockerSpawner or LocalProcessSpawner, or a class made of one"
    )
