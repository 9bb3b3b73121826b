# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: cupy_package
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: The CuPy wheel for a driver and GPUs
description:
  - Returns the name of the CuPy distribution that works with the CUDA version of a driver and with every GPU of a
    list.
  - It is V(cupy-cuda13x) if the driver supports CUDA 13 and every GPU has compute capability 7.5 or later, else
    V(cupy-cuda12x).
  - GPUs whose compute capability is unknown, such as those given to virtual machines, don't count.
positional: gpus
options:
  _input:
    description:
      - Newest CUDA version that the driver supports, as
        RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu.driver.cuda_version).
    type: str
    required: true
  gpus:
    description:
      - GPUs, as RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu.gpus) has them. Of each, C(compute_capability) is
        used.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the wheel for a V100 under driver 580
  ansible.builtin.debug:
    msg: "{{ '13.0' | cudahub.gpu.cupy_package([{'compute_capability': '7.0'}]) }}"
  # => cupy-cuda12x
"""

RETURN = r"""
_value:
  description: Name of the distribution.
  type: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.module_utils._version import cupy_line, parse_version

CUDA_12 = 12


def cupy_package(cuda_version: str, gpus: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """The distribution's name. Raises AnsibleFilterError when CuPy has none for this driver."""
    cuda = _version(cuda_version, "the driver's CUDA version")
    capabilities = [
        _version(gpu["compute_capability"], f"the compute capability of GPU {gpu.get('name') or ''}".strip())
        for gpu in gpus
        if gpu.get("compute_capability") is not None
    ]
    if not capabilities:
        raise AnsibleFilterError(
            "cupy_package: the list has no GPU whose compute capability is known, so no wheel can be chosen"
        )
    if cuda[0] < CUDA_12:
        raise AnsibleFilterError(
            f"cupy_package: the driver supports CUDA {cuda_version}, and CuPy needs CUDA 12 or later: "
            "update the driver to branch 535 or later"
        )
    return cupy_line(cuda, capabilities)


def _version(text: object, what: str) -> tuple[int, ...]:
    try:
        return parse_version(str(text))
    except ValueError as error:
        raise AnsibleFilterError(f"cupy_package: {what} is {text!r}, which is no version such as 13.0") from error


class FilterModule:
    """The filter cupy_package."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"cupy_package": cupy_package}
