"""Attacks on samples alone by distances, densities, trees and motifs, and the graphs that they see.

The same attack is run twice: on the samples, and on held-out graphs that pose as samples. Only the
parts differ, so that what is computed of the graphs themselves is computed once.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from layerdag.dag.dag import DAG, graph_hashes, layers_of
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import GraphError
from layerdag.evaluation.metrics.descriptor_metrics import edge_pairs
from layerdag.graph.attributed_graph import SIZE_CONDITIONS
from layerdag.graph.topology import neighborhood_colors
from layerdag.privacy.copies import KernelIndex, kernel_distances
from layerdag.privacy.membership import Scores
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.surrogates.families.base import log_counts, shape_features

MAX_PAIRS = 128
"""Pairs of first attributes at edges with a column of their own: the most frequent ones."""
MAX_CODES = 256
COMPONENTS = 32


def graph_descriptors(graphs: GraphSet, real: int) -> np.ndarray:
    """Return one row for each graph, float32 (B, F); columns that never differ are left out.

    Counts enter as log(1 + count).
    """
    shape = np.delete(shape_features(graphs), 5, axis=1)  # nodes per layer follow from the others
    columns = [shape, _counts(graphs, graphs.graph_E, graphs.edge_type_E)]
    for code_N in graphs.x_NA.T:
        columns.append(_counts(graphs, graphs.graph_N, np.minimum(code_N, MAX_CODES - 1)))
    columns.append(_pairs(graphs, real))
    found_BF = np.concatenate(columns, axis=1).astype(np.float32)
    return found_BF[:, np.ptp(found_BF, axis=0) > 0]


def main_components(x_BF: np.ndarray, real: int) -> np.ndarray:
    """Return the main components of standardized columns, float64 (B, at most ``COMPONENTS``)."""
    mean_F, spread_F = x_BF[:real].mean(axis=0), x_BF[:real].std(axis=0)
    kept_F = spread_F > 0
    z_BF = ((x_BF - mean_F) / np.maximum(spread_F, 1e-6))[:, kept_F].astype(np.float64)
    if not kept_F.any():
        return np.zeros((len(x_BF), 1))
    _, _, axes_CF = np.linalg.svd(z_BF[:real], full_matrices=False)
    found_BC: np.ndarray = z_BF @ axes_CF[:COMPONENTS].T
    return found_BC


def _counts(graphs: GraphSet, graph: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Return log(1 + count) of each code in each graph."""
    return log_counts(code, graph, graphs.num_graphs, int(code.max(initial=0)) + 1)


def _pairs(graphs: GraphSet, real: int) -> np.ndarray:
    """Return log(1 + count) of the pairs of first attributes that edges most often connect."""
    pair_E = edge_pairs(graphs)
    known, count = np.unique(pair_E[graphs.graph_E < real], return_counts=True)
    known = np.sort(known[np.argsort(-count, kind="stable")[:MAX_PAIRS]])
    kept_E = np.isin(pair_E, known)
    position_E = np.searchsorted(known, pair_E[kept_E])
    return _counts(graphs, graphs.graph_E[kept_E], position_E)


@dataclass(frozen=True, eq=False)
class Roles:
    """Which graphs of a pool play which part; numbers of graphs in the pool.

    Attributes:
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

    def split(self, score_G: np.ndarray) -> Scores:
        """Return scores of members, and those of the others, which follow them."""
        return score_G[: self.member_T.size], score_G[self.member_T.size :]

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
        self.programs = tuple(dag.without_columns(measured) for dag in _layered(self.dags))
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

    @cached_property
    def motifs(self) -> tuple[np.ndarray, np.ndarray]:
        """The motifs of all nodes, of all radii end to end, and the graph of each."""
        return motifs_of(self.graphs), np.tile(self.graphs.graph_N, RADIUS)

    def distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return Weisfeiler-Lehman distances of real graphs to graphs that are not members."""
        return self._distance_GC[rows][:, columns - self.roles.member_T.size]

    def program_distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the same without measured columns."""
        return self._program_distance_GC[rows][:, columns - self.roles.member_T.size]

    def samples(self, sample_K: np.ndarray) -> "SamplePart":
        """Return graphs of the pool as attacks see samples."""
        real_G = np.arange(self.num_real)
        word_M, graph_M = self.motifs
        return SamplePart(
            self.distances(real_G, sample_K).T,
            self.program_distances(real_G, sample_K).T,
            word_M[np.isin(graph_M, sample_K)],
        )

    def further_samples(self, dags: Sequence[DAG]) -> "SamplePart":
        """Return graphs that are not in the pool as attacks see samples."""
        programs = [dag.without_columns(self.measured) for dag in _layered(dags)]
        distance_KG = self._index.distances(dags)
        program_KG = self._program_index.distances(programs) if self.measured else distance_KG
        return SamplePart(distance_KG, program_KG, motifs_of(GraphSet.from_dags(programs)))

    @cached_property
    def _index(self) -> KernelIndex:
        return KernelIndex.from_dags(self.dags[: self.num_real])

    @cached_property
    def _program_index(self) -> KernelIndex:
        return KernelIndex.from_dags(self.programs[: self.num_real])

    @cached_property
    def _distance_GC(self) -> np.ndarray:
        return kernel_distances(self.dags[: self.num_real], self.dags[self.roles.member_T.size :])

    @cached_property
    def _program_distance_GC(self) -> np.ndarray:
        if not self.measured:
            return self._distance_GC
        others = self.programs[self.roles.member_T.size :]
        return kernel_distances(self.programs[: self.num_real], others)


@dataclass(frozen=True, eq=False)
class SamplePart:
    """What attacks see of some samples, K.

    Attributes:
        distance_KG: Weisfeiler-Lehman distances to all real graphs of the pool.
        program_KG: The same without measured columns.
        motif_M: Their motifs, see ``motifs_of``.
    """

    distance_KG: np.ndarray
    program_KG: np.ndarray
    motif_M: np.ndarray


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
    """A score of real graphs by samples, higher for what was likelier trained on."""

    name: str
    description: str

    @abstractmethod
    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores of members and of others; none where there are too few graphs."""

    def fractions(self, roles: Roles) -> tuple[float, float] | None:
        """Return what the score is about, over all members and others; None for no fraction."""
        del roles
        return None


class Tally(ABC):
    """Scores of real graphs by samples that come some at a time."""

    @abstractmethod
    def add(self, part: SamplePart) -> None:
        """Look at the next samples."""

    @abstractmethod
    def folds(self) -> list[Scores]:
        """Return the scores."""

    def fractions(self) -> tuple[float, float] | None:
        """Return what the score is about, over all members and others; None for no fraction."""
        return None


class TallyAttack(Attack):
    """An attack that uses each sample once, so that there may be any number of them."""

    def __init__(self, pool: AttackPool) -> None:
        self.pool = pool

    @abstractmethod
    def tally(self, roles: Roles, seed: int) -> Tally:
        """Return the attack before the first sample; ``roles`` has as many as there will be."""

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores by samples of the pool."""
        return self._tallied(roles, seed).folds()

    def fractions(self, roles: Roles) -> tuple[float, float] | None:
        """Return what the score is about, by samples of the pool."""
        return self._tallied(roles, 0).fractions()

    def _tallied(self, roles: Roles, seed: int) -> Tally:
        tally = self.tally(roles, seed)
        tally.add(self.pool.samples(roles.sample_K))
        return tally


class NearestSample(TallyAttack):
    """The nearer a sample, the likelier a member (Chen et al., GAN-Leaks, CCS 2020)."""

    name = "nearest_sample"
    description = "how near the nearest sample is"

    def tally(self, roles: Roles, seed: int) -> Tally:
        """Return the attack before the first sample."""
        del seed
        return NearestTally(roles, programs=False)


class NearestProgram(TallyAttack):
    """``NearestSample`` without what was measured.

    Measured times differ from run to run of one program, so that a training graph measured again is
    far from itself where they count.
    """

    name = "nearest_program"
    description = "how near the nearest sample is, measured times left out"

    def tally(self, roles: Roles, seed: int) -> Tally:
        """Return the attack before the first sample."""
        del seed
        return NearestTally(roles, programs=True)


class NearestTally(Tally):
    """The distance of each real graph to the nearest sample."""

    def __init__(self, roles: Roles, *, programs: bool) -> None:
        self._roles, self._programs = roles, programs
        self._nearest_G = np.full(roles.real_G.size, np.inf)

    def add(self, part: SamplePart) -> None:
        """Look at the next samples."""
        distance_KG = part.program_KG if self._programs else part.distance_KG
        nearest_G = distance_KG[:, self._roles.real_G].min(axis=0)
        self._nearest_G = np.minimum(self._nearest_G, nearest_G)

    def folds(self) -> list[Scores]:
        """Return the scores."""
        return [self._roles.split(-self._nearest_G)]


class DensityRatio(TallyAttack):
    """Density of samples over that of other real graphs (van Breugel et al., DOMIAS, AISTATS 2023).

    The same density of samples means more where real graphs are rare, so it is divided by the
    density of other real graphs, which the attacker has: a random half of the held-out ones, while
    the other half are the non-members. Both halves take both parts in turn, and the figure is the
    mean. Densities are Gaussian kernel estimates over Weisfeiler-Lehman distances.
    """

    name = "density_ratio"
    description = "density of samples over that of other real graphs"

    def tally(self, roles: Roles, seed: int) -> Tally:
        """Return the attack before the first sample."""
        return DensityTally(self.pool, roles, seed)


class DensityTally(Tally):
    """Logarithms of the density of samples at members and at half of the others, twice."""

    def __init__(self, pool: AttackPool, roles: Roles, seed: int) -> None:
        self._roles = roles
        self._folds = []
        for reference, others in roles.halves(seed):
            rows = np.concatenate([roles.member_T, others])
            to_reference = pool.distances(rows, reference)
            width = _bandwidth(to_reference)
            self._folds.append((rows, width, _log_density(to_reference, width)))
        self._sums = [np.full(rows.size, -np.inf) for rows, _, _ in self._folds]

    def add(self, part: SamplePart) -> None:
        """Look at the next samples."""
        for sum_G, (rows, width, _) in zip(self._sums, self._folds, strict=True):
            exponent_KG = -0.5 * (part.distance_KG[:, rows] / width) ** 2
            np.logaddexp(sum_G, np.logaddexp.reduce(exponent_KG, axis=0), out=sum_G)

    def folds(self) -> list[Scores]:
        """Return the scores."""
        count = np.log(self._roles.sample_K.size)
        return [
            self._roles.split(sum_G - count - reference_G)
            for sum_G, (_, _, reference_G) in zip(self._sums, self._folds, strict=True)
        ]


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
        """Return the scores by classifiers that learned from either half; none of too few."""
        from sklearn.ensemble import ExtraTreesClassifier

        samples = roles.sample_K.size
        if min(samples, roles.other_H.size // 2) < MIN_GRAPHS:
            return []
        state = derive_seed(seed, "calibrated classifier") % 2**32
        found = []
        for reference, others in roles.halves(seed):
            x_BC = self._x_PC[np.concatenate([roles.sample_K, reference])]
            is_sample_B = np.arange(len(x_BC)) < samples
            weight_B = np.where(is_sample_B, 0.5 / samples, 0.5 / reference.size) * len(x_BC)
            trees = ExtraTreesClassifier(TREES, random_state=state)
            trees.fit(x_BC, is_sample_B, weight_B)
            member_T, other_H = (
                trees.predict_proba(self._x_PC[rows])[:, 1] for rows in (roles.member_T, others)
            )
            found.append((member_T, other_H))
        return found


RADIUS = 3
PRIOR = 2.0
"""Motifs that are added to those a graph alone has, so that one of one is less than ten of ten."""


class UniqueMotifs(TallyAttack):
    """Fraction of the motifs that a real graph alone has, of all real ones, that samples have.

    A motif is a node with its surroundings up to one, two or three edges away, by the first
    attribute: the operators of a trace. Motifs of training and of held-out graphs are unique among
    both together, so that either kind has the same chance to recur.
    """

    name = "unique_motifs"
    description = "fraction of the motifs that no other real graph has which samples have"

    def tally(self, roles: Roles, seed: int) -> "MotifTally":
        """Return the attack before the first sample."""
        del seed
        return MotifTally(self.pool, roles)


class MotifTally(Tally):
    """Which of the U motifs that a single real graph has recur in samples."""

    def __init__(self, pool: AttackPool, roles: Roles) -> None:
        word_M, graph_M = pool.motifs
        is_real_M = np.isin(graph_M, roles.real_G)
        graphs = len(pool.dags)
        word_C, color_R = np.unique(word_M[is_real_M], return_inverse=True)
        color_Q, graph_Q = np.divmod(np.unique(color_R * graphs + graph_M[is_real_M]), graphs)
        is_unique_Q = np.bincount(color_Q, minlength=word_C.size)[color_Q] == 1
        self._word_U, self._graph_U = word_C[color_Q[is_unique_Q]], graph_Q[is_unique_Q]
        self._recurs_U = np.zeros(self._word_U.size, dtype=bool)
        self._roles, self._graphs = roles, graphs

    def add(self, part: SamplePart) -> None:
        """Look at the next samples."""
        self._recurs_U |= np.isin(self._word_U, part.motif_M)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how many motifs each graph of the pool alone has, and how many of these recur."""
        unique_P = np.bincount(self._graph_U, minlength=self._graphs)
        return unique_P, np.bincount(self._graph_U[self._recurs_U], minlength=self._graphs)

    def folds(self) -> list[Scores]:
        """Return the fractions, which rest on more where a graph has more such motifs."""
        unique_P, recurring_P = self.counts()
        return [self._roles.split((recurring_P / (unique_P + PRIOR))[self._roles.real_G])]

    def fractions(self) -> tuple[float, float]:
        """Return the fraction that recurs of all such motifs of members, and of others."""
        unique_P, recurring_P = self.counts()
        of_members, of_others = (
            float(recurring_P[rows].sum() / max(unique_P[rows].sum(), 1))
            for rows in (self._roles.member_T, self._roles.other_H)
        )
        return of_members, of_others


def motifs_of(graphs: GraphSet) -> np.ndarray:
    """Return the motifs of all nodes, uint64, of all radii end to end."""
    colors_RN = neighborhood_colors(graphs.x_NA[:, 0], graphs.edge_index_2E, RADIUS)[1:]
    return colors_RN.ravel()


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
    """Return the properties of the graphs of a pool that an attacker could infer.

    Conditions of samples, the family of a model or its parallelism, are read by trees that learned
    them from all real graphs, training or held-out; the number of layers (depth), the widest layer
    (width) and the largest numbers (size) can be seen.
    """
    found = [
        _read(pool, name, _stated(pool.dags, name, pool.num_real), seed)
        for name in _categories(pool)
    ]
    unknown_P = np.full(len(pool.dags), -1)
    seen = {"depth": pool.graphs.layers_B, "width": pool.graphs.widest_B}
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


def _stated(dags: Sequence[DAG], name: str, real: int) -> np.ndarray:
    """Return the code of a condition of each graph, -1 where it is not among those of real ones."""
    values = [str(dag.conditions[name]) if name in dag.conditions else None for dag in dags]
    known = sorted({value for value in values[:real] if value is not None})
    code = {value: i for i, value in enumerate(known)}
    return np.array([-1 if value is None else code.get(value, -1) for value in values])


def _read(pool: AttackPool, name: str, stated_P: np.ndarray, seed: int) -> Trait:
    from sklearn.ensemble import ExtraTreesClassifier

    x_PF, real = pool.descriptors, pool.num_real
    known_G = np.flatnonzero(stated_P[:real] >= 0)
    state = derive_seed(seed, "traits", name) % 2**32
    trees = ExtraTreesClassifier(TRAIT_TREES, min_samples_leaf=2, random_state=state)
    trees.fit(x_PF[known_G], stated_P[known_G])
    return Trait(name, np.concatenate([stated_P[:real], trees.predict(x_PF[real:])]), stated_P)


def _largest(pool: AttackPool) -> np.ndarray:
    graphs = pool.graphs
    largest_PC = np.zeros((graphs.num_graphs, len(pool.numeric)), dtype=np.int64)
    for index, column in enumerate(pool.numeric):
        np.maximum.at(largest_PC[:, index], graphs.graph_N, graphs.x_NA[:, column])
    _, code_P = np.unique(largest_PC, axis=0, return_inverse=True)
    return code_P.ravel()
