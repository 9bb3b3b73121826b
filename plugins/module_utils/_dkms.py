# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DKMS: which modules are built for which kernels, and why one is not."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from pathlib import Path

if t.TYPE_CHECKING:
    from ._packages import Log, Result, Run
    from ._pci import Files

TREE = "/var/lib/dkms"
"""Where DKMS keeps modules, their builds and their logs."""

_STATUS = re.compile(
    r"""^(?P<module>[^\s,/:]+)(?:/|,\s*)(?P<version>[^\s,:]+)
        (?:,\s*(?P<kernel>[^\s,:]+),\s*(?P<machine>[^\s,:]+))?
        :\s*(?P<state>[a-z-]+)""",
    re.VERBOSE,
)
_HEADER = re.compile(r"make\.log for (?P<module>[^/\s]+)[/-](?P<version>\d\S*) for kernel (?P<kernel>\S+)")
_FAILED = re.compile(r"Bad return status for module build on kernel:\s*(?P<kernel>\S+)")
_CONSULT = re.compile(r"(?P<log>/\S+/(?P<module>[^/\s]+)/(?P<version>[^/\s]+)/build/make\.log)")

_COMPILER = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?: (?P<text>(?:fatal )?error: .+)$")
_OTHER_ERRORS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?:\S*/)?(?P<tool>ld|modpost|objtool|cc1|gcc\S*|sh)(?:\.bfd)?: (?P<text>.*(?:error|undefined|not found).*)$",
        r"^(?P<text>(?:ERROR|Error|FATAL)\b:? .+)$",
        r"^(?P<text>(?:modpost|BTF): .*(?:ERROR|FAILED).*)$",
        r"^(?P<text>.*(?:No space left on device|Cannot allocate memory|Killed|command not found).*)$",
    )
)
_MAKE = re.compile(r"^g?make(?:\[\d+\])?: \*\*\* (?P<text>.+)$")


@dataclass(frozen=True)
class Build:
    """A line of ``dkms status``: kernel and machine are None where the module is built for none yet."""

    module: str
    version: str
    kernel: str | None
    machine: str | None
    state: str

    @property
    def is_installed(self) -> bool:
        return self.state == "installed" and self.kernel is not None


@dataclass(frozen=True)
class Failure:
    """A module that was not built for a kernel."""

    module: str
    version: str
    kernel: str
    error: str | None
    log: str | None


def parse_status(text: str) -> tuple[Build, ...]:
    """The modules of ``dkms status``, as dkms 2.x and 3.x print them; lines of another form are skipped."""
    builds = []
    for line in text.splitlines():
        match = _STATUS.match(line.strip())
        if match is None or match["module"] in {"Error!", "Warning", "Deprecated"}:
            continue
        builds.append(Build(match["module"], match["version"], match["kernel"], match["machine"], match["state"]))
    return tuple(builds)


def status(run: Run) -> tuple[Build, ...]:
    """The modules that DKMS of this host knows; none where there is no DKMS."""
    return parse_status(run(["dkms", "status"], {"LC_ALL": "C"}).stdout)


def of_driver(builds: t.Iterable[Build], version: str | None = None) -> tuple[Build, ...]:
    """The NVIDIA driver's builds, of one upstream version if one is given.

    The driver's DKMS module is called nvidia, nvidia-open, nvidia-current, nvidia-srv and so on; its version is the
    driver's.
    """
    return tuple(
        build
        for build in builds
        if re.fullmatch(r"nvidia(?:-[a-z0-9.-]+)?", build.module)
        and not build.module.startswith(("nvidia-fs", "nvidia-peer"))
        and (version is None or build.version == version)
    )


def failures_in(output: str) -> tuple[Failure, ...]:
    """The failed builds that the output of a package manager or of dkms tells of, in its order, without their error."""
    found: dict[tuple[str, str, str], Failure] = {}
    kernel = ""
    for line in output.splitlines():
        failed = _FAILED.search(line)
        if failed:
            kernel = failed["kernel"]
        consult = _CONSULT.search(line)
        if consult and kernel:
            key = (consult["module"], consult["version"], kernel)
            found.setdefault(key, Failure(*key, error=None, log=consult["log"]))
            kernel = ""
    return tuple(found.values())


def log_of(files: Files, module: str, version: str, kernel: str, machine: str) -> str | None:
    """Path of the make.log of the latest build of a module for a kernel; None where there is none.

    A failed build leaves it in the module's ``build`` directory, a finished one under the kernel's name. A log in
    ``build`` that says it is another kernel's is not taken.
    """
    base = f"{TREE}/{module}/{version}"
    path = f"{base}/build/make.log"
    text = files.read(path)
    if text is not None:
        header = _HEADER.search(text[:2000])
        if header is None or header["kernel"] == kernel:
            return path
    path = f"{base}/{kernel}/{machine}/log/make.log"
    return path if files.exists(path) else None


def first_error(text: str) -> str | None:
    """The first error of a make.log in one line, the compiler's own words; None where it tells of none.

    Paths are shortened to where they are in the module's or the kernel's source, columns are left out:
    ``nvidia/nv-pci.c:237: error: too few arguments to function 'pci_resize_resource'``.
    """
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        match = _COMPILER.match(line)
        if match and not match["file"].endswith(("conftest.c", "conftest.h")):
            return _plain(f"{shortened(match['file'])}:{match['line']}: {match['text']}")
    for pattern in _OTHER_ERRORS:
        for line in lines:
            match = pattern.match(line)
            if match:
                tool = match.groupdict().get("tool")
                return _plain(f"{tool}: {match['text']}" if tool else match["text"])
    for line in lines:
        match = _MAKE.match(line)
        if match:
            return _plain(f"make: {match['text']}")
    return None


def shortened(path: str) -> str:
    """A source file's path without the build directory or the kernel headers' directory in front of it."""
    return re.sub(r"^.*?/(?:build|linux-headers-[^/]+|kernels/[^/]+|source)/(?=.)", "", path)


def _plain(text: str) -> str:
    text = text.translate({0x2018: "'", 0x2019: "'"})
    text = re.sub(
        r"/(?:var/lib/dkms/[^/\s]+/[^/\s]+/build|usr/src/(?:linux-headers|kernels)[^/\s]*/?[^/\s]*)/", "", text
    )
    return re.sub(r"\s+", " ", text).strip()[:300]


class HostDkms:
    """DKMS of this host. Copies of failed builds' logs go to files that begin with ``kept``."""

    def __init__(self, run: Run, log: Log, files: Files, machine: str, kept: str) -> None:
        self._run = run
        self._log = log
        self._files = files
        self._machine = machine
        self._kept = kept

    def status(self) -> tuple[Build, ...]:
        return status(self._run)

    def build(self, module: str, version: str, kernel: str) -> Result:
        return self._log.run(["dkms", "install", "-m", module, "-v", version, "-k", kernel], {"LC_ALL": "C"})

    def log(self, module: str, version: str, kernel: str) -> str | None:
        path = log_of(self._files, module, version, kernel, self._machine)
        return self._files.read(path) if path else None

    def keep(self, failure: Failure, text: str) -> str:
        path = Path(f"{self._kept}{failure.module}-{failure.version}-{failure.kernel}.log")
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
        return str(path)
