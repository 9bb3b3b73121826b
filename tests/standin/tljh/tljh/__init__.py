# Copyright (c) 2026, cudahub.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for The Littlest JupyterHub (github.com/jupyterhub/the-littlest-jupyterhub), which is not on PyPI.

It has the interface of 2.0.0 that role ``tljh`` uses: the installer, tljh-config, config.yaml, units, users, spawner.
To run the scenario against the real one: ``TLJH_SOURCE=<path or pip spec> make molecule SCENARIO=tljh``.
"""
