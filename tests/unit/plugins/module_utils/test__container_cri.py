# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods of containerd and CRI-O: no network but the host's, nothing downloaded, nothing left, each its own output."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _container_cri as cri
from ansible_collections.cudahub.gpu.plugins.module_utils._container_gpus import (
    Ended,
    EngineError,
    EngineGoneError,
    TimeLimitError,
)

INFO = {"config": {"sandboxImage": "pause:1", "containerd": {"runtimes": {"runc": {"options": None}}}}}

# As of containerd 2.
DUMP = """
[plugins]
  [plugins.'io.containerd.cri.v1.images']
    sandbox = 'another'
    [plugins.'io.containerd.cri.v1.images'.pinned_images]
      other = 'one'
      sandbox = 'registry.k8s.io/pause:3.10'
    [plugins.'io.containerd.cri.v1.images'.registry]
"""


class Crictl:
    """Answers as the command does, by its first word, and notes what it was asked for."""

    def __init__(self, **answers: tuple[int, str, str] | Exception) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.limits: list[float] = []
        self.answers: dict[str, tuple[int, str, str] | Exception] = {
            "info": (0, json.dumps(INFO), ""),
            "runtime-config": (0, "cgroup driver:   CGROUPFS\n", ""),
            "runp": (0, "pod1\n", "level=warning msg=..."),
            "create": (0, "one\n", ""),
            "inspect": (0, json.dumps({"status": {"state": "CONTAINER_EXITED", "exitCode": 3}}), ""),
            "logs": (0, "said\n", ""),
            "pods": (0, "pod1\n", ""),
            **{name.replace("_", "-"): answer for name, answer in answers.items()},
        }

    def __call__(self, command: t.Sequence[str], timeout: float) -> tuple[int, str, str]:
        assert timeout > 0
        self.limits.append(timeout)
        if command[0] == "containerd":
            return 0, DUMP, ""
        socket = "unix:///sock"
        assert list(command[:5]) == ["crictl", "--runtime-endpoint", socket, "--image-endpoint", socket]
        self.asked.append(tuple(command[7:]))
        answer = self.answers.get(command[7], (0, "", ""))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def engine(self, folder: Path) -> cri.Cri:
        return cri.Cri("crictl", "/sock", str(folder), self, ["containerd", "config", "dump"])


def read(path: Path) -> t.Any:
    return json.loads(path.read_text())


def test_a_container_runs_alone_in_a_pod_that_is_removed(tmp_path: Path) -> None:
    crictl = Crictl()
    assert crictl.engine(tmp_path).run("image", "GPU-a", "print(1)", 5) == Ended(3, "said\n")
    words = [asked[0] for asked in crictl.asked]
    assert words == ["info", "runtime-config", "inspecti", "runp", "create", "start", "inspect", "logs", "pods", "rmp"]
    assert crictl.asked[4][:3] == ("create", "--no-pull", "pod1")
    assert crictl.asked[-1] == ("rmp", "--force", "pod1")
    pod, container = read(tmp_path / "pod.json"), read(tmp_path / "container.json")
    assert pod["linux"] == container["linux"] == {"security_context": {"namespace_options": {"network": 2, "pid": 1}}}
    assert container["CDI_devices"] == [{"name": "nvidia.com/gpu=GPU-a"}]
    assert (container["command"], container["mounts"]) == (["python3", "-c", "print(1)"], [])


def test_what_one_container_says_is_not_taken_for_another_one(tmp_path: Path) -> None:
    """The engine appends to a file that is there."""
    engine, paths = Crictl().engine(tmp_path), set()
    for gpu in ("GPU-a", "GPU-b"):
        engine.run("image", gpu, "", 5)
        paths.add((read(tmp_path / "pod.json")["log_directory"], read(tmp_path / "container.json")["log_path"]))
    assert len(paths) == 2


def test_without_an_image_it_is_that_of_sandboxes_with_folders_of_the_host(tmp_path: Path) -> None:
    engine = Crictl().engine(tmp_path)
    (tmp_path / "root/usr").mkdir(parents=True)
    image = engine.bring(str(tmp_path / "root"))
    engine.run(image, "GPU-a", "", 5)
    container = read(tmp_path / "container.json")
    assert (container["image"], container["command"][0]) == ({"image": "pause:1"}, "/usr/bin/python3")
    assert container["mounts"] == [
        {"host_path": f"{tmp_path}/root/usr", "container_path": "/usr", "selinux_relabel": True}
    ]


def test_a_sandbox_that_would_be_downloaded_is_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(cri.MissingImageError, match=r"has no image pause:1 .*, and nothing is downloaded") as raised:
        Crictl(inspecti=(1, "", "no such image")).engine(tmp_path)
    assert raised.value.image == "pause:1"


@pytest.mark.parametrize(
    ("options", "config", "parent"),
    [
        (None, (1, "", "Unimplemented"), None),
        ({"SystemdCgroup": True}, (1, "", "Unimplemented"), "system.slice"),
        (None, (0, "cgroup driver:   SYSTEMD\n", ""), "system.slice"),
        ({"SystemdCgroup": True}, (0, "cgroup driver:   CGROUPFS\n", ""), None),
    ],
)
def test_systemd_wants_a_slice(
    tmp_path: Path, options: dict[str, bool] | None, config: tuple[int, str, str], parent: str | None
) -> None:
    info = {"config": {"containerd": {"defaultRuntimeName": "a", "runtimes": {"a": {"options": options}}}}}
    engine = Crictl(info=(0, json.dumps(info), ""), runtime_config=config).engine(tmp_path)
    engine.run("image", "GPU-a", "", 5)
    assert read(tmp_path / "pod.json")["linux"].get("cgroup_parent") == parent


def test_a_refusal_leaves_no_pod_and_is_said_in_the_words_of_the_engine(tmp_path: Path) -> None:
    crictl = Crictl(create=(1, "", "creating container: unresolvable CDI devices\n nvidia.com/gpu=GPU-a"))
    with pytest.raises(EngineError, match="unresolvable CDI devices nvidia"):
        crictl.engine(tmp_path).run("image", "GPU-a", "", 5)
    assert crictl.asked[-1] == ("rmp", "--force", "pod1")


def test_of_what_crictl_says_the_error_is_the_reason(tmp_path: Path) -> None:
    said = """time="2026-11-30T06:12:42Z" level=warning msg="Config \\"/etc/crictl.yaml\\" does not exist"
E1130 06:12:42.788144 378 remote_runtime.go:237] "RunPodSandbox from runtime service failed" err="runc create failed"
time="2026-11-30T06:12:42Z" level=error msg="run pod sandbox: exec: \\"runc\\": not there"
"""
    with pytest.raises(EngineError, match=r'^run pod sandbox: exec: "runc": not there$'):
        Crictl(runp=(1, "", said)).engine(tmp_path).run("image", "GPU-a", "", 5)


def test_a_container_that_hangs_leaves_no_pod(tmp_path: Path) -> None:
    crictl = Crictl(inspect=(0, json.dumps({"status": {"state": "CONTAINER_RUNNING", "exitCode": 0}}), ""))
    with pytest.raises(TimeLimitError):
        crictl.engine(tmp_path).run("image", "GPU-a", "", 0.1)
    assert crictl.asked[-1] == ("rmp", "--force", "pod1")


def test_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    said = 'level=error msg="validate service connection: ... dial unix /sock: connect: no such file or directory"'
    with pytest.raises(EngineGoneError, match="validate service connection"):
        Crictl(info=(1, "", said)).engine(tmp_path)


@pytest.mark.parametrize(
    ("trouble", "raises"),
    [
        ({"inspect": (0, json.dumps({"status": {"state": "CONTAINER_EXITED", "exitCode": 137}}), "")}, False),
        ({"start": (1, "", 'code = NotFound desc = could not find container "one": not found')}, True),
        ({"create": (1, "", "sandbox pod1 is not ready")}, True),
    ],
)
def test_a_pod_that_a_kubelet_ends_is_run_again(
    tmp_path: Path, trouble: dict[str, tuple[int, str, str]], raises: bool
) -> None:
    """It ends pods that are not its own after some seconds; what fails each time is said."""
    crictl = Crictl(**trouble)
    engine = crictl.engine(tmp_path)
    if raises:
        with pytest.raises(EngineError):
            engine.run("image", "GPU-a", "", 5)
    else:
        assert engine.run("image", "GPU-a", "", 5).code == cri.KILLED
    assert [asked[0] for asked in crictl.asked].count("runp") == cri.ATTEMPTS
    assert [asked[0] for asked in crictl.asked].count("rmp") == cri.ATTEMPTS


def test_containerd_2_says_elsewhere_what_the_image_of_sandboxes_is(tmp_path: Path) -> None:
    crictl = Crictl(info=(0, json.dumps({"config": {}}), ""))
    engine = crictl.engine(tmp_path)
    (tmp_path / "root").mkdir()
    assert engine.bring(str(tmp_path / "root")) == "registry.k8s.io/pause:3.10"
    assert crictl.asked[-1] == ("inspecti", "--quiet", "registry.k8s.io/pause:3.10")


def test_the_image_of_sandboxes_in_a_file_of_version_2_counts() -> None:
    """Containerd 2.0 prints it beside what would be there without it."""
    older = """  [plugins.'io.containerd.grpc.v1.cri']\n    sandbox_image = "site/pause:1"\n"""
    assert cri.pinned_sandbox_image(DUMP + older) == cri.pinned_sandbox_image(older + DUMP) == "site/pause:1"
    assert cri.pinned_sandbox_image("") == cri.pinned_sandbox_image("[x.pinned_images]\n[y]\nsandbox = 'a'\n") == ""


def test_an_engine_that_does_not_say_what_the_image_of_sandboxes_is(tmp_path: Path) -> None:
    with pytest.raises(cri.MissingImageError, match="does not say what is the image for the sandboxes of pods"):
        cri.Cri("crictl", "/sock", str(tmp_path), Crictl(info=(0, "{}", "")))


@pytest.mark.parametrize("word", ["info", "runtime-config", "inspecti"])
def test_an_engine_that_hangs_is_one_that_does_not_answer(tmp_path: Path, word: str) -> None:
    with pytest.raises(EngineGoneError, match=r"^crictl gave no answer for 70 s$"):
        Crictl(**{word: TimeLimitError()}).engine(tmp_path)


@pytest.mark.parametrize("said", ["", "oops\n", "[]", "null", '{"config": null}', '{"config": {"containerd": [1]}}'])
def test_garbage_of_info_is_a_sentence(tmp_path: Path, said: str) -> None:
    with pytest.raises(EngineError, match=r"crictl info printed what is no JSON|does not say what"):
        cri.Cri("crictl", "/sock", str(tmp_path), Crictl(info=(0, said, "")))


@pytest.mark.parametrize(
    "said", ["oops", "{}", "[]", '{"status": []}', '{"status": {"state": 3}}', '{"status": {"exitCode": 0}}']
)
def test_garbage_of_a_container_is_a_sentence_and_leaves_no_pod(tmp_path: Path, said: str) -> None:
    crictl = Crictl(inspect=(0, said, ""))
    with pytest.raises(EngineError, match=r"crictl inspect (printed what is no JSON|says no state of the container): "):
        crictl.engine(tmp_path).run("image", "GPU-a", "", 5)
    assert crictl.asked[-1] == ("rmp", "--force", "pod1")


def test_a_container_has_its_time_once(tmp_path: Path) -> None:
    """Not for each command that it takes."""
    crictl = Crictl(start=TimeLimitError())
    engine = crictl.engine(tmp_path)
    crictl.limits.clear()
    with pytest.raises(TimeLimitError):
        engine.run("image", "GPU-a", "", 5)
    runp, create, start, *_removal = crictl.limits
    assert 5 >= runp > create > start
    assert crictl.asked[-1] == ("rmp", "--force", "pod1")


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"pods": TimeLimitError()}, "crictl gave no answer for 70 s"),
        ({"pods": (1, "", "code = Unavailable")}, "code = Unavailable"),
        ({"rmp": TimeLimitError()}, "crictl gave no answer for 70 s"),
        ({"rmp": (1, "", "device or resource busy")}, "the pod pod1 was not removed: device or resource busy"),
    ],
)
def test_a_pod_that_stays_is_named(tmp_path: Path, trouble: dict[str, t.Any], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        Crictl(**trouble).engine(tmp_path).run("image", "GPU-a", "", 5)


def test_a_pod_that_somebody_else_has_removed_is_gone(tmp_path: Path) -> None:
    crictl = Crictl(rmp=(1, "", "code = NotFound desc = an error occurred when try to find sandbox: not found"))
    assert crictl.engine(tmp_path).run("image", "GPU-a", "", 5) == Ended(3, "said\n")
