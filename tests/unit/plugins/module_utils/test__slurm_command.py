# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What SLURM's programs complain about becomes a sentence, the same in every locale."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_command as slurm

SILENT = (
    "sacctmgr: error: _open_persist_conn: failed to open persistent connection to host:ctl:6819: Connection refused\n"
    "sacctmgr: error: Sending PersistInit msg: Connection refused\n"
)


class Module:
    """The part of AnsibleModule that runs commands."""

    def __init__(self, rc: int = 0, out: str = "", err: str = "", path: str | None = "/usr/bin/x") -> None:
        self.answer = (rc, out, err)
        self.path = path
        self.ran: list[tuple[list[str], dict[str, str]]] = []

    def get_bin_path(self, _name: str) -> str | None:
        return self.path

    def run_command(self, args: list[str], *, environ_update: dict[str, str], **_more: t.Any) -> tuple[int, str, str]:
        self.ran.append((args, environ_update))
        return self.answer


def test_locale_and_time_format_are_fixed() -> None:
    module = Module(out="printed\n")
    assert slurm.output(slurm.ModuleHost(module), ["sacctmgr", "-V"]) == "printed\n"
    ((command, environment),) = module.ran
    assert command == ["/usr/bin/x", "-V"]
    assert environment.items() >= {"LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}.items()


@pytest.mark.parametrize(
    ("program", "err", "said"),
    [
        ("sacctmgr", SILENT, "slurmdbd on ctl:6819 does not answer: look at systemctl status slurmdbd"),
        ("sacctmgr", "sacctmgr: error: Getting response to message type: DBD_FINI", "slurmdbd does not answer"),
        (
            "sacctmgr",
            "error: Your user doesn't have privilege to do that\n Error with request: Access/permission denied",
            "sacctmgr is not permitted to do that: run the task as root",
        ),
        ("sacctmgr", " error: Only admins/operators/coordinators can add accounts", "sacctmgr is not permitted"),
        ("scontrol", "slurm_update error: Invalid user id", "scontrol is not permitted to do that"),
        ("scontrol", "Unable to contact slurm controller (connect failure)", "slurmctld does not answer"),
        (
            "squeue",
            "squeue: error: 'cluster' can't be reached now, or it is an invalid entry",
            "slurmctld does not answer",
        ),
        ("squeue", "slurm_load_jobs error: Socket timed out on send/recv operation", "slurmctld does not answer"),
        (
            "sacctmgr",
            "You are not running a supported accounting_storage plugin\nOnly 'accounting_storage/slurmdbd' is.",
            "The cluster has no accounting database: AccountingStorageType in slurm.conf",
        ),
        ("sacctmgr", "error: Munge decode failed: Invalid credential", "sacctmgr is not trusted: munge has to run"),
        ("sinfo", "fatal: Could not establish a configuration source", "sinfo finds no slurm.conf on this host"),
        ("sacctmgr", "", "sacctmgr failed: sacctmgr ended with status 1"),
    ],
)
def test_complaints(program: str, err: str, said: str) -> None:
    with pytest.raises(slurm.SlurmError) as caught:
        slurm.output(slurm.ModuleHost(Module(1, "", err)), [program])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_silence_that_ends_well_is_a_failure_too() -> None:
    """The status is 0 where slurmdbd went away after a request."""
    with pytest.raises(slurm.SlurmError, match="slurmdbd does not answer"):
        slurm.output(
            slurm.ModuleHost(Module(0, "", "sacctmgr: error: Getting response to message type: DBD_FINI")), ["x"]
        )


def test_missing_program_is_said() -> None:
    with pytest.raises(slurm.SlurmError, match="There is no sacctmgr on this host: install SLURM's client programs"):
        slurm.output(slurm.ModuleHost(Module(path=None)), ["sacctmgr"])


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (["teaching"], "There is no account 'teachign' (is teaching meant?)"),
        (["root"], "There is no account 'teachign' (there is: root)"),
        ([], "There is no account 'teachign' (there is: none at all)"),
    ],
)
def test_near_names_are_said(known: list[str], said: str) -> None:
    assert slurm.unknown("account", "teachign", known) == said
