#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_verify
short_description: Prove that each GPU of a host computes
version_added: 0.1.0
description:
  - Runs CUDA work through CuPy on every GPU of the host, one process per GPU at the same time, each pinned to its
    GPU by UUID. On a GPU in MIG mode, each of its instances is a GPU of its own.
  - The result tells for each GPU whether it computes, each check with its figure, the expected value and its time,
    and for one that does not, the kind of the failure and a sentence that says what to do.
  - The task fails if any GPU is not verified. Simulated GPUs are reported as C(simulated); they don't fail the task,
    and they are never verified.
  - Nothing is changed or left behind on the host. No process outlives the module, but for one that the kernel can't
    end, which is named, and one that O(command_prefix) starts where the module may not end it, as another user's or in
    a container; the program of a GPU ends itself there, 5 seconds after O(timeout).
  - At O(level=quick), less than 1 GiB of memory is used on each GPU, for some seconds. O(cudf) takes more of both.
author:
  - cudahub.gpu contributors (@cudahub)
requirements:
  - Python 3.9 or later on the host.
  - CuPy 12 or later with its CUDA libraries in the interpreter O(python), as role P(cudahub.gpu.gpu_verify#role)
    installs it.
  - cuDF 24.02 or later in the same interpreter, with O(cudf) only.
  - The Python binding of NVML, distribution C(nvidia-ml-py), see O(nvml_venvs).
extends_documentation_fragment:
  - cudahub.gpu.attributes
  - cudahub.gpu.attributes.reads_only
options:
  python:
    description:
      - Path of the Python interpreter that has CuPy.
      - Without it and O(conda_prefix), it is C(/opt/cudahub/verify/bin/python) if that is there, else the interpreter
        that Ansible uses on the host.
    type: path
  conda_prefix:
    description:
      - Path of a conda environment that has CuPy. Its C(bin/python) is used, with C(CONDA_PREFIX) and C(PATH) set to
        it.
    type: path
  command_prefix:
    description:
      - Words to put before the interpreter, to run it in another place that sees this host's GPUs, for instance
        C([docker, exec, -i, NAME]) or C([srun, --gres=gpu:1]).
      - The program reaches the interpreter on standard input, so no file needs to be shared; O(python) is then a path
        in that place.
    type: list
    elements: str
  container:
    description:
      - Run the interpreter in containers of this host, one for each GPU, which asks the engine for that GPU by its
        UUID. They have no network, nothing is downloaded, and they are removed, also after a failure or O(timeout).
      - O(python) is then a path or name in the image, V(python3) by default, and O(level) is V(quick), since no
        container has more than one GPU.
    type: dict
    suboptions:
      engine:
        description: The engine, whose command the host has.
        type: str
        choices: [docker, podman]
        default: docker
      image:
        description: An image that the engine has, with CuPy.
        type: str
        required: true
      request:
        description:
          - How a container asks for its GPU.
          - V(cdi) names a CDI device, C(nvidia.com/gpu=UUID). Docker needs 25 and the feature C(cdi).
          - V(gpus) is Docker's C(--gpus device=UUID), and V(runtime) its runtime C(nvidia) and the variable
            C(NVIDIA_VISIBLE_DEVICES); Podman has neither.
        type: str
        choices: [cdi, gpus, runtime]
        default: cdi
      socket:
        description:
          - Docker's socket, if it isn't the usual one, such as C(/run/user/1000/docker.sock) of a rootless engine.
        type: path
      options:
        description:
          - More options of the engine's C(run), one word each, for instance C([--user, "1000"]), or on hosts with
            SELinux C([--security-opt, label=disable]) for Podman.
        type: list
        elements: str
        default: []
  gpus:
    description:
      - UUIDs of the GPUs or MIG instances to verify, or PCI addresses of GPUs. One that is not there fails the task. A
        GPU in MIG mode stands for all its instances.
      - Without it, all GPUs are verified; a GPU in MIG mode without instances is skipped, since CUDA can't use it.
    type: list
    elements: str
  level:
    description:
      - How much to check. V(quick) takes some seconds and checks the CUDA context, the sums of a small array, a kernel
        that is compiled at run time, a matrix product against the CPU's, and that matrix products reach 5 % of the
        GPU's peak rate.
      - V(standard) takes up to half a minute, and all of a GPU's free memory but O(memory_margin). It also writes
        patterns to that memory and reads them back, measures matrix products in FP64, FP32, FP16 and, where the GPU
        (from compute capability 8.0 and 8.9) and cuBLASLt have them, TF32 and FP8, and copies within the GPU, to and
        from the host, and between GPUs, sums over all GPUs by NCCL, compares GPUs of the same name, and looks at the
        counters of errors, the links of NVLink and the driver's errors (Xid) in the kernel log before and after.
      - V(thorough) does all this, and lets all GPUs multiply matrices for O(duration), while their clocks, power and
        temperature are sampled.
      - GPUs work at the same time, but for copies from and to the host, to each other and by NCCL, which disturb each
        other. The result says so for each check, see RV(verification.gpus[].checks[].mode).
    type: str
    choices: [quick, standard, thorough]
    default: quick
  memory_margin:
    description:
      - At levels above V(quick), MiB of each GPU's free memory that are left alone. It needs to be less than the GPU
        has.
    type: int
    default: 512
  memory_limit:
    description:
      - At levels above V(quick), MiB of each GPU's memory that a check takes at most, besides CUDA's own. Without it,
        checks may take all that is free but O(memory_margin).
    type: int
  thresholds:
    description:
      - At levels above V(quick), the shares of the peak, from 0 to 1, below which a check warns and fails. Checks that
        aren't named keep their defaults.
      - The peaks of copies come from the GPU's memory clock and bus width and the generation and width of its PCIe
        link, those of matrix products from a table of cards. A card that isn't in it, and a MIG instance, get figures
        without verdict.
    type: dict
    suboptions:
      warn:
        description:
          - Share of the peak by check, below which a GPU gets a warning. It can't be below that of O(thresholds.fail).
          - By default, 0.6 for V(gemm_fp64) and V(gemm_fp32), 0.5 for V(gemm_tf32), V(gemm_fp16) and
            V(gemm_fp8), 0.75 for V(copy_device), 0.5 for V(copy_host_to_device) and V(copy_device_to_host), and 0.4 for
            V(sustained_load).
        type: dict
      fail:
        description:
          - Share of the peak by check, below which a GPU fails.
          - By default, 0.3 for V(gemm_fp64) and V(gemm_fp32), 0.25 for V(gemm_tf32), V(gemm_fp16) and
            V(gemm_fp8), 0.5 for V(copy_device), 0.05 for V(copy_host_to_device) and V(copy_device_to_host), and 0.2 for
            V(sustained_load).
        type: dict
  spread:
    description:
      - At levels above V(quick), how far a GPU may be below the median of the GPUs of its name on this host, as a share
        from 0 to 1. One that is further below gets a warning, whatever share of its peak it reaches.
    type: float
    default: 0.1
  fail_on:
    description:
      - What makes a GPU fail. With V(warning), a GPU with a warning fails, too.
    type: str
    choices: [failure, warning]
    default: failure
  nccl:
    description:
      - At levels above V(quick), whether NCCL sums over all GPUs, if there are several. With V(auto), it does if CuPy
        finds it, and else the check says that it isn't there; with V(required) that is a failure.
    type: str
    choices: [auto, required, 'false']
    default: auto
  duration:
    description:
      - At level V(thorough), seconds of load, above 0 and at most 86400. O(timeout) is then for the work beyond it.
    type: float
    default: 120
  in_use:
    description:
      - At levels above V(quick), what to do with a GPU that processes of others use. V(skip) leaves it alone and names
        them, V(wait) does so if it isn't free within O(wait), and V(run) runs beside them.
    type: str
    choices: [skip, wait, run]
    default: skip
  wait:
    description:
      - Seconds to wait for GPUs that are in use, from 0 to 86400, with O(in_use=wait).
    type: float
    default: 600
  cudf:
    description:
      - Whether each GPU also groups a table by cuDF, in the same process and after the checks of O(level). The tips of
        244 parties in a restaurant, in percent of the bill, are averaged by the size of the party and compared with
        what is known.
      - If the interpreter has no cuDF, each GPU fails with kind V(library_missing).
    type: bool
    default: false
  timeout:
    description:
      - Time limit of each GPU in seconds, at levels above V(quick) for each round of checks, above 0 and at most 86400,
        which is a day. The process of a GPU that hasn't answered by then is killed.
      - NVML, which is asked first, has as much time.
    type: float
    default: 60
  simulated:
    description:
      - What to do with simulated GPUs. V(report) lists them and runs nothing; V(run) runs the work as on real GPUs, to
        test how failures are handled.
    type: str
    choices: [report, run]
    default: report
  nvml_venvs:
    description:
      - Virtual environments to look in for the Python binding of NVML, if the interpreter that Ansible uses on the host
        doesn't have it.
    type: list
    elements: path
    default: [/opt/cudahub/nvml, /opt/cudahub/verify]
seealso:
  - module: cudahub.gpu.gpu_facts
"""

EXAMPLES = r"""
- name: Prove all GPUs with CuPy from the environment of role gpu_verify
  cudahub.gpu.cuda_verify:

- name: Prove two GPUs with CuPy from a conda environment
  cudahub.gpu.cuda_verify:
    conda_prefix: /opt/conda/envs/rapids
    gpus: "{{ ansible_facts['gpu']['gpus'][:2] | map(attribute='uuid') }}"

- name: Prove all GPUs with CuPy and cuDF from a conda environment of RAPIDS
  cudahub.gpu.cuda_verify:
    conda_prefix: /opt/conda/envs/rapids
    cudf: true

- name: Accept new GPUs, with at least 80 % of the memory's bandwidth and no warning
  cudahub.gpu.cuda_verify:
    level: thorough
    duration: 600
    thresholds:
      fail:
        copy_device: 0.8
      warn:
        copy_device: 0.85
    fail_on: warning

- name: Look at the GPUs that become free within an hour
  cudahub.gpu.cuda_verify:
    level: standard
    in_use: wait
    wait: 3600

- name: Prove the GPUs as a running container sees them
  cudahub.gpu.cuda_verify:
    command_prefix: [docker, exec, -i, notebook]
    python: /usr/bin/python3

- name: Prove the GPUs in containers of an image, each in one that was given that GPU only
  cudahub.gpu.cuda_verify:
    container:
      image: hub.example.org/pytorch:2026.11
"""

RETURN = r"""
verification:
  description: What was verified. It is returned on failure, too, unless the arguments are wrong.
  returned: always
  type: dict
  contains:
    level:
      description: The level that was asked for.
      type: str
      returned: always
      sample: quick
    verified:
      description: Whether at least one GPU passed, and none failed.
      type: bool
      returned: always
    simulated:
      description: Whether the GPUs are simulated.
      type: bool
      returned: always
    seconds:
      description: Time of the work on all GPUs, in seconds.
      type: float
      returned: always
      sample: 3.42
    runtime:
      description: Versions that did the work, null if nothing ran. One that is unknown is null.
      type: dict
      returned: always
      contains:
        python:
          description: Version of the interpreter.
          type: str
          returned: always
          sample: 3.12.3
        cupy:
          description: Version of CuPy.
          type: str
          returned: always
          sample: 14.2.0
        cuda_runtime:
          description: Version of the CUDA runtime that CuPy uses.
          type: str
          returned: always
          sample: '13.0'
        cuda_driver:
          description: CUDA version that the driver supports.
          type: str
          returned: always
          sample: '13.0'
    failure:
      description:
        - Why the host isn't verified, null if it is or if its GPUs are simulated. It is the host's own failure or that
          of the first GPU that failed.
      type: dict
      returned: always
      contains:
        kind:
          description:
            - V(no_gpu), V(driver_unusable), V(driver_too_old), V(no_device_node), V(library_missing),
              V(interpreter_broken), V(gpu_lost), V(wrong_result), V(out_of_memory), V(permission), V(timeout),
              V(crashed), V(slow), V(memory_errors), V(no_peer_access), V(container) if the engine started none, or if
              O(fail_on=warning), V(warning).
          type: str
          returned: always
          sample: gpu_lost
        message:
          description: What is wrong, where, and what to do.
          type: str
          returned: always
    checks:
      description:
        - What was found between the GPUs, in the form of RV(verification.gpus[].checks). Empty at level V(quick).
      type: list
      elements: dict
      returned: always
      contains:
        name:
          description:
            - V(peer_to_peer), V(nccl_all_reduce), V(nvlink), V(spread), or V(visible_gpus) where CUDA doesn't show all
              at once.
          type: str
          returned: always
          sample: peer_to_peer
        passed:
          description: Whether the figure is as expected.
          type: bool
          returned: always
        figure:
          description: What was found, null if the check broke off.
          type: raw
          returned: always
          sample: 392.1
        unit:
          description: Unit of the figure, null for a plain value.
          type: str
          returned: always
          sample: GB/s
        expected:
          description: What the figure should be, null where any will do.
          type: raw
          returned: always
          sample: null
        peak:
          description: What the card can reach at best, in the same unit, null where unknown.
          type: float
          returned: always
          sample: null
        share:
          description: The figure as a share of the peak, null without a peak.
          type: float
          returned: always
          sample: null
        mode:
          description: Whether GPUs did this at the same time, V(parallel), or one after another, V(sequential).
          type: str
          returned: always
          sample: sequential
        seconds:
          description: Time of the check, in seconds.
          type: float
          returned: always
          sample: 0.31
        message:
          description: A remark or an error message, null if there is nothing to say.
          type: str
          returned: always
        gpus:
          description: UUIDs of the GPUs; of a copy first the source, then the target.
          type: list
          elements: str
          returned: always
    gpus:
      description: The GPUs and MIG instances, in the order of their indices.
      type: list
      elements: dict
      returned: always
      contains:
        uuid:
          description: UUID of the GPU or MIG instance, null for a GPU that the driver doesn't show.
          type: str
          returned: always
          sample: GPU-00000000-0000-4000-8000-000000000000
        index:
          description: NVML's index of the GPU, null if unknown.
          type: int
          returned: always
          sample: 0
        pci_bus_id:
          description: PCI address of the GPU, null if unknown.
          type: str
          returned: always
          sample: '00000000:00:06.0'
        name:
          description: Name of the GPU, null if unknown.
          type: str
          returned: always
          sample: NVIDIA H200
        mig_profile:
          description: Profile of the MIG instance, null for a whole GPU.
          type: str
          returned: always
          sample: 1g.5gb
        verdict:
          description: V(passed), V(failed), V(simulated) or V(skipped).
          type: str
          returned: always
          sample: passed
        reason:
          description: Why nothing ran, null if something did.
          type: str
          returned: always
        failure:
          description: Why the GPU failed, in the form of RV(verification.failure), null if it didn't.
          type: dict
          returned: always
        seconds:
          description: Time of its process, in seconds.
          type: float
          returned: always
          sample: 3.1
        checks:
          description: The checks that ran, in their order.
          type: list
          elements: dict
          returned: always
          contains:
            name:
              description:
                - V(context), V(arange_sum), V(compile), V(matmul), V(matmul_rate), or if O(cudf=true), V(tips_groupby).
                - At levels above V(quick) also V(memory_pattern), V(gemm_fp64), V(gemm_fp32), V(gemm_tf32),
                  V(gemm_fp16), V(gemm_fp8), V(copy_device), V(copy_host_to_device), V(copy_device_to_host) and
                  V(error_counters), and at V(thorough) V(sustained_load).
              type: str
              returned: always
              sample: gemm_fp32
            passed:
              description: Whether the figure is as expected.
              type: bool
              returned: always
            figure:
              description:
                - What was found, null if the check broke off, or if this GPU or its libraries don't have what is to be
                  measured, as RV(verification.gpus[].checks[].message) says then.
              type: raw
              returned: always
              sample: 51.5
            unit:
              description: Unit of the figure, null for a plain value.
              type: str
              returned: always
              sample: TFLOP/s
            expected:
              description: What the figure should be, null where any will do.
              type: raw
              returned: always
              sample: '>= 20.07'
            peak:
              description: What the card can reach at best, in the same unit, null where unknown.
              type: float
              returned: always
              sample: 66.9
            share:
              description: The figure as a share of the peak, null without a peak.
              type: float
              returned: always
              sample: 0.7698
            mode:
              description: Whether GPUs did this at the same time, V(parallel), or one after another, V(sequential).
              type: str
              returned: always
              sample: parallel
            seconds:
              description: Time of the check, in seconds.
              type: float
              returned: always
              sample: 0.31
            message:
              description: A remark or an error message, null if there is nothing to say.
              type: str
              returned: always
        warnings:
          description: Sentences about what is worth a look, but is no failure.
          type: list
          elements: str
          returned: always
        load:
          description: What NVML sampled at level V(thorough), null at other levels.
          type: dict
          returned: always
          contains:
            summary:
              description: Minimum, median and maximum of each curve during the load, null where there is none.
              type: dict
              returned: always
            reasons:
              description: Reasons of reduced clocks, and in what share of the samples they were there.
              type: dict
              returned: always
              sample: {sw_power_cap: 0.98}
            samples:
              description:
                - The curves, at most 600 points, each with V(seconds) since the begin of the load, V(sm_clock_mhz),
                  V(memory_clock_mhz), V(power_watts), V(temperature_celsius) and V(reasons).
              type: list
              elements: dict
              returned: always
"""

import inspect
import os
import sys
import typing as t
import uuid
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import (
    _gpu,
    _verify,
    _verify_container,
    _verify_deep,
    _verify_judge,
    _verify_payload,
    _verify_payload_device,
    _verify_payload_fp8,
    _verify_payload_nvml,
    _verify_payload_peers,
    _verify_workers,
)


def interpreter(python: str | None, conda_prefix: str | None) -> str:
    """Path of the interpreter to use."""
    if python or conda_prefix:
        return python or f"{conda_prefix}/bin/python"
    return _verify.DEFAULT_PYTHON if Path(_verify.DEFAULT_PYTHON).exists() else sys.executable


def container_of(module: AnsibleModule) -> _verify_container.Container | None:
    """What option container asks for."""
    given = module.params["container"]
    if given is None:
        return None
    requests = _verify_container.REQUESTS[given["engine"]]
    if given["request"] not in requests:
        module.fail_json(
            msg=f"container.request is {given['request']}, which {given['engine']} doesn't have: set it to"
            f" {' or '.join(requests)}."
        )
    if module.params["level"] != "quick":
        module.fail_json(
            msg=f"level is {module.params['level']}, and container gives each process one GPU only: set level to quick,"
            " or use command_prefix with a container that has all GPUs."
        )
    if given["engine"] == "podman" and given["socket"]:
        module.fail_json(msg="container.socket is Docker's, and the engine is podman: leave it out.")
    return _verify_container.Container(
        engine=given["engine"],
        image=given["image"],
        request=given["request"],
        options=tuple(given["options"]),
        token=uuid.uuid4().hex[:12],
        socket=given["socket"],
    )


def deep_options(options: t.Mapping[str, t.Any]) -> _verify_deep.Options:
    """The options of the levels above quick. Raises OptionError."""
    return _verify_deep.Options(
        thorough=options["level"] == "thorough",
        thresholds=_verify_judge.thresholds(options["thresholds"]),
        **{
            name: options[name]
            for name in ("memory_margin", "memory_limit", "spread", "fail_on", "nccl", "duration", "in_use", "wait")
        },
    )


def prover(level: str, deep: _verify_deep.Options, facts: t.Mapping[str, t.Any]) -> tuple[str, _verify.Prover]:
    """The text for the workers, and what makes them work. Raises OptionError."""
    text = inspect.getsource(_verify_payload)
    if level == "quick":
        return text, _verify.prove_quickly
    deep.refuse(facts["gpus"])
    parts = (_verify_payload_device, _verify_payload_fp8, _verify_payload_peers)
    more = map(inspect.getsource, parts)
    nvml = _verify_deep.Nvml(sys.executable, inspect.getsource(_verify_payload_nvml), facts["pynvml"])
    return _verify_deep.payload_text(text, *more), _verify_deep.DeepProver(deep, nvml, facts["gpus"])


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path"},
            "conda_prefix": {"type": "path"},
            "command_prefix": {"type": "list", "elements": "str"},
            "container": {
                "type": "dict",
                "options": {
                    "engine": {"type": "str", "choices": ["docker", "podman"], "default": "docker"},
                    "image": {"type": "str", "required": True},
                    "request": {"type": "str", "choices": ["cdi", "gpus", "runtime"], "default": "cdi"},
                    "socket": {"type": "path"},
                    "options": {"type": "list", "elements": "str", "default": []},
                },
            },
            "gpus": {"type": "list", "elements": "str"},
            "level": {"type": "str", "choices": ["quick", "standard", "thorough"], "default": "quick"},
            "memory_margin": {"type": "int", "default": 512},
            "memory_limit": {"type": "int"},
            "thresholds": {"type": "dict", "options": {"warn": {"type": "dict"}, "fail": {"type": "dict"}}},
            "spread": {"type": "float", "default": 0.1},
            "fail_on": {"type": "str", "choices": ["failure", "warning"], "default": "failure"},
            "nccl": {"type": "str", "choices": ["auto", "required", "false"], "default": "auto"},
            "duration": {"type": "float", "default": 120},
            "in_use": {"type": "str", "choices": ["skip", "wait", "run"], "default": "skip"},
            "wait": {"type": "float", "default": 600},
            "cudf": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 60},
            "simulated": {"type": "str", "choices": ["report", "run"], "default": "report"},
            "nvml_venvs": {
                "type": "list",
                "elements": "path",
                "default": ["/opt/cudahub/nvml", "/opt/cudahub/verify"],
            },
        },
        mutually_exclusive=[("python", "conda_prefix"), ("container", "conda_prefix"), ("container", "command_prefix")],
        supports_check_mode=True,
    )
    options = module.params
    try:
        _verify_deep.refuse_timeout(options["timeout"])
        deep = deep_options(options)
    except _verify_judge.OptionError as error:
        module.fail_json(msg=str(error))
    if options["gpus"] == []:
        module.fail_json(msg="gpus is an empty list: name at least one UUID, or leave it out to verify all GPUs.")
    container = container_of(module)
    request = _verify.Request(
        python=options["python"] or "python3" if container else interpreter(options["python"], options["conda_prefix"]),
        conda_prefix=options["conda_prefix"],
        command_prefix=tuple(options["command_prefix"] or ()),
        gpus=None if options["gpus"] is None else tuple(options["gpus"]),
        level=options["level"],
        timeout=options["timeout"],
        run_simulated=options["simulated"] == "run",
        cudf=options["cudf"],
        container=container,
    )

    def run(command: t.Sequence[str]) -> str:
        path = module.get_bin_path(command[0])
        return module.run_command([path, *command[1:]])[1] if path else ""

    def end(gpus: t.Sequence[str]) -> None:
        """End what is left of containers."""
        if not container or not module.get_bin_path(container.engine):
            return
        # The first time, Podman may only notice that what watched the container was killed.
        for _attempt in range(2):
            if module.run_command(container.removal(gpus))[0] == 0:
                return

    def work(
        commands: t.Sequence[_verify_workers.Command], marker: str, timeout: float, parallel: int
    ) -> list[_verify_workers.Outcome]:
        try:
            return _verify_workers.run(commands, marker, timeout, parallel)
        finally:
            end([unit.uuid for unit in _verify.plan(facts["gpus"], request.gpus).units if unit.uuid])

    try:
        facts = _gpu.gather(options["nvml_venvs"], options["timeout"], run).as_dict()
        payload, prove = prover(options["level"], deep, facts)
        verification = _verify.verify(
            facts,
            request,
            payload,
            f"@cuda_verify-{uuid.uuid4().hex}@",
            os.environ,
            work,
            _verify.HostNodes(),
            prove,
        )
    except _verify_judge.OptionError as error:
        module.fail_json(msg=str(error))
    except (OSError, _verify_workers.StoppedError) as error:
        module.fail_json(msg=f"The GPUs could not be verified: {error}")
    result = {"changed": False, "verification": verification, "msg": _verify.summary(verification)}
    if verification["failure"]:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
