# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""littlest_cuda_hub.yml proves GPUs before they are given to users, and site.yml brings it to its group."""

from __future__ import annotations

import pytest

from ansible_collections.cudahub.gpu.tests.unit.playbooks.reduced_site import Site, hosts


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"), "cudahub.gpu.littlest_cuda_hub")


def test_gpus_are_proven_before_there_is_a_hub(site: Site) -> None:
    ran = site.run({"tljh": hosts("a")})
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "proof", "hub"]
    assert "WARNING" not in ran.output


def test_gpus_that_a_hub_has_given_away_are_left_to_its_users(site: Site) -> None:
    ran = site.run({"tljh": hosts("a", "b")}, live="b")
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "proof", "hub"]
    assert ran.of("b") == ["facts", "driver", "hub"]


def test_a_host_that_waits_for_its_reboot_gets_no_hub(site: Site) -> None:
    ran = site.run({"tljh": {"a": {"waits": True}, "b": {}}})
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver"]
    assert ran.of("b") == ["facts", "driver", "proof", "hub"]
    assert (
        "a gets no hub: its NVIDIA driver waits for a reboot, which nvidia_driver_reboot does not allow." in ran.output
    )


def test_a_host_without_gpu_gets_no_driver(site: Site) -> None:
    ran = site.run({"tljh": {"a": {"count": 0}}})
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "hub"]


@pytest.mark.parametrize(
    ("tag", "steps"),
    [
        ("facts", ["facts"]),
        ("driver", ["facts", "driver"]),
        ("verify", ["facts", "proof"]),
        ("tljh", ["hub"]),
    ],
)
def test_tags(site: Site, tag: str, steps: list[str]) -> None:
    ran = site.run({"tljh": hosts("a"), "gpu_nodes": hosts("a")}, "--tags", tag, playbook="cudahub.gpu.site")
    assert ran.code == 0, ran.output
    assert ran.of("a") == steps


def test_a_whole_site_brings_each_host_what_it_is_for_once(site: Site) -> None:
    groups = {
        "gpu_nodes": hosts("a", "b", "c"),
        "tljh": hosts("a"),
        "slurm_controller": hosts("b"),
        "slurm_compute": hosts("b"),
    }
    ran = site.run(groups, playbook="cudahub.gpu.site")
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "proof", "hub"]
    assert ran.of("b") == ["facts", "driver", "proof", "once", "work"]
    assert ran.of("c") == ["facts", "driver", "proof"]


def test_gpus_are_not_given_to_a_hub_and_to_jobs(site: Site) -> None:
    groups = {"tljh": hosts("a", "b"), "slurm_controller": hosts("a"), "slurm_compute": hosts("a")}
    ran = site.run(groups, playbook="cudahub.gpu.site")
    assert ran.code == 2, ran.output
    assert "a is in the groups tljh and slurm_compute" in ran.output
    assert ran.of("a") == []
    ran = site.run(groups, playbook="cudahub.gpu.site", tljh_gpus=False)
    assert ran.code == 0, ran.output
    assert "hub" in ran.of("a")


def test_a_host_in_no_group_does_not_take_part(site: Site) -> None:
    ran = site.run({"tljh": hosts("a"), "others": hosts("away")}, playbook="cudahub.gpu.site")
    assert ran.code == 0, ran.output
    assert ran.of("a") == ["facts", "driver", "proof", "hub"]
    assert "away " not in ran.output.partition("PLAY RECAP")[2]
