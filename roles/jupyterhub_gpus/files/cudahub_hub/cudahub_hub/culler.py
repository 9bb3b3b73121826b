# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Warns, then stops, servers whose GPUs do nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from .allocator import Allocator, Lease, Server
from .hub_client import HubError, RunningServer
from .settings import Idle
from .usage import Usage

IDLE = "idle"

log = logging.getLogger(__name__)


class Hub(Protocol):
    """What the culler asks of the hub. All raise HubError."""

    async def server(self, server: Server) -> RunningServer | None:
        """A server that the hub runs."""

    async def stop(self, server: Server) -> bool:
        """Have a server stopped."""

    async def busy_kernels(self, running: RunningServer) -> bool:
        """Whether a kernel of a server works."""


class Culler:
    """Looks at all leases from time to time; a server of which something can't be told is left alone."""

    def __init__(
        self,
        allocator: Allocator,
        hub: Hub,
        usage: Callable[[], Usage],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Looks at the leases of an allocator, and stops servers by the hub."""
        self._allocator = allocator
        self._hub = hub
        self._usage = usage
        self._clock = clock
        self._kernels_busy_at: dict[str, float] = {}

    async def check(self) -> None:
        """Warn and stop whom it is time for, and take warnings back."""
        settings = self._allocator.settings.idle
        usage = self._usage()
        leases = self._allocator.leases()
        warned = {notice.server: notice.until for notice in self._allocator.notices() if notice.kind == IDLE}
        self._kernels_busy_at = {
            lease.token: self._kernels_busy_at[lease.token] for lease in leases if lease.token in self._kernels_busy_at
        }
        for lease in leases:
            await self._look_at(lease, settings, usage, warned.get(lease.server))

    async def _look_at(self, lease: Lease, settings: Idle, usage: Usage, stop_at: float | None) -> None:
        try:
            await self._check(lease, settings, usage, stop_at)
        except HubError as error:
            log.warning("It can't be told whether the server %s works, so it is left alone: %s", lease.server, error)
            self._take_back(lease, stop_at)

    async def _check(self, lease: Lease, settings: Idle, usage: Usage, stop_at: float | None) -> None:
        since = self._idle_since(lease, usage) if settings.minutes and lease.state == "running" else None
        limit = settings.minutes * 60.0
        ahead = min(settings.warn_minutes * 60.0, limit / 2)
        if since is None or self._clock() < since + limit - ahead:
            self._take_back(lease, stop_at)
            return
        running = await self._hub.server(lease.server)
        if running is None or not running.ready or running.pending:
            return
        if await self._hub.busy_kernels(running):
            self._kernels_busy_at[lease.token] = self._clock()
            self._take_back(lease, stop_at)
            return
        now = self._clock()
        if stop_at is None:
            until = max(since + limit, now + ahead)
            minutes = int((now - since) // 60)
            names = ", ".join(self._allocator.inventory.title(uuid) for uuid in lease.units)
            text = (
                f"{names} did nothing for {minutes} minutes. This server will be stopped at "
                f"{time.strftime('%H:%M', time.localtime(until))} unless you use the GPU. Save your work."
            )
            self._allocator.tell(lease.server, IDLE, text, until)
            log.info("Warned the server %s: its GPUs are idle for %s minutes.", lease.server, minutes)
        elif now >= stop_at and lease.token in {current.token for current in self._allocator.leases()}:
            log.info(
                "Stopping the server %s: its GPUs are idle since %s minutes.", lease.server, int((now - since) // 60)
            )
            await self._hub.stop(lease.server)

    def _idle_since(self, lease: Lease, usage: Usage) -> float | None:
        """Since when neither the GPUs nor the kernels of a server work; None where that is not known."""
        times = [lease.since, self._kernels_busy_at.get(lease.token, lease.since)]
        for uuid in lease.units:
            unit = usage.of(uuid)
            if unit.state != "ok" or unit.busy_at is None:
                return None
            times.append(unit.busy_at)
        return max(times)

    def _take_back(self, lease: Lease, stop_at: float | None) -> None:
        if stop_at is not None:
            self._allocator.clear_notices(lease.server, IDLE)
