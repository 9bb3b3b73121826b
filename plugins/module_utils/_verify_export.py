# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a verification leaves on its host: metrics for Prometheus, and a custom fact for Ansible.

Metrics are in the text format that node_exporter's textfile collector reads
(https://prometheus.io/docs/instrumenting/exposition_formats/).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

VERDICTS = ("passed", "failed", "skipped", "simulated")
PREFIX = "cudahub_gpu_verify_"
# Metrics that say how it is, and not how fast or when: where these stay, nothing has changed.
LASTING = tuple(
    f"{PREFIX}{name}" for name in ("verified", "failure", "gpu_verdict", "check_passed", "host_check_passed")
)
MODE = 0o644


@dataclass
class Metric:
    """A gauge with its samples by labels; those of the same labels take each other's place."""

    name: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)

    def add(self, value: float, **labels: object) -> None:
        """Add a sample. Labels that are null are left out, as Prometheus takes an empty label for none."""
        self.samples[tuple((name, str(label)) for name, label in labels.items() if label is not None)] = value

    def lines(self) -> Iterator[str]:
        """Return the lines of the text format, none without a sample."""
        if not self.samples:
            return
        yield f"# HELP {PREFIX}{self.name} {self.help}"
        yield f"# TYPE {PREFIX}{self.name} gauge"
        for labels, value in self.samples.items():
            inside = ",".join(f'{name}="{_escaped(label)}"' for name, label in labels)
            yield f"{PREFIX}{self.name}{{{inside}}} {value!r}" if inside else f"{PREFIX}{self.name} {value!r}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: object) -> float | None:
    """A finite number as it is, anything else as null; a truth is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) <= sys.float_info.max else None


def metrics(verification: Mapping[str, Any], when: float) -> str:
    """Return the metrics of a verification (as of module cuda_verify) that ended ``when``, in seconds since 1970."""
    timestamp = Metric("timestamp_seconds", "When the GPUs were verified last, in seconds since 1970.")
    duration = Metric("duration_seconds", "How long it took, in seconds.")
    verified = Metric("verified", "Whether the GPUs of this host were proven to compute (1) or not (0).")
    failure = Metric("failure", "Kind of the failure of this host, if there is one.")
    verdict = Metric("gpu_verdict", "The verdict on each GPU or MIG instance: the one that applies is 1, others are 0.")
    warnings = Metric("gpu_warnings", "How many warnings there are for each GPU or MIG instance.")
    passed = Metric("check_passed", "Whether a check of a GPU passed (1) or not (0).")
    figure = Metric("check_figure", "What a check of a GPU found, in the unit that label unit names.")
    share = Metric("check_peak_ratio", "What a check of a GPU found, as a share of the card's peak.")
    host_passed = Metric("host_check_passed", "Whether a check between GPUs passed (1) or not (0).")
    host_figure = Metric("host_check_figure", "What a check between GPUs found, in the unit that label unit names.")
    timestamp.add(round(when, 3))
    if (found := _number(verification["seconds"])) is not None:
        duration.add(found)
    verified.add(int(verification["verified"]), level=verification["level"])
    if verification["failure"]:
        failure.add(1, kind=verification["failure"]["kind"])
    for gpu in verification["gpus"]:
        place = {"gpu": gpu["index"], "uuid": gpu["uuid"], "pci_bus_id": gpu["pci_bus_id"]}
        kind = {"name": gpu["name"], "mig_profile": gpu["mig_profile"]}
        for name in VERDICTS:
            verdict.add(int(gpu["verdict"] == name), **place, **kind, verdict=name)
        warnings.add(len(gpu["warnings"]), **place)
        for check in gpu["checks"]:
            passed.add(int(check["passed"]), **place, check=check["name"])
            if (found := _number(check["figure"])) is not None:
                figure.add(found, **place, check=check["name"], unit=check["unit"])
            if (found := _number(check.get("share"))) is not None:
                share.add(found, **place, check=check["name"])
    for check in verification["checks"]:
        labels = {"check": check["name"], "uuids": ",".join(check["gpus"])}
        host_passed.add(int(check["passed"]), **labels)
        if (found := _number(check["figure"])) is not None:
            host_figure.add(found, **labels, unit=check["unit"])
    every = (
        timestamp, duration, verified, failure, verdict, warnings, passed, figure, share, host_passed, host_figure
    )  # fmt: skip
    return "".join(f"{line}\n" for metric in every for line in metric.lines())


def fact(verification: Mapping[str, Any], when: float) -> dict[str, Any]:
    """Return the custom fact of a verification that ended ``when``: what plays ask for, without curves."""
    gpus = verification["gpus"]
    return {
        "time": datetime.fromtimestamp(int(when), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{name: verification[name] for name in ("level", "verified", "simulated", "seconds", "failure")},
        "counts": {name: sum(gpu["verdict"] == name for gpu in gpus) for name in VERDICTS},
        "gpus": [
            {
                **{name: gpu[name] for name in ("uuid", "index", "pci_bus_id", "name", "mig_profile")},
                **{name: gpu[name] for name in ("verdict", "reason", "failure", "warnings")},
                "checks": {
                    check["name"]: {name: check.get(name) for name in ("passed", "figure", "unit", "share")}
                    for check in gpu["checks"]
                },
            }
            for gpu in gpus
        ],
    }


def fact_text(verification: Mapping[str, Any], when: float) -> str:
    """Return the custom fact as the text of its file."""
    return json.dumps(_plain(fact(verification, when)), indent=2, sort_keys=True, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A value without numbers that JSON doesn't have, such as what a wrong product is."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def lasting_metrics(text: str) -> str:
    """Return the lines of metrics that stay until something is better or worse."""
    return "".join(f"{line}\n" for line in text.splitlines() if re.split(r"[{ ]", line, maxsplit=1)[0] in LASTING)


def lasting_fact(text: str) -> str:
    """Return a custom fact's text without what is another in each run; a text that is none as nothing."""
    try:
        found = json.loads(text)
        kept = {name: found[name] for name in ("level", "verified", "simulated")}
        kept["failure"] = (found["failure"] or {}).get("kind")
        kept["gpus"] = [
            {
                **{name: gpu[name] for name in ("uuid", "pci_bus_id", "verdict")},
                "checks": {name: check["passed"] for name, check in gpu["checks"].items()},
            }
            for gpu in found["gpus"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""
    return json.dumps(kept, indent=2, sort_keys=True) + "\n"


def read(path: Path) -> str | None:
    """Return what a file has, null if there is none. Raises OSError."""
    # Of what is no file, such as a pipe, nobody waits for an end.
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def write(path: Path, text: str) -> None:
    """Give a file a new content at once, readable for everybody. Raises OSError."""
    # The textfile collector and Ansible read *.prom and *.fact only, so that neither sees the part.
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fchmod(number, MODE)
            os.fsync(number)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
