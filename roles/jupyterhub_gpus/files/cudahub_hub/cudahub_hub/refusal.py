# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a server gets no GPU, in the user's words."""

from __future__ import annotations

import typing as t

Reason = t.Literal["none_free", "limit", "not_allowed", "too_many", "no_gpus", "stopping", "senseless"]

_STATUS: dict[Reason, int] = {
    "none_free": 409,
    "no_gpus": 409,
    "stopping": 409,
    "limit": 403,
    "not_allowed": 403,
    "too_many": 400,
    "senseless": 400,
}


class Refused(Exception):  # noqa: N818
    """A request that is not granted; the message is for the user."""

    def __init__(self, message: str, reason: Reason) -> None:
        """The reason decides on the HTTP status."""
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.status = _STATUS[reason]


def out_of_order(error: Exception) -> str:
    """What users are told while a file is wrong that GPUs can't be given without."""
    return f"GPUs can't be given out now. Tell an administrator: {error}."


def gpus(number: int) -> str:
    """A number of GPUs."""
    return f"{number} GPU" if number == 1 else f"{number} GPUs"


def listed(names: t.Iterable[str]) -> str:
    """Names as a sentence says them."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def _server(name: str) -> str:
    return f"your server {name}" if name else "your default server"


def _short(value: object) -> str:
    """What a user gave, cut if it is long."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def senseless(count: object) -> Refused:
    """A number that is no number of GPUs."""
    return Refused(f"{_short(count)} is not a number of GPUs. Ask for 0 or more.", "senseless")


def no_name(pool: object) -> Refused:
    """A name that is none."""
    return Refused(f"{_short(pool)} is not the name of a pool of GPUs.", "senseless")


def stopping(number: int) -> Refused:
    """The server's former run may still use its GPUs."""
    which = "its GPU" if number == 1 else f"its {number} GPUs"
    return Refused(
        f"The former run of this server still holds {which} and is being stopped. Try again in a minute.", "stopping"
    )


def no_such_pool(pool: str, pools: t.Sequence[str]) -> Refused:
    """A pool that isn't there, or not for this user."""
    return Refused(f"There is no pool {_short(pool)} of GPUs for you. Choose {' or '.join(pools)}.", "not_allowed")


def not_for_you() -> Refused:
    """No pool for the user's groups."""
    return Refused(
        "The GPUs here are for other groups than yours. Start without a GPU, or ask an administrator.", "not_allowed"
    )


def not_for_image(image: str | None, images: t.Sequence[str]) -> Refused:
    """No pool for the image."""
    which = f"the image {image}" if image else "this kind of server"
    return Refused(
        f"There are no GPUs for {which}. Choose {' or '.join(images)}, or start without a GPU.", "not_allowed"
    )


def never() -> Refused:
    """A limit of 0."""
    return Refused("Your account may not use GPUs here. Start without a GPU, or ask an administrator.", "not_allowed")


def over_limit(count: int, limit: int, held: int, names: t.Sequence[str]) -> Refused:
    """More than the user may hold at one time."""
    if not held:
        return Refused(f"You asked for {gpus(count)} and may hold {limit} at a time. Ask for {limit}.", "limit")
    what = f"You may hold {gpus(limit)} at a time, and {listed(map(_server, names))} {_has(names)} {held}."
    left = limit - held
    less = f"ask for {left}, " if left > 0 else ""
    return Refused(
        f"{what} Stop {'it' if len(names) == 1 else 'one of them'} first, {less}or start without a GPU.", "limit"
    )


def _has(names: t.Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def too_many(count: int, most: int) -> Refused:
    """More than there are."""
    there = "is 1" if most == 1 else f"are {most}"
    return Refused(f"You asked for {gpus(count)}, and there {there} to be had. Ask for {most}.", "too_many")


def no_gpus(total: int) -> Refused:
    """None that could be given even if nobody held one."""
    why = "There is no GPU here now"
    if total:
        why = "The GPU here is out of order" if total == 1 else f"All {total} GPUs here are out of order"
    return Refused(f"{why}. Tell an administrator, or start without a GPU.", "no_gpus")


def none_free(  # noqa: D417
    count: int, free: int, others: int, names: t.Sequence[str], broken: int, minutes: int | None
) -> Refused:
    """Not enough that are free now.

    Args:
        others: how many other users hold one.
        names: the user's own servers that do.
        broken: how many GPUs are out of order.
        minutes: when the next idle server is stopped.
    """
    reasons = []
    holders = [*([f"{others} other{'s' if others != 1 else ''}"] if others else []), *map(_server, names)]
    if holders:
        reasons.append(f"held by {listed(holders)}")
    if broken:
        reasons.append(f"{broken} out of order")
    if minutes is not None:
        reasons.append(f"next idle stop in ~{minutes} min")
    now = "No GPU is free now" if not free else f"Only {gpus(free)} {'is' if free == 1 else 'are'} free now"
    asked = f" and you asked for {count}" if free else ""
    less = f"Ask for {free}, come" if free else "Come"
    own = f", stop {_server(names[0])}" if names else ""
    return Refused(f"{now}{asked}: {', '.join(reasons)}. {less} back later{own}, or start without a GPU.", "none_free")
