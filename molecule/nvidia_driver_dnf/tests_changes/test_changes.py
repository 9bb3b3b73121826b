# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Branch, version and kernel module change in one transaction each, streams with them; what fails leaves no ruin.

Tests run in the order of this file; each goes on from where the one before has left the host.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://rocky9"]

DriverOf = Callable[[Host], Any]
OTHER = "0123456789ABCDEF0123456789ABCDEF01234567"


def transactions(host: Host) -> int:
    """How many transactions dnf's history has."""
    return len(re.findall(r"^ *\d+ \|", host.check_output("dnf history list"), re.MULTILINE))


def assert_whole(found: Any, version: str, module: str, stream: str) -> None:
    """The whole driver is there in that version, built and held, and nothing of another version or flavour."""
    assert found.versions == {version}
    assert {name for name in found.family if name.startswith("kmod-")} == {
        "kmod-nvidia-open-dkms" if module == "nvidia-open" else "kmod-nvidia-latest-dkms"
    }
    assert found.locks == {f"{name}-{own}.*" for name, own in found.family.items()}
    assert found.stream == stream
    assert len(found.dkms) == 1
    assert found.dkms[0].startswith(f"{module}/{version}, ")
    assert found.dkms[0].endswith(": installed")


def test_other_branch_and_kernel_module(host: Host, driver: DriverOf, role: Callable[..., str]) -> None:
    before = transactions(host)
    role("rocky9", branch="580", kernel_module="proprietary")
    assert_whole(driver(host), "580.159.04", "nvidia", "580-dkms")
    assert transactions(host) == before + 1


def test_nothing_to_do_takes_no_lock(host: Host, role: Callable[..., str]) -> None:
    host.run_expect([0], "systemd-run --unit=holder --collect sleep 3600")
    holder = host.check_output("systemctl show --property MainPID --value holder")
    locks = ("/var/lib/dnf/rpmdb_lock.pid", "/var/cache/dnf/metadata_lock.pid")
    for lock in locks:
        host.run_expect([0], f"echo {holder} > {lock}")
    try:
        assert "changed=0" in role("rocky9", branch="580", kernel_module="proprietary")
        said = role("rocky9", branch="595", lock_timeout=3, fails=True)
        assert f"process {holder} (sleep) holds the package manager's lock" in said
        assert "within 3 seconds" in said
    finally:
        host.run_expect([0], f"rm -f {' '.join(locks)}; systemctl stop holder")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repository_key_fingerprint": OTHER, "branch": "595"}, [OTHER, "fingerprint"]),
        ({"repository_url": "file:/srv/nowhere"}, ["/srv/nowhere/rhel9/x86_64/repodata/repomd.xml", "as it was"]),
    ],
)
def test_refusals_leave_the_host_as_it_was(
    host: Host, role: Callable[..., str], options: dict[str, str], words: list[str]
) -> None:
    before = host.check_output("host-state")
    said = role("rocky9", fails=True, **options)
    assert [word for word in words if word not in said] == []
    assert host.check_output("host-state") == before


def test_module_that_does_not_compile(host: Host, role: Callable[..., str]) -> None:
    before = host.check_output("host-state")
    said = role("rocky9", version="590.48.01", fails=True)
    assert re.search(r"module nvidia-open 590\.48\.01 does not compile for kernel 5\.14\.0-570\S+:", said)
    assert re.search(r"nv-pci\.c:\d+: error: too few arguments to function .nv_resize_bar", said)
    assert "The packages are as they were before." in said
    assert "Ways out:" in said
    assert host.check_output("host-state") == before


@pytest.mark.long
def test_killed_in_the_middle_and_run_again(host: Host, driver: DriverOf, role: Callable[..., str]) -> None:
    kill = (
        "until pgrep -f '^sleep 12$'; do sleep 0.2; done; pkill -9 -f '[c]udahub-transaction'; pkill -9 -f '^sleep 12$'"
    )
    host.run_expect([0], f"systemd-run --unit=killer --collect timeout 600 sh -c {shlex.quote(kill)}")
    said = role("rocky9", version="580.95.05", kernel_module="open", fails=True)
    assert "ended by signal 9" in said
    role("rocky9", version="580.95.05", kernel_module="open")
    assert_whole(driver(host), "580.95.05", "nvidia-open", "580-open")
    assert len(host.check_output("rpm -qa nvidia-driver-cuda").splitlines()) == 1


def test_absent_leaves_nothing(host: Host, role: Callable[..., str]) -> None:
    role("rocky9", entry="absent")
    found = host.check_output("host-state").splitlines()
    before = host.check_output("cat /root/before").splitlines()
    assert set(before) - set(found) == set()
    # dnf's plugin that holds packages stays, and dnf remembers that a module has no stream.
    left = {line.split()[0] for line in set(found) - set(before)}
    assert {re.sub(r"-\d.*", "", name) for name in left} <= {
        "python3-dnf-plugin-versionlock",
        "/etc/dnf/modules.d/nvidia-driver.module",
    }


def test_dkms_that_is_too_old(host: Host, role: Callable[..., str]) -> None:
    host.run_expect([0], "dnf -y install dkms-3.0.13 && dnf versionlock add dkms")
    before = host.check_output("host-state")
    said = role("rocky9", fails=True)
    assert "The driver needs dkms 3.1.8 or newer, but dkms 3.0.13-1.el9 is held" in said
    assert "dnf versionlock delete dkms" in said
    assert host.check_output("host-state") == before
    host.run_expect([0], "dnf versionlock delete dkms")
    said = role("rocky9", "--check", "--diff")
    assert "-dkms 3.0.13-1.el9" in said
    assert "+dkms 3.2.2-1.el9" in said
