# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command: what it accepts, what it makes of it, and that it changes only what differs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_host import COMMAND, FILES, RECORDINGS, ROOT, Host, command, plan

MODELS = sorted(path.stem for path in (FILES / "models").glob("*.json"))
PROFILES = sorted(path.stem for path in (FILES / "profiles").glob("*.json"))


@pytest.mark.parametrize("profile", PROFILES)
def test_each_shipped_profile_is_accepted(profile: str) -> None:
    answer = plan(profile=profile)
    assert set(answer["config"]["models"]) == {gpu["model"] for gpu in answer["config"]["gpus"]}


@pytest.mark.parametrize("model", MODELS)
def test_each_model_says_where_it_is_from(model: str) -> None:
    content = json.loads((FILES / "models" / f"{model}.json").read_text(encoding="utf-8"))
    assert content["model"] == model
    assert content["provenance"] in ("recorded", "documented")
    assert content["sources"]
    assert set(content["assumed"]) & set(content["nvml"]) == set()


def test_shipped_recordings_are_what_machines_answered() -> None:
    for model, recording in (("h100-80gb-hbm3", "h100x1"), ("h200", "h200x4")):
        path = str(RECORDINGS / f"{recording}.nvml.json")
        made = json.loads(command("model", path, "--name", model).stdout)
        shipped = json.loads((FILES / "models" / f"{model}.json").read_text(encoding="utf-8"))
        links = [key for key in made["nvml"] if "NvLink" in key]
        assert {key: made["nvml"][key] for key in made["nvml"] if key not in links} == shipped["nvml"]
        assert made["pci"] == {key: value for key, value in shipped["pci"].items() if key != "numa_node"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown profile": ({"profile": "h300"}, "There is no profile 'h300'; the profiles are a100-40gb-mig, "),
    "missing file": ({"profile": "/nowhere/p.json"}, "The profile /nowhere/p.json does not exist."),
    "unknown model": ({"gpus": [{"model": "h300"}]}, "There is no GPU model 'h300'; the models are a100-sxm4-40gb, "),
    "no model": ({"gpus": [{"count": 2}]}, "Each of 'gpus' must be a dictionary with a 'model', not {'count': 2}."),
    "not a dictionary": ({"gpus": ["t4"]}, "Each of 'gpus' must be a dictionary with a 'model', not 't4'."),
    "not a list": ({"gpus": {"model": "t4"}}, "'gpus' must be a list, not {'model': 't4'}."),
    "misspelt": ({"gpus": [{"model": "t4", "mgi": []}]}, "A GPU has no setting mgi."),
    "negative count": (
        {"gpus": [{"model": "t4", "count": -1}]},
        "'count' of 't4' must be a number that is not negative, not -1.",
    ),
    "count as text": (
        {"gpus": [{"model": "t4", "count": "2"}]},
        "'count' of 't4' must be a number that is not negative, not '2'.",
    ),
    "too many": ({"gpus": [{"model": "t4", "count": 65}]}, "A host can have at most 64 simulated GPUs."),
    "no MIG": (
        {"gpus": [{"model": "t4", "mig": ["1g.5gb"]}]},
        "The GPU model 't4' has no MIG profiles; leave 'mig' out.",
    ),
    "unknown MIG profile": (
        {"gpus": [{"model": "h200", "mig": ["1g.5gb"]}]},
        "The GPU model 'h200' has no MIG profile '1g.5gb'; it has 1g.18gb, ",
    ),
    "MIG does not fit": (
        {"gpus": [{"model": "a100-sxm4-40gb", "mig": ["4g.20gb", "4g.20gb"]}]},
        "The MIG profiles 4g.20gb, 4g.20gb don't fit together on one 'a100-sxm4-40gb'.",
    ),
    "too many slices": (
        {"gpus": [{"model": "a100-sxm4-40gb", "mig": ["3g.20gb", "3g.20gb", "1g.5gb"]}]},
        "don't fit together on one 'a100-sxm4-40gb'.",
    ),
    "two media engines": (
        {"gpus": [{"model": "a100-sxm4-40gb", "mig": ["1g.5gb+me", "1g.5gb+me"]}]},
        "don't fit together on one 'a100-sxm4-40gb'.",
    ),
    "same address": (
        {"gpus": [{"model": "t4", "pci_bus_id": "0000:3b:00.0"}] * 2},
        "Two GPUs have the PCI address 0000:3b:00.0.",
    ),
    "bad address": (
        {"gpus": [{"model": "t4", "pci_bus_id": "3b"}]},
        "'3b' is not the PCI address of a GPU such as 0000:3b:00.0.",
    ),
    "one UUID for two": (
        {"gpus": [{"model": "t4", "count": 2, "uuid": "GPU-1"}]},
        "'uuid' and 'serial' of 't4' need 'count' to be 1.",
    ),
    "UUID of two lines": (
        {"gpus": [{"model": "t4", "uuid": "GPU-1\nend 0"}]},
        "'uuid' of 't4' must be letters, digits and dashes, not 'GPU-1\\nend 0'.",
    ),
    "answer of two lines": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetName": {"value": "a\nb"}}}]},
        "for 'nvmlDeviceGetName'; the value must be a text of one line.",
    ),
    "answer that is none": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetName": "T4"}}]},
        "The GPU model 't4' says 'T4' for 'nvmlDeviceGetName'; it must be {'value': ...} or {'error': code}.",
    ),
    "answer of no function": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetTemperatur": {"value": 1}}}]},
        "names 'nvmlDeviceGetTemperatur', which is none of NVML's functions; the nearest is nvmlDeviceGetTemperature.",
    ),
    "answer that is not asked for": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetIndex": {"value": 1}}}]},
        "for 'nvmlDeviceGetIndex'; the simulator does not support that function or makes its answer itself.",
    ),
    "answer without its argument": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetClockInfo": {"value": 1}}}]},
        "for 'nvmlDeviceGetClockInfo'; write that function as nvmlDeviceGetClockInfo:0.",
    ),
    "answer with an argument too many": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetTemperature:0": {"value": 1}}}]},
        "for 'nvmlDeviceGetTemperature:0'; write that function as nvmlDeviceGetTemperature.",
    ),
    "text for a number": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetTemperature": {"value": "hot"}}}]},
        "The GPU model 't4' says {'value': 'hot'} for 'nvmlDeviceGetTemperature'; the value must be a number.",
    ),
    "number for a text": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetName": {"value": 4}}}]},
        "for 'nvmlDeviceGetName'; the value must be a text of one line.",
    ),
    "truth for a number": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetTemperature": {"value": True}}}]},
        "for 'nvmlDeviceGetTemperature'; the value must be a number.",
    ),
    "number that is too large": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetTemperature": {"value": 2**64}}}]},
        "for 'nvmlDeviceGetTemperature'; the value must be a number.",
    ),
    "one number for two": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetEccMode": {"value": 1}}}]},
        "for 'nvmlDeviceGetEccMode'; the value must be a list of 2 numbers.",
    ),
    "struct without a field": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetMemoryInfo": {"value": {"total": 1, "free": 1}}}}]},
        "for 'nvmlDeviceGetMemoryInfo'; the value must be a dictionary of the numbers total, free, used.",
    ),
    "process without a pid": (
        {
            "gpus": [
                {"model": "t4", "nvml": {"nvmlDeviceGetComputeRunningProcesses": {"value": [{"usedGpuMemory": 1}]}}}
            ]
        },
        "the value must be a list of processes with a 'pid' and, if wanted, usedGpuMemory, gpuInstanceId, ",
    ),
    "error that is no code": (
        {"gpus": [{"model": "t4", "nvml": {"nvmlDeviceGetTemperature": {"error": 1000}}}]},
        "for 'nvmlDeviceGetTemperature'; an NVML code is a number between 1 and 999.",
    ),
    "fault of no function": (
        {"profile": "t4", "faults": [{"kind": "lost", "function": "nvmlNope"}]},
        "The fault 'lost' names 'nvmlNope', which is none of NVML's functions; ",
    ),
    "driver version": ({"driver_version": "latest"}, "'latest' is not the version of a driver such as 580.159.04."),
    "driver branch": (
        {"driver_version": "999.1"},
        "The CUDA version of driver branch 999 isn't known; give 'cuda_version'.",
    ),
    "CUDA version": ({"cuda_version": "13"}, "'13' is not a CUDA version such as 13.0."),
    "mounts": ({"mounts": "maybe"}, "'mounts' must be auto, true or false, not 'maybe'."),
    "unknown fault": (
        {"profile": "t4", "faults": [{"kind": "broken"}]},
        "There is no fault kind 'broken'; the kinds are lost, ",
    ),
    "fault of no GPU": (
        {"profile": "t4", "faults": [{"kind": "lost", "gpu": 1}]},
        "The fault 'lost' is for GPU 1, which this simulation does not have.",
    ),
    "fault misspelt": ({"profile": "t4", "faults": [{"kind": "lost", "gpus": 1}]}, "A fault has no setting gpus."),
    "fault as text": (
        {"profile": "t4", "faults": ["lost"]},
        "A fault must be a dictionary with a 'kind', not 'lost'.",
    ),
}


@pytest.mark.parametrize(("request_", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_is_refused_in_one_sentence(request_: dict[str, Any], sentence: str) -> None:
    error = plan(**request_)["error"]
    assert sentence in error
    assert error.endswith(".")
    assert "\n" not in error


def test_every_answer_that_the_models_give_is_one_that_can_be_changed() -> None:
    """The other way round: what is refused above is not what a GPU really answers."""
    for model in MODELS:
        content = json.loads((FILES / "models" / f"{model}.json").read_text(encoding="utf-8"))
        answers = {**content["nvml"], **content["assumed"]}
        assert plan(gpus=[{"model": model, "nvml": answers}])["config"]["gpus"][0]["nvml"] == answers


@pytest.mark.parametrize("others", [[], [{"model": "v100-sxm2-32gb"}]], ids=["alone", "beside another"])
def test_none_of_a_model_is_as_if_it_were_left_out(others: list[dict[str, Any]]) -> None:
    """A host has only the models that its configuration brings, so it must not name another."""
    config = plan(gpus=[{"model": "t4", "count": 0}, *others])["config"]
    assert config["gpus"] == others
    assert list(config["models"]) == [gpu["model"] for gpu in others]


PCI = {"device": "10de:2330", "subsystem": "10de:16c1", "class": "0x030200"}
BROKEN_PROFILES = {
    "not JSON": ("{", "can't be read as JSON"),
    "a list": ("[]", "has no list 'gpus'."),
    "no gpus": ("{}", "has no list 'gpus'."),
    "model without pci": ('{"gpus": [{"model": "x"}], "models": {"x": {}}}', "The GPU model 'x' has no section 'pci'."),
    "model without id": (
        '{"gpus": [{"model": "x"}], "models": {"x": {"pci": {}, "nvml": {}}}}',
        "The GPU model 'x' has no PCI 'device' such as 10de:2330.",
    ),
    "model without name": (
        json.dumps({"gpus": [{"model": "x"}], "models": {"x": {"pci": PCI, "nvml": {}}}}),
        "The GPU model 'x' has no value of nvmlDeviceGetName.",
    ),
    "not a GPU": (
        json.dumps({"gpus": [{"model": "x"}], "models": {"x": {"pci": {**PCI, "class": "0x020000"}, "nvml": {}}}}),
        "The GPU model 'x' has no PCI 'class' of a GPU such as 0x030200.",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), BROKEN_PROFILES.values(), ids=BROKEN_PROFILES)
def test_broken_profile_files_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "own.json"
    path.write_text(text, encoding="utf-8")
    assert sentence in plan(profile=str(path))["error"]


def test_a_recording_of_ones_own_becomes_a_profile(simulate: Callable[..., Host], tmp_path: Path) -> None:
    recording = str(RECORDINGS / "h200x4.nvml.json")
    model = json.loads(command("model", recording, "--device", "2", "--name", "mine").stdout)
    assert model["provenance"] == "recorded"
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"gpus": [{"model": "mine", "count": 2}], "models": {"mine": model}}), encoding="utf-8")
    host = simulate(profile=str(path))
    assert host.python("""
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(1)
result = [n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(handle), n.nvmlDeviceGetPowerUsage(handle),
          n.nvmlDeviceGetNvLinkState(handle, 17)]
""") == [2, "NVIDIA H200", 94575, 1]


# ---- apply ------------------------------------------------------------------------------------------------------


def times(host: Host) -> dict[str, int]:
    """Return when each file of the host was last written."""
    return {str(path): path.lstat().st_mtime_ns for path in host.prefix.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_second_run_changes_nothing(simulate: Callable[..., Host], profile: str) -> None:
    host = simulate(profile=profile)
    before = times(host)
    assert host.ask("apply") == {"changed": False, "paths": [], "notes": []}
    assert times(host) == before


def test_check_mode_says_what_would_change_and_changes_nothing(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    config = json.loads((host.state / "config.json").read_text())
    config["gpus"] = config["gpus"][:2]
    (host.state / "config.json").write_text(json.dumps(config))
    before = times(host)
    expected = host.ask("apply", "--check")
    assert expected["changed"] is True
    assert times(host) == before
    done = host.ask("apply")
    assert sorted(expected["paths"]) == sorted(done["paths"])


def test_another_profile_changes_only_what_differs(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    library = times(host)[str(host.library)]
    built = (host.library.parent / "libnvidia-ml.so.580.159.04").stat().st_mtime_ns
    host.configure(profile="a100-40gb-mig")
    assert times(host)[str(host.library)] == library
    assert (host.library.parent / "libnvidia-ml.so.580.159.04").stat().st_mtime_ns == built
    devices = sorted(path.name for path in (host.tree / "sys/bus/pci/devices").iterdir())
    assert devices == ["0000:01:00.0", "0000:02:00.0"]


def test_another_driver_version_is_another_file(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="t4")
    host.configure(profile="t4", driver_version="570.211.01")
    names = sorted(path.name for path in host.library.parent.glob("libnvidia-ml*"))
    assert names == ["libnvidia-ml.so.1", "libnvidia-ml.so.570.211.01"]
    assert os.readlink(host.library) == "libnvidia-ml.so.570.211.01"
    assert host.python("""
n.nvmlInit()
result = [n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetNVMLVersion(), n.nvmlSystemGetCudaDriverVersion()]
""") == ["570.211.01", "12.570.211.01", 12080]


def test_without_a_driver_there_are_pci_devices_only(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4", driver=False)
    assert not host.library.exists()
    assert not (host.prefix / "etc/ld.so.conf.d/gpu-simulator.conf").exists()
    assert not (host.tree / "proc/driver/nvidia").exists()
    assert not (host.tree / "sys/module/nvidia").exists()
    device = host.tree / "sys/bus/pci/devices/0000:00:06.0"
    assert [(device / name).read_text().strip() for name in ("vendor", "device", "class", "numa_node")] == [
        "0x10de", "0x2335", "0x030200", "-1",
    ]  # fmt: skip
    assert not (device / "driver").exists()
    assert json.loads((host.state / "marker.json").read_text())["driver"] is False
    assert host.ask("check") == {"driver": False, "gpus": 4}


def test_the_tree_is_as_a_driver_writes_it(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")
    recorded = (RECORDINGS / "h200x4.proc.txt").read_text(encoding="utf-8").split("Model:")[2]
    shown = (host.tree / "proc/driver/nvidia/gpus/0000:00:07.0/information").read_text()
    uuid = re.compile(r"GPU-[0-9a-f-]{36}")
    assert uuid.sub("UUID", shown) == "Model:" + uuid.sub("UUID", recorded)
    assert os.readlink(host.tree / "sys/bus/pci/devices/0000:00:07.0/driver") == "../../drivers/nvidia"
    assert (host.tree / "sys/bus/pci/devices/0000:00:07.0/driver").resolve().is_dir()


@pytest.mark.parametrize(("profile", "flavour"), [("v100", "Kernel Module"), ("t4", "Open Kernel Module")])
def test_the_kernel_module_is_one_that_the_gpus_work_with(
    simulate: Callable[..., Host], profile: str, flavour: str
) -> None:
    text = (simulate(profile=profile).tree / "proc/driver/nvidia/version").read_text()
    assert ("Open Kernel Module" in text) == (flavour == "Open Kernel Module")


def test_mig_capabilities_are_where_the_driver_has_them(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="a100-40gb-mig")
    minors = dict(line.split() for line in (host.tree / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines())
    capabilities = host.tree / "proc/driver/nvidia/capabilities/gpu0/mig"
    for path in ("gi1/access", "gi1/ci0/access", "gi5/access", "gi13/ci0/access"):
        assert f"DeviceFileMinor: {minors[f'gpu0/{path}']}\n" in (capabilities / path).read_text()
    assert len(set(minors.values())) == len(minors)


def test_device_nodes_are_made_and_removed(host: Host) -> None:
    if os.geteuid() != 0:
        assert plan(profile="t4", device_nodes="true")["config"]["device_nodes"] == "true"
        return
    host.configure(profile="a100-40gb-mig", device_nodes="auto")
    made = sorted(str(path.relative_to(host.prefix / "dev")) for path in (host.prefix / "dev").rglob("nvidia*"))
    notes = host.ask("apply")["notes"]
    if notes:
        assert notes[0].startswith("No device nodes: ")
        assert made == []
        return
    assert {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap12"} <= set(made)
    assert os.stat(host.prefix / "dev/nvidia1").st_rdev == os.makedev(195, 1)
    host.configure(profile="t4", device_nodes="auto")
    left = sorted(path.name for path in (host.prefix / "dev").iterdir())
    assert left == ["nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidiactl"]


def test_absent_leaves_nothing_of_it(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="a100-40gb-mig")
    foreign = host.prefix / "usr/lib/libnvidia-ml.so.1"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("real")
    expected = host.ask("remove", "--check")
    assert host.library.exists()
    done = host.ask("remove")
    assert done["paths"] == expected["paths"]
    assert [path for path in host.prefix.rglob("*") if not path.is_dir()] == [foreign]
    assert host.ask("remove") == {"changed": False, "paths": [], "notes": []}


def test_check_compares_the_library_with_the_configuration(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="h200x4")

    def check() -> subprocess.CompletedProcess[str]:
        return host.client(sys.executable, str(COMMAND), "check")

    # The command looks below / for its configuration, GPU_SIMULATOR_STATE replaces that directory.
    assert json.loads(check().stdout) == {"driver": True, "gpus": 4, "fault": None}
    host.fault("vanish", gpu=0)
    assert json.loads(check().stdout) == {"driver": True, "gpus": 3, "fault": None}
    host.clear()
    host.fault("mismatch")
    assert json.loads(check().stdout) == {"driver": True, "gpus": 0, "fault": "mismatch"}
    (host.state / "faults").write_text("gpu-simulator-faults 1\n")
    assert check().stderr == "gpu-simulator: The fault 'mismatch' is on, but NVML starts with code 0.\n"


def test_errors_of_the_command_line_are_sentences(host: Host, tmp_path: Path) -> None:
    (host.state / "config.json").write_text("{")
    assert "can't be read as JSON" in host.refused("apply")
    empty = Host(tmp_path / "empty")
    assert f"The configuration {empty.state}/config.json does not exist.\n" in empty.refused("show")


def test_a_path_that_can_not_be_written_is_named(simulate: Callable[..., Host]) -> None:
    host = simulate(profile="t4")
    (host.state / "state").unlink()
    (host.state / "state").mkdir()
    assert host.refused("apply").startswith(f"gpu-simulator: {host.state}/state: ")


def test_a_compiler_that_fails_is_quoted(simulate: Callable[..., Host], monkeypatch: pytest.MonkeyPatch) -> None:
    host = simulate(profile="t4")
    (host.library.parent / "built").write_text("another source")
    monkeypatch.setenv("CC", "/bin/false")
    said = host.refused("apply")
    assert said.startswith("gpu-simulator: /bin/false can't build the library")
    assert host.library.exists(), "the library of before still works"


# ---- payload ----------------------------------------------------------------------------------------------------


def test_the_payload_has_all_that_a_host_needs(tmp_path: Path) -> None:
    """Unpacked beside the start script, the command works without the repository."""
    shutil.copy(COMMAND, tmp_path / "gpu-simulator")
    (tmp_path / "payload.json").write_text(command("payload").stdout, encoding="utf-8")
    state = tmp_path / "host/etc/gpu-simulator"
    state.mkdir(parents=True)
    (state / "config.json").write_text(json.dumps(plan(profile="t4")["config"]))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "old.c").write_text("#error")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "gpu-simulator"), "--prefix", str(tmp_path / "host"), "apply"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "host/usr/local/lib/gpu-simulator/libnvidia-ml.so.580.159.04").is_file()
    assert not list(tmp_path.rglob("*.pyc"))
    assert not (tmp_path / "src" / "old.c").exists()


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11"])
def test_the_command_runs_on_older_pythons(tmp_path: Path, version: str) -> None:
    """Where this machine has them; else on the one that runs the tests."""
    found = subprocess.run([ROOT / "tests/tools/find-python", version], capture_output=True, text=True, check=False)
    host = Host(tmp_path)
    host.state.mkdir(parents=True)
    (host.state / "config.json").write_text(json.dumps(plan(profile="a100-40gb-mig")["config"]))
    done = subprocess.run(
        [found.stdout.strip() or sys.executable, "-B", str(COMMAND), "--prefix", str(tmp_path), "apply"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changed"] is True
