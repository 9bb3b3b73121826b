# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""lock_dl_images.py [FRAMEWORK...]: writes the pinned requirements of role dl_images, and the table of what they hold.

uv (on PATH, or named by the variable UV) resolves them from PyPI for all machines and Pythons from the oldest one on;
nothing is installed. Each distribution has the SHA-256 of each of its wheels; the table has the sum of their sizes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import yaml

LOCKS = Path(__file__).parents[2] / "roles" / "dl_images" / "files" / "locks"
OLDEST_PYTHON = "3.12"
PYTHONS = ["3.12", "3.13"]
# The CUDA of the machine, and what is asked for; cpu is what runs without a GPU.
FRAMEWORKS: dict[str, dict[str, list[str]]] = {
    "pytorch": {"13": ["torch", "torchvision", "cupy-cuda13x[ctk]", "jupyterlab"]},
    "jax": {
        "13": ["jax[cuda13]", "cupy-cuda13x[ctk]", "jupyterlab"],
        "12": ["jax[cuda12]", "cupy-cuda12x[ctk]", "jupyterlab"],
        "cpu": ["jax", "jupyterlab"],
    },
    "tensorflow": {
        "12": ["tensorflow[and-cuda]", "cupy-cuda12x[ctk]", "jupyterlab"],
        "cpu": ["tensorflow", "jupyterlab"],
    },
    "rapids": {
        "13": ["cudf-cu13", "dask-cudf-cu13", "dask-cuda[cu13]", "cupy-cuda13x[ctk]", "jupyterlab"],
        "12": ["cudf-cu12", "dask-cudf-cu12", "dask-cuda[cu12]", "cupy-cuda12x[ctk]", "jupyterlab"],
    },
}
# Wheels for the CPU alone are not on PyPI: those for GPUs run without one, too.
ALSO_WITHOUT_GPU = {"pytorch": "13"}
SHOWN = {"pytorch": "torch", "jax": "jax", "tensorflow": "tensorflow", "rapids": "cudf"}


def resolve(wanted: list[str], form: str = "requirements.txt") -> str:
    """Return a requirements file, or pylock.toml, of what is wanted and all that it needs, with hashes."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "wanted.in"
        source.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        command = [os.environ.get("UV", "uv"), "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
        command += [f"--python-version={OLDEST_PYTHON}", "--no-annotate", "--no-header", "--only-binary=:all:"]
        command += [f"--format={form}", str(source)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def on_x86(wheel: str) -> bool:
    """Return whether Linux on x86-64 takes a wheel with the newest Python."""
    python, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
    newest = f"cp{PYTHONS[-1].replace('.', '')}"
    fitting = "py3" in python or python == newest or abi == "abi3"
    return fitting and (platform == "any" or re.search(r"manylinux.*x86_64", platform) is not None)


def download_bytes(pylock: str) -> int:
    """Return the size of what an image downloads by a pylock.toml, to two digits."""
    size = 0
    for package in tomllib.loads(pylock)["packages"]:
        wheels = {one.get("name") or one["url"].rpartition("/")[2]: one["size"] for one in package.get("wheels", [])}
        size += max((wheels[name] for name in wheels if on_x86(name)), default=0)
    return int(float(f"{size:.1e}"))


def version_of(distribution: str, text: str) -> str:
    """Return the version that a requirements file has of a distribution."""
    found = re.search(rf"(?m)^{re.escape(distribution)}(?:-cu\d+)?==([^\s;]+)", text)
    if found is None:
        raise ValueError(f"{distribution} is not in the lock")
    return found[1]


def main() -> int:
    """Write the files of the frameworks that are named, or of all."""
    table_file = LOCKS / "table.yml"
    table: dict[str, Any] = yaml.safe_load(table_file.read_text(encoding="utf-8")) if table_file.exists() else {}
    for framework in sys.argv[1:] or FRAMEWORKS:
        rows: dict[str, dict[str, str | int]] = {}
        for cuda, wanted in FRAMEWORKS[framework].items():
            name = f"{framework}-{'cpu' if cuda == 'cpu' else 'cu' + cuda}.txt"
            text = resolve(wanted)
            size = download_bytes(resolve([*text.splitlines()], "pylock.toml"))
            head = (
                f"# {', '.join(wanted)} for Python {' and '.join(PYTHONS)}. Written by tests/tools/lock_dl_images.py.\n"
            )
            (LOCKS / name).write_text(head + text, encoding="utf-8")
            rows[cuda] = {"lock": name, "version": version_of(SHOWN[framework], text), "bytes": size}
        if framework in ALSO_WITHOUT_GPU:
            rows["cpu"] = dict(rows[ALSO_WITHOUT_GPU[framework]])
        table[framework] = {"pythons": list(PYTHONS), "cuda": rows}
    text = yaml.safe_dump(table, sort_keys=True, default_flow_style=None, width=150)
    table_file.write_text("---\n# Written by tests/tools/lock_dl_images.py.\n" + text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
