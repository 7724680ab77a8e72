/* Readouts of few codes (Readout in decisions.py), some rows after the others: matrix products of all
 * rows would write and read what otherwise stays in the cache. */
#include <stdlib.h>

#include "rows.h"

/* Kept in step with _Readout in fused_losses.py. Codes are a number of columns apart. */
typedef struct {
    int64_t rows, codes;
    const float *state, *map, *bias; /* (rows, width), (codes, width), (codes) */
    const int64_t *chosen;
    int64_t columns;
    const uint8_t *without_first; /* rows whose first code is excluded; null for none */
} readout_t;

/* Gradients, to which is added. */
typedef struct {
    float *state, *norm, *map, *bias;
} gradients_t;

/* Write products of ROWS_AT_A_TIME rows, `apart` numbers apart, with a matrix (count, width); the width is a
 * multiple of 16. Each addition waits for the one before: eight are made side by side. */
INLINE void multiply(
    const float *x, int64_t apart, const float *y, int64_t count, int64_t width, float *out) {
    for (int64_t i = 0; i < width; i += 16) {
        eight_t sum[ROWS_AT_A_TIME][2] = {{{0}}};
        for (int64_t k = 0; k < count; k++)
            for (int n = 0; n < ROWS_AT_A_TIME; n++)
                for (int j = 0; j < 2; j++)
                    sum[n][j] += x[n * apart + k] * *(const eight_t *)(y + k * width + i + 8 * j);
        for (int n = 0; n < ROWS_AT_A_TIME; n++)
            for (int j = 0; j < 2; j++) *(eight_t *)(out + n * width + i + 8 * j) = sum[n][j];
    }
}

/* Add the gradients of a map from ROWS_AT_A_TIME rows, `wide` numbers apart, and their logits' gradients,
 * `room` numbers apart. */
INLINE void add_products(float *map, int64_t codes, int64_t width, const float *row, int64_t wide,
    const float *logits, int64_t room) {
    for (int64_t k = 0; k < codes; k++)
        for (int64_t i = 0; i < width; i += 8) {
            eight_t sum = *(eight_t *)(map + k * width + i);
            for (int n = 0; n < ROWS_AT_A_TIME; n++)
                sum += logits[n * room + k] * *(const eight_t *)(row + n * wide + i);
            *(eight_t *)(map + k * width + i) = sum;
        }
}

/* Add up the cross entropies of a readout and all gradients. Returns 0, -1 without memory, or
 * NO_SUCH_CODE. */
FUSED EXPORT int64_t train_readout(
    const activation_t *a, const readout_t *readout, const gradients_t *of, double *loss) {
    const activation_t own = *a;
    const readout_t given = *readout;
    const gradients_t to = *of;
    const int64_t width = own.width, codes = given.codes, room = (codes + 15) / 16 * 16;
    const int64_t wide = (width + 15) / 16 * 16;
    float *hidden = calloc(
        (size_t)(ROWS_AT_A_TIME * (3 * wide + room) + room * width + codes * wide), sizeof *hidden);
    if (!hidden) return -1;
    float *slope = hidden + ROWS_AT_A_TIME * wide, *d = slope + ROWS_AT_A_TIME * wide,
          *logits = d + ROWS_AT_A_TIME * wide;
    float *across = logits + ROWS_AT_A_TIME * room, *map = across + room * width; /* the map, both ways */
    for (int64_t k = 0; k < codes; k++)
        for (int64_t i = 0; i < width; i++)
            across[i * room + k] = map[k * wide + i] = given.map[k * width + i];
    int64_t status = 0;
    for (int64_t r = 0; r < given.rows && !status; r += ROWS_AT_A_TIME) {
        const int64_t some = least(given.rows - r, ROWS_AT_A_TIME);
        const float *x = given.state + r * width;
        moments_t moments[ROWS_AT_A_TIME];
        for (int64_t n = 0; n < some; n++) moments[n] = moments_of(&own, x + n * width);
        for (int64_t n = 0; n < some; n++)
            forward(&own, moments[n], x + n * width, hidden + n * wide, slope + n * wide);
        multiply(hidden, wide, across, width, room, logits);
        memset(logits + some * room, 0, (size_t)((ROWS_AT_A_TIME - some) * room) * sizeof *logits);
        for (int64_t n = 0; n < some; n++) {
            const int64_t code = given.chosen[(r + n) * given.columns];
            if (!is_code(code, codes)) {
                status = NO_SUCH_CODE;
                continue;
            }
            float *row = logits + n * room;
            for (int64_t k = 0; k < codes; k++) row[k] += given.bias[k];
            const int without_first = given.without_first && given.without_first[r + n];
            *loss += (double)cross_entropy_row(row, codes, code, without_first);
            for (int64_t k = 0; k < codes; k++) to.bias[k] += row[k];
        }
        add_products(to.map, codes, width, hidden, wide, logits, room);
        multiply(logits, room, map, codes, wide, d);
        for (int64_t n = 0; n < some; n++) {
            backward(
                &own, moments[n], x + n * width, slope + n * wide, d + n * wide, (sums_t){to.norm, NULL});
            add_to(to.state + (r + n) * width, d + n * wide, width);
        }
    }
    free(hidden);
    return status;
}
