# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user of the hub does: ``hub.py login|start|stop|cell|terminal|remove NAME [ARGUMENT]``; prints JSON.

It has the tools of the role's own proof, and a service of the tests as admin.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings

import prove
import requests
from tornado import httpclient, websocket

TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 (of a host that lives for a test)
URL = "http://127.0.0.1"


class User(prove.Hub):
    """A user whose name is that of the module ``prove``."""

    def become(self) -> None:
        """Have a token of the user's, who is made if missing."""
        name = prove.USER
        if self.ask(self.service, "GET", f"/hub/api/users/{name}").status_code == 404:
            self.need(self.service, "POST", f"/hub/api/users/{name}")
        self.user = self.session(self.need(self.service, "POST", f"/hub/api/users/{name}/tokens", json={})["token"])

    def login(self, password: str) -> object:
        """Where the form of the login page leads."""
        browser = requests.Session()
        browser.verify = False
        page = self.ask(browser, "GET", "/hub/login")
        form = {"username": prove.USER, "password": password, "_xsrf": browser.cookies.get("_xsrf", path="/hub/")}
        answer = self.ask(browser, "POST", "/hub/login", params={"next": "/hub/home"}, data=form)
        return {"page": page.url, "status": answer.status_code, "url": answer.url}

    async def terminal(self, command: str) -> str:
        """What a command prints in a terminal."""
        name = self.need(self.user, "POST", f"/user/{prove.USER}/api/terminals", json={})["name"]
        request = httpclient.HTTPRequest(
            f"ws{self.url[4:]}/user/{prove.USER}/terminals/websocket/{name}",
            headers={"Authorization": self.user.headers["Authorization"]},
            validate_cert=False,
        )
        connection = await websocket.websocket_connect(request)
        await connection.write_message(json.dumps(["stdin", f"echo be''gin; {command}; echo e''nd\r"]))
        printed = ""
        while "end" not in printed:
            kind, *rest = json.loads(await connection.read_message())
            printed += rest[0] if kind == "stdout" else ""
        connection.close()
        return printed.split("begin")[-1].split("end")[0].strip()


def main() -> None:
    """Do it."""
    action, prove.USER, *rest = sys.argv[1:]
    prove.ACCOUNT = f"jupyter-{prove.USER}"
    warnings.simplefilter("ignore")
    hub = User(URL, TOKEN)
    if action == "login":
        print(json.dumps(hub.login(rest[0])))
        return
    if action == "remove":
        hub.remove()
        return
    hub.become()
    if action == "start":
        try:
            hub.start(int(rest[0]) if rest else None)
        except prove.RefusedError as error:
            print(json.dumps({"refused": str(error)}))
            return
        print(json.dumps({"refused": None}))
    elif action == "stop":
        hub.stop()
    elif action == "cell":
        print(asyncio.run(asyncio.wait_for(hub.run(rest[0]), 120)))
    elif action == "terminal":
        print(asyncio.run(asyncio.wait_for(hub.terminal(rest[0]), 60)))


main()
