# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an image of role dl_images says of GPUs when it starts: one line at most."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHECK = ROOT / "roles/dl_images/files/image/check.py"
NONE = (
    "No GPU is visible in this container: run it with --gpus all, or --device nvidia.com/gpu=all, "
    "on a host with a driver.\n"
)
# Stand-ins for CuPy and PyTorch, which see as many GPUs as their variables say; images have the real ones.
CUPY_STANDIN = """
class CUDARuntimeError(Exception):
    pass
class runtime:
    CUDARuntimeError = CUDARuntimeError
    @staticmethod
    def getDeviceCount():
        if COUNT < 0:
            raise CUDARuntimeError("no driver")
        return COUNT
class cuda:
    runtime = runtime
"""
TORCH_STANDIN = """
__version__ = "2.15.0"
class cuda:
    @staticmethod
    def device_count():
        return COUNT
class tensor(list):
    def sum(self):
        return sum(self) + WRONG
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the check as an image does, where no driver is."""
    variables = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run(
        [sys.executable, CHECK, *arguments], env=variables, capture_output=True, text=True, check=False
    )


def standins(folder: Path, cupy: int = 0, torch: int = 0, wrong: int = 0) -> Path:
    """Write the stand-ins and return their folder."""
    (folder / "cupy.py").write_text(CUPY_STANDIN.replace("COUNT", str(cupy)))
    (folder / "torch.py").write_text(TORCH_STANDIN.replace("COUNT", str(torch)).replace("WRONG", str(wrong)))
    return folder


@pytest.mark.parametrize("checks", ["cupy", "framework", "cupy framework"])
def test_no_gpu_is_one_line_and_no_failure(checks: str, tmp_path: Path) -> None:
    folder = standins(tmp_path, cupy=-1)
    done = run(folder, CUDAHUB_CHECKS=checks, CUDAHUB_FRAMEWORK="pytorch")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", NONE)
    needed = run(folder, CUDAHUB_CHECKS=checks, CUDAHUB_FRAMEWORK="pytorch", CUDAHUB_REQUIRE_GPU="1")
    assert (needed.returncode, needed.stderr) == (1, NONE)


def test_a_gpu_is_no_line(tmp_path: Path) -> None:
    folder = standins(tmp_path, cupy=2, torch=2)
    done = run(folder, CUDAHUB_CHECKS="cupy framework", CUDAHUB_FRAMEWORK="pytorch", CUDAHUB_REQUIRE_GPU="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_framework_that_can_not_use_what_is_visible_is_named(tmp_path: Path) -> None:
    done = run(standins(tmp_path, cupy=2), CUDAHUB_CHECKS="cupy framework", CUDAHUB_FRAMEWORK="pytorch")
    assert done.stderr == (
        "pytorch can use no GPU in this container, though one is visible: update the host's driver.\n"
    )


def test_what_can_not_be_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open\\nshared object file')")
    done = run(tmp_path, CUDAHUB_CHECKS="framework", CUDAHUB_FRAMEWORK="pytorch")
    assert done.stderr == (
        "pytorch can't be used in this container: OSError: libcudart.so.13: cannot open shared object file\n"
    )


def test_no_checks_say_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, CUDAHUB_CHECKS="", CUDAHUB_REQUIRE_GPU="1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_framework_that_computes_wrongly_is_found(tmp_path: Path) -> None:
    right = run(standins(tmp_path), "--compute", CUDAHUB_FRAMEWORK="pytorch")
    assert (right.returncode, right.stdout) == (0, "pytorch 2.15.0\n")
    wrong = run(standins(tmp_path, wrong=1), "--compute", CUDAHUB_FRAMEWORK="pytorch")
    assert (wrong.returncode, wrong.stderr) == (1, "pytorch says that 1 + 2 is 4.0.\n")


def test_health_asks_only_jupyter(tmp_path: Path) -> None:
    """Process 1 of this machine is no JupyterLab, so there is nothing to ask."""
    assert run(tmp_path, "--health", "1").returncode == 0
