# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A SLURM of the tests' own: its accounting database as sacctmgr shows and changes it, and its jobs."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.cudahub.gpu.plugins.module_utils import _slurm_limits
from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_command import Result

TRES = "cpu|\nmem|\nnode|\nbilling|\nfs|disk\ngres|gpu\ngres|gpumem\n"
REFUSED = (
    "sacctmgr: error: _open_persist_conn: failed to open persistent connection to host:db:6819: Connection refused"
)
Key = tuple[str, str, str]
TRES_FIELDS = {setting.field for setting in (*_slurm_limits.ASSOCIATION, *_slurm_limits.QOS) if setting.kind == "tres"}
TIMES = {"MaxWall", "GrpWall"}


class Slurm:
    """What the programs answer, from a database that they change."""

    def __init__(self) -> None:
        self.clusters = ["cluster"]
        self.qos: dict[str, dict[str, str]] = {
            "normal": {"Description": "Normal QOS default", "PreemptMode": "cluster"}
        }
        self.accounts: dict[str, dict[str, str]] = {
            "root": {"Organization": "root", "Description": "default root account"}
        }
        self.associations: dict[Key, dict[str, str]] = {("root", "", ""): {"QOS": "normal"}, ("root", "root", ""): {}}
        self.users: dict[str, str] = {"root": "Administrator"}
        self.defaults: dict[str, str] = {"root": "root"}
        self.jobs: list[str] = []
        self.changed: list[str] = []
        self.answers: dict[str, Result | None] = {}
        self.deaf: set[str] = set()

    def run(self, command: t.Sequence[str]) -> Result | None:
        program, *words = command
        if program in self.answers:
            return self.answers[program]
        if program == "squeue":
            return Result(0, "CLUSTER: cluster\n" + "".join(f"{job}\n" for job in self.jobs), "")
        if words[:3] == ["-n", "-P", "show"]:
            return Result(0, self._show(words[3], words[4:]), "")
        self.changed.append(" ".join(command))
        action, entity = words[1], words[2]
        if entity in self.deaf:
            return Result(0, " Nothing modified\n", "")
        getattr(self, f"_{action}_{entity}")(words[3:])
        return Result(0, " Done\n", "")

    # What is shown

    def _show(self, entity: str, words: t.Sequence[str]) -> str:
        fields = words[-1].removeprefix("format=").split(",")
        if entity == "tres":
            return TRES
        rows = {
            "cluster": lambda: [{"Cluster": name} for name in self.clusters],
            "qos": lambda: [{"Name": name, **has} for name, has in self.qos.items()],
            "account": lambda: [{"Account": name, **has} for name, has in self.accounts.items()],
            "user": lambda: [{"User": name, "AdminLevel": level} for name, level in self.users.items()],
            "assoc": lambda: self._shown_associations(words),
        }[entity]()
        return "".join("|".join(row.get(name, "") for name in fields) + "\n" for row in rows)

    def _shown_associations(self, words: t.Sequence[str]) -> list[dict[str, str]]:
        wanted = {word.removeprefix("user=") for word in words if word.startswith("user=")}
        return [
            {
                "Fairshare": "1",
                **has,
                "Account": account,
                "User": user,
                "Partition": partition,
                "ParentName": has.get("Parent", ""),
            }
            for (account, user, partition), has in self.associations.items()
            if (not wanted or user in wanted) and ("OnlyDefaults" not in words or self.defaults.get(user) == account)
        ]

    # What is changed

    def _add_qos(self, words: list[str]) -> None:
        given = _given(words)
        name = given.pop("name")
        self.qos[name] = {"Description": name, "PreemptMode": "cluster"}
        _put(self.qos[name], given)

    def _modify_qos(self, words: list[str]) -> None:
        where, given = _where(words)
        _put(self.qos[where["name"]], given)

    def _delete_qos(self, words: list[str]) -> None:
        del self.qos[_where(words)[0]["name"]]

    def _add_account(self, words: list[str]) -> None:
        given = _given(words)
        name, parent = given.pop("name"), given.pop("parent")
        assert given.pop("cluster") in self.clusters
        assert (parent, "", "") in self.associations
        texts = {key: given.pop(key).lower() for key in ("Description", "Organization") if key in given}
        self.accounts.setdefault(name, {"Description": name, "Organization": parent, **texts})
        self.associations[name, "", ""] = {"Parent": parent}
        _put(self.associations[name, "", ""], given)

    def _modify_account(self, words: list[str]) -> None:
        where, given = _where(words)
        texts = {key: given.pop(key).lower() for key in ("Description", "Organization") if key in given}
        self.accounts[where["name"]].update(texts)
        if given:
            _put(self.associations[where["name"], "", ""], given)

    def _delete_account(self, words: list[str]) -> None:
        name = _where(words)[0]["name"]
        assert [key for key, has in self.associations.items() if name in (has.get("Parent"), key[1] and key[0])] == []
        del self.associations[name, "", ""], self.accounts[name]

    def _add_user(self, words: list[str]) -> None:
        given = _given(words)
        name, account = given.pop("name"), given.pop("account")
        assert given.pop("cluster") in self.clusters
        assert (account, "", "") in self.associations
        self.defaults.setdefault(name, account)
        self.defaults[name] = given.pop("DefaultAccount", self.defaults[name])
        self.users.setdefault(name, "None")
        self.associations[account, name, ""] = {}
        _put(self.associations[account, name, ""], given)

    def _modify_user(self, words: list[str]) -> None:
        where, given = _where(words)
        name = where["name"]
        if "AdminLevel" in given:
            self.users[name] = given["AdminLevel"]
        elif "DefaultAccount" in given:
            assert (given["DefaultAccount"], name, "") in self.associations
            self.defaults[name] = given["DefaultAccount"]
        else:
            assert where["partition"] == '""'
            _put(self.associations[where["account"], name, ""], given)

    def _delete_user(self, words: list[str]) -> None:
        where = _where(words)[0]
        name, account = where["name"], where.get("account")
        gone = [key for key in self.associations if key[1] == name and account in (None, key[0])]
        left = [key for key in self.associations if key[1] == name and key not in gone]
        assert self.defaults[name] not in {key[0] for key in gone} or not left, "the default account goes last"
        for key in gone:
            del self.associations[key]
        if not left:
            del self.users[name], self.defaults[name]


def _given(words: t.Sequence[str]) -> dict[str, str]:
    return {name: value for name, _sign, value in (word.partition("=") for word in words)}


def _where(words: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    assert words[0] == "where"
    at = words.index("set") if "set" in words else len(words)
    return _given(words[1:at]), _given(words[at + 1 :])


def _put(has: dict[str, str], given: t.Mapping[str, str]) -> None:
    """Keep settings as sacctmgr prints them."""
    for name, value in given.items():
        if name in TRES_FIELDS:
            amounts = {**_given(filter(None, has.get(name, "").split(","))), **_given(value.split(","))}
            kept = {one: _printed(one, amount) for one, amount in sorted(amounts.items()) if amount != "-1"}
            has[name] = ",".join(f"{one}={amount}" for one, amount in kept.items())
        elif value == "-1":
            has.pop(name, None)
        elif name in TIMES:
            hours, minutes = divmod(int(value), 60)
            days, hours = divmod(hours, 24)
            has[name] = (f"{days}-" if days else "") + f"{hours:02d}:{minutes:02d}:00"
        elif name == "GraceTime":
            has[name] = f"00:{int(value) // 60:02d}:{int(value) % 60:02d}"
        elif name == "UsageFactor":
            has[name] = f"{float(value):.6f}"
        else:
            has[name] = value


def _printed(name: str, amount: str) -> str:
    """Memory has a unit, with two decimals where they are exact."""
    if name != "mem" or not amount.isdigit():
        return amount
    return f"{amount}M" if int(amount) % 256 else f"{int(amount) / 1024:.2f}G"


class Ended(t.NamedTuple):
    """How a module ended."""

    code: int
    value: dict[str, t.Any]
    warnings: list[str]


class Module:
    """A module that runs SLURM's programs on a host of the tests' own."""

    def __init__(
        self, module: t.Any, host: t.Any, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._module = module
        self._capsys = capsys
        self._warned: list[str] = []

        def run_command(_self: t.Any, command: list[str], **_more: t.Any) -> Result:
            return host.run([Path(command[0]).name, *command[1:]])

        patch.setattr(module.AnsibleModule, "get_bin_path", lambda _self, name: f"/usr/bin/{name}")
        patch.setattr(module.AnsibleModule, "run_command", run_command)
        patch.setattr(module.AnsibleModule, "warn", lambda _self, text: self._warned.append(text))

    def __call__(self, **params: t.Any) -> Ended:
        self._warned.clear()
        with patch_module_args(params), pytest.raises(SystemExit) as ended:
            self._module.main()
        return Ended(int(ended.value.code or 0), json.loads(self._capsys.readouterr().out), list(self._warned))

    def returned(self) -> set[str]:
        """The names of the values that the documentation says are returned."""
        return set(yaml.safe_load(self._module.RETURN))


OWN = {"changed", "invocation", "diff"}
"""What every module returns."""


def assert_made_changed_and_deleted_once(
    slurm: Slurm, module: Module, params: dict[str, t.Any], commands: list[str], changed: dict[str, t.Any]
) -> None:
    """In check mode nothing, then all, and the second time nothing any more."""
    planned = module(_ansible_check_mode=True, **params)
    assert (planned.code, planned.value["changed"], slurm.changed) == (0, True, [])
    made = module(**params)
    assert (made.value["commands"], made.value["diff"]) == (planned.value["commands"], planned.value["diff"])
    assert made.value["commands"] == commands
    assert (made.value["diff"]["before"]["state"], made.value["diff"]["after"]["state"]) == ("absent", "present")
    assert set(made.value) - OWN == module.returned()
    assert not module(**params).value["changed"]
    assert module(name=params["name"], max_wall="60").value["diff"] == changed
    gone = module(name=params["name"], state="absent")
    assert gone.value["diff"] == {"before": {"state": "present"}, "after": {"state": "absent"}}
    again = module(name=params["name"], state="absent")
    assert (again.value["changed"], set(again.value) - OWN) == (False, module.returned())


def assert_failures_are_said(slurm: Slurm, module: Module, entity: str, params: dict[str, t.Any]) -> None:
    """Where slurmdbd does not answer, and where sacctmgr does not do what it was told."""
    slurm.answers["sacctmgr"] = Result(1, "", REFUSED)
    code, value, _warnings = module(**params)
    assert (code, value["changed"]) == (1, False)
    assert value["msg"].startswith("slurmdbd on db:6819 does not answer")
    del slurm.answers["sacctmgr"]
    slurm.deaf = {entity}
    code, value, _warnings = module(**params)
    assert (code, value["changed"]) == (1, True)
    assert "did not become what was asked for" in value["msg"]
