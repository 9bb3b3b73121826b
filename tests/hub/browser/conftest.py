# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A browser for the hub that a file's fixture `hub` starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hub_browser import SECONDS, RealHub, chromium
from playwright.sync_api import Browser, Page, expect, sync_playwright

expect.set_options(timeout=SECONDS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def visit(hub: RealHub, browser: Browser) -> Iterator[Callable[..., Page]]:
    """A function that logs a user in and opens a page."""
    contexts = []

    def opened(user: str, path: str, width: int = 1200, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        context.set_default_timeout(SECONDS)
        contexts.append(context)
        page = context.new_page()
        page.goto(hub.url + path)
        page.get_by_label("Username").fill(user)
        page.get_by_label("Password").fill("x")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"**{path}**")
        return page

    yield opened
    for context in contexts:
        context.close()
