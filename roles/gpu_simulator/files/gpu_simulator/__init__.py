# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU simulator's command: turns a profile into what a simulated driver shows, and switches faults.

Runs with the standard library of Python 3.9 and later. The simulation is described by
``/etc/gpu-simulator/config.json``; ``apply`` makes the host match it.
"""
