# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of the drivers that a source offers is the right one for the GPUs of a host, and why."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ._branches import (
    BRANCHES,
    ENDED,
    FIRST_BRANCH,
    FIRST_BRANCH_WITH_OPEN_MODULE,
    FIRST_BRANCH_WITHOUT_PROPRIETARY_MODULE,
    FIRST_WITH_OPEN_MODULE,
    FIRST_WITHOUT_PROPRIETARY_MODULE,
    GENERATIONS,
    LAST_BRANCH,
    generation,
)
from ._driver_packages import (
    ARCHITECTURES,
    DRIVER_VERSION,
    NAMES,
    REBUILDS,
    RESTRICTED,
    SUPPORTED,
    Gpu,
    Gpus,
    Notice,
    RefusedError,
)
from ._version import parse_version

if t.TYPE_CHECKING:
    from ._driver import KernelModule
    from ._driver_packages import Current, Offer, System, Wish


_BEHIND_HIDDEN_SWITCHES = re.compile(r"\bG?B[23]00\b")


@dataclass(frozen=True)
class Explanation:
    """Why an offer was taken, and what the user should know of it."""

    why: tuple[str, ...]
    warnings: tuple[Notice, ...]


@dataclass(frozen=True)
class _Limits:
    """What the GPUs of a host demand of the driver, and which of them does."""

    first: int = 0
    last: int | None = None
    newest: Gpu = field(default_factory=dict)
    oldest: Gpu = field(default_factory=dict)
    needs_open: Gpu | None = None
    needs_proprietary: Gpu | None = None
    unknown: Gpu | None = None

    def supports(self, branch: str) -> bool:
        return self.first <= int(branch) and (self.last is None or int(branch) <= self.last)

    def takes(self, flavour: KernelModule, branch: str) -> bool:
        if flavour == "open":
            return self.needs_proprietary is None and int(branch) >= FIRST_BRANCH_WITH_OPEN_MODULE
        return self.needs_open is None and int(branch) < FIRST_BRANCH_WITHOUT_PROPRIETARY_MODULE


def _limits(gpus: Gpus) -> _Limits:
    known = [gpu for gpu in gpus if gpu.get("architecture") in GENERATIONS]
    unknown = next((gpu for gpu in gpus if gpu not in known), None)
    if not known:
        return _Limits(unknown=unknown)
    oldest = min(known, key=lambda gpu: generation(gpu["architecture"]))
    newest = max(known, key=lambda gpu: generation(gpu["architecture"]))
    return _Limits(
        first=max(FIRST_BRANCH.get(gpu["architecture"], 0) for gpu in known),
        last=min(
            (LAST_BRANCH[gpu["architecture"]] for gpu in known if gpu["architecture"] in LAST_BRANCH), default=None
        ),
        newest=newest,
        oldest=oldest,
        needs_open=next((gpu for gpu in known if _needs_open(gpu)), None),
        needs_proprietary=next(
            (gpu for gpu in known if generation(gpu["architecture"]) < generation(FIRST_WITH_OPEN_MODULE)), None
        ),
        unknown=unknown,
    )


def _needs_open(gpu: Gpu) -> bool:
    """Blackwell and later have no proprietary module, nor has Grace Hopper."""
    return generation(gpu["architecture"]) >= generation(FIRST_WITHOUT_PROPRIETARY_MODULE) or (
        gpu["architecture"] == "Hopper" and re.search(r"\bGH200\b", gpu.get("name") or "") is not None
    )


def _gpu(gpu: Gpu) -> str:
    names = [str(gpu[key]) for key in ("name", "pci_bus_id") if gpu.get(key)]
    return " ".join(("GPU", *names, f"({gpu.get('architecture') or 'architecture unknown'})"))


def _series(words: t.Iterable[str], last: str = "and") -> str:
    *first, end = list(words)
    return f"{', '.join(first)} {last} {end}" if first else end


def check_wish(system: System, wish: Wish, gpus: Gpus) -> list[Notice]:
    """The refusals for which no repository has to be read."""
    return [
        *_check_system(system, wish),
        *_check_version(wish),
        *_check_gpus(wish, gpus),
        *_check_kernel_module(wish, _limits(gpus)),
    ]


def _check_system(system: System, wish: Wish) -> t.Iterator[Notice]:
    if system.distribution == "rhel" and wish.source == "distro":
        yield Notice(
            "no_driver_in_source",
            f"{NAMES['rhel']} {system.release} has no NVIDIA driver of its own: set nvidia_driver_source to nvidia",
        )
    if system.distribution == "debian" and wish.source == "distro" and wish.fabric_manager:
        yield Notice(
            "fabric_manager_unavailable",
            f"{NAMES['debian']} {system.release} has no fabric manager, without which the GPUs behind an NVSwitch "
            "can't be used: set nvidia_driver_source to nvidia, or nvidia_driver_fabric_manager to never",
        )


def unknown_os(name: str) -> Notice:
    """The refusal of an operating system that no table knows."""
    known = _series(
        f"{NAMES[one]} {f'({REBUILDS}) ' if one == 'rhel' else ''}{_series(releases)}"
        for one, releases in SUPPORTED.items()
    )
    return Notice("unknown_os", f"{name} is none of the systems for which the driver's packages are known: {known}")


def unknown_architecture(name: str) -> Notice:
    """The refusal of a machine for which there are no packages."""
    return Notice(
        "unknown_architecture",
        f"There is no NVIDIA driver for the architecture {name}, only for {_series(ARCHITECTURES)}",
    )


def _check_version(wish: Wish) -> t.Iterator[Notice]:
    if wish.branch != "auto" and not re.fullmatch(r"\d{3}", wish.branch):
        yield Notice(
            "branch_unavailable",
            f"nvidia_driver_branch is {wish.branch!r}, which is no driver branch: write its number, for example "
            f"{BRANCHES[-1].branch}, or auto",
        )
    elif wish.version and not DRIVER_VERSION.fullmatch(wish.version):
        yield Notice(
            "version_unavailable",
            f"nvidia_driver_version is {wish.version!r}, which is no driver version: write it whole, for example "
            "580.159.04",
        )


def _is_number(branch: str | None) -> t.TypeGuard[str]:
    return branch is not None and re.fullmatch(r"\d{3}", branch) is not None


def _check_gpus(wish: Wish, gpus: Gpus) -> t.Iterator[Notice]:
    limits = _limits(gpus)
    branch = wish.wanted_branch
    open_question = branch is None or wish.kernel_module == "auto"
    if not gpus and open_question and not wish.image:
        yield Notice(
            "no_gpu",
            "This host has no NVIDIA GPU by which a driver could be chosen: set nvidia_driver_branch and "
            "nvidia_driver_kernel_module, or take the host out of the group of GPU hosts",
        )
    if limits.unknown is not None and open_question:
        yield Notice(
            "unknown_gpu",
            f"{_gpu(limits.unknown)} is not known, so no driver can be chosen for it: set nvidia_driver_branch and "
            "nvidia_driver_kernel_module yourself",
        )
    if limits.needs_open is not None and limits.needs_proprietary is not None:
        yield Notice(
            "mixed_gpus",
            f"{_gpu(limits.needs_proprietary)} needs the proprietary kernel module and {_gpu(limits.needs_open)} "
            "the open one: no driver supports both in one host, so take one of them out",
        )
    elif limits.last is not None and limits.last < limits.first:
        yield Notice(
            "mixed_gpus",
            f"{_gpu(limits.oldest)} is supported up to branch {limits.last} and {_gpu(limits.newest)} from branch "
            f"{limits.first} on: no driver supports both in one host, so take one of them out",
        )
    elif _is_number(branch):
        yield from _check_branch(branch, limits)


def _check_branch(branch: str, limits: _Limits) -> t.Iterator[Notice]:
    if limits.last is not None and int(branch) > limits.last:
        yield Notice(
            "gpu_too_old",
            f"{_gpu(limits.oldest)} is too old for branch {branch}, which is asked for: the newest that supports it is "
            f"{limits.last}; set nvidia_driver_branch to {limits.last} or auto",
        )
    if int(branch) < limits.first:
        yield Notice(
            "gpu_too_new",
            f"{_gpu(limits.newest)} is too new for branch {branch}, which is asked for: the first that supports it is "
            f"{limits.first}; set nvidia_driver_branch to a newer one or auto",
        )


def _check_kernel_module(wish: Wish, limits: _Limits) -> t.Iterator[Notice]:
    code = "module_not_for_gpu"
    branch = wish.wanted_branch
    if wish.kernel_module == "open" and limits.needs_proprietary is not None:
        yield Notice(
            code,
            f"{_gpu(limits.needs_proprietary)} is older than {FIRST_WITH_OPEN_MODULE}, which the open kernel module "
            "needs: set nvidia_driver_kernel_module to proprietary or auto",
        )
    if wish.kernel_module == "proprietary" and limits.needs_open is not None:
        yield Notice(
            code,
            f"The proprietary kernel module does not support {_gpu(limits.needs_open)}: set "
            "nvidia_driver_kernel_module to open or auto",
        )
    if not _is_number(branch):
        return
    if wish.kernel_module == "proprietary" and int(branch) >= FIRST_BRANCH_WITHOUT_PROPRIETARY_MODULE:
        yield Notice(
            code,
            f"Branch {branch} has no proprietary kernel module, the last supported one that has is "
            f"{_last_with_proprietary()}: set nvidia_driver_branch to it, or nvidia_driver_kernel_module to open or "
            "auto",
        )
    if wish.kernel_module == "open" and int(branch) < FIRST_BRANCH_WITH_OPEN_MODULE:
        yield Notice(
            code,
            f"Branch {branch} has no open kernel module, the first that has is {FIRST_BRANCH_WITH_OPEN_MODULE}: set "
            "nvidia_driver_kernel_module to proprietary, or nvidia_driver_branch to a newer branch",
        )


def _last_with_proprietary() -> str:
    return next(one.branch for one in BRANCHES[::-1] if int(one.branch) < FIRST_BRANCH_WITHOUT_PROPRIETARY_MODULE)


def misfits(found: Current, wish: Wish, gpus: Gpus) -> list[str]:
    """Why the installed driver isn't what is asked for; none when it is, newer versions left aside."""
    limits = _limits(gpus)
    reasons = []
    if wish.wanted_branch not in (None, found.branch):
        reasons.append(f"branch {wish.wanted_branch} is asked for, and {found.branch} is installed")
    elif wish.version and parse_version(wish.version) != parse_version(found.version):
        reasons.append(f"version {wish.version} is asked for, and {found.version} is installed")
    if not limits.supports(found.branch):
        reasons.append(
            f"branch {found.branch}, which is installed, does not support {_gpu(_unsupported(limits, found))}"
        )
    if wish.kernel_module not in ("auto", found.kernel_module):
        reasons.append(f"the {wish.kernel_module} kernel module is asked for, and the other one is installed")
    elif not limits.takes(found.kernel_module, found.branch):
        reasons.append(f"the {found.kernel_module} kernel module, which is installed, is not for these GPUs")
    if wish.display and not found.display:
        reasons.append("the packages for displays are asked for and missing")
    if wish.fabric_manager and found.fabric_manager is None:
        reasons.append("the fabric manager is missing")
    if found.fabric_manager is not None and parse_version(found.fabric_manager) != parse_version(found.version):
        reasons.append(f"the fabric manager is {found.fabric_manager}, and the driver {found.version}")
    return reasons


def _unsupported(limits: _Limits, found: Current) -> Gpu:
    return limits.newest if int(found.branch) < limits.first else limits.oldest


def choose(
    system: System, wish: Wish, gpus: Gpus, offered: t.Sequence[Offer], found: Current | None
) -> tuple[Offer, ...]:
    """The offers that fit, best first: the first that can be resolved is to be taken. Raises RefusedError.

    An installed branch stays, as does its version, unless an upgrade is wished: then newer supported branches come
    before it, and older ones still after it. Without an installed one, the newest supported branch comes first;
    unsupported ones are chosen from only where the source has no other that fits.
    """
    refusals = check_wish(system, wish, gpus)
    if refusals:
        raise RefusedError(refusals)
    limits = _limits(gpus)
    fitting = _fitting(system, wish, offered, limits)
    order = _branch_order(wish, fitting, found)
    return tuple(offer for branch in order for offer in _best_of_branch(wish, fitting, branch, found))


def _fitting(system: System, wish: Wish, offered: t.Sequence[Offer], limits: _Limits) -> list[Offer]:
    """The offers that match the wish and the GPUs, narrowed down in the order in which a lack is best explained."""
    left = list(offered)
    if not left:
        _refuse(
            "no_driver_in_source",
            f"nvidia_driver_source {wish.source} offers no complete driver for {system}: look at the address of its "
            f"repository{_components(system, wish)}, or choose another source",
        )
    branch = wish.wanted_branch
    if branch is not None:
        left = [offer for offer in left if offer.branch == branch]
        if not left:
            _refuse(
                "branch_unavailable",
                f"nvidia_driver_source {wish.source} does not offer branch {branch} for {system}, but "
                f"{_series(_branches(offered))}: set nvidia_driver_branch to one of them or auto",
            )
    if wish.version:
        versions = sorted({offer.version for offer in left}, key=parse_version, reverse=True)
        left = [offer for offer in left if parse_version(offer.version) == parse_version(wish.version)]
        if not left:
            _refuse(
                "version_unavailable",
                f"nvidia_driver_source {wish.source} does not offer driver {wish.version} for {system}, but of its "
                f"branch {_series(versions)}: set nvidia_driver_version to one of them or leave it empty",
            )
    left = _for_the_gpus(system, wish, left, limits)
    whole = [offer for offer in left if not offer.lacks]
    if not whole:
        newest = left[0]
        _refuse(
            "fabric_manager_unavailable",
            f"nvidia_driver_source {wish.source} has driver {newest.version}, but {_series(newest.lacks)}, and without "
            "one in exactly the driver's version the GPUs behind an NVSwitch can't be used: choose another source or "
            "branch, or set nvidia_driver_fabric_manager to never",
        )
    return whole


def _for_the_gpus(system: System, wish: Wish, offered: t.Sequence[Offer], limits: _Limits) -> list[Offer]:
    left = [offer for offer in offered if limits.supports(offer.branch)]
    if not left:
        too_old = limits.last is not None and all(int(offer.branch) > limits.last for offer in offered)
        gpu = limits.oldest if too_old else limits.newest
        bound = f"up to branch {limits.last}" if too_old else f"from branch {limits.first} on"
        other = "" if wish.source == "nvidia" or too_old else ": set nvidia_driver_source to nvidia"
        _refuse(
            "gpu_too_old" if too_old else "gpu_too_new",
            f"{_gpu(gpu)} is supported {bound}, and nvidia_driver_source {wish.source} offers {system} only "
            f"{_series(_branches(offered))}{other or ': take the card out, or choose another source or system'}",
        )
    wanted = [offer for offer in left if wish.kernel_module in ("auto", offer.kernel_module)]
    left_flavours = [offer for offer in wanted if limits.takes(offer.kernel_module, offer.branch)]
    if not left_flavours:
        flavour = wish.kernel_module
        if flavour == "auto":
            flavour = "proprietary" if limits.needs_proprietary is not None else "open"
        _refuse(
            "module_unavailable",
            f"nvidia_driver_source {wish.source} has no {flavour} kernel module for {system} in "
            f"{'branch' if len(_branches(left)) == 1 else 'branches'} {_series(_branches(left))}: "
            "choose another source or branch"
            + (", or leave nvidia_driver_kernel_module at auto" if wanted == [] else ""),
        )
    return left_flavours


def _components(system: System, wish: Wish) -> str:
    if wish.source == "distro":
        return f" and that it has the components {_series(RESTRICTED[system.distribution])}"
    return ""


def _branches(offered: t.Iterable[Offer]) -> list[str]:
    return sorted({offer.branch for offer in offered}, key=int)


def _refuse(code: str, message: str) -> t.NoReturn:
    raise RefusedError([Notice(code, message)])


def _branch_order(wish: Wish, fitting: t.Sequence[Offer], found: Current | None) -> list[str]:
    available = _branches(fitting)[::-1]
    supported = [branch for branch in available if _is_supported(branch)]
    order = supported or available[:1]
    if wish.wanted_branch is None and found is not None and found.branch in available:
        newer = [branch for branch in order if wish.upgrade and int(branch) > int(found.branch)]
        order = [*newer, found.branch, *(branch for branch in order if branch not in (*newer, found.branch))]
    return order


def _is_supported(branch: str) -> bool:
    return any(one.branch == branch for one in BRANCHES)


def _best_of_branch(wish: Wish, fitting: t.Sequence[Offer], branch: str, found: Current | None) -> t.Iterator[Offer]:
    """Of each flavour one version; a newer version comes before the better flavour, and an installed one before all."""
    here = found if found is not None and found.branch == branch else None

    def rank(offer: Offer) -> tuple[bool, bool, int, tuple[int, ...], bool]:
        stays = here is not None and not wish.upgrade and parse_version(offer.version) == parse_version(here.version)
        same_layout = here is not None and offer.layout == here.layout
        older = tuple(-number for number in parse_version(offer.version))
        preferred = "open" if here is None else here.kernel_module
        return not stays, not same_layout, offer.layout, older, offer.kernel_module != preferred

    seen = set()
    for offer in sorted((offer for offer in fitting if offer.branch == branch), key=rank):
        if offer.kernel_module not in seen:
            seen.add(offer.kernel_module)
            yield offer


def explain(
    wish: Wish,
    gpus: Gpus,
    offered: t.Sequence[Offer],
    found: Current | None,
    taken: Offer,
    unresolved: t.Sequence[tuple[Offer, str]] = (),
) -> Explanation:
    """Why this one was taken after those that could not be resolved, each with the package manager's reason."""
    limits = _limits(gpus)
    why = [
        _why_branch(wish, limits, offered, found, taken),
        _why_version(wish, offered, found, taken),
        _why_flavour(wish, limits, offered, found, taken),
        *(f"Driver {offer.label} can't be installed: {reason}" for offer, reason in unresolved),
    ]
    if wish.fabric_manager:
        why.append(
            f"The fabric manager comes along in version {taken.version}: the host has an NVSwitch or asks for it"
        )
    return Explanation(tuple(why), support_ended(wish, gpus, taken.branch, offered))


def _why_branch(wish: Wish, limits: _Limits, offered: t.Sequence[Offer], found: Current | None, taken: Offer) -> str:
    known = next((one for one in BRANCHES if one.branch == taken.branch), None)
    label = f"Branch {taken.branch}" + (f" ({known.kind}, supported until {known.end_of_life})" if known else "")
    if wish.wanted_branch is not None:
        return f"{label} is asked for"
    if found is not None and found.branch == taken.branch and not wish.upgrade:
        return f"{label} is installed and supports all GPUs"
    why = f"{label} is the newest {'supported one' if known else 'one'} on offer"
    if limits.last is not None and any(int(offer.branch) > limits.last for offer in offered):
        why += f" that {_gpu(limits.oldest)} can use"
    if wish.upgrade and found is not None and found.branch != taken.branch:
        why += f", to which the upgrade goes from branch {found.branch}"
    return why


def _why_version(wish: Wish, offered: t.Sequence[Offer], found: Current | None, taken: Offer) -> str:
    if wish.version:
        return f"Version {taken.version} is asked for"
    if found is not None and parse_version(found.version) == parse_version(taken.version):
        return f"Version {taken.version} is installed and stays"
    newest = max((offer.version for offer in offered if offer.branch == taken.branch), key=parse_version)
    if parse_version(newest) == parse_version(taken.version):
        return f"Version {taken.version} is the newest of its branch on offer"
    return f"Version {taken.version} is the newest of its branch that fits, though there is {newest}"


def _why_flavour(wish: Wish, limits: _Limits, offered: t.Sequence[Offer], found: Current | None, taken: Offer) -> str:
    flavour = taken.kernel_module
    if wish.kernel_module != "auto":
        return f"The {flavour} kernel module is asked for"
    if flavour == "proprietary" and limits.needs_proprietary is not None:
        return f"{_gpu(limits.needs_proprietary)} needs the proprietary kernel module"
    if flavour == "open" and limits.needs_open is not None:
        return f"{_gpu(limits.needs_open)} needs the open kernel module"
    if found is not None and found.branch == taken.branch and found.kernel_module == flavour:
        return f"The {flavour} kernel module is installed and stays"
    if flavour == "open":
        return "All GPUs can use the open kernel module, which NVIDIA recommends for them"
    versions = [offer.version for offer in offered if offer.branch == taken.branch and offer.kernel_module == "open"]
    newest = max(versions, key=parse_version, default=None)
    if newest is None:
        return "The source has the proprietary kernel module only in this branch"
    if parse_version(newest) < parse_version(taken.version):
        return f"The open kernel module is there only in the older version {newest}, so it is the proprietary one"
    return "The open kernel module can't be installed, so it is the proprietary one"


def support_ended(wish: Wish, gpus: Gpus, branch: str, offered: t.Sequence[Offer] | None) -> tuple[Notice, ...]:
    """The warning of a branch without support; ``offered`` is None where the source was not read."""
    if _is_supported(branch) or int(branch) > int(BRANCHES[-1].branch):
        return ()
    ended = f"ended in {ENDED[branch]}" if branch in ENDED else "has ended"
    limits = _limits(gpus)
    fitting = [one.branch for one in BRANCHES if limits.supports(one.branch)]
    on_offer = [one for one in _branches(offered or ()) if one in fitting]
    if on_offer:
        advice = f"this source also offers {_series(on_offer)} (nvidia_driver_branch)"
    elif wish.source == "distro" and fitting:
        advice = f"nvidia_driver_source nvidia offers {_series(fitting)}"
    elif offered is None and fitting:
        advice = f"set nvidia_driver_branch to {_series(fitting, 'or')}"
    else:
        advice = "this source has no supported one for these GPUs"
    return (
        Notice(
            "branch_unsupported",
            f"NVIDIA's support of driver branch {branch} {ended}, so it gets no more fixes: {advice}",
        ),
    )


def hidden_nvlink_switches(gpus: Gpus) -> tuple[Notice, ...]:
    """The warning of GPUs that may be joined by switches that PCI does not show."""
    gpu = next((one for one in gpus if _BEHIND_HIDDEN_SWITCHES.search(one.get("name") or "")), None)
    if gpu is None:
        return ()
    return (
        Notice(
            "nvlink_switches_hidden",
            f"{_gpu(gpu)} may be behind NVLink switches that PCI does not show (those of HGX B200 and B300 are managed "
            "through a ConnectX-7), and can't be used then without a fabric manager: set nvidia_driver_fabric_manager "
            "to always if this machine has NVLink switches of its own, else to never",
        ),
    )


def unresolvable(wish: Wish, unresolved: t.Sequence[tuple[Offer, str]]) -> Notice:
    """The refusal when no offer can be resolved."""
    reasons = "; ".join(f"{offer.label}: {reason}" for offer, reason in unresolved)
    return Notice(
        "unresolvable",
        f"No driver of nvidia_driver_source {wish.source} can be installed beside the packages of this host "
        f"({reasons}): look for packages that are held or half-installed, or choose another branch or source",
    )


def ways_out(wish: Wish, gpus: Gpus, offered: t.Sequence[Offer], failed: Offer, kernel: str) -> tuple[str, ...]:
    """What to try when the module of an offer doesn't compile for a kernel, each as an imperative clause."""
    limits = _limits(gpus)
    fitting = [
        offer
        for offer in offered
        if not offer.lacks and limits.supports(offer.branch) and limits.takes(offer.kernel_module, offer.branch)
    ]
    ways = []
    other: KernelModule = "proprietary" if failed.kernel_module == "open" else "open"
    if any(offer.branch == failed.branch and offer.kernel_module == other for offer in fitting):
        ways.append(f"set nvidia_driver_kernel_module: {other}")
    newer = [branch for branch in _branches(fitting) if int(branch) > int(failed.branch)]
    if newer:
        ways.append(f"set nvidia_driver_branch: {_series(newer, 'or')}")
    if wish.source == "distro" and any(
        limits.supports(one.branch) and int(one.branch) > int(failed.branch) for one in BRANCHES
    ):
        ways.append("set nvidia_driver_source: nvidia, which has newer versions")
    ways.append(f"boot a kernel older than {kernel} and run this again")
    return tuple(ways)
