# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for Docker's repository, https://download.docker.com/linux, which the role uses if no other is named.

``build.py FOLDER`` makes ``FOLDER/repos/debian/``, a signed apt repository of this host's release. Its docker-ce,
docker-ce-cli and containerd.io hold the engine that Debian has, so that it runs. ``FOLDER/docker-fingerprint`` is that
of the key ``debian/gpg``. Needs apt's Debian, dpkg-deb, gpg, and ``nvidia_repository`` beside this folder.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "nvidia_repository"))

from build import gpg, key

START = """#!/bin/sh
set -e
getent group docker > /dev/null || groupadd --system docker
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl enable --now UNIT
fi
"""
STOP = """#!/bin/sh
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now UNIT; fi
"""
# The client is a package of its own since Debian 13.
CLIENT = "docker.io" if platform.freedesktop_os_release()["VERSION_ID"] == "12" else "docker-cli"
# What each holds of Debian's packages, what it needs, and the unit that it starts.
PACKAGES = {
    "containerd.io": (
        ["containerd", "runc"],
        "Depends: libc6, libseccomp2\nConflicts: containerd, runc\nReplaces: containerd, runc\n",
        "containerd.service",
    ),
    "docker-ce-cli": ([CLIENT], f"Conflicts: {CLIENT}\nReplaces: {CLIENT}\n", ""),
    "docker-ce": (
        ["docker.io", "tini"],
        "Depends: containerd.io, docker-ce-cli, iptables, libsystemd0\nConflicts: docker.io\nReplaces: docker.io\n",
        "docker.socket docker.service",
    ),
}


def build(name: str, scratch: Path, target: Path, architecture: str) -> str:
    """Build a package, and return its entry of Packages."""
    sources, relations, unit = PACKAGES[name]
    root = scratch / name
    (root / "DEBIAN").mkdir(parents=True)
    subprocess.run(["apt-get", "download", *sources], cwd=scratch, check=True)
    for source in sources:
        for package in scratch.glob(f"{source}_*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
            package.unlink()
    for path in [path for path in root.rglob("*") if not path.is_dir()]:
        if "share/doc" in str(path) or (
            CLIENT == "docker.io" and (path == root / "usr/bin/docker") is (name == "docker-ce")
        ):
            path.unlink()
    control = (
        f"Package: {name}\nVersion: 5:28.0.0-1~standin\nArchitecture: {architecture}\nSection: admin\n"
        f"Priority: optional\nMaintainer: Stand-in <standin@example.org>\n{relations}Description: Stand-in for {name}\n"
    )
    (root / "DEBIAN/control").write_text(control)
    for script, text in {"postinst": START, "prerm": STOP}.items():
        if unit:
            (root / "DEBIAN" / script).write_text(text.replace("UNIT", unit))
            (root / "DEBIAN" / script).chmod(0o755)
    file = target / f"{name}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-z1", "--build", root, file], check=True)
    data = file.read_bytes()
    path = file.relative_to(target.parents[4])
    return f"{control}Filename: {path}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"


def main() -> None:
    """Build the repository."""
    folder = Path(sys.argv[1])
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    os.umask(0o022)
    top = folder / "repos/debian"
    pool, index = top / f"dists/{suite}/pool/stable/{architecture}", top / f"dists/{suite}/stable/binary-{architecture}"
    for place in (pool, index):
        place.mkdir(parents=True)
    home = folder / "docker-keys"
    home.mkdir(mode=0o700)
    signer, other = key(home, "docker"), key(home, "somebody-else")
    (folder / "docker-fingerprint").write_text(f"{signer}\n")
    (top / "gpg").write_text(gpg(home, "--armor", "--export", signer))
    (folder / "other-key").write_text(gpg(home, "--armor", "--export", other))
    with tempfile.TemporaryDirectory() as scratch:
        # The user apt, who downloads, has to get in.
        Path(scratch).chmod(0o777)
        entries = [build(name, Path(scratch), pool, architecture) for name in PACKAGES]
    packages = "\n".join(entries).encode()
    release = f"Origin: Docker\nSuite: {suite}\nCodename: {suite}\nArchitectures: {architecture}\nComponents: stable\n"
    release += f"Date: {formatdate(usegmt=True)}\nSHA256:\n"
    for name, data in {"Packages": packages, "Packages.gz": gzip.compress(packages, mtime=0)}.items():
        (index / name).write_bytes(data)
        path = (index / name).relative_to(index.parents[1])
        release += f" {hashlib.sha256(data).hexdigest()} {len(data)} {path}\n"
    file = index.parents[1] / "Release"
    file.write_text(release)
    gpg(home, "--local-user", signer, "--output", file.with_name("InRelease"), "--clearsign", file)


if __name__ == "__main__":
    main()
