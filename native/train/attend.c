/* Attention over windows and pooled blocks, and messages from parents, but for their matrix products
 * (EncoderBlock in encoder.py): what they are given and what is made of their results. */
#include <stdlib.h>

#include "train.h"

/* Kept in step with _Windows in fused_attention.py. First blocks of graphs see themselves, later ones
 * the block before as well, and the means of all blocks before that. */
typedef struct {
    int64_t tokens, width, heads, block, blocks;
    int64_t first, slots;                     /* first blocks, tokens of each */
    int64_t later, far;                       /* later blocks, means that each has room for */
    const int64_t *first_token, *later_token; /* (first, slots), (later, 2 * block) */
    const int64_t *slot, *block_of;           /* of each token */
    const int64_t *pooled;                    /* (later, far) */
    const uint8_t *pooled_valid;
    int64_t edges;
    const int64_t *parent, *child, *in_degree;
    const float *slope; /* penalty of distance of each head */
    float scale;
} windows_t;

/* Queries, keys and values of blocks: (blocks * heads, tokens, width of a head). */
typedef struct {
    matrix_t query, key, value;
} heads_t;

INLINE char *number(matrix_t x, int64_t i) { return (char *)x.at + (size_t)i * (x.low ? 2 : 4); }

INLINE void copy(matrix_t from, int64_t i, matrix_t to, int64_t j, int64_t count) {
    memcpy(number(to, j), number(from, i), (size_t)count * (from.low ? 2 : 4));
}

/* Add `factor` times numbers of a matrix. */
INLINE void add_loaded(float *to, matrix_t x, int64_t from, int64_t count, float factor) {
    float row[64];
    for (int64_t i = 0; i < count; i += 64) {
        const int64_t some = count - i < 64 ? count - i : 64;
        load(x, from + i, some, row);
        for (int64_t k = 0; k < some; k++) to[i + k] += row[k] * factor;
    }
}

/* Where head 0 of a token's slot lies among those of first or of later blocks, and how far apart the
 * heads lie. */
INLINE int64_t place(const windows_t *w, int64_t slot, int64_t *apart) {
    const int64_t head = w->width / w->heads, firsts = w->first * w->slots;
    const int64_t tokens = slot < firsts ? w->slots : w->block;
    const int64_t rest = slot < firsts ? slot : slot - firsts;
    *apart = tokens * head;
    return (rest / tokens * w->heads * tokens + rest % tokens) * head;
}

INLINE int is_later(const windows_t *w, int64_t slot) { return slot >= w->first * w->slots; }

/* Copy queries, keys and values, (tokens, 3 * width), to where products find them.
 *
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_windows(
    const windows_t *w, const matrix_t *all, const heads_t *first, const heads_t *later) {
    const int64_t width = w->width, head = width / w->heads, seen = 2 * w->block + w->far;
    float *mean = calloc((size_t)(w->blocks * 2 * width + width), sizeof *mean);
    if (!mean) return -1;
    float *query = mean + w->blocks * 2 * width;
    if (w->far)
        for (int64_t t = 0; t < w->tokens; t++)
            add_loaded(mean + w->block_of[t] * 2 * width, *all, t * 3 * width + width, 2 * width,
                1 / (float)w->block);
    for (int64_t slot = 0; slot < w->first * w->slots + w->later * w->block; slot++) {
        const int64_t in_later = slot - w->first * w->slots, z = in_later / w->block;
        const int64_t token = in_later < 0
                                  ? w->first_token[slot]
                                  : w->later_token[z * 2 * w->block + w->block + in_later % w->block];
        int64_t apart, to = place(w, slot, &apart);
        load(*all, token * 3 * width, width, query);
        for (int64_t i = 0; i < width; i++) query[i] *= w->scale;
        for (int64_t h = 0; h < w->heads; h++) {
            const int64_t from = token * 3 * width + h * head, at = to + h * apart;
            store(in_later < 0 ? first->query : later->query, at, head, query + h * head);
            if (in_later >= 0) continue;
            copy(*all, from + width, first->key, at, head);
            copy(*all, from + 2 * width, first->value, at, head);
        }
    }
    for (int64_t z = 0; z < w->later; z++)
        for (int64_t h = 0; h < w->heads; h++) {
            const int64_t to = (z * w->heads + h) * seen * head;
            for (int64_t i = 0; i < 2 * w->block; i++) {
                const int64_t from = w->later_token[z * 2 * w->block + i] * 3 * width + h * head;
                copy(*all, from + width, later->key, to + i * head, head);
                copy(*all, from + 2 * width, later->value, to + i * head, head);
            }
            for (int64_t i = 0; i < w->far; i++) {
                const float *from = mean + w->pooled[z * w->far + i] * 2 * width + h * head;
                store(later->key, to + (2 * w->block + i) * head, head, from);
                store(later->value, to + (2 * w->block + i) * head, head, from + width);
            }
        }
    free(mean);
    return 0;
}

/* How many means of earlier blocks the queries of a block see. */
INLINE int64_t means_seen(const windows_t *w, int64_t z, int later) {
    int64_t count = 0;
    while (later && count < w->far && w->pooled_valid[z * w->far + count]) count++;
    return count;
}

/* Replace numbers by exp(number - top) and return the sum; up to a multiple of eight, -INFINITY is
 * behind them. */
INLINE float exp_row(float *x, int64_t count, float top) {
    eight_t total = {0};
    for (int64_t i = 0; i < count; i += 8) {
        eight_t *some = (eight_t *)(x + i);
        *some = exp_of(-not_above(top - *some, 87));
        total += *some;
    }
    return sum_of(total);
}

/* Turn scores of first or later blocks, (blocks * heads, queries, seen), into weights: softmax over
 * the tokens up to the query's own, less the penalty of distance, and the means that exist.
 *
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_attend(const windows_t *w, int64_t later, const matrix_t *scores) {
    const int64_t blocks = later ? w->later : w->first, queries = later ? w->block : w->slots;
    const int64_t shift = later ? w->block : 0, near = queries + shift, seen = near + (later ? w->far : 0);
    const int64_t room = seen + 8;
    float *row = malloc((size_t)(ROWS_AT_A_TIME * room) * sizeof *row);
    if (!row) return -1;
    for (int64_t zh = 0; zh < blocks * w->heads; zh++) {
        const int64_t means = means_seen(w, zh / w->heads, (int)later);
        const float slope = w->slope[zh % w->heads];
        for (int64_t q = 0; q < queries; q += ROWS_AT_A_TIME) {
            const int64_t some = least(queries - q, ROWS_AT_A_TIME);
            float top[ROWS_AT_A_TIME], sum[ROWS_AT_A_TIME];
            for (int64_t k = 0; k < some; k++) {
                const int64_t at = (zh * queries + q + k) * seen, own = q + k + shift;
                float *x = row + k * room;
                load(*scores, at, own + 1, x);
                for (int32_t i = 0; i <= (int32_t)own; i++) x[i] -= slope * (float)((int32_t)own - i);
                load(*scores, at + near, means, x + own + 1);
                top[k] = largest_of(x, own + 1 + means);
            }
            for (int64_t k = 0; k < some; k++)
                sum[k] = exp_row(row + k * room, q + k + shift + 1 + means, top[k]);
            for (int64_t k = 0; k < some; k++) {
                const int64_t at = (zh * queries + q + k) * seen, own = q + k + shift;
                float *x = row + k * room;
                const float all = 1 / sum[k];
                for (int64_t i = 0; i < own + 1 + means; i++) x[i] *= all;
                store(*scores, at, own + 1, x);
                clear(*scores, at + own + 1, near - own - 1);
                store(*scores, at + near, means, x + own + 1);
                clear(*scores, at + near + means, seen - near - means);
            }
        }
    }
    free(row);
    return 0;
}

/* Turn gradients of weights into those of scores: weight * (gradient - sum of weight * gradient).
 *
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_attend_backward(
    int64_t rows, int64_t seen, const matrix_t *weights, const matrix_t *gradient) {
    float *weight = malloc((size_t)(2 * seen) * sizeof *weight), *d = weight + seen;
    if (!weight) return -1;
    for (int64_t r = 0; r < rows; r++) {
        load(*weights, r * seen, seen, weight);
        load(*gradient, r * seen, seen, d);
        eight_t total = {0};
        int64_t i = 0;
        for (; i + 8 <= seen; i += 8) total += *(const eight_t *)(weight + i) * *(const eight_t *)(d + i);
        float sum = sum_of(total);
        for (; i < seen; i++) sum += weight[i] * d[i];
        for (i = 0; i < seen; i++) d[i] = weight[i] * (d[i] - sum);
        store(*gradient, r * seen, seen, d);
    }
    free(weight);
    return 0;
}

/* Write what each token reads, (tokens, 2 * width): attended values, then the mean of its parents'.
 *
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_reads(const windows_t *w, const matrix_t *all, const matrix_t *first,
    const matrix_t *later, const matrix_t *out) {
    const int64_t width = w->width, head = width / w->heads;
    float *mean = calloc((size_t)(w->tokens * width) + 1, sizeof *mean);
    if (!mean) return -1;
    for (int64_t e = 0; e < w->edges; e++)
        add_loaded(mean + w->child[e] * width, *all, w->parent[e] * 3 * width + 2 * width, width,
            share(w->in_degree[w->child[e]]));
    for (int64_t t = 0; t < w->tokens; t++) {
        int64_t apart, from = place(w, w->slot[t], &apart);
        for (int64_t h = 0; h < w->heads; h++)
            copy(is_later(w, w->slot[t]) ? *later : *first, from + h * apart, *out, t * 2 * width + h * head,
                head);
        store(*out, t * 2 * width + width, width, mean + t * width);
    }
    free(mean);
    return 0;
}

/* Copy the gradients of attended values to where products find them. */
FUSED EXPORT int64_t train_reads_backward(
    const windows_t *w, const matrix_t *gradient, const matrix_t *first, const matrix_t *later) {
    const int64_t width = w->width, head = width / w->heads;
    clear(*first, 0, w->first * w->slots * width);
    clear(*later, 0, w->later * w->block * width);
    for (int64_t t = 0; t < w->tokens; t++) {
        int64_t apart, to = place(w, w->slot[t], &apart);
        for (int64_t h = 0; h < w->heads; h++)
            copy(*gradient, t * 2 * width + h * head, is_later(w, w->slot[t]) ? *later : *first,
                to + h * apart, head);
    }
    return 0;
}

/* Add up the gradients of queries, keys and values, (tokens, 3 * width), from those of all reads.
 *
 * Returns 0, or -1 without memory. */
FUSED EXPORT int64_t train_windows_backward(const windows_t *w, const matrix_t *gradient,
    const heads_t *first, const heads_t *later, const matrix_t *out) {
    const int64_t width = w->width, head = width / w->heads, seen = 2 * w->block + w->far;
    float *sum = calloc((size_t)((w->tokens * 3 + w->blocks * 2) * width) + 1, sizeof *sum);
    if (!sum) return -1;
    float *mean = sum + w->tokens * 3 * width;
    for (int64_t t = 0; t < w->tokens; t++) {
        int64_t apart, from = place(w, w->slot[t], &apart);
        for (int64_t h = 0; h < w->heads; h++)
            add_loaded(sum + t * 3 * width + h * head, is_later(w, w->slot[t]) ? later->query : first->query,
                from + h * apart, head, w->scale);
        if (is_later(w, w->slot[t])) continue;
        for (int64_t h = 0; h < w->heads; h++) {
            add_loaded(sum + t * 3 * width + width + h * head, first->key, from + h * apart, head, 1);
            add_loaded(sum + t * 3 * width + 2 * width + h * head, first->value, from + h * apart, head, 1);
        }
    }
    /* Slots without a token repeat one; nothing attends to them, so that they add zeros. */
    for (int64_t z = 0; z < w->later; z++)
        for (int64_t h = 0; h < w->heads; h++) {
            const int64_t from = (z * w->heads + h) * seen * head;
            for (int64_t i = 0; i < 2 * w->block; i++) {
                float *to = sum + (w->later_token[z * 2 * w->block + i] * 3 + 1) * width + h * head;
                add_loaded(to, later->key, from + i * head, head, 1);
                add_loaded(to + width, later->value, from + i * head, head, 1);
            }
            const int64_t means = means_seen(w, z, 1);
            for (int64_t i = 0; i < means; i++) {
                float *to = mean + w->pooled[z * w->far + i] * 2 * width + h * head;
                const int64_t at = from + (2 * w->block + i) * head;
                add_loaded(to, later->key, at, head, 1 / (float)w->block);
                add_loaded(to + width, later->value, at, head, 1 / (float)w->block);
            }
        }
    if (w->far)
        for (int64_t t = 0; t < w->tokens; t++) {
            const float *from = mean + w->block_of[t] * 2 * width;
            for (int64_t i = 0; i < 2 * width; i++) sum[(t * 3 + 1) * width + i] += from[i];
        }
    for (int64_t e = 0; e < w->edges; e++)
        add_loaded(sum + (w->parent[e] * 3 + 2) * width, *gradient, w->child[e] * 2 * width + width, width,
            share(w->in_degree[w->child[e]]));
    store(*out, 0, w->tokens * 3 * width, sum);
    free(sum);
    return 0;
}
