# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of role nvidia_driver share: running it with other options, and looking at the packages of a host."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from testinfra.host import Host

INVENTORY = str(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory")
ENTRY = Path(__file__).parent / "shared/driver/entry.yml"
KERNEL_MODULES = {"nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "nvidia-open-kernel-dkms"}
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
HELD = "/run/held"
HOLDER = (
    "import fcntl, time; files = [open(name, 'w') for name in {locks}]; "
    "[fcntl.lockf(file, fcntl.LOCK_EX) for file in files]; open('{held}', 'w').close(); time.sleep(3600)"
)


class Driver:
    """The packages of a host as dpkg knows them."""

    def __init__(self, host: Host) -> None:
        command = "dpkg-query --show --showformat '${Package} ${Version} ${db:Status-Abbrev}\\n'"
        self.packages: dict[str, str] = {}
        self.broken: set[str] = set()
        for line in host.check_output(command).splitlines():
            name, version, state = line.split()
            if state in {"ii", "hi"}:
                self.packages[name] = version
            else:
                self.broken.add(name)
        self.held = set(host.check_output("apt-mark showhold").split())
        self.dkms = host.check_output("dkms status").splitlines() if "dkms" in self.packages else []

    @property
    def version(self) -> str | None:
        """The driver's version, without the package's revision."""
        return self.packages["libcuda1"].split("-")[0] if "libcuda1" in self.packages else None

    @property
    def kernel_modules(self) -> set[str]:
        return KERNEL_MODULES & set(self.packages)

    @property
    def family(self) -> set[str]:
        """The packages that have the driver's version, and the one that pins it."""
        return {
            name
            for name, version in self.packages.items()
            if version.startswith(f"{self.version}-") or name.startswith("nvidia-driver-pinning-")
        }


@pytest.fixture
def driver() -> Callable[[Host], Driver]:
    """Return a function that looks at the packages of a host."""
    return Driver


@pytest.fixture
def role(play: Callable[..., CompletedProcess[str]]) -> Callable[..., str]:
    """Return a function that runs the role with options on hosts, and gives what was said, on one line."""

    def run(target: str, *arguments: str, entry: str = "main", fails: bool = False, **options: Any) -> str:
        variables = {"target": target, "entry": entry, **{f"nvidia_driver_{name}": v for name, v in options.items()}}
        done = play(ENTRY, "--extra-vars", json.dumps(variables), *arguments)
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == (2 if fails else 0), said
        return said

    return run


@pytest.fixture
def locked() -> Callable[[Host], contextlib.AbstractContextManager[None]]:
    """Return a context in which another process holds all locks of the package manager."""

    @contextlib.contextmanager
    def hold(host: Host) -> Iterator[None]:
        holder = HOLDER.format(locks=LOCKS, held=HELD)
        host.run_expect([0], f'systemd-run --unit=holder --collect python3 -c "{holder}"')
        host.run_expect([0], f"timeout 60 sh -c 'until rm {HELD}; do sleep 0.2; done'")
        try:
            yield
        finally:
            host.run_expect([0], "systemctl stop holder")

    return hold
