# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role with other options, and the packages of the host as rpm and dnf know them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

ROLE = Path(__file__).parents[1] / "nvidia_container_toolkit/role.yml"


@pytest.fixture
def role(play: Callable[..., CompletedProcess[str]]) -> Callable[..., str]:
    """Return a function that runs an entry point with options, and gives what was said, on one line."""

    def run(entry: str = "main", *, fails: bool = False, **options: str) -> str:
        variables = {"entry": entry, **{f"nvidia_container_toolkit_{name}": value for name, value in options.items()}}
        done = play(ROLE, "--extra-vars", json.dumps(variables))
        said = re.sub(r"\s+", " ", done.stdout + done.stderr)
        assert (done.returncode != 0) is fails, said
        return said

    return run


@pytest.fixture
def packages(host: Host) -> Callable[[], dict[str, tuple[str, bool]]]:
    """Return a function that gives version, and whether it is held, of each package of the toolkit."""

    def look() -> dict[str, tuple[str, bool]]:
        listed = host.check_output("rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\\n' '*nvidia*'")
        locks = host.file("/etc/dnf/plugins/versionlock.list").content_string
        return {
            name: (version, f"\n{name}-0:{version}.*\n" in f"\n{locks}\n")
            for name, _space, version in (line.partition(" ") for line in listed.splitlines())
        }

    return look
