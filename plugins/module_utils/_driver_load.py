# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the kernel module that is loaded to the one that is installed, without a reboot where that can be."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ._preflight import users
from ._version import same_version

if t.TYPE_CHECKING:
    from ._driver import KernelModule
    from ._preflight import Process

MODULES = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia_fs", "nvidia")
"""Kernel modules of the driver, in the order in which they are unloaded."""

SERVICES = ("nvidia-fabricmanager.service", "nvidia-persistenced.service", "nvidia-powerd.service")
"""What comes with the driver and keeps it loaded, in the order in which it is stopped."""


class LoadError(Exception):
    """The driver can't be loaded, and a reboot would not help. ``changed`` says whether another one was unloaded."""

    def __init__(self, message: str, *, changed: bool = False) -> None:
        super().__init__(message)
        self.changed = changed


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
    """How a host is after loading.

    ``reason`` says why a reboot is needed, and ``missing`` what was there before and could not be brought back.
    """

    changed: bool
    loaded: str | None
    installed: str | None
    reason: str | None = None
    missing: tuple[str, ...] = ()


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

    def processes(self) -> t.Sequence[Process]:
        """The processes that use the driver, its own daemons left out."""


def holders(modules: str) -> list[str]:
    """Who else uses the driver's modules, from the text of /proc/modules: ``nvidia_uvm (3 users)``, ``xyz``."""
    found = []
    for line in modules.splitlines():
        name, _size, count, modules_above = [*line.split(), "-", "0", "-"][:4]
        if name not in MODULES:
            continue
        names = [holder for holder in modules_above.split(",") if holder not in ("", "-", "[permanent]")]
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
    using = host.processes() if state.loaded is not None else ()
    if using:
        return _reboot(state, f"it is in use by {users(using)}")
    if check:
        return Outcome(changed=True, loaded=state.loaded, installed=state.installed)
    stopped = [unit for unit in SERVICES if host.active(unit)] if state.loaded is not None else []
    silent = []
    try:
        for unit in stopped:
            _must(host, ["systemctl", "stop", unit], f"{unit} can't be stopped")
        outcome = _exchange(host, state, flavour)
    finally:
        for unit in reversed(stopped):
            started = host.run(["systemctl", "start", unit])
            if started.rc != 0:
                silent.append(f"{unit} can't be started again ({started.message})")
    return replace(outcome, missing=(*outcome.missing, *silent))


def _exchange(host: Host, state: State, flavour: KernelModule | None) -> Outcome:
    """Unload what is loaded, and load what is installed with the modules beside it that were loaded before."""
    unloaded, reason = _unload(host)
    if reason is not None:
        lost = _load_again(host, unloaded)
        return replace(_reboot(state, reason), changed=bool(lost), missing=lost)
    _must(host, ["modprobe", "nvidia"], "The kernel module nvidia can't be loaded", changed=bool(unloaded))
    now = host.state()
    if not fits(now, flavour):
        raise LoadError(
            f"The kernel module {state.installed} ({flavour or 'either flavour'}) is installed, but modprobe nvidia "
            f"loaded {now.loaded} ({now.loaded_flavour}): look for another module nvidia below "
            f"/lib/modules/{state.kernel}",
            changed=True,
        )
    lost = _load_again(host, [name for name in unloaded if name != "nvidia"])
    return Outcome(changed=True, loaded=now.loaded, installed=now.installed, missing=lost)


def _reboot(state: State, reason: str) -> Outcome:
    loaded = f"{state.loaded} is loaded" if state.loaded else "none is loaded"
    return Outcome(
        changed=False,
        loaded=state.loaded,
        installed=state.installed,
        reason=f"the kernel module {state.installed} of the NVIDIA driver is installed, {loaded}: {reason}",
    )


def _unload(host: Host) -> tuple[list[str], str | None]:
    """Unload the driver's modules while nothing uses them: those that are gone, and why others are not."""
    modules = host.state().modules
    using = holders(modules)
    if using:
        return [], f"it is in use by {', '.join(using)}"
    there = {line.split()[0] for line in modules.splitlines() if line.strip()}
    gone: list[str] = []
    for name in MODULES:
        if name in there:
            done = host.run(["rmmod", name])
            if done.rc != 0:
                using_now = host.processes()
                by = f", in use by {users(using_now)}" if using_now else ""
                return gone, f"{name} can't be unloaded ({done.message}{by})"
            gone.append(name)
    return gone, None


def _load_again(host: Host, names: t.Sequence[str]) -> tuple[str, ...]:
    """Load modules that were unloaded, the last one first; which of them can't be, and why."""
    results = ((name, host.run(["modprobe", name])) for name in reversed(names))
    return tuple(
        f"the kernel module {name} was loaded before and can't be loaded again ({done.message})"
        for name, done in results
        if done.rc != 0
    )


def _must(host: Host, command: t.Sequence[str], sentence: str, *, changed: bool = False) -> None:
    done = host.run(command)
    if done.rc != 0:
        reason = done.message or f"status {done.rc}"
        raise LoadError(f"{sentence}: {reason}{_advice(done.message)}", changed=changed)


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
