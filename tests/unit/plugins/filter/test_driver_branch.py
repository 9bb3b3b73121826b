# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver branch for the GPUs of a host."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import driver_branch as plugin
from ansible_collections.cudahub.gpu.plugins.filter.driver_branch import driver_branch
from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu, _pci

R580 = {"branch": "580", "kind": "long-term", "end_of_life": "2028-06", "kernel_module": "proprietary"}
R620 = {"branch": "620", "kind": "long-term", "end_of_life": "2029-09", "kernel_module": "open"}


def gpus(*architectures: str | None) -> list[dict[str, t.Any]]:
    return [{"architecture": name, "name": f"Card {name}", "pci_bus_id": "00000000:01:00.0"} for name in architectures]


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        (("Maxwell",), R580),
        (("Pascal",), R580),
        (("Volta",), R580),
        (("Turing",), R620),
        (("Ampere",), R620),
        (("Ada Lovelace",), R620),
        (("Hopper",), R620),
        (("Blackwell",), R620),
        (("Rubin",), R620),
        (("Hopper", "Hopper", "Turing"), R620),
        (("Hopper", "Volta"), R580),
        (("Volta", "Hopper"), R580),
        (("Turing", "Blackwell"), R620),
    ],
)
def test_driver_branch(architectures: tuple[str, ...], expected: dict[str, str]) -> None:
    assert driver_branch(gpus(*architectures)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "there is no GPU in the list"),
        (None, "there is no GPU in the list"),
        ({"architecture": "Turing"}, "there is no GPU in the list"),
        (
            gpus("Kepler"),
            r"Card Kepler 00000000:01:00.0 Kepler is older than Maxwell, and no .* branch \(580, 595, 620\)",
        ),
        (gpus("Fermi", "Hopper"), "GPU Card Fermi .* take the card out"),
        (
            gpus("Volta", "Blackwell"),
            "Card Volta .* needs the proprietary kernel module and GPU Card Blackwell .* the open one",
        ),
        (
            gpus("Hopper", None),
            "the architecture of GPU Card None 00000000:01:00.0 is unknown, which is none of Tesla, Fermi",
        ),
        (gpus("hopper"), "is hopper, which is none of"),
        ([{}], "the architecture of GPU is unknown"),
    ],
)
def test_refuses(value: t.Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        driver_branch(value)


def test_knows_every_architecture_of_the_facts() -> None:
    assert set(plugin.GENERATIONS) >= {*_gpu.ARCHITECTURES.values(), *_pci.ARCHITECTURES.values()}


def test_branches_are_in_order_of_version() -> None:
    versions = [int(branch.branch) for branch in plugin.BRANCHES]
    assert versions == sorted(versions)
    assert all(branch.oldest in plugin.GENERATIONS for branch in plugin.BRANCHES)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"driver_branch": driver_branch}
