# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What goes wrong: killed runs, runs at the same time, broken files, failing tools, secrets."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from module_of_conda import Module, versions

from ansible_collections.cudahub.gpu.tests.unit.conda_standin import real_conda


def wrapped(folder: Path, script: str) -> str:
    """Return a tool that does something else in the place of an installation, and is conda for all else."""
    path = folder / "wrapped"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *--dry-run*) ;; *"--yes --json"*)\n{script}\n;; esac\nexec {real_conda()} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


# Spread over the time that a run takes.
KILLS = 6


@pytest.mark.parametrize("atomic", [False, True], ids=["in place", "atomic"])
def test_a_killed_run_is_made_good_by_the_next_one(module: Module, tmp_path: Path, *, atomic: bool) -> None:
    prefix = tmp_path / "env"
    options = {"prefix": str(prefix), "atomic": atomic}
    wishes = [["numpy=1.26", "python=3.12", "ipykernel"], ["numpy=2.0", "python=3.12", "ipykernel"]]
    start = time.monotonic()
    module.run(**options, packages=wishes[0])
    usual = time.monotonic() - start
    rng = random.Random(20261128)  # noqa: S311
    for number in range(KILLS):
        wish = wishes[(number + 1) % 2]
        process = module.start(**options, packages=wish)
        time.sleep(usual * (number + rng.random()) / KILLS)
        # The tool goes on, or is killed as well.
        (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.communicate()
        if atomic:
            assert versions(prefix.resolve())["numpy"] in ("1.26.4", "2.0.1")
        module.run(**options, packages=wish)
        assert versions(prefix.resolve())["numpy"] == {"numpy=1.26": "1.26.4", "numpy=2.0": "2.0.1"}[wish[0]]
        module.unchanged(**options, packages=wish, verify=True)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".env")]


def held_up(folder: Path) -> str:
    """Return a tool that has begun with the installation when there is a file `begun`, and goes on with a file `go`."""
    return wrapped(folder, f"touch {folder}/begun; timeout 600 sh -c 'until [ -e {folder}/go ]; do sleep 0.1; done'")


def wait_for(met: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Wait for something, for which a run has to go on."""
    end = time.monotonic() + 300
    while not met():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_runs_at_the_same_time(module: Module, tmp_path: Path) -> None:
    log = tmp_path / "log"
    waits = "Waiting for another run that changes conda environments"
    tool = held_up(tmp_path)
    runs = [module.start(prefix=str(tmp_path / "a"), packages=["numpy=2.0", "python=3.12"], executable=tool)]
    wait_for((tmp_path / "begun").exists, runs[0])
    for name, numpy in (("a", "numpy=2.0"), ("b", "numpy=1.26")):
        runs.append(module.start(prefix=str(tmp_path / name), packages=[numpy, "python=3.12"]))
    wait_for(lambda: waits in log.read_text(), runs[1])
    (tmp_path / "go").touch()
    results = [module.end(run) for run in runs]
    assert [result.get("msg") for result in results] == [None] * 3
    assert sorted(result["changed"] for result in results) == [False, True, True]
    assert (versions(tmp_path / "a")["numpy"], versions(tmp_path / "b")["numpy"]) == ("2.0.1", "1.26.4")
    assert waits in log.read_text()


def test_a_run_that_has_to_wait_too_long(module: Module, tmp_path: Path) -> None:
    tool = held_up(tmp_path)
    options = {"prefix": str(tmp_path / "env"), "packages": ["cuda-version=12.9"]}
    first = module.start(**options, executable=tool)
    wait_for((tmp_path / "begun").exists, first)
    kind, message = module.refused(**options, lock_timeout=0)
    assert (kind, f"process {first.pid}" in message) == ("lock", True)
    (tmp_path / "go").touch()
    assert module.end(first)["changed"]


@pytest.mark.parametrize("damage", ["gone", "changed", "emptied"])
def test_files_are_repaired(module: Module, tmp_path: Path, damage: str) -> None:
    prefix = tmp_path / "env"
    options = {"prefix": str(prefix), "packages": ["numpy=2.0", "python=3.12"], "verify": True}
    module.run(**options)
    module.unchanged(**options)
    path = next(prefix.glob("lib/python3.12/site-packages/numpy-*/METADATA"))
    right = path.read_bytes()
    # A hard link to the cache: what is written here is in the cache as well.
    path.unlink() if damage == "gone" else path.write_bytes(b"mine" if damage == "changed" else b"")
    module.unchanged(**{**options, "verify": False})
    name = str(path.relative_to(prefix))
    expected = [f"{name} is {'missing' if damage == 'gone' else 'changed'}"]
    assert module.run(**options, check=True)["repaired"] == expected
    assert path.exists() is (damage != "gone")
    assert module.run(**options)["repaired"] == expected
    assert path.read_bytes() == right
    module.unchanged(**options)
    kept = prefix / "conda-meta/cudahub-changed-1" / name
    assert (kept.read_bytes() if kept.exists() else None) == {"gone": None, "changed": b"mine", "emptied": b""}[damage]


@pytest.mark.parametrize("content", [b"", b'{"name": "num', b"\0" * 100], ids=["empty", "cut", "zeros"])
def test_records_are_repaired(module: Module, tmp_path: Path, content: bytes) -> None:
    prefix = tmp_path / "env"
    options = {"prefix": str(prefix), "packages": ["numpy=2.0", "python=3.12"]}
    module.run(**options)
    record = prefix / "conda-meta/numpy-2.0.1-py312_0.json"
    record.write_bytes(content)
    result = module.run(**options)
    assert [text.split(":")[0] for text in result["repaired"]] == ["conda-meta/numpy-2.0.1-py312_0.json"]
    assert versions(prefix)["numpy"] == "2.0.1"
    module.unchanged(**options, verify=True)


FAILURES = {
    "fails at once": ('echo \'{"error": "No space left on device"}\'; exit 1', "disk"),
    "fails half way": (
        'rm "$6"/conda-meta/numpy* "$6"/bin/python; echo \'No space left on device\' >&2; exit 1',
        "disk",
    ),
    "is killed": ('rm -r "$6"/bin; kill -9 $$', "broken"),
    "says yes and does nothing": ("echo '{\"success\": true}'; exit 0", "broken"),
    "breaks a record and says yes": (
        ': > "$6"/conda-meta/numpy-2.0.1-py312_0.json; echo \'{"success": true}\'; exit 0',
        "broken",
    ),
}


@pytest.mark.parametrize(("script", "kind"), FAILURES.values(), ids=FAILURES)
def test_a_failing_tool_leaves_what_was_there(module: Module, tmp_path: Path, script: str, kind: str) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=["numpy=2.0", "python=3.12"])
    (prefix / "notes").write_text("mine")
    tool = wrapped(tmp_path, script.replace('"$6"', '"$5"'))
    found, _message = module.refused(prefix=str(prefix), packages=["numpy=2.3"], executable=tool)
    assert found == kind
    assert versions(prefix)["numpy"] == "2.0.1"
    assert (prefix / "notes").read_text() == "mine"
    module.unchanged(prefix=str(prefix), packages=["numpy=2.0"], verify=True)
    assert module.run(prefix=str(prefix), packages=["numpy=2.3"])["changed"]


def test_packages_that_do_not_go_together_are_named(module: Module, tmp_path: Path) -> None:
    kind, message = module.refused(prefix=str(tmp_path / "env"), packages=["numpy=1.26", "python=3.13"])
    assert kind == "unsolvable"
    assert "numpy=1.26" in message
    assert "python=3.13" in message
    assert not (tmp_path / "env").exists()
    kind, message = module.refused(prefix=str(tmp_path / "env"), packages=["nosuchpackage"])
    assert (kind, "nosuchpackage" in message) == ("package", True)


def test_a_channel_that_is_not_there(module: Module, tmp_path: Path) -> None:
    options = {"prefix": str(tmp_path / "env"), "packages": ["numpy"]}
    assert module.refused(**options, channels=[f"file://{tmp_path}/nowhere"])[0] == "channel"


def test_a_disk_that_is_too_small_is_seen_before_the_change(module: Module, tmp_path: Path) -> None:
    answer = {"success": True, "actions": {"FETCH": [{"name": "big", "version": "1", "size": 1 << 60}], "LINK": []}}
    answer["actions"]["LINK"] = [{"name": "big", "version": "1", "build_string": "0"}]
    tool = tmp_path / "tool"
    tool.write_text(
        f"#!/bin/sh\ncase \"$*\" in *--dry-run*) echo '{json.dumps(answer)}'; exit 0;; *--yes*)"
        f" touch {tmp_path}/asked;; esac\n"
        f'exec {real_conda()} "$@"\n'
    )
    tool.chmod(0o755)
    kind, message = module.refused(prefix=str(tmp_path / "env"), packages=["big"], executable=str(tool))
    assert kind == "disk"
    assert "of free space" in message
    assert not (tmp_path / "asked").exists()


PLACES = {
    "a file": ("file", "is a file"),
    "a directory of something else": ("full", "is a directory that is not empty and no conda environment"),
    "a link": ("link", "is a symbolic link to full"),
    "below a file": ("file/env", "is no directory"),
}


@pytest.mark.parametrize(("name", "said"), PLACES.values(), ids=PLACES)
def test_a_prefix_that_is_something_else(module: Module, tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes").write_text("mine")
    (tmp_path / "link").symlink_to("full")
    for state in ("present", "absent"):
        if (name, state) == ("file/env", "absent"):
            continue
        kind, message = module.refused(prefix=str(tmp_path / name), packages=["numpy"], state=state)
        assert kind == "place"
        assert said in message or state == "absent"
    assert (tmp_path / "full/notes").read_text() == "mine"
    assert (tmp_path / "link").is_symlink()


def test_passwords_are_shown_nowhere(module: Module, tmp_path: Path) -> None:
    seen, stop = set(), threading.Event()

    def look() -> None:
        while not stop.is_set():
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:
                    continue

    channels = ["http://alice:pa55word@127.0.0.1:9/private", "http://127.0.0.1:9/t/t0ken-123/other"]
    watching = threading.Thread(target=look)
    watching.start()
    try:
        process = module.start(
            prefix=str(tmp_path / "env"),
            packages=["numpy"],
            channels=channels,
            condarc={"remote_max_retries": 0, "pkgs_dirs": [str(tmp_path / "pkgs")]},
        )
        stdout, stderr = process.communicate()
    finally:
        stop.set()
        watching.join()
    assert any("-c private" in command for command in seen)
    result = json.loads(stdout)
    assert result["failure"]["kind"] == "network"
    result.pop("invocation", None)
    for text in (json.dumps(result), stderr, (tmp_path / "log").read_text(), *seen):
        assert "pa55word" not in text
        assert "t0ken-123" not in text


def test_a_cache_that_can_not_be_written(module: Module, tmp_path: Path) -> None:
    (tmp_path / "pkgs").write_text("")
    kind, message = module.refused(prefix=str(tmp_path / "env"), packages=["numpy"])
    assert kind in ("permission", "disk", "broken"), message
    assert not (tmp_path / "env").exists()


def test_links_of_an_owner_lead_root_nowhere(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    options = {"prefix": str(prefix), "packages": ["numpy=2.0", "python=3.12"], "verify": True}
    module.run(**options)
    path = next(prefix.glob("lib/python3.12/site-packages/numpy-*/METADATA"))
    (tmp_path / "secret").write_text("of root")
    (tmp_path / "elsewhere").mkdir()
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    (prefix / "conda-meta/cudahub-changed-1").symlink_to(tmp_path / "elsewhere")
    assert module.run(**options)["repaired"] == [f"{path.relative_to(prefix)} is changed"]
    assert (tmp_path / "secret").read_text() == "of root"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    kept = prefix / "conda-meta/cudahub-changed-2" / path.relative_to(prefix)
    assert os.readlink(kept) == str(tmp_path / "secret")
    path.unlink()
    os.mkfifo(path)
    assert module.run(**options)["changed"]
    module.unchanged(**options)


def test_a_record_that_leads_out_of_the_environment(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    options = {"prefix": str(prefix), "packages": ["numpy=2.0", "python=3.12"], "verify": True}
    module.run(**options)
    (tmp_path / "victim").write_text("mine")
    record = prefix / "conda-meta/numpy-2.0.1-py312_0.json"
    value = json.loads(record.read_text())
    value["files"].append("../victim")
    value["paths_data"]["paths"].append({"_path": "../victim", "path_type": "hardlink", "sha256": "0" * 64})
    record.write_text(json.dumps(value))
    assert "leads out of the environment" in module.run(**options)["repaired"][0]
    assert (tmp_path / "victim").read_text() == "mine"
    module.unchanged(**options)


def test_a_history_that_is_gone(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=["numpy=2.0", "python=3.12"])
    (prefix / "conda-meta/history").unlink()
    assert module.run(prefix=str(prefix), packages=["numpy=2.3"])["updated"].keys() == {"numpy"}


def test_a_cache_with_a_changed_file_is_told(module: Module, tmp_path: Path) -> None:
    one, packages = tmp_path / "one", ["numpy=2.0", "python=3.12"]
    module.run(prefix=str(one), packages=packages)
    with next(one.glob("lib/python3.12/site-packages/numpy-*/METADATA")).open("a") as file:
        file.write("tuned")
    kind, message = module.refused(prefix=str(tmp_path / "two"), packages=packages)
    assert kind in ("checksum", "corrupt")
    assert "numpy-2.0.1" in message


def test_user_files_come_along_with_an_atomic_change(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=["numpy=2.0", "python=3.12"], atomic=True)
    (prefix / "share/jupyter").mkdir(parents=True)
    (prefix / "share/jupyter/kernel.json").write_text("mine")
    (prefix / "mine").symlink_to("share")
    module.run(prefix=str(prefix), packages=["numpy=2.3", "python=3.12"], atomic=True)
    module.run(prefix=str(prefix), packages=["numpy=2.0", "python=3.12"], atomic=True)
    assert (prefix / "share/jupyter/kernel.json").read_text() == "mine"
    assert os.readlink(prefix / "mine") == "share"
    versions(prefix.resolve())


def test_another_environment_inside_is_not_removed(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=["cuda-version=12.9"])
    module.run(prefix=str(prefix / "lib/inner"), packages=["cuda-version=12.8"])
    kind, message = module.refused(prefix=str(prefix), state="absent")
    assert (kind, f"{prefix}/lib/inner, another environment" in message) == ("place", True)
    assert versions(prefix / "lib/inner") == {"cuda-version": "12.8"}


@pytest.mark.parametrize("prefix", ["/proc/env", "/sys/env"])
def test_a_prefix_where_nothing_can_be_made(module: Module, prefix: str) -> None:
    assert module.refused(prefix=prefix, packages=["numpy"])[0] in ("permission", "broken", "place", "disk")
