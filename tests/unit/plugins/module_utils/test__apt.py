# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What apt and dpkg print is understood as it is meant, of Debian 12's apt and of Debian 13's."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _apt
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import (
    Change,
    Package,
    PackageError,
    Result,
    Transaction,
)

IN_ORDER = (
    "0~~",
    "0~",
    "0",
    "1.0~rc1-1",
    "1.0",
    "1.0-1~deb12u1",
    "1.0-1",
    "1.0-1+b1",
    "1.0a",
    "1.0+dfsg",
    "1.0.1",
    "6.1.0-9",
    "6.1.0-56",
    "535.171.04-1~deb12u1",
    "535.261.03-1",
    "535.309.01-0+deb12u1",
    "580.65.06-1",
    "580.159.04-1",
    "20220217+3~deb12u1",
    "1:0.1",
)


def test_versions_are_compared_as_dpkg_does() -> None:
    for place, newer in enumerate(IN_ORDER[1:]):
        older = IN_ORDER[place]
        assert _apt.compare(older, newer) < 0 < _apt.compare(newer, older)
    for one, same in (("1.0", "1.0-0"), ("0:1", "1"), ("1.01", "1.1"), ("2-1", "2-1")):
        assert _apt.compare(one, same) == 0


def test_newest_first() -> None:
    assert _apt.newest_first(["580.65.06-1", "580.159.04-1", "580.65.06-1"]) == ("580.159.04-1", "580.65.06-1")


INSTALLED = """\
bash\tamd64\t5.2.37-2+b10\tinstall\tinstalled\tok
libc6\tamd64\t2.41-12\tinstall\tinstalled\tok
libc6\ti386\t2.41-12\tinstall\tinstalled\tok
libcuda1\tamd64\t580.159.04-1\thold\tinstalled\tok
dkms\tall\t3.2.2-1\tinstall\thalf-configured\tok
nvidia-smi\tamd64\t550.163.01-2\tinstall\tunpacked\tok
nvidia-modprobe\tamd64\t570.133.07-1\tinstall\thalf-installed\treinstreq
man-db\tamd64\t2.13.1-1\tinstall\ttriggers-pending\tok
nvidia-driver-cuda\tamd64\t580.65.06-1\tdeinstall\tconfig-files\tok
nvidia-driver\tamd64\t\tunknown\tnot-installed\tok
"""


def test_installed() -> None:
    found = _apt.parse_installed(INSTALLED, "amd64")
    assert {name: (one.state, one.held, one.present, one.broken) for name, one in found.items()} == {
        "bash": ("installed", False, True, False),
        "libc6": ("installed", False, True, False),
        "libc6:i386": ("installed", False, True, False),
        "libcuda1": ("installed", True, True, False),
        "dkms": ("half-configured", False, True, True),
        "nvidia-smi": ("unpacked", False, True, True),
        "nvidia-modprobe": ("half-installed", False, True, True),
        "man-db": ("triggers", False, True, True),
        "nvidia-driver-cuda": ("config-files", False, False, False),
    }


MADISON = """\
nvidia-kernel-dkms | 580.65.06-1 | http://mirror.example/debian12/x86_64  Packages
nvidia-kernel-dkms | 595.71.05-1 | http://mirror.example/debian12/x86_64  Packages
nvidia-kernel-dkms | 535.309.01-0+deb12u1 | http://archive.example/security bookworm-security/non-free amd64 Packages
nvidia-kernel-dkms | 535.309.01-0+deb12u1 | http://archive.example/security bookworm-security/non-free Sources
nvidia-kernel-dkms | 535.261.03-1 | http://archive.example/debian bookworm/non-free amd64 Packages
"""

SIMULATION = """\
Reading package lists...
Inst libcuda1 [580.159.04-1] (595.71.05-1 NVIDIA CUDA [amd64]) []
Inst dkms (3.0.10-8+deb12u1 Debian:12.15/oldstable [all])
Remv nvidia-driver-pinning-580 [580-1]
Purg nvidia-kernel-open-dkms [580.159.04-1]
Inst nvidia-modprobe [580.159.04-1] (580.159.04-1 NVIDIA CUDA [amd64])
Conf dkms (3.0.10-8+deb12u1 Debian:12.15/oldstable [all])
"""

SHOW = """\
Package: libcuda1
Version: 595.71.05-1
Installed-Size: 1000
Size: 500
Description: a driver
 Version: not this one

Package: dkms
Version: 3.0.10-8+deb12u1
Status: install ok installed
Installed-Size: 7

Package: dkms
Version: 3.0.10-8+deb12u1
Installed-Size: 200
Size: 50
"""


class Apt:
    """Answers the commands with recorded texts."""

    def __init__(self, **texts: str) -> None:
        self.texts = {
            "pkgnames": "nvidia-kernel-dkms\nbash\n",
            "madison": MADISON,
            "show": SHOW,
            "dpkg-query": "2000\n",
        }
        self.texts |= texts
        self.commands: list[list[str]] = []

    def __call__(self, command: t.Sequence[str], environment: t.Mapping[str, str]) -> Result:
        assert environment["LC_ALL"] == "C"
        self.commands.append(list(command))
        known = next((word for word in command if word in self.texts), None)
        return Result(0, self.texts[known], "") if known else Result(100, "", "E: Unknown\n")


def test_available_and_origin() -> None:
    apt = Apt()
    reader = _apt.AptReader(apt, ["-c", "private.conf"])
    pattern = re.compile("nvidia-.*")
    assert reader.available(pattern) == {
        "nvidia-kernel-dkms": ("595.71.05-1", "580.65.06-1", "535.309.01-0+deb12u1", "535.261.03-1")
    }
    assert reader.available(pattern, ["http://mirror.example/debian12/x86_64/"]) == {
        "nvidia-kernel-dkms": ("595.71.05-1", "580.65.06-1")
    }
    assert reader.available(pattern, ["http://me:secret@mirror.example/debian12/x86_64"]) == {
        "nvidia-kernel-dkms": ("595.71.05-1", "580.65.06-1")
    }
    assert reader.available(pattern, ["http://other.example/"]) == {}
    origin = reader.origin(Package("nvidia-kernel-dkms", "535.261.03-1"))
    assert origin == "http://archive.example/debian"
    assert reader.origin(Package("nvidia-kernel-dkms", "1")) is None
    assert all(command[1:3] == ["-c", "private.conf"] for command in apt.commands)
    assert sum("madison" in command for command in apt.commands) == 1


def test_simulate() -> None:
    apt = Apt(install=SIMULATION)
    transaction = _apt.AptReader(apt).simulate([Package("libcuda1", "595.71.05-1")], ["old"], "595.71.05")
    assert transaction == Transaction(
        install=(Package("dkms", "3.0.10-8+deb12u1"),),
        change=(Change("libcuda1", "580.159.04-1", "595.71.05-1"),),
        remove=(
            Package("nvidia-driver-pinning-580", "580-1"),
            Package("nvidia-kernel-open-dkms", "580.159.04-1"),
        ),
        download_bytes=550,
        disk_bytes=1200 * 1024 - 2000 * 1024,
    )
    command = apt.commands[0]
    assert command[:2] == ["apt-get", "-s"]
    assert command[-2:] == ["libcuda1=595.71.05-1", "old-"]
    assert "APT::Ignore-Hold=true" in command
    assert "APT::Get::Upgrade-By-Source-Package=false" in command


def test_what_a_killed_transaction_left_is_named() -> None:
    """Nothing is resolved while dependencies are unmet, unless apt is told every package by name."""
    commands: list[list[str]] = []
    installed = (
        "libcuda1\tamd64\t580.65.06-1\tinstall\tunpacked\tok\nbash\tamd64\t5.2\tinstall\tinstalled\tok\n"
        "nvidia-smi\tamd64\t580.65.06-1\tdeinstall\tconfig-files\tok\n"
    )
    madison = (
        "libcuda1 | 595.71.05-1 | http://mirror.example/x  Packages\nbash | 5.2 | http://mirror.example/x  Packages\n"
    )
    apt = Apt(install=SIMULATION, madison=madison, **{"dpkg-query": installed, "--print-architecture": "amd64\n"})

    def run(command: t.Sequence[str], environment: t.Mapping[str, str]) -> Result:
        if command[0] == "apt-get":
            commands.append(list(command))
            if len(commands) == 1:
                return Result(100, "", "E: Unmet dependencies. Try 'apt --fix-broken install' with no packages\n")
        return apt(command, environment)

    transaction = _apt.AptReader(run).simulate([Package("nvidia-driver-cuda", "595.71.05-1")], [], "595.71.05")
    assert Change("libcuda1", "580.159.04-1", "595.71.05-1") in transaction.change
    assert [command[command.index("install") + 1 :] for command in commands] == [
        ["nvidia-driver-cuda=595.71.05-1"],
        ["nvidia-driver-cuda=595.71.05-1", "libcuda1=595.71.05-1"],
    ]


def test_sizes_that_apt_does_not_tell() -> None:
    transaction = _apt.AptReader(Apt(install=SIMULATION, show="")).simulate([Package("x", "1")], [], None)
    assert (transaction.download_bytes, transaction.disk_bytes) == (None, None)


def test_nothing_to_do_needs_no_sizes() -> None:
    transaction = _apt.AptReader(Apt(install="Reading package lists...\n")).simulate([Package("x", "1")], [], None)
    assert transaction.empty
    assert (transaction.download_bytes, transaction.disk_bytes) == (0, 0)


UNMET = """\
Solving dependencies...
Some packages could not be installed. This may mean that you have
The following information may help to resolve the situation:

The following packages have unmet dependencies:
 nvidia-open-kernel-dkms : Depends: firmware-nvidia-gsp (= 535.261.03) but 535.309.01-0+deb12u1 is to be installed
                           Conflicts: nvidia-kernel-dkms but 535.309.01-0+deb12u1 is to be installed
 nvidia-smi : PreDepends: nvidia-alternative (= 1) but it is not going to be installed
 libcuda1 : Breaks: libcuda1:i386 (!= 2) but 3 is to be installed
"""
SOLVER = """\
E: Unable to correct problems, you have held broken packages.
E: The following information from --solver 3.0 may provide additional context:
   Unable to satisfy dependencies. Reached two conflicting decisions:
   1. nvidia-kernel-support:amd64=580.65.06-1 is not selected for install
"""
MISSING = """\
E: Version '580.99' for 'nvidia-driver-cuda' was not found
E: Unable to locate package nvidia-nix
"""
CONDENSED = (
    "nvidia-open-kernel-dkms depends on firmware-nvidia-gsp (= 535.261.03) but 535.309.01-0+deb12u1 is to be "
    "installed; "
    "nvidia-open-kernel-dkms conflicts with nvidia-kernel-dkms but 535.309.01-0+deb12u1 is to be installed; "
    "nvidia-smi pre-depends on nvidia-alternative (= 1) but it is not going to be installed; and 1 more"
)


@pytest.mark.parametrize(
    ("stdout", "stderr", "reason"),
    [
        (UNMET, "E: Unable to correct problems, you have held broken packages.\n", CONDENSED),
        (UNMET, SOLVER, CONDENSED),
        (
            "Package nvidia-driver-cuda is not available, but is referred to by another package.\n",
            MISSING,
            "Version '580.99' for 'nvidia-driver-cuda' was not found; Unable to locate package nvidia-nix",
        ),
        (
            "",
            "W: careful\nE: Essential packages were removed and -y was used\n",
            "Essential packages were removed and -y was used",
        ),
        ("", "", "it printed nothing"),
    ],
)
def test_why_a_request_is_unresolvable(stdout: str, stderr: str, reason: str) -> None:
    with pytest.raises(PackageError) as caught:
        _apt.AptReader(lambda _command, _environment: Result(100, stdout, stderr)).simulate([], [], None)
    assert (caught.value.kind, caught.value.message) == ("unresolvable", reason)
    assert caught.value.details == stdout + stderr


def test_a_broken_dpkg_is_told() -> None:
    with pytest.raises(PackageError, match="dpkg-query fails: dpkg-query is not installed") as caught:
        _apt.AptReader(lambda _command, _environment: Result(127, "", "dpkg-query is not installed")).installed()
    assert caught.value.kind == "package_manager"


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    parts, info = tmp_path / "preferences.d", tmp_path / "info"
    parts.mkdir()
    info.mkdir()
    (parts / "admin").write_text("Package: bash\n", encoding="utf-8")
    monkeypatch.setattr(_apt, "PREFERENCES", str(tmp_path / "preferences"))
    monkeypatch.setattr(_apt, "PREFERENCES_PARTS", str(parts))
    monkeypatch.setattr(_apt, "DPKG_INFO", str(info))
    return tmp_path


def options_of(arguments: t.Sequence[str]) -> dict[str, Path]:
    pairs = (one.partition("=") for one in arguments if one != "-o")
    return {name: Path(value) for name, _equals, value in pairs}


def test_the_pin_comes_before_the_preferences_of_the_host(etc: Path) -> None:
    (etc / "preferences").write_text("Package: zsh\n", encoding="utf-8")
    with _apt.pinned("580.159.04") as arguments:
        options = options_of(arguments)
        main = options["Dir::Etc::Preferences"]
        text = "Package: /./\nPin: version 580.159.04*\nPin-Priority: 1001\n\nPackage: zsh\n"
        assert main.read_text(encoding="utf-8") == text
        assert [path.name for path in options["Dir::Etc::PreferencesParts"].iterdir()] == ["admin"]
        assert (main.parent.stat().st_mode & 0o777, main.stat().st_mode & 0o777) == (0o755, 0o644)
    assert not main.parent.exists()


@pytest.mark.parametrize("pin", [None, "595.71.05"])
def test_the_pin_of_another_branch_does_not_count(etc: Path, pin: str | None) -> None:
    (etc / "preferences.d" / "nvidia").write_text("Package: nvidia-*\n", encoding="utf-8")
    listed = f"/.\n/etc\n{etc}/preferences.d/nvidia\n"
    (etc / "info" / "nvidia-driver-pinning-580.list").write_text(listed, encoding="utf-8")
    with _apt.pinned(pin) as arguments:
        parts = options_of(arguments)["Dir::Etc::PreferencesParts"]
        assert [path.name for path in parts.iterdir()] == ["admin"]


def test_without_a_pin_the_host_decides(etc: Path) -> None:
    assert etc.exists()
    with _apt.pinned(None) as arguments:
        assert arguments == []
