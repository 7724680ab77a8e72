/* Event queue of the simulator: pools, the FIFO of each tick, and the main loop. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

void *sim_grow(Sim *s, void *data, int64_t *room, int64_t width) {
    int64_t larger = *room ? 2 * *room : 64;
    void *grown = realloc(data, (size_t)(larger * width));
    if (!grown) longjmp(s->out_of_memory, 1);
    *room = larger;
    return grown;
}

void *sim_block(Sim *s, int64_t count, int64_t width) {
    void *block = calloc((size_t)(count > 0 ? count : 1), (size_t)width);
    if (!block) longjmp(s->out_of_memory, 1);
    s->blocks[s->num_blocks++] = block;
    return block;
}

int32_t sim_take(Sim *s, Pool *pool) {
    if (pool->free_head >= 0) {
        int32_t index = pool->free_head;
        memcpy(&pool->free_head, pool->data + (int64_t)index * pool->width, sizeof(int32_t));
        return index;
    }
    if (pool->used == pool->room) pool->data = sim_grow(s, pool->data, &pool->room, pool->width);
    return (int32_t)pool->used++;
}

void sim_give(Pool *pool, int32_t index) {
    memcpy(pool->data + (int64_t)index * pool->width, &pool->free_head, sizeof(int32_t));
    pool->free_head = index;
}

void sim_push(Sim *s, Bucket *fifo, int32_t kind, int32_t a, int64_t b) {
    /* `fifo` must not lie in the event pool, which may move here. */
    int32_t index = sim_take(s, &s->event);
    POOL(s, Event, event, index) = (Event){kind, a, b, -1};
    FIFO_APPEND(s, Event, event, fifo, index);
}

static int earlier(const HeapEntry *x, const HeapEntry *y) {
    return x->time != y->time ? x->time < y->time : x->order < y->order;
}

DEFINE_HEAP(tick, HeapEntry, earlier)

/* A tick may have several buckets: a new one is made when the small cache of open buckets has
 * forgotten the last one. They are handled in the order of their making and only the newest is
 * appended to, so the tick stays one FIFO. */
void sim_schedule(Sim *s, int64_t time, int32_t kind, int32_t a, int64_t b) {
    int32_t *cached = &s->time_cache[time & (TIME_CACHE - 1)];
    if (*cached < 0 || POOL(s, Bucket, bucket, *cached).time != time) {
        int32_t index = sim_take(s, &s->bucket);
        POOL(s, Bucket, bucket, index) = (Bucket){time, -1, -1, -1};
        *cached = index;
        if (s->heap_used == s->heap_room) s->heap = sim_grow(s, s->heap, &s->heap_room, sizeof(HeapEntry));
        tick_push(s->heap, &s->heap_used, (HeapEntry){time, s->order++, index});
    }
    Bucket *bucket = &POOL(s, Bucket, bucket, *cached);
    sim_push(s, bucket, kind, a, b);
}

/* Queue something that `rank` does to itself after `delay`. The first entry of a (rank, tick)
 * schedules one network event; later entries share it. */
void sim_register(Sim *s, int32_t rank, int64_t delay, int32_t kind, int32_t a, int64_t b) {
    int64_t time = s->now + delay;
    int32_t list = s->rank[rank].lists;
    while (list >= 0 && POOL(s, Bucket, bucket, list).time != time) list = POOL(s, Bucket, bucket, list).next;
    if (list < 0) {
        list = sim_take(s, &s->bucket);
        POOL(s, Bucket, bucket, list) = (Bucket){time, -1, -1, s->rank[rank].lists};
        s->rank[rank].lists = list;
        sim_schedule(s, time, EVENT_RANK, rank, list);
    }
    sim_push(s, &POOL(s, Bucket, bucket, list), kind, a, b);
}

static Event pop(Sim *s, int32_t bucket) {
    Bucket *fifo = &POOL(s, Bucket, bucket, bucket);
    int32_t index = fifo->head;
    Event event = POOL(s, Event, event, index);
    fifo->head = event.next;
    sim_give(&s->event, index);
    s->events++;
    return event;
}

static void run_rank_list(Sim *s, int32_t rank, int32_t list) {
    while (POOL(s, Bucket, bucket, list).head >= 0) {
        Event event = pop(s, list);
        switch (event.kind) {
        case EVENT_TIMER: sim_node_done(s, rank, event.a); break;
        case EVENT_MEMORY: sim_memory_done(s, rank, event.a); break;
        case EVENT_PACKET: sim_packet(s, event.a, event.b); break;
        default: sim_packet_done(s, event.a);
        }
    }
    int32_t *from = &s->rank[rank].lists;
    while (*from != list) from = &POOL(s, Bucket, bucket, *from).next;
    *from = POOL(s, Bucket, bucket, list).next;
    sim_give(&s->bucket, list);
}

static void run_event(Sim *s, Event event) {
    switch (event.kind) {
    case EVENT_RANK: run_rank_list(s, event.a, (int32_t)event.b); break;
    case EVENT_ARRIVAL: sim_arrive(s, event.a); break;
    case EVENT_HOP: sim_hop(s, event.a); break;
    case EVENT_LINK_FREE: sim_link_free(s, event.b); break;
    case EVENT_PHASE_END: sim_next_phase(s, event.a); break;
    default: {
        Callback call = POOL(s, Waiter, waiter, event.a).call;
        sim_give(&s->waiter, event.a);
        sim_call(s, call);
    }
    }
}

void sim_loop(Sim *s) {
    while (s->heap_used && !s->order_matters) {
        HeapEntry first = tick_pop(s->heap, &s->heap_used);
        s->now = first.time;
        while (POOL(s, Bucket, bucket, first.bucket).head >= 0) run_event(s, pop(s, first.bucket));
        int32_t *cached = &s->time_cache[first.time & (TIME_CACHE - 1)];
        if (*cached == first.bucket) *cached = -1;
        sim_give(&s->bucket, first.bucket);
    }
}

void sim_release(void *data) { free(data); }

Sim *sim_new(void) { return malloc(sizeof(Sim)); }

void sim_delete(Sim *s) {
    Pool *pools[] = {&s->event, &s->bucket, &s->stream, &s->message, &s->match, &s->waiter};
    for (int i = 0; i < 6; i++) free(pools[i]->data);
    for (int64_t i = 0; i < s->run.used; i++) free(POOL(s, Run, run, i).start);
    free(s->run.data);
    if (s->rank)
        for (int64_t r = 0; r < s->in->num_ranks; r++) {
            for (int slot = 0; slot < 4; slot++) free(s->rank[r].ready[slot].node);
            free(s->rank[r].skipped.node);
        }
    for (int i = 0; i < s->num_blocks; i++) free(s->blocks[i]);
    free(s->heap);
    free(s->match_table);
    free(s);
}
