/* The direct algorithm solved: many messages in flight (see solve.c). */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t time;
    int32_t received; /* else: a packet is done */
} Pending;

static int sooner(const Pending *x, const Pending *y) { return x->time < y->time; }

DEFINE_HEAP(pending, Pending, sooner)

/* Most events of a member that wait at once. */
static int64_t most_pending(const Phase *p) { return sim_messages_to_send(p) + p->window + 1; }

/* All members start together and a message takes the same time over the same distance in the ring:
 * they do the same at the same ticks, so one of them suffices. link[o] is the time over distance
 * o, `heap` has room for most_pending. Returns the end, -1 if the order inside a tick counts. */
static int64_t direct_in_step(
    const Sim *s, const Stream *first, int64_t start, const int64_t *link, Pending *heap) {
    const Phase *p = sim_phase_of(s, first);
    int32_t left = sim_messages_to_send(p), half = p->members - 1;
    int64_t used = 0;
    int32_t inserted = p->window, free_packets = 0, received = 0, sent = 0;
    int64_t last_receive = -1, end = -1, delay = sim_endpoint_ns(s, p);
    for (int32_t i = 0; i < p->window; i++) pending_push(heap, &used, (Pending){start + delay, 0});
    while (used && end < 0) {
        Pending event = pending_pop(heap, &used);
        if (event.received) {
            last_receive = event.time;
            received++;
            int64_t cost = sim_step_cost(s, first, inserted++);
            pending_push(heap, &used, (Pending){event.time + cost, 0});
            continue;
        }
        free_packets++;
        int32_t tries = 1;
        if (p->type == PHASE_ALL_REDUCE && left <= half) {
            int at_once = used && heap[0].received && heap[0].time == event.time;
            if (last_receive == event.time || at_once) break;
            if (received < half) continue;
            tries = p->window;
        }
        for (; tries > 0 && left && free_packets; tries--, left--, free_packets--, sent++)
            pending_push(heap, &used, (Pending){event.time + link[1 + sent % half], 1});
        if (left == 0 && free_packets == p->window) end = event.time;
    }
    return end;
}

/* With every message in flight at once, a reduce-scatter, all-gather or all-to-all ends when the
 * last message has been received and dealt with, whenever the members started. */
static void direct_apart(Sim *s, const Run *run, const Stream *first, int64_t size) {
    const Phase *p = sim_phase_of(s, first);
    int32_t n = run->members;
    int64_t delay = sim_endpoint_ns(s, p), cost = sim_step_cost(s, first, p->window);
    int64_t *end = sim_reserve(s, n, sizeof(int64_t));
    for (int32_t i = 0; i < n; i++) {
        end[i] = run->start[i] + delay;
        for (int32_t j = 0; j < n; j++) {
            if (j == i) continue;
            int64_t link = sim_transfer_ns(
                s->in, sim_member(s, first, p, j), sim_member(s, first, p, i), size);
            end[i] = sim_later(end[i], run->start[j] + delay + link);
        }
        end[i] += cost;
    }
    memcpy(run->start, end, (size_t)n * sizeof(int64_t));
    free(end);
}

/* Fill link[1..n-1], the time of a message over each distance in the ring of members. Returns 0 if
 * it also depends on who sends. */
static int links_by_distance(const Sim *s, const Run *run, const Stream *first, int64_t size, int64_t *link) {
    const Phase *p = sim_phase_of(s, first);
    int32_t n = run->members;
    for (int32_t o = 1; o < n; o++)
        link[o] = sim_transfer_ns(s->in, sim_member(s, first, p, 0), sim_member(s, first, p, o), size);
    int one_kind = s->in->num_dims == 1 && s->in->dim_type[0] != TOPOLOGY_RING;
    if (one_kind || (p->stride && n == s->in->dim_size[p->dimension])) return 1;
    for (int32_t i = 1; i < n; i++)
        for (int32_t o = 1; o < n; o++) {
            int32_t to = sim_member(s, first, p, (i + o) % n);
            if (link[o] != sim_transfer_ns(s->in, sim_member(s, first, p, i), to, size)) return 0;
        }
    return 1;
}

void sim_solve_direct(Sim *s, const Run *run, const Stream *first) {
    const Phase *p = sim_phase_of(s, first);
    int32_t n = run->members, to, from;
    int64_t size = sim_message_of(s, first, 0, &to, &from), start = run->start[0];
    int in_step = 1;
    for (int32_t i = 1; i < n; i++) in_step &= run->start[i] == start;
    if (in_step) {
        /* One block for both, so that nothing is lost if there is no memory for the second. */
        int64_t pending = most_pending(p), end = -1;
        Pending *heap = sim_reserve(s, 1, pending * (int64_t)sizeof(Pending) + n * (int64_t)sizeof(int64_t));
        int64_t *link = (int64_t *)(heap + pending);
        if (links_by_distance(s, run, first, size, link)) end = direct_in_step(s, first, start, link, heap);
        free(heap);
        for (int32_t i = 0; i < n && end >= 0; i++) run->start[i] = end;
        if (end >= 0) return;
    }
    if (p->window == n - 1 && p->type != PHASE_ALL_REDUCE)
        direct_apart(s, run, first, size);
    else
        s->order_matters = 1;
}
