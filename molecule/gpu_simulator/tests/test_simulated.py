# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users of a simulated host rely on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from testinfra.host import Host

UNITS = ["gpu-simulator.service"]

# Names and bus ids by plain ctypes: nothing is installed for it.
ASK = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
count = ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
names = []
for index in range(count.value):
    gpu, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    code = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu))
    if code == 0:
        code = nvml.nvmlDeviceGetName(gpu, name, 96)
    names.append(name.value.decode() or code)
print(json.dumps(names))
"""

# The UUIDs of the GPUs that this process sees, each with those of its MIG devices.
ASK_UUIDS = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
count = ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))

def uuid_of(device):
    text = ctypes.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(device, text, 96) == 0
    return text.value.decode()

seen = {}
for index in range(count.value):
    gpu, mig = ctypes.c_void_p(), ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)) == 0
    migs = seen[uuid_of(gpu)] = []
    while nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, len(migs), ctypes.byref(mig)) == 0:
        migs.append(uuid_of(mig))
print(json.dumps(seen))
"""

EXPECTED: dict[str, dict[str, Any]] = {
    "h200": {
        "names": ["NVIDIA H200"] * 4,
        "pci": [f"00:0{device}.0 3D controller [0302]: NVIDIA Corporation" for device in range(6, 10)],
        "minors": 4,
    },
    "a100": {
        "names": ["NVIDIA A100-SXM4-40GB"] * 2,
        "pci": [f"0{bus}:00.0 3D controller [0302]: NVIDIA Corporation" for bus in (1, 2)],
        "minors": 2,
    },
    "mixed": {
        "names": ["Tesla T4", 15, "NVIDIA GeForce RTX 4090", "NVIDIA GH200 480GB"],
        "pci": [
            "0000:01:00.0 3D controller [0302]: NVIDIA Corporation",
            "0000:02:00.0 3D controller [0302]: NVIDIA Corporation",
            "0000:03:00.0 VGA compatible controller [0300]: NVIDIA Corporation",
            "0009:01:00.0 3D controller [0302]: NVIDIA Corporation",
        ],
        "minors": 4,
    },
}

CAP = "/dev/nvidia-caps/nvidia-cap"
# What slurmd finds with its NVML plugin.
GRES = {
    "h200": [
        "Name=gpu Type=nvidia_h200 Count=1 File=/dev/nvidia0 Links=-1,0,0,0",
        "Name=gpu Type=nvidia_h200 Count=1 File=/dev/nvidia1 Links=0,-1,0,0",
        "Name=gpu Type=nvidia_h200 Count=1 File=/dev/nvidia2 Links=0,0,-1,0",
        "Name=gpu Type=nvidia_h200 Count=1 File=/dev/nvidia3 Links=0,0,0,-1",
    ],
    "a100": [
        "Name=gpu Type=nvidia_a100-sxm4-40gb Count=1 File=/dev/nvidia1 Links=0,-1",
        f"Name=gpu Type=nvidia_a100_1g.5gb Count=1 File=/dev/nvidia0,{CAP}120,{CAP}121 Links=(null)",
        f"Name=gpu Type=nvidia_a100_2g.10gb Count=1 File=/dev/nvidia0,{CAP}48,{CAP}49 Links=(null)",
        f"Name=gpu Type=nvidia_a100_3g.20gb Count=1 File=/dev/nvidia0,{CAP}12,{CAP}13 Links=(null)",
    ],
}


def of(host: Host) -> dict[str, Any]:
    """Return what this host is expected to show."""
    return EXPECTED[str(host.backend.get_hostname())]


def test_nvml_shows_the_gpus_and_the_fault(host: Host) -> None:
    assert json.loads(host.check_output("python3 -c %s", ASK)) == of(host)["names"]


def test_the_linker_finds_the_library_in_a_file_of_the_drivers_version(host: Host) -> None:
    cache = host.check_output("ldconfig -p")
    assert re.findall(r"libnvidia-ml\S* .*=> (\S+)", cache) == ["/usr/local/lib/gpu-simulator/libnvidia-ml.so.1"]
    assert host.file("/usr/local/lib/gpu-simulator/libnvidia-ml.so.1").linked_to.endswith("libnvidia-ml.so.580.159.04")


def test_lspci_shows_the_gpus(host: Host) -> None:
    lines = [line for line in host.check_output("lspci -nn -d 10de:").splitlines() if line]
    assert len(lines) == len(of(host)["pci"])
    for line, start in zip(lines, of(host)["pci"], strict=True):
        assert line.startswith(start)


def test_real_pci_devices_stay_visible(host: Host) -> None:
    for name in host.check_output("ls /sys/bus/pci/devices").split():
        assert host.file(f"/sys/bus/pci/devices/{name}/vendor").content_string.startswith("0x"), name


def test_proc_has_the_driver(host: Host) -> None:
    assert "580.159.04" in host.file("/proc/driver/nvidia/version").content_string
    assert host.file("/var/lib/gpu-simulator/root/sys/module/nvidia/version").content_string == "580.159.04\n"
    assert len(host.file("/proc/driver/nvidia/gpus").listdir()) == len(of(host)["pci"])


def test_device_nodes_exist_and_can_not_be_opened(host: Host) -> None:
    for minor in range(of(host)["minors"]):
        assert host.check_output("stat -c '%%F %%t %%T %%a' /dev/nvidia%s", str(minor)) == (
            f"character special file c3 {minor:x} 666"
        )
    assert host.file("/dev/nvidiactl").exists
    assert "No such device or address" in host.run("cat /dev/nvidia0").stderr


def test_marker_for_modules(host: Host) -> None:
    marker = json.loads(host.file("/etc/gpu-simulator/marker.json").content_string)
    assert marker["simulator"] == "cudahub.gpu"
    assert marker["driver"] is True
    assert host.file(marker["root"]).is_directory


def test_unit_brings_nodes_and_mounts_back(host: Host) -> None:
    unit = host.service("gpu-simulator.service")
    assert unit.is_enabled
    assert unit.is_running
    host.check_output("gpu-simulator stop")
    assert not host.file("/proc/driver/nvidia").exists
    host.check_output("rm -r /dev/nvidia* && systemctl restart gpu-simulator.service")
    assert host.file("/dev/nvidia0").exists
    assert host.file("/proc/driver/nvidia/version").exists


def test_users_without_privileges_see_the_gpus(host: Host) -> None:
    assert json.loads(host.check_output("runuser -u nobody -- python3 -c %s", ASK)) == of(host)["names"]


def seen_in_unit(host: Host, user: str, *allowed: str) -> Any:
    """Return the UUIDs that a service sees that may open those nodes only."""
    allow = " ".join(f"-p 'DeviceAllow={node} rw'" for node in ("/dev/nvidiactl", *allowed))
    run = f"systemd-run --quiet --wait --pipe --collect -p User={user} -p DevicePolicy=closed {allow}"
    return json.loads(host.check_output(f"{run} python3 -c %s", ASK_UUIDS))


def test_a_service_sees_the_gpus_that_it_may_open(host: Host) -> None:
    if host.backend.get_hostname() != "h200":
        return
    gpus = [gpu["uuid"] for gpu in json.loads(host.check_output("gpu-simulator show"))["gpus"]]
    assert seen_in_unit(host, "root", "/dev/nvidia1") == {gpus[1]: []}
    assert list(seen_in_unit(host, "nobody", "/dev/nvidia3", "/dev/nvidia0")) == [gpus[0], gpus[3]]
    assert seen_in_unit(host, "nobody") == {}
    assert list(json.loads(host.check_output("python3 -c %s", ASK_UUIDS))) == gpus, "the host itself sees all"


def test_a_service_sees_the_mig_devices_that_it_may_open(host: Host) -> None:
    if host.backend.get_hostname() != "a100":
        return
    gpu, other = json.loads(host.check_output("gpu-simulator show"))["gpus"]
    migs = [mig["uuid"] for mig in gpu["mig"]]
    assert seen_in_unit(host, "nobody", "/dev/nvidia0", f"{CAP}48", f"{CAP}49") == {gpu["uuid"]: [migs[1]]}
    assert seen_in_unit(host, "nobody", "/dev/nvidia0", f"{CAP}48") == {gpu["uuid"]: []}
    assert seen_in_unit(host, "nobody", "/dev/nvidia1", f"{CAP}48", f"{CAP}49") == {other["uuid"]: []}
    assert seen_in_unit(host, "root", "/dev/nvidia0") == {gpu["uuid"]: migs}, "CAP_SYS_ADMIN has all capabilities"


def test_faults_switch_at_run_time(host: Host) -> None:
    before = json.loads(host.check_output("gpu-simulator fault list"))
    try:
        host.check_output("gpu-simulator fault add --gpu 0 --kind no_permission")
        assert json.loads(host.check_output("python3 -c %s", ASK))[0] == 4
        host.check_output("gpu-simulator fault clear")
        assert 4 not in json.loads(host.check_output("python3 -c %s", ASK))
        refused = host.run("gpu-simulator fault add --gpu 77 --kind lost")
        assert refused.rc == 1
        assert refused.stderr == "gpu-simulator: The fault 'lost' is for GPU 77, which this simulation does not have.\n"
    finally:
        host.check_output("gpu-simulator fault clear")
        for fault in before:
            host.check_output(f"gpu-simulator fault add --kind {fault['kind']} --gpu {fault['gpu']}")


def test_role_can_verify_alone(host: Host) -> None:
    assert json.loads(host.check_output("gpu-simulator check"))["gpus"] == len(of(host)["names"])


@pytest.mark.parametrize("name", GRES)
def test_slurm_finds_the_gpus(host: Host, name: str) -> None:
    if host.backend.get_hostname() != name:
        return
    shown = host.run("slurmd -G -N %s", name)
    output = shown.stdout + shown.stderr
    found = re.findall(r"Gres (Name=gpu Type=\S+ Count=\d+) .*?(File=\S+) .*?(Links=\S+)", output)
    assert sorted(" ".join(parts) for parts in found) == GRES[name], output
    assert "error: " not in re.sub(r"error: (Domain socket|xcpuinfo_hwloc).*", "", output)
    for path in {path for parts in found for path in parts[1].removeprefix("File=").split(",")}:
        assert host.file(path).exists, path
