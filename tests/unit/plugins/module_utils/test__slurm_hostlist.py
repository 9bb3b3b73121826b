# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hostlists, as SLURM reads them."""

from __future__ import annotations

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_hostlist


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["gpu1"], "gpu1"),
        (["gpu01", "gpu02", "gpu03", "gpu07", "login1"], "gpu[01-03,07],login1"),
        (["gpu8", "gpu9", "gpu10"], "gpu[8-10]"),
        (["gpu08", "gpu09", "gpu10", "gpu100"], "gpu[08-10,100]"),
        (["gpu99", "gpu100"], "gpu[99-100]"),
        (["gpu099", "gpu100"], "gpu[099-100]"),
        (["gpu1", "gpu02"], "gpu[1,02]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["gpu1-ib", "gpu2-ib"], "gpu1-ib,gpu2-ib"),
        (["1", "2"], "1,2"),
        (["10.0.0.7", "10.0.0.8", "10.0.0.3"], "10.0.0.[7-8,3]"),
        (["/dev/nvidia0", "/dev/nvidia1"], "/dev/nvidia[0-1]"),
        (["a", "a1"], "a,a1"),
        (["gpu1234567890123456"], "gpu1234567890123456"),
    ],
)
def test_compress(names: list[str], expected: str) -> None:
    assert _slurm_hostlist.compress(names) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
        ("gpu[8-10]", ["gpu8", "gpu9", "gpu10"]),
        ("a, b", ["a", "b"]),
        ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
    ],
)
def test_expand(text: str, expected: list[str]) -> None:
    assert _slurm_hostlist.expand(text) == expected


@pytest.mark.parametrize("text", ["", "gpu[1-", "gpu[2-1]", "a,,b", "a b", "gpu[0-999999]", "gpu[1--2]", "gpu]1["])
def test_expand_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of host names"):
        _slurm_hostlist.expand(text)


def test_compressed_names_come_back() -> None:
    names = [f"gpu{number:03d}" for number in range(1, 1200, 3)]
    assert _slurm_hostlist.expand(_slurm_hostlist.compress(names)) == names


def test_natural_order() -> None:
    names = ["gpu10", "gpu2", "a", "gpu", "10", "9", "gpu02"]
    assert sorted(names, key=_slurm_hostlist.natural_key) == ["9", "10", "a", "gpu", "gpu02", "gpu2", "gpu10"]
