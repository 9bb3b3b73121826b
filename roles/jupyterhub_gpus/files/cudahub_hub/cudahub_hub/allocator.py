# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gives GPUs to servers, and takes them back when the servers are known to be gone."""

from __future__ import annotations

import math
import secrets
import threading
import time
import typing as t
from dataclasses import dataclass, field, replace
from functools import cached_property

from . import refusal
from .inventory import Inventory, Unit, pool_units, read_inventory
from .leases import Lease, Notice, Server, Store, Transaction, hub_alive, hub_identity
from .refusal import Refused
from .settings import ConfigurationError, Pool, Settings, is_integer, read_settings

if t.TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Allocator",
    "ConfigurationError",
    "Grant",
    "Lease",
    "Notice",
    "Observation",
    "Offer",
    "PoolState",
    "Refused",
    "Report",
    "Request",
    "Server",
    "State",
    "UnitState",
    "hub_alive",
    "hub_identity",
]

Condition = t.Literal["ok", "lost", "unknown"]


@dataclass(frozen=True)
class Request:
    """What a server that starts asks for."""

    server: Server
    count: int
    groups: frozenset[str] = frozenset()
    image: str | None = None
    pool: str | None = None


@dataclass(frozen=True)
class Grant:
    """What a server that starts was given; the token is of this start."""

    server: Server
    token: str
    units: tuple[Unit, ...] = ()
    common_nodes: tuple[str, ...] = ()
    pool: str | None = None


@dataclass(frozen=True)
class Observation:
    """What really runs.

    Attributes:
        alive: the servers that run, with the UUIDs that they can open; None: that can't be told.
        unknown: servers of which it can't be told whether they run.
        complete: False where a server that isn't named here may run all the same.
    """

    alive: t.Mapping[Server, tuple[str, ...] | None] = field(default_factory=dict)
    unknown: frozenset[Server] = frozenset()
    complete: bool = True


@dataclass(frozen=True)
class Report:
    """What a reconciliation did; conflicts are sentences for the log."""

    freed: tuple[Lease, ...] = ()
    adopted: tuple[Lease, ...] = ()
    kept: tuple[Lease, ...] = ()
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnitState:
    """A unit now.

    Attributes:
        pool: its pool's name; None: in no pool, or no longer in the inventory.
        unit: what the inventory says; None: no longer in the inventory.
        condition: what the collector says.
        problems: sentences on why it is not given.
        free: how many more servers it can be given to now.
    """

    uuid: str
    unit: Unit | None
    pool: str | None
    condition: Condition
    problems: tuple[str, ...]
    holders: tuple[Lease, ...]
    free: int


@dataclass(frozen=True)
class PoolState:
    """A pool now: how many units it has, how many could be given if nobody held one, how many are free."""

    pool: Pool
    total: int
    usable: int
    free: int


@dataclass(frozen=True)
class State:
    """Everything now.

    Attributes:
        next_idle: when the next idle server is stopped, epoch seconds.
        problem: what is wrong with the settings or the inventory; the last good ones hold meanwhile.
    """

    units: tuple[UnitState, ...]
    pools: tuple[PoolState, ...]
    leases: tuple[Lease, ...]
    notices: tuple[Notice, ...]
    settings: Settings
    next_idle: float | None = None
    problem: str | None = None

    def held(self, user: str) -> int:
        """How many GPUs a user's servers hold."""
        return sum(len(lease.units) for lease in self.leases if lease.server.user == user)

    def limit(self, user: str, groups: t.Iterable[str] = ()) -> int | None:
        """How many GPUs a user may hold; None: no limit."""
        return self.settings.limits.of(user, groups)


@dataclass(frozen=True)
class Offer:
    """What a user can have now.

    Attributes:
        pools: the pools that are for them.
        most: the largest number of GPUs that a server of theirs would get now.
        limit: how many they may hold at a time; None: no limit.
        held: how many their other servers hold.
        sentence: why they can't have one now; None where they can.
    """

    pools: tuple[PoolState, ...]
    most: int
    limit: int | None
    held: int
    sentence: str | None

    @property
    def left(self) -> int | None:
        """How many more they may hold; None: no limit."""
        return None if self.limit is None else max(0, self.limit - self.held)


@dataclass(frozen=True)
class _Config:
    settings: Settings
    inventory: Inventory
    units: t.Mapping[str, tuple[Unit, ...]]


@dataclass(frozen=True)
class _View:
    """All that a decision rests on."""

    config: _Config
    conditions: t.Mapping[str, Condition]
    leases: tuple[Lease, ...]
    turns: t.Mapping[str, int] = field(default_factory=dict)
    stops: t.Mapping[Server, float] = field(default_factory=dict)
    now: float = 0.0

    def next_idle(self, servers: t.Iterable[Server]) -> float | None:
        """When the next of some servers is stopped because its GPU does nothing."""
        return min((self.stops[server] for server in servers if server in self.stops), default=None)

    def without(self, server: Server) -> _View:
        """The view as it would be if a server held nothing."""
        return replace(self, leases=tuple(lease for lease in self.leases if lease.server != server))

    def problems(self, unit: Unit) -> tuple[str, ...]:
        """Why a unit is not given to anybody."""
        found = () if unit.healthy else unit.problems or ("It is out of order.",)
        return (*found, "The driver has lost it.") if self.conditions.get(unit.uuid) == "lost" else found

    def holders(self, uuid: str) -> tuple[Lease, ...]:
        """The leases of a unit."""
        return tuple(lease for lease in self.leases if uuid in lease.units)

    def colliding(self, unit: Unit) -> tuple[Lease, ...]:
        """The leases of the whole GPU of a slice, or of slices of a whole GPU."""
        return tuple(
            lease
            for lease in self.leases
            if any(unit.collides(*held) for held in zip(lease.units, lease.gpus, strict=True))
        )

    def room(self, unit: Unit, pool: Pool) -> int:
        """How many more servers a unit can be given to now."""
        if self.problems(unit) or self.colliding(unit):
            return 0
        return max(0, pool.servers_per_gpu - len(self.holders(unit.uuid)))

    def free(self, pool: Pool) -> list[Unit]:
        """A pool's free units, first the one to give first."""
        units = [unit for unit in self.config.units[pool.name] if self.room(unit, pool)]
        return sorted(units, key=lambda unit: (len(self.holders(unit.uuid)), self.turns.get(unit.uuid, 0)))

    def pool_state(self, pool: Pool) -> PoolState:
        """A pool in numbers."""
        units = self.config.units[pool.name]
        usable = sum(1 for unit in units if not self.problems(unit))
        return PoolState(pool=pool, total=len(units), usable=usable, free=len(self.free(pool)))

    def pools(self, groups: t.Iterable[str], image: str | None, name: str | None = None) -> tuple[Pool, ...]:
        """The pools that a server may be given GPUs of."""
        mine = frozenset(groups)
        theirs = [pool for pool in self.config.settings.pools if pool.groups is None or pool.groups & mine]
        if not theirs:
            raise refusal.not_for_you()
        if name is not None and name not in [pool.name for pool in theirs]:
            raise refusal.no_such_pool(name, [pool.name for pool in theirs])
        named = [pool for pool in theirs if name in (None, pool.name)]
        fit = tuple(pool for pool in named if pool.images is None or image in pool.images)
        if not fit:
            raise refusal.not_for_image(image, list(dict.fromkeys(i for pool in named for i in pool.images or ())))
        return fit

    def decide(self, request: Request) -> tuple[Pool, tuple[Unit, ...]]:
        """The units to give to a server that holds none.

        Raises:
            Refused: It gets none.
        """
        pools = self.pools(request.groups, request.image, request.pool)
        self.within_limit(request)
        total = max(len(self.config.units[pool.name]) for pool in pools)
        for pool in pools:
            free = self.free(pool)
            if len(free) >= request.count:
                return pool, tuple(free[: request.count])
        units = [unit for pool in pools for unit in self.config.units[pool.name]]
        broken = sum(1 for unit in units if self.problems(unit))
        if broken == len(units):
            raise refusal.no_gpus(len(units))
        if request.count > total:
            raise refusal.too_many(request.count, total)
        holders = {lease.server for unit in units for lease in (*self.holders(unit.uuid), *self.colliding(unit))}
        user = request.server.user
        stop = self.next_idle(holders)
        raise refusal.none_free(
            count=request.count,
            free=max(len(self.free(pool)) for pool in pools),
            others=len({server.user for server in holders} - {user}),
            names=sorted(server.name for server in holders if server.user == user),
            broken=broken,
            minutes=None if stop is None else max(1, math.ceil((stop - self.now) / 60)),
        )

    def within_limit(self, request: Request) -> None:
        """Refuses what the user may not hold together with what their other servers hold."""
        limit = self.config.settings.limits.of(request.server.user, request.groups)
        if limit is None:
            return
        if limit == 0:
            raise refusal.never()
        mine = [lease for lease in self.leases if lease.server.user == request.server.user and lease.units]
        held = sum(len(lease.units) for lease in mine)
        if held + request.count > limit:
            over = request.count > limit
            raise refusal.over_limit(
                request.count, limit, 0 if over else held, sorted(lease.server.name for lease in mine)
            )

    def unit_states(self) -> tuple[UnitState, ...]:
        """Each unit of the inventory, then those that are still held though no longer in it."""
        where = {unit.uuid: pool for pool in self.config.settings.pools for unit in self.config.units[pool.name]}
        states = []
        for unit in self.config.inventory.units:
            pool = where.get(unit.uuid)
            states.append(
                UnitState(
                    uuid=unit.uuid,
                    unit=unit,
                    pool=pool.name if pool else None,
                    condition=self.conditions.get(unit.uuid, "unknown"),
                    problems=self.problems(unit),
                    holders=self.holders(unit.uuid),
                    free=self.room(unit, pool) if pool else 0,
                )
            )
        known = {state.uuid for state in states}
        former = dict.fromkeys(uuid for lease in self.leases for uuid in lease.units if uuid not in known)
        states.extend(
            UnitState(
                uuid=uuid,
                unit=None,
                pool=None,
                condition=self.conditions.get(uuid, "unknown"),
                problems=("It is no longer in the inventory.",),
                holders=self.holders(uuid),
                free=0,
            )
            for uuid in former
        )
        return tuple(states)

    def offer(self, request: Request) -> Offer:
        """What a server that holds nothing can have."""
        try:
            pools = self.pools(request.groups, request.image)
        except Refused:
            pools = ()
        states = tuple(self.pool_state(pool) for pool in pools)
        user = request.server.user
        limit = self.config.settings.limits.of(user, request.groups)
        held = sum(len(lease.units) for lease in self.leases if lease.server.user == user)
        most, sentence = 0, None
        try:
            self.decide(replace(request, count=1))
        except Refused as refused:
            sentence = refused.message
        else:
            free = max(state.free for state in states)
            most = free if limit is None else min(free, limit - held)
        return Offer(pools=states, most=most, limit=limit, held=held, sentence=sentence)

    def conflicts(self) -> tuple[str, ...]:
        """Units that more servers hold than may."""
        found = []
        for pool in self.config.settings.pools:
            for unit in self.config.units[pool.name]:
                holders = self.holders(unit.uuid)
                if len(holders) > pool.servers_per_gpu:
                    servers = refusal.listed(str(lease.server) for lease in holders)
                    found.append(f"{unit.uuid} is held by {servers}, more than the pool {pool.name} gives it to.")
                if holders and self.colliding(unit):
                    servers = refusal.listed(str(lease.server) for lease in (*holders, *self.colliding(unit)))
                    found.append(f"{unit.uuid} and a part of it or the whole are held at a time: by {servers}.")
        return tuple(found)

    def fits(self, lease: Lease, request: Request) -> tuple[Pool, tuple[Unit, ...]] | None:
        """The pool and the units of a lease which a server already has, if it would be given them now."""
        if len(lease.units) != request.count:
            return None
        for pool in self.pools(request.groups, request.image, request.pool):
            units = {unit.uuid: unit for unit in self.config.units[pool.name]}
            if all(uuid in units and self.room(units[uuid], pool) for uuid in lease.units):
                return pool, tuple(units[uuid] for uuid in lease.units)
        return None


class Allocator:
    """The one place that gives GPUs; any number of threads and processes may use the same database."""

    def __init__(
        self,
        settings_path: Path,
        *,
        clock: t.Callable[[], float] = time.time,
        hub: str | None = None,
        usage: t.Callable[[], t.Mapping[str, Condition]] | None = None,
    ) -> None:
        """Reads nothing yet: as long as a file was never good, all else raises ConfigurationError.

        Args:
            settings_path: the settings file.
            clock: the time in epoch seconds.
            hub: the identity of the process that starts servers; this one if not given.
            usage: the condition of each unit; what the collector wrote if not given.
        """
        self._path = settings_path
        self._clock = clock
        self._hub = hub or hub_identity()
        self._usage = usage or self._collected
        self._lock = threading.Lock()
        self._files: tuple[object, ...] | None = None
        self._last: _Config | None = None

    @cached_property
    def _store(self) -> Store:
        return Store(self._lenient()[0].settings.database)

    @property
    def settings(self) -> Settings:
        """The settings as the file has them now, or the last good ones."""
        return self._lenient()[0].settings

    def state_directory(self) -> Path:
        """The directory of the leases."""
        return self.settings.database.parent

    @property
    def inventory(self) -> Inventory:
        """The inventory as the file has it now, or the last good one."""
        return self._lenient()[0].inventory

    def acquire(self, request: Request) -> Grant:
        """Takes the units that a server which starts asks for; one that already has fitting ones gets these again.

        Raises:
            Refused: It gets none.
            ConfigurationError: A file is wrong.
        """
        if not is_integer(request.count) or request.count < 0:
            raise refusal.senseless(request.count)
        server = request.server
        config = self._config() if request.count else self._lenient()[0]
        conditions = self._usage()
        token = secrets.token_hex(16)
        with self._store.write() as tables:
            now = self._clock()
            view = self._view(config, conditions, tables, now)
            old = next((lease for lease in view.leases if lease.server == server), None)
            if request.count == 0:
                if old is not None:
                    raise refusal.stopping(len(old.units))
                return Grant(server, token)
            view = view.without(server)
            if old is None:
                pool, units = view.decide(request)
            else:
                view.pools(request.groups, request.image, request.pool)
                view.within_limit(request)
                again = view.fits(old, request)
                if again is None:
                    raise refusal.stopping(len(old.units))
                pool, units = again
            lease = Lease(
                server=server,
                token=token,
                units=tuple(unit.uuid for unit in units),
                gpus=tuple(unit.gpu for unit in units),
                pool=pool.name,
                state="starting",
                since=now,
                hub=self._hub,
            )
            tables.put(lease)
        return Grant(server, token, units, config.inventory.common_nodes, pool.name)

    def started(self, server: Server, token: str) -> None:
        """Notes that the server runs."""
        with self._store.write() as tables:
            lease = _lease(tables, server, token)
            if lease is not None and lease.state == "starting":
                tables.change(replace(lease, state="running", hub=self._hub))

    def leaving(self, server: Server, token: str) -> None:
        """Notes that the server is being stopped; it keeps its units until it is gone."""
        with self._store.write() as tables:
            lease = _lease(tables, server, token)
            if lease is not None:
                tables.change(replace(lease, state="leaving", hub=self._hub))

    def gone(self, server: Server, token: str) -> tuple[str, ...]:
        """Frees the units of a server that is known to be gone, unless it was started anew since; returns them."""
        with self._store.write() as tables:
            lease = _lease(tables, server, token)
            if lease is None:
                return ()
            tables.free(lease)
            return lease.units

    def leases(self) -> tuple[Lease, ...]:
        """All leases, the oldest first."""
        with self._store.read() as tables:
            return tables.leases()

    def reconcile(
        self,
        observe: t.Callable[[tuple[Lease, ...]], Observation],
        hub_alive: t.Callable[[str], bool] = hub_alive,
    ) -> Report:
        """Compares the leases with what really runs: frees the dead, adopts servers that hold GPUs without a lease."""
        before = {lease.server: lease for lease in self.leases()}
        starting = {lease.token for lease in before.values() if lease.state == "starting" and hub_alive(lease.hub)}
        seen = observe(tuple(before.values()))
        config, _unused = self._lenient()
        conditions = self._usage()
        freed: list[Lease] = []
        kept: list[Lease] = []
        with self._store.write() as tables:
            now = self._clock()
            for lease in tables.leases():
                settled = before.get(lease.server) == lease and lease.token not in starting
                if settled and lease.server in seen.alive:
                    kept.append(_confirmed(tables, config, lease, seen.alive[lease.server], hub_alive))
                elif settled and seen.complete and lease.server not in seen.unknown:
                    tables.free(lease)
                    freed.append(lease)
                else:
                    kept.append(lease)
            strangers = {s: u for s, u in seen.alive.items() if s not in before and s not in {k.server for k in kept}}
            adopted = [_adopted(tables, config, s, u, now) for s, u in sorted(strangers.items()) if u]
            view = self._view(config, conditions, tables, now)
            _tell_of_lost(tables, view)
        unclear = [
            f"The server {server} runs without a lease, and it can't be told which GPUs it has."
            for server, units in sorted(strangers.items())
            if units is None
        ]
        return Report(tuple(freed), tuple(adopted), tuple(kept), (*unclear, *view.conflicts()))

    def state(self) -> State:
        """Everything now, for the page."""
        config, problem = self._lenient()
        conditions = self._usage()
        with self._store.read() as tables:
            view = self._view(config, conditions, tables, self._clock())
            notices = tables.notices()
        return State(
            units=view.unit_states(),
            pools=tuple(view.pool_state(pool) for pool in config.settings.pools),
            leases=view.leases,
            notices=notices,
            settings=config.settings,
            next_idle=view.next_idle(lease.server for lease in view.leases),
            problem=problem,
        )

    def free_for(self, user: str, groups: t.Iterable[str] = (), image: str | None = None, name: str = "") -> Offer:
        """What a user's server can have now, for the form."""
        config, _unused = self._lenient()
        conditions = self._usage()
        with self._store.read() as tables:
            view = self._view(config, conditions, tables, self._clock()).without(Server(user, name))
        return view.offer(Request(Server(user, name), 1, frozenset(groups), image))

    def tell(self, server: Server, kind: str, text: str, until: float | None = None) -> None:
        """Leaves a notice to a server's user, in place of one of its kind."""
        with self._store.write() as tables:
            tables.tell(Notice(server, kind, text, until, self._clock()))

    def notices(self) -> tuple[Notice, ...]:
        """All notices, the oldest first."""
        with self._store.read() as tables:
            return tables.notices()

    def notices_of(self, server: Server) -> tuple[Notice, ...]:
        """A server's notices, the oldest first."""
        return tuple(notice for notice in self.notices() if notice.server == server)

    def clear_notices(self, server: Server, kind: str | None = None) -> None:
        """Takes a server's notices back, or those of one kind."""
        with self._store.write() as tables:
            tables.forget(server, kind)

    def _view(self, config: _Config, conditions: t.Mapping[str, Condition], tables: Transaction, now: float) -> _View:
        return _View(
            config=config,
            conditions=conditions,
            leases=tables.leases(),
            turns=tables.turns(),
            stops={n.server: n.until for n in tables.notices() if n.kind == "idle" and n.until is not None},
            now=now,
        )

    def _collected(self) -> dict[str, Condition]:
        from .usage import read_usage

        units = read_usage(self.settings.usage, self._clock()).units
        return {uuid: unit.state for uuid, unit in units.items()}

    def _config(self) -> _Config:
        """The settings and the inventory, read anew when a file has changed."""
        with self._lock:
            if self._last is None or self._files != self._stamps(self._last.settings.inventory):
                settings_stamp = _stamp(self._path)
                settings = read_settings(self._path)
                inventory_stamp = _stamp(settings.inventory)
                inventory = read_inventory(settings.inventory)
                self._last = _Config(settings, inventory, pool_units(settings, inventory, self._path))
                self._files = (settings_stamp, inventory_stamp)
            return self._last

    def _stamps(self, inventory: Path) -> tuple[object, ...]:
        return _stamp(self._path), _stamp(inventory)

    def _lenient(self) -> tuple[_Config, str | None]:
        """The last good settings and inventory, and what is wrong with the files now."""
        try:
            return self._config(), None
        except ConfigurationError as error:
            if self._last is None:
                raise
            return self._last, str(error)


def _stamp(path: Path) -> object:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _lease(tables: Transaction, server: Server, token: str) -> Lease | None:
    return next((lease for lease in tables.leases() if lease.server == server and lease.token == token), None)


def _parents(tables: Transaction, config: _Config, uuids: tuple[str, ...]) -> tuple[str, ...]:
    """The physical GPU of each unit, also of those that are no longer there."""
    known = {**tables.parents(), **{unit.uuid: unit.gpu for unit in config.inventory.units}}
    return tuple(known.get(uuid, uuid) for uuid in uuids)


def _confirmed(
    tables: Transaction,
    config: _Config,
    lease: Lease,
    opened: tuple[str, ...] | None,
    hub_alive: t.Callable[[str], bool],
) -> Lease:
    """The lease of a server that runs: with all units that it can open, and running if its hub died meanwhile."""
    if lease.state != "running" and not hub_alive(lease.hub):
        lease = replace(lease, state="running")
        tables.change(lease)
    more = tuple(unit for unit in dict.fromkeys(opened or ()) if unit not in lease.units)
    if more:
        gpus = (*lease.gpus, *_parents(tables, config, more))
        lease = replace(lease, units=(*lease.units, *more), gpus=gpus)
        tables.put(lease)
    return lease


def _adopted(tables: Transaction, config: _Config, server: Server, opened: tuple[str, ...], now: float) -> Lease:
    """A new lease for a server that runs without one."""
    units = tuple(dict.fromkeys(opened))
    lease = Lease(
        server=server,
        token=f"adopted-{secrets.token_hex(16)}",
        units=units,
        gpus=_parents(tables, config, units),
        pool=next((name for name, members in config.units.items() if any(m.uuid in units for m in members)), ""),
        state="running",
        since=now,
        hub="",
    )
    tables.put(lease)
    return lease


def _tell_of_lost(tables: Transaction, view: _View) -> None:
    """Tells the users of servers whose GPU is lost, and takes it back when it works again."""
    told = {notice.server: notice.text for notice in tables.notices() if notice.kind == "lost"}
    for lease in view.leases:
        lost = [uuid for uuid in lease.units if view.conditions.get(uuid) == "lost"]
        if lost:
            names = refusal.listed(view.config.inventory.title(uuid) for uuid in lost)
            text = f"{names} of this server no longer works. Save your work, then stop this server and start it again."
            if told.get(lease.server) != text:
                tables.tell(Notice(lease.server, "lost", text, None, view.now))
        elif lease.server in told and all(view.conditions.get(uuid) == "ok" for uuid in lease.units):
            tables.forget(lease.server, "lost")
