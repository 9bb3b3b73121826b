# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the collection says of real GPUs is what nvidia-smi says, and they are proven."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Host

QUICK_SECONDS = 5.0
STANDARD_SECONDS = 30.0
LOAD_SECONDS = 20.0
MEMORY_TOLERANCE = 0.02
FIXED_COST_GPUS, FIXED_COST_RATIO = 2, 2.0  # with one GPU, the import of pynvml outweighs what nvidia-smi spends on it
ROUNDS = 7
ANSWERS = {"Enabled": True, "Disabled": False, "Yes": True, "No": False, "N/A": None}


def _number(text: str) -> float | None:
    found = re.match(r"-?[\d.]+", text)
    return float(found.group()) if found else None


def _sum(*paths: str) -> Callable[[ET.Element], float | None]:
    def total(gpu: ET.Element) -> float | None:
        numbers = [number for path in paths if (number := _number(gpu.findtext(path, "N/A"))) is not None]
        return sum(numbers) if numbers else None

    return total


def _answer(path: str) -> Callable[[ET.Element], bool | None]:
    return lambda gpu: ANSWERS[gpu.findtext(path, "N/A")]


def _text(path: str) -> Callable[[ET.Element], str | None]:
    return lambda gpu: gpu.findtext(path)


def _device_id(gpu: ET.Element) -> str:
    both = gpu.findtext("pci/pci_device_id", "").lower()
    return f"{both[4:]}:{both[:4]}"


def _get(gpu: dict[str, Any], path: str) -> Any:
    value: Any = gpu
    for key in path.split("."):
        value = value if value is None else value[key]
    return value


ERRORS = "ecc_errors/{}/{}"
UNCORRECTED = ("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
CORRECTED = ("sram_correctable", "dram_correctable")
FIELDS: dict[str, Callable[[ET.Element], Any]] = {
    "uuid": _text("uuid"),
    "minor": _sum("minor_number"),
    "name": _text("product_name"),
    "architecture": _text("product_architecture"),
    "pci_bus_id": _text("pci/pci_bus_id"),
    "pci_device_id": _device_id,
    "mig.enabled": _answer("mig_mode/current_mig"),
    "mig.pending": _answer("mig_mode/pending_mig"),
    "ecc.enabled": _answer("ecc_mode/current_ecc"),
    "ecc.pending": _answer("ecc_mode/pending_ecc"),
    "ecc.corrected_volatile": _sum(*(ERRORS.format("volatile", name) for name in CORRECTED)),
    "ecc.uncorrected_volatile": _sum(*(ERRORS.format("volatile", name) for name in UNCORRECTED)),
    "ecc.corrected_aggregate": _sum(*(ERRORS.format("aggregate", name) for name in CORRECTED)),
    "ecc.uncorrected_aggregate": _sum(*(ERRORS.format("aggregate", name) for name in UNCORRECTED)),
    "ecc.remapped_rows.correctable": _sum("remapped_rows/remapped_row_corr"),
    "ecc.remapped_rows.uncorrectable": _sum("remapped_rows/remapped_row_unc"),
    "ecc.remapped_rows.pending": _answer("remapped_rows/remapped_row_pending"),
    "ecc.remapped_rows.failed": _answer("remapped_rows/remapped_row_failure"),
    "ecc.retired_pages_pending": _answer("retired_pages/pending_retirement"),
    "power_limit_watts": _sum("gpu_power_readings/current_power_limit"),
}


def test_facts_are_those_of_nvidia_smi(host: Host) -> None:
    facts = host.task("cudahub.gpu.gpu_facts")["ansible_facts"]["gpu"]
    smi = host.smi()
    cards = smi.findall("gpu")
    expected = [{name: read(card) for name, read in FIELDS.items()} for card in cards]
    assert [{name: _get(gpu, name) for name in FIELDS} for gpu in facts["gpus"]] == expected
    memory = [_number(card.findtext("fb_memory_usage/total", "")) for card in cards]
    assert [gpu["memory_bytes"] >> 20 for gpu in facts["gpus"]] == memory
    assert facts["driver"]["state"] == "ok"
    assert facts["driver"]["loaded_version"] == smi.findtext("driver_version")
    assert facts["driver"]["library_version"] == smi.findtext("driver_version")
    assert facts["driver"]["cuda_version"] == smi.findtext("cuda_version")
    assert facts["count"] == facts["visible_count"] == int(smi.findtext("attached_gpus", "0"))
    assert facts["simulated"] is False


def test_facts_take_no_longer_than_nvidia_smi(host: Host) -> None:
    gather = (
        "import time; start = time.perf_counter();"
        " from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu;"
        " _gpu.gather([], 20.0).as_dict(); print(time.perf_counter() - start)"
    )
    facts, smi = [], []
    environment = {**host.environment(), "PYTHONPATH": str(host.directory / "collections")}
    for _round in range(ROUNDS):
        facts.append(float(subprocess.check_output([host.python, "-c", gather], env=environment, text=True)))
        start = time.perf_counter()
        host.smi()
        smi.append(time.perf_counter() - start)
    ours, theirs = statistics.median(facts), statistics.median(smi)
    cards = len(host.smi().findall("gpu"))
    host.measured.append(
        f"{cards} GPUs: gpu_facts {ours:.3f} s, nvidia-smi -q -x {theirs:.3f} s, ratio {ours / theirs:.2f}"
    )
    assert ours <= theirs * (1 if cards >= FIXED_COST_GPUS else FIXED_COST_RATIO)


@pytest.mark.parametrize("name", ["verify.yml", "site.yml"])
def test_a_playbook_proves_every_gpu_and_changes_nothing(host: Host, name: str) -> None:
    run = host.playbook(f"cudahub.gpu.{name[:-4]}", nvidia_driver_source="preinstalled")
    assert run.returncode == 0, run.output
    assert run.changed == 0
    verification = run.facts["gpu_verification"]
    uuids = [card.findtext("uuid") for card in host.smi().findall("gpu")]
    assert verification["verified"] is True
    assert verification["simulated"] is False
    assert [(gpu["uuid"], gpu["verdict"]) for gpu in verification["gpus"]] == [(uuid, "passed") for uuid in uuids]
    for gpu in verification["gpus"]:
        assert [check["name"] for check in gpu["checks"]] == [
            "context",
            "arange_sum",
            "compile",
            "matmul",
            "matmul_rate",
        ]
        assert gpu["checks"][1]["figure"] == [3, 12]
        host.measured.append(
            f"{name} {gpu['uuid']}: {gpu['seconds']:.2f} s; "
            + ", ".join(f"{c['name']} {c['seconds']:.2f} s ({c['figure']} {c['unit'] or ''})" for c in gpu["checks"])
        )
    host.measured.append(
        f"{name}: {len(uuids)} GPUs verified in {verification['seconds']:.2f} s with {verification['runtime']},"
        f" ansible-playbook took {run.seconds:.1f} s"
    )
    assert verification["seconds"] < QUICK_SECONDS


def test_the_module_verifies_by_itself(host: Host) -> None:
    result = host.task("cudahub.gpu.cuda_verify", python=host.python)
    assert result["verification"]["verified"] is True
    assert result["changed"] is False


def has_cudf(python: str) -> bool:
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('cudf') is None)"
    return subprocess.run([python, "-c", find], check=False).returncode == 0


def test_cudf_groups_a_table_on_every_gpu(host: Host, request: pytest.FixtureRequest) -> None:
    if not has_cudf(host.python):
        pytest.skip(f"not run: {request.node.name} needs cuDF in {host.python}")
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, cudf=True)
    assert result["verification"]["verified"] is True, result["msg"]
    for gpu in result["verification"]["gpus"]:
        check = gpu["checks"][-1]
        assert (check["name"], check["figure"]) == ("tips_groupby", check["expected"])
        host.measured.append(f"cuDF {gpu['uuid']}: {gpu['seconds']:.2f} s; {check['message']} {check['seconds']:.2f} s")


def test_cudf_that_is_not_there_is_named(host: Host, request: pytest.FixtureRequest) -> None:
    if has_cudf(host.python):
        pytest.skip(f"not run: {request.node.name} needs a Python without cuDF, and {host.python} has it")
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, cudf=True)
    assert result["verification"]["failure"]["kind"] == "library_missing"
    assert f"{host.python} has no cudf: install cudf in that environment" in result["msg"]
    assert all(check["passed"] for gpu in result["verification"]["gpus"] for check in gpu["checks"])


def test_a_gpu_that_vanished_is_named(host: Host) -> None:
    uuids = [card.findtext("uuid") for card in host.smi().findall("gpu")]
    lost = "GPU-00000000-0000-4000-8000-0000000fffff"
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, gpus=[*uuids, lost])
    assert result["failed"] is True
    assert [gpu["verdict"] for gpu in result["verification"]["gpus"]] == ["passed"] * len(uuids) + ["failed"]
    assert result["verification"]["failure"]["kind"] == "gpu_lost"
    assert lost in result["msg"]


def test_a_full_gpu_is_told_from_a_broken_one(host: Host) -> None:
    card = host.smi().findall("gpu")[0]
    uuid = card.findtext("uuid", "")
    hog = (
        "import cupy, sys, time\n"
        "held, size = [], 1 << 34\n"
        "while size >= 1 << 20:\n"
        "    try: held.append(cupy.cuda.alloc(size))\n"
        "    except cupy.cuda.memory.OutOfMemoryError: size >>= 1\n"
        "print('full', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = ["env", f"CUDA_VISIBLE_DEVICES={uuid}", host.python, "-c", hog]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "full\n"
        result = host.task("cudahub.gpu.cuda_verify", python=host.python, gpus=[uuid])
        process.communicate("")
    assert result["verification"]["failure"]["kind"] == "out_of_memory", result["msg"]
    assert uuid in result["msg"]


def test_a_worker_that_hangs_on_a_gpu_is_killed(host: Host) -> None:
    uuid = host.smi().findall("gpu")[0].findtext("uuid")
    # CuPy is imported in 0.3 s at best, and with less time there is no answer.
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, gpus=[uuid], timeout=0.2)
    assert result["verification"]["failure"]["kind"] == "timeout"
    assert result["verification"]["seconds"] < QUICK_SECONDS


def test_the_python_that_ansible_uses_is_the_one_that_runs(host: Host) -> None:
    version = subprocess.check_output(
        [host.python, "-c", "import platform; print(platform.python_version())"], text=True
    )
    assert host.task("cudahub.gpu.cuda_verify")["verification"]["runtime"]["python"] == version.strip(), sys.version


def test_a_driver_that_is_in_use_or_somebody_elses_is_named_and_left_alone(host: Host) -> None:
    card = host.smi().findall("gpu")[0]
    uuid, packages = card.findtext("uuid"), installed_packages()
    holder = "import cupy, sys; cupy.zeros(1); print('there', flush=True); sys.stdin.read()"
    command = ["env", f"CUDA_VISIBLE_DEVICES={uuid}", host.python, "-c", holder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        result = host.task(
            "cudahub.gpu.driver_plan",
            source="nvidia",
            gpus=[{"architecture": card.findtext("product_architecture"), "name": card.findtext("product_name")}],
            repository={
                "url": "file:/nothing/is/here/",
                "key_url": "file:/nothing/is/here.pub",
                "key_fingerprint": "0" * 40,
            },
        )
        process.communicate("")
    messages = {refusal["code"]: refusal["message"] for refusal in result["refusals"]}
    host.measured.extend(f"driver_plan: {code}: {message}" for code, message in messages.items())
    assert "repository" in messages
    assert f"{process.pid}" in messages["processes"]
    assert "foreign_runfile" in messages or "foreign_packages" in messages
    assert installed_packages() == packages


def installed_packages() -> str:
    return subprocess.check_output(["dpkg-query", "--show"], text=True)


def test_the_role_checks_a_driver_that_it_did_not_install(host: Host, tmp_path: Path) -> None:
    playbook = tmp_path / "verify.yml"
    role = {"name": "cudahub.gpu.nvidia_driver", "tasks_from": "verify"}
    playbook.write_text(json.dumps([{"hosts": "all", "tasks": [{"ansible.builtin.include_role": role}]}]))
    run = host.playbook(str(playbook), nvidia_driver_source="preinstalled")
    assert run.returncode == 0, run.output
    assert run.changed == 0
    driver = run.facts["gpu"]["driver"]
    assert driver["loaded_version"] == driver["library_version"] == host.smi().findtext("driver_version")


def told(measured: list[str], title: str, result: dict[str, Any]) -> None:
    """Keep the figures of a verification."""
    verification = result["verification"]
    measured.append(f"{title}: {verification['seconds']:.1f} s, {result['msg']}")
    for gpu in verification["gpus"]:
        measured.extend(
            f"{title} {gpu['uuid']} {check['name']}: {check['figure']} {check['unit'] or ''}, share {check['share']},"
            f" {check['seconds']} s, {check['mode']}, {check['message']}"
            for check in gpu["checks"]
        )
        checks = sum(check["seconds"] for check in gpu["checks"])
        measured.append(f"{title} {gpu['uuid']}: {gpu['seconds']} s in processes, {checks:.2f} s in checks")
        if gpu["load"]:
            measured.append(f"{title} {gpu['uuid']} load: {gpu['load']['summary']} {gpu['load']['reasons']}")
    measured.extend(
        f"{title} {check['name']} {check['gpus']}: {check['figure']} {check['unit']}, {check['seconds']} s,"
        f" {check['message']}"
        for check in verification["checks"]
    )


@pytest.mark.parametrize("run", [1, 2, 3])
def test_all_checks_of_standard_pass(host: Host, run: int) -> None:
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, level="standard")
    told(host.measured, f"standard {run}", result)
    verification = result["verification"]
    assert verification["verified"] is True, result["msg"]
    assert verification["seconds"] < STANDARD_SECONDS
    for gpu in verification["gpus"]:
        assert gpu["checks"][-1]["name"] == "error_counters"
        assert all(check["passed"] for check in gpu["checks"])
        (tested,) = [check for check in gpu["checks"] if check["name"] == "memory_pattern"]
        (card,) = [card for card in host.smi().findall("gpu") if card.findtext("uuid") == gpu["uuid"]]
        total = _number(card.findtext("fb_memory_usage/total", "")) or 0
        reserved = _number(card.findtext("fb_memory_usage/reserved", "")) or 0
        # What is neither the driver's nor CUDA's nor the margin was tested.
        assert (_number(tested["message"]) or 0) > (total - reserved - 512) * (1 - MEMORY_TOLERANCE) - 1024


def test_thorough_passes_and_its_curves_are_those_of_a_busy_gpu(host: Host) -> None:
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, level="thorough", duration=LOAD_SECONDS)
    told(host.measured, "thorough", result)
    assert result["verification"]["verified"] is True, result["msg"]
    for gpu in result["verification"]["gpus"]:
        load = gpu["load"]
        during = [point for point in load["samples"] if 0 <= point["seconds"] <= LOAD_SECONDS]
        assert len(during) >= LOAD_SECONDS * 0.8
        (card,) = [card for card in host.smi().findall("gpu") if card.findtext("uuid") == gpu["uuid"]]
        limit = _number(card.findtext("gpu_power_readings/current_power_limit", "")) or 0
        assert load["summary"]["power_watts"]["max"] > limit / 2


def test_a_gpu_in_use_is_skipped_or_slower(host: Host) -> None:
    """A competing load is named, or if it is to be ignored, makes the GPU the odd one out or slow."""
    cards = host.smi().findall("gpu")
    uuid = cards[0].findtext("uuid", "")
    hog = (
        "import cupy, sys, threading\n"
        "a = cupy.ones((8192, 8192), dtype='f')\n"
        "over = threading.Event()\n"
        "threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()\n"
        "a @ a; cupy.cuda.Device().synchronize(); print('busy', flush=True)\n"
        "while not over.is_set():\n"
        "    a @ a; a @ a; cupy.cuda.Device().synchronize()\n"
    )
    command = ["env", f"CUDA_VISIBLE_DEVICES={uuid}", host.python, "-c", hog]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        skipped = host.task("cudahub.gpu.cuda_verify", python=host.python, level="standard", gpus=[uuid])
        beside = host.task("cudahub.gpu.cuda_verify", python=host.python, level="standard", in_use="run")
        process.communicate("")
    assert skipped["verification"]["gpus"][0]["verdict"] == "skipped"
    assert f"process {process.pid} of " in skipped["msg"], skipped["msg"]
    told(host.measured, "beside a competing load", beside)
    found = next(gpu for gpu in beside["verification"]["gpus"] if gpu["uuid"] == uuid)
    assert found["warnings"] or found["failure"]["kind"] == "slow", beside["msg"]


def test_missing_nccl_is_a_failure_only_if_it_is_required(host: Host, request: pytest.FixtureRequest) -> None:
    uuids = [card.findtext("uuid") for card in host.smi().findall("gpu")]
    if len(uuids) < 2:
        pytest.skip(f"not run: {request.node.name} needs two GPUs")
    find = "import cupy.cuda.nccl as nccl, sys; sys.exit(getattr(nccl, 'available', False))"
    missing = subprocess.run([host.python, "-c", find], check=False, stderr=subprocess.DEVNULL).returncode == 0
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, level="standard", gpus=uuids[:2], nccl="required")
    told(host.measured, f"NCCL {'missing' if missing else 'there'}", result)
    assert (result["verification"]["failure"] is not None) is missing, result["msg"]


def test_a_host_verifies_by_itself_and_leaves_its_figures(host: Host, tmp_path: Path) -> None:
    files = {"metrics": str(tmp_path / "gpu.prom"), "fact": str(tmp_path / "gpu.fact")}
    options = {
        "python": host.python, "conda_prefix": None, "gpus": None, "timeout": 60, "cudf": False, "simulated": "report",
        "require_gpu": True, "known": [], "nvml_venvs": [], **files,
    }  # fmt: skip
    (tmp_path / "options.json").write_text(json.dumps(options))
    program = "ansible_collections.cudahub.gpu.plugins.module_utils._verify_unattended"
    command = [host.python, "-m", program, tmp_path / "options.json"]
    start = time.perf_counter()
    said = subprocess.check_output(command, cwd=host.directory / "collections", text=True)
    cards = host.smi().findall("gpu")
    host.measured.append(f"by itself: {time.perf_counter() - start:.1f} s, {said.strip()}")
    fact = json.loads((tmp_path / "gpu.fact").read_text())
    assert (fact["verified"], fact["counts"]["passed"]) == (True, len(cards))
    metrics = (tmp_path / "gpu.prom").read_text()
    for card in cards:
        verdict = f'uuid="{card.findtext("uuid")}".*name="{card.findtext("product_name")}".*verdict="passed"}} 1$'
        assert re.search(f"^cudahub_gpu_verify_gpu_verdict{{.*{verdict}", metrics, re.MULTILINE)
    assert metrics.count('check="matmul_rate",unit="TFLOP/s"} ') == len(cards)


TORCH = """
import json, sys, time, torch
def timed(action, runs=20):
    action(); torch.cuda.synchronize()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(); [action() for _ in range(runs)]; stop.record(); stop.synchronize()
    return start.elapsed_time(stop) / 1000 / runs
found = {}
for name, dtype, side, tf32 in (("gemm_fp64", torch.float64, 4096, False), ("gemm_fp32", torch.float32, 8192, False),
                                ("gemm_tf32", torch.float32, 8192, True), ("gemm_fp16", torch.float16, 8192, False)):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = (torch.rand((side, side), device="cuda").mul_(2).sub_(1).to(dtype) for _ in range(2))
    found[name] = 2 * side**3 / timed(lambda: a @ b) / 1e12
if torch.cuda.get_device_capability() >= (8, 9):
    a, b = (torch.rand((8192, 8192), device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    product = lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
    found["gemm_fp8"] = 2 * 8192**3 / timed(product) / 1e12
a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"); b = torch.empty_like(a)
found["copy_device"] = 2 * (1 << 30) / timed(lambda: b.copy_(a)) / 1e9
h = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
found["copy_host_to_device"] = (1 << 28) / timed(lambda: a[: 1 << 28].copy_(h, non_blocking=True)) / 1e9
found["copy_device_to_host"] = (1 << 28) / timed(lambda: h.copy_(a[: 1 << 28], non_blocking=True)) / 1e9
print(json.dumps(found))
"""


def test_figures_are_those_of_pytorch(host: Host, request: pytest.FixtureRequest) -> None:
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([host.python, "-c", find], check=False).returncode:
        pytest.skip(f"not run: {request.node.name} needs PyTorch in {host.python}")
    uuid = host.smi().findall("gpu")[0].findtext("uuid", "")
    result = host.task("cudahub.gpu.cuda_verify", python=host.python, level="standard", gpus=[uuid])
    command = ["env", f"CUDA_VISIBLE_DEVICES={uuid}", host.python, "-c", TORCH]
    theirs = json.loads(subprocess.check_output(command, text=True))
    ours = {check["name"]: check["figure"] for check in result["verification"]["gpus"][0]["checks"]}
    for name, figure in theirs.items():
        host.measured.append(f"{name}: {ours[name]:.1f} here, {figure:.1f} by PyTorch, ratio {ours[name] / figure:.2f}")
    assert all(ours[name] > 0.85 * figure for name, figure in theirs.items())
