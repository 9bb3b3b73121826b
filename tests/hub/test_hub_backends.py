# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names that stay apart, and what systemd, Docker and the kernel say of the servers that run."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import time
import types
import typing as t

import docker
import pytest
from cudahub_hub import backends
from cudahub_hub.allocator import Lease, Observation, Server
from cudahub_hub.inventory import Inventory, Unit
from cudahub_hub.settings import ConfigurationError
from docker_engine import Engine
from dockerspawner import DockerSpawner
from hypothesis import given, settings
from hypothesis import strategies as st

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GPU_0 = Unit("GPU-0", "gpu", "GPU-0", "0", nodes=("/dev/nvidia0",))
SLICE = Unit("MIG-1", "mig", "GPU-1", "1.0", nodes=("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3"))
OTHER_SLICE = Unit("MIG-2", "mig", "GPU-1", "1.1", nodes=("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap4"))
INVENTORY = Inventory(units=(GPU_0, SLICE, OTHER_SLICE), common_nodes=("/dev/nvidiactl",))

SHOWN = """\
ControlGroup=/system.slice/jupyter-a.service
DevicePolicy=closed
DeviceAllow=char-pts rw
DeviceAllow=/dev/nvidia0 rw
LogExtraFields=SITE=x CUDAHUB_SERVER=a/
Id=jupyter-a.service
ActiveState=active

ControlGroup=/system.slice/jupyter-a--lab.service
DevicePolicy=closed
DeviceAllow=/dev/nvidia1 rw
DeviceAllow=/dev/nvidia-caps/nvidia-cap4 rw
LogExtraFields=CUDAHUB_SERVER=a/lab
Id=jupyter-a--lab.service
ActiveState=deactivating

ControlGroup=
DevicePolicy=closed
LogExtraFields=CUDAHUB_SERVER=gone/
Id=jupyter-gone.service
ActiveState=failed

ControlGroup=/system.slice/jupyter-stuck.service
DevicePolicy=closed
DeviceAllow=/dev/nvidia0 rw
LogExtraFields=CUDAHUB_SERVER=stuck/
Id=jupyter-stuck.service
ActiveState=failed

ControlGroup=/system.slice/jupyter-free.service
DevicePolicy=auto
LogExtraFields=CUDAHUB_SERVER=o_x40_x/
Id=jupyter-free.service
ActiveState=active

ControlGroup=/system.slice/cron.service
DevicePolicy=auto
LogExtraFields=
Id=cron.service
ActiveState=active
"""

names = st.text(min_size=1, max_size=12) | st.text("-_x2d.", min_size=1, max_size=8)


@settings(deadline=None)
@given(user=names, name=names | st.just(""))
def test_marks_say_whose_they_are(user: str, name: str) -> None:
    mark = backends.mark_of(Server(user, name))
    assert re.fullmatch(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]*", mark)
    assert backends.server_of(mark) == Server(user, name)


@settings(deadline=None)
@given(one=st.tuples(names, names | st.just("")), other=st.tuples(names, names | st.just("")))
def test_unit_names_never_meet(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = ("--".join(filter(None, map(backends.escaped, server))) for server in (one, other))
    assert (first == second) == (one == other)


@pytest.mark.parametrize(("text", "is_"), [("anna", "anna"), ("an-na.b_c", "an-na.b_c"), ("a b*", "a_x20_b_x2a_")])
def test_plain_names_stay_as_they_are(text: str, is_: str) -> None:
    assert backends.escaped(text) == is_


def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = tmp_path / "systemctl"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shown").write_text(SHOWN)
    systemctl(tmp_path, monkeypatch, f'case "$*" in *Environment*) exit 9;; esac; cat {tmp_path}/shown')
    seen = backends.SystemdBackend().observe((), INVENTORY)
    assert seen.complete
    assert seen.alive == {
        Server("a"): ("GPU-0",),
        Server("a", "lab"): ("MIG-2",),
        Server("stuck"): ("GPU-0",),
        Server("o@x"): None,
    }


@pytest.mark.parametrize("script", ["exit 1", "true", "echo; exit 1"])
def test_systemd_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    systemctl(tmp_path, monkeypatch, script)
    assert not backends.SystemdBackend().observe((), INVENTORY).complete


def test_no_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not backends.SystemdBackend().observe((), INVENTORY).complete


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[[str], Engine]]:
    """Makes Docker engines."""
    made: list[Engine] = []

    def make(identity: str) -> Engine:
        made.append(Engine(tmp_path, identity))
        return made[-1]

    yield make
    for one in made:
        one.close()


def docker_backend(place: Path, **client_kwargs: t.Any) -> backends.DockerBackend:
    return backends.DockerBackend(lambda: place, backends.docker_client_of({}, client_kwargs))


def test_docker(tmp_path: Path, engine: Callable[[str], Engine]) -> None:
    docker = engine("A")
    docker.run("a/", "GPU-0")
    docker.run("a/lab", "MIG-1,MIG-2", "paused")
    docker.run("b/", "GPU-0", "exited")
    docker.run("c/", "GPU-0", "created")
    docker.run("d/", "")
    docker.run("e/", "GPU-0", "restarting")
    backend = docker_backend(tmp_path, base_url=docker.url)
    backend.starts_by("A")
    seen = backend.observe((), INVENTORY)
    assert seen.complete
    assert seen.alive == {
        Server("a"): ("GPU-0",),
        Server("a", "lab"): ("MIG-1", "MIG-2"),
        Server("d"): (),
        Server("e"): ("GPU-0",),
    }
    (asked,) = (path for path in docker.asked if "/containers/json" in path)
    assert "all=1" in asked
    assert "cudahub.server" in asked


def test_docker_does_not_answer(tmp_path: Path) -> None:
    assert not docker_backend(tmp_path, base_url=f"unix://{tmp_path}/none.sock").observe((), INVENTORY).complete


@pytest.mark.parametrize("variables", [{}, {"DOCKER_HOST": "unix:///elsewhere"}, {"DOCKER_CERT_PATH": "."}])
@pytest.mark.parametrize("tls_config", [{}, {"client_cert": ("cert.pem", "key.pem"), "verify": False}])
@pytest.mark.parametrize("client_kwargs", [{}, {"base_url": "unix:///here", "version": "1.44", "timeout": 1}])
def test_docker_is_asked_as_the_spawner_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: t.Any, tls_config: t.Any, client_kwargs: t.Any
) -> None:
    def made(**options: t.Any) -> t.Any:
        tls = options.pop("tls", None)
        asked.append({**options, "timeout": 30, "tls": tls and (tls.cert, tls.ca_cert, tls.verify)})
        raise OSError("asked")

    asked: list[t.Any] = []
    for name in ("cert.pem", "key.pem", "ca.pem"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(docker, "APIClient", made)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    values = {"_client": None, "tls_config": tls_config, "client_kwargs": client_kwargs}
    spawner: t.Any = type("Spawner", (), {"client": DockerSpawner.client, **values})()
    with pytest.raises(OSError, match="asked"):
        spawner.client  # noqa: B018
    backend = backends.DockerBackend(lambda: tmp_path, backends.docker_client_of(tls_config, client_kwargs))
    assert not backend.observe((), INVENTORY).complete
    assert asked[0] == asked[1]


def test_what_another_docker_engine_says_is_not_believed(
    tmp_path: Path, engine: Callable[[str], Engine], caplog: pytest.LogCaptureFixture
) -> None:
    ours, other = engine("OURS"), engine("OTHER")
    other.run("b/", "GPU-0")
    hub = docker_backend(tmp_path, base_url=ours.url)
    service = docker_backend(tmp_path, base_url=other.url)
    hub.starts_by("OURS")
    for _unused in range(2):
        assert service.observe((), INVENTORY) == Observation(alive={}, complete=False)
    (warning,) = caplog.messages
    assert re.search("OURS starts the hub's servers, but OTHER answers", warning)
    caplog.clear()
    hub.starts_by("OTHER")
    assert "by the Docker engine OTHER now, earlier by OURS" in caplog.text
    assert service.observe((), INVENTORY) == Observation(alive={Server("b"): ("GPU-0",)})


def test_docker_before_the_hub_has_started_a_server(tmp_path: Path, engine: Callable[[str], Engine]) -> None:
    docker = engine("A")
    docker.run("a/", "GPU-0")
    seen = docker_backend(tmp_path, base_url=docker.url).observe((), INVENTORY)
    assert seen == Observation(alive={Server("a"): ("GPU-0",)}, complete=False)


def lease(user: str, token: str, since: float = 0.0) -> Lease:
    return Lease(Server(user), token, ("GPU-0",), ("GPU-0",), "default", "running", since, "hub")


def test_processes_that_outlive_their_server_hold_its_gpu() -> None:
    script = (
        "import subprocess; nothing = dict.fromkeys(['stdout', 'stderr'], subprocess.DEVNULL); "
        "print(subprocess.Popen(['sleep', '600'], **nothing).pid)"
    )
    environment = {**os.environ, "CUDAHUB_LEASE": "token-of-this-test"}
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=environment)
    leases = (lease("holder", "token-of-this-test", time.time()), lease("other", "another"))

    def until_seen(gpus: tuple[str, ...] | None) -> None:
        deadline = time.monotonic() + 60
        while (seen := backends.ProcessBackend().observe(leases, INVENTORY)).alive.get(Server("holder")) != gpus:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert Server("other") not in seen.alive

    until_seen(("GPU-0",))
    os.kill(int(done.stdout), 9)
    until_seen(None)


def test_a_process_that_becomes_another_program_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel shows no environment of it in that moment."""
    monkeypatch.setattr(backends, "_EXEC_S", 60.0)
    again = 'exec /bin/sh -c "$0" "$0"'
    environment = {**os.environ, "CUDAHUB_LEASE": "token"}
    with subprocess.Popen(["/bin/sh", "-c", again, again], env=environment) as running:
        try:
            (tmp_path / str(running.pid)).symlink_to(f"/proc/{running.pid}")
            backend = backends.ProcessBackend(tmp_path)
            seen = [backend.observe((lease("holder", "token"),), INVENTORY) for _unused in range(2000)]
        finally:
            running.kill()
    assert [one for one in seen if one != Observation(alive={Server("holder"): ("GPU-0",)})] == []


def test_a_program_whose_path_is_too_long_to_be_read_hides_nobody() -> None:
    script = (
        "import os, shutil, sys, tempfile\n"
        "os.chdir(folder := tempfile.mkdtemp())\n"
        "for name in ['d' * 250] * 20:\n"
        "    os.mkdir(name)\n"
        "    os.chdir(name)\n"
        "shutil.copy('/bin/cat', 'cat')\n"
        "print(folder, flush=True)\n"
        "os.execve('./cat', ['./cat'], {})\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin
        assert running.stdout
        folder = running.stdout.readline().strip()
        try:
            running.stdin.write(b"it runs\n")
            running.stdin.flush()
            assert running.stdout.readline() == b"it runs\n"
            assert backends.ProcessBackend().observe((), INVENTORY).complete
        finally:
            running.kill()
            shutil.rmtree(folder)


def stat(start_of_code: int, end_of_environment: int) -> str:
    return f"7 (x) D {' '.join(['0'] * 22)} {start_of_code} {' '.join(['0'] * 24)} {end_of_environment} 0"


def test_a_part_of_an_environment_is_not_taken_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_is: Callable[[int], None]
) -> None:
    """The kernel shows the first kilobytes of a long one if the process becomes another program then."""
    place = process(tmp_path, 7, 1001, PADDING="x" * 20_000, CUDAHUB_LEASE="1")
    whole = (place / "environ").read_bytes()
    (place / "environ").write_bytes(whole[:8192])

    def place_of_environment(process: Path) -> str:
        (process / "environ").write_bytes(whole)
        return "4711"

    monkeypatch.setattr(backends, "_place_of_environment", place_of_environment)
    hub_is(0)
    assert backends.ProcessBackend(tmp_path).observe((lease("anna", "1"),), INVENTORY).alive == {
        Server("anna"): ("GPU-0",)
    }


def test_an_environment_that_its_process_has_written_over_is_taken_as_it_is(
    tmp_path: Path, hub_is: Callable[[int], None]
) -> None:
    place = process(tmp_path, 7, 1001, CUDAHUB_LEASE="1")
    (place / "environ").write_bytes(b"CUDAHUB_LEASE=1\0no end")
    (place / "exe").symlink_to("/bin/sh")
    (place / "stat").write_text(stat(start_of_code=42, end_of_environment=4711))
    hub_is(0)
    assert backends.ProcessBackend(tmp_path).observe((lease("anna", "1"),), INVENTORY).alive == {
        Server("anna"): ("GPU-0",)
    }


@pytest.mark.parametrize(("start_of_code", "end_of_environment", "may_be"), [(0, 0, True), (0, 7, True), (5, 7, False)])
def test_a_process_that_stays_on_its_way_may_be_a_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hub_is: Callable[[int], None],
    start_of_code: int,
    end_of_environment: int,
    may_be: bool,
) -> None:
    monkeypatch.setattr(backends, "_EXEC_S", 0.01)
    (tmp_path / "stat").write_text("btime 1000\n")
    place = process(tmp_path, 7, 1001)
    (place / "exe").symlink_to("/usr/bin/python3")
    (place / "stat").write_text(stat(start_of_code, end_of_environment))
    hub_is(0)
    seen = backends.ProcessBackend(tmp_path).observe((lease("anna", "1"), lease("ben", "2")), INVENTORY)
    assert (seen.alive, seen.unknown) == ({}, {Server("anna")} if may_be else set())


def test_many_processes_that_stay_on_their_way_take_no_longer_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_is: Callable[[int], None]
) -> None:
    slept: list[float] = []
    clock = types.SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(backends, "time", clock)
    (tmp_path / "stat").write_text("btime 1000\n")
    for pid, uid in ((7, 1001), (8, 1002)):
        place = process(tmp_path, pid, uid)
        (place / "exe").symlink_to("/usr/bin/python3")
        (place / "stat").write_text(stat(start_of_code=0, end_of_environment=0))
    hub_is(0)
    seen = backends.ProcessBackend(tmp_path).observe((lease("anna", "1"), lease("ben", "2")), INVENTORY)
    assert seen.unknown == {Server("anna"), Server("ben")}
    assert sum(slept) < 1.1


def test_a_server_of_a_hub_that_is_not_root_may_be_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_is: Callable[[int], None]
) -> None:
    monkeypatch.setattr(backends, "_EXEC_S", 0.01)
    (tmp_path / "stat").write_text("btime 1000\n")
    place = process(tmp_path, 7, 1000)
    (place / "exe").symlink_to("/usr/bin/python3")
    (place / "stat").write_text(stat(start_of_code=0, end_of_environment=0))
    hub_is(1000)
    seen = backends.ProcessBackend(tmp_path).observe((lease("anna", "1"),), INVENTORY)
    assert seen.unknown == {Server("anna")}


ACCOUNTS = {"anna": 1001, "ben": 1002}


def process(proc: Path, pid: int, uid: int, **environment: str) -> Path:
    place = proc / str(pid)
    place.mkdir()
    (place / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in environment.items()))
    # A program with the setuid bit has the environment of the user who runs it.
    (place / "status").write_text(f"Name:\ta: b\nUid:\t{uid}\t0\t0\t0\nGid:\t7\t7\t7\t7\n")
    return place


@pytest.fixture
def hub_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the hub another user, on a host with two accounts."""

    def account(name: str) -> t.Any:
        return types.SimpleNamespace(pw_uid=ACCOUNTS[name])  # KeyError, as of the real one, where there is none

    monkeypatch.setattr(pwd, "getpwnam", account)
    return lambda uid: monkeypatch.setattr(os, "geteuid", lambda: uid)


def test_a_process_without_a_known_lease(tmp_path: Path, hub_is: Callable[[int], None]) -> None:
    hub_is(1000)
    process(tmp_path, 1, 1000, CUDAHUB_LEASE="x", JUPYTERHUB_USER="a", JUPYTERHUB_SERVER_NAME="lab",
            CUDA_VISIBLE_DEVICES="GPU-0,GPU-elsewhere")  # fmt: skip
    process(tmp_path, 2, 1000, CUDAHUB_LEASE="", JUPYTERHUB_USER="b", CUDA_VISIBLE_DEVICES="GPU-0")
    process(
        tmp_path, 3, 1000, CUDAHUB_LEASE="y", JUPYTERHUB_USER="of-another-hub", CUDA_VISIBLE_DEVICES="GPU-elsewhere"
    )
    seen = backends.ProcessBackend(tmp_path).observe((), INVENTORY)
    assert (seen.alive, seen.complete) == ({Server("a", "lab"): ("GPU-0",)}, True)


@pytest.mark.parametrize(
    ("hub", "uid", "user", "is_believed"),
    [
        (0, 1001, "anna", True),
        (0, 1002, "anna", False),
        (0, 0, "anna", False),  # what a user starts by sudo, which asks for a password
        (0, 0, "without-account", True),  # a spawner that runs all servers as the hub's user
        (0, 1001, "without-account", False),
        (1000, 1000, "anna", True),
        (1000, 1001, "anna", False),
    ],
)
def test_nobody_gives_gpus_to_another_user(
    tmp_path: Path, hub_is: Callable[[int], None], hub: int, uid: int, user: str, is_believed: bool
) -> None:
    hub_is(hub)
    process(tmp_path, 1, uid, CUDAHUB_LEASE="x", JUPYTERHUB_USER=user, CUDA_VISIBLE_DEVICES="GPU-0")
    seen = backends.ProcessBackend(tmp_path).observe((), INVENTORY)
    assert (Server(user) in seen.alive) == is_believed


@pytest.mark.parametrize(
    ("hub", "uid", "is_believed"),
    [(0, 1001, True), (0, 1002, False), (0, 0, True), (1000, 1000, True), (1000, 1002, False)],
)
def test_nobody_keeps_a_lease_of_another_user(
    tmp_path: Path, hub_is: Callable[[int], None], hub: int, uid: int, is_believed: bool
) -> None:
    hub_is(hub)
    process(tmp_path, 1, uid, CUDAHUB_LEASE="of-anna", JUPYTERHUB_USER="anna", CUDA_VISIBLE_DEVICES="GPU-0,MIG-1")
    seen = backends.ProcessBackend(tmp_path).observe((lease("anna", "of-anna"),), INVENTORY)
    assert seen.alive == ({Server("anna"): ("GPU-0",)} if is_believed else {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of others")
def test_a_process_that_hides_is_not_taken_for_roots() -> None:
    """The kernel gives the directory in /proc of a process that may not be dumped to root."""
    hide = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); print(flush=True); time.sleep(60)"
    environment = {"CUDAHUB_LEASE": "x", "JUPYTERHUB_USER": "without-account", "CUDA_VISIBLE_DEVICES": "GPU-0"}
    command = ["/usr/bin/python3", "-c", hide]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, user=65534) as hidden:
        assert hidden.stdout
        hidden.stdout.readline()
        seen = backends.ProcessBackend().observe((), INVENTORY)
        hidden.kill()
    assert Server("without-account") not in seen.alive


def test_an_unreadable_process_may_be_a_server_that_was_leased_before_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_is: Callable[[int], None]
) -> None:
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000\n")
    hidden = process(tmp_path, 7, 1001)
    ticks = 50 * os.sysconf("SC_CLK_TCK")
    (hidden / "stat").write_bytes(b"7 (a \xff ) b) " + f"S {' '.join(['0'] * 18)} {ticks} 0 0".encode())

    def refuse(place: Path, _deadline: float) -> dict[str, str]:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(backends, "_environment", refuse)
    hub_is(0)
    after = Lease(Server("anna", "lab"), "2", ("GPU-0",), ("GPU-0",), "default", "running", 1060, "hub")
    leases = (lease("anna", "1", 1040), after, lease("ben", "3", 1040))
    seen = backends.ProcessBackend(tmp_path).observe(leases, INVENTORY)
    assert seen.complete
    assert seen.unknown == {Server("anna")}
    hub_is(1000)
    assert backends.ProcessBackend(tmp_path).observe(leases, INVENTORY).unknown == frozenset()


def test_no_proc(tmp_path: Path) -> None:
    assert not backends.ProcessBackend(tmp_path / "none").observe((), INVENTORY).complete


def test_an_unknown_backend(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="choose one of systemd, docker, process"):
        backends.backend_of("kubernetes", lambda: tmp_path, "")
