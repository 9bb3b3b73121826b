// Copyright (c) 2026, cudahub.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
// Stands in for nvidia.ko: loads and does nothing.
#include <linux/module.h>

#include "nv-version.h"

#ifdef NV_RESIZE_TAKES_MORE
static int nv_resize_bar(int bar, int size, int exclude)
#else
static int nv_resize_bar(int bar, int size)
#endif
{
    return bar + size;
}

static int __init nvidia_init(void)
{
    return nv_resize_bar(0, 0);
}

static void __exit nvidia_exit(void)
{
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE(NV_LICENSE);
MODULE_DESCRIPTION(NV_DESCRIPTION);
MODULE_VERSION(NV_VERSION_STRING);
