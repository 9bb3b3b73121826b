# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for NVIDIA's repository of the Container Toolkit, which ``MOLECULE_TOOLKIT=real`` uses.

``build.py FOLDER`` makes ``FOLDER/repos/stable/deb/<amd64|arm64>/``, a signed, flat apt repository with the four
packages in the versions 1.17.8-1 and 1.18.1-1 (which has the units nvidia-cdi-refresh), and ``FOLDER/repos/gpgkey``.
``FOLDER/fingerprint`` is that of the key. Its ``nvidia-ctk`` describes simulated GPUs. Needs dpkg-deb, gpg, and
``nvidia_repository`` beside this folder.

``build.py FOLDER PROGRAMS`` (``MOLECULE_CTK=PROGRAMS``) adds packages of NVIDIA's own programs in the version that they
say: ``PROGRAMS`` is a folder with what `make cmds` of https://github.com/NVIDIA/nvidia-container-toolkit builds. Its
``nvidia-ctk`` has a wrapper, by which descriptions have the files of the simulator, that no real driver has.
"""

from __future__ import annotations

import os
import re
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


PROGRAMS = ("nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook")
WRAPPER = """#!/bin/sh
# NVIDIA's nvidia-ctk, whose descriptions get the files of gpu_simulator as well.
/usr/libexec/nvidia-ctk "$@" || exit
output=$NVIDIA_CTK_CDI_OUTPUT_FILE_PATH
for word; do case $word in --output=*) output=${word#*=} ;; esac; done
[ "$1 $2" != "cdi generate" ] || sed -i '/^    mounts:$/a\\
        - hostPath: /etc/gpu-simulator\\
          containerPath: /etc/gpu-simulator\\
          options: [ro, nosuid, nodev, rbind, rprivate]' "$output"
"""


def standin(version: str) -> dict[str, bytes | str]:
    """Return the programs of the stand-in."""
    # ansible-test lets no program of a repository ask for python3.
    return {
        f"usr/bin/{name}*": (HERE / name)
        .read_text()
        .replace("env python\n", "env python3\n", 1)
        .replace("@VERSION@", version)
        for name in ("nvidia-ctk", "nvidia-container-runtime")
    }


def real(folder: Path) -> tuple[str, dict[str, bytes | str]]:
    """Return the version and the programs of NVIDIA's own."""
    said = subprocess.check_output([folder / "nvidia-ctk", "--version"], text=True)
    found = re.search(r"\d+[.]\d+[.]\d+", said)
    if found is None:
        sys.exit(f"{folder}/nvidia-ctk says no version: {said}")
    files: dict[str, bytes | str] = {f"usr/bin/{name}*": (folder / name).read_bytes() for name in PROGRAMS}
    return found[0], {
        "usr/bin/nvidia-ctk*": WRAPPER,
        "usr/libexec/nvidia-ctk*": (folder / "nvidia-ctk").read_bytes(),
        **files,
    }


def packages(version: str, programs: dict[str, bytes | str]) -> Iterator[Package]:
    """Yield the packages of one version."""
    full = f"{version}-1"
    same = f"(= {full})"
    files = dict(programs)
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
    built = {version: standin(version) for version in VERSIONS} | dict(map(real, map(Path, sys.argv[2:])))
    entries = [
        build_package(package, target, architecture)
        for version, programs in built.items()
        for package in packages(version, programs)
    ]
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
