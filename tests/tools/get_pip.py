# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-in for the get-pip.py that ansible-test downloads: pip comes from ensurepip, then installs what is asked."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, because ensurepip turns pip's configuration off.
subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
wanted = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
raise SystemExit(subprocess.call([sys.executable, "-m", "pip", "install", *wanted]))
