# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The callback in real runs of ansible-playbook: a stand-in module returns facts, hosts use the local connection."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbook_run import LOCAL, run_playbook

Play = Callable[..., str]

MODULE = """\
#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec=dict(gpus=dict(type="int", default=1), verdict=dict(type="str")))
gpus = [
    {"index": i, "uuid": "GPU-%d" % i, "pci_bus_id": "00000000:0%d:00.0" % i, "name": "NVIDIA H100 80GB HBM3",
     "memory_bytes": 85520809984, "mig": {"enabled": False, "pending": False, "instances": []}, "healthy": True,
     "problems": []}
    for i in range(module.params["gpus"])
]
result = {}
if module.params["verdict"]:
    failed = module.params["verdict"] == "failed"
    failure = {"kind": "gpu_lost", "message": "The GPU fell off the bus."} if failed else None
    result = {"verification": {"verified": not failed, "failure": None, "gpus": [
        {"uuid": g["uuid"], "verdict": module.params["verdict"], "failure": failure} for g in gpus]}}
    if failed:
        module.fail_json(msg="Not every GPU computes.", **result)
else:
    result = {"ansible_facts": {"gpu": {
        "driver": {"state": "ok", "version": "580.159.04"}, "gpus": gpus, "problems": [], "simulated": False}}}
module.exit_json(**result)
"""


# Runs a command in a terminal of 40 columns.
TERMINAL = (
    sys.executable,
    "-c",
    "import pty, sys; pty.spawn(['sh', '-c', 'stty cols 40; exec \"$@\"', 'sh', *sys.argv[1:]])",
)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a function that runs tasks on a, b and the unreachable c, and returns what comes after the banner."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "stand_in.py").write_text(MODULE, encoding="utf-8")
    nobody = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory = {"all": {"hosts": {"a": LOCAL, "b": LOCAL, "c": nobody}}}

    def run(tasks: list[dict[str, Any]], *arguments: str, before: Sequence[str] = (), **environment: str) -> str:
        playbook = [{"name": "Test", "hosts": "all", "gather_facts": False, "tasks": tasks}]
        settings = {"ANSIBLE_LIBRARY": str(library), "ANSIBLE_CALLBACKS_ENABLED": "cudahub.gpu.gpu_table"}
        settings = {"COLUMNS": "100", **settings, **environment}
        done = run_playbook(tmp_path, inventory, playbook, *arguments, before=before, **settings)
        assert "Callback dispatch" not in done.stdout, done.stdout
        assert "GPUS ***" in done.stdout or "PLAY RECAP" in done.stdout, done.stdout
        return done.stdout.partition("GPUS ***")[2].partition("\n")[2]

    return run


def squeezed(output: str) -> list[str]:
    return [re.sub(r" {2,}", " | ", line.rstrip()) for line in output.splitlines()]


def test_whole_run(play: Play) -> None:
    """An unreachable host, a rescued failure, a failed loop and a failed verification are told apart."""
    output = play(
        [
            {"name": "Facts", "stand_in": {"gpus": 2}},
            {
                "name": "Rescue",
                "block": [{"name": "Fall", "ansible.builtin.fail": {"msg": "fallen"}}],
                "rescue": [{"name": "Recover", "ansible.builtin.debug": {"msg": "recovered"}}],
            },
            {"name": "Verify", "stand_in": {"gpus": 1, "verdict": "passed"}, "when": "inventory_hostname == 'a'"},
            {"name": "Prove", "stand_in": {"gpus": 1, "verdict": "failed"}, "when": "inventory_hostname == 'b'"},
            {"name": "Loop", "ansible.builtin.fail": {"msg": "item {{ item }}"}, "loop": [1, 2]},
        ]
    )
    assert squeezed(output)[:6] == [
        "HOST | GPU | NAME | MEMORY | DRIVER | MIG | HEALTH | VERIFIED",
        "a | 0 | NVIDIA H100 80GB HBM3 | 79.6 GiB | 580.159.04 | off | ok | yes",
        " | 1 | NVIDIA H100 80GB HBM3 | 79.6 GiB | 580.159.04 | off | ok | -",
        "b | 0 | NVIDIA H100 80GB HBM3 | 79.6 GiB | 580.159.04 | off | ok | no: gpu_lost",
        " | 1 | NVIDIA H100 80GB HBM3 | 79.6 GiB | 580.159.04 | off | ok | -",
        "c | - | - | - | - | - | unreachable | -",
    ]
    assert '* a failed: task "Loop": item 1' in output
    assert "* b: The GPU fell off the bus." in output
    assert '* b failed: task "Prove": Not every GPU computes.' in output
    assert "* c is unreachable: " in output
    assert "fallen" not in output
    assert "3 hosts (1 unreachable, 2 failed), 4 GPUs: 1 verified, 2 not verified, 1 failed verification." in output


@pytest.mark.parametrize(("where", "hosts"), [({"loop": ["a", "b"]}, ["a", "b"]), ({"vars": {"item": "b"}}, ["b", ""])])
def test_delegated_results_belong_to_the_host_that_was_looked_at(
    play: Play, where: dict[str, Any], hosts: list[str]
) -> None:
    task = {"name": "Facts", "stand_in": {}, "run_once": True, "delegate_to": "{{ item }}", **where}
    output = play([task], "--limit", "a")
    assert [line.split(" | ")[0] for line in squeezed(output)[1:3]] == hosts


def test_run_that_looks_at_no_gpu_prints_nothing(play: Play) -> None:
    assert play([{"name": "Fail", "ansible.builtin.fail": {"msg": "no"}}]) == ""


@pytest.mark.parametrize(
    ("unwanted", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"ANSIBLE_NOCOLOR": "1"}, False)]
)
def test_terminal_gives_width_and_colours(play: Play, unwanted: dict[str, str], coloured: bool) -> None:
    task = {"name": "Prove", "stand_in": {"verdict": "failed"}}
    terminal = {"COLUMNS": "", "TERM": "xterm"}
    output = play([task], "--limit", "a", before=TERMINAL, **{**terminal, **unwanted})
    assert ("\x1b[" in output) is coloured
    lines = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
    assert "* a: The GPU fell off the bus." in lines
    assert max(map(len, lines)) <= 40


def test_width_is_an_option_and_colours_need_a_terminal(play: Play) -> None:
    output = play([{"name": "Facts", "stand_in": {}}], "--limit", "a", CUDAHUB_GPU_TABLE_WIDTH="40")
    assert squeezed(output)[:2] == ["a", " | GPU 0: H100 80GB HBM3, memory 79.6"]
    assert "\x1b" not in output
