/* What is done to single rows: normalization and GELU, cross entropy, and their gradients. */
#ifndef LAYERDAG_ROWS_H
#define LAYERDAG_ROWS_H

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
INLINE void forward(const activation_t *a, moments_t m, const float *x, float *out, float *slope) {
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
    const activation_t *a, moments_t m, const float *x, const float *slope, float *gradient, sums_t sums) {
    const int64_t width = a->width;
    if (a->gelu)
        for (int64_t i = 0; i < width; i += 8) *(eight_t *)(gradient + i) *= *(const eight_t *)(slope + i);
    if (!a->weight) return;
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

enum { NOT_A_TARGET = -100 }; /* targets.py */

/* Replace logits by the gradient of their cross entropy, which is returned; zeros where no code was
 * chosen. There is room up to a multiple of eight. Without the first, that one is excluded. */
INLINE float cross_entropy_row(float *row, int64_t codes, int64_t code, int without_first) {
    if (code == NOT_A_TARGET) {
        memset(row, 0, (size_t)codes * sizeof *row);
        return 0;
    }
    if (without_first) row[0] = -INFINITY;
    const float top = largest_of(row, codes), found = row[code];
    eight_t total = {0};
    for (int64_t k = 0; k < codes; k += 8) {
        eight_t *x = (eight_t *)(row + k);
        *x = exp_of(-not_above(top - *x, 87));
        total += *x;
    }
    const float all_codes = sum_of(total);
    for (int64_t k = 0; k < codes; k++) row[k] /= all_codes;
    row[code] -= 1;
    if (without_first) row[0] = 0;
    return logf(all_codes) + top - found;
}

INLINE int is_code(int64_t code, int64_t codes) {
    return code == NOT_A_TARGET || (code >= 0 && code < codes);
}

#endif
