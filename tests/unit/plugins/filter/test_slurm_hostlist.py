# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Host names as a hostlist."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_hostlist as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_hostlist import slurm_hostlist


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["gpu10", "gpu9", "login1", "gpu9"], "gpu[9-10],login1"),
        (("gpu02", "gpu01"), "gpu[01-02]"),
        ({"b", "a"}, "a,b"),
    ],
)
def test_slurm_hostlist(names: t.Any, expected: str) -> None:
    assert slurm_hostlist(names) == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("gpu01", "the input is a str, not a list of host names"),
        ({"gpu01": 1}, "the input is a dict, not a list"),
        (None, "the input is a NoneType"),
        ([1], "1 is not a host name"),
        (["gpu[1-2]"], r"'gpu\[1-2\]' is not a host name"),
        ([""], "'' is not a host name"),
    ],
)
def test_refuses(names: t.Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        slurm_hostlist(names)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_hostlist": slurm_hostlist}
