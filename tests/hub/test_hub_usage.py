# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The usage file: what is read from it, and that nothing is believed that is old or broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cudahub_hub.usage import Process, UnitUsage, read_usage

NOW = 1_800_000_000.0


def document(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "time": NOW - 3,
        "interval": 5,
        "units": {
            "GPU-a": {
                "state": "ok",
                "reason": None,
                "since": NOW - 900,
                "utilization_percent": 42,
                "memory_used_bytes": 1024,
                "memory_total_bytes": 4096,
                "processes": [{"pid": 7, "memory_bytes": None}],
                "busy_at": NOW - 60,
            },
            "GPU-b": {"state": "lost", "reason": "GPU 1 does not answer any more"},
        },
        **changes,
    }


def written(directory: Path, content: Any) -> Path:
    path = directory / "gpus.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_what_the_collector_wrote_is_read(tmp_path: Path) -> None:
    usage = read_usage(written(tmp_path, document()), NOW)
    assert usage.reason is None
    assert usage.of("GPU-a") == UnitUsage(
        state="ok",
        since=NOW - 900,
        utilization_percent=42,
        memory_used_bytes=1024,
        memory_total_bytes=4096,
        processes=(Process(7, None),),
        busy_at=NOW - 60,
    )
    assert usage.of("GPU-b").state == "lost"
    assert usage.of("GPU-b").busy_at is None


def test_a_unit_that_is_not_in_the_file_is_unknown(tmp_path: Path) -> None:
    assert read_usage(written(tmp_path, document()), NOW).of("GPU-c").state == "unknown"


@pytest.mark.parametrize(("age", "known"), [(25, True), (26, False), (-25, True), (-26, False)])
def test_a_file_is_believed_for_three_intervals_and_ten_seconds(tmp_path: Path, age: float, known: bool) -> None:
    usage = read_usage(written(tmp_path, document(time=NOW - age)), NOW)
    assert (usage.of("GPU-a").state == "ok") is known
    assert (usage.reason is None) is known


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        document(format=2),
        document(time="yesterday"),
        document(interval=None),
        document(units=[]),
        document(units={"GPU-a": {"state": "fine"}}),
        document(units={"GPU-a": None}),
        document(units={"GPU-a": {"state": "ok", "processes": [3]}}),
        {},
    ],
)
def test_a_broken_file_is_unknown_with_a_reason(tmp_path: Path, content: Any) -> None:
    path = written(tmp_path, content)
    usage = read_usage(path, NOW)
    assert usage.of("GPU-a").state == "unknown"
    assert str(path) in str(usage.of("GPU-a").reason)


def test_a_missing_file_is_unknown_with_a_reason(tmp_path: Path) -> None:
    usage = read_usage(tmp_path / "gone.json", NOW)
    assert usage.of("GPU-a").state == "unknown"
    assert "is not there: does the collector run?" in str(usage.reason)
