# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  platform:
    description: Target OS/families that can be operated against.
    support: full
    platforms: Linux
"""

    READS_ONLY = r"""
attributes:
  check_mode:
    description: Can run in check mode, and returns the same as otherwise.
    support: full
  diff_mode:
    description: Never changes anything, so that there is nothing to show.
    support: none
"""
