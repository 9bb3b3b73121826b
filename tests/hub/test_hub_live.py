# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real JupyterHub with two GPUs, whose servers are small processes: crowds, crashes and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import http.client
import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cudahub_hub.allocator import Allocator, Lease, Server
from cudahub_hub.hub_client import HubClient, HubError
from hub_ports import free_ports

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "0" * 32
GPUS = tuple(sorted(f"GPU-{uuid.uuid4()}" for _unused in range(2)))  # no other hub on this host has these
NONE_FREE = "No GPU is free now"
PR_SET_CHILD_SUBREAPER = 36

CONFIG = """
import asyncio, os, sys, types
from jupyterhub.handlers import pages
from jupyterhub.objects import Server
from jupyterhub.proxy import Proxy
from jupyterhub.spawner import SimpleLocalProcessSpawner
from cudahub_hub.hub import configure


class NoProxy(Proxy):
    should_start = False
    routes = dict()

    async def add_route(self, routespec, target, data):
        self.routes[routespec] = dict(routespec=routespec, target=target, data=data)

    async def delete_route(self, routespec):
        self.routes.pop(routespec, None)

    async def get_all_routes(self):
        return dict(self.routes)


class Spawner(SimpleLocalProcessSpawner):
    async def start(self):
        if self.user.name.startswith("fail"):
            raise RuntimeError("this server can't start")
        if self.user.name.startswith("slow"):
            await asyncio.sleep(600)
        address = await super().start()
        if self.user.name.startswith("late"):
            await asyncio.sleep(600)
        return address


async def wait(futures, timeout):
    return await asyncio.wait(futures, timeout=60)


def wait_up(server, timeout=60, **options):
    return up(server, timeout=max(timeout, 60), **options)


c = get_config()
# JupyterHub 5 ends where a service takes longer than ten seconds to answer.
up, Server.wait_up = Server.wait_up, wait_up
# The hub answers that a server is pending where a start takes longer than these, a second and ten.
pages.asyncio = types.SimpleNamespace(**dict(vars(asyncio), wait=wait))
c.JupyterHub.tornado_settings = dict(slow_spawn_timeout=60)
c.Spawner.http_timeout = c.Spawner.start_timeout = 180
c.JupyterHub.bind_url = "http://127.0.0.1:1"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = Spawner
c.JupyterHub.db_url = "sqlite:///{place}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{place}/cookie_secret"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.services = [{{"name": "tester", "api_token": "{token}"}}]
scopes = ["admin:users", "admin:servers", "read:services"]
c.JupyterHub.load_roles = [{{"name": "tester", "services": ["tester"], "scopes": scopes}}]
c.JupyterHub.last_activity_interval = 3600
c.Authenticator.allow_all = True
c.Spawner.cmd = [sys.executable, "-SE", "{place}/server.py"]
c.Spawner.consecutive_failure_limit = 3
c.Spawner.poll_interval = 3600
c.Spawner.environment = {{"CUDA_VISIBLE_DEVICES": "GPU-of-somebody-else", "CUDAHUB_LEASE": "forged"}}
c.LocalProcessSpawner.interrupt_timeout = 2
c.SimpleLocalProcessSpawner.home_dir_template = "{place}/{{username}}"
configure(c, "{place}/settings.json", "process")
if "WITH_SERVICE" not in os.environ:  # a process that would outlive a killed hub
    c.JupyterHub.services[-1] = {{"name": "gpus", "api_token": "{token}1"}}
"""

SERVER = """
import json, os, urllib.parse
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with open(os.path.expanduser("~/asked"), "a") as file:
            print(self.path, self.headers["Authorization"], file=file)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(os.environ)).encode())

    def log_message(self, *args):
        pass


class Server(HTTPServer):
    def server_bind(self):
        self.socket.setsockopt(1, 2, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.server_address


url = urllib.parse.urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
Server(("127.0.0.1", url.port), Handler).serve_forever()
"""


class Answer(t.NamedTuple):
    status: int
    text: str

    @property
    def message(self) -> str:
        return str(json.loads(self.text)["message"])


class Hub:
    """A hub process, and what can be asked of it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (self.port,) = free_ports(1)
        units = [
            {"uuid": gpu, "kind": "gpu", "gpu": gpu, "index": str(index), "nodes": [f"/dev/nvidia{index}"]}
            for index, gpu in enumerate(GPUS)
        ]
        (place / "gpus.json").write_text(json.dumps({"format": 1, "units": units}))
        settings = {"format": 1, "inventory": f"{place}/gpus.json", "database": f"{place}/state/leases.sqlite",
                    "usage": f"{place}/usage.json", "limits": {"users": {"none": 0, "two": 2}}}  # fmt: skip
        (place / "settings.json").write_text(json.dumps(settings))
        (place / "server.py").write_text(SERVER)
        (place / "config.py").write_text(CONFIG.format(port=self.port, place=place, token=TOKEN))
        self.allocator = Allocator(place / "settings.json")
        self.users: set[str] = set()

    def start(self, **environment: str) -> None:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.place / "config.py")],
                cwd=self.place, stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        until(self.answers, 180)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            return self.ask("GET", "/users").status == 200
        except OSError:
            return False

    def page_answers(self) -> bool:
        service = urllib.parse.urlsplit(json.loads(self.ask("GET", "/services/gpus").text)["url"])
        connection = http.client.HTTPConnection(service.netloc, timeout=60)
        try:
            connection.request("GET", "/services/gpus/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return (self.place / "log").read_text()[-20000:]

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/hub/api{path}",
            method=method,
            headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        return answer(urllib.request.build_opener(), request)

    def add(self, *users: str) -> None:
        if new := set(users) - self.users:
            assert self.ask("POST", "/users", {"usernames": sorted(new)}).status == 201
            self.users |= new

    def spawn(self, user: str, options: object = None) -> Answer:
        self.add(user)
        return self.ask("POST", f"/users/{user}/server", options)

    def stop(self, user: str) -> None:
        processes = self.processes(user)

        def ended() -> bool:
            for process in processes:
                with contextlib.suppress(ChildProcessError):  # a child of the hub that runs
                    os.waitpid(process, os.WNOHANG)
            return asked.done() and not self.active(user)

        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(self.ask, "DELETE", f"/users/{user}/server")
            until(ended)

    def deleted(self, user: str) -> bool:
        """Whether the user is gone; JupyterHub refuses it while the server of that user is being stopped."""
        gone = self.ask("DELETE", f"/users/{user}")
        assert gone.status in (204, 400, 404), (gone, self.log())
        return gone.status != 400

    def active(self, user: str) -> bool:
        return bool(json.loads(self.ask("GET", f"/users/{user}").text)["servers"])

    def leases(self) -> dict[str, Lease]:
        return {lease.server.user: lease for lease in self.allocator.leases()}

    def processes(self, user: str) -> list[int]:
        found = []
        for process in Path("/proc").iterdir():
            try:
                environ = (process / "environ").read_bytes().split(b"\0")
            except (OSError, ValueError):
                continue
            if f"JUPYTERHUB_USER={user}".encode() in environ and f"HOME={self.place}/{user}".encode() in environ:
                found.append(int(process.name))
        return found

    def kill_server(self, user: str) -> None:
        for process in self.processes(user):
            with contextlib.suppress(ProcessLookupError):  # the hub has just stopped it
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # a child of the hub that runs
                os.waitpid(process, 0)
        until(lambda: not self.processes(user))

    def environ(self, user: str) -> dict[str, str]:
        (process,) = self.processes(user)
        entries = Path(f"/proc/{process}/environ").read_text().split("\0")
        return dict(entry.partition("=")[::2] for entry in entries)

    def clear(self) -> None:
        """Leaves no server."""
        for user in sorted(self.users):
            self.kill_server(user)
        until(lambda: all(self.deleted(user) for user in sorted(self.users)))
        self.users.clear()
        for lease in self.allocator.leases():
            self.allocator.gone(lease.server, lease.token)


def answer(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> Answer:
    try:
        with opener.open(request, timeout=120) as response:
            return Answer(response.status, response.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode())


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def _adopted() -> Iterator[None]:
    """Servers that outlive a killed hub are children of this process, which reaps them.

    JupyterHub takes a process that nobody has reaped for a server that runs.
    """
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


@pytest.fixture(scope="module")
def the_hub(tmp_path_factory: pytest.TempPathFactory, _adopted: None) -> Iterator[Hub]:
    hub = Hub(tmp_path_factory.mktemp("hub"))
    hub.start()
    yield hub
    hub.kill()


@pytest.fixture
def hub(the_hub: Hub) -> Iterator[Hub]:
    yield the_hub
    the_hub.clear()


def test_twenty_at_once_get_two_gpus(hub: Hub) -> None:
    users = [f"u{number}" for number in range(20)]
    hub.add(*users)
    with ThreadPoolExecutor(20) as threads:
        answers = dict(zip(users, threads.map(hub.spawn, users), strict=True))
    running = [user for user in users if answers[user].status == 201]
    refused = [answers[user] for user in users if user not in running]
    assert len(running) == 2, answers
    assert {one.status for one in refused} == {409}, answers
    assert all(one.message.startswith(f"{NONE_FREE}: held by 2 others. Come back later") for one in refused), answers
    assert sorted(lease.units for lease in hub.leases().values()) == [(gpu,) for gpu in GPUS]
    assert {lease.state for lease in hub.leases().values()} == {"running"}
    for user in running:
        environ = hub.environ(user)
        lease = hub.leases()[user]
        assert environ["CUDA_VISIBLE_DEVICES"] == lease.units[0]
        assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert environ["CUDAHUB_LEASE"] == lease.token
    time.sleep(2.5)  # a hub that gave up would be gone after two seconds
    assert hub.answers()
    hub.stop(running[0])
    assert list(hub.leases()) == [running[1]]


def test_refusals_never_stop_the_hub(hub: Hub) -> None:
    assert [hub.spawn(user).status for user in ("a", "b")] == [201, 201]
    for _unused in range(5):
        assert hub.spawn("late-comer").status == 409
    for _unused in range(2):
        assert hub.spawn("fail", {"gpus": 0}).status == 500
    time.sleep(2.5)
    assert hub.answers()
    hub.stop("a")
    assert hub.spawn("c").status == 201
    assert set(hub.leases()) == {"b", "c"}


def test_a_failed_start_keeps_no_gpu(hub: Hub) -> None:
    assert hub.spawn("fail").status == 500
    assert hub.leases() == {}
    assert [hub.spawn(user).status for user in ("a", "b")] == [201, 201]


def test_clicking_twice_takes_one_gpu(hub: Hub) -> None:
    hub.add("a")
    with ThreadPoolExecutor(2) as threads:
        answers = [*threads.map(hub.spawn, ["a", "a"])]
    assert sorted(one.status for one in answers) in ([201, 202], [201, 400])
    assert hub.leases()["a"].units in [(gpu,) for gpu in GPUS]
    assert len(hub.processes("a")) == 1


def test_a_killed_server_makes_room_at_once(hub: Hub) -> None:
    assert [hub.spawn(user).status for user in ("a", "b", "c")] == [201, 201, 409]
    hub.kill_server("a")
    assert hub.spawn("c").status == 201
    assert set(hub.leases()) == {"b", "c"}


def test_without_a_gpu(hub: Hub) -> None:
    assert [hub.spawn(user).status for user in ("a", "b", "c")] == [201, 201, 409]
    assert hub.spawn("c", {"gpus": 0}).status == 201
    assert hub.environ("c")["CUDA_VISIBLE_DEVICES"] == ""
    assert hub.environ("c")["CUDAHUB_LEASE"] != "forged"
    assert set(hub.leases()) == {"a", "b"}
    hub.stop("a")
    hub.stop("c")
    assert hub.spawn("c", {"gpus": 1}).status == 201
    assert set(hub.leases()) == {"b", "c"}


def test_options_over_the_api(hub: Hub) -> None:
    for options in ({"gpus": "many"}, {"gpus": True}, {"gpus": -1}, {"gpus": 1.5}, {"pool": ["x"]}):
        refused = hub.spawn("a", options)
        assert refused.status == 400, (options, refused)
        assert refused.message.endswith(("Ask for 0 or more.", "is not the name of a pool of GPUs."))
    assert hub.spawn("a", {"gpus": 2}).status == 403
    assert hub.spawn("a", {"gpus": 1, "pool": "nowhere"}).status == 403
    assert hub.spawn("none").status == 201
    hub.stop("none")
    assert hub.spawn("none", {"gpus": 1}).status == 403
    assert hub.spawn("two", {"gpus": 2, "pool": "default"}).status == 201
    assert hub.environ("two")["CUDA_VISIBLE_DEVICES"] == ",".join(hub.leases()["two"].units)


def test_the_spawn_page(hub: Hub) -> None:
    """A form to log in and one to spawn, as a browser sends them."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    base = f"http://127.0.0.1:{hub.port}/hub"

    def get(path: str) -> Answer:
        return answer(opener, urllib.request.Request(base + path))  # noqa: S310

    def post(path: str, page: str, **fields: str) -> Answer:
        xsrf = t.cast("re.Match[str]", re.search(r'_xsrf(?:" value="|=)([^"&]+)', page))[1]
        data = urllib.parse.urlencode({"_xsrf": urllib.parse.unquote(xsrf), **fields}).encode()
        return answer(opener, urllib.request.Request(f"{base}{path}?_xsrf={xsrf}", data=data))  # noqa: S310

    hub.users.add("browser")
    page = get("/login").text
    post("/login", page, username="browser", password="x")  # noqa: S106
    page = get("/spawn").text
    assert "Now: 2 of 2 free." in page
    assert [hub.spawn(user).status for user in ("a", "b")] == [201, 201]
    page = get("/spawn").text
    assert f'<div class="alert alert-warning mt-2 mb-0">{NONE_FREE}' in page
    refused = post("/spawn", page, **{"cudahub-gpus": "1"})
    assert refused.status in (200, 409)  # JupyterHub 5 shows the form again with 200
    assert f"Error: {NONE_FREE}: held by 2 others. Come back later, or start without a GPU.</p>" in refused.text
    assert f"{NONE_FREE}: held by 2 others." in get("/spawn-pending/browser").text
    post("/spawn", page, **{"cudahub-gpus": "0"})
    until(lambda: len(hub.processes("browser")) == 1)
    assert hub.environ("browser")["CUDA_VISIBLE_DEVICES"] == ""
    hub.stop("browser")
    hub.stop("a")
    post("/spawn", get("/spawn").text, **{"cudahub-gpus": "1"})
    until(lambda: "browser" in hub.leases())


def test_hub_killed_between_lease_and_start(hub: Hub) -> None:
    assert hub.spawn("a").status == 201
    with ThreadPoolExecutor(1) as threads:
        hub.add("slow")
        lost = threads.submit(hub.spawn, "slow")
        until(lambda: "slow" in hub.leases())
        hub.kill()
        assert isinstance(lost.exception(), OSError)
    hub.start()
    assert hub.active("a")
    assert hub.spawn("b").status == 201
    assert set(hub.leases()) == {"a", "b"}
    assert hub.leases()["a"].units != hub.leases()["b"].units
    assert hub.spawn("c").status == 409


def test_hub_killed_while_servers_run(hub: Hub) -> None:
    """A server that the hub forgot keeps its GPU as long as it lives; one that died meanwhile does not."""
    assert hub.spawn("a").status == 201
    with ThreadPoolExecutor(1) as threads:
        hub.add("late")
        lost = threads.submit(hub.spawn, "late")
        until(lambda: len(hub.processes("late")) == 1)
        hub.kill()
        assert isinstance(lost.exception(), OSError)
    hub.kill_server("a")
    hub.start()
    assert [hub.spawn(user).status for user in ("b", "c")] == [201, 409]
    assert set(hub.leases()) == {"b", "late"}
    hub.kill_server("late")
    assert hub.spawn("c").status == 201
    assert set(hub.leases()) == {"b", "c"}
    hub.stop("b")
    assert set(hub.leases()) == {"c"}


def test_hub_restarted_with_broken_settings(hub: Hub) -> None:
    assert hub.spawn("a").status == 201
    hub.kill()
    settings = hub.place / "settings.json"
    good = settings.read_text()
    try:
        settings.write_text("")
        hub.start(WITH_SERVICE="yes")
        assert hub.active("a")
        assert hub.spawn("b", {"gpus": 0}).status == 201
        refused = hub.spawn("c", {"gpus": 1})
        assert refused.status == 503
        assert f"{settings}: the file is empty" in refused.message
        # JupyterHub ends where a service that it has started does not answer.
        until(hub.page_answers)
        hub.stop("b")
    finally:
        settings.write_text(good)
    hub.stop("a")
    assert hub.spawn("c", {"gpus": 1}).status == 201
    assert set(hub.leases()) == {"c"}
    hub.process.terminate()
    hub.process.wait()
    hub.start()


def test_a_server_gets_no_token_that_is_good_for_those_of_others(hub: Hub) -> None:
    """Users read what the service sends to their servers."""
    assert [hub.spawn(user).status for user in ("a", "b")] == [201, 201]
    address = urllib.parse.urlsplit(hub.environ("a")["JUPYTERHUB_SERVICE_URL"]).netloc
    client = HubClient(f"http://127.0.0.1:{hub.port}/hub/api", f"{TOKEN}1", f"http://{address}")

    async def look() -> None:
        running = await client.server(Server("a"))
        assert running is not None
        with pytest.raises(HubError, match="did not answer with its kernels"):
            await client.busy_kernels(running)

    asyncio.run(look())
    (token,) = re.findall(r"/api/kernels token (\S+)", (hub.place / "a" / "asked").read_text())
    for method, path in (("GET", "/users/b"), ("DELETE", "/users/b/server")):
        request = urllib.request.Request(
            f"http://127.0.0.1:{hub.port}/hub/api{path}", method=method, headers={"Authorization": f"token {token}"}
        )
        assert answer(urllib.request.build_opener(), request).status in (403, 404)
    assert hub.active("b")
