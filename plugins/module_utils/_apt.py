# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What apt and dpkg know of packages, read without a lock and without changing anything."""

from __future__ import annotations

import contextlib
import re
import shutil
import typing as t
from functools import cmp_to_key
from operator import attrgetter
from pathlib import Path

from . import _scratch
from ._address import address as normal_address
from ._driver_packages import PINNING
from ._packages import Change, Installed, Package, PackageError, Transaction

if t.TYPE_CHECKING:
    from ._packages import Result, Run, State

_STATUS = ("db:Status-Want", "db:Status-Status", "db:Status-Eflag")
ENVIRONMENT = {"LC_ALL": "C", "LANGUAGE": "C", "DEBIAN_FRONTEND": "noninteractive"}

PREFERENCES = "/etc/apt/preferences"
PREFERENCES_PARTS = "/etc/apt/preferences.d"
DPKG_INFO = "/var/lib/dpkg/info"

_STATES: dict[str, State] = {
    "installed": "installed",
    "half-configured": "half-configured",
    "unpacked": "unpacked",
    "half-installed": "half-installed",
    "config-files": "config-files",
    "triggers-awaited": "triggers",
    "triggers-pending": "triggers",
}
_STEP = re.compile(
    r"^(?P<verb>Inst|Remv|Purg) (?P<name>\S+)(?: \[(?P<old>[^\]]+)\])?(?: \((?P<new>\S+)[^)]*\))?", re.MULTILINE
)
_RELATIONS = {
    "Depends": "depends on",
    "PreDepends": "pre-depends on",
    "Conflicts": "conflicts with",
    "Breaks": "breaks",
}
_INCONSISTENT = re.compile(r"apt --fix-broken install")
_UNMET = re.compile(rf"^ +(?:(?P<name>\S+) : )?(?P<relation>{'|'.join(_RELATIONS)}): (?P<other>.+)$")


class AptReader:
    """Packages as apt sees them. With C(options), such as those of a private apt, apt reads what they point to."""

    def __init__(self, run: Run, options: t.Sequence[str] = ()) -> None:
        self._run = run
        self._options = tuple(options)
        self._offers: dict[str, tuple[tuple[str, str], ...]] = {}

    def installed(self) -> dict[str, Installed]:
        return parse_installed(
            self._read(["dpkg-query", "-W", "-f", _format("Package", "Architecture", "Version", *_STATUS)]),
            self._read(["dpkg", "--print-architecture"]).strip(),
        )

    def available(self, pattern: re.Pattern[str], sources: t.Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
        """With C(sources), only the versions that one of these addresses offers."""
        names = self._read(["apt-cache", *self._options, "pkgnames"]).split()
        self._look_up(name for name in names if pattern.fullmatch(name) and name not in self._offers)
        found = {}
        for name, offers in self._offers.items():
            versions = [version for version, address in offers if _offered_by(address, sources)]
            if versions and pattern.fullmatch(name):
                found[name] = newest_first(versions)
        return found

    def origin(self, package: Package) -> str | None:
        if package.name not in self._offers:
            self._look_up([package.name])
        offers = self._offers.get(package.name, ())
        return next((address for version, address in offers if version == package.version), None)

    def simulate(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> Transaction:
        result = self._simulated(install, remove, pin)
        if result.rc and pin and _INCONSISTENT.search(result.stdout + result.stderr):
            result = self._simulated([*install, *self._companions(install, pin)], remove, pin)
        if result.rc:
            raise PackageError("unresolvable", unresolvable_reason(result), result.stdout + result.stderr)
        transaction = parse_simulation(result.stdout)
        return Transaction(transaction.install, transaction.change, transaction.remove, *self._sizes(transaction))

    def _simulated(self, install: t.Sequence[Package], remove: t.Sequence[str], pin: str | None) -> Result:
        with pinned(pin) as preferences:
            command = ["apt-get", "-s", *self._options, *preferences, *transaction_arguments(install, remove)]
            return self._run(command, ENVIRONMENT)

    def _companions(self, install: t.Sequence[Package], pin: str) -> list[Package]:
        """The other installed packages in their versions that are the pin.

        apt resolves nothing while dependencies are unmet, as after an interrupted transaction: it wants all by name.
        """
        named = {package.name for package in install}
        names = [name for name, one in self.installed().items() if one.present and name not in named]
        self._look_up(name for name in names if name not in self._offers)
        is_pinned = re.compile(rf"(?:\d+:)?{re.escape(pin)}(?![\d.])").match
        return [
            Package(name, version)
            for name in names
            for version in [next((one for one, _address in self._offers.get(name, ()) if is_pinned(one)), None)]
            if version
        ]

    def _look_up(self, names: t.Iterable[str]) -> None:
        wanted = sorted(set(names))
        if not wanted:
            return
        found: dict[str, list[tuple[str, str]]] = {name: [] for name in wanted}
        for name, version, address in parse_madison(self._read(["apt-cache", *self._options, "madison", *wanted])):
            found.setdefault(name, []).append((version, address))
        self._offers.update({name: tuple(offers) for name, offers in found.items()})

    def _sizes(self, transaction: Transaction) -> tuple[int | None, int | None]:
        new = [*transaction.install, *(Package(change.name, change.new) for change in transaction.change)]
        gone = [*transaction.remove, *(Package(change.name, change.old) for change in transaction.change)]
        freed = 0
        if gone:
            sizes = self._run(
                ["dpkg-query", "-W", "-f", _format("Installed-Size"), *(one.name for one in gone)], ENVIRONMENT
            )
            freed = sum(int(size) * 1024 for size in sizes.stdout.split() if size.isdigit())
        if not new:
            return 0, -freed
        wanted = [f"{one.name}={one.version}" for one in new]
        sizes_of = parse_sizes(self._run(["apt-cache", *self._options, "show", *wanted], ENVIRONMENT).stdout)
        known = [sizes_of.get((one.name.split(":")[0], one.version)) for one in new]
        complete = [size for size in known if size is not None]
        if len(complete) < len(known):
            return None, None
        return sum(size for size, _disk in complete), sum(disk for _size, disk in complete) - freed

    def _read(self, command: t.Sequence[str]) -> str:
        result = self._run(command, ENVIRONMENT)
        if result.rc:
            raise PackageError(
                "package_manager", f"{command[0]} fails: {last_line(result)}", result.stdout + result.stderr
            )
        return result.stdout


def transaction_arguments(install: t.Sequence[Package], remove: t.Sequence[str]) -> list[str]:
    """The end of apt-get's command line for a transaction, whether it is simulated or done.

    Dependencies that are held change, too, which only the classic solver can do. Packages that only come from the same
    source as another one, as linux-libc-dev and the kernel's headers, stay as they are.
    """
    return [
        *("-o", "APT::Ignore-Hold=true", "-o", "APT::Solver=internal"),
        *("-o", "APT::Get::Upgrade-By-Source-Package=false"),
        "-y",
        "--no-install-recommends",
        "--fix-broken",
        "--allow-downgrades",
        "--allow-change-held-packages",
        "install",
        *(f"{package.name}={package.version}" for package in install),
        *(f"{name}-" for name in remove),
    ]


@contextlib.contextmanager
def pinned(pin: str | None) -> t.Iterator[list[str]]:
    """Options for apt with which versions that are the pin come before all others, else the host's preferences count.

    What a package nvidia-driver-pinning-* prefers is left out, as it may be there for the branch that is to go.
    """
    excluded = {
        line
        for path in Path(DPKG_INFO).glob(f"{PINNING}*.list")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"{PREFERENCES_PARTS}/")
    }
    if pin is None and not excluded:
        yield []
        return
    with _scratch.folder() as directory:
        directory.chmod(0o755)
        main, parts = directory / "preferences", directory / "preferences.d"
        parts.mkdir(mode=0o755)
        for path in sorted(Path(PREFERENCES_PARTS).glob("*")):
            if str(path) not in excluded and path.is_file():
                shutil.copyfile(path, parts / path.name)
        own = Path(PREFERENCES).read_text(encoding="utf-8") if Path(PREFERENCES).is_file() else ""
        main.write_text(pin_text(pin) + own, encoding="utf-8")
        main.chmod(0o644)
        yield ["-o", f"Dir::Etc::Preferences={main}", "-o", f"Dir::Etc::PreferencesParts={parts}"]


def pin_text(pin: str | None) -> str:
    """An apt preference for all packages in this upstream version; C(Package: *) would not do for dependencies."""
    return "" if pin is None else f"Package: /./\nPin: version {pin}*\nPin-Priority: 1001\n\n"


def _format(*fields: str) -> str:
    return "\t".join(f"${{{field}}}" for field in fields) + "\n"


def parse_installed(text: str, architecture: str) -> dict[str, Installed]:
    """The packages in dpkg-query's lines. Those of foreign architectures are named as apt does: C(libc6:i386)."""
    found = {}
    for line in text.splitlines():
        name, of, version, want, status, flag = line.split("\t")
        state = _STATES.get(status)
        if state is not None:
            full = name if of in (architecture, "all") else f"{name}:{of}"
            broken = flag == "reinstreq" and state != "config-files"
            found[full] = Installed(full, version, "half-installed" if broken else state, want == "hold")
    return found


def parse_madison(text: str) -> t.Iterator[tuple[str, str, str]]:
    """Name, version and address in each line of apt-cache madison that is about a binary package."""
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 3 and fields[2].endswith(" Packages"):
            yield fields[0], fields[1], fields[2].split()[0]


def parse_simulation(text: str) -> Transaction:
    """The steps that apt-get -s tells, without sizes."""
    install, change, remove = [], [], []
    for step in _STEP.finditer(text):
        name, old, new = step["name"], step["old"], step["new"]
        if step["verb"] != "Inst":
            remove.append(Package(name, old or ""))
        elif old is None:
            install.append(Package(name, new))
        elif old != new:
            change.append(Change(name, old, new))
    name_of = attrgetter("name")
    return Transaction(
        tuple(sorted(install, key=name_of)), tuple(sorted(change, key=name_of)), tuple(sorted(remove, key=name_of))
    )


def parse_sizes(text: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Bytes to download and bytes on disk by name and version, from the stanzas of apt-cache show."""
    sizes = {}
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] not in " \t")
        if "Size" in fields and "Package" in fields:
            disk = int(fields.get("Installed-Size", "0")) * 1024
            sizes[fields["Package"], fields.get("Version", "")] = int(fields["Size"]), disk
    return sizes


def unresolvable_reason(result: Result) -> str:
    """Why apt could not resolve a request, in a clause. Its solver's first complaints are what a person needs."""
    missing = re.findall(
        r"^E: (Version '.+' for '.+' was not found|Unable to locate package .+)$", result.stderr, re.MULTILINE
    )
    if missing:
        return "; ".join(missing)
    reasons, name = [], ""
    lines = result.stdout.splitlines()
    start = next((number for number, line in enumerate(lines) if "unmet dependencies" in line), len(lines))
    for line in lines[start + 1 :]:
        unmet = _UNMET.match(line)
        if unmet is None:
            break
        name = unmet["name"] or name
        reasons.append(f"{name} {_RELATIONS[unmet['relation']]} {unmet['other']}")
    if not reasons:
        return last_line(result)
    return "; ".join(reasons[:3]) + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "")


def first_error(result: Result) -> str:
    """The first error that apt printed, without its mark, as the later ones follow from it."""
    line = first_line(result.stderr, r"^E: ")
    return plain(line) if line else last_line(result)


def last_line(result: Result) -> str:
    """The last error that a command printed, without its mark; its last line if it printed none."""
    lines = [line.strip() for line in (result.stderr or result.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E: ")]
    return plain((errors or lines or ["it printed nothing"])[-1])


def first_line(text: str, pattern: str) -> str | None:
    """The first line in which a pattern is found."""
    return next((line.strip() for line in text.splitlines() if re.search(pattern, line.strip())), None)


def plain(line: str) -> str:
    """A line of apt or dpkg without the mark of an error in front and the full stop at its end."""
    return re.sub(r"^(?:E|W|dpkg|Err\S*): *(?:error: )?", "", line.strip()).rstrip(".")


def newest_first(versions: t.Iterable[str]) -> tuple[str, ...]:
    """Versions without repetition, the newest first."""
    return tuple(sorted(set(versions), key=cmp_to_key(compare), reverse=True))


def compare(left: str, right: str) -> int:
    """Compare two versions as dpkg does: less than 0, 0, or more than 0 as the left is older, the same or newer."""
    left_epoch, left_upstream, left_revision = _split(left)
    right_epoch, right_upstream, right_revision = _split(right)
    return (
        left_epoch - right_epoch
        or _compare_part(left_upstream, right_upstream)
        or _compare_part(left_revision, right_revision)
    )


def _split(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not (colon and epoch.isdigit()):
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return int(epoch), upstream if dash else rest, revision if dash else "0"


def _compare_part(left: str, right: str) -> int:
    left_parts, right_parts = re.findall(r"\D+|\d+", left), re.findall(r"\D+|\d+", right)
    if left_parts[:1] and left_parts[0][0].isdigit():
        left_parts.insert(0, "")
    if right_parts[:1] and right_parts[0][0].isdigit():
        right_parts.insert(0, "")
    for index in range(max(len(left_parts), len(right_parts))):
        one = left_parts[index] if index < len(left_parts) else ""
        other = right_parts[index] if index < len(right_parts) else ""
        if index % 2:
            difference = int(one or 0) - int(other or 0)
        else:
            weights = _weights(one), _weights(other)
            difference = (weights[0] > weights[1]) - (weights[0] < weights[1])
        if difference:
            return difference
    return 0


def _weights(text: str) -> list[int]:
    """How dpkg orders what is no digit: a tilde before the end, the end before letters, letters before all else."""
    return [-1 if one == "~" else ord(one) if one.isalpha() else ord(one) + 256 for one in text] + [0]


def _offered_by(address: str, sources: t.Sequence[str] | None) -> bool:
    return sources is None or normal_address(address) in set(map(normal_address, sources))
