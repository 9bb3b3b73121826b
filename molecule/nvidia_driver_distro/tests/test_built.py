# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's own packages: the driver's real modules are built for the kernel of the release, and held."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://gpu_nodes"]

BRANCH = {"bookworm": "535", "trixie": "550"}
MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
LONGEST_SECOND_RUN = 20


def test_proprietary_driver_of_the_release_is_installed(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    assert found.version.split(".")[0] == BRANCH[host.backend.get_hostname()]
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
        listed = host.check_output("find /lib/modules/%s/updates/dkms -name '*%s.ko*'", kernel, module).split()
        assert listed, module
        assert host.check_output("modinfo --field version %s", listed[0]) == found.version
        assert host.check_output("modinfo --field vermagic %s", listed[0]).startswith(f"{kernel} ")


def test_exactly_what_was_installed_of_the_driver_is_held(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    assert found.family <= found.held <= {name for name in found.packages if "nvidia" in name or name == "libcuda1"}


def test_second_run_takes_seconds_and_no_lock(
    host: Host, role: Callable[..., str], locked: Callable[[Host], AbstractContextManager[None]]
) -> None:
    start = time.monotonic()
    with locked(host):
        said = role(host.backend.get_hostname(), lock_timeout=1)
    assert "changed=0" in said
    assert time.monotonic() - start < LONGEST_SECOND_RUN
