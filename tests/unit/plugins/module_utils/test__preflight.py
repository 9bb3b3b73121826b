# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each thing that forbids to install the driver is told in one sentence, and nothing else is."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _preflight
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import Notice, RefusedError, System
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Change, Installed, Package, Transaction
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles
from ansible_collections.cudahub.gpu.plugins.module_utils._preflight import GIB, MIB, Need, Process, Space
from ansible_collections.cudahub.gpu.tests.unit.plugins import driver_repositories as repositories
from ansible_collections.cudahub.gpu.tests.unit.plugins.driver_repositories import gpus, install, put
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import load_module

KERNEL = "6.1.0-56-amd64"
DEBIAN, UBUNTU = repositories.by("debian", "12"), repositories.by("ubuntu", "24.04")


@pytest.fixture
def files(tmp_path: Path) -> HostFiles:
    return HostFiles(str(tmp_path))


def only(notices: t.Sequence[Notice], code: str) -> str:
    """The sentence of the only notice, which has this code."""
    (notice,) = notices
    assert notice.code == code
    assert notice.message[0].isupper()
    assert notice.message[-1] not in ".:;, "
    assert "\n" not in notice.message
    return notice.message


DEBIAN_RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n# comment\n'


@pytest.mark.parametrize(
    ("text", "distribution", "release"),
    [
        (DEBIAN_RELEASE, "debian", "12"),
        ('ID=debian\nVERSION_ID="13"\n', "debian", "13"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "ubuntu", "24.04"),
        ('ID="rhel"\nVERSION_ID="8.10"\n', "rhel", "8"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n', "rhel", "9"),
        ("ID='almalinux'\nID_LIKE='rhel centos fedora'\nVERSION_ID='10.0'\n", "rhel", "10"),
        ('NAME="CentOS Stream"\nID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="9"\n', "rhel", "9"),
    ],
)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_read_system(
    tmp_path: Path, files: HostFiles, text: str, distribution: t.Any, release: str, machine: str
) -> None:
    put(tmp_path, "/etc/os-release", text)
    assert _preflight.read_system(files, KERNEL, machine) == System(distribution, release, machine, KERNEL)


def test_read_system_from_the_vendors_file(tmp_path: Path, files: HostFiles) -> None:
    put(tmp_path, "/usr/lib/os-release", DEBIAN_RELEASE)
    assert _preflight.read_system(files, KERNEL, "x86_64").release == "12"


@pytest.mark.parametrize(
    ("text", "machine", "code", "words"),
    [
        (
            'PRETTY_NAME="Debian GNU/Linux 11"\nID=debian\nVERSION_ID="11"',
            "x86_64",
            "unknown_os",
            "Debian GNU/Linux 11 is",
        ),
        (
            'PRETTY_NAME="Ubuntu 24.10"\nID=ubuntu\nVERSION_ID="24.10"',
            "x86_64",
            "unknown_os",
            "Ubuntu 24.10 is none of",
        ),
        (
            'NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"',
            "x86_64",
            "unknown_os",
            "Linux Mint",
        ),
        (
            'NAME="Fedora Linux"\nID=fedora\nVERSION_ID=43',
            "x86_64",
            "unknown_os",
            "Fedora Linux is none of the systems",
        ),
        (
            'NAME="Amazon Linux"\nID=amzn\nID_LIKE=fedora\nVERSION_ID=2023',
            "x86_64",
            "unknown_os",
            "Amazon Linux is none",
        ),
        (
            'PRETTY_NAME="Oracle Linux Server 9.6"\nID="ol"\nID_LIKE="fedora"\nVERSION_ID="9.6"',
            "x86_64",
            "unknown_os",
            (
                "Oracle Linux Server 9.6 is none of the systems for which the driver's packages are known: Debian 12 "
                "and 13, Ubuntu 22.04, 24.04 and 26.04 and Enterprise Linux (Red Hat, Rocky Linux, AlmaLinux, CentOS "
                "Stream) 8, 9 and 10"
            ),
        ),
        (
            'NAME="Some Linux"\nID=some\nID_LIKE="rhel fedora"\nVERSION_ID="9.6"',
            "x86_64",
            "unknown_os",
            "Some Linux is none",
        ),
        ("", "x86_64", "unknown_os", "This host, which has no /etc/os-release, is none of the systems"),
        (DEBIAN_RELEASE, "ppc64le", "unknown_architecture", "architecture ppc64le, only for x86_64 and aarch64"),
    ],
)
def test_unknown_system(tmp_path: Path, files: HostFiles, text: str, machine: str, code: str, words: str) -> None:
    put(tmp_path, "/etc/os-release", text)
    with pytest.raises(RefusedError) as refused:
        _preflight.read_system(files, KERNEL, machine)
    assert words in only(refused.value.refusals, code)


def test_unknown_system_and_architecture(files: HostFiles) -> None:
    with pytest.raises(RefusedError) as refused:
        _preflight.read_system(files, KERNEL, "riscv64")
    assert [one.code for one in refused.value.refusals] == ["unknown_os", "unknown_architecture"]


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("/.dockerenv", "", True),
        ("/run/.containerenv", "", True),
        ("/run/systemd/container", "lxc", True),
        ("/proc/1/environ", "HOME=/\0container=docker\0", True),
        ("/proc/1/environ", "HOME=/\0no_container=docker\0", False),
        ("/etc/hostname", "gpu1", False),
    ],
)
def test_in_container(tmp_path: Path, files: HostFiles, path: str, content: str, expected: bool) -> None:
    put(tmp_path, path, content)
    put(tmp_path, "/etc/os-release", DEBIAN_RELEASE)
    assert _preflight.read_system(files, KERNEL, "x86_64").container is expected


@pytest.mark.parametrize(
    ("in_container", "kernel", "refused"),
    [(True, "running", True), (True, "newest", False), (True, KERNEL, False), (False, "running", False)],
)
def test_container(in_container: bool, kernel: str, refused: bool) -> None:
    system = System("debian", "12", "x86_64", KERNEL, container=in_container)
    found = _preflight.container(system, kernel)
    assert bool(found) is refused
    if found:
        assert f"is a container, and the kernel {KERNEL} that runs it belongs to its host" in only(found, "container")


def test_root() -> None:
    assert _preflight.no_root(0) == []
    assert "become: true" in only(_preflight.no_root(1000), "no_root")


SECURE_BOOT = f"{_preflight.EFI_VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("content", "wanted", "refused"),
    [
        (b"\x06\0\0\0\x01", "refuse", True),
        (b"\x06\0\0\0\x01", "enrolled", False),
        (b"\x06\0\0\0\0", "refuse", False),
        (b"\x06\0\0\x01", "refuse", False),
        (b"", "refuse", False),
        (None, "refuse", False),
    ],
)
def test_secure_boot(tmp_path: Path, files: HostFiles, content: bytes | None, wanted: str, refused: bool) -> None:
    put(tmp_path, f"{_preflight.EFI_VARIABLES}/SetupMode-8be4df61", b"\x06\0\0\0\x01")
    if content is not None:
        put(tmp_path, SECURE_BOOT, content)
    found = _preflight.secure_boot(files, wanted)
    assert bool(found) is refused
    if found:
        message = only(found, "secure_boot")
        assert message.startswith("Secure Boot is on")
        assert "nvidia_driver_secure_boot to enrolled" in message


def test_secure_boot_that_can_not_be_read(tmp_path: Path, files: HostFiles) -> None:
    (tmp_path / SECURE_BOOT.lstrip("/")).mkdir(parents=True)
    assert _preflight.secure_boot(files, "refuse") == []


def test_headers_on_offer_or_there_are_no_reason(tmp_path: Path, files: HostFiles) -> None:
    available = {f"linux-headers-{KERNEL}": ("6.1.192-2",)}
    assert _preflight.headers(DEBIAN, [KERNEL], {}, available, files) == []
    installed = install(Package(f"linux-headers-{KERNEL}", "6.1.192-2"))
    assert _preflight.headers(DEBIAN, [KERNEL], installed, {}, files) == []
    put(tmp_path, f"/lib/modules/{KERNEL}/build/Makefile")
    assert _preflight.headers(DEBIAN, [KERNEL], {}, {}, files) == []


@pytest.mark.parametrize(
    ("system", "kernel", "name"),
    [
        (DEBIAN, "6.1.0-9-amd64", "linux-headers-6.1.0-9-amd64"),
        (UBUNTU, "6.8.0-31-generic", "linux-headers-6.8.0-31-generic"),
        (repositories.by("rhel", "9"), "5.14.0-1.el9.x86_64", "kernel-devel-5.14.0-1.el9.x86_64"),
        (
            repositories.by("rhel", "9", "aarch64"),
            "5.14.0-1.el9.aarch64+64k",
            "kernel-64k-devel-5.14.0-1.el9.aarch64",
        ),
    ],
)
def test_missing_headers(files: HostFiles, system: System, kernel: str, name: str) -> None:
    available = {f"linux-headers-{KERNEL}": ("6.1.192-2",), "linux-headers-amd64": ("6.1.192-2",)}
    installed = install(Package("linux-image-amd64", "6.1.192-2"))
    message = only(_preflight.headers(system, [kernel], installed, available, files), "headers_missing")
    assert f"The headers of kernel {kernel}" in message
    assert f"(package {name})" in message


@pytest.mark.parametrize(
    ("system", "installed", "available", "refused"),
    [
        (repositories.by("rhel", "9"), {}, {}, True),
        (repositories.by("rhel", "9"), {}, {"dkms": ("3.2.2-1.el9",)}, False),
        (repositories.by("rhel", "9"), install(Package("dkms", "3.2.2-1.el9")), {}, False),
        (DEBIAN, {}, {}, False),
    ],
)
def test_dkms_of_epel(
    system: System, installed: dict[str, Installed], available: dict[str, tuple[str, ...]], refused: bool
) -> None:
    found = _preflight.dkms_missing(system, installed, available)
    assert bool(found) is refused
    if found:
        assert only(found, "dkms_missing").endswith("enable EPEL")


OLD_DKMS = Package("dkms", "3.0.13-1.el9")
NEEDS_318 = "nothing provides dkms >= 3.1.8 needed by kmod-nvidia-open-dkms-3:575.57.08-1.el9.noarch from cuda-rhel9"


@pytest.mark.parametrize(
    ("installed", "available", "words"),
    [
        ({}, {"dkms": ("3.0.13-1.el9",)}, ["dkms 3.1.8 or newer", "offer only 3.0.13-1.el9", "EPEL"]),
        (install(OLD_DKMS), {}, ["dkms 3.1.8 or newer", "3.0.13-1.el9 is installed", "offer none", "EPEL"]),
        (install(OLD_DKMS), {"dkms": ("3.1.0-1.el9", "3.0.13-1.el9")}, ["is installed", "offer only 3.1.0-1.el9"]),
        (install(OLD_DKMS, held=True), {"dkms": ("3.0.13-1.el9",)}, ["is held", "dnf versionlock delete dkms"]),
    ],
)
def test_dkms_that_is_too_old(
    installed: dict[str, Installed], available: dict[str, tuple[str, ...]], words: list[str]
) -> None:
    found = _preflight.dkms_too_old(repositories.by("rhel", "9"), installed, available, [NEEDS_318, NEEDS_318])
    message = only(found, "dkms_too_old")
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("reason", "version"),
    [
        ("nothing provides dkms >= 3.1.8 needed by x", "3.1.8"),
        ("package kmod-x requires dkms >= 3.1.8, but none of the providers can be installed", "3.1.8"),
        ("nvidia-kernel-open-dkms depends on dkms (>= 3.0.3) but 2.8.7-2 is to be installed", "3.0.3"),
        ("nothing provides kmod-nvidia-open-dkms >= 3:575 needed by x", None),
        ("nothing provides dkms needed by x", None),
    ],
)
def test_which_dkms_is_needed(reason: str, version: str | None) -> None:
    found = _preflight.dkms_too_old(repositories.by("rhel", "9"), {}, {}, [reason])
    assert bool(found) is (version is not None)
    if version:
        assert f"dkms {version} or newer" in found[0].message


@pytest.mark.parametrize("reasons", [[], [NEEDS_318, "libcuda1 is held"]])
def test_dkms_is_not_all_that_is_missing(reasons: list[str]) -> None:
    assert _preflight.dkms_too_old(repositories.by("rhel", "9"), {}, {}, reasons) == []


CACHE = "/var/cache/apt/archives"
TRANSACTION = Transaction(install=(Package("a", "1"),), download_bytes=400 * MIB, disk_bytes=900 * MIB)


@pytest.mark.parametrize(
    ("transaction", "kernels", "initramfs", "expected"),
    [
        (Transaction(), 1, 40 * MIB, {}),
        (TRANSACTION, 1, None, {"/usr": 1050 * MIB, CACHE: 400 * MIB, "/var": GIB}),
        (TRANSACTION, 2, 40 * MIB, {"/usr": 1200 * MIB, CACHE: 400 * MIB, "/var": GIB, "/boot": 41 * MIB}),
        (Transaction(change=(Change("a", "1", "2"),), disk_bytes=-MIB), 1, None, {"/usr": 150 * MIB, "/var": GIB}),
        (Transaction(remove=(Package("a", "1"),)), 1, None, {"/usr": 150 * MIB, "/var": GIB}),
    ],
)
def test_disk_needs(transaction: Transaction, kernels: int, initramfs: int | None, expected: dict[str, int]) -> None:
    needs = _preflight.disk_needs(DEBIAN, transaction, kernels, initramfs)
    assert {need.path: need.size for need in needs} == expected


def test_dnf_has_another_cache() -> None:
    needs = _preflight.disk_needs(repositories.by("rhel", "9"), TRANSACTION, 1, None)
    assert [need.size for need in needs if need.path == "/var/cache/dnf"] == [400 * MIB]


def test_several_broken_packages() -> None:
    broken = [Installed("b", "1", "half-configured", held=False), Installed("a", "1", "half-installed", held=False)]
    assert only(_preflight.broken_packages(broken), "broken_package") == (
        "Packages a (half-installed), b (half-configured) are not installed completely: run dpkg --configure -a and "
        "apt-get install --reinstall for what that leaves, or remove them"
    )


def test_initramfs_size(tmp_path: Path, files: HostFiles) -> None:
    def size(path: str) -> int:
        return Path(path).stat().st_size

    assert _preflight.initramfs_size(files, size) is None
    for name, length in (("initrd.img-6.1.0-50-amd64", 30), ("initramfs-5.14.0.img", 40), ("vmlinuz-6.1.0", 90)):
        put(tmp_path, f"/boot/{name}", bytes(length))
    assert _preflight.initramfs_size(files, size) == 40


NEEDS = (
    Need("/usr", 600 * MIB, "the driver's files"),
    Need("/var", 500 * MIB, "the build"),
    Need("/boot", 41 * MIB + 1, "the new initramfs"),
)


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        ({"/usr": (1, 600), "/var": (2, 500), "/boot": (3, 42)}, []),
        ({"/usr": (1, 1100), "/var": (1, 1100), "/boot": (3, 42)}, []),
        (
            {"/usr": (1, 600), "/var": (2, 500), "/boot": (3, 41)},
            ["The disk of /boot has 41 MiB free, and 42 MiB are needed (the new initramfs 42 MiB): make room there"],
        ),
        (
            {"/usr": (1, 1000), "/var": (1, 1000), "/boot": (3, 42)},
            [
                (
                    "The disk of /usr and /var has 1000 MiB free, and 1100 MiB are needed (the driver's files 600 MiB, "
                    "the build 500 MiB): make room there"
                )
            ],
        ),
        (
            {"/usr": (1, 0), "/var": (2, 12), "/boot": (3, 42)},
            [
                "The disk of /usr has 0 MiB free, and 600 MiB are needed (the driver's files 600 MiB): make room there",
                "The disk of /var has 12 MiB free, and 500 MiB are needed (the build 500 MiB): make room there",
            ],
        ),
    ],
)
def test_disk(free: dict[str, tuple[int, int]], expected: list[str]) -> None:
    def space(path: str) -> Space:
        device, mib = free[path]
        return Space(device, mib * MIB)

    assert _preflight.disk(NEEDS, space) == [Notice("disk", message) for message in expected]


def test_places(tmp_path: Path) -> None:
    def refused(path: str, writable: bool = True) -> list[Notice]:
        return _preflight.places(HostFiles(str(tmp_path)), {path: "the log"}, lambda _path: writable)

    put(tmp_path, "/var/log/file", "")
    assert refused("/var/log/cudahub") == refused("/var/log") == refused("/opt/x") == []
    assert [one.message for one in refused("/var/log/file/below")] == [
        "/var/log/file is no directory, where the log is to be: move it away"
    ]
    assert [one.message for one in refused("/var/log/cudahub", writable=False)] == [
        "/var/log can't be written, where the log is to be: mount its file system for writing"
    ]


class TestRunfile:
    def refusals(
        self, root: Path, owner: str | None = None, installed: dict[str, Installed] | None = None
    ) -> list[Notice]:
        """What is said of the driver on this host, whose files belong to the owner."""
        files, machine = HostFiles(str(root)), HostFiles(str(root / "machine"))
        return _preflight.runfile(files, machine, [KERNEL], installed or {}, lambda _path: owner)

    @pytest.mark.parametrize(
        "path",
        [
            "/usr/bin/nvidia-uninstall",
            "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04",
            "/usr/lib64/libnvidia-ml.so.550.163.01",
            "/usr/local/nvidia/lib64/libnvidia-ml.so.580.159.04",
            f"/lib/modules/{KERNEL}/kernel/drivers/video/nvidia.ko",
            f"/lib/modules/{KERNEL}/updates/nvidia.ko.xz",
        ],
    )
    def test_a_file_of_no_package(self, tmp_path: Path, path: str) -> None:
        put(tmp_path, "/etc/ld.so.conf.d/nvidia.conf", "/usr/local/nvidia/lib64\n")
        put(tmp_path, path)
        message = only(self.refusals(tmp_path), "foreign_runfile")
        assert f"({path} belongs to no package)" in message
        assert "nvidia_driver_source to preinstalled" in message

    def test_a_file_of_a_package(self, tmp_path: Path) -> None:
        put(tmp_path, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04")
        assert self.refusals(tmp_path, "libnvidia-ml1") == []

    @pytest.mark.parametrize(
        "path",
        [
            "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
            "/usr/local/lib/gpu-simulator/libnvidia-ml.so.580.159.04",
            f"/lib/modules/{KERNEL}/kernel/drivers/video/fbdev/nvidia/nvidiafb.ko",
            "/lib/modules/6.1.0-1-amd64/updates/nvidia.ko",
        ],
    )
    def test_other_files(self, tmp_path: Path, path: str) -> None:
        put(tmp_path, "/etc/ld.so.conf.d/gpu-simulator.conf", "/usr/local/lib/gpu-simulator\n")
        put(tmp_path, path)
        assert self.refusals(tmp_path) == []

    def test_a_link_of_the_alternatives(self, tmp_path: Path) -> None:
        directory = put(tmp_path, "/usr/lib/x86_64-linux-gnu/libc.so.6").parent
        (directory / "libnvidia-ml.so.550.163.01").symlink_to("/etc/alternatives/libnvidia-ml")
        assert self.refusals(tmp_path) == []

    def test_a_module_that_dkms_has_built(self, tmp_path: Path) -> None:
        put(tmp_path, f"/lib/modules/{KERNEL}/extra/nvidia.ko.xz")
        put(tmp_path, "/var/lib/dkms/nvidia/580.159.04/source/dkms.conf")
        assert self.refusals(tmp_path) == []

    def test_a_loaded_driver_that_no_package_brought(self, tmp_path: Path) -> None:
        load_module(tmp_path / "machine")
        message = only(self.refusals(tmp_path), "foreign_runfile")
        assert "(580.159.04 is loaded, and no package of a driver is installed)" in message
        others = install(Package("nvidia-container-toolkit", "1.18.1-1"))
        assert self.refusals(tmp_path, installed=others) != []

    def test_a_loaded_driver_of_packages(self, tmp_path: Path) -> None:
        load_module(tmp_path / "machine")
        assert self.refusals(tmp_path, installed=install(Package("nvidia-dkms-580", "580.95.05-0ubuntu1"))) == []


PPA = "http://ppa.example/graphics-drivers/ppa/ubuntu"


class TestForeignPackages:
    available = repositories.nvidia(UBUNTU)

    def refusals(
        self, *packages: Package, origins: t.Mapping[str, str] | None = None, ours: t.Collection[str] = ()
    ) -> list[Notice]:
        """What is said of these installed packages."""

        def origin(package: Package) -> str | None:
            return (origins or {}).get(package.name)

        return _preflight.foreign_packages("nvidia", install(*packages), self.available, origin, ours)

    def test_own_and_others(self) -> None:
        assert (
            self.refusals(
                Package("nvidia-dkms-580", "580.159.04-0ubuntu1"),
                Package("nvidia-container-toolkit", "1.17.0-1"),
                Package("nvidia-cuda-toolkit", "12.4.131~12.4.1-2"),
                Package("bash", "5.2-1"),
            )
            == []
        )

    def test_a_ppa(self) -> None:
        names = ("nvidia-utils-580", "libnvidia-compute-580")
        packages = [Package(name, "580.95.05-0ubuntu0~gpu24.04.1") for name in names]
        message = only(self.refusals(*packages, origins=dict.fromkeys(names, PPA)), "foreign_packages")
        assert f"from {PPA}, that are not of nvidia_driver_source nvidia: libnvidia-compute-580 580.95.05" in message
        assert "nvidia-utils-580 580.95.05-0ubuntu0~gpu24.04.1: remove them first" in message
        assert "nvidia_driver_source to preinstalled" in message

    def test_a_ppa_that_is_no_longer_configured(self) -> None:
        package = Package("nvidia-utils-580", "580.95.05-0ubuntu0~gpu24.04.1")
        assert "from the PPA graphics-drivers" in only(self.refusals(package), "foreign_packages")

    def test_another_source_by_name(self) -> None:
        package = Package("nvidia-utils-580-server", "580.126.09-0ubuntu0.24.04.1")
        assert "are installed, that are not of" in only(self.refusals(package), "foreign_packages")

    def test_modules_that_ubuntu_has_built(self) -> None:
        name = "linux-modules-nvidia-580-server-6.8.0-90-generic"
        assert name in only(self.refusals(Package(name, "6.8.0-90.91")), "foreign_packages")

    def test_a_version_that_is_no_longer_offered(self) -> None:
        assert self.refusals(Package("nvidia-utils-580", "580.65.06-0ubuntu1")) == []

    def test_ours(self) -> None:
        package = Package("nvidia-utils-580-server", "580.126.09-0ubuntu0.24.04.1")
        assert self.refusals(package, ours={package.name}) == []

    def test_removed_ones(self) -> None:
        left = {"nvidia-utils-570": Installed("nvidia-utils-570", "570.1.2-1", "config-files", held=False)}
        assert _preflight.foreign_packages("nvidia", left, self.available, lambda _package: None) == []

    def test_many_are_not_all_named(self) -> None:
        packages = [Package(f"libnvidia-part{number}-570", "570.1.2-1") for number in range(8)]
        assert "libnvidia-part4-570 570.1.2-1 and 3 more: remove" in only(self.refusals(*packages), "foreign_packages")

    def test_one_sentence_for_each_origin(self) -> None:
        packages = [Package("nvidia-utils-570", "570.1.2-1"), Package("akmod-nvidia", "3:580.95.05-1")]
        found = self.refusals(*packages, origins={"nvidia-utils-570": PPA})
        assert [one.code for one in found] == ["foreign_packages"] * 2


def add_process(root: Path, pid: int, name: str, *targets: str) -> None:
    """A process in a made-up /proc."""
    put(root, f"/proc/{pid}/comm", f"{name}\n")
    (root / f"proc/{pid}/fd").mkdir()
    for number, target in enumerate(targets):
        (root / f"proc/{pid}/fd/{number}").symlink_to(target)


def test_gpu_processes(tmp_path: Path, files: HostFiles) -> None:
    add_process(tmp_path, 1, "systemd", "/dev/null", "socket:[1]")
    add_process(tmp_path, 4321, "python3", "/dev/null", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1")
    add_process(tmp_path, 99, "Xorg", "/dev/nvidia-modeset", "/dev/nvidiactl")
    add_process(tmp_path, 77, "nvidia-persistenced"[:15], "/dev/nvidia0")
    add_process(tmp_path, 78, "nv-fabricmanager"[:15], "/dev/nvidia-nvswitchctl")
    add_process(tmp_path, 79, "nv-hostengine", "/dev/nvidia0")
    add_process(tmp_path, 80, "nvidia-powerd", "/dev/nvidiactl")
    put(tmp_path, "/proc/uptime", "1 1")
    assert _preflight.gpu_processes(files) == (
        Process(99, "Xorg", "/dev/nvidia-modeset"),
        Process(4321, "python3", "/dev/nvidia1"),
    )


def test_processes_that_end_meanwhile(tmp_path: Path, files: HostFiles) -> None:
    add_process(tmp_path, 5, "gone", "/dev/nvidia0")
    (tmp_path / "proc/5/comm").unlink()
    put(tmp_path, "/proc/6/stat")
    assert _preflight.gpu_processes(files) == (Process(5, "unknown", "/dev/nvidia0"),)


def test_processes() -> None:
    assert _preflight.processes((), gpus("Hopper", "Hopper")) == []
    found = (Process(99, "Xorg", "/dev/nvidia-modeset"), Process(4321, "python3", "/dev/nvidia1"))
    message = only(_preflight.processes(found, gpus("Hopper")), "processes")
    assert "in use by Xorg (process 99, /dev/nvidia-modeset), python3 (process 4321, /dev/nvidia1): end them" in message
    assert "nvidia_driver_ignore_processes" in message


def test_processes_that_only_nvml_sees() -> None:
    cards = [{**one, "processes": number} for number, one in enumerate(gpus("Hopper", "Hopper", "Hopper"))]
    message = only(_preflight.processes((), cards), "processes")
    assert "in use by 1 process on GPU 00000000:02:00.0, 2 processes on GPU 00000000:03:00.0: end them" in message


def test_key_without_known_fingerprint() -> None:
    system = repositories.by("rhel", "10")
    notice = _preflight.key_fingerprint_missing(system, "https://mirror.example/CDF6BA43.pub")
    message = only([notice], "key_fingerprint_missing")
    assert "https://mirror.example/CDF6BA43.pub for Enterprise Linux 10 on x86_64" in message
    assert message.endswith("set nvidia_driver_repository_key_fingerprint")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("network", "can't be reached (REASON): check network, proxy and address, or set nvidia_driver_repository_url"),
        ("not_found", "does not exist (REASON): check nvidia_driver_repository_url"),
        ("signature", "is not signed by the expected key (REASON): it may have been tampered with"),
        ("checksum", "does not have the expected checksum (REASON): it may have been tampered with"),
        ("package_manager", "can't be used (REASON): look at the reason"),
    ],
)
def test_repository(kind: t.Any, words: str) -> None:
    notice = _preflight.repository(kind, "https://mirror.example/repos/", "REASON")
    assert f"The repository https://mirror.example/repos/ {words}" in only([notice], "repository")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "network",
            "can't be reached (REASON): check network, proxy and address, or set nvidia_driver_repository_key_url",
        ),
        ("not_found", "does not exist (REASON): check nvidia_driver_repository_key_url"),
        ("signature", "is not the expected one (REASON): check nvidia_driver_repository_key_url, and compare"),
        ("checksum", "does not have the expected checksum (REASON): check nvidia_driver_repository_key_url"),
    ],
)
def test_key(kind: t.Any, words: str) -> None:
    url = "https://mirror.example/key.pub"
    notice = _preflight.repository(kind, url, "REASON", key_url=url)
    assert f"The key {url} {words}" in only([notice], "repository")


def test_mirror_of_the_distribution() -> None:
    notice = _preflight.repository("network", "https://mirror.example/debian/", "REASON", "distro")
    assert "nvidia_driver_distro_url" in only([notice], "repository")
