# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Workers that run in containers, each in one that has asked for the worker's GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._container_gpus import kind_of, started

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUESTS = {"docker": ("cdi", "gpus", "runtime"), "podman": ("cdi",)}
# What docker and podman end with where no program of the container's gave the status.
ENGINE_STATUS = (125, 126, 127)
REMOVAL_SECONDS = 60
_ADVICE = {
    "engine": "start it, and run the task as a user who may use it",
    "image": "build or pull the image on this host first, nothing is downloaded here",
    "request": "let role cudahub.gpu.nvidia_container_toolkit set the engine up for GPUs, or choose another request",
    "start": "see that the image has the interpreter and that the engine knows all options",
}


@dataclass(frozen=True)
class Container:
    """What the caller asked for. ``token`` makes the names of its containers its own."""

    engine: str
    image: str
    request: str
    options: tuple[str, ...]
    token: str
    socket: str | None = None

    @property
    def command(self) -> list[str]:
        """The engine's command."""
        return [self.engine, "--host", f"unix://{self.socket}"] if self.socket else [self.engine]

    def name(self, gpu: str) -> str:
        return f"cudahub-verify-{self.token}-{gpu}"

    def argv(self, gpu: str, python: str) -> list[str]:
        """The command that runs a program from standard input in a container that asks for a GPU."""
        options = ("--interactive", *self.options)
        return [*started(self.command, self.request, self.image, gpu, self.name(gpu), options, python), "-"]

    def removal(self, gpus: Sequence[str]) -> list[str]:
        """The command that ends what is left of the containers, or gives up."""
        return ["timeout", str(REMOVAL_SECONDS), *self.command, "rm", "--force", *map(self.name, gpus)]

    def refusal(self, gpu: str, said: str) -> str:
        """Why no container was started, in a sentence."""
        words = " ".join(said.split())[-400:] or "no reason is known"
        return f"{self.engine} started no container of {self.image} for {gpu} ({words}): {_ADVICE[kind_of(words)]}."
