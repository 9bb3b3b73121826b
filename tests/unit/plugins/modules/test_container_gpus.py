# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module leaves no container and no image, whatever becomes of the container."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils import _container_gpus, _container_image
from ansible_collections.cudahub.gpu.plugins.modules import container_gpus

GPU = "GPU-a"
FOUND = {"nodes": {"nvidia0": "ENXIO"}, "gpus": [GPU], "migs": [], "kind": None, "reason": None}
# Stands for podman: notes what it is asked for, and its containers do what the test says.
PODMAN = """#!{python} -IS
import sys, time
with open({log!r}, "a") as log:
    print(*sys.argv[1:3], file=log)
if sys.argv[1] == "run":
    {run}
"""

Run = t.Callable[..., tuple[int, dict[str, t.Any]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(_container_image, "write", lambda target: target.write(b"tar"))

    def run_module(does: str, **params: t.Any) -> tuple[int, dict[str, t.Any]]:
        program = tmp_path / "podman"
        program.write_text(PODMAN.format(python=sys.executable, log=str(tmp_path / "log"), run=does))
        program.chmod(0o755)
        args = {"engine": "podman", "gpus": [GPU], **params}
        with patch_module_args(args), pytest.raises(SystemExit) as ended:
            container_gpus.main()
        return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

    return run_module


def asked(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "log").read_text().splitlines()]


def test_a_gpu_is_proven(run: Run, tmp_path: Path) -> None:
    rc, result = run(f"print({_container_gpus.MARK + json.dumps(FOUND)!r})")
    assert (rc, result["changed"], result["via"]) == (0, False, "cli")
    assert [proof["ok"] for proof in result["proofs"]] == [True]
    assert asked(tmp_path) == ["import", "run", "rm", "rmi"]


def test_a_failure_names_gpu_and_kind_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    rc, result = run(
        'print("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=GPU-a"); sys.exit(126)'
    )
    assert rc == 1
    assert result["msg"].startswith("Containers of podman do not get the GPUs that they ask for: GPU-a (request): ")
    assert asked(tmp_path) == ["import", "run", "rm", "rmi"]


def test_a_container_that_hangs_is_removed(run: Run, tmp_path: Path) -> None:
    rc, result = run("time.sleep(600)", timeout=2)
    assert (rc, result["proofs"][0]["kind"]) == (1, "timeout")
    assert asked(tmp_path) == ["import", "run", "rm", "rmi"]


def test_an_image_of_the_user_is_neither_made_nor_removed(run: Run, tmp_path: Path) -> None:
    run(f"print({_container_gpus.MARK + json.dumps(FOUND)!r})", image="python")
    assert asked(tmp_path) == ["run", "rm"]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 86401])
def test_a_time_limit_that_is_none(run: Run, tmp_path: Path, timeout: float) -> None:
    """With one that is no number, nothing would end a container that hangs."""
    rc, result = run("pass", timeout=timeout)
    assert (rc, result["msg"].startswith(f"timeout is {timeout:g}: give a finite number of seconds")) == (1, True)
    assert not (tmp_path / "log").exists()


def test_all_but_docker_know_cdi_only(run: Run) -> None:
    for engine in ("podman", "containerd", "crio"):
        rc, result = run("pass", engine=engine, request="gpus")
        assert (rc, result["msg"]) == (1, f"{engine} gives GPUs by CDI only: set request to cdi")


def test_a_host_without_the_engine(run: Run) -> None:
    rc, result = run("pass", engine="docker", via="cli", socket="/nowhere.sock")
    assert rc == 1
    assert result["msg"].startswith("No container can be run by docker: ")


def test_an_engine_that_hangs_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_gpus, "LONGEST_IMPORT", 0.5)
    # Removing the container is what hangs.
    monkeypatch.setattr(f"{__name__}.PODMAN", PODMAN + 'if sys.argv[1] == "rm":\n    time.sleep(600)\n')
    rc, result = run(f"print({_container_gpus.MARK + json.dumps(FOUND)!r})", image="python")
    assert rc == 1
    assert result["msg"].endswith("GPU-a (engine): rm was not done after 0.5 s")


def test_an_image_that_can_not_be_removed_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class APIError(Exception):
        explanation = "conflict: unable to delete"

    def refuse(*_words: str, **_options: t.Any) -> None:
        raise APIError

    ended = {"start": lambda: None, "wait": lambda **_options: {"StatusCode": 1}, "logs": lambda: b"", "remove": refuse}
    client = SimpleNamespace(
        containers=SimpleNamespace(create=lambda *_words, **_options: SimpleNamespace(**ended)),
        images=SimpleNamespace(remove=refuse),
        api=SimpleNamespace(import_image_from_file=lambda *_words, **_options: None),
    )
    docker = SimpleNamespace(
        DockerClient=lambda **_options: client,
        errors=SimpleNamespace(APIError=APIError),
        types=SimpleNamespace(DeviceRequest=dict),
    )
    monkeypatch.setitem(sys.modules, "docker", t.cast("t.Any", docker))
    rc, result = run("pass", engine="docker", via="sdk")
    assert (rc, result["msg"]) == (1, "No container can be run by docker: conflict: unable to delete")


# Stands for crictl: a pod's container says what the test says.
CRICTL = """#!{python}
import json, pathlib, sys
words = sys.argv[7:]
with open({log!r}, "a") as log:
    print(*words[:1], file=log)
if words[0] == "info":
    print(json.dumps({{"config": {{"sandboxImage": "pause:1"}}}}))
elif words[0] == "inspecti":
    sys.exit({lacks})
elif words[0] == "create":
    mounts = json.loads(pathlib.Path(words[3]).read_text())["mounts"]
    assert [path for mount in mounts for path in pathlib.Path(mount["host_path"]).iterdir()]
    print("container")
elif words[0] == "inspect":
    print(json.dumps({{"status": {{"state": "CONTAINER_EXITED", "exitCode": 0}}}}))
elif words[0] == "logs":
    print({says!r})
else:
    print("pod")
"""


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_gpu_is_proven_in_a_pod(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int) -> None:
    places = []

    def unpack(folder: str) -> None:
        places.append(Path(folder).parent)
        Path(folder, "usr/bin").mkdir(parents=True)

    monkeypatch.setattr(_container_image, "unpack", unpack)
    says = _container_gpus.MARK + json.dumps(FOUND)
    program = tmp_path / "crictl"
    program.write_text(CRICTL.format(python=sys.executable, log=str(tmp_path / "log"), lacks=lacks, says=says))
    program.chmod(0o755)
    rc, result = run("", engine="crio")
    if lacks:
        assert (rc, result["missing_image"]) == (1, "pause:1")
        assert asked(tmp_path) == ["info", "runtime-config", "inspecti"]
    else:
        assert (rc, [proof["ok"] for proof in result["proofs"]]) == (0, [True])
        assert asked(tmp_path)[-3:] == ["logs", "pods", "rmp"]
        assert [place.exists() for place in places] == [False]


def test_a_host_without_crictl(run: Run) -> None:
    rc, result = run("", engine="containerd")
    assert (rc, result["msg"]) == (1, "No container can be run by containerd: the host has no crictl")
