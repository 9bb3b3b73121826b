# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change is built, what is wrong is said in a sentence, and nothing that fails gets a name."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://builder"]

UNITS = ["docker", "docker-registry"]
ROLE = Path(__file__).parents[1] / "role.yml"
REPOSITORY = "127.0.0.1:5000/team/small"
SMALL = {"name": "small", "requirements": "small.txt", "entrypoint_checks": ["nvml"], "command": ["python3", "-V"]}
REGISTRY = {"url": "127.0.0.1:5000", "namespace": "team", "username": "pusher", "password": "of-the-test"}
Apply = Callable[..., CompletedProcess[str]]


@pytest.fixture
def apply(play: Callable[..., CompletedProcess[str]]) -> Apply:
    """Return a function that runs the role, with a description that differs from the usual one, and variables."""

    def run(change: dict[str, Any] | None = None, *arguments: str, **variables: object) -> CompletedProcess[str]:
        given = {**({} if change is None else {"dl_images_images": [{**SMALL, **change}]}), **variables}
        return play(ROLE, "-e", json.dumps(given), *arguments)

    return run


def said(done: CompletedProcess[str]) -> str:
    """Return everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


def images(host: Host) -> set[str]:
    """Return the images of the name, with their tags."""
    return set(host.check_output(f"docker images --format '{{{{.Tag}}}} {{{{.ID}}}}' {REPOSITORY}").splitlines())


def ids(host: Host) -> set[str]:
    """Return these images without their tags, some of which move to what is built."""
    return {one.split()[1] for one in images(host)}


REFUSALS = [
    ({"framework": "caffe"}, {}, "image small has framework 'caffe' which is unknown: give one of"),
    (None, {"dl_images_timeout": 0}, "dl_images_timeout is 0: give the seconds that the build of an image may take."),
    (None, {"dl_images_proxy": {"a b": "c"}}, "dl_images_proxy has a b: give names of variables, such as https_proxy."),
    ({"pip": ["six"], "ports": [0]}, {}, "image small has ports 0 which is no port from 1 to 65535."),
    (None, {"dl_images_images": []}, "dl_images_images is empty"),
    (None, {"dl_images_images": [{"framework": "jax"}]}, "name"),
    (
        {"uid": 3000},
        {"dl_images_registry": {**REGISTRY, "password": "made-up-word"}},
        "Registry 127.0.0.1:5000 does not take the user pusher with this password: correct dl_images_registry. Nothing",
    ),
    (
        {"uid": 3000},
        {"dl_images_registry": {**REGISTRY, "url": "127.0.0.1:5001"}},
        "builder does not reach registry 127.0.0.1:5001: correct dl_images_registry, or start it. Nothing was built.",
    ),
    (
        {"uid": 3000},
        {"dl_images_registry": {"url": "127.0.0.1:5000"}},
        "Registry 127.0.0.1:5000 wants a login: set username and password in dl_images_registry. Nothing was built.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "variables", "sentence"), REFUSALS)
def test_refusals_come_before_any_build(
    apply: Apply, host: Host, change: dict[str, Any] | None, variables: dict[str, Any], sentence: str
) -> None:
    before = images(host)
    done = apply(change, "-vvv", **variables)
    assert done.returncode == 2, said(done)
    assert sentence in said(done)
    assert "changed=0" in said(done)
    assert images(host) == before
    for word in ("made-up-word", "of-the-test"):
        assert word not in said(done)


def test_passwords_are_not_printed(apply: Apply, host: Host) -> None:
    """Ansible prints the variables that it gives a task, and what is different in a file."""
    done = apply(
        {"uid": 2010}, "-vvv", "--diff",
        dl_images_proxy={"https_proxy": "http://me:made-up-'proxy@127.0.0.1:9"},
        dl_images_pip_index_url="https://me:made-up-index@index.example.org/simple",
    )  # fmt: skip
    assert done.returncode == 2, said(done)
    assert "Image small could not be built, because a Python distribution can't be had" in said(done)
    assert "proxy" in host.check_output("cat /var/log/cudahub/dl_images-small-*.log"), "the builder has no proxy"
    for word in ("made-up", "of-the-test"):
        assert word not in said(done)
        assert host.run(f"grep -r {word} /var/log/cudahub /var/lib/cudahub /run/cudahub-dl_images*").stdout == ""


@pytest.mark.long
def test_a_registry_that_docker_takes_without_a_login(apply: Apply, host: Host) -> None:
    """By the host's name, Docker wants TLS of the same registry."""
    configuration = r"version: 0.1\nstorage: {filesystem: {rootdirectory: /srv/open}}\nhttp: {addr: ':5002'}\n"
    host.check_output(f'mkdir -p /srv/open && printf "{configuration}" > /srv/open.yml')
    host.check_output("systemd-run --unit open-registry docker-registry serve /srv/open.yml")
    host.check_output("timeout 120 sh -c 'until ss -ltn | grep --quiet :5002; do sleep 0.2; done'")
    try:
        plain = apply(dl_images_registry={"url": "builder:5002"})
        assert plain.returncode == 2, said(plain)
        assert "Registry builder:5002 speaks plain HTTP: give it a certificate, or name it in insecure" in said(plain)
        done = apply(dl_images_registry={"url": "127.0.0.1:5002"})
        assert done.returncode == 0, said(done)
        assert host.run("find /srv/open -path '*/small/_manifests/tags/v1'").stdout != ""
    finally:
        host.check_output(
            # By their names: other names of the same images stay.
            "systemctl stop open-registry; docker images --format '{{.Repository}}:{{.Tag}}' '127.0.0.1:5002/*'"
            " | xargs docker rmi"
        )


# Passes on what is sent to a registry, and is gone after so many bytes.
DYING = """
import os, socket, sys, threading
left = int(sys.argv[1])
def pump(source, target, counted):
    global left
    while chunk := source.recv(65536):
        left -= len(chunk) * counted
        if left < 0:
            os._exit(0)
        target.sendall(chunk)
    target.shutdown(socket.SHUT_WR)
server = socket.create_server(("127.0.0.1", 5003))
while True:
    ours, _ = server.accept()
    theirs = socket.create_connection(("127.0.0.1", 5000))
    for pair in ((ours, theirs, True), (theirs, ours, False)):
        threading.Thread(target=pump, args=pair).start()
"""


@pytest.mark.long
def test_a_registry_that_dies_while_it_is_pushed_to(apply: Apply, host: Host) -> None:
    """The image is kept, and the next run pushes it without a build."""

    def serve(size: int) -> None:
        program = base64.b64encode(DYING.encode()).decode()
        host.check_output(f"echo {program} | base64 -d > /srv/dying.py")
        host.check_output(f"systemd-run --collect --unit dying python3 /srv/dying.py {size}")
        host.check_output("timeout 120 sh -c 'until ss -ltn | grep --quiet :5003; do sleep 0.2; done'")

    there = {**REGISTRY, "url": "localhost:5003", "namespace": "dying"}
    serve(2_000_000)
    try:
        done = apply({"uid": 2009}, dl_images_registry=there)
        assert done.returncode == 2, said(done)
        assert "Registry localhost:5003 has not taken localhost:5003/dying/small:" in said(done)
        assert "see to the registry, and run the role again, which pushes what is built. Docker said:" in said(done)
        serve(3_000_000_000)
        done = apply({"uid": 2009}, dl_images_registry=there)
        assert done.returncode == 0, said(done)
        assert "Start the builds" not in said(done)
        assert host.run("find /var/lib/docker-registry -path '*/dying/small/_manifests/tags/*'").stdout != ""
    finally:
        host.run("systemctl stop dying")
        host.check_output(
            "docker images --format '{{.Repository}}:{{.Tag}}' 'localhost:5003/dying/*' | xargs docker rmi"
        )


def test_what_others_made_of_our_images_stays(apply: Apply, host: Host) -> None:
    """An image has the labels of its base, too."""
    host.check_output(f"printf 'FROM {REPOSITORY}:v1\nRUN true\n' | docker build --quiet --tag theirs:1 -")
    host.check_output(f"docker tag {REPOSITORY}:v1 theirs:2")
    done = apply({"labels": {"b": "1"}, "tag": "v1"}, dl_images_keep=1)
    assert done.returncode == 0, said(done)
    assert host.run("docker image inspect theirs:1 theirs:2").rc == 0
    assert len({one.split()[1] for one in images(host)}) == 1


def test_a_tag_of_somebody_else_is_not_taken(apply: Apply, host: Host) -> None:
    host.check_output(f"docker tag python-standin:13 {REPOSITORY}:theirs")
    try:
        before = images(host)
        done = apply({"tag": "theirs"})
        assert done.returncode == 2, said(done)
        assert f"builder has {REPOSITORY}:theirs, which this role has not built: give another name or tag" in said(done)
        assert images(host) == before
    finally:
        host.check_output(f"docker rmi {REPOSITORY}:theirs")


def test_of_two_one_fails_and_the_other_is_there(apply: Apply, host: Host) -> None:
    two = [{**SMALL, "name": "small/good"}, {**SMALL, "name": "small_good", "user": "daemon"}]
    done = apply(dl_images_images=two, dl_images_parallel=2)
    assert done.returncode == 2, said(done)
    assert (
        "Image small_good could not be built, because its base image has a user of that name: give another user. "
        "Docker said last: useradd: user 'daemon' already exists" in said(done)
    )
    assert "Image small/good" not in said(done)
    tags = host.check_output(f"docker images --format '{{{{.Tag}}}}' {REPOSITORY}/good").split()
    assert len(tags) == 1
    assert not tags[0].endswith("-unproven")


@pytest.mark.long
def test_jupyter_is_what_runs_and_wants_a_token(apply: Apply, host: Host) -> None:
    done = apply(dl_images_images=[{"name": "small/lab", "requirements": "lab.txt", "tag": "v1"}])
    assert done.returncode == 0, said(done)
    host.check_output(
        f"docker run --detach --name lab --read-only --user 12345 --env JUPYTER_TOKEN= {REPOSITORY}/lab:v1"
    )
    ask = "docker exec lab python -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8888/api{}').status)\""
    try:
        for _attempt in range(120):
            if host.run(ask.format("")).rc == 0:
                break
            time.sleep(1)
        assert host.check_output(ask.format("")) == "200"
        assert "403" in host.run(ask.format("/contents")).stderr
        assert "/lab?token=" in host.check_output("docker logs lab 2>&1")
        assert host.run("docker exec lab python /opt/cudahub/bin/check.py --health 8888").rc == 0
        host.check_output("docker stop --time 60 lab")
        assert host.check_output("docker inspect --format '{{.State.ExitCode}}' lab") == "0"
    finally:
        host.check_output("docker rm --force lab")


@pytest.fixture
def downloads(host: Host) -> Iterator[dict[str, str]]:
    """Serve the stand-in of micromamba and an archive as GitHub makes them, and return the variables that name them."""
    standin = base64.b64encode((ROLE.parent / "files/micromamba-standin").read_bytes()).decode()
    host.check_output(
        "mkdir -p /srv/www/examples-main/mnist && cd /srv/www && echo 1 > examples-main/mnist/main.py"
        f" && tar -czf examples.tar.gz examples-main && echo {standin} | base64 -d > micromamba"
        " && systemd-run --unit downloads --working-directory /srv/www python3 -m http.server --bind 127.0.0.1 8099"
        " && timeout 120 sh -c 'until ss -ltn | grep --quiet :8099; do sleep 0.2; done'"
    )
    variables = {}
    for key, name in (("micromamba", "micromamba"), ("examples", "examples.tar.gz")):
        variables[f"dl_images_{key}_url"] = f"http://127.0.0.1:8099/{name}"
        variables[f"dl_images_{key}_checksum"] = "sha256:" + host.check_output(f"sha256sum /srv/www/{name}").split()[0]
    yield variables
    host.check_output("systemctl stop downloads")


def test_conda_and_the_examples(apply: Apply, host: Host, downloads: dict[str, str]) -> None:
    described = [
        {"name": "small/file", "conda": "environment.yml", "pip": ["six==1.17.0"], "command": ["cat", "/etc/asked"]},
        {"name": "small/list", "conda": ["six=1.17", "scipy>=1"], "command": ["cat", "/etc/asked"]},
        {"name": "small/pt", "framework": "pytorch", "requirements": "small.txt", "examples": True, "command": ["sh"]},
    ]
    described = [{**one, "tag": "v1"} for one in described]
    # What PyTorch's list downloads is not here to compute.
    done = apply(dl_images_images=described, dl_images_parallel=3, dl_images_smoke_test=False, **downloads)
    assert done.returncode == 0, said(done)
    asked = host.check_output(f"docker run --rm {REPOSITORY}/file:v1")
    assert asked.splitlines()[0] == "create --yes --prefix /opt/cudahub/venv --file /run/build/environment.yml"
    assert "dependencies: [python=3.13" in asked
    assert (
        host.check_output(f"docker run --rm {REPOSITORY}/file:v1 python -c 'import six; print(six.__version__)'")
        == "1.17.0"
    )
    assert host.check_output(f"docker run --rm {REPOSITORY}/list:v1") == (
        "create --yes --prefix /opt/cudahub/venv --override-channels --channel conda-forge"
        " six=1.17 scipy>=1 python=3.13 pip"
    )
    owned = host.check_output(
        f"docker run --rm {REPOSITORY}/pt:v1 sh -c 'touch examples/mnist/x; stat -c %U examples/mnist/*'"
    )
    assert owned.split() == ["user", "user"]


CONDA = """FROM python-standin:13
COPY conda /opt/conda
COPY channel /opt/channels/conda-forge
RUN mkdir -p /root && echo "custom_channels: {conda-forge: file:///opt/channels}" > /root/.condarc
"""


@pytest.mark.long
def test_a_real_conda_chooses_what_is_for_the_driver(apply: Apply, host: Host, downloads: dict[str, str]) -> None:
    """The build sees no GPU, so that conda would find nothing, or what computes on the CPU alone."""
    micromamba = base64.b64encode((ROLE.parent / "files/micromamba-conda").read_bytes()).decode()
    host.check_output(
        "mkdir -p /srv/base && cd /srv/base && python3 /srv/standin/conda/install /opt/conda && cp -a /opt/conda conda"
        f" && python3 /srv/standin/conda/channel.py channel && echo {micromamba} | base64 -d > /srv/www/conda"
    )
    host.check_output(f"cd /srv/base && docker build --quiet --tag conda-standin:1 --file - . << 'END'\n{CONDA}END")
    downloads["dl_images_micromamba_url"] = "http://127.0.0.1:8099/conda"
    downloads["dl_images_micromamba_checksum"] = "sha256:" + host.check_output("sha256sum /srv/www/conda").split()[0]
    one = {"name": "small/rapids", "base": "conda-standin:1", "conda": ["rapids=26.10"], "cuda": "12", "tag": "v1"}
    done = apply(dl_images_images=[{**one, "command": ["ls", "/opt/cudahub/venv/conda-meta"]}], **downloads)
    assert done.returncode == 0, said(done)
    assert "Image small/rapids is for CUDA 12, and no GPU of builder has computed in it, as dl_images_cpu_only" in said(
        done
    )
    there = host.check_output(f"docker run --rm --entrypoint= {REPOSITORY}/rapids:v1 ls /opt/cudahub/venv/conda-meta")
    assert "rapids-26.10.00-cuda12_0.json" in there.split()


BASES = {
    "nopython": ("RUN rm /usr/bin/python3*", "its base image has no python3 with venv: give another base, or add"),
    "noapt": ("RUN rm /usr/sbin/useradd", "its base image is none of Debian or Ubuntu: give another base."),
    "user": ('RUN useradd joe\nUSER joe\nENTRYPOINT ["/bin/false"]', ""),
}


@pytest.mark.long
def test_base_images_of_all_kinds(apply: Apply, host: Host) -> None:
    """Built beside each other: each is judged alone."""
    for name, (lines, _sentence) in BASES.items():
        host.check_output(f"docker build --quiet --tag base-{name}:1 - << 'END'\nFROM python-standin:13\n{lines}\nEND")
    described = [
        {**SMALL, "name": f"small/{name}", "base": f"base-{name}:1", "tag": "v1", "command": ["id", "-u"]}
        for name in BASES
    ]
    done = apply(dl_images_images=described, dl_images_parallel=3)
    assert done.returncode == 2, said(done)
    for name, (_lines, sentence) in BASES.items():
        if sentence:
            assert f"Image small/{name} could not be built, because {sentence}" in said(done)
    assert "Image small/user" not in said(done)
    tags = host.check_output(f"docker images --format '{{{{.Tag}}}}' {REPOSITORY}/user").split()
    assert [re.fullmatch("[0-9a-f]{12}", tag) is not None for tag in tags] == [True]
    assert host.check_output(f"docker run --rm {REPOSITORY}/user:{tags[0]}") == "1000"


def test_of_two_one_does_not_compute_and_the_other_is_there(apply: Apply, host: Host) -> None:
    two = [{**SMALL, "name": "small/well"}, {**SMALL, "name": "small/ill", "environment": {"PYTHONHOME": "/none"}}]
    done = apply(dl_images_images=two, dl_images_parallel=2)
    assert done.returncode == 2, said(done)
    assert "Image small/ill does not compute on builder, and is neither tagged nor pushed" in said(done)
    for name, form in (("well", "[0-9a-f]{12}"), ("ill", "[0-9a-f]{12}-unproven")):
        tags = host.check_output(f"docker images --format '{{{{.Tag}}}}' {REPOSITORY}/{name}").split()
        assert [re.fullmatch(form, tag) is not None for tag in tags] == [True], (name, tags)


def test_a_download_that_is_another_one(apply: Apply, downloads: dict[str, str]) -> None:
    """Docker takes a page that says that there is nothing for the download, too."""
    one = {"name": "small/other", "conda": ["six"], "command": ["sh"]}
    done = apply(dl_images_images=[one], **{**downloads, "dl_images_micromamba_url": "http://127.0.0.1:8099/none"})
    assert "because a download is not the one of its checksum: correct its address or checksum." in said(done)


def test_what_does_not_fit_is_not_begun(apply: Apply, host: Host) -> None:
    """Docker's disk is that of the machine, where so many images are too many."""
    before = images(host)
    many = [{"name": f"jax{number}", "framework": "jax", "cuda": "12"} for number in range(200)]
    done = apply(dl_images_images=many)
    assert done.returncode == 2, said(done)
    assert "GB free, and the build of jax0, jax1," in said(done)
    assert "takes about 2880.0 GB: free some, for instance by docker builder prune" in said(done)
    assert "changed=0" in said(done)
    assert images(host) == before


def test_a_base_image_that_is_not_there(apply: Apply, host: Host) -> None:
    before = images(host)
    done = apply({"base": "127.0.0.1:5000/none:1"})
    assert done.returncode == 2, said(done)
    assert "Image small could not be built, because its base image can't be had: correct base" in said(done)
    assert "Docker said last: ERROR: failed to solve: 127.0.0.1:5000/none:1" in said(done)
    assert images(host) == before


def test_an_image_that_does_not_compute_gets_no_name(apply: Apply, host: Host) -> None:
    before = images(host)
    done = apply({"environment": {"PYTHONHOME": "/none"}})
    assert done.returncode == 2, said(done)
    assert "Image small does not compute on builder, and is neither tagged nor pushed; it is there as" in said(done)
    left = {one.split()[0] for one in images(host) - before}
    assert len(left) == 1
    assert re.fullmatch("[0-9a-f]{12}-unproven", left.pop())


def gpus(simulated: bool) -> dict[str, Any]:
    """Return the facts of a host with a GPU, which this one is not."""
    gpu = {"name": "NVIDIA H200", "compute_capability": "9.0", "architecture": "Hopper", "uuid": "GPU-1"}
    driver = {"state": "ok", "version": "580.159.04", "cuda_version": "13.0"}
    return {"driver": driver, "gpus": [gpu], "count": 1, "simulated": simulated, "problems": []}


def test_an_image_that_can_not_use_the_gpus_gets_no_name(apply: Apply, host: Host) -> None:
    """Docker here gives no GPU to a container; with simulated ones nothing is proven, and nothing refused."""
    before = images(host)
    done = apply({"labels": {"a": "1"}}, dl_images_cpu_only=False, pretend=gpus(simulated=False))
    assert done.returncode == 2, said(done)
    assert "Image small can't use the GPUs of builder, and is neither tagged nor pushed; it is there as" in said(done)
    assert all(one.split()[0].endswith("-unproven") for one in images(host) - before)
    done = apply({"labels": {"a": "1"}}, dl_images_cpu_only=False, pretend=gpus(simulated=True))
    assert done.returncode == 0, said(done)
    named = {one.split()[0] for one in images(host) - before}
    assert len(named) == 1
    assert not named.pop().endswith("-unproven")


def test_a_build_that_takes_too_long(apply: Apply, host: Host, gone: Callable[[Host, str], None]) -> None:
    """The index of packages takes connections, and never answers."""
    before = images(host)
    silent = "import socket, time; index = socket.create_server(('127.0.0.1', 5004)); time.sleep(3600)"
    host.check_output("systemd-run --collect --unit silent python3 -c %s", silent)
    host.check_output("timeout 120 sh -c 'until ss -ltn | grep --quiet :5004; do sleep 0.2; done'")
    try:
        done = apply({"uid": 2005}, dl_images_timeout=8, dl_images_pip_index_url="http://127.0.0.1:5004/simple")
    finally:
        host.check_output("systemctl stop silent")
    assert done.returncode == 2, said(done)
    assert (
        "Image small could not be built, because it was not done after 8 seconds: run the role again, which goes on, "
        "or raise dl_images_timeout. Docker said last: #" in said(done)
    )
    assert images(host) == before
    gone(host, "docker-buildx buildx build")


@pytest.mark.long
def test_runs_at_the_same_time_do_not_meet(apply: Apply, host: Host) -> None:
    """Two of the same description, and one of another, which would be built under the name of theirs."""
    uids = [2006, 2006, 2007]
    before = images(host)
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda uid: apply({"uid": uid}, dl_images_keep=9), uids))
    assert [done.returncode for done in runs] == [0, 0, 0], [said(done) for done in runs]
    made = images(host) - before
    assert len(made) == 2
    for one in made:
        tag, name = one.split()
        labels, user = host.check_output(
            f"docker image inspect --format '{{{{json .Config.Labels}}}} {{{{.Config.User}}}}' {name}"
        ).rsplit(" ", 1)
        assert json.loads(labels)["org.cudahub.digest"].startswith(tag)
        assert user in {f"{uid}:{uid}" for uid in uids}
    assert host.check_output("find /run -maxdepth 1 -name 'cudahub-dl_images*'") == ""


@pytest.mark.long
def test_files_of_old_builds_go(apply: Apply, host: Host) -> None:
    """And those of runs that were broken off; what is younger than a day may be another run's."""
    places = ("/var/lib/cudahub/dl_images/{}", "/var/log/cudahub/dl_images-{}.log")
    old, young, other = (
        [place.format(name) for place in places]
        for name in ("small-0123456789ab", "small-ba9876543210", "smaller-0123456789ab")
    )
    old.append("/run/cudahub-dl_images-abcdefgh")
    young.append("/run/cudahub-dl_images-zyxwvuts")
    before = ids(host)
    host.check_output(
        f"mkdir -p {' '.join((*old, *young, *other))} && touch -d '2 days ago' {' '.join((*old, *other))}"
    )
    try:
        done = apply(dl_images_keep=1)
        assert done.returncode == 0, said(done)
        assert before <= ids(host), "another run may be about to prove or to push them"
        assert [path for path in (*old, *young, *other) if host.file(path).exists] == [*young, *other]
    finally:
        host.check_output(f"rm -rf {' '.join((*young, *other))}")


@pytest.mark.long
def test_an_interrupted_build_is_taken_up_by_the_next_run(apply: Apply, host: Host) -> None:
    before = images(host)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(apply, {"uid": 2000})
        # The word in brackets keeps pkill from finding its own shell.
        kill = "pkill -TERM -f 'buildx [b]uildx build|docker-buildx [b]uildx build'"
        while not first.done() and host.run(kill).rc != 0:
            time.sleep(0.1)
        done = first.result()
    assert done.returncode == 2, said(done)
    assert "Image small could not be built, because it was interrupted: run the role again." in said(done)
    assert images(host) == before
    again = apply({"uid": 2000})
    assert again.returncode == 0, said(again)
    assert len(images(host) - before) == 1
    assert host.check_output(f"docker run --rm {min(images(host) - before).split()[1]} id -u") == "2000"


def test_old_builds_go_and_those_in_use_stay(apply: Apply, host: Host) -> None:
    before = images(host)
    used = host.check_output(f"docker image inspect --format '{{{{.Id}}}}' {REPOSITORY}:v1")
    host.check_output(f"docker run --detach --name user {REPOSITORY}:v1 sleep 600")
    try:
        done = apply({"ports": [2001]}, dl_images_keep=1)
        assert done.returncode == 0, said(done)
        left = {
            host.check_output(f"docker image inspect --format '{{{{.Id}}}}' {one.split()[1]}") for one in images(host)
        }
    finally:
        host.check_output("docker rm --force user")
    assert used in left
    assert len(left) == 2, (before, left)


def test_check_mode_builds_nothing(apply: Apply, host: Host) -> None:
    before = images(host)
    done = apply({"ports": [2002]}, "--check")
    assert done.returncode == 0, said(done)
    assert images(host) == before


def test_what_is_described_is_built_once(apply: Apply, host: Host) -> None:
    assert apply().returncode == 0
    before = images(host)
    done = apply()
    assert "changed=0" in said(done), said(done)
    assert images(host) == before
    proof = apply(entry="verify")
    assert proof.returncode == 0, said(proof)
    other = apply({"ports": [2003]}, entry="verify")
    assert other.returncode == 2
    assert "builder does not have 127.0.0.1:5000/team/small:" in said(other)


def test_a_full_disk(apply: Apply, host: Host) -> None:
    """Docker's files are on a small file system of memory, which holds the base image and little more."""
    size = int(host.check_output("stat -c %s /srv/base.tar")) // 1024 + 3 * 1024
    before = images(host)
    host.check_output("systemctl stop docker.socket docker.service")
    host.check_output(f"mount -t tmpfs -o size={size + 24 * 1024}k tmpfs /var/lib/docker")
    try:
        host.check_output("systemctl start docker.service && docker import /srv/base.tar python-standin:13")
        free = int(host.check_output("df --output=avail -k /var/lib/docker | tail -1"))
        host.check_output(f"head -c {max(free - 4096, 0)}K /dev/zero > /var/lib/docker/filler")
        done = apply({"uid": 2004})
        assert done.returncode == 2, said(done)
        assert "Image small could not be built, because the disk of Docker is full: free some" in said(done)
        assert images(host) == set()
    finally:
        host.check_output(
            "systemctl stop docker.socket docker.service; umount -l /var/lib/docker; systemctl start docker.service"
        )
    assert images(host) == before
