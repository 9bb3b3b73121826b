# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module returns what its documentation says, and refuses only bad parameters."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils import _driver, _gpu, _nvml, _pci
from ansible_collections.cudahub.gpu.plugins.modules import gpu_facts
from ansible_collections.cudahub.gpu.tests.unit.plugins.fake_nvml import (
    mig_instance,
    no_command,
    recorded,
    recorded_tree,
    report,
)

TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
}
NEVER_NULL = {
    "gpu",
    "driver",
    "state",
    "gpus",
    "mig",
    "instances",
    "ecc",
    "device_nodes",
    "problems",
    "code",
    "severity",
}
NEVER_NULL |= {"message", "count", "visible_count", "nvswitches", "simulated", "peers", "links", "active_links", "type"}


@pytest.fixture
def full(tmp_path: Path) -> dict[str, t.Any]:
    """Facts in which every key and list is there."""
    nvml = recorded("h200x4").in_mig_mode(0, [mig_instance(0)])
    nvml.change(1, "nvmlDeviceGetRemappedRows", [0, 1, 1, 0])
    files = _pci.HostFiles(str(recorded_tree(tmp_path, "h200x4")))
    result = report(nvml)
    driver = _driver.judge(_driver.installed(files, "6.1.0", "x86_64", no_command), result, "6.1.0", "root")
    facts = _gpu.assemble(files, _pci.scan(files), driver, result, simulated=False).as_dict()
    facts["problems"].append({"code": "driver_reload_pending", "severity": "warning", "message": "A sentence."})
    return facts


def mismatches(documented: dict[str, t.Any], value: t.Any, path: str) -> t.Iterator[str]:
    """Where a value is not as documented."""
    name = path.rsplit(".", 1)[-1]
    if value is None:
        description = (
            " ".join(documented["description"])
            if isinstance(documented["description"], list)
            else documented["description"]
        )
        if name in NEVER_NULL or "null" not in description:
            yield f"{path} is null, which is not documented"
        return
    if not isinstance(value, TYPES[documented["type"]]) or (documented["type"] == "int" and isinstance(value, bool)):
        yield f"{path} is {value!r}, not {documented['type']}"
        return
    for item in value if documented["type"] == "list" else [value]:
        if "contains" in documented:
            if set(item) != set(documented["contains"]):
                yield f"{path} has other keys than documented: {sorted(set(item) ^ set(documented['contains']))}"
                continue
            for key, inner in documented["contains"].items():
                yield from mismatches(inner, item[key], f"{path}.{key}")
        elif documented["type"] == "list" and not isinstance(item, TYPES[documented["elements"]]):
            yield f"{path} has {item!r}, not {documented['elements']}"


def documented_fact() -> dict[str, t.Any]:
    documented: dict[str, t.Any] = yaml.safe_load(gpu_facts.RETURN)["ansible_facts"]["contains"]["gpu"]
    return documented


def test_returned_is_documented(full: dict[str, t.Any]) -> None:
    assert list(mismatches(documented_fact(), full, "gpu")) == []


def test_documented_nulls(tmp_path: Path) -> None:
    files = _pci.HostFiles(str(recorded_tree(tmp_path, "h200x4")))
    for result in (
        _nvml.Report(missing_binding="not found"),
        report(recorded("h100x1")),
        report(recorded("h200x4").fail("*", _nvml.GPU_IS_LOST, 0)),
        report(recorded("h200x4").in_mig_mode(0, [{}])),
    ):
        driver = _driver.judge(_driver.Installed(None, None, None, None), result, "6.1.0", "root")
        facts = _gpu.assemble(files, _pci.scan(files), driver, result, simulated=False).as_dict()
        assert list(mismatches(documented_fact(), facts, "gpu")) == []


def test_mismatches_are_found(full: dict[str, t.Any]) -> None:
    del full["gpus"][2]["name"]
    full["gpus"][1]["index"] = True
    full["gpus"][0]["device_nodes"] = [0]
    full["driver"]["state"] = None
    assert len(list(mismatches(documented_fact(), full, "gpu"))) == 4


def test_every_problem_code_is_documented() -> None:
    source = Path(_gpu.__file__).read_text(encoding="utf-8")
    used = set(re.findall(r'Problem\(\s*"(\w+)"', source))
    used |= {slow_down.code for slow_down in _gpu.SLOW_DOWNS}
    used |= {f"driver_{state}" for state in t.get_args(_driver.State) if state != "ok"}
    description = str(documented_fact()["contains"]["problems"]["contains"]["code"]["description"])
    assert len(used) > 20
    assert used == set(re.findall(r"V\((\w+)\)", description))


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **params: t.Any
) -> tuple[int, dict[str, t.Any]]:
    monkeypatch.setattr(_nvml, "load_binding", lambda _venvs: recorded("h100x1"))
    with patch_module_args(params), pytest.raises(SystemExit) as ended:
        gpu_facts.main()
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"_ansible_check_mode": True},
        {"timeout": 1.5, "nvml_venvs": []},
        {"gather_subset": ["all"], "fact_path": "/etc/ansible/facts.d"},
    ],
)
def test_module_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], params: dict[str, t.Any]
) -> None:
    status, result = run(monkeypatch, capsys, **params)
    assert (status, result["changed"]) == (0, False)
    assert set(result["ansible_facts"]) == {"gpu"}
    assert result["ansible_facts"]["gpu"]["driver"]["state"] == "ok"


@pytest.mark.parametrize("timeout", [0, -1])
def test_module_refuses_a_timeout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], timeout: int
) -> None:
    status, result = run(monkeypatch, capsys, timeout=timeout)
    assert status == 1
    assert result["msg"] == f"timeout is {timeout}: it must be more than 0 seconds"


def test_module_fails_when_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gather(*_args: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(_gpu, "gather", gather)
    status, result = run(monkeypatch, capsys)
    assert status == 1
    assert result["msg"].startswith("The GPUs can't be read: [Errno 11] Resource temporarily unavailable; ")


def test_options_equal_the_specification() -> None:
    documented = yaml.safe_load(gpu_facts.DOCUMENTATION)["options"]
    assert documented["nvml_venvs"]["default"] == ["/opt/cudahub/nvml", "/opt/cudahub/verify"]
    assert documented["timeout"]["default"] == 30
    assert set(documented) == {"nvml_venvs", "timeout", "fact_path", "gather_subset"}
