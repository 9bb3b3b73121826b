# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can't work is refused in one sentence, before anything changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://h200"]

ROLE = Path(__file__).parents[1] / "role.yml"
RUN = {"gpu_verify_simulated": "run", "gpu_verify_venv": "/opt/refused/verify"}
Play = Callable[..., CompletedProcess[str]]


def said(done: CompletedProcess[str]) -> str:
    """Return everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"gpu_verify_select": "[?name =="}, "[?name =="),
        ({"gpu_verify_select": "[?name == 'Abacus']"}, "fits none of the 4 GPUs of h200"),
        ({"gpu_verify_python": "/a", "gpu_verify_conda_prefix": "/b"}, "set one of them, and leave the other empty"),
        ({"gpu_verify_level": "endless"}, "value of gpu_verify_level must be one of: quick"),
        ({"gpu_verify_timeout": -1}, "timeout is -1"),
        ({"target": "empty", "gpu_verify_require_gpu": True}, "empty isn't verified. This host has no NVIDIA GPU"),
        (
            {**RUN, "pretend": "Slackware"},
            "install CuPy: it supports Debian-12, Debian-13",
        ),
        ({**RUN, "ansible_user": "nobody"}, "needs root on h200"),
        ({**RUN, "_gpu_verify_disk_bytes": 10**15}, "while it is installed: free some, or set gpu_verify_venv"),
        ({**RUN, "gpu_verify_venv": "/opt"}, "/opt on h200 is there and not made by role gpu_verify"),
    ],
)
def test_refusal(play: Play, host: Host, variables: dict[str, object], words: str) -> None:
    done = play(ROLE, "-e", json.dumps(variables), ANSIBLE_FORCE_COLOR="false")
    assert done.returncode == 2, said(done)
    assert words in said(done)
    assert "changed=0" in said(done)
    assert not host.file("/opt/refused").exists


def test_check_mode_says_what_it_can_not_prove(play: Play, host: Host) -> None:
    done = play(ROLE, "--check", "-e", json.dumps(RUN))
    assert done.returncode == 0, said(done)
    assert "verified in check mode: what is needed for it is not installed yet" in said(done)
    assert not host.file("/opt/refused").exists
