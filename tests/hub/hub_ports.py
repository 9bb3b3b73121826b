# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports for a hub, which needs some seconds until it listens, and again each time when it is restarted."""

from __future__ import annotations

import contextlib
import secrets
import socket

LOWEST, HIGHEST = 20000, 32767
"""Above those of services, below those that the kernel gives to whoever asks for any."""


def free_ports(count: int) -> list[int]:
    """Different ports at which nothing listens."""
    found: set[int] = set()
    while len(found) < count:
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST + 1)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return sorted(found)
