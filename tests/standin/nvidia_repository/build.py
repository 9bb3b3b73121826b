# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for NVIDIA's CUDA repository, which is what the role uses by default, without nvidia_driver_repository_*.

``build.py FOLDER [DISTRIBUTION ...]`` makes ``FOLDER/repos/<distribution>/<x86_64|sbsa>/`` for debian12 and debian13
(default: both): a signed, flat apt repository with the names, versions, relations and maintainer scripts that the
driver's packages have there. ``FOLDER/fingerprint`` is that of the key. Needs dpkg-deb, gpg and gcc.

Packages hold next to nothing, but DKMS compiles real kernel modules in seconds, and NVML answers "driver not loaded".
What else is special:

==========  ===========================================================================================================
580.95.05   configuring nvidia-driver-cuda takes ``SLOW`` seconds, enough to interrupt it
590.48.01   the kernel module does not compile
615.71.09   fabric manager exists in another version only
615, 620    no proprietary kernel module
other key   ``FOLDER/repos/other.pub`` is a key that signs nothing
other repo  ``FOLDER/repos/ppa/`` has libraries of a driver that NVIDIA's does not have; its key is the same
==========  ===========================================================================================================
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

FILES = Path(__file__).parent / "files"
VERSIONS = ("580.95.05", "580.126.09", "580.159.04", "590.48.01", "595.58.03", "595.71.05", "615.71.09", "620.36.02")
BROKEN, SLOW_VERSION, SLOW = "590.48.01", "580.95.05", 12
FABRIC_MANAGER_OTHER = {"615.71.09": "615.71.05"}
KEYS = {"debian12": "3bf863cc.pub", "debian13": "8793F200.pub"}
# Installed sizes in KiB, about those of the real packages.
SIZES = {
    "nvidia-kernel-open-dkms": 61000,
    "nvidia-kernel-dkms": 92000,
    "firmware-nvidia-gsp": 105000,
    "libcuda1": 95000,
}


@dataclass
class Package:
    """A package to build: contents by path (a trailing ``*`` makes it executable), maintainer scripts by name."""

    name: str
    version: str
    relations: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes | str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    conffiles: tuple[str, ...] = ()
    architecture: str = ""


def major(version: str) -> int:
    """Return the branch of a driver's version."""
    return int(version.split(".", maxsplit=1)[0])


def has_proprietary(version: str) -> bool:
    """Branches up to 595 have both kernel modules."""
    return major(version) < 615


def unit(name: str, description: str) -> dict[str, bytes | str]:
    """Return a service that, like the real one, ends at once where no driver is loaded."""
    return {
        f"usr/bin/{name}*": "#!/bin/sh\necho 'Failed to query NVIDIA devices: no driver is loaded.' >&2\nexit 1\n",
        f"usr/lib/systemd/system/{name}.service": (
            f"[Unit]\nDescription={description}\n\n[Service]\nType=forking\nExecStart=/usr/bin/{name}\n\n"
            "[Install]\nWantedBy=multi-user.target\n"
        ),
    }


def kernel_module(name: str, full: str, upstream: str, opponent: str) -> Package:
    """Return a DKMS package; both kinds bring the same module, so they exclude one another."""
    open_module = "open" in name
    source = f"usr/src/nvidia-{upstream}"
    relations = {
        "Depends": f"dkms (>= 3.0.3), nvidia-kernel-support (= {full})",
        "Provides": f"nvidia-kernel-{upstream}",
        "Conflicts": opponent,
        "Replaces": opponent,
    }
    header = (
        f'#define NV_VERSION_STRING "{upstream}"\n'
        f'#define NV_LICENSE "{"Dual MIT/GPL" if open_module else "NVIDIA"}"\n'
        f'#define NV_DESCRIPTION "{"open" if open_module else "proprietary"} stand-in"\n'
    )
    if upstream == BROKEN:
        header += "#define NV_RESIZE_TAKES_MORE\n"
    return Package(
        name,
        full,
        relations,
        {
            f"{source}/dkms.conf": (FILES / "dkms.conf").read_text().replace("@VERSION@", upstream),
            f"{source}/Kbuild": (FILES / "Kbuild").read_bytes(),
            f"{source}/nvidia/nv-pci.c": (FILES / "nv-pci.c").read_bytes(),
            f"{source}/nvidia-uvm/uvm.c": (FILES / "uvm.c").read_bytes(),
            f"{source}/nv-version.h": header,
        },
        {
            script: (FILES / f"dkms.{script}").read_text().replace("@VERSION@", upstream)
            for script in ("postinst", "prerm")
        },
    )


def pinning(version: str, full: str) -> Package:
    """Return a package that pins the driver's packages to a branch, or to one version."""
    everything = "libcuda* libnvidia* nvidia-* cuda-drivers* firmware-nvidia-gsp"
    return Package(
        f"nvidia-driver-pinning-{version}",
        full,
        {
            "Provides": "nvidia-driver-pinning",
            "Conflicts": "nvidia-driver-pinning",
            "Replaces": "nvidia-driver-pinning",
        },
        {
            f"etc/apt/preferences.d/nvidia-driver-pinning-{version}": (
                f"Package: {everything}\nPin: version {version}{'-' if '.' in version else '.'}*\nPin-Priority: 1000\n"
            )
        },
        conffiles=(f"/etc/apt/preferences.d/nvidia-driver-pinning-{version}",),
        architecture="all",
    )


def library(name: str, full: str, upstream: str, built: Path, triplet: str) -> Package:
    """Return the package of a shared library: that of NVML for libnvidia-ml1, else an empty one."""
    stem = name.removesuffix("1")
    files: dict[str, bytes | str] = {}
    if stem == "libnvidia-ml":
        files[f"usr/lib/{triplet}/libnvidia-ml.so.{upstream}"] = (built / upstream).read_bytes()
    else:
        files[f"usr/share/doc/{name}/stand-in"] = f"{stem}.so.{upstream}\n"
    return Package(
        name, full, {}, files, {"postinst": "#!/bin/sh\nset -e\nldconfig\n", "postrm": "#!/bin/sh\nldconfig\n"}
    )


def smi() -> dict[str, bytes | str]:
    """Return an nvidia-smi that says what the real one says without a loaded driver."""
    return {
        "usr/bin/nvidia-smi*": (
            '#!/bin/sh\necho "NVIDIA-SMI has failed because it couldn\'t communicate with the NVIDIA driver."\nexit 9\n'
        )
    }


def driver(upstream: str, built: Path, triplet: str) -> Iterator[Package]:
    """Yield the packages of one version of the driver."""
    full = f"{upstream}-1"
    same = f"(= {full})"
    kernels = " | ".join(
        f"{name} {same}"
        for name in ("nvidia-kernel-open-dkms", *(["nvidia-kernel-dkms"] if has_proprietary(upstream) else []))
    )
    for name in ("libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "libnvidia-ptxjitcompiler1"):
        yield library(name, full, upstream, built, triplet)
    yield Package("nvidia-opencl-icd", full, {"Depends": f"libcuda1 {same}"})
    yield Package("firmware-nvidia-gsp", full)
    yield Package("nvidia-modprobe", full)
    yield Package("nvidia-settings", full)
    yield Package(
        "nvidia-kernel-support", full, {"Depends": f"firmware-nvidia-gsp {same}, nvidia-modprobe {same}"},
        {"etc/modprobe.d/nvidia.conf": "softdep nvidia post: nvidia-uvm\n"}, conffiles=("/etc/modprobe.d/nvidia.conf",),
    )  # fmt: skip
    yield Package(
        "nvidia-persistenced", full, {"Depends": f"libnvidia-cfg1 {same}"},
        unit("nvidia-persistenced", "NVIDIA Persistence Daemon"),
    )  # fmt: skip
    yield kernel_module("nvidia-kernel-open-dkms", full, upstream, "nvidia-kernel-dkms")
    if has_proprietary(upstream):
        yield kernel_module("nvidia-kernel-dkms", full, upstream, "nvidia-kernel-open-dkms")
    slow = {"postinst": f"#!/bin/sh\nset -e\nsleep {SLOW}\n"} if upstream == SLOW_VERSION else {}
    yield Package(
        "nvidia-driver-cuda",
        full,
        {
            "Depends": f"libcuda1 {same}, libnvidia-ml1 {same}, libnvidia-ptxjitcompiler1 {same}, "
            f"nvidia-opencl-icd {same}, nvidia-persistenced {same}, {kernels}",
            "Recommends": f"nvidia-settings {same}",
        },
        smi(),
        slow,
    )
    yield Package("nvidia-driver-libs", full, {"Depends": f"libnvidia-cfg1 {same}"})
    yield Package("nvidia-driver", full, {"Depends": f"nvidia-driver-libs {same}, {kernels}"})
    suffixes = ["", f"-{major(upstream)}"] if major(upstream) <= 580 else [""]
    for suffix in suffixes:
        common = f"nvidia-driver {same}, nvidia-driver-cuda {same}"
        yield Package(f"nvidia-open{suffix}", full, {"Depends": f"{common}, nvidia-kernel-open-dkms {same}"})
        if has_proprietary(upstream):
            yield Package(f"cuda-drivers{suffix}", full, {"Depends": f"{common}, nvidia-kernel-dkms {same}"})
    yield pinning(upstream, full)
    fabric = FABRIC_MANAGER_OTHER.get(upstream, upstream)
    yield Package("nvidia-fabricmanager", f"{fabric}-1", {}, unit("nvidia-fabricmanager", "NVIDIA fabric manager"))


def catalogue(built: Path, triplet: str) -> list[Package]:
    """Return every package of a repository."""
    packages = [package for upstream in VERSIONS for package in driver(upstream, built, triplet)]
    packages += [pinning(str(branch), f"{branch}-1") for branch in sorted(set(map(major, VERSIONS)))]
    # Neighbours in the same repository, which are none of the driver's.
    return [*packages, Package("cuda-toolkit-13-0", "13.0.2-1"), Package("nvidia-container-toolkit", "1.18.1-1")]


def foreign() -> list[Package]:
    """Return packages of a driver from elsewhere."""
    full = "570.211.01-0ubuntu1~graphics1"
    return [
        Package("nvidia-utils-570", full, {"Depends": f"libnvidia-compute-570 (= {full})"}),
        Package("libnvidia-compute-570", full),
    ]


def build(package: Package, folder: Path, architecture: str) -> str:
    """Build a package and return its entry of Packages."""
    own = package.architecture or architecture
    size = SIZES.get(package.name, 900)
    fields = {
        "Package": package.name, "Version": package.version, "Architecture": own,
        "Priority": "optional", "Section": "multiverse/devel",
        "Maintainer": "cudatools <cudatools@nvidia.com>", "Installed-Size": str(size), **package.relations,
        "Description": f"Stand-in for {package.name}",
    }  # fmt: skip
    control = "".join(f"{name}: {value}\n" for name, value in fields.items())
    target = folder / f"{package.name}_{package.version}_{own}.deb"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        contents = {"DEBIAN/control": control, **package.files}
        contents |= {f"DEBIAN/{name}*": script for name, script in package.scripts.items()}
        if package.conffiles:
            contents["DEBIAN/conffiles"] = "".join(f"{path}\n" for path in package.conffiles)
        for name, content in contents.items():
            path = root / name.rstrip("*")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            path.chmod(0o755 if name.endswith("*") else 0o644)
        for path in (root, *(path for path in root.rglob("*") if path.is_dir())):
            path.chmod(0o755)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-z1", "--build", root, target], check=True, stdout=subprocess.DEVNULL
        )
    data = target.read_bytes()
    return f"{control}Filename: ./{target.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"


def gpg(home: Path, *arguments: str | Path) -> str:
    """Run gpg with its own home and return what it prints."""
    command = [
        "gpg",
        "--homedir",
        home,
        "--batch",
        "--quiet",
        "--yes",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
    ]
    return subprocess.run([*command, *arguments], check=True, capture_output=True, text=True).stdout


def key(home: Path, name: str) -> str:
    """Return the fingerprint of a key for signing, which is made if it is missing."""
    if name not in gpg(home, "--list-keys"):
        gpg(home, "--quick-generate-key", f"{name} <cudatools@nvidia.com>", "rsa3072", "sign", "never")
    listing = gpg(home, "--list-keys", "--with-colons", name)
    return next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))


def publish(folder: Path, entries: list[str], origin: str, label: str, machine: str, home: Path, signer: str) -> None:
    """Write Packages, Release and its signatures."""
    index = "\n".join(sorted(entries)).encode()
    (folder / "Packages").write_bytes(index)
    (folder / "Packages.gz").write_bytes(gzip.compress(index, mtime=0))
    release = f"Origin: {origin}\nLabel: {label}\nArchitecture: {machine}\nDate: {formatdate(usegmt=True)}\n"
    for algorithm, title in (("md5", "MD5Sum"), ("sha1", "SHA1"), ("sha256", "SHA256")):
        release += f"{title}:\n"
        for name in ("Packages", "Packages.gz"):
            data = (folder / name).read_bytes()
            release += f" {hashlib.new(algorithm, data).hexdigest()} {len(data)} {name}\n"
    (folder / "Release").write_text(release)
    gpg(home, "--local-user", signer, "--output", folder / "InRelease", "--clearsign", folder / "Release")
    gpg(
        home, "--local-user", signer, "--armor", "--output", folder / "Release.gpg", "--detach-sign", folder / "Release"
    )


def main() -> None:
    """Build the repositories that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("distributions", nargs="*", metavar="distribution", help=f"of {', '.join(KEYS)}")
    arguments = parser.parse_args()
    distributions = arguments.distributions or list(KEYS)
    if unknown := set(distributions) - set(KEYS):
        parser.error(f"unknown distribution {', '.join(sorted(unknown))}: known are {', '.join(KEYS)}.")
    architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
    triplet = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    machine = "sbsa" if architecture == "arm64" else "x86_64"
    os.umask(0o022)
    folder: Path = arguments.folder
    repos, home = folder / "repos", folder / "keys"
    repos.mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True, mode=0o700)
    signer, other = key(home, "cudatools"), key(home, "somebody-else")
    (folder / "fingerprint").write_text(f"{signer}\n")
    (repos / "other.pub").write_text(gpg(home, "--armor", "--export", other))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as pool:
        built = Path(scratch)
        for upstream in VERSIONS:
            command = ["gcc", "-shared", "-fPIC", f'-DVERSION="{upstream}"', "-Wl,-soname,libnvidia-ml.so.1"]
            subprocess.run([*command, "-o", built / upstream, FILES / "nvml.c"], check=True)
        repositories = [
            (repos / name / machine, catalogue(built, triplet), "NVIDIA", "NVIDIA CUDA", KEYS[name])
            for name in distributions
        ]
        repositories.append((repos / "ppa", foreign(), "LP-PPA-graphics-drivers", "Proprietary GPU Drivers", "key.pub"))
        for target, packages, origin, label, key_name in repositories:
            if target.exists():
                shutil.rmtree(target)
            target.mkdir(parents=True)
            entries = list(pool.map(lambda package, target=target: build(package, target, architecture), packages))
            (target / key_name).write_text(gpg(home, "--armor", "--export", signer))
            publish(target, entries, origin, label, machine, home, signer)


if __name__ == "__main__":
    main()
