# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Made-up results of a fleet of H200, as gpu_facts and cuda_verify give them, for the tests of the report."""

from __future__ import annotations

import random
from typing import Any

NAME = "NVIDIA H200"
# Name, unit, expected, peak, and the usual share of it; None where there is none.
QUICK: list[tuple[str, str | None, str | None, float | None, float | None]] = [
    ("context", None, None, None, None),
    ("arange_sum", None, "[3, 12]", None, None),
    ("compile", None, None, None, None),
    ("matmul", "relative error", "<= 1e-05", None, None),
    ("matmul_rate", "TFLOP/s", ">= 3.35", 67.0, 0.72),
]
STANDARD = [
    *QUICK,
    ("memory_pattern", "wrong words", "0", None, None),
    ("copy_device", "GB/s", ">= 3851", 4814.0, 0.86),
    ("copy_host_to_device", "GB/s", ">= 38", 64.0, 0.84),
    ("copy_device_to_host", "GB/s", ">= 38", 64.0, 0.83),
    ("gemm_fp64", "TFLOP/s", ">= 40", 67.0, 0.9),
    ("gemm_fp32", "TFLOP/s", ">= 40", 67.0, 0.77),
    ("gemm_tf32", "TFLOP/s", ">= 296", 494.0, 0.81),
    ("gemm_fp16", "TFLOP/s", ">= 593", 989.0, 0.79),
    ("sustained_load", "TFLOP/s", ">= 593", 989.0, 0.67),
    ("error_counters", "counters that rose", "0", None, None),
]


def uuid_of(host: int, gpu: int) -> str:
    return f"GPU-{host:08x}-0000-4000-8000-{gpu:012x}"


def place_of(gpu: int) -> str:
    return f"00000000:{0x10 + gpu * 8:02X}:00.0"


def facts_of(host: int, gpus: int, *, switched: bool = False) -> dict[str, Any]:
    def peers(own: int) -> list[dict[str, Any]]:
        if switched:
            return [{"type": "switch", "pci_bus_id": None, "links": 18}]
        others = [gpu for gpu in range(gpus) if gpu != own]
        return [{"type": "gpu", "pci_bus_id": place_of(gpu), "links": 18 // len(others)} for gpu in others]

    return {
        "driver": {"state": "ok", "version": "580.159.04", "reason": None},
        "simulated": False,
        "count": gpus,
        "problems": [],
        "gpus": [
            {
                "index": gpu,
                "uuid": uuid_of(host, gpu),
                "pci_bus_id": place_of(gpu),
                "name": NAME,
                "memory_bytes": 150_754_820_096,
                "numa_node": gpu * 2 // max(gpus, 2),
                "mig": {"enabled": False, "instances": []},
                "nvlink": {"version": "4.0", "links": 18, "active_links": 18, "peers": peers(gpu)}
                if gpus > 1
                else None,
                "problems": [],
            }
            for gpu in range(gpus)
        ],
    }


def _check(chance: random.Random, kind: tuple[Any, ...], factor: float) -> dict[str, Any]:
    name, unit, expected, peak, usual = kind
    share = round((usual or 0) * chance.gauss(1, 0.008) * factor, 4)
    other: dict[str, Any] = {"arange_sum": [3, 12], "matmul": 1.4e-07, "memory_pattern": 0, "error_counters": 0}
    return {
        "name": name,
        "passed": True,
        "figure": round(peak * share, 2) if peak else other.get(name),
        "unit": unit,
        "expected": expected,
        "seconds": round(chance.uniform(0.05, 1.9), 3),
        "message": None,
        "share": share if peak else None,
        "peak": peak,
        "mode": "sequential" if name.startswith(("copy_host", "copy_device_to")) else "parallel" if peak else None,
    }


def _load(chance: random.Random, count: int, *, hot: bool) -> dict[str, Any]:
    points = []
    for at in range(count):
        rise = 1 - 0.8**at
        reasons = ["sw_power_cap"] if at > 1 else ["gpu_idle"]
        points.append(
            {
                "seconds": round(at * 0.5, 1),
                "sm_clock_mhz": 1980 - (round(500 * rise) if hot else chance.choice((0, 15))),
                "memory_clock_mhz": 3201,
                "power_watts": round(120 + 560 * rise + chance.gauss(0, 4), 1),
                "temperature_celsius": round(34 + (54 if hot else 28) * rise),
                "reasons": ["hw_thermal_slowdown"] if hot and at > count // 2 else [] if hot else reasons,
            }
        )
    return {"summary": {}, "reasons": {}, "samples": points}


def verification_of(host: int, gpus: int, level: str = "standard", seed: int = 0, samples: int = 40) -> dict[str, Any]:
    chance = random.Random(host * 1000 + seed)  # noqa: S311
    kinds = QUICK if level == "quick" else STANDARD
    results = [
        {
            "uuid": uuid_of(host, gpu),
            "index": gpu,
            "pci_bus_id": place_of(gpu),
            "name": NAME,
            "mig_profile": None,
            "verdict": "passed",
            "reason": None,
            "failure": None,
            "seconds": round(chance.uniform(20, 26), 3) if level != "quick" else 3.1,
            "checks": [_check(chance, kind, 1) for kind in kinds],
            **({} if level == "quick" else {"warnings": [], "load": _load(chance, samples, hot=False)}),
        }
        for gpu in range(gpus)
    ]
    verification: dict[str, Any] = {
        "level": level,
        "verified": True,
        "simulated": False,
        "seconds": 24.2 if level != "quick" else 3.4,
        "runtime": {"python": "3.12.3", "cupy": "14.2.0", "cuda_runtime": "13.0", "cuda_driver": "13.0"},
        "failure": None,
        "gpus": results,
    }
    if level != "quick":
        verification["checks"] = [
            {
                "name": "peer_to_peer",
                "passed": True,
                "figure": round(chance.gauss(395, 3), 1),
                "unit": "GB/s",
                "expected": ">= 300",
                "seconds": 0.2,
                "message": None,
                "gpus": [uuid_of(host, 0), uuid_of(host, other)],
            }
            for other in range(1, gpus)
        ]
    return verification


def host_of(host: int, gpus: int, level: str = "standard", seed: int = 0, samples: int = 40) -> dict[str, Any]:
    return {
        "facts": facts_of(host, gpus, switched=gpus > 4),
        "verification": verification_of(host, gpus, level, seed, samples),
    }


def fail(result: dict[str, Any], gpu: int, check: str, kind: str, factor: float = 0.1) -> None:
    """Let a GPU fail in a check, as cuda_verify says it."""
    verification = result["verification"]
    found = verification["gpus"][gpu]
    at = next(number for number, one in enumerate(found["checks"]) if one["name"] == check)
    bad = found["checks"][at]
    bad.update(passed=False, message=f"{check} is not as expected")
    if bad["share"]:
        bad.update(figure=round(bad["figure"] * factor, 2), share=round(bad["share"] * factor, 4))
    del found["checks"][at + 1 :]
    message = f"GPU {gpu} {found['pci_bus_id']} {found['uuid']} isn't fit, {bad['message']}: look for Xid messages."
    found.update(verdict="failed", failure={"kind": kind, "message": message})
    verification.update(verified=False, failure=verification["failure"] or found["failure"])


def fleet(
    hosts: int, gpus: int, level: str = "standard", seed: int = 0, samples: int = 40
) -> dict[str, dict[str, Any]]:
    """A fleet in which some fail; a fleet of one host is well."""
    results = {
        f"gpu{number + 1:04d}.example.org": host_of(number, gpus, level, seed, samples) for number in range(hosts)
    }
    names = list(results)
    if hosts > 3:
        fail(results[names[1]], min(3, gpus - 1), "matmul_rate", "slow")
        results[names[2]] = {"failed": None, "unreachable": "ssh: connect to host port 22: Connection timed out"}
        hot = results[names[3]]["verification"]["gpus"][0]
        if level != "quick":
            hot["warnings"] = [
                f"GPU 0 {place_of(0)} {uuid_of(3, 0)} was held back by hw_thermal_slowdown: look at its fans."
            ]
            hot["load"] = _load(random.Random(seed), samples, hot=True)  # noqa: S311
    if hosts > 6:
        fail(results[names[4]], 0, "matmul", "wrong_result")
        results[names[5]] = {
            "facts": {**facts_of(5, 0), "gpus": []},
            "verification": {
                **verification_of(5, 0, level),
                "verified": False,
                "failure": {"kind": "no_gpu", "message": "This host has no NVIDIA GPU on its PCI bus."},
            },
        }
    return results
