# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs are found on the PCI bus, and their ids tell what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _pci, _pci_ids
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import add_pci_device, recorded_tree


def test_scan_of_a_real_machine(tmp_path: Path) -> None:
    gpus = _pci.scan(_pci.HostFiles(str(recorded_tree(tmp_path, "h200x4"))))
    assert [gpu.bus_id for gpu in gpus] == [f"00000000:00:0{slot}.0" for slot in (6, 7, 8, 9)]
    assert {gpu.pci_device_id for gpu in gpus} == {"10de:2335"}
    assert {gpu.numa_node for gpu in gpus} == {None}
    assert {gpu.kernel_driver for gpu in gpus} == {"nvidia"}


@pytest.mark.parametrize(
    ("class_code", "found"),
    [
        ("0x030000", True),
        ("0x030200", True),
        ("0x038000", True),
        ("0x040300", False),
        ("0x068000", False),
        ("0x0c0330", False),
    ],
)
def test_scan_by_class(tmp_path: Path, class_code: str, found: bool) -> None:
    add_pci_device(tmp_path, "0000:01:00.0", class_code=class_code)
    assert bool(_pci.scan(_pci.HostFiles(str(tmp_path)))) is found


def test_scan_leaves_other_vendors_out(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:02:00.0", vendor="0x1002")
    assert _pci.scan(_pci.HostFiles(str(tmp_path))) == ()


def test_scan_leaves_virtual_functions_out(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:01:00.0")
    (add_pci_device(tmp_path, "0000:01:00.4") / "physfn").symlink_to("../0000:01:00.0")
    assert [gpu.bus_id for gpu in _pci.scan(_pci.HostFiles(str(tmp_path)))] == ["00000000:01:00.0"]


def test_nvswitches(tmp_path: Path) -> None:
    files = _pci.HostFiles(str(tmp_path))
    assert _pci.nvswitches(files) == 0
    add_pci_device(tmp_path, "0000:01:00.0")
    for slot in range(4):
        add_pci_device(tmp_path, f"0000:0{slot + 3}:00.0", "0x22a3", "0x068000")
    add_pci_device(tmp_path, "0000:09:00.0", "0x1234", "0x068000", vendor="0x15b3")
    add_pci_device(tmp_path, "0000:0a:00.0", "0x22a3", "broken")
    assert (_pci.nvswitches(files), len(_pci.scan(files))) == (4, 1)


def test_scan_tells_place_and_driver(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0009:0a:00.0", "0x2342", "0x030200", driver="vfio-pci", numa_node="1", cpus="0-71")
    assert _pci.scan(_pci.HostFiles(str(tmp_path))) == (
        _pci.PciGpu(bus_id="00000009:0A:00.0", device_id=0x2342, numa_node=1, cpus="0-71", kernel_driver="vfio-pci"),
    )


def test_scan_survives_unreadable_files(tmp_path: Path) -> None:
    assert _pci.scan(_pci.HostFiles(str(tmp_path))) == ()
    path = add_pci_device(tmp_path, "0000:01:00.0", numa_node="?", driver=None)
    assert _pci.scan(_pci.HostFiles(str(tmp_path)))[0].numa_node is None
    (path / "device").write_text("broken")
    assert _pci.scan(_pci.HostFiles(str(tmp_path))) == ()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("0000:00:06.0", "00000000:00:06.0"),
        ("0009:01:00.0", "00000009:01:00.0"),
        ("10000:af:00.0", "00010000:AF:00.0"),
        ("00000000:3B:00.0", "00000000:3B:00.0"),
    ],
)
def test_nvml_bus_id(address: str, expected: str) -> None:
    assert _pci.nvml_bus_id(address) == expected


@pytest.mark.parametrize(
    ("device_id", "chip", "name", "architecture"),
    [
        (0x2330, "GH100", "H100 SXM5 80GB", "Hopper"),
        (0x2335, "GH100", "H200 SXM 141GB", "Hopper"),
        (0x2342, "GH100", "GH200 120GB / 480GB", "Hopper"),
        (0x20B0, "GA100", "A100 SXM4 40GB", "Ampere"),
        (0x2230, "GA102GL", "RTX A6000", "Ampere"),
        (0x1EB8, "TU104GL", "Tesla T4", "Turing"),
        (0x1DB5, "GV100GL", "Tesla V100 SXM2 32GB", "Volta"),
        (0x2684, "AD102", "GeForce RTX 4090", "Ada Lovelace"),
        (0x2901, "GB100", "B200", "Blackwell"),
        (0x2B85, "GB202", "GeForce RTX 5090", "Blackwell"),
        (0x15F8, "GP100GL", "Tesla P100 PCIe 16GB", "Pascal"),
        (0x13F2, "GM204GL", "Tesla M60", "Maxwell"),
        (0x102D, "GK210GL", "Tesla K80", "Kepler"),
    ],
)
def test_model_from_the_table(tmp_path: Path, device_id: int, chip: str, name: str, architecture: str) -> None:
    assert _pci.model(device_id, _pci.HostFiles(str(tmp_path))) == _pci.Model(chip, name, architecture)


def test_model_from_the_hosts_own_file(tmp_path: Path) -> None:
    files = _pci.HostFiles(str(tmp_path))
    assert _pci.model(0xFFF0, files) is None
    path = tmp_path / "usr/share/hwdata/pci.ids"
    path.parent.mkdir(parents=True)
    path.write_text(
        "# comment\n1000  Other\n\tfff0  GB999 [Wrong vendor]\n10de  NVIDIA Corporation\n"
        "\tfff0  GB210 [RTX 9999]\n\t\t1234 5678  Board\n\tfff1  GB210 High Definition Audio Controller\n1111  Next\n"
        "\tfff2  GB999 [Wrong vendor]\n"
    )
    assert _pci.model(0xFFF0, files) == _pci.Model("GB210", "RTX 9999", "Blackwell")
    assert _pci.model(0xFFF2, files) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("GH100 [H100 SXM5 80GB]", "GH100 H100 SXM5 80GB"),
        ("AD103M / GN21-X11 [GeForce RTX 4090 Laptop GPU]", "AD103M GeForce RTX 4090 Laptop GPU"),
        ("GB100", "GB100"),
        ("GB6-256(N22W-ES-A1)", "GB6-256(N22W-ES-A1)"),
        ("NV43 [GeForce 6600]", None),
        ("MCP79 High Definition Audio", None),
        ("Device 1234", None),
    ],
)
def test_parse_pci_ids_name(name: str, expected: str | None) -> None:
    assert _pci.parse_pci_ids_name(name) == expected


def test_every_shipped_line_has_an_architecture() -> None:
    lines = _pci_ids.GPUS.strip().splitlines()
    assert len(lines) > 800
    assert len({line[:4] for line in lines}) == len(lines)
    assert {line[5:7] for line in lines} <= set(_pci.ARCHITECTURES)
