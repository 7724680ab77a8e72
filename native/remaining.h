/* How many nodes or layers of a graph are there and how many are to come (RemainingSizes in tokens.py). */
#ifndef LAYERDAG_REMAINING_H
#define LAYERDAG_REMAINING_H

#include <math.h>
#include <string.h>

#include "vector.h"

/* Centers of radial basis functions: their numbers, and the distance from one to the next. */
typedef struct {
    int32_t octaves, fractions;
    float octave, fraction;
} centers_t;

/* Columns of a number, and those that there is room for behind the last row. */
INLINE int64_t columns_of(centers_t c) { return c.octaves + c.fractions + 1; }
enum { ROOM_BEHIND = 8 };

/* Write the functions of the logarithm of what is left of `asked` and of the fraction that is `done`,
 * then 1; zeros where `asked` is unknown (NaN). The eight numbers behind them may change. */
INLINE void remaining_row(centers_t c, float done, float asked, float *out) {
    const int32_t last = c.octaves + c.fractions;
    if (isnan(asked)) {
        memset(out, 0, (size_t)(last + 1) * sizeof *out);
        return;
    }
    const float wanted = asked < 1 ? 1 : asked, left = log2f(1 + (wanted > done ? wanted - done : 0));
    const float there = done / wanted, most = (float)(c.fractions - 1) * c.fraction;
    const float part = there < most ? there : most;
    for (int32_t k = 0; k < c.octaves; k++) out[k] = (left - (float)k * c.octave) / c.octave;
    for (int32_t k = 0; k < c.fractions; k++)
        out[c.octaves + k] = (part - (float)k * c.fraction) / c.fraction;
    for (int32_t i = 0; i < last; i += 8) {
        eight_t *x = (eight_t *)(out + i);
        *x = exp_of(-not_above(*x * *x * 0.5f, 87));
    }
    out[last] = 1;
}

#endif
