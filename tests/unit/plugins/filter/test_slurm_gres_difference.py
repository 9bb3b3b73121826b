# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What slurmd finds against what is expected."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_gres_difference as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_gres import slurm_gres
from ansible_collections.cudahub.gpu.plugins.filter.slurm_gres_difference import slurm_gres_difference
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_nodes import gpu, node

FOUND = "slurmd: Gres Name=gpu Type=tesla_t4 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)"


def test_slurm_gres_difference() -> None:
    expected = slurm_gres([node("gpu1", [gpu(0)]), node("gpu2", [gpu(0), gpu(1)])], version="24.11.5")
    assert slurm_gres_difference(FOUND, expected["gpu1"]) == []
    assert slurm_gres_difference(FOUND, expected["gpu2"]) == [
        "slurmd finds 1 of gpu:tesla_t4, expected are 2",
        "slurmd does not find gpu:tesla_t4 at /dev/nvidia1",
    ]


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        (None, [], "the input is a NoneType, not the text that slurmd -G prints"),
        ("", {}, "expected is a dict, not a list of resources"),
    ],
)
def test_refuses(text: t.Any, expected: t.Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=f"slurm_gres_difference: {message}"):
        slurm_gres_difference(text, expected)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_gres_difference": slurm_gres_difference}
