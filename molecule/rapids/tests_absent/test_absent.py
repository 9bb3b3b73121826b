# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing of the role is left, and nothing of others is gone."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://all"]


def test_nothing_is_left_but_what_users_have_made(host: Host) -> None:
    name = host.check_output("hostname")
    assert host.check_output("ls -A /opt/cudahub").split() == {"lead": ["nvml"], "second": ["conda", "nvml"]}[name]
    assert not host.file("/usr/local/share/jupyter/kernels/rapids").exists
    if name == "second":
        assert host.file("/opt/cudahub/conda/envs/mine/conda-meta/cuda-version-12.9-h4f385c5_3.json").exists
        host.run_expect([0], "/opt/cudahub/conda/bin/conda list --prefix /opt/cudahub/conda/envs/mine")
