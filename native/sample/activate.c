/* Normalization and GELU of states, as LayerNorm without a bias and GELU("none") of torch. */
#include <math.h>

#include "sample.h"

/* x * (1 + erf(x / sqrt(2))) / 2; erf as a quotient of polynomials on [-4, 4], where single precision
 * reaches 1 (the coefficients of Eigen's and XLA's erf). */
VECTORIZED static void gelu(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += 8) {
        eight_t *at = (eight_t *)(x + i), y = *at * 0.70710678118654752f;
        for (int64_t k = 0; k < 8; k++) y[k] = y[k] > 4 ? 4 : y[k] < -4 ? -4 : y[k];
        const eight_t z = y * y;
        eight_t p = z * -2.72614225801306e-10f + 2.77068142495902e-08f;
        p = p * z + -2.10102402082508e-06f;
        p = p * z + -5.69250639462346e-05f;
        p = p * z + -7.34990630326855e-04f;
        p = p * z + -2.95459980854025e-03f;
        p = (p * z + -1.60960333262415e-02f) * y;
        eight_t q = z * -1.45660718464996e-05f + -2.13374055278905e-04f;
        q = q * z + -1.68282697438203e-03f;
        q = q * z + -7.37332916720468e-03f;
        q = q * z + -1.42647390514189e-02f;
        *at = *at * 0.5f * (1.0f + p / q);
    }
}

VECTORIZED static void normalize(const float *x, const float *weight, int64_t width, float *out) {
    eight_t sum = {0}, square = {0};
    for (int64_t i = 0; i < width; i += 8) sum += *(const eight_t *)(x + i);
    const float mean = (((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]))) /
        (float)width;
    for (int64_t i = 0; i < width; i += 8) {
        const eight_t y = *(const eight_t *)(x + i) - mean;
        square += y * y;
    }
    const float variance = (((square[0] + square[4]) + (square[2] + square[6])) +
                               ((square[1] + square[5]) + (square[3] + square[7]))) /
        (float)width;
    const float scale = 1 / sqrtf(variance + 1e-5f);
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
