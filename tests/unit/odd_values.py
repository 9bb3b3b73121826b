# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data in which something is not what it should be."""

from __future__ import annotations

from typing import Any


def with_one(odd: Any, value: Any) -> list[Any]:
    """The value with each part of it in turn, and all of it, replaced by another one; of a list, the first one's."""
    if isinstance(value, dict):
        return [odd, *({**value, name: one} for name in value for one in with_one(odd, value[name]))]
    if isinstance(value, list):
        return [odd, *([one, *value[1:]] for one in with_one(odd, value[0]))] if value else [odd]
    return [odd]
