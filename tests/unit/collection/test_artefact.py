# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The built collection holds what users need and nothing else, and works from wherever it is installed."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from collection_layout import DEPENDENCIES, DEPENDENCIES_AT, MODULES, PLAYBOOKS, ROLES, ROOT, files, load, run


@pytest.fixture(scope="session")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the built collection."""
    folder = tmp_path_factory.mktemp("artefact")
    run("ansible-galaxy", "collection", "build", ROOT, "--output-path", folder)
    return folder / f"cudahub-gpu-{load(ROOT / 'galaxy.yml')['version']}.tar.gz"


@pytest.fixture(scope="session")
def installed(artefact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a path with a space and no link to the checkout, in which the collection is installed."""
    folder = tmp_path_factory.mktemp("some where")
    install = (
        "ansible-galaxy",
        "collection",
        "install",
        artefact,
        "--offline",
        "--no-deps",
        "--collections-path",
        folder,
    )
    run(*install, ANSIBLE_COLLECTIONS_PATH=str(folder))
    return folder


def test_files(artefact: Path) -> None:
    wanted = {path.relative_to(ROOT).as_posix() for path in files("meta", "playbooks", "plugins", "roles")}
    wanted |= {"CHANGELOG.md", "FILES.json", "LICENSE", "MANIFEST.json", "README.md", "changelogs/config.yaml"}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "changelogs").glob("changelog.yaml")}
    with tarfile.open(artefact) as archive:
        assert {member.name for member in archive if member.isfile()} == wanted


def test_manifest(artefact: Path) -> None:
    with tarfile.open(artefact) as archive:
        manifest = archive.extractfile("MANIFEST.json")
        assert manifest is not None
        info = json.load(manifest)["collection_info"]
    assert (info["namespace"], info["name"], info["license"]) == ("cudahub", "gpu", ["GPL-3.0-or-later"])
    assert set(info["dependencies"]) == DEPENDENCIES


def test_execution_environment_finds_its_requirements(installed: Path) -> None:
    collection = installed / "ansible_collections/cudahub/gpu"
    named = load(collection / "meta/execution-environment.yml")["dependencies"]["python"]
    assert "jmespath" in (collection / named).read_text(encoding="utf-8")


def test_documentation_from_the_installed_collection(installed: Path) -> None:
    listed = {
        "module": [f"cudahub.gpu.{module.stem}" for module in MODULES],
        "filter": [f"cudahub.gpu.{path.stem}" for path in sorted((ROOT / "plugins/filter").glob("[a-z]*.py"))],
        "role": [f"cudahub.gpu.{role.name}" for role in ROLES],
    }
    for kind, names in listed.items():
        answer = run("ansible-doc", "--json", "--type", kind, *names, ANSIBLE_COLLECTIONS_PATH=str(installed))
        assert set(json.loads(answer.stdout)) == set(names)


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda playbook: playbook.stem)
def test_playbook_of_the_installed_collection(playbook: Path, installed: Path) -> None:
    name = f"cudahub.gpu.{playbook.stem}"
    paths = os.pathsep.join(map(str, (installed, *DEPENDENCIES_AT)))
    run("ansible-playbook", "--syntax-check", "-i", "localhost,", name, ANSIBLE_COLLECTIONS_PATH=paths)


def test_module_of_the_installed_collection(installed: Path) -> None:
    variables = {"ANSIBLE_COLLECTIONS_PATH": str(installed), "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    answer = run("ansible", "localhost", "-c", "local", "-m", "cudahub.gpu.gpu_facts", **variables)
    result = json.loads(answer.stdout.partition("localhost | SUCCESS => ")[2])
    assert result["changed"] is False
    assert result["ansible_facts"]["gpu"]["count"] >= 0
