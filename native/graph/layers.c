/* Longest-path layers, earliest starts and the reduction of order edges, whatever the depth. */
#include <stdint.h>
#include <stdlib.h>

#include "../wire/wire.h"

/* Children of each node as ranges of one list: those of i are child[begin[i]] to child[begin[i+1]]. */
static void sort_by_source(int64_t nodes, int64_t edges, const int64_t *source, const int64_t *target,
    int64_t *begin, int64_t *child) {
    for (int64_t i = 0; i <= nodes; i++) begin[i] = 0;
    for (int64_t e = 0; e < edges; e++) begin[source[e] + 1]++;
    for (int64_t i = 0; i < nodes; i++) begin[i + 1] += begin[i];
    for (int64_t e = 0; e < edges; e++) child[begin[source[e]]++] = target[e];
    for (int64_t i = nodes; i > 0; i--) begin[i] = begin[i - 1];
    begin[0] = 0;
}

/* Give each node its longest-path layer, -1 on and behind cycles. Ends lie in [0, nodes).
 *
 * Returns the number of nodes that got one, or -1 without memory. */
EXPORT int64_t graph_layers(
    int64_t nodes, int64_t edges, const int64_t *source, const int64_t *target, int64_t *layer) {
    int64_t *begin = malloc((size_t)(nodes + 1) * sizeof *begin);
    int64_t *waiting = calloc((size_t)nodes + 1, sizeof *waiting);
    int64_t *queue = malloc((size_t)(nodes + 1) * sizeof *queue);
    int64_t *child = malloc((size_t)(edges + 1) * sizeof *child);
    int64_t done = -1, last = 0;
    if (begin && waiting && queue && child) {
        sort_by_source(nodes, edges, source, target, begin, child);
        for (int64_t e = 0; e < edges; e++) waiting[target[e]]++;
        for (int64_t i = 0; i < nodes; i++) {
            layer[i] = waiting[i] ? -1 : 0;
            if (!waiting[i]) queue[last++] = i;
        }
        /* Nodes enter the queue by ascending layer, so the parent that comes last is the deepest. */
        for (done = 0; done < last; done++) {
            int64_t node = queue[done];
            for (int64_t c = begin[node]; c < begin[node + 1]; c++) {
                if (--waiting[child[c]]) continue;
                layer[child[c]] = layer[node] + 1;
                queue[last++] = child[c];
            }
        }
    }
    free(begin);
    free(waiting);
    free(queue);
    free(child);
    return done;
}

/* Earliest start of each node where a node costs cost[i]; edges come by the layer of their target.
 *
 * start is zero at first. */
EXPORT void graph_starts(int64_t edges, const int64_t *source, const int64_t *target, const int64_t *edge,
    const double *cost, double *start) {
    for (int64_t e = 0; e < edges; e++) {
        int64_t from = source[edge[e]], to = target[edge[e]];
        double ready = start[from] + cost[from];
        if (ready > start[to]) start[to] = ready;
    }
}

/* Parents of each node, which come before it: those of i are parent[begin[i]] to begin[i+1]. */
typedef struct {
    const int64_t *begin, *parent;
} parents_t;

typedef struct {
    parents_t data, order;
    const uint8_t *keep; /* of the order edges */
    int64_t *seen, *stack;
    int64_t floor, mark, left;
} search_t;

static int64_t visit(search_t *search, int64_t node, int64_t size) {
    if (node < search->floor || search->seen[node] == search->mark || search->left <= 0) return size;
    search->seen[node] = search->mark;
    search->left--;
    search->stack[size] = node;
    return size + 1;
}

/* Mark the ancestors of a node, and itself, down to the floor. */
static void search_from(search_t *search, int64_t node) {
    int64_t size = visit(search, node, 0);
    while (size) {
        node = search->stack[--size];
        for (int64_t e = search->data.begin[node]; e < search->data.begin[node + 1]; e++)
            size = visit(search, search->data.parent[e], size);
        for (int64_t e = search->order.begin[node]; e < search->order.begin[node + 1]; e++)
            if (search->keep[e]) size = visit(search, search->order.parent[e], size);
    }
}

/* Mark in keep which order edges no other path implies; the parents of a node ascend.
 *
 * A node's search gives up after ``limit`` steps, and the order edges that it did not reach stay.
 * Returns 0, or -1 without memory. */
EXPORT int64_t graph_reduce(int64_t nodes, const int64_t *data_begin, const int64_t *data,
    const int64_t *order_begin, const int64_t *order, int64_t limit, uint8_t *keep) {
    search_t search = {.data = {data_begin, data}, .order = {order_begin, order}, .keep = keep};
    search.seen = calloc((size_t)nodes + 1, sizeof *search.seen);
    search.stack = malloc((size_t)(limit + 1) * sizeof *search.stack);
    int64_t status = search.seen && search.stack ? 0 : -1;
    for (int64_t i = 0; !status && i < nodes; i++) {
        if (order_begin[i] == order_begin[i + 1]) continue;
        search.floor = order[order_begin[i]];
        search.mark = i + 1;
        search.left = limit;
        for (int64_t e = data_begin[i]; e < data_begin[i + 1]; e++) search_from(&search, data[e]);
        for (int64_t e = order_begin[i + 1] - 1; e >= order_begin[i]; e--) {
            keep[e] = search.seen[order[e]] != search.mark;
            if (keep[e]) search_from(&search, order[e]);
        }
    }
    free(search.seen);
    free(search.stack);
    return status;
}
