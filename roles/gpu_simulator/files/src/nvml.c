/* Copyright (c) 2026, cudahub.gpu contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The NVML functions that answer from the state file. Those that are never supported are in stubs.c. */
#define _GNU_SOURCE
#include "abi.h"
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { HANDLE_BASE = 0x4e560000 };

static pthread_rwlock_t state_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct state *current;
static unsigned int users;

API const char *gpuSimulatorVersion(void);
API const char *gpuSimulatorVersion(void)
{
    return GPU_SIMULATOR_VERSION;
}

/* Locks held by other threads at a fork would stay held in the child for ever. */
static void after_fork(void)
{
    pthread_rwlock_init(&state_lock, NULL);
    faults_reset_lock();
}

__attribute__((constructor)) static void at_load(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static void wait_for(unsigned long milliseconds)
{
    struct timespec left = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000L};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static nvml_device handle_of(const struct scope *scope)
{
    return (nvml_device)(uintptr_t)(HANDLE_BASE + ((scope->gpu + 1) << 8) + scope->mig + 1);
}

static const struct scope *scope_of(nvml_device device)
{
    uintptr_t number = (uintptr_t)device - HANDLE_BASE;
    uintptr_t slot = (number >> 8) - 1, mig = (number & 0xff) - 1;

    if ((uintptr_t)device < HANDLE_BASE || slot >= current->gpu_count)
        return NULL;
    if ((number & 0xff) == 0)
        return &current->gpus[slot].own;
    return mig < current->gpus[slot].mig_count ? &current->gpus[slot].migs[mig] : NULL;
}

static const struct scope *parent_of(const struct scope *scope)
{
    return &current->gpus[scope->gpu].own;
}

static nvml_return leave(nvml_return result)
{
    pthread_rwlock_unlock(&state_lock);
    return result;
}

/* Begins a call on the driver (device_call 0) or on a device: on OK the state is locked for reading until leave(). */
static nvml_return enter_call(const char *function, int device_call, nvml_device device, const struct scope **scope)
{
    struct verdict verdict;

    pthread_rwlock_rdlock(&state_lock);
    for (int slept = 0;; slept = 1) {
        if (current == NULL)
            return leave(UNINITIALIZED);
        *scope = device_call ? scope_of(device) : &current->sys;
        if (*scope == NULL)
            return leave(INVALID_ARGUMENT);
        if (slept)
            break;
        verdict = faults_for_call(current, *scope, function);
        if (device_call && verdict.code == OK && gpu_gone(current, (unsigned int)(*scope)->gpu))
            verdict.code = GPU_IS_LOST;
        if (verdict.milliseconds == 0)
            break;
        pthread_rwlock_unlock(&state_lock);
        wait_for(verdict.milliseconds);
        pthread_rwlock_rdlock(&state_lock);
    }
    return verdict.code == OK ? OK : leave(verdict.code);
}

#define ENTER_DEVICE(function, device)                                     \
    const struct scope *scope;                                             \
    nvml_return result = enter_call(function, 1, device, &scope);          \
    if (result != OK)                                                      \
        return result;

#define ENTER_SYSTEM(function)                                             \
    const struct scope *scope;                                             \
    nvml_return result = enter_call(function, 0, NULL, &scope);            \
    if (result != OK)                                                      \
        return result;

__attribute__((format(printf, 4, 5)))
static nvml_return look_up(const struct scope *scope, const struct record **record, unsigned int count,
                           const char *format, ...)
{
    char key[160];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    *record = scope_find(scope, key);
    if (*record == NULL)
        return NOT_SUPPORTED;
    if ((*record)->kind == 'e')
        return (*record)->code;
    return (*record)->count >= count ? OK : UNKNOWN;
}

static nvml_return copy_text(const char *text, char *buffer, unsigned int length)
{
    size_t needed = strlen(text) + 1;

    if (length < needed)
        return INSUFFICIENT_SIZE;
    memcpy(buffer, text, needed);
    return OK;
}

static nvml_return text_answer(const struct scope *scope, const char *key, char *buffer, unsigned int length)
{
    const struct record *record;
    nvml_return result;

    if (buffer == NULL)
        return INVALID_ARGUMENT;
    result = look_up(scope, &record, 0, "%s", key);
    if (result != OK)
        return result;
    return record->kind == 's' ? copy_text(record->text, buffer, length) : UNKNOWN;
}

/* ---- begin and end ------------------------------------------------------------------------------------------- */

API nvml_return nvmlInitWithFlags(unsigned int flags);
API nvml_return nvmlInitWithFlags(unsigned int flags)
{
    struct verdict verdict = faults_for_call(NULL, NULL, "nvmlInit");
    nvml_return result = OK;

    (void)flags;
    if (verdict.milliseconds != 0)
        wait_for(verdict.milliseconds);
    if (verdict.code != OK)
        return verdict.code;
    pthread_rwlock_wrlock(&state_lock);
    if (users == 0)
        result = state_load(&current);
    if (result == OK && users++ == 0)
        state_hide_denied(current);
    return leave(result);
}

API nvml_return nvmlInit_v2(void);
API nvml_return nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API nvml_return nvmlInit(void);
API nvml_return nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

API nvml_return nvmlShutdown(void);
API nvml_return nvmlShutdown(void)
{
    pthread_rwlock_wrlock(&state_lock);
    if (users == 0)
        return leave(UNINITIALIZED);
    if (--users == 0) {
        state_free(current);
        current = NULL;
    }
    return leave(OK);
}

API const char *nvmlErrorString(nvml_return code);
API const char *nvmlErrorString(nvml_return code)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "The operating system has blocked the request",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "The requested vgpu operation is not available on target device, because ECC is enabled",
        "Insufficient Resources", "Frequency Not Supported", "Argument version mismatch", "Deprecated", "Not Ready",
        "No GPUs found", "Invalid State", "Reset Type Not Supported"};

    return code < sizeof texts / sizeof *texts ? texts[code] : "Unknown Error";
}

/* ---- the driver ---------------------------------------------------------------------------------------------- */

/* The library knows its own version without a driver. */
API nvml_return nvmlSystemGetNVMLVersion(char *version, unsigned int length);
API nvml_return nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    struct verdict verdict = faults_for_call(NULL, NULL, "nvmlSystemGetNVMLVersion");
    struct state *state = NULL;
    nvml_return result;

    if (verdict.milliseconds != 0)
        wait_for(verdict.milliseconds);
    if (verdict.code != OK)
        return verdict.code;
    result = state_load(&state);
    if (result == OK)
        result = text_answer(&state->sys, "nvmlSystemGetNVMLVersion", version, length);
    state_free(state);
    return result;
}

API nvml_return nvmlSystemGetDriverVersion(char *version, unsigned int length);
API nvml_return nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER_SYSTEM("nvmlSystemGetDriverVersion")
    return leave(text_answer(scope, "nvmlSystemGetDriverVersion", version, length));
}

static nvml_return cuda_driver_version(const char *function, int *version)
{
    const struct record *record;

    ENTER_SYSTEM(function)
    if (version == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 1, "nvmlSystemGetCudaDriverVersion");
    if (result == OK)
        *version = (int)record->numbers[0];
    return leave(result);
}

API nvml_return nvmlSystemGetCudaDriverVersion(int *version);
API nvml_return nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_driver_version("nvmlSystemGetCudaDriverVersion", version);
}

API nvml_return nvmlSystemGetCudaDriverVersion_v2(int *version);
API nvml_return nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_driver_version("nvmlSystemGetCudaDriverVersion_v2", version);
}

API nvml_return nvmlSystemGetDriverBranch(struct driver_branch *branch, unsigned int length);
API nvml_return nvmlSystemGetDriverBranch(struct driver_branch *branch, unsigned int length)
{
    ENTER_SYSTEM("nvmlSystemGetDriverBranch")
    if (branch == NULL)
        return leave(INVALID_ARGUMENT);
    if (branch->version != STRUCT_VERSION(struct driver_branch, 1))
        return leave(VERSION_MISMATCH);
    if (length > sizeof branch->branch)
        length = sizeof branch->branch;
    return leave(text_answer(scope, "nvmlSystemGetDriverBranch", branch->branch, length));
}

API nvml_return nvmlSystemGetConfComputeState(struct conf_compute_state *state);
API nvml_return nvmlSystemGetConfComputeState(struct conf_compute_state *state)
{
    const struct record *record;

    ENTER_SYSTEM("nvmlSystemGetConfComputeState")
    if (state == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 3, "nvmlSystemGetConfComputeState");
    if (result == OK)
        *state = (struct conf_compute_state){(unsigned int)record->numbers[0], (unsigned int)record->numbers[1],
                                             (unsigned int)record->numbers[2]};
    return leave(result);
}

API nvml_return nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length);
API nvml_return nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[64], line[1024] = "";
    FILE *file;

    ENTER_SYSTEM("nvmlSystemGetProcessName")
    if (name == NULL || length == 0)
        return leave(INVALID_ARGUMENT);
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return leave(NOT_FOUND);
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    fclose(file);
    snprintf(name, length, "%s", line);
    return leave(OK);
}

/* ---- finding devices ----------------------------------------------------------------------------------------- */

static nvml_return device_count(const char *function, unsigned int *count)
{
    ENTER_SYSTEM(function)
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    *count = 0;
    for (unsigned int slot = 0; slot < current->gpu_count; slot++)
        if (!gpu_gone(current, slot))
            ++*count;
    return leave(OK);
}

API nvml_return nvmlDeviceGetCount(unsigned int *count);
API nvml_return nvmlDeviceGetCount(unsigned int *count)
{
    return device_count("nvmlDeviceGetCount", count);
}

API nvml_return nvmlDeviceGetCount_v2(unsigned int *count);
API nvml_return nvmlDeviceGetCount_v2(unsigned int *count)
{
    return device_count("nvmlDeviceGetCount_v2", count);
}

/* Ends a call that found a device: with its handle, or with the error that opening this device gives. */
static nvml_return leave_with_device(const char *function, const struct scope *found, nvml_device *device)
{
    struct verdict verdict;
    nvml_device handle;

    if (found == NULL)
        return leave(NOT_FOUND);
    handle = handle_of(found);
    verdict = faults_for_call(current, found, function);
    leave(OK);
    if (verdict.milliseconds != 0)
        wait_for(verdict.milliseconds);
    if (verdict.code == OK)
        *device = handle;
    return verdict.code;
}

/* Finding functions are calls on the driver until they have found their GPU: a fault of a GPU is then its own. */
#define ENTER_SEARCH(device)                                               \
    pthread_rwlock_rdlock(&state_lock);                                    \
    if (current == NULL)                                                   \
        return leave(UNINITIALIZED);                                       \
    if ((device) == NULL)                                                  \
        return leave(INVALID_ARGUMENT);

static nvml_return by_index(const char *function, unsigned int index, nvml_device *device)
{
    ENTER_SEARCH(device)
    for (unsigned int slot = 0; slot < current->gpu_count; slot++)
        if (!gpu_gone(current, slot) && index-- == 0)
            return leave_with_device(function, &current->gpus[slot].own, device);
    return leave(INVALID_ARGUMENT);
}

API nvml_return nvmlDeviceGetHandleByIndex(unsigned int index, nvml_device *device);
API nvml_return nvmlDeviceGetHandleByIndex(unsigned int index, nvml_device *device)
{
    return by_index("nvmlDeviceGetHandleByIndex", index, device);
}

API nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *device);
API nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *device)
{
    return by_index("nvmlDeviceGetHandleByIndex_v2", index, device);
}

API nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device);
API nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
    ENTER_SEARCH(device)
    if (uuid == NULL)
        return leave(INVALID_ARGUMENT);
    for (unsigned int slot = 0; slot < current->gpu_count; slot++) {
        const struct gpu *gpu = &current->gpus[slot];
        if (gpu_gone(current, slot))
            continue;
        if (strcmp(uuid, scope_text(&gpu->own, "nvmlDeviceGetUUID")) == 0)
            return leave_with_device("nvmlDeviceGetHandleByUUID", &gpu->own, device);
        for (unsigned int mig = 0; mig < gpu->mig_count; mig++)
            if (strcmp(uuid, scope_text(&gpu->migs[mig], "nvmlDeviceGetUUID")) == 0)
                return leave_with_device("nvmlDeviceGetHandleByUUID", &gpu->migs[mig], device);
    }
    return leave(NOT_FOUND);
}

API nvml_return nvmlDeviceGetHandleBySerial(const char *serial, nvml_device *device);
API nvml_return nvmlDeviceGetHandleBySerial(const char *serial, nvml_device *device)
{
    ENTER_SEARCH(device)
    if (serial == NULL || *serial == '\0')
        return leave(INVALID_ARGUMENT);
    for (unsigned int slot = 0; slot < current->gpu_count; slot++)
        if (!gpu_gone(current, slot)
            && strcmp(serial, scope_text(&current->gpus[slot].own, "nvmlDeviceGetSerial")) == 0)
            return leave_with_device("nvmlDeviceGetHandleBySerial", &current->gpus[slot].own, device);
    return leave(NOT_FOUND);
}

static int at_address(const struct scope *scope, unsigned int domain, unsigned int bus, unsigned int device)
{
    const struct record *record;

    return look_up(scope, &record, 5, "nvmlDeviceGetPciInfo") == OK && record->numbers[0] == domain
           && record->numbers[1] == bus && record->numbers[2] == device;
}

static nvml_return by_pci_address(const char *symbol, const char *address, nvml_device *device)
{
    unsigned int domain, bus, slot_number, function;
    char rest;

    ENTER_SEARCH(device)
    if (address == NULL)
        return leave(INVALID_ARGUMENT);
    if (sscanf(address, "%x:%x:%x.%x%c", &domain, &bus, &slot_number, &function, &rest) != 4
        && sscanf(address, "%x:%x:%x%c", &domain, &bus, &slot_number, &rest) != 3) {
        domain = 0;
        if (sscanf(address, "%x:%x.%x%c", &bus, &slot_number, &function, &rest) != 3)
            return leave(INVALID_ARGUMENT);
    }
    for (unsigned int slot = 0; slot < current->gpu_count; slot++)
        if (!gpu_gone(current, slot) && at_address(&current->gpus[slot].own, domain, bus, slot_number))
            return leave_with_device(symbol, &current->gpus[slot].own, device);
    return leave(NOT_FOUND);
}

API nvml_return nvmlDeviceGetHandleByPciBusId(const char *address, nvml_device *device);
API nvml_return nvmlDeviceGetHandleByPciBusId(const char *address, nvml_device *device)
{
    return by_pci_address("nvmlDeviceGetHandleByPciBusId", address, device);
}

API nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvml_device *device);
API nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvml_device *device)
{
    return by_pci_address("nvmlDeviceGetHandleByPciBusId_v2", address, device);
}

API nvml_return nvmlDeviceGetIndex(nvml_device device, unsigned int *index);
API nvml_return nvmlDeviceGetIndex(nvml_device device, unsigned int *index)
{
    ENTER_DEVICE("nvmlDeviceGetIndex", device)
    if (index == NULL)
        return leave(INVALID_ARGUMENT);
    if (scope->mig >= 0) {
        *index = (unsigned int)scope->mig;
        return leave(OK);
    }
    *index = 0;
    for (int slot = 0; slot < scope->gpu; slot++)
        if (!gpu_gone(current, (unsigned int)slot))
            ++*index;
    return leave(OK);
}

/* ---- MIG ----------------------------------------------------------------------------------------------------- */

API nvml_return nvmlDeviceIsMigDeviceHandle(nvml_device device, unsigned int *is_mig);
API nvml_return nvmlDeviceIsMigDeviceHandle(nvml_device device, unsigned int *is_mig)
{
    ENTER_DEVICE("nvmlDeviceIsMigDeviceHandle", device)
    if (is_mig == NULL)
        return leave(INVALID_ARGUMENT);
    *is_mig = scope->mig >= 0;
    return leave(OK);
}

API nvml_return nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned int index, nvml_device *mig);
API nvml_return nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned int index, nvml_device *mig)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetMigDeviceHandleByIndex", device)
    if (mig == NULL || scope->mig >= 0)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 2, "nvmlDeviceGetMigMode");
    if (result != OK)
        return leave(result);
    if (index >= current->gpus[scope->gpu].mig_count)
        return leave(NOT_FOUND);
    *mig = handle_of(&current->gpus[scope->gpu].migs[index]);
    return leave(OK);
}

API nvml_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_device mig, nvml_device *device);
API nvml_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_device mig, nvml_device *device)
{
    ENTER_DEVICE("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", mig)
    if (device == NULL || scope->mig < 0)
        return leave(INVALID_ARGUMENT);
    *device = handle_of(parent_of(scope));
    return leave(OK);
}

static nvml_return device_attributes(const char *function, nvml_device device, struct attributes *attributes)
{
    const struct record *record;
    const unsigned long long *numbers;

    ENTER_DEVICE(function, device)
    if (attributes == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 9, "nvmlDeviceGetAttributes");
    if (result != OK)
        return leave(result);
    numbers = record->numbers;
    *attributes = (struct attributes){
        (unsigned int)numbers[0], (unsigned int)numbers[1], (unsigned int)numbers[2], (unsigned int)numbers[3],
        (unsigned int)numbers[4], (unsigned int)numbers[5], (unsigned int)numbers[6], (unsigned int)numbers[7],
        numbers[8]};
    return leave(OK);
}

API nvml_return nvmlDeviceGetAttributes(nvml_device device, struct attributes *attributes);
API nvml_return nvmlDeviceGetAttributes(nvml_device device, struct attributes *attributes)
{
    return device_attributes("nvmlDeviceGetAttributes", device, attributes);
}

API nvml_return nvmlDeviceGetAttributes_v2(nvml_device device, struct attributes *attributes);
API nvml_return nvmlDeviceGetAttributes_v2(nvml_device device, struct attributes *attributes)
{
    return device_attributes("nvmlDeviceGetAttributes_v2", device, attributes);
}

/* A GPU instance, and the one compute instance that fills it, have the handle of the MIG device that they are. Profiles
 * are known as far as instances have them. */
enum { INSTANCE_PROFILES = 5, GPU_INSTANCE_PROFILE_LIMIT = 18, COMPUTE_INSTANCE_PROFILE_LIMIT = 9 };

static const unsigned int gpu_instance_profile_ids[INSTANCE_PROFILES] = {19, 14, 9, 5, 0};

/* NVML's number of the profile with 1, 2, 3, 4 or 7 slices. */
static unsigned int profile_of(const struct record *attributes)
{
    unsigned int slices = (unsigned int)attributes->numbers[6];

    return slices == 0 ? 0 : slices < INSTANCE_PROFILES ? slices - 1 : INSTANCE_PROFILES - 1;
}

/* Where the driver has put a GPU instance, in slices of memory, which its id says. */
static struct placement placement_of(unsigned int id)
{
    unsigned int size = id == 0 ? 8 : id < 3 ? 4 : id < 7 ? 2 : 1;
    unsigned int first = id == 0 ? 0 : id < 3 ? 1 : id < 7 ? 3 : 7;

    return (struct placement){(id - first) * size, size};
}

#define ENTER_INSTANCE(function, instance, answer)                         \
    const struct record *id, *attributes;                                  \
    ENTER_DEVICE(function, instance)                                       \
    if ((answer) == NULL || scope->mig < 0)                                \
        return leave(INVALID_ARGUMENT);                                    \
    result = look_up(scope, &attributes, 9, "nvmlDeviceGetAttributes");    \
    if (result != OK)                                                      \
        return leave(result);

API nvml_return nvmlDeviceGetGpuInstanceById(nvml_device device, unsigned int id, nvml_device *instance);
API nvml_return nvmlDeviceGetGpuInstanceById(nvml_device device, unsigned int id, nvml_device *instance)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetGpuInstanceById", device)
    if (instance == NULL || scope->mig >= 0)
        return leave(INVALID_ARGUMENT);
    for (unsigned int mig = 0; mig < current->gpus[scope->gpu].mig_count; mig++) {
        const struct scope *one = &current->gpus[scope->gpu].migs[mig];
        if (look_up(one, &record, 1, "nvmlDeviceGetGpuInstanceId") == OK && record->numbers[0] == id) {
            *instance = handle_of(one);
            return leave(OK);
        }
    }
    return leave(NOT_FOUND);
}

API nvml_return nvmlGpuInstanceGetComputeInstanceById(nvml_device instance, unsigned int number, nvml_device *compute);
API nvml_return nvmlGpuInstanceGetComputeInstanceById(nvml_device instance, unsigned int number, nvml_device *compute)
{
    const struct record *id;

    ENTER_DEVICE("nvmlGpuInstanceGetComputeInstanceById", instance)
    if (compute == NULL || scope->mig < 0)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &id, 1, "nvmlDeviceGetComputeInstanceId");
    if (result != OK)
        return leave(result);
    if (id->numbers[0] != number)
        return leave(NOT_FOUND);
    *compute = instance;
    return leave(OK);
}

API nvml_return nvmlGpuInstanceGetInfo(nvml_device instance, struct gpu_instance_info *info);
API nvml_return nvmlGpuInstanceGetInfo(nvml_device instance, struct gpu_instance_info *info)
{
    ENTER_INSTANCE("nvmlGpuInstanceGetInfo", instance, info)
    result = look_up(scope, &id, 1, "nvmlDeviceGetGpuInstanceId");
    if (result == OK) {
        unsigned int number = (unsigned int)id->numbers[0];
        *info = (struct gpu_instance_info){handle_of(parent_of(scope)), number,
                                           gpu_instance_profile_ids[profile_of(attributes)], placement_of(number)};
    }
    return leave(result);
}

API nvml_return nvmlComputeInstanceGetInfo_v2(nvml_device compute, struct compute_instance_info *info);
API nvml_return nvmlComputeInstanceGetInfo_v2(nvml_device compute, struct compute_instance_info *info)
{
    ENTER_INSTANCE("nvmlComputeInstanceGetInfo_v2", compute, info)
    result = look_up(scope, &id, 1, "nvmlDeviceGetComputeInstanceId");
    if (result == OK)
        *info = (struct compute_instance_info){handle_of(parent_of(scope)), compute, (unsigned int)id->numbers[0],
                                               profile_of(attributes), {0, (unsigned int)attributes->numbers[7]}};
    return leave(result);
}

API nvml_return nvmlDeviceGetGpuInstanceProfileInfo(nvml_device device, unsigned int profile,
                                                    struct gpu_instance_profile *info);
API nvml_return nvmlDeviceGetGpuInstanceProfileInfo(nvml_device device, unsigned int profile,
                                                    struct gpu_instance_profile *info)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetGpuInstanceProfileInfo", device)
    if (info == NULL || scope->mig >= 0 || profile >= GPU_INSTANCE_PROFILE_LIMIT)
        return leave(INVALID_ARGUMENT);
    for (unsigned int mig = 0; mig < current->gpus[scope->gpu].mig_count; mig++) {
        const struct scope *one = &current->gpus[scope->gpu].migs[mig];
        if (look_up(one, &record, 9, "nvmlDeviceGetAttributes") != OK || profile_of(record) != profile)
            continue;
        const unsigned long long *numbers = record->numbers;
        *info = (struct gpu_instance_profile){
            gpu_instance_profile_ids[profile], 0, (unsigned int)numbers[6], 1, (unsigned int)numbers[0],
            (unsigned int)numbers[1], (unsigned int)numbers[2], (unsigned int)numbers[3], (unsigned int)numbers[4],
            (unsigned int)numbers[5], numbers[8]};
        return leave(OK);
    }
    return leave(NOT_SUPPORTED);
}

API nvml_return nvmlGpuInstanceGetComputeInstanceProfileInfo(nvml_device instance, unsigned int profile,
                                                             unsigned int engines,
                                                             struct compute_instance_profile *info);
API nvml_return nvmlGpuInstanceGetComputeInstanceProfileInfo(nvml_device instance, unsigned int profile,
                                                             unsigned int engines,
                                                             struct compute_instance_profile *info)
{
    ENTER_DEVICE("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance)
    const struct record *record;

    if (info == NULL || scope->mig < 0 || profile >= COMPUTE_INSTANCE_PROFILE_LIMIT || engines != 0)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 9, "nvmlDeviceGetAttributes");
    if (result == OK && profile_of(record) != profile)
        result = NOT_SUPPORTED;
    if (result == OK) {
        const unsigned long long *numbers = record->numbers;
        *info = (struct compute_instance_profile){
            profile, (unsigned int)numbers[7], 1, (unsigned int)numbers[0], (unsigned int)numbers[1],
            (unsigned int)numbers[2], (unsigned int)numbers[3], (unsigned int)numbers[4], (unsigned int)numbers[5]};
    }
    return leave(result);
}

/* ---- one text, one number, two numbers, ... ------------------------------------------------------------------ */

#define TEXT(symbol)                                                       \
    API nvml_return symbol(nvml_device device, char *text, unsigned int length);     \
    API nvml_return symbol(nvml_device device, char *text, unsigned int length)      \
    {                                                                      \
        ENTER_DEVICE(#symbol, device)                                      \
        return leave(text_answer(scope, #symbol, text, length));           \
    }

#define NUMBER(symbol, type)                                               \
    API nvml_return symbol(nvml_device device, type *value);               \
    API nvml_return symbol(nvml_device device, type *value)                \
    {                                                                      \
        const struct record *record;                                       \
        ENTER_DEVICE(#symbol, device)                                      \
        if (value == NULL)                                                 \
            return leave(INVALID_ARGUMENT);                                \
        result = look_up(scope, &record, 1, #symbol);                      \
        if (result == OK)                                                  \
            *value = (type)record->numbers[0];                             \
        return leave(result);                                              \
    }

#define TWO_NUMBERS(symbol, key, type)                                     \
    API nvml_return symbol(nvml_device device, type *first, type *second); \
    API nvml_return symbol(nvml_device device, type *first, type *second)  \
    {                                                                      \
        const struct record *record;                                       \
        ENTER_DEVICE(#symbol, device)                                      \
        if (first == NULL || second == NULL)                               \
            return leave(INVALID_ARGUMENT);                                \
        result = look_up(scope, &record, 2, key);                          \
        if (result == OK) {                                                \
            *first = (type)record->numbers[0];                             \
            *second = (type)record->numbers[1];                            \
        }                                                                  \
        return leave(result);                                              \
    }

#define NUMBER_OF(symbol, type, limit)                                     \
    API nvml_return symbol(nvml_device device, unsigned int of, type *value);        \
    API nvml_return symbol(nvml_device device, unsigned int of, type *value)         \
    {                                                                      \
        const struct record *record;                                       \
        ENTER_DEVICE(#symbol, device)                                      \
        if (value == NULL || of >= (limit))                                \
            return leave(INVALID_ARGUMENT);                                \
        result = look_up(scope, &record, 1, #symbol ":%u", of);            \
        if (result == OK)                                                  \
            *value = (type)record->numbers[0];                             \
        return leave(result);                                              \
    }

#define NUMBER_OF_TWO(symbol, type, limit_first, limit_second)             \
    API nvml_return symbol(nvml_device device, unsigned int first, unsigned int second, type *value);  \
    API nvml_return symbol(nvml_device device, unsigned int first, unsigned int second, type *value)   \
    {                                                                      \
        const struct record *record;                                       \
        ENTER_DEVICE(#symbol, device)                                      \
        if (value == NULL || first >= (limit_first) || second >= (limit_second))     \
            return leave(INVALID_ARGUMENT);                                \
        result = look_up(scope, &record, 1, #symbol ":%u:%u", first, second);        \
        if (result == OK)                                                  \
            *value = (type)record->numbers[0];                             \
        return leave(result);                                              \
    }

TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetVbiosVersion)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetInforomImageVersion)

NUMBER(nvmlDeviceGetAccountingMode, unsigned int)
NUMBER(nvmlDeviceGetAccountingBufferSize, unsigned int)
NUMBER(nvmlDeviceGetAdaptiveClockInfoStatus, unsigned int)
NUMBER(nvmlDeviceGetArchitecture, unsigned int)
NUMBER(nvmlDeviceGetBoardId, unsigned int)
NUMBER(nvmlDeviceGetBrand, unsigned int)
NUMBER(nvmlDeviceGetBusType, unsigned int)
NUMBER(nvmlDeviceGetComputeInstanceId, unsigned int)
NUMBER(nvmlDeviceGetComputeMode, unsigned int)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int)
NUMBER(nvmlDeviceGetDefaultEccMode, unsigned int)
NUMBER(nvmlDeviceGetDisplayActive, unsigned int)
NUMBER(nvmlDeviceGetDisplayMode, unsigned int)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int)
NUMBER(nvmlDeviceGetFanSpeed, unsigned int)
NUMBER(nvmlDeviceGetGpcClkVfOffset, int)
NUMBER(nvmlDeviceGetGpuInstanceId, unsigned int)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int)
NUMBER(nvmlDeviceGetInforomConfigurationChecksum, unsigned int)
NUMBER(nvmlDeviceGetIrqNum, unsigned int)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned int)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int)
NUMBER(nvmlDeviceGetMemClkVfOffset, int)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned int)
NUMBER(nvmlDeviceGetMinorNumber, unsigned int)
NUMBER(nvmlDeviceGetModuleId, unsigned int)
NUMBER(nvmlDeviceGetMultiGpuBoard, unsigned int)
NUMBER(nvmlDeviceGetNumFans, unsigned int)
NUMBER(nvmlDeviceGetNumGpuCores, unsigned int)
NUMBER(nvmlDeviceGetNumaNodeId, unsigned int)
NUMBER(nvmlDeviceGetPcieLinkMaxSpeed, unsigned int)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned int)
NUMBER(nvmlDeviceGetPcieSpeed, unsigned int)
NUMBER(nvmlDeviceGetPerformanceState, unsigned int)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned int)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned int)
NUMBER(nvmlDeviceGetPowerManagementMode, unsigned int)
NUMBER(nvmlDeviceGetPowerSource, unsigned int)
NUMBER(nvmlDeviceGetPowerState, unsigned int)
NUMBER(nvmlDeviceGetPowerUsage, unsigned int)
NUMBER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long)
NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long)
NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned int)

TWO_NUMBERS(nvmlDeviceGetAutoBoostedClocksEnabled, "nvmlDeviceGetAutoBoostedClocksEnabled", unsigned int)
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, "nvmlDeviceGetCudaComputeCapability", int)
TWO_NUMBERS(nvmlDeviceGetDecoderUtilization, "nvmlDeviceGetDecoderUtilization", unsigned int)
TWO_NUMBERS(nvmlDeviceGetDriverModel, "nvmlDeviceGetDriverModel", unsigned int)
TWO_NUMBERS(nvmlDeviceGetDriverModel_v2, "nvmlDeviceGetDriverModel", unsigned int)
TWO_NUMBERS(nvmlDeviceGetEccMode, "nvmlDeviceGetEccMode", unsigned int)
TWO_NUMBERS(nvmlDeviceGetEncoderUtilization, "nvmlDeviceGetEncoderUtilization", unsigned int)
TWO_NUMBERS(nvmlDeviceGetGpuOperationMode, "nvmlDeviceGetGpuOperationMode", unsigned int)
TWO_NUMBERS(nvmlDeviceGetGspFirmwareMode, "nvmlDeviceGetGspFirmwareMode", unsigned int)
TWO_NUMBERS(nvmlDeviceGetJpgUtilization, "nvmlDeviceGetJpgUtilization", unsigned int)
TWO_NUMBERS(nvmlDeviceGetMigMode, "nvmlDeviceGetMigMode", unsigned int)
TWO_NUMBERS(nvmlDeviceGetMinMaxFanSpeed, "nvmlDeviceGetMinMaxFanSpeed", unsigned int)
TWO_NUMBERS(nvmlDeviceGetOfaUtilization, "nvmlDeviceGetOfaUtilization", unsigned int)
TWO_NUMBERS(nvmlDeviceGetPowerManagementLimitConstraints, "nvmlDeviceGetPowerManagementLimitConstraints", unsigned int)

NUMBER_OF(nvmlDeviceGetAPIRestriction, unsigned int, 2)
NUMBER_OF(nvmlDeviceGetApplicationsClock, unsigned int, CLOCK_TYPES)
NUMBER_OF(nvmlDeviceGetClockInfo, unsigned int, CLOCK_TYPES)
NUMBER_OF(nvmlDeviceGetDefaultApplicationsClock, unsigned int, CLOCK_TYPES)
NUMBER_OF(nvmlDeviceGetFanSpeed_v2, unsigned int, 16)
NUMBER_OF(nvmlDeviceGetMaxClockInfo, unsigned int, CLOCK_TYPES)
NUMBER_OF(nvmlDeviceGetMaxCustomerBoostClock, unsigned int, CLOCK_TYPES)
NUMBER_OF(nvmlDeviceGetPcieThroughput, unsigned int, 2)
NUMBER_OF(nvmlDeviceGetTargetFanSpeed, unsigned int, 16)
NUMBER_OF(nvmlDeviceGetTemperatureThreshold, unsigned int, THRESHOLDS)

NUMBER_OF_TWO(nvmlDeviceGetClock, unsigned int, CLOCK_TYPES, CLOCK_IDS)

API nvml_return nvmlDeviceGetInforomVersion(nvml_device device, unsigned int object, char *text, unsigned int length);
API nvml_return nvmlDeviceGetInforomVersion(nvml_device device, unsigned int object, char *text, unsigned int length)
{
    char key[64];

    ENTER_DEVICE("nvmlDeviceGetInforomVersion", device)
    if (object >= INFOROM_OBJECTS)
        return leave(INVALID_ARGUMENT);
    snprintf(key, sizeof key, "nvmlDeviceGetInforomVersion:%u", object);
    return leave(text_answer(scope, key, text, length));
}

API nvml_return nvmlDeviceGetGspFirmwareVersion(nvml_device device, char *version);
API nvml_return nvmlDeviceGetGspFirmwareVersion(nvml_device device, char *version)
{
    ENTER_DEVICE("nvmlDeviceGetGspFirmwareVersion", device)
    return leave(text_answer(scope, "nvmlDeviceGetGspFirmwareVersion", version, 64));
}

API nvml_return nvmlDeviceGetTemperature(nvml_device device, unsigned int sensor, unsigned int *temperature);
API nvml_return nvmlDeviceGetTemperature(nvml_device device, unsigned int sensor, unsigned int *temperature)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetTemperature", device)
    if (temperature == NULL || sensor != 0)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 1, "nvmlDeviceGetTemperature");
    if (result == OK)
        *temperature = (unsigned int)record->numbers[0];
    return leave(result);
}

API nvml_return nvmlDeviceGetTemperatureV(nvml_device device, struct temperature *temperature);
API nvml_return nvmlDeviceGetTemperatureV(nvml_device device, struct temperature *temperature)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetTemperatureV", device)
    if (temperature == NULL)
        return leave(INVALID_ARGUMENT);
    if (temperature->version != STRUCT_VERSION(struct temperature, 1))
        return leave(VERSION_MISMATCH);
    if (temperature->sensor != 0)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 1, "nvmlDeviceGetTemperature");
    if (result == OK)
        temperature->temperature = (int)record->numbers[0];
    return leave(result);
}

/* ---- memory and utilization ---------------------------------------------------------------------------------- */

API nvml_return nvmlDeviceGetMemoryInfo(nvml_device device, struct memory *memory);
API nvml_return nvmlDeviceGetMemoryInfo(nvml_device device, struct memory *memory)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetMemoryInfo", device)
    if (memory == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 3, "nvmlDeviceGetMemoryInfo");
    if (result == OK)
        *memory = (struct memory){record->numbers[0], record->numbers[1], record->numbers[2]};
    return leave(result);
}

API nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct memory_v2 *memory);
API nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct memory_v2 *memory)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetMemoryInfo_v2", device)
    if (memory == NULL)
        return leave(INVALID_ARGUMENT);
    if (memory->version != STRUCT_VERSION(struct memory_v2, 2))
        return leave(VERSION_MISMATCH);
    result = look_up(scope, &record, 4, "nvmlDeviceGetMemoryInfo_v2");
    if (result == OK)
        *memory = (struct memory_v2){memory->version, record->numbers[0], record->numbers[1], record->numbers[2],
                                     record->numbers[3]};
    return leave(result);
}

API nvml_return nvmlDeviceGetBAR1MemoryInfo(nvml_device device, struct bar1_memory *memory);
API nvml_return nvmlDeviceGetBAR1MemoryInfo(nvml_device device, struct bar1_memory *memory)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetBAR1MemoryInfo", device)
    if (memory == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 3, "nvmlDeviceGetBAR1MemoryInfo");
    if (result == OK)
        *memory = (struct bar1_memory){record->numbers[0], record->numbers[1], record->numbers[2]};
    return leave(result);
}

API nvml_return nvmlDeviceGetConfComputeMemSizeInfo(nvml_device device, struct conf_compute_memory *memory);
API nvml_return nvmlDeviceGetConfComputeMemSizeInfo(nvml_device device, struct conf_compute_memory *memory)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetConfComputeMemSizeInfo", device)
    if (memory == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 2, "nvmlDeviceGetConfComputeMemSizeInfo");
    if (result == OK)
        *memory = (struct conf_compute_memory){record->numbers[0], record->numbers[1]};
    return leave(result);
}

API nvml_return nvmlDeviceGetUtilizationRates(nvml_device device, struct utilization *utilization);
API nvml_return nvmlDeviceGetUtilizationRates(nvml_device device, struct utilization *utilization)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetUtilizationRates", device)
    if (utilization == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 2, "nvmlDeviceGetUtilizationRates");
    if (result == OK)
        *utilization = (struct utilization){(unsigned int)record->numbers[0], (unsigned int)record->numbers[1]};
    return leave(result);
}

API nvml_return nvmlDeviceGetViolationStatus(nvml_device device, unsigned int policy, struct violation *violation);
API nvml_return nvmlDeviceGetViolationStatus(nvml_device device, unsigned int policy, struct violation *violation)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetViolationStatus", device)
    if (violation == NULL || policy >= PERF_POLICIES)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 2, "nvmlDeviceGetViolationStatus:%u", policy);
    if (result == OK)
        *violation = (struct violation){record->numbers[0], record->numbers[1]};
    return leave(result);
}

/* ---- PCI ----------------------------------------------------------------------------------------------------- */

static void write_bus_id(char *bus_id, size_t size, int domain_digits, const unsigned long long *numbers)
{
    snprintf(bus_id, size, "%0*X:%02X:%02X.0", domain_digits, (unsigned int)numbers[0], (unsigned int)numbers[1],
             (unsigned int)numbers[2]);
}

static void write_pci_info(struct pci_info *pci, const unsigned long long *numbers)
{
    unsigned long long legacy[] = {numbers[0] & 0xFFFFFFF, numbers[1] & 0xFF, numbers[2] & 0xFF};

    memset(pci, 0, sizeof *pci);
    write_bus_id(pci->bus_id_legacy, sizeof pci->bus_id_legacy, 4, legacy);
    write_bus_id(pci->bus_id, sizeof pci->bus_id, 8, numbers);
    pci->domain = (unsigned int)numbers[0];
    pci->bus = (unsigned int)numbers[1];
    pci->device = (unsigned int)numbers[2];
    pci->pci_device_id = (unsigned int)numbers[3];
    pci->pci_subsystem_id = (unsigned int)numbers[4];
}

static nvml_return device_pci_info(const char *function, nvml_device device, struct pci_info *pci)
{
    const struct record *record;

    ENTER_DEVICE(function, device)
    if (pci == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 5, "nvmlDeviceGetPciInfo");
    if (result == OK)
        write_pci_info(pci, record->numbers);
    return leave(result);
}

API nvml_return nvmlDeviceGetPciInfo_v3(nvml_device device, struct pci_info *pci);
API nvml_return nvmlDeviceGetPciInfo_v3(nvml_device device, struct pci_info *pci)
{
    return device_pci_info("nvmlDeviceGetPciInfo_v3", device, pci);
}

API nvml_return nvmlDeviceGetPciInfo_v2(nvml_device device, struct pci_info *pci);
API nvml_return nvmlDeviceGetPciInfo_v2(nvml_device device, struct pci_info *pci)
{
    struct pci_info whole;
    nvml_return result;

    if (pci == NULL)
        return device_pci_info("nvmlDeviceGetPciInfo_v2", device, NULL);
    result = device_pci_info("nvmlDeviceGetPciInfo_v2", device, &whole);
    if (result == OK)
        memcpy(pci, &whole, offsetof(struct pci_info, bus_id));
    return result;
}

API nvml_return nvmlDeviceGetPciInfo(nvml_device device, struct pci_info_v1 *pci);
API nvml_return nvmlDeviceGetPciInfo(nvml_device device, struct pci_info_v1 *pci)
{
    struct pci_info whole;
    nvml_return result;

    if (pci == NULL)
        return device_pci_info("nvmlDeviceGetPciInfo", device, NULL);
    result = device_pci_info("nvmlDeviceGetPciInfo", device, &whole);
    if (result == OK)
        memcpy(pci, &whole, sizeof *pci);
    return result;
}

API nvml_return nvmlDeviceGetPciInfoExt(nvml_device device, struct pci_info_ext *pci);
API nvml_return nvmlDeviceGetPciInfoExt(nvml_device device, struct pci_info_ext *pci)
{
    const struct record *record, *classes;

    ENTER_DEVICE("nvmlDeviceGetPciInfoExt", device)
    if (pci == NULL)
        return leave(INVALID_ARGUMENT);
    if (pci->version != STRUCT_VERSION(struct pci_info_ext, 1))
        return leave(VERSION_MISMATCH);
    result = look_up(scope, &record, 5, "nvmlDeviceGetPciInfo");
    if (result == OK)
        result = look_up(scope, &classes, 2, "nvmlDeviceGetPciInfoExt");
    if (result != OK)
        return leave(result);
    pci->domain = (unsigned int)record->numbers[0];
    pci->bus = (unsigned int)record->numbers[1];
    pci->device = (unsigned int)record->numbers[2];
    pci->pci_device_id = (unsigned int)record->numbers[3];
    pci->pci_subsystem_id = (unsigned int)record->numbers[4];
    pci->base_class = (unsigned int)classes->numbers[0];
    pci->sub_class = (unsigned int)classes->numbers[1];
    memset(pci->bus_id, 0, sizeof pci->bus_id);
    write_bus_id(pci->bus_id, sizeof pci->bus_id, 8, record->numbers);
    return leave(OK);
}

/* ---- affinity and topology ----------------------------------------------------------------------------------- */

static nvml_return affinity(const char *function, const char *key, nvml_device device, unsigned int size,
                            unsigned long *set)
{
    const struct record *record;

    ENTER_DEVICE(function, device)
    if (set == NULL || size == 0)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 0, "%s", key);
    for (unsigned int i = 0; result == OK && i < size; i++)
        set[i] = i < record->count ? (unsigned long)record->numbers[i] : 0;
    return leave(result);
}

API nvml_return nvmlDeviceGetCpuAffinity(nvml_device device, unsigned int size, unsigned long *set);
API nvml_return nvmlDeviceGetCpuAffinity(nvml_device device, unsigned int size, unsigned long *set)
{
    return affinity("nvmlDeviceGetCpuAffinity", "nvmlDeviceGetCpuAffinity", device, size, set);
}

API nvml_return nvmlDeviceGetCpuAffinityWithinScope(nvml_device device, unsigned int size, unsigned long *set,
                                                    unsigned int within);
API nvml_return nvmlDeviceGetCpuAffinityWithinScope(nvml_device device, unsigned int size, unsigned long *set,
                                                    unsigned int within)
{
    if (within > 1)
        set = NULL;
    return affinity("nvmlDeviceGetCpuAffinityWithinScope", "nvmlDeviceGetCpuAffinity", device, size, set);
}

API nvml_return nvmlDeviceGetMemoryAffinity(nvml_device device, unsigned int size, unsigned long *set,
                                            unsigned int within);
API nvml_return nvmlDeviceGetMemoryAffinity(nvml_device device, unsigned int size, unsigned long *set,
                                            unsigned int within)
{
    if (within > 1)
        set = NULL;
    return affinity("nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetMemoryAffinity", device, size, set);
}

/* Answers about a pair of GPUs are the first one's, keyed by the other's slot. */
static nvml_return about_pair(const char *function, nvml_device first, nvml_device second, const char *suffix,
                              unsigned int *value)
{
    const struct record *record;
    const struct scope *other;

    ENTER_DEVICE(function, first)
    other = scope_of(second);
    if (value == NULL || other == NULL || scope->mig >= 0 || other->mig >= 0)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 1, "%s:%d%s", function, other->gpu, suffix);
    if (result == OK)
        *value = (unsigned int)record->numbers[0];
    return leave(result);
}

API nvml_return nvmlDeviceGetTopologyCommonAncestor(nvml_device first, nvml_device second, unsigned int *level);
API nvml_return nvmlDeviceGetTopologyCommonAncestor(nvml_device first, nvml_device second, unsigned int *level)
{
    return about_pair("nvmlDeviceGetTopologyCommonAncestor", first, second, "", level);
}

API nvml_return nvmlDeviceGetP2PStatus(nvml_device first, nvml_device second, unsigned int capability,
                                       unsigned int *status);
API nvml_return nvmlDeviceGetP2PStatus(nvml_device first, nvml_device second, unsigned int capability,
                                       unsigned int *status)
{
    char suffix[16];

    if (capability >= P2P_CAPS)
        status = NULL;
    snprintf(suffix, sizeof suffix, ":%u", capability);
    return about_pair("nvmlDeviceGetP2PStatus", first, second, suffix, status);
}

API nvml_return nvmlDeviceOnSameBoard(nvml_device first, nvml_device second, int *same);
API nvml_return nvmlDeviceOnSameBoard(nvml_device first, nvml_device second, int *same)
{
    ENTER_DEVICE("nvmlDeviceOnSameBoard", first)
    if (same == NULL || scope_of(second) == NULL)
        return leave(INVALID_ARGUMENT);
    *same = scope->gpu == scope_of(second)->gpu;
    return leave(OK);
}

/* Hands out those of the wanted[] slots that fit; *count becomes their number. */
static nvml_return hand_out(const int *wanted, unsigned int *count, nvml_device *devices)
{
    unsigned int found = 0, room = devices == NULL ? 0 : *count;

    for (unsigned int slot = 0; slot < current->gpu_count; slot++) {
        if (!wanted[slot] || gpu_gone(current, slot))
            continue;
        if (found < room)
            devices[found] = handle_of(&current->gpus[slot].own);
        found++;
    }
    *count = found;
    return devices != NULL && found > room ? INSUFFICIENT_SIZE : OK;
}

API nvml_return nvmlDeviceGetTopologyNearestGpus(nvml_device device, unsigned int level, unsigned int *count,
                                                 nvml_device *devices);
API nvml_return nvmlDeviceGetTopologyNearestGpus(nvml_device device, unsigned int level, unsigned int *count,
                                                 nvml_device *devices)
{
    int wanted[MAX_GPUS] = {0};

    ENTER_DEVICE("nvmlDeviceGetTopologyNearestGpus", device)
    if (count == NULL || scope->mig >= 0)
        return leave(INVALID_ARGUMENT);
    for (unsigned int slot = 0; slot < current->gpu_count; slot++) {
        const struct record *record;
        wanted[slot] = look_up(scope, &record, 1, "nvmlDeviceGetTopologyCommonAncestor:%u", slot) == OK
                       && record->numbers[0] == level;
    }
    return leave(hand_out(wanted, count, devices));
}

API nvml_return nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count, nvml_device *devices);
API nvml_return nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count, nvml_device *devices)
{
    int wanted[MAX_GPUS] = {0};

    ENTER_SYSTEM("nvmlSystemGetTopologyGpuSet")
    (void)scope;
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    for (unsigned int slot = 0; slot < current->gpu_count; slot++) {
        const struct record *record;
        wanted[slot] = look_up(&current->gpus[slot].own, &record, 1, "nvmlDeviceGetCpuAffinity") == OK
                       && cpu / 64 < record->count && (record->numbers[cpu / 64] >> (cpu % 64) & 1);
    }
    return leave(hand_out(wanted, count, devices));
}

/* ---- NVLink -------------------------------------------------------------------------------------------------- */

/* A link that a GPU does not have is a wrong argument, any link of a GPU without NVLink is not supported. */
static nvml_return look_up_link(const struct scope *scope, const struct record **record, unsigned int count,
                                const char *key, unsigned int link)
{
    nvml_return result = look_up(scope, record, count, "%s:%u", key, link);

    if (link >= NVLINKS)
        return INVALID_ARGUMENT;
    if (*record == NULL && look_up(scope, record, count, "%s:0", key) == OK)
        return INVALID_ARGUMENT;
    return result;
}

#define NUMBER_OF_LINK(symbol)                                             \
    API nvml_return symbol(nvml_device device, unsigned int link, unsigned int *value);      \
    API nvml_return symbol(nvml_device device, unsigned int link, unsigned int *value)       \
    {                                                                      \
        const struct record *record;                                       \
        ENTER_DEVICE(#symbol, device)                                      \
        if (value == NULL)                                                 \
            return leave(INVALID_ARGUMENT);                                \
        result = look_up_link(scope, &record, 1, #symbol, link);           \
        if (result == OK)                                                  \
            *value = (unsigned int)record->numbers[0];                     \
        return leave(result);                                              \
    }

NUMBER_OF_LINK(nvmlDeviceGetNvLinkState)
NUMBER_OF_LINK(nvmlDeviceGetNvLinkVersion)
NUMBER_OF_LINK(nvmlDeviceGetNvLinkRemoteDeviceType)

API nvml_return nvmlDeviceGetNvLinkCapability(nvml_device device, unsigned int link, unsigned int capability,
                                              unsigned int *value);
API nvml_return nvmlDeviceGetNvLinkCapability(nvml_device device, unsigned int link, unsigned int capability,
                                              unsigned int *value)
{
    const struct record *record;
    char key[64];

    ENTER_DEVICE("nvmlDeviceGetNvLinkCapability", device)
    if (value == NULL || capability > 5)
        return leave(INVALID_ARGUMENT);
    snprintf(key, sizeof key, "nvmlDeviceGetNvLinkCapability:%u", capability);
    result = look_up_link(scope, &record, 1, key, link);
    if (result == OK)
        *value = (unsigned int)record->numbers[0];
    return leave(result);
}

API nvml_return nvmlDeviceGetNvLinkErrorCounter(nvml_device device, unsigned int link, unsigned int counter,
                                                unsigned long long *value);
API nvml_return nvmlDeviceGetNvLinkErrorCounter(nvml_device device, unsigned int link, unsigned int counter,
                                                unsigned long long *value)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetNvLinkErrorCounter", device)
    if (value == NULL || counter > 4)
        return leave(INVALID_ARGUMENT);
    result = look_up_link(scope, &record, 1, "nvmlDeviceGetNvLinkState", link);
    if (result == OK)
        *value = 0;
    return leave(result);
}

static nvml_return link_remote_pci_info(const char *function, nvml_device device, unsigned int link,
                                        struct pci_info *pci)
{
    const struct record *record;

    ENTER_DEVICE(function, device)
    if (pci == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up_link(scope, &record, 5, "nvmlDeviceGetNvLinkRemotePciInfo", link);
    if (result == OK)
        write_pci_info(pci, record->numbers);
    return leave(result);
}

API nvml_return nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned int link, struct pci_info *pci);
API nvml_return nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned int link, struct pci_info *pci)
{
    return link_remote_pci_info("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link, pci);
}

API nvml_return nvmlDeviceGetNvLinkRemotePciInfo(nvml_device device, unsigned int link, struct pci_info *pci);
API nvml_return nvmlDeviceGetNvLinkRemotePciInfo(nvml_device device, unsigned int link, struct pci_info *pci)
{
    struct pci_info whole;
    nvml_return result = link_remote_pci_info("nvmlDeviceGetNvLinkRemotePciInfo", device, link,
                                              pci == NULL ? NULL : &whole);

    if (result == OK)
        memcpy(pci, &whole, offsetof(struct pci_info, bus_id));
    return result;
}

static nvml_return copy_fabric(const struct scope *scope, unsigned char *uuid, unsigned int *status,
                               unsigned int *clique, unsigned int *state, unsigned int *health)
{
    const struct record *record;
    nvml_return result = look_up(scope, &record, 20, "nvmlDeviceGetGpuFabricInfoV");

    if (result != OK)
        return result;
    for (unsigned int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)record->numbers[i];
    *status = (unsigned int)record->numbers[16];
    *clique = (unsigned int)record->numbers[17];
    *state = (unsigned int)record->numbers[18];
    *health = (unsigned int)record->numbers[19];
    return OK;
}

API nvml_return nvmlDeviceGetGpuFabricInfoV(nvml_device device, struct fabric_info_v *fabric);
API nvml_return nvmlDeviceGetGpuFabricInfoV(nvml_device device, struct fabric_info_v *fabric)
{
    ENTER_DEVICE("nvmlDeviceGetGpuFabricInfoV", device)
    if (fabric == NULL)
        return leave(INVALID_ARGUMENT);
    if (fabric->version != STRUCT_VERSION(struct fabric_info_v, 2))
        return leave(VERSION_MISMATCH);
    return leave(copy_fabric(scope, fabric->cluster_uuid, &fabric->status, &fabric->clique_id, &fabric->state,
                             &fabric->health_mask));
}

API nvml_return nvmlDeviceGetGpuFabricInfo(nvml_device device, struct fabric_info *fabric);
API nvml_return nvmlDeviceGetGpuFabricInfo(nvml_device device, struct fabric_info *fabric)
{
    unsigned int health;

    ENTER_DEVICE("nvmlDeviceGetGpuFabricInfo", device)
    if (fabric == NULL)
        return leave(INVALID_ARGUMENT);
    return leave(copy_fabric(scope, fabric->cluster_uuid, &fabric->status, &fabric->clique_id, &fabric->state,
                             &health));
}

/* ---- health -------------------------------------------------------------------------------------------------- */

enum { UNCORRECTED = 1, MEMORY_LOCATION = 2 };
enum { HW_SLOWDOWN = 0x8, HW_THERMAL = 0x40, HW_POWER_BRAKE = 0x80 };

static nvml_return total_ecc_errors(const struct scope *scope, unsigned int error, unsigned int counter,
                                    unsigned long long *count)
{
    const struct record *record;
    nvml_return result = look_up(scope, &record, 1, "nvmlDeviceGetTotalEccErrors:%u:%u", error, counter);

    if (result == OK)
        *count = record->numbers[0] + (error == UNCORRECTED ? faults_for_values(current, scope).uncorrected : 0);
    return result;
}

API nvml_return nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned int error, unsigned int counter,
                                            unsigned long long *count);
API nvml_return nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned int error, unsigned int counter,
                                            unsigned long long *count)
{
    ENTER_DEVICE("nvmlDeviceGetTotalEccErrors", device)
    if (count == NULL || error > 1 || counter > 1)
        return leave(INVALID_ARGUMENT);
    return leave(total_ecc_errors(scope, error, counter, count));
}

API nvml_return nvmlDeviceGetMemoryErrorCounter(nvml_device device, unsigned int error, unsigned int counter,
                                                unsigned int location, unsigned long long *count);
API nvml_return nvmlDeviceGetMemoryErrorCounter(nvml_device device, unsigned int error, unsigned int counter,
                                                unsigned int location, unsigned long long *count)
{
    ENTER_DEVICE("nvmlDeviceGetMemoryErrorCounter", device)
    if (count == NULL || error > 1 || counter > 1 || location > 7)
        return leave(INVALID_ARGUMENT);
    result = total_ecc_errors(scope, error, counter, count);
    if (result == OK && location != MEMORY_LOCATION)
        *count = 0;
    return leave(result);
}

API nvml_return nvmlDeviceGetDetailedEccErrors(nvml_device device, unsigned int error, unsigned int counter,
                                               struct ecc_counts *counts);
API nvml_return nvmlDeviceGetDetailedEccErrors(nvml_device device, unsigned int error, unsigned int counter,
                                               struct ecc_counts *counts)
{
    unsigned long long total;

    ENTER_DEVICE("nvmlDeviceGetDetailedEccErrors", device)
    if (counts == NULL || error > 1 || counter > 1)
        return leave(INVALID_ARGUMENT);
    result = total_ecc_errors(scope, error, counter, &total);
    if (result == OK)
        *counts = (struct ecc_counts){0, 0, total, 0};
    return leave(result);
}

static nvml_return remapped_rows(const struct scope *scope, unsigned int rows[4])
{
    const struct record *record;
    nvml_return result = look_up(scope, &record, 4, "nvmlDeviceGetRemappedRows");
    struct ailments ailments;

    if (result != OK)
        return result;
    ailments = faults_for_values(current, scope);
    for (unsigned int i = 0; i < 4; i++)
        rows[i] = (unsigned int)record->numbers[i];
    rows[1] += ailments.remap_pending || ailments.remap_failed;
    rows[2] |= ailments.remap_pending;
    rows[3] |= ailments.remap_failed;
    return OK;
}

API nvml_return nvmlDeviceGetRemappedRows(nvml_device device, unsigned int *correctable, unsigned int *uncorrectable,
                                          unsigned int *pending, unsigned int *failed);
API nvml_return nvmlDeviceGetRemappedRows(nvml_device device, unsigned int *correctable, unsigned int *uncorrectable,
                                          unsigned int *pending, unsigned int *failed)
{
    unsigned int rows[4];

    ENTER_DEVICE("nvmlDeviceGetRemappedRows", device)
    if (correctable == NULL || uncorrectable == NULL || pending == NULL || failed == NULL)
        return leave(INVALID_ARGUMENT);
    result = remapped_rows(scope, rows);
    if (result == OK) {
        *correctable = rows[0];
        *uncorrectable = rows[1];
        *pending = rows[2];
        *failed = rows[3];
    }
    return leave(result);
}

API nvml_return nvmlDeviceGetRowRemapperHistogram(nvml_device device, struct row_histogram *histogram);
API nvml_return nvmlDeviceGetRowRemapperHistogram(nvml_device device, struct row_histogram *histogram)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetRowRemapperHistogram", device)
    if (histogram == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 5, "nvmlDeviceGetRowRemapperHistogram");
    if (result == OK)
        *histogram = (struct row_histogram){(unsigned int)record->numbers[0], (unsigned int)record->numbers[1],
                                            (unsigned int)record->numbers[2], (unsigned int)record->numbers[3],
                                            (unsigned int)record->numbers[4]};
    return leave(result);
}

static nvml_return retired_pages_pending(const struct scope *scope, unsigned int *pending)
{
    const struct record *record;
    nvml_return result = look_up(scope, &record, 1, "nvmlDeviceGetRetiredPagesPendingStatus");

    if (result == OK)
        *pending = (unsigned int)record->numbers[0] | faults_for_values(current, scope).pages_pending;
    return result;
}

API nvml_return nvmlDeviceGetRetiredPagesPendingStatus(nvml_device device, unsigned int *pending);
API nvml_return nvmlDeviceGetRetiredPagesPendingStatus(nvml_device device, unsigned int *pending)
{
    ENTER_DEVICE("nvmlDeviceGetRetiredPagesPendingStatus", device)
    if (pending == NULL)
        return leave(INVALID_ARGUMENT);
    return leave(retired_pages_pending(scope, pending));
}

static nvml_return retired_pages(const char *function, nvml_device device, unsigned int cause, unsigned int *count,
                                 unsigned long long *pages, unsigned long long *times)
{
    const struct record *record;
    unsigned int room;

    ENTER_DEVICE(function, device)
    if (count == NULL || cause > 1)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 0, "nvmlDeviceGetRetiredPages:%u", cause);
    if (result != OK)
        return leave(result);
    room = pages == NULL ? 0 : *count;
    *count = record->count;
    if (record->count > room)
        return leave(INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < record->count; i++) {
        pages[i] = record->numbers[i];
        if (times != NULL)
            times[i] = 0;
    }
    return leave(OK);
}

API nvml_return nvmlDeviceGetRetiredPages(nvml_device device, unsigned int cause, unsigned int *count,
                                          unsigned long long *pages);
API nvml_return nvmlDeviceGetRetiredPages(nvml_device device, unsigned int cause, unsigned int *count,
                                          unsigned long long *pages)
{
    return retired_pages("nvmlDeviceGetRetiredPages", device, cause, count, pages, NULL);
}

API nvml_return nvmlDeviceGetRetiredPages_v2(nvml_device device, unsigned int cause, unsigned int *count,
                                             unsigned long long *pages, unsigned long long *times);
API nvml_return nvmlDeviceGetRetiredPages_v2(nvml_device device, unsigned int cause, unsigned int *count,
                                             unsigned long long *pages, unsigned long long *times)
{
    return retired_pages("nvmlDeviceGetRetiredPages_v2", device, cause, count, pages, times);
}

static nvml_return clock_reasons(const char *function, nvml_device device, unsigned long long *reasons)
{
    const struct record *record;
    struct ailments ailments;

    ENTER_DEVICE(function, device)
    if (reasons == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 1, "%s", function);
    if (result != OK)
        return leave(result);
    ailments = faults_for_values(current, scope);
    *reasons = record->numbers[0];
    if (ailments.power_slowdown || ailments.thermal_slowdown)
        *reasons = HW_SLOWDOWN | (ailments.power_slowdown ? HW_POWER_BRAKE : 0)
                   | (ailments.thermal_slowdown ? HW_THERMAL : 0);
    return leave(OK);
}

API nvml_return nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, unsigned long long *reasons);
API nvml_return nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, unsigned long long *reasons)
{
    return clock_reasons("nvmlDeviceGetCurrentClocksEventReasons", device, reasons);
}

API nvml_return nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons);
API nvml_return nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons)
{
    return clock_reasons("nvmlDeviceGetCurrentClocksThrottleReasons", device, reasons);
}

/* ---- lists --------------------------------------------------------------------------------------------------- */

static nvml_return clock_list(const struct record *record, unsigned int *count, unsigned int *clocks)
{
    unsigned int room = clocks == NULL ? 0 : *count;

    *count = record->count;
    if (record->count > room)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < record->count; i++)
        clocks[i] = (unsigned int)record->numbers[i];
    return OK;
}

API nvml_return nvmlDeviceGetSupportedMemoryClocks(nvml_device device, unsigned int *count, unsigned int *clocks);
API nvml_return nvmlDeviceGetSupportedMemoryClocks(nvml_device device, unsigned int *count, unsigned int *clocks)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetSupportedMemoryClocks", device)
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 0, "nvmlDeviceGetSupportedMemoryClocks");
    return leave(result == OK ? clock_list(record, count, clocks) : result);
}

API nvml_return nvmlDeviceGetSupportedGraphicsClocks(nvml_device device, unsigned int memory_clock,
                                                     unsigned int *count, unsigned int *clocks);
API nvml_return nvmlDeviceGetSupportedGraphicsClocks(nvml_device device, unsigned int memory_clock,
                                                     unsigned int *count, unsigned int *clocks)
{
    const struct record *record;

    ENTER_DEVICE("nvmlDeviceGetSupportedGraphicsClocks", device)
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 0, "nvmlDeviceGetSupportedMemoryClocks");
    if (result != OK)
        return leave(result);
    result = look_up(scope, &record, 0, "nvmlDeviceGetSupportedGraphicsClocks:%u", memory_clock);
    if (result == NOT_SUPPORTED)
        result = NOT_FOUND;
    return leave(result == OK ? clock_list(record, count, clocks) : result);
}

API nvml_return nvmlDeviceGetSupportedPerformanceStates(nvml_device device, unsigned int *states, unsigned int size);
API nvml_return nvmlDeviceGetSupportedPerformanceStates(nvml_device device, unsigned int *states, unsigned int size)
{
    const struct record *record;
    unsigned int room = size / sizeof *states;

    ENTER_DEVICE("nvmlDeviceGetSupportedPerformanceStates", device)
    if (states == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 0, "nvmlDeviceGetSupportedPerformanceStates");
    if (result != OK)
        return leave(result);
    if (room < record->count)
        return leave(INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < room; i++)
        states[i] = i < record->count ? (unsigned int)record->numbers[i] : 32;
    return leave(OK);
}

API nvml_return nvmlDeviceGetBridgeChipInfo(nvml_device device, void *hierarchy);
API nvml_return nvmlDeviceGetBridgeChipInfo(nvml_device device, void *hierarchy)
{
    ENTER_DEVICE("nvmlDeviceGetBridgeChipInfo", device)
    (void)scope;
    return leave(hierarchy == NULL ? INVALID_ARGUMENT : NOT_SUPPORTED);
}

/* ---- processes: pid, bytes, GPU instance, compute instance of each ------------------------------------------- */

enum { PROCESS_NUMBERS = 4 };

static nvml_return processes(const char *function, const char *key, nvml_device device, unsigned int *count,
                             void *infos, int version)
{
    const struct record *record;
    unsigned int room, found;

    ENTER_DEVICE(function, device)
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    result = look_up(scope, &record, 0, "%s", key);
    if (result != OK)
        return leave(result);
    room = infos == NULL ? 0 : *count;
    found = record->count / PROCESS_NUMBERS;
    *count = found;
    if (found > room)
        return leave(INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < found; i++) {
        const unsigned long long *numbers = &record->numbers[i * PROCESS_NUMBERS];
        if (version == 1)
            ((struct process_info_v1 *)infos)[i] = (struct process_info_v1){(unsigned int)numbers[0], numbers[1]};
        else
            ((struct process_info *)infos)[i] = (struct process_info){
                (unsigned int)numbers[0], numbers[1], (unsigned int)numbers[2], (unsigned int)numbers[3]};
    }
    return leave(OK);
}

#define PROCESSES(symbol, key, version)                                    \
    API nvml_return symbol(nvml_device device, unsigned int *count, void *infos);    \
    API nvml_return symbol(nvml_device device, unsigned int *count, void *infos)     \
    {                                                                      \
        return processes(#symbol, key, device, count, infos, version);     \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses", 1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "nvmlDeviceGetComputeRunningProcesses", 2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "nvmlDeviceGetComputeRunningProcesses", 3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses", 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "nvmlDeviceGetGraphicsRunningProcesses", 2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "nvmlDeviceGetGraphicsRunningProcesses", 3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, "nvmlDeviceGetMPSComputeRunningProcesses", 1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "nvmlDeviceGetMPSComputeRunningProcesses", 2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "nvmlDeviceGetMPSComputeRunningProcesses", 3)

API nvml_return nvmlDeviceGetRunningProcessDetailList(nvml_device device, struct process_detail_list *list);
API nvml_return nvmlDeviceGetRunningProcessDetailList(nvml_device device, struct process_detail_list *list)
{
    static const char *const keys[] = {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
                                       "nvmlDeviceGetMPSComputeRunningProcesses"};
    const struct record *record;
    unsigned int room, found;

    ENTER_DEVICE("nvmlDeviceGetRunningProcessDetailList", device)
    if (list == NULL || list->mode >= sizeof keys / sizeof *keys)
        return leave(INVALID_ARGUMENT);
    if (list->version != STRUCT_VERSION(struct process_detail_list, 1))
        return leave(VERSION_MISMATCH);
    result = look_up(scope, &record, 0, "%s", keys[list->mode]);
    if (result != OK)
        return leave(result);
    room = list->array == NULL ? 0 : list->entries;
    found = record->count / PROCESS_NUMBERS;
    list->entries = found;
    if (found > room)
        return leave(INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < found; i++) {
        const unsigned long long *numbers = &record->numbers[i * PROCESS_NUMBERS];
        list->array[i] = (struct process_detail){(unsigned int)numbers[0], numbers[1], (unsigned int)numbers[2],
                                                 (unsigned int)numbers[3], 0};
    }
    return leave(OK);
}

API nvml_return nvmlDeviceGetProcessUtilization(nvml_device device, struct process_sample *samples,
                                                unsigned int *count, unsigned long long since);
API nvml_return nvmlDeviceGetProcessUtilization(nvml_device device, struct process_sample *samples,
                                                unsigned int *count, unsigned long long since)
{
    (void)samples;
    (void)since;
    ENTER_DEVICE("nvmlDeviceGetProcessUtilization", device)
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    if (scope->mig >= 0)
        return leave(NOT_SUPPORTED);
    *count = 0;
    return leave(NOT_FOUND);
}

/* ---- field values -------------------------------------------------------------------------------------------- */

enum { TYPE_UNSIGNED = 1, TYPE_UNSIGNED_LONG_LONG = 3 };

static nvml_return field_of_record(const struct scope *scope, unsigned int id, unsigned long long *value)
{
    static const struct {
        unsigned int id, number;
        const char *key;
    } fields[] = {
        {1, 0, "nvmlDeviceGetEccMode"},
        {2, 1, "nvmlDeviceGetEccMode"},
        {83, 0, "nvmlDeviceGetTotalEnergyConsumption"},
        {94, 0, "nvmlDeviceGetPcieReplayCounter"},
        {166, 0, "nvmlDeviceGetNvLinkVersion:0"},
        {185, 0, "nvmlDeviceGetPowerUsage"},
        {186, 0, "nvmlDeviceGetPowerUsage"},
        {187, 0, "nvmlDeviceGetPowerManagementLimitConstraints"},
        {188, 1, "nvmlDeviceGetPowerManagementLimitConstraints"},
        {189, 0, "nvmlDeviceGetPowerManagementDefaultLimit"},
        {190, 0, "nvmlDeviceGetEnforcedPowerLimit"},
        {192, 0, "nvmlDeviceGetPowerManagementLimit"}};
    const struct record *record;
    nvml_return result;

    for (unsigned int i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].id != id)
            continue;
        result = look_up(scope, &record, fields[i].number + 1, "%s", fields[i].key);
        if (result == OK)
            *value = record->numbers[fields[i].number];
        return result;
    }
    result = look_up(scope, &record, 1, "field:%u", id);
    if (result == OK)
        *value = record->numbers[0];
    return result;
}

static nvml_return field_value(const struct scope *scope, unsigned int id, unsigned long long *value)
{
    unsigned int rows[4], pending;
    nvml_return result;

    if (id >= 3 && id <= 6)
        return total_ecc_errors(scope, id % 2 == 0, id >= 5, value);
    if (id >= 142 && id <= 145) {
        result = remapped_rows(scope, rows);
        if (result == OK)
            *value = rows[id - 142];
        return result;
    }
    if (id == 31) {
        result = retired_pages_pending(scope, &pending);
        if (result == OK)
            *value = pending;
        return result;
    }
    return field_of_record(scope, id, value);
}

API nvml_return nvmlDeviceGetFieldValues(nvml_device device, int count, struct field *fields);
API nvml_return nvmlDeviceGetFieldValues(nvml_device device, int count, struct field *fields)
{
    struct timespec now;

    ENTER_DEVICE("nvmlDeviceGetFieldValues", device)
    if (count <= 0 || fields == NULL)
        return leave(INVALID_ARGUMENT);
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        unsigned long long value = 0;
        fields[i].result = field_value(scope, fields[i].id, &value);
        fields[i].timestamp = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        fields[i].latency = 0;
        fields[i].type = value > 0xFFFFFFFF || (fields[i].id >= 3 && fields[i].id <= 28) || fields[i].id == 83
                             ? TYPE_UNSIGNED_LONG_LONG
                             : TYPE_UNSIGNED;
        fields[i].value.ull = value;
    }
    return leave(OK);
}

/* ---- all others ---------------------------------------------------------------------------------------------- */

nvml_return not_supported(const char *function);
nvml_return not_supported(const char *function)
{
    ENTER_SYSTEM(function)
    (void)scope;
    return leave(NOT_SUPPORTED);
}

API nvml_return nvmlUnitGetCount(unsigned int *count);
API nvml_return nvmlUnitGetCount(unsigned int *count)
{
    ENTER_SYSTEM("nvmlUnitGetCount")
    (void)scope;
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    *count = 0;
    return leave(OK);
}

API nvml_return nvmlGetExcludedDeviceCount(unsigned int *count);
API nvml_return nvmlGetExcludedDeviceCount(unsigned int *count)
{
    ENTER_SYSTEM("nvmlGetExcludedDeviceCount")
    (void)scope;
    if (count == NULL)
        return leave(INVALID_ARGUMENT);
    *count = 0;
    return leave(OK);
}
