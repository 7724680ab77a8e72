/* Collectives of the simulator: chunks, their queues, and the algorithms that move them.
 *
 * An algorithm is driven by "packets": `window` of them at its start and one for every message
 * received. A packet becomes a right to send one message after an endpoint delay, and for some
 * packets after the time to reduce what was received (docs/reference/simulator.md, "Collectives"). */
#include "sim.h"

#include <string.h>

const Phase *sim_phase_of(const Sim *s, const Stream *stream) {
    return &s->in->phase[s->in->phase_ptr[stream->plan] + stream->phase];
}

int32_t sim_member(const Sim *s, const Stream *stream, const Phase *p, int32_t position) {
    if (p->stride == 0) return s->in->group_rank[s->in->group_ptr[stream->group] + position];
    int32_t own = stream->number / p->stride % p->members;
    return stream->number + (position - own) * p->stride;
}

int32_t sim_position_of(const Stream *stream, const Phase *p) {
    return p->stride == 0 ? stream->position : stream->number / p->stride % p->members;
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
    int32_t n = p->members, own = sim_position_of(stream, p);
    int32_t back = stream->anticlockwise >> stream->phase & 1;
    if (p->algorithm == ALGORITHM_HALVING_DOUBLING) {
        int32_t shift;
        int halvings = is_power_step(p, packet, &shift);
        int32_t offset = 1 << shift;
        int32_t partner = own / offset % 2 == 0 ? own + offset : own - offset;
        *to = *from = sim_member(s, stream, p, partner);
        if (p->type == PHASE_ALL_GATHER) return p->size << packet;
        /* The reference keeps one integer: it halves once more before it doubles. */
        int32_t rounds = sim_messages_to_send(p) / 2;
        if (p->type == PHASE_ALL_REDUCE && packet >= rounds)
            return p->size >> (rounds + 1) << (packet - rounds + 1);
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
    int32_t once = p->algorithm == ALGORITHM_HALVING_DOUBLING ? rounds : n - 1;
    if (p->type == PHASE_ALL_REDUCE) return 2 * once;
    if (p->type == PHASE_ALL_TO_ALL && p->algorithm == ALGORITHM_RING)
        return (int32_t)((int64_t)n * (n - 1) / 2);
    return once;
}

static int64_t costly_packets(const Phase *p) {
    int64_t others = p->members - 1;
    if (p->algorithm == ALGORITHM_RING) return others;
    if (p->algorithm == ALGORITHM_DIRECT) return p->stride == 0 ? others * p->window : p->window;
    int32_t rounds = 0;
    while ((1 << rounds) < p->members) rounds++;
    return rounds - 1;
}

int64_t sim_reduce_ns(const Sim *s, int64_t size) {
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
    int64_t length = p->window + costly_packets(p);
    int32_t to, from;
    int costly = packet % length >= p->window, odd_cycle = packet / length % 2 == 0;
    if (!costly || p->type == PHASE_ALL_GATHER || p->type == PHASE_ALL_TO_ALL) return -1;
    if (p->type == PHASE_ALL_REDUCE && !odd_cycle) return -1;
    return sim_reduce_ns(s, sim_message_of(s, stream, packet, &to, &from));
}

void sim_endpoint(Sim *s, int32_t index, int64_t reduce) {
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
    sim_endpoint(s, index, sim_packet_cost(s, stream, stream->inserted++));
}

void sim_send_to(Sim *s, int32_t index, int32_t to, int64_t size) {
    const Stream *stream = &POOL(s, Stream, stream, index);
    Callback nothing = {CALL_NOTHING, CALL_NOTHING, stream->rank, index, -1, 0, 0};
    sim_front_send(s, stream->rank, to, stream->tag, size, nothing);
}

void sim_recv_from(Sim *s, int32_t index, int32_t from, int64_t size) {
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
    sim_send_to(s, index, to, size);
    sim_recv_from(s, index, from, size);
}

/* ---- what drives the algorithms ---- */

void sim_received(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    if (p->algorithm == ALGORITHM_DOUBLE_BINARY_TREE) {
        sim_endpoint(s, index, sim_tree_node(stream, p).left < 0 ? -1 : sim_reduce_ns(s, p->size));
        return;
    }
    if (p->algorithm == ALGORITHM_IN_NETWORK) {
        sim_endpoint(s, index, -1);
        return;
    }
    stream->received++;
    insert_packet(s, index);
}

void sim_packet_done(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    if (p->algorithm == ALGORITHM_DOUBLE_BINARY_TREE) {
        sim_tree_packet_done(s, index);
        return;
    }
    if (p->algorithm == ALGORITHM_IN_NETWORK) {
        if (stream->inserted++ == 0)
            sim_switch_enter(s, index);
        else
            sim_next_phase(s, index);
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

void sim_start(Sim *s, int32_t index) {
    if (s->in->solve_runs) {
        sim_join(s, index);
        return;
    }
    Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    stream->inserted = stream->sent = stream->free_packets = stream->received = 0;
    if (p->algorithm == ALGORITHM_DOUBLE_BINARY_TREE) {
        sim_tree_start(s, index);
        return;
    }
    if (p->algorithm == ALGORITHM_IN_NETWORK) {
        sim_endpoint(s, index, -1);
        return;
    }
    stream->to_send = sim_messages_to_send(p);
    for (int32_t w = p->window; w > 0; w--) insert_packet(s, index);
}
