# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for NVIDIA's repository of the Container Toolkit, which ``MOLECULE_TOOLKIT=real`` uses.

``build.py FOLDER`` makes ``FOLDER/repos/stable/deb/<amd64|arm64>/``, a signed, flat apt repository with the four
packages in the versions 1.17.8-1 and 1.18.1-1 (which has the units nvidia-cdi-refresh), and ``FOLDER/repos/gpgkey``.
``FOLDER/fingerprint`` is that of the key. Its ``nvidia-ctk`` describes simulated GPUs. Needs dpkg-deb, gpg, and
``nvidia_repository`` beside this folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "nvidia_repository"))

from build import Package, gpg, key, publish
from build import build as build_package

VERSIONS = ("1.17.8", "1.18.1")
SERVICE = """[Unit]
Description=Refresh NVIDIA CDI specification file

[Service]
Type=oneshot
Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml
ExecStart=/usr/bin/nvidia-ctk cdi generate

[Install]
WantedBy=multi-user.target
"""
PATH = """[Unit]
Description=Trigger CDI refresh on NVIDIA driver install / uninstall events

[Path]
PathChanged=/usr/bin/nvidia-ctk

[Install]
WantedBy=multi-user.target
"""


def packages(version: str) -> Iterator[Package]:
    """Yield the packages of one version."""
    full = f"{version}-1"
    same = f"(= {full})"
    # ansible-test lets no program of a repository ask for python3.
    files: dict[str, bytes | str] = {
        f"usr/bin/{name}*": (HERE / name)
        .read_text()
        .replace("env python\n", "env python3\n", 1)
        .replace("@VERSION@", version)
        for name in ("nvidia-ctk", "nvidia-container-runtime")
    }
    if version >= "1.18":
        files["usr/lib/systemd/system/nvidia-cdi-refresh.service"] = SERVICE
        files["usr/lib/systemd/system/nvidia-cdi-refresh.path"] = PATH
    yield Package("libnvidia-container1", full)
    yield Package("libnvidia-container-tools", full, {"Depends": f"libnvidia-container1 (>= {full})"})
    yield Package("nvidia-container-toolkit-base", full, {}, files)
    yield Package(
        "nvidia-container-toolkit",
        full,
        {"Depends": f"libnvidia-container-tools {same}, nvidia-container-toolkit-base {same}"},
    )


def main() -> None:
    """Build the repository."""
    folder = Path(sys.argv[1])
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    os.umask(0o022)
    repos, home = folder / "repos", folder / "keys"
    target = repos / "stable/deb" / architecture
    target.mkdir(parents=True)
    home.mkdir(mode=0o700)
    signer = key(home, "toolkit")
    (folder / "fingerprint").write_text(f"{signer}\n")
    (repos / "gpgkey").write_text(gpg(home, "--armor", "--export", signer))
    entries = [build_package(package, target, architecture) for version in VERSIONS for package in packages(version)]
    publish(
        target,
        entries,
        "https://nvidia.github.io/libnvidia-container",
        "libnvidia-container",
        architecture,
        home,
        signer,
    )


if __name__ == "__main__":
    main()
