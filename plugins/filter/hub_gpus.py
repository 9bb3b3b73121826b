# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: hub_gpus
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: The GPUs of a host as a JupyterHub hands them out
description:
  - Returns the inventory that the hub of role P(cudahub.gpu.jupyterhub_gpus#role) reads, of the GPU facts of its host.
  - A GPU is one unit, and a GPU in MIG mode is its instances, each of them one unit. What has no UUID, as a GPU that is
    given to a virtual machine, is left out.
options:
  _input:
    description: RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu) of the host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what the hub can give
  ansible.builtin.debug:
    msg: "{{ (facts | cudahub.gpu.hub_gpus).units | map(attribute='index') }}"
  vars:
    facts:
      simulated: false
      driver: {state: ok}
      gpus:
        - {uuid: GPU-1, index: 0, minor: 0, name: Tesla T4, memory_bytes: 16106127360, pci_bus_id: "00000000:01:00.0",
           device_nodes: [/dev/nvidia0], healthy: true, problems: [], mig: {enabled: null, instances: []}}
  # => ["0"]

- name: Show the units of a GPU in MIG mode
  ansible.builtin.debug:
    msg: "{{ (facts | cudahub.gpu.hub_gpus).units | map(attribute='profile') }}"
  vars:
    facts:
      simulated: false
      driver: {state: ok}
      gpus:
        - {uuid: GPU-1, index: 0, minor: 0, name: NVIDIA A30, memory_bytes: 25769803776, pci_bus_id: "00000000:01:00.0",
           device_nodes: [/dev/nvidia0], healthy: true, problems: [],
           mig: {enabled: true, instances: [
             {index: 0, uuid: MIG-1, profile: 2g.12gb, memory_bytes: 12616466432, device_nodes: [/dev/nvidia0]},
             {index: 1, uuid: MIG-2, profile: 1g.6gb, memory_bytes: 6241124352, device_nodes: [/dev/nvidia0]}]}}
  # => ["2g.12gb", "1g.6gb"]
"""

RETURN = r"""
_value:
  description: The inventory.
  type: dict
  contains:
    format:
      description: Version of the format.
      type: int
      sample: 1
    simulated:
      description: Whether the GPUs are made up.
      type: bool
    common_nodes:
      description: The device nodes that every user of a GPU needs.
      type: list
      elements: str
      sample: [/dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia-uvm-tools]
    units:
      description: What can be given, in the order of the facts.
      type: list
      elements: dict
      contains:
        uuid:
          description: UUID of the GPU or MIG instance.
          type: str
        kind:
          description: V(gpu) or V(mig).
          type: str
        gpu:
          description: UUID of the GPU that it is or is a part of.
          type: str
        index:
          description: NVML's index of the GPU, and after a dot that of the instance.
          type: str
          sample: "0.1"
        name:
          description: Product name of the GPU.
          type: str
        profile:
          description: Profile of the MIG instance, else null.
          type: str
          sample: 3g.20gb
        memory_bytes:
          description: Memory in bytes, null if unknown.
          type: int
        pci_bus_id:
          description: PCI address of the GPU.
          type: str
        nodes:
          description: The device nodes of its own.
          type: list
          elements: str
        healthy:
          description: Whether the GPU has no error.
          type: bool
        problems:
          description: The errors, as sentences.
          type: list
          elements: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.plugin_utils._hub_gpus import HubGpusError, inventory


def hub_gpus(facts: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The inventory. Raises AnsibleFilterError if the input is not what gpu_facts returns."""
    try:
        return inventory(facts)
    except HubGpusError as error:
        raise AnsibleFilterError(f"hub_gpus: {error}") from error


class FilterModule:
    """The filter hub_gpus."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"hub_gpus": hub_gpus}
