# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparison of the filter with a Jinja loop: both say the same, and a difference is found."""

from __future__ import annotations

import pytest

from ansible_collections.cudahub.gpu.plugins.filter.slurm_files import slurm_files
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_hostlist import expand
from ansible_collections.cudahub.gpu.tests.bench import slurm_conf as bench

GRES = {
    "nodes": 10,
    "gpu:nvidia_h100_80gb_hbm3": 16,
    "gpu:nvidia_a100-sxm4-40gb": 8,
    "gpu:nvidia_a100_1g.5gb": 14,
    "gpu:tesla_t4": 4,
}


def test_filter_gives_what_was_generated() -> None:
    files = slurm_files(bench.nodes(10, "24.11.5"), bench.cluster("24.11.5", "head"))
    assert bench.totals(files["slurm.conf"], expand) == GRES


@pytest.mark.parametrize("line", ["NodeName=h100-00000 CPUs=1 Gres=gpu:tesla_t4:1", "NodeName=cpu-[1-2] CPUs=1"])
def test_a_difference_is_found(line: str) -> None:
    assert bench.totals(line, expand) != GRES


def test_lines_do_not_grow_with_the_nodes() -> None:
    def lines(count: int) -> int:
        files = slurm_files(bench.nodes(count, "24.11.5"), bench.cluster("24.11.5", "head"))
        return sum(text.count("\n") for text in files.values())

    assert lines(2000) == lines(500)
