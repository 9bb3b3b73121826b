/* Copyright (c) 2026, cudahub.gpu contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The binary interface of NVML as far as the simulator answers it. */
#ifndef GPU_SIMULATOR_ABI_H
#define GPU_SIMULATOR_ABI_H

#include <stdint.h>

typedef unsigned int nvml_return;
typedef void *nvml_device;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    OUT_OF_MEMORY = 20,
    NO_DATA = 21,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999
};

enum { NVLINKS = 36, CLOCK_TYPES = 4, CLOCK_IDS = 4, THRESHOLDS = 9, INFOROM_OBJECTS = 4, PERF_POLICIES = 8, P2P_CAPS = 6 };

#define STRUCT_VERSION(type, version) ((unsigned int)(sizeof(type) | ((unsigned int)(version) << 24)))

struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct pci_info_v1 {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id;
};

struct pci_info_ext {
    unsigned int version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
    char bus_id[32];
};

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

struct bar1_memory {
    unsigned long long total, free, used;
};

struct utilization {
    unsigned int gpu, memory;
};

struct attributes {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mb;
};

struct placement {
    unsigned int start, size;
};

struct gpu_instance_info {
    nvml_device device;
    unsigned int id, profile_id;
    struct placement placement;
};

struct compute_instance_info {
    nvml_device device, gpu_instance;
    unsigned int id, profile_id;
    struct placement placement;
};

struct gpu_instance_profile {
    unsigned int id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mb;
};

struct compute_instance_profile {
    unsigned int id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
};

struct row_histogram {
    unsigned int max, high, partial, low, none;
};

struct ecc_counts {
    unsigned long long l1_cache, l2_cache, device_memory, register_file;
};

struct conf_compute_state {
    unsigned int environment, feature, dev_tools_mode;
};

struct driver_branch {
    unsigned int version;
    char branch[80];
};

struct temperature {
    unsigned int version, sensor;
    int temperature;
};

struct fabric_info {
    unsigned char cluster_uuid[16];
    unsigned int status, clique_id, state;
};

struct fabric_info_v {
    unsigned int version;
    unsigned char cluster_uuid[16];
    unsigned int status, clique_id, state, health_mask;
};

struct process_info_v1 {
    unsigned int pid;
    unsigned long long memory;
};

struct process_info {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
};

struct process_detail {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
    unsigned long long protected_memory;
};

struct process_detail_list {
    unsigned int version, mode, entries;
    struct process_detail *array;
};

struct process_sample {
    unsigned int pid;
    unsigned long long time;
    unsigned int sm, memory, encoder, decoder;
};

struct violation {
    unsigned long long reference, violation;
};

union field_value {
    double d;
    unsigned int u;
    unsigned long long ull;
};

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency;
    unsigned int type, result;
    union field_value value;
};

struct conf_compute_memory {
    unsigned long long protected_kib, unprotected_kib;
};

#endif
