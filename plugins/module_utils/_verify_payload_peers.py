# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks between the GPUs of a host. This text is appended to that of _verify_payload_device, whose names it uses."""

from __future__ import annotations

import importlib
import struct
from contextlib import suppress
from typing import Any

from ._verify_payload import WORKERS, Library, UnfitError
from ._verify_payload_device import ALIGNMENT, HOST_COPY_BYTES, WORD, DeviceWorker


class PeersWorker(DeviceWorker):
    """Copies between pairs of GPUs, one after another, and a sum over all of them by NCCL."""

    def work(self) -> None:
        self.cupy, self.numpy = self.libraries()
        self.gpus: list[dict[str, Any]] = self.spec["gpus"]
        self.publish("context")
        shown = self.shown()
        if shown < len(self.gpus):
            self.note_check(
                "visible_gpus", shown, f"CUDA shows {shown} of {len(self.gpus)} GPUs here: none is measured"
            )
            return
        self.all_kernels = []
        self.buffers: list[tuple[int, int]] = []
        room = HOST_COPY_BYTES
        for number in range(shown):
            self.use(number, prepared=False)
            self.prepare()
            self.all_kernels.append(self.kernels)
            room = min(room, self.room() // 4)
        self.size = room // ALIGNMENT * ALIGNMENT
        for number in range(shown):
            self.use(number)
            self.buffers.append((self.zeros(self.size // WORD), self.zeros(self.size // WORD)))
        for one in range(shown):
            for other in range(shown):
                if one != other:
                    self.check("peer_to_peer", "GB/s", lambda pair=(one, other): self.pair(*pair))  # type: ignore[misc]
                    self.checks[-1]["gpus"] = [self.gpus[one]["uuid"], self.gpus[other]["uuid"]]
        if self.spec["nccl"] != "false":
            self.check("nccl_all_reduce", "GB/s", self.all_reduce)
            self.checks[-1]["gpus"] = [gpu["uuid"] for gpu in self.gpus]

    def note_check(self, name: str, figure: int, message: str) -> None:
        self.check(name, None, lambda: (figure, None, message))
        self.checks[-1]["gpus"] = [gpu["uuid"] for gpu in self.gpus]

    def use(self, number: int, *, prepared: bool = True) -> None:
        self.cupy.cuda.Device(number).use()
        if prepared:
            self.kernels = self.all_kernels[number]

    def shown(self) -> int:
        """How many GPUs CUDA shows; they are those that were asked for, in their order."""
        runtime = self.cupy.cuda.runtime
        count = int(runtime.getDeviceCount())
        found = []
        for number in range(count):
            properties = runtime.getDeviceProperties(number)
            place = (properties["pciDomainID"], properties["pciBusID"], properties["pciDeviceID"])
            found.append("{:08X}:{:02X}:{:02X}.0".format(*place))
        wanted = [gpu["pci_bus_id"] for gpu in self.gpus]
        if count >= len(wanted) and found[: len(wanted)] != wanted:
            message = f"CUDA shows the GPUs at {', '.join(found)}, where those at {', '.join(wanted)} were asked for"
            raise UnfitError("wrong_result", message, found, wanted)
        return min(count, len(wanted))

    def pair(self, one: int, other: int) -> tuple[Any, Any, str | None]:
        """Copy from one GPU to another."""
        runtime = self.cupy.cuda.runtime
        source, target = self.buffers[one][0], self.buffers[other][1]
        self.use(one)
        access = bool(runtime.deviceCanAccessPeer(one, other))
        if access:
            runtime.deviceEnablePeerAccess(other)
        pattern, step = one * 64 + other, 2 * other + 3
        self.fill(source, self.size, pattern, step)
        seconds = self.timed(lambda: runtime.memcpyPeerAsync(target, other, source, one, self.size, 0))
        rate = round(self.size / seconds / 1e9, 2)
        between = f"{self.gpus[one]['uuid']} to {self.gpus[other]['uuid']}"
        self.use(other)
        self.same_words(f"a copy from {between}", target, self.size, pattern, step)
        linked = [one, other] in self.spec["nvlink"]
        if linked and not access:
            message = f"{between} have no peer-to-peer access, though NVLink is up between them"
            raise UnfitError("no_peer_access", message, rate, "peer-to-peer access")
        way = (
            "by NVLink" if linked else "with peer-to-peer access" if access else "through the host, without peer access"
        )
        return rate, None, f"{self.size >> 20} MiB {way}"

    def all_reduce(self) -> tuple[Any, Any, str | None]:
        nccl: Library = None
        with suppress(ImportError):
            nccl = importlib.import_module("cupy.cuda.nccl")
        if not getattr(nccl, "available", False):
            if self.spec["nccl"] == "required":
                raise UnfitError("library_missing", "NCCL isn't there", None, "NCCL")
            return None, None, "not measured: NCCL isn't there"
        count, size = len(self.gpus), self.size
        for number in range(count):
            self.use(number)
            self.fill(self.buffers[number][0], size, floats(number + 1), 0)
            self.cupy.cuda.runtime.deviceSynchronize()
        communicators = nccl.NcclCommunicator.initAll(list(range(count)))

        def reduce() -> None:
            nccl.groupStart()
            for number, communicator in enumerate(communicators):
                self.use(number)
                send, receive = self.buffers[number]
                communicator.allReduce(send, receive, size // 4, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
            nccl.groupEnd()
            self.use(0)

        self.use(0)
        seconds = self.timed(reduce)
        for number in range(count):
            self.use(number)
            total = floats(count * (count + 1) // 2)
            self.same_words(f"NCCL's sum on {self.gpus[number]['uuid']}", self.buffers[number][1], size, total, 0)
        rate = round(size / seconds / 1e9 * 2 * (count - 1) / count, 2)
        return rate, None, f"bus bandwidth, {size >> 20} MiB on each of {count} GPUs, NCCL {nccl.get_version()}"


def floats(value: int) -> int:
    """A word of two equal numbers in FP32."""
    return int.from_bytes(struct.pack("<ff", value, value), "little")


WORKERS["peers"] = PeersWorker
