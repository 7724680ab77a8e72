/* Normalization and GELU of states, as LayerNorm without a bias and GELU("none") of torch. */
#include <math.h>

#include "sample.h"

/* x * (1 + erf(x / sqrt(2))) / 2. */
VECTORIZED static void gelu(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += 8) {
        eight_t *at = (eight_t *)(x + i);
        *at = *at * 0.5f * (1.0f + erf_of(*at));
    }
}

VECTORIZED static void normalize(const float *x, const float *weight, int64_t width, float *out) {
    eight_t sum = {0}, square = {0};
    for (int64_t i = 0; i < width; i += 8) sum += *(const eight_t *)(x + i);
    const float mean = sum_of(sum) / (float)width;
    for (int64_t i = 0; i < width; i += 8) {
        const eight_t y = *(const eight_t *)(x + i) - mean;
        square += y * y;
    }
    const float scale = 1 / sqrtf(sum_of(square) / (float)width + 1e-5f);
    for (int64_t i = 0; i < width; i += 8)
        *(eight_t *)(out + i) = (*(const eight_t *)(x + i) - mean) * scale * *(const eight_t *)(weight + i);
}

/* Normalize the states of `count` rows. */
EXPORT int64_t sample_normalize(
    const model_t *m, const rows_t *r, int64_t count, const float *x, const float *weight, float *out) {
    (void)r;
    for (int64_t i = 0; i < count; i++) normalize(x + i * m->width, weight, m->width, out + i * m->width);
    return 0;
}

/* Normalize the states of `count` rows and apply GELU: what readouts of them are linear in. */
EXPORT int64_t sample_activate(
    const model_t *m, const rows_t *r, int64_t count, const float *x, const float *weight, float *out) {
    sample_normalize(m, r, count, x, weight, out);
    gelu(out, count * m->width);
    return 0;
}

/* Apply GELU in place to `count` numbers, a multiple of eight. */
EXPORT int64_t sample_gelu(const model_t *m, const rows_t *r, int64_t count, float *x) {
    (void)m, (void)r;
    gelu(x, count);
    return 0;
}
