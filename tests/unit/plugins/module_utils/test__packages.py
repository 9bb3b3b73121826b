# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a transaction does to packages, and how commands are run."""

from __future__ import annotations

import typing as t

from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Change, Package, Result, Transaction, runner

TRANSACTION = Transaction((Package("a", "1"),), (Change("b", "1", "2"),), (Package("c", "3"),), 10, 20)


def test_what_a_transaction_touches_and_leaves() -> None:
    assert TRANSACTION.replaced == {"b", "c"}
    assert TRANSACTION.after({"b": "1", "c": "3", "d": "4"}) == {"a": "1", "b": "2", "d": "4"}
    assert TRANSACTION.as_dict() == {
        "install": [{"name": "a", "version": "1"}],
        "change": [{"name": "b", "from": "1", "to": "2"}],
        "remove": [{"name": "c", "version": "3"}],
    }


class Module:
    """Has one program, and remembers how it was run."""

    def __init__(self) -> None:
        self.ran: list[t.Any] = []

    def get_bin_path(self, arg: str) -> str | None:
        return "/usr/bin/dpkg" if arg == "dpkg" else None

    def run_command(self, args: list[str], *, environ_update: dict[str, str]) -> tuple[int, str, str]:
        self.ran.append((args, environ_update))
        return 3, "out", "err"


def test_commands_run_as_a_module_runs_them() -> None:
    module = Module()
    run = runner(module)
    assert run(["dpkg", "-s"], {"LC_ALL": "C"}) == Result(3, "out", "err")
    assert run(["dnf"], {}) == Result(127, "", "dnf is not installed")
    assert module.ran == [(["/usr/bin/dpkg", "-s"], {"LC_ALL": "C"})]
