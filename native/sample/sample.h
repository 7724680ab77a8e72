/* One position of the fast model's sampler: everything between its matrix products.
 *
 * Rows are graphs; each draws the same number of candidates (options) for its next node, of which
 * one is kept. Candidates of a row that agree so far are one group, whose states and logits are
 * computed once. Under guidance a row has two passes of the encoder, with its conditions and without,
 * and whatever comes of the encoder has as many rows for each row or group, which follow each other.
 * layerdag/models/fast/compiled_sampler.py drives it, and layerdag/models/fast/sampling_rounds.py is the
 * same in torch. Shape letters as there: B rows, P candidates, G groups, D width of a state, K codes, F
 * codes of all attributes. */
#ifndef LAYERDAG_SAMPLE_H
#define LAYERDAG_SAMPLE_H

#include <stdint.h>

#include "../vector.h"
#include "../wire/wire.h"
#include "codes.h"

/* Columns of the structural features, in the order of StructuralFeatures in tokens.py. */
enum { DEGREE, OUT_DEGREE, SIZE, INDEX, LEFT, OPEN, OPEN_LAYER, OPEN_BEFORE, POSITION, LAYER, FEATURES };

enum { UNSEEN = 1, MOST_OPTIONS = 64 };

/* First uniforms of the decisions about a node: RandomSlot in sampling_inputs.py. */
enum { SLOT_SIZE = 0, SLOT_FIRST_PARENT = 2, SLOT_KIND = 4, SLOT_IN_DEGREE = 5, SLOT_ATTRIBUTE = 9,
    SLOT_FURTHER_PARENT = 1 << 16, SLOT_CHOICE = 0x7fffffff, SLOTS_PER_PARENT = 3 };

/* Smallest count of each code, and one past the largest (CountEncoder). */
typedef struct {
    const int64_t *lows;
    int64_t codes;
} counter_t;

/* Reads the kinds of a node's neighbors one by one (KindAutomaton). */
typedef struct {
    const int64_t *start, *key, *target;
    const uint8_t *final;
    int64_t keys, kinds;
} automaton_t;

/* Kept in step with _Model in sampling_kernels.py. */
typedef struct {
    int64_t width, key_width, kinds, types, codes, attributes, token_features, projections, dynamic;
    const int64_t *attribute_start; /* first of each attribute's codes among all, and their number */
    counter_t size, in_degree, token_count;
    const float *token_table, *slot_table, *stub_table, *kind_table, *degree_table, *open_table;
    const int64_t *token_offset;
    /* Constraints: DegreeConstraints, AllowedCodes with the request's, EdgeTypeSets. */
    const uint8_t *source, *observed, *pairs, *known_degrees;
    const int64_t *min_parents, *max_parents, *first_state, *next_state;
    int64_t most_degree;
    automaton_t of_parents, of_children;
    const float *offset;
} model_t;

/* Kept in step with _Rows in sampling_kernels.py. What every position of every row has lies in pages of
 * one attention block: (pages, memory_rows, block, ...), so that memory is taken page by page; what it has
 * in every pass, in (pages, memory_rows, passes, block, ...). */
typedef struct {
    int64_t rows, options, passes, memory_rows, block, pages, position, weighted;
    float temperature, guidance, scale;
    double per_violation, per_first;
    const uint64_t *seed;    /* of each sample */
    const uint8_t *possible; /* codes that the nodes of each sample can have */
    int64_t *sample, *layer_start, *before_start, *sibling, *structure;
    int64_t *out_degree, *used, *room, *last, *layer, *kind, *children, *color;
    float *key, *block_key, *projection;
    double *log_weight;
    /* Of candidates; `base` holds the group of which each group is a part. */
    int64_t *group, *first, *kind_P, *degree, *kind_group, *type_state, *parent, *edge_start, *base;
    int64_t *edge_parent, *edge_type;
} rows_t;

/* The mix of SplitMix64 (Steele, Lea and Flood, 2014), as layerdag/runtime/rng.py. */
static inline uint64_t scrambled(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

static const uint64_t GOLDEN = 0x9E3779B97F4A7C15u, CANDIDATE_STEP = 0xD1B54A32D192ED03u;

static inline double uniform(uint64_t seed, int64_t position, int64_t slot) {
    uint64_t word = scrambled(seed + (uint64_t)(position + 1) * GOLDEN);
    word = scrambled(word ^ scrambled((uint64_t)(slot + 1) * GOLDEN));
    return (double)(word >> 11) * 0x1p-53;
}

/* The uniform of a candidate's decision; the first candidate has the seed of its graph. */
static inline double drawn(const rows_t *r, int64_t candidate, int64_t slot) {
    uint64_t seed = r->seed[r->sample[candidate / r->options]];
    return uniform(seed + (uint64_t)(candidate % r->options) * CANDIDATE_STEP, r->position, slot);
}

/* Where position t of a row lies. */
static inline int64_t place(const rows_t *r, int64_t row, int64_t t) {
    return (t / r->block * r->memory_rows + row) * r->block + t % r->block;
}

/* Where it lies in one of its passes. */
static inline int64_t token_place(const rows_t *r, int64_t row, int64_t pass, int64_t t) {
    return ((t / r->block * r->memory_rows + row) * r->passes + pass) * r->block + t % r->block;
}

/* Where the mean over a block lies. */
static inline int64_t block_place(const rows_t *r, int64_t row, int64_t pass, int64_t number) {
    return (number * r->memory_rows + row) * r->passes + pass;
}

/* A logit of both passes pushed away from that without conditions, over the temperature (Guidance). */
static inline float merged(const rows_t *r, const float *logit, int64_t stride) {
    if (r->passes == 1) return *logit / r->temperature;
    const float without = logit[stride];
    return (without + r->guidance * (*logit - without)) / r->temperature;
}

static inline const int64_t *structure_of(const rows_t *r, int64_t row) {
    return r->structure + row * FEATURES;
}

static inline int64_t code_of(const counter_t *counter, int64_t count) {
    int64_t low = 0, high = counter->codes;
    while (low + 1 < high) {
        int64_t middle = (low + high) / 2;
        if (counter->lows[middle] <= count) low = middle;
        else high = middle;
    }
    return low;
}

static inline int64_t count_of(const counter_t *counter, int64_t code, double u) {
    int64_t low = counter->lows[code], width = counter->lows[code + 1] - low;
    return low + least((int64_t)(u * (double)width), width - 1);
}

static inline int64_t next_kinds(const automaton_t *a, int64_t state, int64_t kind) {
    if (!state) return 0;
    int64_t wanted = state * a->kinds + kind, low = 0, high = a->keys;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (a->key[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    return a->key[low] == wanted ? a->target[low] : UNSEEN;
}

/* Room for the draw of one decision among `count` codes. */
typedef struct {
    float *logit;
    double *reach;
    uint8_t *fits;
} draw_t;

/* Take the room; returns 0 without memory. `release_draw` gives back what was taken in either case. */
int reserve_draw(draw_t *d, int64_t count);
void release_draw(draw_t *d);

/* Turn logits into running sums of probabilities, and draw from these. */
void cumulate(const float *logit, int64_t count, double *reach);
int64_t drawn_code(const double *reach, int64_t count, double u);

/* Rows of width D: out = a + b, and out += a. */
static inline void add_rows(const float *a, const float *b, int64_t width, float *out) {
    for (int64_t i = 0; i < width; i++) out[i] = a[i] + b[i];
}
static inline void add_row(const float *a, int64_t width, float *out) {
    for (int64_t i = 0; i < width; i++) out[i] += a[i];
}

/* Number the groups of one row anew, by a code of each candidate; see parents.c. */
int64_t split_row(rows_t *r, int64_t row, const int64_t *code, int64_t groups);

/* Write the states of groups after one more parent; see parents.c. */
int64_t after_parents(const model_t *m, rows_t *r, int64_t rank, const float *kind_state,
    const float *old_sum, float *sum, float *after);

/* One decision on a parent; see parents.c. */
typedef struct {
    const float *projected; /* of each pass: query, far query, scores of token codes, of block codes */
    int64_t row, low, high, reference;
} decision_t;

enum { MAP_FIRST, MAP_LAST, MAP_ALL, MAP_CHOSEN };

/* Numbers that a decision is projected to. */
static inline int64_t projected_width(const model_t *m) {
    return 2 * m->key_width + TOKEN_CODES + BLOCK_CODES;
}

static inline const float *projection_of(
    const model_t *m, const rows_t *r, int64_t row, int64_t pass, int64_t position, int64_t map) {
    return r->projection + (token_place(r, row, pass, position) * m->projections + map) * m->width;
}

#endif
