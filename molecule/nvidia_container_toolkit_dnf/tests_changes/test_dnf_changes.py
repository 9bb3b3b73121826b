# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other versions, a repository that can't be trusted or reached, and a host from which all is taken away.

Tests run in the order of this file; each goes on from where the one before has left the host.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://rocky10"]

Packages = Callable[[], dict[str, tuple[str, bool]]]
Role = Callable[..., str]
OTHER = "0123456789ABCDEF0123456789ABCDEF01234567"
# versionlock.list has times in it, and what is held is looked at apart.
PLACES = "/etc/yum.repos.d /etc/pki/rpm-gpg /etc/dnf /var/lib/cudahub /etc/cdi /var/run/cdi"
FILES = f"find {PLACES} -type f -not -name versionlock.list -exec md5sum {{}} + | sort"


@pytest.mark.long
def test_an_older_version_and_back(host: Host, packages: Packages, role: Role) -> None:
    role(version="1.17.8-1")
    assert set(packages().values()) == {("1.17.8-1", True)}
    assert "changed=0" in role(version="1.17.8-1")
    role(version="1.18.1-1", hold="false")
    assert set(packages().values()) == {("1.18.1-1", False)}
    role()
    assert set(packages().values()) == {("1.18.1-1", True)}


@pytest.mark.long
def test_versions_that_a_user_excludes_stay_so(host: Host, role: Role) -> None:
    path = "/etc/dnf/plugins/versionlock.list"
    entry = "!nvidia-container-toolkit-0:1.16.2-1.*"

    def entries() -> list[str]:
        return sorted(line for line in host.file(path).content_string.splitlines() if line and line[0] != "#")

    host.check_output(f"echo '{entry}' >> {path}")
    before = entries()
    role(fails=True, version="1.16.2-1")
    assert entries() == before
    role(hold="false")
    assert entries() == [entry]
    assert "changed=0" in role(hold="false")
    role()
    assert entries() == before
    host.check_output(f"sed -i '/^!/d' {path}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": "1.16.2-1"}, "nvidia-container-toolkit-1.16.2-1"),
        pytest.param(
            {"repository_url": "http://127.0.0.1:8098", "version": "1.17.8-1"},
            "http://127.0.0.1:8098",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"repository_key_url": "http://127.0.0.1:8099/other.pub", "repository_key_fingerprint": OTHER},
            f"it is not the key {OTHER}, but ",
            marks=pytest.mark.long,
        ),
    ],
    ids=["version", "mirror", "key"],
)
def test_refusals_leave_the_host_as_it_was(
    host: Host, packages: Packages, role: Role, options: dict[str, str], words: str
) -> None:
    before = (host.check_output(FILES), packages())
    assert words in role(fails=True, **options)
    assert (host.check_output(FILES), packages()) == before


def test_metadata_that_another_key_has_signed_are_refused(host: Host, packages: Packages, role: Role) -> None:
    """The key is the right one; who can write to the mirror has not got it."""
    signature = "/srv/toolkit/repos/stable/rpm/$(uname -m)/repodata/repomd.xml"
    host.check_output(f"cp {signature} /root/repomd.xml && echo '<!-- -->' >> {signature}")
    before = (host.check_output(FILES), packages())
    try:
        assert "The container toolkit was not installed on rocky10" in role(fails=True, version="1.17.8-1")
        assert (host.check_output(FILES), packages()) == before
    finally:
        host.check_output(f"cp /root/repomd.xml {signature}")


@pytest.mark.long
def test_another_entry_of_the_repository_is_refused_or_put_aside(host: Host, role: Role) -> None:
    path = "/etc/yum.repos.d/nvidia-container-toolkit.repo"
    text = "[nvidia-container-toolkit]\nname=x\nbaseurl=https://nvidia.github.io/libnvidia-container/stable/rpm/$basearch\n"
    host.check_output(f"printf %s > {path}", text)
    assert f"rocky10 has entries for NVIDIA's repository of the toolkit in {path}" in role(fails=True)
    role(other_sources="remove")
    assert [line[:1] for line in host.file(path).content_string.splitlines()] == ["#"] * 3
    assert host.file(f"{path}.disabled").content_string == text


def test_absent_takes_all_away(host: Host, packages: Packages, role: Role) -> None:
    role("absent")
    assert packages() == {}
    assert "nvidia" not in host.file("/etc/dnf/plugins/versionlock.list").content_string
    left = host.check_output("ls -A /etc/cdi /var/run/cdi /etc/pki/rpm-gpg /var/lib/cudahub 2>&1; ls /etc/yum.repos.d")
    assert "cudahub" not in left.replace("/var/lib/cudahub", "")
    assert "nvidia.yaml" not in left
    assert "changed=0" in role("absent")
