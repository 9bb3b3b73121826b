# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts with the simulator's library, built once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_host import Host


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a host whose library is built."""
    host = Host(tmp_path_factory.mktemp("built"))
    host.configure(profile="none")
    return host.prefix


@pytest.fixture
def host(built: Path, tmp_path: Path) -> Host:
    """A host without GPUs, with a library that need not be built again."""
    shutil.copytree(built, tmp_path / "host", symlinks=True)
    return Host(tmp_path / "host")


@pytest.fixture
def simulate(host: Host) -> Callable[..., Host]:
    """A function that makes the host simulate something."""

    def configured(**request: Any) -> Host:
        host.configure(**request)
        return host

    return configured
