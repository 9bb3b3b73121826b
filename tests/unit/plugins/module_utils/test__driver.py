# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each state of the driver is recognized, and its sentence says what to do."""

from __future__ import annotations

import struct
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver, _nvml
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import add_library, load_module, no_command

RELEASE = "6.12.118-amd64"


def files(root: Path) -> HostFiles:
    return HostFiles(str(root))


@pytest.mark.parametrize(
    ("first_line", "version", "flavour"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder)",
            "580.159.04",
            "open",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Wed Jan  1 00:00:00 UTC 2026",
            "535.309.01",
            "proprietary",
        ),
        (
            "NVRM version: NVIDIA UNIX aarch64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024",
            "470.256.02",
            "proprietary",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.45  Release Build", "595.45", "open"),
    ],
)
def test_loaded(tmp_path: Path, first_line: str, version: str, flavour: str) -> None:
    load_module(tmp_path)
    (tmp_path / "proc/driver/nvidia/version").write_text(f"{first_line}\nGCC version:  gcc version 12.2.0\n")
    assert _driver.loaded(files(tmp_path)) == (version, flavour)


def test_loaded_by_sysfs_only(tmp_path: Path) -> None:
    load_module(tmp_path)
    (tmp_path / "proc/driver/nvidia/version").unlink()
    assert _driver.loaded(files(tmp_path)) == ("580.159.04", None)


def test_nothing_loaded(tmp_path: Path) -> None:
    assert _driver.loaded(files(tmp_path)) == (None, None)


def test_library_version_is_the_newest_file(tmp_path: Path) -> None:
    assert _driver.library_version(files(tmp_path)) is None
    add_library(tmp_path, "1")
    assert _driver.library_version(files(tmp_path)) is None
    add_library(tmp_path, "580.95.05")
    add_library(tmp_path, "580.159.04", "usr/lib64")
    assert _driver.library_version(files(tmp_path)) == "580.159.04"


def test_library_in_a_configured_directory(tmp_path: Path) -> None:
    add_library(tmp_path, "570.12", "opt/driver/lib")
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d/driver.conf").write_text("# driver\n/opt/driver/lib/\n")
    assert _driver.library_version(files(tmp_path)) == "570.12"


@pytest.mark.parametrize("module", ["nvidia", "nvidia-current"])
def test_module_version_by_dkms(tmp_path: Path, module: str) -> None:
    directory = tmp_path / "var/lib/dkms" / module
    directory.mkdir(parents=True)
    (directory / f"kernel-{RELEASE}-x86_64").symlink_to(f"580.159.04/{RELEASE}/x86_64")
    (directory / "kernel-6.1.0-50-amd64-x86_64").symlink_to("535.309.01/6.1.0-50-amd64/x86_64")
    assert _driver.module_version(files(tmp_path), RELEASE, "x86_64", no_command) == "580.159.04"
    assert _driver.module_version(files(tmp_path), "6.1.0-50-amd64", "x86_64", no_command) == "535.309.01"
    assert _driver.module_version(files(tmp_path), "6.1.0-99-amd64", "x86_64", no_command) is None


def elf(modinfo: bytes) -> bytes:
    """A minimal 64-bit ELF file with a section .modinfo."""
    names = b"\0.modinfo\0.shstrtab\0"
    body = modinfo + names
    table = 64 + len(body)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    )

    def section(name: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)

    sections = bytes(64) + section(1, 64, len(modinfo)) + section(10, 64 + len(modinfo), len(names))
    return header + body + sections


def install_module(root: Path, name: str, content: bytes) -> None:
    directory = root / "lib/modules" / RELEASE
    (directory / "updates").mkdir(parents=True)
    (directory / "updates" / name).write_bytes(content)
    (directory / "modules.dep").write_text(
        f"kernel/a/nvidiafb.ko.xz:\nupdates/nvidia-uvm.ko: updates/{name}\nupdates/{name}:\n"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (elf(b"license=Dual MIT/GPL\0version=580.159.04\0srcversion=ABC\0"), "580.159.04"),
        (elf(b"version=550.163.01\0"), "550.163.01"),
        (elf(b"license=NVIDIA\0"), None),
        (b"\x7fELF\x02 cut short", None),
        (b"no module at all", None),
        (b"", None),
    ],
)
def test_module_version_by_its_header(tmp_path: Path, content: bytes, expected: str | None) -> None:
    install_module(tmp_path, "nvidia.ko", content)
    assert _driver.module_version(files(tmp_path), RELEASE, "x86_64", no_command) == expected


@pytest.mark.parametrize(
    ("output", "expected"), [("580.95.05\n", "580.95.05"), ("", None), ("modinfo: ERROR: not found\n", None)]
)
def test_module_version_of_a_compressed_module(tmp_path: Path, output: str, expected: str | None) -> None:
    install_module(tmp_path, "nvidia.ko.zst", b"compressed")
    commands: list[t.Sequence[str]] = []

    def run(command: t.Sequence[str]) -> str:
        commands.append(command)
        return output

    assert _driver.module_version(files(tmp_path), RELEASE, "x86_64", run) == expected
    assert commands == [["modinfo", "-F", "version", f"{tmp_path}/lib/modules/{RELEASE}/updates/nvidia.ko.zst"]]


def installed(**values: t.Any) -> _driver.Installed:
    return _driver.Installed(
        **{
            "loaded_version": "580.159.04",
            "kernel_module": "open",
            "installed_version": "580.159.04",
            "library_version": "580.159.04",
            **values,
        }
    )


NOTHING: dict[str, t.Any] = dict.fromkeys(("loaded_version", "kernel_module", "installed_version", "library_version"))
NO_BINDING = _nvml.Report(missing_binding="The Python binding of NVML was not found in x")


@pytest.mark.parametrize(
    ("on_disk", "report", "state", "sentence"),
    [
        (installed(), _nvml.Report(device_count=1, library_version="580.159.04"), "ok", None),
        (installed(**NOTHING), _nvml.Report(init_error=12), "absent", "No NVIDIA driver is installed"),
        (installed(**NOTHING), NO_BINDING, "absent", "No NVIDIA driver is installed"),
        (
            installed(loaded_version=None, kernel_module=None),
            _nvml.Report(init_error=9),
            "not_loaded",
            f"The kernel module 580.159.04 is installed for kernel {RELEASE}, but not loaded: run modprobe nvidia",
        ),
        (installed(loaded_version=None, kernel_module=None), NO_BINDING, "not_loaded", "run modprobe nvidia"),
        (
            installed(loaded_version=None, kernel_module=None, installed_version=None),
            _nvml.Report(init_error=9, library_version="580.159.04"),
            "not_loaded",
            f"there is no kernel module nvidia for the running kernel {RELEASE}",
        ),
        (installed(), _nvml.Report(init_error=9), "not_loaded", "though the kernel module 580.159.04 is"),
        (
            installed(loaded_version="580.95.05"),
            _nvml.Report(init_error=18, library_version="580.159.04"),
            "mismatch",
            "The loaded kernel module is 580.95.05, the library is 580.159.04: reboot",
        ),
        (installed(library_version="580.95.05"), NO_BINDING, "mismatch", "the library is 580.95.05: reboot"),
        (installed(), _nvml.Report(init_error=4), "unusable", "User cuda may not use the driver"),
        (installed(library_version=None), _nvml.Report(init_error=12), "unusable", "libnvidia-ml.so.1 can't be loaded"),
        (installed(), _nvml.Report(init_error=999), "unusable", "error 999 (unknown error)"),
        (installed(), NO_BINDING, "unusable", "The Python binding of NVML was not found"),
        (installed(), _nvml.Report(failure="NVML did not answer within 30 s"), "unusable", "NVML did not answer"),
        (installed(), _nvml.Report(library_version="580.159.04", finished=True), "unusable", "did not count its GPUs"),
        (installed(), _nvml.Report(device_count=2, failure="hangs"), "unusable", "hangs"),
    ],
)
def test_state(on_disk: _driver.Installed, report: _nvml.Report, state: str, sentence: str | None) -> None:
    driver = _driver.judge(on_disk, report, RELEASE, "cuda")
    assert driver.state == state
    if sentence is None:
        assert driver.reason is None
    else:
        assert driver.reason is not None
        assert sentence in driver.reason


def test_versions() -> None:
    report = _nvml.Report(device_count=1, library_version="580.159.04", driver_version="580.159.04", cuda_version=13000)
    assert _driver.judge(installed(installed_version="595.10"), report, RELEASE, "root") == _driver.Driver(
        state="ok",
        version="580.159.04",
        loaded_version="580.159.04",
        library_version="580.159.04",
        installed_version="595.10",
        branch="580",
        kernel_module="open",
        cuda_version="13.0",
        reason=None,
    )


def test_version_of_a_driver_that_is_not_loaded() -> None:
    on_disk = installed(loaded_version=None, kernel_module=None, library_version=None)
    driver = _driver.judge(on_disk, _nvml.Report(init_error=12), RELEASE, "root")
    assert (driver.version, driver.branch, driver.cuda_version) == ("580.159.04", "580", None)
