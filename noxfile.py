# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `make test` and `make test-all` run; the Makefile makes the environment that this file runs in.

Every session works on a copy of the checkout that lies where Ansible wants a collection (ansible-test refuses links).
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import nox

ROOT = Path(__file__).parent
CACHE = ROOT / ".cache"
COLLECTIONS = CACHE / "collections"
COLLECTION = COLLECTIONS / "ansible_collections/cudahub/gpu"
BIN = Path(sys.executable).parent
SCENARIOS = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))
# They begin first, so that nothing waits for them at the end.
LONGEST = ["nvidia_driver_distro", "slurm", "nvidia_driver_nvidia", "tljh"]
# What `make test-all` adds, besides tests that are marked `long`: drivers compiled from Debian's packages, the
# ansible-core between the oldest and the newest, and on the oldest the longest unit tests.
ALL = bool(os.environ.get("TEST_ALL"))
ADDED = [] if ALL else ["molecule-nvidia_driver_distro", "unit-2.20"]

# The Pythons of an older ansible-core's controller, the preferred one first.
OLDER_CORES = {"2.19": ["3.12", "3.13", "3.11"], "2.20": ["3.12", "3.13", "3.14"]}
# Tests that ask nothing of ansible-core: an older one runs them only if its Python is another than this one.
WITHOUT_CORE = ["bench", "demo", "plugins/module_utils", "plugins/plugin_utils", "simulator", "tools"]
# Tests of what other programs make of ours, which an older ansible-core does not change.
ONCE = ["conda"]
# Whole runs of roles and playbooks, which the oldest and the newest core have, the oldest the longest of them in
# `make test-all` only.
ENDS = {
    "2.19": [] if ALL else ["playbooks/test_slurm_cluster.py", "roles/test_nvidia_driver_flow.py"],
    "2.20": ["playbooks", "roles"],
}
# The Pythons of each JupyterHub that package cudahub_hub works with, the preferred one first.
HUBS = {"5": ["3.11", "3.12"], "6": ["3.12", "3.13"]}
# The hub whose session has a browser: for tests of the hub's pages, and of the fleet's report.
BROWSER_HUB = "6"
SANITY_PYTHONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
# ansible-test looks for get-pip under this name before it downloads it.
GET_PIP = "get_pip_25_2.py"

os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
# Images of Python set this: each ansible-playbook would compile all of Ansible again, which is most of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "none"
nox.options.allow_parallel = True
SESSIONS = [
    "tree",
    "images",
    *(f"molecule-{scenario}" for scenario in LONGEST),
    "ruff",
    "yamllint",
    "shellcheck",
    "mypy",
    "ansible-lint",
    "changelog",
    "docs",
    "sanity",
    *(f"molecule-{scenario}" for scenario in SCENARIOS if scenario not in LONGEST),
    "unit-2.21",
    *(f"unit-{core}" for core in OLDER_CORES),
    *(f"hub-{version}" for version in HUBS),
]
nox.options.sessions = [name for name in SESSIONS if name not in ADDED]


@nox.session(allow_parallel=False)
def tree(session: nox.Session) -> None:
    """Copy what git tracks or would track to the place of the collection."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    if COLLECTION.exists():
        shutil.rmtree(COLLECTION)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, COLLECTION / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    # Tools that ask git which files there are get the same answer as in the checkout.
    session.chdir(COLLECTION)
    session.run("git", "init", "--quiet", external=True)
    session.run("git", "add", "--all", external=True)


@nox.session(requires=["tree"])
def images(session: nox.Session) -> None:
    """Build the images of Molecule's hosts, if they are missing."""
    session.run(str(ROOT / "tests/images/build"), "debian12", "debian13", external=True)


def run(session: nox.Session, *command: str | Path, folder: Path = COLLECTION, **variables: str) -> None:
    """Run a command in the copy, with variables that let Ansible and Python find the copy."""
    session.chdir(folder)
    found = {
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_HOME": str(CACHE / "ansible"),
        "PYTHONPATH": str(COLLECTIONS),
        # None in the copy.
        "PYTHONPYCACHEPREFIX": str(CACHE / "bytecode"),
    }
    session.run(*map(str, command), env={**found, **variables}, external=True)


@nox.session(tags=["lint"], requires=["tree"])
def ruff(session: nox.Session) -> None:
    """Python: rules and format."""
    run(session, "ruff", "check", "--no-cache")
    run(session, "ruff", "format", "--no-cache", "--check")


@nox.session(tags=["lint"], requires=["tree"])
def yamllint(session: nox.Session) -> None:
    """YAML: form."""
    run(session, "yamllint", "--strict", ".")


def first_line(path: Path) -> str:
    """Return the first line of a file."""
    with path.open(encoding="utf-8") as file:
        return file.readline().rstrip("\n")


@nox.session(tags=["lint"], requires=["tree"])
def shellcheck(session: nox.Session) -> None:
    """Shell scripts: rules."""
    listed = subprocess.run(["git", "grep", "-lE", "^#!.*sh$"], cwd=ROOT, check=True, capture_output=True, text=True)
    scripts = [name for name in listed.stdout.split() if re.match(r"#!.*sh$", first_line(ROOT / name))]
    run(session, "shellcheck", *scripts)


@nox.session(tags=["lint"], requires=["tree"])
def mypy(session: nox.Session) -> None:
    """Python: types of the plugins, strictly."""
    config, cache = COLLECTION / "pyproject.toml", CACHE / "mypy"
    plugins = (COLLECTION / "plugins").relative_to(COLLECTIONS)
    command = ("mypy", "--strict", f"--config-file={config}", f"--cache-dir={cache}", plugins)
    run(session, *command, folder=COLLECTIONS, PYTHONPATH="")


@nox.session(name="ansible-lint", tags=["lint"], requires=["tree"])
def ansible_lint(session: nox.Session) -> None:
    """Roles and playbooks, at the production profile."""
    run(session, "ansible-lint", "--offline", "--nocolor", "--profile", "production")


@nox.session(tags=["lint"], requires=["tree"])
def changelog(session: nox.Session) -> None:
    """Changelog fragments."""
    run(session, "antsibull-changelog", "lint")


@nox.session(tags=["lint"], requires=["tree"])
def docs(session: nox.Session) -> None:
    """Documentation of plugins and roles."""
    # It writes a log into the home folder.
    home = CACHE / "docs-home"
    home.mkdir(exist_ok=True)
    run(session, "antsibull-docs", "lint-collection-docs", "--plugin-docs", "--skip-rstcheck", ".", HOME=str(home))


@nox.session(requires=["tree"])
def sanity(session: nox.Session) -> None:
    """ansible-test's sanity tests, with every Python of this machine that it supports."""
    home, pythons = CACHE / "sanity-home", CACHE / "pythons"
    if pythons.exists():
        shutil.rmtree(pythons)
    pythons.mkdir(parents=True)
    for version in SANITY_PYTHONS:
        answer = subprocess.run(
            [ROOT / "tests/tools/find-python", version], capture_output=True, text=True, check=False
        )
        if answer.returncode == 0:
            (pythons / f"python{version}").symlink_to(answer.stdout.strip())
        else:
            session.warn(f"Not run with Python {version}: this machine has none.")
    write_pip_config(home / ".config/pip/pip.conf")
    (home / ".ansible/test/cache").mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / "tests/tools/get_pip.py", home / ".ansible/test/cache" / GET_PIP)
    command = ("ansible-test", "sanity", "--color", "no", "--junit")
    run(session, *command, HOME=str(home), PATH=f"{pythons}{os.pathsep}{os.environ['PATH']}", PYTHONPATH="")
    if not list((COLLECTION / "tests/output/junit").glob("*.xml")):
        session.error("ansible-test ran no test at all.")


def write_pip_config(path: Path) -> None:
    """Write pip's settings of this user and of PIP_... variables, which ansible-test doesn't pass on, into a file."""
    config = configparser.RawConfigParser()
    config.read([Path("~/.pip/pip.conf").expanduser(), Path("~/.config/pip/pip.conf").expanduser()])
    if not config.has_section("global"):
        config.add_section("global")
    for name, value in os.environ.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE":
            config.set("global", name.removeprefix("PIP_").lower().replace("_", "-"), value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        config.write(file)


def unit_tests(session: nox.Session, bin_folder: Path, *options: str) -> None:
    """Run the unit tests in an environment: those that the command line names, or else all, with options of pytest."""
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    pytest = (bin_folder / "python", "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--durations=30")
    # The collections that ours depends on come with Ansible's package, which older environments don't have.
    collections = os.pathsep.join((str(COLLECTIONS), sysconfig.get_path("purelib")))
    tests = session.posargs or ["tests/unit", *options]
    run(session, *pytest, *tests, PATH=path, ANSIBLE_COLLECTIONS_PATH=collections)


@nox.session(name="unit-2.21", tags=["unit"], requires=["tree"])
def unit(session: nox.Session) -> None:
    """Unit tests on the ansible-core that everything else runs with."""
    unit_tests(session, BIN)


def older_unit(core: str) -> Callable[[nox.Session], None]:
    """Return a session of the unit tests on an older ansible-core, in an environment of its own."""

    def session_of_core(session: nox.Session) -> None:
        """Unit tests on an older ansible-core."""
        folder = CACHE / f"venv-{core}"
        requirements = ROOT / f"tests/requirements/core-{core}.txt"
        session.run(str(ROOT / "tests/tools/venv"), str(folder), str(requirements), *OLDER_CORES[core], external=True)
        same_python = (folder / f"bin/python{sys.version_info.major}.{sys.version_info.minor}").exists()
        skipped = [*ONCE, *ENDS.get(core, []), *(WITHOUT_CORE if same_python else [])]
        unit_tests(session, folder / "bin", *(f"--ignore=tests/unit/{name}" for name in skipped))

    return session_of_core


def hub_proxy(session: nox.Session, bin_folder: Path, target: Path) -> Path:
    """Install the proxy of JupyterHub's with the Node.js of an environment, and return its command."""
    target.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy2(ROOT / "tests/requirements/proxy" / name, target)
    session.chdir(target)
    variables = {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "npm_config_cache": str(CACHE / "npm")}
    session.run(str(bin_folder / "npm"), "ci", "--silent", env=variables, external=True)
    return target / "node_modules/.bin/configurable-http-proxy"


def hub(version: str) -> Callable[[nox.Session], None]:
    """Return a session of the tests of package cudahub_hub on a JupyterHub, in an environment of its own."""

    def session_of_hub(session: nox.Session) -> None:
        """Types and tests of package cudahub_hub on a JupyterHub."""
        folder = CACHE / f"venv-hub-{version}"
        requirements = ROOT / f"tests/requirements/hub-{version}.txt"
        session.run(str(ROOT / "tests/tools/venv"), str(folder), str(requirements), *HUBS[version], external=True)
        bin_folder, package = folder / "bin", COLLECTION / "roles/jupyterhub_gpus/files/cudahub_hub"
        config, cache = COLLECTION / "pyproject.toml", CACHE / f"mypy-hub-{version}"
        command = ("mypy", "--strict", f"--config-file={config}", f"--cache-dir={cache}", "-p", "cudahub_hub")
        run(session, bin_folder / "python", "-m", *command, folder=package, PYTHONPATH="")
        variables = {
            "CONFIGURABLE_HTTP_PROXY": str(hub_proxy(session, bin_folder, folder / "proxy")),
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{package}{os.pathsep}{COLLECTIONS}",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(CACHE / "hypothesis"),
        }
        tests = ["tests/hub"]
        browser = shutil.which("chromium")
        if version != BROWSER_HUB:
            tests.append("--ignore=tests/hub/browser")
        elif browser:
            variables["CHROMIUM"] = browser
            tests.append("tests/report")
        else:
            session.warn("Not run: tests/hub/browser and tests/report, because this machine has no chromium.")
            tests.append("--ignore=tests/hub/browser")
        # The tests of a file share a hub.
        pytest = (bin_folder / "python", "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile")
        loops = ("-o", "asyncio_default_fixture_loop_scope=function")
        run(session, *pytest, *loops, *(session.posargs or tests), **variables)

    return session_of_hub


def molecule(scenario: str) -> Callable[[nox.Session], None]:
    """Return a session that tests a scenario of Molecule."""

    def session_of_scenario(session: nox.Session) -> None:
        """Molecule scenario."""
        command = ("molecule", "--base-config", ".config/molecule/config.yml", "test", "--scenario-name", scenario)
        run(
            session, *command,
            MOLECULE_GLOB="molecule/*/molecule.yml",
            MOLECULE_COMMAND_BORDERS="false",
            MOLECULE_EPHEMERAL_DIRECTORY=str(CACHE / "molecule" / scenario),
        )  # fmt: skip

    return session_of_scenario


for _core in OLDER_CORES:
    nox.session(older_unit(_core), name=f"unit-{_core}", tags=["unit"], requires=["tree"])
for _version in HUBS:
    nox.session(hub(_version), name=f"hub-{_version}", tags=["unit"], requires=["tree"])
for _scenario in SCENARIOS:
    nox.session(molecule(_scenario), name=f"molecule-{_scenario}", tags=["molecule"], requires=["tree", "images"])
