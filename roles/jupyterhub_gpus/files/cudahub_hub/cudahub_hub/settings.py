# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules by which GPUs are given, read from the settings file that Ansible writes."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

FORMAT = 1

Policy = t.Literal["exclusive", "share"]


class ConfigurationError(Exception):
    """A file that the hub needs is wrong; the message says where, how, and what to do."""


@dataclass(frozen=True)
class Pool:
    """GPUs that are given by one policy to some or all users."""

    name: str
    policy: Policy = "exclusive"
    servers_per_gpu: int = 1
    gpus: tuple[str, ...] | None = None
    groups: frozenset[str] | None = None
    images: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Limits:
    """How many GPUs a user may hold at one time; None: no limit."""

    default: int | None = 1
    users: t.Mapping[str, int | None] = field(default_factory=dict)
    groups: t.Mapping[str, int | None] = field(default_factory=dict)

    def of(self, user: str, groups: t.Iterable[str] = ()) -> int | None:
        """The user's own limit, else the largest of their groups', else the default."""
        if user in self.users:
            return self.users[user]
        theirs = [self.groups[group] for group in groups if group in self.groups]
        if not theirs:
            return self.default
        numbers = [limit for limit in theirs if limit is not None]
        return max(numbers) if len(numbers) == len(theirs) else None


@dataclass(frozen=True)
class Idle:
    """When a server whose GPU does nothing is warned and stopped; 0 minutes: never."""

    minutes: int = 60
    warn_minutes: int = 10
    utilization_percent: int = 5


@dataclass(frozen=True)
class Settings:
    """What the settings file says."""

    inventory: Path = Path("/etc/cudahub/gpus.json")
    database: Path = Path("/var/lib/cudahub/hub/leases.sqlite")
    usage: Path = Path("/run/cudahub/gpus.json")
    pools: tuple[Pool, ...] = (Pool("default"),)
    limits: Limits = field(default_factory=Limits)
    form_default: t.Literal["gpu", "none"] = "gpu"
    idle: Idle = field(default_factory=Idle)
    # The piece of configuration of the hub that gives these GPUs; None: not known.
    hub: str | None = None


class Reader:
    """Takes values out of decoded JSON; what is wrong becomes one sentence that names the file and the place."""

    def __init__(self, path: Path, remedy: str) -> None:
        """Reads a file; the remedy ends each sentence."""
        self.path = path
        self.remedy = remedy

    def wrong(self, problem: str) -> ConfigurationError:
        """The error to raise for a problem."""
        return ConfigurationError(f"{self.path}: {problem}. {self.remedy}")

    def load(self) -> dict[str, t.Any]:
        """The whole file, of the format that this version reads."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self.wrong("the file does not exist") from None
        except UnicodeDecodeError:
            raise self.wrong("the file is not text in UTF-8") from None
        except OSError as error:
            raise self.wrong(f"the file can't be read ({error.strerror})") from None
        if not text.strip():
            raise self.wrong("the file is empty")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"the file is not JSON ({error})") from None
        top = self.mapping(data, "the file")
        if "format" not in top:
            raise self.wrong("format is missing")
        if not is_integer(top["format"]) or top["format"] != FORMAT:
            raise self.wrong(f"format is {shown(top['format'])}, and this version of cudahub_hub reads format {FORMAT}")
        return top

    def mapping(self, value: t.Any, where: str, known: t.Iterable[str] | None = None) -> dict[str, t.Any]:
        """A JSON object, with no keys besides the known ones."""
        if not isinstance(value, dict):
            raise self.wrong(f"{where} must be an object, not {shown(value)}")
        if known is not None:
            unknown = sorted(set(value) - set(known))
            if unknown:
                keys = "keys" if len(unknown) > 1 else "key"
                raise self.wrong(f"{where} has the unknown {keys} {', '.join(map(shown, unknown))}")
        return value

    def items(self, value: t.Any, where: str) -> list[t.Any]:
        """A list."""
        if not isinstance(value, list):
            raise self.wrong(f"{where} must be a list, not {shown(value)}")
        return value

    def text(self, value: t.Any, where: str) -> str:
        """A text with something in it."""
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(f"{where} must be a text, not {shown(value)}")
        return value

    def texts(self, value: t.Any, where: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self.text(item, f"{where}[{place}]") for place, item in enumerate(self.items(value, where)))

    def flag(self, value: t.Any, where: str) -> bool:
        """True or false."""
        if not isinstance(value, bool):
            raise self.wrong(f"{where} must be true or false, not {shown(value)}")
        return value

    def number(self, value: t.Any, where: str, lowest: int = 0, highest: int | None = None) -> int:
        """A whole number in its bounds."""
        if not is_integer(value) or value < lowest or (highest is not None and value > highest):
            bounds = f"from {lowest} to {highest}" if highest is not None else f"of {lowest} or more"
            raise self.wrong(f"{where} must be a whole number {bounds}, not {shown(value)}")
        return value

    def choice(self, value: t.Any, where: str, choices: t.Sequence[str]) -> str:
        """One of some texts."""
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(f"{where} must be {' or '.join(map(shown, choices))}, not {shown(value)}")
        return value


def is_integer(value: t.Any) -> t.TypeGuard[int]:
    """Whether a value is a whole number, which true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: t.Any) -> str:
    """A value in a sentence, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_settings(path: Path) -> Settings:
    """The settings in a file.

    Raises:
        ConfigurationError: The file can't be read or something in it is wrong.
    """
    reader = Reader(path, "Run the playbook again, or correct the file")
    known = ("format", "inventory", "database", "usage", "pools", "limits", "form_default", "idle", "hub")
    top = reader.mapping(reader.load(), "the file", known)
    return Settings(
        inventory=_place(reader, top, "inventory", Settings.inventory),
        database=_place(reader, top, "database", Settings.database),
        usage=_place(reader, top, "usage", Settings.usage),
        pools=_pools(reader, top["pools"]) if "pools" in top else Settings.pools,
        limits=_limits(reader, top.get("limits", {})),
        form_default=t.cast(
            "t.Literal['gpu', 'none']", reader.choice(top.get("form_default", "gpu"), "form_default", ("gpu", "none"))
        ),
        idle=_idle(reader, top.get("idle", {})),
        hub=reader.text(top["hub"], "hub") if "hub" in top else None,
    )


def _place(reader: Reader, top: dict[str, t.Any], key: str, default: Path) -> Path:
    if key not in top:
        return default
    place = Path(reader.text(top[key], key))
    if not place.is_absolute():
        raise reader.wrong(f"{key} must be an absolute path, not {shown(top[key])}")
    return place


def _pools(reader: Reader, value: t.Any) -> tuple[Pool, ...]:
    pools = tuple(_pool(reader, item, f"pools[{place}]") for place, item in enumerate(reader.items(value, "pools")))
    if not pools:
        raise reader.wrong("pools is empty, so no GPU could be given")
    names: set[str] = set()
    owner: dict[str, str] = {}
    for pool in pools:
        if pool.name in names:
            raise reader.wrong(f"two pools have the name {shown(pool.name)}")
        names.add(pool.name)
        if pool.gpus is None and len(pools) > 1:
            raise reader.wrong(
                f"pool {shown(pool.name)} has all GPUs (gpus is null) although there are other pools; "
                "a GPU may be in one pool only"
            )
        for uuid in pool.gpus or ():
            if uuid in owner:
                where = f"pool {shown(pool.name)} twice"
                if owner[uuid] != pool.name:
                    where = f"the pools {shown(owner[uuid])} and {shown(pool.name)}, and may be in one only"
                raise reader.wrong(f"{uuid} is in {where}")
            owner[uuid] = pool.name
    return pools


def _pool(reader: Reader, value: t.Any, where: str) -> Pool:
    data = reader.mapping(value, where, ("name", "policy", "servers_per_gpu", "gpus", "groups", "images"))
    if "name" not in data:
        raise reader.wrong(f"{where} has no name")
    name = reader.text(data["name"], f"{where}.name")
    where = f"pool {shown(name)}:"
    policy = reader.choice(data.get("policy", "exclusive"), f"{where} policy", ("exclusive", "share"))
    servers = reader.number(data.get("servers_per_gpu", 1), f"{where} servers_per_gpu", 1)
    if policy == "exclusive" and servers != 1:
        raise reader.wrong(f"{where} servers_per_gpu is {servers}, and the policy exclusive gives a GPU to one server")
    gpus, groups, images = (
        None if data.get(key) is None else reader.texts(data[key], f"{where} {key}")
        for key in ("gpus", "groups", "images")
    )
    for key, texts, everything in (
        ("gpus", gpus, "all GPUs"),
        ("groups", groups, "everybody"),
        ("images", images, "all images"),
    ):
        if texts is not None and not texts:
            raise reader.wrong(f"{where} {key} is an empty list; name some, or write null for {everything}")
    return Pool(
        name=name,
        policy=t.cast("Policy", policy),
        servers_per_gpu=servers,
        gpus=gpus,
        groups=None if groups is None else frozenset(groups),
        images=images,
    )


def _limits(reader: Reader, value: t.Any) -> Limits:
    data = reader.mapping(value, "limits", ("default", "users", "groups"))
    return Limits(
        default=_limit(reader, data.get("default", Limits.default), "limits.default"),
        users=_limits_by_name(reader, data.get("users", {}), "limits.users"),
        groups=_limits_by_name(reader, data.get("groups", {}), "limits.groups"),
    )


def _limits_by_name(reader: Reader, value: t.Any, where: str) -> dict[str, int | None]:
    return {name: _limit(reader, limit, f"{where}.{name}") for name, limit in reader.mapping(value, where).items()}


def _limit(reader: Reader, value: t.Any, where: str) -> int | None:
    return None if value is None else reader.number(value, where)


def _idle(reader: Reader, value: t.Any) -> Idle:
    data = reader.mapping(value, "idle", ("minutes", "warn_minutes", "utilization_percent"))
    return Idle(
        minutes=reader.number(data.get("minutes", Idle.minutes), "idle.minutes"),
        warn_minutes=reader.number(data.get("warn_minutes", Idle.warn_minutes), "idle.warn_minutes"),
        utilization_percent=reader.number(
            data.get("utilization_percent", Idle.utilization_percent), "idle.utilization_percent", 0, 100
        ),
    )
