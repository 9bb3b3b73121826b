# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Descriptions of images become Containerfiles, and what can't be right is said with the image and the key."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.plugins.plugin_utils._dl_images import (
    Build,
    Download,
    Kept,
    Settings,
    failure,
    logical_lines,
    plan,
    superfluous,
)

SHA = "sha256:" + "a" * 64
TABLE = {
    "pytorch": {
        "pythons": ["3.12", "3.13"],
        "cuda": {"13": {"lock": "pt.txt", "version": "2.15.0", "bytes": 3_000_000_000}},
    },
    "tensorflow": {
        "pythons": ["3.13"],
        "cuda": {"12": {"lock": "tf.txt", "version": "2.21.0"}, "cpu": {"lock": "tfc.txt", "version": "2.21.0"}},
    },
}
FILES = {
    "locks/pt.txt": "torch==2.15.0 \\\n    --hash=sha256:1\ncupy-cuda13x==14.2.0 \\\n    --hash=sha256:2\n",
    "locks/tf.txt": "tensorflow[and-cuda]==2.21.0 \\\n    --hash=sha256:3\n",
    "locks/tfc.txt": "tensorflow==2.21.0 \\\n    --hash=sha256:3\n",
    "own.txt": "# mine\nsix==1.17.0 \\\n    --hash=sha256:4  # why\n",
    "loose.txt": "six==1.17.0\nrequests>=2\n",
    "half.txt": "six==1.17.0 \\\n    --hash=sha256:4\ntoolz==1.0.0\n",
    "bare.txt": "# with --hash=sha256:4 it would be better\nsix==1.17.0\n",
    "secret.txt": "--index-url https://me:made-up-word@pypi.example.org/simple\nsix==1.17.0\n",
    "env.yml": "dependencies:\n  - python=3.13\n  - cupy=14\n",
    "broken.yml": "dependencies: [python\n",
    "list.yml": "- python\n",
    "no_python.yml": "dependencies: [numpy=2, {pip: [six==1.17.0]}]\n",
}
SETTINGS = Settings(
    base="python:{python}-slim",
    python="3.13",
    cuda="13",
    frameworks=TABLE,
    files={"check.py": "check", "entrypoint": "entry"},
    micromamba=Download("https://example.org/micromamba", SHA),
    examples=Download("https://example.org/examples.tar.gz", SHA),
)


def read(name: str) -> str:
    """Return the text of a file that the controller has."""
    try:
        return FILES[name]
    except KeyError:
        raise FileNotFoundError(2, "No such file or directory") from None


def built(settings: Settings = SETTINGS, **described: Any) -> Build:
    """Return the build of a description that is right."""
    builds, mistakes = plan([{"name": "train", **described}], settings, read)
    assert mistakes == []
    return builds[0]


def test_pytorch() -> None:
    build = built(framework="pytorch", tag="v1", examples=True, apt=["git"])
    text = build.files["Containerfile"]
    # Also of a base image with a user of its own, root prepares this one.
    assert text.startswith("FROM python:3.13-slim\nUSER 0:0\n")
    assert text.index(" pytorch 3.12 3.13\n") < text.index("--require-hashes")
    assert "--no-install-recommends 'git'" in text
    assert "pip install --require-hashes --requirement /run/build/requirements.txt" in text
    assert build.files["requirements.txt"] == FILES["locks/pt.txt"]
    assert f"ADD --checksum={SHA} https://example.org/examples.tar.gz" in text
    assert "USER 1000:1000" in text
    assert 'CMD ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser"]' in text
    assert "EXPOSE 8888" in text
    assert 'ENV CUDAHUB_CHECKS="nvml"' in text
    assert 'LABEL "org.opencontainers.image.version"="2.15.0"' in text
    assert text.endswith(f'LABEL org.cudahub.digest="{build.digest}"\n')
    assert "# syntax=" not in text
    short = build.digest[:12]
    assert build.references == (f"train:{short}", "train:v1")
    assert build.candidate == f"train:{short}-unproven"
    assert (build.cuda, build.cupy) == ("13", True)
    assert build.download_bytes == 3_000_000_000


def test_own_requirements_and_words_of_the_shell() -> None:
    build = built(
        replace(SETTINGS, cuda="cpu", prefix="registry.example.org/team/"),
        requirements="own.txt",
        command=["python3", "-c", "print('$HOME')"],
        environment={"GREETING": 'say "$x"'},
        pip=["toolz==1.0.0"],
        ports=[8080],
    )
    text = build.files["Containerfile"]
    assert build.repository == "registry.example.org/team/train"
    assert "--require-hashes" in text
    assert "--constraint /run/build/constraints.txt --requirement /run/build/pip.txt" in text
    assert build.files["constraints.txt"] == "six==1.17.0\n"
    assert 'ENV GREETING="say \\"\\$x\\""' in text
    assert """CMD ["python3", "-c", "print('$HOME')"]""" in text
    assert 'ENV CUDAHUB_CHECKS=""' in text
    assert build.cupy is False
    assert build.download_bytes == 0


def test_conda() -> None:
    text = built(conda=["numpy=2.5", "scipy>=1"], command=["bash"]).files["Containerfile"]
    assert f"ADD --checksum={SHA} --chmod=0755 https://example.org/micromamba" in text
    assert "--override-channels --channel conda-forge 'numpy=2.5' 'scipy>=1' 'python=3.13' 'pip'" in text
    assert "-m venv" not in text
    build = built(conda="env.yml", command=["bash"], entrypoint_checks=["cupy"])
    assert build.files["environment.yml"] == FILES["env.yml"]
    assert build.cupy
    assert "target=/root/.mamba/pkgs,sharing=locked" in build.files["Containerfile"]


@pytest.mark.parametrize(("cuda", "told"), [("13", "13.0"), ("12", "12.0"), ("cpu", "")])
def test_conda_is_told_of_the_driver(cuda: str, told: str) -> None:
    """A build sees no GPU: conda would choose what computes on the CPU alone."""
    for conda in (["cupy"], "env.yml"):
        text = built(conda=conda, cuda=cuda, command=["bash"]).files["Containerfile"]
        assert f" CONDA_OVERRIDE_CUDA={told} MAMBA_ROOT_PREFIX=" in text


def test_a_driver_of_cuda_13_runs_what_is_for_12() -> None:
    build = built(framework="tensorflow")
    assert (build.cuda, build.files["requirements.txt"]) == ("12", FILES["locks/tf.txt"])


ONE = {"framework": "pytorch"}


@pytest.mark.parametrize(
    "change",
    [
        {"apt": ["git"]}, {"apt": ["g++", "libc6:arm64=2.41-1~deb13u1"]},
        {"base": "python:3.13-slim-bookworm"}, {"requirements": "own.txt", "command": ["sh"]},
        {"labels": {"a": "b"}},
        {"environment": {"A": "1"}}, {"uid": 2000}, {"ports": [9999]}, {"examples": True}, {"pip": ["six==1.17.0"]},
    ],
)  # fmt: skip
def test_the_digest_covers_each_input(change: dict[str, Any]) -> None:
    assert built(**ONE).digest != built(**{**ONE, **change}).digest


def test_the_digest_covers_the_files_and_not_the_tag() -> None:
    other = replace(SETTINGS, files={**SETTINGS.files, "entrypoint": "another"})
    assert built(**ONE).digest != built(other, **ONE).digest
    assert built(**ONE).digest == built(**ONE, tag="v2").digest
    assert built(**ONE) == built(**ONE)


MISTAKES = [
    ({"framework": "caffe"}, "has framework 'caffe' which is unknown: give one of none, pytorch, tensorflow."),
    ({"framework": "pytorch", "colour": "red"}, "has key colour which no image has"),
    ({"framework": "pytorch", "pip": ["six"]}, "has pip 'six' which is not pinned: give name==version."),
    ({"framework": "pytorch", "pip": ["six==1; rm"], "apt": ["git; rm"]}, "has apt 'git; rm' which is no package"),
    ({"framework": "pytorch", "apt": ["python3-"]}, "has apt 'python3-' which is no package"),
    ({"framework": "pytorch", "apt": ["git=1.0-"]}, "has apt 'git=1.0-' which is no package"),
    ({"framework": "pytorch", "pip": "six==1"}, "has pip 'six==1' which is no list."),
    ({"framework": "pytorch", "base": "python"}, "has base 'python' which is another image tomorrow"),
    ({"framework": "pytorch", "base": "python:" + "latest"}, "which is another image tomorrow"),
    ({"framework": "pytorch", "base": "python:3 AS x"}, "which is no reference of an image"),
    ({"framework": "pytorch", "tag": "latest"}, "has tag 'latest' which names no certain image"),
    ({"framework": "pytorch", "ports": [0]}, "has ports 0 which is no port from 1 to 65535."),
    ({"framework": "pytorch", "ports": ["http"]}, "has ports 'http' which is no port"),
    ({"framework": "pytorch", "ports": []}, "has ports [] and Jupyter needs one"),
    ({"framework": "tensorflow", "cuda": "13"}, "has cuda 13 and there is no list of tensorflow 2.21.0 for it"),
    ({"framework": "pytorch", "cuda": "11"}, "has cuda '11' which is none of 12, 13, cpu."),
    ({"framework": "pytorch", "python": "3.9"}, "has python 3.9 and the list of pytorch 2.15.0 is for 3.12 and 3.13"),
    ({"framework": "pytorch", "python": "3"}, "has python '3' which is no version"),
    ({"framework": "pytorch", "uid": 0}, "has uid 0 which is none of 1 to 60000."),
    ({"framework": "pytorch", "user": "root"}, "has user 'root'"),
    ({"framework": "pytorch", "workspace": "/a/../b"}, "has workspace '/a/../b'"),
    ({"framework": "pytorch", "labels": {"org.cudahub.digest": "x"}}, "which the role itself writes"),
    ({"framework": "pytorch", "environment": {"PATH": "/opt/x:$PATH"}}, "has environment PATH which the role itself"),
    ({"framework": "pytorch", "environment": {"A B": "x"}}, "has environment 'A B'"),
    ({"framework": "pytorch", "environment": {"A": "x\nRUN y"}}, "has environment 'A'"),
    ({"framework": "pytorch", "entrypoint_checks": ["luck"]}, "has entrypoint_checks 'luck'"),
    ({"framework": "tensorflow", "cuda": "cpu", "entrypoint_checks": ["cupy"]}, "and no CuPy"),
    ({"framework": "tensorflow", "examples": True}, "has examples which are PyTorch's"),
    ({"framework": "pytorch", "python": 3.1}, "has python '3.1' which is no version such as \"3.13\" in quotes"),
    ({"framework": "pytorch", "tag": 1.1}, "has tag 1.1 which is no text: write it in quotes."),
    ({"framework": "pytorch", "tag": True}, "has tag True which is no text: write it in quotes."),
    ({"framework": "pytorch", "environment": {"A": None}}, "has environment 'A' which is None: write it in quotes."),
    ({"framework": "pytorch", "environment": {"A": 1.1}}, "has environment 'A' which is 1.1: write it in quotes."),
    ({"framework": "pytorch", "environment": {"A": True}}, "has environment 'A' which is True: write it in quotes."),
    ({"framework": "pytorch", "labels": {"a": ["b"]}}, "has labels 'a' which is ['b']: write it in quotes."),
    ({"framework": "pytorch", "environment": {"CUDAHUB_CHECKS": "x"}}, "which the role itself writes: leave it out."),
    ({"framework": "pytorch", "labels": {"org.cudahub.cuda": "x"}}, "which the role itself writes: leave it out."),
    ({"command": ["sleep", True]}, "has command True which is no word in one line."),
    ({"framework": "pytorch", "examples": "maybe"}, "has examples 'maybe' which is neither true nor false."),
    ({"framework": "pytorch", "workspace": "/etc"}, "has workspace '/etc' which belongs to the system"),
    ({"framework": "pytorch", "workspace": "/usr/lib/mine"}, "has workspace '/usr/lib/mine' which belongs to the"),
    ({"framework": "pytorch", "workspace": "/tmp/"}, "has workspace '/tmp/' which belongs to the system"),
    ({"framework": "pytorch", "workspace": "/home//"}, "has workspace '/home//' which belongs to the system"),
    ({"framework": "pytorch", "workspace": "/opt/cudahub/x"}, "has workspace '/opt/cudahub/x' which belongs to"),
    ({"framework": "pytorch", "workspace": "/./etc"}, "has workspace '/./etc'"),
    ({"framework": "pytorch", "requirements": "own.txt"}, "has requirements own.txt without jupyterlab and no command"),
    (
        {"command": ["sh"], "requirements": "half.txt"},
        "has requirements half.txt with hashes, and none for 'toolz==1.0.0': give all or none.",
    ),
    ({"command": ["sh"], "requirements": "secret.txt"}, "with '--index-url https://***@pypi.example.org/simple'"),
    ({"command": ["sh"], "conda": "broken.yml"}, "has conda broken.yml which is no YAML: line 2"),
    ({"command": ["sh"], "conda": "list.yml"}, "has conda list.yml which has no list of dependencies"),
    ({"command": ["sh"], "conda": "no_python.yml"}, "has conda no_python.yml without python: add it to dependencies."),
    ({"framework": "pytorch", "requirements": "none.txt"}, "can't read: No such file or directory."),
    ({"framework": "pytorch", "requirements": "loose.txt"}, "with 'requests>=2', which is not pinned"),
    ({}, "has framework none and no command"),
    ({"command": ["bash"], "entrypoint_checks": ["framework"]}, "give of nvml, cupy"),
]  # fmt: skip


@pytest.mark.parametrize(("described", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(described: dict[str, Any], sentence: str) -> None:
    builds, mistakes = plan([{"name": "train", **described}], SETTINGS, read)
    assert builds == []
    assert any(sentence in one for one in mistakes), mistakes
    assert all(one.startswith("dl_images_images: image train has ") and one.endswith(".") for one in mistakes)
    assert len(mistakes) == 1 or "rm" in str(described)


@pytest.mark.parametrize("name", ["Train", "a b", "-x", "a//b", "", "a" * 129])
def test_names_that_no_registry_takes(name: str) -> None:
    builds, mistakes = plan([{**ONE, "name": name}], SETTINGS, read)
    assert builds == []
    assert "which no registry takes" in mistakes[0]


@pytest.mark.parametrize("name", ["library/train", "docker.io/me/train", "index.docker.io/library/train"])
def test_names_that_docker_shortens(name: str) -> None:
    """Two images would be one: library/train and train have each other's tags."""
    for prefix in ("", "docker.io/"):
        builds, mistakes = plan([{**ONE, "name": name}], replace(SETTINGS, prefix=prefix), read)
        assert builds == []
        assert f"name '{name}' which Docker has under another name: leave docker.io/ and library/ out" in mistakes[0]
    build = built(replace(SETTINGS, prefix="harbor.example.org/"), **{**ONE, "name": "library/train"})
    assert build.repository == "harbor.example.org/library/train"


def test_two_images_of_one_name_and_one_that_is_none() -> None:
    builds, mistakes = plan([{**ONE, "name": "a"}, {**ONE, "name": "a"}, "b"], SETTINGS, read)
    assert builds == []
    assert mistakes == [
        "dl_images_images: entry 3 is 'b', which is no description of an image.",
        "dl_images_images: name a is given to 2 images: give each image its own.",
    ]


def test_what_settings_lack() -> None:
    bare = Settings(base="python:{python}-slim", python="3.13", cuda="", frameworks=TABLE)
    described = [
        {"name": "a", "conda": ["x"], "command": ["sh"]},
        {"name": "b", "framework": "pytorch", "examples": True},
    ]
    _builds, mistakes = plan(described, bare, read)
    assert [("micromamba" in one, "dl_images_cpu_only" in one, "check them by" in one) for one in mistakes] == [
        (True, False, False), (False, True, False), (False, True, False), (False, False, True),
    ]  # fmt: skip


def test_why_there_is_no_cuda_to_choose() -> None:
    settings = replace(SETTINGS, cuda="", no_cuda="its driver is absent")
    _builds, mistakes = plan([{"name": "a", "framework": "pytorch"}], settings, read)
    assert [one.partition(" has ")[2] for one in mistakes] == [
        "no cuda and none to choose, as its driver is absent: give cuda, or set dl_images_cpu_only to true."
    ]


@pytest.mark.parametrize("have", [(3, 11), (3, 13)])
def test_a_list_is_for_some_versions_of_python(have: tuple[int, int]) -> None:
    """Else pip would say that there is no such distribution."""
    text = built(framework="pytorch").files["Containerfile"]
    command = next(line for line in text.splitlines() if "sys.version_info" in line).removeprefix("RUN ")
    program, *words = shlex.split(command)[2:]
    pretended = program.replace("import sys;", f"import sys; sys.version_info = {have};")
    done = subprocess.run([sys.executable, "-c", pretended, *words], capture_output=True, text=True, check=False)
    if have == (3, 13):
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert done.returncode == 1
    assert "because it has Python 3.11, and the list of pytorch is for 3.12 and 3.13: give another base, or" in failure(
        "train", f"#9 0.1 {done.stderr}", 1
    )
    own = built(requirements="own.txt", command=["sh"]).files["Containerfile"]
    assert "version_info" not in own


def test_hashes_in_a_comment_are_none() -> None:
    assert "--require-hashes" not in built(requirements="bare.txt", command=["sh"]).files["Containerfile"]


@pytest.mark.parametrize("given", ["no", "false", False, "off"])
def test_no_is_no_however_it_is_written(given: object) -> None:
    assert built(framework="pytorch", examples=given).digest == built(framework="pytorch").digest


def test_builds_of_several_runs_do_not_meet() -> None:
    """Another description of the same image would be built under this one's digest."""
    builds = [
        built(replace(SETTINGS, run=run), framework="pytorch", uid=uid)
        for uid, run in ((1, "a1"), (2, "a2"), (2, "a3"))
    ]
    assert builds[0].place != builds[1].place
    assert len({build.candidate for build in builds}) == 3
    assert builds[1].reference == builds[2].reference
    assert builds[2].candidate == f"{builds[2].reference}-a3-unproven"
    for build in builds:
        listed = [Kept("id", build.name, build.digest, 1, (build.candidate,))]
        assert superfluous(listed, set(), {"train": ""}, keep=0) == [build.candidate]


def test_images_with_alike_names_have_places_of_their_own() -> None:
    described = [{**ONE, "name": name} for name in ("a", "a/entrypoint", "a_entrypoint", "a--entrypoint")]
    builds, _mistakes = plan(described, SETTINGS, read)
    places = [build.place for build in builds]
    assert len(set(places)) == 4
    assert not any("/" in place for place in places)


def test_lines_of_requirements() -> None:
    text = "# head\na==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    text += "    # via b\nb==2 ; python_version < '3' \\\n  --hash=sha256:3\n"
    assert logical_lines(text) == ["a==1", "b==2 ; python_version < '3'"]


@pytest.mark.parametrize(
    ("log", "status", "why"),
    [
        ("#9 0.5 cp: write error: No space left on device\nERROR: failed to solve", 1, "the disk of Docker is full"),
        (
            "ERROR: failed to solve: x: failed to resolve source metadata for docker.io/x",
            1,
            "its base image can't be had",
        ),
        ("#8 1.1 ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", 1, "is not the one that requirements names"),
        ("#8 1.1 ERROR: No matching distribution found for six==9", 1, "a Python distribution can't be had"),
        ("ERROR: failed to solve: Canceled: context canceled", 1, "it was interrupted: run the role again"),
        ("#5 0.7 E: Unable to locate package nosuch", 1, "a package of the distribution can't be had: correct apt"),
        ("#5 0.7 E: Version '9' for 'git' was not found", 1, "a package of the distribution can't be had: correct apt"),
        (
            "#5 0.7 useradd: user 'daemon' already exists",
            1,
            "its base image has a user of that name: give another user",
        ),
        (
            "#5 0.7 useradd: group '1000' does not exist",
            1,
            "its base image has a group of that name: give another user",
        ),
        (
            "ERROR: failed to solve: failed to load cache key: invalid response status 404",
            1,
            "a download can't be had: correct its address",
        ),
        (
            "ERROR: failed to solve: digest mismatch sha256:aa: sha256:bb",
            1,
            "a download is not the one of its checksum: correct its address or checksum",
        ),
        ("#7 0.1 /bin/sh: 1: python3: not found", 1, "its base image has no python3 with venv: give another base, or"),
        ("#7 0.9 created successfully because ensurepip is not", 1, "its base image has no python3 with venv"),
        ("#7 0.1 /usr/bin/python3: No module named venv", 1, "its base image has no python3 with venv"),
        ("#5 0.1 /bin/sh: 1: apt-get: not found", 1, "its base image is none of Debian or Ubuntu: give another base"),
        ("#5 0.1 /bin/bash: line 1: groupadd: command not found", 1, "its base image is none of Debian or Ubuntu"),
        (
            "ERROR: failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF",
            1,
            "Docker stopped meanwhile: see to it, and run the role again",
        ),
        ("#8 building", 143, "it was interrupted"),
        ("ERROR: step", 1, "a step failed"),
    ],
)
def test_why_a_build_failed(log: str, status: int, why: str) -> None:
    sentence = failure("train", log, status)
    assert sentence.startswith("Image train could not be built, because ")
    assert why in sentence
    assert f"Docker said last: {log.splitlines()[0]}" in sentence


FAILED_STEP = """\
#7 [3/6] RUN python3 -m venv /opt/cudahub/venv
#7 CANCELED

#6 [2/6] RUN groupadd
#6 0.512 a warning
#6 ERROR: process "/bin/sh -c groupadd" did not complete successfully: exit code: 9
------
 > [2/6] RUN groupadd:
0.100 first line
0.512 groupadd: cannot lock /etc/group;
0.513 try again later.
------
Containerfile:2
--------------------
   1 |     FROM python-standin:13
   2 | >>> RUN groupadd
--------------------
ERROR: failed to solve: process "/bin/sh -c groupadd" did not complete successfully: exit code: 9
"""


def test_what_the_failing_step_said_is_shown() -> None:
    """Steps that run beside a failing one are canceled: nobody has interrupted the build."""
    sentence = failure("train", FAILED_STEP, 1)
    assert sentence == (
        "Image train could not be built, because a step failed. Docker said last: "
        "first line | groupadd: cannot lock /etc/group; | try again later."
    )


def test_a_full_disk_that_no_program_names() -> None:
    assert "the disk of Docker is full" in failure("train", "Error: ensurepip returned 1", 1, free_bytes=4096)
    assert "a step failed" in failure("train", "Error: ensurepip returned 1", 1, free_bytes=10**9)


def test_a_build_that_takes_too_long() -> None:
    """The builder names the step, and then only that it was canceled."""
    log = f"{FAILED_STEP.splitlines()[0]}\n#7 CANCELED\nERROR: failed to solve: Canceled: context canceled\n"
    assert failure("train", log, 124, timeout=7200) == (
        "Image train could not be built, because it was not done after 7200 seconds: run the role again, which goes "
        "on, or raise dl_images_timeout. Docker said last: #7 [3/6] RUN python3 -m venv /opt/cudahub/venv"
    )


def test_an_empty_log() -> None:
    assert failure("train", "", 1) == "Image train could not be built, because a step failed."


def kept(number: int, name: str = "train", repository: str = "train") -> Kept:
    """Return a build of this role's."""
    digest = str(number) * 64
    return Kept(f"id{number}", name, digest, number, (f"{repository}:{digest[:12]}",))


def test_what_can_go() -> None:
    images = [*map(kept, range(1, 6)), kept(9, "mine", "mine")]
    wanted = {"train": images[1].tags[0]}
    gone = superfluous(images, {"id1"}, wanted, keep=2)
    # The wanted one and the newest stay, and the first, which a container uses; the other image is not ours to judge.
    assert gone == [images[3].tags[0], images[2].tags[0]]
    assert superfluous(images, set(), wanted, keep=9) == []


def test_a_name_that_a_killed_run_left_goes_and_the_image_stays() -> None:
    reference = f"train:{'a' * 12}"
    names = (f"{reference}-b1c2-unproven", reference)
    proven, failed = (
        Kept("id1", "train", "a" * 64, 1, names),
        Kept("id2", "train", "b" * 64, 2, (f"train:{'b' * 12}-unproven",)),
    )
    assert superfluous([proven, failed], {"id1"}, {"train": reference}, keep=2) == [names[0]]
    assert superfluous([proven], set(), {"train": f"train:{'c' * 12}"}, keep=1) == [names[0]]
    assert superfluous([proven], set(), {"train": f"train:{'c' * 12}"}, keep=0) == list(names)


def test_images_that_others_made_of_ours_stay() -> None:
    """An image inherits the labels of its base, so that labels alone don't say whose it is."""
    digest = "a" * 64
    ours = Kept("id1", "train", digest, 1, (f"reg/train:{digest[:12]}", "reg/train:v1", "mine:1", "reg/other/train:v1"))
    theirs = [
        Kept("id2", "train", digest, 2, ("theirs:1",)),
        Kept("id3", "train", digest, 3, ("train:mine",)),
        Kept("id4", "train", digest, 4, ()),
        Kept("id5", "train", "", 5, ("train:",)),
    ]
    assert superfluous([ours, *theirs], set(), {"train": ""}, keep=0) == [f"reg/train:{digest[:12]}", "reg/train:v1"]


def test_docker_hub_is_left_out_of_names_by_docker() -> None:
    old, new = kept(1, repository="me/train"), kept(2, repository="me/train")
    assert superfluous([old, new], set(), {"train": f"docker.io/{old.tags[0]}"}, keep=1) == list(new.tags)
