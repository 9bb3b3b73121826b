# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVML is read completely, partly or not at all, and never takes the module with it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _nvml
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import FakeNvml, mig_instance, recorded, report


class Hanging(FakeNvml):
    """Never returns from a function, for one device, and says so by a file."""

    def __init__(self, nvml: FakeNvml, function: str, device: int | None, hangs: Path) -> None:
        super().__init__(nvml.devices, nvml.system)
        self.where = (function, device)
        self.hangs = hangs

    def call(self, function: str, *args: t.Any) -> t.Any:
        if (function, args[0] if args else None) == self.where:
            self.hangs.touch()
            time.sleep(600)
        return super().call(function, *args)


def child_report(load: t.Callable[[], _nvml.Nvml], timeout: float = 120) -> tuple[_nvml.Report, int]:
    child = _nvml.Child(load)
    return child.report(timeout), child._pid


def wait_for(met: t.Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def assert_gone(pid: int) -> None:
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_healthy_machine() -> None:
    result, pid = child_report(lambda: recorded("h200x4"))
    assert result.answered
    assert result.finished
    assert result.binding == recorded("h200x4").origin
    assert (result.driver_version, result.library_version, result.cuda_version) == ("580.159.04", "580.159.04", 13000)
    assert [device["index"] for device in result.devices] == [0, 1, 2, 3]
    assert result.devices[2]["values"]["pci"] == {"bus_id": "00000000:00:08.0", "device_id": 0x233510DE}
    assert result.devices[0]["errors"] == {}
    assert result.failure is None
    assert_gone(pid)


def test_values_that_are_not_supported_are_left_out() -> None:
    values = report(recorded("h100x1")).devices[0]["values"]
    assert "retired_pages_pending" not in values
    assert "links" not in values
    assert "recovery_action" not in values
    assert values["uncorrected_volatile"] == 0


@pytest.mark.parametrize("code", sorted(_nvml.UNSUPPORTED))
def test_unsupported_is_no_error(code: int) -> None:
    device = report(recorded("h100x1").fail("nvmlDeviceGetMemoryInfo", code, 0)).devices[0]
    assert "memory_bytes" not in device["values"]
    assert device["errors"] == {}


@pytest.mark.parametrize("code", [4, 15, 999])
def test_one_failing_call_keeps_the_rest(code: int) -> None:
    whole = report(recorded("h100x1")).devices[0]["values"]
    device = report(recorded("h100x1").fail("nvmlDeviceGetMemoryInfo", code, 0)).devices[0]
    assert device["errors"] == {"nvmlDeviceGetMemoryInfo": code}
    assert device["values"] == {name: value for name, value in whole.items() if name != "memory_bytes"}


def test_older_name_of_a_function() -> None:
    nvml = recorded("h100x1").fail("nvmlDeviceGetCurrentClocksEventReasons", _nvml.FUNCTION_NOT_FOUND, 0)
    nvml.change(0, "nvmlDeviceGetCurrentClocksThrottleReasons", 64)
    assert report(nvml).devices[0]["values"]["clock_reasons"] == 64


def test_links_are_read_until_the_last() -> None:
    links = report(recorded("h200x4")).devices[0]["values"]["links"]
    assert len(links) == 18
    assert links[0] == {"active": True, "version": 6, "type": 2}


def test_mig_instances() -> None:
    nvml = recorded("h200x4").in_mig_mode(1, [mig_instance(0), None, mig_instance(2, "2g.10gb", 2, 9856)])
    instances = report(nvml).devices[1]["instances"]
    assert [instance["index"] for instance in instances] == [0, 2]
    assert instances[1]["values"]["attributes"] == {"memory_mib": 9856, "gpu_slices": 2}
    assert report(nvml).devices[0]["instances"] == []


def test_one_lost_of_four() -> None:
    result = report(recorded("h200x4").fail("nvmlDeviceGetHandleByIndex", _nvml.GPU_IS_LOST, 1))
    assert [device["error"] for device in result.devices] == [None, 15, None, None]
    assert result.finished


@pytest.mark.parametrize("code", [4, 9, 12, 18, 999])
def test_start_fails(code: int) -> None:
    result, pid = child_report(lambda: recorded("h100x1").fail("nvmlInit", code))
    assert result.init_error == code
    assert not result.answered
    assert result.library_version == "580.159.04"
    assert result.failure is None
    assert_gone(pid)


def test_binding_is_missing() -> None:
    def load() -> _nvml.Nvml:
        raise ImportError("no binding here")

    result, pid = child_report(load)
    assert result.missing_binding == "no binding here"
    assert result.failure is None
    assert_gone(pid)


@pytest.mark.parametrize(
    ("function", "device", "devices_read", "sentence"),
    [
        ("nvmlInit", None, 0, "while the library was loaded"),
        ("nvmlDeviceGetCount", None, 0, "while it started"),
        ("nvmlDeviceGetHandleByIndex", 0, 0, "while GPU 0 of 4 was read"),
        ("nvmlDeviceGetMemoryInfo", 2, 2, "while GPU 2 of 4 was read"),
    ],
)
def test_hanging_call_is_ended(
    tmp_path: Path, function: str, device: int | None, devices_read: int, sentence: str
) -> None:
    hangs = tmp_path / "hangs"
    child = _nvml.Child(lambda: Hanging(recorded("h200x4"), function, device, hangs))
    wait_for(hangs.exists)
    result, pid = child.report(0.4), child._pid
    assert len(result.devices) == devices_read
    assert result.failure is not None
    assert result.failure.startswith("NVML did not answer within 0.4 s, ")
    assert sentence in result.failure
    assert not result.finished
    assert_gone(pid)


def test_an_answer_that_is_asked_for_late_counts() -> None:
    child = _nvml.Child(lambda: recorded("h200x4"))
    wait_for(lambda: os.waitid(os.P_PID, child._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None)
    result = child.report(0)
    assert (result.failure, result.finished, len(result.devices)) == (None, True, 4)


def test_crash_of_the_library() -> None:
    def load() -> _nvml.Nvml:
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError

    result, pid = child_report(load)
    assert result.failure == "NVML ended its process with signal 11: the library is broken; reinstall the driver"
    assert_gone(pid)


def test_exit_of_the_library() -> None:
    def load() -> _nvml.Nvml:
        os._exit(3)

    assert child_report(load)[0].failure == "NVML's process ended early, with exit status 3"


def test_bug_in_the_binding() -> None:
    def load() -> _nvml.Nvml:
        raise TypeError("unexpected")

    assert child_report(load)[0].failure == "Reading NVML failed: TypeError: unexpected"


def test_child_does_not_hold_the_parents_output(capfd: pytest.CaptureFixture[str]) -> None:
    def load() -> _nvml.Nvml:
        os.write(1, b"noise on stdout")
        os.write(2, b"noise on stderr")
        return recorded("h100x1")

    assert child_report(load)[0].finished
    assert capfd.readouterr() == ("", "")


def test_incomplete_last_line_is_left_out() -> None:
    result = _nvml.parse([b'{"device_count": 2}', b'{"device": {"index": 0}}', b'{"device": {"ind'])
    assert result.device_count == 2
    assert len(result.devices) == 1


def make_venv(root: Path, source: str, python: str = "python3.11") -> str:
    path = root / "lib" / python / "site-packages"
    path.mkdir(parents=True)
    (path / "pynvml.py").write_text(source)
    return str(root)


BINDING = f"def {_nvml.NEEDED_FUNCTION}(device, index): pass\nclass NVMLError(Exception): pass\nORIGIN = __file__\n"


@pytest.fixture
def _no_installed_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nvml, "MODULE", "pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", None)


@pytest.mark.usefixtures("_no_installed_binding")
def test_binding_from_a_venv_of_another_python(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "second", BINDING, "python3.9")
    binding = _nvml.load_binding([str(tmp_path / "first"), venv])
    assert isinstance(binding, _nvml.Pynvml)
    assert binding._module.ORIGIN == f"{venv}/lib/python3.9/site-packages/pynvml.py"


@pytest.mark.usefixtures("_no_installed_binding")
def test_binding_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_venv(tmp_path / "old", "class NVMLError(Exception): pass\n")
    new = make_venv(tmp_path / "new", BINDING)
    assert _nvml.load_binding([old, new])._module.ORIGIN.startswith(new)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ImportError, match=f"is too old in {old}: run the role cudahub.gpu.gpu_facts"):
        _nvml.load_binding([old])


@pytest.mark.usefixtures("_no_installed_binding")
def test_no_binding_names_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(
        ImportError, match=rf"was not found in the module's Python interpreter, {tmp_path}: run the role"
    ):
        _nvml.load_binding([str(tmp_path)])


class FakeModule(SimpleNamespace):
    """What the binding's module looks like."""

    class NVMLError(Exception):
        """The binding's error."""

        def __init__(self, value: int) -> None:
            super().__init__(value)
            self.value = value


def test_binding_translates_errors() -> None:
    def lost(_handle: object) -> None:
        raise FakeModule.NVMLError(15)

    binding = _nvml.Pynvml(t.cast(t.Any, FakeModule(nvmlDeviceGetName=lost, NVMLError=FakeModule.NVMLError)))
    with pytest.raises(_nvml.NvmlError, match=r"15 \(GPU is lost\)"):
        binding.call("nvmlDeviceGetName", 0)
    with pytest.raises(_nvml.NvmlError, match=r"13 \(function not found\)"):
        binding.call("nvmlDeviceGetSomethingNew", 0)


def test_symbol_of_the_simulator() -> None:
    libc = ctypes.CDLL(None)
    assert _nvml.Pynvml(t.cast(t.Any, FakeModule(nvmlLib=libc))).has_symbol("getpid")
    assert not _nvml.Pynvml(t.cast(t.Any, FakeModule(nvmlLib=libc))).has_symbol(_nvml.SIMULATOR_SYMBOL)
    assert not _nvml.Pynvml(t.cast(t.Any, FakeModule(nvmlLib=None))).has_symbol("getpid")


def test_every_function_exists_in_the_current_binding() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is part of the test requirements")
    names = {read.function for read in (*_nvml.LIBRARY, *_nvml.SYSTEM, *_nvml.DEVICE, *_nvml.INSTANCE)}
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []
    codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)}
    assert codes >= set(_nvml.ERRORS)
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == _nvml.RECOVERY_ACTION_FIELD
    assert pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH == _nvml.SWITCH_LINK
