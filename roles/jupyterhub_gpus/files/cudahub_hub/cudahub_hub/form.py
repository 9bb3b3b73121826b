# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of the spawn form that asks for GPUs, and what its answers and those of the API mean."""

from __future__ import annotations

import typing as t
from dataclasses import replace
from html import escape

from . import refusal
from .settings import is_integer

if t.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .allocator import Offer, PoolState

GPUS_FIELD = "cudahub-gpus"
POOL_FIELD = "cudahub-pool"
NOW = "cudahub-gpus-now"
DIGITS = 9

Default = t.Literal["gpu", "none"]


def merged(offers: Sequence[Offer]) -> Offer:
    """What a user can have who may still choose between images, from an offer for each."""
    best = max(offers, key=lambda offer: (offer.sentence is None, offer.most, len(offer.pools)))
    pools = {state.pool.name: state for offer in offers for state in offer.pools}
    return replace(best, pools=tuple(pools.values()))


def most_choosable(offer: Offer) -> int:
    """The largest number that the menu has: of what the user may hold, and of what there is."""
    most = max((state.total for state in offer.pools), default=0)
    return most if offer.limit is None else min(most, offer.limit)


def default_count(offer: Offer, default: Default) -> int:
    """How many GPUs a server gets whose user said nothing."""
    return 1 if default == "gpu" and most_choosable(offer) > 0 else 0


def render(offer: Offer, default: Default, told: str | None = None) -> str:
    """The HTML of the menu: whether with a GPU, how many and of which pool, and what is free now.

    A sentence that the page says above the form already, `told`, is not said again.
    """
    most = most_choosable(offer)
    if most == 0:
        return f'<p class="form-text">{escape(offer.sentence or refusal.no_gpus(0).message)}</p>'
    chosen = 0 if offer.sentence else default_count(offer, default)
    parts = [
        f'<fieldset class="mb-3" aria-describedby="{NOW}">',
        '<legend class="fs-6">GPU</legend>',
        _numbers(most, chosen) if most > 1 else _with_or_without(chosen),
        _pools(offer.pools) if len(offer.pools) > 1 else "",
        f'<div id="{NOW}">{_now(offer, told)}</div>',
        "</fieldset>",
    ]
    return "\n".join(filter(None, parts))


def without(sentence: str) -> str:
    """The HTML where there is no choice now, and why."""
    return (
        f'<div class="alert alert-warning">{escape(sentence)}</div>\n'
        f'<input type="hidden" name="{GPUS_FIELD}" value="0">'
    )


def _with_or_without(chosen: int) -> str:
    choices = ((1, "With a GPU"), (0, "Without a GPU"))
    return "\n".join(
        f'<div class="form-check"><input class="form-check-input" type="radio" name="{GPUS_FIELD}" '
        f'id="{GPUS_FIELD}-{number}" value="{number}"{" checked" if number == chosen else ""}>'
        f'<label class="form-check-label" for="{GPUS_FIELD}-{number}">{label}</label></div>'
        for number, label in choices
    )


def _numbers(most: int, chosen: int) -> str:
    options = "".join(
        f'<option value="{number}"{" selected" if number == chosen else ""}>'
        f"{f'With {refusal.gpus(number)}' if number else 'Without a GPU'}</option>"
        for number in range(most + 1)
    )
    return f'<select class="form-select" name="{GPUS_FIELD}" aria-label="Number of GPUs">{options}</select>'


def _pools(pools: Sequence[PoolState]) -> str:
    names = [escape(state.pool.name) for state in pools]
    options = "".join(f'<option value="{name}">{name}</option>' for name in names)
    return (
        f'<label class="form-label mt-2" for="{POOL_FIELD}">Pool of GPUs</label>'
        f'<select class="form-select" name="{POOL_FIELD}" id="{POOL_FIELD}">'
        f'<option value="">Any</option>{options}</select>'
    )


def _free(state: PoolState) -> str:
    return f"{state.free} of {state.total} free" if state.pool.policy == "exclusive" else _shared(state)


def _shared(state: PoolState) -> str:
    return f"{state.free} of {state.total} with room, shared by up to {state.pool.servers_per_gpu}"


def _now(offer: Offer, told: str | None) -> str:
    if offer.sentence and offer.sentence == told:
        return ""
    if offer.sentence:
        return f'<div class="alert alert-warning mt-2 mb-0">{escape(offer.sentence)}</div>'
    several = len(offer.pools) > 1
    free = "; ".join(f"{f'{state.pool.name} ' if several else ''}{_free(state)}" for state in offer.pools)
    return f'<div class="form-text">Now: {escape(free)}.</div>'


def split(fields: Mapping[str, t.Any], gpus: str = GPUS_FIELD, pool: str = POOL_FIELD) -> tuple[dict[str, t.Any], ...]:
    """The fields of a form that aren't ours, and the options that ours mean."""
    rest = {name: values for name, values in fields.items() if name not in (gpus, pool)}
    options: dict[str, t.Any] = {}
    if number := _first(fields.get(gpus)):
        options["gpus"] = int(number) if number.isdecimal() and len(number) <= DIGITS else number
    if name := _first(fields.get(pool)):
        options["pool"] = name
    return rest, options


def _first(values: t.Any) -> str:
    value = values[0] if isinstance(values, list) and values else values
    return value.strip() if isinstance(value, str) else ""


def asked(options: Mapping[str, t.Any]) -> tuple[int | None, str | None]:
    """The number of GPUs (None: not said) and the pool in the options of a spawn.

    Raises:
        Refused: They make no sense.
    """
    count, pool = options.get("gpus"), options.get("pool")
    if count is not None and (not is_integer(count) or not 0 <= count < 10**DIGITS):
        raise refusal.senseless(count)
    if pool is not None and not isinstance(pool, str):
        raise refusal.no_name(pool)
    return count, pool or None
