# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What conda, mamba and micromamba answer with --json: the packages of a transaction, or why there is none."""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import dataclass

from ._conda_spec import Package

Kind = t.Literal[
    "unsolvable",
    "cuda",
    "package",
    "channel",
    "network",
    "disk",
    "permission",
    "frozen",
    "terms",
    "corrupt",
    "checksum",
    "no_environment",
    "spec",
    "pip",
    "broken",
]

LONGEST = 400
"""Letters of a tool's own words that a sentence has room for."""

_ADVICE: t.Mapping[Kind, str] = {
    "unsolvable": "ask for less, or for other versions",
    "cuda": "install a newer driver, ask for packages of an older CUDA, or set cuda for a machine without GPU",
    "package": "check names and versions, and whether a channel is missing",
    "channel": "check channels, and that the channel has a noarch/repodata.json",
    "network": "check network, proxy and address, or name a mirror",
    "disk": "make room there",
    "permission": "run the task as the owner of the environment, or with become: true",
    "frozen": "update another environment, or remove the protection yourself",
    "terms": "use other channels, such as conda-forge, or accept the terms yourself",
    "corrupt": "set state to absent and build it again, or set verify to have it repaired",
    "checksum": "remove that file from the cache of packages, and look whether the channel or a mirror has changed it",
    "no_environment": "check prefix or name",
    "spec": "correct the spec",
    "pip": "correct the lines of pip, or look whether the package index can be reached",
    "broken": "look whether the tool runs by itself, or install it again",
}
_EXCEPTIONS: t.Mapping[str, Kind] = {
    "UnsatisfiableError": "unsolvable",
    "LibMambaUnsatisfiableError": "unsolvable",
    "SpecsConfigurationConflictError": "unsolvable",
    "PackagesNotFoundError": "package",
    "PackagesNotFoundInChannelsError": "package",
    "ResolvePackageNotFound": "package",
    "UnavailableInvalidChannel": "channel",
    "ChannelNotAllowed": "channel",
    "CondaHTTPError": "network",
    "CondaSSLError": "network",
    "ProxyError": "network",
    "OfflineError": "network",
    "NoSpaceLeftError": "disk",
    "EnvironmentNotWritableError": "permission",
    "NotWritableError": "permission",
    "NoWritablePkgsDirError": "permission",
    "NoWritableEnvsDirError": "permission",
    "EnvironmentIsFrozenError": "frozen",
    "CondaToSNonInteractiveError": "terms",
    "CorruptedEnvironmentError": "corrupt",
    "ChecksumMismatchError": "checksum",
    "SafetyError": "checksum",
    "EnvironmentLocationNotFound": "no_environment",
    "EnvironmentNameNotFound": "no_environment",
    "DirectoryNotACondaEnvironmentError": "no_environment",
    "InvalidVersionSpec": "spec",
    "InvalidMatchSpec": "spec",
    "InvalidSpec": "spec",
}
"""Names of conda's exceptions, conda/exceptions.py and the plugins for terms of service and libmamba."""

_WORDS: t.Sequence[tuple[str, Kind]] = (
    (r"no space left|disk quota exceeded", "disk"),
    (r"permission denied|read-only file system|not writable", "permission"),
    (r"frozen", "frozen"),
    (r"terms of service", "terms"),
    (r"could not solve|unsatisfiable|incompatible", "unsolvable"),
    (r"invalid ?(?:version|match)?spec|error parsing (?:version|spec)|parsing matchspec", "spec"),
    (r"checksum|sha256 .*mismatch|md5 .*mismatch", "checksum"),
    (r"json\.exception\.parse_error|corrupted", "corrupt"),
    (r"subdir \S+ not loaded|noarch/repodata", "channel"),
    (r"download error|could not resolve|connection|timed out|ssl|certificate", "network"),
    (r"no prefix found|environment must first be created|not a conda environment", "no_environment"),
)
_HIDDEN = "'OSError' object has no attribute 'dump_map'"
"""What conda 24 says instead of several errors of the operating system."""

_CUDA = re.compile(r"__cuda\b")
_MISSING = re.compile(
    r"does not exist \(perhaps a typo or a missing channel\)|nothing provides (?!__cuda)(?:requested )?\S+"
)
_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s@]+@")
_TOKEN = re.compile(r"/t/[^/\s]+")


class ToolError(Exception):
    """What a tool could not do: the kind, its own reason, and what to do about it."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(f"{reason}: {_ADVICE[kind]}")
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True)
class Answer:
    """What a tool has done or would do. ``size`` are the bytes to download."""

    link: tuple[Package, ...] = ()
    unlink: tuple[Package, ...] = ()
    fetch: tuple[Package, ...] = ()
    size: int = 0

    @property
    def empty(self) -> bool:
        return not (self.link or self.unlink)


def read(stdout: str, stderr: str, code: int) -> Answer:
    """The answer. Raises ToolError.

    A tool that prints no JSON has failed, whatever its exit status is, and what it printed instead is the reason.
    """
    if code != 0 and _HIDDEN in f"{stdout}{stderr}":
        raise ToolError("disk", "a file can't be written, most often because the disk is full, and conda hides why")
    value = _value(stdout)
    if value is None:
        raise _without_json(stdout, stderr, code)
    if code != 0 or value.get("success") is False or "exception_name" in value or "error" in value:
        raise _failure(value, stderr, code)
    actions = value.get("actions") or {}
    merged = [actions] if isinstance(actions, dict) else list(actions)

    def packages(key: str) -> tuple[Package, ...]:
        return tuple(_package(one) for action in merged for one in action.get(key) or ())

    size = sum(int(one.get("size") or 0) for action in merged for one in action.get("FETCH") or ())
    return Answer(packages("LINK"), packages("UNLINK"), packages("FETCH"), size)


def _value(stdout: str) -> dict[str, t.Any] | None:
    """The JSON object in the output; progress lines of some versions stand before it."""
    start = stdout.find("{")
    while start != -1:
        try:
            value, _end = json.JSONDecoder().raw_decode(stdout[start:])
        except (json.JSONDecodeError, RecursionError):
            start = stdout.find("{", stdout.find("\n", start) + 1) if "\n" in stdout[start:] else -1
            continue
        if isinstance(value, dict) and not value.keys() <= {"fetch", "finished", "maxval", "progress"}:
            return value
        start = stdout.find("{", start + _end)
    return None


def _package(value: t.Mapping[str, t.Any]) -> Package:
    channel = str(value.get("base_url") or value.get("channel") or "")
    return Package(
        name=str(value["name"]).lower(),
        version=str(value["version"]),
        build=str(value.get("build") or value.get("build_string") or ""),
        build_number=int(value.get("build_number") or 0),
        channel=channel,
        subdir=str(value.get("subdir") or value.get("platform") or ""),
        md5=str(value.get("md5") or ""),
        sha256=str(value.get("sha256") or ""),
        url=str(value.get("url") or ""),
    )


def _failure(value: t.Mapping[str, t.Any], stderr: str, code: int) -> ToolError:
    several = [one for one in value.get("errors") or () if isinstance(one, dict)]
    if several:
        return _failure(several[0], stderr, code)
    name = str(value.get("exception_name") or "")
    log = [str(one.get("message") or "") for one in value.get("log_history") or () if isinstance(one, dict)]
    levels = [str(one.get("level") or "") for one in value.get("log_history") or () if isinstance(one, dict)]
    serious = [text for text, level in zip(log, levels) if level in ("error", "critical")]
    text = str(value.get("message") or value.get("error") or "") or next(iter(serious), "")
    text = text or stderr.strip() or f"it ended with status {code}"
    kind = _EXCEPTIONS.get(name) or _kind(_without_advice(text))
    if kind in ("unsolvable", "package") and _MISSING.search(text):
        kind = "package"
    elif kind == "unsolvable" and _CUDA.search(text):
        kind = "cuda"
        text = _about_cuda(text)
    return ToolError(kind, condensed(text))


def _about_cuda(text: str) -> str:
    """What conda says of CUDA among other things; all of a text that says it in other lines."""
    lines = [line for line in text.splitlines() if " -> __cuda" in line]
    version = [line for line in text.splitlines() if "installed version" in line]
    return "\n".join(dict.fromkeys([*lines, *version])) if lines else text


def _without_json(stdout: str, stderr: str, code: int) -> ToolError:
    lines = [line.strip() for line in (stderr or stdout).splitlines() if line.strip()]
    if code < 0:
        memory = ", as where memory runs out" if code == -9 else ""
        return ToolError("broken", f"it was ended by signal {-code}{memory}")
    text = lines[-1] if lines else f"it printed nothing and ended with status {code}"
    kind = _kind(text)
    return ToolError(kind, condensed(re.sub(r"^(?:\w+\.)*(\w+(?:Error|Exception|Spec)): ", "", text)))


def _kind(text: str) -> Kind:
    return next((kind for pattern, kind in _WORDS if re.search(pattern, text, re.IGNORECASE)), "broken")


def condensed(text: str) -> str:
    """A tool's words in one line, without its advice, frames, passwords and tokens."""
    joined = re.sub(
        r"^(?:Could not solve for environment specs|Multiple errors occurred:)\s+", "", _without_advice(text)
    )
    shortened = joined if len(joined) <= LONGEST else joined[: LONGEST - 1].rsplit(" ", 1)[0] + " …"
    return shortened.rstrip(" .:;,")


def _without_advice(text: str) -> str:
    kept: list[str] = []
    in_list = False
    for line in without_secrets(text).splitlines():
        words = " ".join(re.sub(r"[│├└─]+", " ", line).split())
        if words.startswith("Output in format: Requested package"):
            continue
        if re.match(r"(?:To search for alternate|You will need to|If you|Please try|As of conda|Use `conda)", words):
            break
        if words:
            entry = words.startswith("- ")
            kept.append(("; " if entry and in_list else " ") + words.removeprefix("- "))
            in_list = entry
    return "".join(kept).strip()


def without_secrets(text: str) -> str:
    """A text whose addresses have neither passwords nor tokens."""
    return _TOKEN.sub("/t/********", _ADDRESS.sub(r"\g<scheme>********@", text))
