# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hub is gone, and what users had is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from testinfra.host import Host

testinfra_hosts = ["ansible://all"]
ROLE = Path(__file__).parents[1] / "role.yml"


def test_nothing_of_the_hub_is_left(host: Host) -> None:
    for path in (
        "/opt/tljh",
        "/usr/bin/tljh-config",
        "/etc/sudoers.d/jupyterhub-admins",
        "/etc/profile.d/cudahub-tljh.sh",
    ):
        assert not host.file(path).exists
    for unit in ("jupyterhub", "traefik", "jupyter-anna"):
        assert host.check_output(f"systemctl show {unit}.service -p LoadState --value") == "not-found"
    assert not host.file("/etc/cudahub").exists
    assert not host.group("jupyterhub-users").exists
    assert not host.socket("tcp://0.0.0.0:80").is_listening


def test_homes_are_archived_and_kept(host: Host) -> None:
    assert host.file("/home/jupyter-anna/hello.ipynb").exists
    assert host.user("jupyter-anna").exists
    (archive,) = [host.file(path) for path in host.check_output("ls /var/backups/tljh/jupyter-anna-2*Z.tar.gz").split()]
    assert archive.mode == 0o600
    assert "jupyter-anna/hello.ipynb" in host.check_output(f"tar -tzf {archive.path}")


def test_what_is_somebody_elses_stays(host: Host, play: Callable[..., CompletedProcess[str]]) -> None:
    unit = "/etc/systemd/system/traefik.service"
    host.run_expect([0], "mkdir -p /srv/important/a && groupadd jupyterhub-users")
    host.run_expect([0], f"printf '[Service]\\nExecStart=/bin/sleep 600\\n' >{unit}; systemctl start traefik")
    try:
        for variables, code, words in (
            (
                {"tljh_prefix": "/srv/important"},
                2,
                "/srv/important on hub was not made by this role: give the tljh_prefix",
            ),
            ({}, 0, "changed=0"),
        ):
            done = play(ROLE, "-e", json.dumps({"entry": "absent", **variables}))
            said = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == code, said
            assert words in said
        assert host.file("/srv/important/a").exists
        assert host.service("traefik").is_running
        assert host.group("jupyterhub-users").exists
    finally:
        host.run_expect([0], f"systemctl stop traefik; rm -r {unit} /srv/important; groupdel jupyterhub-users")
