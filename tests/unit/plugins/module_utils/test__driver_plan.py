# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan fits the host, needs no repository when nothing is to do, and names all that forbids it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver_plan
from ansible_collections.cudahub.gpu.plugins.module_utils._dkms import Build
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import Notice, RefusedError, System, Wish
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_record import Pending, Record
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import (
    Change,
    Installed,
    Package,
    PackageError,
    RepositoryError,
    Transaction,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles
from ansible_collections.cudahub.gpu.plugins.module_utils._preflight import GIB, Space
from ansible_collections.cudahub.gpu.tests.unit.plugins.driver_repositories import (
    available,
    by,
    gpus,
    install,
    put,
)

DEBIAN = by("debian", "13")
KERNEL = DEBIAN.kernel
HEADERS = {f"linux-headers-{KERNEL}": ("6.12.118-1",), "linux-headers-amd64": ("6.12.118-1",)}


class FakeReader:
    """Resolves everything, but what ``broken`` names; brings along what ``extra`` says."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host

    def installed(self) -> dict[str, Installed]:
        return self.host.packages

    def available(self, pattern: re.Pattern[str]) -> dict[str, tuple[str, ...]]:
        return {name: found for name, found in self.host.offered.items() if pattern.fullmatch(name)}

    def origin(self, package: Package) -> str | None:
        return "http://ppa.example" if "ppa" in package.version else None

    def simulate(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> Transaction:
        self.host.asked.append(pin)
        if any(package.name in self.host.broken for package in install):
            raise PackageError("unresolvable", self.host.why_broken)
        new, change = list(self.host.extra.install), list(self.host.extra.change)
        for package in install:
            old = self.host.packages.get(package.name)
            if old is None:
                new.append(package)
            elif old.version != package.version:
                change.append(Change(package.name, old.version, package.version))
        gone = [Package(name, self.host.packages[name].version) for name in remove]
        removed = (*gone, *self.host.extra.remove)
        return Transaction(tuple(new), tuple(change), removed, 10, 20, self.host.extra.module_stream)


def or_raise(value: t.Any) -> t.Any:
    """Return a value, or raise it where it is an exception."""
    if isinstance(value, Exception):
        raise value
    return value


@dataclasses.dataclass
class FakeCatalogue:
    reader: FakeReader
    unread: t.Sequence[PackageError]

    def offered(self, pattern: re.Pattern[str]) -> dict[str, tuple[str, ...]]:
        return self.reader.available(pattern)


class FakeHost:
    """A Debian 13 with nothing of the driver, and NVIDIA's repository."""

    uid = 0

    def __init__(self, root: Path) -> None:
        put(root, "/etc/hostname")
        self.files = self.machine_files = HostFiles(str(root))
        self.root = root
        self.of: System | RefusedError = DEBIAN
        self.packages: dict[str, Installed] = install(Package(f"linux-image-{KERNEL}", "6.12.118-1"))
        self.offered = {**available(DEBIAN, "nvidia"), **HEADERS}
        self.dkms: tuple[Build, ...] = ()
        self.recorded: Record | RefusedError = Record()
        self.needed: dict[str, t.Any] | Exception | None = {"path": "/etc/apt/sources.list.d/x.sources"}
        self.free = 100 * GIB
        self.broken: set[str] = set()
        self.why_broken = "it depends on what is not there"
        self.extra = Transaction()
        self.unread: list[PackageError] = []
        self.failure: PackageError | None = None
        self.read = 0
        self.asked: list[str | None] = []

    def system(self) -> System:
        if isinstance(self.of, RefusedError):
            raise self.of
        return self.of

    def installed(self) -> dict[str, Installed]:
        return self.packages

    def builds(self) -> tuple[Build, ...]:
        return self.dkms

    def record(self) -> Record:
        return or_raise(self.recorded)

    def owner(self, _path: str) -> str | None:
        return None

    @property
    def key_url(self) -> str | None:
        return None

    def writable(self, _path: str) -> bool:
        return True

    def space(self, _path: str) -> Space:
        return Space(1, self.free)

    def size(self, _path: str) -> int:
        return 100

    def repository(self) -> dict[str, t.Any] | None:
        return or_raise(self.needed)

    @contextlib.contextmanager
    def catalogue(self) -> t.Iterator[FakeCatalogue]:
        self.read += 1
        if self.failure is not None:
            raise self.failure
        yield FakeCatalogue(FakeReader(self), self.unread)

    def have(self, outcome: _driver_plan.Outcome, *, held: bool = True) -> None:
        """Carry a plan out."""
        for package in outcome.plan.transaction["remove"]:
            self.packages.pop(package["name"], None)
        for package in outcome.plan.packages:
            self.packages |= install(Package(**package), held=held and package["name"] in outcome.plan.hold)
        assert outcome.plan.version is not None
        self.dkms = (Build("nvidia", outcome.plan.version, KERNEL, "x86_64", "installed"),)
        hold = tuple(outcome.plan.hold)
        self.recorded = Record(outcome.plan.source, installed=hold, held=hold if held else ())


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def plan(
    host: FakeHost, *architectures: str, source: t.Literal["nvidia", "distro"] = "nvidia", **wish: t.Any
) -> _driver_plan.Outcome:
    request = {key: wish.pop(key) for key in ("kernel", "secure_boot", "ignore_processes") if key in wish}
    return _driver_plan.make(
        _driver_plan.Request(Wish(source, **wish), gpus(*(architectures or ("Hopper",))), **request), host
    )


def codes(outcome: _driver_plan.Outcome) -> list[str]:
    return [refusal.code for refusal in outcome.refusals]


def test_a_new_host(host: FakeHost) -> None:
    outcome = plan(host, branch="580")
    made = outcome.plan
    assert (outcome.refusals, outcome.warnings, made.satisfied) == ([], [], False)
    assert (made.branch, made.version, made.kernel_module) == ("580", "580.159.04", "open")
    assert made.kernels == [KERNEL]
    packages = {package["name"]: package["version"] for package in made.packages}
    assert packages["nvidia-kernel-open-dkms"] == packages["nvidia-driver-cuda"] == "580.159.04-1"
    assert packages[f"linux-headers-{KERNEL}"] == "6.12.118-1"
    assert made.transaction["install"] == made.packages
    assert "nvidia-driver-cuda" in made.hold
    assert f"linux-headers-{KERNEL}" not in made.hold
    assert (made.download_bytes, made.disk_bytes, made.repair) == (10, 20, False)
    assert made.available["580"] == ["580.159.04", "580.95.05"]
    assert made.repository == {"path": "/etc/apt/sources.list.d/x.sources"}
    assert made.why[0] == "No driver of source nvidia is installed completely"
    assert made.ways_out
    assert host.asked == ["580.159.04"]


def test_nothing_is_read_when_nothing_is_to_do(host: FakeHost) -> None:
    host.have(plan(host, branch="580"))
    host.failure, host.read = PackageError("network", "no network"), 0
    for wish in ({"branch": "580"}, {}, {"version": "580.159.04"}, {"kernel_module": "open"}):
        outcome = plan(host, **wish)
        assert outcome.plan.satisfied, outcome.plan.why
        assert (outcome.refusals, outcome.plan.why) == ([], ["580.159.04 is installed as asked for"])
        assert "nvidia-driver-cuda" in outcome.plan.hold
        assert outcome.plan.transaction == {"install": [], "change": [], "remove": []}
    assert host.read == 0


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"branch": "595"}, "Branch 595 is asked for, and 580 is installed"),
        ({"version": "580.95.05"}, "Version 580.95.05 is asked for, and 580.159.04 is installed"),
        (
            {"kernel_module": "proprietary"},
            "The proprietary kernel module is asked for, and the other one is installed",
        ),
        ({"display": True}, "The packages for displays are asked for and missing"),
        ({"fabric_manager": True}, "The fabric manager is missing"),
        (
            {"kernel": "6.12.107+deb13-amd64"},
            "DKMS has no module of 580.159.04 installed for kernel 6.12.107+deb13-amd64",
        ),
    ],
)
def test_what_is_not_as_asked_for(host: FakeHost, wish: dict[str, t.Any], why: str) -> None:
    host.have(plan(host, branch="580"))
    outcome = plan(host, **wish)
    assert not outcome.plan.satisfied
    assert outcome.plan.why[0] == why


def test_an_upgrade_stays_within_a_branch_that_is_asked_for(host: FakeHost) -> None:
    host.have(plan(host, version="580.95.05"))
    assert plan(host).plan.satisfied
    outcome = plan(host, branch="580", upgrade=True)
    assert (outcome.plan.satisfied, outcome.plan.version) == (False, "580.159.04")
    changed = {change["name"]: (change["from"], change["to"]) for change in outcome.plan.transaction["change"]}
    assert changed["nvidia-driver-cuda"] == ("580.95.05-1", "580.159.04-1")
    assert "nvidia-driver-pinning-580.95.05" in [package["name"] for package in outcome.plan.transaction["remove"]]
    assert "nvidia-driver-pinning-580.95.05" in outcome.plan.unhold
    host.packages = {}
    host.have(plan(host, branch="580"))
    newest = plan(host, branch="580", upgrade=True)
    assert (newest.plan.satisfied, newest.plan.version) == (True, "580.159.04")


def test_an_upgrade_goes_to_the_newest_branch(host: FakeHost) -> None:
    host.have(plan(host, branch="580"))
    outcome = plan(host, upgrade=True)
    assert (outcome.refusals, outcome.plan.satisfied, outcome.plan.version) == ([], False, "620.36.02")
    host.have(outcome)
    newest = plan(host, upgrade=True)
    assert (newest.plan.satisfied, newest.plan.version) == (True, "620.36.02")


@pytest.mark.parametrize("upgrade", [False, True])
def test_a_branch_whose_support_has_ended_is_never_silent(host: FakeHost, upgrade: bool) -> None:
    host.have(plan(host, branch="590"))
    outcome = plan(host, branch="590", upgrade=upgrade)
    assert outcome.plan.satisfied
    assert [warning.code for warning in outcome.warnings] == ["branch_unsupported"]
    host.have(plan(host, branch="595"))
    assert plan(host, branch="595", upgrade=upgrade).warnings == []


def installed_fabric_manager(host: FakeHost, version: str = "580.159.04", *, ours: bool) -> None:
    host.have(plan(host, branch="580", fabric_manager=ours))
    host.packages |= install(Package("nvidia-fabricmanager", f"{version}-1"), held=True)


def test_a_fabric_manager_of_ours_goes_with_the_switches(host: FakeHost) -> None:
    installed_fabric_manager(host, ours=True)
    assert plan(host, fabric_manager=True).plan.satisfied
    outcome = plan(host)
    assert not outcome.plan.satisfied
    assert outcome.plan.why[0] == (
        "The fabric manager is installed, and neither an NVSwitch nor nvidia_driver_fabric_manager asks for it"
    )
    assert outcome.plan.transaction == {
        "install": [],
        "change": [],
        "remove": [{"name": "nvidia-fabricmanager", "version": "580.159.04-1"}],
    }
    assert "nvidia-fabricmanager" not in outcome.plan.hold
    assert outcome.plan.unhold == ["nvidia-fabricmanager"]
    upgraded = plan(host, branch="595").plan
    assert "nvidia-fabricmanager" in [one["name"] for one in upgraded.transaction["remove"]]
    assert "nvidia-fabricmanager" not in [one["name"] for one in upgraded.packages]


def test_a_fabric_manager_of_somebody_else_stays(host: FakeHost) -> None:
    installed_fabric_manager(host, ours=False)
    assert plan(host).plan.satisfied
    changed = {one["name"]: one["to"] for one in plan(host, branch="595").plan.transaction["change"]}
    assert changed["nvidia-fabricmanager"] == "595.71.05-1"


@pytest.mark.parametrize(
    ("name", "option", "wanted", "warned"),
    [
        ("NVIDIA B200", "auto", False, True),
        ("NVIDIA B300 SXM6 AC", "auto", False, True),
        ("GB100 [B200]", "auto", False, True),
        ("NVIDIA GB300", "auto", False, True),
        ("NVIDIA B200", "auto", True, False),
        ("NVIDIA B200", "never", False, False),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "auto", False, False),
        ("NVIDIA H200", "auto", False, False),
    ],
)
def test_nvlink_switches_that_pci_does_not_show(
    host: FakeHost, name: str, option: str, wanted: bool, warned: bool
) -> None:
    cards = [{**gpus("Hopper" if "H200" in name else "Blackwell")[0], "name": name}]
    request = _driver_plan.Request(Wish("nvidia", fabric_manager=wanted), cards, fabric_manager=option)
    outcome = _driver_plan.make(request, host)
    assert [warning.code for warning in outcome.warnings] == ["nvlink_switches_hidden"] * warned
    assert all(name in one.message and "nvidia_driver_fabric_manager" in one.message for one in outcome.warnings)
    host.have(outcome)
    again = _driver_plan.make(request, host)
    assert (again.plan.satisfied, again.warnings) == (True, outcome.warnings)


UBUNTU = by("ubuntu", "24.04")


@pytest.fixture
def ubuntu(host: FakeHost) -> FakeHost:
    """An Ubuntu with its own driver, whose packages have the names of NVIDIA's."""
    host.of = dataclasses.replace(UBUNTU, kernel=KERNEL)
    host.offered = {**available(UBUNTU, "distro"), **HEADERS}
    host.have(plan(host, source="distro", version="580.159.04"))
    host.packages |= install(Package("libnvidia-compute-580", "580.159.04-0ubuntu0.24.04.1"), held=True)
    assert plan(host, source="distro").plan.satisfied
    return host


def test_a_change_of_source_is_seen_though_the_names_are_the_same(ubuntu: FakeHost) -> None:
    ubuntu.offered = {**available(UBUNTU, "nvidia"), **HEADERS}
    outcome = plan(ubuntu, branch="580")
    assert (outcome.refusals, outcome.plan.satisfied, outcome.plan.version) == ([], False, "580.159.04")
    assert outcome.plan.why[0] == "The driver that is installed is from source distro, and source nvidia is asked for"
    changed = {one["name"]: one["to"] for one in outcome.plan.transaction["change"]}
    assert changed["nvidia-dkms-580-open"] == changed["libnvidia-compute-580"] == "580.159.04-0ubuntu1"
    assert plan(ubuntu).plan.version == "620.36.02"


def test_packages_that_both_sources_have_need_no_change(ubuntu: FakeHost) -> None:
    outcome = plan(ubuntu)
    assert (outcome.refusals, outcome.plan.satisfied, outcome.plan.version) == ([], True, "580.159.04")
    assert not any("source distro" in sentence for sentence in outcome.plan.why)


def test_a_driver_that_somebody_else_installed_is_of_any_source(ubuntu: FakeHost) -> None:
    ubuntu.recorded = Record("distro", installed=("dkms",))
    assert plan(ubuntu).plan.satisfied


def test_a_record_that_can_not_be_read(host: FakeHost) -> None:
    host.recorded = RefusedError([Notice("record", "The record can't be read")])
    host.uid = 1000
    assert codes(plan(host)) == ["no_root", "record"]
    assert host.read == 0


def test_what_an_interrupted_transaction_brought_is_not_foreign(host: FakeHost) -> None:
    host.packages |= install(Package("nvidia-settings", "570.1-0ppa1"))
    assert codes(plan(host)) == ["foreign_packages"]
    host.recorded = Record(pending=Pending(frozenset({"nvidia-settings"}), {}))
    assert codes(plan(host)) == []


@pytest.mark.parametrize("stream", [None, "nvidia-driver:620-open"])
def test_the_module_stream_is_what_the_package_manager_says(host: FakeHost, stream: str | None) -> None:
    system = by("rhel", "9")
    host.of, host.packages = system, install(Package(f"kernel-devel-{system.kernel}", "1"))
    host.offered = available(system, "nvidia")
    host.extra = Transaction(module_stream=stream)
    outcome = plan(host)
    assert (outcome.refusals, outcome.plan.version, outcome.plan.module_stream) == ([], "620.36.02", stream)


def test_holds(host: FakeHost) -> None:
    host.have(plan(host, branch="580"), held=False)
    outcome = plan(host)
    assert not outcome.plan.satisfied
    assert outcome.plan.why[0].startswith("Not held: ")
    assert plan(host, hold=False).plan.satisfied
    host.have(plan(host, branch="580"))
    outcome = plan(host, hold=False)
    assert (outcome.plan.satisfied, outcome.plan.hold) == (False, [])
    assert isinstance(host.recorded, Record)
    assert outcome.plan.unhold == sorted(host.recorded.held)
    host.recorded = Record()
    assert plan(host, hold=False).plan.satisfied


def test_an_interrupted_transaction_is_to_be_finished(host: FakeHost) -> None:
    host.have(plan(host, branch="580"))
    broken = host.packages["nvidia-kernel-open-dkms"]
    host.packages["nvidia-kernel-open-dkms"] = dataclasses.replace(broken, state="half-configured")
    outcome = plan(host)
    assert (outcome.plan.satisfied, outcome.plan.repair) == (False, True)
    assert outcome.plan.why[0] == ("An installation was interrupted: nvidia-kernel-open-dkms must still be configured")
    assert outcome.plan.transaction == {"install": [], "change": [], "remove": []}


def interrupt(host: FakeHost, name: str, state: t.Any = "half-configured") -> None:
    host.packages[name] = Installed(name, "1", state, held=False)


@pytest.mark.parametrize("state", ["half-configured", "unpacked", "half-installed"])
def test_a_package_that_has_nothing_to_do_with_the_driver_must_be_whole(host: FakeHost, state: str) -> None:
    host.have(plan(host, branch="580"))
    interrupt(host, "badpkg", state)
    assert plan(host).plan.satisfied
    same = plan(host, branch="580", upgrade=True)
    assert (same.refusals, same.plan.satisfied, same.plan.repair) == ([], True, False)
    outcome = plan(host, branch="595")
    assert codes(outcome) == ["broken_package"]
    assert f"Package badpkg is {state}: run " in outcome.refusals[0].message
    assert not outcome.plan.repair


@pytest.mark.parametrize(
    ("name", "state"),
    [("dkms", "half-configured"), ("man-db", "triggers"), (f"linux-image-{KERNEL}", "half-configured")],
)
def test_what_our_own_transaction_and_the_driver_have_left_is_finished(host: FakeHost, name: str, state: str) -> None:
    host.have(plan(host, branch="580"))
    host.recorded = Record("nvidia", pending=Pending(frozenset({"dkms"}), {}))
    interrupt(host, name, state)
    outcome = plan(host, branch="595")
    assert (outcome.refusals, outcome.plan.repair) == ([], True)


def test_a_kernel_that_another_module_keeps_from_being_configured(host: FakeHost) -> None:
    interrupt(host, f"linux-image-{KERNEL}")
    assert codes(plan(host)) == ["broken_package"]


def test_dpkg_was_killed(host: FakeHost) -> None:
    put(host.root, "/var/lib/dpkg/updates/0001")
    assert plan(host).plan.repair


def test_a_flavour_that_can_not_be_resolved_is_not_taken(host: FakeHost) -> None:
    host.broken = {"nvidia-kernel-open-dkms"}
    outcome = plan(host, branch="580")
    assert (outcome.refusals, outcome.plan.kernel_module) == ([], "proprietary")
    assert any("it depends on what is not there" in sentence for sentence in outcome.plan.why)


def test_nothing_that_can_be_resolved(host: FakeHost) -> None:
    host.broken = {"nvidia-driver-cuda"}
    host.unread = [RepositoryError("network", "http://archive.example/debian", "Could not resolve 'archive.example'")]
    outcome = plan(host)
    assert codes(outcome) == ["repository", "unresolvable"]
    assert "http://archive.example/debian" in outcome.refusals[0].message
    assert "it depends on what is not there" in outcome.refusals[1].message
    assert outcome.warnings == []
    assert (outcome.plan.version, outcome.plan.packages) == (None, [])


def test_a_repository_that_was_not_needed(host: FakeHost) -> None:
    host.unread = [RepositoryError("network", "http://archive.example/debian", "Could not resolve 'archive.example'")]
    outcome = plan(host)
    assert outcome.refusals == []
    assert [warning.code for warning in outcome.warnings] == ["repository_unread"]


def test_what_somebody_holds_is_not_changed(host: FakeHost) -> None:
    host.packages |= install(Package("libdrm2", "1"), held=True)
    host.extra = Transaction(change=(Change("libdrm2", "1", "2"),))
    outcome = plan(host, branch="580")
    assert codes(outcome) == ["unresolvable"]
    assert "libdrm2" in outcome.refusals[0].message


def test_other_packages_that_would_go_are_told(host: FakeHost) -> None:
    host.extra = Transaction(remove=(Package("bumblebee", "3.2"),))
    outcome = plan(host, branch="580")
    assert [(warning.code, "bumblebee" in warning.message) for warning in outcome.warnings] == [
        ("removes_others", True)
    ]


@pytest.mark.parametrize(("kernel", "refused"), [(KERNEL, []), ("6.12.200+deb13-amd64", ["headers_missing"])])
def test_no_other_kernel_comes_along(host: FakeHost, kernel: str, refused: list[str]) -> None:
    host.extra = Transaction(install=(Package(f"linux-image-{kernel}", "1"),))
    outcome = plan(host, branch="580")
    assert codes(outcome) == refused
    assert all(kernel in refusal.message and KERNEL in refusal.message for refusal in outcome.refusals)


EL_KERNEL = by("rhel", "9").kernel


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        (Transaction(install=(Package("kernel-core", "5.14.0-570.12.1.el9_6"),)), None),
        (Transaction(install=(Package("kernel-core", "5.14.0-611.5.1.el9_7"),)), "5.14.0-611.5.1.el9_7.x86_64"),
        (Transaction(install=(Package("kernel-64k-core", "5.14.0-611.5.1.el9_7"),)), "5.14.0-611.5.1.el9_7.x86_64+64k"),
        # Where too many are there, the oldest gives way.
        (
            Transaction(change=(Change("kernel-core", "5.14.0-427.13.1.el9_4", "5.14.0-611.5.1.el9_7"),)),
            "5.14.0-611.5.1.el9_7.x86_64",
        ),
    ],
)
def test_no_other_kernel_comes_along_on_enterprise_linux(
    host: FakeHost, extra: Transaction, refused: str | None
) -> None:
    host.of = by("rhel", "9")
    host.offered = {**available(host.of, "nvidia"), "kernel-devel": ("5.14.0-570.12.1.el9_6",)}
    host.packages, host.extra = {}, extra
    refusals = plan(host, branch="580").refusals
    assert [one.code for one in refusals] == ([] if refused is None else ["headers_missing"])
    assert all(EL_KERNEL in one.message and f"to {refused}" in one.message for one in refusals)


def test_the_newest_kernel_of_an_image(host: FakeHost) -> None:
    host.packages, host.of = {}, dataclasses.replace(DEBIAN, kernel="6.18.0-host", container=True)
    assert codes(plan(host)) == ["container"]
    outcome = plan(host, kernel="newest")
    assert (outcome.refusals, outcome.plan.kernels) == ([], [KERNEL])


def test_an_image_gets_the_newest_branch_and_the_open_module(host: FakeHost) -> None:
    def chosen(**wish: t.Any) -> tuple[list[str], str | None, str | None]:
        request = _driver_plan.Request(Wish("nvidia", **wish), (), "newest")
        outcome = _driver_plan.make(request, host)
        return codes(outcome), outcome.plan.branch, outcome.plan.kernel_module

    host.packages = {}
    assert chosen() == (["no_gpu"], None, None)
    refusals, branch, kernel_module = chosen(image=True)
    assert (refusals, branch, kernel_module) == ([], plan(host, kernel="newest").plan.branch, "open")
    assert chosen(image=True, kernel_module="proprietary", branch="580") == ([], "580", "proprietary")


def test_refusals_come_together(host: FakeHost) -> None:
    host.uid = 1000
    host.free = 1
    put(host.root, "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\6\0\0\0\1")
    put(host.root, "/usr/bin/nvidia-uninstall")
    host.packages |= install(Package("nvidia-settings", "570.1-0ppa1"))
    del host.offered[f"linux-headers-{KERNEL}"]
    assert set(codes(plan(host))) == {
        "no_root",
        "secure_boot",
        "foreign_runfile",
        "foreign_packages",
        "headers_missing",
        "disk",
    }


def test_the_driver_is_in_use(host: FakeHost) -> None:
    host.have(plan(host, branch="580"))
    put(host.root, "/proc/4711/comm", "python3")
    (host.root / "proc" / "4711" / "fd").mkdir()
    (host.root / "proc" / "4711" / "fd" / "3").symlink_to("/dev/nvidia0")
    assert codes(plan(host)) == []
    outcome = plan(host, branch="595")
    assert codes(outcome) == ["processes"]
    assert "python3" in outcome.refusals[0].message
    assert codes(plan(host, branch="595", ignore_processes=True)) == []
    assert codes(plan(host, hold=False)) == []


@pytest.mark.parametrize(("kernel", "refused"), [("running", True), ("newest", False), (KERNEL, False)])
def test_the_driver_of_the_machine_on_which_an_image_is_built_does_not_matter(
    host: FakeHost, kernel: str, refused: bool
) -> None:
    put(host.root, "/sys/module/nvidia/version", "580.159.04\n")
    put(host.root, "/proc/4711/comm", "python3")
    (host.root / "proc" / "4711" / "fd").mkdir()
    (host.root / "proc" / "4711" / "fd" / "3").symlink_to("/dev/nvidia0")
    assert codes(plan(host, branch="580", kernel=kernel)) == (["foreign_runfile", "processes"] if refused else [])


def test_the_driver_of_an_image_is_not_exchanged_beneath_processes(host: FakeHost) -> None:
    host.have(plan(host, branch="580"))
    put(host.root, "/proc/4711/comm", "python3")
    (host.root / "proc" / "4711" / "fd").mkdir()
    (host.root / "proc" / "4711" / "fd" / "3").symlink_to("/dev/nvidia0")
    assert codes(plan(host, branch="595", kernel=KERNEL)) == ["processes"]


@pytest.mark.parametrize(
    ("wish", "architectures", "code"),
    [
        ({"branch": "999"}, ("Hopper",), "branch_unavailable"),
        ({"version": "580.1.02"}, ("Hopper",), "version_unavailable"),
        ({"branch": "595"}, ("Volta",), "gpu_too_old"),
        ({"kernel_module": "open"}, ("Volta",), "module_not_for_gpu"),
        ({"kernel_module": "proprietary"}, ("Blackwell",), "module_not_for_gpu"),
        ({}, ("Volta", "Blackwell"), "mixed_gpus"),
    ],
)
def test_wishes_that_can_not_be_had(
    host: FakeHost, wish: dict[str, t.Any], architectures: tuple[str, ...], code: str
) -> None:
    outcome = plan(host, *architectures, **wish)
    assert codes(outcome) == [code]
    assert outcome.plan.version is None


def test_an_unknown_system(host: FakeHost) -> None:
    host.of = RefusedError([Notice("unknown_os", "Plan 9")])
    assert plan(host).refusals == [Notice("unknown_os", "Plan 9")]


@pytest.mark.parametrize("source", ["nvidia", "distro"])
@pytest.mark.parametrize("kind", ["network", "not_found", "signature", "checksum"])
def test_a_repository_that_fails(host: FakeHost, source: t.Literal["nvidia", "distro"], kind: t.Any) -> None:
    host.failure = RepositoryError(kind, "http://mirror.example", "REASON")
    (refusal,) = plan(host, source=source).refusals
    assert refusal.code == "repository"
    assert "http://mirror.example" in refusal.message
    assert "REASON" in refusal.message
    assert ("nvidia_driver_repository" in refusal.message) is (source == "nvidia")


def test_a_repository_that_nobody_can_trust(host: FakeHost) -> None:
    host.needed = RefusedError([Notice("key_fingerprint_missing", "Look it up")])
    assert codes(plan(host)) == ["key_fingerprint_missing"]
    host.needed = PackageError("not_found", "No archive")
    assert plan(host).refusals == [Notice("repository", "No archive")]
    assert host.read == 0


def test_another_trouble_of_the_package_manager(host: FakeHost) -> None:
    host.failure = PackageError("package_manager", "apt can't read its sources: Malformed entry")
    assert plan(host).refusals == [Notice("repository", "apt can't read its sources: Malformed entry")]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/cudahub-packages-x/request.json"),
            "disk",
            "is full at",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/etc/apt/preferences"),
            "files",
            "/etc/apt/preferences can't",
        ),
    ],
)
def test_a_file_that_fails_is_a_refusal(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, error: OSError, code: str, words: str
) -> None:
    def simulate(*_arguments: t.Any) -> Transaction:
        raise error

    monkeypatch.setattr(FakeReader, "simulate", simulate)
    (refusal,) = plan(host, branch="580").refusals
    assert refusal.code == code
    assert words in refusal.message


def test_debian_13_has_only_an_old_branch(host: FakeHost) -> None:
    host.offered = {**available(DEBIAN, "distro"), **HEADERS}
    outcome = plan(host, source="distro")
    assert (outcome.refusals, outcome.plan.version, outcome.plan.kernel_module) == ([], "550.163.01", "open")
    assert [warning.code for warning in outcome.warnings] == ["branch_unsupported"]


@pytest.mark.parametrize("has_dkms", [True, False])
def test_enterprise_linux_without_dkms(host: FakeHost, has_dkms: bool) -> None:
    host.of = by("rhel", "9")
    headers = {f"kernel-devel-{host.of.kernel}": ("5.14.0",)}
    host.offered = {**available(host.of, "nvidia"), **headers}
    if not has_dkms:
        del host.offered["dkms"]
    assert ("dkms_missing" in codes(plan(host, branch="580"))) is not has_dkms


def test_enterprise_linux_with_a_dkms_that_is_too_old(host: FakeHost) -> None:
    host.of = by("rhel", "9")
    headers = {f"kernel-devel-{host.of.kernel}": ("5.14.0",)}
    host.offered = {**available(host.of, "nvidia"), **headers, "dkms": ("3.0.13-1.el9",)}
    host.broken = {"nvidia-driver-cuda"}
    host.why_broken = "nothing provides dkms >= 3.1.8 needed by kmod-nvidia-open-dkms-3:580.159.04-1.el9.noarch"
    refusal = plan(host, branch="580").refusals[-1]
    assert refusal.code == "dkms_too_old"
    assert "dkms 3.1.8 or newer" in refusal.message
    assert "offer only 3.0.13-1.el9" in refusal.message


def test_the_outcome_is_plain_data(host: FakeHost) -> None:
    result = plan(host, branch="999").as_dict()
    assert set(result) == {"plan", "refusals", "warnings"}
    assert set(result["refusals"][0]) == {"code", "message"}
