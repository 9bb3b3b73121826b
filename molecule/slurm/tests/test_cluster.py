# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster takes jobs, gives each the GPUs that it asked for, and keeps the others from it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://head"]
UNITS = ["slurmctld", "slurmdbd", "munge"]

H100 = "nvidia_h100_80gb_hbm3"
A100 = "nvidia_a100"  # as slurmd names MIG instances
LOOK = (
    "echo visible=$CUDA_VISIBLE_DEVICES; for node in /dev/nvidia[0-9]*; do "
    'echo "$node=$( (exec 3<$node) 2>&1 | sed s/.*:.//)"; done'
)


def srun(host: Host, *options: str, command: str = LOOK) -> dict[str, str]:
    """What a job says, as names and values."""
    said = host.check_output(f"srun --immediate=60 --mem=64 --chdir=/ {' '.join(options)} bash -c '{command}'")
    return dict(line.partition("=")[::2] for line in said.splitlines() if "=" in line)


def gres(host: Host, node: str) -> set[str]:
    shown = host.check_output(f"sinfo --noheader --Node --nodes={node} --partition=main --Format=gres:200").strip()
    return {part.split("(")[0] for part in shown.split(",")}


def state(host: Host, node: str) -> str:
    return host.check_output(f"sinfo --noheader --nodes={node} --partition=main --format=%T").strip()


def wait_for(host: Host, node: str, *states: str) -> None:
    """Wait until a node is in one of the states."""
    end = time.monotonic() + 300
    while (now := state(host, node)) not in states:
        assert time.monotonic() < end, f"{node} is {now}"
        time.sleep(0.5)


def test_nodes_are_idle_and_have_their_gpus(host: Host) -> None:
    for node in ("gpu1", "gpu2"):
        wait_for(host, node, "idle")
    assert gres(host, "gpu1") == {f"gpu:{H100}:4"}
    slices = {f"gpu:{A100}_{profile}:1" for profile in ("3g.20gb", "2g.10gb", "1g.5gb")}
    assert gres(host, "gpu2") == slices | {"gpu:tesla_t4:1"}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_job_opens_its_gpus_and_no_other(host: Host, count: int) -> None:
    said = srun(host, f"--gres=gpu:{H100}:{count}")
    assert len(said.pop("visible").split(",")) == count
    # Simulated device nodes have no driver behind them.
    assert sorted(said.values()) == sorted(
        ["No such device or address"] * count + ["Operation not permitted"] * (4 - count)
    )


def test_a_job_without_gpu_opens_none(host: Host) -> None:
    said = srun(host, "--nodelist=gpu1")
    assert said.pop("visible") == ""
    assert set(said.values()) == {"Operation not permitted"}


def test_a_mig_instance_is_given_by_its_uuid(host: Host) -> None:
    said = srun(host, f"--gres=gpu:{A100}_2g.10gb:1")
    assert said["visible"].startswith("MIG-")
    assert said["/dev/nvidia0"] == "No such device or address"
    assert said["/dev/nvidia1"] == "Operation not permitted"


def test_mixed_gpus_of_one_node(host: Host) -> None:
    said = srun(host, "--gres=gpu:tesla_t4:1")
    assert (said["/dev/nvidia0"], said["/dev/nvidia1"]) == ("Operation not permitted", "No such device or address")


@pytest.mark.parametrize("options", [f"--gres=gpu:{H100}:5", "--gres=gpu:tesla_t4:2", "--partition=hopper -w gpu2"])
def test_what_no_node_has_is_refused(host: Host, options: str) -> None:
    said = host.run(f"srun --immediate=20 --mem=64 {options} true")
    assert said.rc != 0
    assert "not available" in said.stderr or "not in this partition" in said.stderr


def test_features(host: Host) -> None:
    assert srun(host, "--constraint=hopper", command="echo node=$SLURMD_NODENAME") == {"node": "gpu1"}


def test_a_user_with_an_account_runs_jobs_and_others_do_not(host: Host) -> None:
    run = "cd /; srun --immediate=60 --mem=64 id -un"
    assert host.check_output(f"runuser -u anna -- bash -c '{run}'") == "anna"
    refused = host.run(f"runuser -u nobody -- bash -c '{run}'")
    assert refused.rc != 0
    assert "Invalid account" in refused.stderr


def test_the_munge_key_is_one_and_the_same_and_secret(host: Host) -> None:
    keys = set()
    for name in ("head", "front", "gpu1", "gpu2"):
        other = Host.get_host(f"ansible://{name}", ansible_inventory=host.backend.ansible_runner.inventory_file)
        key = other.file("/etc/munge/munge.key")
        assert (key.user, key.mode) == ("munge", 0o400)
        keys.add(key.sha256sum)
    assert len(keys) == 1


def test_compute_nodes_have_their_configuration_from_the_controller(host: Host) -> None:
    node = Host.get_host("ansible://gpu1", ansible_inventory=host.backend.ansible_runner.inventory_file)
    assert not node.file("/etc/slurm/slurm.conf").exists
    assert host.file("/etc/slurm/slurm.conf").contains("enable_configless")


def test_jobs_are_started_from_a_host_that_only_logs_people_in(host: Host) -> None:
    front = Host.get_host("ansible://front", ansible_inventory=host.backend.ansible_runner.inventory_file)
    run = "cd /; srun --immediate=60 --mem=64 --nodelist=gpu1 --gres=gpu:1 hostname -s"
    assert front.check_output(f"runuser -u anna -- bash -c '{run}'") == "gpu1"
    assert not front.file("/usr/sbin/slurmd").exists
    assert not front.file("/usr/sbin/slurmctld").exists


@pytest.fixture
def node(host: Host) -> Iterator[Host]:
    """A compute node whose slurmd runs again afterwards."""
    node = Host.get_host("ansible://gpu1", ansible_inventory=host.backend.ansible_runner.inventory_file)
    yield node
    node.run_expect([0], "systemctl start slurmd")
    wait_for(host, "gpu1", "idle")


def test_a_node_that_was_gone_comes_back_by_itself(host: Host, node: Host) -> None:
    node.run_expect([0], "systemctl kill --signal=KILL slurmd")
    wait_for(host, "gpu1", "down*")
    node.run_expect([0], "systemctl restart slurmd")
    wait_for(host, "gpu1", "idle")
    assert len(srun(host, f"--gres=gpu:{H100}:1")["visible"]) == 1


@pytest.mark.long
def test_the_jobs_of_a_machine_that_stops_go_back_into_the_queue(host: Host, node: Host) -> None:
    machine = node.ansible.get_variables()["ansible_host"]
    job = host.check_output(
        "sbatch --parsable --chdir=/ --mem=64 --nodelist=gpu1 --gres=gpu:1 --output=/dev/null --wrap 'sleep 300'"
    )
    wait_for(host, "gpu1", "mixed")
    subprocess.run(["docker", "stop", "--timeout=2", machine], check=True, capture_output=True)
    wait_for(host, "gpu1", "down*")
    assert re.search(r"JobState=PENDING .*Restarts=1 ", host.check_output(f"scontrol --oneliner show job {job}"))
    host.run_expect([0], f"scancel {job}")
    subprocess.run(["docker", "start", machine], check=True, capture_output=True)
    wait_for(host, "gpu1", "idle")
    assert len(srun(host, f"--gres=gpu:{H100}:4")["visible"].split(",")) == 4
