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
# Longer than crictl's own limit, whose words say more.
LIMIT, LONGEST_ANSWER = "60s", 70
# A kubelet ends pods that it does not know, after some seconds.
ATTEMPTS, KILLED = 3, 137
_GONE = re.compile(r"not ?found|not ready|not running|does not exist", re.IGNORECASE)
_ERROR = re.compile(r'level=(?:error|fatal) msg="((?:[^"\\]|\\.)*)"')
# https://github.com/kubernetes/kubernetes/issues/129479
_VALUE = r"""[ \t]*=[ \t]*['"]([^'"\n]+)"""
_PINNED_SANDBOX = re.compile(
    r"^[ \t]*\[[^\n]*[.]pinned_images\]\n(?:(?![ \t]*\[)[^\n]*\n)*?[ \t]*sandbox" + _VALUE, re.MULTILINE
)
_SANDBOX = re.compile(r"^[ \t]*sandbox_image" + _VALUE, re.MULTILINE)


class MissingImageError(EngineError):
    """The engine has not the image without which it runs no pod."""

    def __init__(self, image: str) -> None:
        super().__init__(
            f"the engine has no image {image} for the sandboxes of pods, and nothing is downloaded"
            if image
            else "the engine does not say what is the image for the sandboxes of pods"
        )
        self.image = image


class Runner(t.Protocol):
    """What runs a command."""

    def __call__(self, command: t.Sequence[str], timeout: float) -> tuple[int, str, str]:
        """Return the exit status, stdout and stderr. Raises TimeLimitError."""


def within(data: object, *names: str) -> t.Any:
    """What dictionaries within each other have, null where they are others."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def reason_of(said: str, printed: str) -> str:
    """Why a command of crictl failed. It says errors more than once, among warnings."""
    errors = _ERROR.findall(said)
    return " ".join((errors[-1].replace('\\"', '"') if errors else said.strip() or printed.strip()).split())


def sandbox_image(info: object) -> str:
    """The image of the sandboxes of pods, of ``crictl info``."""
    return str(within(info, "config", "sandboxImage") or "")


def pinned_sandbox_image(dump: str) -> str:
    """The same of ``containerd config dump``, which containerd 2 has; files of version 2 have an older name."""
    found = _SANDBOX.search(dump) or _PINNED_SANDBOX.search(dump)
    return found[1] if found else ""


def by_systemd(info: object, driver: str) -> bool:
    """Whether systemd makes the control groups, as ``crictl runtime-config`` says, or the default runtime has it."""
    if "cgroup" in driver:
        return "SYSTEMD" in driver
    name = within(info, "config", "containerd", "defaultRuntimeName")
    return bool(within(info, "config", "containerd", "runtimes", name or "runc", "options", "SystemdCgroup"))


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
    """An engine by ``crictl``. ``folder`` is one of its own, ``dump`` the command that prints its configuration."""

    via = "cli"

    def __init__(self, crictl: str, socket: str, folder: str, runner: Runner, dump: t.Sequence[str] = ()) -> None:
        endpoint = f"unix://{socket}"
        # Both, as crictl's own configuration may name another engine.
        self._command = [crictl, "--runtime-endpoint", endpoint, "--image-endpoint", endpoint, "--timeout", LIMIT]
        self._folder, self._runner = folder, runner
        self._folders: dict[str, str] = {}
        info = self._data(["info"])
        self._systemd = by_systemd(info, self._ask(["runtime-config"])[1])
        self._image = sandbox_image(info) or (pinned_sandbox_image(self._limited(dump)[1]) if dump else "")
        if not self._image or self._ask(["inspecti", "--quiet", self._image])[0] != 0:
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
            started = self._done(["runp", sandbox], until).strip()
            made = self._done(["create", "--no-pull", started, inner, sandbox], until).strip()
            self._done(["start", made], until)
            while True:
                data = self._data(["inspect", "--output", "json", made], until)
                state, code = within(data, "status", "state"), within(data, "status", "exitCode")
                if state == "CONTAINER_EXITED" and isinstance(code, int):
                    return Ended(code, self._done(["logs", made], until))
                if not isinstance(state, str):
                    raise EngineError(f"crictl inspect says no state of the container: {json.dumps(data)[:200]}")
                if time.monotonic() > until:
                    raise TimeLimitError
                time.sleep(POLL)
        finally:
            self._remove(name)

    def _remove(self, name: str) -> None:
        for one in self._done(["pods", "--quiet", "--name", name]).split():
            code, printed, said = self._ask(["rmp", "--force", one])
            reason = reason_of(said, printed)
            if code != 0 and not _GONE.search(reason):
                raise EngineError(f"the pod {one} was not removed: {reason}")

    def _write(self, name: str, content: t.Mapping[str, t.Any]) -> str:
        path = os.path.join(self._folder, f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        return path

    def _ask(self, words: t.Sequence[str]) -> tuple[int, str, str]:
        return self._limited([*self._command, *words])

    def _limited(self, command: t.Sequence[str]) -> tuple[int, str, str]:
        """What came of a command that starts no container. Raises EngineGoneError if it hangs."""
        try:
            return self._runner(command, LONGEST_ANSWER)
        except TimeLimitError as error:
            raise EngineGoneError(f"{os.path.basename(command[0])} gave no answer for {LONGEST_ANSWER} s") from error

    def _data(self, words: t.Sequence[str], until: float | None = None) -> t.Any:
        """What a command prints as JSON. Raises EngineError."""
        printed = self._done(words, until)
        try:
            return json.loads(printed)
        except ValueError as error:
            said = " ".join(printed.split())[:200]
            raise EngineError(f"crictl {words[0]} printed what is no JSON: {said}") from error

    def _done(self, words: t.Sequence[str], until: float | None = None) -> str:
        """What a command prints, which has time until then. Raises EngineError."""
        if until is None:
            code, printed, said = self._ask(words)
        else:
            code, printed, said = self._runner([*self._command, *words], max(until - time.monotonic(), POLL))
        if code != 0:
            reason = reason_of(said, printed)
            raise (EngineGoneError if kind_of(reason) == "engine" else EngineError)(reason)
        return printed
