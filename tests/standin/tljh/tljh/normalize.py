# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of users of the system."""

from __future__ import annotations

import hashlib


def generate_system_username(username: str) -> str:
    """A name that is short enough."""
    if len(username) < 26:
        return username
    return f"{username[:26]}-{hashlib.sha256(username.encode()).hexdigest()[:5]}"
