# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing is left after entry point absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from testinfra.host import Host

ROLE = Path(__file__).parents[1] / "role.yml"
testinfra_hosts = ["ansible://h200", "ansible://a100"]


def test_nothing_but_what_is_of_somebody_else(host: Host) -> None:
    assert host.check_output("ls -d /opt/cudahub/verify*") == "/opt/cudahub/verify-keep"


def test_no_timer_and_no_result_is_left(host: Host) -> None:
    assert host.run("systemctl list-unit-files --no-legend 'cudahub-gpu-verify*'").stdout == ""
    assert host.check_output("systemctl list-timers --all --no-legend 'cudahub-gpu-verify*'") == ""
    assert host.check_output("systemctl list-units --all --no-legend --plain 'cudahub-gpu-verify*'") == ""
    for folder in ("/etc/ansible/facts.d", "/var/lib/prometheus/node-exporter"):
        assert "cudahub" not in host.run(f"ls -A {folder}").stdout


def test_absent_again_changes_nothing_and_warns_of_nothing(
    play: Callable[..., CompletedProcess[str]], host: Host
) -> None:
    done = play(ROLE, "-e", f"target={host.backend.get_hostname()} entry=absent")
    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout
    assert "WARNING" not in done.stdout + done.stderr
