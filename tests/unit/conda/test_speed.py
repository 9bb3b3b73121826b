# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run costs that has nothing to do, in CPU seconds beside those of other work in the same moments.

A busy machine stretches single runs, so the work is done in rounds, of which the best one counts.
"""

from __future__ import annotations

import json
import resource
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

    before = used()
    work()
    return used() - before


def shares(work: Callable[[], object], other: Callable[[], object]) -> list[float]:
    """Return what some work costs as a share of other work, in five rounds."""
    return [seconds(work) / seconds(other) for _round in range(5)]


def test_it_is_cheaper_than_asking_conda(module: Module, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    module.run(prefix=str(prefix), packages=PACKAGES)
    options = ("install", "--yes", "--prefix", prefix, "--override-channels", "--channel", module.channel)
    found = shares(
        lambda: module.unchanged(prefix=str(prefix), packages=PACKAGES),
        lambda: run_conda(tmp_path, *options, *PACKAGES),
    )
    print("shares of what conda costs:", *(f"{share:.2f}" for share in found))
    assert min(found) < 0.8


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
    found = shares(
        lambda: module.unchanged(prefix=str(prefix), packages=specs),
        lambda: module.end(module.start(prefix="relative", packages=PACKAGES)),
    )
    print("500 packages, shares of a run that is refused at once:", *(f"{share:.1f}" for share in found))
    assert min(found) < 6
