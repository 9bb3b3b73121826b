# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for traefik (github.com/traefik/traefik) below a hub of TLJH: ``traefik version``, ``traefik -c FILE``.

It takes the same files: addresses from FILE, the certificate and the routes from ``rules/*.toml`` beside it; routes
are those of jupyterhub-traefik-proxy. It passes on HTTP and WebSockets, and answers that package's questions.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from pathlib import Path
from typing import Any

import toml
from tornado import httpclient, httpserver, httputil, netutil, web, websocket

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "upgrade"}


class Routes:
    """What the hub has written."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rules.toml"
        self.stamp: tuple[int, int, int] | None = None
        self.http: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Read the file again if it is another one."""
        found = self.path.stat()
        stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        if stamp != self.stamp:
            self.http = toml.load(self.path).get("http", {})
            self.stamp = stamp
        return self.http

    def target(self, path: str) -> str | None:
        """The address of the server that has the longest prefix of the path."""
        http = self.read()
        best: tuple[str, str | None] = ("", None)
        for router in http.get("routers", {}).values():
            for kind, prefix in re.findall(r"(PathPrefix|Path)\(`([^`]*)`\)", router["rule"]):
                fits = path.startswith(prefix) if kind == "PathPrefix" else path == prefix
                if fits and len(prefix) >= len(best[0]) and router["service"] in http["services"]:
                    best = (prefix, http["services"][router["service"]]["loadBalancer"]["servers"][0]["url"])
        return best[1]


class Api(web.RequestHandler):
    """Tells what is known."""

    def initialize(self, routes: Routes, entry_points: dict[str, Any]) -> None:
        self.routes, self.entry_points = routes, entry_points

    def get(self, path: str) -> None:
        http = self.routes.read()
        known = {"overview", *(f"entrypoints/{name}" for name in self.entry_points)}
        known |= {f"http/{kind}/{name}@file" for kind in ("services", "routers") for name in http.get(kind, {})}
        if path not in known:
            raise web.HTTPError(404)
        self.write({"name": path})


class Redirect(web.RequestHandler):
    """Sends browsers to HTTPS."""

    def prepare(self) -> None:
        self.redirect(f"https://{self.request.host_name}{self.request.uri}")


class Pass(websocket.WebSocketHandler):
    """Passes requests on."""

    SUPPORTED_METHODS = ("GET", "HEAD", "POST", "DELETE", "PATCH", "PUT", "OPTIONS")
    other = None

    def initialize(self, routes: Routes) -> None:
        self.routes = routes

    def check_origin(self, _origin: str) -> bool:
        return True

    def select_subprotocol(self, _subprotocols: list[str]) -> str | None:
        return self.other.selected_subprotocol if self.other else None

    def passed(self) -> httputil.HTTPHeaders:
        headers = self.request.headers.copy()
        headers["X-Forwarded-Proto"] = self.request.protocol
        headers["X-Forwarded-For"] = self.request.remote_ip
        headers["X-Forwarded-Host"] = self.request.host
        return headers

    async def prepare(self) -> None:
        target = self.routes.target(self.request.path)
        if target is None:
            raise web.HTTPError(404)
        if self.request.headers.get("Upgrade", "").lower() == "websocket":
            await self.connect(target)
        else:
            await self.forward(target)

    async def connect(self, target: str) -> None:
        headers = self.passed()
        offered = headers.pop("Sec-Websocket-Protocol", "")
        for name in list(headers):
            if name.lower().startswith("sec-websocket") or name.lower() in HOP_BY_HOP:
                del headers[name]
        request = httpclient.HTTPRequest(f"ws{target[4:]}{self.request.uri}", headers=headers)
        try:
            self.other = await websocket.websocket_connect(
                request, subprotocols=[one.strip() for one in offered.split(",") if one.strip()]
            )
        except httpclient.HTTPClientError as error:
            raise web.HTTPError(error.code) from error

    async def open(self, *_arguments: str) -> None:
        self.task = asyncio.ensure_future(self.pump())

    async def pump(self) -> None:
        while (message := await self.other.read_message()) is not None:
            await self.write_message(message, binary=isinstance(message, bytes))
        self.close()

    async def on_message(self, message: str | bytes) -> None:
        await self.other.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        if self.other:
            self.other.close()

    async def forward(self, target: str) -> None:
        request = httpclient.HTTPRequest(
            target + self.request.uri,
            method=self.request.method,
            headers=self.passed(),
            body=self.request.body or None,
            allow_nonstandard_methods=True,
            follow_redirects=False,
            decompress_response=False,
            request_timeout=600,
            header_callback=self.header,
            streaming_callback=self.chunk,
        )
        try:
            answer = await httpclient.AsyncHTTPClient().fetch(request, raise_error=False)
        except OSError:
            raise web.HTTPError(502) from None
        if answer.code == 599:
            raise web.HTTPError(502)
        self.set_status(answer.code, answer.reason)
        await self.finish()

    def header(self, line: str) -> None:
        if line.startswith("HTTP/"):
            self.clear()
            self.clear_header("Content-Type")
            self.set_status(int(line.split()[1]))
        elif ":" in line:
            name, _colon, value = line.partition(":")
            if name.lower() not in HOP_BY_HOP or name.lower() == "content-encoding":
                self.add_header(name, value.strip())

    def chunk(self, content: bytes) -> None:
        self.write(content)
        self.flush()


def listen(application: web.Application, address: str, certificate: dict[str, str] | None = None) -> None:
    """Serve at an address such as ":80"."""
    host, _colon, port = address.rpartition(":")
    options = None
    if certificate:
        options = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        options.load_cert_chain(certificate["certFile"], certificate["keyFile"])
    server = httpserver.HTTPServer(application, ssl_options=options, max_buffer_size=1 << 30)
    server.add_sockets(netutil.bind_sockets(int(port), host))


async def serve(path: Path) -> None:
    """Serve until the end."""
    entry_points = toml.load(path)["entryPoints"]
    rules = path.parent / "rules"
    routes = Routes(rules)
    stores = toml.load(rules / "dynamic.toml").get("tls", {}).get("stores", {})
    httpclient.AsyncHTTPClient.configure("tornado.simple_httpclient.SimpleAsyncHTTPClient", max_clients=1000)
    for name, one in entry_points.items():
        if name == "auth_api":
            handler = (r"/api/(.*)", Api, {"routes": routes, "entry_points": entry_points})
        elif name == "http" and "https" in entry_points:
            handler = (r".*", Redirect)
        else:
            handler = (r".*", Pass, {"routes": routes})
        certificate = stores.get("default", {}).get("defaultCertificate") if name == "https" else None
        listen(web.Application([handler]), one["address"], certificate)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "version":
        from tljh.traefik import traefik_version

        print(f"Version:      {traefik_version}")
    else:
        asyncio.run(serve(Path(sys.argv[2])))
