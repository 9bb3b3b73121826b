# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What forbids to install the driver on a host, told before any change: one sentence each."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ._driver_packages import Notice, System

if t.TYPE_CHECKING:
    from ._driver_packages import Available, Gpus, Source
    from ._packages import Installed, Package, Transaction
    from ._pci import Files

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Space:
    """The file system that holds a path: its device number, and the bytes that root may still write."""

    device: int
    free_bytes: int


@dataclass(frozen=True)
class Need:
    """Bytes that will be written under a path, and what for."""

    path: str
    size: int
    purpose: str


@dataclass(frozen=True)
class Process:
    """A process that has a device node of the driver open."""

    pid: int
    name: str
    device: str


def read_system(files: Files, kernel: str, machine: str) -> System:
    """The system as /etc/os-release tells it. Raises RefusedError: unknown_os, unknown_architecture."""
    raise NotImplementedError


def no_root(uid: int) -> list[Notice]:
    """Refuse a user other than root."""
    raise NotImplementedError


def container(system: System, kernel: str) -> list[Notice]:
    """Refuse a container where modules are wanted for the running kernel (``kernel`` is the option)."""
    raise NotImplementedError


def secure_boot(files: Files, wanted: str) -> list[Notice]:
    """Refuse Secure Boot as ``files`` show it, unless ``wanted`` says that the key is enrolled."""
    raise NotImplementedError


def headers(
    system: System,
    kernels: t.Sequence[str],
    installed: t.Mapping[str, Installed],
    available: Available,
    files: Files,
) -> list[Notice]:
    """Refuse kernels whose headers are neither there nor available."""
    raise NotImplementedError


def disk_needs(transaction: Transaction, kernels: int, initramfs_bytes: int | None) -> tuple[Need, ...]:
    """What a transaction writes; ``initramfs_bytes`` is the size of the largest one in /boot, None where none is."""
    raise NotImplementedError


def disk(needs: t.Sequence[Need], space: t.Callable[[str], Space]) -> list[Notice]:
    """Refuse file systems that have too little room. Needs on the same one are added up."""
    raise NotImplementedError


def runfile(files: Files, owner: t.Callable[[str], str | None]) -> list[Notice]:
    """Refuse a driver that NVIDIA's .run installer put there. ``owner`` names the package that a file belongs to."""
    raise NotImplementedError


def foreign_packages(
    source: Source,
    installed: t.Mapping[str, Installed],
    available: Available,
    origin: t.Callable[[Package], str | None],
) -> list[Notice]:
    """Refuse packages of the driver that this source has never heard of, with where they may come from."""
    raise NotImplementedError


def gpu_processes(files: Files) -> tuple[Process, ...]:
    """The processes that have a device node of the driver open, its own daemons left out."""
    raise NotImplementedError


def processes(found: t.Sequence[Process], gpus: Gpus) -> list[Notice]:
    """Refuse to touch a driver that is in use."""
    raise NotImplementedError


def key_fingerprint_missing(url: str) -> Notice:
    """The refusal of a repository whose key is nowhere published with a fingerprint."""
    raise NotImplementedError


def repository(kind: str, url: str, reason: str) -> Notice:
    """The refusal of a repository that does not answer as it should. ``kind`` as in PackageError."""
    raise NotImplementedError


def lock(holder: str | None, seconds: float) -> Notice:
    """The refusal when the package manager's lock did not become free."""
    raise NotImplementedError
