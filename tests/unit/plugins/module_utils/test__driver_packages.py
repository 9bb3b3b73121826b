# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages of the driver on every supported system, for every branch and flavour."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver_packages
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import (
    Current,
    Offer,
    Source,
    System,
    Wish,
    companions,
    current,
    in_family,
    is_family,
    offers,
    superseded,
    upstream,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Installed, Package
from ansible_collections.cudahub.gpu.tests.unit.plugins import driver_repositories as repositories

OPEN, PROPRIETARY = "open", "proprietary"


def offer_of(system: System, version: str, flavour: str, wish: Wish | None = None) -> Offer:
    """What the wish's source offers in this version and flavour, in the first layout that has it."""
    wish = wish or Wish("nvidia")
    available = repositories.available(system, wish.source)
    found = [one for one in offers(system, wish, available) if (one.version, one.kernel_module) == (version, flavour)]
    return found[0]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("580.159.04-1", "580.159.04"),
        ("580.65.06-0ubuntu1", "580.65.06"),
        ("595.71.05-1ubuntu1", "595.71.05"),
        ("3:580.159.04-1.el9", "580.159.04"),
        ("535.309.01-0+deb12u1", "535.309.01"),
        ("550.163.01-4~bpo13+1", "550.163.01"),
        ("580.126.09-0ubuntu0.24.04.1", "580.126.09"),
        ("595-2ubuntu1", "595"),
        ("none", "none"),
    ],
)
def test_upstream(version: str, expected: str) -> None:
    assert upstream(version) == expected


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("nvidia-kernel-dkms", "535.309.01-0+deb12u1"),
        ("nvidia-open-kernel-dkms", "550.163.01-2"),
        ("nvidia-dkms-580-server-open", "580.126.09-0ubuntu0.24.04.1"),
        ("libnvidia-compute", "595.71.05-1ubuntu1"),
        ("libcuda1", "550.163.01-2"),
        ("libcudadebugger1", "550.163.01-2"),
        ("libnvoptix1", "550.163.01-2"),
        ("libegl-nvidia0", "550.163.01-2"),
        ("xserver-xorg-video-nvidia", "550.163.01-2"),
        ("firmware-nvidia-gsp", "550.163.01-2"),
        ("nvidia-cuda-mps", "550.163.01-2"),
        ("nvidia-persistenced", "550.163.01-1"),
        ("nvidia-fabricmanager", "580.159.04-1"),
        ("nvidia-imex", "580.159.04-1"),
        ("cuda-drivers-580", "580.159.04-1"),
        ("kmod-nvidia-open-dkms", "3:580.159.04-1.el9"),
        ("akmod-nvidia", "3:580.95.05-1.el9"),
        ("xorg-x11-drv-nvidia-cuda", "3:580.95.05-1.el9"),
        ("nvidia-driver-pinning-595", "595-2ubuntu1"),
        ("linux-modules-nvidia-580-server-open-6.8.0-90-generic", "6.8.0-90.91"),
    ],
)
def test_in_family(name: str, version: str) -> None:
    assert (is_family(name), in_family(name, version)) == (True, True)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("nvidia-container-toolkit", "1.18.1-1"),
        ("nvidia-container-toolkit-base", "1.18.1-1"),
        ("libnvidia-container1", "1.18.1-1"),
        ("nvidia-docker2", "2.13.0-1"),
        ("nvidia-cuda-toolkit", "12.4.131~12.4.1-2"),
        ("nvidia-cuda-dev", "12.4.127~12.4.1-2"),
        ("nvidia-cudnn", "9.0.0.312~cuda12"),
        ("nvidia-nsight-systems", "2025.1-1"),
        ("libnvidia-egl-wayland1", "1:1.1.18-1"),
        ("libnvidia-ml-dev", "12.4.127~12.4.1-2"),
        ("nvidia-support", "20240109+1"),
        ("nvidia-installer-cleanup", "20240109+1"),
        ("nvidia-kernel-common", "20240109+1"),
        ("nvidia-detect", "550.163.01-2"),
        ("firmware-nvidia-graphics", "20250410-2"),
        ("nvidia-vaapi-driver", "0.0.13-1"),
        ("cuda-toolkit-13-0", "13.0.2-1"),
        ("mir-graphics-drivers-nvidia", "2.20.2-2"),
        ("linux-modules-6.8.0-90-generic", "6.8.0-90.91"),
        ("libcudart12", "12.4.127~12.4.1-2"),
    ],
)
def test_not_in_family(name: str, version: str) -> None:
    assert not in_family(name, version)


def test_candidate_names_have_dkms_only_where_it_is_no_part_of_the_system() -> None:
    assert _driver_packages.candidate_names(repositories.by("rhel", "9")).fullmatch("dkms")
    assert not _driver_packages.candidate_names(repositories.by("debian", "12")).fullmatch("dkms")


@pytest.mark.parametrize(("system", "source"), repositories.SOURCES, ids=repositories.source_name)
def test_candidate_names_have_all_that_is_offered(system: System, source: Source) -> None:
    pattern = _driver_packages.candidate_names(system)
    names = {
        package.name
        for offer in offers(system, Wish(source, display=True), repositories.available(system, source))
        for package in offer.packages
    }
    assert names
    assert [name for name in names if not pattern.fullmatch(name)] == []


NVIDIA = {
    ("debian", "580.159.04", OPEN): "nvidia-kernel-open-dkms nvidia-driver-cuda nvidia-persistenced nvidia-modprobe"
    " nvidia-driver-pinning-580=580-1",
    ("debian", "580.159.04", PROPRIETARY): "nvidia-kernel-dkms nvidia-driver-cuda nvidia-persistenced nvidia-modprobe"
    " nvidia-driver-pinning-580=580-1",
    ("debian", "595.71.05", PROPRIETARY): "nvidia-kernel-dkms nvidia-driver-cuda nvidia-persistenced nvidia-modprobe"
    " nvidia-driver-pinning-595=595-1",
    ("debian", "620.36.02", OPEN): "nvidia-kernel-open-dkms nvidia-driver-cuda nvidia-persistenced nvidia-modprobe"
    " nvidia-driver-pinning-620=620-1",
    ("debian", "535.261.03", PROPRIETARY): "nvidia-kernel-dkms nvidia-driver-cuda nvidia-persistenced nvidia-modprobe",
    ("ubuntu", "580.159.04", OPEN): "nvidia-dkms-580-open libnvidia-compute-580 nvidia-utils-580"
    " nvidia-compute-utils-580 libnvidia-cfg1-580 nvidia-driver-pinning-580=580-2ubuntu1",
    ("ubuntu", "580.159.04", PROPRIETARY): "nvidia-dkms-580 libnvidia-compute-580 nvidia-utils-580"
    " nvidia-compute-utils-580 libnvidia-cfg1-580 nvidia-driver-pinning-580=580-2ubuntu1",
    ("ubuntu", "535.261.03", PROPRIETARY): "nvidia-dkms-535 libnvidia-compute-535 nvidia-utils-535"
    " nvidia-compute-utils-535 libnvidia-cfg1-535",
    ("ubuntu", "595.71.05", PROPRIETARY): "nvidia-dkms libnvidia-compute libnvidia-cfg1 nvidia-persistenced"
    " nvidia-modprobe nvidia-driver-pinning-595=595-2ubuntu1",
    ("ubuntu", "620.36.02", OPEN): "nvidia-dkms-open libnvidia-compute libnvidia-cfg1 nvidia-persistenced"
    " nvidia-modprobe nvidia-driver-pinning-620=620-2ubuntu1",
    ("rhel", "580.159.04", PROPRIETARY): "kmod-nvidia-latest-dkms nvidia-driver-cuda nvidia-persistenced"
    " nvidia-modprobe",
    ("rhel", "620.36.02", OPEN): "kmod-nvidia-open-dkms nvidia-driver-cuda nvidia-persistenced nvidia-modprobe",
}


def whole_version(system: System, version: str) -> str:
    """A driver's version as the packages of NVIDIA's repository for a system carry it."""
    if system.distribution == "rhel":
        return f"3:{version}-1.el{system.release}"
    if system.distribution == "debian":
        return f"{version}-1"
    return f"{version}-1ubuntu1" if int(version[:3]) >= 590 else f"{version}-0ubuntu1"


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
def test_nvidia_repository(system: System) -> None:
    for (distribution, version, flavour), names in NVIDIA.items():
        if distribution == system.distribution:
            words = [word.partition("=")[::2] for word in names.split()]
            expected = {Package(word, full or whole_version(system, version)) for word, full in words}
            assert set(offer_of(system, version, flavour).packages) == expected


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
def test_nvidia_repository_has_every_version_in_both_flavours_until_the_proprietary_one_ends(system: System) -> None:
    found = [(one.version, one.kernel_module) for one in offers(system, Wish("nvidia"), repositories.nvidia(system))]
    versions = repositories.NVIDIA_VERSIONS[::-1]
    assert [version for version, flavour in found if flavour == OPEN] == list(versions)
    assert [version for version, flavour in found if flavour == PROPRIETARY] == list(versions[1:])
    assert found[0] == ("620.36.02", OPEN)


DISPLAY = {
    ("debian", "580.159.04", OPEN): "nvidia-driver",
    ("debian", "620.36.02", OPEN): "nvidia-driver",
    ("ubuntu", "580.159.04", OPEN): "nvidia-open-580",
    ("ubuntu", "580.159.04", PROPRIETARY): "cuda-drivers-580",
    ("ubuntu", "595.71.05", PROPRIETARY): "cuda-drivers",
    ("ubuntu", "620.36.02", OPEN): "nvidia-open",
    ("rhel", "580.159.04", PROPRIETARY): "cuda-drivers",
    ("rhel", "620.36.02", OPEN): "nvidia-open",
}


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
def test_display_adds_one_package(system: System) -> None:
    for (distribution, version, flavour), name in DISPLAY.items():
        if distribution == system.distribution:
            compute = offer_of(system, version, flavour)
            full = offer_of(system, version, flavour, Wish("nvidia", display=True))
            extra = Package(name, whole_version(system, version))
            assert set(full.packages) - set(compute.packages) == {extra}


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
def test_from_615_on_nothing_asks_for_the_metapackage_of_the_proprietary_module(system: System) -> None:
    full = whole_version(system, "620.36.02")
    available = {**repositories.nvidia(system), "cuda-drivers": (full,), "cuda-drivers-620": (full,)}
    found = [one for one in offers(system, Wish("nvidia", display=True), available) if one.branch == "620"]
    assert [one.kernel_module for one in found] == [OPEN]
    assert not any(package.name.startswith("cuda-drivers") for package in found[0].packages)


FABRIC_MANAGERS = {
    ("debian", "580.159.04"): Package("nvidia-fabricmanager", "580.159.04-1"),
    ("debian", "620.36.02"): Package("nvidia-fabricmanager", "620.36.02-1"),
    ("ubuntu", "535.261.03"): Package("nvidia-fabricmanager-535", "535.261.03-0ubuntu1"),
    ("ubuntu", "580.95.05"): Package("nvidia-fabricmanager", "580.95.05-0ubuntu1"),
    ("ubuntu", "620.36.02"): Package("nvidia-fabricmanager", "620.36.02-1ubuntu1"),
    ("rhel", "580.159.04"): Package("nvidia-fabricmanager", "580.159.04-1"),
    ("rhel", "535.261.03"): Package("nvidia-fabric-manager", "535.261.03-1"),
}


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
def test_fabric_manager_is_of_exactly_the_same_version(system: System) -> None:
    for (distribution, version), expected in FABRIC_MANAGERS.items():
        if distribution == system.distribution:
            found = offer_of(system, version, OPEN, Wish("nvidia", fabric_manager=True))
            assert (expected in found.packages, found.lacks) == (True, ())
            assert expected not in offer_of(system, version, OPEN).packages


def test_fabric_manager_of_another_version_is_none() -> None:
    system = repositories.by("debian", "13")
    available = {**repositories.nvidia(system), "nvidia-fabricmanager": ("620.36.01-1", "580.159.04-1")}
    found = offers(system, Wish("nvidia", fabric_manager=True), available)
    assert {one.version for one in found if not one.lacks} == {"580.159.04"}
    lacks = {one.version: one.lacks for one in found}
    assert lacks["620.36.02"] == ("nvidia-fabricmanager only in 620.36.01",)
    assert lacks["595.71.05"] == ("nvidia-fabricmanager in none of its branch",)
    assert not any("fabricmanager" in package.name for one in found if one.lacks for package in one.packages)


def test_the_fabric_manager_that_is_missing_is_named_as_the_repository_names_it() -> None:
    system = repositories.by("rhel", "9")
    available = {**repositories.nvidia(system), "nvidia-fabric-manager": ("535.54.03-1",)}
    found = offers(system, Wish("nvidia", branch="535", fabric_manager=True), available)
    assert {one.lacks for one in found if one.branch == "535"} == {("nvidia-fabric-manager only in 535.54.03",)}


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (Wish("nvidia"), "nvidia-driver-pinning-595=595-2ubuntu1"),
        (Wish("nvidia", version="595.58.03"), "nvidia-driver-pinning-595.58.03=595.58.03-2ubuntu1"),
    ],
)
def test_pinning_package(wish: Wish, expected: str) -> None:
    found = offer_of(repositories.by("ubuntu", "24.04"), "595.58.03", OPEN, wish)
    pinning = [f"{one.name}={one.version}" for one in found.packages if "pinning" in one.name]
    assert pinning == [expected]


def test_pinning_of_the_branch_where_there_is_none_of_the_version() -> None:
    system = repositories.by("debian", "12")
    available = {k: v for k, v in repositories.nvidia(system).items() if k != "nvidia-driver-pinning-580.159.04"}
    found = offers(system, Wish("nvidia", version="580.159.04"), available)
    names = {package.name for one in found if one.version == "580.159.04" for package in one.packages}
    assert {name for name in names if "pinning" in name} == {"nvidia-driver-pinning-580"}


def test_debian_12_has_the_open_module_only_in_an_older_version() -> None:
    system = repositories.by("debian", "12")
    found = offers(system, Wish("distro"), repositories.distro(system))
    assert [(one.version, one.kernel_module) for one in found] == [
        ("535.309.01", PROPRIETARY),
        ("535.261.03", OPEN),
        ("535.261.03", PROPRIETARY),
    ]
    assert set(found[0].packages) == {
        Package("nvidia-kernel-dkms", "535.309.01-0+deb12u1"),
        Package("nvidia-smi", "535.309.01-0+deb12u1"),
        Package("libcuda1", "535.309.01-0+deb12u1"),
        Package("libnvidia-ml1", "535.309.01-0+deb12u1"),
        Package("firmware-nvidia-gsp", "535.309.01-0+deb12u1"),
        Package("nvidia-persistenced", "535.171.04-1~deb12u1"),
        Package("nvidia-modprobe", "535.309.01-0+deb12u1"),
    }


def test_debian_13_has_helpers_in_other_versions() -> None:
    system = repositories.by("debian", "13", "aarch64")
    found = offer_of(system, "550.163.01", OPEN, Wish("distro", display=True))
    assert {(one.name, one.version) for one in found.packages} == {
        ("nvidia-open-kernel-dkms", "550.163.01-2"),
        ("nvidia-smi", "550.163.01-2"),
        ("libcuda1", "550.163.01-2"),
        ("libnvidia-ml1", "550.163.01-2"),
        ("firmware-nvidia-gsp", "550.163.01-2"),
        ("nvidia-persistenced", "550.163.01-1"),
        ("nvidia-modprobe", "570.133.07-1"),
        ("nvidia-driver", "550.163.01-2"),
    }


@pytest.mark.parametrize("release", ["22.04", "24.04", "26.04"])
@pytest.mark.parametrize(
    ("version", "flavour", "display", "expected"),
    [
        ("580.126.09", OPEN, False, "nvidia-dkms-580-server-open nvidia-headless-580-server-open"),
        ("580.126.09", PROPRIETARY, False, "nvidia-dkms-580-server nvidia-headless-580-server"),
        ("580.126.09", OPEN, True, "nvidia-dkms-580-server-open nvidia-driver-580-server-open"),
        ("595.71.05", PROPRIETARY, True, "nvidia-dkms-595-server nvidia-driver-595-server"),
        ("580.159.04", OPEN, False, "nvidia-dkms-580-open nvidia-headless-580-open"),
    ],
)
def test_ubuntus_archive(release: str, version: str, flavour: str, display: bool, expected: str) -> None:
    found = offer_of(repositories.by("ubuntu", release), version, flavour, Wish("distro", display=display))
    suffix = "580" if version == "580.159.04" else f"{version[:3]}-server"
    names = {*expected.split(), f"nvidia-utils-{suffix}", f"nvidia-compute-utils-{suffix}"}
    assert {one.name for one in found.packages} == names
    assert {one.version for one in found.packages} == {f"{version}-0ubuntu0.{release}.1"}


def test_ubuntus_archive_has_a_fabric_manager_for_each_branch() -> None:
    system = repositories.by("ubuntu", "24.04")
    found = offers(system, Wish("distro", fabric_manager=True), repositories.distro(system))
    whole = {one.version for one in found if not one.lacks}
    assert whole == {"535.274.02", "570.211.01", "580.126.09", "595.71.05"}
    assert next(one for one in found if one.version == "580.159.04").lacks == (
        "nvidia-fabricmanager-580 only in 580.126.09",
    )


def test_a_system_without_source_is_offered_nothing() -> None:
    assert offers(repositories.by("rhel", "9"), Wish("distro"), {"nvidia-driver-cuda": ("580.159.04-1",)}) == []


def test_an_incomplete_set_is_no_offer() -> None:
    system = repositories.by("debian", "13")
    available = dict(repositories.nvidia(system))
    available["nvidia-driver-cuda"] = ("580.159.04-1",)
    assert {one.version for one in offers(system, Wish("nvidia"), available)} == {"580.159.04"}
    del available["nvidia-driver-cuda"]
    assert offers(system, Wish("nvidia"), available) == []


def test_a_package_that_leads_over_to_another_branch_is_no_offer() -> None:
    available = {
        "nvidia-dkms-535": ("580.159.04-0ubuntu1",),
        "libnvidia-compute-580": ("580.159.04-0ubuntu1",),
        "nvidia-utils-580": ("580.159.04-0ubuntu1",),
        "nvidia-compute-utils-580": ("580.159.04-0ubuntu1",),
    }
    assert offers(repositories.by("ubuntu", "24.04"), Wish("nvidia"), available) == []


def test_the_newest_revision_of_a_version_is_taken() -> None:
    system = repositories.by("debian", "13")
    names = ("nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "libnvidia-ml1", "firmware-nvidia-gsp")
    available = dict.fromkeys(names, ("550.163.01-4", "550.163.01-2"))
    (found,) = offers(system, Wish("distro"), available)
    assert {one.version for one in found.packages} == {"550.163.01-4"}


@pytest.mark.parametrize(("system", "source"), repositories.SOURCES, ids=repositories.source_name)
@pytest.mark.parametrize("display", [False, True])
def test_what_was_installed_is_recognized(system: System, source: Source, display: bool) -> None:
    found_offers = offers(system, Wish(source, display=display), repositories.available(system, source))
    assert found_offers
    for offer in found_offers:
        found = current(system, source, repositories.install(*offer.packages))
        assert found == Current(
            branch=offer.branch,
            version=offer.version,
            kernel_module=offer.kernel_module,
            display=display,
            fabric_manager=None,
            packages=tuple(sorted(offer.packages, key=lambda package: package.name)),
            layout=offer.layout,
        )


def test_what_is_not_whole_is_not_recognized() -> None:
    system = repositories.by("debian", "13")
    packages = offer_of(system, "595.71.05", OPEN).packages
    without = repositories.install(*(one for one in packages if one.name != "nvidia-driver-cuda"))
    assert current(system, "nvidia", without) is None
    mixed = {**without, **repositories.install(Package("nvidia-driver-cuda", "580.159.04-1"))}
    assert current(system, "nvidia", mixed) is None
    removed = {name: Installed(name, one.version, "config-files", held=False) for name, one in without.items()}
    assert current(system, "nvidia", removed) is None
    assert current(system, "distro", repositories.install(*packages)) is None


def test_two_flavours_at_once_are_no_driver() -> None:
    system = repositories.by("ubuntu", "24.04")
    both = [*offer_of(system, "580.159.04", OPEN).packages, *offer_of(system, "580.159.04", PROPRIETARY).packages]
    assert current(system, "nvidia", repositories.install(*both)) is None


def test_the_fabric_manager_is_recognized() -> None:
    system = repositories.by("debian", "13")
    packages = offer_of(system, "595.71.05", OPEN, Wish("nvidia", fabric_manager=True)).packages
    found = current(system, "nvidia", repositories.install(*packages))
    assert found is not None
    assert found.fabric_manager == "595.71.05"


def changes(
    system: System, before: t.Sequence[Package], offer: Offer, source: str = "nvidia"
) -> tuple[set[str], set[str]]:
    """The names that leave, and those that come along, when the offer is taken."""
    available = repositories.available(system, source)
    installed = repositories.install(*before, Package("nvidia-container-toolkit", "1.18.1-1"), Package("bash", "5.2-1"))
    coming = {one.name for one in companions(offer, installed, available)}
    return set(superseded(offer, installed, available)), coming


def test_branch_change_on_ubuntu_removes_the_old_names() -> None:
    system = repositories.by("ubuntu", "24.04")
    old = offer_of(system, "580.159.04", PROPRIETARY)
    new = offer_of(system, "595.71.05", OPEN)
    assert changes(system, old.packages, new) == ({one.name for one in old.packages}, set())
    back = {one.name for one in new.packages}
    assert changes(system, new.packages, old) == (back, set())


def test_branch_change_on_debian_removes_the_pinning_only() -> None:
    system = repositories.by("debian", "12")
    old = (*offer_of(system, "580.159.04", OPEN).packages, Package("libnvidia-ml1", "580.159.04-1"))
    new = offer_of(system, "595.71.05", OPEN)
    assert changes(system, old, new) == ({"nvidia-driver-pinning-580"}, {"libnvidia-ml1"})


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
@pytest.mark.parametrize(("before", "after"), [(OPEN, PROPRIETARY), (PROPRIETARY, OPEN)])
def test_flavour_switch_removes_the_other_module(system: System, before: str, after: str) -> None:
    old, new = (offer_of(system, "580.159.04", flavour, Wish("nvidia", display=True)) for flavour in (before, after))
    leaving, coming = changes(system, old.packages, new)
    assert leaving == {one.name for one in old.packages} - {one.name for one in new.packages}
    assert coming == set()


def test_fabric_manager_goes_with_the_driver_though_it_is_not_asked_for() -> None:
    system = repositories.by("debian", "13")
    old = (*offer_of(system, "580.95.05", OPEN).packages, Package("nvidia-fabricmanager", "580.95.05-1"))
    assert changes(system, old, offer_of(system, "580.159.04", OPEN)) == (set(), {"nvidia-fabricmanager"})


def test_fabric_manager_that_can_not_go_along_leaves() -> None:
    system = repositories.by("debian", "13")
    installed = repositories.install(Package("nvidia-fabricmanager", "580.95.05-1"))
    available = {**repositories.nvidia(system), "nvidia-fabricmanager": ("580.95.05-1",)}
    assert superseded(offer_of(system, "580.159.04", OPEN), installed, available) == ("nvidia-fabricmanager",)


def test_packages_of_another_source_leave() -> None:
    system = repositories.by("debian", "13")
    before = offer_of(system, "550.163.01", OPEN, Wish("distro")).packages
    leaving, coming = changes(system, before, offer_of(system, "620.36.02", OPEN))
    assert leaving == {"nvidia-open-kernel-dkms", "nvidia-smi"}
    assert coming == {"libcuda1", "libnvidia-ml1", "firmware-nvidia-gsp"}


def test_ubuntus_kinds_of_packages_do_not_mix() -> None:
    system = repositories.by("ubuntu", "24.04")
    wish = Wish("distro")
    plain, server = offer_of(system, "580.159.04", OPEN, wish), offer_of(system, "580.126.09", OPEN, wish)
    assert changes(system, plain.packages, server, "distro")[0] == {one.name for one in plain.packages}
    assert changes(system, server.packages, plain, "distro")[0] == {one.name for one in server.packages}


@pytest.mark.parametrize(
    ("name", "leaves"),
    [
        ("linux-modules-nvidia-580-server-open-6.8.0-90-generic", False),
        ("linux-modules-nvidia-580-server-6.8.0-90-generic", True),
        ("linux-objects-nvidia-535-server-open-generic", True),
    ],
)
def test_modules_that_ubuntu_has_built(name: str, leaves: bool) -> None:
    system = repositories.by("ubuntu", "24.04")
    offer = offer_of(system, "580.126.09", OPEN, Wish("distro"))
    installed = repositories.install(Package(name, "6.8.0-90.91"))
    assert bool(superseded(offer, installed, repositories.distro(system))) is leaves


def test_removed_packages_and_others_stay() -> None:
    system = repositories.by("debian", "13")
    old = {"nvidia-kernel-dkms": Installed("nvidia-kernel-dkms", "580.159.04-1", "config-files", held=False)}
    offer = offer_of(system, "595.71.05", OPEN)
    assert superseded(offer, old, repositories.nvidia(system)) == ()
    assert companions(offer, old, repositories.nvidia(system)) == ()


def test_label() -> None:
    assert offer_of(repositories.by("debian", "13"), "595.71.05", OPEN).label == "595.71.05 with the open kernel module"
    assert str(repositories.by("rhel", "9")) == "Enterprise Linux 9 on x86_64"
