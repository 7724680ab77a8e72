/* Readouts of few codes (Readout in decisions.py): too few for matrix products of a thousand rows to
 * pay, which read and write states that otherwise stay in the cache. */
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

/* Write the logits of a row. */
INLINE void map_row(const readout_t *r, int64_t width, const float *row, float *logits) {
    for (int64_t k = 0; k < r->codes; k++)
        logits[k] = r->bias[k] + product_of(r->map + k * width, row, width);
}

/* Write the gradient of a row from that of its logits. */
INLINE void unmap_row(const readout_t *r, int64_t width, const float *logits, float *row) {
    for (int64_t i = 0; i < width; i += 8) {
        eight_t sum = {0};
        for (int64_t k = 0; k < r->codes; k++) sum += logits[k] * *(const eight_t *)(r->map + k * width + i);
        *(eight_t *)(row + i) = sum;
    }
}

/* Add the gradients of the map of some rows with their logits' gradients, `room` numbers apart. */
INLINE void add_products(float *map, int64_t codes, int64_t width, int64_t some, const float *row,
    const float *logits, int64_t room) {
    for (int64_t k = 0; k < codes; k++)
        for (int64_t i = 0; i < width; i += 8) {
            eight_t sum = {0};
            for (int64_t n = 0; n < some; n++)
                sum += logits[n * room + k] * *(const eight_t *)(row + n * width + i);
            *(eight_t *)(map + k * width + i) += sum;
        }
}

/* Add up the cross entropies of a readout and all gradients. Returns 0, -1 without memory, or
 * NO_SUCH_CODE. */
FUSED EXPORT int64_t train_readout(
    const activation_t *a, const readout_t *readout, const gradients_t *of, double *loss) {
    const activation_t own = *a;
    const readout_t given = *readout;
    const gradients_t to = *of;
    const int64_t width = own.width, codes = given.codes, room = (codes + 7) / 8 * 8;
    float *hidden = malloc((size_t)(SOME * (3 * width + room)) * sizeof *hidden);
    if (!hidden) return -1;
    float *slope = hidden + SOME * width, *d = slope + SOME * width, *logits = d + SOME * width;
    int64_t status = 0;
    for (int64_t r = 0; r < given.rows && !status; r += SOME) {
        const int64_t some = least(given.rows - r, SOME);
        const float *x = given.state + r * width;
        moments_t moments[SOME];
        for (int64_t n = 0; n < some; n++) moments[n] = moments_of(&own, x + n * width);
        for (int64_t n = 0; n < some; n++)
            forward(&own, moments[n], x + n * width, hidden + n * width, slope + n * width);
        for (int64_t n = 0; n < some; n++) map_row(&given, width, hidden + n * width, logits + n * room);
        for (int64_t n = 0; n < some; n++) {
            const int64_t code = given.chosen[(r + n) * given.columns];
            if (!is_code(code, codes)) {
                status = NO_SUCH_CODE;
                continue;
            }
            float *row = logits + n * room;
            const int without_first = given.without_first && given.without_first[r + n];
            *loss += (double)cross_entropy_row(row, codes, code, without_first);
            for (int64_t k = 0; k < codes; k++) to.bias[k] += row[k];
        }
        add_products(to.map, codes, width, some, hidden, logits, room);
        for (int64_t n = 0; n < some; n++) unmap_row(&given, width, logits + n * room, d + n * width);
        for (int64_t n = 0; n < some; n++) {
            backward(
                &own, moments[n], x + n * width, slope + n * width, d + n * width, (sums_t){to.norm, NULL});
            add_to(to.state + (r + n) * width, d + n * width, width);
        }
    }
    free(hidden);
    return status;
}
