/* Training steps on a processor: what lies between the matrix products, forward and backward.
 *
 * layerdag/models/fused.py and layerdag/models/fast/fused_*.py drive it. Numbers are of single precision,
 * or bfloat16 where a product reads or wrote them; sums are of single precision. */
#ifndef LAYERDAG_TRAIN_H
#define LAYERDAG_TRAIN_H

/* A step need not be the same to the last bit on every processor, as products are not either. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast")
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../vector.h"
#include "../wire/wire.h"

enum { NO_SUCH_CODE = -2 }; /* what a kernel returns; fused.py */

/* Each step of one row waits for the step before, and not for those of other rows. */
enum { ROWS_AT_A_TIME = 4 };

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* A matrix of rows without gaps, in bfloat16 if `low`. */
typedef struct {
    void *at;
    int64_t low;
} matrix_t;

/* Copy numbers of a matrix to single precision. */
INLINE void load(matrix_t x, int64_t from, int64_t count, float *to) {
    if (!x.low) {
        memcpy(to, (const float *)x.at + from, (size_t)count * sizeof *to);
        return;
    }
    const uint16_t *low = (const uint16_t *)x.at + from;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)low[i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* Copy numbers to a matrix, rounded to the nearest; a tie goes to the even one, and NaN stays NaN. */
INLINE void store(matrix_t x, int64_t from, int64_t count, const float *numbers) {
    if (!x.low) {
        memcpy((float *)x.at + from, numbers, (size_t)count * sizeof *numbers);
        return;
    }
    uint16_t *low = (uint16_t *)x.at + from;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        low[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
    }
}

/* Set numbers of a matrix to zero; an empty one may have no address. */
INLINE void clear(matrix_t x, int64_t from, int64_t count) {
    if (!count) return;
    const size_t bytes = x.low ? 2 : 4;
    memset((char *)x.at + (size_t)from * bytes, 0, (size_t)count * bytes);
}

/* The largest of `count` numbers, NaN left out; those up to a multiple of eight are set to -INFINITY. */
INLINE float largest_of(float *x, int64_t count) {
    eight_t top = (eight_t){0} - INFINITY;
    for (int64_t i = count; i % 8; i++) x[i] = -INFINITY;
    for (int64_t i = 0; i < count; i += 8) {
        const eight_t some = *(const eight_t *)(x + i);
        const eight_int_t above = some > top;
        top = (eight_t)(((eight_int_t)some & above) | ((eight_int_t)top & ~above));
    }
    float found = -INFINITY;
    for (int i = 0; i < 8; i++) found = top[i] > found ? top[i] : found;
    return found;
}

INLINE void add_to(float *to, const float *row, int64_t width) {
    for (int64_t i = 0; i < width; i += 8) *(eight_t *)(to + i) += *(const eight_t *)(row + i);
}

INLINE void add_product(float *to, float factor, const float *row, int64_t width) {
    for (int64_t i = 0; i < width; i += 8) *(eight_t *)(to + i) += factor * *(const eight_t *)(row + i);
}

/* Of one parent in the mean of all; edges that pad a batch may lead to a node without any. */
INLINE float share(int64_t in_degree) { return 1 / (float)(in_degree > 1 ? in_degree : 1); }

#endif
