# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SLURM's programs: how they are run, and what their complaints mean."""

from __future__ import annotations

import difflib
import re
import typing as t

ENVIRONMENT = {"LANG": "C", "LC_ALL": "C", "LANGUAGE": "C", "SLURM_TIME_FORMAT": "standard"}
"""What makes the output of SLURM's programs the same for everybody."""

_DATABASE_SILENT = re.compile(
    r"Connection refused|persist_conn|PersistInit|Unable to contact slurm database|Getting response to message type|"
    r"slurmdbd connection|Database is busy or waiting",
)
_DATABASE_HOST = re.compile(r"host:([^:\s]+:\d+)")
_CONTROLLER_SILENT = re.compile(
    r"Unable to contact slurm controller|can't be reached now|Socket timed out|backup controller in standby|"
    r"Zero Bytes were transmitted"
)
_NOT_PERMITTED = re.compile(
    r"permission denied|Only admins/operators|Only admin(istrator)?s|You are not running as|not authorized|"
    r"Invalid user id|aren't an admin",
    re.IGNORECASE,
)
_NO_CREDENTIAL = re.compile(r"authentication credential|munge|Protocol authentication error", re.IGNORECASE)
_NO_DATABASE = re.compile(
    r"not running a supported accounting_storage plugin|only works? with (the )?slurmdbd", re.IGNORECASE
)
_NO_CONFIGURATION = re.compile(r"Could not establish a configuration source|Unable to process configuration file")


class SlurmError(Exception):
    """One sentence: what is wrong, and what to do. ``changed`` says whether something was changed before."""

    def __init__(self, message: str, *, changed: bool = False) -> None:
        super().__init__(message)
        self.changed = changed


class Result(t.NamedTuple):
    """What a program did."""

    rc: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """What it said, in one line."""
        return " ".join((self.err.strip() or self.out.strip()).split())


class Host(t.Protocol):
    """What the programs run on."""

    def run(self, command: t.Sequence[str]) -> Result | None:
        """Run a program of SLURM with its arguments; None if the host doesn't have it."""


class Runner(t.Protocol):
    """The part of a module that runs commands."""

    def get_bin_path(self, arg: str) -> str | None:
        """Where a program is."""

    def run_command(
        self, args: list[str], *, environ_update: dict[str, str], handle_exceptions: bool
    ) -> tuple[int, str, str]:
        """Run it."""


class ModuleHost:
    """The host that a module runs on."""

    def __init__(self, module: t.Any) -> None:
        self._module: Runner = module

    def run(self, command: t.Sequence[str]) -> Result | None:
        path = self._module.get_bin_path(command[0])
        if path is None:
            return None
        return Result(
            *self._module.run_command([path, *command[1:]], environ_update=ENVIRONMENT, handle_exceptions=True)
        )


def output(host: Host, command: t.Sequence[str], *, changed: bool = False) -> str:
    """What a program prints. Raises SlurmError where it fails."""
    result = host.run(command)
    if result is None:
        raise SlurmError(
            f"There is no {command[0]} on this host: install SLURM's client programs (slurm-client), or run the task "
            "on a host that has them",
            changed=changed,
        )
    if result.rc != 0 or _DATABASE_SILENT.search(result.err):
        raise SlurmError(complaint(command[0], result), changed=changed)
    return result.out


def complaint(program: str, result: Result) -> str:
    """What a program that failed says, and what to do about it."""
    said = result.message or f"{program} ended with status {result.rc}"
    if _NO_CONFIGURATION.search(said):
        return f"{program} finds no slurm.conf on this host: run the task on a host of the cluster ({said})"
    if _NO_DATABASE.search(said):
        return (
            "The cluster has no accounting database: AccountingStorageType in slurm.conf has to be "
            f"accounting_storage/slurmdbd ({said})"
        )
    if _DATABASE_SILENT.search(said):
        where = _DATABASE_HOST.search(said)
        return (
            f"slurmdbd{f' on {where[1]}' if where else ''} does not answer: look at systemctl status slurmdbd and its "
            f"log there ({said})"
        )
    if _CONTROLLER_SILENT.search(said):
        return f"slurmctld does not answer: look at systemctl status slurmctld and its log on the controller ({said})"
    if _NOT_PERMITTED.search(said):
        return f"{program} is not permitted to do that: run the task as root or as an administrator of SLURM ({said})"
    if _NO_CREDENTIAL.search(said):
        return (
            f"{program} is not trusted: munge has to run on this host with the key of the cluster, and the clocks have "
            f"to agree ({said})"
        )
    return f"{program} failed: {said}"


def unknown(what: str, name: str, known: t.Iterable[str]) -> str:
    """Say that a name is not known, and which ones come near."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    if near:
        return f"There is no {what} {name!r} (is {' or '.join(near)} meant?)"
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"There is no {what} {name!r} (there is: {listed or 'none at all'})"
