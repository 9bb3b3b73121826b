# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The RAPIDS release and CUDA line for hosts."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.plugin_utils import _rapids
from ansible_collections.cudahub.gpu.plugins.plugin_utils._rapids import RELEASES, Choice, RapidsError, Release, choose

Gpu = dict[str, t.Any]

CUDA = {"470": "11.4", "525": "12.0", "535": "12.2", "550": "12.4", "570": "12.8", "580": "13.0", "595": "13.2"}


def card(name: str, architecture: str | None, capability: str | None, **more: t.Any) -> Gpu:
    return {
        "name": name,
        "architecture": architecture,
        "compute_capability": capability,
        "pci_bus_id": "00000000:3B:00.0",
        "index": 1,
        "kernel_driver": "nvidia",
        "healthy": True,
        **more,
    }


P100 = card("Tesla P100", "Pascal", "6.0")
V100 = card("Tesla V100", "Volta", "7.0")
T4 = card("Tesla T4", "Turing", "7.5")
L4 = card("NVIDIA L4", "Ada Lovelace", "8.9")
B200 = card("NVIDIA B200", "Blackwell", "10.0")
UNSEEN = {"compute_capability": None, "index": None, "healthy": None}


def host(driver: str, *gpus: Gpu, cuda: str = "") -> dict[str, t.Any]:
    return {
        "driver": {
            "state": "ok",
            "version": f"{driver}.65.06",
            "cuda_version": cuda or CUDA[driver],
            "reason": None,
        },
        "gpus": list(gpus),
        "count": len(gpus),
        "simulated": False,
    }


def test_choice() -> None:
    assert choose({"a": host("580", T4, L4)}) == Choice(
        release="26.10",
        cuda_line="13",
        cuda_version=">=13.0,<=13.0",
        cuda_override="13.0",
        python="3.13",
        pip_suffix="cu13",
        cupy="cupy-cuda13x",
    )
    assert choose({"a": host("580", T4), "b": host("550", V100)}, python="3.14") == Choice(
        release="26.10",
        cuda_line="12",
        cuda_version=">=12.2,<=12.4",
        cuda_override="12.4",
        python="3.14",
        pip_suffix="cu12",
        cupy="cupy-cuda12x",
    )


@pytest.mark.parametrize(
    ("hosts", "release", "cuda_version", "override"),
    [
        pytest.param([host("580", V100)], "26.10", ">=12.2,<=12.9", "13.0", id="Volta under a driver for CUDA 13"),
        pytest.param([host("580", V100, B200)], "26.10", ">=12.2,<=12.9", "13.0", id="Volta beside Blackwell"),
        pytest.param([host("580", T4), host("580", V100)], "26.10", ">=12.2,<=12.9", "13.0", id="Volta elsewhere"),
        pytest.param([host("580", T4, cuda="13.9")], "26.10", ">=13.0,<=13.3", "13.9", id="newer than the line"),
        pytest.param([host("580", T4, cuda="14.0")], "26.10", ">=13.0,<=13.3", "14.0", id="newer than all lines"),
        pytest.param([host("595", T4), host("580", L4)], "26.10", ">=13.0,<=13.0", "13.0", id="two drivers for 13"),
        pytest.param([host("595", T4, cuda="13.10")], "26.10", ">=13.0,<=13.3", "13.10", id="13.10 is after 13.3"),
        pytest.param([host("535", T4)], "26.10", ">=12.2,<=12.2", "12.2", id="the oldest driver"),
        pytest.param([host("580", T4), host("535", T4)], "26.10", ">=12.2,<=12.2", "12.2", id="two lines"),
        pytest.param([host("525", T4), host("595", T4)], "25.10", ">=12.0,<=12.0", "12.0", id="an older release"),
        pytest.param([host("570", B200)], "26.10", ">=12.2,<=12.8", "12.8", id="Blackwell under its first driver"),
        pytest.param([host("580", {**T4, "healthy": False})], "26.10", ">=13.0,<=13.0", "13.0", id="not healthy"),
        pytest.param([host("580", T4, {**V100, "healthy": False})], "26.10", ">=12.2,<=12.9", "13.0", id="sick Volta"),
        pytest.param([host("580", {**V100, **UNSEEN})], "26.10", ">=12.2,<=12.9", "13.0", id="by architecture"),
        pytest.param([host("580", {**T4, **UNSEEN})], "26.10", ">=13.0,<=13.0", "13.0", id="by newer architecture"),
        pytest.param(
            [host("580", T4, card("?", None, None))], "26.10", ">=13.0,<=13.0", "13.0", id="unknown doesn't count"
        ),
        pytest.param(
            [host("580", T4, {**P100, **UNSEEN, "kernel_driver": "vfio-pci"})],
            "26.10",
            ">=13.0,<=13.0",
            "13.0",
            id="a virtual machine's doesn't count",
        ),
    ],
)
def test_newest_that_fits(hosts: list[t.Any], release: str, cuda_version: str, override: str) -> None:
    chosen = choose({f"host{number}": facts for number, facts in enumerate(hosts)})
    assert (chosen.release, chosen.cuda_version, chosen.cuda_override) == (release, cuda_version, override)


@pytest.mark.parametrize(
    ("wishes", "release", "cuda_version", "python"),
    [
        ({"cuda": "12"}, "26.10", ">=12.2,<=12.9", "3.13"),
        ({"cuda": "13"}, "26.10", ">=13.0,<=13.2", "3.13"),
        ({"cuda": "12.8"}, "26.10", ">=12.8,<=12.8", "3.13"),
        ({"cuda": "13.1"}, "26.10", ">=13.1,<=13.1", "3.13"),
        ({"cuda": "12.0"}, "25.10", ">=12.0,<=12.0", "3.13"),
        ({"release": "26.02"}, "26.02", ">=13.0,<=13.1", "3.13"),
        ({"release": "25.12"}, "25.12", ">=13.0,<=13.0", "3.13"),
        ({"release": "25.10", "cuda": "12"}, "25.10", ">=12.0,<=12.9", "3.13"),
        ({"python": "3.14"}, "26.10", ">=13.0,<=13.2", "3.14"),
        ({"python": "3.10"}, "26.02", ">=13.0,<=13.1", "3.10"),
    ],
)
def test_what_is_given_is_kept(wishes: dict[str, str], release: str, cuda_version: str, python: str) -> None:
    chosen = choose({"a": host("595", T4)}, **wishes)
    assert (chosen.release, chosen.cuda_version, chosen.python) == (release, cuda_version, python)
    assert chosen.pip_suffix == f"cu{chosen.cuda_line}"
    assert chosen.cupy == f"cupy-cuda{chosen.cuda_line}x"


ABSENT = {"state": "absent", "version": None, "cuda_version": None, "reason": "No driver is there: install one"}
TOO_OLD = "is too old, as RAPIDS ended the support of GPUs older than Volta with 24.02: leave the host out, or take"
NO_FACTS = "host b has no facts of its GPUs and driver: gather them with cudahub.gpu.gpu_facts"


@pytest.mark.parametrize(
    ("facts", "wishes", "message"),
    [
        (host("580"), {}, "host b has no NVIDIA GPU that it can use, and RAPIDS needs one: leave the host out"),
        (host("580", {**T4, "kernel_driver": "vfio-pci"}), {}, "host b has no NVIDIA GPU that it can use"),
        ({**host("580"), "driver": ABSENT}, {}, "host b has no NVIDIA GPU that it can use"),
        (
            {**host("580", T4), "driver": ABSENT},
            {},
            "the driver of host b can't be used (absent): No driver is there: install one",
        ),
        (host("580", T4, P100), {}, f"GPU Tesla P100 00000000:3B:00.0 (Pascal) of host b {TOO_OLD} the GPU out"),
        (host("580", {**P100, **UNSEEN}), {"cuda": "13"}, f"(Pascal) of host b {TOO_OLD} the GPU out"),
        (host("470", card("Quadro M4000", "Maxwell", "5.2", pci_bus_id=None)), {}, "GPU Quadro M4000 1 (Maxwell) of"),
        (host("580", card("Old", None, "6.1", pci_bus_id=None, index=0)), {}, "GPU Old 0 (architecture unk"),
        (
            host("580", V100),
            {"cuda": "13"},
            (
                "GPU Tesla V100 00000000:3B:00.0 (Volta) of host b is older than Turing, with which the support of "
                "CUDA 13 begins: leave the host out, or take the GPU out, or ask for RAPIDS 26.10 with CUDA 12"
            ),
        ),
        (host("580", {**V100, **UNSEEN}), {"cuda": "13.0"}, "(Volta) of host b is older than Turing"),
        (
            host("535", T4),
            {"cuda": "13"},
            (
                "driver 535.65.06 of host b supports CUDA up to 12.2, and RAPIDS 26.10 with CUDA 13 needs driver 580 "
                "or later: update the driver, or ask for RAPIDS 26.10 with CUDA 12"
            ),
        ),
        (
            host("535", T4),
            {"cuda": "13", "release": "26.02"},
            "RAPIDS 26.02 with CUDA 13 needs driver 580 or later: update the driver, or ask for RAPIDS 26.02 with CU",
        ),
        (
            host("550", T4),
            {"cuda": "12.8"},
            (
                "driver 550.65.06 of host b supports CUDA up to 12.4, and RAPIDS 26.10 with CUDA 12.8 needs a driver "
                "for CUDA 12.8 or later: update the driver, or ask for RAPIDS 26.10 with CUDA 12"
            ),
        ),
        (
            host("525", T4),
            {"release": "26.10"},
            (
                "RAPIDS 26.10 with CUDA 12 needs driver 535 or later: update the driver, or ask for RAPIDS 25.10 with "
                "CUDA 12"
            ),
        ),
        (
            host("470", T4),
            {},
            (
                "driver 470.65.06 of host b supports CUDA up to 11.4, and RAPIDS 26.10 with CUDA 12 needs driver 535 "
                "or later: update the driver"
            ),
        ),
        (
            host("550", {**B200, **UNSEEN}),
            {},
            (
                "GPU NVIDIA B200 00000000:3B:00.0 (Blackwell) of host b needs driver branch 570 or later, and the "
                "driver is 550.65.06: update the driver"
            ),
        ),
        (
            host("595", {**V100, **UNSEEN}),
            {},
            (
                "GPU Tesla V100 00000000:3B:00.0 (Volta) of host b needs driver branch 580 or older, and the driver is "
                "595.65.06: install branch 580"
            ),
        ),
        (host("580", card("Odd", None, "nine")), {}, "the compute capability of GPU Odd 00000000:3B:00.0 (architectur"),
        (host("580", T4, cuda="new"), {}, "the CUDA version of the driver of host b is 'new', which is no version"),
        ({**host("580", T4), "driver": {"state": "ok"}}, {}, "the driver of host b is None, which is no version such"),
        ({"gpus": [T4]}, {}, NO_FACTS),
        ({"driver": {"state": "ok"}}, {}, NO_FACTS),
        ({**host("580"), "gpus": ["T4"]}, {}, NO_FACTS),
        ("facts", {}, NO_FACTS),
        (None, {}, NO_FACTS),
    ],
)
def test_refuses_hosts(facts: t.Any, wishes: dict[str, str], message: str) -> None:
    with pytest.raises(RapidsError) as refusal:
        choose({"a": host("580", T4), "b": facts}, **wishes)
    said = str(refusal.value)
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(("driver", "wishes"), [("470", {"cuda": "13"}), ("525", {"python": "3.14"})])
def test_no_other_combination_is_named_where_none_fits(driver: str, wishes: dict[str, str]) -> None:
    with pytest.raises(RapidsError, match=r"update the driver$"):
        choose({"a": host(driver, T4)}, **wishes)


def test_versions_that_yaml_takes_for_numbers() -> None:
    facts = host("580", T4)
    facts["driver"] |= {"version": 580.1, "cuda_version": 13.0}
    assert choose({"a": facts}).cuda_override == "13.0"


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([], "the input is [], which is no dictionary of hosts with the facts of each: gather them with cudahub"),
        ({}, "there is no host, so nothing can be chosen: give the facts of one host at least"),
    ],
)
def test_refuses_input(hosts: t.Any, message: str) -> None:
    with pytest.raises(RapidsError) as refusal:
        choose(hosts)
    assert message in str(refusal.value)


LINES = "give one of 13 (13.0 to 13.3), 12 (12.2 to 12.9) for RAPIDS 26.10"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"release": "24.02"}, "RAPIDS 24.02 is not known: give one of 26.10, 26.02, 25.12, 25.10"),
        ({"release": "26.1"}, "RAPIDS 26.1 is not known: give one of 26.10, 26.02, 25.12, 25.10"),
        (
            {"release": "26.10", "python": "3.10"},
            "there is no Python 3.10 for RAPIDS 26.10: give one of 3.11, 3.12, 3.13, 3.14",
        ),
        (
            {"python": "3.9"},
            "there is no Python 3.9 for RAPIDS 26.10, 26.02, 25.12, 25.10: give one of 3.10, 3.11, 3.12, 3.13, 3.14",
        ),
        ({"cuda": "11"}, f"there is no CUDA 11 for RAPIDS 26.10, 26.02, 25.12, 25.10: {LINES}"),
        ({"cuda": "12.1", "release": "26.10"}, f"there is no CUDA 12.1 for RAPIDS 26.10: {LINES}"),
        ({"cuda": "12.0", "python": "3.14"}, f"there is no CUDA 12.0 for RAPIDS 26.10: {LINES}"),
        ({"cuda": "13.4"}, "there is no CUDA 13.4 for"),
        ({"cuda": "12.8.1"}, "there is no CUDA 12.8.1 for"),
        ({"cuda": "newest"}, "there is no CUDA newest for"),
        ({"cuda": 12}, "cuda is 12, which is no text: write it in quotes"),
        ({"python": 3.13}, "python is 3.13, which is no text: write it in quotes"),
        ({"release": None}, "release is None, which is no text: write it in quotes"),
    ],
)
def test_refuses_wishes(wishes: dict[str, t.Any], message: str) -> None:
    with pytest.raises(RapidsError) as refusal:
        choose({"a": host("580", T4)}, **wishes)
    assert message in str(refusal.value)


@pytest.mark.parametrize(("pythons", "python"), [(("3.12", "3.13", "3.14"), "3.13"), (("3.14", "3.15"), "3.15")])
def test_default_python(pythons: tuple[str, ...], python: str) -> None:
    assert Release("27.02", pythons, ()).python == python


def test_table_goes_from_new_to_old() -> None:
    def number(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    assert [one.version for one in RELEASES] == sorted((one.version for one in RELEASES), key=number, reverse=True)
    for release in RELEASES:
        assert [line.major for line in release.lines] == ["13", "12"]
        assert list(release.pythons) == sorted(release.pythons, key=number)
        for line in release.lines:
            assert line.major == line.last.split(".")[0]
            assert number(line.first) <= number(line.last)
            assert line.architecture in _rapids.CAPABILITIES
