# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role passes hosts whose driver works, and says in one sentence what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from driver_host import INVENTORY
from testinfra.host import Host

testinfra_hosts = ["ansible://four"]

ENTRY = Path(__file__).parents[1] / "entry.yml"
Play = Callable[..., CompletedProcess[str]]


def said(done: CompletedProcess[str]) -> str:
    """Everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def fault(host: Host) -> Iterator[Callable[[str, str], None]]:
    """Return a function that switches a fault of a host's simulated GPUs on; all are off after the test."""
    hosts = {name: host.get_host(f"ansible://{name}", ansible_inventory=INVENTORY) for name in ("four", "mixed")}
    yield lambda name, arguments: hosts[name].run_expect([0], f"gpu-simulator fault add {arguments}")
    for other in hosts.values():
        other.run_expect([0], "gpu-simulator fault clear")


@pytest.mark.parametrize(
    "faults",
    [
        {
            "four": ("--kind mismatch", True, "four has 4 NVIDIA GPUs (NVIDIA H200), but can't use them: The loaded "),
            "mixed": ("--kind no_permission --function nvmlInit_v2", False, "may not use the driver"),
        },
        {
            "four": ("--kind lost --gpu 1", False, "four can't use 1 of its 4 NVIDIA GPUs (NVIDIA H200): GPU 1 "),
            "mixed": ("--kind not_loaded --function nvmlInit_v2", False, "NVML says that the driver is not loaded"),
        },
        {
            "four": ("--kind vanish --gpu 2", False, "is on the PCI bus, but NVML does not see it"),
        },
    ],
    ids="+".join,
)
def test_fault_is_refused(
    play: Play, fault: Callable[[str, str], None], faults: dict[str, tuple[str, bool, str]]
) -> None:
    for name, (arguments, _reboot, _sentence) in faults.items():
        fault(name, arguments)
    done = play(ENTRY, "--limit", ",".join(faults))
    assert done.returncode == 2, said(done)
    for name, (_arguments, reboot, sentence) in faults.items():
        assert f"Refused (reboot: {reboot}): {name} " in said(done)
        assert sentence in said(done)


def test_driver_that_was_installed_and_not_loaded_yet_is_refused(play: Play, host: Host) -> None:
    dkms = "/var/lib/gpu-simulator/root/var/lib/dkms"
    link = f"{dkms}/nvidia/kernel-$(uname -r)-$(uname -m)"
    host.run_expect([0], f"mkdir -p {dkms}/nvidia && ln -s 595.71.05/$(uname -r)/$(uname -m) {link}")
    try:
        done = play(ENTRY, "--limit", "four")
    finally:
        host.run_expect([0], f"rm -r {dkms}")
    assert done.returncode == 2, said(done)
    assert (
        "Refused (reboot: True): four has versions of its NVIDIA driver that differ"
        " (loaded 580.159.04, installed 595.71.05, library 580.159.04): reboot needed"
    ) in said(done)


@pytest.mark.parametrize("arguments", [["--extra-vars", "entry=main", "--check"], ["--extra-vars", "entry=verify"]])
def test_hosts_without_gpu_or_driver_are_refused(play: Play, arguments: list[str]) -> None:
    done = play(ENTRY, "--limit", "refused", *arguments)
    assert done.returncode == 2, said(done)
    assert "Refused (reboot: False): bare has no NVIDIA GPU on its PCI bus" in said(done)
    assert "Refused (reboot: False): driverless has " in said(done)
    assert (
        "install branch 580 with the proprietary kernel module, for example from NVIDIA's repository debian12"
    ) in said(done)


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("nvidia_driver_minimum_version=595.10", "asks for 595.10 or newer"),
        ("nvidia_driver_minimum_version=v580", "which is not the version of a driver"),
        ('{"nvidia_driver_minimum_version": 580}', 'write one like "580" or "580.95.05", in quotes'),
        (
            "nvidia_driver_source=runfile",
            "nvidia_driver_source must be one of: nvidia, distro, preinstalled, got: runfile",
        ),
        ("_nvidia_driver_os=Plan9-4", "which role nvidia_driver does not support: it supports Debian-12, Debian-13, "),
    ],
)
def test_bad_option_and_unknown_system_are_refused(play: Play, variable: str, sentence: str) -> None:
    done = play(ENTRY, "--limit", "four", "--extra-vars", variable)
    assert done.returncode == 2, said(done)
    assert sentence in said(done)


def test_usable_hosts_pass_together(play: Play) -> None:
    done = play(ENTRY, "--limit", "usable")
    assert done.returncode == 0, said(done)
    assert said(done).count("changed=0") == 2


def test_nothing_is_taken_away_that_was_not_installed(play: Play) -> None:
    done = play(ENTRY, "--limit", "four", "--extra-vars", "entry=absent")
    assert done.returncode == 0, said(done)
    assert "four keeps its NVIDIA driver" in said(done)
    assert "changed=0" in said(done)
