/* Queues of chunks: a dimension runs a few at once, first come first served. */
#include "sim.h"

#include <string.h>

static Queue *queue_of(Sim *s, const Stream *stream) {
    int64_t dim = sim_phase_of(s, stream)->dimension;
    int64_t line = (stream->rank * s->in->num_dims + dim) * s->in->comm_streams + stream->lane;
    return &s->queue[line * s->in->queues_per_dim + stream->queue[stream->phase]];
}

static void enqueue(Sim *s, int32_t index) {
    Queue *queue = queue_of(s, &POOL(s, Stream, stream, index));
    FIFO_APPEND(s, Stream, stream, queue, index);
}

static void fill(Sim *s, Queue *queue) {
    while (queue->head >= 0 && queue->running < s->in->active_per_queue) {
        int32_t index = queue->head;
        queue->head = POOL(s, Stream, stream, index).next;
        queue->running++;
        sim_start(s, index);
    }
}

/* The running phase is over: complete the node if it was the last, else queue for the next one. The
 * slot in the old queue is freed only then, which is the reference's order. */
void sim_next_phase(Sim *s, int32_t index) {
    Stream *stream = &POOL(s, Stream, stream, index);
    Queue *old = queue_of(s, stream);
    int64_t phases = s->in->phase_ptr[stream->plan + 1] - s->in->phase_ptr[stream->plan];
    if (stream->phase + 1 == phases) {
        int32_t rank = stream->rank, node = stream->node;
        int32_t *left = &s->lane_chunks[rank * s->in->comm_streams + stream->lane];
        sim_give(&s->stream, index);
        if (--*left == 0) sim_node_done(s, rank, node);
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
        int32_t count = p->queue_choice == QUEUE_ROUND_ROBIN  ? queues
                        : p->queue_choice == QUEUE_UPPER_HALF ? queues - half
                                                              : (half ? half : 1);
        int32_t chosen = lowest + *turn;
        *turn = (*turn + 1) % count;
        stream->queue[i - first] = (int16_t)chosen;
        int back = p->queue_choice == QUEUE_UPPER_HALF ||
                   (p->queue_choice == QUEUE_ROUND_ROBIN && queues > 1 && chosen >= half);
        if (back) stream->anticlockwise |= bit;
        if (p->algorithm == ALGORITHM_DOUBLE_BINARY_TREE) {
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
        for (row = in->rank_group_ptr[rank]; in->rank_group[row] != group; row++) {
        }
    int32_t lane = s->out->lane[in->out_ptr[rank] + node];
    s->lane_chunks[rank * in->comm_streams + lane] = in->chunks[plan];
    for (int32_t chunk = in->chunks[plan]; chunk > 0; chunk--) {
        int32_t index = sim_take(s, &s->stream);
        Stream *stream = &POOL(s, Stream, stream, index);
        memset(stream, 0, sizeof *stream);
        stream->rank = rank;
        stream->number = in->number[rank];
        stream->node = node;
        stream->plan = plan;
        stream->group = (int32_t)group;
        stream->lane = lane;
        stream->position = row >= 0 ? in->rank_position[row] : 0;
        int64_t own = s->rank[rank].next_stream++;
        int64_t id = row >= 0 ? in->group_tag[group] + s->group_turn[row]++ : own;
        stream->tag = 500000000 + id;
        choose_queues(s, stream);
        enqueue(s, index);
        fill(s, queue_of(s, stream));
    }
}
