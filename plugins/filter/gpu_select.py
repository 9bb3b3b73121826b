# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

DOCUMENTATION = r"""
name: gpu_select
author:
  - cudahub.gpu contributors (@cudahub)
version_added: 0.1.0
short_description: Choose GPUs by a JMESPath expression
description:
  - Applies a JMESPath expression to a list of GPUs, as RV(cudahub.gpu.gpu_facts#module:ansible_facts.gpu.gpus) has
    them, and returns those it selects, unchanged.
  - Fails on an expression that is not valid, or that gives something else than GPUs of the list.
requirements:
  - Python package C(jmespath) on the controller
positional: expression
options:
  _input:
    description: The GPUs.
    type: list
    elements: dict
    required: true
  expression:
    description:
      - The JMESPath expression. Numbers are written between backquotes, texts between single quotes.
      - Comparing a null value with V(<) or V(>) is never true.
      - V(!a.b) means V(!(a.b\)) here. Plain JMESPath reads it as V((!a\).b), which is always null.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Choose big GPUs that are not in MIG mode
  ansible.builtin.debug:
    msg: "{{ gpus | cudahub.gpu.gpu_select(wanted) | map(attribute='name') }}"
  vars:
    wanted: "[?memory_bytes > `40000000000` && !mig.enabled]"
    gpus:
      - {name: NVIDIA H200, memory_bytes: 150754820096, mig: {enabled: false}}
      - {name: Tesla T4, memory_bytes: 16106127360, mig: {enabled: null}}
  # => ["NVIDIA H200"]
"""

RETURN = r"""
_value:
  description: The chosen GPUs, in the order that the expression gives them.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

try:
    import jmespath
    from jmespath import parser
except ImportError:
    HAS_JMESPATH = False
else:
    HAS_JMESPATH = True

Value = t.Any
"""A value or a syntax tree, as JSON has it."""


def _plain(value: Value) -> Value:
    """The value in Python's own types: JMESPath goes by type names, and Ansible's texts and lists have others."""
    if isinstance(value, t.Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return "".join(value)
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _negation_last(node: Value) -> Value:
    """The syntax tree with ``!mig.enabled`` read as ``!(mig.enabled)``: ``(!mig).enabled`` would always be null."""
    if not isinstance(node, dict):
        return node
    children = [_negation_last(child) for child in node.get("children", [])]
    if node["type"] == "subexpression" and children[0]["type"] == "not_expression":
        inner = {**node, "children": [*children[0]["children"], *children[1:]]}
        return {**children[0], "children": [_negation_last(inner)]}
    return {**node, "children": children}


def gpu_select(gpus: t.Sequence[t.Mapping[str, t.Any]], expression: str) -> list[t.Mapping[str, t.Any]]:
    """The GPUs that the expression selects. Raises AnsibleFilterError with a sentence that names it."""
    if not isinstance(expression, str):
        raise AnsibleFilterError(
            f"gpu_select: the expression {expression!r} is a {type(expression).__name__}, not a text"
        )
    if not isinstance(gpus, (list, tuple)):
        raise AnsibleFilterError(
            f"gpu_select: the input is a {type(gpus).__name__}, not a list of GPUs: give ansible_facts['gpu']['gpus']"
        )
    if not HAS_JMESPATH:
        raise AnsibleFilterError(
            f"gpu_select: the expression {expression!r} needs the Python package jmespath on the controller, "
            "in the environment of ansible-core: install it there, for example with pip install jmespath"
        )
    candidates = [_plain(gpu) for gpu in gpus]
    try:
        parsed = jmespath.compile(_plain(expression))
        selected = parser.ParsedResult(parsed.expression, _negation_last(parsed.parsed)).search(candidates)
    except jmespath.exceptions.JMESPathError as error:
        raise AnsibleFilterError(f"gpu_select: the expression {expression!r} is not valid JMESPath: {error}") from error
    original = {id(candidate): gpu for candidate, gpu in zip(candidates, gpus, strict=True)}
    if not isinstance(selected, list) or not all(id(item) in original for item in selected):
        raise AnsibleFilterError(
            f"gpu_select: the expression {expression!r} does not select GPUs of the list: "
            "write a filter such as [?memory_bytes > `40000000000`], or [*] for all"
        )
    return [original[id(item)] for item in selected]


class FilterModule:
    """The filter gpu_select."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters of this file."""
        return {"gpu_select": gpu_select}
