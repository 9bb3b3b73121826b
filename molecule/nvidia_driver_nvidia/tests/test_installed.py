# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each host has the driver that its GPUs need, whole, built for its kernel, and held."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://installed"]

EXPECTED = {
    "hopper": ("620.36.02", "nvidia-kernel-open-dkms"),
    "volta": ("580.159.04", "nvidia-kernel-dkms"),
}
NEIGHBOURS = ["nvidia-container-toolkit", "cuda-toolkit-13-0", "libnvidia-container1", "linux-image-amd64"]


def test_oldest_gpu_decides_branch_and_kernel_module(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    version, kernel_module = EXPECTED[host.backend.get_hostname()]
    assert found.version == version
    assert found.kernel_modules == {kernel_module}
    assert found.packages[kernel_module] == f"{version}-1"


def test_nothing_for_displays_is_installed(host: Host, driver: Callable[[Host], Any]) -> None:
    assert not {"nvidia-driver", "nvidia-open", "cuda-drivers", "nvidia-settings"} & set(driver(host).packages)


def test_exactly_what_was_installed_of_the_driver_is_held(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    branch = EXPECTED[host.backend.get_hostname()][0].split(".")[0]
    assert f"nvidia-driver-pinning-{branch}" in found.held
    assert found.held == found.family


def test_upgrades_of_the_system_leave_the_driver_alone(host: Host, driver: Callable[[Host], Any]) -> None:
    held = driver(host).held
    upgrade = host.check_output("apt-get --simulate dist-upgrade")
    assert not held & set(re.findall(r"^(?:Inst|Remv) (\S+)", upgrade, re.MULTILINE))
    dump = host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    excluded = re.findall(r'"(.+)"', dump)
    # unattended-upgrades matches at the beginning of a name.
    assert [name for name in held if not any(re.match(pattern, name) for pattern in excluded)] == []
    assert [name for name in NEIGHBOURS if any(re.match(pattern, name) for pattern in excluded)] == []


def test_modules_are_there_for_the_kernel_of_the_headers(host: Host, driver: Callable[[Host], Any]) -> None:
    version = EXPECTED[host.backend.get_hostname()][0]
    kernels = [name.removeprefix("linux-headers-") for name in driver(host).packages if "linux-headers-6." in name]
    kernels = [kernel for kernel in kernels if not kernel.endswith(("-common", "-common-rt"))]
    assert kernels
    for kernel in kernels:
        assert f"nvidia/{version}, {kernel}, {host.system_info.arch}: installed" in driver(host).dkms
        assert host.check_output("modinfo -k %s -F version nvidia", kernel) == version


def test_nouveau_is_not_loaded_any_more(host: Host) -> None:
    assert re.search(r"^blacklist nouveau$", host.check_output("modprobe --showconfig"), re.MULTILINE)
    for image in host.check_output("find /boot -name 'initrd.img-*'").splitlines():
        names = host.check_output("lsinitramfs %s", image).splitlines()
        files = [name for name in names if name.startswith("etc/modprobe.d/")]
        assert any("nouveau" in host.file(f"/{name}").content_string for name in files), files


def test_persistence_daemon_starts_at_boot(host: Host) -> None:
    assert host.service("nvidia-persistenced").is_enabled


def test_fabric_manager_is_there_only_for_an_nvswitch(host: Host, driver: Callable[[Host], Any]) -> None:
    found = driver(host)
    if host.backend.get_hostname() == "hopper":
        assert found.packages["nvidia-fabricmanager"] == found.packages["nvidia-driver-cuda"]
        assert host.service("nvidia-fabricmanager").is_enabled
    else:
        assert "nvidia-fabricmanager" not in found.packages


def test_apt_accepts_the_repository_without_a_word(host: Host) -> None:
    update = host.run_expect([0], "apt-get update")
    assert "mirror" in update.stdout
    assert not update.stderr
