/* Candidate parents: their scores, and draws from them. */
#include <math.h>
#include <stdlib.h>

#include "sample.h"

int reserve_draw(draw_t *d, int64_t count) {
    d->logit = malloc((size_t)count * sizeof *d->logit);
    d->reach = malloc((size_t)count * sizeof *d->reach);
    d->fits = malloc((size_t)count);
    return d->logit && d->reach && d->fits;
}

void release_draw(draw_t *d) {
    free(d->logit);
    free(d->reach);
    free(d->fits);
}

void cumulate(const float *logit, int64_t count, double *reach) {
    float top = -INFINITY;
    for (int64_t k = 0; k < count; k++) top = logit[k] > top ? logit[k] : top;
    double total = 0;
    for (int64_t k = 0; k < count; k++) {
        total += logit[k] == -INFINITY ? 0 : exp((double)logit[k] - (double)top);
        reach[k] = total;
    }
}

/* Invert the running sums; a code without probability is never drawn (sample_categorical). */
int64_t drawn_code(const double *reach, int64_t count, double u) {
    double wanted = u * reach[count - 1];
    int64_t code = 0;
    while (code < count - 1 && reach[code] <= wanted) code++;
    while (code > 0 && reach[code - 1] == reach[code]) code--;
    return code;
}

static float dot(const float *a, const float *b, int64_t width) {
    float part[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= width; i += 8)
        for (int64_t j = 0; j < 8; j++) part[j] += a[i + j] * b[i + j];
    for (; i < width; i++) part[0] += a[i] * b[i];
    return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

/* Score of a token as a parent in one pass: its key, at `at`, and its codes. */
static float score_token(const model_t *m, const rows_t *r, const float *projected, int64_t at,
    const int64_t code[4]) {
    const float *codes = projected + 2 * m->key_width;
    const float score = dot(projected, r->key + at * m->key_width, m->key_width) * r->scale;
    return score + (codes[code[0]] + codes[STUB_CODES + code[1]] +
        codes[STUB_CODES + OFFSET_CODES + code[2]] +
        codes[STUB_CODES + OFFSET_CODES + GAP_CODES + code[3]]);
}

/* Score the tokens [low, high) of one row; those without room for another child are out unless
 * there is no other candidate. */
static void score_tokens(const model_t *m, const rows_t *r, const decision_t *d, int64_t low, int64_t high,
    int elsewhere, float *logit) {
    const int64_t layer = structure_of(r, d->row)[LAYER], wide = projected_width(m);
    int others = elsewhere;
    for (int64_t t = low; t < high; t++) {
        const int64_t at = place(r, d->row, t);
        int64_t code[4] = {0, 0, 0, 0};
        if (m->dynamic) {
            code[0] = stub_code(r->used[at], r->out_degree[at]);
            code[1] = offset_code(t, d->reference);
            code[2] = gap_code(r->position, r->last[at]);
            code[3] = log_code(layer - r->layer[at]);
        }
        float score[2];
        for (int64_t s = 0; s < r->passes; s++)
            score[s] = score_token(m, r, d->projected + s * wide, token_place(r, d->row, s, t), code);
        logit[t - low] = merged(r, score, 1);
        others |= r->room[at] > 0;
    }
    if (!others) return;
    for (int64_t t = low; t < high; t++)
        if (r->room[place(r, d->row, t)] <= 0) logit[t - low] = -INFINITY;
}

static float score_block(const model_t *m, const rows_t *r, const decision_t *d, int64_t number) {
    const int64_t at = place(r, d->row, number * r->block), wide = projected_width(m);
    int64_t pending = 0;
    for (int64_t i = 0; i < r->block; i++) pending += r->out_degree[at + i] - r->used[at + i];
    float score[2];
    for (int64_t s = 0; s < r->passes; s++) {
        const float *projected = d->projected + s * wide;
        const float *key = r->block_key + block_place(r, d->row, s, number) * m->key_width;
        score[s] = dot(projected + m->key_width, key, m->key_width) * r->scale +
            projected[2 * m->key_width + TOKEN_CODES + log_code(pending)];
    }
    return merged(r, score, 1);
}

/* Draw one parent for each of some candidates of a group: a token in the window, or an older block
 * and a token inside it. `scratch` has room for two decisions. */
static void draw_parents_of(const model_t *m, rows_t *r, const decision_t *d, const int64_t *candidate,
    int64_t count, int64_t slot, float *logit, double *reach) {
    const int64_t block = r->block, now = (r->position - 1) / block;
    const int64_t pooled = most(now - 1, 0), low = most(d->low, pooled * block);
    const int64_t tokens = most(d->high - low, 0);
    const int64_t first_block = d->low / block, end_block = least((d->high - 1) / block + 1, pooled);
    const int64_t blocks = most(end_block - first_block, 0);
    score_tokens(m, r, d, low, d->high, blocks > 0, logit);
    for (int64_t i = 0; i < blocks; i++) logit[tokens + i] = score_block(m, r, d, first_block + i);
    cumulate(logit, tokens + blocks, reach);
    for (int64_t i = 0; i < count; i++) {
        int64_t p = candidate[i], column = drawn_code(reach, tokens + blocks, drawn(r, p, slot));
        if (column < tokens) {
            r->parent[p] = low + column;
            continue;
        }
        int64_t start = (first_block + column - tokens) * block;
        int64_t from = most(d->low, start), end = least(d->high, start + block);
        double *inside = reach + tokens + blocks;
        score_tokens(m, r, d, from, end, 0, logit);
        cumulate(logit, end - from, inside);
        r->parent[p] = from + drawn_code(inside, end - from, drawn(r, p, slot + 1));
    }
}

/* The candidates of each row, by groups. */
typedef struct {
    int64_t *candidate, count;
} members_t;

/* Put the candidates of one row that have the group `group` into `m`. */
static void collect(const rows_t *r, int64_t row, int64_t group, members_t *m) {
    m->count = 0;
    for (int64_t p = row * r->options; p < (row + 1) * r->options; p++)
        if (r->group[p] == group) m->candidate[m->count++] = p;
}

typedef struct {
    draw_t draw; /* of a block or token, and then of a token inside the block */
    members_t members;
} scratch_t;

static int reserve(scratch_t *s, const rows_t *r) {
    const int64_t most_scores = r->position + r->block + 1;
    s->members.candidate = malloc((size_t)r->options * sizeof *s->members.candidate);
    return reserve_draw(&s->draw, 2 * most_scores) && s->members.candidate;
}

static void release(scratch_t *s) {
    release_draw(&s->draw);
    free(s->members.candidate);
}

/* Number the groups of one row's candidates anew, by their old group and a code, from `groups` on;
 * candidates without a group (-1) stay so. Returns the number of groups then. */
int64_t split_row(rows_t *r, int64_t row, const int64_t *code, int64_t groups) {
    const int64_t begin = row * r->options, end = begin + r->options;
    int64_t before[MOST_OPTIONS], seen[MOST_OPTIONS], known = 0, first = groups;
    for (int64_t p = begin; p < end; p++) {
        if (r->group[p] < 0) continue;
        int64_t i = 0;
        while (i < known && (before[i] != r->group[p] || seen[i] != code[p])) i++;
        if (i == known) {
            before[known] = r->group[p];
            seen[known++] = code[p];
            r->base[groups++] = r->group[p];
        }
        r->group[p] = first + i;
    }
    return groups;
}

/* Draw the first parent of every candidate (0 in layer 0), and write the states of the kinds.
 *
 * Returns the number of groups, or -1 without memory. */
EXPORT int64_t sample_first_parents(
    const model_t *m, rows_t *r, const float *projected, const float *context, float *state) {
    scratch_t s;
    const int64_t wide = r->passes * projected_width(m);
    int64_t groups = 0;
    if (!reserve(&s, r)) {
        release(&s);
        return -1;
    }
    for (int64_t row = 0; row < r->rows; row++) {
        const int64_t begin = row * r->options, inner = structure_of(r, row)[LAYER] > 0;
        for (int64_t p = begin; p < begin + r->options; p++) {
            r->group[p] = row;
            r->parent[p] = 0;
        }
        if (inner) {
            decision_t d = {projected + row * wide, row, r->before_start[row], r->layer_start[row],
                r->sibling[row]};
            collect(r, row, row, &s.members);
            draw_parents_of(
                m, r, &d, s.members.candidate, s.members.count, SLOT_FIRST_PARENT, s.draw.logit, s.draw.reach);
        }
        int64_t from = groups;
        groups = split_row(r, row, r->parent, groups);
        for (int64_t p = begin; p < begin + r->options; p++) {
            int64_t g = r->group[p], stub = 0;
            r->first[p] = r->parent[p];
            if (g < from) continue;
            from = g + 1;
            if (inner) {
                int64_t at = place(r, row, r->parent[p]), used = r->used[at];
                stub = least(used, 3) * 4 + least(most(r->out_degree[at] - used, 0), 3);
            }
            for (int64_t s = 0; s < r->passes; s++) {
                float *out = state + (g * r->passes + s) * m->width;
                add_rows(context + (row * r->passes + s) * m->width, m->stub_table + stub * m->width,
                    m->width, out);
                if (inner) add_row(projection_of(m, r, row, s, r->parent[p], MAP_FIRST), m->width, out);
            }
        }
    }
    release(&s);
    return groups;
}

/* Write the states after one more parent, `r->parent`, for the groups that these split into.
 *
 * Sums of the parents chosen so far are kept for each group, if the model reads them. */
int64_t after_parents(const model_t *m, rows_t *r, int64_t rank, const float *kind_state,
    const float *old_sum, float *sum, float *after) {
    int64_t groups = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        int64_t from = groups;
        groups = split_row(r, row, r->parent, groups);
        for (int64_t p = row * r->options; p < (row + 1) * r->options; p++) {
            int64_t g = r->group[p];
            if (g < from) continue;
            from = g + 1;
            int64_t open = code_of(&m->in_degree, r->degree[p] - rank - 1);
            for (int64_t s = 0; s < r->passes; s++) {
                float *out = after + (g * r->passes + s) * m->width;
                add_rows(kind_state + (r->kind_group[p] * r->passes + s) * m->width,
                    projection_of(m, r, row, s, r->parent[p], MAP_LAST), m->width, out);
                add_row(m->open_table + open * m->width, m->width, out);
                if (m->projections <= MAP_CHOSEN) continue;
                const float *chosen = projection_of(m, r, row, s, r->parent[p], MAP_CHOSEN);
                float *total = sum + (g * r->passes + s) * m->width;
                if (rank) add_rows(old_sum + (r->base[g] * r->passes + s) * m->width, chosen, m->width, total);
                else
                    for (int64_t i = 0; i < m->width; i++) total[i] = chosen[i];
                add_row(total, m->width, out);
            }
        }
    }
    return groups;
}

/* Draw the parent number `rank` (from 1) of every candidate that is in a group, and write the states
 * after it. Returns the number of groups, or -1 without memory. */
EXPORT int64_t sample_further_parents(const model_t *m, rows_t *r, int64_t rank, const float *projected,
    const float *kind_state, const float *old_sum, float *sum, float *after) {
    scratch_t s;
    const int64_t wide = r->passes * projected_width(m);
    const int64_t slot = SLOT_FURTHER_PARENT + SLOTS_PER_PARENT * (rank - 1);
    if (!reserve(&s, r)) {
        release(&s);
        return -1;
    }
    for (int64_t row = 0; row < r->rows; row++) {
        int64_t done = -1;
        for (int64_t p = row * r->options; p < (row + 1) * r->options; p++) {
            int64_t g = r->group[p];
            if (g <= done) continue;
            done = g;
            collect(r, row, g, &s.members);
            decision_t d = {projected + g * wide, row, r->degree[p] - rank, r->parent[p], r->parent[p]};
            draw_parents_of(m, r, &d, s.members.candidate, s.members.count, slot, s.draw.logit, s.draw.reach);
        }
    }
    release(&s);
    return after_parents(m, r, rank, kind_state, old_sum, sum, after);
}
