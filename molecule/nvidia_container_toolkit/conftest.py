# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of a host, and the role with other options."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from testinfra.host import Host

ROLE = Path(__file__).with_name("role.yml")
PROVE = Path(__file__).with_name("prove.yml")
IMAGE = "localhost/test:1"
SEES = """
import ctypes, json, os
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
count, found = ctypes.c_uint(), []
nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
for index in range(count.value):
    gpu, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu))
    nvml.nvmlDeviceGetUUID(gpu, uuid, 96)
    found.append(uuid.value.decode())
migs = []
for index in range(count.value):
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu))
    for number in range(7):
        mig, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number, ctypes.byref(mig)) == 0:
            nvml.nvmlDeviceGetUUID(mig, uuid, 96)
            migs.append(uuid.value.decode())
errors = {}
for path, minor in WANTED.items():
    try:
        if not os.path.exists(path):
            os.mknod(path := "/tmp/%d" % minor, 0o020666, os.makedev(195, minor))
        os.close(os.open(path, os.O_RDWR))
        errors[minor] = None
    except OSError as error:
        errors[minor] = error.errno
print(json.dumps([migs or found, [name for name in sorted(os.listdir("/dev")) if name[6:].isdigit()], errors]))
"""
SOCKETS = {"containerd": "/run/containerd/containerd.sock", "crio": "/run/crio/crio.sock"}
# The host's network, and processes of its own.
NAMESPACES = {"namespace_options": {"network": 2, "pid": 1}}


class Box:
    """A host with engines."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @property
    def uuids(self) -> list[str]:
        """The GPUs of the host."""
        return [gpu["uuid"] for gpu in json.loads(self.host.check_output("gpu-simulator show"))["gpus"]]

    def sees(self, engine: str, *asked: str, options: str = "") -> Any:
        """What a container sees that asks for GPUs: UUIDs, nodes, and what opening each of the host's nodes gives."""
        devices = " ".join(f"--device nvidia.com/gpu={name}" for name in asked)
        command = (
            f"{engine} run --rm --network none --cap-add MKNOD {options} {devices} --entrypoint python3 {IMAGE} -c %s"
        )
        return json.loads(self.host.check_output(command, f"WANTED = {self.nodes}\n{SEES}"))

    def pod(self, engine: str, name: str, program: str, *asked: str) -> tuple[str, str]:
        """Start a pod with a container that runs a program of Python, and return the ids of both."""
        parent = {"cgroup_parent": "system.slice"} if engine == "crio" else {}
        pod = {
            "metadata": {"namespace": "test", "attempt": 0, "name": name, "uid": name},
            "log_directory": "/opt",
            "linux": {"security_context": NAMESPACES, **parent},
        }
        container = {
            "metadata": {"name": name},
            "image": {"image": IMAGE},
            "command": ["python3", "-c", program],
            "log_path": f"{name}.log",
            "linux": {"security_context": {**NAMESPACES, "capabilities": {"add_capabilities": ["MKNOD"]}}},
            "CDI_devices": [{"name": f"nvidia.com/gpu={one}"} for one in asked],
        }
        for what, content in {"pod": pod, "container": container}.items():
            self.host.check_output(f"printf %%s %s > /opt/{what}.json", json.dumps(content))
        sandbox = self.crictl(engine, "runp", "/opt/pod.json")
        made = self.crictl(engine, "create", "--no-pull", sandbox, "/opt/container.json", "/opt/pod.json")
        self.crictl(engine, "start", made)
        return sandbox, made

    def crictl(self, engine: str, *words: str) -> str:
        """What the command prints."""
        command = f"crictl --runtime-endpoint unix://{SOCKETS[engine]} --timeout 60s"
        return self.host.check_output(f"{command} {' '.join(words)}")

    def says_in_pod(self, engine: str, program: str, *asked: str) -> str:
        """What a container of a pod says, which runs a program of Python to its end."""
        sandbox, made = self.pod(engine, "says", program, *asked)
        try:
            asks = f"crictl -r unix://{SOCKETS[engine]} inspect {made}"
            ended = f"until {asks} | grep -q CONTAINER_EXITED; do sleep 0.2; done"
            self.host.check_output("timeout 120 sh -c %s", ended)
            return self.crictl(engine, "logs", made)
        finally:
            self.crictl(engine, "rmp", "--force", sandbox)
            # An engine appends to it.
            self.host.check_output("rm /opt/says.log")

    def sees_in_pod(self, engine: str, *asked: str) -> Any:
        """What a container of a pod sees that asks for GPUs, as ``sees``."""
        return json.loads(self.says_in_pod(engine, f"WANTED = {self.nodes}\n{SEES}", *asked))

    @property
    def nodes(self) -> dict[str, int]:
        """The nodes of the host's GPUs and of capabilities of MIG devices, and their minor numbers."""
        found = self.host.check_output("stat -c '%n %Lr' /dev/nvidia[0-9] $(ls -d /dev/nvidia-caps/* 2>/dev/null)")
        return {path: int(minor) for path, _space, minor in (line.partition(" ") for line in found.splitlines())}

    @property
    def instances(self) -> list[str]:
        """The MIG devices of the host."""
        gpus = json.loads(self.host.check_output("gpu-simulator show"))["gpus"]
        return [instance["uuid"] for gpu in gpus for instance in gpu["mig"]]

    def start(self, name: str) -> None:
        """Start a container that stays."""
        sleep = "import time; time.sleep(100000)"
        self.host.check_output(f"docker run -d --name {name} --network none --entrypoint python3 {IMAGE} -c %s", sleep)

    def pids(self, container: str) -> list[str]:
        """The processes of the engine and of a container."""
        return [
            self.host.check_output("systemctl show docker.service --property=MainPID --value"),
            self.host.check_output("docker inspect --format '{{.State.Pid}}' %s", container),
        ]

    def daemon(self) -> dict[str, Any]:
        """Docker's configuration."""
        return dict(json.loads(self.host.file("/etc/docker/daemon.json").content_string))


@pytest.fixture(scope="module")
def box(host: Host) -> Box:
    """The host."""
    return Box(host)


@pytest.fixture
def here(host: Host) -> list[str]:
    """What has a playbook run on the host of a test only."""
    return ["--limit", host.backend.get_pytest_id().rpartition("/")[2]]


@pytest.fixture
def role(play: Callable[..., CompletedProcess[str]], here: list[str]) -> Callable[..., str]:
    """Return a function that runs an entry point with options, and gives what was said, on one line."""

    def run(entry: str = "main", *arguments: str, fails: bool = False, **options: Any) -> str:
        variables = {"entry": entry, **{f"nvidia_container_toolkit_{name}": value for name, value in options.items()}}
        done = play(ROLE, *here, "--extra-vars", json.dumps(variables), *arguments)
        said = re.sub(r"\s+", " ", done.stdout + done.stderr)
        assert (done.returncode != 0) is fails, said
        return said

    return run


@pytest.fixture
def prove(host: Host, play: Callable[..., CompletedProcess[str]], here: list[str]) -> Callable[..., dict[str, Any]]:
    """Return a function that does CUDA work in containers of an engine, and gives what came of it."""

    def run(engine: str, **options: Any) -> dict[str, Any]:
        done = play(PROVE, *here, "--extra-vars", json.dumps({"engine": engine, **options}))
        assert done.returncode == 0, done.stdout
        return dict(json.loads(host.file("/opt/proof.json").content_string))

    return run


@pytest.fixture(scope="module")
def cri() -> None:
    """Skip without the programs of pods."""
    if not os.environ.get("MOLECULE_CRI"):
        pytest.skip(
            "Pods of CRI-O and containerd are not tested: MOLECULE_CRI names no folder with crictl, crio, pinns."
        )
