# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of device ids is made of a pci.ids file, and the shipped one was made that way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _pci_ids
from ansible_collections.cudahub.gpu.tests.tools import update_pci_ids

PCI_IDS = """\
#\tVersion: 2026.01.02
1002  Other
\t2330  GH100 [Not this one]
10de  NVIDIA Corporation
\t0040  NV40 [GeForce 6800 Ultra]
\t2335  GH100 [H200 SXM 141GB]
\t\t10de 18bf  Board
\t2330  GH100 [H100 SXM5 80GB]
\t22a3  GH100 [H100 NVSwitch]
\t22ba  AD102 High Definition Audio Controller
\t2924  GB100
10df  Emulex
\t2331  GH100 [Not this one]
"""


def test_table() -> None:
    source = update_pci_ids.table(PCI_IDS)
    values = {node.targets[0].id: node.value.value for node in ast.parse(source).body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    assert values["SNAPSHOT"] == "2026.01.02"
    assert values["GPUS"].split("\n") == [
        "",
        "2330 GH100 H100 SXM5 80GB",
        "2335 GH100 H200 SXM 141GB",
        "2924 GB100",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [("10de  NVIDIA Corporation\n", "no '#  Version:' line"), ("#\tVersion: 1\n1002  Other\n", "no vendor 10de")],
)
def test_refuses_another_file(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        update_pci_ids.table(text)


def test_command(tmp_path: Path) -> None:
    source, output = tmp_path / "pci.ids", tmp_path / "_pci_ids.py"
    source.write_text(PCI_IDS, encoding="utf-8")
    assert update_pci_ids.main(["update_pci_ids.py", str(source), str(output)]) == 0
    assert output.read_text(encoding="utf-8") == update_pci_ids.table(PCI_IDS)
    assert update_pci_ids.main(["update_pci_ids.py"]) == 2


def test_shipped_table_has_the_form_that_is_generated() -> None:
    lines = _pci_ids.GPUS.strip("\n")
    shipped = Path(str(_pci_ids.__file__)).read_text(encoding="utf-8")
    assert shipped == update_pci_ids.HEADER.format(version=_pci_ids.SNAPSHOT, lines=lines)
