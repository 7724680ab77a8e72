/* Ranks of the simulator: which node is issued when, and the entry point. */
#include "sim.h"

#include <string.h>

/* ---- ready nodes: one heap a slot, smallest node id first ---- */

static void heap_push(Sim *s, Heap *heap, int32_t node) {
    if (heap->used == heap->room) heap->node = sim_grow(s, heap->node, &heap->room, sizeof(int32_t));
    int64_t at = heap->used++;
    while (at > 0 && heap->node[(at - 1) / 2] > node) {
        heap->node[at] = heap->node[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->node[at] = node;
}

static int32_t heap_pop(Heap *heap) {
    int32_t first = heap->node[0], last = heap->node[--heap->used];
    int64_t at = 0;
    for (;;) {
        int64_t down = 2 * at + 1;
        if (down >= heap->used) break;
        if (down + 1 < heap->used && heap->node[down + 1] < heap->node[down]) down++;
        if (heap->node[down] >= last) break;
        heap->node[at] = heap->node[down];
        at = down;
    }
    heap->node[at] = last;
    return first;
}

static int64_t first_row(const Sim *s, int32_t rank) {
    return s->in->node_ptr[s->in->class_of_rank[rank]];
}

/* ---- does the order of what completes in one tick matter? ----
 *
 * Solved collectives end at the right tick but not at the right place inside it. That is exact as
 * long as completions of the same rank and tick commute: no two of them may compete for a slot. */

/* `node` completes: note it and the slot it frees, before its children are counted down. */
static void note_done(Sim *s, int32_t rank, int32_t node) {
    Rank *r = &s->rank[rank];
    SameTick *t = &r->same_tick;
    int64_t row = first_row(s, rank) + node;
    if (t->time != s->now) {
        t->time = s->now;
        t->count = t->roots = 0;
        for (int slot = 0; slot < 4; slot++) {
            t->num_joint[slot] = 0;
            t->joint[slot] = NO_NODE;
            t->free[slot] = !r->slot_busy[slot];
            t->waiting[slot] = r->ready[slot].used ? r->ready[slot].node[0] : NO_NODE;
        }
    }
    t->roots += s->out->issue[s->in->out_ptr[rank] + node] < s->now;
    if (t->count < MAX_SAME_TICK) {
        t->done[t->count].node = node;
        t->done[t->count].slot = s->in->slot[row];
        for (int slot = 0; slot < 4; slot++) t->done[t->count].child[slot] = NO_NODE;
    }
    t->count++;
}

static int is_child(const Sim *s, int32_t rank, int32_t node, int32_t child) {
    int64_t row = first_row(s, rank) + node;
    for (int64_t e = s->in->child_ptr[row]; e < s->in->child_ptr[row + 1]; e++)
        if (s->in->child[e] == child) return 1;
    return 0;
}

/* `child` became ready by the completion of `node`, alone or together with others of this tick. */
static void note_ready(Sim *s, int32_t rank, int32_t node, int32_t child, int slot) {
    SameTick *t = &s->rank[rank].same_tick;
    if (t->time != s->now || t->count > MAX_SAME_TICK) return;
    int32_t last = t->count - 1;
    if (t->done[last].node != node) return; /* a skipped node: those are not judged here */
    for (int32_t i = 0; i < last; i++)
        if (is_child(s, rank, t->done[i].node, child)) {
            t->num_joint[slot]++;
            if (child < t->joint[slot]) t->joint[slot] = child;
            return;
        }
    if (child < t->done[last].child[slot]) t->done[last].child[slot] = child;
}

static void free_children(Sim *s, int32_t rank, int32_t node, int skipped) {
    const Input *in = s->in;
    Rank *r = &s->rank[rank];
    int64_t base = first_row(s, rank), out = in->out_ptr[rank];
    for (int64_t e = in->child_ptr[base + node]; e < in->child_ptr[base + node + 1]; e++) {
        int32_t child = in->child[e];
        if (--s->indegree[out + child]) continue;
        int slot = in->slot[base + child];
        heap_push(s, skipped ? &r->skipped : &r->ready[slot], child);
        if (s->in->solve_runs) note_ready(s, rank, node, child, slot);
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

static void issue(Sim *s, int32_t rank, int32_t node) {
    const Input *in = s->in;
    Rank *r = &s->rank[rank];
    int64_t row = first_row(s, rank) + node;
    Callback done = {CALL_NODE_DONE, CALL_NOTHING, rank, node, -1, 0, 0};
    int64_t amount = in->duration[row], tag = in->tag[row];
    int32_t peer = in->peer[row];
    s->out->issue[in->out_ptr[rank] + node] = s->now;
    r->issued++;
    if (in->kind[row] == NODE_SKIP) { /* ends at once and holds no slot */
        s->out->finish[in->out_ptr[rank] + node] = s->now;
        r->done++;
        free_children(s, rank, node, 1);
        return;
    }
    r->slot_busy[in->slot[row]] = in->slot[row] != SLOT_NONE;
    switch (in->kind[row]) {
    case NODE_TIMER: sim_register(s, rank, amount, EVENT_TIMER, node, 0); break;
    case NODE_MEMORY: memory_issue(s, rank, node, amount); break;
    case NODE_SEND: sim_front_send(s, rank, peer, tag, amount, done); break;
    case NODE_RECV: sim_front_recv(s, rank, peer, tag, amount, done); break;
    default: sim_collective_issue(s, rank, node, peer, tag);
    }
}

/* Issue every ready node whose slot is free, in ascending id. */
static void walk(Sim *s, int32_t rank) {
    Rank *r = &s->rank[rank];
    for (;;) {
        int best = -1;
        for (int slot = 0; slot < 4; slot++) {
            if (r->slot_busy[slot] || !r->ready[slot].used) continue;
            if (best < 0 || r->ready[slot].node[0] < r->ready[best].node[0]) best = slot;
        }
        if (best < 0) break;
        issue(s, rank, heap_pop(&r->ready[best]));
    }
    int64_t waiting = r->skipped.used;
    for (int slot = 0; slot < 4; slot++) waiting += r->ready[slot].used;
    if (waiting == 0 && r->done == r->issued) s->out->rank_finish[rank] = s->now;
}

static int slot_depends_on_order(const SameTick *t, int slot) {
    int32_t freed = -1, givers = t->num_joint[slot], others = t->joint[slot];
    for (int32_t i = 0; i < t->count; i++)
        if (t->done[i].slot == slot && slot != SLOT_NONE) {
            if (freed >= 0) return 1;
            freed = i;
        }
    for (int32_t i = 0; i < t->count; i++) {
        if (i == freed || t->done[i].child[slot] == NO_NODE) continue;
        givers++;
        if (t->done[i].child[slot] < others) others = t->done[i].child[slot];
    }
    if (t->free[slot]) return givers > 1 || (freed >= 0 && givers);
    if (freed < 0) return 0;
    int32_t certain = t->done[freed].child[slot];
    if (t->waiting[slot] < certain) certain = t->waiting[slot];
    return certain == NO_NODE ? givers > 1 : others < certain;
}

static void check_order(Sim *s, const SameTick *t) {
    if (t->roots < 2) return;
    int depends = s->has_skipped || t->count > MAX_SAME_TICK;
    for (int slot = 0; slot < 4 && !depends; slot++) depends = slot_depends_on_order(t, slot);
    if (depends) s->order_matters = 1;
}

void sim_node_done(Sim *s, int32_t rank, int32_t node) {
    Rank *r = &s->rank[rank];
    int64_t base = first_row(s, rank);
    if (s->in->solve_runs) note_done(s, rank, node);
    s->out->finish[s->in->out_ptr[rank] + node] = s->now;
    r->slot_busy[s->in->slot[base + node]] = 0;
    r->done++;
    while (r->skipped.used) {
        int32_t child = heap_pop(&r->skipped);
        heap_push(s, &r->ready[s->in->slot[base + child]], child);
    }
    free_children(s, rank, node, 0);
    if (s->in->solve_runs) check_order(s, &r->same_tick);
    walk(s, rank);
}

/* ---- entry ---- */

static void prepare(Sim *s) {
    const Input *in = s->in;
    int64_t ranks = in->num_ranks, rows = in->out_ptr[ranks], dims = in->num_dims;
    Pool *pools[] = {&s->event, &s->bucket, &s->stream, &s->message, &s->match, &s->waiter, &s->run};
    int64_t widths[] = {sizeof(Event), sizeof(Bucket), sizeof(Stream), sizeof(Message),
                        sizeof(Match), sizeof(Waiter), sizeof(Run)};
    for (int i = 0; i < 7; i++) *pools[i] = (Pool){0, 0, 0, widths[i], -1};
    memset(s->time_cache, -1, sizeof s->time_cache);
    s->rank = sim_block(s, ranks, sizeof(Rank));
    s->queue = sim_block(s, ranks * dims * in->queues_per_dim, sizeof(Queue));
    for (int64_t i = 0; i < ranks * dims * in->queues_per_dim; i++) s->queue[i].head = s->queue[i].entered = -1;
    for (int64_t i = 0; i < in->node_ptr[in->num_classes]; i++) s->has_skipped |= in->kind[i] == NODE_SKIP;
    s->turn = sim_block(s, ranks * dims * 3, sizeof(int32_t));
    s->tree_turn = sim_block(s, ranks * dims * 4, 1);
    s->group_turn = sim_block(s, in->rank_group_ptr[ranks], sizeof(int64_t));
    s->indegree = sim_block(s, rows, sizeof(int32_t));
    s->link = sim_block(s, sim_num_links(in), sizeof(Link));
    for (int64_t i = 0; i < sim_num_links(in); i++) s->link[i].head = -1;
    s->memory = sim_block(s, ranks, sizeof(Bucket));
    for (int64_t i = 0; i < ranks; i++) s->memory[i].head = -1;
    for (int64_t i = 0; i < rows; i++) s->out->issue[i] = s->out->finish[i] = -1;
    for (int64_t r = 0; r < ranks; r++) {
        s->rank[r].lists = -1;
        s->rank[r].same_tick.time = -1;
        s->out->rank_finish[r] = -1;
        int64_t base = first_row(s, (int32_t)r);
        int64_t count = in->out_ptr[r + 1] - in->out_ptr[r];
        memcpy(s->indegree + in->out_ptr[r], in->indegree + base, (size_t)count * sizeof(int32_t));
    }
}

static void run(Sim *s) {
    const Input *in = s->in;
    for (int64_t r = 0; r < in->num_ranks; r++) {
        int64_t base = first_row(s, (int32_t)r), count = in->out_ptr[r + 1] - in->out_ptr[r];
        for (int64_t i = 0; i < count; i++)
            if (in->indegree[base + i] == 0)
                heap_push(s, &s->rank[r].ready[in->slot[base + i]], (int32_t)i);
        walk(s, (int32_t)r);
    }
    sim_loop(s);
}

/* Simulate. Returns 0, 1 when memory ran out, or 2 when solving runs was not exact (solve_runs). Nodes that never ran keep -1; whoever waits for a
 * message then is listed in `waits`, rows of (rank, node, from, tag, size), at most `max_waits`;
 * messages that nobody received in `orphans`, rows of (src, dst, tag, size, count). */
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
        if (s->order_matters) failed = 2;
    }
    sim_delete(s);
    return failed;
}
