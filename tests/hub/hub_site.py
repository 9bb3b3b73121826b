# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a hub's host, for the tests of the allocator."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from cudahub_hub.allocator import Allocator, Grant, Lease, Observation, Request, Server


def gpu(number: int, **more: t.Any) -> dict[str, t.Any]:
    """A whole GPU of the inventory."""
    return {
        "uuid": f"GPU-{number}",
        "kind": "gpu",
        "gpu": f"GPU-{number}",
        "index": str(number),
        "name": "NVIDIA H100",
        **more,
    }


def mig(number: int, part: int, **more: t.Any) -> dict[str, t.Any]:
    """A slice of a GPU of the inventory."""
    return {
        "uuid": f"MIG-{number}.{part}",
        "kind": "mig",
        "gpu": f"GPU-{number}",
        "index": f"{number}.{part}",
        "profile": "3g.40gb",
        **more,
    }


class Site:
    """A host with settings, an inventory, a clock, conditions of its GPUs, and servers that run on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "settings.json"
        self.now = 1_800_000_000.0
        self.conditions: dict[str, t.Any] = {}
        self.units(gpu(0), gpu(1))
        self.settings()

    def units(self, *units: dict[str, t.Any]) -> None:
        self._write("gpus.json", {"format": 1, "common_nodes": ["/dev/nvidiactl"], "units": list(units)})

    def settings(self, *pools: dict[str, t.Any], **more: t.Any) -> None:
        self._write(
            "settings.json",
            {
                "format": 1,
                "inventory": str(self.root / "gpus.json"),
                "database": str(self.root / "state" / "leases.sqlite"),
                "usage": str(self.root / "usage.json"),
                "pools": list(pools) or [{"name": "default"}],
                "limits": {"default": None},
                **more,
            },
        )

    def _write(self, name: str, data: dict[str, t.Any]) -> None:
        draft = self.root / f"{name}.new"
        draft.write_text(json.dumps(data))
        draft.replace(self.root / name)

    def open(self, hub: str | None = "hub 1 1") -> Allocator:
        return Allocator(self.path, clock=lambda: self.now, hub=hub, usage=lambda: self.conditions)


def take(allocator: Allocator, user: str, count: int = 1, name: str = "", **more: t.Any) -> Grant:
    """Takes GPUs and lets the server run."""
    grant = allocator.acquire(Request(Server(user, name), count, **more))
    allocator.started(grant.server, grant.token)
    return grant


def units(grant: Grant | Lease) -> list[str]:
    """The UUIDs in a grant or a lease."""
    return [unit if isinstance(unit, str) else unit.uuid for unit in grant.units]


def seen(complete: bool = True, unknown: t.Iterable[str] = (), **alive: tuple[str, ...] | None) -> t.Any:
    """What a backend sees: users' servers with their GPUs."""
    return lambda _leases: Observation(
        {Server(user): opened for user, opened in alive.items()}, frozenset(map(Server, unknown)), complete
    )
