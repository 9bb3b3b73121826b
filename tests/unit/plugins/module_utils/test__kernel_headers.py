# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The headers of exactly the kernels for which the module is built, and never those of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _kernel_headers
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import System
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Installed, Package
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles
from ansible_collections.cudahub.gpu.tests.unit.plugins import driver_repositories as repositories
from ansible_collections.cudahub.gpu.tests.unit.plugins.driver_repositories import install, put

DEBIAN_12, DEBIAN_13 = repositories.by("debian", "12"), repositories.by("debian", "13")
ARM, UBUNTU = repositories.by("debian", "12", "aarch64"), repositories.by("ubuntu", "24.04")
EL8, EL9, EL9_ARM = repositories.by("rhel", "8"), repositories.by("rhel", "9"), repositories.by("rhel", "9", "aarch64")

BOOKWORM = {
    "linux-headers-6.1.0-56-amd64": ("6.1.192-2",),
    "linux-headers-6.1.0-56-cloud-amd64": ("6.1.192-2",),
    "linux-headers-6.1.0-56-rt-amd64": ("6.1.192-2",),
    "linux-headers-6.1.0-56-common": ("6.1.192-2",),
    "linux-headers-6.1.0-50-amd64": ("6.1.176-1",),
    "linux-headers-6.12.117+deb12-amd64": ("6.12.117-1~deb12u1",),
    "linux-headers-6.12-amd64": ("6.12.117-1~deb12u1",),
    "linux-headers-amd64": ("6.1.192-2", "6.1.176-1"),
    "linux-headers-cloud-amd64": ("6.1.192-2", "6.1.176-1"),
}
NOBLE = {
    "linux-headers-6.8.0-90-generic": ("6.8.0-90.91",),
    "linux-headers-6.8.0-90": ("6.8.0-90.91",),
    "linux-headers-6.8.0-101-generic": ("6.8.0-101.101",),
    "linux-headers-6.14.0-37-generic": ("6.14.0-37.37~24.04.1",),
    "linux-headers-generic": ("6.8.0-101.101", "6.8.0-90.91"),
    "linux-headers-generic-hwe-24.04": ("6.14.0-37.37~24.04.1",),
    "linux-headers-aws": ("6.8.0-1044.46",),
}
PLOW = {
    "kernel-devel": ("5.14.0-570.22.1.el9_6", "5.14.0-570.12.1.el9_6"),
    "kernel-devel-matched": ("5.14.0-570.22.1.el9_6", "5.14.0-570.12.1.el9_6"),
    "kernel-64k-devel": ("5.14.0-570.12.1.el9_6",),
}
ARM_KERNEL = "5.14.0-570.12.1.el9_6.aarch64"
BOTH_SIZES = install(
    Package("kernel-core", "5.14.0-570.22.1.el9_6"), Package("kernel-64k-core", "5.14.0-570.12.1.el9_6")
)
"""Kernels with pages of 4 KiB and of 64 KiB."""


@pytest.fixture
def files(tmp_path: Path) -> HostFiles:
    return HostFiles(str(tmp_path))


@pytest.mark.parametrize(
    ("system", "kernels", "names", "others"),
    [
        (
            DEBIAN_13,
            ["6.12.118+deb13-amd64"],
            ["linux-headers-6.12.118+deb13-amd64", "linux-headers-amd64", "linux-headers-cloud-amd64"],
            ["linux-headers-6.12.117+deb13-amd64", "linux-headers-6.12.118+deb13-amd64-dbg", "linux-image-amd64"],
        ),
        (UBUNTU, None, ["linux-headers-6.8.0-90-generic", "linux-headers-generic-hwe-24.04"], ["linux-libc-dev"]),
        (
            EL9,
            ["5.14.0-570.12.1.el9_6.x86_64"],
            ["kernel-devel", "kernel-devel-matched", "kernel-64k-devel", "kernel-devel-5.14.0-570.12.1.el9_6.x86_64"],
            ["kernel", "kernel-headers", "kernel-debug-core"],
        ),
    ],
)
def test_header_names(system: System, kernels: list[str] | None, names: list[str], others: list[str]) -> None:
    pattern = _kernel_headers.header_names(system, kernels)
    assert [bool(pattern.fullmatch(name)) for name in [*names, *others]] == [True] * len(names) + [False] * len(others)


@pytest.mark.parametrize(
    ("system", "installed", "available", "expected"),
    [
        (DEBIAN_12, {}, BOOKWORM, "6.1.0-56-amd64"),
        (DEBIAN_12, install(Package("linux-headers-6.1.0-50-amd64", "6.1.176-1")), BOOKWORM, "6.1.0-50-amd64"),
        (
            DEBIAN_12,
            install(
                Package("linux-image-6.1.0-9-amd64", "6.1.27-1"),
                Package("linux-image-6.1.0-50-amd64", "6.1.176-1"),
                Package("linux-image-6.1.0-56-amd64-dbg", "6.1.192-2"),
                Package("linux-headers-6.1.0-56-amd64", "6.1.192-2"),
                Package("linux-headers-6.1.0-56-common", "6.1.192-2"),
            ),
            BOOKWORM,
            "6.1.0-50-amd64",
        ),
        (
            DEBIAN_12,
            {"linux-image-6.1.0-50-amd64": Installed("linux-image-6.1.0-50-amd64", "1", "config-files", held=False)},
            BOOKWORM,
            "6.1.0-56-amd64",
        ),
        (ARM, {}, BOOKWORM, None),
        (UBUNTU, {}, NOBLE, "6.8.0-101-generic"),
        (
            UBUNTU,
            install(Package("linux-headers-6.8.0-90", "6.8.0-90.91"), Package("linux-headers-6.8.0-90-generic", "6")),
            NOBLE,
            "6.8.0-90-generic",
        ),
        (UBUNTU, install(Package("linux-image-6.8.0-1044-aws", "6.8.0-1044.46")), NOBLE, "6.8.0-1044-aws"),
        (EL9, {}, PLOW, "5.14.0-570.22.1.el9_6.x86_64"),
        (EL9, install(Package("kernel-core", "5.14.0-503.11.1.el9_5")), PLOW, "5.14.0-503.11.1.el9_5.x86_64"),
        (EL9_ARM, {}, {}, None),
        (EL9_ARM, install(Package("kernel-64k-core", "5.14.0-570.12.1.el9_6")), PLOW, f"{ARM_KERNEL}+64k"),
        (EL9_ARM, install(Package("kernel-64k-devel", "5.14.0-570.12.1.el9_6")), PLOW, f"{ARM_KERNEL}+64k"),
        (EL9_ARM, BOTH_SIZES, PLOW, "5.14.0-570.22.1.el9_6.aarch64"),
        (replace(EL9_ARM, kernel=f"{ARM_KERNEL}+64k"), BOTH_SIZES, PLOW, f"{ARM_KERNEL}+64k"),
    ],
)
def test_newest_kernel(
    system: System, installed: dict[str, Installed], available: dict[str, tuple[str, ...]], expected: str | None
) -> None:
    assert _kernel_headers.newest_kernel(system, installed, available) == expected


@pytest.mark.parametrize(
    ("system", "kernel", "installed", "available", "expected"),
    [
        (DEBIAN_12, "6.1.0-56-amd64", {}, BOOKWORM, [("linux-headers-6.1.0-56-amd64", "6.1.192-2")]),
        (
            DEBIAN_12,
            "6.1.0-56-amd64",
            install(Package("linux-image-amd64", "6.1.192-2"), Package("linux-image-6.1.0-56-amd64", "6.1.192-2")),
            BOOKWORM,
            [("linux-headers-6.1.0-56-amd64", "6.1.192-2"), ("linux-headers-amd64", "6.1.192-2")],
        ),
        # The meta package of a newer kernel would bring that kernel's headers, and on Debian 13 the kernel, too.
        (
            DEBIAN_12,
            "6.1.0-50-amd64",
            install(Package("linux-image-amd64", "6.1.170-3")),
            BOOKWORM,
            [("linux-headers-6.1.0-50-amd64", "6.1.176-1")],
        ),
        (
            DEBIAN_12,
            "6.1.0-50-amd64",
            install(Package("linux-image-amd64", "6.1.176-1"), Package("linux-image-amd64-dbg", "6.1.176-1")),
            BOOKWORM,
            [("linux-headers-6.1.0-50-amd64", "6.1.176-1"), ("linux-headers-amd64", "6.1.176-1")],
        ),
        (
            DEBIAN_12,
            "6.1.0-56-amd64",
            install(Package("linux-headers-6.1.0-56-amd64", "6.1.192-2"), Package("linux-headers-amd64", "6.1.192-2")),
            BOOKWORM,
            [],
        ),
        (
            DEBIAN_12,
            "6.1.0-56-amd64",
            install(Package("linux-image-6.1.0-56-amd64", "6.1.192-1")),
            {"linux-headers-6.1.0-56-amd64": ("6.1.192-2", "6.1.192-1")},
            [("linux-headers-6.1.0-56-amd64", "6.1.192-1")],
        ),
        (DEBIAN_12, "6.1.0-99-amd64", {}, BOOKWORM, []),
        (
            UBUNTU,
            "6.8.0-90-generic",
            install(
                Package("linux-image-generic", "6.8.0-90.91"), Package("linux-image-unsigned-generic", "6.8.0-90.91")
            ),
            NOBLE,
            [("linux-headers-6.8.0-90-generic", "6.8.0-90.91"), ("linux-headers-generic", "6.8.0-90.91")],
        ),
        (
            UBUNTU,
            "6.14.0-37-generic",
            install(Package("linux-image-generic-hwe-24.04", "6.14.0-37.37~24.04.1")),
            NOBLE,
            [
                ("linux-headers-6.14.0-37-generic", "6.14.0-37.37~24.04.1"),
                ("linux-headers-generic-hwe-24.04", "6.14.0-37.37~24.04.1"),
            ],
        ),
        (
            EL9,
            "5.14.0-570.12.1.el9_6.x86_64",
            {},
            PLOW,
            [("kernel-devel", "5.14.0-570.12.1.el9_6"), ("kernel-devel-matched", "5.14.0-570.12.1.el9_6")],
        ),
        (
            EL9_ARM,
            "5.14.0-570.12.1.el9_6.aarch64+64k",
            {},
            PLOW,
            [("kernel-64k-devel", "5.14.0-570.12.1.el9_6")],
        ),
        (
            EL8,
            "4.18.0-553.22.1.el8_10.x86_64",
            {},
            {"kernel-devel": ("0:4.18.0-553.22.1.el8_10",)},
            [("kernel-devel", "0:4.18.0-553.22.1.el8_10")],
        ),
        (EL9, "5.14.0-503.11.1.el9_5.x86_64", {}, PLOW, []),
        (
            EL9,
            "5.14.0-570.12.1.el9_6.x86_64",
            install(Package("kernel-devel-5.14.0-570.12.1.el9_6.x86_64", "5.14.0-570.12.1.el9_6")),
            PLOW,
            [],
        ),
        (
            EL9_ARM,
            f"{ARM_KERNEL}+64k",
            install(Package(f"kernel-64k-devel-{ARM_KERNEL}", "5.14.0-570.12.1.el9_6")),
            PLOW,
            [],
        ),
        (
            EL9_ARM,
            f"{ARM_KERNEL}+64k",
            install(Package(f"kernel-devel-{ARM_KERNEL}", "5.14.0-570.12.1.el9_6")),
            PLOW,
            [("kernel-64k-devel", "5.14.0-570.12.1.el9_6")],
        ),
    ],
)
def test_header_packages(
    system: System,
    kernel: str,
    installed: dict[str, Installed],
    available: dict[str, tuple[str, ...]],
    expected: list[tuple[str, str]],
    files: HostFiles,
) -> None:
    found = _kernel_headers.header_packages(system, [kernel], installed, available, files)
    assert [(one.name, one.version) for one in found] == expected


def test_headers_of_several_kernels(files: HostFiles) -> None:
    kernels = ["6.1.0-56-amd64", "6.1.0-50-amd64"]
    found = _kernel_headers.header_packages(DEBIAN_12, kernels, {}, BOOKWORM, files)
    assert [one.name for one in found] == [f"linux-headers-{kernel}" for kernel in kernels]


@pytest.mark.parametrize("system", [DEBIAN_12, UBUNTU, EL9], ids=repositories.name)
def test_headers_of_a_kernel_that_somebody_built(tmp_path: Path, files: HostFiles, system: System) -> None:
    kernel = "6.18.2-custom"
    assert not _kernel_headers.has_headers(system, kernel, {}, files)
    put(tmp_path, f"/lib/modules/{kernel}/build/Makefile")
    assert _kernel_headers.has_headers(system, kernel, {}, files)
    assert _kernel_headers.header_packages(system, [kernel], {}, {}, files) == ()


def test_removed_headers_are_none(files: HostFiles) -> None:
    name = "linux-headers-6.1.0-56-amd64"
    left = {name: Installed(name, "6.1.192-2", "config-files", held=False)}
    assert not _kernel_headers.has_headers(DEBIAN_12, "6.1.0-56-amd64", left, files)
