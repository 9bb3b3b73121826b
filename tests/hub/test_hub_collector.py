# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collector: what it reads, since when a GPU is idle, and every way in which a driver can be away."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from cudahub_hub import collector as module
from cudahub_hub.collector import Collector, NvmlError, Pynvml, write_usage
from cudahub_hub.inventory import Unit
from cudahub_hub.usage import Process, UnitUsage, read_usage

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "simulator"))

from simulated_host import Host

GPU_A = Unit("GPU-a", "gpu", "GPU-a", "0", pci_bus_id="00000000:19:00.0")
GPU_B = Unit("GPU-b", "gpu", "GPU-b", "1", pci_bus_id="00000000:3B:00.0")
SLICE = Unit("MIG-c", "mig", "GPU-b", "1.0", pci_bus_id="00000000:3B:00.0")


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@dataclass
class Card:
    uuid: str
    utilization: int | None = 0
    used: int = 100
    processes: list[Any] = field(default_factory=list)
    error: int | None = None
    slices: list[Card] = field(default_factory=list)
    mig: int | None = None


class FakePynvml:
    """The module pynvml over cards that a test changes."""

    NVMLError = FakeError
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, **cards: Card) -> None:
        self.cards = {
            "00000000:19:00.0": cards.get("a", Card("GPU-a")),
            "00000000:3B:00.0": cards.get("b", Card("GPU-b")),
        }
        self.init_error: int | None = None
        self.missing = False
        self.opened = 0
        self.closed = 0

    def load(self) -> FakePynvml:
        if self.missing:
            raise ImportError("No module named 'pynvml'")
        return self

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error:
            raise FakeError(self.init_error)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed += 1

    def nvmlDeviceGetHandleByPciBusId(self, address: bytes) -> Card:  # noqa: N802
        return self.answering(self.cards.get(address.decode()))

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> Card:  # noqa: N802
        return self.answering(next((card for card in self.cards.values() if card.uuid == uuid.decode()), None))

    @staticmethod
    def answering(card: Card | None) -> Card:
        if card is None:
            raise FakeError(6)
        if card.error:
            raise FakeError(card.error)
        return card

    def nvmlDeviceGetUUID(self, card: Card) -> str:  # noqa: N802
        return card.uuid

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:  # noqa: N802
        if card.mig is None:
            raise FakeError(3)
        return [card.mig, card.mig]

    def nvmlDeviceGetMaxMigDeviceCount(self, _unused: Card) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:  # noqa: N802
        if index >= len(card.slices):
            raise FakeError(6)
        return card.slices[index]

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> Any:  # noqa: N802
        if card.utilization is None:
            raise FakeError(3)
        return SimpleNamespace(gpu=card.utilization)

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int | None = None) -> Any:  # noqa: N802
        if version:
            raise FakeError(13)
        return SimpleNamespace(used=card.used, total=1000)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:  # noqa: N802
        return card.processes


class Rig:
    """A collector over fake cards and a clock."""

    def __init__(self, **cards: Card) -> None:
        self.now = 1000.0
        self.cpu: dict[int, float] = {}
        self.nvml = FakePynvml(**cards)
        self.collector = self.new()

    def new(self) -> Collector:
        return Collector(
            Pynvml(self.nvml.load), interval=5, clock=lambda: self.now, cpu=lambda pid: self.cpu.get(pid, 0.0)
        )

    def card(self, place: int = 0) -> Card:
        return list(self.nvml.cards.values())[place]

    def sample(self, *units: Unit, after: float = 5) -> dict[str, UnitUsage]:
        self.now += after
        return self.collector.sample(units or (GPU_A, GPU_B), 5)


def test_values_are_read() -> None:
    rig = Rig(a=Card("GPU-a", utilization=42, processes=[SimpleNamespace(pid=7, usedGpuMemory=None)]))
    usage = rig.sample()["GPU-a"]
    assert (usage.state, usage.utilization_percent, usage.memory_used_bytes, usage.memory_total_bytes) == (
        "ok",
        42,
        100,
        1000,
    )
    assert usage.processes == (Process(7, None),)


def test_busy_at_is_the_last_time_above_the_limit() -> None:
    rig = Rig()
    rig.sample()
    rig.card().utilization = 6
    rig.sample()
    at_work = rig.now
    rig.card().utilization = 5
    assert rig.sample()["GPU-a"].busy_at == at_work
    assert rig.sample()["GPU-a"].busy_at == at_work


def test_a_gpu_that_nobody_watched_counts_as_busy() -> None:
    rig = Rig()
    assert rig.sample()["GPU-a"].busy_at == rig.now
    rig.sample()
    for jump in (3600, -3600):
        assert rig.sample(after=jump)["GPU-a"].busy_at == rig.now


def test_a_slice_works_when_its_memory_or_processes_change() -> None:
    card = Card("MIG-c", utilization=None)
    rig = Rig(b=Card("GPU-b", slices=[Card("MIG-x"), card]))
    rig.sample(SLICE)
    start = rig.now
    assert rig.sample(SLICE)["MIG-c"].busy_at == start
    card.used = 200
    assert rig.sample(SLICE)["MIG-c"].busy_at == rig.now
    card.processes = [SimpleNamespace(pid=7, usedGpuMemory=50)]
    assert rig.sample(SLICE)["MIG-c"].busy_at == rig.now
    assert rig.sample(SLICE)["MIG-c"].busy_at == rig.now - 5


def test_a_slice_works_while_its_processes_compute_on_the_cpu() -> None:
    card = Card("MIG-c", utilization=None, processes=[SimpleNamespace(pid=7, usedGpuMemory=50)])
    rig = Rig(b=Card("GPU-b", slices=[card]))
    rig.sample(SLICE)
    rig.cpu[7] = 4.0
    assert rig.sample(SLICE)["MIG-c"].busy_at == rig.now
    rig.cpu[7] = 4.1
    assert rig.sample(SLICE)["MIG-c"].busy_at == rig.now - 5


@pytest.mark.parametrize(("code", "why"), [(15, "the driver lost it"), (16, "it needs a reset")])
def test_a_lost_gpu_is_lost_with_a_sentence_and_the_others_are_read(code: int, why: str) -> None:
    rig = Rig(a=Card("GPU-a", error=code))
    usage = rig.sample()
    assert usage["GPU-a"].state == "lost"
    assert usage["GPU-a"].reason == f"GPU 0 does not answer any more: {why} (error {code})"
    assert usage["GPU-b"].state == "ok"


def test_a_gpu_that_is_not_there_any_more_is_lost() -> None:
    rig = Rig()
    rig.card().uuid = "GPU-new"
    assert rig.sample()["GPU-a"].reason == (
        "GPU 0 does not answer any more: the driver does not find it (another GPU is in its place)"
    )
    del rig.nvml.cards["00000000:3B:00.0"]
    assert rig.sample()["GPU-b"].state == "lost"


def test_a_slice_that_is_not_there_any_more_is_lost() -> None:
    assert "its MIG slice is not there" in str(Rig().sample(SLICE)["MIG-c"].reason)


def test_a_gpu_that_is_in_mig_mode_now_is_lost() -> None:
    """Whoever were given it whole would have one of its slices, or none."""
    rig = Rig(b=Card("GPU-b", slices=[Card("MIG-c")], mig=1))
    found = rig.sample(GPU_A, GPU_B, SLICE)
    assert {uuid: usage.state for uuid, usage in found.items()} == {"GPU-a": "ok", "GPU-b": "lost", "MIG-c": "ok"}
    assert found["GPU-b"].reason == (
        "GPU 1 does not answer any more: it is in MIG mode now (run the playbook again, and its slices are given)"
    )
    rig.card(1).mig = 0
    assert rig.sample(GPU_B)["GPU-b"].state == "ok"


def test_a_gpu_without_an_address_is_found_by_its_uuid() -> None:
    assert Rig().sample(Unit("GPU-b", "gpu", "GPU-b", "1"))["GPU-b"].state == "ok"


def test_since_is_when_the_state_began_and_busy_at_stays() -> None:
    rig = Rig()
    rig.sample()
    first = rig.now
    assert rig.sample()["GPU-a"].since == first
    rig.card().error = 15
    rig.sample()
    lost = rig.now
    usage = rig.sample()["GPU-a"]
    assert (usage.since, usage.busy_at) == (lost, first)


def test_the_library_is_opened_again_after_an_error_only() -> None:
    rig = Rig()
    rig.sample()
    rig.sample()
    assert (rig.nvml.opened, rig.nvml.closed) == (1, 0)
    rig.card().error = 999
    assert rig.sample()["GPU-a"].reason == "GPU 0 can't be read: error 999"
    rig.card().error = None
    assert rig.sample()["GPU-a"].state == "ok"
    assert (rig.nvml.opened, rig.nvml.closed) == (2, 1)


def test_without_the_library_all_is_unknown_until_it_comes() -> None:
    rig = Rig()
    rig.nvml.missing = True
    assert "install nvidia-ml-py" in str(rig.sample()["GPU-b"].reason)
    rig.nvml.missing, rig.nvml.init_error = False, 9
    assert rig.sample()["GPU-a"].reason == "The NVIDIA driver does not answer: error 9"
    rig.nvml.init_error = None
    assert rig.sample()["GPU-a"].state == "ok"


def test_a_replaced_driver_is_told() -> None:
    rig = Rig()
    rig.nvml.init_error = 18
    rig.sample()
    assert rig.collector.replaced


def test_a_new_process_goes_on_from_a_fresh_file(tmp_path: Path) -> None:
    rig = Rig()
    rig.sample()
    start = rig.now
    write_usage(tmp_path / "gpus.json", rig.sample(), now=rig.now, interval=5)
    rig.collector = rig.new()
    rig.collector.recall(tmp_path / "gpus.json")
    usage = rig.sample()["GPU-a"]
    assert (usage.busy_at, usage.since) == (start, start)
    rig.collector = rig.new()
    rig.now += 3600
    rig.collector.recall(tmp_path / "gpus.json")
    assert rig.sample()["GPU-a"].busy_at == rig.now


def test_the_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run" / "gpus.json"
    write_usage(path, {"GPU-a": UnitUsage("ok", busy_at=3.0)}, now=5.0, interval=5)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert read_usage(path, 5.0).of("GPU-a") == UnitUsage("ok", busy_at=3.0)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.json, "dump", full)
    with pytest.raises(OSError, match="No space"):
        write_usage(path, {}, now=6.0, interval=5)
    assert read_usage(path, 5.0).of("GPU-a").state == "ok"
    assert [entry.name for entry in path.parent.iterdir()] == ["gpus.json"]


def test_cpu_seconds_of_this_process_grow_and_of_none_are_zero() -> None:
    before = module.cpu_seconds(os.getpid())
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    assert module.cpu_seconds(os.getpid()) > before
    assert module.cpu_seconds(2**22 + 1) == 0


def test_nothing_of_jupyterhub_is_imported() -> None:
    program = "import sys, cudahub_hub.collector; print([m for m in sys.modules if m.split('.')[0] in %r])"
    program %= (("jupyterhub", "tornado", "traitlets"),)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def settings(directory: Path, units: list[Unit], **more: Any) -> Path:
    (directory / "inventory.json").write_text(
        json.dumps({"format": 1, "units": [vars(unit) for unit in units]}), encoding="utf-8"
    )
    path = directory / "settings.json"
    content = {
        "format": 1,
        "inventory": str(directory / "inventory.json"),
        "usage": str(directory / "usage.json"),
        **more,
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def collect(path: Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudahub_hub.collector", "--settings", str(path), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_wrong_settings_are_one_sentence(tmp_path: Path) -> None:
    done = collect(tmp_path / "none.json", "--once")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "none.json" in done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A simulated host: two A100, the first one in MIG mode."""
    host = Host(tmp_path_factory.mktemp("host"))
    host.configure(profile="a100-40gb-mig")
    return host


@pytest.fixture
def host(built: Host) -> Host:
    built.clear()
    return built


def units_of(host: Host) -> list[Unit]:
    code = """
result = []
n.nvmlInit()
for i in range(n.nvmlDeviceGetCount()):
    gpu = n.nvmlDeviceGetHandleByIndex(i)
    uuid, bus, found = n.nvmlDeviceGetUUID(gpu), n.nvmlDeviceGetPciInfo(gpu).busId, []
    for j in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, j)))
        except n.NVMLError:
            pass
    result += [(m, "mig", uuid, f"{i}.{j}", bus) for j, m in enumerate(found)] or [(uuid, "gpu", uuid, str(i), bus)]
"""
    return [Unit(*found[:4], pci_bus_id=found[4]) for found in host.python(code)]


def test_the_simulated_driver_is_read(host: Host, tmp_path: Path) -> None:
    units = units_of(host)
    path = settings(tmp_path, units)
    done = collect(path, "--once", environment=host.environment)
    assert done.returncode == 0, done.stderr
    usage = read_usage(tmp_path / "usage.json", time.time())
    assert len(units) == 4
    for unit in units:
        assert usage.of(unit.uuid).state == "ok", usage.of(unit.uuid)
        assert usage.of(unit.uuid).memory_total_bytes
        assert (usage.of(unit.uuid).utilization_percent is None) is (unit.kind == "mig")


def test_the_simulated_driver_loses_a_gpu_while_the_collector_runs(host: Host, tmp_path: Path) -> None:
    units = units_of(host)
    path = settings(tmp_path, units)
    running = subprocess.Popen(
        [sys.executable, "-m", "cudahub_hub.collector", "--settings", str(path), "--interval", "0.2"],
        env=host.environment,
        stderr=subprocess.PIPE,
        text=True,
    )

    def wait_for(*states: str) -> None:
        deadline = time.monotonic() + 120
        found: list[str] = []
        while time.monotonic() < deadline:
            usage = read_usage(tmp_path / "usage.json", time.time())
            found = [usage.of(unit.uuid).state for unit in units]
            if found == list(states):
                return
            time.sleep(0.1)
        raise AssertionError(f"{found} is not {states}")

    try:
        wait_for("ok", "ok", "ok", "ok")
        host.fault("lost", gpu=1)
        wait_for("ok", "ok", "ok", "lost")
        host.fault("not_loaded")
        wait_for(*["unknown"] * 4)
        host.clear()
        wait_for("ok", "ok", "ok", "ok")
        host.fault("lost", gpu=1)
        host.fault("mismatch")
        said = running.communicate(timeout=120)[1]
        assert running.returncode == 1
        assert "must be started again" in said
        assert said.count("does not answer any more") == 2
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=60)


def test_a_file_that_cannot_be_written_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings(tmp_path, [GPU_A], usage=str(tmp_path / "settings.json" / "usage.json"))
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    assert module.run(module.Configuration(path), Rig().collector, interval=0.1, once=False, stop=stop) == 0
    assert capsys.readouterr().err.count("can't be written: ") == 1


def test_without_a_driver_the_file_says_so(tmp_path: Path) -> None:
    path = settings(tmp_path, [GPU_A])
    done = collect(path, "--once", environment={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 0
    assert "NVIDIA driver does not answer" in str(read_usage(tmp_path / "usage.json", time.time()).of("GPU-a").reason)


def test_an_error_of_the_fake_is_the_real_modules() -> None:
    for name in dir(FakePynvml):
        if name.startswith("nvml"):
            assert hasattr(pynvml, name)
    assert issubclass(pynvml.NVMLError, Exception)
    assert NvmlError(3, "x").code == 3
