# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image is there, computes, says that it sees no GPU, and comes back from the registry."""

from __future__ import annotations

import json
import time

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://builder"]

UNITS = ["docker", "docker-registry"]
IMAGE = "127.0.0.1:5000/team/small:v1"
LINE = (
    "No GPU is visible in this container: run it with --gpus all, or --device nvidia.com/gpu=all, "
    "on a host with a driver.\n"
)


def inspect(host: Host) -> dict[str, object]:
    """Return what Docker says of the image."""
    found: dict[str, object] = json.loads(host.check_output(f"docker image inspect {IMAGE}"))[0]
    return found


def test_it_is_named_by_what_is_in_it(host: Host) -> None:
    found = inspect(host)
    config = found["Config"]
    assert isinstance(config, dict)
    digest = config["Labels"]["org.cudahub.digest"]
    assert sorted(found["RepoTags"]) == sorted([f"127.0.0.1:5000/team/small:{digest[:12]}", IMAGE])  # type: ignore[call-overload]
    assert config["Labels"]["org.example.course"] == "2026"
    assert config["Labels"]["org.opencontainers.image.base.name"] == "python-standin:13"
    assert config["User"] == "1000:1000"
    assert config["Healthcheck"]["Test"][0] == "CMD"


def test_it_says_once_that_it_sees_no_gpu_and_goes_on(host: Host) -> None:
    done = host.run(f"docker run --rm {IMAGE}")
    assert (done.rc, done.stdout, done.stderr) == (0, "six 1.17.0\n", LINE)


def test_it_can_be_told_to_need_one(host: Host) -> None:
    done = host.run(f"docker run --rm --env CUDAHUB_REQUIRE_GPU=1 {IMAGE}")
    assert (done.rc, done.stdout, done.stderr) == (1, "", LINE)


def test_the_command_is_stopped_at_once_and_its_status_is_kept(host: Host) -> None:
    """Process 1 gets no signal that it has no handler for, and docker would kill it after ten seconds."""
    host.check_output(f"docker run --detach --name stopped {IMAGE} sh -c 'echo ready; exec sleep 600'")
    try:
        # Python has to start before there is somebody who takes signals.
        for _attempt in range(300):
            if "ready" in host.check_output("docker logs stopped"):
                break
            time.sleep(0.1)
        host.check_output("docker stop --time 60 stopped")
        assert host.check_output("docker inspect --format '{{.State.ExitCode}}' stopped") == "143"
    finally:
        host.check_output("docker rm --force stopped")
    assert host.run(f"docker run --rm {IMAGE} sh -c 'exit 7'").rc == 7
    assert host.run(f"docker run --rm --init {IMAGE} sh -c 'exit 7'").rc == 7
    assert host.run(f"docker run --rm {IMAGE} nosuch").rc == 127


@pytest.mark.parametrize("options", ["--user 12345", "--read-only", "--user 12345 --read-only"])
def test_any_user_and_a_file_system_that_is_read_only(host: Host, options: str) -> None:
    program = "import getpass, pathlib; (pathlib.Path.home() / 'x').write_text('x'); print(getpass.getuser())"
    done = host.run(f'docker run --rm {options} {IMAGE} python -c "{program}"')
    assert (done.rc, done.stdout, done.stderr) == (0, "user\n", LINE)


def test_a_command_takes_the_place_of_the_usual_one(host: Host) -> None:
    words = host.check_output(
        f"docker run --rm --env JUPYTER_TOKEN= {IMAGE} sh -c 'id -u; pwd; echo ${{JUPYTER_TOKEN-none}}; touch x'"
    )
    assert words.split() == ["1000", "/workspace", "none"]


def test_no_downloads_and_no_secrets_are_kept(host: Host) -> None:
    kept = host.run(f"docker run --rm --user 0 --entrypoint= {IMAGE} find /root/.cache /run/secrets /run/build -type f")
    assert kept.stdout == ""
    assert "Permission" not in kept.stderr


def test_credentials_are_nowhere(host: Host) -> None:
    assert host.check_output("find /run -maxdepth 1 -name 'cudahub-dl_images*'") == ""
    assert not host.file("/root/.docker/config.json").exists
    assert host.run("grep -r of-the-test /var/lib/cudahub /var/log/cudahub").rc == 1
    assert "of-the-test" not in host.check_output(f"docker history --no-trunc {IMAGE}")


def test_what_it_was_built_from_belongs_to_root(host: Host) -> None:
    made = host.check_output("find /var/lib/cudahub/dl_images -printf '%u:%m:%y\\n' | sort -u")
    assert made.split() == ["root:644:f", "root:755:d"]


def test_it_comes_back_from_the_registry(host: Host) -> None:
    found = inspect(host)
    names = found["RepoTags"]
    assert isinstance(names, list)
    host.check_output(f"docker image rm {' '.join(names)}")
    assert host.run(f"docker pull {IMAGE}").rc == 1, "the registry asks for no login"
    host.check_output("docker login --username pusher --password of-the-test 127.0.0.1:5000")
    try:
        for name in names:
            host.check_output(f"docker pull {name}")
    finally:
        host.check_output("docker logout 127.0.0.1:5000 && rm /root/.docker/config.json")
    assert inspect(host)["Id"] == found["Id"]
    assert host.run(f"docker run --rm {IMAGE}").stdout == "six 1.17.0\n"
