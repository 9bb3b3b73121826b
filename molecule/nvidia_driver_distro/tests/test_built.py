# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's own packages: the driver's real modules are built for the kernel of the release, and held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://gpu_nodes"]

MODULES = tuple(f"nvidia-current{suffix}" for suffix in ("", "-uvm", "-modeset", "-drm", "-peermem"))


def test_proprietary_driver_of_the_release_is_installed(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    assert found.version.split(".")[0] == "550"
    assert found.kernel_modules == {"nvidia-kernel-dkms"}
    assert {"nvidia-smi", "libnvidia-ml1", "nvidia-persistenced"} <= set(found.packages)
    assert "nvidia-driver" not in found.packages
    assert found.broken == set()


def test_modules_are_built_for_the_kernel_of_the_headers(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    kernel = next(name for name in found.packages if name.startswith("linux-headers-6") and name.endswith("-amd64"))
    kernel = kernel.removeprefix("linux-headers-")
    assert [line.rpartition(": ")[2] for line in found.dkms if kernel in line] == ["installed"]
    for module in MODULES:
        assert host.check_output("modinfo --set-version %s --field version %s", kernel, module) == found.version
        assert host.check_output("modinfo --set-version %s --field vermagic %s", kernel, module).startswith(
            f"{kernel} "
        )
    # The name that users and daemons load is an alias of Debian.
    loads = host.check_output("modprobe --set-version %s --show-depends nvidia", kernel)
    assert loads.startswith("install modprobe -i nvidia-current ")


def test_exactly_what_was_installed_of_the_driver_is_held(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    assert found.family <= found.held <= {name for name in found.packages if "nvidia" in name or name == "libcuda1"}
