/* Does the order of what completes in one tick matter?
 *
 * Solved collectives end at the right tick but not at the right place inside it. That is exact as
 * long as completions of the same rank and tick commute: no two of them may compete for a slot. */
#include "sim.h"

/* `node` completes: note it and the slot it frees, before its children are counted down. */
void sim_note_done(Sim *s, int32_t rank, int32_t node) {
    Rank *r = &s->rank[rank];
    SameTick *t = &r->same_tick;
    int64_t row = sim_first_row(s, rank) + node;
    if (t->time != s->now) {
        t->time = s->now;
        t->count = t->roots = 0;
        for (int slot = 0; slot < 4; slot++) {
            t->num_joint[slot] = 0;
            t->joint[slot] = NO_NODE;
            t->free[slot] = r->slot_free[slot] > 0;
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
    int64_t row = sim_first_row(s, rank) + node;
    for (int64_t e = s->in->child_ptr[row]; e < s->in->child_ptr[row + 1]; e++)
        if (s->in->child[e] == child) return 1;
    return 0;
}

/* `child` became ready by the completion of `node`, alone or together with others of this tick. */
void sim_note_ready(Sim *s, int32_t rank, int32_t node, int32_t child, int slot) {
    SameTick *t = &s->rank[rank].same_tick;
    if (t->time != s->now || t->count > MAX_SAME_TICK) return;
    int32_t last = t->count - 1;
    if (t->done[last].node != node) return; /* a skipped node: not checked here */
    for (int32_t i = 0; i < last; i++)
        if (is_child(s, rank, t->done[i].node, child)) {
            t->num_joint[slot]++;
            if (child < t->joint[slot]) t->joint[slot] = child;
            return;
        }
    if (child < t->done[last].child[slot]) t->done[last].child[slot] = child;
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

/* With several communication streams: two completions must not both deal with this slot, unless all
 * they do is make room for nodes that waited before. */
static int streams_depend_on_order(const SameTick *t) {
    int32_t givers = t->num_joint[SLOT_COMM], touched = givers;
    for (int32_t i = 0; i < t->count; i++) {
        int frees = t->done[i].slot == SLOT_COMM, gives = t->done[i].child[SLOT_COMM] != NO_NODE;
        givers += gives;
        touched += frees || gives;
    }
    return givers > 0 && touched > 1;
}

void sim_check_order(Sim *s, const SameTick *t) {
    if (t->roots < 2) return;
    int depends = s->has_skipped || t->count > MAX_SAME_TICK;
    for (int slot = 0; slot < 4 && !depends; slot++)
        depends = slot == SLOT_COMM && s->in->comm_streams > 1 ? streams_depend_on_order(t)
                                                               : slot_depends_on_order(t, slot);
    if (depends) s->order_matters = 1;
}
