# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated GPUs are reported, nothing is installed for them, and their faults are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://h200"]

HERE = Path(__file__).parents[1]
Play = Callable[..., CompletedProcess[str]]


def said(done: CompletedProcess[str]) -> str:
    """Return everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def clean(host: Host) -> Iterator[None]:
    """Leave no fault behind."""
    yield
    host.run_expect([0], "gpu-simulator fault clear")


def test_simulated_gpus_are_never_verified(host: Host) -> None:
    result = host.ansible("cudahub.gpu.cuda_verify", check=False)
    verification = result["verification"]
    assert (verification["simulated"], verification["verified"], verification["failure"]) == (True, False, None)
    assert [gpu["verdict"] for gpu in verification["gpus"]] == ["simulated"] * 4
    assert verification["runtime"] is None
    assert result["changed"] is False


@pytest.mark.parametrize(
    ("fault", "kind"), [("lost", "gpu_lost"), ("vanish", "gpu_lost"), ("no_permission", "permission")]
)
def test_a_gpu_that_goes_between_facts_and_proof_is_named(play: Play, clean: None, fault: str, kind: str) -> None:
    done = play(HERE / "vanish.yml", "-e", f"kind={fault}")
    assert done.returncode == 2, said(done)
    assert "h200 isn't verified. GPUs: 1 failed, 3 simulated, in " in said(done)
    assert f"[{kind}] " in said(done)


def test_gpus_that_came_after_the_facts_are_proven_too(play: Play) -> None:
    done = play(HERE / "stale.yml")
    assert done.returncode == 0, said(done)
    assert "GPUs: 4 simulated, in " in said(done)


def test_a_gpu_that_left_the_bus_since_the_facts_is_missed(play: Play) -> None:
    done = play(HERE / "stale.yml", "-e", "with_one_gone=true")
    assert done.returncode == 2, said(done)
    assert "h200 isn't verified. GPUs: 1 failed, 4 simulated, in " in said(done)
    assert "[gpu_lost] GPU GPU-gone was expected" in said(done)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("--kind mismatch", "in state 'mismatch'"),
        ("--kind not_loaded --function nvmlInit_v2", "in state 'not_loaded'"),
        ("--kind timeout --seconds 60 --function nvmlInit_v2", "in state 'unusable'"),
    ],
)
def test_a_driver_that_fails_is_named(
    play: Play, host: Host, clean: None, gone: Callable[[Host, str], None], fault: str, words: str
) -> None:
    host.run_expect([0], f"gpu-simulator fault add {fault}")
    seconds = 4 if "timeout" in fault else 60
    limits = ("-e", f"gpu_verify_timeout={seconds}", "-e", f"gpu_facts_timeout={seconds}")
    done = play(HERE / "role.yml", "-e", "entry=verify", *limits)
    assert done.returncode == 2, said(done)
    assert words in said(done)
    gone(host, "^[DZ]")
