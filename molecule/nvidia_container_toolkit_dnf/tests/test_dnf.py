# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit comes from a repository whose metadata are signed, is held, and containers have GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable

from testinfra.host import Host

testinfra_hosts = ["ansible://rocky10"]

Packages = Callable[[], dict[str, tuple[str, bool]]]
NAMES = (
    "libnvidia-container1",
    "libnvidia-container-tools",
    "nvidia-container-toolkit-base",
    "nvidia-container-toolkit",
)


def test_the_four_packages_are_there_and_held(host: Host, packages: Packages) -> None:
    assert packages() == dict.fromkeys(NAMES, ("1.18.1-1", True))
    assert host.run("rpm -q python3-dnf-plugin-versionlock").rc == 0


def test_an_upgrade_leaves_them(host: Host, packages: Packages) -> None:
    host.check_output("dnf -y --disableplugin=versionlock repoquery --upgrades")
    host.check_output("dnf -y upgrade")
    assert packages() == dict.fromkeys(NAMES, ("1.18.1-1", True))


def test_the_repository_is_verified(host: Host) -> None:
    text = host.file("/etc/yum.repos.d/cudahub-nvidia-container-toolkit.repo").content_string
    assert "repo_gpgcheck=1\n" in text
    assert "gpgkey=file:///etc/pki/rpm-gpg/cudahub-nvidia-container-toolkit.asc\n" in text


def test_a_container_has_the_node_of_its_gpu_alone(host: Host) -> None:
    gpus = json.loads(host.check_output("gpu-simulator show"))["gpus"]
    command = "podman run --rm --network none --device nvidia.com/gpu=%s localhost/test:1 python3 -c %s"
    look = "import os; print(*(name for name in sorted(os.listdir('/dev')) if name[6:].isdigit()))"
    assert host.check_output(command, gpus[2]["uuid"], look) == "nvidia2"
