# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Specs in all their forms: a real conda brings what the module then sees is there, without asking conda again."""

from __future__ import annotations

from pathlib import Path

import pytest
from module_of_conda import Module, versions

FORMS = [
    ["numpy", "python", "cuda-version", "pip", "ipykernel"],
    ["numpy=1.26", "python=3.12", "cuda-version=12.9", "pip>=26", "ipykernel>=7,<8"],
    ["numpy>=1.26,<2", "python 3.12.*", "cuda-version==12.8", "pip=26.2=pyh8b19718_0", "ipykernel 7.1.0"],
    ["numpy=1.26.*=py312*", "python>=3.12,<3.13", "cuda-version 12.9.*", "pip!=25", "ipykernel=7.1.0=*"],
    [
        "named::numpy",
        "python[version='3.11.*']",
        "cuda-version[version='>=12.2,<=12.4']",
        "pip~=26.0",
        "ipykernel>=7|<3",
    ],
    ["numpy 2.0.1 py312_0", "python=3.12.11=0_cpython", "cuda-version>=12.0,<=12.9", "pip >=26.2", "ipykernel==7.1.0"],
    [
        "numpy[version=2.0.1,build=py312_0]",
        "python[build_number=0]",
        "cuda-version=12",
        "pip[version='>26']",
        "ipykernel<8",
    ],
]


def test_there_are_thirty_of_them() -> None:
    assert len({form for forms in FORMS for form in forms}) >= 30


@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: forms[0])
def test_the_second_run_changes_nothing(module: Module, tmp_path: Path, forms: list[str]) -> None:
    prefix = tmp_path / "env"
    condarc = {"custom_channels": {"named": module.channel.rpartition("/")[0]}, "pkgs_dirs": [str(tmp_path / "pkgs")]}
    options = {"prefix": str(prefix), "packages": forms, "channels": ["named"], "condarc": condarc}
    assert module.run(**options)["changed"]
    assert versions(prefix).keys() >= {"numpy", "python", "cuda-version", "pip", "ipykernel"}
    module.unchanged(**options)
