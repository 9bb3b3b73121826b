# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPU health check of role slurm thinks of what it is told."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.tests.unit.program import load

SCRIPT = Path(__file__).resolve().parents[3] / "roles/slurm/files/gpu-health"


check = load("slurm/files/gpu-health")

MIG = check.Instance("MIG-1", "1g.5gb", ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"))
WHOLE = check.Gpu(3, "GPU-3", "00000000:3B:00.0", ("/dev/nvidia3",))
SLICED = check.Gpu(0, "GPU-0", "00000000:01:00.0", ("/dev/nvidia0",), (MIG,))
WELL = check.Reading("GPU-3")


def there(_node: str) -> bool:
    return True


def nobody(_pid: int) -> None:
    return None


class Fake:
    """NVML with one GPU that answers so; a number is an error."""

    def __init__(self, start: int = 0, handle: int = 0, **answers: Any) -> None:
        self.started, self.handled, self.answers = start, handle, answers

    def start(self) -> None:
        if self.started:
            raise check.NvmlError(self.started)

    def handle(self, uuid: str) -> str:
        if self.handled:
            raise check.NvmlError(self.handled)
        return uuid

    def call(self, function: str, _handle: str) -> Any:
        answer = self.answers.get(function, check.NvmlError(3))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, WELL),
        ({"handle": 15}, check.Reading("GPU-3", error=15, function="handle")),
        ({"uncorrected": 2, "memory": 7}, check.Reading("GPU-3", uncorrected=2)),
        ({"remapped": (True, False)}, check.Reading("GPU-3", remap_pending=True)),
        ({"remapped": (False, True)}, check.Reading("GPU-3", remap_failed=True)),
        ({"pages": True, "recovery": 2}, check.Reading("GPU-3", pages_pending=True, recovery_action=2)),
        ({"pids": (9, 4, 9)}, check.Reading("GPU-3", pids=(4, 9))),
        # The worst error is told, whichever came first.
        (
            {"memory": check.NvmlError(999), "uncorrected": check.NvmlError(15)},
            check.Reading("GPU-3", error=15, function="uncorrected"),
        ),
        ({"memory": check.NvmlError(999)}, check.Reading("GPU-3", error=999, function="memory")),
    ],
)
def test_a_gpu_is_read(answers: dict[str, Any], expected: Any) -> None:
    assert check.read_gpu(Fake(**answers), WHOLE, processes=True) == expected


def test_processes_are_left_out_where_they_are_not_wanted() -> None:
    assert check.read_gpu(Fake(pids=(4,)), WHOLE, processes=False).pids == ()


@pytest.mark.parametrize(
    ("reading", "missing", "expected"),
    [
        (check.Reading("GPU-0"), (), []),
        (check.Reading("GPU-0", error=15), (), ["has fallen off the bus: look for Xid 79"]),
        (check.Reading("GPU-0", error=6), (), ["is not there any more"]),
        (check.Reading("GPU-0", error=16), (), ["must be reset"]),
        (check.Reading("GPU-0", error=999), (), ["does not work (NVML error 999)"]),
        (check.Reading("GPU-0", uncorrected=2), (), ["had 2 uncorrectable memory errors"]),
        (check.Reading("GPU-0", remap_pending=True), (), ["has memory rows to replace"]),
        (check.Reading("GPU-0", remap_failed=True), (), ["could not replace a bad memory row"]),
        (check.Reading("GPU-0", pages_pending=True), (), ["has memory pages to retire"]),
        (check.Reading("GPU-0", recovery_action=2), (), ["asks for a reboot of the node"]),
        (check.Reading("GPU-0", recovery_action=99), (), ["asks for recovery action 99"]),
        # The action only says again what the errors have said.
        (check.Reading("GPU-0", uncorrected=1, recovery_action=1), (), ["had 1 uncorrectable"]),
        (check.Reading("GPU-0", missing_instances=("MIG-1",)), (), ["lost its MIG instance 1g.5gb (MIG-1)"]),
        (check.Reading("GPU-0"), ("/dev/nvidia0",), ["has no device node /dev/nvidia0: "]),
        (
            check.Reading("GPU-0"),
            ("/dev/nvidia-caps/nvidia-cap12",),
            ["has no device node /dev/nvidia-caps/nvidia-cap12: "],
        ),
        # The node of an instance goes with it.
        (
            check.Reading("GPU-0", missing_instances=("MIG-1",)),
            ("/dev/nvidia-caps/nvidia-cap12",),
            ["lost its MIG instance"],
        ),
    ],
)
def test_each_fault_is_a_sentence_that_names_the_gpu(
    reading: Any, missing: tuple[str, ...], expected: list[str]
) -> None:
    sentences = check.gpu_problems(SLICED, reading, lambda node: node not in missing)
    assert len(sentences) == len(expected)
    for sentence, beginning in zip(sentences, expected, strict=True):
        assert sentence.startswith(f"GPU 0 (00000000:01:00.0, GPU-0) {beginning}")


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (check.Report(failure="NVML did not answer within 20 s"), "NVML did not answer within 20 s: look for Xid"),
        (check.Report(init_error=9), "the NVIDIA driver is not loaded"),
        (check.Report(init_error=12), "libnvidia-ml.so.1 is missing"),
        (check.Report(init_error=18), "the loaded NVIDIA driver and its library are of different versions"),
        (check.Report(init_error=999), "NVML does not start (error 999)"),
        (check.Report(readings={}), "GPU 3 (00000000:3B:00.0, GPU-3) is not there any more"),
    ],
)
def test_a_driver_that_does_not_answer_is_one_sentence(report: Any, expected: str) -> None:
    settings = check.Settings("gpu01", (WHOLE,))
    bad, used = check.problems(settings, report, there, nobody, check.Context("health"))
    assert [sentence[: len(expected)] for sentence in bad] == [expected]
    assert used == []


def fake_process(directory: Path, pid: int, name: str, cgroup: str) -> None:
    (directory / str(pid)).mkdir()
    (directory / str(pid) / "comm").write_text(f"{name}\n", encoding="utf-8")
    (directory / str(pid) / "cgroup").write_text(f"{cgroup}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "cgroup", "context", "expected"),
    [
        ("python", "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", "prolog", None),
        ("python", "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", "epilog", "left over from job 12"),
        ("python", "9:name=x:/a\n5:devices:/slurm_n/uid_1001/job_12/step_extern", "epilog", "left over from job 12"),
        ("python", "5:devices:/slurm_gpu01/uid_1001/job_12", "epilog", "left over from job 12"),
        ("python", "5:devices:/slurm/uid_1001/job_123/step_0", "epilog", None),
        ("python", "0::/user.slice/user-1000.slice/session-3.scope", "prolog", "which belongs to no job"),
        ("python", "0::/user.slice/user-1000.slice/session-3.scope", "epilog", "which belongs to no job"),
        ("python", "0::/user.slice/user-1000.slice/session-3.scope", "health", None),
        ("python", "0::/user.slice/job_12/session-3.scope", "prolog", "which belongs to no job"),
        ("nvidia-cuda-mps-server", "0::/system.slice/mps.service", "prolog", None),
    ],
)
def test_processes_that_no_running_job_owns_are_told(
    tmp_path: Path, name: str, cgroup: str, context: str, expected: str | None
) -> None:
    fake_process(tmp_path, 77, name, cgroup)
    report = check.Report(readings={"GPU-3": check.Reading("GPU-3", pids=(77, 78))})
    settings = check.Settings("gpu01", (WHOLE,))
    job = "" if context == "health" else "12"
    bad, used = check.problems(
        settings, report, there, lambda pid: check.process(tmp_path, pid), check.Context(context, job)
    )
    assert bad == []
    assert len(used) == (0 if expected is None else 1)
    if expected is not None:
        assert f"is used by process 77 ({name}) of " in used[0]
        assert expected in used[0]


def test_the_reason_stays_short() -> None:
    assert check.reason(["a", "b"]) == "gpu-health: a; b"
    assert check.reason(list("abcdef")) == "gpu-health: a; b; c; and 3 more problems"


@pytest.mark.parametrize(
    ("environment", "name", "job"),
    [
        ({"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_ID": "12"}, "prolog", "12"),
        ({"SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_JOB_ID": "12"}, "epilog", "12"),
        ({"SLURMD_NODENAME": "gpu01"}, "health", ""),
    ],
)
def test_slurmd_tells_what_the_check_is_for(environment: dict[str, str], name: str, job: str) -> None:
    assert check.Context.of(environment) == check.Context(name, job)


@pytest.mark.parametrize(
    ("state", "present", "expected"),
    [
        ("IDLE", "", True),
        ("MIXED", "gpu-health: new", True),
        ("DOWN+NOT_RESPONDING", "Not responding", True),
        ("IDLE+DRAIN", "gpu-health: new", False),
        ("IDLE+DRAIN", "gpu-health: old", True),
        ("IDLE+DRAIN", "Prolog error", True),
        ("IDLE+DRAIN", "gres/gpu count reported lower than configured (3 < 4)", True),
        ("MIXED+DRAIN", "new fan, Eve", False),
    ],
)
def test_a_reason_that_a_person_gave_stays(state: str, present: str, expected: bool) -> None:
    assert check.must_drain(state, present, "gpu-health: new") is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NodeName=gpu01 State=IDLE ThreadsPerCore=1 ExtSensorsTemp=n/s", ("IDLE", "")),
        (
            "NodeName=gpu01 State=IDLE+DRAIN Weight=1 Reason=gpu-health: GPU 1 [x]: a=b [root@2026-11-28T06:15:47]\n",
            ("IDLE+DRAIN", "gpu-health: GPU 1 [x]: a=b"),
        ),
        ("State=DOWN Reason=kept [slurm@2026-11-28T06:15:47] Comment=x [y@z]", ("DOWN", "kept")),
        ("State=DOWN Reason=kept", ("DOWN", "kept")),
    ],
)
def test_the_state_of_a_node_is_read(text: str, expected: tuple[str, str]) -> None:
    assert check.node_state(text) == expected


@pytest.mark.parametrize("text", ["{", "[]", '{"gpus": []}', '{"node": "a", "gpus": [{"index": 0}]}'])
def test_settings_that_are_broken_are_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        check.read_settings(text)


def test_settings_are_read() -> None:
    instance = {"uuid": MIG.uuid, "profile": MIG.profile, "device_nodes": list(MIG.device_nodes)}
    gpu = {"index": 0, "uuid": "GPU-0", "pci_bus_id": "00000000:01:00.0", "device_nodes": ["/dev/nvidia0"]}
    text = json.dumps({"node": "gpu01", "processes": False, "gpus": [{**gpu, "instances": [instance]}]})
    assert check.read_settings(text) == check.Settings("gpu01", (SLICED,), processes=False)


def asked(work: Any, tmp_path: Path, seconds: float = 120.0) -> Any:
    return check.ask_in_time(work, seconds, tmp_path / "hanging")


def test_the_answer_comes_through_the_pipe(tmp_path: Path) -> None:
    report = check.Report({"GPU-3": check.Reading("GPU-3", error=15, pids=(1, 2), missing_instances=("MIG-1",))})
    assert asked(lambda: report, tmp_path) == report


def test_a_library_that_crashes_is_told(tmp_path: Path) -> None:
    assert asked(lambda: os.kill(os.getpid(), signal.SIGKILL), tmp_path).failure == "NVML crashed"


def test_a_library_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "REAP_SECONDS", 60.0)
    started = time.monotonic()
    report = asked(lambda: time.sleep(600), tmp_path, 0.2)
    assert report.failure == "NVML did not answer within 0.2 s"
    assert time.monotonic() - started < 120
    assert not (tmp_path / "hanging").exists()


def test_no_second_process_is_given_to_a_driver_that_still_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_reaped", lambda _child: False)
    assert asked(lambda: time.sleep(600), tmp_path, 0.2).failure == "NVML did not answer within 0.2 s"
    pid = int((tmp_path / "hanging").read_text(encoding="utf-8").split()[0])
    report = asked(lambda: pytest.fail("asked again"), tmp_path)
    assert report.failure == f"NVML hangs in process {pid}"
    os.waitpid(pid, 0)
    assert asked(check.Report, tmp_path) == check.Report()
