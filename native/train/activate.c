/* Normalization and GELU of rows, and their gradients: LayerNorm and GELU("none") of torch. */
#include <stdlib.h>

#include "rows.h"

/* Activate `rows` rows, with the slopes of GELU for the backward pass; rows up to `all` become zeros.
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_activate(const activation_t *a, int64_t rows, int64_t all, const matrix_t *x,
    const matrix_t *out, const matrix_t *slope) {
    const activation_t own = *a; /* which no store can change */
    const int64_t width = own.width;
    float *row = malloc((size_t)(2 * ROWS_AT_A_TIME * width) * sizeof *row),
          *s = row + ROWS_AT_A_TIME * width;
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r += ROWS_AT_A_TIME) {
        const int64_t some = least(rows - r, ROWS_AT_A_TIME), from = r * width, count = some * width;
        moments_t moments[ROWS_AT_A_TIME];
        load(*x, from, count, row);
        for (int64_t i = 0; i < some; i++) moments[i] = moments_of(&own, row + i * width);
        for (int64_t i = 0; i < some; i++)
            forward(&own, moments[i], row + i * width, row + i * width, s + i * width);
        store(*out, from, count, row);
        if (own.gelu) store(*slope, from, count, s);
    }
    clear(*out, rows * width, (all - rows) * width);
    free(row);
    return 0;
}

/* Write the gradients of `rows` rows from those of what they are activated to; add up those of the
 * normalization's parameters. Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_activate_backward(const activation_t *a, int64_t rows, const matrix_t *x,
    const matrix_t *slope, const matrix_t *gradient, const matrix_t *out, float *of_weight, float *of_bias) {
    const activation_t own = *a;
    const int64_t width = own.width;
    float *row = malloc((size_t)(3 * ROWS_AT_A_TIME * width) * sizeof *row),
          *d = row + ROWS_AT_A_TIME * width;
    float *s = row + 2 * ROWS_AT_A_TIME * width;
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r += ROWS_AT_A_TIME) {
        const int64_t some = least(rows - r, ROWS_AT_A_TIME), from = r * width, count = some * width;
        moments_t moments[ROWS_AT_A_TIME];
        load(*x, from, count, row);
        load(*gradient, from, count, d);
        if (own.gelu) load(*slope, from, count, s);
        for (int64_t i = 0; i < some; i++) moments[i] = moments_of(&own, row + i * width);
        for (int64_t i = 0; i < some; i++)
            backward(&own, moments[i], row + i * width, s + i * width, d + i * width,
                (sums_t){of_weight, of_bias});
        store(*out, from, count, d);
    }
    free(row);
    return 0;
}
