# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's report: what it says of hosts of all kinds, and its files."""

from __future__ import annotations

import base64
import copy
import errno
import fcntl
import hashlib
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ansible_collections.cudahub.gpu.plugins.plugin_utils import _report_files, _report_history, _report_page
from ansible_collections.cudahub.gpu.plugins.plugin_utils._report import Report, host_of, lines, report_of
from ansible_collections.cudahub.gpu.plugins.plugin_utils._report_junit import junit
from ansible_collections.cudahub.gpu.tests.report import made_fleet
from ansible_collections.cudahub.gpu.tests.unit.odd_values import with_one

TIME = "2026-11-29T02:30:00Z"
HOSTILE = "</script><script>alert(1)</script><!-- \u2028\u202e\x1b[31mred\x00 & \"' ]]> עברית"
# Of the npm package uplot 1.6.32, in which each of them is one of dist/ or LICENSE.
UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def report(results: dict[str, Any] | None = None, time: str = TIME) -> Report:
    return report_of("GPUs", time, made_fleet.fleet(8, 8) if results is None else results)


def write(folder: Path, time: str = TIME, **options: Any) -> _report_files.Written:
    settings: dict[str, Any] = {"keep": 90, "wait": 0, "say": print, **options}
    return _report_files.write(report(time=time), folder, **settings)


def hostile() -> dict[str, Any]:
    """A host that puts what it likes wherever a text can be."""
    result = made_fleet.host_of(0, 2)
    made_fleet.fail(result, 0, "matmul", "wrong_result")

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(one) for name, one in value.items()}
        if isinstance(value, list):
            return [replaced(one) for one in value]
        return HOSTILE if isinstance(value, str) and value not in ("ok", "failed", "passed", "gpu", "switch") else value

    return {HOSTILE: replaced(result)}


# ---- what it says


def test_a_fleet() -> None:
    found = report()
    assert found.summary == (
        "8 hosts (1 unreachable, 2 failed, 1 without GPU), 48 GPUs: 45 verified, 2 failed, 1 with a warning."
    )
    assert [host.state for host in found.hosts] == [
        "unreachable",
        "failed",
        "failed",
        "warning",
        "none",
        *["passed"] * 3,
    ]
    first, second, third, last = found.problems()
    assert first == ("unreachable", "gpu0003.example.org: ssh: connect to host port 22: Connection timed out")
    assert second[1].startswith("gpu0002.example.org: GPU 3 00000000:28:00.0 GPU-00000001-")
    assert (third[0], last[0]) == ("failed", "warning")
    assert found.failed


@pytest.mark.parametrize("level", ["quick", "standard"])
def test_a_fleet_that_is_well(level: str) -> None:
    found = report(made_fleet.fleet(2, 4, level))
    assert found.summary == "2 hosts, 8 GPUs: 8 verified."
    assert not found.failed
    assert found.problems() == []


def test_no_host() -> None:
    assert report({}).summary == "0 hosts, 0 GPUs."
    assert "There is no host in this report." in _report_page.page(report({}), [])


@pytest.mark.parametrize(
    ("result", "state", "message"),
    [
        ({}, "unreachable", "Nothing is known about its GPUs."),
        ({"facts": None, "verification": None, "failed": "No space left."}, "failed", "No space left."),
        ({"facts": made_fleet.facts_of(0, 2)}, "unknown", None),
        ({"facts": {**made_fleet.facts_of(0, 2), "simulated": True}}, "simulated", None),
        ({"verification": made_fleet.verification_of(0, 2, "quick")}, "passed", None),
        ({**made_fleet.host_of(0, 2), "failed": "The role broke off."}, "failed", "The role broke off."),
        (
            {"facts": "?", "verification": {"verified": True, "gpus": 3}},
            "unreachable",
            "Nothing is known about its GPUs.",
        ),
    ],
)
def test_a_host(result: dict[str, Any], state: str, message: str | None) -> None:
    host = host_of("a", result)
    assert (host.state, host.message) == (state, message)


def test_what_was_verified_before_a_host_was_away_does_not_count() -> None:
    found = report({"a": {**made_fleet.host_of(0, 2), "unreachable": "Connection refused"}})
    assert found.summary == "1 host (1 unreachable), 2 GPUs: 2 not verified."


def test_a_mig_instance_stands_for_its_gpu() -> None:
    result = made_fleet.host_of(0, 1, "quick")
    (whole,) = result["verification"]["gpus"]
    result["verification"]["gpus"] = [{**whole, "uuid": f"MIG-{one}", "mig_profile": "1g.18gb"} for one in range(2)]
    host = host_of("a", result)
    assert [(gpu.uuid, gpu.mig_profile, gpu.memory_bytes) for gpu in host.gpus] == [
        ("MIG-0", "1g.18gb", None),
        ("MIG-1", "1g.18gb", None),
    ]


def test_a_check_of_several_gpus_that_fails_is_the_hosts_failure() -> None:
    result = made_fleet.host_of(0, 4)
    result["verification"]["checks"][1].update(passed=False, message="GPU 0 and GPU 2 exchange 3 GB/s")
    host = host_of("a", result)
    assert host.state == "failed"
    assert report({"a": result}).problems() == [("failed", "a: peer_to_peer: GPU 0 and GPU 2 exchange 3 GB/s")]


def test_topology() -> None:
    direct = host_of("a", made_fleet.host_of(0, 4)).topology
    switched = host_of("a", made_fleet.host_of(0, 8)).topology
    assert direct is not None
    assert switched is not None
    assert (direct.switched, direct.links[0]) == (False, ("", "NV6", "NV6", "NV6"))
    assert (switched.switched, switched.links[1][:3]) == (True, ("NV18", "", "NV18"))
    facts = made_fleet.facts_of(0, 4)
    for gpu in facts["gpus"]:
        gpu["nvlink"] = None
    slow = host_of("a", {"facts": facts}).topology
    assert slow is not None
    assert slow.links[0] == ("", "PCIe, same NUMA node", "PCIe, other NUMA node", "PCIe, other NUMA node")
    assert host_of("a", made_fleet.host_of(0, 1)).topology is None


def test_samples_and_what_held_the_clocks_back() -> None:
    hot = report().hosts[3].gpus[0]
    assert hot.state == "warning"
    assert hot.samples is not None
    assert hot.samples.throttled == (("hw_thermal_slowdown", 10.5, 19.5),)
    result = made_fleet.host_of(0, 1)
    points = [{"seconds": 0, "power_watts": 1}, {"seconds": None, "power_watts": 2}, {"seconds": 2, "power_watts": "x"}]
    result["verification"]["gpus"][0]["load"] = {"samples": points}
    samples = host_of("a", result).gpus[0].samples
    assert samples is not None
    assert (samples.seconds, dict(samples.series)) == ((0.0, 2.0), {"power_watts": (1.0, None)})


@pytest.mark.parametrize("odd", [None, 3, "text", [], [3], {}, {"a": 1}, float("nan"), float("inf"), 10**400, True])
def test_values_of_another_type_break_nothing(odd: Any) -> None:
    """Each value of a result in turn is another one."""
    found = report(
        {
            f"h{number}": one
            for number, one in enumerate(with_one(odd, made_fleet.host_of(0, 2, samples=2)))
            if isinstance(one, dict)
        }
    )
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["format"] == 1
    assert ET.fromstring(junit(found).encode()).tag == "testsuites"  # noqa: S314
    _report_page.page(found, [_report_history.run_of(found)])


# ---- JUnit


def test_junit_has_each_gpu_and_check() -> None:
    found = report()
    root = ET.fromstring(junit(found).encode())  # noqa: S314
    suites = {suite.get("name"): suite for suite in root}
    assert len(suites) == 8
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(name, "")) == sum(int(suite.get(name, "")) for suite in suites.values())
    for suite in suites.values():
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "")) == len(suite.findall(f"testcase/{tag}"))
    checks = sum(len(gpu.checks) + 1 for host in found.hosts for gpu in host.gpus) + sum(
        len(host.checks) for host in found.hosts
    )
    assert int(root.get("tests", "")) == checks + 8
    slow = suites["gpu0002.example.org"]
    assert [(case.get("name"), case[0].get("type")) for case in slow if len(case)] == [
        ("GPU 3 NVIDIA H200", "slow"),
        ("matmul_rate", "matmul_rate"),
    ]
    assert (suites["gpu0003.example.org"].get("errors"), suites["gpu0006.example.org"].get("skipped")) == ("1", "1")
    assert suites["gpu0001.example.org"].get("failures") == "0"


def test_junit_holds_any_text() -> None:
    root = ET.fromstring(junit(report(hostile())).encode())  # noqa: S314
    assert "alert(1)" in (root[0].get("name") or "")


# ---- the page


def test_uplot_is_what_its_makers_publish() -> None:
    found = {name: hashlib.sha256((_report_page.PARTS / name).read_bytes()).hexdigest() for name in UPLOT}
    assert found == UPLOT
    assert "Copyright (c) 2022 Leon Sorokin" in _report_page.page(report(), [])


def parts(text: str) -> tuple[str, str, list[str]]:
    """The policy, the embedded data and the scripts and styles that should run."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert policy is not None
    assert data is not None
    inline = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, re.DOTALL)
    return policy[1], data[1], inline


def test_only_the_pages_own_scripts_may_run() -> None:
    policy, _data, inline = parts(_report_page.page(report(hostile()), []))
    assert policy.startswith("default-src 'none'; ")
    assert len(inline) == 2
    for part in inline:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" in policy


def test_texts_of_hosts_are_texts() -> None:
    found = report(hostile())
    text = _report_page.page(found, [_report_history.run_of(found)])
    _policy, data, _inline = parts(text)
    assert len(re.findall("<script", text)) == 2
    assert "alert(1)</" not in text.replace(data, "")
    assert data.isascii()
    assert not set("<>&").intersection(data)
    strings = json.loads(data)["strings"]
    assert any("</script><script>alert(1)</script>" in one for one in strings)
    assert not any(set(one) & set("\u2028\u202e\x1b\x00") for one in strings)


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = _report_page.page(report(), []).replace("https://github.com/leeoniya/uPlot (v1.6.32)", "")
    links = set(re.findall(r"https?://[^\s\"')]+", page))
    assert links <= {"http://www.w3.org/2000/svg", "https://www.gnu.org/licenses/gpl-3.0.txt"}
    assert re.search(r"<(?:link|img|iframe|object)|@import|url\(", page) is None


def test_a_fleet_of_8000_gpus_is_a_file_of_less_than_15_mb() -> None:
    found = report(made_fleet.fleet(1000, 8))
    runs = [_report_history.run_of(found)] * 30
    assert len(_report_page.page(found, runs)) < 15_000_000
    assert sum(found.gpus.values()) == 7984


# ---- the files


def test_files_and_history(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    first = write(folder)
    assert first.before == ""
    assert first.after == "".join(f"{line}\n" for line in lines(report()))
    second = write(folder, "2026-11-30T02:30:00Z")
    assert second.before == first.after
    assert second.warnings == ()
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == [
        "history/2026-11-29T023000Z.json",
        "history/2026-11-30T023000Z.json",
        "index.html",
        "junit.xml",
        "report.json",
    ]
    trend = json.loads(parts((folder / "index.html").read_text(encoding="utf-8"))[1])["trend"]
    assert trend["times"] == [TIME, "2026-11-30T02:30:00Z"]
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["summary"]["failed"] is True


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    found = write(tmp_path / "report", dry=True)
    assert found.after
    assert list(tmp_path.iterdir()) == []


def test_history_keeps_as_many_as_it_should(tmp_path: Path) -> None:
    for day in range(1, 6):
        write(tmp_path, f"2026-11-0{day}T00:00:00Z", keep=3)
    assert [path.name[:10] for path in sorted((tmp_path / "history").iterdir())] == [
        "2026-11-03",
        "2026-11-04",
        "2026-11-05",
    ]


def test_two_reports_of_one_second_are_two(tmp_path: Path) -> None:
    assert write(tmp_path).files["history"] != write(tmp_path).files["history"]
    assert len(list((tmp_path / "history").iterdir())) == 2


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format": 1}', '{"format": 2, "time": "2026"}', "[" * 100_000, b"\xff\xfe"]
)
def test_history_that_is_none_is_named_and_left(tmp_path: Path, content: str | bytes) -> None:
    (tmp_path / "history").mkdir()
    bad = tmp_path / "history" / "2026-01-01T000000Z.json"
    bad.write_bytes(content if isinstance(content, bytes) else content.encode())
    other = tmp_path / "history" / "notes.txt"
    other.write_text("mine")
    found = write(tmp_path, keep=1)
    found = write(tmp_path, "2026-11-30T00:00:00Z", keep=1)
    assert found.warnings == (f"{bad} is left out of the history, it is no report's: remove it if you don't need it",)
    assert bad.exists()
    assert other.exists()
    assert len(list((tmp_path / "history").iterdir())) == 3


def test_history_that_cant_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, bad = tmp_path / "history", tmp_path / "history" / "2026-01-02T000000Z.json"
    (folder / "2026-01-01T000000Z.json").mkdir(parents=True)
    bad.write_text("{}")
    read = Path.read_text

    def refuse(path: Path, *arguments: Any, **options: Any) -> str:
        if path == bad:
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert write(tmp_path).warnings == (
        f"{folder}/2026-01-01T000000Z.json is left out of the history, it is no file",
        f"{bad} is left out of the history, it can't be read: Permission denied",
    )


def test_a_place_that_cant_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "report", Path("/proc/report")):
        with pytest.raises(
            _report_files.ReportError, match=r"^The report can't be written into .*Give path a directory"
        ):
            write(place)


@pytest.mark.parametrize("dry", [False, True])
def test_a_place_that_cant_be_written_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    """Check mode says so, too: a playbook asks before it verifies for minutes."""
    (tmp_path / "report/index.html").mkdir(parents=True)
    with pytest.raises(_report_files.ReportError, match=r"/report/index\.html is a directory, and .*: move it away\.$"):
        write(tmp_path / "report", dry=dry)
    (tmp_path / "file").write_text("")
    with pytest.raises(_report_files.ReportError, match="Not a directory"):
        write(tmp_path / "file", dry=dry)
    (tmp_path / "link").symlink_to("nowhere")
    for place in ("link", "link/report"):
        with pytest.raises(_report_files.ReportError, match=r"link: Not a directory|into [^ ]*/link: Not a directory"):
            write(tmp_path / place, dry=dry)
    full = SimpleNamespace(f_flag=0, f_blocks=9, f_bavail=0, f_bfree=0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _path: full)
        with pytest.raises(_report_files.ReportError, match="No space left on device"):
            write(tmp_path / "a/b", dry=dry)
    monkeypatch.setattr(os, "access", lambda path, _mode: path != tmp_path)
    with pytest.raises(_report_files.ReportError, match=f"into {tmp_path}/a/b: {tmp_path}: Permission denied"):
        write(tmp_path / "a/b", dry=dry)
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(_report_files.ReportError, match="Read-only file system"):
        write(tmp_path / "a/b", dry=dry)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "index.html", "link", "report"]


def test_a_history_that_cant_be_written_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another user's in a folder that is one's own."""
    (tmp_path / "history").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _mode: path != tmp_path / "history")
    with pytest.raises(_report_files.ReportError, match="/history: Permission denied"):
        write(tmp_path, dry=True)


def test_a_disk_that_is_full_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    before = (tmp_path / "index.html").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(_report_files.ReportError, match="No space left on device"):
        write(tmp_path, "2026-11-30T00:00:00Z")
    assert (tmp_path / "index.html").read_bytes() == before
    assert [path.name for path in tmp_path.rglob("*.new")] == []


def test_two_runs_at_once(tmp_path: Path) -> None:
    with (tmp_path / ".report.lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(
            _report_files.ReportError, match=r"^Another run that writes a report into .*, process 4711, was not"
        ):
            write(tmp_path)
    write(tmp_path)
    assert (tmp_path / "index.html").exists()


def test_reports_of_one_second_are_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    text = json.dumps({"format": 1, "time": TIME, "checks": [], "gpus": {}})
    names = ["2026-11-28T023000Z", "2026-11-29T023000Z", *(f"2026-11-29T023000Z-{number}" for number in range(2, 12))]
    for name in names:
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    assert [path.stem for path in _report_history.read(tmp_path).paths] == names


def slowed(fleet: dict[str, Any], factor: float, host: str = "gpu002", gpu: int = 3) -> dict[str, Any]:
    """The fleet, of which one GPU computes slower in FP64, well above all thresholds."""
    (check,) = [one for one in fleet[host]["verification"]["gpus"][gpu]["checks"] if one["name"] == "gemm_fp64"]
    check["figure"] = round(60 * factor, 2)
    return fleet


def test_the_odd_one_of_the_fleet_is_named() -> None:
    """Below the median of its model on other hosts, though above each threshold and alone on none."""
    names = [f"gpu{number:03}" for number in range(4)]
    fleet = {
        name: {"facts": made_fleet.facts_of(number, 4), "verification": made_fleet.verification_of(number, 4)}
        for number, name in enumerate(names)
    }
    assert report(copy.deepcopy(fleet)).states == {"passed": 4}
    found = report(slowed(fleet, 0.75))
    assert (found.states, found.gpus) == ({"passed": 3, "warning": 1}, {"passed": 15, "warning": 1})
    (problem,) = found.problems()
    assert problem[0] == "warning"
    uuid = made_fleet.uuid_of(2, 3)
    assert re.fullmatch(
        rf"gpu002: GPU {uuid} \(.*\): gemm_fp64 reaches 45 TFLOP/s, 2\d% below the median of \d\S* TFLOP/s of 16 GPUs "
        "that are alike on 4 hosts",
        problem[1],
    )
    alone = {"gpu002": fleet["gpu002"]}
    assert report(alone).problems() == []


def small_fleet(hosts: int, gpus: int) -> dict[str, Any]:
    return {
        f"gpu{number:03}": {
            "facts": made_fleet.facts_of(number, gpus),
            "verification": made_fleet.verification_of(number, gpus),
        }
        for number in range(hosts)
    }


def test_a_host_with_an_odd_one_beside_one_that_was_skipped_has_a_warning() -> None:
    fleet = slowed(small_fleet(4, 4), 0.75)
    busy = fleet["gpu002"]["verification"]["gpus"][0]
    busy.update(verdict="skipped", reason="It is in use.", checks=[])
    found = report(fleet)
    assert (found.hosts[0].name, found.hosts[0].state) == ("gpu002", "warning")
    assert found.states == {"warning": 1, "passed": 3}


def test_a_model_is_only_compared_where_several_hosts_measured_it() -> None:
    """What one host alone has measured, that host has compared: by its own spread."""
    fleet = slowed(small_fleet(4, 4), 0.75)
    for name in ("gpu000", "gpu001", "gpu003"):
        for gpu in fleet[name]["verification"]["gpus"]:
            gpu["checks"] = [check for check in gpu["checks"] if check["name"] != "gemm_fp64"]
    assert report(copy.deepcopy(fleet)).problems() == []
    fleet["gpu000"]["verification"] = made_fleet.verification_of(0, 4)
    ((_state, said),) = report(fleet).problems()
    assert said.endswith("of 8 GPUs that are alike on 2 hosts")


def test_gpus_of_unknown_names_are_not_alike() -> None:
    fleet = slowed(small_fleet(4, 4), 0.75)
    for host in fleet.values():
        for gpu in (*host["verification"]["gpus"], *host["facts"]["gpus"]):
            gpu.update(name=None, pci_device_id=None)
    assert report(fleet).problems() == []


@pytest.mark.parametrize("odd", [0, -1, -1e308, 1e308, float("nan"), None, "45"])
def test_figures_that_are_none_break_no_comparison(odd: Any) -> None:
    fleet = small_fleet(2, 2)
    for host in fleet.values():
        for gpu in host["verification"]["gpus"]:
            for check in gpu["checks"]:
                check["figure"] = odd
    assert report(fleet).states.total() == 2
