# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with systemd and this machine's real GPUs: containers of Docker and Podman, and units as a hub starts them.

The toolkit is NVIDIA's own. The host is what tests/integration/host_root makes, named by ``HOST_ROOT``, with systemd
booted in namespaces of its own and the libraries of this machine's driver. This machine's own file system is ``/host``
in there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Host

HERE = Path(__file__).parent
ROOT_ARCHIVE = os.environ.get("HOST_ROOT", "")
BOOT_SECONDS = 60
CGROUP = Path("/sys/fs/cgroup/cudahub-host")
CONTROLLERS = ("cpu", "memory", "pids")
ROLE = "cudahub.gpu.nvidia_container_toolkit"
# A host whose network is this machine's needs no rules of its own.
DAEMON = {"bridge": "none", "iptables": False, "ip6tables": False, "log-driver": "json-file"}
VARIABLES = {
    "gpu_facts_source": "none",
    "nvidia_container_toolkit_source": "preinstalled",
    "nvidia_container_toolkit_engines": ["docker", "podman"],
}
# What a process sees of the GPUs: nodes that it can open, NVML's GPUs, and those of CUDA.
LOOK = """
import cupy, glob, json, pynvml
opened, refused = [], []
for node in sorted(glob.glob("/dev/nvidia[0-9]*")):
    try:
        open(node, "r+b", buffering=0).close()
        opened.append(node)
    except OSError as error:
        refused.append(error.strerror)
pynvml.nvmlInit()
seen = []
for index in range(pynvml.nvmlDeviceGetCount()):
    try:
        seen.append(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
    except pynvml.NVMLError_NoPermission:
        pass
count = cupy.cuda.runtime.getDeviceCount()
uuids = [cupy.cuda.runtime.getDeviceProperties(index)["uuid"].hex() for index in range(count)]
sums = cupy.arange(6).reshape(2, 3).sum(axis=1).tolist()
print(json.dumps({"opened": opened, "refused": refused, "nvml": seen, "cuda": uuids, "sums": sums}))
"""
IMAGE = "localhost/host-python:1"

pytestmark = pytest.mark.skipif(
    not ROOT_ARCHIVE, reason="not run: HOST_ROOT names no file of tests/integration/host_root"
)


@dataclass(frozen=True)
class Machine:
    """A host with systemd beside this machine."""

    root: Path
    init: int

    def run(self, *command: str, check: bool = True, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", f"--target={self.init}", "--mount", "--pid", "--cgroup", "--uts", "--ipc"]
        # As a service: a process from outside of its groups is none that systemd can put into a scope.
        service = [
            "systemd-run",
            "--pipe",
            "--wait",
            "--quiet",
            "--collect",
            "--setenv=HOME=/root",
            "--setenv=LC_ALL=C.UTF-8",
        ]
        done = subprocess.run(
            [*enter, *service, *command], capture_output=True, text=True, check=False, timeout=seconds
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
        return done

    def play(self, *tasks: dict[str, Any], **variables: object) -> str:
        """Run tasks on the host by the host's own Ansible, and return what it said on one line."""
        (self.root / "root/play.yml").write_text(json.dumps([{"hosts": "all", "tasks": list(tasks)}]))
        command = ["ansible-playbook", "-i", "box,", "-c", "local", "-e", json.dumps(variables), "/root/play.yml"]
        done = self.run(
            "env", "ANSIBLE_COLLECTIONS_PATH=/opt/collections", "ANSIBLE_NOCOLOR=true", *command, check=False
        )
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 0, done.stdout + done.stderr + self.journal()
        return said

    def uuids(self) -> list[str]:
        return re.findall(r"GPU-[-0-9a-f]{36}", self.run("nvidia-smi", "-L").stdout)

    def journal(self) -> str:
        return self.run("journalctl", "--no-pager", "--lines=60", check=False).stdout


def _bring_driver(root: Path) -> None:
    """Copy the programs and libraries of this machine's driver."""
    cache = subprocess.check_output(["ldconfig", "-p"], text=True)
    libraries = re.findall(r"(?m)^\s+(lib(?:nvidia|cuda|nvcuvid)\S*) \(libc6,x86-64.*=> (\S+)$", cache)
    assert libraries, "ldconfig knows no library of the driver"
    for name, path in libraries:
        real = Path(path).resolve()
        target = root / "usr/lib/x86_64-linux-gnu"
        shutil.copy2(real, target / real.name)
        if name != real.name and not (target / name).exists():
            (target / name).symlink_to(real.name)
    smi = shutil.which("nvidia-smi")
    assert smi
    shutil.copy2(Path(smi).resolve(), root / "usr/bin/nvidia-smi")
    subprocess.run(["chroot", str(root), "ldconfig"], check=True)


def _child(parent: int) -> int | None:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0]) if children else None


@pytest.fixture(scope="module")
def machine(host: Host) -> Iterator[Machine]:
    root = host.directory / "machine"
    root.mkdir()
    root.chmod(0o755)
    subprocess.run(["tar", "--extract", "--xz", "--file", ROOT_ARCHIVE, "--directory", str(root)], check=True)
    _bring_driver(root)
    binding = subprocess.check_output([host.python, "-c", "import pynvml; print(pynvml.__file__)"], text=True).strip()
    shutil.copy2(binding, root / "usr/lib/python3/dist-packages/pynvml.py")
    collection = root / "opt/collections/ansible_collections/cudahub/gpu"
    collection.mkdir(parents=True)
    repository = HERE.parents[1]
    for name in ("galaxy.yml", "meta", "playbooks", "plugins", "roles"):
        source = repository / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, collection / name)
    (root / "etc/docker").mkdir(parents=True, exist_ok=True)
    (root / "etc/docker/daemon.json").write_text(json.dumps(DAEMON))
    (root / "etc/containers").mkdir(exist_ok=True)
    (root / "etc/containers/containers.conf").write_text("[containers]\npids_limit = 0\n")
    (root / "etc/hostname").write_text("box\n")
    control = CGROUP.parent / "cgroup.subtree_control"
    there = (CGROUP.parent / "cgroup.controllers").read_text().split()
    added = [name for name in CONTROLLERS if name in there and name not in control.read_text().split()]
    for name in added:
        control.write_text(f"+{name}")
    CGROUP.mkdir()
    join = f"echo $$ >{CGROUP}/cgroup.procs && exec unshare --mount --pid --fork --kill-child --uts --ipc --cgroup"
    booted = subprocess.Popen(["sh", "-c", f"{join} {HERE}/boot {root}"], start_new_session=True)
    try:
        end = time.monotonic() + BOOT_SECONDS
        init = None
        while init is None or not Path(f"/proc/{init}/comm").read_text().startswith("systemd"):
            assert booted.poll() is None, "systemd has ended"
            assert time.monotonic() < end, "systemd does not start"
            time.sleep(0.2)
            init = _child(booted.pid)
        found = Machine(root, init)
        while found.run("systemctl", "is-system-running", check=False).stdout.strip() not in ("running", "degraded"):
            assert time.monotonic() < end, found.journal()
            time.sleep(0.5)
        yield found
    finally:
        booted.kill()
        booted.wait()
        (CGROUP / "cgroup.kill").write_text("1")
        time.sleep(1)
        for folder in sorted(CGROUP.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
            folder.rmdir()
        CGROUP.rmdir()
        for name in added:
            control.write_text(f"-{name}")
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def configured(machine: Machine) -> str:
    """The role has run, and proven each GPU alone in containers of both engines."""
    return machine.play({"ansible.builtin.import_role": {"name": ROLE}}, **VARIABLES)


def test_the_role_proves_each_gpu_alone(machine: Machine, configured: str) -> None:
    assert "failed=0" in configured
    daemon = json.loads((machine.root / "etc/docker/daemon.json").read_text())
    assert daemon.items() >= DAEMON.items()
    devices = machine.run("nvidia-ctk", "cdi", "list").stdout
    for uuid in machine.uuids():
        assert f"nvidia.com/gpu={uuid}" in devices


def test_a_second_run_changes_nothing(machine: Machine, configured: str) -> None:
    before = machine.run("systemctl", "show", "--property=MainPID", "docker.service").stdout
    said = machine.play({"ansible.builtin.import_role": {"name": ROLE}}, **VARIABLES)
    assert "changed=0" in said, said
    assert machine.run("systemctl", "show", "--property=MainPID", "docker.service").stdout == before


@pytest.fixture(scope="module")
def image(machine: Machine, configured: str, host: Host) -> str:
    """An image with this machine's own Python and CuPy's folder, in both engines."""
    base = subprocess.check_output([host.python, "-c", "import sys; print(sys.base_prefix)"], text=True).strip()
    assert base == "/usr", f"the base of {host.python} is {base}"
    parts = "bin lib lib64 usr/bin usr/lib64 usr/lib/python3* usr/lib/x86_64-linux-gnu etc/ld.so.conf etc/ld.so.conf.d"
    left = "--exclude=*.a --exclude=*/libcu* --exclude=*/libnv* --exclude=*/libnccl*"
    pack = f"cd /host && tar --create --ignore-failed-read {left} {parts} 2>/dev/null >/var/tmp/python.tar"
    machine.run("sh", "-c", f"{pack}; docker import /var/tmp/python.tar {IMAGE}")
    machine.run("podman", "import", "/var/tmp/python.tar", IMAGE)
    return IMAGE


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_each_gpu_computes_in_a_container_of_its_own(machine: Machine, image: str, host: Host, engine: str) -> None:
    prefix = subprocess.check_output([host.python, "-c", "import sys; print(sys.prefix)"], text=True).strip()
    task = {
        "cudahub.gpu.cuda_verify": {
            "container": {"engine": engine, "image": image, "options": [f"--volume=/host{prefix}:{prefix}:ro"]},
            "python": host.python,
            "timeout": 120,
        },
        "register": "proof",
    }
    keep = {"content": "{{ proof.verification | to_json }}", "dest": "/root/proof.json", "mode": "0600"}
    machine.play({"cudahub.gpu.gpu_facts": {}}, task, {"ansible.builtin.copy": keep})
    proof = json.loads((machine.root / "root/proof.json").read_text())
    print(json.dumps(proof)[:2000])
    uuids = machine.uuids()
    assert [gpu["uuid"] for gpu in proof["gpus"]] == uuids
    assert {gpu["verdict"] for gpu in proof["gpus"]} == {"passed"}


def test_a_unit_with_the_nodes_of_a_lease_has_that_gpu_alone(machine: Machine, host: Host) -> None:
    """The nodes are those of filter hub_gpus, the properties as ``unit_properties`` of cudahub_hub makes them."""
    keep = {
        "content": "{{ ansible_facts['gpu'] | cudahub.gpu.hub_gpus | to_json }}",
        "dest": "/root/hub.json",
        "mode": "0600",
    }
    machine.play({"cudahub.gpu.gpu_facts": {}}, {"ansible.builtin.copy": keep})
    inventory = json.loads((machine.root / "root/hub.json").read_text())
    uuids = machine.uuids()
    assert [unit["uuid"] for unit in inventory["units"]] == uuids
    for unit in inventory["units"]:
        options = ["--property=DevicePolicy=closed", "--property=DeviceAllow=char-pts rw"]
        options += [f"--property=DeviceAllow={node} rw" for node in (*inventory["common_nodes"], *unit["nodes"])]
        options += [f"--setenv=CUDA_VISIBLE_DEVICES={unit['uuid']}", "--setenv=CUDA_DEVICE_ORDER=PCI_BUS_ID"]
        run = ["systemd-run", "--pipe", "--wait", "--quiet", "--collect", *options]
        seen = json.loads(machine.run(*run, "chroot", "/host", host.python, "-c", LOOK).stdout)
        print(seen)
        assert seen["opened"] == unit["nodes"]
        assert seen["refused"] == ["Operation not permitted"] * (len(uuids) - 1)
        assert seen["nvml"] == [unit["uuid"]]
        assert seen["cuda"] == [unit["uuid"].removeprefix("GPU-").replace("-", "")]
        assert seen["sums"] == [3, 12]


def test_absent_gives_the_engines_back(machine: Machine, configured: str) -> None:
    machine.play({"ansible.builtin.import_role": {"name": ROLE, "tasks_from": "absent"}}, **VARIABLES)
    assert json.loads((machine.root / "etc/docker/daemon.json").read_text()) == DAEMON
    assert not (machine.root / "etc/cdi/nvidia.yaml").exists()
