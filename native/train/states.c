/* States of the decisions about nodes and edges (Heads in decisions.py), and their gradients. */
#include "train.h"

/* Kept in step with _States in fused_states.py. A token's row of projections, of single precision, is
 * its context, what it adds to a state as a first parent, as the parent chosen last, and as one of all
 * parents: `width` numbers each, in rows of `columns`. Edges lie in the order of decisions. */
typedef struct {
    int64_t nodes, edges, inner, width, columns, slots;
    const int64_t *token, *slot_code, *slot_offset, *stub, *kind, *degree_code, *in_degree; /* of nodes */
    int64_t kind_columns, kinds;
    const int64_t *first_edge;                       /* of each node with parents */
    const int64_t *inner_node;                       /* these nodes */
    const int64_t *parent, *node, *rank, *open_code; /* of edges */
} states_t;

/* Embeddings of codes, or their gradients. */
typedef struct {
    float *slot, *stub, *kind, *open, *degree;
} tables_t;

/* States (nodes or edges, width), or their gradients: of kinds, in-degrees, other attributes; after
 * each parent, and before it; of in-degrees of nodes with parents alone. */
typedef struct {
    float *kind, *degree, *other, *after, *before, *inner;
} decisions_t;

INLINE void set_to(float *to, const float *row, int64_t width) {
    memcpy(to, row, (size_t)width * sizeof *to);
}

enum { CONTEXT, FIRST_PARENT, LAST_PARENT, ALL_PARENTS };

/* Write all states. `context` has room for one state of each node. Returns 0, or NO_SUCH_CODE where a
 * node has no kind of the table; other codes are our own. */
FUSED EXPORT int64_t train_states(
    const states_t *s, const tables_t *t, const float *projection, float *context, const decisions_t *out) {
    const int64_t width = s->width;
    for (int64_t n = 0; n < s->nodes; n++) {
        float *own = context + n * width, *kind = out->kind + n * width;
        set_to(own, projection + (s->token[n] - 1) * s->columns, width);
        for (int64_t f = 0; f < s->slots; f++)
            add_to(own, t->slot + (s->slot_code[n * s->slots + f] + s->slot_offset[f]) * width, width);
        set_to(kind, own, width);
        add_to(kind, t->stub + s->stub[n] * width, width);
    }
    for (int64_t q = 0; q < s->inner; q++)
        add_to(out->kind + s->inner_node[q] * width,
            projection + s->parent[s->first_edge[q]] * s->columns + FIRST_PARENT * width, width);
    for (int64_t n = 0; n < s->nodes; n++) {
        float *degree = out->degree + n * width, *other = out->other + n * width;
        const int64_t code = s->kind[n * s->kind_columns];
        if (code < 0 || code >= s->kinds) return NO_SUCH_CODE;
        set_to(degree, out->kind + n * width, width);
        add_to(degree, t->kind + code * width, width);
        set_to(other, degree, width);
        add_to(other, t->degree + s->degree_code[n] * width, width);
    }
    for (int64_t q = 0; q < s->inner; q++)
        set_to(out->inner + q * width, out->degree + s->inner_node[q] * width, width);
    for (int64_t e = 0; e < s->edges; e++) {
        const int64_t n = s->node[e];
        const float *parent = projection + s->parent[e] * s->columns;
        float *after = out->after + e * width;
        set_to(after, out->degree + n * width, width);
        add_to(after, parent + LAST_PARENT * width, width);
        add_to(after, t->open + s->open_code[e] * width, width);
        set_to(out->before + e * width, s->rank[e] ? after - width : context + n * width, width);
        add_product(out->other + n * width, share(s->in_degree[n]), parent + ALL_PARENTS * width, width);
    }
    return 0;
}

/* Add up the gradients of projections and embeddings; `d` holds those of the states, and is changed. */
FUSED EXPORT int64_t train_states_backward(
    const states_t *s, const tables_t *t, float *projection, float *context, const decisions_t *d) {
    const int64_t width = s->width;
    memset(context, 0, (size_t)(s->nodes * width) * sizeof *context);
    for (int64_t q = 0; q < s->inner; q++)
        add_to(d->degree + s->inner_node[q] * width, d->inner + q * width, width);
    for (int64_t e = s->edges - 1; e >= 0; e--) {
        const int64_t n = s->node[e];
        float *parent = projection + s->parent[e] * s->columns, *after = d->after + e * width;
        add_to(s->rank[e] ? after - width : context + n * width, d->before + e * width, width);
        add_to(d->degree + n * width, after, width);
        add_to(parent + LAST_PARENT * width, after, width);
        add_to(t->open + s->open_code[e] * width, after, width);
        add_product(parent + ALL_PARENTS * width, share(s->in_degree[n]), d->other + n * width, width);
    }
    for (int64_t n = 0; n < s->nodes; n++) {
        float *degree = d->degree + n * width, *kind = d->kind + n * width;
        add_to(degree, d->other + n * width, width);
        add_to(t->degree + s->degree_code[n] * width, d->other + n * width, width);
        add_to(kind, degree, width);
        add_to(t->kind + s->kind[n * s->kind_columns] * width, degree, width);
    }
    for (int64_t q = 0; q < s->inner; q++)
        add_to(projection + s->parent[s->first_edge[q]] * s->columns + FIRST_PARENT * width,
            d->kind + s->inner_node[q] * width, width);
    for (int64_t n = 0; n < s->nodes; n++) {
        float *own = context + n * width;
        add_to(own, d->kind + n * width, width);
        add_to(t->stub + s->stub[n] * width, d->kind + n * width, width);
        for (int64_t f = 0; f < s->slots; f++)
            add_to(t->slot + (s->slot_code[n * s->slots + f] + s->slot_offset[f]) * width, own, width);
        add_to(projection + (s->token[n] - 1) * s->columns, own, width);
    }
    return 0;
}
