# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The made-up tree: PCI devices in sysfs, /proc/driver/nvidia, and the device nodes' numbers."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from .answers import answers, pci_word
from .base import Changes
from .faults import driver_fault
from .simulation import Gpu, Simulation

NVML_MAJOR, CONTROL_MINOR, MODESET_MINOR, UVM_MINOR, UVM_TOOLS_MINOR, CAPS_MINOR = 195, 255, 254, 253, 252, 1024


def _needs_proprietary(simulation: Simulation) -> bool:
    """Volta and older work with the proprietary kernel modules only."""
    return any(gpu.model["nvml"]["nvmlDeviceGetArchitecture"]["value"] < 6 for gpu in simulation.gpus)


def loaded_version(simulation: Simulation, faults: list[dict[str, Any]]) -> str | None:
    """Return the version of the loaded kernel module: none if not loaded, an older one in a mismatch."""
    fault = driver_fault(faults)
    if not simulation.driver or fault == "not_loaded":
        return None
    if fault == "mismatch":
        branch = simulation.driver_version.split(".")[0]
        return f"{branch}.01" if simulation.driver_version != f"{branch}.01" else f"{branch}.02"
    return simulation.driver_version


def capability_minors(simulation: Simulation) -> dict[str, int]:
    """Return the minor number of each MIG capability, by the path that the driver gives it."""
    minors = {"config": 1, "monitor": 2}
    for gpu in simulation.gpus:
        for mig in gpu.migs:
            of_gpu_instance, of_compute_instance = gpu.capabilities(mig)
            minors[f"gpu{gpu.index}/gi{mig.gpu_instance}/access"] = of_gpu_instance
            minors[f"gpu{gpu.index}/gi{mig.gpu_instance}/ci{mig.compute_instance}/access"] = of_compute_instance
    return minors


def _pci_config(gpu: Gpu) -> bytes:
    config = bytearray(256)
    device, subsystem = pci_word(gpu, "device"), pci_word(gpu, "subsystem")
    pci_class = int(gpu.model["pci"]["class"], 16)
    config[0:4] = device.to_bytes(4, "little")
    config[4:6] = (0x0406).to_bytes(2, "little")
    config[8] = int(gpu.model["pci"].get("revision", "0xa1"), 16)
    config[9:12] = pci_class.to_bytes(3, "little")
    config[0x2C:0x30] = subsystem.to_bytes(4, "little")
    return bytes(config)


def tree(simulation: Simulation, faults: list[dict[str, Any]]) -> dict[str, str | bytes]:
    """Return the made-up tree: file contents by path below the root; a path ending in @ is a link."""
    files: dict[str, str | bytes] = {}
    version = loaded_version(simulation, faults)
    for gpu in simulation.gpus:
        base = f"sys/bus/pci/devices/{gpu.sysfs_address}"
        pci = gpu.model["pci"]
        vendor, device = pci["device"].split(":")
        sub_vendor, sub_device = pci["subsystem"].split(":")
        files.update({
            f"{base}/vendor": f"0x{vendor}\n",
            f"{base}/device": f"0x{device}\n",
            f"{base}/subsystem_vendor": f"0x{sub_vendor}\n",
            f"{base}/subsystem_device": f"0x{sub_device}\n",
            f"{base}/class": f"{pci['class']}\n",
            f"{base}/revision": f"{pci.get('revision', '0xa1')}\n",
            f"{base}/numa_node": f"{gpu.numa_node}\n",
            f"{base}/irq": "41\n",
            f"{base}/enable": "1\n",
            f"{base}/resource": "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13,
            f"{base}/config": _pci_config(gpu),
            f"{base}/uevent": ("DRIVER=nvidia\n" if version else "")
            + f"PCI_CLASS={int(pci['class'], 16):X}\nPCI_ID={vendor.upper()}:{device.upper()}\n"
            f"PCI_SUBSYS_ID={sub_vendor.upper()}:{sub_device.upper()}\nPCI_SLOT_NAME={gpu.sysfs_address}\n",
        })  # fmt: skip
        if version:
            files[f"{base}/driver@"] = "../../drivers/nvidia"
    if version:
        _add_driver_files(files, simulation, version)
    return files


def _add_driver_files(files: dict[str, str | bytes], simulation: Simulation, version: str) -> None:
    machine = platform.machine()
    flavour = f"NVIDIA UNIX {machine} Kernel Module" if _needs_proprietary(simulation) else (
        f"NVIDIA UNIX Open Kernel Module for {machine}"
    )  # fmt: skip
    files["sys/bus/pci/drivers/nvidia/module@"] = "../../../../module/nvidia"
    files["sys/module/nvidia/version"] = f"{version}\n"
    files["sys/module/nvidia/initstate"] = "live\n"
    files["proc/driver/nvidia/version"] = (
        f"NVRM version: {flavour}  {version}  Release Build  (gpu-simulator)\nGCC version:  gpu-simulator\n"
    )
    for gpu in simulation.gpus:
        nvml = answers(simulation, gpu)
        vbios = str(nvml.get("nvmlDeviceGetVbiosVersion", {}).get("value", "??.??.??.??.??"))
        files[f"proc/driver/nvidia/gpus/{gpu.sysfs_address}/information"] = (
            f"Model: \t\t {gpu.name}\nIRQ:   \t\t 41\nGPU UUID: \t {gpu.uuid}\nVideo BIOS: \t {vbios.lower()}\n"
            f"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
            f"Bus Location: \t {gpu.sysfs_address}\nDevice Minor: \t {gpu.index}\nGPU Firmware: \t {version}\n"
            "GPU Excluded:\t No\n"
        )
    minors = capability_minors(simulation)
    if any(gpu.model.get("mig_profiles") for gpu in simulation.gpus):
        files["proc/driver/nvidia-caps/mig-minors"] = "".join(f"{name} {minor}\n" for name, minor in minors.items())
        for name, minor in minors.items():
            if name.startswith("gpu"):
                gpu_name, _slash, rest = name.partition("/")
                path = f"proc/driver/nvidia/capabilities/{gpu_name}/mig/{rest}"
            else:
                path = f"proc/driver/nvidia/capabilities/mig/{name}"
            files[path] = f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"


def device_nodes(simulation: Simulation) -> dict[str, int]:
    """Return the minor number of each device node (all of major 195), by its path below /dev."""
    if not simulation.driver or not simulation.gpus:
        return {}
    nodes = {f"nvidia{gpu.index}": gpu.index for gpu in simulation.gpus}
    nodes.update({
        "nvidiactl": CONTROL_MINOR, "nvidia-modeset": MODESET_MINOR, "nvidia-uvm": UVM_MINOR,
        "nvidia-uvm-tools": UVM_TOOLS_MINOR,
    })  # fmt: skip
    if any(gpu.mig_enabled for gpu in simulation.gpus):
        for minor in capability_minors(simulation).values():
            nodes[f"nvidia-caps/nvidia-cap{minor}"] = CAPS_MINOR + minor
    return nodes


def write_tree(changes: Changes, root: Path, files: dict[str, str | bytes]) -> None:
    """Make the tree below the root be exactly those files; keep the directories that are mount sources."""
    wanted = {root / name.rstrip("@") for name in files}
    kept = {root / "sys/bus/pci/devices", root / "proc/driver", root / "sys/module"}
    parents = {parent for path in (*wanted, *kept) for parent in path.parents} | kept
    if not changes.check:
        for directory in kept:
            directory.mkdir(parents=True, exist_ok=True)
    if root.is_dir():
        for path in sorted(root.rglob("*"), reverse=True):
            if path in wanted or (path in parents and path.is_dir() and not path.is_symlink()):
                continue
            if any(parent in wanted for parent in path.parents) or path.is_symlink() or path.exists():
                changes.remove(path)
    for name, content in sorted(files.items()):
        if name.endswith("@"):
            changes.link(root / name[:-1], str(content))
        else:
            changes.write(root / name, content)
