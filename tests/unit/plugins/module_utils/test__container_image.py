# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image has a Python that runs by itself, and the host's files only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _container_image


def test_what_ldd_says() -> None:
    said = (
        "\tlinux-vdso.so.1 (0x00007ffd5e9f2000)\n"
        "\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f1d)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f1e)\n"
        "\tlibgone.so => not found\n"
    )
    assert _container_image.libraries(said) == ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs chroot")
def test_its_python_has_what_the_proof_needs(tmp_path: Path) -> None:
    with (tmp_path / "image.tar").open("wb") as file:
        _container_image.write(file)
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "-xf", str(tmp_path / "image.tar"), "-C", str(root)], check=True)
    program = "import ctypes, errno, json, os; print(ctypes.CDLL('libm.so.6') is not None, os.listdir('/dev'))"
    done = subprocess.run(
        ["chroot", str(root), _container_image.PYTHON, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True []\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs chroot")
def test_the_folders_of_a_copy_have_it_as_well(tmp_path: Path) -> None:
    _container_image.unpack(str(tmp_path / "root"))
    assert not (tmp_path / "root/dev").exists()
    assert list((tmp_path / "root/etc").iterdir()) == [], "nothing of the host's, nor of the image of sandboxes"
    done = subprocess.run(
        ["chroot", str(tmp_path / "root"), _container_image.PYTHON, "-c", "import ctypes, json; print(6)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "6\n", done.stderr
