# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files as conda's documentation shows them, and what people write instead."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.cudahub.gpu.plugins.plugin_utils._environment_file import (
    EnvironmentFile,
    EnvironmentFileError,
    parse,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dependencies: [numpy]", EnvironmentFile(("numpy",))),
        (
            """
            name: stats
            channels: [javascript, nodefaults, conda-forge]
            dependencies:
              - python=3.13
              - conda-forge::numpy>=2
              - pip
              - pip:
                  - nvtx
                  - cupy-cuda13x>=13
              - cudf=26.10
            variables: {A: b}
            prefix: /opt/x
            platforms: [linux-64]
            category: main
            """,
            EnvironmentFile(
                ("python=3.13", "conda-forge::numpy>=2", "pip", "cudf=26.10"),
                ("nvtx", "cupy-cuda13x>=13"),
                ("javascript", "conda-forge"),
            ),
        ),
        ("{channels: null, dependencies: [a, {pip: [b]}, {pip: [c]}]}", EnvironmentFile(("a",), ("b", "c"))),
        ("dependencies: [pip: [b]]", EnvironmentFile((), ("b",))),
    ],
)
def test_parse(text: str, expected: EnvironmentFile) -> None:
    assert parse(yaml.safe_load(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty, and a mapping with dependencies is expected"),
        ("numpy", "it is a text, and a mapping with dependencies is expected"),
        ("[numpy]", "it is a list, and a mapping"),
        ("3.5", "it is the number 3.5, and a mapping"),
        ("true", "it is a truth value, and a mapping"),
        ("{}", "dependencies has to be a list of packages"),
        ("dependencies:", "dependencies has to be a list of packages"),
        ("dependencies: []", "dependencies has to be a list of packages"),
        ("dependencies: numpy", "dependencies has to be a list of packages"),
        (
            "{dependencies: [a], dependancies: [b], 1: c}",
            "it has dependancies, 1, which is none of name, channels, dependencies, prefix, variables, platforms, ",
        ),
        ("dependencies: [a, 3]", "entry 2 of dependencies is the number 3, and a package, or pip with a list, is"),
        ("dependencies: [null]", "entry 1 of dependencies is empty"),
        ("dependencies: [[a]]", "entry 1 of dependencies is a list"),
        ("dependencies: [a: 1]", "entry 1 of dependencies is a mapping"),
        ("dependencies: [{pip: [a], b: c}]", "entry 1 of dependencies is a mapping"),
        ("dependencies: [a, pip: b]", "entry 2 of dependencies, pip, has to be a list of texts"),
        ("dependencies: [pip: ]", "entry 1 of dependencies, pip, has to be a list of texts"),
        ("dependencies: [pip: [a, 1]]", "entry 1 of dependencies, pip, has to be a list of texts"),
        ("{dependencies: [a], channels: conda-forge}", "channels has to be a list of texts"),
        ("{dependencies: [a], channels: [1]}", "channels has to be a list of texts"),
    ],
)
def test_what_is_none(text: str, message: str) -> None:
    with pytest.raises(EnvironmentFileError) as caught:
        parse(yaml.safe_load(text))
    assert message in str(caught.value)
