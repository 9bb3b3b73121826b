# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hub is gone, and what users had is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://all"]
UNITS = ["jupyterhub", "traefik", "jupyter-anna"]
ROLE = Path(__file__).parents[1] / "role.yml"
ARCHIVES = "/var/backups/tljh"
# What is there is what the entry point looks at, and units that sleep.
HUB = """
set -e
mkdir -p /opt/tljh/cudahub /opt/tljh/hub/bin /opt/tljh/user /opt/tljh/config/jupyterhub_config.d
touch /opt/tljh/cudahub/begun /opt/tljh/cudahub/token /opt/tljh/installer.log
echo '# made by role cudahub.gpu.jupyterhub_gpus' >/opt/tljh/config/jupyterhub_config.d/cudahub_gpus.py
cp /bin/sleep /opt/tljh/hub/bin/
service='[Service]\nExecStart=/opt/tljh/hub/bin/sleep 6000\n'
printf "$service" >/etc/systemd/system/traefik.service
printf "[Unit]\nRequires=traefik.service\nAfter=traefik.service\n$service" >/etc/systemd/system/jupyterhub.service
systemctl daemon-reload
systemctl start jupyterhub
groupadd --force jupyterhub-users
id jupyter-anna || useradd --create-home jupyter-anna
gpasswd --add jupyter-anna jupyterhub-users
systemd-run --unit jupyter-anna --uid jupyter-anna sleep 6000
"""
NO_HUB = """
systemctl stop jupyterhub traefik jupyter-anna
rm -rf /opt/tljh /etc/systemd/system/jupyterhub.service /etc/systemd/system/traefik.service
systemctl daemon-reload
groupdel jupyterhub-users
true
"""
Absent = Callable[..., tuple[int, str]]


@pytest.fixture
def absent(play: Callable[..., CompletedProcess[str]]) -> Absent:
    """Return a function that runs the entry point with variables, and returns its code and what it said on one line."""

    def run(*arguments: str, **variables: str) -> tuple[int, str]:
        done = play(ROLE, "-e", json.dumps({"entry": "absent", **variables}), *arguments)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return run


@pytest.fixture
def hub(host: Host) -> Iterator[None]:
    """A hub of the role's with a server of anna's."""
    host.run_expect([0], HUB)
    yield
    host.run_expect([0], NO_HUB)


def pids(host: Host) -> str:
    """What the processes of units are."""
    return host.check_output(f"systemctl show {' '.join(UNITS)} -p MainPID --value")


def archives(host: Host, name: str) -> list[str]:
    """Return the paths of a user's archives, the oldest first."""
    return host.check_output(f"ls {ARCHIVES}/{name}-2*Z.tar.gz").split()


def test_nothing_of_the_hub_is_left(host: Host) -> None:
    for path in (
        "/opt/tljh",
        "/usr/bin/tljh-config",
        "/etc/sudoers.d/jupyterhub-admins",
        "/etc/profile.d/cudahub-tljh.sh",
    ):
        assert not host.file(path).exists
    for unit in ("jupyterhub", "traefik", "jupyter-anna"):
        assert host.check_output(f"systemctl show {unit}.service -p LoadState --value") == "not-found"
    assert not host.file("/etc/cudahub").exists
    assert not host.socket("tcp://0.0.0.0:80").is_listening


def test_check_mode_says_that_a_hub_would_be_installed(host: Host, play: Callable[..., CompletedProcess[str]]) -> None:
    done = play(ROLE, "--check")
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, said
    assert "hub would get The Littlest JupyterHub 2.0.0. What comes after that can't be foreseen in check mode." in said
    assert "changed=1 " in said
    assert not host.file("/opt/tljh").exists


def test_homes_are_archived_and_kept(host: Host) -> None:
    assert host.file("/home/jupyter-anna/hello.ipynb").exists
    assert host.user("jupyter-anna").exists
    assert host.group("jupyterhub-users").exists
    first = archives(host, "jupyter-anna")[0]
    assert host.file(first).mode == 0o600
    assert host.file(ARCHIVES).mode == 0o700
    assert "jupyter-anna/hello.ipynb" in host.check_output(f"tar -tzf {first}")


def test_what_is_somebody_elses_stays(host: Host, absent: Absent) -> None:
    unit = "/etc/systemd/system/traefik.service"
    host.run_expect(
        [0], "mkdir -p /srv/important/cudahub && touch /srv/important/a && groupadd --force jupyterhub-users"
    )
    host.run_expect([0], f"printf '[Service]\\nExecStart=/bin/sleep 600\\n' >{unit}; systemctl start traefik")
    try:
        code, said = absent(tljh_prefix="/srv/important")
        assert code == 2, said
        assert "/srv/important on hub was not made by this role: give the tljh_prefix" in said
        assert "changed=0" in said
        code, said = absent()
        assert code == 0, said
        assert "changed=0" in said
        assert host.file("/srv/important/a").exists
        assert host.service("traefik").is_running
        assert host.group("jupyterhub-users").exists
    finally:
        host.run_expect([0], f"systemctl stop traefik; rm -r {unit} /srv/important; groupdel jupyterhub-users")


@pytest.mark.usefixtures("hub")
def test_check_mode_changes_nothing(host: Host, absent: Absent) -> None:
    before = pids(host)
    code, said = absent("--check", tljh_absent_archive="/srv/none/homes", tljh_absent_users="true")
    assert code == 0, said
    assert "Restart jupyterhub.service" not in said
    assert pids(host) == before
    assert host.file("/opt/tljh/cudahub/begun").exists
    assert host.user("jupyter-anna").exists
    assert not host.file("/srv/none").exists


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("running", [True, False])
def test_archives_that_fail_end_nothing(host: Host, absent: Absent, running: bool) -> None:
    """The file system has room, and no file can be made."""
    host.run_expect([0], "mkdir -p /srv/full; mount -t tmpfs -o size=64m,nr_inodes=1 tmpfs /srv/full")
    if not running:
        host.run_expect([0], "systemctl stop jupyterhub")
    try:
        code, said = absent(tljh_absent_archive="/srv/full", tljh_absent_users="true")
        assert code == 2, said
        assert "The homes of users on hub could not be archived: " in said
        assert (
            "No space left on device. Nothing was taken away or is lost, archives that are whole stay, and hub and"
            in said
        )
        assert host.check_output("ls -A /srv/full") == ""
    finally:
        host.run_expect([0], "umount /srv/full")
    assert host.service("traefik").is_running
    assert host.service("jupyterhub").is_running == running
    assert host.file("/opt/tljh/cudahub/begun").exists
    assert host.user("jupyter-anna").exists


@pytest.mark.usefixtures("hub")
def test_a_run_that_was_killed_is_finished(host: Host, absent: Absent) -> None:
    """It had come to the prefix, and the Python of the hub does not run any more."""
    host.run_expect(
        [0],
        "systemctl stop jupyterhub traefik jupyter-anna;"
        "cd /etc/systemd/system && rm jupyterhub.service traefik.service;"
        "systemctl daemon-reload; groupdel jupyterhub-users;"
        "rm -r /opt/tljh/user /opt/tljh/hub/bin/sleep; ln -s python3 /opt/tljh/hub/bin/python",
    )
    code, said = absent()
    assert code == 0, said
    assert not host.file("/opt/tljh").exists
    code, said = absent()
    assert code == 0, said
    assert "changed=0" in said


@pytest.mark.usefixtures("hub")
def test_archives_of_two_runs_are_both_there(host: Host, absent: Absent) -> None:
    """Of the users, one has her home elsewhere, one has none, and one is none of the hub's; neither is the proxy."""
    host.run_expect(
        [0],
        "echo later >/home/jupyter-anna/later.txt; chmod 750 /var/backups/tljh;"
        "mkdir -p /srv/homes; useradd --create-home --home-dir /srv/homes/bea jupyter-bea;"
        "echo mine >/srv/homes/bea/mine.txt;"
        "ln -s /srv/homes/bea /home/jupyter-bea; usermod --home /home/jupyter-bea jupyter-bea;"
        "useradd --no-create-home jupyter-carl; useradd --create-home jupyter-stranger;"
        "gpasswd --add jupyter-bea jupyterhub-users; gpasswd --add jupyter-carl jupyterhub-users;"
        "systemd-run --unit jupyter-stranger --uid jupyter-stranger sleep 6000;"
        "printf '[Service]\\nExecStart=/bin/sleep 600\\n' >/etc/systemd/system/traefik.service;"
        "systemctl daemon-reload; systemctl restart traefik jupyterhub",
    )
    code, said = absent("-e", f"tljh_absent_users=true tljh_absent_archive={ARCHIVES}")
    assert code == 0, said
    assert "The homes of 2 users of hub are in /var/backups/tljh there, and jupyter-carl had none" in said
    assert "userdel does not remove the home of jupyter-bea on hub" in said
    assert host.file("/srv/homes/bea/mine.txt").exists
    assert "Restart jupyterhub.service" not in said
    of_anna = archives(host, "jupyter-anna")
    first, last = of_anna[0], of_anna[-1]
    assert "hello.ipynb" in host.check_output(f"tar -tzf {first}")
    assert "later.txt" not in host.check_output(f"tar -tzf {first}")
    assert host.check_output(f"tar -xzOf {last} jupyter-anna/later.txt") == "later"
    (other,) = archives(host, "jupyter-bea")
    assert host.check_output(f"tar -xzOf {other} bea/mine.txt") == "mine"
    assert host.file(ARCHIVES).mode == 0o750
    for name in ("jupyter-anna", "jupyter-bea", "jupyter-carl"):
        assert not host.user(name).exists
    assert not host.file("/opt/tljh").exists
    assert not host.group("jupyterhub-users").exists
    for unit in ("jupyter-stranger", "traefik"):
        assert host.service(unit).is_running
    assert host.file("/home/jupyter-stranger").exists
    host.run_expect(
        [0], "systemctl stop jupyter-stranger; userdel -r jupyter-stranger; rm -r /home/jupyter-bea /srv/homes"
    )


@pytest.mark.usefixtures("hub")
def test_a_run_that_installs_is_not_disturbed_and_users_may_go_later(host: Host, absent: Absent) -> None:
    lock = "/opt/tljh/cudahub/lock"
    host.run_expect([0], f"touch {lock}; systemd-run --unit=other-run flock {lock} sleep 600")
    code, said = absent()
    host.run_expect([0], "systemctl stop other-run")
    assert code == 2, said
    assert "Another run installs into /opt/tljh on hub: wait until it has ended, and run this again." in said
    assert host.file(lock).exists
    code, said = absent()
    assert code == 0, said
    assert host.user("jupyter-anna").exists
    code, said = absent(tljh_absent_users="true")
    assert code == 0, said
    assert not host.user("jupyter-anna").exists
    assert not host.file("/home/jupyter-anna").exists
    assert not host.group("jupyterhub-users").exists
