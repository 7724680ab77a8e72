"""A graph by the modules of its model: what one call of a module does is one node."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.viz import GraphView

MODULE, PHASE = "module", "phase"
LEAST_SHARE = 0.5
"""Share of nodes that must know their module."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, eq=False)
class ModuleGraph:
    """Groups of nodes that follow each other in one module.

    Attributes:
        view: A node for each group, named by module and phase.
        group_N: Group of each node.
        first_G: First node of each group.
    """

    view: GraphView
    group_N: np.ndarray
    first_G: np.ndarray


def module_graph(view: GraphView) -> ModuleGraph | None:
    """Return the graph of the modules; None if too few nodes know theirs, or hardly any share one.

    Nodes are grouped as they follow each other, so that no group waits for another that waits for
    it, as long as nodes are listed in an order in which they can run.
    """
    names = [_name(view, row) for row in range(view.num_nodes)]
    if sum(map(bool, names)) < max(LEAST_SHARE * view.num_nodes, 1):
        return None
    starts_N = np.array([i == 0 or name != names[i - 1] for i, name in enumerate(names)])
    group_N = np.cumsum(starts_N) - 1
    first_G = np.flatnonzero(starts_N)
    if 2 * first_G.size > view.num_nodes:
        return None
    edges_2E = group_N[view.edge_index_2E]
    ahead_E = edges_2E[0] < edges_2E[1]
    kept_2E, first_E = np.unique(edges_2E[:, ahead_E], axis=1, return_index=True)
    grouped = GraphView(
        title=view.title,
        ids=tuple(view.ids[row] for row in first_G),
        labels=tuple(names[row] or view.labels[row] for row in first_G),
        kind_N=_most_frequent(view.kind_N, first_G),
        kinds=view.kinds,
        colors=view.colors,
        edge_index_2E=kept_2E,
        dashed_E=view.dashed_E[ahead_E][first_E],
        details=tuple(view.details[row] for row in first_G),
    )
    return ModuleGraph(grouped, group_N, first_G)


def _name(view: GraphView, row: int) -> str:
    """Return module and phase of a node; "" if it states none."""
    path = str(view.details[row].get(MODULE, ""))
    phase = str(view.details[row].get(PHASE, ""))
    return f"{cut_path(path.split('.'))}{f', {phase}' if phase else ''}" if path else ""


def cut_path(parts: Sequence[str]) -> str:
    """Return the part of a path that says which piece of which layer it is.

    That is one name behind the first number ("layers.3.attention"), or the first two names.
    """
    numbered = [i for i, part in enumerate(parts) if _NUMBER.fullmatch(part)]
    return ".".join(parts[: numbered[0] + 2] if numbered else parts[:2])


def _most_frequent(kind_N: np.ndarray, first_G: np.ndarray) -> np.ndarray:
    """Return the most frequent kind of each group."""
    parts = np.split(kind_N, first_G[1:])
    return np.array([Counter(part.tolist()).most_common(1)[0][0] for part in parts], dtype=np.int64)
