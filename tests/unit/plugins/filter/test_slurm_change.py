# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a changed configuration asks of the daemons."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_change as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_change import slurm_change

OLD = {"slurm.conf": "NodeName=gpu1 CPUs=1\nPartitionName=main Nodes=ALL\n"}
NEW = {"slurm.conf": "NodeName=gpu1 CPUs=1\nPartitionName=main Nodes=ALL MaxTime=5\n"}


def test_slurm_change() -> None:
    assert slurm_change(OLD, NEW, "24.11.5") == {
        "changed": True,
        "action": "reconfigure",
        "controllers": False,
        "nodes": [],
        "reasons": ["partition main is changed"],
        "added_nodes": [],
        "removed_nodes": [],
        "removed_partitions": [],
        "gres_nodes": [],
    }
    assert slurm_change(OLD, OLD, "24.11.5")["changed"] is False


@pytest.mark.parametrize(
    ("old", "new", "version", "message"),
    [
        (None, NEW, "24.11", "the input is a NoneType, not a dictionary of texts"),
        (OLD, "text", "24.11", "new_texts is a str"),
        (OLD, NEW, "new", "'new' is not a version"),
        (OLD, {"slurm.conf": "no setting"}, "24.11", "slurm.conf has the line 'no setting'"),
    ],
)
def test_refuses(old: t.Any, new: t.Any, version: str, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=f"slurm_change: {message}"):
        slurm_change(old, new, version)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_change": slurm_change}
