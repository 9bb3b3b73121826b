# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The allocator, case by case: who gets what, what a refusal says, and what a reconciliation does."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import typing as t
from contextlib import closing
from pathlib import Path

import pytest
from cudahub_hub import leases
from cudahub_hub.allocator import Allocator, ConfigurationError, Refused, Request, Server, hub_alive, hub_identity
from cudahub_hub.leases import Store
from hub_site import Site, gpu, mig, seen, take, units


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def refused(allocator: Allocator, user: str, count: int = 1, name: str = "", **more: t.Any) -> tuple[int, str, str]:
    before = allocator.leases()
    with pytest.raises(Refused) as caught:
        allocator.acquire(Request(Server(user, name), count, **more))
    assert allocator.leases() == before
    return caught.value.status, caught.value.reason, caught.value.message


# Who gets what


def test_exclusive_gives_each_gpu_once(site: Site) -> None:
    hub = site.open()
    first, second = take(hub, "anna"), take(hub, "ben")
    assert {*units(first), *units(second)} == {"GPU-0", "GPU-1"}
    assert first.common_nodes == ("/dev/nvidiactl",)
    assert first.pool == "default"
    assert refused(hub, "carl") == (
        409,
        "none_free",
        "No GPU is free now: held by 2 others. Come back later, or start without a GPU.",
    )
    assert hub.gone(first.server, first.token) == ("GPU-0",)
    assert units(take(hub, "carl")) == ["GPU-0"]


def test_share_gives_the_one_with_the_fewest_servers_then_the_least_recently_used(site: Site) -> None:
    site.units(*(gpu(number) for number in range(4)))
    site.settings({"name": "default", "policy": "share", "servers_per_gpu": 4})
    hub = site.open()
    grants = [take(hub, f"user{number}") for number in range(15)]
    held = [len(unit.holders) for unit in hub.state().units]
    assert held == [4, 4, 4, 3]
    take(hub, "user15")
    assert refused(hub, "user16")[2].startswith("No GPU is free now: held by 16 others.")
    for number in (2, 1):
        hub.gone(grants[number].server, grants[number].token)
    assert units(take(hub, "late")) == ["GPU-2"]
    assert units(take(hub, "later")) == ["GPU-1"]


def test_several_gpus_are_distinct_ones(site: Site) -> None:
    site.settings({"name": "default", "policy": "share", "servers_per_gpu": 3})
    hub = site.open()
    assert sorted(units(take(hub, "anna", 2))) == ["GPU-0", "GPU-1"]
    assert refused(hub, "ben", 3) == (400, "too_many", "You asked for 3 GPUs, and there are 2 to be had. Ask for 2.")


def test_without_a_gpu_there_is_no_lease(site: Site) -> None:
    hub = site.open()
    grant = take(hub, "anna", 0)
    assert (grant.units, grant.common_nodes, grant.pool) == ((), (), None)
    assert grant.token
    assert hub.leases() == ()


@pytest.mark.parametrize("count", [-1, True, 1.0, "1", None])
def test_a_number_that_is_none(site: Site, count: t.Any) -> None:
    assert refused(site.open(), "anna", count)[:2] == (400, "senseless")


def test_pools_are_tried_in_their_order(site: Site) -> None:
    site.units(*(gpu(number) for number in range(3)))
    site.settings({"name": "a", "gpus": ["GPU-0"]}, {"name": "b", "gpus": ["GPU-1", "GPU-2"]})
    hub = site.open()
    assert units(take(hub, "anna")) == ["GPU-0"]
    assert units(take(hub, "ben")) == ["GPU-1"]
    assert refused(hub, "carl", 2)[2] == (
        "Only 1 GPU is free now and you asked for 2: held by 2 others. "
        "Ask for 1, come back later, or start without a GPU."
    )
    assert refused(hub, "carl", pool="a")[2].startswith("No GPU is free now: held by 1 other.")
    assert refused(hub, "carl", pool="c") == (403, "not_allowed", "There is no pool c of GPUs for you. Choose a or b.")
    assert take(hub, "carl", pool="b").pool == "b"


def test_pools_for_groups_and_images(site: Site) -> None:
    site.settings(
        {"name": "staff", "gpus": ["GPU-0"], "groups": ["staff", "admins"]},
        {"name": "course", "gpus": ["GPU-1"], "groups": ["course"], "images": ["x:1", "x:2"]},
    )
    hub = site.open()
    assert refused(hub, "anna")[:2] == (403, "not_allowed")
    assert refused(hub, "anna", groups=frozenset({"other"}))[2] == (
        "The GPUs here are for other groups than yours. Start without a GPU, or ask an administrator."
    )
    assert refused(hub, "anna", groups=frozenset({"course"}), image="y")[2] == (
        "There are no GPUs for the image y. Choose x:1 or x:2, or start without a GPU."
    )
    assert refused(hub, "anna", groups=frozenset({"course"}), pool="staff")[2].endswith("Choose course.")
    assert take(hub, "anna", groups=frozenset({"course"}), image="x:2").pool == "course"
    assert take(hub, "ben", groups=frozenset({"course", "staff"})).pool == "staff"


# Limits


@pytest.mark.parametrize(
    ("limits", "count", "answer"),
    [
        ({"default": 0}, 1, (403, "not_allowed", "Your account may not use GPUs here. Start without a GPU, or ask an")),
        ({"default": 1}, 2, (403, "limit", "You asked for 2 GPUs and may hold 1 at a time. Ask for 1.")),
        ({"default": 9, "users": {"anna": 0}}, 1, (403, "not_allowed", "Your account may not")),
        ({"default": 0, "groups": {"staff": 1}}, 2, (403, "limit", "You asked for 2 GPUs and may hold 1 at a time.")),
    ],
)
def test_limits(site: Site, limits: t.Any, count: int, answer: tuple[int, str, str]) -> None:
    site.settings(limits=limits)
    status, reason, message = refused(site.open(), "anna", count, groups=frozenset({"staff"}))
    assert (status, reason) == answer[:2]
    assert message.startswith(answer[2])


def test_the_limit_is_over_all_servers_of_a_user(site: Site) -> None:
    site.units(*(gpu(number) for number in range(4)))
    site.settings(limits={"default": 2, "users": {"anna": 1}})
    hub = site.open()
    take(hub, "anna")
    assert refused(hub, "anna", name="second")[2] == (
        "You may hold 1 GPU at a time, and your default server has 1. Stop it first, or start without a GPU."
    )
    take(hub, "ben", name="first")
    assert refused(hub, "ben", 2, name="second")[2] == (
        "You may hold 2 GPUs at a time, and your server first has 1. Stop it first, ask for 1, or start without a GPU."
    )
    take(hub, "ben", name="second")
    assert refused(hub, "ben")[2] == (
        "You may hold 2 GPUs at a time, and your server first and your server second have 2. "
        "Stop one of them first, or start without a GPU."
    )
    assert take(hub, "anna", 0, name="third").units == ()


# Units that aren't given


def test_units_out_of_order_or_lost_are_not_given(site: Site) -> None:
    site.units(gpu(0, healthy=False, problems=["Its memory has errors."]), gpu(1))
    hub = site.open()
    assert refused(hub, "anna", 2)[2] == (
        "Only 1 GPU is free now and you asked for 2: 1 out of order. "
        "Ask for 1, come back later, or start without a GPU."
    )
    assert units(take(hub, "anna")) == ["GPU-1"]
    assert refused(hub, "ben")[2].startswith("No GPU is free now: held by 1 other, 1 out of order. Come")
    site.conditions["GPU-1"] = "lost"
    assert refused(hub, "ben") == (
        409,
        "no_gpus",
        "All 2 GPUs here are out of order. Tell an administrator, or start without a GPU.",
    )
    assert [unit.problems for unit in hub.state().units] == [("Its memory has errors.",), ("The driver has lost it.",)]
    site.conditions["GPU-1"] = "unknown"
    assert hub.state().units[1].problems == ()


def test_no_gpu_at_all(site: Site) -> None:
    site.units()
    assert refused(site.open(), "anna") == (
        409,
        "no_gpus",
        "There is no GPU here now. Tell an administrator, or start without a GPU.",
    )


@pytest.mark.parametrize(
    ("former", "latter", "free"),
    [
        ([gpu(0)], [mig(0, 0), mig(0, 1)], 0),
        ([mig(0, 0)], [gpu(0)], 0),
        ([mig(0, 0)], [mig(0, 0), mig(0, 1)], 1),
        ([gpu(0)], [gpu(0), gpu(1)], 1),
    ],
)
def test_never_a_whole_gpu_together_with_its_slice(site: Site, former: t.Any, latter: t.Any, free: int) -> None:
    site.units(*former)
    hub = site.open()
    grant = take(hub, "anna")
    site.units(*latter)
    assert hub.free_for("ben").most == free
    if not free:
        assert refused(hub, "ben")[2].startswith("No GPU is free now: held by 1 other.")
    hub.gone(grant.server, grant.token)
    assert hub.free_for("ben").most == len(latter)


def test_a_unit_that_was_taken_out_keeps_its_lease_and_is_not_given(site: Site) -> None:
    hub = site.open()
    first, second = take(hub, "anna"), take(hub, "ben")
    site.units(gpu(1))
    assert hub.reconcile(seen(anna=("GPU-0",), ben=("GPU-1",))).freed == ()
    assert [(unit.uuid, unit.unit is None, unit.free) for unit in hub.state().units] == [
        ("GPU-1", False, 0),
        ("GPU-0", True, 0),
    ]
    hub.gone(first.server, first.token)
    assert refused(hub, "carl")[1] == "none_free"
    hub.gone(second.server, second.token)
    assert units(take(hub, "carl")) == ["GPU-1"]


def test_a_pool_that_becomes_exclusive_gives_nothing_that_is_held(site: Site) -> None:
    site.settings({"name": "default", "policy": "share", "servers_per_gpu": 2})
    hub = site.open()
    grants = [take(hub, user) for user in ("anna", "ben", "carl")]
    site.settings()
    assert refused(hub, "dora")[1] == "none_free"
    report = hub.reconcile(seen(anna=("GPU-0",), ben=("GPU-1",), carl=("GPU-0",)))
    assert report.conflicts == ("GPU-0 is held by anna and carl, more than the pool default gives it to.",)
    hub.gone(grants[0].server, grants[0].token)
    assert refused(hub, "dora")[1] == "none_free"


# The same server again


def test_a_server_that_has_a_fitting_lease_takes_it_over(site: Site) -> None:
    hub = site.open()
    take(hub, "ben")
    first = take(hub, "anna")
    second = hub.acquire(Request(Server("anna"), 1))
    assert units(second) == units(first)
    assert second.token != first.token
    hub.started(first.server, first.token)
    assert hub.gone(first.server, first.token) == ()
    assert [(str(lease.server), lease.state) for lease in hub.leases()] == [("anna", "starting"), ("ben", "running")]


@pytest.mark.parametrize("count", [0, 2])
def test_a_lease_that_does_not_fit_is_awaited(site: Site, count: int) -> None:
    hub = site.open()
    grant = take(hub, "anna")
    assert refused(hub, "anna", count) == (
        409,
        "stopping",
        "The former run of this server still holds its GPU and is being stopped. Try again in a minute.",
    )
    hub.gone(grant.server, grant.token)
    assert len(take(hub, "anna", count).units) == count


def test_a_lease_whose_gpu_was_lost_is_not_taken_over(site: Site) -> None:
    hub = site.open()
    take(hub, "anna")
    site.conditions["GPU-0"] = "lost"
    assert refused(hub, "anna")[1] == "stopping"
    hub.reconcile(seen())
    assert units(take(hub, "anna")) == ["GPU-1"]


def test_named_servers_are_servers_of_their_own(site: Site) -> None:
    hub = site.open()
    assert units(take(hub, "anna")) != units(take(hub, "anna", name="x"))


# States


def test_states(site: Site) -> None:
    hub = site.open()
    grant = hub.acquire(Request(Server("anna"), 1))
    assert hub.leases()[0].state == "starting"
    hub.started(grant.server, "another token")
    assert hub.leases()[0].state == "starting"
    hub.started(grant.server, grant.token)
    hub.started(grant.server, grant.token)
    assert hub.leases()[0].state == "running"
    hub.leaving(grant.server, grant.token)
    hub.started(grant.server, grant.token)
    assert hub.leases()[0].state == "leaving"
    assert refused(hub, "ben", 2)[1] == "none_free"
    assert hub.gone(grant.server, grant.token) == ("GPU-0",)
    assert hub.gone(grant.server, grant.token) == ()


# Reconciliation


def test_the_dead_are_freed_and_the_living_kept(site: Site) -> None:
    hub = site.open()
    take(hub, "anna")
    take(hub, "ben")
    report = hub.reconcile(seen(ben=("GPU-1",)))
    assert [str(lease.server) for lease in report.freed] == ["anna"]
    assert [str(lease.server) for lease in report.kept] == ["ben"]


@pytest.mark.parametrize("observation", [seen(complete=False), seen(unknown=["anna"]), seen(anna=None), seen(anna=())])
def test_nothing_is_freed_on_hope(site: Site, observation: t.Any) -> None:
    hub = site.open()
    take(hub, "anna")
    assert hub.reconcile(observation).freed == ()
    assert len(hub.leases()) == 1


def test_a_backend_that_fails_frees_nothing(site: Site) -> None:
    hub = site.open()
    take(hub, "anna")
    with pytest.raises(ZeroDivisionError):
        hub.reconcile(lambda _: t.cast("t.Any", 1 / 0))
    assert len(hub.leases()) == 1


def test_a_start_is_kept_while_its_hub_lives(site: Site) -> None:
    hub = site.open()
    hub.acquire(Request(Server("anna"), 1))
    assert hub.reconcile(seen(), hub_alive=lambda _: True).freed == ()
    assert len(hub.reconcile(seen(), hub_alive=lambda _: False).freed) == 1


@pytest.mark.parametrize("state", ["starting", "leaving"])
def test_a_server_whose_hub_died_runs_on(site: Site, state: str) -> None:
    hub = site.open()
    grant = hub.acquire(Request(Server("anna"), 1))
    if state == "leaving":
        hub.leaving(grant.server, grant.token)
    hub.reconcile(seen(anna=("GPU-0",)), hub_alive=lambda _: True)
    assert hub.leases()[0].state == state
    hub.reconcile(seen(anna=("GPU-0",)), hub_alive=lambda _: False)
    assert hub.leases()[0].state == "running"


def test_what_changes_while_the_backend_looks_is_kept(site: Site) -> None:
    hub = site.open()
    take(hub, "anna")

    def restarted(_leases: t.Any) -> t.Any:
        hub.acquire(Request(Server("anna"), 1))
        return seen()(())

    assert hub.reconcile(restarted).freed == ()
    hub.started(Server("anna"), hub.leases()[0].token)

    grant = hub.acquire(Request(Server("ben"), 1))

    def started(_leases: t.Any) -> t.Any:
        hub.started(grant.server, grant.token)
        return seen(anna=("GPU-0",))(())

    assert hub.reconcile(started, hub_alive=lambda _: False).freed == ()

    def stopped(_leases: t.Any) -> t.Any:
        hub.gone(grant.server, grant.token)
        return seen(anna=("GPU-0",), ben=("GPU-1",))(())

    assert hub.reconcile(stopped).adopted == ()


def test_servers_without_a_lease_are_adopted(site: Site) -> None:
    hub = site.open()
    report = hub.reconcile(seen(anna=("GPU-1", "GPU-1"), ben=(), carl=None))
    assert [(str(lease.server), lease.units, lease.gpus, lease.state) for lease in report.adopted] == [
        ("anna", ("GPU-1",), ("GPU-1",), "running")
    ]
    assert report.conflicts == ("The server carl runs without a lease, and it can't be told which GPUs it has.",)
    assert hub.leases()[0].token.startswith("adopted-")
    assert units(take(hub, "dora")) == ["GPU-0"]
    assert refused(hub, "ben")[1] == "none_free"
    assert hub.reconcile(seen(anna=("GPU-1",), dora=("GPU-0",))).adopted == ()


def test_a_server_that_can_open_more_holds_more(site: Site) -> None:
    hub = site.open()
    take(hub, "anna")
    hub.reconcile(seen(anna=("GPU-0", "GPU-1")))
    assert hub.leases()[0].units == ("GPU-0", "GPU-1")
    assert refused(hub, "ben")[1] == "none_free"


def test_an_adopted_slice_that_is_no_longer_there_has_its_gpu(site: Site) -> None:
    site.units(mig(0, 0))
    hub = site.open()
    grant = take(hub, "anna")
    hub.gone(grant.server, grant.token)
    site.units(gpu(0))
    hub.reconcile(seen(anna=("MIG-0.0",)))
    assert hub.leases()[0].gpus == ("GPU-0",)
    assert refused(hub, "ben")[1] == "none_free"


# What users are told


def test_the_next_idle_stop_is_said(site: Site) -> None:
    hub = site.open()
    first = take(hub, "anna")
    take(hub, "ben")
    hub.tell(Server("anna"), "idle", "Your GPU does nothing.", until=site.now + 24.2 * 60)
    hub.tell(Server("nobody"), "idle", "x", until=site.now + 60)
    assert hub.state().next_idle == site.now + 24.2 * 60
    assert refused(hub, "carl")[2] == (
        "No GPU is free now: held by 2 others, next idle stop in ~25 min. Come back later, or start without a GPU."
    )
    site.now += 3600
    assert "in ~1 min" in refused(hub, "carl")[2]
    assert [notice.text for notice in hub.notices_of(Server("anna"))] == ["Your GPU does nothing."]
    hub.gone(first.server, first.token)
    assert hub.notices_of(Server("anna")) == ()


def test_the_own_servers_are_named(site: Site) -> None:
    hub = site.open()
    take(hub, "anna", name="x")
    take(hub, "ben")
    assert refused(hub, "anna")[2] == (
        "No GPU is free now: held by 1 other and your server x. "
        "Come back later, stop your server x, or start without a GPU."
    )


def test_notices(site: Site) -> None:
    hub = site.open()
    hub.tell(Server("anna"), "idle", "one", until=5.0)
    hub.tell(Server("anna"), "idle", "two")
    hub.tell(Server("anna", "x"), "idle", "three")
    hub.tell(Server("anna"), "lost", "four")
    assert [(n.kind, n.text, n.until) for n in hub.notices_of(Server("anna"))] == [
        ("idle", "two", None),
        ("lost", "four", None),
    ]
    hub.clear_notices(Server("anna"), "idle")
    assert [n.kind for n in hub.notices_of(Server("anna"))] == ["lost"]
    hub.clear_notices(Server("anna"))
    assert [str(n.server) for n in hub.notices()] == ["anna/x"]


def test_a_server_whose_gpu_is_lost_is_told(site: Site) -> None:
    hub = site.open()
    take(hub, "anna")
    site.conditions["GPU-0"] = "lost"
    for _unused in range(2):
        hub.reconcile(seen(anna=("GPU-0",)))
        (notice,) = hub.notices_of(Server("anna"))
        assert notice.at == 1_800_000_000.0
        site.now += 60
    assert notice.text == (
        "GPU 0 (NVIDIA H100) of this server no longer works. Save your work, then stop this server and start it again."
    )
    site.conditions["GPU-0"] = "unknown"
    hub.reconcile(seen(anna=("GPU-0",)))
    assert hub.notices()
    site.conditions["GPU-0"] = "ok"
    hub.reconcile(seen(anna=("GPU-0",)))
    assert hub.notices() == ()


def test_what_the_form_shows(site: Site) -> None:
    site.units(*(gpu(number) for number in range(3)))
    site.settings(limits={"default": 2})
    hub = site.open()
    offer = hub.free_for("anna")
    assert (offer.most, offer.limit, offer.held, offer.left, offer.sentence) == (2, 2, 0, 2, None)
    take(hub, "anna")
    take(hub, "anna", name="x")
    offer = hub.free_for("anna", name="y")
    assert (offer.most, offer.held, offer.left) == (0, 2, 0)
    assert str(offer.sentence).startswith("You may hold 2 GPUs at a time")
    assert hub.free_for("anna").most == 1
    assert [(pool.pool.name, pool.total, pool.usable, pool.free) for pool in offer.pools] == [("default", 3, 3, 1)]
    assert hub.free_for("ben").most == 1
    assert hub.state().held("anna") == 2


# Files


def test_an_offer_among_many_gpus_keeps_no_hub_waiting(site: Site) -> None:
    site.units(*map(gpu, range(200)))
    hub = site.open()
    for number in range(100):
        take(hub, f"user{number}")
    began = time.process_time()
    assert hub.free_for("ben").most == 100
    assert time.process_time() - began < 0.5


def test_changed_files_are_read_anew_and_broken_ones_stop_only_new_grants(site: Site) -> None:
    hub = site.open()
    first = take(hub, "anna")
    site.settings(limits={"default": 0})
    assert refused(hub, "ben")[1] == "not_allowed"
    site.path.write_text("")
    with pytest.raises(ConfigurationError, match="the file is empty"):
        hub.acquire(Request(Server("ben"), 1))
    assert hub.acquire(Request(Server("ben"), 0)).units == ()
    assert "the file is empty" in str(hub.state().problem)
    assert hub.free_for("ben").limit == 0
    assert hub.reconcile(seen(anna=("GPU-0",))).freed == ()
    assert hub.gone(first.server, first.token) == ("GPU-0",)
    site.settings()
    assert hub.state().problem is None
    (site.root / "gpus.json").unlink()
    with pytest.raises(ConfigurationError, match=r"gpus\.json: the file does not exist"):
        hub.acquire(Request(Server("ben"), 1))


@pytest.mark.parametrize("name", ["settings.json", "gpus.json"])
def test_files_that_are_broken_from_the_start(site: Site, name: str) -> None:
    """A hub that is restarted then still comes up, and gives GPUs as soon as they are mended."""
    good = (site.root / name).read_text()
    (site.root / name).write_text("")
    hub = site.open()
    for use in (hub.leases, hub.state, lambda: hub.acquire(Request(Server("ben"), 1)), lambda: hub.free_for("ben")):
        with pytest.raises(ConfigurationError, match=rf"{name}: the file is empty"):
            use()
    (site.root / name).write_text(good)
    assert units(take(hub, "ben")) == ["GPU-0"]


def test_the_usage_file_is_read_by_default(site: Site) -> None:
    hub = Allocator(site.path, clock=lambda: site.now)
    data = {"format": 1, "time": site.now, "interval": 5, "units": {"GPU-0": {"state": "lost", "reason": "Gone."}}}
    (site.root / "usage.json").write_text(json.dumps(data))
    assert [unit.condition for unit in hub.state().units] == ["lost", "unknown"]
    assert units(take(hub, "anna")) == ["GPU-1"]
    site.now += 3600
    assert [unit.condition for unit in hub.state().units] == ["unknown", "unknown"]


def test_the_database_is_for_the_hub_only_and_lasts(site: Site) -> None:
    grant = take(site.open(), "anna")
    database = site.root / "state" / "leases.sqlite"
    assert database.stat().st_mode & 0o777 == 0o600
    assert database.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in database.parent.iterdir()] == ["leases.sqlite"]
    database.chmod(0o644)
    assert site.open().leases()[0].token == grant.token
    assert database.stat().st_mode & 0o777 == 0o600


def _text(database: Path) -> None:
    database.write_text("leases: none\n" * 100)


def _empty(database: Path) -> None:
    database.write_bytes(b"")


def _cut(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:9000])


def _scribbled(database: Path) -> None:
    data = bytearray(database.read_bytes())
    data[4096:12288] = b"\x5a" * 8192
    database.write_bytes(data)


def _newer(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 2")


def _foreign(database: Path) -> None:
    database.unlink()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE users (id)")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_text, "this is not a sound database of leases (file is not a database). Move it away and restart the hub"),
        (_empty, "this is not a sound database of leases (the file is empty). Move it away"),
        (_cut, "this is not a sound database of leases (database disk image is malformed). Move it away"),
        (_scribbled, "this is not a sound database of leases ("),
        (_foreign, "this is not a sound database of leases (it is of another program). Move it away"),
        (_newer, "a newer version of cudahub_hub wrote this database of leases (format 2, this one reads format 1)."),
    ],
)
def test_a_broken_database_is_one_sentence_and_stays(site: Site, damage: t.Any, problem: str) -> None:
    running = site.open()
    take(running, "anna")
    database = site.root / "state" / "leases.sqlite"
    damage(database)
    left = database.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        site.open().leases()
    assert str(caught.value).startswith(f"{database}: {problem}")
    with pytest.raises(ConfigurationError):
        running.acquire(Request(Server("ben"), 1))
    assert database.read_bytes() == left
    database.unlink()
    with pytest.raises(ConfigurationError, match=r"the database of leases is gone. Restart the hub, which"):
        running.leases()
    assert site.open().reconcile(seen(anna=("GPU-0",))).adopted


def test_a_database_that_stays_locked_is_one_sentence(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = site.open()
    assert hub.leases() == ()
    monkeypatch.setattr(leases, "PATIENCE_S", 0.1)
    with closing(sqlite3.connect(site.root / "state" / "leases.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigurationError, match=r"leases\.sqlite: another program keeps .* locked\. End "):
            take(hub, "anna")


def _as_nobody(task: t.Callable[[], None]) -> str:
    """Runs a task in a process without root's rights, and returns the sentence that it ended with."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            task()
        except ConfigurationError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


@pytest.mark.parametrize("there", [False, True])
def test_a_directory_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    monkeypatch.chdir(tmp_path)
    Path("state").mkdir()
    if there:
        Store(Path("state/leases.sqlite"))
        Path("state/leases.sqlite").chmod(0o444)
    for directory in ("state", "."):
        Path(directory).chmod(0o555)
    try:
        message = _as_nobody(lambda: t.cast("None", Store(Path("state/leases.sqlite"))))
    finally:
        for directory in (".", "state"):
            Path(directory).chmod(0o755)
    assert message.startswith("state/leases.sqlite: the database of leases can't be ")
    assert message.count(". ") == 1


# The hub's identity


def test_the_identity_of_a_process() -> None:
    boot, pid, started = hub_identity().split(" ")
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert int(pid) == os.getpid()
    assert hub_alive(hub_identity())
    assert not hub_alive(f"{boot} {pid} {int(started) - 1}")
    assert not hub_alive(f"00000000-0000-0000-0000-000000000000 {pid} {started}")
    for nonsense in ("", "x", f"{boot} x 1", f"{boot} {2**22 + 1} 1"):
        assert not hub_alive(nonsense)


def test_a_zombie_is_dead() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, hub_identity().encode())
        os._exit(0)
    identity = os.read(read, 200).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not hub_alive(identity)
    os.waitpid(child, 0)
    assert not hub_alive(identity)
