/* The double binary tree: a whole chunk goes up one of two trees and down again. */
#include "sim.h"

/* In-order numbered full binary tree of n-1 nodes under a root with one child; the root is the
 * last place (first tree) or the first place (second tree). */
TreeNode sim_tree_node(const Stream *stream, const Phase *p) {
    int32_t n = p->members, second = stream->second_tree >> stream->phase & 1;
    int32_t own = sim_position_of(stream, p), root = second ? 0 : n - 1, shift = second ? 0 : 1;
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

void sim_tree_start(Sim *s, int32_t index) {
    const Stream *stream = &POOL(s, Stream, stream, index);
    const Phase *p = sim_phase_of(s, stream);
    TreeNode node = sim_tree_node(stream, p);
    if (node.left < 0) {
        sim_endpoint(s, index, -1);
        return;
    }
    int32_t left = sim_member(s, stream, p, node.left);
    int32_t right = node.right < 0 ? -1 : sim_member(s, stream, p, node.right);
    sim_recv_from(s, index, left, p->size);
    if (right >= 0) sim_recv_from(s, index, right, p->size);
}

void sim_tree_packet_done(Sim *s, int32_t index) {
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
        sim_send_to(s, index, parent, size);
        sim_recv_from(s, index, parent, size);
        return;
    }
    if (left >= 0) sim_send_to(s, index, left, size);
    if (right >= 0) sim_send_to(s, index, right, size);
    sim_next_phase(s, index);
}
