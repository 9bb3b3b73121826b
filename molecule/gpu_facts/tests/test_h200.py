# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with four simulated H200: healthy, and with each fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://h200"]
UNITS = ["gpu-simulator.service"]

SIMULATOR = "/usr/local/bin/gpu-simulator"


def facts(host: Host, arguments: str = "") -> dict[str, Any]:
    result = host.ansible("cudahub.gpu.gpu_facts", arguments, check=False)
    assert result["changed"] is False
    gpu: dict[str, Any] = result["ansible_facts"]["gpu"]
    return gpu


def codes(gpu: dict[str, Any]) -> list[str]:
    return [problem["code"] for problem in gpu["problems"]]


@pytest.fixture
def fault(host: Host) -> Generator[Callable[[str], None]]:
    """Return a function that switches a fault on; they are off again afterwards."""
    yield lambda arguments: host.check_output(f"{SIMULATOR} fault add {arguments}")
    host.check_output(f"{SIMULATOR} fault clear")


def test_healthy(host: Host) -> None:
    gpu = facts(host)
    assert gpu["simulated"] is True
    assert (gpu["driver"]["state"], gpu["driver"]["reason"]) == ("ok", None)
    assert (gpu["driver"]["version"], gpu["driver"]["branch"]) == ("580.159.04", "580")
    assert gpu["driver"]["loaded_version"] == gpu["driver"]["library_version"] == "580.159.04"
    assert (gpu["driver"]["cuda_version"], gpu["driver"]["kernel_module"]) == ("13.0", "open")
    assert (gpu["count"], gpu["visible_count"], gpu["problems"]) == (4, 4, [])
    assert [card["index"] for card in gpu["gpus"]] == [0, 1, 2, 3]
    assert len({card["uuid"] for card in gpu["gpus"]}) == 4
    for card in gpu["gpus"]:
        assert (card["name"], card["architecture"], card["compute_capability"]) == ("NVIDIA H200", "Hopper", "9.0")
        assert (card["memory_bytes"], card["power_limit_watts"]) == (150754820096, 700.0)
        assert (card["slurm_type"], card["pci_device_id"]) == ("nvidia_h200", "10de:2335")
        assert (card["nvlink"]["version"], card["nvlink"]["active_links"]) == ("4.0", 18)
        assert (card["mig"]["enabled"], card["ecc"]["enabled"], card["ecc"]["retired_pages_pending"]) == (
            False,
            True,
            None,
        )
        assert (card["healthy"], card["problems"]) == (True, [])


def test_binding_is_in_the_roles_own_environment(host: Host) -> None:
    assert facts(host)["pynvml"].startswith("/opt/cudahub/nvml/lib/python3")
    assert host.run("/usr/bin/python3 -c 'import pynvml'").rc == 1
    assert host.run("/opt/cudahub/nvml/bin/python -c 'import pynvml'").rc == 0


def test_check_mode_gives_the_same(host: Host) -> None:
    assert host.ansible("cudahub.gpu.gpu_facts", check=True)["ansible_facts"]["gpu"] == facts(host)


def test_one_gpu_lost(host: Host, fault: Callable[[str], None]) -> None:
    fault("--gpu 1 --kind lost")
    gpu = facts(host)
    assert (gpu["driver"]["state"], gpu["count"], gpu["visible_count"]) == ("ok", 4, 3)
    assert [card["healthy"] for card in gpu["gpus"]] == [True, False, True, True]
    lost = gpu["gpus"][1]
    assert codes(lost) == ["lost"]
    assert lost["pci_bus_id"] in lost["problems"][0]["message"]
    assert lost["uuid"] is not None


def test_gpu_vanished(host: Host, fault: Callable[[str], None]) -> None:
    fault("--gpu 2 --kind vanish")
    gpu = facts(host)
    assert (gpu["count"], gpu["visible_count"]) == (4, 3)
    assert sum(card["healthy"] is False for card in gpu["gpus"]) == 1


@pytest.mark.parametrize(
    ("kind", "state", "sentence"),
    [
        ("mismatch", "mismatch", "reboot"),
        ("not_loaded", "not_loaded", "NVML says that the driver is not loaded"),
        ("no_permission", "unusable", "User root may not use the driver"),
    ],
)
def test_driver_does_not_answer(host: Host, fault: Callable[[str], None], kind: str, state: str, sentence: str) -> None:
    fault(f"--kind {kind} --function nvmlInit")
    gpu = facts(host)
    assert gpu["driver"]["state"] == state
    assert sentence in gpu["driver"]["reason"]
    assert codes(gpu) == [f"driver_{state}"]
    assert (gpu["count"], gpu["visible_count"], gpu["simulated"]) == (4, 0, True)
    assert [card["name"] for card in gpu["gpus"]] == ["NVIDIA H200"] * 4
    assert {card["healthy"] for card in gpu["gpus"]} == {None}


@pytest.mark.parametrize(
    ("kind", "code", "healthy"),
    [
        ("ecc", "ecc_uncorrectable", False),
        ("remap_pending", "row_remap_pending", True),
        ("remap_failed", "row_remap_failed", False),
        ("reset_required", "reset_required", False),
    ],
)
def test_one_gpu_has_a_problem(host: Host, fault: Callable[[str], None], kind: str, code: str, healthy: bool) -> None:
    fault(f"--gpu 3 --kind {kind}")
    gpu = facts(host)
    assert [codes(card) for card in gpu["gpus"]] == [[], [], [], [code]]
    assert gpu["gpus"][3]["healthy"] is healthy


@pytest.mark.parametrize(("kind", "words"), [("thermal_slowdown", "thermal"), ("power_slowdown", "power")])
def test_slow_down(host: Host, fault: Callable[[str], None], kind: str, words: str) -> None:
    fault(f"--gpu 0 --kind {kind}")
    cards = facts(host)["gpus"]
    assert any(words in code for code in codes(cards[0]))
    assert [codes(card) for card in cards[1:]] == [[], [], []]


def test_one_call_fails(host: Host, fault: Callable[[str], None]) -> None:
    fault("--gpu 0 --kind unknown --function nvmlDeviceGetMemoryInfo")
    card = facts(host)["gpus"][0]
    assert (card["memory_bytes"], card["name"], card["healthy"]) == (None, "NVIDIA H200", True)
    assert codes(card) == ["unreadable"]


def test_hanging_call_is_ended_and_leaves_no_process(
    host: Host, fault: Callable[[str], None], gone: Callable[[Host, str], None]
) -> None:
    fault("--gpu 2 --kind slow --function nvmlDeviceGetMemoryInfo --seconds 120")
    start = time.monotonic()
    gpu = facts(host, "timeout=5")
    assert time.monotonic() - start < 100
    assert gpu["driver"]["state"] == "unusable"
    assert "within 5 s, while GPU 2 of 4 was read" in gpu["driver"]["reason"]
    assert (gpu["count"], gpu["visible_count"]) == (4, 2)
    assert [card["healthy"] for card in gpu["gpus"]] == [True, True, None, None]
    gone(host, "^Z|gpu_facts")


def test_user_without_root_gets_the_facts(host: Host) -> None:
    result = host.ansible("cudahub.gpu.gpu_facts", check=False, become=True, become_user="nobody")
    assert result["ansible_facts"]["gpu"]["count"] == 4
