# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each NVML function answers: from models to the library's state file, and from recordings to models."""

from __future__ import annotations

from typing import Any

from .functions import PROCESS_FIELDS, STRUCT_FIELDS
from .simulation import Gpu, Mig, Simulation

#: Recorded names whose key in the state file is another one.
STATE_KEYS = {"nvmlDeviceGetNvLinkRemotePciInfo_v2": "nvmlDeviceGetNvLinkRemotePciInfo"}
#: Answered by the library itself or placed per GPU, never taken from a model.
NOT_FROM_MODEL = (
    "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetBoardId", "nvmlDeviceIsMigDeviceHandle", "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetAttributesV2", "nvmlDeviceGetDetailedEccErrors",
)  # fmt: skip
#: What a GPU in MIG mode does not answer, and what a MIG device answers as its GPU does.
NOT_IN_MIG_MODE = (
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization",
)  # fmt: skip
OF_THE_PARENT = (
    "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetBrand",
)  # fmt: skip
NOT_SUPPORTED = 3
NVSWITCH = {"domain": 0xFFFFFFFF, "bus": 0xFF, "device": 0xFF, "pciDeviceId": 0xFFFFFFFF, "pciSubSystemId": 0}


def _numbers(name: str, value: Any) -> list[int]:
    if isinstance(value, dict):
        flat: list[int] = []
        for key in STRUCT_FIELDS[name]:
            part = value[key]
            flat += part if isinstance(part, list) else [part]
        return flat
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            return [int(process.get(key, 0xFFFFFFFF)) for process in value for key in PROCESS_FIELDS]
        return [int(part) for part in value]
    return [int(value)]


def answers(simulation: Simulation, gpu: Gpu) -> dict[str, dict[str, Any]]:
    """Return what each function answers for a GPU: C({"value": ...}) or C({"error": code}), by recorded name."""
    made: dict[str, dict[str, Any]] = {
        key: answer
        for key, answer in {**gpu.model.get("assumed", {}), **gpu.model["nvml"]}.items()
        if key.split(":")[0] not in NOT_FROM_MODEL
    }
    made["nvmlDeviceGetUUID"] = {"value": gpu.uuid}
    if "error" not in gpu.model["nvml"].get("nvmlDeviceGetSerial", {}):
        made["nvmlDeviceGetSerial"] = {"value": gpu.serial}
    else:
        made["nvmlDeviceGetSerial"] = gpu.model["nvml"]["nvmlDeviceGetSerial"]
    made["nvmlDeviceGetMinorNumber"] = {"value": gpu.index}
    made["nvmlDeviceGetBoardId"] = {"value": (gpu.address[1] << 8) + gpu.address[2]}
    if "value" in made.get("nvmlDeviceGetGspFirmwareVersion", {}):
        made["nvmlDeviceGetGspFirmwareVersion"] = {"value": simulation.driver_version}
    _add_links(made, simulation, gpu)
    if gpu.mig_enabled:
        made["nvmlDeviceGetMigMode"] = {"value": [1, 1]}
        made["nvmlDeviceGetMaxMigDeviceCount"] = {"value": 7}
        made.update({name: {"error": NOT_SUPPORTED} for name in NOT_IN_MIG_MODE})
    made.update(gpu.overrides)
    return made


def _peers(simulation: Simulation, gpu: Gpu) -> list[Gpu]:
    return [other for other in simulation.gpus if other is not gpu and other.model_name == gpu.model_name]


def _add_links(made: dict[str, dict[str, Any]], simulation: Simulation, gpu: Gpu) -> None:
    """Add the NVLinks: to switches, or directly to the other GPUs of the same model; none for a GPU alone."""
    nvlink = gpu.model.get("nvlink")
    peers = _peers(simulation, gpu)
    if not nvlink or (not peers and not nvlink.get("alone")):
        made.setdefault("nvmlDeviceGetNvLinkState:0", {"error": NOT_SUPPORTED})
        return
    per_peer = int(nvlink.get("links_per_peer", 0))
    count = per_peer * len(peers) if per_peer else int(nvlink["links"])
    count = min(count, int(nvlink["links"]))
    for link in range(count):
        if per_peer:
            peer = peers[link // per_peer]
            remote = dict(zip(("domain", "bus", "device"), peer.address))
            remote.update(pciDeviceId=pci_word(peer, "device"), pciSubSystemId=pci_word(peer, "subsystem"))
        else:
            remote = dict(NVSWITCH)
        made[f"nvmlDeviceGetNvLinkState:{link}"] = {"value": 1}
        made[f"nvmlDeviceGetNvLinkVersion:{link}"] = {"value": nvlink["version"]}
        made[f"nvmlDeviceGetNvLinkRemoteDeviceType:{link}"] = {"value": 0 if per_peer else 2}
        made[f"nvmlDeviceGetNvLinkRemotePciInfo_v2:{link}"] = {"value": remote}
    if "value" in made.get("nvmlDeviceGetGpuFabricInfoV", {}) and not per_peer:
        made["nvmlDeviceGetGpuFabricInfoV"] = {"value": {**made["nvmlDeviceGetGpuFabricInfoV"]["value"], "state": 3}}


def pci_word(gpu: Gpu, kind: str) -> int:
    """Return the C(device) or C(subsystem) id as NVML gives it: the device above the vendor."""
    vendor, device = (int(part, 16) for part in gpu.model["pci"][kind].split(":"))
    return device << 16 | vendor


def _record(scope: str, name: str, answer: dict[str, Any]) -> str:
    base, _colon, argument = name.partition(":")
    key = STATE_KEYS.get(base, base) + (":" + argument if argument else "")
    if "error" in answer:
        return f"{scope} {key} e {answer['error']}"
    value = answer["value"]
    if isinstance(value, str):
        return f"{scope} {key} s {value}"
    return " ".join([f"{scope} {key} u", *map(str, _numbers(base, value))])


def _host_mask(words: list[int], cpus: int | None) -> list[int]:
    """Return an affinity limited to the CPUs that the host has; all of them where none is left."""
    if cpus is None:
        return words
    mask = (1 << cpus) - 1
    kept = [word & (mask >> (64 * i)) & (2**64 - 1) for i, word in enumerate(words)]
    if any(kept):
        return kept
    return [(mask >> (64 * i)) & (2**64 - 1) for i in range(max(1, (cpus + 63) // 64))]


def compile_state(simulation: Simulation, cpus: int | None = None) -> str:
    """Return the text of the state file. With C(cpus), affinities are limited to that many CPUs."""
    lines = []
    cuda = simulation.cuda_version.split(".")
    branch = simulation.driver_version.split(".")[0]
    system: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": simulation.driver_version,
        "nvmlSystemGetNVMLVersion": f"{cuda[0]}.{simulation.driver_version}",
        "nvmlSystemGetCudaDriverVersion": int(cuda[0]) * 1000 + int(cuda[1]) * 10,
        "nvmlSystemGetDriverBranch": simulation.config.get("driver_branch") or f"r{branch}_00",
        "nvmlSystemGetConfComputeState": {"environment": 0, "ccFeature": 0, "devToolsMode": 0},
    }
    lines += [_record("sys", name, {"value": value}) for name, value in system.items()]
    for gpu in simulation.gpus:
        lines += _gpu_records(simulation, gpu, cpus)
        for number, mig in enumerate(gpu.migs):
            lines += _mig_records(gpu, number, mig, cpus)
    return "\n".join(["gpu-simulator-state 1", *lines, f"end {len(lines)}"]) + "\n"


def _gpu_records(simulation: Simulation, gpu: Gpu, cpus: int | None) -> list[str]:
    scope = f"gpu {gpu.index}"
    made = answers(simulation, gpu)
    affinity = made.get("nvmlDeviceGetCpuAffinity")
    if affinity and "value" in affinity:
        made["nvmlDeviceGetCpuAffinity"] = {"value": _host_mask(affinity["value"], cpus)}
    lines = [_record(scope, name, answer) for name, answer in sorted(made.items())]
    device, subsystem = pci_word(gpu, "device"), pci_word(gpu, "subsystem")
    pci_class = int(gpu.model["pci"]["class"], 16)
    lines.append("{} nvmlDeviceGetPciInfo u {} {} {} {} {}".format(scope, *gpu.address, device, subsystem))
    lines.append(f"{scope} nvmlDeviceGetPciInfoExt u {pci_class >> 16} {pci_class >> 8 & 0xFF}")
    peers = _peers(simulation, gpu)
    linked = made.get("nvmlDeviceGetNvLinkState:0") == {"value": 1}
    for other in simulation.gpus:
        if other is gpu:
            lines.append(f"{scope} nvmlDeviceGetTopologyCommonAncestor:{other.index} u 0")
            continue
        near = gpu.model.get("topology", 30)
        lines.append(f"{scope} nvmlDeviceGetTopologyCommonAncestor:{other.index} u {near}")
        for capability in range(6):
            status = 0 if other in peers and gpu.model.get("p2p", True) else 2
            if capability == 4 or (capability == 2 and not linked):
                status = 5
            lines.append(f"{scope} nvmlDeviceGetP2PStatus:{other.index}:{capability} u {status}")
    links = sum(1 for name, answer in made.items() if "NvLinkState:" in name and answer == {"value": 1})
    if links:
        switched = made.get("nvmlDeviceGetNvLinkRemoteDeviceType:0") == {"value": 2}
        lines.append(f"{scope} field:91 u {links}")
        lines += [f"{scope} field:{counter} u 0" for counter in range(138, 142)]
        lines.append(f"{scope} field:147 u {links if switched else 0}")
    return lines


def _mig_records(gpu: Gpu, number: int, mig: Mig, cpus: int | None) -> list[str]:
    slices = mig.slices
    total = int(slices["memory_mb"]) * 2**20
    used = min(total, 12 * 2**20)
    known: dict[str, Any] = {**gpu.model.get("assumed", {}), **gpu.model["nvml"]}
    affinity = known.get("nvmlDeviceGetCpuAffinity", {}).get("value")
    attributes = [
        slices["multiprocessors"], slices.get("copy_engines", 1), slices.get("decoders", 0), 0, slices.get("jpegs", 0),
        slices.get("ofas", 0), slices["slices"], slices["slices"], slices["memory_mb"],
    ]  # fmt: skip
    made: dict[str, Any] = {
        "nvmlDeviceGetName": f"{gpu.name} MIG {mig.profile}",
        "nvmlDeviceGetUUID": mig.uuid,
        "nvmlDeviceGetGpuInstanceId": mig.gpu_instance,
        "nvmlDeviceGetComputeInstanceId": mig.compute_instance,
        "nvmlDeviceGetAttributes": attributes,
        "nvmlDeviceGetMemoryInfo": {"total": total, "free": total - used, "used": used},
        "nvmlDeviceGetMemoryInfo_v2": {"total": total, "reserved": used, "free": total - used, "used": 0},
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
    }
    for name in OF_THE_PARENT:
        if "value" in known.get(name, {}):
            made[name] = known[name]["value"]
    if affinity:
        made["nvmlDeviceGetCpuAffinity"] = _host_mask(affinity, cpus)
    scope = f"mig {gpu.index} {number}"
    lines = [_record(scope, name, {"value": value}) for name, value in made.items()]
    return [*lines, "{} capabilities u {} {}".format(scope, *gpu.capabilities(mig))]


def model_of_recording(recording: dict[str, Any], index: int, name: str) -> dict[str, Any]:
    """Return a GPU model made of one device of a recording (the JSON of C(gpu-simulator record))."""
    device = recording["devices"][index]
    pci = device["nvmlDeviceGetPciInfo_v3"]["value"]
    words = {key: int(pci[source]) for key, source in (("device", "pciDeviceId"), ("subsystem", "pciSubSystemId"))}
    nvml = {
        key: answer
        for key, answer in sorted(device.items())
        if key.split(":")[0] not in NOT_FROM_MODEL and not isinstance(answer.get("error"), str)
    }
    model: dict[str, Any] = {
        "model": name,
        "provenance": "recorded",
        "pci": {
            **{key: f"{word & 0xFFFF:04x}:{word >> 16:04x}" for key, word in words.items()},
            "class": "0x030200", "domain": pci["domain"],
        },
        "nvml": nvml,
    }  # fmt: skip
    serial = device.get("nvmlDeviceGetSerial", {})
    if "error" in serial:
        nvml["nvmlDeviceGetSerial"] = serial
    links = [key for key in nvml if key.startswith("nvmlDeviceGetNvLinkState:") and nvml[key].get("value") == 1]
    if links and nvml["nvmlDeviceGetNvLinkRemoteDeviceType:0"].get("value") == 2:
        model["nvlink"] = {"links": len(links), "version": nvml["nvmlDeviceGetNvLinkVersion:0"]["value"]}
        for key in [key for key in nvml if "NvLink" in key]:
            del nvml[key]
    return model
