# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases around a server's start and stop, its environment, its unit or container, and the hub's configuration."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import sqlite3
import subprocess
import threading
import time
import types
import typing as t
from contextlib import closing
from html import unescape
from urllib.parse import urlsplit

import docker
import pytest
from cudahub_hub import backends, hub, leases, spawners
from cudahub_hub.allocator import Allocator, Observation, Server
from cudahub_hub.settings import ConfigurationError
from docker_engine import Engine
from dockerspawner import DockerSpawner, SwarmSpawner
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner, Spawner
from systemdspawner import SystemdSpawner, systemd
from tornado import web
from tornado.netutil import bind_sockets
from traitlets import Bool
from traitlets.config import Config

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Backend:
    """A host whose servers are said to run or not by the test."""

    def __init__(self) -> None:
        self.alive: dict[Server, tuple[str, ...] | None] = {}
        self.complete = True
        self.asked = 0
        self.noted: list[str] = []

    def starts_by(self, engine: str) -> None:
        self.noted.append(engine)

    def observe(self, *_: object) -> Observation:
        assert threading.current_thread() is not threading.main_thread()
        self.asked += 1
        return Observation(alive=dict(self.alive), complete=self.complete)


class Host:
    def __init__(self, place: Path) -> None:
        self.settings = place / "settings.json"
        units = [
            {"uuid": f"GPU-{n}", "kind": "gpu", "gpu": f"GPU-{n}", "index": str(n), "nodes": [f"/dev/nvidia{n}"]}
            for n in (0, 1)
        ]
        (place / "gpus.json").write_text(json.dumps({"format": 1, "common_nodes": ["/dev/nvidiactl"], "units": units}))
        self.settings.write_text(
            json.dumps(
                {
                    "format": 1,
                    "inventory": f"{place}/gpus.json",
                    "database": f"{place}/state/leases.sqlite",
                    "usage": f"{place}/usage.json",
                    "limits": {"default": 2},
                }
            )
        )
        self.backend = Backend()
        self.allocator = Allocator(self.settings)

    def spawner(self, base: type[Spawner], user: str = "anna", name: str = "", **options: t.Any) -> t.Any:
        cls = spawners.gpu_spawner(base)
        made: t.Any = cls(
            user=types.SimpleNamespace(name=user, id=7, groups=[], admin=False),
            orm_spawner=types.SimpleNamespace(name=name, server=None),
            gpu_settings=str(self.settings),
            hub=types.SimpleNamespace(base_url="/base/hub/"),
            **options,
        )
        made.user_options = {}
        return made

    def leases(self) -> dict[Server, tuple[tuple[str, ...], str]]:
        return {lease.server: (lease.units, lease.state) for lease in self.allocator.leases()}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host(tmp_path)
    monkeypatch.setattr(spawners, "backend_of", lambda *_: host.backend)
    monkeypatch.setattr(Spawner, "get_env", lambda spawner: dict(spawner.environment))
    spawners.sharing.cache_clear()
    yield host
    spawners.sharing.cache_clear()


class Plain(LocalProcessSpawner):
    """A spawner of nothing."""

    during_start: Callable[[], None] = staticmethod(lambda: None)

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        return env

    async def start(self) -> tuple[str, int]:
        self.during_start()
        return "127.0.0.1", 1

    async def stop(self, now: bool = False) -> None:
        pass

    async def poll(self) -> int:
        return 0


def test_a_lease_from_before_the_start_until_the_server_is_gone(host: Host) -> None:
    spawner = host.spawner(Plain)
    spawner.during_start = lambda: states.append(host.leases()[Server("anna")][1])
    states: list[str] = []

    async def life() -> None:
        await spawner.run_pre_spawn_hook()
        await spawner.start()
        states.append(host.leases()[Server("anna")][1])
        host.backend.alive[Server("anna")] = ("GPU-0",)
        await spawner.run_post_stop_hook()
        states.append(host.leases()[Server("anna")][1])
        host.backend.alive.clear()
        await spawner.run_post_stop_hook()

    asyncio.run(life())
    assert states == ["starting", "running", "leaving"]
    assert host.leases() == {}


def test_a_host_that_does_not_answer_frees_nothing(host: Host) -> None:
    spawner = host.spawner(Plain)

    async def life() -> None:
        await spawner.run_pre_spawn_hook()
        host.backend.complete = False
        await spawner.run_post_stop_hook()

    asyncio.run(life())
    assert host.leases() == {Server("anna"): (("GPU-0",), "leaving")}


@pytest.mark.parametrize("stops", [False, True])
def test_what_happens_while_the_database_is_locked_is_noted_later(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stops: bool
) -> None:
    """A server that runs goes on, and no GPU of one that is gone stays taken."""
    monkeypatch.setattr(leases, "PATIENCE_S", 0.05)
    monkeypatch.setattr(spawners, "AGAIN_S", 0.05)
    spawner = host.spawner(Plain)
    assert host.leases() == {}
    database = sqlite3.connect(host.allocator.state_directory() / "leases.sqlite", isolation_level=None)
    after = {} if stops else {Server("anna"): (("GPU-0",), "running")}

    async def life() -> None:
        await spawner.run_pre_spawn_hook()
        database.execute("BEGIN IMMEDIATE")
        await spawner.start()
        if stops:
            await spawner.run_post_stop_hook()
        assert host.leases() == {Server("anna"): (("GPU-0",), "starting")}
        database.execute("ROLLBACK")
        async with asyncio.timeout(60):
            while host.leases() != after:
                await asyncio.sleep(0.05)

    with closing(database):
        asyncio.run(life())
    assert "locked" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_hub_without_its_database_gives_no_gpu_twice(host: Host) -> None:
    """Also before its service has compared the leases with what runs."""
    host.backend.alive[Server("anna")] = ("GPU-0",)
    spawner = host.spawner(Plain, "ben")
    asyncio.run(spawner.run_pre_spawn_hook())
    assert host.leases() == {Server("anna"): (("GPU-0",), "running"), Server("ben"): (("GPU-1",), "starting")}


def test_hooks_of_the_operator_run(host: Host) -> None:
    seen = []

    def before(spawner: t.Any) -> None:
        seen.append(("before", host.leases()))
        spawner.user_options = {"gpus": 2}

    async def after(spawner: t.Any) -> None:
        seen.append(("after", {}))
        raise RuntimeError

    spawner = host.spawner(Plain, pre_spawn_hook=before, post_stop_hook=after)

    async def life() -> None:
        await spawner.run_pre_spawn_hook()
        assert len(spawner.gpu_uuids) == 2
        with pytest.raises(RuntimeError):
            await spawner.run_post_stop_hook()

    asyncio.run(life())
    assert seen == [("before", {}), ("after", {})]
    assert host.leases() == {}


def test_refusals(host: Host) -> None:
    first, second = host.spawner(Plain, "anna"), host.spawner(Plain, "ben")
    first.user_options = {"gpus": 2}

    async def life() -> None:
        await first.run_pre_spawn_hook()
        host.backend.alive[Server("anna")] = first.gpu_uuids
        await first.start()
        with pytest.raises(web.HTTPError) as refused:
            await second.run_pre_spawn_hook()
        assert refused.value.status_code == 409
        assert str(refused.value) == t.cast("t.Any", refused.value).jupyterhub_message
        assert str(refused.value).startswith("No GPU is free now: held by 1 other.")
        host.backend.alive.clear()
        await second.run_pre_spawn_hook()

    asyncio.run(life())
    assert host.leases() == {Server("ben"): (("GPU-0",), "starting")}


@pytest.mark.parametrize(("name", "path"), [("", "an%20na%26"), ("la/b", "an%20na%26/la%2Fb")])
def test_a_refusal_leads_back_to_the_form(host: Host, name: str, path: str) -> None:
    spawner = host.spawner(Plain, "an na&", name)
    spawner.user_options = {"gpus": "<b>"}
    with pytest.raises(web.HTTPError) as refused:
        asyncio.run(spawner.run_pre_spawn_hook())
    assert t.cast("t.Any", refused.value).jupyterhub_html_message == (
        "&lt;b&gt; is not a number of GPUs. Ask for 0 or more. "
        f'<a href="/base/hub/spawn/{path}">Back to the server options</a>'
    )


def test_many_refusals_ask_the_host_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = host.spawner(Plain, "anna")
    holder.user_options = {"gpus": 2}
    others = [host.spawner(Plain, f"user{number}") for number in range(8)]
    sharing = holder.gpu_sharing
    reconcile_after = sharing._reconcile_after
    waiting: list[float] = []

    def noted(moment: float) -> None:
        waiting.append(moment)
        reconcile_after(moment)

    monkeypatch.setattr(sharing, "_reconcile_after", noted)

    async def life() -> None:
        await holder.run_pre_spawn_hook()
        await holder.start()
        host.backend.alive[Server("anna")] = holder.gpu_uuids
        host.backend.asked = 0
        with sharing._lock:
            tries = asyncio.gather(*(other.run_pre_spawn_hook() for other in others), return_exceptions=True)
            async with asyncio.timeout(60):
                while len(waiting) < len(others):  # until all of them were refused once
                    await asyncio.sleep(0.01)
        assert all(isinstance(one, web.HTTPError) for one in await tries)

    asyncio.run(life())
    assert host.backend.asked == 1


def test_settings_out_of_order(host: Host) -> None:
    spawner = host.spawner(Plain)
    good = host.settings.read_text()
    host.settings.write_text("")
    told = f"GPUs can't be given out now. Tell an administrator: {host.settings}: the file is empty."

    async def life() -> None:
        html = await spawner.get_options_form()
        assert told in unescape(html)
        assert await spawner.run_options_from_form({"cudahub-gpus": re.findall('value="(.)"', html)}) == {"gpus": 0}
        for options in ({}, {"gpus": 1}):
            spawner.user_options = options
            with pytest.raises(web.HTTPError) as refused:
                await spawner.run_pre_spawn_hook()
            assert refused.value.status_code == 503
            assert str(refused.value).startswith(told)
        spawner.user_options = {"gpus": 0}
        await spawner.run_pre_spawn_hook()
        await spawner.start()
        assert spawner.get_env()["CUDA_VISIBLE_DEVICES"] == ""
        host.settings.write_text(good)
        await spawner.run_post_stop_hook()
        spawner.user_options = {"gpus": 1}
        await spawner.run_pre_spawn_hook()

    asyncio.run(life())
    assert host.leases() == {Server("anna"): (("GPU-0",), "starting")}


def test_environment(host: Host) -> None:
    theirs = {"CUDA_VISIBLE_DEVICES": "all", "CUDAHUB_LEASE": "forged", "MINE": "1"}
    spawner = host.spawner(Plain, environment=theirs)

    async def life() -> None:
        await spawner.run_pre_spawn_hook()
        first = spawner.get_env()
        assert first["CUDA_VISIBLE_DEVICES"] == "GPU-0"
        assert first["CUDAHUB_LEASE"] == host.allocator.leases()[0].token
        assert first["MINE"] == "1"
        await spawner.run_post_stop_hook()
        spawner.user_options = {"gpus": 0}
        await spawner.run_pre_spawn_hook()
        assert spawner.get_env()["CUDA_VISIBLE_DEVICES"] == ""
        assert spawner.get_env()["CUDAHUB_LEASE"] not in ("forged", first["CUDAHUB_LEASE"])

    asyncio.run(life())
    assert spawner.environment == theirs


def test_form_of_the_operator_is_kept(host: Host) -> None:
    async def theirs(spawner: object) -> str:
        return '<input name="image">'

    spawner = host.spawner(
        Plain, options_form=theirs, options_from_form=lambda form_data: {"image": form_data["image"][0]}
    )

    async def life() -> None:
        html = await spawner.get_options_form()
        assert html.index('name="image"') < html.index('name="cudahub-gpus"')
        fields = {"image": ["x"], "cudahub-gpus": ["2"]}
        assert await spawner.run_options_from_form(fields) == {"image": "x", "gpus": 2}
        assert await spawner.options_from_query({"image": ["x"], "gpus": ["0"]}) == {"image": "x", "gpus": 0}

    asyncio.run(life())


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, t.Any]]]:
    """The units that systemd is asked to run."""
    asked: list[tuple[str, dict[str, t.Any]]] = []

    async def start(unit_name: str, properties: dict[str, t.Any], **_: t.Any) -> int:
        asked.append((unit_name, properties))
        return 0

    async def running(unit_name: str) -> bool:
        return unit_name in [unit for unit, _unused in asked]

    async def failed(unit_name: str) -> bool:
        return False

    async def stop(unit_name: str) -> None:
        asked.clear()

    monkeypatch.setattr(systemd, "get_systemd_version", lambda: 252)
    for name, replacement in {
        "start_transient_service": start, "service_running": running, "service_failed": failed, "stop_service": stop
    }.items():  # fmt: skip
        monkeypatch.setattr(systemd, name, replacement)
    return asked


OPERATORS = {"DeviceAllow": ["/dev/fuse rw", "char-nvidia* rw", "/dev/nvidia1 rw", "char-* rw"],
             "DevicePolicy": "auto", "PrivateDevices": "yes", "Nice": "5", "Environment": "A={USERNAME}"}  # fmt: skip


def test_a_unit_may_open_its_gpus_only(host: Host, units: list[tuple[str, dict[str, t.Any]]]) -> None:
    spawner = host.spawner(
        SystemdSpawner, "root", unit_extra_properties=OPERATORS, isolate_devices=True, cmd=["true"], args=[]
    )
    spawner.get_args = list

    async def start(count: int) -> dict[str, t.Any]:
        spawner.user_options = {"gpus": count}
        await spawner.run_pre_spawn_hook()
        await spawner.start()
        properties = units[-1][1]
        units.clear()
        await spawner.run_post_stop_hook()
        return properties

    properties = asyncio.run(start(1))
    assert properties["DevicePolicy"] == "closed"
    assert properties["DeviceAllow"] == ["char-pts rw", "/dev/fuse rw", "/dev/nvidiactl rw", "/dev/nvidia0 rw"]
    assert properties["LogExtraFields"] == ["CUDAHUB_SERVER=root/"]
    assert "PrivateDevices" not in properties
    assert (properties["Nice"], properties["Environment"]) == ("5", "A=root")
    properties = asyncio.run(start(0))
    assert properties["DevicePolicy"] == "closed"
    assert properties["DeviceAllow"] == ["char-pts rw", "/dev/fuse rw"]
    assert properties["PrivateDevices"] == "yes"
    assert spawner.unit_extra_properties == OPERATORS
    assert spawner.isolate_devices


@pytest.mark.parametrize(
    ("user", "name", "unit"),
    [
        ("anna", "", "jupyter-anna"),
        ("anna", "lab", "jupyter-anna--lab"),
        ("anna-lab", "", "jupyter-anna-lab"),
        ("anna--lab", "", "jupyter-anna-_x2d_lab"),
        ("a*@b c", "", "jupyter-a_x2a__x40_b_x20_c"),
    ],
)
def test_unit_names(host: Host, units: list[tuple[str, dict[str, t.Any]]], user: str, name: str, unit: str) -> None:
    assert host.spawner(SystemdSpawner, user, name, unit_name_template="jupyter-{USERNAME}").unit_name == unit


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, t.Any]]:
    """The containers that Docker is asked to create."""
    asked: list[dict[str, t.Any]] = []

    async def call(spawner: object, method: str, *args: t.Any, **options: t.Any) -> dict[str, t.Any]:
        if method == "create_container":
            asked.append(options)
        return {"ID": "ENGINE", "Id": "0123456789", "Config": {"Cmd": ["jupyterhub-singleuser"]}}

    monkeypatch.setattr(DockerSpawner, "docker", call)
    monkeypatch.setattr(DockerSpawner, "_client", docker.APIClient(version="1.44", base_url="unix:///none"))
    monkeypatch.setattr(DockerSpawner, "get_args", lambda _: [])
    return asked


def created(host: Host, containers: list[dict[str, t.Any]], count: int, **options: t.Any) -> dict[str, t.Any]:
    spawner = host.spawner(DockerSpawner, "{prefix}", "lab", image="an/image:1", remove=True, **options)
    spawner.user_options = {"gpus": count}
    theirs = spawner.extra_host_config, spawner.extra_create_kwargs

    async def create() -> None:
        await spawner.run_pre_spawn_hook()
        await spawner.create_object()

    asyncio.run(create())
    assert (spawner.extra_host_config, spawner.extra_create_kwargs) == theirs
    return containers[-1]


def test_a_container_gets_its_gpus(host: Host, containers: list[dict[str, t.Any]]) -> None:
    options: dict[str, t.Any] = {
        "extra_host_config": lambda _: {
            "shm_size": 64, "device_requests": [{"driver": "nvidia", "count": -1, "capabilities": [["gpu"]]}]
        },
        "extra_create_kwargs": {"environment": {"NVIDIA_VISIBLE_DEVICES": "all", "A": "1"}, "labels": {"site": "x"}},
        "environment": {"CUDA_VISIBLE_DEVICES": "all"},
    }  # fmt: skip
    container = created(host, containers, 2, **options)
    assert container["host_config"]["ShmSize"] == 64
    assert container["host_config"]["AutoRemove"] is True
    (request,) = container["host_config"]["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("nvidia", ["GPU-0", "GPU-1"])
    assert request["Capabilities"] == [["gpu"]]
    assert not request["Count"]
    assert container["labels"] == {
        "site": "x", "cudahub.server": "_x7b_prefix_x7d_/lab", "cudahub.gpus": "GPU-0,GPU-1"
    }  # fmt: skip
    environment = container["environment"]
    assert environment["A"] == "1"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == environment["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"


def test_a_container_by_cdi(host: Host, containers: list[dict[str, t.Any]]) -> None:
    container = created(host, containers, 1, gpu_device_driver="cdi")
    (request,) = container["host_config"]["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=GPU-0"])
    assert container["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_container_without_gpus(host: Host, containers: list[dict[str, t.Any]]) -> None:
    container = created(host, containers, 0)
    assert not container["host_config"].get("DeviceRequests")
    assert container["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert container["environment"]["CUDA_VISIBLE_DEVICES"] == ""
    assert container["labels"]["cudahub.gpus"] == ""


OPENING: tuple[dict[str, t.Any], ...] = (
    {"privileged": True},
    {"devices": ["/dev/nvidia0:/dev/nvidia0:rwm"]},
    {"devices": ["/dev"]},
    {"devices": ["/dev:/dev:rwm"]},
    {"devices": [{"PathOnHost": "/dev/", "PathInContainer": "/d", "CgroupPermissions": "rwm"}]},
    {"devices": ["/dev/../dev/nvidia-caps/nvidia-cap1"]},
    {"devices": ["nvidia.com/gpu=all"]},
    {"device_cgroup_rules": ["c 195:* rmw"]},
    {"device_cgroup_rules": ["c 10:200 rwm", "c *:* rwm"]},
    {"device_cgroup_rules": ["a *:* rwm"]},
    {"device_cgroup_rules": ["a"]},
    {"binds": ["/dev:/host/dev"]},
    {"binds": {"/": {"bind": "/host", "mode": "ro"}}},
    {"binds": {"/dev/nvidia1": {"bind": "/dev/nvidia1", "mode": "rw"}}},
    {"mounts": [{"Type": "bind", "Source": "/dev", "Target": "/d"}]},
)


def test_options_that_open_all_gpus(host: Host, containers: list[dict[str, t.Any]]) -> None:
    def raw(name: str) -> str:
        return "".join(part.capitalize() for part in name.split("_"))

    for config in OPENING:
        as_docker = {raw(name): value for name, value in config.items()}
        for options in ({"extra_host_config": config}, {"extra_create_kwargs": {"host_config": as_docker}}):
            with pytest.raises(web.HTTPError, match=f"option {'|'.join((*config, *as_docker))} opens all GPUs"):
                created(host, containers, 0, **options)
    assert containers == []


@pytest.mark.parametrize(
    "options",
    [
        {"volumes": {"/dev": "/dev"}},
        {"read_only_volumes": {"//dev": {"bind": "/d", "mode": "ro"}}},
        {"volumes": {"/dev/{username}": "/d"}},
        {"mounts": [{"source": "/dev/nvidia0", "target": "/d", "type": "bind"}]},
        {"extra_host_config": {"devices": ["/dev/{username}"]}},
    ],
)
def test_paths_that_open_all_gpus(
    host: Host, containers: list[dict[str, t.Any]], monkeypatch: pytest.MonkeyPatch, options: dict[str, t.Any]
) -> None:
    spawner = host.spawner(DockerSpawner, "nvidia0", remove=True, **options)
    with pytest.raises(web.HTTPError, match="opens all GPUs"):
        asyncio.run(spawner.create_object())
    assert containers == []


def test_a_path_that_leads_to_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "card").symlink_to("/dev/nvidia0")
    assert spawners.opens_gpus({"devices": [{"PathOnHost": f"{tmp_path}/card"}]}) == "devices"


def test_options_that_open_no_gpus(host: Host, containers: list[dict[str, t.Any]]) -> None:
    config = {
        "privileged": False,
        "devices": ["/dev/fuse:/dev/fuse:rwm", {"PathOnHost": "/dev/net/tun"}],
        "device_cgroup_rules": ["c 10:229 rwm", "b *:* r"],
        "binds": {"/dev/shm": {"bind": "/dev/shm", "mode": "rw"}},
        "mounts": [{"Type": "tmpfs", "Target": "/dev/x"}],
        "restart_policy": {"Name": "no"},
    }
    volumes = {"home-{username}": "/home", "/srv/dev": "/data", "dev": "/dev-of-nobody"}
    container = created(host, containers, 0, extra_host_config=config, volumes=volumes)
    assert [device["PathOnHost"] for device in container["host_config"]["Devices"]] == ["/dev/fuse", "/dev/net/tun"]


@pytest.mark.parametrize(
    "options",
    [
        {"extra_host_config": {"restart_policy": {"Name": "always"}}},
        {"extra_host_config": {"restart_policy": {"name": "on-failure"}, "auto_remove": False}},
        {"extra_create_kwargs": {"host_config": {"RestartPolicy": {"Name": "unless-stopped"}}}},
    ],
)
def test_containers_that_start_again_by_themselves(
    host: Host, containers: list[dict[str, t.Any]], options: dict[str, t.Any]
) -> None:
    with pytest.raises(web.HTTPError, match=r"option (restart_policy|RestartPolicy) can't go with GPUs"):
        created(host, containers, 0, **options)
    assert containers == []


def test_a_container_that_would_be_kept(host: Host, containers: list[dict[str, t.Any]]) -> None:
    spawner = host.spawner(DockerSpawner)
    with pytest.raises(
        web.HTTPError, match=r"need c\.DockerSpawner\.remove = True, .* Files outside of volumes are gone"
    ):
        asyncio.run(spawner.start())
    assert containers == []


def test_the_engine_is_noted_before_gpus_are_leased(
    host: Host, containers: list[dict[str, t.Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> t.NoReturn:
        raise OSError("no answer")

    created(host, containers, 1)
    assert host.backend.noted == ["ENGINE"]
    monkeypatch.setattr(DockerSpawner, "docker", silent)
    with pytest.raises(OSError, match="no answer"):
        created(host, containers, 1)
    assert host.leases() == {Server("{prefix}", "lab"): (("GPU-0",), "starting")}


@pytest.mark.skipif(not hasattr(Spawner, "apply_user_options"), reason="since JupyterHub 5.3")
@pytest.mark.parametrize(
    ("theirs", "warned"), [(None, ["mine"]), ({"mine": "cmd"}, []), ({}, ["mine"]), (lambda *_: None, [])]
)
def test_only_unknown_options_of_users_are_warned_of(
    host: Host, caplog: pytest.LogCaptureFixture, theirs: t.Any, warned: list[str]
) -> None:
    spawner = host.spawner(Plain, log=logging.getLogger("a.spawner"), apply_user_options=theirs)
    asyncio.run(spawner._run_apply_user_options({"gpus": 1, "pool": "large"}))
    assert caplog.messages == []
    asyncio.run(spawner._run_apply_user_options({"gpus": 1, "mine": ["x"]}))
    assert [re.findall(r"\b(mine|gpus)\b", message) for message in caplog.messages] == [warned] * bool(warned)


@pytest.mark.skipif(not hasattr(Spawner, "apply_user_options"), reason="since JupyterHub 5.3")
def test_a_hook_of_the_operator_sees_all_options(host: Host) -> None:
    seen: list[object] = []
    spawner = host.spawner(Plain, apply_user_options=lambda _, options: seen.append(options))
    asyncio.run(spawner._run_apply_user_options({"gpus": 1, "mine": "x"}))
    assert seen == [{"gpus": 1, "mine": "x"}]


def test_only_allowed_images(host: Host, containers: list[dict[str, t.Any]]) -> None:
    spawner = host.spawner(DockerSpawner, allowed_images={"small": "an/image:1", "big": "an/image:2"})
    assert spawner.gpu_images() == ["an/image:1", "an/image:2"]
    spawner.user_options = {"image": "big"}
    assert asyncio.run(spawner.gpu_image()) == "an/image:2"
    spawner.user_options = {"image": "of/mine"}
    with pytest.raises(web.HTTPError):
        asyncio.run(spawner.gpu_image())


def test_gpu_spawner() -> None:
    assert issubclass(spawners.gpu_spawner(SystemdSpawner), spawners.SystemdGPUMixin)
    assert issubclass(spawners.gpu_spawner(DockerSpawner), spawners.DockerGPUMixin)
    simple = spawners.gpu_spawner(SimpleLocalProcessSpawner)
    assert issubclass(simple, spawners.ProcessGPUMixin)
    assert spawners.gpu_spawner(simple) is simple
    for unfit in (SwarmSpawner, Spawner):
        with pytest.raises(ConfigurationError, match="can't be given GPUs"):
            spawners.gpu_spawner(unfit)


@pytest.mark.parametrize(
    "given",
    ["systemd", "systemdspawner.SystemdSpawner", "systemdspawner.systemdspawner.SystemdSpawner", SystemdSpawner],
)
def test_configure(host: Host, given: t.Any) -> None:
    c = Config()
    c.JupyterHub.spawner_class = given
    c.JupyterHub.services = [{"name": "theirs"}]
    c.JupyterHub.load_roles.append({"name": "user", "scopes": ["self", "theirs"]})
    hub.configure(c, host.settings, "systemd")
    assert issubclass(c.JupyterHub.spawner_class, (spawners.SystemdGPUMixin, SystemdSpawner))
    assert c.GPUSpawnerMixin.gpu_settings == str(host.settings)
    assert [service["name"] for service in c.JupyterHub.services] == ["theirs", "gpus"]
    roles = {role["name"]: role["scopes"] for role in c.JupyterHub.load_roles}
    assert roles["user"] == ["self", "theirs", "access:services!service=gpus"]
    assert set(roles["gpus"]) == {"read:users:name", "read:servers", "delete:servers", "tokens"}
    with pytest.raises(ConfigurationError, match="has a service gpus already"):
        hub.configure(c, host.settings, "systemd")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_nobody_else_listens_in_place_of_the_service(host: Host, address: str) -> None:
    c = Config()
    hub.configure(c, host.settings, "process")
    port = urlsplit(c.JupyterHub.services[0]["url"]).port
    listen = (
        "import itertools, socket, sys\n"
        "for reuse in itertools.product((0, 1), repeat=2):\n"
        "    one = socket.socket()\n"
        "    for option, value in zip((socket.SO_REUSEADDR, socket.SO_REUSEPORT), reuse):\n"
        "        one.setsockopt(socket.SOL_SOCKET, option, value)\n"
        "    try:\n"
        "        one.bind((sys.argv[1], int(sys.argv[2])))\n"
        "        one.listen()\n"
        "        print(reuse)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    command = ["/usr/bin/python3", "-c", listen, address, str(port)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, user=65534).stdout == ""
    (service,) = bind_sockets(port or 0, "127.0.0.1", reuse_port=True)
    assert subprocess.run(command, check=True, capture_output=True, text=True, user=65534).stdout == ""
    service.settimeout(60)
    with socket.create_connection(("127.0.0.1", port or 0)):
        service.accept()[0].close()
    service.close()


def test_configure_an_empty_configuration(host: Host) -> None:
    c = Config()
    hub.configure(c, host.settings, "process")
    assert issubclass(c.JupyterHub.spawner_class, LocalProcessSpawner)
    assert {role["name"] for role in c.JupyterHub.load_roles} == {"user", "gpus"}


@pytest.mark.parametrize(
    ("spawner", "backend", "sentence"),
    [
        ("docker", "systemd", "runs its servers by docker, not by systemd"),
        ("nowhere.Spawner", "systemd", "The spawner class nowhere.Spawner can't be loaded"),
    ],
)
def test_configure_refuses(host: Host, spawner: str, backend: t.Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        hub.configure(Config(), host.settings, backend, spawner)


def docker_configuration(**options: t.Any) -> Config:
    c = Config()
    c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
    c.DockerSpawner = Config(remove=True, **options)
    return c


def service_environment(c: Config, host: Host) -> dict[str, t.Any]:
    hub.configure(c, host.settings, "docker")
    environment = dict(c.JupyterHub.services[-1]["environment"])
    return {**environment, "CUDAHUB_DOCKER_CLIENT": json.loads(environment["CUDAHUB_DOCKER_CLIENT"])}


def test_the_service_is_told_how_to_ask_docker(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in hub.DOCKER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert service_environment(docker_configuration(), host) == {
        "CUDAHUB_DOCKER_CLIENT": {"tls_config": {}, "client_kwargs": {}}
    }
    monkeypatch.setenv("DOCKER_HOST", "tcp://one:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "")
    c = docker_configuration(tls_config={"client_cert": ("cert", "key")})
    c.Spawner.client_kwargs = {"base_url": "unix:///wrong"}
    c.DockerSpawner.client_kwargs.update({"base_url": "unix:///other.sock"})
    c.GPUDockerSpawner.client_kwargs.update({"version": "1.44"})
    assert service_environment(c, host) == {
        "DOCKER_HOST": "tcp://one:2376",
        "DOCKER_TLS_VERIFY": "",
        "CUDAHUB_DOCKER_CLIENT": {
            "tls_config": {"client_cert": ["cert", "key"]},
            "client_kwargs": {"base_url": "unix:///other.sock", "version": "1.44"},
        },
    }
    spawner = host.spawner(DockerSpawner, config=c)
    assert spawner.client_kwargs == {"base_url": "unix:///other.sock", "version": "1.44"}


def test_configure_refuses_what_the_service_cannot_be_told(host: Host) -> None:
    c = docker_configuration(client_kwargs={"tls": docker.tls.TLSConfig()})
    with pytest.raises(ConfigurationError, match=r"client_kwargs or tls_config \(.*TLSConfig.*\)\. Write text"):
        hub.configure(c, host.settings, "docker")


def test_configure_refuses_containers_that_are_kept(host: Host) -> None:
    class Removing(DockerSpawner):
        remove = Bool(True, config=True)

    for c in (Config(), docker_configuration()):
        c.DockerSpawner.remove = False
        with pytest.raises(ConfigurationError, match=r"need c\.DockerSpawner\.remove = True"):
            hub.configure(c, host.settings, "docker", DockerSpawner)
    assert "services" not in c.JupyterHub
    hub.configure(Config(), host.settings, "docker", Removing)


def test_the_service_asks_the_docker_of_the_spawner(host: Host, tmp_path: Path) -> None:
    ours, default = Engine(tmp_path, "OURS"), Engine(tmp_path, "DEFAULT")
    backend = backends.DockerBackend(lambda: tmp_path / "state", backends.docker_client_of({}, {}))
    backend.starts_by("OURS")
    ours.run("anna/", "GPU-1")
    c = docker_configuration(client_kwargs={"base_url": ours.url})
    hub.configure(c, host.settings, "docker")
    service = c.JupyterHub.services[-1]
    environment = {
        **os.environ,
        **service["environment"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "DOCKER_HOST": default.url,
        "JUPYTERHUB_SERVICE_URL": service["url"],
        "JUPYTERHUB_SERVICE_PREFIX": "/services/gpus/",
        "JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api",
        "JUPYTERHUB_API_TOKEN": "x",
    }
    with subprocess.Popen(service["command"], env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while Server("anna") not in host.leases() and not default.asked:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.terminate()
    assert default.asked == []
    assert host.leases() == {Server("anna"): (("GPU-1",), "running")}
    ours.close()
    default.close()


def test_configure_leaves_the_settings_to_those_who_need_them(host: Host) -> None:
    host.settings.write_text("{")
    hub.configure(Config(), host.settings, "process")
