# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands write what they print to the log themselves, and outlive who started them."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Result
from ansible_collections.cudahub.gpu.plugins.module_utils._transaction_log import TransactionLog


def test_the_log_has_the_command_its_output_and_its_end(tmp_path: Path) -> None:
    log = TransactionLog(str(tmp_path / "new" / "log"))
    log.say("before")
    result = log.run(["sh", "-c", "echo out; echo $X >&2; printf unfinished; exit 3"], {"X": "err"})
    assert result == Result(3, "out\nerr\nunfinished", "")
    lines = log.path.read_text(encoding="utf-8").splitlines()
    assert [line.split("Z ", 1)[-1] for line in lines] == [
        "before",
        "sh -c echo out; echo $X >&2; printf unfinished; exit 3",
        "out",
        "err",
        "unfinished",
        "sh ended with exit status 3",
    ]
    assert log.run(["/no/such/program"], {}).rc == 127


def test_a_command_outlives_who_started_it(tmp_path: Path) -> None:
    log = TransactionLog(str(tmp_path / "log"))
    result = log.run(["sh", "-c", "ps -o sid= -p $$ || cut -d' ' -f6 /proc/$$/stat; echo $$"], {})
    session, process = result.stdout.split()
    assert session == process, "a session of its own"
