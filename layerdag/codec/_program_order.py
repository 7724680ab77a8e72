"""The order of communication that ranks of an unfolded job need, and why nothing can deadlock.

A rank that has entered a collective waits until the others come. Its own dependencies do not tell
it that another rank needs a message first, or enters another collective first: that is known only
to the graph of the job. Nor is it enough that ranks run the same program. Ranks of one stage differ
in time, since their groups and their neighbors around a ring do, so that of two independent
collectives each may find another one ready first. So each rank issues what holds its communication
slot in the order of the whole graph, as on the one communication stream of a real job.

Sends among themselves mostly need no such order, and have none in the traces of real pipelines: a
receive that depends on nothing is posted at the start, so that its send ends when the message has
arrived, whatever else the other rank does. Such a send is *prompt*.

**Claim.** Number the nodes of the graph in topological order. Let each rank run the nodes in which
it takes part, with the edges among them. Sends, collectives and memory accesses hold the slot of a
rank's communication while they run. Let ``missing_order`` add edges until they depend on each other
in ascending order, prompt sends among themselves excepted. Then the job runs to its end, however
long the nodes last, wherever a ready node starts as soon as its slot is free, receives need no
slot, and computation and memory accesses end by themselves. Sends may be buffered or wait for their
receives.

**Proof.** All edges, the added ones included, lead from lower to higher numbers. Suppose everything
stands still before the end, and let g be the lowest node that some rank has not finished. On every
rank that takes part in g, all that g waits for has a lower number and so is finished: g is ready.

1. *Its slot is free there.* A node h in the way is not finished, so h > g. A computation would end
   by itself, and so would a prompt send. Any other h holds the slot of communication, and so does
   g then; but on this rank h depends on g, and so cannot have started. Hence g has been issued on
   all ranks that take part in it.
2. *Computations and memory accesses* end by themselves.
3. *A message.* Both ends are issued, and its tag is the number of g, so that nothing else can be
   taken for it. It arrives, and both ends finish.
4. *A collective.* All its ranks have issued it. Ranks that share a group issue the collectives of
   this group in ascending order, and no other; so g is the k-th of the group for each of them, and
   the k-th meets the k-th. They come together, and g finishes.

So g finishes on all its ranks, which contradicts the choice of g. A job of one stage is no
exception.
"""

from collections.abc import Sequence


def missing_order(
    parents: Sequence[Sequence[int]],
    mine_N: Sequence[bool],
    holds_N: Sequence[bool],
    prompt_N: Sequence[bool],
) -> list[tuple[int, int]]:
    """Return the edges that one class of ranks lacks to issue its communication in order.

    Args:
        parents: Parents of each node; nodes are in topological order of the whole graph.
        mine_N: Which nodes the class takes part in; only these and the edges among them count.
        holds_N: Which of them hold the communication slot of a rank.
        prompt_N: Which of those need no order among themselves.

    Returns:
        Edges (source, target) between nodes that hold the slot. None follows from the others and
        the edges of the graph.
    """
    # Bit k of a word is the k-th node that holds the slot: whether it is done when a node is.
    done_N = [0] * len(parents)
    issued: list[int] = []
    ordered = 0  # those that are not prompt
    added: list[tuple[int, int]] = []
    for node, mine in enumerate(mine_N):
        if not mine:
            continue
        done = 0
        for parent in parents[node]:
            if mine_N[parent]:
                done |= done_N[parent]
        if holds_N[node]:
            bit = 1 << len(issued)
            before = ordered if prompt_N[node] else bit - 1
            while missing := before & ~done:
                last = issued[missing.bit_length() - 1]
                added.append((last, node))
                done |= done_N[last]
            done |= bit
            ordered |= 0 if prompt_N[node] else bit
            issued.append(node)
        done_N[node] = done
    return added
