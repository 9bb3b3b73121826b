# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recording what the NVML of this machine answers, for a GPU model of one's own. Needs nvidia-ml-py."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .base import SimulatorError

#: What is asked of each GPU, with the arguments beside its handle.
DEVICE: dict[str, list[tuple[int, ...]]] = {
    **{
        f"nvmlDeviceGet{name}": [()]
        for name in (
            "AccountingMode", "AdaptiveClockInfoStatus", "Architecture", "BAR1MemoryInfo", "BoardId", "BoardPartNumber",
            "Brand", "BridgeChipInfo", "ComputeInstanceId", "ComputeMode", "ComputeRunningProcesses", "CpuAffinity",
            "CudaComputeCapability", "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "CurrentClocksEventReasons",
            "CurrentClocksThrottleReasons", "DecoderUtilization", "DefaultEccMode", "DisplayActive", "DisplayMode",
            "EccMode", "EncoderUtilization", "EnforcedPowerLimit", "FanSpeed", "GpcClkVfOffset", "GpuFabricInfoV",
            "GpuInstanceId", "GpuMaxPcieLinkGeneration", "GraphicsRunningProcesses", "GspFirmwareMode",
            "GspFirmwareVersion", "InforomImageVersion", "IrqNum", "MaxMigDeviceCount", "MaxPcieLinkGeneration",
            "MaxPcieLinkWidth", "MemoryAffinity", "MemoryBusWidth", "MemoryInfo", "MemoryInfo_v2", "MigMode",
            "MinorNumber", "MPSComputeRunningProcesses", "MultiGpuBoard", "Name", "NumFans", "NumGpuCores",
            "NumaNodeId", "PciInfo_v3", "PcieReplayCounter", "PerformanceState", "PersistenceMode",
            "PowerManagementDefaultLimit", "PowerManagementLimit", "PowerManagementLimitConstraints", "PowerUsage",
            "RemappedRows", "RetiredPagesPendingStatus", "RowRemapperHistogram", "Serial", "SupportedMemoryClocks",
            "Temperature", "TotalEnergyConsumption", "UUID", "UtilizationRates", "VbiosVersion", "VirtualizationMode",
        )
    },
    "nvmlDeviceGetClockInfo": [(clock,) for clock in range(4)],
    "nvmlDeviceGetMaxClockInfo": [(clock,) for clock in range(4)],
    "nvmlDeviceGetNvLinkRemoteDeviceType": [(link,) for link in range(18)],
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": [(link,) for link in range(18)],
    "nvmlDeviceGetNvLinkState": [(link,) for link in range(18)],
    "nvmlDeviceGetNvLinkVersion": [(link,) for link in range(18)],
    "nvmlDeviceGetPcieThroughput": [(0,), (1,)],
    "nvmlDeviceGetRetiredPages": [(0,), (1,)],
    "nvmlDeviceGetTemperatureThreshold": [(threshold,) for threshold in range(8)],
    "nvmlDeviceGetTotalEccErrors": [(error, counter) for error in (0, 1) for counter in (0, 1)],
}  # fmt: skip
SYSTEM = (
    "nvmlDeviceGetCount", "nvmlSystemGetConfComputeState", "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetDriverBranch", "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
)  # fmt: skip


def plain(value: Any) -> Any:
    """Return an answer of the binding as JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (ctypes.Array, list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_type in value._fields_}
    return value if isinstance(value, (int, str)) else {key: plain(part) for key, part in vars(value).items()}


def _functions(nvml: Any) -> dict[str, Callable[..., Any]]:
    """Return those functions whose call is not that of the name."""

    def fabric(handle: Any) -> Any:
        info = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        return info

    return {
        "nvmlDeviceGetCpuAffinity": lambda handle: nvml.nvmlDeviceGetCpuAffinity(handle, 4),
        "nvmlDeviceGetMemoryAffinity": lambda handle: nvml.nvmlDeviceGetMemoryAffinity(handle, 2, 0),
        "nvmlDeviceGetTemperature": lambda handle: nvml.nvmlDeviceGetTemperature(handle, 0),
        "nvmlDeviceGetMemoryInfo_v2": lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2),
        "nvmlDeviceGetNvLinkRemotePciInfo_v2": nvml.nvmlDeviceGetNvLinkRemotePciInfo,
        "nvmlDeviceGetGpuFabricInfoV": fabric,
    }


def record() -> dict[str, Any]:
    """Return the answers of this machine, with UUIDs and serial numbers replaced by made-up ones."""
    try:
        import pynvml as nvml
    except ImportError:
        raise SimulatorError("Recording needs nvidia-ml-py for the Python that runs this command.") from None
    special = _functions(nvml)

    def ask(name: str, *arguments: Any) -> dict[str, Any]:
        function = special.get(name) or getattr(nvml, name, None)
        if function is None:
            return {"error": nvml.NVML_ERROR_FUNCTION_NOT_FOUND}
        try:
            return {"value": plain(function(*arguments))}
        except nvml.NVMLError as error:
            return {"error": error.value}

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise SimulatorError(f"NVML does not start on this machine: {error}.") from None
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    recording: dict[str, Any] = {"devices": [], "system": {name: ask(name) for name in SYSTEM}}
    for index, handle in enumerate(handles):
        answers = {
            ":".join([name, *map(str, arguments)]): ask(name, handle, *arguments)
            for name, calls in DEVICE.items()
            for arguments in calls
        }
        for clock in answers["nvmlDeviceGetSupportedMemoryClocks"].get("value", []):
            key = f"nvmlDeviceGetSupportedGraphicsClocks:{clock}"
            answers[key] = ask("nvmlDeviceGetSupportedGraphicsClocks", handle, clock)
        answers["nvmlDeviceGetUUID"] = {"value": f"GPU-00000000-0000-4000-8000-{index:012d}"}
        if "value" in answers["nvmlDeviceGetSerial"]:
            answers["nvmlDeviceGetSerial"] = {"value": str(1650000000000 + index)}
        recording["devices"].append(dict(sorted(answers.items())))
    nvml.nvmlShutdown()
    return recording
