# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many threads and processes at the allocator at once, and a hub that is killed in the middle of a start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cudahub_hub.allocator import Allocator, Refused, Request, Server
from hub_site import Site, seen, take, units

HUB = """
import sys, time
from pathlib import Path
from cudahub_hub.allocator import Allocator, Refused, Request, Server

settings, user, start, then = sys.argv[1:]
time.sleep(max(0.0, float(start) - time.time()))
hub = Allocator(Path(settings))
try:
    grant = hub.acquire(Request(Server(user), 1))
except Refused as refused:
    print(refused.reason, flush=True)
else:
    print(grant.units[0].uuid, flush=True)
    if then == "wait":
        sys.stdin.read()
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def hub(site: Site, user: str, then: str = "end", start: float = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HUB, str(site.path), user, str(start), then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("shared", [True, False], ids=["one allocator", "an allocator each"])
def test_of_20_threads_2_win(site: Site, shared: bool) -> None:
    one = site.open()
    barrier = threading.Barrier(20)

    def spawn(number: int) -> str:
        allocator = one if shared else site.open()
        barrier.wait()
        try:
            return units(take(allocator, f"user{number}"))[0]
        except Refused as refused:
            return refused.reason

    with ThreadPoolExecutor(20) as pool:
        answers = sorted(pool.map(spawn, range(20)))
    assert answers == ["GPU-0", "GPU-1", *["none_free"] * 18]
    assert len(one.leases()) == 2


@pytest.mark.parametrize("fresh", [True, False], ids=["no database yet", "a database"])
def test_of_20_processes_2_win(site: Site, fresh: bool) -> None:
    if not fresh:
        site.open()
    start = time.time() + 3
    hubs = [hub(site, f"user{number}", start=start) for number in range(20)]
    answers = sorted(process.communicate(timeout=120)[0].strip() for process in hubs)
    assert answers == ["GPU-0", "GPU-1", *["none_free"] * 18]
    # The last one that closes the database removes SQLite's files, but not if two do at the same time.
    assert len(site.open().leases()) == 2
    assert [path.name for path in (site.root / "state").iterdir()] == ["leases.sqlite"]


def test_threads_that_start_and_stop_never_meet_on_a_gpu(site: Site) -> None:
    allocator = site.open()
    users = dict.fromkeys(("GPU-0", "GPU-1"), 0)
    met = []

    def work(number: int) -> int:
        served = 0
        for _unused in range(15):
            try:
                grant = take(allocator, f"user{number}")
            except Refused:
                time.sleep(0.001)
                continue
            (uuid,) = units(grant)
            users[uuid] += 1
            if users[uuid] > 1:
                met.append(uuid)
            served += 1
            users[uuid] -= 1
            allocator.gone(grant.server, grant.token)
        return served

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) > 0
    assert met == []
    assert allocator.leases() == ()


def test_a_hub_killed_between_the_lease_and_the_start(site: Site) -> None:
    process = hub(site, "anna", then="wait")
    assert process.stdout is not None
    uuid = process.stdout.readline().strip()
    service = Allocator(site.path)
    try:
        assert service.reconcile(seen()).freed == ()
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        (lease,) = service.reconcile(seen(complete=False)).kept
        assert lease.units == (uuid,)
        assert service.reconcile(seen(unknown=["anna"])).freed == ()
        assert [freed.token for freed in service.reconcile(seen()).freed] == [lease.token]
    finally:
        process.kill()
        process.communicate()
    assert service.leases() == ()


def test_a_hub_killed_after_the_server_began_keeps_the_lease(site: Site) -> None:
    process = hub(site, "anna", then="wait")
    assert process.stdout is not None
    uuid = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    new = Allocator(site.path)
    assert [lease.state for lease in new.reconcile(seen(anna=(uuid,))).kept] == ["running"]
    take(new, "ben")
    with pytest.raises(Refused, match="held by 2 others"):
        take(new, "carl")
    assert units(new.acquire(Request(Server("anna"), 1))) == [uuid]
