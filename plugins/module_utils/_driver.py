# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA driver: what is loaded, what is installed, what answers, and why it does not."""

from __future__ import annotations

import re
import struct
import typing as t
from dataclasses import dataclass
from pathlib import Path

from . import _nvml
from ._dkms import TREE
from ._version import branch, cuda_version, newest, same_version

if t.TYPE_CHECKING:
    from ._pci import Files

State = t.Literal["ok", "absent", "not_loaded", "mismatch", "unusable"]
KernelModule = t.Literal["open", "proprietary"]

Run = t.Callable[[t.Sequence[str]], str]
"""Runs a command and returns its output, which is empty when it fails or is missing."""


def no_command(_command: t.Sequence[str]) -> str:
    """Run nothing: what only a command can tell stays unknown."""
    return ""


PROC_VERSION = "/proc/driver/nvidia/version"
MODULE_VERSION = "/sys/module/nvidia/version"
LIBRARY_DIRS = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib")
LIBRARY_CONF = "/etc/ld.so.conf.d"

_VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")
_LIBRARY = re.compile(r"libnvidia-ml\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")


@dataclass(frozen=True)
class Installed:
    """What files say of the driver; a value that no file gives is None."""

    loaded_version: str | None
    kernel_module: KernelModule | None
    installed_version: str | None
    library_version: str | None


@dataclass(frozen=True)
class Driver:
    """The driver as ``ansible_facts.gpu.driver`` describes it."""

    state: State
    version: str | None
    loaded_version: str | None
    library_version: str | None
    installed_version: str | None
    branch: str | None
    kernel_module: KernelModule | None
    cuda_version: str | None
    reason: str | None


def loaded(files: Files) -> tuple[str | None, KernelModule | None]:
    """Version and flavour of the loaded kernel module; None where none is loaded."""
    text = files.read(PROC_VERSION)
    first = text.splitlines()[0] if text else ""
    match = _VERSION.search(first)
    if match is None:
        return files.read(MODULE_VERSION) or None, None
    return match.group(1), "open" if "Open Kernel Module" in first else "proprietary"


def library_version(files: Files) -> str | None:
    """The newest version that a file libnvidia-ml.so.VERSION in a library directory carries."""
    return newest(version for _path, version in libraries(files))


def libraries(files: Files) -> tuple[tuple[str, str], ...]:
    """Path and version of every file libnvidia-ml.so.VERSION in a library directory."""
    directories = dict.fromkeys((*LIBRARY_DIRS, *_configured_directories(files)))
    found = (
        (f"{directory}/{name}", _LIBRARY.match(name)) for directory in directories for name in files.names(directory)
    )
    return tuple((path, match.group(1)) for path, match in found if match)


def _configured_directories(files: Files) -> t.Iterator[str]:
    for name in files.names(LIBRARY_CONF):
        for line in (files.read(f"{LIBRARY_CONF}/{name}") or "").splitlines():
            if line.strip().startswith("/"):
                yield line.strip().rstrip("/")


def module_version(files: Files, release: str, machine: str, run: Run) -> str | None:
    """Version of the kernel module ``nvidia`` on disk for a kernel release; None when there is none.

    DKMS' record or the module file's own header is read; only a compressed module costs a modinfo.
    """
    for name in files.names(TREE):
        if name.startswith("nvidia"):
            target = files.target(f"{TREE}/{name}/kernel-{release}-{machine}")
            match = _VERSION.search(target or "")
            if match:
                return match.group(1)
    path = _module_path(files, release)
    if path is None:
        return None
    return _version_in_elf(path) if path.endswith(".ko") else _modinfo(path, run)


def _module_path(files: Files, release: str) -> str | None:
    directory = f"/lib/modules/{release}"
    listing = files.read(f"{directory}/modules.dep") or ""
    match = re.search(r"^(\S*/nvidia(?:-current)?\.ko(?:\.\w+)?):", listing, re.MULTILINE)
    return files.path(f"{directory}/{match.group(1)}") if match else None


def _version_in_elf(path: str) -> str | None:
    """The version in section .modinfo of an uncompressed module: some kB are read of its tens of MB."""
    try:
        with Path(path).open("rb") as file:
            header = file.read(64)
            if header[:5] != b"\x7fELF\x02":
                return None
            (table,) = struct.unpack_from("<Q", header, 0x28)
            size, count, names_index = struct.unpack_from("<HHH", header, 0x3A)
            file.seek(table)
            sections = file.read(size * count)

            def section(index: int) -> tuple[int, bytes]:
                name, _kind, _flags, _address, offset, length = struct.unpack_from("<IIQQQQ", sections, index * size)
                file.seek(offset)
                return name, file.read(length)

            _name, names = section(names_index)
            wanted = names.find(b"\0.modinfo\0") + 1
            for index in range(count):
                (name,) = struct.unpack_from("<I", sections, index * size)
                if wanted and name == wanted:
                    match = re.search(rb"(?:^|\0)version=([\d.]+)\0", section(index)[1])
                    return match.group(1).decode() if match else None
    except (OSError, struct.error):
        return None
    return None


def _modinfo(path: str, run: Run) -> str | None:
    match = _VERSION.fullmatch(run(["modinfo", "-F", "version", path]).strip())
    return match.group(1) if match else None


def installed(files: Files, release: str, machine: str, run: Run) -> Installed:
    """Everything that files say of the driver, for this kernel release and machine type."""
    loaded_version, kernel_module = loaded(files)
    return Installed(
        loaded_version=loaded_version,
        kernel_module=kernel_module,
        installed_version=module_version(files, release, machine, run),
        library_version=library_version(files),
    )


def judge(files: Installed, report: _nvml.Report, release: str, user: str) -> Driver:
    """The driver's state, from what files say and what NVML answered."""
    library = report.library_version or files.library_version
    state, reason = _state(files, library, report, release, user)
    version = report.driver_version or files.loaded_version or files.installed_version or library
    return Driver(
        state=state,
        version=version,
        loaded_version=files.loaded_version,
        library_version=library,
        installed_version=files.installed_version,
        branch=branch(version),
        kernel_module=files.kernel_module,
        cuda_version=None if report.cuda_version is None else cuda_version(report.cuda_version),
        reason=reason,
    )


def _state(
    files: Installed, library: str | None, report: _nvml.Report, release: str, user: str
) -> tuple[State, str | None]:
    if report.failure is not None:
        return "unusable", report.failure
    if report.answered:
        return "ok", None
    code = report.init_error
    if code == _nvml.MISMATCH or (code is None and same_version(files.loaded_version, library) is False):
        return "mismatch", (
            f"The loaded kernel module is {files.loaded_version or 'of another version'}, "
            f"the library is {library or 'of another version'}: reboot, or unload and load the nvidia modules"
        )
    if files.loaded_version is None or code == _nvml.DRIVER_NOT_LOADED:
        return _not_loaded(files, library, release)
    return "unusable", _unusable(files.loaded_version, report, user)


def _unusable(loaded_version: str, report: _nvml.Report, user: str) -> str:
    code = report.init_error
    if code == _nvml.NO_PERMISSION:
        return (
            f"User {user} may not use the driver: NVML error 4 (no permission); run the task with become: true, "
            "or look at the owner and mode of /dev/nvidiactl and /dev/nvidia0"
        )
    if code == _nvml.LIBRARY_NOT_FOUND:
        return (
            f"The kernel module {loaded_version} is loaded, but libnvidia-ml.so.1 can't be loaded: install the "
            "driver's libraries in the same version (package nvidia-utils, libnvidia-ml1 or nvidia-driver-cuda-libs)"
        )
    if code is not None:
        return f"NVML did not start: error {_nvml.describe(code)}; look at the kernel log for NVRM messages"
    if report.missing_binding is not None:
        return report.missing_binding
    return "NVML started, but did not count its GPUs; look at the kernel log for NVRM messages"


def _not_loaded(files: Installed, library: str | None, release: str) -> tuple[State, str]:
    if files.loaded_version is not None:
        return "not_loaded", (
            f"NVML says that the driver is not loaded, though the kernel module {files.loaded_version} is: "
            "device nodes are missing or the module is being loaded; run nvidia-modprobe, or reboot"
        )
    if files.installed_version is not None:
        return "not_loaded", (
            f"The kernel module {files.installed_version} is installed for kernel {release}, but not loaded: "
            "run modprobe nvidia and look at its message and the kernel log (Secure Boot refuses an unsigned module)"
        )
    if library is not None:
        return "not_loaded", (
            f"The libraries of driver {library} are installed, but there is no kernel module nvidia for the running "
            f"kernel {release}: install its headers and rebuild the module, or boot the kernel it was built for"
        )
    return "absent", "No NVIDIA driver is installed: there is no kernel module, and no library libnvidia-ml.so.1"
