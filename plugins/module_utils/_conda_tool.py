# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""conda, mamba and micromamba: which one there is, and how each is asked to plan and to change an environment."""

from __future__ import annotations

import json
import os
import re
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from . import _conda_answer
from ._conda_answer import Answer, ToolError
from ._conda_spec import SpecError, parse_version

Family = t.Literal["conda", "mamba", "micromamba"]

NAMES: t.Sequence[Family] = ("conda", "mamba", "micromamba")
PLACES = ("/opt/tljh/user", "{prefix}", "/opt/cudahub/conda")
"""Installations to look into before PATH: The Littlest JupyterHub's, the prefix itself, that of role rapids."""

OLDEST: t.Mapping[Family, str] = {"conda": "24", "mamba": "1.5", "micromamba": "1.5"}

_CREDENTIALS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:(?P<user>[^/@\s]+)@)?(?P<host>[^/\s]+)(?P<path>[^\s]*)")
_TOKEN = re.compile(r"/t/(?P<token>[^/\s]+)")


@dataclass(frozen=True)
class Result:
    """What a program did; 127 is the exit status of one that is not there."""

    code: int
    stdout: str
    stderr: str


class Run(t.Protocol):
    """Runs a program with variables besides those of this process, and files that are written for it."""

    def __call__(self, command: t.Sequence[str], env: t.Mapping[str, str]) -> Result: ...


@dataclass(frozen=True)
class Tool:
    """A tool that can be used."""

    path: str
    family: Family
    version: str

    @property
    def is_libmamba(self) -> bool:
        """Whether it is mamba 2 or micromamba, which share no code with conda."""
        return self.family == "micromamba" or (
            self.family == "mamba" and parse_version(self.version) >= parse_version("2")
        )

    def __str__(self) -> str:
        return f"{self.family} {self.version}"


@dataclass(frozen=True)
class Settings:
    """How a tool is to work. ``cuda`` is for CONDA_OVERRIDE_CUDA: None leaves it, "" is no CUDA at all."""

    channels: tuple[str, ...] = ()
    condarc: t.Mapping[str, t.Any] = field(default_factory=dict)
    offline: bool = False
    cuda: str | None = None
    copy: bool = False


def find(executable: str | None, prefix: str, path: str, run: Run) -> Tool:
    """The tool to use: the one that is named, or else the first one that is found. Raises ToolError."""
    if executable is not None:
        found = _in_path(executable, path) if "/" not in executable else executable
        if found is None or not os.access(found, os.X_OK) or os.path.isdir(found):
            raise ToolError("broken", f"executable {executable} is not there, or is no program")
        return identify(found, run)
    places = [place.format(prefix=prefix) for place in PLACES if prefix or place != "{prefix}"]
    for place in places:
        for name in NAMES:
            candidate = Path(place) / "bin" / name
            if os.access(candidate, os.X_OK):
                return identify(str(candidate), run)
    for name in NAMES:
        found = _in_path(name, path)
        if found is not None:
            return identify(found, run)
    raise ToolError(
        "broken", f"neither conda nor mamba nor micromamba is in {', '.join(places)} or PATH: name one in executable"
    )


def _in_path(name: str, path: str) -> str | None:
    candidates = (os.path.join(folder, name) for folder in path.split(os.pathsep) if folder)
    return next((one for one in candidates if os.access(one, os.X_OK) and not os.path.isdir(one)), None)


def identify(path: str, run: Run) -> Tool:
    """Which tool a program is. Raises ToolError when it is none, or too old."""
    result = run([path, "--version"], {})
    text = result.stdout.strip()
    words = dict(re.findall(r"^(conda|mamba|micromamba) (\d\S*)$", text, re.MULTILINE))
    if result.code == 0 and re.fullmatch(r"\d\S*", text):
        words = {"micromamba" if "micromamba" in os.path.basename(path) else "mamba": text}
    family: Family | None = next((name for name in ("mamba", "micromamba", "conda") if name in words), None)
    if result.code != 0 or family is None:
        lines = (result.stderr or text).strip().splitlines()
        errors = [line for line in lines if re.match(r"\s*(\w+\.)*\w+(Error|Exception)\b", line)]
        said = _conda_answer.condensed((errors or lines[-1:] or ["nothing"])[-1])
        raise ToolError("broken", f"{path} --version ended with status {result.code} and said: {said}")
    try:
        too_old = parse_version(words[family]) < parse_version(OLDEST[family])
    except SpecError as error:
        raise ToolError("broken", f"{path} --version: {error}") from error
    if too_old:
        raise ToolError(
            "broken", f"{path} is {family} {words[family]}, and {family} {OLDEST[family]} is needed at least"
        )
    return Tool(path, family, words[family])


@dataclass(frozen=True)
class Directories:
    """Where a tool keeps what, the first one first."""

    environments: tuple[str, ...]
    packages: tuple[str, ...]
    root: str


class Session:
    """A tool with its settings. All methods raise ToolError."""

    def __init__(self, tool: Tool, settings: Settings, run: Run, condarc: str | None) -> None:
        self.tool = tool
        self._settings = settings
        self._run = run
        self._condarc = condarc

    def directories(self) -> Directories:
        result = self._run([self.tool.path, "info", "--json"], self._env())
        try:
            value = json.loads(result.stdout)
            environments = value.get("envs_dirs") or value.get("envs directories") or ()
            packages = value.get("pkgs_dirs") or value.get("package cache") or ()
            root = value.get("root_prefix") or value.get("base environment") or ""
        except (ValueError, AttributeError) as error:
            _conda_answer.read(result.stdout, result.stderr, result.code)
            raise ToolError("broken", f"{self.tool.path} info --json does not answer as {self.tool} does") from error
        return Directories(tuple(map(str, environments)), tuple(map(str, packages)), str(root))

    def solve(self, prefix: str, specs: t.Sequence[str], *, new: bool) -> Answer:
        """What would be done to have the specs."""
        return self._asked(
            [*self._words("create" if new else "install", prefix), "--dry-run", *self._sources(), *specs]
        )

    def create(self, prefix: str, specs: t.Sequence[str]) -> None:
        self._asked([*self._words("create", prefix), *self._sources(), *specs])

    def install(self, prefix: str, specs: t.Sequence[str]) -> None:
        self._asked([*self._words("install", prefix), *self._sources(), *specs])

    def again(self, prefix: str, specs: t.Sequence[str]) -> None:
        """Install packages anew without what they need."""
        words = [*self._words("install", prefix), "--force-reinstall", "--no-deps", *self._sources()]
        self._asked([*words, *specs])

    def explicit(self, prefix: str, file: str, *, new: bool) -> None:
        """Install the files of packages that a file lists."""
        command = [*self._words("create" if new else "install", prefix), *self._offline(), "--file", file]
        result = self._run(command, self._env())
        if result.code != 0 or result.stdout.strip():
            _conda_answer.read(result.stdout, result.stderr, result.code)

    def remove(self, prefix: str, names: t.Sequence[str]) -> None:
        """Take packages away, and nothing else."""
        self._asked([*self._words("remove", prefix), "--force", *self._offline(), *names])

    def _asked(self, command: t.Sequence[str]) -> Answer:
        result = self._run(command, self._env())
        return _conda_answer.read(result.stdout, result.stderr, result.code)

    def _words(self, action: str, prefix: str) -> list[str]:
        bare = ["--no-default-packages"] if action == "create" and not self.tool.is_libmamba else []
        return [self.tool.path, action, "--yes", "--json", "--prefix", prefix, *bare]

    def _sources(self) -> list[str]:
        shown = [without_credentials(channel) for channel in self._settings.channels]
        return [*self._offline(), "--override-channels", *(word for channel in shown for word in ("-c", channel))]

    def _offline(self) -> list[str]:
        return ["--offline"] if self._settings.offline else []

    def _env(self) -> dict[str, str]:
        cuda = self._settings.cuda
        always_copy = {"CONDA_ALWAYS_COPY": "true", "MAMBA_ALWAYS_COPY": "true"} if self._settings.copy else {}
        return {
            **({} if cuda is None else {"CONDA_OVERRIDE_CUDA": cuda}),
            **({"CONDARC": self._condarc, "MAMBARC": self._condarc} if self._condarc else {}),
            **always_copy,
            "CONDA_NOTIFY_OUTDATED_CONDA": "false",
            "CONDA_REPORT_ERRORS": "false",
            "PYTHONNOUSERSITE": "1",
            # Bytecode belongs to the packages.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": "",
        }


def without_credentials(channel: str) -> str:
    """A channel as a command line, which all users can read, has it: without its password or token, if it has one."""
    return channel if not secrets(channel) else _split(channel)[1]


def secrets(text: str) -> tuple[str, ...]:
    """Passwords, users with passwords, and tokens in the addresses of a text."""
    found = []
    for match in _CREDENTIALS.finditer(text):
        if match["user"]:
            found += [match["user"], *filter(None, [match["user"].partition(":")[2]])]
        found += _TOKEN.findall(match["path"])
    return tuple(found)


def settings_file(settings: Settings) -> dict[str, t.Any]:
    """The content of a condarc: what the user wants, and addresses with passwords by the names that commands show.

    Raises ToolError.
    """
    private: dict[str, str] = {}
    for channel in settings.channels:
        if secrets(channel):
            location, name = _split(channel)
            if not name:
                raise ToolError("channel", "a channel with a password or a token has no name after them")
            if private.setdefault(name, location) != location:
                raise ToolError("channel", f"two channels with a password or a token have the name {name}")
    if not private:
        return dict(settings.condarc)
    return {**settings.condarc, "custom_channels": {**(settings.condarc.get("custom_channels") or {}), **private}}


def _split(channel: str) -> tuple[str, str]:
    """An address with a password or a token as the part that has it, and the rest, which is the channel's name."""
    match = _CREDENTIALS.match(channel)
    if match is None:
        raise ValueError("a channel with a password or a token is no address")
    token = _TOKEN.search(match["path"])
    path = match["path"][: token.end()] if token else ""
    start = f"{match['scheme']}{match['user'] + '@' if match['user'] else ''}{match['host']}{path}"
    return start, channel[len(start) :].strip("/")
