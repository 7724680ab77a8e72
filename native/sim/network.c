/* Messages of the simulator: transfer times, links, and matching of sends with receives. */
#include "sim.h"

#include <string.h>

enum { HANDSHAKE_BYTES = 8192 };
static const int64_t HANDSHAKE_TAG = 500000000;

/* ---- transfer ---- */

static int32_t ring_distance(int32_t from, int32_t to, int32_t n) {
    int32_t clockwise = to >= from ? to - from : to - from + n;
    return clockwise <= n - clockwise ? clockwise : n - clockwise;
}

/* Only the lowest dimension in which the two differ is charged; no link is shared. */
int64_t sim_transfer_ns(const Input *in, int32_t src, int32_t dst, int64_t size) {
    for (int64_t d = 0; d < in->num_dims; d++) {
        int32_t n = in->dim_size[d], from = src % n, to = dst % n;
        if (from == to) {
            src /= n, dst /= n;
            continue;
        }
        int32_t hops = 1;
        if (in->dim_type[d] == TOPOLOGY_RING) hops = ring_distance(from, to, n);
        if (in->dim_type[d] == TOPOLOGY_SWITCH) hops = 2;
        double link_ns = hops * in->dim_latency[d];
        double serial_ns = (double)size / in->dim_bandwidth[d];
        return (int64_t)(link_ns + serial_ns);
    }
    return 0;
}

/* Directed links with queues. Dimension d owns a block of them: two a rank for a ring (clockwise,
 * anticlockwise) and a switch (up, down), one for each pair of neighbors when fully connected.
 * Devices are the ranks and, behind them, one switch for each dimension and line of ranks. */
static int64_t links_of(const Input *in, int64_t d) {
    int full = in->dim_type[d] == TOPOLOGY_FULLY_CONNECTED;
    return in->num_ranks * (full ? in->dim_size[d] : 2);
}

int64_t sim_num_links(const Input *in) {
    int64_t total = 0;
    for (int64_t d = 0; d < in->num_dims && in->congestion_aware; d++) total += links_of(in, d);
    return total;
}

typedef struct {
    int32_t dimension, device; /* where it leads */
    int64_t link;
} Hop;

/* Messages cross the dimensions in which they must move in ascending order. */
static Hop next_hop(const Input *in, const Message *m) {
    int32_t ranks = (int32_t)in->num_ranks, d = 0, stride = 1;
    int64_t first = 0;
    int32_t up = m->at >= ranks ? (m->at - ranks) / ranks : -1; /* dimension of the switch we are at */
    int32_t at = up < 0 ? m->at : (m->at - ranks) % ranks;
    while (up >= 0 ? d != up : at / stride % in->dim_size[d] == m->dst / stride % in->dim_size[d]) {
        first += links_of(in, d);
        stride *= in->dim_size[d++];
    }
    int32_t n = in->dim_size[d], own = at / stride % n, to = m->dst / stride % n;
    int32_t line = at - own * stride, target = line + to * stride;
    if (in->dim_type[d] == TOPOLOGY_FULLY_CONNECTED) return (Hop){d, target, first + (int64_t)at * n + to};
    if (in->dim_type[d] == TOPOLOGY_SWITCH) {
        if (up < 0) return (Hop){d, ranks + d * ranks + line, first + 2 * (int64_t)at};
        return (Hop){d, target, first + 2 * (int64_t)target + 1};
    }
    int32_t clockwise = to >= own ? to - own : to - own + n;
    int forward = clockwise <= n - clockwise;
    int32_t next = forward ? (own + 1) % n : (own + n - 1) % n;
    return (Hop){d, line + next * stride, first + 2 * (int64_t)at + !forward};
}

static void transmit(Sim *s, int32_t message, Hop hop) {
    Message *m = &POOL(s, Message, message, message);
    m->at = hop.device;
    double serial_ns = (double)m->size / s->in->dim_bandwidth[hop.dimension];
    s->link[hop.link].busy = 1;
    sim_schedule(s, s->now + (int64_t)(s->in->dim_latency[hop.dimension] + serial_ns), EVENT_HOP, message, 0);
    sim_schedule(s, s->now + (int64_t)serial_ns, EVENT_LINK_FREE, 0, hop.link);
}

void sim_leave(Sim *s, int32_t message) {
    Message *m = &POOL(s, Message, message, message);
    Hop hop = next_hop(s->in, m);
    Link *link = &s->link[hop.link];
    if (!link->busy) {
        transmit(s, message, hop);
        return;
    }
    FIFO_APPEND(s, Message, message, link, message);
}

void sim_link_free(Sim *s, int64_t index) {
    Link *link = &s->link[index];
    link->busy = 0;
    if (link->head < 0) return;
    int32_t message = link->head;
    link->head = POOL(s, Message, message, message).next;
    transmit(s, message, next_hop(s->in, &POOL(s, Message, message, message)));
}

/* A solved run has the link of two neighbors for a while, alone; where it cannot, messages are sent. */
void sim_reserve_link(Sim *s, int32_t from, int32_t to, int32_t dimension, int64_t begin, int64_t end) {
    Message m = {from, to, from, -1, NO_SWITCH, 0, 0, {0}};
    Hop hop = next_hop(s->in, &m);
    Link *link = &s->link[hop.link];
    if (hop.device != to || hop.dimension != dimension || begin < link->reserved) s->order_matters = 1;
    link->reserved = end;
}

void sim_hop(Sim *s, int32_t message) {
    const Message *m = &POOL(s, Message, message, message);
    if (m->at == m->dst) {
        sim_arrive(s, message);
    } else if (m->run >= 0 && m->at >= s->in->num_ranks) {
        int32_t run = m->run;
        sim_give(&s->message, message);
        sim_switch_arrive(s, run);
    } else {
        sim_leave(s, message);
    }
}

/* ---- matching on (tag, src, dst, size) and order ---- */

static uint64_t hash(int64_t tag, int32_t src, int32_t dst, int64_t size) {
    uint64_t h = (uint64_t)tag * 0x9E3779B97F4A7C15u ^ (uint64_t)size * 0xC2B2AE3D27D4EB4Fu;
    h ^= ((uint64_t)(uint32_t)src << 32 | (uint32_t)dst) * 0x165667B19E3779F9u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ h >> 32;
}

static void rehash(Sim *s) {
    int64_t old_room = s->match_room, room = old_room;
    int32_t *old = s->match_table;
    int32_t *table = sim_grow(s, 0, &room, sizeof(int32_t));
    memset(table, -1, (size_t)room * sizeof(int32_t));
    for (int64_t i = 0; i < old_room; i++)
        for (int32_t at = old[i], next; at >= 0; at = next) {
            Match *m = &POOL(s, Match, match, at);
            next = m->next;
            int32_t *head = &table[hash(m->tag, m->src, m->dst, m->size) & (uint64_t)(room - 1)];
            m->next = *head;
            *head = at;
        }
    s->match_table = table;
    s->match_room = room;
    sim_release(old);
}

int32_t sim_find(Sim *s, int64_t tag, int32_t src, int32_t dst, int64_t size) {
    if (s->match_used >= s->match_room) rehash(s);
    int32_t *head = &s->match_table[hash(tag, src, dst, size) & (uint64_t)(s->match_room - 1)];
    for (int32_t at = *head; at >= 0; at = POOL(s, Match, match, at).next) {
        const Match *m = &POOL(s, Match, match, at);
        if (m->tag == tag && m->src == src && m->dst == dst && m->size == size) return at;
    }
    int32_t index = sim_take(s, &s->match);
    POOL(s, Match, match, index) = (Match){tag, size, src, dst, *head, 0, -1, -1};
    *head = index;
    s->match_used++;
    return index;
}

void sim_forget_if_settled(Sim *s, int32_t index) {
    const Match *m = &POOL(s, Match, match, index);
    if (m->arrived || m->head >= 0) return;
    uint64_t slot = hash(m->tag, m->src, m->dst, m->size) & (uint64_t)(s->match_room - 1);
    int32_t *from = &s->match_table[slot];
    while (*from != index) from = &POOL(s, Match, match, *from).next;
    *from = m->next;
    sim_give(&s->match, index);
    s->match_used--;
}

void sim_send(Sim *s, int32_t src, int32_t dst, int64_t tag, int64_t size, Callback sent) {
    int32_t index = sim_take(s, &s->message);
    POOL(s, Message, message, index) = (Message){src, dst, src, -1, NO_SWITCH, tag, size, sent};
    if (s->in->congestion_aware) {
        sim_leave(s, index);
        return;
    }
    sim_schedule(s, s->now + sim_transfer_ns(s->in, src, dst, size), EVENT_ARRIVAL, index, 0);
}

/* The same where links are not shared and the receiver may be one that stands for it: the message takes
 * its own time, and is known by the names that the receiver has for it. */
void sim_send_alike(Sim *s, int32_t rank, int64_t role, int64_t tag, int64_t size, Callback sent) {
    const Input *in = s->in;
    int32_t index = sim_take(s, &s->message), to = in->role[role], dst = in->representative[to];
    POOL(s, Message, message, index) = (Message){in->sender[role], dst, -1, -1, NO_SWITCH, tag, size, sent};
    int64_t time = sim_transfer_ns(in, in->number[rank], to, size);
    /* A message that takes no time carries the order of one rank's tick into another's. */
    if (time == 0 || in->congestion_aware) s->order_matters = 1;
    sim_schedule(s, s->now + time, EVENT_ARRIVAL, index, 0);
}

void sim_arrive(Sim *s, int32_t message) {
    Message m = POOL(s, Message, message, message);
    sim_give(&s->message, message);
    if (m.run == FROM_SWITCH) {
        sim_call(s, m.sent);
        return;
    }
    int32_t index = sim_find(s, m.tag, m.src, m.dst, m.size);
    Match *match = &POOL(s, Match, match, index);
    if (match->head < 0) {
        match->arrived++;
        sim_call(s, m.sent);
        return;
    }
    int32_t waiter = match->head;
    Callback received = POOL(s, Waiter, waiter, waiter).call;
    match->head = POOL(s, Waiter, waiter, waiter).next;
    sim_give(&s->waiter, waiter);
    sim_forget_if_settled(s, index);
    sim_call(s, m.sent);
    sim_call(s, received);
}

void sim_recv(Sim *s, int32_t dst, int32_t src, int64_t tag, int64_t size, Callback received) {
    int32_t index = sim_find(s, tag, src, dst, size);
    int32_t waiter = sim_take(s, &s->waiter);
    POOL(s, Waiter, waiter, waiter) = (Waiter){received, -1};
    Match *match = &POOL(s, Match, match, index);
    if (match->arrived) {
        match->arrived--;
        sim_forget_if_settled(s, index);
        sim_schedule(s, s->now, EVENT_CALL, waiter, 0);
        return;
    }
    FIFO_APPEND(s, Waiter, waiter, match, waiter);
}

/* ---- rendezvous: the receiver asks first ---- */

void sim_front_send(Sim *s, int32_t src, int32_t dst, int64_t tag, int64_t size, Callback sent) {
    if (!s->in->rendezvous) {
        sim_send(s, src, dst, tag, size, sent);
        return;
    }
    Callback post = {CALL_POST_SEND, sent.kind, src, sent.ref, dst, tag, size};
    sim_recv(s, src, dst, tag + HANDSHAKE_TAG, HANDSHAKE_BYTES, post);
}

void sim_front_recv(Sim *s, int32_t dst, int32_t src, int64_t tag, int64_t size, Callback received) {
    if (!s->in->rendezvous) {
        sim_recv(s, dst, src, tag, size, received);
        return;
    }
    Callback post = {CALL_POST_RECV, received.kind, dst, received.ref, src, tag, size};
    sim_send(s, dst, src, tag + HANDSHAKE_TAG, HANDSHAKE_BYTES, post);
}

void sim_call(Sim *s, Callback call) {
    Callback then = {call.then, CALL_NOTHING, call.rank, call.ref, -1, 0, 0};
    switch (call.kind) {
    case CALL_NODE_DONE: sim_node_done(s, call.rank, call.ref); break;
    case CALL_STREAM_RECEIVED: sim_received(s, call.ref); break;
    case CALL_POST_SEND: sim_send(s, call.rank, call.peer, call.tag, call.size, then); break;
    case CALL_POST_RECV: sim_recv(s, call.rank, call.peer, call.tag, call.size, then); break;
    default: break;
    }
}

/* ---- what is left open at the end ---- */

static void write_row(int64_t *rows, int64_t row, const int64_t *values) {
    memcpy(rows + 1 + 5 * row, values, 5 * sizeof(int64_t));
}

/* Each list begins with its number of entries, rows follow; at most four waits per rank are reported. */
void sim_list_open(Sim *s, int64_t *waits, int64_t *orphans, int64_t max_rows) {
    int64_t num_waits = 0, num_orphans = 0;
    for (int64_t r = 0; r < s->in->num_ranks; r++) s->rank[r].same_tick.count = 0;
    for (int64_t i = 0; i < s->match_room; i++)
        for (int32_t at = s->match_table[i]; at >= 0; at = POOL(s, Match, match, at).next) {
            Match m = POOL(s, Match, match, at);
            if (m.size < 0) {
                num_waits = sim_switch_waits(s, &m, waits, num_waits, max_rows);
                continue;
            }
            if (m.arrived && num_orphans < max_rows)
                write_row(orphans, num_orphans++, (int64_t[]){m.src, m.dst, m.tag, m.size, m.arrived});
            for (int32_t w = m.head; w >= 0; w = POOL(s, Waiter, waiter, w).next) {
                Callback c = POOL(s, Waiter, waiter, w).call;
                int32_t kind = c.kind == CALL_POST_SEND ? c.then : c.kind, node = c.ref;
                if (kind == CALL_STREAM_RECEIVED) node = POOL(s, Stream, stream, c.ref).node;
                if (kind == CALL_NOTHING) node = POOL(s, Stream, stream, c.ref).node;
                if (num_waits == max_rows || s->rank[m.dst].same_tick.count++ >= 4) break;
                write_row(waits, num_waits++, (int64_t[]){m.dst, node, m.src, m.tag, m.size});
            }
        }
    waits[0] = num_waits;
    orphans[0] = num_orphans;
}
