# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hub is gone, and what users had is kept."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://all"]


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
    archive = host.file("/var/backups/tljh/jupyter-anna.tar.gz")
    assert archive.mode == 0o600
    assert "jupyter-anna/hello.ipynb" in host.check_output(f"tar -tzf {archive.path}")
