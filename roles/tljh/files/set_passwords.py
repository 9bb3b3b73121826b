# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sets passwords for FirstUseAuthenticator, from standard input: ``set_passwords.py FILE``; prints whose they are.

Who has a password keeps it. It runs in the environment of the hub, whose kind of file it has to be.
"""

from __future__ import annotations

import dbm
import json
import os
import sys

import bcrypt

os.umask(0o077)
with dbm.open(sys.argv[1], "c", 0o600) as database:
    for name, password in json.load(sys.stdin).items():
        if not database.get(name):
            database[name] = bcrypt.hashpw(password.encode(), bcrypt.gensalt())
            print(name)
