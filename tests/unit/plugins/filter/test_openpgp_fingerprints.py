# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A key is known by its fingerprint, and all else has none, so that it equals no fingerprint that is wanted."""

from __future__ import annotations

import base64
import hashlib

import pytest

from ansible_collections.cudahub.gpu.plugins.filter.openpgp_fingerprints import openpgp_fingerprints

BODY = b"\x04\x5b\x32\x1b\x61\x01\x00\x08\xff\x00\x11\x01\x00\x01"
PACKET = b"\x99" + len(BODY).to_bytes(2, "big") + BODY
ARMOR = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{}\n-----END PGP PUBLIC KEY BLOCK-----\n"
KEY = ARMOR.format(base64.b64encode(PACKET).decode())


def test_a_key_has_its_fingerprint() -> None:
    assert openpgp_fingerprints(KEY) == [hashlib.sha1(PACKET, usedforsecurity=False).hexdigest().upper()]


@pytest.mark.parametrize("text", ["", "<html>not found</html>", ARMOR.format("abcde")])
def test_what_is_no_key_has_none(text: str) -> None:
    assert openpgp_fingerprints(text) == []
