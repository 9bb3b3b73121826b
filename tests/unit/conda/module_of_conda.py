# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Module conda_env as a program of its own, with a real conda and a channel of tiny packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.cudahub.gpu.tests.unit import conda_standin

MODULE = """
import json, sys
from ansible.module_utils.testing import patch_module_args
from ansible_collections.cudahub.gpu.plugins.modules import conda_env
with patch_module_args(json.load(sys.stdin)):
    conda_env.main()
"""


@dataclass(frozen=True)
class Module:
    """The module with a conda, channels, a cache of packages and a home of its own."""

    folder: Path
    channel: str

    def start(self, *, check: bool = False, **options: Any) -> subprocess.Popen[str]:
        """Start a run in a session of its own."""
        given = {
            "executable": str(conda_standin.real_conda()),
            "channels": [self.channel],
            "condarc": {"pkgs_dirs": [str(self.folder / "pkgs")]},
            "log": str(self.folder / "log"),
            "_ansible_check_mode": check,
            "_ansible_diff": True,
            **options,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "HOME": str(self.folder), "STANDIN_PYTHON": sys.executable},
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(given))
        process.stdin.close()
        process.stdin = None
        return process

    @staticmethod
    def end(process: subprocess.Popen[str]) -> dict[str, Any]:
        """Return what a run returned."""
        stdout, stderr = process.communicate(timeout=300)
        assert stderr == ""
        return dict(json.loads(stdout))

    def run(self, **options: Any) -> dict[str, Any]:
        """Return what a run returned that has not failed."""
        result = self.end(self.start(**options))
        assert not result.get("failed"), result["msg"]
        return result

    def refused(self, **options: Any) -> tuple[str, str]:
        """Return the kind of a failure and its sentence."""
        result = self.end(self.start(**options))
        assert result.get("failed"), result
        return result["failure"]["kind"], result["msg"]

    def unchanged(self, **options: Any) -> None:
        """Run the module where there is nothing to do, for which it needs no tool at all."""
        result = self.run(**{**options, "executable": "/nonexistent"})
        assert (result["changed"], result["tool"]) == (False, "")


def versions(prefix: Path) -> dict[str, str]:
    """Return the packages of an environment as rattler reads it, and see that nothing of it is wrong."""
    assert conda_standin.problems_of(prefix) == []
    return {name: str(record.version) for name, record in conda_standin.installed_by_rattler(prefix).items()}
