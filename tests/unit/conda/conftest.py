# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every test with a real conda has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from module_of_conda import Module

from ansible_collections.cudahub.gpu.tests.standin.conda import channel as standin


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the channel; return its address."""
    folder = tmp_path_factory.mktemp("channels") / "named"
    standin.write_channel(folder, standin.rapids_packages(python=sys.executable))
    return f"file://{folder}"


@pytest.fixture
def module(tmp_path: Path, channel: str) -> Module:
    """Return the module with an empty cache."""
    return Module(tmp_path, channel)
