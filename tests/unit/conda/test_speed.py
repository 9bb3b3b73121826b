# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run costs that has nothing to do: CPU seconds, the best of three, as other tests run beside."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from module_of_conda import Module

from ansible_collections.cudahub.gpu.tests.unit.conda_standin import run_conda

PACKAGES = ["numpy=2.0", "python=3.12"]


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of programs that some work starts."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    found = []
    for _number in range(3):
        before = used()
        work()
        found.append(used() - before)
    return min(found)


def test_it_is_cheaper_than_asking_conda(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=PACKAGES)
    empty = seconds(lambda: module.end(module.start(prefix="relative", packages=PACKAGES)))
    ours = seconds(lambda: module.unchanged(prefix=str(prefix), packages=PACKAGES))
    options = ("install", "--yes", "--prefix", prefix, "--override-channels", "--channel", module.channel)
    conda = seconds(lambda: run_conda(tmp_path, *options, *PACKAGES))
    print(f"module {ours:.2f} s, of which {empty:.2f} s before it looks at anything; conda {conda:.2f} s")
    assert ours < conda
    assert ours - empty < conda / 4


def test_an_environment_of_500_packages(module: Module, tmp_path: Path) -> None:
    prefix, digest = tmp_path / "env", "0" * 64
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "conda-meta/history").touch()
    for number in range(500):
        needs = [f"p{(number + step) % 500} >=1.{number % 10},<{3 + number % 5}.0a0" for step in range(1, 11)]
        paths = [f"lib/p{number}/{path}" for path in range(100)]
        record = {
            "name": f"p{number}",
            "version": "2.1",
            "build": "0",
            "depends": needs,
            "files": paths,
            "paths_data": {"paths": [{"_path": path, "path_type": "hardlink", "sha256": digest} for path in paths]},
        }
        (prefix / f"conda-meta/p{number}-2.1-0.json").write_text(json.dumps(record))
    specs = [f"p{number}>=2" for number in range(0, 500, 10)]
    empty = seconds(lambda: module.end(module.start(prefix="relative", packages=PACKAGES)))
    ours = seconds(lambda: module.unchanged(prefix=str(prefix), packages=specs))
    print(f"500 packages: {ours:.2f} s, of which {empty:.2f} s before it looks, with Python {sys.version_info[1]}")
    assert ours < 6 * empty
