# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users of the hub do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host


@pytest.fixture
def hub(host: Host) -> Callable[..., Any]:
    """Return a function that does something as a user: files/hub.py."""

    def ask(*arguments: str) -> Any:
        command = shlex.join(["timeout", "200", "/opt/tljh/hub/bin/python", "/srv/tests/hub.py", *arguments])
        printed = host.check_output(command)
        try:
            return json.loads(printed)
        except ValueError:
            return printed

    return ask
