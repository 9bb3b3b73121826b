# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory and the pools of a JupyterHub, as playbooks ask for them."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.cudahub.gpu.plugins.filter.hub_gpus import hub_gpus
from ansible_collections.cudahub.gpu.plugins.filter.hub_pools import hub_pools

NOTHING = {"driver": {"state": "absent"}, "gpus": [], "count": 0, "simulated": False}


def test_a_host_without_gpus() -> None:
    assert hub_gpus(NOTHING)["units"] == []
    assert hub_pools([{"name": "default"}], NOTHING)[0]["gpus"] is None


def test_mistakes_name_the_filter() -> None:
    with pytest.raises(AnsibleFilterError, match=r"^hub_gpus: the input is not"):
        hub_gpus({})
    with pytest.raises(AnsibleFilterError, match=r"^hub_pools: there is no pool"):
        hub_pools([], NOTHING)
    with pytest.raises(AnsibleFilterError, match=r"^gpu_select: the expression"):
        hub_pools([{"name": "a", "select": "[?"}], NOTHING)
