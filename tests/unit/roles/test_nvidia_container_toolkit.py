# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which engines role nvidia_container_toolkit configures, and what it makes of old ones and of wrong options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROLE = Path(__file__).resolve().parents[3] / "roles/nvidia_container_toolkit"
NEW = {"docker": "26.1.5", "podman": "5.4.2"}
HAS_CDI = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}, "features": {"cdi": True}}
NO_CDI = {"runtimes": HAS_CDI["runtimes"]}


def case(has: str, versions: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    """The variables of a host that has these engines."""
    rows = [f"{name} {version}" for name, version in (NEW if versions is None else versions).items()]
    return {
        "_nvidia_container_toolkit_looked": {"stdout_lines": ["0", *(f"has {name}" for name in has.split())]},
        "_nvidia_container_toolkit_versions_asked": {"stdout_lines": rows},
        **{f"nvidia_container_toolkit_{name}": value for name, value in options.items()},
    }


HOSTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "found": (case("docker podman containerd"), {"names": ["docker", "podman"], "wanted": HAS_CDI, "old": []}),
    "containerd": (case("containerd crio", {}), {"names": ["containerd", "crio"]}),
    "asked": (case("docker podman", engines=["podman"]), {"names": ["podman"], "missing": []}),
    "text": (case("docker", engines="docker,docker:anna"), {"names": ["docker", "docker:anna"], "users": ["anna"]}),
    "auto_text": (case("podman", engines="auto"), {"names": ["podman"], "mistakes": ""}),
    "missing": (case("docker", engines=["crio", "docker"]), {"missing": ["crio"]}),
    "brought": (case("podman", docker_source="distro"), {"names": ["podman", "docker"], "missing": []}),
    "old": (
        case("docker podman", {"docker": "20.10.24", "podman": "4.3.1"}),
        {"old": ["docker", "podman"], "wanted": NO_CDI, "flag": True},
    ),
    "between": (case("docker", {"docker": "25.0.3"}), {"old": ["docker"], "wanted": HAS_CDI}),
    "config": (
        case("docker", docker_config={"live-restore": True, "features": {"buildkit": False}}),
        {"wanted": {**HAS_CDI, "live-restore": True, "features": {"cdi": True, "buildkit": False}}},
    ),
    "unknown": (case("docker", engines=["dockr"]), {"mistakes": "nvidia_container_toolkit_engines names dockr"}),
    "both": (case("docker", engines=["auto", "podman"]), {"mistakes": "nvidia_container_toolkit_engines is ["}),
    "none": (case("docker", engines=[]), {"mistakes": "nvidia_container_toolkit_engines is []"}),
    "version": (case("docker", version="1.18"), {"mistakes": "nvidia_container_toolkit_version is '1.18'"}),
    "fingerprint": (
        case("docker", repository_key_fingerprint="C95B"),
        {"mistakes": "nvidia_container_toolkit_repository_key_fingerprint is 'C95B'"},
    ),
    "login": (
        case("docker", repository_url="https://me:secret@mirror"),
        {"mistakes": "A URL of a repository is none, or has a user name"},
    ),
}
ANSWER = {
    "names": "{{ _nvidia_container_toolkit_names }}",
    "missing": "{{ _nvidia_container_toolkit_missing }}",
    "users": "{{ _nvidia_container_toolkit_users }}",
    "old": "{{ _nvidia_container_toolkit_old_engines }}",
    "wanted": "{{ _nvidia_container_toolkit_docker_wanted }}",
    "flag": "{{ 'no-additional-gids' in _nvidia_container_toolkit_generate | join(' ') }}",
    "mistakes": "{{ _nvidia_container_toolkit_mistakes | default('', true) | trim }}",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the role's variables say on each host."""
    folder = tmp_path_factory.mktemp("toolkit")
    hosts = {name: given for name, (given, _expected) in HOSTS.items()}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {
            "ansible.builtin.copy": {
                "content": "{{ answer | to_json }}",
                "dest": f"{folder}/{{{{ inventory_hostname }}}}.json",
                "mode": "0600",
            },
            "delegate_to": "localhost",
            "vars": {"answer": ANSWER},
        },
    ]
    # As a role's, the defaults give way to the hosts' variables.
    role = folder / "roles/defaults_only/defaults"
    role.mkdir(parents=True)
    (role / "main.yml").write_text((ROLE / "defaults/main.yml").read_text())
    (folder / "ansible.cfg").touch()
    play = {"hosts": "all", "gather_facts": False, "roles": ["defaults_only"], "tasks": tasks}
    (folder / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", folder / "hosts.json", folder / "play.yml"],
        env={**os.environ, "ANSIBLE_CONFIG": str(folder / "ansible.cfg")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in HOSTS}


@pytest.mark.parametrize("name", HOSTS)
def test_engines_and_mistakes(answers: dict[str, dict[str, Any]], name: str) -> None:
    expected = HOSTS[name][1]
    if "mistakes" not in expected:
        assert answers[name]["mistakes"] == ""
    for key, value in expected.items():
        if key == "mistakes" and value:
            assert answers[name][key].startswith(value)
        else:
            assert answers[name][key] == value
