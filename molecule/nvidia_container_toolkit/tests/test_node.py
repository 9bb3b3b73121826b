# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with MIG devices, Podman and containerd: one MIG device alone, and what the user has for containerd."""

from __future__ import annotations

import errno
from typing import Any

import yaml
from testinfra.host import Host

testinfra_hosts = ["ansible://node"]
UNITS = ["containerd", "nvidia-cdi-refresh"]


def test_mig_devices_are_described_and_not_their_gpu(host: Host, box: Any) -> None:
    spec = yaml.safe_load(host.file("/var/run/cdi/nvidia.yaml").content_string)
    names = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]] for device in spec["devices"]
    }
    second = box.instances[1]
    indexes = [f"0:{index}" for index in range(len(box.instances))]
    assert list(names) == sorted([*indexes, *box.instances, "1", box.uuids[1], "all"])
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (48, 49)]
    assert names["0:1"] == names[second] == ["/dev/nvidia0", *caps]


def test_a_container_sees_its_mig_device_and_no_other(host: Host, box: Any) -> None:
    """Nor may it open the capabilities of another one, or those that change MIG's layout."""
    second = box.instances[1]
    seen, nodes, errors = box.sees("podman", second)
    assert (seen, nodes) == ([second], ["nvidia0"])
    numbers = {path.rpartition("nvidia")[2]: str(minor) for path, minor in box.nodes.items()}
    # No driver is behind the nodes that it may open.
    may = {name for name, minor in numbers.items() if errors[minor] == errno.ENXIO}
    assert may == {"0", "-cap48", "-cap49"}
    assert {errors[minor] for name, minor in numbers.items() if name not in may} == {errno.EPERM}


def test_the_gpu_beside_it_is_seen_alone(host: Host, box: Any) -> None:
    uuid = box.uuids[1]
    assert box.sees("podman", uuid)[:2] == [[uuid], ["nvidia1"]]


def test_a_reload_of_systemd_finds_the_nodes_of_capabilities(host: Host, box: Any) -> None:
    """Of a MIG device, from which they are taken else."""
    for node in ("nvidia0", "nvidia-caps/nvidia-cap48", "nvidia-caps/nvidia-cap49"):
        number = host.check_output(f"stat -c %Hr:%Lr /dev/{node}")
        assert host.file(f"/dev/char/{number}").linked_to == f"/dev/{node}"


def test_what_the_user_has_for_containerd_stays_and_is_heeded(host: Host) -> None:
    main = host.file("/etc/containerd/config.toml")
    assert main.content_string.splitlines() == [
        "# The site.",
        "version = 2",
        'imports = ["/etc/containerd/conf.d/*.toml"]',
        "",
        '[plugins."io.containerd.grpc.v1.cri"]',
        "  max_container_log_line_size = 4096",
        "  restrict_oom_score_adj = true",
    ]
    # The drop-in has a part of it.
    assert main.mode == host.file("/etc/containerd/conf.d/99-nvidia.toml").mode == 0o640
    heeds = host.check_output("containerd config dump")
    for said in ("max_container_log_line_size = 4096", "enable_cdi = true", "runtimes.nvidia]", "runtimes.runc]"):
        assert said in heeds
    assert "ok" in host.check_output("ctr plugins list | grep -w cri")
