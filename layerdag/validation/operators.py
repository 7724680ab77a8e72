"""The operators of one rank as arrays: names, sizes, dependencies, forward and backward pass."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.dtypes import find_dtype
from layerdag.hardware.operators import (
    FUSED,
    NORMS,
    PARAMETRIC,
    PARTS,
    SUMS,
    UPDATES,
    WHOLE,
    base_name,
)
from layerdag.traces.analysis import group_names, program_order
from layerdag.traces.trace import DATA, NodeType, Trace, dependency_edges


@dataclass(frozen=True, eq=False)
class RuleOutcomes:
    """What a rule looked at.

    Attributes:
        holds_K: Whether it keeps the rule.
        found: Says what a case has, by its number.
    """

    rank_K: np.ndarray
    row_K: np.ndarray
    holds_K: np.ndarray
    found: Callable[[int], str]


WITH_NORMS = (*WHOLE, *NORMS, *(f"{name}_backward" for name in NORMS))
IN_PLACE = ("add_", "sub_", "copy_", "mul_")
COPY_IN, SPLIT, CHUNKS = "all_gather_copy_in", "split_with_sizes_copy", "chunk_cat"


class Operators:
    """The nodes of one trace, whose dependencies are sound, as arrays.

    ``rank`` is its first rank; ``groups`` and the number of ``ranks`` are those of the job.
    """

    def __init__(
        self, trace: Trace, rank: int, groups: Mapping[str, tuple[int, ...]], ranks: int
    ) -> None:
        self.trace, self.rank = trace, rank
        group_N, _ = group_names(trace)
        sizes = {name: len(members) for name, members in groups.items()}
        self.members_N = np.array([sizes.get(name, ranks) for name in group_N], dtype=np.int64)
        words, self.word_N = np.unique(trace.name_N, return_inverse=True)
        names = ["" if word < 0 else trace.strings[word] for word in words.tolist()]
        self._is_aten = np.array([name.startswith("aten::") for name in names], dtype=bool)
        self.operator_W = np.array([base_name(name) for name in names], dtype=object)
        self.flops_N, flops_known_N = trace.integers("num_ops")
        self.bytes_N, bytes_known_N = trace.integers("tensor_size")
        self.sent_N, self.sends_N = trace.integers("comm_size")
        self.known_N = flops_known_N & bytes_known_N & (trace.type_N == NodeType.COMP)
        self.known_N &= self.flops_N > 0
        try:
            dtypes = trace.dtypes()
        except TraceError:  # of another type than a text: as unknown as one that is absent
            dtypes = [""] * trace.num_nodes
        found = {word: find_dtype(word) for word in set(dtypes)}
        # Bytes of an element of each node, 0 where its type is unknown.
        bits_N = [0 if (one := found[word]) is None else one.bits for word in dtypes]
        self.element_N = np.array(bits_N, dtype=np.int64) // 8
        floats = {word for word, one in found.items() if one is not None and one.is_float}
        self.is_float_N = np.array([word in floats for word in dtypes], dtype=bool)
        edges, kind_E = dependency_edges(trace)
        self.source_E, self.target_E = edges[:, kind_E == DATA]
        self.children_N = np.bincount(edges[0], minlength=trace.num_nodes)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.trace.num_nodes

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of all that the rules look at, but times."""
        found = hashlib.blake2b(digest_size=16)
        sizes = (self.flops_N, self.bytes_N, self.sent_N, self.members_N)
        for column in (*sizes, self.source_E, self.target_E):
            found.update(np.ascontiguousarray(column).tobytes())
        found.update("\0".join(self.trace.names()).encode())
        return found.digest()

    @property
    def computes_loss(self) -> bool:
        """Whether some operator is a loss, or makes a gradient to begin with."""
        words = ("loss", "cross_entropy", "ones", "full", "fill_")
        return any(word in str(name) for name in self.operator_W for word in words)

    @cached_property
    def is_step(self) -> bool:
        """Whether most computations are operators of PyTorch whose costs are known."""
        computes_N = self.trace.type_N == NodeType.COMP
        told_N = self._is_aten[self.word_N] & self.known_N
        return bool(told_N.sum() * 2 > computes_N.sum())

    @cached_property
    def order(self) -> np.ndarray:
        """Rows in the order in which the rank issues them."""
        return program_order(self.trace)

    @cached_property
    def place_N(self) -> np.ndarray:
        """Place of each row in that order."""
        place_N = np.empty(self.num_nodes, dtype=np.int64)
        place_N[self.order] = np.arange(self.num_nodes)
        return place_N

    @cached_property
    def is_widest_float_N(self) -> np.ndarray:
        """Whether each node is of the widest floating-point type of its trace.

        Operators of narrower types may be given wider tensors, which are converted on the way.
        """
        return self.is_float_N & (self.element_N == self.element_N[self.is_float_N].max(initial=0))

    @cached_property
    def output_elements_N(self) -> np.ndarray:
        """Elements of the one result of each node, -1 where they are not known."""
        made_N = np.where(self.is_any_of(WITH_NORMS) & self.known_N, self.flops_N, -1)
        size_N = np.maximum(self.element_N, 1)
        left_N = self.bytes_N // size_N - self.flops_N
        reduced_N = self.is_any_of(SUMS) & self.known_N & (self.element_N > 0)
        reduced_N &= (left_N > 0) & (left_N <= self.flops_N)
        return np.where(reduced_N, left_N, made_N)

    @cached_property
    def in_place_N(self) -> np.ndarray:
        """Whether each node writes into its first input, as its name says."""
        return np.array([str(name).endswith("_") for name in self.operator_W])[self.word_N]

    @cached_property
    def backward_N(self) -> np.ndarray:
        """Whether each node is an operator of a backward pass by its name."""
        has = np.array(["_backward" in str(name) for name in self.operator_W], dtype=bool)
        return has[self.word_N]

    @cached_property
    def part_sizes(self) -> np.ndarray:
        """Sizes of results of which operators see parts, ascending.

        The gradient of a part is as large as the whole; what was joined is seen in parts by the
        backward pass.
        """
        return np.unique(self.flops_N[self.is_any_of(PARTS) & self.known_N])

    @cached_property
    def has_gradient_N(self) -> np.ndarray:
        """Whether a gradient may flow through each node: numbers that follow from parameters.

        Of others, positions and masks above all, the backward pass shows no parts.
        """
        starts = np.flatnonzero(self.is_any_of(PARAMETRIC))
        return self.is_float_N & self._reached(starts, self.source_E, self.target_E)

    def fits(self, rows: np.ndarray, made: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return which results of nodes may be tensors of a wanted number of elements.

        Where operators may see parts of what was made, fewer are as good.
        """
        in_parts = np.isin(made, self.part_sizes) | ~self.has_gradient_N[rows]
        return (made == wanted) | ((in_parts | (not self.trains)) & (made > wanted))

    @cached_property
    def updates_N(self) -> np.ndarray:
        """Whether each node steps parameters.

        That is an optimizer's kernel, or an addition in place that nothing waits for.
        """
        last_N = self.is_any_of(("add_", "sub_")) & (self.children_N == 0)
        return self.is_any_of(UPDATES) | last_N

    @property
    def trains(self) -> bool:
        """Whether the rank has a backward pass."""
        return bool(self.backward_N.any())

    def is_any_of(self, names: Iterable[str]) -> np.ndarray:
        """Return which nodes are one of these operators."""
        wanted = frozenset(names)
        has = np.array([name in wanted for name in self.operator_W], dtype=bool)
        return has[self.word_N]

    @cached_property
    def forward_N(self) -> np.ndarray:
        """Whether each node is of the forward pass.

        That is what a loss is made of or, on a rank without a loss, what does not follow from a
        backward operator. What the backward pass computes anew, or for its own ends, is neither.
        """
        if self.roots_N.any():
            return self._reached(np.flatnonzero(self.roots_N), self.target_E, self.source_E)
        return ~self._reached(np.flatnonzero(self.backward_N), self.source_E, self.target_E)

    def _reached(self, starts: np.ndarray, from_E: np.ndarray, to_E: np.ndarray) -> np.ndarray:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import breadth_first_order

        size = self.num_nodes + 1  # one more node, from which all starts are reached
        first = np.full(starts.size, size - 1)
        ends = (np.concatenate([from_E, first]), np.concatenate([to_E, starts]))
        graph = coo_array((np.ones(ends[0].size, dtype=np.int8), ends), shape=(size, size)).tocsr()
        found = np.zeros(size, dtype=bool)
        found[breadth_first_order(graph, size - 1, return_predecessors=False)] = True
        return found[:-1]

    @cached_property
    def updating_N(self) -> np.ndarray:
        """Whether parameters are stepped by what follows from each node."""
        return self._reached(np.flatnonzero(self.updates_N), self.target_E, self.source_E)

    @cached_property
    def roots_N(self) -> np.ndarray:
        """Whether each node is the gradient of a loss with respect to itself."""
        return self.is_any_of(("ones_like",)) & (self.flops_N == 1)

    def is_collective(self, kind: CollectiveType) -> np.ndarray:
        """Return which nodes are collectives of a type."""
        value_N, stated_N = self.trace.integers("comm_type")
        return (self.trace.type_N == NodeType.COMM_COLL) & stated_N & (value_N == kind)

    @cached_property
    def num_parameters(self) -> int:
        """Parameters that the optimizer of the rank steps, 0 where it is not known."""
        for name, tensors in FUSED.items():
            if self.is_any_of((name,)).any():
                return int(self.flops_N[self.is_any_of((name,))].sum()) // tensors
        for name in ("_foreach_addcdiv_", "_foreach_lerp_", "addcdiv_"):
            if self.is_any_of((name,)).any():
                return int(self.flops_N[self.is_any_of((name,)) & self.known_N].sum())
        added_N = self.is_any_of(("_foreach_add_",)) & self.known_N
        if added_N.any():
            return int(self.flops_N[added_N].max())
        # Plain gradient descent adds what was averaged.
        reduces = np.flatnonzero(self.is_collective(CollectiveType.ALL_REDUCE))
        added_N = self.is_any_of(("add_",)) & self.known_N & (self.children_N == 0)
        added_N &= self._reached(reduces, self.source_E, self.target_E)
        return int(self.flops_N[added_N].sum())

    def name(self, row: int | np.int64) -> str:
        """Return the operator of a row."""
        return str(self.operator_W[self.word_N[row]])

    def kind_N(self, names: Sequence[str]) -> np.ndarray:
        """Return the place of each node's operator in ``names``, -1 where it is none of them."""
        place = {name: at for at, name in enumerate(names)}
        return np.array([place.get(str(name), -1) for name in self.operator_W])[self.word_N]

    def cases(
        self, rows: np.ndarray, holds_K: np.ndarray, found: Callable[[int], str]
    ) -> RuleOutcomes | None:
        """Return cases of this rank; None if there are none."""
        if not len(rows):
            return None
        return RuleOutcomes(np.full(len(rows), self.rank), rows, holds_K, found)

    def joined_cases(
        self, parts: Sequence[tuple[np.ndarray, np.ndarray]], found: Callable[[int], str]
    ) -> RuleOutcomes | None:
        """Return the cases of several (rows, holds_K); ``found`` is told the row."""
        if not parts:
            return None
        rows, holds_K = (np.concatenate(column) for column in zip(*parts, strict=True))
        return self.cases(rows, holds_K, lambda case: found(rows[case]))
