# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's report as JUnit XML, for CI systems: a suite for each host, a case for each GPU and each check."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from ._report import Check, Gpu, Host, Report

# What XML 1.0 can't hold at all, not even escaped.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """The report as text of an XML file."""
    root = ET.Element("testsuites", name=_legal(report.title))
    for host in report.hosts:
        suite = ET.SubElement(root, "testsuite", name=_legal(host.name), timestamp=report.time.rstrip("Z"))
        _fill(suite, host)
        _count(suite)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _legal(text: str) -> str:
    return FORBIDDEN.sub(" ", text)


def _case(suite: ET.Element, group: str, name: str, seconds: float | None) -> ET.Element:
    found = ET.SubElement(suite, "testcase", classname=_legal(group), name=_legal(name))
    found.set("time", f"{seconds or 0:.3f}")
    return found


def _outcome(case: ET.Element, tag: str, message: str, kind: str | None = None) -> None:
    found = ET.SubElement(case, tag, message=_legal(message))
    if kind:
        found.set("type", _legal(kind))


def _fill(suite: ET.Element, host: Host) -> None:
    case = _case(suite, host.name, "host", host.seconds)
    if host.state == "unreachable":
        _outcome(case, "error", host.message or "unreachable", "unreachable")
    elif host.state == "none":
        _outcome(case, "skipped", host.message or "This host has no GPU.")
    elif host.state == "failed" and not _explained(host):
        _outcome(case, "failure", host.message or "failed")
    for check in host.checks:
        _check(suite, host.name, check)
    for gpu in host.gpus:
        _gpu(suite, host, gpu)


def _explained(host: Host) -> bool:
    """Whether a GPU or a check tells why the host failed."""
    return any(gpu.verdict == "failed" for gpu in host.gpus) or any(check.passed is False for check in host.checks)


def _gpu(suite: ET.Element, host: Host, gpu: Gpu) -> None:
    group = f"{host.name}.{gpu.uuid or gpu.pci_bus_id or gpu.label}"
    case = _case(suite, group, f"GPU {gpu.label} {gpu.mig_profile or gpu.name}", gpu.seconds)
    if gpu.verdict == "failed":
        _outcome(case, "failure", gpu.message or "failed", gpu.kind)
    elif gpu.verdict != "passed":
        _outcome(case, "skipped", gpu.message or gpu.verdict)
    for check in gpu.checks:
        _check(suite, group, check)


def _check(suite: ET.Element, group: str, check: Check) -> None:
    case = _case(suite, group, check.name, check.seconds)
    if check.passed is False:
        found = f"{'nothing' if check.figure is None else check.figure} {check.unit or ''}".strip()
        wanted = f", expected {check.expected}" if check.expected else ""
        _outcome(case, "failure", check.message or f"{check.name} gave {found}{wanted}", check.name)
    elif check.passed is None:
        _outcome(case, "skipped", check.message or "It did not run.")


def _count(suite: ET.Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{float(cases[0].get('time', '0')):.3f}")
