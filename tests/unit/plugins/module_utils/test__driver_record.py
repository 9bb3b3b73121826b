# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan and a record are read as they were written, and what is neither is told in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils._driver_record import (
    RESERVE,
    Pending,
    Plan,
    PlanError,
    Record,
    RecordFile,
    Was,
)
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import Change, Package

PLAN = {
    "source": "distro",
    "branch": "535",
    "version": "535.309.01",
    "kernel_module": "proprietary",
    "kernels": ["6.12.118+deb13-amd64"],
    "packages": [{"name": "a", "version": "1"}],
    "transaction": {
        "install": [{"name": "a", "version": "1"}],
        "change": [{"name": "b", "from": "1", "to": "2"}],
        "remove": [{"name": "c", "version": "3"}],
    },
}


def test_a_plan_is_read() -> None:
    read = Plan.of({**PLAN, "ways_out": ["x"], "unhold": ["d"], "repair": True, "more": 1})
    assert read.packages == (Package("a", "1"),)
    assert read.transaction.change == (Change("b", "1", "2"),)
    assert (read.ways_out, read.unhold, read.repair) == (("x",), ("d",), True)
    assert Plan.of(PLAN).ways_out == ()


@pytest.mark.parametrize("key", sorted(PLAN))
def test_what_is_no_plan(key: str) -> None:
    with pytest.raises(PlanError, match=f"plan is not what cudahub.gpu.driver_plan returns: '{key}'"):
        Plan.of({name: value for name, value in PLAN.items() if name != key})


def test_a_record_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "lib" / "record.json"
    records = RecordFile(str(file))
    assert records.read() is None
    record = Record(
        source="nvidia",
        installed=("a",),
        before={"b": Was("0", "installed", False, True)},
        pending=Pending(frozenset({"a", "b"}), {"b": Was("1", "installed", True, False)}),
    )
    records.write(record)
    assert records.read() == record
    assert json.loads(file.read_text(encoding="utf-8"))["version"] == 1
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in file.parent.iterdir()] == ["record.json"]
    records.reserve()
    assert file.with_name("record.json.reserve").stat().st_size == RESERVE
    records.release()
    records.release()
    records.remove()
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not a record"),
        ("{", "it is not a record"),
        ("[]", "it is not a record of driver packages;"),
        ("[" * 100000, "it is not a record"),
        ("{}", "it has no pending;"),
        ('{"pending": null}', "it has no source;"),
        (Record(installed=("bash",)).as_json().replace('[\n    "bash"\n  ]', '"bash"'), "installed is no list in it;"),
        (
            Record().as_json().replace('"version": 1', '"version": 2'),
            "its format is 2, and this version of the collection",
        ),
    ],
)
def test_what_is_no_record(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "record.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError, match=rf"The record .*record.json can't be read: {reason}"):
        RecordFile(str(file)).read()
