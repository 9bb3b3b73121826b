# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The service's page and API, who may do what there, and its client of the hub."""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

import hub_site
import pytest
from cudahub_hub import service
from cudahub_hub.allocator import Allocator, Lease, Observation, Request, Server
from cudahub_hub.hub_client import HubClient, HubError, RunningServer
from cudahub_hub.settings import ConfigurationError
from jupyterhub.services.auth import HubOAuth
from tornado import web
from tornado.httpclient import AsyncHTTPClient, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

PREFIX = "/services/gpus/"
ACCESS = "access:services!service=gpus"
SECRET = b"s" * 32
USERS = {
    "anna-token": {"kind": "user", "name": "anna", "admin": False, "groups": ["staff"], "scopes": [ACCESS]},
    "root-token": {"kind": "user", "name": "root", "admin": True, "groups": [], "scopes": [ACCESS, "admin-ui"]},
    "narrow-token": {"kind": "user", "name": "root", "admin": True, "groups": [], "scopes": [ACCESS]},
    "stops-all-token": {"kind": "service", "name": "ops", "admin": False, "scopes": [ACCESS, "delete:servers"]},
    "stops-some-token": {
        "kind": "user",
        "name": "tutor",
        "admin": False,
        "groups": [],
        "scopes": [ACCESS, "admin-ui", "delete:servers!group=staff"],
    },
    "other-token": {"kind": "user", "name": "other", "admin": True, "groups": [], "scopes": []},
}


class FakeHub:
    def __init__(self) -> None:
        self.known = True
        self.error = False
        self.stopped: list[Server] = []

    async def stop(self, server: Server) -> bool:
        if self.error:
            raise HubError("It answered 500.")
        self.stopped.append(server)
        return self.known


class Site:
    """The service over a fake hub, on a port of its own."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.hub = FakeHub()
        self.cookies = ""
        self.xsrf = ""

    def run(self, visit: Callable[[Site], Awaitable[None]]) -> None:
        async def main() -> None:
            desk = service.Desk(self.allocator, self.hub)  # type: ignore[arg-type]
            app = service.application(desk, PREFIX)
            app.settings["cookie_secret"] = SECRET
            socket, self.port = bind_unused_port()
            server = HTTPServer(app)
            server.add_socket(socket)
            try:
                await visit(self)
            finally:
                server.stop()

        asyncio.run(main())

    async def get(self, path: str, who: str | None = None, **headers: str) -> HTTPResponse:
        return await self.fetch(path, "GET", None, who, headers)

    async def post(self, path: str, body: Any, who: str | None = None, **headers: str) -> HTTPResponse:
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        return await self.fetch(path, "POST", text, who, headers)

    async def fetch(
        self, path: str, method: str, body: str | bytes | None, token: str | None, headers: dict[str, str]
    ) -> HTTPResponse:
        if token:
            headers["Authorization"] = f"token {token}"
        if self.cookies:
            headers["Cookie"] = self.cookies
        return await AsyncHTTPClient().fetch(
            f"http://127.0.0.1:{self.port}{PREFIX}{path}",
            method=method,
            body=body,
            headers=headers,
            raise_error=False,
            follow_redirects=False,
        )

    async def log_in(self, token: str, expected: int = 200) -> None:
        """Have the cookies of a browser that came back from the hub's OAuth and saw the page."""
        value = web.create_signed_value(SECRET, "service-gpus", token).decode()
        self.cookies = f"service-gpus={value}"
        page = await self.get("", **{"Sec-Fetch-Mode": "navigate"})
        assert page.code == expected, page.body
        xsrf = re.search(r"_xsrf=([^;]+)", page.headers.get("Set-Cookie", "_xsrf=none"))
        assert xsrf
        self.xsrf = xsrf[1]
        self.cookies += f"; _xsrf={self.xsrf}"

    async def release_token(self) -> str:
        """The token in the form that asks an admin whether to release."""
        navigates = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        page = (await self.get("release?" + urlencode(TRAINING), **navigates)).body.decode()
        (token,) = re.findall(r'name="_xsrf" value="([^"]+)"', page)
        return str(token)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name, value in {
        "JUPYTERHUB_API_TOKEN": "service-token",
        "JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api",
        "JUPYTERHUB_CLIENT_ID": "service-gpus",
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_HOST": "",
        "JUPYTERHUB_SERVICE_NAME": "gpus",
        "JUPYTERHUB_SERVICE_PREFIX": PREFIX,
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps([ACCESS]),
        "JUPYTERHUB_OAUTH_SCOPES": json.dumps([ACCESS]),
    }.items():
        monkeypatch.setenv(name, value)

    def user_for_token(self: HubOAuth, token: str, *_: Any, sync: bool = True, **__: Any) -> Any:
        async def answer() -> Any:
            return USERS.get(token)

        return USERS.get(token) if sync else answer()

    monkeypatch.setattr(HubOAuth, "user_for_token", user_for_token)
    HubOAuth.clear_instance()
    units = [
        {"uuid": f"GPU-{i}", "kind": "gpu", "gpu": f"GPU-{i}", "index": str(i), "name": "NVIDIA H100"} for i in range(3)
    ]
    (tmp_path / "inventory.json").write_text(json.dumps({"format": 1, "units": units}), encoding="utf-8")
    usage = {
        "format": 1,
        "time": time.time(),
        "interval": 5,
        "units": {
            "GPU-0": {
                "state": "ok",
                "utilization_percent": 42,
                "memory_used_bytes": 2**34,
                "memory_total_bytes": 2**36,
            },
            "GPU-1": {"state": "ok", "utilization_percent": None},
            "GPU-2": {"state": "lost", "reason": "GPU 2 does not answer any more: the driver lost it"},
        },
    }
    (tmp_path / "usage.json").write_text(json.dumps(usage), encoding="utf-8")
    settings = {
        "format": 1,
        "inventory": str(tmp_path / "inventory.json"),
        "database": str(tmp_path / "state" / "leases.sqlite"),
        "usage": str(tmp_path / "usage.json"),
        "limits": {"default": 1, "groups": {"staff": 2}},
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    allocator = Allocator(tmp_path / "settings.json")
    grant = allocator.acquire(Request(Server("anna", "train<ing>"), 1, frozenset({"staff"})))
    allocator.started(grant.server, grant.token)
    allocator.tell(grant.server, "idle", "GPU 0 did nothing.", time.time() + 600)
    yield Site(allocator)
    HubOAuth.clear_instance()


def sentence(answer: HTTPResponse) -> str:
    return str(json.loads(answer.body)["message"])


TRAINING = {"user": "anna", "server": "train<ing>"}


def test_the_page_sends_strangers_to_the_hubs_login(site: Site) -> None:
    async def visit(site: Site) -> None:
        answer = await site.get("")
        assert answer.code == 302
        assert answer.headers["Location"].startswith("/hub/api/oauth2/authorize?")

    site.run(visit)


@pytest.mark.parametrize("path", ["api/gpus", "api/me", "table"])
def test_scripts_of_strangers_are_refused(site: Site, path: str) -> None:
    async def visit(site: Site) -> None:
        assert (await site.get(path)).code == 403
        assert (await site.get(path, who="wrong")).code == 403
        assert (await site.get(path, who="other-token")).code == 403

    site.run(visit)


def test_the_api_tells_of_all_gpus(site: Site) -> None:
    async def visit(site: Site) -> None:
        answer = json.loads((await site.get("api/gpus", who="anna-token")).body)
        assert answer["pools"] == [{"name": "default", "policy": "exclusive", "total": 3, "usable": 2, "free": 1}]
        first, _unused, lost = answer["gpus"]
        assert (first["utilization_percent"], first["memory_total_bytes"], first["free"]) == (42, 2**36, 0)
        assert [(h["user"], h["server"], h["state"]) for h in first["holders"]] == [("anna", "train<ing>", "running")]
        assert lost["condition"] == "lost"
        assert lost["problems"] == ["GPU 2 does not answer any more: the driver lost it"]

    site.run(visit)


def test_the_api_tells_users_of_themselves_only(site: Site) -> None:
    async def visit(site: Site) -> None:
        anna = json.loads((await site.get("api/me", who="anna-token")).body)
        assert (anna["user"], anna["held"], anna["limit"]) == ("anna", 1, 2)
        assert [gpu["title"] for lease in anna["leases"] for gpu in lease["gpus"]] == ["GPU 0 (NVIDIA H100)"]
        assert [notice["text"] for notice in anna["notices"]] == ["GPU 0 did nothing."]
        other = json.loads((await site.get("api/me?server=", who="anna-token")).body)
        assert (other["leases"], other["notices"]) == ([], [])
        root = json.loads((await site.get("api/me", who="root-token")).body)
        assert (root["leases"], root["notices"], root["limit"]) == ([], [], 1)

    site.run(visit)


@pytest.mark.parametrize("token", ["root-token", "stops-all-token"])
def test_an_admin_releases_by_the_api(site: Site, token: str) -> None:
    async def visit(site: Site) -> None:
        answer = await site.post("api/release", TRAINING, who=token)
        assert (answer.code, site.hub.stopped) == (202, [Server("anna", "train<ing>")])
        assert "is being stopped" in sentence(answer)
        assert site.allocator.leases()[0].state == "running"

    site.run(visit)


def test_a_server_that_the_hub_does_not_know_is_marked(site: Site) -> None:
    async def visit(site: Site) -> None:
        site.hub.known = False
        answer = await site.post("api/release", TRAINING, who="root-token")
        assert answer.code == 202
        assert "as soon as nothing of that server is left" in sentence(answer)
        assert [lease.state for lease in site.allocator.leases()] == ["leaving"]

    site.run(visit)


def test_a_hub_that_does_not_stop_it_is_told(site: Site) -> None:
    async def visit(site: Site) -> None:
        site.hub.error = True
        answer = await site.post("api/release", TRAINING, who="root-token")
        assert (answer.code, sentence(answer)) == (
            502,
            "The hub did not stop the server anna/train<ing>: It answered 500.",
        )
        assert site.allocator.leases()[0].state == "running"

    site.run(visit)


@pytest.mark.parametrize(
    ("token", "body", "code"),
    [
        ("anna-token", TRAINING, 403),
        ("narrow-token", TRAINING, 403),
        ("stops-some-token", TRAINING, 403),
        (None, TRAINING, 403),
        ("root-token", {"user": "nobody"}, 404),
        ("root-token", {}, 400),
        ("root-token", {"user": 3}, 400),
        ("root-token", {"user": "anna", "server": None}, 400),
        ("root-token", "[]", 400),
        ("root-token", "{", 400),
        ("root-token", '"anna"', 400),
        ("root-token", "7", 400),
        ("root-token", "null", 400),
        ("root-token", "", 400),
        ("root-token", b"\xff", 400),
        ("root-token", "[" * 100_000, 400),
        ("root-token", '{"user": ' * 100_000, 400),
        ("root-token", f'{{"user": {"9" * 5000}}}', 400),
    ],
)
def test_other_releases_are_refused(site: Site, token: str | None, body: Any, code: int) -> None:
    async def visit(site: Site) -> None:
        answer = await site.post("api/release", body, who=token)
        assert answer.code == code, answer.body
        assert sentence(answer)
        assert site.hub.stopped == []

    site.run(visit)


@pytest.mark.parametrize("name", ["100%", "%s", "%(x)s", "%%"])
def test_percent_signs_are_shown_as_they_are(site: Site, name: str) -> None:
    async def visit(site: Site) -> None:
        answer = await site.post("api/release", {"user": name}, who="root-token")
        assert (answer.code, sentence(answer)) == (404, f"The server {name} holds no GPU.")
        await site.log_in("root-token")
        page = await site.get("release?" + urlencode({"user": name}), **{"Sec-Fetch-Mode": "navigate"})
        assert (page.code, f"The server {name} holds no GPU." in page.body.decode()) == (404, True)
        site.hub.error = True
        site.allocator.acquire(Request(Server(name), 1))
        answer = await site.post("api/release", {"user": name}, who="root-token")
        assert (answer.code, sentence(answer)) == (502, f"The hub did not stop the server {name}: It answered 500.")

    site.run(visit)


def test_a_cookie_alone_releases_nothing(site: Site) -> None:
    async def visit(site: Site) -> None:
        await site.log_in("root-token")
        form = urlencode(TRAINING)
        cors = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
        for headers in ({}, {"Sec-Fetch-Mode": "navigate"}, cors):
            assert (await site.post("api/release", TRAINING, **headers)).code == 403
            assert (await site.post("release", form, **headers)).code == 403
        assert (await site.get("api/me", **cors)).code == 403
        assert site.hub.stopped == []
        assert (await site.get("api/me", **cors, **{"X-XSRFToken": site.xsrf})).code == 200
        token = await site.release_token()
        answer = await site.post(
            "release",
            f"{form}&{urlencode({'_xsrf': token})}",
            **{"Content-Type": "application/x-www-form-urlencoded"},
        )
        assert answer.code == 302, answer.body
        assert answer.headers["Location"] == f"{PREFIX}?done=anna%2Ftrain%3Cing%3E"
        assert site.hub.stopped == [Server("anna", "train<ing>")]

    site.run(visit)


@pytest.mark.parametrize("mode", ["cors", "same-origin", "no-cors", "navigate", None])
def test_no_token_that_other_pages_can_read_releases(site: Site, mode: str | None) -> None:
    """A page of a user's server is of the same origin: it can look into the frame of notices, and at its cookies."""
    headers = {"Sec-Fetch-Mode": mode, "Sec-Fetch-Site": "same-origin"} if mode else {}

    async def visit(site: Site) -> None:
        await site.log_in("root-token")
        frame = await site.get("notices", **{"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"})
        found = re.search(r'data-xsrf="([^"]+)"', frame.body.decode())
        assert found
        for token in (found[1], site.xsrf):
            assert (await site.post("api/release", TRAINING, **headers, **{"X-XSRFToken": token})).code == 403
            form = urlencode({**TRAINING, "_xsrf": token})
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            assert (await site.post("release", form, **headers, **kind)).code == 403
        assert site.hub.stopped == []
        token = await site.release_token()
        assert token not in (found[1], site.xsrf)
        answer = await site.post("api/release", TRAINING, **headers, **{"X-XSRFToken": token})
        assert (answer.code, site.hub.stopped) == (202, [Server("anna", "train<ing>")])

    site.run(visit)


def test_a_release_token_is_for_one_visitor(site: Site) -> None:
    async def visit(site: Site) -> None:
        await site.log_in("root-token")
        token = await site.release_token()
        site.cookies += "; jupyterhub-session-id=other"
        assert (await site.post("api/release", TRAINING, **{"X-XSRFToken": token})).code == 403
        assert site.hub.stopped == []

    site.run(visit)


@pytest.mark.parametrize("path", ["", "release?" + urlencode({"user": "anna", "server": "train<ing>"})])
def test_scripts_do_not_get_the_pages(site: Site, path: str) -> None:
    async def visit(site: Site) -> None:
        await site.log_in("root-token")
        for mode, kind in (("cors", "empty"), ("same-origin", "empty"), ("no-cors", "empty"), ("navigate", "iframe")):
            seen = {"Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": kind, "Sec-Fetch-Site": "same-origin"}
            answer = await site.get(path, **seen, **{"X-XSRFToken": site.xsrf})
            assert (answer.code, b"_xsrf" in answer.body, b"anna" in answer.body) == (403, False, False)
        answer = await site.get(path, **{"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"})
        assert answer.code == 200
        assert answer.headers["Cross-Origin-Opener-Policy"] == "noopener-allow-popups"
        assert (await site.get("table", **{"Sec-Fetch-Mode": "cors", "X-XSRFToken": site.xsrf})).code == 200

    site.run(visit)


def test_only_admins_see_buttons_and_nothing_is_markup_of_users(site: Site) -> None:
    async def visit(site: Site) -> None:
        await site.log_in("anna-token")
        page = (await site.get("", **{"Sec-Fetch-Mode": "navigate"})).body.decode()
        assert "train&lt;ing&gt;" in page
        assert "train<ing>" not in page
        assert "GPU 0 did nothing." in page
        assert "Release" not in page
        assert (await site.get("release?" + urlencode(TRAINING), **{"Sec-Fetch-Mode": "navigate"})).code == 403
        await site.log_in("root-token")
        answer = await site.get("", **{"Sec-Fetch-Mode": "navigate"})
        page = answer.body.decode()
        assert "release?user=anna&amp;server=train%3Cing%3E" in page
        assert "GPU 0 did nothing." not in page
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        answer = await site.get("notices", **{"Sec-Fetch-Mode": "navigate"})
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'self'"

    site.run(visit)


def test_settings_that_are_broken_from_the_start(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text("", encoding="utf-8")
    site.allocator = Allocator(settings)
    told = f"GPUs can't be given out now. Tell an administrator: {settings}: the file is empty."

    async def visit(site: Site) -> None:
        for path in ("api/gpus", "api/me"):
            answer = await site.get(path, who="anna-token")
            assert (answer.code, sentence(answer)[: len(told)]) == (503, told)
        await site.log_in("anna-token", expected=503)
        page = await site.get("", **{"Sec-Fetch-Mode": "navigate"})
        assert (page.code, html.unescape(page.body.decode()).count(told)) == (503, 1)

    site.run(visit)
    assert "the file is empty" in caplog.text
    assert "Traceback" not in caplog.text


def test_the_page_says_that_the_collector_is_away(site: Site) -> None:
    async def visit(site: Site) -> None:
        site.allocator.settings.usage.unlink()
        await site.log_in("anna-token")
        page = (await site.get("", **{"Sec-Fetch-Mode": "navigate"})).body.decode()
        assert "How busy the GPUs are is not known now." in page
        assert str(site.allocator.settings.usage) not in page

    site.run(visit)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 min"), (59, "0 min"), (3600, "1 h 0 min"), (11520, "3 h 12 min"), (200000, "2 d 7 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert service.duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (2**29, "0.5"), (80 * 2**30, "80")])
def test_memory(number: int, text: str) -> None:
    assert service.gigabytes(number) == text


class HubStub(web.RequestHandler):
    """The few answers of a hub and of a user's server that the client reads."""

    seen: ClassVar[list[tuple[str, str]]] = []
    kernels: ClassVar[Any] = []

    def prepare(self) -> None:
        token = "of the user" if (self.request.uri or "").startswith("/user/") else "secret"
        assert self.request.headers["Authorization"] == f"token {token}"
        self.seen.append((self.request.method or "", self.request.uri or ""))

    def get(self) -> None:
        uri = self.request.uri or ""
        if uri.endswith("/api/kernels"):
            self.finish(json.dumps(self.kernels))
        elif uri.endswith("/users/a%20b%2F"):
            servers = {name: {"ready": True, "pending": None, "url": f"/user/x/{name}"} for name in ("", "t/1")}
            self.finish({"name": "a b/", "servers": servers})
        elif uri.endswith("/users/gone"):
            raise web.HTTPError(404)
        else:
            raise web.HTTPError(500)

    def post(self) -> None:
        assert json.loads(self.request.body)["scopes"] == ["access:servers!user"]
        self.set_status(201)
        self.finish({"token": "of the user"})

    def delete(self) -> None:
        self.set_status(202)


def with_client(use: Callable[[HubClient], Awaitable[None]]) -> list[tuple[str, str]]:
    HubStub.seen = []

    async def main() -> None:
        socket, port = bind_unused_port()
        server = HTTPServer(web.Application([(".*", HubStub)]))
        server.add_socket(socket)
        await use(HubClient(f"http://127.0.0.1:{port}/hub/api", "secret", f"http://127.0.0.1:{port}"))
        server.stop()

    asyncio.run(main())
    return HubStub.seen


def test_the_client_stops_servers_and_knows_which_are_not_there() -> None:
    async def use(client: HubClient) -> None:
        assert await client.server(Server("a b/", "t/1")) == RunningServer("a b/", True, None, "/user/x/t/1")
        assert await client.stop(Server("a b/", "t/1"))
        assert await client.stop(Server("a b/"))
        assert not await client.stop(Server("a b/", "other"))
        assert not await client.stop(Server("gone"))
        with pytest.raises(HubError, match="answered 500"):
            await client.stop(Server("broken"))

    deleted = [uri for method, uri in with_client(use) if method == "DELETE"]
    assert deleted == ["/hub/api/users/a%20b%2F/servers/t%2F1", "/hub/api/users/a%20b%2F/server"]


@pytest.mark.parametrize(
    ("kernels", "busy"),
    [
        ([], False),
        ([{"execution_state": "idle"}, {"execution_state": "dead"}], False),
        ([{"execution_state": "idle"}, {"execution_state": "busy"}], True),
        ([{"execution_state": "starting"}], False),
        ([{"execution_state": "restarting"}], True),
        ([{}], None),
        ({"message": "no"}, None),
    ],
)
def test_the_client_asks_for_kernels(kernels: Any, busy: bool | None) -> None:
    HubStub.kernels = kernels

    async def use(client: HubClient) -> None:
        running = RunningServer("a b/", True, None, "/user/x/t/1/")
        if busy is None:
            with pytest.raises(HubError, match="did not answer with its kernels"):
                await client.busy_kernels(running)
        else:
            assert await client.busy_kernels(running) is busy

    assert with_client(use) == [("POST", "/hub/api/users/a%20b%2F/tokens"), ("GET", "/user/x/t/1/api/kernels")]


def test_a_hub_that_is_away_is_a_sentence() -> None:
    async def use(_unused: HubClient) -> None:
        with pytest.raises(HubError, match="can't be reached"):
            await HubClient("http://127.0.0.1:1/hub/api", "secret", "http://127.0.0.1:1").server(Server("anna"))

    with_client(use)


@pytest.mark.parametrize("error", [RuntimeError("once more"), ConfigurationError("The file is empty.")])
def test_an_error_of_periodic_work_does_not_end_it(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    done = []

    async def work() -> None:
        done.append(1)
        raise error

    async def main() -> None:
        task = asyncio.create_task(service.periodically(work, "This", period=0.01))
        async with asyncio.timeout(60):
            while len(done) < 3:
                await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(main())
    assert str(error) in caplog.text
    assert (len(caplog.records) == 1) == isinstance(error, ConfigurationError)
    assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)


@pytest.mark.parametrize("state", ["running", "leaving"])
def test_what_a_stopped_server_held_is_free_soon(tmp_path: Path, state: str) -> None:
    """Its kernels may end after it. Servers that nobody stops are looked at each minute only."""

    class Backend:
        asked = 0

        def observe(self, leases: tuple[Lease, ...], _inventory: object) -> Observation:
            Backend.asked += 1
            alive = {lease.server: lease.units for lease in leases if Backend.asked < 3}
            return Observation(alive)

    async def main() -> None:
        task = asyncio.create_task(service.periodically(reconciler.free_leaving, "This", period=0.01))
        for _attempt in range(6000 if state == "leaving" else 100):
            await asyncio.sleep(0.01)
            if not allocator.leases():
                break
        task.cancel()

    allocator = hub_site.Site(tmp_path).open(hub=None)
    server = Server("anna")
    grant = hub_site.take(allocator, "anna")
    if state == "leaving":
        allocator.leaving(server, grant.token)
    reconciler = service.Reconciler(allocator, Backend())
    asyncio.run(main())
    assert [lease.server for lease in allocator.leases()] == ([] if state == "leaving" else [server])
    assert Backend.asked == (3 if state == "leaving" else 0)


def test_a_conflict_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where a pool becomes `exclusive`, its GPUs may have more servers for hours."""

    class Backend:
        def observe(self, leases: tuple[Lease, ...], _inventory: object) -> Observation:
            return Observation({lease.server: lease.units for lease in leases})

    site = hub_site.Site(tmp_path)
    allocator = site.open(hub=None)
    site.settings({"name": "default", "policy": "share", "servers_per_gpu": 2})
    for user in ("anna", "ben", "cleo"):
        hub_site.take(allocator, user)
    site.settings({"name": "default"})
    reconciler = service.Reconciler(allocator, Backend())
    for _unused in range(3):
        asyncio.run(reconciler.run())
    assert [record.getMessage() for record in caplog.records] == [
        "GPU-0 is held by anna and cleo, more than the pool default gives it to."
    ]
