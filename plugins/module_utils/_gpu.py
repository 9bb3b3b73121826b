# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of a host, put together from PCI, the kernel driver and NVML, with what is wrong with them."""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
import typing as t
from dataclasses import asdict, dataclass, field, replace

from . import _driver, _nvml, _pci
from ._pci import Files, HostFiles
from ._version import same_version

Severity = t.Literal["error", "warning"]
PeerType = t.Literal["gpu", "npu", "switch", "unknown"]

MARKER = "/etc/gpu-simulator/marker.json"
PROC_GPUS = "/proc/driver/nvidia/gpus"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
NVIDIA_DRIVER = "nvidia"
PASSTHROUGH_DRIVERS = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
"""NVML's architecture numbers, named as nvidia-smi names them."""

NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
NVLINK_PEERS = {0: "gpu", 1: "npu", 2: "switch"}
NO_BUS_ID = "FFFFFFFF:FF:FF.0"

RECOVERY_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the host",
    3: "that peer-to-peer work is drained and the GPU is reset",
    4: "that its work is drained and the GPU is reset",
    5: "a recovery of the IMEX domain",
    6: "a reset of its bus",
    7: "a reboot of the system",
}


@dataclass(frozen=True)
class SlowDown:
    """A reason of NVML for reduced clocks that is worth telling."""

    bit: int
    code: str
    severity: Severity
    sentence: str


SLOW_DOWNS = (
    SlowDown(
        0x40, "hw_thermal_slowdown", "error", "too hot: the hardware cut its clocks; check fans, airflow and heat sink"
    ),
    SlowDown(0x80, "hw_power_brake", "error", "held by the power brake of the board: check power supplies and cables"),
    SlowDown(
        0x08, "hw_slowdown", "error", "slowed down by the hardware (heat, power brake or power supply): check both"
    ),
    SlowDown(
        0x20,
        "sw_thermal_slowdown",
        "warning",
        "near its temperature limit: the driver cut its clocks; check the cooling",
    ),
    SlowDown(
        0x04, "sw_power_cap", "warning", "at its power limit: the driver cut its clocks, as it does under full load"
    ),
)
"""Idle, clocks set by the user, sync boost and display clocks are no problem."""

HW_SLOWDOWN_DETAILS = 0x40 | 0x80


@dataclass(frozen=True)
class Problem:
    """Something that is wrong, with a sentence that says what, where and what to do."""

    code: str
    severity: Severity
    message: str


@dataclass(frozen=True)
class MigInstance:
    """A MIG compute instance: what CUDA takes for a GPU."""

    index: int
    uuid: str | None
    profile: str | None
    gpu_instance_id: int | None
    compute_instance_id: int | None
    memory_bytes: int | None
    slurm_type: str | None
    device_nodes: list[str]


@dataclass(frozen=True)
class Mig:
    """MIG mode; None where the GPU has none or it is unknown."""

    enabled: bool | None = None
    pending: bool | None = None
    instances: list[MigInstance] = field(default_factory=list)


@dataclass(frozen=True)
class RemappedRows:
    """Rows of memory that were replaced by spare ones."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True)
class Ecc:
    """ECC mode and error counters; None where unsupported or unknown."""

    enabled: bool | None = None
    pending: bool | None = None
    corrected_volatile: int | None = None
    uncorrected_volatile: int | None = None
    corrected_aggregate: int | None = None
    uncorrected_aggregate: int | None = None
    remapped_rows: RemappedRows | None = None
    retired_pages_pending: bool | None = None


@dataclass(frozen=True)
class NvlinkPeer:
    """What some links of a GPU lead to."""

    type: PeerType
    pci_bus_id: str | None
    links: int


@dataclass(frozen=True)
class Nvlink:
    """The NVLink links of a GPU."""

    version: str | None
    links: int
    active_links: int
    peers: list[NvlinkPeer]


@dataclass(frozen=True)
class Gpu:
    """One GPU, as an entry of ``ansible_facts.gpu.gpus``."""

    index: int | None
    minor: int | None
    uuid: str | None
    pci_bus_id: str | None
    pci_device_id: str | None
    name: str | None
    architecture: str | None
    compute_capability: str | None
    memory_bytes: int | None
    slurm_type: str | None
    mig: Mig
    ecc: Ecc
    power_limit_watts: float | None
    nvlink: Nvlink | None
    numa_node: int | None
    cpu_affinity: str | None
    kernel_driver: str | None
    device_nodes: list[str]
    processes: int | None
    healthy: bool | None
    problems: list[Problem]


@dataclass(frozen=True)
class GpuFacts:
    """``ansible_facts.gpu``."""

    driver: _driver.Driver
    gpus: list[Gpu]
    count: int
    visible_count: int
    nvswitches: int
    problems: list[Problem]
    pynvml: str | None
    simulated: bool

    def as_dict(self) -> dict[str, t.Any]:
        return asdict(self)


@dataclass(frozen=True)
class Marker:
    """The simulator's note that a host's GPUs are simulated, where its made-up tree is, and whether it has a driver."""

    root: str
    driver: bool = True


def slurm_type(name: str) -> str:
    """SLURM's GRES type of a GPU name: lower case, with ``_`` for spaces."""
    return name.lower().replace(" ", "_")


def slurm_mig_type(name: str, gpu_slices: int, memory_mib: int) -> str:
    """SLURM's GRES type of a MIG instance.

    It ends the GPU's name at a ``-``, counts the slices and rounds the memory itself: 7g.40gb of an A100-SXM4-40GB is
    nvidia_a100_7g.39gb.
    """
    return f"{slurm_type(name).split('-', maxsplit=1)[0]}_{gpu_slices}g.{(memory_mib + 512) // 1024}gb"


def cpu_list(words: t.Sequence[int]) -> str | None:
    """A mask of CPUs in 64-bit words as a list of ranges: ``[15, 1]`` is ``0-3,64``. None for an empty mask."""
    cpus = [64 * index + bit for index, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    ranges: list[list[int]] = []
    for cpu in cpus:
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or None


def gather(
    venvs: t.Sequence[str], timeout: float, run: _driver.Run = _driver.no_command, host: Files | None = None
) -> GpuFacts:
    """The facts of this host, after at most so many seconds for NVML. Raises OSError when no process can be started.

    Only a compressed kernel module, whose version no file tells, costs a command.
    """
    child = _nvml.Child(lambda: _nvml.load_binding(venvs))
    try:
        real = host or HostFiles()
        marker = read_marker(real)
        files = real if marker is None else HostFiles(marker.root)
        release, machine = platform.release(), platform.machine()
        gpus = _pci.scan(files)
        installed = _driver.installed(files, release, machine, run)
        if marker is not None and not marker.driver:
            installed = _with_real_packages(installed, _driver.installed(real, release, machine, run))
    finally:
        report = child.report(timeout)
    if marker is not None and _is_real(report, marker):
        marker, files = None, real
        gpus, installed = _pci.scan(files), _driver.installed(files, release, machine, run)
    driver = _driver.judge(installed, report, release, _user())
    return assemble(files, gpus, driver, report, simulated=report.simulator or marker is not None, real=real)


def _with_real_packages(simulated: _driver.Installed, real: _driver.Installed) -> _driver.Installed:
    """Simulated GPUs without a simulated driver: what is loaded is made up, what is installed is real."""
    return replace(simulated, installed_version=real.installed_version, library_version=real.library_version)


def _is_real(report: _nvml.Report, marker: Marker) -> bool:
    """Whether NVML is the real one. Where the simulator has no driver, one may be installed that finds no GPU."""
    if report.simulator or report.library_version is None:
        return False
    return marker.driver or report.answered


def read_marker(files: Files) -> Marker | None:
    """The simulator's marker; None on a real host."""
    text = files.read(MARKER)
    if text is None:
        return None
    try:
        note = json.loads(text)
        return Marker(root=str(note["root"]), driver=note.get("driver", True) is not False)
    except (ValueError, KeyError, TypeError):
        return None


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"with id {os.geteuid()}"


def assemble(
    files: Files,
    pci_gpus: t.Sequence[_pci.PciGpu],
    driver: _driver.Driver,
    report: _nvml.Report,
    *,
    simulated: bool,
    real: Files | None = None,
) -> GpuFacts:
    """The facts, from all that was read. Device nodes are looked for in ``real``, the host's own tree."""
    capabilities = _mig_capabilities(files)
    gpus = [
        _gpu(files, pci, reading, report, capabilities, nodes=None if simulated else real or files)
        for pci, reading in _pairs(pci_gpus, report.devices)
    ]
    return GpuFacts(
        driver=driver,
        gpus=gpus,
        count=len(gpus),
        visible_count=sum(1 for reading in report.devices if reading["error"] is None and not _lost(reading)),
        nvswitches=_pci.nvswitches(files),
        problems=_host_problems(driver, gpus),
        pynvml=report.binding,
        simulated=simulated,
    )


def _pairs(
    pci_gpus: t.Sequence[_pci.PciGpu], readings: t.Sequence[_nvml.DeviceReading]
) -> list[tuple[_pci.PciGpu | None, _nvml.DeviceReading | None]]:
    """Each GPU of PCI with what NVML said of it.

    A GPU that NVML counts but can't address goes to the next one on the bus that is left over: NVML counts by address.
    """
    by_bus_id = {_bus_id(reading): reading for reading in readings}
    left = iter([reading for reading in readings if _bus_id(reading) is None])
    pairs: list[tuple[_pci.PciGpu | None, _nvml.DeviceReading | None]] = []
    for pci in pci_gpus:
        reading = by_bus_id.pop(pci.bus_id, None)
        if reading is None and pci.kernel_driver in (None, NVIDIA_DRIVER):
            reading = next(left, None)
        pairs.append((pci, reading))
    only_nvml = [reading for bus_id, reading in by_bus_id.items() if bus_id is not None]
    return pairs + [(None, reading) for reading in (*only_nvml, *left)]


def _bus_id(reading: _nvml.DeviceReading) -> str | None:
    pci = reading["values"].get("pci")
    return None if pci is None else str(pci["bus_id"])


def _lost(reading: _nvml.DeviceReading) -> bool:
    return _nvml.GPU_IS_LOST in (reading["error"], *reading["errors"].values())


def _gpu(
    files: Files,
    pci: _pci.PciGpu | None,
    reading: _nvml.DeviceReading | None,
    report: _nvml.Report,
    capabilities: t.Mapping[str, int],
    nodes: Files | None,
) -> Gpu:
    values: t.Mapping[str, t.Any] = reading["values"] if reading else {}
    bus_id = pci.bus_id if pci else values.get("pci", {}).get("bus_id")
    kernel = _kernel_view(files, bus_id) if "uuid" not in values else {}
    device_id = pci.device_id if pci else values.get("pci", {}).get("device_id", 0) >> 16
    architecture = ARCHITECTURES.get(values.get("architecture", 0))
    nvml_name = values.get("name") or kernel.get("Model")
    model = _pci.model(device_id, files) if architecture is None or nvml_name is None else None
    minor = values.get("minor", _number(kernel.get("Device Minor")))
    uuid = values.get("uuid") or kernel.get("GPU UUID")
    milliwatts = values.get("power_limit_milliwatts")
    capability = values.get("compute_capability")
    gpu = Gpu(
        index=reading["index"] if reading else None,
        minor=minor,
        uuid=uuid,
        pci_bus_id=bus_id,
        pci_device_id=f"{_pci.NVIDIA:04x}:{device_id:04x}" if device_id else None,
        name=nvml_name or (model.name if model else None),
        architecture=architecture or (model.architecture if model else None),
        compute_capability=None if capability is None else ".".join(str(part) for part in capability),
        memory_bytes=values.get("memory_bytes"),
        slurm_type=slurm_type(nvml_name) if nvml_name else None,
        mig=_mig(values, reading["instances"] if reading else [], minor, nvml_name, capabilities),
        ecc=_ecc(values),
        power_limit_watts=None if milliwatts is None else milliwatts / 1000,
        nvlink=_nvlink(values.get("links")),
        numa_node=pci.numa_node if pci else None,
        cpu_affinity=cpu_list(values.get("cpu_mask", ())) or (pci.cpus if pci else None),
        kernel_driver=pci.kernel_driver if pci else None,
        device_nodes=[] if minor is None else [f"/dev/nvidia{minor}"],
        processes=_processes(values),
        healthy=None,
        problems=[],
    )
    problems = list(_problems(gpu, reading, report, values, nodes))
    judged = reading is not None or any(problem.code == "not_visible" for problem in problems)
    healthy = all(problem.severity != "error" for problem in problems) if judged else None
    return replace(gpu, healthy=healthy, problems=problems)


def _kernel_view(files: Files, bus_id: str | None) -> dict[str, str]:
    """What the loaded kernel driver says of a GPU, without NVML."""
    if bus_id is None:
        return {}
    domain, rest = bus_id.lower().split(":", 1)
    text = files.read(f"{PROC_GPUS}/{int(domain, 16):04x}:{rest}/information")
    pairs = (line.partition(":")[::2] for line in (text or "").splitlines())
    known = {key.strip(): value.strip() for key, value in pairs if "?" not in value}
    return {key: value for key, value in known.items() if value not in ("", "Unknown")}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _processes(values: t.Mapping[str, t.Any]) -> int | None:
    lists = [values[name] for name in ("compute_processes", "graphics_processes") if name in values]
    return len(set().union(*lists)) if lists else None


def _mig_capabilities(files: Files) -> dict[str, int]:
    """Minor numbers of the MIG access nodes: ``gpu0/gi1/access`` → 12."""
    lines = (line.rsplit(" ", 1) for line in (files.read(MIG_MINORS) or "").splitlines() if " " in line)
    return {name: int(minor) for name, minor in lines if minor.isdigit()}


def _mig(
    values: t.Mapping[str, t.Any],
    readings: t.Sequence[_nvml.InstanceReading],
    minor: int | None,
    gpu_name: str | None,
    capabilities: t.Mapping[str, int],
) -> Mig:
    mode = values.get("mig_mode")
    if mode is None:
        return Mig()
    instances = []
    for reading in readings:
        instance = reading["values"]
        match = re.search(r"\bMIG (\S+)$", instance.get("name", ""))
        profile = match.group(1) if match else None
        gi, ci = instance.get("gpu_instance_id"), instance.get("compute_instance_id")
        attributes = instance.get("attributes")
        access = [f"gpu{minor}/gi{gi}/access", f"gpu{minor}/gi{gi}/ci{ci}/access"]
        nodes = [] if minor is None else [f"/dev/nvidia{minor}"]
        nodes += [f"/dev/nvidia-caps/nvidia-cap{capabilities[name]}" for name in access if name in capabilities]
        instances.append(
            MigInstance(
                index=reading["index"],
                uuid=instance.get("uuid"),
                profile=profile,
                gpu_instance_id=gi,
                compute_instance_id=ci,
                memory_bytes=None if attributes is None else attributes["memory_mib"] << 20,
                slurm_type=slurm_mig_type(gpu_name, **attributes) if gpu_name and attributes else None,
                device_nodes=nodes,
            )
        )
    return Mig(enabled=mode[0] == 1, pending=mode[1] == 1, instances=instances)


def _ecc(values: t.Mapping[str, t.Any]) -> Ecc:
    mode = values.get("ecc_mode")
    rows = values.get("remapped_rows")
    retired = values.get("retired_pages_pending")
    return Ecc(
        enabled=None if mode is None else mode[0] == 1,
        pending=None if mode is None else mode[1] == 1,
        corrected_volatile=values.get("corrected_volatile"),
        uncorrected_volatile=values.get("uncorrected_volatile"),
        corrected_aggregate=values.get("corrected_aggregate"),
        uncorrected_aggregate=values.get("uncorrected_aggregate"),
        remapped_rows=None if rows is None else RemappedRows(rows[0], rows[1], rows[2] == 1, rows[3] == 1),
        retired_pages_pending=None if retired is None else retired == 1,
    )


def _nvlink(links: t.Sequence[t.Mapping[str, t.Any]] | None) -> Nvlink | None:
    if not links:
        return None
    active = [link for link in links if link["active"]]
    peers: dict[tuple[str, str | None], int] = {}
    for link in active:
        bus_id = link.get("bus_id")
        key = (NVLINK_PEERS.get(link.get("type", -1), "unknown"), None if bus_id == NO_BUS_ID else bus_id)
        peers[key] = peers.get(key, 0) + 1
    return Nvlink(
        version=next((NVLINK_VERSIONS.get(link["version"]) for link in active if link.get("version")), None),
        links=len(links),
        active_links=len(active),
        peers=[NvlinkPeer(t.cast("PeerType", kind), bus_id, count) for (kind, bus_id), count in peers.items()],
    )


def _host_problems(driver: _driver.Driver, gpus: t.Sequence[Gpu]) -> list[Problem]:
    problems = []
    if gpus and driver.state != "ok" and driver.reason is not None:
        problems.append(Problem(f"driver_{driver.state}", "error", driver.reason))
    if same_version(driver.loaded_version, driver.installed_version) is False:
        problems.append(
            Problem(
                "driver_reload_pending",
                "warning",
                f"The kernel module {driver.installed_version} is installed, but {driver.loaded_version} is loaded: "
                "reboot, or unload and load the nvidia modules when no GPU is in use",
            )
        )
    return problems


def _problems(
    gpu: Gpu,
    reading: _nvml.DeviceReading | None,
    report: _nvml.Report,
    values: t.Mapping[str, t.Any],
    nodes: Files | None,
) -> t.Iterator[Problem]:
    names = (f"GPU {gpu.index}" if gpu.index is not None else "GPU", gpu.pci_bus_id, gpu.uuid)
    where = " ".join(name for name in names if name)
    if reading is None:
        yield from _unseen_problems(gpu, report, where)
        return
    yield from _call_problems(reading, where)
    yield from _memory_problems(gpu.ecc, where)
    yield from _mig_problems(gpu.mig, where)
    yield from _clock_problems(values.get("clock_reasons", 0), where)
    action = values.get("recovery_action", 0)
    if action:
        wanted = RECOVERY_ACTIONS.get(action, f"recovery action {action}")
        yield Problem("recovery_needed", "error", f"{where} asks for {wanted} after an error: drain it and do so")
    for node in gpu.device_nodes:
        if nodes is not None and reading["error"] is None and not nodes.exists(node):
            yield Problem(
                "device_node_missing",
                "warning",
                f"{where} has no device node {node}: run nvidia-modprobe -c {gpu.minor}, or give it to this container",
            )


def _unseen_problems(gpu: Gpu, report: _nvml.Report, where: str) -> t.Iterator[Problem]:
    if gpu.kernel_driver in PASSTHROUGH_DRIVERS:
        yield Problem(
            "passthrough",
            "warning",
            f"{where} is bound to {gpu.kernel_driver} for a virtual machine: this host can't use it; "
            "bind it to the driver nvidia to have it here",
        )
    elif gpu.kernel_driver not in (None, NVIDIA_DRIVER):
        yield Problem(
            "other_driver",
            "error",
            f"{where} is bound to the kernel driver {gpu.kernel_driver}: blacklist {gpu.kernel_driver}, "
            "rebuild the initramfs and reboot",
        )
    elif report.answered and report.finished:
        yield Problem(
            "not_visible",
            "error",
            f"{where} is on the PCI bus, but NVML does not see it: it was not given to this container or service, "
            "is excluded, too old or too new for this driver, or failed to start; "
            "look for NVRM messages in the kernel log",
        )


def _call_problems(reading: _nvml.DeviceReading, where: str) -> t.Iterator[Problem]:
    codes = {reading["error"], *reading["errors"].values()}
    if _nvml.GPU_IS_LOST in codes:
        yield Problem(
            "lost",
            "error",
            f"{where} has fallen off the bus: look for Xid 79 in the kernel log, then power-cycle the host; "
            "if it comes back, check power, seating and temperature",
        )
    if _nvml.RESET_REQUIRED in codes:
        yield Problem(
            "reset_required", "error", f"{where} must be reset: drain it, then run nvidia-smi --gpu-reset for it"
        )
    if reading["error"] == _nvml.NO_PERMISSION:
        yield Problem(
            "no_permission",
            "error",
            f"{where} may not be used by this user: NVML error {_nvml.describe(_nvml.NO_PERMISSION)}; run the task "
            "with become: true, or look at the owner and mode of its device node",
        )
    elif reading["error"] not in (None, _nvml.GPU_IS_LOST, _nvml.RESET_REQUIRED):
        yield Problem(
            "unusable",
            "error",
            f"{where} can't be opened: NVML error {_nvml.describe(reading['error'])}; look at the kernel log",
        )
    instances = {name: code for instance in reading["instances"] for name, code in instance["errors"].items()}
    failed = {
        name: code
        for name, code in {**instances, **reading["errors"]}.items()
        if code not in (_nvml.GPU_IS_LOST, _nvml.RESET_REQUIRED)
    }
    if failed:
        calls = ", ".join(f"{name}: error {_nvml.describe(code)}" for name, code in sorted(failed.items()))
        yield Problem("unreadable", "warning", f"{where} did not answer everything, so values are missing ({calls})")


def _memory_problems(ecc: Ecc, where: str) -> t.Iterator[Problem]:
    if ecc.uncorrected_volatile:
        yield Problem(
            "ecc_uncorrectable",
            "error",
            f"{where} had {ecc.uncorrected_volatile} uncorrectable memory errors since the driver was loaded: "
            "drain and reset it; replace the card if they come back",
        )
    rows = ecc.remapped_rows
    if rows is not None and rows.failed:
        yield Problem("row_remap_failed", "error", f"{where} could not replace a bad memory row: replace the card")
    if rows is not None and rows.pending:
        yield Problem("row_remap_pending", "warning", f"{where} has memory rows to replace: drain and reset it")
    if ecc.retired_pages_pending:
        yield Problem(
            "retired_pages_pending", "warning", f"{where} has memory pages to retire: drain and reset it, or reboot"
        )
    if ecc.enabled is not None and ecc.enabled != ecc.pending:
        wanted = "on" if ecc.pending else "off"
        yield Problem(
            "ecc_pending", "warning", f"{where} will turn ECC {wanted} with its next reset: drain and reset it"
        )


def _mig_problems(mig: Mig, where: str) -> t.Iterator[Problem]:
    if mig.enabled is not None and mig.enabled != mig.pending:
        wanted = "on" if mig.pending else "off"
        yield Problem(
            "mig_pending", "warning", f"{where} will turn MIG {wanted} with its next reset: drain and reset it"
        )
    if mig.enabled and not mig.instances:
        yield Problem(
            "mig_no_instances",
            "warning",
            f"{where} is in MIG mode without instances, so CUDA does not see it: create instances with "
            "nvidia-smi mig -cgi PROFILE -C, or turn MIG off",
        )


def _clock_problems(reasons: int, where: str) -> t.Iterator[Problem]:
    for slow_down in SLOW_DOWNS:
        if slow_down.code == "hw_slowdown" and reasons & HW_SLOWDOWN_DETAILS:
            continue
        if reasons & slow_down.bit:
            yield Problem(slow_down.code, slow_down.severity, f"{where} is {slow_down.sentence}")
