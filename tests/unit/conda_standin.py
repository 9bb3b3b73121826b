# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real conda for tests, and a judge of what it installed that isn't conda.

``CUDAHUB_CONDA_STANDIN`` in the environment names the directory of the conda: one that is there, as a Miniforge, is
used as it is. Without the variable, it is in ``.cache`` of the checkout, installed by the first test that needs it.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rattler import MatchSpec, PrefixRecord

HERE = Path(__file__).resolve()
STANDIN = HERE.parents[1] / "standin/conda"
# The steps' copy of the checkout lies in .cache itself and doesn't live long.
CACHE = next((parent for parent in HERE.parents if parent.name == ".cache"), HERE.parents[2] / ".cache")


def _prefix() -> Path:
    """The directory for the conda: another one for each Python and each change of the stand-in."""
    given = os.environ.get("CUDAHUB_CONDA_STANDIN")
    if given:
        return Path(given)
    parts = [(STANDIN / name).read_bytes() for name in ("requirements.txt", "install")]
    digest = hashlib.sha256(b"\0".join([*parts, sys.version.encode(), sys.executable.encode()])).hexdigest()
    try:
        CACHE.mkdir(exist_ok=True)
        writable = os.access(CACHE, os.W_OK)
    except OSError:
        writable = False
    return (CACHE if writable else Path(tempfile.mkdtemp())) / f"conda-standin-{digest[:12]}"


@functools.cache
def real_conda() -> Path:
    """Return the command ``conda``; one of the tests that run at the same time installs it."""
    prefix = _prefix()
    command = prefix / "bin/conda"
    if "CUDAHUB_CONDA_STANDIN" in os.environ and command.exists():
        return command
    # The command is there before all that it needs is.
    with prefix.with_name(f"{prefix.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not command.exists():
            subprocess.run([sys.executable, STANDIN / "install", prefix], check=True)
    return command


def run_conda(folder: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run conda with a home, a cache of packages and settings of its own; stdout has the errors, too."""
    others = ("CONDA_", "MAMBA_", "PYTHONPYCACHEPREFIX")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return subprocess.run(
        [real_conda(), *arguments],
        cwd=folder,
        env={
            **inherited,
            "CONDA_OVERRIDE_CUDA": "",
            "CONDA_PKGS_DIRS": str(folder / "pkgs"),
            "HOME": str(folder),
            "STANDIN_PYTHON": sys.executable,
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def installed_by_rattler(prefix: Path) -> dict[str, PrefixRecord]:
    """Return what an environment holds, by name, as another implementation of conda's formats reads it."""
    records = [PrefixRecord.from_path(path) for path in sorted((prefix / "conda-meta").glob("*.json"))]
    return {record.name.normalized: record for record in records}


def problems_of(prefix: Path) -> list[str]:
    """Return what is wrong with an environment: files that are missing or changed, and needs that nothing meets."""
    records = installed_by_rattler(prefix)
    found = []
    for name, record in records.items():
        found += [f"{name}: no file {path}" for path in record.files if not os.path.lexists(prefix / path)]
        found += [f"{name}: no package for {spec}" for spec in record.depends if not _met(spec, records)]
        for entry in record.paths_data.paths:
            path, digest = prefix / entry.relative_path, entry.sha256_in_prefix
            if digest and path.is_file() and hashlib.sha256(path.read_bytes()).digest() != digest:
                found.append(f"{name}: file {entry.relative_path} is another one")
    return found


def _met(spec: str, records: dict[str, PrefixRecord]) -> bool:
    """Whether a package meets a need; virtual packages were the solver's matter."""
    needed = MatchSpec(spec)
    return spec.startswith("__") or any(needed.matches(record) for record in records.values())
