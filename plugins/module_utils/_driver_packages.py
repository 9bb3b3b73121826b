# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages make up the driver on a system, and which of those that a source offers are to be installed."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ._packages import Package

if t.TYPE_CHECKING:
    from ._driver import KernelModule
    from ._packages import Installed
    from ._pci import Files

Source = t.Literal["nvidia", "distro"]
Available = t.Mapping[str, t.Sequence[str]]
"""Versions by name of package, newest first. Only what the source itself offers, not what other sources do."""

Gpus = t.Sequence[t.Mapping[str, t.Any]]
"""GPUs as ``ansible_facts.gpu.gpus`` has them."""


@dataclass(frozen=True)
class Notice:
    """A refusal or a warning: a code, and a sentence that says what is wrong, where, and what to do."""

    code: str
    message: str


class RefusedError(Exception):
    """No driver can be chosen, for these reasons."""

    def __init__(self, refusals: t.Sequence[Notice]) -> None:
        super().__init__("; ".join(refusal.message for refusal in refusals))
        self.refusals = tuple(refusals)


@dataclass(frozen=True)
class System:
    """The host. ``kernel`` is the release of the running kernel, ``architecture`` as the kernel names it."""

    distribution: t.Literal["debian", "ubuntu", "rhel"]
    release: str
    architecture: str
    kernel: str
    container: bool = False


@dataclass(frozen=True)
class Wish:
    """What is asked for. ``branch`` may be ``auto``, ``version`` empty, ``kernel_module`` ``auto``."""

    source: Source
    branch: str = "auto"
    version: str = ""
    kernel_module: str = "auto"
    display: bool = False
    fabric_manager: bool = False
    upgrade: bool = False
    hold: bool = True


@dataclass(frozen=True)
class Offer:
    """A driver that the source can give: the packages to ask for, in their whole versions."""

    branch: str
    version: str
    kernel_module: KernelModule
    packages: tuple[Package, ...]
    module_stream: str | None = None


@dataclass(frozen=True)
class Current:
    """The driver that is installed by packages."""

    branch: str
    version: str
    kernel_module: KernelModule
    display: bool
    fabric_manager: str | None
    """Version of the fabric manager without revision; None where it isn't installed."""
    packages: tuple[Package, ...]
    """All installed packages of the family."""


@dataclass(frozen=True)
class Explanation:
    """Why an offer was taken, and what the user should know of it."""

    why: tuple[str, ...]
    warnings: tuple[Notice, ...]


def is_family(name: str) -> bool:
    """Whether a package belongs to the driver, by its name."""
    raise NotImplementedError


def in_family(name: str, version: str) -> bool:
    """Whether an installed package belongs to the driver and carries its version: these are held and removed."""
    raise NotImplementedError


def upstream(version: str) -> str:
    """The driver's version in a package's: ``3:580.159.04-1.el9`` is ``580.159.04``."""
    raise NotImplementedError


def candidate_names(system: System, source: Source) -> re.Pattern[str]:
    """The names for which Reader.available is asked to know what the source offers, those of headers not included."""
    raise NotImplementedError


def header_names(system: System, kernels: t.Sequence[str] | None) -> re.Pattern[str]:
    """The names of headers of these kernels, with the meta packages; None for those of every kernel."""
    raise NotImplementedError


def newest_kernel(system: System, installed: t.Mapping[str, Installed], available: Available) -> str | None:
    """The release of the newest kernel that is installed, else of the newest whose headers are available."""
    raise NotImplementedError


def header_packages(
    system: System,
    kernels: t.Sequence[str],
    installed: t.Mapping[str, Installed],
    available: Available,
    files: Files,
) -> tuple[Package, ...]:
    """The headers to install: exactly those of the kernels, and the meta package that keeps up with the image's."""
    raise NotImplementedError


def current(system: System, source: Source, installed: t.Mapping[str, Installed]) -> Current | None:
    """The driver of this source that is installed, completely; None when there is none."""
    raise NotImplementedError


def check_wish(system: System, wish: Wish, gpus: Gpus) -> list[Notice]:
    """The refusals for which no repository has to be read."""
    raise NotImplementedError


def misfits(found: Current, wish: Wish, gpus: Gpus) -> list[str]:
    """Why the installed driver isn't what is asked for; none when it is, newer versions left aside."""
    raise NotImplementedError


def offers(
    system: System, source: Source, available: Available, *, display: bool = False, fabric_manager: bool = False
) -> list[Offer]:
    """Every version and flavour that the source can give whole, newest first."""
    raise NotImplementedError


def choose(
    system: System, wish: Wish, gpus: Gpus, offered: t.Sequence[Offer], found: Current | None
) -> tuple[Offer, ...]:
    """The offers that fit, best first: the first that can be resolved is to be taken. Raises RefusedError."""
    raise NotImplementedError


def explain(
    system: System,
    wish: Wish,
    gpus: Gpus,
    offered: t.Sequence[Offer],
    found: Current | None,
    taken: Offer,
    unresolved: t.Sequence[tuple[Offer, str]],
) -> Explanation:
    """Why this one was taken after those that could not be resolved, each with the package manager's reason."""
    raise NotImplementedError


def unresolvable(wish: Wish, unresolved: t.Sequence[tuple[Offer, str]]) -> Notice:
    """The refusal when no offer can be resolved."""
    raise NotImplementedError


def superseded(offer: Offer, installed: t.Mapping[str, Installed], available: Available) -> tuple[str, ...]:
    """The installed packages of the driver that have no place beside the offer: other branch, other flavour."""
    raise NotImplementedError


def ways_out(
    system: System, wish: Wish, gpus: Gpus, offered: t.Sequence[Offer], failed: Offer, kernel: str
) -> tuple[str, ...]:
    """What to try when the module of an offer doesn't compile for a kernel, each as an imperative clause."""
    raise NotImplementedError
