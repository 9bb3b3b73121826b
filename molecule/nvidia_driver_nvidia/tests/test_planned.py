# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On a host without any driver, check mode says what would be installed, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from testinfra.host import Host

testinfra_hosts = ["ansible://nothing"]

SITE = Path(__file__).parents[3] / "playbooks/site.yml"


def test_oldest_of_mixed_gpus_decides(host: Host, role: Callable[..., str]) -> None:
    host.run_expect([0], "made-up-devices 10de:1db5 10de:2330")
    before = host.check_output("host-state")
    said = role("nothing", "--check", "--diff")
    assert "nothing would get NVIDIA driver 580.159.04 with the proprietary kernel module for kernel 6." in said
    assert "+nvidia-driver-cuda 580.159.04-1" in said
    assert host.check_output("host-state") == before


def test_whole_site_can_be_checked_before_the_driver_is_there(
    host: Host, play: Callable[..., CompletedProcess[str]]
) -> None:
    before = host.check_output("host-state")
    done = play(SITE, "--check", "--limit", "nothing")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, said
    assert "nothing would get NVIDIA driver " in said
    assert host.check_output("host-state") == before
