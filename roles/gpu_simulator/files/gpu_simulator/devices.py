# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot takes away: device nodes and mounts."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

from .base import Changes, Paths, SimulatorError
from .real_driver import module_loaded
from .simulation import Simulation
from .tree import NVML_MAJOR, device_nodes


def make_nodes(paths: Paths, changes: Changes, simulation: Simulation, allowed: str) -> None:
    """Make the device nodes: C(allowed) is true (or fail), false or auto (where the host lets us)."""
    wanted = {} if allowed == "false" else device_nodes(simulation)
    made_file = paths.state / "nodes"
    made = made_file.read_text().split() if made_file.is_file() else []
    for name in made:
        if name not in wanted:
            changes.remove(paths.dev / name)
    if wanted and module_loaded():
        changes.notes.append("No device nodes: the kernel has the real driver, whose GPUs they would open.")
        wanted = {}
    kept: list[str] = []
    for name, minor in wanted.items():
        path, number = paths.dev / name, os.makedev(NVML_MAJOR, minor)
        if path.exists() and stat.S_ISCHR(path.stat().st_mode) and path.stat().st_rdev == number:
            kept.append(name)
            continue
        changes.paths.append(str(path))
        kept.append(name)
        if changes.check:
            continue
        try:
            _make_node(path, number)
        except OSError as error:
            changes.paths.pop()
            kept.pop()
            if allowed == "true":
                raise SimulatorError(f"The device node {path} can't be made or opened: {error.strerror}.") from None
            changes.notes.append(f"No device nodes: making or opening {path} is not allowed here ({error.strerror}).")
            break
    _drop_empty_caps(paths, changes)
    if kept or made_file.is_file():
        changes.write(made_file, "".join(f"{name}\n" for name in kept))


def _make_node(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, number)
    os.chmod(path, 0o666)  # noqa: S103 - as the driver makes them
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        # NVML would count no GPU whose node the device cgroup forbids.
        if error.errno == errno.EPERM:
            path.unlink()
            raise


def remove_nodes(paths: Paths, changes: Changes) -> None:
    """Remove the device nodes that make_nodes made."""
    made_file = paths.state / "nodes"
    for name in made_file.read_text().split() if made_file.is_file() else []:
        changes.remove(paths.dev / name)
    _drop_empty_caps(paths, changes)


def _drop_empty_caps(paths: Paths, changes: Changes) -> None:
    caps = paths.dev / "nvidia-caps"
    if not changes.check and caps.is_dir() and not any(caps.iterdir()):
        caps.rmdir()


def _mounted(target: Path) -> bool:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return any(line.split()[4] == str(target) for line in file)


def _mount_sources(paths: Paths) -> dict[Path, Path]:
    return {Path("/sys/bus/pci/devices"): paths.run / "pci-devices", Path("/proc/driver"): paths.root / "proc/driver"}


def _fill_pci_devices(paths: Paths, simulation: Simulation) -> None:
    """Link the simulated devices beside the real ones."""
    directory = paths.run / "pci-devices"
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {gpu.sysfs_address: str(paths.root / "sys/bus/pci/devices" / gpu.sysfs_address) for gpu in simulation.gpus}
    if not _mounted(Path("/sys/bus/pci/devices")):
        for device in Path("/sys/bus/pci/devices").iterdir():
            wanted.setdefault(device.name, os.readlink(device))
    else:
        for device in directory.iterdir():
            if not os.readlink(device).startswith(str(paths.root)):
                wanted.setdefault(device.name, os.readlink(device))
    for device in directory.iterdir():
        if wanted.get(device.name) != os.readlink(device):
            device.unlink()
    for name, target in wanted.items():
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(target)


def make_mounts(paths: Paths, changes: Changes, simulation: Simulation, allowed: str) -> None:
    """Mount the made-up tree over the real paths: C(allowed) is true (or fail), false or auto."""
    if paths.prefix != Path("/"):
        return
    if allowed == "false" or not simulation.gpus:
        unmount(paths, changes)
        return
    if not changes.check:
        try:
            _fill_pci_devices(paths, simulation)
        except OSError as error:
            changes.notes.append(f"Nothing is mounted over /sys/bus/pci/devices: {error.strerror}.")
    for target, source in _mount_sources(paths).items():
        if _mounted(target) or not target.is_dir():
            continue
        changes.paths.append(str(target))
        if changes.check:
            continue
        command = ["mount", "--bind", str(source), str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            changes.paths.pop()
            if allowed == "true":
                raise SimulatorError(f"{source} can't be mounted over {target}: {done.stderr.strip()}")
            changes.notes.append(f"Nothing is mounted over {target}: not allowed here; see {paths.root}.")


def unmount(paths: Paths, changes: Changes) -> None:
    """Take the mounts away."""
    if paths.prefix != Path("/"):
        return
    for target in _mount_sources(paths):
        if _mounted(target):
            changes.paths.append(str(target))
            if not changes.check:
                done = subprocess.run(["umount", str(target)], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise SimulatorError(f"{target} can't be unmounted: {done.stderr.strip()}")
