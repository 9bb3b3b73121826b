# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration files of a cluster."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import slurm_files as plugin
from ansible_collections.cudahub.gpu.plugins.filter.slurm_files import slurm_files
from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_conf
from ansible_collections.cudahub.gpu.tests.unit.plugins.slurm_nodes import cluster, gpu, node


def test_slurm_files() -> None:
    files = slurm_files([node("gpu1", [gpu(0)])], cluster=cluster())
    assert list(files) == ["slurm.conf", "gres.conf", "cgroup.conf"]
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in files.values())


def test_shrinking_is_refused() -> None:
    before, now = [node("gpu1", [gpu(0), gpu(1)])], [node("gpu1", [gpu(0)])]
    with pytest.raises(AnsibleFilterError, match="slurm_files: node gpu1 has fewer GPUs than before"):
        slurm_files(now, cluster=cluster(), previous=before)
    returned = slurm_files(now, cluster=cluster(), previous=before, on_refusal="return")
    assert list(returned) == ["refused"]
    assert returned["refused"].startswith("node gpu1 has fewer GPUs than before")
    assert slurm_files(now, cluster=cluster(gpu_shrink_allowed=True), previous=before)


@pytest.mark.parametrize(
    ("nodes", "values", "message"),
    [
        ([node()], None, "cluster is None, not a dictionary"),
        (None, cluster(), "the input is a NoneType, not a list of node descriptions"),
        ([node()], {**cluster(), "users": []}, "cluster has no key 'users'"),
    ],
)
def test_refuses(nodes: t.Any, values: t.Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=f"slurm_files: {message}"):
        slurm_files(nodes, values)


def test_every_key_is_documented() -> None:
    options = yaml.safe_load(plugin.DOCUMENTATION)["options"]
    assert set(options["cluster"]["suboptions"]) == set(_slurm_conf.Cluster.__dataclass_fields__)
    assert set(options["_input"]["suboptions"]) == set(_slurm_conf.Node.__dataclass_fields__)


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"slurm_files": slurm_files}
