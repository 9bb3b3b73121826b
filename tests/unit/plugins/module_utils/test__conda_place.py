# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever kills a change of an environment, and wherever: the next run has again what was there before."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import stat
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _conda_place
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_place import Beside, InPlace, PlaceError

Tree = dict[str, tuple[int, str, int]]


class KilledError(BaseException):
    """What stands for SIGKILL: nothing that is killed catches it."""


def tree(folder: Path) -> Tree:
    """All paths with kind and mode, content, and owner."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (status.st_mode, content, status.st_uid)
    return found


def put(folder: Path, files: t.Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(content, encoding="utf-8")


def environment(prefix: Path) -> None:
    """An environment with all that one can have."""
    put(
        prefix,
        {
            "bin/python": "python 1",
            "bin/pip": "pip 1",
            "conda-meta/history": "==> 1 <==",
            "conda-meta/python-1-0.json": "{}",
            "conda-meta/cudahub-changed/bin/x": "x",
            "lib/python3/site-packages/a/__init__.py": "a 1",
            "lib/python3/site-packages/a/data/table": "table 1",
            "pkgs/python-1-0/bin/python": "python 1",
            "envs/other/bin/python": "other",
        },
    )
    (prefix / "empty").mkdir(mode=0o750)
    (prefix / "lib/python3/link").symlink_to("site-packages/a")
    (prefix / "lib64").symlink_to("lib")
    (prefix / "dangling").symlink_to("nowhere")
    (prefix / "bin/python").chmod(0o755)
    (prefix / "lib/python3/site-packages/a").chmod(0o711)
    if os.geteuid() == 0:
        os.chown(prefix / "lib/python3/site-packages/a/data", 1234, 1234)
        os.chown(prefix / "conda-meta/history", 1234, 1234)


def change(prefix: Path) -> t.Iterator[None]:
    """Change it as a tool does, which can be killed at each yield."""
    put(prefix, {"bin/python": "python 2", "bin/new": "new"})
    yield
    (prefix / "bin/pip").unlink()
    with (prefix / "conda-meta/history").open("a", encoding="utf-8") as history:
        history.write("==> 2 <==")
    yield
    (prefix / "conda-meta/python-1-0.json").unlink()
    put(prefix, {"conda-meta/python-2-0.json": "{2}", "share/new/deep/file": "new"})
    yield
    shutil.rmtree(prefix / "lib/python3")
    (prefix / "lib/python3").write_text("a file for a directory", encoding="utf-8")
    yield
    (prefix / "lib64").unlink()
    put(prefix, {"lib64/x": "a directory for a link"})
    yield
    (prefix / "dangling").unlink()
    (prefix / "dangling").symlink_to("elsewhere")
    (prefix / "empty").rmdir()
    yield


class Killer:
    """Kills at a step that changes the disk: it is not done, or half of it, and none that follows is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for owner, name in (
            (Path, "mkdir"),
            (Path, "rename"),
            (Path, "replace"),
            (Path, "symlink_to"),
            (Path, "unlink"),
            (Path, "rmdir"),
            (Path, "write_text"),
            (os, "link"),
            (shutil, "copytree"),
            (shutil, "copystat"),
            (shutil, "rmtree"),
        ):
            monkeypatch.setattr(owner, name, self._watched(name, getattr(owner, name)))

    def _watched(self, name: str, real: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def step(*arguments: t.Any, **options: t.Any) -> t.Any:
            if self.left is None:
                return real(*arguments, **options)
            if self.left == 0:
                self.left = None
                if name == "write_text":
                    arguments[0].touch()
                if name == "rmtree":
                    inside = sorted(path for path in Path(arguments[0]).rglob("*") if not path.is_dir())
                    for path in inside[: len(inside) // 2 + 1]:
                        path.unlink()
                raise KilledError
            left, self.left = self.left - 1, None
            try:
                return real(*arguments, **options)
            finally:
                self.left = left

        return step

    def at(self, number: int, run: t.Callable[[], t.Any]) -> bool:
        """Run, and kill it at a step; return whether there was such a step."""
        self.left = number
        try:
            run()
        except KilledError:
            return True
        finally:
            self.left = None
        return False


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    return Killer(monkeypatch)


def folders(tmp_path: Path) -> t.Iterator[tuple[int, Path]]:
    """A new directory for each number."""
    for number in itertools.count():
        assert number < 200
        folder = tmp_path / str(number)
        folder.mkdir()
        yield number, folder


def recovered(folder: Path) -> Tree:
    """What is there after a run that recovers, and one more, which has nothing to do."""
    InPlace(str(folder / "x")).recover()
    found = tree(folder)
    assert not InPlace(str(folder / "x")).recover()
    assert tree(folder) == found
    return found


def nothing(_prefix: Path) -> None:
    """No environment."""


def empty(prefix: Path) -> None:
    prefix.mkdir(mode=0o2750)


def created(prefix: Path) -> t.Iterator[None]:
    put(prefix, {"conda-meta/history": "1"})
    yield
    put(prefix, {"bin/python": "python", "pkgs/x": "x"})
    yield


STARTS = [
    pytest.param(nothing, created, id="nothing"),
    pytest.param(empty, created, id="empty"),
    pytest.param(environment, change, id="environment"),
]
Start = t.Callable[[Path], None]
Change = t.Callable[[Path], t.Iterator[None]]


@pytest.mark.parametrize(("start", "changes"), STARTS)
def test_a_change_that_is_done_stays(tmp_path: Path, start: Start, changes: Change) -> None:
    prefix, expected = tmp_path / "x", tmp_path / "expected/x"
    expected.parent.mkdir()
    for each in (prefix, expected):
        start(each)
        if each == expected:
            list(changes(each))
    place = InPlace(str(prefix))
    assert place.begin() == place.current == prefix
    list(changes(prefix))
    place.commit()
    assert tree(prefix) == tree(expected)
    assert sorted(os.listdir(tmp_path)) == ["expected", "x"]
    assert not place.recover()


@pytest.mark.parametrize(("start", "changes"), STARTS)
def test_a_change_that_fails_is_taken_back(tmp_path: Path, start: Start, changes: Change) -> None:
    start(tmp_path / "x")
    before, inside = tree(tmp_path), tree(tmp_path / "x")
    place = InPlace(str(tmp_path / "x"))
    for steps in range(8):
        place.begin()
        list(itertools.islice(changes(tmp_path / "x"), steps))
        assert steps == 0 or tree(tmp_path / "x") != inside
        place.roll_back()
        assert tree(tmp_path) == before


def test_the_cache_and_other_environments_of_an_installation_stay_as_they_are(tmp_path: Path) -> None:
    environment(tmp_path / "x")
    place = InPlace(str(tmp_path / "x"))
    place.begin()
    put(tmp_path / "x", {"pkgs/new/x": "x", "envs/other/bin/python": "new"})
    place.roll_back()
    assert (tmp_path / "x/pkgs/new/x").exists()
    assert (tmp_path / "x/envs/other/bin/python").read_text() == "new"


def test_a_prefix_that_a_tool_removed_comes_back(tmp_path: Path) -> None:
    environment(tmp_path / "x")
    before = {path: entry for path, entry in tree(tmp_path).items() if not path.startswith(("x/pkgs", "x/envs"))}
    place = InPlace(str(tmp_path / "x"))
    place.begin()
    shutil.rmtree(tmp_path / "x")
    place.roll_back()
    assert tree(tmp_path) == before


@pytest.mark.parametrize(("start", "changes"), STARTS)
def test_killed_while_it_begins(tmp_path: Path, killer: Killer, start: Start, changes: Change) -> None:
    for number, folder in folders(tmp_path):
        start(folder / "x")
        before = tree(folder)
        killed = killer.at(number, InPlace(str(folder / "x")).begin)
        assert recovered(folder) == before
        if not killed:
            break
    assert number > 1


@pytest.mark.parametrize(("start", "changes"), STARTS)
def test_killed_while_it_changes_and_while_it_recovers(
    tmp_path: Path, killer: Killer, start: Start, changes: Change
) -> None:
    for number, folder in folders(tmp_path):
        start(folder / "x")
        before = tree(folder)
        InPlace(str(folder / "x")).begin()
        list(changes(folder / "x"))
        killed = killer.at(number, InPlace(str(folder / "x")).recover)
        assert recovered(folder) == before
        if not killed:
            break
    assert number > 2


@pytest.mark.parametrize(("start", "changes"), STARTS)
def test_killed_while_it_ends(tmp_path: Path, killer: Killer, start: Start, changes: Change) -> None:
    states = []
    for number, folder in folders(tmp_path):
        start(folder / "x")
        before = tree(folder)
        place = InPlace(str(folder / "x"))
        place.begin()
        list(changes(folder / "x"))
        after = {path: entry for path, entry in tree(folder).items() if not path.startswith(".x.cudahub")}
        killed = killer.at(number, place.commit)
        found = recovered(folder)
        assert found in (before, after)
        states.append(found == after)
        if not killed:
            break
    # only a kill before the first step takes all back
    assert states == [False] + [True] * (len(states) - 1)
    assert len(states) > 2


def test_killed_while_it_removes(tmp_path: Path, killer: Killer) -> None:
    for number, folder in folders(tmp_path):
        environment(folder / "x")
        before = tree(folder)
        killed = killer.at(number, InPlace(str(folder / "x")).remove)
        assert recovered(folder) == (before if number < 2 else {})
        if not killed:
            break
    assert number > 2


def test_recover_says_whether_a_run_did_not_end(tmp_path: Path) -> None:
    place = InPlace(str(tmp_path / "x"))
    assert not place.recover()
    for start in (nothing, environment):
        start(tmp_path / "x")
        place.begin()
        assert place.recover()
        assert not place.recover()


def test_what_is_kept_takes_no_room(tmp_path: Path) -> None:
    environment(tmp_path / "x")
    InPlace(str(tmp_path / "x")).begin()
    before = tmp_path / ".x.cudahub/before"
    assert stat.S_IMODE(before.parent.stat().st_mode) == 0o700
    shared = {
        str(path.relative_to(before))
        for path in before.rglob("*")
        if path.is_symlink() or path.is_file()
        if path.lstat().st_ino == (tmp_path / "x" / path.relative_to(before)).lstat().st_ino
    }
    assert shared == {
        "bin/python", "bin/pip", "lib/python3/site-packages/a/__init__.py", "lib/python3/site-packages/a/data/table",
        "lib/python3/link", "lib64", "dangling",
    }  # fmt: skip
    copied = tree(before / "conda-meta")
    assert copied == tree(tmp_path / "x/conda-meta")
    assert "cudahub-changed/bin/x" in copied
    assert not (before / "pkgs").exists()
    assert not (before / "envs").exists()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EXDEV, "can't be kept aside as hard links (Invalid cross-device link): run the task as their owner"),
        (errno.EPERM, "hard links"),
        (errno.EMLINK, "hard links"),
        (errno.EOPNOTSUPP, "hard links"),
        (errno.ENOSPC, None),
    ],
)
def test_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: str | None) -> None:
    def link(_source: Path, _target: Path, *, follow_symlinks: bool) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    environment(tmp_path / "x")
    before = tree(tmp_path)
    monkeypatch.setattr(os, "link", link)
    with pytest.raises(PlaceError if expected else OSError) as caught:
        InPlace(str(tmp_path / "x")).begin()
    assert expected is None or expected in str(caught.value)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("mounted", [False, True])
def test_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: bool) -> None:
    prefix = tmp_path / "x"
    environment(prefix)
    monkeypatch.setattr(os.path, "ismount", lambda path: mounted and path == prefix)
    InPlace(str(prefix)).remove()
    assert sorted(os.listdir(tmp_path)) == (["x"] if mounted else [])
    assert not mounted or os.listdir(prefix) == []


def built(place: Beside, content: str) -> Path:
    target = place.begin()
    put(target, {"bin/python": content})
    return target


def test_each_change_is_a_new_environment_beside(tmp_path: Path) -> None:
    prefix = tmp_path / "deep/x"
    place = Beside(str(prefix))
    assert (place.is_ours, place.current) == (False, prefix)
    for number in (1, 2, 3, 4):
        target = built(place, f"python {number}")
        assert target == tmp_path / f"deep/x.d/{number}"
        assert number == 1 or (prefix / "bin/python").read_text() == f"python {number - 1}"
        place.commit()
        assert os.readlink(prefix) == f"x.d/{number}"
        assert (place.is_ours, place.current) == (True, target)
        expected = [".cudahub", *(str(one) for one in (number - 1, number) if one)]
        assert sorted(os.listdir(tmp_path / "deep/x.d")) == expected
        assert not Beside(str(prefix)).recover()
    assert sorted(os.listdir(tmp_path / "deep")) == ["x", "x.d"]


def test_what_a_program_that_runs_has_open_stays_for_one_change(tmp_path: Path) -> None:
    place = Beside(str(tmp_path / "x"))
    for content in ("1", "2", "3"):
        built(place, content)
        place.commit()
    (tmp_path / "x.d/notes").touch()
    (tmp_path / "x.d/0").touch()
    built(place, "4")
    place.commit()
    assert sorted(os.listdir(tmp_path / "x.d")) == [".cudahub", "0", "3", "4", "notes"]


def test_a_build_that_fails_is_taken_away(tmp_path: Path) -> None:
    place = Beside(str(tmp_path / "x"))
    built(place, "1")
    place.roll_back()
    assert os.listdir(tmp_path) == []
    built(place, "1")
    place.commit()
    before = tree(tmp_path)
    built(place, "2")
    place.roll_back()
    assert tree(tmp_path) == before
    with pytest.raises(ValueError, match="nothing was begun"):
        Beside(str(tmp_path / "x")).commit()


@pytest.mark.parametrize("changes", [0, 1, 3])
def test_a_build_is_killed(tmp_path: Path, killer: Killer, changes: int) -> None:
    def build(place: Beside) -> None:
        built(place, "new")
        place.commit()

    outcomes = set()
    for number, folder in folders(tmp_path):
        prefix = str(folder / "x")
        for content in range(changes):
            build_in = Beside(prefix)
            built(build_in, str(content))
            build_in.commit()
        before = tree(folder)
        killed = killer.at(number, lambda prefix=prefix: build(Beside(prefix)))  # type: ignore[misc]
        Beside(prefix).recover()
        assert not Beside(prefix).recover()
        found = tree(folder)
        new = Path(prefix).is_symlink() and (folder / "x/bin/python").read_text() == "new"
        outcomes.add(new)
        assert not Path(prefix).is_symlink() or (folder / "x/bin/python").exists()
        if not new:
            assert {path: entry for path, entry in found.items() if path != "x.d" or changes} == before
        assert set(os.listdir(folder)) <= {"x", "x.d"}
        if not killed:
            break
    assert outcomes == {False, True}


@pytest.mark.parametrize(
    ("target", "ours"),
    [
        ("x.d/7", True),
        ("x.d/07", True),
        ("x.d/seven", False),
        ("y.d/7", False),
        ("./x.d/7", False),
        ("x.d/7/bin", False),
        ("/opt/x.d/7", False),
    ],
)
def test_a_link_of_others_is_not_ours(tmp_path: Path, target: str, ours: bool) -> None:
    (tmp_path / "x").symlink_to(target)
    place = Beside(str(tmp_path / "x"))
    assert place.is_ours == ours
    assert place.current == (tmp_path / "x.d/7" if ours else tmp_path / "x")


def test_a_number_is_never_used_twice(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("x.d/7")
    assert Beside(str(tmp_path / "x")).begin() == tmp_path / "x.d/8"
    (tmp_path / "x.d/11").mkdir()
    assert Beside(str(tmp_path / "x")).begin() == tmp_path / "x.d/12"


def test_numbered_directories_of_somebody_else_stay(tmp_path: Path) -> None:
    (tmp_path / "x.d/2").mkdir(parents=True)
    place = Beside(str(tmp_path / "x"))
    assert (place.is_ours, place.recover()) == (False, False)
    with pytest.raises(PlaceError, match="is there and not this module's"):
        place.begin()
    assert sorted(tree(tmp_path)) == ["x.d", "x.d/2"]


@pytest.mark.parametrize("others", [False, True])
def test_remove_all_that_the_link_led_to(tmp_path: Path, others: bool) -> None:
    place = Beside(str(tmp_path / "x"))
    for content in ("1", "2"):
        built(place, content)
        place.commit()
    if others:
        (tmp_path / "x.d/notes").touch()
    place.remove()
    assert sorted(tree(tmp_path)) == (["x.d", "x.d/notes"] if others else [])


def test_a_directory_is_removed_and_a_link_to_one_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path, {"kept/file": "x"})
    (tmp_path / "link").symlink_to("kept")
    for name in ("link", "nothing"):
        _conda_place._removed(tmp_path / name)
    assert sorted(tree(tmp_path)) == ["kept", "kept/file"]
