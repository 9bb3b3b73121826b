# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The allocator under random events and crashes, compared with what truly runs."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sqlite3
import tempfile
import types
import typing as t
from pathlib import Path
from unittest import mock

from cudahub_hub import leases
from cudahub_hub.allocator import Grant, Observation, Refused, Request, Server
from hub_site import Site, gpu, mig, units
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

LAYOUTS = {
    "whole": [gpu(0), gpu(1), gpu(2)],
    "removed": [gpu(1), gpu(2)],
    "sliced": [mig(0, 0), mig(0, 1), gpu(1), gpu(2)],
    "sliced anew": [mig(0, 2), mig(0, 1), gpu(1), gpu(2)],
    "unhealthy": [gpu(0), gpu(1, healthy=False), gpu(2)],
    "none": [],
}
POOLS: dict[str, list[dict[str, t.Any]]] = {
    "exclusive": [{"name": "default"}],
    "share 2": [{"name": "default", "policy": "share", "servers_per_gpu": 2}],
    "share 4": [{"name": "default", "policy": "share", "servers_per_gpu": 4}],
    "two": [
        {"name": "a", "gpus": ["GPU-0"], "policy": "share", "servers_per_gpu": 2},
        {"name": "b", "gpus": ["GPU-1", "GPU-2"]},
    ],
}
SERVERS = [Server(user, name) for user in ("anna", "ben", "carl") for name in ("", "x")]
PHYSICAL = {unit["uuid"]: unit["gpu"] for layout in LAYOUTS.values() for unit in layout}

a_server = st.sampled_from(SERVERS)
some_servers = st.sets(a_server)
# The point at which the process is killed: before or after the n-th statement; mostly not at all.
a_crash = st.one_of(st.none(), st.none(), st.integers(0, 40))


class CrashError(BaseException):
    """Stands for SIGKILL."""


class Connection(sqlite3.Connection):
    """Crashes at a chosen point before or after a statement."""

    left: t.ClassVar[int | None] = None

    def execute(self, *args: t.Any) -> sqlite3.Cursor:
        self._point()
        cursor = super().execute(*args)
        self._point()
        return cursor

    def _point(self) -> None:
        if Connection.left is not None:
            Connection.left -= 1
            if Connection.left < 0:
                Connection.left = None
                raise CrashError


def collide(one: str, other: str) -> bool:
    """Whether two units are a whole GPU and a slice of it."""
    return one != other and PHYSICAL[one] == PHYSICAL[other] and "GPU" in one + other and "MIG" in one + other


class Hub(RuleBasedStateMachine):
    """A hub that starts and stops servers, and the model: what truly runs, and what the hub was granted for a start."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.site = Site(self.root)
        fake = types.SimpleNamespace(**vars(sqlite3))
        fake.connect = functools.partial(sqlite3.connect, factory=Connection)
        self.patch = mock.patch.object(leases, "sqlite3", fake)
        self.patch.start()
        self.live: dict[Server, tuple[str, ...]] = {}
        self.starting: dict[Server, Grant] = {}
        self.tokens: dict[Server, str] = {}
        self.number = 0
        self.untouched = True

    @initialize(layout=st.sampled_from(["whole", "sliced"]), pools=st.sampled_from(sorted(POOLS)))
    def set_up(self, layout: str, pools: str) -> None:
        self.layout, self.pools = LAYOUTS[layout], POOLS[pools]
        self.site.units(*self.layout)
        self.site.settings(*self.pools)
        self.hub = self.site.open("hub 0")

    def teardown(self) -> None:
        try:
            if hasattr(self, "hub"):
                self.live.clear()
                self.crash()
                self.hub.reconcile(lambda _: Observation(), self.alive)
                assert self.hub.leases() == ()
                assert [unit.holders for unit in self.hub.state().units if unit.holders] == []
        finally:
            self.patch.stop()
            shutil.rmtree(self.root)

    def alive(self, hub: str) -> bool:
        return hub == f"hub {self.number}"

    def run(self, crash: int | None, task: t.Callable[[], t.Any]) -> t.Any:
        """Runs a task in the hub's process, which may be killed meanwhile; then None."""
        Connection.left = crash
        try:
            return task()
        except CrashError:
            self.crash()
            return None
        finally:
            Connection.left = None

    @rule()
    def crash(self) -> None:
        self.number += 1
        self.starting.clear()
        self.hub = self.site.open(f"hub {self.number}")

    # What a hub does

    @rule(server=a_server, count=st.sampled_from([1, 1, 1, 0, 2]), crash=a_crash)
    def acquire(self, server: Server, count: int, crash: int | None) -> None:
        if server in self.tokens and server in self.live:
            return
        held = self.hub.leases()
        try:
            grant = self.run(crash, lambda: self.hub.acquire(Request(server, count)))
        except Refused as refused:
            self.check_refusal(server, count, held, refused)
            return
        if grant is None:
            return
        assert len(set(units(grant))) == len(grant.units) == count
        if count:
            self.check_grant(server, grant)
        self.tokens.pop(server, None)
        self.starting[server] = grant

    def check_grant(self, server: Server, grant: Grant) -> None:
        pool = next(pool for pool in self.pools if pool["name"] == grant.pool)
        others: dict[Server, set[str]] = {}
        for other, opened in self.live.items():
            others.setdefault(other, set()).update(opened)
        for other, granted in self.starting.items():
            others.setdefault(other, set()).update(units(granted))
        others.pop(server, None)
        for uuid in units(grant):
            assert self.usable(uuid)
            assert not any(collide(uuid, held) for opened in others.values() for held in opened)
            assert sum(uuid in opened for opened in others.values()) < pool.get("servers_per_gpu", 1)

    def check_refusal(self, server: Server, count: int, held: t.Any, refused: Refused) -> None:
        old = [lease for lease in held if lease.server == server]
        if refused.reason == "stopping":
            assert old
            return
        assert not old
        assert count
        assert refused.reason in {"none_free", "no_gpus", "too_many"}
        for pool in self.pools:
            members = [unit["uuid"] for unit in self.layout if not pool.get("gpus") or unit["gpu"] in pool["gpus"]]
            free = [
                uuid
                for uuid in members
                if self.usable(uuid)
                and sum(uuid in lease.units for lease in held) < pool.get("servers_per_gpu", 1)
                and not any(collide(uuid, other) for lease in held for other in lease.units)
            ]
            assert len(free) < count

    def usable(self, uuid: str) -> bool:
        unit = next((unit for unit in self.layout if unit["uuid"] == uuid), None)
        return bool(unit) and unit.get("healthy", True) and self.site.conditions.get(uuid) != "lost"

    @rule(server=a_server)
    def begin(self, server: Server) -> None:
        if server in self.starting:
            self.live[server] = tuple(units(self.starting[server]))

    @rule(server=a_server, crash=a_crash)
    def started(self, server: Server, crash: int | None) -> None:
        if server in self.starting and server in self.live:
            grant = self.starting[server]
            self.tokens[server] = grant.token
            self.run(crash, lambda: self.hub.started(server, grant.token))
            self.starting.pop(server, None)

    @rule(server=a_server, crash=a_crash)
    def fail(self, server: Server, crash: int | None) -> None:
        if server in self.starting and server not in self.live:
            self.untouched = False
            grant = self.starting.pop(server)
            self.run(crash, lambda: self.hub.gone(server, grant.token))

    @rule(server=a_server, crash=a_crash)
    def leaving(self, server: Server, crash: int | None) -> None:
        if server in self.tokens:
            self.run(crash, lambda: self.hub.leaving(server, self.tokens[server]))

    @rule(server=a_server, crash=a_crash)
    def gone(self, server: Server, crash: int | None) -> None:
        if server in self.tokens and server not in self.live:
            self.untouched = False
            token = self.tokens.pop(server)
            self.run(crash, lambda: self.hub.gone(server, token))

    @rule(server=a_server, token=st.sampled_from(["", "stale"]))
    def gone_with_a_stale_token(self, server: Server, token: str) -> None:
        assert self.hub.gone(server, token) == ()

    # What happens to it

    @rule(server=a_server)
    def die(self, server: Server) -> None:
        if self.live.pop(server, None) is not None:
            self.untouched = False

    @precondition(lambda self: self.live)
    @rule()
    def reboot(self) -> None:
        self.live.clear()
        self.tokens.clear()
        self.untouched = False
        self.crash()

    @rule(layout=st.sampled_from(sorted(LAYOUTS)))
    def change_inventory(self, layout: str) -> None:
        self.untouched = self.untouched and self.layout == LAYOUTS[layout]
        self.layout = LAYOUTS[layout]
        self.site.units(*self.layout)

    @rule(pools=st.sampled_from(sorted(POOLS)))
    def change_settings(self, pools: str) -> None:
        self.untouched = self.untouched and self.pools == POOLS[pools]
        self.pools = POOLS[pools]
        self.site.settings(*self.pools)

    @rule(number=st.integers(0, 2), condition=st.sampled_from(["lost", "ok", "unknown"]))
    def change_condition(self, number: int, condition: str) -> None:
        self.untouched = False
        self.site.conditions |= dict.fromkeys((u for u, g in PHYSICAL.items() if g == f"GPU-{number}"), condition)

    # The reconciler

    @rule(
        complete=st.booleans(),
        hidden=some_servers,
        unknown=some_servers,
        unclear=some_servers,
        meanwhile=st.sampled_from(["", "", "started", "die", "gone", "acquire"]),
        server=a_server,
        crash=a_crash,
    )
    def reconcile_in_the_dark(self, *, complete: bool, crash: int | None, **choice: t.Any) -> None:
        def observe(_held: t.Any) -> Observation:
            unknown = choice["unknown"]
            alive = {
                server: None if server in choice["unclear"] else opened
                for server, opened in self.live.items()
                if server not in unknown and (complete or server not in choice["hidden"])
            }
            left, Connection.left = Connection.left, None
            server = choice["server"]
            if choice["meanwhile"] == "acquire":
                self.acquire(server, 1, None)
            elif choice["meanwhile"]:
                getattr(self, choice["meanwhile"])(server, **({} if choice["meanwhile"] == "die" else {"crash": None}))
            Connection.left = left
            return Observation(alive, frozenset(unknown), complete)

        self.untouched = False
        report = self.run(crash, lambda: self.hub.reconcile(observe, self.alive))
        if report is not None:
            assert complete or not report.freed
            assert not {lease.server for lease in report.freed} & choice["unknown"]

    @rule()
    def reconcile(self) -> None:
        report = self.hub.reconcile(lambda _: Observation(dict(self.live)), self.alive)
        if report.freed:
            self.untouched = False
        assert report.adopted == ()
        assert {lease.server for lease in self.hub.leases()} <= {*self.live, *self.starting}

    @precondition(lambda self: not self.starting)
    @rule()
    def lose_the_database(self) -> None:
        self.untouched = False
        shutil.rmtree(self.root / "state")
        self.crash()
        self.hub.reconcile(lambda _: Observation(dict(self.live)), self.alive)
        assert {lease.server: set(lease.units) for lease in self.hub.leases()} == {
            server: set(opened) for server, opened in self.live.items() if opened
        }

    # What always holds

    @invariant()
    def what_runs_is_leased(self) -> None:
        if not hasattr(self, "hub"):
            return
        held = {lease.server: set(lease.units) for lease in self.hub.leases()}
        for server, opened in self.live.items():
            assert set(opened) <= held.get(server, set())
        for server, grant in self.starting.items():
            assert set(units(grant)) <= held.get(server, set())

    @invariant()
    def shares_are_balanced(self) -> None:
        if not hasattr(self, "hub") or not self.untouched or len(self.pools) > 1:
            return
        numbers = [len(unit.holders) for unit in self.hub.state().units]
        assert max(numbers, default=0) - min(numbers, default=0) <= 1


Hub.TestCase.settings = settings(
    max_examples=int(os.environ.get("CUDAHUB_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_random_events = Hub.TestCase


@given(
    gpus=st.integers(1, 5),
    servers_per_gpu=st.integers(1, 4),
    counts=st.lists(st.integers(1, 3), max_size=20),
)
@settings(deadline=None, max_examples=40)
def test_shares_are_balanced_while_servers_only_start(gpus: int, servers_per_gpu: int, counts: list[int]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        site = Site(Path(root))
        site.units(*(gpu(number) for number in range(gpus)))
        site.settings({"name": "default", "policy": "share", "servers_per_gpu": servers_per_gpu})
        hub = site.open()
        given_out = 0
        for number, count in enumerate(counts):
            try:
                hub.acquire(Request(Server(f"user{number}"), count))
            except Refused:
                assert count > gpus or given_out + count > gpus * servers_per_gpu
                continue
            given_out += count
            numbers = [len(unit.holders) for unit in hub.state().units]
            assert sum(numbers) == given_out
            assert max(numbers) - min(numbers) <= 1


def test_collisions_of_the_model() -> None:
    pairs = {(a, b) for a, b in itertools.permutations(PHYSICAL, 2) if collide(a, b)}
    assert ("GPU-0", "MIG-0.1") in pairs
    assert ("MIG-0.0", "MIG-0.1") not in pairs
    assert ("GPU-1", "MIG-0.1") not in pairs
