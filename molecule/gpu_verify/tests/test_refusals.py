# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can't work is refused in one sentence, before anything changes. Each case is a host of a made-up inventory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://h200"]

ROLE = Path(__file__).parents[1] / "role.yml"
RUN = {"gpu_verify_simulated": "run", "gpu_verify_venv": "/opt/refused/verify"}
CASES: dict[str, tuple[dict[str, object], str]] = {
    "bad_expression": ({"gpu_verify_select": "[?name =="}, "[?name =="),
    "no_such_gpu": ({"gpu_verify_select": "[?name == 'Abacus']"}, "fits none of the 4 GPUs of no_such_gpu: change it"),
    "two_pythons": ({"gpu_verify_python": "/a", "gpu_verify_conda_prefix": "/b"}, "and leave the other empty"),
    "bad_level": ({"gpu_verify_level": "endless"}, "value of gpu_verify_level must be one of: quick"),
    "bad_timeout": ({"gpu_verify_timer": True, "gpu_verify_timeout": -1}, "gpu_verify_timeout is -1"),
    "bad_threshold": (
        {**RUN, "gpu_verify_timer": True, "gpu_verify_thresholds": {"warn": {"copy_device": 2}}},
        "thresholds.warn.copy_device is 2: give a share of the peak between 0 and 1.",
    ),
    "bad_margin": (
        {"gpu_verify_level": "standard", "gpu_verify_memory_margin": 10**6},
        "memory_margin is 1000000 MiB, and GPU GPU-",
    ),
    "other_system": ({**RUN, "pretend": "Slackware"}, "install CuPy: it supports Debian-12, Debian-13, RedHat-8"),
    "nobody": ({**RUN, "ansible_user": "nobody"}, "needs root on nobody to install CuPy into /opt/refused/verify"),
    "small_disk": ({**RUN, "disk_bytes": 10**15}, "free some, or set gpu_verify_venv"),
    "taken": ({**RUN, "gpu_verify_venv": "/etc/apt"}, "/etc/apt on taken is there and not made by role gpu_verify"),
    "too_high": ({**RUN, "gpu_verify_venv": "/opt"}, "gpu_verify_venv is '/opt': give an absolute path"),
    "relative": ({**RUN, "gpu_verify_venv": "opt/verify"}, "gpu_verify_venv is 'opt/verify': give an absolute path"),
    "no_environment": (
        {**RUN, "entry": "verify"},
        "[interpreter_broken] /opt/refused/verify/bin/python can't be started: No such file or directory; give a ",
    ),
    "no_cupy": (
        {**RUN, "gpu_verify_python": "/usr/bin/python3"},
        (
            "[library_missing] /usr/bin/python3 has no numpy: run role cudahub.gpu.gpu_verify, which brings an"
            " environment, or give python or conda_prefix an environment that has cupy-cuda13x[ctk]==14.2.0."
            " The same with GPU-"
        ),
    ),
    "broken_python": (
        {**RUN, "gpu_verify_python": "/bin/false"},
        "[interpreter_broken] /bin/false ended with status 1 before it could test GPU ",
    ),
    "no_conda": (
        {**RUN, "gpu_verify_conda_prefix": "/opt/c"},
        "[interpreter_broken] /opt/c/bin/python can't be started",
    ),
}


def run(inventory: Path, *arguments: str) -> str:
    """Run the role on an inventory, and return what was printed."""
    command = [
        Path(sys.executable).with_name("ansible-playbook"),
        ROLE,
        "-i",
        inventory,
        "-e",
        "target=all",
        *arguments,
    ]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


def write_inventory(host: Host, path: Path, cases: dict[str, dict[str, object]]) -> Path:
    """Write an inventory in which each case is a host."""
    variables = host.ansible.get_variables()
    reach = {name: variables[name] for name in ("ansible_host", "ansible_connection", "ansible_python_interpreter")}
    path.write_text(json.dumps({"all": {"hosts": {name: {**reach, **case} for name, case in cases.items()}}}))
    return path


@pytest.fixture(scope="module")
def output(host: Host, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what a run of the role on all cases printed."""
    cases = {name: variables for name, (variables, _words) in CASES.items()}
    return run(write_inventory(host, tmp_path_factory.mktemp("inventory") / "inventory.yml", cases))


@pytest.mark.parametrize("name", CASES)
def test_refusal(host: Host, output: str, name: str) -> None:
    found = re.search(rf"^fatal: \[{name}\]: FAILED! => ", output, re.MULTILINE)
    assert found, output
    result, _end = json.JSONDecoder().raw_decode(output, found.end())
    assert CASES[name][1] in result["msg"]
    assert re.search(rf"^{name} .*changed=0 ", output, re.MULTILINE)
    assert not host.file("/opt/refused").exists


def test_check_mode_says_what_it_can_not_prove(host: Host, tmp_path: Path) -> None:
    said = run(write_inventory(host, tmp_path / "inventory.yml", {"bare": RUN}), "--check")
    assert "bare isn't verified in check mode: what is needed for it is not installed yet" in said
    assert re.search(r"^bare .*unreachable=0 +failed=0 ", said, re.MULTILINE), said
    assert not host.file("/opt/refused").exists


def test_a_host_without_gpu_fails_unless_that_is_allowed(host: Host, tmp_path: Path) -> None:
    empty = {"ansible_host": host.ansible.get_variables()["ansible_host"].removesuffix("h200") + "empty"}
    cases: dict[str, dict[str, object]] = {"needs": {**empty}, "allows": {**empty, "gpu_verify_require_gpu": False}}
    said = run(write_inventory(host, tmp_path / "inventory.yml", cases))
    assert "needs isn't verified. This host has no NVIDIA GPU on its PCI bus." in said
    assert re.search(r"^needs .*failed=1 ", said, re.MULTILINE), said
    assert re.search(r"^allows .*failed=0 ", said, re.MULTILINE), said
