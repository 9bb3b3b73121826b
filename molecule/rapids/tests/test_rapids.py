# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users of a host have after the role: an environment that fits the GPUs, the same on all hosts, in Jupyter."""

from __future__ import annotations

import json
import os
from pathlib import Path

import testinfra
from testinfra.host import Host

testinfra_hosts = ["ansible://all"]

INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
PREFIX = "/opt/cudahub/rapids"


def packages(host: Host) -> dict[str, str]:
    """Return the packages of the environment, with version and build."""
    names = host.check_output(f"cd {PREFIX}/conda-meta && ls *.json").split()
    parts = [name.removesuffix(".json").rsplit("-", 2) for name in names]
    return {name: f"{version} {build}" for name, version, build in parts}


def test_packages_fit_the_gpus_and_the_driver(host: Host) -> None:
    found = packages(host)
    assert found["cudf"] == "26.10.00 cuda12_0"
    assert found["cupy"] == "14.2.0 cuda12_0"
    assert {"dask-cudf", "dask-cuda", "ipykernel", "python"} <= found.keys()
    assert "rapids" not in found


def test_python_of_the_environment_has_cupy(host: Host) -> None:
    command = f"cd / && env -i {PREFIX}/bin/python -c 'import sys, cupy; print(sys.prefix, cupy.__file__)'"
    prefix, module = host.check_output(command).split()
    assert prefix.startswith(PREFIX)
    assert module.startswith(prefix)


def test_the_environment_is_a_link_to_a_complete_one(host: Host) -> None:
    assert host.file(PREFIX).linked_to.startswith(f"{PREFIX}.d/")
    assert host.check_output(f"ls {PREFIX}.d | wc -l") == "1"


def test_users_can_read_all_of_it(host: Host) -> None:
    assert host.check_output(f"find -L {PREFIX}/ ! -perm -o=r | head -1") == ""
    host.run_expect([0], f"runuser -u nobody -- {PREFIX}/bin/python -c 'import cupy'")


def test_jupyter_has_a_kernel(host: Host) -> None:
    kernel = json.loads(host.file("/usr/local/share/jupyter/kernels/rapids/kernel.json").content_string)
    assert kernel["argv"][0] == f"{PREFIX}/bin/python"
    assert kernel["argv"][1:] == ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert kernel["display_name"] == "RAPIDS 26.10 (CUDA 12)"
    assert kernel["env"]["CONDA_PREFIX"] == PREFIX
    assert kernel["env"]["PATH"].startswith(f"{PREFIX}/bin:")


def test_miniforge_is_complete(host: Host) -> None:
    assert host.check_output("/opt/cudahub/conda/bin/conda --version").startswith("conda 2")
    assert not host.file("/opt/cudahub/conda.cudahub-begun").exists


def test_the_log_tells_what_was_done(host: Host) -> None:
    log = host.file("/var/log/cudahub/rapids.log").content_string
    assert "Building a new environment in /opt/cudahub/rapids.d/1" in log
    assert "Linked" in log


def test_hosts_have_the_same_packages_byte_for_byte(host: Host) -> None:
    """Files that conda compiles or writes about its own work are left out."""
    found = "find . -type f ! -name '*.pyc' ! -path './conda-meta/*' -print0"
    command = f"cd -P {PREFIX} && {found} | sort -z | xargs -0 sha256sum"
    other = testinfra.get_host("ansible://lead", ansible_inventory=str(INVENTORY))
    assert host.check_output(command) == other.check_output(command)
    assert packages(host) == packages(other)
