# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CuPy wheel for a driver and GPUs."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import cupy_package as plugin
from ansible_collections.cudahub.gpu.plugins.filter.cupy_package import cupy_package


def gpus(*capabilities: str | None) -> list[dict[str, t.Any]]:
    return [{"name": "Card", "compute_capability": capability} for capability in capabilities]


@pytest.mark.parametrize(
    ("cuda", "capabilities", "expected"),
    [
        ("13.0", ("9.0",), "cupy-cuda13x"),
        ("13.0", ("7.5",), "cupy-cuda13x"),
        ("13.0", ("7.0",), "cupy-cuda12x"),
        ("13.0", ("9.0", "7.0"), "cupy-cuda12x"),
        ("13.0", ("10.0", "12.0"), "cupy-cuda13x"),
        ("13.0", ("10.0", None), "cupy-cuda13x"),
        ("13.3", ("12.1",), "cupy-cuda13x"),
        ("14.0", ("9.0",), "cupy-cuda13x"),
        ("12.8", ("9.0",), "cupy-cuda12x"),
        ("12.2", ("6.0",), "cupy-cuda12x"),
    ],
)
def test_cupy_package(cuda: str, capabilities: tuple[str | None, ...], expected: str) -> None:
    assert cupy_package(cuda, gpus(*capabilities)) == expected


@pytest.mark.parametrize(
    ("cuda", "capabilities", "message"),
    [
        ("11.4", ("8.0",), "the driver supports CUDA 11.4, and CuPy needs CUDA 12 or later: update the driver"),
        (None, ("8.0",), "the driver's CUDA version is None, which is no version such as 13.0"),
        ("new", ("8.0",), "the driver's CUDA version is 'new'"),
        ("13.0", (), "the list has no GPU whose compute capability is known"),
        ("13.0", (None,), "the list has no GPU whose compute capability is known"),
        ("13.0", ("nine",), "the compute capability of GPU Card is 'nine'"),
    ],
)
def test_refuses(cuda: t.Any, capabilities: tuple[str | None, ...], message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        cupy_package(cuda, gpus(*capabilities))


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"cupy_package": cupy_package}
