/* Eight numbers of single precision at once: sums, exp and erf in the same order everywhere. */
#ifndef LAYERDAG_VECTOR_H
#define LAYERDAG_VECTOR_H

#include <stdint.h>

/* Eight numbers anywhere in memory. */
typedef float eight_t __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t eight_int_t __attribute__((vector_size(32)));

/* Compiled once per instruction set; all sum in the same order. FUSED may round a product and a sum
 * at once, where the compiler is told so. */
#if defined(__linux__) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORIZED __attribute__((target_clones("avx2", "default")))
#if __GNUC__ >= 12
#define FUSED __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FUSED VECTORIZED
#endif
#else
#define VECTORIZED
#define FUSED
#endif

/* These are never called, so that no call passes a vector. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

/* Part of each function that it is called in, with the instructions of that. */
#define INLINE static inline __attribute__((always_inline))

INLINE float sum_of(eight_t x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

/* The smaller of each number and `most`; NaN stays NaN. */
INLINE eight_t not_above(eight_t x, float most) {
    const eight_int_t above = x > most;
    return (eight_t)(((eight_int_t)((eight_t){0} + most) & above) | ((eight_int_t)x & ~above));
}

/* exp(x) of numbers from -87 to 0, to a unit in the last place (Cephes, expf). */
INLINE eight_t exp_of(eight_t x) {
    const eight_t n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounded */
    const eight_t r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    eight_t p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const eight_int_t power = (__builtin_convertvector(n, eight_int_t) + 127) << 23;
    return (p * r * r + r + 1.0f) * (eight_t)power;
}

/* erf(x / sqrt(2)): a quotient of polynomials on [-4, 4], where single precision reaches 1 (the
 * coefficients of Eigen's and XLA's erf). */
INLINE eight_t erf_of(eight_t x) {
    const eight_t y = not_above(-not_above(-(x * 0.70710678118654752f), 4), 4);
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
    return p / q;
}

#endif
