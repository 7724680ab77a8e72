"""Attacks on samples alone by distances, densities, trees and motifs, and the graphs that they see.

The same attack is run twice: on the samples, and on held-out graphs that pose as samples. Only the
parts differ, so that what is computed of the graphs themselves is computed once.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG, graph_hashes, layers_of
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import SIZE_CONDITIONS
from layerdag.graph.topology import neighborhood_colors
from layerdag.privacy.copies import kernel_distances, program_of
from layerdag.privacy.membership import Scores
from layerdag.runtime.rng import derive_seed, numpy_generator

MAX_PAIRS = 128
"""Pairs of first attributes at edges with a column of their own: the most frequent ones."""
MAX_CODES = 256
COMPONENTS = 32


def graph_descriptors(graphs: GraphSet, real: int) -> np.ndarray:
    """Return one row for each graph, float32 (B, F); columns that never differ are left out.

    Counts enter as log(1 + count).

    Args:
        graphs: Real graphs, then samples.
        real: Number of real graphs, whose pairs are counted.
    """
    columns = [_shape(graphs), _counts(graphs, graphs.graph_E, graphs.edge_type_E)]
    for code_N in graphs.x_NA.T:
        columns.append(_counts(graphs, graphs.graph_N, np.minimum(code_N, MAX_CODES - 1)))
    columns.append(_pairs(graphs, real))
    found_BF = np.concatenate(columns, axis=1).astype(np.float32)
    return found_BF[:, np.ptp(found_BF, axis=0) > 0]


def main_components(x_BF: np.ndarray, real: int) -> np.ndarray:
    """Return the main components of standardized columns, float64 (B, at most ``COMPONENTS``).

    Args:
        x_BF: Descriptors of real graphs, then of samples.
        real: Number of real graphs, which define scale and components.
    """
    mean_F, spread_F = x_BF[:real].mean(axis=0), x_BF[:real].std(axis=0)
    kept_F = spread_F > 0
    z_BF = ((x_BF - mean_F) / np.maximum(spread_F, 1e-6))[:, kept_F].astype(np.float64)
    if not kept_F.any():
        return np.zeros((len(x_BF), 1))
    _, _, axes_CF = np.linalg.svd(z_BF[:real], full_matrices=False)
    found_BC: np.ndarray = z_BF @ axes_CF[:COMPONENTS].T
    return found_BC


def widths_of(graphs: GraphSet) -> np.ndarray:
    """Return the number of nodes of the widest layer of each graph."""
    widest_B = np.zeros(graphs.num_graphs, dtype=np.int64)
    np.maximum.at(widest_B, graphs.graph_L, graphs.width_L)
    return widest_B


def _shape(graphs: GraphSet) -> np.ndarray:
    nodes_B = np.maximum(graphs.nodes_B, 1)
    roots_B = np.bincount(graphs.graph_N[graphs.in_degree_N == 0], minlength=graphs.num_graphs)
    leaves_B = np.bincount(graphs.graph_N[graphs.out_degree_N == 0], minlength=graphs.num_graphs)
    span_B = np.bincount(graphs.graph_E, weights=graphs.span_E, minlength=graphs.num_graphs)
    values = (
        np.log1p(graphs.nodes_B),
        np.log1p(graphs.edges_B),
        np.log1p(graphs.layers_B),
        np.log1p(widths_of(graphs)),
        graphs.edges_B / nodes_B,
        roots_B / nodes_B,
        leaves_B / nodes_B,
        span_B / np.maximum(graphs.edges_B, 1),
    )
    return np.stack(values, axis=1)


def _counts(graphs: GraphSet, graph: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Return log(1 + count) of each code in each graph."""
    size = int(code.max(initial=0)) + 1
    counts = np.bincount(graph * size + code, minlength=graphs.num_graphs * size)
    return np.log1p(counts.reshape(graphs.num_graphs, size))


def _pairs(graphs: GraphSet, real: int) -> np.ndarray:
    """Return log(1 + count) of the pairs of first attributes that edges most often connect."""
    source_E, target_E = graphs.x_NA[:, 0].astype(np.int64)[graphs.edge_index_2E]
    pair_E = (source_E << 31) | target_E
    known, count = np.unique(pair_E[graphs.graph_E < real], return_counts=True)
    known = np.sort(known[np.argsort(-count, kind="stable")[:MAX_PAIRS]])
    kept_E = np.isin(pair_E, known)
    position_E = np.searchsorted(known, pair_E[kept_E])
    return _counts(graphs, graphs.graph_E[kept_E], position_E)


@dataclass(frozen=True, eq=False)
class Roles:
    """Which graphs of a pool play which part; numbers of graphs in the pool.

    Attributes:
        member_T: Training graphs, to be told from the others.
        other_H: Held-out graphs.
        sample_K: What the attacker was given.
        program_H: Number of the program of each held-out graph; None where all differ. Halves of
            the held-out graphs share none, as training and held-out graphs share none: by its twin
            in the other half a held-out graph would be known without any sample.
    """

    member_T: np.ndarray
    other_H: np.ndarray
    sample_K: np.ndarray
    program_H: np.ndarray | None = None

    @property
    def real_G(self) -> np.ndarray:
        """Members, then others."""
        return np.concatenate([self.member_T, self.other_H])

    def honest(self, seed: int) -> tuple["Roles", ...]:
        """Return the parts if held-out graphs pose as samples; none with fewer than two of them.

        Half of the held-out graphs, at most as many as there are samples, pose as samples, and the
        others stay what they are; then the other way around. Samples of a generator that learned
        nothing of single graphs are to the members what these are: real graphs of the same kind
        that nobody made from the members. So the AUROC is one half but for what sets training
        graphs apart from held-out ones in the first place. (Held-out graphs posing as training
        graphs would give one half whatever the two parts are like, and hide that.)
        """
        halves = self._halves(numpy_generator(seed, "held-out graphs as samples"))
        most = self.sample_K.size
        found = []
        for posing, others in (halves, halves[::-1]) if halves else ():
            rest = np.sort(others)
            program_H = None if self.program_H is None else self.program_H[rest]
            found.append(
                Roles(self.member_T, self.other_H[rest], self.other_H[posing[:most]], program_H)
            )
        return tuple(found)

    def halves(self, seed: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Return (what the attacker has, non-members) for both halves of the held-out graphs.

        There are none of fewer than two programs.
        """
        halves = self._halves(numpy_generator(seed, "membership"))
        numbers = tuple(self.other_H[half] for half in halves)
        return (numbers, numbers[::-1]) if numbers else ()

    def _halves(self, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
        count = self.other_H.size
        program_H = np.arange(count) if self.program_H is None else self.program_H
        _, number_H = np.unique(program_H, return_inverse=True)
        programs = int(number_H.max(initial=-1)) + 1
        if programs < 2:
            return ()
        rank_P = np.empty(programs, dtype=np.int64)
        rank_P[generator.permutation(programs)] = np.arange(programs)
        order = np.argsort(rank_P[number_H], kind="stable")
        ends = np.cumsum(np.bincount(rank_P[number_H]))[:-1]
        cut = int(ends[np.abs(ends - count // 2).argmin()])
        return order[:cut], order[cut:]


class AttackPool:
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
        hashes = list(graph_hashes(self.programs[slice(*split)]))
        numbers = {each: number for number, each in enumerate(dict.fromkeys(hashes))}
        program_H = np.array([numbers[each] for each in hashes], dtype=np.int64)
        member_T, other_H, sample_K = np.split(number_P, split)
        self.roles = Roles(member_T, other_H, sample_K, program_H)

    @property
    def num_real(self) -> int:
        """Number of training and held-out graphs."""
        return self.roles.real_G.size

    @cached_property
    def graphs(self) -> GraphSet:
        """All programs as one union."""
        return GraphSet.from_dags(self.programs)

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


class Attack(ABC):
    """A score of real graphs by samples, higher for what was likelier trained on.

    Attributes:
        name: Of the attack.
        description: The score, in a clause.
    """

    name: str
    description: str

    @abstractmethod
    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores of members and of others; none where there are too few graphs."""

    def fractions(self, roles: Roles) -> tuple[float, float] | None:
        """Return what the score is about, over all members and others; None for no fraction."""
        del roles
        return None


class NearestSample(Attack):
    """The nearer a sample, the likelier a member (Chen et al., GAN-Leaks, CCS 2020).

    Args:
        pool: The graphs.
        programs: Whether what was measured is left out. Measured times differ from run to run of
            one program, so that a training graph measured again is far from itself where they
            count.
    """

    def __init__(self, pool: AttackPool, *, programs: bool = False) -> None:
        self._distances = pool.program_distances if programs else pool.distances
        self.name = "nearest_program" if programs else "nearest_sample"
        self.description = "how near the nearest sample is" + (
            ", measured times left out" if programs else ""
        )

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores."""
        del seed
        return [_nearest(self._distances(roles.real_G, roles.sample_K), roles)]


class DensityRatio(Attack):
    """Density of samples over that of other real graphs (van Breugel et al., DOMIAS, AISTATS 2023).

    The same density of samples means more where real graphs are rare, so it is divided by the
    density of other real graphs, which the attacker has: a random half of the held-out ones, while
    the other half are the non-members. Both halves take both parts in turn, and the figure is the
    mean. Densities are Gaussian kernel estimates over Weisfeiler-Lehman distances.
    """

    name = "density_ratio"
    description = "density of samples over that of other real graphs"

    def __init__(self, pool: AttackPool) -> None:
        self._pool = pool

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores of members and of one half of the others, by the other half; twice."""
        folds = []
        for reference, others in roles.halves(seed):
            rows, width, reference_G = self.by_reference(reference, others, roles)
            to_sample = self._pool.distances(rows, roles.sample_K)
            ratio_G = _log_density(to_sample, width) - reference_G
            folds.append((ratio_G[: roles.member_T.size], ratio_G[roles.member_T.size :]))
        return folds

    def by_reference(
        self, reference: np.ndarray, others: np.ndarray, roles: Roles
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """Return who is scored, the bandwidth, and the logarithm of their density of real graphs.

        Args:
            reference: Real graphs that the attacker has.
            others: Non-members that are scored, after the members.
            roles: The parts that graphs play.
        """
        rows = np.concatenate([roles.member_T, others])
        to_reference = self._pool.distances(rows, reference)
        width = _bandwidth(to_reference)
        return rows, width, _log_density(to_reference, width)


class NearestTally:
    """``NearestSample`` of samples that come some at a time.

    Args:
        attack: With or without what was measured.
        roles: The parts of the real graphs.
    """

    def __init__(self, attack: NearestSample, roles: Roles) -> None:
        self.attack, self._roles = attack, roles
        self._nearest_G = np.full(roles.real_G.size, np.inf)

    def add(self, distance_KG: np.ndarray) -> None:
        """Look at samples, by their distances to all real graphs."""
        np.minimum(self._nearest_G, distance_KG.min(axis=0), out=self._nearest_G)

    def folds(self) -> list[Scores]:
        """Return the scores."""
        return [_nearest(self._nearest_G[:, None], self._roles)]


class DensityTally:
    """``DensityRatio`` of samples that come some at a time.

    Args:
        attack: The same of samples that are held, with distances between real graphs.
        roles: The parts of the real graphs, and as many samples as there will be.
        seed: Of the halves.
    """

    def __init__(self, attack: DensityRatio, roles: Roles, seed: int) -> None:
        self.attack, self._roles = attack, roles
        self._folds = [attack.by_reference(*parts, roles) for parts in roles.halves(seed)]
        self._sums = [np.full(rows.size, -np.inf) for rows, _, _ in self._folds]

    def add(self, distance_KG: np.ndarray) -> None:
        """Look at samples, by their distances to all real graphs."""
        for sum_G, (rows, width, _) in zip(self._sums, self._folds, strict=True):
            exponent_KG = -0.5 * (distance_KG[:, rows] / width) ** 2
            most_G = exponent_KG.max(axis=0)
            found_G = most_G + np.log(np.exp(exponent_KG - most_G).sum(axis=0))
            np.logaddexp(sum_G, found_G, out=sum_G)

    def folds(self) -> list[Scores]:
        """Return the scores."""
        count, found = self._roles.sample_K.size, []
        for sum_G, (_, _, reference_G) in zip(self._sums, self._folds, strict=True):
            ratio_G = sum_G - np.log(count) - reference_G
            found.append(tuple(np.split(ratio_G, [self._roles.member_T.size])))
        return [(member_T, other_H) for member_T, other_H in found]


def _nearest(distance_GK: np.ndarray, roles: Roles) -> Scores:
    nearest_G = -distance_GK.min(axis=1)
    return nearest_G[: roles.member_T.size], nearest_G[roles.member_T.size :]


def _bandwidth(distance_GK: np.ndarray) -> float:
    """Return a third of the median distance to the nearest graph.

    A copy then weighs as much as exp(9 / 2), about 90, neighbors at that distance.
    """
    return max(float(np.median(distance_GK.min(axis=1))) / 3, 1e-3)


def _log_density(distance_GK: np.ndarray, width: float) -> np.ndarray:
    exponent_GK = -0.5 * (distance_GK / width) ** 2
    found: np.ndarray = np.logaddexp.reduce(exponent_GK, axis=1) - np.log(distance_GK.shape[1])
    return found


TREES = 150
MIN_GRAPHS = 4
"""Of the samples and of the half of the held-out graphs that the classifier learns from."""


class CalibratedClassifier(Attack):
    """Probability that a graph is a sample rather than another real graph, by randomized trees.

    The classifier learns from the samples and from one half of the held-out graphs, and scores the
    training graphs and the other half, none of which it has seen; then the halves change places. A
    density ratio is learned so, without a distance having to be chosen: the score is calibrated by
    real graphs as that of DOMIAS is, as if there were as many samples as real graphs. Trees grow
    until they know every graph, for what was memorized lies beside single samples; boosted ones,
    which smooth, find less of it (docs/explanation/what-the-validator-sees.md).
    """

    name = "calibrated_classifier"
    description = "probability that it is a sample and no other real graph, by trees"

    def __init__(self, pool: AttackPool) -> None:
        self._x_PC = pool.components

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return what classifiers that learned from either half say; none of too few."""
        if min(roles.sample_K.size, roles.other_H.size // 2) < MIN_GRAPHS:
            return []
        return [
            self._scored(roles, reference, others, seed) for reference, others in roles.halves(seed)
        ]

    def _scored(self, roles: Roles, reference: np.ndarray, others: np.ndarray, seed: int) -> Scores:
        x_BC = self._x_PC[np.concatenate([roles.sample_K, reference])]
        is_sample_B = np.arange(len(x_BC)) < roles.sample_K.size
        weight_B = np.where(is_sample_B, 0.5 / roles.sample_K.size, 0.5 / reference.size)
        model = _classifier(seed).fit(x_BC, is_sample_B, weight_B * len(x_BC))
        member_T, other_H = (
            model.predict_proba(self._x_PC[rows])[:, 1] for rows in (roles.member_T, others)
        )
        return member_T, other_H


def _classifier(seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    state = derive_seed(seed, "calibrated classifier") % 2**32
    return ExtraTreesClassifier(TREES, random_state=state)


RADIUS = 3
PRIOR = 2.0
"""Motifs that are added to those a graph alone has, so that one of one is less than ten of ten."""


class UniqueMotifs(Attack):
    """Fraction of the motifs that a real graph alone has, of all real ones, that samples have.

    A motif is a node with its surroundings up to one, two or three edges away, by the first
    attribute: the operators of a trace. Motifs of training and of held-out graphs are unique among
    both together, so that either kind has the same chance to recur.
    """

    name = "unique_motifs"
    description = "fraction of the motifs that no other real graph has which samples have"

    def __init__(self, pool: AttackPool) -> None:
        graphs = pool.graphs
        self.word_C, color_M = np.unique(motifs_of(graphs), return_inverse=True)
        graph_M = np.tile(graphs.graph_N, RADIUS)
        self._colors = int(color_M.max(initial=-1)) + 1
        pair_Q = np.unique(graph_M * max(self._colors, 1) + color_M)
        self._graph_Q, self._color_Q = np.divmod(pair_Q, max(self._colors, 1))
        self._graphs = graphs.num_graphs

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the fractions."""
        del seed
        return _scores(self.counts(roles), roles)

    def fractions(self, roles: Roles) -> tuple[float, float]:
        """Return the fraction that recurs of all such motifs of members, and of others."""
        return _fractions(self.counts(roles), roles)

    def counts(
        self, roles: Roles, in_samples_C: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return how many motifs each real graph alone has, and how many of these samples have.

        Both are 0 for graphs of the pool that are not real.

        Args:
            roles: The parts of the graphs.
            in_samples_C: Whether samples have each of ``word_C``; those of the pool by default.
        """
        is_real_Q = self._among(roles.real_G)
        owners_C = np.bincount(self._color_Q[is_real_Q], minlength=self._colors)
        if in_samples_C is None:
            in_samples_C = np.zeros(self._colors, dtype=bool)
            in_samples_C[self._color_Q[self._among(roles.sample_K)]] = True
        unique_Q = is_real_Q & (owners_C[self._color_Q] == 1)
        recurring_Q = unique_Q & in_samples_C[self._color_Q]
        unique_P, recurring_P = (
            np.bincount(self._graph_Q[which], minlength=self._graphs)
            for which in (unique_Q, recurring_Q)
        )
        return unique_P, recurring_P

    def _among(self, graphs: np.ndarray) -> np.ndarray:
        chosen_P = np.zeros(self._graphs, dtype=bool)
        chosen_P[graphs] = True
        found_Q: np.ndarray = chosen_P[self._graph_Q]
        return found_Q


class MotifTally:
    """``UniqueMotifs`` of samples that come some at a time.

    Args:
        attack: The same of samples that are held, which knows the motifs of real graphs.
        roles: The parts of the real graphs.
    """

    def __init__(self, attack: UniqueMotifs, roles: Roles) -> None:
        self.attack, self._roles = attack, roles
        self._in_samples_C = np.zeros(attack.word_C.size, dtype=bool)

    def add(self, graphs: GraphSet) -> None:
        """Look at samples."""
        word_M, word_C = motifs_of(graphs), self.attack.word_C
        place_M = np.minimum(np.searchsorted(word_C, word_M), word_C.size - 1)
        self._in_samples_C[place_M[word_C[place_M] == word_M]] = True

    def folds(self) -> list[Scores]:
        """Return the scores."""
        return _scores(self.attack.counts(self._roles, self._in_samples_C), self._roles)

    def fractions(self) -> tuple[float, float]:
        """Return the fraction that recurs of all such motifs of members, and of others."""
        return _fractions(self.attack.counts(self._roles, self._in_samples_C), self._roles)


def motifs_of(graphs: GraphSet) -> np.ndarray:
    """Return the motifs of all nodes, of all radii end to end."""
    colors_RN = neighborhood_colors(graphs.x_NA[:, 0], graphs.edge_index_2E, RADIUS)[1:]
    return colors_RN.ravel()


def _scores(counts: tuple[np.ndarray, np.ndarray], roles: Roles) -> list[Scores]:
    unique_P, recurring_P = counts
    score_P = recurring_P / (unique_P + PRIOR)
    return [(score_P[roles.member_T], score_P[roles.other_H])]


def _fractions(counts: tuple[np.ndarray, np.ndarray], roles: Roles) -> tuple[float, float]:
    unique_P, recurring_P = counts
    of_members, of_others = (
        float(recurring_P[rows].sum() / max(unique_P[rows].sum(), 1))
        for rows in (roles.member_T, roles.other_H)
    )
    return of_members, of_others


MAX_VALUES, GRAPHS_PER_VALUE = 64, 4
MIN_KNOWN = 0.9
"""Fraction of the real graphs that must state a condition."""
TRAIT_TREES = 100


@dataclass(frozen=True, eq=False)
class Trait:
    """One property of every graph of a pool, as codes.

    Attributes:
        name: Of the condition, or "depth", "width", "size".
        code_P: int64 code of each graph; that of samples as read from them, -1 for unknown.
        stated_P: int64 code that each graph states of itself, -1 for none; of samples what was
            asked for, of real graphs the same as ``code_P``.
    """

    name: str
    code_P: np.ndarray
    stated_P: np.ndarray


def traits_of(pool: AttackPool, seed: int) -> tuple[Trait, ...]:
    """Return what can be told of the graphs of a pool.

    Conditions of samples, the family of a model or its parallelism, are read by trees that learned
    them from all real graphs, training or held-out; the number of layers (depth), the widest layer
    (width) and the largest numbers (size) can be seen.

    Args:
        pool: The graphs.
        seed: Of the trees.
    """
    found = [
        _read(pool, name, stated_P, seed)
        for name in _categories(pool)
        if (stated_P := _stated(pool.dags, name, pool.num_real)) is not None
    ]
    unknown_P = np.full(len(pool.dags), -1)
    seen = {"depth": pool.graphs.layers_B, "width": widths_of(pool.graphs)}
    if pool.numeric:
        seen["size"] = _largest(pool)
    return (*found, *(Trait(name, code_P, unknown_P) for name, code_P in seen.items()))


def _categories(pool: AttackPool) -> list[str]:
    real = pool.dags[: pool.num_real]
    names = dict.fromkeys(name for dag in real for name in dag.conditions)
    kept = []
    for name in names:
        values = [dag.conditions[name] for dag in real if name in dag.conditions]
        whole = all(isinstance(value, str) or float(value).is_integer() for value in values)
        most = min(MAX_VALUES, len(values) // GRAPHS_PER_VALUE)
        if whole and len(values) >= MIN_KNOWN * len(real) and 1 < len(set(values)) <= most:
            kept.append(name)
    return [name for name in kept if name not in SIZE_CONDITIONS]


def _stated(dags: Sequence[DAG], name: str, real: int) -> np.ndarray | None:
    """Return the code of a condition of each graph, -1 where it is not among those of real ones."""
    values = [str(dag.conditions[name]) if name in dag.conditions else None for dag in dags]
    known = sorted({value for value in values[:real] if value is not None})
    code = {value: i for i, value in enumerate(known)}
    return np.array([-1 if value is None else code.get(value, -1) for value in values])


def _read(pool: AttackPool, name: str, stated_P: np.ndarray, seed: int) -> Trait:
    x_PF = pool.descriptors
    known_G = np.flatnonzero(stated_P[: pool.num_real] >= 0)
    model = _trees(seed, name).fit(x_PF[known_G], stated_P[known_G])
    code_P = stated_P.copy()
    code_P[pool.num_real :] = model.predict(x_PF[pool.num_real :])
    return Trait(name, code_P, stated_P)


def _trees(seed: int, name: str) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    state = derive_seed(seed, "traits", name) % 2**32
    return ExtraTreesClassifier(TRAIT_TREES, min_samples_leaf=2, random_state=state)


def _largest(pool: AttackPool) -> np.ndarray:
    graphs = pool.graphs
    largest_PC = np.zeros((graphs.num_graphs, len(pool.numeric)), dtype=np.int64)
    for index, column in enumerate(pool.numeric):
        np.maximum.at(largest_PC[:, index], graphs.graph_N, graphs.x_NA[:, column])
    _, code_P = np.unique(largest_PC, axis=0, return_inverse=True)
    return code_P.ravel()
