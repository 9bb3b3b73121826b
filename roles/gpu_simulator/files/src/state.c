/* Copyright (c) 2026, cudahub.gpu contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE
#include "state.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_FAULTS = 256, MAX_NUMBERS = 256 };

static FILE *open_state_file(const char *name)
{
    const char *directory = secure_getenv("GPU_SIMULATOR_STATE");
    char path[4096];

    if (directory == NULL || *directory == '\0')
        directory = "/etc/gpu-simulator";
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return NULL;
    return fopen(path, "re");
}

static char *next_word(char **line)
{
    char *word = *line;
    char *end;

    while (*word == ' ')
        word++;
    end = word;
    while (*end != '\0' && *end != ' ')
        end++;
    if (*end != '\0')
        *end++ = '\0';
    *line = end;
    return word;
}

static int to_number(const char *word, unsigned long long *number)
{
    char *end;

    if (!isdigit((unsigned char)*word) && *word != '-')
        return 0;
    errno = 0;
    *number = *word == '-' ? (unsigned long long)strtoll(word, &end, 10) : strtoull(word, &end, 10);
    return *end == '\0' && errno == 0;
}

static int below(char **line, unsigned long long limit, unsigned int *number)
{
    unsigned long long value;

    if (!to_number(next_word(line), &value) || value >= limit)
        return 0;
    *number = (unsigned int)value;
    return 1;
}

static struct scope *find_scope(struct state *state, char **line)
{
    const char *name = next_word(line);
    unsigned int gpu, mig;

    if (strcmp(name, "sys") == 0)
        return &state->sys;
    if (strcmp(name, "gpu") == 0 && below(line, MAX_GPUS, &gpu)) {
        if (gpu >= state->gpu_count)
            state->gpu_count = gpu + 1;
        return &state->gpus[gpu].own;
    }
    if (strcmp(name, "mig") == 0 && below(line, state->gpu_count, &gpu) && below(line, MAX_MIGS, &mig)) {
        if (mig >= state->gpus[gpu].mig_count)
            state->gpus[gpu].mig_count = mig + 1;
        return &state->gpus[gpu].migs[mig];
    }
    return NULL;
}

static int read_numbers(char *line, struct record *record)
{
    unsigned long long numbers[MAX_NUMBERS];

    for (;;) {
        const char *word = next_word(&line);
        if (*word == '\0')
            break;
        if (record->count == MAX_NUMBERS || !to_number(word, &numbers[record->count]))
            return 0;
        record->count++;
    }
    record->numbers = malloc((record->count + 1) * sizeof *record->numbers);
    if (record->numbers == NULL)
        return 0;
    memcpy(record->numbers, numbers, record->count * sizeof *numbers);
    return 1;
}

static int add_record(struct state *state, char *line)
{
    struct scope *scope = find_scope(state, &line);
    struct record *record;
    const char *kind;

    if (scope == NULL)
        return 0;
    if (scope->count == scope->room) {
        unsigned int room = scope->room == 0 ? 64 : scope->room * 2;
        struct record *records = realloc(scope->records, room * sizeof *records);
        if (records == NULL)
            return 0;
        scope->records = records;
        scope->room = room;
    }
    record = &scope->records[scope->count++];
    memset(record, 0, sizeof *record);
    record->key = strdup(next_word(&line));
    if (record->key == NULL || *record->key == '\0')
        return 0;
    kind = next_word(&line);
    record->kind = *kind;
    if (strcmp(kind, "u") == 0)
        return read_numbers(line, record);
    if (strcmp(kind, "s") == 0)
        return (record->text = strdup(line)) != NULL;
    return strcmp(kind, "e") == 0 && below(&line, 1000, &record->code) && record->code != OK;
}

static int compare_records(const void *left, const void *right)
{
    return strcmp(((const struct record *)left)->key, ((const struct record *)right)->key);
}

static void finish_scope(struct scope *scope, int gpu, int mig)
{
    scope->gpu = gpu;
    scope->mig = mig;
    if (scope->count > 0)
        qsort(scope->records, scope->count, sizeof *scope->records, compare_records);
}

static int read_state(FILE *file, struct state *state)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    unsigned long long records = 0, promised;
    int good = 0, started = 0;

    while ((length = getline(&line, &size, file)) > 0) {
        if (line[length - 1] != '\n')
            break;
        line[length - 1] = '\0';
        if (!started) {
            if (strcmp(line, "gpu-simulator-state 1") != 0)
                break;
            started = 1;
        } else if (strncmp(line, "end ", 4) == 0) {
            good = to_number(line + 4, &promised) && promised == records;
            break;
        } else if (!add_record(state, line)) {
            break;
        } else {
            records++;
        }
    }
    free(line);
    return good;
}

nvml_return state_load(struct state **result)
{
    FILE *file = open_state_file("state");
    struct state *state;
    int good;

    if (file == NULL)
        return DRIVER_NOT_LOADED;
    state = calloc(1, sizeof *state);
    if (state == NULL) {
        fclose(file);
        return OUT_OF_MEMORY;
    }
    good = read_state(file, state);
    fclose(file);
    if (!good) {
        state_free(state);
        return UNKNOWN;
    }
    finish_scope(&state->sys, -1, -1);
    for (unsigned int gpu = 0; gpu < state->gpu_count; gpu++) {
        finish_scope(&state->gpus[gpu].own, (int)gpu, -1);
        for (unsigned int mig = 0; mig < state->gpus[gpu].mig_count; mig++)
            finish_scope(&state->gpus[gpu].migs[mig], (int)gpu, (int)mig);
    }
    *result = state;
    return OK;
}

static void free_scope(struct scope *scope)
{
    for (unsigned int i = 0; i < scope->count; i++) {
        free(scope->records[i].key);
        free(scope->records[i].text);
        free(scope->records[i].numbers);
    }
    free(scope->records);
}

static int may_use_all_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

    return syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective & 1u << CAP_SYS_ADMIN) != 0;
}

/* What opening a node gives. A node that may be opened fails with ENXIO, since no driver is behind it. */
static int refusal(const char *name, int mode)
{
    char path[128];
    int node;

    snprintf(path, sizeof path, "/dev/%s", name);
    node = open(path, mode | O_CLOEXEC);
    if (node < 0)
        return errno;
    close(node);
    return 0;
}

/* Whether this is a container that was given some of the nodes only. */
static int has_some_nodes(void)
{
    FILE *file = open_state_file("nodes");
    char name[64];
    int some = 0;

    while (file != NULL && !some && fgets(name, sizeof name, file) != NULL) {
        int error;
        name[strcspn(name, "\n")] = '\0';
        error = refusal(name, O_RDONLY);
        some = error != EPERM && error != ENOENT;
    }
    if (file != NULL)
        fclose(file);
    return some;
}

/* EPERM is the device cgroup's answer, ENOENT that of a container that was not given this node. */
static int denied(const char *name, int mode, int some_nodes)
{
    int error = refusal(name, mode);

    return error == EPERM || (error == ENOENT && some_nodes);
}

static struct scope *mig_of_capability(struct state *state, unsigned int number)
{
    for (unsigned int gpu = 0; gpu < state->gpu_count; gpu++)
        for (unsigned int mig = 0; mig < state->gpus[gpu].mig_count; mig++) {
            const struct record *record = scope_find(&state->gpus[gpu].migs[mig], "capabilities");
            for (unsigned int i = 0; record != NULL && i < record->count; i++)
                if (record->numbers[i] == number)
                    return &state->gpus[gpu].migs[mig];
        }
    return NULL;
}

static void drop_hidden_migs(struct gpu *gpu)
{
    unsigned int kept = 0;

    for (unsigned int mig = 0; mig < gpu->mig_count; mig++) {
        struct scope scope = gpu->migs[mig];
        memset(&gpu->migs[mig], 0, sizeof scope);
        if (scope.hidden) {
            free_scope(&scope);
        } else {
            scope.mig = (int)kept;
            gpu->migs[kept++] = scope;
        }
    }
    gpu->mig_count = kept;
}

void state_hide_denied(struct state *state)
{
    FILE *file = open_state_file("nodes");
    char name[64];
    int all_capabilities = may_use_all_capabilities();
    int some_nodes = has_some_nodes();

    while (file != NULL && fgets(name, sizeof name, file) != NULL) {
        struct scope *mig;
        unsigned int number;
        name[strcspn(name, "\n")] = '\0';
        if (sscanf(name, "nvidia%u", &number) == 1 && number < state->gpu_count) {
            state->gpus[number].own.hidden |= denied(name, O_RDWR, some_nodes);
        } else if (sscanf(name, "nvidia-caps/nvidia-cap%u", &number) == 1 && !all_capabilities) {
            mig = mig_of_capability(state, number);
            if (mig != NULL)
                mig->hidden |= denied(name, O_RDONLY, some_nodes);
        }
    }
    if (file != NULL)
        fclose(file);
    for (unsigned int gpu = 0; gpu < state->gpu_count; gpu++)
        drop_hidden_migs(&state->gpus[gpu]);
}

void state_free(struct state *state)
{
    if (state == NULL)
        return;
    free_scope(&state->sys);
    for (unsigned int gpu = 0; gpu < MAX_GPUS; gpu++) {
        free_scope(&state->gpus[gpu].own);
        for (unsigned int mig = 0; mig < MAX_MIGS; mig++)
            free_scope(&state->gpus[gpu].migs[mig]);
    }
    free(state);
}

const struct record *scope_find(const struct scope *scope, const char *key)
{
    struct record wanted = {.key = (char *)key};

    if (scope->count == 0)
        return NULL;
    return bsearch(&wanted, scope->records, scope->count, sizeof wanted, compare_records);
}

const char *scope_text(const struct scope *scope, const char *key)
{
    const struct record *record = scope_find(scope, key);

    return record != NULL && record->kind == 's' ? record->text : "";
}

struct fault {
    char gpu[96], function[96], kind[32];
    unsigned int code, count;
    unsigned long milliseconds;
};

static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fault faults[MAX_FAULTS];
static unsigned int fault_count;
static int faults_broken;
static struct stat faults_seen;

void faults_reset_lock(void)
{
    pthread_mutex_init(&faults_lock, NULL);
}

static int read_faults(FILE *file)
{
    char line[512];

    fault_count = 0;
    if (fgets(line, sizeof line, file) == NULL || strcmp(line, "gpu-simulator-faults 1\n") != 0)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        struct fault *fault = &faults[fault_count];
        if (fault_count == MAX_FAULTS
            || sscanf(line, "%95s %95s %31s %u %lu %u", fault->gpu, fault->function, fault->kind, &fault->code,
                      &fault->milliseconds, &fault->count) != 6)
            return 0;
        fault_count++;
    }
    return 1;
}

/* Reads the faults again when the file has been replaced. Call with faults_lock held. */
static void refresh_faults(void)
{
    FILE *file = open_state_file("faults");
    struct stat now;

    if (file == NULL || fstat(fileno(file), &now) != 0) {
        if (file != NULL)
            fclose(file);
        fault_count = 0;
        faults_broken = file != NULL;
        memset(&faults_seen, 0, sizeof faults_seen);
        return;
    }
    if (now.st_ino != faults_seen.st_ino || now.st_dev != faults_seen.st_dev || now.st_size != faults_seen.st_size
        || now.st_mtim.tv_sec != faults_seen.st_mtim.tv_sec || now.st_mtim.tv_nsec != faults_seen.st_mtim.tv_nsec) {
        faults_broken = !read_faults(file);
        if (faults_broken)
            fault_count = 0;
        faults_seen = now;
    }
    fclose(file);
}

static int fault_hits_gpu(const struct fault *fault, const struct state *state, const struct scope *scope)
{
    char slot[16];

    if (strcmp(fault->gpu, "all") == 0)
        return 1;
    if (state == NULL || scope == NULL || scope->gpu < 0)
        return 0;
    snprintf(slot, sizeof slot, "%d", scope->gpu);
    return strcmp(fault->gpu, slot) == 0 || strcmp(fault->gpu, scope_text(scope, "nvmlDeviceGetUUID")) == 0
           || strcmp(fault->gpu, scope_text(&state->gpus[scope->gpu].own, "nvmlDeviceGetUUID")) == 0;
}

/* "*" means every call that takes a GPU; a name also means its versions: nvmlX is nvmlX, nvmlX_v2, ... */
static int fault_hits_function(const struct fault *fault, const struct scope *scope, const char *function)
{
    size_t length = strlen(fault->function);

    if (strcmp(fault->function, "*") == 0)
        return scope != NULL && scope->gpu >= 0;
    if (strncmp(fault->function, function, length) != 0)
        return 0;
    function += length;
    return *function == '\0' || (strncmp(function, "_v", 2) == 0 && isdigit((unsigned char)function[2]));
}

struct verdict faults_for_call(const struct state *state, const struct scope *scope, const char *function)
{
    struct verdict verdict = {OK, 0};

    pthread_mutex_lock(&faults_lock);
    refresh_faults();
    if (faults_broken)
        verdict.code = UNKNOWN;
    for (unsigned int i = 0; i < fault_count && verdict.code == OK; i++) {
        const struct fault *fault = &faults[i];
        if (strcmp(fault->kind, "error") == 0 && fault_hits_function(fault, scope, function)
            && fault_hits_gpu(fault, state, scope)) {
            verdict.code = fault->code;
            verdict.milliseconds += fault->milliseconds;
        }
    }
    pthread_mutex_unlock(&faults_lock);
    return verdict;
}

struct ailments faults_for_values(const struct state *state, const struct scope *scope)
{
    struct ailments ailments = {0};

    pthread_mutex_lock(&faults_lock);
    refresh_faults();
    for (unsigned int i = 0; i < fault_count; i++) {
        const struct fault *fault = &faults[i];
        if (!fault_hits_gpu(fault, state, scope))
            continue;
        if (strcmp(fault->kind, "ecc") == 0)
            ailments.uncorrected += fault->count;
        else if (strcmp(fault->kind, "remap_pending") == 0)
            ailments.remap_pending = 1;
        else if (strcmp(fault->kind, "remap_failed") == 0)
            ailments.remap_failed = 1;
        else if (strcmp(fault->kind, "pages_pending") == 0)
            ailments.pages_pending = 1;
        else if (strcmp(fault->kind, "power_slowdown") == 0)
            ailments.power_slowdown = 1;
        else if (strcmp(fault->kind, "thermal_slowdown") == 0)
            ailments.thermal_slowdown = 1;
    }
    pthread_mutex_unlock(&faults_lock);
    return ailments;
}

int gpu_gone(const struct state *state, unsigned int slot)
{
    int gone = state->gpus[slot].own.hidden;

    pthread_mutex_lock(&faults_lock);
    refresh_faults();
    for (unsigned int i = 0; i < fault_count; i++)
        if (strcmp(faults[i].kind, "vanish") == 0 && fault_hits_gpu(&faults[i], state, &state->gpus[slot].own))
            gone = 1;
    pthread_mutex_unlock(&faults_lock);
    return gone;
}
