# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host is read where its facts really are, and only its own sources count as its own."""

from __future__ import annotations

import contextlib
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _apt_sources, _driver_host
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import RefusedError
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_record import Record
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import RepositoryError, Result
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles
from ansible_collections.cudahub.gpu.tests.unit.plugins.driver_repositories import put

URL = "https://mirror.example/debian13/x86_64/"
KEY = _apt_sources.Key(f"{URL}8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
OS_RELEASE = 'ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n'
SOURCES = """\
deb http://archive.example/debian trixie main
deb http://security.example/debian trixie-security main
"""
ANSWERS = {
    ("dpkg-query", "-S", "/lib/x/libnvidia-ml.so.1"): "libnvidia-ml1:amd64: /lib/x/libnvidia-ml.so.1\n",
    ("dkms", "status"): "nvidia/580.159.04, 6.12.118+deb13-amd64, x86_64: installed\n",
    ("rpm", "-qf", "--qf", "%{NAME}\\n", "/usr/lib64/libnvidia-ml.so.1"): "nvidia-driver-cuda-libs\n",
}


def answer(command: t.Sequence[str], _environment: t.Mapping[str, str]) -> Result:
    text = ANSWERS.get(tuple(command))
    return Result(1, "", "no") if text is None else Result(0, text, "")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def files(directory: str = "/") -> HostFiles:
        return HostFiles(str(tmp_path) if directory == "/" else directory)

    monkeypatch.setattr(_driver_host, "HostFiles", files)
    put(tmp_path, "/etc/os-release", OS_RELEASE)
    put(tmp_path, "/etc/apt/sources.list", SOURCES)
    return tmp_path


def apt_host(source: t.Literal["nvidia", "distro"] = "nvidia", **wish: t.Any) -> _driver_host.AptHost:
    if source == "nvidia":
        wish = {"url": URL, "key": KEY, **wish}
    return _driver_host.AptHost(answer, _driver_host.RepositoryWish(source, **wish), lambda _url: b"", 60)


def dnf_host(key: _apt_sources.Key) -> _driver_host.DnfHost:
    return _driver_host.DnfHost(
        answer, _driver_host.RepositoryWish("nvidia", URL, key), lambda _url: b"<html>", 60, 300
    )


def test_nvidia_repository(root: Path) -> None:
    wanted = _apt_sources.nvidia_repository(URL, KEY).as_dict()
    assert apt_host().repository() == {**wanted, "key_there": False}
    put(root, KEY.path, "junk")
    assert apt_host().repository() == {**wanted, "key_there": False}
    put(root, "/etc/apt/sources.list.d/cuda.list", f"deb [signed-by=/k.gpg] {URL} /\n")
    assert apt_host().repository() is None
    assert apt_host(key=_apt_sources.Key(KEY.url, "")).repository() is None


def test_a_key_without_a_fingerprint_is_refused(root: Path) -> None:
    assert root.exists()
    with pytest.raises(RefusedError) as caught:
        apt_host(key=_apt_sources.Key(KEY.url, "")).repository()
    assert [refusal.code for refusal in caught.value.refusals] == ["key_fingerprint_missing"]
    with pytest.raises(RefusedError):
        dnf_host(_apt_sources.Key(KEY.url, "")).repository()


def test_a_repository_for_dnf_and_its_key(root: Path) -> None:
    host = dnf_host(KEY)
    repository = host.repository()
    assert repository is not None
    assert (repository["baseurl"], repository["key_url"]) == (URL, KEY.url)
    with pytest.raises(RepositoryError, match="no OpenPGP key"), host.catalogue():
        pass
    put(root, "/etc/yum.repos.d/cuda.repo", f"[cuda]\nbaseurl={URL}\n")
    assert dnf_host(KEY).repository() is None
    with dnf_host(KEY).catalogue() as catalogue:
        assert catalogue.unread == ()


def test_the_archive_is_completed(root: Path) -> None:
    completed = apt_host("distro").repository()
    assert completed is not None
    assert completed["uris"] == ["http://archive.example/debian", "http://security.example/debian"]
    put(root, _apt_sources.OWN_FILE, completed["content"])
    assert apt_host("distro").repository() == completed


class Private:
    """Takes the place of the private apt."""

    def __init__(self) -> None:
        self.needed: t.Any = None

    @contextlib.contextmanager
    def __call__(
        self, _run: object, _repository: object, needed: t.Collection[str], _fetch: object, _timeout: float
    ) -> t.Iterator[tuple[list[str], list[t.Any]]]:
        self.needed = needed
        yield [], []


@pytest.mark.parametrize(
    ("source", "url", "needed", "offering"),
    [
        ("nvidia", URL, (URL,), (URL,)),
        (
            "distro",
            None,
            ("http://archive.example/debian", "http://security.example/debian"),
            ("http://archive.example/debian", "http://security.example/debian"),
        ),
        (
            "distro",
            "http://mirror.example/debian",
            ("http://mirror.example/debian",),
            ("http://mirror.example/debian", "http://security.example/debian"),
        ),
    ],
)
def test_where_a_driver_may_come_from(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: t.Literal["nvidia", "distro"],
    url: str | None,
    needed: tuple[str, ...],
    offering: tuple[str, ...],
) -> None:
    assert root.exists()
    private = Private()
    monkeypatch.setattr(_apt_sources, "private_apt", private)
    offers = {"nvidia-smi": (("1", "http://other.example"), *((f"{n}", one) for n, one in enumerate(offering, 2)))}
    with apt_host(source, url=url).catalogue() as catalogue:
        monkeypatch.setattr(catalogue.reader, "_offers", offers)
        monkeypatch.setattr(catalogue.reader, "_read", lambda _command: "nvidia-smi\n")
        found = catalogue.offered(re.compile("nvidia-.*"))
        assert found == {"nvidia-smi": tuple(f"{n}" for n in range(len(offering) + 1, 1, -1))}
    assert set(private.needed) == set(needed)


def test_who_owns_a_file(root: Path) -> None:
    assert root.exists()
    assert apt_host().owner("/usr/lib/x/libnvidia-ml.so.1") == "libnvidia-ml1"
    assert apt_host().owner("/lib/x/libnvidia-ml.so.1") == "libnvidia-ml1"
    assert apt_host().owner("/usr/bin/nvidia-uninstall") is None
    dnf = dnf_host(KEY)
    assert dnf.owner("/usr/lib64/libnvidia-ml.so.1") == "nvidia-driver-cuda-libs"
    assert dnf.owner("/usr/bin/nvidia-uninstall") is None


def test_what_dkms_has_built(root: Path) -> None:
    assert root.exists()
    (build,) = apt_host().builds()
    assert (build.version, build.kernel, build.is_installed) == ("580.159.04", "6.12.118+deb13-amd64", True)


def test_the_record(root: Path) -> None:
    assert apt_host().record() == Record()
    record = Record(source="distro", installed=("a", "b"), held=("a",))
    put(root, _driver_host.RECORD, record.as_json())
    assert apt_host().record() == record


@pytest.mark.parametrize("text", ['{"installed": null}', "[]", "{", b"\xff"])
def test_a_record_that_can_not_be_read_is_refused(root: Path, text: str | bytes) -> None:
    put(root, _driver_host.RECORD, text)
    with pytest.raises(
        RefusedError, match=r"The record .*/nvidia_driver.json can't be read: .*; correct it, or"
    ) as error:
        apt_host().record()
    assert [refusal.code for refusal in error.value.refusals] == ["record"]


def test_a_simulated_host_has_a_machine_of_its_own(root: Path) -> None:
    assert apt_host().machine_files.path("/x") == f"{root}/x"
    put(root, "/etc/gpu-simulator/marker.json", '{"root": "/made/up", "driver": false}')
    host = apt_host()
    assert (host.files.path("/x"), host.machine_files.path("/x")) == (f"{root}/x", "/made/up/x")


def test_room_and_sizes(root: Path) -> None:
    put(root, "/file", "12345")
    assert apt_host().size(str(root / "file")) == 5
    space = apt_host().space(str(root))
    assert space.device == root.stat().st_dev
    assert space.free_bytes > 0
    assert apt_host().space(str(root / "not" / "there" / "yet")).device == space.device
