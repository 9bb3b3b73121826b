# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of SLURM by version, and how their values are written."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_parameters as parameters
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_parameters import SlurmError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24.11.5", (24, 11)),
        ("22.05.8-4+deb12u3", (22, 5)),
        ("slurm-wlm 23.11.4", (23, 11)),
        ("slurm 25.05.0", (25, 5)),
    ],
)
def test_version(text: str, expected: tuple[int, int]) -> None:
    assert parameters.parse_version(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20.11.8", "is older than 21.08"),
        ("24", "'24' is not a version of SLURM"),
        (None, "None is not a version"),
        ("24.111", "is not a version"),
    ],
)
def test_no_version(text: t.Any, message: str) -> None:
    with pytest.raises(SlurmError, match=message):
        parameters.parse_version(text)


@pytest.mark.parametrize(
    ("table", "name", "version", "message"),
    [
        (parameters.SETTINGS, "KillWhait", (24, 11), " has no setting 'KillWhait'; did you mean KillWait?"),
        (parameters.SETTINGS, "TLSType", (23, 11), " 23.11 has no setting TLSType: it came with 24.05"),
        (parameters.SETTINGS, "PowerPlugin", (24, 11), " 24.11 has no setting PowerPlugin: it ended with 24.05"),
        (
            parameters.CGROUP,
            "CgroupAutomount",
            (23, 11),
            "no setting of cgroup.conf CgroupAutomount: it ended with 23.11",
        ),
        (parameters.CGROUP, "SystemdTimeout", (22, 5), "it came with 24.05"),
        (parameters.PARTITION, "MaxTimes", (22, 5), "no partition parameter 'MaxTimes'; did you mean MaxTime"),
        (parameters.PARTITION, "PowerDownOnIdle", (22, 5), "it came with 23.02"),
        (parameters.NODE, "Wieght", (22, 5), "no node parameter 'Wieght'; did you mean Weight?"),
        (
            parameters.SLURMDBD,
            "MaxPurgeLimit",
            (24, 11),
            "no setting of slurmdbd.conf MaxPurgeLimit: it came with 25.11",
        ),
        (parameters.SETTINGS, "xyzzy", (22, 5), "has no setting 'xyzzy'$"),
        (parameters.SETTINGS, "Include", (22, 5), "has no setting 'Include'"),
    ],
)
def test_unknown_setting(table: parameters.Table, name: str, version: tuple[int, int], message: str) -> None:
    with pytest.raises(SlurmError, match=f"^slurm_config: SLURM.*{message}"):
        table.find(name, version, "slurm_config")


@pytest.mark.parametrize(
    ("table", "name", "versions"),
    [
        (parameters.SETTINGS, "SlurmctldParameters", [(21, 8), (26, 5)]),
        (parameters.SETTINGS, "DefMemPerGPU", [(21, 8), (26, 5)]),
        (parameters.SETTINGS, "TLSType", [(24, 5), (25, 11)]),
        (parameters.CGROUP, "CgroupAutomount", [(21, 8), (23, 2)]),
        (parameters.CGROUP, "CgroupPlugin", [(21, 8), (26, 5)]),
        (parameters.SETTINGS, "killwait", [(27, 5)]),
    ],
)
def test_known_setting(table: parameters.Table, name: str, versions: list[tuple[int, int]]) -> None:
    assert all(table.find(name, version, "").name.lower() == name.lower() for version in versions)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("killwait", 5, ["5"]),
        ("KillWait", "INFINITE", ["INFINITE"]),
        ("UsePAM", True, ["yes"]),
        ("UsePAM", "No", ["no"]),
        ("MailProg", "/usr/bin/my mail", ['"/usr/bin/my mail"']),
        ("MailProg", "/a#b", ["/a\\#b"]),
        ("LaunchParameters", ["a", "b"], ["a,b"]),
        ("NodeSet", ["a Feature=x", "b Feature=y"], ["a Feature=x", "b Feature=y"]),
        ("Prolog", "/etc/slurm/prolog", ["/etc/slurm/prolog"]),
        ("KillWait", None, None),
    ],
)
def test_values(name: str, value: t.Any, expected: list[str] | None) -> None:
    read = parameters.SETTINGS.read({name: value}, (24, 11), "slurm_config")
    assert list(read.values()) == [expected]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"KillWait": "soon"}, "KillWait is 'soon', not a number"),
        ({"KillWait": -1}, "KillWait is '-1', not a number"),
        ({"UsePAM": "maybe"}, "UsePAM is 'maybe', not yes or no"),
        ({"MailProg": ""}, "is '', which is empty"),
        ({"MailProg": "a\nNodeName=b"}, "has a line end"),
        ({"MailProg": 'a"b'}, "a double quote"),
        ({"MailProg": {"a": 1}}, "not a text"),
        ({"KillWait": 1, "killwait": 2}, "KillWait is there twice"),
        (["KillWait"], "not a dictionary of settings"),
    ],
)
def test_refused_values(values: t.Any, message: str) -> None:
    with pytest.raises(SlurmError, match=message):
        parameters.SETTINGS.read(values, (24, 11), "slurm_config")
