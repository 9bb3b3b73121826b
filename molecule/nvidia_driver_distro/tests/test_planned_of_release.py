# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of another release's own packages, check mode says what would be installed."""

from __future__ import annotations

from collections.abc import Callable

from testinfra.host import Host

testinfra_hosts = ["ansible://planned"]


def test_driver_of_the_release_is_planned(host: Host, role: Callable[..., str]) -> None:
    said = role("bookworm", "--check", "--diff")
    assert "bookworm would get NVIDIA driver 535." in said
    assert "+nvidia-kernel-dkms 535." in said
    assert host.check_output("host-state") == host.check_output("cat /root/before")
