# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Proves a hub of TLJH as a user of its own, who is gone afterwards; prints what was proven as JSON.

Logs in through the login page where the authenticator lets it, starts a server, runs a cell in a notebook's kernel,
stops the server, and looks whether the GPU is free again. Runs as root in the hub's environment, with options as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import pwd
import secrets
import subprocess
import sys
import time
import typing as t
import uuid
import warnings
from pathlib import Path

import requests
from tornado import httpclient, websocket

USER = "cudahub-check"
ACCOUNT = f"jupyter-{USER}"
# Marks the account that an authenticator wants its users to have, so that nobody else's is removed.
MARK = "proof of the hub"
EXPECTED = [3, 12]
CELL = """
import ctypes, json, os, sys

def total():
    numbers = None
    if gpus and not simulated:
        try:
            import cupy as numbers
        except ImportError:
            pass
    if numbers is None:
        try:
            import numpy as numbers
        except ImportError:
            return "python", [sum(range(0, 3)), sum(range(3, 6))]
    return numbers.__name__, numbers.arange(6).reshape(2, 3).sum(axis=1).tolist()

def seen():
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    def uuid_of(handle):
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if nvml.nvmlDeviceGetUUID(handle, text, 96) == 0 else "unknown"
    found, count = [], ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        gpu, slices = ctypes.c_void_p(), ctypes.c_uint()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)) != 0:
            continue
        parts = []
        if nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(slices)) == 0:
            for number in range(slices.value):
                part = ctypes.c_void_p()
                if nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number, ctypes.byref(part)) == 0:
                    parts.append(uuid_of(part))
        found += parts or [uuid_of(gpu)]
    return found

simulated = SIMULATED
gpus = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
module, numbers = total()
print(json.dumps({"module": module, "sum": numbers, "gpus": gpus, "seen": seen(), "python": sys.prefix}))
"""


class NotProvenError(Exception):
    """What did not work, in a sentence."""


class RefusedError(Exception):
    """No GPU is free for the proof, as the hub says."""


class Hub:
    """The hub, as the service of the proof and as its user."""

    def __init__(self, url: str, token: str) -> None:
        """Take where it is, and the token of the service."""
        self.url = url
        self.service = self.session(token)
        self.user = requests.Session()

    def session(self, token: str) -> requests.Session:
        """A session with a token."""
        session = requests.Session()
        session.verify = False
        session.headers["Authorization"] = f"token {token}"
        return session

    def ask(self, session: requests.Session, method: str, path: str, **options: t.Any) -> requests.Response:
        """An answer, whatever it is."""
        try:
            return session.request(method, f"{self.url}{path}", timeout=60, **options)
        except requests.RequestException as error:
            raise NotProvenError(f"{self.url}{path} does not answer ({error})") from error

    def need(self, session: requests.Session, method: str, path: str, **options: t.Any) -> t.Any:
        """The JSON of an answer that is a good one."""
        answer = self.ask(session, method, path, **options)
        if answer.status_code >= 400:
            raise NotProvenError(f"{method} {path} is answered by {answer.status_code}: {sentence(answer)}")
        return answer.json() if answer.content else None

    def remove(self) -> None:
        """Take the user away, with server, home and account."""
        if self.ask(self.service, "GET", f"/hub/api/users/{USER}").status_code == 200:
            self.stop()
            self.need(self.service, "DELETE", f"/hub/api/users/{USER}")
        if account_of(ACCOUNT):
            manage_account("userdel", "--force", "--remove", ACCOUNT)
        mine = account_of(USER)
        if mine and mine.pw_gecos == MARK:
            manage_account("userdel", USER)

    def stop(self) -> None:
        """Stop the server, and wait until it is gone."""
        self.need(self.service, "DELETE", f"/hub/api/users/{USER}/server")
        self.until(lambda: not self.running() and not self.pending(), 120, "the server did not stop")

    def user_model(self) -> t.Any:
        """What the hub says about the user."""
        return self.need(self.service, "GET", f"/hub/api/users/{USER}")

    def running(self) -> bool:
        """Whether there is a server."""
        return bool(self.user_model()["server"])

    def pending(self) -> bool:
        """Whether one starts or stops."""
        return bool(self.user_model()["pending"])

    def until(self, true: t.Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Wait for something."""
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                raise NotProvenError(otherwise)
            time.sleep(0.5)

    def log_in(self) -> None:
        """Log in as people do, by the form of the login page."""
        browser = requests.Session()
        browser.verify = False
        self.ask(browser, "GET", "/hub/login")
        form = {
            "username": USER,
            "password": secrets.token_urlsafe(24),
            "_xsrf": browser.cookies.get("_xsrf", path="/hub/"),
        }
        answer = self.ask(browser, "POST", "/hub/login", params={"next": "/hub/home"}, data=form)
        if answer.status_code != 200 or not answer.url.endswith("/hub/home"):
            raise NotProvenError(f"the login page did not let a user in ({answer.status_code}: {sentence(answer)})")

    def start(self, gpus: int | None) -> None:
        """Start the server."""
        options = {} if gpus is None else {"gpus": gpus}
        answer = self.ask(self.user, "POST", f"/hub/api/users/{USER}/server", json=options)
        if answer.status_code == 409 and gpus:
            raise RefusedError(sentence(answer))
        if answer.status_code >= 400:
            raise NotProvenError(f"a server does not start ({sentence(answer)}); journalctl -u jupyterhub says why")
        self.until(lambda: not self.pending(), 300, "a server did not start within five minutes")
        if not self.running():
            raise NotProvenError(f"a server did not start; journalctl -u jupyterhub -u {ACCOUNT} says why")

    def holds(self) -> list[str]:
        """The GPUs that the user holds, as the page of GPUs says."""
        leases = self.need(self.user, "GET", "/services/gpus/api/me")["leases"]
        return [one for lease in leases for one in lease["gpus"]]

    async def run(self, code: str) -> str:
        """What a cell prints in a new kernel."""
        kernel = self.need(self.user, "POST", f"/user/{USER}/api/kernels", json={})["id"]
        request = httpclient.HTTPRequest(
            f"ws{self.url[4:]}/user/{USER}/api/kernels/{kernel}/channels",
            headers={"Authorization": self.user.headers["Authorization"]},
            validate_cert=False,
        )
        connection = await websocket.websocket_connect(request)
        message = {
            "header": {
                "msg_id": uuid.uuid4().hex,
                "msg_type": "execute_request",
                "username": "",
                "session": "",
                "version": "5.3",
            },
            "parent_header": {},
            "metadata": {},
            "channel": "shell",
            "content": {"code": code, "silent": False, "store_history": False, "allow_stdin": False},
        }
        await connection.write_message(json.dumps(message))
        printed = ""
        while (answer := await connection.read_message()) is not None:
            found = json.loads(answer)
            if found["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            if found["msg_type"] == "stream" and found["content"]["name"] == "stdout":
                printed += found["content"]["text"]
            elif found["msg_type"] == "error":
                raise NotProvenError(f"the cell failed: {found['content']['ename']}: {found['content']['evalue']}")
            elif found["msg_type"] == "status" and found["content"]["execution_state"] == "idle":
                break
        connection.close()
        return printed


def account_of(name: str) -> pwd.struct_passwd | None:
    """A user's account on this host, if there is one."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def manage_account(*command: str) -> None:
    """Add or remove an account."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NotProvenError(f"{' '.join(command)} failed: {done.stderr.strip()}")


def sentence(answer: requests.Response) -> str:
    """What an answer says about itself."""
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.reason


def judge(printed: str, gpus: bool) -> dict[str, t.Any]:
    """What the cell found, if it is right."""
    try:
        found: dict[str, t.Any] = json.loads(printed)
    except ValueError as error:
        raise NotProvenError(f"the cell printed {printed!r}") from error
    if found["sum"] != EXPECTED:
        raise NotProvenError(f"{found['module']} adds up to {found['sum']} instead of {EXPECTED}")
    if gpus and (not found["gpus"] or sorted(found["gpus"]) != sorted(found["seen"])):
        raise NotProvenError(
            f"the server was given {found['gpus'] or 'no GPU'}, and NVML shows it {found['seen'] or 'none'}"
        )
    return found


def prove(hub: Hub, options: dict[str, t.Any]) -> dict[str, t.Any]:
    """All steps."""
    said: dict[str, t.Any] = {"refused": None}
    if options["account"] and not account_of(USER):
        manage_account(
            "useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "--comment", MARK, USER
        )
    hub.need(hub.service, "POST", f"/hub/api/users/{USER}")
    if options["login"]:
        hub.log_in()
    token = hub.need(hub.service, "POST", f"/hub/api/users/{USER}/tokens", json={"expires_in": 1800, "note": "proof"})
    hub.user = hub.session(token["token"])
    gpus = 1 if options["gpus"] else None
    try:
        hub.start(gpus)
    except RefusedError as error:
        said["refused"] = str(error)
        gpus = 0
        hub.start(gpus)
    printed = asyncio.run(asyncio.wait_for(hub.run(CELL.replace("SIMULATED", str(options["simulated"]))), 300))
    said.update(judge(printed, bool(gpus)), login=options["login"])
    hub.stop()
    if options["gpus"]:
        hub.until(lambda: not hub.holds(), 60, "the GPU of a server that is stopped is not free again")
    return said


@contextlib.contextmanager
def alone(path: Path) -> t.Iterator[t.TextIO]:
    """Wait until no other proof runs; the file says "begun" as long as there may be a user of a proof."""
    with path.open("a+", encoding="utf-8") as note:
        end = time.monotonic() + 900
        while True:
            try:
                fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    raise NotProvenError("another proof has been at work for a quarter of an hour") from error
                time.sleep(1)
        note.seek(0)
        yield note


def write(note: t.TextIO, text: str) -> None:
    """Replace what a note says."""
    note.seek(0)
    note.truncate()
    note.write(text)
    note.flush()


def begin(hub: Hub, note: t.TextIO) -> None:
    """See that nobody else is the user of the proof."""
    if note.read() == "begun":
        hub.remove()
    elif hub.ask(hub.service, "GET", f"/hub/api/users/{USER}").status_code == 200 or account_of(ACCOUNT):
        raise NotProvenError(
            f"somebody is the user {USER} or has the account {ACCOUNT}, and the proof would take both away after it: "
            "give that user another name, or set tljh_prove to false"
        )
    write(note, "begun")


def main() -> int:
    """Prove it."""
    options = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    token = Path(options["token"])
    hub = Hub(options["url"], token.read_text(encoding="utf-8").strip())
    try:
        with alone(token.with_name("proof")) as note:
            begin(hub, note)
            try:
                said = prove(hub, options)
            finally:
                hub.remove()
                write(note, "")
    except NotProvenError as error:
        print(error, file=sys.stderr)
        return 1
    except asyncio.TimeoutError:
        print("a cell was not done within five minutes", file=sys.stderr)
        return 1
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
