/* Copyright (c) 2026, cudahub.gpu contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Stands in for libcublasLt.so on a host without a GPU: the CPU computes products of E4M3 matrices, the left one
 * transposed, into FP32. The stand-in for CuPy loads it where CUPY_STANDIN_CUBLASLT names it; elsewhere the real one of
 * CuPy's cuBLAS computes.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* What takes time on a GPU, in seconds, and what the stand-in for CuPy wants to go wrong. */
double cublaslt_standin_seconds = 0;
double cublaslt_standin_rate = 1300e12;
int cublaslt_standin_wrong = 0;
int cublaslt_standin_no_algorithm = 0;
int cublaslt_standin_old = 0;
int cublaslt_standin_hang = 0;

enum { SUCCESS = 0, INVALID = 7, NOT_SUPPORTED = 15, E4M3 = 28, FLOAT32 = 0, TRANSPOSE_LEFT = 3, FLOAT32_COMPUTE = 68 };

struct layout { int kind; uint64_t side; };
static struct layout layouts[64];
static int described, transposed;

static int make(void **made, void *what) { *made = what; return SUCCESS; }
static int destroy(void *made) { return made ? SUCCESS : INVALID; }

int cublasLtCreate(void **handle) { return make(handle, &described); }
int cublasLtDestroy(void *handle) { return destroy(handle); }

int cublasLtMatmulDescCreate(void **made, int compute, int scale) {
    transposed = 0;
    return compute == FLOAT32_COMPUTE && scale == FLOAT32 ? make(made, &transposed) : INVALID;
}
int cublasLtMatmulDescDestroy(void *made) { return destroy(made); }

int cublasLtMatmulDescSetAttribute(void *made, int attribute, const void *value, size_t size) {
    if (made != &transposed || attribute != TRANSPOSE_LEFT || size != sizeof(int32_t)) return INVALID;
    memcpy(&transposed, value, size);
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(void **made, int kind, uint64_t rows, uint64_t columns, int64_t stride) {
    if (rows != columns || (uint64_t)stride != rows) return INVALID;
    if (kind == E4M3 && cublaslt_standin_old) return INVALID;
    for (int i = 0; i < 64; i++)
        if (!layouts[i].side) {
            layouts[i] = (struct layout){kind, rows};
            return make(made, &layouts[i]);
        }
    return INVALID;
}
int cublasLtMatrixLayoutDestroy(void *made) { ((struct layout *)made)->side = 0; return destroy(made); }

int cublasLtMatmulPreferenceCreate(void **made) { return make(made, &described); }
int cublasLtMatmulPreferenceDestroy(void *made) { return destroy(made); }
int cublasLtMatmulPreferenceSetAttribute(void *made, int attribute, const void *value, size_t size) {
    return made && attribute == 1 && value && size == sizeof(size_t) ? SUCCESS : INVALID;
}

static int supported(const struct layout *left, const struct layout *right, const struct layout *result) {
    return transposed && left->kind == E4M3 && right->kind == E4M3 && result->kind == FLOAT32;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *left, void *right, void *input, void *result,
                                   void *preference, int wanted, void *found, int *count) {
    if (!handle || !description || !input || !preference || wanted != 1) return INVALID;
    memset(found, 0, 96);
    *count = !cublaslt_standin_no_algorithm && supported(left, right, result);
    return *count ? SUCCESS : NOT_SUPPORTED;
}

/* The value in eighths; the matrices have no others. */
static signed char eighths(unsigned char code) {
    static const unsigned char codes[] = {0x00, 0x20, 0x28, 0x2c, 0x30, 0x32, 0x34, 0x36, 0x38};
    for (signed char n = 0; n < 9; n++)
        if (codes[n] == (code & 0x7f)) return code & 0x80 ? -n : n;
    return 127;
}

static signed char rows[1 << 22], columns[1 << 22];

static void compute(const unsigned char *left, const unsigned char *right, float *result, uint64_t side) {
    for (uint64_t i = 0; i < side * side; i++) rows[i] = eighths(left[i]), columns[i] = eighths(right[i]);
    for (uint64_t column = 0; column < side; column++)
        for (uint64_t row = 0; row < side; row++) {
            int sum = 0;
            for (uint64_t k = 0; k < side; k++) sum += rows[k + row * side] * columns[k + column * side];
            result[row + column * side] = sum / 64.0f;
        }
}

int cublasLtMatmul(void *handle, void *description, const float *one, const void *left, void *left_layout,
                   const void *right, void *right_layout, const float *nought, const void *input, void *input_layout,
                   void *result, void *result_layout, const void *algorithm, void *workspace, size_t size,
                   void *stream) {
    uint64_t side = ((struct layout *)left_layout)->side;
    if (!handle || !description || !input_layout || !algorithm || !workspace || !size || stream) return INVALID;
    if (*one != 1 || *nought != 0 || input != result || side * side > sizeof rows) return INVALID;
    if (!supported(left_layout, right_layout, result_layout)) return NOT_SUPPORTED;
    while (cublaslt_standin_hang) pause();
    static const void *done;
    if (done != result) compute(left, right, result, side);
    done = result;
    if (cublaslt_standin_wrong) ((float *)result)[0] += 16;
    cublaslt_standin_seconds += 2.0 * side * side * side / cublaslt_standin_rate;
    return SUCCESS;
}
