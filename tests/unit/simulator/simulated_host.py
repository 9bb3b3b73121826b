# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory that stands for a simulated host: no root, nothing installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "roles" / "gpu_simulator" / "files"
COMMAND = FILES / "gpu-simulator"
RECORDINGS = ROOT / "tests" / "fixtures" / "recordings"


def command(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the simulator's command line."""
    return subprocess.run(
        [sys.executable, str(COMMAND), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def plan(**request: Any) -> dict[str, Any]:
    """Ask for the configuration of a request, as the role does."""
    request = {"driver_version": "580.159.04", "seed": "test", "mounts": "false", "device_nodes": "false", **request}
    done = command("plan", given=json.dumps(request))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@dataclass
class Host:
    """A directory that stands for a simulated host."""

    prefix: Path

    @property
    def state(self) -> Path:
        return self.prefix / "etc/gpu-simulator"

    @property
    def tree(self) -> Path:
        return self.prefix / "var/lib/gpu-simulator/root"

    @property
    def library(self) -> Path:
        return self.prefix / "usr/local/lib/gpu-simulator/libnvidia-ml.so.1"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to meet the simulated driver."""
        return {
            **os.environ,
            "GPU_SIMULATOR_STATE": str(self.state),
            "LD_LIBRARY_PATH": str(self.library.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def configure(self, **request: Any) -> None:
        """Write a configuration and make the host match it."""
        answer = plan(**request)
        assert "error" not in answer, answer["error"]
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "config.json").write_text(json.dumps(answer["config"]), encoding="utf-8")
        self.ask("apply")

    def ask(self, *arguments: str) -> Any:
        """Run the command on this host and return what it printed."""
        done = command("--prefix", str(self.prefix), *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *arguments: str) -> str:
        """Run the command on this host where it must fail, and return what it says."""
        done = command("--prefix", str(self.prefix), *arguments)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def fault(self, kind: str, **options: Any) -> None:
        """Switch a fault on."""
        more = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        self.ask("fault", "add", "--kind", kind, *more)

    def clear(self) -> None:
        """Switch all faults off."""
        self.ask("fault", "clear")

    def client(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a real client of NVML against the simulated driver."""
        return subprocess.run(
            arguments, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    def python(self, code: str, timeout: float = 120) -> Any:
        """Run Python with nvidia-ml-py as ``n``; return what the code puts into ``result``."""
        program = f"import ctypes, json, sys, pynvml as n\n{code}\nprint(json.dumps(result))"
        done = self.client(sys.executable, "-c", program, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
