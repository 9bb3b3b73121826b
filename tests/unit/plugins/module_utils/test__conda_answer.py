# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of conda 24.7 and 26.7 and of mamba 2.8, as they were recorded, shortened."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _conda_answer
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_answer import Answer, ToolError
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_spec import Package

CHANNEL = "file:///srv/channel"
OF_CONDA = {
    "base_url": CHANNEL,
    "build_number": 0,
    "build_string": "cuda12_0",
    "channel": "channel",
    "dist_name": "mini-librmm-26.8.0-cuda12_0",
    "name": "mini-librmm",
    "platform": "linux-64",
    "version": "26.8.0",
}
OF_MAMBA = {
    "build": "cuda12_0",
    "build_number": 0,
    "build_string": "cuda12_0",
    "channel": CHANNEL,
    "md5": "205a",
    "name": "mini-librmm",
    "size": 105023,
    "subdir": "linux-64",
    "url": f"{CHANNEL}/linux-64/mini-librmm-26.8.0-cuda12_0.tar.bz2",
    "version": "26.8.0",
}


def log(level: str, message: str) -> dict[str, t.Any]:
    return {"log_history": [{"level": level, "location": "main.cpp:228", "message": message, "source": "libmamba"}]}


def test_a_transaction() -> None:
    conda = {"actions": {"FETCH": [OF_MAMBA], "LINK": [OF_CONDA], "PREFIX": "/opt/x"}, "success": True}
    expected = Package("mini-librmm", "26.8.0", "cuda12_0", 0, CHANNEL, "linux-64")
    found = _conda_answer.read(json.dumps(conda), "", 0)
    assert found.link == (expected,)
    assert (found.size, found.empty, found.fetch[0].md5) == (105023, False, "205a")
    mamba = {"actions": {"LINK": [OF_MAMBA], "UNLINK": [OF_MAMBA]}, "dry_run": True, "success": True}
    found = _conda_answer.read(json.dumps(mamba), "", 0)
    assert found.link == found.unlink
    assert found.link[0].url.endswith("mini-librmm-26.8.0-cuda12_0.tar.bz2")
    several = {"actions": [{"LINK": [OF_CONDA]}, {"UNLINK": [OF_CONDA]}], "success": True}
    assert _conda_answer.read(json.dumps(several), "", 0).unlink == (expected,)


@pytest.mark.parametrize(
    "value",
    [
        {"success": True, "message": "All requested packages already installed."},
        {"dry_run": False, "log_history": [], "message": "All requested packages already installed", "success": True},
    ],
)
def test_nothing_to_do(value: dict[str, t.Any]) -> None:
    assert _conda_answer.read(json.dumps(value), "", 0) == Answer()


def test_lines_of_progress_stand_before_the_answer() -> None:
    progress = '{"fetch": "a-1-0", "finished": false, "maxval": 1, "progress": 0.5}\n'
    assert _conda_answer.read(f'{progress}\0{progress}\n{{"success": true}}', "", 0).empty
    assert _conda_answer.read('warning: {odd}\n{"success": true}\n', "", 0).empty


def failure(name: str, message: str) -> dict[str, t.Any]:
    return {"caused_by": "None", "exception_name": name, "message": message}


def unsolved(problems: str) -> dict[str, t.Any]:
    return {**log("error", f"Could not solve for environment specs\n{problems}"), "success": False}


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (
            failure(
                "UnavailableInvalidChannel",
                "HTTP 404 for channel x <file:///x>\n\nThe channel is invalid.\n\nYou will need to adjust your conda\n",
            ),
            "channel",
            "HTTP 404 for channel x <file:///x> The channel is invalid",
        ),
        (
            log(
                "critical",
                "Multiple errors occurred:\n  Couldn't open file /x/noarch/repodata.json\n  Subdir file:///x/noarch "
                "not loaded!\n    If you run into this error repeatedly, your package cache may be corrupted.\n",
            ),
            "channel",
            "Couldn't open file /x/noarch/repodata.json Subdir file:///x/noarch not loaded!",
        ),
        (
            failure(
                "PackagesNotFoundInChannelsError",
                "Not available:\n\n  - nosuch\n\nCurrent channels:\n\n  - file:///x\n  - file:///y\n\n"
                "To search for alternate",
            ),
            "package",
            "Not available: nosuch Current channels: file:///x; file:///y",
        ),
        (
            unsolved("    └─ nosuch =* * does not exist (perhaps a typo or a missing channel)."),
            "package",
            "nosuch =* * does not exist (perhaps a typo or a missing channel)",
        ),
        (
            failure(
                "UnsatisfiableError",
                "Much else.\n\n  - a -> __cuda[version='>=12']\n\n\nYour installed version is: not available\n",
            ),
            "cuda",
            "a -> __cuda[version='>=12'] Your installed version is: not available",
        ),
        (
            unsolved("    └─ a =* * would require\n       └─ __cuda >=12 *, which is missing on the system."),
            "cuda",
            "a =* * would require __cuda >=12 *, which is missing on the system",
        ),
        (
            unsolved("    ├─ a =1 * requires\n    │  └─ b <2;\n    └─ b =2 *"),
            "unsolvable",
            "a =1 * requires b <2; b =2 *",
        ),
        (failure("EnvironmentLocationNotFound", "No environment: /x"), "no_environment", "No environment: /x"),
        (failure("CorruptedEnvironmentError", "It is broken."), "corrupt", "It is broken"),
        (
            log("critical", "[json.exception.parse_error.101] unexpected end of input"),
            "corrupt",
            "[json.exception.parse_error.101] unexpected end of input",
        ),
        (
            log("critical", 'Error parsing version "". Empty version.'),
            "spec",
            'Error parsing version "". Empty version',
        ),
        (failure("NoSpaceLeftError", "No space left on devices."), "disk", "No space left on devices"),
        (
            failure("AttributeError", "'OSError' object has no attribute 'dump_map'"),
            "disk",
            "a file can't be written, most often because the disk is full, and conda hides why",
        ),
        ({"error": "OSError: [Errno 28] No space left"}, "disk", "OSError: [Errno 28] No space left"),
        (
            {"error": "Multiple Errors Encountered.", "errors": [failure("ChecksumMismatchError", "b is not a"), {}]},
            "checksum",
            "b is not a",
        ),
        ({"success": False}, "broken", "it ended with status 1"),
    ],
)
def test_failure(value: dict[str, t.Any], kind: str, reason: str) -> None:
    with pytest.raises(ToolError) as caught:
        _conda_answer.read(json.dumps(value), "", 1)
    assert (caught.value.kind, caught.value.reason) == (kind, reason)
    assert str(caught.value).startswith(f"{reason}: ")


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "kind", "reason"),
    [
        (
            "",
            "Traceback (most recent call):\nKeyError: '>='\nconda.exceptions.InvalidVersionSpec: Invalid version '>='",
            1,
            "spec",
            "Invalid version '>='",
        ),
        ("", "", 0, "broken", "it printed nothing and ended with status 0"),
        ("[]", "", 0, "broken", "[]"),
        ("", "/x/conda: /x/python: Permission denied", 126, "permission", "/x/conda: /x/python: Permission denied"),
    ],
)
def test_no_json(stdout: str, stderr: str, code: int, kind: str, reason: str) -> None:
    with pytest.raises(ToolError) as caught:
        _conda_answer.read(stdout, stderr, code)
    assert (caught.value.kind, caught.value.reason) == (kind, reason)


def test_no_secret_and_no_novel() -> None:
    text = "can't read https://ann:S3CRET@mirror.example/t/tk-123/conda-forge " + "word " * 200
    said = _conda_answer.condensed(text)
    assert said.startswith("can't read https://********@mirror.example/t/********/conda-forge word")
    assert said.endswith("word …")
    assert len(said) <= _conda_answer.LONGEST


@pytest.mark.parametrize(
    ("code", "reason"),
    [(-9, "it was ended by signal 9, as where memory runs out"), (-11, "it was ended by signal 11")],
)
def test_a_tool_that_is_killed(code: int, reason: str) -> None:
    with pytest.raises(ToolError) as caught:
        _conda_answer.read("", "", code)
    assert (caught.value.kind, caught.value.reason) == ("broken", reason)
