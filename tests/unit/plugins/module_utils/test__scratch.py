# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Temporary folders end with their use, at the latest at the next run, and no other folder does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _scratch

USER = """
import sys
from ansible_collections.cudahub.gpu.plugins.module_utils import _scratch
with _scratch.folder() as path:
    (path / "file").touch()
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def grow_old(path: Path) -> None:
    past = time.time() - _scratch.LEFT_AFTER - 60
    os.utime(path, (past, past), follow_symlinks=False)


def test_a_folder_ends_with_its_use(tmp_path: Path) -> None:
    with _scratch.folder() as path:
        (path / "file").touch()
        assert path.parent == tmp_path
        assert path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError, match="broken"), _scratch.folder():
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_uses_is_not(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", USER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "TMPDIR": str(tmp_path)},
    ) as other:
        assert other.stdout is not None
        path = Path(other.stdout.readline().strip())
        grow_old(path)
        _scratch.sweep()
        assert (path / "file").exists(), "it is in use"
        other.kill()
        other.wait()
    _scratch.sweep()
    assert not path.exists()


def test_only_old_folders_of_ours_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old, link, file, other = (
        tmp_path / name
        for name in (*(f"{_scratch.PREFIX}{name}" for name in ("new", "old", "link", "file")), "cudahub-packager")
    )
    for path in (new, old, other):
        path.mkdir()
    file.touch()
    link.symlink_to(other)
    for path in (old, link, file, other):
        grow_old(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        _scratch.sweep()
    assert old.exists(), "of another user"
    with _scratch.folder() as path:
        assert set(tmp_path.iterdir()) == {new, link, file, other, path}
