# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One machine is the whole cluster: its jobs get whole GPUs and MIG instances, and no other job's."""

from __future__ import annotations

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://solo"]
UNITS = ["slurmctld", "slurmd", "slurmdbd", "munge"]

A100 = "nvidia_a100-sxm4-40gb"
MIG = "nvidia_a100"  # as SLURM 24.11 names the instances of this GPU
T4 = "tesla_t4"
# The GPU in MIG mode, the whole A100, the T4s.
GPUS = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"]
# Simulated device nodes have no driver behind them: that is what a job hears that may open one.
OPENED, DENIED = "No such device or address", "Operation not permitted"

LOOK = r"""
echo "visible=$CUDA_VISIBLE_DEVICES"
for node in /dev/nvidia[0-9]* /dev/nvidia-caps/*; do
  said=$( (exec 3<"$node") 2>&1)
  echo "$node=${said##*: }"
done
"""


def look(host: Host, *options: str) -> tuple[list[str], dict[str, str]]:
    """What a job is told of its GPUs, and what it hears when it opens each device node."""
    said = host.check_output(f"srun --immediate=60 --mem=64 --chdir=/ {' '.join(options)} bash -c %s", LOOK)
    values = dict(line.split("=", 1) for line in said.splitlines())
    visible = values.pop("visible")
    return visible.split(",") if visible else [], values


def test_the_node_is_idle_and_has_its_gpus(host: Host) -> None:
    # The last job of the role's own proof may be ending.
    host.run_expect([0], "timeout 60 sh -c 'until sinfo --noheader --format=%T | grep -x idle; do sleep 0.5; done'")
    gres = host.check_output("sinfo --noheader --format=%G")
    slices = {f"gpu:{MIG}_{profile}:1" for profile in ("3g.20gb", "2g.10gb", "1g.5gb")}
    assert {part.split("(")[0] for part in gres.split(",")} == slices | {f"gpu:{A100}:1", f"gpu:{T4}:2"}


@pytest.mark.parametrize(
    ("asked", "mine"),
    [
        (f"{A100}:1", [GPUS[1]]),
        (f"{T4}:2", [GPUS[2], GPUS[3]]),
        (f"{A100}:1,gpu:{T4}:2", [GPUS[1], GPUS[2], GPUS[3]]),
    ],
)
def test_a_job_opens_its_gpus_and_no_other(host: Host, asked: str, mine: list[str]) -> None:
    visible, nodes = look(host, f"--gres=gpu:{asked}")
    assert len(visible) == len(mine)
    assert {node: nodes[node] for node in GPUS} == {node: OPENED if node in mine else DENIED for node in GPUS}


@pytest.mark.parametrize("profile", ["1g.5gb", "2g.10gb", "3g.20gb"])
def test_a_job_gets_its_mig_instance_and_no_other(host: Host, profile: str) -> None:
    visible, nodes = look(host, f"--gres=gpu:{MIG}_{profile}:1")
    assert len(visible) == 1
    assert visible[0].startswith("MIG-")
    assert [nodes[node] for node in GPUS] == [OPENED, DENIED, DENIED, DENIED]


def test_a_job_without_gpu_opens_none(host: Host) -> None:
    visible, nodes = look(host)
    assert visible == []
    assert {nodes[node] for node in GPUS} == {DENIED}


@pytest.mark.parametrize("asked", ["gpu:7", f"gpu:{T4}:3", f"gpu:{MIG}_2g.10gb:2", "gpu:h100:1"])
def test_gpus_that_are_not_there_are_refused(host: Host, asked: str) -> None:
    refused = host.run(f"srun --immediate=20 --mem=64 --chdir=/ --gres={asked} true")
    assert refused.rc != 0
    assert "Requested node configuration is not available" in refused.stderr
