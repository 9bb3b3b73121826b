# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver of the newest supported branch is there, whole, built, from the module's stream, and stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://gpu_nodes"]

DriverOf = Callable[[Host], Any]
COMPUTE = {
    "kmod-nvidia-open-dkms",
    "libnvidia-cfg",
    "libnvidia-ml",
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "nvidia-kmod-common",
    "nvidia-modprobe",
    "nvidia-persistenced",
}


def release_of(host: Host) -> str:
    return host.check_output("rpm --eval '%(. /etc/os-release; echo ${VERSION_ID%%.*})'")


def test_compute_packages_of_one_version(host: Host, driver: DriverOf) -> None:
    found = driver(host)
    assert set(found.family) == COMPUTE
    assert found.versions == {"595.71.05"}
    assert {"dkms", "kernel-devel", "kernel-devel-matched"} <= set(found.packages)


def test_stream_of_branch_and_flavour(host: Host, driver: DriverOf) -> None:
    assert driver(host).stream == ("595-open" if release_of(host) == "9" else "")


def test_module_is_built_for_the_kernel_of_the_headers(host: Host, driver: DriverOf) -> None:
    (status,) = driver(host).dkms
    assert re.fullmatch(r"nvidia-open/595\.71\.05, \d\S+\.el\d+\S*\.x86_64, x86_64: installed", status)


def test_exactly_what_was_installed_is_held(host: Host, driver: DriverOf) -> None:
    found = driver(host)
    assert found.locks == {f"{name}-{version}.*" for name, version in found.family.items()}


def test_an_upgrade_leaves_the_driver(host: Host, driver: DriverOf) -> None:
    host.run("dnf -y upgrade --nobest")
    assert driver(host).versions == {"595.71.05"}


def test_repository_is_verified(host: Host) -> None:
    text = host.file("/etc/yum.repos.d/cudahub-nvidia-driver.repo").content_string
    assert re.search(r"^gpgcheck ?= ?1$", text, re.MULTILINE)
    assert re.search(r"^gpgkey ?= ?file:///etc/pki/rpm-gpg/cudahub-nvidia-driver-\w{40}\.asc$", text, re.MULTILINE)
    assert len(host.check_output("rpm -q gpg-pubkey").splitlines()) == 1


def test_daemon_starts_with_the_host(host: Host) -> None:
    assert host.service("nvidia-persistenced").is_enabled
