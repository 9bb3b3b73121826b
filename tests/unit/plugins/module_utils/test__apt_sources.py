# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sources of apt are read and completed as the host has them, and a private apt touches nothing of the host."""

from __future__ import annotations

import hashlib
import tempfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _apt_sources as sources
from ansible_collections.cudahub.gpu.plugins.module_utils._driver_packages import RefusedError
from ansible_collections.cudahub.gpu.plugins.module_utils._packages import PackageError, RepositoryError, Result
from ansible_collections.cudahub.gpu.plugins.module_utils._pci import HostFiles

FINGERPRINT = "9BD282CF3927F3FEEED6EDF289E186145A3708F1"
URL = "https://mirror.example/debian13/x86_64/"
ARMOR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"

ONE_LINE = """\
# a comment
deb http://archive.example/debian bookworm main contrib   # the archive
deb [ arch=amd64,arm64 signed-by=/usr/share/keyrings/a.gpg ] http://archive.example/debian bookworm-updates main
deb-src http://archive.example/debian bookworm main
deb http://archive.example/security bookworm-security main contrib
deb http://elsewhere.example/flat ./
#deb http://off.example/debian bookworm main
"""
DEB822 = """\
# The archive
Types: deb deb-src
URIs: http://archive.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
uris: http://archive.example/security
Suites: trixie-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQ
 -----END PGP PUBLIC KEY BLOCK-----
X-Repolib-Name: security

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: trixie
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: trixie
Components: main
"""


def one_line(text: str = ONE_LINE) -> list[sources.Entry]:
    return list(sources.parse_one_line(text, "/etc/apt/sources.list"))


def deb822(text: str = DEB822) -> list[sources.Entry]:
    return list(sources.parse_deb822(text, "debian.sources"))


def test_one_line_style() -> None:
    found = one_line()
    assert [(one.uris[0], one.suites[0], one.components) for one in found] == [
        ("http://archive.example/debian", "bookworm", ("main", "contrib")),
        ("http://archive.example/debian", "bookworm-updates", ("main",)),
        ("http://archive.example/security", "bookworm-security", ("main", "contrib")),
        ("http://elsewhere.example/flat", "./", ()),
    ]
    assert found[1].options == {"Architectures": "amd64 arm64", "Signed-By": "/usr/share/keyrings/a.gpg"}


def test_deb822_style() -> None:
    archive, security = deb822()
    assert (archive.uris, archive.suites, archive.components, archive.signed_by) == (
        ("http://archive.example/debian",),
        ("trixie", "trixie-updates"),
        ("main",),
        "/usr/share/keyrings/debian-archive-keyring.gpg",
    )
    assert security.signed_by is not None
    assert security.text().endswith("\n mQ\n -----END PGP PUBLIC KEY BLOCK-----\n")
    assert list(sources.parse_deb822(security.text(), "debian.sources")) == [security]


def test_the_host_has_files_of_both_styles(tmp_path: Path) -> None:
    parts = tmp_path / "etc" / "apt" / "sources.list.d"
    parts.mkdir(parents=True)
    (tmp_path / "etc" / "apt" / "sources.list").write_text("deb http://a.example/d sid main\n", encoding="utf-8")
    (parts / "b.sources").write_text(DEB822, encoding="utf-8")
    (parts / "c.list").write_text("deb http://c.example/d sid main\n", encoding="utf-8")
    (parts / "d.list.save").write_text("deb http://d.example/d sid main\n", encoding="utf-8")
    (parts / Path(sources.OWN_FILE).name).write_text(DEB822, encoding="utf-8")
    files = [entry.file for entry in sources.host_entries(HostFiles(str(tmp_path)))]
    directory = "/etc/apt/sources.list.d"
    assert files == ["/etc/apt/sources.list", f"{directory}/b.sources", f"{directory}/b.sources", f"{directory}/c.list"]


def test_debian_in_one_line_style() -> None:
    found = sources.distribution_repository(one_line(), "debian", "bookworm", None)
    assert found is not None
    assert found.text == (
        "# Ansible managed\n"
        "Types: deb\n"
        "URIs: http://archive.example/debian\n"
        "Suites: bookworm\n"
        "Components: non-free non-free-firmware\n"
        "\n"
        "Types: deb\n"
        "URIs: http://archive.example/debian\n"
        "Suites: bookworm-updates\n"
        "Components: contrib non-free non-free-firmware\n"
        "Architectures: amd64 arm64\n"
        "Signed-By: /usr/share/keyrings/a.gpg\n"
        "\n"
        "Types: deb\n"
        "URIs: http://archive.example/security\n"
        "Suites: bookworm-security\n"
        "Components: non-free non-free-firmware\n"
    )
    assert found.as_dict()["key_url"] is None


def test_debian_in_deb822_style_keeps_the_keys() -> None:
    found = sources.distribution_repository(deb822(), "debian", "trixie", None)
    assert found is not None
    assert [(one.suites, one.signed_by) for one in found.entries] == [
        (("trixie", "trixie-updates"), "/usr/share/keyrings/debian-archive-keyring.gpg"),
        (("trixie-security",), deb822()[1].signed_by),
    ]
    assert all(one.components == ("contrib", "non-free", "non-free-firmware") for one in found.entries)


def test_nothing_is_added_to_a_host_that_has_all() -> None:
    everything = DEB822.replace("Components: main", "Components: main contrib non-free non-free-firmware")
    assert sources.distribution_repository(deb822(everything), "debian", "trixie", None) is None
    elsewhere = one_line(
        "deb http://archive.example/u noble main\ndeb http://archive.example/u noble restricted universe\n"
    )
    assert sources.distribution_repository(elsewhere, "ubuntu", "noble", None) is None


def test_ubuntu_needs_restricted() -> None:
    host = one_line(
        "deb http://archive.example/ubuntu noble main universe\n"
        "deb http://archive.example/ubuntu noble-updates main\n"
        "deb http://security.example/ubuntu noble-security main\n"
        "deb http://archive.example/ubuntu noble-backports main\n"
    )
    found = sources.distribution_repository(host, "ubuntu", "noble", None)
    assert found is not None
    assert [(one.uris, one.suites, one.components) for one in found.entries] == [
        (("http://archive.example/ubuntu",), ("noble", "noble-updates"), ("restricted",)),
        (("http://security.example/ubuntu",), ("noble-security",), ("restricted",)),
    ]


def test_a_mirror_of_debian_leaves_security_to_the_host() -> None:
    found = sources.distribution_repository(deb822(), "debian", "trixie", "http://mirror.example/debian")
    assert found is not None
    assert [(one.uris, one.suites, one.components) for one in found.entries] == [
        (
            ("http://mirror.example/debian",),
            ("trixie", "trixie-updates"),
            ("main", "contrib", "non-free", "non-free-firmware"),
        ),
        (("http://archive.example/security",), ("trixie-security",), ("contrib", "non-free", "non-free-firmware")),
    ]
    assert found.entries[0].signed_by == "/usr/share/keyrings/debian-archive-keyring.gpg"


def test_a_mirror_that_the_host_uses_keeps_its_key() -> None:
    host = one_line("deb [signed-by=/k.gpg] http://mirror.example/ubuntu/ noble main\n")
    found = sources.distribution_repository(host, "ubuntu", "noble", "http://mirror.example/ubuntu")
    assert found is not None
    assert found.entries == (
        sources.Entry(
            ("http://mirror.example/ubuntu",),
            ("noble", "noble-updates", "noble-security"),
            ("restricted",),
            {"Signed-By": "/k.gpg"},
        ),
    )


def test_a_host_without_an_archive_is_refused() -> None:
    with pytest.raises(PackageError, match="has component main of trixie: add the distribution") as caught:
        sources.distribution_repository(one_line(), "debian", "trixie", None)
    assert caught.value.kind == "not_found"


def test_a_password_of_the_host_is_not_copied() -> None:
    host = one_line("deb http://me:secret@archive.example/ubuntu noble main\n")
    with pytest.raises(RefusedError) as caught:
        sources.distribution_repository(host, "ubuntu", "noble", None)
    (refusal,) = caught.value.refusals
    assert refusal.code == "password_in_url"
    assert refusal.message.startswith("The address in /etc/apt/sources.list has a user name or a password in it")
    assert "secret" not in refusal.message
    whole = one_line("deb http://me:secret@archive.example/ubuntu noble main restricted\n")
    assert sources.distribution_repository(whole, "ubuntu", "noble", None) is None


def test_nvidia_repository_is_flat_and_demands_its_key() -> None:
    repository = sources.nvidia_repository(URL, sources.Key(f"{URL}8793F200.pub", FINGERPRINT, "sha256:00"))
    path = f"/etc/apt/keyrings/cudahub-nvidia-driver-{FINGERPRINT}.asc"
    assert repository.text == (
        f"# Ansible managed\nTypes: deb\nURIs: {URL}\nSuites: /\nSigned-By: {path} {FINGERPRINT}\n"
    )
    assert repository.as_dict() == {
        "path": "/etc/apt/sources.list.d/cudahub-nvidia-driver.sources",
        "content": repository.text,
        "uris": [URL],
        "suites": ["/"],
        "components": [],
        "signed_by": f"{path} {FINGERPRINT}",
        "key_url": f"{URL}8793F200.pub",
        "key_path": path,
        "key_fingerprint": FINGERPRINT,
        "key_checksum": "sha256:00",
    }
    assert sources.Key("https://mirror.example/k.gpg", FINGERPRINT).path.endswith(f"-{FINGERPRINT}.gpg")


@pytest.mark.parametrize(
    ("line", "file"),
    [
        (f"deb [signed-by=/k.gpg] {URL} /", "/etc/apt/sources.list"),
        (f"deb {URL.rstrip('/')} /", "/etc/apt/sources.list"),
        (f"deb {URL} trixie main", None),
        ("deb https://other.example/x86_64/ /", None),
    ],
)
def test_a_repository_that_another_file_has(line: str, file: str | None) -> None:
    assert sources.offering(one_line(line), URL) == file


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("https://me:secret@mirror.example/d/", "https://mirror.example/d"),
        ("file:///srv/d/", "file:/srv/d"),
        ("file:/srv/d", "file:/srv/d"),
        ("http://mirror.example", "http://mirror.example"),
    ],
)
def test_addresses_as_apt_prints_them(uri: str, plain: str) -> None:
    assert sources.address(uri) == plain


@pytest.mark.parametrize(
    ("url", "content", "checksum", "kind"),
    [
        ("https://mirror.example/k.pub", ARMOR, None, None),
        ("https://mirror.example/k.pub", ARMOR, hashlib.sha256(ARMOR).hexdigest().upper(), None),
        ("https://mirror.example/k.pub", ARMOR, f"sha256:{hashlib.sha256(ARMOR).hexdigest()}", None),
        ("https://mirror.example/k.gpg", b"\x99\x01\x8d", None, None),
        ("https://mirror.example/k.pub", ARMOR, "sha256:123", "checksum"),
        ("https://mirror.example/k.pub", b"<html>", None, "signature"),
        ("https://mirror.example/k.pub", b"\x99\x01\x8d", None, "signature"),
        ("https://mirror.example/k.gpg", ARMOR, None, "signature"),
        ("https://mirror.example/k.gpg", b"<html>", None, "signature"),
        ("https://mirror.example/k.gpg", b"", None, "signature"),
    ],
)
def test_the_key_is_checked(url: str, content: bytes, checksum: str | None, kind: str | None) -> None:
    key = sources.Key(url, FINGERPRINT, checksum)
    if kind is None:
        assert sources.checked_key(key, content) == content
        return
    with pytest.raises(RepositoryError, match=url) as caught:
        sources.checked_key(key, content)
    assert caught.value.kind == kind


REPOSITORY = "http://mirror.example/x86_64"
UPDATES = {
    "network": f"""\
Err:1 {REPOSITORY}  InRelease
  Could not resolve 'mirror.example'
Reading package lists...
W: Failed to fetch {REPOSITORY}/InRelease  Could not resolve 'mirror.example'
W: Some index files failed to download. They have been ignored, or old ones used instead.
""",
    "not_found": f"""\
Ign:1 {REPOSITORY}  InRelease
Err:2 {REPOSITORY}  Release
  404  Not Found [IP: 192.0.2.1 80]
E: The repository '{REPOSITORY}  Release' does not have a Release file.
""",
    "signature": f"""\
Err:1 {REPOSITORY}  InRelease
  Sub-process /usr/bin/sqv returned an error code (1), error message is: Missing key {FINGERPRINT}, which is needed.
E: The repository '{REPOSITORY}  InRelease' is not signed.
""",
    "checksum": f"""\
Get:2 {REPOSITORY}  Packages [5606 B]
Err:2 {REPOSITORY}  Packages
  Hash Sum mismatch
  Hashes of expected file:
   - SHA256:00
E: Failed to fetch {REPOSITORY}/Packages  Hash Sum mismatch
""",
}


WRONG_FINGERPRINT = (
    "The following signatures couldn't be verified because the public key is not available: GOODSIG 89E186145A3708F1"
)
EXPIRED = (
    f"E: Release file for {REPOSITORY}/InRelease is expired (invalid since 3d). Updates for this repository will not "
    "be applied.\n"
)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (UPDATES["network"], "network", "Could not resolve 'mirror.example'"),
        (UPDATES["not_found"], "not_found", "404 Not Found"),
        (UPDATES["signature"], "signature", f"Missing key {FINGERPRINT}, which is needed"),
        (UPDATES["checksum"], "checksum", "Hash Sum mismatch"),
        (f"Err:1 {REPOSITORY}  InRelease\n  {WRONG_FINGERPRINT}\n", "signature", WRONG_FINGERPRINT),
        (f"E: The repository '{REPOSITORY}  Release' is not signed.\n", "signature", "is not signed"),
        (EXPIRED, "signature", "is expired (invalid since 3d)"),
    ],
)
def test_what_apt_could_not_read(text: str, kind: str, reason: str) -> None:
    (failure,) = sources.parse_failures(text, None)
    assert (failure.kind, failure.url, failure.reason) == (kind, REPOSITORY, reason)
    assert failure.message == f"{REPOSITORY} can't be used: {reason}"


def test_the_expected_key_is_named() -> None:
    (failure,) = sources.parse_failures(UPDATES["signature"], sources.Key("http://mirror.example/k.pub", "ABCD"))
    assert failure.reason.startswith("expected is ABCD, in the key http://mirror.example/k.pub; apt says: Missing key")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host's directories of apt."""
    for name in ("lists/partial", "sources.list.d", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lists" / "lock").touch()
    (tmp_path / "lists" / "archive_InRelease").write_text("old", encoding="utf-8")
    (tmp_path / "sources.list.d" / "other.list").write_text("deb http://other.example/ ./\n", encoding="utf-8")
    (tmp_path / "sources.list.d" / "own.sources").write_text("old", encoding="utf-8")
    monkeypatch.setattr(sources, "SOURCES", str(tmp_path / "sources.list"))
    monkeypatch.setattr(sources, "SOURCES_PARTS", str(tmp_path / "sources.list.d"))
    monkeypatch.setattr(sources, "LISTS", str(tmp_path / "lists"))
    monkeypatch.setattr(sources, "OWN_FILE", str(tmp_path / "sources.list.d" / "own.sources"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


def nvidia() -> sources.Repository:
    return sources.nvidia_repository(f"{REPOSITORY}/", sources.Key("http://mirror.example/k.pub", FINGERPRINT))


def test_a_private_apt_has_all_of_its_own(host: Path) -> None:
    seen: list[t.Sequence[str]] = []

    def run(command: t.Sequence[str], _environment: t.Mapping[str, str]) -> Result:
        seen.append(command)
        return Result(0, "Reading package lists...\n", "")

    before = {path: path.stat().st_mtime_ns for path in host.rglob("*") if path.name != "tmp"}
    with sources.private_apt(run, nvidia(), [f"{REPOSITORY}/"], lambda _url: ARMOR, 7) as (options, unread):
        assert seen == [["apt-get", "-q", *options, "update"]]
        assert unread == []
        directory = Path(options[1]).parent
        assert directory.parent == host / "tmp"
        text = (directory / "sources.list.d" / "own.sources").read_text(encoding="utf-8")
        assert f"Signed-By: {directory}/cudahub-nvidia-driver-{FINGERPRINT}.asc {FINGERPRINT}\n" in text
        assert sorted(path.name for path in (directory / "sources.list.d").iterdir()) == ["other.list", "own.sources"]
        assert sorted(path.name for path in (directory / "lists").iterdir()) == ["archive_InRelease", "partial"]
        configuration = Path(options[1]).read_text(encoding="utf-8")
        assert 'Acquire::http::Timeout "7";' in configuration
        assert "#clear APT::Update::Post-Invoke;" in configuration
        assert 'Dir::Etc::SourceList "/dev/null";' in configuration
    assert list((host / "tmp").iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in host.rglob("*") if path.name != "tmp"} == before


@pytest.mark.parametrize("kind", UPDATES)
def test_a_repository_that_fails_is_raised(host: Path, kind: str) -> None:
    result = Result(0 if kind == "network" else 100, UPDATES[kind], "")
    with (
        pytest.raises(RepositoryError) as caught,
        sources.private_apt(lambda _command, _environment: result, nvidia(), [f"{REPOSITORY}/"], lambda _url: ARMOR, 7),
    ):
        raise AssertionError("it was not raised")
    assert caught.value.kind == kind
    assert list((host / "tmp").iterdir()) == []


def test_another_repository_that_fails_is_told(host: Path) -> None:
    result = Result(100, UPDATES["not_found"].replace(REPOSITORY, "http://other.example"), "")
    with sources.private_apt(
        lambda _command, _environment: result, nvidia(), [f"{REPOSITORY}/"], lambda _url: ARMOR, 7
    ) as (_apt, unread):
        assert [failure.url for failure in unread] == ["http://other.example"]
    assert list((host / "tmp").iterdir()) == []


def test_sources_that_apt_does_not_understand(host: Path) -> None:
    def run(command: t.Sequence[str], _environment: t.Mapping[str, str]) -> Result:
        parts = Path(command[command.index("-c") + 1]).parent / "sources.list.d"
        errors = (
            f"E: Malformed entry 1 in list file {parts}/x.list (Suite)\nE: The list of sources could not be read.\n"
        )
        return Result(100, "", errors)

    with (
        pytest.raises(PackageError, match="apt can't read its sources: Malformed entry 1 in list file") as caught,
        sources.private_apt(run, None, [], lambda _url: b"", 7),
    ):
        raise AssertionError("it was not raised")
    assert caught.value.kind == "package_manager"
    assert f"{sources.SOURCES_PARTS}/x.list (Suite); correct it, or move it away" in caught.value.message
    assert str(host / "tmp") not in caught.value.details
    assert list((host / "tmp").iterdir()) == []


def test_a_full_disk(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sources.shutil, "copy2", copy)
    with (
        pytest.raises(PackageError, match=r"can't be copied to .*: No space left on device") as caught,
        sources.private_apt(lambda _command, _environment: Result(0, "", ""), None, [], lambda _url: b"", 7),
    ):
        raise AssertionError("it was not raised")
    assert caught.value.kind == "disk"
    assert list((host / "tmp").iterdir()) == []
