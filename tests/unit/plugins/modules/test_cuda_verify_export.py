# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the module has changed something, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils._verify import Failure, Unit
from ansible_collections.cudahub.gpu.plugins.modules import cuda_verify_export

GPU = Unit("GPU-0", 0, "00000000:06:00.0", "NVIDIA H200")


def verification(gpu: dict[str, Any], seconds: float = 3.0) -> dict[str, Any]:
    return {
        "level": "quick",
        "verified": gpu["verdict"] == "passed",
        "simulated": False,
        "seconds": seconds,
        "runtime": None,
        "failure": gpu["failure"],
        "checks": [],
        "gpus": [gpu],
    }


PASSED = verification(GPU.result("passed"))
FAILED = verification(GPU.failed(Failure("timeout", "It hangs.")))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def run_module(given: Any = None, *, check: bool = False, **options: str | None) -> dict[str, Any]:
        paths = {"metrics": str(tmp_path / "gpu.prom"), "fact": str(tmp_path / "gpu.fact"), **options}
        verified = PASSED if given is None else given
        arguments = {"verification": verified, "_ansible_check_mode": check, "_ansible_diff": True}
        arguments.update((name, path) for name, path in paths.items() if path)
        with patch_module_args(arguments), pytest.raises(SystemExit):
            cuda_verify_export.main()
        return dict(json.loads(capsys.readouterr().out))

    return run_module


def test_only_another_verdict_is_a_change(run: Any, tmp_path: Path) -> None:
    assert run()["changed"] is True
    first = (tmp_path / "gpu.prom").read_text()
    assert run(verification(GPU.result("passed"), seconds=4.0))["changed"] is False
    second = (tmp_path / "gpu.prom").read_text()
    assert second != first
    assert "duration_seconds 4.0" in second
    failed = run(FAILED)
    assert failed["changed"] is True
    assert '"verdict": "passed"' in failed["diff"][1]["before"]
    assert '"verdict": "failed"' in failed["diff"][1]["after"]
    assert run(FAILED)["changed"] is False
    (tmp_path / "gpu.fact").unlink()
    assert run(FAILED)["changed"] is True


def test_check_mode_writes_nothing(run: Any, tmp_path: Path) -> None:
    assert run(check=True)["changed"] is True
    assert list(tmp_path.iterdir()) == []
    run()
    before = (tmp_path / "gpu.fact").read_bytes()
    assert run(check=True)["changed"] is False
    assert run(FAILED, check=True)["changed"] is True
    assert (tmp_path / "gpu.fact").read_bytes() == before


def test_one_file_is_enough(run: Any, tmp_path: Path) -> None:
    assert run(fact=None)["files"] == [str(tmp_path / "gpu.prom")]
    assert "one of the following is required" in run(fact=None, metrics=None)["msg"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metrics": "/nonexistent/gpu.prom"}, "there is no directory /nonexistent: make it"),
        ({"metrics": "/tmp/gpu.txt"}, "give a file whose name ends in .prom"),
        ({"metrics": "/tmp/.prom"}, "give a file whose name ends in .prom"),
        ({"fact": "/etc/ansible/facts.d/gpu.json"}, "give a file whose name ends in .fact"),
    ],
)
def test_a_path_that_nobody_reads_is_refused(run: Any, tmp_path: Path, options: dict[str, str], words: str) -> None:
    result = run(**options)
    assert result["failed"] is True
    assert words in result["msg"]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "gpu.prom").mkdir()
    assert "which is a directory" in run()["msg"]
    assert not (tmp_path / "gpu.fact").exists()


def test_what_is_no_file_is_replaced_and_not_waited_for(run: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gpu.prom")
    (tmp_path / "gpu.fact").symlink_to("/nonexistent/gpu.fact")
    assert run(check=True)["changed"] is True
    assert (tmp_path / "gpu.prom").is_fifo()
    assert run()["changed"] is True
    assert "cudahub_gpu_verify_verified" in (tmp_path / "gpu.prom").read_text()
    assert json.loads((tmp_path / "gpu.fact").read_text())["verified"] is True


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"gpus": [{}]},
        {**PASSED, "gpus": 3},
        {**PASSED, "failure": "text"},
        {**PASSED, "verified": "no"},
        {**PASSED, "verified": float("inf")},
    ],
)
def test_what_is_no_verification_is_refused(run: Any, tmp_path: Path, given: object) -> None:
    assert "verification is no result of cuda_verify" in run(given)["msg"]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_told(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert run()["msg"].endswith("gpu.prom could not be written: No space left on device. Make room there.")


def test_who_may_not_look_is_told(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.is_dir", refused)
    assert "gpu.prom could not be written: Permission denied. Set become to true" in run()["msg"]


def test_who_may_not_write_is_told(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_number: int, _mode: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.fchmod", refused)
    assert "could not be written: Permission denied. Set become to true" in run()["msg"]
