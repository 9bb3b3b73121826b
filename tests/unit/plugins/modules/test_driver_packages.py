# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module returns what its documentation says, and refuses bad parameters in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver_record, _preflight, _scratch
from ansible_collections.cudahub.gpu.plugins.module_utils import _driver_transaction as driver
from ansible_collections.cudahub.gpu.plugins.module_utils._dkms import Build
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Change, Package, PackageError, Transaction
from ansible_collections.cudahub.gpu.plugins.modules import driver_packages

PLAN = {
    "satisfied": True,
    "source": "nvidia",
    "branch": "580",
    "version": "580.159.04",
    "kernel_module": "open",
    "kernels": ["6.1.0"],
    "packages": [],
    "transaction": {"install": [], "change": [], "remove": []},
}
OUTCOME = driver.Outcome(
    changed=True,
    transaction=Transaction((Package("a", "1"),), (Change("b", "1", "2"),), (Package("c", "3"),)),
    before="b 1\nc 3\n",
    after="a 1 held\nb 2 held\n",
    builds=(Build("nvidia", "580.159.04", "6.1.0", "x86_64", "installed"), Build("nvidia", "1", None, None, "added")),
    kept={"dkms": "zfs-dkms needs it"},
)
HOLDER = """
import sys
from ansible_collections.cudahub.gpu.plugins.module_utils._run_lock import exclusive
with exclusive(sys.argv[1], 0, print):
    print("held", flush=True)
    sys.stdin.read()
"""
TROUBLE = driver.Trouble("dkms", "It does not compile.", "x" * 10_000)


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Log and record are not those of this machine."""
    monkeypatch.chdir(tmp_path)


def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcome: driver.Outcome | Exception = OUTCOME,
    *,
    user: int = 0,
    **params: t.Any,
) -> tuple[int, dict[str, t.Any]]:
    def result(*_args: t.Any, **_options: t.Any) -> driver.Outcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(driver, "present", result)
    monkeypatch.setattr(driver, "absent", result)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(driver_packages.AnsibleModule, "get_bin_path", lambda _self, name, **_more: f"/usr/bin/{name}")
    paths = {"log": str(Path.cwd() / "log" / "driver.log"), "record": str(Path.cwd() / "lib" / "driver.json")}
    with patch_module_args({"state": "present", "plan": PLAN, **paths, **params}), pytest.raises(SystemExit) as ended:
        driver_packages.main()
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def documented(name: str) -> set[str]:
    returned: dict[str, t.Any] = yaml.safe_load(driver_packages.RETURN)[name]
    return set(returned["contains"])


def test_returned_is_documented(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = run(monkeypatch, capsys, replace(OUTCOME, trouble=TROUBLE))
    assert code == 1
    assert set(yaml.safe_load(driver_packages.RETURN)) == set(result) - {
        "changed",
        "diff",
        "failed",
        "msg",
        "invocation",
    }
    for name in ("transaction", "failure"):
        assert set(result[name]) == documented(name)
    for name in ("dkms", "kept"):
        assert {frozenset(one) for one in result[name]} == {frozenset(documented(name))}
    assert result["transaction"]["change"] == [{"name": "b", "from": "1", "to": "2"}]
    assert result["msg"] == "It does not compile."
    assert len(result["failure"]["details"]) == driver_packages.MOST_DETAILS


def test_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for state in ("present", "absent"):
        code, result = run(monkeypatch, capsys, state=state)
        assert code == 0
        assert result["changed"] is True
        assert result["failure"] is None
        assert result["diff"] == {"before": OUTCOME.before, "after": OUTCOME.after}
        assert result["log"] == str(Path.cwd() / "log" / "driver.log")


def test_every_failure_kind_is_documented() -> None:
    text = str(yaml.safe_load(driver_packages.RETURN)["failure"]["contains"]["kind"]["description"])
    for kind in t.get_args(driver.FailureKind):
        assert f"C({kind})" in text


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (PackageError("lock", "It is busy"), "It is busy."),
        (_driver_record.PlanError("The record is bad"), "The record is bad."),
        (OSError(30, "Read-only file system", "/var/log/x"), "/var/log/x can't be written: Read-only file system"),
    ],
)
def test_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: Exception, message: str
) -> None:
    code, result = run(monkeypatch, capsys, outcome)
    assert code == 1
    assert result["msg"].startswith(message)
    assert result["changed"] is False


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lock_timeout": -1}, "lock_timeout is -1: give a number of seconds, 0 or more."),
        ({"plan": None}, "plan is not what cudahub.gpu.driver_plan returns: it or a value in it is of another type"),
        ({"plan": {"satisfied": True}}, "plan is not what cudahub.gpu.driver_plan returns"),
        ({"user": 1000}, "Packages can only be changed by root: run the task with become: true."),
    ],
)
def test_bad_parameters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], params: dict[str, t.Any], message: str
) -> None:
    code, result = run(monkeypatch, capsys, **params)
    assert code == 1
    assert message in result["msg"]


@pytest.mark.parametrize("state", ["present", "absent"])
def test_only_one_run_at_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, state: str
) -> None:
    record = str(tmp_path / "lib" / "driver.json")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, record],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        code, result = run(monkeypatch, capsys, state=state, record=record, lock_timeout=0)
        assert code == 1
        assert result["failure"]["kind"] == "lock"
        assert f"process {other.pid}, was not done within 0 s" in result["msg"]
        assert result["changed"] is False
        assert run(monkeypatch, capsys, state=state, record=record, _ansible_check_mode=True)[0] == 0
        other.communicate()
    assert run(monkeypatch, capsys, state=state, record=record, lock_timeout=0)[0] == 0


@pytest.mark.parametrize(
    ("params", "recorded", "refused"),
    [
        ({"state": "absent"}, True, True),
        ({"state": "absent", "_ansible_check_mode": True}, True, True),
        ({"state": "absent", "ignore_processes": True}, True, False),
        ({"state": "absent"}, False, False),
        ({"state": "present"}, True, False),
    ],
)
def test_driver_that_is_in_use_is_not_taken_away(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    params: dict[str, t.Any],
    recorded: bool,
    refused: bool,
) -> None:
    record = str(tmp_path / "driver.json")
    if recorded:
        _driver_record.RecordFile(record).write(_driver_record.Record())
    using = (_preflight.Process(4242, "python3", "/dev/nvidia0"),)
    monkeypatch.setattr(_preflight, "gpu_processes", lambda _files: using)
    code, result = run(monkeypatch, capsys, record=record, **params)
    assert (code, result["changed"]) == ((1, False) if refused else (0, True))
    if refused:
        assert result["failure"]["kind"] == "in_use"
        assert result["msg"] == (
            "The driver is in use by python3 (process 4242, /dev/nvidia0), and nothing was taken away: end them, or "
            "set nvidia_driver_ignore_processes to true to take its files away beneath them and reboot later."
        )


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_a_killed_run_left_is_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str, check: bool
) -> None:
    swept: list[str] = []
    monkeypatch.setattr(_scratch, "sweep", lambda: swept.append(state))
    run(monkeypatch, capsys, state=state, _ansible_check_mode=check)
    assert swept == ([] if check else [state])


def test_a_host_without_room_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sweep() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(_scratch, "sweep", sweep)
    code, result = run(monkeypatch, capsys)
    assert (code, result["changed"]) == (1, False)
    assert "No usable temporary directory found" in result["msg"]


def test_check_mode_needs_no_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, capsys, user=1000, _ansible_check_mode=True)[0] == 0


def test_a_host_without_a_package_manager(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(driver_packages.AnsibleModule, "get_bin_path", lambda _self, _name, **_more: None)
    with patch_module_args({"plan": PLAN}), pytest.raises(SystemExit):
        driver_packages.main()
    assert "neither apt-get nor dnf is there" in json.loads(capsys.readouterr().out)["msg"]


def test_the_host_is_wired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(driver_packages.AnsibleModule, "get_bin_path", lambda _self, name, **_more: f"/usr/bin/{name}")
    asked: list[t.Any] = []

    def answer(_self: t.Any, command: list[str], **options: t.Any) -> tuple[int, str, str]:
        asked.append((command, options["environ_update"]["LC_ALL"]))
        return 0, "nvidia/580.1: added\n", ""

    monkeypatch.setattr(driver_packages.AnsibleModule, "run_command", answer)
    with patch_module_args({"plan": PLAN, "log": str(tmp_path / "x.log"), "record": str(tmp_path / "r.json")}):
        module = driver_packages.AnsibleModule(
            argument_spec={
                "plan": {"type": "dict"},
                "log": {"type": "path"},
                "record": {"type": "path"},
                "lock_timeout": {"type": "int", "default": 1},
            }
        )
    host = driver_packages.host_of(module)
    assert [one.state for one in host.dkms.status()] == ["added"]
    assert asked == [(["/usr/bin/dkms", "status"], "C")]
    assert host.records.read() is None
    host.say("hello")
    assert "hello" in (tmp_path / "x.log").read_text(encoding="utf-8")
    assert host.running == os.uname().release
