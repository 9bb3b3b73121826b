# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What real clients see: nvidia-ml-py, nvitop, gpustat, and the symbols that any other looks up."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_stubs
import pytest
from simulated_host import COMMAND, FILES, RECORDINGS, Host

PROFILES = {
    "h100x1": ["NVIDIA H100 80GB HBM3"],
    "h200x4": ["NVIDIA H200"] * 4,
    "a100-40gb-mig": ["NVIDIA A100-SXM4-40GB"] * 2,
    "t4": ["Tesla T4"],
    "v100": ["Tesla V100-SXM2-32GB"] * 4,
    "rtx4090-a6000": ["NVIDIA GeForce RTX 4090", "NVIDIA RTX A6000"],
    "gh200": ["NVIDIA GH200 480GB"],
    "none": [],
}

# Calls every function of a recording and prints what differs from it.
REPLAY = """
recording = json.load(open(sys.argv[1])) if len(sys.argv) > 1 else RECORDING

def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (ctypes.Array, list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "_fields_"):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    return value

def fabric(handle):
    info = n.c_nvmlGpuFabricInfo_v2_t()
    n.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return info

SPECIAL = {
    "nvmlDeviceGetCpuAffinity": lambda handle: n.nvmlDeviceGetCpuAffinity(handle, 4),
    "nvmlDeviceGetMemoryAffinity": lambda handle: n.nvmlDeviceGetMemoryAffinity(handle, 2, 0),
    "nvmlDeviceGetTemperature": lambda handle: n.nvmlDeviceGetTemperature(handle, 0),
    "nvmlDeviceGetMemoryInfo_v2": lambda handle: n.nvmlDeviceGetMemoryInfo(handle, n.nvmlMemory_v2),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": n.nvmlDeviceGetNvLinkRemotePciInfo,
    "nvmlDeviceGetGpuFabricInfoV": fabric,
    "nvmlDeviceGetTopologyCommonAncestor": lambda h, other: n.nvmlDeviceGetTopologyCommonAncestor(h, handles[other]),
    "nvmlDeviceGetP2PStatus": lambda h, other, what: n.nvmlDeviceGetP2PStatus(h, handles[other], what),
}

n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
result = {"asked": 0, "different": []}
for handle, answers in [*zip(handles, recording["devices"], strict=True), (None, recording["system"])]:
    for key, recorded in answers.items():
        name, *arguments = key.split(":")
        if isinstance(recorded.get("error"), str) or name in ("nvmlDeviceIsMigDeviceHandle", *UNIQUE):
            continue
        function = SPECIAL.get(name) or getattr(n, name)
        result["asked"] += 1
        try:
            answer = {"value": plain(function(*([handle] if handle else []), *map(int, arguments)))}
        except n.NVMLError as error:
            answer = {"error": error.value}
        if answer != recorded:
            result["different"].append([key, recorded, answer])
"""


@pytest.mark.parametrize(("profile", "asked"), [("h100x1", 160), ("h200x4", 700)])
def test_every_recorded_answer_is_given_as_recorded(simulate: Callable[..., Host], profile: str, asked: int) -> None:
    """UUIDs and serial numbers are each host's own; CPU affinity is what is left of it on this machine."""
    host = simulate(profile=profile)
    recording = json.loads((RECORDINGS / f"{profile}.nvml.json").read_text(encoding="utf-8"))
    unique = ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetCpuAffinity")
    answer = host.python(f"RECORDING = json.loads({json.dumps(recording)!r})\nUNIQUE = {unique!r}\n{REPLAY}")
    assert answer["different"] == []
    assert answer["asked"] > asked


def test_recording_the_simulated_machine_gives_the_recording(simulate: Callable[..., Host]) -> None:
    """What ``gpu-simulator record`` asks a machine, it finds in the simulated one as it was in the real one."""
    host = simulate(profile="h200x4")
    done = host.client(sys.executable, "-B", str(COMMAND), "record")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    recorded = json.loads((RECORDINGS / "h200x4.nvml.json").read_text(encoding="utf-8"))
    assert made["system"] == recorded["system"]
    assert len(made["devices"]) == len(recorded["devices"])
    for new, old in zip(made["devices"], recorded["devices"], strict=True):
        shared = new.keys() & old.keys() - {"nvmlDeviceGetCpuAffinity"}
        assert len(shared) > 150
        assert {key: new[key] for key in shared} == {key: old[key] for key in shared}


def test_recording_without_a_driver_is_refused_in_one_sentence(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    host.fault("not_loaded")
    done = host.client(sys.executable, "-B", str(COMMAND), "record")
    assert done.returncode == 1
    assert done.stderr == "gpu-simulator: NVML does not start on this machine: Driver Not Loaded.\n"


def test_affinity_is_as_recorded_where_the_host_has_the_cpus(simulate: Callable[..., Host]) -> None:
    import os

    host = simulate(profile="h200x4")
    words = host.python("""
n.nvmlInit()
result = list(n.nvmlDeviceGetCpuAffinity(n.nvmlDeviceGetHandleByIndex(0), 4))
""")
    cpus = os.cpu_count() or 1
    assert words == [(2 ** min(cpus, 64)) - 1, 0, 0, 0]


@pytest.mark.parametrize(("profile", "names"), PROFILES.items(), ids=PROFILES)
def test_each_profile_has_its_gpus(simulate: Callable[..., Host], profile: str, names: list[str]) -> None:
    host = simulate(profile=profile)
    found = host.python("""
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
result = [
    [n.nvmlDeviceGetName(h), n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetPciInfo(h).busId, n.nvmlDeviceGetMinorNumber(h),
     n.nvmlDeviceGetIndex(h), n.nvmlDeviceGetMemoryInfo(h).total]
    for h in handles
]
""")
    assert [gpu[0] for gpu in found] == names
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu[1]) for gpu in found)
    for column in (1, 2, 3, 4):
        assert len({gpu[column] for gpu in found}) == len(names), "each GPU has its own"
    assert all(gpu[5] >= 15 * 2**30 for gpu in found)


@pytest.mark.parametrize("profile", PROFILES)
def test_no_answer_of_a_profile_breaks_the_binding(simulate: Callable[..., Host], profile: str) -> None:
    """Every function of nvidia-ml-py that takes a GPU only gives a value or an NVML error."""
    host = simulate(profile=profile)
    answers = host.python("""
import inspect
n.nvmlInit()
changing = ("Set", "Reset", "Clear", "Modify", "Remove", "Create", "Register", "Freeze", "Validate", "Discover")
result = {"value": 0, "error": 0}
for index in range(n.nvmlDeviceGetCount()):
    handle = n.nvmlDeviceGetHandleByIndex(index)
    for name, function in inspect.getmembers(n, inspect.isfunction):
        if not name.startswith("nvmlDeviceGet") or any(word in name for word in changing):
            continue
        required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        if len(required) != 1 or required[0].name not in ("handle", "device"):
            continue
        try:
            function(handle)
            result["value"] += 1
        except n.NVMLError:
            result["error"] += 1
""")
    gpus = len(PROFILES[profile])
    assert answers["value"] >= 35 * gpus
    assert answers["value"] + answers["error"] >= 100 * gpus


def test_gh200_is_in_pci_domain_nine(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="gh200")
    assert host.python("""
n.nvmlInit()
pci = n.nvmlDeviceGetPciInfo(n.nvmlDeviceGetHandleByPciBusId(b"00000009:01:00.0"))
result = [pci.domain, pci.busId, pci.busIdLegacy]
""") == [9, "00000009:01:00.0", "0009:01:00.0"]


def test_direct_nvlinks_lead_to_the_other_gpus(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="v100")
    remotes = host.python("""
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(1)
result = []
for link in range(6):
    assert n.nvmlDeviceGetNvLinkState(handle, link) == 1
    result.append(n.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
try:
    n.nvmlDeviceGetNvLinkState(handle, 6)
except n.NVMLError as error:
    result.append(error.value)
""")
    assert remotes == [f"00000000:0{bus}:00.0" for bus in (1, 1, 3, 3, 4, 4)] + [2]


def test_a_gpu_alone_has_no_nvlinks(simulate: Callable[..., Host]) -> None:
    host = simulate(gpus=[{"model": "v100-sxm2-32gb"}])
    assert (
        host.python("""
n.nvmlInit()
try:
    n.nvmlDeviceGetNvLinkState(n.nvmlDeviceGetHandleByIndex(0), 0)
except n.NVMLError as error:
    result = error.value
""")
        == 3
    )


def test_handles_are_found_by_every_name(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    assert host.python("""
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(2)
pci = n.nvmlDeviceGetPciInfo(handle)
same = [
    n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(handle)),
    n.nvmlDeviceGetHandleBySerial(n.nvmlDeviceGetSerial(handle)),
    *(n.nvmlDeviceGetHandleByPciBusId(text) for text in (pci.busId, pci.busIdLegacy, "00:08.0")),
]
result = [n.nvmlDeviceGetIndex(other) for other in same]
for find in (n.nvmlDeviceGetHandleByUUID, n.nvmlDeviceGetHandleBySerial, n.nvmlDeviceGetHandleByPciBusId):
    try:
        find("0000:77:00.0")
    except n.NVMLError as error:
        result.append(error.value)
""") == [2, 2, 2, 2, 2, 6, 6, 6]


def test_uuids_are_a_hosts_own_and_stay(simulate: Callable[..., Host]) -> None:
    read = "n.nvmlInit()\nresult = n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0))"
    first = simulate(profile="t4", seed="a").python(read)
    assert simulate(profile="t4", seed="b").python(read) != first
    assert simulate(profile="t4", seed="a").python(read) == first


# ---- MIG --------------------------------------------------------------------------------------------------------

MIG = """
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
migs = []
for index in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
    try:
        migs.append(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    except n.NVMLError_NotFound:
        pass
"""


def test_mig_devices_are_what_the_profile_says(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="a100-40gb-mig")
    found = host.python(f"""{MIG}
result = []
for mig in migs:
    attributes = n.nvmlDeviceGetAttributes(mig)
    parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    again = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(mig))
    assert n.nvmlDeviceGetUUID(again) == n.nvmlDeviceGetUUID(mig)
    assert n.nvmlDeviceGetUUID(parent) == n.nvmlDeviceGetUUID(gpu)
    assert n.nvmlDeviceGetUUID(mig).startswith("MIG-")
    assert n.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert n.nvmlDeviceGetMemoryInfo(mig).total == attributes.memorySizeMB * 2**20
    result.append([n.nvmlDeviceGetName(mig), n.nvmlDeviceGetGpuInstanceId(mig), n.nvmlDeviceGetComputeInstanceId(mig),
                   attributes.gpuInstanceSliceCount, attributes.memorySizeMB, attributes.multiprocessorCount,
                   n.nvmlDeviceGetIndex(mig)])
""")
    assert found == [
        ["NVIDIA A100-SXM4-40GB MIG 3g.20gb", 1, 0, 3, 19968, 42, 0],
        ["NVIDIA A100-SXM4-40GB MIG 2g.10gb", 5, 0, 2, 9856, 28, 1],
        ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", 13, 0, 1, 4864, 14, 2],
    ]


def test_instances_and_their_profiles_are_those_of_the_mig_devices(simulate: Callable[..., Host]) -> None:
    """NVIDIA's nvidia-ctk describes no MIG device without them."""
    host = simulate(profile="a100-40gb-mig")
    found = host.python(f"""{MIG}
import ctypes
def ask(name, kind, *arguments):
    answer = kind()
    code = n._nvmlGetFunctionPointer(name)(*arguments, ctypes.byref(answer))
    return code or answer
result = []
for mig in migs:
    instance = n.nvmlDeviceGetGpuInstanceById(gpu, n.nvmlDeviceGetGpuInstanceId(mig))
    compute = n.nvmlGpuInstanceGetComputeInstanceById(instance, n.nvmlDeviceGetComputeInstanceId(mig))
    of_gpu, of_compute = n.nvmlGpuInstanceGetInfo(instance), n.nvmlComputeInstanceGetInfo(compute)
    for number in range(18):
        profile = ask("nvmlDeviceGetGpuInstanceProfileInfo", n.c_nvmlGpuInstanceProfileInfo_t, gpu, number)
        if profile != 3 and profile.id == of_gpu.profileId:
            break
    kind = n.c_nvmlComputeInstanceProfileInfo_t
    parts = [ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", kind, instance, one, 0) for one in range(9)]
    part = next(part for part in parts if part != 3 and part.id == of_compute.profileId)
    result.append([of_gpu.id, number, profile.id, profile.sliceCount, profile.memorySizeMB, of_gpu.placement.start,
                   of_gpu.placement.size, of_compute.id, part.sliceCount, part.multiprocessorCount])
for id in (2, 19):
    try:
        n.nvmlDeviceGetGpuInstanceById(gpu, id)
    except n.NVMLError_NotFound:
        result.append("none")
""")
    assert found == [
        [1, 2, 9, 3, 19968, 0, 4, 0, 3, 42],
        [5, 1, 14, 2, 9856, 4, 2, 0, 2, 28],
        [13, 0, 19, 1, 4864, 6, 1, 0, 1, 14],
        "none",
        "none",
    ]


def test_what_a_mig_device_does_not_have_is_not_supported(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="a100-40gb-mig")
    assert host.python(f"""{MIG}
result = []
calls = [
    (n.nvmlDeviceGetTemperature, migs[0], 0), (n.nvmlDeviceGetPowerUsage, migs[0]), (n.nvmlDeviceGetSerial, migs[0]),
    (n.nvmlDeviceGetUtilizationRates, migs[0]), (n.nvmlDeviceGetUtilizationRates, gpu),
    (n.nvmlDeviceGetMigDeviceHandleByIndex, migs[0], 0), (n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, gpu),
    (n.nvmlDeviceGetGpuInstanceId, gpu), (n.nvmlDeviceGetMigDeviceHandleByIndex, n.nvmlDeviceGetHandleByIndex(1), 0),
]
for function, *arguments in calls:
    try:
        result.append(function(*arguments))
    except n.NVMLError as error:
        result.append(error.value)
""") == [3, 3, 3, 3, 3, 2, 2, 2, 6]


def test_mig_mode_without_instances(simulate: Callable[..., Host]) -> None:
    host = simulate(gpus=[{"model": "h100-80gb-hbm3", "mig": []}])
    assert host.python(f"{MIG}\nresult = [n.nvmlDeviceGetMigMode(gpu), len(migs)]") == [[1, 1], 0]


@pytest.mark.parametrize(
    ("model", "mig", "instances"),
    [
        ("a100-sxm4-40gb", ["1g.5gb"] * 7, [7, 8, 9, 10, 11, 12, 13]),
        ("a100-sxm4-40gb", ["7g.40gb"], [0]),
        ("a100-sxm4-40gb", ["4g.20gb", "3g.20gb"], [1, 2]),
        ("h100-80gb-hbm3", ["1g.20gb"] * 3 + ["1g.10gb"], [3, 4, 5, 13]),
        ("h200", ["3g.71gb", "3g.71gb"], [1, 2]),
    ],
)
def test_mig_profiles_are_placed_as_the_driver_does(
    simulate: Callable[..., Host], model: str, mig: list[str], instances: list[int]
) -> None:
    host = simulate(gpus=[{"model": model, "mig": mig}])
    assert host.python(f"{MIG}\nresult = [n.nvmlDeviceGetGpuInstanceId(mig) for mig in migs]") == instances


# ---- symbols ----------------------------------------------------------------------------------------------------


def test_every_symbol_of_the_binding_resolves(host: Host) -> None:
    library = ctypes.CDLL(str(host.library))
    symbols = make_stubs.with_older_versions(make_stubs.binding_symbols())
    assert len(symbols) > 400
    assert [name for name in sorted(symbols) if not hasattr(library, name)] == []
    assert hasattr(library, "gpuSimulatorVersion")


def test_stubs_are_those_of_the_installed_binding() -> None:
    assert make_stubs.stubs() == (FILES / "src" / "stubs.c").read_text(encoding="utf-8")


def test_no_other_symbol_is_exported(host: Host) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(host.library)], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split()[-1] for line in listed.splitlines()]
    assert [name for name in names if not name.startswith("nvml")] == ["gpuSimulatorVersion"]


def test_unsupported_functions_say_so_and_need_an_initialized_library(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="t4")
    assert host.python(
        """
import re, pathlib
library = ctypes.CDLL("libnvidia-ml.so.1")
stubs = pathlib.Path(STUBS).read_text()
names = re.findall(r"^STUB\\((\\w+)\\)", stubs, re.M)
before = {getattr(library, name)(None, None, None) for name in names}
library.nvmlInit_v2()
after = {getattr(library, name)(None, None, None) for name in names}
result = [len(names) > 200, sorted(before), sorted(after)]
""".replace("STUBS", repr(str(FILES / "src" / "stubs.c")))
    ) == [True, [1], [3]]


# ---- structs ----------------------------------------------------------------------------------------------------

STRUCTS = {
    "pci_info": "nvmlPciInfo_t", "pci_info_ext": "nvmlPciInfoExt_v1_t", "memory": "c_nvmlMemory_t",
    "memory_v2": "c_nvmlMemory_v2_t", "bar1_memory": "c_nvmlBAR1Memory_t", "utilization": "c_nvmlUtilization_t",
    "attributes": "c_nvmlDeviceAttributes", "row_histogram": "c_nvmlRowRemapperHistogramValues",
    "ecc_counts": "c_nvmlEccErrorCounts_t", "conf_compute_state": "c_nvmlConfComputeSystemState_t",
    "driver_branch": "c_nvmlSystemDriverBranchInfo_v1_t", "temperature": "c_nvmlTemperature_v1_t",
    "fabric_info": "c_nvmlGpuFabricInfo_t", "fabric_info_v": "c_nvmlGpuFabricInfo_v2_t",
    "process_info": "c_nvmlProcessInfo_v3_t", "process_detail": "c_nvmlProcessDetail_v1_t",
    "process_detail_list": "c_nvmlProcessDetailList_v1_t", "process_sample": "c_nvmlProcessUtilizationSample_t",
    "violation": "c_nvmlViolationTime_t", "field": "c_nvmlFieldValue_t",
    "conf_compute_memory": "c_nvmlConfComputeMemSizeInfo_t",
}  # fmt: skip


def test_structs_are_laid_out_as_the_bindings(tmp_path: Path) -> None:
    """Sizes and the offset of each field, as the C compiler and ctypes see them."""
    import pynvml

    header = (FILES / "src" / "abi.h").read_text(encoding="utf-8")
    prints, expected = [], []
    for ours, theirs in STRUCTS.items():
        body = re.search(rf"struct {ours} {{(.*?)}};", header, re.DOTALL)
        assert body is not None, ours
        declared = [re.sub(r"\[\d+\]|\*", "", name).strip() for line in body[1].split(";") for name in names_in(line)]
        layout = getattr(pynvml, theirs)
        fields = [field[0] for field in layout._fields_]
        assert len(declared) == len(fields), f"{ours} {declared} {fields}"
        prints.append(f'printf("%zu", sizeof(struct {ours}));')
        prints += [f'printf(" %zu", offsetof(struct {ours}, {name}));' for name in declared]
        prints.append('printf("\\n");')
        expected.append([ctypes.sizeof(layout), *(getattr(layout, field).offset for field in fields)])
    program = tmp_path / "layout.c"
    program.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{FILES}/src/abi.h"\n'
        f"int main(void) {{\n{chr(10).join(prints)}\nreturn 0; }}\n"
    )
    subprocess.run(["cc", "-o", str(tmp_path / "layout"), str(program)], check=True)
    printed = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True).stdout
    assert [list(map(int, line.split())) for line in printed.splitlines()] == expected


def names_in(declaration: str) -> list[str]:
    """Return the names that a C declaration such as "unsigned int a, b" declares."""
    words = declaration.split(",")
    return [words[0].split()[-1], *words[1:]] if declaration.strip() else []


# ---- other clients ----------------------------------------------------------------------------------------------


def test_gpustat_shows_the_gpus(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="rtx4090-a6000")
    done = host.client(sys.executable, "-m", "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    shown: list[dict[str, Any]] = json.loads(done.stdout)["gpus"]
    assert [gpu["name"] for gpu in shown] == PROFILES["rtx4090-a6000"]
    assert [gpu["memory.total"] for gpu in shown] == [24564, 49140]
    assert [gpu["fan.speed"] for gpu in shown] == [30, 30]
    assert all(gpu["utilization.gpu"] == 0 and gpu["processes"] == [] for gpu in shown)


def test_gpustat_goes_on_where_a_gpu_is_lost(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    host.fault("lost", gpu=1)
    done = host.client(sys.executable, "-m", "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    assert [gpu["name"] for gpu in json.loads(done.stdout)["gpus"]] == [
        "NVIDIA H200", "((GPU is lost))", "NVIDIA H200", "NVIDIA H200",
    ]  # fmt: skip


@pytest.mark.parametrize("profile", ["h200x4", "a100-40gb-mig", "t4", "rtx4090-a6000"])
def test_nvitop_shows_the_gpus(simulate: Callable[..., Host], profile: str) -> None:
    host = simulate(profile=profile)
    done = host.client(sys.executable, "-m", "nvitop", "-1", "--no-unicode", "--force-color")
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert done.returncode == 0, done.stderr
    assert "580.159.04" in text
    assert "ERROR" not in done.stderr
    for name in PROFILES[profile]:
        assert name.removeprefix("NVIDIA ")[:12] in text


def test_nvitop_knows_mig_devices(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="a100-40gb-mig")
    done = host.client(
        sys.executable, "-c",
        "import nvitop, json; d = nvitop.Device(0); print(json.dumps([[m.name(), m.memory_total(), m.uuid()]"
        " for m in d.mig_devices()]))",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = [mig[0] for mig in json.loads(done.stdout)]
    assert names == [f"NVIDIA A100-SXM4-40GB MIG {profile}" for profile in ("3g.20gb", "2g.10gb", "1g.5gb")]
