# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing is left after entry point absent."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://h200"]


def test_no_environment_is_left(host: Host) -> None:
    assert host.check_output("ls -d /opt/cudahub/verify*") == "/opt/cudahub/verify-keep"
