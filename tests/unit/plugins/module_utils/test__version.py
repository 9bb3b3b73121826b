# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions are compared as numbers."""

from __future__ import annotations

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _version


@pytest.mark.parametrize(
    ("text", "expected"),
    [("580.159.04", (580, 159, 4)), ("13.0", (13, 0)), (" 7.5 ", (7, 5)), ("10", (10,))],
)
def test_parse_version(text: str, expected: tuple[int, ...]) -> None:
    assert _version.parse_version(text) == expected


@pytest.mark.parametrize("text", ["", "580.", "v580", "580-1", "N/A"])
def test_parse_version_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        _version.parse_version(text)


def test_ten_is_newer_than_eight() -> None:
    assert _version.parse_version("10.0") > _version.parse_version("8.9")
    assert _version.newest(["580.95.05", "580.159.04", "99.1"]) == "580.159.04"
    assert _version.newest([]) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("580.95.05", "580.95.5", True), ("580.95.05", "580.159.04", False), (None, "580.95.05", None), ("1", None, None)],
)
def test_same_version(one: str | None, other: str | None, expected: bool | None) -> None:
    assert _version.same_version(one, other) is expected


@pytest.mark.parametrize(("number", "expected"), [(13000, "13.0"), (12020, "12.2"), (11040, "11.4"), (12090, "12.9")])
def test_cuda_version(number: int, expected: str) -> None:
    assert _version.cuda_version(number) == expected


def test_branch() -> None:
    assert _version.branch("580.159.04") == "580"
    assert _version.branch(None) is None
