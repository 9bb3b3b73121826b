# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A GPU is proven by what the container saw, and each failure has its kind."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _container_gpus as proof
from ansible_collections.cudahub.gpu.plugins.module_utils._container_gpus import (
    Ended,
    EngineError,
    EngineGoneError,
    TimeLimitError,
)

A, B, MIG = "GPU-a", "GPU-b", "MIG-m"
GOOD: dict[str, t.Any] = {"nodes": {"nvidia1": "ok"}, "gpus": [A], "migs": [], "kind": None, "reason": None}


class Engine:
    def __init__(self, answer: Ended | EngineError) -> None:
        self.answer = answer

    def run(self, *_asked: t.Any) -> Ended:
        if isinstance(self.answer, EngineError):
            raise self.answer
        return self.answer


def saw(**found: t.Any) -> Ended:
    return Ended(0, f"a warning\n{proof.MARK}{json.dumps({**GOOD, **found})}\n")


CASES: dict[str, tuple[Ended | EngineError, str, str]] = {
    "no library": (
        saw(kind="no_library", reason="cannot open", gpus=[]), "no_library", "no libnvidia-ml.so.1 in the container"
    ),
    "no node": (saw(nodes={}), "no_device_node", "no /dev/nvidia<N>"),
    "forbidden": (saw(nodes={"nvidia1": "EPERM"}), "no_permission", "may not open /dev/nvidia1"),
    "forbidden by mode": (saw(nodes={"nvidia1": "EACCES"}), "no_permission", "may not open /dev/nvidia1, which it was"),
    "forbidden by SELinux": (
        saw(nodes={"nvidia1": "EACCES"}, label="system_u:system_r:container_t:s0:c380,c597", kind="nvml", gpus=[]),
        "no_permission", "container_use_xserver_devices on (container_use_devices, for all devices, where",
    ),
    "driver is gone": (saw(kind="nvml", reason="code 9: Driver Not Loaded", gpus=[]), "nvml", "code 9"),
    "another GPU": (saw(gpus=[B]), "wrong_gpus", "sees GPU-b"),
    "all GPUs": (saw(gpus=[A, B], nodes={"nvidia0": "ok", "nvidia1": "ok"}), "wrong_gpus", "sees GPU-a, GPU-b"),
    "a node more": (saw(nodes={"nvidia0": "ENXIO", "nvidia1": "ok"}), "wrong_gpus", "/dev/nvidia0, /dev/nvidia1"),
    "too slow": (TimeLimitError(), "timeout", "not done after 5 s"),
    "no engine": (EngineGoneError("connection refused"), "engine", "refused"),
    "unknown device": (
        EngineError("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-a"), "request", "unresolv"
    ),
    "docker without CDI": (
        Ended(125, 'docker: Error response from daemon: could not select device driver "cdi" with capabilities: [].'),
        "request", "select",
    ),
    "podman without the device": (Ended(126, "Error: unresolvable CDI devices nvidia.com/gpu=a"), "request", "126"),
    "no image": (Ended(125, "Error: x: image not known"), "image", "not known"),
    "no Python": (Ended(127, 'exec: "python3": executable file not found in $PATH'), "start", "python3"),
    "killed": (Ended(137, ""), "died", "ended with 137: it said nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_failures_have_a_kind(name: str) -> None:
    answer, kind, words = CASES[name]
    found = proof.prove(Engine(answer), "image", A, 5)
    assert (found.ok, found.kind) == (False, kind)
    assert words in str(found.reason)


@pytest.mark.parametrize("state", ["ok", "ENXIO"])
def test_the_gpu_alone_is_a_proof(state: str) -> None:
    """A simulated GPU has no driver behind its node."""
    found = proof.prove(Engine(saw(nodes={"nvidia1": state})), "image", A, 5)
    assert found.as_data() == {
        "uuid": A, "ok": True, "kind": None, "reason": None, "gpus": [A], "nodes": ["nvidia1"]
    }  # fmt: skip


CAPS = [f"nvidia-caps/nvidia-cap{number}" for number in (12, 13, 48)]


def mig_saw(nodes: list[str], *migs: str, **states: str) -> proof.Proof:
    """What is made of a container that has asked for a MIG device."""
    return proof.judge(MIG, {**GOOD, "nodes": {**dict.fromkeys(nodes, "ok"), **states}, "migs": list(migs)})


def test_a_mig_device_is_compared_with_mig_devices() -> None:
    found = mig_saw(["nvidia1", *CAPS[:2]], MIG)
    assert (found.ok, found.nodes) == (True, ("nvidia1", *CAPS[:2]))
    assert mig_saw(["nvidia1", *CAPS[:2]], MIG, "MIG-n").kind == "wrong_gpus"


def test_a_mig_device_needs_the_nodes_of_its_capabilities_and_no_more() -> None:
    found = mig_saw(["nvidia1", CAPS[0]])
    assert (found.kind, found.reason) == (
        "wrong_gpus",
        "the container sees no GPU, and has 1 of the 2 nodes in /dev/nvidia-caps that it needs",
    )
    assert mig_saw(["nvidia1", *CAPS], MIG).kind == "wrong_gpus"
    found = mig_saw(["nvidia1", *CAPS[:2]], MIG, **{CAPS[1]: "EPERM"})
    assert (found.kind, found.reason) == (
        "no_permission",
        "the container may not open /dev/nvidia-caps/nvidia-cap13, which it was given",
    )
    assert mig_saw(CAPS[:2], MIG).kind == "no_device_node"


@pytest.mark.parametrize("label", ["", "docker-default (enforce)", "unconfined"])
def test_nobody_else_is_told_of_selinux(label: str) -> None:
    seen = {"nodes": {"nvidia0": "EACCES"}, "gpus": [], "migs": [], "kind": "nvml", "reason": "", "label": label}
    found = proof.judge(A, seen)
    assert found.reason == "the container may not open /dev/nvidia0, which it was given"


def test_the_program_in_the_container_tells_its_label() -> None:
    said = subprocess.run([sys.executable, "-c", proof.PAYLOAD], capture_output=True, text=True, check=True).stdout
    found = json.loads(said.removeprefix(proof.MARK))
    try:
        own = Path("/proc/self/attr/current").read_text(encoding="utf-8")
    except OSError:
        own = ""
    assert found["label"] == own.strip("\0\n")


def test_how_engines_are_asked() -> None:
    def asked(request: str) -> str:
        return " ".join(proof.command(["docker"], request, "image", A, "code", "name"))

    assert "--device nvidia.com/gpu=GPU-a " in asked("cdi")
    assert '--gpus "device=GPU-a" ' in asked("gpus")
    assert "--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=GPU-a " in asked("runtime")
    assert "--network none --pull never" in asked("cdi")
    assert proof.sdk_options("cdi", A, dict)["device_requests"] == [
        {"driver": "cdi", "device_ids": ["nvidia.com/gpu=GPU-a"]}
    ]
    assert proof.sdk_options("gpus", A, dict)["device_requests"] == [{"device_ids": [A], "capabilities": [["gpu"]]}]
    assert proof.sdk_options("runtime", A, dict)["runtime"] == "nvidia"
