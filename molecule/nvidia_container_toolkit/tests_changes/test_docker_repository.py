# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker from Docker's repository (tests/standin/docker_repository): what fails leaves the host as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://node"]
UNITS = ["mirror"]

ROLE = Path(__file__).parents[1] / "role.yml"
URL = "http://127.0.0.1:8099"
RELEASE = "/srv/toolkit/repos/debian/dists/trixie"
Bring = Callable[..., str]


@pytest.fixture(scope="module")
def fingerprint(host: Host) -> str:
    """Have the repository, and return what its key is known by."""
    host.check_output("test -e /srv/toolkit/docker-fingerprint || python3 /opt/docker_repository/build.py /srv/toolkit")
    return host.file("/srv/toolkit/docker-fingerprint").content_string.strip()


@pytest.fixture
def bring(host: Host, play: Callable[..., CompletedProcess[str]], fingerprint: str) -> Bring:
    """Return a function that has the role bring Docker, which fails, and gives what was said, on one line."""

    def run(known: str = fingerprint, url: str = URL) -> str:
        variables = {
            "nvidia_container_toolkit_engines": ["docker"],
            "nvidia_container_toolkit_docker_source": "docker",
            "nvidia_container_toolkit_docker_repository_url": url,
            "_nvidia_container_toolkit_docker_repository": {
                "path": "debian", "suite": "trixie", "key": "gpg", "fingerprint": known,
            },
        }  # fmt: skip
        before = host.check_output("ls /etc/apt/sources.list.d /etc/apt/keyrings")
        done = play(ROLE, "--limit", "node", "--extra-vars", json.dumps(variables))
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 2, said
        assert host.check_output("ls /etc/apt/sources.list.d /etc/apt/keyrings") == before
        assert host.run("command -v dockerd").rc != 0
        return said

    return run


@pytest.mark.long
def test_an_entry_of_the_users_own(bring: Bring, host: Host) -> None:
    path = "/etc/apt/sources.list.d/docker.list"
    host.check_output(f"echo 'deb [signed-by=/usr/share/keyrings/docker.asc] {URL}/debian trixie stable' > {path}")
    try:
        said = bring()
    finally:
        host.check_output(f"rm {path}")
    assert f"node has entries for Docker's repository in {path}, and two of them" in said


@pytest.mark.long
def test_another_key(bring: Bring) -> None:
    known = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
    said = bring(known)
    assert (
        f"The key {URL}/debian/gpg was not brought to node, where nothing was added: it is not the key {known}" in said
    )


@pytest.mark.long
def test_a_mirror_that_is_away(bring: Bring) -> None:
    said = bring(url="http://127.0.0.1:8098")
    assert "The key http://127.0.0.1:8098/debian/gpg was not brought to node, where nothing was added: Status" in said


@pytest.mark.long
def test_an_index_that_was_tampered_with(bring: Bring, host: Host) -> None:
    """With the entry left behind, apt would warn of it ever after."""
    host.check_output(
        f"cp {RELEASE}/InRelease /srv/kept && sed -i 's/^Origin: Docker/Origin: Other/' {RELEASE}/InRelease"
    )
    try:
        said = bring()
    finally:
        host.check_output(f"mv /srv/kept {RELEASE}/InRelease")
    assert f"Docker was not installed on node from {URL}: " in said
    assert f"signature verification failed: {URL}/debian trixie InRelease" in said


@pytest.mark.long
def test_packages_that_are_not_there(bring: Bring, host: Host) -> None:
    host.check_output(f"mv {RELEASE}/pool /srv/pool")
    try:
        said = bring()
    finally:
        host.check_output(f"mv /srv/pool {RELEASE}/pool")
    assert f"Docker was not installed on node from {URL}: E: Failed to fetch {URL}/debian/dists/trixie/pool/" in said
