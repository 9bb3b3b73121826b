# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Descriptions of images become Containerfiles, and what can't be right is said with the image and the key."""

from __future__ import annotations

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
    "pytorch": {"pythons": ["3.12", "3.13"], "cuda": {"13": {"lock": "pt.txt", "version": "2.15.0"}}},
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
    "env.yml": "dependencies:\n  - cupy=14\n",
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
    assert text.startswith("FROM python:3.13-slim\n")
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


def test_conda() -> None:
    text = built(conda=["numpy=2.5", "scipy>=1"], command=["bash"]).files["Containerfile"]
    assert f"ADD --checksum={SHA} --chmod=0755 https://example.org/micromamba" in text
    assert "--override-channels --channel conda-forge 'numpy=2.5' 'scipy>=1' 'python=3.13' 'pip'" in text
    assert "-m venv" not in text
    build = built(conda="env.yml", command=["bash"], entrypoint_checks=["cupy"])
    assert build.files["environment.yml"] == FILES["env.yml"]
    assert build.cupy


def test_a_driver_of_cuda_13_runs_what_is_for_12() -> None:
    build = built(framework="tensorflow")
    assert (build.cuda, build.files["requirements.txt"]) == ("12", FILES["locks/tf.txt"])


ONE = {"framework": "pytorch"}


@pytest.mark.parametrize(
    "change",
    [
        {"apt": ["git"]}, {"base": "python:3.13-slim-bookworm"}, {"requirements": "own.txt"}, {"labels": {"a": "b"}},
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
    ({"framework": "pytorch", "environment": {"A B": "x"}}, "has environment 'A B'"),
    ({"framework": "pytorch", "environment": {"A": "x\nRUN y"}}, "has environment 'A'"),
    ({"framework": "pytorch", "entrypoint_checks": ["luck"]}, "has entrypoint_checks 'luck'"),
    ({"framework": "tensorflow", "cuda": "cpu", "entrypoint_checks": ["cupy"]}, "and no CuPy"),
    ({"framework": "tensorflow", "examples": True}, "has examples which are PyTorch's"),
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
        ("#8 CANCELED", 1, "it was interrupted: run the role again"),
        ("#8 building", 143, "it was interrupted"),
        ("ERROR: step", 1, "a step failed"),
    ],
)
def test_why_a_build_failed(log: str, status: int, why: str) -> None:
    sentence = failure("train", log, status)
    assert sentence.startswith("Image train could not be built, because ")
    assert why in sentence
    assert f"Docker said last: {log.splitlines()[0]}" in sentence


def test_a_full_disk_that_no_program_names() -> None:
    assert "the disk of Docker is full" in failure("train", "Error: ensurepip returned 1", 1, free_bytes=4096)
    assert "a step failed" in failure("train", "Error: ensurepip returned 1", 1, free_bytes=10**9)


def test_an_empty_log() -> None:
    assert failure("train", "", 1) == "Image train could not be built, because a step failed."


def test_what_can_go() -> None:
    images = [Kept(f"id{number}", "train", number, (f"train:{number}",)) for number in range(1, 6)]
    images.append(Kept("other", "mine", 0, ("mine:1",)))
    gone = superfluous(images, {"id1"}, {"train": "train:2"}, keep=2)
    # The wanted one and the newest stay, and the first, which a container uses; the other image is not ours to judge.
    assert [one.id for one in gone] == ["id4", "id3"]
    assert superfluous(images, set(), {"train": "train:2"}, keep=9) == []
