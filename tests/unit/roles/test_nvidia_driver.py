# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What role nvidia_driver makes of options and facts, as far as no host is needed to tell."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import COLLECTION, LOCAL, run_playbook, written

ROLE = COLLECTION / "roles/nvidia_driver"
NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos"

SYSTEMS = {
    ("Ubuntu", "22.04"): ("ubuntu2204", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    ("Ubuntu", "24.04"): ("ubuntu2404", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    ("Ubuntu", "26.04"): ("ubuntu2604", "60DF8A40.pub", "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40"),
    ("Debian", "12"): ("debian12", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    ("Debian", "13"): ("debian13", "8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
    ("RedHat", "8"): ("rhel8", "D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    ("Rocky", "9"): ("rhel9", "D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    ("AlmaLinux", "10"): ("rhel10", "CDF6BA43.pub", ""),
}
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}

GPU = {
    "driver": {"state": "absent", "installed_version": None},
    "gpus": [{"pci_bus_id": "00000000:01:00.0", "kernel_driver": None, "problems": []}],
    "count": 1,
    "nvswitches": 0,
    "problems": [],
    "simulated": False,
    "pynvml": None,
}
PLAN = {"plan": {"satisfied": False, "hold": [], "repository": None, "kernel_module": "open"}}


def facts(distribution: str = "Debian", version: str = "12", machine: str = "x86_64") -> dict[str, Any]:
    """What ansible.builtin.setup says on a system."""
    return {
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": version.split(".", maxsplit=1)[0],
        "os_family": "Debian" if distribution in ("Debian", "Ubuntu") else "RedHat",
        "architecture": machine,
        "service_mgr": "systemd",
    }


def play(folder: Path, tasks: list[dict[str, Any]], hosts: Mapping[str, Mapping[str, Any]], *arguments: str) -> str:
    """Run tasks on hosts of the local connection, each with variables and the facts in its variable ``system``."""
    inventory = {"all": {"hosts": {name: {**LOCAL, "system": facts(), **values} for name, values in hosts.items()}}}
    known = {name: f"{{{{ system.{name} }}}}" for name in facts()}
    first = {"ansible.builtin.set_fact": {**known, "gpu": "{{ gpu_of_host | default({}) }}", "cacheable": True}}
    playbook = [{"hosts": "all", "gather_facts": False, "tasks": [first, *tasks]}]
    done = run_playbook(folder, inventory, playbook, *arguments, ANSIBLE_INJECT_FACT_VARS="false")
    assert "unreachable=1" not in done.stdout, done.stdout
    return done.stdout


def rendered(
    folder: Path, names: list[str], hosts: Mapping[str, Mapping[str, Any]], *arguments: str
) -> dict[str, dict[str, Any]]:
    """Variables of the role on hosts, as it reads them."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    values = {name: f"{{{{ _nvidia_driver_{name} }}}}" for name in names}
    tasks = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {"ansible.builtin.include_vars": f"{ROLE}/vars/{{{{ _nvidia_driver_os }}}}.yml"},
        {"ansible.builtin.set_fact": {"values": values}},
        written(folder / "values", "values"),
    ]
    more = {"gpu_of_host": GPU, "_nvidia_driver_planned": PLAN, "nvidia_driver_reboot_needed": False}
    output = play(folder, tasks, {name: {**defaults, **more, **host} for name, host in hosts.items()}, *arguments)
    assert (folder / "values").is_file(), output
    found: dict[str, dict[str, Any]] = json.loads((folder / "values").read_text(encoding="utf-8"))
    assert all(found[name] for name in hosts), output
    return {name: found[name] for name in hosts}


def test_package_source_of_every_system(tmp_path: Path) -> None:
    cases = {
        f"{distribution}{version}{machine}": (distribution, version, machine)
        for distribution, version in SYSTEMS
        for machine in ARCHITECTURES
    }
    names = ["source", "initramfs"]
    found = rendered(tmp_path, names, {name: {"system": facts(*case)} for name, case in cases.items()})
    for name, (distribution, version, machine) in cases.items():
        repository, key, fingerprint = SYSTEMS[distribution, version]
        url = f"{NVIDIA}/{repository}/{ARCHITECTURES[machine]}/"
        assert found[name]["source"] == {
            "url": url,
            "key_url": f"{url}{key}",
            "key_fingerprint": fingerprint,
            "key_checksum": None,
        }
        family = facts(distribution)["os_family"]
        program = {"Debian": "/usr/sbin/update-initramfs", "RedHat": "/usr/bin/dracut"}[family]
        assert found[name]["initramfs"][0] == program


def test_mirrors_and_keys_of_ones_own(tmp_path: Path) -> None:
    checksum = f"sha256:{'0' * 64}"
    found = rendered(
        tmp_path,
        ["source"],
        {
            "mirror": {"nvidia_driver_repository_url": "http://mirror.example.org/cuda//"},
            "key": {
                "nvidia_driver_repository_key_url": "file:/srv/key.pub",
                "nvidia_driver_repository_key_fingerprint": "aaaa bbbb cccc dddd eeee ffff 0000 1111 2222 3333",
                "nvidia_driver_repository_key_checksum": checksum,
            },
            "distro": {
                "nvidia_driver_source": "distro",
                "nvidia_driver_distro_url": "http://mirror.example.org/debian",
            },
            "own": {"nvidia_driver_source": "distro"},
        },
    )
    mirror = "http://mirror.example.org/cuda/debian12/x86_64/"
    assert found["mirror"]["source"]["url"] == mirror
    assert found["mirror"]["source"]["key_url"] == f"{mirror}3bf863cc.pub"
    assert found["key"]["source"] == {
        "url": f"{NVIDIA}/debian12/x86_64/",
        "key_url": "file:/srv/key.pub",
        "key_fingerprint": "AAAABBBBCCCCDDDDEEEEFFFF0000111122223333",
        "key_checksum": checksum,
    }
    assert found["distro"]["source"] == {"url": "http://mirror.example.org/debian"}
    assert found["own"]["source"] == {"url": None}


def test_local_connection_is_never_rebooted(tmp_path: Path) -> None:
    hosts: dict[str, dict[str, Any]] = {
        "local": {"nvidia_driver_reboot": True},
        "full": {"nvidia_driver_reboot": True, "ansible_connection": "ansible.builtin.local"},
        "forbidden": {"ansible_connection": "ssh"},
        "remote": {"ansible_connection": "ssh", "nvidia_driver_reboot": True},
    }
    found = rendered(tmp_path, ["may_reboot", "controller"], hosts)
    assert {name: host["may_reboot"] for name, host in found.items()} == {
        "local": False,
        "full": False,
        "forbidden": False,
        "remote": True,
    }
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    assert {host["controller"] for host in found.values()} == {boot_id}


MARKER = {"content": "eyJkcml2ZXIiOiB0cnVlfQ=="}  # {"driver": true}
DRIVERLESS = {"content": "eyJkcml2ZXIiOiBmYWxzZX0="}  # {"driver": false}
SIMULATED = {**GPU, "simulated": True}
SATISFIED = {"plan": {**PLAN["plan"], "satisfied": True}}


@pytest.mark.parametrize("check", [False, True])
def test_what_is_done_on_which_host(tmp_path: Path, check: bool) -> None:
    hosts: dict[str, tuple[dict[str, Any], tuple[bool, bool, bool]]] = {
        "bare": ({}, (True, not check, not check)),
        "satisfied": ({"_nvidia_driver_planned": SATISFIED}, (True, True, True)),
        "waiting": ({"_nvidia_driver_planned": SATISFIED, "nvidia_driver_reboot_needed": True}, (True, True, False)),
        "image": ({"nvidia_driver_kernel": "newest"}, (True, False, False)),
        "preinstalled": ({"nvidia_driver_source": "preinstalled"}, (False, False, True)),
        "simulated": ({"gpu_of_host": SIMULATED, "_nvidia_driver_marker": MARKER}, (False, False, True)),
        "driverless": ({"gpu_of_host": SIMULATED, "_nvidia_driver_marker": DRIVERLESS}, (True, not check, not check)),
    }
    found = rendered(
        tmp_path,
        ["installs", "loads", "checks"],
        {name: variables for name, (variables, _expected) in hosts.items()},
        *(["--check"] if check else []),
    )
    assert {name: (host["installs"], host["loads"], host["checks"]) for name, host in found.items()} == {
        name: expected for name, (_variables, expected) in hosts.items()
    }


def test_reboot_that_facts_tell(tmp_path: Path) -> None:
    nouveau = [{"kernel_driver": "nouveau", "problems": []}]
    ok = {"state": "ok", "installed_version": "595.71.05"}
    cases: dict[str, tuple[dict[str, Any], bool]] = {
        "mismatch": ({"driver": {"state": "mismatch", "installed_version": None}}, True),
        "pending": ({"driver": ok, "problems": [{"code": "driver_reload_pending"}]}, True),
        "nouveau": ({"driver": {**ok, "state": "not_loaded"}, "gpus": nouveau}, True),
        "bare": ({"gpus": nouveau}, False),
        "ok": ({"driver": ok}, False),
    }
    hosts: dict[str, dict[str, Any]] = {name: {"gpu_of_host": {**GPU, **gpu}} for name, (gpu, _needed) in cases.items()}
    # What is loaded where an image is built is not the image's.
    hosts["image"] = {**hosts["mismatch"], "nvidia_driver_kernel": "newest"}
    found = rendered(tmp_path, ["reboot_needed"], hosts)
    assert {name: host["reboot_needed"] for name, host in found.items()} == {
        **{name: expected for name, (_gpu, expected) in cases.items()},
        "image": False,
    }


def test_gpus_of_virtual_machines_are_not_planned_for(tmp_path: Path) -> None:
    drivers = ["nvidia", None, "nouveau", "vfio-pci", "pci-stub", "xen-pciback"]
    gpus = [{"kernel_driver": driver, "problems": []} for driver in drivers]
    found = rendered(tmp_path, ["planned_gpus"], {"a": {"gpu_of_host": {**GPU, "gpus": gpus}}})
    assert [gpu["kernel_driver"] for gpu in found["a"]["planned_gpus"]] == ["nvidia", None, "nouveau"]


def test_fabric_manager_is_for_switches(tmp_path: Path) -> None:
    """Where it isn't wanted at all and its unit is there all the same, it is stopped."""
    runs, rests = (True, "started"), (False, "stopped")
    cases = {
        ("auto", 0, None): None,
        ("auto", 4, None): runs,
        ("always", 0, None): runs,
        ("never", 4, 0): rests,
        ("never", 4, 1): None,
        ("never", 0, None): None,
    }
    hosts = {
        f"{wish}{switches}{rc}": {
            "nvidia_driver_fabric_manager": wish,
            "gpu_of_host": {**GPU, "nvswitches": switches},
            "_nvidia_driver_fabric_unit": {"skipped": True} if rc is None else {"rc": rc},
        }
        for wish, switches, rc in cases
    }
    found = rendered(tmp_path, ["daemons"], hosts)
    for (name, host), expected in zip(found.items(), cases.values(), strict=True):
        daemons = {daemon["name"]: (daemon["wanted"], daemon["state"]) for daemon in host["daemons"]}
        assert daemons.pop("nvidia-persistenced.service") == runs
        assert daemons == ({} if expected is None else {"nvidia-fabricmanager.service": expected}), name


UBUNTU_UNIT = """\
# /usr/lib/systemd/system/nvidia-persistenced.service
[Unit]
StopWhenUnneeded=true

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""


@pytest.mark.parametrize(
    "seen", ["", "\n# /etc/systemd/system/x.d/cudahub.conf\n[Service]\nExecStart=\nExecStart=/x\n"]
)
def test_persistence_daemon_of_ubuntu_switches_the_mode_on(tmp_path: Path, seen: str) -> None:
    tasks = [
        {
            "ansible.builtin.template": {
                "src": f"{ROLE}/templates/nvidia-persistenced.conf.j2",
                "dest": f"{tmp_path}/out",
            }
        }
    ]
    output = play(tmp_path, tasks, {"a": {"_nvidia_driver_unit": {"stdout": UBUNTU_UNIT + seen}}})
    assert "failed=0" in output, output
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines()[1:] == [
        "[Unit]",
        "StopWhenUnneeded=false",
        "[Service]",
        "ExecStart=",
        "ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose",
    ]


def test_unattended_upgrades_leave_exactly_the_held_packages_alone(tmp_path: Path) -> None:
    plan = {"plan": {**PLAN["plan"], "hold": ["nvidia-driver-cuda", "libfoo++1.2"]}}
    tasks = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {
            "ansible.builtin.template": {
                "src": str(ROLE / "templates/unattended-upgrades.j2"),
                "dest": f"{tmp_path}/out",
            }
        },
    ]
    output = play(tmp_path, tasks, {"a": {"_nvidia_driver_planned": plan}})
    assert "failed=0" in output, output
    text = (tmp_path / "out").read_text(encoding="utf-8")
    patterns = re.findall(r'^    "(.*)";$', text, re.MULTILINE)
    names = ["nvidia-driver-cuda", "nvidia-driver-cuda-libs", "xnvidia-driver-cuda", "libfoo++1.2", "libfoo++1x2"]
    assert [name for name in names if any(re.match(pattern, name) for pattern in patterns)] == plan["plan"]["hold"]


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "minimum": ({"nvidia_driver_minimum_version": "v580"}, "which is not the version of a driver"),
    "unquoted": ({"nvidia_driver_version": 580.1}, "nvidia_driver_version is '580.1', which is not the version"),
    "partial": ({"nvidia_driver_version": "580"}, 'write one like "580.159.04", in quotes'),
    "branch": ({"nvidia_driver_branch": "newest"}, 'write one like "580", or auto'),
    "differ": (
        {"nvidia_driver_branch": 595, "nvidia_driver_version": "580.159.04"},
        "nvidia_driver_version is 580.159.04 and nvidia_driver_branch is 595: leave the branch at auto",
    ),
    "kernel": ({"nvidia_driver_kernel": "6.1; reboot"}, "write running, newest, or a release as uname -r has it"),
    "url": ({"nvidia_driver_repository_url": "mirror/cuda"}, "which is not a URL that begins with https://"),
    "injected": (
        {"nvidia_driver_distro_url": "http://a/ b"},
        "nvidia_driver_distro_url is 'http://a/ b', which is not",
    ),
    "password": (
        {"nvidia_driver_repository_url": "https://ann:S3CRET@mirror.example.org/cuda"},
        "nvidia_driver_repository_url has a user name or a password in it, which others could read: take it out",
    ),
    "slash": (
        {"nvidia_driver_repository_url": "https://ann:x/S3CRET@mirror.example.org/cuda"},
        "nvidia_driver_repository_url has a user name or a password in it",
    ),
    "token": (
        {"nvidia_driver_repository_key_url": "https://S3CRET@mirror.example.org/key"},
        "put it into a file in /etc/apt/auth.conf.d on the host",
    ),
    "no scheme": ({"nvidia_driver_distro_url": "ann:S3CRET@mirror"}, "nvidia_driver_distro_url has a user name or"),
    "checksum": ({"nvidia_driver_repository_key_checksum": "md5:00"}, "write sha256: and 64 hexadecimal digits"),
    "fingerprint": ({"nvidia_driver_repository_key_fingerprint": "3BF863CC"}, "write its 40 hexadecimal digits"),
    "lock": (
        {"nvidia_driver_lock_timeout": -1},
        "nvidia_driver_lock_timeout is '-1', which is not a number of seconds, 0 or more",
    ),
    "number": ({"nvidia_driver_kernel": 6.1}, "a release as uname -r has it, in quotes"),
    "a query": (
        {"nvidia_driver_repository_key_url": "https://mirror.example.org/k?password=S3CRET"},
        "nvidia_driver_repository_key_url has a ? or # in it",
    ),
    "a space in a URL": (
        {"nvidia_driver_repository_url": "https://mirror.example.org/a b"},
        "which is not a URL that begins with https://, http:// or file:/, without spaces.",
    ),
    "no tasks before a reboot": (
        {"nvidia_driver_before_reboot": "/nonexistent/drain.yml"},
        "nvidia_driver_before_reboot is /nonexistent/drain.yml, and the machine that runs Ansible has no such file",
    ),
    "no tasks after a reboot": (
        {"nvidia_driver_after_reboot": "resume.yml"},
        "nvidia_driver_after_reboot is resume.yml",
    ),
    "a list of tasks": (
        {"nvidia_driver_before_reboot": ["x.yml"]},
        "nvidia_driver_before_reboot is '['x.yml']', which is not the name of a file of tasks",
    ),
    "null branch": ({"nvidia_driver_branch": None}, "nvidia_driver_branch is null: give it a value, or leave it out"),
    "null choice": ({"nvidia_driver_source": None}, "nvidia_driver_source must be one of: nvidia, distro, preinst"),
    "null flag": ({"nvidia_driver_hold": None}, "argument 'nvidia_driver_hold' is of type NoneType"),
    "null text": ({"nvidia_driver_version": None}, "nvidia_driver_version is null: give it a value, or leave it out"),
    "reboot": ({"nvidia_driver_reboot_timeout": 0}, "which is not a number of seconds above 0"),
    "two": (
        {"nvidia_driver_lock_timeout": -1, "nvidia_driver_branch": "x"},
        "or auto. nvidia_driver_lock_timeout is '-1'",
    ),
    "source": ({"nvidia_driver_source": "runfile"}, "must be one of: nvidia, distro, preinstalled, got: runfile"),
    "choice": ({"nvidia_driver_kernel_module": "nouveau"}, "must be one of: auto, open, proprietary, got: nouveau"),
    "machine": (
        {"system": facts(machine="ppc64le")},
        "is a machine of architecture ppc64le, for which role nvidia_driver can't install a driver: it supports x86_64",
    ),
    "system": ({"system": facts("Debian", "11")}, "runs Debian 11, which role nvidia_driver does not support"),
}
FINE: dict[str, dict[str, Any]] = {
    "plain": {},
    "number": {"nvidia_driver_branch": 580, "nvidia_driver_version": "580.159.04"},
    "pinned": {"nvidia_driver_kernel": "6.12.48+deb13-amd64", "nvidia_driver_minimum_version": "580.95"},
    "other": {"system": facts(machine="ppc64le"), "nvidia_driver_source": "preinstalled"},
}


def test_options_that_can_not_be_right_are_refused_before_anything(tmp_path: Path) -> None:
    tasks: list[dict[str, Any]] = [
        {
            "block": [
                {"ansible.builtin.include_role": {"name": "cudahub.gpu.nvidia_driver"}},
            ],
            "rescue": [
                {
                    "ansible.builtin.set_fact": {"refusal": "{{ said.msg ~ said.argument_errors | default('') }}"},
                    "vars": {"said": "{{ ansible_failed_result }}"},
                }
            ],
        },
        written(tmp_path / "refusals", "refusal"),
    ]
    hosts = {name: variables for name, (variables, _sentence) in MISTAKES.items()}
    output = play(tmp_path, tasks, hosts, "-vvv")
    assert sum(map(int, re.findall(r"changed=(\d+)", output))) == 1, "more than the refusals were written"
    assert "S3CRET" not in output
    refusals = json.loads((tmp_path / "refusals").read_text(encoding="utf-8"))
    for name, (_variables, sentence) in MISTAKES.items():
        said = refusals[name] or ""
        assert sentence in said, name
        assert "S3CRET" not in said, name


def test_options_that_are_right_pass(tmp_path: Path) -> None:
    tasks = [{"ansible.builtin.include_role": {"name": "cudahub.gpu.nvidia_driver", "tasks_from": "preflight"}}]
    output = play(tmp_path, tasks, FINE)
    assert output.count("failed=0") == len(FINE), output
