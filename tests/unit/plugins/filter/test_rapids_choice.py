# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The RAPIDS release and CUDA line for hosts, as a filter."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import rapids_choice as plugin
from ansible_collections.cudahub.gpu.plugins.filter.rapids_choice import rapids_choice
from ansible_collections.cudahub.gpu.plugins.plugin_utils._rapids import RELEASES

FACTS = {
    "driver": {"state": "ok", "version": "580.159.04", "cuda_version": "13.0"},
    "gpus": [{"name": "NVIDIA H200", "architecture": "Hopper", "compute_capability": "9.0"}],
}
NEWEST = {
    "release": "26.10",
    "cuda_line": "13",
    "cuda_version": ">=13.0,<=13.0",
    "cuda_override": "13.0",
    "python": "3.13",
    "pip_suffix": "cu13",
    "cupy": "cupy-cuda13x",
}
OF_CUDA_12 = {"cuda_line": "12", "pip_suffix": "cu12", "cupy": "cupy-cuda12x"}


@pytest.mark.parametrize(
    ("wishes", "different"),
    [
        ({}, {}),
        ({"python": "3.12"}, {"python": "3.12"}),
        ({"release": "26.02"}, {"release": "26.02"}),
        ({"cuda": "12"}, {**OF_CUDA_12, "cuda_version": ">=12.2,<=12.9"}),
        (
            {"release": "25.10", "cuda": "12.8", "python": "3.10"},
            {**OF_CUDA_12, "release": "25.10", "cuda_version": ">=12.8,<=12.8", "python": "3.10"},
        ),
    ],
)
def test_rapids_choice(wishes: dict[str, str], different: dict[str, str]) -> None:
    assert rapids_choice({"gpu1": FACTS}, **wishes) == {**NEWEST, **different}


@pytest.mark.parametrize(
    ("hosts", "wishes", "message"),
    [
        ([FACTS], {}, "rapids_choice: the input is .* gather them with cudahub.gpu.gpu_facts"),
        ({"gpu1": {}}, {}, "rapids_choice: host gpu1 has no facts of its GPUs and driver"),
        ({"gpu1": FACTS}, {"release": "1.0"}, "rapids_choice: RAPIDS 1.0 is not known"),
    ],
)
def test_refuses(hosts: t.Any, wishes: dict[str, str], message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        rapids_choice(hosts, **wishes)


def test_every_value_is_documented() -> None:
    described = yaml.safe_load(plugin.RETURN)["_value"]["contains"]
    assert {name: value["sample"] for name, value in described.items()} == NEWEST


def test_documentation_names_the_known_releases() -> None:
    assert re.findall(r"\b\d\d\.\d\d\b", plugin.DOCUMENTATION.split("options:", maxsplit=1)[0]) == [
        one.version for one in RELEASES
    ]


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"rapids_choice": rapids_choice}
