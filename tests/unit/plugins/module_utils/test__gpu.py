# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of machines in every state."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver, _gpu, _nvml, _pci, _verify
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import (
    FakeNvml,
    add_library,
    add_pci_device,
    load_module,
    mig_instance,
    no_command,
    recorded,
    recorded_tree,
    report,
)

MIXED_ADDRESSES = ("00000000:00:06.0", "00000000:00:07.0", "00000000:00:08.0", "00000000:00:09.0")


def facts_of(root: Path, result: _nvml.Report, *, simulated: bool = False) -> _gpu.GpuFacts:
    files = _pci.HostFiles(str(root))
    driver = _driver.judge(_driver.installed(files, "6.1.0", "x86_64", no_command), result, "6.1.0", "root")
    return _gpu.assemble(files, _pci.scan(files), driver, result, simulated=simulated)


def codes(gpu: _gpu.Gpu) -> set[str]:
    return {problem.code for problem in gpu.problems}


@pytest.fixture
def h200x4(tmp_path: Path) -> Path:
    """The machine of the recording h200x4, with its device nodes."""
    root = recorded_tree(tmp_path, "h200x4")
    (root / "dev").mkdir()
    for minor in range(4):
        (root / f"dev/nvidia{minor}").write_text("")
    return root


def test_healthy(h200x4: Path) -> None:
    facts = facts_of(h200x4, report(recorded("h200x4")))
    assert (facts.count, facts.visible_count, facts.problems, facts.simulated) == (4, 4, [], False)
    assert facts.driver.state == "ok"
    assert facts.gpus[1] == _gpu.Gpu(
        index=1,
        minor=1,
        uuid="GPU-00000000-0000-4000-8000-000000000001",
        pci_bus_id="00000000:00:07.0",
        pci_device_id="10de:2335",
        name="NVIDIA H200",
        architecture="Hopper",
        compute_capability="9.0",
        memory_bytes=150754820096,
        slurm_type="nvidia_h200",
        mig=_gpu.Mig(enabled=False, pending=False, instances=[]),
        ecc=_gpu.Ecc(
            enabled=True,
            pending=True,
            corrected_volatile=0,
            uncorrected_volatile=0,
            corrected_aggregate=0,
            uncorrected_aggregate=0,
            remapped_rows=_gpu.RemappedRows(0, 0, pending=False, failed=False),
            retired_pages_pending=None,
        ),
        power_limit_watts=700.0,
        nvlink=_gpu.Nvlink(version="4.0", links=18, active_links=18, peers=[_gpu.NvlinkPeer("switch", None, 18)]),
        numa_node=None,
        cpu_affinity="0-63",
        kernel_driver="nvidia",
        device_nodes=["/dev/nvidia1"],
        processes=0,
        healthy=True,
        problems=[],
    )


def test_facts_are_plain_data(h200x4: Path) -> None:
    data = facts_of(h200x4, report(recorded("h200x4").in_mig_mode(0, [mig_instance(0)]))).as_dict()
    assert json.loads(json.dumps(data)) == data


def test_no_gpu(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, _nvml.Report(init_error=_nvml.LIBRARY_NOT_FOUND))
    assert (facts.count, facts.visible_count, facts.gpus, facts.problems) == (0, 0, [], [])
    assert facts.driver.state == "absent"


def test_gpu_without_driver(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:3b:00.0", "0x1eb8", driver=None, numa_node="1", cpus="16-31")
    facts = facts_of(tmp_path, _nvml.Report(missing_binding="not found"))
    assert (facts.count, facts.visible_count, facts.driver.state) == (1, 0, "absent")
    assert [problem.code for problem in facts.problems] == ["driver_absent"]
    gpu = facts.gpus[0].__dict__
    known = {"pci_bus_id", "pci_device_id", "name", "architecture", "numa_node", "cpu_affinity"}
    assert {name for name, value in gpu.items() if value not in (None, [])} == known | {"mig", "ecc"}
    assert (gpu["name"], gpu["architecture"], gpu["cpu_affinity"]) == ("Tesla T4", "Turing", "16-31")
    assert (gpu["mig"], gpu["ecc"]) == (_gpu.Mig(), _gpu.Ecc())


def test_driver_installed_but_not_loaded(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:3b:00.0", driver=None)
    add_library(tmp_path, "580.159.04")
    facts = facts_of(tmp_path, _nvml.Report(init_error=_nvml.DRIVER_NOT_LOADED, library_version="580.159.04"))
    assert facts.driver.state == "not_loaded"
    assert facts.gpus[0].healthy is None
    assert [problem.code for problem in facts.problems] == ["driver_not_loaded"]


def test_mismatch_keeps_what_the_kernel_driver_says(h200x4: Path) -> None:
    facts = facts_of(h200x4, report(recorded("h200x4").fail("nvmlInit", _nvml.MISMATCH)))
    assert facts.driver.state == "mismatch"
    assert [gpu.uuid for gpu in facts.gpus] == [f"GPU-00000000-0000-4000-8000-00000000000{n}" for n in range(4)]
    gpu = facts.gpus[3]
    assert (gpu.name, gpu.slurm_type, gpu.minor, gpu.device_nodes) == (
        "NVIDIA H200",
        "nvidia_h200",
        3,
        ["/dev/nvidia3"],
    )
    assert (gpu.index, gpu.memory_bytes, gpu.healthy, gpu.problems) == (None, None, None, [])


def test_kernel_driver_that_does_not_know_the_gpu_yet(h200x4: Path) -> None:
    information = h200x4 / "proc/driver/nvidia/gpus/0000:00:06.0/information"
    information.write_text(
        "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 0\n"
    )
    facts = facts_of(h200x4, _nvml.Report(missing_binding="not found"))
    assert (facts.gpus[0].uuid, facts.gpus[0].minor, facts.gpus[0].name) == (None, 0, "H200 SXM 141GB")
    assert facts.driver.reason == "not found"


def test_no_permission(h200x4: Path) -> None:
    facts = facts_of(h200x4, report(recorded("h200x4").fail("nvmlInit", _nvml.NO_PERMISSION)))
    assert facts.driver.state == "unusable"
    assert facts.driver.reason is not None
    assert "become: true" in facts.driver.reason
    assert facts.count == 4


@pytest.mark.parametrize(
    ("function", "index_known"),
    [("nvmlDeviceGetHandleByIndex", False), ("*", False), ("nvmlDeviceGetMemoryInfo", True)],
)
def test_one_lost_of_four(h200x4: Path, function: str, index_known: bool) -> None:
    facts = facts_of(h200x4, report(recorded("h200x4").fail(function, _nvml.GPU_IS_LOST, 1)))
    assert (facts.count, facts.visible_count, facts.driver.state) == (4, 3, "ok")
    assert [gpu.healthy for gpu in facts.gpus] == [True, False, True, True]
    lost = facts.gpus[1]
    assert codes(lost) == {"lost"}
    assert (lost.index, lost.pci_bus_id) == (1, "00000000:00:07.0")
    assert lost.uuid == "GPU-00000000-0000-4000-8000-000000000001"
    assert lost.name == "NVIDIA H200"
    assert "00000000:00:07.0" in lost.problems[0].message
    assert (lost.memory_bytes is None) is True
    assert (lost.power_limit_watts is not None) is index_known


def test_gpu_on_the_bus_that_nvml_does_not_count(h200x4: Path) -> None:
    nvml = recorded("h200x4")
    del nvml.devices[2]
    nvml.system["nvmlDeviceGetCount"]["value"] = 3
    facts = facts_of(h200x4, report(nvml))
    assert (facts.count, facts.visible_count) == (4, 3)
    assert [codes(gpu) for gpu in facts.gpus] == [set(), set(), {"not_visible"}, set()]
    assert (facts.gpus[2].healthy, facts.gpus[2].index) == (False, None)
    assert [gpu.index for gpu in facts.gpus] == [0, 1, None, 2]


def test_gpu_that_only_nvml_sees(tmp_path: Path) -> None:
    load_module(tmp_path)
    facts = facts_of(tmp_path, report(recorded("h100x1")), simulated=True)
    assert (facts.count, facts.visible_count) == (1, 1)
    assert (facts.gpus[0].pci_bus_id, facts.gpus[0].pci_device_id) == ("00000000:00:06.0", "10de:2330")


@pytest.mark.parametrize(
    ("driver", "code", "healthy"),
    [("vfio-pci", "passthrough", None), ("nouveau", "other_driver", None), (None, "not_visible", False)],
)
def test_gpu_bound_to_another_driver(h200x4: Path, driver: str | None, code: str, healthy: bool | None) -> None:
    add_pci_device(h200x4, "0000:05:00.0", driver=driver)
    facts = facts_of(h200x4, report(recorded("h200x4")))
    other = facts.gpus[4]
    assert (codes(other), other.healthy, other.kernel_driver) == ({code}, healthy, driver)
    assert "00000000:05:00.0" in other.problems[0].message


def test_lost_gpu_is_not_taken_for_one_that_is_passed_through(h200x4: Path) -> None:
    link = h200x4 / "sys/bus/pci/devices/0000:00:06.0/driver"
    link.unlink()
    link.symlink_to("../drivers/vfio-pci")
    nvml = recorded("h200x4")
    del nvml.devices[0]
    nvml.system["nvmlDeviceGetCount"]["value"] = 3
    facts = facts_of(h200x4, report(nvml.fail("nvmlDeviceGetHandleByIndex", _nvml.GPU_IS_LOST, 0)))
    assert [codes(gpu) for gpu in facts.gpus] == [{"passthrough"}, {"lost"}, set(), set()]


def test_other_driver_without_nvidia_driver(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:3b:00.0", driver="nouveau")
    facts = facts_of(tmp_path, _nvml.Report(init_error=_nvml.LIBRARY_NOT_FOUND))
    assert codes(facts.gpus[0]) == {"other_driver"}
    assert "blacklist nouveau" in facts.gpus[0].problems[0].message


def changed(**functions: t.Any) -> t.Callable[[FakeNvml], FakeNvml]:
    def change(nvml: FakeNvml) -> FakeNvml:
        for function, value in functions.items():
            nvml.change(2, f"nvmlDeviceGet{function}", value)
        return nvml

    return change


def ecc_count(kind: int, span: int) -> t.Callable[[FakeNvml], FakeNvml]:
    return lambda nvml: nvml.change(2, f"nvmlDeviceGetTotalEccErrors:{kind}:{span}", 3)


def recovery(action: int) -> t.Callable[[FakeNvml], FakeNvml]:
    field = type("Field", (), {"nvmlReturn": 0, "value": type("Value", (), {"uiVal": action})})
    return lambda nvml: nvml.change(2, "nvmlDeviceGetFieldValues", [field])


@pytest.mark.parametrize(
    ("change", "expected", "healthy"),
    [
        (ecc_count(1, 0), {"ecc_uncorrectable"}, False),
        (ecc_count(1, 1), set(), True),
        (ecc_count(0, 0), set(), True),
        (changed(RemappedRows=[0, 2, 1, 0]), {"row_remap_pending"}, True),
        (changed(RemappedRows=[0, 2, 0, 1]), {"row_remap_failed"}, False),
        (changed(RemappedRows=[9, 2, 0, 0]), set(), True),
        (changed(RetiredPagesPendingStatus=1), {"retired_pages_pending"}, True),
        (changed(RetiredPagesPendingStatus=0), set(), True),
        (changed(EccMode=[1, 0]), {"ecc_pending"}, True),
        (changed(MigMode=[0, 1]), {"mig_pending"}, True),
        (lambda nvml: nvml.in_mig_mode(2, []), {"mig_no_instances"}, True),
        (lambda nvml: nvml.in_mig_mode(2, [mig_instance(0)]), set(), True),
        (changed(CurrentClocksEventReasons=0x1), set(), True),
        (changed(CurrentClocksEventReasons=0x2), set(), True),
        (changed(CurrentClocksEventReasons=0x10 | 0x100), set(), True),
        (changed(CurrentClocksEventReasons=0x4), {"sw_power_cap"}, True),
        (changed(CurrentClocksEventReasons=0x20), {"sw_thermal_slowdown"}, True),
        (changed(CurrentClocksEventReasons=0x8), {"hw_slowdown"}, False),
        (changed(CurrentClocksEventReasons=0x48), {"hw_thermal_slowdown"}, False),
        (changed(CurrentClocksEventReasons=0x88), {"hw_power_brake"}, False),
        (
            changed(CurrentClocksEventReasons=0xEC),
            {"hw_thermal_slowdown", "hw_power_brake", "sw_thermal_slowdown", "sw_power_cap"},
            False,
        ),
        (recovery(0), set(), True),
        (recovery(1), {"recovery_needed"}, False),
        (recovery(99), {"recovery_needed"}, False),
        (lambda nvml: nvml.fail("nvmlDeviceGetName", _nvml.RESET_REQUIRED, 2), {"reset_required"}, False),
        (lambda nvml: nvml.fail("nvmlDeviceGetHandleByIndex", _nvml.NO_PERMISSION, 2), {"no_permission"}, False),
        (lambda nvml: nvml.fail("nvmlDeviceGetHandleByIndex", 999, 2), {"unusable"}, False),
        (lambda nvml: nvml.fail("nvmlDeviceGetMemoryInfo", 999, 2), {"unreadable"}, True),
        (lambda nvml: nvml.fail("nvmlDeviceGetMemoryInfo", 3, 2), set(), True),
    ],
)
def test_problems(h200x4: Path, change: t.Callable[[FakeNvml], FakeNvml], expected: set[str], healthy: bool) -> None:
    facts = facts_of(h200x4, report(change(recorded("h200x4"))))
    assert codes(facts.gpus[2]) == expected
    assert facts.gpus[2].healthy is healthy
    assert [codes(facts.gpus[other]) for other in (0, 1, 3)] == [set()] * 3
    for problem in facts.gpus[2].problems:
        assert problem.message.startswith("GPU 2 00000000:00:08.0 GPU-00000000-0000-4000-8000-000000000002 ")
        assert problem.severity == ("error" if not healthy and problem.code[:2] != "sw" else "warning")


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (_nvml.NO_PERMISSION, "permission", "become: true, or look at the owner and mode of its device node."),
        (_nvml.GPU_IS_LOST, "gpu_lost", "check power, seating and temperature."),
        (999, "gpu_lost", "look at the kernel log."),
    ],
)
def test_the_proof_names_why_a_gpu_can_not_be_used(h200x4: Path, code: int, kind: str, advice: str) -> None:
    uuid = "GPU-00000000-0000-4000-8000-000000000002"
    nvml = recorded("h200x4").fail("nvmlDeviceGetHandleByIndex", code, 2)
    (settled,) = _verify.plan(facts_of(h200x4, report(nvml)).as_dict()["gpus"], [uuid]).settled
    assert settled["failure"]["kind"] == kind
    assert settled["failure"]["message"].endswith(advice)
    assert settled["failure"]["message"].count(uuid) == 1


def test_unreadable_names_the_call(h200x4: Path) -> None:
    gpu = facts_of(h200x4, report(recorded("h200x4").fail("nvmlDeviceGetMemoryInfo", 999, 0))).gpus[0]
    assert (gpu.memory_bytes, gpu.uuid is not None) == (None, True)
    assert "nvmlDeviceGetMemoryInfo: error 999 (unknown error)" in gpu.problems[0].message


def test_missing_device_node(h200x4: Path) -> None:
    (h200x4 / "dev/nvidia3").unlink()
    facts = facts_of(h200x4, report(recorded("h200x4")))
    assert [codes(gpu) for gpu in facts.gpus] == [set(), set(), set(), {"device_node_missing"}]
    assert facts.gpus[3].healthy is True
    assert codes(facts_of(h200x4, report(recorded("h200x4")), simulated=True).gpus[3]) == set()


def test_mig(h200x4: Path) -> None:
    minors = h200x4 / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("config 1\nmonitor 2\ngpu1/gi7/access 66\ngpu1/gi7/ci0/access 67\ngpu0/gi7/access 3\n")
    nvml = recorded("h200x4").in_mig_mode(1, [mig_instance(0), None, mig_instance(2, "7g.40gb", 7, 40192)])
    nvml.change(1, "nvmlDeviceGetName", "NVIDIA A100-SXM4-40GB")
    gpu = facts_of(h200x4, report(nvml)).gpus[1]
    assert gpu.mig.enabled is True
    assert gpu.mig.instances == [
        _gpu.MigInstance(
            index=0,
            uuid="MIG-00000000-0000-5000-8000-000000000000",
            profile="1g.5gb",
            gpu_instance_id=7,
            compute_instance_id=0,
            memory_bytes=4864 << 20,
            slurm_type="nvidia_a100_1g.5gb",
            device_nodes=["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"],
        ),
        _gpu.MigInstance(
            index=2,
            uuid="MIG-00000000-0000-5000-8000-000000000002",
            profile="7g.40gb",
            gpu_instance_id=9,
            compute_instance_id=0,
            memory_bytes=40192 << 20,
            slurm_type="nvidia_a100_7g.39gb",
            device_nodes=["/dev/nvidia1"],
        ),
    ]


def test_mig_instance_that_answers_nothing(h200x4: Path) -> None:
    facts = facts_of(h200x4, report(recorded("h200x4").in_mig_mode(0, [{}])))
    assert facts.gpus[0].mig.instances == [_gpu.MigInstance(0, None, None, None, None, None, None, ["/dev/nvidia0"])]


def test_gpu_in_another_pci_domain(tmp_path: Path) -> None:
    load_module(tmp_path)
    add_pci_device(tmp_path, "0009:01:00.0", "0x2342", numa_node="0")
    nvml = recorded("h100x1")
    pci = nvml.devices[0]["nvmlDeviceGetPciInfo_v3"]["value"]
    pci.update(busId="00000009:01:00.0", domain=9, bus=1, device=0, pciDeviceId=0x234210DE)
    facts = facts_of(tmp_path, report(nvml), simulated=True)
    assert (facts.count, facts.gpus[0].pci_bus_id, facts.gpus[0].index) == (1, "00000009:01:00.0", 0)
    assert facts.gpus[0].numa_node == 0


def test_nvlink_between_gpus(h200x4: Path) -> None:
    nvml = recorded("h200x4")
    for link in range(18):
        nvml.change(0, f"nvmlDeviceGetNvLinkRemoteDeviceType:{link}", 0)
        nvml.change(0, f"nvmlDeviceGetNvLinkState:{link}", int(link < 4))
        peer = {"busId": MIXED_ADDRESSES[1 + link % 2]}
        nvml.change(0, f"nvmlDeviceGetNvLinkRemotePciInfo_v2:{link}", peer)
    assert facts_of(h200x4, report(nvml)).gpus[0].nvlink == _gpu.Nvlink(
        version="4.0",
        links=18,
        active_links=4,
        peers=[_gpu.NvlinkPeer("gpu", "00000000:00:07.0", 2), _gpu.NvlinkPeer("gpu", "00000000:00:08.0", 2)],
    )


def test_nvlink_without_active_link(h200x4: Path) -> None:
    nvml = recorded("h200x4")
    for link in range(18):
        nvml.change(0, f"nvmlDeviceGetNvLinkState:{link}", 0)
    assert facts_of(h200x4, report(nvml)).gpus[0].nvlink == _gpu.Nvlink(None, 18, 0, [])


def test_processes_are_counted_once(h200x4: Path) -> None:
    process = [type("Process", (), {"pid": pid}) for pid in (10, 11)]
    nvml = recorded("h200x4").change(0, "nvmlDeviceGetComputeRunningProcesses", process)
    nvml.change(0, "nvmlDeviceGetGraphicsRunningProcesses", process[:1])
    assert facts_of(h200x4, report(nvml)).gpus[0].processes == 2


def test_module_on_disk_is_newer_than_the_loaded_one(h200x4: Path) -> None:
    facts = facts_of(h200x4, report(recorded("h200x4")))
    driver = replace(facts.driver, installed_version="595.10.01")
    problems = _gpu._host_problems(driver, facts.gpus)
    assert [(problem.code, problem.severity) for problem in problems] == [("driver_reload_pending", "warning")]


def test_hang_keeps_what_was_read(h200x4: Path) -> None:
    whole = report(recorded("h200x4"))
    result = replace(whole, devices=whole.devices[:2], finished=False, failure="NVML did not answer within 30 s")
    facts = facts_of(h200x4, result)
    assert (facts.driver.state, facts.visible_count, facts.count) == ("unusable", 2, 4)
    assert [gpu.healthy for gpu in facts.gpus] == [True, True, None, None]
    assert facts.gpus[3].uuid == "GPU-00000000-0000-4000-8000-000000000003"
    assert facts.gpus[3].problems == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [([65535, 0, 0, 0], "0-15"), ([0b1011, 1], "0-1,3,64"), ([2**64 - 1, 0], "0-63"), ([0, 0], None), ([], None)],
)
def test_cpu_list(words: list[int], expected: str | None) -> None:
    assert _gpu.cpu_list(words) == expected


def write_marker(host: Path, text: str) -> None:
    (host / "etc/gpu-simulator").mkdir(parents=True)
    (host / "etc/gpu-simulator/marker.json").write_text(text)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"simulator": "cudahub.gpu"}'])
def test_broken_marker_is_none(tmp_path: Path, text: str) -> None:
    write_marker(tmp_path, text)
    assert _gpu.read_marker(_pci.HostFiles(str(tmp_path))) is None


class Bindings:
    """Replaces the loading of the binding."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def give(self, nvml: _nvml.Nvml | None) -> None:
        def load(_venvs: t.Sequence[str]) -> _nvml.Nvml:
            if nvml is None:
                raise ImportError("there is no binding")
            return nvml

        self._monkeypatch.setattr(_nvml, "load_binding", load)


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> Bindings:
    return Bindings(monkeypatch)


def test_gather_on_a_real_host(h200x4: Path, bindings: Bindings) -> None:
    bindings.give(recorded("h200x4"))
    facts = _gpu.gather([], 20, no_command, _pci.HostFiles(str(h200x4)))
    assert (facts.visible_count, facts.driver.state, facts.simulated) == (4, "ok", False)


def test_gather_without_binding(h200x4: Path, bindings: Bindings) -> None:
    bindings.give(None)
    facts = _gpu.gather([], 20, no_command, _pci.HostFiles(str(h200x4)))
    assert (facts.count, facts.driver.state, facts.driver.reason) == (4, "unusable", "there is no binding")


def test_gather_on_a_simulated_host(tmp_path: Path, h200x4: Path, bindings: Bindings) -> None:
    host = tmp_path / "host"
    write_marker(host, json.dumps({"root": str(h200x4)}))
    nvml = recorded("h200x4")
    nvml.simulator = True
    bindings.give(nvml)
    facts = _gpu.gather([], 20, no_command, _pci.HostFiles(str(host)))
    assert (facts.count, facts.visible_count, facts.simulated) == (4, 4, True)
    assert facts.driver.kernel_module == "open"
    assert facts.gpus[0].problems == []


def test_gather_where_simulated_gpus_have_no_driver(tmp_path: Path, bindings: Bindings) -> None:
    host, root = tmp_path / "host", tmp_path / "root"
    write_marker(host, json.dumps({"root": str(root)}))
    add_pci_device(root, "0000:00:06.0", driver=None)
    bindings.give(FakeNvml([], {}).fail("nvmlInit", _nvml.LIBRARY_NOT_FOUND))
    facts = _gpu.gather([], 20, no_command, _pci.HostFiles(str(host)))
    assert (facts.count, facts.driver.state, facts.simulated) == (1, "absent", True)


def test_gather_ignores_the_marker_under_a_real_driver(tmp_path: Path, h200x4: Path, bindings: Bindings) -> None:
    write_marker(h200x4, json.dumps({"root": str(tmp_path / "elsewhere")}))
    bindings.give(recorded("h200x4"))
    facts = _gpu.gather([], 20, no_command, _pci.HostFiles(str(h200x4)))
    assert (facts.count, facts.driver.state, facts.simulated) == (4, "ok", False)


@pytest.mark.parametrize(
    ("init", "expected"), [(_nvml.DRIVER_NOT_LOADED, (1, "not_loaded", True)), (None, (4, "ok", False))]
)
def test_gather_where_a_real_driver_came_to_simulated_gpus(
    tmp_path: Path, h200x4: Path, bindings: Bindings, init: int | None, expected: tuple[int, str, bool]
) -> None:
    root = tmp_path / "root"
    write_marker(h200x4, json.dumps({"root": str(root), "driver": False}))
    add_pci_device(root, "0000:00:06.0", driver=None)
    add_pci_device(root, "0000:07:00.0", "0x22a3", "0x068000", driver=None)
    add_library(h200x4, "580.159.04")
    nvml = recorded("h200x4")
    bindings.give(nvml if init is None else nvml.fail("nvmlInit", init))
    facts = _gpu.gather([], 20, no_command, _pci.HostFiles(str(h200x4)))
    assert (facts.count, facts.driver.state, facts.simulated) == expected
    assert facts.driver.library_version == "580.159.04"
    assert facts.nvswitches == (1 if init else 0)
