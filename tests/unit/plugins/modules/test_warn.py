# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sentence reaches the operator as a warning, in check mode as well."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.modules import warn


@pytest.mark.parametrize("check", [False, True])
def test_it_is_a_warning_and_no_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], check: bool
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(warn.AnsibleModule, "warn", lambda _self, text: warned.append(text))
    arguments: dict[str, Any] = {"msg": "restart needed", "_ansible_check_mode": check}
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        warn.main()
    said = json.loads(capsys.readouterr().out)
    assert (ended.value.code, said["changed"], said["msg"]) == (0, False, "restart needed")
    assert warned == ["restart needed"]
