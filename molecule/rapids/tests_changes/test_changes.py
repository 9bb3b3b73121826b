# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused, with the GPU or the driver that is in the way, and what changes leave users."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://lead"]

ROLE = Path(__file__).parents[1] / "role.yml"
LOCK = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "rapids.lock"
PREFIX = "/opt/cudahub/rapids"
Play = Callable[..., CompletedProcess[str]]
HASHES = {
    "six": "sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274",
    "toolz": "sha256:292c8f1c4e7516bf9086f8850935c799a874039c8bcf959d47b600e4c44a6236",
}


def said(done: CompletedProcess[str]) -> str:
    """Return everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def apply(play: Play) -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs the role with variables."""

    def run(*arguments: str, **variables: object) -> CompletedProcess[str]:
        return play(ROLE, "-e", json.dumps(variables), *arguments)

    return run


PASCAL = {"gpus": [{"name": "Tesla P100-PCIE-16GB", "compute_capability": "6.0", "architecture": "Pascal",
                    "index": 0, "pci_bus_id": "00000000:05:00.0", "uuid": "GPU-p100"}]}  # fmt: skip
OLD_DRIVER = {"driver": {"version": "535.288.01", "cuda_version": "12.2"}}
REFUSALS = [
    ({"pretend": PASCAL, "rapids_lock": ""}, "P100"),
    ({"target": "second", "rapids_cuda": "13", "rapids_lock": ""}, "V100"),
    ({"pretend": OLD_DRIVER, "rapids_cuda": "13", "rapids_lock": ""}, "535"),
    ({"rapids_release": 26}, "rapids_release is '26': give a release such as \"26.10\""),
    ({"rapids_prefix": "/opt"}, "rapids_prefix is '/opt'"),
    ({"rapids_packages": []}, "rapids_packages has to be a list of specs of packages"),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "sentence"), REFUSALS, ids=lambda value: value if isinstance(value, str) else "")
def test_refusals_come_before_any_change(
    apply: Callable[..., CompletedProcess[str]], host: Host, variables: dict[str, object], sentence: str
) -> None:
    before = host.check_output(f"ls -lR --time-style=full-iso /opt/cudahub/rapids.d | md5sum; readlink {PREFIX}")
    done = apply(**variables)
    assert done.returncode == 2, said(done)
    assert sentence in said(done)
    assert "changed=0" in said(done)
    assert (
        host.check_output(f"ls -lR --time-style=full-iso /opt/cudahub/rapids.d | md5sum; readlink {PREFIX}") == before
    )


def test_a_lock_that_a_gpu_can_not_use(apply: Callable[..., CompletedProcess[str]]) -> None:
    before = LOCK.read_text()
    try:
        LOCK.write_text(before.replace("cuda-version-12.9", "cuda-version-13.0"))
        done = apply(target="second")
    finally:
        LOCK.write_text(before)
    assert done.returncode == 2, said(done)
    assert "V100" in said(done)
    assert "changed=0" in said(done)


def test_the_environment_computes_on_every_gpu(apply: Callable[..., CompletedProcess[str]]) -> None:
    done = apply(entry="verify", gpu_verify_simulated="run")
    assert done.returncode == 0, said(done)
    assert "proven: context arange_sum compile matmul matmul_rate tips_groupby" in said(done)
    assert "changed=0" in said(done)
    done = apply(entry="verify", gpu_verify_simulated="run", trouble="wrong_groupby")
    assert done.returncode == 2, said(done)
    assert "[wrong_result]" in said(done)


def test_what_fails_leaves_users_what_they_had(apply: Callable[..., CompletedProcess[str]], host: Host) -> None:
    before = host.file(PREFIX).linked_to
    done = apply(rapids_packages=["cudf", "nosuchpackage"], rapids_lock="")
    assert done.returncode == 2, said(done)
    assert "nosuchpackage" in said(done)
    assert host.file(PREFIX).linked_to == before
    host.run_expect([0], f"{PREFIX}/bin/python -c 'import cupy'")


def test_a_change_is_a_new_environment(apply: Callable[..., CompletedProcess[str]], host: Host) -> None:
    before = host.file(PREFIX).linked_to
    done = apply(rapids_packages=["cudf"], rapids_kernel=False, rapids_lock="")
    assert done.returncode == 0, said(done)
    assert host.file(PREFIX).linked_to != before
    assert host.file(f"{before}/bin/python").exists, "programs that run lose what they run in"
    assert not host.file("/usr/local/share/jupyter/kernels/rapids").exists
    # CUDA 13 for the GPUs of this host, no longer what the other host needs as well.
    names = host.check_output(f"cd {PREFIX}/conda-meta && ls *.json").split()
    assert "cudf-26.10.00-cuda13_0.json" in names
    assert not [name for name in names if name.startswith(("dask", "ipykernel"))]
    done = apply()
    assert done.returncode == 0, said(done)
    assert "cudf-26.10.00-cuda12_0.json" in host.check_output(f"ls {PREFIX}/conda-meta")
    assert host.file("/usr/local/share/jupyter/kernels/rapids/kernel.json").exists


def test_check_mode_shows_packages(apply: Callable[..., CompletedProcess[str]], host: Host) -> None:
    before = host.file(PREFIX).linked_to
    done = apply("--check", "--diff", rapids_packages=["cudf"], rapids_full=True, rapids_lock="")
    assert done.returncode == 0, said(done)
    assert "-cudf 26.10.00 cuda12_0" in done.stdout
    assert "+cudf 26.10.00 cuda13_0" in done.stdout
    assert "+rapids 26.10.00 cuda13_0" in done.stdout
    assert host.file(PREFIX).linked_to == before


def test_an_interrupted_installation_of_miniforge(apply: Callable[..., CompletedProcess[str]], host: Host) -> None:
    host.run_expect([0], "mkdir /opt/cudahub/conda.cudahub-begun && rm -r /opt/cudahub/conda/bin")
    done = apply()
    assert done.returncode == 0, said(done)
    host.run_expect([0], "/opt/cudahub/conda/bin/conda --version")
    assert not host.file("/opt/cudahub/conda.cudahub-begun").exists
    assert "changed=0" in said(apply())


def test_the_littlest_jupyterhub_shows_the_kernel(apply: Callable[..., CompletedProcess[str]], host: Host) -> None:
    host.run_expect([0], "mkdir -p /opt/tljh/user")
    try:
        done = apply(rapids_kernel_name="hub", rapids_kernel_display_name="GPU")
        assert done.returncode == 0, said(done)
        kernel = json.loads(host.file("/opt/tljh/user/share/jupyter/kernels/hub/kernel.json").content_string)
    finally:
        host.run_expect([0], "rm -r /opt/tljh")
    assert kernel["display_name"] == "GPU"
    assert not host.file("/usr/local/share/jupyter/kernels/hub").exists


def test_another_checksum_is_refused(apply: Callable[..., CompletedProcess[str]], host: Host) -> None:
    done = apply(
        rapids_miniforge_prefix="/opt/other",
        rapids_miniforge_checksum=f"sha256:{'0' * 64}",
        rapids_prefix="/opt/cudahub/another",
    )
    assert done.returncode == 2, said(done)
    assert "did not match" in said(done)
    assert not host.file("/opt/other").exists


def test_a_disk_that_gets_full(play: Play) -> None:
    done = play(ROLE.with_name("small_disk.yml"))
    assert done.returncode == 0, said(done)
    assert "kind disk, left /mnt/small/env/conda-meta/cuda-version-12.8-h4f385c5_3.json: " in said(done)


@pytest.mark.long
def test_wheels_without_conda(apply: Callable[..., CompletedProcess[str]], host: Host, tmp_path: Path) -> None:
    """With a small list of wheels: RAPIDS's own takes 2 GB."""
    names = {"six": "1.17.0", "toolz": "1.0.0"}
    lines = [f"{name}=={version} --hash={HASHES[name]}" for name, version in names.items()]
    (tmp_path / "requirements.txt").write_text("\n".join(lines) + "\n")
    options = {
        "rapids_method": "pip",
        "rapids_prefix": "/opt/cudahub/wheels",
        "rapids_lock": "",
        "rapids_kernel_name": "wheels",
        "rapids_pip_requirements": str(tmp_path / "requirements.txt"),
        "rapids_cuda_verify": False,
    }
    done = apply(**options)
    assert done.returncode == 0, said(done)
    assert host.check_output("/opt/cudahub/wheels/bin/python -c 'import six; print(six.__version__)'") == "1.17.0"
    kernel = json.loads(host.file("/usr/local/share/jupyter/kernels/wheels/kernel.json").content_string)
    assert kernel["argv"][0] == "/opt/cudahub/wheels/bin/python"
    assert "changed=0" in said(apply(**options))
    (tmp_path / "requirements.txt").write_text(lines[0].replace("sha256:", "sha256:0000") + "\n")
    done = apply(**options)
    assert done.returncode == 2, said(done)
    assert "pip could not install RAPIDS on lead" in said(done)
    host.run_expect([0], "/opt/cudahub/wheels/bin/python -c 'import six'")
    done = apply(**{**options, "entry": "absent"})
    assert done.returncode == 0, said(done)
    assert host.check_output("ls /opt/cudahub | grep wheels | cat") == ""
    assert not host.file("/usr/local/share/jupyter/kernels/wheels").exists
    assert host.file(PREFIX).exists
