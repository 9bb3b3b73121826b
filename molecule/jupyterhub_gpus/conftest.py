# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A hub as its users and its administrator have it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

INVENTORY = yaml.safe_load(Path(__file__).with_name("inventory.yml").read_text())
TOKEN = INVENTORY["all"]["vars"]["hub_token"]
LEASES = """
import json, pathlib
from cudahub_hub.allocator import Allocator
allocator = Allocator(pathlib.Path("/etc/cudahub/jupyterhub_gpus.json"))
leases = {lease.server.user: lease for lease in allocator.leases()}
print(json.dumps({
    "leases": {user: [lease.state, *lease.units] for user, lease in leases.items()},
    "notices": {user: [notice.kind for notice in allocator.notices_of(lease.server)] for user, lease in leases.items()},
}))
"""


class Hub:
    """What is asked of the hub and its servers."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def ask(self, *requests: tuple[str, str, Any]) -> list[Any]:
        """The [status, answer] of each request; all are made at the same time."""
        return list(json.loads(self.host.check_output("/opt/hub/bin/ask %s %s", TOKEN, json.dumps(requests))))

    def start(self, *users: str, gpus: int | None = 1) -> dict[str, Any]:
        """Start servers at the same time, wait until they are there, and return what was refused.

        Where no number is given, the hub takes that of a user's last start, or its own default.
        """
        options = {} if gpus is None else {"gpus": gpus}
        self.ask(*(("POST", f"/hub/api/users/{user}", None) for user in users))
        answers = self.ask(*(("POST", f"/hub/api/users/{user}/server", options) for user in users))
        refused = {user: answer for user, answer in zip(users, answers, strict=True) if answer[0] not in (201, 202)}
        started = set(users) - set(refused)
        self.wait(lambda: started <= set(self.ready()), f"{started} have servers")
        return refused

    def stop(self, *users: str) -> None:
        """Stop servers, and wait until they and their leases are gone."""
        self.ask(*(("DELETE", f"/hub/api/users/{user}/server", None) for user in users))
        self.wait(lambda: not set(users) & {*self.ready(), *self.leases()}, f"the servers of {users} are gone")

    def ready(self) -> list[str]:
        """The users whose server runs."""
        ((status, users),) = self.ask(("GET", "/hub/api/users", None))
        return [user["name"] for user in users if user["server"]] if status == 200 else []

    def look(self, users: Iterable[str]) -> dict[str, Any]:
        """What processes in the servers of these users see of the GPUs."""
        users, answers = list(users), []

        def there() -> bool:
            answers[:] = self.ask(*(("GET", f"/user/{user}/look", None) for user in users))
            return {status for status, _unused in answers} <= {200}

        # A hub that has just come up answers before its proxy knows the way to all servers.
        self.wait(there, f"the servers of {users} answer")
        return {user: answer for user, (_unused, answer) in zip(users, answers, strict=True)}

    def leases(self) -> dict[str, list[str]]:
        """The state and the GPUs of the leases, by user."""
        return dict(self._allocator()["leases"])

    def notices(self, user: str) -> list[str]:
        """The kinds of what a user is told."""
        return list(self._allocator()["notices"].get(user, []))

    def _allocator(self) -> dict[str, Any]:
        return dict(json.loads(self.host.check_output("/opt/hub/bin/python -Bc %s", LEASES)))

    def inventory(self) -> list[dict[str, Any]]:
        """The GPUs that the hub knows."""
        return list(json.loads(self.host.file("/etc/cudahub/gpus.json").content_string)["units"])

    def pid(self, unit: str = "jupyterhub") -> int:
        """The main process of a unit."""
        return int(self.host.check_output(f"systemctl show --property=MainPID --value {unit}"))

    def wait(self, what: Callable[[], bool], says: str, seconds: float = 300) -> None:
        """Wait until something is so."""
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, f"not so: {says}"
            time.sleep(0.3)


@pytest.fixture
def hub(host: Host) -> Iterator[Hub]:
    """The hub, which has no servers of users before and after."""
    hub = Hub(host)
    yield hub
    hub.wait(lambda: hub.ask(("GET", "/hub/api/", None))[0][0] == 200, "the hub answers")
    if users := hub.ready():
        hub.stop(*users)
