# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.cudahub.gpu.plugins.plugin_utils import _report, _report_files

ARGUMENTS: dict[str, dict[str, Any]] = {
    "path": {"type": "path", "required": True},
    "title": {"type": "str", "default": "GPUs of the fleet"},
    "hosts": {"type": "list", "elements": "str"},
    "results": {"type": "dict", "default": {}},
    "keep": {"type": "int", "default": 90},
    "wait": {"type": "int", "default": 60},
    "spread": {"type": "float", "default": 0.1},
}
KNOWN = {"facts", "verification", "failed", "unreachable"}
LOST = "It failed or became unreachable earlier in the run."
# What a playbook sets where a host failed, for instance in a rescue.
VARIABLES = {"failed": "fleet_report_failed", "unreachable": "fleet_report_unreachable"}


class ActionModule(ActionBase):
    """Writes the report on the controller, from the facts of hosts or from results that are given."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _specified, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        variables = task_vars or {}
        if not options["path"]:
            raise AnsibleActionFail("path is empty: give a folder of the controller.")
        if options["keep"] < 1:
            raise AnsibleActionFail(f"keep is {options['keep']}: it must be at least 1, the report that is written.")
        if options["wait"] < 0:
            raise AnsibleActionFail(f"wait is {options['wait']}: it must be 0 seconds or more.")
        if not 0 < options["spread"] < 1:
            raise AnsibleActionFail(f"spread is {options['spread']:g}: give a share of the median between 0 and 1.")
        given = dict(self._given(options["results"]))
        names = options["hosts"]
        if names is None:
            names = list(given) or list(variables.get("ansible_play_hosts_all") or [])
        found = {str(name): given.get(name) or self._known(str(name), variables) for name in names}
        found.update(given)
        report = _report.report_of(
            options["title"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), found, options["spread"]
        )
        folder = Path(options["path"])
        try:
            written = _report_files.write(
                report,
                folder.absolute(),
                keep=options["keep"],
                wait=options["wait"],
                say=Display().display,
                dry=self._task.check_mode,
            )
        except _report_files.ReportError as error:
            # The sentence says it all; what is behind it would be appended.
            raise AnsibleActionFail(str(error)) from None
        for warning in written.warnings:
            Display().warning(warning)
        result.update(
            changed=True,
            failed=False,
            msg=f"{report.summary} {'It would be in' if self._task.check_mode else 'See'} {written.files['html']}.",
            summary=report.as_summary(),
            failed_hosts={host.name: host.message for host in report.hosts if host.state in ("failed", "unreachable")},
            files=written.files,
        )
        if self._task.diff:
            header = str(folder / "report")
            result["diff"] = {
                "before_header": header,
                "after_header": header,
                "before": written.before,
                "after": written.after,
            }
        return result

    @staticmethod
    def _given(results: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, one in results.items():
            if not isinstance(one, Mapping) or set(one) - KNOWN:
                raise AnsibleActionFail(
                    f"results of {name} are no dictionary of {', '.join(sorted(KNOWN))}, of which each can be missing."
                )
            yield str(name), one

    @staticmethod
    def _known(name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """What the run knows about a host; untemplated, since thousands of facts are nothing to be rendered."""
        if name not in variables["hostvars"]:
            raise AnsibleActionFail(f"hosts names {name}, which is not in the inventory.")
        own = variables["hostvars"].raw_get(name)
        facts = own.get("ansible_facts") or {}
        known = {
            "facts": facts.get("gpu"),
            "verification": facts.get("gpu_verification"),
            **{what: own.get(variable) for what, variable in VARIABLES.items()},
        }
        all_hosts, alive = variables.get("ansible_play_hosts_all") or (), variables.get("ansible_play_hosts") or ()
        if name in all_hosts and name not in alive and not known["failed"]:
            known["unreachable"] = known["unreachable"] or LOST
        return known
