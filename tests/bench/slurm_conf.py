# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the SLURM configuration of a big cluster by the filter slurm_files, and by a Jinja loop over hostvars.

The facts of the nodes, of five kinds, are generated. Both ways run in Ansible's own templating. ansible-core and this
collection on its path are needed, and for --check an image with a SLURM in it or Debian's package archive.

    slurm_conf.py                         processor times of both and their ratio; exit status 1 if it is over --limit
    slurm_conf.py --write DIRECTORY       write the files of the filter
    slurm_conf.py --check IMAGE           let a slurmctld in a container read the files
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import typing as t
from collections import Counter
from pathlib import Path

COMPUTE = "slurm_compute"
KINDS = (
    ("h100", 8, "nvidia_h100_80gb_hbm3", 2, 56, 2, 2063000, 0),
    ("a100", 4, "nvidia_a100-sxm4-40gb", 2, 32, 2, 1031000, 0),
    ("mig", 1, "nvidia_a100-sxm4-40gb", 1, 16, 2, 257000, 7),
    ("t4", 2, "tesla_t4", 1, 8, 2, 64000, 0),
    ("cpu", 0, "", 2, 24, 1, 386000, 0),
)
"""Name, GPUs, their type, sockets, cores of a socket, threads of a core, MB of memory, MIG instances of a GPU."""

FILTER = "{{ bench_nodes | cudahub.gpu.slurm_files(cluster=bench_cluster) }}"

LOOP = """\
{% for host in groups['slurm_compute'] | sort %}
{% set node = hostvars[host]['bench_node'] %}
{% set hardware = node.hardware %}
{% set gres = [] %}
{% for kind, gpus in node.gpus | rejectattr('mig.enabled') | groupby('slurm_type') %}
{% set added = gres.append('gpu:' ~ kind ~ ':' ~ (gpus | length)) %}
{% endfor %}
{% for kind, instances in node.gpus | map(attribute='mig.instances') | flatten | groupby('slurm_type') %}
{% set added = gres.append('gpu:' ~ kind ~ ':' ~ (instances | length)) %}
{% endfor %}
NodeName={{ node.name }} NodeAddr={{ node.address }} CPUs={{ hardware.CPUs }} Boards={{ hardware.Boards }} \
SocketsPerBoard={{ hardware.SocketsPerBoard }} CoresPerSocket={{ hardware.CoresPerSocket }} \
ThreadsPerCore={{ hardware.ThreadsPerCore }} RealMemory={{ (hardware.RealMemory * 0.95) | int }} \
{% if gres %}Gres={{ gres | join(',') }} {% endif %}State=UNKNOWN
{% endfor %}
{% for host in groups['slurm_compute'] | sort %}
{% set node = hostvars[host]['bench_node'] %}
{% for gpu in node.gpus %}
{% if gpu.mig.enabled %}
{% for instance in gpu.mig.instances %}
NodeName={{ node.name }} Name=gpu Type={{ instance.slurm_type }} MultipleFiles={{ instance.device_nodes | join(',') }}
{% endfor %}
{% else %}
NodeName={{ node.name }} Name=gpu Type={{ gpu.slurm_type }} File=/dev/nvidia{{ gpu.minor }}
{% endif %}
{% endfor %}
{% endfor %}
"""

CHECK = """\
set -e
export DEBIAN_FRONTEND=noninteractive
if ! which slurmctld >/dev/null; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends slurmctld munge >/dev/null 2>&1
fi
cp /files/*.conf /etc/slurm/
mkdir -p /run/munge && chown munge: /run/munge
setpriv --reuid munge --regid munge --clear-groups munged --force 2>/dev/null
slurmctld -V
slurmctld -D -i -c > /tmp/log 2>&1 &
for second in $(seq 300); do
    if [ "$(sinfo --noheader --format %D 2>/dev/null | awk '{n += $1} END {print n}')" = "$NODES" ]; then
        echo "slurmctld answers with $NODES nodes after $second s"
        ! grep -E 'fatal: |[Pp]ars(e|ing) error|error: .*([Gg]res|GRES|[Nn]ode)' /tmp/log
        exit
    fi
    sleep 1
done
cat /tmp/log
exit 1
"""


def nodes(count: int, version: str) -> list[dict[str, t.Any]]:
    """The descriptions of so many nodes, as the role slurm makes them."""
    return [node(index, version) for index in range(count)]


def node(index: int, version: str) -> dict[str, t.Any]:
    """The description of one node."""
    kind, gpus, gpu_type, sockets, cores, threads, memory, instances = KINDS[index % len(KINDS)]
    number = index // len(KINDS)
    return {
        "name": f"{kind}-{number:05d}",
        "address": f"10.{index % len(KINDS)}.{number // 250}.{number % 250 + 1}",
        "version": version,
        "hardware": {
            "CPUs": sockets * cores * threads,
            "Boards": 1,
            "SocketsPerBoard": sockets,
            "CoresPerSocket": cores,
            "ThreadsPerCore": threads,
            "RealMemory": memory + number % 50,
        },
        "gpus": [gpu(index, minor, gpu_type, instances) for minor in range(gpus)],
        "driver_state": "ok",
        "simulated": False,
        "plugins": [],
        "features": [kind],
        "weight": None,
        "config": {},
        "shards": 0,
        "mps": 0,
        "autodetect": "auto",
    }


def gpu(index: int, minor: int, gpu_type: str, instances: int) -> dict[str, t.Any]:
    """A GPU, with the facts that matter here."""
    return {
        "index": minor,
        "minor": minor,
        "uuid": f"GPU-{index:08d}-{minor}",
        "pci_bus_id": f"00000000:{minor + 1:02X}:00.0",
        "slurm_type": gpu_type,
        "mig": {
            "enabled": bool(instances),
            "instances": [
                {
                    "index": instance,
                    "uuid": f"MIG-{index:08d}-{minor}-{instance}",
                    "slurm_type": f"{gpu_type.split('-', maxsplit=1)[0]}_1g.5gb",
                    "device_nodes": [
                        f"/dev/nvidia{minor}",
                        f"/dev/nvidia-caps/nvidia-cap{12 + 9 * instance}",
                        f"/dev/nvidia-caps/nvidia-cap{13 + 9 * instance}",
                    ],
                }
                for instance in range(instances)
            ],
        },
        "cpu_affinity": None,
        "nvlink": None,
        "kernel_driver": "nvidia",
        "device_nodes": [f"/dev/nvidia{minor}"],
    }


def cluster(version: str, controller: str) -> dict[str, t.Any]:
    """The cluster that the nodes are in."""
    return {
        "name": "bench",
        "version": version,
        "controllers": [{"name": controller, "address": "127.0.0.1"}],
        "memory_reserve_percent": 5,
    }


class Templating:
    """Ansible's templating with an inventory of the nodes."""

    def __init__(self, descriptions: t.Sequence[dict[str, t.Any]], cluster_values: dict[str, t.Any]) -> None:
        from ansible.plugins.loader import init_plugin_loader

        init_plugin_loader()
        from ansible.inventory.manager import InventoryManager
        from ansible.parsing.dataloader import DataLoader
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        self.loader = DataLoader()
        inventory = InventoryManager(loader=self.loader, sources=[])
        inventory.add_group(COMPUTE)
        manager = VariableManager(loader=self.loader, inventory=inventory)
        for description in descriptions:
            inventory.add_host(description["name"], group=COMPUTE)
            manager.set_nonpersistent_facts(description["name"], {"bench_node": description})
        inventory.reconcile_inventory()
        self.variables = {
            "hostvars": HostVars(inventory, manager, self.loader),
            "groups": {COMPUTE: [description["name"] for description in descriptions]},
            "bench_nodes": list(descriptions),
            "bench_cluster": cluster_values,
        }

    def render(self, text: str) -> tuple[t.Any, float]:
        """What the template gives, and its seconds of processor time."""
        from ansible.template import Templar, trust_as_template

        start = time.process_time()
        result = Templar(loader=self.loader, variables=self.variables).template(trust_as_template(text))
        return result, time.process_time() - start


def totals(text: str, expand: t.Callable[[str], list[str]]) -> Counter[str]:
    """Nodes and GRES of a file's node lines, to see that both ways say the same."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        values = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if "NodeName" in values and "CPUs" in values:
            number = len(expand(values["NodeName"]))
            found["nodes"] += number
            for part in filter(None, values.get("Gres", "").split(",")):
                name, _colon, count = part.rpartition(":")
                found[name] += number * int(count)
    return found


def bench(arguments: argparse.Namespace) -> int:
    """Print the times and their ratio."""
    templating = Templating(nodes(arguments.nodes, arguments.version), cluster(arguments.version, "head"))
    # Only after Ansible's own loader of collections is there.
    from ansible_collections.cudahub.gpu.plugins.module_utils._slurm_hostlist import expand

    files, own = templating.render(FILTER)
    text, other = templating.render(LOOP)
    if totals(files["slurm.conf"], expand) != totals(text, expand):
        print("the filter and the loop do not give the same nodes and GRES")
        return 1
    ratio = own / other
    lines = len(files["slurm.conf"].splitlines()) + len(files["gres.conf"].splitlines())
    print(f"{arguments.nodes} nodes of {len(KINDS)} kinds")
    print(f"filter slurm_files          {own:9.2f} s {lines:7d} lines")
    print(f"Jinja loop over hostvars    {other:9.2f} s {len(text.splitlines()):7d} lines")
    print(f"ratio, filter to loop       {ratio:9.3f}   (limit {arguments.limit:g})")
    return int(ratio > arguments.limit)


def write(arguments: argparse.Namespace, directory: Path, controller: str) -> None:
    """Write the files of the filter."""
    from ansible_collections.cudahub.gpu.plugins.filter.slurm_files import slurm_files

    start = time.process_time()
    files = slurm_files(nodes(arguments.nodes, arguments.version), cluster(arguments.version, controller))
    print(f"{arguments.nodes} nodes, filter slurm_files without templating {time.process_time() - start:.2f} s")
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def check(arguments: argparse.Namespace) -> int:
    """Let a slurmctld in a container read the files."""
    with tempfile.TemporaryDirectory() as directory:
        write(arguments, Path(directory), "localhost")
        Path(directory).chmod(0o755)
        command = ["docker", "run", "--rm", "--hostname", "localhost", "--network", arguments.network]
        command += ["--env", f"NODES={arguments.nodes}", "--volume", f"{directory}:/files:ro", arguments.check]
        return subprocess.run([*command, "bash", "-c", CHECK], check=False).returncode


def main() -> int:
    """Do what the options say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", metavar="DIRECTORY", type=Path, help="write the files instead of timing")
    mode.add_argument("--check", metavar="IMAGE", help="let a slurmctld in a container of this image read the files")
    parser.add_argument("--nodes", type=int, default=10_000, help="number of nodes (default: %(default)s)")
    parser.add_argument("--version", default="24.11.5", help="version of SLURM (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=0.5, help="largest ratio that passes (default: %(default)s)")
    parser.add_argument("--network", default="bridge", help="Docker network of --check (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments, arguments.write, "head")
        return 0
    return (check if arguments.check else bench)(arguments)


if __name__ == "__main__":
    sys.exit(main())
