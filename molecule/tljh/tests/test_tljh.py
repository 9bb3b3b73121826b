# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users of the hub have: a login, a server with a GPU of its own, notebooks, data, kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://all"]

UNITS = ["jupyterhub", "traefik", "jupyter-anna"]
Ask = Callable[..., Any]
DEVICES = """
import glob, os
for path in sorted(glob.glob('/dev/nvidia[0-9]')):
    try:
        os.open(path, os.O_RDWR)
    except OSError as error:
        print(path, error.strerror)
"""


@pytest.fixture(scope="module")
def anna(host: Host) -> Iterator[None]:
    """A user with a server."""
    script = "timeout 200 /opt/tljh/hub/bin/python /srv/tests/hub.py"
    host.run_expect([0], f"{script} start anna 1")
    yield
    host.run_expect([0], f"{script} remove anna")


def test_the_hub_answers_and_starts_at_boot(host: Host) -> None:
    ask = 'import urllib.request as r; print(r.urlopen("http://127.0.0.1/hub/api").status)'
    assert host.check_output(f"python3 -c '{ask}'") == "200"
    for name in ("jupyterhub", "traefik"):
        assert host.service(name).is_running
        assert host.service(name).is_enabled


def test_an_admin_logs_in_with_a_password_with_a_colon(hub: Ask) -> None:
    assert hub("login", "ada", "engine: no. 1")["url"].endswith("/hub/home")
    assert hub("login", "ada", "engine")["status"] == 403


def test_admins_are_not_given_other_passwords(host: Host) -> None:
    config = host.file("/opt/tljh/config/config.yaml")
    assert config.mode & 0o077 == 0
    assert "engine" not in config.content_string
    assert "engine" not in host.check_output("cat /opt/tljh/cudahub/hub.json /opt/tljh/installer.log")


def test_the_proof_leaves_nothing(host: Host, hub: Ask) -> None:
    assert not host.user("jupyter-cudahub-check").exists
    assert not host.file("/home/jupyter-cudahub-check").exists
    assert "cudahub-check" not in host.check_output("systemctl list-units --all --plain")


@pytest.mark.usefixtures("anna")
def test_a_server_has_its_gpu_and_no_other(hub: Ask) -> None:
    lines = hub("cell", "anna", DEVICES).strip().splitlines()
    assert [line.split(" ", 1)[1] for line in lines].count("Operation not permitted") == 3, lines
    assert [line.split(" ", 1)[1] for line in lines].count("No such device or address") == 1, lines
    nvml = (
        "from pynvml import *; nvmlInit(); count = nvmlDeviceGetCount();"
        "print([nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(i)) for i in range(count)])"
    )
    mine = hub("cell", "anna", "import os; print([os.environ['CUDA_VISIBLE_DEVICES']])")
    assert hub("cell", "anna", nvml) == mine


@pytest.mark.usefixtures("anna")
def test_notebooks_and_terminals_find_the_same(hub: Ask) -> None:
    names = ("CUDA_HOME", "LD_LIBRARY_PATH")
    cell = hub(
        "cell", "anna", f"import os, shutil; print(*map(os.environ.get, {names}), shutil.which('python'))"
    ).split()
    assert cell == ["/srv/cuda", "/srv/cuda/lib64", "/opt/tljh/user/bin/python"]
    assert hub("terminal", "anna", "echo $CUDA_HOME $LD_LIBRARY_PATH $(command -v python)").split() == cell
    assert "/srv/cuda/bin" in hub("terminal", "anna", "echo $PATH")
    assert "/srv/cuda/bin" in hub("cell", "anna", "import os; print(os.environ['PATH'])")


@pytest.mark.usefixtures("anna")
def test_notebooks_come_once_and_data_can_not_be_written(host: Host, hub: Ask) -> None:
    home = "/home/jupyter-anna"
    assert host.file(f"{home}/hello.ipynb").user == "jupyter-anna"
    assert host.file(f"{home}/part1/more.ipynb").exists
    assert host.file(f"{home}/data").linked_to == "/srv/data"
    assert "Read-only" in hub("terminal", "anna", "touch ~/data/mine")
    host.run_expect([0], f"echo mine >{home}/hello.ipynb && rm {home}/part1/more.ipynb")
    hub("stop", "anna")
    hub("start", "anna")
    assert host.file(f"{home}/hello.ipynb").content_string == "mine\n"
    assert not host.file(f"{home}/part1/more.ipynb").exists


@pytest.mark.usefixtures("anna")
def test_limits_are_those_of_the_server(host: Host) -> None:
    shown = host.check_output("systemctl show jupyter-anna -p MemoryMax -p CPUQuotaPerSecUSec").split()
    assert set(shown) == {"MemoryMax=1073741824", "CPUQuotaPerSecUSec=2s"}


def test_packages_and_kernels_have_names_that_people_understand(host: Host) -> None:
    host.run_expect([0], "/opt/tljh/user/bin/python -c 'import pynvml, jupyterlab'")
    assert host.file("/opt/tljh/user/conda-meta/cuda-version-12.9-h4f385c5_3.json").exists
    kernel = json.loads(host.file("/opt/tljh/user/share/jupyter/kernels/course/kernel.json").content_string)
    assert kernel["display_name"] == "Data science with CuPy"
    assert host.check_output(f"{kernel['argv'][0]} -c 'import sys; print(sys.prefix)'").startswith(
        "/opt/tljh/environments/course"
    )
    assert "cupy" in host.check_output(f"ls {kernel['env']['CONDA_PREFIX']}/conda-meta")


def test_servers_are_not_culled_after_ten_minutes(host: Host) -> None:
    command = host.check_output("systemctl status jupyterhub --no-pager -l | cat; pgrep -af idle_culler")
    assert "--timeout=86400" in command


def test_the_secret_of_the_proof_is_a_secret(host: Host) -> None:
    assert host.file("/opt/tljh/cudahub/token").mode == 0o600
    assert host.file("/opt/tljh/state/passwords.dbm").exists or host.file("/opt/tljh/state/passwords.dbm.db").exists
