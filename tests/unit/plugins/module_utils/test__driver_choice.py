# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The right driver for every GPU on every supported system, and a sentence where there is none."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver_choice
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_choice import (
    check_wish,
    choose,
    explain,
    misfits,
    support_ended,
    unresolvable,
    ways_out,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import (
    Current,
    Notice,
    Offer,
    RefusedError,
    System,
    Wish,
    current,
    offers,
)
from ansible_collections.cudahub.gpu.tests.unit.plugins import driver_repositories as repositories
from ansible_collections.cudahub.gpu.tests.unit.plugins.driver_repositories import gpus

Answer = tuple[str, str]
"""Version and flavour."""

OPEN, PROPRIETARY = "open", "proprietary"
DEBIAN_12, DEBIAN_13 = repositories.by("debian", "12"), repositories.by("debian", "13")
UBUNTU, EL = repositories.by("ubuntu", "24.04"), repositories.by("rhel", "9")

OLD, NEW = ("Maxwell", "Pascal", "Volta"), ("Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Rubin")
HOSTS: dict[str, tuple[str, ...]] = {
    **{architecture: (architecture,) for architecture in (*OLD, *NEW)},
    "Volta and Hopper": ("Volta", "Hopper"),
    "Maxwell and Ada Lovelace": ("Ada Lovelace", "Maxwell"),
    "Turing and Blackwell": ("Blackwell", "Turing"),
}


def offered(system: System, wish: Wish) -> list[Offer]:
    return offers(system, wish, repositories.available(system, wish.source))


def ranked(
    system: System, wish: Wish, cards: t.Sequence[dict[str, t.Any]], found: Current | None = None
) -> list[Answer]:
    """The offers that fit, best first."""
    return [(one.version, one.kernel_module) for one in choose(system, wish, cards, offered(system, wish), found)]


def refusal(system: System, wish: Wish, cards: t.Sequence[dict[str, t.Any]]) -> Notice:
    """The only refusal."""
    with pytest.raises(RefusedError) as refused:
        choose(system, wish, cards, offered(system, wish), None)
    (notice,) = refused.value.refusals
    return notice


def is_sentence(text: str) -> bool:
    """Begins as one, ends without a full stop (where it is shown adds that), and is one line."""
    return (text[0].isupper() or text.startswith("nvidia_driver_")) and text[-1] not in ".:;, " and "\n" not in text


AUTO = {
    "Maxwell": [("580.159.04", PROPRIETARY)],
    "Pascal": [("580.159.04", PROPRIETARY)],
    "Volta": [("580.159.04", PROPRIETARY)],
    "Turing": [
        ("620.36.02", OPEN),
        ("595.71.05", OPEN),
        ("595.71.05", PROPRIETARY),
        ("580.159.04", OPEN),
        ("580.159.04", PROPRIETARY),
    ],
    "Blackwell": [("620.36.02", OPEN), ("595.71.05", OPEN), ("580.159.04", OPEN)],
}
AUTO.update(dict.fromkeys(("Ampere", "Ada Lovelace", "Hopper"), AUTO["Turing"]))
AUTO.update(dict.fromkeys(("Rubin", "Turing and Blackwell"), AUTO["Blackwell"]))
AUTO.update(dict.fromkeys(("Volta and Hopper", "Maxwell and Ada Lovelace"), AUTO["Volta"]))


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
@pytest.mark.parametrize("host", HOSTS)
def test_nvidia_auto(system: System, host: str) -> None:
    assert ranked(system, Wish("nvidia"), gpus(*HOSTS[host])) == AUTO[host]


NEWEST = {"535": "535.261.03", "580": "580.159.04", "590": "590.48.01", "595": "595.71.05", "620": "620.36.02"}
FIRST_REFUSED = {"Turing": 0, "Ampere": 0, "Ada Lovelace": 0, "Hopper": 0, "Blackwell": 570, "Rubin": 580}


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
@pytest.mark.parametrize("branch", NEWEST)
@pytest.mark.parametrize("architecture", [*OLD, *NEW])
def test_nvidia_pinned_branch(system: System, branch: str, architecture: str) -> None:
    wish = Wish("nvidia", branch=branch)
    if architecture in OLD and int(branch) > 580:
        notice = refusal(system, wish, gpus(architecture))
        assert notice.code == "gpu_too_old"
        assert f"({architecture}) is too old for branch {branch}" in notice.message
        assert "newest that supports it is 580" in notice.message
    elif int(branch) < FIRST_REFUSED.get(architecture, 0):
        assert refusal(system, wish, gpus(architecture)).code == "gpu_too_new"
    else:
        flavours = [PROPRIETARY] if architecture in OLD else [OPEN, PROPRIETARY]
        flavours = [OPEN] if branch == "620" or architecture in ("Blackwell", "Rubin") else flavours
        assert ranked(system, wish, gpus(architecture)) == [(NEWEST[branch], flavour) for flavour in flavours]


@pytest.mark.parametrize("system", repositories.SYSTEMS, ids=repositories.name)
@pytest.mark.parametrize(
    ("wish", "cards", "code", "words"),
    [
        (
            Wish("nvidia", branch="999"),
            ("Hopper",),
            "branch_unavailable",
            "does not offer branch 999 for {system}, but 535, 580, 590, 595 and 620: set nvidia_driver_branch",
        ),
        (
            Wish("nvidia", branch="r580"),
            ("Hopper",),
            "branch_unavailable",
            "nvidia_driver_branch is 'r580', which is no",
        ),
        (
            Wish("nvidia", branch="580", version="580.1.2"),
            ("Hopper",),
            "version_unavailable",
            "does not offer driver 580.1.2 for {system}, but of its branch 580.159.04 and 580.95.05: set",
        ),
        (Wish("nvidia", version="999.1"), ("Hopper",), "branch_unavailable", "does not offer branch 999"),
        (Wish("nvidia", version="580"), ("Hopper",), "version_unavailable", "write it whole, for example 580.159.04"),
        (
            Wish("nvidia", kernel_module=OPEN),
            ("Volta",),
            "module_not_for_gpu",
            "GPU Tesla V100 00000000:01:00.0 (Volta) is older than Turing, which the open kernel module needs",
        ),
        (
            Wish("nvidia", kernel_module=PROPRIETARY),
            ("Blackwell",),
            "module_not_for_gpu",
            "The proprietary kernel module does not support GPU B200 00000000:01:00.0 (Blackwell): set",
        ),
        (
            Wish("nvidia", branch="620", kernel_module=PROPRIETARY),
            ("Hopper",),
            "module_not_for_gpu",
            "Branch 620 has no proprietary kernel module, the last supported one that has is 595: set",
        ),
        (
            Wish("nvidia", version="620.36.02", kernel_module=PROPRIETARY),
            ("Hopper",),
            "module_not_for_gpu",
            "Branch 620 has no proprietary kernel module",
        ),
        (
            Wish("nvidia", branch="470", kernel_module=OPEN),
            ("Ampere",),
            "module_not_for_gpu",
            "Branch 470 has no open kernel module, the first that has is 515",
        ),
        (
            Wish("nvidia"),
            ("Volta", "Blackwell"),
            "mixed_gpus",
            (
                "GPU Tesla V100 00000000:01:00.0 (Volta) needs the proprietary kernel module and "
                "GPU B200 00000000:02:00.0 (Blackwell) the open one"
            ),
        ),
        (Wish("nvidia"), ("Kepler", "Hopper"), "mixed_gpus", "up to branch 470 and GPU H100 00000000:02:00.0 (Hopper)"),
        (
            Wish("nvidia"),
            ("Kepler",),
            "gpu_too_old",
            "(Kepler) is supported up to branch 470, and nvidia_driver_source",
        ),
        (Wish("nvidia"), (), "no_gpu", "has no NVIDIA GPU by which a driver could be chosen"),
        (Wish("nvidia"), ("Hopper", None), "unknown_gpu", "GPU Card None 00000000:02:00.0 (architecture unknown)"),
    ],
)
def test_refused(system: System, wish: Wish, cards: tuple[str | None, ...], code: str, words: str) -> None:
    notice = refusal(system, wish, gpus(*cards))
    assert notice.code == code
    assert words.format(system=system) in notice.message
    assert is_sentence(notice.message)


def test_all_refusals_at_once() -> None:
    wish = Wish("distro", branch="595", kernel_module=OPEN, fabric_manager=True)
    found = check_wish(DEBIAN_13, wish, gpus("Volta"))
    assert [one.code for one in found] == ["fabric_manager_unavailable", "gpu_too_old", "module_not_for_gpu"]
    with pytest.raises(
        RefusedError, match=r"no fabric manager.*; GPU Tesla V100 .* too old.*; GPU Tesla V100"
    ) as refused:
        choose(DEBIAN_13, wish, gpus("Volta"), [], None)
    assert list(refused.value.refusals) == found


@pytest.mark.parametrize("cards", [gpus(), gpus(None), gpus("Hopper", None)])
def test_who_says_branch_and_module_needs_no_known_gpu(cards: list[dict[str, t.Any]]) -> None:
    assert ranked(UBUNTU, Wish("nvidia", branch="595", kernel_module=OPEN), cards) == [("595.71.05", OPEN)]


def test_grace_hopper_needs_the_open_module() -> None:
    system = repositories.by("ubuntu", "24.04", "aarch64")
    cards = [{**gpus("Hopper")[0], "name": "NVIDIA GH200 480GB"}]
    assert {flavour for _version, flavour in ranked(system, Wish("nvidia"), cards)} == {OPEN}
    assert refusal(system, Wish("nvidia", kernel_module=PROPRIETARY), cards).code == "module_not_for_gpu"


@pytest.mark.parametrize("release", ["8", "9", "10"])
def test_enterprise_linux_has_no_driver_of_its_own(release: str) -> None:
    notice = refusal_of(check_wish(repositories.by("rhel", release), Wish("distro"), gpus("Hopper")))
    assert notice.code == "no_driver_in_source"
    assert notice.message.startswith(f"Enterprise Linux {release} has no NVIDIA driver of its own: set")


def refusal_of(notices: list[Notice]) -> Notice:
    (notice,) = notices
    return notice


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("distro", "and that it has the components contrib, non-free and non-free-firmware, or choose another"),
        ("nvidia", "offers no complete driver for Debian 13 on x86_64: look at the address of its repository, or"),
    ],
)
def test_nothing_on_offer(source: t.Any, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        choose(DEBIAN_13, Wish(source), gpus("Hopper"), [], None)
    assert [one.code for one in refused.value.refusals] == ["no_driver_in_source"]
    assert words in str(refused.value)


DISTRO = {
    ("debian", "12"): {
        **{key: [("535.309.01", PROPRIETARY)] for key in OLD},
        **{key: [("535.309.01", PROPRIETARY), ("535.261.03", OPEN)] for key in ("Turing", "Hopper")},
        "Blackwell": "gpu_too_new",
    },
    ("debian", "13"): {
        **{key: [("550.163.01", PROPRIETARY)] for key in OLD},
        **{key: [("550.163.01", OPEN), ("550.163.01", PROPRIETARY)] for key in ("Turing", "Hopper")},
        "Blackwell": "gpu_too_new",
    },
    "ubuntu": {
        **{key: [("580.126.09", PROPRIETARY)] for key in OLD},
        **{
            key: [("595.71.05", OPEN), ("595.71.05", PROPRIETARY), ("580.126.09", OPEN), ("580.126.09", PROPRIETARY)]
            for key in ("Turing", "Hopper")
        },
        "Blackwell": [("595.71.05", OPEN), ("580.126.09", OPEN)],
    },
}


@pytest.mark.parametrize(
    "system", [one for one in repositories.SYSTEMS if one.distribution != "rhel"], ids=repositories.name
)
def test_distro_auto(system: System) -> None:
    table = DISTRO["ubuntu" if system.distribution == "ubuntu" else (system.distribution, system.release)]
    for architecture, expected in table.items():
        if isinstance(expected, str):
            notice = refusal(system, Wish("distro"), gpus(architecture))
            assert notice.code == expected
            assert "from branch 570 on, and nvidia_driver_source distro offers" in notice.message
            assert notice.message.endswith("set nvidia_driver_source to nvidia")
        else:
            assert ranked(system, Wish("distro"), gpus(architecture)) == expected


def test_unsupported_branches_come_only_where_there_is_no_other() -> None:
    available = repositories.nvidia(DEBIAN_13, ("550.163.01", "570.211.01", "590.48.01"))
    found = choose(DEBIAN_13, Wish("nvidia"), gpus("Hopper"), offers(DEBIAN_13, Wish("nvidia"), available), None)
    assert [one.version for one in found] == ["590.48.01", "590.48.01"]


def test_module_that_the_branch_does_not_have() -> None:
    wish = Wish("distro", kernel_module=OPEN)
    available = {name: versions for name, versions in repositories.distro(DEBIAN_13).items() if "open" not in name}
    with pytest.raises(
        RefusedError, match="has no open kernel module for Debian 13 on x86_64 in branch 550"
    ) as refused:
        choose(DEBIAN_13, wish, gpus("Hopper"), offers(DEBIAN_13, wish, available), None)
    assert refused.value.refusals[0].code == "module_unavailable"
    assert "leave nvidia_driver_kernel_module at auto" in str(refused.value)


def test_module_that_the_gpus_need_is_not_there() -> None:
    available = {
        name: versions for name, versions in repositories.distro(DEBIAN_13).items() if "kernel-dkms" not in name
    }
    available["nvidia-open-kernel-dkms"] = ("550.163.01-2",)
    with pytest.raises(RefusedError, match=r"has no proprietary kernel module .* in branch 550: choose another source"):
        choose(DEBIAN_13, Wish("distro"), gpus("Volta"), offers(DEBIAN_13, Wish("distro"), available), None)


def test_versions_are_compared_as_versions() -> None:
    available = repositories.nvidia(DEBIAN_13, ("580.9.1", "580.10.2", "580.100.3"))
    assert offers(DEBIAN_13, Wish("nvidia"), available)[0].version == "580.100.3"
    found = choose(DEBIAN_13, Wish("nvidia"), gpus("Volta"), offers(DEBIAN_13, Wish("nvidia"), available), None)
    assert found[0].version == "580.100.3"


@pytest.mark.parametrize("version", ["580.95.05", "595.58.03"])
def test_pinned_version(version: str) -> None:
    wish = Wish("nvidia", version=version)
    assert ranked(DEBIAN_12, wish, gpus("Hopper")) == [(version, OPEN), (version, PROPRIETARY)]


class TestFabricManager:
    wish = Wish("nvidia", fabric_manager=True)

    def test_a_driver_without_is_passed_over(self) -> None:
        versions = ("595.71.05-1ubuntu1", "595.58.03-1ubuntu1")
        available = {**repositories.nvidia(UBUNTU), "nvidia-fabricmanager": versions}
        found = choose(UBUNTU, self.wish, gpus("Hopper"), offers(UBUNTU, self.wish, available), None)
        assert {one.version for one in found} == {"595.71.05"}

    def test_none_in_the_version_of_the_branch(self) -> None:
        available = {**repositories.nvidia(UBUNTU), "nvidia-fabricmanager": ("620.36.01-1ubuntu1",)}
        wish = replace(self.wish, branch="620")
        with pytest.raises(RefusedError) as refused:
            choose(UBUNTU, wish, gpus("Hopper"), offers(UBUNTU, wish, available), None)
        (notice,) = refused.value.refusals
        assert notice.code == "fabric_manager_unavailable"
        assert "has driver 620.36.02, but nvidia-fabricmanager only in 620.36.01, and without one" in notice.message

    def test_debian_has_none_of_its_own(self) -> None:
        notice = refusal_of(check_wish(DEBIAN_12, replace(self.wish, source="distro"), gpus("Hopper")))
        assert notice.code == "fabric_manager_unavailable"
        assert "set nvidia_driver_source to nvidia, or nvidia_driver_fabric_manager to never" in notice.message


def installed(system: System, version: str, flavour: str, wish: Wish | None = None) -> Current:
    """A driver of the wish's source, as it is once it is installed."""
    wish = wish or Wish("nvidia")
    offer = next(one for one in offered(system, wish) if (one.version, one.kernel_module) == (version, flavour))
    found = current(system, wish.source, repositories.install(*offer.packages))
    assert found is not None
    return found


class TestInstalledDriver:
    @pytest.mark.parametrize("version", ["580.95.05", "590.48.01", "595.58.03"])
    def test_stays(self, version: str) -> None:
        found = installed(DEBIAN_12, version, PROPRIETARY)
        assert misfits(found, Wish("nvidia"), gpus("Hopper")) == []
        assert ranked(DEBIAN_12, Wish("nvidia", display=True), gpus("Hopper"), found)[0] == (version, PROPRIETARY)

    @pytest.mark.parametrize(
        ("version", "wish", "cards", "expected"),
        [
            ("580.95.05", Wish("nvidia", upgrade=True), "Hopper", "620.36.02"),
            ("580.95.05", Wish("nvidia", upgrade=True), "Volta", "580.159.04"),
            ("580.95.05", Wish("nvidia", branch="580", upgrade=True), "Hopper", "580.159.04"),
            ("580.95.05", Wish("nvidia", version="580.95.05", upgrade=True), "Hopper", "580.95.05"),
            ("590.48.01", Wish("nvidia", upgrade=True), "Hopper", "620.36.02"),
        ],
    )
    def test_upgraded(self, version: str, wish: Wish, cards: str, expected: str) -> None:
        found = installed(DEBIAN_12, version, PROPRIETARY)
        assert ranked(DEBIAN_12, wish, gpus(cards), found)[0][0] == expected

    def test_an_upgrade_stays_where_nothing_newer_is_supported(self) -> None:
        available = repositories.nvidia(DEBIAN_12, ("580.159.04", "590.48.01"))
        found = installed(DEBIAN_12, "590.48.01", OPEN)
        wish = Wish("nvidia", upgrade=True)
        ranking = choose(DEBIAN_12, wish, gpus("Hopper"), offers(DEBIAN_12, wish, available), found)
        assert [one.branch for one in ranking] == ["590", "590", "580", "580"]

    def test_an_upgrade_falls_back_to_its_own_branch(self) -> None:
        found = installed(DEBIAN_12, "580.159.04", OPEN)
        wish = Wish("nvidia", upgrade=True)
        versions = [version for version, _flavour in ranked(DEBIAN_12, wish, gpus("Hopper"), found)]
        assert list(dict.fromkeys(versions)) == ["620.36.02", "595.71.05", "580.159.04"]

    def test_leaves_a_branch_that_does_not_support_the_gpus(self) -> None:
        found = installed(DEBIAN_12, "595.71.05", OPEN)
        assert misfits(found, Wish("nvidia"), gpus("Volta")) == [
            "branch 595, which is installed, does not support GPU Tesla V100 00000000:01:00.0 (Volta)",
            "the open kernel module, which is installed, is not for these GPUs",
        ]
        assert ranked(DEBIAN_12, Wish("nvidia"), gpus("Volta"), found) == [("580.159.04", PROPRIETARY)]

    def test_keeps_the_kind_of_ubuntus_packages(self) -> None:
        found = installed(UBUNTU, "580.159.04", OPEN, Wish("distro"))
        assert ranked(UBUNTU, Wish("distro", display=True), gpus("Hopper"), found)[0] == ("580.159.04", OPEN)

    def test_that_is_no_longer_offered_is_followed_by_the_newest_of_its_branch(self) -> None:
        found = replace(installed(DEBIAN_12, "580.95.05", OPEN), version="580.65.06")
        assert ranked(DEBIAN_12, Wish("nvidia", display=True), gpus("Hopper"), found)[0] == ("580.159.04", OPEN)

    @pytest.mark.parametrize(
        ("wish", "expected"),
        [
            (Wish("nvidia"), []),
            (Wish("nvidia", branch="580"), []),
            (Wish("nvidia", version="580.159.4", kernel_module=OPEN), []),
            (Wish("nvidia", branch="595"), ["branch 595 is asked for, and 580 is installed"]),
            (Wish("nvidia", version="595.71.05"), ["branch 595 is asked for, and 580 is installed"]),
            (Wish("nvidia", version="580.95.05"), ["version 580.95.05 is asked for, and 580.159.04 is installed"]),
            (
                Wish("nvidia", kernel_module=PROPRIETARY),
                ["the proprietary kernel module is asked for, and the other one is installed"],
            ),
            (Wish("nvidia", display=True), ["the packages for displays are asked for and missing"]),
            (Wish("nvidia", fabric_manager=True), ["the fabric manager is missing"]),
        ],
    )
    def test_misfits(self, wish: Wish, expected: list[str]) -> None:
        assert misfits(installed(DEBIAN_12, "580.159.04", OPEN), wish, gpus("Hopper")) == expected

    def test_with_a_fabric_manager_of_another_version(self) -> None:
        found = replace(installed(DEBIAN_12, "580.159.04", OPEN), fabric_manager="580.95.05")
        expected = ["the fabric manager is 580.95.05, and the driver 580.159.04"]
        assert misfits(found, Wish("nvidia"), gpus("Hopper")) == expected

    def test_too_old_for_a_new_gpu(self) -> None:
        found = installed(DEBIAN_12, "535.261.03", OPEN)
        assert "does not support GPU B200" in misfits(found, Wish("nvidia"), gpus("Turing", "Blackwell"))[0]


def why(
    system: System, wish: Wish, cards: t.Sequence[dict[str, t.Any]], found: Current | None = None
) -> tuple[str, ...]:
    """Why the best offer is taken."""
    ranking = choose(system, wish, cards, offered(system, wish), found)
    return explain(wish, cards, offered(system, wish), found, ranking[0]).why


@pytest.mark.parametrize(
    ("system", "wish", "cards", "expected"),
    [
        (
            UBUNTU,
            Wish("nvidia"),
            ("Hopper",),
            (
                "Branch 620 (long-term, supported until 2029-09) is the newest supported one on offer",
                "Version 620.36.02 is the newest of its branch on offer",
                "All GPUs can use the open kernel module, which NVIDIA recommends for them",
            ),
        ),
        (
            UBUNTU,
            Wish("nvidia"),
            ("Hopper", "Volta"),
            (
                (
                    "Branch 580 (long-term, supported until 2028-06) is the newest supported one on offer that "
                    "GPU Tesla V100 00000000:02:00.0 (Volta) can use"
                ),
                "Version 580.159.04 is the newest of its branch on offer",
                "GPU Tesla V100 00000000:02:00.0 (Volta) needs the proprietary kernel module",
            ),
        ),
        (
            DEBIAN_12,
            Wish("distro"),
            ("Hopper",),
            (
                "Branch 535 is the newest one on offer",
                "Version 535.309.01 is the newest of its branch on offer",
                "The open kernel module is there only in the older version 535.261.03, so it is the proprietary one",
            ),
        ),
        (
            DEBIAN_12,
            Wish("nvidia", branch="595", version="595.58.03", kernel_module=PROPRIETARY, fabric_manager=True),
            ("Hopper",),
            (
                "Branch 595 (production, supported until 2027-03) is asked for",
                "Version 595.58.03 is asked for",
                "The proprietary kernel module is asked for",
                "The fabric manager comes along in version 595.58.03: the host has an NVSwitch or asks for it",
            ),
        ),
        (
            EL,
            Wish("nvidia"),
            ("Blackwell",),
            (
                "Branch 620 (long-term, supported until 2029-09) is the newest supported one on offer",
                "Version 620.36.02 is the newest of its branch on offer",
                "GPU B200 00000000:01:00.0 (Blackwell) needs the open kernel module",
            ),
        ),
    ],
)
def test_why(system: System, wish: Wish, cards: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert why(system, wish, gpus(*cards)) == expected


def test_why_an_installed_driver_stays() -> None:
    found = installed(DEBIAN_12, "580.95.05", PROPRIETARY)
    assert why(DEBIAN_12, Wish("nvidia", display=True), gpus("Hopper"), found) == (
        "Branch 580 (long-term, supported until 2028-06) is installed and supports all GPUs",
        "Version 580.95.05 is installed and stays",
        "The proprietary kernel module is installed and stays",
    )


def test_why_an_upgrade_leaves_the_branch() -> None:
    found = installed(DEBIAN_12, "580.159.04", OPEN)
    assert why(DEBIAN_12, Wish("nvidia", upgrade=True), gpus("Hopper"), found)[0] == (
        "Branch 620 (long-term, supported until 2029-09) is the newest supported one on offer, to which the upgrade "
        "goes from branch 580"
    )
    assert why(DEBIAN_12, Wish("nvidia", upgrade=True), gpus("Volta"), replace(found, kernel_module="proprietary"))[
        0
    ] == (
        "Branch 580 (long-term, supported until 2028-06) is the newest supported one on offer that "
        "GPU Tesla V100 00000000:01:00.0 (Volta) can use"
    )


def test_why_another_flavour_was_taken() -> None:
    all_offers = offered(DEBIAN_13, Wish("distro"))
    first, second = choose(DEBIAN_13, Wish("distro"), gpus("Hopper"), all_offers, None)
    found = explain(Wish("distro"), gpus("Hopper"), all_offers, None, second, [(first, "unmet dependencies")])
    assert found.why[2:] == (
        "The open kernel module can't be installed, so it is the proprietary one",
        "Driver 550.163.01 with the open kernel module can't be installed: unmet dependencies",
    )


def test_why_there_is_only_the_proprietary_module() -> None:
    table = repositories.distro(DEBIAN_13)
    all_offers = offers(DEBIAN_13, Wish("distro"), {name: one for name, one in table.items() if "open" not in name})
    found = explain(Wish("distro"), gpus("Hopper"), all_offers, None, all_offers[0])
    assert found.why[2] == "The source has the proprietary kernel module only in this branch"


def test_why_it_is_not_the_newest_of_the_branch() -> None:
    all_offers = offered(DEBIAN_12, Wish("distro"))
    taken = next(one for one in all_offers if one.kernel_module == OPEN)
    found = explain(Wish("distro", kernel_module=OPEN), gpus("Hopper"), all_offers, None, taken)
    assert found.why[1] == "Version 535.261.03 is the newest of its branch that fits, though there is 535.309.01"


@pytest.mark.parametrize(
    ("system", "wish", "cards", "expected"),
    [
        (UBUNTU, Wish("nvidia"), ("Hopper",), None),
        (
            DEBIAN_12,
            Wish("distro"),
            ("Hopper",),
            (
                "NVIDIA's support of driver branch 535 ended in 2026-06, so it gets no more fixes: "
                "nvidia_driver_source nvidia offers 580, 595 and 620"
            ),
        ),
        (
            DEBIAN_13,
            Wish("distro"),
            ("Volta",),
            (
                "NVIDIA's support of driver branch 550 has ended, so it gets no more fixes: "
                "nvidia_driver_source nvidia offers 580"
            ),
        ),
        (
            UBUNTU,
            Wish("nvidia", branch="590"),
            ("Hopper",),
            (
                "NVIDIA's support of driver branch 590 has ended, so it gets no more fixes: "
                "this source also offers 580, 595 and 620 (nvidia_driver_branch)"
            ),
        ),
    ],
)
def test_warning_of_an_unsupported_branch(
    system: System, wish: Wish, cards: tuple[str, ...], expected: str | None
) -> None:
    all_offers = offered(system, wish)
    taken = choose(system, wish, gpus(*cards), all_offers, None)[0]
    found = explain(wish, gpus(*cards), all_offers, None, taken).warnings
    assert found == (() if expected is None else (Notice("branch_unsupported", expected),))


def test_no_warning_of_a_branch_that_is_newer_than_all_that_are_known() -> None:
    wish, cards = Wish("nvidia", branch="640"), gpus("Hopper")
    all_offers = offers(UBUNTU, wish, repositories.nvidia(UBUNTU, ("620.36.02", "640.10.01")))
    (taken,) = choose(UBUNTU, wish, cards, all_offers, None)
    assert taken.version == "640.10.01"
    assert explain(wish, cards, all_offers, None, taken).warnings == ()
    assert support_ended(wish, cards, "640", None) == ()


def test_warning_where_there_is_no_supported_branch() -> None:
    available = repositories.nvidia(UBUNTU, ("470.256.02",))
    all_offers = offers(UBUNTU, Wish("nvidia"), available)
    taken = choose(UBUNTU, Wish("nvidia"), gpus("Kepler"), all_offers, None)[0]
    assert taken.kernel_module == PROPRIETARY
    (warning,) = explain(Wish("nvidia"), gpus("Kepler"), all_offers, None, taken).warnings
    assert warning.message.endswith("this source has no supported one for these GPUs")


def test_unresolvable() -> None:
    first, second = offered(DEBIAN_13, Wish("distro"))
    notice = unresolvable(Wish("distro"), [(first, "libcuda1 is held"), (second, "libc6 is too old")])
    assert notice.code == "unresolvable"
    assert "(550.163.01 with the open kernel module: libcuda1 is held; 550.163.01 with the prop" in notice.message
    assert is_sentence(notice.message)


OLDER_KERNEL = "boot a kernel older than 6.12.118+deb13-amd64 and run this again"


@pytest.mark.parametrize(
    ("system", "wish", "cards", "expected"),
    [
        (
            DEBIAN_13,
            Wish("distro"),
            ("Hopper",),
            (
                "set nvidia_driver_kernel_module: proprietary",
                "set nvidia_driver_source: nvidia, which has newer versions",
                OLDER_KERNEL,
            ),
        ),
        (
            DEBIAN_13,
            Wish("distro"),
            ("Volta",),
            ("set nvidia_driver_source: nvidia, which has newer versions", OLDER_KERNEL),
        ),
        (
            DEBIAN_13,
            Wish("nvidia", branch="590"),
            ("Hopper",),
            ("set nvidia_driver_kernel_module: proprietary", "set nvidia_driver_branch: 595 or 620", OLDER_KERNEL),
        ),
        (
            DEBIAN_13,
            Wish("nvidia", branch="590"),
            ("Blackwell",),
            ("set nvidia_driver_branch: 595 or 620", OLDER_KERNEL),
        ),
        (DEBIAN_13, Wish("nvidia"), ("Hopper",), (OLDER_KERNEL,)),
        (
            DEBIAN_13,
            Wish("nvidia", branch="595", kernel_module=PROPRIETARY),
            ("Hopper",),
            ("set nvidia_driver_kernel_module: open", "set nvidia_driver_branch: 620", OLDER_KERNEL),
        ),
    ],
)
def test_ways_out_of_a_failed_build(
    system: System, wish: Wish, cards: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    all_offers = offered(system, wish)
    failed = choose(system, wish, gpus(*cards), all_offers, None)[0]
    assert ways_out(wish, gpus(*cards), all_offers, failed, system.kernel) == expected


def test_last_supported_branch_with_a_proprietary_module() -> None:
    assert _driver_choice._last_with_proprietary() == "595"
