# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host has a real NVIDIA driver. Also a script of its own: prints the answer as JSON."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

DRIVER_PACKAGE = re.compile(
    r"(libnvidia-ml1|libnvidia-compute(-.+)?|nvidia-driver(-.+)?|nvidia-(open-)?kernel-(dkms|support)|nvidia-open(-\d.*)?"
    r"|nvidia-dkms-.+|nvidia-headless-.+|nvidia-utils-.+|nvidia-smi|cuda-drivers(-.+)?|kmod-nvidia(-.+)?"
    r"|akmod-nvidia(-.+)?|xorg-x11-drv-nvidia(-.+)?|nvidia-compute-utils-.+)"
)


def _driver_packages() -> list[str]:
    status = Path("/var/lib/dpkg/status")
    if status.is_file():
        installed = re.findall(
            r"^Package: (\S+)\nStatus: \S+ \S+ (?!not-installed|config-files)\S+$",
            status.read_text(errors="replace"),
            re.MULTILINE,
        )
    elif shutil.which("rpm"):
        done = subprocess.run(["rpm", "-qa", "--qf", "%{NAME}\\n"], capture_output=True, text=True, check=False)
        installed = done.stdout.split()
    else:
        installed = []
    return sorted(name for name in installed if DRIVER_PACKAGE.fullmatch(name))


def real_driver() -> str | None:
    """Return a sentence about the real driver of this host, or None if there is none."""
    reachable = not _in_container() or (
        Path("/dev/nvidiactl").exists() and not Path("/etc/gpu-simulator/nodes").exists()
    )
    if module_loaded() and reachable:
        return "This host has a real NVIDIA driver: the kernel module nvidia is loaded."
    packages = _driver_packages()
    if packages:
        return f"This host has a real NVIDIA driver: the package {packages[0]} is installed."
    program = shutil.which("ldconfig") or "/sbin/ldconfig"
    cache = subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"libnvidia-ml\.so\.1 .*=> (\S+)", cache):
        if not path.startswith("/usr/local/lib/gpu-simulator/"):
            return f"This host has a real NVIDIA driver: {path} is installed."
    return None


def _in_container() -> bool:
    if Path("/run/.containerenv").exists() or Path("/.dockerenv").exists():
        return True
    try:
        environment = Path("/proc/1/environ").read_bytes().split(b"\0")
    except OSError:
        environment = []
    return any(entry.startswith(b"container=") for entry in environment)


def module_loaded() -> bool:
    """Return whether the kernel has the module nvidia; a container sees its host's."""
    try:
        return any(line.startswith("nvidia ") for line in Path("/proc/modules").read_text().splitlines())
    except OSError:
        return False


if __name__ == "__main__":
    print(json.dumps({"real_driver": real_driver()}))
