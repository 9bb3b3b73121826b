# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a conda environment as it is to the one that is wanted. What is there is read from its own records."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import stat
import typing as t
from dataclasses import dataclass, replace
from pathlib import Path

from . import _conda_meta
from ._conda_answer import Answer, Kind, ToolError, condensed, without_secrets
from ._conda_meta import Environment, Fault
from ._conda_place import OTHERS, Beside, InPlace, Place
from ._conda_spec import Package, Spec
from ._conda_tool import Result, Session

State = t.Literal["present", "locked", "latest"]

KEPT = "conda-meta/cudahub-changed-"
"""Where changed files of packages are kept when a repair replaces them, with a number."""

_ARCHITECTURES = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le"}
_FREEZER = '{"message": "Ansible manages this environment."}\n'


class RefusedError(Exception):
    """What can't be done, found before anything was changed, in a sentence."""

    def __init__(self, message: str, kind: Kind | None = None) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Wish:
    """The environment that is wanted.

    ``specs`` are of packages, ``lock`` of their files; ``pip`` are lines of a requirements file. ``frozen``: None
    leaves it as it is. ``atomic``: each change is a new environment beside, to which the prefix leads.
    """

    state: State
    prefix: str
    specs: tuple[Spec, ...] = ()
    lock: tuple[Spec, ...] = ()
    pip: tuple[str, ...] = ()
    exact: bool = False
    verify: bool = False
    frozen: bool | None = None
    atomic: bool = False
    owner: int | None = None
    group: int | None = None

    @property
    def wanted(self) -> tuple[Spec, ...]:
        return self.lock if self.state == "locked" else self.specs


class Host(t.Protocol):
    """What the outside has to do."""

    def say(self, line: str) -> None:
        """Tell what happens now."""

    def session(self) -> Session:
        """The tool. Raises ToolError."""

    def expect(self, prefix: str, answer: Answer) -> None:
        """What the next change will bring, for those who watch it. Raises ToolError when the disk is too small."""

    def pip(self, prefix: str, arguments: t.Sequence[str], requirements: t.Sequence[str]) -> Result:
        """Run pip of an environment with lines of a requirements file."""

    def file(self, text: str) -> str:
        """A file with a text, for as long as this run goes on."""

    def caches(self) -> t.Sequence[str]:
        """Where the tool keeps packages. Raises ToolError."""


@dataclass(frozen=True)
class Needs:
    """What keeps an environment from being the one that is wanted."""

    lacking: tuple[str, ...] = ()
    damaged: tuple[tuple[str, str], ...] = ()
    faults: tuple[Fault, ...] = ()
    unmet: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    pip: bool = False
    newer: bool = False

    @property
    def nothing(self) -> bool:
        return self == Needs()

    @property
    def packages(self) -> bool:
        """Whether the tool has to bring packages that are not there."""
        return bool(self.lacking or self.unmet or self.damaged or self.newer)


@dataclass(frozen=True)
class Outcome:
    """What was done, or would be done in check mode. Packages of pip are told as ``name==version``."""

    changed: bool
    before: Environment
    after: tuple[Package, ...]
    pip_before: tuple[str, ...] = ()
    pip_after: tuple[str, ...] = ()
    repaired: tuple[Fault, ...] = ()
    damaged: tuple[tuple[str, str], ...] = ()
    recovered: bool = False


def place_of(wish: Wish) -> Place:
    return Beside(wish.prefix) if wish.atomic else InPlace(wish.prefix)


def converge(wish: Wish, host: Host, *, check: bool) -> Outcome:
    """Make the environment what is wanted. Raises RefusedError, ToolError, PlaceError, OSError."""
    place = place_of(wish)
    refuse_place(wish)
    recovered = not check and place.recover()
    if recovered:
        host.say(f"A run before this one did not end: {wish.prefix} is as it was before it")
    current = _conda_meta.read(str(place.current))
    refuse(wish, current)
    pip_before = pip_packages(place.current)
    needs = needs_of(wish, current, host)
    if needs.nothing:
        return _settled(wish, current, host, recovered=recovered, check=check)
    if current.frozen and wish.frozen is None:
        raise RefusedError(
            f"{wish.prefix} is protected by {_conda_meta.FROZEN}, and would have to change ({_reasons(needs)}): set "
            "frozen to true to change it and protect it again, or to false to take the protection away",
            "frozen",
        )
    if wish.atomic and not wish.exact:
        _refuse_loss(wish, current)
    if not check and current.state == "environment":
        (place.current / _conda_meta.HISTORY).touch()  # without it, tools take it for none
    host.say(f"{wish.prefix} {_reasons(needs)}")
    planned = _plan(wish, current, needs, host)
    if planned is None:
        return _settled(wish, current, host, recovered=recovered, check=check)
    outcome = Outcome(
        True, current, planned.packages, pip_before, _with(pip_before, wish.pip), needs.faults, needs.damaged,
        recovered,
    )  # fmt: skip
    if check:
        return outcome
    done = _apply(wish, place, current, needs, planned, host)
    return replace(
        outcome, after=tuple(one.package for one in done.packages), pip_after=pip_packages(Path(done.prefix))
    )


def _settled(wish: Wish, current: Environment, host: Host, *, recovered: bool, check: bool) -> Outcome:
    """An environment whose packages are right, with the protection and the owner that it is to have. Raises OSError."""
    prefix = Path(current.prefix)
    protect = wish.frozen is not None and wish.frozen != current.frozen
    owned = is_owned(prefix, wish.owner, wish.group)
    if not check:
        if protect:
            _freeze(prefix, frozen=bool(wish.frozen))
        if not owned:
            host.say(f"Giving {prefix} its owner and group")
            own(prefix, wish.owner, wish.group)
    packages, of_pip = tuple(one.package for one in current.packages), pip_packages(prefix)
    changed = protect or recovered or not owned
    return Outcome(changed, current, packages, of_pip, of_pip, recovered=recovered)


def _inside(prefix: str) -> str | None:
    """What lies in a prefix and is not the environment's: something mounted, or another environment."""
    root = os.path.realpath(prefix)
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4])
        if place != root and place.startswith(f"{root.rstrip('/')}/"):
            return f"{place}, which is mounted there"
    for folder, folders, files in os.walk(root):
        if os.path.basename(folder) == _conda_meta.META and "history" in files:
            other = os.path.dirname(folder)
            if other != root and not folder.startswith(f"{root}/pkgs/"):
                return f"{other}, another environment"
        folders[:] = [name for name in folders if name not in ("site-packages", "__pycache__")]
    return None


def absent(prefix: str, host: Host, *, frozen: bool | None, check: bool) -> Outcome:
    """Take an environment away. Raises RefusedError, OSError."""
    beside, in_place = Beside(prefix), InPlace(prefix)
    place: Place = beside if beside.is_ours else in_place
    recovered = not check and place.recover()
    current = _conda_meta.read(str(place.current))
    if current.state == "absent" and not os.path.lexists(prefix):
        return Outcome(recovered, current, ())
    if current.state in ("file", "foreign", "link"):
        what = {"file": "a file", "link": "a symbolic link"}.get(current.state, "a directory with something else in it")
        raise RefusedError(f"{prefix} is {what} and no conda environment: remove it yourself if it is to go")
    parts = [name for name in ("condabin", *OTHERS) if (Path(prefix) / name).is_dir()]
    if parts:
        raise RefusedError(
            f"{prefix} is an installation of conda, with {' and '.join(parts)} in it: remove it yourself"
        )
    if current.frozen and frozen is not False:
        raise RefusedError(
            f"{prefix} is protected by {_conda_meta.FROZEN}: set frozen to false to have it removed", "frozen"
        )
    inside = _inside(current.prefix)
    if inside:
        raise RefusedError(f"{prefix} has {inside}, in it: take that away first")
    if not check:
        host.say(f"Removing {prefix}")
        place.remove()
    return Outcome(True, current, (), pip_packages(Path(current.prefix)))


def refuse_place(wish: Wish) -> None:
    """Refuse a prefix that can't be an environment. Raises RefusedError."""
    path = Path(wish.prefix)
    if path.is_symlink() and not (wish.atomic and Beside(wish.prefix).is_ours):
        if Beside(wish.prefix).is_ours:
            raise RefusedError(
                f"{wish.prefix} leads to environments in {wish.prefix}.d: set atomic to true, as when it was made"
            )
        raise RefusedError(
            f"{wish.prefix} is a symbolic link to {os.readlink(path)}: give the path of the environment itself"
        )
    if wish.atomic and not path.is_symlink() and path.exists():
        raise RefusedError(
            f"{wish.prefix} is there and not a link of this module's, which atomic needs: give another prefix, or "
            "leave atomic out"
        )
    parent = next(folder for folder in path.parents if folder.exists())
    if not parent.is_dir():
        raise RefusedError(f"{parent} is no directory, so that {wish.prefix} can't be in it: give another prefix")


def refuse(wish: Wish, current: Environment) -> None:
    """Refuse what can't be done to what is there. Raises RefusedError."""
    if current.state == "file":
        raise RefusedError(f"{wish.prefix} is a file: give the path of an environment, or of one that is to be made")
    if current.state == "foreign":
        raise RefusedError(
            f"{wish.prefix} is a directory that is not empty and no conda environment: give another prefix, or move "
            "away what is in it"
        )
    platforms = {spec.subdir or _subdir(spec) for spec in wish.lock} - {"noarch", ""}
    here = _ARCHITECTURES.get(platform.machine(), platform.machine())
    if platforms - {here}:
        raise RefusedError(
            f"the lock is for {', '.join(sorted(platforms - {here}))}, and this host is {here}: give a lock for {here}"
        )


def _subdir(spec: Spec) -> str:
    return spec.url.rsplit("/", 2)[-2] if spec.url and "/" in spec.url else ""


def needs_of(wish: Wish, current: Environment, host: Host) -> Needs:
    """What keeps the environment from being the one that is wanted. Raises ToolError."""
    names = [spec.name for spec in wish.wanted]
    if wish.state == "locked":
        extra = tuple(one.package.name for one in current.packages if one.package.name not in names)
        lacking = tuple(spec.text for spec in wish.lock if not _is_there(spec, current))
        unmet: tuple[str, ...] = ()
    else:
        extra = current.beyond(names) if wish.exact else ()
        lacking = tuple(spec.text for spec in current.lacks(wish.specs))
        unmet = current.lacks_for_itself() if wish.specs else ()
    faults = tuple(_conda_meta.faults(current)) if wish.verify else ()
    needs = Needs(lacking, current.damaged, faults, unmet, extra, newer=wish.state == "latest")
    if current.state in ("absent", "empty", "partial") and not needs.lacking and not wish.wanted:
        raise RefusedError(f"{wish.prefix} is no environment yet, and no packages are asked for: name some in packages")
    if not wish.wanted and (wish.exact or needs.damaged or needs.newer):
        why = (
            "its records are damaged"
            if needs.damaged
            else "with none, all would go"
            if wish.exact
            else "state is latest"
        )
        raise RefusedError(f"no packages are asked for, and {why}: name those of {wish.prefix} in packages")
    certain = bool(needs.lacking or needs.damaged)  # of what is unmet or newer, the tool may have nothing
    pip = bool(wish.pip) and (certain or not _pip_is_satisfied(wish, current.prefix, host))
    return replace(needs, pip=pip)


def _is_there(spec: Spec, current: Environment) -> bool:
    """Whether a file of a lock is what is installed: its address may differ, as on a mirror; its hash may not."""
    found = current.named(spec.name)
    if found is None:
        return False
    package = found.package
    comparable = replace(
        spec, url=None, md5=spec.md5 if package.md5 else None, sha256=spec.sha256 if package.sha256 else None
    )
    return comparable.matches(package)


def _reasons(needs: Needs) -> str:
    """What is to be done, in words."""
    parts = [
        *([f"lacks {_some(needs.lacking)}"] if needs.lacking else []),
        *(
            [f"has records that can't be read: {_some([name for name, _why in needs.damaged])}"]
            if needs.damaged
            else []
        ),
        *([f"has files that are gone or changed: {_some([one.path for one in needs.faults])}"] if needs.faults else []),
        *([f"is not whole: {_some(needs.unmet)}"] if needs.unmet else []),
        *([f"has what was not asked for: {_some(needs.extra)}"] if needs.extra else []),
        *(["is to have packages from pip"] if needs.pip else []),
        *(["is to be as new as it can be"] if needs.newer else []),
    ]
    return ", ".join(parts)


def _some(texts: t.Sequence[str], most: int = 5) -> str:
    shown = ", ".join(without_secrets(text) for text in texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most} more"


@dataclass(frozen=True)
class _Planned:
    """The packages that there will be, what the tool answered, and the specs to ask it for."""

    packages: tuple[Package, ...]
    answer: Answer
    specs: tuple[str, ...]
    asked: tuple[str, ...] = ()
    """The specs to note as those that were asked for, where others than these bring the packages."""


def _plan(wish: Wish, current: Environment, needs: Needs, host: Host) -> _Planned | None:
    """What will be done; None when there is nothing to do. Raises ToolError, RefusedError."""
    there = {one.package.name: one.package for one in current.packages}
    kept = {name: package for name, package in there.items() if name not in needs.extra}
    if wish.state == "locked":
        new = tuple(_package(spec) for spec in wish.lock if wish.atomic or not _is_there(spec, current))
        return _Planned(tuple(_package(spec) for spec in wish.lock), Answer(link=new, fetch=new), ())
    specs = [spec.text for spec in wish.specs]
    if wish.atomic:
        specs += _carried(wish, current)
    if wish.state == "latest":
        return _plan_latest(wish, specs, kept, needs, host)
    if wish.atomic or (needs.packages and not current.packages and not current.damaged):
        _announce(specs, host)
        answer = host.session().solve(_nowhere(wish.prefix), specs, new=True)
        if needs == Needs(unmet=needs.unmet) and _has_all(kept, answer.link):
            return None
        return _Planned(answer.link, answer, tuple(specs))
    if not needs.packages or current.damaged:
        return _Planned(tuple(kept.values()), Answer(), tuple(specs))
    _announce(specs, host)
    answer = host.session().solve(current.prefix, specs, new=False)
    if answer.empty and needs == Needs(unmet=needs.unmet):
        return None
    removed = {one.name for one in answer.unlink}
    packages = {name: package for name, package in kept.items() if name not in removed}
    packages.update({one.name: one for one in answer.link})
    return _Planned(tuple(packages.values()), answer, tuple(specs))


def _plan_latest(
    wish: Wish, specs: t.Sequence[str], kept: t.Mapping[str, Package], needs: Needs, host: Host
) -> _Planned | None:
    """The newest is what a new environment would have today."""
    _announce(specs, host)
    answer = host.session().solve(_nowhere(wish.prefix), specs, new=True)
    newest = {one.name: one for one in answer.link}
    if needs == Needs(newer=True) and _has_all(kept, answer.link):
        return None
    if wish.atomic:
        return _Planned(answer.link, answer, tuple(specs))
    exact = tuple(str(one) for one in answer.link)
    return _Planned(tuple({**kept, **newest}.values()), answer, exact, asked=tuple(specs))


def _has_all(there: t.Mapping[str, Package], packages: t.Iterable[Package]) -> bool:
    return all(
        one.name in there and (there[one.name].version, there[one.name].build) == (one.version, one.build)
        for one in packages
    )


def _announce(specs: t.Sequence[str], host: Host) -> None:
    host.say(f"Solving for {_some(specs)} with {host.session().tool}")


def _nowhere(prefix: str) -> str:
    """A prefix where no environment is."""
    return f"{prefix}.cudahub-new"


def _package(spec: Spec) -> Package:
    version = spec.version.text.lstrip("=") if spec.version else ""
    return Package(
        spec.name, version, spec.build or "", url=spec.url or "", md5=spec.md5 or "", sha256=spec.sha256 or ""
    )


def _carried(wish: Wish, current: Environment) -> list[str]:
    """What others have asked for in the environment that a new one replaces."""
    if wish.exact:
        return []
    names = {spec.name for spec in wish.specs}
    return [
        text
        for one in current.packages
        if one.package.name not in names
        for text in one.requested[-1:]
        if "://" not in text
    ]


def _refuse_loss(wish: Wish, current: Environment) -> None:
    """Refuse to lose what pip has installed in the environment that a new one replaces. Raises RefusedError."""
    named = {_pip_name(line) for line in wish.pip}
    lost = [text for text in pip_packages(Path(current.prefix), requested=True) if _pip_name(text) not in named]
    if lost:
        raise RefusedError(
            f"{wish.prefix} has packages of pip that a new environment would not have: {_some(lost)}; name them in "
            "pip, or set exact to true to lose them"
        )


def _apply(wish: Wish, place: Place, current: Environment, needs: Needs, planned: _Planned, host: Host) -> Environment:
    """Change it, or leave it as it was. Raises ToolError, PlaceError, OSError."""
    target = place.begin()
    try:
        host.expect(str(target), planned.answer)
        if isinstance(place, InPlace):
            _change(wish, place, current, needs, planned, host)
        else:
            _build(wish, target, current, planned, host)
        if wish.pip and (needs.pip or needs.packages or wish.atomic):
            _pip_install(wish, target, host)
        done = _checked(wish, target, current, host)
        if wish.frozen:
            _freeze(target, frozen=True)
        own(target, wish.owner, wish.group)
    except BaseException:
        host.say(f"{wish.prefix} goes back to what it was")
        place.roll_back()
        raise
    place.commit()
    return done


def _carry(old: Path, current: Environment, new: Path) -> None:
    """Have the files of users, which no package has brought, in the environment that takes the place of theirs."""
    brought = {entry.path for one in current.packages for entry in one.entries}
    brought |= {str(path) for one in current.packages for path in one.record.get("files") or ()}
    for record in old.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
        for line in record.read_text(encoding="utf-8", errors="replace").splitlines():
            path = os.path.normpath(record.parents[1] / line.split(",", 1)[0])
            brought.add(os.path.relpath(path, old))
    for folder, folders, files in os.walk(old):
        folders[:] = [name for name in folders if name not in ("site-packages", "__pycache__", _conda_meta.META)]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (*files, *links):
            path = os.path.relpath(os.path.join(folder, name), old)
            if path not in brought and not os.path.lexists(new / path):
                (new / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(old / path, new / path, follow_symlinks=False)
    pinned = old / _conda_meta.META / "pinned"
    if pinned.is_file():
        shutil.copy2(pinned, new / _conda_meta.META / "pinned")


def _build(wish: Wish, target: Path, current: Environment, planned: _Planned, host: Host) -> None:
    session = host.session()
    host.say(f"Building a new environment in {target}")
    if wish.state == "locked":
        session.explicit(str(target), host.file(explicit(wish.lock)), new=True)
    else:
        session.create(str(target), planned.specs)
    if not wish.exact and current.state == "environment":
        _carry(Path(current.prefix), current, target)
    if wish.verify:
        built = _conda_meta.read(str(target))
        faults = tuple(_conda_meta.faults(built))
        if faults:
            _reinstall(target, built, {one.package for one in faults}, host)


def _change(wish: Wish, place: InPlace, current: Environment, needs: Needs, planned: _Planned, host: Host) -> None:
    prefix = str(place.prefix)
    _freeze(place.prefix, frozen=False)
    if current.state == "partial":
        (place.prefix / _conda_meta.HISTORY).touch()
    for name, _why in needs.damaged:
        for record in (place.prefix / _conda_meta.META).glob(name):
            record.unlink()
    if needs.faults:
        _keep_changed(place.prefix, needs.faults)
        there = _conda_meta.read(prefix)
        _reinstall(place.prefix, there, {one.package for one in needs.faults}, host)
    new = current.state in ("absent", "empty")
    if needs.packages:
        host.say(f"Changing {prefix} with {host.session().tool}")
        _bring(wish, prefix, planned, host, new=new)
    if needs.extra or wish.exact:
        _take(wish, prefix, host)


def _bring(wish: Wish, prefix: str, planned: _Planned, host: Host, *, new: bool) -> None:
    session = host.session()
    if wish.state == "locked":
        there = _conda_meta.read(prefix)
        missing = [spec for spec in wish.lock if not _is_there(spec, there)]
        session.explicit(prefix, host.file(explicit(missing)), new=new)
        return
    note = _noted(Path(prefix), planned.asked) if planned.asked else contextlib.nullcontext()
    with note:
        (session.create if new else session.install)(prefix, planned.specs)


def _take(wish: Wish, prefix: str, host: Host) -> None:
    """Take away what is still too much, or has become so."""
    there = _conda_meta.read(prefix)
    names = {spec.name for spec in wish.wanted}
    left = [one.package.name for one in there.packages if one.package.name not in names]
    found = left if wish.state == "locked" else list(there.beyond(names))
    if found:
        host.say(f"Taking {_some(found)} away")
        host.session().remove(prefix, found)


@contextlib.contextmanager
def _noted(prefix: Path, asked: t.Sequence[str]) -> t.Iterator[None]:
    """Have a tool's history, which its later runs obey, say what was asked for, not the exact specs it was given."""
    history = prefix / _conda_meta.HISTORY
    before = history.read_bytes() if history.exists() else b""
    yield
    after = history.read_bytes() if history.exists() else b""
    if after.startswith(before):
        specs = f"# update specs: {json.dumps(list(asked))}\n" if asked else ""
        new = re.sub(r"^# \w+ specs: .*\n", lambda _match: specs, after[len(before) :].decode(), flags=re.MULTILINE)
        history.write_bytes(before + new.encode())


def _keep_changed(prefix: Path, faults: t.Iterable[Fault]) -> None:
    """Keep the files that somebody has changed: perhaps they are wanted. No link is followed."""
    changed = [fault.path for fault in faults if fault.kind == "changed"]
    root, number = os.path.realpath(prefix), 1
    while changed and os.path.lexists(prefix / f"{KEPT}{number}"):
        number += 1
    kept = prefix / f"{KEPT}{number}"
    for name in changed:
        path, copy = prefix / name, kept / name
        if os.path.commonpath([root, os.path.realpath(path.parent)]) != root:
            continue
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_symlink():
            copy.symlink_to(os.readlink(path))
        elif stat.S_ISREG(path.lstat().st_mode):
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                copy.write_bytes(file.read())


def _reinstall(target: Path, there: Environment, names: t.Collection[str], host: Host) -> None:
    """Bring packages anew. Their files are hard links to the tool's cache, which so may have the same faults."""
    packages = [one.package for one in there.packages if one.package.name in names]
    host.say(f"Bringing {_some([one.name for one in packages])} anew")
    session = host.session()
    for package in packages:
        for cache in host.caches():
            with contextlib.suppress(PermissionError):  # the tool doesn't use a cache that can't be written
                _forget(package, Path(cache))
    with _noted(target, ()):
        session.again(str(target), [str(one) for one in packages])


def _forget(package: Package, cache: Path) -> None:
    """Have a cache forget what it unpacked of a package, and its archive if that is not as it was published."""
    name = package.url.rsplit("/", 1)[-1] or f"{package.name}-{package.version}-{package.build}.conda"
    match = re.fullmatch(r"([A-Za-z0-9_][^/]*)(\.conda|\.tar\.bz2)", name)
    if match is None:  # a record is what the owner of its environment makes of it
        return
    unpacked = cache / match[1]
    if unpacked.is_dir():
        shutil.rmtree(unpacked)
    kind, right = ("sha256", package.sha256) if package.sha256 else ("md5", package.md5)
    archive = cache / name
    if archive.is_file() and right and _conda_meta.digest(archive, kind) != right:
        archive.unlink()


def explicit(lock: t.Iterable[Spec]) -> str:
    """The text of a lock file."""
    return "\n".join(["@EXPLICIT", *(spec.text for spec in lock)]) + "\n"


def lock_lines(packages: t.Iterable[Package]) -> list[str]:
    """The lines of a lock file that brings the same packages elsewhere, without passwords and tokens."""
    return [
        without_credentials_in(one.url) + (f"#{one.md5}" if one.md5 else "")
        for one in sorted(packages, key=lambda one: one.name)
    ]


def without_credentials_in(url: str) -> str:
    return re.sub(r"/t/[^/]+", "", re.sub(r"^([a-z][a-z0-9+.-]*://)[^/@]*@", r"\1", url))


def _checked(wish: Wish, target: Path, before: Environment, host: Host) -> Environment:
    """The environment, which is what was asked for. Raises ToolError."""
    done = _conda_meta.read(str(target))
    if wish.state == "locked":
        _check_archives(wish.lock, before, host.caches())
        lacking = [spec.text for spec in wish.lock if not _is_there(spec, done)]
    else:
        lacking = [spec.text for spec in done.lacks(wish.specs)]
    if done.damaged or lacking:
        wrong = [f"{name}: {why}" for name, why in done.damaged] + [f"{text} is not there" for text in lacking]
        raise ToolError("broken", f"the tool said that all went well, but in {target} {_some(wrong)}")
    if wish.verify:
        faults = [f"{one.path} is {one.kind}" for one in _conda_meta.faults(done)]
        if faults:
            raise ToolError("broken", f"files of packages in {target} are not as published: {_some(faults)}")
    return done


def _check_archives(lock: t.Iterable[Spec], before: Environment, caches: t.Sequence[str]) -> None:
    """Compare what was brought with the hashes of the lock: not every tool does. Raises ToolError."""
    for spec in lock:
        name = (spec.url or "").partition("#")[0].rsplit("/", 1)[-1]
        archive = next((path for path in (Path(cache) / name for cache in caches) if name and path.is_file()), None)
        if archive is None or _is_there(spec, before):
            continue
        kind, right = ("sha256", spec.sha256) if spec.sha256 else ("md5", spec.md5)
        found = _conda_meta.digest(archive, kind)
        if found != right:
            raise ToolError("checksum", f"{archive} has {kind} {found}, and the lock says {right}")


def _freeze(prefix: Path, *, frozen: bool) -> None:
    path = prefix / _conda_meta.FROZEN
    if frozen and not path.exists():
        path.write_text(_FREEZER, encoding="utf-8")
    elif not frozen:
        path.unlink(missing_ok=True)


def own(prefix: Path, owner: int | None, group: int | None) -> None:
    """Give all files an owner and a group. Raises OSError."""
    if owner is None and group is None:
        return
    for folder, folders, files in os.walk(prefix):
        for name in (".", *folders, *files):
            os.chown(
                os.path.join(folder, name),
                -1 if owner is None else owner,
                -1 if group is None else group,
                follow_symlinks=False,
            )


def is_owned(prefix: Path, owner: int | None, group: int | None) -> bool:
    """Whether an environment belongs to whom it should, by its directory and its records."""
    if not prefix.is_dir():
        return True
    paths = [prefix, prefix / _conda_meta.META, *(prefix / _conda_meta.META).glob("*.json")]
    found = [path.lstat() for path in paths if path.exists()]
    return all(owner in (None, one.st_uid) and group in (None, one.st_gid) for one in found)


def _pip_install(wish: Wish, target: Path, host: Host) -> None:
    host.say(f"Installing {_some(wish.pip)} with pip")
    result = host.pip(str(target), ["install"], wish.pip)
    if result.code == 127:
        raise ToolError("package", f"{target} has no pip for {_some(wish.pip)}, which packages has to name")
    if result.code != 0:
        errors = [line.removeprefix("ERROR: ") for line in result.stderr.splitlines() if line.startswith("ERROR")]
        raise ToolError("pip", condensed(". ".join(errors) or result.stderr or result.stdout))


def _pip_is_satisfied(wish: Wish, prefix: str, host: Host) -> bool:
    """Whether pip would do nothing, which it knows without network."""
    result = host.pip(prefix, ["install", "--dry-run", "--no-index"], wish.pip)
    return result.code == 0 and "Would install" not in result.stdout


def pip_packages(prefix: Path, *, requested: bool = False) -> tuple[str, ...]:
    """What pip has installed, as ``name==version``; ``requested`` leaves out what came only because others need it."""
    found = []
    record = next(prefix.glob("conda-meta/python-3.*.json"), None)
    python = ".".join(record.name.split("-")[1].split(".")[:2]) if record else "3*"
    for folder in prefix.glob(f"lib/python{python}/site-packages/*.dist-info"):
        installer = folder / "INSTALLER"
        if not installer.is_file() or installer.read_text(encoding="utf-8").strip() != "pip":
            continue
        if not requested or (folder / "REQUESTED").exists():
            name, _dash, version = folder.name.removesuffix(".dist-info").rpartition("-")
            found.append(f"{_pip_name(name)}=={version}")
    return tuple(sorted(found))


def _pip_name(text: str) -> str:
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", text.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else text


def _with(packages: tuple[str, ...], wanted: t.Iterable[str]) -> tuple[str, ...]:
    names = {_pip_name(text) for text in packages}
    return tuple(sorted([*packages, *(line for line in wanted if _pip_name(line) not in names)]))
