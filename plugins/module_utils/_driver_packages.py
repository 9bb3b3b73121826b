# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages make up the driver on a system, and which of those that a source offers are to be installed."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ._branches import FIRST_BRANCH_WITHOUT_PROPRIETARY_MODULE
from ._packages import Package
from ._version import parse_version

if t.TYPE_CHECKING:
    from ._driver import KernelModule
    from ._packages import Installed

Distribution = t.Literal["debian", "ubuntu", "rhel"]
Source = t.Literal["nvidia", "distro"]
Available = t.Mapping[str, t.Sequence[str]]
"""Versions by name of package, newest first. Only what the source itself offers, not what other sources do."""

Gpu = t.Mapping[str, t.Any]
Gpus = t.Sequence[Gpu]
"""GPUs as ``ansible_facts.gpu.gpus`` has them."""

SUPPORTED: t.Mapping[Distribution, tuple[str, ...]] = {
    "debian": ("12", "13"),
    "ubuntu": ("22.04", "24.04", "26.04"),
    "rhel": ("8", "9", "10"),
}
RESTRICTED = {"debian": ("contrib", "non-free", "non-free-firmware"), "ubuntu": ("restricted",)}
"""Components of the distributions' archives that hold the driver and what it needs beside main."""

ARCHITECTURES = ("x86_64", "aarch64")
NAMES: t.Mapping[Distribution, str] = {"debian": "Debian", "ubuntu": "Ubuntu", "rhel": "Enterprise Linux"}
REBUILDS = "Red Hat, Rocky Linux, AlmaLinux, CentOS Stream"
"""Which Enterprise Linux."""

FAMILY = re.compile(
    r"(?!nvidia-(?:container|docker|cuda-(?!mps)|cudnn|nsight|fs-dkms|gds|cg-|detect$|opencl-dev|openjdk|primus|prime$"
    r"|profiler|visual-profiler|vaapi-driver|support$|installer-cleanup$))"
    r"(?!libnvidia-(?:container|egl-|ml-dev$)|firmware-nvidia-graphics$)"
    r"(?:nvidia-.+|libnvidia-.+|firmware-nvidia-.+|xserver-xorg-video-nvidia.*|lib(?:gl1|glx|egl|gles)-nvidia.*"
    r"|libcuda1.*|libcudadebugger1|libnvcuvid1|libnvoptix1|libnvsdm.*"
    r"|cuda-drivers(?:-.+)?|a?kmod-nvidia(?:-.+)?|dkms-nvidia|xorg-x11-(?:drv-)?nvidia.*)"
)
"""Names of the driver's packages in all sources. The container toolkit, CUDA's and cuDNN's are others."""

_PREBUILT = re.compile(r"linux-(?:modules|objects)-nvidia-(\d{3})(-server)?(-open)?-.+")
_FABRIC_MANAGER = re.compile(r"nvidia-fabric-?manager(?:-\d+)?")
PINNING = "nvidia-driver-pinning-"
"""What the names of packages begin with that keep apt at a branch or a version."""

DRIVER_VERSION = re.compile(r"\d{3}\.\d+(?:\.\d+)?")
_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)*)")
_OPEN = re.compile(r"(?:.+-)?open(?:-.+)?")
_PROPRIETARY = re.compile(
    r"nvidia-dkms(?:-\d+)?(?:-server)?|nvidia-kernel-(?:dkms|source(?:-\d+)?(?:-server)?)"
    r"|nvidia-(?:headless|driver)-\d+(?:-server)?|kmod-nvidia-latest-dkms|cuda-drivers(?:-\d+)?"
)
_SUFFIXED = re.compile(r".+-\d{3}(?P<server>-server)?(?:-open)?")
_FLAVOURS: tuple[KernelModule, ...] = ("open", "proprietary")


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

    distribution: Distribution
    release: str
    architecture: str
    kernel: str
    container: bool = False

    def __str__(self) -> str:
        return f"{NAMES[self.distribution]} {self.release} on {self.architecture}"


@dataclass(frozen=True)
class Wish:
    """What is asked for. ``branch`` may be ``auto``, ``version`` empty, ``kernel_module`` ``auto``.

    An ``image`` is built where its GPUs are not.
    """

    source: Source
    branch: str = "auto"
    version: str = ""
    kernel_module: str = "auto"
    display: bool = False
    fabric_manager: bool = False
    upgrade: bool = False
    hold: bool = True
    image: bool = False

    @property
    def wanted_branch(self) -> str | None:
        """The branch that is asked for, by itself or through a version; None for any."""
        if self.branch != "auto":
            return self.branch
        return self.version.split(".", maxsplit=1)[0] or None


@dataclass(frozen=True)
class Offer:
    """A driver that the source can give: the packages to ask for, in their whole versions."""

    branch: str
    version: str
    kernel_module: KernelModule
    packages: tuple[Package, ...]
    lacks: tuple[str, ...] = ()
    """What was asked for and doesn't exist in this version, as clauses: such an offer is never chosen."""
    layout: int = 0
    """Place of the set of packages among those that the source has for a branch: the first is the better one."""

    @property
    def label(self) -> str:
        return f"{self.version} with the {self.kernel_module} kernel module"


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
    layout: int = 0
    """As in Offer."""


@dataclass(frozen=True)
class _Layout:
    """How a source names the packages of some branches; ``{b}`` stands for the branch.

    All packages are taken in the driver's version, but ``loose`` ones, which the source may have in another only.
    ``optional`` ones are taken where they are.
    """

    modules: t.Mapping[KernelModule, str]
    required: tuple[str, ...]
    display: t.Mapping[KernelModule, str]
    compute: t.Mapping[KernelModule, str] | None = None
    """A package that stands for the whole without displays."""
    optional: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    fabric_manager: tuple[str, ...] = ()
    first: int = 0
    last: int = 10**6


def _both(name: str) -> dict[KernelModule, str]:
    return {"open": name, "proprietary": name}


_FABRIC_MANAGERS = ("nvidia-fabricmanager", "nvidia-fabricmanager-{b}")

_LAYOUTS: t.Mapping[tuple[Distribution, Source], tuple[_Layout, ...]] = {
    ("debian", "nvidia"): (
        _Layout(
            modules={"open": "nvidia-kernel-open-dkms", "proprietary": "nvidia-kernel-dkms"},
            required=("nvidia-driver-cuda",),
            optional=("nvidia-persistenced", "nvidia-modprobe"),
            display=_both("nvidia-driver"),
            fabric_manager=_FABRIC_MANAGERS,
        ),
    ),
    ("debian", "distro"): (
        _Layout(
            modules={"open": "nvidia-open-kernel-dkms", "proprietary": "nvidia-kernel-dkms"},
            required=("nvidia-smi", "libcuda1", "libnvidia-ml1", "firmware-nvidia-gsp"),
            loose=("nvidia-persistenced", "nvidia-modprobe"),
            display=_both("nvidia-driver"),
        ),
    ),
    ("ubuntu", "nvidia"): (
        _Layout(
            modules={"open": "nvidia-dkms-open", "proprietary": "nvidia-dkms"},
            required=("libnvidia-compute",),
            optional=("libnvidia-cfg1", "nvidia-persistenced", "nvidia-modprobe", "nvidia-utils"),
            display={"open": "nvidia-open", "proprietary": "cuda-drivers"},
            fabric_manager=_FABRIC_MANAGERS,
            first=590,
        ),
        _Layout(
            modules={"open": "nvidia-dkms-{b}-open", "proprietary": "nvidia-dkms-{b}"},
            required=("libnvidia-compute-{b}", "nvidia-utils-{b}", "nvidia-compute-utils-{b}"),
            optional=("libnvidia-cfg1-{b}",),
            display={"open": "nvidia-open-{b}", "proprietary": "cuda-drivers-{b}"},
            fabric_manager=_FABRIC_MANAGERS,
            last=589,
        ),
    ),
    ("ubuntu", "distro"): (
        _Layout(
            modules={"open": "nvidia-dkms-{b}-server-open", "proprietary": "nvidia-dkms-{b}-server"},
            compute={"open": "nvidia-headless-{b}-server-open", "proprietary": "nvidia-headless-{b}-server"},
            required=("nvidia-utils-{b}-server",),
            optional=("nvidia-compute-utils-{b}-server",),
            display={"open": "nvidia-driver-{b}-server-open", "proprietary": "nvidia-driver-{b}-server"},
            fabric_manager=("nvidia-fabricmanager-{b}",),
        ),
        _Layout(
            modules={"open": "nvidia-dkms-{b}-open", "proprietary": "nvidia-dkms-{b}"},
            compute={"open": "nvidia-headless-{b}-open", "proprietary": "nvidia-headless-{b}"},
            required=("nvidia-utils-{b}",),
            optional=("nvidia-compute-utils-{b}",),
            display={"open": "nvidia-driver-{b}-open", "proprietary": "nvidia-driver-{b}"},
            fabric_manager=("nvidia-fabricmanager-{b}",),
        ),
    ),
    ("rhel", "nvidia"): (
        _Layout(
            modules={"open": "kmod-nvidia-open-dkms", "proprietary": "kmod-nvidia-latest-dkms"},
            required=("nvidia-driver-cuda",),
            optional=("nvidia-persistenced", "nvidia-modprobe"),
            display={"open": "nvidia-open", "proprietary": "cuda-drivers"},
            fabric_manager=("nvidia-fabricmanager", "nvidia-fabric-manager"),
        ),
    ),
}


def is_family(name: str) -> bool:
    """Whether a package belongs to the driver, by its name."""
    return FAMILY.fullmatch(name) is not None or _PREBUILT.fullmatch(name) is not None


def in_family(name: str, version: str) -> bool:
    """Whether an installed package belongs to the driver and carries its version: these are held and removed."""
    if name.startswith(PINNING) or _PREBUILT.fullmatch(name):
        return True
    return FAMILY.fullmatch(name) is not None and DRIVER_VERSION.fullmatch(upstream(version)) is not None


def upstream(version: str) -> str:
    """The driver's version in a package's: ``3:580.159.04-1.el9`` is ``580.159.04``."""
    match = _UPSTREAM.match(version)
    return match.group(1) if match else version


def candidate_names(system: System) -> re.Pattern[str]:
    """The names for which Reader.available is asked to know what a source offers, headers not included."""
    return re.compile(f"(?:{FAMILY.pattern}|dkms)") if system.distribution == "rhel" else FAMILY


def offers(system: System, wish: Wish, available: Available) -> list[Offer]:
    """Every version and flavour that the source can give whole, newest first."""
    found = [
        offer
        for place, layout in enumerate(_LAYOUTS.get((system.distribution, wish.source), ()))
        for flavour in _FLAVOURS
        for name in _matching(layout.modules[flavour], available)
        for offer in _offers_of(wish, available, layout, place, flavour, name)
    ]
    return sorted(found, key=lambda offer: (parse_version(offer.version), -offer.layout), reverse=True)


def _matching(template: str, names: t.Iterable[str]) -> list[str]:
    pattern = re.compile(re.escape(template).replace(r"\{b\}", r"\d{3}"))
    return sorted(name for name in names if pattern.fullmatch(name))


def _offers_of(
    wish: Wish,
    available: Available,
    layout: _Layout,
    place: int,
    flavour: KernelModule,
    module: str,
) -> t.Iterator[Offer]:
    seen = set()
    for full_version in available[module]:
        version = upstream(full_version)
        branch = version.split(".")[0]
        if version in seen or not DRIVER_VERSION.fullmatch(version) or not layout.first <= int(branch) <= layout.last:
            continue
        if module != layout.modules[flavour].format(b=branch):
            continue  # A package that only leads over to another branch.
        if flavour == "proprietary" and int(branch) >= FIRST_BRANCH_WITHOUT_PROPRIETARY_MODULE:
            continue
        seen.add(version)
        whole = layout.display if wish.display else layout.compute
        names = [*layout.required, *([whole[flavour]] if whole else [])]
        packages = [Package(module, full_version)]
        required = [_exact(name.format(b=branch), version, available) for name in names]
        packages += [package for package in required if package]
        if len(packages) <= len(names):
            continue
        optional = [_exact(name.format(b=branch), version, available) for name in layout.optional]
        optional += [_near(name, version, available) for name in layout.loose]
        optional.append(_pinning(branch, version if wish.version else None, available))
        lacks: tuple[str, ...] = ()
        if wish.fabric_manager:
            managers = [name.format(b=branch) for name in layout.fabric_manager]
            manager = next((found for found in (_exact(name, version, available) for name in managers) if found), None)
            optional.append(manager)
            lacks = () if manager else (_no_fabric_manager(managers, branch, available),)
        yield Offer(
            branch=branch,
            version=version,
            kernel_module=flavour,
            packages=(*packages, *(package for package in optional if package)),
            lacks=lacks,
            layout=place,
        )


def _no_fabric_manager(names: t.Sequence[str], branch: str, available: Available) -> str:
    others = [(upstream(full), name) for name in names for full in available.get(name, ())]
    of_branch = [other for other in others if other[0].split(".")[0] == branch]
    if not of_branch:
        return f"{(*names, 'nvidia-fabricmanager')[0]} in none of its branch"
    newest, name = max(of_branch, key=lambda other: parse_version(other[0]))
    return f"{name} only in {newest}"


def _exact(name: str, version: str, available: Available) -> Package | None:
    """The newest revision of a package in the driver's version."""
    return next((Package(name, full) for full in available.get(name, ()) if upstream(full) == version), None)


def _near(name: str, version: str, available: Available) -> Package | None:
    """A package in the driver's version, else in the newest of its branch, else in the newest."""
    branch = version.split(".", maxsplit=1)[0]
    versions = available.get(name, ())
    of_branch = [full for full in versions if upstream(full).split(".")[0] == branch]
    newest = next(iter([*of_branch, *versions]), None)
    return _exact(name, version, available) or (Package(name, newest) if newest else None)


def _pinning(branch: str, version: str | None, available: Available) -> Package | None:
    """The package that keeps apt at a version, or at a branch. Its own version is not the driver's."""
    for suffix in (version, branch):
        versions = available.get(f"{PINNING}{suffix}", ()) if suffix else ()
        if versions:
            return Package(f"{PINNING}{suffix}", versions[0])
    return None


def current(system: System, source: Source, installed: t.Mapping[str, Installed]) -> Current | None:
    """The driver of this source that is installed, completely; None when there is none, or two flavours at once."""
    present = {name: package for name, package in installed.items() if package.present}
    found = []
    for place, layout in enumerate(_LAYOUTS.get((system.distribution, source), ())):
        for flavour in _FLAVOURS:
            for name in _matching(layout.modules[flavour], present):
                version = upstream(present[name].version)
                branch = version.split(".")[0]
                required = [required.format(b=branch) for required in layout.required]
                if all(one in present and upstream(present[one].version) == version for one in required):
                    display = layout.display[flavour].format(b=branch) in present
                    found.append((version, branch, flavour, display, place))
    if len(found) != 1:
        return None
    version, branch, flavour, display, place = found[0]
    managers = [package.version for name, package in present.items() if _FABRIC_MANAGER.fullmatch(name)]
    return Current(
        branch=branch,
        version=version,
        kernel_module=flavour,
        display=display,
        fabric_manager=upstream(managers[0]) if managers else None,
        packages=tuple(
            Package(name, present[name].version) for name in sorted(present) if in_family(name, present[name].version)
        ),
        layout=place,
    )


def fabric_managers(installed: t.Mapping[str, Installed]) -> tuple[str, ...]:
    """The installed packages of the fabric manager."""
    return tuple(sorted(name for name, one in installed.items() if one.present and _FABRIC_MANAGER.fullmatch(name)))


def superseded(
    offer: Offer, installed: t.Mapping[str, Installed], available: Available, unneeded: t.Collection[str] = ()
) -> tuple[str, ...]:
    """The installed packages of the driver that have no place beside the offer: other source, branch or flavour.

    ``unneeded`` ones go, too.
    """
    wanted = {package.name for package in offer.packages}
    return tuple(
        name
        for name, package in sorted(installed.items())
        if package.present
        and name not in wanted
        and in_family(name, package.version)
        and (name in unneeded or _has_no_place(offer, name, package.version, available))
    )


def _has_no_place(offer: Offer, name: str, version: str, available: Available) -> bool:
    prebuilt = _PREBUILT.fullmatch(name)
    if prebuilt:
        return prebuilt.group(1) != offer.branch or bool(prebuilt.group(3)) != (offer.kernel_module == "open")
    if name.startswith(PINNING) or not available.get(name):
        return True
    other = _PROPRIETARY if offer.kernel_module == "open" else _OPEN
    if other.fullmatch(name):
        return True
    suffixed = _SUFFIXED.fullmatch(name)
    if suffixed and not _FABRIC_MANAGER.fullmatch(name):
        servers = {
            bool(match.group("server")) for match in (_SUFFIXED.fullmatch(one.name) for one in offer.packages) if match
        }
        if servers and bool(suffixed.group("server")) not in servers:
            return True
    if _exact(name, offer.version, available):
        return False
    is_other = upstream(version).split(".")[0] != offer.branch
    return is_other or (_FABRIC_MANAGER.fullmatch(name) is not None and upstream(version) != offer.version)


def companions(
    offer: Offer, installed: t.Mapping[str, Installed], available: Available, unneeded: t.Collection[str] = ()
) -> tuple[Package, ...]:
    """The installed packages of the driver, not asked for, that must come along to the offer's version and source."""
    wanted = {package.name for package in offer.packages}
    leaving = set(superseded(offer, installed, available, unneeded))
    found = []
    for name, package in sorted(installed.items()):
        if not package.present or name in wanted or name in leaving or not in_family(name, package.version):
            continue
        new = _exact(name, offer.version, available)
        if new is None:
            continue
        if upstream(package.version) != offer.version or package.version not in available[name]:
            found.append(new)
    return tuple(found)
