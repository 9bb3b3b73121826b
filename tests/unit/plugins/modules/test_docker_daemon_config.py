# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file changes once, in one step, with a copy, and never to what dockerd refuses."""

from __future__ import annotations

import json
import stat
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.modules import docker_daemon_config

Run = t.Callable[..., tuple[int, dict[str, t.Any]]]

OLD = '{\n  "log-driver": "local"\n}\n'
WANTED: dict[str, t.Any] = {"features": {"cdi": True}}
# What dockerd 26.1 says.
DOCKERD = """#!/bin/sh
grep -q '"bad"' "$3" && {{
    echo "unable to configure the Docker daemon with file $3: the following directives don't match any" \\
         "configuration option: bad" >&2
    exit 1
}}
{more}
echo "configuration OK" >&2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "docker/daemon.json"
    path.parent.mkdir()
    path.write_text(OLD)
    path.chmod(0o640)
    dockerd(tmp_path)
    return path


def dockerd(folder: Path, more: str = "") -> None:
    (folder / "dockerd").write_text(DOCKERD.format(more=more))
    (folder / "dockerd").chmod(0o755)


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_module(*, check: bool = False, **params: t.Any) -> tuple[int, dict[str, t.Any]]:
        common = {"path": str(file), "config": WANTED, "dockerd": str(file.parents[1] / "dockerd")}
        common["record"] = str(file.parents[1] / "state/record.json")
        with patch_module_args({**common, "_ansible_check_mode": check, **params}), pytest.raises(SystemExit) as ended:
            docker_daemon_config.main()
        return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

    return run_module


def test_changes_once_with_a_copy_and_keeps_the_mode(file: Path, run: Run) -> None:
    rc, result = run()
    assert (rc, result["changed"], result["needs"], result["validated"]) == (0, True, "restart", True)
    assert file.read_text() == '{\n  "log-driver": "local",\n  "features": {\n    "cdi": true\n  }\n}\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert Path(result["backup_file"]).read_text() == OLD
    rc, result = run()
    assert (rc, result["changed"], result["needs"]) == (0, False, "nothing")
    assert len(list(file.parent.iterdir())) == 2


def test_the_newest_copies_stay_and_no_file_of_others_goes(file: Path, run: Run) -> None:
    others = [
        file.with_name(name) for name in ("daemon.json.1.2026-01-01@00:00:00~", "other.json", "daemon.json.cudahub~")
    ]
    for other in others:
        other.touch()
    copies = []
    for number in range(7):
        before = file.read_text()
        _rc, result = run(config={"max-concurrent-downloads": number + 1})
        assert Path(result["backup_file"]).read_text() == before
        copies.append(Path(result["backup_file"]))
    assert sorted(file.parent.iterdir()) == sorted([file, *others, *copies[2:]])
    assert {stat.S_IMODE(copy.stat().st_mode) for copy in copies[2:]} == {0o640}


def test_a_full_disk_leaves_the_file_and_nothing_else(file: Path, run: Run) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", file.parent]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        file.write_text(OLD)
        (file.parent / "fill").write_bytes(bytes(4096))
        rc, result = run()
        assert rc == 1
        assert result["msg"].startswith(f"{file} was not changed: {file.parent}/")
        assert result["msg"].endswith(": No space left on device")
        assert (file.read_text(), len(list(file.parent.iterdir()))) == (OLD, 2)
    finally:
        subprocess.run(["umount", file.parent], check=True)


def test_check_mode_shows_and_writes_nothing(file: Path, run: Run) -> None:
    _rc, result = run(check=True)
    assert result["changed"]
    assert '"cdi": true' in result["diff"]["after"]
    assert file.read_text() == OLD
    assert not (file.parents[1] / "state").exists()


def test_absent_brings_back_what_was(file: Path, run: Run) -> None:
    run(config={**WANTED, "log-driver": "journald"})
    _rc, result = run(state="absent", config={})
    assert result["changed"]
    assert json.loads(file.read_text()) == {"log-driver": "local"}
    _rc, result = run(state="absent", config={})
    assert not result["changed"]


def test_a_file_of_its_own_is_removed(file: Path, run: Run) -> None:
    file.unlink()
    run()
    assert json.loads(file.read_text()) == WANTED
    run(state="absent")
    assert not file.exists()


def test_an_unchanged_file_keeps_its_form(file: Path, run: Run) -> None:
    odd = '{"features":{"cdi" : true}}'
    file.write_text(odd)
    _rc, result = run()
    assert not result["changed"]
    assert file.read_text() == odd


def test_what_dockerd_refuses_is_not_written(file: Path, run: Run) -> None:
    rc, result = run(config={"bad": 1})
    assert rc == 1
    assert result["msg"] == (
        f"{file} was not changed, as dockerd would not start with it: the following directives don't match any "
        "configuration option: bad"
    )
    assert file.read_text() == OLD
    assert len(list(file.parent.iterdir())) == 1


def test_a_dockerd_that_can_not_look_is_no_reason_to_fail(file: Path, run: Run) -> None:
    dockerd(file.parents[1], "echo 'unknown flag: --validate' >&2; exit 125")
    rc, result = run()
    assert (rc, result["validated"]) == (0, False)


def test_broken_json_is_named_by_line_and_stays(file: Path, run: Run) -> None:
    broken = '{\n  "debug": true,\n}\n'
    file.write_text(broken)
    rc, result = run()
    assert rc == 1
    assert result["msg"].startswith(f"{file} is no JSON: line 3, column 1: ")
    assert file.read_text() == broken


def test_a_link_stays_one(file: Path, run: Run) -> None:
    real = file.with_name("real.json")
    file.rename(real)
    file.symlink_to(real)
    run()
    assert file.is_symlink()
    assert json.loads(real.read_text())["features"] == {"cdi": True}


def test_a_byte_order_mark_is_none_of_the_settings(file: Path, run: Run) -> None:
    """As for dockerd."""
    file.write_text("\ufeff" + OLD, encoding="utf-8")
    rc, result = run()
    assert (rc, result["config"]) == (0, {"log-driver": "local", **WANTED})
    assert file.read_text() == '{\n  "log-driver": "local",\n  "features": {\n    "cdi": true\n  }\n}\n'


def test_a_relative_path_is_refused(run: Run) -> None:
    rc, result = run(path="docker/daemon.json")
    assert (rc, result["msg"]) == (1, "docker/daemon.json is no absolute path: give one")
