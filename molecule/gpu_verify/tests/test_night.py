# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host knows of its GPUs between plays, by its timer, node_exporter and its custom fact."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://a100"]

UNITS = ["cudahub-gpu-verify.service"]
ROLE = Path(__file__).parents[1] / "role.yml"
LIBRARY = "/opt/cudahub/verify-timer/lib"
SCRAPE = "python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:9100/metrics').read().decode())\""
Play = Callable[..., CompletedProcess[str]]


@pytest.fixture
def clean(host: Host) -> Iterator[None]:
    """Leave no fault behind, and results without one."""
    yield
    host.run_expect([0], "gpu-simulator fault clear")
    host.run_expect([0], "systemctl start cudahub-gpu-verify.service")


def scraped(host: Host, metric: str) -> list[str]:
    """Return the lines of a metric that node_exporter serves."""
    return [line for line in host.check_output(SCRAPE).splitlines() if line.startswith((f"{metric}{{", f"{metric} "))]


def local(host: Host) -> dict[str, Any]:
    """Return the custom fact as a play finds it."""
    facts = host.ansible("ansible.builtin.setup", "filter=ansible_local")["ansible_facts"]
    return dict(facts["ansible_local"]["cudahub_gpu"])


def test_the_timer_waits_for_its_time(host: Host) -> None:
    timer = host.service("cudahub-gpu-verify.timer")
    assert timer.is_enabled
    assert timer.is_running
    shown = host.check_output(
        "systemctl show cudahub-gpu-verify.timer --property=TimersCalendar,NextElapseUSecRealtime"
    )
    assert "OnCalendar=Mon..Fri *-*-* 02:30:00" in shown
    assert " 02:" in next(line for line in shown.splitlines() if line.startswith("NextElapse"))


def test_node_exporter_serves_a_verdict_on_each_gpu(host: Host) -> None:
    assert scraped(host, "node_textfile_scrape_error") == ["node_textfile_scrape_error 0"]
    verdicts = scraped(host, "cudahub_gpu_verify_gpu_verdict")
    units = host.ansible("cudahub.gpu.cuda_verify", check=False)["verification"]["gpus"]
    for unit in units:
        own = [line for line in verdicts if f'uuid="{unit["uuid"]}"' in line]
        assert len(own) == 4
        assert [line.partition('verdict="')[2] for line in own if line.endswith(" 1")] == ['simulated"} 1']
        assert all(f'mig_profile="{unit["mig_profile"] or ""}"' in line for line in own)
    assert len(verdicts) == 4 * len(units)
    assert scraped(host, "cudahub_gpu_verify_verified") == ['cudahub_gpu_verify_verified{level="quick"} 0']


def test_other_plays_find_the_result(host: Host) -> None:
    found = local(host)
    assert (found["verified"], found["simulated"], found["failure"]) == (False, True, None)
    assert found["counts"]["simulated"] == len(found["gpus"]) == 4


def test_a_gpu_that_is_lost_at_night_is_known_in_the_morning(host: Host, clean: None) -> None:
    before = local(host)
    lost = next(gpu for gpu in before["gpus"] if not gpu["mig_profile"])
    host.run_expect([0], f"gpu-simulator fault add --gpu {lost['index']} --kind lost")
    assert host.run("systemctl start cudahub-gpu-verify.service").rc == 1
    assert host.check_output("systemctl show cudahub-gpu-verify.service --value --property=Result") == "exit-code"
    said = host.check_output("journalctl --sync; journalctl --unit cudahub-gpu-verify.service --lines 20 --output cat")
    assert f"[gpu_lost] GPU {lost['index']} {lost['pci_bus_id']} {lost['uuid']} has fallen off the bus" in said
    verdicts = scraped(host, "cudahub_gpu_verify_gpu_verdict")
    failed = [line for line in verdicts if 'verdict="failed"' in line and line.endswith(" 1")]
    assert len(failed) == 1
    assert f'uuid="{lost["uuid"]}"' in failed[0]
    assert scraped(host, "cudahub_gpu_verify_failure") == ['cudahub_gpu_verify_failure{kind="gpu_lost"} 1']
    found = local(host)
    assert found["failure"]["kind"] == "gpu_lost"
    assert found["counts"]["failed"] == 1

    host.run_expect([0], "gpu-simulator fault clear")
    host.run_expect([0], "systemctl start cudahub-gpu-verify.service")
    assert scraped(host, "cudahub_gpu_verify_failure") == []
    assert local(host)["counts"] == before["counts"]


def test_the_night_is_not_ended_before_its_time_limits_are(host: Host) -> None:
    """NVML and, one after another, each GPU's MIG instances have a minute."""
    assert host.check_output("systemctl show cudahub-gpu-verify --value --property=TimeoutStartUSec") == "4min"


def test_the_night_leaves_no_process_and_no_bytecode(host: Host) -> None:
    host.run_expect([0], "systemctl start cudahub-gpu-verify.service")
    assert host.run("ps -eo args | grep '[_]verify_unattended'").stdout == ""
    assert host.check_output(f"find {LIBRARY} -name '*.pyc'") == ""


def test_the_night_knows_which_gpus_are_to_be_there(host: Host) -> None:
    options = json.loads(host.file("/opt/cudahub/verify-timer/options.json").content_string)
    gpus = host.ansible("cudahub.gpu.gpu_facts")["ansible_facts"]["gpu"]["gpus"]
    assert options["known"] == [[gpu["pci_bus_id"], gpu["uuid"]] for gpu in gpus]


def test_ansible_on_the_host_does_not_stand_before_the_library(host: Host) -> None:
    folder = "/usr/lib/python3/dist-packages/ansible_collections"
    host.run_expect([0], f"mkdir {folder} && touch {folder}/__init__.py")
    try:
        host.run_expect([0], "systemctl start cudahub-gpu-verify.service")
    finally:
        host.run_expect([0], f"rm -r {folder}")


def test_the_directory_of_metrics_may_be_a_link(play: Play, host: Host) -> None:
    host.run_expect([0], "ln -sfn /var/lib/prometheus/node-exporter /srv/metrics")
    given = {"target": "a100", "entry": "verify", "gpu_verify_metrics_directory": "/srv/metrics"}
    done = play(ROLE, "-e", json.dumps(given))
    assert done.returncode == 0
    assert "changed=0" in done.stdout


def test_a_result_that_can_not_be_kept_hides_no_gpu_that_fails(play: Play, host: Host, clean: None) -> None:
    host.run_expect([0], "mkdir -p /srv/full && mount -t tmpfs -o size=8k tmpfs /srv/full")
    host.run_expect([0, 1], "dd if=/dev/zero of=/srv/full/all bs=4k")
    host.run_expect([0], "gpu-simulator fault add --gpu 1 --kind lost")
    try:
        given = {"target": "a100", "entry": "verify", "gpu_verify_metrics_directory": "/srv/full"}
        done = play(ROLE, "-e", json.dumps(given))
        assert host.check_output("ls -A /srv/full") == "all"
    finally:
        host.run_expect([0], "umount /srv/full")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2
    assert "/srv/full/cudahub_gpu.prom could not be written: No space left on device. Make room there." in said
    assert "[gpu_lost] GPU 1 " in said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"gpu_verify_timer_calendar": "some day"},
            "gpu_verify_timer_calendar is 'some day', which systemd doesn't take (Failed to parse calendar",
        ),
        ({"gpu_verify_timer_calendar": "2020-01-01"}, "gpu_verify_timer_calendar is '2020-01-01', which never comes"),
        (
            {"gpu_verify_metrics_directory": "/srv/nowhere"},
            "a100 has no directory /srv/nowhere: install node_exporter first",
        ),
        ({"gpu_verify_metrics_directory": "metrics"}, "is 'metrics': give the absolute path"),
    ],
)
def test_what_can_not_be_is_refused_first(play: Play, host: Host, given: dict[str, str], words: str) -> None:
    done = play(ROLE, "-e", json.dumps({"target": "a100", **given}))
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "changed=0" in done.stdout
