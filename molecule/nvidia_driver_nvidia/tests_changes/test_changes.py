# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Branch, version and kernel module change in one transaction each; what fails or is interrupted leaves no ruin.

Tests run in the order of this file; each goes on from where the one before has left the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://hopper"]

DriverOf = Callable[[Host], Any]


def transactions(host: Host) -> int:
    """How many transactions apt's history has."""
    return host.file("/var/log/apt/history.log").content_string.count("Start-Date:")


def assert_whole(host: Host, found: Any, version: str, kernel_module: str) -> None:
    """The whole driver is there in that version, built, pinned and held, and nothing of another version or flavour."""
    branch = version.split(".", maxsplit=1)[0]
    assert found.version == version
    assert found.kernel_modules == {kernel_module}
    assert {name for name in found.packages if name.startswith("nvidia-driver-pinning-")} in (
        {f"nvidia-driver-pinning-{branch}"},
        {f"nvidia-driver-pinning-{version}"},
    )
    versions = {name: found.packages[name] for name in found.packages if re.search("nvidia|libcuda1", name)}
    assert {name for name, own in versions.items() if own not in {f"{version}-1", f"{branch}-1"}} == set()
    assert found.packages["nvidia-fabricmanager"] == f"{version}-1"
    assert found.held == found.family
    assert found.broken == set()
    assert len(found.dkms) == 1
    assert re.fullmatch(rf"nvidia/{version}, \S+, \S+: installed", found.dkms[0])
    host.run_expect([0], "dpkg --audit")


def test_downgrade_to_a_version(host: Host, driver: DriverOf, role: Callable[..., str]) -> None:
    before = transactions(host)
    role("hopper", version="580.126.09")
    assert_whole(host, driver(host), "580.126.09", "nvidia-kernel-open-dkms")
    assert transactions(host) == before + 1


def test_newer_version_of_the_branch_only_when_asked(host: Host, driver: DriverOf, role: Callable[..., str]) -> None:
    assert "changed=0" in role("hopper", branch="580")
    assert driver(host).version == "580.126.09"


def test_check_mode_shows_what_would_change_and_changes_nothing(
    host: Host, driver: DriverOf, role: Callable[..., str]
) -> None:
    before = host.check_output("host-state")
    said = role("hopper", "--check", "--diff", branch="595")
    assert "-nvidia-driver-cuda 580.126.09-1" in said
    assert "+nvidia-driver-cuda 595.71.05-1" in said
    assert host.check_output("host-state") == before


def test_lock_of_another_process_is_named(
    host: Host, role: Callable[..., str], locked: Callable[[Host], AbstractContextManager[None]]
) -> None:
    before = host.check_output("host-state")
    with locked(host):
        said = role("hopper", branch="595", lock_timeout=3, fails=True)
        holder = host.check_output("systemctl show --property MainPID --value holder")
    assert f"process {holder} (python3)" in said
    assert host.check_output("host-state") == before


def test_upgrade_of_the_branch(host: Host, driver: DriverOf, role: Callable[..., str]) -> None:
    before = transactions(host)
    role("hopper", branch="595")
    assert_whole(host, driver(host), "595.71.05", "nvidia-kernel-open-dkms")
    assert transactions(host) == before + 1


def test_other_kernel_module(host: Host, driver: DriverOf, role: Callable[..., str]) -> None:
    before = transactions(host)
    role("hopper", branch="595", kernel_module="proprietary")
    assert_whole(host, driver(host), "595.71.05", "nvidia-kernel-dkms")
    assert transactions(host) == before + 1


def test_module_that_does_not_compile_is_rolled_back(host: Host, driver: DriverOf, role: Callable[..., str]) -> None:
    before = host.check_output("host-state")
    said = role("hopper", branch="590", fails=True)
    assert re.search(
        r"The kernel module nvidia 590\.48\.01 does not compile for kernel \S+: "
        r"nvidia/nv-pci\.c:20: error: too few arguments to function .nv_resize_bar.",
        said,
    )
    log = re.search(r"Log: (/var/log/cudahub/\S+?\.log)", said)
    assert log
    assert "error: too few arguments" in host.file(log[1]).content_string
    assert "Ways out:" in said
    assert host.check_output("host-state") == before
    assert_whole(host, driver(host), "595.71.05", "nvidia-kernel-dkms")


def test_absent_leaves_the_host_as_it_was(host: Host, role: Callable[..., str]) -> None:
    role("hopper", entry="absent")
    assert host.check_output("host-state") == host.check_output("cat /root/before")
    assert "changed=0" in role("hopper", entry="absent")
