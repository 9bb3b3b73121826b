# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""demo.py up|down: two hosts with simulated GPUs, and site.yml of the built and installed collection run on them.

The hosts are containers. What the demo makes is in .cache/demo, in Docker, and in .cache/demo/made.json where it is
neither. It needs apt, Python 3.11 or newer, and root or sudo.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".cache" / "demo"
RECORD = STATE / "made.json"
LOG = STATE / "demo.log"
DOCKERD_LOG = STATE / "dockerd.log"
KEY = STATE / "id_ed25519"
BIN = STATE / "venv" / "bin"
CHECKOUT = hashlib.sha256(str(ROOT).encode()).hexdigest()[:6]
PREFIX = f"cudahub-demo-{CHECKOUT}"
LABEL = f"cudahub.gpu.demo={CHECKOUT}"
SOCKETS = Path("/tmp") / PREFIX  # ssh's control sockets need a short path
SYSTEMD = Path("/run/systemd/system")
HOSTS = ("node1", "node2")
PYTHONS = ("3.13", "3.12", "3.14", "3.11")
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL")
# Where --privileged is refused, systemd still runs with these.
RESTRICTED = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--device-cgroup-rule", "c 195:* rmw"),
)

Command = Sequence["str | Path"]


class DemoError(Exception):
    """The demo can't go on; the message is one sentence that says what to do."""


def main() -> int:
    """Run the command and turn a DemoError into a message."""
    if len(sys.argv) != 2 or sys.argv[1] not in ("up", "down"):
        print("Usage: demo.py up|down", file=sys.stderr)
        return 2
    try:
        up() if sys.argv[1] == "up" else down()
    except DemoError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; make demo goes on, make demo-down removes what was made.", file=sys.stderr)
        return 130
    return 0


def up() -> None:
    """Bring the demo up, or what is missing of it, and run the playbook."""
    check_machine()
    STATE.mkdir(parents=True, exist_ok=True)
    LOG.write_text("", encoding="utf-8")
    install_packages()
    docker = start_docker()
    make_venv()
    install_collection()
    image = make_image(docker)
    start_hosts(docker, image)
    write_configuration(docker)
    with step("Putting simulated GPUs into the hosts"):
        logged([BIN / "ansible-playbook", ROOT / "demo" / "simulate.yml"], env=ansible_environment())
    print("==> Running ansible-playbook cudahub.gpu.site (tasks that change nothing are not shown)", flush=True)
    done = subprocess.run([BIN / "ansible-playbook", "cudahub.gpu.site"], env=ansible_environment(), check=False)
    if done.returncode != 0:
        raise DemoError("site.yml failed; its message is above.")
    print(f"\nNext, for real hosts in the group gpu_nodes of an inventory: {next_command()}")


def next_command() -> str:
    """The command that does on real hosts what the demo did on simulated ones."""
    collections, playbook = os.path.relpath(STATE / "collections"), os.path.relpath(BIN / "ansible-playbook")
    environment = f"ANSIBLE_COLLECTIONS_PATH={collections} ANSIBLE_CALLBACKS_ENABLED=cudahub.gpu.gpu_table"
    return f"{environment} {playbook} -i INVENTORY cudahub.gpu.site"


def down() -> None:
    """Remove all that the demo made."""
    record = read_record()
    if record.get("containers") or record.get("image"):
        docker = start_docker()
        with step("Removing the hosts"):
            ids = output([*docker, "ps", "--all", "--quiet", "--filter", f"label={LABEL}"]).split()
            if ids:
                logged([*docker, "rm", "--force", "--volumes", *ids])
        image = record.get("image")
        if image and output([*docker, "images", "--quiet", image]):
            with step("Removing the image"):
                logged([*docker, "rmi", image])
        write_record(containers=False, image=None)
    stop_docker(read_record())
    packages = record.get("packages")
    shutil.rmtree(STATE, ignore_errors=True)
    shutil.rmtree(SOCKETS, ignore_errors=True)
    print("The demo is gone.")
    if packages:
        print(f"These packages it installed are still there: {' '.join(packages)} (apt-get remove takes them away).")


# The machine


def check_machine() -> None:
    """Refuse a machine on which the demo can't work, before anything is changed."""
    if shutil.which("apt-get") is None:
        raise DemoError("this machine has no apt-get; the demo needs Debian, Ubuntu or a relative of theirs.")
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise DemoError("you are not root and there is no sudo; run make demo as root, or install sudo.")
    if sys.version_info < (3, 11) and find_python() is None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise DemoError(f"Python {version} is too old for Ansible; install Python 3.11 or newer, then try again.")


def root_command() -> list[str]:
    """What goes before a command that must run as root."""
    return [] if os.geteuid() == 0 else ["sudo", f"--preserve-env={','.join((*PASSED_ON, 'SSL_CERT_FILE'))}"]


def find_python() -> str | None:
    """A Python that Ansible runs on and that can make virtual environments."""
    done = subprocess.run(
        [ROOT / "tests" / "tools" / "find-python", *PYTHONS], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout.strip() or None


def install_packages() -> None:
    """Install what is missing of the commands that the demo calls."""
    needed = []
    if find_python() is None:
        needed.append(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv")
    if shutil.which("docker") is None or shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        needed.append("docker.io")
    if shutil.which("ssh") is None:
        needed.append("openssh-client")
    if "MOLECULE_IMAGE_DEBIAN13" not in os.environ and shutil.which("mmdebstrap") is None:
        needed += ["mmdebstrap", "debian-archive-keyring"]
    if not needed:
        return
    with step(f"Installing {', '.join(needed)} with apt-get (up to a minute)"):
        apt = [*root_command(), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
        logged([*apt, "update"])
        logged([*apt, "install", "--yes", "--no-install-recommends", *needed])
        record = read_record()
        write_record(packages=sorted({*record.get("packages", []), *needed}))
        if "docker.io" in needed and SYSTEMD.is_dir():
            write_record(docker="systemd")  # the package starts its service
    if find_python() is None:
        raise DemoError(f"Python can't make virtual environments although {needed[0]} was installed; see {LOG}.")


def start_docker() -> list[str]:
    """The docker command, with an engine that answers: one that runs, or one that is started and remembered."""
    for docker in (["docker"], [*root_command(), "docker"]):
        if shutil.which("docker") and answers(docker):
            return docker
    docker = [*root_command(), "docker"]
    with step("Starting Docker"):
        STATE.mkdir(parents=True, exist_ok=True)
        if SYSTEMD.is_dir():
            logged([*root_command(), "systemctl", "start", "docker"])
            write_record(docker="systemd")
        else:
            with DOCKERD_LOG.open("w", encoding="utf-8") as log:
                subprocess.Popen(
                    [*root_command(), "dockerd", "--pidfile", STATE / "dockerd.pid"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            write_record(docker="process")
        if not waits_for(lambda: answers(docker), seconds=60):
            hint = "see journalctl -u docker" if SYSTEMD.is_dir() else f"its last words are in {DOCKERD_LOG}"
            raise DemoError(f"Docker did not start within a minute; {hint}.")
    return docker


def stop_docker(record: Mapping[str, Any]) -> None:
    """Stop the Docker engine if the demo started it."""
    if record.get("docker") == "systemd":
        with step("Stopping Docker"):
            logged([*root_command(), "systemctl", "stop", "docker.socket", "docker"])
    elif record.get("docker") == "process" and (STATE / "dockerd.pid").exists():
        pid = (STATE / "dockerd.pid").read_text(encoding="utf-8").strip()
        if not dockerd_runs(pid):
            return
        with step("Stopping Docker"):
            logged([*root_command(), "kill", f"-{int(signal.SIGTERM)}", pid])
            if not waits_for(lambda: not dockerd_runs(pid), seconds=30):
                raise DemoError(f"Docker (process {pid}) does not stop; see {DOCKERD_LOG}.")


def dockerd_runs(pid: str) -> bool:
    """Whether this process is a Docker engine, and not only waits to be reaped."""
    status = Path("/proc") / pid / "status"
    try:
        fields = dict(line.split(":\t", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields["Name"] == "dockerd" and not fields["State"].startswith(("Z", "X"))


# The controller


def make_venv() -> None:
    """Make the virtual environment with ansible-core."""
    with step("Making sure of Ansible in a virtual environment (10 s the first time)"):
        logged([ROOT / "tests" / "tools" / "venv", STATE / "venv", ROOT / "demo" / "requirements.txt", *PYTHONS])


def install_collection() -> None:
    """Build the collection's artefact, and install it as a user would."""
    with step("Building the collection and installing it"):
        galaxy: list[str | Path] = [BIN / "ansible-galaxy", "collection"]
        environment = {**os.environ, "ANSIBLE_HOME": str(STATE / "ansible")}
        logged([*galaxy, "build", "--force", "--output-path", STATE, ROOT], env=environment)
        (artefact,) = STATE.glob("cudahub-gpu-*.tar.gz")
        # What it depends on is for roles that the demo doesn't use, and would come from Galaxy.
        install = [*galaxy, "install", "--no-deps", "--force", "--collections-path", STATE / "collections", artefact]
        logged(install, env=environment)
        artefact.unlink()


def write_configuration(docker: list[str]) -> None:
    """Write ansible.cfg, and how Ansible reaches the hosts."""
    hosts = {}
    for host in HOSTS:
        published = output([*docker, "port", f"{PREFIX}-{host}", "22/tcp"]).split()[0]
        hosts[host] = {"ansible_host": "127.0.0.1", "ansible_port": int(published.rpartition(":")[2])}
    variables = {"ansible_user": "root", "ansible_ssh_private_key_file": str(KEY)}
    inventory = {"all": {"hosts": hosts, "vars": {**variables, "ansible_python_interpreter": "/usr/bin/python3"}}}
    (STATE / "known_hosts").unlink(missing_ok=True)
    (STATE / "connection.json").write_text(json.dumps(inventory, indent=2), encoding="utf-8")
    SOCKETS.mkdir(mode=0o700, exist_ok=True)
    lines = (
        "[defaults]",
        f"inventory = {ROOT / 'demo' / 'hosts.yml'},{STATE / 'connection.json'}",
        f"collections_path = {STATE / 'collections'}",
        f"home = {STATE / 'ansible'}",
        "callbacks_enabled = cudahub.gpu.gpu_table",
        "display_ok_hosts = false",
        "display_skipped_hosts = false",
        "inject_facts_as_vars = false",
        "[connection]",
        "pipelining = true",
        "[ssh_connection]",
        f"control_path_dir = {SOCKETS}",
        f"ssh_common_args = -o UserKnownHostsFile={STATE / 'known_hosts'} -o StrictHostKeyChecking=accept-new",
    )
    (STATE / "ansible.cfg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def ansible_environment() -> dict[str, str]:
    """The environment for Ansible's commands, free of the caller's Ansible settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return {**environment, "ANSIBLE_CONFIG": str(STATE / "ansible.cfg")}


# The hosts


def make_image(docker: list[str]) -> str:
    """The name of the image, which is built if it is not there yet."""
    with step("Making sure of the Debian 13 image (a minute the first time)"):
        before = set(output([*docker, "images", "--quiet", "--no-trunc"]).split())
        prefix = root_command() if docker[0] == "sudo" or os.geteuid() else []
        image = output([*prefix, ROOT / "tests" / "images" / "build", "debian13"]).strip()
        if output([*docker, "images", "--quiet", "--no-trunc", image]).strip() not in before:
            write_record(image=image)
    return image


def start_hosts(docker: list[str], image: str) -> None:
    """Start the containers that do not run yet, with an SSH server that takes the demo's key."""
    running = output([*docker, "ps", "--filter", f"label={LABEL}", "--format", "{{.Names}}"]).split()
    missing = [host for host in HOSTS if f"{PREFIX}-{host}" not in running]
    if not missing:
        return
    if not KEY.exists():
        logged(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", PREFIX, "-f", KEY])
    with step(f"Starting {', '.join(missing)} with an SSH server (20 s)"):
        write_record(containers=True)
        probe = subprocess.run(
            [*docker, "run", "--rm", "--privileged", image, "true"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        privileges = ["--privileged"] if probe.returncode == 0 else list(RESTRICTED)
        for host in missing:
            start_host(docker, image, host, privileges)


def start_host(docker: list[str], image: str, host: str, privileges: list[str]) -> None:
    """Start one container, or start it again, and let the demo's key in."""
    name = f"{PREFIX}-{host}"
    if name in output([*docker, "ps", "--all", "--format", "{{.Names}}"]).split():
        logged([*docker, "start", name])
    else:
        command = [*docker, "run", "--detach", "--name", name, "--hostname", host, "--label", LABEL]
        command += [*privileges, "--cgroupns=host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw"]
        command += ["--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec", "--env", "container=docker"]
        command += [argument for name in PASSED_ON if name in os.environ for argument in ("--env", name)]
        logged([*command, "--publish", "127.0.0.1::22", "--stop-signal", "SIGRTMIN+3", image, "/lib/systemd/systemd"])
    inside = [*docker, "exec", "--interactive", name]
    booted = [*inside, "systemctl", "is-system-running", "--wait"]
    if not waits_for(lambda: output(booted, check=False).strip() in ("running", "degraded"), seconds=60):
        raise DemoError(f"systemd does not come up in the container {name}; see docker logs {name}.")
    if subprocess.run([*inside, "test", "-x", "/usr/sbin/sshd"], check=False).returncode != 0:
        logged([*inside, "apt-get", "-qq", "update"])
        install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", "openssh-server"]
        logged([*inside, "env", "DEBIAN_FRONTEND=noninteractive", *install])
    logged([*inside, "install", "-d", "-m", "700", "/root/.ssh"])
    key = KEY.with_suffix(".pub").read_text(encoding="utf-8")
    logged([*inside, "sh", "-c", "umask 077; cat >/root/.ssh/authorized_keys"], text_in=key)


# Small tools


@contextmanager
def step(text: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    print(f"==> {text} ...", end="", flush=True)
    start = time.monotonic()
    try:
        yield
    except BaseException:
        print(flush=True)
        raise
    print(f" {time.monotonic() - start:.0f} s", flush=True)


def logged(command: Command, *, text_in: str | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command with its output in the log, of which the end is shown if it fails."""
    words = [str(word) for word in command]
    with LOG.open("a", encoding="utf-8") as log:
        print(f"$ {' '.join(words)}", file=log, flush=True)
        done = subprocess.run(
            words, input=text_in, stdout=log, stderr=subprocess.STDOUT, text=True, env=env, check=False
        )
    if done.returncode != 0:
        tail = "\n".join(LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
        raise DemoError(f"this failed with status {done.returncode}: {' '.join(words)}\n{tail}\nAll of it is in {LOG}")


def output(command: Command, *, check: bool = True) -> str:
    """What a command prints; its errors go to the log."""
    words = [str(word) for word in command]
    with LOG.open("a", encoding="utf-8") as log:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    if check and done.returncode != 0:
        raise DemoError(f"this failed with status {done.returncode}: {' '.join(words)}; see {LOG}")
    return done.stdout


def answers(docker: list[str]) -> bool:
    """Whether a Docker engine answers this command."""
    done = subprocess.run([*docker, "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def waits_for(condition: Callable[[], bool], seconds: int) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


def read_record() -> dict[str, Any]:
    """What the demo has made so far that is not in its folder."""
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return record


def write_record(**made: object) -> None:
    """Remember what was made."""
    RECORD.write_text(json.dumps({**read_record(), **made}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
