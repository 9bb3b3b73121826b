# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of the GPUs in a real browser, behind a real JupyterHub and its proxy, and the notices in JupyterLab."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import cudahub_hub
import pytest
from cudahub_hub.allocator import Allocator, Request, Server
from cudahub_hub.hub_client import HubClient, HubError
from hub_browser import TOKEN, RealHub, faint, fits, picture
from playwright.sync_api import Page, expect
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

CULLER_TOKEN = "2" * 32
PACKAGE = Path(cudahub_hub.__file__).parent
LONG = "a-user.with.quite.a.long.name.and.no.place.to.break@subdomain.example.org"

CONFIG = """
import sys
from cudahub_hub.hub import SERVICE_SCOPES, configure

c.JupyterHub.services += [dict(name="culler", api_token="{culler}")]
c.JupyterHub.load_roles += [
    dict(name="culler", services=["culler"], scopes=list(SERVICE_SCOPES)),
    dict(name="kernels", services=["tester"], scopes=["access:servers"]),
]
c.Authenticator.admin_users = set(["root"])
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.default_url = "/lab"
c.Spawner.environment = dict(JUPYTER_PATH="{place}/jupyter", JUPYTER_CONFIG_DIR="{place}/config")
configure(c, "{place}/settings.json", "process", proxy_url="http://127.0.0.1:{port}")
"""


class Collected:
    """The usage file, kept fresh as the collector does, with what a test sets."""

    def __init__(self, path: Path, units: dict[str, dict[str, Any]]) -> None:
        self.path = path
        self.units = units
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def write(self) -> None:
        document = {"format": 1, "time": time.time(), "interval": 1, "units": self.units}
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(document), encoding="utf-8")
        draft.replace(self.path)

    def _run(self) -> None:
        while not self._end.wait(0.5):
            self.write()

    def close(self) -> None:
        self._end.set()
        self._thread.join()


class Hub(RealHub):
    """A JupyterHub with four GPUs, three of which are held."""

    def __init__(self, place: Path) -> None:
        self.others: list[subprocess.Popen[bytes]] = []
        units = [
            {
                "uuid": f"GPU-page{i}",
                "kind": "gpu",
                "gpu": f"GPU-page{i}",
                "index": str(i),
                "name": "NVIDIA H100 80GB HBM3",
            }
            for i in range(4)
        ]
        units += [
            {
                "uuid": f"MIG-page{i}",
                "kind": "mig",
                "gpu": "GPU-page4",
                "index": f"4.{i}",
                "name": "NVIDIA A100-SXM4-40GB",
                "profile": "3g.20gb",
            }
            for i in range(2)
        ]
        settings = {
            "pools": [
                {"name": "big", "gpus": [f"GPU-page{i}" for i in range(4)]},
                {"name": "small", "policy": "share", "servers_per_gpu": 3, "gpus": ["GPU-page4"]},
            ],
            "form_default": "none",
        }
        super().__init__(place, units, settings)
        self.page = f"{self.url}/services/gpus/"
        gib = 2**30

        def usage(percent: int | None, used: float, total: int) -> dict[str, Any]:
            return {
                "state": "ok",
                "utilization_percent": percent,
                "memory_used_bytes": int(used * gib),
                "memory_total_bytes": total * gib,
                "busy_at": time.time(),
            }

        self.collected = Collected(
            place / "usage.json",
            {
                "GPU-page0": usage(97, 61.2, 80),
                "GPU-page1": usage(3, 0.6, 80),
                "GPU-page2": usage(0, 0, 80),
                "GPU-page3": {
                    "state": "lost",
                    "reason": "GPU 3 does not answer any more: the driver lost it (GPU is lost)",
                },
                "MIG-page0": usage(None, 11.5, 20),
                "MIG-page1": usage(None, 0, 20),
            },
        )
        self.collected.write()
        started = time.time() - 11_520  # 3 h 12 min
        self.allocator = Allocator(place / "settings.json", clock=lambda: started)
        self.hold(Server("anna"), "big")
        self.hold(Server("bertram", "training"), "big")
        self.hold(Server(LONG), "small")
        self.hold(Server("dora"), "small")
        self.hold(Server("emil"), "small")
        shutil.copytree(PACKAGE / "lab", place / "jupyter" / "labextensions" / "cudahub-gpus")
        self.start(CONFIG, culler=CULLER_TOKEN)

    def up(self) -> None:
        """Wait for the service, too."""
        super().up()
        self.wait(lambda: self.answers(f"{self.page}api/gpus"), "the service to answer")

    def hold(self, server: Server, pool: str) -> None:
        """Have a lease of a server that the hub does not know but that runs."""
        grant = self.allocator.acquire(Request(server, 1, pool=pool))
        self.allocator.started(server, grant.token)
        self.others.append(subprocess.Popen(["sleep", "600"], env={**os.environ, "CUDAHUB_LEASE": grant.token}))

    def close(self) -> None:
        super().close()
        for other in self.others:
            other.kill()
            other.wait()
        self.collected.close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = Hub(tmp_path_factory.mktemp("hub"))
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.fixture
def visit(visit: Callable[..., Page]) -> Callable[..., Page]:
    """A function that logs a user in and opens the page."""
    return partial(visit, path="/services/gpus/")


def row(page: Page, uuid: str) -> Any:
    return page.locator(f'tr[data-uuid="{uuid}"]')


def test_everybody_sees_who_holds_which_gpu(visit: Callable[..., Page]) -> None:
    page = visit("anna")
    anna = row(page, "GPU-page0")
    expect(anna).to_contain_text("anna")
    expect(anna).to_contain_text("you")
    expect(anna).to_contain_text(re.compile(r"\b3 h \d\d min"))  # this hub has started since
    expect(anna).to_contain_text("97 %")
    expect(anna).to_contain_text("61 of 80 GB")
    expect(row(page, "GPU-page1")).to_contain_text("(training)")
    expect(row(page, "GPU-page2")).to_contain_text("free")
    expect(row(page, "GPU-page3")).to_contain_text("does not answer any more")
    expect(row(page, "MIG-page0")).to_contain_text("3g.20gb")
    expect(row(page, "MIG-page0")).to_contain_text("not measured")
    expect(page.locator("p.lead")).to_contain_text("1 of 4 in big is free")
    expect(page.get_by_role("button", name="Release")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_looks_at_home(visit: Callable[..., Page], hub: Hub, scheme: Any, width: int) -> None:
    page = visit("root", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_load_state("networkidle")
    assert fits(page)
    assert faint(page) == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    picture(page, f"gpus-{scheme}-{width}")
    page.goto(f"{hub.url}/hub/home")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
    picture(page, f"home-{scheme}-{width}")


def test_a_long_name_fits_a_phone(visit: Callable[..., Page], hub: Hub) -> None:
    page = visit("root", width=390)
    ask = f"release?user={LONG}"
    for name, place in {"table": "", "release": ask, "released": f"?done={LONG}", "none": f"{ask}.no"}.items():
        page.goto(hub.page + place)
        expect(page.locator("main")).to_contain_text(LONG)
        picture(page, f"long-name-{name}")
        assert fits(page), place


def test_it_refreshes_itself(visit: Callable[..., Page], hub: Hub) -> None:
    page = visit("anna")
    load = row(page, "GPU-page1")
    expect(load).to_contain_text("3 %")
    hub.collected.units["GPU-page1"]["utilization_percent"] = 88
    expect(load).to_contain_text("88 %")


def test_it_works_without_javascript(visit: Callable[..., Page]) -> None:
    page = visit("root", java_script_enabled=False)
    expect(row(page, "GPU-page1")).to_contain_text("bertram")
    page.get_by_role("button", name="Release GPU 4.0 of emil").click()
    expect(page.get_by_role("heading")).to_have_text("Release GPU 4.0 (NVIDIA A100-SXM4-40GB, 3g.20gb)?")
    picture(page, "release")
    page.get_by_role("button", name="Stop the server").click()
    expect(page.get_by_role("status")).to_contain_text("emil is being stopped")
    expect(row(page, "MIG-page0")).to_contain_text("stopping")


def test_users_release_nothing(visit: Callable[..., Page], hub: Hub) -> None:
    page = visit("dora")
    page.goto(f"{hub.page}release?user=anna&server=")
    expect(page.get_by_role("heading")).to_contain_text("403")
    picture(page, "refused")


def test_a_narrow_token_of_an_admin_releases_nothing(hub: Hub) -> None:
    if "root" not in [user["name"] for user in hub.api("users")]:
        hub.api("users/root", "POST", {"admin": True})

    def post(url: str, token: str, body: Any) -> Any:
        headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code

    def release(*scopes: str) -> Any:
        made = post(f"{hub.url}/hub/api/users/root/tokens", CULLER_TOKEN, {"scopes": scopes})
        return post(f"{hub.page}api/release", made["token"], {"user": "nobody"})

    access = "access:services!service=gpus"
    assert release(access) == 403
    assert [release("inherit"), release(access, "admin:servers"), release(access, "admin-ui")] == [404, 404, 404]


def test_lab_shows_notices_once_and_opens_the_page(visit: Callable[..., Page], hub: Hub) -> None:
    hub.api("users/lena", "POST")
    page = visit("lena", path="/hub/home")
    hub.api("users/lena/server", "POST", {"gpus": 1})
    hub.wait(lambda: hub.api("users/lena")["servers"].get("", {}).get("ready"), "lena's server")
    lease = next(lease for lease in hub.allocator.leases() if lease.server.user == "lena")
    assert lease.units == ("GPU-page2",)
    # The culler, which looks each minute, takes those of kind "idle" back from servers that just began.
    hub.allocator.tell(lease.server, "told", "GPU 2 did nothing for 50 minutes. Save your work.", time.time() + 600)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{hub.url}/user/lena/lab")
    notice = page.locator(".Toastify__toast", has_text="GPU 2 did nothing for 50 minutes")
    expect(notice).to_have_count(1)
    picture(page, "lab-notice")
    page.get_by_role("menuitem", name="File", exact=True).click()
    entry = page.locator(".lm-Menu-item", has_text="GPUs")
    expect(entry).to_have_count(1)
    picture(page, "lab-menu")
    with page.context.expect_page() as opened:
        entry.click()
    expect(row(opened.value, "GPU-page2")).to_contain_text("lena")
    expect(opened.value.get_by_role("alert").first).to_contain_text("GPU 2 did nothing")
    picture(opened.value, "gpus-notice")
    hub.allocator.clear_notices(lease.server, "told")
    expect(notice).to_have_count(0)
    assert errors == []


def test_the_service_tells_busy_kernels_from_idle_ones(hub: Hub, tmp_path: Path) -> None:
    api = f"http://127.0.0.1:{hub.hub_port}/hub/api"
    header = {"Authorization": f"token {TOKEN}"}
    seen = tmp_path / "seen"
    work = f"import pathlib, time\nwhile not pathlib.Path({str(seen)!r}).exists():\n    time.sleep(0.1)"

    async def is_busy(token: str = CULLER_TOKEN) -> bool:
        running = await HubClient(api, CULLER_TOKEN, hub.url).server(Server("lena"))
        assert running is not None
        return await HubClient(api, token, hub.url).busy_kernels(running)

    async def becomes(busy: bool) -> None:
        async with asyncio.timeout(120):
            while await is_busy() is not busy:
                await asyncio.sleep(0.2)

    async def use_a_kernel() -> None:
        assert not await is_busy()
        kernels = f"{hub.url}/user/lena/api/kernels"
        answer = await AsyncHTTPClient().fetch(kernels, method="POST", body="{}", headers=header)
        assert not await is_busy()
        channels = f"{kernels}/{json.loads(answer.body)['id']}/channels".replace("http:", "ws:")
        connection = await websocket_connect(HTTPRequest(channels, headers=header))
        message = {
            "header": {"msg_id": "1", "msg_type": "execute_request", "session": "1", "username": "", "version": "5.3"},
            "parent_header": {},
            "metadata": {},
            "content": {"code": work, "silent": False},
            "channel": "shell",
            "buffers": [],
        }
        await connection.write_message(json.dumps(message))
        await becomes(busy=True)
        seen.touch()
        await becomes(busy=False)
        connection.close()
        with pytest.raises(HubError):
            await is_busy(TOKEN)

    with ThreadPoolExecutor() as threads:  # this thread runs the browser's loop
        threads.submit(asyncio.run, use_a_kernel()).result()


def test_an_admin_stops_a_real_server(visit: Callable[..., Page], hub: Hub) -> None:
    page = visit("root")
    page.get_by_role("button", name="Release GPU 2 of lena").click()
    page.get_by_role("button", name="Stop the server").click()
    expect(row(page, "GPU-page2")).to_contain_text("free")
    assert hub.api("users/lena")["servers"] == {}
