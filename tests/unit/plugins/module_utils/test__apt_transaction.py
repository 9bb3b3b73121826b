# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""apt and dpkg are called as meant, wait for their locks, and each failure is a kind and a sentence."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _apt_transaction
from ansible_collections.cudahub.gpu.plugins.module_utils._apt_transaction import (
    AptWriter,
    Holder,
    HostDisks,
    HostLocks,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Package, PackageError, Result

LOCK = "/var/lib/dpkg/lock-frontend"


class Log:
    """Commands that were run, each with the answer that is due; lines of our own."""

    def __init__(self, *answers: Result) -> None:
        self.answers = list(answers)
        self.commands: list[list[str]] = []
        self.lines: list[str] = []
        self.env: dict[str, str] = {}

    def run(self, command: t.Sequence[str], env: t.Mapping[str, str]) -> Result:
        self.commands.append(list(command))
        self.env = dict(env)
        return self.answers.pop(0) if self.answers else Result(0, "", "")

    def say(self, line: str) -> None:
        self.lines.append(line)


class Locks:
    """A lock that is held for some looks."""

    def __init__(self, looks: int, holder: Holder | None = None) -> None:
        self.looks = looks
        self.taken_by = holder or Holder(LOCK, 1234, "unattended-upgr")

    def holder(self, path: str) -> Holder | None:
        if path != LOCK or self.looks == 0:
            return None
        self.looks -= 1
        return self.taken_by


class Disks:
    def __init__(self, **free: int) -> None:
        self.sizes = {"/": 10**9, **{f"/{mount}": size for mount, size in free.items()}}

    def free(self, path: str) -> tuple[str, int]:
        mount = next((mount for mount in self.sizes if mount != "/" and path.startswith(mount)), "/")
        return mount, self.sizes[mount]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def writer(
    log: Log, *, reads: str = "", locks: Locks | None = None, disks: Disks | None = None, timeout: int = 5
) -> AptWriter:
    clock = Clock()
    return AptWriter(
        log,
        lambda _command, _env: Result(0, reads, ""),
        timeout,
        locks=locks or Locks(0),
        disks=disks or Disks(),
        sleep=clock.sleep,
        clock=clock,
    )


def test_a_transaction_is_one_call_without_questions() -> None:
    log = Log()
    writer(log).apply([Package("a", "1-1"), Package("b", "2")], ["old"], "580.1")
    (command,) = log.commands
    assert command[0] == "apt-get"
    assert command[-4:] == ["install", "a=1-1", "b=2", "old-"]
    assert {"-y", "--no-install-recommends", "--allow-downgrades", "DPkg::Lock::Timeout=5"} <= set(command)
    assert {"Dpkg::Options::=--force-confold", "Dpkg::Options::=--force-confdef"} <= set(command)
    assert any(word.startswith("Dir::Etc::Preferences=") for word in command)
    assert log.env["DEBIAN_FRONTEND"] == "noninteractive"
    assert log.env["NEEDRESTART_SUSPEND"] == "1", "no service of the user is restarted"


@pytest.mark.parametrize(
    ("call", "command"),
    [
        (lambda one: one.repair(), ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]),
        (lambda one: one.purge(["a", "b"]), ["dpkg", "--force-remove-reinstreq", "--purge", "a", "b"]),
        (lambda one: one.hold(["a"]), ["apt-mark", "hold", "a"]),
        (lambda one: one.unhold(["a"]), ["apt-mark", "unhold", "a"]),
        (lambda one: one.mark_automatic(["a"]), ["apt-mark", "auto", "a"]),
        (lambda one: one.refresh(), ["apt-get", "-q", "update"]),
    ],
)
def test_the_other_commands(call: t.Callable[[AptWriter], None], command: list[str]) -> None:
    log = Log()
    call(writer(log))
    assert log.commands == [command]


def test_nothing_is_run_for_no_packages() -> None:
    log = Log()
    one = writer(log)
    for method in (one.purge, one.hold, one.unhold, one.mark_automatic):
        method([])
    assert log.commands == []


def test_what_was_half_installed_goes_before_it_is_installed_again() -> None:
    log = Log()
    listing = "a\treinstreq\thalf-installed\nb\tok\tinstalled\nc\treinstreq\tinstalled\nd\tok\thalf-installed\n"
    writer(log, reads=listing).apply([Package(name, "1") for name in "abd"], [], None)
    assert log.commands[0] == ["dpkg", "--force-depends", "--force-remove-reinstreq", "--remove", "a", "d"]


def test_the_journal_of_a_killed_dpkg_is_taken_in_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_apt_transaction, "JOURNAL", str(tmp_path))
    log = Log()
    writer(log).apply([Package("a", "1")], [], None)
    assert len(log.commands) == 1
    (tmp_path / "0001").touch()
    writer(log).apply([Package("a", "1")], [], None)
    assert log.commands[1] == ["dpkg", "--set-selections"]


def test_a_lock_is_waited_for() -> None:
    log = Log()
    writer(log, locks=Locks(3)).hold(["a"])
    assert log.lines == [f"Waiting for the lock {LOCK} held by process 1234 (unattended-upgr)"]
    assert log.commands == [["apt-mark", "hold", "a"]]


@pytest.mark.parametrize(
    ("holder", "who"),
    [
        (Holder(LOCK, 1234, "unattended-upgr"), "process 1234 (unattended-upgr)"),
        (Holder(LOCK, 1234, None), "process 1234 holds"),
        (Holder(LOCK, None, None), "a process that can't be seen from here"),
    ],
)
def test_a_lock_that_is_not_given_back(holder: Holder, who: str) -> None:
    log = Log()
    with pytest.raises(PackageError) as caught:
        writer(log, locks=Locks(100, holder)).hold(["a"])
    assert caught.value.kind == "lock"
    assert who in caught.value.message
    assert LOCK in caught.value.message
    assert "within 5 s" in caught.value.message
    assert log.commands == []


FAILED_POSTINST = (
    "Setting up a (1) ...\ndpkg: error processing package a (--configure):\n"
    " installed a package post-installation script subprocess returned error exit status 10\n"
    "Errors were encountered while processing:\n a\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n"
)
UNMET = (
    "The following packages have unmet dependencies:\n a : Depends: b (= 2) but 1 is to be installed\n"
    "E: Unable to correct problems, you have held broken packages.\n"
)


@pytest.mark.parametrize(
    ("output", "kind", "words"),
    [
        (FAILED_POSTINST, "package_manager", "dpkg could not finish a: installed a package post-installation script"),
        (UNMET, "unresolvable", "a depends on b (= 2) but 1 is to be installed"),
        ("E: Unable to locate package a\n", "unresolvable", "Unable to locate package a"),
        (
            (
                f"E: Could not get lock {LOCK}. It is held by process 77 (apt-get)\n"
                f"E: Unable to acquire the dpkg frontend lock ({LOCK}), is another process using it?\n"
            ),
            "lock",
            "process 77 (apt-get)",
        ),
        ("dpkg: error: dpkg frontend lock was locked by another process with pid 88\n", "lock", "process 88"),
        (
            "Err:1 http://mirror x\nE: Failed to fetch http://mirror/a.deb  Connection refused\n",
            "download",
            "Failed to fetch http://mirror/a.deb",
        ),
        ("E: Failed to fetch http://m/a.deb  Hash Sum mismatch\n", "checksum", "Hash Sum mismatch"),
        (
            "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'\n",
            "interrupted",
            "dpkg was interrupted",
        ),
        ("E: Sub-process /usr/bin/dpkg exited unexpectedly\n", "interrupted", "exited unexpectedly"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.\n", "disk", "/var has 5 MB left"),
        (
            (
                "dpkg: error processing archive /a.deb (--unpack):\n cannot copy extracted data for './usr/lib/x' to "
                "'/usr/lib/x.dpkg-new': failed to write (No space left on device)\n"
            ),
            "disk",
            "/var has 5 MB left",
        ),
        ("", "package_manager", "exit status 100: it printed nothing"),
    ],
)
def test_why_a_transaction_failed(output: str, kind: str, words: str) -> None:
    with pytest.raises(PackageError) as caught:
        writer(Log(Result(100, output, "")), disks=Disks(var=5_000_000)).apply([Package("a", "1")], [], None)
    assert caught.value.kind == kind
    assert words in caught.value.message
    assert caught.value.details == output
    assert "\n" not in caught.value.message


def test_a_command_that_fails_without_a_word_on_a_full_disk() -> None:
    with pytest.raises(PackageError, match="/var has 0 MB left") as caught:
        writer(Log(Result(100, "", "")), disks=Disks(var=0)).refresh()
    assert caught.value.kind == "disk"


def test_a_command_that_was_killed() -> None:
    with pytest.raises(PackageError, match="apt-get was ended by signal 9") as caught:
        writer(Log(Result(-9, "Unpacking a", ""))).apply([Package("a", "1")], [], None)
    assert caught.value.kind == "interrupted"


def test_a_log_on_a_full_disk() -> None:
    class FullLog(Log):
        def run(self, _command: t.Sequence[str], _env: t.Mapping[str, str]) -> Result:
            raise OSError(errno.ENOSPC, "No space left on device", "/var/log/x")

    with pytest.raises(PackageError) as caught:
        writer(FullLog(), disks=Disks(var=0)).repair()
    assert caught.value.kind == "disk"


def test_automatic_packages() -> None:
    assert writer(Log(), reads="a\nb\n").automatic() == {"a", "b"}


def test_a_listing_that_fails() -> None:
    one = AptWriter(Log(), lambda _command, _env: Result(2, "", "E: no\n"), 1, locks=Locks(0), disks=Disks())
    with pytest.raises(PackageError, match="apt-mark showauto failed: no"):
        one.automatic()


LISTING = """\
dkms\tinstalled\tdkms-virtual (= 3)\tgcc | clang, make
make\tinstalled\t\tlibc6 (>= 2)
gcc\tinstalled\tc-compiler\tlibc6
clang\tconfig-files\tc-compiler\t
zfs-dkms\tinstalled\t\tdkms (>> 2), python3:any
libc6\tinstalled\t\t
builder\tinstalled\t\tc-compiler
"""


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        ({"dkms"}, {"dkms": "zfs-dkms"}),
        ({"dkms", "zfs-dkms", "make"}, {}),
        ({"make"}, {"make": "dkms"}),
        ({"gcc", "dkms", "zfs-dkms"}, {"gcc": "builder"}),
        ({"gcc", "builder", "dkms", "zfs-dkms"}, {}),
        ({"libc6", "gcc"}, {"libc6": "make", "gcc": "dkms"}),
        (set(), {}),
        ({"clang"}, {}),
    ],
)
def test_what_others_need(names: set[str], needed: dict[str, str]) -> None:
    assert writer(Log(), reads=LISTING).needed_by_others(names) == needed


def _hold(path: str, ready: t.Any, done: t.Any) -> None:
    with Path(path).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        ready.set()
        done.wait(120)


def test_the_holder_of_a_real_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert HostLocks().holder(str(path)) is None, "no such file"
    path.touch()
    assert HostLocks().holder(str(path)) is None
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(str(path), ready, done))
    process.start()
    try:
        assert ready.wait(120)
        holder = HostLocks().holder(str(path))
        assert holder is not None
        assert holder.pid == process.pid
        assert holder.name
    finally:
        done.set()
        process.join()


def test_the_room_on_a_real_disk(tmp_path: Path) -> None:
    mount, free = HostDisks().free(str(tmp_path / "not" / "there"))
    assert Path(mount).is_mount()
    assert free > 0
