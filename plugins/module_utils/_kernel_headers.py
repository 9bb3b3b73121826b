# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel headers against which the driver's module is built."""

from __future__ import annotations

import re
import typing as t

from ._packages import Package

if t.TYPE_CHECKING:
    from ._driver_packages import Available, System
    from ._packages import Installed
    from ._pci import Files

_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(?P<release>\d.*)|kernel(?:-(?P<flavour>64k))?-core")
_META_IMAGE = re.compile(r"linux-image-(?!unsigned-)(\D.*?)")
_NO_KERNEL = re.compile(r".*-(?:dbg|dbgsym|unsigned|common|common-rt)")
_DEB_MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}


def header_names(system: System, kernels: t.Sequence[str] | None) -> re.Pattern[str]:
    """The names of headers of these kernels, with the meta packages; None for those of every kernel."""
    if system.distribution == "rhel":
        return re.compile(r"kernel(?:-\w+)?-devel(?:-matched)?(?:-\d.+)?")
    exact = r"\d.+" if kernels is None else "|".join(re.escape(kernel) for kernel in kernels)
    return re.compile(rf"linux-headers-(?:{exact}|[a-z]\S*)")


def newest_kernel(system: System, installed: t.Mapping[str, Installed], available: Available) -> str | None:
    """The release of the newest kernel that is installed, else of that whose headers the system would install."""
    if system.distribution == "rhel":
        return _newest_of_enterprise_linux(system, installed, available)
    for prefix in ("linux-image-", "linux-headers-"):
        releases = [
            name[len(prefix) :]
            for name, package in installed.items()
            if package.present and re.match(rf"{prefix}\d", name) and not _NO_KERNEL.fullmatch(name)
        ]
        releases = [release for release in releases if _is_whole_release(system, release)]
        if releases:
            return max(releases, key=_release_key)
    meta = f"linux-headers-{_DEB_MACHINE[system.architecture] if system.distribution == 'debian' else 'generic'}"
    newest = next(iter(available.get(meta, ())), None)
    releases = [
        name[len("linux-headers-") :]
        for name, versions in available.items()
        if name.startswith("linux-headers-") and name[14:15].isdigit() and newest in versions
    ]
    wanted = meta[len("linux-headers-") :]
    exact = [release for release in releases if re.fullmatch(rf"[^-]+(?:-\d+)?-{wanted}", release)]
    return max(exact, key=_release_key, default=None)


def _newest_of_enterprise_linux(
    system: System, installed: t.Mapping[str, Installed], available: Available
) -> str | None:
    """A kernel of the flavour that runs comes before one of the other page size."""
    runs = system.kernel.partition("+")[2]
    flavours = sorted(("", "64k"), key=lambda flavour: flavour != runs)
    for names in (("core", ""), ("devel",)):
        for flavour in flavours:
            for name in names:
                package = installed.get("-".join(filter(None, ("kernel", flavour, name))))
                if package is not None and package.present:
                    return _release(system, package.version, flavour)
    newest = next(iter(available.get("kernel-devel", ())), None)
    return None if newest is None else _release(system, newest, "")


def kernel_of(system: System, package: Package) -> str | None:
    """The release of the kernel whose image is in a package; None where none is."""
    match = _IMAGE.fullmatch(package.name)
    if match is None:
        return None
    return match["release"] or _release(system, package.version, match["flavour"] or "")


def _release(system: System, version: str, flavour: str) -> str:
    return f"{_without_epoch(version)}.{system.architecture}{f'+{flavour}' if flavour else ''}"


def _is_whole_release(system: System, release: str) -> bool:
    """Whether it ends in a flavour, as ``6.8.0-90-generic`` does; ``6.8.0-90`` is what all flavours share."""
    if system.distribution == "debian":
        return release.endswith(f"-{_DEB_MACHINE[system.architecture]}")
    return re.fullmatch(r"[\d.]+-\d+-.+", release) is not None


def _release_key(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _without_epoch(version: str) -> str:
    return version.split(":", 1)[-1]


def header_name(system: System, kernel: str) -> str:
    """The package with the headers of a kernel; on Enterprise Linux with the release behind its name."""
    if system.distribution != "rhel":
        return f"linux-headers-{kernel}"
    release, _plus, flavour = kernel.partition("+")
    return f"kernel-{f'{flavour}-' if flavour else ''}devel-{release}"


def has_headers(system: System, kernel: str, installed: t.Mapping[str, Installed], files: Files) -> bool:
    """Whether the headers of a kernel are there, from a package or as somebody built the kernel."""
    if files.exists(f"/lib/modules/{kernel}/build/Makefile"):
        return True
    name = header_name(system, kernel)
    return name in installed and installed[name].present


def header_packages(
    system: System,
    kernels: t.Sequence[str],
    installed: t.Mapping[str, Installed],
    available: Available,
    files: Files,
) -> tuple[Package, ...]:
    """The headers to install: exactly those of the kernels, and the meta package that keeps up with the image's.

    A meta package is taken only in the version of the image's, since a newer one brings another kernel's headers.
    """
    missing = [kernel for kernel in kernels if not has_headers(system, kernel, installed, files)]
    if system.distribution == "rhel":
        return tuple(package for kernel in missing for package in _devel_packages(system, kernel, available))
    found = []
    for kernel in missing:
        name = f"linux-headers-{kernel}"
        versions = available.get(name, ())
        image = installed.get(f"linux-image-{kernel}")
        if versions:
            found.append(Package(name, image.version if image and image.version in versions else versions[0]))
    for name, package in sorted(installed.items()):
        match = _META_IMAGE.fullmatch(name)
        if not match or not package.present or _NO_KERNEL.fullmatch(name):
            continue
        meta = f"linux-headers-{match.group(1)}"
        has_meta = meta in installed and installed[meta].present
        if not has_meta and package.version in available.get(meta, ()):
            found.append(Package(meta, package.version))
    return tuple(found)


def _devel_packages(system: System, kernel: str, available: Available) -> t.Iterator[Package]:
    release, _plus, flavour = kernel.partition("+")
    wanted = release[: -len(system.architecture) - 1] if release.endswith(f".{system.architecture}") else release
    base = f"kernel-{flavour}-devel" if flavour else "kernel-devel"
    for name in (base, f"{base}-matched"):
        version = next((full for full in available.get(name, ()) if _without_epoch(full) == wanted), None)
        if version is not None:
            yield Package(name, version)
