# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""dnf and rpm, from what they print: dnf 4.14 and 4.23 on repositories with NVIDIA's names, versions and streams."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _dnf
from ansible_collections.cudahub.gpu.plugins.module_utils._dnf_program import PROGRAM
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import (
    Change,
    Package,
    PackageError,
    Result,
    Transaction,
)

ADDRESS = "https://mirror.example.org/cuda/repos/rhel9/x86_64/"
LOCK_LIST = """
# Added lock on Sat Nov 28 02:05:20 2026
nvidia-driver-cuda-3:580.95.05-1.el9.*
!nvidia-fabricmanager-3:595.71.05-1.el9.*
kernel-devel-0:5.14.0-503.11.1.el9_5.*
"""
RPM_QA = """\
gpg-pubkey\tc18f8286-6b0a351e\t(none)
dkms\t3.2.2-1.el9\tnoarch
kernel-devel\t5.14.0-503.11.1.el9_5\tx86_64
kernel-devel\t5.14.0-570.12.1.el9_6\tx86_64
libnvidia-ml\t3:580.95.05-1.el9\tx86_64
nvidia-driver-cuda\t3:580.95.05-1.el9\tx86_64
bash\t0:5.1.8-9.el9\tx86_64
"""


NOTHING: dict[str, Any] = {"new": [], "gone": [], "kept": [], "download": 0, "streams": {}}

# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("8", "10"),
        ("580.95.05", "580.159.04"),
        ("1.0~rc1", "1.0"),
        ("1.0", "1.0^git1"),
        ("1.0^git1", "1.0.1"),
        ("1.0~rc1^x", "1.0"),
        ("1.0~rc1", "1.0~rc1^x"),
        ("1a", "1.1"),
        ("a", "1"),
        ("a", "b"),
        ("1", "1a"),
        ("2.el9", "2.el9_6"),
        ("2.el9", "2.el10"),
        ("1.0", "1.0.1"),
        ("595.71.05-1.el9", "3:580.159.04-1.el9"),
        ("3:580.159.04-1.el9", "3:580.159.04-2.el9"),
        ("3:580.159.04-1.el9", "3:595.71.05-1.el9"),
        ("5.14.0-503.11.1.el9_5", "5.14.0-570.12.1.el9_6"),
    ],
)
def test_rpm_orders_versions(older: str, newer: str) -> None:
    assert _dnf.compare(older, newer) < 0
    assert _dnf.compare(newer, older) > 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("580.95.05", "580.095.5"),
        ("1_0", "1..0"),
        ("1.0.a1", "1.0a.1"),
        ("580.95.05-1.el9", "0:580.95.05-1.el9"),
        ("3:580.95.05", "3:580.95.05-1.el9"),
    ],
)
def test_rpm_takes_versions_for_the_same(one: str, other: str) -> None:
    assert _dnf.compare(one, other) == 0
    assert _dnf.compare(other, one) == 0


# --- what is installed ------------------------------------------------------------------------------------------------


class Host:
    """Commands with recorded answers: the text that a command holds selects the result, the first that fits."""

    def __init__(self, *results: tuple[str, Result | Callable[[Mapping[str, Any]], Result]]) -> None:
        self.results = list(results)
        self.commands: list[list[str]] = []
        self.requests: list[dict[str, Any]] = []
        self.texts: dict[str, str] = {}

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> Result:
        assert env["LC_ALL"] == "C.UTF-8"
        self.commands.append(list(command))
        request: dict[str, Any] = {}
        if command[-1].endswith("request.json"):
            request = json.loads(Path(command[-1]).read_text())
            self.requests.append(request)
            for file in Path(command[-1]).parent.iterdir():
                self.texts[file.name] = file.read_text()
        for text, result in self.results:
            if text in " ".join(command):
                return result if isinstance(result, Result) else result(request)
        raise AssertionError(f"unexpected: {command}")

    def say(self, line: str) -> None:
        self.commands.append(["say", line])

    @property
    def lines(self) -> list[str]:
        return [" ".join(command) for command in self.commands]


class Files:
    """A host's files in a dictionary."""

    def __init__(self, files: Mapping[str, str] | None = None) -> None:
        self.files = dict(files or {})

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, path: str) -> list[str]:
        return sorted(name[len(path) + 1 :] for name in self.files if name.startswith(f"{path}/"))

    def target(self, path: str) -> str | None:
        raise NotImplementedError(path)

    def exists(self, path: str) -> bool:
        return path in self.files

    def path(self, path: str) -> str:
        return path


def answering(answer: Mapping[str, Any] | None, rc: int = 0, output: str = "") -> Callable[[Mapping[str, Any]], Result]:
    def result(request: Mapping[str, Any]) -> Result:
        if answer is not None:
            Path(request["answer"]).write_text(json.dumps(answer))
        return Result(rc, "", output)

    return result


def in_turn(answers: list[Callable[[Mapping[str, Any]], Result]]) -> Callable[[Mapping[str, Any]], Result]:
    def result(request: Mapping[str, Any]) -> Result:
        return answers.pop(0)(request)

    return result


def reader(host: Host, files: Mapping[str, str] | None = None, address: str | None = ADDRESS) -> _dnf.DnfReader:
    return _dnf.DnfReader(host.run, address, files=Files(files), python=["python3"])


def writer(host: Host, files: Files | None = None, timeout: int = 60, clock: Any = None) -> _dnf.DnfWriter:
    return _dnf.DnfWriter(
        host, host.run, timeout, files=files or Files(), python=["python3"], sleep=lambda _s: None,
        clock=clock or (lambda: 0.0),
    )  # fmt: skip


def test_installed_packages_with_epochs_holds_and_each_kernels_headers() -> None:
    host = Host(("rpm -q", Result(0, RPM_QA, "")))
    found = reader(host, {_dnf.VERSIONLOCK_LIST: LOCK_LIST}).installed()
    assert {name: one.version for name, one in found.items()} == {
        "bash": "5.1.8-9.el9",
        "dkms": "3.2.2-1.el9",
        "kernel-devel": "5.14.0-570.12.1.el9_6",
        "kernel-devel-5.14.0-503.11.1.el9_5.x86_64": "5.14.0-503.11.1.el9_5",
        "kernel-devel-5.14.0-570.12.1.el9_6.x86_64": "5.14.0-570.12.1.el9_6",
        "libnvidia-ml": "3:580.95.05-1.el9",
        "nvidia-driver-cuda": "3:580.95.05-1.el9",
    }
    assert {name for name, one in found.items() if one.held} == {
        "nvidia-driver-cuda",
        "kernel-devel-5.14.0-503.11.1.el9_5.x86_64",
    }
    assert not any(one.broken for one in found.values())


def test_a_driver_package_in_two_versions_is_an_interrupted_transaction() -> None:
    torn = RPM_QA + "nvidia-driver-cuda\t3:595.71.05-1.el9\tx86_64\n"
    found = reader(Host(("rpm -q", Result(0, torn, "")))).installed()
    assert (found["nvidia-driver-cuda"].version, found["nvidia-driver-cuda"].broken) == ("3:595.71.05-1.el9", True)
    assert not found["kernel-devel"].broken


def test_an_rpm_database_that_cant_be_read_is_an_error() -> None:
    host = Host(("rpm -q", Result(1, "", "error: cannot open Packages index using sqlite - Permission denied (13)\n")))
    with pytest.raises(PackageError, match="rpm can't list the packages: error: cannot open Packages index"):
        reader(host).installed()


def test_the_list_of_locks_is_where_the_plugins_configuration_says() -> None:
    files = {
        _dnf.VERSIONLOCK_CONF: "[main]\nenabled = 1\nlocklist = /srv/locks\n",
        "/srv/locks": "nvidia-driver-cuda",
        _dnf.VERSIONLOCK_LIST: "dkms",
    }
    found = reader(Host(("rpm -q", Result(0, RPM_QA, ""))), files).installed()
    assert [name for name, one in found.items() if one.held] == ["nvidia-driver-cuda"]


@pytest.mark.parametrize(
    ("lock", "locked"),
    [
        ("nvidia-driver-cuda-3:580.95.05-1.el9.*", True),
        ("nvidia-driver-cuda-3:580.95.05-1.el9", True),
        ("nvidia-driver-cuda-580.95.05-1.el9", True),
        ("nvidia-driver-cuda-580*", True),
        ("nvidia-driver-cuda", True),
        ("nvidia-driver-cuda.x86_64", True),
        ("3:nvidia-driver-cuda-580.95.05-1.el9.*", True),
        ("nvidia-*", True),
        ("nvidia-driver-cuda-3:580.159.04-1.el9.*", False),
        ("nvidia-driver-cuda-libs-3:580.95.05-1.el9.*", False),
        ("!nvidia-driver-cuda-3:580.95.05-1.el9.*", False),
    ],
)
def test_the_ways_to_write_a_lock(lock: str, locked: bool) -> None:
    assert _dnf.is_locked(_dnf.Row("nvidia-driver-cuda", "3:580.95.05-1.el9", "x86_64"), [lock]) is locked


@pytest.mark.parametrize(
    ("lock", "name"),
    [
        ("nvidia-driver-cuda-3:580.95.05-1.el9.*", "nvidia-driver-cuda"),
        ("!nvidia-driver-cuda-3:580.95.05-1.el9.*", "nvidia-driver-cuda"),
        ("3:nvidia-driver-cuda-580.95.05-1.el9.*", "nvidia-driver-cuda"),
        ("nvidia-driver-cuda-580*", "nvidia-driver-cuda"),
        ("nvidia-driver-cuda-*", "nvidia-driver-cuda"),
        ("nvidia-driver-cuda", "nvidia-driver-cuda"),
        ("nvidia-driver-cuda.x86_64", "nvidia-driver-cuda"),
        ("kernel-devel-0:5.14.0-503.11.1.el9_5.*", "kernel-devel"),
    ],
)
def test_what_a_lock_is_about(lock: str, name: str) -> None:
    assert name in _dnf.lock_names(lock)


# --- what is offered --------------------------------------------------------------------------------------------------

OFFERED = {
    "repositories": {"base": "https://mirror.example.org/base/", "cuda": ADDRESS.rstrip("/"), "elrepo": "https://x/"},
    "packages": [
        ["kernel-devel", "5.14.0-503.11.1.el9_5", "x86_64", "base"],
        ["kernel-devel", "5.14.0-570.12.1.el9_6", "x86_64", "base"],
        ["nvidia-driver-cuda", "3:580.95.05-1.el9", "x86_64", "cuda"],
        ["nvidia-driver-cuda", "3:580.159.04-1.el9", "x86_64", "cuda"],
        ["nvidia-driver-cuda", "3:610.1.1-1.el9", "x86_64", "elrepo"],
        ["dkms", "3.2.2-1.el9", "noarch", "base"],
    ],
}


def test_versions_are_read_once_newest_first_and_those_of_the_driver_only_from_its_source() -> None:
    host = Host(("cudahub-available", answering(OFFERED)))
    source = reader(host)
    assert source.available(re.compile(r"nvidia-.*|dkms")) == {
        "dkms": ("3.2.2-1.el9",),
        "nvidia-driver-cuda": ("3:580.159.04-1.el9", "3:580.95.05-1.el9"),
    }
    assert source.available(re.compile(r"kernel-devel.*")) == {
        "kernel-devel": ("5.14.0-570.12.1.el9_6", "5.14.0-503.11.1.el9_5"),
        "kernel-devel-5.14.0-503.11.1.el9_5.x86_64": ("5.14.0-503.11.1.el9_5",),
        "kernel-devel-5.14.0-570.12.1.el9_6.x86_64": ("5.14.0-570.12.1.el9_6",),
    }
    assert source.origin(Package("nvidia-driver-cuda", "3:610.1.1-1.el9")) == "https://x/"
    assert source.origin(Package("nvidia-driver-cuda", "3:1.1.1-1.el9")) is None
    assert len(host.requests) == 1
    assert host.requests[0]["address"] == ADDRESS.rstrip("/")
    assert host.requests[0]["repository"] == "cudahub-nvidia-driver"


def test_the_password_of_a_repository_is_not_told() -> None:
    answer = {"repositories": {"own": "https://me:secret@x/"}, "packages": [["dkms", "3-1", "noarch", "own"]]}
    assert reader(Host(("cudahub-available", answering(answer)))).origin(Package("dkms", "3-1")) == "https://***@x/"


def test_without_an_address_the_hosts_own_repositories_are_read() -> None:
    host = Host(("cudahub-available", answering(OFFERED)))
    found = reader(host, address=None).available(re.compile(r"nvidia-driver-cuda"))
    assert found["nvidia-driver-cuda"][0] == "3:610.1.1-1.el9"
    assert "address" not in host.requests[0]


def test_a_transaction_is_tried_without_changing_anything() -> None:
    answer = {
        "new": [
            ["nvidia-driver-cuda", "x86_64", "3:595.71.05-1.el9", 500],
            ["kmod-nvidia-latest-dkms", "x86_64", "3:595.71.05-1.el9", 100],
            ["kernel-devel", "x86_64", "5.14.0-570.12.1.el9_6", 50],
        ],
        "gone": [
            ["nvidia-driver-cuda", "x86_64", "3:580.95.05-1.el9", 400],
            ["kmod-nvidia-open-dkms", "x86_64", "3:580.95.05-1.el9", 90],
        ],
        "kept": [],
        "download": 4711,
        "streams": {"nvidia-driver": ["580-open", "595-dkms"]},
    }
    host = Host(("cudahub-transaction", answering(answer, rc=1, output="Operation aborted.\n")))
    source = reader(host)
    wanted = [Package("nvidia-driver-cuda", "3:595.71.05-1.el9")]
    assert source.simulate(wanted, ["kmod-nvidia-open-dkms"], "595.71.05") == Transaction(
        install=(
            Package("kernel-devel", "5.14.0-570.12.1.el9_6"),
            Package("kmod-nvidia-latest-dkms", "3:595.71.05-1.el9"),
        ),
        change=(Change("nvidia-driver-cuda", "3:580.95.05-1.el9", "3:595.71.05-1.el9"),),
        remove=(Package("kmod-nvidia-open-dkms", "3:580.95.05-1.el9"),),
        download_bytes=4711,
        disk_bytes=160,
        module_stream="nvidia-driver:595-dkms",
    )
    assert "--assumeno" in host.commands[0]
    request = host.requests[0]
    assert request["install"] == [["nvidia-driver-cuda", "3:595.71.05-1.el9"]]
    assert (request["remove"], request["pin"], request["exact"]) == (["kmod-nvidia-open-dkms"], "595.71.05", False)


def test_the_same_package_in_two_architectures_is_told_once() -> None:
    answer = {
        "new": [["libnvidia-ml", "x86_64", "3:2-1", 1], ["libnvidia-ml", "i686", "3:2-1", 1]],
        "gone": [["libnvidia-ml", "x86_64", "3:1-1", 1], ["libnvidia-ml", "i686", "3:1-1", 1]],
        "kept": [],
        "download": 2,
        "streams": {},
    }
    transaction = _dnf.Answer.parse(answer).transaction()
    assert transaction == Transaction(
        change=(Change("libnvidia-ml", "3:1-1", "3:2-1"),), download_bytes=2, disk_bytes=0
    )


def test_what_an_interrupted_transaction_left_in_two_versions_changes_to_the_one_that_stays() -> None:
    answer = {
        **NOTHING,
        "gone": [
            ["libnvidia-ml", "x86_64", "3:580.159.04-1.el9", 1],
            ["kmod-nvidia-latest-dkms", "x86_64", "3:580.159.04-1.el9", 1],
        ],
        "kept": [["libnvidia-ml", "x86_64", "3:580.95.05-1.el9"]],
    }
    assert _dnf.Answer.parse(answer).transaction() == Transaction(
        change=(Change("libnvidia-ml", "3:580.159.04-1.el9", "3:580.95.05-1.el9"),),
        remove=(Package("kmod-nvidia-latest-dkms", "3:580.159.04-1.el9"),),
        download_bytes=0,
        disk_bytes=-2,
    )


def test_locks_of_the_driver_are_left_aside_and_all_others_heeded() -> None:
    host = Host(("cudahub-transaction", answering(NOTHING)))
    reader(host, {_dnf.VERSIONLOCK_LIST: LOCK_LIST}).simulate([], [], None)
    assert host.texts["versionlock.list"] == "kernel-devel-0:5.14.0-503.11.1.el9_5.*\n"
    (option,) = (word for word in host.commands[0] if word.startswith("--setopt=pluginconfpath="))
    assert option.startswith("--setopt=pluginconfpath=/etc/dnf/plugins,/")
    host = Host(("cudahub-transaction", answering(NOTHING)))
    reader(host, {_dnf.VERSIONLOCK_LIST: "kernel-devel\n"}).simulate([], [], None)
    assert not any("pluginconfpath" in word for word in host.commands[0])


# --- what goes wrong --------------------------------------------------------------------------------------------------

FAILURES = json.loads((Path(__file__).parents[3] / "fixtures/dnf/failures.json").read_text())
"""What dnf printed on standard output or error, line by line, and what is to be made of it."""


@pytest.mark.parametrize("case", FAILURES, ids=[case["sentence"][:40] for case in FAILURES])
def test_what_dnf_prints_becomes_one_sentence(case: dict[str, Any]) -> None:
    output = "\n".join(case["output"])
    error = _dnf.failure(Result(1, "", output))
    assert error.kind == case["kind"]
    assert case["sentence"] in error.message
    assert "\n" not in error.message
    assert error.details == output.strip()


def test_a_reader_without_an_answer_says_why() -> None:
    host = Host(("cudahub-transaction", answering(None, rc=1, output="Error: No match for argument: x-1\n")))
    with pytest.raises(PackageError, match=r"^no repository has x-1$"):
        reader(host).simulate([Package("x", "1")], [], None)


def test_only_dnf_4_is_taken_for_dnf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dnf-3"
    program.write_text("#!/usr/libexec/platform-python -s\n")
    (tmp_path / "dnf").symlink_to(program)
    assert _dnf.interpreter(str(tmp_path / "dnf")) == ["/usr/libexec/platform-python", "-s"]
    program.write_bytes(b"\x7fELF\x02")
    with pytest.raises(PackageError, match="is not dnf 4"):
        _dnf.interpreter(str(tmp_path / "dnf"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(PackageError, match="neither apt-get nor dnf"):
        _dnf.interpreter()


# --- changes ----------------------------------------------------------------------------------------------------------


LOCKED_OUTPUT = (
    "RPMDB already locked by 1775\n  The application with PID 1775 is: dnf\n    Memory : 1.6 M RSS (2.5 MB VSZ)\n"
)


def test_a_lock_is_waited_for_and_its_holder_named_once() -> None:
    results = [Result(200, "", LOCKED_OUTPUT), Result(200, "", LOCKED_OUTPUT), Result(0, "Complete!", "")]
    host = Host(("makecache", lambda _request: results.pop(0)))
    writer(host).refresh()
    assert [line for line in host.lines if line.startswith("say")] == [
        "say Waiting for the package manager's lock held by process 1775 (dnf)"
    ]
    assert not results


@pytest.mark.parametrize(
    ("result", "holder"),
    [
        (Result(200, LOCKED_OUTPUT, ""), r"process 1775 \(dnf\)"),
        (Result(200, "", "metadata already locked by 42\n"), "process 42"),
        (
            Result(1, "", "RPM: error: can't create transaction lock on /var/lib/rpm/.rpm.lock (Resource temporarily "
                   "unavailable)\nError: Could not run transaction.\n"),
            "another process",
        ),
    ],
)  # fmt: skip
def test_a_lock_that_is_not_given_up_is_an_error(result: Result, holder: str) -> None:
    clock = iter(range(0, 1000, 20))
    host = Host(("makecache", result))
    with pytest.raises(
        PackageError, match=rf"^{holder} holds the package manager's lock, .* within 60 seconds$"
    ) as error:
        writer(host, clock=lambda: next(clock)).refresh()
    assert error.value.kind == "lock"
    assert len([line for line in host.lines if "makecache" in line]) == 3


def test_who_only_asks_waits_for_a_lock_as_long_and_not_for_the_network() -> None:
    clock = iter(range(0, 1000, 20))
    host = Host(("cudahub-available", Result(200, "", "metadata already locked by 42\n")))
    parts = {"files": Files(), "python": ["python3"], "sleep": lambda _s: None, "clock": lambda: next(clock)}
    asking = _dnf.DnfReader(host.run, ADDRESS, timeout=20, lock_timeout=120, **parts)
    with pytest.raises(PackageError, match=r"within 120 seconds$"):
        asking.available(re.compile(".*"))
    assert {"--setopt=timeout=20"} <= set(host.commands[0])
    assert len(host.commands) == 6


def test_one_transaction_installs_removes_and_pins() -> None:
    host = Host(("cudahub-transaction", answering(NOTHING)))
    writer(host).apply([Package("nvidia-driver-cuda", "3:595.71.05-1.el9")], ["kmod-nvidia-open-dkms"], "595.71.05")
    (command,) = host.commands
    assert "-y" in command
    assert "--assumeno" not in command
    assert {"--setopt=clean_requirements_on_remove=0", "--setopt=install_weak_deps=0"} <= set(command)
    assert host.requests[0]["remove"] == ["kmod-nvidia-open-dkms"]


def test_a_failed_transaction_gets_the_stream_of_before_back() -> None:
    failing = {**NOTHING, "streams": {"nvidia-driver": ["580-open", "595-dkms"], "kept": ["1", "1"]}}
    answers = [answering(failing, 1, "Error: GPG check FAILED\n"), answering(NOTHING)]
    host = Host(("cudahub-transaction", in_turn(answers)))
    with pytest.raises(PackageError) as error:
        writer(host).apply([Package("nvidia-driver-cuda", "3:595.71.05-1.el9")], [], None)
    assert error.value.kind == "signature"
    assert host.requests[1]["streams"] == {"nvidia-driver": "580-open"}
    assert (host.requests[1]["install"], host.requests[1]["remove"]) == ([], [])


def test_locks_go_with_the_packages_of_the_driver_that_go() -> None:
    answer = {
        **NOTHING,
        "new": [["nvidia-driver-cuda", "x86_64", "3:2-1", 1]],
        "gone": [
            ["nvidia-driver-cuda", "x86_64", "3:580.95.05-1.el9", 1],
            ["kmod-nvidia-open-dkms", "x86_64", "3:580.95.05-1.el9", 1],
            ["kernel-devel", "x86_64", "5.14.0-503.11.1.el9_5", 1],
        ],
    }
    files = Files({_dnf.VERSIONLOCK_LIST: LOCK_LIST + "kmod-nvidia-open-dkms-3:580.95.05-1.el9.*\n"})
    host = Host(("cudahub-transaction", answering(answer)), ("versionlock delete", Result(0, "", "")))
    writer(host, files).apply([Package("nvidia-driver-cuda", "3:2-1")], ["kmod-nvidia-open-dkms"], None)
    assert host.lines[1:] == ["dnf -q --disablerepo=* versionlock delete kmod-nvidia-open-dkms"]


def test_purging_what_was_installed_puts_the_stream_back() -> None:
    answers = [answering({**NOTHING, "streams": {"nvidia-driver": ["", "580-open"]}}), answering(NOTHING)]
    host = Host(("cudahub-transaction", in_turn(answers)))
    changes = writer(host)
    changes.apply([Package("nvidia-driver-cuda", "3:580.95.05-1.el9")], [], None)
    changes.purge(["nvidia-driver-cuda", "libnvidia-ml"])
    request = host.requests[1]
    assert (request["exact"], request["streams"]) == (True, {"nvidia-driver": ""})
    assert request["remove"] == ["nvidia-driver-cuda", "libnvidia-ml"]


@pytest.mark.parametrize(
    ("names", "streams"),
    [(["nvidia-driver-cuda", "libnvidia-ml"], {"nvidia-driver": ""}), (["nvidia-driver-cuda"], {})],
)
def test_the_stream_goes_with_the_last_package_of_the_driver(names: list[str], streams: dict[str, str]) -> None:
    host = Host(("rpm -q", Result(0, RPM_QA, "")), ("cudahub-transaction", answering(NOTHING)))
    writer(host).purge(names)
    assert host.requests[0]["streams"] == streams


def test_nothing_to_do_runs_nothing() -> None:
    host = Host()
    changes = writer(host)
    changes.purge([])
    changes.unhold([])
    changes.mark_automatic([])
    assert host.commands == []


def test_what_others_need_is_known_by_name() -> None:
    test = (
        "error: Failed dependencies:\n"
        "\tnvidia-kmod-common = 3:595.71.05 is needed by (installed) kmod-nvidia-open-dkms-3:595.71.05-1.el9.x86_64\n"
        "\tlibfoo.so.1()(64bit) is needed by (installed) dkms-3.2.2-1.el9.noarch\n"
    )
    host = Host(
        ("--whatprovides nvidia-kmod-common", Result(0, "libnvidia-ml\t3:580.95.05-1.el9\tx86_64\n", "")),
        ("--whatprovides libfoo.so.1()(64bit)", Result(1, "no package provides libfoo.so.1()(64bit)\n", "")),
        ("rpm -e --test", Result(1, "", test)),
        ("rpm -q", Result(0, RPM_QA, "")),
    )
    found = writer(host).needed_by_others(["libnvidia-ml", "not-installed"])
    assert found == {"libnvidia-ml": "kmod-nvidia-open-dkms-3:595.71.05-1.el9.x86_64"}
    assert "rpm -e --test libnvidia-ml-3:580.95.05-1.el9.x86_64" in host.lines
    assert writer(host).needed_by_others(["not-installed"]) == {}


def test_holding_replaces_stale_locks_and_leaves_good_ones() -> None:
    files = Files({_dnf.VERSIONLOCK_LIST: LOCK_LIST + "libnvidia-ml-3:570.1-1.el9.*\n"})
    host = Host(
        ("rpm -q", Result(0, RPM_QA, "")),
        ("versionlock delete", Result(0, "", "")),
        ("versionlock add", Result(0, "", "")),
    )
    writer(host, files).hold(["nvidia-driver-cuda", "libnvidia-ml", "not-installed"])
    assert [line for line in host.lines if "versionlock" in line] == [
        "dnf -q --disablerepo=* versionlock delete libnvidia-ml",
        "dnf -q --disablerepo=* versionlock add libnvidia-ml",
    ]


def test_unholding_takes_only_locks_that_are_there() -> None:
    host = Host(("versionlock delete", Result(0, "", "")))
    writer(host, Files({_dnf.VERSIONLOCK_LIST: LOCK_LIST})).unhold(["nvidia-driver-cuda", "libnvidia-ml"])
    assert host.lines == ["dnf -q --disablerepo=* versionlock delete nvidia-driver-cuda"]


def test_holding_without_the_plugin_says_which_package_is_missing() -> None:
    host = Host(
        ("rpm -q", Result(0, RPM_QA, "")),
        ("versionlock add", Result(1, "No such command: versionlock. Please use dnf", "")),
    )
    with pytest.raises(PackageError, match="python3-dnf-plugin-versionlock"):
        writer(host).hold(["libnvidia-ml"])


def test_repairing_ends_what_was_interrupted_of_the_driver_only() -> None:
    rows = RPM_QA + "nvidia-driver-cuda\t3:595.71.05-1.el9\tx86_64\n"
    host = Host(("rpm -q", Result(0, rows, "")), ("rpm -e", Result(0, "", "")))
    writer(host).repair()
    assert host.lines[-1] == "rpm -e --nodeps nvidia-driver-cuda-3:580.95.05-1.el9.x86_64"
    assert len(host.lines) == 2


def test_what_nobody_asked_for() -> None:
    host = Host(("--userinstalled", Result(0, "bash\nnvidia-driver-cuda\n", "")), ("rpm -q", Result(0, RPM_QA, "")))
    assert writer(host).automatic() == {"dkms", "kernel-devel", "libnvidia-ml"}


# --- the repository ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text", "configured"),
    [
        ("cuda-rhel9.repo", f"[cuda]\nbaseurl={ADDRESS.rstrip('/')}\nenabled=1\n", True),
        ("cuda-rhel9.repo", f"[cuda]\nname=a\n  b\nbaseurl = https://x/,\n  {ADDRESS}\n", True),
        ("cuda-rhel9.repo", f"[cuda]\nbaseurl={ADDRESS}\nenabled=0\n", False),
        ("cuda-rhel9.repo", "[cuda]\nbaseurl=https://other.example.org/\n", False),
        ("cuda-rhel9.repo.rpmsave", f"[cuda]\nbaseurl={ADDRESS}\n", False),
        ("cudahub-nvidia-driver.repo", f"[cudahub-nvidia-driver]\nbaseurl={ADDRESS}\n", False),
        ("broken.repo", f"baseurl={ADDRESS}\n", False),
    ],
)
def test_a_repository_that_the_host_has(file: str, text: str, configured: bool) -> None:
    assert _dnf.is_configured(Files({f"/etc/yum.repos.d/{file}": text}), ADDRESS) is configured


def test_the_repository_to_add() -> None:
    repository = _dnf.needed_repository("file:/srv/rhel9/x86_64/", "https://k/D42D0685.pub", "610C", None)
    assert repository["baseurl"] == "file:///srv/rhel9/x86_64/"
    assert repository["path"] == "/etc/yum.repos.d/cudahub-nvidia-driver.repo"
    assert repository["key_path"] == "/etc/pki/rpm-gpg/cudahub-nvidia-driver-610C.asc"


# --- the program ------------------------------------------------------------------------------------------------------


def test_the_program_runs_under_the_python_of_enterprise_linux_8() -> None:
    tree = ast.parse(PROGRAM, feature_version=(3, 6))
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.NamedExpr)]
    assert strings == []
