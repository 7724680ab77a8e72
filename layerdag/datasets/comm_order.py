"""One order of communication for all ranks of an unfolded job.

A rank that has entered a collective waits until the others come. Its own dependencies do not tell
it that another rank needs a message first, or enters another collective first: that is known only
to the graph of the job. So each rank issues its sends and collectives in the order of the whole
graph, as on the one communication stream of a real job; then no cycle of waits can arise.
"""

from collections.abc import Sequence


def missing_order(
    parents: Sequence[Sequence[int]], mine_N: Sequence[bool], waits_N: Sequence[bool]
) -> list[tuple[int, int]]:
    """Return the edges that one class of ranks lacks to issue its communication in order.

    Args:
        parents: Parents of each node; nodes are in topological order of the whole graph.
        mine_N: Which nodes the class takes part in; only these and the edges among them count.
        waits_N: Which of them are sends and collectives.

    Returns:
        Edges (source, target) from one send or collective to the next.
    """
    # Number of sends and collectives of the class that are done when a node is, itself included.
    done_N = [0] * len(parents)
    last, issued = -1, 0
    added: list[tuple[int, int]] = []
    for node, mine in enumerate(mine_N):
        if not mine:
            continue
        done = max((done_N[parent] for parent in parents[node] if mine_N[parent]), default=0)
        if waits_N[node]:
            if done < issued:
                added.append((last, node))
            last, issued = node, issued + 1
            done = issued
        done_N[node] = done
    return added
