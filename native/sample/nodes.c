/* Sizes of layers, kinds, in-degrees, edge types and further attributes, within their constraints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

/* Keep the codes for which `fits` is true, unless it is true for none. */
static void keep(float *logit, const uint8_t *fits, int64_t count) {
    int any = 0;
    for (int64_t k = 0; k < count; k++) any |= fits[k] && logit[k] > -INFINITY;
    if (!any) return;
    for (int64_t k = 0; k < count; k++)
        if (!fits[k]) logit[k] = -INFINITY;
}

/* Write the logits of a row or group; `logits` has those of all passes. */
static void merge(const rows_t *r, const float *logits, int64_t group, int64_t count, float *logit) {
    const float *from = logits + group * r->passes * count;
    for (int64_t k = 0; k < count; k++) logit[k] = merged(r, from + k, count);
}

static const uint8_t *possible_codes(const model_t *m, const rows_t *r, int64_t row) {
    return r->possible + r->sample[row] * m->codes;
}

/* Draw the size of a new layer of every row; 0 ends a graph, but not before `fewest` layers. */
EXPORT int64_t sample_sizes(
    const model_t *m, const rows_t *r, const float *logits, int64_t fewest, int64_t *size) {
    const int64_t count = m->size.codes;
    draw_t d;
    const int fine = reserve_draw(&d, count);
    for (int64_t row = 0; fine && row < r->rows; row++) {
        const int64_t *s = structure_of(r, row), candidate = row * r->options;
        merge(r, logits, row, count, d.logit);
        if (!s[POSITION] || s[LAYER] + (r->position > 1) < fewest) d.logit[0] = -INFINITY;
        cumulate(d.logit, count, d.reach);
        int64_t code = drawn_code(d.reach, count, drawn(r, candidate, SLOT_SIZE));
        size[row] = count_of(&m->size, code, drawn(r, candidate, SLOT_SIZE + 1));
    }
    release_draw(&d);
    return fine ? 0 : -1;
}

/* Draw the kind of every candidate, and write the states of the groups after it. */
EXPORT int64_t sample_kinds(
    const model_t *m, rows_t *r, const float *logits, const float *state, float *after) {
    const int64_t count = m->kinds;
    draw_t d;
    int64_t groups = -1;
    if (reserve_draw(&d, count)) {
        groups = 0;
        for (int64_t row = 0; row < r->rows; row++) {
            const int64_t begin = row * r->options, end = begin + r->options;
            for (int64_t p = begin, done = -1; p < end; p++) {
                const int64_t g = r->group[p], first = r->first[p];
                if (g <= done) continue;
                done = g;
                merge(r, logits, g, count, d.logit);
                for (int64_t k = 0; k < count; k++)
                    d.fits[k] = first ? m->min_parents[k] <= first : m->source[k];
                int any = 0;
                for (int64_t k = 0; k < count; k++) any |= d.fits[k];
                for (int64_t k = 0; any && k < count; k++)
                    if (!d.fits[k]) d.logit[k] = -INFINITY;
                keep(d.logit, possible_codes(m, r, row), count);
                cumulate(d.logit, count, d.reach);
                for (int64_t q = p; q < end; q++)
                    if (r->group[q] == g) r->kind_P[q] = drawn_code(d.reach, count, drawn(r, q, SLOT_KIND));
            }
            int64_t from = groups;
            groups = split_row(r, row, r->kind_P, groups);
            for (int64_t p = begin; p < end; p++) {
                const int64_t g = r->group[p];
                r->kind_group[p] = g;
                if (g < from) continue;
                from = g + 1;
                for (int64_t s = 0; s < r->passes; s++)
                    add_rows(state + (r->base[g] * r->passes + s) * m->width,
                        m->kind_table + r->kind_P[p] * m->width, m->width,
                        after + (g * r->passes + s) * m->width);
            }
        }
    }
    release_draw(&d);
    return groups;
}

/* The smallest and the largest in-degree of a node: (0, 0) in layer 0. */
static void degree_range(const model_t *m, int64_t kind, int64_t first, int64_t *low, int64_t *high) {
    *high = least(most(m->max_parents[kind], 1), first);
    *low = least(m->min_parents[kind], *high);
}

/* Rule out in-degree codes none of whose counts has a listed multiset of edge types. */
static void keep_listed_degrees(const model_t *m, int64_t kind, float *logit, uint8_t *fits) {
    const uint8_t *known = m->known_degrees + kind * (m->most_degree + 1);
    int all = 1;
    for (int64_t i = 0; i <= m->most_degree; i++) all &= known[i];
    if (all) return;
    for (int64_t k = 0; k < m->in_degree.codes; k++) {
        int64_t end = least(m->in_degree.lows[k + 1], m->most_degree + 1);
        fits[k] = 0;
        for (int64_t i = m->in_degree.lows[k]; i < end; i++) fits[k] |= known[i];
    }
    keep(logit, fits, m->in_degree.codes);
}

/* Draw the in-degree of every candidate. Returns the number of edges of all, or -1. */
EXPORT int64_t sample_in_degrees(const model_t *m, rows_t *r, const float *logits) {
    const int64_t count = m->in_degree.codes, candidates = r->rows * r->options;
    draw_t d;
    int64_t edges = -1;
    if (reserve_draw(&d, count)) {
        edges = 0;
        for (int64_t p = 0, done = -1; p < candidates; p++) {
            const int64_t g = r->group[p], kind = r->kind_P[p], end = (p / r->options + 1) * r->options;
            if (g <= done) continue;
            done = g;
            int64_t low, high;
            degree_range(m, kind, r->first[p], &low, &high);
            merge(r, logits, g, count, d.logit);
            for (int64_t k = 0; k < count; k++)
                if (m->in_degree.lows[k] > high || m->in_degree.lows[k + 1] <= low) d.logit[k] = -INFINITY;
            keep_listed_degrees(m, kind, d.logit, d.fits);
            cumulate(d.logit, count, d.reach);
            for (int64_t q = p; q < end; q++) {
                if (r->group[q] != g) continue;
                int64_t code = drawn_code(d.reach, count, drawn(r, q, SLOT_IN_DEGREE));
                int64_t degree = count_of(&m->in_degree, code, drawn(r, q, SLOT_IN_DEGREE + 1));
                r->degree[q] = least(most(degree, low), high);
            }
        }
        for (int64_t p = 0; p < candidates; p++) {
            const int64_t degree = r->degree[p];
            r->edge_start[p] = edges;
            edges += degree;
            r->type_state[p] = degree > m->most_degree
                ? 0
                : m->first_state[r->kind_P[p] * (m->most_degree + 1) + degree];
            if (!degree) r->group[p] = -1;
        }
    }
    release_draw(&d);
    return edges;
}

/* Write the states of the candidates that have parents after their first one; returns the groups. */
EXPORT int64_t sample_start_parents(
    const model_t *m, rows_t *r, const float *kind_state, float *sum, float *after) {
    int64_t groups = 0;
    for (int64_t row = 0; row < r->rows; row++) groups = split_row(r, row, r->degree, groups);
    return groups ? after_parents(m, r, 0, kind_state, sum, sum, after) : 0;
}

/* Draw the type of the edge number `rank` of every candidate that is in a group. Groups of which
 * candidates have further parents are kept: their states and sums move to the front.
 *
 * Returns the number of these groups, or -1 without memory. */
EXPORT int64_t sample_edge_types(
    const model_t *m, rows_t *r, int64_t rank, const float *logits, float *after, float *sum) {
    const int64_t count = m->types, slot = SLOT_FURTHER_PARENT + SLOTS_PER_PARENT * rank + 2;
    draw_t d;
    int64_t groups = -1;
    if (reserve_draw(&d, count)) {
        groups = 0;
        for (int64_t row = 0; row < r->rows; row++) {
            const int64_t begin = row * r->options, end = begin + r->options;
            int64_t old = -1, state = -1;
            for (int64_t p = begin; p < end; p++) {
                if (r->group[p] < 0) continue;
                /* Candidates of one group may have drawn other types before. */
                if (r->group[p] != old || r->type_state[p] != state) {
                    old = r->group[p], state = r->type_state[p];
                    const int64_t *next = m->next_state + state * count;
                    merge(r, logits, old, count, d.logit);
                    for (int64_t k = 0; k < count; k++)
                        if (next[k] < 0) d.logit[k] = -INFINITY;
                    cumulate(d.logit, count, d.reach);
                }
                int64_t type = drawn_code(d.reach, count, drawn(r, p, slot)), edge = r->edge_start[p] + rank;
                r->edge_parent[edge] = r->parent[p];
                r->edge_type[edge] = type;
                r->type_state[p] = most(m->next_state[state * count + type], 0);
            }
            for (int64_t p = begin; p < end; p++)
                if (r->group[p] >= 0 && r->degree[p] <= rank + 1) r->group[p] = -1;
            int64_t from = groups;
            groups = split_row(r, row, r->degree, groups);
            for (int64_t g = from; g < groups; g++) {
                if (r->base[g] == g) continue;
                const int64_t wide = r->passes * m->width;
                memcpy(after + g * wide, after + r->base[g] * wide, (size_t)wide * sizeof *after);
                if (m->projections > MAP_CHOSEN)
                    memcpy(sum + g * wide, sum + r->base[g] * wide, (size_t)wide * sizeof *sum);
            }
        }
    }
    release_draw(&d);
    return groups;
}

/* Draw attribute number `index` of the newest node of every row, and add its embedding to the state.
 *
 * Args: x of shape (rows, attributes), allowed of shape (rows, codes), table of the embeddings or NULL. */
EXPORT int64_t sample_attribute(const model_t *m, const rows_t *r, int64_t index, const float *logits,
    const float *table, int64_t *x, uint8_t *allowed, float *state) {
    const int64_t start = m->attribute_start[index], count = m->attribute_start[index + 1] - start;
    draw_t d;
    const int fine = reserve_draw(&d, count);
    for (int64_t row = 0; fine && row < r->rows; row++) {
        uint8_t *codes = allowed + row * m->codes;
        merge(r, logits, row, count, d.logit);
        for (int64_t k = 0; k < count; k++)
            if (!m->observed[start + k]) d.logit[k] = -INFINITY;
        keep(d.logit, codes + start, count);
        cumulate(d.logit, count, d.reach);
        int64_t code = drawn_code(d.reach, count, drawn(r, row * r->options, SLOT_ATTRIBUTE + index - 1));
        const uint8_t *given = m->pairs + (start + code) * m->codes;
        x[row * m->attributes + index] = code;
        for (int64_t f = 0; f < m->codes; f++) codes[f] &= given[f];
        for (int64_t s = 0; table && s < r->passes; s++)
            add_row(table + code * m->width, m->width, state + (row * r->passes + s) * m->width);
    }
    release_draw(&d);
    return fine ? 0 : -1;
}
