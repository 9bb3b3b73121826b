# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module reads the host, returns what its documentation says, and lets nobody reboot the controller."""

from __future__ import annotations

import json
import platform
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles
from ansible_collections.cudahub.gpu.plugins.modules import driver_load

KERNEL = "6.1.0-56-amd64"
BOOT = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"
MODULES = "nvidia_uvm 4726784 0 - Live 0x0 (OE)\nnvidia 14376960 1 nvidia_uvm, Live 0x0 (OE)\n"
OWN = {"changed", "invocation", "diff", "warnings"}


class Host:
    """A host as its files show it, with commands that do nothing but what they say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[str] = []
        self.warned: list[str] = []
        self.broken: dict[str, str] = {}
        self.write("proc/sys/kernel/random/boot_id", f"{BOOT}\n")
        self.installed("595.71.05")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def installed(self, version: str) -> None:
        link = self.root / f"var/lib/dkms/nvidia/kernel-{KERNEL}-x86_64"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"{version}/{KERNEL}/x86_64")

    def loaded(self, version: str) -> None:
        self.write("proc/driver/nvidia/version", VERSION.format(version))
        self.write("proc/modules", MODULES)

    def used_by(self, pid: int, name: str, device: str) -> None:
        self.write(f"proc/{pid}/comm", f"{name}\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        (self.root / f"proc/{pid}/fd/3").symlink_to(device)

    def run(self, command: t.Sequence[str]) -> tuple[int, str, str]:
        line = " ".join([Path(command[0]).name, *command[1:]])
        self.ran.append(line)
        if line in self.broken:
            return 1, "", f"{self.broken[line]}\n"
        if line.startswith("systemctl is-active"):
            return 3, "", ""
        if line == "modprobe nvidia":
            self.loaded("595.71.05")
        return 0, "", ""


class Result(t.NamedTuple):
    code: int
    value: dict[str, t.Any]


Module = t.Callable[..., Result]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def module(host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Module:
    """Return a function that runs the module on the host."""
    monkeypatch.setattr(driver_load._pci, "HostFiles", lambda: HostFiles(str(host.root)))
    monkeypatch.setattr(platform, "release", lambda: KERNEL)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(driver_load.AnsibleModule, "get_bin_path", lambda _self, name, **_more: f"/usr/sbin/{name}")
    # Ansible keeps the warnings of a process, which here runs the module many times.
    monkeypatch.setattr(driver_load.AnsibleModule, "warn", lambda _self, text: host.warned.append(text))
    monkeypatch.setattr(driver_load.AnsibleModule, "run_command", lambda _self, command, **_more: host.run(command))

    def run(**params: t.Any) -> Result:
        with patch_module_args(params), pytest.raises(SystemExit) as ended:
            driver_load.main()
        return Result(int(ended.value.code or 0), json.loads(capsys.readouterr().out))

    return run


def returned() -> set[str]:
    return set(yaml.safe_load(driver_load.RETURN))


def test_nothing_to_do_is_no_change(host: Host, module: Module) -> None:
    host.loaded("595.71.05")
    code, value = module(kernel_module="open")
    assert (code, value["changed"], host.ran) == (0, False, [])
    assert set(value) - OWN == returned()
    assert (value["loaded"], value["installed"], value["reboot_needed"]) == ("595.71.05", "595.71.05", False)
    assert value["diff"] == {"before": "loaded: 595.71.05\n", "after": "loaded: 595.71.05\n"}
    assert host.warned == []


def test_driver_is_loaded(host: Host, module: Module) -> None:
    code, value = module()
    assert (code, value["changed"], value["loaded"]) == (0, True, "595.71.05")
    assert host.ran == ["modprobe nvidia"]
    assert set(value) - OWN == returned()
    assert value["diff"] == {"before": "loaded: none\n", "after": "loaded: 595.71.05\n"}


@pytest.mark.parametrize(("version", "before"), [(None, "none"), ("580.159.04", "580.159.04")])
def test_check_mode_says_what_would_be_loaded(host: Host, module: Module, version: str | None, before: str) -> None:
    if version:
        host.loaded(version)
    code, value = module(_ansible_check_mode=True)
    assert (code, value["changed"], value["reboot_needed"], host.ran) == (0, True, False, [])
    assert value["loaded"] == version
    assert value["diff"] == {"before": f"loaded: {before}\n", "after": "loaded: 595.71.05\n"}
    assert set(value) - OWN == returned()


@pytest.mark.parametrize(
    ("reboot", "controller", "rebooted", "warning"),
    [
        (True, OTHER, True, None),
        (True, "", True, None),
        (True, BOOT, False, "Reboot needed (this is the controller, which is never rebooted): the kernel module"),
        (False, OTHER, False, "Reboot needed: the kernel module 595.71.05 of the NVIDIA driver is installed, 580.1"),
        (False, BOOT, False, "Reboot needed: the kernel module"),
    ],
)
def test_controller_is_never_rebooted(
    host: Host, module: Module, reboot: bool, controller: str, rebooted: bool, warning: str | None
) -> None:
    host.loaded("580.159.04")
    host.used_by(4242, "python3", "/dev/nvidia0")
    code, value = module(reboot=reboot, controller_boot_id=controller)
    assert (code, value["changed"], value["reboot_needed"], value["reboot"]) == (0, False, True, rebooted)
    assert value["reason"].endswith("580.159.04 is loaded: it is in use by python3 (process 4242, /dev/nvidia0)")
    assert [one[: len(str(warning))] for one in host.warned] == ([warning] if warning else [])
    assert host.ran == []
    assert value["diff"] == {"before": "loaded: 580.159.04\n", "after": "loaded: 580.159.04\n"}


def test_a_monitor_that_is_not_stopped_is_named_and_the_drivers_own_daemons_are_not(host: Host, module: Module) -> None:
    host.loaded("580.159.04")
    for pid, name in enumerate(("nvidia-persistenced"[:15], "nv-fabricmanager"[:15], "nvidia-powerd"), 70):
        host.used_by(pid, name, "/dev/nvidiactl")
    assert module().value["reboot_needed"] is False
    host.loaded("580.159.04")
    host.used_by(79, "nv-hostengine", "/dev/nvidia0")
    assert module().value["reason"].endswith("it is in use by nv-hostengine (process 79, /dev/nvidia0)")


def test_what_was_lost_is_a_warning_and_a_change(host: Host, module: Module) -> None:
    host.loaded("580.159.04")
    host.broken = {"rmmod nvidia": "busy", "modprobe nvidia_uvm": "Unknown symbol"}
    code, value = module(reboot=True)
    assert (code, value["changed"], value["reboot"]) == (0, True, True)
    assert value["missing"] == [
        "the kernel module nvidia_uvm was loaded before and can't be loaded again (Unknown symbol)"
    ]
    assert [one[:46] for one in host.warned] == ["The kernel module nvidia_uvm was loaded before"]
    assert value["diff"]["after"] == "loaded: 580.159.04\n"


@pytest.mark.parametrize(("loaded", "changed"), [(None, False), ("580.159.04", True)])
def test_what_no_reboot_helps_is_a_failure_in_a_sentence(
    host: Host, module: Module, loaded: str | None, changed: bool
) -> None:
    if loaded:
        host.loaded(loaded)
    host.broken = {"modprobe nvidia": "modprobe: ERROR: could not insert: Key was rejected by service"}
    code, value = module()
    assert (code, value["failed"], value["changed"]) == (1, True, changed)
    assert "Key was rejected by service; Secure Boot is on" in value["msg"]


def test_gpu_of_nouveau_needs_a_reboot(host: Host, module: Module) -> None:
    device = "sys/bus/pci/devices/0000:01:00.0"
    for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        host.write(f"{device}/{name}", text)
    (host.root / device / "driver").symlink_to("../../../bus/pci/drivers/nouveau")
    code, value = module(reboot=True, controller_boot_id=OTHER)
    assert (code, value["changed"], value["reboot"], host.ran) == (0, False, True, [])
    assert "00000000:01:00.0 is bound to nouveau" in value["reason"]
