# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo refuses machines it can't work on, and remembers what it made."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[3] / "demo"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the demo with its state in a folder of the test's."""
    spec = importlib.util.spec_from_file_location("demo", FOLDER / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("STATE", "RECORD", "LOG", "DOCKERD_LOG", "SYSTEMD", "SOCKETS"):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).name)
    module.STATE.mkdir()
    return module


def commands(*present: str) -> Callable[..., str | None]:
    def which(name: str, **_: object) -> str | None:
        return f"/usr/bin/{name}" if name in present else None

    return which


@pytest.mark.parametrize(
    ("present", "user", "sentence"),
    [
        ([], 0, "has no apt-get"),
        (["apt-get"], 1000, "you are not root and there is no sudo"),
    ],
)
def test_machine_is_refused(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, present: list[str], user: int, sentence: str
) -> None:
    monkeypatch.setattr(demo.shutil, "which", commands(*present))
    monkeypatch.setattr(demo.os, "geteuid", lambda: user)
    with pytest.raises(demo.DemoError, match=sentence):
        demo.check_machine()


def test_old_python_is_refused_unless_a_newer_one_is_there(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.shutil, "which", commands("apt-get"))
    monkeypatch.setattr(demo.os, "geteuid", lambda: 0)
    monkeypatch.setattr(demo.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(demo, "find_python", lambda: "/opt/python3.12")
    demo.check_machine()
    monkeypatch.setattr(demo, "find_python", lambda: None)
    with pytest.raises(demo.DemoError, match=r"Python 3\.9 is too old"):
        demo.check_machine()


@pytest.mark.parametrize(
    ("present", "python", "image", "systemd", "packages", "record"),
    [
        (["docker", "dockerd", "ssh", "mmdebstrap"], True, None, True, None, {}),
        (["docker", "dockerd", "ssh"], True, "debian:13", True, None, {}),
        (
            ["docker", "dockerd", "ssh"],
            True,
            None,
            False,
            ["mmdebstrap", "debian-archive-keyring"],
            {"packages": ["debian-archive-keyring", "mmdebstrap"]},
        ),
        (
            ["ssh", "mmdebstrap"],
            True,
            None,
            True,
            ["docker.io"],
            {"packages": ["docker.io"], "docker": "systemd"},
        ),
        (["docker", "ssh", "mmdebstrap"], True, None, False, ["docker.io"], {"packages": ["docker.io"]}),
        (["docker", "dockerd", "mmdebstrap"], True, None, False, ["openssh-client"], {"packages": ["openssh-client"]}),
        (
            ["docker", "dockerd", "ssh", "mmdebstrap"],
            False,
            None,
            False,
            [f"python3.{sys.version_info[1]}-venv"],
            {"packages": [f"python3.{sys.version_info[1]}-venv"]},
        ),
    ],
)
def test_missing_packages_are_installed_and_remembered(
    demo: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    present: list[str],
    python: bool,
    image: str | None,
    systemd: bool,
    packages: list[str] | None,
    record: dict[str, object],
) -> None:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(demo.shutil, "which", commands(*present))
    monkeypatch.setattr(demo.os, "geteuid", lambda: 0)
    monkeypatch.setattr(demo, "find_python", lambda: "/usr/bin/python3" if python or ran else None)
    monkeypatch.setattr(demo, "logged", ran.append)
    monkeypatch.delenv("MOLECULE_IMAGE_DEBIAN13", raising=False)
    if image:
        monkeypatch.setenv("MOLECULE_IMAGE_DEBIAN13", image)
    if systemd:
        demo.SYSTEMD.mkdir()
    demo.install_packages()
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    install = [*apt, "install", "--yes", "--no-install-recommends"]
    assert ran == ([] if packages is None else [[*apt, "update"], [*install, *packages]])
    assert demo.read_record() == record


def test_failure_shows_the_command_and_what_it_said(demo: ModuleType) -> None:
    with pytest.raises(demo.DemoError) as caught:
        demo.logged(["sh", "-c", "echo the reason >&2; exit 3"])
    message = str(caught.value)
    assert "status 3" in message
    assert "the reason" in message
    assert str(demo.LOG) in message


def test_process_that_is_no_docker_engine_is_not_stopped(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(demo, "logged", ran.append)
    (demo.STATE / "dockerd.pid").write_text(str(os.getpid()), encoding="utf-8")
    demo.stop_docker({"docker": "process"})
    assert ran == []


@pytest.mark.parametrize("pid", ["0", str(os.getpid())], ids=["none", "another program"])
def test_only_a_running_engine_counts(demo: ModuleType, pid: str) -> None:
    assert not demo.dockerd_runs(pid)


def test_record_keeps_what_was_made_before(demo: ModuleType) -> None:
    demo.write_record(image="a")
    demo.write_record(containers=True)
    assert demo.read_record() == {"image": "a", "containers": True}


def test_command_for_real_hosts_is_typed_from_where_the_user_is(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo.ROOT)
    assert ".cache/demo/venv/bin/ansible-playbook -i INVENTORY cudahub.gpu.site" in demo.next_command()


def test_hosts_are_those_of_the_inventory(demo: ModuleType) -> None:
    inventory = yaml.safe_load((FOLDER / "hosts.yml").read_text(encoding="utf-8"))
    assert tuple(inventory["all"]["children"]["gpu_nodes"]["hosts"]) == demo.HOSTS


def test_requirements_are_pinned() -> None:
    lines = (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert all("==" in line for line in lines)


def test_usage() -> None:
    done = subprocess.run([sys.executable, FOLDER / "demo.py", "sideways"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "Usage: demo.py up|down\n"
