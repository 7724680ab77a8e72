/* In-network collectives: the switch of a dimension sums or copies what its ranks send.
 *
 * Every member sends its data up once, after its endpoint delay; when all are in, every member gets
 * the result once and pays another endpoint delay. Where links are not shared the switch works on
 * the data as it streams through, so that the result is there one message of the larger direction
 * after the last member's start. Where they are, it stores and forwards, as every switch does then. */
#include "sim.h"

#include <string.h>

static int64_t bytes_up(const Phase *p, int32_t position) {
    return p->type == PHASE_BROADCAST && position > 0 ? 0 : p->size;
}

static int64_t bytes_down(const Phase *p) {
    if (p->type == PHASE_REDUCE_SCATTER) return p->size / p->members;
    return p->type == PHASE_ALL_GATHER ? p->size * p->members : p->size;
}

static int64_t through_ns(const Sim *s, const Stream *first, const Phase *p) {
    int64_t up = bytes_up(p, 0), down = bytes_down(p);
    int32_t from = sim_member(s, first, p, 0), to = sim_member(s, first, p, 1);
    return sim_transfer_ns(s->in, from, to, up > down ? up : down);
}

void sim_solve_switch(const Sim *s, const Run *run, const Stream *first) {
    const Phase *p = sim_phase_of(s, first);
    int64_t last = run->start[0];
    for (int32_t i = 1; i < run->members; i++) last = sim_later(last, run->start[i]);
    int64_t end = last + 2 * sim_endpoint_ns(s, p) + through_ns(s, first, p);
    for (int32_t i = 0; i < run->members; i++) run->start[i] = end;
}

/* Ranks meet at a switch if tag, line of ranks or group, phase, type and size agree. */
static int32_t find(Sim *s, const Stream *stream, const Phase *p) {
    int32_t base = p->stride == 0 ? -1 - stream->group : sim_member(s, stream, p, 0);
    return sim_find(s, stream->tag, base, stream->phase, -2 - (p->size * 8 + p->type));
}

static Callback received(const Sim *s, int32_t index) {
    int32_t rank = POOL(s, Stream, stream, index).rank;
    return (Callback){CALL_STREAM_RECEIVED, CALL_NOTHING, rank, index, -1, 0, 0};
}

static void answer(Sim *s, const Run *run) {
    for (int32_t i = 0; i < run->members; i++) {
        const Stream *stream = &POOL(s, Stream, stream, run->stream[i]);
        const Phase *p = sim_phase_of(s, stream);
        if (!s->in->congestion_aware) {
            int64_t time = s->now + through_ns(s, stream, p);
            int32_t waiter = sim_take(s, &s->waiter);
            POOL(s, Waiter, waiter, waiter) = (Waiter){received(s, run->stream[i]), -1};
            sim_schedule(s, time, EVENT_CALL, waiter, 0);
            continue;
        }
        int32_t ranks = (int32_t)s->in->num_ranks, d = p->dimension, stride = 1,
                index = sim_take(s, &s->message);
        for (int32_t k = 0; k < d; k++) stride *= s->in->dim_size[k];
        int32_t own = stream->rank / stride % s->in->dim_size[d];
        int32_t device = ranks + d * ranks + stream->rank - own * stride;
        POOL(s, Message, message, index) = (Message){stream->rank, stream->rank, device, -1, FROM_SWITCH, 0,
            bytes_down(p), received(s, run->stream[i])};
        sim_leave(s, index);
    }
}

/* The data of one more member is at the switch. */
void sim_switch_arrive(Sim *s, int32_t index) {
    Run *run = &POOL(s, Run, run, index);
    if (++run->joined < run->members) return;
    const Stream *first = &POOL(s, Stream, stream, run->stream[0]);
    int32_t entry = find(s, first, sim_phase_of(s, first));
    POOL(s, Match, match, entry).arrived = 0;
    sim_forget_if_settled(s, entry);
    answer(s, run);
    sim_release(run->start);
    run->start = 0;
    sim_give(&s->run, index);
}

/* A member has paid its endpoint delay: it sends up. */
void sim_switch_enter(Sim *s, int32_t index) {
    const Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    int32_t entry = find(s, stream, p), position = sim_position_of(stream, p);
    if (POOL(s, Match, match, entry).arrived == 0) {
        int32_t made = sim_open_run(s, stream, p->members);
        POOL(s, Match, match, entry).arrived = made + 1;
    }
    int32_t number = POOL(s, Match, match, entry).arrived - 1;
    POOL(s, Run, run, number).stream[position] = index;
    if (!s->in->congestion_aware || bytes_up(p, position) == 0) {
        sim_switch_arrive(s, number);
        return;
    }
    int32_t message = sim_take(s, &s->message), other = sim_member(s, stream, p, (position + 1) % p->members);
    Callback nothing = {CALL_NOTHING, CALL_NOTHING, stream->rank, index, -1, 0, 0};
    POOL(s, Message, message, message) = (Message){
        stream->rank, other, stream->rank, -1, number, stream->tag, bytes_up(p, position), nothing};
    sim_leave(s, message);
}

/* Members that a switch keeps waiting: rows of (rank, node, first missing rank, tag, bytes). */
int64_t sim_switch_waits(const Sim *s, const Match *match, int64_t *rows, int64_t used, int64_t max_rows) {
    if (match->size == -1) return used; /* a run to be solved: its outcome is discarded */
    const Run *run = &POOL(s, Run, run, match->arrived - 1);
    int32_t present = 0, missing = 0;
    while (run->stream[present] < 0) present++;
    while (missing < run->members && run->stream[missing] >= 0) missing++;
    if (missing == run->members) return used;
    const Stream *first = &POOL(s, Stream, stream, run->stream[present]);
    const Phase *p = sim_phase_of(s, first);
    int64_t awaited = sim_member(s, first, p, missing);
    for (int32_t i = 0; i < run->members && used < max_rows; i++) {
        if (run->stream[i] < 0) continue;
        const Stream *stream = &POOL(s, Stream, stream, run->stream[i]);
        int64_t row[] = {stream->rank, stream->node, awaited, stream->tag, p->size};
        memcpy(rows + 1 + 5 * used++, row, sizeof row);
    }
    return used;
}
