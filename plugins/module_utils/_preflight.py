# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What forbids to install the driver on a host, told before any change: one sentence each."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ._dkms import TREE
from ._driver import libraries, loaded
from ._driver_choice import unknown_architecture, unknown_os
from ._driver_packages import ARCHITECTURES, NAMES, SUPPORTED, Notice, RefusedError, System, in_family, is_family
from ._kernel_headers import has_headers, header_name, header_packages
from ._packages import Package

if t.TYPE_CHECKING:
    from ._driver_packages import Available, Distribution, Gpus, Source
    from ._packages import ErrorKind, Installed, Transaction
    from ._pci import Files

_ENTERPRISE_LINUX = frozenset({"rhel", "rocky", "almalinux", "centos"})
"""What /etc/os-release calls them. Oracle's has another kernel, other distributions have other packages."""
MIB = 1 << 20
GIB = 1 << 30
MODULES = 150 * MIB
"""Bytes that the modules of one kernel take."""
BUILD_TREE = GIB
"""Bytes that DKMS writes while it builds for a kernel, with room to spare."""
EFI_VARIABLES = "/sys/firmware/efi/efivars"

_KERNEL = re.compile(r"linux-(?:image|headers|modules)-")
SIMULATOR_LIBRARIES = "/usr/local/lib/gpu-simulator/"
RUNFILE_UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
_NEEDED_DKMS = re.compile(r"(?<![\w-])dkms \(?>= (?P<version>[^\s,)]+)")
_MODULE = re.compile(r"nvidia\.ko(?:\.\w+)?")
_MODULE_DIRECTORIES = ("kernel/drivers/video", "extra", "updates")
_PPA_VERSION = re.compile(r"~gpu\d")
_OWN_DAEMONS = ("nvidia-persistenced", "nv-fabricmanager", "nvidia-powerd")
_MONITORS = ("nv-hostengine",)
_COMM_LENGTH = 15
_REPOSITORY_ADVICE: t.Mapping[str, str] = {
    "network": "check network, proxy and address, or set nvidia_driver_repository_url to a mirror",
    "not_found": "check nvidia_driver_repository_url, and that it has this system and architecture",
    "signature": "it may have been tampered with, or the key has changed: compare "
    "nvidia_driver_repository_key_fingerprint with what NVIDIA publishes",
    "checksum": "it may have been tampered with, or it has changed: compare nvidia_driver_repository_key_checksum with "
    "what NVIDIA publishes",
}
_KEY_ADVICE: t.Mapping[str, str] = {
    "network": "check network, proxy and address, or set nvidia_driver_repository_key_url to where the key is",
    "not_found": "check nvidia_driver_repository_key_url, or leave it empty for the key beside the packages",
    "signature": "check nvidia_driver_repository_key_url, and compare nvidia_driver_repository_key_fingerprint with "
    "what NVIDIA publishes: the key may have been tampered with, or have changed",
    "checksum": "check nvidia_driver_repository_key_url, and compare nvidia_driver_repository_key_checksum with what "
    "NVIDIA publishes: the key may have been tampered with, or have changed",
}
_KEY_TROUBLE: t.Mapping[str, str] = {
    "network": "can't be reached",
    "not_found": "does not exist",
    "signature": "is not the expected one",
    "checksum": "does not have the expected checksum",
}
_REPOSITORY_TROUBLE: t.Mapping[str, str] = {
    "network": "can't be reached",
    "not_found": "does not exist",
    "signature": "is not signed by the expected key",
    "checksum": "does not have the expected checksum",
}


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
    values = os_release(files)
    name = values.get("PRETTY_NAME") or values.get("NAME") or "This host, which has no /etc/os-release,"
    distribution = _distribution(values)
    version = values.get("VERSION_ID", "")
    release = version if distribution == "ubuntu" else version.split(".", maxsplit=1)[0]
    refusals = []
    if distribution is None or release not in SUPPORTED[distribution]:
        refusals.append(unknown_os(name))
    if machine not in ARCHITECTURES:
        refusals.append(unknown_architecture(machine))
    if refusals or distribution is None:
        raise RefusedError(refusals)
    return System(distribution, release, machine, kernel, container=in_container(files))


def os_release(files: Files) -> dict[str, str]:
    """The values of /etc/os-release; none where there is no such file."""
    text = files.read("/etc/os-release") or files.read("/usr/lib/os-release") or ""
    pairs = (line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def _distribution(values: t.Mapping[str, str]) -> Distribution | None:
    own = values.get("ID", "")
    if own in ("debian", "ubuntu"):
        return t.cast("Distribution", own)
    return "rhel" if own in _ENTERPRISE_LINUX else None


def in_container(files: Files) -> bool:
    """Whether this is a container, which has no kernel of its own."""
    if files.exists("/.dockerenv") or files.exists("/run/.containerenv") or files.read("/run/systemd/container"):
        return True
    return any(one.startswith("container=") for one in (files.read("/proc/1/environ") or "").split("\0"))


def no_root(uid: int) -> list[Notice]:
    """Refuse a user other than root."""
    if uid == 0:
        return []
    return [Notice("no_root", "Only root can install the NVIDIA driver: run the role with become: true")]


def container(system: System, kernel: str) -> list[Notice]:
    """Refuse a container where modules are wanted for the running kernel (``kernel`` is the option)."""
    if not system.container or kernel != "running":
        return []
    return [
        Notice(
            "container",
            f"This host is a container, and the kernel {system.kernel} that runs it belongs to its host: install the "
            "driver there, or set nvidia_driver_kernel to newest or to a release to build an image",
        )
    ]


def secure_boot(files: Files, wanted: str) -> list[Notice]:
    """Refuse Secure Boot as ``files`` show it, unless ``wanted`` says that the key is enrolled."""
    if wanted == "enrolled" or not secure_boot_is_on(files):
        return []
    return [
        Notice(
            "secure_boot",
            "Secure Boot is on, so the kernel refuses a module that DKMS builds unless its key is enrolled: turn "
            "Secure Boot off in the firmware, or enrol the key of DKMS (mokutil --import, then a reboot) and set "
            "nvidia_driver_secure_boot to enrolled",
        )
    ]


def secure_boot_is_on(files: Files) -> bool:
    """Whether the firmware says so: four bytes of attributes, then a byte 1."""
    for name in files.names(EFI_VARIABLES):
        if name.startswith("SecureBoot-"):
            try:
                content = Path(files.path(f"{EFI_VARIABLES}/{name}")).read_bytes()
            except OSError:
                return False
            return len(content) == 5 and content[-1] == 1
    return False


def headers(
    system: System,
    kernels: t.Sequence[str],
    installed: t.Mapping[str, Installed],
    available: Available,
    files: Files,
) -> list[Notice]:
    """Refuse kernels whose headers are neither there nor available."""
    return [
        Notice(
            "headers_missing",
            f"The headers of kernel {kernel}, for which the module is to be built, are neither installed nor offered "
            f"by the package sources (package {header_name(system, kernel)}): boot a kernel whose headers are "
            "offered (in an image: name it in nvidia_driver_kernel), or install them yourself",
        )
        for kernel in kernels
        if not has_headers(system, kernel, installed, files)
        and not header_packages(system, [kernel], {}, available, files)
    ]


def dkms_missing(system: System, installed: t.Mapping[str, Installed], available: Available) -> list[Notice]:
    """Refuse an Enterprise Linux whose sources have no DKMS."""
    if system.distribution != "rhel" or "dkms" in installed or available.get("dkms"):
        return []
    return [
        Notice(
            "dkms_missing",
            f"{NAMES['rhel']} {system.release} needs the package dkms, which no enabled repository of this host "
            "offers: enable EPEL",
        )
    ]


def dkms_too_old(
    system: System, installed: t.Mapping[str, Installed], available: Available, reasons: t.Sequence[str]
) -> list[Notice]:
    """Refuse a host that can't get the DKMS which the driver needs, where that is the reason for each offer."""
    needed = [match["version"] if (match := _NEEDED_DKMS.search(reason)) else None for reason in reasons]
    if not needed or None in needed:
        return []
    old, offered = installed.get("dkms"), available.get("dkms")
    enterprise = system.distribution == "rhel"
    if old is not None and old.held:
        state = f"dkms {old.version} is held"
        advice = f"release it ({'dnf versionlock delete' if enterprise else 'apt-mark unhold'} dkms)"
    else:
        state = f"the package sources of this host offer {f'only {offered[0]}' if offered else 'none'}"
        if old is not None:
            state = f"dkms {old.version} is installed and {state}"
        source = "EPEL, or the mirror or snapshot of it that this host uses," if enterprise else "them"
        advice = f"bring {source} up to date, and let nothing hold or exclude dkms"
    return [
        Notice(
            "dkms_too_old",
            f"The driver needs dkms {needed[0]} or newer, but {state}: {advice}, or choose an older "
            "nvidia_driver_branch or nvidia_driver_version that needs less",
        )
    ]


def broken_of_others(installed: t.Mapping[str, Installed], ours: t.Collection[str]) -> list[Installed]:
    """The packages that are not installed completely, and that the driver has no part in.

    ``ours`` are those that a transaction of ours touches. Where a driver is installed, its module may be what keeps a
    kernel from being configured. Triggers that wait are run by any transaction.
    """
    has_driver = any(one.present and is_family(name) for name, one in installed.items())
    return [
        one
        for name, one in installed.items()
        if one.broken
        and one.state != "triggers"
        and name not in ours
        and not is_family(name)
        and not (has_driver and _KERNEL.match(name))
    ]


def broken_packages(broken: t.Sequence[Installed]) -> list[Notice]:
    """Refuse to begin beside packages that no transaction of the driver makes whole."""
    if len(broken) == 1:
        (one,) = broken
        command = "apt-get install --reinstall" if one.state == "half-installed" else "dpkg --configure"
        message = f"Package {one.name} is {one.state}: run {command} {one.name}, or remove it"
    else:
        names = [f"{one.name} ({one.state})" for one in sorted(broken, key=lambda one: one.name)]
        message = (
            f"Packages {_some(names)} are not installed completely: run dpkg --configure -a and apt-get install "
            "--reinstall for what that leaves, or remove them"
        )
    return [Notice("broken_package", message)] if broken else []


def disk_needs(system: System, transaction: Transaction, kernels: int, initramfs_bytes: int | None) -> tuple[Need, ...]:
    """What a transaction writes; ``initramfs_bytes`` is the size of the largest one in /boot, None where none is.

    Without a transaction nothing is written. The modules of a kernel are taken for MODULES bytes, the tree in which
    DKMS builds them, one kernel at a time, for BUILD_TREE bytes.
    """
    if transaction.empty:
        return ()
    needs = [
        Need("/usr", max(transaction.disk_bytes or 0, 0) + kernels * MODULES, "the driver's files and modules"),
    ]
    if transaction.download_bytes:
        cache = "/var/cache/dnf" if system.distribution == "rhel" else "/var/cache/apt/archives"
        needs.append(Need(cache, transaction.download_bytes, "the downloaded packages"))
    needs.append(Need("/var", BUILD_TREE, "the build of the module"))
    if initramfs_bytes is not None:
        needs.append(Need("/boot", initramfs_bytes + MIB, "the new initramfs, written beside the old one"))
    return tuple(needs)


def initramfs_size(files: Files, size: t.Callable[[str], int]) -> int | None:
    """Bytes of the largest initramfs in /boot; None where there is none. ``size`` gives those of a file."""
    paths = [f"/boot/{name}" for name in files.names("/boot") if re.match(r"init(?:rd\.img|ramfs)-", name)]
    return max((size(files.path(path)) for path in paths), default=None)


def places(files: Files, paths: t.Mapping[str, str], writable: t.Callable[[str], bool]) -> list[Notice]:
    """Refuse directories that can't be made or written, given with what is to be in them."""
    refusals = []
    for path, purpose in paths.items():
        there = next(str(one) for one in (Path(path), *Path(path).parents) if files.exists(str(one)) or str(one) == "/")
        if not Path(files.path(there)).is_dir():
            refusals.append(Notice("place", f"{there} is no directory, where {purpose} is to be: move it away"))
        elif not writable(files.path(there)):
            refusals.append(
                Notice(
                    "place", f"{there} can't be written, where {purpose} is to be: mount its file system for writing"
                )
            )
    return refusals


def disk(needs: t.Sequence[Need], space: t.Callable[[str], Space]) -> list[Notice]:
    """Refuse file systems that have too little room. Needs on the same one are added up."""
    by_device: dict[int, list[Need]] = {}
    free: dict[int, int] = {}
    for need in needs:
        found = space(need.path)
        by_device.setdefault(found.device, []).append(need)
        free[found.device] = found.free_bytes
    refusals = []
    for device, here in by_device.items():
        wanted = sum(need.size for need in here)
        if wanted > free[device]:
            paths = " and ".join(need.path for need in here)
            purposes = ", ".join(f"{need.purpose} {_mib(need.size)}" for need in here)
            refusals.append(
                Notice(
                    "disk",
                    f"The disk of {paths} has {_mib(free[device])} free, and {_mib(wanted)} are needed ({purposes}): "
                    "make room there",
                )
            )
    return refusals


def _mib(size: int) -> str:
    return f"{-(-size // MIB)} MiB"


def runfile(
    files: Files,
    machine: Files | None,
    kernels: t.Sequence[str],
    installed: t.Mapping[str, Installed],
    owner: t.Callable[[str], str | None],
) -> list[Notice]:
    """Refuse a driver that no package brought, as NVIDIA's .run installer and images of machines leave it.

    ``owner`` names the package that a file belongs to. What is loaded is seen in ``machine``, and does not matter
    where that is None.
    """
    found = next((path for path in _driver_files(files, kernels) if owner(path) is None), None)
    where, advice = f"{found} belongs to no package", "run nvidia-uninstall first"
    if found is None:
        version, _flavour = loaded(machine) if machine else (None, None)
        packages = (one for one in installed.values() if one.present and in_family(one.name, one.version))
        if version is None or next(packages, None) is not None:
            return []
        where = f"{version} is loaded, and no package of a driver is installed"
        advice = "remove it and reboot (reboot only, if its packages have just been removed)"
    return [
        Notice(
            "foreign_runfile",
            f"A driver that no package brought, from NVIDIA's .run installer or the machine's image, is on this host "
            f"({where}), and would get mixed with the packages: {advice}, or set nvidia_driver_source to preinstalled "
            "to keep it",
        )
    ]


def _driver_files(files: Files, kernels: t.Sequence[str]) -> t.Iterator[str]:
    """The files that tell a driver. A module that DKMS has built belongs to no package, and has its source there."""
    yield from (path for path in RUNFILE_UNINSTALLERS if files.exists(path))
    for path, _version in libraries(files):
        if files.target(path) is None and not path.startswith(SIMULATOR_LIBRARIES):
            yield path
    if any(name.startswith("nvidia") for name in files.names(TREE)):
        return
    for kernel in kernels:
        for directory in _MODULE_DIRECTORIES:
            for name in files.names(f"/lib/modules/{kernel}/{directory}"):
                if _MODULE.fullmatch(name):
                    yield f"/lib/modules/{kernel}/{directory}/{name}"


def foreign_packages(
    source: Source,
    installed: t.Mapping[str, Installed],
    available: Available,
    origin: t.Callable[[Package], str | None],
    ours: t.Collection[str] = (),
) -> list[Notice]:
    """Refuse packages of the driver that this source does not have, with where they come from, if that is known.

    A version that nobody offers any more is taken for this source's where it knows the name. ``ours`` are the names of
    packages that the role has installed itself, from whatever source.
    """
    found: dict[str, list[str]] = {}
    for name, package in sorted(installed.items()):
        if not package.present or name in ours or not in_family(name, package.version):
            continue
        versions = available.get(name, ())
        if package.version in versions:
            continue
        address = origin(Package(name, package.version))
        if address is None and _PPA_VERSION.search(package.version):
            address = "the PPA graphics-drivers"
        if address is not None or not versions:
            found.setdefault(address or "", []).append(f"{name} {package.version}")
    return [
        Notice(
            "foreign_packages",
            f"Packages of another driver are installed{f', from {address}' if address else ''}, that are not of "
            f"nvidia_driver_source {source}: {_some(packages)}: remove them first, choose the source they are from, or "
            "set nvidia_driver_source to preinstalled to keep them",
        )
        for address, packages in found.items()
    ]


def _some(words: t.Sequence[str], most: int = 5) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def gpu_processes(files: Files, *, monitors: bool = False) -> tuple[Process, ...]:
    """The processes that have a device node of the driver open, its own daemons left out.

    So are those that only watch the GPUs, unless ``monitors`` are asked for.
    """
    daemons = {name[:_COMM_LENGTH] for name in (*_OWN_DAEMONS, *(() if monitors else _MONITORS))}
    found = []
    for pid in files.names("/proc"):
        if not pid.isdigit():
            continue
        targets = (files.target(f"/proc/{pid}/fd/{fd}") for fd in files.names(f"/proc/{pid}/fd"))
        devices = sorted({target for target in targets if target and target.startswith("/dev/nvidia")})
        if not devices:
            continue
        name = files.read(f"/proc/{pid}/comm") or "unknown"
        if name not in daemons:
            found.append(Process(int(pid), name, _most_telling(devices)))
    return tuple(sorted(found, key=lambda process: process.pid))


def _most_telling(devices: t.Sequence[str]) -> str:
    """The node of a GPU rather than one that all of them share."""
    return next((device for device in devices if re.fullmatch(r"/dev/nvidia\d+", device)), devices[0])


def users(found: t.Sequence[Process]) -> str:
    """The processes as a sentence names them; of many, the first ones."""
    return _some([f"{process.name} (process {process.pid}, {process.device})" for process in found])


def processes(found: t.Sequence[Process], gpus: Gpus) -> list[Notice]:
    """Refuse to exchange a driver that is in use."""
    using = users(found) or _some(
        [
            f"{gpu['processes']} {'process' if gpu['processes'] == 1 else 'processes'} on GPU "
            f"{gpu.get('pci_bus_id') or gpu.get('name')}"
            for gpu in gpus
            if gpu.get("processes")
        ]
    )
    if not using:
        return []
    return [
        Notice(
            "processes",
            f"The driver is in use by {using}: end them, or set nvidia_driver_ignore_processes to true to "
            "exchange its files beneath them and reboot later",
        )
    ]


def key_fingerprint_missing(system: System, url: str) -> Notice:
    """The refusal of a repository whose key is nowhere published with a fingerprint."""
    return Notice(
        "key_fingerprint_missing",
        f"The fingerprint of the key {url} for {system} is not known to this collection: look it up and set "
        "nvidia_driver_repository_key_fingerprint",
    )


_ARCHIVE_ADVICE: t.Mapping[str, str] = {
    "network": "check network, proxy and the host's package sources, or set nvidia_driver_distro_url to a mirror",
    "not_found": "check nvidia_driver_distro_url and the host's package sources",
}


def repository(kind: ErrorKind, url: str, reason: str, source: Source = "nvidia", key_url: str | None = None) -> Notice:
    """The refusal of a repository or key that does not answer as it should; ``key_url`` is where the key is."""
    if url == key_url:
        trouble, advice = _KEY_TROUBLE.get(kind, "can't be used"), _KEY_ADVICE.get(kind, "look at the reason")
        return Notice("repository", f"The key {url} {trouble} ({reason}): {advice}")
    trouble = _REPOSITORY_TROUBLE.get(kind, "can't be used")
    advice = (_REPOSITORY_ADVICE if source == "nvidia" else _ARCHIVE_ADVICE).get(kind, "look at the reason")
    return Notice("repository", f"The repository {url} {trouble} ({reason}): {advice}")
