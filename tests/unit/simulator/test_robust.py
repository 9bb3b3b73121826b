# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The library against careless clients and broken files: an error code each time, never a crash."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_host import FILES, Host

INIT = """
try:
    n.nvmlInit()
    result = 0
except n.NVMLError as error:
    result = error.value
"""


def test_without_a_state_the_driver_is_not_loaded(host: Host) -> None:
    (host.state / "state").unlink()
    assert host.python(INIT) == 9


BROKEN = {
    "empty": "",
    "no header": "sys nvmlSystemGetDriverVersion s 1\nend 1\n",
    "newer": "gpu-simulator-state 2\nend 0\n",
    "cut off": "gpu-simulator-state 1\nsys nvmlSystemGetDriverVersion s 1\n",
    "cut off in a line": "gpu-simulator-state 1\nsys nvmlSystemGetDriverVersion s",
    "lines missing": "gpu-simulator-state 1\nsys nvmlSystemGetDriverVersion s 1\nend 2\n",
    "no kind": "gpu-simulator-state 1\nsys nvmlSystemGetDriverVersion\nend 1\n",
    "unknown kind": "gpu-simulator-state 1\nsys nvmlSystemGetDriverVersion x 1\nend 1\n",
    "unknown scope": "gpu-simulator-state 1\nunit 0 nvmlX u 1\nend 1\n",
    "too many gpus": "gpu-simulator-state 1\ngpu 64 nvmlX u 1\nend 1\n",
    "negative gpu": "gpu-simulator-state 1\ngpu -1 nvmlX u 1\nend 1\n",
    "mig of no gpu": "gpu-simulator-state 1\nmig 0 0 nvmlX u 1\nend 1\n",
    "too many migs": "gpu-simulator-state 1\ngpu 0 nvmlX u 1\nmig 0 8 nvmlX u 1\nend 2\n",
    "not a number": "gpu-simulator-state 1\ngpu 0 nvmlX u 1 two\nend 1\n",
    "number too large": "gpu-simulator-state 1\ngpu 0 nvmlX u 99999999999999999999999\nend 1\n",
    "too many numbers": "gpu-simulator-state 1\ngpu 0 nvmlX u" + " 1" * 300 + "\nend 1\n",
    "error 0": "gpu-simulator-state 1\ngpu 0 nvmlX e 0\nend 1\n",
    "binary": "gpu-simulator-state 1\n\x00\x01\x02\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_state_is_an_unknown_error(host: Host, text: str) -> None:
    (host.state / "state").write_text(text)
    assert host.python(INIT) == 999


def test_states_cut_or_changed_anywhere_never_crash(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="a100-40gb-mig")
    whole = (host.state / "state").read_bytes()
    chance = random.Random(1)  # noqa: S311 - no secret
    states = [whole[: chance.randrange(len(whole))] for _cut in range(40)]
    for _change in range(40):
        changed = bytearray(whole)
        for _byte in range(3):
            changed[chance.randrange(len(whole))] = chance.randrange(256)
        states.append(bytes(changed))
    for number, state in enumerate(states):
        (host.prefix / f"state{number}").mkdir()
        (host.prefix / f"state{number}" / "state").write_bytes(state)
    codes = host.python(f"""
import os
library = ctypes.CDLL("libnvidia-ml.so.1")
libc = ctypes.CDLL(None)
result = []
for number in range({len(states)}):
    libc.setenv(b"GPU_SIMULATOR_STATE", os.fsencode({str(host.prefix)!r} + f"/state{{number}}"), 1)
    code = library.nvmlInit_v2()
    result.append(code)
    if code == 0:
        count = ctypes.c_uint()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            device = ctypes.c_void_p()
            buffer = ctypes.create_string_buffer(4096)
            library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
            for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
                getattr(library, name)(device, buffer, 4096)
            for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetAttributes_v2"):
                getattr(library, name)(device, buffer)
        library.nvmlShutdown()
""")
    assert set(codes[:40]) == {999}
    assert set(codes) <= {0, 999}


ARGUMENTS = """
library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlInit_v2()
device = ctypes.c_void_p()
library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
number = ctypes.c_uint()
text = ctypes.create_string_buffer(256)
"""


def test_null_pointers_are_invalid_arguments(simulate: Callable[..., Host]) -> None:
    """Every function that nvml.c defines, with nothing but NULL beside its device and its numbers."""
    host = simulate(profile="h200x4")
    assert host.python(
        ARGUMENTS
        + f"""
import pathlib, re
source = pathlib.Path({str(FILES)!r}, "src", "nvml.c").read_text()
names = set(re.findall(r"^API nvml_return (nvmlDevice\\w+)\\(", source, re.M))
names -= {{"nvmlDeviceGetCount", "nvmlDeviceGetCount_v2"}}
names |= set(re.findall(r"^(?:TEXT|NUMBER\\w*|TWO_NUMBERS|PROCESSES)\\((nvml\\w+)", source, re.M))
codes = {{name: getattr(library, name)(device, None, None, None, None, None) for name in names}}
codes["count"] = library.nvmlDeviceGetCount_v2(None)
result = [len(names) > 120, {{name: code for name, code in codes.items() if code not in (2, 3, 25)}}]
"""
    ) == [True, {}]


def test_handles_that_are_none(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="t4")
    assert (
        host.python(
            ARGUMENTS
            + """
handles = [0, 1, 0x4e560000, 0x4e560100 + 5, 0x4e560300, 2**64 - 1, ctypes.addressof(text), 0x4e56ffff]
result = [library.nvmlDeviceGetName(ctypes.c_void_p(handle), text, 256) for handle in handles]
"""
        )
        == [2] * 8
    )


def test_nothing_works_before_init_and_after_shutdown(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="t4")
    assert host.python("""
library = ctypes.CDLL("libnvidia-ml.so.1")
device, number, text = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(256)

def ask():
    return [library.nvmlDeviceGetCount_v2(ctypes.byref(number)),
            library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)),
            library.nvmlDeviceGetName(device, text, 256), library.nvmlShutdown()]

result = [ask()]
library.nvmlInit_v2()
library.nvmlInit()
library.nvmlShutdown()
library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
result += [ask(), ask()]
""") == [[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]


def test_small_buffers(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    assert host.python(
        ARGUMENTS
        + """
text.raw = b"?" * 256
result = [library.nvmlDeviceGetName(device, text, size) for size in (0, 1, 11)]
result.append(text.raw == b"?" * 256)
result += [library.nvmlDeviceGetName(device, text, 12), text.value.decode()]
"""
    ) == [7, 7, 7, True, 0, "NVIDIA H200"]


def test_counts_are_given_where_an_array_is_too_small(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    assert host.python(
        ARGUMENTS
        + """
array = (ctypes.c_uint * 8)()
result = []
for room, where in ((0, None), (8, None), (1, array), (2, array), (8, array)):
    count = ctypes.c_uint(room)
    code = library.nvmlDeviceGetSupportedMemoryClocks(device, ctypes.byref(count), where)
    result.append([code, count.value])
result.append(list(array[:2]))
count = ctypes.c_uint(0)
result.append([library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None), count.value])
"""
    ) == [[7, 2], [7, 2], [7, 2], [0, 2], [0, 2], [3201, 2201], [0, 0]]


def test_a_text_where_a_number_belongs_is_an_unknown_error(simulate: Callable[..., Host]) -> None:
    """Only a state file that was written by hand has one."""
    host = simulate(profile="t4")
    state = (host.state / "state").read_text()
    (host.state / "state").write_text(state.replace("nvmlDeviceGetTemperature u 32", "nvmlDeviceGetTemperature s hot"))
    assert (
        host.python(f"{ARGUMENTS}\nresult = library.nvmlDeviceGetTemperature(device, 0, ctypes.byref(number))") == 999
    )


def test_processes_that_a_profile_gives(simulate: Callable[..., Host]) -> None:
    running = [{"pid": 1, "usedGpuMemory": 2**30}, {"pid": 2, "usedGpuMemory": 5}]
    host = simulate(
        gpus=[{"model": "t4", "nvml": {"nvmlDeviceGetComputeRunningProcesses": {"value": running}}}],
    )
    assert (
        host.python("""
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(0)
result = [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(handle)]
result += [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetRunningProcessDetailList(handle, 0x1000018, 0)]
""")
        == [[1, 2**30], [2, 5]] * 2
    )


def test_versions_of_structs_are_checked(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    assert (
        host.python(
            ARGUMENTS
            + """
result = []
for function, struct, good in (
    ("nvmlDeviceGetMemoryInfo_v2", n.c_nvmlMemory_v2_t(), n.nvmlMemory_v2),
    ("nvmlDeviceGetTemperatureV", n.c_nvmlTemperature_v1_t(), n.nvmlTemperature_v1),
    ("nvmlDeviceGetPciInfoExt", n.nvmlPciInfoExt_v1_t(), n.nvmlPciInfoExt_v1),
    ("nvmlDeviceGetGpuFabricInfoV", n.c_nvmlGpuFabricInfo_v2_t(), n.nvmlGpuFabricInfo_v2),
):
    for version in (0, good + 1, good):
        struct.version = version
        result.append(getattr(library, function)(device, ctypes.byref(struct)))
"""
        )
        == [25, 25, 0] * 4
    )


def test_threads_and_forks(simulate: Callable[..., Host]) -> None:
    """Eight threads initialize, ask and shut down; a child forked in between asks as well."""
    host = simulate(profile="h200x4")
    assert host.python(
        """
import os, threading
library = ctypes.CDLL("libnvidia-ml.so.1")
wrong, stop = [], threading.Event()

def work():
    device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    for _ in range(60):
        codes = [library.nvmlInit_v2(), library.nvmlDeviceGetHandleByIndex_v2(3, ctypes.byref(device)),
                 library.nvmlDeviceGetName(device, text, 96), library.nvmlShutdown()]
        if codes != [0, 0, 0, 0] or text.value != b"NVIDIA H200":
            wrong.append(codes)

def load():
    while not stop.is_set():
        library.nvmlInit_v2()
        library.nvmlShutdown()

threads = [threading.Thread(target=work) for _ in range(7)]
background = threading.Thread(target=load)
for thread in (*threads, background):
    thread.start()
children = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        device = ctypes.c_void_p()
        good = library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
        os._exit(0 if good else 1)
    children.append(os.waitpid(child, 0)[1])
for thread in threads:
    thread.join()
stop.set()
background.join()
result = [wrong, children]
""",
        timeout=120,
    ) == [[], [0] * 5]


def test_a_setuid_program_does_not_follow_the_environment() -> None:
    """The directory of the state comes from the environment only where that is trusted."""
    assert "secure_getenv(" in (FILES / "src" / "state.c").read_text(encoding="utf-8")


@pytest.mark.parametrize("compiler", [name for name in ("gcc", "clang") if shutil.which(name)] or ["cc"])
def test_the_source_compiles_without_a_warning(tmp_path: Path, compiler: str) -> None:
    sources = sorted(map(str, (FILES / "src").glob("*.c")))
    for level in ("-O0", "-O2"):
        done = subprocess.run(
            [
                compiler, "-std=c11", level, "-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Wformat=2",
                "-Werror", "-fPIC", "-shared", '-DGPU_SIMULATOR_VERSION="0"', "-o", f"{tmp_path}/library.so", *sources,
                "-pthread",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_the_library_is_clean_under_the_sanitizers(simulate: Callable[..., Host], tmp_path: Path) -> None:
    host = simulate(profile="a100-40gb-mig")
    program = f"{tmp_path}/client.c"
    with open(program, "w", encoding="utf-8") as file:
        file.write(SANITIZED)
    sources = sorted(map(str, (FILES / "src").glob("*.c")))
    subprocess.run(
        [
            "cc", "-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover", "-D_GNU_SOURCE",
            '-DGPU_SIMULATOR_VERSION="0"', "-o", f"{tmp_path}/client", program, *sources, "-pthread",
        ],
        check=True,
    )  # fmt: skip
    host.fault("ecc", gpu=0)
    done = subprocess.run([f"{tmp_path}/client"], env=host.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "NVIDIA A100-SXM4-40GB MIG 1g.5gb\n"


SANITIZED = """
#include <stdio.h>
unsigned int nvmlInit_v2(void), nvmlShutdown(void), nvmlDeviceGetHandleByIndex_v2(unsigned int, void **);
unsigned int nvmlDeviceGetMigDeviceHandleByIndex(void *, unsigned int, void **);
unsigned int nvmlDeviceGetName(void *, char *, unsigned int);
unsigned int nvmlDeviceGetTotalEccErrors(void *, unsigned int, unsigned int, unsigned long long *);
int main(void)
{
    void *device, *mig;
    char name[96];
    unsigned long long errors;
    for (int round = 0; round < 3; round++) {
        if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device)
            || nvmlDeviceGetMigDeviceHandleByIndex(device, 2, &mig) || nvmlDeviceGetName(mig, name, sizeof name)
            || nvmlDeviceGetTotalEccErrors(device, 1, 0, &errors) || errors != 1 || nvmlShutdown())
            return 1;
    }
    puts(name);
    return 0;
}
"""
