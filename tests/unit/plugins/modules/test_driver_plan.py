# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module refuses bad parameters in one sentence, and returns what its documentation says."""

from __future__ import annotations

import json
import typing as t
import urllib.error
from dataclasses import fields
from email.message import Message
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils import _dnf, _driver_plan
from ansible_collections.cudahub.gpu.plugins.module_utils._apt_sources import Key, nvidia_repository
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import Notice
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import RepositoryError
from ansible_collections.cudahub.gpu.plugins.modules import driver_plan

REPOSITORY = {
    "url": "https://mirror.example/debian13/x86_64/",
    "key_url": "https://mirror.example/debian13/x86_64/8793F200.pub",
    "key_fingerprint": "0218 2e60 104f cdc2 6eae  1b85 97a5 d4cb 8793 f200",
    "key_checksum": "",
}
GPU = {"architecture": "Hopper", "name": "NVIDIA H100", "pci_bus_id": "00000000:01:00.0"}


class Planner:
    """Takes the place of the planner, and remembers what it was asked."""

    def __init__(self, outcome: _driver_plan.Outcome) -> None:
        self.outcome = outcome
        self.request: t.Any = None
        self.host: t.Any = None

    def __call__(self, request: t.Any, host: t.Any) -> _driver_plan.Outcome:
        self.request, self.host = request, host
        return self.outcome


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    outcome = _driver_plan.Outcome(
        _driver_plan.Plan("nvidia"), [Notice("disk", "No room")], [Notice("branch_unsupported", "Old")]
    )
    made = Planner(outcome)
    monkeypatch.setattr(_driver_plan, "make", made)
    monkeypatch.setattr(driver_plan.AnsibleModule, "get_bin_path", lambda _module, name: f"/usr/bin/{name}")
    return made


def run(capsys: pytest.CaptureFixture[str], **params: t.Any) -> tuple[int, dict[str, t.Any]]:
    with patch_module_args(params), pytest.raises(SystemExit) as ended:
        driver_plan.main()
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("check", [False, True])
def test_the_plan_is_returned(
    planner: Planner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    # Where the process is a controller's, ansible-core displays a warning instead of returning it.
    warned: list[str] = []
    monkeypatch.setattr(driver_plan.AnsibleModule, "warn", lambda _module, message: warned.append(message))
    params = {"source": "nvidia", "gpus": [GPU], "repository": REPOSITORY, "_ansible_check_mode": check}
    status, result = run(capsys, **params)
    assert (status, result["changed"]) == (0, False)
    assert result["refusals"] == [{"code": "disk", "message": "No room"}]
    assert result["warnings_given"] == [{"code": "branch_unsupported", "message": "Old"}]
    assert warned == ["Old"]
    assert set(result["plan"]) == {field.name for field in fields(_driver_plan.Plan)}
    assert planner.request.gpus == [GPU]
    repository = planner.host.repository()
    assert repository["key_fingerprint"] == "02182E60104FCDC26EAE1B8597A5D4CB8793F200"
    assert repository["key_checksum"] is None


@pytest.mark.parametrize(
    ("fabric_manager", "nvswitches", "wanted"),
    [("auto", 0, False), ("auto", 4, True), ("never", 4, False), ("always", 0, True)],
)
def test_who_gets_the_fabric_manager(
    planner: Planner, capsys: pytest.CaptureFixture[str], fabric_manager: str, nvswitches: int, wanted: bool
) -> None:
    run(capsys, source="distro", gpus=[], fabric_manager=fabric_manager, nvswitches=nvswitches)
    assert planner.request.wish.fabric_manager is wanted
    assert planner.request.fabric_manager == fabric_manager


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"branch": "latest"}, "branch is 'latest': it must be auto or a number"),
        ({"branch": "58"}, "branch is '58'"),
        ({"version": "580"}, "version is '580': it must be empty or a whole version"),
        ({"version": "580.159.04-1"}, "version is '580.159.04-1'"),
        ({"version": "580.159.04", "branch": "595"}, "version 580.159.04 is not of branch 595"),
        ({"kernel": "../x"}, "kernel is '../x': it must be running, newest, or a release"),
        ({"kernel": ""}, "kernel is ''"),
        ({"timeout": 0}, "timeout is 0: it must be more than 0 seconds"),
        ({"lock_timeout": -1}, "lock_timeout is -1: give a number of seconds, 0 or more"),
        ({"repository": {}}, "repository.url is None: source nvidia needs an address"),
        ({"repository": {"url": "mirror"}}, "repository.url is 'mirror'"),
        ({"repository": {**REPOSITORY, "key_url": ""}}, "repository.key_url is ''"),
    ],
)
def test_bad_parameters(
    planner: Planner, capsys: pytest.CaptureFixture[str], params: dict[str, t.Any], words: str
) -> None:
    status, result = run(capsys, **{"source": "nvidia", "gpus": [GPU], "repository": REPOSITORY, **params})
    assert status == 1
    assert result["msg"].startswith(words)
    assert planner.request is None


@pytest.mark.parametrize(
    ("source", "name", "option"),
    [
        ("nvidia", "url", "nvidia_driver_repository_url"),
        ("nvidia", "key_url", "nvidia_driver_repository_key_url"),
        ("distro", "url", "nvidia_driver_distro_url"),
    ],
)
@pytest.mark.parametrize(
    "address", ["https://me:hunter2@mirror.example/d/", "https://hunter2@mirror.example/", "me:hunter2@mirror.example"]
)
def test_a_password_in_an_address_is_refused_and_never_printed(
    planner: Planner, capsys: pytest.CaptureFixture[str], source: str, name: str, option: str, address: str
) -> None:
    repository = {**REPOSITORY, name: address} if source == "nvidia" else {name: address}
    status, result = run(capsys, source=source, gpus=[GPU], repository=repository)
    assert (status, result["changed"]) == (0, False)
    (refusal,) = result["refusals"]
    assert refusal["code"] == "password_in_url"
    assert refusal["message"].startswith(f"{option} has a user name or a password in it")
    assert "/etc/apt/auth.conf.d" in refusal["message"]
    assert "hunter2" not in json.dumps(result)
    assert result["plan"]["satisfied"] is False
    assert planner.request is None


@pytest.mark.parametrize("kernel", ["running", "newest", "6.12.118+deb13-amd64", "5.14.0-570.12.1.el9_6.x86_64"])
def test_kernels_that_can_be(kernel: str) -> None:
    limits = {"timeout": 1, "lock_timeout": 0}
    params = {"source": "distro", "branch": "auto", "version": "", "kernel": kernel, "repository": {}, **limits}
    assert driver_plan.find_mistake(params) is None


def http_error(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("https://mirror.example", code, "Nope", Message(), None)


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (http_error(404), "not_found", "the server says 404 Nope"),
        (http_error(503), "network", "the server says 503 Nope"),
        (urllib.error.URLError(OSError(-2, "Name or service not known")), "network", "Name or service not known"),
        (urllib.error.URLError(FileNotFoundError(2, "No such file or directory")), "not_found", "No such file"),
        (TimeoutError("timed out"), "network", "timed out"),
        (ValueError("unknown url type"), "network", "unknown url type"),
        (driver_plan.SSLValidationError("bad certificate"), "network", "bad certificate"),
    ],
)
def test_a_key_that_can_not_be_had(monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str, reason: str) -> None:
    def open_url(_url: str, timeout: float) -> None:
        assert timeout == 3
        raise error

    monkeypatch.setattr(driver_plan, "open_url", open_url)
    with pytest.raises(RepositoryError) as caught:
        driver_plan.read_url("https://mirror.example/k.pub", 3)
    assert (caught.value.kind, caught.value.url) == (kind, "https://mirror.example/k.pub")
    assert caught.value.reason.startswith(reason)


def test_a_key_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(b"key")
    assert driver_plan.read_url(f"file://{tmp_path}/key.pub", 3) == b"key"
    with pytest.raises(RepositoryError, match="No such file"):
        driver_plan.read_url(f"file://{tmp_path}/other.pub", 3)


def defaults(options: dict[str, t.Any]) -> dict[str, t.Any]:
    return {
        name: (
            option["type"],
            option.get("default"),
            option.get("choices"),
            option.get("elements"),
            option.get("required", False),
            defaults(option.get("suboptions") or option.get("options") or {}),
        )
        for name, option in options.items()
    }


def test_options_equal_the_specification() -> None:
    documented = yaml.safe_load(driver_plan.DOCUMENTATION)["options"]
    assert defaults(documented) == defaults(driver_plan.ARGUMENTS)


def test_returned_is_documented() -> None:
    documented = yaml.safe_load(driver_plan.RETURN)
    assert set(documented) == {"plan", "refusals", "warnings_given"}
    inner = documented["plan"]["contains"]
    assert set(inner) == {field.name for field in fields(_driver_plan.Plan)}
    empty = _driver_plan.Outcome(_driver_plan.Plan("distro")).as_dict()["plan"]
    assert set(inner["transaction"]["contains"]) == set(empty["transaction"])
    repository = nvidia_repository("https://mirror.example/", Key("https://mirror.example/k.pub", "AB")).as_dict()
    of_dnf = _dnf.needed_repository("https://mirror.example/", "https://mirror.example/k.pub", "AB", None)
    described = inner["repository"]["contains"]
    assert set(described) == set(repository) | set(of_dnf) | {"key_there"}
    always = {name for name, key in described.items() if key["returned"] == "always"}
    assert always == set(repository) & set(of_dnf) | {"key_there"}
