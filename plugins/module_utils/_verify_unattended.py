# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A verification at level quick by a host itself, which has no Ansible: role gpu_verify's timer starts it.

It is given the path of a file with JSON: ``python``, ``conda_prefix``, ``gpus``, ``timeout``, ``cudf``, ``simulated``
and ``nvml_venvs`` as module cuda_verify has them, ``known`` (PCI address and UUID of each GPU that is missed if it has
gone), ``require_gpu``, and the paths ``metrics`` and ``fact`` of what it leaves, each null where it isn't wanted.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _gpu, _verify, _verify_export, _verify_payload, _verify_workers

HOW = ("python", "conda_prefix", "gpus", "timeout", "cudf", "simulated", "nvml_venvs", "known", "require_gpu")
OPTIONS = frozenset((*HOW, "metrics", "fact"))
# Exit codes, beside 0.
NOT_VERIFIED = 1
NOT_RUN = 2
NOT_LEFT = 3


def read(path: Path) -> dict[str, Any]:
    """Return the options in a file. Raises OSError, and ValueError where they are others."""
    options = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(options, dict) or OPTIONS - set(options):
        raise ValueError(f"{path} is of another version of this program: run role gpu_verify again.")
    return options


def output_of(command: Sequence[str]) -> str:
    """Return what a program printed, nothing if it isn't there."""
    path = shutil.which(command[0])
    if not path:
        return ""
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        [path, *command[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    return done.stdout


def wanted(options: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> tuple[str, ...] | None:
    """Return names of the GPUs to verify, null for those that are there."""
    if options["gpus"] is not None:
        return tuple(options["gpus"])
    here = {gpu[name] for gpu in gpus for name in ("pci_bus_id", "uuid")}
    gone = [uuid or pci_bus_id for pci_bus_id, uuid in options["known"] if not {pci_bus_id, uuid or pci_bus_id} & here]
    return (*(gpu["pci_bus_id"] for gpu in gpus), *gone) if gone else None


def verify(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verification (as of module cuda_verify) of this host. Raises OSError and StoppedError."""
    facts = _gpu.gather(options["nvml_venvs"], options["timeout"], output_of).as_dict()
    request = _verify.Request(
        python=options["python"] or f"{options['conda_prefix']}/bin/python",
        conda_prefix=options["conda_prefix"],
        command_prefix=(),
        gpus=wanted(options, facts["gpus"]),
        level="quick",
        timeout=options["timeout"],
        run_simulated=options["simulated"] == "run",
        cudf=options["cudf"],
    )
    marker = f"@cuda_verify-{uuid.uuid4().hex}@"
    payload = inspect.getsource(_verify_payload)
    return _verify.verify(facts, request, payload, marker, os.environ, _verify_workers.run, _verify.HostNodes())


def leave(options: Mapping[str, Any], verification: Mapping[str, Any], when: float) -> list[str]:
    """Write what is wanted of a verification, and return what could not be written."""
    troubles = []
    for option, text_of in (("metrics", _verify_export.metrics), ("fact", _verify_export.fact_text)):
        if options[option]:
            try:
                _verify_export.write(Path(options[option]), text_of(verification, when))
            except OSError as error:
                troubles.append(f"{options[option]} could not be written: {error.strerror}.")
    return troubles


def excused(options: Mapping[str, Any], verification: Mapping[str, Any]) -> bool:
    """Whether the only trouble of a host is that it has no GPU, and that is as it should be."""
    none = verification["failure"]["kind"] == "no_gpu" and not verification["gpus"]
    return bool(none and not options["require_gpu"])


def main(arguments: Sequence[str]) -> int:
    """Verify, leave the results, and return the exit code."""
    try:
        options = read(Path(arguments[0]))
        verification = verify(options)
    except (OSError, ValueError, _verify_workers.StoppedError) as error:
        sys.stderr.write(f"The GPUs could not be verified: {error}\n")
        return NOT_RUN
    sys.stdout.write(f"{_verify.summary(verification)}\n")
    troubles = leave(options, verification, time.time())
    sys.stderr.writelines(f"{trouble}\n" for trouble in troubles)
    if verification["failure"] and not excused(options, verification):
        return NOT_VERIFIED
    return NOT_LEFT if troubles else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
