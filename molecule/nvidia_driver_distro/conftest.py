# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fixtures of this scenario."""

from __future__ import annotations

from driver_host import driver, locked, role

__all__ = ["driver", "locked", "role"]
