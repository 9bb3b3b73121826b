# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the kernel module that is loaded to the one that is installed, without a reboot where that can be."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ._version import same_version

if t.TYPE_CHECKING:
    from ._driver import KernelModule

MODULES = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia_fs", "nvidia")
"""Kernel modules of the driver, in the order in which they are unloaded."""

SERVICES = ("nvidia-fabricmanager.service", "nvidia-persistenced.service", "nvidia-powerd.service")
"""What comes with the driver and keeps it loaded, in the order in which it is stopped."""


class LoadError(Exception):
    """The driver can't be loaded, and a reboot would not help."""


@dataclass(frozen=True)
class State:
    """What a host has, as far as loading is concerned."""

    kernel: str
    loaded: str | None
    loaded_flavour: KernelModule | None
    installed: str | None
    modules: str
    bound_to_nouveau: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a host is after loading; ``reason`` says why a reboot is needed."""

    changed: bool
    loaded: str | None
    installed: str | None
    reason: str | None = None


class Result(t.NamedTuple):
    """What a command did."""

    rc: int
    message: str


class Host(t.Protocol):
    """What loading needs of a host."""

    def state(self) -> State:
        """What is loaded and installed now."""

    def run(self, command: t.Sequence[str]) -> Result:
        """Run a command as root."""

    def active(self, unit: str) -> bool:
        """Whether a unit of systemd runs."""


def users(modules: str) -> list[str]:
    """Who else uses the driver's modules, from the text of /proc/modules: ``nvidia_uvm (3 users)``, ``xyz``."""
    found = []
    for line in modules.splitlines():
        name, _size, count, holders = [*line.split(), "-", "0", "-"][:4]
        if name not in MODULES:
            continue
        names = [holder for holder in holders.split(",") if holder not in ("", "-", "[permanent]")]
        found += [holder for holder in names if holder not in MODULES]
        others = int(count) - len(names)
        if others > 0:
            found.append(f"{name} ({others} {'user' if others == 1 else 'users'})")
    return found


def fits(state: State, flavour: KernelModule | None) -> bool:
    """Whether what is loaded is what is installed, and of the flavour that is wanted."""
    return same_version(state.loaded, state.installed) is True and (
        flavour is None or state.loaded_flavour is None or state.loaded_flavour == flavour
    )


def load(host: Host, flavour: KernelModule | None = None, *, check: bool = False) -> Outcome:
    """Have the installed module loaded, or say why only a reboot does it. Raises LoadError where neither helps."""
    state = host.state()
    if state.installed is None:
        raise LoadError(
            f"There is no kernel module nvidia for the running kernel {state.kernel}: dkms status and the files below "
            f"/lib/modules/{state.kernel} tell what there is"
        )
    if fits(state, flavour):
        return Outcome(changed=False, loaded=state.loaded, installed=state.installed)
    if state.bound_to_nouveau:
        return _reboot(
            state, f"{', '.join(state.bound_to_nouveau)} is bound to nouveau, which lets go of it at a reboot only"
        )
    if check:
        return Outcome(changed=True, loaded=state.loaded, installed=state.installed)
    stopped = [unit for unit in SERVICES if host.active(unit)] if state.loaded is not None else []
    try:
        for unit in stopped:
            _must(host, ["systemctl", "stop", unit], f"{unit} can't be stopped")
        reason = _unload(host) if state.loaded is not None else None
        if reason is not None:
            return _reboot(state, reason)
        _must(host, ["modprobe", "nvidia"], "The kernel module nvidia can't be loaded")
    finally:
        for unit in reversed(stopped):
            host.run(["systemctl", "start", unit])
    now = host.state()
    if not fits(now, flavour):
        raise LoadError(
            f"The kernel module {state.installed} ({flavour or 'either flavour'}) is installed, but modprobe nvidia "
            f"loaded {now.loaded} ({now.loaded_flavour}): look for another module nvidia below "
            f"/lib/modules/{state.kernel}"
        )
    return Outcome(changed=True, loaded=now.loaded, installed=now.installed)


def _reboot(state: State, reason: str) -> Outcome:
    loaded = f"{state.loaded} is loaded" if state.loaded else "none is loaded"
    return Outcome(
        changed=False,
        loaded=state.loaded,
        installed=state.installed,
        reason=f"the kernel module {state.installed} of the NVIDIA driver is installed, {loaded}: {reason}",
    )


def _unload(host: Host) -> str | None:
    """Unload all of the driver's modules, or none and return why not."""
    modules = host.state().modules
    using = users(modules)
    if using:
        return f"it is in use by {', '.join(using)}"
    there = {line.split()[0] for line in modules.splitlines() if line.strip()}
    for name in MODULES:
        if name in there:
            done = host.run(["rmmod", name])
            if done.rc != 0:
                return f"{name} can't be unloaded ({done.message})"
    return None


def _must(host: Host, command: t.Sequence[str], sentence: str) -> None:
    done = host.run(command)
    if done.rc != 0:
        raise LoadError(f"{sentence}: {done.message or f'status {done.rc}'}{_advice(done.message)}")


def _advice(message: str) -> str:
    if "Key was rejected" in message or "Required key not available" in message:
        return (
            "; Secure Boot is on and the key that signed the module is not enrolled: enroll it (mokutil --import), "
            "or switch Secure Boot off"
        )
    if "No such device" in message:
        return (
            "; the driver supports none of the GPUs, or another driver holds them: look for NVRM messages in the "
            "kernel log"
        )
    return "; look at the kernel log"
