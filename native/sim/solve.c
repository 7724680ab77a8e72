/* Collectives solved instead of sent, for networks whose links are not shared.
 *
 * Without shared links a phase of a chunk depends on nothing but the ticks at which its members
 * start it. When the last one has started, the end on every member follows from a recurrence over
 * the messages, which is exact; for a ring in step it is a closed form. Each member gets one event.
 * Where links are shared the same holds for a ring of neighbors, as long as no message comes to a
 * link that another one has; a run reserves its links from its first to its last message.
 * Where this cannot be exact, `order_matters` is set and the caller simulates every message. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

void *sim_reserve(Sim *s, int64_t count, int64_t width) {
    void *data = malloc((size_t)(count * width));
    if (!data) longjmp(s->out_of_memory, 1);
    return data;
}

int64_t sim_later(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- ring and halving-doubling: one message in flight ---- */

/* Message k of position i leaves at x[i]; it is received when both it is there and the own message k
 * has left; then the next packet costs E, for some packets also the time to reduce. */
int64_t sim_step_cost(const Sim *s, const Stream *first, int32_t packet) {
    int64_t reduce = sim_packet_cost(s, first, packet);
    return sim_endpoint_ns(s, sim_phase_of(s, first)) + (reduce > 0 ? reduce : 0);
}

static void solve_ring(Sim *s, const Run *run, const Stream *first) {
    const Phase *p = sim_phase_of(s, first);
    int32_t n = run->members, messages = sim_messages_to_send(p), to, from;
    int32_t back = first->anticlockwise >> first->phase & 1;
    int64_t size = sim_message_of(s, first, 0, &to, &from), *x = run->start;
    int64_t *link = sim_reserve(s, 4 * n, sizeof(int64_t)), *next = link + n;
    int64_t *first_sent = link + 2 * n, *last_sent = link + 3 * n;
    int64_t delay = sim_endpoint_ns(s, p), held = 0; /* how long a message has its link */
    if (s->in->congestion_aware) held = (int64_t)((double)size / s->in->dim_bandwidth[p->dimension]);
    int uniform = 1, crowded = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t source = back ? (i + 1) % n : (i + n - 1) % n;
        link[i] = sim_transfer_ns(s->in, sim_member(s, first, p, source), sim_member(s, first, p, i), size);
        uniform &= link[i] == link[0];
        first_sent[i] = x[i] += delay;
    }
    for (int32_t k = 0; k < messages; k++) {
        int in_step = uniform;
        if (s->in->congestion_aware) memcpy(last_sent, x, (size_t)n * sizeof(int64_t));
        if (back) {
            next[n - 1] = x[0];
            memcpy(next, x + 1, (size_t)(n - 1) * sizeof(int64_t));
        } else {
            next[0] = x[n - 1];
            memcpy(next + 1, x, (size_t)(n - 1) * sizeof(int64_t));
        }
        int64_t cost = sim_step_cost(s, first, k + 1), ahead = 0;
        for (int32_t i = 0; i < n; i++) {
            int64_t there = next[i] + link[i], received = sim_later(there, x[i]);
            ahead |= there < x[i];
            crowded |= k + 1 < messages && received + delay - x[i] < held;
            next[i] = received + cost;
        }
        if (in_step && !ahead) {
            /* Every rank waits for its neighbor, now and in all later steps: times only rotate. */
            int32_t left = messages - 1 - k;
            int64_t rest = left * (link[0] + sim_endpoint_ns(s, p));
            int reduces = p->type == PHASE_ALL_REDUCE || p->type == PHASE_REDUCE_SCATTER;
            for (int32_t j = k + 2; reduces && j <= messages; j++)
                rest += sim_step_cost(s, first, j) - sim_endpoint_ns(s, p);
            for (int32_t i = 0; i < n; i++) {
                int32_t source = (int32_t)((i + (back ? left : n - left % n)) % n);
                x[i] = next[source] + rest;
            }
            for (int32_t i = 0; i < n; i++)
                last_sent[(back ? i + 1 : i + n - 1) % n] =
                    x[i] - sim_step_cost(s, first, messages) - link[i];
            break;
        }
        memcpy(x, next, (size_t)n * sizeof(int64_t));
    }
    for (int32_t i = 0; i < n && s->in->congestion_aware; i++) {
        int32_t target = sim_member(s, first, p, (back ? i + n - 1 : i + 1) % n);
        sim_reserve_link(
            s, sim_member(s, first, p, i), target, p->dimension, first_sent[i], last_sent[i] + held);
    }
    s->order_matters |= crowded;
    free(link);
}

static void solve_halving(Sim *s, const Run *run, const Stream *first) {
    const Phase *p = sim_phase_of(s, first);
    int32_t n = run->members, messages = sim_messages_to_send(p);
    int64_t *x = run->start, *next = sim_reserve(s, n, sizeof(int64_t));
    for (int32_t i = 0; i < n; i++) x[i] += sim_endpoint_ns(s, p);
    for (int32_t k = 0; k < messages; k++) {
        int64_t cost = sim_step_cost(s, first, k + 1);
        int32_t to, from, own = sim_position_of(first, p), partner_of_first = -1;
        int64_t size = sim_message_of(s, first, k, &to, &from);
        for (int32_t i = 0; i < n && partner_of_first < 0; i++)
            if (sim_member(s, first, p, i) == to) partner_of_first = i;
        int32_t offset = abs(partner_of_first - own);
        for (int32_t i = 0; i < n; i++) {
            int32_t j = i / offset % 2 == 0 ? i + offset : i - offset;
            int64_t link = sim_transfer_ns(
                s->in, sim_member(s, first, p, j), sim_member(s, first, p, i), size);
            next[i] = sim_later(x[j] + link, x[i]) + cost;
        }
        memcpy(x, next, (size_t)n * sizeof(int64_t));
    }
    free(next);
}

/* ---- double binary tree ---- */

static int64_t tree_link(const Sim *s, const Stream *first, int32_t from, int32_t to) {
    const Phase *p = sim_phase_of(s, first);
    return sim_transfer_ns(s->in, sim_member(s, first, p, from), sim_member(s, first, p, to), p->size);
}

static int64_t tree_up(Sim *s, const Run *run, const Stream *first, int32_t position, int64_t *up);

static int64_t tree_received(
    Sim *s, const Run *run, const Stream *first, int32_t position, int32_t child, int64_t *up) {
    int64_t there = tree_up(s, run, first, child, up) + tree_link(s, first, child, position);
    return sim_later(run->start[position], there);
}

/* When `position` has sent to its parent; for the root, when it has reduced everything. */
static int64_t tree_up(Sim *s, const Run *run, const Stream *first, int32_t position, int64_t *up) {
    const Phase *p = sim_phase_of(s, first);
    Stream at = *first;
    at.number = sim_member(s, first, p, position);
    TreeNode node = sim_tree_node(&at, p);
    int64_t cost = sim_endpoint_ns(s, p), ready = run->start[position];
    if (node.left >= 0) {
        ready = tree_received(s, run, first, position, node.left, up);
        cost += s->in->reduce_bandwidth > 0 ? sim_reduce_ns(s, p->size) : 0;
    }
    if (node.right >= 0) ready = sim_later(ready, tree_received(s, run, first, position, node.right, up));
    return up[position] = ready + cost;
}

static void tree_down(
    Sim *s, const Run *run, const Stream *first, int32_t position, int64_t sent, const int64_t *up) {
    /* `sent`: when the parent's message arrives; for the root, when it is done itself. */
    const Phase *p = sim_phase_of(s, first);
    Stream at = *first;
    at.number = sim_member(s, first, p, position);
    TreeNode node = sim_tree_node(&at, p);
    int64_t end = sent;
    if (node.parent >= 0) {
        end = sim_later(up[position], sent) + sim_endpoint_ns(s, p);
        if (node.left >= 0 && s->in->reduce_bandwidth > 0) end += sim_reduce_ns(s, p->size);
    }
    if (node.left >= 0) tree_down(s, run, first, node.left, end + tree_link(s, first, position, node.left), up);
    if (node.right >= 0)
        tree_down(s, run, first, node.right, end + tree_link(s, first, position, node.right), up);
    run->start[position] = end;
}

static void solve_tree(Sim *s, const Run *run, const Stream *first) {
    int64_t *up = sim_reserve(s, run->members, sizeof(int64_t));
    int32_t root = first->second_tree >> first->phase & 1 ? 0 : run->members - 1;
    int64_t top = tree_up(s, run, first, root, up);
    tree_down(s, run, first, root, top, up);
    free(up);
}

/* ---- runs ---- */

static uint64_t mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

/* Chunks with the same mark started on every member at the same ticks and in the same order, and
 * do the same; whatever happens to one happens to the other in the same tick, just after it. */
static uint64_t twin_mark(const Run *run, const Stream *first) {
    uint64_t h = mix((uint64_t)run->plan, (uint64_t)run->phase);
    h = mix(h, (uint64_t)run->bits);
    for (int32_t i = 0; i < run->members; i++) h = mix(h, (uint64_t)run->start[i]);
    h = mix(h, (uint64_t)first->queue[first->phase]);
    return h;
}

/* Members for which one rank stands would end a phase at different ticks: they are not alike. */
static void found_uneven(Sim *s, const Phase *p) {
    s->order_matters = s->uneven = 1;
    s->out->uneven[0] = p->stride;
    s->out->uneven[1] = p->members;
}

static void finish_run(Sim *s, int32_t index) {
    Run *run = &POOL(s, Run, run, index);
    const Stream *first = &POOL(s, Stream, stream, run->stream[0]);
    uint64_t mark = twin_mark(run, first);
    int32_t algorithm = sim_phase_of(s, first)->algorithm;
    if (s->in->congestion_aware && algorithm != ALGORITHM_RING) s->order_matters = 1;
    switch (algorithm) {
    case ALGORITHM_RING: solve_ring(s, run, first); break;
    case ALGORITHM_DIRECT: sim_solve_direct(s, run, first); break;
    case ALGORITHM_HALVING_DOUBLING: solve_halving(s, run, first); break;
    case ALGORITHM_IN_NETWORK: sim_solve_switch(s, run, first); break;
    default: solve_tree(s, run, first);
    }
    for (int32_t i = 0; i < run->members && !s->order_matters; i++) {
        Stream *stream = &POOL(s, Stream, stream, run->stream[i]);
        stream->twin = mark;
        if (stream->place == i)
            sim_schedule(s, run->start[i], EVENT_PHASE_END, run->stream[i], 0);
        else if (run->start[i] != run->start[stream->place])
            found_uneven(s, sim_phase_of(s, stream));
    }
    free(run->start);
    run->start = 0;
    sim_give(&s->run, index);
}

/* Direction and tree of the running phase. */
static int32_t bits_of(const Stream *stream) {
    return (stream->anticlockwise >> stream->phase & 1) | (stream->second_tree >> stream->phase & 1) << 1;
}

int32_t sim_open_run(Sim *s, const Stream *stream, int32_t members) {
    int32_t index = sim_take(s, &s->run);
    Run *run = &POOL(s, Run, run, index);
    *run = (Run){-1, stream->plan, stream->phase, 0, members, bits_of(stream), 0, 0};
    /* One block for both, so that nothing is lost if there is no memory for the second. */
    run->start = sim_reserve(s, members, sizeof(int64_t) + sizeof(int32_t));
    run->stream = (int32_t *)(run->start + members);
    memset(run->stream, -1, (size_t)members * sizeof(int32_t));
    return index;
}

/* Enter a place of a run; 1 if there is somebody already. */
static int32_t take_place(Sim *s, Run *run, int32_t place, int32_t index) {
    if (run->stream[place] >= 0) return 1;
    run->stream[place] = index;
    run->start[place] = s->now;
    run->joined++;
    return 0;
}

/* A member starts the phase of a chunk, and with it all for which it stands. */
void sim_join(Sim *s, int32_t index) {
    const Input *in = s->in;
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    int32_t base = p->stride == 0 ? -1 - in->group_like[stream->group]
                                  : in->representative[sim_member(s, stream, p, 0)];
    int32_t entry = sim_find(s, stream->tag, base, stream->phase, -1);
    Match *match = &POOL(s, Match, match, entry);
    if (match->arrived == 0) {
        int32_t made = sim_open_run(s, stream, p->members);
        match->arrived = made + 1;
    }
    int32_t number = match->arrived - 1;
    Run *run = &POOL(s, Run, run, number);
    int differs = run->plan != stream->plan || run->bits != bits_of(stream);
    stream->place = sim_position_of(stream, p);
    if (in->num_ranks == in->num_numbers) {
        differs = differs || take_place(s, run, stream->place, index);
    } else {
        for (int32_t i = p->members - 1; i >= 0 && !differs; i--) {
            if (in->representative[sim_member(s, stream, p, i)] != stream->rank) continue;
            differs = take_place(s, run, i, index);
            stream->place = i;
        }
    }
    if (differs) {
        s->order_matters = 1; /* the ranks disagree: let the messages show what happens */
        return;
    }
    if (run->joined < run->members) return;
    match->arrived = 0;
    sim_forget_if_settled(s, entry);
    finish_run(s, number);
}
