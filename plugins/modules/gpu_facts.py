#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Describe the NVIDIA GPUs and the NVIDIA driver of a host
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Returns the fact C(gpu), C(ansible_facts['gpu']), which describes every NVIDIA GPU of the host and the state of
    the driver.
  - GPUs are found on the PCI bus, whether a driver is there or not. What is loaded is read from
    C(/proc/driver/nvidia) and C(/sys/module/nvidia), all else from the NVIDIA management library (NVML).
  - A missing, broken or hanging driver never makes the module fail. It is a state in the result, with a sentence that
    says what is wrong and what to do, and everything that could still be read is there.
  - NVML is read in a process of its own, which is killed after O(timeout).
  - The module changes nothing.
requirements:
  - Python 3.9 or later on the target
  - The Python module C(pynvml) of the distribution C(nvidia-ml-py), 11.525 or later, for all that NVML tells. Without
    it the module gives what PCI and the kernel driver tell, and says so in RV(ansible_facts.gpu.driver.reason). The
    role P(cudahub.gpu.gpu_facts#role) installs it. The distribution C(pynvml) is a deprecated wrapper of it.
options:
  nvml_venvs:
    description:
      - Virtual environments on the target in which the Python module C(pynvml) is looked for, in this order, when the
        Python interpreter that runs the module does not have it.
      - They may be made with another Python version than the one that runs the module.
    type: list
    elements: path
    default:
      - /opt/cudahub/nvml
      - /opt/cudahub/verify
  timeout:
    description:
      - Seconds after which NVML's process is killed and RV(ansible_facts.gpu.driver.state) is V(unusable). What NVML
        said until then is kept.
    type: float
    default: 30
  fact_path:
    description:
      - Accepted and ignored, so that the module works as a facts module in plays with the keyword C(fact_path).
    type: path
  gather_subset:
    description:
      - Accepted and ignored, so that the module works as a facts module behind every connection plugin.
    type: list
    elements: str
extends_documentation_fragment:
  - cudahub.gpu.attributes
  - cudahub.gpu.attributes.reads_only
attributes:
  facts:
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
    support: full
notes:
  - To gather the fact with all others at the start of every play, set
    C(ANSIBLE_FACTS_MODULES=ansible.builtin.setup,cudahub.gpu.gpu_facts), or C(facts_modules) in C(ansible.cfg), and
    the variable C(ansible_facts_parallel) to V(false). Facts modules that run in parallel are killed by ansible-core
    after 5 seconds, which is less than O(timeout).
  - Run it with C(become) where only root may use the GPUs.
seealso:
  - module: cudahub.gpu.cuda_verify
    description: Proves that each GPU computes.
"""

EXAMPLES = r"""
- name: Describe the GPUs
  cudahub.gpu.gpu_facts:

- name: Show what is wrong with them
  ansible.builtin.debug:
    msg: "{{ (gpu['problems'] + gpu['gpus'] | map(attribute='problems') | flatten) | map(attribute='message') }}"
  vars:
    gpu: "{{ ansible_facts['gpu'] }}"

- name: Refuse a host whose driver does not work
  ansible.builtin.assert:
    that: ansible_facts['gpu']['driver']['state'] == 'ok'
    fail_msg: "{{ ansible_facts['gpu']['driver']['reason'] }}"

- name: Give a slow machine more time, with a binding installed elsewhere
  cudahub.gpu.gpu_facts:
    timeout: 120
    nvml_venvs:
      - /srv/monitoring/venv
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    gpu:
      description:
        - The NVIDIA GPUs and the driver of the host. A value that is unsupported or unknown is null, never 0.
      returned: always
      type: dict
      contains:
        driver:
          description: The NVIDIA driver.
          returned: always
          type: dict
          contains:
            state:
              description:
                - V(ok) if NVML answers.
                - V(absent) if there is neither a kernel module nor a library.
                - V(not_loaded) if the driver is installed, but its kernel module is not loaded or its device nodes
                  are missing.
                - V(mismatch) if the loaded kernel module and the library differ in version, as after an upgrade
                  without a reboot.
                - V(unusable) if the kernel module is loaded and NVML does not answer, see RV(ignore:reason).
              returned: always
              type: str
              sample: ok
            version:
              description:
                - Version that NVML reports, else of the loaded module, else of the installed module, else of the
                  library; null if V(absent).
              returned: always
              type: str
              sample: 580.159.04
            loaded_version:
              description: Version of the loaded kernel module; null if none is loaded.
              returned: always
              type: str
              sample: 580.159.04
            library_version:
              description: Version of the library C(libnvidia-ml.so.1); null if there is none.
              returned: always
              type: str
              sample: 580.159.04
            installed_version:
              description:
                - Version of the kernel module on disk for the running kernel; null if there is none.
                - Always null where the driver is simulated, and in containers, which have no modules of the host's
                  kernel.
              returned: always
              type: str
              sample: 580.159.04
            branch:
              description: Branch of RV(ignore:version), its first number; null if that is null.
              returned: always
              type: str
              sample: "580"
            kernel_module:
              description: Flavour of the loaded kernel module, V(open) or V(proprietary); null if none is loaded.
              returned: always
              type: str
              sample: open
            cuda_version:
              description: Newest CUDA version that the driver supports; null if NVML does not answer.
              returned: always
              type: str
              sample: "13.0"
            reason:
              description: A sentence that says why the state is not V(ok) and what to do; null if it is V(ok).
              returned: always
              type: str
              sample: >-
                The loaded kernel module is 580.95.05, the library is 580.159.04: reboot, or unload and load the nvidia
                modules
        gpus:
          description: The GPUs, by PCI address, those included that only the PCI bus or only NVML shows.
          returned: always
          type: list
          elements: dict
          contains:
            index:
              description:
                - NVML's index, as in nvidia-smi; null if NVML does not see the GPU. It can change with each boot.
              returned: always
              type: int
              sample: 0
            minor:
              description: Minor number of the device node C(/dev/nvidiaN); null if the driver does not tell.
              returned: always
              type: int
              sample: 0
            uuid:
              description: The GPU's UUID; null if the driver does not tell.
              returned: always
              type: str
              sample: GPU-2b9ce2f0-5c5c-4b7b-9f0e-0d1a5d0d3a11
            pci_bus_id:
              description: PCI address as NVML writes it, in upper case with eight digits of domain.
              returned: always
              type: str
              sample: "00000009:01:00.0"
            pci_device_id:
              description: PCI vendor and device id, in lower case hexadecimal.
              returned: always
              type: str
              sample: 10de:2335
            name:
              description: Product name from the driver, else from the PCI ID database; null if both do not know it.
              returned: always
              type: str
              sample: NVIDIA H200
            architecture:
              description:
                - Architecture as nvidia-smi names it, from the driver, else by device id from the PCI ID database;
                  null if unknown.
              returned: always
              type: str
              sample: Ada Lovelace
            compute_capability:
              description: CUDA compute capability; null without NVML.
              returned: always
              type: str
              sample: "9.0"
            memory_bytes:
              description: Total memory in bytes; null without NVML.
              returned: always
              type: int
              sample: 150754820096
            slurm_type:
              description:
                - SLURM's GRES type, the driver's product name in lower case with V(_) for spaces; null without a
                  driver.
              returned: always
              type: str
              sample: nvidia_h200
            mig:
              description: Multi-instance mode (MIG).
              returned: always
              type: dict
              contains:
                enabled:
                  description: Whether MIG mode is on; null where the GPU has none or without NVML.
                  returned: always
                  type: bool
                  sample: true
                pending:
                  description: Whether MIG mode will be on after the next reset; null as RV(ignore:enabled).
                  returned: always
                  type: bool
                  sample: true
                instances:
                  description: The compute instances, each of which CUDA takes for a GPU. Empty without MIG.
                  returned: always
                  type: list
                  elements: dict
                  contains:
                    index:
                      description: NVML's index of the instance within the GPU.
                      returned: always
                      type: int
                      sample: 0
                    uuid:
                      description: The instance's UUID; null if it could not be read.
                      returned: always
                      type: str
                      sample: MIG-7c1e9d5a-7b40-5f04-b6f3-7c2f3ab5d1d2
                    profile:
                      description: The profile's name; null if it could not be read.
                      returned: always
                      type: str
                      sample: 1g.5gb
                    gpu_instance_id:
                      description: Id of the GPU instance; null if it could not be read.
                      returned: always
                      type: int
                      sample: 7
                    compute_instance_id:
                      description: Id of the compute instance within its GPU instance; null if it could not be read.
                      returned: always
                      type: int
                      sample: 0
                    memory_bytes:
                      description: Memory in bytes; null if it could not be read.
                      returned: always
                      type: int
                      sample: 5100273664
                    slurm_type:
                      description:
                        - SLURM's GRES type of the instance as its NVML plugin forms it; null if it could not be read.
                        - SLURM ends the GPU's name at a V(-) and rounds the memory itself, so that the type can differ
                          from the profile, as V(7g.39gb) for V(7g.40gb).
                      returned: always
                      type: str
                      sample: nvidia_a100_1g.5gb
                    device_nodes:
                      description:
                        - The device nodes that belong to the instance, those of the MIG capabilities included.
                      returned: always
                      type: list
                      elements: str
                      sample: [/dev/nvidia0, /dev/nvidia-caps/nvidia-cap66, /dev/nvidia-caps/nvidia-cap67]
            ecc:
              description: Error correction and the state of the memory.
              returned: always
              type: dict
              contains:
                enabled:
                  description: Whether ECC is on; null where the GPU has none or without NVML.
                  returned: always
                  type: bool
                  sample: true
                pending:
                  description: Whether ECC will be on after the next reset; null as RV(ignore:enabled).
                  returned: always
                  type: bool
                  sample: true
                corrected_volatile:
                  description: Corrected errors since the driver was loaded; null where unsupported.
                  returned: always
                  type: int
                  sample: 0
                uncorrected_volatile:
                  description: Uncorrectable errors since the driver was loaded; null where unsupported.
                  returned: always
                  type: int
                  sample: 0
                corrected_aggregate:
                  description: Corrected errors in the life of the GPU; null where unsupported.
                  returned: always
                  type: int
                  sample: 0
                uncorrected_aggregate:
                  description: Uncorrectable errors in the life of the GPU; null where unsupported.
                  returned: always
                  type: int
                  sample: 0
                remapped_rows:
                  description: Memory rows replaced by spare ones; null where unsupported (before Ampere).
                  returned: always
                  type: dict
                  contains:
                    correctable:
                      description: Rows replaced after correctable errors.
                      returned: always
                      type: int
                      sample: 0
                    uncorrectable:
                      description: Rows replaced after uncorrectable errors.
                      returned: always
                      type: int
                      sample: 0
                    pending:
                      description: Whether rows are to be replaced with the next reset.
                      returned: always
                      type: bool
                      sample: false
                    failed:
                      description: Whether a row could not be replaced.
                      returned: always
                      type: bool
                      sample: false
                retired_pages_pending:
                  description:
                    - Whether memory pages are to be retired with the next reset; null where unsupported (Ampere and
                      later).
                  returned: always
                  type: bool
                  sample: false
            power_limit_watts:
              description: Power limit in force, in watts; null where unsupported.
              returned: always
              type: float
              sample: 700.0
            nvlink:
              description: NVLink; null where the GPU has none.
              returned: always
              type: dict
              contains:
                version:
                  description: NVLink version; null if no link is active.
                  returned: always
                  type: str
                  sample: "4.0"
                links:
                  description: Number of links.
                  returned: always
                  type: int
                  sample: 18
                active_links:
                  description: Number of links that are up.
                  returned: always
                  type: int
                  sample: 18
                peers:
                  description: What the active links lead to.
                  returned: always
                  type: list
                  elements: dict
                  contains:
                    type:
                      description: V(gpu), V(switch), V(npu) or V(unknown).
                      returned: always
                      type: str
                      sample: gpu
                    pci_bus_id:
                      description: PCI address of the other end; null for a switch, or if the driver does not tell.
                      returned: always
                      type: str
                      sample: "00000000:07:00.0"
                    links:
                      description: Number of links to it.
                      returned: always
                      type: int
                      sample: 18
            numa_node:
              description: NUMA node of the PCI slot; null if the machine does not tell.
              returned: always
              type: int
              sample: 0
            cpu_affinity:
              description: CPUs next to the GPU, as a list of ranges; null if unknown.
              returned: always
              type: str
              sample: 0-31,64-95
            kernel_driver:
              description:
                - Kernel driver to which the PCI device is bound, for example V(nvidia), V(nouveau) or V(vfio-pci);
                  null if none.
              returned: always
              type: str
              sample: nvidia
            device_nodes:
              description: The GPU's own device nodes; empty if its minor number is unknown.
              returned: always
              type: list
              elements: str
              sample: [/dev/nvidia0]
            processes:
              description: Number of processes that use the GPU; null if unknown.
              returned: always
              type: int
              sample: 0
            healthy:
              description:
                - Whether the GPU has no problem of severity V(error); null if it could not be asked, as without a
                  driver.
              returned: always
              type: bool
              sample: true
            problems:
              description: What is wrong with the GPU.
              returned: always
              type: list
              elements: dict
              contains: &problem
                code:
                  description:
                    - For a GPU, an error is one of V(lost), V(reset_required), V(no_permission), V(unusable),
                      V(not_visible), V(other_driver), V(ecc_uncorrectable), V(row_remap_failed), V(recovery_needed),
                      V(hw_slowdown), V(hw_thermal_slowdown), V(hw_power_brake); a warning is one of V(unreadable),
                      V(passthrough),
                      V(row_remap_pending), V(retired_pages_pending), V(ecc_pending), V(mig_pending),
                      V(mig_no_instances), V(sw_thermal_slowdown), V(sw_power_cap), V(device_node_missing).
                    - For the host it is V(driver_absent), V(driver_not_loaded), V(driver_mismatch) or
                      V(driver_unusable) (errors), or V(driver_reload_pending) (warning).
                  returned: always
                  type: str
                  sample: row_remap_pending
                severity:
                  description: V(error) or V(warning).
                  returned: always
                  type: str
                  sample: warning
                message:
                  description: A sentence that says what is wrong, where, and what to do.
                  returned: always
                  type: str
                  sample: >-
                    GPU 1 00000000:07:00.0 GPU-2b9ce2f0-5c5c-4b7b-9f0e-0d1a5d0d3a11 has memory rows to replace: drain
                    and reset it
        count:
          description: Number of GPUs in RV(ansible_facts.gpu.gpus).
          returned: always
          type: int
          sample: 4
        visible_count:
          description: Number of them that NVML sees and that are not lost.
          returned: always
          type: int
          sample: 4
        nvswitches:
          description:
            - Number of NVSwitches on the PCI bus, whether a driver is there or not. With one, the GPUs need the fabric
              manager.
          returned: always
          type: int
          sample: 4
        problems:
          description: What is wrong with the host's driver.
          returned: always
          type: list
          elements: dict
          contains: *problem
        pynvml:
          description: File of the Python binding of NVML that was used; null if none was found.
          returned: always
          type: str
          sample: /opt/cudahub/nvml/lib/python3.13/site-packages/pynvml.py
        simulated:
          description: Whether the GPUs are made up by the role P(cudahub.gpu.gpu_simulator#role). They can't compute.
          returned: always
          type: bool
          sample: false
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _gpu


def main() -> None:
    """Read the parameters, gather, and return."""
    module = AnsibleModule(
        argument_spec={
            "nvml_venvs": {
                "type": "list",
                "elements": "path",
                "default": ["/opt/cudahub/nvml", "/opt/cudahub/verify"],
            },
            "timeout": {"type": "float", "default": 30},
            "fact_path": {"type": "path"},
            "gather_subset": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] <= 0:
        module.fail_json(msg=f"timeout is {module.params['timeout']:g}: it must be more than 0 seconds")

    def run(command: t.Sequence[str]) -> str:
        path = module.get_bin_path(command[0])
        return module.run_command([path, *command[1:]])[1] if path else ""

    try:
        facts = _gpu.gather(module.params["nvml_venvs"], module.params["timeout"], run)
    except OSError as error:
        module.fail_json(msg=f"The GPUs can't be read: {error}; look for a limit on processes or files on this host")
    module.exit_json(changed=False, ansible_facts={"gpu": facts.as_dict()})


if __name__ == "__main__":
    main()
