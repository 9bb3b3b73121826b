#!/usr/bin/python
# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_plan
short_description: Plan the installation of the NVIDIA driver
version_added: 0.1.0
author:
  - cudahub.gpu contributors (@cudahub)
description:
  - Finds out which NVIDIA driver fits the GPUs and the wishes, whether its source can give it, what the package manager
    would do to install it, and what forbids that. M(cudahub.gpu.driver_packages) carries the plan out.
  - Changes neither packages nor sources, and does not take the lock under which packages are changed. A repository that
    the host does not have yet is read and verified with a private apt in a temporary directory, or with a dnf that has
    it for this one time. What dnf reads gets into its cache, which it locks meanwhile.
  - What can't be done is no failure of the module. It is in RV(refusals), each with a code and a sentence, all that can
    be found at once together.
  - Where the driver is installed as asked for, neither the network nor the repository is used.
requirements:
  - Python 3.9 or later on the target
  - apt (Debian, Ubuntu) or dnf (Enterprise Linux) on the target
options:
  source:
    description:
      - Where the driver comes from. V(nvidia) is NVIDIA's package repository or a mirror of it, V(distro) is the
        archive of the distribution.
    type: str
    choices: [distro, nvidia]
    required: true
  gpus:
    description:
      - The GPUs, as C(ansible_facts['gpu']['gpus']) of M(cudahub.gpu.gpu_facts) has them. Of each, C(architecture),
        C(name), C(pci_bus_id) and C(processes) are used.
      - May be empty where O(kernel) is not V(running), as for an image, or where O(kernel_module) and either O(branch)
        or O(version) are given. It is a refusal else.
    type: list
    elements: dict
    required: true
  nvswitches:
    description: Number of NVSwitches, as C(ansible_facts['gpu']['nvswitches']) has it.
    type: int
    default: 0
  branch:
    description:
      - The driver branch, for example V("580"). Quote it.
      - V(auto) keeps the branch of a driver that this source has given and that suits the GPUs, unless O(upgrade) is
        set. Else it is the newest supported branch that the source offers and that suits the oldest GPU, or with a
        warning the newest that is no longer supported.
      - A branch that is no longer supported is warned of whenever it is chosen or stays.
    type: str
    default: auto
  version:
    description:
      - The whole version of the driver, for example V("580.159.04"). With the empty string it is the newest of the
        branch, or the one that is installed.
    type: str
    default: ""
  kernel_module:
    description:
      - The kernel module's flavour.
      - V(auto) is the open one for Turing and later, the proprietary one for GPUs before that, or where the open one
        can't be installed and the GPUs take it.
    type: str
    choices: [auto, open, proprietary]
    default: auto
  display:
    description: Whether the libraries and the X driver for displays are wanted, too, and not only those to compute.
    type: bool
    default: false
  fabric_manager:
    description:
      - Whether to install the fabric manager. V(auto) does where there are NVSwitches. Where it is not wanted, one that
        this collection has installed is removed, and any other one stays.
      - HGX B200 and B300 don't show their NVLink switches on PCI, so that O(nvswitches) is 0. With V(auto), hosts with
        such GPUs get a warning, and no fabric manager. V(always) or V(never) decide it.
    type: str
    choices: [auto, always, never]
    default: auto
  kernel:
    description:
      - The kernel for which the module is built, as C(uname -r) prints it.
      - V(running) is the running one. V(newest) is the newest that is installed, else the newest whose headers are
        offered, as to build an image.
    type: str
    default: running
  secure_boot:
    description:
      - V(refuse) refuses a host with Secure Boot, as it does not load a module that nobody has signed.
      - V(enrolled) says that the key with which DKMS signs is enrolled.
    type: str
    choices: [enrolled, refuse]
    default: refuse
  upgrade:
    description:
      - Whether to go to the newest version that fits, although a driver that fits is installed. With O(branch=auto) it
        is that of the newest supported branch, with another one that of this branch.
      - An installed branch that is newer than all supported ones on offer stays.
    type: bool
    default: false
  hold:
    description: Whether the packages of the driver are to be held in their version.
    type: bool
    default: true
  ignore_processes:
    description: Whether to plan a change although processes use the GPUs.
    type: bool
    default: false
  repository:
    description:
      - The address of the source.
      - An address with a user name or a password in it is refused. Their place is a file in C(/etc/apt/auth.conf.d) on
        the host, or, on Enterprise Linux, a file of the host's own in C(/etc/yum.repos.d).
    type: dict
    suboptions:
      url:
        description:
          - For O(source=nvidia) the directory of the repository, distribution and architecture included. Required.
          - For O(source=distro) a mirror of the distribution's archive. If it is not given, the archive is taken from
            where the host takes its component main from.
        type: str
      key_url:
        description:
          - Where the key of NVIDIA's repository is. An address that ends in V(.gpg) holds a binary key, any other one
            has it in ASCII armor.
        type: str
      key_fingerprint:
        description: The fingerprint of that key, which is enforced.
        type: str
      key_checksum:
        description:
          - SHA-256 of the key's file, in hexadecimal, with or without C(sha256:) in front. Not checked if omitted.
        type: str
  timeout:
    description: Seconds after which a server that does not answer is given up.
    type: float
    default: 60
  lock_timeout:
    description:
      - How many seconds to wait for the lock of dnf, while another process holds it. apt takes none to be asked.
    type: int
    default: 300
extends_documentation_fragment:
  - cudahub.gpu.attributes.reads_only
attributes:
  platform:
    description: Target OS/families that can be operated against.
    support: full
    platforms: Debian, Ubuntu, RedHat
notes:
  - The environment variables C(http_proxy), C(https_proxy) and C(no_proxy) are honoured, and for packages apt's and
    dnf's own settings, too.
  - Run it with C(become), as only root sees whose processes use the GPUs. Another user gets the plan with a refusal.
seealso:
  - module: cudahub.gpu.driver_packages
    description: Carries the plan out.
  - module: cudahub.gpu.gpu_facts
    description: Describes the GPUs.
  - ref: cudahub.gpu.nvidia_driver role <ansible_collections.cudahub.gpu.nvidia_driver_role>
    description: Installs the driver with both.
"""

EXAMPLES = r"""
- name: Describe the GPUs
  cudahub.gpu.gpu_facts:

- name: Plan the driver of NVIDIA's repository
  cudahub.gpu.driver_plan:
    source: nvidia
    gpus: "{{ ansible_facts['gpu']['gpus'] }}"
    nvswitches: "{{ ansible_facts['gpu']['nvswitches'] }}"
    repository:
      url: https://mirror.example.org/compute/cuda/repos/debian13/x86_64/
      key_url: https://mirror.example.org/compute/cuda/repos/debian13/x86_64/8793F200.pub
      key_fingerprint: 02182E60104FCDC26EAE1B8597A5D4CB8793F200
  become: true
  register: driver

- name: Stop where it can't be installed
  ansible.builtin.assert:
    that: driver.refusals | length == 0
    fail_msg: "{{ driver.refusals | map(attribute='message') | join('; ') }}"

- name: Plan a certain version of the distribution's driver for an image with the newest kernel
  cudahub.gpu.driver_plan:
    source: distro
    gpus: []
    kernel: newest
    version: 535.309.01
    kernel_module: proprietary
"""

RETURN = r"""
plan:
  description: What is to be done. Where a refusal leaves something open it is null or empty.
  returned: always
  type: dict
  contains:
    satisfied:
      description: Whether nothing is to be done.
      returned: always
      type: bool
      sample: false
    source:
      description: As O(source).
      returned: always
      type: str
      sample: nvidia
    branch:
      description: The branch of the driver.
      returned: always
      type: str
      sample: "580"
    version:
      description: The version of the driver.
      returned: always
      type: str
      sample: 580.159.04
    kernel_module:
      description: The flavour of the kernel module, V(open) or V(proprietary).
      returned: always
      type: str
      sample: open
    kernels:
      description: The kernels for which the module is built.
      returned: always
      type: list
      elements: str
      sample: [6.12.118+deb13-amd64]
    packages:
      description: The packages to ask for, in whole versions.
      returned: always
      type: list
      elements: dict
      contains: &package
        name:
          description: The package's name.
          returned: always
          type: str
          sample: nvidia-driver-cuda
        version:
          description: The package's version.
          returned: always
          type: str
          sample: 580.159.04-1
    transaction:
      description: What the package manager would do, dependencies included. All is empty if RV(plan.satisfied).
      returned: always
      type: dict
      contains:
        install:
          description: Packages that are not installed yet.
          returned: always
          type: list
          elements: dict
          contains: *package
        change:
          description: Packages that get another version.
          returned: always
          type: list
          elements: dict
          contains:
            name:
              description: The package's name.
              returned: always
              type: str
              sample: libcuda1
            from:
              description: The version that is installed.
              returned: always
              type: str
              sample: 580.159.04-1
            to:
              description: The version that is to be installed.
              returned: always
              type: str
              sample: 595.71.05-1
        remove:
          description: Packages that go.
          returned: always
          type: list
          elements: dict
          contains: *package
    hold:
      description: The driver's packages that are installed afterwards; empty without O(hold).
      returned: always
      type: list
      elements: str
      sample: [libcuda1, nvidia-driver-cuda]
    unhold:
      description:
        - Packages that an earlier installation by this collection has held, and that are not to be held any more.
      returned: always
      type: list
      elements: str
      sample: []
    download_bytes:
      description: Bytes to download; null if the package manager does not tell.
      returned: always
      type: int
      sample: 97996084
    disk_bytes:
      description: Bytes that the packages take on disk, less what they free; null if the package manager does not tell.
      returned: always
      type: int
      sample: 436215808
    repair:
      description: Whether a transaction that was interrupted must be finished first.
      returned: always
      type: bool
      sample: false
    why:
      description: Sentences that say what is not as asked for, and why this driver was chosen.
      returned: always
      type: list
      elements: str
      sample: [No driver of source nvidia is installed completely]
    available:
      description:
        - The versions that the source offers, newest first, by branch. Empty if the source was not read, as where
          RV(plan.satisfied).
      returned: always
      type: dict
      sample: {"580": ["580.159.04", "580.126.09"]}
    repository:
      description:
        - What the package manager's sources lack, to be written before the plan is carried out; also if
          RV(plan.satisfied). Null if they lack nothing.
      returned: always
      type: dict
      contains:
        name:
          description: The repository's id.
          returned: with dnf
          type: str
          sample: cudahub-nvidia-driver
        baseurl:
          description: Its address.
          returned: with dnf
          type: str
          sample: https://mirror.example.org/compute/cuda/repos/rhel9/x86_64/
        path:
          description: The file to write.
          returned: always
          type: str
          sample: /etc/apt/sources.list.d/cudahub-nvidia-driver.sources
        content:
          description: The content of that file, in deb822 format.
          returned: with apt
          type: str
          sample: |
            # Ansible managed
            Types: deb
            URIs: https://mirror.example.org/compute/cuda/repos/debian13/x86_64/
            Suites: /
            Signed-By: /etc/apt/keyrings/cudahub-nvidia-driver-0218….asc 0218…
        uris:
          description: Its addresses.
          returned: with apt
          type: list
          elements: str
          sample: [https://mirror.example.org/compute/cuda/repos/debian13/x86_64/]
        suites:
          description: Its suites, V(/) for a flat repository.
          returned: with apt
          type: list
          elements: str
          sample: [/]
        components:
          description: Its components; empty for a flat repository.
          returned: with apt
          type: list
          elements: str
          sample: []
        signed_by:
          description: The key's file and fingerprint, as apt takes them; null if any key that the host trusts will do.
          returned: with apt
          type: str
          sample: /etc/apt/keyrings/cudahub-nvidia-driver-0218….asc 0218…
        key_url:
          description: Where to get the key; null if the host has it.
          returned: always
          type: str
          sample: https://mirror.example.org/compute/cuda/repos/debian13/x86_64/8793F200.pub
        key_path:
          description: Where to put the key; null if the host has it.
          returned: always
          type: str
          sample: /etc/apt/keyrings/cudahub-nvidia-driver-0218….asc
        key_there:
          description: Whether the host has a file there that is this key.
          returned: always
          type: bool
          sample: false
        key_fingerprint:
          description: The key's fingerprint; null if the host has the key.
          returned: always
          type: str
          sample: 02182E60104FCDC26EAE1B8597A5D4CB8793F200
        key_checksum:
          description: SHA-256 of the key's file; null if none was given.
          returned: always
          type: str
          sample: null
    module_stream:
      description: The module stream that dnf enables with the transaction, as dnf says itself; null if none.
      returned: always
      type: str
      sample: nvidia-driver:580-open
    ways_out:
      description: What to do if the kernel module does not compile, as imperative clauses.
      returned: always
      type: list
      elements: str
      sample: ["set nvidia_driver_kernel_module: proprietary"]
refusals:
  description: What forbids to carry the plan out; empty if nothing does.
  returned: always
  type: list
  elements: dict
  contains: &notice
    code:
      description:
        - A word for programs, for example V(secure_boot), V(branch_unavailable), V(repository), V(dkms_too_old) or
          V(disk).
      returned: always
      type: str
      sample: branch_unavailable
    message:
      description: A sentence that says what is wrong, where, and what to do.
      returned: always
      type: str
      sample: Branch 999 is not offered by the source; it offers 580 and 595
warnings_given:
  description: What should be known of the plan. Also given as warnings of the task.
  returned: always
  type: list
  elements: dict
  contains: *notice
"""

import http.client
import re
import typing as t
import urllib.error

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import ConnectionError as UrlConnectionError
from ansible.module_utils.urls import SSLValidationError, open_url

from ansible_collections.cudahub.gpu.plugins.module_utils import _address, _driver_plan
from ansible_collections.cudahub.gpu.plugins.module_utils._apt_sources import Key
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_host import AptHost, DnfHost, RepositoryWish
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import Notice, Wish
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import RepositoryError, runner

ARGUMENTS: dict[str, t.Any] = {
    "source": {"type": "str", "choices": ["distro", "nvidia"], "required": True},
    "gpus": {"type": "list", "elements": "dict", "required": True},
    "nvswitches": {"type": "int", "default": 0},
    "branch": {"type": "str", "default": "auto"},
    "version": {"type": "str", "default": ""},
    "kernel_module": {"type": "str", "choices": ["auto", "open", "proprietary"], "default": "auto"},
    "display": {"type": "bool", "default": False},
    "fabric_manager": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "kernel": {"type": "str", "default": "running"},
    "secure_boot": {"type": "str", "choices": ["enrolled", "refuse"], "default": "refuse"},
    "upgrade": {"type": "bool", "default": False},
    "hold": {"type": "bool", "default": True},
    "ignore_processes": {"type": "bool", "default": False},
    "repository": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "url": {"type": "str"},
            "key_url": {"type": "str", "no_log": False},
            "key_fingerprint": {"type": "str", "no_log": False},
            "key_checksum": {"type": "str", "no_log": False},
        },
    },
    "timeout": {"type": "float", "default": 60},
    "lock_timeout": {"type": "int", "default": 300},
}


def main() -> None:
    """Read the parameters, plan, and return."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    parameters = module.params
    refusals = passwords(parameters)
    if refusals:
        for option in parameters["repository"].values():
            module.no_log_values.update(_address.secrets(option or ""))
        result = _driver_plan.Outcome(_driver_plan.Plan(parameters["source"]), refusals).as_dict()
        module.exit_json(changed=False, plan=result["plan"], refusals=result["refusals"], warnings_given=[])
    mistake = find_mistake(parameters)
    if mistake is not None:
        module.fail_json(msg=mistake)

    def fetch(url: str) -> bytes:
        return read_url(url, parameters["timeout"])

    repository = parameters["repository"]
    key = None
    if parameters["source"] == "nvidia":
        fingerprint = re.sub(r"\s", "", repository["key_fingerprint"] or "").upper()
        key = Key(repository["key_url"], fingerprint, repository["key_checksum"] or None)
    wish = RepositoryWish(parameters["source"], repository.get("url") or None, key)
    parts = (runner(module), wish, fetch, parameters["timeout"])
    host = AptHost(*parts) if module.get_bin_path("apt-get") else DnfHost(*parts, parameters["lock_timeout"])
    outcome = _driver_plan.make(as_request(parameters), host)
    result = outcome.as_dict()
    for warning in result["warnings"]:
        module.warn(warning["message"])
    module.exit_json(changed=False, plan=result["plan"], refusals=result["refusals"], warnings_given=result["warnings"])


def find_mistake(parameters: t.Mapping[str, t.Any]) -> str | None:
    """What is wrong with the parameters, in a sentence; None if nothing is."""
    branch, version, repository = parameters["branch"], parameters["version"], parameters["repository"]
    if not re.fullmatch(r"auto|\d{3,}", branch):
        return f"branch is {branch!r}: it must be auto or a number, for example '580'"
    if not re.fullmatch(r"|\d{3,}(?:\.\d+){1,2}", version):
        return f"version is {version!r}: it must be empty or a whole version, for example '580.159.04'"
    if version and branch not in ("auto", version.split(".")[0]):
        return f"version {version} is not of branch {branch}: give one of them, or a version of that branch"
    if not re.fullmatch(r"[\w.+~-]+", parameters["kernel"]):
        return f"kernel is {parameters['kernel']!r}: it must be running, newest, or a release as uname -r prints it"
    if parameters["timeout"] <= 0:
        return f"timeout is {parameters['timeout']:g}: it must be more than 0 seconds"
    if parameters["lock_timeout"] < 0:
        return f"lock_timeout is {parameters['lock_timeout']}: give a number of seconds, 0 or more"
    if parameters["source"] == "nvidia":
        for name in ("url", "key_url"):
            if not re.match(r"(?:https?|file|ftp):/", repository.get(name) or ""):
                return f"repository.{name} is {repository.get(name)!r}: source nvidia needs an address, https://…"
    return None


def passwords(parameters: t.Mapping[str, t.Any]) -> list[Notice]:
    """Refuse addresses that have a password in them, before they get into a file, a message or a log."""
    source, repository = parameters["source"], parameters["repository"]
    options = {
        "url": "nvidia_driver_repository_url" if source == "nvidia" else "nvidia_driver_distro_url",
        "key_url": "nvidia_driver_repository_key_url",
    }
    return [
        Notice("password_in_url", _address.password_in_url(option))
        for name, option in options.items()
        if _address.secrets(repository.get(name) or "")
    ]


def as_request(parameters: t.Mapping[str, t.Any]) -> _driver_plan.Request:
    """The parameters as the planner takes them."""
    fabric_manager = parameters["fabric_manager"]
    return _driver_plan.Request(
        wish=Wish(
            source=parameters["source"],
            branch=parameters["branch"],
            version=parameters["version"],
            kernel_module=parameters["kernel_module"],
            display=parameters["display"],
            fabric_manager=fabric_manager == "always" or (fabric_manager == "auto" and parameters["nvswitches"] > 0),
            upgrade=parameters["upgrade"],
            hold=parameters["hold"],
            image=parameters["kernel"] != "running",
        ),
        gpus=parameters["gpus"],
        kernel=parameters["kernel"],
        secure_boot=parameters["secure_boot"],
        ignore_processes=parameters["ignore_processes"],
        fabric_manager=fabric_manager,
    )


def read_url(url: str, timeout: float) -> bytes:
    """What is at a URL. Raises RepositoryError when it can't be had."""
    try:
        content: bytes = open_url(url, timeout=timeout).read()
    except urllib.error.HTTPError as error:
        kind: t.Literal["not_found", "network"] = "not_found" if error.code == 404 else "network"
        raise RepositoryError(kind, url, f"the server says {error.code} {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException, UrlConnectionError, SSLValidationError) as error:
        reason = getattr(error, "reason", None) or error
        missing = isinstance(reason, FileNotFoundError) or "No such file" in str(reason)
        text = getattr(reason, "strerror", None) or str(reason)
        raise RepositoryError("not_found" if missing else "network", url, text) from error
    return content


if __name__ == "__main__":
    main()
