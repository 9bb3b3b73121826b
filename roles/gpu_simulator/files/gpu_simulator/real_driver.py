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
    r"(libnvidia-ml1|libnvidia-compute(-.+)?|nvidia-driver(-(?!pinning).+)?|nvidia-(open-)?kernel-(dkms|support)"
    r"|nvidia-open(-\d.*)?|nvidia-dkms-.+|nvidia-headless-.+|nvidia-utils-.+|nvidia-smi|nvidia-compute-utils-.+"
    r"|cuda-drivers(-.+)?|kmod-nvidia(-.+)?|akmod-nvidia(-.+)?|xorg-x11-drv-nvidia(-.+)?)"
)
OUR_LIBRARY = "/usr/local/lib/gpu-simulator/"
#: Where the linker looks without its cache.
LIBRARY_DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/lib",
)  # fmt: skip


def dpkg_packages(status: Path) -> list[str]:
    """Return the packages that dpkg has on the host, also those that are broken."""
    pattern = r"^Package: (\S+)\nStatus: \S+ \S+ (?!not-installed|config-files)\S+$"
    return re.findall(pattern, status.read_text(errors="replace"), re.MULTILINE)


def _driver_packages() -> list[str]:
    status = Path("/var/lib/dpkg/status")
    installed: list[str] = []
    if status.is_file():
        installed = dpkg_packages(status)
    elif shutil.which("rpm"):
        done = subprocess.run(["rpm", "-qa", "--qf", "%{NAME}\\n"], capture_output=True, text=True, check=False)
        installed = done.stdout.split()
    return sorted(name for name in installed if DRIVER_PACKAGE.fullmatch(name))


def _libraries() -> list[str]:
    program = shutil.which("ldconfig") or "/sbin/ldconfig"
    cache = subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
    known = re.findall(r"libnvidia-ml\.so\.1 .*=> (\S+)", cache)
    present = [str(path) for name in LIBRARY_DIRECTORIES if (path := Path(name) / "libnvidia-ml.so.1").exists()]
    return known + present


def _has_control_node() -> bool:
    return Path("/dev/nvidiactl").exists() and not Path("/etc/gpu-simulator/nodes").exists()


def real_driver() -> str | None:
    """Return a sentence about the real driver of this host, or None if there is none."""
    found = None
    if module_loaded() and (not _in_container() or _has_control_node()):
        found = "the kernel module nvidia is loaded"
    elif packages := _driver_packages():
        found = f"the package {packages[0]} is installed"
    elif libraries := [path for path in _libraries() if not path.startswith(OUR_LIBRARY)]:
        found = f"{libraries[0]} is installed"
    return None if found is None else f"This host has a real NVIDIA driver: {found}."


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
