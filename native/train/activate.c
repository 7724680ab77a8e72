/* Normalization and GELU of rows, and their gradients: LayerNorm and GELU("none") of torch. */
#include <math.h>
#include <stdlib.h>

#include "train.h"

/* Kept in step with _Activation in fused.py. */
typedef struct {
    int64_t width; /* a multiple of eight */
    int64_t gelu;
    const float *weight, *bias; /* of the normalization; null without */
} activation_t;

/* Sums over the rows, to which a backward pass adds. */
typedef struct {
    float *weight, *bias;
} sums_t;

/* Sum of a row, or of the squares of its distances from `mean`. Four sums side by side: each addition
 * waits for the one before. */
INLINE float sum_row(const float *x, int64_t width) {
    eight_t a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 32 <= width; i += 32) {
        const eight_t *at = (const eight_t *)(x + i);
        a += at[0], b += at[1], c += at[2], d += at[3];
    }
    for (; i < width; i += 8) a += *(const eight_t *)(x + i);
    return sum_of((a + b) + (c + d));
}

INLINE float sum_squares(const float *x, int64_t width, float mean) {
    eight_t a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 32 <= width; i += 32) {
        const eight_t *at = (const eight_t *)(x + i);
        const eight_t p = at[0] - mean, q = at[1] - mean, r = at[2] - mean, s = at[3] - mean;
        a += p * p, b += q * q, c += r * r, d += s * s;
    }
    for (; i < width; i += 8) {
        const eight_t p = *(const eight_t *)(x + i) - mean;
        a += p * p;
    }
    return sum_of((a + b) + (c + d));
}

/* Normalize a row in place; returns the reciprocal of its standard deviation. */
INLINE float normalize(float *x, int64_t width) {
    const float mean = sum_row(x, width) / (float)width;
    const float scale = 1 / sqrtf(sum_squares(x, width, mean) / (float)width + 1e-5f);
    for (int64_t i = 0; i < width; i += 8) {
        eight_t *at = (eight_t *)(x + i);
        *at = (*at - mean) * scale;
    }
    return scale;
}

/* Turn a row into what it is activated to, and write the slopes of GELU. */
INLINE void forward(const activation_t *a, float *x, float *slope) {
    const int64_t width = a->width;
    if (a->weight) {
        normalize(x, width);
        for (int64_t i = 0; i < width; i += 8) *(eight_t *)(x + i) *= *(const eight_t *)(a->weight + i);
    }
    if (a->bias)
        for (int64_t i = 0; i < width; i += 8) *(eight_t *)(x + i) += *(const eight_t *)(a->bias + i);
    if (!a->gelu) return;
    for (int64_t i = 0; i < width; i += 8) {
        const eight_t y = *(const eight_t *)(x + i), share = 0.5f * (1.0f + erf_of(y));
        const eight_t density = exp_of(-not_above(y * y * 0.5f, 87)) * 0.39894228040143268f;
        *(eight_t *)(slope + i) = share + y * density;
        *(eight_t *)(x + i) = y * share;
    }
}

/* Turn the gradient of a row's activation into that of the row, which is normalized in place. */
INLINE void backward(const activation_t *a, float *x, const float *slope, float *gradient, sums_t sums) {
    const int64_t width = a->width;
    if (a->gelu)
        for (int64_t i = 0; i < width; i += 8) *(eight_t *)(gradient + i) *= *(const eight_t *)(slope + i);
    if (!a->weight) return;
    const float scale = normalize(x, width);
    eight_t sum = {0}, product = {0};
    for (int64_t i = 0; i < width; i += 8) {
        const eight_t hat = *(const eight_t *)(x + i);
        eight_t *d = (eight_t *)(gradient + i);
        *(eight_t *)(sums.weight + i) += *d * hat;
        if (a->bias) *(eight_t *)(sums.bias + i) += *d;
        *d *= *(const eight_t *)(a->weight + i);
        sum += *d;
        product += *d * hat;
    }
    const float mean = sum_of(sum) / (float)width, along = sum_of(product) / (float)width;
    for (int64_t i = 0; i < width; i += 8) {
        eight_t *d = (eight_t *)(gradient + i);
        *d = (*d - mean - *(const eight_t *)(x + i) * along) * scale;
    }
}

/* Activate `rows` rows, with the slopes of GELU for the backward pass; rows up to `all` become zeros.
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_activate(const activation_t *a, int64_t rows, int64_t all,
    const matrix_t *x, const matrix_t *out, const matrix_t *slope) {
    const int64_t width = a->width;
    float *row = malloc((size_t)(2 * width) * sizeof *row);
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        load(*x, r * width, width, row);
        forward(a, row, row + width);
        store(*out, r * width, width, row);
        if (a->gelu) store(*slope, r * width, width, row + width);
    }
    clear(*out, rows * width, (all - rows) * width);
    free(row);
    return 0;
}

/* Write the gradients of `rows` rows from those of what they are activated to; add up those of the
 * normalization's parameters. Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_activate_backward(const activation_t *a, int64_t rows, const matrix_t *x,
    const matrix_t *slope, const matrix_t *gradient, const matrix_t *out, float *of_weight,
    float *of_bias) {
    const int64_t width = a->width;
    float *row = malloc((size_t)(3 * width) * sizeof *row), *d = row + width, *s = row + 2 * width;
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        load(*x, r * width, width, row);
        load(*gradient, r * width, width, d);
        if (a->gelu) load(*slope, r * width, width, s);
        backward(a, row, s, d, (sums_t){of_weight, of_bias});
        store(*out, r * width, width, d);
    }
    free(row);
    return 0;
}

/* Kept in step with _Chain in fused_losses.py: readouts of one state after the other, each of which but the
 * last may add an embedding of what it read out. */
typedef struct {
    int64_t width, readouts, embedded;
    const float *const *weight; /* of each readout's normalization */
    const float *const *table;  /* of each embedding */
    const int64_t *code;        /* (rows, columns): what was read out */
    int64_t columns;
    const int64_t *codes; /* of each embedding */
} chain_t;

/* Whether all codes that are embedded exist. */
static int codes_exist(const chain_t *c, int64_t rows) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t a = 0; a < c->embedded; a++) {
            const int64_t code = c->code[r * c->columns + a];
            if (code < 0 || code >= c->codes[a]) return 0;
        }
    return 1;
}

INLINE void add_to(float *to, const float *row, int64_t width) {
    for (int64_t i = 0; i < width; i += 8) *(eight_t *)(to + i) += *(const eight_t *)(row + i);
}

/* Write the state that a readout is given next. */
INLINE void next_state(const chain_t *c, int64_t row, int64_t readout, float *state) {
    if (readout >= c->embedded) return;
    add_to(state, c->table[readout] + c->code[row * c->columns + readout] * c->width, c->width);
}

/* Activate the states of all readouts: (readouts, all, width) from the first states, (rows, width).
 * Returns 0, -1 without memory, or NO_SUCH_CODE. */
FUSED EXPORT int64_t train_chain(const chain_t *c, int64_t rows, int64_t all, const float *first,
    const matrix_t *out, const matrix_t *slope) {
    const int64_t width = c->width;
    if (!codes_exist(c, rows)) return NO_SUCH_CODE;
    float *state = malloc((size_t)(3 * width) * sizeof *state), *row = state + width;
    if (!state) return -1;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(state, first + r * width, (size_t)width * sizeof *state);
        for (int64_t a = 0; a < c->readouts; a++) {
            const activation_t activation = {width, 1, c->weight[a], 0};
            memcpy(row, state, (size_t)width * sizeof *row);
            forward(&activation, row, row + width);
            store(*out, (a * all + r) * width, width, row);
            store(*slope, (a * all + r) * width, width, row + width);
            next_state(c, r, a, state);
        }
    }
    for (int64_t a = 0; a < c->readouts; a++) clear(*out, (a * all + rows) * width, (all - rows) * width);
    free(state);
    return 0;
}

/* Write the gradients of the first states from those of what they are activated to; add up those of
 * normalizations and embeddings. Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_chain_backward(const chain_t *c, int64_t rows, int64_t all,
    const float *first, const matrix_t *slope, const matrix_t *gradient, float *out,
    float *const *of_weight, float *const *of_table) {
    const int64_t width = c->width;
    float *states = malloc((size_t)((c->readouts + 3) * width) * sizeof *states);
    float *d = states + (c->readouts + 1) * width, *s = d + width;
    if (!states) return -1;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(states, first + r * width, (size_t)width * sizeof *states);
        for (int64_t a = 0; a < c->readouts; a++) {
            memcpy(states + (a + 1) * width, states + a * width, (size_t)width * sizeof *states);
            next_state(c, r, a, states + (a + 1) * width);
        }
        float *total = out + r * width;
        memset(total, 0, (size_t)width * sizeof *total);
        for (int64_t a = c->readouts - 1; a >= 0; a--) {
            const activation_t activation = {width, 1, c->weight[a], 0};
            if (a < c->embedded)
                add_to(of_table[a] + c->code[r * c->columns + a] * width, total, width);
            load(*gradient, (a * all + r) * width, width, d);
            load(*slope, (a * all + r) * width, width, s);
            backward(&activation, states + a * width, s, d, (sums_t){of_weight[a], 0});
            add_to(total, d, width);
        }
    }
    free(states);
    return 0;
}
