# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Node descriptions and GPUs for the tests of the SLURM filters."""

from __future__ import annotations

import typing as t

HARDWARE = {
    "CPUs": 32,
    "Boards": 1,
    "SocketsPerBoard": 2,
    "CoresPerSocket": 8,
    "ThreadsPerCore": 2,
    "RealMemory": 64000,
}
CONTROLLERS = [{"name": "head", "address": "10.0.0.1"}]


def gpu(number: int, kind: str | None = "tesla_t4", **values: t.Any) -> dict[str, t.Any]:
    """A whole GPU of the facts."""
    return {
        "minor": number,
        "uuid": f"GPU-{number}",
        "pci_bus_id": f"00000000:{number + 1:02X}:00.0",
        "slurm_type": kind,
        "name": "Card",
        "mig": {"enabled": None, "instances": []},
        "nvlink": None,
        "cpu_affinity": None,
        **values,
    }


def mig_gpu(minor: int, kind: str, instances: int) -> dict[str, t.Any]:
    """A GPU in MIG mode."""
    return gpu(
        minor,
        kind,
        mig={
            "enabled": True,
            "instances": [
                {
                    "index": index,
                    "uuid": f"MIG-{minor}-{index}",
                    "slurm_type": f"{kind}_1g.5gb",
                    "device_nodes": [f"/dev/nvidia{minor}", f"/dev/nvidia-caps/nvidia-cap{index}"],
                }
                for index in range(instances)
            ],
        },
    )


def node(name: str = "gpu01", gpus: t.Sequence[dict[str, t.Any]] = (), **values: t.Any) -> dict[str, t.Any]:
    """A node description."""
    return {"name": name, "version": "24.11.5", "hardware": HARDWARE, "gpus": list(gpus), **values}


def cluster(**values: t.Any) -> dict[str, t.Any]:
    """A cluster."""
    return {"name": "cluster", "version": "24.11.5", "controllers": CONTROLLERS, **values}
