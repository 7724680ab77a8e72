/* The choice among candidates, by the neighbors that training graphs have, and what it changes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

static const uint64_t OWN = 0x9E3779B97F4A7C15u; /* OWN_COLOR */

/* Log weight of a candidate, nats (SamplingRounds in sampling_rounds.py). */
static double weight_of(const model_t *m, const rows_t *r, int64_t p) {
    const int64_t row = p / r->options, kind = r->kind_P[p];
    int64_t state = m->of_parents.start[kind];
    double weight = m->offset[kind];
    for (int64_t e = r->edge_start[p]; e < r->edge_start[p] + r->degree[p]; e++) {
        int64_t parent = place(r, row, r->edge_parent[e]), before = r->children[parent];
        state = next_kinds(&m->of_parents, state, r->kind[parent]);
        if (before != UNSEEN && next_kinds(&m->of_children, before, kind) == UNSEEN)
            weight -= r->per_violation;
    }
    return m->of_parents.final[state] ? weight : weight - r->per_violation;
}

/* Hashes of a candidate's ancestry at radius 0, 1 and 2 (SamplingRounds). */
static void colors_of(const rows_t *r, int64_t p, int64_t color[3]) {
    const int64_t row = p / r->options, plane = r->pages * r->memory_rows * r->block;
    uint64_t word = scrambled((uint64_t)r->kind_P[p] + 1);
    color[0] = (int64_t)word;
    for (int64_t radius = 0; radius < 2; radius++) {
        word *= OWN;
        for (int64_t e = r->edge_start[p]; e < r->edge_start[p] + r->degree[p]; e++)
            word += scrambled((uint64_t)r->color[radius * plane + place(r, row, r->edge_parent[e])]);
        word = scrambled(word);
        color[radius + 1] = (int64_t)word;
    }
}

static int occurred(const rows_t *r, int64_t row, int64_t color) {
    const int64_t *color_2 = r->color + 2 * r->pages * r->memory_rows * r->block;
    int found = 0;
    for (int64_t low = 0; low < r->position && !found; low += r->block) {
        const int64_t *known = color_2 + place(r, row, low), end = least(r->block, r->position - low);
        for (int64_t t = !low; t < end; t++) found |= known[t] == color;
    }
    return found;
}

/* Choose one candidate of a row, and add what all of them weigh to the row's weight. */
static int64_t choice(const model_t *m, rows_t *r, int64_t row, float *logit, double *reach) {
    const int64_t begin = row * r->options;
    double weight[MOST_OPTIONS], top = -INFINITY, total = 0;
    for (int64_t i = 0; i < r->options; i++) {
        int64_t color[3];
        weight[i] = weight_of(m, r, begin + i);
        colors_of(r, begin + i, color);
        logit[i] = (float)(weight[i] - (occurred(r, row, color[2]) ? 0 : r->per_first));
        top = weight[i] > top ? weight[i] : top;
    }
    for (int64_t i = 0; i < r->options; i++) total += exp(weight[i] - top);
    r->log_weight[row] += top + log(total) - log((double)r->options);
    cumulate(logit, r->options, reach);
    return begin + drawn_code(reach, r->options, drawn(r, begin, SLOT_CHOICE));
}

/* Enter the newest node of a row among those that later nodes see. */
static void enter(const model_t *m, rows_t *r, int64_t row, int64_t p) {
    const int64_t here = place(r, row, r->position), plane = r->pages * r->memory_rows * r->block;
    int64_t color[3];
    colors_of(r, p, color);
    for (int64_t radius = 0; radius < 3; radius++) r->color[radius * plane + here] = color[radius];
    r->kind[here] = r->kind_P[p];
    r->children[here] = m->of_children.start[r->kind_P[p]];
    for (int64_t e = r->edge_start[p]; e < r->edge_start[p] + r->degree[p]; e++) {
        int64_t *state = r->children + place(r, row, r->edge_parent[e]);
        *state = next_kinds(&m->of_children, *state, r->kind_P[p]);
    }
}

/* Connect the newest node of a row with one parent. */
static void connect(rows_t *r, int64_t row, int64_t parent) {
    const int64_t at = place(r, row, parent);
    int64_t *s = r->structure + row * FEATURES;
    r->used[at]++;
    r->room[at]--;
    r->last[at] = s[POSITION];
    s[DEGREE]++;
    s[OPEN]--;
    s[OPEN_BEFORE] -= r->layer[at] == s[LAYER] - 1;
}

/* Keep one candidate of every row: its edges, kind, codes that it allows and state.
 *
 * Returns the number of edges. */
EXPORT int64_t sample_choose(const model_t *m, rows_t *r, const float *kind_state, int64_t *x,
    uint8_t *allowed, float *state, int64_t *edge_row, int64_t *edge_parent, int64_t *edge_type) {
    float logit[MOST_OPTIONS];
    double reach[MOST_OPTIONS];
    int64_t edges = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        const int64_t p = r->weighted ? choice(m, r, row, logit, reach) : row * r->options;
        const int64_t degree = r->degree[p], kind = r->kind_P[p];
        for (int64_t e = r->edge_start[p]; e < r->edge_start[p] + degree; e++) {
            connect(r, row, r->edge_parent[e]);
            edge_row[edges] = row;
            edge_parent[edges] = r->edge_parent[e];
            edge_type[edges++] = r->edge_type[e];
        }
        for (int64_t s = 0; s < r->passes; s++) {
            float *out = state + (row * r->passes + s) * m->width;
            memset(out, 0, (size_t)m->width * sizeof *out);
            for (int64_t e = edges - degree; e < edges; e++)
                add_row(projection_of(m, r, row, s, edge_parent[e], MAP_ALL), m->width, out);
            for (int64_t i = 0; i < m->width; i++) out[i] /= (float)most(degree, 1);
            add_row(kind_state + (r->kind_group[p] * r->passes + s) * m->width, m->width, out);
            add_row(m->degree_table + code_of(&m->in_degree, degree) * m->width, m->width, out);
        }
        if (r->weighted) enter(m, r, row, p);
        r->sibling[row] = r->first[p] ? r->first[p] : NEVER;
        x[row * m->attributes] = kind;
        const uint8_t *possible = r->possible + r->sample[row] * m->codes;
        const uint8_t *given = m->pairs + kind * m->codes;
        for (int64_t f = 0; f < m->codes; f++) allowed[row * m->codes + f] = possible[f] & given[f];
    }
    return edges;
}
