# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Synthetic package lists of the driver's sources on each supported system.

The names of packages and the shape of their versions are those of the sources. Which versions are there is made up.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import Source, System
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Installed, Package

Table = dict[str, tuple[str, ...]]

KERNELS = {
    ("debian", "12"): "6.1.0-56-{deb}",
    ("debian", "13"): "6.12.118+deb13-{deb}",
    ("ubuntu", "22.04"): "5.15.0-171-generic",
    ("ubuntu", "24.04"): "6.8.0-90-generic",
    ("ubuntu", "26.04"): "7.0.0-12-generic",
    ("rhel", "8"): "4.18.0-553.22.1.el8_10.{rpm}",
    ("rhel", "9"): "5.14.0-570.12.1.el9_6.{rpm}",
    ("rhel", "10"): "6.12.0-55.9.1.el10_0.{rpm}",
}
DEB = {"x86_64": "amd64", "aarch64": "arm64"}
SYSTEMS = [
    System(
        t.cast("t.Any", distribution),
        release,
        architecture,
        kernel.format(deb=DEB[architecture], rpm=architecture),
    )
    for (distribution, release), kernel in KERNELS.items()
    for architecture in ("x86_64", "aarch64")
]

SOURCES: list[tuple[System, Source]] = [
    (system, source)
    for system in SYSTEMS
    for source in t.get_args(Source)
    if (system.distribution, source) != ("rhel", "distro")
]
"""Every system with each source that it has."""

NVIDIA_VERSIONS = ("535.261.03", "580.95.05", "580.159.04", "590.48.01", "595.58.03", "595.71.05", "620.36.02")
"""Versions in NVIDIA's repositories, from old to new."""


def name(system: System) -> str:
    """A system as the name of a test's case."""
    return f"{system.distribution}{system.release}-{system.architecture}"


def available(system: System, source: str) -> Table:
    """What a source offers for a system."""
    return nvidia(system) if source == "nvidia" else distro(system)


def source_name(value: System | str) -> str:
    """A system or a source as a part of the name of a test's case."""
    return value if isinstance(value, str) else name(value)


def by(distribution: str, release: str, architecture: str = "x86_64") -> System:
    """The system of this distribution and release."""
    wanted = (distribution, release, architecture)
    return next(one for one in SYSTEMS if (one.distribution, one.release, one.architecture) == wanted)


def nvidia(system: System, versions: t.Sequence[str] = NVIDIA_VERSIONS) -> Table:
    """NVIDIA's repository for a system."""
    build = {"debian": _nvidia_debian, "ubuntu": _nvidia_ubuntu, "rhel": _nvidia_rhel}[system.distribution]
    table: dict[str, list[str]] = {}
    for version in versions:
        for package, full in build(system, version):
            table.setdefault(package, []).insert(0, full)
    table["nvidia-container-toolkit"] = ["1.18.1-1"]
    table["cuda-toolkit-13-0"] = ["13.0.2-1"]
    if system.distribution == "rhel":
        table["dkms"] = ["3.2.2-1.el9"]
    return {package: tuple(found) for package, found in table.items()}


def _pinning(version: str, revision: str) -> t.Iterator[tuple[str, str]]:
    branch = version.split(".", maxsplit=1)[0]
    if int(branch) >= 580:
        yield f"nvidia-driver-pinning-{branch}", f"{branch}{revision}"
        yield f"nvidia-driver-pinning-{version}", f"{version}{revision}"


def _has_proprietary(version: str) -> bool:
    return int(version.split(".", maxsplit=1)[0]) < 615


def _nvidia_debian(_system: System, version: str) -> t.Iterator[tuple[str, str]]:
    full = f"{version}-1"
    names = ["nvidia-driver-cuda", "nvidia-driver", "nvidia-kernel-open-dkms", "nvidia-open", "nvidia-persistenced"]
    names += ["nvidia-modprobe", "libnvidia-ml1", "libcuda1", "nvidia-fabricmanager", "firmware-nvidia-gsp"]
    names += ["nvidia-kernel-dkms", "cuda-drivers"] if _has_proprietary(version) else []
    yield from ((package, full) for package in names)
    yield from _pinning(version, "-1")


def _nvidia_ubuntu(_system: System, version: str) -> t.Iterator[tuple[str, str]]:
    branch = version.split(".", maxsplit=1)[0]
    if int(branch) >= 590:
        names = ["libnvidia-compute", "libnvidia-cfg1", "nvidia-dkms-open", "nvidia-open", "nvidia-persistenced"]
        names += ["nvidia-modprobe", "nvidia-driver-open", "nvidia-fabricmanager"]
        names += ["nvidia-dkms", "nvidia-driver", "cuda-drivers"] if _has_proprietary(version) else []
        full = f"{version}-1ubuntu1"
    else:
        full = f"{version}-0ubuntu1"
        names = ["libnvidia-compute-{}", "libnvidia-cfg1-{}", "nvidia-utils-{}", "nvidia-compute-utils-{}"]
        names += ["nvidia-dkms-{}", "nvidia-dkms-{}-open", "nvidia-driver-{}", "nvidia-driver-{}-open"]
        names += ["cuda-drivers-{}", "nvidia-open-{}"]
        names = [package.format(branch) for package in names]
        names.append("nvidia-fabricmanager" if branch == "580" else f"nvidia-fabricmanager-{branch}")
    yield from ((package, full) for package in names)
    yield from _pinning(version, "-2ubuntu1")


def _nvidia_rhel(system: System, version: str) -> t.Iterator[tuple[str, str]]:
    full = f"3:{version}-1.el{system.release}"
    names = ["nvidia-driver-cuda", "nvidia-driver", "kmod-nvidia-open-dkms", "nvidia-open", "nvidia-persistenced"]
    names += ["nvidia-modprobe", "libnvidia-ml"]
    names += ["kmod-nvidia-latest-dkms", "cuda-drivers"] if _has_proprietary(version) else []
    yield from ((package, full) for package in names)
    yield f"nvidia-fabric{'' if int(version[:3]) >= 580 else '-'}manager", f"{version}-1"


def distro(system: System) -> Table:
    """The distribution's own archive, components with the driver included."""
    if system.distribution == "debian":
        return _debian_12() if system.release == "12" else _debian_13()
    table: dict[str, list[str]] = {}
    for kind, version in (
        ("535-server", "535.274.02"),
        ("570-server", "570.211.01"),
        ("580", "580.159.04"),
        ("580-server", "580.126.09"),
        ("595-server", "595.71.05"),
    ):
        branch, _dash, server = kind.partition("-")
        names = ["nvidia-headless-{}", "nvidia-headless-{}-open", "nvidia-dkms-{}", "nvidia-dkms-{}-open"]
        names += ["nvidia-driver-{}", "nvidia-driver-{}-open", "nvidia-utils-{}", "nvidia-compute-utils-{}"]
        names += ["libnvidia-compute-{}"]
        for package in names:
            table.setdefault(package.format(kind), []).append(f"{version}-0ubuntu0.{system.release}.1")
        if server:
            table[f"nvidia-fabricmanager-{branch}"] = [f"{version}-0ubuntu0.{system.release}.1"]
    return {package: tuple(found) for package, found in table.items()}


def _debian_12() -> Table:
    """As it was when security updates had moved all but the open module to a newer version."""
    both = ("535.309.01-0+deb12u1", "535.261.03-1")
    names = ("nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "libnvidia-ml1", "firmware-nvidia-gsp", "nvidia-driver")
    return {
        **dict.fromkeys((*names, "nvidia-alternative", "nvidia-kernel-support"), both),
        "nvidia-open-kernel-dkms": ("535.261.03-1",),
        "nvidia-persistenced": ("535.171.04-1~deb12u1",),
        "nvidia-modprobe": ("535.309.01-0+deb12u1", "535.161.07-1~deb12u1"),
        "nvidia-kernel-common": ("20220217+3~deb12u1",),
        "nvidia-tesla-535-kernel-dkms": ("535.216.03-3~deb12u1",),
        "nvidia-cuda-toolkit": ("11.8.89~11.8.0-5~deb12u1",),
    }


def _debian_13() -> Table:
    names = ("nvidia-kernel-dkms", "nvidia-open-kernel-dkms", "nvidia-smi", "libcuda1", "libnvidia-ml1")
    names += ("firmware-nvidia-gsp", "nvidia-driver", "nvidia-alternative")
    return {
        **dict.fromkeys(names, ("550.163.01-2",)),
        "nvidia-persistenced": ("550.163.01-1",),
        "nvidia-modprobe": ("570.133.07-1",),
        "nvidia-kernel-common": ("20240109+1",),
        "nvidia-cuda-toolkit": ("12.4.131~12.4.1-2",),
    }


def install(*packages: Package, held: bool = False) -> dict[str, Installed]:
    """These packages, installed."""
    return {one.name: Installed(one.name, one.version, "installed", held) for one in packages}


def gpus(*architectures: str | None) -> list[dict[str, t.Any]]:
    """A GPU of each of these architectures."""
    models = {
        "Volta": "Tesla V100",
        "Hopper": "H100",
        "Blackwell": "B200",
        "Maxwell": "Tesla M60",
        "Turing": "Tesla T4",
    }
    return [
        {
            "architecture": architecture,
            "name": models.get(str(architecture), f"Card {architecture}"),
            "pci_bus_id": f"00000000:{number:02X}:00.0",
            "processes": None,
        }
        for number, architecture in enumerate(architectures, start=1)
    ]


def put(root: Path, path: str, content: str | bytes = "") -> Path:
    """Write a file of a made-up host."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return target
