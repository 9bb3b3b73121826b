# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing of the role is left, and all that was the user's."""

from __future__ import annotations

import json
from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://box"]
UNITS = ["docker"]


def test_the_toolkit_is_gone(host: Host) -> None:
    assert not host.exists("nvidia-ctk")
    assert host.check_output("apt-mark showhold") == ""
    found = "find /etc/apt /etc/cdi /var/run/cdi /etc/udev /var/lib/cudahub/container-toolkit -type f -name '*nvidia*'"
    assert host.run(found).stdout == "/etc/cdi/nvidia.yaml.disabled\n"


def test_the_user_has_the_configuration_of_before(host: Host, box: Any) -> None:
    assert box.daemon() == {"log-driver": "json-file", "log-opts": {"max-size": "10m"}, "labels": ["nvidia=no"]}


def test_a_rootless_engine_has_the_configuration_of_before(host: Host) -> None:
    """If tests have made one."""
    file = host.file("/home/anna/.config/docker/daemon.json")
    assert not file.exists or json.loads(file.content_string) == {"log-opts": {"max-size": "5m"}}


def test_engines_and_images_stay_and_give_no_gpus(host: Host) -> None:
    for engine in ("docker", "podman"):
        run = f"{engine} run --rm --network none --entrypoint python3"
        # runc inside a container was seen to lose a container that it was just starting.
        host.run_expect([0], f"for _ in 1 2 3; do {run} localhost/test:1 -c 'print(6)' && exit; sleep 2; done; exit 1")
        assert host.run(f"{run} --device nvidia.com/gpu=0 localhost/test:1 -c 'print(6)'").rc in (125, 126)
    assert host.check_output("systemctl list-units --state=failed --no-legend 'nvidia*' 'docker*'") == ""
