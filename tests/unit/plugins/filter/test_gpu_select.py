# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs are chosen by a JMESPath expression, and a bad one is refused with a sentence that names it."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter import gpu_select as plugin
from ansible_collections.cudahub.gpu.plugins.filter.gpu_select import gpu_select


class Text(str):
    """A text of another type, as Ansible's are."""

    __slots__ = ()


GPUS: list[dict[str, t.Any]] = [
    {"name": Text("NVIDIA H200"), "memory_bytes": 150754820096, "mig": {"enabled": False}, "index": 0, "healthy": True},
    {"name": Text("NVIDIA A100"), "memory_bytes": 42949672960, "mig": {"enabled": True}, "index": 1, "healthy": False},
    {"name": Text("Tesla T4"), "memory_bytes": 16106127360, "mig": {"enabled": None}, "index": 2, "healthy": True},
    {"name": Text("NVIDIA B200"), "memory_bytes": None, "mig": {"enabled": None}, "index": None, "healthy": None},
]


@pytest.mark.parametrize(
    ("expression", "indexes"),
    [
        ("[*]", [0, 1, 2, None]),
        ("@", [0, 1, 2, None]),
        ("[?healthy]", [0, 2]),
        ("[?memory_bytes > `40000000000`]", [0, 1]),
        ("[?memory_bytes > `40000000000` && !mig.enabled]", [0]),
        ("[?memory_bytes > `40000000000` && !(mig.enabled)]", [0]),
        ("[?!mig.enabled]", [0, 2, None]),
        ("[?!(!mig.enabled)]", [1]),
        ("[?contains(name, 'A100')]", [1]),
        ("[?starts_with(name, 'Tesla') || index == `0`]", [0, 2]),
        ("[?index == null]", [None]),
        ("[:2]", [0, 1]),
        ("reverse([?index != null])", [2, 1, 0]),
        ("[?name == 'nothing']", []),
    ],
)
def test_selects(expression: str, indexes: list[int | None]) -> None:
    selected = gpu_select(GPUS, Text(expression))
    assert [gpu["index"] for gpu in selected] == indexes
    assert all(any(gpu is original for original in GPUS) for gpu in selected)


def test_no_gpus() -> None:
    assert gpu_select([], "[?healthy]") == []


@pytest.mark.parametrize(
    ("gpus", "expression", "message"),
    [
        (GPUS, "[?memory_bytes >", r"the expression '\[\?memory_bytes >' is not valid JMESPath: "),
        (GPUS, "", "the expression '' is not valid JMESPath: "),
        (
            GPUS,
            "[?frobnicate(name)]",
            r"the expression '\[\?frobnicate\(name\)\]' is not valid JMESPath: Unknown function",
        ),
        (GPUS, "[?contains(index, 'a')]", "is not valid JMESPath: "),
        (GPUS, "[*].name", r"the expression '\[\*\].name' does not select GPUs of the list: write a filter"),
        (GPUS, "[0]", r"the expression '\[0\]' does not select GPUs of the list"),
        (GPUS, "length(@)", "does not select GPUs of the list"),
        (GPUS, "[*].{name: name}", "does not select GPUs of the list"),
        (GPUS, None, "the expression None is a NoneType, not a text"),
        (GPUS, 5, "the expression 5 is a int, not a text"),
        ("text", "[*]", "the input is a str, not a list of GPUs"),
        ({"gpus": []}, "[*]", "the input is a dict, not a list of GPUs: give ansible_facts"),
        (None, "[*]", "the input is a NoneType, not a list of GPUs"),
    ],
)
def test_refuses(gpus: t.Any, expression: t.Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        gpu_select(gpus, expression)


def test_without_jmespath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "HAS_JMESPATH", False)
    with pytest.raises(
        AnsibleFilterError, match=r"the expression '\[\*\]' needs the Python package jmespath on the controller"
    ):
        gpu_select(GPUS, "[*]")


def test_is_registered() -> None:
    assert plugin.FilterModule().filters() == {"gpu_select": gpu_select}
