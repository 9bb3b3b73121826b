# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The spawn form and its refusals in a real browser, behind a real JupyterHub with two GPUs and small servers."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jupyterhub
import pytest
from cudahub_hub.allocator import Server
from hub_browser import RealHub, fits, picture
from playwright.sync_api import Locator, Page, expect

GPUS = sorted(f"GPU-{uuid.uuid4()}" for dummy in range(2))
SETTINGS: dict[str, Any] = {"limits": {"users": {"nobody": 0, "two": 2}}}
HELD = "No GPU is free now: held by 2 others, next idle stop in ~25 min. Come back later, or start without a GPU."
NEVER = "Your account may not use GPUs here. Start without a GPU, or ask an administrator."
BACK = "Back to the server options"
REFUSAL_STATUS = 409 if jupyterhub.version_info[0] > 5 else 500

CONFIG = """
import asyncio, sys, types
from jupyterhub.apihandlers.users import SpawnProgressAPIHandler
from jupyterhub.handlers import pages
from cudahub_hub.hub import configure

# The hub shows the page of progress after a second. Here it does so for one user at once, whose server waits for that
# page, and for others not at all, however busy the machine is.
slow, watched = asyncio.Event(), asyncio.Event()
progress = SpawnProgressAPIHandler.get


async def wait(futures, timeout):
    began = asyncio.ensure_future(slow.wait())
    await asyncio.wait([*futures, began], timeout=60, return_when="FIRST_COMPLETED")
    began.cancel()
    return await asyncio.wait(futures, timeout=0)


async def watch(handler, user_name, *args, **options):
    if user_name == "slow":
        watched.set()
    await progress(handler, user_name, *args, **options)


async def wait_for_the_page(spawner):
    if spawner.user.name == "slow":
        slow.set()
        await watched.wait()
        slow.clear()
        watched.clear()


pages.asyncio = types.SimpleNamespace(**dict(vars(asyncio), wait=wait))
SpawnProgressAPIHandler.get = watch
c.Spawner.cmd = [sys.executable, "-SE", "{place}/server.py"]
c.Spawner.pre_spawn_hook = wait_for_the_page
c.LocalProcessSpawner.interrupt_timeout = 2
configure(c, "{place}/settings.json", "process")
c.JupyterHub.services[-1] = dict(name="gpus", api_token="{token}1")  # the culler would take warnings back
"""

SERVER = """
import os, urllib.parse
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("GPUs: " + os.environ["CUDA_VISIBLE_DEVICES"] + ".").encode())

    def log_message(self, *args):
        pass


HTTPServer(("127.0.0.1", urllib.parse.urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).port), Handler).serve_forever()
"""


class Hub(RealHub):
    """A JupyterHub with two GPUs."""

    def __init__(self, place: Path) -> None:
        units = [
            {"uuid": uuid, "kind": "gpu", "gpu": uuid, "index": str(index), "name": "NVIDIA H100 80GB HBM3"}
            for index, uuid in enumerate(GPUS)
        ]
        super().__init__(place, units, SETTINGS)
        (place / "server.py").write_text(SERVER, encoding="utf-8")
        self.start(CONFIG)

    def hold_both(self) -> None:
        """Two others start servers, the first of which is idle."""
        for user in ("anna", "bertram"):
            self.run(user, {"gpus": 1})
        self.allocator.tell(Server("anna"), "idle", "GPU 0 did nothing for 35 minutes.", time.time() + 25 * 60)

    def free(self, user: str) -> None:
        self.api(f"users/{user}/server", "DELETE")
        self.wait(lambda: not self.api(f"users/{user}")["servers"], f"{user}'s server to stop")

    def deleted(self, user: str) -> bool:
        """Whether the user is gone; JupyterHub refuses it while the server of that user is being stopped."""
        try:
            self.api(f"users/{user}", "DELETE")
        except urllib.error.HTTPError as error:
            if error.code not in (400, 404):
                raise
            return error.code == 404
        return True

    def clear(self) -> None:
        for user in self.api("users"):
            self.wait(lambda name=user["name"]: self.deleted(name), f"{user['name']} to be deleted")  # type: ignore[misc]
        assert not self.allocator.leases()
        self.settings(SETTINGS)


@pytest.fixture(scope="module")
def the_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    made = Hub(tmp_path_factory.mktemp("hub"))
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.fixture
def hub(the_hub: Hub) -> Iterator[Hub]:
    yield the_hub
    the_hub.clear()


@pytest.fixture
def form(visit: Callable[..., Page]) -> Callable[..., Page]:
    """A function that opens the spawn form as a user."""

    def opened(user: str, **options: Any) -> Page:
        page = visit(user, path="/hub/spawn", **options)
        expect(page.get_by_role("heading", name="Server Options")).to_be_visible()
        return page

    return opened


def group(page: Page) -> Locator:
    return page.get_by_role("group", name="GPU")


def with_gpu(page: Page) -> Locator:
    return group(page).get_by_label("With a GPU")


def without_gpu(page: Page) -> Locator:
    return group(page).get_by_label("Without a GPU")


def start(page: Page) -> None:
    page.get_by_role("button", name="Start").click()


def started(page: Page, gpus: int) -> None:
    """Expect the server, with so many GPUs."""
    some = ",".join(["GPU-[0-9a-f-]{36}"] * gpus)
    expect(page.get_by_text(re.compile(f"^GPUs: {some}\\.$"))).to_be_visible()


def looks_at_home(page: Page, name: str) -> None:
    """Nothing sticks out or stays light on a dark page."""
    page.wait_for_load_state("networkidle")
    backgrounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        # JupyterHub's script follows.
        expect(page.locator("html")).to_have_attribute("data-bs-theme", scheme)
        for width in (1200, 390):
            page.set_viewport_size({"width": width, "height": 800})
            picture(page, f"{name}-{scheme}-{width}")
            assert fits(page), (name, scheme, width)
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_the_form_says_what_is_free(form: Callable[..., Page], hub: Hub) -> None:
    hub.run("anna", {"gpus": 1})
    page = form("cleo")
    expect(with_gpu(page)).to_be_checked()
    expect(group(page)).to_have_accessible_description("Now: 1 of 2 free.")
    expect(page.locator("#spawn_form .alert")).to_have_count(0)
    looks_at_home(page, "spawn")


def test_by_keyboard(form: Callable[..., Page]) -> None:
    page = form("cleo")
    for _unused in range(20):
        page.keyboard.press("Tab")
        if with_gpu(page).evaluate("element => element === document.activeElement"):
            break
    expect(with_gpu(page)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(without_gpu(page)).to_be_checked()
    page.keyboard.press("ArrowUp")
    expect(with_gpu(page)).to_be_checked()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Start")).to_be_focused()
    page.keyboard.press("Enter")
    started(page, 1)


def test_the_default_is_the_operators(form: Callable[..., Page], hub: Hub) -> None:
    hub.settings({**SETTINGS, "form_default": "none"})
    page = form("cleo")
    expect(without_gpu(page)).to_be_checked()
    page.get_by_text("With a GPU").click()
    expect(with_gpu(page)).to_be_checked()
    start(page)
    started(page, 1)


def test_none_is_free(form: Callable[..., Page], hub: Hub) -> None:
    hub.hold_both()
    page = form("cleo")
    expect(group(page)).to_have_accessible_description(HELD)
    expect(page.locator(".alert-warning")).to_have_text(HELD)
    expect(without_gpu(page)).to_be_checked()
    looks_at_home(page, "spawn-none-free")
    start(page)
    started(page, 0)


def test_none_is_free_any_more(form: Callable[..., Page], hub: Hub) -> None:
    """The page was open since before."""
    page = form("cleo")
    hub.hold_both()
    start(page)
    expect(page.locator(".spawn-error-msg")).to_have_text(f"Error: {HELD}")
    expect(page.get_by_text("No GPU is free now")).to_have_count(1)
    expect(page.get_by_role("heading")).to_have_text("Server Options")
    expect(without_gpu(page)).to_be_checked()
    looks_at_home(page, "spawn-refused")
    hub.free("anna")
    page.get_by_text("With a GPU").click()
    start(page)
    started(page, 1)


@pytest.fixture
def refused_late(form: Callable[..., Page], hub: Hub) -> Page:
    """The page of progress, to which the hub sends those whose refusal takes a while."""
    hub.hold_both()
    page = form("slow")
    page.get_by_text("With a GPU").click()
    start(page)
    page.wait_for_url("**/hub/spawn-pending/slow**")
    expect(page.locator("#progress-message")).to_have_text(f"{HELD} {BACK}")
    return page


def test_back_from_a_refusal_that_takes_a_while(refused_late: Page) -> None:
    page = refused_late
    looks_at_home(page, "spawn-pending-refused")
    page.locator("#progress-message").get_by_role("link", name=BACK).click()
    page.wait_for_url("**/hub/spawn/slow")
    expect(without_gpu(page)).to_be_checked()
    start(page)
    started(page, 0)


def test_a_reload_after_a_refusal_that_takes_a_while(refused_late: Page) -> None:
    page = refused_late
    answer = page.reload()
    assert answer
    assert answer.status == REFUSAL_STATUS
    expect(page.get_by_text(HELD)).to_be_visible()
    looks_at_home(page, "spawn-failed")
    page.get_by_role("button", name="Relaunch Server").click()
    expect(without_gpu(page)).to_be_checked()
    start(page)
    started(page, 0)


def test_a_user_who_may_use_none(form: Callable[..., Page]) -> None:
    page = form("nobody")
    expect(page.get_by_text(NEVER)).to_be_visible()
    expect(page.locator("#spawn_form").locator("input, select")).to_have_count(0)
    looks_at_home(page, "spawn-never")
    start(page)
    started(page, 0)


def test_a_user_who_may_use_two(form: Callable[..., Page]) -> None:
    page = form("two")
    menu = page.get_by_label("Number of GPUs")
    expect(menu.locator("option")).to_have_text(["Without a GPU", "With 1 GPU", "With 2 GPUs"])
    expect(menu).to_have_value("1")
    looks_at_home(page, "spawn-two")
    menu.select_option("With 2 GPUs")
    start(page)
    started(page, 2)


def test_two_pools(form: Callable[..., Page], hub: Hub) -> None:
    shared = {"name": "shared", "policy": "share", "servers_per_gpu": 4, "gpus": [GPUS[1]]}
    hub.settings({**SETTINGS, "pools": [{"name": "whole", "gpus": [GPUS[0]]}, shared]})
    page = form("cleo")
    menu = page.get_by_label("Pool of GPUs")
    expect(menu.locator("option")).to_have_text(["Any", "whole", "shared"])
    expect(group(page)).to_have_accessible_description(
        "Now: whole 1 of 1 free; shared 1 of 1 with room, shared by up to 4."
    )
    looks_at_home(page, "spawn-pools")
    menu.select_option("shared")
    start(page)
    started(page, 1)
    expect(page.get_by_text(GPUS[1])).to_be_visible()


def test_over_the_api(hub: Hub) -> None:
    hub.hold_both()
    hub.api("users/cleo", "POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        hub.api("users/cleo/server", "POST", {"gpus": 1})
    answer = json.load(refused.value)
    assert refused.value.code == 409
    assert answer == {"status": 409, "message": HELD}
