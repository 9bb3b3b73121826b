# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""dnf with two more commands, which take a request and give an answer, both in JSON.

C(cudahub-available) lists what the enabled repositories offer, streams of modules that are not enabled included.
C(cudahub-transaction) installs and removes in one transaction, and enables the stream that has what is installed.
The text runs under dnf's own Python, which is 3.6 on Enterprise Linux 8.
"""

from __future__ import annotations

PROGRAM = r'''
import json
import sys

import dnf
import dnf.cli
import dnf.cli.cli
import dnf.cli.main
import dnf.exceptions
import dnf.module.module_base
import hawkey


def same_address(one, other):
    return one.rstrip("/") == other.rstrip("/")


class Command(dnf.cli.Command):
    @staticmethod
    def set_argparser(parser):
        parser.add_argument("request")

    def configure(self):
        with open(self.opts.request) as file:
            self.request = json.load(file)
        demands = self.cli.demands
        demands.available_repos = True
        demands.sack_activation = True
        address = self.request.get("address")
        if address:
            self._use(address)

    def _use(self, address):
        """Read this repository afresh, and fail if it can't be read. It is added where the system has not got it."""
        repos = self.base.repos
        own = [repo for repo in repos.iter_enabled() if any(same_address(url, address) for url in repo.baseurl)]
        if not own:
            own = [repos.add_new_repo(self.request["repository"], self.base.conf, baseurl=[address])]
        for repo in own:
            repo.skip_if_unavailable = False
            repo.metadata_expire = 1

    def answer(self, answer):
        with open(self.request["answer"], "w") as file:
            json.dump(answer, file)


class Available(Command):
    aliases = ("cudahub-available",)
    summary = "list what the repositories offer"

    def run(self):
        base = self.base
        arches = ("noarch", base.conf.substitutions["basearch"])
        packages = base.sack.query(flags=hawkey.IGNORE_MODULAR_EXCLUDES).available().filter(arch=arches)
        self.answer(
            {
                "repositories": {
                    repo.id: (list(repo.baseurl) or [repo.metalink or repo.mirrorlist or repo.id])[0]
                    for repo in base.repos.iter_enabled()
                },
                "packages": sorted({(each.name, each.evr, each.arch, each.reponame) for each in packages}),
            }
        )


class Transaction(Command):
    aliases = ("cudahub-transaction",)
    summary = "install and remove in one transaction"

    def configure(self):
        super(Transaction, self).configure()
        self.streams = {}
        demands = self.cli.demands
        demands.allow_erasing = not self.request["exact"]
        demands.resolving = True
        demands.root_user = True

    def run(self):
        base, request = self.base, self.request
        for module, stream in request["streams"].items():
            self._switch(module, stream)
        self._enable(request["install"])
        if request["pin"]:
            available = base.sack.query().available()
            pinned = available.filter(version=request["pin"])
            names = sorted({package.name for package in pinned})
            base.sack.add_excludes(available.filter(name=names).difference(pinned))
        self.going = {package for name in request["remove"] for package in self._installed(name)}
        for package in self.going:
            base.package_remove(package)
        for name, version in request["install"]:
            base.install("{}-{}".format(name, version), strict=True)

    def _installed(self, name):
        """The installed packages of a name, or the one that a name with version and architecture says."""
        installed = self.base.sack.query().installed()
        return list(installed.filter(name=name)) or [
            package for package in installed.filter(name=name.rsplit("-", 2)[0]) if str(package) == name
        ]

    def _enable(self, install):
        """Enable, of each module that these are of, a stream that has them all: the one that is enabled if it does."""
        artifacts = {}
        for module in self._modules():
            artifacts.setdefault(module.getName(), {}).setdefault(module.getStream(), set()).update(
                artifact.rpartition(".")[0] for artifact in module.getArtifacts()
            )
        for module, streams in sorted(artifacts.items()):
            wanted = {"{}-{}{}".format(name, "" if ":" in version else "0:", version) for name, version in install}
            wanted &= set.union(*streams.values())
            fitting = [stream for stream in streams if wanted <= streams[stream]]
            if not wanted or not fitting:
                continue
            if self._enabled(module) in fitting:
                self.streams[module] = [self._enabled(module)] * 2
            else:
                self._switch(module, min(fitting, key=lambda stream: (not stream[0].isdigit(), stream)))

    def _modules(self):
        return self.base._moduleContainer.getModulePackages() if self.base._moduleContainer else []

    def _enabled(self, module):
        return self.base._moduleContainer.getEnabledStream(module)

    def _switch(self, module, stream):
        if module not in {known.getName() for known in self._modules()}:
            return
        self.streams[module] = [self._enabled(module), stream]
        self.base.conf.module_stream_switch = True
        modules = dnf.module.module_base.ModuleBase(self.base)
        if stream:
            modules.enable(["{}:{}".format(module, stream)])
        else:
            modules.reset([module])

    def run_resolved(self):
        transaction = self.base.transaction
        new, gone = list(transaction.install_set), list(transaction.remove_set)
        same = self.base.sack.query().installed().filter(name=sorted({package.name for package in gone}))
        self.answer(
            {
                "new": [[package.name, package.arch, package.evr, package.installsize] for package in new],
                "gone": [[package.name, package.arch, package.evr, package.installsize] for package in gone],
                "kept": [[package.name, package.arch, package.evr] for package in same if package not in gone],
                "download": sum(package.downloadsize for package in new),
                "streams": self.streams,
            }
        )
        others = sorted(package.name for package in set(gone) - self.going)
        if self.request["exact"] and others:
            raise dnf.exceptions.Error("Packages would go that were not named: " + ", ".join(others))


class Cli(dnf.cli.cli.Cli):
    def __init__(self, base):
        super(Cli, self).__init__(base)
        self.register_command(Available)
        self.register_command(Transaction)


sys.exit(dnf.cli.main.main(sys.argv[1:], cli_class=Cli))
'''
