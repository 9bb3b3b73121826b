# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked for is in the file, once, and all else is as it was, comments included."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import typing as t
from pathlib import Path

import pytest
import yaml as pyyaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ansible_collections.cudahub.gpu.plugins.module_utils import _tljh_config as tljh
from ansible_collections.cudahub.gpu.plugins.module_utils._tljh_config import ConfigError, NoLibraryError, Wish

each_library = pytest.mark.parametrize("library", tljh.LIBRARIES)

COMMENTED = """\
# The hub of the school
users:
  admin:  # who may do all
  - ada  # head
  # - bob (left)
  allowed: []
  extra_user_groups:
    staff: [ada]

# limits for classes
limits:
  memory: "1G"   # each
  cpu:   # none yet
https: {enabled: false}
auth:
  type: github
  GitHubOAuthenticator:
    client_secret: 's3cret'
# the end
"""


def loaded(text: str) -> t.Any:
    """What TLJH reads."""
    return YAML(typ="safe", pure=True).load(text)


def edit(text: str, library: str = tljh.LIBRARIES[0], **wish: t.Any) -> tljh.Edited:
    return tljh.edit(text, Wish(**wish), [library])


@each_library
def test_comments_and_form_stay(library: str) -> None:
    wish = {
        "config": {
            "users": {"admin": ["ada", "grace"], "allowed": ["x", "yes"], "extra_user_groups": {"staff": ["bob"]}},
            "limits": {"memory": "2G", "cpu": 2},
            "https": {"enabled": True, "port": 8443},
            "cudahub": {"pools": [{"name": "a", "sizes": [1, 2]}]},
        },
        "absent": ["auth.type"],
    }
    edited = edit(COMMENTED, library, **wish)
    assert (
        edited.text
        == """\
# The hub of the school
users:
  admin:  # who may do all
  - ada  # head
  - grace
  # - bob (left)
  allowed:
  - x
  - "yes"
  extra_user_groups:
    staff: [ada, bob]

# limits for classes
limits:
  memory: 2G   # each
  cpu: 2   # none yet
https: {enabled: true, port: 8443}
auth:
  GitHubOAuthenticator:
    client_secret: 's3cret'
cudahub:
  pools:
  - name: a
    sizes:
    - 1
    - 2
# the end
"""
    )
    assert (edited.changed, edited.comments_lost) == (True, False)
    again = edit(edited.text, library, **wish)
    assert (again.changed, again.text) == (False, edited.text)


PATCHES: list[tuple[str, dict[str, t.Any], str]] = [
    ("", {"config": {"a": 1}}, "a: 1\n"),
    ("# only this\n", {"config": {"a": 1}}, "# only this\na: 1\n"),
    ("---\n", {"config": {"a": {"b": None}}}, "---\na:\n  b: null\n"),
    ("{}\n", {"config": {"a": []}}, "a: []\n"),
    ("{a: 1}\n", {"config": {"b": {"c": 2}}}, "a: 1\nb:\n  c: 2\n"),
    ("~ # nothing\n", {"config": {"a": 1}}, "a: 1 # nothing\n"),
    ("a: 1", {"config": {"b": 2}}, "a: 1\nb: 2\n"),
    ("a:\n    b: 1\n", {"config": {"c": {"d": {"e": 1}}}}, "a:\n    b: 1\nc:\n    d:\n        e: 1\n"),
    ("a:\n  - x\n", {"config": {"b": ["z"]}}, "a:\n  - x\nb:\n  - z\n"),
    ("a: # why\n  b: 1\nc: 2\n", {"config": {"a": {}}, "exact": ["a"]}, "a: # why\n  {}\nc: 2\n"),
    ("a:\n  b: 1  # one\nc: 2\n", {"config": {"a": 5}, "exact": ["a"]}, "a: 5  # one\nc: 2\n"),
    ("a: 5 # five\nc: 2\n", {"config": {"a": [1]}}, "a: # five\n- 1\nc: 2\n"),
    ("a: # five\n  5\nc: 2\n", {"config": {"a": [1]}}, "a: # five\n  - 1\nc: 2\n"),
    ("a:\nc: 2\n", {"config": {"a": {"b": 1}}}, "a:\n  b: 1\nc: 2\n"),
    ("a: |\n  x\n  y\n# c\nb: 1\n", {"config": {"a": "z"}}, "a: z\n# c\nb: 1\n"),
    ("a: |\n  x\n\n# c\n", {"config": {"b": 1}}, "a: |\n  x\nb: 1\n\n# c\n"),
    ("a:\n  b: 1\n  # last\nc: 1\n", {"config": {"a": {"d": 2}}}, "a:\n  b: 1\n  d: 2\n  # last\nc: 1\n"),
    ("a: 1 # one\n# two\nb: 2\n", {"absent": ["a"]}, "# two\nb: 2\n"),
    ("# top\na:\n  b: 1\n# end\n", {"absent": ["a.b"]}, "# top\n{}\n# end\n"),
    ("a:\n  b: 1\n  c: 2\n", {"config": {"a": {"d": 3}}, "absent": ["a.b"]}, "a:\n  c: 2\n  d: 3\n"),
    ("a:\n  b: 1\nc: 0\n", {"config": {"a": {"d": 3}}, "exact": ["a"]}, "a:\n  d: 3\nc: 0\n"),
    ("a:\n- 1 # x\n- 2 # y\n- 3 # z\n", {"config": {"a": [1, 3]}}, "a:\n- 1 # x\n- 3 # z\n"),
    ("a:\n- 1 # x\n- 3 # z\n", {"config": {"a": [0, 1, 2, 3]}}, "a:\n- 0\n- 1 # x\n- 2\n- 3 # z\n"),
    ("a:\n- 1 # x\n- 3 # z\n", {"config": {"a": [1, 4]}}, "a:\n- 1 # x\n- 4 # z\n"),
    ("a:\n- b: 1 # x\n  c: 2\n", {"config": {"a": [{"b": 1, "c": 3}]}}, "a:\n- b: 1 # x\n  c: 3\n"),
    ("a:\n- b: 1 # x\n", {"config": {"a": [{"b": 1, "c": 3}]}}, "a:\n- b: 1 # x\n  c: 3\n"),
    ("a:\n-\n- 2 # y\n", {"config": {"a": [None, 2, 3]}}, "a:\n-\n- 2 # y\n- 3\n"),
    ("a:\n-\n# c\n", {"config": {"a": [None, 3]}}, "a:\n-\n- 3\n# c\n"),
    ("a: {b: 1,\n  c: 2}\n", {"config": {"a": {"d": 3}}}, "a:\n  b: 1\n  c: 2\n  d: 3\n"),
    ("a: &x {b: 1}\nc: *x # same\n", {"config": {"d": 1}}, "a: &x {b: 1}\nc: *x # same\nd: 1\n"),
    ("a: &x {b: 1}\nc: *x # same\n", {"config": {"c": {"b": 2}}}, "a: &x {b: 1}\nc: {b: 2} # same\n"),
    ("a: &x\n  b: 1 # y\n", {"config": {"a": {"d": 2}, "e": {"f": 3}}}, "a: &x\n  b: 1 # y\n  d: 2\ne:\n  f: 3\n"),
    (
        "users:\n  admin: &x # boss\n    - !!str ada # one\n  allowed: !!seq\n    - eve\n",
        {"config": {"users": {"admin": ["ada", "eve"], "allowed": ["bob"]}}},
        "users:\n  admin: &x # boss\n    - !!str ada # one\n    - eve\n  allowed: !!seq\n    - eve\n    - bob\n",
    ),
    ("a: &x {b: 1}\nc:\n  <<: *x # y\n", {"config": {"c": {"d": 2}}}, "a: &x {b: 1}\nc:\n  <<: *x # y\n  d: 2\n"),
    ("a: !t 5\nb: 2024-01-02\n", {"config": {"c": 1}}, "a: !t 5\nb: 2024-01-02\nc: 1\n"),
    ("'a b': 1\n", {"config": {"a b": 2}}, "'a b': 2\n"),
    ("a: 1\n...\n", {"config": {"b": 2}}, "a: 1\nb: 2\n...\n"),
    ("a:\n- x\n", {"config": {"a": ["x", {"z": [1]}]}}, "a:\n- x\n- z:\n  - 1\n"),
]


@each_library
@pytest.mark.parametrize(("text", "wish", "expected"), PATCHES)
def test_a_change_is_made_where_the_value_is(library: str, text: str, wish: dict[str, t.Any], expected: str) -> None:
    edited = edit(text, library, **wish)
    assert (edited.text, edited.comments_lost) == (expected, False)
    assert edit(expected, library, **wish).changed is False


@each_library
@pytest.mark.parametrize(
    ("text", "wish", "data"),
    [
        # the anchor is what another setting has, too
        ("a: &x {b: 1}\n# two\nc: *x\n", {"config": {"a": {"b": 2}}}, {"a": {"b": 2}, "c": {"b": 1}}),
        (
            "# one\na:\n  b: {c: 1, # two\n    d: 2}\n",
            {"config": {"a": {"b": {"c": 3}}}},
            {"a": {"b": {"c": 3, "d": 2}}},
        ),
        ("x: &x\n  b: 1\nc:\n  <<: *x\n  # two\n  d: 1\n", {"absent": ["c.b"]}, {"x": {"b": 1}, "c": {"d": 1}}),
    ],
)
def test_where_comments_are_lost_it_is_said_and_no_setting_is(
    library: str, text: str, wish: dict[str, t.Any], data: t.Any
) -> None:
    edited = edit(text, library, **wish)
    assert (loaded(edited.text), edited.comments_lost) == (data, True)
    assert "# two" not in edited.text


@each_library
def test_a_form_that_is_not_changed_in_place_costs_only_its_section(library: str) -> None:
    text = "# one\na:\n- - b # two\n  - c\n# three\nd: 1 # four\n"
    edited = edit(text, library, config={"a": [["c"]]})
    assert loaded(edited.text) == {"a": [["c"]], "d": 1}
    assert "# three\nd: 1 # four\n" in edited.text


names = st.sampled_from(
    ["ada", "bob", "no", "12", "a: b", "#x", "é", "1e3", "2024-01-02", "\n", "\x85", "- x", "", "🎓"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | names
keys = st.sampled_from(["a", "b", "c", "yes", "x y", "1"])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
configs = st.fixed_dictionaries(
    {},
    optional={
        "a": values,
        "b": st.dictionaries(keys, values, max_size=3),
        "users": st.fixed_dictionaries({}, optional={"admin": st.lists(names, max_size=4)}),
        "limits": st.fixed_dictionaries({}, optional={"memory": names, "cpu": scalars}),
    },
)


@each_library
@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    start=configs,
    config=configs,
    absent=st.lists(st.sampled_from(["a", "b.a", "c.a.b", "users.admin", "limits"]), max_size=2),
    exact=st.lists(st.sampled_from(["a", "b", "users.admin"]), max_size=2),
    flow=st.sampled_from([None, True, False]),
    indent=st.sampled_from([2, 4]),
)
def test_any_merge_gives_the_whole_and_a_second_one_changes_nothing(
    library: str, start: t.Any, config: t.Any, absent: list[str], exact: list[str], flow: bool | None, indent: int
) -> None:
    text = pyyaml.safe_dump(start, default_flow_style=flow, indent=indent, sort_keys=False, allow_unicode=True)
    before = tljh.edit(text, Wish(), [library]).before
    absent = [path for path in absent if tljh.find(config, path) is None]
    wish = Wish(config, absent, exact)
    try:
        expected = tljh.merged(before, wish)
    except ConfigError:
        return
    edited = tljh.edit(text, wish, [library])
    assert tljh.same(tljh.shown(loaded(edited.text) or {}), tljh.shown(expected))
    again = tljh.edit(edited.text, wish, [library])
    assert (again.changed, again.text) == (False, edited.text)


@pytest.mark.parametrize(
    ("before", "wish", "after"),
    [
        ({"a": {"b": 1}}, {"config": {"a": {"c": 2}}}, {"a": {"b": 1, "c": 2}}),
        ({"users": {"admin": ["b"]}}, {"config": {"users": {"admin": ["a", "b", "a"]}}},
         {"users": {"admin": ["b", "a"]}}),
        ({"users": {"admin": ["b"]}}, {"config": {"users": {"admin": ["a"]}}, "exact": ["users.admin"]},
         {"users": {"admin": ["a"]}}),
        ({"users": {"admin": ["b"], "banned": ["c"]}}, {"config": {"users": {"admin": ["a", "a"]}}, "exact": ["users"]},
         {"users": {"admin": ["a"]}}),
        ({"users": {"extra_user_groups": {"g": ["b"]}}}, {"config": {"users": {"extra_user_groups": {"g": ["a"]}}}},
         {"users": {"extra_user_groups": {"g": ["b", "a"]}}}),
        ({"https": {"letsencrypt": {"domains": ["b"]}}}, {"config": {"https": {"letsencrypt": {"domains": ["a"]}}}},
         {"https": {"letsencrypt": {"domains": ["b", "a"]}}}),
        ({"users": {"allowed": ["b"]}}, {"config": {"users": {"allowed": []}}}, {"users": {"allowed": ["b"]}}),
        ({"users": {"banned": None}}, {"config": {"users": {"banned": ["a", "a"]}}}, {"users": {"banned": ["a"]}}),
        ({"x": {"admin": ["b"]}}, {"config": {"x": {"admin": ["a"]}}}, {"x": {"admin": ["a"]}}),
        ({"limits": {"cpu": 2.0}}, {"config": {"limits": {"cpu": 2}}}, {"limits": {"cpu": 2.0}}),
        ({"a": 1}, {"config": {"a": True}}, {"a": True}),
        ({"a": None}, {"config": {"a": {"b": 1}}}, {"a": {"b": 1}}),
        ({"a": 1}, {"absent": ["b", "a.b"]}, {"a": 1}),
        ({"a": {"b": {"c": 1}}, "d": 1}, {"absent": ["a.b.c"]}, {"d": 1}),
        ({"a": {"b.c": {"d": 1}, "e": 1}}, {"absent": ["a.b.c.d"]}, {"a": {"e": 1}}),
        ({"a": {12: 1, "b": 2}}, {"absent": ["a.12"]}, {"a": {"b": 2}}),
    ],
)  # fmt: skip
def test_merging(before: t.Any, wish: dict[str, t.Any], after: t.Any) -> None:
    result = tljh.merged(before, Wish(**wish))
    assert repr(result) == repr(after)


@pytest.mark.parametrize(
    ("before", "config", "sentence"),
    [
        ({"a": {"b": 1}}, {"a": 1}, "a is a mapping in the file, and a single value is asked for"),
        ({"a": {"b": 1}}, {"a": {"b": {"c": 1}}}, "a.b is a single value in the file, and a mapping is asked for"),
        (
            {"users": {"admin": "ada"}},
            {"users": {"admin": ["a"]}},
            "users.admin is a single value in the file, and a list",
        ),
    ],
)
def test_what_would_lose_settings_needs_exact(before: t.Any, config: t.Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        tljh.merged(before, Wish(config))
    assert str(error.value).startswith(sentence)
    path = sentence.split(" ", maxsplit=1)[0]
    after = tljh.merged(before, Wish(config, exact=[path]))
    place = tljh.find(config, path)
    assert place is not None
    assert tljh.at(after, place) == tljh.at(config, place)


@each_library
@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("a: 1\nb: [\n", "line 3, column 1", ""),
        ("a: 1\n b: 2\n", "line 2, column 3", ""),
        ("a:\n\t- x\n", "line 2, column 1", ""),
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1", "the key 'a' is there twice"),
        ("x:\n  a: 1\n  a: 3\n", "line 3, column 3", "the key 'a' is there twice"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1", ""),
        ("a: *x\n", "line 1, column 4", "undefined alias"),
        ("a: 1\nb: \x01\n", "line 2, column 4", ""),
        ("# c\n- a\n", "line 2, column 1", "here is no mapping of settings"),
        ("just words\n", "line 1, column 1", "here is no mapping of settings"),
        ("? [a]\n: 1\n", "line 1, column 3", "this key is no single value"),
        ("a: &x\n  b: *x\n", "line 1, column 4", "this contains itself"),
        ("a:\n  <<: 1\n", "line 2, column 3", "<< takes mappings only"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(library: str, text: str, where: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        edit(text, library, config={"c": 1})
    assert str(error.value).startswith(f"{where}: ")
    assert why in str(error.value)
    assert str(error.value).endswith("; correct it by hand, since it is not overwritten")


@each_library
def test_values_are_those_that_the_hub_reads(library: str) -> None:
    text = "\n".join(
        f"k{index}: {plain}"
        for index, plain in enumerate(
            [
                "yes",
                "on",
                "010",
                "0o10",
                "0x1F",
                "0b11",
                "1_000",
                "12:30",
                "1e3",
                ".5",
                "-.inf",
                "~",
                "",
                "Null",
                "TRUE",
            ]
        )
    )
    assert edit(text + "\n", library).before == tljh.shown(loaded(text))


def test_what_is_quoted_is_the_same_for_older_readers() -> None:
    """PyYAML reads YAML 1.1, as some tools that look at the file do."""
    words = [
        "yes",
        "y",
        "off",
        "0o10",
        "1e3",
        "12:30",
        "1_0",
        "~",
        "",
        "2G",
        "a: b",
        "a:",
        "a #b",
        "[",
        "2024-01-02",
        "=",
    ]
    text = edit("", config={"words": words}).text
    assert pyyaml.safe_load(text) == loaded(text) == {"words": words}
    assert "- 2G\n" in text


def test_without_a_library() -> None:
    with pytest.raises(NoLibraryError):
        tljh.edit("", Wish(), ["no_such_library"])


def hub(tmp_path: Path, content: str | None = None) -> str:
    python = tmp_path / "hub/bin/python"
    python.parent.mkdir(parents=True)
    if content is None:
        content = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    python.write_text(content)
    python.chmod(0o755)
    return str(tmp_path / "config/config.yaml")


def test_the_hubs_python_answers_the_same(tmp_path: Path) -> None:
    path = hub(tmp_path)
    python = tljh.hub_python(path)
    wish = Wish({"users": {"admin": ["é'\"\\\n"]}, "a": float("inf")}, ["auth.type"], ["users.admin"])
    asked = tljh.edit_with(python, COMMENTED, wish)
    assert asked.library.endswith(f" of {python}")
    own = tljh.edit(COMMENTED, wish)
    assert (asked.text, asked.before, asked.after, asked.changed) == (own.text, own.before, own.after, own.changed)
    with pytest.raises(ConfigError, match="line 1, column 4"):
        tljh.edit_with(python, "a: *x\n", wish)


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "#!/no/such/python\n", "#!/bin/sh\necho noise\n"])
def test_a_broken_hub_is_no_hindrance(tmp_path: Path, content: str) -> None:
    python = tljh.hub_python(hub(tmp_path, content))
    assert python is not None
    edited = tljh.edit_with(python, "a: 1\n", Wish({"b": 2}))
    assert edited.text == "a: 1\nb: 2\n"
    assert " of " not in edited.library


def test_there_may_be_no_hub(tmp_path: Path) -> None:
    assert tljh.hub_python(str(tmp_path / "config/config.yaml")) is None


def nested(path: str, value: t.Any) -> dict[str, t.Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return t.cast("dict[str, t.Any]", value)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("users", None, "users is null: give a mapping of settings"),
        ("users.admins", ["a"], "users.admins is no setting of TLJH, which has "),
        ("users.admin", "ada", 'users.admin is "ada": give a list'),
        ("users.admin", None, "users.admin is null: give a list"),
        ("users.admin", ["ada:pw"], 'users.admin has "ada:pw": give names of users, without colon and slash'),
        ("users.allowed", [12], "users.allowed has 12: give names"),
        ("users.banned", [" a"], 'users.banned has " a"'),
        ("users.extra_user_groups", ["g"], 'users.extra_user_groups is ["g"]: give a mapping'),
        ("users.extra_user_groups", {"a b": []}, "users.extra_user_groups has the group 'a b': give names of groups"),
        ("users.extra_user_groups", {"g": "ada"}, 'users.extra_user_groups.g is "ada": give a list'),
        ("users.extra_user_groups", {"g": ["a/b"]}, 'users.extra_user_groups.g has "a/b"'),
        ("limits.memory", 2, "limits.memory is 2: give a text such as '2G'"),
        ("limits.memory", "2GB", 'limits.memory is "2GB"'),
        ("limits.memory", "2147483648", 'limits.memory is "2147483648"'),
        ("limits.cpu", "2", 'limits.cpu is "2": give a number of cores'),
        ("limits.cpu", True, "limits.cpu is true"),
        ("limits.cpu", -1, "limits.cpu is -1"),
        ("limits.ram", "1G", "limits.ram is no setting of TLJH, which has memory, cpu there"),
        ("http.port", 0, "http.port is 0: give a number from 1 to 65535"),
        ("http.port", 65536, "http.port is 65536"),
        ("http.port", "80", 'http.port is "80"'),
        ("http.port", True, "http.port is true"),
        ("http.address", "1.2.3", 'http.address is "1.2.3": give an address'),
        ("http.address", "::1", 'http.address is "::1"'),
        ("http.address", "[1]", 'http.address is "[1]"'),
        ("http.address", "host:80", 'http.address is "host:80"'),
        ("https.enabled", "yes", 'https.enabled is "yes": give true or false'),
        ("https.tls", None, "https.tls is null: give a mapping"),
        ("https.tls.key", "key.pem", 'https.tls.key is "key.pem": give an absolute path'),
        ("https.tls.cert", "/root/x.pem", 'https.tls.cert is "/root/x.pem"'),
        ("https.tls.cert", 1, "https.tls.cert is 1"),
        ("https.letsencrypt.email", "me", 'https.letsencrypt.email is "me": give an address of mail'),
        ("https.letsencrypt.domains", "a.org", 'https.letsencrypt.domains is "a.org": give a list'),
        ("https.letsencrypt.domains", ["https://a.org"], 'https.letsencrypt.domains has "https://a.org": give names'),
        ("https.letsencrypt.domains", ["*.a.org"], 'https.letsencrypt.domains has "*.a.org"'),
        (
            "https.letsencrypt.staging_server",
            "x",
            "https.letsencrypt.staging_server is no setting of TLJH, which has email",
        ),
        ("auth", {"type": "githb"}, 'auth.type is "githb": give a short name'),
        ("auth", {"type": None}, "auth.type is null"),
        ("auth", {"client_id": "x"}, "auth.client_id is nothing that TLJH takes"),
        ("auth", {"GitHubOAuthenticator": None}, "auth.GitHubOAuthenticator is nothing that TLJH takes"),
        ("base_url", "", 'base_url is "": give a path that begins with /'),
        ("base_url", "hub", 'base_url is "hub"'),
        ("user_environment.default_app", "lab", 'user_environment.default_app is "lab": give jupyterlab or classic'),
        ("services.cull", None, "services.cull is null"),
        ("services.cull.timeout", "600", 'services.cull.timeout is "600": give a whole number'),
        ("services.cull.max_age", -1, "services.cull.max_age is -1"),
        ("services.cull.enable", True, "services.cull.enable is no setting of TLJH"),
        ("traefik_api.port", 70000, "traefik_api.port is 70000"),
        ("traefik_api.password", 123456, 'traefik_api.password is "********": give a text'),
    ],
)
def test_mistakes(path: str, value: t.Any, sentence: str) -> None:
    (mistake,) = tljh.mistakes(nested(path, value))
    assert mistake.startswith(sentence)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"cudahub": {"anything": [1]}, "base_url": "/hub/"},
        {"users": {"admin": ["ada@example.org"], "allowed": [], "extra_user_groups": {"gpu-users": ["ada"]}}},
        {"limits": {"memory": None, "cpu": 0.5}},
        {"limits": {"memory": "1.5G", "cpu": None}},
        {"http": {"address": "", "port": 8080}, "https": {"address": "10.0.0.1", "port": 1}},
        {"http": {"address": "[::1]"}, "https": {"address": "localhost", "port": 65535}},
        {"https": {"tls": {"key": "", "cert": "/etc/rooted/x.pem"}, "letsencrypt": {"email": "", "domains": []}}},
        {"https": {"letsencrypt": {"email": "a@b.org", "domains": ["hub.b.org", "x-y.b.org"], "staging": True}}},
        {"auth": {"type": "GitHub", "GitHubOAuthenticator": {"client_id": "x"}}},
        {"auth": {"type": "firstuseauthenticator.FirstUseAuthenticator"}},
        {"services": {"cull": {"enabled": False, "timeout": 0}, "configurator": {"enabled": True}}},
        {"traefik_api": {"ip": "127.0.0.1", "port": 8099, "username": "u", "password": "p"}},
        {"user_environment": {"default_app": "classic"}},
    ],
)
def test_no_mistakes(config: dict[str, t.Any]) -> None:
    assert tljh.mistakes(config) == []


TLS = {"key": "/k", "cert": "/c"}


@pytest.mark.parametrize(
    ("config", "sentences"),
    [
        ({"https": {"letsencrypt": {"email": "a@b"}}}, ["https.letsencrypt has email and no domains: give both"]),
        ({"https": {"letsencrypt": {"domains": ["a.b"]}}}, ["https.letsencrypt has domains and no email: give both"]),
        ({"https": {"tls": {"key": "/k"}}}, ["https.tls has key and no cert: give both"]),
        ({"https": {"tls": {"cert": "/k", "key": ""}}}, ["https.tls has cert and no key: give both"]),
        ({"https": {"enabled": True}}, ["https.enabled is true, and there is no certificate: give"]),
        ({"https": {"enabled": True, "tls": TLS}}, []),
        ({"https": {"enabled": True, "letsencrypt": {"email": "a@b", "domains": ["a.b"]}}}, []),
        ({"http": {"port": 443}, "https": {"enabled": True, "tls": TLS}}, ["http.port and https.port are the same"]),
        ({"http": {"port": 443}}, []),
    ],
)
def test_contradictions(config: dict[str, t.Any], sentences: list[str]) -> None:
    found = tljh.contradictions(config)
    assert [sentence[: len(expected)] for sentence, expected in zip(found, sentences, strict=True)] == sentences


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"absent": ["a..b"]}, "absent: 'a..b' is no path of keys"),
        ({"absent": [""]}, "absent: '' is no path of keys"),
        ({"config": {"a": {"b": 1}}, "absent": ["a.b"]}, "absent: a.b is in config, too"),
        ({"config": {"a": {"b": 1}}, "absent": ["a"]}, "absent: a is in config, too"),
        ({"config": {"a": {"b": 1}}, "exact": ["a.c"]}, "exact: a.c is not in config"),
    ],
)
def test_paths_that_are_refused(wish: dict[str, t.Any], sentence: str) -> None:
    (found,) = tljh.refused(Wish(**wish))
    assert found.startswith(sentence)


def test_paths_that_are_fine() -> None:
    assert tljh.refused(Wish({"a": {"b": 1}}, ["a.c"], ["a.b"])) == []


ON = {"enabled": True, "tls": TLS}


@pytest.mark.parametrize(
    ("before", "after", "needed"),
    [
        ({}, {}, []),
        ({}, {"users": {"admin": ["a"]}}, ["hub"]),
        ({"users": {"admin": ["a", "b"]}}, {"users": {"admin": ["b", "a", "b"]}}, []),
        ({}, {"limits": {"memory": "1G"}}, ["hub"]),
        ({"limits": {"memory": "1G"}}, {}, ["hub"]),
        ({}, {"base_url": "/a"}, ["hub"]),
        ({}, {"cudahub": {"pools": []}}, ["hub"]),
        ({}, {"services": {"cull": {"users": True}}}, ["hub"]),
        ({}, {"http": {"port": 8080}}, ["proxy"]),
        ({}, {"https": {"port": 8443}}, []),
        ({}, {"https": {"enabled": False}}, []),
        ({}, {"https": ON}, ["hub", "proxy"]),
        ({"https": ON}, {"https": {**ON, "enabled": False}}, ["hub", "proxy"]),
        ({"https": ON}, {"https": {**ON, "port": 8443}}, ["proxy"]),
        ({"https": ON}, {"https": {**ON, "tls": {**TLS, "key": "/k2"}}, "users": {"admin": ["a"]}}, ["hub", "proxy"]),
        ({}, {"traefik_api": {"port": 8100}}, ["proxy"]),
        ({}, {"traefik_api": {"password": "x"}}, ["hub"]),
        ({}, {"traefik_api": {"ip": "127.0.0.2"}}, []),
    ],
)
def test_what_has_to_be_reloaded(before: dict[str, t.Any], after: dict[str, t.Any], needed: list[str]) -> None:
    assert tljh.reloads(before, after) == needed


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("client_secret", True), ("password", True), ("lookup_dn_search_password", True), ("api_token", True),
        ("cookie_secret", True), ("apiKey", True), ("keys", True), ("crypt_key", True), ("passphrase", True),
        ("key", False), ("client_id", False), ("token_url", False), ("minimum_password_length", False),
        ("enable_auth_state", False), ("admin", False), ("keyserver", False), ("memory", False),
    ],
)  # fmt: skip
def test_what_is_secret(key: str, secret: bool) -> None:
    masked = tljh.masked({"C": {key: ["xyzzy", {"x": 5}]}})
    assert masked == ({"C": {key: [tljh.HIDDEN, {"x": tljh.HIDDEN}]}} if secret else {"C": {key: ["xyzzy", {"x": 5}]}})
    assert tljh.secrets({"C": {key: ["xyzzy", {"x": 5}]}}) == ({"xyzzy", "5"} if secret else set())


def test_secrets_in_addresses_and_none_at_all() -> None:
    config = {"url": "https://me:pa55@example.org/", "password": "", "token": None, "secret": True}
    assert tljh.masked(config) == {**config, "url": "https://me:********@example.org/"}
    assert tljh.secrets(config) == {"pa55"}


def test_a_difference_shows_that_a_secret_changed_but_not_which() -> None:
    old, new = {"a": {"token": "one", "x": 1}}, {"a": {"token": "two", "x": 1}}
    before, after = tljh.difference(old, new)
    assert before != after
    assert "one" not in before + after.replace("another one", "")
    assert "two" not in before + after
    assert len(set(tljh.difference(old, old))) == 1


def test_reading(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    assert tljh.read(str(file)) is None
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert tljh.read(str(file)) == "a: 1\nb: 2\n"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match="line 2, column 4: here is no text in UTF-8"):
        tljh.read(str(file))
    for special in (tmp_path, tmp_path / "pipe"):
        if special != tmp_path:
            os.mkfifo(special)
        with pytest.raises(ConfigError, match="it is no file"):
            tljh.read(str(special))


def test_writing_keeps_link_and_mode_and_leaves_nothing_behind(tmp_path: Path) -> None:
    real = tmp_path / "real/config.yaml"
    real.parent.mkdir()
    link = tmp_path / "config.yaml"
    link.symlink_to("real/config.yaml")
    tljh.write(str(link), "a: 1\n")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    real.chmod(0o640)
    inode = real.stat().st_ino
    tljh.write(str(link), "a: 2\n")
    assert (link.is_symlink(), real.read_text()) == (True, "a: 2\n")
    assert (stat.S_IMODE(real.stat().st_mode), real.stat().st_ino != inode) == (0o640, True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config.yaml", "config.yaml", "real"]


def test_a_write_that_fails_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: 1\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        tljh.write(str(file), "a: 2\n")
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert file.read_text() == "a: 1\n"


def test_copies(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    assert tljh.keep(str(file), 0) is None
    file.write_text("a: 1\n")
    file.chmod(0o440)
    kept = [tljh.keep(str(file), 0), tljh.keep(str(file), 0)]
    assert kept == [f"{file}.1970-01-01T000000Z", f"{file}.1970-01-01T000000Z-1"]
    assert {(Path(str(path)).read_text(), stat.S_IMODE(Path(str(path)).stat().st_mode)) for path in kept} == {
        ("a: 1\n", 0o440)
    }


def test_the_lock_is_the_one_of_tljh_config(tmp_path: Path) -> None:
    path = str(tmp_path / "config.yaml")
    with open(f"{path}.lock", "w", encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with (
            pytest.raises(ConfigError, match=r"another process has held .*config.yaml.lock for 0 s"),
            tljh.locked(path, 0),
        ):
            pass
        fcntl.flock(other, fcntl.LOCK_UN)
        with tljh.locked(path, 0), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
