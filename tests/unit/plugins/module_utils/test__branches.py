# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of branches and GPUs agree with one another."""

from __future__ import annotations

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _branches, _gpu, _pci


def test_generations_have_every_architecture_of_the_facts() -> None:
    assert set(_branches.GENERATIONS) >= {*_gpu.ARCHITECTURES.values(), *_pci.ARCHITECTURES.values()}


def test_tables_name_generations() -> None:
    named = {*_branches.LAST_BRANCH, *_branches.FIRST_BRANCH, *(one.oldest for one in _branches.BRANCHES)}
    assert named <= set(_branches.GENERATIONS)


@pytest.mark.parametrize("branch", _branches.BRANCHES, ids=lambda branch: branch.branch)
def test_last_branches_agree_with_the_oldest_architecture(branch: _branches.Branch) -> None:
    oldest = _branches.generation(branch.oldest)
    for architecture, last in _branches.LAST_BRANCH.items():
        assert (int(branch.branch) <= last) == (_branches.generation(architecture) >= oldest)


def test_every_generation_has_a_branch_once_it_is_not_too_old() -> None:
    for architecture in _branches.GENERATIONS[_branches.generation("Maxwell") :]:
        first, last = _branches.FIRST_BRANCH.get(architecture, 0), _branches.LAST_BRANCH.get(architecture, 10**6)
        assert any(first <= int(one.branch) <= last for one in _branches.BRANCHES)


def test_ended_branches_are_not_supported() -> None:
    assert not set(_branches.ENDED) & {one.branch for one in _branches.BRANCHES}


def test_generation_refuses_others() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        _branches.generation("hopper")
