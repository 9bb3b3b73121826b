# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The menu of the spawn form, and what its answers and those of the API mean."""

from __future__ import annotations

import re
import typing as t

import pytest
from cudahub_hub import form
from cudahub_hub.allocator import Offer, PoolState
from cudahub_hub.refusal import Refused
from cudahub_hub.settings import Pool

HELD = "No GPU is free now: held by <2> others. Come back later, or start without a GPU."


def pool(name: str = "default", total: int = 2, free: int = 1, **options: t.Any) -> PoolState:
    return PoolState(Pool(name, **options), total, total, free)


def offer(*pools: PoolState, limit: int | None = 1, sentence: str | None = None, most: int = 1) -> Offer:
    return Offer(pools=pools, most=most, limit=limit, held=0, sentence=sentence)


def checked(html: str) -> str:
    return t.cast("re.Match[str]", re.search(r'value="([^"]*)" (?:checked|selected)', html))[1]


def test_with_or_without() -> None:
    html = form.render(offer(pool()), "gpu")
    assert html.count('type="radio"') == 2
    assert "<select" not in html
    assert checked(html) == "1"
    assert "Now: 1 of 2 free." in html
    assert checked(form.render(offer(pool()), "none")) == "0"


def test_a_number_where_the_limit_allows_several() -> None:
    html = form.render(offer(pool(total=8), limit=3), "gpu")
    assert re.findall(r'<option value="(\d)"', html) == ["0", "1", "2", "3"]
    assert checked(html) == "1"
    html = form.render(offer(pool(total=4), limit=None), "gpu")
    assert re.findall(r'<option value="(\d)"', html) == ["0", "1", "2", "3", "4"]


def test_pools() -> None:
    shared = pool("<b>", 1, 1, policy="share", servers_per_gpu=4)
    html = form.render(offer(pool("big"), shared), "gpu")
    assert '<option value="big">big</option><option value="&lt;b&gt;">&lt;b&gt;</option>' in html
    assert "Now: big 1 of 2 free; &lt;b&gt; 1 of 1 with room, shared by up to 4." in html


def test_none_free() -> None:
    html = form.render(offer(pool(free=0), sentence=HELD), "gpu")
    assert "held by &lt;2&gt; others" in html
    assert checked(html) == "0"


@pytest.mark.parametrize("nothing", [offer(pool(), limit=0, sentence="Not <you>."), offer(sentence="Not <you>.")])
def test_no_menu_for_those_who_may_not(nothing: Offer) -> None:
    html = form.render(nothing, "gpu")
    assert html == '<p class="form-text">Not &lt;you&gt;.</p>'
    assert form.default_count(nothing, "gpu") == 0


def test_default_count() -> None:
    assert form.default_count(offer(pool()), "gpu") == 1
    assert form.default_count(offer(pool()), "none") == 0


def test_images_are_offered_together() -> None:
    none = offer(sentence="There are no GPUs for this image.", most=0)
    both = form.merged([none, offer(pool("a")), offer(pool("b"))])
    assert [state.pool.name for state in both.pools] == ["a", "b"]
    assert both.sentence is None


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"cudahub-gpus": ["2"], "cudahub-pool": ["a b"]}, {"gpus": 2, "pool": "a b"}),
        ({"cudahub-gpus": ["0"], "cudahub-pool": [""]}, {"gpus": 0}),
        ({"cudahub-gpus": ["two"]}, {"gpus": "two"}),
        ({"cudahub-gpus": []}, {}),
    ],
)
def test_split(fields: dict[str, list[str]], options: dict[str, t.Any]) -> None:
    rest, ours = form.split({"image": ["x"], **fields})
    assert rest == {"image": ["x"]}
    assert ours == options


def test_asked() -> None:
    assert form.asked({}) == (None, None)
    assert form.asked({"gpus": 2, "pool": "a"}) == (2, "a")


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "9" * 10, "two " * 100])
def test_a_number_that_is_typed_too_long(number: str) -> None:
    for options in (form.split({"cudahub-gpus": [number]})[1], {"gpus": int("9" * 400)}, {"gpus": -int("9" * 400)}):
        with pytest.raises(Refused) as refused:
            form.asked(options)
        assert refused.value.message.endswith(" is not a number of GPUs. Ask for 0 or more.")
        assert len(refused.value.message) < 120


@pytest.mark.parametrize(
    "options", [{"gpus": "2"}, {"gpus": -1}, {"gpus": True}, {"gpus": 1.0}, {"gpus": []}, {"pool": 3}, {"pool": {}}]
)
def test_nonsense(options: dict[str, t.Any]) -> None:
    with pytest.raises(Refused) as refused:
        form.asked(options)
    assert refused.value.status == 400
