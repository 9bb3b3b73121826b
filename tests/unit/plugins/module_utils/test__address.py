# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A password in an address is found and shown to nobody."""

from __future__ import annotations

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _address
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import PackageError, RepositoryError

LINE = "E: Failed to fetch https://me:se@cret@mirror.example/d/InRelease, and mirror+http://t0ken@other.example:80/"
MASKED = "E: Failed to fetch https://***@mirror.example/d/InRelease, and mirror+http://***@other.example:80/"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LINE, MASKED),
        ("https://mirror.example/a@b/c", "https://mirror.example/a@b/c"),
        ("https://mirror.example?mail=a@b.example", "https://mirror.example?mail=a@b.example"),
        ("file:///srv/a@b", "file:///srv/a@b"),
        ("mail to me@mirror.example", "mail to me@mirror.example"),
    ],
)
def test_addresses_are_shown_without_passwords(text: str, shown: str) -> None:
    assert _address.masked(text) == shown


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("https://me:secret@mirror.example/d", ("me:secret@", "secret")),
        ("https://t0ken@mirror.example/d", ("t0ken@",)),
        ("https://me:@mirror.example/d", ("me:@",)),
        ("me:secret@mirror.example/d", ("me:secret@", "secret")),
        ("https://mirror.example/d@e", ()),
        ("https://mirror.example:8080/", ()),
        ("file:/srv/a@b", ()),
        ("file:///srv/a@b", ()),
        ("", ()),
    ],
)
def test_what_nobody_may_see(url: str, secrets: tuple[str, ...]) -> None:
    assert _address.secrets(url) == secrets


def test_errors_of_package_managers_show_no_password() -> None:
    error = PackageError("download", f"A download failed: {LINE}", f"more\n{LINE}\n")
    assert error.message == str(error) == f"A download failed: {MASKED}"
    assert error.details == f"more\n{MASKED}\n"
    broken = RepositoryError("network", "https://me:secret@mirror.example/d", LINE)
    assert broken.url == "https://***@mirror.example/d"
    assert broken.reason == MASKED
    assert broken.message == f"https://***@mirror.example/d can't be used: {MASKED}"
