# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of hosts, and outcomes of workers, for the tests of cuda_verify."""

from __future__ import annotations

import inspect
import json
import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from ansible_collections.cudahub.gpu.plugins.module_utils import (
    _verify,
    _verify_deep,
    _verify_payload,
    _verify_payload_device,
    _verify_payload_fp8,
    _verify_payload_nvml,
    _verify_payload_peers,
    _verify_workers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STANDIN = Path(__file__).parents[2] / "standin"
MARKER = "@mark@"
ADDRESS = "00000000:00:06.0"
RUNTIME = {"python": "3.12.3", "cupy": "14.2.0", "cuda_runtime": "13.0", "cuda_driver": "13.0"}


def gpu(number: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "uuid": f"GPU-{number}",
        "index": number,
        "pci_bus_id": ADDRESS,
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "device_nodes": [f"/dev/nvidia{number}"],
        "mig": {"enabled": False, "pending": False, "instances": []},
        "memory_bytes": 150 << 30,
        "nvlink": None,
        "problems": [],
        **more,
    }


def mig_gpu(number: int, *uuids: str) -> dict[str, Any]:
    instances = [
        {"uuid": uuid, "profile": "1g.5gb", "device_nodes": ["/dev/nvidia-caps/nvidia-cap1"]} for uuid in uuids
    ]
    return gpu(number, mig={"enabled": True, "pending": True, "instances": instances})


def problem(code: str) -> dict[str, str]:
    return {"code": code, "severity": "error", "message": f"told as {code}"}


def facts(*gpus: dict[str, Any], state: str = "ok", simulated: bool = False) -> dict[str, Any]:
    reason = None if state == "ok" else "told by the driver"
    return {
        "driver": {"state": state, "reason": reason, "cuda_version": "13.0"},
        "gpus": list(gpus),
        "simulated": simulated,
        "pynvml": str(STANDIN / "nvml" / "pynvml.py"),
    }


class FakeNodes:
    """Device nodes of which some are missing or forbidden."""

    def __init__(self, missing: Sequence[str] = (), forbidden: Sequence[str] = ()) -> None:
        self._missing = missing
        self._forbidden = forbidden

    def missing(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path in self._missing]

    def forbidden(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path in self._forbidden]


def report(error: str | None = None, **more: Any) -> str:
    """A worker's report; the error is ``TYPE: MESSAGE``."""
    kind, _colon, message = (error or "").partition(": ")
    document = {
        "done": True,
        "step": None if error is None else "context",
        "runtime": RUNTIME,
        "checks": [],
        "error": error and {"step": "context", "type": kind, "status": None, "kind": None, "message": message},
        "seconds": 1.0,
        **more,
    }
    return json.dumps(document)


def outcome(marked: str | None = None, **more: Any) -> _verify_workers.Outcome:
    return _verify_workers.Outcome(**{"returncode": 0, "seconds": 1.0, "marked": marked, "tail": "", **more})


def run_standin(
    troubles: dict[str, str],
    *gpus: dict[str, Any],
    timeout: float = 120,
    python: str = sys.executable,
    cudf: bool = False,
    libraries: Path = STANDIN,
) -> dict[str, Any]:
    """Prove GPUs for real, with the stand-ins for CuPy and cuDF."""
    environ = {**os.environ, "PYTHONPATH": str(libraries), "CUPY_STANDIN": json.dumps(troubles)}
    request = _verify.Request(python=python, timeout=timeout, cudf=cudf)
    payload = inspect.getsource(_verify_payload)
    return _verify.verify(facts(*gpus), request, payload, MARKER, environ, _verify_workers.run, FakeNodes())


@contextmanager
def limits_of_hanging(folder: Path) -> Iterator[None]:
    """Let no time limit end a worker but one that says by a file in this folder that it hangs, and that at once."""
    is_over = _verify_workers._Running.is_over

    def hangs(running: _verify_workers._Running, _timeout: float) -> bool:
        return is_over(running, 0 if (folder / str(running.process.pid)).exists() else 600)

    with mock.patch.object(_verify_workers._Running, "is_over", hangs):
        yield


class FakeOwners:
    def describe(self, pid: int) -> str:
        return f"process {pid} of alice (python train.py)"


def run_deep(
    troubles: dict[str, str],
    *gpus: dict[str, Any],
    nvml: dict[str, dict[str, Any]] | None = None,
    state: Path | None = None,
    hung: Path | None = None,
    timeout: float = 120,
    environ: dict[str, str] | None = None,
    request: dict[str, Any] | None = None,
    sleep: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """Prove GPUs in depth and for real, with the stand-ins for CuPy and NVML.

    Where a folder is given in which a worker can say that it is `hung`, the time limit is that worker's only.
    """
    addresses = {one["uuid"]: one["pci_bus_id"] for one in gpus}
    environment = {
        **os.environ,
        "PYTHONPATH": str(STANDIN),
        "CUPY_STANDIN": json.dumps(troubles),
        "CUPY_STANDIN_BUS_IDS": json.dumps(addresses),
        "CUPY_STANDIN_MEMORY": "12",
        "NVML_STANDIN": json.dumps(nvml or {}),
        **({"NVML_STANDIN_STATE": str(state)} if state else {}),
        **({"STANDIN_HUNG": str(hung)} if hung else {}),
        **(environ or {}),
    }
    found = facts(*gpus)
    reader = _verify_deep.Nvml(sys.executable, inspect.getsource(_verify_payload_nvml), found["pynvml"])
    more = {"sleep": sleep} if sleep else {}
    deep = _verify_deep.Options(**{"memory_margin": 1, **options})
    prover = _verify_deep.DeepProver(deep, reader, found["gpus"], FakeOwners(), **more)
    payload = _verify_deep.payload_text(
        *map(inspect.getsource, (_verify_payload, _verify_payload_device, _verify_payload_fp8, _verify_payload_peers))
    )
    level = "thorough" if deep.thorough else "standard"
    asked = _verify.Request(**{"python": sys.executable, "timeout": timeout, "level": level, **(request or {})})
    nodes = FakeNodes()
    with limits_of_hanging(hung) if hung else nullcontext():
        return _verify.verify(found, asked, payload, MARKER, environment, _verify_workers.run, nodes, prover)
