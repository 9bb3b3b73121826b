# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every test of a plugin has around it."""

from __future__ import annotations

import pytest
from ansible.module_utils.common import warnings


@pytest.fixture(autouse=True)
def warnings_of_its_own() -> None:
    """Forget the warnings of earlier tests, which a module would return as its own."""
    warnings._global_warnings.clear()
