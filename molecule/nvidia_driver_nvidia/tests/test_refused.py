# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can't work is refused in a sentence that says what to do, and the host is left as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

EPHEMERAL = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
PLAYBOOK = Path(__file__).parents[1] / "cases.yml"
HOST = "nothing"
V100, H100, B200, NVSWITCH = "10de:1db5", "10de:2330", "10de:2901", "10de:22a3:0x068000"
ROOT = "/var/lib/gpu-simulator/root"
EFI = f"{ROOT}/sys/firmware/efi/efivars"
SECURE_BOOT = f"{EFI}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
APT_ONLY_PPA = "-o Dir::Etc::sourcelist=/etc/apt/sources.list.d/ppa.list -o Dir::Etc::sourceparts=-"


@dataclass
class Case:
    """Options of the role, words of the refusal, and commands that make the host so and undo it."""

    says: list[str]
    options: dict[str, str] = field(default_factory=dict)
    before: str = "true"
    after: str = "true"


CASES = {
    "unknown branch": Case(["999", "580", "595", "620"], {"branch": "999"}),
    "unknown version": Case(["580.1.2", "580.159.04"], {"branch": "580", "version": "580.1.2"}),
    "repository does not answer": Case(["http://mirror:81"], {"url": "http://mirror:81"}),
    "no repository at this address": Case(["http://mirror/elsewhere", "404"], {"url": "http://mirror/elsewhere"}),
    "key of somebody else": Case(["http://mirror/other.pub", "key"], {"key_url": "http://mirror/other.pub"}),
    "key with another fingerprint": Case(["A" * 40], {"key_fingerprint": "A" * 40}),
    "key with another checksum": Case(["checksum", "0" * 64], {"key_checksum": f"sha256:{'0' * 64}"}),
    "GPU too old for the branch": Case(["V100", "595", "580"], {"branch": "595"}, f"made-up-devices {V100}"),
    "open module on Volta": Case(["V100", "open", "proprietary"], {"kernel_module": "open"}, f"made-up-devices {V100}"),
    "proprietary module on Blackwell": Case(
        ["B200", "proprietary", "open"], {"kernel_module": "proprietary"}, f"made-up-devices {B200}"
    ),
    "proprietary module that is gone": Case(
        ["620", "proprietary", "595"], {"kernel_module": "proprietary", "branch": "620"}
    ),
    "GPUs that no driver has in common": Case(["V100", "B200"], {}, f"made-up-devices {V100} {B200}"),
    "several at once": Case(
        [
            "Secure Boot",
            "nvidia_driver_secure_boot",
            "container",
            "nvidia_driver_kernel",
            "/usr/bin/nvidia-uninstall",
            "nvidia-utils-570 570.211.01",
            "libnvidia-compute-570 570.211.01",
            "http://mirror/ppa",
        ],
        {"kernel": "running"},
        f"mkdir -p {EFI}; printf '\\006\\000\\000\\000\\001' > {SECURE_BOOT}; "
        "printf '#!/bin/sh\\n' > /usr/bin/nvidia-uninstall; chmod +x /usr/bin/nvidia-uninstall; "
        "echo 'deb [trusted=yes] http://mirror/ppa /' > /etc/apt/sources.list.d/ppa.list; "
        f"apt-get {APT_ONLY_PPA} update > /dev/null; apt-get install --yes nvidia-utils-570 > /dev/null",
        f"rm -r {ROOT}/sys/firmware; rm /usr/bin/nvidia-uninstall; "
        "apt-get purge --yes '*nvidia*570' > /dev/null; rm /etc/apt/sources.list.d/ppa.list",
    ),
    "/boot and /var full": Case(
        ["/boot has", "/var has", "MiB"],
        {},
        "mount -t tmpfs -o size=42m tmpfs /boot; "
        "dd if=/dev/zero of=/boot/initrd.img-6.1.0-1-amd64 bs=1M count=40 status=none; "
        "mkdir /mnt/var; mount -t tmpfs -o size=$(($(du -sm /var | cut -f1) + 12))m tmpfs /mnt/var; "
        "cp -a /var/. /mnt/var; mount --bind /mnt/var /var",
        "umount /boot; umount /var; umount /mnt/var; rmdir /mnt/var",
    ),
    "fabric manager of another version": Case(
        ["615.71.09", "615.71.05", "nvidia-fabricmanager"], {"branch": "615"}, f"made-up-devices {H100} {NVSWITCH}"
    ),
    "no GPU": Case(["no NVIDIA GPU"], {"kernel": "running"}, "made-up-devices"),
}


@pytest.fixture(scope="module")
def said() -> dict[str, dict[str, Any]]:
    """What the role said in each case; filled by the first test that asks."""
    return {}


def run(play: Callable[..., CompletedProcess[str]]) -> dict[str, dict[str, Any]]:
    """Run all cases in one playbook."""
    cases = [{"name": name, **asdict(case)} for name, case in CASES.items()]
    done = play(PLAYBOOK, "--extra-vars", json.dumps({"target": HOST, "molecule_cases": cases}))
    assert done.returncode == 0, " ".join((done.stdout + done.stderr)[-6000:].split())
    answers: dict[str, dict[str, Any]] = json.loads((EPHEMERAL / f"said-{HOST}.json").read_text(encoding="utf-8"))
    return answers


@pytest.mark.parametrize("name", CASES)
def test_refusal(name: str, said: dict[str, dict[str, Any]], play: Callable[..., CompletedProcess[str]]) -> None:
    if not said:
        said.update(run(play))
    message = said[name]["message"]
    assert message, "was not refused"
    assert [words for words in CASES[name].says if words not in message] == [], message
    assert said[name]["changes"] == []
