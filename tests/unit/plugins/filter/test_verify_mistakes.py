# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of role gpu_verify that are refused before anything is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter.verify_mistakes import CHECKS, verify_mistakes

DEFAULTS = yaml.safe_load((Path(__file__).parents[4] / "roles/gpu_verify/defaults/main.yml").read_text())


def test_defaults_are_right() -> None:
    given = {name: DEFAULTS[f"gpu_verify_{name}"] for name in CHECKS}
    assert verify_mistakes(given) == []
    # As from the command line.
    assert verify_mistakes({name: str(value) for name, value in given.items()}) == []
    assert verify_mistakes({"thresholds": '{"warn": {"copy_device": 0.5}}'}) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("timeout", -5, "gpu_verify_timeout is -5: give a finite number of seconds above 0, at most 86400."),
        ("timeout", "nan", "gpu_verify_timeout is nan: give a finite number"),
        ("timeout", "soon", "gpu_verify_timeout is 'soon': give a number."),
        ("duration", float("inf"), "gpu_verify_duration is inf: give a finite number"),
        ("spread", 10, "gpu_verify_spread is 10: give a share between 0 and 1."),
        ("memory_margin", -1, "gpu_verify_memory_margin is -1: give MiB"),
        ("memory_limit", -1, "gpu_verify_memory_limit is -1: give MiB"),
        ("memory_limit", float("inf"), "gpu_verify_memory_limit is inf: give a number."),
        ("wait", -1, "gpu_verify_wait is -1: give seconds"),
        ("thresholds", {"warn": {"copy_device": 2}}, "gpu_verify_thresholds.warn.copy_device is 2: give a share"),
        ("thresholds", {"warn": {"gemm": 0.5}}, "gpu_verify_thresholds.warn has 'gemm', which has no peak"),
        ("thresholds", {"warm": {"copy_device": 0.5}}, "gpu_verify_thresholds has 'warm: {'copy_device': 0.5}': give"),
        ("thresholds", {"fail": 0.5}, "gpu_verify_thresholds has 'fail: 0.5': give warn and fail"),
        ("thresholds", {"warn": {"copy_device": 10**400}}, "gpu_verify_thresholds.warn.copy_device is 1000"),
        ("thresholds", "strict", "gpu_verify_thresholds is 'strict': give warn and fail, with shares by check."),
        ("thresholds", '{"warn": 1}', "gpu_verify_thresholds has 'warn: 1': give warn and fail"),
        ("thresholds", [1], "gpu_verify_thresholds is [1]: give warn and fail"),
        ("thresholds", True, "gpu_verify_thresholds is True: give warn and fail"),
        ("thresholds", {"fail": {"copy_device": 0.8}}, "what fails must be less than what warns"),
    ],
)
def test_what_is_wrong_is_one_sentence(name: str, value: Any, words: str) -> None:
    (sentence,) = verify_mistakes({name: value})
    assert words in sentence


@pytest.mark.parametrize("given", [[], {"level": "quick"}])
def test_what_is_no_dictionary_of_options_is_refused(given: Any) -> None:
    with pytest.raises(AnsibleFilterError):
        verify_mistakes(given)
