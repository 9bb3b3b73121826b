# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Our images and files are gone; those of others and volumes are not."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://builder"]


def test_only_ours_are_gone(host: Host) -> None:
    left = host.check_output(
        "docker images --format '{{.Repository}}:{{.Tag}}' --filter label=org.cudahub.role=dl_images"
    )
    assert [name for name in left.splitlines() if not name.startswith(("mine:", "theirs:"))] == []
    assert not host.file("/var/lib/cudahub/dl_images").exists
    assert host.check_output("find /var/log/cudahub -name 'dl_images-*'") == ""
    assert host.run("docker image inspect python-standin:13 mine:1 mine:2").rc == 0
    assert host.run("docker volume inspect mine").rc == 0
