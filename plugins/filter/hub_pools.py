# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: hub_pools
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: Which GPUs of a host each pool of a JupyterHub has
description:
  - Returns the pools that the hub of role P(cudahub.gpu.jupyterhub_gpus#role) reads, with the GPUs of each by UUID.
  - It is an error if a pool has no GPU although the host has some, or if two pools have the same GPU.
options:
  _input:
    description: The pools, as O(cudahub.gpu.jupyterhub_gpus#role:main:jupyterhub_gpus_pools).
    type: list
    elements: dict
    required: true
  facts:
    description: RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu) of the host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the policies
  ansible.builtin.debug:
    msg: "{{ pools | cudahub.gpu.hub_pools(facts) | map(attribute='servers_per_gpu') }}"
  vars:
    pools:
      - {name: big, select: "[?memory_bytes > `40000000000`]"}
      - {name: small, select: "[?memory_bytes <= `40000000000`]", policy: share}
    facts:
      simulated: false
      driver: {state: ok}
      gpus:
        - {uuid: GPU-1, index: 0, minor: 0, name: NVIDIA H200, memory_bytes: 150754820096, pci_bus_id: "0000:01:00.0",
           device_nodes: [/dev/nvidia0], healthy: true, problems: [], mig: {enabled: false, instances: []}}
        - {uuid: GPU-2, index: 1, minor: 1, name: Tesla T4, memory_bytes: 16106127360, pci_bus_id: "0000:02:00.0",
           device_nodes: [/dev/nvidia1], healthy: true, problems: [], mig: {enabled: null, instances: []}}
  # => [1, 4]
"""

RETURN = r"""
_value:
  description: The pools, in the same order.
  type: list
  elements: dict
  contains:
    name:
      description: Name of the pool.
      type: str
    policy:
      description: V(exclusive) or V(share).
      type: str
    servers_per_gpu:
      description: How many servers a GPU has at most.
      type: int
    gpus:
      description: UUIDs of its GPUs and MIG instances, null for all.
      type: list
      elements: str
    groups:
      description: Groups of users that may use it, null for everybody.
      type: list
      elements: str
    images:
      description: Images that may use it, null for all.
      type: list
      elements: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter.gpu_select import gpu_select
from ansible_collections.cudahub.gpu.plugins.plugin_utils._hub_gpus import HubGpusError, pools


def hub_pools(wanted: t.Sequence[t.Mapping[str, t.Any]], facts: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The pools with their GPUs. Raises AnsibleFilterError if they can't be."""
    try:
        return pools(wanted, facts, gpu_select)
    except HubGpusError as error:
        raise AnsibleFilterError(f"hub_pools: {error}") from error


class FilterModule:
    """The filter hub_pools."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"hub_pools": hub_pools}
