# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds which GPU: the database of leases."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
import typing as t
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .settings import ConfigurationError

FORMAT = 1
PATIENCE_S = 30.0
_ANEW = "finds out anew which servers hold GPUs"

State = t.Literal["starting", "running", "leaving"]

_SCHEMA = (
    """CREATE TABLE lease (
        user TEXT NOT NULL, name TEXT NOT NULL, token TEXT NOT NULL UNIQUE, pool TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'leaving')),
        since REAL NOT NULL, hub TEXT NOT NULL, PRIMARY KEY (user, name))""",
    """CREATE TABLE held (
        token TEXT NOT NULL REFERENCES lease (token) ON DELETE CASCADE, place INTEGER NOT NULL,
        unit TEXT NOT NULL, gpu TEXT NOT NULL, PRIMARY KEY (token, unit))""",
    "CREATE TABLE used (unit TEXT PRIMARY KEY, gpu TEXT NOT NULL, turn INTEGER NOT NULL)",
    """CREATE TABLE notice (
        user TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, until REAL, at REAL NOT NULL,
        PRIMARY KEY (user, name, kind))""",
)


@dataclass(frozen=True, order=True)
class Server:
    """A user's server; name is that of a named server."""

    user: str
    name: str = ""

    def __str__(self) -> str:
        """The name in a sentence for the log."""
        return f"{self.user}/{self.name}" if self.name else self.user


@dataclass(frozen=True)
class Lease:
    """That a server holds units, from before its start until it is known to be gone."""

    server: Server
    token: str
    units: tuple[str, ...]
    gpus: tuple[str, ...]
    pool: str
    state: State
    since: float
    hub: str


@dataclass(frozen=True)
class Notice:
    """What the user of a server must know."""

    server: Server
    kind: str
    text: str
    until: float | None
    at: float


class Transaction:
    """The tables, within one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Works on a connection whose transaction has begun."""
        self._run = connection.execute

    def leases(self) -> tuple[Lease, ...]:
        """All leases, the oldest first."""
        held: dict[str, list[tuple[str, str]]] = {}
        for token, unit, gpu in self._run("SELECT token, unit, gpu FROM held ORDER BY token, place"):
            held.setdefault(token, []).append((unit, gpu))
        rows = self._run("SELECT user, name, token, pool, state, since, hub FROM lease ORDER BY since, user, name")
        return tuple(
            Lease(
                server=Server(user, name),
                token=token,
                units=tuple(unit for unit, _unused in held.get(token, ())),
                gpus=tuple(gpu for _unused, gpu in held.get(token, ())),
                pool=pool,
                state=state,
                since=since,
                hub=hub,
            )
            for user, name, token, pool, state, since, hub in rows
        )

    def put(self, lease: Lease) -> None:
        """Enters a lease in place of one that its server had."""
        server = lease.server
        self._run("DELETE FROM lease WHERE user = ? AND name = ?", (server.user, server.name))
        self._run(
            "INSERT INTO lease (user, name, token, pool, state, since, hub) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (server.user, server.name, lease.token, lease.pool, lease.state, lease.since, lease.hub),
        )
        for place, (unit, gpu) in enumerate(zip(lease.units, lease.gpus, strict=True)):
            self._run("INSERT INTO held (token, place, unit, gpu) VALUES (?, ?, ?, ?)", (lease.token, place, unit, gpu))
        self._use(lease)

    def free(self, lease: Lease) -> None:
        """Strikes out a lease, and what its server was to be told."""
        self._run("DELETE FROM lease WHERE token = ?", (lease.token,))
        self.forget(lease.server)
        self._use(lease)

    def change(self, lease: Lease) -> None:
        """Enters a lease's new state."""
        self._run("UPDATE lease SET state = ?, hub = ? WHERE token = ?", (lease.state, lease.hub, lease.token))

    def _use(self, lease: Lease) -> None:
        for unit, gpu in zip(lease.units, lease.gpus, strict=True):
            self._run(
                "INSERT INTO used (unit, gpu, turn) SELECT ?, ?, 1 + coalesce(max(turn), 0) FROM used WHERE true "
                "ON CONFLICT (unit) DO UPDATE SET gpu = excluded.gpu, turn = excluded.turn",
                (unit, gpu),
            )

    def turns(self) -> dict[str, int]:
        """When each unit was last given or freed, as a number that only grows."""
        return dict(self._run("SELECT unit, turn FROM used").fetchall())

    def parents(self) -> dict[str, str]:
        """The physical GPU of each unit that was ever given."""
        return dict(self._run("SELECT unit, gpu FROM used").fetchall())

    def notices(self) -> tuple[Notice, ...]:
        """All notices, the oldest first."""
        rows = self._run("SELECT user, name, kind, text, until, at FROM notice ORDER BY at, user, name, kind")
        return tuple(Notice(Server(user, name), kind, text, until, at) for user, name, kind, text, until, at in rows)

    def tell(self, notice: Notice) -> None:
        """Enters a notice in place of one of its kind."""
        server = notice.server
        self._run(
            "INSERT OR REPLACE INTO notice (user, name, kind, text, until, at) VALUES (?, ?, ?, ?, ?, ?)",
            (server.user, server.name, notice.kind, notice.text, notice.until, notice.at),
        )

    def forget(self, server: Server, kind: str | None = None) -> None:
        """Strikes out a server's notices, or those of one kind."""
        self._run(
            "DELETE FROM notice WHERE user = ? AND name = ? AND (? IS NULL OR kind = ?)",
            (server.user, server.name, kind, kind),
        )


class Store:
    """The database file; each transaction has a connection of its own, so threads and forks don't meet in one."""

    def __init__(self, path: Path) -> None:
        """Makes the database if it isn't there.

        Raises:
            ConfigurationError: It can't be made or used, or isn't sound.
        """
        self.path = path
        with self._sentences():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                self._create()
            elif path.stat().st_mode & 0o077:
                path.chmod(0o600)
        with self._sentences(), self._connection("BEGIN IMMEDIATE") as connection:
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise self._broken(problem)

    @contextmanager
    def read(self) -> t.Iterator[Transaction]:
        """A transaction that sees one state of the database."""
        # pylint: disable-next=contextmanager-generator-missing-cleanup
        with self._sentences(), self._connection("BEGIN") as connection:
            yield Transaction(connection)

    @contextmanager
    def write(self) -> t.Iterator[Transaction]:
        """A transaction in which nobody else writes; an exception undoes it."""
        # pylint: disable-next=contextmanager-generator-missing-cleanup
        with self._sentences(), self._connection("BEGIN IMMEDIATE") as connection:
            yield Transaction(connection)
            connection.execute("COMMIT")

    def _create(self) -> None:
        """Puts a whole new database in place at once; another process may be first."""
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                connection.execute("COMMIT")
            with suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            for end in ("", "-wal", "-shm"):
                draft.with_name(draft.name + end).unlink(missing_ok=True)

    @contextmanager
    def _connection(self, begin: str) -> t.Iterator[sqlite3.Connection]:
        """A connection in a transaction, which ends with it; waits while others open, close or write the database."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=PATIENCE_S
            )
            with closing(connection), _undone(connection):
                try:
                    connection.execute("PRAGMA foreign_keys = ON")
                    connection.execute(begin)
                    version = connection.execute("PRAGMA user_version").fetchone()[0]
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
                    continue
                if version != FORMAT:
                    raise self._foreign(version)
                yield connection
                return

    @contextmanager
    def _sentences(self) -> t.Iterator[None]:
        """Says in a sentence what SQLite or the system has against the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if not self.path.exists():
                raise ConfigurationError(
                    f"{self.path}: the database of leases is gone. Restart the hub, which makes it anew and {_ANEW}"
                ) from error
            if "locked" in str(error):
                raise ConfigurationError(
                    f"{self.path}: another program keeps the database of leases locked. End that program, which "
                    f"`fuser -v {self.path}` names"
                ) from error
            raise ConfigurationError(
                f"{self.path}: the database of leases can't be used ({error}). "
                "Check that the file and its directory belong to the hub's user and that the disk isn't full"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._broken(str(error)) from error
        except OSError as error:
            raise ConfigurationError(
                f"{self.path}: the database of leases can't be made ({error.strerror}). "
                "Give the hub's user a directory to write in"
            ) from error

    def _foreign(self, version: int) -> ConfigurationError:
        if version > FORMAT:
            return ConfigurationError(
                f"{self.path}: a newer version of cudahub_hub wrote this database of leases (format {version}, "
                f"this one reads format {FORMAT}). Install that version, or move the file away and restart the hub"
            )
        return self._broken("the file is empty" if self.path.stat().st_size == 0 else "it is of another program")

    def _broken(self, problem: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.path}: this is not a sound database of leases ({problem}). Move it away and restart the hub, "
            f"which then {_ANEW}"
        )


@contextmanager
def _undone(connection: sqlite3.Connection) -> t.Iterator[None]:
    """Ends a transaction that was not committed; closing alone leaves it open while a cursor lives in a traceback."""
    try:
        yield
    finally:
        with suppress(sqlite3.Error):
            connection.rollback()


def hub_identity() -> str:
    """This process: the boot it runs in, its id, and when it was started."""
    return f"{_boot()} {os.getpid()} {_process(os.getpid())[1]}"


def hub_alive(identity: str) -> bool:
    """Whether a process that took a lease still lives; True where that can't be told."""
    try:
        boot, pid, started = identity.split(" ")
        number = int(pid)
    except ValueError:
        return False
    if boot != _boot():
        return False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        state, now = _process(number)
    except OSError:
        return True
    return now == started and state not in "ZX"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _process(pid: int) -> tuple[str, str]:
    """A process's state and when it was started, in ticks since the boot."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return fields[0].decode(), fields[19].decode()
