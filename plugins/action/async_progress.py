# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.cudahub.gpu.plugins.plugin_utils._progress import duration, last_words, progress

ARGUMENTS: dict[str, dict[str, Any]] = {
    "job": {"type": "str", "required": True},
    "log": {"type": "str", "required": True},  # A path, but of the host: nothing in it is expanded here.
    "title": {"type": "str", "required": True},
    "every": {"type": "float", "default": 30},
    "timeout": {"type": "float", "default": 14400},
}
LOG_TAIL_BYTES = 4096
# Short jobs are noticed soon, long ones cost the host little.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
# The network may go away for a while when packages are installed.
FAILURES_IN_A_ROW = 6
# What belongs to the polling and not to the job's result.
POLLING = ("started", "finished", "ansible_job_id", "results_file", "invocation")


class ActionModule(ActionBase):
    """Polls a job, prints what it does, and returns what it returned."""

    _requires_connection = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _specified, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        for name in ("every", "timeout"):
            if options[name] <= 0:
                raise AnsibleActionFail(f"{name} is {options[name]:g}: it must be more than 0 seconds")
        if self._task.check_mode:
            result.update(skipped=True, msg="There is no job to wait for in check mode.")
            return result
        ended = self._wait(options, task_vars or {})
        self._status(options["job"], "cleanup", task_vars or {})
        result.update({name: value for name, value in ended.items() if name not in POLLING})
        return result

    def _wait(self, options: Mapping[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        host = task_vars.get("inventory_hostname", "host")
        start = said = time.monotonic()
        pause, failures = FIRST_PAUSE, 0
        while True:
            try:
                status = self._asked(options["job"], task_vars)
                if status.get("finished"):
                    return status
                if time.monotonic() - said >= options["every"]:
                    said = time.monotonic()
                    Display().display(progress(host, options["title"], said - start, self._log(options["log"])))
                failures = 0
            except AnsibleConnectionFailure as error:
                failures += 1
                if failures >= FAILURES_IN_A_ROW:
                    raise
                Display().display(f"[{host}] {options['title']}: the host does not answer, trying again: {error}")
            if time.monotonic() - start >= options["timeout"]:
                raise AnsibleActionFail(self._too_long(options))
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _asked(self, job: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        status = self._status(job, "status", task_vars)
        # Not every connection tells that a host is gone; a job that is lost is finished.
        if status.get("failed") and not status.get("finished"):
            raise AnsibleConnectionFailure(str(status.get("msg") or "the job can't be asked for"))
        return status

    def _status(self, job: str, mode: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        folder = self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async"))
        status: dict[str, Any] = self._execute_module(
            module_name="ansible.legacy.async_status",
            module_args={"jid": job, "mode": mode, "_async_dir": folder},
            task_vars=task_vars,
        )
        return status

    def _log(self, path: str) -> str:
        command = f"tail -c {LOG_TAIL_BYTES} {shlex.quote(self._remote_expand_user(path))}"
        answer: dict[str, Any] = self._low_level_execute_command(command, sudoable=True)
        return str(answer.get("stdout") or "") if answer.get("rc") == 0 else ""

    def _too_long(self, options: Mapping[str, Any]) -> str:
        words = last_words(self._log(options["log"]))
        return (
            f"{options['title']} is not done after {duration(options['timeout'])} and goes on in the background; "
            f"its log {options['log']} " + (f"says last: {words}" if words else "is empty")
        )
