# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module changes once, tells what to reload, refuses in a sentence before it writes, and shows no secret."""

from __future__ import annotations

import fcntl
import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.parameters import PASS_VARS
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils import _tljh_config
from ansible_collections.cudahub.gpu.plugins.modules import tljh_config

Run = t.Callable[..., tuple[int, dict[str, t.Any]]]

OLD = "# ours\nusers:\n  admin:\n  - ada\nauth:\n  GitHubOAuthenticator:\n    client_secret: old-s3cret\n"


# Older ansible-cores always return the invocation.
INVOCATION = {"_ansible_inject_invocation": True} if "inject_invocation" in PASS_VARS else {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A config.yaml of a hub that is not there yet."""
    (tmp_path / "config").mkdir()
    path = tmp_path / "config/config.yaml"
    path.write_text(OLD)
    path.chmod(0o600)
    return path


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings. Where the process is a controller's, ansible-core displays them instead of returning them."""
    warnings: list[str] = []
    monkeypatch.setattr(tljh_config.AnsibleModule, "warn", lambda _module, message: warnings.append(message))
    return warnings


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_module(*, check: bool = False, **params: t.Any) -> tuple[int, dict[str, t.Any]]:
        args = {"path": str(file), "_ansible_check_mode": check, **INVOCATION, **params}
        with patch_module_args(args), pytest.raises(SystemExit) as ended:
            tljh_config.main()
        return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

    return run_module


def there(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.iterdir())


def test_a_change_is_made_once(run: Run, file: Path) -> None:
    wish = {"config": {"users": {"admin": ["grace"]}, "http": {"port": 8080}}}
    code, foreseen = run(check=True, **wish)
    assert (code, foreseen["changed"], there(file)) == (0, True, ["config.yaml"])
    code, result = run(**wish)
    assert (code, result["changed"], result["reload"]) == (0, True, ["hub", "proxy"])
    assert {name: result[name] for name in foreseen} == foreseen
    assert file.read_text() == OLD.replace("- ada\n", "- ada\n  - grace\n") + "http:\n  port: 8080\n"
    assert Path(result["backup_file"]).read_text() == OLD
    assert Path(result["backup_file"]).parent == file.parent
    assert "  - grace" in result["diff"]["after"]
    assert "grace" not in result["diff"]["before"]
    before = there(file)
    code, result = run(**wish)
    assert (code, result["changed"], result["reload"], there(file)) == (0, False, [], before)
    assert "backup_file" not in result


def test_without_a_backup(run: Run, file: Path) -> None:
    _code, result = run(absent=["users.admin"], backup=False)
    assert (result["changed"], result["reload"]) == (True, ["hub"])
    assert [name for name in there(file) if name != "config.yaml.lock"] == ["config.yaml"]
    assert "users" not in result["config"]


@pytest.mark.parametrize("text", [None, ""])
def test_a_new_file(run: Run, file: Path, text: str | None) -> None:
    file.unlink()
    if text is not None:
        file.write_text(text)
    code, result = run(config={"limits": {"memory": "2G"}})
    assert (code, file.read_text(), "backup_file" in result) == (0, "limits:\n  memory: 2G\n", text is not None)
    if text is None:
        assert file.stat().st_mode & 0o777 == 0o600


def test_returned_is_documented(run: Run) -> None:
    documented = yaml.safe_load(tljh_config.RETURN)
    code, result = run(config={"base_url": "/x"})
    assert code == 0
    assert set(result) - {"changed", "diff", "invocation"} == set(documented) - {"mistakes"}
    code, result = run(config={"base_url": "x"})
    assert (code, set(result) - {"failed", "invocation"}) == (1, {"msg", "mistakes"})


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("wrong", [{}, {"http": {"port": 0}}])
def test_secrets_are_never_shown(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, t.Any], check: bool
) -> None:
    logged: list[str] = []

    def log(_module: object, text: str, log_args: object = None) -> None:
        logged.append(f"{text} {log_args}")

    monkeypatch.setattr(tljh_config.AnsibleModule, "log", log)
    config = {
        "auth": {"GitHubOAuthenticator": {"client_id": "me", "client_secret": "new-s3cret"}, "X": {"password": "ab"}}
    }
    code, result = run(check=check, config={**config, **wrong})
    output = json.dumps([result, logged])
    assert (code, "s3cret" in output, '"ab"' in output) == (len(wrong), False, False)
    assert len(logged) == 1
    given = result["invocation"]["module_args"]["config"]["auth"]["GitHubOAuthenticator"]
    assert given == {"client_id": "me", "client_secret": "********"}
    if not wrong:
        assert result["config"]["auth"]["GitHubOAuthenticator"] == given
        assert result["diff"]["before"] != result["diff"]["after"]
        assert ("new-s3cret" in file.read_text()) is not check


@pytest.mark.parametrize(
    ("text", "params", "sentences"),
    [
        (OLD, {"config": {"http": {"port": 0}, "limits": {"memory": 2}}}, ["limits.memory is 2", "http.port is 0"]),
        (OLD, {"config": {"https": {"enabled": True}}}, ["https.enabled is true, and there is no certificate"]),
        (OLD, {"absent": ["a..b"]}, ["absent: 'a..b' is no path"]),
        (OLD, {"config": {"a": 1}, "exact": ["b"]}, ["exact: b is not in config"]),
        (OLD, {"config": {"auth": {"GitHubOAuthenticator": {"client_secret": {"a": 1}}}}},
         ["auth.GitHubOAuthenticator.client_secret is a single value in the file"]),
        ("a: [\n", {"config": {"b": 1}}, ["line 2, column 1"]),
        ("http:\n  port: 443\n", {"config": {"https": {"enabled": True, "tls": {"key": "/k", "cert": "/c"}}}},
         ["http.port and https.port are the same"]),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_anything_is_written(
    run: Run, file: Path, text: str, params: dict[str, t.Any], sentences: list[str]
) -> None:
    file.write_text(text)
    for check in (True, False):
        code, result = run(check=check, **params)
        assert code == 1
        assert [sentence in got for sentence, got in zip(sentences, result["mistakes"], strict=True)] == [
            True for _sentence in sentences
        ]
        assert result["msg"].startswith(str(file))
        assert all(sentence in result["msg"] for sentence in sentences)
        assert (file.read_text(), there(file)) == (text, ["config.yaml"])


def test_mistakes_of_others_are_warnings(run: Run, file: Path, warned: list[str]) -> None:
    file.write_text("users:\n  admins: [ada]\n")
    code, _result = run(config={"base_url": "/x"})
    assert (code, file.read_text()) == (0, "users:\n  admins: [ada]\nbase_url: /x\n")
    (warning,) = warned
    assert warning.startswith(f"{file}: users.admins is no setting of TLJH")
    code, _result = run(config={"users": {"admins": ["ada"]}})
    assert code == 1


def test_lost_comments_are_said(run: Run, file: Path, warned: list[str]) -> None:
    file.write_text("a: &x {b: 1}\n# two\nc: *x\n")
    _code, result = run(config={"a": {"b": 2}})
    (warning,) = warned
    assert "not all comments can be kept" in warning
    assert Path(result["backup_file"]).read_text() == "a: &x {b: 1}\n# two\nc: *x\n"


def test_places_that_can_not_be(run: Run, file: Path) -> None:
    away = str(file.parent / "no/config.yaml")
    code, result = run(path=away, config={"a": 1})
    assert (code, result["msg"]) == (
        1, f"{away}: there is no directory {file.parent}/no: install TLJH, or create it with mode 0700"
    )  # fmt: skip
    code, result = run(path=away, config={"a": 1}, check=True)
    assert (code, result["changed"]) == (0, True)
    code, result = run(path="config.yaml", config={"a": 1})
    assert (code, result["mistakes"]) == (1, ["path is 'config.yaml': give an absolute path"])
    code, result = run(path=str(file.parent), config={"a": 1})
    assert (code, result["msg"]) == (1, f"{file.parent}: it is no file")


def test_failures_of_the_system_are_said(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, text: str) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(_tljh_config, "write", full)
    code, result = run(config={"a": 1})
    assert (code, result["msg"]) == (1, f"{file}: No space left on device")


def test_no_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_args: object) -> t.NoReturn:
        raise _tljh_config.NoLibraryError

    monkeypatch.setattr(_tljh_config, "edit_with", none)
    code, result = run(config={"a": 1})
    assert code == 1
    assert result["msg"].endswith("neither a hub of TLJH nor ruamel.yaml nor PyYAML on the host: install one of them")


def test_a_change_waits_for_tljh_config(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tljh_config, "LOCK_TIMEOUT", 0.0)
    with open(f"{file}.lock", "w", encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        code, result = run(config={"a": 1})
        assert (code, file.read_text()) == (1, OLD)
        assert f"another process has held {file}.lock" in result["msg"]
        code, result = run(config={"users": {"admin": ["ada"]}})
        assert (code, result["changed"]) == (0, False)
    code, result = run(config={"a": 1})
    assert (code, result["changed"]) == (0, True)


def test_what_another_process_wrote_meanwhile_stays(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _tljh_config.locked

    def slow(path: str, timeout: float) -> t.Any:
        file.write_text(f"{OLD}limits:\n  cpu: 1\n")
        return real(path, timeout)

    monkeypatch.setattr(_tljh_config, "locked", slow)
    _code, result = run(config={"limits": {"memory": "1G"}})
    assert result["config"]["limits"] == {"cpu": 1, "memory": "1G"}
    assert file.read_text() == f"{OLD}limits:\n  cpu: 1\n  memory: 1G\n"
