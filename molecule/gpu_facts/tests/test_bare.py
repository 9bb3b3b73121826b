# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host without GPUs; on it, what the role refuses leaves no trace."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://bare"]

SCENARIO = Path(__file__).resolve().parents[1]
Play = Callable[..., "subprocess.CompletedProcess[str]"]


def role(play: Play, *arguments: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    return play(SCENARIO / "role.yml", "--limit", "bare", "--extra-vars", json.dumps(variables), *arguments)


def one_line(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


def test_no_gpus(host: Host) -> None:
    gpu = host.ansible("cudahub.gpu.gpu_facts", check=False)["ansible_facts"]["gpu"]
    assert (gpu["driver"]["state"], gpu["gpus"], gpu["count"], gpu["visible_count"]) == ("absent", [], 0, 0)
    assert (gpu["problems"], gpu["simulated"], gpu["pynvml"]) == ([], False, None)
    assert not host.file("/opt/cudahub").exists


def test_works_as_a_facts_module(play: Play) -> None:
    result = play(SCENARIO / "facts_module.yml", "--limit", "bare,h200")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gathered Debian and 0 GPUs" in result.stdout
    assert "gathered Debian and 4 GPUs" in result.stdout


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"gpu_facts_source": "pip", "gpu_facts_nvml_sha256": "0" * 64},
            "could not be installed on bare, which is as it was: ERROR: ",
        ),
        (
            {"gpu_facts_source": "pip", "gpu_facts_wheel_dir": "/nonexistent"},
            "There is no nvidia_ml_py-13.615.71-py3-none-any.whl in gpu_facts_wheel_dir (/nonexistent)",
        ),
        ({"gpu_facts_source": "distro"}, "The package python3-pynvml was not installed on bare: "),
        (
            {"gpu_facts_source": "conda"},
            "gpu_facts_source must be one of: auto, pip, distro, none, got: conda",
        ),
        ({"gpu_facts_venv": "nvml"}, "gpu_facts_venv is 'nvml': give the absolute path, without"),
        ({"gpu_facts_venv": "/opt"}, "gpu_facts_venv is '/opt': give the absolute path, without"),
        ({"gpu_facts_venv": "/opt/a b/nvml"}, "gpu_facts_venv is '/opt/a b/nvml': give the absolute path, without"),
        ({"gpu_facts_venv": "/opt/a/../b"}, "gpu_facts_venv is '/opt/a/../b': give the absolute path, without"),
        (
            {"gpu_facts_venv": "/etc/apt", "entry_point": "absent"},
            "gpu_facts_venv is /etc/apt, which is on bare and no virtual environment",
        ),
        (
            {"_gpu_facts_os": "Gentoo-2"},
            "which role gpu_facts does not support: it supports Debian-12, Debian-13",
        ),
    ],
)
def test_refusals_leave_the_host_as_it_was(host: Host, play: Play, variables: dict[str, Any], sentence: str) -> None:
    state = "dpkg-query --show; ls -lR /opt /etc/apt"
    before = host.check_output(state)
    result = role(play, **variables)
    assert result.returncode == 2, result.stdout
    assert sentence in one_line(result.stdout + result.stderr)
    assert host.check_output(state) == before


def test_an_index_that_is_away_and_its_password(host: Host, play: Play) -> None:
    """Ansible prints the environment and the arguments of a task that has too much to say."""
    result = role(play, "-vvv", gpu_facts_source="pip", gpu_facts_pip_index_url="http://me:made-up@127.0.0.1:9/simple")
    assert result.returncode == 2, result.stdout
    said = one_line(result.stdout + result.stderr)
    assert "could not be installed on bare, which is as it was: ERROR: " in said
    assert "made-up" not in said
    assert not host.file("/opt/cudahub").exists


def test_installing_needs_root(play: Play) -> None:
    result = role(play, "--become", "--become-user", "nobody", gpu_facts_source="pip")
    assert result.returncode == 2
    assert "only root may install it: set become to true" in one_line(result.stdout + result.stderr)


def test_without_the_binding_nothing_is_installed(host: Host, play: Play) -> None:
    result = role(play, gpu_facts_source="none")
    assert (result.returncode, "changed=0" in result.stdout) == (0, True)
    assert not host.file("/opt/cudahub").exists


def test_install_check_and_take_away(host: Host, play: Play) -> None:
    venv = {"gpu_facts_source": "pip", "gpu_facts_venv": "/opt/elsewhere/nvml"}
    assert "changed=2" in role(play, "--check", **venv).stdout
    assert not host.file("/opt/elsewhere").exists
    assert "changed=2" in role(play, **venv).stdout
    assert host.file("/opt/elsewhere/nvml/bin/python").exists
    assert "changed=0" in role(play, **venv).stdout
    assert "changed=0" in role(play, entry_point="verify", **venv).stdout
    host.check_output("find /opt/elsewhere/nvml -name 'pynvml*.py*' -delete")
    assert "changed=2" in role(play, **venv).stdout
    assert host.run("/opt/elsewhere/nvml/bin/python -c 'import pynvml'").rc == 0
    assert "changed=1" in role(play, entry_point="absent", **venv).stdout
    assert not host.file("/opt/elsewhere/nvml").exists
    assert "changed=0" in role(play, entry_point="absent", **venv).stdout
    host.check_output("rmdir /opt/elsewhere")


def test_verify_names_a_missing_binding(play: Play) -> None:
    def verify(source: str) -> subprocess.CompletedProcess[str]:
        variables = {"entry_point": "verify", "gpu_facts_source": source, "_gpu_facts_venvs": ["/nonexistent"]}
        return play(SCENARIO / "role.yml", "--limit", "h200", "--extra-vars", json.dumps(variables))

    result = verify("auto")
    assert result.returncode == 2
    assert "h200 has an NVIDIA driver, but no binding of NVML that works" in one_line(result.stdout + result.stderr)
    assert verify("none").returncode == 0
