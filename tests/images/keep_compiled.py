# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps what Python compiles of zip files, for all of an image's processes.

Ansible sends each module with its libraries as sources in a zip, and compiling them is the larger part of most tasks.
"""

from __future__ import annotations

import marshal
import os
import zipimport
from contextlib import suppress
from types import CodeType

FOLDER = "/var/cache/keep_compiled"
compile_source = zipimport._compile_source  # type: ignore[attr-defined]


def compiled(path: str, source: bytes) -> CodeType:
    """Return the code of a source, compiled at most once on this host."""
    from importlib.util import source_hash

    name = f"{FOLDER}/{source_hash(source).hex()}"
    with suppress(OSError, EOFError, ValueError, TypeError), open(name, "rb") as file:
        return marshal.loads(file.read())  # noqa: S302
    code: CodeType = compile_source(path, source)
    scratch = f"{name}.{os.getpid()}"
    with suppress(OSError):
        os.makedirs(FOLDER, exist_ok=True)
        with open(scratch, "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(scratch, name)
    return code


zipimport._compile_source = compiled  # type: ignore[attr-defined]
