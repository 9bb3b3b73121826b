# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: slurm_files
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: SLURM's configuration files from the descriptions of its nodes
description:
  - Returns C(slurm.conf), C(gres.conf) and C(cgroup.conf) of a cluster. The same input always gives the same text.
  - Nodes that are alike share a line. GPUs come from O(_input[].gpus), never from numbers given by hand.
  - Fails with one sentence on what SLURM would refuse, such as a setting that this version does not have, and on a
    node that lost GPUs since O(previous).
options:
  _input:
    description: Node descriptions, in any order.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Node name, the short name of the host.
        type: str
        required: true
      address:
        description: Address of the node; empty if its name resolves.
        type: str
        default: ""
      version:
        description: Version of C(slurmd) on the node.
        type: str
        required: true
      hardware:
        description: What P(cudahub.gpu.slurm_hardware#filter) returns.
        type: dict
        required: true
      gpus:
        description: The GPUs, RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu.gpus).
        type: list
        elements: dict
        default: []
      driver_state:
        description: State of the driver, RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu.driver.state).
        type: str
        default: ok
      simulated:
        description: Whether the GPUs are simulated.
        type: bool
        default: false
      plugins:
        description: SLURM's GPU plugins on the node, V(nvml) for C(gpu_nvml.so) and V(nvidia) for C(gpu_nvidia.so).
        type: list
        elements: str
        default: []
      features:
        description: Features of the node.
        type: list
        elements: str
        default: []
      weight:
        description: Scheduling weight of the node.
        type: int
      config:
        description: More node parameters. They win over those from O(_input[].hardware); null writes none.
        type: dict
        default: {}
      shards:
        description: Shards of each GPU or MIG instance, jobs that may share it.
        type: int
        default: 0
      mps:
        description: MPS units of each GPU, V(100) for instance. Not with MIG instances.
        type: int
        default: 0
      autodetect:
        description:
          - How C(slurmd) finds the GPUs.
          - V(auto) takes V(nvidia) on GPUs that are not simulated, without MIG and without direct NVLink links if SLURM
            is 24.11 or later, V(nvml) elsewhere, and names the device files where the plugin is not there, or where the
            processors near a GPU are not whole sockets, which SLURM refuses.
          - V(off) always names the device files.
        type: str
        choices: [auto, nvidia, nvml, "off"]
        default: auto
  cluster:
    description: What is the same on all hosts. A key that is null is as if it were not there.
    type: dict
    required: true
    suboptions:
      name:
        description: Cluster name, at most 40 lower-case letters, digits, V(-) and V(_).
        type: str
        required: true
      version:
        description: Version of SLURM on the controller. It decides which settings exist.
        type: str
        required: true
      controllers:
        description: Controllers, the first one first, each with V(name) and V(address).
        type: list
        elements: dict
        required: true
      partitions:
        description:
          - Partitions with V(name), V(nodes) (V(ALL), a hostlist or a list of them), V(default) and V(config) (a
            dictionary of partition parameters).
          - Without it there is one partition V(main) with all nodes. If none is the default one, the first is.
        type: list
        elements: dict
      config:
        description: Settings of C(slurm.conf). They win over those that this filter writes; null writes none.
        type: dict
      cgroup_config:
        description: Settings of C(cgroup.conf). They win over those that this filter writes; null writes none.
        type: dict
      accounting:
        description: The C(slurmdbd) with V(host), V(backup_host), V(port) and V(enforce) (a list). Null for none.
        type: dict
      memory_reserve_mb:
        description: Memory of each node in MB that jobs do not get. The larger of this and the percentage counts.
        type: int
        default: 0
      memory_reserve_percent:
        description: Memory of each node in percent that jobs do not get.
        type: float
        default: 0
      slurm_user:
        description: User of C(slurmctld).
        type: str
        default: slurm
      state_directory:
        description: Directory of C(slurmctld)'s state.
        type: path
        default: /var/lib/slurm/slurmctld
      log_directory:
        description: Directory of the logs.
        type: path
        default: /var/log/slurm
      spool_directory:
        description: Directory of C(slurmd)'s state.
        type: path
        default: /var/lib/slurm/slurmd
      plugins_dir:
        description: Directory of SLURM's plugins, if it is not the one that SLURM was built with.
        type: path
      health:
        description: Programs on the nodes, V(prolog), V(epilog) and V(program), and V(interval) of the last in seconds.
        type: dict
      mig_task_prolog:
        description:
          - Program on the nodes that tells tasks their MIG instances by UUID (C(TaskProlog)).
          - It is written if a node gives out instances without SLURM's NVML plugin, which knows them by number only.
        type: path
      cgroup_version:
        description: Version of the cgroup hierarchy of the nodes, V(1) or V(2), to refuse what SLURM can't use.
        type: int
      single_host:
        description: Whether the cluster is one host, which needs no configless operation.
        type: bool
        default: false
      gpu_shrink_allowed:
        description: Whether a node may have fewer GPUs than before, and GPUs that do not work are left out.
        type: bool
        default: false
  previous:
    description: Node descriptions of the play before, to notice GPUs that are gone.
    type: list
    elements: dict
    default: []
  on_refusal:
    description:
      - What happens where SLURM would refuse the files. V(fail) fails.
      - V(return) returns the key V(refused) with the sentence instead of the files, for a task that shows it by itself.
    type: str
    choices: [fail, return]
    default: fail
"""

EXAMPLES = r"""
- name: Show the lines of the nodes
  ansible.builtin.debug:
    msg: "{{ (nodes | cudahub.gpu.slurm_files(cluster=cluster))['gres.conf'].splitlines()[1:] }}"
  vars:
    cluster:
      name: classroom
      version: 24.11.5
      controllers: [{name: head, address: 10.0.0.1}]
    nodes:
      - name: gpu01
        version: 24.11.5
        hardware: {CPUs: 8, Boards: 1, SocketsPerBoard: 1, CoresPerSocket: 4, ThreadsPerCore: 2, RealMemory: 32000}
        gpus:
          - {pci_bus_id: "00000000:01:00.0", uuid: GPU-1, minor: 0, slurm_type: tesla_t4, mig: {enabled: null}}
          - {pci_bus_id: "00000000:02:00.0", uuid: GPU-2, minor: 1, slurm_type: tesla_t4, mig: {enabled: null}}
  # => ["NodeName=gpu01 AutoDetect=off Name=gpu Type=tesla_t4 File=/dev/nvidia[0-1] Flags=nvidia_gpu_env"]
"""

RETURN = r"""
_value:
  description: The texts of the files by their names V(slurm.conf), V(gres.conf) and V(cgroup.conf).
  type: dict
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_conf, _slurm_node
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_parameters import SlurmError


def slurm_files(
    nodes: t.Sequence[t.Mapping[str, t.Any]],
    cluster: t.Mapping[str, t.Any],
    previous: t.Sequence[t.Mapping[str, t.Any]] | None = None,
    on_refusal: str = "fail",
) -> dict[str, str]:
    """The texts of the files. Raises AnsibleFilterError for what SLURM would refuse, or returns it."""
    try:
        return _slurm_conf.files(
            _slurm_node.read_nodes(nodes), _slurm_conf.read_cluster(cluster), _slurm_conf.read_previous(previous)
        )
    except SlurmError as error:
        if on_refusal == "return":
            return {"refused": str(error)}
        raise AnsibleFilterError(f"slurm_files: {error}") from error


class FilterModule:
    """The filter slurm_files."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"slurm_files": slurm_files}
