# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's packages changed as a whole: either it is as planned, built and held, or as it was before."""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import typing as t
from dataclasses import dataclass, field, replace

from ._dkms import TREE, Build, Failure, failures_in, first_error, of_driver
from ._driver_packages import PINNING, in_family, is_family
from ._driver_record import Pending, Record, Was
from ._packages import Package, PackageError, Transaction

if t.TYPE_CHECKING:
    from ._driver_record import Plan, Records
    from ._packages import ErrorKind, Installed, Reader, Result, Writer

FailureKind = t.Literal["lock", "download", "unresolvable", "disk", "dkms", "interrupted", "in_use", "package_manager"]

_KINDS: t.Mapping[ErrorKind, FailureKind] = {
    "lock": "lock",
    "disk": "disk",
    "unresolvable": "unresolvable",
    "interrupted": "interrupted",
    "network": "download",
    "signature": "download",
    "not_found": "download",
    "checksum": "download",
    "download": "download",
    "package_manager": "package_manager",
}
_NO_SPACE = "No space left on device"
_KERNEL_IMAGE = re.compile(r"(?:linux-(?:image|modules)|kernel(?:-core|-modules\S*)?)(?:-|$)")


class Dkms(t.Protocol):
    """DKMS of the host."""

    def status(self) -> tuple[Build, ...]:
        """All builds; none where there is no DKMS."""

    def build(self, module: str, version: str, kernel: str) -> Result:
        """Build and install a module for a kernel."""

    def log(self, module: str, version: str, kernel: str) -> str | None:
        """The text of the make.log of the latest build for a kernel."""

    def keep(self, failure: Failure, text: str) -> str:
        """Keep a copy of a make.log where a rollback does not delete it; its path."""


@dataclass(frozen=True)
class Host:
    """What the transaction works with. ``running`` is the release of the running kernel."""

    reader: Reader
    writer: Writer
    dkms: Dkms
    records: Records
    say: t.Callable[[str], None]
    running: str


@dataclass(frozen=True)
class Trouble:
    """Why the packages are not as asked for."""

    kind: FailureKind
    message: str
    details: str = ""


@dataclass(frozen=True)
class Outcome:
    """What was done, or would be in check mode."""

    changed: bool
    transaction: Transaction = field(default_factory=Transaction)
    before: str = ""
    after: str = ""
    builds: tuple[Build, ...] = ()
    kept: t.Mapping[str, str] = field(default_factory=dict)
    trouble: Trouble | None = None


@dataclass(frozen=True)
class _Work:
    """What is left to do of a plan."""

    repair: bool
    packages: bool
    remove: tuple[str, ...]
    kernels: tuple[str, ...]
    hold: tuple[str, ...]
    unhold: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        return not (self.repair or self.packages or self.kernels or self.hold or self.unhold)


class _FailedError(Exception):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


# --- present ----------------------------------------------------------------------------------------------------------


def present(host: Host, plan: Plan, *, hold: bool, check: bool) -> Outcome:
    """Have the driver's packages as planned. Raises PlanError, PackageError before any change, OSError."""
    record = host.records.read()
    pending = record.pending if record else None
    builds = of_driver(host.dkms.status())
    now = host.reader.installed()
    work = _work(plan, hold, now, builds, record)
    if work.nothing and pending is None:
        return Outcome(changed=False, builds=builds)
    if check:
        planned = plan.transaction if work.packages else Transaction()
        return Outcome(True, planned, _listing(now, _names(planned, work)), _foreseen(now, planned, work, hold), builds)
    return _Present(host, plan, hold, record or Record(), now, work).run()


def _work(
    plan: Plan,
    hold: bool,
    now: t.Mapping[str, Installed],
    builds: t.Iterable[Build],
    record: Record | None,
) -> _Work:
    there = {name for name, one in now.items() if one.present}
    remove = tuple(one.name for one in plan.transaction.remove if one.name in there)
    wanted = {one.name: one.version for one in plan.packages}
    missing = any(
        name not in there or now[name].version != version or now[name].broken for name, version in wanted.items()
    )
    broken = any(one.broken and is_family(name) for name, one in now.items())
    packages = missing or broken or bool(remove)
    hold_now, unhold_now = ((), ()) if packages else _holds(plan, hold, now, record)
    return _Work(plan.repair, packages, remove, _not_built(plan, builds), hold_now, unhold_now)


def _not_built(plan: Plan, builds: t.Iterable[Build]) -> tuple[str, ...]:
    built = {build.kernel for build in of_driver(builds, plan.version) if build.is_installed}
    return tuple(kernel for kernel in plan.kernels if kernel not in built)


def _holds(
    plan: Plan, hold: bool, now: t.Mapping[str, Installed], record: Record | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The packages to hold and to hold no more: the driver's own in its version, and what we held before."""
    wanted = (
        {name for name, one in now.items() if one.present and not one.broken and in_family(name, one.version)}
        if hold
        else set()
    )
    held = {name for name, one in now.items() if one.held}
    ours = set(record.held if record else ()) | set(plan.unhold)
    return tuple(sorted(wanted - held)), tuple(sorted((ours & held) - wanted))


def _names(transaction: Transaction, work: _Work) -> set[str]:
    return {*(one.name for one in transaction.install), *transaction.replaced, *work.hold, *work.unhold}


def _listing(packages: t.Mapping[str, Installed], names: t.Collection[str]) -> str:
    return "".join(
        _line(one.name, one.version, held=one.held, state=one.state)
        for name, one in sorted(packages.items())
        if name in names and one.present
    )


def _line(name: str, version: str, *, held: bool, state: str = "installed") -> str:
    return f"{name} {version}{'' if state == 'installed' else f' {state}'}{' held' if held else ''}\n"


def _foreseen(now: t.Mapping[str, Installed], transaction: Transaction, work: _Work, hold: bool) -> str:
    """The listing after a transaction that is not done."""
    names = _names(transaction, work)
    versions = transaction.after({one.name: one.version for one in now.values() if one.present and one.name in names})

    def is_held(name: str) -> bool:
        if hold and in_family(name, versions[name]):
            return True
        return name in now and now[name].held and name not in work.unhold

    return "".join(_line(name, version, held=is_held(name)) for name, version in sorted(versions.items()))


class _Present:
    """One run of a transaction, with what has to be known to take it back."""

    def __init__(
        self, host: Host, plan: Plan, hold: bool, record: Record, now: dict[str, Installed], work: _Work
    ) -> None:
        self._host = host
        self._plan = plan
        self._hold = hold
        self._given = record
        self._old = replace(record, pending=None)
        self._record = record
        self._start = now
        self._work = work
        self._transaction = Transaction()

    def run(self) -> Outcome:
        if self._work.packages:
            self._transaction = self._simulated()
        self._begin()
        try:
            self._change()
            self._build()
            self._finish()
        except _FailedError as failed:
            return self._outcome(self._undone(failed.trouble))
        except PackageError as error:
            return self._outcome(self._undone(self._trouble(error)))
        except OSError as error:
            return self._outcome(self._undone(_of_file(error)))
        self._host.records.release()
        return self._outcome(None)

    def _simulated(self) -> Transaction:
        """What the package manager would do now. Raises PackageError."""
        request = self._plan.packages, self._work.remove, self._plan.version
        try:
            transaction = self._host.reader.simulate(*request)
        except PackageError as error:
            if error.kind != "unresolvable":
                raise
            self._host.writer.refresh()
            transaction = self._host.reader.simulate(*request)
        planned = {one.name for one in self._plan.transaction.remove}
        more = sorted(one.name for one in transaction.remove if one.name not in planned and not is_family(one.name))
        if more:
            raise PackageError(
                "unresolvable",
                f"Other packages have changed since the plan was made: {', '.join(more)} would be removed, too; make a "
                "new plan with cudahub.gpu.driver_plan, and look at what it says",
            )
        held = sorted(
            name
            for name in transaction.replaced
            if not is_family(name) and name in self._start and self._start[name].held
        )
        if held:
            raise PackageError(
                "unresolvable",
                f"The driver needs other versions of packages that somebody holds: {', '.join(held)}; take these holds "
                "back, or take another version of the driver",
            )
        return transaction

    def _begin(self) -> None:
        """Write down what is there, before anything is changed."""
        old = self._record.pending or Pending(frozenset(), {})
        touched = _names(self._transaction, self._work) | {one.name for one in self._plan.packages}
        touched |= {name for name in self._start if is_family(name)}
        added = touched - old.names
        automatic = self._host.writer.automatic()
        before = dict(old.before)
        for name in added:
            one = self._start.get(name)
            if one:
                before[name] = Was(one.version, one.state, one.held, name in automatic)
        self._pending = Pending(old.names | touched, before)
        self._record = replace(self._record, pending=self._pending)
        self._host.records.reserve()
        try:
            self._host.records.write(self._record)
        except OSError:
            self._host.records.release()
            raise

    def _change(self) -> None:
        broken = {name for name, one in self._start.items() if one.broken}
        if broken - self._transaction.replaced or (self._work.repair and not self._work.packages):
            self._repair()
        if self._work.packages and broken:
            self._apply_all_by_name()
        elif self._work.packages:
            self._host.writer.apply(self._plan.packages, self._work.remove, self._plan.version)

    def _apply_all_by_name(self) -> None:
        """Apply with dependencies named, too: where some are unmet, the package manager resolves nothing by itself."""
        asked = {one.name: one.version for one in self._plan.packages}
        broken = {name: one.version for name, one in self._start.items() if one.broken and in_family(name, one.version)}
        wanted = {**self._transaction.after(broken), **asked}
        install = [Package(name, version) for name, version in sorted(wanted.items())]
        self._host.writer.apply(install, self._work.remove, self._plan.version)
        now = self._host.reader.installed()
        nobodys = {name for name in self._pending.names if self._is_ours(name)}
        nobodys |= {name for name, was in self._pending.before.items() if was.automatic}
        there = {name for name in nobodys - asked.keys() if name in now and now[name].present}
        self._host.writer.mark_automatic(sorted(there))

    def _repair(self) -> None:
        """Finish what was interrupted; what is left undone for want of a dependency, the transaction brings."""
        self._host.say("Finishing a transaction that was interrupted")
        try:
            self._host.writer.repair()
        except PackageError as error:
            if error.kind in {"lock", "disk"} or failures_in(error.details) or not self._work.packages:
                raise

    def _build(self) -> None:
        """Have the module for every kernel that was asked for."""
        for kernel in _not_built(self._plan, self._host.dkms.status()):
            known = of_driver(self._host.dkms.status(), self._plan.version)
            if not known:
                raise _FailedError(
                    Trouble(
                        "dkms",
                        f"The packages of driver {self._plan.version} are installed, but DKMS has no nvidia module of "
                        f"this version to build for kernel {kernel}",
                    )
                )
            result = self._host.dkms.build(known[0].module, known[0].version, kernel)
            if result.rc:
                failed = failures_in(result.stdout) or (Failure(known[0].module, known[0].version, kernel, None, None),)
                raise _FailedError(self._not_compiled(failed[0], result.stdout))

    def _finish(self) -> None:
        now = self._host.reader.installed()
        removed = [
            name
            for name in sorted(self._pending.names)
            if name in now and not now[name].present and (name in self._new(now) or name.startswith(PINNING))
            if name not in self._record.leftovers
        ]
        self._host.writer.purge(removed)
        if removed:
            now = self._host.reader.installed()
        hold, unhold = _holds(self._plan, self._hold, now, self._old)
        lost = {
            name
            for name, was in self._pending.before.items()
            if was.held and name in now and now[name].present and not now[name].held and name not in unhold
        }
        if not self._hold:
            lost -= set(self._old.held)
        self._host.writer.unhold(unhold)
        self._host.writer.hold(sorted({*hold, *(lost - set(unhold))}))
        ours = ({*self._old.held, *hold} - set(unhold) - self._record.held_by_others) & now.keys()
        automatic = _mark_again(self._host.writer, self._pending, now)
        asked = {one.name for one in self._plan.packages} - automatic
        new = self._new(now)
        self._host.records.write(
            Record(
                source=self._plan.source,
                branch=self._plan.branch,
                driver_version=self._plan.version,
                kernel_module=self._plan.kernel_module,
                installed=tuple(sorted(new)),
                asked=tuple(sorted({*self._old.asked, *asked} & now.keys())),
                held=tuple(sorted(ours)),
                before={name: was for name, was in self._record.first.items() if name not in new or not was.there},
            )
        )

    def _new(self, now: t.Mapping[str, Installed]) -> set[str]:
        """The packages that are there and were not before our first transaction."""
        return {name for name in now if name in self._old.installed or self._is_ours(name)}

    def _is_ours(self, name: str) -> bool:
        was = self._pending.before.get(name)
        return name in self._pending.names and (was is None or not was.there)

    # --- failures -----------------------------------------------------------------------------------------------------

    def _trouble(self, error: PackageError) -> Trouble:
        failed = failures_in(error.details)
        if failed and error.kind not in {"lock", "interrupted"}:
            return self._not_compiled(failed[0], error.details)
        return Trouble(_KINDS[error.kind], error.message, error.details)

    def _not_compiled(self, failure: Failure, output: str) -> Trouble:
        text = self._host.dkms.log(failure.module, failure.version, failure.kernel)
        reason = first_error(text) if text else None
        reason = reason or first_error(output) or "DKMS gave no reason"
        if _NO_SPACE in reason:
            return Trouble(
                "disk",
                f"The disk is full: the kernel module {failure.module} {failure.version} could not be built for kernel "
                f"{failure.kernel} ({reason}); make room in {TREE} and for temporary files, and run this again",
                text or output,
            )
        message = (
            f"The kernel module {failure.module} {failure.version} does not compile for kernel {failure.kernel}: "
            f"{reason}."
        )
        if text:
            try:
                message += f" Log: {self._host.dkms.keep(failure, text)}."
            except OSError as error:
                message += f" Its log could not be kept: {_of_file(error).message}"
        ways = [*self._plan.ways_out] or [f"boot a kernel older than {failure.kernel} and install its headers"]
        message += f" Ways out: {'; '.join(ways)}."
        return Trouble("dkms", message, text or output)

    def _undone(self, trouble: Trouble) -> Trouble:
        """Have the packages as they were, and say whether they are."""
        try:
            after = self._taken_back(trouble)
        except (PackageError, OSError) as error:
            after = f"Going back to the packages that were there before was not finished: {_reason(error)}"
        return replace(trouble, message=f"{_sentence(trouble.message)} {after}")

    def _taken_back(self, trouble: Trouble) -> str:
        """Have the packages as they were; how they are then. Raises PackageError, OSError."""
        with contextlib.suppress(OSError):  # room that stays set aside must not end the way back
            self._host.records.release()
        if trouble.kind == "interrupted":
            return "Run this again: it is finished from where it is now."
        if trouble.kind == "lock" and self._host.reader.installed() == self._start:
            self._forget(self._given)
            return "Nothing was changed."
        with contextlib.suppress(OSError):  # nor must a log that can't be written
            self._host.say(f"Going back to the packages that were there before: {trouble.message}")
        problems = self._rollback()
        differences = self._differences(self._host.reader.installed())
        if not differences:
            self._forget(self._old)
            return "The packages are as they were before."
        problems.append(f"Not as before: {', '.join(differences)}")
        self._host.records.write(self._record)
        return " ".join(map(_sentence, problems))

    def _forget(self, record: Record) -> None:
        """Have the record as it was."""
        if record == Record():
            self._host.records.remove()
        else:
            self._host.records.write(record)

    def _rollback(self) -> list[str]:
        """Take back what was changed; what could not be taken back, in sentences."""
        problems: list[str] = []

        def attempt(what: str, act: t.Callable[[], None]) -> bool:
            try:
                act()
            except (PackageError, OSError) as error:
                problems.append(f"{what}: {_reason(error)}")
                return False
            return True

        writer = self._host.writer
        restore: list[Package] = []
        lost: list[Package] = []
        try:
            restore, lost = self._to_restore()
        except PackageError as error:
            problems.append(f"The old versions could not be looked up: {error.message}")
        if lost:
            problems.append(
                f"{', '.join(f'{one.name} {one.version}' for one in lost)} can't come back, as no repository of this "
                "host offers it any more"
            )
        new = self._to_purge()
        if restore:
            attempt(
                "The old versions could not be installed again",
                lambda: writer.apply(restore, [name for name, is_present in new.items() if is_present], None),
            )
            new = self._to_purge()
        if new and not attempt("Not everything new could be removed", lambda: self._take_away(new)):
            for name in sorted(new):
                attempt(f"{name} could not be removed", functools.partial(self._take_away, [name]))
        now = self._host.reader.installed()
        if any(now[name].broken for name in self._pending.names & now.keys()):
            attempt("Not everything could be configured", writer.repair)
            now = self._host.reader.installed()
        self._restore_marks(now, attempt)
        return problems

    def _to_restore(self) -> tuple[list[Package], list[Package]]:
        """The packages to get back in their old version, and those that nobody offers."""
        now = self._host.reader.installed()
        wanted = [
            Package(name, was.version)
            for name, was in sorted(self._pending.before.items())
            if was.there and not _is_at(now, name, was.version)
        ]
        offered = [one for one in wanted if self._host.reader.origin(one) is not None]
        return offered, [one for one in wanted if one not in offered]

    def _to_purge(self) -> dict[str, bool]:
        """The packages that were not there before, with whether more than their configuration files is there."""
        now = self._host.reader.installed()
        ours = {name: now[name].present for name in sorted(self._pending.names & now.keys()) if self._is_ours(name)}
        return {name: there for name, there in ours.items() if there or name not in self._record.leftovers}

    def _take_away(self, names: t.Collection[str]) -> None:
        take_away(self._host.writer, names, self._record.leftovers)

    def _restore_marks(
        self, now: t.Mapping[str, Installed], attempt: t.Callable[[str, t.Callable[[], None]], bool]
    ) -> None:
        before = {name: was for name, was in self._pending.before.items() if name in now and now[name].present}
        hold = sorted(name for name, was in before.items() if was.held and not now[name].held)
        unhold = sorted(name for name, was in before.items() if not was.held and now[name].held)
        attempt("Not everything could be held again", lambda: self._host.writer.hold(hold))
        attempt("Not every hold could be taken back", lambda: self._host.writer.unhold(unhold))

        def mark() -> None:
            automatic = self._host.writer.automatic()
            marks = sorted(name for name, was in before.items() if was.automatic and name not in automatic)
            self._host.writer.mark_automatic(marks)

        attempt("Not every mark could be set again", mark)

    def _differences(self, now: t.Mapping[str, Installed]) -> list[str]:
        found = []
        automatic = self._host.writer.automatic()
        for name in sorted(self._pending.names):
            was, one = self._pending.before.get(name), now.get(name)
            if one is None and (was is None or not was.there):
                continue
            if one is not None and (was is None or (one.present and not was.there)):
                found.append(f"{name} {one.version} is {one.state}")
            elif was is not None and one is None:
                found.append(f"{name} {was.version} is gone")
            elif was is not None and one is not None and was.there:
                if not _is_at(now, name, was.version):
                    found.append(f"{name} is {one.version} instead of {was.version}")
                elif one.broken and was.state == "installed":
                    found.append(f"{name} is {one.state}")
                elif one.held != was.held:
                    found.append(f"{name} is {'held' if one.held else 'not held'}")
                elif was.automatic and name not in automatic:
                    found.append(f"{name} counts as asked for")
        return found

    def _outcome(self, trouble: Trouble | None) -> Outcome:
        names = self._pending.names
        before = "".join(
            _line(name, was.version, held=was.held, state=was.state)
            for name, was in sorted(self._pending.before.items())
            if was.there
        )
        try:
            after = _listing(self._host.reader.installed(), names)
        except PackageError as error:
            return Outcome(True, self._transaction, before, before, trouble=trouble or failed(error).trouble)
        return Outcome(
            changed=before != after or (trouble is None and bool(self._work.kernels)),
            transaction=self._transaction,
            before=before,
            after=after,
            builds=of_driver(self._host.dkms.status()),
            trouble=trouble,
        )


def _mark_again(writer: Writer, pending: Pending, now: t.Mapping[str, Installed]) -> set[str]:
    """Have what nobody had asked for count as such again; what counts so then. Raises PackageError.

    What nothing needs any more, as a package that was there is gone, goes on counting as asked for.
    """
    there = {name for name, one in now.items() if one.present}
    automatic = writer.automatic()
    marks = {name for name, was in pending.before.items() if was.automatic and name in there - automatic}
    if any(was.there and name not in there for name, was in pending.before.items()):
        loose = marks
        while True:
            needed = writer.needed_by_others(loose)
            if not needed:
                break
            loose = loose - needed.keys()
        marks = marks - loose
    writer.mark_automatic(sorted(marks))
    return automatic | marks


def _is_at(now: t.Mapping[str, Installed], name: str, version: str) -> bool:
    """Whether a package is there in a version; of some, several versions are there side by side."""
    one = now.get(name)
    if one is not None and one.present and one.version == version:
        return True
    return any(
        other.version == version and other.present for key, other in now.items() if key.startswith(f"{name}-{version}")
    )


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _reason(error: PackageError | OSError) -> str:
    return _sentence(error.message) if isinstance(error, PackageError) else _of_file(error).message


def failed(error: Exception) -> Outcome:
    """The outcome when an error ended the work before any package was changed, or in the middle."""
    if isinstance(error, PackageError):
        return Outcome(changed=False, trouble=Trouble(_KINDS[error.kind], _sentence(error.message), error.details))
    if isinstance(error, OSError):
        return Outcome(changed=False, trouble=_of_file(error))
    return Outcome(changed=False, trouble=Trouble("package_manager", _sentence(str(error))))


def _of_file(error: OSError) -> Trouble:
    place = error.filename or "A file of this module"
    if error.errno == errno.ENOSPC:
        return Trouble("disk", f"The disk is full at {place}: make room there and run this again.")
    return Trouble(
        "package_manager",
        f"{place} can't be written: {error.strerror or error}; look at its owner, mode and file system, and run this "
        "again.",
    )


# --- absent -----------------------------------------------------------------------------------------------------------


def absent(host: Host, *, check: bool) -> Outcome:
    """Take away the packages that were not there before, as far as nothing else needs them, and the holds.

    Raises PlanError, PackageError and OSError before any change.
    """
    record = host.records.read()
    if record is None:
        return Outcome(changed=False, builds=of_driver(host.dkms.status()))
    now = host.reader.installed()
    pending = record.pending or Pending(frozenset(), {})
    ours = {name for name in record.brought & now.keys() if now[name].present or name not in record.leftovers}
    remove, kept = _removable(host, record, ours, now)
    kept.update(_changed(record, now))
    hold = sorted(
        name
        for name in (pending.before.keys() & record.held_by_others & now.keys()) - remove
        if now[name].present and not now[name].held
    )
    unhold = sorted(
        name
        for name, one in now.items()
        if one.held
        and (name in record.held or (name in pending.names and is_family(name) and not _was_held(pending, name)))
    )
    names = {*remove, *unhold, *hold}
    transaction = Transaction(remove=tuple(Package(name, now[name].version) for name in sorted(remove)))
    before = _listing(now, names)
    if check:
        after = "".join(
            _line(name, now[name].version, held=name in hold, state=now[name].state) for name in sorted(names - remove)
        )
        return Outcome(True, transaction, before, after, of_driver(host.dkms.status()), kept)
    trouble = None
    try:
        host.records.release()
        host.writer.unhold(unhold)
        take_away(host.writer, remove, record.leftovers)
        _repair_all(host, pending.names)
        host.writer.hold(hold)
        _mark_again(host.writer, pending, host.reader.installed())
        host.records.remove()
    except (PackageError, OSError) as error:
        trouble = failed(error).trouble
    after = _listing(host.reader.installed(), names)
    changed = trouble is None or before != after
    return Outcome(changed, transaction, before, after, of_driver(host.dkms.status()), kept, trouble)


def take_away(writer: Writer, names: t.Collection[str], leftovers: t.Collection[str]) -> None:
    """Remove packages with their configuration files, but for those of leftovers. Raises PackageError."""
    staying = set(names).intersection(leftovers)
    if staying:
        # All at once, as those that are purged may be needed by those that stay.
        writer.remove(sorted(names))
    writer.purge(sorted(set(names) - staying))


def _repair_all(host: Host, ours: t.Collection[str]) -> None:
    """Finish what was interrupted; what is none of ours may stay as broken as it was. Raises PackageError."""

    def broken() -> set[str]:
        return {name for name, one in host.reader.installed().items() if one.broken}

    if broken():
        try:
            host.writer.repair()
        except PackageError:
            if broken().intersection(ours):
                raise


def _changed(record: Record, now: t.Mapping[str, Installed]) -> dict[str, str]:
    """The driver's packages that were there before and are not what they were, and why they stay."""
    return {
        name: f"it was there before, and has version {now[name].version} now instead of {was.version}"
        for name, was in record.first.items()
        if is_family(name) and was.there
        if name in now and now[name].present and not _is_at(now, name, was.version)
    }


def _was_held(pending: Pending, name: str) -> bool:
    was = pending.before.get(name)
    return was is not None and was.held


def _removable(
    host: Host, record: Record, ours: t.AbstractSet[str], now: t.Mapping[str, Installed]
) -> tuple[set[str], dict[str, str]]:
    """Those of our packages that can go, and why each of the others stays."""
    automatic = host.writer.automatic()
    kept = {}
    for name in ours:
        if not now[name].present:
            continue
        # What is there in several versions is also listed with each of them in its name.
        if _KERNEL_IMAGE.match(name) and (host.running in name or f"{name}-{host.running}" in now):
            kept[name] = "it is the running kernel"
        elif not is_family(name) and name not in automatic and name not in record.asked:
            kept[name] = "it has been asked for since"
    remove = set(ours) - kept.keys()
    while True:
        needed = host.writer.needed_by_others({name for name in remove if now[name].present})
        if not needed:
            return remove, kept
        kept.update({name: f"{other} needs it" for name, other in needed.items()})
        remove -= needed.keys()
