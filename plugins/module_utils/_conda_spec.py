# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a spec of conda asks for, and whether a package is that: versions in conda's order, and all forms of specs.

The forms are those of https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html and of CEP 29.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
import typing as t
from dataclasses import dataclass, field

Piece = tuple[int, t.Union[int, str]]
"""A part of a version that is compared at once, with its rank: dev, other letters, numbers, post."""

Segment = tuple[Piece, ...]
Test = t.Callable[["Version"], bool]

ZERO: Piece = (2, 0)

_VERSION = re.compile(r"(?:(?P<epoch>\d+)!)?(?P<release>[a-z0-9._-]+)(?:\+(?P<local>[a-z0-9._-]+))?")
_RUN = re.compile(r"\d+|[a-z]+|_")
_ATOM = re.compile(r"(?P<operator>~=|==|!=|<=|>=|=|<|>)?\s*(?P<version>[^=<>!~\s]\S*)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BRACKETS = re.compile(r"(?P<before>[^\[\]]*)\[(?P<inside>[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]\s*")
_PAIR = re.compile(
    r"\s*(?P<key>[a-z_0-9]+)\s*=\s*(?:'(?P<one>[^']*)'|\"(?P<two>[^\"]*)\"|(?P<plain>[^,'\"\s]*))\s*(?:,|\Z)"
)
_ARCHIVE = re.compile(r"(?P<name>[^/\\]+)-(?P<version>[^/\\-]+)-(?P<build>[^/\\-]+)(?:\.conda|\.tar\.bz2)")
_KEYS = ("version", "build", "build_number", "channel", "subdir", "name", "md5", "sha256", "url", "fn")


class SpecError(ValueError):
    """A text that is no version or no spec, in a sentence."""


@functools.total_ordering
@dataclass(frozen=True)
class Version:
    """A version; two of them that differ only in zeros at the end are equal."""

    text: str = field(compare=False)
    epoch: int = field(compare=False)
    release: tuple[Segment, ...] = field(compare=False)
    local: tuple[Segment, ...] = field(compare=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return self.epoch == other.epoch and not _difference(self, other)

    def __lt__(self, other: Version) -> bool:
        if self.epoch != other.epoch:
            return self.epoch < other.epoch
        difference = _difference(self, other)
        return difference is not None and difference[0] < difference[1]

    def __hash__(self) -> int:
        return hash((self.epoch, _trimmed(self.release), _trimmed(self.local)))

    def starts_with(self, other: Version) -> bool:
        """Whether it is that version, or one below it, as 1.26.4 is below 1.26."""
        if self.epoch != other.epoch:
            return False
        if other.local:
            return not _differs(self.release, other.release) and _begins(self.local, other.local)
        return _begins(self.release, other.release)


def _difference(one: Version, other: Version) -> tuple[Piece, Piece] | None:
    """The first pieces that differ."""
    return _differs(one.release, other.release) or _differs(one.local, other.local)


def _differs(one: t.Sequence[Segment], other: t.Sequence[Segment]) -> tuple[Piece, Piece] | None:
    for left, right in itertools.zip_longest(one, other, fillvalue=()):
        for pair in itertools.zip_longest(left, right, fillvalue=ZERO):
            if pair[0] != pair[1]:
                return pair
    return None


def _begins(whole: t.Sequence[Segment], start: t.Sequence[Segment]) -> bool:
    """Whether segments begin with others, where the last one may end in the middle of letters."""
    place = len(start) - 1
    if _differs(whole[:place], start[:place]):
        return False
    segment = whole[place] if place < len(whole) else ()
    *before, last = start[place]
    if _differs([segment[: len(before)]], [tuple(before)]):
        return False
    piece = segment[len(before)] if len(before) < len(segment) else ZERO
    if isinstance(last[1], str) and isinstance(piece[1], str) and last[0] == piece[0] == 1:
        return piece[1].startswith(last[1])
    return piece == last


def _trimmed(segments: t.Sequence[Segment]) -> tuple[Segment, ...]:
    """Without the zeros at the ends, which compare as if they were not there."""
    cut = [_without_zeros(segment) for segment in segments]
    while cut and not cut[-1]:
        cut.pop()
    return tuple(cut)


def _without_zeros(segment: Segment) -> Segment:
    end = len(segment)
    while end and segment[end - 1] == ZERO:
        end -= 1
    return segment[:end]


@functools.cache
def parse_version(text: str) -> Version:
    """A version. Raises SpecError."""
    match = _VERSION.fullmatch(text.strip().lower())
    if match is None:
        raise SpecError(f"{text!r} is no version of a conda package")
    release, local = match["release"].replace("-", "_"), (match["local"] or "").replace("-", "_")
    return Version(text.strip(), int(match["epoch"] or 0), _segments(release, text), _segments(local, text))


def _segments(text: str, whole: str) -> tuple[Segment, ...]:
    if not text:
        return ()
    body, openssl = (text[:-1], "_") if text.endswith("_") else (text, "")
    parts = re.split(r"[._]", body)
    parts[-1] += openssl
    if not all(parts):
        raise SpecError(f"{whole!r} is no version of a conda package: it has an empty part")
    return tuple(_segment(part) for part in parts)


def _segment(text: str) -> Segment:
    pieces = tuple(_piece(run) for run in _RUN.findall(text))
    return pieces if text[0].isdigit() else (ZERO, *pieces)


def _piece(run: str) -> Piece:
    if run.isdigit():
        return 2, int(run)
    if run == "dev":
        return 0, ""
    return (3, 0) if run == "post" else (1, run)


@dataclass(frozen=True)
class VersionSpec:
    """Which versions are wanted, as ``>=1.26,<2|3.*``: ``,`` binds before ``|``."""

    text: str
    _test: Test = field(compare=False, repr=False)

    def matches(self, version: str) -> bool:
        return self._test(parse_version(version))


def parse_version_spec(text: str) -> VersionSpec:
    """Raises SpecError."""
    tokens = [token.strip() for token in re.split(r"([,|()])", text) if token.strip()]
    if not tokens:
        raise SpecError("a version is empty")
    test, rest = _either(tokens, text)
    if rest:
        raise SpecError(f"{text!r} is no version spec: {rest[0]!r} stands where nothing is expected")
    return VersionSpec(text.strip(), test)


def _either(tokens: list[str], text: str) -> tuple[Test, list[str]]:
    tests, rest = _joined(tokens, "|", _every, text)
    return lambda version: any(test(version) for test in tests), rest


def _every(tokens: list[str], text: str) -> tuple[Test, list[str]]:
    tests, rest = _joined(tokens, ",", _atom, text)
    return lambda version: all(test(version) for test in tests), rest


def _joined(
    tokens: list[str], separator: str, part: t.Callable[[list[str], str], tuple[Test, list[str]]], text: str
) -> tuple[list[Test], list[str]]:
    test, rest = part(tokens, text)
    tests = [test]
    while rest and rest[0] == separator:
        test, rest = part(rest[1:], text)
        tests.append(test)
    return tests, rest


def _atom(tokens: list[str], text: str) -> tuple[Test, list[str]]:
    if tokens and tokens[0] == "(":
        test, rest = _either(tokens[1:], text)
        if not rest or rest[0] != ")":
            raise SpecError(f"{text!r} is no version spec: a parenthesis is not closed")
        return test, rest[1:]
    match = _ATOM.fullmatch(tokens[0]) if tokens else None
    if match is None:
        raise SpecError(f"{text!r} is no version spec: a version is missing{f' at {tokens[0]!r}' if tokens else ''}")
    return _constraint(match["operator"] or "", match["version"], text), tokens[1:]


def _constraint(operator: str, wanted: str, text: str) -> Test:
    if wanted == "*" and operator in ("", "=", "==", ">="):
        return lambda _version: True
    below = wanted.endswith("*")
    plain = wanted.rstrip("*").rstrip(".") if below else wanted
    if not plain or "*" in plain or (below and operator == "~="):
        raise SpecError(f"{text!r} is no version spec: {wanted!r} can't be compared")
    if below and operator in ("==", "<", "<=", ">"):
        raise SpecError(f"{text!r} is no version spec that all tools read alike: write ={plain}, or {operator}{plain}")
    limit = parse_version(plain)
    if operator == "=" or (below and operator == ""):
        return lambda version: version.starts_with(limit)
    if operator == "!=" and below:
        return lambda version: not version.starts_with(limit)
    if operator == "~=":
        head = _head(limit, plain)
        return lambda version: version >= limit and version.starts_with(head)
    return {
        "": lambda version: version == limit,
        "==": lambda version: version == limit,
        "!=": lambda version: version != limit,
        "<": lambda version: version < limit,
        "<=": lambda version: version <= limit,
        ">": lambda version: version > limit,
        ">=": lambda version: version >= limit,
    }[operator]


def _head(limit: Version, text: str) -> Version:
    """The version without its last part, for ~=."""
    if len(limit.release) < 2:
        raise SpecError(f"'~={text}' is no version spec: ~= needs a version of two parts or more")
    return Version(text, limit.epoch, limit.release[:-1], ())


@dataclass(frozen=True)
class Package:
    """A package as a channel or an environment has it."""

    name: str
    version: str
    build: str
    build_number: int = 0
    channel: str = ""
    subdir: str = ""
    md5: str = ""
    sha256: str = ""
    url: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.version}={self.build}"


@dataclass(frozen=True)
class Spec:
    """What is asked for. None is what may be anything."""

    text: str
    name: str
    version: VersionSpec | None = None
    build: str | None = None
    build_number: VersionSpec | None = None
    channel: str | None = None
    subdir: str | None = None
    md5: str | None = None
    sha256: str | None = None
    url: str | None = None

    def matches(self, package: Package) -> bool:
        """Whether a package is what is asked for."""
        return (
            self.name == package.name.lower()
            and (self.version is None or self.version.matches(package.version))
            and (self.build is None or _is_build(self.build, package.build))
            and (self.build_number is None or self.build_number.matches(str(package.build_number)))
            and (self.channel is None or _is_channel(self.channel, package.channel))
            and self.subdir in (None, package.subdir)
            and self.md5 in (None, package.md5)
            and self.sha256 in (None, package.sha256)
            and self.url in (None, package.url)
        )


def _is_build(wanted: str, build: str) -> bool:
    if wanted.startswith("^") and wanted.endswith("$"):
        return re.fullmatch(wanted, build) is not None
    return fnmatch.fnmatchcase(build, wanted.replace("[", "[[]"))


def channel_name(channel: str) -> str:
    """``conda-forge`` of its address, which on a mirror has another host, without the platform."""
    path = re.sub(r"^[a-z]+://[^/]*/", "", channel.strip()).rstrip("/")
    path = re.sub(r"/(?:noarch|(?:linux|osx|win|emscripten|wasi|zos)-[a-z0-9]+)$", "", f"/{path}")
    path = re.sub(r"^/t/[^/]+", "", path)
    return path.strip("/")


def _is_channel(wanted: str, channel: str) -> bool:
    name, there = channel_name(wanted), channel_name(channel)
    return there == name or there.endswith(f"/{name}")


def parse_spec(text: str) -> Spec:
    """A spec in any form of conda's. Raises SpecError."""
    whole = text.split("#", 1)[0].strip() if "://" not in text else text.strip()
    archive = _ARCHIVE.fullmatch(whole.split("#", 1)[0].rsplit("/", 1)[-1])
    if archive is not None and "::" not in whole:
        return _archive(whole, archive)
    bracket = _BRACKETS.fullmatch(whole)
    values = _pairs(bracket["inside"], text) if bracket else {}
    rest = (bracket["before"] if bracket else whole).strip()
    channel, separator, rest = rest.rpartition("::") if "::" in rest else ("", "", rest)
    name, constraint = _split_name(rest.strip() or values.get("name", ""), text)
    version, build = _split_build(constraint, text)
    subdir = re.search(r"/(noarch|(?:linux|osx|win)-[a-z0-9]+)$", channel)
    values = {
        **({"channel": channel} if separator and channel else {}),
        **({"subdir": subdir[1]} if subdir else {}),
        **({"version": version} if version else {}),
        **({"build": build} if build else {}),
        **{key: value for key, value in values.items() if key != "name"},
    }
    return _spec(whole, name, values)


def _spec(text: str, name: str, values: t.Mapping[str, str]) -> Spec:
    def version(key: str) -> VersionSpec | None:
        return parse_version_spec(values[key]) if values.get(key) not in (None, "", "*") else None

    build = values.get("build")
    return Spec(
        text,
        name.lower(),
        version("version"),
        None if build in (None, "", "*") else build,
        version("build_number"),
        values.get("channel"),
        values.get("subdir"),
        values.get("md5"),
        values.get("sha256"),
        values.get("url"),
    )


def _archive(text: str, match: re.Match[str]) -> Spec:
    """The spec of one file of a package, as ``@EXPLICIT`` files have it."""
    url, _mark, digest = text.partition("#")
    values = {"version": f"=={match['version']}", "build": match["build"]}
    if "://" in url:
        values["url"] = url
    if digest:
        values["sha256" if digest.startswith("sha256:") or len(digest) == 64 else "md5"] = digest.rpartition(":")[2]
    return _spec(text, match["name"], values)


def _pairs(text: str, whole: str) -> dict[str, str]:
    values: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _PAIR.match(text, place)
        if match is None or match["key"] not in _KEYS:
            keys = ", ".join(_KEYS)
            raise SpecError(f"{whole!r} is no spec of a package: write [key=value, …] with the keys {keys}")
        values[match["key"]] = next(one for one in (match["one"], match["two"], match["plain"]) if one is not None)
        place = match.end()
    return values


def _split_name(text: str, whole: str) -> tuple[str, str]:
    match = _NAME.match(text)
    if match is None:
        raise SpecError(f"{whole!r} is no spec of a package: it has no name")
    rest = text[match.end() :]
    if rest and rest[0] not in " =<>!~":
        raise SpecError(f"{whole!r} is no spec of a package: {rest[0]!r} can't follow the name {match[0]!r}")
    return match[0], rest.strip()


def _split_build(text: str, whole: str) -> tuple[str, str]:
    """Version and build of what comes after the name. Only ``name=1.2`` and ``name=1.2=build`` are special forms."""
    if not text:
        return "", ""
    simple = re.fullmatch(r"=\s*([^=<>!~,|\s]+)(?:\s*=\s*|\s+)([^=<>!~,|\s]+)", text)
    if simple:
        return simple[1], simple[2]
    spaced = re.fullmatch(r"(\S*[^\s=<>!~,|])\s+([^\s=<>!~,|]+)", text)
    if spaced:
        return spaced[1], spaced[2]
    exact = re.fullmatch(r"==\s*([^=<>!~,|\s]+)=([^=<>!~,|\s]+)", text)
    if exact:
        return f"=={exact[1]}", exact[2]
    if re.search(r"(?<![=<>!~])=[^=<>!~,|\s]+=", text):
        raise SpecError(f"{whole!r} is no spec of a package: write name=version=build")
    return re.sub(r"\s+", "", text), ""
