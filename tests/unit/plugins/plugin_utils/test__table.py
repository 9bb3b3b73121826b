# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run told about its hosts becomes a table that fits the terminal."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.plugins.plugin_utils import _table as table
from ansible_collections.cudahub.gpu.tests.unit.odd_values import with_one

OK_DRIVER = {"state": "ok", "version": "580.159.04", "reason": None}


def instance(index: int) -> dict[str, Any]:
    return {"uuid": f"MIG-{index}", "profile": "1g.5gb", "index": index, "memory_bytes": 5100273664}


def gpu(index: int | None = 0, **changes: object) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "pci_bus_id": f"00000000:0{index}:00.0",
        "pci_device_id": "10de:2330",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 85520809984,
        "mig": {"enabled": False, "pending": False, "instances": []},
        "healthy": True,
        "problems": [],
        **changes,
    }


def facts(*gpus: dict[str, Any], **changes: object) -> dict[str, Any]:
    return {"driver": OK_DRIVER, "gpus": list(gpus), "problems": [], "simulated": False, **changes}


def verdict(uuid: str, word: str, **changes: object) -> dict[str, Any]:
    return {"uuid": uuid, "verdict": word, "failure": None, "reason": None, **changes}


def verification(*gpus: dict[str, Any], failure: dict[str, str] | None = None) -> dict[str, Any]:
    return {"verification": {"verified": False, "failure": failure, "gpus": list(gpus)}}


def fleet_of(**hosts: dict[str, Any]) -> table.Fleet:
    fleet = table.Fleet()
    for name, gpu_facts in hosts.items():
        fleet.add_result(name, {"ansible_facts": {"gpu": gpu_facts}})
    return fleet


def cells(fleet: table.Fleet) -> list[dict[str, str]]:
    return [dict(zip(table.HEADERS, row.cells, strict=True)) for row in table.rows(fleet)]


def columns(words: str) -> int:
    """What a terminal makes of some characters: two columns for a wide one, none for one that is put on another."""
    return sum(0 if unicodedata.combining(char) else 2 if ord(char) > 0x2E80 else 1 for char in words)


def text(lines: list[table.Line]) -> str:
    return "\n".join(line.text for line in lines)


@pytest.mark.parametrize(
    ("word", "changes", "shown"),
    [
        ("passed", {}, "yes"),
        ("failed", {"failure": {"kind": "gpu_lost", "message": "It is gone."}}, "no: gpu_lost"),
        ("failed", {}, "no"),
        ("skipped", {"reason": "MIG mode without instances."}, "skipped"),
        ("simulated", {}, "simulated"),
    ],
)
def test_verdict_is_shown(word: str, changes: dict[str, Any], shown: str) -> None:
    fleet = fleet_of(a=facts(gpu()))
    fleet.add_result("a", verification(verdict("GPU-0", word, **changes)))
    assert cells(fleet)[0]["VERIFIED"] == shown


def test_gpu_without_a_verdict_is_not_verified() -> None:
    fleet = fleet_of(a=facts(gpu(0), gpu(1)))
    fleet.add_result("a", verification(verdict("GPU-1", "passed")))
    assert [row["VERIFIED"] for row in cells(fleet)] == ["-", "yes"]
    assert table.summary(fleet) == "1 host, 2 GPUs: 1 not verified, 1 verified."


def test_verification_without_facts_names_its_gpus() -> None:
    fleet = table.Fleet()
    known = {"index": 3, "pci_bus_id": "00000000:03:00.0", "name": "NVIDIA A100"}
    found = [verdict("GPU-3", "passed", **known), verdict("MIG-1", "failed", **known, mig_profile="1g.5gb")]
    fleet.add_result("a", verification(*found))
    assert [(row["GPU"], row["NAME"], row["DRIVER"], row["HEALTH"], row["VERIFIED"]) for row in cells(fleet)] == [
        ("3", "NVIDIA A100", "-", "-", "yes"),
        ("3", "NVIDIA A100 1g.5gb", "-", "-", "no"),
    ]
    assert [row.level for row in table.rows(fleet)] == ["good", "error"]
    assert table.summary(fleet) == "1 host, 2 GPUs: 1 verified, 1 failed verification."


def test_simulated_gpu_is_never_verified() -> None:
    fleet = fleet_of(a=facts(gpu(mig={"enabled": True, "instances": [instance(0)]}), simulated=True))
    fleet.add_result("a", verification(verdict("GPU-0", "passed"), verdict("MIG-0", "passed")))
    assert [row["VERIFIED"] for row in cells(fleet)] == ["simulated", "simulated"]
    assert table.summary(fleet) == "1 host, 1 GPU: 1 simulated."


def test_later_verification_replaces_an_earlier_one_and_keeps_other_gpus() -> None:
    fleet = fleet_of(a=facts(gpu(0), gpu(1)))
    fleet.add_result(
        "a",
        verification(
            verdict("GPU-0", "failed"), verdict("GPU-1", "passed"), failure={"kind": "timeout", "message": "x"}
        ),
    )
    fleet.add_result("a", verification(verdict("GPU-0", "passed")))
    assert [row["VERIFIED"] for row in cells(fleet)] == ["yes", "yes"]
    assert table.sentences(fleet) == []


def test_failure_of_the_whole_verification_counts_for_every_gpu() -> None:
    fleet = fleet_of(a=facts(gpu(0), gpu(1)))
    fleet.add_result("a", verification(failure={"kind": "interpreter_broken", "message": "Python does not start."}))
    assert [row["VERIFIED"] for row in cells(fleet)] == ["no: interpreter_broken"] * 2
    assert text(table.sentences(fleet)) == "a: Python does not start."


def test_failure_of_one_gpu_is_not_that_of_another() -> None:
    lost = {"kind": "gpu_lost", "message": "GPU-0 is gone."}
    fleet = fleet_of(a=facts(gpu(0), gpu(1)))
    fleet.add_result("a", verification(verdict("GPU-0", "failed", failure=lost), failure=lost))
    assert [row["VERIFIED"] for row in cells(fleet)] == ["no: gpu_lost", "-"]
    assert text(table.sentences(fleet)) == "a: GPU-0 is gone."


@pytest.mark.parametrize(
    ("first", "second", "parent"),
    [
        ("passed", "passed", "yes"),
        ("passed", "failed", "no"),
        ("passed", "skipped", "skipped"),
        ("passed", None, "-"),
        (None, "failed", "no"),
        (None, None, "-"),
    ],
)
def test_gpu_in_mig_mode_sums_up_its_instances(first: str | None, second: str | None, parent: str) -> None:
    fleet = fleet_of(a=facts(gpu(1, mig={"enabled": True, "pending": True, "instances": [instance(0), instance(1)]})))
    fleet.add_result("a", verification(*(verdict(f"MIG-{i}", w) for i, w in enumerate([first, second]) if w)))
    rows = cells(fleet)
    assert [(row["GPU"], row["NAME"], row["MEMORY"]) for row in rows] == [
        ("1", "NVIDIA H100 80GB HBM3", "79.6 GiB"),
        ("1.0", "MIG 1g.5gb", "4.8 GiB"),
        ("1.1", "MIG 1g.5gb", "4.8 GiB"),
    ]
    assert rows[0]["VERIFIED"] == parent


@pytest.mark.parametrize(
    ("driver", "shown"),
    [
        ({"state": "ok", "version": "535.309.01"}, "535.309.01"),
        ({"state": "ok", "version": None}, "-"),
        ({"state": "absent"}, "none"),
        ({"state": "not_loaded", "version": "535.309.01"}, "not loaded"),
        ({"state": "mismatch"}, "mismatch"),
        ({"state": "unusable"}, "unusable"),
    ],
)
def test_driver(driver: dict[str, Any], shown: str) -> None:
    row = cells(fleet_of(a=facts(gpu(), driver=driver)))[0]
    assert row["DRIVER"] == shown
    assert row["HEALTH"] == ("ok" if driver["state"] == "ok" else "unknown")


@pytest.mark.parametrize(
    ("driver", "said", "shown", "level"),
    [
        (OK_DRIVER, [True], "580.159.04, reboot needed", "warning"),
        (OK_DRIVER, [True, False], "580.159.04", "plain"),
        (OK_DRIVER, [None], "580.159.04", "plain"),
        ({"state": "mismatch"}, [False, True], "mismatch, reboot needed", "error"),
        ({"state": "not_loaded"}, [True], "not loaded, reboot needed", "error"),
    ],
)
def test_reboot_that_is_needed(driver: dict[str, Any], said: list[object], shown: str, level: str) -> None:
    fleet = fleet_of(a=facts(gpu(), driver=driver), b=facts(gpu()))
    for needed in said:
        fleet.add_result("a", {"ansible_facts": {"nvidia_driver_reboot_needed": needed}})
    assert cells(fleet)[0]["DRIVER"] == shown
    assert table.rows(fleet)[0].level == level
    assert table.summary(fleet).startswith("2 hosts (1 to reboot), " if "reboot" in shown else "2 hosts, ")


def test_a_reboot_alone_makes_no_table() -> None:
    fleet = table.Fleet()
    fleet.add_result("a", {"ansible_facts": {"nvidia_driver_reboot_needed": False}})
    assert not fleet.known


@pytest.mark.parametrize(
    ("mig", "shown"),
    [
        (None, "-"),
        ({"enabled": None, "pending": None}, "-"),
        ({"enabled": False, "pending": False}, "off"),
        ({"enabled": True, "pending": True}, "on"),
        ({"enabled": True, "pending": False}, "on, off pending"),
        ({"enabled": False, "pending": True}, "off, on pending"),
    ],
)
def test_mig_mode(mig: dict[str, Any] | None, shown: str) -> None:
    assert table.mig_mode(mig) == shown


def test_problems_give_health_colour_and_one_sentence_each() -> None:
    problems = [
        {"code": "ecc_uncorrected", "severity": "error", "message": "GPU 0 had 3 uncorrectable errors"},
        {"code": "power_slowdown", "severity": "warning", "message": "GPU is slowed down"},
    ]
    fleet = fleet_of(
        a=facts(
            gpu(0, healthy=False, problems=problems),
            gpu(1, problems=problems[1:]),
            gpu(2),
            gpu(None, name=None, memory_bytes=None, mig=None, healthy=None),
        ),
        b=facts(
            gpu(),
            driver={"state": "mismatch", "reason": "Reboot it."},
            problems=[{"code": "mismatch", "severity": "error", "message": "Reboot it."}],
        ),
    )
    assert [(row.cells[6], row.level) for row in table.rows(fleet)] == [
        ("ecc_uncorrected, power_slowdown", "error"),
        ("power_slowdown", "warning"),
        ("ok", "plain"),
        ("unknown", "plain"),
        ("unknown", "error"),
    ]
    assert table.sentences(fleet) == [
        table.Line("a: GPU 0 had 3 uncorrectable errors", "error"),
        table.Line("a: GPU is slowed down", "warning"),
        table.Line("b: Reboot it.", "error"),
    ]


def test_what_made_a_host_fail_is_not_repeated() -> None:
    lost = {"kind": "gpu_lost", "message": "GPU-0 is gone."}
    fleet = fleet_of(a=facts(gpu(0), gpu(1)))
    fleet.add_result("a", verification(verdict("GPU-0", "failed", failure=lost), failure=lost))
    fleet.host("a").failed = 'task "Judge": a is not verified. GPU-0\n is gone.'
    assert text(table.sentences(fleet)) == 'a failed: task "Judge": a is not verified. GPU-0 is gone.'


def test_gpu_seen_on_pci_only_shows_what_is_known() -> None:
    bare = gpu(None, uuid=None, pci_bus_id="0009:01:00.0", name=None, memory_bytes=None, mig=None, healthy=None)
    row = cells(fleet_of(a=facts(bare, driver={"state": "absent"})))[0]
    assert list(row.values()) == ["a", "-", "10de:2330", "-", "none", "-", "unknown", "-"]


def test_hosts_without_gpu_unreachable_and_failed_ones_are_shown() -> None:
    fleet = fleet_of(
        lost=facts(gpu(0), gpu(1)), none=facts(driver={"state": "absent", "reason": "No driver."}), part=facts(gpu())
    )
    fleet.host("lost").unreachable = "Connection timed out"
    fleet.host("part").failed = 'task "Check": too old'
    fleet.host("down").unreachable = "No route"
    fleet.host("broken").failed = 'task "Gather": no Python'
    assert [(row["HOST"], row["NAME"], row["DRIVER"], row["HEALTH"]) for row in cells(fleet)] == [
        ("broken", "-", "-", "failed"),
        ("down", "-", "-", "unreachable"),
        ("lost", "2 GPUs before it was lost", "580.159.04", "unreachable"),
        ("none", "no GPU", "none", "-"),
        ("part", "NVIDIA H100 80GB HBM3", "580.159.04", "ok"),
    ]
    assert text(table.sentences(fleet)).splitlines() == [
        'broken failed: task "Gather": no Python',
        "down is unreachable: No route",
        "lost is unreachable: Connection timed out",
        'part failed: task "Check": too old',
    ]
    assert table.summary(fleet) == "5 hosts (2 unreachable, 2 failed), 3 GPUs: 3 not verified."


def test_hosts_are_in_natural_order() -> None:
    fleet = fleet_of(gpu10=facts(), gpu2=facts(), gpu1=facts())
    assert [host.name for host in fleet] == ["gpu1", "gpu2", "gpu10"]


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"ansible_facts": {"gpu": "mine"}},
        {"ansible_facts": {"gpu": {"gpus": []}}},
        {"ansible_facts": ["gpu"]},
        {"verification": True},
        {"verification": {"verified": True}},
    ],
)
def test_what_only_looks_alike_is_left_alone(result: dict[str, Any]) -> None:
    fleet = table.Fleet()
    fleet.add_result("a", result)
    assert not fleet.known


def test_remote_text_does_not_drive_the_terminal() -> None:
    fleet = fleet_of(a=facts(gpu(name="NVIDIA\x1b[31m H100\nnew")))
    fleet.host("a").failed = "line\r\none\x1b]0;title\x07"
    fleet.add_result("host\x1b[2J\u202e", {"ansible_facts": {"gpu": facts(gpu())}})
    fleet.host("gone\x1b[2J").unreachable = "no route"
    assert not any(not char.isprintable() for line in table.render(fleet, 200) for char in line.text)


@pytest.mark.parametrize("width", [200, 120, 100, 92, 80, 79, 76, 72, 60, 45, 30])
def test_every_line_fits_the_width_and_no_cell_is_lost(width: int) -> None:
    fleet = fleet_of(
        gpu1=facts(
            gpu(0, problems=[{"code": "row_remap_pending", "severity": "warning", "message": "Reset " * 20}]),
            gpu(1, mig={"enabled": True, "pending": True, "instances": [instance(0)]}),
        )
    )
    fleet.add_result("gpu1", verification(verdict("GPU-0", "failed", failure={"kind": "driver_too_old"})))
    fleet.host("gpu2").unreachable = "no route"
    lines = table.render(fleet, width)
    assert max(len(line.text) for line in lines) <= width
    flat = "".join(text(lines).split())
    for word in ("gpu1", "gpu2", "H100", "79.6GiB", "580.159.04", "MIG1g.5gb", "4.8GiB", "unreachable"):
        assert word in flat


@pytest.mark.parametrize(
    ("word", "failure", "shown"),
    [
        ("passed", None, "health ok, verified"),
        ("failed", {"kind": "timeout"}, "health ok, not verified: timeout"),
        ("skipped", None, "health ok, skipped"),
    ],
)
def test_stacked_rows_say_what_is_verified(word: str, failure: dict[str, str] | None, shown: str) -> None:
    fleet = fleet_of(a=facts(gpu()))
    fleet.add_result("a", verification(verdict("GPU-0", word, failure=failure)))
    assert " ".join(text(table.layout(table.rows(fleet), 60)).split()).endswith(shown)


def test_stacked_rows_never_call_a_simulated_gpu_verified() -> None:
    fleet = fleet_of(a=facts(gpu(), simulated=True))
    assert "verified" not in text(table.render(fleet, 60))


def test_wide_terminal_keeps_the_vendor_and_80_columns_drop_it() -> None:
    fleet = fleet_of(**{"a-long-host-name": facts(gpu())})
    assert "NVIDIA H100 80GB HBM3" in table.render(fleet, 100)[1].text
    line = table.render(fleet, 80)[1].text
    assert "H100 80GB HBM3" in line
    assert "NVIDIA" not in line


def test_a_host_is_named_once() -> None:
    lines = table.render(fleet_of(node=facts(gpu(0), gpu(1))), 100)
    assert [line.text.startswith("node") for line in lines[1:3]] == [True, False]


def test_wide_characters_are_padded_by_their_width() -> None:
    fleet = table.Fleet()
    for name in ("機", "ab"):
        fleet.add_result(name, {"ansible_facts": {"gpu": facts(gpu())}})
    lines = table.render(fleet, 100, columns)
    starts = {line.text.replace("機", "xx").index("NVIDIA") for line in lines[1:3]}
    assert len(starts) == 1


@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_wide_characters_fit_the_width(width: int) -> None:
    fleet = table.Fleet()
    name = "計算機" * 9 + ".例え.example.org"
    fleet.add_result(name, {"ansible_facts": {"gpu": facts(gpu(0), gpu(1))}})
    fleet.host(name).failed = "計算機が壊れています" * 8
    fleet.host("e\u0301te\u0301" * 12).unreachable = "no route"
    lines = table.render(fleet, width, columns)
    assert max(columns(line.text) for line in lines) <= width
    flat = "".join(text(lines).split())
    assert "計算機が壊れています" * 8 in flat
    assert not any(line.text.lstrip().startswith("\u0301") for line in lines)


def test_a_width_that_holds_nothing_ends_nevertheless() -> None:
    fleet = table.Fleet()
    fleet.add_result("機", {"ansible_facts": {"gpu": facts(gpu())}})
    assert "機" in text(table.render(fleet, 1, columns))


HUGE = pytest.param(10**400, id="huge")
ODD = [None, 3, "text", [], [3], {}, {"a": 1}, float("nan"), HUGE, True, "a\x1b[31m\x07\u202e\ud800b"]


@pytest.mark.parametrize("odd", ODD)
def test_values_of_another_type_break_nothing(odd: Any) -> None:
    """Each value of a host's facts and verification in turn is another one, and none reaches the terminal as it is."""
    trouble = {"code": "ecc", "severity": "error", "message": "It has errors."}
    sliced = {"enabled": True, "pending": False, "instances": [instance(0)]}
    known = facts(gpu(0, problems=[trouble], mig=sliced), gpu(1), problems=[trouble])
    failure = {"kind": "timeout", "message": "It hangs."}
    failed = verdict("GPU-1", "failed", failure=failure, name="NVIDIA H100", index=1)
    proven = verification(failed, failure=failure)["verification"]
    told = [(one, proven) for one in with_one(odd, known)] + [(known, one) for one in with_one(odd, proven)]
    for number, (found, verified) in enumerate(told):
        fleet = fleet_of(good=facts(gpu()))
        fleet.add_result(f"h{number}", {"ansible_facts": {"gpu": found}})
        fleet.add_result(f"h{number}", {"verification": verified})
        for width in (200, 40):
            shown = table.render(fleet, width)
            assert any(line.text.startswith("good") for line in shown)
            assert all(line.text.isprintable() for line in shown)
