# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's daemon.json: merge what is wanted, keep all else, and take back only what was put in."""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
import typing as t
from dataclasses import dataclass

Config = dict[str, t.Any]
Place = tuple[str, ...]

RELOADED = frozenset(
    {
        "allow-nondistributable-artifacts", "authorization-plugins", "debug", "default-runtime", "insecure-registries",
        "labels", "live-restore", "max-concurrent-downloads", "max-concurrent-uploads", "max-download-attempts",
        "registry-mirrors", "runtimes", "shutdown-timeout",
    }
)  # fmt: skip
"""What dockerd takes from its file at SIGHUP (dockerd's documentation, "Configuration reload behavior"). It takes
``features``, too, but looks for CDI devices only if they were switched on when it started."""

COPIES = 5
"""How many copies of a file stay."""

_COPY = re.compile(r"\.\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d\.\d{6}\.cudahub~")
_HALF = re.compile("[\ud800-\udfff]")
_MISSING = object()
_INDENTATION = re.compile(r'\A\s*\{[ \t]*\r?\n([ \t]+)"')


class ConfigError(Exception):
    """What can't be done, in a sentence that goes on from the file's name."""


@dataclass(frozen=True)
class Change:
    """What was done at one place: a value set over another one or none, or entries added to a list."""

    place: Place
    value: t.Any
    before: t.Any = None
    existed: bool = False
    added: bool = False

    def as_data(self) -> dict[str, t.Any]:
        """As the record has it."""
        return {
            "place": list(self.place), "value": self.value, "before": self.before, "existed": self.existed,
            "added": self.added,
        }  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A configuration, and the changes that made it, older ones included."""

    config: Config
    changes: tuple[Change, ...]


def parse(text: str) -> Config:
    """What a file says; as for dockerd, an empty one says nothing, nor a byte order mark. Raises ConfigError."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        return {}
    try:
        config = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"is no JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"has {_kind(config)} where dockerd wants an object, {{...}}")
    half = _HALF.search(json.dumps(config, ensure_ascii=False))
    if half:
        raise ConfigError(f"has half a character, \\u{ord(half[0]):04x}, in a text: correct it")
    return config


def _unique(pairs: list[tuple[str, t.Any]]) -> Config:
    found: Config = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"has the key {json.dumps(key)} twice in one object: leave one of them")
        found[key] = value
    return found


def render(config: Config, like: str) -> str:
    """The text of a configuration, indented as another one."""
    found = _INDENTATION.match(like.removeprefix("\ufeff"))
    return json.dumps(config, indent=found[1] if found else "    ", ensure_ascii=False) + "\n"


def merge(config: Config, wanted: Config, earlier: t.Sequence[Change] = ()) -> Outcome:
    """Put in what is wanted: objects are merged, lists get entries that they lack. Raises ConfigError."""
    after = copy.deepcopy(config)
    changes = list(_merge(after, wanted, ()))
    places = {change.place for change in changes}
    first = {change.place: change for change in earlier if not change.added}
    # What was there before the first change is what absent brings back.
    kept = [change for change in earlier if change.added or change.place not in places]
    merged = [
        Change(change.place, change.value, first[change.place].before, first[change.place].existed)
        if change.place in first and not change.added
        else change
        for change in changes
    ]
    return Outcome(after, (*kept, *merged))


def _merge(target: Config, wanted: Config, where: Place) -> t.Iterator[Change]:
    for key, value in wanted.items():
        place = (*where, key)
        old = target.get(key, _MISSING)
        if old is _MISSING:
            target[key] = copy.deepcopy(value)
            yield Change(place, value)
        elif _kind(old) != _kind(value):
            raise ConfigError(f"has {_kind(old)} at {_path(place)}, where {_kind(value)} is wanted: correct it")
        elif isinstance(value, dict):
            yield from _merge(old, value, place)
        elif isinstance(value, list):
            added = [entry for entry in value if entry not in old]
            old.extend(copy.deepcopy(added))
            if added:
                yield Change(place, added, added=True)
        elif old != value:
            target[key] = value
            yield Change(place, value, old, existed=True)


def given(wanted: Config) -> tuple[Change, ...]:
    """The changes that would have been made where nothing was, for a file without record."""
    found: list[Change] = []

    def collect(value: Config, where: Place) -> None:
        for key, inner in value.items():
            if isinstance(inner, dict) and inner:
                collect(inner, (*where, key))
            else:
                found.append(Change((*where, key), inner, added=isinstance(inner, list) and bool(inner)))

    collect(wanted, ())
    return tuple(found)


def take_back(config: Config, changes: t.Sequence[Change]) -> Outcome:
    """Undo changes, newest first, as far as nobody has changed the same again. Raises ConfigError."""
    after = copy.deepcopy(config)
    for change in reversed(changes):
        _take_back(after, change, change.place)
    # dockerd --validate has nothing against it, and dockerd does not start with it.
    default = after.get("default-runtime")
    if default in (config.get("runtimes") or {}) and default not in (after.get("runtimes") or {}):
        raise ConfigError(f"has the default-runtime {default}, which is to be taken away: choose another one first")
    return Outcome(after, ())


def _take_back(config: Config, change: Change, place: Place) -> None:
    """Undo one change below an object; objects that it leaves empty go, too."""
    key, rest = place[0], place[1:]
    old = config.get(key, _MISSING)
    if rest:
        if isinstance(old, dict):
            _take_back(old, change, rest)
            if not old:
                del config[key]
    elif change.added and isinstance(old, list):
        left = [entry for entry in old if entry not in change.value]
        if left:
            config[key] = left
        elif old:
            del config[key]
    elif old is not _MISSING and isinstance(change.value, dict) and isinstance(old, dict):
        _take_back_object(config, key, change.value)
    elif old is not _MISSING and old == change.value:
        if change.existed:
            config[key] = change.before
        else:
            del config[key]


def _take_back_object(config: Config, key: str, value: Config) -> None:
    """Take an object back that was not there, but for what others have put into it since."""
    inner = config[key]
    for change in given(value):
        _take_back(inner, change, change.place)
    if not inner or inner == value:
        del config[key]


def changes_of(text: str) -> tuple[Change, ...]:
    """The changes in a record. Raises ConfigError."""
    try:
        return tuple(
            Change(tuple(entry["place"]), entry["value"], entry["before"], entry["existed"], entry["added"])
            for entry in json.loads(text)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"is no record of this module ({error}): remove it") from error


def record_of(changes: t.Sequence[Change]) -> str:
    """The text of a record."""
    return json.dumps([change.as_data() for change in changes], indent=1) + "\n"


def needs(before: Config, after: Config) -> str:
    """What dockerd needs to heed a change: ``nothing``, ``reload`` or ``restart``."""
    changed = {
        key for key in (*before, *after) if before.get(key, _MISSING) != after.get(key, _MISSING)
    }  # fmt: skip
    if not changed:
        return "nothing"
    return "reload" if changed <= RELOADED else "restart"


def name_of_copy(name: str, now: dt.datetime) -> str:
    """The name of a copy of a file."""
    return f"{name}.{now:%Y-%m-%d@%H:%M:%S.%f}.cudahub~"


def superfluous_copies(name: str, found: t.Iterable[str]) -> list[str]:
    """The copies of a file among these names that are older than the newest few."""
    return sorted(one for one in found if one.startswith(name) and _COPY.fullmatch(one[len(name) :]))[:-COPIES]


def said_by_dockerd(output: str) -> str:
    """What dockerd has against a file, on one line and without its preface."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    text = " ".join(lines) or "it says nothing"
    return re.sub(r"^unable to configure the Docker daemon with file [^:]+: ", "", text)


def _path(place: Place) -> str:
    return ".".join(place)


def _kind(value: t.Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "a text"
