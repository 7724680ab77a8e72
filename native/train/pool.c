/* Mean, maximum and log-sum-exp over the rows of each group (_pool in posterior.py), and their
 * gradients. */
#include "train.h"

INLINE eight_t eight_at(const float *x) { return *(const eight_t *)x; }

/* exp(a - b) where a is at most b; NaN stays NaN. */
INLINE eight_t exp_less(eight_t a, eight_t b) { return exp_of(-not_above(b - a, 87)); }

/* Write mean, maximum and log-sum-exp side by side, (groups, 3 * width). Group g is the rows from ptr[g]
 * to ptr[g + 1]; an empty one has 0 and two times -infinity. */
FUSED EXPORT int64_t train_pool(
    int64_t groups, int64_t width, const int64_t *ptr, const float *x, float *out) {
    for (int64_t g = 0; g < groups; g++, out += 3 * width) {
        const float *row = x + ptr[g] * width;
        const int64_t rows = ptr[g + 1] - ptr[g];
        for (int64_t i = 0; i < width; i += 8) {
            eight_t sum = {0}, top = (eight_t){0} - INFINITY, total = {0};
            for (int64_t r = 0; r < rows; r++) {
                const eight_t some = eight_at(row + r * width + i);
                const eight_int_t above = some > top;
                sum += some;
                top = (eight_t)(((eight_int_t)some & above) | ((eight_int_t)top & ~above));
            }
            for (int64_t r = 0; r < rows; r++) total += exp_less(eight_at(row + r * width + i), top);
            *(eight_t *)(out + i) = sum / (float)(rows ? rows : 1);
            *(eight_t *)(out + width + i) = top;
            for (int k = 0; k < 8; k++) out[2 * width + i + k] = top[k] + logf(total[k]);
        }
    }
    return 0;
}

/* Write the gradients of the rows from those of `pooled`; equal largest ones share theirs. */
FUSED EXPORT int64_t train_pool_backward(int64_t groups, int64_t width, const int64_t *ptr, const float *x,
    const float *pooled, const float *gradient, float *out) {
    for (int64_t g = 0; g < groups; g++, pooled += 3 * width, gradient += 3 * width) {
        const float *row = x + ptr[g] * width;
        const int64_t rows = ptr[g + 1] - ptr[g];
        float *to = out + ptr[g] * width;
        for (int64_t i = 0; i < width; i += 8) {
            const eight_t top = eight_at(pooled + width + i);
            eight_int_t ties = {0};
            eight_t total = {0};
            for (int64_t r = 0; r < rows; r++) {
                const eight_t some = eight_at(row + r * width + i), share_of = exp_less(some, top);
                ties -= some == top;
                total += share_of;
                *(eight_t *)(to + r * width + i) = share_of;
            }
            const eight_t mean = eight_at(gradient + i) / (float)rows;
            const eight_t of_top = eight_at(gradient + width + i) / __builtin_convertvector(ties, eight_t);
            const eight_t of_log_sum = eight_at(gradient + 2 * width + i) / total;
            for (int64_t r = 0; r < rows; r++) {
                const eight_t some = eight_at(row + r * width + i);
                const eight_t largest = (eight_t)((eight_int_t)of_top & (some == top));
                eight_t *d = (eight_t *)(to + r * width + i);
                *d = mean + largest + of_log_sum * *d;
            }
        }
    }
    return 0;
}
