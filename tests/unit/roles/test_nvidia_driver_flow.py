# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Role nvidia_driver from beginning to end on a host with its own kernel, with stand-ins for the modules it uses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.cudahub.gpu.plugins.plugin_utils import _table

COLLECTION = Path(_table.__file__).parents[2]
MODULES = ("gpu_facts", "driver_plan", "driver_packages", "driver_load")

# Each module notes its call, and returns the next of its answers, the last one again and again.
STAND_IN = """\
#!/usr/bin/python
import json
import os
from ansible.module_utils.basic import AnsibleModule
FOLDER, NAME = %(folder)r, %(name)r
module = AnsibleModule(argument_spec={}, bypass_checks=True, supports_check_mode=True)
calls = os.path.join(FOLDER, "calls")
with open(calls, "a+") as file:
    file.seek(0)
    before = [line for line in file.read().split() if line == NAME]
    file.write(NAME + "\\n")
with open(os.path.join(FOLDER, NAME + ".json")) as file:
    answers = json.load(file)
answer = answers[min(len(before), len(answers) - 1)]
for warning in answer.pop("warn", []):
    module.warn(warning)
if answer.pop("fail", False):
    module.fail_json(**answer)
module.exit_json(**answer)
"""
SPEC = 'argument_spec={name: {"type": "raw"} for name in %(options)r}'

# A connection that is not called local, as the reboot of a local host is refused.
CONNECTION = """\
from ansible.plugins.connection.local import Connection as Local
DOCUMENTATION = '''
name: near
short_description: The local connection by another name
description: [The local connection by another name.]
options: {}
'''
class Connection(Local):
    transport = "near"
"""

SYSTEM = {
    "distribution": "Rocky",
    "distribution_version": "9.6",
    "distribution_major_version": "9",
    "os_family": "RedHat",
    "architecture": "x86_64",
    "service_mgr": "none",
}


def gpu(state: str, **changes: Any) -> dict[str, Any]:
    """What gpu_facts answers for a driver's state."""
    version = None if state == "absent" else "595.71.05"
    driver = {
        "state": state,
        "version": version,
        "loaded_version": version if state == "ok" else None,
        "installed_version": version,
        "library_version": version,
        "reason": None if state == "ok" else "The reason",
        "branch": "595",
    }
    fact = {
        "driver": driver,
        "gpus": [{"pci_bus_id": "00000000:01:00.0", "name": "H100", "kernel_driver": None, "problems": []}],
        "count": 1,
        "visible_count": 1,
        "nvswitches": 0,
        "problems": [],
        "simulated": False,
        "pynvml": "/opt/cudahub/nvml/pynvml.py",
        **changes,
    }
    return {"ansible_facts": {"gpu": fact}}


def plan(satisfied: bool, *refusals: str) -> dict[str, Any]:
    """What driver_plan answers."""
    return {
        "plan": {
            "satisfied": satisfied,
            "source": "nvidia",
            "branch": "595",
            "version": "595.71.05",
            "kernel_module": "open",
            "kernels": ["5.14.0-1.el9.x86_64"],
            "transaction": {"install": [{"name": "nvidia-driver-cuda", "version": "1"}], "change": [], "remove": []},
            "hold": ["nvidia-driver-cuda"],
            "repository": None,
            "repair": False,
            "why": ["Branch 595 is asked for"],
        },
        "refusals": [{"code": "x", "message": message} for message in refusals],
    }


def loaded(reason: str | None = None, **changes: Any) -> dict[str, Any]:
    """What driver_load answers."""
    warnings = [f"Reboot needed: {reason}"] if reason else []
    return {
        "changed": reason is None,
        "reboot_needed": reason is not None,
        "reboot": False,
        "reason": reason,
        "warn": warnings,
        **changes,
    }


DONE = {"changed": True, "kept": [], "diff": {"before": "", "after": "nvidia-driver-cuda 1\n"}}


@dataclass
class Run:
    returncode: int
    output: str
    calls: list[str]
    reboot_needed: object
    pending: object


Play = Callable[..., Run]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a function that runs an entry point with the stand-ins' answers."""
    collection = tmp_path / "collections/ansible_collections/cudahub/gpu"
    for part in ("plugins", "meta", "roles/nvidia_driver", "roles/gpu_facts"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(COLLECTION / part, collection / part, ignore=ignored)
    for name in MODULES:
        path = collection / f"plugins/modules/{name}.py"
        options = list(yaml.safe_load(path.read_text(encoding="utf-8").split('r"""')[1].split('"""')[0])["options"])
        text = (STAND_IN % {"folder": str(tmp_path), "name": name}).replace(
            "argument_spec={}, bypass_checks=True", SPEC % {"options": options}
        )
        path.write_text(text, encoding="utf-8")

    (tmp_path / "connection").mkdir()
    (tmp_path / "connection/near.py").write_text(CONNECTION, encoding="utf-8")

    def run(answers: dict[str, list[dict[str, Any]]], *arguments: str, entry: str = "main", **variables: object) -> Run:
        for name in MODULES:
            # A module that has no answer is not to be asked.
            given = answers.get(name, [{"fail": True, "msg": f"{name} was not expected"}])
            (tmp_path / f"{name}.json").write_text(json.dumps(given), encoding="utf-8")
        tasks = [
            {"ansible.builtin.set_fact": {**SYSTEM, "cacheable": True}},
            {"ansible.builtin.include_role": {"name": "cudahub.gpu.nvidia_driver", "tasks_from": entry}},
        ]
        last = {
            "ansible.builtin.copy": {
                "content": "{{ facts | to_json }}",
                "dest": f"{tmp_path}/facts",
            },
            "check_mode": False,
            "vars": {
                "facts": [
                    f"{{{{ nvidia_driver_{name} | default('unknown') }}}}" for name in ("reboot_needed", "pending")
                ]
            },
        }
        playbook = [{"hosts": "all", "gather_facts": False, "tasks": [{"block": tasks, "always": [last]}]}]
        (tmp_path / "play.yml").write_text(yaml.safe_dump(playbook), encoding="utf-8")
        inventory = {
            "four": {
                "ansible_connection": variables.pop("connection", "local"),
                "ansible_python_interpreter": sys.executable,
                "ansible_async_dir": str(tmp_path / "async"),
                "nvidia_driver_hold": False,
            }
        }
        (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}), encoding="utf-8")
        # Nothing of this machine is touched.
        own = {
            "_nvidia_driver_nouveau": str(tmp_path / "nouveau.conf"),
            "_nvidia_driver_unattended": str(tmp_path / "unattended"),
            "_nvidia_driver_initramfs": [str(tmp_path / "no-such-program")],
            **variables,
        }
        (tmp_path / "calls").write_text("", encoding="utf-8")
        done = subprocess.run(
            [
                *(Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts.json", "play.yml"),
                *("--extra-vars", json.dumps(own), *arguments),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
                "ANSIBLE_CONNECTION_PLUGINS": str(tmp_path / "connection"),
                "ANSIBLE_CALLBACKS_ENABLED": "cudahub.gpu.gpu_table",
                "ANSIBLE_INJECT_FACT_VARS": "false",
                "ANSIBLE_FORCE_COLOR": "false",
                "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
                "COLUMNS": "200",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Run(
            done.returncode,
            " ".join(done.stdout.split()),
            (tmp_path / "calls").read_text(encoding="utf-8").split(),
            *json.loads((tmp_path / "facts").read_text(encoding="utf-8")),
        )

    return run


def test_bare_host_gets_the_driver_and_is_checked(play: Play, tmp_path: Path) -> None:
    done = play(
        {
            "gpu_facts": [gpu("absent"), gpu("absent"), gpu("ok")],
            "driver_plan": [plan(satisfied=False)],
            "driver_packages": [DONE],
            "driver_load": [loaded()],
        },
        "--diff",
    )
    assert done.returncode == 0, done.output
    assert done.calls == [*["gpu_facts"] * 2, "driver_plan", "driver_packages", "driver_load", "gpu_facts"]
    assert (done.reboot_needed, done.pending) == (False, False)
    assert "four gets NVIDIA driver 595.71.05 with the open kernel module for kernel 5.14.0-1.el9.x86_64" in done.output
    assert "+nvidia-driver-cuda 1" in done.output
    assert "blacklist nouveau" in (tmp_path / "nouveau.conf").read_text(encoding="utf-8")


def test_options_of_the_command_line_are_words(play: Play) -> None:
    answers = {"gpu_facts": [gpu("ok")], "driver_plan": [plan(satisfied=True)], "driver_load": [loaded()]}
    words = ["hold=false", "persistence=false", "reboot=false", "upgrade=false", "branch=595"]
    arguments = [argument for word in words for argument in ("--extra-vars", f"nvidia_driver_{word}")]
    done = play(answers, *arguments)
    assert done.returncode == 0, done.output


def test_bare_host_in_check_mode_shows_the_plan_and_does_not_fail(play: Play, tmp_path: Path) -> None:
    answers = {"gpu_facts": [gpu("absent")], "driver_plan": [plan(satisfied=False)], "driver_packages": [DONE]}
    done = play(answers, "--check", "--diff")
    assert done.returncode == 0, done.output
    assert done.calls == [*["gpu_facts"] * 2, "driver_plan", "driver_packages"]
    assert done.pending is True
    assert "four would get NVIDIA driver 595.71.05" in done.output
    assert "+nvidia-driver-cuda 1" in done.output
    assert not (tmp_path / "nouveau.conf").exists()


def test_host_that_has_it_is_left_alone(play: Play, tmp_path: Path) -> None:
    answers = {
        "gpu_facts": [gpu("ok")],
        "driver_plan": [plan(satisfied=True)],
        "driver_load": [{**loaded(), "changed": False}],
    }
    assert play(answers).returncode == 0
    done = play(answers)
    assert done.returncode == 0, done.output
    assert "driver_packages" not in done.calls
    assert "changed=0 " in done.output


def test_reboot_that_is_not_allowed_is_a_warning_a_fact_and_in_the_table(play: Play) -> None:
    answers = {
        "gpu_facts": [gpu("not_loaded")],
        "driver_plan": [plan(satisfied=True)],
        "driver_load": [loaded("595.71.05 is installed, 580.159.04 is in use")],
    }
    done = play(answers, nvidia_driver_reboot=True)
    assert done.returncode == 0, done.output
    assert done.reboot_needed is True
    assert "[WARNING]: " in done.output
    assert "Reboot needed: 595.71.05 is installed, 580.159.04 is in use" in done.output
    assert "not loaded, reboot needed" in done.output
    assert "1 host (1 to reboot)" in done.output


def test_reboot_that_is_allowed_is_done(play: Play) -> None:
    """In check mode: where this runs is not to be rebooted."""
    answers = {
        "gpu_facts": [gpu("not_loaded")],
        "driver_plan": [plan(satisfied=True)],
        "driver_load": [{**loaded("580.159.04 is in use"), "reboot": True, "warn": []}],
    }
    done = play(answers, "--check", connection="near", nvidia_driver_reboot=True)
    assert done.returncode == 0, done.output
    rebooted = done.output.partition("Reboot into the driver that is installed]")[2]
    assert "changed: [four]" in rebooted.partition("TASK [")[0]
    assert done.calls.count("driver_load") == 2


def test_verify_fails_where_a_reboot_is_needed(play: Play) -> None:
    pending = gpu("ok", problems=[{"code": "driver_reload_pending", "severity": "warning", "message": "x"}])
    done = play({"gpu_facts": [pending], "driver_plan": [plan(satisfied=True)]}, entry="verify")
    assert done.returncode == 2, done.output
    assert done.reboot_needed is True
    assert "reboot needed, then run this again" in done.output


def test_verify_fails_where_the_driver_is_another_one(play: Play) -> None:
    done = play({"gpu_facts": [gpu("ok")], "driver_plan": [plan(satisfied=False)]}, entry="verify")
    assert done.returncode == 2, done.output
    assert "four does not have the NVIDIA driver that is asked for (595.71.05 with the open" in done.output
    assert "run role nvidia_driver. Branch 595 is asked for." in done.output


@pytest.mark.parametrize("entry", ["main", "verify"])
def test_refusals_are_said_together_and_nothing_is_changed(play: Play, tmp_path: Path, entry: str) -> None:
    refused = plan(False, "Secure Boot is on: switch it off", "The disk is full")
    done = play({"gpu_facts": [gpu("absent")], "driver_plan": [refused]}, entry=entry)
    assert done.returncode == 2, done.output
    assert "four: Secure Boot is on: switch it off. The disk is full." in done.output
    assert "changed=1 " in done.output  # the test's own note
    assert not (tmp_path / "nouveau.conf").exists()


def test_failed_transaction_is_the_roles_failure(play: Play) -> None:
    broken = {"fail": True, "msg": "The kernel module does not compile.", "failure": {"kind": "dkms"}}
    answers = {"gpu_facts": [gpu("absent")], "driver_plan": [plan(satisfied=False)], "driver_packages": [broken]}
    done = play(answers)
    assert done.returncode == 2, done.output
    assert "The kernel module does not compile." in done.output
    assert "driver_load" not in done.calls


def test_image_is_not_loaded_and_needs_no_gpu(play: Play) -> None:
    answers = {
        "gpu_facts": [gpu("absent", gpus=[], count=0)],
        "driver_plan": [plan(satisfied=False)],
        "driver_packages": [DONE],
    }
    done = play(answers, nvidia_driver_kernel="newest")
    assert done.returncode == 0, done.output
    assert "driver_load" not in done.calls


def test_host_without_gpu_is_refused_before_the_plan(play: Play) -> None:
    done = play({"gpu_facts": [gpu("absent", gpus=[], count=0)]})
    assert done.returncode == 2, done.output
    assert "four has no NVIDIA GPU on its PCI bus" in done.output


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("not_loaded", 2)])
def test_preinstalled_driver_is_only_checked(play: Play, state: str, code: int) -> None:
    done = play({"gpu_facts": [gpu(state)]}, nvidia_driver_source="preinstalled")
    assert done.returncode == code, done.output
    assert set(done.calls) == {"gpu_facts"}


def test_absent_takes_nothing_where_nothing_was_installed(play: Play, tmp_path: Path) -> None:
    own = {
        "_nvidia_driver_record": str(tmp_path / "no-record"),
        "_nvidia_driver_key_directory": str(tmp_path),
        "_nvidia_driver_own_files": [],
        "_nvidia_driver_links": [],
    }
    done = play({}, entry="absent", **own)
    assert done.returncode == 0, done.output
    assert done.calls == []
    assert "four keeps its NVIDIA driver" in done.output
