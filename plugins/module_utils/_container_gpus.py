# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a container that asked for a GPU sees it, and no other."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

MARK = "cudahub container_gpus "
CAPABILITIES = "nvidia-caps/"
MIG_CAPABILITIES = 2
"""The nodes that a MIG device needs beside its GPU's: of its GPU instance, and of its compute instance."""

PAYLOAD = """
import ctypes, errno, json, os
found = {"nodes": {}, "gpus": [], "migs": [], "kind": None, "reason": None, "label": ""}
try:
    with open("/proc/self/attr/current") as file:
        found["label"] = file.read().strip("\\0\\n")
except OSError:
    pass
caps = "/dev/nvidia-caps"
names = [name for name in sorted(os.listdir("/dev")) if name.startswith("nvidia") and name[6:].isdigit()]
names += ["nvidia-caps/" + name for name in (sorted(os.listdir(caps)) if os.path.isdir(caps) else [])]
for name in names:
    if name[-1].isdigit():
        try:
            os.close(os.open("/dev/" + name, os.O_RDWR))
            found["nodes"][name] = "ok"
        except OSError as error:
            found["nodes"][name] = errno.errorcode.get(error.errno, str(error.errno))
def text(function, handle):
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode() if function(handle, buffer, 96) == 0 else None
def look():
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return "no_library", str(error)
    code = nvml.nvmlInit_v2()
    if code:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        return "nvml", "code %d: %s" % (code, nvml.nvmlErrorString(code).decode())
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        gpu = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)):
            continue
        found["gpus"].append(text(nvml.nvmlDeviceGetUUID, gpu))
        most = ctypes.c_uint()
        if nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(most)):
            continue
        for number in range(most.value):
            mig = ctypes.c_void_p()
            if nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number, ctypes.byref(mig)) == 0:
                found["migs"].append(text(nvml.nvmlDeviceGetUUID, mig))
    return None, None
found["kind"], found["reason"] = look()
print("cudahub container_gpus " + json.dumps(found), flush=True)
"""
"""What a container runs; it needs Python 3 and nothing else."""

# AppArmor writes no such labels. https://github.com/containers/container-selinux/commit/6dfcb38 is in 2.232.0.
_SELINUX = re.compile(r"[^:\s]+:[^:\s]+:[^:\s]+_t:\S+")
_SELINUX_ADVICE = (
    "SELinux denies it; run setsebool -P container_use_xserver_devices on (container_use_devices, for all devices,"
    " where container-selinux is older than 2.232), or start containers with --security-opt label=disable"
)
# What engines say when they can't give a device.
_REFUSED = re.compile(
    r"unresolvable CDI devices?|could not select device driver|unknown runtime specified|invalid CDI|CDI device|"
    r"nvidia-container-cli|stat /dev/nvidia|--gpus|unknown flag: --device|failed to inject",
    re.IGNORECASE,
)
_NO_IMAGE = re.compile(r"no such image|unable to find image|image not known|pull access denied|not found: manifest|"
                       r"short-name|initializing source|failed to resolve reference", re.IGNORECASE)  # fmt: skip
_NO_ENGINE = re.compile(r"cannot connect to the docker daemon|connection refused|permission denied.*docker\.sock|"
                        r"is the docker daemon running|validate service connection", re.IGNORECASE)  # fmt: skip


class EngineError(Exception):
    """The engine did not do what was asked for, in its words."""


class EngineGoneError(EngineError):
    """The engine doesn't answer at all."""


class TimeLimitError(EngineError):
    """The container was not done in time."""


@dataclass(frozen=True)
class Ended:
    """A container that has ended."""

    code: int
    output: str


class Engine(t.Protocol):
    """What runs containers."""

    def run(self, image: str, gpu: str, program: str, timeout: float) -> Ended:
        """Run Python code in a container that has asked for a GPU, and leave no container. Raises EngineError."""


@dataclass(frozen=True)
class Proof:
    """What came of a GPU."""

    uuid: str
    ok: bool
    kind: str | None = None
    reason: str | None = None
    gpus: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def as_data(self) -> dict[str, t.Any]:
        """As the module returns it."""
        return {
            "uuid": self.uuid, "ok": self.ok, "kind": self.kind, "reason": self.reason, "gpus": list(self.gpus),
            "nodes": list(self.nodes),
        }  # fmt: skip


def prove(engine: Engine, image: str, uuid: str, timeout: float) -> Proof:
    """Ask for one GPU, and say what the container saw."""
    try:
        ended = engine.run(image, uuid, PAYLOAD, timeout)
    except TimeLimitError:
        return Proof(uuid, ok=False, kind="timeout", reason=f"the container was not done after {timeout:g} s")
    except EngineGoneError as error:
        return Proof(uuid, ok=False, kind="engine", reason=str(error))
    except EngineError as error:
        return Proof(uuid, ok=False, kind=kind_of(str(error)), reason=str(error))
    line = next((line for line in ended.output.splitlines() if line.startswith(MARK)), None)
    if line is None:
        said = " ".join(ended.output.split())[-400:] or "it said nothing"
        kind = kind_of(said) if ended.code in (125, 126, 127) else "died"
        return Proof(uuid, ok=False, kind=kind, reason=f"the container ended with {ended.code}: {said}")
    return judge(uuid, json.loads(line[len(MARK) :]))


def judge(uuid: str, found: t.Mapping[str, t.Any]) -> Proof:
    """Whether what a container saw is what it asked for."""
    nodes = tuple(found["nodes"])
    mig = uuid.startswith("MIG-")
    capabilities = [name for name in nodes if name.startswith(CAPABILITIES)]
    of_gpus = [name for name in nodes if not name.startswith(CAPABILITIES)]
    seen = tuple(str(one) for one in found["migs" if mig else "gpus"])
    closed = [f"/dev/{name}" for name, state in found["nodes"].items() if state in ("EPERM", "EACCES")]
    if found["kind"] == "no_library":
        reason = f"there is no libnvidia-ml.so.1 in the container: {found['reason']}"
        return Proof(uuid, ok=False, kind="no_library", reason=reason, nodes=nodes)
    if not of_gpus:
        return Proof(uuid, ok=False, kind="no_device_node", reason="the container has no /dev/nvidia<N>", gpus=seen)
    if closed:
        reason = f"the container may not open {', '.join(closed)}, which it was given"
        if "EACCES" in found["nodes"].values() and _SELINUX.fullmatch(found.get("label", "")):
            reason += f": {_SELINUX_ADVICE}"
        return Proof(uuid, ok=False, kind="no_permission", reason=reason, gpus=seen, nodes=nodes)
    if found["kind"] is not None:
        return Proof(uuid, ok=False, kind=str(found["kind"]), reason=f"NVML: {found['reason']}", nodes=nodes)
    if seen != (uuid,):
        reason = f"the container sees {', '.join(seen) or 'no GPU'}"
        if mig and len(capabilities) < MIG_CAPABILITIES:
            reason += f", and has {len(capabilities)} of the {MIG_CAPABILITIES} nodes in /dev/nvidia-caps that it needs"
        return Proof(uuid, ok=False, kind="wrong_gpus", reason=reason, gpus=seen, nodes=nodes)
    if len(of_gpus) != 1 or (mig and len(capabilities) > MIG_CAPABILITIES):
        reason = f"the container has {', '.join(f'/dev/{name}' for name in nodes)}, and asked for one GPU"
        return Proof(uuid, ok=False, kind="wrong_gpus", reason=reason, gpus=seen, nodes=nodes)
    return Proof(uuid, ok=True, gpus=seen, nodes=nodes)


def kind_of(said: str) -> str:
    """The kind of a failure, by what an engine says."""
    if _NO_ENGINE.search(said):
        return "engine"
    if _REFUSED.search(said):
        return "request"
    return "image" if _NO_IMAGE.search(said) else "start"


def command(engine: t.Sequence[str], request: str, image: str, gpu: str, program: str, name: str) -> list[str]:
    """The command that runs a program of Python in a container, of ``docker`` or ``podman``."""
    return [*started(engine, request, image, gpu, name), "-c", program]


def started(
    engine: t.Sequence[str],
    request: str,
    image: str,
    gpu: str,
    name: str,
    options: t.Sequence[str] = (),
    python: str = "python3",
) -> list[str]:
    """The command that starts Python in a container, without its arguments. ``options`` are more of the engine's."""
    asks = {
        "cdi": ["--device", f"nvidia.com/gpu={gpu}"],
        "gpus": ["--gpus", f'"device={gpu}"'],
        "runtime": ["--runtime", "nvidia", "--env", f"NVIDIA_VISIBLE_DEVICES={gpu}"],
    }[request]
    return [
        *engine, "run", "--rm", "--name", name, "--network", "none", "--pull", "never",
        "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility", *asks, *options, "--entrypoint", python, image,
    ]  # fmt: skip


def sdk_options(request: str, gpu: str, request_class: t.Callable[..., t.Any]) -> dict[str, t.Any]:
    """How docker's SDK asks for a GPU."""
    if request == "runtime":
        return {"runtime": "nvidia", "environment": {"NVIDIA_VISIBLE_DEVICES": gpu}}
    if request == "cdi":
        asked = request_class(driver="cdi", device_ids=[f"nvidia.com/gpu={gpu}"])
    else:
        asked = request_class(device_ids=[gpu], capabilities=[["gpu"]])
    return {"device_requests": [asked], "environment": {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}}
