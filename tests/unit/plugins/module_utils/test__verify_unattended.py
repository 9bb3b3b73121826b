# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verification that a host does by itself, with what the role installs and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu, _verify_unattended
from ansible_collections.cudahub.gpu.tests.unit.plugins.verify_cases import STANDIN, facts, gpu, mig_gpu

COLLECTION = Path(__file__).parents[4]
VARIABLES = yaml.safe_load((COLLECTION / "roles/gpu_verify/vars/main.yml").read_text())
PACKAGE = VARIABLES["_gpu_verify_timer_package"]


class Gathered:
    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def as_dict(self) -> dict[str, Any]:
        return self._found


def options(folder: Path, **more: Any) -> Path:
    given = {
        "python": sys.executable,
        "conda_prefix": None,
        "gpus": None,
        "known": [],
        "timeout": 120.0,
        "cudf": False,
        "simulated": "report",
        "require_gpu": True,
        "nvml_venvs": [],
        "metrics": str(folder / "gpu.prom"),
        "fact": str(folder / "gpu.fact"),
        **more,
    }
    assert set(given) == set(VARIABLES["_gpu_verify_timer_content"]) == _verify_unattended.OPTIONS
    path = folder / "options.json"
    path.write_text(json.dumps(given))
    return path


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a directory with the modules that the role installs."""
    library = tmp_path / "lib"
    modules = library / PACKAGE.replace(".", "/")
    modules.mkdir(parents=True)
    (library / "ansible_collections/__init__.py").touch()
    for name in VARIABLES["_gpu_verify_timer_modules"]:
        shutil.copy2(COLLECTION / f"plugins/module_utils/{name}.py", modules)
    return library


def alone(library: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program as the unit does, without Ansible and this collection."""
    return subprocess.run(
        [sys.executable, "-S", "-m", f"{PACKAGE}._verify_unattended", *arguments],
        cwd=library,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_the_role_installs_is_enough(installed: Path, tmp_path: Path) -> None:
    done = alone(installed, options(tmp_path, gpus=["GPU-that-nobody-has"]))
    assert (done.returncode, done.stderr) == (1, "")
    assert "GPU-that-nobody-has" in done.stdout
    assert json.loads((tmp_path / "gpu.fact").read_text())["verified"] is False
    assert "cudahub_gpu_verify_verified" in (tmp_path / "gpu.prom").read_text()


def test_the_role_installs_no_more_than_that(installed: Path, tmp_path: Path) -> None:
    path = options(tmp_path, gpus=["GPU-that-nobody-has"])
    for module in sorted((installed / PACKAGE.replace(".", "/")).glob("*.py")):
        text = module.read_text()
        module.unlink()
        done = alone(installed, path)
        assert done.stderr, f"{module.name} is not needed"
        module.write_text(text)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.setenv("PYTHONPATH", str(STANDIN))

    def main(*gpus: dict[str, Any], simulated: bool = False, **more: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(_gpu, "gather", lambda *_given: Gathered(facts(*gpus, simulated=simulated)))
        code = _verify_unattended.main([str(options(tmp_path, **more))])
        said = capsys.readouterr()
        return code, said.out, said.err

    return main


def test_gpus_that_compute(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {"device_nodes": []}
    code, out, _err = run(gpu(0, **nodes), gpu(1, **nodes))
    assert (code, out[:15]) == (0, "GPUs: 2 passed,")
    fact = json.loads((tmp_path / "gpu.fact").read_text())
    assert (fact["verified"], fact["counts"]["passed"]) == (True, 2)
    assert {gpu["checks"]["arange_sum"]["passed"] for gpu in fact["gpus"]} == {True}
    monkeypatch.setenv("CUPY_STANDIN", json.dumps({"GPU-1": "wrong_sum"}))
    code, out, _err = run(gpu(0, **nodes), gpu(1, **nodes))
    assert code == 1
    assert "1 passed, 1 failed" in out
    assert 'check_passed{gpu="1"' in (tmp_path / "gpu.prom").read_text()


def test_simulated_gpus_are_said_to_be(run: Any, tmp_path: Path) -> None:
    code, out, _err = run(gpu(0), simulated=True)
    assert (code, out[:18]) == (0, "GPUs: 1 simulated,")
    assert json.loads((tmp_path / "gpu.fact").read_text())["verified"] is False


def test_a_host_without_gpu_may_be_as_it_should(run: Any) -> None:
    assert run()[0] == 1
    assert run(require_gpu=False)[0] == 0
    # One that can't be verified is none that isn't there: role gpu_verify says the same.
    assert run(mig_gpu(0), require_gpu=False)[0] == 1


def test_what_can_not_be_done_is_told(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _verify_unattended.main([str(tmp_path / "missing.json")]) == 2
    for text in ("{", "[]", '{"python": null}'):
        (tmp_path / "options.json").write_text(text)
        assert _verify_unattended.main([str(tmp_path / "options.json")]) == 2
    said = capsys.readouterr().err
    assert said.count("The GPUs could not be verified:") == 4
    assert said.count("options.json is of another version of this program: run role gpu_verify again.") == 2


def test_a_file_that_can_not_be_written_hides_nothing(run: Any, tmp_path: Path) -> None:
    nodes = {"device_nodes": []}
    code, out, err = run(gpu(0, **nodes), gpus=["GPU-0", "GPU-9"], metrics=str(tmp_path / "gone/gpu.prom"))
    assert code == 1
    assert "[gpu_lost] GPU GPU-9" in out
    assert err == f"{tmp_path}/gone/gpu.prom could not be written: No such file or directory.\n"
    assert json.loads((tmp_path / "gpu.fact").read_text())["failure"]["kind"] == "gpu_lost"
    assert run(gpu(0, **nodes), metrics=str(tmp_path / "gone/gpu.prom"))[0] == 3


def test_a_known_gpu_that_has_left_the_bus_is_missed(run: Any) -> None:
    one, other, new = (gpu(index, pci_bus_id=f"00000000:0{index}:00.0") for index in range(3))
    known = [[each["pci_bus_id"], each["uuid"]] for each in (one, other)]
    code, out, _err = run(one, simulated=True, known=known)
    assert code == 1
    assert "GPUs: 1 failed, 1 simulated" in out
    assert f"GPU {other['uuid']} was expected, and isn't there now" in out
    # A new GPU is verified, too, and one that has moved is none that is missed.
    assert "GPUs: 3 simulated" in run(one, other, new, simulated=True, known=known)[1]
    assert "GPUs: 2 simulated" in run(one, {**other, "pci_bus_id": "00000000:FE:00.0"}, simulated=True, known=known)[1]


def test_a_name_of_a_gpu_that_no_file_can_hold_as_it_is(run: Any, tmp_path: Path) -> None:
    assert run(gpu(0, name="NVIDIA \udcff\ud800"), simulated=True)[0] == 0
    assert 'name="NVIDIA ??"' in (tmp_path / "gpu.prom").read_text()
    assert json.loads((tmp_path / "gpu.fact").read_text())["gpus"][0]["verdict"] == "simulated"


def test_programs_that_are_there_are_asked() -> None:
    assert _verify_unattended.output_of(["printf", "%s", "yes"]) == "yes"
    assert _verify_unattended.output_of(["no-such-program-anywhere"]) == ""
