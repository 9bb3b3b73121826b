# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role has brought, it takes away again."""

from __future__ import annotations

from collections.abc import Callable

from testinfra.host import Host

testinfra_hosts = ["ansible://gpu_nodes"]


def test_absent_leaves_the_host_as_it_was(host: Host, role: Callable[..., str]) -> None:
    role(host.backend.get_hostname(), entry="absent")
    assert host.check_output("host-state") == host.check_output("cat /root/before")
