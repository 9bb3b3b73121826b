# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the driver is as it was asked for, the role is done soon and waits for nobody; else ``verify`` says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from driver_host import INVENTORY
from testinfra.host import Host

testinfra_hosts = ["ansible://hopper"]

# Seconds for both hosts together: five times what a busy machine takes.
LONGEST = 200


def test_second_run_takes_seconds_and_no_lock(
    host: Host, role: Callable[..., str], locked: Callable[[Host], AbstractContextManager[None]]
) -> None:
    volta = host.get_host("ansible://volta", ansible_inventory=INVENTORY)
    start = time.monotonic()
    with locked(host), locked(volta):
        said = role("installed", lock_timeout=1)
    assert said.count("changed=0") == 2
    assert time.monotonic() - start < LONGEST


def test_verify_accepts_what_was_asked_for(role: Callable[..., str]) -> None:
    assert role("installed", entry="verify").count("changed=0") == 2


def test_verify_refuses_another_driver(role: Callable[..., str]) -> None:
    said = role("installed", entry="verify", fails=True, version="580.126.09")
    for name in ("hopper", "volta"):
        assert f"{name} does not have the NVIDIA driver that is asked for (580.126.09 " in said


def test_a_broken_key_is_repaired(host: Host, role: Callable[..., str]) -> None:
    key = host.check_output("echo /etc/apt/keyrings/cudahub-nvidia-driver-*")
    right = host.file(key).sha256sum
    host.check_output(f"echo junk > {key}")
    role("hopper")
    assert host.file(key).sha256sum == right
