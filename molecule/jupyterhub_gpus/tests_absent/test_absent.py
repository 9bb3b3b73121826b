# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hub is what it was before the role, and who has used which GPU is still known."""

from __future__ import annotations

from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://hub"]
UNITS = ["jupyterhub"]

PLACES = [
    "/etc/cudahub",
    "/etc/jupyterhub/jupyterhub_config.d/gpus.py",
    "/etc/systemd/system/cudahub-gpu-collector.service",
    "/opt/cudahub/jupyterhub_gpus",
    "/opt/hub/share/jupyter/labextensions/cudahub-gpus",
    "/run/cudahub",
]


def test_nothing_of_the_role_is_left_but_the_leases(host: Host) -> None:
    assert [path for path in PLACES if host.file(path).exists] == []
    assert host.check_output("find /opt/hub -name '*cudahub*'") == ""
    assert host.file("/var/lib/cudahub/hub/leases.sqlite").exists


def test_the_hub_starts_servers_that_know_nothing_of_leases(hub: Any) -> None:
    hub.wait(lambda: hub.ask(("GET", "/hub/api/", None))[0][0] == 200, "the hub answers")
    ((status, answer),) = hub.ask(("POST", "/hub/api/users/user1/server", None))
    assert status in (201, 202), answer
    hub.wait(lambda: hub.ready() == ["user1"], "the server runs")
    look = hub.look(["user1"])["user1"]
    assert look["environment"] == {}
    assert set(look["nodes"].values()) == {"ENXIO"}
    hub.ask(("DELETE", "/hub/api/users/user1/server", None))
    hub.wait(lambda: hub.ready() == [], "the server is gone")
