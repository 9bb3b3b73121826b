# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before anything is changed, and what a change does to users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://all"]

UNITS = ["jupyterhub", "traefik"]
ROLE = Path(__file__).parents[1] / "role.yml"
CONFIG = "/opt/tljh/config/config.yaml"
Ask = Callable[..., Any]
Play = Callable[..., CompletedProcess[str]]


def said(done: CompletedProcess[str]) -> str:
    """Return everything that a run printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def apply(play: Play) -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs the role with variables."""

    def run(*arguments: str, **variables: object) -> CompletedProcess[str]:
        return play(ROLE, "-e", json.dumps(variables), *arguments)

    return run


Apply = Callable[..., CompletedProcess[str]]
REFUSALS = {
    "colon": "tljh_admins has an entry with a colon: give names only, and passwords in tljh_admin_passwords",
    "blank": '"Ada Lovelace" can\'t be the name of an admin',
    "slash": '"ada/.." can\'t be the name of an admin',
    "short": "The password of ada in tljh_admin_passwords has fewer than 7 characters",
    "stranger": "tljh_admin_passwords has eve, who is not in tljh_admins",
    "native": "tljh_authenticator is native, which has passwords elsewhere",
    "github": "tljh_authenticator_options has no client_id",
    "nobody": "With tljh_authenticator github, nobody but admins could log in",
    "memory": "give a text such as '2G' with K, M, G or T",
    "hidden": "outside of /home and /root, which the proxy can't read",
    "domains": "https.letsencrypt has email and no domains: give both",
    "newer": "has The Littlest JupyterHub 2.0.0, and version 2.1.0 is asked for: set tljh_upgrade to true",
    "older": "a hub does not go back to an older one; set tljh_version to 2.0.0 or newer",
    "disk": "of free disk space for /dev/shm/tljh, and The Littlest JupyterHub needs 3.00 GB",
    "archive": "which is removed along with /opt/tljh: give a directory elsewhere",
    "data": "tljh_shared_data is '/srv/my data': give an absolute path of letters, digits and",
    "homes": "tljh_shared_data is /home, which servers could not write to any more",
    "number": "The password of ada in tljh_admin_passwords is no text without control characters: put it in quotes",
    "bytes": "The password of ada in tljh_admin_passwords has fewer than 7 characters or more than 72 bytes",
    "check": "tljh_admins has cudahub-check, the user of this role's own proof",
    "nobody_again": "With tljh_authenticator pam, nobody but admins could log in",
    "certificate": "There is no file /etc/ssl/none.crt on hub: tljh_https needs a valid certificate and its key",
    "text": "/etc/passwd is no certificate in PEM format on hub",
    "other": "The key /etc/ssl/other.key is not that of the certificate /etc/ssl/expired.crt on hub",
    "expired": "The certificate /etc/ssl/expired.crt has expired on ",
    "token": "tljh_source has a password or a token, which everybody on the host could see",
    "source": "hub has no /srv/nowhere: copy the source of The Littlest JupyterHub there",
    "notebooks": "There is no nowhere/ on the controller",
    "checksum": "tljh_traefik_checksum is 'md5:0': give sha256: and 64 hexadecimal digits",
    "timeout": "tljh_timeout is 0: give seconds, such as 3600",
    "home": "the units of The Littlest JupyterHub can't read /home and /root",
    "files": "/srv/standin on hub has files of something else: give tljh_prefix a path of its own",
    "units": ".service on hub runs nothing of /srv/other/hub, and the hub's unit would take its place",
}


@pytest.fixture(scope="module")
def refusals(host: Host) -> str:
    """What a run said to all of them, which has changed nothing."""
    state = f"md5sum {CONFIG}; systemctl show jupyterhub -p ActiveEnterTimestamp; ls -lR --full-time /opt/tljh/cudahub"
    before = host.check_output(state)
    expired = "openssl x509 -req -in expired.csr -signkey expired.key -days -1 -out expired.crt"
    request = "openssl req -new -newkey rsa:2048 -nodes -subj /CN=hub -keyout expired.key -out expired.csr"
    host.run_expect([0], f"cd /etc/ssl && {request} && {expired} && openssl genrsa -out other.key 2048")
    inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
    command = [
        Path(sys.executable).with_name("ansible-playbook"),
        "--inventory",
        inventory,
        ROLE.with_name("refusals.yml"),
    ]
    environment = {**os.environ, "ANSIBLE_FORCE_COLOR": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert host.check_output(state) == before
    return said(done).replace("''", "'").replace('\\"', '"')


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_come_before_any_change(refusals: str, name: str) -> None:
    _before, _mark, rest = refusals.partition(f"refused {name}: ")
    assert REFUSALS[name] in rest.partition(" refused ")[0], rest[:400]
    assert "ada:secret" not in refusals
    assert "secret-token" not in refusals


def test_a_host_without_gpu(apply: Apply, host: Host) -> None:
    done = apply(pretend={"count": 0, "gpus": []})
    assert done.returncode == 2, said(done)
    assert "hub has no NVIDIA GPU: set tljh_gpus to false" in said(done)
    assert "changed=0" in said(done)


@pytest.mark.long
def test_an_archive_that_would_not_last_ends_nothing(apply: Apply, host: Host, user: Callable[[str], Any]) -> None:
    def pids() -> str:
        return host.check_output("systemctl show jupyterhub traefik jupyter-anna -p MainPID")

    user("anna")
    host.run_expect([0], "head -c 100000 /dev/zero >/home/jupyter-anna/large")
    before = pids()
    host.run_expect(
        [0],
        "ln -sfn /opt/tljh/state /srv/link; mkdir -p /srv/small /srv/locked;"
        "mount -t tmpfs -o size=4k tmpfs /srv/small; mount -t tmpfs -o ro tmpfs /srv/locked",
    )
    try:
        for archive, words in (
            ("/srv/link/homes", "which is in /opt/tljh on hub and would go with it"),
            ("/home/jupyter-anna/mine", "which is in /home/jupyter-anna on hub and would go with it"),
            ("/etc/passwd/homes", "and /etc/passwd on hub is no directory: give another path"),
            ("/srv/locked/homes", "and nothing can be written to /srv/locked on hub: give another path"),
            ("/srv/small", "of free disk space: make room, or give another tljh_absent_archive"),
        ):
            done = apply(entry="absent", tljh_absent_archive=archive)
            assert done.returncode == 2, said(done)
            assert words in said(done)
            assert "changed=0" in said(done)
    finally:
        host.run_expect([0], "umount /srv/small /srv/locked; rm /srv/link /home/jupyter-anna/large")
    assert pids() == before


def test_a_host_whose_driver_does_not_work(apply: Apply, host: Host) -> None:
    driver = {"state": "unusable", "reason": "NVML does not answer"}
    done = apply(pretend={"count": 1, "gpus": [], "driver": driver, "pynvml": "/usr/lib/pynvml.py"})
    assert done.returncode == 2, said(done)
    assert "The NVIDIA driver of hub is in state 'unusable', so that no GPU could be given" in said(done)
    assert "changed=0" in said(done)


def test_a_run_that_goes_on_after_its_play_was_killed(apply: Apply, host: Host) -> None:
    """What pip is here is a sleep with the same command line."""
    wait = "import time; time.sleep(600)"
    host.run_expect([0], f"mkdir -p /tmp/pip && echo '{wait}' >/tmp/pip/pip.py")
    command = "--unit other-run -p WorkingDirectory=/tmp/pip /opt/tljh/hub/bin/python -m pip install x"
    host.run_expect([0], f"systemd-run {command}")
    try:
        done = apply()
    finally:
        host.run_expect([0], "systemctl stop other-run")
    assert done.returncode == 2, said(done)
    assert "Another run installs into /opt/tljh on hub (process " in said(done)
    assert "changed=0" in said(done)


def test_a_configuration_that_somebody_broke_is_not_overwritten(apply: Apply, host: Host) -> None:
    host.run_expect([0], f"cp -p {CONFIG} /root/config.yaml; printf 'users: [\\n' >>{CONFIG}")
    try:
        done = apply()
    finally:
        host.run_expect([0], f"cp -p /root/config.yaml {CONFIG}")
    assert done.returncode == 2, said(done)
    assert "correct it by hand" in said(done)
    assert "changed=0" in said(done)


def test_a_port_that_another_program_has(apply: Apply, host: Host) -> None:
    host.run_expect([0], "systemctl stop jupyterhub traefik; systemd-run --unit blocker python3 -m http.server 80")
    host.run_expect([0], "timeout 60 sh -c 'until ss -ltn | grep -q \":80 \"; do sleep 0.2; done'")
    try:
        done = apply()
    finally:
        host.run_expect([0], "systemctl stop blocker; tljh-config reload hub")
    assert done.returncode == 2, said(done)
    assert "Port 80 of hub is taken by python3" in said(done)
    assert "changed=0" in said(done)


@pytest.fixture
def user(hub: Ask) -> Iterator[Callable[[str], Any]]:
    """Return a function that starts a server with a GPU for a user, who is gone afterwards."""
    names = []

    def start(name: str) -> Any:
        names.append(name)
        return hub("start", name, "1")["refused"]

    yield start
    for name in names:
        hub("remove", name)


def test_a_change_restarts_the_hub_and_no_server_and_keeps_passwords(
    apply: Apply, host: Host, hub: Ask, user: Callable[[str], Any]
) -> None:
    user("anna")
    server = host.check_output("systemctl show jupyter-anna -p MainPID")
    done = apply(
        tljh_limits={"memory": "2G", "cpu": None},
        tljh_admins=["ada", "eve"],
        tljh_admin_passwords={"ada": "another one"},
    )
    assert done.returncode == 0, said(done)
    assert "proven: [3, 12] login True gpus 1" in said(done)
    assert "another one" not in said(done)
    assert host.check_output("systemctl show jupyter-anna -p MainPID") == server
    config = host.file(CONFIG).content_string
    assert "2G" in config
    assert "cpu" not in config
    for name in ("ada", "grace", "eve"):
        assert name in config
    assert hub("login", "ada", "engine: no. 1")["status"] == 200
    assert hub("login", "ada", "another one")["status"] == 403


def test_when_all_gpus_are_held_and_a_run_was_interrupted(apply: Apply, host: Host, user: Callable[[str], Any]) -> None:
    """What was written is put in force, and the proof takes nobody's GPU."""
    assert [user(name) for name in ("u1", "u2", "u3", "u4")] == [None] * 4
    assert user("u5").startswith("No GPU is free now: held by 4 others")
    before = host.check_output("systemctl show jupyterhub -p ActiveEnterTimestampMonotonic")
    host.run_expect([0], "touch /opt/tljh/cudahub/reload")
    done = apply()
    assert done.returncode == 0, said(done)
    assert host.check_output("systemctl show jupyterhub -p ActiveEnterTimestampMonotonic") != before
    assert not host.file("/opt/tljh/cudahub/reload").exists
    assert "No GPU was left for the proof on hub, which ran without: No GPU is free now" in said(done)


def test_a_user_with_the_name_of_the_proof_stays(apply: Apply, host: Host, hub: Ask) -> None:
    hub("start", "cudahub-check", "0")
    host.run_expect([0], "touch /home/jupyter-cudahub-check/thesis.txt")
    done = apply(entry="verify")
    assert done.returncode == 2, said(done)
    assert "somebody is the user cudahub-check or has the account jupyter-cudahub-check" in said(done)
    assert host.file("/home/jupyter-cudahub-check/thesis.txt").exists
    hub("remove", "cudahub-check")


@pytest.mark.long
def test_a_certificate_where_the_host_has_no_openssl(apply: Apply, host: Host) -> None:
    host.run_expect(
        [0], "cd /etc/ssl && openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=hub -keyout a.key -out a.crt"
    )
    host.run_expect([0], "cd /etc/ssl && openssl genrsa -out b.key 2048 && mv /usr/bin/openssl /usr/bin/openssl.away")
    try:
        done = apply("--check", tljh_https={"cert": "/etc/ssl/a.crt", "key": "/etc/ssl/b.key"})
        assert "/etc/ssl/a.crt and /etc/ssl/b.key are no certificate and its key in PEM format, without" in said(done)
        assert apply("--check", tljh_https={"cert": "/etc/ssl/a.crt", "key": "/etc/ssl/a.key"}).returncode == 0
    finally:
        host.run_expect([0], "mv /usr/bin/openssl.away /usr/bin/openssl")


@pytest.mark.long
def test_native_sign_up_and_https(apply: Apply, host: Host) -> None:
    certificate = "-subj /CN=hub -keyout hub.key -out hub.crt -days 2"
    host.run_expect([0], f"cd /etc/ssl && openssl req -x509 -newkey rsa:2048 -nodes {certificate}")
    done = apply(
        "-vvv",
        "--diff",
        tljh_condarc={"channel_alias": "https://me:made-up@conda.example.org"},
        tljh_authenticator="native",
        tljh_admin_passwords={},
        tljh_authenticator_options={},
        tljh_https={"cert": "/etc/ssl/hub.crt", "key": "/etc/ssl/hub.key"},
    )
    assert done.returncode == 0, said(done)
    assert "proven: [3, 12] login False gpus 1" in said(done)
    assert "made-up" not in said(done)
    host.run_expect([0], "grep made-up /opt/tljh/user/.condarc && rm /opt/tljh/user/.condarc")
    fetch = (
        "import ssl, urllib.request as r; c = ssl._create_unverified_context();"
        'print(r.urlopen("{}", context=c).read().decode())'
    )
    assert "Username" in host.check_output(f"python3 -c '{fetch.format('https://127.0.0.1/hub/signup')}'")
    assert "Sign In" in host.check_output(f"python3 -c '{fetch.format('http://127.0.0.1/hub/login')}'")


def test_packages_come_from_the_index_that_is_asked_for(apply: Apply, host: Host) -> None:
    done = apply(tljh_hub_packages=["iniconfig"], tljh_pip_index_url="http://127.0.0.1:9/simple")
    assert done.returncode == 2, said(done)
    assert host.run("/opt/tljh/hub/bin/python -c 'import iniconfig'").rc == 1


@pytest.mark.long
def test_users_of_the_host_log_in_and_the_proof_leaves_no_account(apply: Apply, host: Host) -> None:
    """And a hub that has lost the package which shares the GPUs out has it again."""
    host.run_expect([0], "rm -r /opt/cudahub/jupyterhub_gpus; systemctl restart jupyterhub")
    done = apply(
        tljh_authenticator="pam",
        tljh_admin_passwords={},
        tljh_authenticator_options={"allow_all": True},
    )
    assert done.returncode == 0, said(done)
    assert "proven: [3, 12] login False gpus 1" in said(done)
    assert "cudahub-check" not in host.file("/etc/passwd").content_string


@pytest.mark.long
def test_an_interrupted_upgrade_goes_on(apply: Apply, host: Host, hub: Ask) -> None:
    """The first attempt finds another run that installs, and the second no package index."""
    newer = "/srv/standin/newer"
    files = f"$(grep -lF 2.0.0 {newer}/pyproject.toml {newer}/setup.py)"
    host.run_expect([0], f"rm -rf {newer}; cp -r /srv/standin/source {newer}; sed -i 's/2[.]0[.]0/2.0.9/' {files}")
    options = {"tljh_version": "2.0.9", "tljh_source": newer, "tljh_settings": {"https": {"enabled": False}}}
    host.run_expect([0], "systemd-run --unit=other-run flock /opt/tljh/cudahub/lock sleep 600")
    done = apply(**options, tljh_upgrade=True)
    host.run_expect([0], "systemctl stop other-run")
    assert done.returncode == 2, said(done)
    assert "another run installs into it: wait until that has ended, and run this again" in said(done)
    assert "is upgraded from 2.0.0 to 2.0.9" in said(done)
    done = apply(**options, tljh_upgrade=True, tljh_pip_index_url="http://127.0.0.1:9/simple")
    assert done.returncode == 2, said(done)
    assert "pip could not install The Littlest JupyterHub on hub" in said(done)
    done = apply(**options)
    assert done.returncode == 0, said(done)
    assert "proven: [3, 12] login True gpus 1" in said(done)
    assert hub("login", "ada", "engine: no. 1")["status"] == 200
    assert json.loads(host.file("/opt/tljh/cudahub/installed").content_string)["version"] == "2.0.9"
    assert "changed=0" in said(apply(**options))
