/* Event kernel of the simulator: data shared by its parts.
 *
 * One simulation lives in one Sim. Everything is an array indexed by small integers; pools grow
 * by doubling and recycle freed entries. Times are integer ns. The order of events inside one
 * tick is the reference simulator's (docs/reference/simulator.md): one FIFO per tick for the network, one
 * FIFO per (rank, tick) for what a rank does to itself, and the latter is one event of the former.
 */
#ifndef LAYERDAG_SIM_H
#define LAYERDAG_SIM_H

#include <setjmp.h>
#include <stdint.h>

#include "containers.h"

enum { MAX_DIMS = 8, MAX_PHASES = 16, TIME_CACHE = 4096 };

/* What a node costs; written by layerdag/simulator/program.py. */
enum NodeKind { NODE_TIMER, NODE_MEMORY, NODE_SEND, NODE_RECV, NODE_COLLECTIVE, NODE_SKIP, NODE_SPAN };
enum Slot { SLOT_CPU, SLOT_COMPUTE, SLOT_COMM, SLOT_NONE };
enum Topology { TOPOLOGY_RING, TOPOLOGY_FULLY_CONNECTED, TOPOLOGY_SWITCH };
enum Algorithm {
    ALGORITHM_RING,
    ALGORITHM_DIRECT,
    ALGORITHM_HALVING_DOUBLING,
    ALGORITHM_DOUBLE_BINARY_TREE,
    ALGORITHM_IN_NETWORK
};
enum PhaseType {
    PHASE_REDUCE_SCATTER,
    PHASE_ALL_REDUCE,
    PHASE_ALL_GATHER,
    PHASE_ALL_TO_ALL,
    PHASE_BROADCAST
};
enum QueueChoice { QUEUE_ROUND_ROBIN, QUEUE_FIRST_HALF, QUEUE_UPPER_HALF };

/* One algorithm run in one dimension, as every chunk of a collective goes through it. */
typedef struct {
    int64_t size;      /* bytes that the phase starts from */
    int32_t type;      /* PhaseType */
    int32_t algorithm; /* Algorithm */
    int32_t window;    /* messages in flight (1 for ring and halving-doubling) */
    int32_t dimension; /* whose queues it uses; also whose members, unless group or flat */
    int32_t members;   /* ranks that take part */
    int32_t stride;    /* distance between neighbors in rank numbers; 0: the members of a group */
    int32_t queue_choice;
    int32_t tree_counter; /* which of the rank's counters alternates the two trees */
} Phase;

/* Nodes are stored once per class of ranks; *_ptr have one entry more than what they index.
 *
 * A rank of the kernel may stand for several of the cluster that behave alike (only with solve_runs,
 * layerdag/simulator/rank_symmetry.py). Its own number, which says where it lies in the network, is number[rank]. */
typedef struct {
    int64_t num_ranks, num_classes, num_dims, num_plans, num_groups;
    const int32_t *class_of_rank;
    const int32_t *number;   /* of each rank in the cluster */
    const int32_t *representative; /* which rank stands for each rank of the cluster */
    int64_t num_numbers;     /* ranks of the cluster */
    const int64_t *node_ptr; /* nodes of a class, in ascending node id */
    const uint8_t *kind, *slot;
    const int64_t *duration; /* ns of timers; bytes of SEND and RECV; ns of memory nodes */
    const int32_t *peer;     /* role of the other rank of SEND and RECV; plan of collectives */
    const int64_t *tag;      /* of SEND and RECV; role of a collective's group, -1 for all ranks */
    const int64_t *child_ptr;
    const int32_t *child, *indegree;
    const int64_t *role_ptr; /* group or rank that stands for each role, by rank */
    const int32_t *role;
    const int32_t *sender; /* by role of a peer: the number by which what stands for the peer knows us */
    const int64_t *out_ptr; /* first output row of each rank */
    const int64_t *phase_ptr;
    const Phase *phase;
    const int32_t *chunks; /* of each plan */
    const int64_t *group_ptr;
    const int32_t *group_rank;
    const int64_t *rank_group_ptr; /* groups of each rank, and its place in them */
    const int32_t *rank_group, *rank_position;
    const int64_t *group_tag; /* first stream id of each group, or of the one that it is like */
    const int32_t *group_like;
    const int32_t *dim_size, *dim_type;
    const double *dim_bandwidth, *dim_latency; /* B/ns, ns */
    double reduce_bandwidth;                   /* B/ns of the local memory; 0: reductions are free */
    int64_t endpoint_delay, group_delay, queues_per_dim, active_per_queue;
    int64_t memory_ranks; /* ranks that share one remote memory, 0: each has its own */
    int64_t congestion_aware, rendezvous;
    int64_t solve_runs;   /* 1: solve collectives instead of sending their messages (solve.c) */
    int64_t comm_streams; /* communication nodes of a rank that run at once, at most 64 */
} Input;

/* Rows in the order of ranks and, inside a rank, of ascending node id. -1: did not happen. */
typedef struct {
    int64_t *issue, *finish;
    int64_t *rank_finish;
    int64_t *events;  /* one number: events handled */
    uint8_t *lane;    /* which of its rank's communication streams a node took */
    int64_t *instant; /* one number: row of the first node that put an event into tick 0, -1 for none */
    int64_t *uneven;  /* stride and members of a phase that ranks which should be alike end apart */
} Output;

enum CallbackKind { CALL_NOTHING, CALL_NODE_DONE, CALL_STREAM_RECEIVED, CALL_POST_SEND, CALL_POST_RECV };

/* What happens when a message has arrived. After a rendezvous handshake the real message
 * (peer, tag, size) is posted, with `then` as the kind of its own callback. */
typedef struct {
    int32_t kind, then, rank, ref, peer;
    int64_t tag, size;
} Callback;

enum { NO_SWITCH = -1, FROM_SWITCH = -2 };

typedef struct {
    int32_t src, dst, at, next;
    int32_t run; /* the Run whose switch takes it; NO_SWITCH; FROM_SWITCH: no request needed */
    int64_t tag, size;
    Callback sent;
} Message;

/* All open matters of one (tag, src, dst, size): either messages or receives wait, never both. */
typedef struct {
    int64_t tag, size;
    int32_t src, dst, next;
    int32_t arrived; /* messages not yet received */
    int32_t head, tail;
} Match;

typedef struct {
    Callback call;
    int32_t next;
} Waiter;

enum EventKind {
    EVENT_RANK,
    EVENT_ARRIVAL,
    EVENT_CALL,
    EVENT_HOP,
    EVENT_LINK_FREE,
    EVENT_TIMER,
    EVENT_MEMORY,
    EVENT_PACKET,
    EVENT_REDUCED,
    EVENT_PHASE_END
};

typedef struct {
    int32_t kind, a;
    int64_t b;
    int32_t next;
} Event;

typedef struct {
    int64_t time;
    int32_t head, tail, next;
} Bucket; /* FIFO of one tick, or of one (rank, tick) */

typedef struct {
    int64_t time, order;
    int32_t bucket;
} HeapEntry;

/* One chunk of a collective on one rank. */
typedef struct {
    int32_t rank, number, node, plan, group, position, phase, lane, next;
    int32_t place; /* the first that it has in its run */
    int64_t tag;
    int16_t queue[MAX_PHASES];
    uint16_t anticlockwise, second_tree; /* one bit per phase */
    uint64_t twin; /* equal for chunks whose runs are the same in everything but their order */
    /* of the running algorithm */
    int32_t inserted, sent, to_send, free_packets, received;
} Stream;

typedef struct {
    int32_t running, head, tail;
    int64_t entered; /* tick at which a chunk last came here from another phase, and its twin mark */
    uint64_t twin;
} Queue;

/* A phase that all its members must enter before it can be solved, or before its switch answers. */
typedef struct {
    int32_t free_next, plan, phase, joined, members, bits; /* bits: direction and tree */
    int64_t *start;  /* by place: when it started there; later: when it ends there */
    int32_t *stream; /* by place; in the block of `start` */
} Run;

enum { MAX_SAME_TICK = 6, NO_NODE = INT32_MAX };

/* What completed on a rank in the current tick, to tell whether the order matters. */
typedef struct {
    int64_t time;
    int32_t count, roots;
    uint8_t free[4];                /* slots that were free when the tick began */
    int32_t waiting[4];             /* smallest node that waited for each slot then */
    int32_t joint[4], num_joint[4]; /* nodes made ready by several of these together, by slot */
    struct {
        int32_t node, slot, child[4]; /* its slot; the smallest node it alone made ready */
    } done[MAX_SAME_TICK];
} SameTick;

typedef struct {
    int32_t *node; /* smallest first */
    int64_t used, room;
} Heap;

typedef struct {
    int32_t slot_free[4]; /* how many more nodes may run; the last one is always free */
    uint64_t lanes_busy;  /* one bit a communication stream */
    int64_t next_stream;
    int64_t done, issued;
    Heap ready[4]; /* nodes that wait for each Slot */
    Heap skipped;  /* children of skipped nodes, looked at after the next completion only */
    SameTick same_tick;
    int32_t lists; /* pending (rank, tick) FIFOs, newest first */
} Rank;

typedef struct {
    int32_t busy, head, tail;
    int64_t reserved; /* until when solved runs have it */
} Link;

/* Places of the neighbors in a binary tree, -1 for none. */
typedef struct {
    int32_t parent, left, right;
} TreeNode;

typedef struct {
    char *data;
    int64_t used, room, width;
    int32_t free_head; /* recycled entries, chained through their first int32 */
} Pool;

typedef struct Sim {
    const Input *in;
    const Output *out;
    jmp_buf out_of_memory;
    int64_t now, order, events;
    HeapEntry *heap;
    int64_t heap_used, heap_room;
    int32_t time_cache[TIME_CACHE];
    Pool event, bucket, stream, message, match, waiter, run;
    int32_t order_matters; /* solving runs was not exact: simulate every message instead */
    int32_t uneven;        /* and that because ranks that one stands for are not alike */
    int32_t has_skipped;
    int32_t *match_table;
    int64_t match_room, match_used;
    Rank *rank;
    Queue *queue;         /* [rank][dim][lane][queue] */
    int32_t *lane_chunks; /* [rank][lane]: of the collective in flight, not yet done */
    int32_t *turn;        /* [rank][dim][3]: next queue of each QueueChoice */
    uint8_t *tree_turn;   /* [rank][counter] */
    int64_t *group_turn;  /* [rank_group row]: chunks issued in that group */
    int32_t *indegree;    /* by output row */
    Link *link;
    Bucket *memory; /* FIFO of requests, time = 1 while busy */
    void *blocks[64];
    int num_blocks;
} Sim;

/* events.c */
int32_t sim_take(Sim *s, Pool *pool);
void sim_give(Pool *pool, int32_t index);
Sim *sim_new(void);
void sim_delete(Sim *s);
void sim_release(void *data);
void *sim_block(Sim *s, int64_t count, int64_t width);
void *sim_grow(Sim *s, void *data, int64_t *room, int64_t width);
void sim_schedule(Sim *s, int64_t time, int32_t kind, int32_t a, int64_t b);
void sim_register(Sim *s, int32_t rank, int64_t delay, int32_t kind, int32_t a, int64_t b);
void sim_push(Sim *s, Bucket *fifo, int32_t kind, int32_t a, int64_t b);
void sim_loop(Sim *s);

#define POOL(s, type, name, index) (((type *)(s)->name.data)[index])

/* network.c */
void sim_send(Sim *s, int32_t src, int32_t dst, int64_t tag, int64_t size, Callback sent);
void sim_reserve_link(Sim *s, int32_t from, int32_t to, int32_t dimension, int64_t begin, int64_t end);
void sim_send_alike(Sim *s, int32_t rank, int64_t role, int64_t tag, int64_t size, Callback sent);
void sim_recv(Sim *s, int32_t dst, int32_t src, int64_t tag, int64_t size, Callback received);
void sim_front_send(Sim *s, int32_t src, int32_t dst, int64_t tag, int64_t size, Callback sent);
void sim_front_recv(Sim *s, int32_t dst, int32_t src, int64_t tag, int64_t size, Callback received);
void sim_leave(Sim *s, int32_t message);
void sim_arrive(Sim *s, int32_t message);
void sim_hop(Sim *s, int32_t message);
void sim_link_free(Sim *s, int64_t link);
void sim_list_open(Sim *s, int64_t *waits, int64_t *orphans, int64_t max_rows);
int64_t sim_num_links(const Input *in);
int64_t sim_transfer_ns(const Input *in, int32_t src, int32_t dst, int64_t size);
int32_t sim_find(Sim *s, int64_t tag, int32_t src, int32_t dst, int64_t size);
void sim_forget_if_settled(Sim *s, int32_t match);
void sim_call(Sim *s, Callback call);

/* queue.c */
void sim_collective_issue(Sim *s, int32_t rank, int32_t node, int32_t plan, int64_t group);
void sim_next_phase(Sim *s, int32_t stream);

/* collective.c */
void sim_packet(Sim *s, int32_t stream, int64_t reduce_ns);
void sim_packet_done(Sim *s, int32_t stream);
void sim_received(Sim *s, int32_t stream);

int64_t sim_message_of(const Sim *s, const Stream *stream, int32_t packet, int32_t *to, int32_t *from);
int32_t sim_messages_to_send(const Phase *p);
int64_t sim_packet_cost(const Sim *s, const Stream *stream, int32_t packet);
int64_t sim_endpoint_ns(const Sim *s, const Phase *p);
const Phase *sim_phase_of(const Sim *s, const Stream *stream);
int32_t sim_position_of(const Stream *stream, const Phase *p);
int32_t sim_member(const Sim *s, const Stream *stream, const Phase *p, int32_t position);

void sim_send_to(Sim *s, int32_t stream, int32_t to, int64_t size);
void sim_recv_from(Sim *s, int32_t stream, int32_t from, int64_t size);
void sim_endpoint(Sim *s, int32_t stream, int64_t reduce_ns);
int64_t sim_reduce_ns(const Sim *s, int64_t size);
void sim_start(Sim *s, int32_t stream);

/* tree.c */
void sim_tree_start(Sim *s, int32_t stream);
void sim_tree_packet_done(Sim *s, int32_t stream);
TreeNode sim_tree_node(const Stream *stream, const Phase *p);

/* solve.c, solve_direct.c, switch.c */
void sim_join(Sim *s, int32_t stream);
void sim_solve_direct(Sim *s, const Run *run, const Stream *first);
void *sim_reserve(Sim *s, int64_t count, int64_t width);
int64_t sim_later(int64_t a, int64_t b);
int64_t sim_step_cost(const Sim *s, const Stream *first, int32_t packet);

int32_t sim_open_run(Sim *s, const Stream *stream, int32_t members);
void sim_switch_enter(Sim *s, int32_t stream);
void sim_switch_arrive(Sim *s, int32_t run);
void sim_solve_switch(const Sim *s, const Run *run, const Stream *first);
int64_t sim_switch_waits(const Sim *s, const Match *match, int64_t *rows, int64_t used, int64_t max_rows);

/* order.c, rank.c */
void sim_note_done(Sim *s, int32_t rank, int32_t node);
void sim_note_ready(Sim *s, int32_t rank, int32_t node, int32_t child, int slot);
void sim_check_order(Sim *s, const SameTick *t);
int64_t sim_first_row(const Sim *s, int32_t rank);
void sim_node_done(Sim *s, int32_t rank, int32_t node);
void sim_memory_done(Sim *s, int32_t rank, int32_t node);

#endif
