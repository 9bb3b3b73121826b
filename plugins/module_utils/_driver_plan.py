# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan to install the driver: what is there, what is asked for, what can be had, and what forbids it."""

from __future__ import annotations

import errno
import re
import typing as t
from dataclasses import asdict, dataclass, field

from . import _dkms, _driver_choice, _driver_packages, _kernel_headers, _preflight
from ._driver_packages import Notice, RefusedError
from ._driver_record import Record
from ._packages import Package, PackageError, RepositoryError, Transaction

PLACES = {"/var/log/cudahub": "the log of the packages", "/var/lib/cudahub": "the record of what was installed"}
"""Directories that a transaction writes to, beside what the package manager does, and what for."""


if t.TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ._driver_packages import Available, Current, Gpus, Offer, Source, System, Wish
    from ._packages import Installed, Reader
    from ._pci import Files

_DKMS = re.compile("dkms")
_DPKG_UPDATES = "/var/lib/dpkg/updates"


@dataclass(frozen=True)
class Request:
    """What the module was asked for.

    ``kernel`` is ``running``, ``newest`` or a release, and ``fabric_manager`` the option from which the wish follows.
    """

    wish: Wish
    gpus: Gpus
    kernel: str = "running"
    secure_boot: str = "refuse"
    ignore_processes: bool = False
    fabric_manager: str = "auto"


class Catalogue(t.Protocol):
    """What the system's repositories and the source of the driver offer, read afresh."""

    @property
    def reader(self) -> Reader:
        """All of it, the packages of the system included."""

    @property
    def unread(self) -> t.Sequence[PackageError]:
        """The repositories that could not be read, and that may not matter."""

    def offered(self, pattern: re.Pattern[str]) -> Available:
        """Only what the source of the driver offers, by name."""


class Host(t.Protocol):
    """The host, as far as the plan depends on it."""

    @property
    def files(self) -> Files:
        """The file system that packages are installed to."""

    @property
    def machine_files(self) -> Files:
        """The tree in which firmware, devices and processes are seen: made up on a simulated host."""

    @property
    def uid(self) -> int:
        """Who runs this."""

    def system(self) -> System:
        """Distribution, release and running kernel. Raises RefusedError."""

    def installed(self) -> dict[str, Installed]:
        """The packages of the system."""

    def builds(self) -> tuple[_dkms.Build, ...]:
        """What DKMS has built."""

    def record(self) -> Record:
        """What this collection has done to the host before. Raises RefusedError where that can't be read."""

    def owner(self, path: str) -> str | None:
        """The package that a file belongs to."""

    @property
    def key_url(self) -> str | None:
        """Where the key of the repository is, if one is wanted."""

    def writable(self, path: str) -> bool:
        """Whether a directory, given by its real path, can be written."""

    def space(self, path: str) -> _preflight.Space:
        """The room on the file system of a path, or of where it will be."""

    def size(self, path: str) -> int:
        """The bytes of a file."""

    def repository(self) -> dict[str, t.Any] | None:
        """What has to be added to the package manager's sources; None when nothing has to.

        Raises PackageError, and RefusedError when it can't be trusted.
        """

    def catalogue(self) -> AbstractContextManager[Catalogue]:
        """The repositories, read without changing anything of the host. Raises PackageError."""


@dataclass
class Plan:
    """The plan as the module returns it; documented there."""

    source: str
    satisfied: bool = False
    branch: str | None = None
    version: str | None = None
    kernel_module: str | None = None
    kernels: list[str] = field(default_factory=list)
    packages: list[dict[str, str]] = field(default_factory=list)
    transaction: dict[str, list[dict[str, str]]] = field(default_factory=Transaction().as_dict)
    hold: list[str] = field(default_factory=list)
    unhold: list[str] = field(default_factory=list)
    download_bytes: int | None = None
    disk_bytes: int | None = None
    repair: bool = False
    why: list[str] = field(default_factory=list)
    available: dict[str, list[str]] = field(default_factory=dict)
    repository: dict[str, t.Any] | None = None
    module_stream: str | None = None
    ways_out: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """A plan, with what forbids it and what should be known of it."""

    plan: Plan
    refusals: list[Notice] = field(default_factory=list)
    warnings: list[Notice] = field(default_factory=list)

    def as_dict(self) -> dict[str, t.Any]:
        return asdict(self)


def make(request: Request, host: Host) -> Outcome:
    """The plan for a host. What can't be done is told as refusals, all of them together; nothing is raised for that."""
    outcome = Outcome(Plan(request.wish.source))
    try:
        system = host.system()
    except RefusedError as error:
        outcome.refusals += error.refusals
        return outcome
    try:
        _Planner(request, host, system, outcome).work()
    except OSError as error:
        outcome.refusals.append(_file_refusal(error))
    return outcome


class _Planner:
    """One plan in the making."""

    def __init__(self, request: Request, host: Host, system: System, outcome: Outcome) -> None:
        self.request, self.host, self.system = request, host, system
        self.wish, self.gpus = request.wish, request.gpus
        self.outcome, self.plan, self.refusals = outcome, outcome.plan, outcome.refusals
        self.installed: dict[str, Installed] = {}
        self.record = Record()

    def work(self) -> None:
        host, system = self.host, self.system
        self.refusals += _preflight.no_root(host.uid)
        self.refusals += _preflight.container(system, self.request.kernel)
        self.refusals += _preflight.secure_boot(host.machine_files, self.request.secure_boot)
        self.refusals += _driver_choice.check_wish(system, self.wish, self.gpus)
        if self.request.fabric_manager == "auto" and not self.wish.fabric_manager:
            self.outcome.warnings += _driver_choice.hidden_nvlink_switches(self.gpus)
        try:
            self.installed = host.installed()
            # What is loaded where an image is built is not the image's.
            machine = host.machine_files if self.request.kernel == "running" else None
            self.refusals += _preflight.runfile(host.files, machine, self._kernels({}), self.installed, host.owner)
            self.record = host.record()
            self.plan.repository = host.repository()
        except PackageError as error:
            self.refusals.append(_repository_refusal(self.wish.source, error, self.host.key_url))
            return
        except RefusedError as error:
            self.refusals += error.refusals
            return
        found = _driver_packages.current(system, self.wish.source, self.installed)
        self.plan.why = self._reasons(found)
        if found is not None and not self.plan.why and not self.wish.upgrade:
            self._stay(found)
            return
        others = _preflight.broken_of_others(self.installed, self.record.pending.names if self.record.pending else ())
        self.refusals += _preflight.broken_packages(others)
        broken = [one for one in self.installed.values() if one.broken and one not in others]
        self.plan.repair = bool(broken or host.files.names(_DPKG_UPDATES))
        present = any(_of_driver(one) for one in self.installed.values() if one.present)
        if (present or self.request.kernel == "running") and not self.request.ignore_processes:
            self.refusals += _preflight.processes(_preflight.gpu_processes(host.machine_files), self.gpus)
        try:
            with host.catalogue() as catalogue:
                self._plan(found, catalogue)
        except PackageError as error:
            self.refusals.append(_repository_refusal(self.wish.source, error, self.host.key_url))
        except RefusedError as error:
            self.refusals += [one for one in error.refusals if one not in self.refusals]

    def _reasons(self, found: Current | None) -> list[str]:
        """Why what is installed is not what is asked for, as far as that can be told without a repository."""
        if found is None:
            return [f"No driver of source {self.wish.source} is installed completely"]
        reasons = [_sentence(reason) for reason in _driver_choice.misfits(found, self.wish, self.gpus)]
        if self._is_of_other_source(found):
            reasons.append(self._other_source())
        if self._unneeded():
            reasons.append(
                "The fabric manager is installed, and neither an NVSwitch nor nvidia_driver_fabric_manager asks for it"
            )
        broken = sorted(one.name for one in self.installed.values() if one.broken and _of_driver(one))
        if broken:
            reasons.append(f"An installation was interrupted: {', '.join(broken)} must still be configured")
        kernels = self._kernels({})
        if not kernels:
            reasons.append("No kernel is installed yet")
        built = {build.kernel for build in _dkms.of_driver(self.host.builds(), found.version) if build.is_installed}
        lacking = [kernel for kernel in kernels if kernel not in built]
        reasons += [f"DKMS has no module of {found.version} installed for kernel {kernel}" for kernel in lacking]
        family = [package.name for package in found.packages]
        loose = [name for name in family if not self.installed[name].held]
        if self.wish.hold and loose:
            reasons.append(f"Not held: {', '.join(loose)}")
        unwanted = self._unhold(family if self.wish.hold else [])
        if unwanted:
            reasons.append(f"Still held: {', '.join(unwanted)}")
        return reasons

    def _is_of_other_source(self, found: Current) -> bool:
        """Whether we have installed it from another source, whose packages have the same names."""
        brought = self.record.brought
        return self.record.source not in ("", self.wish.source) and any(one.name in brought for one in found.packages)

    def _other_source(self) -> str:
        wanted = self.wish.source
        return f"The driver that is installed is from source {self.record.source}, and source {wanted} is asked for"

    def _unneeded(self) -> list[str]:
        """The fabric manager that we have installed and that is not wanted any more."""
        if self.wish.fabric_manager:
            return []
        brought = self.record.brought
        return [name for name in _driver_packages.fabric_managers(self.installed) if name in brought]

    def _of_this_source(self, found: Current | None, offered: Available) -> Current | None:
        """The installed driver, if this source has given it, or has the very same packages."""
        if found is None or not self._is_of_other_source(found):
            return found
        if any(package.version not in offered.get(package.name, ()) for package in found.packages):
            return None
        self.plan.why.remove(self._other_source())
        return found

    def _stay(self, found: Current) -> None:
        self.plan.satisfied = True
        self.plan.why = [f"{found.version} is installed as asked for"]
        self.plan.branch, self.plan.version, self.plan.kernel_module = found.branch, found.version, found.kernel_module
        self.plan.kernels = self._kernels({})
        self.plan.packages = [asdict(package) for package in found.packages]
        self.plan.hold = [package.name for package in found.packages] if self.wish.hold else []
        self.plan.download_bytes = self.plan.disk_bytes = 0
        self.outcome.warnings += _driver_choice.support_ended(self.wish, self.gpus, found.branch, None)

    def _plan(self, found: Current | None, catalogue: Catalogue) -> None:
        wish, system, reader = self.wish, self.system, catalogue.reader
        offered = catalogue.offered(_driver_packages.candidate_names(system))
        found = self._of_this_source(found, offered)
        given = None if self.request.kernel == "newest" else self._kernels({})
        headers = reader.available(_kernel_headers.header_names(system, given))
        kernels = self.plan.kernels = self._kernels(headers)
        self.refusals += _preflight.foreign_packages(
            wish.source, self.installed, offered, reader.origin, self.record.brought
        )
        self.refusals += _preflight.dkms_missing(system, self.installed, offered)
        if "container" not in [one.code for one in self.refusals]:
            self.refusals += _preflight.headers(system, kernels, self.installed, headers, self.host.files)
        offers = _driver_packages.offers(system, wish, offered)
        for offer in (one for one in offers if not one.lacks):
            versions = self.plan.available.setdefault(offer.branch, [])
            if offer.version not in versions:
                versions.append(offer.version)
        ranked = _driver_choice.choose(system, wish, self.gpus, offers, found)
        needed = _kernel_headers.header_packages(system, kernels, self.installed, headers, self.host.files)
        unneeded = self._unneeded()
        unresolved: list[tuple[Offer, str]] = []
        for offer in ranked:
            remove = _driver_packages.superseded(offer, self.installed, offered, unneeded)
            along = _driver_packages.companions(offer, self.installed, offered, unneeded)
            wanted = (*offer.packages, *along, *needed)
            try:
                transaction = reader.simulate(wanted, remove, offer.version)
            except PackageError as error:
                if error.kind != "unresolvable":
                    raise
                unresolved.append((offer, error.message))
                continue
            held = self._held_by_others(transaction)
            if held:
                unresolved.append((offer, f"held and to be changed: {', '.join(held)}"))
                continue
            self._take(offer, wanted, transaction)
            explanation = _driver_choice.explain(wish, self.gpus, offers, found, offer, unresolved)
            self.plan.why += explanation.why
            self.outcome.warnings += explanation.warnings
            self.outcome.warnings += [_unread_warning(error) for error in catalogue.unread]
            if kernels:
                self.plan.ways_out += _driver_choice.ways_out(wish, self.gpus, offers, offer, kernels[-1])
            return
        self.refusals += [_repository_refusal("distro", error) for error in catalogue.unread]
        self.refusals += _preflight.dkms_too_old(
            system, self.installed, reader.available(_DKMS), [reason for _offer, reason in unresolved]
        ) or [_driver_choice.unresolvable(wish, unresolved)]

    def _take(self, offer: Offer, wanted: t.Sequence[Package], transaction: Transaction) -> None:
        plan = self.plan
        plan.branch, plan.version, plan.kernel_module = offer.branch, offer.version, offer.kernel_module
        plan.packages = [asdict(package) for package in wanted]
        plan.transaction = transaction.as_dict()
        plan.module_stream = transaction.module_stream
        plan.download_bytes, plan.disk_bytes = transaction.download_bytes, transaction.disk_bytes
        family = self._after(transaction)
        plan.hold = family if self.wish.hold else []
        plan.unhold = self._unhold(plan.hold)
        self.refusals += self._other_kernels(transaction)
        self.outcome.warnings += self._losses(transaction)
        initramfs = _preflight.initramfs_size(self.host.files, self.host.size)
        needs = _preflight.disk_needs(self.system, transaction, len(plan.kernels), initramfs)
        self.refusals += _preflight.disk(needs, self.host.space)
        if not transaction.empty and self.host.uid == 0:
            self.refusals += _preflight.places(self.host.files, PLACES, self.host.writable)
        plan.satisfied = transaction.empty and not plan.why and not plan.repair
        if transaction.empty:
            no_matter = ("processes", "broken_package") if plan.satisfied else ("processes",)
            self.refusals[:] = [one for one in self.refusals if one.code not in no_matter]

    def _held_by_others(self, transaction: Transaction) -> list[str]:
        """The packages that somebody holds, that are not of the driver, and that a transaction would touch."""
        packages = [self.installed[name] for name in transaction.replaced if name in self.installed]
        return sorted(one.name for one in packages if one.held and not _of_driver(one))

    def _losses(self, transaction: Transaction) -> t.Iterator[Notice]:
        others = [one.name for one in transaction.remove if not _driver_packages.in_family(one.name, one.version)]
        if others:
            yield Notice(
                "removes_others",
                f"Other packages would be removed, as they can't stay beside this driver: {', '.join(others)}",
            )

    def _other_kernels(self, transaction: Transaction) -> t.Iterator[Notice]:
        changed = (Package(one.name, one.new) for one in transaction.change if self.system.distribution == "rhel")
        for package in (*transaction.install, *changed):
            release = _kernel_headers.kernel_of(self.system, package)
            if release and release not in self.plan.kernels:
                wanted = ", ".join(self.plan.kernels)
                yield Notice(
                    "headers_missing",
                    f"Installing the driver for kernel {wanted} would bring another kernel, {package.name} "
                    f"{package.version}: boot that kernel first, or set nvidia_driver_kernel to {release}",
                )

    def _kernels(self, available: Available) -> list[str]:
        """The kernels that the module is wanted for; none where the newest is not known yet."""
        if self.request.kernel == "running":
            return [self.system.kernel]
        if self.request.kernel != "newest":
            return [self.request.kernel]
        newest = _kernel_headers.newest_kernel(self.system, self.installed, available)
        return [] if newest is None else [newest]

    def _after(self, transaction: Transaction) -> list[str]:
        """The packages of the driver that are installed after a transaction."""
        versions = transaction.after({one.name: one.version for one in self.installed.values() if one.present})
        return sorted(name for name, version in versions.items() if _driver_packages.in_family(name, version))

    def _unhold(self, keep: t.Container[str]) -> list[str]:
        return sorted(
            name
            for name in self.record.held
            if name not in keep and name in self.installed and self.installed[name].held
        )


def _sentence(clause: str) -> str:
    return clause[:1].upper() + clause[1:]


def _of_driver(package: Installed) -> bool:
    return _driver_packages.in_family(package.name, package.version)


def _repository_refusal(source: Source, error: PackageError, key_url: str | None = None) -> Notice:
    if isinstance(error, RepositoryError):
        return _preflight.repository(error.kind, error.url, error.reason, source, key_url)
    return Notice("repository", error.message)


def _file_refusal(error: OSError) -> Notice:
    place = error.filename or "a file of this module"
    if error.errno == errno.ENOSPC:
        return Notice("disk", f"The disk is full at {place}: make room there")
    return Notice(
        "files",
        f"{place} can't be read or written ({error.strerror or error}): look at its owner, mode and file system",
    )


def _unread_warning(error: PackageError) -> Notice:
    return Notice("repository_unread", f"A repository of this host was left out of account: {error.message}")
