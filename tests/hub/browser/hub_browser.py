# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real JupyterHub behind its proxy, and pages of it.

Needs a Chromium (`CHROMIUM` or on the PATH) and node's configurable-http-proxy (`CONFIGURABLE_HTTP_PROXY` or on the
PATH). Where `HUB_PICTURES` names a directory, pictures of the pages are left there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudahub_hub.allocator import Allocator
from hub_ports import free_ports
from playwright.sync_api import Page

TOKEN = "1" * 32
SECONDS = 60_000

CONFIG = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = ["{proxy}"]
c.ConfigurableHTTPProxy.pid_file = "{place}/proxy.pid"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.db_url = "sqlite:///{place}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{place}/cookie_secret"
c.JupyterHub.services = [dict(name="tester", api_token="{token}")]
c.JupyterHub.load_roles = [dict(name="tester", services=["tester"], scopes=["admin:users", "admin:servers"])]
c.Authenticator.allow_all = True
c.Spawner.http_timeout = c.Spawner.start_timeout = 180
c.SimpleLocalProcessSpawner.home_dir_template = "{place}/home/{{username}}"
"""

FAINT = """
() => {
  const channels = (color) => { const found = color.match(/[\\d.]+/g).map(Number); return [...found, 1].slice(0, 4); };
  const over = (front, back) => front.slice(0, 3).map((one, i) => one * front[3] + back[i] * (1 - front[3]));
  const linear = (one) => (one /= 255) <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
  const light = (color) => color.map(linear).reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    if (!element) { return [255, 255, 255]; }
    const own = channels(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, behind(element.parentElement));
  };
  const speaks = (one) => [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const seen = [...document.querySelectorAll("main *")].filter((one) => one.checkVisibility() && !one.ariaHidden);
  return seen.filter(speaks).filter((element) => {
    const back = behind(element);
    const pair = [light(over(channels(getComputedStyle(element).color), back)), light(back)];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05) < 4.5;
  }).map((element) => element.textContent.trim());
}
"""


def chromium() -> str:
    """The browser."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    assert found, "There is no Chromium: install one, or name it in CHROMIUM."
    return found


class RealHub:
    """A JupyterHub with GPUs, its settings and its leases."""

    def __init__(self, place: Path, units: list[dict[str, Any]], settings: dict[str, Any]) -> None:
        self.place = place
        self.port, self.hub_port, self.proxy_port = free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.write("inventory.json", {"format": 1, "units": units})
        self.settings(settings)
        self.allocator = Allocator(place / "settings.json")

    def settings(self, settings: dict[str, Any]) -> None:
        common = {
            "format": 1,
            "inventory": str(self.place / "inventory.json"),
            "database": str(self.place / "state" / "leases.sqlite"),
            "usage": str(self.place / "usage.json"),
        }
        self.write("settings.json", {**common, **settings})

    def start(self, config: str, **values: str) -> None:
        """Start the hub with more configuration and what that refers to."""
        text = (CONFIG + config).format(
            place=self.place,
            port=self.port,
            hub_port=self.hub_port,
            proxy_port=self.proxy_port,
            proxy=os.environ.get("CONFIGURABLE_HTTP_PROXY") or shutil.which("configurable-http-proxy"),
            token=TOKEN,
            **values,
        )
        (self.place / "jupyterhub_config.py").write_text(text, encoding="utf-8")
        self.log = (self.place / "hub.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(self.place / "jupyterhub_config.py")],
            cwd=self.place,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def up(self) -> None:
        """Wait for the hub and its proxy."""
        self.wait(lambda: self.api("") is not None and self.answers(f"{self.url}/hub/api/users"), "the hub to answer")

    def write(self, name: str, content: Any) -> None:
        draft = self.place / f"{name}.new"
        draft.write_text(json.dumps(content), encoding="utf-8")
        draft.replace(self.place / name)

    def api(self, path: str, method: str = "GET", body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.hub_port}/hub/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
                text = answer.read()
                return json.loads(text) if text else {}
        except urllib.error.HTTPError:
            raise
        except OSError:
            return None

    def run(self, user: str, options: dict[str, Any]) -> None:
        """Have a new user's server running."""
        self.api(f"users/{user}", "POST")
        self.api(f"users/{user}/server", "POST", options)
        self.wait(lambda: self.api(f"users/{user}")["servers"].get("", {}).get("ready"), f"{user}'s server")

    @staticmethod
    def answers(url: str) -> bool:
        try:
            urllib.request.urlopen(url, timeout=60)  # noqa: S310
        except urllib.error.HTTPError as error:
            return error.code == 403
        except OSError:
            return False
        return True

    def wait(self, met: Callable[[], bool], what: str, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not met():
            if time.monotonic() > deadline:
                raise AssertionError(f"Waited for {what}.\n{(self.place / 'hub.log').read_text()[-6000:]}")
            time.sleep(0.1)

    def close(self) -> None:
        proxy = self.place / "proxy.pid"
        proxy_group = int(proxy.read_text()) if proxy.exists() else None
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        if proxy_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(proxy_group, signal.SIGKILL)  # node may run below a script, and the hub ends the script only
        self.log.close()


def picture(page: Page, name: str) -> None:
    """Leave a picture where somebody wants them."""
    directory = os.environ.get("HUB_PICTURES")
    if directory:
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)


def fits(page: Page) -> bool:
    """Whether nothing sticks out to the side."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def faint(page: Page) -> list[str]:
    """Texts of the page's main part that differ too little from what is behind them (WCAG 2: less than 4.5 : 1)."""
    return list(page.evaluate(FAINT))
