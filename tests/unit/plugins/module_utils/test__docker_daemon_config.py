# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted is in daemon.json, all else stays, and only what was put in is taken back."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _docker_daemon_config as daemon
from ansible_collections.cudahub.gpu.plugins.module_utils._docker_daemon_config import ConfigError

RUNTIME = {"path": "nvidia-container-runtime", "args": []}
WANTED: dict[str, t.Any] = {"runtimes": {"nvidia": RUNTIME}, "features": {"cdi": True}}

# What a user may have, and what it is with what is wanted.
SHAPES: dict[str, tuple[dict[str, t.Any], dict[str, t.Any]]] = {
    "nothing": ({}, WANTED),
    "log options": (
        {"log-driver": "json-file", "log-opts": {"max-size": "10m", "max-file": "3"}},
        {"log-driver": "json-file", "log-opts": {"max-size": "10m", "max-file": "3"}, **WANTED},
    ),
    "mirrors": ({"registry-mirrors": ["https://m"]}, {"registry-mirrors": ["https://m"], **WANTED}),
    "other runtimes": (
        {"runtimes": {"kata": {"path": "/k"}}, "default-runtime": "kata"},
        {
            "runtimes": {"kata": {"path": "/k"}, "nvidia": RUNTIME},
            "default-runtime": "kata",
            "features": {"cdi": True},
        },
    ),
    "other features": (
        {"features": {"buildkit": True, "cdi": False}},
        {"features": {"buildkit": True, "cdi": True}, "runtimes": {"nvidia": RUNTIME}},
    ),
    "unknown keys": ({"x-site": {"a": [1, 2.5, None]}}, {"x-site": {"a": [1, 2.5, None]}, **WANTED}),
    "nvidia elsewhere": (
        {"labels": ["nvidia=runtimes"], "log-opts": {"tag": "nvidia-container-runtime"}},
        {"labels": ["nvidia=runtimes"], "log-opts": {"tag": "nvidia-container-runtime"}, **WANTED},
    ),
    "the runtime at another path": (
        {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": ["--x"]}}},
        {
            "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": ["--x"], "args": []}},
            "features": {"cdi": True},
        },
    ),
    "all of it": (WANTED, WANTED),
}
BROKEN = {
    "not closed": ('{"log-driver": "local"', "is no JSON: line 1, column 23: Expecting ',' delimiter"),
    "comma at the end": ('{\n  "debug": true,\n}', "is no JSON: line 3, column 1"),
    "comment": ('{\n  // mirrors\n  "debug": true\n}', "is no JSON: line 2, column 3"),
    "list": ('["debug"]', "has a list where dockerd wants an object"),
    "twice": ('{"debug": true, "debug": false}', 'has the key "debug" twice in one object'),
    "half a character": ('{"labels": ["\\ud800"]}', "has half a character, \\ud800, in a text: correct it"),
    "runtimes is a list": ('{"runtimes": ["nvidia"]}', "has a list at runtimes, where an object is wanted"),
    "runtime is a text": ('{"runtimes": {"nvidia": "/x"}}', "has a text at runtimes.nvidia, where an object is wanted"),
    "cdi is a text": ('{"features": {"cdi": "true"}}', "has a text at features.cdi, where true or false is wanted"),
    "features is null": ('{"features": null}', "has null at features, where an object is wanted"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_there_survives_and_comes_back(name: str) -> None:
    before, expected = SHAPES[name]
    outcome = daemon.merge(before, WANTED)
    assert outcome.config == expected
    again = daemon.merge(outcome.config, WANTED, outcome.changes)
    assert (again.config, again.changes) == (outcome.config, outcome.changes)
    record = daemon.changes_of(daemon.record_of(outcome.changes))
    assert daemon.take_back(outcome.config, record).config == before


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_not_be_merged_is_said(name: str) -> None:
    text, sentence = BROKEN[name]
    with pytest.raises(ConfigError) as raised:
        daemon.merge(daemon.parse(text), WANTED)
    assert str(raised.value).startswith(sentence)


def test_an_empty_file_says_nothing() -> None:
    assert daemon.parse(" \n") == {}


def test_lists_get_what_they_lack_and_lose_no_more() -> None:
    before = {"cdi-spec-dirs": ["/etc/cdi"]}
    outcome = daemon.merge(before, {"cdi-spec-dirs": ["/etc/cdi", "/srv/cdi"]})
    assert outcome.config == {"cdi-spec-dirs": ["/etc/cdi", "/srv/cdi"]}
    theirs = {"cdi-spec-dirs": ["/etc/cdi", "/srv/cdi", "/mine"]}
    assert daemon.take_back(theirs, outcome.changes).config == {"cdi-spec-dirs": ["/etc/cdi", "/mine"]}


def test_the_value_before_the_first_change_comes_back() -> None:
    first = daemon.merge({"default-runtime": "kata"}, {"default-runtime": "nvidia"})
    second = daemon.merge(first.config, {"default-runtime": "other"}, first.changes)
    assert daemon.take_back(second.config, second.changes).config == {"default-runtime": "kata"}


def test_what_somebody_has_changed_since_stays() -> None:
    outcome = daemon.merge({}, WANTED)
    theirs = {"runtimes": {"nvidia": {"path": "/own", "args": []}, "kata": {"path": "/k"}}, "features": {"cdi": False}}
    assert daemon.take_back(theirs, outcome.changes).config == {
        "runtimes": {"nvidia": {"path": "/own"}, "kata": {"path": "/k"}},
        "features": {"cdi": False},
    }


def test_the_runtime_of_all_containers_is_not_taken_away() -> None:
    merged = daemon.merge({}, WANTED)
    with pytest.raises(ConfigError, match="has the default-runtime nvidia, which is to be taken away: choose another"):
        daemon.take_back({**merged.config, "default-runtime": "nvidia"}, merged.changes)
    other = {**merged.config, "default-runtime": "runc"}
    assert daemon.take_back(other, merged.changes).config == {"default-runtime": "runc"}
    # One that the settings bring goes with them.
    merged = daemon.merge({}, {**WANTED, "default-runtime": "nvidia"})
    assert daemon.take_back(merged.config, merged.changes).config == {}


def test_without_a_record_what_is_as_given_goes() -> None:
    config = {"debug": True, **WANTED}
    assert daemon.take_back(config, daemon.given(WANTED)).config == {"debug": True}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({}, "nothing"),
        ({"runtimes": {"nvidia": RUNTIME}}, "reload"),
        ({"debug": True, "labels": ["a"]}, "reload"),
        ({"features": {"cdi": True}}, "restart"),
        ({"runtimes": {}, "log-driver": "local"}, "restart"),
    ],
)
def test_what_the_engine_needs(after: dict[str, t.Any], expected: str) -> None:
    assert daemon.needs({}, after) == expected
    assert daemon.needs(after, {}) == expected


@pytest.mark.parametrize("indentation", ["  ", "\t", "      "])
def test_indentation_and_order_stay(indentation: str) -> None:
    text = json.dumps({"b": 1, "a": "ü"}, indent=indentation, ensure_ascii=False)
    assert daemon.render({"b": 1, "a": "ü", "c": 2}, text).splitlines()[1:4] == [
        f'{indentation}"b": 1,',
        f'{indentation}"a": "ü",',
        f'{indentation}"c": 2',
    ]


def test_a_record_of_others_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no record of this module"):
        daemon.changes_of('{"a": 1}')
