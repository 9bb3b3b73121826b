/* Copyright (c) 2026, cudahub.gpu contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the simulated driver knows: the state file and the nodes file (read when a client initializes the library)
 * and the faults file (looked at again at every call).
 *
 * State file, one record a line, first line "gpu-simulator-state 1", last line "end <number of records>":
 *     <scope> <key> u <number> ...      numbers
 *     <scope> <key> s <text>            the rest of the line
 *     <scope> <key> e <NVML code>       this call fails
 * Scopes: "sys"; "gpu <slot>"; "mig <slot> <number>". A key is a function's name, with ":<argument>" where
 * the answer depends on one. What has no record is not supported. "capabilities" are the numbers of the
 * /dev/nvidia-caps/nvidia-cap<number> that a MIG device needs.
 *
 * Nodes file: the device nodes that the simulator made, by their paths below /dev, one a line.
 *
 * Faults file, first line "gpu-simulator-faults 1":
 *     <all|slot|UUID> <*|function> <kind> <NVML code> <milliseconds> <count> */
#ifndef GPU_SIMULATOR_STATE_H
#define GPU_SIMULATOR_STATE_H

#include "abi.h"

enum { MAX_GPUS = 64, MAX_MIGS = 8 };

struct record {
    char *key;
    char kind;
    char *text;
    unsigned long long *numbers;
    unsigned int count;
    unsigned int code;
};

struct scope {
    struct record *records;
    unsigned int count, room;
    int gpu, mig;
    int hidden;
};

struct gpu {
    struct scope own;
    struct scope migs[MAX_MIGS];
    unsigned int mig_count;
};

struct state {
    struct scope sys;
    struct gpu gpus[MAX_GPUS];
    unsigned int gpu_count;
};

/* What the faults say about one call. */
struct verdict {
    unsigned int code;
    unsigned long milliseconds;
};

/* What the faults do to the values of one GPU. */
struct ailments {
    unsigned long long uncorrected;
    unsigned int remap_pending, remap_failed, pages_pending, power_slowdown, thermal_slowdown;
};

nvml_return state_load(struct state **state);
void state_hide_denied(struct state *state);
void state_free(struct state *state);
const struct record *scope_find(const struct scope *scope, const char *key);
const char *scope_text(const struct scope *scope, const char *key);

void faults_reset_lock(void);
struct verdict faults_for_call(const struct state *state, const struct scope *scope, const char *function);
struct ailments faults_for_values(const struct state *state, const struct scope *scope);
int gpu_gone(const struct state *state, unsigned int slot);

#endif
