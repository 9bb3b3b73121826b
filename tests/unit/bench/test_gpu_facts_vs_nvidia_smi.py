# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparison of gpu_facts with nvidia-smi finds differences, and none in recordings of the same machine."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver, _gpu, _pci
from ansible_collections.cudahub.gpu.tests.bench import gpu_facts_vs_nvidia_smi as bench
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import (
    RECORDINGS,
    mig_instance,
    no_command,
    recorded,
    report,
)


def facts(name: str, tmp_path: Path) -> dict[str, t.Any]:
    result = report(recorded(name))
    files = _pci.HostFiles(str(tmp_path))
    driver = _driver.judge(_driver.installed(files, "6.1.0", "x86_64", no_command), result, "6.1.0", "root")
    return _gpu.assemble(files, [], driver, result, simulated=False).as_dict()


def xml(name: str) -> str:
    return (RECORDINGS / f"{name}.nvidia-smi.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "count"), [("h100x1", 26), ("h200x4", 92)])
def test_recordings_agree(name: str, count: int, tmp_path: Path) -> None:
    found, compared = bench.differences(facts(name, tmp_path), xml(name))
    assert found == []
    assert compared >= count


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("<product_name>NVIDIA H100 80GB HBM3<", "<product_name>NVIDIA H100 PCIe<", "name"),
        ("<cuda_version>13.0<", "<cuda_version>12.8<", "driver.cuda_version"),
        ("<driver_version>580.159.04<", "<driver_version>580.95.05<", "driver.version"),
        ("<attached_gpus>1<", "<attached_gpus>2<", "visible_count"),
        ('<gpu id="00000000:00:06.0">', '<gpu id="00000000:00:07.0">', "GPUs"),
        ("<minor_number>0<", "<minor_number>1<", "minor"),
        ("<current_mig>Disabled<", "<current_mig>Enabled<", "mig.enabled"),
        ("<current_ecc>Enabled<", "<current_ecc>N/A<", "ecc.enabled"),
        ("<pending_ecc>Enabled<", "<pending_ecc>Disabled<", "ecc.pending"),
        ("<dram_correctable>0<", "<dram_correctable>2<", "ecc.corrected_volatile"),
        ("<sram_uncorrectable_parity>0<", "<sram_uncorrectable_parity>1<", "ecc.uncorrected_aggregate"),
        ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", "ecc.remapped_rows"),
        ("<pending_retirement>N/A<", "<pending_retirement>Yes<", "ecc.retired_pages_pending"),
        ("<current_power_limit>700.00 W<", "<current_power_limit>350.00 W<", "power_limit_watts"),
        ("hw_thermal_slowdown>Not Active<", "hw_thermal_slowdown>Active<", "slow_downs"),
        ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<", "recovery_needed"),
        ("<processes>", "<processes><process_info><pid>7</pid></process_info>", "processes"),
        ("<total>81559 MiB<", "<total>40960 MiB<", "memory_bytes"),
        ("<product_architecture>Hopper<", "<product_architecture>Ampere<", "architecture"),
        ("<pci_device_id>233010DE<", "<pci_device_id>233110DE<", "pci_device_id"),
    ],
)
def test_a_difference_is_found(old: str, new: str, field: str, tmp_path: Path) -> None:
    text = xml("h100x1")
    assert old in text
    found, _compared = bench.differences(facts("h100x1", tmp_path), text.replace(old, new))
    assert [line for line in found if re.search(rf"(^| ){re.escape(field)}: gpu_facts ", line)]


def test_mig_instances_are_compared(tmp_path: Path) -> None:
    nvml = recorded("h100x1").in_mig_mode(0, [mig_instance(0)])
    result = report(nvml)
    files = _pci.HostFiles(str(tmp_path))
    driver = _driver.judge(_driver.installed(files, "6.1.0", "x86_64", no_command), result, "6.1.0", "root")
    ours = _gpu.assemble(files, [], driver, result, simulated=False).as_dict()
    text = xml("h100x1").replace("_mig>Disabled<", "_mig>Enabled<")
    device = (
        "<mig_devices><mig_device><index>0</index><gpu_instance_id>7</gpu_instance_id>"
        "<compute_instance_id>0</compute_instance_id></mig_device>"
    )
    assert bench.differences(ours, text.replace("<mig_devices>", device))[0] == []
    assert len(bench.differences(ours, text)[0]) == 1


@pytest.mark.parametrize(("span", "expected"), [("volatile", (4, 2)), ("aggregate", (None, None))])
def test_ecc_counters_of_older_cards(span: str, expected: tuple[int | None, int | None]) -> None:
    gpu = bench.ET.fromstring(
        "<gpu><ecc_errors><volatile><single_bit><total>4</total></single_bit><double_bit><total>2</total></double_bit>"
        "</volatile><aggregate><single_bit><total>N/A</total></single_bit></aggregate></ecc_errors></gpu>"
    )
    assert (bench._errors(gpu, span, corrected=True), bench._errors(gpu, span, corrected=False)) == expected
