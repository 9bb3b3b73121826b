# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's packages are as planned, built and held, or as they were before; and what was done can be undone."""

from __future__ import annotations

import errno
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver_record
from ansible_collections.cudahub.gpu.plugins.module_utils import _driver_transaction as driver
from ansible_collections.cudahub.gpu.plugins.module_utils._dkms import Build, Failure
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import (
    Change,
    ErrorKind,
    Installed,
    Package,
    PackageError,
    Result,
    State,
    Transaction,
)

if t.TYPE_CHECKING:
    import re

KERNEL = "6.12.118+deb13-amd64"
LIBRARIES = ("libcuda1", "libnvidia-ml1")
MODULE = "nvidia-kernel-open-dkms"
FAMILY = (*LIBRARIES, "nvidia-driver-cuda", MODULE)
BY_HAND = {"libcuda1", "nvidia-open"}
"""The packages that somebody holds, one of the driver's that is changed and one that is not."""

MAKE_LOG = "/var/lib/dkms/nvidia/590.48.01/build/make.log"
NOT_COMPILED = f"Error! Bad return status for module build on kernel: {KERNEL} (x86_64)\nConsult {MAKE_LOG} for more.\n"


class System:
    """A host with packages: reader, writer and DKMS in one. It does what it is told, and fails where it is told to."""

    def __init__(self, **versions: str) -> None:
        self.packages: dict[str, Installed] = {}
        self.auto: set[str] = set()
        self.builds: dict[tuple[str, str], Build] = {}
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.errors: dict[str, list[PackageError]] = {}
        self.does_not_compile: set[str] = set()
        self.does_not_build_by_itself = False
        self.offered = True
        self.unrelated_fails = False
        self.needs: dict[str, str] = {}
        self.said: list[str] = []
        self.kept: dict[str, str] = {}
        for name, version in versions.items():
            self.put(name.replace("_", "-"), version)

    def put(self, name: str, version: str, state: State = "installed", *, held: bool = False) -> None:
        self.packages[name] = Installed(name, version, state, held)

    def fail(self, method: str, kind: ErrorKind, details: str = "") -> None:
        self.errors.setdefault(method, []).append(PackageError(kind, f"{method} failed", details))

    def _call(self, method: str, names: t.Iterable[str]) -> None:
        self.calls.append((method, tuple(names)))
        if self.errors.get(method):
            raise self.errors[method].pop(0)

    def called(self, method: str) -> list[tuple[str, ...]]:
        return [names for name, names in self.calls if name == method]

    # Reader

    def installed(self) -> dict[str, Installed]:
        return dict(self.packages)

    def available(self, pattern: re.Pattern[str]) -> dict[str, tuple[str, ...]]:
        raise NotImplementedError(pattern)

    def origin(self, package: Package) -> str | None:
        return f"https://mirror.example/{package.name}" if self.offered else None

    def simulate(self, install: t.Sequence[Package], remove: t.Sequence[str], _pin: str | None) -> Transaction:
        self._call("simulate", (one.name for one in install))
        wanted = self._wanted(install)
        there = {name: one for name, one in self.packages.items() if one.present}
        return Transaction(
            tuple(Package(name, version) for name, version in wanted.items() if name not in there),
            tuple(
                Change(name, there[name].version, version)
                for name, version in wanted.items()
                if name in there and there[name].version != version
            ),
            tuple(Package(name, there[name].version) for name in remove if name in there),
        )

    def _wanted(self, install: t.Sequence[Package]) -> dict[str, str]:
        """A module brings the libraries in its version."""
        wanted = {one.name: one.version for one in install}
        version = wanted.get(MODULE)
        if version:
            wanted = {**dict.fromkeys((*LIBRARIES, "dkms"), version), **wanted, "dkms": "3"}
        return wanted

    # Writer

    def refresh(self) -> None:
        self._call("refresh", ())

    def apply(self, install: t.Sequence[Package], remove: t.Sequence[str], _pin: str | None) -> None:
        self._call("apply", (*(f"{one.name}={one.version}" for one in install), *(f"{name}-" for name in remove)))
        named = {one.name for one in install}
        for name, version in self._wanted(install).items():
            if name not in self.packages and name not in named:
                self.auto.add(name)
            elif name in named:
                self.auto.discard(name)
            self.put(name, version)
        for name in remove:
            self.packages[name] = replace(self.packages[name], state="config-files", held=False)
        self._build()
        if self.unrelated_fails:
            raise PackageError("package_manager", "dpkg could not finish badpkg")

    def _build(self) -> None:
        module = self.packages.get(MODULE)
        if module is None or not module.present or self.does_not_build_by_itself:
            return
        version = module.version.split("-")[0]
        self.builds = {}
        if version in self.does_not_compile:
            self.put(MODULE, module.version, "half-configured")
            self.builds["nvidia", version] = Build("nvidia", version, None, None, "added")
            raise PackageError("package_manager", "dpkg could not finish it", NOT_COMPILED)
        self.builds["nvidia", version] = Build("nvidia", version, KERNEL, "x86_64", "installed")

    def repair(self) -> None:
        self._call("repair", ())
        for name, one in self.packages.items():
            if one.broken:
                self.put(name, one.version, held=one.held)
        self._build()

    def purge(self, names: t.Sequence[str]) -> None:
        if names:
            self._call("purge", names)
        for name, by in self.needed_by_others(names).items():
            if by in self.packages and self.packages[by].present:
                raise PackageError("package_manager", f"{by} depends on {name}")
        for name in names:
            del self.packages[name]
            self.auto.discard(name)
            if name == MODULE:
                self.builds = {}

    def remove(self, names: t.Sequence[str]) -> None:
        there = {name: replace(self.packages[name], state="config-files", held=False) for name in names}
        if names:
            self._call("remove", names)
            self.purge(names)
        self.packages.update(there)

    def needed_by_others(self, names: t.Collection[str]) -> dict[str, str]:
        return {name: by for name, by in self.needs.items() if name in names and by not in names}

    def hold(self, names: t.Sequence[str]) -> None:
        self._hold("hold", names)

    def unhold(self, names: t.Sequence[str]) -> None:
        self._hold("unhold", names)

    def _hold(self, method: str, names: t.Sequence[str]) -> None:
        if names:
            self._call(method, names)
        for name in names:
            self.packages[name] = replace(self.packages[name], held=method == "hold")

    def automatic(self) -> set[str]:
        return set(self.auto)

    def mark_automatic(self, names: t.Sequence[str]) -> None:
        self.auto |= set(names)

    # DKMS

    def status(self) -> tuple[Build, ...]:
        return tuple(self.builds.values())

    def build(self, module: str, version: str, kernel: str) -> Result:
        self._call("build", (module, version, kernel))
        if version in self.does_not_compile:
            return Result(10, NOT_COMPILED, "")
        self.builds[module, version] = Build(module, version, kernel, "x86_64", "installed")
        return Result(0, "", "")

    def log(self, _module: str, _version: str, _kernel: str) -> str | None:
        return "/var/lib/dkms/nvidia/590.48.01/build/nvidia/nv-pci.c:20:12: error: too few arguments\n"

    def keep(self, failure: Failure, text: str) -> str:
        path = f"/log/{failure.module}-{failure.version}.log"
        self.kept[path] = text
        return path

    @property
    def all(self) -> tuple[t.Any, ...]:
        """Everything that a rollback has to bring back."""
        return dict(self.packages), set(self.auto), dict(self.builds)


class Records:
    def __init__(self, record: _driver_record.Record | None = None) -> None:
        self.record = record
        self.reserved = False
        self.full = False
        self.errors: list[OSError] = []

    def read(self) -> _driver_record.Record | None:
        return self.record

    def write(self, record: _driver_record.Record) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.record = _driver_record.Record.of(record.as_json())
        assert self.record == record

    def remove(self) -> None:
        assert self.record is not None
        self.record = None

    def reserve(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/cudahub")
        self.reserved = True

    def release(self) -> None:
        self.reserved = False


def host(system: System, records: Records) -> driver.Host:
    return driver.Host(system, system, system, records, system.said.append, "6.1.0-1-amd64")


def plan(version: str, *, remove: t.Sequence[str] = (), **more: t.Any) -> _driver_record.Plan:
    branch = version.split(".", maxsplit=1)[0]
    return _driver_record.Plan(
        source="nvidia",
        branch=branch,
        version=version,
        kernel_module="open",
        kernels=(KERNEL,),
        packages=(Package("nvidia-driver-cuda", f"{version}-1"), Package(MODULE, f"{version}-1")),
        transaction=Transaction(
            install=(Package(MODULE, f"{version}-1"),), remove=tuple(Package(name, "1") for name in remove)
        ),
        **more,
    )


def have(system: System, records: Records, version: str = "580.159.04", **more: t.Any) -> driver.Outcome:
    hold, check = more.pop("hold", True), more.pop("check", False)
    return driver.present(host(system, records), plan(version, **more), hold=hold, check=check)


def fresh() -> tuple[System, Records]:
    return System(bash="5"), Records()


def test_a_first_installation_is_built_held_and_recorded() -> None:
    system, records = fresh()
    outcome = have(system, records)
    assert outcome.changed
    assert outcome.trouble is None
    assert system.called("apply") == [("nvidia-driver-cuda=580.159.04-1", f"{MODULE}=580.159.04-1")]
    assert {name for name, one in system.packages.items() if one.held} == set(FAMILY)
    record = records.record
    assert record is not None
    assert record == _driver_record.Record(
        source="nvidia",
        branch="580",
        driver_version="580.159.04",
        kernel_module="open",
        installed=tuple(sorted((*FAMILY, "dkms"))),
        asked=("nvidia-driver-cuda", MODULE),
        held=tuple(sorted(FAMILY)),
    )
    assert [one.kernel for one in outcome.builds] == [KERNEL]
    assert outcome.before == ""
    assert "libcuda1 580.159.04-1 held\n" in outcome.after
    assert "dkms 3\n" in outcome.after
    assert not records.reserved


def test_a_second_run_changes_nothing_and_asks_for_nothing() -> None:
    system, records = fresh()
    have(system, records)
    before, record = system.all, records.record
    system.calls.clear()
    assert have(system, records) == driver.Outcome(changed=False, builds=system.status())
    assert system.calls == []
    assert (system.all, records.record) == (before, record)


def test_check_mode_foresees_and_touches_nothing() -> None:
    system, records = fresh()
    before = system.all
    outcome = have(system, records, check=True)
    assert outcome.changed
    assert outcome.after == f"{MODULE} 580.159.04-1 held\n"
    assert outcome.transaction == plan("580.159.04").transaction
    assert (system.all, records.record, system.calls) == (before, None, [])
    have(system, records)
    assert not have(system, records, check=True).changed


def test_check_mode_foresees_holds() -> None:
    system, records = fresh()
    have(system, records, hold=False)
    outcome = have(system, records, check=True)
    assert outcome.changed
    assert outcome.transaction.empty
    assert "libcuda1 580.159.04-1\n" in outcome.before
    assert "libcuda1 580.159.04-1 held\n" in outcome.after


def test_another_branch_takes_the_place_of_a_held_one() -> None:
    system, records = fresh()
    have(system, records)
    system.put("nvidia-driver-pinning-580", "580-1", held=True)
    outcome = have(system, records, "595.71.05", remove=["nvidia-driver-pinning-580"])
    assert outcome.trouble is None
    assert len(system.called("apply")) == 2
    assert system.called("apply")[1][-1] == "nvidia-driver-pinning-580-"
    assert {one.version for name, one in system.packages.items() if name in FAMILY} == {"595.71.05-1"}
    assert all(system.packages[name].held for name in FAMILY)
    assert "nvidia-driver-pinning-580" not in system.packages, "its preferences would go on pinning"
    assert records.record is not None
    assert records.record.branch == "595"
    assert "libcuda1 580.159.04-1 held\n" in outcome.before
    assert "libcuda1 595.71.05-1 held\n" in outcome.after


def test_without_holds_only_ours_are_taken_back() -> None:
    system, records = fresh()
    have(system, records)
    system.put("bash", "5", held=True)
    outcome = have(system, records, hold=False)
    assert outcome.changed
    assert [name for name, one in system.packages.items() if one.held] == ["bash"]
    assert records.record is not None
    assert records.record.held == ()
    assert not have(system, records, hold=False).changed


def test_a_hold_of_the_user_survives() -> None:
    system, records = fresh()
    system.put("libcuda1", "580.126.09-1", held=True)
    have(system, records, hold=False)
    assert system.packages["libcuda1"] == Installed("libcuda1", "580.159.04-1", "installed", True)
    assert records.record is not None
    assert records.record.held == ()


def installed_by_hand() -> tuple[System, Records]:
    """Hosts where somebody has installed the driver as a dependency of nvidia-open, and holds some of it."""
    system, records = fresh()
    for name in ("nvidia-open", *FAMILY):
        system.put(name, "580.126.09-1", held=name in BY_HAND)
    system.needs = dict.fromkeys(FAMILY, "nvidia-open")
    system.auto = {*FAMILY}
    return system, records


def test_a_hold_from_before_is_never_ours() -> None:
    system, records = installed_by_hand()
    for version in ("580.159.04", "595.71.05", "580.159.04"):
        have(system, records, version)
        assert all(system.packages[name].held for name in FAMILY)
        assert records.record is not None
        assert set(records.record.held) & BY_HAND == set()
        assert set(records.record.held) >= set(FAMILY) - BY_HAND
    have(system, records, "595.71.05", hold=False)
    assert {name for name, one in system.packages.items() if one.held} == BY_HAND
    have(system, records, "595.71.05")
    driver.absent(host(system, records), check=False)
    assert {name for name, one in system.packages.items() if one.held} == BY_HAND


def test_a_hold_from_before_that_was_let_go_in_between_is_not_ours() -> None:
    system, records = installed_by_hand()
    have(system, records)
    system.unhold(["libcuda1"])
    have(system, records)
    assert system.packages["libcuda1"].held
    assert records.record is not None
    assert "libcuda1" not in records.record.held


def test_absent_after_a_killed_run_holds_and_marks_again_what_was() -> None:
    system, records = installed_by_hand()
    auto = set(system.auto)
    hold = system.hold
    system.hold = fails(PackageError("interrupted", "Killed"))  # type: ignore[method-assign]
    outcome = have(system, records)
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "interrupted"
    system.hold = hold  # type: ignore[method-assign]
    system.auto -= {"nvidia-driver-cuda"}
    driver.absent(host(system, records), check=False)
    assert {name for name, one in system.packages.items() if one.held} == BY_HAND
    assert system.auto == auto
    assert records.record is None


def test_what_nobody_had_asked_for_still_counts_as_such() -> None:
    system, records = installed_by_hand()
    system.auto.remove("libnvidia-ml1")
    have(system, records)
    have(system, records, "595.71.05")
    assert system.auto == {*FAMILY, "dkms"} - {"libnvidia-ml1"}
    assert records.record is not None
    assert records.record.asked == ()


def test_what_lost_the_package_that_needed_it_counts_as_asked_for() -> None:
    system, records = installed_by_hand()
    system.needs = {"libcuda1": "nvidia-driver-cuda", MODULE: "nvidia-open"}
    have(system, records, remove=["nvidia-open"])
    assert system.auto == {*LIBRARIES, "dkms", MODULE}
    assert records.record is not None
    assert records.record.asked == ("nvidia-driver-cuda",)


def test_absent_says_what_was_there_before_in_another_version() -> None:
    system, records = installed_by_hand()
    system.put("bash", "5")
    have(system, records, "580.159.04")
    have(system, records, "595.71.05")
    outcome = driver.absent(host(system, records), check=True)
    words = "it was there before, and has version 595.71.05-1 now instead of 580.126.09-1"
    assert outcome.kept == dict.fromkeys(FAMILY, words)
    assert driver.absent(host(system, records), check=False).kept == outcome.kept
    system, records = installed_by_hand()
    system.put("libnvidia-cfg1", "1", "config-files")
    have(system, records, "580.126.09")
    system.put("libnvidia-cfg1", "2")
    assert driver.absent(host(system, records), check=False).kept == {}


def test_only_what_carries_the_drivers_version_is_held() -> None:
    system, records = fresh()
    system.put("nvidia-kernel-common", "20240109+1")
    have(system, records)
    assert {name for name, one in system.packages.items() if one.held} == set(FAMILY)


def test_a_package_that_was_interrupted_is_configured_though_it_is_not_the_drivers() -> None:
    system, records = fresh()
    have(system, records)
    system.put("cups", "2", "unpacked")
    outcome = have(system, records, repair=True)
    assert outcome.trouble is None
    assert system.packages["cups"].state == "installed"
    assert len(system.called("apply")) == 1


def test_a_module_that_does_not_compile_the_first_time() -> None:
    system, records = fresh()
    system.does_not_compile = {"590.48.01"}
    before = system.all
    outcome = have(system, records, "590.48.01", ways_out=("set nvidia_driver_branch to 595", "boot an older kernel"))
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "dkms"
    assert outcome.trouble.message == (
        f"The kernel module nvidia 590.48.01 does not compile for kernel {KERNEL}: nvidia/nv-pci.c:20: error: too few "
        "arguments. Log: /log/nvidia-590.48.01.log. Ways out: set nvidia_driver_branch to 595; boot an older kernel. "
        "The packages are as they were before."
    )
    assert list(system.kept) == ["/log/nvidia-590.48.01.log"]
    assert (system.all, records.record) == (before, None)
    assert not outcome.changed
    assert not records.reserved


def test_a_module_that_does_not_compile_after_a_change_of_branch() -> None:
    system, records = fresh()
    system.auto.add("libcuda1")
    have(system, records)
    system.does_not_compile = {"590.48.01"}
    before, record = system.all, records.record
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "dkms"
    assert outcome.trouble.message.endswith("The packages are as they were before.")
    assert (system.all, records.record) == (before, record)
    assert system.called("apply")[-1] == tuple(f"{name}=580.159.04-1" for name in sorted(FAMILY))
    assert not have(system, records).changed, "the old driver is whole"


def test_an_old_version_that_nobody_offers_any_more() -> None:
    system, records = fresh()
    have(system, records)
    system.does_not_compile = {"590.48.01"}
    system.offered = False
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert "can't come back, as no repository of this host offers it any more" in outcome.trouble.message
    assert "Not as before: libcuda1 is 590.48.01-1 instead of 580.159.04-1" in outcome.trouble.message
    assert outcome.changed
    assert records.record is not None
    assert records.record.pending is not None, "the next run still knows what was there"


def test_a_rollback_that_fails_says_so_and_goes_on() -> None:
    system, records = fresh()
    system.does_not_compile = {"590.48.01"}
    system.fail("purge", "package_manager")
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert outcome.trouble.message.endswith(WHOLE)
    assert set(system.packages) == {"bash"}, "one by one"
    system.purge = fails(BUSY)  # type: ignore[method-assign]
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert "Not everything new could be removed: It did not work." in outcome.trouble.message
    assert "Not as before: dkms 3 is installed, libcuda1 590.48.01-1 is installed" in outcome.trouble.message


def test_marks_that_can_not_be_set_again_are_a_difference() -> None:
    system, records = fresh()
    have(system, records)
    before = dict(system.packages)
    system.does_not_compile = {"590.48.01"}
    mark = system.mark_automatic
    system.mark_automatic = fails(BUSY)  # type: ignore[method-assign]
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert outcome.trouble.message.endswith(
        " Not every mark could be set again: It did not work. Not as before: libcuda1 counts as asked for, "
        "libnvidia-ml1 counts as asked for."
    )
    assert system.packages == before
    system.mark_automatic = mark  # type: ignore[method-assign]
    assert have(system, records).trouble is None
    assert system.auto == {*LIBRARIES, "dkms"}, "the next run knows of it"


def test_a_way_back_is_judged_by_what_is_there() -> None:
    system, records = fresh()
    have(system, records)
    before, record = system.all, records.record
    system.unrelated_fails = True
    outcome = have(system, records, "595.71.05")
    assert outcome.trouble is not None
    assert outcome.trouble.message == f"dpkg could not finish badpkg.{WHOLE}"
    assert (system.all, records.record) == (before, record)
    assert not outcome.changed


FULL = OSError(errno.ENOSPC, "No space left on device", "/var/log/x")
BUSY = PackageError("package_manager", "It did not work")
WHOLE = " The packages are as they were before."


def fails(error: Exception, *, after: int = 0) -> t.Callable[..., t.Any]:
    """A function that fails at every call after so many."""
    calls: list[t.Any] = []

    def call(*_args: t.Any) -> None:
        calls.append(_args)
        if len(calls) > after:
            raise error

    return call


@pytest.mark.parametrize(
    ("part", "method", "error", "words", "whole"),
    [
        ("host", "say", FULL, WHOLE, True),
        ("records", "release", FULL, WHOLE, True),
        ("system", "keep", FULL, " Its log could not be kept: The disk is full at /var/log/x", True),
        ("system", "origin", BUSY, " The old versions could not be looked up: It did not work. ", False),
        ("system", "hold", FULL, " Not everything could be held again: The disk is full at /var/log/x", False),
    ],
)
def test_no_error_on_the_way_back_hides_why_it_is_gone(
    part: str, method: str, error: Exception, words: str, whole: bool
) -> None:
    system, records = fresh()
    have(system, records)
    before = dict(system.packages)
    system.does_not_compile = {"590.48.01"}
    given = host(system, records)
    if part == "host":
        given = replace(given, say=fails(error))
    else:
        setattr({"system": system, "records": records}[part], method, fails(error))
    outcome = driver.present(given, plan("590.48.01"), hold=True, check=False)
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "dkms"
    assert outcome.trouble.message.startswith("The kernel module nvidia 590.48.01 does not compile")
    assert words in outcome.trouble.message
    assert outcome.changed is not whole
    assert (system.packages == before) is whole
    assert ("Not as before: " in outcome.trouble.message) is not whole


def test_a_host_that_can_not_be_read_on_the_way_back_is_not_said_to_be_unchanged() -> None:
    system, records = fresh()
    have(system, records)
    system.does_not_compile = {"590.48.01"}
    apply = system.apply

    def then_break(*request: t.Any) -> None:
        system.installed = fails(BUSY)  # type: ignore[method-assign]
        apply(*request)

    system.apply = then_break  # type: ignore[method-assign]
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert outcome.trouble.message.startswith("The kernel module nvidia 590.48.01 does not compile")
    assert outcome.trouble.message.endswith(
        " Going back to the packages that were there before was not finished: It did not work."
    )
    assert outcome.changed
    assert records.record is not None
    assert records.record.pending is not None


def test_a_record_that_can_not_be_written_leaves_no_reserve() -> None:
    system, records = fresh()
    before = system.all
    records.errors = [FULL]
    with pytest.raises(OSError, match="No space left"):
        have(system, records)
    assert not records.reserved
    assert (system.all, records.record) == (before, None)


def test_a_lock_that_nobody_gave_back_needs_no_way_back() -> None:
    system, records = fresh()
    have(system, records)
    before, record = system.all, records.record
    system.calls.clear()
    system.said.clear()
    system.fail("apply", "lock")
    outcome = have(system, records, "595.71.05")
    assert outcome.trouble is not None
    assert outcome.trouble.message == "apply failed. Nothing was changed."
    assert (system.all, records.record) == (before, record)
    assert [method for method, _names in system.calls] == ["simulate", "apply"]
    assert system.said == []


def test_a_lock_that_was_lost_after_a_change_is_followed_by_the_way_back() -> None:
    system, records = fresh()
    before = system.all
    system.fail("hold", "lock")
    outcome = have(system, records)
    assert outcome.trouble is not None
    assert outcome.trouble.message == f"hold failed.{WHOLE}"
    assert (system.all, records.record) == (before, None)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("lock", "lock"),
        ("download", "download"),
        ("checksum", "download"),
        ("disk", "disk"),
        ("unresolvable", "unresolvable"),
        ("package_manager", "package_manager"),
    ],
)
def test_a_transaction_that_fails_leaves_all_as_it_was(kind: ErrorKind, expected: str) -> None:
    system, records = fresh()
    have(system, records)
    before, record = system.all, records.record
    system.fail("apply", kind)
    outcome = have(system, records, "595.71.05")
    assert outcome.trouble is not None
    assert outcome.trouble.kind == expected
    assert outcome.trouble.message.startswith("apply failed. ")
    assert (system.all, records.record) == (before, record)
    assert not outcome.changed


def test_a_killed_package_manager_is_left_for_the_next_run() -> None:
    system, records = fresh()
    before = set(system.packages)
    system.fail("apply", "interrupted")
    outcome = have(system, records)
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "interrupted"
    assert "Run this again" in outcome.trouble.message
    pending = records.record and records.record.pending
    assert pending
    system.put(MODULE, "580.159.04-1", "unpacked")
    system.put("dkms", "3")
    outcome = have(system, records)
    assert outcome.trouble is None
    assert not have(system, records).changed
    assert driver.absent(host(system, records), check=False).changed
    assert set(system.packages) == before, "dkms, too, was not there before"


def test_a_killed_run_that_can_not_be_finished_goes_back_to_what_was_before_it() -> None:
    system, records = fresh()
    have(system, records)
    before, record = system.all, records.record
    system.does_not_compile = {"590.48.01"}
    system.fail("apply", "interrupted")
    have(system, records, "590.48.01")
    system.put("libcuda1", "590.48.01-1", "unpacked")
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "dkms"
    assert (system.all, records.record) == (before, record)


def test_unmet_dependencies_are_brought_by_name_and_stay_nobodys_choice() -> None:
    system, records = fresh()
    system.put("libcuda1", "580.159.04-1", "half-installed")
    system.auto.add("libcuda1")
    outcome = have(system, records)
    assert outcome.trouble is None
    assert system.called("apply") == [
        tuple(
            f"{name}={version}"
            for name, version in sorted([("dkms", "3"), *((name, "580.159.04-1") for name in FAMILY)])
        )
    ]
    assert system.auto == {*LIBRARIES, "dkms"}


def test_a_kernel_without_its_module_gets_it() -> None:
    system, records = fresh()
    have(system, records)
    system.builds["nvidia", "580.159.04"] = Build("nvidia", "580.159.04", "6.1.0", "x86_64", "installed")
    outcome = have(system, records)
    assert outcome.changed
    assert system.called("build") == [("nvidia", "580.159.04", KERNEL)]
    assert len(system.called("apply")) == 1


def test_a_kernel_whose_module_does_not_compile() -> None:
    system, records = fresh()
    have(system, records)
    system.builds["nvidia", "580.159.04"] = Build("nvidia", "580.159.04", "6.1.0", "x86_64", "installed")
    system.does_not_compile = {"580.159.04"}
    before = system.all
    outcome = have(system, records)
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "dkms"
    assert f"boot a kernel older than {KERNEL}" in outcome.trouble.message
    assert system.all == before


def test_packages_without_a_module_in_dkms() -> None:
    system, records = fresh()
    system.does_not_build_by_itself = True
    before = system.all
    outcome = have(system, records)
    assert outcome.trouble is not None
    assert "DKMS has no nvidia module of this version" in outcome.trouble.message
    assert system.all == before


def test_a_module_that_finds_no_room() -> None:
    system, records = fresh()
    system.does_not_compile = {"590.48.01"}
    system.log = lambda *_of: "/b/build/x.c:1:1: fatal error: x.o: No space left on device\n"  # type: ignore[method-assign]
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert outcome.trouble.kind == "disk"
    assert "The disk is full: the kernel module nvidia 590.48.01 could not be built" in outcome.trouble.message


def test_lists_that_are_too_old_are_read_anew_once() -> None:
    system, records = fresh()
    system.fail("simulate", "unresolvable")
    assert have(system, records).trouble is None
    assert system.called("refresh") == [()]
    system, records = fresh()
    system.fail("simulate", "unresolvable")
    system.fail("simulate", "unresolvable")
    with pytest.raises(PackageError, match="simulate failed"):
        have(system, records)
    assert records.record is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"remove": (Package("desktop", "1"),)}, "desktop would be removed, too"),
        ({"change": (Change("kernel", "1", "2"),)}, "somebody holds: kernel"),
    ],
)
def test_what_nobody_has_planned_is_not_done(change: dict[str, t.Any], words: str) -> None:
    system, records = fresh()
    system.put("kernel", "1", held=True)
    before = system.all
    system.simulate = lambda *_of: Transaction(**change)  # type: ignore[method-assign]
    with pytest.raises(PackageError, match=words):
        have(system, records)
    assert (system.all, records.record) == (before, None)


def test_no_room_for_the_way_back_means_no_change() -> None:
    system, records = fresh()
    records.full = True
    before = system.all
    with pytest.raises(OSError, match="No space left") as caught:
        have(system, records)
    assert (system.all, records.record) == (before, None)
    trouble = driver.failed(caught.value).trouble
    assert trouble is not None
    assert trouble.kind == "disk"
    assert trouble.message == "The disk is full at /var/lib/cudahub: make room there and run this again."


# --- absent


def test_absent_takes_away_what_was_brought() -> None:
    system, records = fresh()
    before = system.all
    have(system, records)
    foreseen = driver.absent(host(system, records), check=True)
    assert foreseen.changed
    assert records.record is not None
    outcome = driver.absent(host(system, records), check=False)
    assert outcome == replace(foreseen, builds=())
    assert (system.all, records.record) == (before, None)
    assert driver.absent(host(system, records), check=False) == driver.Outcome(changed=False)


def test_absent_leaves_what_was_there_what_is_needed_what_was_asked_for_and_the_running_kernel() -> None:
    system, records = fresh()
    system.put("libnvidia-ml1", "580.159.04-1")
    have(system, records)
    for name in ("linux-image-6.1.0-1-amd64", "gcc"):
        system.put(name, "1")
    system.needs = {"libcuda1": "cuda-program", "dkms": "zfs-dkms", MODULE: "nvidia-driver-cuda"}
    assert records.record is not None
    records.record = replace(
        records.record, installed=(*records.record.installed, "linux-image-6.1.0-1-amd64", "gcc", "gone")
    )
    outcome = driver.absent(host(system, records), check=False)
    assert outcome.kept == {
        "libcuda1": "cuda-program needs it",
        "dkms": "zfs-dkms needs it",
        "linux-image-6.1.0-1-amd64": "it is the running kernel",
        "gcc": "it has been asked for since",
    }
    assert set(system.packages) == {"bash", "libnvidia-ml1", "libcuda1", "dkms", "linux-image-6.1.0-1-amd64", "gcc"}
    assert not any(one.held for one in system.packages.values())


def test_absent_leaves_the_running_kernel_of_enterprise_linux() -> None:
    system, records = fresh()
    have(system, records)
    system.put("kernel-core", "5.14.0-611.5.1.el9_7")
    system.auto.add("kernel-core")
    for release in ("5.14.0-570.12.1.el9_6.x86_64", "5.14.0-611.5.1.el9_7.x86_64"):
        system.put(f"kernel-core-{release}", release)
    assert records.record is not None
    records.record = replace(records.record, installed=(*records.record.installed, "kernel-core"))
    running = replace(host(system, records), running="5.14.0-570.12.1.el9_6.x86_64")
    assert driver.absent(running, check=False).kept == {"kernel-core": "it is the running kernel"}
    assert "kernel-core" in system.packages


def test_what_had_only_configuration_files_has_only_those_again() -> None:
    system, records = fresh()
    for name in ("libcuda1", MODULE):
        system.put(name, "535.1-1", "config-files")
    system.needs = {"libnvidia-ml1": "libcuda1"}
    system.does_not_compile = {"590.48.01"}
    outcome = have(system, records, "590.48.01")
    assert outcome.trouble is not None
    assert outcome.trouble.message.endswith("The packages are as they were before.")
    assert {name: one.state for name, one in system.packages.items() if name != "bash"} == {
        "libcuda1": "config-files",
        MODULE: "config-files",
    }
    assert records.record is None
    assert have(system, records).trouble is None
    assert have(system, records, "595.71.05").trouble is None
    assert driver.absent(host(system, records), check=False).kept == {}
    assert {name for name, one in system.packages.items() if one.present} == {"bash"}
    assert {name for name, one in system.packages.items() if not one.present} == {"libcuda1", MODULE}
    assert records.record is None


def test_absent_that_fails_in_the_middle_says_what_it_has_changed() -> None:
    system, records = fresh()
    have(system, records)
    system.fail("purge", "lock")
    outcome = driver.absent(host(system, records), check=False)
    assert outcome.trouble is not None
    assert (outcome.trouble.kind, outcome.trouble.message) == ("lock", "purge failed.")
    assert outcome.changed, "the holds are gone"
    assert "libcuda1 580.159.04-1 held\n" in outcome.before
    assert "libcuda1 580.159.04-1\n" in outcome.after
    assert records.record is not None
    assert driver.absent(host(system, records), check=False).trouble is None
    assert records.record is None


def test_absent_does_not_fail_for_what_is_none_of_its_business() -> None:
    system, records = fresh()
    system.put("cups", "2", "half-configured")
    have(system, records)
    system.put("cups", "2", "half-configured")
    system.repair = fails(BUSY)  # type: ignore[method-assign]
    assert driver.absent(host(system, records), check=False).trouble is None
    assert records.record is None
    assert set(system.packages) == {"bash", "cups"}


def test_absent_fails_for_a_package_that_it_can_not_finish() -> None:
    system, records = installed_by_hand()
    system.fail("apply", "interrupted")
    have(system, records)
    system.put("libcuda1", "580.159.04-1", "half-configured")
    system.repair = fails(BUSY)  # type: ignore[method-assign]
    outcome = driver.absent(host(system, records), check=False)
    assert outcome.trouble is not None
    assert outcome.trouble.message == "It did not work."
    assert records.record is not None


def test_absent_after_a_killed_run() -> None:
    system, records = fresh()
    before = system.all
    system.fail("apply", "interrupted")
    have(system, records)
    system.put(MODULE, "580.159.04-1", "half-configured")
    system.put("dkms", "3")
    system.auto.add("dkms")
    driver.absent(host(system, records), check=False)
    assert (system.all, records.record) == (before, None)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (PackageError("lock", "It is busy"), "lock", "It is busy."),
        (PackageError("signature", "No."), "download", "No."),
        (_driver_record.PlanError("bad plan"), "package_manager", "bad plan."),
        (
            OSError(errno.EACCES, "Permission denied", "/var/log/x"),
            "package_manager",
            (
                "/var/log/x can't be written: Permission denied; look at its owner, mode and file system, and run this "
                "again."
            ),
        ),
    ],
)
def test_errors_in_one_sentence(error: Exception, kind: str, message: str) -> None:
    outcome = driver.failed(error)
    assert outcome.trouble == driver.Trouble(t.cast("t.Any", kind), message)
    assert not outcome.changed
