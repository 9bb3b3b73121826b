# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPU health check of role slurm, against the simulated driver and a stand-in for scontrol."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from simulated_host import ROOT, Host

SCRIPT = ROOT / "roles/slurm/files/gpu-health"
PROLOG = {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_ID": "12"}
EPILOG = {"SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_JOB_ID": "12"}
GPUS = [{"model": "a100-sxm4-40gb", "mig": ["3g.20gb", "1g.5gb"]}, {"model": "t4", "count": 2}]

SCONTROL = """#!/bin/sh
if [ -e "$(dirname "$0")/broken" ]; then echo "Unable to contact slurm controller" >&2; exit 1; fi
if [ "$1" = update ]; then printf '%s\\n' "$@" > "$(dirname "$0")/updated"; exit; fi
echo "NodeName=$4 State=IDLE Weight=1"
"""


@dataclass
class Node:
    """A simulated host that slurmd runs on."""

    host: Host
    directory: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.directory}:/usr/bin:/bin"
        return subprocess.run(
            [sys.executable, str(SCRIPT), "--settings", str(self.directory / "gpus.json"), *arguments],
            env={**self.host.environment, "PATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @property
    def update(self) -> list[str]:
        """What scontrol was told to change."""
        file = self.directory / "updated"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture
def node(simulate: Callable[..., Host], tmp_path: Path) -> Node:
    host = simulate(gpus=GPUS)
    directory = tmp_path / "node"
    directory.mkdir()
    (directory / "scontrol").write_text(SCONTROL, encoding="utf-8")
    (directory / "scontrol").chmod(0o755)
    gpus = [
        {
            "index": gpu["index"],
            "uuid": gpu["uuid"],
            "pci_bus_id": gpu["pci_bus_id"],
            "device_nodes": [],
            "instances": [{**mig, "device_nodes": []} for mig in gpu["mig"]],
        }
        for gpu in host.ask("show")["gpus"]
    ]
    (directory / "gpus.json").write_text(json.dumps({"node": "gpu01", "gpus": gpus}), encoding="utf-8")
    return Node(host, directory)


def test_a_node_that_is_well_is_left_alone_in_less_than_a_second(node: Node) -> None:
    times = []
    for _number in range(6):  # of which one may find this machine busy
        started = time.monotonic()
        done = node.run(**PROLOG)
        times.append(time.monotonic() - started)
        assert (done.returncode, done.stderr, node.update) == (0, "", [])
    assert min(times) < 1
    assert node.run("--show").stdout == "The GPUs of this node are well.\n"


@pytest.mark.parametrize(
    ("gpu", "fault", "more", "sentence"),
    [
        ("1", "lost", {}, "GPU 1 (0000:02:00.0, {uuid}) has fallen off the bus"),
        ("0", "lost", {}, "GPU 0 (0000:01:00.0, {uuid}) has fallen off the bus"),
        ("1", "vanish", {}, "GPU 1 (0000:02:00.0, {uuid}) is not there any more"),
        ("1", "reset_required", {}, "GPU 1 (0000:02:00.0, {uuid}) must be reset"),
        ("1", "ecc", {"count": 3}, "GPU 1 (0000:02:00.0, {uuid}) had 3 uncorrectable memory errors"),
        ("0", "remap_pending", {}, "GPU 0 (0000:01:00.0, {uuid}) has memory rows to replace"),
        ("0", "remap_failed", {}, "GPU 0 (0000:01:00.0, {uuid}) could not replace a bad memory row"),
        ("2", "pages_pending", {}, "GPU 2 (0000:03:00.0, {uuid}) has memory pages to retire"),
        ("all", "mismatch", {}, "the loaded NVIDIA driver and its library are of different versions"),
        ("all", "not_loaded", {}, "the NVIDIA driver is not loaded"),
    ],
)
def test_a_fault_drains_the_node_with_a_sentence(
    node: Node, gpu: str, fault: str, more: dict[str, int], sentence: str
) -> None:
    node.host.fault(fault, gpu=gpu, **more)
    uuid = "" if gpu == "all" else node.host.ask("show")["gpus"][int(gpu)]["uuid"]
    done = node.run(SLURMD_NODENAME="gpu07")
    assert done.returncode == 0
    assert node.update[:3] == ["update", "NodeName=gpu07", "State=DRAIN"]
    assert node.update[3].startswith(f"Reason=gpu-health: {sentence.format(uuid=uuid)}")
    assert len(node.update) == 4


@pytest.mark.parametrize(("context", "status"), [(PROLOG, 1), (EPILOG, 0), ({}, 0)])
def test_only_the_prolog_fails_so_that_the_job_starts_elsewhere(
    node: Node, context: dict[str, str], status: int
) -> None:
    node.host.fault("lost", gpu=1)
    assert node.run(**context).returncode == status
    assert node.update[1] == "NodeName=gpu01"


def test_slurmd_has_to_drain_where_the_check_can_not(node: Node) -> None:
    node.host.fault("lost", gpu=1)
    (node.directory / "broken").touch()
    done = node.run(**EPILOG)
    assert done.returncode == 1
    assert "gpu01 could not be drained: Unable to contact slurm controller" in done.stderr


def test_show_changes_nothing(node: Node) -> None:
    node.host.fault("lost", gpu=1)
    done = node.run("--show")
    assert done.returncode == 1
    assert "GPU 1 (0000:02:00.0" in done.stdout
    assert node.update == []


def test_a_node_without_settings_has_nothing_to_check(node: Node) -> None:
    node.host.fault("not_loaded")
    (node.directory / "gpus.json").unlink()
    assert node.run(**PROLOG).returncode == 0


def test_broken_settings_stop_no_job_but_are_told(node: Node) -> None:
    (node.directory / "gpus.json").write_text("{", encoding="utf-8")
    done = node.run(**PROLOG)
    assert done.returncode == 0
    assert "gpus.json can't be read" in done.stderr
