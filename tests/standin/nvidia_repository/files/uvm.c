// Copyright (c) 2026, cudahub.gpu contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
// Stands in for nvidia-uvm.ko: loads and does nothing.
#include <linux/module.h>

#include "nv-version.h"

static int __init uvm_init(void)
{
    return 0;
}

static void __exit uvm_exit(void)
{
}

module_init(uvm_init);
module_exit(uvm_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("stand-in");
MODULE_VERSION(NV_VERSION_STRING);
