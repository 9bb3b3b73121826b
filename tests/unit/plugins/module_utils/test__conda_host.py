# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real programs, small ones: what they print, what they inherit, and that no other run meets one that is left over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _conda_host, _run_lock
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_answer import Answer, ToolError
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_host import Machine, Watch
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_spec import Package
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_tool import Settings
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import PackageError

MB = 1_000_000


def package(name: str) -> Package:
    return Package(name, "1", "0", url=f"https://host/linux-64/{name}-1-0.conda")


ANSWER = Answer((package("a"), package("b")), (), (package("a"), package("b"), Package("c", "1", "0")), 30 * MB)


def sized(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_what_comes_is_told_once(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path / "x"), str(tmp_path / "pkgs"), ANSWER)
    assert watch.look() == ""
    sized(tmp_path / "pkgs/other-1-0.conda", 99 * MB)
    assert watch.look() == ""
    sized(tmp_path / "pkgs/a-1-0.conda.partial", 5 * MB)
    assert watch.look() == "Downloaded 5.0 of 30 MB"
    assert watch.look() == ""
    (tmp_path / "pkgs/a-1-0.conda.partial").rename(tmp_path / "pkgs/a-1-0.conda")
    assert watch.look() == ""
    sized(tmp_path / "pkgs/b-1-0.conda.part", 21 * MB)
    assert watch.look() == "Downloaded 26 of 30 MB"
    sized(tmp_path / "pkgs/b-1-0.conda", 27 * MB)
    assert watch.look() == "Downloaded 32 of 32 MB"
    sized(tmp_path / "x/conda-meta/other-1-0.json", 1)
    assert watch.look() == ""
    sized(tmp_path / "x/conda-meta/b-1-0.json", 1)
    assert watch.look() == "Linked 1 of 2 packages"
    assert watch.look() == ""
    sized(tmp_path / "x/conda-meta/a-1-0.json", 1)
    assert watch.look() == "Linked 2 of 2 packages"


def test_without_a_cache_only_packages_are_told(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path), None, ANSWER)
    assert watch.look() == ""
    sized(tmp_path / "conda-meta/b-1-0.json", 1)
    assert watch.look() == "Linked 1 of 2 packages"


class Bed:
    """A host whose tool is a script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.cache = folder / "cache/pkgs"
        self.settings = Settings()

    def script(self, text: str, name: str = "conda") -> str:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def tool(self, *caches: str) -> str:
        info = json.dumps({"envs_dirs": ["/envs"], "pkgs_dirs": list(caches) or [str(self.cache)], "root_prefix": "/"})
        return self.script(f"""case $1 in --version) echo conda 24.7.1;; info) echo '{info}';; esac
echo "$1" "$CONDARC" >> {self.folder}/calls""")

    def machine(self, executable: str | None = None, *, check: bool = False, pip: t.Sequence[str] = ()) -> Machine:
        return Machine(
            lambda: self.settings, executable, "/nonexistent", pip, self.said.append, lock_timeout=0, check=check
        )


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_a_program(bed: Bed) -> None:
    script = bed.script("echo out $1; echo wrong >&2; printf '\\377'; cat; exit 3")
    with bed.machine() as host:
        result = host._run([script, "a b"], {})
    assert (result.code, result.stdout, result.stderr) == (3, "out a b\n\ufffd", "wrong\n")


def test_a_program_is_not_killed_with_the_terminal_of_its_run(bed: Bed) -> None:
    with bed.machine() as host:
        session = host._run([bed.script("cut -d ' ' -f 6 /proc/$$/stat")], {}).stdout
    assert int(session) not in (0, os.getsid(0))


@pytest.mark.parametrize(("name", "message"), [("nothing", "No such file or directory"), ("text", "Permission denied")])
def test_what_is_no_program(bed: Bed, name: str, message: str) -> None:
    (bed.folder / "text").touch(mode=0o644)
    path = str(bed.folder / name)
    with bed.machine() as host:
        result = host._run([path], {})
    assert (result.code, result.stdout, result.stderr) == (127, "", f"{path}: {message}")


def test_variables(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _conda_host.NOISE:
        monkeypatch.setenv(name, "noise")
    monkeypatch.setenv("CONDA_SUBDIR", "linux-64")
    monkeypatch.setenv("REPLACED", "before")
    with bed.machine() as host:
        result = host._run(["env"], {"REPLACED": "after", "CONDA_PREFIX_1": "x"})
    lines = result.stdout.splitlines()
    assert "noise" not in result.stdout
    assert {"CONDA_SUBDIR=linux-64", "REPLACED=after", "CONDA_PREFIX_1=x"} <= set(lines)
    assert os.environ["CONDA_PREFIX"] == "noise"


def test_what_a_program_has_done_is_told_while_it_runs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_conda_host, "POLL", 0.01)
    monkeypatch.setattr(_conda_host, "EVERY", 0.0)
    bed.cache.mkdir(parents=True)
    wait = "while ! [ -e {0}/go ]; do sleep 0.01; done"
    script = bed.script(f"echo > {bed.cache}/a-1-0.conda; {wait.format(bed.folder)}", "work")

    def say(line: str) -> None:
        bed.said.append(line)
        (bed.folder / "go").touch()

    with bed.machine(bed.tool()) as host:
        host.say = say
        host.expect(str(bed.folder / "x"), ANSWER)
        assert host._run([script], {}).code == 0
    assert bed.said == ["Downloaded 0.0 of 30 MB"]


HOLDER = """
import sys
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_host import Machine
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_tool import Settings
with Machine(Settings, None, "/x", [], print, lock_timeout=0, check=False) as host:
    host.hold(sys.argv[1])
    host._run(["sh", "-c", f"echo $$ > {sys.argv[2]}.new; mv {sys.argv[2]}.new {sys.argv[2]}; exec sleep 600"], {})
"""


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path.read_text(encoding="utf-8")


def test_a_tool_whose_run_was_killed_keeps_others_away(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix, child = str(bed.folder / "x"), bed.folder / "child"
    run = subprocess.Popen(
        [sys.executable, "-c", HOLDER, prefix, str(child)], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
    )
    tool = int(wait_for(child))
    ended = False

    def say(line: str) -> None:
        nonlocal ended
        bed.said.append(line)
        os.kill(tool, signal.SIGKILL)
        ended = True

    try:
        run.kill()
        run.wait()
        os.kill(tool, 0)
        with bed.machine() as host, pytest.raises(PackageError) as caught:
            host.hold(prefix)
        assert caught.value.kind == "lock"
        assert caught.value.message.startswith(
            f"Another run that changes conda environments, process {run.pid}, was not done within 0 s"
        )
        monkeypatch.setattr(_run_lock, "POLL", 0.01)
        with Machine(Settings, None, "/x", [], say, lock_timeout=120, check=False) as host:
            host.hold(prefix)
            assert ended
        assert bed.said == [f"Waiting for another run that changes conda environments, process {run.pid}"]
    finally:
        if not ended:
            os.kill(tool, signal.SIGKILL)


def test_two_prefixes_do_not_wait_for_each_other(bed: Bed) -> None:
    with bed.machine() as host, bed.machine() as other:
        host.hold(str(bed.folder / "deep/x"))
        other.hold(str(bed.folder / "deep/y"))
        assert sorted(os.listdir(bed.folder / "deep")) == [".x.cudahub.lock", ".y.cudahub.lock"]
        with pytest.raises(PackageError):
            other.hold(str(bed.folder / "deep/x"))
    assert os.listdir(bed.folder / "deep") == []


def test_the_tool_is_looked_for_once_and_gets_its_settings(bed: Bed) -> None:
    bed.settings = Settings(channels=("https://user:secret@host/forge",))
    with bed.machine(bed.tool()) as host:
        assert host.tool is None
        session = host.session()
        assert host.session() is session
        assert str(host.tool) == "conda 24.7.1"
        assert (host.directories(), host.caches()) == (host.directories(), (str(bed.cache),))
        (version, info) = (bed.folder / "calls").read_text(encoding="utf-8").splitlines()
        assert version == "--version "
        condarc = Path(info.removeprefix("info "))
        assert json.loads(condarc.read_text(encoding="utf-8")) == {
            "custom_channels": {"forge": "https://user:secret@host"}
        }
        assert condarc.stat().st_mode & 0o777 == 0o600
    assert not condarc.parent.exists()


@pytest.mark.parametrize("check", [False, True])
def test_one_run_at_a_time_fills_a_cache(bed: Bed, check: bool) -> None:
    with bed.machine(bed.tool()) as host, bed.machine(bed.tool(), check=check) as other:
        host.session()
        assert (bed.cache / "cudahub.lock").exists()
        if check:
            assert other.session()
        else:
            with pytest.raises(PackageError, match="Another run that changes conda environments"):
                other.session()
    assert os.listdir(bed.cache) == []


def test_a_cache_that_can_not_be_written_is_passed_over(bed: Bed) -> None:
    (bed.folder / "file").touch()
    with bed.machine(bed.tool(f"{bed.folder}/file/pkgs", str(bed.cache), f"{bed.folder}/third")) as host:
        host.session()
        assert os.listdir(bed.cache) == ["cudahub.lock"]
        assert not (bed.folder / "third").exists()


@pytest.mark.parametrize(
    ("free", "size", "message"),
    [
        (60 * MB, 30 * MB, None),
        (60 * MB - 1, 30 * MB, "has 60 MB of free space, and 60 MB are needed"),
        (5 * MB, 30 * MB, "has 5.0 MB of free space, and 60 MB are needed for the download and what is in it"),
        (0, 0, None),
    ],
)
def test_room_on_the_disk(bed: Bed, monkeypatch: pytest.MonkeyPatch, free: int, size: int, message: str | None) -> None:
    looked = []

    def usage(path: str) -> shutil._ntuple_diskusage:
        looked.append(path)
        return shutil._ntuple_diskusage(100 * MB, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    answer = Answer(ANSWER.link, (), ANSWER.fetch, size)
    with bed.machine(bed.tool(), check=True) as host:
        if message is None:
            host.expect("/x", answer)
        else:
            with pytest.raises(ToolError) as caught:
                host.expect("/x", answer)
            assert caught.value.kind == "disk"
            assert f"{bed.cache} {message}" in caught.value.reason
    assert looked == ([str(bed.folder)] if size else [])


def test_files_of_a_run(bed: Bed) -> None:
    with bed.machine() as host:
        paths = [Path(host.file("one")), Path(host.file("two", ".yaml"))]
        assert [path.read_text(encoding="utf-8") for path in paths] == ["one", "two"]
        assert paths[1].suffix == ".yaml"
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
        assert paths[0].parent.stat().st_mode & 0o777 == 0o700
    assert not paths[0].parent.exists()


def test_pip(bed: Bed) -> None:
    (bed.folder / "bin").mkdir()
    bed.script('echo "$@" "[$PYTHONNOUSERSITE]"; for last; do :; done; cat "$last"', "bin/python")
    with bed.machine(pip=["--index-url", "https://mirror"]) as host:
        result = host.pip(str(bed.folder), ["install", "--dry-run"], ["nvtx", "cupy>=13 # x"])
        first, *lines = result.stdout.splitlines()
    assert first.startswith(
        "-m pip --no-input --disable-pip-version-check install --dry-run --index-url https://mirror -r /"
    )
    assert first.endswith(" [1]")
    assert lines == ["nvtx", "cupy>=13 # x"]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (None, 127),
        ("echo '/x/bin/python: No module named pip' >&2; exit 1", 127),
        ("exit 1", 1),
        ("exit 0", 0),
    ],
)
def test_no_pip(bed: Bed, script: str | None, code: int) -> None:
    (bed.folder / "bin").mkdir()
    if script:
        bed.script(script, "bin/python")
    with bed.machine() as host:
        assert host.pip(str(bed.folder), ["install"], ["nvtx"]).code == code
