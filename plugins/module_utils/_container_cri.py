# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers of containerd and CRI-O as Kubernetes runs them, by ``crictl``."""

from __future__ import annotations

import json
import os
import re
import time
import typing as t
import uuid

from ._container_gpus import Ended, EngineError, EngineGoneError, TimeLimitError, kind_of

SOCKETS = {"containerd": "/run/containerd/containerd.sock", "crio": "/run/crio/crio.sock"}
# The network of the host, which needs no CNI, and processes of its own.
NAMESPACES = {"security_context": {"namespace_options": {"network": 2, "pid": 1}}}
POLL = 0.2
# A kubelet ends pods that it does not know, after some seconds.
ATTEMPTS, KILLED = 3, 137
_GONE = re.compile(r"not ?found|not ready|not running|does not exist", re.IGNORECASE)


class MissingImageError(EngineError):
    """The engine has not the image without which it runs no pod."""

    def __init__(self, image: str) -> None:
        super().__init__(f"the engine has no image {image} for the sandboxes of pods, and nothing is downloaded")
        self.image = image


class Runner(t.Protocol):
    """What runs a command."""

    def __call__(self, command: t.Sequence[str], timeout: float) -> tuple[int, str, str]:
        """Return the exit status, stdout and stderr. Raises TimeLimitError."""


def sandbox_image(info: t.Mapping[str, t.Any]) -> str:
    """The image of the sandboxes of pods, of ``crictl info``."""
    return str(info.get("config", {}).get("sandboxImage") or "")


def by_systemd(info: t.Mapping[str, t.Any], driver: str) -> bool:
    """Whether systemd makes the control groups, as ``crictl runtime-config`` says, or the default runtime has it."""
    if "cgroup" in driver:
        return "SYSTEMD" in driver
    engine = info.get("config", {}).get("containerd", {})
    runtime = engine.get("runtimes", {}).get(engine.get("defaultRuntimeName", "runc"), {})
    return bool((runtime.get("options") or {}).get("SystemdCgroup"))


def pod(name: str, folder: str, systemd: bool) -> dict[str, t.Any]:
    """A pod with the host's network; ``folder`` is where the output of its containers goes."""
    parent = {"cgroup_parent": "system.slice"} if systemd else {}
    return {
        "metadata": {"name": name, "namespace": "cudahub", "uid": name, "attempt": 0},
        "log_directory": folder,
        "linux": {**NAMESPACES, **parent},
    }


def container(name: str, image: str, gpu: str, program: str, folders: t.Mapping[str, str]) -> dict[str, t.Any]:
    """A container that asks for a GPU and runs a program of Python; ``folders`` are the host's by their path in it."""
    mounts = [
        {"host_path": path, "container_path": inside, "selinux_relabel": True} for inside, path in folders.items()
    ]
    return {
        "metadata": {"name": name},
        "image": {"image": image},
        "command": ["/usr/bin/python3" if folders else "python3", "-c", program],
        "mounts": mounts,
        "log_path": f"{name}.log",
        "linux": NAMESPACES,
        "CDI_devices": [{"name": f"nvidia.com/gpu={gpu}"}],
    }


class Cri:
    """An engine by ``crictl``. ``folder`` is one of its own."""

    via = "cli"

    def __init__(self, crictl: str, socket: str, folder: str, runner: Runner) -> None:
        endpoint = f"unix://{socket}"
        # Both, as crictl's own configuration may name another engine.
        self._command = [crictl, "--runtime-endpoint", endpoint, "--image-endpoint", endpoint, "--timeout", "60s"]
        self._folder, self._runner = folder, runner
        self._folders: dict[str, str] = {}
        info = json.loads(self._done(["info"]))
        self._systemd = by_systemd(info, self._ask(["runtime-config"])[1])
        self._image = sandbox_image(info)
        if self._ask(["inspecti", "--quiet", self._image])[0] != 0:
            raise MissingImageError(self._image)

    def bring(self, root: str) -> str:
        """Have containers see the folders of ``root``, and return the image that this works with."""
        self._folders = {f"/{name}": os.path.join(root, name) for name in sorted(os.listdir(root))}
        return self._image

    def run(self, image: str, gpu: str, program: str, timeout: float) -> Ended:
        for _attempt in range(ATTEMPTS - 1):
            ended = self._unless_gone(image, gpu, program, timeout)
            if ended is not None:
                return ended
        return self._run(image, gpu, program, timeout)

    def _unless_gone(self, image: str, gpu: str, program: str, timeout: float) -> Ended | None:
        """What came of a container, unless somebody has ended it."""
        try:
            ended = self._run(image, gpu, program, timeout)
        except EngineError as error:
            if not _GONE.search(str(error)):
                raise
            return None
        return None if ended.code == KILLED else ended

    def _run(self, image: str, gpu: str, program: str, timeout: float) -> Ended:
        name, until = f"cudahub-gpus-{uuid.uuid4().hex[:12]}", time.monotonic() + timeout
        sandbox = self._write("pod", pod(name, self._folder, self._systemd))
        inner = self._write("container", container(name, image, gpu, program, self._folders))
        try:
            started = self._done(["runp", sandbox], timeout).strip()
            made = self._done(["create", "--no-pull", started, inner, sandbox], timeout).strip()
            self._done(["start", made], timeout)
            while True:
                status = json.loads(self._done(["inspect", "--output", "json", made], timeout))["status"]
                if status["state"] == "CONTAINER_EXITED":
                    return Ended(int(status["exitCode"]), self._done(["logs", made], timeout))
                if time.monotonic() > until:
                    raise TimeLimitError
                time.sleep(POLL)
        finally:
            for one in self._ask(["pods", "--quiet", "--name", name])[1].split():
                self._ask(["rmp", "--force", one])

    def _write(self, name: str, content: t.Mapping[str, t.Any]) -> str:
        path = os.path.join(self._folder, f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        return path

    def _ask(self, words: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        return self._runner([*self._command, *words], timeout)

    def _done(self, words: t.Sequence[str], timeout: float = 60) -> str:
        """What a command prints. Raises EngineError."""
        code, printed, said = self._ask(words, timeout)
        if code != 0:
            reason = " ".join((said.strip() or printed.strip()).split())
            raise (EngineGoneError if kind_of(reason) == "engine" else EngineError)(reason)
        return printed
