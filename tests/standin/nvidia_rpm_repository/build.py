# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for NVIDIA's CUDA repository of Enterprise Linux, and for the repositories of the system.

``build.py FOLDER [RELEASE ...]`` makes, for each release (default: 9), ``FOLDER/repos/rhel<release>/<x86_64|sbsa>/``: a
signed RPM repository with the names, epochs, relations and, up to 9, module streams that the driver's packages have
there; and ``FOLDER/repos/base<release>/``: unsigned, with kernel headers, dkms and what else the driver needs.
``FOLDER/fingerprint`` is that of the key. Needs rpmbuild, rpmsign, createrepo_c, modifyrepo_c and gpg.

Packages hold next to nothing, but DKMS compiles real kernel modules in seconds, against the headers that
``KERNEL_HEADERS`` in the environment names: the headers of "kernels" of the base repository are a link to them.
What else is special:

==========  ===========================================================================================================
580.95.05   the installation of nvidia-driver-cuda takes ``SLOW`` seconds, enough to interrupt it
590.48.01   the kernel module does not compile
615.71.09   no proprietary kernel module
dkms        3.2.2, and 3.0.13, which is too old for the driver
other key   ``FOLDER/repos/other.pub`` is a key that signs nothing
==========  ===========================================================================================================
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FILES = Path(__file__).parents[1] / "nvidia_repository/files"
VERSIONS = ("580.95.05", "580.159.04", "590.48.01", "595.71.05", "615.71.09")
BROKEN, SLOW_VERSION, SLOW = "590.48.01", "580.95.05", 12
OLD_DKMS = "3.0.13"
KERNELS = {"8": ("4.18.0", "553.16.1.el8_10"), "9": ("5.14.0", "570.12.1.el9_6"), "10": ("6.12.0", "55.9.1.el10_0")}
OLDER_KERNELS = {
    "8": ("4.18.0", "553.5.1.el8_10"),
    "9": ("5.14.0", "503.11.1.el9_5"),
    "10": ("6.12.0", "55.7.1.el10_0"),
}
KEYS = {"8": "D42D0685.pub", "9": "D42D0685.pub", "10": "CDF6BA43.pub"}
MACHINE = platform.machine()

OPEN, PROPRIETARY = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"
# What each package of a version requires of the same version.
FAMILY = {
    "libnvidia-ml": (),
    "libnvidia-cfg": (),
    "nvidia-modprobe": (),
    "nvidia-kmod-common": ("nvidia-kmod", "nvidia-modprobe"),
    "nvidia-driver-cuda-libs": ("libnvidia-ml",),
    "nvidia-persistenced": ("libnvidia-cfg",),
    "nvidia-driver-cuda": ("nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced"),
    "nvidia-driver-libs": ("nvidia-driver-cuda-libs",),
    "nvidia-driver": ("nvidia-driver-libs", "nvidia-kmod-common"),
    "nvidia-fabricmanager": (),
}
SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager")


@dataclass
class Package:
    """A package to build: contents by path, scriptlets by name, further lines of its header."""

    name: str
    header: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scriptlets: dict[str, str] = field(default_factory=dict)


def run(*command: str | Path, **options: str) -> None:
    """Run a command; what it says is shown only if it fails."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **options}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command[:2]))} failed:\n{done.stdout}")


def is_open_only(version: str) -> bool:
    """From branch 615 on there is no proprietary kernel module."""
    return int(version.split(".", maxsplit=1)[0]) >= 615


def driver(version: str) -> list[Package]:
    """Return the packages of one version of the driver."""
    packages = []
    for name, requires in FAMILY.items():
        package = Package(name, [f"Requires: {one} = 3:{version}" for one in requires])
        if name in SERVICES:
            package.files[f"/usr/lib/systemd/system/{name}.service"] = (
                f"[Unit]\nDescription={name}\n\n[Service]\nExecStart=/bin/false\n\n[Install]\nWantedBy=multi-user.target\n"
            )
        if name == "nvidia-driver-cuda" and version == SLOW_VERSION:
            package.scriptlets["post"] = f"sleep {SLOW}"
        packages.append(package)
    packages.append(kernel_module(OPEN, "nvidia-open", version, PROPRIETARY))
    packages.append(full("nvidia-open", OPEN, version))
    if not is_open_only(version):
        packages.append(kernel_module(PROPRIETARY, "nvidia", version, OPEN))
        packages.append(full("cuda-drivers", PROPRIETARY, version))
    return packages


def kernel_module(name: str, module: str, version: str, opponent: str) -> Package:
    """Return a DKMS package; its scriptlets carry on, as the real ones do, when the module doesn't compile."""
    source = f"/usr/src/{module}-{version}"
    header = (
        f'#define NV_VERSION_STRING "{version}"\n'
        f'#define NV_LICENSE "{"Dual MIT/GPL" if name == OPEN else "NVIDIA"}"\n'
        '#define NV_DESCRIPTION "stand-in"\n'
    )
    if version == BROKEN:
        header += "#define NV_RESIZE_TAKES_MORE\n"
    configuration = (FILES / "dkms.conf").read_text().replace("@VERSION@", version)
    return Package(
        name,
        [
            "Requires: dkms >= 3.1.8",
            f"Requires: nvidia-kmod-common = 3:{version}",
            f"Provides: nvidia-kmod = 3:{version}",
            f"Conflicts: {opponent}",
        ],
        {
            f"{source}/dkms.conf": configuration.replace('PACKAGE_NAME="nvidia"', f'PACKAGE_NAME="{module}"'),
            f"{source}/Kbuild": (FILES / "Kbuild").read_text(),
            f"{source}/nvidia/nv-pci.c": (FILES / "nv-pci.c").read_text(),
            f"{source}/nvidia-uvm/uvm.c": (FILES / "uvm.c").read_text(),
            f"{source}/nv-version.h": header,
        },
        scriptlets={
            "post": f"dkms add -m {module} -v {version} || :\ndkms install -m {module} -v {version} --force || :",
            "preun": f"dkms remove -m {module} -v {version} --all || :",
        },
    )


def full(name: str, module: str, version: str) -> Package:
    """Return the package that brings the whole driver, displays included."""
    return Package(name, [f"Requires: {one} = 3:{version}" for one in ("nvidia-driver", "nvidia-driver-cuda", module)])


def headers(kernel: tuple[str, str]) -> list[Package]:
    """Return the headers of a kernel: a link to those of another one."""
    release = f"{'-'.join(kernel)}.{MACHINE}"
    target = os.environ.get("KERNEL_HEADERS", f"/usr/src/kernels/{release}")
    return [
        Package(
            "kernel-devel",
            ["Provides: installonlypkg(kernel)"],
            links={
                f"/usr/src/kernels/{release}": target,
                f"/lib/modules/{release}/build": f"/usr/src/kernels/{release}",
            },
        ),
        Package(
            "kernel-devel-matched", ["Provides: installonlypkg(kernel)", f"Requires: kernel-devel = {'-'.join(kernel)}"]
        ),
    ]


def build(folder: Path, version: str, release: str, packages: Sequence[Package], epoch: str | None = None) -> None:
    """Build packages of the same version into a folder."""
    lines = [
        "Name: standin",
        f"Version: {version}",
        f"Release: {release}",
        "Summary: stand-in",
        "License: GPL-3.0-or-later",
    ]
    lines += [f"Epoch: {epoch}"] if epoch else []
    lines += ["%description", "Stands in for a package of the same name."]
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        root = top / "root"
        for package in packages:
            lines += [f"%package -n {package.name}", "Summary: stand-in", *package.header]
            lines += [f"%description -n {package.name}", "Stands in for a package of the same name."]
            for script, text in package.scriptlets.items():
                lines += [f"%{script} -n {package.name}", text]
            lines += [f"%files -n {package.name}", *sorted({*package.files, *package.links})]
            for path, text in package.files.items():
                (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                (root / path[1:]).write_text(text)
                (root / path[1:]).chmod(0o755 if text.startswith("#!") else 0o644)
            for path, target in package.links.items():
                (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                (root / path[1:]).symlink_to(target)
        lines += ["%install", f"mkdir -p %{{buildroot}} {root}", f"cp -a {root}/. %{{buildroot}}/"]
        spec = top / "standin.spec"
        spec.write_text("\n".join(lines) + "\n")
        defines = {
            "_topdir": str(top / "build"),
            "_rpmdir": str(folder),
            "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "_build_id_links": "none",
            "debug_package": "%{nil}",
            "__os_install_post": "%{nil}",
        }
        options = [word for key, value in defines.items() for word in ("--define", f"{key} {value}")]
        run("rpmbuild", "-bb", "--target", MACHINE, *options, spec)


def streams(folder: Path, release: str) -> str:
    """Return the metadata of module nvidia-driver: a stream for each branch and flavour, and for each flavour."""
    documents = []
    names = sorted(path.name.removesuffix(".rpm") for path in folder.glob("*.rpm"))
    branches = sorted({name.rsplit("-", 2)[1].split(".", maxsplit=1)[0] for name in names})
    for flavour, unwanted in (("open", (PROPRIETARY, "cuda-drivers")), ("dkms", (OPEN, "nvidia-open"))):
        mine = [name for name in names if name.rsplit("-", 2)[0] not in unwanted]
        complete = [
            branch for branch in branches if any(PROPRIETARY in name or OPEN in name for name in of(mine, branch))
        ]
        documents += [document(f"{branch}-{flavour}", of(mine, branch)) for branch in complete]
        rolling = [name for branch in complete for name in of(mine, branch)]
        documents.append(document("open-dkms" if flavour == "open" else "latest-dkms", rolling))
    return "".join(documents)


def of(names: Iterable[str], branch: str) -> list[str]:
    """Return the packages of a branch."""
    return [name for name in names if name.rsplit("-", 2)[1].startswith(f"{branch}.")]


def document(stream: str, names: Iterable[str]) -> str:
    """Return one stream with its packages."""
    artifacts = []
    for full_name in names:
        name, version, release = full_name.rsplit("-", 2)
        artifacts.append(f"    - {name}-3:{version}-{release}")
    lines = [
        "---", "document: modulemd", "version: 2", "data:", "  name: nvidia-driver", f"  stream: {stream}",
        "  version: 20260101000000", "  context: 2e5b8b41", f"  arch: {MACHINE}", "  summary: stand-in",
        "  description: stand-in", "  license:", "    module: [MIT]", "  artifacts:", "    rpms:", *artifacts, "...",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def keys(folder: Path, home: str) -> None:
    """Make the key that signs and one that doesn't."""
    for user in ("standin", "other"):
        run("gpg", "--batch", "--quick-gen-key", "--passphrase", "", user, "rsa2048", "sign", "never", GNUPGHOME=home)
    exported = {}
    for user in ("standin", "other"):
        command = ["gpg", "--homedir", home, "--armor", "--export", user]
        exported[user] = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listing = ["gpg", "--homedir", home, "--with-colons", "--list-keys", "standin"]
    listed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
    (folder / "repos/other.pub").write_text(exported["other"])
    (folder / "repos/standin.pub").write_text(exported["standin"])
    (folder / "fingerprint").write_text(fingerprint)


def make(folder: Path, release: str, home: str) -> None:
    """Make the repositories of one release."""
    dist = f"1.el{release}"
    repository = folder / f"repos/rhel{release}/{'x86_64' if MACHINE == 'x86_64' else 'sbsa'}"
    base = folder / f"repos/base{release}"
    for place in (repository, base):
        place.mkdir(parents=True)
    for version in VERSIONS:
        build(repository, version, dist, driver(version), epoch="3")
    for kernel in (OLDER_KERNELS[release], KERNELS[release]):
        build(base, *kernel, headers(kernel))
    build(base, OLD_DKMS, dist, [Package("dkms")])
    build(
        base,
        "3.2.2",
        dist,
        [Package("dkms"), Package("python3-dnf-plugin-versionlock"), Package("bash", ["Provides: /bin/sh"])],
    )
    rpms = sorted(repository.glob("*.rpm"))
    gpg = shutil.which("gpg") or "gpg"
    sign = ["rpmsign", "--define", "_gpg_name standin", "--define", f"__gpg {gpg}", "--addsign"]
    run(*sign, *rpms, GNUPGHOME=home)
    for place in (repository, base):
        run("createrepo_c", "--quiet", place)
    if int(release) < 10:
        with tempfile.TemporaryDirectory() as name:
            metadata = Path(name) / "modules.yaml"
            metadata.write_text(streams(repository, release))
            run("modifyrepo_c", "--mdtype=modules", metadata, repository / "repodata")
    shutil.copy(folder / "repos/standin.pub", repository / KEYS[release])


def main() -> None:
    """Read the arguments and make the repositories."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("release", nargs="*", default=["9"], choices=sorted(KERNELS))
    arguments = parser.parse_args()
    (arguments.folder / "repos").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as home:
        keys(arguments.folder, home)
        for release in arguments.release:
            make(arguments.folder, release, home)
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)


if __name__ == "__main__":
    main()
