# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Conda environments as their own records tell them, damaged ones too."""

from __future__ import annotations

import hashlib
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _conda_meta
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_meta import Difference, Entry, Fault, RecordError
from ansible_collections.cudahub.gpu.plugins.module_utils._conda_spec import Package, parse_spec

CUDF: dict[str, t.Any] = {
    "name": "cudf",
    "version": "26.10.0",
    "build": "cuda13_0",
    "build_number": 0,
    "channel": "https://conda.anaconda.org/rapidsai/linux-64",
    "subdir": "linux-64",
    "url": "https://conda.anaconda.org/rapidsai/linux-64/cudf-26.10.0-cuda13_0.conda",
    "requested_spec": "cudf=26.10",
}


def put(prefix: Path, files: t.Mapping[str, bytes] | None = None, **values: t.Any) -> None:
    """Put a package with files into an environment."""
    paths = []
    for name, content in (files or {}).items():
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        paths.append({"_path": name, "path_type": "hardlink", "sha256": "0" * 64, "sha256_in_prefix": digest})
    record = {**CUDF, "paths_data": {"paths": paths, "paths_version": 1}, **values}
    meta = prefix / "conda-meta"
    meta.mkdir(parents=True, exist_ok=True)
    (meta / "history").touch()
    name = f"{record['name']}-{record['version']}-{record['build']}.json"
    (meta / name).write_text(json.dumps(record), encoding="utf-8")


def test_an_environment(tmp_path: Path) -> None:
    put(tmp_path, {"lib/libcudf.so": b"elf"})
    put(tmp_path, name="Python", version="3.13.1", build="h1", requested_spec="None")
    found = _conda_meta.read(str(tmp_path))
    assert (found.state, found.damaged, found.frozen) == ("environment", (), False)
    assert [str(one.package) for one in found.packages] == ["cudf=26.10.0=cuda13_0", "python=3.13.1=h1"]
    cudf = found.named("CUDF")
    assert cudf is not None
    assert cudf.requested == ("cudf=26.10",)
    assert [entry.path for entry in cudf.entries] == ["lib/libcudf.so"]
    assert found.packages[1].requested == ()
    assert found.named("numpy") is None
    specs = [parse_spec(text) for text in ("cudf=26.*", "rapidsai::cudf", "python>=3.14", "cupy")]
    assert [spec.name for spec in found.lacks(specs)] == ["python", "cupy"]
    (tmp_path / "conda-meta/frozen").write_text("{}", encoding="utf-8")
    assert _conda_meta.read(str(tmp_path)).frozen


def test_what_is_no_environment(tmp_path: Path) -> None:
    def state(name: str) -> str:
        return _conda_meta.read(str(tmp_path / name)).state

    assert state("nothing") == "absent"
    (tmp_path / "empty").mkdir()
    assert state("empty") == "empty"
    (tmp_path / "file").touch()
    assert state("file") == "file"
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert {state("link"), state("dangling")} == {"link"}
    (tmp_path / "home/notes").mkdir(parents=True)
    assert state("home") == "foreign"
    (tmp_path / "begun/conda-meta").mkdir(parents=True)
    (tmp_path / "begun/lib").mkdir()
    assert state("begun") == "partial"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"\0" * 512, "the file is empty"),
        (b'{"name": "cu', "it is no JSON: "),
        (b"\xff\xfe{}", "it is no JSON: "),
        (b"[" * 100000, "it is no JSON: "),
        (b"[]", "it is no record of a package: a value in it is of another type"),
        (b"{}", "it is no record of a package: it has no name"),
        (b'{"name": "a", "version": "1"}', "it has no build_string"),
        (b'{"name": "a", "version": "1", "build": "0", "build_number": "x"}', "of another type"),
        (b'{"name": "a", "version": "1", "build": "0", "paths_data": {"paths": [{}]}}', "it has no _path"),
    ],
)
def test_a_damaged_record_is_told_and_the_others_are_read(tmp_path: Path, content: bytes, reason: str) -> None:
    put(tmp_path)
    (tmp_path / "conda-meta/a-1-0.json").write_bytes(content)
    found = _conda_meta.read(str(tmp_path))
    assert [one.package.name for one in found.packages] == ["cudf"]
    ((name, said),) = found.damaged
    assert name == "a-1-0.json"
    assert reason in said
    with pytest.raises(RecordError):
        _conda_meta.parse(content)


def test_a_package_in_two_versions_is_damage(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path, version="26.8.0")
    assert _conda_meta.read(str(tmp_path)).damaged == (("cudf-*.json", "the package is there in several versions"),)


def test_records_of_older_tools() -> None:
    old = {"name": "a", "version": "1", "build_string": "0", "requested_specs": ["a", "a>0"], "files": ["bin/a"]}
    found = _conda_meta.parse(json.dumps(old).encode())
    assert found.package == Package("a", "1", "0")
    assert found.requested == ("a", "a>0")
    assert found.entries == (Entry("bin/a"),)
    path = {"_path": "bin/a", "sha256": "1" * 64, "prefix_placeholder": "/opt/x"}
    found = _conda_meta.parse(json.dumps({**old, "paths_data": {"paths": [path]}}).encode())
    assert found.entries == (Entry("bin/a", "hardlink", None),)


def test_files_that_are_gone_or_changed(tmp_path: Path) -> None:
    put(tmp_path, {"lib/a.so": b"a", "lib/b.so": b"b", "lib/c.so": b"c", "lib/m.pyc": b"code"})
    links = [{"_path": "lib/link", "path_type": "softlink"}, {"_path": "share/x", "path_type": "directory"}]
    put(tmp_path, name="linked", paths_data={"paths": links})
    (tmp_path / "lib/link").symlink_to("nowhere")
    (tmp_path / "lib/a.so").unlink()
    (tmp_path / "lib/b.so").write_bytes(b"B")
    (tmp_path / "lib/m.pyc").unlink()
    found = _conda_meta.read(str(tmp_path))
    assert list(_conda_meta.faults(found)) == [
        Fault("cudf", "lib/a.so", "missing"),
        Fault("cudf", "lib/b.so", "changed"),
    ]
    (tmp_path / "lib/link").unlink()
    assert list(_conda_meta.faults(found, ["linked"])) == [Fault("linked", "lib/link", "missing")]
    (tmp_path / "lib/c.so").unlink()
    (tmp_path / "lib/c.so").mkdir()
    assert Fault("cudf", "lib/c.so", "changed") in list(_conda_meta.faults(found))


def test_a_path_of_several_packages_is_right_as_any_of_them_has_it(tmp_path: Path) -> None:
    put(tmp_path, {"bin/x": b"one"})
    put(tmp_path, {"bin/x": b"two"}, name="other")
    for content, expected in ((b"one", []), (b"two", []), (b"three", ["cudf", "other"])):
        (tmp_path / "bin/x").write_bytes(content)
        found = _conda_meta.read(str(tmp_path))
        assert [(one.package, one.kind) for one in _conda_meta.faults(found)] == [
            (name, "changed") for name in expected
        ]
    (tmp_path / "bin/x").write_bytes(b"two")
    assert list(_conda_meta.faults(found, ["cudf"])) == []
    (tmp_path / "bin/x").unlink()
    assert list(_conda_meta.faults(found, ["cudf"])) == [Fault("cudf", "bin/x", "missing")]


def test_paths_of_pure_python_packages(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"a").hexdigest()
    names = ["site-packages/a/__init__.py", "python-scripts/a", "share/a"]
    files = ["lib/python3.13/site-packages/a/__init__.py", "bin/a", "share/a"]
    paths = [{"_path": name, "sha256_in_prefix": digest} for name in names]
    record = {**CUDF, "subdir": "noarch", "files": files, "paths_data": {"paths": paths}}
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/cudf-26.10.0-cuda13_0.json").write_text(json.dumps(record), encoding="utf-8")
    (package,) = _conda_meta.read(str(tmp_path)).packages
    assert [entry.path for entry in package.entries] == files
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"a")
    assert list(_conda_meta.faults(_conda_meta.read(str(tmp_path)))) == []


@pytest.mark.parametrize(
    ("depends", "expected"),
    [
        ([], []),
        (["python"], []),
        (["python >=3.13,<3.14.0a0", "Python 3.13.*", "python * h1"], []),
        (["__cuda >=13", "__glibc"], []),
        (["python >=3.14"], ["cudf needs python >=3.14"]),
        (["python * h2", "cupy"], ["cudf needs python * h2", "cudf needs cupy"]),
        (["python [what=ever]"], []),
    ],
)
def test_what_packages_need_themselves(tmp_path: Path, depends: list[str], expected: list[str]) -> None:
    put(tmp_path, depends=depends)
    put(tmp_path, name="python", version="3.13.1", build="h1")
    assert _conda_meta.read(str(tmp_path)).lacks_for_itself() == tuple(expected)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["cudf", "tool"], []),
        (["CUDF"], ["tool"]),
        (["tool"], ["a", "b", "cudf", "pip", "python", "setuptools"]),
        (["python", "tool", "nothing"], ["a", "b", "cudf"]),
        (["a", "tool"], ["cudf", "pip", "python", "setuptools"]),
        ([], ["a", "b", "cudf", "pip", "python", "setuptools", "tool"]),
    ],
)
def test_what_nobody_asked_for(tmp_path: Path, names: list[str], expected: list[str]) -> None:
    put(tmp_path, depends=["Python >=3", "a 1"])
    put(tmp_path, name="a", depends=["b"])
    put(tmp_path, name="b", depends=["a >0", "__unix"])
    for name in ("python", "pip", "setuptools", "tool"):
        put(tmp_path, name=name)
    assert _conda_meta.read(str(tmp_path)).beyond(names) == tuple(expected)


def test_difference() -> None:
    one, two = Package("a", "1", "0", url="https://x/a"), Package("b", "1", "0")
    assert _conda_meta.difference([one, two], [one, two]).empty
    assert _conda_meta.difference([one, two], [Package("a", "1", "1"), Package("c", "2", "0")]) == Difference(
        {"c": "2 0"}, {"b": "1 0"}, {"a": ("1 0", "1 1")}
    )
    assert _conda_meta.difference([one], [Package("a", "1", "0", url="https://y/a")]).changed == {"a": ("1 0", "1 0")}


@pytest.mark.parametrize("values", [{"name": "../../a"}, {"version": "1/2"}, {"build": "/0"}])
def test_a_record_names_no_other_place(values: dict[str, str]) -> None:
    with pytest.raises(RecordError, match="has a slash"):
        _conda_meta.parse(json.dumps({**CUDF, **values}).encode())
