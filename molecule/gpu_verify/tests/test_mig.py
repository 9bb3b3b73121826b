# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG instances are units of their own, and a GPU in MIG mode without instances is skipped."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://a100"]


def test_units_of_a_host_with_mig(host: Host) -> None:
    facts = host.ansible("cudahub.gpu.gpu_facts", check=False)["ansible_facts"]["gpu"]
    expected = []
    for gpu in facts["gpus"]:
        if not gpu["mig"]["enabled"]:
            expected.append((gpu["uuid"], None, "simulated"))
        expected += [(one["uuid"], one["profile"], "simulated") for one in gpu["mig"]["instances"]]
    verification = host.ansible("cudahub.gpu.cuda_verify", check=False)["verification"]
    found = [(gpu["uuid"], gpu["mig_profile"], gpu["verdict"]) for gpu in verification["gpus"]]
    assert found == expected
    assert any(profile for _uuid, profile, _verdict in found)


def test_nothing_is_installed_for_simulated_gpus(host: Host) -> None:
    assert not host.file("/opt/cudahub/verify").exists
