/* Ranks of the simulator: which node is issued when, and the entry point. */
#include "sim.h"

#include <string.h>

/* ---- ready nodes: one heap per slot, smallest node id first ---- */

static int smaller(const int32_t *x, const int32_t *y) { return *x < *y; }

DEFINE_HEAP(node, int32_t, smaller)

static void heap_push(Sim *s, Heap *heap, int32_t node) {
    if (heap->used == heap->room) heap->node = sim_grow(s, heap->node, &heap->room, sizeof(int32_t));
    node_push(heap->node, &heap->used, node);
}

static int32_t heap_pop(Heap *heap) { return node_pop(heap->node, &heap->used); }

int64_t sim_first_row(const Sim *s, int32_t rank) { return s->in->node_ptr[s->in->class_of_rank[rank]]; }

static void free_children(Sim *s, int32_t rank, int32_t node, int skipped) {
    const Input *in = s->in;
    Rank *r = &s->rank[rank];
    int64_t base = sim_first_row(s, rank), out = in->out_ptr[rank];
    for (int64_t e = in->child_ptr[base + node]; e < in->child_ptr[base + node + 1]; e++) {
        int32_t child = in->child[e];
        if (--s->indegree[out + child]) continue;
        int slot = in->slot[base + child];
        heap_push(s, skipped ? &r->skipped : &r->ready[slot], child);
        if (s->in->solve_runs) sim_note_ready(s, rank, node, child, slot);
    }
}

/* ---- remote memory ---- */

static void memory_issue(Sim *s, int32_t rank, int32_t node, int64_t duration) {
    if (s->in->memory_ranks) {
        Bucket *memory = &s->memory[rank / s->in->memory_ranks];
        if (memory->time) {
            sim_push(s, memory, rank, node, duration);
            return;
        }
        memory->time = 1;
    }
    sim_register(s, rank, duration, EVENT_MEMORY, node, 0);
}

void sim_memory_done(Sim *s, int32_t rank, int32_t node) {
    if (s->in->memory_ranks) {
        Bucket *memory = &s->memory[rank / s->in->memory_ranks];
        memory->time = 0;
        if (memory->head >= 0) {
            int32_t index = memory->head;
            Event request = POOL(s, Event, event, index);
            memory->head = request.next;
            sim_give(&s->event, index);
            memory->time = 1;
            sim_register(s, request.kind, request.b, EVENT_MEMORY, request.a, 0);
        }
    }
    sim_node_done(s, rank, node);
}

/* ---- nodes ---- */

/* Take one of the slot's places; a communication node gets the lowest free stream. */
static void occupy(Sim *s, int32_t rank, int32_t node, int slot) {
    Rank *r = &s->rank[rank];
    if (slot != SLOT_NONE) r->slot_free[slot]--;
    if (slot != SLOT_COMM) return;
    int lane = 0;
    while (r->lanes_busy >> lane & 1) lane++;
    r->lanes_busy |= (uint64_t)1 << lane;
    s->out->lane[s->in->out_ptr[rank] + node] = (uint8_t)lane;
}

static void vacate(Sim *s, int32_t rank, int32_t node, int slot) {
    Rank *r = &s->rank[rank];
    if (slot != SLOT_NONE) r->slot_free[slot]++;
    if (slot == SLOT_COMM) r->lanes_busy &= ~((uint64_t)1 << s->out->lane[s->in->out_ptr[rank] + node]);
}

static void issue(Sim *s, int32_t rank, int32_t node) {
    const Input *in = s->in;
    Rank *r = &s->rank[rank];
    int64_t row = sim_first_row(s, rank) + node;
    Callback done = {CALL_NODE_DONE, CALL_NOTHING, rank, node, -1, 0, 0};
    int64_t amount = in->duration[row], tag = in->tag[row];
    int32_t peer = in->peer[row];
    const int32_t *role = in->role + in->role_ptr[rank];
    s->out->issue[in->out_ptr[rank] + node] = s->now;
    r->issued++;
    /* Both end at once and hold no slot; as in the reference, what waits for a skipped node starts
       with the next node that ends. */
    if (in->kind[row] == NODE_SKIP || in->kind[row] == NODE_SPAN) {
        s->out->finish[in->out_ptr[rank] + node] = s->now;
        r->done++;
        free_children(s, rank, node, in->kind[row] == NODE_SKIP);
        return;
    }
    occupy(s, rank, node, in->slot[row]);
    switch (in->kind[row]) {
    case NODE_TIMER: sim_register(s, rank, amount, EVENT_TIMER, node, 0); break;
    case NODE_MEMORY: memory_issue(s, rank, node, amount); break;
    case NODE_SEND:
        if (in->solve_runs)
            sim_send_alike(s, rank, in->role_ptr[rank] + peer, tag, amount, done);
        else
            sim_front_send(s, rank, role[peer], tag, amount, done);
        break;
    case NODE_RECV: sim_front_recv(s, rank, role[peer], tag, amount, done); break;
    default: sim_collective_issue(s, rank, node, peer, tag < 0 ? tag : role[tag]);
    }
    /* The reference aborts on an event in tick 0: its clock must rise before the first one. */
    if (s->now == 0 && s->out->instant[0] < 0 && s->heap_used && s->heap[0].time == 0)
        s->out->instant[0] = in->out_ptr[rank] + node;
}

/* Issue every ready node whose slot is free, in ascending id. */
static void walk(Sim *s, int32_t rank) {
    Rank *r = &s->rank[rank];
    for (;;) {
        int best = -1;
        for (int slot = 0; slot < 4; slot++) {
            if (!r->slot_free[slot] || !r->ready[slot].used) continue;
            if (best < 0 || r->ready[slot].node[0] < r->ready[best].node[0]) best = slot;
        }
        if (best < 0) break;
        issue(s, rank, heap_pop(&r->ready[best]));
    }
    int64_t waiting = r->skipped.used;
    for (int slot = 0; slot < 4; slot++) waiting += r->ready[slot].used;
    if (waiting == 0 && r->done == r->issued) s->out->rank_finish[rank] = s->now;
}

void sim_node_done(Sim *s, int32_t rank, int32_t node) {
    Rank *r = &s->rank[rank];
    int64_t base = sim_first_row(s, rank);
    if (s->in->solve_runs) sim_note_done(s, rank, node);
    s->out->finish[s->in->out_ptr[rank] + node] = s->now;
    vacate(s, rank, node, s->in->slot[base + node]);
    r->done++;
    while (r->skipped.used) {
        int32_t child = heap_pop(&r->skipped);
        heap_push(s, &r->ready[s->in->slot[base + child]], child);
    }
    free_children(s, rank, node, 0);
    if (s->in->solve_runs) sim_check_order(s, &r->same_tick);
    walk(s, rank);
}

/* ---- entry ---- */

static void prepare(Sim *s) {
    const Input *in = s->in;
    int64_t ranks = in->num_ranks, rows = in->out_ptr[ranks], dims = in->num_dims;
    Pool *pools[] = {&s->event, &s->bucket, &s->stream, &s->message, &s->match, &s->waiter, &s->run};
    int64_t widths[] = {sizeof(Event), sizeof(Bucket), sizeof(Stream), sizeof(Message), sizeof(Match),
        sizeof(Waiter), sizeof(Run)};
    for (int i = 0; i < 7; i++) *pools[i] = (Pool){0, 0, 0, widths[i], -1};
    memset(s->time_cache, -1, sizeof s->time_cache);
    s->rank = sim_block(s, ranks, sizeof(Rank));
    int64_t queues = ranks * dims * in->comm_streams * in->queues_per_dim;
    s->queue = sim_block(s, queues, sizeof(Queue));
    for (int64_t i = 0; i < queues; i++) s->queue[i].head = s->queue[i].entered = -1;
    s->lane_chunks = sim_block(s, ranks * in->comm_streams, sizeof(int32_t));
    for (int64_t i = 0; i < in->node_ptr[in->num_classes]; i++) s->has_skipped |= in->kind[i] >= NODE_SKIP;
    s->turn = sim_block(s, ranks * dims * 3, sizeof(int32_t));
    s->tree_turn = sim_block(s, ranks * dims * 4, 1);
    s->group_turn = sim_block(s, in->rank_group_ptr[ranks], sizeof(int64_t));
    s->indegree = sim_block(s, rows, sizeof(int32_t));
    s->link = sim_block(s, sim_num_links(in), sizeof(Link));
    for (int64_t i = 0; i < sim_num_links(in); i++) s->link[i].head = -1;
    s->memory = sim_block(s, ranks, sizeof(Bucket));
    for (int64_t i = 0; i < ranks; i++) s->memory[i].head = -1;
    for (int64_t i = 0; i < rows; i++) s->out->issue[i] = s->out->finish[i] = -1;
    s->out->instant[0] = -1;
    for (int64_t r = 0; r < ranks; r++) {
        s->rank[r].lists = -1;
        s->rank[r].same_tick.time = -1;
        for (int slot = 0; slot < 4; slot++) s->rank[r].slot_free[slot] = 1;
        s->rank[r].slot_free[SLOT_COMM] = (int32_t)in->comm_streams;
        s->out->rank_finish[r] = -1;
        int64_t base = sim_first_row(s, (int32_t)r);
        int64_t count = in->out_ptr[r + 1] - in->out_ptr[r];
        memcpy(s->indegree + in->out_ptr[r], in->indegree + base, (size_t)count * sizeof(int32_t));
    }
}

static void run(Sim *s) {
    const Input *in = s->in;
    for (int64_t r = 0; r < in->num_ranks; r++) {
        int64_t base = sim_first_row(s, (int32_t)r), count = in->out_ptr[r + 1] - in->out_ptr[r];
        for (int64_t i = 0; i < count; i++)
            if (in->indegree[base + i] == 0) heap_push(s, &s->rank[r].ready[in->slot[base + i]], (int32_t)i);
        walk(s, (int32_t)r);
    }
    sim_loop(s);
}

/* Size of Input, by which a caller that was written for another one is told. */
int64_t sim_input_bytes(void) { return sizeof(Input); }

/* Simulate. Returns 0, 1 when memory ran out, 2 when solving runs was not exact (solve_runs), 3 when ranks
 * that one stands for are not alike. Nodes that never ran keep -1; whoever waits for a message then is
 * listed in `waits`, rows of (rank, node, from, tag, size), at most `max_waits`; messages that were not
 * received in `orphans`, rows of (src, dst, tag, size, count). */
int64_t sim_run(const Input *in, const Output *out, int64_t *waits, int64_t *orphans, int64_t max_rows) {
    static const Sim empty;
    Sim *s = sim_new();
    if (!s) return 1;
    *s = empty;
    s->in = in;
    s->out = out;
    int failed = setjmp(s->out_of_memory);
    if (!failed) {
        prepare(s);
        run(s);
        sim_list_open(s, waits, orphans, max_rows);
        out->events[0] = s->events;
        if (s->order_matters) failed = 2 + s->uneven;
    }
    sim_delete(s);
    return failed;
}
