# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A user's rootless Docker, beside that of the host."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://box"]
UNITS = ["docker", "user@1000"]

Role = Callable[..., str]
DAEMON = "/home/anna/.config/docker/daemon.json"
OWN = {"log-opts": {"max-size": "5m"}}
# As dockerd-rootless-setuptool.sh writes it, without a bridge, which a container of the tests can't make.
UNIT = """[Service]
Environment=PATH=/usr/sbin:/usr/bin
ExecStart=/usr/share/docker.io/contrib/dockerd-rootless.sh --storage-driver=vfs --iptables=false --bridge=none
ExecReload=/bin/kill -s HUP $MAINPID
Type=notify
NotifyAccess=all
KillMode=mixed
"""
AS_ANNA = "runuser -u anna -- env XDG_RUNTIME_DIR=/run/user/$(id -u anna) HOME=/home/anna"
DOCKER = f"{AS_ANNA} docker --host unix:///run/user/$(id -u anna)/docker.sock"


@pytest.fixture(scope="module")
def rootless(host: Host) -> None:
    """Have one run."""
    packages = "rootlesskit slirp4netns uidmap libpam-systemd dbus-user-session"
    host.check_output(f"apt-get install --yes --no-install-recommends {packages}")
    # A container hides parts of /proc and /sys; without whole ones, the kernel lets no user mount them.
    host.check_output("mkdir -p /run/whole/proc /run/whole/sys && mount -t proc proc /run/whole/proc")
    host.check_output("mount -t sysfs sysfs /run/whole/sys && loginctl enable-linger anna")
    host.check_output("mkdir -p /dev/net && test -c /dev/net/tun || mknod -m 0666 /dev/net/tun c 10 200")
    unit = "/home/anna/.config/systemd/user/docker.service"
    for path, text in {unit: UNIT, DAEMON: json.dumps(OWN)}.items():
        host.check_output(f"{AS_ANNA} sh -c 'mkdir -p $(dirname {path}) && cat > {path}' << 'END'\n{text}\nEND")
    ready = f"until {AS_ANNA} systemctl --user daemon-reload; do sleep 1; done"
    host.check_output(f"timeout 60 sh -c %s && {AS_ANNA} systemctl --user start docker", ready)
    host.check_output(f"{DOCKER} import /opt/image.tar localhost/test:1")


@pytest.mark.long
@pytest.mark.usefixtures("rootless")
def test_its_containers_see_their_gpu_and_no_other(host: Host, box: Any, role: Role) -> None:
    """The role's own proof, in it, is a part of this."""
    before = host.check_output("systemctl show docker.service --property=MainPID --value")
    options: dict[str, Any] = {"engines": ["docker:anna"]}
    role(**options)
    file = host.file(DAEMON)
    assert (json.loads(file.content_string), file.user, file.group) == (
        {
            **OWN,
            "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
            "features": {"cdi": True},
            "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi", "/var/lib/cudahub/container-toolkit/rootless"],
        },
        "anna",
        "anna",
    )
    uuid = box.uuids[2]
    seen, nodes, errors = box.sees(DOCKER, uuid)
    assert (seen, nodes) == ([uuid], ["nvidia2"])
    # Nobody but the host's root makes nodes.
    assert errors == {str(minor): errno.ENXIO if minor == 2 else errno.EPERM for minor in range(4)}
    assert "changed=0" in role(**options)
    assert host.check_output("systemctl show docker.service --property=MainPID --value") == before
