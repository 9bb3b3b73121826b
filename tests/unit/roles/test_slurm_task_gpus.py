# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What SLURM's TaskProlog tells a task of its GPUs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles/slurm/files/task-gpus"


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """A list of three devices; the task can open the node of the GPU in MIG mode and that of one of its instances."""
    for name in ("gpu0", "cap1"):
        (tmp_path / name).touch()
    listed = tmp_path / "devices"
    listed.write_text(
        f"MIG-1 {tmp_path}/gpu0 {tmp_path}/cap1\nMIG-2 {tmp_path}/gpu0 {tmp_path}/cap2\nGPU-1 {tmp_path}/gpu1\n",
        encoding="utf-8",
    )
    return listed


def told(devices: Path, visible: str | None) -> str:
    environment = {"PATH": os.environ["PATH"], **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
    return subprocess.run(
        ["sh", SCRIPT, devices], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_task_is_told_the_uuid_of_its_instance(devices: Path) -> None:
    assert told(devices, "0") == "export CUDA_VISIBLE_DEVICES=MIG-1"


def test_all_that_it_can_open_is_named(devices: Path) -> None:
    (devices.parent / "gpu1").touch()
    assert told(devices, "0,1") == "export CUDA_VISIBLE_DEVICES=MIG-1,GPU-1"


@pytest.mark.parametrize("visible", [None, "", "0,1"])
def test_a_task_without_gpus_or_without_isolation_keeps_what_it_has(devices: Path, visible: str | None) -> None:
    assert told(devices, visible) == ""


def test_a_node_without_the_list_changes_nothing(tmp_path: Path) -> None:
    assert told(tmp_path / "none", "0") == ""
