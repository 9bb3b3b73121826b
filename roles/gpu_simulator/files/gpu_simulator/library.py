# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Building the library and making it known to the dynamic linker."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from .base import PAYLOAD, VERSION, Changes, Paths, SimulatorError
from .simulation import Simulation

LIBRARY_NAME = "libnvidia-ml.so"


def _source_digest() -> str:
    digest = hashlib.sha256(VERSION.encode())
    for path in sorted((PAYLOAD / "src").glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build(output: Path, compiler: str | None = None) -> None:
    """Compile the library to a file, replacing it in one step."""
    compiler = compiler or os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise SimulatorError("There is no C compiler; install gcc with the C library's headers.")
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(f".new-{output.name}")
    command = [
        compiler, "-std=c11", "-O2", "-g0", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden",
        f'-DGPU_SIMULATOR_VERSION="{VERSION}"', "-Wl,-soname,libnvidia-ml.so.1", "-o", str(new),
        *map(str, sorted((PAYLOAD / "src").glob("*.c"))), "-pthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        new.unlink(missing_ok=True)
        raise SimulatorError(f"{compiler} can't build the library: {done.stderr.strip() or done.stdout.strip()}")
    os.chmod(new, 0o755)  # noqa: S103 - a library is executable
    os.replace(new, output)


def install_library(changes: Changes, paths: Paths, simulation: Simulation) -> None:
    """Build the library if its source is another than last time, and make it known to the linker; or remove it."""
    stamp = paths.library / "built"
    wanted = paths.library / f"{LIBRARY_NAME}.{simulation.driver_version}"
    digest = _source_digest()
    known = False
    for old in sorted(paths.library.glob(f"{LIBRARY_NAME}.*")):
        if old.is_symlink() or (simulation.driver and old == wanted):
            continue
        built = stamp.is_file() and stamp.read_text() == digest
        if simulation.driver and built and not wanted.exists() and not changes.check:
            os.replace(old, wanted)
            changes.paths.append(str(wanted))
        else:
            changes.remove(old)
        known = True
    if simulation.driver:
        if not wanted.exists() or not stamp.is_file() or stamp.read_text() != digest:
            changes.paths.append(str(wanted))
            if not changes.check:
                build(wanted)
            changes.write(stamp, digest)
            known = True
        known |= changes.link(paths.library / f"{LIBRARY_NAME}.1", wanted.name)
        known |= changes.write(paths.ld_conf, f"{paths.library}\n")
    else:
        for path in (stamp, paths.library / f"{LIBRARY_NAME}.1", paths.ld_conf):
            known |= changes.remove(path)
    if known and not changes.check:
        _ldconfig(paths)


def _ldconfig(paths: Paths) -> None:
    if paths.prefix == Path("/"):
        program = shutil.which("ldconfig") or "/sbin/ldconfig"
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SimulatorError(f"{program} fails: {done.stderr.strip() or f'code {done.returncode}'}")


def remove_library(changes: Changes, paths: Paths) -> None:
    """Remove the library and let the linker forget it."""
    known = False
    for path in [*sorted(paths.library.glob(f"{LIBRARY_NAME}*")), paths.library / "built", paths.ld_conf]:
        known |= changes.remove(path)
    if known and not changes.check:
        _ldconfig(paths)
