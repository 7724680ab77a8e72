/* Rows of graphs: starting and finishing a node, the encoder's input, attention, copies of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../remaining.h"
#include "sample.h"

/* Start the next node of every row; where a layer is complete, a layer of size[row] nodes. */
EXPORT int64_t sample_start_nodes(const model_t *m, rows_t *r, const int64_t *size) {
    (void)m;
    for (int64_t row = 0; row < r->rows; row++) {
        int64_t *s = r->structure + row * FEATURES, at = place(r, row, r->position);
        const int opens = s[LEFT] == 0, inner = opens && s[POSITION] > 0;
        if (inner) r->before_start[row] = r->layer_start[row];
        if (opens) {
            r->layer_start[row] = r->position;
            r->sibling[row] = NEVER;
            s[SIZE] = size[row];
            s[OPEN_BEFORE] = s[OPEN_LAYER];
            s[OPEN_LAYER] = 0;
        }
        s[DEGREE] = s[OUT_DEGREE] = 0;
        s[INDEX] = opens ? 0 : s[INDEX] + 1;
        s[LEFT] = s[SIZE] - s[INDEX] - 1;
        s[POSITION] = r->position;
        s[LAYER] += inner;
        r->out_degree[at] = r->used[at] = r->room[at] = 0;
        r->last[at] = NEVER;
        r->layer[at] = s[LAYER];
    }
    return 0;
}

/* Set the number of children that the newest node of every row is to have and may have. */
EXPORT int64_t sample_set_out_degrees(
    const model_t *m, rows_t *r, const int64_t *out_degree, const int64_t *room) {
    (void)m;
    for (int64_t row = 0; row < r->rows; row++) {
        int64_t *s = r->structure + row * FEATURES, at = place(r, row, r->position);
        r->out_degree[at] = s[OUT_DEGREE] = out_degree[row];
        r->room[at] = room[row];
        s[OPEN] += out_degree[row];
        s[OPEN_LAYER] += out_degree[row];
    }
    return 0;
}

/* Write the sum of the embeddings of every row's newest token, the same for all passes; x holds the codes
 * of its attributes. */
EXPORT int64_t sample_embed(const model_t *m, const rows_t *r, const int64_t *x, float *out) {
    for (int64_t row = 0; row < r->rows; row++) {
        const int64_t *s = structure_of(r, row);
        float *sum = out + row * r->passes * m->width;
        memset(sum, 0, (size_t)m->width * sizeof *sum);
        for (int64_t f = 0; f < m->token_features; f++) {
            int64_t code = f < m->attributes ? x[row * m->attributes + f]
                                             : code_of(&m->token_count, most(s[f - m->attributes], 0));
            add_row(m->token_table + (m->token_offset[f] + code) * m->width, m->width, sum);
        }
        for (int64_t pass = 1; pass < r->passes; pass++)
            memcpy(sum + pass * m->width, sum, (size_t)m->width * sizeof *sum);
    }
    return 0;
}

/* Add the embeddings of the newest node's place in its layer (CountCodes.slots). */
EXPORT int64_t sample_add_place(const model_t *m, const rows_t *r, float *context) {
    for (int64_t row = 0; row < r->rows; row++) {
        const int64_t *s = structure_of(r, row);
        const int64_t count[3] = {s[SIZE], s[INDEX], s[SIZE] - s[INDEX]};
        for (int64_t i = 0; i < 3; i++) {
            int64_t code = i * m->size.codes + code_of(&m->size, count[i]);
            for (int64_t pass = 0; pass < r->passes; pass++)
                add_row(m->slot_table + code * m->width, m->width,
                    context + (row * r->passes + pass) * m->width);
        }
    }
    return 0;
}

/* Write the radial basis functions of RemainingSizes, (rows, passes, 2 * (octaves + fractions + 1)).
 * Returns 0, or -1 without memory. */
VECTORIZED EXPORT int64_t sample_remaining(const model_t *m, const rows_t *r, const float *asked,
    int64_t octaves, float octave, int64_t fractions, float fraction, float *out) {
    (void)m;
    const centers_t centers = {(int32_t)octaves, (int32_t)fractions, octave, fraction};
    const int64_t columns = columns_of(centers);
    float *row = malloc((size_t)(columns + ROOM_BEHIND) * sizeof *row);
    if (!row) return -1;
    for (int64_t i = 0; i < 2 * r->rows * r->passes; i++) {
        const float done = (float)structure_of(r, i / 2 / r->passes)[i % 2 ? LAYER : POSITION];
        remaining_row(centers, done, asked[i], row);
        memcpy(out + i * columns, row, (size_t)columns * sizeof *out);
    }
    free(row);
    return 0;
}

/* Append key and projections of the newest token; a complete block has a mean key. */
EXPORT int64_t sample_append(const model_t *m, rows_t *r, const float *projected) {
    const int64_t wide = m->projections * m->width, columns = m->key_width + wide;
    const int64_t last = r->block - 1, number = r->position / r->block;
    for (int64_t i = 0; i < r->rows * r->passes; i++) {
        const float *from = projected + i * columns;
        const int64_t row = i / r->passes, pass = i % r->passes;
        const int64_t at = token_place(r, row, pass, r->position);
        float *key = r->key + at * m->key_width;
        memcpy(key, from, (size_t)m->key_width * sizeof *key);
        memcpy(r->projection + at * wide, from + m->key_width, (size_t)wide * sizeof *from);
        if (r->position % r->block != last) continue;
        float *mean = r->block_key + block_place(r, row, pass, number) * m->key_width;
        memset(mean, 0, (size_t)m->key_width * sizeof *mean);
        for (int64_t k = 0; k < r->block; k++) add_row(key - k * m->key_width, m->key_width, mean);
        for (int64_t k = 0; k < m->key_width; k++) mean[k] /= (float)r->block;
    }
    return 0;
}

/* Copy rows of a buffer of pages: row target[i] becomes row source[i], `stride` bytes of
 * each page and `last` of the last one. No target is a later source. */
EXPORT void sample_copy_rows(char *data, int64_t rows, int64_t pages, int64_t stride, int64_t last,
    int64_t count, const int64_t *target, const int64_t *source) {
    for (int64_t page = 0; page < pages; page++, data += rows * stride)
        for (int64_t i = 0; i < count; i++)
            memcpy(data + target[i] * stride, data + source[i] * stride,
                (size_t)(page == pages - 1 ? last : stride));
}
