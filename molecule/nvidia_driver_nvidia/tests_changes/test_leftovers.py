# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configuration files that a driver has left behind stay as they are, whatever becomes of the driver after it.

Tests run in the order of this file; each goes on from where the one before has left the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://hopper"]
pytestmark = pytest.mark.long

LEFT = ("nvidia-driver-pinning-580", "nvidia-driver-pinning-595", "nvidia-kernel-support")
SETTINGS = "/etc/modprobe.d/nvidia.conf"
LIST = "/etc/apt/sources.list.d/former.list"


def state(host: Host) -> str:
    """How the host is, but for the version that dpkg has of a package without its files: it is that of the last one."""
    return re.sub(r"^(rc +\S+) .*", r"\1", host.check_output("host-state"), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def before(host: Host) -> Iterator[str]:
    """A host that had a driver, whose packages were removed, and one of whose settings was changed: its state."""
    host.run_expect([0], f"echo 'deb [trusted=yes] http://mirror/debian13/x86_64 /' > {LIST}; apt-get update")
    for name in LEFT:
        host.run_expect([0], "apt-get install --yes --no-install-recommends %s", name)
    host.run_expect([0], f"apt-get remove --yes {' '.join(LEFT)}; apt-get autoremove --yes; rm {LIST}; apt-get update")
    host.run_expect([0], f"echo '# of ours' >> {SETTINGS}")
    found = state(host)
    assert set(re.findall(r"^rc +([^:\s]+)", found, re.MULTILINE)) == set(LEFT)
    yield found
    host.run_expect([0], f"apt-get purge --yes {' '.join(LEFT)}")
    assert host.check_output("host-state") == host.check_output("cat /root/before")


def test_first_installation_that_fails(host: Host, before: str, role: Callable[..., str]) -> None:
    assert "The packages are as they were before." in role("hopper", branch="590", fails=True)
    role("hopper", entry="absent")  # The package source goes.
    assert state(host) == before


def test_installation(host: Host, before: str, driver: Callable[[Host], Any], role: Callable[..., str]) -> None:
    role("hopper", branch="595")
    found = driver(host)
    assert (found.version, found.held) == ("595.71.05", found.family)
    assert found.broken == {"nvidia-driver-pinning-580"}
    assert "# of ours" in host.file(SETTINGS).content_string
    assert "changed=0" in role("hopper", branch="595")


def test_change_that_fails(host: Host, before: str, role: Callable[..., str]) -> None:
    installed = state(host)
    role("hopper", branch="590", fails=True)
    assert state(host) == installed


def test_absent(host: Host, before: str, role: Callable[..., str]) -> None:
    role("hopper", entry="absent")
    assert state(host) == before
