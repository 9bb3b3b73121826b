# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A device cgroup that forbids some nodes; the scenario gpu_simulator has systemd's real one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_host import Host

# Stands for the kernel: opening one of $DENIED, paths between colons, fails as in a device cgroup, and one of $GIVEN
# as without a driver.
DENYING_OPEN = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
    const char *denied = getenv("DENIED");
    const char *given = getenv("GIVEN");
    char entry[4096];
    va_list more;
    int mode;

    va_start(more, flags);
    mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0;
    va_end(more);
    snprintf(entry, sizeof entry, ":%s:", path);
    if (denied != NULL && strstr(denied, entry) != NULL) {
        errno = EPERM;
        return -1;
    }
    if (given != NULL && strstr(given, entry) != NULL) {
        errno = ENXIO;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
"""

ANSWERS = """
def code(function, *arguments):
    try:
        function(*arguments)
        return 0
    except n.NVMLError as error:
        return error.value

n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
result = [[n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetIndex(h), n.nvmlDeviceGetMinorNumber(h)] for h in handles]
"""
# Whoever has CAP_SYS_ADMIN has all of the driver's capabilities.
WITHOUT_PRIVILEGES = """
nothing = (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), nothing) == 0
"""
SLICES = """
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
result = []
for index in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
    try:
        mig = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
    except n.NVMLError_NotFound:
        break
    result.append([n.nvmlDeviceGetUUID(mig), n.nvmlDeviceGetIndex(mig), n.nvmlDeviceGetMemoryInfo(mig).total > 0])
"""


@pytest.fixture(scope="session")
def denying_open(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("denying") / "open.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input=DENYING_OPEN, text=True, check=True
    )
    return library


@pytest.fixture
def deny(denying_open: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that forbids what starts from now on to open these nodes."""

    def forbid(*nodes: object) -> None:
        monkeypatch.setenv("LD_PRELOAD", str(denying_open))
        monkeypatch.setenv("DENIED", ":" + "".join(f"{node}:" for node in nodes))

    return forbid


@pytest.fixture
def h200(simulate: Callable[..., Host]) -> Host:
    host = simulate(profile="h200x4")
    made(host, *(f"nvidia{minor}" for minor in range(4)), "nvidiactl")
    return host


def made(host: Host, *names: str) -> None:
    """Say that the simulator made these nodes."""
    (host.state / "nodes").write_text("".join(f"{name}\n" for name in names))


def gpu_instance_of(host: Host, uuid: str) -> int:
    """Ask for the GPU instance of a MIG device."""
    asked = f"n.nvmlInit()\nresult = n.nvmlDeviceGetGpuInstanceId(n.nvmlDeviceGetHandleByUUID({uuid!r}))"
    return int(host.python(asked))


def test_a_gpu_whose_node_is_forbidden_is_not_there(h200: Host, deny: Callable[..., None]) -> None:
    gpus = h200.ask("show")["gpus"]
    deny("/dev/nvidia0", "/dev/nvidia2")
    *seen, by_uuid, by_address, by_index = h200.python(f"""{ANSWERS}
result.append(code(n.nvmlDeviceGetHandleByUUID, {gpus[0]["uuid"]!r}))
result.append(code(n.nvmlDeviceGetHandleByPciBusId, {gpus[2]["pci_bus_id"]!r}))
result.append(code(n.nvmlDeviceGetHandleByIndex, 2))
""")
    assert seen == [[gpus[1]["uuid"], 0, 1], [gpus[3]["uuid"], 1, 3]]
    assert (by_uuid, by_address, by_index) == (6, 6, 2)
    assert len(list((h200.tree / "sys/bus/pci/devices").iterdir())) == 4, "PCI still shows it"


def test_a_container_has_the_gpus_whose_nodes_it_was_given(
    h200: Host, deny: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = h200.ask("show")["gpus"]
    deny("/dev/nvidia3")
    monkeypatch.setenv("GIVEN", ":/dev/nvidiactl:/dev/nvidia2:")
    assert h200.python(ANSWERS) == [[gpus[2]["uuid"], 0, 2]]


def test_no_gpu_is_allowed(h200: Host, deny: Callable[..., None]) -> None:
    deny(*(f"/dev/nvidia{minor}" for minor in range(4)))
    assert h200.python(ANSWERS) == []


def test_a_forbidden_gpu_and_a_vanished_one(h200: Host, deny: Callable[..., None]) -> None:
    h200.fault("vanish", gpu=1)
    deny("/dev/nvidia0")
    assert [gpu[1:] for gpu in h200.python(ANSWERS)] == [[0, 2], [1, 3]]


def test_nodes_are_asked_when_nvml_starts(h200: Host, deny: Callable[..., None]) -> None:
    deny()
    assert h200.python("""
import os
n.nvmlInit()
result = [n.nvmlDeviceGetCount()]
os.environ["DENIED"] = ":/dev/nvidia3:"
n.nvmlInit()
result.append(n.nvmlDeviceGetCount())
n.nvmlShutdown()
n.nvmlShutdown()
n.nvmlInit()
result.append(n.nvmlDeviceGetCount())
""") == [4, 4, 3]


def test_nodes_that_the_simulator_did_not_make_are_not_asked(h200: Host, deny: Callable[..., None]) -> None:
    deny("/dev/nvidia0", "/dev/nvidia1")
    made(h200, "nvidia1")
    assert len(h200.python(ANSWERS)) == 3
    (h200.state / "nodes").unlink()
    assert len(h200.python(ANSWERS)) == 4


@pytest.mark.parametrize("capability", ["gpu0/gi{}/access", "gpu0/gi{}/ci0/access"])
def test_a_mig_device_needs_both_of_its_capabilities(
    simulate: Callable[..., Host], deny: Callable[..., None], capability: str
) -> None:
    host = simulate(profile="a100-40gb-mig")
    minors = dict(line.split() for line in (host.tree / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines())
    made(host, "nvidia0", "nvidia1", *(f"nvidia-caps/nvidia-cap{minor}" for minor in minors.values()))
    uuids = [mig["uuid"] for mig in host.ask("show")["gpus"][0]["mig"]]
    ask = WITHOUT_PRIVILEGES + SLICES
    assert host.python(ask) == [[uuid, index, True] for index, uuid in enumerate(uuids)]
    capability = capability.format(gpu_instance_of(host, uuids[0]))
    deny(f"/dev/nvidia-caps/nvidia-cap{minors[capability]}")
    assert host.python(ask) == [[uuids[1], 0, True], [uuids[2], 1, True]]
    assert host.python(f"""{WITHOUT_PRIVILEGES}{ANSWERS}
result = [len(handles), code(n.nvmlDeviceGetHandleByUUID, {uuids[0]!r}),
          code(n.nvmlDeviceGetHandleByUUID, {uuids[2]!r})]
""") == [2, 6, 0]


def test_a_mig_device_of_a_forbidden_gpu_is_not_there(simulate: Callable[..., Host], deny: Callable[..., None]) -> None:
    host = simulate(profile="a100-40gb-mig")
    made(host, "nvidia0", "nvidia1")
    mig = host.ask("show")["gpus"][0]["mig"][0]["uuid"]
    deny("/dev/nvidia0")
    assert host.python(f"{ANSWERS}\nresult = [len(handles), code(n.nvmlDeviceGetHandleByUUID, {mig!r})]") == [1, 6]


def test_nodes_that_nobody_may_open_are_not_made(host: Host, deny: Callable[..., None]) -> None:
    node = host.prefix / "dev/nvidia0"
    deny(node)
    host.configure(profile="t4", device_nodes="auto")
    assert not node.exists()
    assert host.ask("apply")["notes"][0].startswith("No device nodes: ")
