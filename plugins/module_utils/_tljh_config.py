# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The config.yaml of The Littlest JupyterHub: merge, check, and write it so that all else in it stays as it is.

Self-contained, since the hub's own Python, whose ruamel.yaml reads the file for TLJH, gets this text on standard input
with a call of ``answer`` appended. The library only tells where each value is in the text; values are read by the rules
that TLJH's library has (YAML 1.2), and are changed where they are, so that comments and the form of the rest stay.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import errno
import fcntl
import importlib
import inspect
import ipaddress
import json
import os
import re
import stat
import subprocess
import sys
import time
import typing as t
from dataclasses import asdict, dataclass, field
from pathlib import Path

LIBRARIES = ("ruamel.yaml", "yaml")
MARKER = "cudahub tljh_config "
HIDDEN = "********"
LOCK_POLL = 0.1
HUB_TIMEOUT = 60.0
ALL = 1 << 30
"""A depth that nothing has."""

Place = tuple[str, ...]
Config = dict[t.Any, t.Any]

SETS: frozenset[Place] = frozenset(
    {("users", "admin"), ("users", "allowed"), ("users", "banned"), ("https", "letsencrypt", "domains")}
)
"""Lists in which an entry is there or not; those of users.extra_user_groups are, too."""

AUTHENTICATORS = frozenset(
    {
        "default", "dummy", "null", "pam", "shared-password",
        "firstuse", "firstuseauthenticator", "ldap", "ldapauthenticator", "native", "tmp",
        "auth0", "azuread", "bitbucket", "cilogon", "generic-oauth", "github", "gitlab", "globus", "google",
        "mediawiki", "openshift", "local-auth0", "local-azuread", "local-bitbucket", "local-cilogon",
        "local-generic-oauth", "local-github", "local-gitlab", "local-globus", "local-google", "local-openshift",
    }
)  # fmt: skip
"""Entry points jupyterhub.authenticators of JupyterHub 5 and of what TLJH 2 installs beside it."""


class ConfigError(Exception):
    """What can't be done, in a sentence."""


class NoLibraryError(Exception):
    """There is no library that reads YAML."""


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    config: Config = field(default_factory=dict)
    absent: t.Sequence[str] = ()
    exact: t.Sequence[str] = ()


@dataclass(frozen=True)
class Opaque:
    """A value that is neither text, number, truth value nor null, by its source: a date, or one with a tag."""

    source: str


@dataclass(frozen=True)
class Edited:
    """A text and what it says, before and after."""

    text: str
    before: Config
    after: Config
    changed: bool
    comments_lost: bool
    library: str


# Merging


def merged(before: Config, wish: Wish) -> Config:
    """The configuration with what is asked for. Raises ConfigError."""
    after = copy.deepcopy(before)
    for path in wish.absent:
        _remove(after, find(after, path))
    exact = {place for place in (find(wish.config, path) for path in wish.exact) if place is not None}
    _merge(after, wish.config, (), exact)
    return after


def find(config: Config, path: str) -> Place | None:
    """The keys that a path with dots leads along. Keys may have dots themselves."""
    first, dot, rest = "", ".", path
    while dot:
        head, dot, rest = rest.partition(".")
        first = f"{first}.{head}" if first else head
        key = next((key for key in config if str(key) == first), None)
        if key is None:
            continue
        if not dot:
            return (key,)
        if isinstance(config[key], dict):
            inner = find(config[key], rest)
            if inner is not None:
                return (key, *inner)
    return None


def _remove(config: Config, place: Place | None) -> None:
    """Remove a key, and mappings that it leaves empty, as TLJH's own ``unset`` does."""
    if place is None:
        return
    if len(place) > 1:
        _remove(config[place[0]], place[1:])
    if len(place) == 1 or not config[place[0]]:
        del config[place[0]]


def _merge(target: Config, given: Config, where: Place, exact: t.Collection[Place]) -> None:
    for key, value in given.items():
        place = (*where, key)
        old = target.get(key)
        if old in (None, {}, []) or place in exact:
            target[key] = _fresh(value, place)
        elif isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value, place, exact)
        elif isinstance(old, dict) or isinstance(value, dict) or (is_set(place) and not isinstance(old, list)):
            raise ConfigError(
                f"{'.'.join(place)} is {_kind(old)} in the file, and {_kind(value)} is asked for: name it in exact if "
                "what the file has is to be replaced"
            )
        elif is_set(place):
            old.extend(entry for entry in _unique(value) if entry not in old)
        elif not same(old, value):
            target[key] = _fresh(value, place)


def _kind(value: t.Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else "a single value"


def _fresh(value: t.Any, place: Place) -> t.Any:
    if isinstance(value, dict):
        return {key: _fresh(one, (*place, key)) for key, one in value.items()}
    return _unique(value) if is_set(place) and isinstance(value, list) else copy.deepcopy(value)


def _unique(values: t.Sequence[t.Any]) -> list[t.Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]


def is_set(place: Place) -> bool:
    """Whether the list at a place is one whose order and repetitions TLJH does not read."""
    return place in SETS or (place[:2] == ("users", "extra_user_groups") and len(place) == 3)


def same(one: t.Any, other: t.Any) -> bool:
    """Whether two values mean the same: 2 is 2.0, but neither True is 1 nor the order of keys matters."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other))
    number = (int, float)
    if isinstance(one, number) and isinstance(other, number) and bool not in (type(one), type(other)):
        return one == other or repr(one) == repr(other)
    return type(one) is type(other) and bool(one == other)


# Reading


def _composed(text: str, libraries: t.Sequence[str]) -> tuple[str, t.Any]:
    """Name of the library, and the text as its nodes. Raises ConfigError, NoLibraryError."""
    for library in libraries:
        try:
            yaml = importlib.import_module(library)
            errors = importlib.import_module(f"{library}.error")
        except ImportError:
            continue
        try:
            if library == "yaml":
                node = yaml.compose(text, Loader=yaml.SafeLoader)
            else:
                node = yaml.YAML(typ="safe", pure=True).compose(text)
        except errors.YAMLError as error:
            raise ConfigError(_where_broken(text, error)) from error
        return f"{library} {yaml.__version__}", node
    raise NoLibraryError


def _where_broken(text: str, error: t.Any) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
    else:
        line, column = mark.line, mark.column
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "this is no YAML"
    return _broken(line, column, str(problem).partition("\n")[0])


def _broken(line: int, column: int, problem: str) -> str:
    return f"line {line + 1}, column {column + 1}: {problem}; correct it by hand, since it is not overwritten"


def _mapping(node: t.Any, text: str) -> Config:
    """What the whole text says. Raises ConfigError."""
    value = None if node is None else _value(node, text, ())
    if value is None:
        return {}
    if not isinstance(value, dict):
        mark = node.start_mark
        raise ConfigError(_broken(mark.line, mark.column, "here is no mapping of settings"))
    return value


def _value(node: t.Any, text: str, above: tuple[t.Any, ...]) -> t.Any:
    if node.id == "scalar":
        return _scalar_value(node, text)
    if any(node is one for one in above):
        raise ConfigError(_broken(node.start_mark.line, node.start_mark.column, "this contains itself"))
    above = (*above, node)
    if node.id == "sequence":
        return [_value(one, text, above) for one in node.value]
    result: Config = {}
    merges: list[t.Any] = []
    for key_node, value_node in node.value:
        mark = key_node.start_mark
        if key_node.id != "scalar":
            raise ConfigError(_broken(mark.line, mark.column, "this key is no single value"))
        if _is_merge(key_node):
            brought = _value(value_node, text, above)
            merges += brought if isinstance(brought, list) else [brought]
            continue
        key = _scalar_value(key_node, text)
        if key in result:
            raise ConfigError(_broken(mark.line, mark.column, f"the key {key!r} is there twice"))
        result[key] = _value(value_node, text, above)
    for brought in merges:
        if not isinstance(brought, dict):
            raise ConfigError(_broken(node.start_mark.line, node.start_mark.column, "<< takes mappings only"))
        for key, value in brought.items():
            result.setdefault(key, value)
    return result


def _is_merge(node: t.Any) -> bool:
    return bool(node.id == "scalar" and not node.style and node.value == "<<")


def _scalar_value(node: t.Any, text: str) -> t.Any:
    source = text[node.start_mark.index : node.end_mark.index]
    if re.match(r"(&\S+\s+)?!", source):
        return node.value if node.tag == "tag:yaml.org,2002:str" else Opaque(source)
    return node.value if node.style else _resolved(node.value)


_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|[0-9][0-9_]*|0x[0-9a-fA-F_]+)")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9][0-9_]*)")
_NO_NUMBER = re.compile(r"([-+]?)\.(?:(inf|Inf|INF)|nan|NaN|NAN)")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?(([Tt]|[ \t]+)\d\d?:\d\d:\d\d(\.\d*)?([ \t]*(Z|[-+]\d\d?(:?\d\d)?))?)?")


def _resolved(plain: str) -> t.Any:
    """What a text without quotes is."""
    if plain in _NULLS:
        return None
    if plain in _BOOLEANS:
        return _BOOLEANS[plain]
    if _INTEGER.fullmatch(plain):
        digits = plain.replace("_", "").lower()
        base = {"0b": 2, "0o": 8, "0x": 16}.get(digits.lstrip("+-")[:2], 10)
        return int(digits, base)
    if _FLOAT.fullmatch(plain):
        return float(plain.replace("_", ""))
    special = _NO_NUMBER.fullmatch(plain)
    if special:
        return float(f"{special[1]}{'inf' if special[2] else 'nan'}")
    return Opaque(plain) if plain == "=" or _DATE.fullmatch(plain) else plain


# Writing


@dataclass(frozen=True)
class Style:
    """How far things are indented."""

    mapping: int = 2
    sequence: int = 0


def rendered(value: t.Any, column: int = 0, style: Style | None = None) -> list[str]:
    """Lines of a mapping or a list that has entries."""
    style = style or Style()
    pad = " " * column
    lines: list[str] = []
    if isinstance(value, dict):
        for key, one in value.items():
            if one and isinstance(one, (dict, list)):
                inner = style.mapping if isinstance(one, dict) else style.sequence
                lines += [f"{pad}{inline(key)}:", *rendered(one, column + inner, style)]
            else:
                lines.append(f"{pad}{inline(key)}: {inline(one)}")
        return lines
    for one in value:
        if one and isinstance(one, (dict, list)):
            first, *rest = rendered(one, column + 2, style)
            lines += [f"{pad}- {first[column + 2 :]}", *rest]
        else:
            lines.append(f"{pad}- {inline(one)}")
    return lines


_PLAIN = re.compile(r"[A-Za-z_/][\w./@+:-]*( [\w./@+:-]+)*|\d+(\.\d+)?[KMGT]", re.ASCII)
_OLD_BOOLEANS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def inline(value: t.Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{inline(key)}: {inline(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, Opaque):
        return value.source
    if isinstance(value, float):
        return _float(value)
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _OLD_BOOLEANS and not re.search(r":( |$)", value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in quoted)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _float(value: float) -> str:
    text = repr(value)
    if text.lstrip("-") in ("inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


class UnpatchableError(Exception):
    """A form of YAML in which values are not changed where they are."""


class Patch:
    """Changes of a text, each where the value is."""

    def __init__(self, text: str, style: Style, depth: int) -> None:
        """Take a text that ends with a newline. Below ``depth``, values are written anew as a whole."""
        self.text = text
        self.style = style
        self.depth = depth
        self.comments_lost = False
        self._edits: list[tuple[int, int, str]] = []

    def root(self, node: t.Any, before: Config, after: Config) -> str:
        """The changed text."""
        if node is None or (node.id == "scalar" and node.start_mark.index == node.end_mark.index):
            return "".join([self.text, *(f"{line}\n" for line in rendered(after, 0, self.style))])
        if node.id == "scalar" or node.flow_style or not after:
            self._lose(node.start_mark.index, self._end(node))
            lines = "\n".join(rendered(after, 0, self.style)) if after else "{}"
            self._edit(node.start_mark.index, self._end(node), lines)
        else:
            self._map(node, before, after, 0)
        return self._applied()

    def _edit(self, start: int, end: int, new: str) -> None:
        self._edits.append((start, end, new))

    def _lose(self, start: int, end: int) -> None:
        """Remember that the comments in a value that is written anew are lost."""
        self.comments_lost |= re.search(r"\s#.*\n", self.text[start:end]) is not None

    def _applied(self) -> str:
        parts: list[str] = []
        last = 0
        for start, end, new in sorted(self._edits, key=lambda edit: (edit[0], edit[1] > edit[0])):
            if start < last:
                raise UnpatchableError
            parts += [self.text[last:start], new]
            last = end
        return "".join([*parts, self.text[last:]])

    def _map(self, node: t.Any, before: Config, after: Config, level: int) -> None:
        there = set()
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                continue
            key = _scalar_value(key_node, self.text)
            there.add(key)
            if key not in after:
                start = self._line_start(key_node.start_mark.index)
                self._edit(start, self._next_line(self._pair_end(key_node, value_node)), "")
            elif not same(before[key], after[key]):
                self._change(key_node, value_node, before[key], after[key], level)
        new = {
            key: value
            for key, value in after.items()
            if key not in there and not (key in before and same(before[key], value))
        }
        if new:
            place = self._next_line(self._end(node))
            self._insert(place, rendered(new, _column(node, self.text), self.style))

    def _change(self, key_node: t.Any, node: t.Any, before: t.Any, after: t.Any, level: int) -> None:
        if level < self.depth and after and node.id != "scalar" and not node.flow_style and not _alias(key_node, node):
            if isinstance(before, dict) and isinstance(after, dict):
                self._map(node, before, after, level + 1)
                return
            if isinstance(before, list) and isinstance(after, list):
                self._list(node, before, after, level + 1)
                return
        self._replace(key_node, node, after)

    def _replace(self, key_node: t.Any, node: t.Any, value: t.Any) -> None:
        colon = self.text.index(":", key_node.end_mark.index) + 1
        end = self._pair_end(key_node, node)
        start = min(max(colon, node.start_mark.index), end)
        commented = "#" in self.text[colon:start]
        self._lose(start, end)
        flow = node.id != "scalar" and node.flow_style and node.value and "\n" not in self.text[start:end]
        if not isinstance(value, (dict, list)) or not value or flow:
            self._edit(start if commented else colon, end, ("" if commented else " ") + inline(value))
            return
        column = key_node.start_mark.column
        column += self.style.mapping if isinstance(value, dict) else self.style.sequence
        if commented:
            first, *rest = rendered(value, _column(node, self.text), self.style)
            self._edit(start, end, "\n".join([first.lstrip(), *rest]))
            return
        self._edit(colon, end, "")
        self._insert(self._next_line(end), rendered(value, column, self.style))

    def _list(self, node: t.Any, before: list[t.Any], after: list[t.Any], level: int) -> None:
        starts = self._dashes(node)
        column = _column(node, self.text)
        matcher = difflib.SequenceMatcher(None, list(map(repr, before)), list(map(repr, after)), autojunk=False)
        for kind, first, last, new_first, new_last in matcher.get_opcodes():
            if kind == "equal":
                continue
            new = after[new_first:new_last]
            if kind == "replace" and last - first == len(new):
                for index, value in zip(range(first, last), new):
                    self._item(node.value[index], starts[index], before[index], value, level)
                continue
            for index in range(first, last):
                end = self._next_line(self._end(node.value[index]))
                self._edit(self._line_start(starts[index]), end, "")
            if new:
                at_end = last == len(before)
                place = self._next_line(self._end(node)) if at_end else self._line_start(starts[last])
                self._insert(place, rendered(new, column, self.style))

    def _item(self, node: t.Any, dash: int, before: t.Any, value: t.Any, level: int) -> None:
        start, end = node.start_mark.index, self._end(node)
        if node.id == "mapping" and not node.flow_style and value and isinstance(value, dict) and level < self.depth:
            self._map(node, before, value, level + 1)
        elif node.id == "scalar" and start < end and not (value and isinstance(value, (dict, list))):
            self._edit(start, end, inline(value))
        else:
            begin = self._line_start(dash)
            self._edit(begin, end, "\n".join(rendered([value], dash - begin, self.style)))

    def _dashes(self, node: t.Any) -> list[int]:
        """Where the dashes of a list are."""
        starts = [_first(node, self.text)]
        dashed = re.compile(rf"^ {{{_column(node, self.text)}}}-(?=\s)", re.MULTILINE)
        for last, item in zip(node.value, node.value[1:]):
            place = self._next_line(self._end(last))
            dash = dashed.search(self.text, place, item.start_mark.index + 1)
            if dash is None:
                raise UnpatchableError
            starts.append(dash.end() - 1)
        return starts

    def _insert(self, place: int, lines: t.Sequence[str]) -> None:
        self._edit(place, place, "".join(f"{line}\n" for line in lines))

    def _line_start(self, place: int) -> int:
        start = self.text.rfind("\n", 0, place) + 1
        if self.text[start:place].strip():
            raise UnpatchableError
        return start

    def _next_line(self, place: int) -> int:
        return self.text.index("\n", place) + 1

    def _end(self, node: t.Any) -> int:
        """Where a value ends, without the comments and empty lines that follow it."""
        end = int(node.end_mark.index)
        if node.id == "scalar":
            # a block's end, and the place of no value at all, can be after what follows
            beyond = node.style in ("|", ">") or end == node.start_mark.index
            return len(self.text[:end].rstrip()) if beyond else end
        if node.flow_style or not node.value:
            return end
        if node.id == "sequence":
            return self._end(node.value[-1])
        return self._pair_end(*node.value[-1])

    def _pair_end(self, key_node: t.Any, node: t.Any) -> int:
        place = int(key_node.end_mark.index)
        if _alias(key_node, node):
            name = re.compile(r"\s*:\s*\*[^\s,\[\]{}]+").match(self.text, place)
            if name is None:
                raise UnpatchableError
            return name.end()
        if node.start_mark.index == node.end_mark.index:
            return self.text.index(":", place) + 1
        return self._end(node)


def _alias(key_node: t.Any, node: t.Any) -> bool:
    return bool(node.end_mark.index < key_node.end_mark.index)


def _first(node: t.Any, text: str) -> int:
    """Where the first entry of a block is, which is behind the block's anchor and tag."""
    start = int(node.start_mark.index)
    if node.id == "scalar" or text[start] not in "&!" or not node.value:
        return start
    if node.id == "sequence":
        return text.rindex("-", start, node.value[0].start_mark.index)
    return int(node.value[0][0].start_mark.index)


def _column(node: t.Any, text: str) -> int:
    """How far a block is indented."""
    first = _first(node, text)
    return first - text.rfind("\n", 0, first) - 1


def _style(node: t.Any, text: str) -> Style:
    """The indentation that a text has."""
    found: dict[str, int] = {}

    def look(one: t.Any) -> None:
        if one.id == "scalar" or one.flow_style:
            return
        for pair in one.value:
            key, value = pair if one.id == "mapping" else (None, pair)
            if key is not None and value.id != "scalar" and not value.flow_style and not _alias(key, value):
                found.setdefault(value.id, _column(value, text) - _column(one, text))
            if key is None or not _alias(key, value):
                look(value)

    if node is not None:
        look(node)
    return Style(max(found.get("mapping", 2), 1), max(found.get("sequence", 0), 0))


def edit(text: str, wish: Wish, libraries: t.Sequence[str] = LIBRARIES) -> Edited:
    """Change a text. Raises ConfigError, NoLibraryError."""
    library, node = _composed(text, libraries)
    before = _mapping(node, text)
    after = merged(before, wish)
    new, comments_lost = text, False
    changed = not same(before, after)
    if changed:
        new, comments_lost = _changed(text, before, after, libraries)
    return Edited(new, shown(before), shown(after), changed, comments_lost, library)


def _changed(text: str, before: Config, after: Config, libraries: t.Sequence[str]) -> tuple[str, bool]:
    text = text if text.endswith("\n") or not text else f"{text}\n"
    node = _composed(text, libraries)[1]
    for depth in (ALL, 0):
        patch = Patch(text, _style(node, text), depth)
        try:
            new = patch.root(node, before, after)
            if same(_mapping(_composed(new, libraries)[1], new), after):
                return new, patch.comments_lost
        except (UnpatchableError, ConfigError):
            continue
    heading = re.match(r"([ \t]*(#.*)?\n)*", text)
    new = "".join([heading[0] if heading else "", *(f"{line}\n" for line in rendered(after) or ["{}"])])
    if not same(_mapping(_composed(new, libraries)[1], new), after):
        raise ConfigError("what is asked for can't be written as YAML that reads the same: this is a mistake of ours")
    return new, "#" in text[heading.end() if heading else 0 :]


def shown(value: t.Any) -> t.Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else inline(key): shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shown(one) for one in value]
    if isinstance(value, Opaque) or (isinstance(value, float) and repr(value).lstrip("-") in ("inf", "nan")):
        return inline(value)
    return value


# The hub's Python


def hub_python(path: str) -> str | None:
    """The Python of the hub that a config.yaml is of."""
    python = Path(path).parent.parent / "hub/bin/python"
    return str(python) if os.access(python, os.X_OK) else None


def edit_with(python: str | None, text: str, wish: Wish) -> Edited:
    """Change a text with the library that a Python has, or with one of ours. Raises ConfigError, NoLibraryError."""
    answered = None if python is None else _asked(python, text, wish)
    if answered is None:
        return edit(text, wish)
    if "error" in answered:
        raise ConfigError(answered["error"])
    return Edited(**{**answered, "library": f"{answered['library']} of {python}"})


def _asked(python: str, text: str, wish: Wish) -> dict[str, t.Any] | None:
    """What the other Python answers; None where it can't."""
    question = json.dumps({"text": text, "wish": asdict(wish)})
    program = f"{inspect.getsource(sys.modules[__name__])}\nanswer({question!r})\n"
    try:
        ended = subprocess.run(  # pylint: disable=ansible-bad-function
            [python, "-I", "-"], input=program.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd="/", timeout=HUB_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = ended.stdout.decode(errors="replace").splitlines()
    line = next((line for line in lines if line.startswith(MARKER)), None)
    answered: dict[str, t.Any] | None = None if line is None else json.loads(line[len(MARKER) :])
    return answered


def answer(question: str) -> None:
    """Say in the hub's Python what became of a text."""
    asked = json.loads(question)
    try:
        answered = asdict(edit(asked["text"], Wish(**asked["wish"]), LIBRARIES[:1]))
    except ConfigError as error:
        answered = {"error": str(error)}
    sys.stdout.write(f"{MARKER}{json.dumps(answered)}\n")


# Checking


def refused(wish: Wish) -> list[str]:
    """What can't be right in paths."""
    wrong = []
    for option, paths in (("absent", wish.absent), ("exact", wish.exact)):
        for path in paths:
            there = find(wish.config, path)
            if not all(path.split(".")):
                wrong.append(f"{option}: {path!r} is no path of keys with dots between them, as users.admin")
            elif option == "absent" and there is not None:
                wrong.append(f"absent: {path} is in config, too: leave it out of one of them")
            elif option == "exact" and there is None:
                wrong.append(f"exact: {path} is not in config: say there what it is to be")
    return wrong


Check = t.Callable[[t.Any], bool]


def _is_whole(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_port(value: t.Any) -> bool:
    return _is_whole(value) and 1 <= value <= 65535


def _is_truth(value: t.Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: t.Any) -> bool:
    return isinstance(value, str)


def _is_base_url(value: t.Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"/[^\s?#]*", value) is not None


def _is_authenticator(value: t.Any) -> bool:
    if not isinstance(value, str):
        return False
    return value.lower() in AUTHENTICATORS or re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", value) is not None


def _is_memory(value: t.Any) -> bool:
    return value is None or (isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?[KMGT]", value) is not None)


def _is_cpu(value: t.Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or (number and 0 <= value < float("inf"))


def _is_address(value: t.Any) -> bool:
    if not isinstance(value, str):
        return False
    if value.startswith("[") and value.endswith("]"):
        try:
            return ipaddress.ip_address(value[1:-1]).version == 6
        except ValueError:
            return False
    if re.fullmatch(r"[\d.]+", value):
        try:
            return ipaddress.ip_address(value).version == 4
        except ValueError:
            return False
    return re.fullmatch(r"[A-Za-z0-9.-]*", value) is not None


def _is_certificate(value: t.Any) -> bool:
    home = r"/(home|root|run/user)(/.*)?"  # ProtectHome of traefik.service hides these
    return isinstance(value, str) and (
        not value or (value[0] == "/" and not re.fullmatch(home, os.path.normpath(value)))
    )


def _is_mail(value: t.Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"([^\s@]+@[^\s@]+)?", value) is not None


def _is_name(value: t.Any) -> bool:
    return isinstance(value, str) and value == value.strip() != "" and not set(value) & set("/:\n")


def _is_domain(value: t.Any) -> bool:
    label = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    return isinstance(value, str) and len(value) < 254 and re.fullmatch(rf"({label}\.)+{label}", value) is not None


_PORT: tuple[Check, str] = (_is_port, "give a number from 1 to 65535")
_TRUTH: tuple[Check, str] = (_is_truth, "give true or false")
_WHOLE: tuple[Check, str] = (_is_whole, "give a whole number, 0 or more")
_ADDRESS: tuple[Check, str] = (_is_address, "give an address of this host, or '' for all, without port")
_TEXT: tuple[Check, str] = (_is_text, "give a text")
_CERTIFICATE: tuple[Check, str] = (
    _is_certificate,
    "give an absolute path outside of /home and /root, which the proxy can't read",
)

SETTINGS: dict[Place, tuple[Check, str]] = {
    ("base_url",): (_is_base_url, "give a path that begins with /"),
    ("auth", "type"): (
        _is_authenticator,
        "give a short name such as github, or the path of a class such as package.module.Class",
    ),
    ("limits", "memory"): (_is_memory, "give a text such as '2G' with K, M, G or T, or null for no limit"),
    ("limits", "cpu"): (_is_cpu, "give a number of cores, or null for no limit"),
    ("http", "address"): _ADDRESS,
    ("http", "port"): _PORT,
    ("https", "enabled"): _TRUTH,
    ("https", "address"): _ADDRESS,
    ("https", "port"): _PORT,
    ("https", "tls", "key"): _CERTIFICATE,
    ("https", "tls", "cert"): _CERTIFICATE,
    ("https", "letsencrypt", "email"): (_is_mail, "give an address of mail"),
    ("https", "letsencrypt", "staging"): _TRUTH,
    ("user_environment", "default_app"): (
        lambda value: value in ("jupyterlab", "classic"),
        "give jupyterlab or classic",
    ),
    ("services", "cull", "enabled"): _TRUTH,
    ("services", "cull", "timeout"): _WHOLE,
    ("services", "cull", "every"): _WHOLE,
    ("services", "cull", "concurrency"): _WHOLE,
    ("services", "cull", "users"): _TRUTH,
    ("services", "cull", "max_age"): _WHOLE,
    ("services", "cull", "remove_named_servers"): _TRUTH,
    ("traefik_api", "ip"): _ADDRESS,
    ("traefik_api", "port"): _PORT,
    ("traefik_api", "username"): _TEXT,
    ("traefik_api", "password"): _TEXT,
}

LISTS: dict[Place, tuple[Check, str]] = {
    **{
        ("users", name): (_is_name, "give names of users, without colon and slash")
        for name in ("admin", "allowed", "banned", "extra_user_groups")
    },
    ("https", "letsencrypt", "domains"): (_is_domain, "give names of hosts, without https:// and *"),
}

OPEN = frozenset({("auth",), ("services",), ("users", "extra_user_groups")})
"""Mappings that may have keys that TLJH itself does not know."""


def _sections() -> dict[Place, list[str]]:
    found: dict[Place, list[str]] = {("users", "extra_user_groups"): []}
    for place in [*SETTINGS, *LISTS]:
        for length in range(1, len(place)):
            names = found.setdefault(place[:length], [])
            if place[length] not in names:
                names.append(place[length])
    return found


SECTIONS = _sections()


def mistakes(config: Config) -> list[str]:
    """What the hub or the proxy of TLJH would not start with, or not heed, one sentence each."""
    wrong: list[str] = []
    for place, names in SECTIONS.items():
        there, section = at(config, place)
        if there and not isinstance(section, dict):
            wrong.append(f"{'.'.join(place)} is {quoted(place, section)}: give a mapping of settings")
        elif there and place not in OPEN:
            wrong += [
                f"{'.'.join(place)}.{key} is no setting of TLJH, which has {', '.join(names)} there"
                for key in section
                if key not in names
            ]
    for place, (check, need) in SETTINGS.items():
        there, value = at(config, place)
        if there and not check(value):
            wrong.append(f"{'.'.join(place)} is {quoted(place, value)}: {need}")
    return wrong + _mistakes_in_lists(config) + _mistakes_of_authenticators(config)


def _mistakes_in_lists(config: Config) -> list[str]:
    wrong: list[str] = []
    for place, (check, need) in LISTS.items():
        there, value = at(config, place)
        lists = {place: value} if there else {}
        if place == ("users", "extra_user_groups"):
            lists = {(*place, str(key)): one for key, one in value.items()} if isinstance(value, dict) else {}
            wrong += [
                f"{'.'.join(place)} has the group {name[-1]!r}: give names of groups"
                for name in lists
                if re.search(r"[\s:,/]|^$", name[-1])
            ]
        for name, entries in lists.items():
            if not isinstance(entries, list):
                wrong.append(f"{'.'.join(name)} is {quoted(name, entries)}: give a list")
            else:
                bad = [json.dumps(entry) for entry in entries if not check(entry)]
                wrong += [f"{'.'.join(name)} has {entry}: {need}" for entry in bad]
    return wrong


def _mistakes_of_authenticators(config: Config) -> list[str]:
    settings = config.get("auth")
    if not isinstance(settings, dict):
        return []
    return [
        f"auth.{key} is nothing that TLJH takes: what an authenticator has is in a mapping with the name of its class, "
        "as auth.GitHubOAuthenticator"
        for key, value in settings.items()
        if key != "type" and not (isinstance(value, dict) and key[:1] and key[0] == key[0].upper())
    ]


def contradictions(config: Config) -> list[str]:
    """Settings of a whole configuration that don't go together, one sentence each."""
    wrong: list[str] = []

    def value(*place: str, default: t.Any = "") -> t.Any:
        there, found = at(config, place)
        return found if there else default

    email, domains = value("https", "letsencrypt", "email"), value("https", "letsencrypt", "domains")
    if bool(email) != bool(domains):
        has, needs = ("email", "domains") if email else ("domains", "email")
        wrong.append(f"https.letsencrypt has {has} and no {needs}: give both")
    cert, key = value("https", "tls", "cert"), value("https", "tls", "key")
    if bool(cert) != bool(key):
        has, needs = ("cert", "key") if cert else ("key", "cert")
        wrong.append(f"https.tls has {has} and no {needs}: give both")
    if value("https", "enabled") is True:
        if not (cert or email or domains or key):
            wrong.append(
                "https.enabled is true, and there is no certificate: give https.tls.cert and key, or "
                "https.letsencrypt.email and domains"
            )
        if value("http", "port", default=80) == value("https", "port", default=443):
            wrong.append("http.port and https.port are the same: the proxy needs both, so give two numbers")
    return wrong


def at(config: t.Any, place: Place) -> tuple[bool, t.Any]:
    """Whether there is a value, and which."""
    for key in place:
        if not isinstance(config, dict) or key not in config:
            return False, None
        config = config[key]
    return True, config


def quoted(place: Place, value: t.Any) -> str:
    """A value for a message."""
    text = json.dumps(masked(value, place[-1]), ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


# What has to be restarted


TRAEFIK_API: dict[str, set[str]] = {"ip": set(), "port": {"proxy"}}
"""Who reads what of traefik_api, if not the hub. The address is read by none."""


def reloads(before: Config, after: Config) -> list[str]:
    """Components for ``tljh-config reload``: those that read a setting that changed.

    The templates of traefik read http, https and traefik_api.port, https only where it is enabled. The hub reads
    https.enabled and all that is not the proxy's; what TLJH does not know can be read by its plugins and by files in
    jupyterhub_config.d.
    """
    old, new = leaves(before), leaves(after)
    secure = any(at(config, ("https", "enabled"))[1] is True for config in (before, after))
    needed: set[str] = set()
    for place in {**old, **new}:
        if place in old and place in new and same(old[place], new[place]):
            continue
        if place[0] in ("http", "https"):
            if place[0] == "http" or secure:
                needed.add("proxy")
            if place[:2] == ("https", "enabled") and secure:
                needed.add("hub")
        elif place[0] == "traefik_api":
            needed |= TRAEFIK_API.get(place[-1], {"hub"})
        else:
            needed.add("hub")
    return sorted(needed)


def leaves(config: Config, above: Place = ()) -> dict[Place, t.Any]:
    """All values that are no mappings, by their places; sets in an order that is always the same."""
    found: dict[Place, t.Any] = {}
    for key, value in config.items():
        place = (*above, key)
        if isinstance(value, dict):
            found.update(leaves(value, place))
        elif is_set(place) and isinstance(value, list):
            found[place] = sorted(set(map(inline, value)))
        else:
            found[place] = value
    return found


# Secrets

_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|(cookie|api|private|crypt|access)_?key|(^|_)keys$", re.IGNORECASE
)
_NO_SECRET = re.compile(
    r"(_|^)(url|uri|method|length|endpoint|hours|seconds|lifetime|expir\w*|enabled)$", re.IGNORECASE
)


def is_secret(key: str) -> bool:
    """Whether the value of a key is nobody's business."""
    return _SECRET.search(key) is not None and _NO_SECRET.search(key) is None


def masked(value: t.Any, key: str = "", other: t.Any = None) -> t.Any:
    """A value without secrets. One that ``other`` has differently says so."""
    if isinstance(value, dict):
        beside = other if isinstance(other, dict) else {}
        return {
            name: masked(one, key if is_secret(key) else str(name), beside.get(name)) for name, one in value.items()
        }
    if isinstance(value, list):
        beside_list = other if isinstance(other, list) else []
        padded = [*beside_list, *[None] * len(value)]
        return [masked(one, key, padded[index]) for index, one in enumerate(value)]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if is_secret(key):
        return HIDDEN if other is None or same(value, other) else f"{HIDDEN} (another one)"
    return re.sub(r"(://[^/:@\s]*):[^@/\s]+@", rf"\1:{HIDDEN}@", value) if isinstance(value, str) else value


def secrets(value: t.Any, key: str = "") -> set[str]:
    """All texts that ``masked`` hides."""
    if isinstance(value, dict):
        return {text for name, one in value.items() for text in secrets(one, key if is_secret(key) else str(name))}
    if isinstance(value, list):
        return {text for one in value for text in secrets(one, key)}
    if value is None or isinstance(value, bool):
        return set()
    if is_secret(key):
        return {str(value)} - {""}
    return set(re.findall(r"://[^/:@\s]*:([^@/\s]+)@", value)) if isinstance(value, str) else set()


def difference(before: Config, after: Config) -> tuple[str, str]:
    """Both configurations for the eye, without secrets."""
    texts = [masked(before), masked(after, other=before)]
    old, new = ("".join(f"{line}\n" for line in rendered(text)) for text in texts)
    return old, new


# Files


def read(path: str) -> str | None:
    """The text of a file; None where it is not there. Raises ConfigError, OSError."""
    try:
        # a pipe would never end
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigError("it is no file")
        data = Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = data[: error.start]
        column = len(start) - start.rfind(b"\n") - 1
        raise ConfigError(_broken(start.count(b"\n"), column, "here is no text in UTF-8")) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write(path: str, text: str) -> None:
    """Write a file as a whole or not at all. Owner and mode stay; a new one can be read by its owner only."""
    target = Path(path).resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        _create(beside, text.encode(), _state(target))
        beside.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
    # a crash of the machine must not leave the old name with nothing
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def keep(path: str, now: float) -> str | None:
    """Copy a file, if it is there, and return the copy's path."""
    target = Path(path).resolve()
    state = _state(target)
    if state is None:
        return None
    stamp = time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime(now))
    number = 0
    while True:
        copy_path = target.with_name(f"{target.name}.{stamp}{f'-{number}' if number else ''}")
        try:
            _create(copy_path, target.read_bytes(), state)
        except FileExistsError:
            number += 1
            continue
        return str(copy_path)


def _state(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _create(path: Path, data: bytes, like: os.stat_result | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if like is not None:
            if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        file.write(data)
        file.flush()
        os.fsync(descriptor)


@contextlib.contextmanager
def locked(path: str, timeout: float) -> t.Iterator[None]:
    """Keep ``tljh-config`` and others like us from the file, by TLJH's own lock. Raises ConfigError, OSError."""
    deadline = time.monotonic() + timeout
    with os.fdopen(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"another process has held {path}.lock for {timeout:.0f} s: wait until it is done, or end it, and "
                    "run this again"
                )
            time.sleep(LOCK_POLL)
        yield
