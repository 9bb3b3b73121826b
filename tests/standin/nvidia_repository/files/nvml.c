// Copyright (c) 2026, cudahub.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
// Stands in for libnvidia-ml.so.1 on a host whose driver is not loaded.

enum { UNINITIALIZED = 1, DRIVER_NOT_LOADED = 9 };

const char standin_version[] = VERSION;

int nvmlInit(void) { return DRIVER_NOT_LOADED; }
int nvmlInit_v2(void) { return DRIVER_NOT_LOADED; }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return DRIVER_NOT_LOADED; }
int nvmlShutdown(void) { return UNINITIALIZED; }
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Uninitialized"; }
