# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for NVIDIA's RPM repository of the Container Toolkit, which ``MOLECULE_TOOLKIT=real`` uses.

``build_rpm.py FOLDER`` makes ``FOLDER/repos/stable/rpm/<x86_64|aarch64>/``, with the packages of ``build.py``: the
metadata are signed, as there, and the packages are not. ``FOLDER/repos/base/`` has what dnf itself needs:
there, versionlock's package is what brings the plugin back that was put aside as ``*.hidden``.
``FOLDER/repos/gpgkey`` is the key, ``FOLDER/repos/other.pub`` one that signs nothing, and ``FOLDER/fingerprint`` the
key's. Needs rpmbuild, createrepo_c and gpg, and ``nvidia_repository`` and ``nvidia_rpm_repository`` beside this folder.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Debian's package of dnf's plugins has it.
PLUGIN = "/usr/lib/python3/dist-packages/dnf-plugins/versionlock.py"


def load(name: str, path: Path) -> Any:
    """Return a program as a module: the others are called build as well."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


toolkit = load("toolkit", HERE / "build.py")
rpm = load("rpm_repository", HERE.parent / "nvidia_rpm_repository/build.py")


def packages(version: str) -> list[Any]:
    """Return the packages of one version, which need each other at the same one."""
    needs = {
        "libnvidia-container-tools": ["libnvidia-container1"],
        "nvidia-container-toolkit": ["libnvidia-container-tools", "nvidia-container-toolkit-base"],
    }
    return [
        rpm.Package(
            package.name,
            ["AutoReqProv: no", *(f"Requires: {name} = {version}-1" for name in needs.get(package.name, []))],
            {f"/{path.rstrip('*')}": text for path, text in package.files.items()},
        )
        for package in toolkit.packages(version, toolkit.standin(version))
    ]


def main() -> None:
    """Build the repositories."""
    folder = Path(sys.argv[1])
    os.umask(0o022)
    target, base = folder / f"repos/stable/rpm/{rpm.MACHINE}", folder / "repos/base"
    for place in (target, base):
        place.mkdir(parents=True)
    for version in toolkit.VERSIONS:
        rpm.build(target, version, "1", packages(version))
    plugin = rpm.Package("python3-dnf-plugin-versionlock", scriptlets={"post": f"mv {PLUGIN}.hidden {PLUGIN}"})
    rpm.build(base, "1", "1", [plugin, rpm.Package("bash", ["Provides: /bin/sh"])])
    for place in (target, base):
        rpm.run("createrepo_c", "--quiet", place)
    with tempfile.TemporaryDirectory() as home:
        rpm.keys(folder, home)
        sign = ("gpg", "--batch", "--local-user", "standin", "--armor", "--detach-sign")
        rpm.run(*sign, target / "repodata/repomd.xml", GNUPGHOME=home)
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)
    (folder / "repos/standin.pub").rename(folder / "repos/gpgkey")


if __name__ == "__main__":
    main()
