# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all parts of the simulator share: its version, its paths, its error, and writing files."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = "0.1.0"
#: Where the command, its models, its profiles and the library's source are.
PAYLOAD = Path(__file__).resolve().parents[1]


class SimulatorError(Exception):
    """Something the user can put right; the message is one sentence."""


@dataclass(frozen=True)
class Paths:
    """Where things are, below a prefix (``/`` on a real host, a directory in tests)."""

    prefix: Path = Path("/")

    @property
    def state(self) -> Path:
        """Directory of the configuration, the state and the faults."""
        override = os.environ.get("GPU_SIMULATOR_STATE")
        return Path(override) if override and self.prefix == Path("/") else self.prefix / "etc/gpu-simulator"

    @property
    def root(self) -> Path:
        """The made-up tree."""
        return self.prefix / "var/lib/gpu-simulator/root"

    @property
    def library(self) -> Path:
        """Directory of the library."""
        return self.prefix / "usr/local/lib/gpu-simulator"

    @property
    def ld_conf(self) -> Path:
        """The file that makes the library known."""
        return self.prefix / "etc/ld.so.conf.d/gpu-simulator.conf"

    @property
    def dev(self) -> Path:
        """Device nodes."""
        return self.prefix / "dev"

    @property
    def run(self) -> Path:
        """What is made anew at each boot."""
        return self.prefix / "run/gpu-simulator"


def read_json(path: Path, what: str) -> Any:
    """Return the content of a JSON file; C(what) names it in an error."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SimulatorError(f"{what} {path} does not exist.") from None
    except (OSError, ValueError) as error:
        raise SimulatorError(f"{what} {path} can't be read as JSON: {error}.") from None


@dataclass
class Changes:
    """What was changed, or would be in check mode."""

    check: bool = False
    paths: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, content: str | bytes, mode: int = 0o644) -> bool:
        """Make the file have that content, in one step; return whether it had another."""
        data = content.encode() if isinstance(content, str) else content
        try:
            if not path.is_symlink() and path.read_bytes() == data and stat.S_IMODE(path.stat().st_mode) == mode:
                return False
        except OSError:
            pass
        self.paths.append(str(path))
        if not self.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)
            os.replace(name, path)
        return True

    def link(self, path: Path, target: str) -> bool:
        """Make a symbolic link, in one step; return whether it was another."""
        if path.is_symlink() and os.readlink(path) == target:
            return False
        self.paths.append(str(path))
        if not self.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".new-{path.name}")
            new.unlink(missing_ok=True)
            new.symlink_to(target)
            os.replace(new, path)
        return True

    def remove(self, path: Path) -> bool:
        """Remove a file, a link or a whole directory; return whether there was one."""
        if not path.is_symlink() and not path.exists():
            return False
        self.paths.append(str(path))
        if not self.check:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return True
