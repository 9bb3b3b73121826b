# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: rapids_choice
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: The RAPIDS release and CUDA line for one or several hosts
description:
  - Returns the newest release of RAPIDS, and the newest CUDA line of it, that every GPU and every driver of the hosts
    supports, so that one environment runs on all of them.
  - CUDA is kept to what the oldest driver supports, as code that is compiled at run time by a newer CUDA does not
    load.
  - The releases 26.10, 26.02, 25.12 and 25.10 are known.
  - A GPU whose compute capability is not known is judged by its architecture. One of which neither is known, and one
    that is given to virtual machines, does not count. One that is not healthy does.
options:
  _input:
    description:
      - RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu) of each host, by the host's name.
    type: dict
    required: true
  release:
    description: The release to take. Empty for the newest that fits.
    type: str
    default: ""
  cuda:
    description: The CUDA line to take, as V(13), or the very version, as V(12.8). Empty for the newest line that fits.
    type: str
    default: ""
  python:
    description: The Python version to take. Empty for 3.13, or the newest of a release that does not have it.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show the packages for a V100 under driver 580
  ansible.builtin.debug:
    msg: >-
      {{ 'rapids={release} python={python} cuda-version{cuda_version}'.format(
           **({'gpu1': facts} | cudahub.gpu.rapids_choice)) }}
  vars:
    facts:
      driver: {state: ok, version: 580.159.04, cuda_version: "13.0"}
      gpus: [{name: Tesla V100-SXM2-32GB, compute_capability: "7.0"}]
  # => rapids=26.10 python=3.13 cuda-version>=12.2,<=12.9

- name: Show the CUDA versions for two hosts, one of them with an older driver
  ansible.builtin.debug:
    msg: "{{ (facts | cudahub.gpu.rapids_choice(python='3.12')).cuda_version }}"
  vars:
    facts:
      gpu1:
        driver: {state: ok, version: 550.163.01, cuda_version: "12.4"}
        gpus: [{name: NVIDIA A40, compute_capability: "8.6"}]
      gpu2:
        driver: {state: ok, version: 580.159.04, cuda_version: "13.0"}
        gpus: [{name: NVIDIA L4, compute_capability: "8.9"}]
  # => ">=12.2,<=12.4"
"""

RETURN = r"""
_value:
  description: What to install.
  type: dict
  contains:
    release:
      description: The release of RAPIDS.
      type: str
      sample: "26.10"
    cuda_line:
      description: The CUDA line.
      type: str
      sample: "13"
    cuda_version:
      description: What conda's package C(cuda-version) is limited to.
      type: str
      sample: ">=13.0,<=13.0"
    cuda_override:
      description: The lowest CUDA version of the hosts' drivers, for C(CONDA_OVERRIDE_CUDA).
      type: str
      sample: "13.0"
    python:
      description: The Python version.
      type: str
      sample: "3.13"
    pip_suffix:
      description: What ends the names of RAPIDS' distributions for pip.
      type: str
      sample: cu13
    cupy:
      description: Name of the CuPy distribution.
      type: str
      sample: cupy-cuda13x
"""

from dataclasses import asdict

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.plugin_utils._rapids import RapidsError, choose


def rapids_choice(
    hosts: t.Mapping[str, t.Mapping[str, t.Any]], release: str = "", cuda: str = "", python: str = ""
) -> dict[str, str]:
    """The choice as a dictionary. Raises AnsibleFilterError when no release fits."""
    try:
        return asdict(choose(hosts, release, cuda, python))
    except RapidsError as error:
        raise AnsibleFilterError(f"rapids_choice: {error}") from error


class FilterModule:
    """The filter rapids_choice."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"rapids_choice": rapids_choice}
