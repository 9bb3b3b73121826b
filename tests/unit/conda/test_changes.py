# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An environment from its making to its end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from module_of_conda import Module, versions

from ansible_collections.cudahub.gpu.tests.unit.conda_standin import run_conda

NUMPY = ["numpy=1.26", "python=3.12"]


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Return all files below a folder with their contents."""
    return {
        str(path.relative_to(folder)): (
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        )
        for path in sorted(folder.rglob("*"))
    }


def test_check_mode_says_what_the_run_then_does(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    planned = module.run(prefix=str(prefix), packages=NUMPY, check=True)
    assert not prefix.exists()
    done = module.run(prefix=str(prefix), packages=NUMPY)
    assert planned["added"] == done["added"]
    assert planned["diff"] == done["diff"]
    assert done["added"].keys() == versions(prefix).keys()
    assert "numpy 1.26.4 py312_0" in done["diff"]["after"]
    assert (planned["lock"], len(done["lock"])) == ([], len(done["packages"]))


def test_other_packages_stay_unless_exact(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=[*NUMPY, "ipykernel"])
    changed = module.run(prefix=str(prefix), packages=["numpy=2.0"])
    assert changed["updated"] == {"numpy": ["1.26.4 py312_0", "2.0.1 py312_0"]}
    assert "ipykernel" in versions(prefix)
    before = tree(prefix)
    assert module.run(prefix=str(prefix), packages=["numpy"], exact=True, check=True)["removed"].keys() == {"ipykernel"}
    assert tree(prefix) == before
    assert module.run(prefix=str(prefix), packages=["numpy"], exact=True)["removed"].keys() == {"ipykernel"}
    assert versions(prefix).keys() == {"numpy", "pip", "python", "python_abi"}
    module.unchanged(prefix=str(prefix), packages=["numpy"], exact=True)


def test_latest_is_what_a_new_environment_gets(module: Module, tmp_path: Path) -> None:
    prefix, options = tmp_path / "env", {"packages": ["numpy", "python=3.12"], "state": "latest"}
    module.run(prefix=str(prefix), packages=NUMPY)
    assert module.run(prefix=str(prefix), **options)["updated"] == {"numpy": ["1.26.4 py312_0", "2.3.1 py312_0"]}
    assert not module.run(prefix=str(prefix), **options)["changed"]
    assert "numpy=2.3.1" not in (prefix / "conda-meta/history").read_text().split("# update specs:")[-1]
    # What a user does next is not bound to the versions of today.
    assert run_conda(tmp_path, "install", "--yes", "--prefix", prefix, "numpy=2.0", "--override-channels",
                     "-c", module.channel).returncode == 0  # fmt: skip
    assert versions(prefix)["numpy"] == "2.0.1"


def test_cuda_is_what_packages_are_chosen_for(module: Module, tmp_path: Path) -> None:
    found = module.run(prefix=str(tmp_path / "a"), packages=["cudf"], cuda="12.4")
    assert found["added"]["cudf"] == "26.10.00 cuda12_0"
    found = module.run(prefix=str(tmp_path / "b"), packages=["cudf"], cuda="13.0", check=True)
    assert found["added"]["cudf"] == "26.10.00 cuda13_0"
    kind, message = module.refused(prefix=str(tmp_path / "b"), packages=["cudf"], cuda="none")
    assert kind == "cuda"
    assert "__cuda" in message


def test_a_lock_brings_the_same_bytes_elsewhere(module: Module, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    lock = module.run(prefix=str(one), packages=["cudf=26.10", "python=3.12"], cuda="12.4")["lock"]
    assert module.run(prefix=str(two), state="locked", lock=["@EXPLICIT", *lock])["lock"] == lock
    module.unchanged(prefix=str(two), state="locked", lock=lock)

    def files(prefix: Path) -> dict[str, bytes | str | None]:
        return {
            path: content.replace(str(prefix).encode(), b"PREFIX") if isinstance(content, bytes) else content
            for path, content in tree(prefix).items()
            if not path.startswith("conda-meta") and not path.endswith(".pyc")
        }

    assert files(one) == files(two)
    module.run(prefix=str(two), packages=["ipykernel"], cuda="12.4")
    assert module.run(prefix=str(two), state="locked", lock=lock)["removed"].keys() == {"ipykernel"}
    assert versions(two) == versions(one)


def test_a_lock_with_another_hash_is_refused(module: Module, tmp_path: Path) -> None:
    lock = module.run(prefix=str(tmp_path / "one"), packages=["cuda-version=12.9"])["lock"]
    forged = [f"{line[:-4]}0000" for line in lock]
    kind, message = module.refused(prefix=str(tmp_path / "two"), state="locked", lock=forged)
    assert kind == "checksum"
    assert "and the lock says" in message
    assert not (tmp_path / "two").exists()


def test_pip_installs_and_is_undone_with_the_rest(module: Module, tmp_path: Path) -> None:
    python, pip = tmp_path / "python", tmp_path / "pip"
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "snake", "1.0")
    real_python(python, module)
    options = {"prefix": str(tmp_path / "env"), "packages": ["realpython"], "channels": [f"file://{python}"]}
    arguments = ["--no-index", "--find-links", str(wheels)]
    done = module.run(**options, pip=["snake==1.0"], pip_arguments=arguments)
    assert done["pip_packages"] == ["snake==1.0"]
    assert module.run(**options, pip=["snake==1.0"], pip_arguments=arguments)["changed"] is False
    before = tree(tmp_path / "env")
    kind, message = module.refused(**options, pip=["snake==2.0"], pip_arguments=arguments)
    assert kind == "pip"
    assert "snake==2.0" in message
    assert tree(tmp_path / "env") == before
    assert not pip.exists()


def write_wheel(folder: Path, name: str, version: str) -> None:
    """Write a wheel without code."""
    import zipfile

    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def real_python(folder: Path, module: Module) -> None:
    """Write a channel with this Python and its pip as one package: a virtual environment is made of it."""
    import ensurepip
    import zipfile

    from ansible_collections.cudahub.gpu.tests.standin.conda import channel as standin

    site = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    bundled = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    with zipfile.ZipFile(bundled) as wheel:
        files = {f"{site}/{name}": wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    config = f"home = {Path(sys.executable).resolve().parent}\ninclude-system-site-packages = false\n"
    launcher = f'#!/bin/bash\nexec -a "$0" {Path(sys.executable).resolve()} "$@"\n'
    files |= {"pyvenv.cfg": config.encode()}
    content = {**files, "bin/python": standin.File(launcher, 0o755)}
    standin.write_channel(folder, [standin.Package("realpython", "1.0", files=content)])


def test_atomic_changes_are_beside_until_they_are_complete(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=NUMPY, atomic=True)
    assert os.readlink(prefix) == "env.d/1"
    module.unchanged(prefix=str(prefix), packages=NUMPY, atomic=True)
    module.refused(prefix=str(prefix), packages=["numpy=9"], atomic=True)
    assert os.readlink(prefix) == "env.d/1"
    module.run(prefix=str(prefix), packages=["numpy=2.0", "ipykernel"], atomic=True)
    module.run(prefix=str(prefix), packages=["numpy=2.3"], atomic=True)
    assert os.readlink(prefix) == "env.d/3"
    assert sorted(path.name for path in (tmp_path / "env.d").iterdir()) == [".cudahub", "2", "3"]
    assert versions(prefix.resolve()).keys() >= {"numpy", "ipykernel"}
    removed = module.run(prefix=str(prefix), packages=["numpy=2.3", "python=3.12"], atomic=True, exact=True)
    assert removed["removed"].keys() == {"ipykernel"}
    assert module.run(prefix=str(prefix), state="absent")["changed"]
    assert not prefix.is_symlink()
    assert not (tmp_path / "env.d").exists()


def test_a_frozen_environment(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=["cuda-version=12.9"], frozen=True)
    frozen = prefix / "conda-meta/frozen"
    assert json.loads(frozen.read_text())["message"]
    assert module.refused(prefix=str(prefix), packages=["cuda-version=12.8"])[0] == "frozen"
    assert versions(prefix)["cuda-version"] == "12.9"
    module.run(prefix=str(prefix), packages=["cuda-version=12.8"], frozen=True)
    assert (versions(prefix)["cuda-version"], frozen.exists()) == ("12.8", True)
    assert module.refused(prefix=str(prefix), state="absent")[0] == "frozen"
    module.run(prefix=str(prefix), state="absent", frozen=False)


def test_absent_keeps_all_else(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=["cuda-version"])
    (tmp_path / "env2").mkdir()
    (tmp_path / "env2/notes").write_text("mine")
    assert module.run(prefix=str(prefix), state="absent", check=True)["changed"]
    assert prefix.is_dir()
    assert module.run(prefix=str(prefix), state="absent")["removed"].keys() == {"cuda-version"}
    module.unchanged(prefix=str(prefix), state="absent")
    assert (tmp_path / "env2/notes").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".env", "env"))) == ["env2"]


def test_a_name_is_a_prefix_in_the_directory_of_the_tool(module: Module, tmp_path: Path) -> None:
    options = {
        "name": "course",
        "condarc": {"envs_dirs": [str(tmp_path / "envs")], "pkgs_dirs": [str(tmp_path / "pkgs")]},
    }
    assert module.run(**options, packages=["cuda-version"])["prefix"] == str(tmp_path / "envs/course")
    assert module.run(**options, packages=["cuda-version"])["changed"] is False


@pytest.mark.parametrize("umask", ["0022", "0077"])
def test_permissions_do_not_depend_on_who_runs_it(module: Module, tmp_path: Path, umask: str) -> None:
    before = os.umask(0o077)
    try:
        module.run(prefix=str(tmp_path / "env"), packages=["ipykernel", "python=3.12"], umask=umask)
    finally:
        os.umask(before)
    readable = [bool(path.stat().st_mode & 0o004) for path in (tmp_path / "env/conda-meta").iterdir()]
    assert all(readable) if umask == "0022" else not any(readable)


def test_the_log_tells_the_steps(module: Module, tmp_path: Path) -> None:
    module.run(prefix=str(tmp_path / "env"), packages=NUMPY)
    said = [line.split(" ", 2)[2] for line in (tmp_path / "log").read_text().splitlines()]
    assert said[:3] == [
        f"{tmp_path}/env lacks numpy=1.26, python=3.12",
        "Solving for numpy=1.26, python=3.12 with conda 24.7.1",
        f"Changing {tmp_path}/env with conda 24.7.1",
    ]
