# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare gpu_facts with ``nvidia-smi -q -x`` on a machine with real GPUs: its speed, or every value that both give.

Nothing but Python, the driver, nvidia-smi and the binding pynvml (in the interpreter or in --venv) is needed.

    gpu_facts_vs_nvidia_smi.py                 median times and their ratio; exit status 1 if the ratio is over --limit
    gpu_facts_vs_nvidia_smi.py --compare       exit status 1 if a value differs, naming each
    gpu_facts_vs_nvidia_smi.py --profile       time spent in each NVML function
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NVIDIA_SMI = ["nvidia-smi", "-q", "-x"]
MIB = 1 << 20

# What a module process has imported before the module's own code runs.
IMPORTED_BY_ANSIBLE = (
    "ctypes, dataclasses, glob, importlib.util, json, pathlib, platform, pwd, re, select, subprocess, typing"
)
OWN_WORK = f"""
import sys, time
import {IMPORTED_BY_ANSIBLE}
start = time.perf_counter()
from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu
run = lambda command: subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
facts = json.dumps(_gpu.gather(sys.argv[1:], 30, run).as_dict())
seconds = time.perf_counter() - start
print(json.dumps({{"seconds": seconds, "facts": json.loads(facts)}}))
"""

CLOCK_REASONS = {
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "sw_power_cap": "sw_power_cap",
}
RECOVERY_NONE = "None"


def differences(facts: dict[str, t.Any], xml: str) -> tuple[list[str], int]:
    """Each value that both have and that differs, in words, and the number of values compared."""
    log = ET.fromstring(xml)  # noqa: S314 - written by nvidia-smi on this machine
    found: list[str] = []
    compared = 0

    def compare(where: str, ours: t.Any, theirs: t.Any) -> None:
        nonlocal compared
        compared += 1
        if ours != theirs:
            found.append(f"{where}: gpu_facts {ours!r}, nvidia-smi {theirs!r}")

    compare("driver.version", facts["driver"]["version"], _text(log, "driver_version"))
    compare("driver.cuda_version", facts["driver"]["cuda_version"], _text(log, "cuda_version"))
    compare("visible_count", facts["visible_count"], int(_text(log, "attached_gpus") or 0))
    ours = {gpu["pci_bus_id"]: gpu for gpu in facts["gpus"] if gpu["index"] is not None}
    theirs = {element.attrib["id"].upper(): element for element in log.findall("gpu")}
    compare("GPUs", sorted(ours), sorted(theirs))
    for bus_id in sorted(ours.keys() & theirs.keys()):
        expected = from_nvidia_smi(theirs[bus_id])
        for name, value in expected.items():
            compare(f"{bus_id} {name}", _ours(ours[bus_id], name), value)
    return found, compared


def from_nvidia_smi(gpu: ET.Element) -> dict[str, t.Any]:
    """The values of one GPU that gpu_facts also has, by their path in the facts."""
    device_id = _text(gpu, "pci/pci_device_id") or ""
    rows = None
    if _text(gpu, "remapped_rows/remapped_row_corr") is not None:
        rows = {
            "correctable": _int(gpu, "remapped_rows/remapped_row_corr"),
            "uncorrectable": _int(gpu, "remapped_rows/remapped_row_unc"),
            "pending": _bool(gpu, "remapped_rows/remapped_row_pending"),
            "failed": _bool(gpu, "remapped_rows/remapped_row_failure"),
        }
    reasons = [*gpu.findall("clocks_event_reasons/*"), *gpu.findall("clocks_throttle_reasons/*")]
    active = {
        re.sub(r"^clocks_(event|throttle)_reason_", "", reason.tag) for reason in reasons if reason.text == "Active"
    }
    slow = {ours for theirs, ours in CLOCK_REASONS.items() if theirs in active}
    if slow & {"hw_thermal_slowdown", "hw_power_brake"}:
        slow.discard("hw_slowdown")
    values = {
        "uuid": _text(gpu, "uuid"),
        "minor": _int(gpu, "minor_number"),
        "pci_bus_id": (_text(gpu, "pci/pci_bus_id") or "").upper(),
        "pci_device_id": f"{device_id[4:]}:{device_id[:4]}".lower(),
        "name": _text(gpu, "product_name"),
        "architecture": _text(gpu, "product_architecture"),
        "memory_bytes": _int(gpu, "fb_memory_usage/total"),
        "mig.enabled": _bool(gpu, "mig_mode/current_mig"),
        "mig.pending": _bool(gpu, "mig_mode/pending_mig"),
        "mig.instances": [
            (_int(instance, "index"), _int(instance, "gpu_instance_id"), _int(instance, "compute_instance_id"))
            for instance in gpu.findall("mig_devices/mig_device")
        ],
        "ecc.enabled": _bool(gpu, "ecc_mode/current_ecc"),
        "ecc.pending": _bool(gpu, "ecc_mode/pending_ecc"),
        "ecc.remapped_rows": rows,
        "ecc.retired_pages_pending": _bool(gpu, "retired_pages/pending_retirement"),
        "power_limit_watts": _float(gpu, "gpu_power_readings/current_power_limit", "gpu_power_readings/power_limit"),
        "slow_downs": sorted(slow),
        "processes": len({process.findtext("pid") for process in gpu.findall("processes/process_info")}),
    }
    for span in ("volatile", "aggregate"):
        values[f"ecc.corrected_{span}"] = _errors(gpu, span, corrected=True)
        values[f"ecc.uncorrected_{span}"] = _errors(gpu, span, corrected=False)
    if gpu.find("gpu_recovery_action") is not None:
        values["recovery_needed"] = _text(gpu, "gpu_recovery_action") not in (None, RECOVERY_NONE)
    return values


def _ours(gpu: dict[str, t.Any], name: str) -> t.Any:
    codes = {problem["code"] for problem in gpu["problems"]}
    if name == "slow_downs":
        return sorted(codes & set(CLOCK_REASONS.values()))
    if name == "recovery_needed":
        return "recovery_needed" in codes
    if name == "memory_bytes":
        return None if gpu["memory_bytes"] is None else gpu["memory_bytes"] // MIB
    value: t.Any = gpu
    for key in name.split("."):
        value = value[key]
    if name == "mig.instances":
        return [(item["index"], item["gpu_instance_id"], item["compute_instance_id"]) for item in value]
    return value


def _errors(gpu: ET.Element, span: str, *, corrected: bool) -> int | None:
    """The sum of ECC counters, from the layout since Turing or the older one."""
    names = (
        ("sram_correctable", "dram_correctable", "single_bit/total")
        if corrected
        else (
            "sram_uncorrectable",
            "sram_uncorrectable_parity",
            "sram_uncorrectable_secded",
            "dram_uncorrectable",
            "double_bit/total",
        )
    )
    counters = [_int(gpu, f"ecc_errors/{span}/{name}") for name in names]
    known = [counter for counter in counters if counter is not None]
    return sum(known) if known else None


def _text(element: ET.Element, path: str) -> str | None:
    text = (element.findtext(path) or "").strip()
    return None if text in ("", "N/A", "[N/A]", "Unknown Error") else text


def _int(element: ET.Element, path: str) -> int | None:
    text = _text(element, path)
    return None if text is None else int(text.split()[0])


def _float(element: ET.Element, *paths: str) -> float | None:
    return next((float(text.split()[0]) for text in (_text(element, path) for path in paths) if text is not None), None)


def _bool(element: ET.Element, path: str) -> bool | None:
    return {"Enabled": True, "Disabled": False, "Yes": True, "No": False, None: None}[_text(element, path)]


def payload(directory: str) -> str:
    """Write the module's code into a zip file without byte code, as Ansible sends it to a host."""
    path = str(Path(directory) / "payload.zip")
    packages = ["ansible_collections", "cudahub", "gpu", "plugins", "module_utils"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for depth in range(1, len(packages) + 1):
            file.writestr("/".join([*packages[:depth], "__init__.py"]), "")
        for source in (REPOSITORY / "plugins/module_utils").glob("*.py"):
            file.write(source, "/".join([*packages, source.name]))
    return path


def environment(path: str) -> dict[str, str]:
    """An environment in which Python finds the payload first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


def run_facts(python: str, venvs: list[str], env: dict[str, str]) -> dict[str, t.Any]:
    """The facts, the seconds of their own work, and of the whole process."""
    start = time.perf_counter()
    result = subprocess.run([python, "-c", OWN_WORK, *venvs], env=env, check=True, stdout=subprocess.PIPE)
    return {"process_seconds": time.perf_counter() - start, **json.loads(result.stdout)}


def run_nvidia_smi() -> tuple[str, float]:
    """What nvidia-smi prints, and its seconds."""
    start = time.perf_counter()
    result = subprocess.run(NVIDIA_SMI, check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout, time.perf_counter() - start


def bench(arguments: argparse.Namespace, env: dict[str, str]) -> int:
    """Print the times and their ratio."""
    own, process, other = [], [], []
    run_nvidia_smi()
    run_facts(arguments.python, arguments.venv, env)
    for _round in range(arguments.rounds):
        other.append(run_nvidia_smi()[1])
        result = run_facts(arguments.python, arguments.venv, env)
        own.append(result["seconds"])
        process.append(result["process_seconds"])
    facts = result["facts"]
    if facts["driver"]["state"] != "ok":
        print(f"the driver is {facts['driver']['state']}: {facts['driver']['reason']}")
        return 1
    ratio = statistics.median(own) / statistics.median(other)
    print(f"{facts['visible_count']} GPUs, driver {facts['driver']['version']}, median of {arguments.rounds} rounds")
    print(f"nvidia-smi -q -x               {statistics.median(other):8.4f} s")
    print(f"gpu_facts, its own work        {statistics.median(own):8.4f} s")
    print(f"gpu_facts, whole process       {statistics.median(process):8.4f} s  (with the start of Python)")
    print(f"ratio, own work to nvidia-smi  {ratio:8.2f}    (limit {arguments.limit:g})")
    return int(ratio > arguments.limit)


def compare(arguments: argparse.Namespace, env: dict[str, str]) -> int:
    """Print each value that differs."""
    facts = run_facts(arguments.python, arguments.venv, env)["facts"]
    found, compared = differences(facts, run_nvidia_smi()[0])
    print("\n".join([*found, f"{compared} values compared, {len(found)} differ"]))
    return int(bool(found))


def profile(arguments: argparse.Namespace, path: str) -> int:
    """Print the time of each NVML function."""
    sys.path.insert(0, path)
    from ansible_collections.cudahub.gpu.plugins.module_utils import _nvml

    start = time.perf_counter()
    nvml = _nvml.load_binding(arguments.venv)
    times: dict[str, list[float]] = {"import of the binding": [time.perf_counter() - start]}

    class Timed:
        def has_symbol(self, name: str) -> bool:
            return nvml.has_symbol(name)

        def call(self, function: str, *args: t.Any) -> t.Any:
            begin = time.perf_counter()
            try:
                return nvml.call(function, *args)
            finally:
                times.setdefault(function, []).append(time.perf_counter() - begin)

    _nvml.read(Timed(), lambda _document: None)
    for function, seconds in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(seconds) * 1000:9.3f} ms {len(seconds):5d} times {function}")
    return 0


def main() -> int:
    """Do what the options say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--compare", action="store_true", help="compare values instead of times")
    mode.add_argument("--profile", action="store_true", help="print the time of each NVML function")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of measurement (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=1.0, help="largest ratio that passes (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the facts (default: this one)")
    parser.add_argument("--venv", action="append", default=[], help="virtual environment with pynvml; may be repeated")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = payload(directory)
        env = environment(path)
        if arguments.profile:
            return profile(arguments, path)
        return (compare if arguments.compare else bench)(arguments, env)


if __name__ == "__main__":
    sys.exit(main())
