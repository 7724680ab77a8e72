/* Collectives of the simulator: chunks, their queues, and the algorithms that move them.
 *
 * An algorithm is driven by "packets": `window` of them at its start and one for every message
 * received. A packet becomes a right to send one message after an endpoint delay, and for some
 * packets after the time to reduce what was received (docs/simulator.md, "Collectives"). */
#include "sim.h"

#include <string.h>

const Phase *sim_phase_of(const Sim *s, const Stream *stream) {
    return &s->in->phase[s->in->phase_ptr[stream->plan] + stream->phase];
}

int32_t sim_member(const Sim *s, const Stream *stream, const Phase *p, int32_t place) {
    if (p->stride == 0) return s->in->group_rank[s->in->group_ptr[stream->group] + place];
    int32_t own = stream->rank / p->stride % p->members;
    return stream->rank + (place - own) * p->stride;
}

int32_t sim_place_of(const Stream *stream, const Phase *p) {
    return p->stride == 0 ? stream->place : stream->rank / p->stride % p->members;
}

static int is_power_step(const Phase *p, int32_t packet, int32_t *shift) {
    /* Halving-doubling: packet j uses offset 2^shift; returns the number of halvings of its size. */
    int32_t rounds = 0;
    while ((1 << rounds) < p->members) rounds++;
    if (p->type == PHASE_ALL_GATHER)
        *shift = packet < rounds ? rounds - 1 - packet : 0;
    else
        *shift = packet < rounds ? packet : (2 * rounds - 1 - packet < 0 ? 0 : 2 * rounds - 1 - packet);
    return *shift + 1;
}

/* Size in bytes and partners of the packet-th message. */
int64_t sim_message_of(const Sim *s, const Stream *stream, int32_t packet, int32_t *to, int32_t *from) {
    const Phase *p = sim_phase_of(s, stream);
    int32_t n = p->members, own = sim_place_of(stream, p);
    int32_t back = stream->anticlockwise >> stream->phase & 1;
    if (p->algorithm == ALGORITHM_HALVING) {
        int32_t shift;
        int halvings = is_power_step(p, packet, &shift);
        int32_t offset = 1 << shift;
        int32_t partner = own / offset % 2 == 0 ? own + offset : own - offset;
        *to = *from = sim_member(s, stream, p, partner);
        if (p->type == PHASE_ALL_GATHER) return p->size << packet;
        return p->size >> halvings;
    }
    int32_t step = p->algorithm == ALGORITHM_DIRECT ? 1 + packet % (n - 1) : 1;
    int32_t ahead = (own + step) % n, behind = (own + n - step) % n;
    *to = sim_member(s, stream, p, back ? behind : ahead);
    *from = sim_member(s, stream, p, back ? ahead : behind);
    return p->type == PHASE_ALL_GATHER ? p->size : p->size / n;
}

int32_t sim_messages_to_send(const Phase *p) {
    int32_t n = p->members, rounds = 0;
    while ((1 << rounds) < n) rounds++;
    int32_t once = p->algorithm == ALGORITHM_HALVING ? rounds : n - 1;
    if (p->type == PHASE_ALL_REDUCE) return 2 * once;
    if (p->type == PHASE_ALL_TO_ALL && p->algorithm == ALGORITHM_RING) return n * (n - 1) / 2;
    return once;
}

static int32_t costly_packets(const Phase *p) {
    if (p->algorithm == ALGORITHM_RING) return p->members - 1;
    if (p->algorithm == ALGORITHM_DIRECT) return p->stride == 0 ? (p->members - 1) * p->window : p->window;
    int32_t rounds = 0;
    while ((1 << rounds) < p->members) rounds++;
    return rounds - 1;
}

static int64_t reduce_ns(const Sim *s, int64_t size) {
    if (s->in->reduce_bandwidth <= 0) return 0;
    return 3 * (int64_t)((double)size / s->in->reduce_bandwidth);
}

int64_t sim_endpoint_ns(const Sim *s, const Phase *p) {
    return p->stride == 0 ? s->in->group_delay : s->in->endpoint_delay;
}

/* Time to reduce that the packet-th packet takes on top of the endpoint delay, -1 for none. Packets
 * are counted in cycles of `window` cheap and then some costly ones. */
int64_t sim_packet_cost(const Sim *s, const Stream *stream, int32_t packet) {
    const Phase *p = sim_phase_of(s, stream);
    int32_t length = p->window + costly_packets(p), to, from;
    int costly = packet % length >= p->window, odd_cycle = packet / length % 2 == 0;
    if (!costly || p->type == PHASE_ALL_GATHER || p->type == PHASE_ALL_TO_ALL) return -1;
    if (p->type == PHASE_ALL_REDUCE && !odd_cycle) return -1;
    return reduce_ns(s, sim_message_of(s, stream, packet, &to, &from));
}

static void endpoint(Sim *s, int32_t index, int64_t reduce) {
    const Stream *stream = &POOL(s, Stream, stream, index);
    int64_t delay = sim_endpoint_ns(s, sim_phase_of(s, stream));
    sim_register(s, stream->rank, delay, EVENT_PACKET, index, reduce);
}

/* A packet's endpoint delay is over; -1 stands for "nothing to reduce". */
void sim_packet(Sim *s, int32_t index, int64_t reduce) {
    if (reduce < 0)
        sim_packet_done(s, index);
    else
        sim_register(s, POOL(s, Stream, stream, index).rank, reduce, EVENT_REDUCED, index, 0);
}

static void insert_packet(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    endpoint(s, index, sim_packet_cost(s, stream, stream->inserted++));
}

static void send_to(Sim *s, int32_t index, int32_t to, int64_t size) {
    const Stream *stream = &POOL(s, Stream, stream, index);
    Callback nothing = {CALL_NOTHING, CALL_NOTHING, stream->rank, index, -1, 0, 0};
    sim_front_send(s, stream->rank, to, stream->tag, size, nothing);
}

static void recv_from(Sim *s, int32_t index, int32_t from, int64_t size) {
    const Stream *stream = &POOL(s, Stream, stream, index);
    Callback received = {CALL_STREAM_RECEIVED, CALL_NOTHING, stream->rank, index, -1, 0, 0};
    sim_front_recv(s, stream->rank, from, stream->tag, size, received);
}

static void try_send(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    if (stream->sent == stream->inserted || stream->to_send == 0 || stream->free_packets == 0) return;
    int32_t to, from;
    int64_t size = sim_message_of(s, stream, stream->sent, &to, &from);
    stream->sent++;
    stream->to_send--;
    stream->free_packets--;
    send_to(s, index, to, size);
    recv_from(s, index, from, size);
}

/* ---- double binary tree: the whole chunk goes up one tree and down again ---- */

/* In-order numbered full binary tree of n-1 nodes under a root with one child; the root is the
 * last place (first tree) or the first place (second tree). */
TreeNode sim_tree_node(const Stream *stream, const Phase *p) {
    int32_t n = p->members, second = stream->second_tree >> stream->phase & 1;
    int32_t own = sim_place_of(stream, p), root = second ? 0 : n - 1, shift = second ? 0 : 1;
    if (own == root) return (TreeNode){-1, n / 2 - shift, -1};
    int32_t j = own + shift, low = j & -j; /* 1-based in-order number of the full tree */
    TreeNode node = {root, -1, -1};
    if (j != n / 2) node.parent = ((j ^ low) | (low << 1)) - shift;
    if (low > 1) {
        node.left = j - low / 2 - shift;
        node.right = j + low / 2 - shift;
    }
    return node;
}

static void tree_start(Sim *s, int32_t index) {
    const Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    TreeNode node = sim_tree_node(stream, p);
    if (node.left < 0) {
        endpoint(s, index, -1);
        return;
    }
    int32_t left = sim_member(s, stream, p, node.left);
    int32_t right = node.right < 0 ? -1 : sim_member(s, stream, p, node.right);
    recv_from(s, index, left, p->size);
    if (right >= 0) recv_from(s, index, right, p->size);
}

static void tree_packet_done(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    TreeNode node = sim_tree_node(stream, p);
    int32_t parent = node.parent < 0 ? -1 : sim_member(s, stream, p, node.parent);
    int32_t left = node.left < 0 ? -1 : sim_member(s, stream, p, node.left);
    int32_t right = node.right < 0 ? -1 : sim_member(s, stream, p, node.right);
    int32_t through = ++stream->inserted;
    int32_t before_up = node.left < 0 ? 1 : (node.right < 0 ? 1 : 2);
    int64_t size = p->size;
    if (through < before_up) return;
    if (through == before_up && parent >= 0) {
        send_to(s, index, parent, size);
        recv_from(s, index, parent, size);
        return;
    }
    if (left >= 0) send_to(s, index, left, size);
    if (right >= 0) send_to(s, index, right, size);
    sim_next_phase(s, index);
}

/* ---- what drives the algorithms ---- */

void sim_received(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    if (p->algorithm == ALGORITHM_TREE) {
        endpoint(s, index, sim_tree_node(stream, p).left < 0 ? -1 : reduce_ns(s, p->size));
        return;
    }
    stream->received++;
    insert_packet(s, index);
}

void sim_packet_done(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    if (p->algorithm == ALGORITHM_TREE) {
        tree_packet_done(s, index);
        return;
    }
    stream->free_packets++;
    int32_t half = p->members - 1, tries = 1;
    if (p->algorithm == ALGORITHM_DIRECT && p->type == PHASE_ALL_REDUCE && stream->to_send <= half) {
        if (stream->received < half) return;
        tries = p->window;
    }
    while (tries-- > 0) try_send(s, index);
    stream = &POOL(s, Stream, stream, index);
    if (stream->to_send == 0 && stream->free_packets == p->window) sim_next_phase(s, index);
}

static void start(Sim *s, int32_t index) {
    if (s->in->solve_runs) {
        sim_join(s, index);
        return;
    }
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    stream->inserted = stream->sent = stream->free_packets = stream->received = 0;
    if (p->algorithm == ALGORITHM_TREE) {
        tree_start(s, index);
        return;
    }
    stream->to_send = sim_messages_to_send(p);
    for (int32_t w = p->window; w > 0; w--) insert_packet(s, index);
}

/* ---- queues: a dimension runs a few chunks at once, first come first served ---- */

static Queue *queue_of(Sim *s, const Stream *stream) {
    int64_t dim = sim_phase_of(s, stream)->dimension;
    int64_t at = (stream->rank * s->in->num_dims + dim) * s->in->queues_per_dim;
    return &s->queue[at + stream->queue[stream->phase]];
}

static void enqueue(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    Queue *queue = queue_of(s, stream);
    stream->next = -1;
    if (queue->head < 0)
        queue->head = index;
    else
        POOL(s, Stream, stream, queue->tail).next = index;
    queue->tail = index;
}

static void fill(Sim *s, Queue *queue) {
    while (queue->head >= 0 && queue->running < s->in->active_per_queue) {
        int32_t index = queue->head;
        queue->head = POOL(s, Stream, stream, index).next;
        queue->running++;
        start(s, index);
    }
}

/* The running phase is over: tell the node if it was the last, else queue for the next one. The
 * slot in the old queue is freed only then, which is the reference's order. */
void sim_next_phase(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    Queue *old = queue_of(s, stream);
    int64_t phases = s->in->phase_ptr[stream->plan + 1] - s->in->phase_ptr[stream->plan];
    if (stream->phase + 1 == phases) {
        int32_t rank = stream->rank, node = stream->node;
        sim_give(&s->stream, index);
        if (--s->rank[rank].collective_chunks == 0) sim_node_done(s, rank, node);
        old->running--;
        fill(s, old);
        return;
    }
    stream->phase++;
    Queue *next = queue_of(s, stream);
    if (next->entered == s->now && next->twin != stream->twin) s->order_matters = 1;
    next->entered = s->now;
    next->twin = stream->twin;
    enqueue(s, index);
    old->running--;
    fill(s, old);
    fill(s, next);
}

static void choose_queues(Sim *s, Stream *stream) {
    const Input *in = s->in;
    int64_t first = in->phase_ptr[stream->plan], last = in->phase_ptr[stream->plan + 1];
    int32_t queues = (int32_t)in->queues_per_dim, half = queues / 2;
    int32_t trees = 4 * (int32_t)in->num_dims;
    for (int64_t i = first; i < last; i++) {
        const Phase *p = &in->phase[i];
        int32_t bit = 1 << (i - first);
        int32_t *turn = &s->turn[(stream->rank * in->num_dims + p->dimension) * 3 + p->queue_choice];
        int32_t lowest = p->queue_choice == QUEUE_UPPER_HALF ? half : 0;
        int32_t count = p->queue_choice == QUEUE_ROUND_ROBIN ? queues
                      : p->queue_choice == QUEUE_UPPER_HALF  ? queues - half
                                                             : (half ? half : 1);
        int32_t chosen = lowest + *turn;
        *turn = (*turn + 1) % count;
        stream->queue[i - first] = (int16_t)chosen;
        int back = p->queue_choice == QUEUE_UPPER_HALF ||
                   (p->queue_choice == QUEUE_ROUND_ROBIN && queues > 1 && chosen >= half);
        if (back) stream->anticlockwise |= bit;
        if (p->algorithm == ALGORITHM_TREE) {
            uint8_t *tree = &s->tree_turn[stream->rank * trees + p->tree_counter];
            if (*tree) stream->second_tree |= bit;
            *tree = !*tree;
        }
    }
}

void sim_collective_issue(Sim *s, int32_t rank, int32_t node, int32_t plan, int64_t group) {
    const Input *in = s->in;
    int64_t row = -1;
    if (group >= 0)
        for (row = in->rank_group_ptr[rank]; in->rank_group[row] != group; row++) {}
    s->rank[rank].collective_chunks = in->chunks[plan];
    for (int32_t chunk = in->chunks[plan]; chunk > 0; chunk--) {
        int32_t index = sim_take(s, &s->stream);
        Stream *stream = &POOL(s, Stream, stream, index);
        memset(stream, 0, sizeof *stream);
        stream->rank = rank;
        stream->node = node;
        stream->plan = plan;
        stream->group = (int32_t)group;
        stream->place = row >= 0 ? in->rank_place[row] : 0;
        int64_t own = s->rank[rank].next_stream++;
        int64_t id = row >= 0 ? in->group_tag[group] + s->group_turn[row]++ : own;
        stream->tag = 500000000 + id;
        choose_queues(s, stream);
        enqueue(s, index);
        fill(s, queue_of(s, stream));
    }
}
