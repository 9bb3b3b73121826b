# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role's own environment, with the real CuPy on a host without a driver.

The CUDA libraries, which are 1.2 GB, are left out of what is installed: CuPy misses the driver first.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://h200"]

ROLE = Path(__file__).parents[1] / "role.yml"
REQUIREMENTS = Path(__file__).parents[3] / "roles" / "gpu_verify" / "files" / "requirements-cuda13.0.txt"
VENV = "/opt/cudahub/verify"
Play = Callable[..., CompletedProcess[str]]


def said(done: CompletedProcess[str]) -> str:
    """Return everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the role's requirements without the CUDA libraries."""
    entries = re.findall(r"^(?:cupy|cuda-pathfinder|numpy).*(?:\n .*)*", REQUIREMENTS.read_text(), re.MULTILINE)
    path = tmp_path_factory.mktemp("requirements") / "requirements.txt"
    path.write_text("\n".join(entries) + "\n")
    return path


@pytest.fixture
def apply(play: Play, requirements: Path) -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs the role on simulated GPUs as if they were real ones."""

    def run(*arguments: str, **variables: object) -> CompletedProcess[str]:
        given = {"gpu_verify_simulated": "run", "gpu_verify_requirements": str(requirements), **variables}
        return play(ROLE, "-e", json.dumps(given), *arguments, ANSIBLE_FORCE_COLOR="false")

    return run


@pytest.fixture
def built(apply: Callable[..., CompletedProcess[str]], host: Host) -> str:
    """Have the environment, and return its directory."""
    if not host.file(f"{VENV}/complete").exists:
        assert "[driver_unusable]" in said(apply())
    directory: str = host.file(VENV).linked_to
    return directory


def changes(done: CompletedProcess[str]) -> int:
    """Return how many tasks changed something."""
    found = re.search(r"h200 .*changed=(\d+)", done.stdout)
    assert found, said(done)
    return int(found.group(1))


def test_real_cupy_misses_the_driver(
    apply: Callable[..., CompletedProcess[str]], host: Host, gone: Callable[[Host, str], None]
) -> None:
    done = apply()
    assert done.returncode == 2, said(done)
    assert "GPUs: 4 failed, in " in said(done)
    assert "[driver_unusable] GPU " in said(done)
    assert "the driver's libcuda.so.1 isn't there" in said(done)
    assert re.fullmatch(rf"{VENV}-[0-9a-f]{{12}}", host.file(VENV).linked_to)
    assert host.check_output(f"{VENV}/bin/python -c 'import cupy; print(cupy.__version__)'") == "14.2.0"
    gone(host, "^Z")


def test_second_run_changes_nothing(apply: Callable[..., CompletedProcess[str]], built: str) -> None:
    assert changes(apply()) == 0


@pytest.fixture(scope="module")
def wheels(host: Host) -> str:
    """Return a directory on the host with all wheels; pip refuses those of another hash."""
    command = "-m pip download --quiet --no-deps --require-hashes --dest /opt/wheels"
    host.run_expect([0], f"{VENV}/bin/python {command} --requirement {VENV}/requirements.txt")
    return "/opt/wheels"


@pytest.mark.long
def test_a_new_environment_takes_the_place_of_the_old_without_network(
    apply: Callable[..., CompletedProcess[str]], host: Host, built: str, requirements: Path, wheels: str
) -> None:
    requirements.write_text(f"{requirements.read_text()}# {uuid.uuid4()}\n")
    done = apply(gpu_verify_wheels=wheels, gpu_verify_pip_index_url="https://127.0.0.1:9/simple")
    assert "[driver_unusable]" in said(done)
    assert host.file(VENV).linked_to != built
    assert host.check_output(f"ls -d {VENV}-*") == host.file(VENV).linked_to
    host.run_expect([0], f"{VENV}/bin/python -c 'import cupy'")


@pytest.mark.long
def test_an_interrupted_installation_is_made_good(
    apply: Callable[..., CompletedProcess[str]], host: Host, built: str, wheels: str
) -> None:
    host.run_expect([0], f"rm {VENV}/complete; rm -r {VENV}/lib/python3*/site-packages/cupy")
    assert changes(apply(gpu_verify_wheels=wheels)) > 0
    host.run_expect([0], f"{VENV}/bin/python -c 'import cupy'")


@pytest.mark.long
def test_what_fails_to_install_leaves_the_old_one(
    apply: Callable[..., CompletedProcess[str]],
    host: Host,
    built: str,
    requirements: Path,
    wheels: str,
    tmp_path: Path,
) -> None:
    forged = tmp_path / "requirements.txt"
    forged.write_text(re.sub("sha256:....", "sha256:0000", requirements.read_text()))
    done = apply(gpu_verify_requirements=str(forged), gpu_verify_wheels=wheels)
    assert done.returncode == 2
    assert "pip could not install CuPy on h200: THESE PACKAGES DO NOT MATCH THE HASHES" in said(done)
    assert host.file(VENV).linked_to == built
    host.run_expect([0], f"{VENV}/bin/python -c 'import cupy'")


def test_a_host_without_network(apply: Callable[..., CompletedProcess[str]], host: Host) -> None:
    index = "https://me:made-up@127.0.0.1:9/simple"
    done = apply("-vvv", gpu_verify_venv="/opt/none/verify", gpu_verify_pip_index_url=index)
    assert done.returncode == 2
    assert "made-up" not in said(done)
    assert "pip could not install CuPy on h200: " in said(done)
    assert "Without network, set gpu_verify_pip_index_url to a mirror" in said(done)
    assert not host.file("/opt/none/verify").exists


@pytest.mark.parametrize(
    ("trouble", "returncode", "words"),
    [
        ({2: "hang_with_child"}, 2, "GPUs: 1 failed, 3 simulated, in "),
        ({1: "segfault", 3: "wrong_sum"}, 2, "was ended by SIGSEGV in step 'compile'"),
    ],
)
def test_workers_run_side_by_side(
    play: Play,
    host: Host,
    built: str,
    gone: Callable[[Host, str], None],
    trouble: dict[int, str],
    returncode: int,
    words: str,
) -> None:
    done = play(ROLE.with_name("standin.yml"), "-e", json.dumps({"trouble": trouble}))
    assert done.returncode == returncode, said(done)
    assert words in said(done)
    gone(host, "^Z|sleep 600")


@pytest.mark.parametrize(
    ("level", "trouble", "returncode", "words"),
    [
        ("thorough", {}, 0, "GPUs: 4 simulated, in "),
        ("standard", {2: "flipped_word"}, 2, "its memory holds 1 wrong words of "),
        pytest.param(
            "standard", {0: "slow_copy"}, 2, "% of the peak of 4814.3 GB/s, less than 50%", marks=pytest.mark.long
        ),
        pytest.param(
            "standard", {3: "wrong_peer"}, 2, " has 1 wrong words: word 0x3 at address ", marks=pytest.mark.long
        ),
        pytest.param("standard", {3: "no_nccl"}, 0, "GPUs: 4 simulated, in ", marks=pytest.mark.long),
    ],
)
def test_workers_go_deeper(
    play: Play,
    host: Host,
    built: str,
    gone: Callable[[Host, str], None],
    level: str,
    trouble: dict[int, str],
    returncode: int,
    words: str,
) -> None:
    done = play(ROLE.with_name("standin.yml"), "-e", json.dumps({"trouble": trouble, "level": level}))
    assert done.returncode == returncode, said(done)
    assert words in said(done)
    gone(host, "^Z|sleep 600")
