# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small image of the host's own Python, so that a container can look at its GPUs where nothing can be downloaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import typing as t

PYTHON = "/usr/bin/python3"
"""Where the image has its Python."""

DIRECTORIES = ("dev", "etc", "proc", "sys", "tmp", "run", "usr/bin", "usr/lib")
LEFT_OUT = frozenset(
    {
        "__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo",
        "ensurepip", "lib2to3", "pydoc_data", "distutils", "asyncio", "unittest", "xml", "email", "http",
        "multiprocessing",
    }
)  # fmt: skip
# What NVML and CUDA's driver library load beside what Python does.
BESIDE_LIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")

_LIBRARY = re.compile(r"(?:^|=>)\s*(/\S+) \(0x")


class ImageError(Exception):
    """The image can't be made, in a sentence."""


def libraries(output: str) -> list[str]:
    """The files that ``ldd`` names."""
    return [found[1] for line in output.splitlines() for found in [_LIBRARY.search(line)] if found]


def paths() -> dict[str, str]:
    """The host's files by their path in the image. Raises ImageError."""
    interpreter = os.path.realpath(sys.executable)
    standard = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix})
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = {PYTHON: interpreter}
    binaries = [interpreter]
    for folder, inner, names in os.walk(standard):
        inner[:] = sorted(name for name in inner if name not in LEFT_OUT and not name.startswith("config-"))
        for name in sorted(names):
            path = os.path.join(folder, name)
            found[f"/usr/lib/{version}/{os.path.relpath(path, standard)}"] = path
            if "_ctypes" in name and name.endswith(".so"):
                binaries.append(path)
    for path in _needed(binaries):
        found[path] = os.path.realpath(path)
    libc = next((path for path in found if path.endswith("/libc.so.6")), None)
    if libc is None:
        raise ImageError(f"{interpreter} is not linked with libc.so.6: name an image")
    for name in BESIDE_LIBC:
        path = os.path.join(os.path.dirname(libc), name)
        if os.path.exists(path):
            found[path] = os.path.realpath(path)
    return found


def _needed(binaries: t.Sequence[str]) -> list[str]:
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        ["ldd", *binaries], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ImageError(f"ldd {' '.join(binaries)} says: {' '.join(done.stderr.split())}: name an image")
    return sorted(set(libraries(done.stdout)))


def write(target: t.IO[bytes]) -> None:
    """Write the image's files as a tar. Raises ImageError, OSError."""
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name in DIRECTORIES:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, path in paths().items():
            entry = tar.gettarinfo(path, arcname=name.lstrip("/"))
            # A hard link to a file that the tar has is its content again.
            if entry.type == tarfile.LNKTYPE:
                entry.type, entry.size = tarfile.REGTYPE, os.path.getsize(path)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mode = 0o755
            with open(path, "rb") as file:
                tar.addfile(entry, file)


def unpack(folder: str) -> None:
    """Put the image's files into a folder, and an empty /etc. Raises ImageError, OSError."""
    for name, path in paths().items():
        target = os.path.join(folder, name.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(path, target)
    os.makedirs(os.path.join(folder, "etc"), exist_ok=True)
