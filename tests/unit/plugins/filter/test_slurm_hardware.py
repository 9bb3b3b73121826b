# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hardware that slurmd reports."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_hardware as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_hardware import slurm_hardware


def test_slurm_hardware() -> None:
    text = "NodeName=a CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=900\nUpTime=0-1"
    assert slurm_hardware(text) == {
        "CPUs": 4,
        "Boards": 1,
        "SocketsPerBoard": 1,
        "CoresPerSocket": 2,
        "ThreadsPerCore": 2,
        "RealMemory": 900,
    }


@pytest.mark.parametrize("text", ["", "slurmd: fatal: no", None, 5])
def test_refuses(text: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match=r"slurm_hardware: .*slurmd -C"):
        slurm_hardware(text)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_hardware": slurm_hardware}
