# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps what Python compiles of zip files, for all processes of an image or of a virtual environment.

Ansible sends each module with its libraries as sources in a zip, and compiling them is the larger part of most tasks.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
import zipimport
from types import CodeType

FOLDER = "/var/cache/keep_compiled" if sys.prefix == sys.base_prefix else f"{sys.prefix}/var/cache/keep_compiled"
compile_source = zipimport._compile_source  # type: ignore[attr-defined]
# zipimport asks twice: where a library is, and for its code.
last: dict[str, CodeType] = {}


def read(name: str) -> CodeType | None:
    """Return the code that is kept under a name, or nothing."""
    try:
        with open(name, "rb") as file:
            code: CodeType = marshal.loads(file.read())  # noqa: S302
    except (OSError, EOFError, ValueError, TypeError):
        return None
    return code


def keep(name: str, code: CodeType) -> None:
    """Keep code under a name, where this user may."""
    scratch = f"{name}.{os.getpid()}"
    try:
        os.makedirs(FOLDER, exist_ok=True)
        with open(scratch, "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(scratch, name)
    except OSError:
        pass


def compiled(path: str, source: bytes) -> CodeType:
    """Return the code of a source, compiled at most once on this host."""
    from importlib.util import source_hash

    name = f"{FOLDER}/{source_hash(source).hex()}"
    code = last.pop(name, None) or read(name)
    if code is None:
        code = compile_source(path, source)
        keep(name, code)
    # It may be kept from another place, which tracebacks and warnings would name.
    _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
    last.clear()
    last[name] = code
    return code


zipimport._compile_source = compiled  # type: ignore[attr-defined]
