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

/* Mean of a row and the reciprocal of its standard deviation; 0 and 1 without a normalization. */
typedef struct {
    float mean, scale;
} moments_t;

INLINE moments_t moments_of(const activation_t *a, const float *x) {
    if (!a->weight) return (moments_t){0, 1};
    const float mean = sum_row(x, a->width) / (float)a->width;
    const float variance = sum_squares(x, a->width, mean) / (float)a->width;
    return (moments_t){mean, 1 / sqrtf(variance + 1e-5f)};
}

/* Probability that a standard normal number is below each, and its density (Abramowitz and Stegun,
 * 26.2.17; the error is below 1e-7). */
INLINE void normal_of(eight_t x, eight_t *below, eight_t *density) {
    const eight_int_t negative = x < 0;
    const eight_t size = (eight_t)((eight_int_t)x & 0x7fffffff), t = 1.0f / (1.0f + 0.2316419f * size);
    *density = exp_of(-not_above(x * x * 0.5f, 87)) * 0.39894228f;
    eight_t p = 1.330274429f * t - 1.821255978f;
    p = p * t + 1.781477937f;
    p = p * t - 0.356563782f;
    p = p * t + 0.319381530f;
    const eight_t tail = p * t * *density, rest = 1.0f - tail;
    *below = (eight_t)(((eight_int_t)tail & negative) | ((eight_int_t)rest & ~negative));
}

/* Write what a row is activated to, and the slopes of GELU. */
INLINE void forward(const activation_t *a, const float *x, float *out, float *slope) {
    const moments_t m = moments_of(a, x);
    for (int64_t i = 0; i < a->width; i += 8) {
        eight_t y = (*(const eight_t *)(x + i) - m.mean) * m.scale;
        if (a->weight) y *= *(const eight_t *)(a->weight + i);
        if (a->bias) y += *(const eight_t *)(a->bias + i);
        if (a->gelu) {
            eight_t below, density;
            normal_of(y, &below, &density);
            *(eight_t *)(slope + i) = below + y * density;
            y *= below;
        }
        *(eight_t *)(out + i) = y;
    }
}

/* Turn the gradient of a row's activation into that of the row. */
INLINE void backward(
    const activation_t *a, const float *x, const float *slope, float *gradient, sums_t sums) {
    const int64_t width = a->width;
    if (a->gelu)
        for (int64_t i = 0; i < width; i += 8) *(eight_t *)(gradient + i) *= *(const eight_t *)(slope + i);
    if (!a->weight) return;
    const moments_t m = moments_of(a, x);
    eight_t sum = {0}, product = {0};
    for (int64_t i = 0; i < width; i += 8) {
        const eight_t hat = (*(const eight_t *)(x + i) - m.mean) * m.scale;
        eight_t *d = (eight_t *)(gradient + i);
        *(eight_t *)(sums.weight + i) += *d * hat;
        if (a->bias) *(eight_t *)(sums.bias + i) += *d;
        *d *= *(const eight_t *)(a->weight + i);
        sum += *d;
        product += *d * hat;
    }
    const float mean = sum_of(sum) / (float)width, along = sum_of(product) / (float)width;
    for (int64_t i = 0; i < width; i += 8) {
        const eight_t hat = (*(const eight_t *)(x + i) - m.mean) * m.scale;
        eight_t *d = (eight_t *)(gradient + i);
        *d = (*d - mean - hat * along) * m.scale;
    }
}

/* Activate `rows` rows, with the slopes of GELU for the backward pass; rows up to `all` become zeros.
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_activate(const activation_t *a, int64_t rows, int64_t all, const matrix_t *x,
    const matrix_t *out, const matrix_t *slope) {
    const activation_t own = *a; /* which no store can change */
    const int64_t width = own.width;
    float *row = malloc((size_t)(2 * width) * sizeof *row);
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        load(*x, r * width, width, row);
        forward(&own, row, row, row + width);
        store(*out, r * width, width, row);
        if (own.gelu) store(*slope, r * width, width, row + width);
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
    float *row = malloc((size_t)(3 * width) * sizeof *row), *d = row + width, *s = row + 2 * width;
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        load(*x, r * width, width, row);
        load(*gradient, r * width, width, d);
        if (own.gelu) load(*slope, r * width, width, s);
        backward(&own, row, s, d, (sums_t){of_weight, of_bias});
        store(*out, r * width, width, d);
    }
    free(row);
    return 0;
}
