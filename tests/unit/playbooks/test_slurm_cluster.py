# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurm_cluster.yml brings the driver of its compute nodes, and takes work from a node before it reboots it."""

from __future__ import annotations

import re
import shutil

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbooks.reduced_site import RESUME, Site, hosts, write


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"), "cudahub.gpu.slurm_cluster")


CLUSTER = {"slurm_controller": hosts("head"), "slurm_compute": hosts("a", "b")}


def test_a_new_cluster_is_built_at_once_and_proven_before_slurm(site: Site) -> None:
    ran = site.run(CLUSTER)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ran.of("b") == ["facts", "driver", "proof", "work"]
    assert ran.of("head") == ["once", "work"]
    assert sorted(step for step in ran.steps if step.startswith("driver")) == ["driver a", "driver b"]
    assert "WARNING" not in ran.output


def test_nodes_that_take_jobs_are_drained_rebooted_and_resumed_one_after_the_other(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    each = ["facts", "driver", "drain", "reboot", "resume", "environment"]
    assert ran.steps[:12] == [f"{step} {host}" for host in "ab" for step in each]
    assert ran.of("a")[-1] == ran.of("b")[-1] == "work"


def test_the_drain_comes_with_the_tag_too(site: Site) -> None:
    ran = site.run(CLUSTER, "--tags", "driver", live="a b", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "drain", "reboot", "resume"]
    assert ran.of("head") == []


def test_as_many_at_once_as_the_inventory_says(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b", nvidia_driver_reboot=True, slurm_cluster_serial="100%")
    assert ran.code == 0, ran.output
    steps = [step for step in ran.steps if step.split()[0] in ("drain", "reboot")]
    assert (set(steps[:2]), set(steps[2:])) == ({"drain a", "drain b"}, {"reboot a", "reboot b"})


def test_without_a_reboot_nodes_that_take_jobs_are_done_at_once(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b")
    assert ran.code == 0, ran.output
    assert (set(ran.steps[:2]), set(ran.steps[2:4])) == ({"facts a", "facts b"}, {"driver a", "driver b"})
    assert ran.of("a") == ["facts", "driver", "environment", "work"]


def test_nodes_are_drained_before_their_driver_if_that_is_wanted(site: Site) -> None:
    groups = {**CLUSTER, "slurm_compute": {"a": {}, "b": {"waits": True}, "new": {}}}
    ran = site.run(groups, live="a b", slurm_cluster_drain=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["drain", "facts", "driver", "environment", "resume", "work"]
    assert ran.of("b") == ["drain", "facts", "driver"]
    assert ran.of("new") == ["facts", "driver", "proof", "work"]
    assert ran.steps.index("resume a") < ran.steps.index("drain b")


def test_a_node_that_can_not_be_drained_is_not_rebooted_and_ends_the_play(site: Site) -> None:
    ran = site.run(CLUSTER, live="a b", busy="a", nvidia_driver_reboot=True)
    assert ran.code == 2, ran.output
    assert "still runs 1 job" in ran.output
    assert ran.steps == ["facts a", "driver a"]


def test_tasks_of_the_inventory_come_instead(site: Site) -> None:
    own = str(site.folder / "own.yml")
    groups = {
        "slurm_controller": hosts("head"),
        "slurm_compute": {
            "a": {"nvidia_driver_before_reboot": own},
            "b": {"nvidia_driver_before_reboot": "", "nvidia_driver_after_reboot": own},
        },
    }
    ran = site.run(groups, live="a b", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "own", "reboot", "resume", "environment", "work"]
    assert ran.of("b") == ["facts", "driver", "reboot", "own", "environment", "work"]


def test_a_node_that_waits_for_its_reboot_is_not_put_to_work_and_a_host_without_gpu_is(site: Site) -> None:
    groups = {"slurm_controller": hosts("a"), "slurm_compute": {"a": {"waits": True}, "b": {"count": 0}, "c": {}}}
    ran = site.run(groups, live="a")
    assert ran.code == 0, ran.output
    assert "a is not put to work: its NVIDIA driver waits for a reboot" in ran.output
    assert ran.of("a") == ["facts", "driver"]
    assert ran.of("b") == ["facts", "once", "work"]
    assert ran.of("c") == ["facts", "driver", "proof", "work"]


def test_a_cluster_without_compute_nodes_is_built(site: Site) -> None:
    ran = site.run({"slurm_controller": hosts("head"), "slurm_compute": {}})
    assert ran.code == 0, ran.output
    assert ran.steps == ["once head", "work head"]
    assert "WARNING" not in ran.output


SITE = {**CLUSTER, "gpu_nodes": hosts("a", "other")}


def test_the_site_does_no_host_twice_and_drains_compute_nodes(site: Site) -> None:
    """From a playbook of one's own, whose directory has no such tasks."""
    ran = site.run(SITE, playbook="mine.yml", live="a", nvidia_driver_reboot=True)
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "drain", "reboot", "resume", "environment", "work"]
    assert ran.of("b") == ["facts", "driver", "reboot", "proof", "work"]
    assert ran.of("other") == ["facts", "driver", "reboot", "proof"]


@pytest.mark.parametrize(
    ("tag", "compute", "other"),
    [("facts", ["facts"], ["facts"]), ("verify", ["facts", "proof"], ["facts", "proof"]), ("slurm", ["work"], [])],
)
def test_tags(site: Site, tag: str, compute: list[str], other: list[str]) -> None:
    ran = site.run(SITE, "--tags", tag, playbook="cudahub.gpu.site")
    assert ran.code == 0, ran.output
    assert (ran.of("a"), ran.of("b"), ran.of("other")) == (compute, compute, other)


def test_the_listed_tasks_of_a_tag(site: Site) -> None:
    listed = site.run(SITE, "--list-tasks", "--tags", "slurm", playbook="cudahub.gpu.site")
    assert listed.code == 0, listed.output
    assert "slurm : Work" in listed.output
    assert not re.search("(Facts|Driver|Proof)\t", listed.output)


def test_a_reason_is_told_by_its_beginning(site: Site) -> None:
    """Of what a node was drained for, and what slurm_resume says, follows which reasons are lifted."""
    cases = {
        "a": ("cudahub: planned work", False, "cudahub: "),
        "b": ("gpu-health: GPU 3 is lost", True, "gpu-health: "),
        "c": ("gpu-health: GPU 3 is lost", False, "cudahub: "),
        "d": ("carol swaps the fan, see gpu-health: 12", True, "cudahub: "),
    }
    for name, (reason, _resume, _told) in cases.items():
        write(site.folder / "reasons" / name, reason)
    compute = {name: {"slurm_resume": resume} for name, (_reason, resume, _told) in cases.items()}
    groups = {"slurm_controller": hosts("head"), "slurm_compute": compute}
    ran = site.run(groups, "-v", "--tags", "driver", live="a b c d", nvidia_driver_reboot=True)
    shutil.rmtree(site.folder / "reasons")
    assert ran.code == 0, ran.output
    resumed = ran.output.split(f"{RESUME}] *")[1:]
    assert [re.findall(r'"told": "(.*?)"', part)[0] for part in resumed] == [told for *_more, told in cases.values()]
