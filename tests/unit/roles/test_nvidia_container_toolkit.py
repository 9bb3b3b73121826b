# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which engines role nvidia_container_toolkit configures, and what it makes of old ones and of wrong options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLE = Path(__file__).resolve().parents[3] / "roles/nvidia_container_toolkit"
NEW = {"docker": "26.1.5", "podman": "5.4.2"}
HAS_CDI = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}, "features": {"cdi": True}}
STATE = "/var/lib/cudahub/container-toolkit"
NO_CDI = {"runtimes": HAS_CDI["runtimes"]}


def case(has: str, versions: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    """The variables of a host that has these engines."""
    rows = [f"{name} {version}" for name, version in (NEW if versions is None else versions).items()]
    return {
        "_nvidia_container_toolkit_looked": {"stdout_lines": ["0", *(f"has {name}" for name in has.split())]},
        "_nvidia_container_toolkit_versions_asked": {"stdout_lines": rows},
        **{f"nvidia_container_toolkit_{name}": value for name, value in options.items()},
    }


HOSTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "found": (case("docker podman containerd"), {"names": ["docker", "podman"], "wanted": HAS_CDI, "old": []}),
    "containerd": (case("containerd crio", {}), {"names": ["containerd", "crio"]}),
    "asked": (case("docker podman", engines=["podman"]), {"names": ["podman"], "missing": []}),
    "text": (case("docker", engines="docker,docker:anna"), {"names": ["docker", "docker:anna"], "users": ["anna"]}),
    "auto_text": (case("podman", engines="auto"), {"names": ["podman"], "mistakes": ""}),
    "missing": (case("docker", engines=["crio", "docker"]), {"missing": ["crio"]}),
    "brought": (case("podman", docker_source="distro"), {"names": ["podman", "docker"], "missing": []}),
    "rootless_of_none": (case("podman", engines=["docker:anna"], docker_source="distro"), {"missing": ["docker"]}),
    "no_group": (case("podman", docker_users=["anna"]), {"groupless": ["anna"]}),
    "group_of_a_docker_that_is_not_brought": (
        case("podman", docker_users=["anna"], engines=["podman"], docker_source="distro"),
        {"groupless": ["anna"]},
    ),
    "group": (case("docker podman", docker_users=["anna"], engines=["podman"]), {"groupless": []}),
    "group_to_be": (case("podman", docker_users=["anna"], docker_source="distro"), {"groupless": []}),
    "old": (
        case("docker podman", {"docker": "20.10.24", "podman": "4.3.1"}),
        {"old": ["docker", "podman"], "wanted": NO_CDI, "flag": True},
    ),
    "between": (case("docker", {"docker": "25.0.3"}), {"old": ["docker"], "wanted": HAS_CDI}),
    "config": (
        case("docker", docker_config={"live-restore": True, "features": {"buildkit": False}}),
        {"wanted": {**HAS_CDI, "live-restore": True, "features": {"cdi": True, "buildkit": False}}},
    ),
    "rootless": (
        {**case("docker", engines=["docker:anna"]), "_nvidia_container_toolkit_engine": "docker:anna"},
        {"wanted": {**HAS_CDI, "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi", f"{STATE}/rootless"]}},
    ),
    "unknown": (case("docker", engines=["dockr"]), {"mistakes": "nvidia_container_toolkit_engines names dockr"}),
    "both": (case("docker", engines=["auto", "podman"]), {"mistakes": "nvidia_container_toolkit_engines is ["}),
    "none": (case("docker", engines=[]), {"mistakes": "nvidia_container_toolkit_engines is []"}),
    "version": (case("docker", version="1.18"), {"mistakes": "nvidia_container_toolkit_version is '1.18'"}),
    "fingerprint": (
        case("docker", repository_key_fingerprint="C95B"),
        {"mistakes": "nvidia_container_toolkit_repository_key_fingerprint is 'C95B'"},
    ),
    "timeout": (case("docker", verify_timeout=0), {"mistakes": "nvidia_container_toolkit_verify_timeout is 0: give"}),
    "login": (
        case("docker", repository_url="https://me:secret@mirror"),
        {"mistakes": "A URL of a repository is none, or has a user name"},
    ),
}
ANSWER = {
    "names": "{{ _nvidia_container_toolkit_names }}",
    "missing": "{{ _nvidia_container_toolkit_missing }}",
    "users": "{{ _nvidia_container_toolkit_users }}",
    "groupless": "{{ _nvidia_container_toolkit_groupless }}",
    "old": "{{ _nvidia_container_toolkit_old_engines }}",
    "wanted": "{{ _nvidia_container_toolkit_docker_wanted }}",
    "flag": "{{ 'no-additional-gids' in _nvidia_container_toolkit_generate | join(' ') }}",
    "mistakes": "{{ _nvidia_container_toolkit_mistakes | default('', true) | trim }}",
}


def ask(
    folder: Path, hosts: dict[str, dict[str, Any]], answer: dict[str, str], **variables: str
) -> dict[str, dict[str, Any]]:
    """What the role's variables say on each host."""
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {"ansible.builtin.set_fact": {"_nvidia_container_toolkit_gpu": "{{ facts | default({}) }}", **variables}},
        {
            "ansible.builtin.copy": {
                "content": "{{ answer | to_json }}",
                "dest": f"{folder}/{{{{ inventory_hostname }}}}.json",
                "mode": "0600",
            },
            "delegate_to": "localhost",
            "vars": {"answer": answer},
        },
    ]
    # As a role's, the defaults give way to the hosts' variables.
    role = folder / "roles/defaults_only/defaults"
    role.mkdir(parents=True)
    (role / "main.yml").write_text((ROLE / "defaults/main.yml").read_text())
    (folder / "ansible.cfg").touch()
    play = {"hosts": "all", "gather_facts": False, "roles": ["defaults_only"], "tasks": tasks}
    (folder / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", folder / "hosts.json", folder / "play.yml"],
        env={**os.environ, "ANSIBLE_CONFIG": str(folder / "ansible.cfg")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in hosts}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What they say of engines and options."""
    return ask(tmp_path_factory.mktemp("engines"), {name: given for name, (given, _expected) in HOSTS.items()}, ANSWER)


@pytest.mark.parametrize("name", HOSTS)
def test_engines_and_mistakes(answers: dict[str, dict[str, Any]], name: str) -> None:
    expected = HOSTS[name][1]
    if "mistakes" not in expected:
        assert answers[name]["mistakes"] == ""
    for key, value in expected.items():
        if key == "mistakes" and value:
            assert answers[name][key].startswith(value)
        else:
            assert answers[name][key] == value


IMPORT = '"/etc/containerd/conf.d/*.toml"'
CRI = 'plugins."io.containerd.grpc.v1.cri"'
SITE = f"# The site.\nversion = 2 # new\n\n[{CRI}]\n  enable_selinux = true\n"
IMPORTING = SITE.replace("new\n", f"new\nimports = [{IMPORT}]\n")
OTHERS = 'version = 3\nimports = [\n  "/site/*.toml",\n]\n[debug]\nlevel = "warn"\n'
RUNC = '.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
# As the toolkit writes it, before 1.18.
NVIDIA = (
    f'    [{CRI}.containerd.runtimes.nvidia]\n      runtime_type = "x"\n\n'
    f'      [{CRI}.containerd.runtimes.nvidia.options]\n        BinaryName = "y"\n'
)


def file(main: str, version: str = "1.18.1", engine: str = "containerd", **recorded: str) -> dict[str, Any]:
    """The variables of a host whose engine has this configuration."""
    texts = {"main": main, **recorded}
    rows = [{"item": name, "content": b64encode(text.encode()).decode()} for name, text in texts.items()]
    return {
        "_nvidia_container_toolkit_engine": engine,
        "_nvidia_container_toolkit_ctk_version": {"stdout": f"NVIDIA Container Toolkit CLI version {version}"},
        "_nvidia_container_toolkit_ctk_slurped": {"results": rows},
    }


# What `crio config` prints, comments and all, and what the toolkit makes of a file without the default runtime.
CRIO = """[crio.runtime]

# default_runtime is the _name_ of the OCI runtime to be used as the default.
{}default_runtime = "{}"

[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
monitor_path = "{}"
monitor_env = [
\t"PATH=/usr/bin",
]

[crio.runtime.runtimes.runc]
monitor_path = "/other/conmon"

[crio.image]
"""
DROP_IN = '[crio.runtime.runtimes.nvidia]\n        runtime_path = "/usr/bin/nvidia-container-runtime"\n'
CONMON = '        monitor_path = "/usr/libexec/crio/conmon"\n'


def crio(commented: str, default: str, monitor: str, drop_in: str = DROP_IN) -> dict[str, Any]:
    """The variables of a host whose CRI-O has this configuration."""
    brought = [{}, {"content": b64encode(drop_in.encode()).decode()}]
    return {
        **file("", engine="crio"),
        "_nvidia_container_toolkit_ctk_heeded": {"stdout": CRIO.format(commented, default, monitor)},
        "_nvidia_container_toolkit_ctk_brought": {"results": brought},
    }


# What is the user's, what the main file is to be, and what the toolkit works on.
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "first": (file(SITE), {"user": SITE, "importing": IMPORTING, "source": f"{SITE}\n[{CRI}{RUNC}"}),
    "again": (file(IMPORTING, user=SITE, written=IMPORTING), {"user": SITE, "importing": IMPORTING}),
    "edited": (
        file(IMPORTING.replace("true", "false"), user=SITE, written=IMPORTING),
        {"user": SITE.replace("true", "false"), "importing": IMPORTING.replace("true", "false")},
    ),
    "none": (
        file(""),
        {"user": "", "importing": f"version = 2\nimports = [{IMPORT}]\n", "source": f"version = 2\n\n[{CRI}{RUNC}"},
    ),
    "comment": (file("# None.\n"), {"importing": f"# None.\nversion = 2\nimports = [{IMPORT}]\n"}),
    "imports": (
        file(OTHERS),
        {
            "importing": OTHERS.replace("[\n", f"[{IMPORT}, \n", 1),
            "source": f'{OTHERS}\n[plugins."io.containerd.cri.v1.runtime"{RUNC}',
        },
    ),
    "imports_edited": (
        file(OTHERS.replace("[\n", f"[{IMPORT}, \n", 1) + "# more\n", user=OTHERS, written="x"),
        {"user": f"{OTHERS}# more\n"},
    ),
    "own_import": (file(IMPORTING), {"user": IMPORTING, "importing": IMPORTING}),
    "own_import_edited": (
        file(f"{IMPORTING}# more\n", user=IMPORTING, written=IMPORTING),
        {"user": f"{IMPORTING}# more\n", "importing": f"{IMPORTING}# more\n"},
    ),
    "old": (file(SITE, "1.17.8"), {"drops_in": False, "command": "--config=W/config.toml --cdi.enabled"}),
    "old_edited": (
        file(f"{SITE}{NVIDIA}[debug]\n", "1.17.8", user=SITE, written="x"),
        {"user": f"{SITE}[debug]\n"},
    ),
    # A runtime of that name that was there before is the user's.
    "own_runtime_edited": (
        file(f"{SITE}{NVIDIA}[debug]\n", user=f"{SITE}{NVIDIA}", written="x"),
        {"user": f"{SITE}{NVIDIA}[debug]\n"},
    ),
    "no_version": (
        file('disabled_plugins = ["cri"]\n'),
        {"drops_in": False, "command": "--config=W/config.toml --drop-in-config= --cdi.enabled"},
    ),
    "has_runc": (file(f"{SITE}[{CRI}{RUNC}"), {"source": f"{SITE}[{CRI}{RUNC}"}),
    "new": (file(SITE), {"command": "--config=W/config.toml --drop-in-config=W/99-nvidia.toml --cdi.enabled"}),
    "crio": (
        file("[crio]\n", engine="crio"),
        {"source": "[crio]\n", "command": "--config=W/config.toml --drop-in-config=W/99-nvidia.toml"},
    ),
    "crio_conmon": (crio("", "crun", "/usr/libexec/crio/conmon"), {"drop_in": DROP_IN + CONMON}),
    "crio_conmon_by_default": (
        crio("# ", "runc", "/x"),
        {"drop_in": DROP_IN + CONMON.replace("/usr/libexec/crio", "/other")},
    ),
    "crio_conmon_of_another": (crio("", "crun", ""), {"drop_in": DROP_IN}),
    "crio_conmon_there": (crio("", "crun", "/x", DROP_IN + CONMON), {"drop_in": DROP_IN + CONMON}),
    "crio_without_a_default": (crio("", "kata", "/x"), {"drop_in": DROP_IN}),
    # CRI-O had drop-ins before the toolkit knew of them.
    "crio_old": (file("[crio]\n", "1.17.8", "crio"), {"drops_in": True, "command": "--config=W/99-nvidia.toml"}),
}
TEXTS = {
    "user": "{{ _nvidia_container_toolkit_ctk_user }}",
    "importing": "{{ _nvidia_container_toolkit_ctk_importing }}",
    "source": "{{ _nvidia_container_toolkit_ctk_source }}",
    "drops_in": "{{ _nvidia_container_toolkit_ctk_drops_in }}",
    "drop_in": (
        "{{ _nvidia_container_toolkit_ctk_dropped if _nvidia_container_toolkit_ctk_brought is defined else '' }}"
    ),
    "command": (
        "{{ _nvidia_container_toolkit_ctk_command[4:] | join(' ') | replace(_nvidia_container_toolkit_ctk_work, 'W') }}"
    ),
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What they say of configurations of containerd and CRI-O."""
    return ask(tmp_path_factory.mktemp("texts"), {name: given for name, (given, _expected) in FILES.items()}, TEXTS)


@pytest.mark.parametrize("name", FILES)
def test_what_the_user_has_for_containerd_stays(texts: dict[str, dict[str, Any]], name: str) -> None:
    """And is known again, without what the toolkit put in, also where the user changed it since."""
    expected = FILES[name][1]
    assert {key: texts[name][key] for key in expected} == expected


def gpus(*changes: tuple[Any, ...]) -> dict[str, Any]:
    """The variables of a host with a GPU in MIG mode and another one, with changes of its facts."""
    instance = {"uuid": "MIG-1", "device_nodes": ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"]}
    mig = {"uuid": "GPU-a", "device_nodes": ["/dev/nvidia0"], "mig": {"enabled": True, "instances": [instance]}}
    plain = {"uuid": "GPU-b", "device_nodes": ["/dev/nvidia1"], "mig": {"enabled": False, "instances": []}}
    facts: dict[str, Any] = {"driver": {"version": "580"}, "gpus": [mig, plain], "count": 2, "pynvml": "13"}
    for *path, last, value in changes:
        place: Any = facts
        for key in path:
            place = place[key]
        place[last] = value
    return {**case("docker"), "facts": facts}


MIG_1 = ("gpus", 0, "mig", "instances")
CHANGED = {
    "same": gpus(),
    "driver": gpus(("driver", "version", "590")),
    "layout": gpus((*MIG_1, [])),
    "capability": gpus((*MIG_1, 0, "device_nodes", ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21"])),
    "minors": gpus(("gpus", 0, "device_nodes", ["/dev/nvidia1"]), ("gpus", 1, "device_nodes", ["/dev/nvidia0"])),
    "mode": gpus(("gpus", 0, "mig", {"enabled": False, "instances": []})),
}


def test_another_layout_or_order_of_gpus_is_described_anew(tmp_path: Path) -> None:
    says = {"inputs": "{{ _nvidia_container_toolkit_inputs }}", "uuids": "{{ _nvidia_container_toolkit_uuids }}"}
    found = ask(tmp_path, {"before": gpus(), **CHANGED}, says)
    assert found["before"] == found["same"]
    assert len({found[name]["inputs"] for name in CHANGED}) == len(CHANGED)
    assert (found["same"]["uuids"], found["mode"]["uuids"]) == (["GPU-b", "MIG-1"], ["GPU-a", "GPU-b"])


TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
LOCK = "nvidia-container-toolkit-0:1.18.1-1"
REST = [f"{name}-0:1.18.1-1.*" for name in TOOLKIT[1:]]
LOCKED: dict[str, tuple[list[str], list[str], list[str]]] = {
    # Entries, those of them that are to go, packages that are to be held.
    "held": ([f"{LOCK}.*", *REST], [f"{LOCK}.*", *REST], []),
    "by_architecture": ([f"{LOCK}.x86_64", *REST], [f"{LOCK}.x86_64", *REST], []),
    "another_version": (
        ["nvidia-container-toolkit-0:1.17.8-1.*", *REST],
        ["nvidia-container-toolkit-0:1.17.8-1.*", *REST],
        ["nvidia-container-toolkit-1.18.1-1"],
    ),
    "excluded": (["!nvidia-container-toolkit-0:1.18.0-1.*", f"{LOCK}.*", *REST], [f"{LOCK}.*", *REST], []),
    "of_others": (["bash-0:5.2-1.*", "nvidia-container-toolkit-extra-0:1-1.*", f"{LOCK}.*", *REST],
                  [f"{LOCK}.*", *REST], []),
}  # fmt: skip


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What they say of entries of dnf's versionlock."""
    hosts = {
        name: {
            "_nvidia_container_toolkit_asked": {
                "stdout_lines": [f"{one} 1.18.1-1 install installed" for one in TOOLKIT]
            },
            "_nvidia_container_toolkit_locked": {"rc": 0, "stdout_lines": entries},
        }
        for name, (entries, _go, _loose) in LOCKED.items()
    }
    answer = {"go": "{{ _nvidia_container_toolkit_locks }}", "loose": "{{ _nvidia_container_toolkit_loose }}"}
    return ask(tmp_path_factory.mktemp("locks"), hosts, answer)


@pytest.mark.parametrize("name", LOCKED)
def test_what_a_user_has_excluded_stays_and_what_is_held_is_not_held_again(
    locked: dict[str, dict[str, Any]], name: str
) -> None:
    """The plugin deletes no entry with a !, and would add it a second time."""
    _entries, go, loose = LOCKED[name]
    assert locked[name] == {"go": go, "loose": loose}


def test_a_docker_that_is_not_installed_takes_nothing_of_the_toolkit_away(tmp_path: Path) -> None:
    """One task writes the keys of both repositories, in a play that has the role twice, too."""
    keys = "/etc/apt/keyrings"
    written = {"changed": True, "dest": f"{keys}/cudahub-nvidia-container-toolkit.asc"}
    docker = {"changed": True, "dest": f"{keys}/cudahub-docker.asc"}
    hosts: dict[str, dict[str, Any]] = {
        name: {"_nvidia_container_toolkit_key_written": key}
        for name, key in {"toolkit": written, "docker": docker, "skipped": {"changed": False}}.items()
    }
    hosts["none"] = {}
    answer = {"written": "{{ _nvidia_container_toolkit_docker_written | map(attribute='dest') }}"}
    paths = {"_nvidia_container_toolkit_docker_file": "/x", "_nvidia_container_toolkit_docker_key": docker["dest"]}
    found = {name: one["written"] for name, one in ask(tmp_path, hosts, answer, **paths).items()}
    assert found == {"toolkit": [], "docker": [docker["dest"]], "skipped": [], "none": []}


def test_entries_of_dockers_repository_are_those_of_this_url_alone(tmp_path: Path) -> None:
    """A mirror may have NVIDIA's below the same address."""
    url = "https://mirror.example.org"
    answer = {"pattern": "{{ _nvidia_container_toolkit_docker_entries }}"}
    hosts = {"box": {"_nvidia_container_toolkit_docker_repository": {"path": "debian"},
                     "nvidia_container_toolkit_docker_repository_url": url}}  # fmt: skip
    pattern = ask(tmp_path, hosts, answer)["box"]["pattern"]
    lines = {
        f"deb [signed-by=/x] {url}/debian trixie stable": True,
        f"URIs: {url}/debian/": True,
        f"# deb {url}/debian trixie stable": False,
        f"URIs: {url}/stable/deb/amd64": False,
        f"deb {url}/debian-extra trixie stable": False,
        "deb https://mirrorXexample.org/debian trixie stable": False,
    }
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(["grep", "-E", pattern], input=text, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [line for line, found in lines.items() if found]


@pytest.mark.parametrize(
    ("engine", "said", "version"),
    [
        ("docker", "Docker version 26.1.5+dfsg1, build a72d7cd", "26.1.5"),
        ("podman", "podman version 5.4.2", "5.4.2"),
        ("containerd", "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1", "1.7.24"),
        ("containerd", "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7", "2.1.4"),
        ("containerd", "containerd github.com/containerd/containerd/v2 2.1.9+unknown ", "2.1.9"),
        ("containerd", "containerd containerd.io v2.1.5 fcd43222d6b07379a4be9786bda52438f0dd16a1", "2.1.5"),
        ("crio", "crio version 1.37.0\n  GitCommit: 1.2\n  GoVersion: go1.26.1", "1.37.0"),
        ("crio", "crio version unknown", "0"),
    ],
)
def test_the_version_of_an_engine(tmp_path: Path, engine: str, said: str, version: str) -> None:
    """The path of containerd 2 has a 2 in it."""
    (asks, *_refusals) = yaml.safe_load((ROLE / "tasks/versions.yml").read_text())
    head, _brace, rest = asks["ansible.builtin.shell"]["cmd"].partition("{{")
    program = tmp_path / {"docker": "dockerd"}.get(engine, engine)
    program.write_text(f"#!/bin/sh\ncat << 'END'\n{said}\nEND\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", head + engine + rest.partition("}}")[2]],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{engine} {version}\n"
