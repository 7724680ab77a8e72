/* Candidate parents of all decisions of a batch of training graphs (TrainingCandidates in targets.py). */
#include "../sample/codes.h"
#include "../wire/wire.h"

/* Kept in step with _Candidates in targets.py; rows of low and high are those of _candidate_ranges. */
typedef struct {
    int64_t edges;                                /* in the order of decisions */
    const int64_t *parent, *child, *reference;    /* of edges */
    const int64_t *low, *high;                    /* 3 rows of edges */
    const int64_t *layer, *out_degree, *block;    /* of tokens */
    int64_t *used, *last;                         /* of tokens, when the next child comes */
    int64_t *pending;                             /* of blocks, likewise */
    int64_t *decision, *candidate, *codes;        /* of pairs of tokens; without codes, NULL */
    int64_t *far_decision, *far_block, *far_code; /* of pairs of blocks */
    int64_t *softmax;                             /* of pairs of tokens, then of blocks */
    int64_t *chosen;                              /* of softmaxes */
    int64_t *stub;                                /* of edges */
} candidates_t;

enum { WINDOW, INSIDE, FAR };

/* Pair a decision with tokens, from pair p on; returns the pair after the last. */
static int64_t pair_tokens(const candidates_t *c, int64_t e, int row, int64_t softmax, int64_t p) {
    const int64_t parent = c->parent[e], child = c->child[e], reference = c->reference[e];
    const int64_t at = row * c->edges + e, high = c->high[at];
    for (int64_t t = c->low[at]; t < high; t++, p++) {
        c->decision[p] = e;
        c->candidate[p] = t;
        c->softmax[p] = softmax;
        if (t == parent) c->chosen[softmax] = p;
        if (!c->codes) continue;
        c->codes[4 * p] = stub_code(c->used[t], c->out_degree[t]);
        c->codes[4 * p + 1] = offset_code(t, reference);
        c->codes[4 * p + 2] = gap_code(child, c->last[t]);
        c->codes[4 * p + 3] = log_code(c->layer[child] - c->layer[t]);
    }
    return p;
}

/* Pair a decision with blocks, from pair p of them on, of which `tokens` pairs of tokens come first. */
static int64_t pair_blocks(const candidates_t *c, int64_t e, int64_t tokens, int64_t p) {
    const int64_t at = FAR * c->edges + e, high = c->high[at], chosen = c->block[c->parent[e]];
    for (int64_t z = c->low[at]; z < high; z++, p++) {
        c->far_decision[p] = e;
        c->far_block[p] = z;
        c->far_code[p] = log_code(c->pending[z]);
        c->softmax[tokens + p] = e;
        if (z == chosen) c->chosen[e] = tokens + p;
    }
    return p;
}

/* Fill in the pairs: `near` of tokens in windows, `tokens` of tokens in all. Edges come by child, so that
 * what happened before a child is known when its edges come. */
EXPORT void train_candidates(const candidates_t *c, int64_t near, int64_t tokens) {
    int64_t window = 0, inside = near, far = 0, softmax = c->edges;
    for (int64_t e = 0, next = 0; e < c->edges;) {
        const int64_t child = c->child[e];
        for (; next < c->edges && c->child[next] == child; next++) {
            const int64_t parent = c->parent[next];
            c->stub[next] = stub_code(c->used[parent], c->out_degree[parent]);
            window = pair_tokens(c, next, WINDOW, next, window);
            far = pair_blocks(c, next, tokens, far);
            const int64_t before = inside;
            inside = pair_tokens(c, next, INSIDE, softmax, inside);
            softmax += inside > before;
        }
        for (; e < next; e++) {
            c->used[c->parent[e]]++;
            c->last[c->parent[e]] = child;
            c->pending[c->block[c->parent[e]]]--;
        }
    }
}
