# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the description of a deep-learning image to its Containerfile, files, digest and names."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field

import yaml  # type: ignore[import-untyped]

Read = t.Callable[[str], str]
"""Returns the text of a file of the controller, or raises OSError or UnicodeDecodeError."""

PREFIX = "/opt/cudahub/venv"
BIN = "/opt/cudahub/bin"
OWN_LABEL = "org.cudahub.role"
NAME_LABEL = "org.cudahub.image"
DIGEST_LABEL = "org.cudahub.digest"
OWN = {"labels": "org.cudahub.", "environment": "CUDAHUB_"}
"""What the names begin with that the role itself gives."""
ROLE = "dl_images"
NONE = "none"
CPU = "cpu"
CUDA = ("12", "13", CPU)
CHECKS = ("nvml", "framework", "cupy")
JUPYTER_PORT = 8888
TAG_LENGTH = 12
UNPROVEN = "-unproven"
FULL_BYTES = 64 * 1024**2
TIMED_OUT = 124
"""What the command timeout ends with."""
KEYS = frozenset({
    "apt", "base", "command", "conda", "cuda", "entrypoint_checks", "environment", "examples", "framework", "labels",
    "name", "pip", "ports", "python", "requirements", "tag", "uid", "user", "workspace",
})  # fmt: skip
SYSTEM = frozenset({
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "root", "run", "sbin", "sys", "usr", "var",
})  # fmt: skip
"""Directories of the root that are no place for a workspace."""
SHARED = frozenset({"home", "media", "mnt", "opt", "srv", "tmp"})
"""Directories of the root that are none themselves, but have room for one."""
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
LOCKS = "locks/"
"""What the name of a list of this role's begins with, when it is read."""

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
# Of Docker's own registry; others may have a project of the name library.
_SHORTENED = re.compile(r"((index\.)?docker\.io|library)/")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_BASE = re.compile(
    rf"(?:[A-Za-z0-9.-]+(?::\d+)?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@sha256:[0-9a-f]{64})?"
)
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._, -]+\])?\s*===?\s*[A-Za-z0-9.!+_-]+(?:\s*;[^\n]*)?")
# With a minus at its end, apt removes the package.
_APT = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+](?::[a-z0-9]+)?(?:=[A-Za-z0-9.+:~-]*[A-Za-z0-9.+~])?")
_CONDA = re.compile(r"[A-Za-z0-9_.:/-]+(?:\[[^\]\n]*\])?[ =<>!~A-Za-z0-9.,*_+-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
# 3.1 is what YAML makes of 3.10.
_PYTHON = re.compile(r"3\.(?:[6-9]|[1-9]\d)")
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}")
_PATH = re.compile(r"/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._/-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Download:
    """A file that the build downloads, and what its SHA-256 has to be."""

    url: str = ""
    checksum: str = ""

    @property
    def usable(self) -> bool:
        """Whether it can be downloaded and checked."""
        return bool(re.fullmatch(r"https?://[^\s\"'\\$]+", self.url) and _CHECKSUM.fullmatch(self.checksum))


@dataclass(frozen=True)
class Settings:
    """What all images share."""

    base: str
    python: str
    cuda: str
    """Empty if it is not known."""
    frameworks: t.Mapping[str, t.Any]
    """The table of the lock files that are there."""
    prefix: str = ""
    """Registry and namespace, with a slash at the end; or empty."""
    files: t.Mapping[str, str] = field(default_factory=dict)
    """What is copied into ``/opt/cudahub/bin``."""
    micromamba: Download = Download()
    examples: Download = Download()
    no_cuda: str = "the host has no GPU"
    """Why it is not known."""
    run: str = ""
    """A word that tells this run from others at the same time."""


@dataclass(frozen=True)
class Image:
    """One description with all defaults in their places."""

    name: str
    tag: str
    base: str
    framework: str
    python: str
    cuda: str
    apt: tuple[str, ...]
    pip: tuple[str, ...]
    requirements: str
    """The text of the file."""
    conda: tuple[str, ...]
    conda_file: str
    """The text of the environment file."""
    examples: bool
    workspace: str
    ports: tuple[int, ...]
    user: str
    uid: int
    checks: tuple[str, ...]
    environment: t.Mapping[str, str]
    labels: t.Mapping[str, str]
    command: tuple[str, ...]
    version: str
    pythons: tuple[str, ...]
    """The versions that a list of this role's is for."""
    download_bytes: int

    @property
    def hashed(self) -> bool:
        """Whether the requirements carry hashes."""
        return any(hashed for _line, hashed in entries(self.requirements))

    @property
    def has_conda(self) -> bool:
        """Whether its Python is conda's."""
        return bool(self.conda or self.conda_file)

    @property
    def has_cupy(self) -> bool:
        """Whether CuPy is in it, which the GPUs are proven with."""
        return self.has(r"cupy(?:-cuda\d+x)?")

    def has(self, name: str) -> bool:
        """Whether a distribution, given by a regular expression, is asked for."""
        wanted = (*logical_lines(self.requirements), *self.pip, *self.conda, *dependencies(self.conda_file))
        return any(_is(name, one) for one in wanted)


@dataclass(frozen=True)
class Build:
    """What the role has to bring about for one image."""

    name: str
    place: str
    """Name and digest as one part of a path, so that runs at the same time don't meet."""
    repository: str
    reference: str
    candidate: str
    references: tuple[str, ...]
    digest: str
    cuda: str
    framework: str
    cupy: bool
    python: str
    download_bytes: int
    """Size of the wheels, as far as it is known beforehand."""
    labels: t.Mapping[str, str]
    files: t.Mapping[str, str]


def _is(name: str, spec: str) -> bool:
    return re.match(rf"(?:\S+::)?(?:{name})(?![\w.-])", spec) is not None


class _Mistakes:
    """Collects sentences about one image."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.sentences: list[str] = []

    def add(self, key: str, what: str) -> None:
        self.sentences.append(f"dl_images_images: image {self.label} has {key} {what}.")


def plan(descriptions: t.Sequence[t.Any], settings: Settings, read: Read) -> tuple[list[Build], list[str]]:
    """What to build for some descriptions, and a sentence for each mistake in them."""
    builds: list[Build] = []
    sentences: list[str] = []
    names = Counter(str(one.get("name")) for one in descriptions if isinstance(one, t.Mapping))
    for number, described in enumerate(descriptions, start=1):
        if not isinstance(described, t.Mapping):
            sentences.append(f"dl_images_images: entry {number} is {described!r}, which is no description of an image.")
            continue
        label = str(described.get("name") or f"number {number}")
        image, found = _image(described, label, settings, read)
        sentences += found
        if image is not None and names[image.name] == 1:
            builds.append(build_of(image, settings))
    for name, count in names.items():
        if count > 1:
            sentences.append(f"dl_images_images: name {name} is given to {count} images: give each image its own.")
    return builds, sentences


def _image(
    described: t.Mapping[str, t.Any], label: str, settings: Settings, read: Read
) -> tuple[Image | None, list[str]]:
    wrong = _Mistakes(label)
    unknown = sorted(set(map(str, described)) - KEYS)
    if unknown:
        wrong.add(f"key{'s' * (len(unknown) > 1)} {', '.join(unknown)}", f"which no image has: give {_listed(KEYS)}")
    get = {key: value for key, value in described.items() if value is not None}
    name, tag = _names(get, settings.prefix, wrong)
    framework = str(get.get("framework", NONE))
    if framework not in (*settings.frameworks, NONE):
        wrong.add(f"framework '{framework}'", f"which is unknown: give one of {_listed([*settings.frameworks, NONE])}")
    python = str(get.get("python") or settings.python)
    if not _PYTHON.fullmatch(python):
        wrong.add(f"python '{python}'", 'which is no version such as "3.13" in quotes')
    base = str(get.get("base") or settings.base.replace("{python}", python))
    _check_base(base, wrong)
    conda, conda_file = _conda(get.get("conda"), settings, read, wrong)
    table = settings.frameworks.get(framework, {})
    cuda = _cuda(get, framework, table, settings, wrong)
    requirements, lock = _requirements(get, framework, table, cuda, python, read, wrong)
    pip = _texts(get, "pip", _PINNED, "is not pinned: give name==version", wrong)
    workspace, user, uid = _inside(get, wrong)
    examples = _truth(get, "examples", wrong)
    if examples:
        _check_examples(framework, settings, wrong)
    command = tuple(map(str, _list(get, "command", wrong)))
    if not command and framework == NONE:
        wrong.add(f"framework {NONE}", "and no command, and so nothing to run: give command as a list of words")
    ports = _ports(get, jupyter=not command, wrong=wrong)
    image = Image(
        name=name, tag=tag, base=base, framework=framework, python=python, cuda=cuda, pip=pip,
        version=str(lock.get("version", "")), pythons=tuple(table["pythons"] if lock else ()),
        download_bytes=int(lock.get("bytes", 0)),
        apt=_texts(get, "apt", _APT, "is no package of Debian's: give name or name=version", wrong),
        requirements=requirements, conda=conda, conda_file=conda_file, examples=examples,
        workspace=workspace, ports=ports, user=user, uid=uid, command=command,
        checks=_checks(get, framework, cuda, wrong),
        environment=_pairs(get, "environment", _VARIABLE, wrong), labels=_pairs(get, "labels", _LABEL, wrong),
    )  # fmt: skip
    if not image.has_cupy and "cupy" in image.checks:
        wrong.add("cupy in entrypoint_checks", "and no CuPy: add cupy-cuda12x or cupy-cuda13x to pip")
    if "requirements" in get and not (wrong.sentences or command or image.has("jupyterlab|jupyter|notebook")):
        wrong.add(f"requirements {get['requirements']}", "without jupyterlab and no command: give one of them")
    return (None if wrong.sentences else image), wrong.sentences


def _names(get: t.Mapping[str, t.Any], prefix: str, wrong: _Mistakes) -> tuple[str, str]:
    name, tag = (str(get.get(key, "")) for key in ("name", "tag"))
    for key in ("name", "tag"):
        if not _is_text(get.get(key, "")):
            wrong.add(f"{key} {get[key]}", "which is no text: write it in quotes")
    if not _NAME.fullmatch(name) or len(name) > 128:
        wrong.add(
            f"name '{name}'", "which no registry takes: give lower-case letters and digits, with single . _ - or /"
        )
    elif _SHORTENED.match(name) and prefix in ("", "docker.io/"):
        wrong.add(f"name '{name}'", "which Docker has under another name: leave docker.io/ and library/ out")
    if tag and (not _TAG.fullmatch(tag) or tag == "latest"):
        wrong.add(f"tag '{tag}'", "which names no certain image: give letters, digits, . _ and -, and not 'latest'")
    return name, tag


def _inside(get: t.Mapping[str, t.Any], wrong: _Mistakes) -> tuple[str, str, int]:
    """The workspace and the user."""
    workspace = str(get.get("workspace", "/workspace"))
    parts = posixpath.normpath(workspace).strip("/").split("/")
    if not _PATH.fullmatch(workspace) or "/../" in f"{workspace}/":
        wrong.add(f"workspace '{workspace}'", "which is no absolute path of letters, digits, . _ and -")
    elif parts[0] in SYSTEM or (parts[0] in SHARED and len(parts) == 1) or parts[:2] == ["opt", "cudahub"]:
        wrong.add(f"workspace '{workspace}'", "which belongs to the system: give a directory of its own")
    user = str(get.get("user", "user"))
    if not _USER.fullmatch(user) or user == "root":
        wrong.add(f"user '{user}'", "which is no name of a user without privileges: give lower-case letters and digits")
    uid = _number(get.get("uid", 1000)) or 0
    if not 1 <= uid <= 60000:
        wrong.add(f"uid {get.get('uid')!r}", "which is none of 1 to 60000")
    return workspace, user, uid


def _check_examples(framework: str, settings: Settings, wrong: _Mistakes) -> None:
    if framework != "pytorch":
        wrong.add("examples", f"which are PyTorch's, and framework {framework}: leave them out")
    elif not settings.examples.usable:
        wrong.add("examples", "and there is nothing to check them by: set dl_images_examples_url and _checksum")


def _listed(names: t.Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if re.fullmatch(r"\d{1,9}", text) and not isinstance(value, bool) else None


def _is_text(value: object) -> bool:
    """Whether a value says in all its letters what was written. YAML makes others of 1.10, yes and nothing."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _truth(get: t.Mapping[str, t.Any], key: str, wrong: _Mistakes) -> bool:
    text = str(get.get(key, False)).lower()
    if text not in (*TRUE, *FALSE):
        wrong.add(f"{key} {get[key]!r}", "which is neither true nor false")
    return text in TRUE


def _list(get: t.Mapping[str, t.Any], key: str, wrong: _Mistakes) -> list[t.Any]:
    value = get.get(key, [])
    if isinstance(value, str) or not isinstance(value, t.Sequence):
        wrong.add(f"{key} {value!r}", "which is no list")
        return []
    broken = [
        one
        for one in value
        if not isinstance(one, (str, int, float)) or isinstance(one, bool) or _CONTROL.search(str(one))
    ]
    for one in broken:
        wrong.add(f"{key} {one!r}", "which is no word in one line")
    return [one for one in value if one not in broken]


def _texts(get: t.Mapping[str, t.Any], key: str, form: re.Pattern[str], what: str, wrong: _Mistakes) -> tuple[str, ...]:
    found = tuple(str(one).strip() for one in _list(get, key, wrong))
    for one in found:
        if not form.fullmatch(one):
            wrong.add(f"{key} '{one}'", f"which {what}")
    return found


def _pairs(get: t.Mapping[str, t.Any], key: str, form: re.Pattern[str], wrong: _Mistakes) -> dict[str, str]:
    value = get.get(key, {})
    if not isinstance(value, t.Mapping):
        wrong.add(f"{key} {value!r}", "which is no dictionary")
        return {}
    pairs = {str(name): str(one) for name, one in value.items()}
    for name, one in pairs.items():
        if not _is_text(value.get(name, one)):
            wrong.add(f"{key} '{name}'", f"which is {one}: write it in quotes")
        elif not form.fullmatch(name) or _CONTROL.search(one):
            wrong.add(f"{key} '{name}'", "which is no name, or has a value of more than one line")
        elif name.startswith(OWN[key]) or name == "PATH":
            wrong.add(f"{key} {name}", "which the role itself writes: leave it out")
    return pairs


def _ports(get: t.Mapping[str, t.Any], jupyter: bool, wrong: _Mistakes) -> tuple[int, ...]:
    given = _list(get, "ports", wrong) if "ports" in get else [JUPYTER_PORT] if jupyter else []
    found = []
    for one in given:
        port = _number(one)
        if port is None or not 1 <= port <= 65535:
            wrong.add(f"ports {one!r}", "which is no port from 1 to 65535")
        else:
            found.append(port)
    if jupyter and not given:
        wrong.add("ports []", f"and Jupyter needs one: leave ports out for {JUPYTER_PORT}, or give command")
    return tuple(found)


def _checks(get: t.Mapping[str, t.Any], framework: str, cuda: str, wrong: _Mistakes) -> tuple[str, ...]:
    found = tuple(map(str, _list(get, "entrypoint_checks", wrong))) if "entrypoint_checks" in get else None
    for one in found or ():
        if one not in CHECKS or (one == "framework" and framework == NONE):
            fitting = [name for name in CHECKS if framework != NONE or name != "framework"]
            wrong.add(f"entrypoint_checks '{one}'", f"which can't be checked: give of {', '.join(fitting)}")
    return (() if cuda == CPU else ("nvml",)) if found is None else found


def _check_base(base: str, wrong: _Mistakes) -> None:
    match = _BASE.fullmatch(base)
    if match is None:
        wrong.add(f"base '{base}'", "which is no reference of an image: give one such as debian:13-slim")
    elif match["tag"] == "latest" or (match["tag"] is None and "@" not in base):
        wrong.add(f"base '{base}'", "which is another image tomorrow: give a tag that is not 'latest', or a digest")


def _conda(given: object, settings: Settings, read: Read, wrong: _Mistakes) -> tuple[tuple[str, ...], str]:
    if not given:
        return (), ""
    if not settings.micromamba.usable:
        wrong.add("conda", "and there is no micromamba to install it with: set dl_images_micromamba_url and _checksum")
    if isinstance(given, str):
        return (), _conda_file(given, read, wrong)
    return _texts({"conda": given}, "conda", _CONDA, "is no spec of conda's", wrong), ""


def _conda_file(path: str, read: Read, wrong: _Mistakes) -> str:
    before = len(wrong.sentences)
    text = _text_of(path, "conda", read, wrong)
    try:
        found = dependencies(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        wrong.add(f"conda {path}", "which is no YAML" + (f": line {mark.line + 1}" if mark else ""))
        return ""
    if len(wrong.sentences) > before:
        return ""
    if not found:
        wrong.add(f"conda {path}", "which has no list of dependencies: give an environment file of conda's")
    elif not any(_is("python", one) for one in found):
        wrong.add(f"conda {path}", "without python: add it to dependencies")
    return text


def dependencies(text: str) -> list[str]:
    """The specs of an environment file of conda's, those of pip included. Raises YAMLError."""
    found = yaml.safe_load(text)
    listed = found.get("dependencies") if isinstance(found, dict) else None
    specs: list[str] = []
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict):
            specs += map(str, one.get("pip") or [])
        else:
            specs.append(str(one))
    return specs


def _text_of(path: str, key: str, read: Read, wrong: _Mistakes) -> str:
    try:
        return read(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        wrong.add(f"{key} '{path}'", f"which the controller can't read: {reason}")
        return ""


def _cuda(
    get: t.Mapping[str, t.Any], framework: str, table: t.Mapping[str, t.Any], settings: Settings, wrong: _Mistakes
) -> str:
    offered: t.Mapping[str, t.Any] = table.get("cuda", {})
    if "cuda" in get:
        cuda = str(get["cuda"])
        if cuda not in CUDA:
            wrong.add(f"cuda '{cuda}'", f"which is none of {', '.join(CUDA)}")
        return cuda
    if settings.cuda == "":
        wrong.add("no cuda", f"and none to choose, as {settings.no_cuda}: give cuda, or set dl_images_cpu_only to true")
        return ""
    if framework == NONE or "requirements" in get or settings.cuda in offered or settings.cuda == CPU:
        return settings.cuda
    # A driver runs what was built for an older CUDA.
    older = [line for line in offered if line != CPU and int(line) < int(settings.cuda)]
    return max(older, key=int, default=settings.cuda)


def _requirements(
    get: t.Mapping[str, t.Any], framework: str, table: t.Mapping[str, t.Any], cuda: str, python: str,
    read: Read, wrong: _Mistakes,
) -> tuple[str, t.Mapping[str, t.Any]]:  # fmt: skip
    """The text of the requirements, and the table's row if it is a list of this role's."""
    if "requirements" in get:
        text = _text_of(str(get["requirements"]), "requirements", read, wrong)
        for line in unpinned(text):
            shown = re.sub(r"//[^/@\s]*@", "//***@", line)
            wrong.add(f"requirements {get['requirements']}", f"with '{shown}', which is not pinned: give name==version")
        bare = [line for line, hashed in entries(text) if not hashed]
        if 0 < len(bare) < len(entries(text)):
            wrong.add(
                f"requirements {get['requirements']}",
                f"with hashes, and none for {', '.join(map(repr, bare))}: give all or none",
            )
        return text, {}
    if not table or cuda not in CUDA:
        return "", {}
    offered: t.Mapping[str, t.Any] = table["cuda"]
    version = next(iter(offered.values()))["version"]
    if cuda not in offered:
        wrong.add(
            f"cuda {cuda}",
            f"and there is no list of {framework} {version} for it: give one of {_listed(offered)}, or requirements",
        )
        return "", {}
    if python not in table["pythons"] and _PYTHON.fullmatch(python):
        wrong.add(
            f"python {python}",
            f"and the list of {framework} {version} is for {' and '.join(table['pythons'])}: give requirements",
        )
        return "", {}
    row: t.Mapping[str, t.Any] = offered[cuda]
    return _text_of(f"{LOCKS}{row['lock']}", "framework", read, wrong), row


def entries(text: str) -> list[tuple[str, bool]]:
    """The requirements of a file, each in one line without comments and hashes, and whether it has hashes."""
    joined = re.sub(r"\\\n", " ", text)
    lines = (re.sub(r"(^|\s)#.*", "", line) for line in joined.splitlines())
    pairs = ((re.sub(r"\s--hash=\S+", "", line).strip(), "--hash=" in line) for line in lines)
    return [(bare, hashed) for bare, hashed in pairs if bare]


def logical_lines(text: str) -> list[str]:
    """The requirements of a file, each in one line, without comments and hashes."""
    return [bare for bare, _hashed in entries(text)]


def unpinned(text: str) -> list[str]:
    """The requirements of a file that don't say a version."""
    return [line for line in logical_lines(text) if not _PINNED.fullmatch(line)]


def quoted(text: str) -> str:
    """A value of LABEL or ENV."""
    return json.dumps(text, ensure_ascii=False).replace("$", "\\$")


def shell_quoted(text: str) -> str:
    """A word of a command of RUN, in which the builder replaces nothing."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def files_of(image: Image, settings: Settings) -> dict[str, str]:
    """The files of the build but the Containerfile."""
    found = dict(settings.files)
    if image.requirements:
        found["requirements.txt"] = image.requirements
    if image.pip:
        found["pip.txt"] = "".join(f"{spec}\n" for spec in image.pip)
        found["constraints.txt"] = "".join(f"{_without_extras(line)}\n" for line in logical_lines(image.requirements))
    if image.conda_file:
        found["environment.yml"] = image.conda_file
    return found


def _without_extras(line: str) -> str:
    return re.sub(r"^([A-Za-z0-9._-]+)\[[^\]]*\]", r"\1", line)


_APT_CACHE = " ".join(
    f"--mount=type=cache,target={place},sharing=locked" for place in ("/var/cache/apt", "/var/lib/apt/lists")
)
_PIP_CACHE = "--mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip --mount=type=secret,id=ca"
_PIP = f"PIP_CONFIG_FILE=/run/secrets/pip PIP_DISABLE_PIP_VERSION_CHECK=1 {PREFIX}/bin/python -m pip install"


_FITS = (
    'import sys; has = "%d.%d" % sys.version_info[:2]; has in sys.argv[2:] or sys.exit('
    '"Python " + has + ", and the list of " + sys.argv[1] + " is for " + " and ".join(sys.argv[2:]))'
)


def _bound(*names: str) -> str:
    return " ".join(f"--mount=type=bind,source={name},target=/run/build/{name}" for name in names)


def containerfile(image: Image, settings: Settings) -> str:
    """The Containerfile but for the label of its digest."""
    # The user of a base image may be any.
    lines = [f"FROM {image.base}", "USER 0:0"]
    if image.apt:
        words = " ".join(map(shell_quoted, image.apt))
        lines.append(
            f"RUN {_APT_CACHE} \\\n    rm -f /etc/apt/apt.conf.d/docker-clean \\\n && apt-get update \\\n"
            f" && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends {words}"
        )
    lines.append(
        f"RUN groupadd --force --non-unique --gid {image.uid} {image.user} \\\n"
        f" && useradd --non-unique --uid {image.uid} --gid {image.user} --create-home --shell /bin/bash {image.user}"
        " \\\n"
        f" && install --directory --owner={image.uid} --group={image.uid} {image.workspace}"
    )
    lines += _python(image, settings)
    if image.pythons:
        words = " ".join(image.pythons)
        lines.append(f"RUN {PREFIX}/bin/python -c {shell_quoted(_FITS)} {image.framework} {words}")
    if image.requirements:
        hashes = "--require-hashes " if image.hashed else ""
        lines.append(
            f"RUN {_PIP_CACHE} {_bound('requirements.txt')} \\\n"
            f"    {_PIP} {hashes}--requirement /run/build/requirements.txt"
        )
    if image.pip:
        lines.append(
            f"RUN {_PIP_CACHE} {_bound('pip.txt', 'constraints.txt')} \\\n"
            f"    {_PIP} --constraint /run/build/constraints.txt --requirement /run/build/pip.txt"
        )
    if image.examples:
        download = settings.examples
        lines.append(f"ADD --checksum={download.checksum} {download.url} /opt/cudahub/examples.tar.gz")
        lines.append(
            f"RUN install --directory --owner={image.uid} --group={image.uid} {image.workspace}/examples \\\n"
            f" && tar --extract --gzip --strip-components=1 --no-same-owner --file=/opt/cudahub/examples.tar.gz"
            f" --directory={image.workspace}/examples \\\n"
            f" && chown --recursive {image.uid}:{image.uid} {image.workspace}/examples"
        )
    lines.append(f"COPY --chmod=0755 {' '.join(sorted(settings.files))} {BIN}/")
    variables = {
        **image.environment,
        "CUDAHUB_CHECKS": " ".join(image.checks),
        "CUDAHUB_FRAMEWORK": image.framework,
    }
    lines += [f"ENV {name}={quoted(value)}" for name, value in sorted(variables.items())]
    lines += [f"LABEL {quoted(name)}={quoted(value)}" for name, value in sorted(labels_of(image).items())]
    lines += [f"EXPOSE {port}" for port in image.ports]
    health = [f"{PREFIX}/bin/python", f"{BIN}/check.py", "--health", *map(str, image.ports[:1])]
    lines.append(f"HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD {json.dumps(health)}")
    lines += [f"USER {image.uid}:{image.uid}", f"WORKDIR {image.workspace}"]
    lines += [f'ENTRYPOINT ["{BIN}/entrypoint"]', f"CMD {json.dumps(command_of(image))}"]
    return "\n".join(lines) + "\n"


def _python(image: Image, settings: Settings) -> list[str]:
    path = f"ENV PATH={PREFIX}/bin:$PATH"
    if not image.has_conda:
        return [f"RUN python3 -m venv {PREFIX}", path]
    add = (
        f"ADD --checksum={settings.micromamba.checksum} --chmod=0755 {settings.micromamba.url} /opt/cudahub/micromamba"
    )
    # A build sees no GPU, and without one, packages are chosen that compute on the CPU alone.
    driver = "" if image.cuda == CPU else f"{image.cuda}.0"
    variables = f"CONDA_OVERRIDE_CUDA={driver} MAMBA_ROOT_PREFIX=/root/.mamba"
    create = f"{variables} /opt/cudahub/micromamba create --yes --prefix {PREFIX}"
    cache = "--mount=type=cache,target=/root/.mamba/pkgs,sharing=locked"
    if image.conda_file:
        return [
            add,
            f"RUN {cache} {_bound('environment.yml')} \\\n    {create} --file /run/build/environment.yml",
            path,
        ]
    specs = " ".join(map(shell_quoted, (*image.conda, f"python={image.python}", "pip")))
    return [add, f"RUN {cache} \\\n    {create} --override-channels --channel conda-forge {specs}", path]


def command_of(image: Image) -> list[str]:
    """What the container runs: what is asked for, or JupyterLab, which makes a token unless it is given one."""
    if image.command:
        return list(image.command)
    return ["jupyter", "lab", "--ip=0.0.0.0", f"--port={image.ports[0]}", "--no-browser"]


def labels_of(image: Image) -> dict[str, str]:
    """The labels but the digest's."""
    own = {
        "org.opencontainers.image.title": image.name,
        "org.opencontainers.image.base.name": image.base,
        "org.cudahub.framework": image.framework,
        "org.cudahub.cuda": image.cuda,
        OWN_LABEL: ROLE,
        NAME_LABEL: image.name,
    }
    version = {"org.opencontainers.image.version": image.version} if image.version else {}
    return {**own, **version, **image.labels}


def build_of(image: Image, settings: Settings) -> Build:
    """What to build: the digest covers the Containerfile, which names the base, and each file."""
    text, files = containerfile(image, settings), files_of(image, settings)
    inputs = json.dumps({"Containerfile": text, "files": files}, sort_keys=True)
    digest = hashlib.sha256(inputs.encode()).hexdigest()
    repository = f"{settings.prefix}{image.name}"
    short = digest[:TAG_LENGTH]
    references = [f"{repository}:{short}", *([f"{repository}:{image.tag}"] if image.tag else [])]
    return Build(
        name=image.name,
        place=f"{image.name.replace('/', '+')}-{short}",
        repository=repository,
        reference=references[0],
        candidate=f"{repository}:{'-'.join(filter(None, (short, settings.run)))}{UNPROVEN}",
        references=tuple(references),
        digest=digest,
        cuda=image.cuda,
        framework=image.framework,
        cupy=image.has_cupy and image.cuda != CPU,
        python=f"{PREFIX}/bin/python",
        download_bytes=image.download_bytes,
        labels={**labels_of(image), DIGEST_LABEL: digest},
        files={"Containerfile": f"{text}LABEL {DIGEST_LABEL}={quoted(digest)}\n", **files},
    )


_REASONS = (
    (
        r"failed to resolve source metadata|pull access denied|manifest unknown|load metadata for .*ERROR",
        "its base image can't be had: correct base, log in to its registry, or pull it beforehand",
    ),
    (
        r"python3: not found|No module named '?venv|ensurepip is not",
        "its base image has no python3 with venv: give another base, or add python3 and python3-venv to apt",
    ),
    (
        r"\b(apt-get|groupadd|useradd): (command )?not found",
        "its base image is none of Debian or Ubuntu: give another base",
    ),
    (
        r"do not match the hashes|THESE PACKAGES DO NOT MATCH",
        "a distribution is not the one that requirements names: make the list of requirements anew",
    ),
    (
        r"No matching distribution found|Could not find a version",
        "a Python distribution can't be had: correct requirements or pip, or set dl_images_pip_index_url",
    ),
    (
        r"E: (Unable to locate package|Version '.*' for '.*' was not found|.*no installation cand)",
        "a package of the distribution can't be had: correct apt",
    ),
    (r"useradd: user '.*' already exists", "its base image has a user of that name: give another user"),
    (r"useradd: group '.*' does not exist", "its base image has a group of that name: give another user"),
    (r"digest mismatch", "a download is not the one of its checksum: correct its address or checksum"),
    (
        r"(?m)^ERROR: .*(invalid response status|failed to load cache key)",
        "a download can't be had: correct its address",
    ),
    (
        r"(?m)^ERROR: .*(Cannot connect to the Docker daemon|code = Unavailable|error reading from server)",
        "Docker stopped meanwhile: see to it, and run the role again",
    ),
    (r"(?m)^ERROR: .*context canceled", "it was interrupted: run the role again"),
)


def failure(name: str, log: str, status: int, free_bytes: int | None = None, timeout: int = 0) -> str:
    """A sentence about a build that failed, with what the builder said last.

    Not every program says that the disk is full: what is free there then, if it is known, tells too. A build that was
    stopped after ``timeout`` seconds has status 124.
    """
    said = _last_words(log) if status == TIMED_OUT else _last_error(log)
    full = free_bytes is not None and free_bytes < FULL_BYTES
    if full or re.search(r"no space left on device", log, re.IGNORECASE):
        why = "the disk of Docker is full: free some, for instance by docker builder prune, or lower dl_images_keep"
    elif status == TIMED_OUT:
        why = f"it was not done after {timeout} seconds: run the role again, which goes on, or raise dl_images_timeout"
    elif other := re.search(r"(?m)^(?:#\d+ )?[\d.]+ (Python [\d.]+, and the list of .*)$", log):
        why = f"it has {other[1].strip()}: give another base, or requirements"
    else:
        interrupted = "it was interrupted: run the role again" if status < 0 or status > 128 else "a step failed"
        why = next((sentence for pattern, sentence in _REASONS if re.search(pattern, log)), interrupted)
    return f"Image {name} could not be built, because {why}." + (f" Docker said last: {said}" if said else "")


def _last_words(log: str) -> str:
    """What the builder printed before it was stopped."""
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    return next((line[:300] for line in reversed(lines) if not re.match(r"#\d+ CANCELED|ERROR: .*canceled", line)), "")


def _last_error(log: str) -> str:
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(#\d+ )?([\d.]+ )?(ERROR|E:|error)\b", line)]
    full = [line for line in lines if "no space left on device" in line.lower()]
    return " | ".join(full[-1:] or _failed_step(log) or (errors or lines)[-1:])[:600]


def _failed_step(log: str) -> list[str]:
    """The last lines of what the failing step printed, which Docker repeats at the end."""
    sections = re.findall(r"(?ms)^------\n > [^\n]*\n(.*?)^------$", log)
    lines = sections[-1].splitlines() if sections else []
    said = [" ".join(re.sub(r"^[\d.]+ ", "", line).split()) for line in lines]
    return [line[:200] for line in said if line][-3:]


@dataclass(frozen=True)
class Kept:
    """An image with this role's labels, as the engine lists it."""

    id: str
    name: str
    digest: str
    created: int
    tags: tuple[str, ...]

    @property
    def own_tags(self) -> tuple[str, ...]:
        """The tags that this role has given. What somebody made of an image of ours has its labels, but no such tag."""
        short = self.digest[:TAG_LENGTH]
        repositories = {
            repository
            for repository, _colon, tag in (one.rpartition(":") for one in self.tags)
            if short
            and re.fullmatch(rf"{short}(?:(?:-\w+)?{UNPROVEN})?", tag)
            and f"/{repository}".endswith(f"/{self.name}")
        }
        return tuple(one for one in self.tags if one.rpartition(":")[0] in repositories)


def superfluous(images: t.Iterable[Kept], used: t.Collection[str], wanted: t.Mapping[str, str], keep: int) -> list[str]:
    """Tags to remove: of each wanted name those of all but the ``keep`` newest, those in use and the wanted one.

    Of what stays, names for the time of a proof that nobody took away once it was over.
    """
    found: list[str] = []
    listed = [one for one in images if one.own_tags]
    for name, reference in wanted.items():
        ours = sorted((one for one in listed if one.name == name), key=lambda one: (one.created, one.id), reverse=True)
        # Docker leaves its own registry out of the names that it lists.
        current = [one for one in ours if reference.removeprefix("docker.io/") in one.own_tags]
        rest = [one for one in ours if one not in current]
        for one in rest[max(keep - len(current), 0) :]:
            found += one.own_tags if one.id not in used else ()
        for one in ours:
            proven = not all(tag.endswith(UNPROVEN) for tag in one.own_tags)
            found += [tag for tag in one.own_tags if proven and tag.endswith(UNPROVEN) and tag not in found]
    return found
