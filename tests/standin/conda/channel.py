# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for the conda channels ``rapidsai`` and ``conda-forge``: a local channel of tiny, but real, packages.

``channel.py DIRECTORY`` writes one with the names, versions, builds and relations that RAPIDS and what it needs have
there. Conda, mamba, micromamba and others install from ``file://DIRECTORY``. Packages hold next to nothing: ``python``
is a script that runs the system's Python, or the one that ``STANDIN_PYTHON`` in the environment names, with the
environment's modules; its version is a claim that only ``python --version`` keeps up. ``cupy`` is the CuPy that
computes with that Python's NumPy; package ``numpy`` brings metadata only.

The same packages give the same bytes, whenever and wherever they are written.

The real packages name ``__cuda``, the driver's CUDA version, where a solver may heed it (``constrains``); conda's
classic solver doesn't. So here RAPIDS's and CuPy's need it, unless ``--cuda constrains`` asks for the real shape.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

PLACEHOLDER = ("/opt/placeholder" + 20 * "_placehold")[:200]
PLATFORMS = ("linux-64", "linux-aarch64")
TIMESTAMP = 1790000000000
CUPY = Path(__file__).parents[1] / "cupy/__init__.py"
CUDF = Path(__file__).parents[1] / "cudf/__init__.py"
PYTHONS = ("3.11.13", "3.12.11", "3.13.5")
CUDA_VERSIONS = (*(f"12.{minor}" for minor in range(2, 10)), *(f"13.{minor}" for minor in range(4)))


@dataclass(frozen=True)
class File:
    """A file of a package, or a link. Conda puts the environment's path in the place of ``PLACEHOLDER``, if asked."""

    content: str = ""
    mode: int = 0o644
    placeholder: bool = False
    link: str = ""

    def bytes(self) -> bytes:
        return self.content.encode()


@dataclass(frozen=True)
class Package:
    """A package to write; ``linux-64`` means each of ``PLATFORMS``.

    If ``noarch`` is "python", files lie below ``site-packages/`` and ``python-scripts/``, and ``entry_points`` are as
    ``pip = pip:main``. Such a package may be in a platform's directory, too, as those are that work with any Python.
    """

    name: str
    version: str
    build: str = "0"
    build_number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    subdir: str = "linux-64"
    files: Mapping[str, File | bytes] = field(default_factory=dict)
    noarch: Literal["", "generic", "python"] = ""
    entry_points: tuple[str, ...] = ()
    extension: Literal[".tar.bz2", ".conda"] = ".tar.bz2"

    @property
    def stem(self) -> str:
        return f"{self.name}-{self.version}-{self.build}"

    @property
    def index(self) -> dict[str, Any]:
        """What both the package and the channel say about it."""
        system = {"linux-64": ("x86_64", "linux"), "linux-aarch64": ("aarch64", "linux")}
        arch, platform = system.get(self.subdir, (None, None))
        index = {
            "arch": arch,
            "build": self.build,
            "build_number": self.build_number,
            "depends": list(self.depends),
            "license": "GPL-3.0-or-later",
            "name": self.name,
            "platform": platform,
            "subdir": self.subdir,
            "timestamp": TIMESTAMP,
            "version": self.version,
        }
        if self.constrains:
            index["constrains"] = list(self.constrains)
        if self.noarch:
            index["noarch"] = self.noarch
        return index


Members = dict[str, File | bytes]


def _content(one: File | bytes) -> bytes:
    return one if isinstance(one, bytes) else one.bytes()


def _path_entry(path: str, one: File | bytes) -> dict[str, Any]:
    """The entry of a file in ``info/paths.json``; the hash of a link is that of nothing."""
    link = isinstance(one, File) and bool(one.link)
    content = b"" if link else _content(one)
    entry = {
        "_path": path,
        "path_type": "softlink" if link else "hardlink",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_in_bytes": len(content),
    }
    if isinstance(one, File) and one.placeholder:
        entry.update(prefix_placeholder=PLACEHOLDER, file_mode="text")
    return entry


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def _metadata(package: Package) -> Members:
    """The files below ``info/``."""
    paths = [_path_entry(path, one) for path, one in sorted(package.files.items())]
    info: Members = {
        "info/about.json": _json({"summary": f"Stands in for {package.name}"}),
        "info/files": "".join(f"{entry['_path']}\n" for entry in paths).encode(),
        "info/index.json": _json(package.index),
        "info/paths.json": _json({"paths": paths, "paths_version": 1}),
    }
    prefixed = [f"{PLACEHOLDER} text {entry['_path']}\n" for entry in paths if "prefix_placeholder" in entry]
    if prefixed:
        info["info/has_prefix"] = "".join(prefixed).encode()
    if package.noarch:
        noarch: dict[str, Any] = {"type": package.noarch}
        if package.entry_points:
            noarch["entry_points"] = list(package.entry_points)
        info["info/link.json"] = _json({"noarch": noarch, "package_metadata_version": 1})
    return info


def _tar(members: Mapping[str, File | bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, one in sorted(members.items()):
            member = tarfile.TarInfo(path)
            content = _content(one)
            member.mode = one.mode if isinstance(one, File) else 0o644
            if isinstance(one, File) and one.link:
                member.type, member.linkname, content = tarfile.SYMTYPE, one.link, b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _zstd(content: bytes) -> bytes:
    """What any zstd reads, without compression: a header with the size, and raw blocks."""
    blocks = [content[at : at + (1 << 17)] for at in range(0, len(content), 1 << 17)] or [b""]
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(content).to_bytes(4, "little")
    for number, block in enumerate(blocks, start=1):
        last = number == len(blocks)
        frame += (len(block) << 3 | last).to_bytes(3, "little") + block
    return frame


def _conda_format(package: Package) -> bytes:
    """A package in format ``.conda``: a ZIP archive of two compressed tar archives."""
    parts = {
        "metadata.json": _json({"conda_pkg_format_version": 2}),
        f"pkg-{package.stem}.tar.zst": _zstd(_tar(package.files)),
        f"info-{package.stem}.tar.zst": _zstd(_tar(_metadata(package))),
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def write_package(folder: Path, package: Package) -> tuple[str, dict[str, Any]]:
    """Write a package into the directory of its platform; return its file's name and its entry in ``repodata.json``."""
    if package.extension == ".conda":
        name, content = f"{package.stem}.conda", _conda_format(package)
    else:
        name, content = f"{package.stem}.tar.bz2", bz2.compress(_tar({**_metadata(package), **package.files}))
    (folder / name).write_bytes(content)
    checks = {
        "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }
    return name, {**package.index, **checks}


def write_channel(path: Path, packages: Iterable[Package]) -> None:
    """Write a channel: packages of no platform into ``noarch``, all others into the directory of each platform."""
    packages = list(packages)
    for subdir in ("noarch", *PLATFORMS):
        folder = path / subdir
        folder.mkdir(parents=True, exist_ok=True)
        found: dict[str, dict[str, Any]] = {".tar.bz2": {}, ".conda": {}}
        for package in packages:
            if (package.subdir == "noarch") == (subdir == "noarch"):
                name, entry = write_package(folder, replace(package, subdir=subdir))
                found[".conda" if name.endswith(".conda") else ".tar.bz2"][name] = entry
        repodata = {
            "info": {"subdir": subdir},
            "packages": found[".tar.bz2"],
            "packages.conda": found[".conda"],
            "removed": [],
            "repodata_version": 1,
        }
        (folder / "repodata.json").write_bytes(_json(repodata))


# Options -I and -E would hide the environment's modules, which come by PYTHONPATH here. Conda compiles modules and
# looks for files that are named after the Python that it installed.
PYTHON = """\
#!/bin/sh
prefix={placeholder}
site=$prefix/lib/python{minor}/site-packages
case ${{1-}} in
    -V | --version) echo "Python {version}"; exit ;;
    -I* | -E*)
        unset PYTHONPATH PYTHONSTARTUP
        case $1 in -I*) export PYTHONSAFEPATH=1 PYTHONNOUSERSITE=1 ;; esac
        rest=${{1#-?}}
        shift
        [ -z "$rest" ] || set -- "-$rest" "$@" ;;
esac
case " $* " in *" -m compileall "*) export STANDIN_CACHE_TAG={tag} ;; esac
unset PYTHONHOME
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$site"
exec "${{STANDIN_PYTHON:-{python}}}" "$@"
"""

SITECUSTOMIZE = """\
import os
import sys

sys.prefix = sys.exec_prefix = "{placeholder}"
sys.executable = "{placeholder}/bin/python"
sys.implementation.cache_tag = os.environ.pop("STANDIN_CACHE_TAG", sys.implementation.cache_tag)
"""

PIP = '''\
"""Stands in for pip: it lists, and installs nothing."""

import json
import os
import sys
from importlib import metadata

__version__ = "{version}"
SITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    arguments = sys.argv[1:]
    if "list" in arguments or "freeze" in arguments:
        found = sorted((one.metadata["Name"], one.version) for one in metadata.distributions(path=[SITE]))
        if any("json" in argument for argument in arguments):
            print(json.dumps([dict(zip(("name", "version"), one)) for one in found]))
        else:
            print(*map("==".join, found), sep="\\n")
        return 0
    if arguments[:1] in (["--version"], ["-V"]):
        print(f"pip {{__version__}} from {{SITE}}/pip (python {{'.'.join(map(str, sys.version_info[:2]))}})")
        return 0
    sys.stderr.write("ERROR: the stand-in of pip installs nothing\\n")
    return 1
'''

IPYKERNEL = '''\
"""Stands in for ipykernel: it registers itself, and runs nothing."""

import argparse
import json
import os
import sys

__version__ = "{version}"


def main():
    parser = argparse.ArgumentParser(prog="ipykernel")
    parser.add_argument("command", choices=["install"])
    parser.add_argument("--name", default="python3")
    parser.add_argument("--display-name")
    parser.add_argument("--env", nargs=2, action="append", default=[])
    parser.add_argument("--user", action="store_true")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--prefix", default="/usr/local")
    place.add_argument("--sys-prefix", dest="prefix", action="store_const", const=sys.prefix)
    options = parser.parse_args()
    share = os.path.expanduser("~/.local/share") if options.user else os.path.join(options.prefix, "share")
    folder = os.path.join(share, "jupyter/kernels", options.name.lower())
    os.makedirs(folder, exist_ok=True)
    spec = {{
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{{connection_file}}"],
        "display_name": options.display_name or "Python 3 (ipykernel)",
        "language": "python",
        "metadata": {{"debugger": True}},
    }}
    if options.env:
        spec["env"] = dict(options.env)
    with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as opened:
        json.dump(spec, opened, indent=1)
    print(f"Installed kernelspec {{options.name}} in {{folder}}")
    return 0
'''

MAIN = "import sys\n\nfrom {module} import main\n\nsys.exit(main())\n"


def _minor(version: str) -> str:
    return version.rpartition(".")[0]


def _module(name: str, version: str, files: Mapping[str, str] | None = None) -> dict[str, File | bytes]:
    """The files of a Python distribution with one module, whose content is its version unless it is given."""
    module = name.replace("-", "_")
    package = f"site-packages/{module}"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents = {"__init__.py": f'__version__ = "{version}"\n'} if files is None else files
    return {
        f"{package}-{version}.dist-info/METADATA": File(about),
        f"{package}-{version}.dist-info/INSTALLER": File("conda\n"),
        **{f"{package}/{path}": File(content) for path, content in contents.items()},
    }


def _python(version: str, python: str) -> Iterable[Package]:
    """A Python and the tag of its ABI."""
    minor = _minor(version)
    tag = "cp" + minor.replace(".", "")
    texts = {"minor": minor, "placeholder": PLACEHOLDER, "python": python, "version": version}
    texts["tag"] = f"cpython-{minor.replace('.', '')}"
    site = f"lib/python{minor}/site-packages"
    files = {
        "bin/python": File(link=f"python{minor}"),
        "bin/python3": File(link=f"python{minor}"),
        f"bin/python{minor}": File(PYTHON.format(**texts), mode=0o755, placeholder=True),
        f"{site}/README.txt": File("Third-party modules go here.\n"),
        f"{site}/sitecustomize.py": File(SITECUSTOMIZE.format(**texts), placeholder=True),
    }
    yield Package("python", version, "0_cpython", constrains=(f"python_abi {minor}.* *_{tag}",), files=files)
    abi = (f"python {minor}.*",)
    yield Package("python_abi", minor, f"8_{tag}", 8, constrains=abi, subdir="noarch", noarch="generic")


def _numpy(version: str, *minors: str) -> Iterable[Package]:
    for minor in minors:
        tag = minor.replace(".", "")
        next_minor = f"3.{int(minor.partition('.')[2]) + 1}"
        depends = (f"python >={minor},<{next_minor}.0a0", f"python_abi {minor}.* *_cp{tag}")
        files = {f"lib/python{minor}/{path}": one for path, one in _module("numpy", version, {}).items()}
        constrains = ("numpy-base <0a0",)
        yield Package("numpy", version, f"py{tag}_0", depends=depends, constrains=constrains, files=files)


def _tools() -> Iterable[Package]:
    """What RAPIDS's packages and users' environments need besides RAPIDS."""
    pip = {"__init__.py": PIP.format(version="26.2"), "__main__.py": MAIN.format(module="pip")}
    kernel = {"__init__.py": IPYKERNEL.format(version="7.1.0"), "__main__.py": MAIN.format(module="ipykernel")}
    python = ("python >=3.10",)
    yield Package("pip", "26.2", "pyh8b19718_0", 0, python, (), "noarch", _module("pip", "26.2", pip), "python",
                  ("pip = pip:main", "pip3 = pip:main"))  # fmt: skip
    yield Package("ipykernel", "7.1.0", "pyha191276_0", 0, python, (), "noarch", _module("ipykernel", "7.1.0", kernel),
                  "python")  # fmt: skip
    for version in CUDA_VERSIONS:
        cudatoolkit = f"cudatoolkit {version}|{version}.*"
        constrains = (cudatoolkit, f"__cuda >={version.partition('.')[0]}")
        yield Package("cuda-version", version, "h4f385c5_3", 3, (), constrains, "noarch", noarch="generic",
                      extension=".conda")  # fmt: skip


def _built(cuda: str, name: str, version: str, depends: Iterable[str], files: Mapping[str, File | bytes]) -> Package:
    """A package in the build for a major version of CUDA and any Python."""
    cuda_version = {"12": "cuda-version >=12.2,<13.0a0", "13": "cuda-version >=13.0,<14.0a0"}[cuda]
    needs = (cuda_version, "python >=3.11", *depends)
    constrains = (f"__cuda >={cuda}",)
    return Package(name, version, f"cuda{cuda}_0", 0, needs, constrains, files=files, noarch="python")


def _cupy(version: str, cuda: str) -> Package:
    """CuPy's stand-in, except that it may be imported where no GPU is chosen."""
    visible = 'os.environ["CUDA_VISIBLE_DEVICES"]'
    content = CUPY.read_text(encoding="utf-8")
    assert visible in content
    content = content.replace(visible, 'os.environ.get("CUDA_VISIBLE_DEVICES", "*")')
    content = content.replace('__version__ = "14.2.0"', f'__version__ = "{version}"')
    others = {path.name: path.read_text(encoding="utf-8") for path in CUPY.parent.glob("*.py") if path != CUPY}
    files = _module("cupy", version, {"__init__.py": content, **others})
    return _built(cuda, "cupy", version, ("numpy >=1.26,<3",), files)


def _rapids(release: str, cupy: str, cuda: str) -> Iterable[Package]:
    """A release of RAPIDS for a major version of CUDA."""
    version, same = f"{release}.00", f"{release}.*"
    needs = {
        "cudf": ("cupy >=13.6.0", "numpy >=1.26,<3"),
        "cuml": (f"cudf {same}", "cupy >=13.6.0", f"dask-cudf {same}", "numpy >=1.26,<3"),
        "dask-cuda": ("numpy >=1.26,<3",),
        "dask-cudf": (f"cudf {same}", "cupy >=13.6.0"),
    }
    cudf = re.sub("__version__ = .*", f'__version__ = "{version}"', CUDF.read_text(encoding="utf-8"))
    contents = {"cudf": {"__init__.py": cudf}}
    for name, depends in needs.items():
        yield _built(cuda, name, version, depends, _module(name, version, contents.get(name)))
    yield _cupy(cupy, cuda)
    yield _built(cuda, "rapids", version, [f"{name} {same}" for name in needs], {})


def _needing_cuda(package: Package) -> Package:
    """The package with what it says about ``__cuda`` where the classic solver heeds it."""
    found = tuple(one for one in package.constrains if one.startswith("__cuda "))
    return replace(package, depends=(*package.depends, *found), constrains=())


def rapids_packages(
    python: str = "/usr/bin/python3", cuda: Literal["depends", "constrains"] = "depends"
) -> list[Package]:
    """The packages of RAPIDS 26.08 and 26.10 and what they need; ``python`` is what runs all code."""
    rapids = [
        package
        for release, cupy in (("26.08", "13.6.0"), ("26.10", "14.2.0"))
        for major in ("12", "13")
        for package in _rapids(release, cupy, major)
    ]
    return [
        *(package for version in PYTHONS for package in _python(version, python)),
        *_numpy("1.26.4", "3.11", "3.12"),
        *_numpy("2.0.1", "3.11", "3.12"),
        *_numpy("2.3.1", "3.11", "3.12", "3.13"),
        *_tools(),
        *(map(_needing_cuda, rapids) if cuda == "depends" else rapids),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a local channel with stand-ins of RAPIDS's packages.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--python", default="/usr/bin/python3", help="what runs the code of environments")
    parser.add_argument("--cuda", default="depends", choices=["depends", "constrains"])
    options = parser.parse_args()
    write_channel(options.directory, rapids_packages(options.python, options.cuda))


if __name__ == "__main__":
    main()
