# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings file: what is read from it, and one sentence for each thing that is wrong in it."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from cudahub_hub.settings import ConfigurationError, Idle, Limits, Pool, read_settings


def read(tmp_path: Path, data: t.Any) -> t.Any:
    path = tmp_path / "settings.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return read_settings(path)


def test_everything_is_read(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        {
            "format": 1,
            "inventory": "/a/gpus.json",
            "database": "/b/leases.sqlite",
            "usage": "/c/gpus.json",
            "pools": [
                {
                    "name": "big",
                    "policy": "share",
                    "servers_per_gpu": 4,
                    "gpus": ["GPU-1", "MIG-2"],
                    "groups": ["staff"],
                    "images": ["quay.io/x:1"],
                },
                {"name": "small", "policy": "exclusive", "servers_per_gpu": 1, "gpus": ["GPU-3"]},
            ],
            "limits": {"default": 1, "users": {"anna": 0, "ben": None}, "groups": {"staff": 2}},
            "form_default": "none",
            "idle": {"minutes": 0, "warn_minutes": 5, "utilization_percent": 10},
            "hub": "/d/gpus.py",
        },
    )
    assert settings.inventory == Path("/a/gpus.json")
    assert settings.database == Path("/b/leases.sqlite")
    assert settings.usage == Path("/c/gpus.json")
    assert settings.pools == (
        Pool("big", "share", 4, ("GPU-1", "MIG-2"), frozenset({"staff"}), ("quay.io/x:1",)),
        Pool("small", "exclusive", 1, ("GPU-3",), None, None),
    )
    assert settings.limits == Limits(1, {"anna": 0, "ben": None}, {"staff": 2})
    assert settings.form_default == "none"
    assert settings.idle == Idle(0, 5, 10)
    assert settings.hub == "/d/gpus.py"


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    settings = read(tmp_path, {"format": 1})
    assert settings.pools == (Pool("default", "exclusive", 1, None, None, None),)
    assert settings.limits.of("anna") == 1
    assert settings.database == Path("/var/lib/cudahub/hub/leases.sqlite")
    assert settings.hub is None


@pytest.mark.parametrize(
    ("user", "groups", "limit"),
    [
        ("anna", ["staff"], 0),
        ("ben", ["staff"], None),
        ("carl", [], 1),
        ("carl", ["nobody-knows"], 1),
        ("carl", ["guests"], 0),
        ("carl", ["guests", "staff"], 2),
        ("carl", ["staff", "admins"], None),
    ],
)
def test_the_own_limit_wins_else_the_largest_of_the_groups(user: str, groups: list[str], limit: int | None) -> None:
    limits = Limits(1, {"anna": 0, "ben": None}, {"guests": 0, "staff": 2, "admins": None})
    assert limits.of(user, groups) == limit


TWO = [{"name": "a", "gpus": ["GPU-1"]}, {"name": "b", "gpus": ["GPU-1"]}]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("{", "the file is not JSON"),
        ("[" * 100_000, "the file is not JSON"),
        ("[]", "the file must be an object, not []"),
        ({}, "format is missing"),
        ({"format": 2}, "format is 2, and this version of cudahub_hub reads format 1"),
        ({"format": "1"}, 'format is "1", and'),
        ({"format": True}, "format is true, and"),
        ({"format": 1, "pool": [], "limit": 1}, 'the file has the unknown keys "limit", "pool"'),
        ({"format": 1, "inventory": 7}, "inventory must be a text, not 7"),
        ({"format": 1, "database": "leases.sqlite"}, 'database must be an absolute path, not "leases.sqlite"'),
        ({"format": 1, "pools": {}}, "pools must be a list, not {}"),
        ({"format": 1, "pools": []}, "pools is empty"),
        ({"format": 1, "pools": ["a"]}, 'pools[0] must be an object, not "a"'),
        ({"format": 1, "pools": [{}]}, "pools[0] has no name"),
        ({"format": 1, "pools": [{"name": ""}]}, 'pools[0].name must be a text, not ""'),
        ({"format": 1, "pools": [{"name": "a", "gpu": []}]}, 'pools[0] has the unknown key "gpu"'),
        (
            {"format": 1, "pools": [{"name": "a", "policy": "fair"}]},
            'policy must be "exclusive" or "share", not "fair"',
        ),
        (
            {"format": 1, "pools": [{"name": "a", "policy": "share", "servers_per_gpu": 0}]},
            "a whole number of 1 or more",
        ),
        ({"format": 1, "pools": [{"name": "a", "policy": "share", "servers_per_gpu": 1.5}]}, "not 1.5"),
        ({"format": 1, "pools": [{"name": "a", "policy": "share", "servers_per_gpu": True}]}, "not true"),
        (
            {"format": 1, "pools": [{"name": "a", "servers_per_gpu": 4}]},
            "servers_per_gpu is 4, and the policy exclusive",
        ),
        ({"format": 1, "pools": [{"name": "a", "gpus": []}]}, 'pool "a": gpus is an empty list'),
        ({"format": 1, "pools": [{"name": "a", "groups": []}]}, 'pool "a": groups is an empty list'),
        ({"format": 1, "pools": [{"name": "a", "images": "x"}]}, 'pool "a": images must be a list, not "x"'),
        ({"format": 1, "pools": [{"name": "a", "gpus": [0]}]}, 'pool "a": gpus[0] must be a text, not 0'),
        ({"format": 1, "pools": TWO}, 'GPU-1 is in the pools "a" and "b", and may be in one only'),
        ({"format": 1, "pools": [{"name": "a", "gpus": ["GPU-1", "GPU-1"]}]}, 'GPU-1 is in pool "a" twice'),
        ({"format": 1, "pools": [{"name": "a"}, TWO[1]]}, 'pool "a" has all GPUs (gpus is null) although'),
        ({"format": 1, "pools": [TWO[0], {"name": "a", "gpus": ["GPU-2"]}]}, 'two pools have the name "a"'),
        ({"format": 1, "limits": {"default": -1}}, "limits.default must be a whole number of 0 or more, not -1"),
        (
            {"format": 1, "limits": {"users": {"anna": -2}}},
            "limits.users.anna must be a whole number of 0 or more, not -2",
        ),
        (
            {"format": 1, "limits": {"groups": {"staff": "2"}}},
            "limits.groups.staff must be a whole number of 0 or more, not",
        ),
        ({"format": 1, "limits": {"everyone": 1}}, 'limits has the unknown key "everyone"'),
        ({"format": 1, "limits": {"users": ["anna"]}}, 'limits.users must be an object, not ["anna"]'),
        ({"format": 1, "form_default": True}, 'form_default must be "gpu" or "none", not true'),
        ({"format": 1, "hub": ["x"]}, 'hub must be a text, not ["x"]'),
        ({"format": 1, "idle": {"minutes": -1}}, "idle.minutes must be a whole number of 0 or more, not -1"),
        ({"format": 1, "idle": {"utilization_percent": 101}}, "must be a whole number from 0 to 100, not 101"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, data: t.Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, data)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/settings.json: ")
    assert problem in message
    assert message.endswith("Run the playbook again, or correct the file")
    assert "\n" not in message
    assert len(message) < 400


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the file does not exist"):
        read_settings(tmp_path / "none.json")
    with pytest.raises(ConfigurationError, match="can't be read \\(Is a directory\\)"):
        read_settings(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not text in UTF-8"):
        read_settings(tmp_path / "binary")
