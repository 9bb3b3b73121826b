# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of repositories, and that no user name or password in one is shown to anybody."""

from __future__ import annotations

import re

_USER = re.compile(r"\b(?P<scheme>[a-z][a-z0-9+.-]*://)[^\s/?#]*@", re.IGNORECASE)
_GIVEN = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?P<user>[^/?#]*)@", re.IGNORECASE)


def masked(text: str) -> str:
    """A text in which no address has a user name or a password any more."""
    return _USER.sub(r"\g<scheme>***@", text)


def secrets(url: str) -> tuple[str, ...]:
    """The parts of an address that nobody may see; none if it has neither a user name nor a password."""
    match = _GIVEN.match(url)
    if match is None:
        return ()
    password = match["user"].partition(":")[2]
    return (f"{match['user']}@", *([password] if password else []))


def password_in_url(where: str) -> str:
    """What is wrong with an address that has a user name or a password in it, and what to do, in a sentence."""
    return (
        f"{where} has a user name or a password in it, which others could read: take it out, and put it into a file "
        "in /etc/apt/auth.conf.d on the host, or, on Enterprise Linux, give the host a file in /etc/yum.repos.d with "
        "this address, username and password"
    )


def address(uri: str) -> str:
    """A URI as apt prints it: without a password, without the slash at its end, C(file:/path) with one slash."""
    plain = _USER.sub(r"\g<scheme>", uri)
    return re.sub(r"^(file|copy):/+", r"\1:/", plain).rstrip("/")
