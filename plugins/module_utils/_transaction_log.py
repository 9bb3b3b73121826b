# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The log of package transactions: what ran, when, and all that it printed, as it prints it."""

from __future__ import annotations

import errno
import os
import subprocess
import typing as t
from datetime import datetime, timezone
from pathlib import Path

from ._packages import Result


class TransactionLog:
    """A file that commands write their output to themselves, so that they outlive whoever started them."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def run(self, command: t.Sequence[str], env: t.Mapping[str, str]) -> Result:
        """Run a command with its output in the log; what it wrote there is the result's stdout.

        It is in a session of its own: neither a hangup nor the end of this process stops it in the middle. Raises
        OSError if the log can't be opened.
        """
        with self._open() as log:
            _write(log, " ".join(command))
            start = log.tell()
            try:
                process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **env},
                    start_new_session=True,
                )
            except OSError as error:
                return Result(127, f"{command[0]}: {error.strerror}", "")
            code = process.wait()
            output = self._since(start)
            self.say(f"{command[0]} ended with exit status {code}" if code else f"{command[0]} is done")
        return Result(code, output, "")

    def say(self, line: str) -> None:
        """Write a line of our own. Raises OSError if the log can't be opened."""
        with self._open() as log:
            _write(log, line)

    def _open(self) -> t.BinaryIO:
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        return self.path.open("ab+", buffering=0)

    def _since(self, start: int) -> str:
        with self.path.open("rb") as log:
            log.seek(start)
            return log.read().decode("utf-8", "replace")


def _write(log: t.BinaryIO, line: str) -> None:
    """Write a line of our own; a full disk must not stop what may make room."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    size = log.seek(0, os.SEEK_END)
    if size:
        log.seek(size - 1)
    end = b"" if not size or log.read(1) == b"\n" else b"\n"
    try:
        log.write(end + f"=== {now} {line}\n".encode())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
