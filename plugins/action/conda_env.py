# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.cudahub.gpu.plugins.plugin_utils._environment_file import EnvironmentFileError, parse


class ActionModule(ActionBase):
    """Reads files of the controller, and runs the module with what they say."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        path = arguments.pop("environment_file", None)
        if path:
            self._add_environment(arguments, str(path))
        path = arguments.pop("lock_file", None)
        if path:
            if arguments.get("lock"):
                raise AnsibleActionFail("lock and lock_file can't be given together: leave one out")
            arguments["lock"] = self._text(str(path), "lock_file").splitlines()
        result.update(
            self._execute_module(
                module_name="cudahub.gpu.conda_env",
                module_args=arguments,
                task_vars=task_vars,
                wrap_async=self._task.async_val and not self._connection.has_native_async,
            )
        )
        return result

    def _add_environment(self, arguments: dict[str, Any], path: str) -> None:
        text = self._text(path, "environment_file")
        try:
            found = parse(yaml.safe_load(text))
        except yaml.YAMLError as error:
            place = getattr(error, "problem_mark", None)
            where = f"line {place.line + 1}: " if place else ""
            raise AnsibleActionFail(
                f"environment_file {path} is no YAML: {where}{getattr(error, 'problem', None) or error}"
            ) from error
        except EnvironmentFileError as error:
            raise AnsibleActionFail(f"environment_file {path}: {error}") from error
        arguments["packages"] = [*found.packages, *self._list(arguments, "packages")]
        arguments["pip"] = [*found.pip, *self._list(arguments, "pip")]
        if not arguments.get("channels") and found.channels:
            arguments["channels"] = list(found.channels)

    @staticmethod
    def _list(arguments: dict[str, Any], name: str) -> list[Any]:
        value = arguments.get(name) or []
        return list(value) if isinstance(value, (list, tuple)) else [value]

    def _text(self, path: str, option: str) -> str:
        try:
            return Path(self._find_needle("files", path)).read_text(encoding="utf-8")
        except (AnsibleError, OSError) as error:
            raise AnsibleActionFail(f"{option} {path} can't be read on the controller: {error}") from error
        except UnicodeDecodeError as error:
            raise AnsibleActionFail(f"{option} {path} is no text: {error}") from error
