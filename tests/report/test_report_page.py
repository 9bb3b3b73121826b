# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's report in a real Chromium (`CHROMIUM` or on the PATH), from a file and without network.

Where `REPORT_PICTURES` names a directory, pictures of the pages are left there.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_fleet
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ansible_collections.cudahub.gpu.plugins.plugin_utils._report import report_of
from ansible_collections.cudahub.gpu.plugins.plugin_utils._report_history import run_of
from ansible_collections.cudahub.gpu.plugins.plugin_utils._report_page import page as page_of

PHONE, LAPTOP = 390, 1366
# Seconds until the table is seen and answers where a page with nothing in it takes so many, and how often that is tried
# on a machine that other tests use, too.
SOON, NOTHING, ATTEMPTS = 2.0, 0.2, 5
EMPTY = "data:text/html,<p>."
FLEETS = {"one": (1, 1), "eight": (1, 8), "forty": (40, 8), "thousands": (1000, 8)}
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)> \u2028 \u202e עברית"
Opened = Callable[..., Page]
SECONDS = 60_000
expect.set_options(timeout=SECONDS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    assert found, "There is no Chromium: install one, or name it in CHROMIUM."
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


def written(path: Path, results: dict[str, Any], runs: int = 1) -> str:
    """Write the page of the last one of some runs that found the same, and return its address."""
    report = report_of("GPUs of the lab", f"2026-11-0{runs}T02:30:00Z", results)
    run = run_of(report)
    history = [replace(run, time=f"2026-11-0{day}T02:30:00Z") for day in range(1, runs + 1)]
    path.write_text(page_of(report, history), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The page of each fleet, with a history of three runs."""
    folder = tmp_path_factory.mktemp("report")
    return {name: written(folder / f"{name}.html", made_fleet.fleet(*size), runs=3) for name, size in FLEETS.items()}


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """A function that opens a page, which must neither ask the network for anything nor break a rule of its own."""
    contexts, wrong = [], []

    def visit(address: str, width: int = LAPTOP, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 850}, **options)
        context.set_default_timeout(SECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda request: wrong.append(request.url) if request.url != address.partition("#")[0] else None
        )
        page.goto(address.partition("#")[0], wait_until="commit")
        if "#" in address:
            show(page, address.partition("#")[2])
        return page

    yield visit
    for context in contexts:
        context.close()
    assert wrong == []


def show(page: Page, place: str) -> None:
    page.wait_for_selector("html[data-ready]")
    page.evaluate("place => { location.hash = place; }", place)
    page.wait_for_selector("#view h2")


def fits(page: Page) -> bool:
    """Whether nothing sticks out to the side."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def picture(page: Page, name: str, *, whole: bool = True) -> None:
    """Leave a picture where somebody wants them."""
    directory = os.environ.get("REPORT_PICTURES")
    if directory:
        page.wait_for_timeout(300)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=whole)


def seconds_until(opened: Opened, address: str, selector: str, rows: str | None = None) -> float:
    start = time.monotonic()
    page = opened(address)
    page.wait_for_selector(selector)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    took = time.monotonic() - start
    if rows:
        assert page.locator(".fleet").get_attribute("aria-rowcount") == rows
    page.context.close()
    return took


@pytest.mark.parametrize("name", FLEETS)
def test_the_table_is_there_soon(opened: Opened, addresses: dict[str, str], name: str) -> None:
    rows = str(FLEETS[name][0] + 1)
    took = []
    for _attempt in range(ATTEMPTS):
        slowness = max(1.0, seconds_until(opened, EMPTY, "p") / NOTHING)
        took.append(seconds_until(opened, addresses[name], ".fleet tbody th a", rows) / slowness)
        if took[-1] < SOON:
            return
    raise AssertionError(took)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, LAPTOP])
@pytest.mark.parametrize("name", FLEETS)
def test_it_fits_the_screen(opened: Opened, addresses: dict[str, str], name: str, width: int, scheme: str) -> None:
    page = opened(addresses[name], width, color_scheme=scheme)
    page.wait_for_selector(".fleet tbody th a")
    assert fits(page)
    picture(page, f"{name}-{width}-{scheme}", whole=False)
    for kind, link in (("host", ".fleet th a"), ("gpu", ".chip")):
        show(page, str(page.locator(link).last.get_attribute("href")))
        assert fits(page)
        picture(page, f"{name}-{width}-{scheme}-{kind}")


def test_the_worst_comes_first(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["forty"])
    page.wait_for_selector(".fleet tbody th a")
    states = page.locator(".fleet tbody tr td:nth-child(2)").all_inner_texts()
    assert states[:6] == ["unreachable", "failed", "failed", "warning", "no GPU", "verified"]
    assert page.locator(".summary").inner_text().startswith("40 hosts (1 unreachable, 2 failed")
    assert page.locator(".problems li").count() == 4


def test_filter(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["thousands"])
    box = page.get_by_label("Filter")
    box.fill("slow failed")
    hosts = page.locator(".fleet tbody th")
    expect(hosts).to_have_text(["gpu0002.example.org"])
    assert page.get_by_role("status").inner_text() == "1 host of 1,000"
    box.fill("GPU-000003e7-0000-4000-8000-000000000007".lower())
    expect(hosts).to_have_text(["gpu1000.example.org"])
    box.fill("nothing like it")
    expect(hosts).to_have_count(0)
    box.fill("")
    expect(hosts.nth(39)).to_be_attached()


def test_rows_come_into_view(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["thousands"])
    page.wait_for_selector(".fleet tbody th a")
    assert page.locator(".fleet tbody th").count() < 200
    page.evaluate("document.querySelector('.fleet tbody:last-child').scrollIntoView({block: 'end'})")
    page.get_by_role("link", name="gpu1000.example.org", exact=True).wait_for()


def test_a_gpu(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["forty"])
    page.get_by_role("link", name="GPU 3 NVIDIA H200: failed, slow").click()
    heading = page.get_by_role("heading", name="GPU 3 of gpu0002.example.org: failed")
    heading.wait_for()
    assert heading.evaluate("one => one === document.activeElement")
    assert "isn't fit, matmul_rate is not as expected" in page.locator(".box.failed").inner_text()
    rate = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="matmul_rate"))
    assert "failed" in rate.inner_text()
    said = rate.get_by_role("img").get_attribute("aria-label") or ""
    assert "peak 67" in said
    assert "median 4" in said
    assert page.locator("canvas").count() == 4
    page.get_by_role("link", name="All hosts").click()
    page.locator(".fleet").wait_for()


def test_what_held_a_gpu_back_and_its_curves_in_words(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["forty"])
    page.get_by_role("link", name="GPU 0 NVIDIA H200: warning").click()
    page.get_by_text("Clocks were held back: hw_thermal_slowdown (10.5 to 19.5 s).").wait_for()
    figure = page.locator("figure").filter(has_text="Temperature under load")
    assert figure.get_by_role("img").get_attribute("aria-label") == "Temperature under load, °C: 34 to 88 °C"
    figure.get_by_text("Values").click()
    expect(figure.get_by_role("row")).to_have_count(41)


def test_trend(opened: Opened, addresses: dict[str, str], tmp_path: Path) -> None:
    page = opened(addresses["eight"] + "#gpu/gpu0001.example.org/0")
    figure = page.locator("figure").filter(has_text="Figures of each run")
    assert "3 runs, failed in none" in figure.inner_text()
    figure.get_by_text("Values").click()
    expect(figure.locator("details tbody th")).to_have_text([f"2026-11-0{day} 02:30" for day in (1, 2, 3)])
    first = opened(written(tmp_path / "first.html", made_fleet.fleet(1, 1, "quick")) + "#gpu/gpu0001.example.org/0")
    first.get_by_text("This is the first report that knows this GPU").wait_for()


def test_axis_of_a_trend_stays_near_the_figures(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["eight"])
    page.wait_for_selector("html[data-ready]")
    page.evaluate("""() => {
        const draw = CanvasRenderingContext2D.prototype.fillText;
        window.drawn = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
            window.drawn.push(text);
            return draw.call(this, text, ...place);
        };
    }""")
    show(page, "#gpu/gpu0001.example.org/0")
    page.wait_for_function("window.drawn.some((text) => text.endsWith('%'))")
    ticks = {one for one in page.evaluate("window.drawn") if one.endswith("%")}
    assert ticks == {"95 %", "97.5 %", "100 %", "102.5 %", "105 %"}
    figure = page.locator("figure").filter(has_text="Figures of each run")
    assert (figure.get_by_role("img").get_attribute("aria-label") or "").endswith("the last one is at 100 %")


def test_a_figure_above_the_peak(opened: Opened, tmp_path: Path) -> None:
    result = made_fleet.host_of(0, 2)
    found = result["verification"]["gpus"][1]["checks"]
    copy = next(one for one in found if one["name"] == "copy_device")
    copy.update(figure=copy["peak"] * 1.25, share=1.25)
    page = opened(written(tmp_path / "page.html", {"h": result}) + "#gpu/h/1")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="copy_device", exact=True))
    assert row.locator(".own").get_attribute("width") == "200.0"
    assert row.locator(".peak").get_attribute("x1") == "160.0"
    assert page.locator("#view .peak").count() == 1
    show(page, "#gpu/h/0")
    assert row.locator(".own").get_attribute("width") != "200.0"
    assert row.locator(".peak").get_attribute("x1") == "160.0"


@pytest.mark.parametrize(
    ("name", "words"), [("eight", "28 of 28 pairs connected by NVLink through switches"), ("four", "6 of 6 pairs")]
)
def test_topology(opened: Opened, addresses: dict[str, str], tmp_path: Path, name: str, words: str) -> None:
    address = addresses.get(name) or written(tmp_path / "four.html", made_fleet.fleet(1, 4))
    page = opened(address + "#host/gpu0001.example.org")
    assert words in (page.locator("svg.topology").get_attribute("aria-label") or "")
    assert page.locator("svg.topology circle.node").count() == int(FLEETS.get(name, (1, 4))[1])
    assert page.get_by_text("GPU 0, GPU 1").is_visible()


def test_keyboard_alone(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["forty"])
    page.wait_for_selector(".fleet tbody th a")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.problems ul')")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('input')")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "gpu0002.example.org"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Host gpu0002.example.org: failed").wait_for()


def test_texts_of_hosts_do_nothing(opened: Opened, tmp_path: Path) -> None:
    result = made_fleet.host_of(0, 2)
    made_fleet.fail(result, 0, "matmul", HOSTILE)
    result["facts"]["driver"]["version"] = HOSTILE
    for gpu in result["verification"]["gpus"]:
        gpu.update(name=HOSTILE, uuid=HOSTILE, warnings=[HOSTILE])
        for check in gpu["checks"]:
            check.update(name=HOSTILE, unit=HOSTILE, expected=HOSTILE, mode=HOSTILE)
        for point in gpu["load"]["samples"]:
            point["reasons"] = [HOSTILE]
    page = opened(written(tmp_path / "page.html", {HOSTILE: result}, runs=2))
    page.wait_for_selector(".fleet tbody th a")
    assert "onerror=alert(1)" in page.locator(".fleet tbody th").inner_text()
    for link in (".fleet th a", ".chip.failed"):
        show(page, str(page.locator(link).first.get_attribute("href")))
        assert fits(page)
    assert page.title() == "GPUs of the lab"
    assert page.locator("img[src]").count() == 0


@pytest.mark.parametrize(
    "place", ["#gpu/nobody/0", "#gpu/gpu0001.example.org/99", "#host/%E0%A4%A", "#//", "#gpu/__proto__/constructor"]
)
def test_a_place_that_is_none_shows_the_fleet(opened: Opened, addresses: dict[str, str], place: str) -> None:
    page = opened(addresses["eight"])
    page.wait_for_selector("html[data-ready]")
    page.evaluate("place => { location.hash = place; }", place)
    page.wait_for_timeout(100)
    assert page.locator(".fleet").is_visible()
    assert page.locator("#view").is_hidden()


# The width of A4 between the margins, at 96 dots an inch.
PAPER = 703


def test_print_wraps_no_name(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["eight"], PAPER)
    page.wait_for_selector(".fleet tbody th a")
    page.emulate_media(media="print")
    lines = "(elements) => elements.map((one) => one.getClientRects().length)"
    assert page.locator(".fleet th bdi").evaluate_all(lines) == [1]
    page.emulate_media(media="screen")
    show(page, "#host/gpu0001.example.org")
    page.emulate_media(media="print")
    assert page.locator("#view table th[scope=row] a").evaluate_all(lines) == [1] * 8
    height = "(one) => one.getBoundingClientRect().height"
    assert len({page.locator(".matrix th").nth(at).evaluate(height) for at in range(1, 9)}) == 1
    assert fits(page)


def test_print_has_all_rows_and_no_controls(opened: Opened, addresses: dict[str, str]) -> None:
    page = opened(addresses["forty"], 794, color_scheme="dark")
    page.wait_for_selector(".fleet tbody th a")
    page.emulate_media(media="print")
    expect(page.locator(".fleet tbody th")).to_have_count(40)
    assert page.get_by_label("Filter").is_hidden()
    assert page.locator(".problems li").count() == 4
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert fits(page)
    picture(page, "print-forty")
    page.emulate_media(media="screen")
    page.get_by_role("link", name="GPU 0 NVIDIA H200: warning").click()
    page.wait_for_selector("#view h2")
    page.emulate_media(media="print")
    page.wait_for_timeout(500)
    assert fits(page)
    picture(page, "print-gpu")
