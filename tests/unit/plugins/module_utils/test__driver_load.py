# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The installed driver is loaded where that can be, and a reboot is asked for only where nothing else helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils._driver_load import (
    LoadError,
    Outcome,
    Result,
    State,
    fits,
    holders,
    load,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._preflight import Process

IDLE = """\
nvidia_uvm 4726784 0 - Live 0x0000000000000000 (OE)
nvidia_drm 131072 0 - Live 0x0000000000000000 (OE)
nvidia_modeset 1556480 1 nvidia_drm, Live 0x0000000000000000 (OE)
nvidia 14376960 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)
video 73728 1 nvidia_modeset, Live 0x0000000000000000
"""
BARE = State(
    kernel="6.1.0-56-amd64", loaded=None, loaded_flavour=None, installed="595.71.05", modules="", bound_to_nouveau=()
)
OLD = replace(BARE, loaded="580.159.04", loaded_flavour="open", modules=IDLE)
PYTHON = Process(4242, "python3", "/dev/nvidia0")


@dataclass
class Fake:
    """A host whose kernel does what modprobe and rmmod say."""

    now: State
    services: set[str] = field(default_factory=set)
    broken: dict[str, str] = field(default_factory=dict)
    brings: str | None = None
    users: tuple[Process, ...] = ()
    ran: list[str] = field(default_factory=list)

    def state(self) -> State:
        return self.now

    def active(self, unit: str) -> bool:
        return unit in self.services

    def processes(self) -> tuple[Process, ...]:
        return self.users

    def loaded(self) -> set[str]:
        return {line.split()[0] for line in self.now.modules.splitlines()} - {"video"}

    def run(self, command: Sequence[str]) -> Result:
        line = " ".join(command)
        self.ran.append(line)
        if line in self.broken:
            return Result(1, self.broken[line])
        if command[0] == "rmmod":
            kept = [text for text in self.now.modules.splitlines() if text.split()[0] != command[1]]
            self.now = replace(self.now, modules="\n".join(kept))
            if command[1] == "nvidia":
                self.now = replace(self.now, loaded=None, loaded_flavour=None)
        if command[0] == "modprobe":
            modules = f"{self.now.modules}\n{command[1]} 1 0 - Live 0x0".strip()
            self.now = replace(self.now, modules=modules)
            if command[1] == "nvidia":
                self.now = replace(self.now, loaded=self.brings or self.now.installed, loaded_flavour="open")
        if command[:2] == ["systemctl", "stop"]:
            self.services.discard(command[2])
        if command[:2] == ["systemctl", "start"]:
            self.services.add(command[2])
        return Result(0, "")


def test_what_is_installed_and_not_loaded_is_loaded() -> None:
    host = Fake(BARE)
    assert load(host) == Outcome(changed=True, loaded="595.71.05", installed="595.71.05")
    assert host.ran == ["modprobe nvidia"]


@pytest.mark.parametrize("flavour", [None, "open"])
def test_what_is_loaded_already_stays(flavour: None) -> None:
    host = Fake(replace(OLD, loaded="595.71.05"), services={"nvidia-persistenced.service"})
    assert load(host, flavour) == Outcome(changed=False, loaded="595.71.05", installed="595.71.05")
    assert host.ran == []


def test_another_version_gives_way_and_its_daemons_come_back() -> None:
    host = Fake(OLD, services={"nvidia-persistenced.service", "nvidia-fabricmanager.service", "ssh.service"})
    assert load(host) == Outcome(changed=True, loaded="595.71.05", installed="595.71.05")
    assert host.ran == [
        "systemctl stop nvidia-fabricmanager.service",
        "systemctl stop nvidia-persistenced.service",
        "rmmod nvidia_drm",
        "rmmod nvidia_modeset",
        "rmmod nvidia_uvm",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "modprobe nvidia_modeset",
        "modprobe nvidia_drm",
        "systemctl start nvidia-persistenced.service",
        "systemctl start nvidia-fabricmanager.service",
    ]


def test_another_flavour_of_the_same_version_gives_way() -> None:
    host = Fake(replace(OLD, loaded="595.71.05", loaded_flavour="proprietary"))
    assert load(host, "open").changed
    assert "rmmod nvidia" in host.ran


def test_driver_in_use_is_left_alone_and_a_reboot_needed() -> None:
    used = IDLE.replace("nvidia_uvm 4726784 0", "nvidia_uvm 4726784 3")
    host = Fake(replace(OLD, modules=used), services={"nvidia-persistenced.service"})
    outcome = load(host)
    assert not outcome.changed
    assert outcome.loaded == "580.159.04"
    assert outcome.reason == (
        "the kernel module 595.71.05 of the NVIDIA driver is installed, 580.159.04 is loaded: "
        "it is in use by nvidia_uvm (3 users)"
    )
    assert not [line for line in host.ran if line.startswith(("rmmod", "modprobe"))]
    assert host.services == {"nvidia-persistenced.service"}


def test_modules_beside_it_that_were_loaded_are_loaded_again() -> None:
    more = "nvidia_peermem 1 0 - Live 0x0\nnvidia_fs 1 0 - Live 0x0\n"
    host = Fake(replace(OLD, modules=more + IDLE))
    before = host.loaded()
    assert load(host).missing == ()
    assert host.loaded() == before
    assert host.ran.index("modprobe nvidia") < host.ran.index("modprobe nvidia_peermem")


def test_what_can_not_be_brought_back_is_said() -> None:
    broken = {
        "modprobe nvidia_drm": "Invalid argument",
        "systemctl start nvidia-powerd.service": "Job failed",
    }
    outcome = load(Fake(OLD, services={"nvidia-powerd.service"}, broken=broken))
    assert (outcome.changed, outcome.reason) == (True, None)
    assert outcome.missing == (
        "the kernel module nvidia_drm was loaded before and can't be loaded again (Invalid argument)",
        "nvidia-powerd.service can't be started again (Job failed)",
    )


@pytest.mark.parametrize("check", [False, True])
def test_processes_are_named_before_a_daemon_is_stopped(check: bool) -> None:
    host = Fake(OLD, services={"nvidia-persistenced.service"}, users=(PYTHON, replace(PYTHON, pid=4243)))
    outcome = load(host, check=check)
    assert not outcome.changed
    assert outcome.reason is not None
    assert outcome.reason.endswith(
        "it is in use by python3 (process 4242, /dev/nvidia0), python3 (process 4243, /dev/nvidia0)"
    )
    assert host.ran == []


@pytest.mark.parametrize("stuck", ["nvidia", "nvidia_uvm"])
def test_module_that_does_not_go_asks_for_a_reboot_and_the_others_come_back(stuck: str) -> None:
    host = Fake(OLD, broken={f"rmmod {stuck}": "rmmod: ERROR: Module is in use"})
    before = host.loaded()
    outcome = load(host)
    assert outcome.reason is not None
    assert outcome.reason.endswith(f"{stuck} can't be unloaded (rmmod: ERROR: Module is in use)")
    assert (outcome.changed, outcome.missing, host.loaded()) == (False, (), before)
    assert "modprobe nvidia" not in host.ran


def test_process_that_came_in_the_middle_is_named() -> None:
    class Racing(Fake):
        def run(self, command: Sequence[str]) -> Result:
            if command[0] == "rmmod":
                self.users = (PYTHON,)
            return super().run(command)

    outcome = load(Racing(OLD, broken={"rmmod nvidia_uvm": "busy"}))
    assert outcome.reason is not None
    assert outcome.reason.endswith("(busy, in use by python3 (process 4242, /dev/nvidia0))")


def test_module_that_is_lost_in_the_middle_is_a_change() -> None:
    broken = {"rmmod nvidia": "busy", "modprobe nvidia_uvm": "Unknown symbol"}
    host = Fake(OLD, broken=broken)
    outcome = load(host)
    assert outcome.reason is not None
    assert (outcome.changed, outcome.loaded) == (True, "580.159.04")
    assert outcome.missing == (
        "the kernel module nvidia_uvm was loaded before and can't be loaded again (Unknown symbol)",
    )
    assert host.loaded() == {"nvidia", "nvidia_modeset", "nvidia_drm"}


def test_nouveau_asks_for_a_reboot() -> None:
    host = Fake(replace(BARE, bound_to_nouveau=("GPU 00000000:01:00.0",)))
    outcome = load(host)
    assert host.ran == []
    assert outcome.reason == (
        "the kernel module 595.71.05 of the NVIDIA driver is installed, none is loaded: "
        "GPU 00000000:01:00.0 is bound to nouveau, which lets go of it at a reboot only"
    )


@pytest.mark.parametrize("state", [BARE, OLD])
def test_check_mode_changes_nothing(state: State) -> None:
    host = Fake(state, services={"nvidia-persistenced.service"})
    assert load(host, check=True) == Outcome(changed=True, loaded=state.loaded, installed="595.71.05")
    assert host.ran == []


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        (Fake(replace(BARE, installed=None)), "There is no kernel module nvidia for the running kernel 6.1.0-56-amd64"),
        (
            Fake(BARE, broken={"modprobe nvidia": "modprobe: ERROR: could not insert: Key was rejected by service"}),
            "Key was rejected by service; Secure Boot is on",
        ),
        (
            Fake(BARE, broken={"modprobe nvidia": "modprobe: ERROR: could not insert: No such device"}),
            "No such device; the driver supports none of the GPUs",
        ),
        (Fake(OLD, broken={"modprobe nvidia": "No such device"}), "No such device; the driver supports none of"),
        (Fake(BARE, broken={"modprobe nvidia": ""}), "can't be loaded: status 1; look at the kernel log"),
        (Fake(BARE, brings="570.10"), "595.71.05 (either flavour) is installed, but modprobe nvidia loaded 570.10"),
        (
            Fake(OLD, {"nvidia-persistenced.service"}, {"systemctl stop nvidia-persistenced.service": "Refused"}),
            "nvidia-persistenced.service can't be stopped: Refused",
        ),
    ],
)
def test_what_no_reboot_helps_is_an_error(host: Fake, sentence: str) -> None:
    before = set(host.services)
    modules = host.loaded()
    with pytest.raises(LoadError) as caught:
        load(host)
    assert sentence in str(caught.value)
    assert host.services == before
    assert caught.value.changed is (host.loaded() != modules)


def test_holders() -> None:
    assert holders(IDLE) == []
    assert holders("") == []
    modules = IDLE.replace("nvidia 14376960 2 nvidia_uvm,", "nvidia 14376960 4 gdrdrv,nvidia_uvm,")
    assert holders(modules) == ["gdrdrv", "nvidia (1 user)"]


@pytest.mark.parametrize(
    ("loaded", "flavour", "wanted", "expected"),
    [
        ("595.71.05", "open", None, True),
        ("595.71.5", "open", "open", True),
        ("595.71.05", None, "open", True),
        ("595.71.05", "proprietary", "open", False),
        ("580.1", "open", "open", False),
        (None, None, None, False),
    ],
)
def test_fits(loaded: str | None, flavour: None, wanted: None, expected: bool) -> None:
    assert fits(replace(BARE, loaded=loaded, loaded_flavour=flavour), wanted) is expected
