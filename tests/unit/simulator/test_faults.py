# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults: each kind, per GPU and function, also for a client that is already running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from simulated_host import COMMAND, Host

# Prints the NVML code of each call: 0 where it succeeds.
CODES = """
def code(function, *arguments):
    try:
        function(*arguments)
        return 0
    except n.NVMLError as error:
        return error.value

n.nvmlInit()
gpus = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
"""


@pytest.fixture
def h200(simulate: Callable[..., Host]) -> Host:
    return simulate(profile="h200x4")


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("lost", {}, 15),
        ("no_permission", {}, 4),
        ("reset_required", {}, 16),
        ("unknown", {}, 999),
        ("error", {"code": 23}, 23),
        ("timeout", {"seconds": 0}, 10),
        ("slow", {"seconds": 0}, 0),
    ],
)
def test_a_gpu_fails_and_the_others_do_not(h200: Host, kind: str, options: dict[str, Any], expected: int) -> None:
    h200.fault(kind, gpu=1, **options)
    assert h200.python("""
def code(function, *arguments):
    try:
        function(*arguments)
        return 0
    except n.NVMLError as error:
        return error.value

n.nvmlInit()
healthy = n.nvmlDeviceGetHandleByIndex(0)
result = [n.nvmlDeviceGetCount(), code(n.nvmlDeviceGetHandleByIndex, 1), code(n.nvmlDeviceGetMemoryInfo, healthy)]
""") == [4, expected, 0]


def test_one_function_fails_in_all_its_versions(h200: Host) -> None:
    h200.fault("unknown", function="nvmlDeviceGetMemoryInfo_v2", gpu=1)
    assert h200.python(f"""{CODES}
result = [code(n.nvmlDeviceGetMemoryInfo, h) for h in gpus]
result += [code(n.nvmlDeviceGetMemoryInfo, h, n.nvmlMemory_v2) for h in gpus]
result += [code(n.nvmlDeviceGetMemoryBusWidth, gpus[1])]
""") == [0, 999, 0, 999, 0]


def test_a_function_of_the_driver_fails(h200: Host) -> None:
    h200.fault("error", function="nvmlSystemGetDriverVersion", code=17)
    assert h200.python(f"{CODES}\nresult = [code(n.nvmlSystemGetDriverVersion), code(n.nvmlDeviceGetCount)]") == [17, 0]


def test_a_gpu_is_named_by_its_uuid_or_that_of_a_mig_device(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="a100-40gb-mig")
    shown = host.ask("show")["gpus"][0]
    codes = f"""{CODES}
migs = [n.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], i) for i in range(3)]
result = [code(n.nvmlDeviceGetMemoryInfo, h) for h in (*gpus, *migs)]
"""
    host.fault("unknown", gpu=shown["mig"][1]["uuid"], function="nvmlDeviceGetMemoryInfo")
    assert host.python(codes) == [0, 0, 0, 999, 0]
    host.clear()
    host.fault("unknown", gpu=shown["uuid"], function="nvmlDeviceGetMemoryInfo")
    assert host.python(codes) == [999, 0, 999, 999, 999]


@pytest.mark.parametrize(("kind", "expected"), [("mismatch", 18), ("not_loaded", 9), ("no_permission", 4)])
def test_nvml_does_not_start(h200: Host, kind: str, expected: int) -> None:
    h200.fault(kind)
    assert h200.python("""
result = []
try:
    n.nvmlInit()
except n.NVMLError as error:
    result = [error.value, n.nvmlSystemGetNVMLVersion()]
""") == [expected, "13.580.159.04"]
    h200.clear()
    assert h200.python("n.nvmlInit()\nresult = n.nvmlDeviceGetCount()") == 4


def test_the_tree_shows_a_mismatch_and_a_module_that_is_not_loaded(h200: Host) -> None:
    version = h200.tree / "proc/driver/nvidia/version"
    module = h200.tree / "sys/module/nvidia/version"
    assert "Open Kernel Module for" in version.read_text()
    assert "  580.159.04  " in version.read_text()
    h200.fault("mismatch")
    assert module.read_text() != "580.159.04\n"
    assert module.read_text().startswith("580.")
    assert module.read_text().strip() in version.read_text()
    h200.clear()
    h200.fault("not_loaded")
    assert not version.exists()
    assert not module.exists()
    assert len(list((h200.tree / "sys/bus/pci/devices").iterdir())) == 4
    h200.clear()
    assert module.read_text() == "580.159.04\n"


def test_what_is_mounted_over_proc_stays_the_same_directory(h200: Host) -> None:
    """A mount shows what a directory had that was removed."""
    mounted = h200.tree / "proc/driver"
    before = mounted.stat().st_ino
    with os.scandir(mounted):
        h200.fault("not_loaded")
        h200.clear()
    assert mounted.stat().st_ino == before
    assert (mounted / "nvidia/version").exists()


def test_a_vanished_gpu_is_not_counted_and_the_others_move_up(h200: Host) -> None:
    uuids = [gpu["uuid"] for gpu in h200.ask("show")["gpus"]]
    h200.fault("vanish", gpu=1)
    assert h200.python(f"""
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
result = [[n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetIndex(h), n.nvmlDeviceGetMinorNumber(h)] for h in handles]
try:
    n.nvmlDeviceGetHandleByUUID({uuids[1]!r})
except n.NVMLError as error:
    result.append(error.value)
""") == [[uuids[0], 0, 0], [uuids[2], 1, 2], [uuids[3], 2, 3], 6]
    assert len(list((h200.tree / "sys/bus/pci/devices").iterdir())) == 4, "PCI still shows it"


def test_slow_calls_take_their_time_and_leave_others_alone(h200: Host) -> None:
    h200.fault("slow", gpu=1, function="nvmlDeviceGetMemoryInfo", seconds=3)
    slow, first, value = h200.python("""
import threading, time
n.nvmlInit()
gpus = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
times = {}

def ask(index):
    start = time.monotonic()
    times[index] = (n.nvmlDeviceGetMemoryInfo(gpus[index]).total, time.monotonic() - start)

threads = [threading.Thread(target=ask, args=(index,)) for index in (1, 0)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
result = [times[1][1], list(times)[0], times[1][0]]
""")
    assert slow >= 3
    assert first == 0
    assert value == 150754820096


def test_values_of_an_ill_gpu(h200: Host) -> None:
    h200.fault("ecc", gpu=1, count=7)
    for kind in ("remap_pending", "remap_failed", "thermal_slowdown"):
        h200.fault(kind, gpu=1)
    h200.fault("power_slowdown", gpu=0)
    assert h200.python("""
n.nvmlInit()
result = []
for handle in (n.nvmlDeviceGetHandleByIndex(i) for i in range(3)):
    errors = [n.nvmlDeviceGetTotalEccErrors(handle, error, counter) for error in (0, 1) for counter in (0, 1)]
    fields = [v.value.ullVal for v in n.nvmlDeviceGetFieldValues(handle, [4, 6, 144, 145])]
    result.append([errors, list(n.nvmlDeviceGetRemappedRows(handle)), fields,
                   n.nvmlDeviceGetMemoryErrorCounter(handle, 1, 0, 2),
                   n.nvmlDeviceGetCurrentClocksEventReasons(handle),
                   n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)])
""") == [
        [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], 0, 0x88, 0x88],
        [[0, 0, 7, 7], [0, 1, 1, 1], [7, 7, 1, 1], 7, 0x48, 0x48],
        [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], 0, 1, 1],
    ]


def test_retired_pages_pending(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="t4")
    read = """
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(0)
result = [n.nvmlDeviceGetRetiredPagesPendingStatus(handle), n.nvmlDeviceGetRetiredPages(handle, 0)]
"""
    assert host.python(read) == [0, []]
    host.fault("pages_pending")
    assert host.python(read) == [1, []]


def test_running_clients_meet_faults_at_once(h200: Host) -> None:
    program = """
import sys, pynvml as n
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(1)
for line in sys.stdin:
    try:
        print(n.nvmlDeviceGetName(handle), flush=True)
    except n.NVMLError as error:
        print(error.value, flush=True)
"""
    client = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=h200.environment
    )
    assert client.stdin is not None
    assert client.stdout is not None

    def ask() -> str:
        client.stdin.write("\n")  # type: ignore[union-attr]
        client.stdin.flush()  # type: ignore[union-attr]
        return client.stdout.readline().strip()  # type: ignore[union-attr]

    try:
        assert ask() == "NVIDIA H200"
        h200.fault("lost", gpu=1)
        assert ask() == "15"
        h200.clear()
        assert ask() == "NVIDIA H200"
        h200.fault("vanish", gpu=1)
        assert ask() == "15"
        h200.clear()
        h200.configure(profile="t4")
        assert ask() == "NVIDIA H200", "a running client keeps the GPUs that it found"
    finally:
        client.stdin.close()
        assert client.wait(timeout=120) == 0


def test_switches_in_quick_succession_all_count(h200: Host) -> None:
    arguments = [sys.executable, str(COMMAND), "--prefix", str(h200.prefix), "fault"]
    assert h200.python(f"""
import subprocess
{CODES}
result = []
for kind in ("lost", "unknown"):
    subprocess.run([*{arguments!r}, "add", "--kind", kind, "--gpu", "1"], check=True, capture_output=True)
    result.append(code(n.nvmlDeviceGetName, gpus[1]))
    subprocess.run([*{arguments!r}, "clear"], check=True, capture_output=True)
    result.append(code(n.nvmlDeviceGetName, gpus[1]))
""") == [15, 0, 999, 0]


def test_faults_add_up_and_are_listed(h200: Host) -> None:
    h200.fault("lost", gpu=1)
    h200.fault("ecc", gpu=2, count=3)
    listed = h200.ask("fault", "list")
    assert [(fault["gpu"], fault["kind"]) for fault in listed] == [("1", "lost"), ("2", "ecc")]
    assert h200.ask("show")["faults"] == listed
    h200.clear()
    assert h200.ask("fault", "list") == []


def test_a_broken_faults_file_is_not_overlooked(h200: Host) -> None:
    (h200.state / "faults").write_text("gpu-simulator-faults 1\nall * nonsense\n")
    assert (
        h200.python("""
try:
    n.nvmlInit()
    result = 0
except n.NVMLError as error:
    result = error.value
""")
        == 999
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--kind", "lost", "--gpu", "4"], "is for GPU 4, which this simulation does not have."),
        (["--kind", "lost", "--gpu", "GPU-nonsense"], "is for GPU GPU-nonsense, which this simulation does not have."),
        (["--kind", "mismatch", "--gpu", "0"], "is one of the driver: leave 'gpu' out."),
        (["--kind", "pages_pending", "--gpu", "0"], "is not possible on GPU 0: a NVIDIA H200 does not have that."),
        (["--kind", "lost", "--function", "name; rm"], "is not an NVML function such as nvmlDeviceGetMemoryInfo."),
        (["--kind", "lost", "--function", "nvmlNope"], "names 'nvmlNope', which is none of NVML's functions; "),
        (["--kind", "slow", "--seconds", "-1"], "'seconds' of the fault 'slow' must be a number between 0 and 86400"),
        (["--kind", "error", "--code", "1000"], "'code' of the fault 'error' must be a number between 1 and 999"),
    ],
)
def test_impossible_faults_are_refused_in_one_sentence(h200: Host, arguments: list[str], sentence: str) -> None:
    said = h200.refused("fault", "add", *arguments)
    assert sentence in said
    assert said.count("\n") == 1
    assert h200.ask("fault", "list") == []
