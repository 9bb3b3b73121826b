# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fixtures of this scenario: running the role with other options, and looking at the packages of a host."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from driver_host import role
from testinfra.host import Host

__all__ = ["role"]


class Driver:
    """The driver's packages of a host as rpm and dnf know them."""

    def __init__(self, host: Host) -> None:
        listed = host.check_output("rpm -qa --qf '%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n'")
        self.packages = dict(line.split() for line in listed.splitlines())
        self.family = {name: version for name, version in self.packages.items() if version.startswith("3:")}
        locks = host.file("/etc/dnf/plugins/versionlock.list").content_string
        self.locks = {line for line in locks.splitlines() if line and not line.startswith("#")}
        self.dkms = host.check_output("dkms status").splitlines()
        module = host.file("/etc/dnf/modules.d/nvidia-driver.module")
        found = re.search(r"^stream=(.*)$", module.content_string, re.MULTILINE) if module.exists else None
        self.stream = found.group(1) if found else ""

    @property
    def versions(self) -> set[str]:
        return {re.sub(r"^3:|-1\.el\d+$", "", version) for version in self.family.values()}


@pytest.fixture
def driver() -> Callable[[Host], Driver]:
    """Return a function that looks at the packages of a host."""
    return Driver
