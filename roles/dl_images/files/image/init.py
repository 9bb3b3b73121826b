# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""init.py COMMAND...: runs a command as process 1 of a container should.

The kernel withholds signals from process 1 that it has no handler for, so that `docker stop` would wait and kill. This
passes them on to the command, reaps what was left by others, and ends with the command's exit status.
"""

from __future__ import annotations

import os
import signal
import sys

OF_THE_TERMINAL = {signal.SIGTTIN, signal.SIGTTOU, signal.SIGTSTP}
# Python ignores these, and what it runs would, too.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def become(words: list[str], mask: set[signal.Signals]) -> int:
    """Become the command, in a process group that has the terminal. Where that fails, return a shell's status."""
    os.setpgid(0, 0)
    if os.isatty(0):
        os.tcsetpgrp(0, os.getpgrp())
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(words[0], words)  # noqa: S606 (the words are what the container is told to run)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127 if isinstance(error, FileNotFoundError) else 126


def reaped(command: int) -> int | None:
    """Reap all that has ended, and return the command's exit status if it is among that."""
    found = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if child == 0:
            return found
        if child == command:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else 128 - code


def main(words: list[str]) -> int:
    """Run the command."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    command = os.fork()
    if command == 0:
        os._exit(become(words, mask))
    while True:
        number = signal.sigwait(signal.valid_signals())
        if number == signal.SIGCHLD:
            status = reaped(command)
            if status is not None:
                return status
        elif number not in OF_THE_TERMINAL:
            os.kill(command, number)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
