# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Specs of conda packages: which packages they take. What is expected was compared with rattler 0.28."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils._conda_spec import (
    Package,
    SpecError,
    channel_name,
    parse_spec,
    parse_version,
    parse_version_spec,
)

ORDER = [
    ["0.4", "0.4.0"],
    ["0.4.1.rc"],
    ["0.4.1"],
    ["0.5a1"],
    ["0.5b3"],
    ["0.5C1", "0.5c1"],
    ["0.5"],
    ["0.9.6"],
    ["0.960923"],
    ["1.0dev"],
    ["1.0a1"],
    ["1.0rc1"],
    ["1.0", "1", "1.0.0"],
    ["1.0.post1"],
    ["1.0.1dev1"],
    ["1.0.1_"],
    ["1.0.1a"],
    ["1.0.1"],
    ["1.0post1"],
    ["1.1.dev1", "1.1.0dev1"],
    ["1.1"],
    ["1.1.1"],
    ["1.2"],
    ["1.2.3+local.1"],
    ["1.2-3", "1_2_3", "1.2.3"],
    ["1.2.3+1"],
    ["26.10.00a3"],
    ["26.10"],
    ["1996.07.12"],
    ["2024a"],
    ["2024b"],
    ["1!0.4.1"],
    ["1!3.1.1.6"],
    ["2!0.4.1"],
]
VERSIONS = [
    "1.25.0",
    "1.26dev",
    "1.26",
    "1.26.0",
    "1.26.4",
    "1.26.4.post1",
    "1.27.1",
    "1.260",
    "2.0.0rc1",
    "2.0.0",
    "3.1",
]
BELOW = ["1.26dev", "1.26", "1.26.0", "1.26.4", "1.26.4.post1"]
"""Those of VERSIONS that begin with 1.26."""

FORGE = "https://conda.anaconda.org/conda-forge/linux-64"


def numpy(version: str = "1.26.4", build: str = "py312_0", number: int = 0) -> Package:
    return Package("numpy", version, build, number, FORGE, "linux-64", "0" * 32, "1" * 64)


def test_order_of_versions() -> None:
    for equal in ORDER:
        assert len({parse_version(text) for text in equal}) == 1
    for (_low, lower), (_high, higher) in itertools.combinations(enumerate(ORDER), 2):
        assert parse_version(lower[0]) < parse_version(higher[0]), (lower, higher)
        assert parse_version(higher[0]) > parse_version(lower[0])
        assert parse_version(lower[0]) != parse_version(higher[0])
    assert parse_version("1") != "1"


@pytest.mark.parametrize("text", ["", "1..2", "1.2$", "a b", "1.2++3", "x!1", "1."])
def test_no_version(text: str) -> None:
    with pytest.raises(SpecError, match="is no version of a conda package"):
        parse_version(text)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("numpy", VERSIONS),
        ("numpy=*", VERSIONS),
        ("NumPy", VERSIONS),
        ("numpy=1.26", BELOW),
        ("numpy =1.26", BELOW),
        ("numpy= 1.26", BELOW),
        ("numpy 1.26.*", BELOW),
        ("numpy 1.26*", BELOW),
        ("numpy=1.26.*", BELOW),
        ("numpy[version='1.26.*']", BELOW),
        ("numpy 1.26", ["1.26", "1.26.0"]),
        ("numpy==1.26", ["1.26", "1.26.0"]),
        ("numpy=1", [one for one in VERSIONS if one.startswith("1.")]),
        ("numpy>=1.26,<2", ["1.26", "1.26.0", "1.26.4", "1.26.4.post1", "1.27.1", "1.260", "2.0.0rc1"]),
        ("numpy >= 1.26 , < 2.0dev", ["1.26", "1.26.0", "1.26.4", "1.26.4.post1", "1.27.1", "1.260"]),
        ('numpy[version=">=1.27"]', ["1.27.1", "1.260", "2.0.0rc1", "2.0.0", "3.1"]),
        ("numpy>=1.260.*", ["1.260", "2.0.0rc1", "2.0.0", "3.1"]),
        ("numpy!=1.26.*", ["1.25.0", "1.27.1", "1.260", "2.0.0rc1", "2.0.0", "3.1"]),
        ("numpy!=1.26", [one for one in VERSIONS if one not in ("1.26", "1.26.0")]),
        ("numpy~=1.26.0", ["1.26", "1.26.0", "1.26.4", "1.26.4.post1"]),
        ("numpy~=1.26", ["1.26", "1.26.0", "1.26.4", "1.26.4.post1", "1.27.1", "1.260"]),
        ("numpy<1.26|>=3", ["1.25.0", "1.26dev", "3.1"]),
        ("numpy=1.25|=3", ["1.25.0", "3.1"]),
        ("numpy>1.25,(<1.26|>3)", ["1.26dev", "3.1"]),
        ("numpy<=1.26", ["1.25.0", "1.26dev", "1.26", "1.26.0"]),
        ("numpy>2", ["3.1"]),
        ("numpy  # of the course", VERSIONS),
        ("cupy", []),
    ],
)
def test_versions_of_a_spec(spec: str, expected: list[str]) -> None:
    wanted = parse_spec(spec)
    assert [one for one in VERSIONS if wanted.matches(numpy(one))] == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("numpy=1.26.*=py312*", ["py312_0", "py312h1_1"]),
        ("numpy=1.26.4=py312_0", ["py312_0"]),
        ("numpy=1.26=py312_0", []),
        ("numpy==1.26.4=py312_0", ["py312_0"]),
        ("numpy 1.26.4 py312_0", ["py312_0"]),
        ("numpy * py312*", ["py312_0", "py312h1_1"]),
        ("numpy=1.26.*=*", ["py312_0", "py312h1_1", "py311_0"]),
        ("numpy[build='py31[12]*']", []),
        ("numpy[build='^py31[12]_0$']", ["py312_0", "py311_0"]),
        ("numpy[version='>=1',build='py311*']", ["py311_0"]),
        ("numpy[build_number='>=1']", ["py312h1_1"]),
        ("conda-forge::numpy", ["py312_0", "py312h1_1", "py311_0"]),
        ("conda-forge/linux-64::numpy=1.26=py311_0", []),
        ("conda-forge/linux-64::numpy=1.26", ["py312_0", "py312h1_1", "py311_0"]),
        ("conda-forge/noarch::numpy", []),
        ("https://mirror.example/conda-forge::numpy>=1", ["py312_0", "py312h1_1", "py311_0"]),
        ("defaults::numpy", []),
        ("numpy[channel=conda-forge,subdir=linux-64]", ["py312_0", "py312h1_1", "py311_0"]),
        ("numpy[md5=00000000000000000000000000000000]", ["py312_0", "py312h1_1", "py311_0"]),
        ("numpy[sha256=0]", []),
        (f"{FORGE}/numpy-1.26.4-py312_0.conda", []),
        ("numpy-1.26.4-py312_0.tar.bz2", ["py312_0"]),
    ],
)
def test_builds_of_a_spec(spec: str, expected: list[str]) -> None:
    wanted = parse_spec(spec)
    packages = [numpy(build="py312_0"), numpy(build="py312h1_1", number=1), numpy(build="py311_0")]
    assert [one.build for one in packages if wanted.matches(one)] == expected


def test_a_line_of_an_explicit_file() -> None:
    url = f"{FORGE}/numpy-1.26.4-py312_0.conda"
    spec = parse_spec(f"{url}#{'0' * 32}")
    assert (spec.name, spec.url, spec.md5, spec.sha256) == ("numpy", url, "0" * 32, None)
    assert spec.matches(Package("numpy", "1.26.4", "py312_0", url=url, md5="0" * 32))
    assert not spec.matches(Package("numpy", "1.26.4", "py312_0", url=url, md5="1" * 32))
    assert parse_spec(f"{url}#sha256:{'a' * 64}").sha256 == "a" * 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no spec of a package: it has no name"),
        ("=1.2", "it has no name"),
        ("numpy@1.2", "'@' can't follow the name 'numpy'"),
        ("numpy=1=2=3", "write name=version=build"),
        ("numpy[versoin=1]", "write .key=value, …. with the keys version, build"),
        ("numpy[version='1", "'\\['? can't follow"),
        ("numpy>=1.2,", "a version is missing"),
        ("numpy>=1.2,<=", "a version is missing at '<='"),
        ("numpy(>=1", "can't follow the name"),
        ("numpy>1,(<2", "a parenthesis is not closed"),
        ("numpy>1)", "'\\)' stands where nothing is expected"),
        ("numpy==1.26.*", "is no version spec that all tools read alike: write =1.26, or ==1.26"),
        ("numpy<2.*", "write =2, or <2"),
        ("numpy~=1", "~= needs a version of two parts or more"),
        ("numpy~=1.2.*", "can't be compared"),
        ("numpy=1.*.2", "can't be compared"),
    ],
)
def test_no_spec(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_spec(text)


def test_an_empty_version_spec() -> None:
    with pytest.raises(SpecError, match="a version is empty"):
        parse_version_spec(" ")


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("conda-forge", "conda-forge"),
        (FORGE, "conda-forge"),
        ("https://mirror.example/conda/conda-forge/noarch", "conda/conda-forge"),
        ("https://mirror.example/t/tk-123/rapidsai/label/main/", "rapidsai/label/main"),
        ("file:///srv/channel/linux-aarch64", "srv/channel"),
    ],
)
def test_channel_name(channel: str, name: str) -> None:
    assert channel_name(channel) == name


def test_a_package_is_told_as_conda_does() -> None:
    assert str(numpy()) == "numpy=1.26.4=py312_0"
