# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SLURM's daemons with the configuration that the filters make of the facts of real GPUs.

They run in the file system that tests/integration/slurm_root makes, named by ``SLURM_ROOT``. This machine's own file
system is ``/host`` in there, so that a job can use its Python.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conftest import Host

ROOT_ARCHIVE = os.environ.get("SLURM_ROOT", "")
START_SECONDS = 30
NAME = subprocess.check_output(["hostname", "-s"], text=True).strip()
DIRECTORIES = ("var/lib/slurm/slurmctld", "var/lib/slurm/slurmd", "var/log/slurm", "run/slurm", "run/munge", "host")
LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
OPENABLE = "for device in /dev/nvidia[0-9]*; do (: <>$device) 2>/dev/null && echo $device; done; true"

pytestmark = pytest.mark.skipif(
    not ROOT_ARCHIVE, reason="not run: SLURM_ROOT names no file of tests/integration/slurm_root"
)


@dataclass(frozen=True)
class Cluster:
    """A cluster of this machine alone, in a file system of its own."""

    root: Path
    host: Host

    def run(self, *command: str, check: bool = True, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["chroot", str(self.root), *command], capture_output=True, text=True, check=check, timeout=seconds
        )

    def job(self, *command: str, gpus: int, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in a job, in this machine's own file system."""
        return self.run("srun", "--immediate=30", f"--gres=gpu:{gpus}", "chroot", "/host", *command, check=check)

    def configure(self, method: str) -> list[str]:
        """Write the files for a way to find the GPUs. Returns what slurmd sees otherwise than expected."""
        playbook, result = self.host.directory / "slurm.yml", self.host.directory / "slurm.json"
        etc = str(self.root / "etc/slurm")
        playbook.write_text(
            json.dumps([{"hosts": "all", "gather_facts": False, "tasks": _tasks(str(self.root), etc, str(result))}])
        )
        plugins = [path.stem.removeprefix("gpu_") for path in self.root.glob("usr/lib/*/slurm-wlm/gpu_*.so")]
        run = self.host.playbook(str(playbook), method=method, plugins=plugins, node=NAME)
        assert run.returncode == 0, run.output
        differences: list[str] = json.loads(result.read_text())
        return differences

    def start(self) -> None:
        """Start the daemons and wait for the node."""
        self.run("slurmctld", "-c")
        self.run("slurmd")
        end = time.monotonic() + START_SECONDS
        while (state := self.run("sinfo", "--noheader", "--format=%T", check=False).stdout.strip()) != "idle":
            assert time.monotonic() < end, f"the node is {state}:\n{self.logs()}"
            time.sleep(0.5)

    def stop(self) -> None:
        """End the daemons."""
        for daemon in ("slurmd", "slurmctld"):
            subprocess.run(["pkill", "--exact", daemon], check=False)
            while subprocess.run(["pgrep", "--exact", daemon], check=False, capture_output=True).returncode == 0:
                time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-4000:] for path in sorted((self.root / "var/log/slurm").glob("*.log")))


def _tasks(root: str, etc: str, result: str) -> list[dict[str, object]]:
    nodes = [
        {
            "name": "{{ node }}",
            "address": "127.0.0.1",
            "version": "{{ version.stdout.split()[-1] }}",
            "hardware": "{{ hardware.stdout | cudahub.gpu.slurm_hardware }}",
            "gpus": "{{ ansible_facts['gpu']['gpus'] }}",
            "driver_state": "{{ ansible_facts['gpu']['driver']['state'] }}",
            "simulated": "{{ ansible_facts['gpu']['simulated'] }}",
            "plugins": "{{ plugins }}",
            "autodetect": "{{ method }}",
        }
    ]
    cluster = {
        "name": "real",
        "version": "{{ version.stdout.split()[-1] }}",
        "controllers": [{"name": "{{ node }}", "address": "127.0.0.1"}],
        "slurm_user": "root",
        "single_host": True,
        "memory_reserve_percent": 10,
        # A container's cgroup may have no controllers for cores and memory; the devices need none.
        "config": {"JobAcctGatherType": "jobacct_gather/linux"},
        "cgroup_config": {"IgnoreSystemd": True, "ConstrainCores": False, "ConstrainRAMSpace": False},
    }
    return [
        {"cudahub.gpu.gpu_facts": {}},
        {
            "ansible.builtin.command": {"argv": ["chroot", root, "slurmd", "-V"]},
            "register": "version",
            "changed_when": False,
        },
        {
            "ansible.builtin.command": {"argv": ["chroot", root, "slurmd", "-C"]},
            "register": "hardware",
            "changed_when": False,
        },
        {"ansible.builtin.set_fact": {"nodes": nodes, "cluster": cluster}},
        {
            "ansible.builtin.copy": {
                "content": "{{ item.value }}",
                "dest": f"{etc}/{{{{ item.key }}}}",
                "mode": "0644",
            },
            "loop": "{{ nodes | cudahub.gpu.slurm_files(cluster=cluster) | dict2items }}",
        },
        {
            "ansible.builtin.command": {"argv": ["chroot", root, "slurmd", "-G"]},
            "register": "gres",
            "changed_when": False,
        },
        {
            "ansible.builtin.copy": {
                "content": "{{ (gres.stdout + gres.stderr) | cudahub.gpu.slurm_gres_difference("
                "(nodes | cudahub.gpu.slurm_gres(version=cluster.version))[node]) | to_json }}",
                "dest": result,
                "mode": "0644",
            }
        },
    ]


@pytest.fixture(scope="module")
def cluster(host: Host) -> Iterator[Cluster]:
    root = host.directory / "slurm-root"
    root.mkdir()
    root.chmod(0o755)
    subprocess.run(["tar", "--extract", "--xz", "--file", ROOT_ARCHIVE, "--directory", str(root)], check=True)
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {NAME}\n")
    mounts = {"host": "/", "proc": "/proc", "sys": "/sys", "dev": "/dev"}
    made = []
    try:
        for name, source in mounts.items():
            subprocess.run(["mount", "--rbind", "--make-rslave", source, str(root / name)], check=True)
            made.append(root / name)
        _link_libraries(root)
        _start_munge(root)
        yield Cluster(root, host)
    finally:
        for daemon in ("slurmd", "slurmctld", "munged"):
            subprocess.run(["pkill", "--exact", daemon], check=False)
        for path in reversed(made):
            subprocess.run(["umount", "--recursive", "--lazy", str(path)], check=True)
        shutil.rmtree(root)


def _link_libraries(root: Path) -> None:
    """Let the linker of the file system find this machine's driver."""
    cache = subprocess.check_output(["ldconfig", "-p"], text=True)
    found = {line.split()[0]: Path(line.split()[-1]).resolve() for line in cache.splitlines() if "x86-64" in line}
    for name in LIBRARIES:
        shutil.copy2(found[name], root / "usr/lib/x86_64-linux-gnu" / found[name].name)
    subprocess.run(["chroot", str(root), "ldconfig"], check=True)


def _start_munge(root: Path) -> None:
    key = root / "etc/munge/munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    subprocess.run(["chroot", str(root), "chown", "munge:munge", "/etc/munge/munge.key", "/run/munge"], check=True)
    subprocess.run(["chroot", "--userspec=munge:munge", str(root), "munged", "--force"], check=True)


def _uuids(host: Host) -> list[str]:
    return [card.findtext("uuid", "") for card in host.smi().findall("gpu")]


def _lines(text: str) -> Sequence[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("method", ["auto", "nvidia", "nvml", "off"])
def test_a_job_gets_the_gpus_that_it_asked_for_and_no_other(cluster: Cluster, method: str) -> None:
    uuids = _uuids(cluster.host)
    assert cluster.configure(method) == []
    cluster.start()
    try:
        listed = cluster.job("nvidia-smi", "-L", gpus=1)
        assert len(_lines(listed.stdout)) == 1, listed.stdout
        assert len(_lines(cluster.job("sh", "-c", OPENABLE, gpus=1).stdout)) == 1
        everything = cluster.job("nvidia-smi", "-L", gpus=len(uuids))
        assert [uuid for uuid in uuids if uuid in everything.stdout] == uuids
        refused = cluster.job("true", gpus=len(uuids) + 1, check=False)
        assert refused.returncode != 0
        assert "Requested node configuration is not available" in refused.stderr
        lines = (cluster.root / "etc/slurm/gres.conf").read_text().splitlines()[1:]
        cluster.host.measured.append(f"SLURM, {method}: {lines}: {listed.stdout.strip()}")
    finally:
        cluster.stop()


def test_every_gpu_computes_in_a_job(cluster: Cluster) -> None:
    uuids = _uuids(cluster.host)
    assert cluster.configure("auto") == []
    cluster.start()
    try:
        prefix = ["chroot", str(cluster.root), "srun", f"--gres=gpu:{len(uuids)}", "chroot", "/host"]
        result = cluster.host.task("cudahub.gpu.cuda_verify", python=cluster.host.python, command_prefix=prefix)
        verdicts = [(gpu["uuid"], gpu["verdict"]) for gpu in result["verification"]["gpus"]]
        assert verdicts == [(uuid, "passed") for uuid in uuids], result
        cluster.host.measured.append(
            f"cuda_verify through srun: {len(uuids)} GPUs in {result['verification']['seconds']:.2f} s"
        )
    finally:
        cluster.stop()
