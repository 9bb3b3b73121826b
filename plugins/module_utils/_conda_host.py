# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which conda works: its programs, files, locks, and what can be seen of a change while it goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

from . import _conda_meta, _conda_tool
from ._conda_answer import Answer, ToolError
from ._conda_tool import Result, Session, Settings
from ._run_lock import exclusive

POLL = 0.1
EVERY = 2.0
"""Seconds between two looks at a program that runs, and at what it has done."""

NOISE = ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_SHLVL", "CONDA_PROMPT_MODIFIER", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables of an environment that is active where the module was started."""

_OTHER = "another run that changes conda environments"


class Watch:
    """What a change has brought so far: bytes of archives in the cache, records in the environment."""

    def __init__(self, prefix: str, cache: str | None, answer: Answer) -> None:
        self._meta = Path(prefix) / _conda_meta.META
        self._archives = [Path(cache) / one.url.rsplit("/", 1)[-1] for one in answer.fetch if one.url] if cache else []
        self._records = [f"{one.name}-{one.version}-{one.build}.json" for one in answer.link]
        self._size = answer.size
        self._said = ""

    def look(self) -> str:
        """What is new since the last look, in words; empty if nothing is."""
        linked = sum((self._meta / name).exists() for name in self._records)
        fetched = sum(map(_size, self._archives))
        if linked:
            words = f"Linked {linked} of {len(self._records)} packages"
        elif fetched:
            of = f" of {_megabytes(max(self._size, fetched))}" if self._size else ""
            words = f"Downloaded {_megabytes(fetched)}{of} MB"
        else:
            words = ""
        new, self._said = (words if words != self._said else ""), words
        return new


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}" if size < 10_000_000 else f"{size / 1e6:.0f}"


def _size(archive: Path) -> int:
    """Bytes of an archive, or of the part of it that is there."""
    for name in (archive.name, f"{archive.name}.partial", f"{archive.name}.part"):
        with contextlib.suppress(OSError):
            return archive.with_name(name).stat().st_size
    return 0


class Machine:
    """This machine. Use it in a ``with``: its files and locks go at the end of the block."""

    def __init__(
        self,
        settings: t.Callable[[], Settings],
        executable: str | None,
        prefix: str,
        pip_arguments: t.Sequence[str],
        say: t.Callable[[str], None],
        *,
        lock_timeout: int,
        check: bool,
    ) -> None:
        self._settings, self._executable, self._prefix = settings, executable, prefix
        self._pip_arguments, self.say = list(pip_arguments), say
        self._lock_timeout, self._check = lock_timeout, check
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="cudahub-conda-")))
        self._session: Session | None = None
        self._directories: _conda_tool.Directories | None = None
        self._watch: Watch | None = None
        self._held: list[int] = []

    def __enter__(self) -> Machine:  # noqa: PYI034 typing.Self came with Python 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def tool(self) -> _conda_tool.Tool | None:
        """The tool, if it was needed."""
        return self._session.tool if self._session else None

    def hold(self, prefix: str) -> None:
        """Keep other runs away from a prefix, and programs of a run that was killed. Raises PackageError, OSError."""
        path = Path(prefix)
        self._lock(str(path.with_name(f".{path.name}.cudahub")))

    def _lock(self, record: str) -> None:
        lock = exclusive(record, self._lock_timeout, self.say, _OTHER, tidy=False)
        descriptor = self._stack.enter_context(lock).fileno()
        os.set_inheritable(descriptor, True)
        self._held.append(descriptor)

    def session(self) -> Session:
        if self._session is None:
            tool = _conda_tool.find(self._executable, self._prefix, os.environ.get("PATH", ""), self._run)
            settings = self._settings()
            condarc = _conda_tool.settings_file(settings)
            path = self.file(json.dumps(condarc), ".yaml") if condarc else None
            self._session = Session(tool, settings, self._run, path)
            if not self._check:
                self._hold_cache()
        return self._session

    def _hold_cache(self) -> None:
        """Two tools that fill the same cache disturb each other."""
        for cache in self.caches():
            with contextlib.suppress(OSError):  # the tool does not use a cache that can't be written
                self._lock(str(Path(cache) / "cudahub"))
                return

    def directories(self) -> _conda_tool.Directories:
        if self._directories is None:
            session = self._session or self.session()
            self._directories = self._directories or session.directories()
        return self._directories

    def caches(self) -> t.Sequence[str]:
        return self.directories().packages

    def expect(self, prefix: str, answer: Answer) -> None:
        cache = next((one for one in self.caches() if os.access(_there(one), os.W_OK)), None)
        self._watch = Watch(prefix, cache, answer)
        if cache is None or not answer.size:
            return
        free, needed = shutil.disk_usage(_there(cache)).free, 2 * answer.size
        if free < needed:
            raise ToolError(
                "disk",
                f"{cache} has {_megabytes(free)} MB of free space, and {_megabytes(needed)} MB are needed for the "
                "download and what is in it",
            )

    def file(self, text: str, ending: str = ".txt") -> str:
        path = self._folder / f"{len(list(self._folder.iterdir()))}{ending}"
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def pip(self, prefix: str, arguments: t.Sequence[str], requirements: t.Sequence[str]) -> Result:
        python = os.path.join(prefix, "bin", "python")
        if not os.access(python, os.X_OK):
            return Result(127, "", "")
        command = [python, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
        lines = self.file("".join(f"{line}\n" for line in requirements))
        result = self._run([*command, *self._pip_arguments, "-r", lines], {"PYTHONNOUSERSITE": "1"})
        return Result(127, "", result.stderr) if "No module named pip" in result.stderr else result

    def _run(self, command: t.Sequence[str], env: t.Mapping[str, str]) -> Result:
        """Run a program to its end. It outlives this process if that is killed, and has its locks."""
        variables = {name: value for name, value in os.environ.items() if name not in NOISE}
        with tempfile.TemporaryFile(dir=self._folder) as stdout, tempfile.TemporaryFile(dir=self._folder) as stderr:
            try:
                process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env={**variables, **env},
                    pass_fds=self._held,
                    start_new_session=True,
                )
            except OSError as error:
                return Result(127, "", f"{command[0]}: {error.strerror}")
            code = self._wait(process)
            self._look()
            return Result(code, _text(stdout), _text(stderr))

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        looked = time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL if self._watch else None)
            if self._watch and time.monotonic() - looked >= EVERY:
                looked = time.monotonic()
                self._look()

    def _look(self) -> None:
        words = self._watch.look() if self._watch else ""
        if words:
            self.say(words)


def _there(path: str) -> str:
    """A directory, or the one above it that is there."""
    return next(str(one) for one in (Path(path), *Path(path).parents) if one.exists())


def _text(file: t.IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
