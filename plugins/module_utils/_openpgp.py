# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fingerprints of OpenPGP keys of version 4, without a program that a host may lack."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import typing as t

PUBLIC_KEY = 6
LONGEST_KEY = 0xFFFF

_ARMOR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\r?\n(?P<headers>(?:[^\r\n]+: [^\r\n]*\r?\n)*)(?:[ \t]*\r?\n)?"
    rb"(?P<body>[A-Za-z0-9+/=\s]*?)(?:^=[A-Za-z0-9+/]{4}\s*)?-----END PGP PUBLIC KEY BLOCK-----",
    re.MULTILINE,
)


def fingerprints(content: bytes) -> tuple[str, ...]:
    """Those of the primary keys in a file with ASCII armor, in upper case. Raises ValueError when there is no key."""
    found = [one for block in _ARMOR.finditer(content) for one in _primary(_decoded(block["body"]))]
    if not found:
        raise ValueError("this is no OpenPGP key in ASCII armor")
    return tuple(found)


def is_key(content: bytes, fingerprint: str) -> bool:
    """Whether a file, in ASCII armor or binary, has the primary key with a fingerprint, and can be read whole."""
    try:
        if b"-----BEGIN PGP" in content:
            return fingerprint in fingerprints(content)
        return fingerprint in _primary(content)
    except ValueError:
        return False


def _primary(data: bytes) -> list[str]:
    """The fingerprints of the primary keys in packets."""
    return [
        hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()
        for tag, body in _packets(data)
        if tag == PUBLIC_KEY and body[:1] == b"\x04" and len(body) <= LONGEST_KEY
    ]


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"the OpenPGP key can't be read: {error}") from error


def _packets(data: bytes) -> t.Iterator[tuple[int, bytes]]:
    """Tag and body of each packet. Raises ValueError."""
    place = 0
    while place < len(data):
        first = data[place]
        if not first & 0x80:
            raise ValueError("the OpenPGP key can't be read: it has no packet where one should begin")
        tag = first & 0x3F if first & 0x40 else first >> 2 & 0x0F
        size, length = _new_length(data, place + 1) if first & 0x40 else _old_length(first & 0x03, data, place + 1)
        start = place + 1 + size
        place = start + length
        if place > len(data):
            raise ValueError("the OpenPGP key can't be read: it ends too early")
        yield tag, data[start:place]


def _new_length(data: bytes, place: int) -> tuple[int, int]:
    """How many bytes a length takes, and the length."""
    first = data[place : place + 1]
    if first < b"\xc0":
        return 1, int.from_bytes(first, "big")
    if first < b"\xe0":
        return 2, int.from_bytes(data[place : place + 2], "big") - 0xC000 + 192
    if first == b"\xff":
        return 5, int.from_bytes(data[place + 1 : place + 5], "big")
    raise ValueError("the OpenPGP key can't be read: a packet has no definite length")


def _old_length(kind: int, data: bytes, place: int) -> tuple[int, int]:
    if kind == 3:
        raise ValueError("the OpenPGP key can't be read: a packet has no definite length")
    size = 1 << kind
    return size, int.from_bytes(data[place : place + size], "big")
