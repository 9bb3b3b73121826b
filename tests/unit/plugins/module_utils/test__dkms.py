# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What DKMS says is understood in the words of all its versions, and a failed build is told in the compiler's words."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _dkms
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Result
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles

FIXTURES = Path(__file__).parents[3] / "fixtures" / "dkms"
KERNEL = "6.12.118+deb13-amd64"
GPL_ONLY = 'ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol "rcu"'
NO_FILE = "fatal error: linux/y.h: No such file or directory"
NO_SPACE = "x86_64-linux-gnu-objcopy: st1: No space left on device"
EL_HEADERS = "/usr/src/kernels/5.14.0-503.el9.x86_64"
MAKE = "/usr/src/linux-headers-6.12.118+deb13-common"
BUILD = "/var/lib/dkms/nvidia/580.1/build"


def build(module: str, version: str, kernel: str | None, state: str, machine: str = "x86_64") -> _dkms.Build:
    return _dkms.Build(module, version, kernel, machine if kernel else None, state)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "nvidia, 470.256.02, 5.4.0-200-generic, x86_64: installed",
            build("nvidia", "470.256.02", "5.4.0-200-generic", "installed"),
        ),
        ("nvidia, 470.256.02: added", build("nvidia", "470.256.02", None, "added")),
        (
            "nvidia-current/535.309.01, 6.1.0-56-amd64, x86_64: installed",
            build("nvidia-current", "535.309.01", "6.1.0-56-amd64", "installed"),
        ),
        ("nvidia-current-open/550.163.01: added", build("nvidia-current-open", "550.163.01", None, "added")),
        (
            "nvidia/580.159.04, 6.8.0-1-generic, aarch64: built",
            build("nvidia", "580.159.04", "6.8.0-1-generic", "built", machine="aarch64"),
        ),
        (
            "nvidia/580.159.04, 6.8.0, x86_64: installed (WARNING! Diff between built and installed module!)",
            build("nvidia", "580.159.04", "6.8.0", "installed"),
        ),
        (
            "nvidia-open/580.159.04, 5.14.0-503.el9.x86_64, x86_64: installed (Original modules exist)",
            build("nvidia-open", "580.159.04", "5.14.0-503.el9.x86_64", "installed"),
        ),
        ("nvidia/580.159.04: broken", build("nvidia", "580.159.04", None, "broken")),
    ],
)
def test_a_line_of_dkms_status(line: str, expected: _dkms.Build) -> None:
    assert _dkms.parse_status(line + "\n") == (expected,)


def test_other_lines_are_skipped() -> None:
    text = "Error! nvidia/580.1: Missing the module source directory\nDeprecated feature: X\n\nnvidia/580.1: added\n"
    assert [one.state for one in _dkms.parse_status(text)] == ["added"]


def test_only_a_build_for_a_kernel_is_installed() -> None:
    assert build("nvidia", "1", "6.1", "installed").is_installed
    assert not build("nvidia", "1", "6.1", "built").is_installed
    assert not build("nvidia", "1", None, "added").is_installed


def test_the_drivers_modules_are_told_from_others() -> None:
    names = [
        "nvidia",
        "nvidia-open",
        "nvidia-current-open",
        "nvidia-srv",
        "nvidia-fs",
        "nvidia-peermem",
        "zfs",
        "xnvidia",
    ]
    builds = [build(name, "580.1", "6.1", "installed") for name in names]
    assert [one.module for one in _dkms.of_driver(builds)] == names[:4]
    assert _dkms.of_driver(builds, "580.2") == ()


def test_the_failing_module_of_debian_13() -> None:
    text = (FIXTURES / "debian13-nvidia-open-550.make.log").read_text(encoding="utf-8")
    assert _dkms.first_error(text) == "nvidia/nv-pci.c:237: error: too few arguments to function 'pci_resize_resource'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{BUILD}/nvidia/a.c:5:9: error: bad \u2018x\u2019\n", "nvidia/a.c:5: error: bad 'x'"),
        (f"{BUILD}/nvidia/a.c:5: {NO_FILE}\n", f"nvidia/a.c:5: {NO_FILE}"),
        (f"{MAKE}/include/linux/pci.h:7:1: error: expected ';'\n", "include/linux/pci.h:7: error: expected ';'"),
        (f"{EL_HEADERS}/include/linux/pci.h:7:1: error: e\n", "include/linux/pci.h:7: error: e"),
        (f"{BUILD}/conftest1/conftest.c:1:1: error: not this\n{BUILD}/b.c:2:1: error: this\n", "b.c:2: error: this"),
        ("CONFTEST: dma_fence_set_error\ncc -Werror=undef -c /x/error.c\n", None),
        (GPL_ONLY + "\n", GPL_ONLY),
        (NO_SPACE + "\nmake: *** [a] Error 1\n", NO_SPACE),
        ("/bin/sh: 1: gcc-12: not found\nmake[1]: *** [Makefile:2: all] Error 127\n", "sh: 1: gcc-12: not found"),
        (f"make[1]: *** [{MAKE}/Makefile:2008: {BUILD}] Error 2\n", f"make: [Makefile:2008: {BUILD}] Error 2"),
        ("all went well\n", None),
        ("", None),
    ],
)
def test_the_first_error(text: str, expected: str | None) -> None:
    assert _dkms.first_error(text) == expected


OUTPUT = f"""Setting up nvidia-open-kernel-dkms (550.163.01-2) ...
Building module(s)....(bad exit status: 2)
Error! Bad return status for module build on kernel: {KERNEL} (x86_64)
Consult /var/lib/dkms/nvidia-current-open/550.163.01/build/make.log for more information.
dpkg: error processing package nvidia-open-kernel-dkms (--configure):
Error! Bad return status for module build on kernel: 6.1.0 (x86_64)
Consult /var/lib/dkms/nvidia-current-open/550.163.01/build/make.log for more information.
"""


def test_failed_builds_in_the_output_of_a_package_manager() -> None:
    log = "/var/lib/dkms/nvidia-current-open/550.163.01/build/make.log"
    assert _dkms.failures_in(OUTPUT) == tuple(
        _dkms.Failure("nvidia-current-open", "550.163.01", kernel, None, log) for kernel in (KERNEL, "6.1.0")
    )
    assert _dkms.failures_in("E: something else") == ()


class Ran:
    """Commands and what they answer."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.commands: list[list[str]] = []

    def run(self, command: t.Sequence[str], _env: t.Mapping[str, str]) -> Result:
        self.commands.append(list(command))
        return self.result


def make_log(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")


def test_logs_are_where_dkms_leaves_them(tmp_path: Path) -> None:
    files = HostFiles(str(tmp_path))
    assert _dkms.log_of(files, "nvidia", "580.1", KERNEL, "x86_64") is None
    done = f"/var/lib/dkms/nvidia/580.1/{KERNEL}/x86_64/log/make.log"
    make_log(tmp_path, done, "done")
    assert _dkms.log_of(files, "nvidia", "580.1", KERNEL, "x86_64") == done
    failed = "/var/lib/dkms/nvidia/580.1/build/make.log"
    make_log(tmp_path, failed, f"DKMS make.log for nvidia-580.1 for kernel {KERNEL} (x86_64)\n")
    assert _dkms.log_of(files, "nvidia", "580.1", KERNEL, "x86_64") == failed
    assert _dkms.log_of(files, "nvidia", "580.1", "6.1.0", "x86_64") is None, "it is another kernel's"


def test_dkms_of_a_host(tmp_path: Path) -> None:
    make_log(tmp_path, "/var/lib/dkms/nvidia/580.1/build/make.log", "boom")
    status, log = Ran(Result(0, "nvidia/580.1: added\n", "")), Ran(Result(3, "", ""))
    dkms = _dkms.HostDkms(status.run, log, HostFiles(str(tmp_path)), "x86_64", str(tmp_path / "log" / "driver-dkms-"))
    assert dkms.status() == (build("nvidia", "580.1", None, "added"),)
    assert dkms.build("nvidia", "580.1", KERNEL).rc == 3
    assert log.commands == [["dkms", "install", "-m", "nvidia", "-v", "580.1", "-k", KERNEL]]
    text = dkms.log("nvidia", "580.1", KERNEL)
    assert text == "boom"
    kept = Path(dkms.keep(_dkms.Failure("nvidia", "580.1", KERNEL, None, None), text))
    assert kept.name == f"driver-dkms-nvidia-580.1-{KERNEL}.log"
    assert kept.read_text(encoding="utf-8") == "boom\n"


def test_a_host_without_dkms_has_no_builds(tmp_path: Path) -> None:
    status = Ran(Result(127, "", "dkms is not installed"))
    assert _dkms.HostDkms(status.run, status, HostFiles(str(tmp_path)), "x86_64", "/x").status() == ()
