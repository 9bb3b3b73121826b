# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_gres
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: The generic resources that SLURM has to find on each node
description:
  - Returns the generic resources (GRES) of each node, as RV(cudahub.gpu.slurm_files#filter:_value) writes them.
  - Whole GPUs and MIG instances have one entry for each type. A GPU in MIG mode counts nothing but its instances.
  - A GPU that is given to a virtual machine is left out.
options:
  _input:
    description: Node descriptions, as for P(cudahub.gpu.slurm_files#filter).
    type: list
    elements: dict
    required: true
  version:
    description: Version of SLURM on the controller.
    type: str
    required: true
  gpu_shrink_allowed:
    description: Whether GPUs whose type or device node is not known are left out, instead of refused.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show what a node has
  ansible.builtin.debug:
    msg: "{{ nodes | cudahub.gpu.slurm_gres(version='22.05.8') }}"
  vars:
    nodes:
      - name: gpu01
        version: 22.05.8
        hardware: {CPUs: 8, Boards: 1, SocketsPerBoard: 1, CoresPerSocket: 4, ThreadsPerCore: 2, RealMemory: 32000}
        gpus:
          - {pci_bus_id: "00000000:01:00.0", uuid: GPU-1, minor: 0, slurm_type: tesla_t4, mig: {enabled: null}}
  # => {gpu01: [{name: gpu, type: tesla_t4, count: 1, files: [/dev/nvidia0], method: file, cores: null}]}
"""

RETURN = r"""
_value:
  description:
    - For each node name a list of resources with V(name), V(type) (null for V(shard) and V(mps)), V(count), V(files)
      (the device files, those of a MIG instance joined by commas), V(method) (how SLURM finds them, V(nvidia), V(nvml)
      or V(file)) and V(cores) (those near the device where the file names them, else null).
  type: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_gres, _slurm_node, _slurm_parameters


def slurm_gres(
    nodes: t.Sequence[t.Mapping[str, t.Any]], version: str, *, gpu_shrink_allowed: bool = False
) -> dict[str, list[dict[str, t.Any]]]:
    """The resources by node. Raises AnsibleFilterError for a GPU that SLURM can't be given."""
    try:
        release = _slurm_parameters.parse_version(version)
        found = {
            node.name: _slurm_gres.of_node(node, release, incomplete=gpu_shrink_allowed)
            for node in _slurm_node.read_nodes(nodes)
        }
    except _slurm_parameters.SlurmError as error:
        raise AnsibleFilterError(f"slurm_gres: {error}") from error
    return {
        name: [
            {
                "name": item.name,
                "type": item.type,
                "count": item.count,
                "files": list(item.files),
                "method": item.method,
                "cores": item.cores,
            }
            for item in gres.resources
        ]
        for name, gres in found.items()
    }


class FilterModule:
    """The filter slurm_gres."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_gres": slurm_gres}
