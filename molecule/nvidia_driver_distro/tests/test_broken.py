# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that does not compile is explained, and its packages are gone again."""

from __future__ import annotations

import re
from collections.abc import Callable

from testinfra.host import Host

testinfra_hosts = ["ansible://broken"]


def test_failed_build_is_explained_and_undone(host: Host, role: Callable[..., str]) -> None:
    before = set(host.check_output("host-state").splitlines())
    said = role("trixie-open", fails=True)
    told = re.search(
        r"The kernel module nvidia-current-open 550\.163\.01 does not compile for kernel \S+: "
        r"(nvidia/nv-pci\.c:\d+: error: too few arguments to function .pci_resize_resource.)",
        said,
    )
    assert told, said[-3000:]
    log = re.search(r"Log: (/var/log/cudahub/\S+?\.log)", said)
    assert log
    assert "pci_resize_resource" in host.file(log[1]).content_string
    ways = said.partition("Ways out:")[2]
    assert "nvidia_driver_kernel_module: proprietary" in ways
    assert "nvidia_driver_source: nvidia" in ways
    assert host.check_output("dpkg --audit") == ""
    after = set(host.check_output("host-state").splitlines())
    # The package source stays for the next attempt.
    assert {line.split()[0] for line in after ^ before} == {"/etc/apt/sources.list.d/cudahub-nvidia-driver.sources"}
