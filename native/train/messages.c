/* Messages along and against the edges of a graph (MessagePassingLayer in layers.py), and their
 * gradients. */
#include "train.h"

/* Kept in step with _Edges in fused.py. */
typedef struct {
    int64_t nodes, edges, width, kinds;
    const int64_t *source, *target, *kind; /* `kind` is null where edges have one kind */
} edges_t;

/* Sum up what each node gets: its own part of `maps` (own, down and up: 3 * width), the down parts of
 * nodes with an edge to it and the up parts of those that it has an edge to, each with a part of the
 * embedding of the edge's kind (2 * width). Returns 0 or NO_SUCH_CODE. */
FUSED EXPORT int64_t train_messages(const edges_t *g, const float *maps, const float *kinds, float *out) {
    const int64_t width = g->width;
    for (int64_t n = 0; n < g->nodes; n++)
        memcpy(out + n * width, maps + n * 3 * width, (size_t)width * sizeof *out);
    for (int64_t e = 0; e < g->edges; e++) {
        const int64_t source = g->source[e], target = g->target[e];
        if (source < 0 || source >= g->nodes || target < 0 || target >= g->nodes) return NO_SUCH_CODE;
        float *down = out + target * width, *up = out + source * width;
        add_to(down, maps + (source * 3 + 1) * width, width);
        add_to(up, maps + (target * 3 + 2) * width, width);
        if (!g->kind) continue;
        if (g->kind[e] < 0 || g->kind[e] >= g->kinds) return NO_SUCH_CODE;
        add_to(down, kinds + g->kind[e] * 2 * width, width);
        add_to(up, kinds + (g->kind[e] * 2 + 1) * width, width);
    }
    return 0;
}

/* Write the gradients of `maps`, and add up those of the embeddings of kinds. */
FUSED EXPORT int64_t train_messages_backward(
    const edges_t *g, const float *gradient, float *maps, float *kinds) {
    const int64_t width = g->width;
    for (int64_t n = 0; n < g->nodes; n++) {
        memcpy(maps + n * 3 * width, gradient + n * width, (size_t)width * sizeof *maps);
        memset(maps + (n * 3 + 1) * width, 0, (size_t)(2 * width) * sizeof *maps);
    }
    for (int64_t e = 0; e < g->edges; e++) {
        const float *down = gradient + g->target[e] * width, *up = gradient + g->source[e] * width;
        add_to(maps + (g->source[e] * 3 + 1) * width, down, width);
        add_to(maps + (g->target[e] * 3 + 2) * width, up, width);
        if (!g->kind) continue;
        add_to(kinds + g->kind[e] * 2 * width, down, width);
        add_to(kinds + (g->kind[e] * 2 + 1) * width, up, width);
    }
    return 0;
}
