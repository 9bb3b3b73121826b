# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-ins of Miniforge and of RAPIDS's channel."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import rattler

from ansible_collections.cudahub.gpu.tests.standin.conda.channel import (
    PLACEHOLDER,
    PLATFORMS,
    File,
    Package,
    rapids_packages,
    write_channel,
)
from ansible_collections.cudahub.gpu.tests.unit.conda_standin import (
    STANDIN,
    installed_by_rattler,
    problems_of,
    real_conda,
    run_conda,
)

DRIVERS = [("", None), ("12.4", "cuda12_0"), ("13.0", "cuda13_0")]


@pytest.fixture(scope="module")
def rapids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The channel of RAPIDS."""
    folder = tmp_path_factory.mktemp("channel")
    write_channel(folder, rapids_packages())
    return folder


def create(folder: Path, channel: Path, *specs: str, cuda: str = "") -> subprocess.CompletedProcess[str]:
    """Create the environment ``env`` in a folder."""
    options = ("create", "--yes", "--quiet", "--prefix", folder / "env", "--override-channels", "--channel")
    return run_conda(folder, *options, channel.as_uri(), *specs, CONDA_OVERRIDE_CUDA=cuda)


def python(folder: Path, *arguments: str) -> str:
    """What the environment's Python prints."""
    environment = {**os.environ, "STANDIN_PYTHON": sys.executable}
    command = [folder / "env/bin/python", *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_conda_is_its_own_base() -> None:
    prefix = real_conda().parents[1]
    answer = run_conda(prefix, "info", "--json", HOME="/nonexistent")
    info = json.loads(answer.stdout)
    assert info["root_prefix"] == info["conda_prefix"] == str(prefix)
    assert info["envs_dirs"][0] == str(prefix / "envs")
    version = run_conda(prefix, "--version").stdout
    assert re.fullmatch(r"conda \d+\.\d+\.\d+\n", version)


def test_an_environment_is_what_conda_says_and_another_judge_reads(rapids: Path, tmp_path: Path) -> None:
    done = create(tmp_path, rapids, "python=3.12", "numpy")
    assert done.returncode == 0, done.stdout
    records = installed_by_rattler(tmp_path / "env")
    assert {name: str(record.version) for name, record in records.items()} == {
        "numpy": "2.3.1",
        "pip": "26.2",
        "python": "3.12.11",
        "python_abi": "3.12",
    }
    assert problems_of(tmp_path / "env") == []
    assert python(tmp_path, "--version") == "Python 3.12.11"
    assert python(tmp_path, "-c", "import sys; print(sys.prefix)") == str(tmp_path / "env")
    assert python(tmp_path, "-m", "pip", "--version").startswith(f"pip 26.2 from {tmp_path}/env/lib/python3.12/")


def test_the_judge_sees_what_is_missing_or_changed(rapids: Path, tmp_path: Path) -> None:
    assert create(tmp_path, rapids, "python=3.13", "numpy").returncode == 0
    site = tmp_path / "env/lib/python3.13/site-packages"
    (site / "README.txt").unlink()
    (site / "numpy-2.3.1.dist-info/INSTALLER").write_text("pip\n")
    for record in (tmp_path / "env/conda-meta").glob("python_abi-*.json"):
        record.unlink()
    assert sorted(problems_of(tmp_path / "env")) == [
        "numpy: file lib/python3.13/site-packages/numpy-2.3.1.dist-info/INSTALLER is another one",
        "numpy: no package for python_abi 3.13.* *_cp313",
        "python: no file lib/python3.13/site-packages/README.txt",
    ]


@pytest.mark.parametrize(("driver", "build"), DRIVERS)
def test_the_driver_decides_which_rapids_there_is(rapids: Path, tmp_path: Path, driver: str, build: str | None) -> None:
    done = create(tmp_path, rapids, "rapids", "python=3.13", cuda=driver)
    if build is None:
        assert done.returncode == 1
        assert "rapids -> __cuda" in done.stdout
        return
    assert done.returncode == 0, done.stdout
    records = installed_by_rattler(tmp_path / "env")
    assert {str(record.build) for record in records.values() if str(record.build).startswith("cuda")} == {build}
    assert {"cudf", "cuml", "cupy", "dask-cuda", "dask-cudf", "rapids"} < set(records)
    assert str(records["rapids"].version) == "26.10.00"
    assert problems_of(tmp_path / "env") == []


def test_conda_refuses_a_newer_cuda_than_the_drivers(rapids: Path, tmp_path: Path) -> None:
    done = create(tmp_path, rapids, "rapids", "cuda-version=13", cuda="12.4")
    assert done.returncode == 1
    assert "UnsatisfiableError" in done.stdout
    assert not (tmp_path / "env/conda-meta").exists()


def test_an_older_release_is_updated(rapids: Path, tmp_path: Path) -> None:
    assert create(tmp_path, rapids, "rapids=26.08", "python=3.11", cuda="13.0").returncode == 0
    assert str(installed_by_rattler(tmp_path / "env")["cudf"].version) == "26.08.00"
    options = ("install", "--yes", "--quiet", "--prefix", tmp_path / "env", "--override-channels", "--channel")
    done = run_conda(tmp_path, *options, rapids.as_uri(), "rapids=26.10", CONDA_OVERRIDE_CUDA="13.0")
    assert done.returncode == 0, done.stdout
    assert str(installed_by_rattler(tmp_path / "env")["cudf"].version) == "26.10.00"
    assert problems_of(tmp_path / "env") == []


def test_the_code_of_an_environment_runs(rapids: Path, tmp_path: Path) -> None:
    assert create(tmp_path, rapids, "cudf", "ipykernel", "python=3.12", cuda="13.0").returncode == 0
    code = "import cudf; frame = cudf.DataFrame({'key': ['y', 'x', 'y'], 'value': [1, 5, 2]})"
    code += "; print(frame.groupby('key')['value'].mean().sort_index().to_arrow().to_pylist())"
    assert python(tmp_path, "-I", "-c", code) == "[5.0, 1.5]"
    assert python(tmp_path, "-Ic", "import cupy; print(int(cupy.arange(5).sum()))") == "10"
    python(tmp_path, "-m", "ipykernel", "install", "--sys-prefix", "--name", "rapids", "--display-name", "RAPIDS")
    spec = json.loads((tmp_path / "env/share/jupyter/kernels/rapids/kernel.json").read_text())
    assert spec["argv"][0] == f"{tmp_path}/env/bin/python"
    assert spec["display_name"] == "RAPIDS"


@pytest.mark.parametrize(("driver", "build"), [("", "cuda13_0"), ("12.4", "cuda12_0"), ("13.0", "cuda13_0")])
def test_another_solver_heeds_the_real_shape(tmp_path: Path, driver: str, build: str) -> None:
    write_channel(tmp_path, rapids_packages(cuda="constrains"))
    assert build in {str(record.build) for record in solve(tmp_path, driver, "cudf")}


def solve(channel: Path, driver: str, *specs: str) -> Iterable[rattler.RepoDataRecord]:
    """What rattler would install on a host with this driver."""
    version = (rattler.PackageName("__cuda"), rattler.Version(driver or "0"), rattler.package.BuildString("0"))
    virtual = [rattler.GenericVirtualPackage(*version)] if driver else []
    platforms = ["linux-64", "noarch"]
    return asyncio.run(rattler.solve([channel.as_uri()], specs, platforms=platforms, virtual_packages=virtual))


def test_both_formats_and_all_kinds_of_files_are_installed(tmp_path: Path) -> None:
    files = {
        "bin/tool": File(f"#!/bin/sh\necho {PLACEHOLDER}\n", 0o755, placeholder=True),
        "bin/link": File(link="tool"),
        "share/data": bytes(range(256)) * 1024,
        "share/empty": b"",
    }
    packages = [
        Package("old", "1", files=files),
        Package("new", "1", files={f"{path}-new": one for path, one in files.items()}, extension=".conda"),
    ]
    write_channel(tmp_path / "channel", packages)
    done = create(tmp_path, tmp_path / "channel", "old", "new")
    assert done.returncode == 0, done.stdout
    assert problems_of(tmp_path / "env") == []
    for suffix in ("", "-new"):
        assert (tmp_path / f"env/share/data{suffix}").read_bytes() == files["share/data"]
        said = subprocess.run([tmp_path / f"env/bin/tool{suffix}"], check=True, capture_output=True, text=True).stdout
        assert said == f"{tmp_path}/env\n"
    assert (tmp_path / "env/bin/link").readlink() == Path("tool")


def test_a_channel_has_the_same_bytes_again_and_what_it_says_it_has(rapids: Path, tmp_path: Path) -> None:
    write_channel(tmp_path, rapids_packages())
    files = {path.relative_to(rapids): path.read_bytes() for path in rapids.rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    for subdir in ("noarch", *PLATFORMS):
        repodata = json.loads(files[Path(subdir, "repodata.json")])
        entries = {**repodata["packages"], **repodata["packages.conda"]}
        assert {name: entry["size"] for name, entry in entries.items()} == {
            path.name: len(content)
            for path, content in files.items()
            if path.parts[0] == subdir and path.name != "repodata.json"
        }


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["-b", "-p", "{there}"], 1, "ERROR: File or directory already exists: '{there}'\n"),
        (["-h"], 2, "-p PREFIX    install prefix"),
        (["-b", "-p", "{there} /x"], 1, "ERROR: Cannot install into directories with spaces"),
    ],
)
def test_the_installer_answers_as_miniforges(tmp_path: Path, options: list[str], code: int, said: str) -> None:
    there = tmp_path / "there"
    there.mkdir()
    command = ["sh", STANDIN / "Miniforge3-standin-Linux.sh", *(one.format(there=there) for one in options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said.format(there=there) in done.stdout + done.stderr


@pytest.mark.parametrize(("options", "exists"), [(["-b"], False), (["-b", "-u"], True)])
def test_the_installer_hands_on_what_it_was_told(tmp_path: Path, options: list[str], *, exists: bool) -> None:
    standin, prefix = tmp_path / "standin", tmp_path / "miniforge"
    standin.mkdir()
    (standin / "install").write_text("import sys; print(sys.argv[1:])")
    if exists:
        prefix.mkdir()
    environment = {**os.environ, "MINIFORGE_STANDIN": str(standin), "MINIFORGE_STANDIN_WHEELS": "/wheels"}
    command = ["sh", STANDIN / "Miniforge3-standin-Linux.sh", *options, "-p", prefix]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == f"PREFIX={prefix}\n['{prefix}', '--wheels', '/wheels']\ninstallation finished.\n"
