"""All graphs of an audit side by side, and which part each of them plays in an attack.

The same attack is run twice: on the samples, and on held-out graphs that pose as samples. Only the
parts differ, so that what is computed of the graphs themselves is computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from layerdag._runtime import numpy_generator
from layerdag.errors import GraphError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.privacy import kernel_distances, program_of
from layerdag.evaluation.privacy.attacks._descriptors import graph_descriptors, main_components
from layerdag.graph import DAG, layers_of


@dataclass(frozen=True, eq=False)
class Roles:
    """Which graphs of a pool play which part; numbers of graphs in the pool.

    Attributes:
        member_T: Training graphs, to be told from the others.
        other_H: Held-out graphs.
        sample_K: What the attacker was given.
    """

    member_T: np.ndarray
    other_H: np.ndarray
    sample_K: np.ndarray

    @property
    def real_G(self) -> np.ndarray:
        """Members, then others."""
        return np.concatenate([self.member_T, self.other_H])

    def honest(self, seed: int) -> tuple["Roles", ...]:
        """Return the parts if held-out graphs pose as samples; none with fewer than two of them.

        Half of the held-out graphs, at most as many as there are samples, pose as samples, and the
        others stay what they are; then the other way around. Samples of a generator that learned
        nothing of single graphs are to the members what these are: real graphs of the same kind
        that nobody made from the members. So the area is one half but for what sets training graphs
        apart from held-out ones in the first place. (Held-out graphs posing as training graphs
        would give one half whatever the two parts are like, and hide that.)
        """
        count = self.other_H.size
        if count < 2:
            return ()
        order = numpy_generator(seed, "held-out graphs as samples").permutation(count)
        halves = self.other_H[order[: count // 2]], self.other_H[order[count // 2 :]]
        most = self.sample_K.size
        return tuple(
            Roles(self.member_T, np.sort(rest), posing[:most])
            for posing, rest in (halves, halves[::-1])
        )


class Pool:
    """Training graphs, held-out graphs and samples, in this order.

    Attributes:
        dags: All of them.
        programs: The same without measured columns.
        roles: The parts that they really play.
        numeric: Columns of ``x_NA`` that hold sizes, such as FLOPs and bytes.
    """

    def __init__(
        self,
        train: Sequence[DAG],
        held_out: Sequence[DAG],
        generated: Sequence[DAG],
        *,
        measured: Sequence[int] = (),
        numeric: Sequence[int] = (),
    ) -> None:
        self.dags = (*train, *held_out, *generated)
        self.measured = tuple(measured)
        self.numeric = tuple(numeric)
        self.programs = tuple(program_of(dag, measured) for dag in _layered(self.dags))
        number_P = np.arange(len(self.dags))
        split = len(train), len(train) + len(held_out)
        self.roles = Roles(*np.split(number_P, split))

    @property
    def num_real(self) -> int:
        """Number of training and held-out graphs."""
        return self.roles.real_G.size

    @cached_property
    def graphs(self) -> GraphSet:
        """All programs as one union."""
        return GraphSet.of(self.programs)

    @cached_property
    def descriptors(self) -> np.ndarray:
        """Sizes and counts of each graph, float32 (P, F)."""
        return graph_descriptors(self.graphs, self.num_real)

    @cached_property
    def components(self) -> np.ndarray:
        """Main components of the descriptors, float64 (P, C)."""
        return main_components(self.descriptors, self.num_real)

    def distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return Weisfeiler-Lehman distances of real graphs to graphs that are no members."""
        return self._distance_GC[rows][:, columns - self.roles.member_T.size]

    def program_distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the same without measured columns."""
        return self._program_distance_GC[rows][:, columns - self.roles.member_T.size]

    @cached_property
    def _distance_GC(self) -> np.ndarray:
        return self._distances_of(self.dags)

    @cached_property
    def _program_distance_GC(self) -> np.ndarray:
        return self._distances_of(self.programs) if self.measured else self._distance_GC

    def _distances_of(self, dags: Sequence[DAG]) -> np.ndarray:
        return kernel_distances(dags[: self.num_real], dags[self.roles.member_T.size :])


def _layered(dags: Sequence[DAG]) -> Sequence[DAG]:
    """Return the graphs with their layers; all nodes of a cyclic sample are in the first one."""
    try:
        layers_of(dags)
    except GraphError:
        return [_flat_if_cyclic(dag) for dag in dags]
    return dags


def _flat_if_cyclic(dag: DAG) -> DAG:
    try:
        dag.layer_N  # noqa: B018
    except GraphError:
        layer_N = torch.zeros(dag.num_nodes, dtype=torch.int64)
        return DAG.build(dag.x_NA, dag.edge_index_2E, edge_type_E=dag.edge_type_E, layer_N=layer_N)
    return dag
