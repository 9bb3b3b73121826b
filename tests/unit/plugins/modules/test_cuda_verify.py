# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module's options, and that it returns what it documents."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu, _verify, _verify_judge
from ansible_collections.cudahub.gpu.plugins.modules import cuda_verify
from ansible_collections.cudahub.gpu.tests.unit.plugins.verify_cases import STANDIN, facts, gpu, mig_gpu

if TYPE_CHECKING:
    from pathlib import Path

Documented = dict[str, dict[str, Any]]
TYPES = {"str": str, "int": int, "float": (int, float), "bool": bool, "dict": dict, "list": list, "raw": object}


class Gathered:
    """What _gpu.gather gives."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def as_dict(self) -> dict[str, Any]:
        return self._found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PYTHONPATH", str(STANDIN))

    def run_module(found: dict[str, Any], **options: Any) -> dict[str, Any]:
        monkeypatch.setattr(_gpu, "gather", lambda _venvs, _timeout, _run: Gathered(found))
        with patch_module_args(options), pytest.raises(SystemExit) as exit_:
            cuda_verify.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert bool(result.get("failed")) == bool(exit_.value.code)
        return result

    return run_module


def check_documented(value: Any, documented: Documented, path: str = "") -> None:
    assert set(value) == set(documented), path
    for name, entry in documented.items():
        found = value[name]
        if found is None:
            continue
        assert isinstance(found, TYPES[entry["type"]]), f"{path}.{name}"
        if "contains" in entry:
            for item in found if entry["type"] == "list" else [found]:
                check_documented(item, entry["contains"], f"{path}.{name}")


@pytest.mark.parametrize("troubles", [{}, {"GPU-0": "wrong_sum", "GPU-1": "wrong_groupby"}, {"GPU-0": "segfault"}])
@pytest.mark.parametrize("simulated", [True, False])
def test_what_is_returned_is_documented(
    run: Any, monkeypatch: pytest.MonkeyPatch, troubles: dict[str, str], simulated: bool
) -> None:
    monkeypatch.setenv("CUPY_STANDIN", json.dumps(troubles))
    result = run(facts(gpu(0), gpu(1), mig_gpu(2), simulated=simulated), python=sys.executable, cudf=True)
    documented = yaml.safe_load(cuda_verify.RETURN)
    assert result["changed"] is False
    check_documented({name: result[name] for name in documented}, documented)
    assert result["verification"]["verified"] is (not simulated and not troubles)
    assert bool(result.get("failed")) is (not simulated and bool(troubles))


@pytest.mark.parametrize("cudf", [True, False])
def test_checks_are_documented(run: Any, cudf: bool) -> None:
    result = run(facts(gpu(0)), python=sys.executable, cudf=cudf)
    (found,) = result["verification"]["gpus"]
    gpus = yaml.safe_load(cuda_verify.RETURN)["verification"]["contains"]["gpus"]
    described = gpus["contains"]["checks"]["contains"]["name"]["description"]
    names = re.findall(r"V\((\w+)\)", described[0])
    assert [check["name"] for check in found["checks"]] == (names if cudf else names[:-1])
    assert names[-1] == "tips_groupby"


def test_checks_of_deeper_levels_are_documented(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_STANDIN_MEMORY", "12")
    nvlink = {"version": "4.0", "links": 18, "active_links": 18, "peers": []}
    second = gpu(1, pci_bus_id="00000000:00:07.0", nvlink=nvlink)
    monkeypatch.setenv("CUPY_STANDIN_BUS_IDS", json.dumps({"GPU-1": second["pci_bus_id"]}))
    result = run(
        facts(gpu(0), second), python=sys.executable, level="thorough", duration=1, memory_margin=1, nvml_venvs=[]
    )
    verification = result["verification"]
    assert verification["verified"] is True, result["msg"]
    assert verification["level"] == "thorough"
    documented = yaml.safe_load(cuda_verify.RETURN)
    check_documented({name: result[name] for name in documented}, documented)
    of_gpus, between = (
        set(re.findall(r"V\((\w+)\)", " ".join(contains["checks"]["contains"]["name"]["description"])))
        for contains in (
            documented["verification"]["contains"]["gpus"]["contains"],
            documented["verification"]["contains"],
        )
    )
    found = {check["name"] for one in verification["gpus"] for check in one["checks"]}
    assert found == of_gpus - {"tips_groupby", "quick", "thorough"}
    assert {check["name"] for check in verification["checks"]} == between - {"visible_gpus"}


def test_documented_thresholds_are_the_defaults() -> None:
    options = yaml.safe_load(cuda_verify.DOCUMENTATION)["options"]["thresholds"]["suboptions"]
    for kind, defaults in (("warn", _verify_judge.WARN), ("fail", _verify_judge.FAIL)):
        text = " ".join(options[kind]["description"])
        found: dict[str, float] = {}
        for share, names in re.findall(r"(0\.\d+) for ((?:V\(\w+\)(?:,? and |, (?=V))?)+)", text):
            found.update(dict.fromkeys(re.findall(r"V\((\w+)\)", names), float(share)))
        assert found == defaults


def test_a_failure_names_all_gpus_that_failed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_STANDIN", json.dumps({"GPU-0": "lost", "GPU-1": "wrong_matmul"}))
    result = run(facts(gpu(0), gpu(1), gpu(2)), python=sys.executable)
    assert result["failed"] is True
    assert result["msg"].startswith("GPUs: 1 passed, 2 failed, in ")
    assert "[gpu_lost] GPU GPU-0 " in result["msg"] or "[no_device_node] GPU GPU-0 " in result["msg"]
    assert "[wrong_result] GPU GPU-1 " in result["msg"]


def test_success_is_one_sentence(run: Any) -> None:
    result = run(facts(gpu(0)), python=sys.executable)
    assert result["msg"].startswith("GPUs: 1 passed, in ")


def test_check_mode_runs_the_work(run: Any) -> None:
    assert run(facts(gpu(0)), python=sys.executable, _ansible_check_mode=True)["verification"]["verified"] is True


def test_a_gpu_that_vanished_after_the_facts(run: Any) -> None:
    result = run(facts(gpu(0), simulated=True), gpus=["GPU-0", "GPU-1"])
    assert result["failed"] is True
    assert [one["verdict"] for one in result["verification"]["gpus"]] == ["simulated", "failed"]
    assert result["verification"]["failure"]["kind"] == "gpu_lost"
    assert "GPU-1" in result["msg"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": "inf"}, "timeout is inf: give a finite number of seconds above 0, at most 86400."),
        ({"timeout": "nan"}, "timeout is nan: give a finite number"),
        ({"timeout": 1e300}, "timeout is 1e+300: give a finite number"),
        ({"gpus": []}, "gpus is an empty list"),
        ({"level": "endless"}, "level"),
        ({"duration": 0}, "duration is 0: give a finite number of seconds above 0, at most 86400."),
        ({"spread": 2}, "spread is 2: give a share between 0 and 1."),
        ({"thresholds": {"warn": {"copy_device": 2}}}, "thresholds.warn.copy_device is 2: give a share of the peak"),
        ({"thresholds": {"slow": {}}}, "slow"),
        ({"level": "standard", "memory_margin": 1 << 20}, "memory_margin is 1048576 MiB, and GPU GPU-0 has 153600 MiB"),
        ({"python": "/a", "conda_prefix": "/b"}, "mutually exclusive"),
        ({"container": {"image": "a"}, "conda_prefix": "/b"}, "mutually exclusive"),
        ({"container": {"image": "a"}, "command_prefix": ["srun"]}, "mutually exclusive"),
        ({"container": {"engine": "docker"}}, "missing required arguments: image found in container"),
        ({"container": {"image": "a", "engine": "lxc"}}, "value of engine must be one of"),
        (
            {"container": {"image": "a", "engine": "podman", "request": "gpus"}},
            "container.request is gpus, which podman doesn't have: set it to cdi.",
        ),
        ({"container": {"image": "a"}, "level": "standard"}, "level is standard, and container gives each process one"),
        (
            {"container": {"image": "a", "engine": "podman", "socket": "/run/a.sock"}},
            "container.socket is Docker's, and the engine is podman: leave it out.",
        ),
    ],
)
def test_options_that_make_no_sense(run: Any, options: dict[str, Any], words: str) -> None:
    result = run(facts(gpu()), **options)
    assert result["failed"] is True
    assert words in result["msg"]
    assert "verification" not in result


def test_conda_environment(run: Any) -> None:
    result = run(facts(gpu()), conda_prefix="/no/such/environment")
    assert "/no/such/environment/bin/python can't be started: No such file or directory" in result["msg"]


def test_default_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_verify, "DEFAULT_PYTHON", str(tmp_path / "python"))
    assert cuda_verify.interpreter(None, None) == sys.executable
    (tmp_path / "python").touch()
    assert cuda_verify.interpreter(None, None) == str(tmp_path / "python")
    assert cuda_verify.interpreter("/a/python", None) == "/a/python"
    assert cuda_verify.interpreter(None, "/b") == "/b/bin/python"


ENGINE = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *"rm --force"*) exit 0 ;; esac
{first}
while [ "$1" != --entrypoint ]; do shift; done
exec "$2" "$4"
"""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that puts a docker on the path, which runs programs here, and returns what it was asked for."""
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(first: str = "") -> Any:
        (tmp_path / "docker").write_text(ENGINE.format(log=log, first=first), encoding="utf-8")
        (tmp_path / "docker").chmod(0o755)
        return lambda: sorted(log.read_text(encoding="utf-8").splitlines())

    return put


def test_each_gpu_in_a_container_that_asked_for_it(run: Any, engine: Any) -> None:
    asked = engine()
    container = {"image": "lab:1", "request": "gpus", "options": ["--user", "1000"]}
    result = run(facts(gpu(0), gpu(1)), python=sys.executable, container=container)
    assert result["verification"]["verified"] is True
    removal, *runs = asked()
    names = []
    for number, words in enumerate(runs):
        found = re.fullmatch(
            r"run --rm --name (\S+) --network none --pull never --env NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            f' --gpus "device=GPU-{number}" --interactive --user 1000 --entrypoint {re.escape(sys.executable)} lab:1 -',
            words,
        )
        assert found, words
        names.append(found[1])
    assert removal == f"rm --force {' '.join(names)}"
    assert len(set(names)) == 2


def test_an_engine_at_another_socket(run: Any, engine: Any) -> None:
    asked = engine("")
    container = {"image": "lab:1", "socket": "/run/user/1000/docker.sock"}
    result = run(facts(gpu(0)), python=sys.executable, container=container)
    assert result["verification"]["verified"] is True
    assert [words.split(" --name ")[0][:49] for words in asked()] == [
        "--host unix:///run/user/1000/docker.sock rm --for",
        "--host unix:///run/user/1000/docker.sock run --rm",
    ]


def test_containers_are_removed_after_the_time_limit(run: Any, engine: Any) -> None:
    asked = engine("sleep 600")
    result = run(facts(gpu(0)), container={"image": "lab:1"}, timeout=2)
    assert result["verification"]["failure"]["kind"] == "timeout"
    removal, ran = asked()
    assert "--device nvidia.com/gpu=GPU-0" in ran
    assert "--entrypoint python3 lab:1 -" in ran
    assert removal.endswith("-GPU-0")


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("docker: Error response from daemon: could not select device driver.", "let role cudahub.gpu.nvidia_"),
        ("docker: Error response from daemon: No such image: lab:1", "build or pull the image on this host first"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "start it, and run the task as a user"),
        ('exec: "python3": executable file not found in $PATH', "see that the image has the interpreter"),
    ],
)
def test_an_engine_that_starts_no_container(run: Any, engine: Any, said: str, advice: str) -> None:
    engine(f"echo '{said}' >&2; exit 125")
    failure = run(facts(gpu(0)), container={"image": "lab:1"})["verification"]["failure"]
    assert failure["kind"] == "container"
    assert f"docker started no container of lab:1 for GPU GPU-0 (00000000:00:06.0) ({said})" in failure["message"]
    assert advice in failure["message"]


def test_a_host_without_the_engine(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    failure = run(facts(gpu(0)), container={"image": "lab:1"})["verification"]["failure"]
    assert failure == {
        "kind": "container",
        "message": "docker can't be started: No such file or directory; install it, or choose another engine.",
    }


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("exit", "in a container of lab:1 "),
        ("no_cupy", "build lab:1 with cupy-cuda13x[ctk]==14.2.0, or give python the path of an interpreter"),
    ],
)
def test_a_program_that_fails_in_a_container(
    run: Any, engine: Any, monkeypatch: pytest.MonkeyPatch, trouble: str, words: str
) -> None:
    if trouble == "exit":
        engine("exit 3")
    else:
        engine("export PYTHONPATH=")
    message = run(facts(gpu(0)), python=sys.executable, container={"image": "lab:1"})["msg"]
    assert words in message
