#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_gpus
short_description: Prove that containers see the GPUs that they ask for, and no others
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Runs a container for each GPU, which asks the engine for that GPU by its UUID, and compares what it sees with it -
    the device nodes, those of a MIG device's capabilities among them, and the GPUs that NVML counts in it.
  - A GPU that a container does not see, or others that it sees, make the module fail. The message names the GPU and
    the kind of failure.
  - Containers are removed, also after a failure or O(timeout). They have no network, and nothing is downloaded.
  - Where O(image) is not given, an image is made from the Python of the host that runs this module, and removed again.
  - Containers of containerd and CRI-O are run as Kubernetes does, by C(crictl), each in a pod with the network of the
    host. Without O(image), it is the image of the sandboxes of pods, with the host's Python in the folders of a copy.
options:
  engine:
    description: The engine that runs the containers.
    type: str
    choices: [docker, podman, containerd, crio]
    default: docker
  request:
    description:
      - How a container asks for its GPU.
      - V(cdi) names a CDI device, C(nvidia.com/gpu=UUID). Docker needs 25 and the feature C(cdi).
      - V(gpus) is Docker's C(--gpus device=UUID).
      - V(runtime) is Docker's runtime C(nvidia) and the variable C(NVIDIA_VISIBLE_DEVICES).
    type: str
    choices: [cdi, gpus, runtime]
    default: cdi
  gpus:
    description: UUIDs of GPUs or MIG devices.
    type: list
    elements: str
    required: true
  image:
    description: An image that the engine has, with C(python3) on its path.
    type: str
  socket:
    description:
      - The engine's socket, such as C(/run/user/1000/docker.sock) of a rootless Docker. Podman has none.
      - The default is C(/var/run/docker.sock), C(/run/containerd/containerd.sock) or C(/run/crio/crio.sock).
    type: path
  via:
    description:
      - What talks to Docker. V(sdk) is the Python module C(docker), V(cli) the command, and V(auto) the first where the
        host has it.
      - Podman's command, and C(crictl) for containerd and CRI-O, are used in any case.
    type: str
    choices: [auto, sdk, cli]
    default: auto
  timeout:
    description: Seconds that a container may take, above 0 and at most 86400.
    type: float
    default: 60
extends_documentation_fragment:
  - cudahub.gpu.attributes
attributes:
  check_mode:
    description: Can run in check mode, and does the same as otherwise.
    support: full
  diff_mode:
    description: Leaves nothing changed, so that there is nothing to show.
    support: none
requirements:
  - Python 3.9 or later on the host
  - Docker's or Podman's command, or the Python module C(docker)
  - C(crictl) for containerd and CRI-O, and the image of the sandboxes of pods, which is not downloaded
seealso:
  - module: cudahub.gpu.cuda_verify
    description: Proves that each GPU computes.
"""

EXAMPLES = r"""
- name: Each GPU alone, in containers of Docker
  cudahub.gpu.container_gpus:
    gpus: "{{ ansible_facts['gpu']['gpus'] | map(attribute='uuid') }}"

- name: In containers of Podman, with an image that is there
  cudahub.gpu.container_gpus:
    engine: podman
    image: docker.io/library/python:3.13-slim
    gpus: "{{ ansible_facts['gpu']['gpus'] | map(attribute='uuid') }}"

- name: In containers of pods, as Kubernetes has them
  cudahub.gpu.container_gpus:
    engine: containerd
    gpus: "{{ ansible_facts['gpu']['gpus'] | map(attribute='uuid') }}"

- name: In containers of a rootless Docker
  cudahub.gpu.container_gpus:
    socket: /run/user/1000/docker.sock
    request: runtime
    gpus: [GPU-8f6a2c1e-0b3d-4e5f-9a7b-1c2d3e4f5a6b]
  become: true
  become_user: anna
"""

RETURN = r"""
proofs:
  description: What came of each GPU.
  returned: always, unless the image can't be made
  type: list
  elements: dict
  contains:
    uuid:
      description: The GPU that the container has asked for.
      returned: always
      type: str
      sample: GPU-8f6a2c1e-0b3d-4e5f-9a7b-1c2d3e4f5a6b
    ok:
      description: Whether the container saw it and no other.
      returned: always
      type: bool
      sample: true
    kind:
      description:
        - V(engine) if the engine doesn't answer, V(image) if it has not the image, V(request) if it refused the GPU,
          V(start) if it could not start the container, V(died) if the container ended without an answer, V(timeout).
        - V(no_library) if there is no NVML in the container, V(no_device_node), V(no_permission) if the container may
          not open the GPU's node, V(nvml) if NVML has an error, V(wrong_gpus) if the container sees others; null if all
          is well.
      returned: always
      type: str
      sample: request
    reason:
      description: What went wrong; null if all is well.
      returned: always
      type: str
      sample: "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-8f6a2c1e"
    gpus:
      description: The GPUs or MIG devices that NVML counts in the container, by UUID.
      returned: always
      type: list
      elements: str
      sample: [GPU-8f6a2c1e-0b3d-4e5f-9a7b-1c2d3e4f5a6b]
    nodes:
      description: The nodes of GPUs, and of capabilities of MIG devices, in the container's C(/dev).
      returned: always
      type: list
      elements: str
      sample: [nvidia2]
missing_image:
  description: The image of the sandboxes of pods, without which containerd and CRI-O run none.
  returned: if the engine has not got it
  type: str
  sample: registry.k8s.io/pause:3.10
via:
  description: What ran the containers, V(sdk) or V(cli).
  returned: always, unless the image can't be made
  type: str
  sample: cli
"""

import os
import shutil
import subprocess
import tempfile
import typing as t
import uuid

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.cudahub.gpu.plugins.module_utils import _container_cri, _container_gpus, _container_image
from ansible_collections.cudahub.gpu.plugins.module_utils._container_gpus import (
    Ended,
    EngineError,
    EngineGoneError,
    TimeLimitError,
)

LONGEST_IMPORT = 300
LONGEST_TIMEOUT = 86400
DOCKER_SOCKET = "/var/run/docker.sock"


class _Cli:
    """An engine by its command."""

    via = "cli"

    def __init__(self, command: t.Sequence[str], request: str) -> None:
        self._command, self._request = list(command), request

    def run(self, image: str, gpu: str, program: str, timeout: float) -> Ended:
        name = f"cudahub-gpus-{uuid.uuid4().hex[:12]}"
        command = _container_gpus.command(self._command, self._request, image, gpu, program, name)
        try:
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TimeLimitError from error
        finally:
            self._ask("rm", "--force", name)
        return Ended(done.returncode, f"{done.stdout}\n{done.stderr}")

    def make_image(self, tar: str, image: str) -> None:
        rc, said = self._ask("import", tar, image)
        if rc != 0:
            raise (EngineGoneError if _container_gpus.kind_of(said) == "engine" else EngineError)(said)

    def remove_image(self, image: str) -> None:
        self._ask("rmi", "--force", image)

    def _ask(self, *words: str) -> tuple[int, str]:
        try:
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                [*self._command, *words],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LONGEST_IMPORT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineGoneError(f"{words[0]} was not done after {LONGEST_IMPORT} s") from error
        return done.returncode, " ".join((done.stderr.strip() or done.stdout.strip()).split())


class _Sdk:
    """Docker by its Python module."""

    via = "sdk"

    def __init__(self, socket: str, request: str) -> None:
        import docker

        self._docker, self._request = docker, request
        self._client = docker.DockerClient(base_url=f"unix://{socket}", timeout=LONGEST_IMPORT)

    def run(self, image: str, gpu: str, program: str, timeout: float) -> Ended:
        container = None
        options = _container_gpus.sdk_options(self._request, gpu, self._docker.types.DeviceRequest)
        try:
            container = self._client.containers.create(
                image, ["-c", program], entrypoint=["python3"], network_mode="none", **options
            )
            container.start()
            code = container.wait(timeout=timeout)["StatusCode"]
            return Ended(code, container.logs().decode(errors="replace"))
        except Exception as error:
            raise self._meant(error) from error
        finally:
            if container is not None:
                self._done(container.remove, force=True)

    def make_image(self, tar: str, image: str) -> None:
        repository, tag = image.rsplit(":", 1)
        self._done(self._client.api.import_image_from_file, tar, repository=repository, tag=tag)

    def remove_image(self, image: str) -> None:
        self._done(self._client.images.remove, image, force=True)

    def _done(self, call: t.Callable[..., t.Any], *words: str, **options: t.Any) -> None:
        """Have the engine do something. Raises EngineError."""
        try:
            call(*words, **options)
        except Exception as error:
            raise self._meant(error) from error

    def _meant(self, error: Exception) -> EngineError:
        """What an exception of the SDK, or of the library below it, means."""
        said = str(getattr(error, "explanation", None) or error)
        if "timed out" in said.lower():
            return TimeLimitError(said)
        if isinstance(error, self._docker.errors.APIError):
            return EngineError(said)
        return EngineGoneError(said)


def _command(command: t.Sequence[str], timeout: float) -> tuple[int, str, str]:
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimeLimitError from error
    return done.returncode, done.stdout, done.stderr


Engine = t.Union[_Cli, _Sdk]


def engine_of(module: AnsibleModule) -> Engine:
    """What talks to the engine. Raises EngineGoneError."""
    options = module.params
    podman = options["engine"] == "podman"
    if not podman and options["via"] != "cli":
        try:
            return _Sdk(options["socket"] or DOCKER_SOCKET, options["request"])
        except ImportError as error:
            if options["via"] == "sdk":
                raise EngineGoneError(f"the host's Python has no module docker: {error}") from error
        except Exception as error:
            raise EngineGoneError(str(error)) from error
    program = module.get_bin_path(options["engine"])
    if program is None:
        raise EngineGoneError(f"the host has no {options['engine']}")
    return _Cli(
        [program] if podman else [program, "--host", f"unix://{options['socket'] or DOCKER_SOCKET}"], options["request"]
    )


def act_by_cri(module: AnsibleModule) -> dict[str, t.Any]:
    """Run the containers in pods. Raises EngineError, ImageError, OSError."""
    options = module.params
    program = module.get_bin_path("crictl")
    if program is None:
        raise EngineGoneError("the host has no crictl")
    folder = tempfile.mkdtemp(prefix="cudahub-gpus-", dir=module.tmpdir)
    try:
        socket = options["socket"] or _container_cri.SOCKETS[options["engine"]]
        containerd = module.get_bin_path("containerd") if options["engine"] == "containerd" else None
        dump = [containerd, "config", "dump"] if containerd else []
        engine = _container_cri.Cri(program, socket, folder, _command, dump)
        image = options["image"]
        if image is None:
            root = os.path.join(folder, "root")
            _container_image.unpack(root)
            image = engine.bring(root)
        proofs = [_container_gpus.prove(engine, image, gpu, options["timeout"]) for gpu in options["gpus"]]
    finally:
        shutil.rmtree(folder)
    return {"proofs": [proof.as_data() for proof in proofs], "via": engine.via}


def act(module: AnsibleModule) -> dict[str, t.Any]:
    """Run the containers. Raises EngineError, ImageError, OSError."""
    options = module.params
    if options["engine"] in _container_cri.SOCKETS:
        return act_by_cri(module)
    engine = engine_of(module)
    image, own = options["image"], None
    try:
        if image is None:
            image = f"localhost/cudahub-gpus:{uuid.uuid4().hex[:12]}"
            handle, tar = tempfile.mkstemp(dir=module.tmpdir, suffix=".tar")
            module.add_cleanup_file(tar)
            with os.fdopen(handle, "wb") as file:
                _container_image.write(file)
            engine.make_image(tar, image)
            own = image
        proofs = [_container_gpus.prove(engine, image, gpu, options["timeout"]) for gpu in options["gpus"]]
    finally:
        if own is not None:
            engine.remove_image(own)
    return {"proofs": [proof.as_data() for proof in proofs], "via": engine.via}


def main() -> None:
    """Read the parameters, prove, and return."""
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "choices": ["docker", "podman", "containerd", "crio"], "default": "docker"},
            "request": {"type": "str", "choices": ["cdi", "gpus", "runtime"], "default": "cdi"},
            "gpus": {"type": "list", "elements": "str", "required": True},
            "image": {"type": "str"},
            "socket": {"type": "path"},
            "via": {"type": "str", "choices": ["auto", "sdk", "cli"], "default": "auto"},
            "timeout": {"type": "float", "default": 60},
        },
        supports_check_mode=True,
    )
    engine = module.params["engine"]
    if engine != "docker" and module.params["request"] != "cdi":
        module.fail_json(msg=f"{engine} gives GPUs by CDI only: set request to cdi")
    if not 0 < module.params["timeout"] <= LONGEST_TIMEOUT:
        module.fail_json(
            msg=f"timeout is {module.params['timeout']:g}: give a finite number of seconds above 0, at most"
            f" {LONGEST_TIMEOUT}."
        )
    try:
        result = act(module)
    except _container_cri.MissingImageError as error:
        module.fail_json(msg=f"No container can be run by {engine}: {error}", missing_image=error.image)
    except (EngineError, _container_image.ImageError) as error:
        module.fail_json(msg=f"No container can be run by {engine}: {error}")
    except OSError as error:
        module.fail_json(msg=f"No container can be run by {engine}: {error.filename or ''}: {error.strerror}")
    failed = [proof for proof in result["proofs"] if not proof["ok"]]
    if failed:
        said = "; ".join(f"{proof['uuid']} ({proof['kind']}): {proof['reason']}" for proof in failed)
        module.fail_json(msg=f"Containers of {engine} do not get the GPUs that they ask for: {said}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
