# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that is killed in its transaction is finished by the next one, whoever was killed.

Tests run in the order of this file; each goes on from where the one before has left the host.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver_host import ENTRY, INVENTORY
from testinfra.host import Host

testinfra_hosts = ["ansible://volta"]

# Configuring a package of this version takes a while.
SLOW = "580.95.05"
POSTINST = "[n]vidia-driver-cuda.postinst"


def kill_in_transaction(host: Host) -> None:
    """Run the role, and kill ansible-playbook when a package is being configured."""
    variables = {"target": "volta", "nvidia_driver_version": SLOW}
    command = [Path(sys.executable).with_name("ansible-playbook"), "--inventory", INVENTORY, ENTRY]
    running = subprocess.Popen([*command, "--extra-vars", json.dumps(variables)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 600
        while host.run("pgrep -f '%s'", POSTINST).rc != 0:
            assert running.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < end
            time.sleep(0.3)
    finally:
        running.kill()
        running.wait()


@pytest.mark.long
def test_ansible_is_killed(host: Host, driver: Callable[[Host], Any], role: Callable[..., str]) -> None:
    kill_in_transaction(host)
    role("volta", version=SLOW)
    found = driver(host)
    assert found.version == SLOW
    assert found.held == found.family
    assert found.broken == set()
    role("volta", branch="580", upgrade=True)
    assert driver(host).version == "580.159.04"


def test_package_manager_is_killed(host: Host, driver: Callable[[Host], Any], role: Callable[..., str]) -> None:
    kill_in_transaction(host)
    host.run_expect(
        [0],
        "pkill -KILL -f '[a]sync_wrapper|[d]river_packages'; pkill -KILL -x 'apt-get|dpkg'; pkill -KILL -f '%s'",
        POSTINST,
    )
    assert driver(host).broken
    role("volta", branch="580", upgrade=True)
    found = driver(host)
    assert found.version == "580.159.04"
    assert found.held == found.family
    assert found.broken == set()


def test_absent_still_knows_how_the_host_was(host: Host, role: Callable[..., str]) -> None:
    role("volta", entry="absent")
    assert host.check_output("host-state") == host.check_output("cat /root/before")
