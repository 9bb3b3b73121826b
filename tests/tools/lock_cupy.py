# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the pinned requirements of role gpu_verify: one file per CUDA version, with the SHA-256 of each wheel.

pip resolves for each Python and machine that the role supports; nothing is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

CUPY = "14.2.0"
CUDA_VERSIONS = ("12.4", "12.8", "13.0")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBC = ("2_28", "2_27", "2_24", "2_17", "2_12", "2_5")
LEGACY = ("manylinux2014", "manylinux2010", "manylinux1")
FILES = Path(__file__).parents[2] / "roles" / "gpu_verify" / "files"


def resolve(requirements: list[str], python: str, machine: str) -> list[tuple[str, str, str]]:
    """Name, version and SHA-256 of each wheel that pip would install there."""
    platforms = [f"manylinux_{glibc}_{machine}" for glibc in GLIBC] + [f"{name}_{machine}" for name in LEGACY]
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--target", target, "--only-binary=:all:", "--report=-", f"--python-version={python}"]
        command += [f"--platform={platform}" for platform in platforms]
        done = subprocess.run([*command, *requirements], check=True, stdout=subprocess.PIPE, text=True)
    return [
        (
            entry["metadata"]["name"].lower(),
            entry["metadata"]["version"],
            entry["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for entry in json.loads(done.stdout)["install"]
    ]


def lock(cuda: str) -> str:
    """The text of a requirements file."""
    major = cuda.partition(".")[0]
    suffix = "-cu12" if major == "12" else ""
    wanted = [f"cupy-cuda{major}x[ctk]=={CUPY}", f"cuda-toolkit=={cuda}.*", f"nvidia-nvjitlink{suffix}=={cuda}.*"]
    hashes: dict[tuple[str, str], set[str]] = defaultdict(set)
    pythons: dict[tuple[str, str], set[str]] = defaultdict(set)
    for python in PYTHONS:
        for machine in MACHINES:
            for name, version, digest in resolve(wanted, python, machine):
                hashes[name, version].add(digest)
                pythons[name, version].add(python)
    lines = [f"# CuPy for drivers of CUDA {cuda} and later. Written by tests/tools/lock_cupy.py."]
    for (name, version), digests in sorted(hashes.items()):
        found = sorted(pythons[name, version], key=PYTHONS.index)
        marker = "" if len(found) == len(PYTHONS) else " ; " + " or ".join(f'python_version == "{p}"' for p in found)
        lines.append(" \\\n    ".join([f"{name}=={version}{marker}", *(f"--hash=sha256:{d}" for d in sorted(digests))]))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all files, or those of the CUDA versions in the arguments."""
    for cuda in sys.argv[1:] or CUDA_VERSIONS:
        (FILES / f"requirements-cuda{cuda}.txt").write_text(lock(cuda), encoding="utf-8")
        print(cuda)


if __name__ == "__main__":
    main()
