# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_table
type: aggregate
short_description: Print the GPUs of all hosts as a table at the end of a run
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Collects what M(cudahub.gpu.gpu_facts) and M(cudahub.gpu.cuda_verify) report during a run, and prints one table
    after the recap, with a row for each GPU and MIG instance, a sentence for each problem, and a line that counts.
  - Hosts without GPU, unreachable hosts and hosts that failed are in the table too.
  - Hosts whose driver waits for a reboot, as role P(cudahub.gpu.nvidia_driver#role) tells, are marked C(reboot needed).
  - Of hosts whose facts the run did not gather, the GPUs that were verified are shown.
  - Simulated GPUs are shown as C(simulated), never as verified.
  - The table is as wide as the terminal. Where that is too narrow for it, cells are wrapped, and below about
    75 columns the rows are stacked.
  - Results of delegated tasks count for the host they were delegated to, since its GPUs were looked at.
  - Nothing is printed for a run in which neither module ran.
  - When a task that looks at GPUs is censored by C(no_log), its result is not seen.
requirements:
  - Enable in configuration, C(callbacks_enabled = cudahub.gpu.gpu_table).
options:
  width:
    description:
      - Columns to use.
      - V(0) takes the environment variable E(COLUMNS), else the width of the terminal, else 100 where the output is
        not a terminal.
    type: int
    default: 0
    ini:
      - section: callback_gpu_table
        key: width
    env:
      - name: CUDAHUB_GPU_TABLE_WIDTH
"""

EXAMPLES = r"""
# ansible.cfg
# [defaults]
# callbacks_enabled = cudahub.gpu.gpu_table
"""

import shutil
from typing import TYPE_CHECKING

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.utils.display import get_text_width

from ansible_collections.cudahub.gpu.plugins.plugin_utils._table import Fleet, Level, render

if TYPE_CHECKING:
    from ansible.executor.stats import AggregateStats
    from ansible.executor.task_result import CallbackTaskResult

COLUMNS_WITHOUT_TERMINAL = 100


class CallbackModule(CallbackBase):
    """Feeds a fleet with the run's results and prints it at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "cudahub.gpu.gpu_table"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._fleet = Fleet()
        self._failed_items: dict[str, str] = {}
        self._last_failures: dict[str, str] = {}
        self._last_unreachable: dict[str, str] = {}

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        self._collect(result)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        self._collect(result)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        self._collect(result)
        host = result.host.get_name()
        message = self._failed_items.pop(host, None) or result.result.get("msg") or "no message"
        if not ignore_errors:
            self._last_failures[host] = f'task "{result.task.get_name()}": {message}'

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        self._collect(result)
        self._failed_items.setdefault(result.host.get_name(), str(result.result.get("msg") or "no message"))

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        self._last_unreachable[result.host.get_name()] = str(result.result.get("msg") or "no message")

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        if not self._fleet.known:
            return
        for name in sorted(stats.processed):
            outcome = stats.summarize(name)
            if outcome["unreachable"]:
                self._fleet.host(name).unreachable = self._last_unreachable.get(name, "no message")
            elif outcome["failures"]:
                self._fleet.host(name).failed = self._last_failures.get(name, "no message")
        self._display.banner("GPUS")
        for line in render(self._fleet, self._width(), get_text_width):
            self._display.display(line.text, color=self._color(line.level))

    def _collect(self, result: CallbackTaskResult) -> None:
        delegated = result.result.get("_ansible_delegated_vars")
        # ansible-core 2.19 strips the host's name from the results of a loop, whose task carries it.
        host = (delegated.get("ansible_delegated_host") or result.task.delegate_to) if delegated else None
        self._fleet.add_result(host or result.host.get_name(), result.result)

    def _width(self) -> int:
        return int(self.get_option("width")) or shutil.get_terminal_size((COLUMNS_WITHOUT_TERMINAL, 24)).columns

    @staticmethod
    def _color(level: Level) -> str | None:
        colors: dict[Level, str] = {
            "good": constants.COLOR_OK,
            "warning": constants.COLOR_WARN,
            "error": constants.COLOR_ERROR,
        }
        return colors.get(level)
