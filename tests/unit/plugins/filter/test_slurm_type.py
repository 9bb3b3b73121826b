# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SLURM's type of a GPU name."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_type as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_type import slurm_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3"),
        ("NVIDIA A100-SXM4-40GB", "nvidia_a100-sxm4-40gb"),
        ("NVIDIA RTX 6000 Ada Generation", "nvidia_rtx_6000_ada_generation"),
        ("Tesla T4", "tesla_t4"),
        ("NVIDIA GeForce RTX 4090", "nvidia_geforce_rtx_4090"),
        ("NVIDIA GH200 480GB", "nvidia_gh200_480gb"),
    ],
)
def test_slurm_type(name: str, expected: str) -> None:
    assert slurm_type(name) == expected


@pytest.mark.parametrize("name", [None, "", "  ", 4, ["Tesla T4"]])
def test_refuses(name: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="is not the name of a GPU"):
        slurm_type(name)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_type": slurm_type}
