# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Role nvidia_driver from beginning to end on a host with its own kernel, with stand-ins for the modules it uses.

Every case is a host. All of them are in three runs, as a run costs seconds.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import COLLECTION, CONNECTION, LOCAL, run_playbook

MODULES = ("gpu_facts", "driver_plan", "driver_packages", "driver_load")

# Each module notes its call, and returns the next of its answers, the last one again and again.
STAND_IN = """\
#!/usr/bin/python
import json
import os
from ansible.module_utils.basic import AnsibleModule
FOLDER, NAME = os.environ["HOST_FOLDER"], %(name)r
module = AnsibleModule(argument_spec={name: {"type": "raw"} for name in %(options)r}, supports_check_mode=True)
calls = os.path.join(FOLDER, "calls")
with open(calls, "a+") as file:
    file.seek(0)
    before = [line for line in file if json.loads(line)[0] == NAME]
    file.write(json.dumps([NAME, module.params]) + "\\n")
with open(os.path.join(FOLDER, NAME + ".json")) as file:
    answers = json.load(file)
answer = answers[min(len(before), len(answers) - 1)]
for warning in answer.pop("warn", []):
    module.warn(warning)
if answer.pop("fail", False):
    module.fail_json(**answer)
module.exit_json(**answer)
"""

# A systemd that has every unit, enabled and running.
SYSTEMCTL = """\
#!/bin/sh
echo "$*" >> "$HOST_FOLDER/systemctl"
case "$1" in
show) printf 'Id=%s\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\n' "$2" ;;
is-enabled) echo enabled ;;
esac
"""
REBUILD = """\
#!/bin/sh
echo rebuilt >> "$HOST_FOLDER/rebuilt"
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


def plan(*refusals: str, satisfied: bool = False) -> dict[str, Any]:
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


def done(host: str) -> dict[str, Any]:
    """What driver_packages answers."""
    return {"changed": True, "kept": [], "diff": {"before": "", "after": f"nvidia-driver-cuda 1 of {host}\n"}}


BROKEN = {"fail": True, "msg": "The kernel module does not compile.", "failure": {"kind": "dkms"}}
HOLDS = plan()
HOLDS["plan"].update(transaction={"install": [], "change": [], "remove": []}, why=["nvidia-driver-cuda is not held"])
IN_USE = {"fail": True, "msg": "The driver is in use by python3.", "failure": {"kind": "in_use"}}
PENDING = [{"code": "driver_reload_pending", "severity": "warning", "message": "x"}]
NO_GPU = gpu("absent", gpus=[], count=0)


@dataclass(frozen=True)
class Case:
    """A host: what the modules answer on it, and how the role is used. A module without answer is not to be asked."""

    answers: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    entry: str = "main"
    connection: str = "local"
    system: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


SATISFIED = {"gpu_facts": [gpu("ok")], "driver_plan": [plan(satisfied=True)]}
REFUSED = {
    "gpu_facts": [gpu("absent")],
    "driver_plan": [plan("Secure Boot is on: switch it off", "The disk is full")],
}
INSTALLED = {"record": "{}", "nouveau.conf": "blacklist nouveau\n"}

ONCE = {
    "bare": Case(
        {
            "gpu_facts": [gpu("absent"), gpu("absent"), gpu("ok")],
            "driver_plan": [plan()],
            "driver_packages": [done("bare")],
            "driver_load": [loaded()],
        }
    ),
    "settled": Case({**SATISFIED, "driver_load": [{**loaded(), "changed": False}]}),
    "waiting": Case(
        {
            "gpu_facts": [gpu("not_loaded")],
            "driver_plan": [plan(satisfied=True)],
            "driver_load": [loaded("595.71.05 is installed, 580.159.04 is in use")],
        },
        variables={"nvidia_driver_reboot": True},
    ),
    "pending": Case({"gpu_facts": [gpu("ok", problems=PENDING)], "driver_plan": [plan(satisfied=True)]}, "verify"),
    "other": Case({"gpu_facts": [gpu("ok")], "driver_plan": [plan()]}, "verify"),
    "refused_main": Case(REFUSED),
    "refused_verify": Case(REFUSED, "verify"),
    "broken": Case({"gpu_facts": [gpu("absent")], "driver_plan": [plan()], "driver_packages": [BROKEN]}),
    "too_old": Case(
        {"gpu_facts": [gpu("absent")], "driver_plan": [plan()]}, variables={"nvidia_driver_minimum_version": "595.72"}
    ),
    "old_image": Case(
        {"gpu_facts": [NO_GPU], "driver_plan": [plan(satisfied=True)]},
        "verify",
        variables={"nvidia_driver_kernel": "newest", "nvidia_driver_minimum_version": "600"},
    ),
    "holds": Case(
        {
            "gpu_facts": [gpu("ok")],
            "driver_plan": [HOLDS],
            "driver_packages": [done("holds")],
            "driver_load": [{**loaded(), "changed": False}],
        }
    ),
    "masked": Case(
        {"gpu_facts": [gpu("absent")], "driver_plan": [plan()]},
        system={"service_mgr": "systemd"},
        files={"bin/systemctl": SYSTEMCTL.replace("LoadState=loaded", "LoadState=masked")},
    ),
    "image": Case(
        {"gpu_facts": [NO_GPU], "driver_plan": [plan()], "driver_packages": [done("image")]},
        variables={"nvidia_driver_kernel": "newest"},
    ),
    "empty": Case({"gpu_facts": [NO_GPU]}),
    "preinstalled_ok": Case({"gpu_facts": [gpu("ok")]}, variables={"nvidia_driver_source": "preinstalled"}),
    "preinstalled_bad": Case({"gpu_facts": [gpu("not_loaded")]}, variables={"nvidia_driver_source": "preinstalled"}),
    "half": Case(
        SATISFIED,
        system={"distribution": "Debian", "distribution_major_version": "12", "os_family": "Debian"},
        variables={"nvidia_driver_hold": True, "unattended": "/no-such-directory/unattended"},
        files={"rebuild": REBUILD},
    ),
    "fabric": Case(
        {**SATISFIED, "driver_load": [{**loaded(), "changed": False}]},
        system={"service_mgr": "systemd"},
        variables={"nvidia_driver_fabric_manager": "never"},
        files={"bin/systemctl": SYSTEMCTL},
    ),
    "absent_nothing": Case(entry="absent"),
    "absent_in_use": Case({"driver_packages": [IN_USE]}, "absent", files=INSTALLED),
    "absent_forced": Case(
        {"driver_packages": [done("absent_forced")]},
        "absent",
        variables={"nvidia_driver_ignore_processes": True},
        files=INSTALLED,
    ),
}
# A second time, with options of the command line, which are words.
AGAIN = {"settled": ONCE["settled"]}
WORDS = ["hold=false", "persistence=false", "reboot=false", "upgrade=false", "branch=595"]
# Where this runs is not to be rebooted.
CHECK = {
    "planned": Case(
        {"gpu_facts": [gpu("absent")], "driver_plan": [plan()], "driver_packages": [done("planned")]},
    ),
    "rebooted": Case(
        {
            "gpu_facts": [gpu("not_loaded")],
            "driver_plan": [plan(satisfied=True)],
            "driver_load": [{**loaded("580.159.04 is in use"), "reboot": True, "warn": []}],
        },
        connection="near",
        variables={
            "nvidia_driver_reboot": True,
            "nvidia_driver_before_reboot": "{{ folder }}/before.yml",
            "nvidia_driver_after_reboot": "{{ folder }}/after.yml",
        },
        files={
            "before.yml": '[{"name": "Work goes", "ansible.builtin.debug": {}}]',
            "after.yml": '[{"name": "Work comes", "ansible.builtin.debug": {}}]',
        },
    ),
    "busy": Case(
        {
            "gpu_facts": [gpu("not_loaded")],
            "driver_plan": [plan(satisfied=True)],
            "driver_load": [{**loaded("580.159.04 is in use"), "reboot": True, "warn": []}],
        },
        connection="near",
        variables={"nvidia_driver_reboot": True, "nvidia_driver_before_reboot": "{{ folder }}/before.yml"},
        files={"before.yml": '[{"name": "Work goes", "ansible.builtin.fail": {"msg": "Job 12 still runs"}}]'},
    ),
}


@dataclass(frozen=True)
class Done:
    """How the role ended on a host."""

    folder: Path
    output: str
    failure: str | None
    changed: int
    reboot_needed: object
    pending: object
    calls: list[tuple[str, dict[str, Any]]]

    @property
    def asked(self) -> list[str]:
        return [name for name, _params in self.calls]


Flow = dict[str, Done]


def prepare(folder: Path) -> None:
    """Copy the collection, with stand-ins for the modules and for role gpu_facts."""
    collection = folder / "collections/ansible_collections/cudahub/gpu"
    for part in ("plugins", "meta", "roles/nvidia_driver"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(COLLECTION / part, collection / part, ignore=ignored)
    for name in MODULES:
        path = collection / f"plugins/modules/{name}.py"
        options = list(yaml.safe_load(path.read_text(encoding="utf-8").split('r"""')[1].split('"""')[0])["options"])
        path.write_text(STAND_IN % {"name": name, "options": options}, encoding="utf-8")
    facts = collection / "roles/gpu_facts/tasks"
    facts.mkdir(parents=True)
    look = {"cudahub.gpu.gpu_facts": {}}
    bring = {"ansible.builtin.debug": {"msg": "The binding of NVML comes to {{ inventory_hostname }}"}}
    (facts / "main.yml").write_text(json.dumps([look, bring]), encoding="utf-8")
    (facts / "verify.yml").write_text(json.dumps([look]), encoding="utf-8")
    (folder / "connection").mkdir()
    (folder / "connection/near.py").write_text(CONNECTION, encoding="utf-8")


def host_of(name: str, case: Case, folder: Path) -> dict[str, Any]:
    """Write a host's files, and return its variables."""
    folder.mkdir(exist_ok=True)
    for module in MODULES:
        answers = case.answers.get(module, [{"fail": True, "msg": f"{module} was not expected"}])
        (folder / f"{module}.json").write_text(json.dumps(answers), encoding="utf-8")
    for path, text in case.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        (folder / path).chmod(0o755)
    (folder / "calls").write_text("", encoding="utf-8")
    if not (folder / "link").is_symlink():
        (folder / "link").symlink_to("daemon-that-is-gone")
    return {
        **LOCAL,
        "ansible_connection": case.connection,
        "ansible_async_dir": str(folder / "async"),
        "nvidia_driver_hold": False,
        "entry": case.entry,
        "folder": str(folder),
        "system": {**SYSTEM, **case.system},
        "unattended": str(folder / "unattended"),
        **case.variables,
    }


def play(folder: Path, cases: Mapping[str, Case], *arguments: str) -> Flow:
    """Use the role on all hosts at once."""
    hosts = {name: host_of(name, case, folder / name) for name, case in cases.items()}
    known = {name: f"{{{{ system.{name} }}}}" for name in SYSTEM}
    tasks = [
        {"ansible.builtin.set_fact": {**known, "cacheable": True}},
        # One task for each: ansible-core 2.19 takes the includes of several hosts in one task for the same.
        *(
            {
                "ansible.builtin.include_role": {"name": "cudahub.gpu.nvidia_driver", "tasks_from": entry},
                "when": f"entry == '{entry}'",
            }
            for entry in ("main", "verify", "absent")
        ),
    ]
    note = {"ansible.builtin.set_fact": {"failure": "{{ ansible_failed_result.msg }}"}}
    names = ("failure", "nvidia_driver_reboot_needed", "nvidia_driver_pending")
    ends = ", ".join(f"hostvars[host].{name} | default(none)" for name in names)
    last = {
        "ansible.builtin.copy": {
            "content": "{% set found = {} %}{% for host in groups.all %}"
            f"{{% set _ = found.update({{host: [{ends}]}}) %}}{{% endfor %}}{{{{ found | to_json }}}}",
            "dest": f"{folder}/ends",
        },
        "check_mode": False,
    }
    playbook = [
        {
            "hosts": "all",
            "gather_facts": False,
            "environment": {
                "HOST_FOLDER": "{{ folder }}",
                "PATH": "{{ folder }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}",
            },
            "tasks": [{"block": tasks, "rescue": [note]}],
        },
        {"hosts": "localhost", "gather_facts": False, "tasks": [last]},
    ]
    # Nothing of this machine is touched.
    own = {
        "_nvidia_driver_nouveau": "{{ folder }}/nouveau.conf",
        "_nvidia_driver_unattended": "{{ unattended }}",
        "_nvidia_driver_initramfs": ["{{ folder }}/rebuild"],
        "_nvidia_driver_record": "{{ folder }}/record",
        "_nvidia_driver_trust": "{{ folder }}/trust",
        "_nvidia_driver_key_directory": "{{ folder }}",
        "_nvidia_driver_own_files": [],
        "_nvidia_driver_links": ["{{ folder }}/link"],
    }
    ran = run_playbook(
        folder,
        {"all": {"hosts": hosts}},
        playbook,
        *("--extra-vars", json.dumps(own), *arguments),
        ANSIBLE_COLLECTIONS_PATH=str(folder / "collections"),
        ANSIBLE_CONNECTION_PLUGINS=str(folder / "connection"),
        ANSIBLE_CALLBACKS_ENABLED="cudahub.gpu.gpu_table",
        ANSIBLE_INJECT_FACT_VARS="false",
        ANSIBLE_PIPELINING="true",
        COLUMNS="200",
    )
    assert ran.returncode == 0, ran.stdout
    ends_of = json.loads((folder / "ends").read_text(encoding="utf-8"))
    changed = dict(re.findall(r"^(\S+) +: ok=.* changed=(\d+) ", ran.stdout, re.MULTILINE))
    return {
        name: Done(
            folder / name,
            " ".join(ran.stdout.split()),
            failure,
            int(changed[name]),
            reboot_needed,
            pending,
            [tuple(json.loads(line)) for line in (folder / name / "calls").read_text(encoding="utf-8").splitlines()],
        )
        for name, (failure, reboot_needed, pending) in ends_of.items()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the collection."""
    directory = tmp_path_factory.mktemp("flow")
    prepare(directory)
    return directory


@pytest.fixture(scope="module")
def once(folder: Path) -> Flow:
    """Return how the role ends on every host."""
    return play(folder, ONCE, "--diff")


@pytest.fixture(scope="module")
def again(folder: Path, once: Flow) -> Flow:
    """Return how it ends a second time."""
    assert once["settled"].failure is None, once["settled"].output
    words = [argument for word in WORDS for argument in ("--extra-vars", f"nvidia_driver_{word}")]
    return play(folder, AGAIN, *words)


@pytest.fixture(scope="module")
def check(folder: Path) -> Flow:
    """Return how it ends in check mode."""
    return play(folder, CHECK, "--check", "--diff")


def test_bare_host_gets_the_driver_and_is_checked(once: Flow) -> None:
    done = once["bare"]
    assert done.failure is None
    assert done.asked == [*["gpu_facts"] * 2, "driver_plan", "driver_packages", "driver_load", "gpu_facts"]
    assert (done.reboot_needed, done.pending) == (False, False)
    assert "bare gets NVIDIA driver 595.71.05 with the open kernel module for kernel 5.14.0-1.el9.x86_64" in done.output
    assert "+nvidia-driver-cuda 1 of bare" in done.output
    assert "blacklist nouveau" in (done.folder / "nouveau.conf").read_text(encoding="utf-8")


def test_bare_host_in_check_mode_shows_the_plan_and_does_not_fail(check: Flow) -> None:
    done = check["planned"]
    assert done.failure is None
    assert done.asked == [*["gpu_facts"] * 2, "driver_plan", "driver_packages"]
    assert done.pending is True
    assert "planned would get NVIDIA driver 595.71.05" in done.output
    assert "+nvidia-driver-cuda 1 of planned" in done.output
    assert not (done.folder / "nouveau.conf").exists()


def test_host_that_has_it_is_left_alone_whatever_words_say_so(again: Flow) -> None:
    done = again["settled"]
    assert done.failure is None
    assert "driver_packages" not in done.asked
    assert done.changed == 0


def test_reboot_that_is_not_allowed_is_a_warning_a_fact_and_in_the_table(once: Flow) -> None:
    done = once["waiting"]
    assert done.failure is None
    assert done.reboot_needed is True
    assert "[WARNING]: " in done.output
    assert "Reboot needed: 595.71.05 is installed, 580.159.04 is in use" in done.output
    assert re.search(r"waiting (?:(?!preinstalled).)*not loaded, reboot needed", done.output)
    assert done.calls[-2][0] == "driver_load"
    assert done.calls[-2][1]["reboot"] is False


def test_reboot_that_is_allowed_is_done(check: Flow) -> None:
    done = check["rebooted"]
    assert done.failure is None
    rebooted = done.output.partition("Reboot into the driver that is installed]")[2]
    assert "changed: [rebooted]" in rebooted.partition("TASK [")[0]
    assert [params["reboot"] for name, params in done.calls if name == "driver_load"] == [True, True]


def test_work_is_taken_from_a_host_before_its_reboot_and_given_back_when_its_driver_is_loaded(check: Flow) -> None:
    output = check["rebooted"].output
    tasks = ("Work goes]", "Reboot into the driver that is installed]", "Refuse a driver that no reboot", "Work comes]")
    found = [output.find(task) for task in tasks]
    assert -1 not in found
    assert found == sorted(found)


def test_host_whose_work_stays_is_not_rebooted(check: Flow) -> None:
    done = check["busy"]
    assert done.failure == "Job 12 still runs"
    assert "changed: [busy]" not in done.output.partition("Reboot into the driver that is installed]")[2]


def test_verify_fails_where_a_reboot_is_needed(once: Flow) -> None:
    done = once["pending"]
    assert done.reboot_needed is True
    assert "reboot needed, then run this again" in str(done.failure)


def test_verify_does_not_bring_what_the_facts_need(once: Flow) -> None:
    assert "The binding of NVML comes to settled" in once["settled"].output
    assert "The binding of NVML comes to pending" not in once["pending"].output


def test_verify_fails_where_the_driver_is_another_one(once: Flow) -> None:
    failure = str(once["other"].failure)
    assert failure.startswith("other does not have the NVIDIA driver that is asked for (595.71.05 with the open")
    assert failure.endswith("run role nvidia_driver. Branch 595 is asked for.")
    assert "other gets" not in once["other"].output


@pytest.mark.parametrize("name", ["refused_main", "refused_verify"])
def test_refusals_are_said_together_and_nothing_is_changed(once: Flow, name: str) -> None:
    done = once[name]
    assert done.failure == f"{name}: Secure Boot is on: switch it off. The disk is full."
    assert done.changed == 0
    assert not (done.folder / "nouveau.conf").exists()


def test_failed_transaction_is_the_roles_failure(once: Flow) -> None:
    assert once["broken"].failure == "The kernel module does not compile."
    assert "driver_load" not in once["broken"].asked


def test_driver_that_is_too_old_is_refused_before_any_change(once: Flow) -> None:
    done = once["too_old"]
    assert str(done.failure).startswith(
        "too_old would have NVIDIA driver 595.71.05 from source nvidia, but nvidia_driver_minimum_version asks for "
        "595.72 or newer:"
    )
    assert (done.changed, done.asked) == (0, ["gpu_facts", "gpu_facts", "driver_plan"])
    assert "nvidia_driver_minimum_version asks for 600 or newer" in str(once["old_image"].failure)


def test_plan_that_changes_no_package_says_so(once: Flow) -> None:
    done = once["holds"]
    assert done.failure is None
    assert "holds keeps NVIDIA driver 595.71.05, and no package changes: nvidia-driver-cuda is not held." in done.output
    assert "holds gets" not in done.output


def test_daemon_that_is_masked_is_refused_before_any_change(once: Flow) -> None:
    done = once["masked"]
    assert done.failure == (
        "masked has masked nvidia-persistenced.service: unmask what is to run (systemctl unmask "
        "nvidia-persistenced.service), or set nvidia_driver_persistence to false."
    )
    assert done.changed == 0


def test_image_is_not_loaded_and_needs_no_gpu(once: Flow) -> None:
    assert once["image"].failure is None
    assert "driver_load" not in once["image"].asked


def test_host_without_gpu_is_refused_before_the_plan(once: Flow) -> None:
    assert str(once["empty"].failure).startswith("empty has no NVIDIA GPU on its PCI bus")
    assert set(once["empty"].asked) == {"gpu_facts"}


@pytest.mark.parametrize(("name", "works"), [("preinstalled_ok", True), ("preinstalled_bad", False)])
def test_preinstalled_driver_is_only_checked(once: Flow, name: str, works: bool) -> None:
    assert (once[name].failure is None) is works
    assert set(once[name].asked) == {"gpu_facts"}
    assert once[name].pending is False


def test_initramfs_is_rebuilt_though_a_later_task_fails(once: Flow) -> None:
    done = once["half"]
    assert "/no-such-directory" in str(done.failure)
    assert (done.folder / "rebuilt").read_text(encoding="utf-8") == "rebuilt\n"


def test_fabric_manager_that_is_never_to_run_is_disabled_and_stopped(once: Flow) -> None:
    done = once["fabric"]
    assert done.failure is None
    did = (done.folder / "systemctl").read_text(encoding="utf-8").splitlines()
    changes = [line for line in did if line.split()[0] in ("enable", "disable", "start", "stop")]
    assert changes == ["disable nvidia-fabricmanager.service", "stop nvidia-fabricmanager.service"]


def test_absent_takes_nothing_where_nothing_was_installed(once: Flow) -> None:
    done = once["absent_nothing"]
    assert done.failure is None
    assert done.asked == []
    assert "absent_nothing keeps its NVIDIA driver" in done.output


def test_absent_changes_nothing_while_the_driver_is_in_use(once: Flow) -> None:
    done = once["absent_in_use"]
    assert done.failure == "The driver is in use by python3."
    assert [(name, params["state"], params["ignore_processes"]) for name, params in done.calls] == [
        ("driver_packages", "absent", False)
    ]
    assert (done.folder / "nouveau.conf").exists()


def test_absent_takes_the_driver_away_beneath_processes_if_asked_to(once: Flow) -> None:
    done = once["absent_forced"]
    assert done.failure is None
    assert done.calls[0][1]["ignore_processes"] is True
    assert not (done.folder / "nouveau.conf").exists()


@pytest.mark.parametrize(
    ("name", "stays"),
    [("bare", False), ("absent_forced", False), ("settled", True), ("refused_main", True), ("absent_in_use", True)],
)
def test_link_to_a_daemon_that_is_gone_goes_with_it(once: Flow, name: str, stays: bool) -> None:
    assert (once[name].folder / "link").is_symlink() is stays
