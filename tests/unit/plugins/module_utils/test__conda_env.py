# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From any environment to any other, with a tool that changes files as conda does, and that can fail anywhere."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import stat
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _conda_env, _conda_meta
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_answer import Answer, ToolError
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_env import Outcome, RefusedError, Wish
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_meta import Fault
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_spec import Package, parse_spec
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_tool import Result, Session, Tool

CHANNEL = "https://conda.example.org/forge"
MACHINE = "x86_64"


@dataclass(frozen=True)
class Known:
    """A package of the channel."""

    name: str
    version: str
    depends: tuple[str, ...] = ()
    build: str = "0"

    @property
    def archive(self) -> bytes:
        return f"archive of {self.name} {self.version} {self.build}".encode()

    @property
    def package(self) -> Package:
        name = f"{self.name}-{self.version}-{self.build}.conda"
        return Package(
            self.name, self.version, self.build, 0, f"{CHANNEL}/linux-64", "linux-64",
            hashlib.md5(self.archive, usedforsecurity=False).hexdigest(), hashlib.sha256(self.archive).hexdigest(),
            f"{CHANNEL}/linux-64/{name}",
        )  # fmt: skip


# The newest first.
CHANNEL_HAS = (
    Known("app", "2", ("lib >=2",)),
    Known("app", "1", ("lib", "old")),
    Known("lib", "2"),
    Known("lib", "1"),
    Known("old", "1"),
    Known("python", "3.13", ("pip",)),
    Known("python", "3.12", ("pip",)),
    Known("pip", "26"),
    Known("tool", "1"),
)


def known(text: str) -> Known:
    spec = parse_spec(text)
    return next(one for one in CHANNEL_HAS if spec.matches(one.package))


def lock_line(text: str) -> str:
    return f"{known(text).package.url}#{known(text).package.md5}"


def put(prefix: Path, one: Known, requested: str | None = None) -> None:
    """Link a package, as a tool does: files are replaced, and not written to."""
    name = f"lib/{one.name}.so"
    content = f"{one.name} {one.version}".encode()
    path = prefix / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    entry = {"_path": name, "path_type": "hardlink", "sha256_in_prefix": hashlib.sha256(content).hexdigest()}
    record = {
        **vars(one.package),
        "depends": list(one.depends),
        "requested_spec": requested,
        "paths_data": {"paths": [entry], "paths_version": 1},
    }
    meta = prefix / "conda-meta"
    meta.mkdir(exist_ok=True)
    (meta / f"{one.name}-{one.version}-{one.build}.json").write_text(json.dumps(record), encoding="utf-8")


def made(prefix: Path, *texts: str, requested: t.Collection[str] = ()) -> None:
    """Make an environment without any tool."""
    for text in texts:
        put(prefix, known(text), text if text in requested else None)
    (prefix / "conda-meta/history").write_text("==> first <==\n", encoding="utf-8")


@dataclass
class FakeTool:
    """A tool that changes records and files. ``breaks`` names what fails when half of it is done."""

    caches: tuple[str, ...] = ()
    breaks: str = ""
    forgets: str = ""
    solver: str = ""
    calls: list[tuple[str, ...]] = field(default_factory=list)
    tool: Tool = field(default_factory=lambda: Tool("/opt/conda/bin/conda", "conda", "24.7.1"))
    seen: list[str] = field(default_factory=list)

    def _solved(self, prefix: str, specs: t.Sequence[str], *, new: bool) -> tuple[list[Known], Answer]:
        there = {} if new else {one.package.name: one.package for one in _conda_meta.read(prefix).packages}
        link: dict[str, Known] = {}
        wanted = [*specs, *(text for one in there.values() for text in known(str(one)).depends)]
        while wanted:
            spec = parse_spec(wanted.pop(0))
            if spec.name in link or (spec.name in there and spec.matches(there[spec.name])):
                continue
            found = next((one for one in CHANNEL_HAS if spec.matches(one.package)), None)
            if found is None:
                raise ToolError("package", f"{spec.text} is in no channel")
            link[spec.name] = found
            wanted += found.depends
        packages = tuple(one.package for one in link.values())
        unlink = tuple(there[name] for name in link if name in there)
        return list(link.values()), Answer(packages, unlink, packages, 1000 * len(packages))

    def solve(self, prefix: str, specs: t.Sequence[str], *, new: bool) -> Answer:
        self.calls.append(("solve", "new" if new else "", *specs))
        assert new != Path(prefix).exists()
        return Answer() if self.solver == "nothing" else self._solved(prefix, specs, new=new)[1]

    def create(self, prefix: str, specs: t.Sequence[str]) -> None:
        self._do("create", prefix, specs, new=True)

    def install(self, prefix: str, specs: t.Sequence[str]) -> None:
        self._do("install", prefix, specs, new=False)

    def _do(self, action: str, prefix: str, specs: t.Sequence[str], *, new: bool) -> None:
        self.calls.append((action, *specs))
        assert not (Path(prefix) / "conda-meta/frozen").exists()
        packages = [] if self.solver == "nothing" else self._solved(prefix, specs, new=new)[0]
        asked = {parse_spec(text).name: text for text in specs}
        self._link(action, Path(prefix), packages, asked)
        history = Path(prefix) / "conda-meta/history"
        history.parent.mkdir(parents=True, exist_ok=True)
        with history.open("a", encoding="utf-8") as file:
            file.write(f"==> next <==\n# cmd: conda {action}\n# update specs: {json.dumps(specs)}\n")

    def _link(self, action: str, prefix: Path, packages: t.Sequence[Known], asked: t.Mapping[str, str]) -> None:
        for one in packages:
            for record in (prefix / "conda-meta").glob(f"{one.name}-*.json"):
                record.unlink()
            if one.name != self.forgets:
                put(prefix, one, asked.get(one.name))
            if self.breaks == action:
                raise ToolError("network", "the connection was cut")

    def again(self, prefix: str, specs: t.Sequence[str]) -> None:
        self.calls.append(("again", *specs, *sorted(os.listdir(self.caches[-1]))))
        if self.breaks == "again":
            raise ToolError("network", "the connection was cut")
        for text in specs:
            if self.forgets != parse_spec(text).name:
                put(Path(prefix), known(text))
        with (Path(prefix) / "conda-meta/history").open("a", encoding="utf-8") as file:
            file.write(f"==> again <==\n# update specs: {json.dumps(specs)}\n")

    def explicit(self, prefix: str, file: str, *, new: bool) -> None:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        self.calls.append(("explicit", "new" if new else "", *lines))
        packages = [known("{}=={}".format(*line.rsplit("/", 1)[-1].split("-"))) for line in lines[1:]]
        self._link("explicit", Path(prefix), packages, {})
        (Path(prefix) / "conda-meta/history").touch()

    def remove(self, prefix: str, names: t.Sequence[str]) -> None:
        self.calls.append(("remove", *names))
        for name in names:
            for record in (Path(prefix) / "conda-meta").glob(f"{name}-*.json"):
                record.unlink()
            if self.breaks == "remove":
                raise ToolError("permission", "no")


class FakeHost:
    """What is outside, without a tool unless one is given."""

    def __init__(self, folder: Path, tool: FakeTool | None = None, **pip: Result) -> None:
        self.folder = folder
        self.fake = tool
        self.of_pip = pip
        self.said: list[str] = []
        self.pips: list[tuple[str, ...]] = []
        self.expected: list[tuple[str, int]] = []
        self.full = False

    def say(self, line: str) -> None:
        self.said.append(line)

    def session(self) -> Session:
        assert self.fake is not None, "a tool was asked for"
        return t.cast("Session", self.fake)

    def expect(self, prefix: str, answer: Answer) -> None:
        self.expected.append((prefix, answer.size))
        if self.full:
            raise ToolError("disk", "it is full")

    def pip(self, prefix: str, arguments: t.Sequence[str], requirements: t.Sequence[str]) -> Result:
        self.pips.append((*arguments, *requirements))
        kind = "dry" if "--dry-run" in arguments else "install"
        result = self.of_pip.get(kind, Result(0, "", ""))
        if kind == "install":
            for line in requirements:
                dist(Path(prefix), line)
        return result

    def file(self, text: str) -> str:
        path = self.folder / f"file{len(list(self.folder.iterdir()))}"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def caches(self) -> t.Sequence[str]:
        return self.fake.caches if self.fake else ()


def dist(prefix: Path, line: str, *, installer: str = "pip", requested: bool = True) -> None:
    """Have a package of pip."""
    name, _equals, version = line.partition("==")
    record = next(prefix.glob("conda-meta/python-*.json"), None)
    python = record.name.split("-")[1] if record else "3.13"
    folder = prefix / f"lib/python{python}/site-packages/{name}-{version or '1'}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "INSTALLER").write_text(f"{installer}\n", encoding="utf-8")
    if requested:
        (folder / "REQUESTED").touch()


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """All paths with mode and content."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.read_text("utf-8") if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


class World:
    """A directory with an environment, and one for files of the host."""

    def __init__(self, folder: Path) -> None:
        self.srv = folder / "srv"
        self.prefix = self.srv / "x"
        self.files = folder / "files"
        self.cache = folder / "cache"
        for each in (self.srv, self.files, self.cache):
            each.mkdir()
        self.tool = FakeTool((str(folder / "nothing"), str(self.cache)))
        self.host = FakeHost(self.files, self.tool)
        self.without_tool = FakeHost(self.files)

    def wish(self, *specs: str, **values: t.Any) -> Wish:
        lock = tuple(parse_spec(text) for text in values.pop("lock", ()))
        state = "locked" if lock else values.pop("state", "present")
        return Wish(state, str(self.prefix), tuple(parse_spec(text) for text in specs), lock, **values)

    def do(self, *specs: str, check: bool = False, **values: t.Any) -> Outcome:
        return _conda_env.converge(self.wish(*specs, **values), self.host, check=check)

    def settled(self, *specs: str, **values: t.Any) -> None:
        """A second run changes nothing, and needs no tool."""
        before = tree(self.srv)
        outcome = _conda_env.converge(self.wish(*specs, **values), self.without_tool, check=False)
        assert not outcome.changed
        assert tree(self.srv) == before

    @property
    def has(self) -> list[str]:
        packages = _conda_meta.read(str(self.prefix.resolve())).packages
        return [f"{one.package.name}={one.package.version}" for one in packages]

    @property
    def history(self) -> str:
        return (self.prefix / "conda-meta/history").read_text("utf-8")

    def fill_cache(self, *texts: str) -> None:
        for text in texts:
            (self.cache / known(text).package.url.rsplit("/", 1)[-1]).write_bytes(known(text).archive)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(platform, "machine", lambda: MACHINE)
    return World(tmp_path)


def names(packages: t.Iterable[Package]) -> list[str]:
    return sorted(f"{one.name}={one.version}" for one in packages)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("specs", "values"),
    [
        (["app"], {}),
        (["app=2", "lib>=2", "forge::tool"], {}),
        ([], {}),
        (["app", "python", "tool"], {"exact": True}),
        (["app"], {"verify": True}),
        (["app"], {"frozen": False}),
        (["app"], {"owner": os.geteuid(), "group": os.getegid()}),
        (["app"], {"pip": ("nvtx",)}),
        ([], {"lock": [lock_line(text) for text in ("app=2", "lib=2", "python=3.13", "pip", "tool")]}),
        ([], {"lock": [lock_line(text) for text in ("app=2", "lib=2", "python=3.13", "pip", "tool")], "verify": True}),
    ],
)
def test_what_is_right_needs_no_tool(world: World, specs: list[str], values: dict[str, t.Any], check: bool) -> None:
    made(world.prefix, "app=2", "lib=2", "python=3.13", "pip", "tool")
    before = tree(world.srv)
    outcome = _conda_env.converge(world.wish(*specs, **values), world.without_tool, check=check)
    assert not outcome.changed
    assert names(outcome.after) == ["app=2", "lib=2", "pip=26", "python=3.13", "tool=1"]
    assert tree(world.srv) == before
    assert world.without_tool.said == []


CHANGES: list[tuple[list[str], list[str], dict[str, t.Any], list[str]]] = [
    ([], ["app"], {}, ["app=2", "lib=2"]),
    (["tool"], ["app"], {}, ["app=2", "lib=2", "tool=1"]),
    (["app=1", "lib=1", "old"], ["app=2"], {}, ["app=2", "lib=2", "old=1"]),
    (["app=1", "lib=1", "old"], ["app=2"], {"exact": True}, ["app=2", "lib=2"]),
    (["app=2", "lib=2", "tool", "old"], ["app"], {"exact": True}, ["app=2", "lib=2"]),
    (["python=3.12", "pip", "tool"], ["python"], {"exact": True}, ["pip=26", "python=3.12"]),
    (["lib=1"], ["lib"], {"state": "latest"}, ["lib=2"]),
    ([], ["app=1"], {"state": "latest"}, ["app=1", "lib=2", "old=1"]),
    (["app=2"], ["app"], {}, ["app=2", "lib=2"]),
    ([], [], {"lock": [lock_line("lib=1"), lock_line("tool")]}, ["lib=1", "tool=1"]),
    (["lib=2", "old"], [], {"lock": [lock_line("lib=1"), lock_line("tool")]}, ["lib=1", "tool=1"]),
    (["lib=1", "old"], [], {"lock": [lock_line("lib=1")]}, ["lib=1"]),
    (["lib=1"], ["lib=2"], {"atomic": True}, ["lib=2"]),
]


@pytest.mark.parametrize(("there", "specs", "values", "expected"), CHANGES)
def test_a_change(
    world: World, there: list[str], specs: list[str], values: dict[str, t.Any], expected: list[str]
) -> None:
    if there:
        (world.do(*there, atomic=True) if values.get("atomic") else made(world.prefix, *there))
        world.tool.calls.clear()
    before = tree(world.srv)
    planned = world.do(*specs, **values, check=True)
    assert tree(world.srv) == before
    assert {call[0] for call in world.tool.calls} <= {"solve"}
    assert planned.changed
    world.host.expected.clear()
    done = world.do(*specs, **values)
    assert done.changed
    assert [prefix for prefix, _size in world.host.expected] == [
        str(world.srv / "x.d/2" if values.get("atomic") else world.prefix)
    ]
    assert names(done.after) == world.has == expected
    assert set(names(done.after)) <= set(names(planned.after))
    assert names(one.package for one in done.before.packages) == names(known(text).package for text in there)
    if values.get("state") != "latest":
        world.settled(*specs, **values)
    assert not world.do(*specs, **values).changed
    expected_left = {"x", "x.d"} if values.get("atomic") else {"x"}
    assert set(os.listdir(world.srv)) == expected_left


FAILURES = [
    (["tool"], ["app"], {}, "install"),
    ([], ["app"], {}, "create"),
    (["lib=1"], ["lib=2"], {"atomic": True}, "create"),
    (["lib=1", "tool", "old"], ["lib"], {"exact": True}, "remove"),
    (["lib=1"], ["lib"], {"state": "latest"}, "install"),
    (["lib=1", "old"], [], {"lock": [lock_line("lib=2")]}, "explicit"),
    ([], [], {"lock": [lock_line("lib=2")]}, "explicit"),
]


@pytest.mark.parametrize(("there", "specs", "values", "breaks"), FAILURES)
def test_a_change_that_fails_leaves_all_as_it_was(
    world: World, there: list[str], specs: list[str], values: dict[str, t.Any], breaks: str
) -> None:
    if there:
        (world.do(*there, atomic=True) if values.get("atomic") else made(world.prefix, *there))
    before = tree(world.srv)
    world.tool.breaks = breaks
    with pytest.raises(ToolError) as caught:
        world.do(*specs, **values)
    assert caught.value.kind in ("network", "permission")
    assert world.tool.calls[-1][0] == breaks
    assert tree(world.srv) == before
    assert world.host.said[-1] == f"{world.prefix} goes back to what it was"


def test_a_frozen_environment_is_frozen_again_when_a_change_fails(world: World) -> None:
    made(world.prefix, "tool")
    (world.prefix / "conda-meta/frozen").write_text("mine", encoding="utf-8")
    before = tree(world.srv)
    world.tool.breaks = "install"
    with pytest.raises(ToolError):
        world.do("app", frozen=True)
    assert tree(world.srv) == before


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_tool_that_lies(world: World, there: bool, atomic: bool) -> None:
    if there:
        (world.do("tool", atomic=True) if atomic else made(world.prefix, "tool"))
    before = tree(world.srv)
    world.tool.forgets = "app"
    with pytest.raises(ToolError, match=r"the tool said that all went well, but in \S+ app is not there") as caught:
        world.do("app", "lib", atomic=atomic)
    assert caught.value.kind == "broken"
    assert tree(world.srv) == before


def test_no_room_on_the_disk(world: World) -> None:
    made(world.prefix, "tool")
    before = tree(world.srv)
    world.host.full = True
    with pytest.raises(ToolError) as caught:
        world.do("app")
    assert caught.value.kind == "disk"
    assert world.host.expected == [(str(world.prefix), 2000)]
    assert tree(world.srv) == before


def test_what_is_told(world: World) -> None:
    made(world.prefix, "tool")
    world.do("app", "lib=2")
    assert world.host.said == [
        f"{world.prefix} lacks app, lib=2",
        "Solving for app, lib=2 with conda 24.7.1",
        f"Changing {world.prefix} with conda 24.7.1",
    ]


def test_what_packages_need_is_brought_or_is_the_tool_s_business(world: World) -> None:
    made(world.prefix, "app=2", "lib=1")
    assert _conda_meta.read(str(world.prefix)).lacks_for_itself() == ("app needs lib >=2",)
    world.tool.solver = "nothing"
    before = tree(world.srv)
    for values in ({}, {"pip": ("nvtx",)}):
        assert not world.do("app", **values).changed
        assert tree(world.srv) == before
    world.tool.solver = ""


def test_latest_changes_nothing_where_all_is_new(world: World) -> None:
    made(world.prefix, "app=2", "lib=2", "tool")
    before = tree(world.srv)
    for values in ({}, {"pip": ("nvtx",)}):
        outcome = world.do("app", state="latest", **values)
        assert not outcome.changed
        assert tree(world.srv) == before
    assert world.tool.calls == [("solve", "new", "app")] * 2


def test_the_history_has_what_the_user_asked_for(world: World) -> None:
    made(world.prefix, "lib=1")
    world.do("app>=1", state="latest")
    assert world.tool.calls == [("solve", "new", "app>=1"), ("install", "app=2=0", "lib=2=0")]
    assert world.history == '==> first <==\n==> next <==\n# cmd: conda install\n# update specs: ["app>=1"]\n'


def test_the_history_of_a_new_environment_has_what_the_user_asked_for(world: World) -> None:
    world.do("app", state="latest")
    assert world.tool.calls[-1] == ("create", "app=2=0", "lib=2=0")
    assert world.history == '==> next <==\n# cmd: conda create\n# update specs: ["app"]\n'


def test_packages_come_anew_with_pip_when_latest_changes_them(world: World) -> None:
    made(world.prefix, "python=3.12", "pip")
    world.do("python", state="latest", pip=("nvtx",))
    assert world.has == ["pip=26", "python=3.13"]
    assert world.host.pips[-1] == ("install", "nvtx")


LOCK = ("lib=2", "tool")


def test_a_lock_brings_only_what_is_lacking_and_takes_what_is_too_much(world: World) -> None:
    made(world.prefix, "tool", "old", "lib=1")
    world.do(lock=[lock_line(text) for text in LOCK])
    assert world.tool.calls == [("explicit", "", "@EXPLICIT", lock_line("lib=2")), ("remove", "old")]
    assert world.has == ["lib=2", "tool=1"]


def test_a_lock_whose_hash_differs_is_another_package(world: World) -> None:
    made(world.prefix, *LOCK)
    md5 = known("tool").package.md5
    line = lock_line("tool").replace(md5, "0" * 32)
    before = tree(world.srv)
    with pytest.raises(ToolError) as caught:
        world.do(lock=[lock_line("lib=2"), line])
    assert caught.value.kind == "broken"
    assert line in str(caught.value)
    assert tree(world.srv) == before
    mirror = lock_line("tool").replace("conda.example.org", "mirror.example.org")
    world.settled(lock=[lock_line("lib=2"), mirror])


def test_a_record_without_a_hash_is_compared_by_its_build(world: World) -> None:
    made(world.prefix, "tool")
    record = next((world.prefix / "conda-meta").glob("tool*"))
    record.write_text(json.dumps({**json.loads(record.read_text()), "md5": None, "sha256": None}), encoding="utf-8")
    world.settled(lock=[lock_line("tool")])
    world.settled(lock=[f"{known('tool').package.url}#sha256:{known('tool').package.sha256}"])
    assert world.do(lock=[lock_line("tool").replace("tool-1-0", "tool-1-1")], check=True).changed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (lock_line("tool").replace("linux-64", "osx-arm64"), "the lock is for osx-arm64, and this host is linux-64"),
        (lock_line("tool").replace("linux-64", "linux-aarch64"), "the lock is for linux-aarch64, and this host is"),
        (lock_line("tool").replace("linux-64", "noarch"), None),
    ],
)
def test_a_lock_for_another_platform(world: World, line: str, message: str | None) -> None:
    if message is None:
        assert world.do(lock=[line], check=True).changed
        return
    with pytest.raises(RefusedError) as caught:
        world.do(lock=[lock_line("lib=1").replace("linux-64", "noarch"), line])
    assert message in str(caught.value)
    assert list(world.srv.iterdir()) == []


@pytest.mark.parametrize("sha256", [False, True])
@pytest.mark.parametrize("atomic", [False, True])
def test_an_archive_with_another_hash(world: World, sha256: bool, atomic: bool) -> None:
    package = known("tool").package
    line = f"{package.url}#{f'sha256:{package.sha256}' if sha256 else package.md5}"
    archive = world.cache / "tool-1-0.conda"
    archive.write_bytes(b"changed")
    with pytest.raises(ToolError) as caught:
        world.do(lock=[line], atomic=atomic)
    assert caught.value.kind == "checksum"
    assert str(archive) in str(caught.value)
    assert list(world.srv.iterdir()) == []
    world.fill_cache("tool")
    assert world.do(lock=[line], atomic=atomic).changed
    archive.write_bytes(b"changed later")
    world.settled(lock=[line], atomic=atomic)
    if not atomic:
        assert world.do(lock=[line, lock_line("lib")]).changed


def test_atomic_builds_anew_what_others_have_asked_for_too(world: World) -> None:
    world.do("app=1", "tool", atomic=True)
    first = world.prefix.resolve()
    world.tool.calls.clear()
    outcome = world.do("app=2", atomic=True)
    assert world.tool.calls == [("solve", "new", "app=2", "tool"), ("create", "app=2", "tool")]
    assert world.has == names(outcome.after) == ["app=2", "lib=2", "tool=1"]
    assert sorted(os.listdir(world.srv / "x.d")) == [".cudahub", "1", "2"]
    assert "app-1-0.json" in os.listdir(first / "conda-meta")
    world.do("app=2", atomic=True, exact=True)
    assert world.has == ["app=2", "lib=2"]
    assert world.tool.calls[-1] == ("create", "app=2")


def test_atomic_does_not_lose_what_pip_has_installed(world: World) -> None:
    world.do("python=3.12", atomic=True)
    dist(world.prefix, "Nv_tx==1")
    dist(world.prefix, "dependency==1", requested=False)
    before = tree(world.srv)
    with pytest.raises(RefusedError, match=r"would not have: nv-tx==1; name them in pip, or set exact"):
        world.do("python=3.13", atomic=True)
    assert tree(world.srv) == before
    outcome = world.do("python=3.13", pip=("nv.tx>=1",), atomic=True)
    assert world.host.pips[-1] == ("install", "nv.tx>=1")
    assert outcome.pip_before == ("dependency==1", "nv-tx==1")
    world.do("python=3.12", atomic=True, exact=True)
    assert _conda_env.pip_packages(world.prefix) == ()


@pytest.mark.parametrize(
    ("frozen", "specs", "expected"),
    [
        (None, ["app"], "refused"),
        (None, ["tool"], "the same"),
        (True, ["tool"], "the same"),
        (True, ["app"], "frozen"),
        (False, ["app"], "free"),
        (False, ["tool"], "free"),
    ],
)
@pytest.mark.parametrize("atomic", [False, True])
def test_a_frozen_environment(world: World, frozen: bool | None, specs: list[str], expected: str, atomic: bool) -> None:
    world.do("tool", frozen=True, atomic=atomic)
    before = tree(world.srv)
    assert json.loads((world.prefix / "conda-meta/frozen").read_text()) == {
        "message": "Ansible manages this environment."
    }
    if expected == "refused":
        with pytest.raises(RefusedError, match=r"is protected by conda-meta/frozen, and would have to change") as error:
            world.do(*specs, frozen=frozen, atomic=atomic)
        assert error.value.kind == "frozen"
    else:
        assert world.do(*specs, frozen=frozen, atomic=atomic, check=True).changed == (expected != "the same")
        assert tree(world.srv) == before
        assert world.do(*specs, frozen=frozen, atomic=atomic).changed == (expected != "the same")
        world.settled(*specs, frozen=frozen, atomic=atomic)
    assert (world.prefix / "conda-meta/frozen").exists() == (expected != "free")
    assert (tree(world.srv) == before) == (expected in ("refused", "the same"))


def test_protection_alone(world: World) -> None:
    made(world.prefix, "tool")
    for check, there in ((True, False), (False, True)):
        assert _conda_env.converge(world.wish("tool", frozen=True), world.without_tool, check=check).changed
        assert (world.prefix / "conda-meta/frozen").exists() == there


@pytest.mark.parametrize("cached", [True, False])
def test_verify_repairs(world: World, cached: bool) -> None:
    made(world.prefix, "app=2", "lib=2", "tool")
    (world.prefix / "lib/app.so").unlink()
    (world.prefix / "lib/lib.so").write_text("changed", encoding="utf-8")
    world.fill_cache("app", "tool", *(["lib"] if cached else []))
    if not cached:
        (world.cache / "lib-2-0.conda").write_bytes(b"half of it")
    for name in ("app-2-0", "lib-2-0", "tool-1-0"):
        (world.cache / name / "lib").mkdir(parents=True)
    world.settled("app")
    planned = world.do("app", verify=True, check=True)
    outcome = world.do("app", verify=True)
    expected = (Fault("app", "lib/app.so", "missing"), Fault("lib", "lib/lib.so", "changed"))
    assert planned.repaired == outcome.repaired == expected
    assert outcome.changed
    # what was unpacked has perhaps the same faults; archives that are right need no network
    left = ["app-2-0.conda", *(["lib-2-0.conda"] if cached else []), "tool-1-0", "tool-1-0.conda"]
    assert world.tool.calls == [("again", "app=2=0", "lib=2=0", *left)]
    assert (world.prefix / "lib/app.so").read_text() == "app 2"
    assert (world.prefix / "lib/lib.so").read_text() == "lib 2"
    kept = world.prefix / "conda-meta/cudahub-changed-1"
    assert tree(kept) == {
        "lib": (stat.S_IFDIR | stat.S_IMODE((kept / "lib").stat().st_mode), ""),
        "lib/lib.so": ((kept / "lib/lib.so").stat().st_mode, "changed"),
    }
    assert world.history == "==> first <==\n==> again <==\n"
    assert os.listdir(world.srv) == ["x"]
    world.settled("app", verify=True)


def test_a_repair_that_repairs_nothing(world: World) -> None:
    made(world.prefix, "lib=2")
    (world.prefix / "lib/lib.so").unlink()
    before = tree(world.srv)
    world.tool.forgets = "lib"
    with pytest.raises(ToolError, match=r"are not as published: lib/lib\.so is missing"):
        world.do("lib", verify=True)
    assert tree(world.srv) == before


def test_verify_of_a_new_environment_beside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = FakeTool.create

    def create(tool: FakeTool, prefix: str, specs: t.Sequence[str]) -> None:
        real(tool, prefix, specs)
        (Path(prefix) / "lib/lib.so").unlink()

    monkeypatch.setattr(FakeTool, "create", create)
    world.do("lib", verify=True, atomic=True)
    assert world.tool.calls[-1] == ("again", "lib=2=0")
    assert sorted(os.listdir(world.srv / "x.d")) == [".cudahub", "1"]
    world.settled("lib", verify=True, atomic=True)


@pytest.mark.parametrize("record", ["lib-2-0.json", "other-1-0.json"])
def test_a_damaged_record_is_repaired_without_being_asked(world: World, record: str) -> None:
    made(world.prefix, "lib=2", "tool")
    (world.prefix / "conda-meta" / record).write_bytes(b"")
    outcome = world.do("lib", "tool")
    assert outcome.damaged == ((record, "the file is empty"),)
    assert world.tool.calls == [("install", "lib", "tool")]
    assert world.has == ["lib=2", "tool=1"]
    world.settled("lib", "tool")


def test_a_package_in_two_versions_is_repaired(world: World) -> None:
    made(world.prefix, "lib=1", "lib=2", "tool")
    assert world.do("lib", "tool").damaged == (("lib-*.json", "the package is there in several versions"),)
    assert world.has == ["lib=2", "tool=1"]


def test_an_environment_that_was_only_begun(world: World) -> None:
    (world.prefix / "conda-meta").mkdir(parents=True)
    with pytest.raises(RefusedError, match="is no environment yet, and no packages are asked for"):
        world.do()
    assert world.do("app").changed
    assert [call[0] for call in world.tool.calls] == ["solve", "install"]
    assert world.has == ["app=2", "lib=2"]


def test_what_a_killed_run_left_is_made_good(world: World) -> None:
    made(world.prefix, "tool")
    before = tree(world.srv)
    place = _conda_env.InPlace(str(world.prefix))
    place.begin()
    put(world.prefix, known("lib=1"))
    killed = tree(world.srv)
    assert _conda_env.converge(world.wish("tool"), world.without_tool, check=True).recovered is False
    assert tree(world.srv) == killed
    outcome = _conda_env.converge(world.wish("tool"), world.without_tool, check=False)
    assert (outcome.changed, outcome.recovered) == (True, True)
    assert tree(world.srv) == before
    assert world.without_tool.said == [
        f"A run before this one did not end: {world.prefix} is as it was before it",
    ]


def test_files_get_their_owner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made(world.prefix, "tool")
    (world.prefix / "link").symlink_to("nowhere")
    before = tree(world.srv)
    owned: list[tuple[str, int, int]] = []

    def chown(path: str, owner: int, group: int, *, follow_symlinks: bool) -> None:
        assert not follow_symlinks
        owned.append((os.path.relpath(path, world.prefix), owner, group))

    monkeypatch.setattr(os, "chown", chown)
    another = os.geteuid() + 1
    assert _conda_env.converge(world.wish("tool", owner=another), world.without_tool, check=True).changed
    assert owned == []
    assert _conda_env.converge(world.wish("tool", owner=another), world.without_tool, check=False).changed
    assert {(owner, group) for _path, owner, group in owned} == {(another, -1)}
    assert {path for path, _owner, _group in owned} == {".", *before} - {"x"} ^ {
        "x/conda-meta", "x/lib", "x/link", "x/conda-meta/history", "x/conda-meta/tool-1-0.json", "x/lib/tool.so",
        "conda-meta", "lib", "link", "conda-meta/history", "conda-meta/tool-1-0.json", "lib/tool.so",
    }  # fmt: skip
    owned.clear()
    world.do("app", group=os.getegid())
    assert {(owner, group) for _path, owner, group in owned} == {(-1, os.getegid())}
    assert "lib/app.so" in {path for path, _owner, _group in owned}
    world.settled("app", group=os.getegid(), owner=os.geteuid())


DRY = ("install", "--dry-run", "--no-index", "nvtx")


@pytest.mark.parametrize(
    ("dry", "changed"),
    [
        (Result(0, "Requirement already satisfied: nvtx", ""), False),
        (Result(0, "Would install nvtx-1", ""), True),
        (Result(1, "", "ERROR: No matching distribution found for nvtx"), True),
    ],
)
def test_pip(world: World, dry: Result, changed: bool) -> None:
    made(world.prefix, "tool")
    host = FakeHost(world.files, dry=dry)
    assert _conda_env.converge(world.wish("tool", pip=("nvtx",)), host, check=True).changed == changed
    assert host.pips == [DRY]
    outcome = _conda_env.converge(world.wish("tool", pip=("nvtx",)), host, check=False)
    assert outcome.changed == changed
    assert host.pips == [DRY, DRY, *([("install", "nvtx")] if changed else [])]
    assert outcome.pip_after == (("nvtx==1",) if changed else ())


@pytest.mark.parametrize(
    ("result", "kind", "message"),
    [
        (
            Result(1, "", "Collecting nvtx\nERROR: Could not find a version\nERROR: No matching distribution\n"),
            "pip",
            "Could not find a version. No matching distribution: correct the lines of pip",
        ),
        (Result(2, "only this", ""), "pip", "only this: correct"),
        (Result(127, "", ""), "package", "has no pip for nvtx, which packages has to name"),
    ],
)
@pytest.mark.parametrize("atomic", [False, True])
def test_pip_fails(world: World, result: Result, kind: str, message: str, atomic: bool) -> None:
    world.do("tool", atomic=atomic)
    before = tree(world.srv)
    host = FakeHost(world.files, world.tool, dry=Result(1, "", ""), install=result)
    with pytest.raises(ToolError) as caught:
        _conda_env.converge(world.wish("tool", "lib", pip=("nvtx",), atomic=atomic), host, check=False)
    assert caught.value.kind == kind
    assert message in str(caught.value)
    assert tree(world.srv) == before


def test_packages_of_pip(tmp_path: Path) -> None:
    dist(tmp_path, "Zope.Interface==6.1")
    dist(tmp_path, "nvidia_ml_py==13.610", requested=False)
    dist(tmp_path, "numpy==2", installer="conda")
    (tmp_path / "lib/python3.13/site-packages/broken-1.dist-info").mkdir()
    assert _conda_env.pip_packages(tmp_path) == ("nvidia-ml-py==13.610", "zope-interface==6.1")
    assert _conda_env.pip_packages(tmp_path, requested=True) == ("zope-interface==6.1",)


def test_lock_lines() -> None:
    packages = [
        Package("zlib", "1", "0", url="https://user:secret@host/c/linux-64/zlib-1-0.conda", md5="b" * 32),
        Package("app", "1", "0", url="https://host/t/secret/c/noarch/app-1-0.conda"),
        Package("mid", "1", "0", url="https://host/c/linux-64/mid@-1-0.conda", md5="a" * 32),
    ]
    assert _conda_env.lock_lines(packages) == [
        "https://host/c/noarch/app-1-0.conda",
        f"https://host/c/linux-64/mid@-1-0.conda#{'a' * 32}",
        f"https://host/c/linux-64/zlib-1-0.conda#{'b' * 32}",
    ]


def test_a_lock_brings_the_same_elsewhere(world: World) -> None:
    outcome = world.do("app", "tool")
    assert _conda_env.lock_lines(outcome.after) == [lock_line(text) for text in ("app=2", "lib=2", "tool")]
    world.settled(lock=_conda_env.lock_lines(outcome.after))


def file(prefix: Path) -> None:
    prefix.write_text("x", encoding="utf-8")


def foreign(prefix: Path) -> None:
    (prefix / "notes").mkdir(parents=True)


def link(prefix: Path) -> None:
    made(prefix.with_name("y"), "tool")
    prefix.symlink_to("y")


def beside(prefix: Path) -> None:
    made(prefix.with_name("x.d") / "1", "tool")
    prefix.with_name("x.d").joinpath(".cudahub").touch()
    prefix.symlink_to("x.d/1")


def in_a_file(prefix: Path) -> None:
    shutil.rmtree(prefix.parent)
    prefix.parent.touch()


def there(prefix: Path) -> None:
    made(prefix, "tool")


def absent(_prefix: Path) -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("start", "values", "message"),
    [
        (file, {}, "x is a file: give the path of an environment"),
        (foreign, {}, "x is a directory that is not empty and no conda environment"),
        (link, {}, "x is a symbolic link to y: give the path of the environment itself"),
        (link, {"atomic": True}, "x is a symbolic link to y: give the path of the environment itself"),
        (beside, {}, "x.d: set atomic to true, as when it was made"),
        (there, {"atomic": True}, "x is there and not a link of this module's, which atomic needs"),
        (in_a_file, {}, "srv is no directory, so that"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_a_place_that_is_refused(
    world: World, start: t.Callable[[Path], None], values: dict[str, t.Any], message: str, check: bool
) -> None:
    start(world.prefix)
    before = tree(world.srv.parent)
    with pytest.raises(RefusedError) as caught:
        _conda_env.converge(world.wish("tool", **values), world.without_tool, check=check)
    assert message in str(caught.value)
    assert tree(world.srv.parent) == before


def installation(prefix: Path) -> None:
    made(prefix, "tool")
    (prefix / "condabin").mkdir()
    (prefix / "envs").mkdir()


def frozen_one(prefix: Path) -> None:
    made(prefix, "tool")
    (prefix / "conda-meta/frozen").touch()


def damaged_one(prefix: Path) -> None:
    made(prefix, "tool")
    (prefix / "conda-meta/tool-1-0.json").write_bytes(b"")


def directory(prefix: Path) -> None:
    prefix.mkdir()


def begun(prefix: Path) -> None:
    (prefix / "conda-meta").mkdir(parents=True)


@pytest.mark.parametrize("frozen", [None, True, False])
@pytest.mark.parametrize(
    ("start", "message"),
    [
        (absent, None),
        (directory, None),
        (begun, None),
        (there, None),
        (damaged_one, None),
        (beside, None),
        (file, "x is a file and no conda environment: remove it yourself if it is to go"),
        (foreign, "x is a directory with something else in it and no conda environment"),
        (link, "x is a symbolic link and no conda environment"),
        (installation, "x is an installation of conda, with condabin and envs in it: remove it yourself"),
        (frozen_one, "x is protected by conda-meta/frozen: set frozen to false to have it removed"),
    ],
)
def test_removing(world: World, start: t.Callable[[Path], None], message: str | None, frozen: bool | None) -> None:
    start(world.prefix)
    before = tree(world.srv)
    for check in (True, False):
        if message and (start is not frozen_one or frozen is not False):
            with pytest.raises(RefusedError) as caught:
                _conda_env.absent(str(world.prefix), world.without_tool, frozen=frozen, check=check)
            assert message in str(caught.value)
            assert caught.value.kind == ("frozen" if start is frozen_one else None)
            assert tree(world.srv) == before
            continue
        outcome = _conda_env.absent(str(world.prefix), world.without_tool, frozen=frozen, check=check)
        assert outcome.changed == (start is not absent)
        assert outcome.after == ()
        assert tree(world.srv) == (before if check else {})
    if not list(world.srv.iterdir()):
        outcome = _conda_env.absent(str(world.prefix), world.without_tool, frozen=frozen, check=False)
        assert not outcome.changed


def test_removing_after_a_killed_run(world: World) -> None:
    made(world.prefix, "tool")
    _conda_env.InPlace(str(world.prefix)).begin()
    outcome = _conda_env.absent(str(world.prefix), world.without_tool, frozen=None, check=False)
    assert (outcome.changed, names(one.package for one in outcome.before.packages)) == (True, ["tool=1"])
    assert list(world.srv.iterdir()) == []


def test_long_lists_are_shortened_and_secrets_are_hidden() -> None:
    assert _conda_env._some(["a"] * 5) == "a, a, a, a, a"
    assert _conda_env._some(["a"] * 7) == "a, a, a, a, a and 2 more"
    assert _conda_env._some(["https://user:secret@host/t/secret/x"]) == "https://********@host/t/********/x"


def test_a_need_that_the_tool_does_not_see_builds_nothing_anew(world: World) -> None:
    world.do("tool", atomic=True)
    record = next((world.prefix / "conda-meta").glob("tool-*.json"))
    record.write_text(json.dumps({**json.loads(record.read_text()), "depends": ["ghost >=1"]}))
    world.tool.calls.clear()
    assert not world.do("tool", atomic=True).changed
    assert world.tool.calls == [("solve", "new", "tool")]
    assert os.readlink(world.prefix) == "x.d/1"


def test_what_is_mounted_inside_is_found() -> None:
    assert "which is mounted there" in (_conda_env._inside("/") or "")


@pytest.mark.parametrize("values", [{"url": "https://forge/.."}, {"url": "https://forge/."}, {"name": "../../a"}])
def test_a_record_can_not_choose_what_a_cache_forgets(tmp_path: Path, values: dict[str, str]) -> None:
    cache = tmp_path / "conda/pkgs"
    for folder in (cache / "a-1-0", tmp_path / "a-1-0"):
        folder.mkdir(parents=True)
    before = tree(tmp_path)
    _conda_env._forget(Package(**{"name": "a", "version": "1", "build": "0", **values}), cache)
    assert tree(tmp_path) == before
    _conda_env._forget(Package("a", "1", "0", url="https://forge/a-1-0.conda"), cache)
    assert not (cache / "a-1-0").exists()
