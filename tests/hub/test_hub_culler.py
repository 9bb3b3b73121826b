# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The culler: who is warned and stopped when, and everybody who must be left alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cudahub_hub.allocator import Allocator, Request, Server
from cudahub_hub.culler import Culler
from cudahub_hub.hub_client import HubError, RunningServer
from cudahub_hub.usage import UnitUsage, Usage

ANNA = Server("anna")
MINUTE = 60.0


class FakeHub:
    """A hub whose servers' kernels a test sets."""

    def __init__(self) -> None:
        self.running: RunningServer | None = RunningServer("anna", True, None, "/user/anna/")
        self.busy = False
        self.error = False
        self.asked = 0
        self.stopped: list[Server] = []

    async def server(self, server: Server) -> RunningServer | None:  # noqa: ARG002
        return self.running

    async def stop(self, server: Server) -> bool:
        self.stopped.append(server)
        return True

    async def busy_kernels(self, running: RunningServer) -> bool:  # noqa: ARG002
        self.asked += 1
        if self.error:
            raise HubError("It does not answer.")
        return self.busy


class Rig:
    """One server with two GPUs, started at minute 0; idle: 60 minutes, warned 10 before."""

    def __init__(self, directory: Path, **idle: int) -> None:
        self.minute = 0.0
        units = [{"uuid": f"GPU-{i}", "kind": "gpu", "gpu": f"GPU-{i}", "index": i, "name": "H100"} for i in "ab"]
        (directory / "inventory.json").write_text(json.dumps({"format": 1, "units": units}), encoding="utf-8")
        settings = {
            "format": 1,
            "inventory": str(directory / "inventory.json"),
            "database": str(directory / "state" / "leases.sqlite"),
            "usage": str(directory / "usage.json"),
            "limits": {"default": None},
            "idle": {"minutes": 60, "warn_minutes": 10, **idle},
        }
        (directory / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        self.allocator = Allocator(directory / "settings.json", clock=self.clock)
        self.start()
        self.hub = FakeHub()
        self.units = {"GPU-a": UnitUsage("ok", busy_at=0.0), "GPU-b": UnitUsage("ok", busy_at=0.0)}
        self.reason: str | None = None
        self.culler = self.new()

    def start(self, count: int = 2) -> None:
        grant = self.allocator.acquire(Request(ANNA, count))
        self.allocator.started(ANNA, grant.token)
        self.token = grant.token

    def new(self) -> Culler:
        return Culler(self.allocator, self.hub, self.usage, clock=self.clock)

    def clock(self) -> float:
        return self.minute * MINUTE

    def usage(self) -> Usage:
        return Usage(reason=self.reason) if self.reason else Usage(self.clock(), self.units)

    def busy(self, uuid: str = "GPU-b") -> None:
        self.units[uuid] = UnitUsage("ok", busy_at=self.clock())

    def at(self, minute: float) -> None:
        self.minute = minute
        asyncio.run(self.culler.check())

    def pass_by(self, first: int, last: int) -> None:
        """Check at each minute, as the service does."""
        for minute in range(first, last + 1):
            self.at(minute)

    @property
    def notice(self) -> Any:
        return next((notice for notice in self.allocator.notices_of(ANNA) if notice.kind == "idle"), None)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_an_idle_server_is_warned_ten_minutes_before_and_stopped(rig: Rig) -> None:
    rig.at(49)
    assert rig.notice is None
    rig.at(50)
    assert rig.notice.until == 60 * MINUTE
    assert rig.notice.text.startswith("GPU a (H100), GPU b (H100) did nothing for 50 minutes.")
    rig.at(59)
    assert rig.hub.stopped == []
    rig.at(60)
    assert rig.hub.stopped == [ANNA]


def test_the_hub_is_not_asked_before_it_is_time(rig: Rig) -> None:
    rig.at(49)
    assert rig.hub.asked == 0


def test_one_busy_gpu_of_two_takes_the_warning_back(rig: Rig) -> None:
    rig.at(50)
    rig.minute = 55
    rig.busy()
    rig.at(56)
    assert rig.notice is None
    rig.at(104)
    assert rig.notice is None
    rig.at(105)
    assert rig.notice.until == 115 * MINUTE
    assert rig.hub.stopped == []


def test_busy_kernels_are_never_stopped_and_start_the_time_anew(rig: Rig) -> None:
    rig.hub.busy = True
    rig.pass_by(45, 200)
    assert rig.notice is None
    rig.hub.busy = False
    rig.pass_by(201, 249)
    assert rig.notice is None
    rig.pass_by(250, 259)
    assert rig.notice is not None
    assert rig.hub.stopped == []
    rig.at(260)
    assert rig.hub.stopped == [ANNA]


def test_a_kernel_that_begins_after_the_warning_takes_it_back(rig: Rig) -> None:
    rig.at(50)
    rig.hub.busy = True
    rig.at(60)
    assert (rig.notice, rig.hub.stopped) == (None, [])


def test_kernels_that_cannot_be_asked_save_the_server(rig: Rig) -> None:
    rig.at(50)
    rig.hub.error = True
    rig.pass_by(60, 90)
    assert (rig.notice, rig.hub.stopped) == (None, [])


def test_nobody_is_stopped_without_a_warning_of_full_length(rig: Rig) -> None:
    rig.at(500)
    assert rig.notice.until == 510 * MINUTE
    rig.at(509)
    assert rig.hub.stopped == []
    rig.at(510)
    assert rig.hub.stopped == [ANNA]


@pytest.mark.parametrize("jump", [60, -60])
def test_a_clock_that_jumps_stops_nobody(rig: Rig, jump: int) -> None:
    """The collector, which did not watch meanwhile, takes the GPUs for busy."""
    rig.at(50)
    rig.minute += jump
    for uuid in rig.units:
        rig.busy(uuid)
    rig.pass_by(51 + jump, 99 + jump)
    assert (rig.notice, rig.hub.stopped) == (None, [])


@pytest.mark.parametrize("state", ["lost", "unknown"])
def test_a_gpu_that_is_not_known_saves_the_server(rig: Rig, state: Any) -> None:
    rig.at(50)
    rig.units["GPU-a"] = UnitUsage(state, busy_at=0.0)
    rig.pass_by(60, 62)
    assert (rig.notice, rig.hub.stopped) == (None, [])


def test_a_collector_that_is_away_saves_everybody(rig: Rig) -> None:
    rig.at(50)
    rig.reason = "The file is old."
    rig.pass_by(60, 62)
    assert (rig.notice, rig.hub.stopped) == (None, [])


def test_a_gpu_never_seen_at_work_is_not_idle(rig: Rig) -> None:
    rig.units["GPU-a"] = UnitUsage("ok", busy_at=None)
    rig.at(100)
    assert rig.notice is None


def test_the_time_before_the_server_started_does_not_count(rig: Rig) -> None:
    rig.allocator.gone(ANNA, rig.token)
    rig.minute = 100
    rig.start()
    rig.pass_by(101, 149)
    assert rig.notice is None
    rig.at(150)
    assert rig.notice is not None


def test_zero_minutes_is_never(tmp_path: Path) -> None:
    rig = Rig(tmp_path, minutes=0)
    rig.at(10000)
    assert (rig.notice, rig.hub.stopped) == (None, [])


def test_a_warning_longer_than_the_time_comes_at_half_of_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, minutes=10, warn_minutes=30)
    rig.at(4)
    assert rig.notice is None
    rig.at(5)
    assert rig.notice.until == 10 * MINUTE


def test_a_service_that_starts_again_keeps_its_word(rig: Rig) -> None:
    rig.at(50)
    rig.culler = rig.new()
    rig.at(60)
    assert rig.hub.stopped == [ANNA]


@pytest.mark.parametrize(
    "running",
    [None, RunningServer("anna", False, "spawn", "/user/anna/"), RunningServer("anna", True, "stop", "/user/anna/")],
)
def test_a_server_that_the_hub_does_not_run_now_is_left_alone(rig: Rig, running: RunningServer | None) -> None:
    rig.hub.running = running
    rig.pass_by(50, 70)
    assert rig.hub.stopped == []
    assert rig.hub.asked == 0


def test_a_server_that_is_stopping_is_left_alone(rig: Rig) -> None:
    rig.allocator.leaving(ANNA, rig.token)
    rig.pass_by(50, 70)
    assert rig.hub.stopped == []


def test_a_server_started_anew_while_kernels_are_asked_is_not_stopped(rig: Rig) -> None:
    rig.at(50)

    async def restart(running: RunningServer) -> bool:
        rig.allocator.gone(ANNA, rig.token)
        rig.start()
        return False

    rig.hub.busy_kernels = restart  # type: ignore[method-assign]
    rig.at(60)
    assert rig.hub.stopped == []
