# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd has the configuration of before, and nothing of the toolkit."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://node"]
UNITS = ["containerd"]


def test_the_user_has_the_configuration_of_before(host: Host) -> None:
    main = host.file("/etc/containerd/config.toml")
    # Tests have changed the figure.
    assert re.sub("[0-9]{4}", "4096", main.content_string) == (
        '# The site.\nversion = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\n'
        "  max_container_log_line_size = 4096\n  restrict_oom_score_adj = true\n"
    )
    assert (main.mode, main.user) == (0o640, "root")
    assert host.check_output("find /etc/containerd /var/run/cdi -name '*nvidia*'") == ""
    assert "nvidia" not in host.check_output("containerd config dump")
    assert "ok" in host.check_output("ctr plugins list | grep -w cri")


@pytest.mark.usefixtures("cri")
def test_cri_o_has_the_configuration_of_before(host: Host) -> None:
    assert host.check_output("cd /etc/crio && find . -type f | sort").split() == [
        "./crio.conf.d/10-crio.conf",
        "./policy.json",
    ]
    assert "nvidia" not in host.check_output("crictl --runtime-endpoint unix:///run/crio/crio.sock info")
