# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of both engines see the GPU that they ask for, and no other; the host has one toolkit from one source."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://box"]
UNITS = ["docker", "nvidia-cdi-refresh"]

PACKAGES = [
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
]


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_container_sees_its_gpu_and_no_other(host: Host, box: Any, engine: str) -> None:
    uuids = box.uuids
    for minor in (0, 3):
        seen, nodes, errors = box.sees(engine, uuids[minor])
        assert (seen, nodes) == ([uuids[minor]], [f"nvidia{minor}"])
        # No driver is behind the node that it may open.
        expected = {str(other): errno.ENXIO if other == minor else errno.EPERM for other in range(4)}
        assert errors == expected


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_container_sees_the_two_that_it_asks_for(host: Host, box: Any, engine: str) -> None:
    uuids = box.uuids
    seen, nodes, _errors = box.sees(engine, uuids[1], uuids[2])
    assert (seen, nodes) == ([uuids[1], uuids[2]], ["nvidia1", "nvidia2"])


def test_the_runtime_of_engines_without_cdi_gives_what_is_asked_for(box: Any) -> None:
    uuid = box.uuids[1]
    # NVIDIA's own runtime knows nothing of the simulator's files.
    files = "--volume /etc/gpu-simulator:/etc/gpu-simulator:ro" if os.environ.get("MOLECULE_CTK") else ""
    seen, nodes, errors = box.sees("docker", options=f"--runtime nvidia --env NVIDIA_VISIBLE_DEVICES={uuid} {files}")
    assert (seen, nodes) == ([uuid], ["nvidia1"])
    assert [minor for minor, number in errors.items() if number == errno.ENXIO] == ["1"]


@pytest.mark.parametrize(("engine", "request_"), [("docker", "runtime"), ("docker", "cdi"), ("podman", "cdi")])
def test_each_gpu_does_cuda_work_in_a_container(
    host: Host, box: Any, prove: Callable[..., dict[str, Any]], engine: str, request_: str
) -> None:
    verification = prove(engine, request=request_)
    assert verification["failure"] is None
    assert [gpu["uuid"] for gpu in verification["gpus"]] == box.uuids
    for gpu in verification["gpus"]:
        assert [check["passed"] for check in gpu["checks"]] == [True] * 5
    assert host.check_output(f"{engine} ps -aq") == ""


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_work_that_hangs_in_a_container_is_ended(
    host: Host, box: Any, prove: Callable[..., dict[str, Any]], engine: str
) -> None:
    hangs = box.uuids[1]
    verification = prove(engine, trouble={hangs: "hang"}, timeout=15)
    failures = {gpu["uuid"]: gpu["failure"] for gpu in verification["gpus"] if gpu["failure"]}
    assert {uuid: failure["kind"] for uuid, failure in failures.items()} == {hangs: "timeout"}
    assert host.check_output(f"{engine} ps -aq") == ""
    assert host.run("pgrep -fx '/host/usr/bin/python3 -'").stdout == ""


def test_what_the_user_had_in_daemon_json_is_there(host: Host, box: Any) -> None:
    daemon = box.daemon()
    assert list(daemon) == ["log-driver", "log-opts", "labels", "runtimes", "features"]
    assert (daemon["log-opts"], daemon["labels"], daemon["features"]) == (
        {"max-size": "10m"},
        ["nvidia=no"],
        {"cdi": True},
    )
    assert "nvidia" in host.check_output("docker info --format '{{json .Runtimes}}'")


def test_a_description_that_somebody_has_made_is_put_aside(host: Host) -> None:
    assert host.check_output("cd /etc/cdi && grep -H . *") == "nvidia.yaml.disabled:# by hand"


def test_all_packages_are_held_at_one_version(host: Host) -> None:
    rows = host.check_output(f"dpkg-query -W -f '${{Package}} ${{Version}}\\n' {' '.join(PACKAGES)}")
    assert len({row.split()[1] for row in rows.splitlines()}) == 1
    assert host.check_output("apt-mark showhold").split() == PACKAGES


def test_there_is_one_source_that_apt_accepts_without_a_word(host: Host) -> None:
    assert (
        host.check_output("grep -rl libnvidia-container -e 127.0.0.1:8099 -e nvidia.github.io /etc/apt | wc -l") == "1"
    )
    assert not host.run_expect([0], "apt-get update").stderr


def test_no_container_and_no_image_is_left_of_the_proof(host: Host) -> None:
    for engine in ("docker", "podman"):
        assert host.check_output(f"{engine} ps -aq") == ""
        assert host.check_output(f"{engine} images --format '{{{{.Repository}}}}'") == "localhost/test"


def test_a_reload_of_systemd_finds_the_nodes(host: Host) -> None:
    for node in ("nvidia0", "nvidia3", "nvidiactl"):
        number = host.check_output(f"stat -c %Hr:%Lr /dev/{node}")
        assert host.file(f"/dev/char/{number}").linked_to == f"/dev/{node}"


def test_the_user_is_in_the_group(host: Host) -> None:
    assert "docker" in host.user("anna").groups
