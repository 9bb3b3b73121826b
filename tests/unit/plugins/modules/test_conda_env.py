# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module returns what its documentation says, and refuses bad parameters in a sentence before it does anything."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils._conda_answer import Kind
from ansible_collections.cudahub.gpu.plugins.modules import conda_env

LOCK = "https://conda.anaconda.org/conda-forge/noarch/six-1.17.0-pyhd8ed1ab_0.conda#" + "0" * 32


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment with a package that comes from a channel with a password."""
    record = {
        "name": "six",
        "version": "1.17.0",
        "build": "pyhd8ed1ab_0",
        "channel": "https://me:pa55@example.org/t/t0ken/forge/noarch",
        "url": "https://me:pa55@example.org/t/t0ken/forge/noarch/six-1.17.0-pyhd8ed1ab_0.conda",
        "md5": "0" * 32,
    }
    meta = tmp_path / "env/conda-meta"
    meta.mkdir(parents=True)
    (meta / "history").touch()
    (meta / "six-1.17.0-pyhd8ed1ab_0.json").write_text(json.dumps(record))
    return tmp_path / "env"


def run(capsys: pytest.CaptureFixture[str], environment: Path, **params: t.Any) -> tuple[int, dict[str, t.Any]]:
    usual = {"prefix": str(environment), "executable": "/nonexistent", "log": str(environment.parent / "log")}
    given = {**usual, **params}
    given = {name: value for name, value in given.items() if value is not None}
    with patch_module_args(given), pytest.raises(SystemExit) as ended:
        conda_env.main()
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def test_returned_is_documented(capsys: pytest.CaptureFixture[str], prefix: Path) -> None:
    documented = yaml.safe_load(conda_env.RETURN)
    code, result = run(capsys, prefix, packages=["six"])
    assert (code, result["changed"]) == (0, False)
    assert set(result) - {"changed", "diff", "invocation"} == set(documented) - {"failure"}
    assert {frozenset(one) for one in result["packages"]} == {frozenset(documented["packages"]["contains"])}
    code, result = run(capsys, prefix, packages=["six=1.16"])
    assert code == 1
    assert set(result["failure"]) == set(documented["failure"]["contains"])
    assert result["failure"]["kind"] == "broken"
    assert result["msg"].startswith(f"{prefix}: executable /nonexistent is not there")


def test_a_lock_has_no_passwords(capsys: pytest.CaptureFixture[str], prefix: Path) -> None:
    _code, result = run(capsys, prefix, packages=["six"])
    assert result["lock"] == ["https://example.org/forge/noarch/six-1.17.0-pyhd8ed1ab_0.conda#" + "0" * 32]
    assert "pa55" not in json.dumps(result)
    assert "t0ken" not in json.dumps(result)


def test_every_kind_of_failure_is_documented() -> None:
    text = " ".join(yaml.safe_load(conda_env.RETURN)["failure"]["contains"]["kind"]["description"])
    kinds = {*t.get_args(Kind), "lock", "place"}
    assert {kind for kind in kinds if f"V({kind})" not in text} == set()


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"prefix": "env"}, "prefix is 'env': give the absolute path of one environment"),
        ({"prefix": "/"}, "prefix is '/'"),
        ({"prefix": None, "name": "a/b"}, "name is 'a/b': give a name without spaces and slashes"),
        ({"packages": ["six=="]}, "packages: '==' is no version spec"),
        ({"packages": ["six", "six=1"]}, "packages names six twice: 'six' and 'six=1'"),
        ({"packages": [LOCK]}, "is an address: put it into lock, with state locked"),
        ({"packages": ["numpy==1.26.*"]}, "is no version spec that all tools read alike"),
        ({"state": "locked"}, "state is locked, and there is no package in the lock: give lock or lock_file"),
        ({"state": "locked", "lock": ["@EXPLICIT", "# nothing"]}, "there is no package in the lock"),
        ({"prefix": ""}, "prefix is ''"),
        ({"packages": ["https://me:pa55@example.org/forge::six"]}, "has a password or a token in it"),
        ({"packages": ["http://example.org/t/t0ken/forge::six"]}, "has a password or a token in it"),
        ({"packages": ["__glibc>=2.17"]}, "is what the machine has, and no package"),
        ({"state": "locked", "lock": ["six"]}, "lock: 'six' is no address of a package with its hash"),
        ({"state": "locked", "lock": [LOCK[:-33]]}, "is no address of a package with its hash"),
        ({"state": "locked", "lock": [LOCK[:-1]]}, "is no address of a package with its hash"),
        ({"state": "locked", "lock": [LOCK], "packages": ["six"]}, "packages can't be chosen with state locked"),
        ({"lock": [LOCK]}, "lock is for state locked, and state is present"),
        ({"umask": "rwx"}, "umask is 'rwx': give an octal number in quotes"),
        ({"umask": "18"}, "umask is '18'"),
        ({"cuda": "twelve"}, "cuda is 'twelve': give a version such as \"12.9\""),
        ({"channels": ["conda forge"]}, "channels: 'conda forge' is no channel"),
        ({"channels": ["--help"]}, "channels: '--help' is no channel"),
        ({"lock_timeout": -1}, "lock_timeout is -1: give a number of seconds"),
        ({"owner": "nobody-of-this-name"}, "owner nobody-of-this-name is not known on this host"),
        ({"pip": ["-r more.txt"]}, "names a file beside the list of requirements"),
        ({"pip": ["a\nb"]}, "has several lines"),
        ({"exact": True}, "no packages are asked for, and with none, all would go"),
        ({"state": "latest"}, "no packages are asked for, and state is latest"),
    ],
)
def test_bad_parameters(
    capsys: pytest.CaptureFixture[str], prefix: Path, params: dict[str, t.Any], sentence: str
) -> None:
    before = sorted(str(path) for path in prefix.rglob("*"))
    code, result = run(capsys, prefix, **params)
    assert code == 1
    assert sentence in result["msg"]
    assert result["failure"]["kind"] in ("place", "spec")
    assert sorted(str(path) for path in prefix.rglob("*")) == before


def test_check_mode_knows_no_lock_of_a_host_that_has_none_yet(
    capsys: pytest.CaptureFixture[str], prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(conda_env.AnsibleModule, "warn", lambda _module, warning, **_more: said.append(warning))
    code, result = run(capsys, prefix, state="locked", lock=[], _ansible_check_mode=True)
    assert (code, result["changed"], [one["name"] for one in result["packages"]]) == (0, False, ["six"])
    assert "The lock is empty" in said[0]
    assert run(capsys, prefix, state="locked", lock=[])[0] == 1
