/* Attention of the newest token of every row over its window and pooled blocks, and messages from its
 * parents (WindowEncoder in encoder.py). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

/* Keys, then values, of each position of each row, and their means over complete blocks. */
typedef struct {
    int64_t heads, attends, messages;
    const float *slope;
    float *memory, *pooled;
} layer_t;

/* Width of a head: HEAD_WIDTH in layerdag/models/config.py. */
enum { HEAD = 32 };

/* Attention of one query over `count` tokens, each with a key and then a value in `at`.
 *
 * Tokens are read one after the other, all heads of a key and then of a value, so that memory is read in
 * order. Args: query times the scale, distance penalty `slope` of each head for the first `near` tokens,
 * room for heads * `stride` weights, where `stride` is `count` rounded up to eight. */
VECTORIZED static void attend(const float *query, const float *const *at, int64_t count, int64_t near,
    int64_t heads, const float *slope, float *weight, int64_t stride, float *out) {
    const int64_t width = heads * HEAD;
    for (int64_t i = 0; i < count; i++) {
        const float distance = i < near ? (float)(near - 1 - i) : 0;
        for (int64_t h = 0; h < heads; h++) {
            const eight_t *q = (const eight_t *)(query + h * HEAD), *k = (const eight_t *)(at[i] + h * HEAD);
            const eight_t p = (q[0] * k[0] + q[1] * k[1]) + (q[2] * k[2] + q[3] * k[3]);
            weight[h * stride + i] = sum_of(p) - slope[h] * distance;
        }
    }
    for (int64_t h = 0; h < heads; h++) {
        float *w = weight + h * stride, top = -INFINITY;
        for (int64_t i = 0; i < count; i++) top = w[i] > top ? w[i] : top;
        for (int64_t i = 0; i < count; i++) w[i] = w[i] - top < -87 ? -87 : w[i] - top;
        for (int64_t i = 0; i < count; i += 8) {
            eight_t *x = (eight_t *)(w + i);
            *x = exp_of(*x);
        }
        for (int64_t i = count; i < stride; i++) w[i] = 0;
    }
    for (int64_t h = 0; h < heads; h++) {
        const float *w = weight + h * stride;
        eight_t s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, total = {0};
        for (int64_t i = 0; i < count; i += 8) total += *(const eight_t *)(w + i);
        for (int64_t i = 0; i < count; i++) {
            const eight_t *v = (const eight_t *)(at[i] + width + h * HEAD);
            s0 += w[i] * v[0], s1 += w[i] * v[1], s2 += w[i] * v[2], s3 += w[i] * v[3];
        }
        const float all = sum_of(total);
        eight_t *to = (eight_t *)(out + h * HEAD);
        to[0] = s0 / all, to[1] = s1 / all, to[2] = s2 / all, to[3] = s3 / all;
    }
}

/* Append keys and values of the newest tokens, and write what these read in each pass: (rows, passes,
 * 2 * width), attended values and then the mean of the parents' values. Edges lie in the order of rows.
 *
 * Returns 0, or -1 without memory. */
EXPORT int64_t sample_attend(const model_t *m, const rows_t *r, const layer_t *l, const float *projected,
    int64_t edges, const int64_t *edge_row, const int64_t *edge_parent, float *out) {
    const int64_t width = m->width, t = r->position, block = r->block;
    const int64_t low = most(t / block - 1, 0) * block, pooled = low / block, near = t + 1 - low;
    const int64_t count = near + pooled;
    const float scale = 1 / sqrtf((float)HEAD);
    const int64_t stride = (count + 7) / 8 * 8;
    float *weight = calloc((size_t)(l->heads * stride), sizeof *weight);
    float *query = malloc((size_t)width * sizeof *query);
    const float **at = malloc((size_t)count * sizeof *at);
    int64_t first = 0, end = 0; /* edges of a row */
    for (int64_t i = 0; weight && query && at && i < r->rows * r->passes; i++) {
        const int64_t row = i / r->passes, pass = i % r->passes;
        const float *from = projected + i * 3 * width;
        float *to = out + i * 2 * width, *newest = l->memory + token_place(r, row, pass, t) * 2 * width;
        memcpy(newest, from + width, (size_t)(2 * width) * sizeof *newest);
        memset(to, 0, (size_t)(2 * width) * sizeof *to);
        if (l->attends) {
            for (int64_t k = 0; k < width; k++) query[k] = from[k] * scale;
            for (int64_t k = 0; k < near; k++)
                at[k] = l->memory + token_place(r, row, pass, low + k) * 2 * width;
            for (int64_t k = 0; k < pooled; k++)
                at[near + k] = l->pooled + block_place(r, row, pass, k) * 2 * width;
            attend(query, at, count, near, l->heads, l->slope, weight, stride, to);
        }
        if (!pass)
            for (first = end; end < edges && edge_row[end] == row;) end++;
        if (l->messages)
            for (int64_t e = first; e < end; e++)
                add_row(l->memory + (token_place(r, row, pass, edge_parent[e]) * 2 + 1) * width, width,
                    to + width);
        for (int64_t k = width; k < 2 * width; k++) to[k] /= (float)most(end - first, 1);
        if (t % block != block - 1) continue;
        float *mean = l->pooled + block_place(r, row, pass, t / block) * 2 * width;
        memset(mean, 0, (size_t)(2 * width) * sizeof *mean);
        for (int64_t k = 0; k < block; k++) add_row(newest - k * 2 * width, 2 * width, mean);
        for (int64_t k = 0; k < 2 * width; k++) mean[k] /= (float)block;
    }
    int64_t rc = weight && query && at ? 0 : -1;
    free(weight);
    free(query);
    free(at);
    return rc;
}
