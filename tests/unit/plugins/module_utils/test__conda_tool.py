# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tool is found, and the very commands that each gets, which all users of a host can read."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _conda_tool
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_answer import ToolError
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_tool import (
    Directories,
    Result,
    Session,
    Settings,
    Tool,
)

CONDA = Tool("/opt/c/bin/conda", "conda", "24.7.1")
MAMBA1 = Tool("/opt/c/bin/mamba", "mamba", "1.5.8")
MAMBA2 = Tool("/opt/c/bin/mamba", "mamba", "2.8.1")
MICROMAMBA = Tool("/opt/c/bin/micromamba", "micromamba", "2.0.5")
DONE = '{"success": true, "actions": {}}'
ALWAYS = {
    "CONDA_NOTIFY_OUTDATED_CONDA": "false",
    "CONDA_REPORT_ERRORS": "false",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": "",
}


class FakeRun:
    """Answers by the last part of the program's path, or else all alike, and notes what was run."""

    def __init__(self, *results: Result, **by_name: str) -> None:
        self.results = list(results)
        self.by_name = by_name
        self.commands: list[list[str]] = []
        self.variables: list[dict[str, str]] = []

    def __call__(self, command: t.Sequence[str], env: t.Mapping[str, str]) -> Result:
        self.commands.append(list(command))
        self.variables.append(dict(env))
        if self.by_name:
            return Result(0, self.by_name[Path(command[0]).name], "")
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]


BROKEN = """\
Traceback (most recent call last):
  File "/opt/c/bin/conda", line 12, in <module>
    from conda.cli import main
ModuleNotFoundError: No module named 'conda'
"""


@pytest.mark.parametrize(
    ("name", "output", "family", "version"),
    [
        ("conda", "conda 24.7.1\n", "conda", "24.7.1"),
        ("conda", "conda 24.1\n", "conda", "24.1"),
        ("conda", "conda 26.11.0rc1", "conda", "26.11.0rc1"),
        ("mamba", "mamba 1.5.8\nconda 24.3.0\n", "mamba", "1.5.8"),
        ("mamba", "2.8.1\n", "mamba", "2.8.1"),
        ("micromamba", "2.0.5\n", "micromamba", "2.0.5"),
        ("micromamba-static", "1.5.10", "micromamba", "1.5.10"),
        ("conda", "micromamba 2.0.5", "micromamba", "2.0.5"),
    ],
)
def test_identify(name: str, output: str, family: str, version: str) -> None:
    run = FakeRun(Result(0, output, ""))
    tool = _conda_tool.identify(f"/opt/c/bin/{name}", run)
    assert (tool.path, tool.family, tool.version) == (f"/opt/c/bin/{name}", family, version)
    assert str(tool) == f"{family} {version}"
    assert (run.commands, run.variables) == ([[f"/opt/c/bin/{name}", "--version"]], [{}])


@pytest.mark.parametrize(
    ("tool", "expected"), [(CONDA, False), (MAMBA1, False), (MAMBA2, True), (replace(MICROMAMBA, version="1.5"), True)]
)
def test_mamba_2_is_another_program(tool: Tool, expected: bool) -> None:
    assert tool.is_libmamba == expected


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (Result(0, "conda 23.11.0", ""), "/x/conda is conda 23.11.0, and conda 24 is needed at least"),
        (Result(0, "mamba 1.4.9\nconda 24.3.0", ""), "/x/conda is mamba 1.4.9, and mamba 1.5 is needed at least"),
        (
            Result(1, "", BROKEN),
            "/x/conda --version ended with status 1 and said: ModuleNotFoundError: No module named 'conda'",
        ),
        (Result(1, "conda 24.7.1", "no\nmore"), "/x/conda --version ended with status 1 and said: more"),
        (Result(0, "GNU coreutils 9.1", ""), "/x/conda --version ended with status 0 and said: GNU coreutils 9.1"),
        (Result(0, "", ""), "/x/conda --version ended with status 0 and said: nothing"),
        (Result(127, "", "/x/conda: Exec format error"), "status 127 and said: /x/conda: Exec format error"),
        (Result(0, "conda 24.7..1", ""), "/x/conda --version: '24.7..1' is no version"),
    ],
)
def test_what_is_no_tool(result: Result, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        _conda_tool.identify("/x/conda", FakeRun(result))
    assert caught.value.kind == "broken"
    assert message in caught.value.reason


class Places:
    """Programs in the places where tools are looked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.prefix = f"{folder}/prefix"
        self.path = f"{folder}/a/bin::{folder}/b/bin"
        monkeypatch.setattr(_conda_tool, "PLACES", (f"{folder}/tljh", "{prefix}", f"{folder}/role"))
        self.run = FakeRun(conda="conda 24.7.1", mamba="2.8.1", micromamba="2.0.5")

    def put(self, *programs: str) -> None:
        for program in programs:
            path = self.folder / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o755)

    def find(self, executable: str | None = None) -> str:
        tool = _conda_tool.find(executable, self.prefix, self.path, self.run)
        return str(Path(tool.path).relative_to(self.folder))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(tmp_path, monkeypatch)


ORDER = [
    "b/bin/micromamba",
    "a/bin/micromamba",
    "b/bin/mamba",
    "b/bin/conda",
    "role/bin/micromamba",
    "role/bin/mamba",
    "role/bin/conda",
    "prefix/bin/mamba",
    "prefix/bin/conda",
    "tljh/bin/micromamba",
    "tljh/bin/mamba",
    "tljh/bin/conda",
]


def test_the_order_of_places(places: Places) -> None:
    found = []
    for program in ORDER:
        places.put(program)
        found.append(places.find())
    assert found == ORDER


def test_what_is_no_program_is_passed_over(places: Places) -> None:
    places.put("b/bin/conda", "tljh/bin/conda")
    (places.folder / "tljh/bin/conda").chmod(0o644)
    (places.folder / "a/bin/conda").mkdir(parents=True)
    assert places.find() == "b/bin/conda"


def test_the_one_that_is_named(places: Places) -> None:
    places.put("tljh/bin/conda", "mine/micromamba", "b/bin/mamba")
    (places.folder / "a/bin/mamba").mkdir(parents=True)
    assert places.find(f"{places.folder}/mine/micromamba") == "mine/micromamba"
    assert places.find("mamba") == "b/bin/mamba"


@pytest.mark.parametrize("name", ["nothing", "/nonexistent", "{0}", "{0}/text"])
def test_the_one_that_is_named_is_not_there(places: Places, name: str) -> None:
    places.put("tljh/bin/conda")
    (places.folder / "text").touch(mode=0o644)
    named = name.format(places.folder)
    with pytest.raises(ToolError, match="is not there, or is no program") as caught:
        places.find(named)
    assert caught.value.reason.startswith(f"executable {named} is")
    assert places.run.commands == []


def test_no_tool_at_all(places: Places) -> None:
    with pytest.raises(ToolError) as caught:
        places.find()
    assert caught.value.reason == (
        f"neither conda nor mamba nor micromamba is in {places.folder}/tljh, {places.prefix}, {places.folder}/role or "
        "PATH: name one in executable"
    )


def test_without_a_prefix_the_working_directory_is_none(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.put("bin/conda", "role/bin/conda")
    monkeypatch.chdir(places.folder)
    places.prefix = ""
    assert places.find() == "role/bin/conda"


SETTINGS = Settings(channels=("rapidsai", "https://conda.example.org/forge"))
SOURCES = ["--override-channels", "-c", "rapidsai", "-c", "https://conda.example.org/forge"]


def words(action: str, *more: str) -> list[str]:
    return [action, "--yes", "--json", "--prefix", "/opt/x", *more]


Ask = t.Callable[[Session], t.Any]


@pytest.mark.parametrize("tool", [CONDA, MAMBA1, MAMBA2, MICROMAMBA], ids=str)
@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda one: one.solve("/opt/x", ["a", "b=1"], new=False), words("install", "--dry-run", *SOURCES, "a", "b=1")),
        (lambda one: one.solve("/opt/x", ["a"], new=True), words("create", "BARE", "--dry-run", *SOURCES, "a")),
        (lambda one: one.create("/opt/x", ["a"]), words("create", "BARE", *SOURCES, "a")),
        (lambda one: one.install("/opt/x", ["a"]), words("install", *SOURCES, "a")),
        (
            lambda one: one.again("/opt/x", ["a=1=0"]),
            words("install", "--force-reinstall", "--no-deps", *SOURCES, "a=1=0"),
        ),
        (lambda one: one.explicit("/opt/x", "/tmp/lock", new=True), words("create", "BARE", "--file", "/tmp/lock")),
        (lambda one: one.explicit("/opt/x", "/tmp/lock", new=False), words("install", "--file", "/tmp/lock")),
        (lambda one: one.remove("/opt/x", ["a", "b"]), words("remove", "--force", "a", "b")),
    ],
)
def test_commands(tool: Tool, ask: Ask, expected: list[str]) -> None:
    bare = ["--no-default-packages"] if tool in (CONDA, MAMBA1) else []
    command = [word for one in expected for word in (bare if one == "BARE" else [one])]
    run = FakeRun(Result(0, DONE, ""))
    ask(Session(tool, SETTINGS, run, None))
    assert run.commands == [[tool.path, *command]]
    assert run.variables == [ALWAYS]


@pytest.mark.parametrize(
    ("settings", "condarc", "expected", "offline"),
    [
        (Settings(), None, {}, False),
        (Settings(cuda="12.9"), None, {"CONDA_OVERRIDE_CUDA": "12.9"}, False),
        (Settings(cuda=""), None, {"CONDA_OVERRIDE_CUDA": ""}, False),
        (Settings(copy=True), None, {"CONDA_ALWAYS_COPY": "true", "MAMBA_ALWAYS_COPY": "true"}, False),
        (Settings(), "/tmp/rc.yaml", {"CONDARC": "/tmp/rc.yaml", "MAMBARC": "/tmp/rc.yaml"}, False),
        (Settings(offline=True), None, {}, True),
    ],
)
def test_settings(settings: Settings, condarc: str | None, expected: dict[str, str], offline: bool) -> None:
    run = FakeRun(Result(0, DONE, ""))
    session = Session(CONDA, settings, run, condarc)
    session.install("/opt/x", ["a"])
    session.create("/opt/x", ["a"])
    session.remove("/opt/x", ["a"])
    session.explicit("/opt/x", "/tmp/lock", new=True)
    session.again("/opt/x", ["a"])
    assert run.variables == [{**ALWAYS, **expected}] * 5
    assert ["--offline" in command for command in run.commands] == [offline] * 5


def test_what_the_tool_answers_is_read() -> None:
    package = {"name": "a", "version": "1", "build": "0"}
    answer = json.dumps({"success": True, "actions": {"LINK": [package]}})
    assert Session(CONDA, SETTINGS, FakeRun(Result(0, answer, "")), None).solve("/x", ["a"], new=True).link
    failed = FakeRun(Result(1, json.dumps({"exception_name": "UnsatisfiableError", "message": "no"}), ""))
    session = Session(CONDA, SETTINGS, failed, None)
    for ask in (session.install, session.create, session.remove):
        with pytest.raises(ToolError) as caught:
            ask("/x", ["a"])
        assert caught.value.kind == "unsolvable"


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (Result(0, DONE, ""), None),
        (Result(0, "", "Preparing transaction: done"), None),
        (Result(1, "", "OSError: No space left on device"), "disk"),
        (Result(0, json.dumps({"success": False, "message": "checksum"}), ""), "checksum"),
    ],
)
def test_conda_prints_nothing_for_a_list_of_files(result: Result, kind: str | None) -> None:
    session = Session(CONDA, SETTINGS, FakeRun(result), None)
    if kind is None:
        session.explicit("/x", "/tmp/lock", new=True)
        return
    with pytest.raises(ToolError) as caught:
        session.explicit("/x", "/tmp/lock", new=True)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {
                "envs_dirs": ["/srv/spike/venvs", "/srv/spike/vhome/.conda/envs", "/srv/spike/clv/envs"],
                "pkgs_dirs": ["/srv/spike/vpkgs"],
                "root_prefix": "/srv/spike/clv",
            },
            Directories(
                ("/srv/spike/venvs", "/srv/spike/vhome/.conda/envs", "/srv/spike/clv/envs"),
                ("/srv/spike/vpkgs",),
                "/srv/spike/clv",
            ),
        ),
        (
            {
                "base environment": "/srv/spike/mroot",
                "envs directories": ["/srv/spike/mroot/envs"],
                "package cache": ["/srv/spike/mpkgs"],
            },
            Directories(("/srv/spike/mroot/envs",), ("/srv/spike/mpkgs",), "/srv/spike/mroot"),
        ),
        ({}, Directories((), (), "")),
    ],
)
def test_directories(answer: dict[str, t.Any], expected: Directories) -> None:
    run = FakeRun(Result(0, json.dumps(answer), ""))
    assert Session(CONDA, Settings(cuda="12.9"), run, "/tmp/rc").directories() == expected
    assert run.commands == [[CONDA.path, "info", "--json"]]
    assert run.variables[0]["CONDARC"] == "/tmp/rc"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (Result(1, "", BROKEN), "No module named 'conda'"),
        (Result(0, "[]", ""), "printed nothing|does not answer|\\[\\]"),
        (Result(0, "hello", ""), "hello"),
    ],
)
def test_no_directories(result: Result, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        Session(CONDA, SETTINGS, FakeRun(result), None).directories()


PRIVATE = [
    ("https://user:secret@host/forge", "forge", "https://user:secret@host"),
    ("https://secret@host:8080/get/forge", "get/forge", "https://secret@host:8080"),
    ("https://host/t/secret/forge", "forge", "https://host/t/secret"),
    ("https://user:secret@host/t/secret/a/forge/", "a/forge", "https://user:secret@host/t/secret"),
    ("https://host/artifactory/t/secret/forge", "forge", "https://host/artifactory/t/secret"),
]


@pytest.mark.parametrize(("channel", "name", "location"), PRIVATE)
def test_secrets_are_on_no_command_line(channel: str, name: str, location: str) -> None:
    settings = Settings(channels=("conda-forge", channel), condarc={"ssl_verify": False})
    run = FakeRun(Result(0, DONE, ""))
    session = Session(CONDA, settings, run, "/tmp/rc")
    session.solve("/x", ["a"], new=True)
    session.create("/x", ["a"])
    session.install("/x", ["a"])
    session.again("/x", ["a"])
    assert "secret" not in str(run.commands) + str(run.variables)
    for command in run.commands:
        place = command.index("--override-channels")
        assert command[place + 1 : place + 5] == ["-c", "conda-forge", "-c", name]
    assert _conda_tool.settings_file(settings) == {"ssl_verify": False, "custom_channels": {name: location}}
    assert f"{location}/{name}" == channel.rstrip("/")


def test_settings_of_the_user_stay() -> None:
    condarc = {"custom_channels": {"mine": "https://mine"}, "offline": True}
    assert _conda_tool.settings_file(Settings(condarc=condarc)) == condarc
    assert _conda_tool.settings_file(Settings(channels=("https://a:b@host/c",), condarc=condarc)) == {
        "custom_channels": {"mine": "https://mine", "c": "https://a:b@host"},
        "offline": True,
    }
    assert _conda_tool.settings_file(Settings(channels=("https://a:b@h/c",), condarc={"custom_channels": None}))
    assert condarc == {"custom_channels": {"mine": "https://mine"}, "offline": True}
    assert _conda_tool.settings_file(SETTINGS) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("conda-forge", ()),
        ("https://conda.example.org/forge", ()),
        ("https://user:secret@host/c", ("user:secret", "secret")),
        ("https://token@host/c", ("token",)),
        ("https://host/t/token/c", ("token",)),
        ("--index-url=https://u:p@host/simple http://host/t/tk/x", ("u:p", "p", "tk")),
        ("{'proxy_servers': {'https': 'http://u:p@proxy:3128'}}", ("u:p", "p")),
        ("https://host/at@sign", ()),
    ],
)
def test_secrets(text: str, expected: tuple[str, ...]) -> None:
    assert _conda_tool.secrets(text) == expected
