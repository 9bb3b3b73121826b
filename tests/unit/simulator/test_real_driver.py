# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a host has a real driver: packages, a library, a loaded module; and when it only seems so."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from simulated_host import FILES

SCRIPT = FILES / "gpu_simulator" / "real_driver.py"


def load() -> ModuleType:
    """Return the module."""
    spec = importlib.util.spec_from_file_location("real_driver", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def real_driver(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module on a host without any trace of a driver."""
    module = load()
    monkeypatch.setattr(module, "module_loaded", lambda: False)
    monkeypatch.setattr(module, "_in_container", lambda: False)
    monkeypatch.setattr(module, "_driver_packages", list)
    monkeypatch.setattr(module, "_libraries", list)
    monkeypatch.setattr(module, "_has_control_node", lambda: False)
    return module


def test_a_bare_host_has_none(real_driver: ModuleType) -> None:
    assert real_driver.real_driver() is None


def test_a_loaded_module(real_driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_driver, "module_loaded", lambda: True)
    assert real_driver.real_driver() == "This host has a real NVIDIA driver: the kernel module nvidia is loaded."


def test_a_container_of_a_host_with_a_driver(real_driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees its host's modules; what counts is whether it was given the GPUs."""
    monkeypatch.setattr(real_driver, "module_loaded", lambda: True)
    monkeypatch.setattr(real_driver, "_in_container", lambda: True)
    assert real_driver.real_driver() is None
    monkeypatch.setattr(real_driver, "_has_control_node", lambda: True)
    assert "the kernel module nvidia is loaded" in real_driver.real_driver()


def test_a_package(real_driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_driver, "_driver_packages", lambda: ["libnvidia-ml1", "nvidia-smi"])
    assert real_driver.real_driver() == "This host has a real NVIDIA driver: the package libnvidia-ml1 is installed."


def test_a_library_of_an_installer(real_driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "/usr/local/lib/gpu-simulator/libnvidia-ml.so.1"
    monkeypatch.setattr(real_driver, "_libraries", lambda: [ours])
    assert real_driver.real_driver() is None
    monkeypatch.setattr(real_driver, "_libraries", lambda: [ours, "/usr/lib64/libnvidia-ml.so.1"])
    assert real_driver.real_driver() == "This host has a real NVIDIA driver: /usr/lib64/libnvidia-ml.so.1 is installed."


def test_a_library_that_the_linkers_cache_does_not_know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = load()
    assert {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"} <= set(
        module.LIBRARY_DIRECTORIES
    )
    monkeypatch.setattr(module, "LIBRARY_DIRECTORIES", (str(tmp_path),))
    before = module._libraries()
    library = tmp_path / "libnvidia-ml.so.1"
    library.symlink_to("libnvidia-ml.so.580.159.04")
    assert module._libraries() == before, "a link that leads nowhere is no library"
    (tmp_path / "libnvidia-ml.so.580.159.04").touch()
    assert module._libraries() == [*before, str(library)]


DRIVERS = [
    "libnvidia-ml1", "libnvidia-compute", "libnvidia-compute-580-server", "nvidia-driver", "nvidia-driver-580-open",
    "nvidia-driver-cuda", "nvidia-kernel-dkms", "nvidia-open-kernel-dkms", "nvidia-open", "nvidia-open-580",
    "nvidia-dkms-580", "nvidia-headless-580-server-open", "nvidia-utils-580", "nvidia-smi", "cuda-drivers",
    "cuda-drivers-580", "kmod-nvidia-open-dkms", "akmod-nvidia", "xorg-x11-drv-nvidia-cuda-libs",
]  # fmt: skip
OTHERS = [
    "nvidia-container-toolkit", "libnvidia-container1", "nvidia-driver-pinning", "python3-pynvml", "nvtop",
    "nvidia-cuda-toolkit", "cuda-toolkit-13-0", "libnvidia-egl-wayland1", "nvidia-modprobe", "firmware-nvidia-gsp",
    "gcc",
]  # fmt: skip


@pytest.mark.parametrize("name", DRIVERS)
def test_packages_that_are_a_driver(real_driver: ModuleType, name: str) -> None:
    assert real_driver.DRIVER_PACKAGE.fullmatch(name)


@pytest.mark.parametrize("name", OTHERS)
def test_packages_that_are_none(real_driver: ModuleType, name: str) -> None:
    assert not real_driver.DRIVER_PACKAGE.fullmatch(name)


def test_packages_of_dpkg(real_driver: ModuleType, tmp_path: Path) -> None:
    """Removed packages whose configuration is left don't count."""
    status = tmp_path / "status"
    status.write_text(
        "Package: nvidia-smi\nStatus: deinstall ok config-files\nVersion: 1\n\n"
        "Package: libnvidia-ml1\nStatus: install ok installed\nPriority: optional\n\n"
        "Package: nvidia-open-kernel-dkms\nStatus: install ok half-configured\n\n"
        "Package: gcc\nStatus: install ok installed\n"
    )
    assert real_driver.dpkg_packages(status) == ["libnvidia-ml1", "nvidia-open-kernel-dkms", "gcc"]


def test_as_a_script_it_prints_json() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True)
    assert list(json.loads(done.stdout)) == ["real_driver"]
