# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hub's service `gpus`: the page of the GPUs, its API, the reconciler and the culler."""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.log import enable_pretty_logging

from .allocator import Allocator, Lease, Observation, Server, State, UnitState
from .backends import Backend, backend_of
from .culler import Culler
from .hub_client import HubClient, HubError
from .refusal import out_of_order
from .settings import ConfigurationError
from .usage import UnitUsage, Usage, read_usage

PERIOD_S = 60.0
LEAVING_PERIOD_S = 5.0  # a kernel may outlive its server by some seconds
HERE = Path(__file__).parent

log = logging.getLogger(__name__)


def duration(seconds: float) -> str:
    """A time span as people say it: `3 h 12 min`."""
    minutes = max(0, int(seconds // 60))
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def gigabytes(number: int) -> str:
    """Memory in GB, as on the card's box, short enough for a table."""
    amount = number / 2**30
    return f"{amount:.0f}" if amount >= 10 or amount == 0 else f"{amount:.1f}"


@dataclass(frozen=True)
class Row:
    """A GPU or slice on the page."""

    state: UnitState
    usage: UnitUsage

    @property
    def label(self) -> str:
        """What people call it."""
        return f"GPU {self.state.unit.index}" if self.state.unit else "GPU"

    @property
    def name(self) -> str:
        """Its model, with the profile of a slice."""
        return self.state.unit.model if self.state.unit else self.state.uuid

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it is not given, the collector's own sentence for one that is lost."""
        if self.usage.state == "lost" and self.usage.reason:
            return (self.usage.reason,)
        return self.state.problems

    @property
    def memory_percent(self) -> int | None:
        """How full its memory is."""
        used, total = self.usage.memory_used_bytes, self.usage.memory_total_bytes
        return None if used is None or not total else min(100, round(100 * used / total))


class Desk:
    """All that the handlers need: what is shown, and who may release."""

    def __init__(
        self,
        allocator: Allocator,
        hub: HubClient,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Shows what an allocator and the collector say, and stops servers by the hub."""
        self.allocator = allocator
        self.hub = hub
        self.clock = clock

    def usage(self) -> Usage:
        """What the GPUs do now."""
        return read_usage(self.allocator.settings.usage, self.clock())

    def rows(self, state: State) -> tuple[Row, ...]:
        """The table."""
        usage = self.usage()
        return tuple(Row(unit, usage.of(unit.uuid)) for unit in state.units)

    def document(self) -> dict[str, Any]:
        """The answer of `api/gpus`."""
        state, now = self.allocator.state(), self.clock()
        return {
            "time": now,
            "problem": state.problem,
            "next_idle": state.next_idle,
            "pools": [
                {"name": p.pool.name, "policy": p.pool.policy, "total": p.total, "usable": p.usable, "free": p.free}
                for p in state.pools
            ],
            "gpus": [_gpu(row) for row in self.rows(state)],
        }

    def about(self, user: str, groups: list[str], server: str | None) -> dict[str, Any]:
        """The answer of `api/me`; a server's name narrows it down to that server."""
        state = self.allocator.state()
        inventory = self.allocator.inventory
        return {
            "user": user,
            "held": state.held(user),
            "limit": state.limit(user, groups),
            "leases": [
                {
                    "server": lease.server.name,
                    "state": lease.state,
                    "since": lease.since,
                    "gpus": [{"uuid": uuid, "title": inventory.title(uuid)} for uuid in lease.units],
                }
                for lease in state.leases
                if lease.server.user == user and server in (None, lease.server.name)
            ],
            "notices": [
                {
                    "id": f"{notice.kind}-{notice.server.name}-{notice.at:.3f}",
                    "server": notice.server.name,
                    "kind": notice.kind,
                    "text": notice.text,
                    "at": notice.at,
                    "until": notice.until,
                }
                for notice in state.notices
                if notice.server.user == user and server in (None, notice.server.name)
            ],
        }

    async def release(self, server: Server, admin: str) -> str:
        """Stop a server that holds GPUs; what happens, in a sentence."""
        lease = self.lease(server)
        if lease is None:
            raise web.HTTPError(404, f"The server {server} holds no GPU.")
        try:
            known = await self.hub.stop(server)
        except HubError as error:
            raise web.HTTPError(502, f"The hub did not stop the server {server}: {error}") from error
        log.info("%s released the GPUs of the server %s.", admin, server)
        if known:
            return f"The server {server} is being stopped; its GPU is free as soon as it is gone."
        self.allocator.leaving(server, lease.token)
        return f"The hub runs no server {server}; its GPU is free as soon as nothing of that server is left."

    def lease(self, server: Server) -> Lease | None:
        """The lease of a server."""
        return next((lease for lease in self.allocator.leases() if lease.server == server), None)


def _gpu(row: Row) -> dict[str, Any]:
    unit = row.state.unit
    return {
        "uuid": row.state.uuid,
        "index": unit.index if unit else None,
        "name": unit.name if unit else None,
        "profile": unit.profile if unit else None,
        "pool": row.state.pool,
        "condition": row.usage.state,
        "problems": list(row.problems),
        "free": row.state.free,
        "utilization_percent": row.usage.utilization_percent,
        "memory_used_bytes": row.usage.memory_used_bytes,
        "memory_total_bytes": row.usage.memory_total_bytes,
        "holders": [
            {"user": lease.server.user, "server": lease.server.name, "since": lease.since, "state": lease.state}
            for lease in row.state.holders
        ],
    }


def _sentence(exc_info: Any = (None, None, None), **_: Any) -> str | None:
    """What an error says; tornado keeps it as a format of the log."""
    error = exc_info[1]
    return error.log_message % error.args if isinstance(error, web.HTTPError) and error.log_message else None


class Handler(HubOAuthenticated, web.RequestHandler):  # type: ignore[misc]
    """What pages and API have in common."""

    frame_ancestors = "'none'"

    @property
    def desk(self) -> Desk:
        """What is shown."""
        desk: Desk = self.settings["desk"]
        return desk

    def set_default_headers(self) -> None:
        """No other site may show these pages, and no cache keep them."""
        self.set_header("Content-Security-Policy", f"frame-ancestors {self.frame_ancestors}")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")

    @property
    def is_admin(self) -> bool:
        """Whether the visitor may release: the token, not only its owner, must be good for more than a visit."""
        visitor = self.current_user
        return "delete:servers" in visitor["scopes"] or bool(visitor.get("admin") and "admin-ui" in visitor["scopes"])

    def admins_only(self) -> None:
        """Refuse everybody else."""
        if not self.is_admin:
            raise web.HTTPError(403, "Only admins can release GPUs.")

    def named_server(self, user: Any, server: Any) -> Server:
        """The server that a request names."""
        if not isinstance(user, str) or not user or not isinstance(server, str):
            raise web.HTTPError(400, "Name the server to release by its user and, where it has one, its own name.")
        return Server(user, server)

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Say which file is wrong where one is."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        if isinstance(error, ConfigurationError):
            refused = web.HTTPError(503, out_of_order(error))
            kwargs["exc_info"] = (web.HTTPError, refused, None)
            status_code = 503
        super().send_error(status_code, **kwargs)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log what is wrong with a file without a traceback."""
        if isinstance(value, ConfigurationError):
            log.error("%s", value)
        else:
            super().log_exception(typ, value, tb)

    def get_template_namespace(self) -> dict[str, Any]:
        """What all templates know."""
        auth = self.hub_auth
        return {
            **super().get_template_namespace(),
            "hub": auth.hub_host + auth.hub_prefix,
            "prefix": self.settings["prefix"],
            "user": None,
            "admin": False,
            "duration": duration,
            "gigabytes": gigabytes,
            "time_of": lambda moment: time.strftime("%Y-%m-%d %H:%M", time.localtime(moment)),
            "query": lambda server: urlencode({"user": server.user, "server": server.name}),
        }


class Releasing(Handler):
    """What releases: with a cookie, only by a token that no other page has, nor a cookie that scripts can read."""

    @property
    def release_token(self) -> str:
        """The token of this visitor's login."""
        login = f"release {self.hub_auth.get_session_id(self)} {self.hub_auth.get_token(self)}"
        return hmac.digest(self.settings["cookie_secret"], login.encode(), "sha256").hex()

    def check_xsrf_cookie(self) -> None:
        """Refuse the XSRF tokens of other pages."""
        given = self.get_argument("_xsrf", "") or self.request.headers.get("X-XSRFToken", "")
        if not getattr(self, "_token_authenticated", False) and not hmac.compare_digest(
            given.encode(), self.release_token.encode()
        ):
            raise web.HTTPError(403, "Release GPUs by the button on the page of the GPUs.")

    async def release(self, user: Any, server: Any) -> tuple[Server, str]:
        """Release what a server holds; the server, and what happens."""
        self.check_xsrf_cookie()  # JupyterHub does not check all requests
        self.admins_only()
        named = self.named_server(user, server)
        return named, await self.desk.release(named, self.current_user["name"])


class PageHandler(Handler):
    """Pages for people: they log in by way of the hub."""

    documents_only = False

    def set_default_headers(self) -> None:
        """No other page may hold on to the window either."""
        super().set_default_headers()
        if self.documents_only:
            self.set_header("Cross-Origin-Opener-Policy", "noopener-allow-popups")

    def prepare(self) -> None:
        """Refuse to show a script what is for people: pages of users' servers are of the same origin."""
        headers = self.request.headers
        seen = headers.get("Sec-Fetch-Mode", "navigate"), headers.get("Sec-Fetch-Dest", "document")
        if self.documents_only and seen != ("navigate", "document"):
            raise web.HTTPError(403, "Open this page in a window of its own.")

    def show(self, template: str, **values: Any) -> None:
        """Answer with a template."""
        self.render(template, **{"user": self.current_user["name"], "admin": self.is_admin, **values})

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A page in place of the traceback."""
        self.render("error.html", status=status_code, reason=self._reason, message=_sentence(**kwargs))


class GpusHandler(PageHandler):
    """The page."""

    documents_only = True
    template = "gpus.html"

    @web.authenticated
    def get(self) -> None:
        """Show it."""
        state = self.desk.allocator.state()
        user = self.current_user["name"]
        self.show(
            self.template,
            state=state,
            rows=self.desk.rows(state),
            usage=self.desk.usage(),
            now=self.desk.clock(),
            notices=[notice for notice in state.notices if notice.server.user == user],
            done=self.get_argument("done", ""),
        )


class TableHandler(GpusHandler):
    """The part of the page that is refreshed."""

    documents_only = False
    template = "table.html"

    def get_login_url(self) -> str:
        """A script can't log in; it loads the page anew."""
        raise web.HTTPError(403, "Log in first.")


class ReleaseHandler(Releasing, PageHandler):
    """Asks an admin whether to release, and does it."""

    documents_only = True

    @web.authenticated
    def get(self) -> None:
        """Ask."""
        self.admins_only()
        server = self.named_server(self.get_argument("user", ""), self.get_argument("server", ""))
        lease = self.desk.lease(server)
        if lease is None:
            raise web.HTTPError(404, f"The server {server} holds no GPU.")
        titles = [self.desk.allocator.inventory.title(uuid) for uuid in lease.units]
        self.show("release.html", server=server, lease=lease, titles=titles, now=self.desk.clock())

    @web.authenticated
    async def post(self) -> None:
        """Do it."""
        server, _said = await self.release(self.get_argument("user", ""), self.get_argument("server", ""))
        self.redirect(f"{self.settings['prefix']}?{urlencode({'done': str(server)})}")


class NoticesHandler(PageHandler):
    """A page without content that JupyterLab has in a hidden frame, and that hands notices to Lab."""

    frame_ancestors = "'self'"

    @web.authenticated
    def get(self) -> None:
        """Show it."""
        self.show("notices.html", server=self.get_argument("server", ""))


class ApiHandler(Handler):
    """The API: JSON, with a hub token or with the cookie and the XSRF token of a page."""

    def prepare(self) -> None:
        """Refuse who is not logged in."""
        if not self.current_user:
            raise web.HTTPError(403, "Log in, or send a token of the hub.")

    def get_login_url(self) -> str:
        """An API does not redirect."""
        raise web.HTTPError(403, "Log in, or send a token of the hub.")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A sentence in JSON."""
        self.finish({"status": status_code, "message": _sentence(**kwargs) or self._reason})


class ApiGpusHandler(ApiHandler):
    """All GPUs."""

    def get(self) -> None:
        """Tell of them."""
        self.finish(self.desk.document())


class ApiMeHandler(ApiHandler):
    """What concerns the one who asks."""

    def get(self) -> None:
        """Tell it."""
        user = self.current_user
        self.finish(self.desk.about(user["name"], user.get("groups") or [], self.get_argument("server", None)))


class ApiReleaseHandler(Releasing, ApiHandler):
    """Releases for admins."""

    async def post(self) -> None:
        """Do it."""
        try:
            wanted = json.loads(self.request.body)
            user, name = wanted["user"], wanted.get("server", "")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            user = name = None
        _server, said = await self.release(user, name)
        self.set_status(202)
        self.finish({"message": said})


def application(desk: Desk, prefix: str) -> web.Application:
    """The web application below a path that ends with a slash."""
    return web.Application(
        [
            (prefix, GpusHandler),
            (f"{prefix}table", TableHandler),
            (f"{prefix}release", ReleaseHandler),
            (f"{prefix}notices", NoticesHandler),
            (f"{prefix}api/gpus", ApiGpusHandler),
            (f"{prefix}api/me", ApiMeHandler),
            (f"{prefix}api/release", ApiReleaseHandler),
            (f"{prefix}oauth_callback", HubOAuthCallbackHandler),
        ],
        desk=desk,
        prefix=prefix,
        cookie_secret=os.urandom(32),
        template_path=str(HERE / "templates"),
        static_path=str(HERE / "static"),
        static_url_prefix=f"{prefix}static/",
    )


async def periodically(work: Callable[[], Awaitable[None]], what: str, period: float = PERIOD_S) -> None:
    """Work now and each period; an error is logged and the next try comes all the same.

    What is wrong with a file is said once, as that may stay so for hours.
    """
    said = ""
    while True:
        try:
            await work()
            said = ""
        except ConfigurationError as error:
            if str(error) != said:
                said = str(error)
                log.error("%s failed and is tried again each %s seconds: %s.", what, round(period), error)  # noqa: TRY400
        except Exception:
            log.exception("%s failed and is tried again in %s seconds.", what, round(period))
        await asyncio.sleep(period)


class Reconciler:
    """Frees what dead servers hold; in a thread, as it waits for systemd or Docker."""

    def __init__(self, allocator: Allocator, backend: Backend) -> None:
        """Compares an allocator's leases with what a backend runs."""
        self._allocator = allocator
        self._backend = backend
        self._said: tuple[str, ...] = ()

    async def run(self) -> None:
        """Reconcile once. What is in conflict may stay so as long as servers run, and is said when it is new."""
        report = await asyncio.get_running_loop().run_in_executor(None, self._allocator.reconcile, self._observe)
        for lease in report.freed:
            log.info("Freed what the server %s held, as it is gone.", lease.server)
        for lease in report.adopted:
            log.warning("The server %s runs with GPUs and had no lease; it has one now.", lease.server)
        for sentence in report.conflicts:
            if sentence not in self._said:
                log.warning("%s", sentence)
        self._said = report.conflicts

    async def free_leaving(self) -> None:
        """Reconcile if servers are being stopped."""
        leases = await asyncio.get_running_loop().run_in_executor(None, self._allocator.leases)
        if any(lease.state == "leaving" for lease in leases):
            await self.run()

    def _observe(self, leases: tuple[Lease, ...]) -> Observation:
        return self._backend.observe(leases, self._allocator.inventory)


async def serve(settings: Path, backend: str, environment: dict[str, str]) -> None:
    """Run the service until it is asked to stop."""
    allocator = Allocator(settings)
    address = urlsplit(environment["JUPYTERHUB_SERVICE_URL"])
    proxy = environment.get("CUDAHUB_PROXY_URL") or environment.get("JUPYTERHUB_PUBLIC_URL") or "http://127.0.0.1:8000"
    hub = HubClient(environment["JUPYTERHUB_API_URL"], environment["JUPYTERHUB_API_TOKEN"], proxy)
    desk = Desk(allocator, hub)
    docker_client = environment.get("CUDAHUB_DOCKER_CLIENT", "")
    reconciler = Reconciler(allocator, backend_of(backend, allocator.state_directory, docker_client))
    culler = Culler(allocator, hub, desk.usage)
    server = HTTPServer(application(desk, environment["JUPYTERHUB_SERVICE_PREFIX"]), xheaders=True)
    server.listen(address.port or 80, address.hostname or "127.0.0.1", reuse_port=True)
    log.info("The page of the GPUs is at %s", environment["JUPYTERHUB_SERVICE_PREFIX"])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tasks = [
        asyncio.create_task(periodically(reconciler.run, "Comparing the leases with what runs")),
        asyncio.create_task(
            periodically(reconciler.free_leaving, "Freeing what stopped servers held", LEAVING_PERIOD_S)
        ),
        asyncio.create_task(periodically(culler.check, "Looking for idle GPUs")),
    ]
    await stop.wait()
    for task in tasks:
        task.cancel()
    server.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run the service."""
    parser = argparse.ArgumentParser(prog="cudahub_hub.service", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", type=Path, required=True, help="the settings file of the hub's GPUs")
    parser.add_argument("--backend", required=True, help="what runs the users' servers: systemd, docker or process")
    given = parser.parse_args(arguments)
    enable_pretty_logging()
    logging.getLogger().setLevel(logging.INFO)
    try:
        asyncio.run(serve(given.settings, given.backend, dict(os.environ)))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"{error.args[0]} is not set: this is a service that JupyterHub starts.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
