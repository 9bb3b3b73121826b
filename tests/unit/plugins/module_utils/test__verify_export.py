# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a verification leaves on its host, as Prometheus' own reader and Ansible understand it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ansible_collections.cudahub.gpu.plugins.module_utils import _verify_export
from ansible_collections.cudahub.gpu.plugins.module_utils._verify import Failure, Unit

README = Path(__file__).parents[4] / "roles/gpu_verify/README.md"
WHEN = 1790000000.25
RATE = {"name": "matmul_rate", "passed": True, "figure": 51.5, "unit": "TFLOP/s", "expected": ">= 3", "share": 0.76}
CONTEXT = {"name": "context", "passed": True, "figure": "13.0", "unit": None, "expected": None}


def unit(number: int, **more: Any) -> Unit:
    return Unit(f"GPU-{number}", number, f"00000000:0{number}:00.0", "NVIDIA H200", **more)


def verification(*gpus: dict[str, Any], **more: Any) -> dict[str, Any]:
    failures = [gpu["failure"] for gpu in gpus if gpu["failure"]]
    return {
        "level": "quick",
        "verified": not failures,
        "simulated": False,
        "seconds": 4.5,
        "runtime": None,
        "failure": failures[0] if failures else None,
        "checks": [],
        "gpus": list(gpus),
        **more,
    }


def good(number: int = 0, **more: Any) -> dict[str, Any]:
    return unit(number).result("passed", checks=[CONTEXT, RATE], **more)


def bad(number: int = 1) -> dict[str, Any]:
    return unit(number).failed(Failure("timeout", "It hangs."), checks=[{**RATE, "passed": False, "figure": None}])


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples as Prometheus reads them, and see that each has a help and is there once."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        for sample in family.samples:
            key = (sample.name.removeprefix("cudahub_gpu_verify_"), frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def sample(text: str, metric: str, /, **labels: str) -> float | None:
    """Return the value of the sample that has at least these labels."""
    fitting = [
        value for (key, own), value in samples(text).items() if key == metric and labels.items() <= dict(own).items()
    ]
    assert len(fitting) <= 1
    return fitting[0] if fitting else None


def test_a_host_that_is_well() -> None:
    text = _verify_export.metrics(verification(good(0), good(1)), WHEN)
    assert sample(text, "timestamp_seconds") == WHEN
    assert sample(text, "duration_seconds") == 4.5
    assert sample(text, "verified", level="quick") == 1
    assert sample(text, "failure") is None
    labels = {"gpu": "1", "uuid": "GPU-1", "pci_bus_id": "00000000:01:00.0"}
    assert sample(text, "gpu_verdict", **labels, name="NVIDIA H200", verdict="passed") == 1
    assert [sample(text, "gpu_verdict", **labels, verdict=name) for name in ("failed", "skipped", "simulated")] == [
        0
    ] * 3
    assert sample(text, "check_passed", **labels, check="matmul_rate") == 1
    assert sample(text, "check_figure", **labels, check="matmul_rate", unit="TFLOP/s") == 51.5
    assert sample(text, "check_peak_ratio", **labels, check="matmul_rate") == 0.76
    assert sample(text, "check_passed", **labels, check="context") == 1
    assert sample(text, "check_figure", **labels, check="context") is None


def test_a_gpu_that_fails() -> None:
    text = _verify_export.metrics(verification(good(0), bad(1)), WHEN)
    assert sample(text, "verified") == 0
    assert sample(text, "failure", kind="timeout") == 1
    assert sample(text, "gpu_verdict", uuid="GPU-1", verdict="failed") == 1
    assert sample(text, "gpu_verdict", uuid="GPU-0", verdict="failed") == 0
    assert sample(text, "check_passed", uuid="GPU-1", check="matmul_rate") == 0
    assert sample(text, "check_figure", uuid="GPU-1") is None


def test_checks_between_gpus() -> None:
    check = {"name": "peer_to_peer", "passed": True, "figure": 391.0, "unit": "GB/s", "gpus": ["GPU-0", "GPU-1"]}
    text = _verify_export.metrics(verification(good(0), good(1), checks=[check]), WHEN)
    assert sample(text, "host_check_passed", check="peer_to_peer", uuids="GPU-0,GPU-1") == 1
    assert sample(text, "host_check_figure", check="peer_to_peer", uuids="GPU-0,GPU-1", unit="GB/s") == 391


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), 10**400, True, "13.0", None, [1]])
def test_what_is_no_number_is_no_figure(figure: object) -> None:
    one = unit(0).result("passed", checks=[{**RATE, "figure": figure, "share": None}])
    text = _verify_export.metrics(verification(one), WHEN)
    assert sample(text, "check_figure") is None
    assert sample(text, "check_peak_ratio") is None
    assert sample(text, "check_passed") == 1
    assert sample(_verify_export.metrics(verification(seconds=figure), WHEN), "duration_seconds") is None


@pytest.mark.parametrize(
    "name", ['a "card"', "back\\slash", "two\nlines", "c:\\new", "ü}{,=", "two\rlines", "a\u2028b\x00"]
)
def test_names_come_through(name: str) -> None:
    one = Unit("GPU-0", 0, None, name).result("passed")
    text = _verify_export.metrics(verification(one), WHEN)
    assert sample(text, "gpu_verdict", name=name, verdict="passed") == 1


def test_what_is_not_known_is_no_label() -> None:
    lost = Unit(None, None, "00000000:02:00.0", None).failed(Failure("driver_lost", "It is gone."))
    text = _verify_export.metrics(verification(lost), WHEN)
    assert sample(text, "gpu_verdict", verdict="failed") == 1
    assert "None" not in text
    assert 'pci_bus_id="00000000:02:00.0",verdict="failed"' in text


def test_a_host_without_gpu() -> None:
    nothing = verification(failure={"kind": "no_gpu", "message": "This host has no GPU."}, verified=False)
    text = _verify_export.metrics(nothing, WHEN)
    assert {name for name, _labels in samples(text)} == {"timestamp_seconds", "duration_seconds", "verified", "failure"}
    assert _verify_export.fact(nothing, WHEN)["counts"] == {"passed": 0, "failed": 0, "skipped": 0, "simulated": 0}


def test_the_fact_has_what_plays_ask_for() -> None:
    warned = good(0, warnings=["It is slow."], load={"samples": [{"seconds": 0}]})
    found = json.loads(_verify_export.fact_text(verification(warned, bad(1)), WHEN))
    assert (found["time"], found["level"], found["verified"], found["simulated"]) == (
        "2026-09-21T14:13:20Z",
        "quick",
        False,
        False,
    )
    assert found["failure"] == {"kind": "timeout", "message": "It hangs."}
    assert found["counts"] == {"passed": 1, "failed": 1, "skipped": 0, "simulated": 0}
    first = found["gpus"][0]
    assert (first["uuid"], first["verdict"], first["warnings"]) == ("GPU-0", "passed", ["It is slow."])
    assert first["checks"]["matmul_rate"] == {"passed": True, "figure": 51.5, "unit": "TFLOP/s", "share": 0.76}
    assert "load" not in first


def test_the_fact_is_json_also_where_a_result_is_no_number() -> None:
    def no_json(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    wrong = {**RATE, "passed": False, "figure": [float("nan"), 12.0], "share": float("inf")}
    text = _verify_export.fact_text(verification(unit(0).result("passed", checks=[wrong])), WHEN)
    found = json.loads(text, parse_constant=no_json)["gpus"][0]["checks"]["matmul_rate"]
    assert (found["figure"], found["share"]) == (["nan", 12.0], "inf")


WRITERS = {
    "metrics": (_verify_export.metrics, _verify_export.lasting_metrics),
    "fact": (_verify_export.fact_text, _verify_export.lasting_fact),
}


@pytest.mark.parametrize("what", WRITERS)
def test_what_lasts(what: str) -> None:
    text_of, lasting = WRITERS[what]

    def now(*gpus: dict[str, Any], when: float = WHEN, **more: Any) -> str:
        text = text_of(verification(*gpus, **more), when)
        assert lasting(text)
        return lasting(text)

    quicker = unit(0).result("passed", checks=[CONTEXT, {**RATE, "figure": 60.0, "share": 0.9}], seconds=9.0)
    before = now(good(0))
    assert now(quicker, when=WHEN + 86400, seconds=99.0) == before
    assert now(unit(0).result("passed", checks=[CONTEXT, {**RATE, "passed": False}])) != before
    assert now(unit(0).result("simulated", checks=[CONTEXT, RATE])) != before
    assert now(good(1)) != before
    assert now(good(0), level="standard") != before
    assert now(good(0), verified=False, failure={"kind": "nccl", "message": "NCCL is missing."}) != before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"gpus": 3}', '{"level": 1, "verified": 1, "simulated": 1}', "\0"]
)
def test_a_fact_that_is_broken_has_nothing_that_lasts(text: str) -> None:
    assert _verify_export.lasting_fact(text) == ""


def test_text_that_is_no_unicode_is_written(tmp_path: Path) -> None:
    """As names that a host has from bytes of another encoding."""
    path = tmp_path / "cudahub_gpu.prom"
    _verify_export.write(path, "gpu \udc80\n")
    assert path.read_bytes() == b"gpu ?\n"


def test_a_file_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cudahub_gpu.prom"
    assert _verify_export.read(path) is None
    _verify_export.write(path, "old\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644

    def no_space(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        _verify_export.write(path, "new\n")
    assert _verify_export.read(path) == "old\n"
    assert [one.name for one in tmp_path.iterdir()] == ["cudahub_gpu.prom"]


@pytest.mark.parametrize(
    "found",
    [
        verification(good(), bad()),
        verification(verified=False, failure={"kind": "driver_unusable", "message": "NVML did not answer."}),
    ],
)
def test_the_alert_of_the_readme_fires_for_each_failure(found: dict[str, Any]) -> None:
    rules = next(block for block in README.read_text().split("```") if block.startswith("yaml\n- alert:"))
    alerts = {rule["alert"]: rule["expr"] for rule in yaml.safe_load(rules.removeprefix("yaml"))}
    metric, value = alerts["GPUsFailVerification"].split(" == ")
    assert sample(_verify_export.metrics(found, WHEN), metric.removeprefix("cudahub_gpu_verify_")) == float(value)
