# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the driver is as it was asked for, the role is done soon and waits for nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from testinfra.host import Host

testinfra_hosts = ["ansible://trixie"]

# Seconds: five times what a busy machine takes.
LONGEST = 120


def test_second_run_takes_seconds_and_no_lock(
    host: Host, role: Callable[..., str], locked: Callable[[Host], AbstractContextManager[None]]
) -> None:
    start = time.monotonic()
    with locked(host):
        said = role("trixie", lock_timeout=1)
    assert said.count("changed=0") == 1
    assert time.monotonic() - start < LONGEST
