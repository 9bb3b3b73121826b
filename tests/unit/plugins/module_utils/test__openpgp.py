# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fingerprints of keys, against those that gpg gives for the same files."""

from __future__ import annotations

import base64

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils._apt_sources import Key
from ansible_collections.cudahub.gpu.plugins.module_utils._dnf import check_key
from ansible_collections.cudahub.gpu.plugins.module_utils._openpgp import fingerprints, is_key
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import RepositoryError

ONE, ONE_PRINT = (
    """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawo9ARYJKwYBBAHaRw8BAQdAAkeNrb5b0Rxrr8TdaDXrlGSHucyh4mtBySRz
+TzdYSe0A29uZYiQBBMWCAA4FiEE/l/pEB2VrU/YQ+C/4ScQaZYZzpQFAmsKPQEC
GwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ4ScQaZYZzpR/3wEAitfXv1xw
QoQGaokxn6KHGgjCqTduiIWwJ/GTPsOQDXMA/22BVQyTUCfCJC3dYkGZp1iMKBOC
Vr0BDa89pw5YNSELuDgEawo9ARIKKwYBBAGXVQEFAQEHQE3K+NYgzc995EdIauK/
dcInvypP3Mc/jvoylsg963AaAwEIB4h4BBgWCAAgFiEE/l/pEB2VrU/YQ+C/4ScQ
aZYZzpQFAmsKPQECGwwACgkQ4ScQaZYZzpQDKQEA4jpbuVBTEru3k3TG8dICXVA5
bvjr/u0HDmTctFk2GjMA/iGypvMxWM2dX7006PyqM8RDFh+OTAisLAiJGfqz6g0G
=OMej
-----END PGP PUBLIC KEY BLOCK-----
""",
    "FE5FE9101D95AD4FD843E0BFE12710699619CE94",
)
"""A key with a subkey, which has a fingerprint of its own."""

TWO, TWO_PRINT = (
    """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawo9ARYJKwYBBAHaRw8BAQdA0MsqCT6mTntG/cP+7FRWxC0AkKA8MDoCi2bv
+XCNSxK0A3R3b4iQBBMWCAA4FiEEbB/y7L0pcwFGLEig5GPkDAcmMxcFAmsKPQEC
GwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ5GPkDAcmMxetfQD/aRjp/3yC
S8SiUbh+delEDHJadc1Aq5BG/DIdEpqwdhkA/3pMDugOJePp1SSmKaIMdH6mlkNI
Jnrpm9tKza7A3S4F
=J00x
-----END PGP PUBLIC KEY BLOCK-----
""",
    "6C1FF2ECBD297301462C48A0E463E40C07263317",
)


def body(armored: str) -> bytes:
    """The packets of a key without its armor."""
    return base64.b64decode("".join(armored.splitlines()[2:-2]))


def armored(packets: bytes) -> bytes:
    return (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"
        + base64.encodebytes(packets)
        + b"-----END PGP PUBLIC KEY BLOCK-----\n"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (ONE.encode(), True),
        (b"Words.\n" + ONE.encode(), True),
        (body(ONE), True),
        (TWO.encode(), False),
        (body(TWO), False),
        (ONE.encode()[:200], False),
        (body(ONE)[:-1], False),
        (b"junk\n", False),
        (b"", False),
    ],
)
def test_a_file_is_the_key(content: bytes, expected: bool) -> None:
    assert is_key(content, ONE_PRINT) is expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (ONE.encode(), (ONE_PRINT,)),
        (TWO.replace("\n", "\r\n").encode(), (TWO_PRINT,)),
        (ONE.replace("BLOCK-----\n\n", "BLOCK-----\nComment: a key\nVersion: x\n\n", 1).encode(), (ONE_PRINT,)),
        (b"Some words.\n" + ONE.encode() + b"More.\n" + TWO.encode(), (ONE_PRINT, TWO_PRINT)),
        (armored(body(ONE) + body(TWO)), (ONE_PRINT, TWO_PRINT)),
    ],
    ids=["one", "line ends", "headers", "two blocks", "two in one block"],
)
def test_fingerprints_of_primary_keys(content: bytes, expected: tuple[str, ...]) -> None:
    assert fingerprints(content) == expected


@pytest.mark.parametrize("size", [1, 2, 5])
def test_packets_of_the_new_format(size: int) -> None:
    packet = body(ONE)
    length, key = packet[1], packet[2 : 2 + packet[1]]
    filler = {1: b"", 2: b"\0" * 300, 5: b"\0" * 70000}[size]
    lengths = {
        1: bytes([length]),
        2: bytes([((length + 300 - 192) >> 8) + 192, (length + 300 - 192) & 0xFF]),
        5: b"\xff" + (length + 70000).to_bytes(4, "big"),
    }
    if size == 5:
        with pytest.raises(ValueError, match="no OpenPGP key"):
            fingerprints(armored(b"\xc6" + lengths[size] + key + filler))
        return
    (found,) = fingerprints(armored(b"\xc6" + lengths[size] + key + filler))
    assert (found == ONE_PRINT) is (size == 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html>not found</html>", "no OpenPGP key in ASCII armor"),
        (b"", "no OpenPGP key in ASCII armor"),
        (body(ONE), "no OpenPGP key in ASCII armor"),
        (armored(b"hello"), "no packet where one should begin"),
        (armored(body(ONE)[:-5]), "ends too early"),
        (armored(b"\x9b" + body(ONE)), "no definite length"),
        (armored(b"\xc6\xe1" + body(ONE)), "no definite length"),
        (armored(b"\xb4\x01a"), "no OpenPGP key in ASCII armor"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabcde\n-----END PGP PUBLIC KEY BLOCK-----\n", "can't be read"),
    ],
)
def test_what_is_no_key(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fingerprints(content)


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (TWO.encode(), "signature", [TWO_PRINT, ONE_PRINT]),
        (ONE.encode() + TWO.encode(), "signature", [f"{ONE_PRINT} and {TWO_PRINT}"]),
        (b"<html>", "signature", ["ASCII armor"]),
    ],
)
def test_a_key_that_is_not_the_one_asked_for(content: bytes, kind: str, words: list[str]) -> None:
    url = "https://mirror.example.org/D42D0685.pub"
    with pytest.raises(RepositoryError) as error:
        check_key(Key(url, ONE_PRINT), content)
    assert error.value.kind == kind
    assert [word for word in [*words, url] if word not in error.value.message] == []


def test_the_key_asked_for() -> None:
    check_key(Key("https://mirror.example.org/D42D0685.pub", ONE_PRINT), ONE.encode())
    with pytest.raises(RepositoryError) as error:
        check_key(Key("https://mirror.example.org/D42D0685.pub", ONE_PRINT, "sha256:" + "0" * 64), ONE.encode())
    assert error.value.kind == "checksum"
