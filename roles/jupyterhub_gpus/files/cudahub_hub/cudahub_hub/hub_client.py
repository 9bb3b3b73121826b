# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hub's API as the service uses it, and the API of users' servers behind the hub's proxy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPResponse

from .leases import Server

TIMEOUT_S = 20.0
TOKEN_S = 60
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


RESTING = frozenset({"idle", "starting", "dead"})
"""States of kernels that run no code; one that nobody ever connected to stays at `starting`."""


class HubError(Exception):
    """The hub or a user's server did not do what it was asked; the message is a sentence."""


@dataclass(frozen=True)
class RunningServer:
    """A server of a user as the hub knows it; the URL is a path."""

    user: str
    ready: bool
    pending: str | None
    url: str


class HubClient:
    """Talks to the hub with the service's token.

    Its scopes: `read:users:name` and `read:servers` to look servers up, `delete:servers` to stop them, `tokens` to
    ask them for their kernels. Users read all that is sent to their servers, so these get a token of their own user.
    """

    def __init__(self, api_url: str, token: str, proxy_url: str) -> None:
        """Knows where the hub's API is, and the proxy in front of the users' servers."""
        self._api = api_url.rstrip("/")
        self._proxy = proxy_url.rstrip("/")
        self._token = token
        self._client = AsyncHTTPClient()

    async def server(self, server: Server) -> RunningServer | None:
        """A server that the hub runs, None where it knows no such server."""
        answer = await self._find(f"{self._api}/users/{_part(server.user)}")
        found = (json.loads(answer.body).get("servers") or {}).get(server.name) if answer else None
        if found is None:
            return None
        return RunningServer(server.user, bool(found["ready"]), found.get("pending"), str(found["url"]))

    async def stop(self, server: Server) -> bool:
        """Have a server stopped; False where the hub knows no such server."""
        if await self.server(server) is None:
            return False
        place = f"servers/{_part(server.name)}" if server.name else "server"
        url = f"{self._api}/users/{_part(server.user)}/{place}"
        return await self._find(url, "DELETE") is not None

    async def busy_kernels(self, running: RunningServer) -> bool:
        """Whether a kernel of a server works."""
        url = running.url if urlsplit(running.url).netloc else self._proxy + running.url
        wanted = {"note": "Looking for busy kernels", "expires_in": TOKEN_S, "scopes": ["access:servers!user"]}
        made = await self._fetch(f"{self._api}/users/{_part(running.user)}/tokens", "POST", body=json.dumps(wanted))
        answer = await self._fetch(f"{url.rstrip('/')}/api/kernels", token=json.loads(made.body)["token"])
        try:
            return any(kernel["execution_state"] not in RESTING for kernel in json.loads(answer.body))
        except (ValueError, KeyError, TypeError) as error:
            raise HubError(f"{url} did not answer with its kernels.") from error

    async def _find(self, url: str, method: str = "GET") -> HTTPResponse | None:
        """The answer, None where there is no such thing."""
        try:
            return await self._fetch(url, method)
        except HubError as error:
            if isinstance(error.__cause__, HTTPClientError) and error.__cause__.code == 404:
                return None
            raise

    async def _fetch(
        self, url: str, method: str = "GET", *, body: str | None = None, token: str | None = None
    ) -> HTTPResponse:
        local = urlsplit(url).hostname in LOOPBACK
        try:
            return await self._client.fetch(
                url,
                method=method,
                body=body,
                headers={"Authorization": f"token {token or self._token}"},
                request_timeout=TIMEOUT_S,
                connect_timeout=TIMEOUT_S,
                follow_redirects=False,
                validate_cert=not local,
            )
        except HTTPClientError as error:
            raise HubError(f"{method} {url} answered {error.code} {error.message}.") from error
        except OSError as error:
            raise HubError(f"{url} can't be reached: {error}.") from error


def _part(name: str) -> str:
    return quote(name, safe="")
