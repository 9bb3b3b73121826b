# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVML that replays a recording of a real machine, with changes, and made-up file trees."""

from __future__ import annotations

import copy
import json
import re
import typing as t
from pathlib import Path
from types import SimpleNamespace

from ansible_collections.cudahub.gpu.plugins.module_utils import _nvml

RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
RECORDED_AS = {
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
}


class FakeNvml:
    """Answers as the recorded devices did. Handles are indexes; a handle of a MIG instance is a pair."""

    def __init__(self, devices: list[dict[str, t.Any]], system: dict[str, t.Any], *, simulator: bool = False) -> None:
        self.devices = devices
        self.system = system
        self.instances: dict[int, list[dict[str, t.Any] | None]] = {}
        self.errors: dict[tuple[str, int | None], int] = {}
        self.calls: list[str] = []
        self.simulator = simulator

    @property
    def origin(self) -> str | None:
        return __file__

    def change(self, device: int, function: str, value: t.Any) -> FakeNvml:
        """Let a function answer otherwise for a device."""
        self.devices[device][function] = {"value": value}
        return self

    def fail(self, function: str, code: int, device: int | None = None) -> FakeNvml:
        """Let a function, or all with ``*``, fail for a device or for the system."""
        self.errors[function, device] = code
        return self

    def in_mig_mode(self, device: int, instances: list[dict[str, t.Any] | None]) -> FakeNvml:
        """Turn MIG mode on, with these instances; None is an unused slot."""
        self.change(device, "nvmlDeviceGetMigMode", [1, 1])
        self.change(device, "nvmlDeviceGetMaxMigDeviceCount", len(instances))
        self.instances[device] = instances
        return self

    def has_symbol(self, name: str) -> bool:
        return self.simulator and name == _nvml.SIMULATOR_SYMBOL

    def call(self, function: str, *args: t.Any) -> t.Any:
        self.calls.append(function)
        handle = args[0] if args and function.startswith("nvmlDevice") else None
        device = handle[0] if isinstance(handle, tuple) else handle
        for key in ((function, device), ("*", device)):
            if key in self.errors and (device is not None or key[0] != "*"):
                raise _nvml.NvmlError(self.errors[key])
        if function == "nvmlInit":
            return None
        if function == "nvmlDeviceGetHandleByIndex":
            return args[0]
        if function == "nvmlDeviceGetMigDeviceHandleByIndex":
            if self.instances[device][args[1]] is None:
                raise _nvml.NvmlError(_nvml.NOT_FOUND)
            return (device, args[1])
        if isinstance(handle, tuple):
            instance = self.instances[handle[0]][handle[1]]
            assert instance is not None
            return _answer(instance, function)
        source = self.system if handle is None else self.devices[device]
        name = RECORDED_AS.get(function, function)
        with_args = ":".join([name, *map(str, args[1:])])
        if "NvLink" in function and with_args not in source:
            raise _nvml.NvmlError(_nvml.INVALID_ARGUMENT)
        return _answer(source, with_args if with_args in source else name)


def _answer(source: dict[str, t.Any], name: str) -> t.Any:
    answer = source.get(name, {"error": _nvml.NOT_SUPPORTED})
    if "value" not in answer:
        raise _nvml.NvmlError(answer["error"])
    value = copy.deepcopy(answer["value"])
    return SimpleNamespace(**value) if isinstance(value, dict) else value


def recorded(name: str) -> FakeNvml:
    """The machine of a recording, for example ``h200x4``."""
    data = json.loads((RECORDINGS / f"{name}.nvml.json").read_text())
    return FakeNvml(data["devices"], data["system"])


def mig_instance(index: int, profile: str = "1g.5gb", slices: int = 1, memory_mib: int = 4864) -> dict[str, t.Any]:
    """What NVML answers for a MIG instance of an A100."""
    return {
        "nvmlDeviceGetUUID": {"value": f"MIG-00000000-0000-5000-8000-00000000000{index}"},
        "nvmlDeviceGetName": {"value": f"NVIDIA A100-SXM4-40GB MIG {profile}"},
        "nvmlDeviceGetGpuInstanceId": {"value": 7 + index},
        "nvmlDeviceGetComputeInstanceId": {"value": 0},
        "nvmlDeviceGetAttributes": {"value": {"memorySizeMB": memory_mib, "gpuInstanceSliceCount": slices}},
    }


def no_command(command: t.Sequence[str]) -> str:
    """Stand for commands where none may be run."""
    raise AssertionError(f"{command} is not needed")


def report(nvml: _nvml.Nvml) -> _nvml.Report:
    """What the parent gets to know of it."""
    lines: list[bytes] = []
    _nvml.read(nvml, lambda document: lines.append(json.dumps(document).encode()))
    return _nvml.parse(lines)


def add_pci_device(
    root: Path,
    address: str,
    device_id: str = "0x2335",
    class_code: str = "0x030200",
    vendor: str = "0x10de",
    driver: str | None = "nvidia",
    numa_node: str = "-1",
    cpus: str | None = None,
) -> Path:
    """A device in a made-up sysfs."""
    path = root / "sys/bus/pci/devices" / address
    path.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("device", device_id), ("class", class_code), ("numa_node", numa_node)):
        (path / name).write_text(text + "\n")
    if cpus is not None:
        (path / "local_cpulist").write_text(cpus + "\n")
    if driver is not None:
        (path / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    return path


def recorded_tree(root: Path, name: str) -> Path:
    """The PCI tree and the proc files of a recording."""
    for line in (RECORDINGS / f"{name}.pci.txt").read_text().splitlines():
        address, vendor, device, class_code, numa_node = line.split()
        driver = "nvidia" if vendor == "0x10de" else None
        add_pci_device(root, address, device, class_code, vendor, driver, numa_node)
    load_module(root)
    for text in re.split(r"(?m)^(?=Model:)", (RECORDINGS / f"{name}.proc.txt").read_text())[1:]:
        location = re.search(r"Bus Location:\s+(\S+)", text)
        assert location is not None
        directory = root / "proc/driver/nvidia/gpus" / location.group(1)
        directory.mkdir(parents=True)
        (directory / "information").write_text(text)
    return root


def load_module(root: Path, version: str = "580.159.04", flavour: str = "Open ") -> None:
    """A loaded kernel module, in a made-up proc and sysfs."""
    (root / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
    (root / "proc/driver/nvidia/version").write_text(
        f"NVRM version: NVIDIA UNIX {flavour}Kernel Module for x86_64  {version}  Release Build  (builder@host)\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    (root / "sys/module/nvidia").mkdir(parents=True, exist_ok=True)
    (root / "sys/module/nvidia/version").write_text(version + "\n")


def add_library(root: Path, version: str, directory: str = "usr/lib/x86_64-linux-gnu") -> None:
    """The file of an installed library."""
    path = root / directory
    path.mkdir(parents=True, exist_ok=True)
    (path / f"libnvidia-ml.so.{version}").write_text("")
