"""Costs of nodes that add up to the target, and boosted trees for what they leave.

A time is mostly the sum of its operators' times, and the time of an operator is mostly a product of
powers of its sizes. So the cost of a node is the exponential of a sum of one term for each of its
attributes: a generalized additive model (Hastie and Tibshirani, Statistical Science 1(3), 1986)
inside a sum over nodes. A term is a line inside each bin of the attribute, one for all nodes and a
correction for each kind of node, which the first attribute says. Where targets are not all
positive, costs are the sums of terms themselves. Terms are found by Gauss-Newton steps with a
decreasing ridge penalty; graphs that are held back choose the step. The trees of ``boosting`` then
learn what remains, such as what runs side by side.

Shape letters: B graphs, N nodes, U distinct nodes, A attributes, P terms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.sparse import csr_matrix

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import DataError
from layerdag.runtime.rng import numpy_generator
from layerdag.surrogates.families.base import SurrogateModel, TargetScale
from layerdag.surrogates.families.trees import BoostedTrees, BoostingSettings, fit_boosting

REACH = 3.0
"""Standard deviations beyond the training targets that a sum of known costs may reach."""
_MIX = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class AdditiveSettings:
    """How to find the costs.

    Attributes:
        steps: Gauss-Newton steps, each with a smaller penalty.
        first_penalty: Of the first step, for standardized targets.
        last_penalty: Of the last step.
        validation_fraction: Fraction of graphs held back to choose the step.
        trees: Number of trees for what the costs leave.
    """

    steps: int = 16
    first_penalty: float = 10.0
    last_penalty: float = 1e-4
    validation_fraction: float = 0.15
    trees: int = 150


@dataclass(frozen=True, eq=False)
class AdditiveCosts(SurrogateModel):
    """Costs of nodes, and trees for what they leave.

    Attributes:
        sizes: Codes that the graphs may have.
        scale: Scale of the target.
        shift: Part of every node's cost.
        key_P: int64 number of each term, ascending.
        weight_P: float64 weight of each term.
        trees: Of what the costs leave, in standardized targets.
    """

    sizes: GraphSizes
    scale: TargetScale
    shift: float
    key_P: np.ndarray
    weight_P: np.ndarray
    trees: BoostedTrees

    @property
    def family(self) -> str:
        """The name "additive"."""
        return "additive"

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction a graph, float64 (B,)."""
        if not dags:
            return np.zeros(0)
        nodes = _Nodes.from_dags(dags, self.sizes)
        terms_UP = nodes.terms(self.sizes, self.key_P)
        total_B = _total(nodes.count_BU, terms_UP @ self.weight_P + self.shift, self.scale.log)
        standard_B = (total_B - self.scale.mean) / self.scale.std
        return widened(self.scale).restore(standard_B + self.trees.predict(dags))

    def config(self) -> Mapping[str, object]:
        """Return sizes, scale, shift, and the configuration of the trees."""
        return {
            "sizes": asdict(self.sizes),
            "scale": asdict(self.scale),
            "shift": self.shift,
            "trees": self.trees.config(),
        }

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the terms and the trees."""
        trees = {f"trees.{name}": array for name, array in self.trees.arrays().items()}
        return {"key": self.key_P, "weight": self.weight_P, **trees}


def widened(scale: TargetScale) -> TargetScale:
    """Return the scale with ``REACH`` beyond the training targets: sums of costs may grow."""
    return replace(scale, low=scale.low - REACH, high=scale.high + REACH)


def fit_additive(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    *,
    seed: int = 0,
    settings: AdditiveSettings | None = None,
) -> AdditiveCosts:
    """Fit costs and trees; about 20 s for 1,000 graphs of 300 nodes.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``.
    """
    settings = settings or AdditiveSettings()
    target_B = np.asarray(target_B, dtype=float)
    scale = TargetScale.fit(target_B)
    goal_B = np.log(target_B) if scale.log else target_B
    nodes = _Nodes.from_dags(dags, sizes)
    key_P = nodes.known_terms(sizes)
    held_B = _held_back(len(dags), settings.validation_fraction, seed)
    problem = _Problem(nodes.count_BU, nodes.terms(sizes, key_P), goal_B, scale)
    weight_P = problem.solved(held_B, settings)
    left_B = (goal_B - problem.totals(weight_P)) / scale.std
    chosen = BoostingSettings(trees=settings.trees)
    trees = fit_boosting(dags, left_B, sizes, seed=seed, settings=chosen, log=False)
    return AdditiveCosts(sizes, scale, problem.shift, key_P, weight_P, trees)


def _held_back(count: int, fraction: float, seed: int) -> np.ndarray:
    held_B = np.zeros(count, dtype=bool)
    order = numpy_generator(seed, "held back").permutation(count)
    held_B[order[: int(fraction * count)]] = True
    return held_B


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The distinct nodes of graphs.

    Attributes:
        count_BU: How often each graph has each of them, sparse.
        x_UA: Their codes.
        u_UA: Their positions inside bins.
    """

    count_BU: csr_matrix
    x_UA: np.ndarray
    u_UA: np.ndarray

    @classmethod
    def from_dags(cls, dags: Sequence[DAG], sizes: GraphSizes) -> "_Nodes":
        x_NA = np.concatenate([dag.x_NA.numpy() for dag in dags])
        u_NA = np.concatenate([dag.u_NA.numpy() for dag in dags]).astype(np.float32)
        if x_NA.shape[1] != len(sizes.attributes) or not (
            (x_NA >= 0).all() and (x_NA < np.array(sizes.attributes)).all()
        ):
            raise DataError(
                "A graph has a code that the surrogate does not know; encode it with the schema "
                "the surrogate was fitted with."
            )
        # Equal nodes by a hash of 64 bits: sorting whole rows takes ten times as long.
        word_N = np.zeros(len(x_NA), dtype=np.uint64)
        for column_N in (*x_NA.T, *np.ascontiguousarray(u_NA.T).view(np.uint32)):
            word_N = (word_N ^ column_N.astype(np.uint64)) * np.uint64(_MIX)
            word_N ^= word_N >> np.uint64(29)
        _, first_U, node_N = np.unique(word_N, return_index=True, return_inverse=True)
        graph_N = np.repeat(np.arange(len(dags)), [dag.num_nodes for dag in dags])
        shape = (len(dags), first_U.size)
        count_BU = csr_matrix((np.ones(len(x_NA)), (graph_N, node_N.ravel())), shape=shape)
        count_BU.sum_duplicates()
        return cls(count_BU, x_NA[first_U], u_NA[first_U].astype(float))

    def _keys(self, sizes: GraphSizes) -> tuple[np.ndarray, np.ndarray]:
        """Return number and value of each node's terms, (U, 4 A) each.

        For each attribute: its code and its position in the bin, for all nodes (kind 0) and for
        the node's kind.
        """
        starts_A = np.concatenate([[0], np.cumsum(sizes.attributes)])[:-1]
        code_UA = starts_A + self.x_UA
        own_UA = code_UA + (self.x_UA[:, :1] + 1) * sum(sizes.attributes)
        both_UK = np.concatenate([code_UA, own_UA], axis=1)
        key_UK = np.concatenate([2 * both_UK, 2 * both_UK + 1], axis=1)
        ones_UK = np.ones(both_UK.shape)
        value_UK = np.concatenate([ones_UK, np.tile(self.u_UA, 2)], axis=1)
        return key_UK, value_UK

    def known_terms(self, sizes: GraphSizes) -> np.ndarray:
        """Return the numbers of all terms that a node here has, ascending."""
        key_UK, value_UK = self._keys(sizes)
        return np.unique(key_UK[value_UK != 0])

    def terms(self, sizes: GraphSizes, key_P: np.ndarray) -> csr_matrix:
        """Return the value of each term of each node, sparse (U, P); unknown terms are left out."""
        key_UK, value_UK = self._keys(sizes)
        place_UK = np.minimum(np.searchsorted(key_P, key_UK), max(key_P.size - 1, 0))
        kept_UK = (value_UK != 0) & (key_P[place_UK] == key_UK)
        row_UK = np.broadcast_to(np.arange(len(key_UK))[:, None], key_UK.shape)
        entries = (value_UK[kept_UK], (row_UK[kept_UK], place_UK[kept_UK]))
        return csr_matrix(entries, shape=(len(key_UK), key_P.size))


def _total(count_BU: csr_matrix, cost_U: np.ndarray, log: bool) -> np.ndarray:
    """Return the sum of the costs of each graph; with ``log``, costs and sums are logarithms."""
    if not log:
        return np.asarray(count_BU @ cost_U)
    most = float(cost_U.max(initial=0.0))
    return np.asarray(np.log(np.maximum(count_BU @ np.exp(cost_U - most), 1e-300)) + most)


class _Problem:
    """The least-squares problem of the costs.

    Args:
        count_BU: How often each graph has each node.
        terms_UP: Terms of the nodes.
        goal_B: The targets, or their logarithms where the scale says so.
        scale: Of the targets.
    """

    def __init__(
        self, count_BU: csr_matrix, terms_UP: csr_matrix, goal_B: np.ndarray, scale: TargetScale
    ) -> None:
        self.count_BU, self.terms_UP = count_BU, terms_UP
        self.goal_B, self.scale = goal_B, scale
        nodes = float(np.asarray(count_BU.sum(axis=1)).mean())
        self.shift = scale.mean - float(np.log(nodes)) if scale.log else scale.mean / nodes

    def totals(self, weight_P: np.ndarray) -> np.ndarray:
        """Return the sum of costs of each graph."""
        return _total(self.count_BU, self.terms_UP @ weight_P + self.shift, self.scale.log)

    def solved(self, held_B: np.ndarray, settings: AdditiveSettings) -> np.ndarray:
        """Return the weights of the step with the least error on the graphs held back."""
        weight_P = np.zeros(self.terms_UP.shape[1])
        best, best_P = np.inf, weight_P
        ends = settings.first_penalty, settings.last_penalty
        for penalty in np.geomspace(*ends, settings.steps):
            weight_P = self._step(weight_P, ~held_B, float(penalty))
            error_B = np.square(self._left(weight_P))
            error = float(error_B[held_B].mean() if held_B.any() else error_B.mean())
            if error < best:
                best, best_P = error, weight_P
        return best_P

    def _left(self, weight_P: np.ndarray) -> np.ndarray:
        return (self.goal_B - self.totals(weight_P)) / self.scale.std

    def _step(self, weight_P: np.ndarray, used_B: np.ndarray, penalty: float) -> np.ndarray:
        slope_bP = self._slopes(weight_P)[used_B]
        wanted_b = self._left(weight_P)[used_B] + slope_bP @ weight_P
        if slope_bP.shape[0] <= slope_bP.shape[1]:
            square = slope_bP @ slope_bP.T
            square[np.diag_indices_from(square)] += penalty
            aim_P = slope_bP.T @ np.linalg.solve(square, wanted_b)
        else:
            square = slope_bP.T @ slope_bP
            square[np.diag_indices_from(square)] += penalty
            aim_P = np.linalg.solve(square, slope_bP.T @ wanted_b)

        def objective(at_P: np.ndarray) -> float:
            left_b = self._left(at_P)[used_B]
            return float(left_b @ left_b + penalty * at_P @ at_P)

        before = objective(weight_P)
        for halving in range(6):
            there_P = weight_P + 0.5**halving * (aim_P - weight_P)
            if objective(there_P) <= before:
                return np.asarray(there_P)
        return weight_P

    def _slopes(self, weight_P: np.ndarray) -> np.ndarray:
        """Return how each standardized sum changes with each weight, (B, P)."""
        weighted_BU = self.count_BU
        if self.scale.log:
            cost_U = self.terms_UP @ weight_P + self.shift
            weighted_BU = self.count_BU.multiply(np.exp(cost_U - cost_U.max())[None, :]).tocsr()
            total_B = np.maximum(np.asarray(weighted_BU.sum(axis=1)).ravel(), 1e-300)
            weighted_BU = weighted_BU.multiply(1 / total_B[:, None]).tocsr()
        return np.asarray((weighted_BU @ self.terms_UP).toarray() / self.scale.std)
