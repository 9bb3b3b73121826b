# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML said on real machines, and what is made of it."""

from __future__ import annotations

import copy
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu_peaks, _verify_judge, _verify_payload_nvml
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import FakeNvml, recorded


class Binding:
    """The recording, called as pynvml is."""

    def __init__(self, nvml: FakeNvml) -> None:
        self._nvml = nvml

    def __getattr__(self, function: str) -> Any:  # noqa: D105
        return lambda *arguments: self._nvml.call(function, *arguments)


@pytest.mark.parametrize(("machine", "peak"), [("h200x4", 4814.3), ("h100x1", 3352.3)])
def test_peaks_of_recorded_machines(machine: str, peak: float) -> None:
    nvml = recorded(machine)
    reading = _verify_payload_nvml.snapshot(Binding(nvml), 0)
    name = nvml.call("nvmlDeviceGetName", 0)
    assert _gpu_peaks.peaks(name, reading) == {
        "gemm_fp64": 66.9,
        "gemm_fp32": 66.9,
        "gemm_tf32": 494.7,
        "gemm_fp16": 989.4,
        "gemm_fp8": 1978.9,
        "sustained_load": 989.4,
        "copy_device": peak,
        "copy_host_to_device": 63.0,
        "copy_device_to_host": 63.0,
    }
    assert reading["processes"] == []
    counters = reading["counters"]
    assert (counters["ecc_corrected"], counters["ecc_uncorrected"], counters["rows_failed"]) == (0, 0, 0)
    assert counters["pcie_replays"] is not None
    assert counters["nvlink_errors"] is None
    assert counters["nvlinks_down"] == (0 if machine == "h200x4" else None)


def test_a_sample_of_a_recorded_machine() -> None:
    sample = _verify_payload_nvml.sample(Binding(recorded("h200x4")), 0)
    assert sample.pop("time") > 0
    assert sample == {
        "sm_clock_mhz": 495,
        "memory_clock_mhz": 3201,
        "power_watts": 109.2,
        "temperature_celsius": 38,
        "clock_reasons": 1,
    }


def test_a_gpu_that_is_lost_has_no_values() -> None:
    lost = recorded("h200x4").fail("*", 15, device=0)
    reading = _verify_payload_nvml.snapshot(Binding(lost), 0)
    assert {value for name, value in reading.items() if name != "counters"} == {None}
    assert set(reading["counters"].values()) == {None}


LOG = """\
6,1200,5000,-;usb 1-1: new device
4,1201,5100,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
 SUBSYSTEM=pci
4,1202,5200,-,caller=T4711;NVRM: Xid (PCI:0000:3B:00): 13, pid=4711, name=python3, Graphics Exception
4,1203,5300,-;NVRM: Xid (0000:86:00): 31, Ch 00000010
4,1204,5400,-;NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-4000-8000-000000000000
4,1205,5500,-;NVRM: Xid (PCI:00010000:3B:00.0): 45, pid=4711
12,1206,5600,-;health: NVRM: Xid (PCI:0000:3b:00): 79 was seen
4,1207,5700,-;NVRM: Xid (PCI:0000:3b
 x:00): 79
4,,5800,-;NVRM: Xid (PCI:0000:3b:00): 79
4,1209;NVRM: Xid (PCI:): , pid=\udcff
"""


def log_of(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    path.write_text(text, errors="surrogateescape")
    monkeypatch.setattr(_verify_payload_nvml, "KERNEL_LOG", str(path))


@pytest.mark.parametrize(
    ("bus_id", "numbers"),
    [
        ("00000000:3B:00.0", [1201, 1202]),
        (b"00000000:3B:00.0", [1201, 1202]),
        ("0000:86:00.0", [1203]),
        ("00010000:3b:00.0", [1205]),
        ("10000:3b:00.0", [1205]),
        ("00000001:3B:00.0", []),
    ],
)
def test_xids_of_a_gpu_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bus_id: str | bytes, numbers: list[int]
) -> None:
    log_of(monkeypatch, tmp_path / "kmsg", LOG)
    assert _verify_payload_nvml.xids(bus_id) == numbers


def test_a_full_log_that_loses_an_old_record_for_each_new_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_verify_payload_nvml, "LONGEST_RECORD", 1 << 20)  # a file gives all of them in one
    readings = []
    for first in (1000, 1003):
        storm = (f"4,{number},5100,-;NVRM: Xid (PCI:0000:3b:00): 31\n" for number in range(first, first + 5000))
        log_of(monkeypatch, tmp_path / "kmsg", "".join(storm))
        readings.append({"xids": _verify_payload_nvml.xids("00000000:3B:00.0")})
    assert _verify_judge.counter_changes(*readings) == ([], ["3 errors of the driver (Xid) in the kernel log"])


def test_a_log_that_grows_as_fast_as_it_is_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    record = b"4,1201,5100,-;NVRM: Xid (PCI:0000:3b:00): 31\n"
    monkeypatch.setattr(_verify_payload_nvml, "KERNEL_LOG", os.devnull)
    monkeypatch.setattr(_verify_payload_nvml, "LONGEST_READING", 0.2)
    monkeypatch.setattr(os, "read", lambda _log, _most: record)
    assert set(_verify_payload_nvml.xids("00000000:3B:00.0")) == {1201}


def test_a_log_that_gives_no_more_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As /dev/kmsg does, a pipe has its records one by one, and then none yet."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    monkeypatch.setattr(_verify_payload_nvml, "KERNEL_LOG", str(path))
    writer: list[int] = []
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer.append(os.open(path, os.O_WRONLY))
    os.write(writer[0], LOG.encode(errors="surrogateescape"))
    timer = threading.Timer(20, lambda: os.close(writer.pop()))
    timer.start()
    try:
        assert _verify_payload_nvml.xids("00000000:3b:00.0") == [1201, 1202]
    finally:
        timer.cancel()
        os.close(opened)
        for one in writer:
            os.close(one)


def test_a_log_that_may_not_be_read_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verify_payload_nvml, "KERNEL_LOG", "/nonexistent/kmsg")
    assert _verify_payload_nvml.counters(Binding(recorded("h200x4")), 0)["xids"] is None


def test_curves_are_sent_whole_each_time_and_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verify_payload_nvml, "MOST_POINTS", 4)
    sent: list[dict[str, Any]] = []
    _verify_payload_nvml.watch(Binding(recorded("h200x4")), 0, 0.01, 0.3, lambda one: sent.append(copy.deepcopy(one)))
    assert [len(document["points"]) for document in sent[:6]] == [1, 2, 3, 4, 3, 4]
    assert [document["interval"] for document in sent[3:5]] == [0.01, 0.02]
    assert max(len(document["points"]) for document in sent) <= 4


def test_link_errors_that_rise_on_links_that_are_well_are_not_counted() -> None:
    """NVLink's counters 3 and 4, of data lanes, rose by hundreds in 20 s on two idle NVIDIA H200; 0 to 2 did not."""

    class Links:
        counts = (1, 2, 4, 8, 16)

        def __getattr__(self, function: str) -> Any:
            if function == "nvmlDeviceGetNvLinkState":
                return lambda _handle, link: int(link < 2)
            return lambda _handle, _link, counter: self.counts[counter]

    assert _verify_payload_nvml.link_errors(Links(), None) == 14
