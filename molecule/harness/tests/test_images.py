# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of all scenarios are whole systems."""

from __future__ import annotations

from testinfra.host import Host

UNITS = ["dbus.service"]

RELEASES = {"deb12": "12", "deb13": "13"}


def test_release(host: Host) -> None:
    assert host.system_info.release.split(".")[0] == RELEASES[host.check_output("hostname")]


def test_system_runs(host: Host) -> None:
    assert host.check_output("systemctl is-system-running") == "running"


def test_hosts_reach_each_other_by_name(host: Host) -> None:
    for name in RELEASES:
        assert host.run(f"getent hosts {name}").rc == 0


def test_package_lists_can_be_fetched(host: Host) -> None:
    assert host.run("apt-get update").rc == 0
    assert "contrib" in host.check_output("apt-cache policy")


def test_nvidia_device_nodes_can_be_made_and_isolated(host: Host) -> None:
    host.run_expect([0], "rm -f /dev/test-gpu0 && mknod /dev/test-gpu0 c 195 0")
    denied = host.run("systemd-run --quiet --wait --pipe -p DevicePolicy=closed cat /dev/test-gpu0")
    assert "Operation not permitted" in denied.stderr
    absent = host.run("cat /dev/test-gpu0")
    assert "No such device" in absent.stderr
