# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which branches of the driver there are, and which GPUs they and their kernel modules support."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

GENERATIONS = (
    "Tesla",
    "Fermi",
    "Kepler",
    "Maxwell",
    "Pascal",
    "Volta",
    "Turing",
    "Ampere",
    "Ada Lovelace",
    "Hopper",
    "Blackwell",
    "Rubin",
)
"""Architectures from old to new, named as nvidia-smi names them."""

FIRST_WITH_OPEN_MODULE = "Turing"
FIRST_WITHOUT_PROPRIETARY_MODULE = "Blackwell"
FIRST_BRANCH_WITHOUT_PROPRIETARY_MODULE = 615
FIRST_BRANCH_WITH_OPEN_MODULE = 515


@dataclass(frozen=True)
class Branch:
    """A driver branch, and the oldest architecture that it supports."""

    branch: str
    kind: t.Literal["long-term", "production"]
    end_of_life: str
    oldest: str


# NVIDIA, "Supported Drivers and CUDA Toolkit Versions" of the data centre driver documentation, November 2026.
BRANCHES = (
    Branch("580", "long-term", "2028-06", "Maxwell"),
    Branch("595", "production", "2027-03", "Turing"),
    Branch("620", "long-term", "2029-09", "Turing"),
)

ENDED = {"535": "2026-06", "610": "2026-08"}
"""Branches whose support has ended, with the month. Of the others that are not in BRANCHES no month is known."""

LAST_BRANCH = {"Tesla": 340, "Fermi": 390, "Kepler": 470, "Maxwell": 580, "Pascal": 580, "Volta": 580}
"""The last branch that supports an architecture; that of the others is still to come."""

FIRST_BRANCH = {"Turing": 410, "Ampere": 450, "Ada Lovelace": 525, "Hopper": 525, "Blackwell": 570, "Rubin": 580}
"""The first branch that supports an architecture; all branches in use are new enough for those not named."""


def generation(architecture: str) -> int:
    """The place of an architecture among the generations. Raises ValueError for one that is not among them."""
    return GENERATIONS.index(architecture)
